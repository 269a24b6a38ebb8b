//! The known answer of the order of segments, written down by hand.

use chunk::Columns;
use kernels::job::JobBytes;
use kernels::known::{Known, Place};
use kernels::{Launch, files};

use super::REASSEMBLY;
use crate::flow::decode::segment;
use crate::flow::reassembly::{
    BEGINS_RUN, NO_ROW, Placed, ReassemblyColumns as R, SCRATCH_BYTES, order,
};

/// Ethernet and IPv4.
const HEADER1: [u64; 2] = [0x0014_0022_000e, 6 << 8];

/// Two directions of a connection and one of another that differs by a port alone, around the end of sequence numbers: in order
/// and not, twice, overlapping, without data, with SYN and FIN; rows that are no segments.
pub(super) fn reassembly(group_items: u32) -> Known {
    const A: ([u64; 2], [u64; 2], u64) = ([0, 0x0a00_0001], [0, 0x0a00_0002], 0x9c40_0050);
    const B: ([u64; 2], [u64; 2], u64) = ([0, 0x0a00_0002], [0, 0x0a00_0001], 0x0050_9c40);
    const C: ([u64; 2], [u64; 2], u64) = ([0, 0x0a00_0001], [0, 0x0a00_0002], 0x9c41_0050);
    const NONE: Placed = Placed::NONE;
    let at = |group, place, next| Placed { group, place, next };
    let first = |group, place, next| Placed { group, place: place | BEGINS_RUN, next };
    // Direction, status, sequence number, flags, bytes of data; what is found.
    let rows = [
        (A, segment::RIGHT, 0xffff_fff0_u32, 2, 0, first(0, 0, 2)), // SYN
        (B, segment::RIGHT, 0x10, 0x10, 0, at(1, 0, NO_ROW)),
        (A, segment::RIGHT, 0xffff_fff1, 0x10, 20, at(0, 1, 6)),
        (A, segment::MALFORMED, 0, 0, 0, NONE),
        (C, segment::RIGHT, 0xffff_fff1, 0x10, 20, first(4, 0, NO_ROW)),
        (A, segment::RIGHT, 0x0f, 0x11, 4, at(0, 5, NO_ROW)), // FIN
        (A, segment::RIGHT, 5, 0x10, 10, at(0, 2, 5)),
        (A, segment::RIGHT, 5, 0x10, 10, first(0, 3, NO_ROW)), // again
        (A, segment::RIGHT, 5, 0x10, 0, at(0, 4, NO_ROW)),     // no data
        (A, segment::NONE, 5, 0, 10, NONE),
        (B, segment::RIGHT, 0x12, 0x18, 4, first(1, 2, 12)),
        (B, segment::RIGHT, 0x11, 0x18, 5, first(1, 1, NO_ROW)), // overlaps
        (B, segment::RIGHT, 0x16, 0x10, 1, at(1, 3, NO_ROW)),
    ];
    let mut before = JobBytes::new(R::COLUMNS, rows.len());
    let (fixed, per_row) = kernels::plan::OrderPlan::AREA_BYTES;
    let places = before.add_areas(&[SCRATCH_BYTES * rows.len(), fixed + per_row * rows.len()]);
    for (row, ((src, dst, ports), status, sequence, flags, data, _)) in rows.iter().enumerate() {
        before.put(R::FLOW_SRC, row, *src);
        before.put(R::FLOW_DST, row, *dst);
        before.put(R::FLOW_HEADER0, row, [ports << 32 | (40 + data), 0]);
        before.put(R::FLOW_HEADER1, row, HEADER1);
        let words = u64::from(*status) << 56 | 20 << 48 | flags;
        before.put(R::FLOW_SEGMENT, row, [u64::from(*sequence), words]);
        for column in [R::FLOW_GROUP, R::FLOW_PLACE, R::FLOW_NEXT] {
            before.put(column, row, 7u32);
        }
    }
    let mut after = before.clone();
    for (row, (.., found)) in rows.iter().enumerate() {
        after.put(R::FLOW_GROUP, row, found.group);
        after.put(R::FLOW_PLACE, row, found.place);
        after.put(R::FLOW_NEXT, row, found.next);
    }
    let names = REASSEMBLY.kernels.iter().map(|kernel| kernel.name);
    let names: Vec<&'static str> = names.collect();
    let mut known = Known::new("reassembly", &[&REASSEMBLY, &files::ORDER], &names, R::COLUMNS);
    let plan = order(rows.len());
    let launch = |kernel, job| Launch { kernel, groups: 1, items: group_items, job };
    let (tables, rest) = names.split_at(5);
    known.launches = tables.iter().map(|kernel| launch(*kernel, 5)).collect();
    known.launches.push(launch(rest[0], plan.keys_job()));
    known.launches.extend(plan.launches().map(|(kernel, job)| launch(kernel, job)));
    known.launches.extend(rest[1..].iter().map(|kernel| launch(*kernel, 1 << 16)));
    known.arena = before.bytes().to_vec();
    // What is in the areas has no meaning afterwards.
    known.expect(Place::Arena, 0, after.bytes()[..places[0]].to_vec())
}
