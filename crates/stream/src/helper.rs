//! Helpers: protocols whose flows announce others, such as FTP's control connection its data connections.
//!
//! ```text
//!  control flow ─ bytes in order ─▶ parser ─ announcement ─▶ pending ─ its packet got through ─▶ expected
//!                 (tcp)             (ftp)                       ▲ the packets that it depends on wait    │
//!  data flow ─ first packet ─────────────────────────────────────────────────────────────── takes it ◀──┘
//! ```
//!
//! Three things are apart, so that other helpers, and who translates addresses, use each by itself: the parser of a protocol
//! ([`ftp`]) knows bytes only, and says where in the stream an announcement is; the flows that are [expected](expect) are of
//! any protocol; and `Helpers` joins them to the flows of a tracker.
//!
//! # Rules
//! - Nobody announces for others. An address that is not that of the end which sends the announcement is refused (the
//!   bounce attack of RFC 2577 §2), and so are ports below 1024 (RFC 2577 §3). So both flows are between the same hosts, and
//!   meet at one worker.
//! - What is dropped announces nothing: an announcement counts once its packet got through. Until then packets of its flow,
//!   and those that it would be about, wait, so that the result is that of one packet at a time.
//! - A control flow expects one flow at a time, the newest (as in Linux), for [`TIMEOUT_NS`]. There are at most
//!   [`EXPECTED_MAX`] expectations and [`CONTROLS_MAX`] control flows of a worker; what is beyond is counted.
//!
//! # Limits
//! A control connection that is encrypted (RFC 4217) announces nothing that could be read. Bytes beyond the depth of
//! reassembly are not read either.

pub mod expect;
pub mod ftp;

use std::collections::HashMap;

use packet::IpProtocol;

use crate::key::{FlowKey, Side};
use crate::table::Slot;
use crate::tcp::Connection;
use expect::{Expectations, Expected};
use ftp::{Announcement, Control};

/// For how long a flow is expected, in nanoseconds: 5 minutes, as in Linux (`nf_conntrack_ftp`).
pub const TIMEOUT_NS: u64 = 300_000_000_000;

/// Flows that are expected at most, of a worker.
pub const EXPECTED_MAX: usize = 4096;

/// Control flows that are read at most, of a worker.
pub const CONTROLS_MAX: usize = 4096;

/// Announcements that are not decided yet, of a worker: each is in a chunk that is under way.
const PENDING_MAX: usize = 64;

/// Announcements of one segment; further ones are not read.
const FOUND_MAX: usize = 16;

/// The lowest port that may be announced (RFC 2577 §3).
const PORT_MIN: u16 = 1024;

/// Which helpers there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Ports of FTP servers; none: no helper.
    pub ftp_ports: &'static [u16],
}

/// What helpers did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Flows that are expected now.
    pub expected: u64,
    /// Announcements whose packet got through.
    pub announced: u64,
    /// Announced flows that came.
    pub related: u64,
    /// Announcements of another host's address, or of a port below 1024.
    pub refused: u64,
    /// Announcements, and segments of control flows, for which there was no room.
    pub full: u64,
}

/// A control flow.
struct Reader {
    control: Control,
    /// Number of the flow.
    id: u64,
    /// Ends of which the tracker's module wants no more bytes.
    is_enough: [bool; 2],
    /// Offset of the next byte of both ends.
    offsets: [u64; 2],
    /// What it announced last.
    last: Option<Expected>,
}

/// An announcement whose packet is under way.
#[derive(Clone, Copy)]
struct Pending {
    slot: Slot,
    /// Number of the control flow.
    control: u64,
    expected: Expected,
    time_ns: u64,
}

/// The helpers of one worker.
pub(crate) struct Helpers {
    options: Options,
    /// Somebody says what becomes of packets.
    is_on: bool,
    /// By slot.
    readers: HashMap<u32, Reader>,
    expectations: Expectations,
    pending: Vec<Pending>,
    /// What the segment at hand announces.
    found: Vec<Announcement>,
    counts: Counts,
}

/// A control flow at a segment: its bytes go to the parser.
pub(crate) struct Reading<'a> {
    reader: &'a mut Reader,
    found: &'a mut Vec<Announcement>,
    client: Side,
}

impl Reading<'_> {
    /// The next bytes of a side in order.
    pub(crate) fn data(&mut self, side: Side, offset: u64, bytes: &[u8]) {
        self.reader.offsets[side.index()] = offset + bytes.len() as u64;
        let found = &mut *self.found;
        self.reader.control.feed(side == self.client, offset, bytes, |own| {
            if found.len() < FOUND_MAX {
                found.push(own);
            }
        });
    }

    /// Bytes of a side that will not come.
    pub(crate) fn gap(&mut self, side: Side, offset: u64, bytes: u64) {
        self.reader.offsets[side.index()] = offset.saturating_add(bytes);
    }

    /// Offset of the next byte of a side.
    pub(crate) fn offset(&self, side: Side) -> u64 {
        self.reader.offsets[side.index()]
    }

    /// Whether the module wants no more of a side.
    pub(crate) fn is_enough(&self, side: Side) -> bool {
        self.reader.is_enough[side.index()]
    }

    /// The module wants no more of a side, but the helper does.
    pub(crate) fn set_enough(&mut self, side: Side) {
        self.reader.is_enough[side.index()] = true;
    }
}

impl Helpers {
    pub(crate) fn new(options: Options, is_on: bool) -> Self {
        Self {
            options,
            is_on,
            readers: HashMap::new(),
            expectations: Expectations::new(EXPECTED_MAX),
            pending: Vec::new(),
            found: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Memory that it takes when the first control flow comes, in bytes.
    pub(crate) fn memory_bytes(options: Options) -> usize {
        match options.ftp_ports {
            [] => 0,
            _ => CONTROLS_MAX * size_of::<Reader>() + EXPECTED_MAX * 2 * size_of::<Expected>(),
        }
    }

    /// Switches them on or off; what is expected stays.
    pub(crate) fn set_on(&mut self, is_on: bool) {
        self.is_on = is_on;
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts { expected: self.expectations.len() as u64, ..self.counts }
    }

    /// Whether a TCP flow may be a control flow.
    #[inline(always)]
    pub(crate) fn reads(&self, key: &FlowKey) -> bool {
        let is_one = |port: u16| self.options.ftp_ports.contains(&port);
        self.is_on && key.ports.iter().any(|port| is_one(*port))
    }

    /// The parser of a control flow that has a segment with data; `None` for other flows.
    pub(crate) fn reading(
        &mut self,
        slot: Slot,
        key: &FlowKey,
        id: u64,
        connection: &Connection,
    ) -> Option<Reading<'_>> {
        let client = connection.client();
        if !self.options.ftp_ports.contains(&key.port(client.other())) {
            return None;
        }
        if self.readers.capacity() == 0 {
            self.readers.reserve(CONTROLS_MAX);
            self.pending.reserve(PENDING_MAX);
            self.found.reserve(FOUND_MAX);
        }
        if !self.readers.contains_key(&slot.0) {
            if self.readers.len() >= CONTROLS_MAX {
                self.counts.full += 1;
                return None;
            }
            let is_whole =
                |side| connection.initial_sequence(side).is_some() && connection.offset(side) == 0;
            let control = Control::new(is_whole(client), is_whole(client.other()));
            let offsets = Side::BOTH.map(|side| connection.offset(side));
            let reader = Reader { control, id, is_enough: [false; 2], offsets, last: None };
            self.readers.insert(slot.0, reader);
        }
        self.known(slot, client)
    }

    /// The parser of a flow that has one.
    pub(crate) fn known(&mut self, slot: Slot, client: Side) -> Option<Reading<'_>> {
        let reader = self.readers.get_mut(&slot.0)?;
        Some(Reading { reader, found: &mut self.found, client })
    }

    /// A segment of a control flow was read: whether it announces something, which its packet decides about.
    pub(crate) fn announces(
        &mut self,
        slot: Slot,
        key: &FlowKey,
        client: Side,
        time_ns: u64,
    ) -> bool {
        if self.found.is_empty() {
            return false;
        }
        let before = self.pending.len();
        let control = self.readers.get(&slot.0).map_or(0, |reader| reader.id);
        for own in self.found.drain(..) {
            let (opener, listener) = match own.form {
                ftp::Form::Port | ftp::Form::Eprt => (client.other(), client),
                ftp::Form::Pasv | ftp::Form::Epsv => (client, client.other()),
            };
            let is_own = own.address.is_none_or(|address| address == key.address(listener));
            if !is_own || own.port < PORT_MIN {
                self.counts.refused += 1;
            } else if self.pending.len() >= PENDING_MAX {
                self.counts.full += 1;
            } else {
                let expected = Expected {
                    opener: key.addresses[opener.index()],
                    listener: key.addresses[listener.index()],
                    port: own.port,
                    protocol: IpProtocol::TCP.0,
                    family: key.family,
                    scope: key.scope,
                };
                self.pending.push(Pending { slot, control, expected, time_ns });
            }
        }
        self.pending.len() > before
    }

    /// What a segment announced counts for nothing: nobody took it.
    pub(crate) fn ignore(&mut self) {
        self.found.clear();
    }

    /// Whether a packet has announced something of which it is not known what becomes of it.
    #[inline(always)]
    pub(crate) fn are_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether a packet that `side` sends may be the first one of a flow whose announcement is not decided yet, or of one that
    /// an announcement would replace.
    #[inline(always)]
    pub(crate) fn waits(&self, key: &FlowKey, side: Side) -> bool {
        !self.pending.is_empty() && {
            let own = Expected::of(key, side);
            let known = self.expectations.control(&own);
            let depends = |of: &Pending| of.expected == own || known == Some(of.control);
            self.pending.iter().any(depends)
        }
    }

    /// What became of the packet of a control flow that announced something.
    #[cold]
    pub(crate) fn decide(&mut self, slot: Slot, got_through: bool) {
        let Self { readers, expectations, pending, counts, .. } = self;
        let reader = readers.get_mut(&slot.0);
        if let Some(reader) = reader.filter(|_| got_through) {
            for own in pending.iter().filter(|own| own.slot == slot) {
                if let Some(last) = reader.last.take() {
                    expectations.withdraw(&last, reader.id);
                }
                counts.announced += 1;
                let times = (own.time_ns, own.time_ns.saturating_add(TIMEOUT_NS));
                match expectations.put(own.expected, reader.id, times) {
                    Ok(()) => reader.last = Some(own.expected),
                    Err(_) => counts.full += 1,
                }
            }
        }
        pending.retain(|own| own.slot != slot);
    }

    /// The flow that announced the one whose first packet `opener` sends: its number.
    #[inline(always)]
    pub(crate) fn announced(&mut self, key: &FlowKey, opener: Side, time_ns: u64) -> Option<u64> {
        if self.expectations.is_empty() {
            return None;
        }
        let control = self.expectations.take(&Expected::of(key, opener), time_ns)?;
        self.counts.related += 1;
        Some(control)
    }

    /// A flow has ended, or never was.
    #[inline(always)]
    pub(crate) fn end(&mut self, slot: Slot) {
        if self.readers.is_empty() {
            return;
        }
        if let Some(reader) = self.readers.remove(&slot.0) {
            self.pending.retain(|own| own.slot != slot);
            if let Some(last) = reader.last {
                self.expectations.withdraw(&last, reader.id);
            }
        }
    }
}
