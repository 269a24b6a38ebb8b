//! Evaluates rules.
//!
//! ```text
//!  begin ─▶ rules of addresses, of packets ─┐
//!  data ──▶ message of the sender ──────────┼─▶ matches ─ finish ─▶ by rule: conditions, what a match does
//!  buffer ▶ parts of transactions ──────────┘                       ─▶ thresholds, pass, drop ─▶ alerts
//! ```
//!
//! What bytes fulfil is found as they come; it depends on nothing else. Conditions on flows, hosts and other rules are
//! evaluated at the end of the step, in the order of the rules, so that a rule sees what rules before it have set. A match
//! of a stream or transaction whose conditions do not hold is tried again in later steps, as long as the message or
//! transaction lasts.
//!
//! A *message* is what one end sends until the other one sends: places of contents count from its beginning, and a rule
//! matches once in it. A rule that does not hold of a message alone may hold of it together with what the same end sent
//! before ([`crate::window::tail`]); then places count from the beginning of the stream. Where segments are cut has no influence.
//!
//! Of a stream, rules with contents at fixed places (`depth`, `offset`, `startswith`) are also matched against the payload of each
//! packet, unless they ask for streams only. What a packet and its message both have is one match.

use std::sync::Arc;

use signatures::{Action, Buffer};

use crate::alert::Found;
use crate::conditions::{self, Answer, Scene};
use crate::flow::{Match, Value, WAITING_MAX, way_of_packet};
use crate::header::{Header, payload, upper};
use crate::headers::Compared;
use crate::index::{Ref, Room};
use crate::rule::{Compiled, Kind, Part, Way, When};
use crate::solve::{View, holds};
use crate::tables::{HostTables, Outcome};
use crate::window::Window;
use crate::window::tail::Joint;
use crate::{Alert, FlowState, Packet, Ruleset, Sender, Verdict};

/// Half of what is kept of a message, in bytes.
const MESSAGE_HALF: usize = 4_096;

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Searches that were given up because they took too long.
    pub given_up: u64,
    /// Windows of thresholds and bits of hosts for which there was no room, of all that share them.
    pub no_room: u64,
    /// Matches that were no alerts because of a threshold.
    pub suppressed: u64,
}

/// Evaluates the rules of a [`Ruleset`] at one worker.
///
/// A *step* is a packet and all that it brings: bytes of streams, buffers, ends of transactions. [`Detector::finish`] ends it
/// and gives the alerts, in the order of the rules.
#[derive(Debug)]
pub struct Detector {
    pub(crate) rules: Arc<Ruleset>,
    pub(crate) tables: HostTables,
    pub(crate) counts: Counts,
    pub(crate) step: Step,
    /// The flow of packets that have none.
    lone: FlowState,
    pub(crate) window: Window,
    pub(crate) scratch: Scratch,
}

#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) header: Option<Header>,
    pub(crate) sender: Sender,
    now_ns: u64,
    pub(crate) matches: Vec<Match>,
    /// The flow is dropped or passed.
    pub(crate) is_over: bool,
    /// The payload is given as bytes of the stream.
    is_in_stream: bool,
    /// Bytes of the payload, and whether a message begins with them.
    payload: usize,
    begins_message: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) parts: Vec<u32>,
    pub(crate) bytes: Vec<u8>,
    queue: Vec<Match>,
    pub(crate) room: Room,
    found: Vec<u32>,
    /// Parts on sets that rules write, and what they were found in.
    pub(crate) values: Vec<(u32, Box<[u8]>)>,
    joint: Joint,
}

/// A part holds of these bytes.
pub(crate) fn take(
    parts: &[Part],
    part: u32,
    bytes: &[u8],
    found: &mut Vec<u32>,
    values: &mut Vec<(u32, Box<[u8]>)>,
) {
    found.push(part);
    if parts[part as usize].defers {
        values.push((part, bytes.into()));
    }
}

/// What a message is the last of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// The other end answered.
    OfMessage,
    /// The stream ended, or bytes are missing behind it.
    OfStream,
}

impl Detector {
    /// One for a worker, which counts for itself.
    pub fn new(rules: Arc<Ruleset>) -> Self {
        Self::sharing(rules, HostTables::default())
    }

    /// One for a worker, which counts with all that share these tables.
    pub fn sharing(rules: Arc<Ruleset>, tables: HostTables) -> Self {
        Self {
            rules,
            tables,
            counts: Counts::default(),
            step: Step::default(),
            lone: FlowState::default(),
            window: Window::default(),
            scratch: Scratch::default(),
        }
    }

    /// The rules.
    pub fn rules(&self) -> &Arc<Ruleset> {
        &self.rules
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        Counts { no_room: self.tables.refused(), ..self.counts }
    }

    /// Other rules from the next step on. What flows and hosts remember by name stays, if the rules were compiled after
    /// those before ([`Ruleset::compile_after`]); what of a stream or transaction was found before is forgotten.
    pub fn replace(&mut self, rules: Arc<Ruleset>) {
        self.rules = rules;
    }

    /// Begins a step with a packet of a flow.
    pub fn begin(&mut self, packet: &Packet<'_>, flow: &mut FlowState, sender: Sender) {
        self.begin_searched(packet, flow, sender, false);
    }

    /// The same of a packet that was searched before. `is_clean`: none of [`Ruleset::literals`] of these rules is in its
    /// payload. What is found is the same.
    pub fn begin_searched(
        &mut self,
        packet: &Packet<'_>,
        flow: &mut FlowState,
        sender: Sender,
        is_clean: bool,
    ) {
        self.open(flow, sender, packet.time_ns);
        let Some(header) = Header::new(packet) else { return };
        self.step.is_in_stream = flow.see(&header, sender, self.rules.midstream);
        self.step.header = Some(header);
        if self.step.is_over {
            return;
        }
        let is_first = !std::mem::replace(&mut flow.addresses_done[sender.index()], true);
        // Other protocols, such as GRE, have no flows in Suricata.
        let has_flow = matches!(header.protocol, 1 | 4 | 6 | 17 | 41 | 50 | 58 | 132);
        if is_first || flow.is_none || !has_flow {
            let found = Found::Addresses;
            let all = self.rules.addresses.iter();
            let matches = all.map(|rule| Match { rule: *rule, found, sender, waits: false });
            self.step.matches.extend(matches);
        }
        self.packet(packet, &header, flow, is_clean);
        self.keep_values(flow, None);
    }

    /// Begins and ends a step with a packet of no flow.
    pub fn lone(&mut self, packet: &Packet<'_>, alerts: &mut Vec<Alert>) -> Verdict {
        let mut flow = self.no_flow();
        self.begin(packet, &mut flow, Sender::Client);
        let verdict = self.finish(&mut flow, alerts);
        self.give_back(flow);
        verdict
    }

    /// A step of its own, without a flow, with what matched of what went this way.
    pub(crate) fn alone(
        &mut self,
        way: Way,
        time_ns: u64,
        matches: impl Iterator<Item = Match>,
        alerts: &mut Vec<Alert>,
    ) -> Verdict {
        let mut flow = self.no_flow();
        flow.way = Some(way);
        self.open(&mut flow, Sender::Client, time_ns);
        self.step.matches.extend(matches);
        let verdict = self.finish(&mut flow, alerts);
        self.give_back(flow);
        verdict
    }

    /// The memory of a flow of packets that have none.
    pub(crate) fn give_back(&mut self, flow: FlowState) {
        self.lone = flow;
    }

    /// What a flow knows before its first packet.
    pub(crate) fn no_flow(&mut self) -> FlowState {
        let mut flow = std::mem::take(&mut self.lone);
        flow.forget_rules(self.rules.generation);
        (flow.is_none, flow.is_dropped, flow.is_passed) = (true, false, false);
        flow.bits.clear();
        flow.counters.clear();
        flow.values.clear();
        flow.way = None;
        flow.headers.iter_mut().for_each(Compared::forget);
        flow
    }

    /// Begins a step without a packet: a flow ends, and what waited for its end is evaluated.
    pub fn begin_end(&mut self, flow: &mut FlowState, time_ns: u64) {
        self.open(flow, Sender::Client, time_ns);
        if !self.step.is_over {
            self.end_message(flow, Sender::Client, Last::OfStream);
            self.end_message(flow, Sender::Server, Last::OfStream);
        }
    }

    pub(crate) fn open(&mut self, flow: &mut FlowState, sender: Sender, now_ns: u64) {
        if flow.generation != self.rules.generation {
            flow.forget_rules(self.rules.generation);
        }
        self.step.matches.clear();
        self.step.header = None;
        (self.step.sender, self.step.now_ns) = (sender, now_ns);
        self.step.is_over = flow.is_dropped || flow.is_passed;
        self.step.is_in_stream = false;
        (self.step.payload, self.step.begins_message) = (0, false);
    }

    /// Rules of packets.
    fn packet(
        &mut self,
        packet: &Packet<'_>,
        header: &Header,
        flow: &mut FlowState,
        is_clean: bool,
    ) {
        let rules = self.rules.clone();
        let sender = self.step.sender;
        let side = sender.index();
        let class = match header.protocol {
            6 => 0,
            17 => 1,
            _ => 2,
        };
        let way = way_of_packet(header);
        let plain = &rules.plain[class][side];
        // Nearly always a packet goes the way of its flow.
        let mut lone = Compared::default();
        let is_usual = flow.way_of(sender) == Some(way);
        let headers = if is_usual { &mut flow.headers[side] } else { &mut lone };
        for own in plain.of(way.destination_port).filter(|own| own.may_hold(header)) {
            let rule = &rules.rules[own.rule as usize];
            let is_it = headers.holds(&rules.headers, own.header, Some(&way))
                && conditions::of_packet_hold(rule, header)
                && headers_hold(&rules, rule, packet, header, &mut self.scratch.values);
            if is_it {
                let found = Found::Packet;
                self.step.matches.push(Match { rule: own.rule, found, sender, waits: false });
            }
        }
        // Most packets of many captures: acknowledgments, and what is encrypted.
        let bytes = payload(packet);
        self.step.payload = bytes.len();
        if bytes.is_empty() || flow.is_encrypted && self.step.is_in_stream {
            return;
        }
        let set = match class == 0 && self.step.is_in_stream {
            true => &rules.in_stream[side],
            false => &rules.packets[class][side],
        };
        let set = set.of(Some(server_port(&way, sender)));
        if set.is_empty() {
            return;
        }
        let mut parts = std::mem::take(&mut self.scratch.parts);
        parts.clear();
        let mut hit = |own: Ref| {
            if headers.holds(&rules.headers, own.header, Some(&way)) {
                parts.push(own.part);
            }
        };
        set.always.iter().for_each(|own| hit(*own));
        if !is_clean {
            set.scan_whole(&mut self.scratch.room, bytes, |own, _| hit(own));
        }
        parts.sort_unstable();
        parts.dedup();
        for number in &parts {
            let part = &rules.parts[*number as usize];
            let rule = &rules.rules[part.rule as usize];
            let bytes = View { bytes, base: 0 };
            if !part.fits(bytes) || !conditions::of_packet_hold(rule, header) {
                continue;
            }
            let mut given_up = false;
            let is_found = holds(&part.ops, bytes, &mut given_up);
            self.counts.given_up += u64::from(given_up);
            let values = &mut self.scratch.values;
            if !is_found || !headers_hold(&rules, rule, packet, header, values) {
                continue;
            }
            if part.defers {
                values.push((*number, bytes.bytes.into()));
            }
            match rule.kind {
                Kind::Transaction => self.payload_found(flow, part.rule),
                _ => self.found(part.rule, Found::Packet),
            }
        }
        self.scratch.parts = parts;
    }

    pub(crate) fn found(&mut self, rule: u32, found: Found) {
        let sender = self.step.sender;
        self.step.matches.push(Match { rule, found, sender, waits: false });
    }

    /// Bytes of a stream in order; `offset` is that of the first one.
    pub fn data(&mut self, flow: &mut FlowState, sender: Sender, offset: u64, bytes: &[u8]) {
        self.data_searched(flow, sender, offset, bytes, false);
    }

    /// The same of bytes that were searched before. `is_clean`: none of [`Ruleset::literals`] of these rules is in them as a
    /// whole; one may begin before them or end behind them. What is found is the same.
    pub fn data_searched(
        &mut self,
        flow: &mut FlowState,
        sender: Sender,
        offset: u64,
        bytes: &[u8],
        is_clean: bool,
    ) {
        flow.stream_bytes[sender.index()] = offset + bytes.len() as u64;
        if self.step.is_over || bytes.is_empty() {
            return;
        }
        if flow.last == Some(sender.other()) {
            self.end_message(flow, sender.other(), Last::OfMessage);
        }
        flow.last = Some(sender);
        // The packet of the step begins a message: what is found in it is found in the message, too.
        let is_first = flow.messages[sender.index()].is_empty();
        self.step.begins_message |= is_first && bytes.len() == self.step.payload;
        self.message(flow, sender, bytes, is_clean, None);
    }

    /// Bytes of a stream that are not searched: they are encrypted.
    pub fn pass_over(&mut self, flow: &mut FlowState, sender: Sender, offset: u64, bytes: usize) {
        flow.stream_bytes[sender.index()] = offset + bytes as u64;
    }

    /// More bytes of a message, or its end. `ends`: whether it ended, and whether no other message follows.
    fn message(
        &mut self,
        flow: &mut FlowState,
        sender: Sender,
        mut bytes: &[u8],
        is_clean: bool,
        ends: Option<Last>,
    ) {
        let rules = self.rules.clone();
        let side = sender.index();
        let mut window = std::mem::take(&mut flow.messages[side]);
        let mut tail = std::mem::take(&mut flow.tails[side]);
        let mut given_up = false;
        let way = flow.way_of(sender);
        let mut headers = std::mem::take(&mut flow.headers[side]);
        let mut wants = |header| headers.holds(&rules.headers, header, way.as_ref());
        let port = way.map(|way| server_port(&way, sender));
        let set = rules.streams[side].of(port);
        let (parts, half) = (&rules.parts, MESSAGE_HALF);
        let Scratch { room, joint, found, values, .. } = &mut self.scratch;
        if let Some(len) = window.len_from_start()
            && !tail.is_empty()
            && len + bytes.len() > 2 * half
        {
            // The beginning of a long message is looked at with what was before, while it is there.
            let (now, behind) = bytes.split_at(2 * half - len);
            let hit = |part, of: &[u8]| take(parts, part, of, found, values);
            let up = &mut given_up;
            window.advance(set, parts, half, now, is_clean, false, room, up, &mut wants, hit);
            let hit = |part, of: &[u8]| take(parts, part, of, found, values);
            let when = When::Full;
            tail.join(set, parts, &mut window, when, false, joint, room, up, &mut wants, hit);
            bytes = behind;
        }
        let hit = |part, of: &[u8]| take(parts, part, of, found, values);
        let (up, is_end) = (&mut given_up, ends.is_some());
        window.advance(set, parts, half, bytes, is_clean, is_end, room, up, &mut wants, hit);
        if let Some(last) = ends {
            let hit = |part, of: &[u8]| take(parts, part, of, found, values);
            let (when, is_last) = (When::Whole, last == Last::OfStream);
            tail.join(set, parts, &mut window, when, is_last, joint, room, up, &mut wants, hit);
            match last {
                _ if set.is_empty() => {}
                Last::OfMessage => tail.keep(&mut window, half),
                Last::OfStream => tail.reset(),
            }
            window.reset();
        }
        self.counts.given_up += u64::from(given_up);
        flow.messages[side] = window;
        flow.tails[side] = tail;
        flow.headers[side] = headers;
        self.keep_values(flow, None);
        let mut found = std::mem::take(&mut self.scratch.found);
        for part in found.drain(..) {
            let rule = rules.parts[part as usize].rule;
            match rules.rules[rule as usize].kind {
                Kind::Transaction => self.payload_found(flow, rule),
                _ => {
                    let found = Found::Stream;
                    self.step.matches.push(Match { rule, found, sender, waits: false });
                }
            }
        }
        self.scratch.found = found;
    }

    /// What was found in, of parts on sets that rules write.
    pub(crate) fn keep_values(&mut self, flow: &mut FlowState, transaction: Option<u64>) {
        for (part, bytes) in self.scratch.values.drain(..) {
            let rule = self.rules.parts[part as usize].rule;
            flow.keep_value(Value { rule, part, transaction, bytes });
        }
    }

    /// What an end sent is a message.
    fn end_message(&mut self, flow: &mut FlowState, sender: Sender, last: Last) {
        if !flow.messages[sender.index()].is_empty() {
            // Matches of it whose conditions do not hold had their time.
            flow.waiting
                .retain(|own| own.found != Found::Stream || own.sender != sender || own.waits);
            self.message(flow, sender, &[], false, Some(last));
        }
        if last == Last::OfStream {
            flow.tails[sender.index()].reset();
        }
    }

    /// Bytes of a stream that will not come. What is behind them is another message.
    pub fn gap(&mut self, flow: &mut FlowState, sender: Sender, offset: u64, bytes: u64) {
        flow.stream_bytes[sender.index()] = offset + bytes;
        if !self.step.is_over {
            self.end_message(flow, sender, Last::OfStream);
        }
    }

    /// Nothing more of a stream follows.
    pub fn end_of_stream(&mut self, flow: &mut FlowState, sender: Sender) {
        if !self.step.is_over {
            self.end_message(flow, sender, Last::OfStream);
        }
    }

    /// Ends the step: appends its alerts, and says what becomes of packet and flow.
    pub fn finish(&mut self, flow: &mut FlowState, alerts: &mut Vec<Alert>) -> Verdict {
        let mut verdict = Verdict::default();
        if self.step.is_over {
            verdict.drops = flow.is_dropped;
            verdict.drops_flow = flow.is_dropped;
            verdict.passes_flow = flow.is_passed;
            return verdict;
        }
        let rules = self.rules.clone();
        let sender = self.step.sender;
        let is_known = flow.application.iter().any(Option::is_some);
        if self.step.header.is_some()
            && is_known
            && !std::mem::replace(&mut flow.application_done[sender.index()], true)
        {
            rules.applications.iter().for_each(|rule| self.found(*rule, Found::Packet));
        }
        let mut matches = std::mem::take(&mut self.step.matches);
        self.once(&mut matches);
        matches.append(&mut flow.waiting);
        matches.sort_by_key(|own| own.rule);
        matches.dedup();
        let mut queue = std::mem::take(&mut self.scratch.queue);
        queue.clear();
        for own in &matches {
            let rule = &rules.rules[own.rule as usize];
            let scene = Scene {
                flow,
                header: self.step.header.as_ref(),
                sender,
                tables: &self.tables,
                now_ns: self.step.now_ns,
            };
            let answer = scene.all(rule, own);
            let way = scene.way(own);
            match (answer, way) {
                // The sets that rules write are asked last, so that a rule writes only if all of it holds.
                (Answer::Yes, Some(_)) if !self.settle(&rules, own, flow) => {}
                (Answer::Yes, Some(way)) => {
                    conditions::apply(&rule.posts, flow, &self.tables, &way, self.step.now_ns);
                    queue.push(*own);
                }
                _ if matches!(own.found, Found::Stream | Found::Transaction(_)) => {
                    if flow.waiting.len() == WAITING_MAX {
                        flow.waiting.remove(0);
                    }
                    flow.waiting.push(Match { waits: answer == Answer::NotYet, ..*own });
                }
                _ => {}
            }
        }
        self.decide(&rules, &queue, flow, alerts, &mut verdict);
        let is_over = |number: u64| {
            let at = flow.transactions.binary_search_by_key(&number, |own| own.number);
            at.map_or(true, |at| flow.transactions[at].ended == [true; 2])
        };
        flow.waiting.retain(|own| match own.found {
            Found::Transaction(number) => !is_over(number),
            _ => true,
        });
        flow.values.retain(|own| match own.transaction {
            Some(number) => !is_over(number),
            None => {
                rules.rules[own.rule as usize].kind == Kind::Transaction
                    || flow.waiting.iter().any(|waiting| waiting.rule == own.rule)
            }
        });
        flow.transactions.retain(|own| own.ended != [true; 2]);
        self.step.matches = matches;
        self.scratch.queue = queue;
        verdict
    }

    /// Asks the sets that rules write, and writes them, for a rule that holds otherwise. Of each part that is on such a set, one
    /// value has to do. A transaction may have other values later.
    fn settle(&self, rules: &Ruleset, of: &Match, flow: &mut FlowState) -> bool {
        let parts = &rules.rules[of.rule as usize].parts;
        let parts = parts.iter().map(|number| (*number, &rules.parts[*number as usize]));
        let mut parts = parts.filter(|(_, part)| part.defers).peekable();
        if parts.peek().is_none() {
            return true;
        }
        let transaction = match of.found {
            Found::Transaction(number) => Some(number),
            _ => None,
        };
        let is_of = |own: &Value| {
            own.rule == of.rule && (own.transaction.is_none() || own.transaction == transaction)
        };
        flow.values.retain(|own| !is_of(own) || rules.parts[own.part as usize].asks(&own.bytes));
        let values = &flow.values;
        let all = |number: u32| values.iter().filter(move |own| own.part == number && is_of(own));
        let has_all = parts.clone().all(|(number, _)| all(number).next().is_some());
        let holds = has_all
            && parts.all(|(number, part)| {
                // All are written, though one would do.
                all(number).filter(|own| part.write(&own.bytes)).count() > 0
            });
        if holds {
            flow.values.retain(|own| !is_of(own));
        } else if let Some(number) = transaction
            && let Ok(at) = flow.transactions.binary_search_by_key(&number, |own| own.number)
        {
            let once = rules.rules[of.rule as usize].once(of.rule, of.sender);
            flow.transactions[at].done.retain(|own| *own != once);
        }
        holds
    }

    /// What is found in a packet of a stream and in the message that the packet belongs to is one match.
    fn once(&mut self, matches: &mut Vec<Match>) {
        let rules = &self.rules.rules;
        let is_packet = |own: &Match| {
            own.found == Found::Packet && rules[own.rule as usize].kind == Kind::Stream
        };
        if !matches.iter().any(is_packet) {
            return;
        }
        let (begins, sender) = (self.step.begins_message, self.step.sender);
        let found = &mut self.scratch.found;
        let streams =
            matches.iter().filter(|own| own.found == Found::Stream && own.sender == sender);
        found.extend(streams.map(|own| own.rule));
        matches.retain(|own| !is_packet(own) || !begins && !found.contains(&own.rule));
        found.clear();
    }

    /// Thresholds and actions, in the order of the rules.
    fn decide(
        &mut self,
        rules: &Ruleset,
        queue: &[Match],
        flow: &mut FlowState,
        alerts: &mut Vec<Alert>,
        verdict: &mut Verdict,
    ) {
        let now_ns = self.step.now_ns;
        for own in queue {
            let (rule, info) = (&rules.rules[own.rule as usize], rules.rule(own.rule));
            let scene = Scene {
                flow,
                header: self.step.header.as_ref(),
                sender: self.step.sender,
                tables: &self.tables,
                now_ns,
            };
            let Some(way) = scene.way(own) else { continue };
            let (mut action, mut outcome) = (info.action, Outcome::Alert);
            for counted in &rule.counted {
                match self.tables.count(counted, &way, flow.number, now_ns) {
                    Outcome::Alert => {}
                    Outcome::Changed(other) => action = other,
                    Outcome::Silent if outcome != Outcome::Nothing => outcome = Outcome::Silent,
                    Outcome::Silent => {}
                    Outcome::Nothing => {
                        outcome = Outcome::Nothing;
                        break;
                    }
                }
            }
            self.counts.suppressed += u64::from(outcome != Outcome::Alert);
            if outcome == Outcome::Nothing {
                continue;
            }
            let is_of_flow =
                rule.is_of_flow || matches!(own.found, Found::Stream | Found::Transaction(_));
            let (rejects_source, rejects_destination) = match action {
                Action::RejectSource => (true, false),
                Action::RejectDestination => (false, true),
                Action::RejectBoth => (true, true),
                _ => (false, false),
            };
            verdict.rejects_source |= rejects_source;
            verdict.rejects_destination |= rejects_destination;
            let drops = rejects_source
                || rejects_destination
                || matches!(action, Action::Drop | Action::SilentDrop);
            verdict.drops |= drops;
            // The first that is of the flow applies to it.
            if drops && is_of_flow && !flow.is_passed {
                flow.is_dropped = true;
            }
            if action == Action::Pass {
                if is_of_flow && !verdict.drops {
                    flow.is_passed = true;
                }
                break;
            }
            let is_reported = outcome == Outcome::Alert && !rule.noalert;
            if is_reported && action != Action::SilentDrop {
                let (rule, found, sender, time_ns) = (own.rule, own.found, own.sender, now_ns);
                alerts.push(Alert { rule, action, found, sender, time_ns });
            }
        }
        verdict.drops_flow = flow.is_dropped;
        verdict.passes_flow = flow.is_passed;
    }
}

/// Whether the parts of a rule hold that are in headers; `values` gets what those on sets that rules write were found in.
pub(crate) fn headers_hold(
    rules: &Ruleset,
    rule: &Compiled,
    packet: &Packet<'_>,
    header: &Header,
    values: &mut Vec<(u32, Box<[u8]>)>,
) -> bool {
    if rule.headers == 0 {
        return true;
    }
    rule.parts.iter().all(|number| {
        let part = &rules.parts[*number as usize];
        if part.bit & rule.headers == 0 {
            return true;
        }
        let mut given_up = false;
        let Some((bytes, len)) = header_bytes(part.buffer, packet, header) else {
            return false;
        };
        let view = View { bytes: &bytes[..len], base: 0 };
        let holds = holds(&part.ops, view, &mut given_up);
        if holds && part.defers {
            values.push((*number, view.bytes.into()));
        }
        holds
    })
}

/// The port of the server, where `sender` sends this way.
pub(crate) fn server_port(way: &Way, sender: Sender) -> u16 {
    if sender == Sender::Client { way.destination_port } else { way.source_port }
}

/// A buffer of headers: its bytes, and how many.
pub(crate) fn header_bytes(
    buffer: Buffer,
    packet: &Packet<'_>,
    header: &Header,
) -> Option<([u8; 128], usize)> {
    let mut bytes = [0; 128];
    let d = packet.decoded;
    let ip = packet.frame.get(usize::from(d.l3_offset)..usize::from(d.l4_offset));
    let upper = upper(packet);
    let address = |address: std::net::IpAddr, bytes: &mut [u8; 128]| match address {
        std::net::IpAddr::V4(own) => {
            bytes[..4].copy_from_slice(&own.octets());
            4
        }
        std::net::IpAddr::V6(own) => {
            bytes[..16].copy_from_slice(&own.octets());
            16
        }
    };
    let slice = match (buffer, header.protocol) {
        (Buffer::IpSource, _) => {
            let len = address(header.source, &mut bytes);
            return Some((bytes, len));
        }
        (Buffer::IpDestination, _) => {
            let len = address(header.destination, &mut bytes);
            return Some((bytes, len));
        }
        (Buffer::Ipv4Header, _) if header.source.is_ipv4() => ip?,
        (Buffer::Ipv6Header, _) if header.source.is_ipv6() => ip?,
        (Buffer::TcpHeader, 6) => {
            let len = packet::tcp::TcpView::new_checked(upper)?.header_len();
            upper.get(..len)?
        }
        (Buffer::UdpHeader, 17) => upper.get(..8)?,
        (Buffer::Icmpv4Header, 1) | (Buffer::Icmpv6Header, 58) => upper.get(..8)?,
        _ => return None,
    };
    let len = slice.len().min(bytes.len());
    bytes[..len].copy_from_slice(&slice[..len]);
    Some((bytes, len))
}
