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
//!
//! The work is in proportion to the bytes, however they are cut. With a new literal only its parts are evaluated, and each byte that
//! comes pays for a number of bytes that may be looked at again so. Parts for which that is not enough wait, as those without a new
//! literal do, until there is an eighth more than when all were last evaluated, or a full window, or the end: what is found is the
//! same, a little later.
//!
//! Where packets wait for the answer, parts of rules that decide about them are evaluated *early*: with each piece, as far as is paid
//! for. Each piece pays for some bytes, too. What waits for the end is evaluated then as if the piece were the last one, as Suricata
//! does inline.

use automata::State;

use crate::index::{OfPort, Ref, Room};
use crate::rule::{Part, When};
use crate::solve::{View, holds};

/// So many bytes may be looked at again for each that comes. A segment of 1,460 bytes with new literals pays for eleven parts over a
/// full window of a stream.
const PAID_PER_BYTE: usize = 64;

/// And for each piece, where parts are evaluated early.
const PAID_PER_PIECE: usize = 16_384;

/// What the evaluation of a part costs beside its bytes.
const PART_COST: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Window {
    bytes: Vec<u8>,
    /// The place of the first of them.
    start: u64,
    state: Option<State>,
    /// Parts whose literal is there, sorted, and where it last ended.
    hits: Vec<Hit>,
    /// Those with a literal that is new since they were evaluated.
    fresh: Vec<u32>,
    /// Bytes that may be looked at again.
    paid: usize,
    /// Parts that were found, sorted.
    done: Vec<u32>,
    /// How many bytes were there when parts were last evaluated, those without a new literal too.
    evaluated: usize,
    /// Where the bytes began and how many there were when all parts were last evaluated.
    seen: Option<(u64, usize)>,
    /// Bytes that parts were evaluated over.
    #[cfg(test)]
    work: usize,
}

/// The literal of a part is there.
#[derive(Clone, Copy, Debug)]
struct Hit {
    part: u32,
    /// Where it last ended.
    end: u64,
    is_fresh: bool,
}

/// Which parts are evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    /// Those with a new literal, as far as is paid for.
    Fresh,
    /// Those of rules that decide about packets, as far as is paid for; first those with a new literal.
    Early,
    /// All; those of rules that decide about packets as early as this.
    All(Option<When>),
}

impl Window {
    /// As it was at first; memory stays.
    pub(crate) fn reset(&mut self) {
        self.bytes.clear();
        self.hits.clear();
        self.fresh.clear();
        self.done.clear();
        (self.start, self.state, self.evaluated, self.seen) = (0, None, 0, None);
        self.paid = 0;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == 0 && self.bytes.is_empty()
    }

    /// Bytes of memory that it holds beside itself.
    pub(crate) fn memory(&self) -> usize {
        let numbers = self.fresh.capacity() + self.done.capacity();
        self.bytes.capacity() + self.hits.capacity() * size_of::<Hit>() + numbers * size_of::<u32>()
    }

    /// A part counts as found in what is there.
    pub(crate) fn set_found(&mut self, part: u32) {
        if let Err(at) = self.done.binary_search(&part) {
            self.done.insert(at, part);
        }
    }

    /// How many bytes are there, if they are all that came.
    pub(crate) fn len_from_start(&self) -> Option<usize> {
        (self.start == 0).then_some(self.bytes.len())
    }

    /// More bytes; `found` gets numbers of parts that hold, of those whose header `wants`, and of what. `is_clean`: no literal is in them as a
    /// whole. `early`: parts of rules that decide about packets are evaluated now, those that wait for no more than this.
    #[expect(clippy::too_many_arguments, reason = "a window has no references of its own")]
    pub(crate) fn advance(
        &mut self,
        set: OfPort<'_>,
        parts: &[Part],
        half: usize,
        mut bytes: &[u8],
        is_clean: bool,
        is_last: bool,
        early: Option<When>,
        room: &mut Room,
        given_up: &mut bool,
        mut wants: impl FnMut(u32) -> bool,
        mut found: impl FnMut(u32, &[u8]),
    ) {
        let wants: &mut dyn FnMut(u32) -> bool = &mut wants;
        if set.is_empty() {
            self.start += bytes.len() as u64;
            return;
        }
        // All of it at once: nothing has to be kept.
        if is_last && self.is_empty() && bytes.len() <= 2 * half {
            let (hits, fresh) = (&mut self.hits, &mut self.fresh);
            if !is_clean {
                set.scan_whole(room, bytes, |own, end| hit(hits, fresh, own, end, wants));
            }
            let which = Which::All(None);
            self.evaluate(set, parts, bytes, When::Whole, which, given_up, wants, &mut found);
            return;
        }
        let most = 2 * half * PAID_PER_BYTE;
        if early.is_some() {
            self.paid = (self.paid + PAID_PER_PIECE).min(most);
        }
        loop {
            if self.bytes.len() == 2 * half && !bytes.is_empty() {
                let which = Which::All(None);
                self.evaluate_own(set, parts, When::Full, which, given_up, wants, &mut found);
                self.bytes.drain(..half);
                self.start += half as u64;
                self.evaluated = half;
                let start = self.start;
                self.hits.retain(|own| own.end > start);
            }
            let take = bytes.len().min(2 * half - self.bytes.len());
            let (now, rest) = bytes.split_at(take);
            let (before, start) = (self.bytes.len(), self.start);
            let (hits, fresh) = (&mut self.hits, &mut self.fresh);
            if before + take > self.bytes.capacity() {
                // No more than a window holds.
                let len = (2 * before).clamp(before + take, 2 * half);
                self.bytes.reserve_exact(len - before);
            }
            self.bytes.extend_from_slice(now);
            let new = |own, end| hit(hits, fresh, own, start + end, wants);
            self.state = set.scan_more(room, self.state, &self.bytes, before, is_clean, new);
            self.paid = (self.paid + take * PAID_PER_BYTE).min(most);
            bytes = rest;
            let is_end = is_last && rest.is_empty();
            let early = early.filter(|_| rest.is_empty());
            let is_more = (self.bytes.len() - self.evaluated) * 8 >= self.bytes.len();
            if is_end || is_more {
                let when = if is_end { When::Whole } else { When::Always };
                let which = Which::All(early);
                self.evaluate_own(set, parts, when, which, given_up, wants, &mut found);
                self.evaluated = self.bytes.len();
            } else {
                if let Some(early) = early {
                    let which = Which::Early;
                    self.evaluate_own(set, parts, early, which, given_up, wants, &mut found);
                }
                if !self.fresh.is_empty() {
                    let (when, which) = (When::Always, Which::Fresh);
                    self.evaluate_own(set, parts, when, which, given_up, wants, &mut found);
                }
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
        which: Which,
        given_up: &mut bool,
        wants: &mut dyn FnMut(u32) -> bool,
        found: &mut impl FnMut(u32, &[u8]),
    ) {
        let own = std::mem::take(&mut self.bytes);
        self.evaluate(set, parts, &own, when, which, given_up, wants, found);
        self.bytes = own;
    }

    #[expect(clippy::too_many_arguments, reason = "as above")]
    fn evaluate(
        &mut self,
        set: OfPort<'_>,
        parts: &[Part],
        bytes: &[u8],
        when: When,
        which: Which,
        given_up: &mut bool,
        wants: &mut dyn FnMut(u32) -> bool,
        found: &mut impl FnMut(u32, &[u8]),
    ) {
        let view = View { bytes, base: self.start };
        let early = match which {
            Which::All(Some(early)) => when.max(early),
            _ => when,
        };
        let mut one = |number: u32, least: When, own: &mut Self| {
            let part = &parts[number as usize];
            let when = if part.decides { early } else { when };
            if part.when > when || part.when < least || !part.fits(view) {
                return;
            }
            let Err(at) = own.done.binary_search(&number) else { return };
            #[cfg(test)]
            {
                own.work += bytes.len();
            }
            if holds(&part.ops, view, given_up) {
                own.done.insert(at, number);
                found(number, view.bytes);
            }
        };
        let cost = bytes.len() + PART_COST;
        if which == Which::Early {
            let is_open = |own: &Self, number: u32| {
                parts[number as usize].decides && own.done.binary_search(&number).is_err()
            };
            let is_new = |hit: &&Hit| hit.is_fresh && is_open(self, hit.part);
            let most = self.paid / cost;
            let mut new = self.hits.iter().filter(is_new).count().min(most);
            let mut old = most - new;
            for at in 0..self.hits.len() {
                let Hit { part, is_fresh, .. } = self.hits[at];
                let left = if is_fresh { &mut new } else { &mut old };
                if *left > 0 && is_open(self, part) {
                    *left -= 1;
                    self.paid -= cost;
                    self.hits[at].is_fresh = false;
                    one(part, When::Always, self);
                }
            }
            for own in set.always {
                if old > 0 && is_open(self, own.part) && wants(own.header) {
                    old -= 1;
                    self.paid -= cost;
                    one(own.part, When::Always, self);
                }
            }
            let hits = &self.hits;
            self.fresh.retain(|number| {
                let at = hits.binary_search_by_key(number, |own| own.part);
                at.is_ok_and(|at| hits[at].is_fresh)
            });
            return;
        }
        if which == Which::Fresh {
            let count = self.fresh.len().min(self.paid / cost);
            self.paid -= count * cost;
            self.fresh.sort_unstable();
            let mut fresh = std::mem::take(&mut self.fresh);
            for number in fresh.drain(..count) {
                if let Ok(at) = self.hits.binary_search_by_key(&number, |own| own.part) {
                    self.hits[at].is_fresh = false;
                }
                one(number, When::Always, self);
            }
            self.fresh = fresh;
            return;
        }
        // What did not hold of the same bytes before does not now, unless it waited for the end.
        let now = Some((self.start, bytes.len()));
        let least = if self.seen == now { When::Full } else { When::Always };
        self.seen = now;
        self.fresh.clear();
        for at in 0..self.hits.len() {
            self.hits[at].is_fresh = false;
            one(self.hits[at].part, least, self);
        }
        for own in set.always.iter().filter(|own| wants(own.header)) {
            one(own.part, least, self);
        }
    }
}

/// The literal of a part ends there, if that matters: the header of its rule may hold.
fn hit(
    hits: &mut Vec<Hit>,
    fresh: &mut Vec<u32>,
    Ref { part, header }: Ref,
    end: u64,
    wants: &mut dyn FnMut(u32) -> bool,
) {
    if !wants(header) {
        return;
    }
    let at = match hits.binary_search_by_key(&part, |own| own.part) {
        Ok(at) => at,
        Err(at) => {
            hits.insert(at, Hit { part, end, is_fresh: false });
            at
        }
    };
    hits[at].end = end;
    if !std::mem::replace(&mut hits[at].is_fresh, true) {
        fresh.push(part);
    }
}

pub(crate) mod tail;
#[cfg(test)]
mod tests;
