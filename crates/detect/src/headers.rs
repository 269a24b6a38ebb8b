//! The headers of rules, each different one once: a flow compares each at most once for each of its ends.
//!
//! ```text
//!  literal of a rule is there ─▶ number of its header ─▶ two bits of the flow: compared? holds?  ─▶ candidate
//!                                                          └ not compared yet: addresses and ports of the rule
//! ```
//!
//! Thousands of rules have some hundred headers, and most literals that are found belong to rules for other ports. Two bits say
//! so, where the rule itself would be several lines of memory that no cache has.

use std::collections::HashMap;

use crate::rule::{Compiled, Ends, Kind, Way};

/// Headers of which a flow keeps bits; those with higher numbers are compared each time.
const KEPT_MAX: usize = 4_096;

/// All headers of a ruleset.
#[derive(Debug, Default)]
pub(crate) struct Headers {
    all: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    ends: Ends,
    /// Parts of the rule may be of either sender; what of it was found last says which way its header is compared.
    is_of_either: bool,
}

impl Entry {
    fn holds(&self, way: &Way) -> bool {
        self.ends.hold(way) || self.is_of_either && self.ends.hold(&way.back())
    }
}

/// Gives numbers to headers.
#[derive(Debug, Default)]
pub(crate) struct HeadersBuilder {
    headers: Headers,
    numbers: HashMap<(Ends, bool), u32>,
}

impl HeadersBuilder {
    /// The number of a rule's header.
    pub(crate) fn number(&mut self, rule: &Compiled) -> u32 {
        let key = (rule.ends.clone(), rule.kind == Kind::Transaction);
        let next = self.headers.all.len() as u32;
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            let (ends, is_of_either) = (rule.ends.clone(), rule.kind == Kind::Transaction);
            self.headers.all.push(Entry { ends, is_of_either });
        }
        number
    }

    pub(crate) fn build(self) -> Headers {
        self.headers
    }
}

/// Of one end of a flow: which headers were compared with what it sends, and which of them hold; a bit each.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    words: Vec<[u64; 2]>,
}

impl Compared {
    /// Whether a header holds of what goes this way; where the way is not known it may.
    #[inline]
    pub(crate) fn holds(&mut self, headers: &Headers, number: u32, way: Option<&Way>) -> bool {
        let Some(way) = way else { return true };
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        match self.words.get(word) {
            Some([compared, holds]) if compared & bit != 0 => holds & bit != 0,
            _ => self.compare(headers, number, way),
        }
    }

    #[inline(never)]
    fn compare(&mut self, headers: &Headers, number: u32, way: &Way) -> bool {
        let Some(entry) = headers.all.get(number as usize) else { return true };
        let holds = entry.holds(way);
        if self.words.is_empty() {
            let kept = headers.all.len().min(KEPT_MAX).div_ceil(64);
            self.words.resize(kept, [0; 2]);
        }
        let (word, bit) = (number as usize / 64, 1_u64 << (number % 64));
        if let Some([compared, own]) = self.words.get_mut(word) {
            *compared |= bit;
            *own |= if holds { bit } else { 0 };
        }
        holds
    }

    /// Other rules, or another way.
    pub(crate) fn forget(&mut self) {
        self.words.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn way(source_port: u16, destination_port: u16) -> Way {
        let address = Ipv4Addr::LOCALHOST.into();
        Way { source: address, destination: address, source_port, destination_port, protocol: 6 }
    }

    fn entry(port: u16, is_of_either: bool) -> Entry {
        let ports = Some(vec![(port, port)].into());
        Entry { ends: Ends { destination_ports: ports, ..Ends::default() }, is_of_either }
    }

    /// Asked again, bits say what comparing said; beyond those that are kept, too.
    #[test]
    fn bits_are_what_comparing_says() {
        let entries = (0..KEPT_MAX as u32 + 70).map(|at| entry(at as u16, at % 3 == 0));
        let headers = Headers { all: entries.collect() };
        for way in [way(30, 80), way(81, 4_097), way(4_150, 5)] {
            let mut compared = Compared::default();
            for _ in 0..2 {
                for (number, entry) in (0..).zip(&headers.all) {
                    let holds = compared.holds(&headers, number, Some(&way));
                    assert_eq!(holds, entry.holds(&way), "{number}");
                }
            }
            assert!(compared.holds(&headers, 0, None));
            assert_eq!(compared.words.len() * 64, KEPT_MAX);
        }
    }
}
