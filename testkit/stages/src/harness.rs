//! A harness for stages on devices.
//!
//! * [`Bed`]: an engine between queues of memory, run to its end under a [`watchdog`]; what came out is a [`Run`].
//! * [`Case`]: stages and their reference, run on the CPU, the simulated device and a real driver, with random chunks,
//!   workers, failures and moves; packets, verdicts and state must be those of the reference.
//!
//! ```text
//!  Case ── Setup (random) ──▶ Bed ── engine ──▶ Run ──▶ Answer ═ reference
//! ```

mod bed;
mod case;
mod random;
pub mod watchdog;

pub use bed::{Arrival, Bed, Ends, Feed, Run, Stages};
pub use case::{Answer, Backing, Case, Setup, Subject, device_of_tests};
pub use random::Random;

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::tables::{Change, TableSource};
use engine::Versions;

/// Tables that are a number, which is their version too. Clones show the same number.
#[derive(Clone, Debug)]
pub struct Numbered(pub Arc<AtomicU64>);

impl Numbered {
    /// Tables that are `number` until it is changed.
    pub fn new(number: u64) -> Self {
        Self(Arc::new(AtomicU64::new(number)))
    }
}

/// A version of [`Numbered`].
#[derive(Debug)]
pub struct Number(u64);

impl Deref for Number {
    type Target = u64;
    fn deref(&self) -> &u64 {
        &self.0
    }
}

impl Versions for Numbered {
    type Tables = u64;
    type Pin = Number;
    fn pin(&mut self) -> Number {
        Number(self.0.load(Ordering::Relaxed))
    }
    fn number(pin: &Number) -> u64 {
        pin.0
    }
}

/// The image of [`Numbered`] tables on a device: one region with the lower 32 bits.
#[derive(Clone, Copy, Debug)]
pub struct NumberImage;

impl TableSource<u64> for NumberImage {
    fn regions<'a>(&self, tables: &'a u64) -> Vec<Cow<'a, [u32]>> {
        vec![Cow::Owned(vec![*tables as u32])]
    }
    fn changes(&self, _: u64, to: u64, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        change(0, Change::Write { at: 0, words: &[to as u32] });
        true
    }
}

/// `n` workers over tables that do not change, each with its stages.
pub fn numbered(n: usize, stages: impl Fn(usize) -> Stages<u64>) -> Vec<(Numbered, Stages<u64>)> {
    (0..n).map(|worker| (Numbered::new(1), stages(worker))).collect()
}

/// A hash for [`engine::RxSlot::spread`] over the flow, a frame's first byte.
pub fn flow_hash(frame: &[u8]) -> u32 {
    u32::from(frame.first().copied().unwrap_or(0)).wrapping_mul(0x9e37_79b9)
}
