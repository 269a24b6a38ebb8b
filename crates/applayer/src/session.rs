//! The session of one flow: which protocol it speaks, and the parser of that.

use l7proto::{Answer, Confidence, FoundBy, Identifier, Ports, Protocol, Transport};

use crate::anomaly::AnomalyKind;
use crate::dns::DnsFlow;
use crate::ftp::FtpFlow;
use crate::http1::Http1;
use crate::http2::Http2;
use crate::limits::Limits;
use crate::output::{Numbers, Output};
use crate::parser::{Next, Parser};
use crate::sink::{Direction, Sink};
use crate::smtp::SmtpFlow;
use crate::ssh::SshFlow;
use crate::tls::TlsFlow;

/// Bytes of a side after which a label that is likely is taken.
const ENOUGH: usize = 22;

/// What is known of a flow when it begins.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// What carries it.
    pub transport: Transport,
    /// Its ports; the opener is the client as far as is known.
    pub ports: Ports,
    /// The beginning of the connection was not seen: the client may be the server, and there may be no first message.
    pub is_midstream: bool,
}

/// Does a session want more bytes?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// It reads on.
    More,
    /// What follows is encrypted, or was given up: nothing more will come of it.
    Nothing,
}

/// What one side of a flow speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// This protocol.
    Known(Protocol),
    /// Something that is not known.
    Unknown,
}

/// Protocols of a flow beside the one that it is read as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// What it was before it changed, as by STARTTLS.
    pub original: Option<Protocol>,
    /// What was announced to follow.
    pub expected: Option<Protocol>,
    /// By direction: what this side speaks, where that is something else.
    pub sides: [Option<Spoken>; 2],
}

#[derive(Debug)]
enum State {
    /// Bytes of both sides in the order in which they came.
    Identifying(Vec<(Direction, Vec<u8>)>),
    Reading(Box<dyn Parser>),
    Over,
}

/// The state of one flow.
#[derive(Debug)]
pub struct Session {
    start: Start,
    identifier: Identifier,
    /// The label is the identifier's business still.
    is_checked: bool,
    state: State,
    protocol: Option<Protocol>,
    is_reversed: bool,
    /// A protocol that was announced, and has not begun.
    announced: Option<Protocol>,
    others: Others,
    /// The offset that comes next of each side.
    offsets: [u64; 2],
    ended: [bool; 2],
    /// From where on each side is encrypted.
    encrypted: Option<[u64; 2]>,
    /// Bytes held of each side, and whether a line of it is whole.
    held: [(usize, bool); 2],
    numbers: Numbers,
}

impl Session {
    /// Of a flow that begins.
    pub fn new(start: Start) -> Self {
        Self {
            start,
            identifier: Identifier::new(start.transport),
            is_checked: false,
            state: State::Identifying(Vec::new()),
            protocol: None,
            is_reversed: false,
            announced: None,
            others: Others::default(),
            offsets: [0; 2],
            ended: [false; 2],
            encrypted: None,
            held: [(0, false); 2],
            numbers: Numbers::default(),
        }
    }

    /// The protocol, once it is known.
    pub const fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// Which other protocols it has to do with.
    pub const fn others(&self) -> &Others {
        &self.others
    }

    /// The side that was said to be the client is the server. Directions that the sink is given are the true ones.
    pub const fn is_reversed(&self) -> bool {
        self.is_reversed
    }

    /// Does it want more bytes?
    pub const fn want(&self) -> Want {
        if matches!(self.state, State::Over) { Want::Nothing } else { Want::More }
    }

    /// From which offset on what goes there is encrypted, once both sides are: the handshake of TLS is over. It does not depend on
    /// how the streams were cut.
    pub fn encrypted_from(&self, direction: Direction) -> Option<u64> {
        self.encrypted.map(|from| from[direction as usize])
    }

    /// Transactions so far.
    pub const fn transactions(&self) -> u64 {
        self.numbers.transaction
    }

    /// Bytes of memory that it holds, with its own: about what the allocator has given.
    pub fn memory(&self) -> usize {
        let held = match &self.state {
            State::Identifying(pieces) => {
                let bytes: usize = self.held.iter().map(|(len, _)| len).sum();
                bytes + pieces.capacity() * size_of::<(Direction, Vec<u8>)>()
            }
            State::Reading(parser) => parser.held(),
            State::Over => 0,
        };
        size_of::<Self>() + held
    }

    /// Bytes of a side, which begin at `offset` of its stream. What was given before is skipped, and bytes that are
    /// skipped over are a gap.
    pub fn data(
        &mut self,
        limits: &Limits,
        direction: Direction,
        offset: u64,
        bytes: &[u8],
        time_ns: u64,
        sink: &mut dyn Sink,
    ) -> Want {
        let side = direction as usize;
        if offset > self.offsets[side] {
            let missing = offset - self.offsets[side];
            self.gap(limits, direction, self.offsets[side], missing, time_ns, sink);
        }
        let known = usize::try_from(self.offsets[side] - offset).unwrap_or(usize::MAX);
        let bytes = bytes.get(known..).unwrap_or_default();
        self.offsets[side] += bytes.len() as u64;
        if !bytes.is_empty() {
            self.read(limits, direction, bytes, time_ns, sink);
        }
        self.want()
    }

    /// `bytes` bytes from `offset` on will not come.
    pub fn gap(
        &mut self,
        limits: &Limits,
        direction: Direction,
        offset: u64,
        bytes: u64,
        time_ns: u64,
        sink: &mut dyn Sink,
    ) -> Want {
        let side = direction as usize;
        let end = offset.saturating_add(bytes);
        let missing = end.saturating_sub(self.offsets[side]);
        self.offsets[side] = self.offsets[side].max(end);
        if missing > 0 {
            // Behind a gap the first bytes are not the first: what there is decides.
            self.identify_now(limits, time_ns, sink);
            let direction = self.actual(direction);
            self.call(limits, direction, &[], time_ns, sink, |parser, out| {
                parser.gap(out, direction, missing)
            });
        }
        self.want()
    }

    /// A datagram.
    pub fn datagram(
        &mut self,
        limits: &Limits,
        direction: Direction,
        bytes: &[u8],
        time_ns: u64,
        sink: &mut dyn Sink,
    ) -> Want {
        if !bytes.is_empty() {
            self.read(limits, direction, bytes, time_ns, sink);
        }
        self.want()
    }

    /// Nothing more of a side follows.
    pub fn end_of_side(
        &mut self,
        limits: &Limits,
        direction: Direction,
        time_ns: u64,
        sink: &mut dyn Sink,
    ) -> Want {
        self.ended[direction as usize] = true;
        if self.ended == [true; 2] {
            self.identify_now(limits, time_ns, sink);
        }
        let direction = self.actual(direction);
        self.call(limits, direction, &[], time_ns, sink, |parser, out| {
            parser.end_of_side(out, direction);
            Next::More
        });
        self.want()
    }

    /// The flow has ended, or nothing more is to be read of it: what is open is given up, and so is its memory.
    pub fn finish(&mut self, limits: &Limits, time_ns: u64, sink: &mut dyn Sink) {
        self.identify_now(limits, time_ns, sink);
        self.call(limits, Direction::ToServer, &[], time_ns, sink, |parser, out| {
            parser.finish(out);
            Next::More
        });
        self.state = State::Over;
    }

    /// The direction, now that it is known who the client is.
    fn actual(&self, direction: Direction) -> Direction {
        if self.is_reversed { direction.opposite() } else { direction }
    }

    fn read(
        &mut self,
        limits: &Limits,
        direction: Direction,
        mut bytes: &[u8],
        time_ns: u64,
        sink: &mut dyn Sink,
    ) {
        if matches!(self.state, State::Identifying(_)) {
            while !bytes.is_empty() && matches!(self.state, State::Identifying(_)) {
                // In such pieces that the answer does not depend on how the stream was cut.
                let (held, has_line) = self.held[direction as usize];
                let line = bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
                let len = match self.start.transport {
                    Transport::Datagram => bytes.len(),
                    Transport::Stream if held < ENOUGH => {
                        let line = if has_line { None } else { line };
                        line.unwrap_or(usize::MAX).min(ENOUGH - held).min(bytes.len())
                    }
                    Transport::Stream => bytes.len(),
                };
                let all = self.held.iter().map(|(len, _)| len).sum::<usize>();
                let room = limits.held_bytes.saturating_sub(all).max(1);
                let len = match self.start.transport {
                    Transport::Datagram => len,
                    Transport::Stream => len.min(room),
                };
                let (piece, rest) = bytes.split_at(len);
                bytes = rest;
                self.identify(limits, direction, piece, time_ns, sink);
            }
        }
        if bytes.is_empty() {
            return;
        }
        self.check(limits, direction, bytes, time_ns, sink);
        self.parse(limits, self.actual(direction), bytes, time_ns, sink);
    }

    /// Gives bytes to the parser; the direction is the true one.
    fn parse(
        &mut self,
        limits: &Limits,
        direction: Direction,
        bytes: &[u8],
        time_ns: u64,
        sink: &mut dyn Sink,
    ) {
        self.call(limits, direction, bytes, time_ns, sink, |parser, out| {
            parser.data(out, direction, bytes)
        });
    }

    /// One more piece, while the protocol is not known.
    fn identify(
        &mut self,
        limits: &Limits,
        direction: Direction,
        piece: &[u8],
        time_ns: u64,
        sink: &mut dyn Sink,
    ) {
        let State::Identifying(pieces) = &mut self.state else { return };
        pieces.push((direction, piece.to_vec()));
        let held = &mut self.held[direction as usize];
        held.0 += piece.len();
        held.1 |= piece.contains(&b'\n');
        let answer = self.identifier.feed(side_of(direction), piece, self.start.ports);
        let is_full = self.held.iter().map(|(len, _)| len).sum::<usize>() >= limits.held_bytes;
        let (len, has_line) = self.held[direction as usize];
        let is_enough = self.start.transport == Transport::Datagram || len >= ENOUGH || has_line;
        match answer {
            Answer::Unknown => self.begin(limits, None, time_ns, sink),
            Answer::Known(label) => {
                let protocol = (label.found_by != FoundBy::Port).then_some(label.protocol);
                self.begin(limits, protocol, time_ns, sink);
            }
            Answer::Likely(label)
                if is_enough && (is_full || !self.is_ambiguous(label.protocol)) =>
            {
                self.begin(limits, Some(label.protocol), time_ns, sink);
            }
            _ if is_full => self.identify_now(limits, time_ns, sink),
            _ => {}
        }
    }

    /// Greetings of SMTP and FTP, POP3 are alike: the port has to agree, or the client to speak.
    fn is_ambiguous(&self, protocol: Protocol) -> bool {
        let port = Protocol::of_port(self.start.transport, self.start.ports.responder);
        matches!(protocol, Protocol::Smtp | Protocol::Ftp) && port != Some(protocol)
    }

    /// Settles the matter by what there is.
    fn identify_now(&mut self, limits: &Limits, time_ns: u64, sink: &mut dyn Sink) {
        if let State::Identifying(pieces) = &self.state {
            if pieces.is_empty()
                && self.ended != [true; 2]
                && self.start.transport == Transport::Stream
            {
                return;
            }
            let label = self.identifier.finish(self.start.ports).label();
            let label = label.filter(|label| label.found_by != FoundBy::Port);
            self.begin(limits, label.map(|label| label.protocol), time_ns, sink);
        }
    }

    /// The protocol is known, or known to be unknown: what was held is read.
    fn begin(
        &mut self,
        limits: &Limits,
        protocol: Option<Protocol>,
        time_ns: u64,
        sink: &mut dyn Sink,
    ) {
        let State::Identifying(pieces) = std::mem::replace(&mut self.state, State::Over) else {
            return;
        };
        let is_first = self.protocol.is_none();
        self.protocol = protocol;
        self.is_checked = self.identifier.answer().is_settled();
        let announced = self.announced.take();
        sink.protocol(protocol);
        let first = pieces.first().map(|(direction, _)| *direction);
        if announced.is_none() && self.start.transport == Transport::Stream {
            let server_first = self.speaks_as_server(&pieces, protocol);
            let swaps = self.start.is_midstream && server_first == Some(Direction::ToServer);
            self.is_reversed |= swaps;
        }
        // A response from port 53 before any query: the query was not seen.
        let Ports { opener, responder } = self.start.ports;
        if protocol == Some(Protocol::Dns)
            && self.start.transport == Transport::Datagram
            && (opener, responder != 53) == (53, true)
        {
            self.is_reversed = true;
        }
        let first = first.map(|direction| self.actual(direction));
        let client_first = matches!(protocol, Some(Protocol::Http1 | Protocol::Tls));
        if client_first && first == Some(Direction::ToClient) && !self.start.is_midstream {
            let mut out = Output { sink, limits, numbers: &mut self.numbers, time_ns };
            out.anomaly(AnomalyKind::WrongDirectionFirstData, None, first);
        }
        let has_spoken = self.held.iter().all(|(len, _)| *len > 0);
        let misfit = protocol.and_then(|own| self.identifier.misfit(own, self.start.ports));
        if let Answer::Known(label) = self.identifier.answer()
            && label.confidence == Confidence::Low
            && protocol.is_some()
            && has_spoken
        {
            let mut out = Output { sink, limits, numbers: &mut self.numbers, time_ns };
            out.anomaly(AnomalyKind::OnlyOneDirection, None, None);
            if let Some(side) = misfit {
                self.others.sides[self.actual(direction_of(side)) as usize] = Some(Spoken::Unknown);
            }
        }
        if announced == Some(Protocol::Tls) && protocol != announced {
            let mut out = Output { sink, limits, numbers: &mut self.numbers, time_ns };
            out.anomaly(AnomalyKind::NoTlsAfterStarttls, None, None);
        }
        // Behind a change the server is another one.
        let server_port = match is_first {
            true if self.is_reversed => opener,
            true => responder,
            false => 0,
        };
        let parser = protocol.and_then(|protocol| parser_of(protocol, self.start, server_port));
        let Some(parser) = parser else { return };
        self.state = State::Reading(parser);
        for (direction, piece) in pieces {
            self.parse(limits, self.actual(direction), &piece, time_ns, sink);
        }
    }

    /// The direction in which what a server says went first.
    fn speaks_as_server(
        &self,
        pieces: &[(Direction, Vec<u8>)],
        protocol: Option<Protocol>,
    ) -> Option<Direction> {
        let says = |direction: Direction| -> Vec<u8> {
            let of = pieces.iter().filter(|(of, _)| *of == direction);
            of.flat_map(|(_, piece)| piece.iter().copied()).take(ENOUGH).collect()
        };
        Direction::BOTH.into_iter().find(|direction| {
            let says = says(*direction);
            match protocol {
                Some(Protocol::Http1) => {
                    says.get(..5).is_some_and(|name| name.eq_ignore_ascii_case(b"http/"))
                }
                Some(Protocol::Smtp | Protocol::Ftp) => {
                    says.get(..3).is_some_and(|code| code.iter().all(u8::is_ascii_digit))
                }
                Some(Protocol::Tls) => says.first() == Some(&22) && says.get(5) == Some(&2),
                _ => false,
            }
        })
    }

    /// The other side may refute the label.
    fn check(
        &mut self,
        limits: &Limits,
        direction: Direction,
        bytes: &[u8],
        time_ns: u64,
        sink: &mut dyn Sink,
    ) {
        if self.is_checked || self.protocol.is_none() {
            return;
        }
        let answer = self.identifier.feed(side_of(direction), bytes, self.start.ports);
        self.is_checked = answer.is_settled();
        let (kind, spoken) = match answer {
            Answer::Known(label) if Some(label.protocol) != self.protocol => {
                (AnomalyKind::MismatchBothDirections, Spoken::Known(label.protocol))
            }
            Answer::Known(label) if label.confidence == Confidence::Low => {
                (AnomalyKind::OnlyOneDirection, Spoken::Unknown)
            }
            _ => return,
        };
        self.others.sides[self.actual(direction) as usize] = Some(spoken);
        let mut out = Output { sink, limits, numbers: &mut self.numbers, time_ns };
        out.anomaly(kind, None, None);
    }

    /// Calls the parser, if there is one, and does what it asks for.
    fn call(
        &mut self,
        limits: &Limits,
        direction: Direction,
        bytes: &[u8],
        time_ns: u64,
        sink: &mut dyn Sink,
        ask: impl FnOnce(&mut dyn Parser, &mut Output<'_>) -> Next,
    ) {
        let State::Reading(parser) = &mut self.state else { return };
        let mut out = Output { sink, limits, numbers: &mut self.numbers, time_ns };
        match ask(parser.as_mut(), &mut out) {
            Next::More => {}
            Next::Bypass => {
                parser.finish(&mut out);
                self.state = State::Over;
            }
            Next::Encrypted { unread } => {
                parser.finish(&mut out);
                self.state = State::Over;
                let mut from = self.offsets;
                from[self.actual(direction) as usize] -= unread as u64;
                self.encrypted = Some(from);
            }
            Next::Change { to: Some(Protocol::Http2), unread, held } => {
                // The server begins, with frames that nothing else is known by.
                parser.finish(&mut out);
                self.others = Others::after(self.protocol, Some(Protocol::Http2));
                (self.protocol, self.is_checked) = (Some(Protocol::Http2), true);
                out.sink.protocol(self.protocol);
                self.state = State::Reading(Box::new(Http2::default()));
                let rest = &bytes[bytes.len() - unread.min(bytes.len())..];
                for (direction, bytes) in [(direction.opposite(), &held[..]), (direction, rest)] {
                    if !bytes.is_empty() {
                        self.parse(limits, direction, bytes, time_ns, sink);
                    }
                }
            }
            Next::Change { to, unread, held } => {
                parser.finish(&mut out);
                self.state = State::Identifying(Vec::new());
                self.identifier = Identifier::new(self.start.transport);
                self.held = [(0, false); 2];
                self.is_checked = false;
                self.announced = to;
                self.others = Others::after(self.protocol, to);
                // The true directions are known; from here on they are what the caller calls them.
                let other = self.actual(direction.opposite());
                let this = self.actual(direction);
                self.read(limits, other, &held, time_ns, sink);
                let rest = &bytes[bytes.len() - unread.min(bytes.len())..];
                self.read(limits, this, rest, time_ns, sink);
            }
        }
    }
}

impl Others {
    /// Once the protocol is left for another one.
    fn after(original: Option<Protocol>, expected: Option<Protocol>) -> Self {
        Self { original, expected, sides: [None; 2] }
    }
}

fn direction_of(side: l7proto::Direction) -> Direction {
    match side {
        l7proto::Direction::Opener => Direction::ToServer,
        l7proto::Direction::Responder => Direction::ToClient,
    }
}

fn side_of(direction: Direction) -> l7proto::Direction {
    match direction {
        Direction::ToServer => l7proto::Direction::Opener,
        Direction::ToClient => l7proto::Direction::Responder,
    }
}

/// The parser of a protocol, where there is one.
fn parser_of(protocol: Protocol, start: Start, server_port: u16) -> Option<Box<dyn Parser>> {
    Some(match (protocol, start.transport) {
        (Protocol::Http1, Transport::Stream) => Box::new(Http1::new(server_port)),
        (Protocol::Http2, Transport::Stream) => Box::new(Http2::default()),
        (Protocol::Dns, transport) => Box::new(DnsFlow::new(transport == Transport::Stream)),
        (Protocol::Tls, Transport::Stream) => Box::new(TlsFlow::default()),
        (Protocol::Ssh, Transport::Stream) => Box::new(SshFlow::default()),
        (Protocol::Smtp, Transport::Stream) => Box::new(SmtpFlow::new(start.is_midstream)),
        (Protocol::Ftp, Transport::Stream) => Box::new(FtpFlow::default()),
        _ => return None,
    })
}
