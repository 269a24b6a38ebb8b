//! Sixteen headers at once, with AVX-512.

use std::arch::x86_64::*;

use super::view::*;
use crate::reduction::frame::*;
use crate::reduction::vectors::*;
use crate::rule::Match;

impl Rfc<'_> {
    /// All headers, sixteen at once.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn run_vectors(&self, headers: &[[u32; WORDS]], out: &mut [Match]) {
        for (headers, out) in headers.chunks(LANES).zip(out.chunks_mut(LANES)) {
            let words = columns(headers);
            let mut numbers = [0; LANES];
            // SAFETY: the features are this function's; an image that `Frame::new` took has a header, and fewer
            // words than 2^31.
            unsafe { store(&mut numbers, self.find16(&words)) };
            for (out, number) in out.iter_mut().zip(numbers) {
                *out = self.frame.place(number);
            }
        }
    }

    /// 1 + the ranks of the best rules, or 0.
    ///
    /// # Safety
    /// The processor has AVX-512 F; the image has one word to 2^31.
    #[inline(always)]
    unsafe fn find16(&self, words: &[[u32; LANES]; WORDS]) -> __m512i {
        let Frame { image, tables, .. } = &self.frame;
        // SAFETY: the caller's promises.
        unsafe {
            let get = |table: usize, at| get16(image, &tables[table], at);
            let cross = |table: usize, row, column| get(table, at16(&tables[table], row, column));
            let (tail, addresses) = {
                let (sport, dport) = split(load(&words[2]));
                let ports = cross(PORTS, get(SPORT, sport), get(DPORT, dport));
                let proto = _mm512_srli_epi32::<24>(load(&words[3]));
                let tail = cross(TAILS, ports, get(PROTO, proto));
                (tail, addresses16(&self.frame, words))
            };
            cross(RESULT, addresses, tail)
        }
    }
}
