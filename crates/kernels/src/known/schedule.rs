//! Selecting, sorting, hashing.

use chunk::{Columns, Verdict};

use super::{Known, Place, bytes_of};
use crate::files;
use crate::hash::{MultiplyShift, Polynomial61};
use crate::job::JobBytes;
use crate::plan::{OrderPlan, SelectPlan, SortPlan};
use crate::{HashColumns as H, Launch, ScheduleColumns as S, hash, reasons};

pub(crate) fn selects(group_items: u32) -> Vec<Known> {
    vec![select(group_items)]
}

pub(crate) fn sorts(group_items: u32) -> Vec<Known> {
    vec![sort(group_items)]
}

pub(crate) fn orders(group_items: u32) -> Vec<Known> {
    vec![order(group_items)]
}

pub(crate) fn all_areas(_: u32) -> Vec<Known> {
    vec![areas()]
}

pub(crate) fn hashes(_: u32) -> Vec<Known> {
    vec![hash()]
}

/// Enough rows for more than one group, the last one not full.
fn rows(group_items: u32) -> usize {
    group_items as usize * 2 + 5
}

fn job(rows: usize) -> JobBytes {
    let mut job = JobBytes::new(S::COLUMNS, rows);
    for row in 0..rows {
        let verdict = if row % 3 == 1 { Verdict::drop(reasons::NO_ROUTE) } else { Verdict::NEXT };
        job.put(S::VERDICT, row, verdict.0);
        job.put(S::CONTEXT, row, (row * 7 % 5) as u32);
        job.put(S::PROTOCOL, row, [17u8, 6][row / 4 % 2]);
        job.put(S::PAYLOAD_LEN, row, [1514u32, 60, 100_000, 60][row % 4]);
    }
    job
}

fn select(group_items: u32) -> Known {
    let rows = rows(group_items);
    let job = job(rows);
    let plan = SelectPlan::new(rows, 2, group_items);
    let list: Vec<u32> =
        (0..rows).filter(|row| row % 3 != 1 && row * 7 % 5 == 2).map(|row| row as u32).collect();
    let kernels = &["select_count", "select_scan", "select_write"];
    let mut known = Known::new("select", &[&files::SELECT], kernels, S::COLUMNS);
    known.state = vec![0xcd; plan.state_bytes];
    known.launches = plan.launches.to_vec();
    known
        .job(&job, &job)
        .expect(Place::State, 4 * SelectPlan::COUNT_WORD, bytes_of(&[list.len() as u32]))
        .expect(Place::State, 4 * SelectPlan::LIST_WORD, bytes_of(&list))
}

fn sort(group_items: u32) -> Known {
    let rows = rows(group_items) * 8; // more than one tile
    let job = job(rows);
    let plan = SortPlan::new(rows, 3, group_items);
    let mut order: Vec<u32> = (0..rows as u32).collect();
    order.sort_by_key(|row| {
        let length = [1514, 60, 65_535, 60][*row as usize % 4];
        ([17, 6][*row as usize / 4 % 2], row * 7 % 5, length)
    });
    let kernels = &["sort_keys", "sort_count", "sort_scan", "sort_scatter"];
    let mut known = Known::new("sort", &[&files::SORT], kernels, S::COLUMNS);
    known.state = vec![0xcd; plan.state_bytes];
    known.launches = plan.launches;
    known.job(&job, &job).expect(Place::State, 0, bytes_of(&order))
}

/// Keys of eight bits, which the host has put into the area.
fn order(group_items: u32) -> Known {
    let rows = rows(group_items) * 8; // more than one tile
    let mut job = JobBytes::new(S::COLUMNS, rows);
    let (fixed, per_row) = OrderPlan::AREA_BYTES;
    let at = job.add_areas(&[64, fixed + per_row * rows])[1];
    let plan = OrderPlan::new(1, 8);
    let key = |row: u32| row * 37 % 251;
    let capacity = rows.next_multiple_of(16);
    assert_eq!(plan.keys_job() & 0x100, 0, "two passes begin in the first half");
    for row in 0..rows {
        let bytes = job.bytes_mut();
        bytes[at + 4 * row..][..4].copy_from_slice(&(row as u32).to_le_bytes());
        let key = u64::from(key(row as u32));
        bytes[at + 4 * 2 * capacity + 8 * row..][..8].copy_from_slice(&key.to_le_bytes());
    }
    let mut sorted: Vec<u32> = (0..rows as u32).collect();
    sorted.sort_by_key(|row| key(*row));
    let kernels = &["order_count", "order_scan", "order_scatter"];
    let mut known = Known::new("order", &[&files::ORDER], kernels, S::COLUMNS);
    let tiles = rows.div_ceil((group_items * OrderPlan::ROWS_PER_ITEM) as usize) as u32;
    let launch = |(kernel, job)| {
        let groups = if kernel == "order_scan" { 1 } else { tiles };
        Launch { kernel, groups, items: group_items, job }
    };
    known.launches = plan.launches().map(launch).collect();
    known.arena = job.bytes().to_vec();
    known.expect(Place::Arena, at, bytes_of(&sorted))
}

/// Starts of records that fit and of records that do not, and an area of which only the words are zero after.
fn areas() -> Known {
    let counts = [3u32, 0, 2, 0, 0, 7, 1];
    let mut job = JobBytes::new(S::COLUMNS, counts.len());
    let starts_bytes = 4 * (4 + counts.len() + 1);
    let places = job.add_areas(&[starts_bytes, 4 * 13, starts_bytes, 4 * 12, 96]);
    for place in [places[0], places[2]] {
        let place = &mut job.bytes_mut()[place + 16..];
        place[..4 * counts.len()].copy_from_slice(&bytes_of(&counts));
    }
    job.bytes_mut()[places[4]..].fill(0xee);
    let mut after = job.clone();
    for (place, is_over) in [(places[0], 0), (places[2], 1)] {
        let starts = [13, is_over, 0, 0, 0, 3, 3, 5, 5, 5, 12, 13];
        after.bytes_mut()[place..][..starts_bytes].copy_from_slice(&bytes_of(&starts));
    }
    after.bytes_mut()[places[4]..][..96].fill(0);
    let mut known =
        Known::new("areas", &[&files::AREAS], &["clear_area", "output_scan"], S::COLUMNS);
    let launch = |kernel, job| Launch { kernel, groups: 1, items: 0, job };
    known.launches =
        vec![launch("output_scan", 0), launch("output_scan", 2), launch("clear_area", 4)];
    known.job(&job, &after)
}

fn hash() -> Known {
    const PORTS: [u32; 3] = [0, 0xffff_ffff, 0xffff_0050];
    let keys: [([u64; 2], [u64; 2]); 3] = [
        ([0, 0], [0, 0]),
        ([u64::MAX, u64::MAX], [u64::MAX, u64::MAX]),
        ([0x2001_0db8_0000_0000, 0x0123_4567_89ab_cdef], [0, 0x0a00_0001]),
    ];
    let mut job = JobBytes::new(H::COLUMNS, keys.len());
    let mut after = job.clone();
    let payload: Vec<u8> = (0..16).collect();
    for (row, (src, dst)) in keys.into_iter().enumerate() {
        let (seed, len) = (row as u64 * 0x1234_5678_9abc_def1, 5 + row);
        for job in [&mut job, &mut after] {
            job.put(H::SRC, row, src);
            job.put(H::DST, row, dst);
            job.put(H::PORTS, row, PORTS[row]);
            job.put(H::PROTOCOL, row, 6u8);
            job.put(H::SEED, row, seed);
            job.put(H::PAYLOAD_AT, row, row as u32);
            job.put(H::PAYLOAD_LEN, row, len as u32);
        }
        let ports = [(PORTS[row] >> 16) as u16, PORTS[row] as u16];
        let words = [src[0] as u32, (src[0] >> 32) as u32, src[1] as u32, (src[1] >> 32) as u32];
        after.put(H::FLOW, row, hash::flow(src, dst, ports, 6));
        after.put(H::SHIFT, row, MultiplyShift::<4>::new(seed).hash(&words));
        after.put(H::PRIME, row, Polynomial61::new(seed).hash(&words));
        after.put(H::FMIX32, row, hash::fmix32(words[0]));
        after.put(H::FMIX64, row, hash::fmix64(src[1]));
        // The last launch writes over what `hash_words` put there; the multiply-shift and the polynomial
        // prove that kernel.
        let bytes = &payload[row..row + len];
        after.put(H::MURMUR, row, hash::murmur3_bytes(bytes, seed as u32));
    }
    let kernels = &["hash_flow", "hash_words", "hash_payload"];
    let known = Known::new("hash", &[&files::HASH], kernels, H::COLUMNS);
    Known { payload, ..known.job(&job, &after) }
}
