//! The search as one source for `interleave`: plain, and in turns.
//!
//! The batches of `lookup` and `avx512` are faster; these say what switching by itself gains.

use core::future::Future;

use interleave::{Machine, Memory, map_direct, map_switched, prefetch, run_machine};

use super::Bspl;
use super::layout::*;
use crate::{Address, Key6, NextHopId, Prefix};

/// The search: the cell, then bucket after bucket.
#[inline(always)]
fn find<'t, M: Memory + 't>(
    table: &'t Bspl<'_>,
    memory: M,
    key: &'t Key6,
) -> impl Future<Output = NextHopId> + 't {
    async move {
        let mut state = State::NEW;
        let mut place: &[u64] = &table.cells[(key[0] >> 48) as usize];
        loop {
            memory.touch(place).await;
            match table.advance(*key, &mut state) {
                Some(line) => place = line,
                None => return table.or_default(state.best),
            }
        }
    }
}

/// What a search keeps between two reads.
#[derive(Debug, Clone, Copy)]
pub struct State {
    /// What to try when the probe under way misses.
    rope: u64,
    bucket: u32,
    best: NextHopId,
    /// The length of the probe under way; 0: the cell is to be read.
    len: u8,
}

impl State {
    const NEW: Self = Self { rope: 0, bucket: 0, best: 0, len: 0 };
}

impl<'a> Bspl<'a> {
    /// Reads what the state is about; the line that comes next.
    #[inline(always)]
    fn advance(&self, key: Key6, state: &mut State) -> Option<&'a Line> {
        let addr = u128::from_key(key);
        if state.len == 0 {
            let cell = &self.cells[(key[0] >> 48) as usize];
            state.best = cell[1] as NextHopId;
            state.rope = cell_rope(cell, key[0]);
        } else {
            let prefix = Prefix::masked(addr, state.len);
            let wide = is_wide(state.len);
            let lines = if wide { self.wide } else { self.narrow };
            let line = &lines[state.bucket as usize];
            if let Some(index) = find_in(line, prefix) {
                state.rope = line[rope_word(wide, index)];
                let best = best_in(line, index);
                state.best = if best == 0 { state.best } else { best };
            } else if overflow(line) != 0 {
                state.bucket = next_bucket(state.bucket, lines.len() as u32);
                return Some(&lines[state.bucket as usize]);
            }
        }
        state.len = state.rope as u8;
        state.rope >>= 8;
        if state.len == 0 {
            return None;
        }
        state.bucket = self.shape.bucket(Prefix::masked(addr, state.len));
        let lines = if is_wide(state.len) { self.wide } else { self.narrow };
        Some(&lines[state.bucket as usize])
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
        State::NEW
    }

    #[inline(always)]
    fn step(&self, key: &Key6, state: &mut State) -> core::task::Poll<NextHopId> {
        match self.advance(*key, state) {
            Some(line) => {
                prefetch(line);
                core::task::Poll::Pending
            }
            None => core::task::Poll::Ready(self.or_default(state.best)),
        }
    }
}
