//! Packets of which it is known without the table what they become: plain ones of sessions whose state they leave as it is.

use chunk::{Packet, Verdict};
use interleave::prefetch_at;
use nat::cache::{Change, Place};
use nat::families::{Pair, Plain6, Turn};
use nat::rewrite::Which;
use nat::{Plain, Tcp, Translator, nat64};

use super::destination::{Changed, Destination, Out, seconds};
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
    /// What its TCP segment acknowledges, and its flags; or 0.
    acked: u32,
    flags: u8,
    pub(super) is_v6: bool,
    pub(super) row: u16,
}

impl PlainRow {
    #[inline(always)]
    pub(super) fn new(
        plain: Plain,
        (place, pair): (Place, Pair),
        row: u16,
        tcp: Tcp,
        is_v6: bool,
    ) -> Self {
        Self { plain, place, pair, acked: tcp.acknowledgment, flags: tcp.flags, is_v6, row }
    }

    /// What a cache asks of its segment.
    #[inline(always)]
    fn tcp(&self) -> Tcp {
        Tcp { acknowledgment: self.acked, ..Tcp::with(self.flags) }
    }

    /// The whole segment.
    fn segment(&self, packet: &Packet, l3: u8) -> Tcp {
        let ip = packet.data().get(usize::from(l3)..).unwrap_or_default();
        let tcp = match self.is_v6 {
            true => Plain6::of(ip).map(|(_, tcp)| tcp),
            false => Plain::of(ip).map(|(_, tcp)| tcp),
        };
        tcp.unwrap_or_default()
    }
}

// Two rows a cache line.
const _: () = assert!(size_of::<PlainRow>() == 32);

/// Plain packets whose memory is asked for in a row, so that their searches of the page table overlap; a prefetch among the work
/// of each packet waits for its own. Measured with `bench nat`.
const GROUP: usize = 32;

/// Packets ahead for which memory beside the first line is asked for.
pub(super) const AHEAD: usize = 16;

impl Destination {
    /// Takes plain IPv4 packets from row `first` on, up to one that is something else and has to be translated, or that did not come
    /// `within` this second. Returns its row, or the number of rows. `families`: flags of packets that are translated.
    #[inline(never)]
    pub(super) fn take_plain(
        &mut self,
        out: &Out<'_>,
        packets: &[Packet],
        first: usize,
        (families, within): (u16, Option<u32>),
    ) -> usize {
        let (places, count, mut rows_of) =
            (self.places, packets.len(), std::mem::take(&mut self.plain));
        let mut end = count;
        let columns = out.verdict[first..count].iter().zip(&out.flags[first..count]);
        let columns = columns.zip(&out.l3[first..count]);
        let rows = packets[first..].iter().zip(columns).zip(first..);
        for ((packet, ((&verdict, &bits), &l3)), row) in rows {
            if !Verdict(verdict).is_next() || bits & families == 0 {
                continue;
            }
            if within.is_some_and(|second| seconds(packet.time_ns) != second) {
                end = row;
                break;
            }
            let ip = packet.data().get(usize::from(l3)..).filter(|_| bits == flags::IPV4);
            let Some((plain, tcp)) = ip.and_then(Plain::of) else {
                end = row;
                break;
            };
            let (place, pair, row) = (places.of(plain), Pair::default(), row as u16);
            rows_of.push(PlainRow::new(plain, (place, pair), row, tcp, false));
        }
        self.plain = rows_of;
        end
    }

    /// Translates those plain packets of which it is known what changes, and asks for the others.
    pub(super) fn translate_known(
        &mut self,
        out: &mut Out<'_>,
        packets: &mut [Packet],
        translator: &mut Translator,
        now_s: u32,
    ) {
        let all = std::mem::take(&mut self.plain);
        // Other rules may have come since: rows of IPv6 packets have no place in the cache of one family.
        let has_turns = self.has_turns;
        let mut groups = all.chunks(GROUP);
        let mut group = groups.next().unwrap_or_default();
        prefetch_group(group, translator, has_turns);
        while !group.is_empty() {
            let next = groups.next().unwrap_or_default();
            prefetch_group(next, translator, has_turns);
            match has_turns {
                false => self.change_group(out, packets, translator, group, now_s),
                true => self.turn_group(out, packets, translator, group, now_s),
            }
            group = next;
        }
        self.plain = all;
        self.plain.clear();
    }

    /// Where no packet goes from one family to the other.
    #[inline(never)]
    fn change_group(
        &mut self,
        out: &mut Out<'_>,
        packets: &mut [Packet],
        translator: &mut Translator,
        group: &[PlainRow],
        now_s: u32,
    ) {
        let mut known = 0;
        for own in group {
            match translator.known(own.place, own.plain, own.tcp(), now_s) {
                Some(change) => {
                    known += 1;
                    self.change(out, packets, own, change);
                }
                None => known += self.change_or_ask(out, packets, translator, own, now_s),
            }
        }
        translator.counts_mut().packets += known;
    }

    /// Where some may.
    #[inline(never)]
    fn turn_group(
        &mut self,
        out: &mut Out<'_>,
        packets: &mut [Packet],
        translator: &mut Translator,
        group: &[PlainRow],
        now_s: u32,
    ) {
        for own in group {
            let known = match own.is_v6 {
                true => None,
                false => {
                    let (place, plain, tcp) = (own.place, own.plain, own.tcp());
                    let known = translator.known(place, plain, tcp, now_s);
                    known.or_else(|| translator.known_beside(place, plain, tcp, now_s))
                }
            };
            match known {
                Some(change) => {
                    translator.counts_mut().packets += 1;
                    self.change(out, packets, own, change);
                }
                None => self.turn_or_ask(out, packets, translator, own, now_s),
            }
        }
    }

    /// The same of a packet that is not known at once; how many are known, then.
    #[inline(never)]
    fn change_or_ask(
        &mut self,
        out: &mut Out<'_>,
        packets: &mut [Packet],
        translator: &mut Translator,
        own: &PlainRow,
        now_s: u32,
    ) -> u64 {
        match translator.known_beside(own.place, own.plain, own.tcp(), now_s) {
            Some(change) => {
                self.change(out, packets, own, change);
                1
            }
            None => {
                let row = usize::from(own.row);
                let tcp = own.segment(&packets[row], out.l3[row]);
                self.ask(own.row, &own.plain.tuple(), tcp, true);
                0
            }
        }
    }

    /// Changes a plain packet as it is known, or leaves that to `nat_source`.
    #[inline(always)]
    fn change(
        &mut self,
        out: &mut Out<'_>,
        packets: &mut [Packet],
        own: &PlainRow,
        change: Change,
    ) {
        let (plain, row) = (own.plain, usize::from(own.row));
        let Change { which, address, port, .. } = change;
        let is_source = which == Which::Source;
        if is_source && !self.writes_sources {
            out.nat[row] = Wanted::Source((address, port)).encode();
            return;
        }
        let packet = &mut packets[row];
        if let Some(ip) = packet.data_mut().get_mut(usize::from(out.l3[row])..) {
            change.write(ip, plain);
        }
        self.note(row, Changed::End(which, address, port));
        if is_source {
            out.nat[row] = Wanted::Written(plain.source()).encode();
            return;
        }
        out.dst4[row] = address;
        if out.headers.is_some() {
            out.changed(row, packet, &mut self.decoded[row]);
        }
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
        let (&PlainRow { plain, pair, row, is_v6, .. }, tcp) = (own, own.tcp());
        let packet = &mut packets[usize::from(row)];
        let ip = packet.data().get(usize::from(out.l3[usize::from(row)])..).unwrap_or_default();
        let six = if is_v6 { Plain6::of(ip).map(|(six, _)| six) } else { None };
        let turn = match &six {
            Some(six) => translator.turn6(pair, six, tcp, now_s),
            None => translator.turn4(pair, plain, tcp, now_s),
        };
        let Some(turn) = turn.filter(|turn| turn.is_simple(ip)) else {
            let tuple = six.map_or_else(|| plain.tuple(), |six| six.tuple());
            let tcp = own.segment(packet, out.l3[usize::from(row)]);
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

/// Starts loading what is known of some plain packets.
#[inline(always)]
fn prefetch_group(group: &[PlainRow], translator: &Translator, has_turns: bool) {
    if !has_turns {
        return group.iter().for_each(|own| translator.prefetch(own.place));
    }
    for own in group {
        if !own.is_v6 {
            translator.prefetch(own.place);
        }
        translator.prefetch_turn(own.pair);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nat::Current;
    use nat::rules::{Action, Own, Prefix, Rule, Rules};
    use nat::translator::{Options, Timeouts};
    use std::sync::{Arc, Mutex, RwLock};

    /// Rules for IPv6 hosts may go while a chunk is decoded: its packets stay what they are.
    #[test]
    fn rules_go_before_packets_are_looked_up() {
        let prefix = Prefix { family: 6, address: [0x0064_ff9b_0000_0000, 0], len: 96 };
        let ports = 1024..=u16::MAX;
        let action = Action::Nat64 { prefix, to: vec![0xcb00_7101] };
        let rule =
            Rule { number: 0, outside: vec![], sources: vec![], protocol: None, ports, action };
        let [before, after] =
            [vec![rule], Vec::new()].map(|all| Arc::new(Rules::new(all, 1, Arc::new(Own::new(2)))));
        let options = Options {
            sessions: 4,
            bindings_per_host: 4,
            filter_by_remote: true,
            timeouts: Timeouts::default(),
            ftp_ports: &[],
            seed: 7,
        };
        let translator = Arc::new(Mutex::new(Translator::new(options, before.clone()).unwrap()));
        let current: Current = Arc::new(RwLock::new(before));
        let mut stage = Destination::new(translator.clone(), current, false, 7);
        let mut translator = translator.lock().unwrap();

        // A UDP datagram from 2001:db8::7 to 64:ff9b::808:808.
        let mut frame = vec![0; 14 + 48];
        (frame[12], frame[13], frame[14], frame[19], frame[20]) = (0x86, 0xdd, 0x60, 8, 17);
        frame[22..26].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
        frame[37] = 7;
        frame[38..42].copy_from_slice(&[0, 0x64, 0xff, 0x9b]);
        frame[50..54].fill(8);
        frame[54..62].copy_from_slice(&[0x30, 0, 0, 53, 0, 8, 9, 9]);
        let (six, tcp) = Plain6::of(&frame[14..]).unwrap();
        let place = (Place::default(), translator.keys().of6(&six));
        stage.has_turns = translator.keys().is_on();
        stage.plain.push(PlainRow::new(Plain::default(), place, 0, tcp, true));
        translator.set_rules(after);

        let (_, depot) = chunk::Region::new(64, chunk::HugePages::Off).unwrap();
        let mut pool = chunk::Pool::new(depot, 8);
        let mut packets = [Packet::copy_from(&mut pool, &frame).unwrap()];
        let mut out = Out {
            verdict: &mut [0],
            flags: &mut [flags::IPV6],
            l3: &mut [14],
            interface: &mut [0],
            dst4: &mut [0],
            src4: &mut [0],
            dst6: &mut [[0; 2]],
            src6: &mut [[0; 2]],
            nat: &mut [0],
            headers: None,
        };
        stage.translate_known(&mut out, &mut packets, &mut translator, 1);
        assert_eq!(packets[0].data(), &frame[..]);
        assert_eq!((stage.asked.len(), translator.counts().packets), (1, 0));
        packets.into_iter().for_each(|own| own.free(&mut pool));
    }
}
