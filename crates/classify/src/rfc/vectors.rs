//! Sixteen headers at once, with AVX-512.

use std::arch::x86_64::*;

use super::view::*;
use crate::reduction::frame::*;
use crate::reduction::vectors::*;
use crate::rule::Match;

/// Headers that go phase by phase together.
const BATCH: usize = 256;

/// Vectors of a batch, so many of each group of headers.
type Batch<const COLUMNS: usize> = [[[u32; LANES]; COLUMNS]; BATCH / LANES];

impl Rfc<'_> {
    /// All headers, sixteen at once, and phase by phase, so that no vector waits for the one before.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn run_vectors(&self, headers: &[[u32; WORDS]], out: &mut [Match]) {
        // Of phase 1: source, destination, ports, protocol. Of phase 2: addresses, tails.
        let mut parts: Batch<4> = [[[0; LANES]; 4]; BATCH / LANES];
        let mut pairs: Batch<2> = [[[0; LANES]; 2]; BATCH / LANES];
        for (headers, out) in headers.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
            let groups = headers.len().div_ceil(LANES);
            for (parts, headers) in parts.iter_mut().zip(headers.chunks(LANES)) {
                let words = columns(headers);
                // SAFETY: the features are this function's; an image that `Frame::new` took has a header, and
                // fewer words than 2^31.
                unsafe { store_all(parts, self.parts16(&words)) };
            }
            for (pair, parts) in pairs.iter_mut().zip(&parts).take(groups) {
                // SAFETY: as above.
                unsafe { store_all(pair, self.pairs16(parts)) };
            }
            for (out, [addresses, tails]) in out.chunks_mut(LANES).zip(&pairs) {
                let mut numbers = [0; LANES];
                // SAFETY: as above.
                unsafe {
                    let found = cross16(&self.frame, RESULT, load(addresses), load(tails));
                    store(&mut numbers, found);
                }
                for (out, number) in out.iter_mut().zip(numbers) {
                    *out = self.frame.place(number);
                }
            }
        }
    }

    /// Phases 0 and 1: classes of source, destination, ports and protocol.
    ///
    /// # Safety
    /// The processor has AVX-512 F; the image has one word to 2^31.
    #[inline(always)]
    unsafe fn parts16(&self, words: &[[u32; LANES]; WORDS]) -> [__m512i; 4] {
        let Frame { image, tables, .. } = &self.frame;
        // SAFETY: the caller's promises.
        unsafe {
            let get = |table: usize, at| get16(image, &tables[table], at);
            let [src, dst] = sides16(&self.frame, words);
            let (sport, dport) = split(load(&words[2]));
            let ports = cross16(&self.frame, PORTS, get(SPORT, sport), get(DPORT, dport));
            let proto = _mm512_srli_epi32::<24>(load(&words[3]));
            [src, dst, ports, get(PROTO, proto)]
        }
    }

    /// Phase 2: classes of addresses, and of ports and protocol.
    ///
    /// # Safety
    /// As [`Rfc::parts16`].
    #[inline(always)]
    unsafe fn pairs16(&self, [src, dst, ports, proto]: &[[u32; LANES]; 4]) -> [__m512i; 2] {
        let frame = &self.frame;
        // SAFETY: the caller's promises.
        unsafe {
            let addresses = cross16(frame, ADDRESSES, load(src), load(dst));
            [addresses, cross16(frame, TAILS, load(ports), load(proto))]
        }
    }
}
