//! Packets of which it is known without the table what they become: plain ones of sessions whose state they leave as it is.

use chunk::{Packet, Verdict};
use interleave::prefetch_at;
use nat::cache::{Change, Place};
use nat::families::{Pair, Plain6, Turn};
use nat::rewrite::Which;
use nat::{Plain, Translator, nat64};

use super::destination::{Changed, Destination, Out};
use super::family::turn_plain;
use super::reasons;
use super::source::Wanted;
use crate::router::columns::flags;

/// A row whose packet is plain.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlainRow {
    /// Its ends; none of an IPv6 packet, which are read again.
    pub(super) plain: Plain,
    pub(super) place: Place,
    /// The same where packets go from one family to the other.
    pub(super) pair: Pair,
    pub(super) row: u16,
    /// Its TCP flags, or 0.
    pub(super) tcp: u8,
    pub(super) is_v6: bool,
}

/// Plain packets for which memory is read ahead. Measured with `bench nat`: 8 and 32 are as fast within the noise.
pub(super) const AHEAD: usize = 16;

impl Destination {
    /// Translates those plain packets of which it is known what changes, and asks for the others.
    pub(super) fn translate_known(
        &mut self,
        out: &mut Out<'_>,
        packets: &mut [Packet],
        translator: &mut Translator,
        now_s: u32,
    ) {
        let all = std::mem::take(&mut self.plain);
        let has_turns = translator.keys().is_on();
        let prefetch = |own: &PlainRow, translator: &Translator| {
            if !own.is_v6 {
                translator.prefetch(own.place);
            }
            if has_turns {
                translator.prefetch_turn(own.pair);
            }
        };
        all.iter().take(AHEAD).for_each(|own| prefetch(own, translator));
        for (at, own) in all.iter().enumerate() {
            if let Some(ahead) = all.get(at + AHEAD) {
                prefetch(ahead, translator);
            }
            let &PlainRow { plain, place, row, tcp, is_v6, .. } = own;
            let known = if is_v6 { None } else { translator.known(place, plain, tcp, now_s) };
            let Some(change) = known else {
                self.turn_or_ask(out, packets, translator, own, now_s);
                continue;
            };
            let row = usize::from(row);
            let Change { which, address, port, .. } = change;
            let is_source = which == Which::Source;
            if is_source && !self.writes_sources {
                out.nat[row] = Wanted::Source((address, port)).encode();
                continue;
            }
            let packet = &mut packets[row];
            let ip = packet.data_mut().get_mut(usize::from(out.l3[row])..).unwrap_or_default();
            change.write(ip, plain);
            self.note(row, Changed::End(which, address, port));
            if is_source {
                out.nat[row] = Wanted::Written(plain.source()).encode();
                continue;
            }
            out.dst4[row] = address;
            if out.headers.is_some() {
                out.changed(row, packet, &mut self.decoded[row]);
            }
        }
        self.plain = all;
        self.plain.clear();
    }

    /// A plain packet of which the cache of one family knows nothing: turns it into one of the other family if that is known,
    /// and otherwise asks for it.
    #[inline(always)]
    fn turn_or_ask(
        &mut self,
        out: &mut Out<'_>,
        packets: &mut [Packet],
        translator: &mut Translator,
        own: &PlainRow,
        now_s: u32,
    ) {
        let &PlainRow { plain, pair, row, tcp, is_v6, .. } = own;
        let packet = &mut packets[usize::from(row)];
        let ip = packet.data().get(usize::from(out.l3[usize::from(row)])..).unwrap_or_default();
        let six = if is_v6 { Plain6::of(ip).map(|(six, _)| six) } else { None };
        let turn = match &six {
            Some(six) => translator.turn6(pair, six, tcp, now_s),
            None => translator.turn4(pair, plain, tcp, now_s),
        };
        let Some(turn) = turn.filter(|turn| turn.is_simple(ip)) else {
            let tuple = six.map_or_else(|| plain.tuple(), |six| six.tuple());
            return self.ask(row, &tuple, tcp, true);
        };
        let turn = *turn;
        translator.counts_mut().packets += 1;
        if is_v6 && !self.turns_early {
            let (to, row) = (turn.to(), usize::from(row));
            let source = (to.src.0[1] as u32, to.src.1);
            return out.becomes_v4(row, source.0, to.dst.0[1] as u32, Wanted::Turn(source));
        }
        // Packets are numbered in the order of receipt.
        match self.asked.is_empty() {
            true => self.turn_known(out, usize::from(row), packet, &turn),
            false => self.turns.push((row, turn)),
        }
    }

    /// Turns a packet into the one of the other family that it is known to become.
    #[inline(always)]
    pub(super) fn turn_known(
        &mut self,
        out: &mut Out<'_>,
        row: usize,
        packet: &mut Packet,
        turn: &Turn,
    ) {
        self.identification = self.identification.wrapping_add(1);
        self.note(row, Changed::All);
        if !turn_plain(packet, usize::from(out.l3[row]), turn, self.identification) {
            out.verdict[row] = Verdict::drop(reasons::NAT_UNTRANSLATABLE).0;
            return;
        }
        if out.headers.is_some() {
            return out.changed(row, packet, &mut self.decoded[row]);
        }
        let other = out.flags[row] & !(flags::IPV4 | flags::IPV6);
        if turn.is_to_v4() {
            out.flags[row] = other | flags::IPV4;
            (out.src4[row], out.dst4[row]) = turn.ends4();
        } else {
            out.flags[row] = other | flags::IPV6;
            (out.src6[row], out.dst6[row]) = turn.ends6();
        }
    }
}

/// Starts loading what of a packet is written in its place in the other family, beside its first line: what is before it, or
/// the end of a longer header and the checksum behind it.
#[inline(always)]
pub(super) fn prefetch_turned(packet: &Packet, bits: u16) {
    let first = packet.data().as_ptr();
    if bits & flags::IPV6 != 0 {
        prefetch_at(first.wrapping_add(64));
    } else {
        prefetch_at(first.wrapping_sub(nat64::GROWTH));
    }
}
