//! Runs the lookups of a batch in turns, so that their cache misses overlap.
//!
//! A lookup in a large table waits for memory: some 80 to 150 ns for each line that no cache holds, in which
//! the processor could do hundreds of instructions. One lookup cannot help it, its next address depends on what
//! the line says. But the other lookups of the same batch are independent: start the load, put this lookup
//! aside, go on with another, come back when the line is there. That is *prefetch, save, switch*, the
//! element switching of G-Opt (Kalia, Zhou, Kaminsky, Andersen: Raising the Bar for Using GPUs in Software
//! Packet Processing, NSDI 2015, "A G-Opt example"), which rewrote annotated C into labels and `goto`.
//!
//! Here the compiler of Rust makes the state machines. An author writes a lookup once, as an `async`
//! function over any [`Memory`], with a [`Memory::touch`] before each expensive access:
//!
//! ```
//! use interleave::{Memory, map_direct, map_switched};
//!
//! struct Entry { key: u64, value: u32, next: u32 }
//!
//! async fn find<M: Memory>(table: &[Entry], memory: M, key: &u64) -> u32 {
//!     let mut at = (*key % table.len() as u64) as usize;
//!     loop {
//!         let entry = &table[at];
//!         memory.touch(entry).await;
//!         if entry.key == *key { return entry.value }
//!         if entry.next == 0 { return 0 }
//!         at = entry.next as usize;
//!     }
//! }
//!
//! let table = [Entry { key: 0, value: 7, next: 0 }, Entry { key: 1, value: 8, next: 0 }];
//! let keys = [1, 0, 3];
//! let mut plain = [0; 3];
//! map_direct(&keys, &mut plain, |memory, key| find(&table, memory, key));
//! let mut switched = [0; 3];
//! map_switched::<32, _, _, _, _>(&keys, &mut switched, |memory, key| find(&table, memory, key));
//! assert_eq!((plain, switched), ([8, 7, 0], [8, 7, 0]));
//! ```
//!
//! | form | written as | for |
//! | --- | --- | --- |
//! | [`map_direct`] | `async` over [`Direct`] | tables in cache, single lookups, the plain version of the same source |
//! | [`map_switched`] | `async` over [`Switched`] | walks whose length varies |
//! | [`run_machine`] | [`Machine`]: state, `begin`, `step` | the hottest loops, where each instruction counts |
//! | [`run_grouped`] | [`Walk`]: state, `begin`, `level`, `end` | walks of one depth, or nearly so, level by level |
//!
//! The README shows a toy table in these forms, what was gained, and when switching does not pay.
//!
//! Rules that were measured: one `await` in a loop (several make a jump table that the processor
//! mispredicts); tables by reference; lines aligned to 64 bytes; 24 to 32 lookups in flight. Two lookups
//! for each packet run fastest one after the other over the whole batch, not nested in one future.
//!
//! Nothing here allocates, blocks or needs `std`. A function returns when all its lookups have ended, and no
//! future outlives the call that made it. Threads: none; each call stays on its own.

#![no_std]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod grouped;
mod machine;
mod memory;
mod prefetch;
mod switched;

pub use grouped::{Walk, run_grouped};
pub use machine::{Machine, run_machine, run_machine_direct};
pub use memory::{Direct, Memory, Switched, Touch};
pub use prefetch::{LINE_BYTES, prefetch, prefetch_at};
pub use switched::{map_direct, map_switched};
