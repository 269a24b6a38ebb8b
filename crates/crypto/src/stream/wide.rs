//! AES in counter mode by the vectors of AVX-512: four blocks in each, eight vectors on their way at once.
//!
//! The crate `aes` encrypts blocks that lie in memory. Here counter blocks are made in registers, and the key stream goes into
//! the text without lying anywhere between, which is most of the time of a short packet. What a packet's last vector has beyond
//! its text is masked.
//!
//! Nothing branches on data or keys, or is looked up by them. The unsafe code is calls of functions that need CPU features,
//! and loads and stores of arrays and slices.

use std::arch::x86_64::{
    __m128i, __m512i, _MM_HINT_T0, _mm_aesenc_si128, _mm_aesenclast_si128, _mm_cvtsi128_si32,
    _mm_loadu_si128, _mm_prefetch, _mm_set_epi64x, _mm_set1_epi32, _mm_setzero_si128,
    _mm_xor_si128, _mm512_add_epi32, _mm512_aesenc_epi128, _mm512_aesenclast_epi128,
    _mm512_broadcast_i32x4, _mm512_loadu_si512, _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8,
    _mm512_or_si512, _mm512_set_epi32, _mm512_set_epi64, _mm512_setzero_si512, _mm512_shuffle_epi8,
    _mm512_storeu_si512, _mm512_xor_si512,
};

use std::ops::Range;

use zeroize::Zeroize;

use crate::aes::BLOCK;
use crate::suite::place_of;

/// Keys of the rounds of AES-256, the most.
const KEYS_MAX: usize = 15;
/// Bytes of a vector.
const VECTOR: usize = 64;
/// Vectors at once.
const TURN: usize = 8;

/// Whether the CPU has what this file uses.
fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("vaes")
        && is_x86_feature_detected!("aes")
}

/// Keys of the rounds, as words in the order of memory. They exist only where [`is_available`].
#[repr(C)]
pub(crate) struct RoundKeys {
    /// The key of the last round. In front, beside those that are read.
    last: usize,
    words: [[u32; 4]; KEYS_MAX],
}

impl Drop for RoundKeys {
    fn drop(&mut self) {
        self.words.zeroize();
    }
}

impl RoundKeys {
    /// Where those that are read are.
    pub(crate) fn read_by_packets(&self, see: &mut dyn FnMut(Range<usize>)) {
        see(place_of(&self.last));
        see(place_of(&self.words[..=self.last]));
    }

    /// Starts to load those of AES-128.
    #[inline]
    pub(crate) fn prefetch(&self) {
        interleave::prefetch(&self.last);
        self.words[..11].iter().step_by(4).for_each(interleave::prefetch);
    }

    /// Of a key of 16, 24 or 32 bytes; `None` of another one, and where the CPU lacks the instructions.
    pub(super) fn new(key: &[u8]) -> Option<Self> {
        let is_key = matches!(key.len(), 16 | 24 | 32);
        // SAFETY: the features that the function enables are there, as just seen.
        (is_key && is_available()).then(|| unsafe { expand(key) })
    }

    /// Adds the key stream to a text: counter blocks of a nonce, from `number` on. `ahead`: where a text begins that comes soon. It is
    /// loaded line by line, as this one goes on.
    #[inline]
    pub(super) fn add(&self, nonce: &[u8; 12], number: u32, ahead: *const u8, text: &mut [u8]) {
        // SAFETY: a value of this type exists only where the features are that the function enables.
        unsafe { add(self, nonce, number, ahead, text) }
    }

    /// Encrypts blocks, each for itself.
    #[inline]
    pub(super) fn encrypt(&self, blocks: &mut [[u8; BLOCK]]) {
        // SAFETY: likewise.
        unsafe { encrypt(self, blocks.as_flattened_mut()) }
    }
}

/// FIPS 197 §5.2.
#[target_feature(enable = "aes")]
fn expand(key: &[u8]) -> RoundKeys {
    const CONSTANTS: [u32; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 0x1b, 0x36];
    let mut own = RoundKeys { words: [[0; 4]; KEYS_MAX], last: key.len() / 4 + 6 };
    let (count, all) = (key.len() / 4, 4 * (own.last + 1));
    let words = own.words.as_flattened_mut();
    for (word, bytes) in words.iter_mut().zip(key.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    for at in count..all {
        let mut word = words[at - 1];
        if at % count == 0 {
            word = substituted(word.rotate_right(8)) ^ CONSTANTS[at / count - 1];
        } else if count > 6 && at % count == 4 {
            word = substituted(word);
        }
        words[at] = words[at - count] ^ word;
    }
    own
}

/// Each byte of a word through the table of AES: of four equal columns the rows can be shifted.
#[target_feature(enable = "aes")]
fn substituted(word: u32) -> u32 {
    let all = _mm_set1_epi32(word.cast_signed());
    _mm_cvtsi128_si32(_mm_aesenclast_si128(all, _mm_setzero_si128())).cast_unsigned()
}

#[inline]
#[target_feature(enable = "avx512f")]
fn broadcast(key: &[u32; 4]) -> __m512i {
    // SAFETY: `key` is 16 initialised bytes; the load needs no alignment.
    _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(key.as_ptr().cast::<__m128i>()) })
}

/// A nonce, and a number behind it. The nonce was written as salt and initialisation vector a moment ago, and a processor passes
/// on what was stored only to loads of those very bytes.
#[inline]
#[target_feature(enable = "sse2")]
fn nonce_block(nonce: &[u8; 12], number: u32) -> __m128i {
    let [a, b, c, d, rest @ ..] = *nonce;
    let (salt, iv) = (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(rest));
    let low = u64::from(salt) | iv << 32;
    let high = iv >> 32 | u64::from(number.swap_bytes()) << 32;
    _mm_set_epi64x(high.cast_signed(), low.cast_signed())
}

/// Encrypts a block that counts: a nonce and a number.
#[inline]
#[target_feature(enable = "avx512f,vaes,aes")]
pub(crate) fn encrypt_counter(own: &RoundKeys, nonce: &[u8; 12], number: u32) -> __m128i {
    // SAFETY: a key is 16 initialised bytes; the load needs no alignment.
    let key = |at: usize| unsafe { _mm_loadu_si128(own.words[at].as_ptr().cast::<__m128i>()) };
    let mut block = _mm_xor_si128(nonce_block(nonce, number), key(0));
    for at in 1..own.last {
        block = _mm_aesenc_si128(block, key(at));
    }
    _mm_aesenclast_si128(block, key(own.last))
}

/// Encrypts vectors of blocks.
#[inline]
#[target_feature(enable = "avx512f,vaes")]
fn rounds<const N: usize>(own: &RoundKeys, vectors: &mut [__m512i; N]) {
    let first = broadcast(&own.words[0]);
    vectors.iter_mut().for_each(|own| *own = _mm512_xor_si512(*own, first));
    for key in &own.words[1..own.last] {
        let key = broadcast(key);
        vectors.iter_mut().for_each(|own| *own = _mm512_aesenc_epi128(*own, key));
    }
    let last = broadcast(&own.words[own.last]);
    vectors.iter_mut().for_each(|own| *own = _mm512_aesenclast_epi128(*own, last));
}

/// Counter blocks of a packet.
pub(crate) struct Counters {
    /// Nonces in all blocks, and zeros in the place of numbers.
    nonces: __m512i,
    /// The next numbers in their places, their bytes reversed.
    numbers: __m512i,
}

impl Counters {
    /// From a number on.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,vaes")]
    pub(crate) fn new(nonce: &[u8; 12], number: u32) -> Self {
        let block = nonce_block(nonce, 0);
        let [a, b, c, d] = [0, 1, 2, 3].map(|at| number.wrapping_add(at).cast_signed());
        Self {
            nonces: _mm512_broadcast_i32x4(block),
            numbers: _mm512_set_epi32(d, 0, 0, 0, c, 0, 0, 0, b, 0, 0, 0, a, 0, 0, 0),
        }
    }

    /// The key stream of the next vectors.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,vaes")]
    pub(crate) fn stream<const N: usize>(&mut self, own: &RoundKeys) -> [__m512i; N] {
        let four = _mm512_set_epi32(4, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0);
        let (high, low) = (0x0c0d_0e0f_0b0a_0908, 0x0706_0504_0302_0100); // the last word's bytes reversed
        let reverse = _mm512_set_epi64(high, low, high, low, high, low, high, low);
        let mut vectors = [_mm512_setzero_si512(); N];
        for vector in &mut vectors {
            *vector = _mm512_or_si512(self.nonces, _mm512_shuffle_epi8(self.numbers, reverse));
            self.numbers = _mm512_add_epi32(self.numbers, four);
        }
        rounds(own, &mut vectors);
        vectors
    }

    /// Adds the key stream to `N` vectors, the last of which may be a part unless it `IS_WHOLE`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,vaes")]
    fn add<const N: usize, const IS_WHOLE: bool>(
        &mut self,
        own: &RoundKeys,
        ahead: *const u8,
        text: &mut [u8],
    ) {
        let stream = self.stream::<N>(own);
        let (parts, end) = text.split_at_mut((N - 1) * VECTOR);
        let parts = parts.as_chunks_mut::<VECTOR>().0;
        // Loops of constant length, so that the key stream stays in registers.
        for at in 0..N - 1 {
            _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(at * VECTOR).cast());
            let part = &mut parts[at];
            // SAFETY: `part` is 64 initialised bytes of our own; load and store need no alignment.
            unsafe {
                let loaded = _mm512_loadu_si512(part.as_ptr().cast::<__m512i>());
                let sum = _mm512_xor_si512(loaded, stream[at]);
                _mm512_storeu_si512(part.as_mut_ptr().cast::<__m512i>(), sum);
            }
        }
        _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add((N - 1) * VECTOR).cast());
        assert!((1..=VECTOR).contains(&end.len()) && (!IS_WHOLE || end.len() == VECTOR));
        // A byte at least, a vector at most.
        let mask = if IS_WHOLE { u64::MAX } else { u64::MAX >> (VECTOR - end.len()) };
        // SAFETY: the mask has a bit for each byte of `end`, as just seen; no other bytes are read or written.
        unsafe {
            let loaded = _mm512_maskz_loadu_epi8(mask, end.as_ptr().cast::<i8>());
            let sum = _mm512_xor_si512(loaded, stream[N - 1]);
            _mm512_mask_storeu_epi8(end.as_mut_ptr().cast::<i8>(), mask, sum);
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn add(own: &RoundKeys, nonce: &[u8; 12], number: u32, mut ahead: *const u8, text: &mut [u8]) {
    let mut counters = Counters::new(nonce, number);
    let (turns, rest) = text.as_chunks_mut::<{ TURN * VECTOR }>();
    for turn in turns {
        counters.add::<TURN, true>(own, ahead, turn);
        ahead = ahead.wrapping_add(TURN * VECTOR);
    }
    match rest.len().div_ceil(VECTOR) {
        0 => {}
        1 => counters.add::<1, false>(own, ahead, rest),
        2 => counters.add::<2, false>(own, ahead, rest),
        3 => counters.add::<3, false>(own, ahead, rest),
        4 => counters.add::<4, false>(own, ahead, rest),
        5 => counters.add::<5, false>(own, ahead, rest),
        6 => counters.add::<6, false>(own, ahead, rest),
        7 => counters.add::<7, false>(own, ahead, rest),
        _ => counters.add::<8, false>(own, ahead, rest),
    }
}

#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn encrypt(own: &RoundKeys, blocks: &mut [u8]) {
    for part in blocks.chunks_mut(VECTOR) {
        let mask = u64::MAX >> (VECTOR - part.len()); // a part has a byte at least
        // SAFETY: the mask has a bit for each byte of `part`; no other bytes are read or written.
        unsafe {
            let mut vector = [_mm512_maskz_loadu_epi8(mask, part.as_ptr().cast::<i8>())];
            rounds(own, &mut vector);
            _mm512_mask_storeu_epi8(part.as_mut_ptr().cast::<i8>(), mask, vector[0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::aes::{AesEnc, Block};

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

        /// Every length around blocks, vectors and turns, and keys of all sizes, against block after block by the crate.
        #[test]
        fn the_stream_is_that_of_the_crate(
            key in any::<[u8; 32]>(),
            size in prop_oneof![Just(16usize), Just(24), Just(32)],
            nonce in any::<[u8; 12]>(),
            number in prop_oneof![Just(1u32), Just(2), Just(254), Just(u32::MAX - 3), any::<u32>()],
            text in prop::collection::vec(any::<u8>(), 0..1600),
        ) {
            let (Some(own), Some(aes)) = (RoundKeys::new(&key[..size]), AesEnc::new(&key[..size])) else {
                return Ok(());
            };
            for len in [text.len(), text.len() / 64 * 64, text.len() / 13] {
                let mut found = text[..len].to_vec();
                own.add(&nonce, number, found.as_ptr(), &mut found);
                let mut expected = text[..len].to_vec();
                let mut masks = Vec::new();
                for (at, part) in (0..).zip(expected.chunks_mut(BLOCK)) {
                    let mut block = Block::default();
                    block[..12].copy_from_slice(&nonce);
                    block[12..].copy_from_slice(&number.wrapping_add(at).to_be_bytes());
                    masks.push(<[u8; BLOCK]>::from(block));
                    aes.encrypt_block(&mut block);
                    crate::aes::xor(part, &block);
                }
                prop_assert_eq!(&found, &expected);
                own.encrypt(&mut masks);
                for (found, (mask, was)) in found.chunks(BLOCK).zip(masks.iter().zip(text[..len].chunks(BLOCK))) {
                    let sum: Vec<u8> = mask.iter().zip(was).map(|(a, b)| a ^ b).collect();
                    prop_assert_eq!(found, &sum[..]);
                }
            }
        }
    }
}
