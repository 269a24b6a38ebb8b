//! Known answers: for every kernel an input and what must come out, as data.
//!
//! A device proves itself by them when it is opened: it builds the programs, uploads the memories, runs the
//! launches and compares. The inputs are small and their answers are written down or worked out in plain
//! Rust, never by a kernel; they reach each branch that matters. Oclgrind runs the same inputs.
//!
//! ```text
//! for known in known::of(files, group_items):
//!     build source(&known.spec), upload arena, payload, tables, state
//!     launch known.launches in order
//!     compare each known.expected
//! ```

pub(crate) mod cipher;
pub(crate) mod classify;
pub(crate) mod cuts;
pub(crate) mod exact;
pub(crate) mod names;
pub(crate) mod packets;
pub(crate) mod schedule;
pub(crate) mod tables;
pub(crate) mod trees;
pub(crate) mod tries;
pub(crate) mod walks;

pub mod samples;

use chunk::{ColumnDesc, ColumnId};

use crate::job::JobBytes;
use crate::{KernelFile, Launch, Spec, files};

/// An input, what is launched, and what comes out.
#[derive(Clone, Debug)]
pub struct Known {
    /// The program.
    pub spec: Spec,
    /// The kernels that this proves.
    pub kernels: Vec<&'static str>,
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

/// Bytes that must be somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// In this memory,
    pub place: Place,
    /// from this byte on.
    pub at: usize,
    /// These.
    pub bytes: Vec<u8>,
}

/// The known answers of files, for programs whose groups have `group_items` work items: a power of two from 16 to 256.
pub fn of(files: &[&'static KernelFile], group_items: u32) -> Vec<Known> {
    let mut all: Vec<Known> = files.iter().flat_map(|file| (file.known)(group_items)).collect();
    for known in &mut all {
        known.spec.group_items = group_items;
        for launch in &mut known.launches {
            launch.items = group_items;
        }
    }
    all
}

pub(crate) fn empty(_: u32) -> Vec<Known> {
    vec![Known::new("empty", &[&files::EMPTY], &["empty"], &[])]
}

impl Known {
    /// One launch of each kernel in a single group, nothing in the memories, nothing expected.
    pub fn new(
        name: &'static str,
        files: &[&'static KernelFile],
        kernels: &[&'static str],
        columns: &'static [ColumnDesc],
    ) -> Self {
        let launch = |kernel: &&'static str| Launch { kernel, groups: 1, items: 0, job: 0 };
        Self {
            spec: Spec::new(name, files, columns),
            kernels: kernels.to_vec(),
            arena: Vec::new(),
            payload: Vec::new(),
            tables: Sparse::default(),
            state: Vec::new(),
            launches: kernels.iter().map(launch).collect(),
            expected: Vec::new(),
        }
    }

    /// The kernels of one file over rows: values of columns, row after row, before and after. Columns that are not named are
    /// zero, so that all rows have the verdict next. `job`: the number of each launch.
    ///
    /// # Panics
    /// A column is not of the file, or its values are wider than eight bytes.
    pub fn rows(
        file: &'static KernelFile,
        job: u32,
        before: &[(ColumnId, &[u64])],
        after: &[(ColumnId, &[u64])],
    ) -> Self {
        let count = before.iter().chain(after).map(|(_, values)| values.len()).max();
        let put = |mut job: JobBytes, columns: &[(ColumnId, &[u64])]| {
            for (column, values) in columns {
                for (row, value) in values.iter().enumerate() {
                    job.put_number(*column, row, *value);
                }
            }
            job
        };
        let before = put(JobBytes::new(file.columns, count.unwrap_or(0)), before);
        let after = put(before.clone(), after);
        let names: Vec<_> = file.kernels.iter().map(|kernel| kernel.name).collect();
        let mut known = Self::new(file.name, &[file], &names, file.columns);
        known.launches.iter_mut().for_each(|launch| launch.job = job);
        known.job(&before, &after)
    }

    /// Whether something is expected that is not there before.
    pub(crate) fn changes_something(&self) -> bool {
        self.expected.iter().any(|Expected { place, at, bytes }| match place {
            Place::Arena => self.arena[*at..][..bytes.len()] != bytes[..],
            Place::Payload => self.payload[*at..][..bytes.len()] != bytes[..],
            Place::Tables | Place::State => true,
        })
    }

    /// The arena before and after.
    #[must_use]
    pub fn job(mut self, before: &JobBytes, after: &JobBytes) -> Self {
        self.arena = before.bytes().to_vec();
        self.expect(Place::Arena, 0, after.bytes().to_vec())
    }

    /// Also expects these bytes somewhere.
    #[must_use]
    pub fn expect(mut self, place: Place, at: usize, bytes: Vec<u8>) -> Self {
        self.expected.push(Expected { place, at, bytes });
        self
    }
}

/// Words as a device has them.
pub fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
