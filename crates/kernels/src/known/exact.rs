//! Exact match: a small cuckoo table of each kind of key, laid out by hand.

use chunk::Columns;
use chunk::hash::{key64, key128, to_range};

use super::{Known, Sparse, bytes_of};
use crate::ExactColumns;
use crate::files;
use crate::image::ImageLayout;
use crate::job::JobBytes;

pub(crate) fn cuckoo(_: u32) -> Vec<Known> {
    vec![exact8(), exact16()]
}

const BUCKETS: u32 = 16;
const BUCKET_LINE: usize = 17;
const SEED: u64 = 0x0123_4567_89ab_cdef;
/// What a lookup says of a key that is not there.
pub const MISS: u64 = u64::MAX;

/// Lines of a blob with this header; the stash has two lines in use.
fn blob(key_words: u64, stashed: u64) -> Vec<[u64; 8]> {
    let mut lines = vec![[0; 8]; BUCKET_LINE + BUCKETS as usize];
    lines[0][..5].copy_from_slice(&[
        0x6375_636b_6f6f_0001,
        key_words,
        BUCKETS.into(),
        SEED,
        stashed,
    ]);
    lines
}

/// The table in region `region` of an image, those before it empty.
fn image(region: usize, lines: &[[u64; 8]]) -> Sparse {
    let words: Vec<u32> =
        lines.as_flattened().iter().flat_map(|word| [*word as u32, (word >> 32) as u32]).collect();
    let mut lengths = vec![(0, 0); region];
    lengths.push((words.len(), 0));
    let layout = ImageLayout::new(&lengths);
    let table = 4 * layout.region(region).offset_words;
    let parts = vec![(0, bytes_of(&layout.header(1))), (table, bytes_of(&words))];
    Sparse { bytes: layout.bytes(), parts }
}

/// Line of a key: its first bucket or its second.
fn line(hash: u64, second: bool) -> usize {
    BUCKET_LINE + to_range(if second { hash as u32 } else { (hash >> 32) as u32 }, BUCKETS) as usize
}

/// Keys 11, 12, … 18 are in way (key - 11) % 4, the odd ones in their first bucket; 21 to 25 in the stash.
fn table8() -> Vec<[u64; 8]> {
    let mut lines = blob(1, 5);
    for key in 11..19u64 {
        let way = (key - 11) as usize % 4;
        let place = &mut lines[line(key64(key, SEED), key % 2 == 0)];
        place[way] = key;
        place[4 + way] = 100 * key;
    }
    lines[1] = [21, 22, 23, 24, 2100, 2200, 2300, 2400];
    lines[2] = [25, 25, 25, 25, 2500, 2500, 2500, 2500];
    lines
}

/// An image with a small table of keys of eight bytes in region `region`, those before it empty. [`exact_value`] says
/// what it holds.
pub fn exact_table(region: usize) -> Sparse {
    image(region, &table8())
}

/// The value of a key in [`exact_table`].
pub fn exact_value(key: u64) -> u64 {
    if (11..19).contains(&key) || (21..26).contains(&key) { 100 * key } else { MISS }
}

const KEYS8: [u64; 18] = [11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, MISS, 10];

fn exact8() -> Known {
    let columns = ExactColumns::COLUMNS;
    let mut before = JobBytes::new(columns, KEYS8.len());
    for (row, key) in KEYS8.iter().enumerate() {
        before.put(ExactColumns::KEY8, row, *key);
    }
    let mut after = before.clone();
    for (row, key) in KEYS8.iter().enumerate() {
        after.put(ExactColumns::VALUE8, row, exact_value(*key));
    }
    let known = Known::new("exact8", &[&files::CUCKOO], &["exact8"], columns);
    Known { tables: exact_table(0), ..known }.job(&before, &after)
}

fn exact16() -> Known {
    let columns = ExactColumns::COLUMNS;
    let mut lines = blob(2, 4);
    // Three ways, of which the values are the halves of two words; four keys in the stash.
    for key in [[1u64, 7], [2, 7], [3, 7], [4, 7], [5, 7], [6, 7]] {
        let way = (key[0] as usize - 1) % 3;
        let place = &mut lines[line(key128(key, SEED), key[0] % 2 == 0)];
        place[2 * way..][..2].copy_from_slice(&key);
        place[6 + way / 2] |= (1000 + key[0]) << (32 * (way % 2));
    }
    lines[1] = [7, 7, 8, 7, 9, 7, 1007 | 1008 << 32, 1009];
    lines[2] = [10, 7, 10, 7, 10, 7, 1010 | 1010 << 32, 1010];
    let keys: Vec<[u64; 2]> =
        (1..12).map(|first| [first, 7]).chain([[1, 8], [7, 8], [MISS, 7]]).collect();
    let mut before = JobBytes::new(columns, keys.len());
    for (row, key) in keys.iter().enumerate() {
        before.put(ExactColumns::KEY16, row, *key);
    }
    let mut after = before.clone();
    for (row, [first, second]) in keys.iter().enumerate() {
        let is_there = *second == 7 && *first <= 10;
        after.put(
            ExactColumns::VALUE16,
            row,
            if is_there { 1000 + *first as u32 } else { u32::MAX },
        );
    }
    let known = Known::new("exact16", &[&files::CUCKOO], &["exact16"], columns);
    Known { tables: image(0, &lines), ..known }.job(&before, &after)
}
