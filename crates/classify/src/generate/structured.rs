//! Rules with the structure that a parameter file describes.
//!
//! A rule takes a protocol, then flags and a class of ports of it, ports of the class, a total length of both
//! prefixes, and a length of the source's; then all rules together take addresses (`trie`). ClassBench's three
//! dials are there:
//!
//! - *smoothing* r: prefix lengths are moved by up to r bits, by a symmetric binomial distribution, so that a set may
//!   have lengths that the file does not name;
//! - *address scope* and *port scope*, -1 to 1: a draw `x` is bent to `s x² - s x + x`. Above 0 rules get wider (shorter
//!   prefixes, more wildcards), below narrower.
//!
//! Rules that are there already are left out, and others made instead. The narrower rule is first: rules are
//! in falling order of both prefix lengths together, then of what their other fields match, so that no rule
//! hides one that it covers.

use std::collections::HashSet;

use super::parameters::{PORT_CLASSES, Parameters, Parts, Side};
use super::trie::{Correlated, addresses};
use super::{GenerateError, Random};
use crate::classbench::{Flags, RulesFile};
use crate::rule::{NO_ID, RuleRef, RuleSet};
use crate::schema::Schema;

/// What a set should be like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Rules.
    pub rules: usize,
    /// Bits that prefix lengths move at most: 0 to 32.
    pub smoothing: u8,
    /// -1 to 1; 0: as in the file.
    pub address_scope: f64,
    /// -1 to 1; 0: as in the file.
    pub port_scope: f64,
    /// The seed of all that is random.
    pub seed: u64,
}

/// How often missing rules are made anew.
const ROUNDS: usize = 32;

/// A rule before it has addresses.
struct Draft {
    proto: u8,
    flags: Option<Flags>,
    sport: (u16, u16),
    dport: (u16, u16),
    src_len: u8,
    dst_len: u8,
}

/// Makes a set.
///
/// # Errors
/// Options that contradict each other, or a file that does not describe so many different rules.
pub fn rules(parameters: &Parameters, options: &Options) -> Result<RulesFile, GenerateError> {
    let scope = -1.0..=1.0;
    if !scope.contains(&options.address_scope) || !scope.contains(&options.port_scope) {
        return Err(GenerateError::Options("expected a scope from -1 to 1".into()));
    }
    if options.smoothing > 32 || options.rules >= NO_ID as usize {
        return Err(GenerateError::Options("expected a smoothing from 0 to 32 bits".into()));
    }
    let mut random = Random(options.seed);
    let mut had: HashSet<[u32; 8]> = HashSet::with_capacity(options.rules);
    let mut rules: Vec<([u32; 8], Option<Flags>)> = Vec::with_capacity(options.rules);
    for _ in 0..ROUNDS {
        let missing = options.rules - rules.len();
        if missing == 0 {
            break;
        }
        // Somewhat more than are missing, for some will be there already.
        let drafts =
            (0..missing + missing / 8 + 8).map(|_| draft(parameters, options, &mut random));
        let drafts: Vec<Draft> = drafts.collect();
        let with_addresses = placed(parameters, &drafts, &mut random);
        let fresh = with_addresses.into_iter().filter(|(words, _)| had.insert(*words));
        rules.extend(fresh.take(missing));
    }
    if rules.len() < options.rules {
        return Err(GenerateError::TooFew { found: rules.len(), wanted: options.rules });
    }
    rules.sort_by_key(|(words, _)| width(words));
    let mut set = RuleSet::new(Schema::five_tuple());
    let mut flags = Vec::with_capacity(rules.len());
    for (number, (words, own)) in (0..).zip(&rules) {
        let pushed = set.push(RuleRef { words, priority: number, id: number });
        pushed.map_err(|error| GenerateError::Options(error.to_string()))?;
        flags.push(*own);
    }
    Ok(RulesFile { set, flags, host_bits: 0 })
}

/// A key that is smaller for the narrower of two rules of which one covers the other.
fn width(words: &[u32; 8]) -> (u32, u64) {
    let free = |mask: u32| mask.count_zeros();
    let span = |shift: u32| u64::from((words[6] >> shift & 0xffff) - (words[2] >> shift & 0xffff));
    let proto = u64::from(words[7] == 0);
    (free(words[4]) + free(words[5]), span(16) + span(0) + proto)
}

fn draft(parameters: &Parameters, options: &Options, random: &mut Random) -> Draft {
    let (proto, classes) = choose(&parameters.protocols, 0.0, random);
    let flags = parameters.flags.get(proto).filter(|flags| !flags.is_empty());
    let flags = flags.map(|flags| *choose(flags, 0.0, random));
    let classes: Parts<usize> =
        classes.iter().copied().zip(0..).filter(|(p, _)| *p > 0.0).collect();
    let class = *choose(&classes, options.port_scope, random);
    let name = PORT_CLASSES[class];
    let sport = ports(&name[..2], &parameters.source, random);
    let dport = ports(&name[3..], &parameters.destination, random);
    let (total, sources) = choose(&parameters.lengths[class], options.address_scope, random);
    let fits = |length: &u8| length <= total && total - length <= 32;
    let sources: Parts<u8> = sources.iter().copied().filter(|(_, length)| fits(length)).collect();
    let source = *choose(&sources, options.address_scope, random);
    let mut moved = |length: u8, max: i32| {
        let coins = (0..2 * options.smoothing).filter(|_| random.below(2) == 1).count() as i32;
        (i32::from(length) + coins - i32::from(options.smoothing)).clamp(0, max)
    };
    let (total, source) = (moved(*total, 64), moved(source, 32));
    let source = source.clamp((total - 32).max(0), total.min(32));
    let (src_len, dst_len) = (source as u8, (total - source) as u8);
    Draft { proto: *proto, flags, sport, dport, src_len, dst_len }
}

fn ports(spec: &str, side: &Side, random: &mut Random) -> (u16, u16) {
    match spec {
        "hi" => (1024, 65535),
        "lo" => (0, 1023),
        "ar" => *choose(&side.ranges, 0.0, random),
        "em" => *choose(&side.exact, 0.0, random),
        _ => (0, 65535),
    }
}

/// One of several, by their parts; the draw is bent by a scope. There is at least one.
fn choose<'p, T>(parts: &'p Parts<T>, scope: f64, random: &mut Random) -> &'p T {
    let x = random.unit();
    let x = scope * x * x - scope * x + x;
    let mut left = x * parts.iter().map(|(part, _)| part).sum::<f64>();
    let found = parts.iter().find(|(part, _)| {
        left -= part;
        left < 0.0
    });
    // Rounding may leave a little behind the last one.
    &found.unwrap_or(&parts[parts.len() - 1]).1
}

/// Gives addresses to rules.
fn placed(
    parameters: &Parameters,
    drafts: &[Draft],
    random: &mut Random,
) -> Vec<([u32; 8], Option<Flags>)> {
    let source_lengths: Vec<u8> = drafts.iter().map(|draft| draft.src_len).collect();
    let lengths: Vec<u8> = drafts.iter().map(|draft| draft.dst_len).collect();
    let sources = addresses(&source_lengths, &parameters.source, None, random);
    let parts = &parameters.correlation;
    let like = Correlated { sources: &sources, source_lengths: &source_lengths, parts };
    let destinations = addresses(&lengths, &parameters.destination, Some(like), random);
    let mask = |length: u8| u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
    let pair = |source: u16, destination: u16| u32::from(source) << 16 | u32::from(destination);
    let all = drafts.iter().zip(sources.iter().zip(&destinations));
    let all = all.map(|(draft, (source, destination))| {
        // Protocol 0 is any, as in the rule files that ClassBench makes.
        let proto_mask = if draft.proto == 0 { 0 } else { 0xff00_0000 };
        let words = [
            *source,
            *destination,
            pair(draft.sport.0, draft.dport.0),
            u32::from(draft.proto) << 24,
            mask(draft.src_len),
            mask(draft.dst_len),
            pair(draft.sport.1, draft.dport.1),
            proto_mask,
        ];
        (words, draft.flags)
    });
    all.collect()
}
