//! Rules in classes, as in GSwitch §6 and §7.3.
//!
//! *N* rules over *f* fields lie in *C* classes, each with a mask of its own. *F* of the classes are *full*, the
//! others hold one rule each: from skewed (few full classes) to uniform (*F = C*, the default). Instead the
//! sizes of classes may fall as 1, 1/2, 1/3, … ([`Distribution::Zipf`]), which is nearer to the real sets of
//! Figure 3. A rule is random values under its class's mask.
//!
//! **Masks.** The paper replaces whole fields by wildcards, which gives 2^f masks: too few for 512 classes of 5
//! fields. Here an address has a prefix length, a port or protocol is exact or any, and a field of 32 bits
//! or more that is matched by mask has a number of leading bits.
//!
//! **Overlap.** With *C_m* above 1, classes are in groups of C_m whose masks are *nested*: each looks at a
//! part of the bits of the one before. The rules of a group come in families, one rule a class, of one value: so
//! a header of the narrowest rule of a family is matched by all C_m of them. The narrowest rules of all families
//! are the first of the set ([`Synthetic::heads`]); the other ones follow in random order. A trace that is drawn
//! from the first ones ([`trace::Options::first`](super::trace::Options::first)) matches C_m classes.

use std::collections::HashSet;
use std::sync::Arc;

use super::{GenerateError, Random};
use crate::rule::{NO_ID, RuleRef, RuleSet};
use crate::schema::{Field, Kind, Schema};

/// How rules are spread over the classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Distribution {
    /// Full classes, and classes of one rule.
    #[default]
    Full,
    /// The n-th class has a part of 1/n.
    Zipf,
}

/// What a set should be like.
#[derive(Debug, Clone)]
pub struct Options {
    /// The fields: [`Schema::five_tuple`] (128 bits) or [`Schema::twelve_fields`] (288 bits) in the paper.
    pub schema: Arc<Schema>,
    /// N.
    pub rules: usize,
    /// C.
    pub classes: usize,
    /// F; all, where `None`. Not for [`Distribution::Zipf`].
    pub full_classes: Option<usize>,
    /// C_m; 1: rules of different classes overlap by chance only.
    pub overlap: usize,
    /// How rules are spread.
    pub distribution: Distribution,
    /// The seed of all that is random.
    pub seed: u64,
}

/// A set that was made.
#[derive(Debug, Clone)]
pub struct Synthetic {
    /// The rules; priority and id of each are its index.
    pub set: RuleSet,
    /// How many of the first rules are the narrowest of their families: all, without overlap.
    pub heads: usize,
}

/// Tries for a mask that no other class has, and for a value that no other rule of a class has.
const TRIES: usize = 10_000;

/// Makes a set.
///
/// # Errors
/// Options that contradict each other, or masks that leave no room for so many rules.
pub fn rules(options: &Options) -> Result<Synthetic, GenerateError> {
    let sizes = sizes(options)?;
    let mut random = Random(options.seed);
    let schema = &options.schema;
    let mut taken = HashSet::new();
    let (mut heads, mut others) = (Vec::new(), Vec::new());
    for group in sizes.chunks(options.overlap) {
        let masks = masks(schema, group, &mut taken, &mut random)?;
        let mut values: Vec<HashSet<Vec<u32>>> = vec![HashSet::new(); group.len()];
        for family in 0..group[0] {
            // Sizes fall, so the classes that have a rule more are the first ones.
            let depth = group.partition_point(|size| *size > family);
            let found = (0..TRIES).find_map(|_| {
                let base = random_header(schema, &mut random);
                let masked: Vec<Vec<u32>> =
                    masks[..depth].iter().map(|mask| under(&base, mask)).collect();
                let is_new = masked.iter().zip(&values).all(|(value, had)| !had.contains(value));
                is_new.then_some(masked)
            });
            let masked = found.ok_or_else(|| too_narrow(group[0]))?;
            for (at, value) in masked.into_iter().enumerate() {
                let words = words(schema, &value, &masks[at]);
                if at == 0 {
                    heads.push(words)
                } else {
                    others.push(words)
                }
                values[at].insert(value);
            }
        }
    }
    random.shuffle(&mut heads);
    random.shuffle(&mut others);
    let mut set = RuleSet::new(schema.clone());
    for (number, words) in (0..).zip(heads.iter().chain(&others)) {
        let pushed = set.push(RuleRef { words, priority: number, id: number });
        pushed.map_err(|error| GenerateError::Options(error.to_string()))?;
    }
    Ok(Synthetic { set, heads: heads.len() })
}

/// Rules of each class, the largest first.
fn sizes(options: &Options) -> Result<Vec<usize>, GenerateError> {
    let Options { rules, classes, overlap, .. } = *options;
    let wrong = |text: &str| Err(GenerateError::Options(text.to_owned()));
    if classes == 0 || classes > rules || rules >= NO_ID as usize {
        return wrong("expected at least one class, and at least one rule for each class");
    }
    if overlap == 0 || overlap > classes {
        return wrong("expected an overlap from 1 to the number of classes");
    }
    if options.distribution == Distribution::Zipf {
        if options.full_classes.is_some() {
            return wrong("full classes require the distribution `full`");
        }
        let sum: f64 = (1..=classes).map(|n| 1.0 / n as f64).sum();
        let spare = (rules - classes) as f64;
        let mut sizes: Vec<usize> =
            (1..=classes).map(|n| 1 + (spare / sum / n as f64) as usize).collect();
        sizes[0] += rules - sizes.iter().sum::<usize>();
        return Ok(sizes);
    }
    let full = options.full_classes.unwrap_or(classes);
    if full == 0 || full > classes {
        return wrong("expected a number of full classes from 1 to the number of classes");
    }
    // The rules that do not divide go to the first classes.
    let in_full = rules - (classes - full);
    let of_full = (0..full).map(|at| in_full / full + usize::from(at < in_full % full));
    Ok(of_full.chain(std::iter::repeat_n(1, classes - full)).collect())
}

/// Masks of a group of classes, each a part of the one before, that no other class has.
fn masks(
    schema: &Schema,
    sizes: &[usize],
    taken: &mut HashSet<Vec<u32>>,
    random: &mut Random,
) -> Result<Vec<Vec<u32>>, GenerateError> {
    for _ in 0..TRIES {
        // Bits of each field that the mask has.
        let mut bits: Vec<u8> = schema
            .fields()
            .iter()
            .map(|field| match (sizes.len() > 1, steps(field)) {
                (true, _) => field.bits,
                (false, true) => {
                    (random.below(usize::from(field.bits) * 3 / 4 + 1)) as u8 + field.bits / 4
                }
                (false, false) => [0, field.bits][random.below(2)],
            })
            .collect();
        if sizes.len() > 1 {
            // A chain begins near the top, and not always there.
            (0..random.below(8)).for_each(|_| narrow(schema, &mut bits, random));
        }
        let mut masks = Vec::new();
        while masks.len() < sizes.len() {
            let mask = mask(schema, &bits);
            let mask_bits: u32 = mask.iter().map(|word| word.count_ones()).sum();
            if mask_bits < 1 + usize::BITS - sizes[masks.len()].leading_zeros() {
                break;
            }
            if !taken.contains(&mask) {
                masks.push(mask);
            }
            narrow(schema, &mut bits, random);
        }
        if masks.len() == sizes.len() {
            taken.extend(masks.iter().cloned());
            return Ok(masks);
        }
    }
    Err(too_narrow(sizes[0]))
}

/// Whether a mask may have some of a field's bits: the leading ones.
fn steps(field: &Field) -> bool {
    field.kind == Kind::Prefix || field.kind == Kind::Mask && field.bits >= 32
}

/// Takes bits from a mask: one of a field that has steps, or a whole field.
fn narrow(schema: &Schema, bits: &mut [u8], random: &mut Random) {
    let left: Vec<usize> = (0..bits.len()).filter(|at| bits[*at] > 0).collect();
    let Some(at) = left.get(random.below(left.len())) else { return };
    bits[*at] = if steps(&schema.fields()[*at]) { bits[*at] - 1 } else { 0 };
}

fn mask(schema: &Schema, bits: &[u8]) -> Vec<u32> {
    let mut mask = vec![0; schema.words()];
    for (at, field) in schema.fields().iter().enumerate() {
        let low = crate::schema::ones(field.bits - bits[at]);
        schema.set(&mut mask, at, field.max() & !low);
    }
    mask
}

fn random_header(schema: &Schema, random: &mut Random) -> Vec<u32> {
    let values: Vec<u128> =
        schema.fields().iter().map(|field| random.wide() & field.max()).collect();
    schema.header(&values)
}

fn under(header: &[u32], mask: &[u32]) -> Vec<u32> {
    header.iter().zip(mask).map(|(word, mask)| word & mask).collect()
}

/// The words of a rule: a range is all or one value.
fn words(schema: &Schema, value: &[u32], mask: &[u32]) -> Vec<u32> {
    let (lows, mut highs) = (value.to_vec(), mask.to_vec());
    for (at, field) in schema.fields().iter().enumerate() {
        if field.kind == Kind::Range {
            let high = schema.get(value, at) | field.max() & !schema.get(mask, at);
            schema.set(&mut highs, at, high);
        }
    }
    [lows, highs].concat()
}

fn too_narrow(size: usize) -> GenerateError {
    GenerateError::Options(format!(
        "the fields do not allow that many different masks with {size} rules in one of them: use fewer classes, \
         less overlap or more fields"
    ))
}
