//! The hash of Galois/counter mode, thirty-six blocks at a time, by the carry-less products of AVX-512.
//!
//! The hash of blocks x1 … xn is x1·Hⁿ + x2·Hⁿ⁻¹ + … + xn·H: with powers of H at hand no product waits for another one, and
//! their sum is reduced once. A vector has four blocks, so thirty-six of them are nine vectors by four products each.
//!
//! ```text
//!  powers   │ H³⁶ H³⁵ H³⁴ H³³ │ … │ H⁴ H³ H² H¹ │      n blocks go by the last n
//!  blocks         │ x1 x2 x3 x4 │ … │ xn │              the hash so far is added to x1
//! ```
//!
//! Bits are in POLYVAL's order (RFC 8452, appendix A): bytes reversed, and H multiplied by x, so that products need no shift.
//! Nothing branches on data or keys, or is looked up by them.
//!
//! The unsafe code is calls of functions that need CPU features, and loads and stores of arrays.

use std::arch::x86_64::{
    __m128i, __m512i, _mm_clmulepi64_si128, _mm_loadu_si128, _mm_set_epi8, _mm_set_epi64x,
    _mm_setzero_si128, _mm_shuffle_epi8, _mm_shuffle_epi32, _mm_slli_si128, _mm_srli_si128,
    _mm_storeu_si128, _mm_xor_si128, _mm512_broadcast_i32x4, _mm512_clmulepi64_epi128,
    _mm512_extracti32x4_epi32, _mm512_loadu_si512, _mm512_maskz_loadu_epi8, _mm512_setzero_si512,
    _mm512_shuffle_epi8, _mm512_ternarylogic_epi32, _mm512_xor_si512, _mm512_zextsi128_si512,
};

use zeroize::Zeroize;

use crate::aes::BLOCK;

/// Powers of the key, and blocks whose products are summed before they are reduced: eight vectors, and one on either side. Eight
/// vectors are whole lines.
pub(super) const POWERS: usize = 36;
/// Blocks of a vector.
pub(super) const LANES: usize = 4;
pub(super) const VECTOR: usize = LANES * BLOCK;

/// Whether the CPU has what this file uses.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("ssse3")
}

/// Powers, the highest first, and zeros, so that four may be read from each.
pub(super) type Table = [[u64; 2]; POWERS + LANES];

/// Powers of a hash key. It exists only where [`is_available`].
#[repr(align(64))]
pub(super) struct Powers(pub(super) Table);

impl Drop for Powers {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Powers {
    /// Of a hash key; `None` where the CPU lacks the instructions.
    pub(super) fn new(key: &[u8; BLOCK]) -> Option<Self> {
        // SAFETY: the features that the function enables are there, as just seen.
        is_available().then(|| Self(unsafe { powers(key) }))
    }

    /// Starts to load the last eight, and zeros behind.
    #[inline]
    pub(super) fn prefetch(&self) {
        self.0[POWERS - 8..].iter().step_by(LANES).for_each(interleave::prefetch);
    }

    /// The hash of a block in front, the text filled up with zeros, and the block of lengths.
    pub(super) fn hash(&self, front: &Front, text: &[u8], lengths: &[u8; BLOCK]) -> [u8; BLOCK] {
        // SAFETY: a value of this type exists only where the features are that the function enables.
        unsafe { hash(&self.0, front, text, lengths) }
    }
}

/// A block in front of the text, if there is one.
pub(super) type Front = Option<[u8; BLOCK]>;

#[target_feature(enable = "pclmulqdq,ssse3")]
fn powers(key: &[u8; BLOCK]) -> Table {
    let mut value = u128::from_be_bytes(*key);
    // Times x: what leaves at the top comes back as the polynomial.
    let mask = 0u128.wrapping_sub(value >> 127);
    value = value << 1 ^ mask & 0xc200_0000_0000_0000_0000_0000_0000_0001;
    let first = _mm_set_epi64x((value >> 64) as i64, value as i64);
    value.zeroize();
    let mut out = [[0; 2]; POWERS + LANES];
    let mut power = first;
    for (at, place) in out[..POWERS].iter_mut().rev().enumerate() {
        if at > 0 {
            let low = _mm_clmulepi64_si128::<0x00>(power, first);
            let high = _mm_clmulepi64_si128::<0x11>(power, first);
            let middle = _mm_xor_si128(
                _mm_clmulepi64_si128::<0x10>(power, first),
                _mm_clmulepi64_si128::<0x01>(power, first),
            );
            power = reduce(low, middle, high);
        }
        // SAFETY: `place` is 16 bytes of our own; the store needs no alignment.
        unsafe { _mm_storeu_si128(place.as_mut_ptr().cast::<__m128i>(), power) };
    }
    out
}

/// The sum of products, given by their lower, middle and upper parts, times x^-128.
#[inline]
#[target_feature(enable = "pclmulqdq,ssse3")]
fn reduce(low: __m128i, middle: __m128i, high: __m128i) -> __m128i {
    let polynomial = _mm_set_epi64x(0xc200_0000_0000_0000_u64.cast_signed(), 1);
    let mut low = _mm_xor_si128(low, _mm_slli_si128::<8>(middle));
    let high = _mm_xor_si128(high, _mm_srli_si128::<8>(middle));
    for _ in 0..2 {
        let product = _mm_clmulepi64_si128::<0x10>(low, polynomial);
        low = _mm_xor_si128(_mm_shuffle_epi32::<0x4e>(low), product);
    }
    _mm_xor_si128(low, high)
}

/// Products so far, lane by lane.
#[derive(Clone, Copy)]
pub(super) struct Sum {
    low: __m512i,
    middle: __m512i,
    high: __m512i,
}

impl Sum {
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn zero() -> Self {
        let zero = _mm512_setzero_si512();
        Self { low: zero, middle: zero, high: zero }
    }

    /// Adds the products of four blocks and their powers.
    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    pub(super) fn add(&mut self, blocks: __m512i, powers: __m512i) {
        let low = _mm512_clmulepi64_epi128::<0x00>(blocks, powers);
        let high = _mm512_clmulepi64_epi128::<0x11>(blocks, powers);
        let one = _mm512_clmulepi64_epi128::<0x10>(blocks, powers);
        let other = _mm512_clmulepi64_epi128::<0x01>(blocks, powers);
        self.low = _mm512_xor_si512(self.low, low);
        self.high = _mm512_xor_si512(self.high, high);
        self.middle = _mm512_ternarylogic_epi32::<0x96>(self.middle, one, other);
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,pclmulqdq,ssse3")]
    pub(super) fn reduced(self) -> __m128i {
        reduce(across(self.low), across(self.middle), across(self.high))
    }
}

/// The sum of the four blocks of a vector.
#[inline]
#[target_feature(enable = "avx512f")]
fn across(all: __m512i) -> __m128i {
    let [a, b] = [_mm512_extracti32x4_epi32::<0>(all), _mm512_extracti32x4_epi32::<1>(all)];
    let [c, d] = [_mm512_extracti32x4_epi32::<2>(all), _mm512_extracti32x4_epi32::<3>(all)];
    _mm_xor_si128(_mm_xor_si128(a, b), _mm_xor_si128(c, d))
}

/// Four powers from place `at` on.
///
/// # Panics
/// There is no power at that place.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn powers_at(powers: &Table, at: usize) -> __m512i {
    assert!(at < POWERS);
    // SAFETY: from each power on the table has four elements of 16 bytes; the load needs no alignment.
    unsafe { _mm512_loadu_si512(powers.as_ptr().add(at).cast::<__m512i>()) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,vpclmulqdq,pclmulqdq,ssse3")]
fn hash(powers: &Table, front: &Front, text: &[u8], lengths: &[u8; BLOCK]) -> [u8; BLOCK] {
    let reverse = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let reverse_all = _mm512_broadcast_i32x4(reverse);
    let one = |block: &[u8; BLOCK]| {
        // SAFETY: `block` is 16 initialised bytes; the load needs no alignment.
        let loaded = unsafe { _mm_loadu_si128(block.as_ptr().cast::<__m128i>()) };
        _mm_shuffle_epi8(loaded, reverse)
    };
    let (mut vectors, tail) = text.as_chunks::<VECTOR>();
    let mut front = front.as_ref();
    // Blocks to come, that of the lengths among them.
    let mut left = usize::from(front.is_some()) + text.len().div_ceil(BLOCK) + 1;
    let mut so_far = _mm_setzero_si128();
    loop {
        // Products that are summed: all that are left, or as many whole vectors as there are powers.
        let is_last = left <= POWERS;
        let before = usize::from(front.is_some());
        let most = if is_last { vectors.len() } else { (POWERS - before) / LANES };
        let (now, later) = vectors.split_at(most.min(vectors.len()));
        vectors = later;
        let count = if is_last { left } else { before + now.len() * LANES };
        let mut at = POWERS - count;
        let mut sum = Sum::zero();
        if let Some(front) = front.take() {
            sum.add(_mm512_zextsi128_si512(one(front)), powers_at(powers, at));
            at += 1;
        }
        for vector in now {
            // SAFETY: `vector` is 64 initialised bytes; the load needs no alignment.
            let loaded = unsafe { _mm512_loadu_si512(vector.as_ptr().cast::<__m512i>()) };
            let blocks = _mm512_shuffle_epi8(loaded, reverse_all);
            let blocks = _mm512_xor_si512(blocks, _mm512_zextsi128_si512(so_far));
            so_far = _mm_setzero_si128();
            sum.add(blocks, powers_at(powers, at));
            at += LANES;
        }
        if !is_last {
            so_far = sum.reduced();
            left -= count;
            continue;
        }
        if !tail.is_empty() {
            let mask = (1u64 << tail.len()) - 1; // less than a vector
            // SAFETY: the mask has a bit for each byte of `tail`, and no other bytes are read.
            let loaded = unsafe { _mm512_maskz_loadu_epi8(mask, tail.as_ptr().cast::<i8>()) };
            let blocks = _mm512_shuffle_epi8(loaded, reverse_all);
            let blocks = _mm512_xor_si512(blocks, _mm512_zextsi128_si512(so_far));
            so_far = _mm_setzero_si128();
            sum.add(blocks, powers_at(powers, at));
        }
        let last = _mm_xor_si128(one(lengths), so_far);
        sum.add(_mm512_zextsi128_si512(last), powers_at(powers, POWERS - 1));
        let digest = _mm_shuffle_epi8(sum.reduced(), reverse);
        let mut out = [0; BLOCK];
        // SAFETY: `out` is 16 bytes of our own; the store needs no alignment.
        unsafe { _mm_storeu_si128(out.as_mut_ptr().cast::<__m128i>(), digest) };
        return out;
    }
}

#[cfg(test)]
mod tests {
    use ghash::GHash;
    use ghash::universal_hash::UniversalHash;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 300, ..ProptestConfig::default() })]

        /// Texts that end anywhere in a block, a vector and a turn.
        #[test]
        fn the_hash_is_that_of_the_crate(
            key in any::<[u8; BLOCK]>(),
            front in any::<Option<[u8; BLOCK]>>(),
            text in prop::collection::vec(any::<u8>(), 0..900),
            lengths in any::<[u8; BLOCK]>(),
        ) {
            let Some(powers) = Powers::new(&key) else { return Ok(()) };
            for len in [text.len(), text.len() / 16 * 16, text.len() / 7] {
                let text = &text[..len];
                let mut hash = GHash::new(&key.into());
                if let Some(front) = front {
                    hash.update(&[front.into()]);
                }
                hash.update_padded(text);
                hash.update(&[lengths.into()]);
                let expected: [u8; BLOCK] = hash.finalize().into();
                prop_assert_eq!(powers.hash(&front, text, &lengths), expected, "{} bytes", len);
            }
        }
    }
}
