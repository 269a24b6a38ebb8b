//! The search for a key, step by step. That of a batch is [`FlowTable::search`], whose memory accesses overlap; it ends here where
//! tags are equal by chance, or buckets are full.
//!
//! ```text
//!  begin    hash the key                              ask for its bucket
//!  level    compare tags in the bucket                ask for the line of the slot, and for its time
//!  level    compare the key in the line: found        or: the next way with this tag, or the next bucket
//! ```

use std::task::Poll;

use interleave::{Machine, prefetch};

use super::index::Place;
use super::{FlowTable, Found, NIL, Outcome, same};
use crate::FlowKey;

/// A search under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    place: Place,
    /// Ways of the bucket that have the tag and were not compared yet.
    ways: u16,
    /// What is loaded next is the line of this slot; `NIL`: the bucket.
    pub(super) slot: u32,
}

/// The table as the searches of a batch see it.
pub(super) struct Finder<'a, H>(pub(super) &'a FlowTable<H>);

impl<H: Copy + Default> Finder<'_, H> {
    #[inline(always)]
    pub(super) fn start(&self, hash: u64) -> Search {
        let place = self.0.index.place(hash);
        prefetch(self.0.index.bucket(place.bucket));
        Search { place, ways: 0, slot: NIL }
    }

    /// Reads what was loaded. True: the search goes on. At its end `slot` is the answer.
    #[inline(always)]
    pub(super) fn advance(&self, key: &FlowKey, search: &mut Search) -> bool {
        let bucket = self.0.index.bucket(search.place.bucket);
        if search.slot == NIL {
            search.ways = bucket.matches(search.place.tag) as u16;
        } else if same(&self.0.lines[search.slot as usize].key, key) {
            return false;
        }
        if search.ways != 0 {
            search.slot = bucket.slot(search.ways.trailing_zeros());
            search.ways &= search.ways - 1;
            prefetch(&self.0.lines[search.slot as usize]);
            prefetch(&self.0.times[search.slot as usize]);
            return true;
        }
        search.slot = NIL;
        if bucket.is_passed() {
            search.place.bucket = self.0.index.next(search.place.bucket);
            prefetch(self.0.index.bucket(search.place.bucket));
            return true;
        }
        false
    }

    #[inline(always)]
    fn answer(key: &FlowKey, slot: u32) -> Found {
        if key.family == 0 {
            return Found::NONE;
        }
        let outcome = if slot == NIL { Outcome::NotAdmitted } else { Outcome::Known };
        Found { slot, outcome }
    }
}

impl<H: Copy + Default> Machine for Finder<'_, H> {
    type Key = FlowKey;
    type Value = Found;
    type State = Search;

    #[inline(always)]
    fn begin(&self, key: &FlowKey) -> Search {
        self.start(self.0.hash.of(key))
    }

    #[inline(always)]
    fn step(&self, key: &FlowKey, search: &mut Search) -> Poll<Found> {
        if key.family != 0 && self.advance(key, search) {
            return Poll::Pending;
        }
        Poll::Ready(Self::answer(key, search.slot))
    }
}
