//! Processor instructions that the tables use where they are there.

/// Asks for the cache line of `element`; has no effect on the result of anything.
#[inline(always)]
pub(crate) fn prefetch<T>(element: &T) {
    prefetch_at(std::ptr::from_ref(element));
}

/// As [`prefetch`]; the address may be any.
#[inline(always)]
pub(crate) fn prefetch_at<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64, and a prefetch neither faults nor changes memory, whatever the
    // address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Whether the processor has AVX-512 gathers, and one beats as many loads. AMD's processors break a gather into dozens
/// of operations, so that independent loads are nearly twice as fast where a lookup is one load (`bench lpm4` on an
/// EPYC: 115 and 66 M/s).
pub fn gathers_are_quick() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        static QUICK: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
            let vendor = std::arch::x86_64::__cpuid(0);
            let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat();
            is_x86_feature_detected!("avx512f") && name != b"AuthenticAMD"
        });
        *QUICK
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// DIR-24-8 over as many leading keys as the processor has a vector form for; how many that were.
#[inline]
pub(crate) fn dir24_8_lookup(
    tbl24: &[u32; 1 << 24],
    tbl8: &[u32],
    default: u32,
    keys: &[u32],
    out: &mut [u32],
) -> usize {
    #[cfg(target_arch = "x86_64")]
    if gathers_are_quick() {
        // SAFETY: the feature was detected with it.
        return unsafe { dir24_8_avx512(tbl24, tbl8, default, keys, out) };
    }
    let _ = (tbl24, tbl8, default, keys, out);
    0
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn dir24_8_avx512(
    tbl24: &[u32; 1 << 24],
    tbl8: &[u32],
    default: u32,
    keys: &[u32],
    out: &mut [u32],
) -> usize {
    use std::arch::x86_64::*;

    let default = _mm512_set1_epi32(default.cast_signed());
    let (keys16, _) = keys.as_chunks::<16>();
    let (out16, _) = out.as_chunks_mut::<16>();
    let last = _mm512_set1_epi32(tbl8.len().saturating_sub(1).min(u32::MAX as usize) as i32);
    for (keys, out) in keys16.iter().zip(out16.iter_mut()) {
        // SAFETY: 16 u32 are 64 bytes; the load needs no alignment.
        let key = unsafe { _mm512_loadu_si512(keys.as_ptr().cast()) };
        // SAFETY: each index is a u32 shifted right by 8, below 2^24, the length of `tbl24`.
        let mut cell = unsafe {
            _mm512_i32gather_epi32::<4>(_mm512_srli_epi32::<8>(key), tbl24.as_ptr().cast())
        };
        let extended = sign_bits(cell);
        if extended != 0 && !tbl8.is_empty() {
            let low = _mm512_and_epi32(key, _mm512_set1_epi32(0xff));
            // The shift by 8 drops the extension bit.
            let index = _mm512_or_epi32(_mm512_slli_epi32::<8>(cell), low);
            let index = _mm512_min_epu32(index, last);
            // Gathers take signed indices: two halves of 8 with 64-bit ones.
            let low = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(index));
            let high = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64::<1>(index));
            // SAFETY: every index is at most `tbl8.len() - 1` by the minimum above; lanes outside
            // the mask are not read.
            let (low, high) = unsafe {
                (
                    _mm512_mask_i64gather_epi32::<4>(
                        _mm512_castsi512_si256(cell),
                        extended as u8,
                        low,
                        tbl8.as_ptr().cast(),
                    ),
                    _mm512_mask_i64gather_epi32::<4>(
                        _mm512_extracti64x4_epi64::<1>(cell),
                        (extended >> 8) as u8,
                        high,
                        tbl8.as_ptr().cast(),
                    ),
                )
            };
            cell = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
        }
        let missed = _mm512_testn_epi32_mask(cell, cell);
        let cell = _mm512_mask_mov_epi32(cell, missed, default);
        // SAFETY: 16 u32 are 64 bytes; the store needs no alignment.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), cell) };
    }
    keys16.len() * 16
}

/// The sign bits, without AVX-512DQ.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn sign_bits(cell: std::arch::x86_64::__m512i) -> u16 {
    use std::arch::x86_64::*;
    _mm512_cmplt_epi32_mask(cell, _mm512_setzero_si512())
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Also where `gathers_are_quick` says no.
    #[test]
    fn dir24_8_in_vectors_is_dir24_8() {
        if !is_x86_feature_detected!("avx512f") {
            return;
        }
        let mut tbl24: Box<[u32; 1 << 24]> = vec![0; 1 << 24].try_into().unwrap();
        let tbl8: Vec<u32> =
            (0..3 * 256).map(|cell| if cell % 7 == 0 { 0 } else { cell + 1000 }).collect();
        for (i, cell) in tbl24.iter_mut().enumerate() {
            *cell = match i % 5 {
                0 => 0,
                1 => 1 << 31 | (i % 3) as u32,
                2 => 1 << 31 | 77, // a group beyond the table: the last cell, never anything outside
                _ => i as u32 % 9000,
            };
        }
        let keys: Vec<u32> = (0..4099u32).map(|n| n.wrapping_mul(0x9e37_79b1)).collect();
        let mut out = vec![0; keys.len()];
        // SAFETY: the feature was detected above.
        let done = unsafe { dir24_8_avx512(&tbl24, &tbl8, 7, &keys, &mut out) };
        assert_eq!(done, 4096);
        for (key, found) in keys.iter().zip(&out).take(done) {
            let mut cell = tbl24[(key >> 8) as usize];
            if cell >> 31 == 1 {
                let index = ((cell & 0x7fff_ffff) << 8 | key & 0xff) as usize;
                cell = tbl8[index.min(tbl8.len() - 1)];
            }
            assert_eq!(*found, if cell == 0 { 7 } else { cell }, "{key:#x}");
        }
    }
}
