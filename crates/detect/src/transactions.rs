//! Parts of rules in buffers of transactions.
//!
//! ```text
//!  buffer ─┬─ whole ─▶ literals of keys, parts without a key ─▶ found ─▶ a key: the other parts of its rule, in what is kept
//!          │     └▶ kept, for parts that wait for a key   ◀───────────────┘
//!          └─ in pieces ─▶ windows: literals of all parts ─▶ found
//! ```
//!
//! A rule that looks into several buffers has a *key*: the part whose literal is most seldom there. The others are evaluated once
//! that is found, on the buffers of the transaction that are kept and on those that come. What is too large to be kept, or comes
//! in pieces, is searched for all parts. Which way a part is found has no influence on when its rule matches.

use signatures::Buffer;

use crate::alert::Found;
use crate::compile::canonical;
use crate::conditions;
use crate::detector::{Detector, server_port, take};
use crate::flow::{Kept, Match, OPEN_MAX, Open};
use crate::headers::Compared;
use crate::rule::{Part, Way, When};
use crate::ruleset::BufferSets;
use crate::solve::{View, holds};
use crate::window::Window;
use crate::{BufferPart, FlowState, Sender, transform};

/// Half of what is kept of a buffer that comes in parts.
const BUFFER_HALF: usize = 16_384;
/// What of a buffer is kept for transforms and sets.
const RAW_MAX: usize = 65_536;
/// Rules of a flow whose payload was found and that wait for a transaction.
const PAYLOADS_MAX: usize = 256;

impl Detector {
    /// A payload was found of a rule that asks for a transaction too.
    pub(crate) fn payload_found(&mut self, flow: &mut FlowState, number: u32) {
        let sender = self.step.sender;
        let rule = &self.rules.rules[number as usize];
        if flow.payloads.iter().any(|(own, other)| *own == number && rule.counts(sender, *other)) {
            return;
        }
        if flow.payloads.len() == PAYLOADS_MAX {
            flow.payloads.remove(0);
        }
        flow.payloads.push((number, sender));
        let once = rule.once(number, sender);
        for transaction in &mut flow.transactions {
            let found = transaction.found.binary_search_by_key(&once, |(own, _)| *own);
            let is_whole = found.is_ok_and(|at| transaction.found[at].1 == rule.buffers);
            if is_whole && let Err(at) = transaction.done.binary_search(&once) {
                transaction.done.insert(at, once);
                let (found, waits) = (Found::Transaction(transaction.number), false);
                self.step.matches.push(Match { rule: number, found, sender, waits });
            }
        }
    }

    /// A part of a rule was found in a buffer of a transaction.
    fn part_found(&mut self, flow: &mut FlowState, transaction: u64, part: u32, sender: Sender) {
        let rules = self.rules.clone();
        let part = &rules.parts[part as usize];
        let (number, bit) = (part.rule, part.bit);
        let rule = &rules.rules[number as usize];
        let mut payloads = flow.payloads.iter();
        let has_payload = rule.payload == 0
            || payloads.any(|(own, other)| *own == number && rule.counts(sender, *other));
        let ways = [Sender::Client, Sender::Server].map(|sender| flow.way_of(sender));
        let application =
            flow.application[sender.index()].or(flow.application[sender.other().index()]);
        let mut headers = std::mem::take(&mut flow.headers);
        let transaction = flow.transaction(transaction);
        let once = rule.once(number, sender);
        let at = match transaction.found.binary_search_by_key(&once, |(own, _)| *own) {
            Ok(at) => at,
            Err(at) => {
                transaction.found.insert(at, (once, 0));
                at
            }
        };
        let before = transaction.found[at].1;
        let mut bits = before | bit;
        // The key: now the parts count that wait for it.
        if bit == rule.key && before & bit == 0 {
            for own in rule.parts.iter().map(|own| &rules.parts[*own as usize]) {
                let mut may_hold = |side: usize| {
                    headers[side].holds(&rules.headers, own.header, ways[side].as_ref())
                };
                let is_there = |kept: &&Kept| {
                    own.buffer == kept.buffer
                        && rule.counts(sender, kept.sender)
                        && own.senders[kept.sender.index()]
                        && may_hold(kept.sender.index())
                };
                if !own.is_lazy || bits & own.bit != 0 {
                    continue;
                }
                let kept = transaction.kept.iter().filter(is_there);
                let bytes = kept.map(|kept| &transaction.bytes[kept.begin..kept.end]);
                let holds = { bytes }.any(|bytes| {
                    part_holds(own, bytes, &mut self.scratch.bytes, &mut self.counts.given_up)
                });
                let is_absent = |other: Sender| {
                    rule.counts(sender, other)
                        && own.senders[other.index()]
                        && transaction.ended[other.index()]
                        && !transaction.has_seen(own.buffer, other)
                        && is_of(own.buffer, application)
                };
                let is_absent =
                    || own.absent && [Sender::Client, Sender::Server].into_iter().any(is_absent);
                bits |= if holds || is_absent() { own.bit } else { 0 };
            }
        }
        transaction.found[at].1 = bits;
        let is_whole = bits == rule.buffers;
        if is_whole
            && has_payload
            && let Err(at) = transaction.done.binary_search(&once)
        {
            transaction.done.insert(at, once);
            let (found, waits) = (Found::Transaction(transaction.number), false);
            self.step.matches.push(Match { rule: number, found, sender, waits });
        }
        flow.headers = headers;
    }

    /// Which parts of rules, whose key was found before, hold of a buffer that has come.
    fn lazy_parts(
        &mut self,
        flow: &mut FlowState,
        part: &BufferPart<'_>,
        way: Option<Way>,
        found: &mut Vec<u32>,
    ) {
        let rules = self.rules.clone();
        let (buffer, side) = (canonical(part.buffer), part.sender.index());
        let mut headers = std::mem::take(&mut flow.headers[side]);
        for (once, bits) in &flow.transaction(part.transaction).found {
            let (number, sender) = number_of(*once);
            let rule = &rules.rules[number as usize];
            let is_other = !rule.counts(part.sender, sender);
            if is_other || rule.key & bits == 0 || *bits == rule.buffers {
                continue;
            }
            // All parts of a rule have its header.
            let header = rule.parts.first().map_or(0, |own| rules.parts[*own as usize].header);
            if !headers.holds(&rules.headers, header, way.as_ref()) {
                continue;
            }
            for number in &rule.parts {
                let own = &rules.parts[*number as usize];
                let is_it = own.is_lazy && own.buffer == buffer && own.senders[side];
                if is_it && bits & own.bit == 0 && {
                    let given_up = &mut self.counts.given_up;
                    part_holds(own, part.bytes, &mut self.scratch.bytes, given_up)
                } {
                    found.push(*number);
                }
            }
        }
        flow.headers[side] = headers;
    }

    /// A buffer or a part of one.
    pub fn buffer(&mut self, flow: &mut FlowState, part: &BufferPart<'_>) {
        if self.step.is_over {
            return;
        }
        self.step.has_data = true;
        let rules = self.rules.clone();
        let (buffer, sender, side) = (canonical(part.buffer), part.sender, part.sender.index());
        let way = flow.way_of(sender);
        let port = way.map(|way| server_port(&way, sender));
        let transaction = flow.transaction(part.transaction);
        transaction.see(buffer, sender);
        let number = transaction.number;
        let Some(sets) = rules.buffers.get(buffer as usize) else { return };
        if sets.is_empty() {
            return;
        }
        let mut found = std::mem::take(&mut self.scratch.parts);
        found.clear();
        let mut given_up = false;
        let is_same =
            |open: &Open| (open.buffer, open.number, open.sender) == (buffer, part.number, sender);
        let place = transaction.open.iter().position(is_same);
        let has_transforms = sets.iter().any(|set| !set.transforms.is_empty());
        let is_of_sets = |part: &Part| part.buffer == buffer && part.senders[side];
        let mut of_sets = rules.of_sets.iter().map(|number| &rules.parts[*number as usize]);
        let asks_for_whole = of_sets.any(is_of_sets);
        if place.is_some() || !part.is_complete {
            let mut headers = std::mem::take(&mut flow.headers[side]);
            let transaction = flow.transaction(part.transaction);
            let place = place.unwrap_or_else(|| {
                if transaction.open.len() == OPEN_MAX {
                    transaction.open.remove(0);
                }
                let (window, raw) = (Window::default(), Vec::new());
                transaction.open.push(Open { buffer, number: part.number, sender, window, raw });
                transaction.open.len() - 1
            });
            let early = self.early(When::Always);
            let open = &mut transaction.open[place];
            for set in sets.iter().filter(|set| set.transforms.is_empty()) {
                let (set, is_last) = (set.sets[side].all.of(port), part.is_complete);
                let values = &mut self.scratch.values;
                let found = |part, of: &[u8]| take(&rules.parts, part, of, &mut found, values);
                open.window.advance(
                    set,
                    &rules.parts,
                    BUFFER_HALF,
                    part.bytes,
                    false,
                    is_last,
                    early,
                    &mut self.scratch.room,
                    &mut given_up,
                    |header| headers.holds(&rules.headers, header, way.as_ref()),
                    found,
                );
            }
            if has_transforms || asks_for_whole {
                let room = RAW_MAX - open.raw.len();
                open.raw.extend_from_slice(&part.bytes[..part.bytes.len().min(room)]);
            }
            if part.is_complete {
                let open = transaction.open.remove(place);
                let how = How { plain: false, is_kept: false, way };
                let (given_up, found) = (&mut given_up, &mut found);
                self.whole(sets, sender, &open.raw, how, &mut headers, given_up, found);
                // What is as long as that may be cut.
                if asks_for_whole && open.raw.len() < RAW_MAX {
                    self.long_values(buffer, sender, &open.raw, way, &mut headers, found);
                }
            }
            flow.headers[side] = headers;
        } else {
            let is_kept = sets.iter().any(|set| set.sets[side].keys.is_some())
                && part.bytes.len() <= 2 * BUFFER_HALF
                && transaction.keep(buffer, sender, part.bytes);
            if is_kept {
                self.lazy_parts(flow, part, way, &mut found);
            }
            let how = How { plain: true, is_kept, way };
            let headers = &mut flow.headers[side];
            self.whole(sets, sender, part.bytes, how, headers, &mut given_up, &mut found);
            if asks_for_whole && part.bytes.len() < RAW_MAX {
                let bytes = part.bytes;
                self.long_values(buffer, sender, bytes, way, &mut flow.headers[side], &mut found);
            }
        }
        self.counts.given_up += u64::from(given_up);
        self.keep_values(flow, Some(number));
        for part in &found {
            self.part_found(flow, number, *part, sender);
        }
        self.scratch.parts = found;
    }

    /// Parts on sets, which ask for all of a buffer, in one that is larger than a window.
    fn long_values(
        &mut self,
        buffer: Buffer,
        sender: Sender,
        bytes: &[u8],
        way: Option<Way>,
        headers: &mut Compared,
        found: &mut Vec<u32>,
    ) {
        if bytes.len() <= 2 * BUFFER_HALF {
            return;
        }
        let rules = self.rules.clone();
        for number in &rules.of_sets {
            let part = &rules.parts[*number as usize];
            let is_it = part.buffer == buffer && part.senders[sender.index()];
            if is_it && headers.holds(&rules.headers, part.header, way.as_ref()) && {
                let given_up = &mut self.counts.given_up;
                part_holds(part, bytes, &mut self.scratch.bytes, given_up)
            } {
                let of: &[u8] =
                    if part.transforms.is_empty() { bytes } else { &self.scratch.bytes };
                take(&rules.parts, *number, of, found, &mut self.scratch.values);
            }
        }
    }

    /// A buffer of which all is there.
    #[expect(clippy::too_many_arguments, reason = "what the caller has taken apart")]
    fn whole(
        &mut self,
        sets: &[BufferSets],
        sender: Sender,
        bytes: &[u8],
        How { plain, is_kept, way }: How,
        headers: &mut Compared,
        given_up: &mut bool,
        found: &mut Vec<u32>,
    ) {
        let rules = self.rules.clone();
        let port = way.map(|way| server_port(&way, sender));
        for set in sets.iter().filter(|set| plain || !set.transforms.is_empty()) {
            let own = set.sets[sender.index()].of(is_kept).of(port);
            if own.is_empty() {
                continue;
            }
            let bytes = match set.transforms.is_empty() {
                true => bytes,
                false => {
                    self.scratch.bytes.clear();
                    self.scratch.bytes.extend_from_slice(&bytes[..bytes.len().min(RAW_MAX)]);
                    transform::apply(&set.transforms, &mut self.scratch.bytes);
                    &self.scratch.bytes
                }
            };
            self.window.reset();
            let (room, values) = (&mut self.scratch.room, &mut self.scratch.values);
            let found = |part, of: &[u8]| take(&rules.parts, part, of, found, values);
            self.window.advance(
                own,
                &rules.parts,
                BUFFER_HALF,
                bytes,
                false,
                true,
                None,
                room,
                given_up,
                |header| headers.holds(&rules.headers, header, way.as_ref()),
                found,
            );
        }
    }

    /// All buffers of one side of a transaction were given.
    pub fn end_of_side(&mut self, flow: &mut FlowState, sender: Sender, transaction: u64) {
        if self.step.is_over {
            return;
        }
        let rules = self.rules.clone();
        let application =
            flow.application[sender.index()].or(flow.application[sender.other().index()]);
        let own = flow.transaction(transaction);
        if std::mem::replace(&mut own.ended[sender.index()], true) {
            return;
        }
        let mut absent = std::mem::take(&mut self.scratch.parts);
        absent.clear();
        let missing = rules.absent[sender.index()].iter().filter(|part| {
            let buffer = rules.parts[**part as usize].buffer;
            !own.has_seen(buffer, sender) && is_of(buffer, application)
        });
        absent.extend(missing);
        for (once, bits) in &own.found {
            let (number, other) = number_of(*once);
            let rule = &rules.rules[number as usize];
            let is_other = !rule.counts(sender, other);
            if is_other || rule.key & bits == 0 || *bits == rule.buffers {
                continue;
            }
            absent.extend(rule.parts.iter().filter(|number| {
                let part = &rules.parts[**number as usize];
                let is_it = part.is_lazy && part.absent && part.senders[sender.index()];
                is_it && !own.has_seen(part.buffer, sender) && is_of(part.buffer, application)
            }));
        }
        for part in &absent {
            self.part_found(flow, transaction, *part, sender);
        }
        self.scratch.parts = absent;
    }

    /// Nothing more of a transaction follows, whether or not both of its sides ended.
    pub fn end_of_transaction(&mut self, flow: &mut FlowState, transaction: u64) {
        let place = flow.transactions.binary_search_by_key(&transaction, |own| own.number);
        if let Ok(at) = place {
            flow.transactions[at].ended = [true; 2];
        }
    }
}

/// The number of a rule, and who sends what was found of it, if that counts ([`Compiled::once`]).
///
/// [`Compiled::once`]: crate::rule::Compiled::once
fn number_of(once: u64) -> (u32, Sender) {
    ((once >> 1) as u32, if once & 1 == 0 { Sender::Client } else { Sender::Server })
}

/// How a buffer is looked at of which all is there.
#[derive(Clone, Copy)]
struct How {
    /// Also by parts without transforms.
    plain: bool,
    /// It is kept for the parts that wait for the key of their rule.
    is_kept: bool,
    way: Option<Way>,
}

/// Whether a part holds of a buffer of which all is there.
fn part_holds(part: &Part, bytes: &[u8], room: &mut Vec<u8>, given_up: &mut u64) -> bool {
    let bytes = match part.transforms.is_empty() {
        true => bytes,
        false => {
            room.clear();
            room.extend_from_slice(bytes);
            transform::apply(&part.transforms, room);
            room
        }
    };
    let (view, mut is_given_up) = (View { bytes, base: 0 }, false);
    let holds = part.fits(view) && holds(&part.ops, view, &mut is_given_up);
    *given_up += u64::from(is_given_up);
    holds
}

/// Is a buffer one of messages of the application?
fn is_of(buffer: Buffer, application: Option<&str>) -> bool {
    let Some(application) = application else { return false };
    let name = buffer.name();
    let family = match name.split(['.', '_']).next().unwrap_or(name) {
        "ja3" | "ja3s" | "ja4" => "tls",
        "email" => "smtp",
        "file" | "filesize" => return true,
        family => family,
    };
    conditions::is_application(family, application)
}
