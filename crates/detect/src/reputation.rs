//! Reputation of addresses: `iprep`.
//!
//! Files are Suricata's: categories as `NUMBER,NAME,DESCRIPTION`, reputations as `ADDRESS,CATEGORY,SCORE` with an address or a
//! prefix. The longest prefix with an address applies.

use std::collections::HashMap;
use std::io::{self, BufRead};
use std::net::IpAddr;
use std::sync::Arc;

use signatures::IprepSide;

use crate::rule::Way;

/// Categories at most.
const CATEGORIES_MAX: usize = 60;
/// The highest score.
const SCORE_MAX: u8 = 127;
/// Wrong lines of a file that are named.
const NAMED_MAX: usize = 10;

/// A file of reputations cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReputationError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
}

/// Scores of addresses by category; shared by all detectors.
#[derive(Clone, Debug, Default)]
pub struct Reputation(Arc<Tables>);

impl PartialEq for Reputation {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Reputation {}

/// A score by category, where there is one.
type Scores = Vec<(u8, u8)>;

#[derive(Clone, Debug, Default)]
struct Tables {
    /// Numbers by name, in small letters.
    categories: HashMap<String, u8>,
    /// By family, 4 and 6: by length of the prefix, the longest first.
    families: [Vec<(u8, HashMap<u128, Scores>)>; 2],
    len: usize,
}

/// The family, the bits from the left, and their number.
fn bits(address: IpAddr) -> (usize, u128, u8) {
    match address {
        IpAddr::V4(address) => (0, u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (1, address.to_bits(), 128),
    }
}

fn masked(bits: u128, len: u8) -> u128 {
    bits & u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

/// A line that does not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReputationProblem {
    /// Which of the files of reputations; `None`: the categories.
    pub file: Option<usize>,
    /// The line, from 1.
    pub line: u64,
    /// Why, in words.
    pub reason: &'static str,
}

impl Reputation {
    /// Reads categories, then reputations. What is wrong in them comes back as file, line and reason; the other lines apply.
    ///
    /// # Errors
    /// A reader fails.
    pub fn read(
        categories: impl BufRead,
        files: impl IntoIterator<Item = impl BufRead>,
    ) -> Result<(Self, Vec<ReputationProblem>), ReputationError> {
        let mut tables = Tables::default();
        let mut problems = Vec::new();
        lines(categories, None, &mut problems, |parts| tables.category(parts))?;
        for (at, file) in files.into_iter().enumerate() {
            lines(file, Some(at), &mut problems, |parts| tables.add(parts))?;
        }
        for family in &mut tables.families {
            family.sort_unstable_by_key(|(len, _)| std::cmp::Reverse(*len));
        }
        Ok((Self(Arc::new(tables)), problems))
    }

    /// Addresses and prefixes with a score.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    pub(crate) fn category(&self, name: &str) -> Option<u8> {
        self.0.categories.get(&name.to_ascii_lowercase()).copied()
    }

    /// The score of an address in a category.
    pub(crate) fn score(&self, address: IpAddr, category: u8) -> Option<u8> {
        let (family, bits, _) = bits(address);
        let mut found = self.0.families[family]
            .iter()
            .filter_map(|(len, own)| own.get(&masked(bits, *len)))
            .filter_map(|scores| scores.iter().find(|(own, _)| *own == category));
        found.next().map(|(_, score)| *score)
    }
}

impl Tables {
    fn category(&mut self, parts: &[&str]) -> Result<(), &'static str> {
        let [number, name, _] = parts else { return Err("it is written NUMBER,NAME,DESCRIPTION") };
        let number: u8 = number.parse().map_err(|_| "the number is not 1 to 60")?;
        if number == 0 || usize::from(number) > CATEGORIES_MAX {
            return Err("the number is not 1 to 60");
        }
        if name.is_empty() {
            return Err("the category has no name");
        }
        self.categories.insert(name.to_ascii_lowercase(), number);
        Ok(())
    }

    fn add(&mut self, parts: &[&str]) -> Result<(), &'static str> {
        let [address, category, score] = parts else {
            return Err("it is written ADDRESS,CATEGORY,SCORE");
        };
        let (address, len) = match address.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (*address, None),
        };
        let address: IpAddr = address.parse().map_err(|_| "not an IP address or prefix")?;
        let (family, bits, whole) = bits(address);
        let len = match len {
            None => whole,
            Some(len) => match len.parse() {
                Ok(len) if len <= whole => len,
                _ => return Err("not an IP address or prefix"),
            },
        };
        let category: u8 = category.parse().map_err(|_| "the category is not a number")?;
        if !self.categories.values().any(|own| *own == category) {
            return Err("no category has this number");
        }
        let score: u8 = score.parse().unwrap_or(u8::MAX);
        if score > SCORE_MAX {
            return Err("the score is not 0 to 127");
        }
        let lens = &mut self.families[family];
        let at = match lens.iter().position(|(own, _)| *own == len) {
            Some(at) => at,
            None => {
                lens.push((len, HashMap::new()));
                lens.len() - 1
            }
        };
        let scores = lens[at].1.entry(masked(bits, len)).or_default();
        match scores.iter_mut().find(|(own, _)| *own == category) {
            Some(own) => own.1 = score,
            None => {
                scores.push((category, score));
                self.len += 1;
            }
        }
        Ok(())
    }
}

fn lines(
    reader: impl BufRead,
    file: Option<usize>,
    problems: &mut Vec<ReputationProblem>,
    mut take: impl FnMut(&[&str]) -> Result<(), &'static str>,
) -> io::Result<()> {
    let mut wrong = 0;
    for (text, line) in reader.lines().zip(1..) {
        let text = text?;
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let parts: Vec<&str> = text.splitn(3, ',').map(str::trim).collect();
        if let Err(reason) = take(&parts) {
            wrong += 1;
            if wrong <= NAMED_MAX {
                problems.push(ReputationProblem { file, line, reason });
            }
        }
    }
    Ok(())
}

/// `iprep`, with a number for the category.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) side: IprepSide,
    pub(crate) category: u8,
    /// None where there must not be a score.
    pub(crate) value: Option<signatures::Compare>,
    pub(crate) table: Reputation,
}

impl Asked {
    pub(crate) fn holds(&self, way: &Way) -> bool {
        let one = |address| {
            let score = self.table.score(address, self.category);
            match self.value {
                Some(value) => score.is_some_and(|score| value.holds(score.into())),
                None => score.is_none(),
            }
        };
        match self.side {
            IprepSide::Any => one(way.source) || one(way.destination),
            IprepSide::Source => one(way.source),
            IprepSide::Destination => one(way.destination),
            IprepSide::Both => one(way.source) && one(way.destination),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_with_the_category_applies() {
        let categories = "1,Bad,bad hosts\n# x\n2,Mail,sends mail\n61,No,none\n4,Short\n";
        let scores = "192.0.2.0/24,1,10\n192.0.2.7,1,100\n192.0.2.7,2,5\n2001:db8::/32,1,7\n\
                      192.0.2.9,3,1\n192.0.2.9,1,128\nhost,1,1\n192.0.2.1/33,1,1\n192.0.2.1\n";
        let (own, problems) = Reputation::read(categories.as_bytes(), [scores.as_bytes()]).unwrap();
        assert_eq!(own.len(), 4);
        let lines: Vec<_> = problems.iter().map(|own| (own.file, own.line)).collect();
        let expected: Vec<_> =
            [(None, 4), (None, 5)].into_iter().chain((5..=9).map(|line| (Some(0), line))).collect();
        assert_eq!(lines, expected, "{problems:?}");
        let score =
            |address: &str, name| own.score(address.parse().unwrap(), own.category(name).unwrap());
        assert_eq!(score("192.0.2.7", "bad"), Some(100));
        assert_eq!(score("192.0.2.8", "Bad"), Some(10));
        assert_eq!(score("192.0.2.7", "mail"), Some(5));
        assert_eq!(score("192.0.2.8", "mail"), None);
        assert_eq!(score("198.51.100.1", "bad"), None);
        assert_eq!(score("2001:db8:1::1", "bad"), Some(7));
        assert_eq!(own.category("other"), None);
    }
}
