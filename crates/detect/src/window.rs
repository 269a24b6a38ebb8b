//! Bytes that come in parts: the last of them are kept, and checks are evaluated over them.
//!
//! ```text
//!  bytes   0        half      2·half     3·half
//!          ├─────────┴──────────┤                     first window
//!                    ├──────────┴─────────┤           second one
//! ```
//!
//! Windows begin at multiples of `half`, so that what matches does not depend on how the bytes were cut. A part is found
//! once. What may be evaluated on the beginning of a window is, as soon as its literal is there; the rest waits until there is
//! more than the window holds, or the end.

use automata::State;

use crate::index::{OfPort, Room};
use crate::rule::{Part, When};
use crate::solve::{View, holds};

#[derive(Debug, Default)]
pub(crate) struct Window {
    bytes: Vec<u8>,
    /// The place of the first of them.
    start: u64,
    state: Option<State>,
    /// Parts whose literal is there, sorted, and where it last ended.
    hits: Vec<(u32, u64)>,
    /// Parts that were found, sorted.
    done: Vec<u32>,
    /// How many bytes were there when parts without a new literal were last evaluated.
    evaluated: usize,
}

impl Window {
    /// As it was at first; memory stays.
    pub(crate) fn reset(&mut self) {
        self.bytes.clear();
        self.hits.clear();
        self.done.clear();
        (self.start, self.state, self.evaluated) = (0, None, 0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == 0 && self.bytes.is_empty()
    }

    /// More bytes; `found` gets numbers of parts that hold, of those that `wants` is for. `is_clean`: no literal is in them as a
    /// whole.
    #[expect(clippy::too_many_arguments, reason = "a window has no references of its own")]
    pub(crate) fn advance(
        &mut self,
        set: OfPort<'_>,
        parts: &[Part],
        half: usize,
        mut bytes: &[u8],
        is_clean: bool,
        is_last: bool,
        room: &mut Room,
        given_up: &mut bool,
        wants: impl Fn(&Part) -> bool,
        mut found: impl FnMut(u32),
    ) {
        let wants: &dyn Fn(&Part) -> bool = &wants;
        if set.is_empty() {
            self.start += bytes.len() as u64;
            return;
        }
        // All of it at once: nothing has to be kept.
        if is_last && self.is_empty() && bytes.len() <= 2 * half {
            let hits = &mut self.hits;
            if !is_clean {
                set.scan(room, None, bytes, 0, |part, end| hit(hits, part, end));
            }
            self.evaluate(set, parts, bytes, When::Whole, true, given_up, wants, &mut found);
            return;
        }
        loop {
            if self.bytes.len() == 2 * half && !bytes.is_empty() {
                self.evaluate_own(set, parts, When::Full, true, given_up, wants, &mut found);
                self.bytes.drain(..half);
                self.start += half as u64;
                self.evaluated = half;
                let start = self.start;
                self.hits.retain(|(_, end)| *end > start);
            }
            let take = bytes.len().min(2 * half - self.bytes.len());
            let (now, rest) = bytes.split_at(take);
            let (offset, hits) = (self.start + self.bytes.len() as u64, &mut self.hits);
            let mut is_new = false;
            let new = |part, end| {
                is_new = true;
                hit(hits, part, end);
            };
            self.state = match is_clean {
                true => set.scan_clean(room, self.state, now, offset, new),
                false => set.scan(room, self.state, now, offset, new),
            };
            self.bytes.extend_from_slice(now);
            bytes = rest;
            let is_end = is_last && rest.is_empty();
            // Few more bytes and no new literal: the work has to be in proportion to the bytes.
            let is_more = (self.bytes.len() - self.evaluated) * 8 >= self.bytes.len();
            if is_end || is_new || is_more {
                let when = if is_end { When::Whole } else { When::Always };
                self.evaluate_own(set, parts, when, is_end || is_more, given_up, wants, &mut found);
                self.evaluated = self.bytes.len();
            }
            if bytes.is_empty() {
                return;
            }
        }
    }

    /// Evaluates the bytes that are kept.
    #[expect(clippy::too_many_arguments, reason = "as above")]
    fn evaluate_own(
        &mut self,
        set: OfPort<'_>,
        parts: &[Part],
        when: When,
        with_always: bool,
        given_up: &mut bool,
        wants: &dyn Fn(&Part) -> bool,
        found: &mut impl FnMut(u32),
    ) {
        let own = std::mem::take(&mut self.bytes);
        self.evaluate(set, parts, &own, when, with_always, given_up, wants, found);
        self.bytes = own;
    }

    #[expect(clippy::too_many_arguments, reason = "as above")]
    fn evaluate(
        &mut self,
        set: OfPort<'_>,
        parts: &[Part],
        bytes: &[u8],
        when: When,
        with_always: bool,
        given_up: &mut bool,
        wants: &dyn Fn(&Part) -> bool,
        found: &mut impl FnMut(u32),
    ) {
        let view = View { bytes, base: self.start };
        let always = if with_always { set.always } else { &[] };
        let hits = self.hits.iter().map(|(part, _)| *part);
        for number in hits.chain(always.iter().copied()) {
            let part = &parts[number as usize];
            if part.when > when || !part.fits(view) {
                continue;
            }
            let Err(at) = self.done.binary_search(&number) else { continue };
            if !wants(part) {
                continue;
            }
            if holds(&part.ops, view, given_up) && part.write(view) {
                self.done.insert(at, number);
                found(number);
            }
        }
    }
}

fn hit(hits: &mut Vec<(u32, u64)>, part: u32, end: u64) {
    match hits.binary_search_by_key(&part, |(part, _)| *part) {
        Ok(at) => hits[at].1 = end,
        Err(at) => hits.insert(at, (part, end)),
    }
}
