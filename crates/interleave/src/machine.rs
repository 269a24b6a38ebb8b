//! Lookups as hand-written state machines: for the hottest loops.

use core::task::Poll;

/// A lookup as a state that takes steps. The state holds what goes on from one expensive access to the next,
/// and nothing else: it is kept in an array of `B`, and each turn reads and writes it.
///
/// A walk along records, each of which names the next one or none:
///
/// ```
/// use core::task::Poll;
/// use interleave::{Machine, prefetch, run_machine, run_machine_direct};
///
/// struct Record { key: u64, value: u32, next: Option<u32> }
/// struct Chains { records: Vec<Record>, heads: usize }
///
/// impl Machine for Chains {
///     type Key = u64;
///     type Value = Option<u32>;
///     type State = u32; // the record that is being fetched
///
///     fn begin(&self, key: &u64) -> u32 {
///         let at = (*key % self.heads as u64) as u32;
///         prefetch(&self.records[at as usize]);
///         at
///     }
///
///     fn step(&self, key: &u64, at: &mut u32) -> Poll<Option<u32>> {
///         let record = &self.records[*at as usize];
///         if record.key == *key {
///             return Poll::Ready(Some(record.value));
///         }
///         let Some(next) = record.next else { return Poll::Ready(None) };
///         prefetch(&self.records[next as usize]);
///         *at = next;
///         Poll::Pending
///     }
/// }
///
/// let record = |key, value, next| Record { key, value, next };
/// let records = vec![record(4, 40, Some(2)), record(1, 10, None), record(2, 20, None)];
/// let chains = Chains { records, heads: 2 };
/// let keys = [1, 2, 4, 6];
/// let mut out = [None; 4];
/// run_machine::<24, _>(&chains, &keys, &mut out); // 24 lookups in flight
/// assert_eq!(out, [Some(10), Some(20), Some(40), None]);
/// run_machine_direct(&chains, &keys, &mut out); // the same, one after the other
/// assert_eq!(out, [Some(10), Some(20), Some(40), None]);
/// ```
pub trait Machine {
    /// What is looked up.
    type Key;
    /// What is found.
    type Value;
    /// What a lookup keeps between two accesses.
    type State: Copy;

    /// Begins a lookup, and prefetches what its first step reads.
    fn begin(&self, key: &Self::Key) -> Self::State;

    /// Reads what was prefetched. `Pending`: what the next step reads is prefetched, the state says where.
    fn step(&self, key: &Self::Key, state: &mut Self::State) -> Poll<Self::Value>;
}

/// Runs a machine for each key, one after the other: its plain version.
///
/// # Panics
/// When the slices differ in length.
#[inline]
pub fn run_machine_direct<M: Machine>(machine: &M, keys: &[M::Key], out: &mut [M::Value]) {
    assert_eq!(keys.len(), out.len(), "one result for each key");
    for (key, result) in keys.iter().zip(out) {
        let mut state = machine.begin(key);
        *result = loop {
            if let Poll::Ready(value) = machine.step(key, &mut state) {
                break value;
            }
        };
    }
}

/// Runs a machine for all keys, `B` at a time in turns, and writes each result to its key's place of `out`.
///
/// A lookup that ends gives its slot to the next key at once.
///
/// # Panics
/// When the slices differ in length.
#[inline]
pub fn run_machine<const B: usize, M: Machine>(machine: &M, keys: &[M::Key], out: &mut [M::Value]) {
    const { assert!(B > 0, "at least one slot") };
    assert_eq!(keys.len(), out.len(), "one result for each key");
    let Some(first) = keys.first() else { return };
    let live = keys.len().min(B);
    let mut slots = [Slot { state: machine.begin(first), key: 0 }; B];
    for (at, key) in keys[..live].iter().enumerate().skip(1) {
        slots[at] = Slot { state: machine.begin(key), key: at };
    }
    // Every slot is in use while there are keys; then the last slot takes the place of one that has ended.
    let mut next = live;
    let mut live = live;
    while live > 0 {
        let mut turn = 0;
        while turn < live {
            let slot = &mut slots[turn];
            if let Poll::Ready(value) = machine.step(&keys[slot.key], &mut slot.state) {
                out[slot.key] = value;
                if let Some(key) = keys.get(next) {
                    *slot = Slot { state: machine.begin(key), key: next };
                    next += 1;
                } else {
                    live -= 1;
                    slots[turn] = slots[live];
                    continue; // another lookup is here now
                }
            }
            turn += 1;
        }
    }
}

/// A lookup under way and its key's number.
#[derive(Clone, Copy)]
struct Slot<S> {
    state: S,
    key: usize,
}
