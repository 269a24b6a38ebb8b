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
    __m128i, __m512i, _MM_HINT_T0, _mm_prefetch, _mm_set_epi8, _mm_set_epi64x, _mm_setzero_si128,
    _mm_shuffle_epi8, _mm_storeu_si128, _mm_xor_si128, _mm512_broadcast_i32x4, _mm512_loadu_si512,
    _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_maskz_mov_epi8, _mm512_shuffle_epi8,
    _mm512_storeu_si512, _mm512_xor_si512, _mm512_zextsi128_si512,
};

use super::wide::{LANES, POWERS, Powers, Sum, Table, VECTOR, powers_at};
use crate::aes::BLOCK;
use crate::stream::wide::{Counters, RoundKeys, encrypt_counter};

/// Vectors at once.
const TURN: usize = 8;

/// A packet: what is authenticated beside the text as a block filled up with zeros, if there is any, and the block of lengths. Blocks
/// are numbers whose first byte is the highest, as the hash has them.
pub(super) struct Frame<'a> {
    pub(super) nonce: &'a [u8; 12],
    pub(super) front: Option<u128>,
    pub(super) lengths: u128,
    /// Where a packet begins that comes soon: it is loaded line by line, as this one goes on. All at once would be more than a
    /// processor has on its way, which drops the rest.
    pub(super) ahead: *const u8,
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
    powers: &'p Table,
    sum: Sum,
    /// What was reduced, for the first block of the next sum.
    carry: __m128i,
}

impl Hash<'_> {
    /// Adds a vector of blocks, the first of which goes by the power at place `at`, and zeros behind them. Bytes are in the
    /// order of the hash.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,vpclmulqdq,pclmulqdq,ssse3")]
    fn add(&mut self, blocks: __m512i, at: usize) {
        self.sum.add(blocks, powers_at(self.powers, at));
    }

    /// The same of the first vector of a sum.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,vpclmulqdq,pclmulqdq,ssse3")]
    fn add_first(&mut self, blocks: __m512i, at: usize) {
        self.add(_mm512_xor_si512(blocks, _mm512_zextsi128_si512(self.carry)), at);
    }

    /// A sum of a turn, the first block of which goes by the power at place `at`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,vpclmulqdq,pclmulqdq,ssse3")]
    fn add_turn(&mut self, blocks: &[__m512i; TURN], at: usize) {
        let [first, more @ ..] = blocks;
        self.add_first(*first, at);
        for (place, own) in (1..).zip(more) {
            self.add(*own, at + place * LANES);
        }
        self.reduce();
    }

    /// Ends a sum.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,vpclmulqdq,pclmulqdq,ssse3")]
    fn reduce(&mut self) {
        self.carry = self.sum.reduced();
        self.sum = Sum::zero();
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,vaes,aes,vpclmulqdq,pclmulqdq,ssse3")]
fn pass<const SEALS: bool>(
    keys: &RoundKeys,
    powers: &Table,
    frame: &Frame<'_>,
    text: &mut [u8],
) -> [u8; BLOCK] {
    let reverse = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let one = |block: u128| {
        let (high, low) = ((block >> 64) as u64, block as u64);
        _mm512_zextsi128_si512(_mm_set_epi64x(high.cast_signed(), low.cast_signed()))
    };
    let mask = encrypt_counter(keys, frame.nonce, 1);
    let mut counters = Counters::new(frame.nonce, 2);
    let (turns, rest) = text.as_chunks_mut::<{ TURN * VECTOR }>();
    // Sums are those of turns, the first with the block in front, and that of what is left with the block of lengths.
    let last = POWERS - 1 - rest.len().div_ceil(BLOCK);
    let first = if turns.is_empty() { last } else { POWERS - TURN * LANES };
    let mut hash = Hash { powers, sum: Sum::zero(), carry: _mm_setzero_si128() };
    if let Some(front) = frame.front {
        hash.add(one(front), first - 1);
    }
    let is_even = rest.is_empty();
    let mut ahead = frame.ahead;
    let at = POWERS - TURN * LANES;
    if SEALS {
        // What is encrypted is hashed behind the rounds of the next turn, so that none waits for the other.
        let mut turns = turns.iter_mut();
        if let Some(turn) = turns.next() {
            let stream = counters.stream::<TURN>(keys);
            let mut waiting = sealed(&stream, turn, ahead);
            for turn in turns {
                ahead = ahead.wrapping_add(TURN * VECTOR);
                let stream = counters.stream::<TURN>(keys);
                hash.add_turn(&waiting, at);
                waiting = sealed(&stream, turn, ahead);
            }
            ahead = ahead.wrapping_add(TURN * VECTOR);
            hash.add_turn(&waiting, at);
        }
    } else {
        for turn in turns {
            vectors::<TURN, true, SEALS>(keys, &mut counters, &mut hash, at, (turn, ahead));
            ahead = ahead.wrapping_add(TURN * VECTOR);
            hash.reduce();
        }
    }
    let rest = (rest, ahead);
    match rest.0.len().div_ceil(VECTOR) {
        0 => {}
        1 => vectors::<1, false, SEALS>(keys, &mut counters, &mut hash, last, rest),
        2 => vectors::<2, false, SEALS>(keys, &mut counters, &mut hash, last, rest),
        3 => vectors::<3, false, SEALS>(keys, &mut counters, &mut hash, last, rest),
        4 => vectors::<4, false, SEALS>(keys, &mut counters, &mut hash, last, rest),
        5 => vectors::<5, false, SEALS>(keys, &mut counters, &mut hash, last, rest),
        6 => vectors::<6, false, SEALS>(keys, &mut counters, &mut hash, last, rest),
        7 => vectors::<7, false, SEALS>(keys, &mut counters, &mut hash, last, rest),
        _ => vectors::<TURN, false, SEALS>(keys, &mut counters, &mut hash, last, rest),
    }
    match is_even {
        true => hash.add_first(one(frame.lengths), POWERS - 1),
        false => hash.add(one(frame.lengths), POWERS - 1),
    }
    let tag = _mm_xor_si128(_mm_shuffle_epi8(hash.sum.reduced(), reverse), mask);
    let mut out = [0; BLOCK];
    // SAFETY: `out` is 16 bytes of our own; the store needs no alignment.
    unsafe { _mm_storeu_si128(out.as_mut_ptr().cast::<__m128i>(), tag) };
    out
}

/// Adds the key stream to a turn, and returns it in the order of the hash.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn sealed(
    stream: &[__m512i; TURN],
    turn: &mut [u8; TURN * VECTOR],
    ahead: *const u8,
) -> [__m512i; TURN] {
    let reverse = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let reverse = _mm512_broadcast_i32x4(reverse);
    let mut blocks = *stream;
    let parts = turn.as_chunks_mut::<VECTOR>().0;
    for (at, (part, block)) in parts.iter_mut().zip(&mut blocks).enumerate() {
        _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(at * VECTOR).cast());
        // SAFETY: `part` is 64 initialised bytes of our own; load and store need no alignment.
        let after = unsafe {
            let before = _mm512_loadu_si512(part.as_ptr().cast::<__m512i>());
            let after = _mm512_xor_si512(before, *block);
            _mm512_storeu_si512(part.as_mut_ptr().cast::<__m512i>(), after);
            after
        };
        *block = _mm512_shuffle_epi8(after, reverse);
    }
    blocks
}

/// `N` vectors of text, the last of which may be a part unless it `IS_WHOLE`. The first block goes by the power at place `from`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,vaes,vpclmulqdq,pclmulqdq,ssse3")]
fn vectors<const N: usize, const IS_WHOLE: bool, const SEALS: bool>(
    keys: &RoundKeys,
    counters: &mut Counters,
    hash: &mut Hash<'_>,
    from: usize,
    (text, ahead): (&mut [u8], *const u8),
) {
    let reverse = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let reverse = _mm512_broadcast_i32x4(reverse);
    let stream = counters.stream::<N>(keys);
    let (parts, end) = text.split_at_mut((N - 1) * VECTOR);
    let parts = parts.as_chunks_mut::<VECTOR>().0;
    // A byte at least, a vector at most.
    assert!((1..=VECTOR).contains(&end.len()) && (!IS_WHOLE || end.len() == VECTOR));
    let mask = if IS_WHOLE { u64::MAX } else { u64::MAX >> (VECTOR - end.len()) };
    // A loop of constant length, so that the key stream stays in registers.
    for at in 0..N {
        _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(at * VECTOR).cast());
        let sealed = if at + 1 < N {
            let part = &mut parts[at];
            // SAFETY: `part` is 64 initialised bytes of our own; load and store need no alignment.
            let (before, after) = unsafe {
                let before = _mm512_loadu_si512(part.as_ptr().cast::<__m512i>());
                let after = _mm512_xor_si512(before, stream[at]);
                _mm512_storeu_si512(part.as_mut_ptr().cast::<__m512i>(), after);
                (before, after)
            };
            if SEALS { after } else { before }
        } else {
            // SAFETY: the mask has a bit for each byte of `end`, as seen above; no other bytes are read or written.
            let (before, after) = unsafe {
                let before = _mm512_maskz_loadu_epi8(mask, end.as_ptr().cast::<i8>());
                let after = _mm512_xor_si512(before, stream[at]);
                _mm512_mask_storeu_epi8(end.as_mut_ptr().cast::<i8>(), mask, after);
                (before, after)
            };
            if SEALS { _mm512_maskz_mov_epi8(mask, after) } else { before }
        };
        let blocks = _mm512_shuffle_epi8(sealed, reverse);
        match at {
            0 => hash.add_first(blocks, from),
            _ => hash.add(blocks, from + at * LANES),
        }
    }
}
