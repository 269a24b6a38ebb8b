//! The batch with eight searches to a vector; leaf of unsafe code.
//!
//! First every address is asked at its cell ([`start`]): where nothing longer touches its part of the
//! cell, that is the answer. What is left waits in a list for a place in one of the vectors.
//!
//! Each vector takes one step at a time: gather the lines' keys, compare, and gather rope and best
//! match where they hit. Lanes that have ended write their answer and take a new search at once, so
//! that all lanes stay busy however long the searches are. Several vectors take turns: the lines of
//! one are on their way while the others step.

use std::arch::x86_64::*;

use super::Bspl;
use super::layout::WORDS_PER_LINE;
use crate::arch::prefetch_at;
use crate::{Key6, NextHopId};

/// Vectors that take turns. Measured: 2 wait for memory, 4 and 6 are alike, from 8 on it slows.
const VECTORS: usize = 4;

/// Eight searches between two steps. All lanes are u64.
#[derive(Clone, Copy)]
struct Lanes {
    live: __mmask8, // the others' lanes hold anything
    high: __m512i,
    low: __m512i,
    rope: __m512i,   // its first length is the one to probe; 0: the search has ended
    bucket: __m512i, // of that probe
    best: __m512i,
    index: __m512i, // in the batch
}

/// Addresses that are asked at their cells before the searches among them begin.
const BLOCK: usize = 256;

/// Searches that a cell did not end, one behind the other; the first `len` places are in use.
struct Pending {
    high: [u64; BLOCK + 8],
    low: [u64; BLOCK + 8],
    rope: [u64; BLOCK + 8],
    best: [u64; BLOCK + 8],
    index: [u64; BLOCK + 8],
    len: usize,
}

/// What a probe found, by lane.
#[derive(Clone, Copy)]
struct Found {
    hit: __mmask8,
    rope: __m512i,  // where hit
    best: __m512i,  // where hit
    full: __mmask8, // no hit, and the bucket overflowed: the next one may have it
}

/// Whether [`batch`] may be called.
#[inline]
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq")
}

/// Looks up all keys; `out` is as long as `keys`.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) fn batch(table: &Bspl<'_>, keys: &[Key6], out: &mut [NextHopId]) {
    assert_eq!(keys.len(), out.len());
    let none = [0; BLOCK + 8];
    let mut pending =
        Pending { high: none, low: none, rope: none, best: none, index: none, len: 0 };
    for (keys, out) in keys.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
        start(table, keys, out, &mut pending);
        search(table, &pending, out);
    }
}

/// Asks at most `BLOCK` addresses at their cells: writes the answers known so far to `out`, which is as
/// long as `keys`, and lists the searches that go on.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn start(table: &Bspl<'_>, keys: &[Key6], out: &mut [NextHopId], pending: &mut Pending) {
    assert!(keys.len() == out.len() && keys.len() <= BLOCK);
    let default = _mm512_set1_epi64(i64::from(table.default));
    let cells = table.cells.as_flattened().as_ptr();
    let mut index = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    pending.len = 0;
    for (keys, out) in keys.chunks(8).zip(out.chunks_mut(8)) {
        let mask = ((1_u32 << keys.len()) - 1) as __mmask8;
        let words = keys.as_flattened().as_ptr().cast::<i64>();
        let word_mask = ((1_u64 << (2 * keys.len())) - 1) as u32;
        // SAFETY: the masks let through two words for each key, which are there.
        let (left, right) = unsafe {
            (
                _mm512_maskz_loadu_epi64(word_mask as __mmask8, words),
                _mm512_maskz_loadu_epi64((word_mask >> 8) as __mmask8, words.wrapping_add(8)),
            )
        };
        let even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
        let odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
        let high = _mm512_permutex2var_epi64(left, even, right);
        let low = _mm512_permutex2var_epi64(left, odd, right);
        let cell = _mm512_slli_epi64::<1>(_mm512_srli_epi64::<48>(high));
        // SAFETY: 16 bits number one of the 2^16 cells; each has two words.
        let (rope, rest) =
            unsafe { (gather::<0>(mask, cell, cells), gather::<1>(mask, cell, cells)) };
        let best = _mm512_and_si512(rest, _mm512_set1_epi64(0xffff_ffff));
        let none = _mm512_testn_epi64_mask(best, best);
        let answer = _mm512_mask_mov_epi64(best, none, default);
        // SAFETY: the mask lets through one answer for each of `out`, which is as long as `keys`.
        unsafe { _mm512_mask_cvtepi64_storeu_epi32(out.as_mut_ptr().cast(), mask, answer) };
        // `layout::cell_rope`
        let part = _mm512_and_si512(_mm512_srli_epi64::<43>(high), _mm512_set1_epi64(31));
        let part = _mm512_add_epi64(part, _mm512_set1_epi64(32));
        let used =
            _mm512_mask_test_epi64_mask(mask, _mm512_srlv_epi64(rest, part), _mm512_set1_epi64(1));
        let goes_on = _mm512_mask_test_epi64_mask(used, rope, rope);
        let at = pending.len;
        store(&mut pending.high, at, _mm512_maskz_compress_epi64(goes_on, high));
        store(&mut pending.low, at, _mm512_maskz_compress_epi64(goes_on, low));
        store(&mut pending.rope, at, _mm512_maskz_compress_epi64(goes_on, rope));
        store(&mut pending.best, at, _mm512_maskz_compress_epi64(goes_on, best));
        store(&mut pending.index, at, _mm512_maskz_compress_epi64(goes_on, index));
        pending.len += goes_on.count_ones() as usize;
        index = _mm512_add_epi64(index, _mm512_set1_epi64(8));
    }
}

/// Stores eight lanes from place `at` on.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn store(list: &mut [u64; BLOCK + 8], at: usize, lanes: __m512i) {
    let Some(place) = list[at..].first_chunk_mut::<8>() else { return };
    // SAFETY: eight u64 are 64 bytes; the store needs no alignment.
    unsafe { _mm512_storeu_si512(place.as_mut_ptr().cast(), lanes) };
}

/// Ends the searches of `pending`, whose indices are places in `out`.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn search(table: &Bspl<'_>, pending: &Pending, out: &mut [NextHopId]) {
    let zero = _mm512_setzero_si512();
    let empty =
        Lanes { live: 0, high: zero, low: zero, rope: zero, bucket: zero, best: zero, index: zero };
    let mut vectors = [empty; VECTORS];
    let mut next = 0;
    let mut live = 0;
    for lanes in vectors.iter_mut().take(pending.len.div_ceil(8)) {
        refill(lanes, 0xff, pending, &mut next);
        aim(table, lanes, 0);
        live += lanes.live.count_ones();
    }
    while live > 0 {
        live = 0;
        for lanes in vectors.iter_mut().filter(|lanes| lanes.live != 0) {
            let full = step(table, lanes);
            let ended = lanes.live & _mm512_testn_epi64_mask(lanes.rope, lanes.rope);
            if ended != 0 {
                answer(table, lanes, ended, out);
                lanes.live &= !ended;
                refill(lanes, ended, pending, &mut next);
            }
            aim(table, lanes, full);
            live += lanes.live.count_ones();
        }
    }
}

/// One probe for each live lane: the rope after it. The lanes whose next bucket is to be tried keep
/// theirs and are returned.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn step(table: &Bspl<'_>, lanes: &mut Lanes) -> __mmask8 {
    let len = _mm512_and_si512(lanes.rope, _mm512_set1_epi64(0xff));
    let probing = lanes.live & _mm512_test_epi64_mask(len, len);
    let wide = _mm512_mask_cmpge_epu64_mask(probing, len, _mm512_set1_epi64(64));
    let mut found = probe_narrow(table, lanes, len, probing & !wide);
    if wide != 0 {
        let other = probe_wide(table, lanes, len, wide);
        found.hit |= other.hit;
        found.full |= other.full;
        found.rope = _mm512_mask_mov_epi64(found.rope, wide, other.rope);
        found.best = _mm512_mask_mov_epi64(found.best, wide, other.best);
    }
    let missed = _mm512_mask_srli_epi64::<8>(lanes.rope, !found.full, lanes.rope);
    lanes.rope = _mm512_mask_mov_epi64(missed, found.hit, found.rope);
    let better = _mm512_mask_test_epi64_mask(found.hit, found.best, found.best);
    lanes.best = _mm512_mask_mov_epi64(lanes.best, better, found.best);
    found.full
}

/// Gathers words of 8 bytes: word `WORD` of lines `first[bucket]`, of the lanes in `mask`.
///
/// # Safety
/// For each lane in `mask`, `at` is a word that starts a line, or `WORD` words before the end of
/// one, of those that `first` points to.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn gather<const WORD: usize>(mask: __mmask8, at: __m512i, first: *const u64) -> __m512i {
    // SAFETY: the caller's; lanes outside the mask are not read.
    unsafe {
        let zero = _mm512_setzero_si512();
        _mm512_mask_i64gather_epi64::<8>(zero, mask, at, first.add(WORD).cast())
    }
}

/// Gathers the best match of a slot: `at` counts halves of words, of those `first` points to.
///
/// # Safety
/// For each lane in `mask`, the 8 bytes from half word `at` lie in the lines.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn gather_best(mask: __mmask8, at: __m512i, first: *const u64) -> __m512i {
    // SAFETY: the caller's; lanes outside the mask are not read.
    let words = unsafe {
        let zero = _mm512_setzero_si512();
        _mm512_mask_i64gather_epi64::<4>(zero, mask, at, first.add(6).cast())
    };
    _mm512_and_si512(words, _mm512_set1_epi64(0xffff_ffff))
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn probe_narrow(table: &Bspl<'_>, lanes: &Lanes, len: __m512i, mask: __mmask8) -> Found {
    let key = narrow_keys(lanes.high, len);
    let line = _mm512_slli_epi64::<3>(lanes.bucket);
    let lines = table.narrow.as_flattened().as_ptr();
    // SAFETY: the bucket of a live lane with a length of 1 to 63 is one of `table.narrow` (`aim`),
    // so its line's words 0 to 7 are there.
    let words = unsafe {
        [
            gather::<0>(mask, line, lines),
            gather::<1>(mask, line, lines),
            gather::<2>(mask, line, lines),
        ]
    };
    let is_key = words.map(|word| _mm512_mask_cmpeq_epi64_mask(mask, word, key));
    let hit = is_key[0] | is_key[1] | is_key[2];
    let mut slot = _mm512_maskz_set1_epi64(is_key[1], 1);
    slot = _mm512_mask_mov_epi64(slot, is_key[2], _mm512_set1_epi64(2));
    // SAFETY: as above. `slot` is 0 to 2: rope words 3 to 5 of the line; best matches from half
    // words 12 to 14, whose 8 bytes end with the line at the latest. Word 7 is in the line.
    let (rope, best, last) = unsafe {
        (
            gather::<3>(hit, _mm512_add_epi64(line, slot), lines),
            gather_best(hit, _mm512_add_epi64(_mm512_slli_epi64::<1>(line), slot), lines),
            gather::<7>(mask & !hit, line, lines),
        )
    };
    Found { hit, rope, best, full: overflowed(mask & !hit, last) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn probe_wide(table: &Bspl<'_>, lanes: &Lanes, len: __m512i, mask: __mmask8) -> Found {
    let low = wide_low(lanes.low, len);
    let line = _mm512_slli_epi64::<3>(lanes.bucket);
    let lines = table.wide.as_flattened().as_ptr();
    // SAFETY: the bucket of a live lane with a length of 64 and more is one of `table.wide`
    // (`aim`), so its line's words 0 to 7 are there.
    let (words, last) = unsafe {
        (
            [
                [gather::<0>(mask, line, lines), gather::<1>(mask, line, lines)],
                [gather::<2>(mask, line, lines), gather::<3>(mask, line, lines)],
            ],
            gather::<7>(mask, line, lines),
        )
    };
    let byte = _mm512_set1_epi64(0xff);
    let lens = [_mm512_and_si512(last, byte), _mm512_and_si512(_mm512_srli_epi64::<8>(last), byte)];
    let is_key = [0, 1].map(|slot| {
        let mask = _mm512_mask_cmpeq_epi64_mask(mask, lens[slot], len);
        let mask = _mm512_mask_cmpeq_epi64_mask(mask, words[slot][0], lanes.high);
        _mm512_mask_cmpeq_epi64_mask(mask, words[slot][1], low)
    });
    let hit = is_key[0] | is_key[1];
    let slot = _mm512_maskz_set1_epi64(is_key[1], 1);
    // SAFETY: as above. `slot` is 0 or 1: rope words 4 and 5 of the line; best matches from half
    // words 12 and 13.
    let (rope, best) = unsafe {
        (
            gather::<4>(hit, _mm512_add_epi64(line, slot), lines),
            gather_best(hit, _mm512_add_epi64(_mm512_slli_epi64::<1>(line), slot), lines),
        )
    };
    Found { hit, rope, best, full: overflowed(mask & !hit, last) }
}

/// Of the lanes in `mask`, those whose bucket overflowed, by its last word.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn overflowed(mask: __mmask8, last: __m512i) -> __mmask8 {
    let high = _mm512_set1_epi64((!0_u64 << 32).cast_signed());
    _mm512_mask_test_epi64_mask(mask, last, high)
}

/// Writes the answers of the lanes in `ended`.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn answer(table: &Bspl<'_>, lanes: &Lanes, ended: __mmask8, out: &mut [NextHopId]) {
    let none = _mm512_testn_epi64_mask(lanes.best, lanes.best);
    let default = _mm512_set1_epi64(i64::from(table.default));
    let best = _mm512_mask_mov_epi64(lanes.best, none, default);
    // SAFETY: `ended` are live lanes; the index of one is a place in `out` (`start`). Lanes outside the
    // mask write nothing.
    unsafe {
        let best = _mm512_cvtepi64_epi32(best);
        _mm512_mask_i64scatter_epi32::<4>(out.as_mut_ptr().cast(), ended, lanes.index, best);
    }
}

/// Gives the lanes in `ended` the next searches, as far as there are any.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn refill(lanes: &mut Lanes, ended: __mmask8, pending: &Pending, next: &mut usize) {
    let mut taken = ended;
    while taken.count_ones() as usize > pending.len - *next {
        taken &= taken - 1;
    }
    let at = *next;
    *next += taken.count_ones() as usize;
    let take = |old, list: &[u64; BLOCK + 8]| {
        let from = list[at..].as_ptr().cast();
        // SAFETY: as many words are read as `taken` has lanes, from place `at` on: no more than are in
        // use.
        unsafe { _mm512_mask_expandloadu_epi64(old, taken, from) }
    };
    lanes.high = take(lanes.high, &pending.high);
    lanes.low = take(lanes.low, &pending.low);
    lanes.rope = take(lanes.rope, &pending.rope);
    lanes.best = take(lanes.best, &pending.best);
    lanes.index = take(lanes.index, &pending.index);
    lanes.live |= taken;
}

/// Sets the bucket of each lane's next probe and asks for its line; those in `full` go on to the bucket behind theirs.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn aim(table: &Bspl<'_>, lanes: &mut Lanes, full: __mmask8) {
    const { assert!(WORDS_PER_LINE == 8) };
    let len = _mm512_and_si512(lanes.rope, _mm512_set1_epi64(0xff));
    let wide = _mm512_cmpge_epu64_mask(len, _mm512_set1_epi64(64));
    let seed = _mm512_set1_epi64(table.shape.seed.cast_signed());
    let narrow_count = _mm512_set1_epi64(i64::from(table.shape.narrow));
    let key = narrow_keys(lanes.high, len);
    let hash = _mm512_mullo_epi64(_mm512_xor_si512(key, _mm512_srli_epi64::<32>(key)), seed);
    let mut count = narrow_count;
    let mut bucket = scale(hash, narrow_count);
    if wide != 0 {
        let wide_count = _mm512_set1_epi64(i64::from(table.shape.wide));
        let low_seed = _mm512_set1_epi64((table.shape.seed.rotate_left(24) | 1).cast_signed());
        let low = wide_low(lanes.low, len);
        let high = _mm512_xor_si512(lanes.high, _mm512_srli_epi64::<32>(lanes.high));
        let high = _mm512_mullo_epi64(_mm512_add_epi64(high, len), seed);
        let low = _mm512_xor_si512(low, _mm512_srli_epi64::<32>(low));
        let hash = _mm512_xor_si512(high, _mm512_mullo_epi64(low, low_seed));
        bucket = _mm512_mask_mov_epi64(bucket, wide, scale(hash, wide_count));
        count = _mm512_mask_mov_epi64(count, wide, wide_count);
    }
    if full != 0 {
        let behind = _mm512_add_epi64(lanes.bucket, _mm512_set1_epi64(1));
        let inside = _mm512_cmplt_epu64_mask(behind, count);
        let behind = _mm512_maskz_mov_epi64(inside, behind);
        bucket = _mm512_mask_mov_epi64(bucket, full, behind);
    }
    lanes.bucket = bucket;

    // A vector's next turn comes too late for the memory to be reached by running ahead alone.
    let mut buckets = [0_u64; 8];
    // SAFETY: eight u64 are 64 bytes; the store needs no alignment.
    unsafe { _mm512_storeu_si512(buckets.as_mut_ptr().cast(), bucket) };
    let regions = [table.narrow.as_ptr(), table.wide.as_ptr()];
    if wide == 0 {
        buckets.iter().for_each(|at| prefetch_at(regions[0].wrapping_add(*at as usize)));
    } else {
        for (lane, bucket) in buckets.iter().enumerate() {
            let region = regions[usize::from(wide >> lane & 1)];
            prefetch_at(region.wrapping_add(*bucket as usize));
        }
    }
}

/// `layout::narrow_key`; anything for lengths from 64.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn narrow_keys(high: __m512i, len: __m512i) -> __m512i {
    let below = _mm512_sub_epi64(_mm512_set1_epi64(63), len);
    let key = _mm512_or_si512(_mm512_srlv_epi64(high, below), _mm512_set1_epi64(1));
    _mm512_sllv_epi64(key, below)
}

/// The low half of `layout::wide_key`; anything for lengths below 64. A shift by 64 leaves zero.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn wide_low(low: __m512i, len: __m512i) -> __m512i {
    let below = _mm512_sub_epi64(_mm512_set1_epi64(128), len);
    _mm512_and_si512(low, _mm512_sllv_epi64(_mm512_set1_epi64(-1), below))
}

/// `layout::scale`.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn scale(hash: __m512i, count: __m512i) -> __m512i {
    _mm512_srli_epi64::<32>(_mm512_mul_epu32(_mm512_srli_epi64::<32>(hash), count))
}
