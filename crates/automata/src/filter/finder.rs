//! The matches in bytes of which nothing comes before or after, by the rarest four bytes of each pattern.
//!
//! ```text
//!  pattern    / c g i - b i n / p h f           its *window*: the four bytes that are most seldom in texts and in other patterns
//!                            ═══════
//!  text  ─▶ buckets, grams (of windows) ─▶ places ─▶ table by hash of the window ─▶ patterns, compared as a whole
//! ```
//!
//! A walk has to begin where a pattern begins; here nobody wants the state behind the bytes, so any place of a pattern may stand
//! for it. Patterns of one protocol begin alike, with what its texts are full of, and differ behind that.
//!
//! A window stands for [`SHARED_MAX`] patterns at most, so that the work at a place is bounded whatever the bytes are. Patterns
//! for which none of their windows has room are searched by an automaton of their own.

use std::collections::HashMap;

use super::buckets::Buckets;
use super::grams::Grams;
use super::whole::Whole;
use super::{Filter, Level, PLACES, Scratch, WINDOW, vectors};
use crate::interleaved::{Found, Segment};
use crate::{Automaton, Pattern, PatternError, Patterns, State};

/// Patterns that a window stands for; short ones that begin with one byte, likewise.
const SHARED_MAX: u32 = 32;
/// Windows of a pattern that come into question.
const OFFSETS_MAX: usize = 256;
/// The bit in which the cases of a letter differ, in four bytes.
const CASES: u32 = 0x2020_2020;

/// Finds patterns in whole buffers: read-only, for any number of threads.
///
/// ```
/// use automata::{Finder, Found, Pattern, Patterns, Scratch};
///
/// let mut patterns = Patterns::default();
/// patterns.insert(Pattern::new(b"needle")).unwrap();
/// let finder = Finder::new(&patterns).unwrap();
///
/// let (mut found, mut scratch) = (Vec::new(), Scratch::default());
/// finder.find(b"a needle in the hay, a nee", &mut found, &mut scratch);
/// assert_eq!(found, [Found { segment: 0, end: 8, pattern: 0 }]);
/// ```
pub struct Finder {
    filter: Filter,
    level: Level,
    /// By hash of a window: where its patterns begin in `entries`; one more at the end.
    starts: Box<[u32]>,
    entries: Box<[Entry]>,
    /// By first byte: those that are shorter than a window.
    short_starts: Box<[u32]>,
    short: Box<[Entry]>,
    /// All bytes of the patterns.
    bytes: Box<[u8]>,
    rest: Option<Rest>,
}

impl std::fmt::Debug for Finder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Finder").field("patterns", &self.entries.len()).finish_non_exhaustive()
    }
}

/// A pattern, and where in it its window is.
#[derive(Clone, Copy)]
struct Entry {
    /// The window, the cases of letters as one.
    key: u32,
    pattern: u32,
    /// Where it begins in all bytes.
    at: u32,
    /// Its last four bytes, likewise; nothing of a shorter one.
    tail: u32,
    len: u16,
    offset: u16,
    nocase: bool,
    anchored: bool,
}

/// Patterns without a window of their own.
struct Rest {
    automaton: Automaton,
    numbers: Vec<u32>,
}

impl Finder {
    /// Builds the tables. Time and memory are proportional to the bytes of the patterns.
    ///
    /// # Errors
    /// [`PatternError::TableTooLarge`], of the patterns that share all of their windows with many others.
    pub fn new(patterns: &Patterns) -> Result<Self, PatternError> {
        let all = patterns.as_slice();
        let mut counts: HashMap<u32, u32> = HashMap::new();
        for pattern in all {
            keys(pattern).for_each(|(_, key)| *counts.entry(key).or_default() += 1);
        }
        let (mut bytes, mut long, mut short) = (Vec::new(), Vec::new(), Vec::new());
        let (mut rest, mut numbers) = (Patterns::with_limits(*patterns.limits()), Vec::new());
        let (mut taken, mut firsts) = (HashMap::<u32, u32>::new(), [0_u32; 256]);
        let mut windows = Vec::new();
        for (number, pattern) in (0..).zip(all) {
            let own = pattern.bytes();
            let (len, at) = (own.len() as u16, bytes.len() as u32);
            let (nocase, anchored) = (pattern.is_nocase(), pattern.is_anchored());
            let tail = own.last_chunk().map_or(0, |last| folded(*last));
            let none =
                Entry { key: 0, pattern: number, at, tail, len, offset: 0, nocase, anchored };
            let window = |offset: usize, len: usize| {
                let window = Pattern::new(&own[offset..offset + len]);
                if nocase { window.nocase() } else { window }
            };
            if own.len() < WINDOW {
                let lower = own[0].to_ascii_lowercase();
                if firsts[usize::from(lower)] < SHARED_MAX {
                    firsts[usize::from(lower)] += 1;
                    short.push(none);
                    windows.push(window(0, own.len()));
                    bytes.extend_from_slice(own);
                    continue;
                }
            }
            let has_room = |key: &u32| taken.get(key).is_none_or(|count| *count < SHARED_MAX);
            let best = keys(pattern).filter(|(_, key)| has_room(key)).min_by_key(|(_, key)| {
                let often: u32 = key.to_le_bytes().iter().map(|byte| common(*byte)).sum();
                often + 6 * counts.get(key).map_or(0, |count| count.ilog2())
            });
            match best {
                Some((offset, key)) => {
                    *taken.entry(key).or_default() += 1;
                    long.push(Entry { key, offset: offset as u16, ..none });
                    windows.push(window(offset, WINDOW));
                    bytes.extend_from_slice(own);
                }
                None => {
                    rest.insert(pattern.clone())?;
                    numbers.push(number);
                }
            }
        }
        windows.sort_unstable_by(|a, b| a.bytes().cmp(b.bytes()));
        windows.dedup();
        let windows: Vec<&Pattern> = windows.iter().collect();
        let (buckets, grams) = (Buckets::new(&windows), Grams::new(&windows));
        let filter = Filter { buckets, grams, whole: Whole::new(&[]) };
        let rest = match numbers.is_empty() {
            true => None,
            false => Some(Rest { automaton: Automaton::new(&rest)?, numbers }),
        };
        let slots = (2 * long.len()).next_power_of_two();
        let (starts, entries) = sorted(long, slots, |entry| slot(entry.key, slots));
        // Of a short pattern where case does not count, both first bytes lead to it.
        let place = |entry: &Entry| usize::from(bytes[entry.at as usize].to_ascii_lowercase());
        let (short_starts, short) = sorted(short, 256, place);
        let (bytes, level) = (bytes.into(), Level::best());
        Ok(Self { filter, level, starts, entries, short_starts, short, bytes, rest })
    }

    /// Uses other vector instructions; those that the processor does not have stay unused.
    pub fn set_level(&mut self, level: Level) {
        if level.is_available() {
            self.level = level;
        }
    }

    /// Bytes of the tables.
    pub fn bytes(&self) -> usize {
        let entries = self.entries.len() + self.short.len();
        let words = self.starts.len() + self.short_starts.len();
        let rest = self.rest.as_ref().map_or(0, |rest| rest.automaton.bytes());
        let grams = self.filter.grams.table.len() * 8;
        entries * size_of::<Entry>() + 4 * words + self.bytes.len() + grams + rest
    }

    /// `found` gets the matches in the bytes after what it holds, by end and pattern, as those of segment 0: what
    /// [`Automaton::scan`] gives from [`Automaton::start`] on.
    pub fn find(&self, bytes: &[u8], found: &mut Vec<Found>, scratch: &mut Scratch) {
        let begin = found.len();
        let segment = Segment { state: State::from_bits(0), offset: 0, bytes };
        scratch.masks.clear();
        vectors::find(self.level, &self.filter, &[segment], &mut scratch.masks);
        self.filter.end(bytes, &mut scratch.masks);
        for (word, mask) in scratch.masks.iter().enumerate() {
            let mut left = *mask;
            while left != 0 {
                let at = word * PLACES + left.trailing_zeros() as usize;
                self.confirm(0, bytes, at, found);
                left &= left - 1;
            }
        }
        self.find_rest(&[segment], found, scratch);
        if found.len() > begin + 1 {
            found[begin..].sort_unstable();
        }
    }

    /// [`Finder::find`] in the bytes of each segment, for itself: the filter goes over all of them before anything is compared,
    /// which is quicker where they are short. `found` gets the matches after what it holds, by segment, end and pattern; ends
    /// count from the first byte of the segment. States and offsets are not looked at.
    ///
    /// ```
    /// use automata::{Finder, Found, Pattern, Patterns, Scratch, Segment, State};
    ///
    /// let mut patterns = Patterns::default();
    /// patterns.insert(Pattern::new(b"needle")).unwrap();
    /// let finder = Finder::new(&patterns).unwrap();
    ///
    /// let (mut found, mut scratch) = (Vec::new(), Scratch::default());
    /// let segments = [b"hay, nee".as_slice(), b"dle, needle"]
    ///     .map(|bytes| Segment { state: State::from_bits(0), offset: 0, bytes });
    /// finder.find_many(&segments, &mut found, &mut scratch);
    /// assert_eq!(found, [Found { segment: 1, end: 11, pattern: 0 }]);
    /// ```
    ///
    /// # Panics
    /// With 2^32 segments or more.
    pub fn find_many(
        &self,
        segments: &[Segment<'_>],
        found: &mut Vec<Found>,
        scratch: &mut Scratch,
    ) {
        assert!(u32::try_from(segments.len()).is_ok(), "segments are numbered by 32 bits");
        let begin = found.len();
        scratch.masks.clear();
        vectors::find(self.level, &self.filter, segments, &mut scratch.masks);
        let mut masks = &mut scratch.masks[..];
        for (number, segment) in (0..).zip(segments) {
            let bytes = segment.bytes;
            let (mine, others) = masks.split_at_mut(bytes.len().div_ceil(PLACES));
            masks = others;
            self.filter.end(bytes, mine);
            let before = found.len();
            for (word, mask) in mine.iter().enumerate() {
                let mut left = *mask;
                while left != 0 {
                    let at = word * PLACES + left.trailing_zeros() as usize;
                    self.confirm(number, bytes, at, found);
                    left &= left - 1;
                }
            }
            if found.len() > before + 1 {
                found[before..].sort_unstable();
            }
        }
        if self.rest.is_some() {
            self.find_rest(segments, found, scratch);
            found[begin..].sort_unstable();
        }
    }

    /// The matches of patterns without a window of their own.
    fn find_rest(&self, segments: &[Segment<'_>], found: &mut Vec<Found>, scratch: &mut Scratch) {
        let Some(Rest { automaton, numbers }) = &self.rest else { return };
        for (number, segment) in (0..).zip(segments) {
            let before = found.len();
            automaton.find_whole(segment.bytes, found, scratch);
            for own in &mut found[before..] {
                (own.segment, own.pattern) = (number, numbers[own.pattern as usize]);
            }
        }
    }

    /// The patterns whose window is at a place.
    #[inline]
    fn confirm(&self, segment: u32, bytes: &[u8], at: usize, found: &mut Vec<Found>) {
        let text = &bytes[at..];
        if let Some(window) = text.first_chunk() {
            let key = folded(*window);
            let slot = slot(key, self.starts.len() - 1);
            let own = self.starts[slot] as usize..self.starts[slot + 1] as usize;
            for entry in self.entries[own].iter().filter(|entry| entry.key == key) {
                self.compare(entry, (segment, bytes), at, found);
            }
        }
        if let Some(first) = text.first().filter(|_| !self.short.is_empty()) {
            let slot = usize::from(first.to_ascii_lowercase());
            let own = self.short_starts[slot] as usize..self.short_starts[slot + 1] as usize;
            for entry in &self.short[own] {
                self.compare(entry, (segment, bytes), at, found);
            }
        }
    }

    /// A pattern whose window is at a place, as a whole.
    #[inline]
    fn compare(
        &self,
        entry: &Entry,
        (segment, bytes): (u32, &[u8]),
        at: usize,
        found: &mut Vec<Found>,
    ) {
        let len = usize::from(entry.len);
        let Some(start) = at.checked_sub(usize::from(entry.offset)) else { return };
        let Some(there) = bytes.get(start..start + len) else { return };
        // Texts that are full of beginnings of patterns differ at their ends; the entry alone says so.
        if there.last_chunk().is_some_and(|last| folded(*last) != entry.tail) {
            return;
        }
        let own = &self.bytes[entry.at as usize..][..len];
        let is_equal = match entry.nocase {
            true => there.eq_ignore_ascii_case(own),
            false => there == own,
        };
        if is_equal && (start == 0 || !entry.anchored) {
            found.push(Found { segment, end: (start + len) as u64, pattern: entry.pattern });
        }
    }
}

/// Entries by their slot, and where those of each slot begin; one more at the end.
fn sorted(
    mut entries: Vec<Entry>,
    slots: usize,
    slot: impl Fn(&Entry) -> usize,
) -> (Box<[u32]>, Box<[Entry]>) {
    entries.sort_by_key(&slot);
    let mut starts = vec![0_u32; slots + 1];
    entries.iter().for_each(|entry| starts[slot(entry) + 1] += 1);
    (0..slots).for_each(|at| starts[at + 1] += starts[at]);
    (starts.into(), entries.into())
}

/// The windows of a pattern, and where they begin.
fn keys(pattern: &Pattern) -> impl Iterator<Item = (usize, u32)> {
    let windows = pattern.bytes().windows(WINDOW).take(OFFSETS_MAX).enumerate();
    windows.filter_map(|(offset, window)| Some((offset, folded(*window.first_chunk()?))))
}

#[inline]
fn folded(window: [u8; WINDOW]) -> u32 {
    u32::from_le_bytes(window) | CASES
}

/// The upper bits of a product depend on all bytes (Knuth volume 3, §6.4). `slots` is a power of two.
#[inline]
fn slot(key: u32, slots: usize) -> usize {
    let hash = u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 32) as usize & (slots - 1)
}

/// How common a byte is in the texts of protocols, the cases of letters as one: four for each doubling. By rule of thumb: what is
/// wrong costs time only.
fn common(folded: u8) -> u32 {
    match folded {
        // The bit of the cases makes a space of a zero.
        b' ' => 20,
        b'e' | b't' | b'a' | b'o' | b'i' | b'n' | b's' | b'r' => 15,
        b'h' | b'l' | b'd' | b'c' | b'u' | b'm' | b'p' => 12,
        b'a'..=b'z' => 8,
        b'/' | b'.' | b'0' | b'1' | b'2' => 11,
        b'3'..=b'9' | b'-' | b'=' | b':' | b'*' => 8,
        // Line feed and carriage return, as they are with that bit.
        b',' | b'"' | b'%' | b'&' | b';' | 0xff => 5,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;

    /// More patterns than a window stands for: all are found, by whatever way.
    #[test]
    fn patterns_may_share_all_windows() {
        let mut patterns = Patterns::default();
        for at in 0..64_u8 {
            // The cases of four letters and one more byte: one window each for the first four bytes, and for the last.
            let mut bytes = *b"wxyz!?";
            (0..4).for_each(|bit| bytes[bit] ^= (at >> bit & 1) << 5);
            let len = 4 + usize::from(at >> 4 & 1);
            patterns.insert(Pattern::new(&bytes[..len])).unwrap();
            patterns.insert(Pattern::new(&[b'q', at])).unwrap();
            patterns.insert(Pattern::new(&bytes[..len]).nocase()).unwrap();
            patterns.insert(Pattern::new(&[at, 1, 2, 3]).anchored()).unwrap();
        }
        let mut finder = Finder::new(&patterns).unwrap();
        assert!(finder.rest.is_some());
        let text = b"\x05\x01\x02\x03wxyz!WXyzwXYZ!?q\x07Q\x07q!\x05\x01\x02\x03WXYZ";
        for level in Level::ALL {
            finder.set_level(level);
            for from in 0..text.len() {
                let (mut found, mut scratch) = (Vec::new(), Scratch::default());
                finder.find(&text[from..], &mut found, &mut scratch);
                let found: Vec<_> = found.iter().map(Found::as_match).collect();
                assert_eq!(found, reference::matches(patterns.as_slice(), &text[from..]), "{from}");
            }
        }
    }
}
