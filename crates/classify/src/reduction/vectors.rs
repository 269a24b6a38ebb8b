//! Sixteen entries of a table at once, with AVX-512.

use std::arch::x86_64::*;

use super::frame::{ADDRESSES, DST, DST_HIGH, DST_LOW, Frame, SRC, SRC_HIGH, SRC_LOW, STRIPS};
use super::strips::STRIP;
use super::table::Table;

/// Headers of a vector.
pub(crate) const LANES: usize = 16;

/// Entries of sixteen numbers; those outside the image are any words of it.
///
/// # Safety
/// The processor has AVX-512 F. The image has at least one word, and at most 2^31 of them.
#[inline(always)]
pub(crate) unsafe fn get16(image: &[u32], table: &Table, at: __m512i) -> __m512i {
    // SAFETY: AVX-512 F is the caller's promise; `words16` promises the same.
    unsafe {
        let width = table.width;
        let down = _mm_cvtsi32_si128((2 - width).cast_signed());
        let offset = _mm512_set1_epi32(table.offset.cast_signed());
        let words = words16(image, _mm512_add_epi32(_mm512_srl_epi32(at, down), offset));
        let bits = _mm_cvtsi32_si128((3 + width).cast_signed());
        let shift = _mm512_and_si512(_mm512_sll_epi32(at, bits), _mm512_set1_epi32(31));
        let mask = u32::MAX >> (32 - (8 << width));
        _mm512_and_si512(_mm512_srlv_epi32(words, shift), _mm512_set1_epi32(mask.cast_signed()))
    }
}

/// Numbers of entries of sixteen rows and columns.
///
/// # Safety
/// The processor has AVX-512 F.
#[inline(always)]
pub(crate) unsafe fn at16(table: &Table, row: __m512i, column: __m512i) -> __m512i {
    // SAFETY: AVX-512 F is the caller's promise.
    unsafe {
        let columns = _mm512_set1_epi32(table.columns.cast_signed());
        _mm512_add_epi32(_mm512_mullo_epi32(row, columns), column)
    }
}

/// Words of sixteen offsets; beyond the end the last one.
///
/// # Safety
/// As [`get16`].
#[inline(always)]
pub(crate) unsafe fn words16(image: &[u32], at: __m512i) -> __m512i {
    // SAFETY: AVX-512 F is the caller's promise; the indices of the gather are below the image's length, which
    // as the caller promises is one to 2^31, so that none is negative.
    unsafe {
        let last = _mm512_set1_epi32(((image.len() - 1) as u32).cast_signed());
        let at = _mm512_min_epu32(at, last);
        _mm512_i32gather_epi32::<4>(at, image.as_ptr().cast())
    }
}

/// # Safety
/// The processor has AVX-512 F.
#[inline(always)]
pub(crate) unsafe fn load(column: &[u32; LANES]) -> __m512i {
    // SAFETY: AVX-512 F is the caller's promise, and a column is 64 bytes.
    unsafe { _mm512_loadu_si512(column.as_ptr().cast()) }
}

/// # Safety
/// The processor has AVX-512 F.
#[inline(always)]
pub(crate) unsafe fn store(column: &mut [u32; LANES], value: __m512i) {
    // SAFETY: AVX-512 F is the caller's promise, and a column is 64 bytes.
    unsafe { _mm512_storeu_si512(column.as_mut_ptr().cast(), value) }
}

/// The words of up to sixteen headers, each word of all of them: `words[w][lane]`. Lanes beyond are zero.
#[inline(always)]
pub(crate) fn columns(headers: &[[u32; 4]]) -> [[u32; LANES]; 4] {
    let mut words = [[0; LANES]; 4];
    for (lane, header) in headers.iter().take(LANES).enumerate() {
        (0..4).for_each(|at| words[at][lane] = header[at]);
    }
    words
}

/// Upper and lower halves.
///
/// # Safety
/// The processor has AVX-512 F.
#[inline(always)]
pub(crate) unsafe fn split(words: __m512i) -> (__m512i, __m512i) {
    // SAFETY: AVX-512 F is the caller's promise.
    unsafe { (_mm512_srli_epi32::<16>(words), _mm512_and_si512(words, _mm512_set1_epi32(0xffff))) }
}

/// # Safety
/// The processor has AVX-512 F.
#[inline(always)]
pub(crate) unsafe fn store_all<const N: usize>(
    columns: &mut [[u32; LANES]; N],
    values: [__m512i; N],
) {
    for (column, value) in columns.iter_mut().zip(values) {
        // SAFETY: AVX-512 F is the caller's promise.
        unsafe { store(column, value) }
    }
}

/// Entries of sixteen rows and columns of a cross product.
///
/// # Safety
/// As [`get16`].
#[inline(always)]
pub(crate) unsafe fn cross16<const TABLES: usize>(
    frame: &Frame<'_, TABLES>,
    table: usize,
    row: __m512i,
    column: __m512i,
) -> __m512i {
    let table = &frame.tables[table];
    // SAFETY: the caller's promises.
    unsafe { get16(frame.image, table, at16(table, row, column)) }
}

/// The tree of addresses up to phase 1: classes of sources and of destinations.
///
/// # Safety
/// As [`get16`].
#[inline(always)]
pub(crate) unsafe fn sides16<const TABLES: usize>(
    frame: &Frame<'_, TABLES>,
    words: &[[u32; LANES]; 4],
) -> [__m512i; 2] {
    let Frame { image, tables, .. } = frame;
    // SAFETY: the caller's promises.
    unsafe {
        let get = |table: usize, at| get16(image, &tables[table], at);
        let (high, low) = split(load(&words[0]));
        let src = cross16(frame, SRC, get(SRC_HIGH, high), get(SRC_LOW, low));
        let (high, low) = split(load(&words[1]));
        [src, cross16(frame, DST, get(DST_HIGH, high), get(DST_LOW, low))]
    }
}

/// Of sixteen rows and columns of a cross product in strips: strips, and columns of those.
///
/// # Safety
/// As [`get16`].
#[inline(always)]
unsafe fn strip16<const TABLES: usize>(
    frame: &Frame<'_, TABLES>,
    table: usize,
    row: __m512i,
    column: __m512i,
) -> [__m512i; 2] {
    // SAFETY: the caller's promises.
    unsafe {
        let first = _mm512_srli_epi32::<{ STRIP.ilog2() }>(column);
        let strip = cross16(frame, table, row, first);
        [strip, _mm512_and_si512(column, _mm512_set1_epi32(STRIP as i32 - 1))]
    }
}

/// Entries of sixteen strips.
///
/// # Safety
/// As [`get16`].
#[inline(always)]
pub(crate) unsafe fn in_strip16<const TABLES: usize>(
    frame: &Frame<'_, TABLES>,
    table: usize,
    strip: __m512i,
    column: __m512i,
) -> __m512i {
    // SAFETY: the caller's promises.
    unsafe { cross16(frame, table + STRIPS, strip, column) }
}

/// The tree of addresses in strips, first part: strip and column of the sources, of the destinations.
///
/// # Safety
/// As [`get16`].
#[inline(always)]
pub(crate) unsafe fn strips16<const TABLES: usize>(
    frame: &Frame<'_, TABLES>,
    words: &[[u32; LANES]; 4],
) -> [__m512i; 4] {
    let Frame { image, tables, .. } = frame;
    // SAFETY: the caller's promises.
    unsafe {
        let get = |table: usize, at| get16(image, &tables[table], at);
        let (high, low) = split(load(&words[0]));
        let [src, src_column] = strip16(frame, SRC, get(SRC_HIGH, high), get(SRC_LOW, low));
        let (high, low) = split(load(&words[1]));
        let [dst, dst_column] = strip16(frame, DST, get(DST_HIGH, high), get(DST_LOW, low));
        [src, src_column, dst, dst_column]
    }
}

/// Second part, from what the first one found: strip and column of the pairs.
///
/// # Safety
/// As [`get16`].
#[inline(always)]
pub(crate) unsafe fn pairs16<const TABLES: usize>(
    frame: &Frame<'_, TABLES>,
    [src, src_column, dst, dst_column]: [__m512i; 4],
) -> [__m512i; 2] {
    // SAFETY: the caller's promises.
    unsafe {
        let src = in_strip16(frame, SRC, src, src_column);
        let dst = in_strip16(frame, DST, dst, dst_column);
        strip16(frame, ADDRESSES, src, dst)
    }
}
