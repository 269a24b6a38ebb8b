//! Known answers: for every kernel an input and what must come out, as data.
//!
//! A device proves itself by them when it is opened: it builds the programs, uploads the memories, runs the
//! launches and compares. The inputs are small and their answers are written down or worked out in plain
//! Rust, never by a kernel; they reach each branch that matters. Oclgrind runs the same inputs.
//!
//! ```text
//! for known in known::all(group_items):
//!     build source(&known.spec), upload arena, payload, tables, state
//!     launch known.launches in order
//!     compare each known.expected
//! ```

mod classify;
mod cuts;
mod exact;
mod filter;
mod names;
mod packets;
mod schedule;
mod tables;
mod trees;
mod tries;

use chunk::ColumnDesc;

use crate::job::JobBytes;
use crate::{Launch, Spec};

/// An input, what is launched, and what comes out.
#[derive(Clone, Debug)]
pub struct Known {
    /// The program.
    pub spec: Spec,
    /// The kernels that this proves.
    pub kernels: &'static [&'static str],
    /// The job.
    pub arena: Vec<u8>,
    /// The packets' bytes.
    pub payload: Vec<u8>,
    /// The table image.
    pub tables: Sparse,
    /// State or scratch.
    pub state: Vec<u8>,
    /// In order.
    pub launches: Vec<Launch>,
    /// All of it must hold afterwards.
    pub expected: Vec<Expected>,
}

/// Memory of which only some parts are written: what lies between is not read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sparse {
    /// Bytes in all.
    pub bytes: usize,
    /// Where each part starts, and its bytes.
    pub parts: Vec<(usize, Vec<u8>)>,
}

/// Which of the four memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The job.
    Arena,
    /// The packets' bytes.
    Payload,
    /// The table image.
    Tables,
    /// State or scratch.
    State,
}

/// Bytes that must stand somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// In this memory,
    pub place: Place,
    /// from this byte on.
    pub at: usize,
    /// These.
    pub bytes: Vec<u8>,
}

/// Every known answer, for programs whose groups have `group_items` work items: a power of two from 16 to
/// 256.
pub fn all(group_items: u32) -> Vec<Known> {
    let mut all = vec![empty()];
    all.extend(tables::all());
    all.extend(tries::all());
    all.extend(exact::all());
    all.extend(names::all());
    all.extend(classify::all());
    all.extend(trees::all());
    all.extend(cuts::all());
    all.extend(filter::all());
    all.extend(packets::all());
    all.extend(schedule::all(group_items));
    for known in &mut all {
        known.spec.group_items = group_items;
        for launch in &mut known.launches {
            launch.items = group_items;
        }
    }
    all
}

fn empty() -> Known {
    Known::new("empty", &["empty"], &["empty"], &[])
}

impl Known {
    /// One launch of each kernel in a single group, nothing in the memories, nothing expected.
    fn new(
        name: &'static str,
        files: &'static [&'static str],
        kernels: &'static [&'static str],
        columns: &'static [ColumnDesc],
    ) -> Self {
        let launch = |kernel: &&'static str| Launch { kernel, groups: 1, items: 0, job: 0 };
        Self {
            spec: Spec::new(name, files, columns),
            kernels,
            arena: Vec::new(),
            payload: Vec::new(),
            tables: Sparse::default(),
            state: Vec::new(),
            launches: kernels.iter().map(launch).collect(),
            expected: Vec::new(),
        }
    }

    /// The arena before and after.
    fn job(mut self, before: &JobBytes, after: &JobBytes) -> Self {
        self.arena = before.bytes().to_vec();
        self.expect(Place::Arena, 0, after.bytes().to_vec())
    }

    fn expect(mut self, place: Place, at: usize, bytes: Vec<u8>) -> Self {
        self.expected.push(Expected { place, at, bytes });
        self
    }
}

/// Words as a device has them.
fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_has_a_known_answer() {
        let all = all(64);
        for info in crate::ALL.iter().flat_map(|file| file.kernels) {
            let mut known = all.iter().filter(|known| known.kernels.contains(&info.name));
            let launched = |known: &Known| known.launches.iter().any(|l| l.kernel == info.name);
            assert!(known.any(launched), "{}", info.name);
        }
        for known in &all {
            assert_eq!(known.spec.missing_columns(), [""; 0], "{}", known.spec.name);
            assert!(known.payload.len().is_multiple_of(4));
            // Something changes, but for a launch that does nothing.
            let changes = known.expected.iter().any(|expected| match expected.place {
                Place::Arena => {
                    known.arena[expected.at..][..expected.bytes.len()] != expected.bytes
                }
                Place::Payload => {
                    known.payload[expected.at..][..expected.bytes.len()] != expected.bytes
                }
                _ => true,
            });
            assert!(changes || known.kernels == ["empty"], "{}", known.spec.name);
        }
    }
}
