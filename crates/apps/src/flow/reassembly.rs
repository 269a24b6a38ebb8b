//! The order of TCP segments within a job (GASPP §4.2): which rows are of one direction of a connection, which one begins where
//! another one ends, and which place each has in its stream. The kernels are in `kernels/reassembly.k`, and [`reference()`] is their
//! twin.
//!
//! ```text
//!  rows      A 1000+500   B 2500+500   C 1500+500   D 1500+500   E 7000+0      one direction: sequence number + length
//!  next      A ─▶ C       –            C ─▶ –       –            –             2000 is missing
//!  place     0            3            1            2            4             by sequence number, then by row
//!  begins    A            B            –            D            –             runs
//! ```
//!
//! Everything is a function of the job's rows and of the seed of a hash, in whatever order work items run:
//!
//! - A direction is numbered by its first row. Sequence numbers count from that row's, 2^31 to either side, so they may wrap around.
//! - SYN and FIN take a sequence number each. A segment that takes none has a place in its stream, but no next row, and is none.
//! - Of several rows that begin at the same sequence number, the first one may be a next row; of several that end there, the first
//!   one has it. The others are runs of their own, and so is what overlaps without beginning where another one ends.
//! - Lengths are those of headers: bytes that a capture has cut off count.
//! - A row whose direction finds no cell within [`PROBES`] of its own has no group: the CPU looks after it, as after everything
//!   that is no segment. Tables are half empty at least, so that this does not happen unless somebody knows the seed.
//!
//! The stage [`FlowDecode`](super::FlowDecode) launches what finds groups, so that the tracker looks up one row of a direction.
//!
//! # Deliberately absent
//! - A stage that asks for place and next row: followers hear both directions in the order of arrival, so the tracker may not serve one
//!   direction by place.
//! - Buffers of segments out of order (GASPP §4.3): the tracker has them on the CPU. [`connections`](super::connections) outlast the job.
//!
//! Threads: pure functions.

use std::collections::BTreeMap;

use chunk::hash::{MultiplyShift, fmix32, to_range};
use device::accelerator::{Area, Step};
use kernels::plan::OrderPlan;

use super::decode::segment;

chunk::columns! {
    /// What the order of segments reads and finds. The first five are those of [`HeadColumns`](super::decode::HeadColumns).
    pub struct ReassemblyColumns / ReassemblyView {
        /// Source address, as [`Decoded`](packet::Decoded) has it.
        pub flow_src: [u64; 2],
        /// Destination address, likewise.
        pub flow_dst: [u64; 2],
        /// The first two of [`Decoded::words`](packet::Decoded::words).
        pub flow_header0: [u64; 2],
        /// The others.
        pub flow_header1: [u64; 2],
        /// What is known of the TCP segment: see [`segment`].
        pub flow_segment: [u64; 2],
        /// The first row of the same direction of the connection; [`NO_ROW`] where that is not known.
        pub flow_group: u32,
        /// The place in the order of that direction, and [`BEGINS_RUN`]; [`NO_ROW`] without a group.
        pub flow_place: u32,
        /// The row that begins where this one ends; [`NO_ROW`] for none.
        pub flow_next: u32,
    }
}

/// In columns: no row.
pub const NO_ROW: u32 = u32::MAX;

/// In `flow_place`: a run begins with this row, for no row ends where it begins.
pub const BEGINS_RUN: u32 = 1 << 31;

/// Cells that a key may be away from where its hash puts it, and one.
pub const PROBES: u32 = 32;

/// Work items of a group: those of the kernels that sort.
pub const ITEMS: u32 = 256;

/// Bytes for each row of area 0 of the job: two words of a hash, two cells of each table, the row before.
pub const SCRATCH_BYTES: usize = 4 * (2 + 2 + 2 + 1);

/// The areas of a job: that of the tables and that of the sort.
pub fn areas() -> [Area; 2] {
    let (fixed, per_row) = OrderPlan::AREA_BYTES;
    [Area { fixed: 0, per_row: SCRATCH_BYTES, max: 0 }, Area { fixed, per_row, max: 0 }]
}

/// The launches for jobs of at most so many rows, with this seed, in groups of [`ITEMS`]: the program has the files
/// [`REASSEMBLY`](super::kernels::REASSEMBLY) and [`ORDER`](kernels::files::ORDER).
pub fn steps(rows: usize, seed: u32) -> Vec<Step> {
    let rows_of = |kernel, job| Step::rows(kernel, ITEMS).with_job(job);
    let mut steps: Vec<Step> = groups(seed).into();
    steps.extend(["reassembly_sequences", "reassembly_follow"].map(|kernel| rows_of(kernel, seed)));
    let plan = order(rows);
    steps.push(rows_of("reassembly_keys", plan.keys_job()));
    steps.extend(plan.launches().map(|(kernel, job)| {
        let step = match kernel {
            "order_scan" => Step::group(kernel, ITEMS),
            _ => Step::tiles(kernel, ITEMS, ITEMS * OrderPlan::ROWS_PER_ITEM),
        };
        step.with_job(job)
    }));
    steps.push(rows_of("reassembly_firsts", SORT_AREA << 16));
    steps.push(rows_of("reassembly_places", SORT_AREA << 16));
    steps
}

/// The first of them, which find groups alone, and need the first area alone.
pub fn groups(seed: u32) -> [Step; 3] {
    ["reassembly_begin", "reassembly_flows", "reassembly_groups"]
        .map(|kernel| Step::rows(kernel, ITEMS).with_job(seed))
}

/// The number of the area of the sort.
const SORT_AREA: u32 = 1;

/// The sort of so many rows at most: by the number of the direction, then by distance.
pub(super) fn order(rows: usize) -> OrderPlan {
    // A row without a group comes last: its number has all bits, of which the last row alone has as many, and its distance, too.
    OrderPlan::new(SORT_AREA as usize, 32 + usize::BITS - rows.saturating_sub(1).leading_zeros())
}

/// A segment, as far as its place in a stream depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InStream {
    /// Source address.
    pub src: [u64; 2],
    /// Destination address.
    pub dst: [u64; 2],
    /// Source port in the upper half, destination port in the lower one.
    pub ports: u32,
    /// Sequence number.
    pub sequence: u32,
    /// Sequence numbers that it takes.
    pub len: u32,
}

impl InStream {
    /// Of the columns of a row; `None` if it is no segment that its receiver takes.
    pub fn of_columns(
        (src, dst): ([u64; 2], [u64; 2]),
        (header0, header1): ([u64; 2], [u64; 2]),
        [numbers, words]: [u64; 2],
    ) -> Option<Self> {
        if (words >> 56) as u8 != segment::RIGHT {
            return None;
        }
        let end = (header1[0] as u32 & 0xffff).wrapping_add(header0[0] as u32);
        let data = (header1[0] as u32 >> 16) + ((words >> 48) as u32 & 0xff);
        let flags = words as u32;
        let len = end.saturating_sub(data) + (flags & 1) + (flags >> 1 & 1);
        let ports = (header0[0] >> 32) as u32;
        Some(Self { src, dst, ports, sequence: numbers as u32, len })
    }

    /// What it has in common with all segments of its direction.
    fn direction(&self) -> ([u64; 2], [u64; 2], u32) {
        (self.src, self.dst, self.ports)
    }

    /// The key of a table of rows, with a sequence number or without.
    fn tag(&self, hash: &MultiplyShift<10>, sequence: u32) -> u32 {
        let [a, b] = [self.src, self.dst].map(|[x, y]| [x, x >> 32, y, y >> 32].map(|w| w as u32));
        fmix32(hash.hash(&[a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], self.ports, sequence]))
    }
}

/// What is found of a row, as the columns have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The first row of its direction.
    pub group: u32,
    /// The place in its stream, and [`BEGINS_RUN`].
    pub place: u32,
    /// The row that begins where it ends.
    pub next: u32,
}

impl Placed {
    /// Nothing is known.
    pub const NONE: Self = Self { group: NO_ROW, place: NO_ROW, next: NO_ROW };
}

/// Which keys find a cell in a table of so many: each takes, in the order of hash and key, the first one that is free.
fn placed<K: Ord + Copy>(keys: &BTreeMap<(u32, K), u32>, cells: u32) -> BTreeMap<(u32, K), u32> {
    let mut is_taken = vec![false; cells as usize];
    let mut found = BTreeMap::new();
    for (key, row) in keys {
        let home = to_range(key.0, cells);
        let mut probed = (0..PROBES).map(|probe| ((home + probe) % cells) as usize);
        if let Some(cell) = probed.find(|cell| !is_taken[*cell]) {
            is_taken[cell] = true;
            found.insert(*key, *row);
        }
    }
    found
}

/// The order of the segments of a job, in plain steps: what the kernels find out, by which tests judge them. Rows are numbered from
/// `first` on.
pub fn reference(rows: &[Option<InStream>], first: u32, seed: u32) -> Vec<Placed> {
    let hash = MultiplyShift::<10>::new(seed.into());
    let cells = 2 * rows.len() as u32;
    let of_rows = || (first..).zip(rows).filter_map(|(row, own)| Some((row, own.as_ref()?)));
    let at = |row: u32| (row - first) as usize;
    let mut flows = BTreeMap::new();
    for (row, own) in of_rows() {
        flows.entry((own.tag(&hash, 0), own.direction())).or_insert(row);
    }
    let flows = placed(&flows, cells);
    let mut found = vec![Placed::NONE; rows.len()];
    let mut distances = vec![0; rows.len()];
    let mut sequences = BTreeMap::new();
    for (row, own) in of_rows() {
        let Some(group) = flows.get(&(own.tag(&hash, 0), own.direction())) else { continue };
        let base = rows[at(*group)].map_or(0, |own| own.sequence);
        let distance = own.sequence.wrapping_sub(base) ^ 1 << 31;
        (found[at(row)].group, distances[at(row)]) = (*group, distance);
        if own.len > 0 {
            let key = (own.tag(&hash, own.sequence), (*group, own.sequence));
            sequences.entry(key).or_insert(row);
        }
    }
    let sequences = placed(&sequences, cells);
    let mut is_after = vec![false; rows.len()];
    for (row, own) in of_rows().filter(|(_, own)| own.len > 0) {
        let group = found[at(row)].group;
        // Not around the end of distances: so no run is a circle.
        if group == NO_ROW || distances[at(row)].checked_add(own.len).is_none() {
            continue;
        }
        let end = own.sequence.wrapping_add(own.len);
        let next = sequences.get(&(own.tag(&hash, end), (group, end)));
        if let Some(next) = next
            && !std::mem::replace(&mut is_after[at(*next)], true)
        {
            found[at(row)].next = *next;
        }
    }
    let mut order: Vec<u32> =
        of_rows().map(|(row, _)| row).filter(|row| found[at(*row)].group != NO_ROW).collect();
    order.sort_by_key(|row| (found[at(*row)].group, distances[at(*row)], *row));
    let mut stream = (NO_ROW, 0);
    for row in order {
        let own = &mut found[at(row)];
        let place = if stream.0 == own.group { stream.1 } else { 0 };
        stream = (own.group, place + 1);
        let takes_some = rows[at(row)].is_some_and(|own| own.len > 0);
        own.place = place | if takes_some && !is_after[at(row)] { BEGINS_RUN } else { 0 };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sequence: u32, len: u32) -> Option<InStream> {
        Some(InStream { src: [0, 1], dst: [0, 2], ports: 3 << 16 | 4, sequence, len })
    }

    fn place(found: &[Placed]) -> Vec<(u32, bool, Option<u32>)> {
        let next = |own: &Placed| (own.next != NO_ROW).then_some(own.next);
        let begins = |own: &Placed| own.place & BEGINS_RUN != 0;
        found.iter().map(|own| (own.place & !BEGINS_RUN, begins(own), next(own))).collect()
    }

    /// The picture of the module.
    #[test]
    fn rows_of_one_direction_are_in_order() {
        let rows = [of(1000, 500), of(2500, 500), of(1500, 500), of(1500, 500), of(7000, 0)];
        let found = reference(&rows, 0, 7);
        let expected = [
            (0, true, Some(2)),
            (3, true, None),
            (1, false, None),
            (2, true, None),
            (4, false, None),
        ];
        assert_eq!(place(&found), expected);
        assert!(found.iter().all(|own| own.group == 0));
        // Whatever the first row is numbered, and whatever the seed.
        let later: Vec<Placed> = reference(&rows, 90, 8)
            .into_iter()
            .map(|own| Placed {
                group: own.group - 90,
                next: if own.next == NO_ROW { NO_ROW } else { own.next - 90 },
                ..own
            })
            .collect();
        assert_eq!(later, found);
    }

    #[test]
    fn numbers_wrap_around_and_directions_are_apart() {
        let back = |sequence, len| {
            of(sequence, len).map(|own| InStream { src: own.dst, dst: own.src, ..own })
        };
        let rows =
            [of(0xffff_fff0, 16), back(9, 5), None, of(0, 8), back(4, 5), of(0xffff_ffff, 1)];
        let found = reference(&rows, 0, 1);
        let groups: Vec<u32> = found.iter().map(|own| own.group).collect();
        assert_eq!(groups, [0, 1, NO_ROW, 0, 1, 0]);
        assert_eq!(found[2], Placed::NONE);
        // Rows 0 and 5 both end where row 3 begins: the first one has it.
        let next: Vec<u32> = found.iter().map(|own| own.next).collect();
        assert_eq!(next, [3, NO_ROW, NO_ROW, NO_ROW, 1, NO_ROW]);
        let places: Vec<u32> = found.iter().map(|own| own.place & !BEGINS_RUN).collect();
        assert_eq!(places[..2], [0, 1]);
        assert_eq!(places[3..], [2, 0, 1]);
    }

    /// Segments that go once around all sequence numbers are no circle.
    #[test]
    fn no_run_is_a_circle() {
        let rows = [of(0, 1 << 31), of(1 << 31, 1 << 31)];
        let found = reference(&rows, 0, 1);
        assert_eq!(place(&found), [(1, false, None), (0, true, Some(0))]);
    }

    #[test]
    fn a_sort_has_bits_for_all_rows() {
        assert_eq!(steps(1 << 14, 1).len(), 6 + 3 * 12 + 2);
        assert_eq!(steps(1 << 20, 1).len(), 6 + 3 * 13 + 2);
    }
}
