//! The lookup as one source for `interleave`, and its hand-written forms.

use core::future::Future;
use core::task::Poll;

use interleave::{
    Machine, Memory, Walk, map_direct, map_switched, prefetch, run_grouped, run_machine,
};

use super::Mtrie6;
use super::layout::*;
use crate::{Key6, NextHopId};

/// Addresses that walk together level by level. Measured: 64 and 128 are alike, and the fastest of the portable
/// forms.
pub(super) const GROUP: usize = 64;

/// The lookup: cell after cell, then a bucket.
#[inline(always)]
#[expect(clippy::manual_async_fn, reason = "an async fn moves its arguments once more")]
fn find<'t, M: Memory + 't>(
    table: &'t Mtrie6<'_>,
    memory: M,
    key: &'t Key6,
) -> impl Future<Output = NextHopId> + 't {
    async move {
        let mut state = State::at_root();
        let mut place = &table.root[root_of(*key)];
        loop {
            memory.touch(place).await;
            match table.enter(*key, *place, &mut state) {
                Some(next) => place = next,
                None => return table.answer(*key, state.cell),
            }
        }
    }
}

/// What a lookup keeps: where it is.
#[derive(Debug, Clone, Copy)]
pub struct State {
    /// What was read last: 0 at first, then cells; a bucket's, when its line comes next.
    cell: u32,
    /// The word of the heap that comes next, where it is a cell.
    place: u32,
    /// The first bit of the address that no node has taken.
    at: u8,
}

impl State {
    #[inline(always)]
    fn at_root() -> Self {
        Self { cell: 0, place: 0, at: 0 }
    }
}

impl<'a> Mtrie6<'a> {
    /// Takes note of what is in the place that was read; the next place. `None`: the answer is in
    /// `state.cell`, or in its bucket, which has been read.
    #[inline(always)]
    fn enter(&self, key: Key6, word: u32, state: &mut State) -> Option<&'a u32> {
        if state.cell & KIND >= KIND_SHORT {
            return None; // the bucket's line is here
        }
        state.cell = word;
        if word & FLAG == 0 {
            return None;
        }
        if !is_node(word) {
            return self.lines.get(line_of(word)).map(|line| &line[0]);
        }
        state.at = state.at.max(ROOT_BITS);
        let place = node_place(key, word, state.at);
        state.at += node_bits(word);
        state.place = place as u32;
        self.lines.as_flattened().get(place)
    }

    /// Reads what was prefetched; whether there is more to read.
    #[inline(always)]
    fn advance(&self, key: Key6, state: &mut State) -> bool {
        let word = if state.at == 0 {
            self.root[root_of(key)]
        } else {
            self.lines.as_flattened().get(state.place as usize).copied().unwrap_or(0)
        };
        match self.enter(key, word, state) {
            Some(next) => {
                prefetch(next);
                true
            }
            None => false,
        }
    }

    #[inline(always)]
    fn aim(&self, key: Key6) -> State {
        prefetch(&self.root[root_of(key)]);
        State::at_root()
    }
}

impl Machine for Mtrie6<'_> {
    type Key = Key6;
    type Value = NextHopId;
    type State = State;

    #[inline(always)]
    fn begin(&self, key: &Key6) -> State {
        self.aim(*key)
    }

    #[inline(always)]
    fn step(&self, key: &Key6, state: &mut State) -> Poll<NextHopId> {
        if self.advance(*key, state) {
            Poll::Pending
        } else {
            Poll::Ready(self.answer(*key, state.cell))
        }
    }
}

impl Walk for Mtrie6<'_> {
    type Key = Key6;
    type Value = NextHopId;
    type State = State;

    #[inline(always)]
    fn begin(&self, key: &Key6) -> State {
        self.aim(*key)
    }

    #[inline(always)]
    fn level(&self, key: &Key6, state: &mut State) -> bool {
        // A bucket is the last line: `end` reads it.
        self.advance(*key, state) && is_node(state.cell)
    }

    #[inline(always)]
    fn end(&self, key: &Key6, state: &State) -> NextHopId {
        self.answer(*key, state.cell)
    }
}

impl Mtrie6<'_> {
    /// The plain form: one address after the other.
    pub fn lookup_plain(&self, keys: &[Key6], out: &mut [NextHopId]) {
        map_direct(keys, out, |memory, key| find(self, memory, key));
    }

    /// The same source with `B` lookups in turns.
    pub fn lookup_switched<const B: usize>(&self, keys: &[Key6], out: &mut [NextHopId]) {
        map_switched::<B, _, _, _, _>(keys, out, |memory, key| find(self, memory, key));
    }

    /// The machine with `B` lookups in turns.
    pub fn lookup_machine<const B: usize>(&self, keys: &[Key6], out: &mut [NextHopId]) {
        run_machine::<B, _>(self, keys, out);
    }

    /// Level by level, `G` lookups at a time.
    pub fn lookup_grouped<const G: usize>(&self, keys: &[Key6], out: &mut [NextHopId]) {
        run_grouped::<G, _>(self, keys, out);
    }
}
