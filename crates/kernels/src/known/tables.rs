//! Lookups: a small table of each kind, laid out by hand.

use chunk::Columns;

use super::{Known, Place, Sparse, bytes_of};
use crate::LpmColumns;
use crate::files;
use crate::image::{ImageLayout, Patches};
use crate::job::JobBytes;

pub(crate) fn lpm(_: u32) -> Vec<Known> {
    vec![lpm4(), lpm6()]
}

pub(crate) fn patches(_: u32) -> Vec<Known> {
    vec![patch()]
}

const DIR_CELLS: usize = 16;
const DIR_GROUPS: usize = DIR_CELLS + (1 << 24);
const DIR_WORDS: usize = DIR_GROUPS + 256;
const NARROW: u64 = 4;
const WIDE: u64 = 2;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const LINE_WORDS: usize = 16;
const NARROW_LINE: usize = 1 + 16_384;
const BSPL_WORDS: usize = (NARROW_LINE + NARROW as usize + WIDE as usize) * LINE_WORDS;

/// First cells of DIR-24-8: 0.0.0.0/24 is 7; 0.0.1.0/24 has no route; 0.0.2.0/24 is group 0, of which .5
/// is 8 and the rest the default, 2.
fn dir24_8() -> [(usize, Vec<u32>); 2] {
    let mut head = vec![0; 24];
    head[..3].copy_from_slice(&[0x0024_0801, 2, 1]);
    head[DIR_CELLS..].copy_from_slice(&[7, 0, 1 << 31, 3, 4, 5, 6, 9]);
    let mut group = vec![0; 256];
    group[5] = 8;
    [(0, head), (DIR_GROUPS, group)]
}

fn scale(hash: u64, count: u64) -> usize {
    (((hash >> 32) * count) >> 32) as usize
}

fn halves(words: &[u64]) -> Vec<u32> {
    words.iter().flat_map(|word| [*word as u32, (word >> 32) as u32]).collect()
}

/// A line of three keys of less than 64 bits.
fn narrow_line(key: u64, rope: u64, best: u64) -> [u64; 8] {
    [1, 1, key, 1, 1, rope, 0, best] // the third place: its best is the low half of the last word
}

/// Binary search on lengths: 2001::/16 is 3, 2001:d00::/24 is 4, 2001:db8::/32 is 5 and leads to
/// 2001:db8:0:1::/64, which is 6 and lies one bucket further than its own. The default is 2.
fn bspl() -> Vec<(usize, Vec<u32>)> {
    let head = [0x6273_706c_0001, 2, NARROW, WIDE, SEED, 0, 0, 0];
    // Addresses 2001:800:: to 2001:fff:… are the second 32nd part of the cell; longer ones try /32, then /24.
    let cell = [32 | 24 << 8, 3 | 1 << (32 + 1)];
    let mut lines = vec![[0u64; 8]; (NARROW + WIDE) as usize];
    let by_32 = 0x2001_0db8_8000_0000u64;
    let by_24 = 0x2001_0d80_0000_0000u64;
    for (key, rope, best) in [(by_32, 64, 5), (by_24, 0, 4)] {
        let bucket = scale((key ^ key >> 32).wrapping_mul(SEED), NARROW);
        let line = narrow_line(key, rope, best);
        if lines[bucket] == [0; 8] {
            lines[bucket] = line;
        } else {
            lines[bucket][1] = key;
            lines[bucket][4] = rope;
            lines[bucket][6] |= best << 32;
        }
    }
    let high = 0x2001_0db8_0000_0001u64;
    let bucket = scale((high ^ high >> 32).wrapping_add(64).wrapping_mul(SEED), WIDE);
    let (own, next) = (NARROW as usize + bucket, NARROW as usize + (bucket + 1) % WIDE as usize);
    lines[own] = [1, 0, 2, 0, 0, 0, 9 | 9 << 32, 64 | 64 << 8 | 1 << 32];
    lines[next] = [3, 0, high, 0, 0, 0, 6 << 32, 64 | 64 << 8];
    let lines = lines.concat();
    vec![
        (0, halves(&head)),
        (LINE_WORDS + 4 * 0x2001, halves(&cell)),
        (LINE_WORDS + 4 * 0x3001, vec![0; 4]),
        (NARROW_LINE * LINE_WORDS, halves(&lines)),
    ]
}

/// An image with a small table of DIR-24-8 in region `first` and one of binary search on lengths behind it, then `more`
/// regions; those before `first` are empty. Next hops are those of [`ADDRESSES4`] and [`ADDRESSES6`].
pub fn route_tables(first: usize, more: &[Vec<u32>]) -> Sparse {
    let mut lengths = vec![(0, 0); first];
    lengths.extend([(DIR_WORDS, 0), (BSPL_WORDS, 0)]);
    lengths.extend(more.iter().map(|words| (words.len(), 0)));
    let layout = ImageLayout::new(&lengths);
    let mut parts = vec![(0, bytes_of(&layout.header(1)))];
    let mut add = |region: usize, at: usize, words: &[u32]| {
        parts.push((4 * (layout.region(first + region).offset_words + at), bytes_of(words)));
    };
    dir24_8().iter().for_each(|(at, words)| add(0, *at, words));
    bspl().iter().for_each(|(at, words)| add(1, *at, words));
    more.iter().enumerate().for_each(|(region, words)| add(2 + region, 0, words));
    Sparse { bytes: layout.bytes(), parts }
}

/// Addresses, and their next hops in [`route_tables`].
pub const ADDRESSES4: [(u32, u32); 6] =
    [(0xff, 7), (0x1aa, 2), (0x205, 8), (0x206, 2), (0x300, 3), (0x700, 9)];

/// The same of IPv6.
pub const ADDRESSES6: [([u64; 2], u32); 6] = [
    ([0x2001_0db8_0000_0001, 9], 6),
    ([0x2001_0db8_0000_0002, 0], 5),
    ([0x2001_0d01_0000_0000, 0], 4),
    ([0x2001_0b01_0000_0000, 0], 3),
    ([0x2001_0001_0000_0000, u64::MAX], 3),
    ([0x3001_0000_0000_0000, 0], 2),
];

/// Rows 1 to 6 of 8: the others stay as they are.
fn lpm4() -> Known {
    let mut job = JobBytes::new(LpmColumns::COLUMNS, 8);
    job.set_range(1, 6);
    for (row, (address, _)) in ADDRESSES4.iter().enumerate() {
        job.put(LpmColumns::DST4, row + 1, *address);
    }
    let mut after = job.clone();
    for (row, (_, answer)) in ADDRESSES4.iter().enumerate() {
        after.put(LpmColumns::RESULT, row + 1, *answer);
    }
    let known = Known::new("lpm", &[&files::LPM], &["lpm4"], LpmColumns::COLUMNS);
    Known { tables: route_tables(0, &[]), ..known.job(&job, &after) }
}

fn lpm6() -> Known {
    let mut job = JobBytes::new(LpmColumns::COLUMNS, ADDRESSES6.len());
    for (row, (address, _)) in ADDRESSES6.iter().enumerate() {
        job.put(LpmColumns::DST6, row, *address);
    }
    let mut after = job.clone();
    for (row, (_, answer)) in ADDRESSES6.iter().enumerate() {
        after.put(LpmColumns::RESULT, row, *answer);
    }
    let known = Known::new("lpm", &[&files::LPM], &["lpm6"], LpmColumns::COLUMNS);
    Known { tables: route_tables(0, &[]), ..known.job(&job, &after) }
}

fn patch() -> Known {
    let layout = ImageLayout::new(&[(600, 0)]);
    let mut image = layout.write(1, &[&[7; 600]]);
    let before = bytes_of(&image);
    let mut patches = Patches::new();
    patches.fill(70, 300, 5);
    patches.write(100, &[1, 2, 3]);
    patches.set_version(2);
    let mut list = Vec::new();
    patches.list(layout.words(), &mut list);
    patches.apply(&mut image);
    let mut known = Known::new("patch", &[&files::PATCH], &["patch"], &[]);
    known.arena = bytes_of(&list);
    known.tables = Sparse { bytes: before.len(), parts: vec![(0, before)] };
    known.launches[0].groups = patches.records() as u32;
    known.expect(Place::Tables, 0, bytes_of(&image))
}
