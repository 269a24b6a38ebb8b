//! The search as one source for `interleave`: plain, and in turns.
//!
//! The batches of `lookup` and `avx512` are faster; these say what switching by itself gains.

use core::future::Future;

use interleave::{Machine, Memory, map_direct, map_switched, prefetch, run_machine};

use super::Bspl;
use super::layout::*;
use super::lookup::{Lane, aim, step_narrow, step_wide};
use crate::{Key6, NextHopId};

/// The search: the cell, then bucket after bucket.
#[inline(always)]
#[expect(clippy::manual_async_fn, reason = "an async fn moves its arguments once more")]
fn find<'t, M: Memory + 't>(
    table: &'t Bspl<'_>,
    memory: M,
    key: &'t Key6,
) -> impl Future<Output = NextHopId> + 't {
    async move {
        let mut state = State::of(*key);
        let mut place = &table.cells[(key[0] >> 48) as usize][..];
        loop {
            memory.touch(place).await;
            match table.advance(*key, &mut state) {
                Some(line) => place = line,
                None => return table.or_default(state.0.best),
            }
        }
    }
}

/// What a search keeps between two reads; the length of its probe is 0 before the cell is read.
#[derive(Debug, Clone, Copy)]
pub struct State(Lane);

impl State {
    #[inline(always)]
    fn of(key: Key6) -> Self {
        Self(Lane::of(key))
    }
}

impl<'a> Bspl<'a> {
    /// Reads what the state is about; the line that comes next. No branch depends on hit or miss.
    #[inline(always)]
    fn advance(&self, key: Key6, state: &mut State) -> Option<&'a Line> {
        let lane = &mut state.0;
        let rope = if lane.len == 0 {
            let cell = &self.cells[(key[0] >> 48) as usize];
            lane.best = cell[1] as NextHopId;
            cell_rope(cell, key[0])
        } else if is_wide(lane.len as u8) {
            step_wide(self, lane)
        } else {
            step_narrow(self, lane)
        };
        aim(self, lane, rope);
        match lane.len as u8 {
            0 => None,
            len if is_wide(len) => self.wide.get(lane.bucket as usize),
            _ => self.narrow.get(lane.bucket as usize),
        }
    }

    #[inline(always)]
    fn or_default(&self, best: NextHopId) -> NextHopId {
        if best == 0 { self.default } else { best }
    }

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
}

impl Machine for Bspl<'_> {
    type Key = Key6;
    type Value = NextHopId;
    type State = State;

    #[inline(always)]
    fn begin(&self, key: &Key6) -> State {
        prefetch(&self.cells[(key[0] >> 48) as usize]);
        State::of(*key)
    }

    #[inline(always)]
    fn step(&self, key: &Key6, state: &mut State) -> core::task::Poll<NextHopId> {
        match self.advance(*key, state) {
            Some(line) => {
                prefetch(line);
                core::task::Poll::Pending
            }
            None => core::task::Poll::Ready(self.or_default(state.0.best)),
        }
    }
}
