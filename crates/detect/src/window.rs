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

use crate::index::{OfPort, Ref, Room};
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
    /// How many bytes were there when parts were last evaluated, those without a new literal too.
    evaluated: usize,
    /// Where the bytes began and how many there were, when parts with a literal were last evaluated, and those without one.
    seen: [Option<(u64, usize)>; 2],
}

impl Window {
    /// As it was at first; memory stays.
    pub(crate) fn reset(&mut self) {
        self.bytes.clear();
        self.hits.clear();
        self.done.clear();
        (self.start, self.state, self.evaluated, self.seen) = (0, None, 0, [None; 2]);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == 0 && self.bytes.is_empty()
    }

    /// More bytes; `found` gets numbers of parts that hold, of those whose header `wants`. `is_clean`: no literal is in them as a
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
        mut wants: impl FnMut(u32) -> bool,
        mut found: impl FnMut(u32),
    ) {
        let wants: &mut dyn FnMut(u32) -> bool = &mut wants;
        if set.is_empty() {
            self.start += bytes.len() as u64;
            return;
        }
        // All of it at once: nothing has to be kept.
        if is_last && self.is_empty() && bytes.len() <= 2 * half {
            let hits = &mut self.hits;
            if !is_clean {
                set.scan_whole(room, bytes, |own, end| {
                    hit(hits, own, end, wants);
                });
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
            let (before, start, hits) = (self.bytes.len(), self.start, &mut self.hits);
            self.bytes.extend_from_slice(now);
            let mut is_new = false;
            let new = |own, end| is_new |= hit(hits, own, start + end, wants);
            self.state = set.scan_more(room, self.state, &self.bytes, before, is_clean, new);
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
        wants: &mut dyn FnMut(u32) -> bool,
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
        wants: &mut dyn FnMut(u32) -> bool,
        found: &mut impl FnMut(u32),
    ) {
        let view = View { bytes, base: self.start };
        // What did not hold of the same bytes before does not now, unless it waited for the end.
        let now = Some((self.start, bytes.len()));
        let least = self.seen.map(|seen| if seen == now { When::Full } else { When::Always });
        self.seen = [now, if with_always { now } else { self.seen[1] }];
        let always = if with_always { set.always } else { &[] };
        let always = always.iter().filter(|own| wants(own.header)).map(|own| (own.part, least[1]));
        let hits = self.hits.iter().map(|(part, _)| (*part, least[0]));
        for (number, least) in hits.chain(always) {
            let part = &parts[number as usize];
            if part.when > when || part.when < least || !part.fits(view) {
                continue;
            }
            let Err(at) = self.done.binary_search(&number) else { continue };
            if holds(&part.ops, view, given_up) && part.write(view) {
                self.done.insert(at, number);
                found(number);
            }
        }
    }
}

/// The literal of a part ends there. Whether that matters: the header of its rule may hold.
fn hit(
    hits: &mut Vec<(u32, u64)>,
    Ref { part, header }: Ref,
    end: u64,
    wants: &mut dyn FnMut(u32) -> bool,
) -> bool {
    if !wants(header) {
        return false;
    }
    match hits.binary_search_by_key(&part, |(part, _)| *part) {
        Ok(at) => hits[at].1 = end,
        Err(at) => hits.insert(at, (part, end)),
    }
    true
}
