//! Names: a table of three prefixes, laid out by hand.

use chunk::Columns;

use super::{Known, Sparse, bytes_of};
use crate::NameColumns;
use crate::files;
use crate::hash::{mod61, multiply_add61, parameter};
use crate::image::ImageLayout;
use crate::job::JobBytes;

pub(crate) fn all_names(_: u32) -> Vec<Known> {
    vec![names()]
}

const SEED: u64 = 5;
const HINTS: u64 = 2;
const BUCKETS: u64 = 2;
const MAGIC: u64 = 0x0073_656d_616e_0001;

/// The component `a`, of type 8.
pub const A: &[u8] = &[8, 1, b'a'];
/// The component `bcdefgh`: nine bytes with its header.
pub const LONG: &[u8] = &[8, 7, b'b', b'c', b'd', b'e', b'f', b'g', b'h'];
/// The component `b`.
pub const B: &[u8] = &[8, 1, b'b'];

fn hash(components: &[&[u8]]) -> u64 {
    let [point, a, b] = [0, 1, 2].map(|index| mod61(parameter(SEED, index)));
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let value = components.iter().fold(1, |value, component| {
        let (whole, rest) = component.as_chunks::<7>();
        let value =
            whole.iter().fold(value, |value, seven| multiply_add61(value, point, word(seven)));
        multiply_add61(value, point, word(rest) | (rest.len() as u64 + 1) << 56)
    });
    multiply_add61(value, a, b)
}

fn scale(hash: u64, count: u64) -> usize {
    (((hash >> 29) * count) >> 32) as usize
}

/// The default is 2, `/a` is 3, `/a/bcdefgh` is 4 and found by a hint at depth 2, `/b` is 5 and lies one
/// bucket further than its own.
fn table() -> Vec<u32> {
    let mut lines = vec![[0_u64; 8]; (1 + HINTS + BUCKETS + 2) as usize];
    lines[0] = [MAGIC, SEED, HINTS, BUCKETS, 2, 1 << 1 | 2 << 32, 0, 0];
    let both = hash(&[A, LONG]);
    let hint = &mut lines[1 + scale(both, HINTS)];
    (hint[1], hint[5]) = (both, 1 << (32 + 2)); // the second place
    let names = [(&[A][..], 3), (&[A, LONG], 4), (&[B], 5)];
    let name_line = (1 + HINTS + BUCKETS) as usize;
    for (index, (components, next_hop)) in names.into_iter().enumerate() {
        let bytes = components.concat();
        let unit = 2 * index; // of 16 bytes
        for (at, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            lines[name_line + unit / 4][unit % 4 * 2 + at] = u64::from_le_bytes(word);
        }
        let hash = hash(components);
        let mut bucket = scale(hash, BUCKETS);
        if next_hop == 5 {
            lines[1 + HINTS as usize + bucket][7] |= 1 << 32;
            bucket = (bucket + 1) % BUCKETS as usize;
        }
        let line = &mut lines[1 + HINTS as usize + bucket];
        let shift = 32 * (index % 2);
        line[index / 2] |= (hash & 0xffff_ffff) << shift;
        line[2 + index / 2] |= next_hop << shift;
        line[4 + index / 2] |= (unit as u64) << shift;
        line[6] |= (bytes.len() as u64) << (16 * index);
        line[7] |= (components.len() as u64) << (8 * index);
    }
    lines.concat().iter().flat_map(|word| [*word as u32, (word >> 32) as u32]).collect()
}

fn names() -> Known {
    let lies: &[u8] = &[8, 9, b'a'];
    let wide: &[u8] = &[8, 253, 0, 1, b'a'];
    let rows: [(Vec<u8>, u32); 8] = [
        (vec![], 2),
        (A.to_vec(), 3),
        ([A, LONG].concat(), 4),
        ([A, LONG, B].concat(), 4),
        ([A, B].concat(), 3),
        ([B, B].concat(), 5),
        (wide.to_vec(), 2), // another encoding is another name
        ([A, lies].concat(), 3),
    ];
    let mut job = JobBytes::new(NameColumns::COLUMNS, rows.len());
    let (mut after, mut payload) = (job.clone(), Vec::new());
    for (row, (name, answer)) in rows.iter().enumerate() {
        for job in [&mut job, &mut after] {
            job.put(NameColumns::PAYLOAD_AT, row, payload.len() as u32);
            job.put(NameColumns::PAYLOAD_LEN, row, name.len() as u32);
        }
        after.put(NameColumns::RESULT, row, *answer);
        payload.extend_from_slice(name);
    }
    payload.resize(payload.len().next_multiple_of(4), 0);
    let known = Known::new("names", &[&files::NAMES], &["names"], NameColumns::COLUMNS);
    Known { payload, tables: name_table(0), ..known.job(&job, &after) }
}

/// An image with a small table of names in region `region`, those before it empty: the next hop of `/a` is 3, of
/// `/a/bcdefgh` 4, of `/b` 5, of all others 2.
pub fn name_table(region: usize) -> Sparse {
    let words = table();
    let mut regions = vec![&[][..]; region];
    regions.push(&words);
    let lengths: Vec<_> = regions.iter().map(|words| (words.len(), 0)).collect();
    let image = bytes_of(&ImageLayout::new(&lengths).write(1, &regions));
    Sparse { bytes: image.len(), parts: vec![(0, image)] }
}
