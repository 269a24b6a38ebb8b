//! The tests of sixteen rules at once: portable, AVX2 and AVX-512.
//!
//! Each is `#[inline(always)]`, so that it becomes code of the function that it is used in, which is compiled
//! for the processor (as memchr's `Vector` is).

use super::layout::Column;

/// Tests of sixteen rules. Bit `i` of a result is rule `i`'s.
pub(super) trait Lanes {
    /// `(x & mask) == value`.
    ///
    /// # Safety
    /// The processor has what the implementation names; so for all.
    unsafe fn masked(x: u32, value: &Column, mask: &Column) -> u32;

    /// `x - low <= length` of both halves, without sign.
    ///
    /// # Safety
    /// As [`Lanes::masked`].
    unsafe fn halves(x: u32, low: &Column, length: &Column) -> u32;

    /// `x - low <= length`, without sign.
    ///
    /// # Safety
    /// As [`Lanes::masked`].
    unsafe fn wide(x: u32, low: &Column, length: &Column) -> u32;
}

/// Any processor.
#[derive(Debug)]
pub(super) struct Portable;

#[inline(always)]
fn each(a: &Column, b: &Column, test: impl Fn(u32, u32) -> bool) -> u32 {
    let lanes = a.iter().zip(b).enumerate();
    lanes.fold(0, |hits, (lane, (a, b))| hits | u32::from(test(*a, *b)) << lane)
}

impl Lanes for Portable {
    /// # Safety
    /// None is needed.
    #[inline(always)]
    unsafe fn masked(x: u32, value: &Column, mask: &Column) -> u32 {
        each(value, mask, |value, mask| x & mask == value)
    }

    /// # Safety
    /// None is needed.
    #[inline(always)]
    unsafe fn halves(x: u32, low: &Column, length: &Column) -> u32 {
        each(low, length, |low, length| {
            let upper = (x >> 16).wrapping_sub(low >> 16) & 0xffff;
            let lower = x.wrapping_sub(low) & 0xffff;
            upper <= length >> 16 && lower <= length & 0xffff
        })
    }

    /// # Safety
    /// None is needed.
    #[inline(always)]
    unsafe fn wide(x: u32, low: &Column, length: &Column) -> u32 {
        each(low, length, |low, length| x.wrapping_sub(low) <= length)
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    use std::arch::x86_64::*;

    use super::{Column, Lanes};

    /// AVX2.
    #[derive(Debug)]
    pub(in super::super) struct Avx2;

    /// Eight lanes twice: `test` of both halves of the columns, the sign bits of its lanes.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn twice(a: &Column, b: &Column, test: impl Fn(__m256i, __m256i) -> __m256i) -> u32 {
        // SAFETY: AVX2 is the caller's promise; a column is 64 bytes, so both loads of 32 bytes are inside,
        // and they need no alignment.
        unsafe {
            let (a, b): (*const __m256i, *const __m256i) = (a.as_ptr().cast(), b.as_ptr().cast());
            let lower = test(_mm256_loadu_si256(a), _mm256_loadu_si256(b));
            let upper = test(_mm256_loadu_si256(a.add(1)), _mm256_loadu_si256(b.add(1)));
            let bits = |lanes| _mm256_movemask_ps(_mm256_castsi256_ps(lanes)) as u32;
            bits(lower) | bits(upper) << 8
        }
    }

    impl Lanes for Avx2 {
        /// # Safety
        /// The processor has AVX2.
        #[inline(always)]
        unsafe fn masked(x: u32, value: &Column, mask: &Column) -> u32 {
            // SAFETY: AVX2 is the caller's promise.
            unsafe {
                let x = _mm256_set1_epi32(x.cast_signed());
                twice(value, mask, |value, mask| {
                    _mm256_cmpeq_epi32(_mm256_and_si256(x, mask), value)
                })
            }
        }

        /// # Safety
        /// The processor has AVX2.
        #[inline(always)]
        unsafe fn halves(x: u32, low: &Column, length: &Column) -> u32 {
            // SAFETY: AVX2 is the caller's promise.
            unsafe {
                let x = _mm256_set1_epi32(x.cast_signed());
                twice(low, length, |low, length| {
                    let over = _mm256_sub_epi16(x, low);
                    _mm256_cmpeq_epi32(_mm256_min_epu16(over, length), over)
                })
            }
        }

        /// # Safety
        /// The processor has AVX2.
        #[inline(always)]
        unsafe fn wide(x: u32, low: &Column, length: &Column) -> u32 {
            // SAFETY: AVX2 is the caller's promise.
            unsafe {
                let x = _mm256_set1_epi32(x.cast_signed());
                twice(low, length, |low, length| {
                    let over = _mm256_sub_epi32(x, low);
                    _mm256_cmpeq_epi32(_mm256_min_epu32(over, length), over)
                })
            }
        }
    }

    /// AVX-512 F and BW.
    #[derive(Debug)]
    pub(in super::super) struct Avx512;

    #[inline(always)]
    fn load(column: &Column) -> __m512i {
        // SAFETY: a column is 64 bytes and plain numbers, as the vector is.
        unsafe { std::mem::transmute::<Column, __m512i>(*column) }
    }

    impl Lanes for Avx512 {
        /// # Safety
        /// The processor has AVX-512 F.
        #[inline(always)]
        unsafe fn masked(x: u32, value: &Column, mask: &Column) -> u32 {
            // SAFETY: AVX-512 F is the caller's promise.
            unsafe {
                let x = _mm512_set1_epi32(x.cast_signed());
                _mm512_cmpeq_epi32_mask(_mm512_and_si512(x, load(mask)), load(value)).into()
            }
        }

        /// # Safety
        /// The processor has AVX-512 F and BW.
        #[inline(always)]
        unsafe fn halves(x: u32, low: &Column, length: &Column) -> u32 {
            // SAFETY: AVX-512 F and BW are the caller's promise.
            unsafe {
                let over = _mm512_sub_epi16(_mm512_set1_epi32(x.cast_signed()), load(low));
                _mm512_cmpeq_epi32_mask(_mm512_min_epu16(over, load(length)), over).into()
            }
        }

        /// # Safety
        /// The processor has AVX-512 F.
        #[inline(always)]
        unsafe fn wide(x: u32, low: &Column, length: &Column) -> u32 {
            // SAFETY: AVX-512 F is the caller's promise.
            unsafe {
                let over = _mm512_sub_epi32(_mm512_set1_epi32(x.cast_signed()), load(low));
                _mm512_cmple_epu32_mask(over, load(length)).into()
            }
        }
    }
}
