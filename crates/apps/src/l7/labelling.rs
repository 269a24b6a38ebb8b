//! Which application a flow is: from its first bytes, by [`l7proto::Identifier`] and by the patterns of a user.
//!
//! ```text
//!  bytes in order, datagrams ─┬▶ Identifier ─────────▶ label of ours ─┐
//!                             ├▶ first bytes ─▶ Patterns ─▶ label of a file ─┴▶ Label, settled or not
//!                             └▶ Details: names and fingerprints, where somebody wants them
//! ```
//!
//! A pattern of a file counts before what we find ourselves, for its user wants to know of it, unless it `overmatches`: then
//! it counts where we find nothing, or nothing but a port.
//!
//! Threads: a labelling belongs to its flow.

use std::sync::Arc;

use l7proto::{Answer, Direction, Identifier, Ports, Transport};
use packet::IpProtocol;
use stream::Side;
use stream::tracker::Identity;

use super::details::{Details, Facts};
use super::label::{Confidence, FoundBy, Label};
use super::patterns::{self, Pattern, Patterns};

/// Bytes of a side behind which a hole changes nothing: the identifier looks at fewer.
const BEGINNING: u64 = 64;

/// How flows are labelled.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Patterns of a user.
    pub patterns: Option<Arc<Patterns>>,
    /// Whether names and fingerprints are wanted.
    pub details: bool,
}

/// What is known of one flow: little more than its label once that is settled, for many flows may be waiting for their end.
pub struct Labelling {
    found: Option<Label>,
    is_settled: bool,
    /// Packets with payload so far, and those until the label was settled.
    packets: u32,
    known_after: Option<u32>,
    /// As long as more bytes are wanted.
    work: Option<Box<Work>>,
    facts: Facts,
}

/// What it takes to find the label and the details.
struct Work {
    identifier: Identifier,
    ports: Ports,
    /// The side that the identifier knows as the opener.
    opener: Side,
    transport: Transport,
    /// Bytes of a side are missing.
    has_gap: [bool; 2],
    /// Bytes of a side so far.
    seen: [u64; 2],
    search: Option<Box<Search>>,
    details: Option<Details>,
}

/// The search for patterns of a user, until one is found or the bytes are enough.
struct Search {
    patterns: Arc<Patterns>,
    bytes: Vec<u8>,
    packets: u8,
    found: Option<(Label, bool)>,
    is_over: bool,
}

impl Labelling {
    /// Of a flow of which nothing is known; `None` for one that has neither a stream nor datagrams.
    pub fn new(flow: &Identity, options: &Options) -> Option<Self> {
        let transport = match IpProtocol(flow.key.protocol) {
            IpProtocol::TCP => Transport::Stream,
            IpProtocol::UDP => Transport::Datagram,
            _ => return None,
        };
        let opener = flow.client;
        let search = options.patterns.as_ref().map(|patterns| {
            Box::new(Search {
                patterns: patterns.clone(),
                bytes: Vec::new(),
                packets: 0,
                found: None,
                is_over: false,
            })
        });
        let work = Work {
            identifier: Identifier::new(transport),
            ports: Ports {
                opener: flow.key.port(opener),
                responder: flow.key.port(opener.other()),
            },
            opener,
            transport,
            has_gap: [false; 2],
            seen: [0; 2],
            search,
            details: options.details.then(|| Details::new(transport)),
        };
        let work = Some(Box::new(work));
        let facts = Facts::default();
        Some(Self { found: None, is_settled: false, packets: 0, known_after: None, work, facts })
    }

    /// Who the client is, as far as is known before the first bytes: the tracker learns it from the handshake.
    pub fn orient(&mut self, flow: &Identity) {
        let Some(work) = &mut self.work else { return };
        if work.seen == [0; 2] && work.opener != flow.client {
            work.opener = flow.client;
            std::mem::swap(&mut work.ports.opener, &mut work.ports.responder);
        }
    }

    /// A packet with payload has come; its bytes follow.
    pub fn packet(&mut self) {
        self.packets = self.packets.saturating_add(1);
        if let Some(search) = self.work.as_mut().and_then(|work| work.search.as_mut()) {
            search.packets = search.packets.saturating_add(1);
        }
    }

    /// Bytes of a side in order, or a datagram.
    pub fn data(&mut self, side: Side, bytes: &[u8]) {
        let Some(work) = &mut self.work else { return };
        let direction = work.direction(side);
        let own = direction as usize;
        work.seen[own] = work.seen[own].saturating_add(bytes.len() as u64);
        if bytes.is_empty() {
            return;
        }
        if !work.has_gap[own] {
            work.identifier.feed(direction, bytes, work.ports);
        }
        if let Some(search) = &mut work.search {
            search.feed(bytes);
        }
        self.look();
        let Some(work) = &mut self.work else { return };
        if let Some(details) = work.details.as_mut().filter(|_| !work.has_gap[own]) {
            let answer = work.identifier.answer();
            let protocol = answer.label().map(|label| label.protocol);
            details.feed(direction, bytes, protocol, answer.is_settled());
        }
        self.rest();
    }

    /// Bytes of a side that will not come: what is behind them does not continue what was before.
    pub fn gap(&mut self, side: Side) {
        let Some(work) = &mut self.work else { return };
        let own = work.direction(side) as usize;
        work.has_gap[own] |= work.seen[own] < BEGINNING;
        if let Some(details) = &mut work.details {
            details.finish();
        }
        self.rest();
    }

    /// The flow has ended: nothing more comes.
    pub fn finish(&mut self) {
        let Some(work) = &mut self.work else { return };
        work.identifier.finish(work.ports);
        if let Some(search) = &mut work.search {
            search.is_over = true;
        }
        if let Some(details) = &mut work.details {
            details.finish();
        }
        self.look();
        self.rest();
    }

    /// What is known so far.
    pub fn label(&self) -> Option<Label> {
        self.found
    }

    /// Whether more bytes change nothing.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Whether no more bytes are wanted: the label is settled, and the details are there.
    pub fn has_enough(&self) -> bool {
        self.work.is_none()
    }

    /// Packets with payload until the label was settled; `None` if it is not, or is no label.
    pub fn known_after(&self) -> Option<u32> {
        self.known_after
    }

    /// Names and fingerprints, where they were wanted, for whoever reports the flow: they are here no more.
    pub fn take_facts(&mut self) -> Facts {
        match self.work.take().and_then(|work| work.details) {
            Some(details) => details.into_facts(),
            None => std::mem::take(&mut self.facts),
        }
    }

    /// Makes one label of all answers.
    fn look(&mut self) {
        let Some(work) = self.work.as_mut().filter(|_| !self.is_settled) else { return };
        let answer = work.identifier.answer();
        let own = answer.label().map(Label::from);
        let of_file = work.search.as_ref().and_then(|search| search.found);
        self.found = match of_file {
            Some((label, false)) => Some(label),
            Some((label, true)) if own.is_none_or(|own| own.confidence == Confidence::Low) => {
                Some(label)
            }
            _ => own,
        };
        let is_found = matches!(of_file, Some((_, false)));
        let is_searched = work.search.as_ref().is_none_or(|search| search.is_over);
        self.is_settled = is_found || is_searched && work.is_answered(answer);
        if self.is_settled {
            work.search = None;
            self.known_after = self.found.map(|_| self.packets);
        }
    }

    /// Keeps no more than the results once no more bytes are wanted.
    fn rest(&mut self) {
        let is_over = |work: &&mut Box<Work>| work.details.as_ref().is_none_or(Details::is_over);
        let Some(work) = self.work.as_mut().filter(|_| self.is_settled).filter(is_over) else {
            return;
        };
        self.facts = work.details.take().map(Details::into_facts).unwrap_or_default();
        self.work = None;
    }
}

impl Work {
    fn direction(&self, side: Side) -> Direction {
        if side == self.opener { Direction::Opener } else { Direction::Responder }
    }

    fn is_answered(&self, answer: Answer) -> bool {
        // Both sides have holes: nothing follows that the identifier is shown.
        answer.is_settled() || self.has_gap == [true; 2] && self.transport == Transport::Stream
    }
}

impl Search {
    fn feed(&mut self, bytes: &[u8]) {
        if self.is_over {
            return;
        }
        let free = patterns::BYTES_MAX - self.bytes.len();
        self.bytes.extend(bytes.iter().copied().filter(|byte| *byte != 0).take(free));
        if let Some(own) = self.patterns.search(&self.bytes) {
            self.found = Some((label_of(own), own.rank.overmatches));
            self.is_over = !own.rank.overmatches;
        }
        let is_full = self.bytes.len() == patterns::BYTES_MAX;
        self.is_over |= is_full || self.packets >= patterns::PACKETS_MAX;
        if self.is_over {
            self.bytes = Vec::new();
        }
    }
}

fn label_of(pattern: &Pattern) -> Label {
    let is_sure = pattern.rank.is_good() && !pattern.rank.overmatches;
    Label {
        name: pattern.name,
        found_by: FoundBy::File,
        confidence: if is_sure { Confidence::Medium } else { Confidence::Low },
    }
}
