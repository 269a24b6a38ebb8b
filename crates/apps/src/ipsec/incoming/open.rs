//! Packets that are opened: a group at a time decryption, and what was inside in their place.

use arrayvec::ArrayVec;
use chunk::{DropReason, Packet, Pool, Verdict};
use crypto::esp::{self, Open, OpenError, Opened};
use ipsec::inbound::{self, Found, Wrong};
use ipsec::{Association, Mode, Parameters, Tally};
use packet::{Decoded, EtherType};

use super::super::current::{Event, Refused, Why};
use super::super::{move_headers, reasons, tunnels};
use super::{Esp, EspIn, FRAME_MAX, GROUP, Member, Shaded};
use crate::received;
use crate::router::MARK_OPENED;

/// What an opened packet becomes.
enum Change {
    /// The bytes from `at` on, `len` of them, behind the link header.
    Tunnel { at: usize, len: usize, family: u8 },
    /// `gone` bytes go behind the first `kept`; the frame ends `len` bytes behind that.
    Transport { kept: usize, gone: usize, len: usize },
}

/// The drop reason of an error.
fn reason(error: OpenError) -> DropReason {
    match error {
        OpenError::Truncated | OpenError::Length => reasons::ESP_SHORT,
        OpenError::Spi => reasons::ESP_UNKNOWN_SPI,
        OpenError::Replay(_) => reasons::ESP_REPLAY,
        OpenError::Authentication => reasons::ESP_NOT_GENUINE,
        OpenError::Padding => reasons::ESP_MALFORMED,
    }
}

fn reason_of(wrong: Wrong) -> DropReason {
    match wrong {
        Wrong::Dummy => reasons::ESP_DUMMY,
        Wrong::Inner => reasons::ESP_MALFORMED,
        Wrong::Congestion => reasons::ESP_CONGESTION,
    }
}

impl EspIn {
    /// Opens the packets of a group, in the order of their rows.
    pub(super) fn open(
        &mut self,
        members: &[Member<'_>],
        verdicts: &mut [u32],
        packets: &mut [Packet],
        pool: &mut Pool,
    ) {
        let mut results: ArrayVec<Option<Result<Opened, OpenError>>, GROUP> = ArrayVec::new();
        self.owners.note(members.iter().map(|own| own.esp.association));
        {
            let mut opens: ArrayVec<Open<'_>, GROUP> = ArrayVec::new();
            let mut of: ArrayVec<usize, GROUP> = ArrayVec::new();
            let mut wanted = members.iter().enumerate().peekable();
            let first = members.first().map_or(0, |own| own.row);
            for (row, packet) in packets.iter_mut().enumerate().skip(first) {
                let Some((at, member)) = wanted.next_if(|(_, own)| own.row == row) else {
                    if wanted.peek().is_none() { break } else { continue }
                };
                results.push(None);
                let Esp { association, at: from, end, .. } = member.esp;
                if let Some(Shaded { number, is_genuine, .. }) = member.shaded {
                    let bytes = packet.data_mut().get_mut(from..end).unwrap_or_default();
                    let opener = association.opener();
                    results[at] = opener.map(|own| own.settle(bytes, number, is_genuine));
                    continue;
                }
                if packet.cells() > 1 && !packet.linearise(pool, packet.frame_len()) {
                    continue;
                }
                let Some(opener) = association.opener() else { continue };
                let Some(bytes) = packet.data_mut().get_mut(from..end) else { continue };
                opens.push(opener.open(bytes));
                of.push(at);
            }
            esp::open_batch(&mut opens);
            for (open, at) in opens.iter().zip(of) {
                results[at] = Some(open.result());
            }
        }
        let (mut tally, mut opened) = (Tally::default(), (0, 0));
        for (member, result) in members.iter().zip(results) {
            let packet = &mut packets[member.row];
            let change = match result {
                Some(result) => {
                    self.settle(member, (result, &mut tally, &mut opened), packet.data_mut())
                }
                // A frame over several cells, by itself.
                None => {
                    let mut frame = std::mem::take(&mut self.scratch);
                    frame.resize(packet.frame_len().min(FRAME_MAX), 0);
                    packet.read_at(0, &mut frame);
                    let Esp { association, at, end, .. } = member.esp;
                    let bytes = frame.get_mut(at..end);
                    let result = association.opener().zip(bytes).map(|(opener, bytes)| {
                        let mut open = [opener.open(bytes)];
                        esp::open_batch(&mut open);
                        open[0].result()
                    });
                    let result = result.unwrap_or(Err(OpenError::Truncated));
                    let own = (result, &mut tally, &mut opened);
                    let change = self.settle(member, own, &mut frame);
                    packet.write_at(0, &frame);
                    self.scratch = frame;
                    change
                }
            };
            let done = change.and_then(|change| match apply(packet, pool, &member.d, change) {
                true => Ok(()),
                false => Err(reasons::ESP_MALFORMED),
            });
            match done {
                Ok(()) => {
                    packet.mark |= MARK_OPENED;
                    let Parameters { reqid, if_id, .. } = *member.esp.association.parameters();
                    self.reqids[member.row] = reqid;
                    self.if_ids[member.row] = if_id;
                    if if_id != 0 && !self.enter(packet, if_id) {
                        verdicts[member.row] = Verdict::drop(reasons::ESP_NO_INTERFACE).0;
                        continue;
                    }
                    self.next.push(member.row as u16);
                }
                Err(reason) => verdicts[member.row] = Verdict::drop(reason).0,
            }
        }
        if opened.0 > 0 {
            self.counters.opened.add(opened.0);
            self.counters.opened_bytes.add(opened.1);
        }
    }

    /// Has an opened packet come by the tunnel interface with this number. `false`: there is none.
    fn enter(&self, packet: &mut Packet, if_id: u32) -> bool {
        let Some(interface) = self.tunnels.find(if_id) else { return false };
        let l3 = usize::from(received::decode(packet).l3_offset);
        let is_received = tunnels::receive(packet, l3, interface);
        self.router.count_tagged_rx(interface.0, packet.frame_len());
        is_received
    }

    /// What becomes of a packet by what was found in it; `frame` is all of it. `counts`: packets and bytes that were opened.
    fn settle<'v>(
        &self,
        member: &Member<'v>,
        (result, tally, counts): (Result<Opened, OpenError>, &mut Tally<'v>, &mut (u64, u64)),
        frame: &mut [u8],
    ) -> Result<Change, DropReason> {
        let Member { d, esp: Esp { association, at, port, .. }, .. } = member;
        let opened = result.map_err(|error| {
            association.count_refused(error);
            let why = match error {
                OpenError::Replay(_) => Some(Why::Replayed),
                OpenError::Authentication => Some(Why::Forged),
                _ => None,
            };
            let spi = association.parameters().spi;
            self.reader.refuse(|| refused(why?, spi, d, frame, *at), member.now_ns);
            reason(error)
        })?;
        let len = opened.payload.len();
        let counted = self.reader.count(tally, association, len, member.now_ns);
        counted.map_err(|_| reasons::SA_EXPIRED)?;
        if let Some(port) = *port {
            // What is sent to the peer follows it.
            let heard = association.heard_from(opened.number, d.src, port);
            if let (Some(true), Some(address)) = (heard, d.src_ip()) {
                let Parameters { spi, destination, .. } = *association.parameters();
                self.reader.tell(Event::Moved { spi, destination, address, port });
            }
        }
        *counts = (counts.0 + 1, counts.1 + len as u64);
        let l3 = usize::from(d.l3_offset);
        if association.parameters().mode == Mode::Tunnel {
            let start = at + opened.payload.start;
            let payload = frame.get_mut(start..start + len).ok_or(reasons::ESP_MALFORMED)?;
            let ecn = d.traffic_class & 3;
            let inner = inbound::inner(association, payload, opened.next_header, ecn);
            let inner = inner.map_err(reason_of)?;
            return Ok(Change::Tunnel { at: start, len: inner.len, family: inner.family });
        }
        let ip = frame.get_mut(l3..).ok_or(reasons::ESP_MALFORMED)?;
        let place = (at - l3, opened.payload);
        let rest = inbound::transport_back(ip, d, place, opened.next_header, port.is_some());
        let rest = rest.map_err(reason_of)?;
        if port.is_some() {
            let (kept, from) = (rest.kept, rest.kept + rest.gone);
            let whole = ip.get_mut(..from + rest.len).ok_or(reasons::ESP_MALFORMED)?;
            let (header, segment) = whole.split_at_mut(from);
            inbound::repair_checksum(&header[..kept], segment, opened.next_header);
        }
        Ok(Change::Transport { kept: l3 + rest.kept, gone: rest.gone, len: rest.len })
    }
}

/// Who opens a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// The step in between has.
    Shaded,
    /// The worker, with others.
    Together,
    /// The worker, by itself: a frame over several cells.
    Alone,
}

#[inline]
pub(super) fn how_opened(row: usize, shaded: Option<Shaded>, packets: &[Packet]) -> How {
    match packets.get(row) {
        _ if shaded.is_some() => How::Shaded,
        Some(packet) if packet.cells() > 1 => How::Alone,
        _ => How::Together,
    }
}

/// Makes of a frame what was inside.
fn apply(packet: &mut Packet, pool: &mut Pool, d: &Decoded, change: Change) -> bool {
    let l3 = usize::from(d.l3_offset);
    let (from, kept, end) = match change {
        Change::Tunnel { at, len, .. } => (at - l3, l3, l3 + len),
        Change::Transport { kept, gone, len } => (gone, kept, kept + len),
    };
    let headers = from + kept;
    if packet.data().len() < headers && !packet.linearise(pool, headers) {
        return false;
    }
    move_headers(packet.data_mut(), kept, 0, from);
    let is_shorter = match packet.cells() {
        1 => packet.pull_front(from),
        _ => packet.shrink_front(pool, from),
    };
    if !is_shorter || !packet.truncate(pool, end) {
        return false;
    }
    if let Change::Tunnel { family, .. } = change {
        let kind = if family == 4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let Some(place) = packet.data_mut().get_mut(l3 - 2..l3) else { return false };
        place.copy_from_slice(&kind.0.to_be_bytes());
    }
    true
}

/// What control hears of a packet whose ESP begins with byte `at` of the frame.
pub(super) fn refused(why: Why, spi: u32, d: &Decoded, frame: &[u8], at: usize) -> Option<Refused> {
    let number = frame.get(at + 4..).and_then(|rest| rest.first_chunk::<4>())?;
    let (source, destination) = d.src_ip().zip(d.dst_ip())?;
    Some(Refused { why, spi, number: u32::from_be_bytes(*number), source, destination })
}

/// A packet that was opened by the association of a key, or is not genuine.
pub(super) fn opened<'v>(
    packet: &mut Packet,
    d: &Decoded,
    (shaded, association): (Shaded, &'v Association),
    now_ns: u64,
) -> Result<Option<Esp<'v>>, DropReason> {
    match inbound::found(packet.data(), d) {
        Found::Esp { at, end, .. }
            if association.has_ended() || association.is_over_time(now_ns) =>
        {
            let bytes = packet.data_mut().get_mut(at..end);
            if let (Some(bytes), Some(own), true) = (bytes, association.opener(), shaded.is_genuine)
            {
                own.close(bytes, shaded.number); // what is dropped is as it came
            }
            Err(reasons::SA_EXPIRED)
        }
        Found::Esp { at, end, port, .. } => Ok(Some(Esp { association, at, end, port })),
        _ => Err(reasons::ESP_MALFORMED),
    }
}
