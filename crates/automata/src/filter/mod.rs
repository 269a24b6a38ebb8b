//! The prefilter: where in a segment a pattern may begin. It says yes too often, never no where one begins.
//!
//! Nearly all bytes of nearly all packets belong to no match. Three stages find those at which a walk is worth its while:
//!
//! ```text
//!  64 bytes ─▶ buckets (Teddy): shuffles of 4 bytes' halves ─▶ 64 bits ─▶ grams (FDR): hash of 4 bytes ─▶ 64 bits ─▶ whole:
//!              all places at once, in registers               many: all places by one word; then each by two        lengths
//! ```
//!
//! - [`buckets`]: eight buckets of patterns, by shuffles (Teddy of Hyperscan; Wang et al.: Hyperscan: A Fast Multi-pattern
//!   Regex Matcher for Modern CPUs, NSDI 2019, §4). Sharp for small sets, and for bytes that are in no pattern.
//! - [`grams`]: a bit for each hash of the first four bytes of a pattern, in a table that grows with the set (in the place
//!   of FDR's shift-or table). Sharp for large sets.
//! - [`whole`]: where these four bytes are, whether the last ones of a pattern are there too. Sharp for texts that are full of
//!   beginnings of patterns.
//!
//! The walk of [`confirm`] begins at the first of these places, with the automaton itself, and goes on as long as what it
//! has in hand began at one of them; so it stays linear whatever the bytes are, gives matches in order, and ends in the
//! very state that the plain walk ends in. The last three places of a segment, whose four bytes are not all known, are
//! always among them: the state behind the segment is exact without its bytes being kept.
//!
//! Segments of a batch go through the first two stages together, so that branches of the walk do not stand between them. The
//! third is for batches of which much is left.
//! Where more than one place of twelve passes (an attack, patterns of one byte), the batch is walked interleaved
//! instead, and so are the next [`REST`].

mod buckets;
mod confirm;
mod finder;
mod grams;
mod vectors;
mod whole;

use crate::interleaved::{Found, Segment};
use crate::patterns::Patterns;
use crate::{Automaton, Pattern};
use buckets::Buckets;
pub use finder::Finder;
use grams::Grams;
use whole::Whole;

/// Bytes at the start of a pattern that the filter looks at.
pub(crate) const WINDOW: usize = 4;
/// Places of a block, and the bytes that it reads.
pub(crate) const PLACES: usize = 64;
pub(crate) const BLOCK: usize = PLACES + WINDOW - 1;
/// Of a block; with more places left by the buckets the grams of all are tested.
const FEW: u32 = 12;
/// Bytes of a batch for one place that passes, at least: else the interleaved walk is quicker.
const PASS_MAX: usize = 12;
/// Bytes of a batch for one place that is left of the first two stages, at most, for the third to be worth its while.
const WHOLE_MIN: usize = 32;
/// Batches that are walked without the filter after one in which it was of no use.
const REST: u32 = 31;

/// The vector instructions of the first stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Any processor.
    Portable,
    /// AVX2 and BMI2: 32 bytes at a time.
    Avx2,
    /// AVX-512 BW: 64 bytes at a time.
    Avx512,
}

impl Level {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];

    /// Whether the processor has it.
    pub fn is_available(self) -> bool {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("popcnt");
            let avx512 =
                is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
            match self {
                Self::Portable => true,
                Self::Avx2 => avx2,
                Self::Avx512 => avx2 && avx512,
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        {
            self == Self::Portable
        }
    }

    /// The best that the processor has.
    pub fn best() -> Self {
        Self::ALL.into_iter().rfind(|level| level.is_available()).unwrap_or(Self::Portable)
    }
}

/// Room that a thread keeps from batch to batch, so that nothing is allocated.
#[derive(Debug, Default)]
pub struct Scratch {
    /// A bit for each byte of each segment; each segment begins with a word.
    masks: Vec<u64>,
    /// Batches to walk without the filter.
    rest: u32,
}

/// All stages.
#[derive(Clone)]
pub(crate) struct Filter {
    buckets: Buckets,
    grams: Grams,
    whole: Whole,
}

impl Filter {
    /// Of all patterns but the anchored ones, which a walk meets at the start of a stream and nowhere else.
    pub(crate) fn new(patterns: &Patterns) -> Self {
        let of: Vec<&Pattern> = patterns.as_slice().iter().filter(|p| !p.is_anchored()).collect();
        Self { buckets: Buckets::new(&of), grams: Grams::new(&of), whole: Whole::new(&of) }
    }

    /// The second stage for all places of a block, where many are left of the first.
    #[inline(always)]
    fn refine(&self, places: u64, all: impl FnOnce(&Grams) -> u64) -> u64 {
        match places.count_ones() > FEW {
            true => places & all(&self.grams),
            false => places,
        }
    }

    /// The second stage for each place that is left. Behind all blocks, so that a branch that was guessed wrong waits
    /// for nothing but its mask.
    #[inline(always)]
    fn test(&self, segments: &[Segment<'_>], masks: &mut [u64]) {
        let mut masks = masks.iter_mut();
        for segment in segments {
            for (first, mask) in (0..segment.bytes.len()).step_by(PLACES).zip(&mut masks) {
                let text = &segment.bytes[first..];
                let mut left = *mask & Ends::new(text.len()).known;
                while left != 0 {
                    let at = left.trailing_zeros() as usize;
                    let window = text.get(at..).and_then(|text| text.first_chunk::<WINDOW>());
                    let failed = 1 ^ self.grams.test(window.copied().unwrap_or_default());
                    *mask &= !(failed << at);
                    left &= left - 1;
                }
            }
        }
    }

    /// The third stage for each place that is left.
    #[inline(never)]
    fn test_whole(&self, segments: &[Segment<'_>], masks: &mut [u64]) {
        let mut masks = masks.iter_mut();
        for segment in segments {
            for (first, mask) in (0..segment.bytes.len()).step_by(PLACES).zip(&mut masks) {
                let text = &segment.bytes[first..];
                let mut left = *mask & Ends::new(text.len()).known;
                while left != 0 {
                    let at = left.trailing_zeros() as usize;
                    let text = &text[at..];
                    let window = text.first_chunk().copied().unwrap_or_default();
                    let passed = self.whole.test(text) || self.grams.short(window);
                    *mask &= !(u64::from(!passed) << at);
                    left &= left - 1;
                }
            }
        }
    }

    /// The last places of a segment, where nothing is behind it: patterns that are as short may begin there.
    #[inline]
    fn end(&self, bytes: &[u8], masks: &mut [u64]) {
        let unknown = bytes.len().saturating_sub(WINDOW - 1)..bytes.len();
        if self.grams.short.is_none() {
            return unknown.for_each(|at| masks[at / PLACES] &= !(1 << (at % PLACES)));
        }
        for at in unknown {
            let mut window = [0; WINDOW];
            let left = &bytes[at..];
            window[..left.len()].copy_from_slice(left);
            // The second byte may be none: the table has patterns of one byte for each that follows.
            if !self.grams.short(window) {
                masks[at / PLACES] &= !(1 << (at % PLACES));
            }
        }
    }

    /// Adds the places of a segment to the masks, with forms of the first two stages.
    #[inline(always)]
    fn fill(
        &self,
        bytes: &[u8],
        masks: &mut Vec<u64>,
        buckets: impl Fn(&Buckets, &[u8; BLOCK]) -> u64,
        grams: impl Fn(&Grams, &[u8; BLOCK]) -> u64,
    ) {
        let mut left = bytes;
        while let Some(text) = left.first_chunk::<BLOCK>() {
            let places = buckets(&self.buckets, text);
            masks.push(self.refine(places, |all| grams(all, text)));
            left = &left[PLACES..];
        }
        // Up to 66 bytes: one block or two, filled with zeros.
        let mut padded = [0; 2 * PLACES + WINDOW];
        padded[..left.len()].copy_from_slice(left);
        for first in (0..left.len()).step_by(PLACES) {
            let Some(text) = padded[first..].first_chunk::<BLOCK>() else { break };
            let Ends { known, unknown } = Ends::new(left.len() - first);
            let places = buckets(&self.buckets, text) & known;
            masks.push(self.refine(places, |all| grams(all, text)) | unknown);
        }
    }
}

/// The places of a block that a segment ends in.
struct Ends {
    /// Those whose window is in the segment.
    known: u64,
    /// The others of the segment.
    unknown: u64,
}

impl Ends {
    /// With as many bytes from the start of the block on.
    #[inline(always)]
    fn new(bytes: usize) -> Self {
        let known = low_bits(bytes.saturating_sub(WINDOW - 1));
        Self { known, unknown: low_bits(bytes) & !known }
    }
}

#[inline(always)]
fn low_bits(count: usize) -> u64 {
    match count {
        0..64 => (1 << count) - 1,
        _ => u64::MAX,
    }
}

impl Automaton {
    /// [`Automaton::scan`] of each segment, in the way that is quickest for many: the vector prefilter, a walk of what
    /// passes it, the interleaved walk where too much does. `found` gets the matches after what it holds, by segment,
    /// end and pattern. Allocates only where `found` or the scratch has to grow.
    ///
    /// ```
    /// use automata::{Automaton, Found, Pattern, Patterns, Scratch, Segment};
    ///
    /// let mut patterns = Patterns::default();
    /// patterns.insert(Pattern::new(b"needle")).unwrap();
    /// let automaton = Automaton::new(&patterns).unwrap();
    ///
    /// let (mut found, mut scratch) = (Vec::new(), Scratch::default());
    /// let state = automaton.start();
    /// let mut segments = [
    ///     Segment { state, offset: 0, bytes: b"hay, hay, nee" },
    ///     Segment { state, offset: 0, bytes: b"a needle" },
    /// ];
    /// automaton.scan_many(&mut segments, &mut found, &mut scratch);
    /// assert_eq!(found, [Found { segment: 1, end: 8, pattern: 0 }]);
    ///
    /// let mut rest = [Segment { bytes: b"dle", offset: 13, ..segments[0] }];
    /// found.clear();
    /// automaton.scan_many(&mut rest, &mut found, &mut scratch);
    /// assert_eq!(found, [Found { segment: 0, end: 16, pattern: 0 }]);
    /// ```
    ///
    /// # Panics
    /// With 2^32 segments or more.
    pub fn scan_many(
        &self,
        segments: &mut [Segment<'_>],
        found: &mut Vec<Found>,
        scratch: &mut Scratch,
    ) {
        if scratch.rest > 0 {
            scratch.rest -= 1;
            return self.walk_many(segments, found);
        }
        self.find_places(segments, scratch);
        if Self::passed(segments, scratch, PASS_MAX) {
            scratch.rest = REST;
            return self.walk_many(segments, found);
        }
        self.confirm_many(segments, found, scratch);
    }

    /// The same by the prefilter, however much passes it: to measure and to test it.
    ///
    /// # Panics
    /// With 2^32 segments or more.
    pub fn filter_many(
        &self,
        segments: &mut [Segment<'_>],
        found: &mut Vec<Found>,
        scratch: &mut Scratch,
    ) {
        self.find_places(segments, scratch);
        self.confirm_many(segments, found, scratch);
    }

    /// The matches in bytes of which nothing comes before and nothing after: those of [`Automaton::scan`] from
    /// [`Automaton::start`] on. As nobody wants the state behind them, the last places are not walked for it, and most bytes
    /// without a match pass no place at all.
    ///
    /// ```
    /// use automata::{Automaton, Found, Pattern, Patterns, Scratch};
    ///
    /// let mut patterns = Patterns::default();
    /// patterns.insert(Pattern::new(b"needle")).unwrap();
    /// let automaton = Automaton::new(&patterns).unwrap();
    ///
    /// let (mut found, mut scratch) = (Vec::new(), Scratch::default());
    /// automaton.find_whole(b"a needle in the hay, a nee", &mut found, &mut scratch);
    /// assert_eq!(found, [Found { segment: 0, end: 8, pattern: 0 }]);
    /// ```
    pub fn find_whole(&self, bytes: &[u8], found: &mut Vec<Found>, scratch: &mut Scratch) {
        let mut segments = [Segment { state: self.start(), offset: 0, bytes }];
        scratch.masks.clear();
        vectors::find(self.level(), &self.filter, &segments, &mut scratch.masks);
        self.filter.end(bytes, &mut scratch.masks);
        if self.start() == self.anywhere() && scratch.masks.iter().all(|mask| *mask == 0) {
            return;
        }
        if Self::passed(&segments, scratch, WHOLE_MIN) {
            self.filter.test_whole(&segments, &mut scratch.masks);
        }
        self.confirm_many(&mut segments, found, scratch);
    }

    /// How many places of a segment pass the prefilter, with the last three.
    pub fn places(&self, bytes: &[u8], scratch: &mut Scratch) -> usize {
        let state = self.anywhere();
        self.find_places(&[Segment { state, offset: 0, bytes }], scratch);
        scratch.masks.iter().map(|mask| mask.count_ones() as usize).sum()
    }

    fn find_places(&self, segments: &[Segment<'_>], scratch: &mut Scratch) {
        scratch.masks.clear();
        vectors::find(self.level(), &self.filter, segments, &mut scratch.masks);
        if Self::passed(segments, scratch, WHOLE_MIN) {
            self.filter.test_whole(segments, &mut scratch.masks);
        }
    }

    /// Whether more than one place of so many has passed, beside the last ones of each segment, which always do.
    fn passed(segments: &[Segment<'_>], scratch: &Scratch, of: usize) -> bool {
        let bytes: usize = segments.iter().map(|segment| segment.bytes.len()).sum();
        let places: usize = scratch.masks.iter().map(|mask| mask.count_ones() as usize).sum();
        places.saturating_sub(segments.len() * (WINDOW - 1)) > bytes / of
    }

    fn confirm_many(
        &self,
        segments: &mut [Segment<'_>],
        found: &mut Vec<Found>,
        scratch: &Scratch,
    ) {
        assert!(u32::try_from(segments.len()).is_ok(), "segments are numbered by 32 bits");
        let begin = found.len();
        let machines = self.machines();
        let mut masks = &scratch.masks[..];
        for (number, segment) in segments.iter_mut().enumerate() {
            let (mine, others) = masks.split_at(segment.bytes.len().div_ceil(PLACES));
            masks = others;
            let mut states = self.states(segment.state);
            for (machine, state) in machines.iter().zip(&mut states) {
                if let Some(machine) = machine {
                    *state = confirm::walk(*machine, *state, number as u32, segment, mine, found);
                }
            }
            segment.state = self.state(states);
        }
        if machines.iter().all(Option::is_some) {
            found[begin..].sort_unstable();
        }
    }
}
