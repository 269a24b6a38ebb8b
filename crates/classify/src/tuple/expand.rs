//! A rule as entries: a value and a mask each.

use crate::ranges;
use crate::rule::{RuleError, RuleRef};
use crate::schema::{Place, Schema};

/// Entries that one rule may make. Two ranges of ports make 900 at most.
pub const ENTRIES_PER_RULE: u64 = 1 << 14;

/// Value and mask of the prefixes of a range.
type Prefixes = Vec<(u32, u32)>;

/// Prefixes of each range of a rule, and their places in a header.
fn prefixes<'a>(
    schema: &'a Schema,
    rule: &RuleRef<'a>,
) -> impl Iterator<Item = (Place, impl Iterator<Item = (u32, u32)>)> {
    let rule = *rule;
    schema.ranges().map(move |place| {
        let of = |words: &[u32]| words[place.word] >> place.shift & place.max;
        let prefixes = ranges::prefixes(of(rule.lows()), of(rule.highs()), place.max);
        (place, prefixes)
    })
}

/// How many entries a rule makes.
pub(super) fn count(schema: &Schema, rule: &RuleRef<'_>) -> u64 {
    let counts = prefixes(schema, rule).map(|(_, prefixes)| prefixes.count() as u64);
    counts.fold(1, u64::saturating_mul)
}

/// The entries of a rule: for each the value, then the mask. No two of one rule match the same header.
pub(super) fn entries(schema: &Schema, rule: &RuleRef<'_>) -> Result<Vec<Box<[u32]>>, RuleError> {
    let width = schema.words();
    let bits = schema.masked_bits();
    let masked =
        |words: &[u32]| -> Vec<u32> { words.iter().zip(bits).map(|(w, b)| w & b).collect() };
    let mut base = masked(rule.lows());
    base.extend(masked(rule.highs()));
    let ranges = prefixes(schema, rule).map(|(place, prefixes)| (place, prefixes.collect()));
    let ranges: Vec<(Place, Prefixes)> = ranges.collect();
    let counts = ranges.iter().map(|(_, prefixes)| prefixes.len() as u64);
    let count = counts.fold(1_u64, u64::saturating_mul);
    if count > ENTRIES_PER_RULE {
        let limit = ENTRIES_PER_RULE;
        return Err(RuleError::Expansion { id: rule.id, entries: count, limit });
    }
    let mut entries = vec![base.into_boxed_slice()];
    for (place, prefixes) in ranges {
        let (word, shift) = (place.word, place.shift);
        entries = entries
            .iter()
            .flat_map(|entry| {
                prefixes.iter().map(move |(value, mask)| {
                    let mut entry = entry.clone();
                    entry[word] |= value << shift;
                    entry[width + word] |= mask << shift;
                    entry
                })
            })
            .collect();
    }
    Ok(entries)
}
