//! Lookups in the tries: a small one of each kind, laid out by hand.

use chunk::Columns;

use super::{Known, Sparse, bytes_of};
use crate::LpmColumns;
use crate::files;
use crate::image::ImageLayout;
use crate::job::JobBytes;

pub(crate) fn all(_: u32) -> Vec<Known> {
    vec![poptrie(false), poptrie(true), mtrie6()]
}

const DIRECT: usize = 16;
const HEAP: usize = DIRECT + (1 << 18);
const FLAG: u32 = 1 << 31;

/// Parts of a table by their first word.
type Parts = Vec<(usize, Vec<u32>)>;

/// Entry 1 (0.0.64.0/18) is 7 as a whole; entry 2 names a record: its first 31 /24s are 3, the next is group
/// 1, then one without a route, then 31 of 4; entry 3 has none. The default is 2. Of the group, .5 is 8 and
/// the rest 9.
fn poptrie_table(wide: bool) -> Parts {
    let mut group = vec![9; 256];
    group[5] = 8;
    let bits = [1 | 1 << 31, 1 | 1 << 1];
    let answers =
        if wide { vec![3, FLAG | 1, 0, 4] } else { vec![3 | (1 << 15 | 1) << 16, 4 << 16] };
    vec![
        (0, vec![0x0018_0624, 2, wide.into()]),
        (DIRECT, vec![0, 7, FLAG | 4, 0]),
        (HEAP + 8, [bits.to_vec(), answers].concat()),
        (HEAP + 256, group),
    ]
}

/// 2001::/18 is 3 as a cell; 2400::/18 names a node of 4 bits, whose cell 1 is 4 and whose cell 2 a bucket
/// of short prefixes (longest first: /40, /32; the rest is 5), whose cell 3 a bucket of two long ones; cell
/// 4 a node of 1 bit. The default is 2.
fn mtrie6_table() -> Parts {
    let [node, short, wide] = [0, 2 << 29, 3 << 29].map(|kind| FLAG | kind);
    let mut nodes = vec![0; 16];
    nodes[1..5].copy_from_slice(&[4, short | 2, wide | 3, node | 4]);
    // Bits 18 to 49 of 2400:800:aa00::/40 and 2400:800::/32.
    let (long, lesser) = (0x2400_0800_aa00_0000_u64 >> 14, 0x2400_0800_0000_0000_u64 >> 14);
    let mut bucket = vec![lesser as u32; 16];
    bucket[0] = long as u32;
    bucket[6..8].copy_from_slice(&[10 | 18 << 8 | 18 << 16 | 18 << 24, 18 | 18 << 8]);
    bucket[8..].copy_from_slice(&[6, 7, 7, 7, 7, 7, 5, 0]);
    // 2400:c00::1/128 and 2400:c00::/64.
    let mut halves = vec![0, 0x2400_0c00, 1, 0, 0, 0x2400_0c00, 0, 0];
    halves.extend([8, 9, 64 << 24, 0, 0, 0, 10, 0]);
    vec![
        (0, vec![0x006d_7436, 2]),
        (DIRECT + (0x2001 << 2), vec![3]),
        (DIRECT + (0x2400 << 2), vec![node | 3 << 25 | 1]),
        (DIRECT + (0x3001 << 2), vec![0]),
        (HEAP + 16, [nodes, bucket, halves, vec![11, 12]].concat()),
        (HEAP + 16 * 5, vec![0; 16]),
    ]
}

fn image(region: usize, parts: &Parts, words: usize) -> Sparse {
    let mut lengths = vec![(0, 0); 2];
    lengths[region] = (words, 0);
    let layout = ImageLayout::new(&lengths);
    let mut all = vec![(0, bytes_of(&layout.header(1)))];
    for (at, words) in parts {
        all.push((4 * (layout.region(region).offset_words + at), bytes_of(words)));
    }
    Sparse { bytes: layout.bytes(), parts: all }
}

fn poptrie(wide: bool) -> Known {
    let cases = [
        (0x0000_0001_u32, 2_u32), // no route: the default
        (0x0000_7fff, 7),
        (0x0000_8000, 3),
        (0x0000_9eff, 3),
        (0x0000_9f05, 8),
        (0x0000_9f06, 9),
        (0x0000_a000, 2), // a run without a route
        (0x0000_a100, 4),
        (0x0000_bfff, 4),
        (0x0000_c000, 2),
    ];
    let mut job = JobBytes::new(LpmColumns::COLUMNS, cases.len());
    for (row, (address, _)) in cases.iter().enumerate() {
        job.put(LpmColumns::DST4, row, *address);
    }
    let mut after = job.clone();
    for (row, (_, answer)) in cases.iter().enumerate() {
        after.put(LpmColumns::RESULT, row, *answer);
    }
    let known = Known::new("tries", &[&files::TRIES], &["poptrie"], LpmColumns::COLUMNS);
    let tables = image(0, &poptrie_table(wide), HEAP + 512);
    Known { tables, ..known.job(&job, &after) }
}

fn mtrie6() -> Known {
    let cases = [
        ([0x3001_0000_0000_0000_u64, 0_u64], 2_u32),
        ([0x2001_3fff_ffff_ffff, 9], 3),
        ([0x2400_0000_0000_0000, 0], 2),
        ([0x2400_0400_0000_0000, 0], 4),
        ([0x2400_0800_aaff_ffff, 0], 6),
        ([0x2400_0800_ab00_0000, 0], 7),
        ([0x2400_0801_0000_0000, 0], 5),
        ([0x2400_0c00_0000_0000, 1], 8),
        ([0x2400_0c00_0000_0000, 2], 9),
        ([0x2400_0c00_0000_0001, 1], 10),
        ([0x2400_1000_0000_0000, 0], 11),
        ([0x2400_1200_0000_0000, 0], 12),
    ];
    let mut job = JobBytes::new(LpmColumns::COLUMNS, cases.len());
    for (row, (address, _)) in cases.iter().enumerate() {
        job.put(LpmColumns::DST6, row, *address);
    }
    let mut after = job.clone();
    for (row, (_, answer)) in cases.iter().enumerate() {
        after.put(LpmColumns::RESULT, row, *answer);
    }
    let known = Known::new("tries", &[&files::TRIES], &["mtrie6"], LpmColumns::COLUMNS);
    let tables = image(1, &mtrie6_table(), HEAP + 16 * 6);
    Known { tables, ..known.job(&job, &after) }
}
