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

use super::details::Details;
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

/// What is known of one flow.
pub struct Labelling {
    identifier: Identifier,
    ports: Ports,
    /// The side that the identifier knows as the opener.
    opener: Side,
    transport: Transport,
    /// Bytes of a side are missing.
    has_gap: [bool; 2],
    /// Bytes of a side so far.
    seen: [u64; 2],
    found: Option<Label>,
    is_settled: bool,
    /// Packets with payload so far, and those until the label was settled.
    packets: u32,
    known_after: Option<u32>,
    search: Option<Box<Search>>,
    details: Option<Box<Details>>,
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
        let search = options.patterns.clone().map(|patterns| {
            Box::new(Search {
                patterns,
                bytes: Vec::new(),
                packets: 0,
                found: None,
                is_over: false,
            })
        });
        Some(Self {
            identifier: Identifier::new(transport),
            ports: Ports {
                opener: flow.key.port(opener),
                responder: flow.key.port(opener.other()),
            },
            opener,
            transport,
            has_gap: [false; 2],
            seen: [0; 2],
            found: None,
            is_settled: false,
            packets: 0,
            known_after: None,
            search,
            details: options.details.then(|| Box::new(Details::new(transport))),
        })
    }

    /// Who the client is, as far as is known before the first bytes: the tracker learns it from the handshake.
    pub fn orient(&mut self, flow: &Identity) {
        if self.seen == [0; 2] && self.opener != flow.client {
            self.opener = flow.client;
            std::mem::swap(&mut self.ports.opener, &mut self.ports.responder);
        }
    }

    /// A packet with payload has come; its bytes follow.
    pub fn packet(&mut self) {
        self.packets = self.packets.saturating_add(1);
        if let Some(search) = &mut self.search {
            search.packets = search.packets.saturating_add(1);
        }
    }

    /// Bytes of a side in order, or a datagram.
    pub fn data(&mut self, side: Side, bytes: &[u8]) {
        let direction = self.direction(side);
        let own = direction as usize;
        self.seen[own] = self.seen[own].saturating_add(bytes.len() as u64);
        if bytes.is_empty() {
            return;
        }
        if !self.has_gap[own] {
            self.identifier.feed(direction, bytes, self.ports);
        }
        if let Some(search) = &mut self.search {
            search.feed(bytes);
        }
        self.look();
        if let Some(details) = self.details.as_mut().filter(|_| !self.has_gap[own]) {
            let protocol = self.identifier.answer().label().map(|label| label.protocol);
            details.feed(direction, bytes, protocol, self.identifier.answer().is_settled());
        }
    }

    /// Bytes of a side that will not come: what is behind them does not continue what was before.
    pub fn gap(&mut self, side: Side) {
        let own = self.direction(side) as usize;
        self.has_gap[own] |= self.seen[own] < BEGINNING;
        if let Some(details) = &mut self.details {
            details.finish();
        }
    }

    /// The flow has ended: nothing more comes.
    pub fn finish(&mut self) {
        self.identifier.finish(self.ports);
        if let Some(search) = &mut self.search {
            search.is_over = true;
        }
        self.look();
        if let Some(details) = &mut self.details {
            details.finish();
        }
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
        self.is_settled && self.details.as_ref().is_none_or(|details| details.is_over())
    }

    /// Packets with payload until the label was settled; `None` if it is not, or is no label.
    pub fn known_after(&self) -> Option<u32> {
        self.known_after
    }

    /// Names and fingerprints, where they were wanted.
    pub fn details(&self) -> Option<&Details> {
        self.details.as_deref()
    }

    /// The same, for whoever reports the flow: they are here no more.
    pub fn take_details(&mut self) -> Option<Box<Details>> {
        self.details.take()
    }

    fn direction(&self, side: Side) -> Direction {
        if side == self.opener { Direction::Opener } else { Direction::Responder }
    }

    /// Makes one label of all answers.
    fn look(&mut self) {
        if self.is_settled {
            return;
        }
        let answer = self.identifier.answer();
        let own = answer.label().map(Label::from);
        let of_file = self.search.as_ref().and_then(|search| search.found);
        self.found = match of_file {
            Some((label, false)) => Some(label),
            Some((label, true)) if own.is_none_or(|own| own.confidence == Confidence::Low) => {
                Some(label)
            }
            _ => own,
        };
        let is_found = matches!(of_file, Some((_, false)));
        let is_searched = self.search.as_ref().is_none_or(|search| search.is_over);
        self.is_settled = is_found || is_searched && self.is_answered(answer);
        if self.is_settled {
            self.search = None;
            self.known_after = self.found.map(|_| self.packets);
        }
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
