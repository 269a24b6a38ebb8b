//! What is wrong with a rule, and where.

use std::fmt;

/// An error in a rule, with its place. Lines and columns count from 1; a column counts bytes of its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line of the file, or of the text.
    pub line: u64,
    /// Byte of that line.
    pub column: u64,
    /// The option that is wrong; none where the header is, or the whole rule.
    pub keyword: Option<String>,
    /// Why, in words.
    pub reason: String,
    pub(crate) unknown: Option<(&'static [&'static str], String)>,
}

impl Problem {
    /// The known word nearest to one that is unknown, where one is near.
    ///
    /// Computed on demand: a file of nothing but unknown words costs nothing more than its size.
    pub fn did_you_mean(&self) -> Option<&'static str> {
        let (known, word) = self.unknown.as_ref()?;
        nearest(known, word)
    }

    /// Reason and hint without the place.
    pub fn message(&self) -> String {
        let mut text = match &self.keyword {
            Some(keyword) => format!("{keyword}: {}", self.reason),
            None => self.reason.clone(),
        };
        if let Some(word) = self.did_you_mean() {
            text.push_str(&format!("; did you mean `{word}`?"));
        }
        text
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message())
    }
}

impl std::error::Error for Problem {}

/// A problem by its offset in a logical line, while that line is read.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) at: usize,
    pub(crate) reason: String,
    pub(crate) unknown: Option<(&'static [&'static str], String)>,
}

impl Fault {
    pub(crate) fn new(at: usize, reason: impl Into<String>) -> Self {
        Self { at, reason: reason.into(), unknown: None }
    }

    pub(crate) fn unknown(
        at: usize,
        reason: impl Into<String>,
        known: &'static [&'static str],
        word: &str,
    ) -> Self {
        Self { at, reason: reason.into(), unknown: Some((known, word.to_owned())) }
    }
}

/// Longer words have no near ones.
const WORD_MAX: usize = 64;

/// The known word nearest to another one, in any case, where one is near.
pub fn nearest(known: &[&'static str], word: &str) -> Option<&'static str> {
    if word.len() > WORD_MAX || word.is_empty() {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let allowed = 1 + word.len() / 4;
    let near = |candidate: &&'static str| {
        let length = candidate.len().abs_diff(word.len());
        if length > allowed || candidate.len() > WORD_MAX {
            return None;
        }
        let distance = distance(candidate.to_ascii_lowercase().as_bytes(), word.as_bytes());
        // Half of a short word is another word.
        (distance <= allowed && distance < candidate.len()).then_some((distance, *candidate))
    };
    known.iter().filter_map(near).min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// Insertions, deletions, substitutions and swaps of neighbours that make `b` of `a` (optimal string alignment).
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut before = vec![0; b.len() + 1];
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut next = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let other = usize::from(a[i - 1] != b[j - 1]);
            next[j] = (row[j - 1] + other).min(row[j] + 1).min(next[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                next[j] = next[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words() {
        assert_eq!(distance(b"kitten", b"sitting"), 3);
        assert_eq!(distance(b"ab", b"ba"), 1);
        assert_eq!(nearest(&["content", "flow"], "contnet"), Some("content"));
        assert_eq!(nearest(&["content", "flow"], "Flwo"), Some("flow"));
        assert_eq!(nearest(&["content", "flow"], "zebra"), None);
        assert_eq!(nearest(&["content"], &"content".repeat(1000)), None);
    }
}
