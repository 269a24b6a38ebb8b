//! The connection table of a device (GASPP §4.1): numbers for TCP connections, which stay from job to job. The kernels are in
//! `kernels/connections.k`, and [`Connections`] is their twin.
//!
//! ```text
//!  both directions ─hash─▶ bucket ─▶ 8 cells        a cell, in three arrays of four bytes each
//!                          one piece of 32 bytes    │ tag, 0: free │ seen, seconds │ marks: directions seen, FIN, RST │
//! ```
//!
//! It is a hint, and so it may live on a device, a job behind the worker's own table: the tracker keeps the slot that it found for a
//! number, compares keys, and searches where they differ (`stream/src/tracker/numbers.rs`). Two connections with one tag in one
//! bucket share a number; one that finds its bucket full has none; a table that was lost with a failed job begins anew. No event
//! depends on it.
//!
//! - It is state of the segment `flow` ([`KernelForm::state`](engine::KernelForm::state)), of which the host has no copy: where
//!   workers shade, rows have no number, and a shard that moves to a device begins empty there.
//! - The outcome of a job depends on its rows, but not on the order in which work items run: new tags of a bucket take its free cells
//!   as if they came one by one, the smallest first. Times only grow and marks are only added, so a job that is done twice changes
//!   nothing.
//! - Idle connections are removed in pieces, as launches without rows: a [`Stage::sweep`](engine::Stage::sweep) whose rows name
//!   [`SWEPT`] buckets each. §4.1 marks records in one sweep and removes them in the next, as its device had no clock; packets bring
//!   their time here. Those that ended leave sooner.
//! - The time-outs of `[flow]` are not those of the table: those of established connections are days (Linux), so that it would fill up with
//!   idle ones, while one that is removed early costs a search when it comes again.
//! - Capacity is what the configuration says, and is taken as a whole when a shard moves to the device. Tables should be half empty:
//!   then one connection in a hundred finds its bucket full.
//!
//! # Deliberately absent
//! - Sequence numbers of connections (§4.1): which segment is the next one of its stream depends on what the worker decides (a
//!   firewall's verdict, memory that is full), and may change when a job is repeated.
//!
//! Threads: pure functions, and a table that belongs to one shard.

use std::collections::BTreeSet;

use chunk::hash::{fmix64, to_range};

use super::decode::segment;

chunk::columns! {
    /// What the connection table reads and finds. All but the last two are those of [`HeadColumns`](super::decode::HeadColumns) and
    /// [`ReassemblyColumns`](super::reassembly::ReassemblyColumns), and the engine's [`Shard`](engine::Shard).
    pub struct ConnectionColumns / ConnectionView {
        /// Bytes of the first cell, or the piece of a sweep: see [`head`](super::decode::head).
        pub flow_head: u32,
        /// Source address.
        pub flow_src: [u64; 2],
        /// Destination address.
        pub flow_dst: [u64; 2],
        /// Ports and more.
        pub flow_header0: [u64; 2],
        /// What is known of the TCP segment.
        pub flow_segment: [u64; 2],
        /// The first row of the same direction.
        pub flow_group: u32,
        /// The worker whose table it is.
        pub shard: u32,
        /// When the packet came, or now in a sweep: seconds since 1970, modulo 2^32.
        pub flow_time: u32,
        /// The number of the connection; [`NO_NUMBER`] where it has none.
        pub flow_number: u32,
    }
}

pub use stream::tracker::NO_NUMBER;

/// Cells of a bucket.
pub const WAYS: usize = 8;

/// Cells that lie together in the memory of a device.
pub const STEP_CELLS: usize = 1 << 14;

/// Bytes of a cell.
pub const CELL_BYTES: usize = 12;

/// Buckets that a row of a sweep looks at.
pub const SWEPT: usize = 32;

/// Seconds after which an idle connection is removed: GASPP §4.1.
pub const IDLE_S: u32 = 60;

/// And one that was reset, or that both ends closed.
pub const OVER_S: u32 = 10;

/// Marks: both ends sent FIN.
pub const MARK_ENDED: u32 = 3 << 2;

/// One sent RST.
pub const MARK_RESET: u32 = 1 << 4;

/// What a table needs of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfConnection {
    /// Of both ends, the same in both directions.
    pub hash: u64,
    /// Seconds.
    pub time: u32,
    /// What it adds to the marks.
    pub marks: u32,
}

impl OfConnection {
    /// Of the columns of a row; `None` if it is no segment that its receiver takes.
    pub fn of_columns(
        (src, dst): ([u64; 2], [u64; 2]),
        header0: [u64; 2],
        [_, words]: [u64; 2],
        time: u32,
        seed: u32,
    ) -> Option<Self> {
        if (words >> 56) as u8 != segment::RIGHT {
            return None;
        }
        let end = |[high, low]: [u64; 2], port: u64| {
            fmix64(fmix64(fmix64(high ^ u64::from(seed) << 16) ^ low).wrapping_add(port))
        };
        let (src, dst) = (end(src, header0[0] >> 48), end(dst, header0[0] >> 32 & 0xffff));
        let side = u32::from(src > dst);
        let fin = if words & 1 != 0 { 4 << side } else { 0 };
        let reset = if words & 4 != 0 { MARK_RESET } else { 0 };
        Some(Self { hash: fmix64(src.wrapping_add(dst)), time, marks: 1 << side | fin | reset })
    }

    fn tag(&self) -> u32 {
        (self.hash as u32 & u32::MAX >> 1).max(1)
    }
}

/// The table of one shard, in plain steps: what the kernels do, by which tests judge them, and what the simulated device has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connections {
    tags: Vec<u32>,
    seen: Vec<u32>,
    marks: Vec<u32>,
}

/// Cells of a table for so many connections: whole buckets.
pub const fn cells(connections: usize) -> usize {
    connections.next_multiple_of(WAYS)
}

/// Rows of the sweeps that look at all of it once.
pub const fn pieces(connections: usize) -> usize {
    connections.div_ceil(SWEPT * WAYS)
}

impl Connections {
    /// An empty table.
    pub fn new(connections: usize) -> Self {
        let cells = vec![0; cells(connections)];
        Self { tags: cells.clone(), seen: cells.clone(), marks: cells }
    }

    fn bucket(&self, own: &OfConnection) -> std::ops::Range<usize> {
        let first =
            WAYS * to_range((own.hash >> 32) as u32, (self.tags.len() / WAYS) as u32) as usize;
        first..(first + WAYS).min(self.tags.len())
    }

    /// The number of a connection that is there.
    pub fn find(&self, own: &OfConnection) -> Option<u32> {
        self.bucket(own).find(|cell| self.tags[*cell] == own.tag()).map(|cell| cell as u32)
    }

    /// Finds or inserts the connections of a job's rows; the number of each row.
    pub fn job(&mut self, rows: &[Option<OfConnection>]) -> Vec<u32> {
        let known = rows.iter().flatten();
        let new = known.filter(|own| self.find(own).is_none());
        let new: BTreeSet<_> = new.map(|own| (self.bucket(own).start, own.tag())).collect();
        for (first, tag) in new {
            let mut ways = first..(first + WAYS).min(self.tags.len());
            if let Some(cell) = ways.find(|cell| self.tags[*cell] == 0) {
                self.tags[cell] = tag;
            }
        }
        let mut number = |own: &OfConnection| {
            let number = self.find(own)?;
            let cell = number as usize;
            self.seen[cell] = self.seen[cell].max(own.time);
            self.marks[cell] |= own.marks;
            Some(number)
        };
        rows.iter().map(|own| own.as_ref().and_then(&mut number).unwrap_or(NO_NUMBER)).collect()
    }

    /// Removes idle connections of a piece.
    pub fn sweep(&mut self, piece: usize, now: u32) {
        let first = piece * SWEPT * WAYS;
        for cell in first..(first + SWEPT * WAYS).min(self.tags.len()) {
            let marks = self.marks[cell];
            let is_over = marks & MARK_RESET != 0 || marks & MARK_ENDED == MARK_ENDED;
            let age = now.wrapping_sub(self.seen[cell]);
            let timeout = if is_over { OVER_S } else { IDLE_S };
            if self.tags[cell] != 0 && (timeout..1 << 31).contains(&age) {
                (self.tags[cell], self.seen[cell], self.marks[cell]) = (0, 0, 0);
            }
        }
    }

    /// Connections in it.
    pub fn len(&self) -> usize {
        self.tags.iter().filter(|tag| **tag != 0).count()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The words of a step, as a device has them.
    fn step(&self, step: usize) -> Vec<u32> {
        let of = |array: &[u32]| {
            let mut words: Vec<u32> =
                array.iter().skip(step * STEP_CELLS).take(STEP_CELLS).copied().collect();
            words.resize(STEP_CELLS, 0);
            words
        };
        [of(&self.tags), of(&self.seen), of(&self.marks)].concat()
    }
}

/// The memory of a device that holds the tables of these shards alone, in words: see `dialect.h`.
pub fn memory_of(shards: &[Connections]) -> Vec<u32> {
    /// Words of a unit, in which places are counted.
    const UNIT: usize = 16;
    let spare = UNIT + (2 * shards.len()).next_multiple_of(UNIT);
    let mut words = vec![0; spare + UNIT];
    (words[0], words[1]) = ((spare / UNIT) as u32, shards.len() as u32);
    for (shard, own) in shards.iter().enumerate() {
        let (list, steps) = (words.len(), own.tags.len().div_ceil(STEP_CELLS));
        words[UNIT + 2 * shard] = (list / UNIT) as u32;
        words[UNIT + 2 * shard + 1] = own.tags.len() as u32;
        words.resize(list + steps.next_multiple_of(UNIT), 0);
        for step in 0..steps {
            words[list + step] = (words.len() / UNIT) as u32;
            words.extend(own.step(step));
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(bucket: u64, tag: u32, time: u32, marks: u32) -> Option<OfConnection> {
        // Of two buckets.
        Some(OfConnection { hash: bucket << 63 | u64::from(tag), time, marks })
    }

    #[test]
    fn a_connection_keeps_its_number_until_it_is_idle() {
        let mut table = Connections::new(9);
        assert_eq!(table.tags.len(), 16);
        let rows =
            [packet(0, 9, 5, 1), packet(1, 9, 5, 1), None, packet(0, 3, 6, 2), packet(0, 9, 4, 2)];
        assert_eq!(table.job(&rows), [1, 8, NO_NUMBER, 0, 1]);
        let before = table.clone();
        assert_eq!(table.job(&rows), [1, 8, NO_NUMBER, 0, 1]);
        assert_eq!(table, before, "the same job again");
        table.sweep(0, 64);
        assert_eq!(table.len(), 3);
        table.sweep(0, 65);
        assert_eq!((table.len(), table.find(&rows[3].unwrap())), (1, Some(0)));
        assert_eq!(table.job(&[packet(0, 12, 70, 1), rows[3]]), [1, 0]);
        // One is over, the other one is idle.
        let over = packet(0, 12, 71, MARK_RESET);
        assert_eq!(table.job(&[over]), [1]);
        table.sweep(0, 80);
        assert_eq!((table.len(), table.find(&over.unwrap())), (1, Some(1)));
        table.sweep(0, 81);
        assert!(table.is_empty());
    }

    #[test]
    fn a_full_bucket_gives_no_number() {
        let mut table = Connections::new(16);
        let rows: Vec<_> = (1..=10).rev().map(|tag| packet(1, tag, 1, 1)).collect();
        let numbers = table.job(&rows);
        assert_eq!(numbers, [NO_NUMBER, NO_NUMBER, 15, 14, 13, 12, 11, 10, 9, 8]);
        assert_eq!(table.job(&[packet(0, 10, 1, 1)]), [0]);
    }

    /// Both directions have one number, and connections that differ by a port have others.
    #[test]
    fn directions_share_a_number() {
        let own = |swapped: bool, port: u64, flags: u64| {
            let ends = [([0, 1], port), ([2, 3], 80)];
            let [a, b] = if swapped { [ends[1], ends[0]] } else { ends };
            let words = u64::from(segment::RIGHT) << 56 | flags;
            OfConnection::of_columns((a.0, b.0), [a.1 << 48 | b.1 << 32, 0], [0, words], 7, 3)
                .unwrap()
        };
        let (there, back) = (own(false, 9, 0), own(true, 9, 0));
        assert_eq!(there.hash, back.hash);
        assert_eq!(there.marks | back.marks, 3);
        assert_eq!(own(false, 9, 1).marks | own(true, 9, 1).marks, 3 | MARK_ENDED);
        assert_eq!(own(false, 9, 4).marks & !3, MARK_RESET);
        assert_ne!(there.hash, own(false, 10, 0).hash);
        assert_eq!(OfConnection::of_columns(([0; 2], [0; 2]), [0; 2], [0, 0], 7, 3), None);
    }
}
