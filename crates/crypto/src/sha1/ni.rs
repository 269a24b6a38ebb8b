//! Three streams of SHA-1 by the SHA instructions of x86.
//!
//! Four rounds are one `sha1rnds4`. Its operands are `abcd` (a in the highest lane) and the sum of `e` and four words of
//! the message schedule; `sha1nexte` makes that sum from the `abcd` of four rounds before, of which the next `e` is a
//! rotation. Words 16 to 79 of the schedule come from the last sixteen by `sha1msg1`, an exclusive or, and `sha1msg2`
//! (Intel, "Intel SHA Extensions", 2013). Each step is done for all streams before the next one, so that their latencies
//! overlap.
//!
//! The unsafe code is a call of a function that needs CPU features, and loads of 16 bytes.

use std::arch::x86_64::{
    __m128i, _mm_add_epi32, _mm_extract_epi32, _mm_loadu_si128, _mm_set_epi32, _mm_set_epi64x,
    _mm_sha1msg1_epu32, _mm_sha1msg2_epu32, _mm_sha1nexte_epu32, _mm_sha1rnds4_epu32,
    _mm_shuffle_epi8, _mm_xor_si128,
};

use super::{Blocks, State};

/// Streams at once.
pub(super) const LANES: usize = 3;

/// Whether the CPU has what [`compress3`] uses.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("sha")
        && is_x86_feature_detected!("ssse3")
        && is_x86_feature_detected!("sse4.1")
}

/// Brings each state over its blocks, of which there are as many in each stream.
///
/// # Panics
///
/// The CPU lacks the instructions.
pub(super) fn compress3(states: &mut [State; LANES], blocks: [&Blocks; LANES]) {
    assert!(is_available());
    // SAFETY: the features that the function enables are there, as just seen.
    unsafe { streams(states, blocks) }
}

/// Four rounds of all streams: `$number` counts them from 0, `$quarter` is a fourth of the rounds, each with a function of
/// its own, which the instruction has as a constant.
macro_rules! rounds {
    ($abcd:ident, $e:ident, $words:ident, $quarter:literal: $($number:literal)*) => {$(
        for lane in 0..LANES {
            let w = &mut $words[lane];
            if $number >= 4 {
                let mixed = _mm_sha1msg1_epu32(w[$number % 4], w[($number + 1) % 4]);
                let mixed = _mm_xor_si128(mixed, w[($number + 2) % 4]);
                w[$number % 4] = _mm_sha1msg2_epu32(mixed, w[($number + 3) % 4]);
            }
            let sum = match $number {
                0 => _mm_add_epi32($e[lane], w[0]),
                _ => _mm_sha1nexte_epu32($e[lane], w[$number % 4]),
            };
            $e[lane] = $abcd[lane];
            $abcd[lane] = _mm_sha1rnds4_epu32::<$quarter>($abcd[lane], sum);
        }
    )*};
}

#[target_feature(enable = "sha,ssse3,sse4.1")]
fn streams(states: &mut [State; LANES], blocks: [&Blocks; LANES]) {
    let reverse = _mm_set_epi64x(0x0001_0203_0405_0607, 0x0809_0a0b_0c0d_0e0f);
    let mut abcd = states.each_ref().map(|s| {
        _mm_set_epi32(
            s[0].cast_signed(),
            s[1].cast_signed(),
            s[2].cast_signed(),
            s[3].cast_signed(),
        )
    });
    let mut e = states.each_ref().map(|s| _mm_set_epi32(s[4].cast_signed(), 0, 0, 0));
    for ((first, second), third) in blocks[0].iter().zip(blocks[1]).zip(blocks[2]) {
        let block = [first, second, third];
        let (abcd_before, e_before) = (abcd, e);
        let mut words = [[_mm_set_epi64x(0, 0); 4]; LANES];
        for lane in 0..LANES {
            let (quarters, _) = block[lane].as_chunks::<16>();
            for (word, quarter) in words[lane].iter_mut().zip(quarters) {
                // SAFETY: `quarter` is a reference to 16 initialised bytes, which are read and not kept; the load needs
                // no alignment.
                let loaded = unsafe { _mm_loadu_si128(quarter.as_ptr().cast::<__m128i>()) };
                *word = _mm_shuffle_epi8(loaded, reverse);
            }
        }
        rounds!(abcd, e, words, 0: 0 1 2 3 4);
        rounds!(abcd, e, words, 1: 5 6 7 8 9);
        rounds!(abcd, e, words, 2: 10 11 12 13 14);
        rounds!(abcd, e, words, 3: 15 16 17 18 19);
        for lane in 0..LANES {
            e[lane] = _mm_sha1nexte_epu32(e[lane], e_before[lane]);
            abcd[lane] = _mm_add_epi32(abcd[lane], abcd_before[lane]);
        }
    }
    for (lane, state) in states.iter_mut().enumerate() {
        let abcd = abcd[lane];
        *state = [
            _mm_extract_epi32::<3>(abcd).cast_unsigned(),
            _mm_extract_epi32::<2>(abcd).cast_unsigned(),
            _mm_extract_epi32::<1>(abcd).cast_unsigned(),
            _mm_extract_epi32::<0>(abcd).cast_unsigned(),
            _mm_extract_epi32::<3>(e[lane]).cast_unsigned(),
        ];
    }
}

#[cfg(test)]
mod tests {
    use sha1::block_api::compress;

    use super::*;

    #[test]
    fn three_streams_are_three_times_one() {
        if !is_available() {
            println!("skipped: the CPU has no SHA instructions");
            return;
        }
        let blocks: Vec<[u8; 64]> =
            (0..30u32).map(|n| std::array::from_fn(|at| (n * 67 + at as u32 * 13) as u8)).collect();
        for n in 0..10 {
            let mut states = [super::super::INITIAL, [1, 2, 3, 4, u32::MAX], [u32::MAX; 5]];
            let mut expected = states;
            let parts = [&blocks[..n], &blocks[10..10 + n], &blocks[20..20 + n]];
            compress3(&mut states, parts);
            for (state, part) in expected.iter_mut().zip(parts) {
                compress(state, part);
            }
            assert_eq!(states, expected, "{n} blocks");
        }
    }
}
