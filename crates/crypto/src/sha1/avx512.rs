//! HMAC-SHA1 of sixteen messages in the 32-bit lanes of AVX-512.
//!
//! Lane n of every vector belongs to message n. The sixteen words of a block are transposed, so that vector w has word w of
//! all messages; then the rounds of FIPS 180-4 §6.1 are written as for one. Rotations and the three-operand functions are one
//! instruction each.
//!
//! ```text
//!  lane 0   │ block │ block │ block │ rest, padding │        a lane whose message has ended keeps its state: its blocks
//!  lane 1   │ block │ block │ rest, padding │                are masked, so messages of about one length go together
//!   …
//!  all      │ outer block: the inner digest is five of its words, without a way through memory │
//! ```
//!
//! The unsafe code is a call of a function that needs CPU features, and loads and stores of up to 64 bytes.

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_loadu_si512, _mm512_mask_add_epi32, _mm512_mask_blend_epi8,
    _mm512_maskz_loadu_epi8, _mm512_maskz_set1_epi64, _mm512_or_si512, _mm512_rol_epi32,
    _mm512_set_epi64, _mm512_set1_epi8, _mm512_set1_epi32, _mm512_setzero_si512,
    _mm512_shuffle_epi8, _mm512_shuffle_i32x4, _mm512_storeu_si512, _mm512_ternarylogic_epi32,
    _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
    _mm512_xor_si512,
};

use super::{BLOCK, Blocks, Job, State, last_blocks};

/// Messages at once.
pub(super) const LANES: usize = 16;

/// How many blocks of a message are loaded ahead.
const AHEAD: usize = 4;

/// Whether the CPU has what [`macs`] uses.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

/// The digests of the jobs at `places`, 1 to 16, at the same places of `out`.
///
/// # Panics
///
/// The CPU lacks the instructions, or there is no job, or are more than [`LANES`].
pub(super) fn macs(jobs: &[Job<'_>], places: &[u8], out: &mut [[u8; 20]]) {
    assert!(is_available() && (1..=LANES).contains(&places.len()));
    // SAFETY: the features that the function enables are there, as just seen.
    unsafe { digests(jobs, places, out) }
}

/// Rounds by their numbers, with a function of `b`, `c` and `d` by its truth table, and a constant. They are written out, so
/// that the schedule stays in registers.
macro_rules! rounds {
    ($s:ident, $words:ident, $function:literal, $constant:literal: $($number:literal)*) => {$(
        if $number >= 16 {
            let mixed = _mm512_ternarylogic_epi32::<0x96>(
                $words[($number + 13) % 16],
                $words[($number + 8) % 16],
                $words[($number + 2) % 16],
            );
            let mixed = _mm512_xor_si512(mixed, $words[$number % 16]);
            $words[$number % 16] = _mm512_rol_epi32::<1>(mixed);
        }
        let [a, b, c, d, e] = $s;
        let f = _mm512_ternarylogic_epi32::<$function>(b, c, d);
        let constant = _mm512_set1_epi32(u32::cast_signed($constant));
        // What `a` adds comes last: it is there a round later than the others.
        let sum = _mm512_add_epi32(_mm512_add_epi32(e, constant), $words[$number % 16]);
        let sum = _mm512_add_epi32(_mm512_rol_epi32::<5>(a), _mm512_add_epi32(sum, f));
        $s = [sum, a, _mm512_rol_epi32::<30>(b), c, d];
    )*};
}

/// A message on its way.
#[derive(Clone, Copy)]
struct Lane<'m> {
    /// Whole blocks of the message.
    body: &'m Blocks,
    /// Blocks with those behind it: rest, padding and length.
    total: usize,
}

type Vectors = [__m512i; 5];

#[target_feature(enable = "avx512f,avx512bw")]
fn digests(jobs: &[Job<'_>], places: &[u8], out: &mut [[u8; 20]]) {
    let any = &jobs[usize::from(places[0])];
    let of = |lane: usize| places.get(lane).map_or(any, |at| &jobs[usize::from(*at)]);
    let mut last = [[_mm512_setzero_si512(); 2]; LANES];
    let mut lanes = [Lane { body: &[], total: 0 }; LANES];
    for ((lane, last), at) in lanes.iter_mut().zip(&mut last).zip(places) {
        let job = &jobs[usize::from(*at)];
        let (body, behind) = if job.tail.is_empty() {
            last_vectors(job.message, last)
        } else {
            let mut bytes = [[0; BLOCK]; 2];
            let found = last_blocks(job, &mut bytes);
            *last = bytes.each_ref().map(|block| load(block));
            found
        };
        *lane = Lane { body, total: body.len() + behind };
    }
    let is_one_key = places.iter().all(|at| std::ptr::eq(jobs[usize::from(*at)].key, any.key));
    let states = |state: fn(&Job<'_>) -> State| -> Vectors {
        let mut s = [_mm512_setzero_si512(); 5];
        for (word, vector) in s.iter_mut().enumerate() {
            *vector = match is_one_key {
                true => _mm512_set1_epi32(state(any)[word].cast_signed()),
                false => {
                    let column: [u32; LANES] = std::array::from_fn(|lane| state(of(lane))[word]);
                    // SAFETY: `column` is 64 initialised bytes; the load needs no alignment.
                    unsafe { _mm512_loadu_si512(column.as_ptr().cast::<__m512i>()) }
                }
            };
        }
        s
    };
    let (high, low) = (0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203); // the bytes of each word reversed
    let reverse = _mm512_set_epi64(high, low, high, low, high, low, high, low);
    let row = |block: __m512i| _mm512_shuffle_epi8(block, reverse);
    let mut s = states(|job| job.key.inner);
    let used = &lanes[..places.len()];
    let common = used.iter().map(|lane| lane.body.len()).min().unwrap_or(0);
    let most = used.iter().map(|lane| lane.total).max().unwrap_or(0);
    for at in 0..most {
        let mut rows = [_mm512_setzero_si512(); LANES];
        let mut mask = 0u16;
        if at < common {
            // Sixteen streams are more than a processor follows by itself.
            for lane in used {
                if let Some(block) = lane.body.get(at + AHEAD) {
                    interleave::prefetch_at(block.as_ptr());
                }
            }
            for (own, lane) in rows.iter_mut().zip(used) {
                *own = row(load(&lane.body[at]));
            }
            mask = u16::MAX;
        } else {
            for (number, (own, lane)) in rows.iter_mut().zip(used).enumerate() {
                let block = match at.checked_sub(lane.body.len()) {
                    None => load(&lane.body[at]),
                    Some(behind) => last[number][behind & 1],
                };
                *own = row(block);
                mask |= u16::from(at < lane.total) << number;
            }
        }
        let mut words = transposed(rows);
        add_block(&mut s, &mut words, mask);
    }
    let mut words = [_mm512_setzero_si512(); LANES];
    words[..5].copy_from_slice(&s);
    words[5] = _mm512_set1_epi32(i32::MIN); // one bit behind the digest
    words[15] = _mm512_set1_epi32(8 * (BLOCK as i32 + 20)); // the outer pad is a block
    let mut s = states(|job| job.key.outer);
    add_block(&mut s, &mut words, u16::MAX);
    let mut columns = [[0u32; LANES]; 5];
    for (column, vector) in columns.iter_mut().zip(s) {
        // SAFETY: `column` is 64 bytes of our own; the store needs no alignment.
        unsafe { _mm512_storeu_si512(column.as_mut_ptr().cast::<__m512i>(), vector) };
    }
    for (lane, at) in places.iter().enumerate() {
        let state = columns.each_ref().map(|column| column[lane]);
        out[usize::from(*at)] = super::bytes_of(&state);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(block: &[u8; BLOCK]) -> __m512i {
    // SAFETY: `block` is a reference to 64 initialised bytes, which are read and not kept; the load needs no alignment.
    unsafe { _mm512_loadu_si512(block.as_ptr().cast::<__m512i>()) }
}

/// What [`last_blocks`] does of a message without a tail: no byte of a block goes through memory.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn last_vectors<'m>(message: &'m [u8], last: &mut [__m512i; 2]) -> (&'m Blocks, usize) {
    let (body, rest) = message.as_chunks::<BLOCK>();
    let end = 1u64 << rest.len(); // less than a block
    // SAFETY: the mask has a bit for each byte of `rest`, and no other bytes are read.
    let loaded = unsafe { _mm512_maskz_loadu_epi8(end - 1, rest.as_ptr().cast::<i8>()) };
    let padded = _mm512_mask_blend_epi8(end, loaded, _mm512_set1_epi8(i8::MIN));
    let bits = 8 * (BLOCK + message.len()) as u64; // the inner pad is a block
    let length = _mm512_maskz_set1_epi64(0x80, bits.swap_bytes().cast_signed());
    if rest.len() + 1 + 8 <= BLOCK {
        last[0] = _mm512_or_si512(padded, length);
        return (body, 1);
    }
    *last = [padded, length];
    (body, 2)
}

/// Brings the states of the lanes in `mask` over a block of each.
#[target_feature(enable = "avx512f,avx512bw")]
fn add_block(states: &mut Vectors, words: &mut [__m512i; LANES], mask: u16) {
    let mut s = *states;
    // b chooses c or d
    rounds!(s, words, 0xca, 0x5a82_7999: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19);
    // their parity
    rounds!(s, words, 0x96, 0x6ed9_eba1: 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39);
    // what most of them are
    rounds!(s, words, 0xe8, 0x8f1b_bcdc: 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59);
    rounds!(s, words, 0x96, 0xca62_c1d6: 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79);
    for (state, vector) in states.iter_mut().zip(s) {
        *state = _mm512_mask_add_epi32(*state, mask, *state, vector);
    }
}

/// Word `w` of row `r` becomes word `r` of row `w`.
#[target_feature(enable = "avx512f,avx512bw")]
fn transposed(rows: [__m512i; LANES]) -> [__m512i; LANES] {
    // In each fourth of a vector: words of four rows side by side.
    let mut fours = rows;
    for at in (0..LANES).step_by(4) {
        let [a, b, c, d] = [rows[at], rows[at + 1], rows[at + 2], rows[at + 3]];
        let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
        fours[at] = _mm512_unpacklo_epi64(ab, cd);
        fours[at + 1] = _mm512_unpackhi_epi64(ab, cd);
        let (ab, cd) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
        fours[at + 2] = _mm512_unpacklo_epi64(ab, cd);
        fours[at + 3] = _mm512_unpackhi_epi64(ab, cd);
    }
    // The fourths of four vectors, of which each has the same four words.
    let mut words = fours;
    for at in 0..4 {
        let [a, b, c, d] = [fours[at], fours[at + 4], fours[at + 8], fours[at + 12]];
        // 0x88 takes the first and third fourth of both, 0xdd the second and last.
        let ab = _mm512_shuffle_i32x4::<0x88>(a, b);
        let cd = _mm512_shuffle_i32x4::<0x88>(c, d);
        words[at] = _mm512_shuffle_i32x4::<0x88>(ab, cd);
        words[at + 8] = _mm512_shuffle_i32x4::<0xdd>(ab, cd);
        let ab = _mm512_shuffle_i32x4::<0xdd>(a, b);
        let cd = _mm512_shuffle_i32x4::<0xdd>(c, d);
        words[at + 4] = _mm512_shuffle_i32x4::<0x88>(ab, cd);
        words[at + 12] = _mm512_shuffle_i32x4::<0xdd>(ab, cd);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::{HmacSha1, run_plain};
    use super::*;

    /// Every number of lanes, and messages that end anywhere; those of one length and one key, too.
    #[test]
    fn sixteen_messages_are_sixteen_times_one() {
        if !is_available() {
            println!("skipped: the CPU has no AVX-512");
            return;
        }
        let bytes: Vec<u8> = (0..4000u32).map(|at| (at * 31 + at / 7) as u8).collect();
        let keys: Vec<_> = (0..LANES).map(|at| HmacSha1::new(&bytes[at..at * 5])).collect();
        for count in 1..=LANES {
            for step in [0, 1, 7, 63, 200] {
                for base in [0, 54, 55, 56, 60, 63, 64, 119, 120, 300] {
                    let jobs: Vec<_> = (0..count)
                        .map(|at| {
                            let key = &keys[if step == 1 { 3 } else { at }];
                            key.job(&bytes[at..at + base + at * step], &bytes[..at % 2 * 4])
                        })
                        .collect();
                    let (mut found, mut expected) = ([[0; 20]; LANES], [[0; 20]; LANES]);
                    run_plain(&jobs, &mut expected);
                    let places: Vec<u8> = (0..count as u8).rev().collect();
                    macs(&jobs, &places, &mut found);
                    assert_eq!(found, expected, "{count} of {base} and {step}");
                }
            }
        }
    }
}
