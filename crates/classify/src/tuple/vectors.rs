//! Sixteen headers at once, with AVX-512: one class after the other for all of them, and for several such
//! groups.
//!
//! What a class needs is little in most sets, so it is read whole where it can be: entries of a class of a few
//! are compared one by one without a hash; slots and filters of up to two cache lines are read into vectors
//! and looked up by permutation. Only larger ones are gathered from.

use std::arch::x86_64::*;

use super::hashes::{Murmur3, TupleHash, Universal};
use super::layout::*;
use super::search::Search;
use crate::rule::Match;

/// Headers of a group.
const GROUP: usize = 16;

/// Classes whose entries have numbers below this are compared entry by entry.
const FEW: u32 = 6;

/// The hash of sixteen masked headers.
pub(super) trait Hash16<const W: usize>: TupleHash<W> {
    /// Hashes of sixteen masked headers, word by word.
    ///
    /// # Safety
    /// The processor has AVX-512 F.
    unsafe fn hash16(&self, masked: &[__m512i; W]) -> __m512i;
}

impl<const W: usize> Hash16<W> for Universal<W> {
    /// # Safety
    /// The processor has AVX-512 F.
    #[inline(always)]
    unsafe fn hash16(&self, masked: &[__m512i; W]) -> __m512i {
        // SAFETY: AVX-512 F is the caller's promise.
        unsafe {
            // The upper half of `b + Σ a word`. With a = high 2^32 + low, `high word` counts there with its
            // lower half alone; `low word` takes 64 bits, for the even headers and for the odd ones.
            let mut even = _mm512_set1_epi64(self.b.cast_signed());
            let mut odd = even;
            let mut upper = _mm512_setzero_si512();
            for (a, word) in self.a.iter().zip(masked) {
                let low = _mm512_set1_epi64((a & 0xffff_ffff).cast_signed());
                let high = _mm512_set1_epi32(((a >> 32) as u32).cast_signed());
                even = _mm512_add_epi64(even, _mm512_mul_epu32(*word, low));
                odd = _mm512_add_epi64(odd, _mm512_mul_epu32(_mm512_srli_epi64::<32>(*word), low));
                upper = _mm512_add_epi32(upper, _mm512_mullo_epi32(*word, high));
            }
            let sums = _mm512_mask_mov_epi32(_mm512_srli_epi64::<32>(even), 0xaaaa, odd);
            _mm512_add_epi32(sums, upper)
        }
    }
}

impl<const W: usize> Hash16<W> for Murmur3 {
    /// # Safety
    /// The processor has AVX-512 F.
    #[inline(always)]
    unsafe fn hash16(&self, masked: &[__m512i; W]) -> __m512i {
        // SAFETY: AVX-512 F is the caller's promise.
        unsafe {
            let all = |value: u32| _mm512_set1_epi32(value.cast_signed());
            let times = |x, by: u32| _mm512_mullo_epi32(x, all(by));
            let mut h = all(self.seed);
            for word in masked {
                let k = times(_mm512_rol_epi32::<15>(times(*word, 0xcc9e_2d51)), 0x1b87_3593);
                h = times(_mm512_rol_epi32::<13>(_mm512_xor_si512(h, k)), 5);
                h = _mm512_add_epi32(h, all(0xe654_6b64));
            }
            h = _mm512_xor_si512(h, all(4 * W as u32));
            h = times(_mm512_xor_si512(h, _mm512_srli_epi32::<16>(h)), 0x85eb_ca6b);
            h = times(_mm512_xor_si512(h, _mm512_srli_epi32::<13>(h)), 0xc2b2_ae35);
            _mm512_xor_si512(h, _mm512_srli_epi32::<16>(h))
        }
    }
}

/// `a x + b` of sixteen.
///
/// # Safety
/// The processor has AVX-512 F.
#[inline(always)]
unsafe fn linear(function: Linear, x: __m512i) -> __m512i {
    // SAFETY: AVX-512 F is the caller's promise.
    unsafe {
        let product = _mm512_mullo_epi32(x, _mm512_set1_epi32(function.a.cast_signed()));
        _mm512_add_epi32(product, _mm512_set1_epi32(function.b.cast_signed()))
    }
}

/// `x · n / 2^32` of sixteen.
///
/// # Safety
/// The processor has AVX-512 F.
#[inline(always)]
unsafe fn to_range(x: __m512i, n: u32) -> __m512i {
    // SAFETY: AVX-512 F is the caller's promise.
    unsafe {
        let n = _mm512_set1_epi64(n.into());
        let even = _mm512_srli_epi64::<32>(_mm512_mul_epu32(x, n));
        let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(x), n);
        _mm512_mask_mov_epi32(even, 0xaaaa, odd)
    }
}

/// Words of a part of the image by index.
#[derive(Clone, Copy)]
enum Words {
    One(__m512i),
    Two(__m512i, __m512i),
    /// First word.
    Many(u32),
}

impl Words {
    /// The part of `count` words from `first`, which is at the beginning of a cache line.
    ///
    /// # Safety
    /// The processor has AVX-512 F.
    #[inline(always)]
    unsafe fn new(image: &[u32], first: u32, count: u32) -> Self {
        let lines = image.get(first as usize..).unwrap_or_default().as_chunks::<GROUP>().0;
        // SAFETY: AVX-512 F is the caller's promise.
        unsafe {
            match lines {
                [line, ..] if count <= 16 => Self::One(load(line)),
                [line, next, ..] if count <= 32 => Self::Two(load(line), load(next)),
                _ => Self::Many(first),
            }
        }
    }

    /// The words of sixteen indices; those of lanes outside of `wanted` may be anything.
    ///
    /// # Safety
    /// The processor has AVX-512 F. The image has at least one word and fewer than 2^31.
    #[inline(always)]
    unsafe fn get(self, image: &[u32], index: __m512i, wanted: u16) -> __m512i {
        // SAFETY: AVX-512 F is the caller's promise; the indices of the gather are below the length.
        unsafe {
            match self {
                Self::One(line) => _mm512_permutexvar_epi32(index, line),
                Self::Two(line, next) => _mm512_permutex2var_epi32(line, index, next),
                Self::Many(first) => {
                    let last = _mm512_set1_epi32(image.len() as i32 - 1);
                    let index = _mm512_add_epi32(index, _mm512_set1_epi32(first.cast_signed()));
                    let index = _mm512_min_epu32(index, last);
                    let none = _mm512_setzero_si512();
                    _mm512_mask_i32gather_epi32::<4>(none, wanted, index, image.as_ptr().cast())
                }
            }
        }
    }
}

/// Groups that go through the classes together: what a class needs is in the nearest cache for all but the
/// first of them.
const GROUPS: usize = 8;

/// Sixteen headers and what they have found.
#[derive(Clone, Copy)]
struct Group<const W: usize> {
    headers: [[u32; W]; GROUP],
    /// The headers word by word.
    words: [[u32; GROUP]; W],
    found: [Match; GROUP],
    priorities: [u32; GROUP],
    /// Headers that may yet find a better rule.
    live: u16,
}

impl<const W: usize> Group<W> {
    fn new(headers: &[[u32; W]]) -> Self {
        let mut all = [[0; W]; GROUP];
        all[..headers.len()].copy_from_slice(headers);
        let mut words = [[0; GROUP]; W];
        for (lane, header) in all.iter().enumerate() {
            (0..W).for_each(|at| words[at][lane] = header[at]);
        }
        let found = [Match::NONE; GROUP];
        let live = u16::MAX.checked_shr((GROUP - headers.len()) as u32).unwrap_or(0);
        Self { headers: all, words, found, priorities: [u32::MAX; GROUP], live }
    }

    #[inline(always)]
    fn take(&mut self, lane: usize, found: Match) {
        if found < self.found[lane] {
            self.found[lane] = found;
            self.priorities[lane] = found.priority();
        }
    }

    /// Leaves out those headers that cannot find anything better any more.
    ///
    /// # Safety
    /// The processor has AVX-512 F.
    #[inline(always)]
    unsafe fn leave(&mut self, bound: u32) -> bool {
        // SAFETY: AVX-512 F is the caller's promise.
        unsafe {
            let bound = _mm512_set1_epi32(bound.cast_signed());
            self.live &= _mm512_cmpge_epu32_mask(load(&self.priorities), bound);
        }
        self.live != 0
    }
}

/// # Safety
/// The processor has AVX-512 F.
#[inline(always)]
unsafe fn load(column: &[u32; GROUP]) -> __m512i {
    // SAFETY: AVX-512 F is the caller's promise, and a column is 64 bytes.
    unsafe { _mm512_loadu_si512(column.as_ptr().cast()) }
}

#[inline(always)]
fn lanes(mut mask: u16) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (lane < GROUP).then_some(lane)
    })
}

impl<const W: usize, H: Hash16<W>> Search<'_, W, H> {
    /// All headers, sixteen at once.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn run_vectors(&self, headers: &[[u32; W]], out: &mut [Match]) {
        let mut groups = [Group::new(&[]); GROUPS];
        let mut going = [0; GROUPS];
        let (headers, out) = (headers.chunks(GROUP * GROUPS), out.chunks_mut(GROUP * GROUPS));
        for (headers, out) in headers.zip(out) {
            let count = headers.len().div_ceil(GROUP);
            for (group, headers) in groups.iter_mut().zip(headers.chunks(GROUP)) {
                *group = Group::new(headers);
            }
            (0..count).for_each(|at| going[at] = at);
            // SAFETY: the features are this function's.
            unsafe { self.find(&mut groups, &mut going[..count]) };
            for (group, out) in groups.iter().zip(out.chunks_mut(GROUP)) {
                out.copy_from_slice(&group.found[..out.len()]);
            }
        }
    }

    /// Takes the groups that are `going` through all classes.
    ///
    /// # Safety
    /// The processor has AVX-512 F and BW.
    #[inline(always)]
    unsafe fn find(&self, groups: &mut [Group<W>; GROUPS], mut going: &mut [usize]) {
        for (class, bound) in self.space.bounds.iter().enumerate() {
            let (mask, record) = self.class(class);
            let mut kept = 0;
            for at in 0..going.len() {
                let number = going[at];
                let group = &mut groups[number];
                // SAFETY: AVX-512 F and BW are the caller's promise.
                unsafe {
                    if !group.leave(*bound) {
                        continue;
                    }
                    let masked: [__m512i; W] = std::array::from_fn(|at| {
                        let mask = _mm512_set1_epi32(mask[at].cast_signed());
                        _mm512_and_si512(load(&group.words[at]), mask)
                    });
                    if record.count <= FEW {
                        self.compare(&masked, &record, group);
                    } else {
                        self.probe(mask, &masked, &record, group);
                    }
                }
                going[kept] = number;
                kept += 1;
            }
            going = &mut going[..kept];
            if going.is_empty() {
                return;
            }
        }
    }

    /// Every entry of a class.
    ///
    /// # Safety
    /// The processor has AVX-512 F.
    #[inline(always)]
    unsafe fn compare(&self, masked: &[__m512i; W], record: &Record, group: &mut Group<W>) {
        let words = entry_words(W);
        let entries = self.space.image.get(record.entries as usize..).unwrap_or_default();
        let entries = entries.chunks_exact(words).take(record.count as usize).skip(1);
        for entry in entries {
            // SAFETY: AVX-512 F is the caller's promise.
            let equal = unsafe {
                let mut differ = _mm512_setzero_si512();
                for at in 0..W {
                    let value = _mm512_set1_epi32(entry[at].cast_signed());
                    // differ | masked ^ value
                    differ = _mm512_ternarylogic_epi32::<0xf6>(differ, masked[at], value);
                }
                _mm512_testn_epi32_mask(differ, differ) & group.live
            };
            for lane in lanes(equal) {
                group.take(lane, Match::from_words(entry[W], entry[W + 1]));
            }
        }
    }

    /// The filter of a class, then its slots.
    ///
    /// # Safety
    /// The processor has AVX-512 F.
    #[inline(always)]
    unsafe fn probe(
        &self,
        mask: &[u32; W],
        masked: &[__m512i; W],
        record: &Record,
        group: &mut Group<W>,
    ) {
        let mut live = group.live;
        let image = self.space.image;
        // SAFETY: AVX-512 F is the caller's promise; the image holds a table, so it has words, and fewer than
        // 2^31, as `TupleSpace::new` saw.
        unsafe {
            let x = self.hash.hash16(masked);
            if !self.space.filters().is_empty() {
                let count = 1_u32 << (27_u32.saturating_sub(record.shift));
                let filter = Words::new(image, record.filter, count);
                let shift = _mm_cvtsi32_si128((record.shift & 31).cast_signed());
                // The word and the first bit by the first function, the other bits by the others.
                let one = _mm512_set1_epi32(1);
                let mut wanted = _mm512_setzero_si512();
                let mut word = wanted;
                for (at, function) in self.space.filters().iter().enumerate() {
                    let bit = linear(*function, x);
                    let bit = if at == 0 {
                        let bit = _mm512_srl_epi32(bit, shift);
                        word = filter.get(image, _mm512_srli_epi32::<5>(bit), live);
                        bit
                    } else {
                        _mm512_srli_epi32::<27>(bit)
                    };
                    // A rotation takes the bit's number modulo 32.
                    wanted = _mm512_or_si512(wanted, _mm512_rolv_epi32(one, bit));
                }
                let missing = _mm512_andnot_si512(word, wanted);
                live &= _mm512_testn_epi32_mask(missing, missing);
                if live == 0 {
                    return;
                }
            }
            let tag_mask = _mm512_set1_epi32(record.tag_mask.cast_signed());
            let slots = Words::new(image, record.slots, SUBTABLES as u32 * record.depth);
            for (table, function) in (0..).zip(&self.space.slots) {
                let slot = to_range(linear(*function, x), record.depth);
                let first: u32 = table * record.depth;
                let slot = _mm512_add_epi32(slot, _mm512_set1_epi32(first.cast_signed()));
                let slot = slots.get(image, slot, live);
                let differ = _mm512_and_si512(_mm512_xor_si512(slot, x), tag_mask);
                let tagged = _mm512_testn_epi32_mask(differ, differ) & live;
                if tagged == 0 {
                    continue;
                }
                let mut numbers = [0_u32; GROUP];
                let number = _mm512_andnot_si512(tag_mask, slot);
                _mm512_storeu_si512(numbers.as_mut_ptr().cast(), number);
                for lane in lanes(tagged) {
                    let found = self.entry(&group.headers[lane], mask, record, numbers[lane]);
                    group.take(lane, found);
                }
            }
        }
    }
}
