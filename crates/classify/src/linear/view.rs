//! The read side.

use lookup::Blob;

use super::lanes::{Lanes, Portable};
use super::layout::*;
use crate::classifier::Classify;
use crate::explain::{self, Explained, Outcome, Step};
use crate::rule::Match;

/// Vectors that a processor may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vectors {
    /// None: for tests and other processors.
    Portable,
    /// Eight lanes.
    Avx2,
    /// Sixteen lanes.
    Avx512,
}

impl Vectors {
    /// The best that this processor has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
                return Self::Avx512;
            }
            if is_x86_feature_detected!("avx2") {
                return Self::Avx2;
            }
        }
        Self::Portable
    }

    /// Whether this processor has them.
    pub fn is_there(self) -> bool {
        match (self, Self::detect()) {
            (Self::Portable, _) | (_, Self::Avx512) => true,
            (wanted, best) => wanted == best,
        }
    }
}

/// A table to search.
#[derive(Debug, Clone)]
pub struct Linear<'a> {
    words: usize,
    tests: Vec<Test>,
    ordered: &'a [u32],
    fresh: &'a [u32],
}

impl<'a> Linear<'a> {
    /// The table in `blob`; `None` if that holds none.
    pub fn new(blob: &'a Blob) -> Option<Self> {
        let image = blob.words();
        if *image.get(HEADER_MAGIC)? != MAGIC {
            return None;
        }
        let header = |at: usize| image.get(at).map(|word| *word as usize);
        let (words, count) = (header(HEADER_WORDS)?, header(HEADER_TESTS)?);
        let (tests, _) = image.get(TESTS..)?.get(..4 * count)?.as_chunks::<4>();
        let tests: Option<Vec<Test>> = tests.iter().map(|test| Test::from_words(*test)).collect();
        let tests = tests.filter(|tests| tests.len() <= TESTS_MAX)?;
        if tests.is_empty() || tests.iter().any(|test| test.word >= words) {
            return None;
        }
        let length = block_words(count);
        let blocks = image.get(blocks_offset(count)..)?;
        let blocks = blocks.get(..header(HEADER_BLOCKS)?.checked_mul(length)?)?;
        let (ordered, fresh) =
            blocks.split_at_checked(header(HEADER_ORDERED)?.checked_mul(length)?)?;
        Some(Self { words, tests, ordered, fresh })
    }

    /// As [`Classify::classify`], with vectors of a kind.
    ///
    /// # Panics
    /// When the processor does not have them, or as [`Classify::classify`].
    pub fn classify_with(&self, vectors: Vectors, headers: &[u32], out: &mut [Match]) {
        assert!(vectors.is_there(), "this processor has no {vectors:?}");
        assert_eq!(headers.len(), out.len() * self.words, "one result for each header");
        match vectors {
            // SAFETY: nothing is needed.
            Vectors::Portable => unsafe { self.each_header::<Portable>(headers, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor has AVX2, it was asked above.
            Vectors::Avx2 => unsafe { self.each_header_avx2(headers, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor has AVX-512 F and BW, it was asked above.
            Vectors::Avx512 => unsafe { self.each_header_avx512(headers, out) },
            #[cfg(not(target_arch = "x86_64"))]
            // SAFETY: nothing is needed.
            _ => unsafe { self.each_header::<Portable>(headers, out) },
        }
    }

    /// The way of a header, block by block; blocks without a match before the one that ends it are one step.
    ///
    /// # Panics
    /// For a header of another width.
    pub(crate) fn explain(&self, header: &[u32]) -> Explained {
        assert_eq!(header.len(), self.words, "one header");
        let mut operands = [0; TESTS_MAX];
        let tests = operands.iter_mut().zip(&self.tests);
        tests.for_each(|(operand, test)| *operand = test.operand(header));
        let length = block_words(self.tests.len());
        // SAFETY: nothing is needed.
        let find = |block: &[u32]| unsafe { self.find_in::<Portable>(&operands, block) };
        let blocks = self.ordered.len() / length;
        let mut ordered = self.ordered.chunks_exact(length).map(find).enumerate();
        let hit = ordered.find(|(_, found)| found.is_some());
        let (read, found) = hit.map_or((blocks, Match::NONE), |(at, found)| (at + 1, found));
        let place = match found.is_some() {
            true => format!("block {} of {blocks} in order, {LANES} rules each", read - 1),
            false => format!("all {blocks} blocks in order, {LANES} rules each"),
        };
        let outcome = |found| Outcome::of(found, "no rule matches");
        let mut steps = vec![Step { place, accesses: read as u32, outcome: outcome(found) }];
        let fresh = self.fresh.chunks_exact(length).map(find);
        steps.extend(fresh.enumerate().map(|(at, found)| Step {
            place: format!("fresh block {at}"),
            accesses: 1,
            outcome: outcome(found),
        }));
        let found = explain::best(&steps);
        let end = match found.is_some() {
            true => "rules are in order: the first match is the best",
            false => "no rule is left",
        };
        Explained { steps, end, found }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn each_header_avx2(&self, headers: &[u32], out: &mut [Match]) {
        // SAFETY: the features are this function's.
        unsafe { self.each_header::<super::lanes::x86::Avx2>(headers, out) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn each_header_avx512(&self, headers: &[u32], out: &mut [Match]) {
        // SAFETY: the features are this function's.
        unsafe { self.each_header::<super::lanes::x86::Avx512>(headers, out) }
    }

    /// # Safety
    /// The processor has what `L` names.
    #[inline(always)]
    unsafe fn each_header<L: Lanes>(&self, headers: &[u32], out: &mut [Match]) {
        let mut operands = [0; TESTS_MAX];
        for (header, out) in headers.chunks_exact(self.words).zip(out) {
            for (at, test) in self.tests.iter().enumerate() {
                operands[at] = test.operand(header);
            }
            // SAFETY: the caller's promise.
            *out = unsafe { self.find::<L>(&operands) };
        }
    }

    /// # Safety
    /// The processor has what `L` names.
    #[inline(always)]
    unsafe fn find<L: Lanes>(&self, operands: &[u32; TESTS_MAX]) -> Match {
        let length = block_words(self.tests.len());
        let mut best = Match::NONE;
        for block in self.ordered.chunks_exact(length) {
            // SAFETY: the caller's promise.
            best = unsafe { self.find_in::<L>(operands, block) };
            if best.is_some() {
                break;
            }
        }
        for block in self.fresh.chunks_exact(length) {
            // SAFETY: the caller's promise.
            best = best.min(unsafe { self.find_in::<L>(operands, block) });
        }
        best
    }

    /// The best rule of a block.
    ///
    /// # Safety
    /// The processor has what `L` names.
    #[inline(always)]
    unsafe fn find_in<L: Lanes>(&self, operands: &[u32; TESTS_MAX], block: &[u32]) -> Match {
        let (columns, _) = block.as_chunks::<LANES>();
        let (pairs, _) = columns.as_chunks::<2>();
        let mut hits = u32::MAX;
        for (at, test) in self.tests.iter().enumerate() {
            let (x, [a, b]) = (&operands[at], &pairs[at]);
            // SAFETY: the caller's promise.
            hits &= unsafe {
                match test.kind {
                    TestKind::Masked => L::masked(*x, a, b),
                    TestKind::Halves => L::halves(*x, a, b),
                    TestKind::Wide => L::wide(*x, a, b),
                }
            };
            if hits == 0 {
                return Match::NONE;
            }
        }
        let [low, high] = pairs[self.tests.len()];
        let mut best = Match::NONE;
        while hits != 0 {
            let lane = hits.trailing_zeros() as usize % LANES;
            best = best.min(Match::from_words(low[lane], high[lane]));
            hits &= hits - 1;
        }
        best
    }
}

impl Classify for Linear<'_> {
    fn words(&self) -> usize {
        self.words
    }

    fn classify(&self, headers: &[u32], out: &mut [Match]) {
        self.classify_with(Vectors::detect(), headers, out);
    }
}
