//! What an end sent before the other one answered, and what it sends next, looked at together.
//!
//! ```text
//!  messages of one end:   ···├── earlier ones ──┤ (answer) ├── message ──┤
//!  looked at together:          ├──── tail ─────┤          ├─────────────┤
//! ```
//!
//! Parts that hold of a message alone are found in its window. Here those are found that hold only of the message together with
//! the bytes before the answer. A part that was found in a message is looked for from the end of that message on. All of this is
//! done at the end of a message, or once its window is full: where segments are cut has no influence.
//!
//! The work is bounded, however short the messages are: each message and each byte pay for a number of bytes that may be looked
//! at. First come parts with a new literal. The others are evaluated all at once, as soon as enough is paid.

use super::{Hit, PAID_PER_BYTE, PART_COST, Window};
use crate::index::{OfPort, Ref, Room};
use crate::rule::{Part, When};
use crate::solve::{View, holds};

/// So many bytes each message pays for.
const PAID_PER_MESSAGE: usize = 16_384;
/// What can be paid at most.
const PAID_MAX: usize = 32 * PAID_PER_MESSAGE;

/// The last bytes of the messages of one end.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    bytes: Vec<u8>,
    /// The place of the first of them in the stream.
    start: u64,
    /// Parts whose literal is there, sorted, and where it last ended in the stream.
    hits: Vec<Hit>,
    /// Parts that were found, sorted, and where the message ended.
    done: Vec<(u32, u64)>,
    /// Bytes that may be looked at.
    paid: usize,
}

/// Room of a worker for the evaluation.
#[derive(Debug, Default)]
pub(crate) struct Joint {
    bytes: Vec<u8>,
    parts: Vec<u32>,
}

impl Tail {
    /// As it was at first; memory stays.
    pub(crate) fn reset(&mut self) {
        self.bytes.clear();
        self.hits.clear();
        self.done.clear();
        (self.start, self.paid) = (0, 0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes of memory that it holds beside itself.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity()
            + self.hits.capacity() * size_of::<Hit>()
            + self.done.capacity() * size_of::<(u32, u64)>()
    }

    /// Looks at the tail and the message in `window` together. `when`: [`When::Whole`] where the message ended; `is_last`: no
    /// other one follows. Parts that are found count as found in the message.
    #[expect(clippy::too_many_arguments, reason = "as in `Window::advance`")]
    pub(crate) fn join(
        &mut self,
        set: OfPort<'_>,
        parts: &[Part],
        window: &mut Window,
        when: When,
        is_last: bool,
        joint: &mut Joint,
        room: &mut Room,
        given_up: &mut bool,
        mut wants: impl FnMut(u32) -> bool,
        mut found: impl FnMut(u32, &[u8]),
    ) {
        // The beginning of a long message was looked at before.
        if self.bytes.is_empty() || window.start > 0 || window.bytes.is_empty() {
            return;
        }
        let (at, start) = (self.bytes.len(), self.start);
        let Joint { bytes, parts: tried } = joint;
        bytes.clear();
        bytes.extend_from_slice(&self.bytes);
        bytes.extend_from_slice(&window.bytes);
        tried.clear();
        tried.extend(window.hits.iter().map(|own| own.part));
        set.scan_across(room, bytes, at, |Ref { part, header }, end| {
            if wants(header) {
                tried.push(part);
                note(&mut self.hits, part, start + end);
            }
        });
        tried.sort_unstable();
        tried.dedup();
        let fresh = tried.len();
        let old = self.hits.iter().map(|own| own.part);
        tried.extend(
            old.filter(|part| window.hits.binary_search_by_key(part, |own| own.part).is_err()),
        );
        tried.extend(set.always.iter().filter(|own| wants(own.header)).map(|own| own.part));
        let earned = PAID_PER_MESSAGE + window.bytes.len() * PAID_PER_BYTE;
        self.paid = (self.paid + earned).min(PAID_MAX);
        let cost = bytes.len() + PART_COST;
        let is_paid =
            |paid: usize, count: usize| count * cost <= paid || paid == PAID_MAX || is_last;
        let count = match is_paid(self.paid, tried.len()) {
            true => tried.len(),
            false => fresh.min(self.paid / cost),
        };
        self.paid = self.paid.saturating_sub(count * cost);
        for number in &tried[..count] {
            let part = &parts[*number as usize];
            let Err(place) = window.done.binary_search(number) else { continue };
            let from = self.done.binary_search_by_key(number, |own| own.0);
            let from = from.map_or(start, |at| self.done[at].1.max(start));
            let skip = (from - start) as usize;
            if skip >= at || part.when > when {
                continue;
            }
            let view = View { bytes: &bytes[skip..], base: from };
            if part.fits(view) && holds(&part.ops, view, given_up) {
                window.done.insert(place, *number);
                found(*number, view.bytes);
            }
        }
    }

    /// The message in `window` ended: its last bytes are kept, `max` together with those before.
    pub(crate) fn keep(&mut self, window: &mut Window, max: usize) {
        let begin = self.start + self.bytes.len() as u64;
        let end = begin + window.start + window.bytes.len() as u64;
        for number in &window.done {
            match self.done.binary_search_by_key(number, |own| own.0) {
                Ok(at) => self.done[at].1 = end,
                Err(at) => self.done.insert(at, (*number, end)),
            }
        }
        window.hits.iter().for_each(|own| note(&mut self.hits, own.part, begin + own.end));
        if window.start > 0 || window.bytes.len() >= max {
            self.bytes.clear();
        }
        let len = window.bytes.len().min(max);
        let room = max - len;
        self.bytes.drain(..self.bytes.len().saturating_sub(room));
        self.bytes.extend_from_slice(&window.bytes[window.bytes.len() - len..]);
        self.start = end - self.bytes.len() as u64;
        let start = self.start;
        self.hits.retain(|own| own.end > start);
        self.done.retain(|own| own.1 > start);
    }
}

/// The literal of a part ends there.
fn note(hits: &mut Vec<Hit>, part: u32, end: u64) {
    match hits.binary_search_by_key(&part, |own| own.part) {
        Ok(at) => hits[at].end = hits[at].end.max(end),
        Err(at) => hits.insert(at, Hit { part, end, is_fresh: false }),
    }
}
