//! One decode a packet: records of headers that the stages of a pipeline share.
//!
//! ```text
//!  decode ─▶ record of the row ─▶ flow ─▶ modules ─▶ cipher           the first stage that needs the headers decodes,
//!            and that it is known         └ nat, a mark: the record    those behind it read
//!                                           follows, or is forgotten
//! ```
//!
//! The record is a [`Decoded`] in place, so that reading it costs a load: 1 ns against 9 ns for a second decode of a header in
//! the cache, and 13 ns for columns of words that a reader puts together (`bench streams`, rows "headers"). A pipeline in which
//! only one stage decodes does without ([`are_shared`]).
//!
//! A stage that changes a packet says so: it writes what changed into the record or forgets it. Debug builds decode every
//! packet again whose record is read, and compare.
//!
//! Threads: columns belong to their chunk.

use chunk::{ColumnSet, Columns, Packet, Rows};
use packet::Decoded;

use crate::received;

chunk::columns! {
    /// What the headers of packets are, for the stages of a worker; no kernel reads it.
    pub struct RecordColumns / RecordView {
        /// A [`Decoded`], in the words that it has in memory.
        pub record: [u64; 8],
        /// Whether the record is that of the packet as it is now: 0 or 1. Zero at the start of a chunk.
        pub record_is_known: u8,
    }
}

/// What a stage that uses records declares as [zeroed](engine::Stage::zeroed).
pub(crate) fn zeroed() -> ColumnSet {
    ColumnSet::of(&[RecordColumns::RECORD_IS_KNOWN])
}

/// Stages that change no packet, keep its record right, or are the last.
const KEEPERS: &[&str] = &[
    "decode",
    "rpf",
    "route",
    "rewrite",
    "bridge_in",
    "bridge",
    "bridge_out",
    "wire",
    "monitor",
    crate::nat::STAGE,
    crate::nat::SOURCE_STAGE,
    crate::firewall::STAGE,
    crate::flow::STAGE,
    crate::l7::STAGE,
    crate::ids::STAGE,
    crate::modules::STAGE,
    crate::cipher::STAGE,
    crate::ipsec::IN,
    crate::ipsec::OUT,
];

/// Whether two stages of a pipeline with these kinds of stages need the headers of packets, and all are of those that keep
/// records right: another one could change a packet and not say so.
pub(crate) fn are_shared(kinds: &[impl AsRef<str>]) -> bool {
    let count = |name: &str| kinds.iter().filter(|kind| kind.as_ref() == name).count();
    let has_firewall = count(crate::firewall::STAGE) > 0;
    // Of several firewalls the first one decodes for all; in a switch the first stage does for them, and otherwise nothing.
    let first = (count("decode") > 0) || has_firewall;
    let readers = [crate::flow::STAGE, crate::modules::STAGE].iter().filter(|name| count(name) > 0);
    let others = [crate::cipher::STAGE, crate::ipsec::IN, crate::ipsec::OUT].map(count);
    usize::from(first) + readers.count() + others.iter().sum::<usize>() >= 2
        && kinds.iter().all(|kind| KEEPERS.contains(&kind.as_ref()))
}

/// The records of a chunk's rows.
pub(crate) struct Records<'a> {
    words: &'a mut [[u64; 8]],
    is_known: &'a mut [u8],
    /// In place of words that are no record: nobody writes such.
    spare: Decoded,
}

impl<'a> Records<'a> {
    /// Those of `rows`, whose stages share them.
    pub(crate) fn of_rows(rows: &'a mut Rows) -> Self {
        let view = RecordColumns::view(rows);
        Self::new(view.record, view.record_is_known)
    }

    /// Those in these columns.
    pub(crate) fn new(words: &'a mut [[u64; 8]], is_known: &'a mut [u8]) -> Self {
        Self { words, is_known, spare: Decoded::default() }
    }

    /// The record of a row, to be written now.
    #[inline(always)]
    pub(crate) fn write(&mut self, row: usize) -> &mut Decoded {
        let Some(record) = Decoded::in_words(&mut self.words[row]) else { return &mut self.spare };
        self.is_known[row] = 1;
        record
    }

    /// The record of a row whose packet this is: as another stage has left it, or decoded now.
    #[inline(always)]
    pub(crate) fn of(&mut self, row: usize, packet: &Packet) -> &mut Decoded {
        let Some(record) = Decoded::in_words(&mut self.words[row]) else {
            received::decode_into(packet, &mut self.spare);
            return &mut self.spare;
        };
        if self.is_known[row] == 0 {
            received::decode_into(packet, record);
            self.is_known[row] = 1;
        }
        debug_assert_eq!(
            *record,
            received::decode(packet),
            "a packet changed, and its record did not"
        );
        record
    }

    /// The packet of a row has changed.
    #[inline(always)]
    pub(crate) fn forget(&mut self, row: usize) {
        self.is_known[row] = 0;
    }

    /// The packets may have changed.
    pub(crate) fn forget_all(&mut self) {
        self.is_known.fill(0);
    }

    /// The record of a row if it is known, to follow a change of its packet.
    #[inline(always)]
    pub(crate) fn known(&mut self, row: usize) -> Option<&mut Decoded> {
        if self.is_known[row] == 0 {
            return None;
        }
        Decoded::in_words(&mut self.words[row])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stage_that_decodes_shares_nothing() {
        for (kinds, shared) in [
            (&["decode", "route", "rewrite"][..], false),
            (&["decode", "nat", "firewall", "route", "nat_source", "rewrite"], false),
            (&["decode", "flow", "route", "rewrite"], true),
            (&["decode", "cipher", "route", "rewrite"], true),
            (&["bridge_in", "flow", "bridge", "bridge_out"], false),
            (&["bridge_in", "flow", "firewall", "bridge", "bridge_out"], true),
            (&["firewall", "wire"], false),
            (&["flow", "firewall", "wire"], true),
            (&["flow", "modules", "monitor"], true),
            (&["decode", "esp_in", "route", "esp_out", "rewrite"], true),
            (&["flow", "foreign", "modules", "monitor"], false),
        ] {
            assert_eq!(are_shared(kinds), shared, "{kinds:?}");
        }
    }
}
