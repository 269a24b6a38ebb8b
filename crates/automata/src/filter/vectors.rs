//! Both stages in vectors, and the choice among them. The unsafe code of the crate is here.

use super::grams::Grams;
use super::{Filter, Level};
use crate::interleaved::Segment;

/// Adds the places of all segments to the masks.
pub(super) fn find(level: Level, filter: &Filter, segments: &[Segment<'_>], masks: &mut Vec<u64>) {
    match level {
        Level::Portable => {
            for segment in segments {
                // The halves of a byte are no quicker than words one by one.
                filter.fill(segment.bytes, masks, |_, _| u64::MAX, Grams::block);
            }
            filter.test(segments, masks);
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Automaton::set_level` and `Level::best`, the only ways to a level, admit those whose features
        // `Level::is_available` has detected, and it detects all that `find_avx2` enables.
        Level::Avx2 => unsafe { x86::find_avx2(filter, segments, masks) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above, with all that `find_avx512` enables.
        Level::Avx512 => unsafe { x86::find_avx512(filter, segments, masks) },
        #[cfg(not(target_arch = "x86_64"))]
        _ => find(Level::Portable, filter, segments, masks),
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use crate::filter::buckets::Buckets;
    use crate::filter::grams::{CASES, FACTOR, Grams};
    use crate::filter::{BLOCK, Ends, Filter, PLACES, WINDOW, low_bits};
    use crate::interleaved::Segment;

    const HALF: usize = PLACES / 2;

    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    pub(super) fn find_avx2(filter: &Filter, segments: &[Segment<'_>], masks: &mut Vec<u64>) {
        for segment in segments {
            filter.fill(
                segment.bytes,
                masks,
                |buckets, text| buckets_avx2(buckets, text),
                |grams, text| grams_avx2(grams, text),
            );
        }
        filter.test(segments, masks);
    }

    /// Segments are read as they are, the last block with masked loads.
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,avx512f,avx512bw")]
    pub(super) fn find_avx512(filter: &Filter, segments: &[Segment<'_>], masks: &mut Vec<u64>) {
        for segment in segments {
            let mut left = segment.bytes;
            while !left.is_empty() {
                let Ends { known, unknown } = Ends::new(left.len());
                let text = load_avx512(left);
                let places = buckets_avx512(&filter.buckets, text) & known;
                let places = filter.refine(places, |grams| grams_avx512(grams, text));
                masks.push(places | unknown);
                left = &left[left.len().min(PLACES)..];
            }
        }
        filter.test(segments, masks);
    }

    /// [`Buckets::block`], 32 bytes at a time.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn buckets_avx2(buckets: &Buckets, text: &[u8; BLOCK]) -> u64 {
        let nibble = _mm256_set1_epi8(15);
        let mut passed = [_mm256_set1_epi8(-1); 2];
        for place in 0..WINDOW {
            let low = table_avx2(&buckets.low[place]);
            let high = table_avx2(&buckets.high[place]);
            for (half, passed) in passed.iter_mut().enumerate() {
                // SAFETY: it reads 32 bytes from `place + 32 half`, which is at most 3 + 32, so up to byte 67 of
                // the 67 of `text`; the load needs no alignment.
                let bytes =
                    unsafe { _mm256_loadu_si256(text.as_ptr().add(place + HALF * half).cast()) };
                let low = _mm256_shuffle_epi8(low, _mm256_and_si256(bytes, nibble));
                let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), nibble);
                let both = _mm256_and_si256(low, _mm256_shuffle_epi8(high, upper));
                *passed = _mm256_and_si256(*passed, both);
            }
        }
        let [first, second] = passed.map(|passed| {
            let none = _mm256_cmpeq_epi8(passed, _mm256_setzero_si256());
            u64::from(!_mm256_movemask_epi8(none).cast_unsigned())
        });
        first | second << HALF
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn table_avx2(table: &[u8; 16]) -> __m256i {
        // SAFETY: it reads the 16 bytes of `table`; the load needs no alignment.
        _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
    }

    /// [`Grams::block`], eight places at a time. Words are loaded one by one: AMD's processors take about three times as
    /// long for a gather.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn grams_avx2(grams: &Grams, text: &[u8; BLOCK]) -> u64 {
        let cases = _mm_set1_epi32(CASES.cast_signed());
        let factor = _mm_set1_epi32(FACTOR.cast_signed());
        let shift = _mm_cvtsi32_si128(grams.shift.cast_signed());
        let identity = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        // What the even places have in common with their neighbours.
        let common = _mm_setr_epi8(1, 2, 3, -1, 3, 4, 5, -1, 5, 6, 7, -1, 7, 8, 9, -1);
        // The byte that chooses the bit: the first of an even place, the fourth of an odd one.
        let other = _mm_setr_epi8(0, 4, 2, 6, 4, 8, 6, 10, -1, -1, -1, -1, -1, -1, -1, -1);
        let mut places = 0;
        for first in (0..PLACES).step_by(8) {
            // Eleven bytes from `first` are needed; the last group has so many before the end of `text`.
            let from = first.min(BLOCK - 16);
            // SAFETY: it reads 16 bytes from at most `BLOCK - 16`, so within `text`; the load needs no alignment.
            let bytes = unsafe { _mm_loadu_si128(text.as_ptr().add(from).cast()) };
            let skipped = _mm_set1_epi8((first - from) as i8);
            let bytes = _mm_shuffle_epi8(bytes, _mm_add_epi8(identity, skipped));
            let windows = _mm_or_si128(_mm_shuffle_epi8(bytes, common), cases);
            let index = _mm_srl_epi32(_mm_mullo_epi32(windows, factor), shift);
            let word = |index: i32| grams.at(index.cast_unsigned()).cast_signed();
            let words = _mm256_set_epi64x(
                word(_mm_extract_epi32::<3>(index)),
                word(_mm_extract_epi32::<2>(index)),
                word(_mm_extract_epi32::<1>(index)),
                word(_mm_extract_epi32::<0>(index)),
            );
            // The bit moves to the sign.
            let bits = _mm256_cvtepu8_epi32(_mm_shuffle_epi8(bytes, other));
            let left = _mm256_andnot_si256(bits, _mm256_set1_epi32(31));
            let signs = _mm256_castsi256_ps(_mm256_sllv_epi32(words, left));
            places |= u64::from(_mm256_movemask_ps(signs).cast_unsigned()) << first;
        }
        let (Some(short), Some(zero), Some(one)) =
            (&grams.short, text.first_chunk(), text[1..].first_chunk())
        else {
            return places;
        };
        places | short_bmi2(short, zero, one)
    }

    /// Places of short patterns. Without AVX, so that the compiler makes no gathers of it.
    #[inline(never)]
    #[target_feature(enable = "bmi1,bmi2,popcnt")]
    fn short_bmi2(short: &[u32; 256], first: &[u8; PLACES], second: &[u8; PLACES]) -> u64 {
        let mut places = 0;
        for at in 0..PLACES {
            places |= u64::from(short[usize::from(first[at])] >> (second[at] & 31) & 1) << at;
        }
        places
    }

    /// 64 bytes from each of the first four places; zeros behind the end.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn load_avx512(bytes: &[u8]) -> [__m512i; WINDOW] {
        let mut text = [_mm512_setzero_si512(); WINDOW];
        for (place, text) in text.iter_mut().enumerate() {
            let mask = low_bits(bytes.len().saturating_sub(place));
            // SAFETY: it reads byte `i` from `place` on only where bit `i` of the mask is set, so where
            // `place + i < bytes.len()`; the others are not read and raise no fault (Intel SDM volume 2, VMOVDQU8). The
            // load needs no alignment, and the address is computed without a claim that it is in bounds.
            *text =
                unsafe { _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().wrapping_add(place).cast()) };
        }
        text
    }

    /// [`Buckets::block`], all places at once.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn buckets_avx512(buckets: &Buckets, text: [__m512i; WINDOW]) -> u64 {
        let nibble = _mm512_set1_epi8(15);
        let mut passed = _mm512_set1_epi8(-1);
        for (place, bytes) in text.into_iter().enumerate() {
            // SAFETY: each reads the 16 bytes of a table; the loads need no alignment.
            let (low, high) = unsafe {
                (
                    _mm_loadu_si128(buckets.low[place].as_ptr().cast()),
                    _mm_loadu_si128(buckets.high[place].as_ptr().cast()),
                )
            };
            let lower = _mm512_and_si512(bytes, nibble);
            let low = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(low), lower);
            let upper = _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), nibble);
            let high = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(high), upper);
            passed = _mm512_and_si512(passed, _mm512_and_si512(low, high));
        }
        _mm512_test_epi8_mask(passed, passed)
    }

    /// [`Grams::block`], sixteen places at a time; see [`grams_avx2`].
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,avx512f,avx512bw")]
    fn grams_avx512(grams: &Grams, text: [__m512i; WINDOW]) -> u64 {
        let three = _mm512_set1_epi32(0xff_ffff);
        let cases = _mm512_set1_epi32(CASES.cast_signed());
        let factor = _mm512_set1_epi32(FACTOR.cast_signed());
        let shift = _mm_cvtsi32_si128(grams.shift.cast_signed());
        // What every fourth place from 0, and from 2, has in common with its neighbour.
        let [from_0, from_2] = [text[1], text[3]].map(|windows| {
            let windows = _mm512_or_si512(_mm512_and_si512(windows, three), cases);
            store_avx512(_mm512_srl_epi32(_mm512_mullo_epi32(windows, factor), shift))
        });
        let odd = 0xaaaa_aaaa_aaaa_aaaa;
        let bits = _mm512_mask_mov_epi8(text[0], odd, text[3]);
        let bits = _mm512_and_si512(bits, _mm512_set1_epi8(31));
        let group = |first: usize, bits: __m128i| {
            let word = |index: u32| grams.at(index).cast_signed();
            let words = _mm512_set_epi64(
                word(from_2[first + 3]),
                word(from_0[first + 3]),
                word(from_2[first + 2]),
                word(from_0[first + 2]),
                word(from_2[first + 1]),
                word(from_0[first + 1]),
                word(from_2[first]),
                word(from_0[first]),
            );
            let words = _mm512_srlv_epi32(words, _mm512_cvtepu8_epi32(bits));
            u64::from(_mm512_test_epi32_mask(words, _mm512_set1_epi32(1))) << (4 * first)
        };
        let places = group(0, _mm512_extracti32x4_epi32::<0>(bits))
            | group(4, _mm512_extracti32x4_epi32::<1>(bits))
            | group(8, _mm512_extracti32x4_epi32::<2>(bits))
            | group(12, _mm512_extracti32x4_epi32::<3>(bits));
        let Some(short) = &grams.short else { return places };
        let [first, second] = [text[0], text[1]].map(|bytes| {
            let mut stored = [0; PLACES];
            // SAFETY: 64 bytes; the store needs no alignment.
            unsafe { _mm512_storeu_si512(stored.as_mut_ptr().cast(), bytes) };
            stored
        });
        places | short_bmi2(short, &first, &second)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store_avx512(vector: __m512i) -> [u32; 16] {
        let mut words = [0; 16];
        // SAFETY: 16 u32 are 64 bytes; the store needs no alignment.
        unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), vector) };
        words
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::Pattern;
        use crate::filter::Level;

        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
        fn places_avx2(buckets: &Buckets, grams: &Grams, text: &[u8; BLOCK]) -> (u64, u64) {
            (buckets_avx2(buckets, text), grams_avx2(grams, text))
        }

        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,avx512f,avx512bw")]
        fn places_avx512(buckets: &Buckets, grams: &Grams, text: &[u8; BLOCK]) -> (u64, u64) {
            let text = load_avx512(text);
            (buckets_avx512(buckets, text), grams_avx512(grams, text))
        }

        /// Each form of both stages, bit for bit, over blocks of all kinds of bytes.
        #[test]
        fn vectors_are_the_portable_stages() {
            let mut seed = 1_u64;
            let mut random = move || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 40) as u8
            };
            for count in [1, 3, 9, 40] {
                let patterns: Vec<Pattern> = (0..count)
                    .map(|at| {
                        let bytes: Vec<u8> = (0..1 + at % 6).map(|_| random()).collect();
                        let pattern = Pattern::new(&bytes);
                        if at % 3 == 0 { pattern.nocase() } else { pattern }
                    })
                    .collect();
                let all = patterns.iter().collect::<Vec<_>>();
                let (buckets, grams) = (Buckets::new(&all), Grams::new(&all));
                let mut passed = 0;
                for round in 0..200 {
                    let text: [u8; BLOCK] = std::array::from_fn(|at| match round % 2 {
                        0 => random(),
                        _ => {
                            let bytes = patterns[at / 6 % patterns.len()].bytes();
                            bytes.get(at % 6).copied().unwrap_or_else(&mut random)
                        }
                    });
                    let expected = (buckets.block(&text), grams.block(&text));
                    passed += expected.0.count_ones();
                    if Level::Avx2.is_available() {
                        // SAFETY: detected.
                        assert_eq!(unsafe { places_avx2(&buckets, &grams, &text) }, expected);
                    }
                    if Level::Avx512.is_available() {
                        // SAFETY: detected.
                        assert_eq!(unsafe { places_avx512(&buckets, &grams, &text) }, expected);
                    }
                    for (at, window) in text.windows(WINDOW).enumerate() {
                        // Both words pass where a pattern begins, so either passes where both do.
                        let by_both = grams.test(window.try_into().expect("its length"));
                        assert!(by_both <= expected.1 >> at & 1);
                    }
                }
                assert!(passed > 100, "{passed} places of {count} patterns");
            }
        }
    }
}
