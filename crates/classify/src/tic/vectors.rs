//! Many headers at once, with AVX-512: sixteen through the tree, then an instruction of sixteen at a time.
//!
//! Lists differ in length, so headers that have their answer leave, and the others close up: every vector of
//! the interpreter but the last is full.

use std::arch::x86_64::*;

use interleave::prefetch;

use super::code::*;
use super::view::*;
use crate::reduction::frame::*;
use crate::reduction::vectors::*;
use crate::rule::Match;

/// Headers that are interpreted together.
const BATCH: usize = 256;

/// Headers without an answer yet, column by column; the first `live` count.
#[derive(Debug)]
struct Queue {
    /// Which header of the batch.
    number: [u32; BATCH],
    ports: [u32; BATCH],
    proto: [u32; BATCH],
    /// The instruction.
    at: [u32; BATCH],
    /// The upper half of rule numbers; bit 0: the instruction does not count.
    base: [u32; BATCH],
    live: usize,
    /// 1 + the rule that each header of the batch found, or 0.
    found: [u32; BATCH],
}

/// Classes of ports as a table for permutations.
const fn classes(of: [u32; 8]) -> [u32; LANES] {
    let mut all = [0; LANES];
    let mut at = 0;
    while at < of.len() {
        all[at] = of[at];
        at += 1;
    }
    all
}

const OPERANDS16: [u32; LANES] = classes(OPERANDS);
const LOWS16: [u32; LANES] = classes(LOWS);
const HIGHS16: [u32; LANES] = classes(HIGHS);

impl Tic<'_> {
    /// All headers, sixteen at once.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn run_vectors(&self, headers: &[[u32; WORDS]], out: &mut [Match]) {
        let none = [0; BATCH];
        let mut queue = Queue {
            number: std::array::from_fn(|at| at as u32),
            ports: none,
            proto: none,
            at: none,
            base: none,
            live: 0,
            found: none,
        };
        for (headers, out) in headers.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
            // SAFETY: the features are this function's; an image that `Frame::new` took has a header, and fewer
            // words than 2^31.
            unsafe {
                self.trees(headers, &mut queue);
                while queue.live > 0 {
                    self.instructions(&mut queue);
                }
            }
            for (out, number) in out.iter_mut().zip(queue.found) {
                *out = self.frame.place(number);
            }
        }
    }

    /// Fills the queue.
    ///
    /// # Safety
    /// The processor has AVX-512 F; the image has one word to 2^31.
    #[inline(always)]
    unsafe fn trees(&self, headers: &[[u32; WORDS]], queue: &mut Queue) {
        queue.live = headers.len();
        let groups = headers.len().div_ceil(LANES);
        // Phase by phase, so that no vector waits for the one before: strip and column of both sides, then of the pair.
        let mut sides = [[[0; LANES]; 4]; BATCH / LANES];
        let mut pairs = [[[0; LANES]; 2]; BATCH / LANES];
        for (side, headers) in sides.iter_mut().zip(headers.chunks(LANES)) {
            let words = columns(headers);
            // SAFETY: the caller's promises.
            unsafe { store_all(side, strips16(&self.frame, &words)) }
        }
        for (pair, side) in pairs.iter_mut().zip(&sides).take(groups) {
            // SAFETY: the caller's promises.
            unsafe {
                store_all(pair, pairs16(&self.frame, side.each_ref().map(|at| load(at))));
            }
        }
        for (group, headers) in headers.chunks(LANES).enumerate() {
            let words = columns(headers);
            let lane = group * LANES..(group + 1) * LANES;
            let mut at = [0; LANES];
            // SAFETY: the caller's promises.
            unsafe {
                let unit = _mm512_set1_epi32(self.unit.cast_signed());
                let [strip, column] = pairs[group].each_ref().map(|at| load(at));
                let entry = in_strip16(&self.frame, ADDRESSES, strip, column);
                store(&mut at, _mm512_mullo_epi32(entry, unit));
            }
            for at in at {
                if let Some(word) = self.code.get(at as usize) {
                    prefetch(word);
                }
            }
            queue.at[lane.clone()].copy_from_slice(&at);
            queue.ports[lane.clone()].copy_from_slice(&words[2]);
            queue.proto[lane.clone()].copy_from_slice(&words[3].map(|word| word >> 24));
            queue.base[lane.clone()].fill(0);
            for (number, at) in queue.number[lane.clone()].iter_mut().zip(lane) {
                *number = at as u32;
            }
        }
    }

    /// Executes an instruction of every header of the queue.
    ///
    /// # Safety
    /// As [`Tic::trees`].
    #[inline(always)]
    unsafe fn instructions(&self, queue: &mut Queue) {
        let mut kept = 0;
        for first in (0..queue.live).step_by(LANES) {
            let there = (queue.live - first).min(LANES);
            let there = u16::MAX >> (LANES - there);
            let of = |column: &[u32; BATCH]| -> [u32; LANES] {
                column[first..].first_chunk().copied().unwrap_or([0; LANES])
            };
            let (number, ports, proto) = (of(&queue.number), of(&queue.ports), of(&queue.proto));
            let (at, base) = (of(&queue.at), of(&queue.base));
            // SAFETY: the caller's promises. What is kept is written up to `kept` + 16 ≤ `first` + 16 ≤ BATCH words
            // into columns that were read up to there.
            unsafe {
                let all = |value: u32| _mm512_set1_epi32(value.cast_signed());
                let (ports, proto, at, base) = (load(&ports), load(&proto), load(&at), load(&base));
                let code = all(self.frame.code[0]);
                let here = _mm512_add_epi32(at, code);
                let word = words16(self.frame.image, here);
                let operator = _mm512_srli_epi32::<24>(word);
                let dclass = _mm512_and_si512(operator, all(7));
                let sclass = _mm512_and_si512(_mm512_srli_epi32::<3>(operator), all(7));
                let of_sport = _mm512_permutexvar_epi32(sclass, load(&OPERANDS16));
                let of_dport = _mm512_permutexvar_epi32(dclass, load(&OPERANDS16));
                let count = _mm512_add_epi32(of_sport, of_dport);
                let length = _mm512_srli_epi32::<1>(_mm512_add_epi32(count, all(3)));
                let word_1 = words16(self.frame.image, _mm512_add_epi32(here, all(1)));
                let long = _mm512_cmpgt_epu32_mask(count, all(2));
                let word_2 = match long {
                    0 => _mm512_setzero_si512(),
                    _ => words16(self.frame.image, _mm512_add_epi32(here, all(2))),
                };
                let (sport, dport) = split(ports);
                let in_sport = range16(sport, sclass, of_sport, word_1);
                // The operands behind those of the source port: shifts by 32 give 0.
                let shift = _mm512_slli_epi32::<4>(of_sport);
                let behind = _mm512_or_si512(
                    _mm512_srlv_epi32(word_1, shift),
                    _mm512_sllv_epi32(word_2, _mm512_sub_epi32(all(32), shift)),
                );
                let in_dport = range16(dport, dclass, of_dport, behind);
                let value = _mm512_and_si512(_mm512_srli_epi32::<16>(word), all(0xff));
                let any_proto = _mm512_testn_epi32_mask(operator, all(PROTO));
                let in_proto = any_proto | _mm512_cmpeq_epi32_mask(value, proto);
                let skipped = _mm512_test_epi32_mask(base, all(1));
                let special = _mm512_cmpeq_epi32_mask(sclass, all(SPECIAL)) & there;
                let matched = in_sport & in_dport & in_proto & !skipped & !special;
                // Beyond the code a list ends.
                let beyond = _mm512_cmpge_epu32_mask(at, all(self.code.len() as u32));
                let matched = matched & !beyond;
                let ended = matched | beyond | _mm512_test_epi32_mask(operator, all(LAST));
                let rule = _mm512_and_si512(word, all(0xffff));
                let upper = _mm512_and_si512(base, all(0xffff_0000));
                let rule = _mm512_add_epi32(_mm512_or_si512(upper, rule), all(1));
                let rule = _mm512_maskz_mov_epi32(matched, rule);
                let mut next = _mm512_add_epi32(at, length);
                let mut next_base = upper;
                if special != 0 {
                    let is = |kind| special & _mm512_cmpeq_epi32_mask(dclass, all(kind));
                    let block = _mm512_or_si512(at, all(self.block_mask));
                    next = _mm512_mask_add_epi32(next, is(NOP), block, all(1));
                    // A NOP leaves the guard as it is.
                    next_base = _mm512_mask_mov_epi32(next_base, is(NOP), base);
                    let shifted = _mm512_slli_epi32::<16>(word);
                    next_base = _mm512_mask_mov_epi32(next_base, is(BASE), shifted);
                    let mask = _mm512_and_si512(_mm512_srli_epi32::<8>(word), all(0xff));
                    let differs = _mm512_test_epi32_mask(_mm512_xor_si512(value, proto), mask);
                    let guards = is(GUARD) & differs;
                    next_base = _mm512_mask_or_epi32(next_base, guards, next_base, all(1));
                }
                let (ended, going) = (ended & there, !ended & there);
                let mut numbers = [0; LANES];
                let mut rules = [0; LANES];
                _mm512_mask_compressstoreu_epi32(numbers.as_mut_ptr().cast(), ended, load(&number));
                _mm512_mask_compressstoreu_epi32(rules.as_mut_ptr().cast(), ended, rule);
                for (number, rule) in numbers.iter().zip(rules).take(ended.count_ones() as usize) {
                    queue.found[*number as usize % BATCH] = rule;
                }
                let keep = |column: &mut [u32; BATCH], value: __m512i| {
                    if let Some(column) = column[kept..].first_chunk_mut::<LANES>() {
                        _mm512_mask_compressstoreu_epi32(column.as_mut_ptr().cast(), going, value);
                    }
                };
                keep(&mut queue.number, load(&number));
                keep(&mut queue.ports, ports);
                keep(&mut queue.proto, proto);
                keep(&mut queue.at, next);
                keep(&mut queue.base, next_base);
                // Those that go on in the next block.
                let over = _mm512_cmpgt_epu32_mask(next, _mm512_or_si512(at, all(self.block_mask)));
                if over & going != 0 {
                    let mut next_words = [0; LANES];
                    store(&mut next_words, next);
                    for at in next_words {
                        if let Some(word) = self.code.get(at as usize) {
                            prefetch(word);
                        }
                    }
                }
                kept += going.count_ones() as usize;
            }
        }
        queue.live = kept;
    }
}

/// Whether ports are in the ranges of their classes, with operands in the lower and upper half of a word.
///
/// # Safety
/// The processor has AVX-512 F.
#[inline(always)]
unsafe fn range16(port: __m512i, class: __m512i, count: __m512i, operands: __m512i) -> __mmask16 {
    // SAFETY: AVX-512 F is the caller's promise.
    unsafe {
        let (second, first) = split(operands);
        let given = _mm512_test_epi32_mask(count, count);
        let two = _mm512_test_epi32_mask(count, _mm512_set1_epi32(2));
        let low = _mm512_permutexvar_epi32(class, load(&LOWS16));
        let low = _mm512_mask_mov_epi32(low, given, first);
        let high = _mm512_permutexvar_epi32(class, load(&HIGHS16));
        let high = _mm512_mask_mov_epi32(high, given, first);
        let high = _mm512_mask_mov_epi32(high, two, second);
        _mm512_cmple_epu32_mask(_mm512_sub_epi32(port, low), _mm512_sub_epi32(high, low))
    }
}
