//! Eight rules at once with AVX2, and bits by `pext` of BMI2.

use std::arch::x86_64::*;

use super::layout::*;
use super::view::{Cuts, Leaves, masked_place, place};
use crate::image::LINE_WORDS;
use crate::rule::Match;

/// A processor with AVX2 and BMI2: creating one requires the check.
#[derive(Debug, Clone, Copy)]
struct Vectors(());

impl Leaves for Vectors {
    type Header = [__m256i; WORDS];

    #[inline(always)]
    fn header(self, header: &[u32; WORDS]) -> Self::Header {
        // SAFETY: AVX2 is there, as `Vectors` says.
        header.map(|word| unsafe { _mm256_set1_epi32(word.cast_signed()) })
    }

    #[inline(always)]
    fn number(self, halves: &Bits, bits: &Bits, shift: u32) -> usize {
        // SAFETY: BMI2 is there, as `Vectors` says.
        let [low, high] = unsafe { [_pext_u64(halves[0], bits[0]), _pext_u64(halves[1], bits[1])] };
        (low | high << (shift & 63)) as usize
    }

    #[inline(always)]
    fn find<const B: usize>(
        self,
        [src, dst, ports, last]: &Self::Header,
        block: &[u32; B],
    ) -> Match {
        // SAFETY: AVX2 is there, as `Vectors` says. Each column has 32 bytes inside of the block, and loads need no
        // alignment.
        let hits = unsafe {
            let column = |at: usize| _mm256_loadu_si256(block[at..][..LANES].as_ptr().cast());
            let byte = _mm256_set1_epi32(0xff);
            let misc = column(MISC);
            let shift = _mm256_and_si256(misc, byte);
            let src = _mm256_srlv_epi32(_mm256_xor_si256(*src, column(SRC)), shift);
            let shift = _mm256_and_si256(_mm256_srli_epi32::<8>(misc), byte);
            let dst = _mm256_srlv_epi32(_mm256_xor_si256(*dst, column(DST)), shift);
            let over = _mm256_sub_epi16(*ports, column(PORTS));
            let ports = _mm256_subs_epu16(over, column(LENGTHS));
            let last = if B == WIDE {
                _mm256_and_si256(_mm256_xor_si256(*last, column(VALUE)), column(MASK))
            } else {
                // Only the highest byte counts: the protocol, where the mask has come.
                let mask = _mm256_slli_epi32::<8>(misc);
                _mm256_srli_epi32::<24>(_mm256_and_si256(_mm256_xor_si256(*last, misc), mask))
            };
            let differ = _mm256_or_si256(_mm256_or_si256(src, dst), _mm256_or_si256(ports, last));
            let equal = _mm256_cmpeq_epi32(differ, _mm256_setzero_si256());
            _mm256_movemask_ps(_mm256_castsi256_ps(equal)).cast_unsigned()
        };
        let found = place(block, hits.trailing_zeros() as usize);
        if hits == 0 { Match::NONE } else { found }
    }

    #[inline(always)]
    fn find_masked(self, header: &[u32], block: &[u32]) -> Match {
        let columns = block[LINE_WORDS..].as_chunks::<LINE_WORDS>().0;
        // SAFETY: AVX2 is there, as `Vectors` says. Each column has 32 bytes of values and 32 of masks, and loads need no alignment.
        let hits = unsafe {
            let mut differ = _mm256_setzero_si256();
            for (word, column) in header.iter().zip(columns) {
                let value = _mm256_loadu_si256(column[..LANES].as_ptr().cast());
                let mask = _mm256_loadu_si256(column[LANES..].as_ptr().cast());
                let own = _mm256_xor_si256(_mm256_set1_epi32(word.cast_signed()), value);
                differ = _mm256_or_si256(differ, _mm256_and_si256(own, mask));
            }
            let equal = _mm256_cmpeq_epi32(differ, _mm256_setzero_si256());
            _mm256_movemask_ps(_mm256_castsi256_ps(equal)).cast_unsigned()
        };
        let found = masked_place(block, hits.trailing_zeros() as usize);
        if hits == 0 { Match::NONE } else { found }
    }
}

impl Cuts<'_> {
    /// All headers.
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    pub(super) fn run_vectors(&self, switched: bool, headers: &[u32], out: &mut [Match]) {
        self.run(Vectors(()), switched, headers, out);
    }
}
