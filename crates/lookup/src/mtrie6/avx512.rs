//! The batch with sixteen addresses to a vector, stage by stage; leaf of unsafe code.
//!
//! All addresses of a block are asked at the root; those whose cell names a node or a bucket go to lists. Then the
//! nodes' list is worked off, sixteen at a time, until no node is left; then the buckets, one compare each. All lines
//! of a stage are asked for before the first of them is read. No branch depends on what one cell holds.

use std::arch::x86_64::*;

use super::Mtrie6;
use super::layout::*;
use crate::arch::prefetch_at;
use crate::{Key6, NextHopId};

/// Addresses of a block: enough for full vectors in the last stages, and their lines fit into the first
/// cache together.
const BLOCK: usize = 256;

type Numbers = [u32; BLOCK + 16];

/// Buckets to be read: numbers of addresses in the block and the cells that name the buckets; the first `len`
/// places are in use, and a vector fits behind them.
struct Buckets {
    index: Numbers,
    cell: Numbers,
    len: usize,
}

impl Buckets {
    const NONE: Self = Self { index: [0; BLOCK + 16], cell: [0; BLOCK + 16], len: 0 };

    /// Appends the lanes in `mask`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn push(&mut self, mask: __mmask16, index: __m512i, cell: __m512i) {
        store(&mut self.index, self.len, _mm512_maskz_compress_epi32(mask, index));
        store(&mut self.cell, self.len, _mm512_maskz_compress_epi32(mask, cell));
        self.len += mask.count_ones() as usize;
    }

    /// Asks for the lines of all from number `first` on.
    #[inline(always)]
    fn ask(&self, table: &Mtrie6<'_>, first: usize) {
        for cell in &self.cell[first..self.len] {
            prefetch_at(table.lines.as_ptr().wrapping_add(line_of(*cell)));
        }
    }
}

/// Cells to be read in nodes; in use as above.
struct Nodes {
    index: Numbers,
    /// Words of the heap.
    place: Numbers,
    /// Bits 18 to 49 of the address that no node has taken, leftmost first.
    bits: Numbers,
    len: usize,
}

/// The lists of a block.
struct Lists {
    nodes: Nodes,
    short: Buckets,
    wide: Buckets,
    deep: Buckets,
}

/// Whether [`batch`] may be called.
#[inline]
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("bmi1")
}

/// Looks up all keys; `out` is as long as `keys`.
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,bmi1")]
pub(super) fn batch(table: &Mtrie6<'_>, keys: &[Key6], out: &mut [NextHopId]) {
    assert_eq!(keys.len(), out.len());
    let none = [0; BLOCK + 16];
    let mut lists = Lists {
        nodes: Nodes { index: none, place: none, bits: none, len: 0 },
        short: Buckets::NONE,
        wide: Buckets::NONE,
        deep: Buckets::NONE,
    };
    for (keys, out) in keys.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
        at_root(table, keys, out, &mut lists);
        in_nodes(table, out, &mut lists);
        in_short_buckets(table, &lists.short, keys, out);
        in_wide_buckets(table, &lists.wide, keys, out);
        for index in &lists.deep.index[..lists.deep.len] {
            out[*index as usize] = table.lookup_one(keys[*index as usize]);
        }
    }
}

/// The high halves of at most eight keys; the other lanes are 0.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,bmi1")]
fn high_halves(keys: &[Key6]) -> __m512i {
    assert!(keys.len() <= 8);
    let words = keys.as_flattened().as_ptr().cast::<i64>();
    let mask = ((1_u64 << (2 * keys.len())) - 1) as u32;
    // SAFETY: the masks let through two words for each key, which are there.
    let (left, right) = unsafe {
        (
            _mm512_maskz_loadu_epi64(mask as __mmask8, words),
            _mm512_maskz_loadu_epi64((mask >> 8) as __mmask8, words.wrapping_add(8)),
        )
    };
    _mm512_permutex2var_epi64(left, _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14), right)
}

/// Asks at most `BLOCK` addresses at the root: answers go to `out`, which is as long as `keys`, the others
/// to the lists.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,bmi1")]
fn at_root(table: &Mtrie6<'_>, keys: &[Key6], out: &mut [NextHopId], lists: &mut Lists) {
    assert!(keys.len() == out.len() && keys.len() <= BLOCK);
    lists.nodes.len = 0;
    for list in [&mut lists.short, &mut lists.wide, &mut lists.deep] {
        list.len = 0;
    }
    let mut index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (keys, out) in keys.chunks(16).zip(out.chunks_mut(16)) {
        let lanes = (0xffff_u32 >> (16 - keys.len())) as __mmask16;
        let (left, right) = keys.split_at(keys.len().min(8));
        let (left, right) = (high_halves(left), high_halves(right));
        let narrow = |left, right| {
            let (left, right) = (_mm512_cvtepi64_epi32(left), _mm512_cvtepi64_epi32(right));
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(left), right)
        };
        const ROOT_SHIFT: u32 = 64 - ROOT_BITS as u32;
        const SHORT_SHIFT: u32 = 64 - SHORT_LEN as u32;
        let root =
            narrow(_mm512_srli_epi64::<ROOT_SHIFT>(left), _mm512_srli_epi64::<ROOT_SHIFT>(right));
        let bits =
            narrow(_mm512_srli_epi64::<SHORT_SHIFT>(left), _mm512_srli_epi64::<SHORT_SHIFT>(right));
        // SAFETY: each index has 18 bits, and the root 2^18 cells.
        let cell = unsafe { _mm512_i32gather_epi32::<4>(root, table.root.as_ptr().cast()) };
        let answer = or_default(table, cell);
        // SAFETY: the mask lets through as many lanes as there are places in `out`.
        unsafe { _mm512_mask_storeu_epi32(out.as_mut_ptr().cast(), lanes, answer) };
        sort(lists, lanes, index, cell, bits);
        index = _mm512_add_epi32(index, _mm512_set1_epi32(16));
    }
}

/// Puts the lanes of `lanes` whose cells are not answers into the lists.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,bmi1")]
fn sort(lists: &mut Lists, lanes: __mmask16, index: __m512i, cell: __m512i, bits: __m512i) {
    let named = _mm512_mask_cmplt_epi32_mask(lanes, cell, _mm512_setzero_si512());
    let kind = _mm512_and_epi32(cell, _mm512_set1_epi32(KIND.cast_signed()));
    let is = |kinds: u32| {
        _mm512_mask_cmpeq_epi32_mask(named, kind, _mm512_set1_epi32(kinds.cast_signed()))
    };
    let nodes = is(KIND_NODE);
    // `layout::node_place` and the bits behind those that it takes.
    let taken = _mm512_srli_epi32::<{ LINE_BITS as u32 }>(cell);
    let taken = _mm512_and_epi32(taken, _mm512_set1_epi32(15));
    let taken = _mm512_add_epi32(taken, _mm512_set1_epi32(1));
    let number = _mm512_srlv_epi32(bits, _mm512_sub_epi32(_mm512_set1_epi32(32), taken));
    let line = _mm512_and_epi32(cell, _mm512_set1_epi32((1 << LINE_BITS) - 1));
    let place = _mm512_add_epi32(_mm512_slli_epi32::<4>(line), number);
    let bits = _mm512_sllv_epi32(bits, taken);
    let list = &mut lists.nodes;
    store(&mut list.index, list.len, _mm512_maskz_compress_epi32(nodes, index));
    store(&mut list.place, list.len, _mm512_maskz_compress_epi32(nodes, place));
    store(&mut list.bits, list.len, _mm512_maskz_compress_epi32(nodes, bits));
    list.len += nodes.count_ones() as usize;
    lists.short.push(is(KIND_SHORT), index, cell);
    let wide = is(KIND_WIDE);
    if wide != 0 {
        lists.wide.push(wide, index, cell);
    }
    let deep = is(KIND_DEEP);
    if deep != 0 {
        lists.deep.push(deep, index, cell);
    }
}

/// Works off the list of nodes, level by level; the lines of a level, and of the buckets that the level before
/// led to, are all asked for before the first is read. What is left of the list is at its beginning,
/// where only places are overwritten that have been read.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,bmi1")]
fn in_nodes(table: &Mtrie6<'_>, out: &mut [NextHopId], lists: &mut Lists) {
    let words = table.lines.as_flattened();
    let last = _mm512_set1_epi32((words.len() - 1).min(i32::MAX as usize) as i32);
    let (mut short, mut wide) = (0, 0);
    while lists.nodes.len > 0 {
        let len = std::mem::take(&mut lists.nodes.len);
        for place in &lists.nodes.place[..len] {
            prefetch_at(words.as_ptr().wrapping_add(*place as usize));
        }
        lists.short.ask(table, short);
        lists.wide.ask(table, wide);
        (short, wide) = (lists.short.len, lists.wide.len);
        for first in (0..len).step_by(16) {
            let lanes = (0xffff_u32 >> (16 - (len - first).min(16))) as __mmask16;
            let index = load(&lists.nodes.index, first);
            let place = _mm512_min_epu32(load(&lists.nodes.place, first), last);
            let bits = load(&lists.nodes.bits, first);
            // SAFETY: every place is at most the heap's last word by the minimum above; lanes outside
            // the mask are not read.
            let cell = unsafe {
                let zero = _mm512_setzero_si512();
                _mm512_mask_i32gather_epi32::<4>(zero, lanes, place, words.as_ptr().cast())
            };
            let answered = _mm512_mask_cmpge_epi32_mask(lanes, cell, _mm512_setzero_si512());
            let within = _mm512_set1_epi32(out.len() as i32);
            let answered = _mm512_mask_cmplt_epu32_mask(answered, index, within);
            // SAFETY: the indices of the lanes in the mask are below the length of `out`.
            unsafe {
                let answer = or_default(table, cell);
                _mm512_mask_i32scatter_epi32::<4>(out.as_mut_ptr().cast(), answered, index, answer);
            }
            sort(lists, lanes, index, cell, bits);
        }
    }
    lists.short.ask(table, short);
    lists.wide.ask(table, wide);
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,bmi1")]
fn in_short_buckets(table: &Mtrie6<'_>, list: &Buckets, keys: &[Key6], out: &mut [NextHopId]) {
    for at in 0..list.len {
        let index = list.index[at] as usize;
        let Some(line) = table.lines.get(line_of(list.cell[at])) else { continue };
        let bits = _mm256_set1_epi32(short_bits(keys[index]).cast_signed());
        const { assert!(SHORT_SHIFTS == SHORT_PREFIXES && NEXT_HOPS + SHORT_PREFIXES == REST) };
        // SAFETY: a line has 16 words: 8 from its start, and 8 bytes from word 6 on.
        let (prefixes, shifts) = unsafe {
            (
                _mm256_loadu_si256(line.as_ptr().cast()),
                _mm_loadl_epi64(line.as_ptr().add(SHORT_SHIFTS).cast()),
            )
        };
        let differing = _mm256_xor_si256(prefixes, bits);
        let differing = _mm256_srlv_epi32(differing, _mm256_cvtepu8_epi32(shifts));
        let found = _mm256_testn_epi32_mask(differing, differing);
        // Lanes 6 and 7 are not prefixes: there is the next hop of the rest.
        let first = (u32::from(found) | 1 << SHORT_PREFIXES).trailing_zeros() as usize;
        let answer = line[(NEXT_HOPS + first) % LINE];
        out[index] = if answer == 0 { table.default } else { answer };
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,bmi1")]
fn in_wide_buckets(table: &Mtrie6<'_>, list: &Buckets, keys: &[Key6], out: &mut [NextHopId]) {
    for at in 0..list.len {
        let index = list.index[at] as usize;
        let Some(line) = table.lines.get(line_of(list.cell[at])) else { continue };
        let key = keys[index];
        // SAFETY: a key has 16 bytes, a line 64.
        let (key, prefixes) = unsafe {
            (_mm_loadu_si128(key.as_ptr().cast()), _mm256_loadu_si256(line.as_ptr().cast()))
        };
        let shifts = _mm_cvtsi32_si128(line[WIDE_SHIFTS].cast_signed());
        let differing = _mm256_xor_si256(prefixes, _mm256_broadcastsi128_si256(key));
        let differing = _mm256_srlv_epi64(differing, _mm256_cvtepu8_epi64(shifts));
        // Both halves of the first prefix, of the second; behind them the rest, six prefixes on.
        let found = u32::from(_mm256_testn_epi64_mask(differing, differing));
        let found = found & found >> 1 & 0b101 | 1 << (2 * (REST - NEXT_HOPS));
        let answer = line[(NEXT_HOPS + found.trailing_zeros() as usize / 2) % LINE];
        out[index] = if answer == 0 { table.default } else { answer };
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn or_default(table: &Mtrie6<'_>, answer: __m512i) -> __m512i {
    let none = _mm512_testn_epi32_mask(answer, answer);
    _mm512_mask_mov_epi32(answer, none, _mm512_set1_epi32(table.default.cast_signed()))
}

/// Stores sixteen lanes from place `at` on.
#[inline]
#[target_feature(enable = "avx512f")]
fn store(list: &mut Numbers, at: usize, lanes: __m512i) {
    let Some(place) = list[at..].first_chunk_mut::<16>() else { return };
    // SAFETY: sixteen u32 are 64 bytes; the store needs no alignment.
    unsafe { _mm512_storeu_si512(place.as_mut_ptr().cast(), lanes) };
}

/// Loads sixteen lanes from place `at` on.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(list: &Numbers, at: usize) -> __m512i {
    let Some(place) = list[at..].first_chunk::<16>() else { return _mm512_setzero_si512() };
    // SAFETY: sixteen u32 are 64 bytes; the load needs no alignment.
    unsafe { _mm512_loadu_si512(place.as_ptr().cast()) }
}
