//! Sixteen streams of SHA-1 in the 32-bit lanes of AVX-512.
//!
//! Lane n of every vector belongs to stream n. The sixteen words of a block are transposed, so that vector w has word w of
//! all streams; then the rounds of FIPS 180-4 §6.1 are written as for one stream. Rotations and the three-operand functions
//! are one instruction each.
//!
//! The unsafe code is a call of a function that needs CPU features, and loads and stores of 64 bytes.

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_loadu_si512, _mm512_rol_epi32, _mm512_set_epi64,
    _mm512_set1_epi32, _mm512_setzero_si512, _mm512_shuffle_epi8, _mm512_shuffle_i32x4,
    _mm512_storeu_si512, _mm512_ternarylogic_epi32, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64,
    _mm512_unpacklo_epi32, _mm512_unpacklo_epi64, _mm512_xor_si512,
};

use super::{Blocks, State};

/// Streams at once.
pub(super) const LANES: usize = 16;

/// Whether the CPU has what [`compress16`] uses.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

/// Brings each state over its blocks, of which there are as many in each stream.
///
/// # Panics
///
/// The CPU lacks the instructions, or a stream has fewer blocks than the first.
pub(super) fn compress16(states: &mut [State; LANES], blocks: [&Blocks; LANES]) {
    assert!(is_available());
    // SAFETY: the features that the function enables are there, as just seen.
    unsafe { streams(states, blocks) }
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
        let sum = _mm512_add_epi32(_mm512_add_epi32(e, constant), $words[$number % 16]);
        let sum = _mm512_add_epi32(sum, _mm512_add_epi32(f, _mm512_rol_epi32::<5>(a)));
        $s = [sum, a, _mm512_rol_epi32::<30>(b), c, d];
    )*};
}

#[target_feature(enable = "avx512f,avx512bw")]
fn streams(states: &mut [State; LANES], blocks: [&Blocks; LANES]) {
    let mut s = [_mm512_setzero_si512(); 5];
    for (word, vector) in s.iter_mut().enumerate() {
        let column: [u32; LANES] = std::array::from_fn(|lane| states[lane][word]);
        // SAFETY: `column` is 64 initialised bytes; the load needs no alignment.
        *vector = unsafe { _mm512_loadu_si512(column.as_ptr().cast::<__m512i>()) };
    }
    let (high, low) = (0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203); // the bytes of each word reversed
    let reverse = _mm512_set_epi64(high, low, high, low, high, low, high, low);
    for at in 0..blocks[0].len() {
        let mut rows = [_mm512_setzero_si512(); LANES];
        for (row, blocks) in rows.iter_mut().zip(blocks) {
            let block: &[u8; 64] = &blocks[at];
            // SAFETY: `block` is a reference to 64 initialised bytes, which are read and not kept; the load needs no
            // alignment.
            let loaded = unsafe { _mm512_loadu_si512(block.as_ptr().cast::<__m512i>()) };
            *row = _mm512_shuffle_epi8(loaded, reverse);
        }
        let mut words = transposed(rows);
        let before = s;
        // b chooses c or d
        rounds!(s, words, 0xca, 0x5a82_7999: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19);
        // their parity
        rounds!(s, words, 0x96, 0x6ed9_eba1: 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39);
        // what most of them are
        rounds!(s, words, 0xe8, 0x8f1b_bcdc: 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59);
        rounds!(s, words, 0x96, 0xca62_c1d6: 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79);
        for (vector, before) in s.iter_mut().zip(before) {
            *vector = _mm512_add_epi32(*vector, before);
        }
    }
    for (word, vector) in s.into_iter().enumerate() {
        let mut column = [0u32; LANES];
        // SAFETY: `column` is 64 bytes of our own; the store needs no alignment.
        unsafe { _mm512_storeu_si512(column.as_mut_ptr().cast::<__m512i>(), vector) };
        for (state, value) in states.iter_mut().zip(column) {
            state[word] = value;
        }
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
    use sha1::block_api::compress;

    use super::*;

    #[test]
    fn sixteen_streams_are_sixteen_times_one() {
        if !is_available() {
            println!("skipped: the CPU has no AVX-512");
            return;
        }
        let block = |n: usize| std::array::from_fn(|at| (n * 67 + at * 13) as u8);
        let blocks: Vec<[u8; 64]> = (0..64).map(block).collect();
        for n in 0..4 {
            let mut states: [State; LANES] = std::array::from_fn(|lane| {
                std::array::from_fn(|w| ((lane * 77 + w) as u32).wrapping_mul(0x0101_4321))
            });
            let mut expected = states;
            let parts: [&Blocks; LANES] =
                std::array::from_fn(|lane| &blocks[lane * 4..lane * 4 + n]);
            compress16(&mut states, parts);
            for (state, part) in expected.iter_mut().zip(parts) {
                compress(state, part);
            }
            assert_eq!(states, expected, "{n} blocks");
        }
    }
}
