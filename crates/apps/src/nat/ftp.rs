//! Packets of FTP's control connections: addresses in their lines, and what follows from those.

use chunk::{CELL_FRAME_BYTES, DropReason, FRAME_BYTES_MAX, Packet, Pool};
use nat::Translator;
use nat::ftp::{Passed, Segment, Stop};
use nat::rewrite::{Resized, set_segment};
use nat::translator::Refusal;
use nat::tuple::Tuple;
use packet::IpProtocol;
use packet::checksum::partial_sum;

use super::reasons;
use super::source::reason;
use crate::received;

/// Bytes that a segment may have where one of its lines is edited: those that lie in a cell, with room for headers.
const ROOM: usize = CELL_FRAME_BYTES - 256;

const FIN: u8 = 1;
const PUSH: u8 = 8;

/// Packets of control connections, one after the other.
#[derive(Default)]
pub(super) struct ControlRow {
    /// The bytes of a segment, and those that take their place.
    payload: Vec<u8>,
    new: Vec<u8>,
}

/// Why a packet does not go on.
pub(super) enum Held {
    /// It waits for others.
    Waits,
    /// What it announces cannot be had.
    Refused(Refusal),
    /// There is no cell.
    NoCells,
}

impl Held {
    pub(super) fn reason(&self) -> DropReason {
        match self {
            Held::Waits => reasons::NAT_FTP_WAITS,
            Held::Refused(refusal) => reason(*refusal),
            Held::NoCells => chunk::reasons::NO_CELLS,
        }
    }

    pub(super) fn refusal(&self) -> Option<Refusal> {
        match self {
            Held::Refused(refusal) => Some(*refusal),
            _ => None,
        }
    }
}

impl ControlRow {
    /// Does to a packet, whose ends are translated, what its session wants; one of no control connection stays as it is.
    /// `mtu`: of the way out.
    pub(super) fn announce(
        &mut self,
        packet: &mut Packet,
        translator: &mut Translator,
        mtu: u16,
        now_s: u32,
        pool: &mut Pool,
    ) -> Result<(), Held> {
        let d = received::decode(packet);
        let (l3, l4) = (usize::from(d.l3_offset), usize::from(d.l4_offset));
        let Some(tuple) = Tuple::of(&d, packet.data().get(l4..).unwrap_or_default()) else {
            return Ok(());
        };
        let tcp = packet.data().get(l4..).and_then(|tcp| tcp.first_chunk::<20>());
        let is_tcp = |tcp: &&[u8; 20]| d.protocol == IpProtocol::TCP && tcp[12] >= 0x50;
        let Some(tcp) = tcp.filter(is_tcp) else { return Ok(()) };
        let begin = l4 + usize::from(tcp[12] >> 4) * 4;
        let (seq, flags) = (u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]), tcp[13]);
        let end = l3 + d.ip_total_len as usize;
        if begin > end || end > packet.frame_len() {
            return Ok(());
        }
        self.payload.clear();
        // Once, for the first such packet.
        self.payload.reserve(FRAME_BYTES_MAX);
        self.payload.resize(end - begin, 0);
        self.new.resize(ROOM, 0);
        if !packet.read_at(begin, &mut self.payload) {
            return Ok(());
        }
        let room = (usize::from(mtu) + l3).saturating_sub(begin).min(ROOM);
        let segment = Segment { seq, flags, payload: &self.payload, room };
        let passed = match translator.announce(&tuple, &segment, &mut self.new, now_s) {
            None => return Ok(()),
            Some(Ok(passed)) => passed,
            Some(Err(Stop::Wait)) => return Err(Held::Waits),
            Some(Err(Stop::Refused(refusal))) => return Err(Held::Refused(refusal)),
        };
        let Passed { seq, kept, len, .. } = passed;
        let is_cut = kept < self.payload.len();
        let resized = if is_cut || len.is_some() {
            let new = len.map_or(&self.payload[..kept], |len| &self.new[..len]);
            // Behind the packet there may be padding.
            let fits = packet.truncate(pool, end.min(begin + new.len()))
                && packet.grow_back(pool, (begin + new.len()).saturating_sub(packet.frame_len()))
                && (len.is_none() || packet.linearise(pool, begin + new.len()));
            if !fits {
                return Err(Held::NoCells);
            }
            if len.is_some()
                && let Some(place) = packet.data_mut().get_mut(begin..begin + new.len())
            {
                place.copy_from_slice(new);
            }
            Some(Resized {
                sums: [&self.payload[..], new].map(partial_sum),
                lens: [self.payload.len(), new.len()].map(|len| len as u16),
                cleared: if is_cut { FIN | PUSH } else { 0 },
            })
        } else {
            None
        };
        let ip = packet.data_mut().get_mut(l3..).unwrap_or_default();
        set_segment(ip, l4 - l3, seq, resized);
        Ok(())
    }
}
