//! Reduction trees over the 5-tuple of IPv4 (Gupta and McKeown, SIGCOMM 1999; TIC §4.1), which [`rfc`](crate::rfc)
//! and [`tic`](crate::tic) share.
//!
//! ```text
//! phase 0        phase 1          phase 2              phase 3
//! src high ─┐
//! src low  ─┴─▶ source      ─┐
//! dst high ─┐                ├─▶ addresses ─┐
//! dst low  ─┴─▶ destination ─┘              ├─▶ result        TIC ends at the addresses
//! sport    ─┐                               │
//! dport    ─┴─▶ ports ───────┐              │
//! proto    ──────────────────┴─▶ tails ─────┘
//! ```
//!
//! An entry of a table is the number of an *equivalence class*: of values that the same rules want. The tables of
//! the later phases are cross products of classes, `row × columns + column`; those of TIC are cut into [`strips`].
//!
//! **How they are built.** The paper makes a bitmap of all rules for every entry. For addresses that is not
//! needed: prefixes nest, so the classes of a side are the nodes of the tree of its prefixes ([`nest`]), and the
//! rules of a pair of nodes are those of the pair above it and a few more ([`product`]). Nearly every entry is
//! thus a copy. Ports and protocols, which do not nest, go by bitmaps over the *different* conditions, found
//! again by their hash ([`sets`]). The classes are exactly those of the paper.

pub(crate) mod explain;
pub(crate) mod fields;
pub(crate) mod frame;
pub(crate) mod nest;
pub(crate) mod product;
pub(crate) mod sets;
pub(crate) mod strips;
pub(crate) mod table;
#[cfg(target_arch = "x86_64")]
pub(crate) mod vectors;

use crate::rule::{RuleError, RuleRef, RuleSet};
use table::Table;

/// The largest image, bytes: vector gathers take signed offsets of words.
const LARGEST: u64 = 4 * i32::MAX as u64;

/// How large a structure may get, and how large it is so far, bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    limit: u64,
    used: u64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit: limit.min(LARGEST), used: 0 }
    }

    /// Takes the tables of a cross product in strips.
    pub(crate) fn take_strips(
        &mut self,
        part: &'static str,
        tables: &[Table; 2],
    ) -> Result<(), RuleError> {
        tables.iter().try_for_each(|table| self.take_table(part, table))
    }

    /// Whether `bytes` more would fit.
    pub(crate) fn check(&self, part: &'static str, bytes: u64) -> Result<(), RuleError> {
        let (bytes, limit) = (self.used.saturating_add(bytes), self.limit);
        if bytes > limit {
            return Err(RuleError::TooLarge { part, bytes, limit });
        }
        Ok(())
    }

    /// Whether what is there only while building is within the limit; it is not part of the image.
    pub(crate) fn check_workspace(&self, part: &'static str, bytes: u64) -> Result<(), RuleError> {
        Self { used: 0, ..*self }.check(part, bytes)
    }

    pub(crate) fn take(&mut self, part: &'static str, bytes: u64) -> Result<(), RuleError> {
        self.check(part, bytes)?;
        self.used += bytes;
        Ok(())
    }

    /// Takes a table, whose entries must have numbers of 32 bits.
    pub(crate) fn take_table(
        &mut self,
        part: &'static str,
        table: &Table,
    ) -> Result<(), RuleError> {
        if table.entries == u32::MAX {
            let bytes = self.used.saturating_add(1 << 32);
            return Err(RuleError::TooLarge { part, bytes, limit: self.limit.min(1 << 32) });
        }
        self.take(part, table.len_bytes() as u64)
    }
}

/// The set with one rule more.
pub(crate) fn with(set: &RuleSet, rule: RuleRef<'_>) -> Result<RuleSet, RuleError> {
    let mut next = set.clone();
    next.push(rule)?;
    Ok(next)
}

/// The set without a rule; `None` if there is none of this id.
pub(crate) fn without(set: &RuleSet, id: u32) -> Option<RuleSet> {
    let mut next = RuleSet::new(set.schema().clone());
    for rule in set.iter().filter(|rule| rule.id != id) {
        next.push(rule).ok()?;
    }
    (next.len() < set.len()).then_some(next)
}
