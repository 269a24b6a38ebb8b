//! Control connections of FTP, and the data connections that they announce.
//!
//! ```text
//!  control connection ─ line of an inside end ─▶ binding of the announced end ─▶ expected: remote address ─▶ outside end
//!                                                            ▲                        │
//!  data connection ─ first packet ─ belongs to it, and holds the binding ─────────────┘ one for each control connection
//! ```
//!
//! What is expected is an entry of the table, so it has a bound, and takes the room of a session. It ends when the connection
//! comes, when its control connection ends or announces another one, or after [`EXPECTED_S`].
//!
//! An inside end announces its own address alone, and no port below 1024 (RFC 2577 §3, the bounce attack). Where a rule leads
//! all of its ports to the inside end, as a static one, an outside end needs no binding.

use packet::IpProtocol;
use stream::helper::ftp::Announcement;
use stream::table::{Class as FlowClass, Slot};
use stream::{FlowKey, Side};

use super::bindings::{Binding, Room};
use super::{
    Kind, NIL, Refusal, SCOPE_EXPECTED, Translator, Way, binding_key, flags, host_end, side_of,
};
use crate::ftp::{Passed, Segment, Stop, Stream};
use crate::ports::Class;
use crate::rewrite::set_acknowledged;
use crate::rules::Action;
use crate::tuple::{End, Tuple};

/// Seconds for which a data connection is expected, as in Linux (`nf_conntrack_ftp`).
pub const EXPECTED_S: u32 = 300;

/// Control connections at most.
pub const CONTROLS_MAX: usize = 1024;

/// The lowest port that may be announced (RFC 2577 §3).
const PORT_MIN: u16 = 1024;

/// A control connection.
pub(super) struct Control {
    /// What its opener and the other end send.
    streams: [Stream; 2],
    /// What it announced last.
    expected: Option<Slot>,
    /// What its opener and the other end have acknowledged.
    acked: [Option<u32>; 2],
}

/// The control connections of a translator, by numbers that their sessions have.
pub(super) struct Controls {
    ports: &'static [u16],
    all: Vec<Option<Control>>,
    free: Vec<u32>,
    max: usize,
    /// Expected data connections.
    pub(super) expected: usize,
}

impl Controls {
    /// Of servers with these ports; so many at most.
    pub(super) fn new(ports: &'static [u16], sessions: usize) -> Self {
        let max = Self::max(ports, sessions);
        let (all, free) = (Vec::with_capacity(max), Vec::with_capacity(max));
        Self { ports, all, free, max, expected: 0 }
    }

    fn max(ports: &[u16], sessions: usize) -> usize {
        if ports.is_empty() { 0 } else { sessions.min(CONTROLS_MAX) }
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(ports: &[u16], sessions: usize) -> usize {
        Self::max(ports, sessions) * (size_of::<Option<Control>>() + size_of::<u32>())
    }

    fn insert(&mut self) -> Option<u32> {
        let streams = || [Stream::new(), Stream::new()];
        let new = || Some(Control { streams: streams(), expected: None, acked: [None; 2] });
        if let Some(number) = self.free.pop() {
            self.all[number as usize] = new();
            return Some(number);
        }
        (self.all.len() < self.max).then(|| {
            self.all.push(new());
            self.all.len() as u32 - 1
        })
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Control> {
        self.all.get_mut(number as usize)?.as_mut()
    }
}

/// The key of what is expected: from an address to an outside end.
fn expected_key(remote: [u64; 2], to: End) -> FlowKey {
    let key = binding_key(to, IpProtocol::TCP.0, 4, SCOPE_EXPECTED);
    FlowKey { addresses: [remote, to.0], ..key }
}

impl Translator {
    /// Whether a session is a control connection, by either entry of it.
    #[inline]
    pub fn is_control(&self, slot: Slot) -> bool {
        self.table.get(slot).is_some_and(|hot| hot.flags & flags::CONTROL != 0)
    }

    /// Whether a packet with these ends may be of a control connection.
    #[inline]
    pub fn may_be_control(&self, tuple: &Tuple) -> bool {
        let is_one = |port: u16| self.controls.ports.contains(&port);
        tuple.protocol == IpProtocol::TCP.0 && (is_one(tuple.dst.1) || is_one(tuple.src.1))
    }

    /// A session has begun with these entries: it is a control connection, if it leads to such a port.
    pub(super) fn begin_control(&mut self, entries: [Slot; 2], original: &Tuple, behind: &Tuple) {
        let is_one = |own: &Tuple| self.controls.ports.contains(&own.dst.1);
        let is_plain =
            (original.protocol, original.family, behind.family) == (IpProtocol::TCP.0, 4, 4);
        if !is_plain || !(is_one(original) || is_one(behind)) {
            return;
        }
        let Some(number) = self.controls.insert() else {
            self.counts.ftp_left += 1;
            return;
        };
        for (slot, count) in entries.into_iter().zip([number, 0]) {
            if let Some(hot) = self.table.get_mut(slot) {
                (hot.flags, hot.count) = (hot.flags | flags::CONTROL, count);
            }
        }
    }

    /// The session of an original entry ends.
    pub(super) fn end_control(&mut self, number: u32) {
        let known = self.controls.all.get_mut(number as usize).and_then(Option::take);
        let Some(control) = known else { return };
        self.controls.free.push(number);
        if let Some(expected) = control.expected {
            self.end_expected(expected);
        }
    }

    /// The end of a control connection that sends packets `way` has acknowledged this.
    pub(super) fn note_control_number(&mut self, number: u32, way: Way, acknowledgment: u32) {
        if let Some(control) = self.controls.get_mut(number) {
            control.acked[way as usize] = Some(acknowledgment);
        }
    }

    /// Its opener begins again, and has acknowledged nothing; nor has the other end, if that has nothing of another connection.
    pub(super) fn forget_control_numbers(&mut self, number: u32, is_new: bool) {
        if let Some(control) = self.controls.get_mut(number) {
            control.acked = [None, control.acked[1].filter(|_| !is_new)];
        }
    }

    /// What the end that sends packets `way` has acknowledged last.
    pub(super) fn control_number(&self, number: u32, way: Way) -> Option<u32> {
        let control = self.controls.all.get(number as usize)?.as_ref()?;
        control.acked[way as usize]
    }

    /// The original entry of a session by either one, and its control connection.
    fn control(&mut self, slot: Slot) -> Option<(Slot, &mut Control)> {
        let hot = *self.table.get(slot).filter(|hot| hot.flags & flags::CONTROL != 0)?;
        let original = if hot.kind == Kind::Original { slot } else { Slot(hot.other) };
        let number = self.table.get(original)?.count;
        Some((original, self.controls.get_mut(number)?))
    }

    /// Writes what a packet of a control connection acknowledges, that goes `way`, as the end counts that it is for. `ip` begins
    /// with the IP header, the upper layer with byte `l4`.
    pub fn acknowledge(&mut self, slot: Slot, way: Way, ip: &mut [u8], l4: usize) {
        let Some((_, control)) = self.control(slot) else { return };
        let stream = &mut control.streams[way.back() as usize];
        if !stream.edits().is_none() {
            set_acknowledged(ip, l4, |number, is_cumulative| match is_cumulative {
                true => stream.acknowledged(number),
                false => stream.edits().back(number),
            });
        }
    }

    /// What of a packet of a control connection goes on, that has the ends `tuple` as it leaves; its new bytes are written to
    /// `out`. `None`: it is of no control connection.
    ///
    /// # Errors
    /// It does not go on: it waits for others, or there is no room or no port for what it announces; the latter is counted.
    pub fn announce(
        &mut self,
        tuple: &Tuple,
        segment: &Segment<'_>,
        out: &mut [u8],
        now_s: u32,
    ) -> Option<Result<Passed, Stop<Refusal>>> {
        let (key, side) = tuple.key();
        let slot = self.table.find(&key)?;
        let way = self.way_behind(slot, side)?;
        let (original, control) = self.control(slot)?;
        // Taken out of its place, because the translator makes a binding meanwhile.
        let stream = &mut control.streams[way as usize];
        let mut stream = std::mem::take(stream);
        let is_client = way == Way::Forward;
        let passed = stream.pass(segment, is_client, out, |own| {
            let expected = self.expect(original, way, own, now_s);
            expected.inspect_err(|refusal| self.counts.refuse(*refusal))
        });
        let (_, control) = self.control(slot)?;
        control.streams[way as usize] = stream;
        if let Ok(passed) = &passed {
            self.counts.ftp_left += u64::from(passed.left);
        }
        Some(passed)
    }

    /// The way of a packet that was translated.
    fn way_behind(&self, slot: Slot, side: Side) -> Option<Way> {
        let hot = self.table.get(slot)?;
        let from = side_of(hot.flags);
        match hot.kind {
            Kind::Translated if side == from => Some(Way::Forward),
            Kind::Original if side != from => Some(Way::Back),
            _ => None,
        }
    }

    /// The sequence number that the sender of a packet gave it, which left with the ends `tuple`.
    pub fn restore_number(&mut self, tuple: &Tuple, number: u32) -> u32 {
        let (key, side) = tuple.key();
        let slot = self.table.find(&key).filter(|slot| self.is_control(*slot));
        let Some((slot, way)) = slot.and_then(|slot| Some((slot, self.way_behind(slot, side)?)))
        else {
            return number;
        };
        let control = self.control(slot);
        control.map_or(number, |own| own.1.streams[way as usize].edits().back(number))
    }

    /// Expects the data connection that an inside end of a control connection announces. Returns its outside end; `None`: it is
    /// left as it is.
    fn expect(
        &mut self,
        original: Slot,
        way: Way,
        own: &Announcement,
        now_s: u32,
    ) -> Result<Option<(std::net::Ipv4Addr, u16)>, Refusal> {
        let hot = *self.table.get(original).ok_or(Refusal::Conflict)?;
        let (Some(before), Some(behind)) = (self.tuple(original), self.tuple(Slot(hot.other)))
        else {
            return Err(Refusal::Conflict);
        };
        // The end that announces, as it is and as the other one sees it; and the other one.
        let (inside, outside, remote) = match way {
            Way::Forward => (before.src.0, behind.src.0, behind.dst.0),
            Way::Back => (behind.dst.0, before.dst.0, before.src.0),
        };
        if inside == outside {
            return Ok(None);
        }
        let inside_v4 = std::net::Ipv4Addr::from_bits(inside[1] as u32);
        if own.address.is_some_and(|address| address != inside_v4) || own.port < PORT_MIN {
            self.counts.ftp_refused += 1;
            return Ok(None);
        }
        let address = outside[1] as u32;
        let end = |port: u16| Some((std::net::Ipv4Addr::from_bits(address), port));
        let rules = self.rules.clone();
        let led = rules.destination(IpProtocol::TCP.0, address, own.port);
        let is_led = led.is_some_and(|(_, to, port)| (to, port) == (inside[1] as u32, own.port));
        self.withdraw(original);
        if is_led {
            self.counts.ftp_announced += 1;
            return Ok(end(own.port));
        }
        let is_full = self.sessions + self.controls.expected >= self.options.sessions;
        let least = if is_full {
            // Its own session must not make the room.
            let is_open = self.table.class(original) == Some(FlowClass::Full);
            let least = self.least(now_s).filter(|_| is_open);
            Some(least.ok_or(Refusal::Sessions)?)
        } else {
            None
        };
        let rule = rules.rule(hot.rule).ok_or(Refusal::Conflict)?;
        let (range, class) = match &rule.action {
            Action::Deterministic { blocks, .. } if way == Way::Forward => {
                let range = blocks.of(inside[1] as u32).ok_or(Refusal::NoAddress)?.1;
                (range, Class::ALL)
            }
            action => {
                let class = Class { number: rules.class_of(inside), classes: rules.classes };
                let has_ports = matches!(action, Action::Masquerade | Action::Source(_));
                let range = if has_ports { rule.ports.clone() } else { PORT_MIN..=u16::MAX };
                (range, class)
            }
        };
        let data = Tuple { src: (inside, own.port), dst: (remote, 0), ..before };
        let (room, range) = (least.map_or(Room::Free, Room::Of), (&range, class));
        let (mut binding, port) = self.bind(&data, hot.rule, address, range, room)?;
        if let Binding::Is(slot) = binding {
            self.hold(slot);
        }
        least.into_iter().for_each(|least| self.make_room(least));
        if let Binding::Left(port) = binding {
            binding = self.bind(&data, hot.rule, address, range, Room::Left(port))?.0;
            if let Binding::Is(slot) = binding {
                self.hold(slot);
            }
        }
        let Binding::Is(binding) = binding else { return Err(Refusal::Ports) };
        let key = expected_key(remote, (outside, port));
        if let Some(known) = self.table.find(&key) {
            // Another control connection of the host has announced the same.
            self.end_expected(known);
        }
        let Some(slot) = self.insert(&key, now_s) else {
            self.let_go(binding);
            return Err(Refusal::Sessions);
        };
        self.set(slot, Kind::Expected, (binding.0, original.0), hot.rule, 0);
        self.controls.expected += 1;
        self.counts.ftp_announced += 1;
        if let Some((_, control)) = self.control(original) {
            control.expected = Some(slot);
        }
        Ok(end(port))
    }

    /// What a control connection announced is not expected any more.
    fn withdraw(&mut self, original: Slot) {
        let known = self.control(original).and_then(|(_, control)| control.expected.take());
        if let Some(slot) = known {
            self.end_expected(slot);
        }
    }

    /// A data connection is not expected any more.
    pub(super) fn end_expected(&mut self, slot: Slot) {
        if let Some(binding) = self.take_expected(slot) {
            self.let_go(binding);
        }
    }

    /// Takes out what is expected; its binding, which is still held.
    fn take_expected(&mut self, slot: Slot) -> Option<Slot> {
        let hot = *self.table.get(slot).filter(|hot| hot.kind == Kind::Expected)?;
        self.table.remove(slot);
        self.controls.expected -= 1;
        if let Some((_, control)) = self.control(Slot(hot.owner))
            && control.expected == Some(slot)
        {
            control.expected = None;
        }
        Some(Slot(hot.other))
    }

    /// The inside end of a data connection that is expected, by the ends of its first packet, and the number of the rule.
    pub fn expected(&self, tuple: &Tuple) -> Option<(u16, End)> {
        if self.controls.expected == 0 || tuple.protocol != IpProtocol::TCP.0 {
            return None;
        }
        let hot = self.table.get(self.table.find(&expected_key(tuple.src.0, tuple.dst))?)?;
        Some((hot.rule, host_end(self.table.key(Slot(hot.other))?)))
    }

    /// A session begins with the ends `original`: if it was expected, the binding that it has from now on; else none.
    pub(super) fn came(&mut self, original: &Tuple) -> u32 {
        if self.controls.expected == 0 || original.protocol != IpProtocol::TCP.0 {
            return NIL;
        }
        let slot = self.table.find(&expected_key(original.src.0, original.dst));
        let Some(binding) = slot.and_then(|slot| self.take_expected(slot)) else { return NIL };
        self.counts.ftp_related += 1;
        binding.0
    }
}
