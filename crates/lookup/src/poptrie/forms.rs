//! The lookup as one source for `interleave`, and its hand-written forms.

use core::future::Future;
use core::task::Poll;

use interleave::{
    Machine, Memory, Walk, map_direct, map_switched, prefetch, run_grouped, run_machine,
};

use super::{FLAG, Poptrie, direct_of};
use crate::NextHopId;

/// Addresses that walk together level by level. Measured: 32 to 128 are alike.
pub(super) const GROUP: usize = 64;

/// The lookup: the entry, then the record.
#[inline(always)]
#[expect(clippy::manual_async_fn, reason = "an async fn moves its arguments once more")]
fn find<'t, M: Memory + 't>(
    table: &'t Poptrie<'_>,
    memory: M,
    key: u32,
) -> impl Future<Output = NextHopId> + 't {
    async move {
        let mut place = &table.direct[direct_of(key)];
        let mut entry = 0;
        loop {
            memory.touch(place).await;
            if entry & FLAG != 0 {
                return table.in_record(key, entry);
            }
            entry = *place;
            if entry & FLAG == 0 {
                return table.or_default(entry);
            }
            place = table.heap.get((entry & !FLAG) as usize * 2).unwrap_or(place);
        }
    }
}

/// What a lookup keeps: the entry once it is read, before that a number without its flag.
#[derive(Debug, Clone, Copy)]
pub struct State(u32);

impl Poptrie<'_> {
    #[inline(always)]
    fn aim(&self, key: u32) -> State {
        prefetch(&self.direct[direct_of(key)]);
        State(0)
    }

    /// Reads the entry; whether a record is to follow.
    #[inline(always)]
    fn enter(&self, key: u32, state: &mut State) -> bool {
        state.0 = self.direct[direct_of(key)];
        if state.0 & FLAG == 0 {
            return false;
        }
        if let Some(record) = self.heap.get((state.0 & !FLAG) as usize * 2) {
            prefetch(record);
        }
        true
    }
}

impl Machine for Poptrie<'_> {
    type Key = u32;
    type Value = NextHopId;
    type State = State;

    #[inline(always)]
    fn begin(&self, key: &u32) -> State {
        self.aim(*key)
    }

    #[inline(always)]
    fn step(&self, key: &u32, state: &mut State) -> Poll<NextHopId> {
        if state.0 & FLAG != 0 {
            return Poll::Ready(self.in_record(*key, state.0));
        }
        if self.enter(*key, state) { Poll::Pending } else { Poll::Ready(self.or_default(state.0)) }
    }
}

impl Walk for Poptrie<'_> {
    type Key = u32;
    type Value = NextHopId;
    type State = State;

    #[inline(always)]
    fn begin(&self, key: &u32) -> State {
        self.aim(*key)
    }

    #[inline(always)]
    fn level(&self, key: &u32, state: &mut State) -> bool {
        self.enter(*key, state);
        false
    }

    #[inline(always)]
    fn end(&self, key: &u32, state: &State) -> NextHopId {
        if state.0 & FLAG == 0 { self.or_default(state.0) } else { self.in_record(*key, state.0) }
    }
}

/// A form as it is, and compiled for a processor that counts bits in one instruction.
macro_rules! form {
    ($(#[$doc:meta])* $name:ident $(<const $n:ident: usize>)?, |$table:ident, $keys:ident, $out:ident| $body:expr) => {
        $(#[$doc])*
        pub fn $name $(<const $n: usize>)? (&self, keys: &[u32], out: &mut [NextHopId]) {
            #[inline(always)]
            fn form $(<const $n: usize>)? ($table: &Poptrie<'_>, $keys: &[u32], $out: &mut [NextHopId]) {
                $body
            }
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "popcnt")]
                fn counting $(<const $n: usize>)? (table: &Poptrie<'_>, keys: &[u32], out: &mut [NextHopId]) {
                    form $(::<$n>)? (table, keys, out);
                }
                if is_x86_feature_detected!("popcnt") {
                    // SAFETY: the feature was detected just now.
                    return unsafe { counting $(::<$n>)? (self, keys, out) };
                }
            }
            form $(::<$n>)? (self, keys, out);
        }
    };
}

impl Poptrie<'_> {
    form! {
        /// The plain form: one address after the other.
        lookup_plain, |table, keys, out| {
            map_direct(keys, out, |memory, key| find(table, memory, *key));
        }
    }
    form! {
        /// The same source with `B` lookups in turns.
        lookup_switched<const B: usize>, |table, keys, out| {
            map_switched::<B, _, _, _, _>(keys, out, |memory, key| find(table, memory, *key));
        }
    }
    form! {
        /// The machine with `B` lookups in turns.
        lookup_machine<const B: usize>, |table, keys, out| {
            run_machine::<B, _>(table, keys, out);
        }
    }
    form! {
        /// Level by level, `G` lookups at a time.
        lookup_grouped<const G: usize>, |table, keys, out| {
            run_grouped::<G, _>(table, keys, out);
        }
    }
}
