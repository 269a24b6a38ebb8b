//! Galois/counter mode in one pass over a packet: key stream and hash together, by the vectors of AVX-512.
//!
//! ```text
//!  text      │ 8 vectors          │ 8 vectors          │ rest │
//!  AES         ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓
//!  hash                 ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓    of what is on its way to memory, in registers
//! ```
//!
//! The CPU has units for both, and works on the next vectors while the products of these are made. A short packet costs the
//! latency of both once, and what surrounds it is a few instructions, so that several packets are on their way.
//!
//! Nothing branches on data or keys, or is looked up by them. The unsafe code is a call of a function that needs CPU features,
//! and loads and stores of arrays and slices.

use std::arch::x86_64::{
    __m128i, __m512i, _mm_loadu_si128, _mm_set_epi8, _mm_shuffle_epi8, _mm_storeu_si128,
    _mm_xor_si128, _mm512_broadcast_i32x4, _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8,
    _mm512_maskz_mov_epi8, _mm512_shuffle_epi8, _mm512_xor_si512, _mm512_zextsi128_si512,
};

use super::wide::{LANES, POWERS, Powers, Sum, VECTOR, powers_at};
use crate::aes::BLOCK;
use crate::stream::wide::{Counters, RoundKeys, encrypt_counter};

/// Vectors at once.
const TURN: usize = 8;

/// A packet: what is authenticated beside the text as a block filled up with zeros, and the block of lengths.
pub(super) struct Frame<'a> {
    pub(super) nonce: &'a [u8; 12],
    pub(super) front: &'a [u8; BLOCK],
    pub(super) lengths: &'a [u8; BLOCK],
}

/// Encrypts (`SEALS`) or decrypts a text, and returns the check value of what is encrypted.
#[inline]
pub(super) fn run<const SEALS: bool>(
    keys: &RoundKeys,
    powers: &Powers,
    frame: &Frame<'_>,
    text: &mut [u8],
) -> [u8; BLOCK] {
    // SAFETY: values of these types exist only where the features are that the function enables.
    unsafe { pass::<SEALS>(keys, &powers.0, frame, text) }
}

/// The hash so far.
struct Hash<'p> {
    powers: &'p [[u64; 2]; POWERS],
    sum: Sum,
    /// The power of the next block; behind the last one the sum is reduced.
    at: usize,
    /// Blocks to come.
    left: usize,
}

impl<'p> Hash<'p> {
    /// Of so many blocks, the first of which comes alone.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(powers: &'p [[u64; 2]; POWERS], blocks: usize) -> Self {
        // All of them, or the first one and as many vectors as there are powers for.
        let count = if blocks <= POWERS { blocks } else { 1 + (POWERS - 1) / LANES * LANES };
        Self { powers, sum: Sum::zero(), at: POWERS - count, left: blocks }
    }

    /// Adds a vector with so many blocks, and zeros behind them. Bytes are in the order of the hash.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,vpclmulqdq,pclmulqdq,ssse3")]
    fn add(&mut self, mut blocks: __m512i, count: usize) {
        if self.at == POWERS {
            let so_far = self.sum.reduced();
            self.sum = Sum::zero();
            self.at = POWERS - self.left.min(POWERS);
            blocks = _mm512_xor_si512(blocks, _mm512_zextsi128_si512(so_far));
        }
        self.sum.add(blocks, powers_at(self.powers, self.at));
        self.at += count;
        self.left -= count;
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,vaes,aes,vpclmulqdq,pclmulqdq,ssse3")]
fn pass<const SEALS: bool>(
    keys: &RoundKeys,
    powers: &[[u64; 2]; POWERS],
    frame: &Frame<'_>,
    text: &mut [u8],
) -> [u8; BLOCK] {
    let reverse = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    // SAFETY: `block` is 16 initialised bytes; the load needs no alignment.
    let load = |block: &[u8; BLOCK]| unsafe { _mm_loadu_si128(block.as_ptr().cast::<__m128i>()) };
    let one = |block| _mm512_zextsi128_si512(_mm_shuffle_epi8(load(block), reverse));
    let mask = encrypt_counter(keys, frame.nonce, 1);
    let mut counters = Counters::new(frame.nonce, 2);
    let mut hash = Hash::new(powers, text.len().div_ceil(BLOCK) + 2);
    hash.add(one(frame.front), 1);
    for turn in text.chunks_mut(TURN * VECTOR) {
        match turn.len().div_ceil(VECTOR) {
            1 => vectors::<1, SEALS>(keys, &mut counters, &mut hash, turn),
            2 => vectors::<2, SEALS>(keys, &mut counters, &mut hash, turn),
            3 => vectors::<3, SEALS>(keys, &mut counters, &mut hash, turn),
            4 => vectors::<4, SEALS>(keys, &mut counters, &mut hash, turn),
            5 => vectors::<5, SEALS>(keys, &mut counters, &mut hash, turn),
            6 => vectors::<6, SEALS>(keys, &mut counters, &mut hash, turn),
            7 => vectors::<7, SEALS>(keys, &mut counters, &mut hash, turn),
            _ => vectors::<TURN, SEALS>(keys, &mut counters, &mut hash, turn),
        }
    }
    hash.add(one(frame.lengths), 1);
    let tag = _mm_xor_si128(_mm_shuffle_epi8(hash.sum.reduced(), reverse), mask);
    let mut out = [0; BLOCK];
    // SAFETY: `out` is 16 bytes of our own; the store needs no alignment.
    unsafe { _mm_storeu_si128(out.as_mut_ptr().cast::<__m128i>(), tag) };
    out
}

/// `N` vectors of text, the last of which may be a part.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,vaes,vpclmulqdq,pclmulqdq,ssse3")]
fn vectors<const N: usize, const SEALS: bool>(
    keys: &RoundKeys,
    counters: &mut Counters,
    hash: &mut Hash<'_>,
    text: &mut [u8],
) {
    let reverse = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let reverse = _mm512_broadcast_i32x4(reverse);
    let stream = counters.stream::<N>(keys);
    for (part, stream) in text.chunks_mut(VECTOR).zip(stream) {
        let mask = u64::MAX >> (VECTOR - part.len()); // a part has a byte at least
        // SAFETY: the mask has a bit for each byte of `part`; no other bytes are read or written.
        let (before, after) = unsafe {
            let before = _mm512_maskz_loadu_epi8(mask, part.as_ptr().cast::<i8>());
            let after = _mm512_xor_si512(before, stream);
            _mm512_mask_storeu_epi8(part.as_mut_ptr().cast::<i8>(), mask, after);
            (before, after)
        };
        let sealed = if SEALS { _mm512_maskz_mov_epi8(mask, after) } else { before };
        hash.add(_mm512_shuffle_epi8(sealed, reverse), part.len().div_ceil(BLOCK));
    }
}
