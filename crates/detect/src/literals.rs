//! What is looked for first: the bytes of a rule that are most seldom there by chance.
//!
//! ```text
//!  contents, expressions ─▶ candidates: one of these literals is there if the part holds ─▶ the best of each part
//!                                                                                          └▶ the best of the rule: its key
//! ```
//!
//! Of a rule that looks into buffers of transactions, the key is looked for in all of them; the other parts are evaluated once it is
//! there. Of an expression, the candidates are the literals that each text has which it matches, small letters for large ones.

use std::collections::HashMap;

use regex_syntax::hir::{Class, Hir, HirKind};
use signatures::{Check, FastPattern, Inspection};

use crate::checks::Op;
use crate::index::Bytes;
use crate::ruleset::Search;

/// Alternatives of a candidate at most.
const ALTERNATIVES_MAX: usize = 64;
/// Bytes of a literal at most.
const BYTES_MAX: usize = 256;
/// Bytes of a literal at least: a single one is in nearly every buffer.
const BYTES_MIN: usize = 2;
/// What [`strength`] gives for a literal at least: zeros are nearly everywhere, too.
const STRENGTH_MIN: i32 = 6;

/// What a part may be found by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Candidates {
    all: Vec<Vec<Bytes>>,
    /// So many of them are contents.
    contents: usize,
    /// The rule says that the first one is to be taken.
    is_told: bool,
}

/// How often each literal is wanted by parts: what many look for is often there.
pub(crate) type Wanted = HashMap<Vec<u8>, u32>;

impl Candidates {
    /// Those of an inspection, compiled to `ops`.
    pub(crate) fn new(inspection: &Inspection, ops: &[Op]) -> Self {
        let mut own = Self::default();
        for check in &inspection.checks {
            let Check::Content(content) = check else { continue };
            if content.negated {
                continue;
            }
            let bytes = match content.fast_pattern {
                Some(FastPattern::Piece { offset, length }) => {
                    let from = usize::from(offset);
                    let piece = content.bytes.get(from..from + usize::from(length));
                    piece.unwrap_or(&content.bytes)
                }
                _ => &content.bytes,
            };
            let candidate = vec![(bytes[..bytes.len().min(BYTES_MAX)].to_vec(), content.nocase)];
            if content.fast_pattern.is_some() && !own.is_told {
                own.is_told = true;
                own.all.insert(0, candidate);
            } else {
                own.all.push(candidate);
            }
        }
        own.contents = own.all.len();
        let patterns = ops.iter().filter_map(|op| match op {
            Op::Pattern { pattern, negated: false, .. } => Some(&pattern.literals),
            _ => None,
        });
        for literals in patterns.filter(|own| !own.is_empty()) {
            own.all.push(literals.iter().map(|own| (own.clone(), true)).collect());
        }
        own
    }

    /// Counts them.
    pub(crate) fn count(&self, wanted: &mut Wanted) {
        for (bytes, _) in self.all.iter().flatten() {
            *wanted.entry(bytes.to_ascii_lowercase()).or_default() += 1;
        }
    }

    /// The best one, with what speaks for it; none where all are in nearly every buffer.
    pub(crate) fn best(&self, wanted: &Wanted, search: Search) -> Option<(&[Bytes], i32)> {
        if search == Search::Grouped {
            // As engines do it that look for one content of a rule: the longest.
            let contents = &self.all[..self.contents];
            let best = contents.iter().max_by_key(|own| plain_strength(&own[0].0))?;
            let best = if self.is_told { &self.all[0] } else { best };
            return Some((best, plain_strength(&best[0].0) + i32::from(self.is_told) * 1_000));
        }
        let is_seldom = |own: &&Vec<Bytes>| {
            let is_seldom =
                |bytes: &[u8]| bytes.len() >= BYTES_MIN && strength(bytes) >= STRENGTH_MIN;
            own.iter().all(|(bytes, _)| is_seldom(bytes))
        };
        // Who writes a rule knows what is seldom.
        if let Some(told) = self.all.first().filter(|own| self.is_told && is_seldom(own)) {
            return Some((told, strength(&told[0].0) + 1_000));
        }
        let strength = |own: &Vec<Bytes>| {
            let each = own.iter().map(|(bytes, _)| {
                let wanted = wanted.get(&bytes.to_ascii_lowercase()).copied().unwrap_or(1);
                strength(bytes) - 4 * wanted.max(1).ilog2() as i32
            });
            each.min().unwrap_or(0) - own.len().max(1).ilog2() as i32
        };
        let best = self.all.iter().filter(is_seldom).max_by_key(|own| strength(own))?;
        Some((best, strength(best)))
    }
}

fn plain_strength(bytes: &[u8]) -> i32 {
    let mut distinct = bytes.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    (bytes.len().min(12) + distinct.len()) as i32
}

/// Grows with the bytes, and with how seldom they are.
fn strength(bytes: &[u8]) -> i32 {
    let mut seen = [false; 256];
    let each = bytes.iter().take(16).map(|byte| {
        match (std::mem::replace(&mut seen[usize::from(*byte)], true), byte) {
            (true, _) | (_, 0 | 1 | 0xff) => 1,
            (_, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b' ' | b'\r' | b'\n') => 3,
            (_, b'!'..=b'~') => 4,
            _ => 5,
        }
    });
    each.sum()
}

/// The literals of which each text has one that the expression matches, in small letters; none where that is not known.
pub(crate) fn of_expression(hir: &Hir) -> Vec<Vec<u8>> {
    let Some(all) = known(hir).best() else { return Vec::new() };
    match all.iter().all(|own| own.len() >= BYTES_MIN) {
        true => all,
        false => Vec::new(),
    }
}

type Texts = Vec<Vec<u8>>;

/// What is known of the texts that a part of an expression matches.
#[derive(Default)]
struct Known {
    /// All of them.
    exact: Option<Texts>,
    /// Each has one of these in it.
    within: Option<Texts>,
}

impl Known {
    fn best(self) -> Option<Texts> {
        [self.exact, self.within].into_iter().flatten().reduce(better)
    }
}

fn better(a: Texts, b: Texts) -> Texts {
    let shortest = |own: &Texts| {
        let least = own.iter().map(|text| strength(text)).min().unwrap_or(0);
        (least, std::cmp::Reverse(own.len()))
    };
    if shortest(&a) >= shortest(&b) { a } else { b }
}

fn known(hir: &Hir) -> Known {
    let empty = || Some(vec![Vec::new()]);
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Known { exact: empty(), within: None },
        HirKind::Literal(literal) => {
            Known { exact: Some(vec![literal.0.to_ascii_lowercase()]), within: None }
        }
        HirKind::Class(class) => Known { exact: bytes_of(class), within: None },
        HirKind::Capture(capture) => known(&capture.sub),
        HirKind::Repetition(own) if own.min == 0 => Known::default(),
        HirKind::Repetition(own) => {
            let sub = known(&own.sub);
            match &sub.exact {
                Some(texts) if own.max == Some(own.min) => {
                    let mut all = vec![Vec::new()];
                    for _ in 0..own.min.min(BYTES_MAX as u32) {
                        match product(&all, texts) {
                            Some(more) => all = more,
                            None => return Known { exact: None, within: Some(all) },
                        }
                    }
                    match own.min as usize > BYTES_MAX {
                        true => Known { exact: None, within: Some(all) },
                        false => Known { exact: Some(all), within: None },
                    }
                }
                _ => Known { exact: None, within: sub.best() },
            }
        }
        HirKind::Concat(parts) => {
            let (mut run, mut within, mut is_whole) = (vec![Vec::new()], None, true);
            let mut keep = |texts: Texts| {
                within = Some(match within.take() {
                    Some(before) => better(before, texts),
                    None => texts,
                });
            };
            for part in parts {
                let own = known(part);
                if let Some(more) = own.exact.as_ref().and_then(|texts| product(&run, texts)) {
                    run = more;
                    continue;
                }
                is_whole = false;
                keep(std::mem::replace(&mut run, vec![Vec::new()]));
                match own.exact {
                    Some(texts) => run = texts,
                    None => own.within.into_iter().for_each(&mut keep),
                }
            }
            match is_whole {
                true => Known { exact: Some(run), within: None },
                false => {
                    keep(run);
                    Known { exact: None, within }
                }
            }
        }
        HirKind::Alternation(parts) => {
            let all: Vec<Known> = parts.iter().map(known).collect();
            let few = |texts: Option<Vec<Texts>>| {
                let mut texts = texts?.concat();
                texts.sort_unstable();
                texts.dedup();
                (texts.len() <= ALTERNATIVES_MAX).then_some(texts)
            };
            let exact = few(all.iter().map(|own| own.exact.clone()).collect());
            match exact.is_some() {
                true => Known { exact, within: None },
                false => {
                    Known { exact: None, within: few(all.into_iter().map(Known::best).collect()) }
                }
            }
        }
    }
}

/// The bytes of a class, if they are few.
fn bytes_of(class: &Class) -> Option<Texts> {
    let Class::Bytes(class) = class else { return None };
    let mut all = Texts::new();
    for range in class.iter() {
        for byte in range.start()..=range.end() {
            let byte = byte.to_ascii_lowercase();
            if !all.contains(&vec![byte]) {
                all.push(vec![byte]);
            }
            if all.len() > ALTERNATIVES_MAX {
                return None;
            }
        }
    }
    Some(all)
}

/// Each text of the first with each of the second behind it, if these are few and not long.
fn product(first: &Texts, second: &Texts) -> Option<Texts> {
    if first.len() * second.len() > ALTERNATIVES_MAX {
        return None;
    }
    let pairs = first.iter().flat_map(|a| second.iter().map(move |b| [&a[..], b].concat()));
    let all: Texts = pairs.collect();
    all.iter().all(|text| text.len() <= BYTES_MAX).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literals(expression: &str) -> Vec<String> {
        let mut parser = regex_syntax::ParserBuilder::new();
        let hir = parser.unicode(false).utf8(false).build().parse(expression).unwrap();
        of_expression(&hir).iter().map(|own| String::from_utf8_lossy(own).into_owned()).collect()
    }

    #[test]
    fn each_text_has_one_of_the_literals() {
        let cases: [(&str, &[&str]); 12] = [
            ("abcd", &["abcd"]),
            ("(?i)aBcd", &["abcd"]),
            (r"^/[a-z]{5}\.php\?id=\d+$", &[".php?id="]),
            ("(?:abc|xyz)+", &["abc", "xyz"]),
            ("(?:abc|x*)", &[]),
            ("a?bcd", &["bcd"]),
            ("ab[cd]e", &["abce", "abde"]),
            ("(abc){2}", &["abcabc"]),
            ("(?:one|two)[0-9a-z]*/load", &["/load"]),
            ("[a-z]+", &[]),
            ("a.b", &[]),
            ("(?:ab|cd).+", &["ab", "cd"]),
        ];
        for (expression, expected) in cases {
            assert_eq!(literals(expression), expected, "{expression}");
        }
    }
}
