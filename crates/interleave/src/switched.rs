//! Lookups as futures: one after the other, or in turns.
//!
//! ```text
//!  keys   0 1 2 3 4 5 6 7 8 …            slots (B)
//!         └─┴─┴─┴─ start ────────────▶  [0][1][2][3]   poll each in turn: read the line that was
//!                                         │             prefetched a turn ago, prefetch the next
//!  out    0 · 2 · … ◀── ends ─────────────┘
//!                      and its slot starts key 4 at once
//! ```

use core::future::Future;
use core::mem::MaybeUninit;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};

use crate::{Direct, Switched};

/// Runs `lookup` for each key, one after the other, and writes its result to the same place of `out`.
///
/// # Panics
/// When the slices differ in length, or when `lookup` awaits something that is not ready: a plain lookup
/// awaits nothing but [`crate::Memory::touch`].
#[inline]
pub fn map_direct<'k, K, V, F, L>(keys: &'k [K], out: &mut [V], mut lookup: L)
where
    L: FnMut(Direct, &'k K) -> F,
    F: Future<Output = V>,
{
    assert_eq!(keys.len(), out.len(), "one result for each key");
    let mut context = Context::from_waker(Waker::noop());
    for (key, result) in keys.iter().zip(out) {
        match pin!(lookup(Direct, key)).poll(&mut context) {
            Poll::Ready(value) => *result = value,
            Poll::Pending => panic!("a plain lookup awaits nothing but memory"),
        }
    }
}

/// Runs `lookup` for all keys, `B` at a time in turns, and writes each result to its key's place of `out`.
///
/// A lookup that ends gives its slot to the next key at once. `B` slots of one future each are on the
/// stack; 24 to 32 fill the memory system of today's cores. A lookup that awaits something else than
/// [`crate::Memory::touch`] is polled again in each turn until it is ready.
///
/// When `lookup` or a future panics, all futures are dropped, `out` holds the results of the lookups that had
/// ended, and the panic goes on.
///
/// # Panics
/// When the slices differ in length.
#[inline]
pub fn map_switched<'k, const B: usize, K, V, F, L>(keys: &'k [K], out: &mut [V], mut lookup: L)
where
    L: FnMut(Switched, &'k K) -> F,
    F: Future<Output = V>,
{
    const { assert!(B > 0, "at least one slot") };
    assert_eq!(keys.len(), out.len(), "one result for each key");
    let mut context = Context::from_waker(Waker::noop());
    let mut slots = Slots::<F, B>::new();
    let mut next = 0;

    // Start: the first lookups run up to their first switch.
    while next < keys.len() && slots.live < B {
        slots.push(lookup(Switched, &keys[next]), next);
        next += 1;
    }
    // Turns: every slot is in use while there are keys, and is in its own place.
    let mut turn = 0;
    'turns: while next < keys.len() {
        for place in 0..B {
            let Poll::Ready(mut value) = slots.poll_in(place, &mut context) else { continue };
            // The new lookup starts its first load now. A poll of its own, where the compiler knows that the
            // future is new; the one above nearly always finds one that has switched: neither guesses.
            loop {
                out[slots.keys[place]] = value;
                if next == keys.len() {
                    slots.remove(place);
                    turn = place;
                    break 'turns;
                }
                slots.replace(place, lookup(Switched, &keys[next]), next);
                next += 1;
                match slots.poll_in(place, &mut context) {
                    Poll::Ready(another) => value = another,
                    Poll::Pending => break,
                }
            }
        }
    }
    // No key is left: the slots end one after the other.
    while slots.live > 0 {
        if turn >= slots.live {
            turn = 0;
        }
        let place = slots.order[turn];
        if let Poll::Ready(value) = slots.poll_in(place, &mut context) {
            out[slots.keys[place]] = value;
            slots.remove(turn);
            continue; // another slot is here now
        }
        turn += 1;
    }
}

/// `B` places for futures that are never moved; which of them are in use, and for which key.
struct Slots<F, const B: usize> {
    places: [MaybeUninit<F>; B],
    /// Places in use first, in the order of their turns; `order` is a permutation of `0..B`.
    order: [usize; B],
    /// The key of a place.
    keys: [usize; B],
    /// How many of `order` hold a future. Invariant: `places[order[i]]` is initialised for `i < live`.
    live: usize,
}

impl<F: Future, const B: usize> Slots<F, B> {
    #[inline(always)]
    fn new() -> Self {
        Self {
            places: [const { MaybeUninit::uninit() }; B],
            order: core::array::from_fn(|place| place),
            keys: [0; B],
            live: 0,
        }
    }

    /// Puts a future into a free place.
    #[inline(always)]
    fn push(&mut self, future: F, key: usize) {
        let place = self.order[self.live];
        self.keys[place] = key;
        self.places[place].write(future);
        self.live += 1;
    }

    /// Polls the future in a place that is in use.
    #[inline(always)]
    fn poll_in(&mut self, place: usize, context: &mut Context<'_>) -> Poll<F::Output> {
        debug_assert!(self.order[..self.live].contains(&place));
        let future = &mut self.places[place];
        // SAFETY: initialised, as the callers name places in use: any while all `B` are (the turns), one of
        // `order[..live]` after that. Pinned: a future is written to its place once, before it is first
        // polled, and leaves it only by being dropped there (`replace`, `remove`, `Drop`); `Slots` is
        // private, a local of `map_switched`, and never moved after `new`.
        unsafe { Pin::new_unchecked(future.assume_init_mut()) }.poll(context)
    }

    /// Drops the future in a place that is in use and puts another there.
    #[inline(always)]
    fn replace(&mut self, place: usize, future: F, key: usize) {
        debug_assert!(self.order[..self.live].contains(&place));
        self.keys[place] = key;
        // SAFETY: initialised, as the place is in use: `map_switched` replaces only during the turns, when
        // all `B` are. The assignment drops the old future where it is, and writes the new one also when
        // that drop panics, so that the invariant holds on every way out.
        unsafe { *self.places[place].assume_init_mut() = future };
    }

    /// Drops the future of a turn; the last turn takes its number.
    #[inline(always)]
    fn remove(&mut self, turn: usize) {
        debug_assert!(turn < self.live);
        let place = self.order[turn];
        self.live -= 1;
        self.order.swap(turn, self.live);
        // SAFETY: it was initialised, as `turn` was below `live`; it no longer is among the live ones, so
        // that nothing drops it again, also when this drop panics.
        unsafe { self.places[place].assume_init_drop() };
    }
}

impl<F, const B: usize> Drop for Slots<F, B> {
    /// On the ordinary way out none is left; on a panic, those under way.
    #[inline]
    fn drop(&mut self) {
        while self.live > 0 {
            self.live -= 1;
            // SAFETY: initialised, as it was among the live ones; no longer counted, so dropped once.
            unsafe { self.places[self.order[self.live]].assume_init_drop() };
        }
    }
}
