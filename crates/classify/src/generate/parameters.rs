//! Parameter files of ClassBench.
//!
//! ```text
//! -prots                  protocol, its part, then the parts of the 25 classes of ports within it
//! 6  0.572  0.185 0 …
//! #                       ends a section
//! -flags                  protocol, then value/mask of the TCP flags and the part of each
//! -spar -spem -dpar -dpem part and range: ports of sources and destinations, ranges and single ones
//! -wc_wc … -em_em         for each class of ports: total length of both prefixes and its part, then
//! 32,0.9  0,0.98 32,0.02  lengths of the source prefix and the part of each
//! -snest -dnest           how many prefixes are within each other at most
//! -sskew -dskew           level, parts of nodes with one and two children, mean skew of those with two
//! -pcorr                  level, how often source and destination go on alike
//! ```
//!
//! A class of ports is named by source and destination: `wc` any, `hi` 1024 to 65535, `lo` 0 to 1023, `ar` another
//! range, `em` one port. Sections that are not named here are left out.

use std::collections::{BTreeMap, HashMap};

use crate::classbench::text::{Line, each_line};
use crate::classbench::{Flags, ProblemKind, Problems};

/// The classes of ports, in the order of the columns of `-prots`.
pub const PORT_CLASSES: [&str; 25] = [
    "wc_wc", "wc_hi", "hi_wc", "hi_hi", "wc_lo", "lo_wc", "hi_lo", "lo_hi", "lo_lo", "wc_ar",
    "ar_wc", "hi_ar", "ar_hi", "wc_em", "em_wc", "hi_em", "em_hi", "lo_ar", "ar_lo", "lo_em",
    "em_lo", "ar_ar", "ar_em", "em_ar", "em_em",
];

/// Levels of a trie of IPv4 addresses.
pub(super) const LEVELS: usize = 32;

/// Things, and the part of each.
pub(super) type Parts<T> = Vec<(f64, T)>;

/// What a parameter file says.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    /// Protocols; within each the parts of the classes of ports.
    pub(super) protocols: Parts<(u8, Vec<f64>)>,
    /// Flags by protocol.
    pub(super) flags: BTreeMap<u8, Parts<Flags>>,
    pub(super) source: Side,
    pub(super) destination: Side,
    /// For each class of ports: total length, and lengths of the source prefix, ascending.
    pub(super) lengths: Vec<Parts<(u8, Parts<u8>)>>,
    /// How often both addresses go on alike, by level from 0.
    pub(super) correlation: [f64; LEVELS],
}

/// What is said of sources and destinations alike.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Side {
    /// `ar`.
    pub(super) ranges: Parts<(u16, u16)>,
    /// `em`.
    pub(super) exact: Parts<(u16, u16)>,
    pub(super) nesting_max: usize,
    pub(super) levels: [Level; LEVELS],
}

/// The nodes of a level of a trie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Level {
    /// The part of those that have two children, of those that have any.
    pub(super) two: f64,
    /// 1 less the lighter child's weight over the heavier's.
    pub(super) skew: f64,
}

impl Side {
    fn new() -> Self {
        let levels = [Level { two: 0.5, skew: 0.5 }; LEVELS];
        Self { ranges: Vec::new(), exact: Vec::new(), nesting_max: LEVELS + 1, levels }
    }
}

impl Parameters {
    /// Reads the bytes of a parameter file.
    ///
    /// # Errors
    /// Every bad line, by number; or a file that says too little to make a rule.
    pub fn parse(bytes: &[u8]) -> Result<Self, Problems> {
        let mut parameters = Self {
            protocols: Vec::new(),
            flags: BTreeMap::new(),
            source: Side::new(),
            destination: Side::new(),
            lengths: vec![Vec::new(); PORT_CLASSES.len()],
            correlation: [0.5; LEVELS],
        };
        let classes: HashMap<&str, usize> = PORT_CLASSES.into_iter().zip(0..).collect();
        let mut section = String::new();
        // A line that begins with `#` ends a section: for this reader it is a comment, and the next section's
        // name comes anyway.
        each_line(bytes, |line| {
            let line = text(line)?;
            if let Some(name) = line.strip_prefix('-') {
                section = name.trim().to_owned();
                return Ok(());
            }
            let mut words = line.split_ascii_whitespace();
            if let Some(class) = classes.get(section.as_str()) {
                let first = words.next().unwrap_or_default();
                let (total, part) = length(first, 64)?;
                let sources =
                    words.map(|word| length(word, 32).map(|(length, part)| (part, length)));
                let sources = sources.collect::<Result<_, _>>()?;
                parameters.lengths[*class].push((part, (total, sources)));
                return Ok(());
            }
            parameters.read(&section, words)
        })?;
        for lengths in &mut parameters.lengths {
            lengths.retain(|(_, (total, sources))| has_length(*total, sources));
            lengths.sort_by_key(|(_, (total, _))| *total);
        }
        parameters.settle()
    }

    fn read<'w>(
        &mut self,
        section: &str,
        mut words: impl Iterator<Item = &'w str>,
    ) -> Result<(), ProblemKind> {
        let mut next = || words.next().unwrap_or_default();
        let source = section.starts_with('s');
        match section {
            "prots" => {
                let (protocol, part) = (integer(next(), 255)? as u8, fraction(next())?);
                let classes = (0..PORT_CLASSES.len()).map(|_| fraction(next()));
                let classes = classes.collect::<Result<Vec<_>, _>>()?;
                self.protocols.push((part, (protocol, classes)));
            }
            "flags" => {
                let protocol = integer(next(), 255)? as u8;
                let flags = words.map(flags_of).collect::<Result<_, _>>()?;
                self.flags.insert(protocol, flags);
            }
            "spar" | "dpar" | "spem" | "dpem" => {
                let (part, range) = (fraction(next())?, range(next())?);
                let exact = section.ends_with("em");
                let side = self.side(source);
                if exact { &mut side.exact } else { &mut side.ranges }.push((part, range));
            }
            "snest" | "dnest" => self.side(source).nesting_max = integer(next(), 64)? as usize,
            "sskew" | "dskew" => {
                let level = integer(next(), 64)? as usize;
                let (one, two) = (fraction(next())?, fraction(next())?);
                let skew = fraction(next())?.min(1.0);
                if let Some(at) = self.side(source).levels.get_mut(level) {
                    let two = if one + two > 0.0 { two / (one + two) } else { 0.0 };
                    *at = Level { two, skew };
                }
            }
            "pcorr" => {
                // The file counts from 1.
                let level = integer(next(), 64)? as usize;
                let part = fraction(next())?;
                if let Some(at) = self.correlation.get_mut(level.wrapping_sub(1)) {
                    *at = part;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn side(&mut self, source: bool) -> &mut Side {
        if source { &mut self.source } else { &mut self.destination }
    }

    /// Takes out what no rule can be made of.
    fn settle(mut self) -> Result<Self, Problems> {
        let can_be = |spec: &str, side: &Side| match spec {
            "ar" => !side.ranges.is_empty(),
            "em" => !side.exact.is_empty(),
            _ => true,
        };
        let usable: Vec<bool> = PORT_CLASSES
            .iter()
            .zip(&self.lengths)
            .map(|(name, lengths)| {
                !lengths.is_empty()
                    && can_be(&name[..2], &self.source)
                    && can_be(&name[3..], &self.destination)
            })
            .collect();
        for (_, (_, classes)) in &mut self.protocols {
            let unusable = classes.iter_mut().zip(&usable).filter(|(_, usable)| !**usable);
            unusable.for_each(|(part, _)| *part = 0.0);
        }
        self.protocols
            .retain(|(part, (_, classes))| *part > 0.0 && classes.iter().sum::<f64>() > 0.0);
        if self.protocols.is_empty() {
            let mut problems = Problems::default();
            let expected =
                "protocols (-prots), and prefix lengths (-wc_wc …) and ports for their classes";
            let found = "none that make a rule".to_owned();
            problems.add(0, ProblemKind::Expected { expected, found });
            return Err(problems);
        }
        Ok(self)
    }
}

/// Whether both prefixes can be, for some length of the source's.
fn has_length(total: u8, sources: &Parts<u8>) -> bool {
    let fits = |source: u8| source <= total && total - source <= 32;
    sources.iter().any(|(part, source)| *part > 0.0 && fits(*source))
}

fn text(line: Line<'_>) -> Result<&str, ProblemKind> {
    let rest = line.rest().trim_ascii();
    std::str::from_utf8(rest).map_err(|_| wrong("plain text", "other bytes"))
}

fn wrong(expected: &'static str, found: &str) -> ProblemKind {
    let found = match found {
        "" => "the end of the line".to_owned(),
        found => found.chars().take(32).collect(),
    };
    ProblemKind::Expected { expected, found }
}

fn integer(word: &str, max: u64) -> Result<u64, ProblemKind> {
    let found = word.parse().map_err(|_| wrong("a number", word))?;
    let column = "number";
    if found > max { Err(ProblemKind::Range { column, max, found }) } else { Ok(found) }
}

fn fraction(word: &str) -> Result<f64, ProblemKind> {
    let part = word.parse().ok().filter(|part| (0.0..=1.01).contains(part));
    part.ok_or_else(|| wrong("a share from 0 to 1", word))
}

/// `LENGTH,PART`.
fn length(word: &str, max: u64) -> Result<(u8, f64), ProblemKind> {
    let pair = word.split_once(',');
    let (length, part) =
        pair.ok_or_else(|| wrong("a length and its share, such as 32,0.5", word))?;
    Ok((integer(length, max)? as u8, fraction(part)?))
}

/// `LOW:HIGH`.
fn range(word: &str) -> Result<(u16, u16), ProblemKind> {
    let pair = word.split_once(':').and_then(|(low, high)| {
        Some((low.parse().ok()?, high.parse().ok()?)).filter(|(low, high)| low <= high)
    });
    pair.ok_or_else(|| wrong("a range of ports, such as 0:65535", word))
}

/// `VALUE/MASK,PART`.
fn flags_of(word: &str) -> Result<(f64, Flags), ProblemKind> {
    let hex = |text: &str| u16::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let flags = word.split_once(',').and_then(|(flags, part)| {
        let (value, mask) = flags.split_once('/')?;
        Some((fraction(part).ok()?, (hex(value)?, hex(mask)?)))
    });
    flags.ok_or_else(|| wrong("flags and their share, such as 0x0000/0x0200,0.5", word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small file of our own.
    pub(crate) const FILE: &str = "-scale\n10\n#\n-prots\n6\t0.75\t0.5 0 0 0 0 0 0 0 0 0.25 0 0 0 0.25 \
        0 0 0 0 0 0 0 0 0 0 0\n17 0.25 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n#\n-flags\n\
        6 0x0000/0x0200,0.5\t0x1000/0x1000,0.5\n#\n-dpar\n1.0 100:200\n#\n-dpem\n0.5 80:80\n0.5\t443:443\n#\n\
        -wc_wc\n0,0.1 0,1.0\n48,0.9\t24,0.5 32,0.5\n#\n-wc_ar\n64,1.0 32,1.0\n#\n-wc_em\n56,1.0 24,1.0\n#\n\
        -snest\n3\n#\n-sskew\n0 0.0 1.0 0.5\n1 0.5 0.5 0.0\n#\n-pcorr\n1 1.0\n2 0.25\n#\n";

    #[test]
    fn reads_every_section() {
        let p = Parameters::parse(FILE.as_bytes()).unwrap();
        assert_eq!(p.protocols.len(), 2);
        assert_eq!(p.protocols[0].1.0, 6);
        assert_eq!(p.protocols[0].1.1[13], 0.25);
        assert_eq!(p.flags[&6], [(0.5, (0, 0x200)), (0.5, (0x1000, 0x1000))]);
        assert_eq!(p.destination.ranges, [(1.0, (100, 200))]);
        assert_eq!(p.destination.exact.len(), 2);
        assert_eq!(p.lengths[0][1], (0.9, (48, vec![(0.5, 24), (0.5, 32)])));
        assert_eq!((p.source.nesting_max, p.source.levels[0].two), (3, 1.0));
        assert_eq!((p.correlation[0], p.correlation[1], p.correlation[2]), (1.0, 0.25, 0.5));
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        for (text, wanted) in [
            ("-prots\n6 0.5 x\n", "line 2: expected a share from 0 to 1, found `x`"),
            ("-prots\n6 0.5 1 0\n", "expected a share from 0 to 1, found `the end of the line`"),
            ("-wc_wc\n65,0.5 1,1\n", "line 2: expected a number of 0 to 64, found 65"),
            ("-wc_wc\n60\n", "expected a length and its share"),
            ("-dpar\n1.0 9:3\n", "expected a range of ports"),
            ("-scale\n1\n", "found `none that make a rule`"),
            ("-flags\n6 0\n", "expected flags and their share"),
        ] {
            let found = Parameters::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(found.contains(wanted), "{text}: {found}");
        }
    }
}
