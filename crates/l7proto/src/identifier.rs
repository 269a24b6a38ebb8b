//! Which protocol a flow is: a state for each flow, and how evidence becomes a label.
//!
//! **Streams.** The first 22 bytes of each side are kept and shown to each signature's two tests. A signature of which one
//! side is like nothing else settles the matter when it fits; others settle it when both sides fit. Where an earlier row
//! of the table may still fit by more bytes of the side that speaks, the answer waits. A test never takes back a *yes* or
//! a *no*, so the answer depends on the order in which sides speak, not on how their bytes are cut into segments.
//!
//! **Datagrams.** Each is shown whole. One that is like nothing else settles the matter; others do when both sides have
//! sent one, or when a registered port agrees.
//!
//! Either side may be the client: a flow that was seen from its middle may have its sides in the wrong order.

use std::sync::LazyLock;

use crate::protocol::{Protocol, Transport};
use crate::signatures::datagram::{self, Fit as DatagramFit};
use crate::signatures::stream::{self, Fit, PREFIX, Test};

/// Bytes of one side of a stream after which a silent other side is not waited for.
pub const STREAM_BYTES_MAX: u16 = 16 << 10;
/// Datagrams after which a flow is settled by what there is.
pub const DATAGRAMS_MAX: u8 = 8;

/// Who sent the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Who sent the flow's first packet.
    Opener,
    /// The other one.
    Responder,
}

/// The flow's ports, in host order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Of the opener.
    pub opener: u16,
    /// Of the responder.
    pub responder: u16,
}

/// What found a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FoundBy {
    /// Bytes at the beginning are those of a pattern.
    Pattern,
    /// Fields at the beginning have a meaning, and it is consistent.
    Parser,
    /// A registered port, nothing else.
    Port,
}

/// How sure a label is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Confidence {
    /// A port alone, or one side fits and the other does not.
    Low,
    /// One side fits and the other has not spoken, or fits weakly and the port agrees.
    Medium,
    /// Both sides fit, or one is like nothing else.
    High,
}

/// A flow's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// Which.
    pub protocol: Protocol,
    /// What found it.
    pub found_by: FoundBy,
    /// How sure it is.
    pub confidence: Confidence,
}

/// What is known of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Nothing so far.
    NotYet,
    /// So it looks; the other side may confirm or refute it.
    Likely(Label),
    /// Settled: more bytes change nothing.
    Known(Label),
    /// Settled: no signature fits.
    Unknown,
}

impl Answer {
    /// The label, settled or not.
    pub const fn label(self) -> Option<Label> {
        match self {
            Self::Likely(label) | Self::Known(label) => Some(label),
            Self::NotYet | Self::Unknown => None,
        }
    }

    /// More bytes change nothing.
    pub const fn is_settled(self) -> bool {
        matches!(self, Self::Known(_) | Self::Unknown)
    }
}

/// What has been seen.
#[derive(Clone, Copy, Debug)]
enum Evidence {
    Stream {
        beginnings: [Beginning; 2],
        /// Bytes of each side so far, up to the bound.
        seen: [u16; 2],
    },
    Datagrams {
        /// Bit n: no datagram speaks against signature n.
        alive: u64,
        /// Whether each side has sent one.
        spoke: [bool; 2],
        count: u8,
    },
}

/// The first bytes of a side of a stream.
#[derive(Clone, Copy, Debug)]
enum Beginning {
    /// Fewer than the tests may see.
    Bytes([u8; PREFIX]),
    /// All of them have been seen: the signatures that they fit, of clients, of servers.
    Fits([u64; 2]),
}

/// The state of one flow: a fixed size, copied into its record; it never allocates.
#[derive(Clone, Copy, Debug)]
pub struct Identifier {
    evidence: Evidence,
    answer: Answer,
}

const _: () = assert!(size_of::<Identifier>() <= 64);

impl Identifier {
    /// Of a flow of which nothing is known.
    pub const fn new(transport: Transport) -> Self {
        let evidence = match transport {
            Transport::Stream => {
                Evidence::Stream { beginnings: [Beginning::Bytes([0; PREFIX]); 2], seen: [0; 2] }
            }
            Transport::Datagram => {
                Evidence::Datagrams { alive: u64::MAX, spoke: [false; 2], count: 0 }
            }
        };
        Self { evidence, answer: Answer::NotYet }
    }

    /// What is known.
    pub const fn answer(&self) -> Answer {
        self.answer
    }

    /// Takes the next bytes of one side of a stream, in order and without gaps, or one datagram. Empty ones change nothing.
    pub fn feed(&mut self, direction: Direction, bytes: &[u8], ports: Ports) -> Answer {
        if self.answer.is_settled() || bytes.is_empty() {
            return self.answer;
        }
        let side = direction as usize;
        self.answer = match &mut self.evidence {
            Evidence::Stream { beginnings, seen } => {
                let had = usize::from(seen[side]);
                let bound = usize::from(STREAM_BYTES_MAX);
                seen[side] = had.saturating_add(bytes.len()).min(bound) as u16; // at most the bound
                if had < PREFIX {
                    beginnings[side].extend(had, bytes);
                    let sides = Sides::new(beginnings, *seen);
                    self.answer = sides.settled(side, ports).unwrap_or_else(|| sides.likely(ports));
                }
                match usize::from(seen[side]) == bound && !self.answer.is_settled() {
                    true => return self.finish(ports),
                    false => self.answer,
                }
            }
            Evidence::Datagrams { alive, spoke, count } => {
                spoke[side] = true;
                *count += 1;
                datagram_answer(alive, *spoke, *count, bytes, ports)
            }
        };
        self.answer
    }

    /// The side of a stream that is not of this protocol, if both have spoken and the other one is.
    pub fn misfit(&self, protocol: Protocol, ports: Ports) -> Option<Direction> {
        let Evidence::Stream { beginnings, seen } = &self.evidence else { return None };
        let sides = Sides::new(beginnings, *seen);
        let named = of_ports(Transport::Stream, ports);
        let fits = sides.fits.map(|own| {
            let mask = own.speaks_for(named) | own.alone().0;
            bits(mask).any(|bit| stream::TABLE[bit].protocol == protocol)
        });
        match (sides.spoke, fits) {
            ([true, true], [true, false]) => Some(Direction::Responder),
            ([true, true], [false, true]) => Some(Direction::Opener),
            _ => None,
        }
    }

    /// Settles the matter by what there is: the flow has ended, or nobody wants to wait.
    pub fn finish(&mut self, ports: Ports) -> Answer {
        if self.answer.is_settled() {
            return self.answer;
        }
        let label = match &self.evidence {
            Evidence::Stream { beginnings, seen } => Sides::new(beginnings, *seen).best(ports),
            Evidence::Datagrams { alive, spoke, .. } => {
                spoke.contains(&true).then(|| datagram_best(*alive, ports)).flatten()
            }
        };
        self.answer = label.map_or(Answer::Unknown, Answer::Known);
        self.answer
    }
}

impl Beginning {
    /// Takes the next bytes behind those that it `had`.
    fn extend(&mut self, had: usize, bytes: &[u8]) {
        let Self::Bytes(prefix) = self else { return };
        let Some(free) = prefix.get_mut(had..) else { return };
        let len = free.len().min(bytes.len());
        free[..len].copy_from_slice(&bytes[..len]);
        if had + len == PREFIX {
            *self = Self::Fits(Fits::new(prefix).yes);
        }
    }

    /// What the tests say after `seen` bytes.
    fn fits(&self, seen: usize) -> Fits {
        match self {
            Self::Bytes(prefix) => Fits::new(&prefix[..seen.min(PREFIX)]),
            Self::Fits(yes) => Fits { yes: *yes, more: [0; 2] },
        }
    }
}

/// The protocol registered for either port, that of the responder first.
fn of_ports(transport: Transport, ports: Ports) -> Option<Protocol> {
    let of = |port| Protocol::of_port(transport, port);
    of(ports.responder).or_else(|| of(ports.opener))
}

/// The first signature of a mask, or the one that the port names.
fn choose(
    mask: u64,
    named: Option<Protocol>,
    protocol: impl Fn(usize) -> Protocol,
) -> Option<usize> {
    let by_port = named.and_then(|named| bits(mask).find(|bit| named == protocol(*bit)));
    by_port.or_else(|| bits(mask).next())
}

/// The bits of a mask that are set, the lowest first.
fn bits(mask: u64) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(mask), |left| Some(left & left.wrapping_sub(1)))
        .take_while(|left| *left != 0)
        .map(|left| left.trailing_zeros() as usize)
}

/// What the tests of all signatures say of one side: as the client's, as the server's.
#[derive(Clone, Copy, Default)]
struct Fits {
    yes: [u64; 2],
    more: [u64; 2],
}

/// Both sides of a stream.
struct Sides {
    fits: [Fits; 2],
    spoke: [bool; 2],
}

/// For each first byte, the signatures that have a test and that it does not exclude: of clients, of servers.
static FIRST: LazyLock<[[u64; 256]; 2]> = LazyLock::new(|| {
    let mut masks = [[0; 256]; 2];
    for (role, masks) in masks.iter_mut().enumerate() {
        for (byte, mask) in masks.iter_mut().enumerate() {
            for (bit, test) in tests(role).enumerate() {
                let is_test = !matches!(test, Test::Any);
                let fit = test.fit(&[byte as u8]); // below 256
                *mask |= u64::from(is_test && fit != Fit::No) << bit;
            }
        }
    }
    masks
});

/// The tests of a role, 0 for clients and 1 for servers.
fn tests(role: usize) -> impl Iterator<Item = Test> {
    stream::TABLE.iter().map(move |row| if role == 0 { row.client.test } else { row.server.test })
}

/// Bit n: of signature n, the client's side or the server's is alone enough; speaks for it.
const ALONE: [u64; 2] = masks(Is::Alone);
const SPEAKS: [u64; 2] = masks(Is::Speaking);

/// Bit n: of signature n, the client's side or the server's is whatever it says.
const ANY: [u64; 2] = masks(Is::Any);

#[derive(Clone, Copy)]
enum Is {
    Alone,
    Speaking,
    Any,
}

impl Is {
    const fn of(self, side: &stream::Side) -> bool {
        match self {
            Self::Alone => side.alone,
            Self::Speaking => side.speaks,
            Self::Any => matches!(side.test, Test::Any),
        }
    }
}

const fn masks(is: Is) -> [u64; 2] {
    let (mut masks, mut bit) = ([0; 2], 0);
    while bit < stream::TABLE.len() {
        let row = &stream::TABLE[bit];
        let (client, server) = (is.of(&row.client), is.of(&row.server));
        masks[0] |= (client as u64) << bit;
        masks[1] |= (server as u64) << bit;
        bit += 1;
    }
    masks
}

impl Fits {
    fn new(bytes: &[u8]) -> Self {
        let Some(first) = bytes.first() else { return Self::default() };
        let mut fits = Self { yes: ANY, more: [0; 2] };
        for role in [0, 1] {
            let mut open = FIRST[role][usize::from(*first)];
            while open != 0 {
                let bit = open.trailing_zeros() as usize;
                open &= open - 1;
                let row = &stream::TABLE[bit];
                let test = if role == 0 { row.client.test } else { row.server.test };
                match test.fit(bytes) {
                    Fit::Yes => fits.yes[role] |= 1 << bit,
                    Fit::More => fits.more[role] |= 1 << bit,
                    Fit::No => {}
                }
            }
        }
        fits
    }

    /// Signatures for which this side is enough; and those for which it may become so.
    fn alone(&self) -> (u64, u64) {
        let of = |masks: [u64; 2]| masks[0] & ALONE[0] | masks[1] & ALONE[1];
        (of(self.yes), of(self.more))
    }

    /// Signatures for which this side speaks, or which it fits and a port names.
    fn speaks_for(&self, named: Option<Protocol>) -> u64 {
        let mut mask = self.yes[0] & SPEAKS[0] | self.yes[1] & SPEAKS[1];
        for bit in bits(named.map_or(0, |_| self.yes[0] | self.yes[1])) {
            let row = &stream::TABLE[bit];
            let fits = |role: usize, test: Test| {
                !matches!(test, Test::Any) && self.yes[role] >> bit & 1 != 0
            };
            let is_named = named == Some(row.protocol);
            mask |= u64::from(is_named && (fits(0, row.client.test) || fits(1, row.server.test)))
                << bit;
        }
        mask
    }
}

/// The first of the bits that may come is one that is there.
fn first_is_in(there: u64, may_come: u64) -> bool {
    there != 0 && there.trailing_zeros() <= may_come.trailing_zeros()
}

impl Sides {
    fn new(beginnings: &[Beginning; 2], seen: [u16; 2]) -> Self {
        let seen = seen.map(usize::from);
        let fits = [beginnings[0].fits(seen[0]), beginnings[1].fits(seen[1])];
        Self { fits, spoke: seen.map(|len| len > 0) }
    }

    /// Signatures of which both sides fit.
    fn agreed(&self) -> u64 {
        let [a, b] = &self.fits;
        a.yes[0] & b.yes[1] | a.yes[1] & b.yes[0]
    }

    /// The answer that no more bytes can change, if `side` was the last to speak.
    fn settled(&self, side: usize, ports: Ports) -> Option<Answer> {
        let (this, other) = (&self.fits[side], &self.fits[1 - side]);
        let (alone, may_be_alone) = this.alone();
        if first_is_in(alone, may_be_alone) {
            return Some(Answer::Known(self.label(alone, Confidence::High, None)?));
        }
        if alone | may_be_alone != 0 {
            return None;
        }
        let agreed = self.agreed();
        let may_agree = this.more[0] & other.yes[1] | this.more[1] & other.yes[0];
        if agreed != 0 && may_agree == 0 {
            return Some(Answer::Known(self.label(agreed, Confidence::High, Some(ports))?));
        }
        let may_change = self.fits.iter().any(|fits| fits.more != [0; 2]);
        (self.spoke == [true; 2] && !may_change)
            .then(|| self.best(ports).map_or(Answer::Unknown, Answer::Known))
    }

    /// What it looks like meanwhile.
    fn likely(&self, ports: Ports) -> Answer {
        match self.best(ports) {
            Some(label) if label.found_by != FoundBy::Port => Answer::Likely(label),
            _ => Answer::NotYet,
        }
    }

    /// The best label for what there is.
    fn best(&self, ports: Ports) -> Option<Label> {
        let agreed = self.agreed();
        let alone = self.fits[0].alone().0 | self.fits[1].alone().0;
        if agreed | alone != 0 {
            let mask = if alone != 0 { alone } else { agreed };
            return self.label(mask, Confidence::High, Some(ports));
        }
        let named = of_ports(Transport::Stream, ports);
        let one_sided = self.fits[0].speaks_for(named) | self.fits[1].speaks_for(named);
        let confidence = match self.spoke {
            [true, true] => Confidence::Low,
            _ => Confidence::Medium,
        };
        if one_sided != 0 {
            return self.label(one_sided, confidence, Some(ports));
        }
        // Both sides speak, and nothing of it is that protocol: the port is wrong.
        if self.spoke != [true, false] && self.spoke != [false, true] {
            return None;
        }
        let protocol = named?;
        let may_be = self.fits.iter().any(|fits| {
            let masks = fits.more[0] | fits.more[1];
            bits(masks).any(|bit| stream::TABLE[bit].protocol == protocol)
        });
        may_be.then_some(Label { protocol, found_by: FoundBy::Port, confidence: Confidence::Low })
    }

    fn label(&self, mask: u64, confidence: Confidence, ports: Option<Ports>) -> Option<Label> {
        let named = ports.and_then(|ports| of_ports(Transport::Stream, ports));
        let bit = choose(mask, named, |bit| stream::TABLE[bit].protocol)?;
        let row = &stream::TABLE[bit];
        // Greetings and `QUIT` are those of SMTP and of FTP: not more than likely, with a port or without.
        let is_ambiguous = bits(mask).any(|other| stream::TABLE[other].protocol != row.protocol);
        let confidence = if is_ambiguous { confidence.min(Confidence::Medium) } else { confidence };
        // By the test that said yes; by the stronger where both did.
        let fitting = |role: usize| self.fits.iter().any(|fits| fits.yes[role] >> bit & 1 != 0);
        let sides = [row.client.test, row.server.test];
        let is_parser = |role: usize| fitting(role) && matches!(sides[role], Test::Parser(_));
        let found_by =
            if is_parser(0) || is_parser(1) { FoundBy::Parser } else { FoundBy::Pattern };
        Some(Label { protocol: row.protocol, found_by, confidence })
    }
}

/// Takes one datagram.
fn datagram_answer(
    alive: &mut u64,
    spoke: [bool; 2],
    count: u8,
    bytes: &[u8],
    ports: Ports,
) -> Answer {
    for (bit, row) in datagram::TABLE.iter().enumerate() {
        match (row.test)(bytes, ports) {
            DatagramFit::Strong => {
                let confidence = Confidence::High;
                return Answer::Known(Label {
                    protocol: row.protocol,
                    found_by: row.found_by,
                    confidence,
                });
            }
            DatagramFit::Weak => {}
            DatagramFit::No => *alive &= !(1 << bit),
        }
    }
    *alive &= (1 << datagram::TABLE.len()) - 1;
    let Some(mut label) = datagram_best(*alive, ports) else { return Answer::Unknown };
    if *alive != 0 && spoke == [true; 2] {
        label.confidence = Confidence::Medium;
    }
    let is_settled =
        *alive == 0 || label.confidence == Confidence::Medium || count >= DATAGRAMS_MAX;
    if is_settled { Answer::Known(label) } else { Answer::Likely(label) }
}

/// The best label for the signatures that nothing speaks against: one with a port that agrees, else the first, else the
/// port's.
fn datagram_best(alive: u64, ports: Ports) -> Option<Label> {
    let named = of_ports(Transport::Datagram, ports);
    let bit = choose(alive, named, |bit| datagram::TABLE[bit].protocol);
    match bit {
        Some(bit) => {
            let row = &datagram::TABLE[bit];
            let confidence = match named == Some(row.protocol) {
                true => Confidence::Medium,
                false => Confidence::Low,
            };
            Some(Label { protocol: row.protocol, found_by: row.found_by, confidence })
        }
        None => {
            let confidence = Confidence::Low;
            named.map(|protocol| Label { protocol, found_by: FoundBy::Port, confidence })
        }
    }
}
