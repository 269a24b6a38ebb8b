//! The plain reference: every pattern at every place. For tests.

use crate::{Match, Pattern};

/// All matches in a whole stream, by end and then by number. `patterns × bytes` comparisons.
pub fn matches(patterns: &[Pattern], stream: &[u8]) -> Vec<Match> {
    let mut found = Vec::new();
    for end in 1..=stream.len() {
        for (number, pattern) in patterns.iter().enumerate() {
            let len = pattern.bytes().len();
            let Some(start) = end.checked_sub(len) else { continue };
            let there = &stream[start..end];
            let equal = match pattern.is_nocase() {
                true => there.eq_ignore_ascii_case(pattern.bytes()),
                false => there == pattern.bytes(),
            };
            if equal && (start == 0 || !pattern.is_anchored()) {
                found.push(Match { pattern: number as u32, end: end as u64 });
            }
        }
    }
    found
}
