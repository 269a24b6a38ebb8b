//! The same as the tables and the pipeline do, in the plainest way: one packet after the other, a walk over all flows, fields as a map,
//! and every checksum computed anew. Tests hold the fast way against it.
//!
//! It is right for whole packets with right checksums; meters and the controller's part are not in it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use openflow::{Action, Field, GroupType, PortNo};
use packet::IpProtocol;
use packet::checksum::{
    finish, internet_checksum, partial_sum, pseudo_header_v4, pseudo_header_v6,
};

use crate::action_set;
use crate::exact::is_exact;
use crate::flow::{Flow, Group};
use crate::run::flow_hash;
use crate::tables::Settings;

/// Fields of a packet with their values.
pub type Fields = BTreeMap<Field, u128>;

/// Where headers begin, in bytes from the start of the frame.
#[derive(Debug, Clone, Copy, Default)]
struct Spots {
    ethertype: u16,
    tagged: bool,
    l3: usize,
    /// The upper layer, and which it is; a fragment has none but for its first part.
    l4: Option<(u8, usize)>,
    end: usize,
    sll: Option<usize>,
    tll: Option<usize>,
    is_nd: bool,
    is_802_3: bool,
}

fn n(bytes: &[u8], at: usize, len: usize) -> u128 {
    bytes
        .get(at..at + len)
        .map_or(0, |own| own.iter().fold(0, |n, byte| n << 8 | u128::from(*byte)))
}

fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, 0x8100 | 0x88a8 | 0x9100)
}

/// Reads a frame into fields.
pub fn fields(frame: &[u8], in_port: PortNo) -> Fields {
    read(frame, in_port, 0).0
}

/// Flows have pushed tags before `covered` others: they are left out.
fn read(frame: &[u8], in_port: PortNo, covered: usize) -> (Fields, Spots) {
    let mut out = Fields::new();
    let mut spots = Spots::default();
    out.insert(Field::InPort, in_port.0.into());
    out.insert(Field::InPhyPort, in_port.0.into());
    out.insert(Field::VlanVid, 0);
    if frame.len() < 14 {
        out.extend([(Field::EthType, 0x05ff), (Field::EthDst, 0), (Field::EthSrc, 0)]);
        return (out, spots);
    }
    out.insert(Field::EthDst, n(frame, 0, 6));
    out.insert(Field::EthSrc, n(frame, 6, 6));
    let mut at = 12;
    if is_tag(n(frame, 12, 2) as u16) && frame.len() >= 18 {
        let tci = n(frame, 14, 2);
        out.insert(Field::VlanVid, tci & 0xfff | 0x1000);
        out.insert(Field::VlanPcp, tci >> 13);
        spots.tagged = true;
        at = 16;
        for _ in 0..covered {
            let is_there = is_tag(n(frame, at, 2) as u16) && frame.len() >= at + 6;
            at += if is_there { 4 } else { 0 };
        }
    }
    let mut ethertype = n(frame, at, 2) as u16;
    at += 2;
    if ethertype < 0x600 {
        spots.is_802_3 = true;
        let snap = n(frame, at, 6) == 0xaaaa_0300_0000 && n(frame, at + 6, 2) >= 0x600;
        ethertype = if snap { n(frame, at + 6, 2) as u16 } else { 0x05ff };
        at += if snap { 8 } else { 0 };
    }
    (spots.ethertype, spots.l3) = (ethertype, at);
    out.insert(Field::EthType, ethertype.into());
    let rest = frame.len() - at;
    // Where a header is cut or contradicts itself, its fields are zero.
    use Field as F;
    let own: &[Field] = match ethertype {
        0x0800 => &[F::IpDscp, F::IpEcn, F::IpProto, F::Ipv4Src, F::Ipv4Dst],
        0x86dd => {
            &[F::IpDscp, F::IpEcn, F::IpProto, F::Ipv6Src, F::Ipv6Dst, F::Ipv6Flabel, F::Ipv6Exthdr]
        }
        0x0806 => &[F::ArpOp, F::ArpSpa, F::ArpTpa, F::ArpSha, F::ArpTha],
        0x8847 | 0x8848 => &[F::MplsLabel, F::MplsTc, F::MplsBos],
        0x88e7 => &[F::PbbIsid],
        _ => &[],
    };
    out.extend(own.iter().map(|field| (*field, 0)));
    match ethertype {
        0x0800 => read_v4(frame, rest, &mut out, &mut spots),
        0x86dd => read_v6(frame, rest, &mut out, &mut spots),
        0x0806 if rest >= 28 && n(frame, at, 6) == 0x0001_0800_0604 => {
            out.insert(Field::ArpOp, n(frame, at + 6, 2));
            out.insert(Field::ArpSha, n(frame, at + 8, 6));
            out.insert(Field::ArpSpa, n(frame, at + 14, 4));
            out.insert(Field::ArpTha, n(frame, at + 18, 6));
            out.insert(Field::ArpTpa, n(frame, at + 24, 4));
        }
        0x8847 | 0x8848 if rest >= 4 => {
            let entry = n(frame, at, 4);
            out.insert(Field::MplsLabel, entry >> 12);
            out.insert(Field::MplsTc, entry >> 9 & 7);
            out.insert(Field::MplsBos, entry >> 8 & 1);
        }
        0x88e7 if rest >= 4 => drop(out.insert(Field::PbbIsid, n(frame, at + 1, 3))),
        _ => {}
    }
    (out, spots)
}

fn read_v4(frame: &[u8], rest: usize, out: &mut Fields, spots: &mut Spots) {
    let at = spots.l3;
    let (header, total) = (n(frame, at, 1) as usize & 0xf, n(frame, at + 2, 2) as usize);
    let header = header * 4;
    if rest < 20 || n(frame, at, 1) >> 4 != 4 || header < 20 || header > total || total > rest {
        return;
    }
    read_class(out, n(frame, at + 1, 1));
    let protocol = n(frame, at + 9, 1);
    out.insert(Field::IpProto, protocol);
    out.insert(Field::Ipv4Src, n(frame, at + 12, 4));
    out.insert(Field::Ipv4Dst, n(frame, at + 16, 4));
    let is_first = n(frame, at + 6, 2) & 0x1fff == 0;
    read_l4(frame, protocol as u8, (at + header, at + total), is_first, false, out, spots);
}

fn read_class(out: &mut Fields, class: u128) {
    out.insert(Field::IpDscp, class >> 2);
    out.insert(Field::IpEcn, class & 3);
}

fn read_v6(frame: &[u8], rest: usize, out: &mut Fields, spots: &mut Spots) {
    let at = spots.l3;
    let total = n(frame, at + 4, 2) as usize + 40;
    if rest < 40 || n(frame, at, 1) >> 4 != 6 || total > rest {
        return;
    }
    read_class(out, n(frame, at, 2) >> 4 & 0xff);
    out.insert(Field::Ipv6Flabel, n(frame, at, 4) & 0xf_ffff);
    out.insert(Field::Ipv6Src, n(frame, at + 8, 16));
    out.insert(Field::Ipv6Dst, n(frame, at + 24, 16));
    let (mut protocol, mut behind, mut bits, mut is_first) =
        (n(frame, at + 6, 1), at + 40, 0, true);
    // Extension headers in the order of RFC 8200: the generator of the tests makes no other.
    while let Some((bit, len)) = match protocol {
        0 => Some((1 << 6, (n(frame, behind + 1, 1) as usize + 1) * 8)),
        60 => Some((1 << 3, (n(frame, behind + 1, 1) as usize + 1) * 8)),
        43 => Some((1 << 5, (n(frame, behind + 1, 1) as usize + 1) * 8)),
        44 => Some((1 << 4, 8)),
        51 => Some((1 << 2, (n(frame, behind + 1, 1) as usize + 2) * 4)),
        _ => None,
    } {
        if behind + len > at + total {
            break;
        }
        bits |= bit;
        is_first &= protocol != 44 || n(frame, behind + 2, 2) & 0xfff8 == 0;
        protocol = n(frame, behind, 1);
        behind += len;
        if !is_first {
            break;
        }
    }
    bits |= u128::from(protocol == 59) | u128::from(protocol == 50) << 1;
    out.insert(Field::IpProto, protocol);
    out.insert(Field::Ipv6Exthdr, bits);
    read_l4(frame, protocol as u8, (behind, at + total), is_first, true, out, spots);
}

fn read_l4(
    frame: &[u8],
    protocol: u8,
    (at, end): (usize, usize),
    is_first: bool,
    is_v6: bool,
    out: &mut Fields,
    spots: &mut Spots,
) {
    spots.end = end;
    let (fields, header) = match protocol {
        6 => ([Field::TcpSrc, Field::TcpDst], 20),
        17 => ([Field::UdpSrc, Field::UdpDst], 8),
        132 => ([Field::SctpSrc, Field::SctpDst], 12),
        1 if !is_v6 => ([Field::Icmpv4Type, Field::Icmpv4Code], 8),
        58 if is_v6 => ([Field::Icmpv6Type, Field::Icmpv6Code], 4),
        _ => return,
    };
    // Without the header, of a later fragment, the fields are there and zero.
    if !is_first || at + header > end {
        out.extend(fields.map(|field| (field, 0)));
        return;
    }
    spots.l4 = Some((protocol, at));
    let size = u16::from(fields[0].bits() == 16) as usize + 1;
    out.insert(fields[0], n(frame, at, size));
    out.insert(fields[1], n(frame, at + size, size));
    let kind = n(frame, at, 1);
    if protocol != 58 || !matches!(kind, 135 | 136) {
        return;
    }
    // A message of neighbour discovery: its fields are there, whatever they hold.
    let own = if kind == 135 { Field::Ipv6NdSll } else { Field::Ipv6NdTll };
    out.extend([(Field::Ipv6NdTarget, 0), (own, 0)]);
    if n(frame, at + 1, 1) != 0 || at + 24 > end {
        return;
    }
    let (mut option, mut found) = (at + 24, [None; 2]);
    while option + 8 <= end {
        let (own, len) = (n(frame, option, 1), n(frame, option + 1, 1) as usize * 8);
        if len == 0 || option + len > end {
            break;
        }
        if matches!(own, 1 | 2) && len == 8 {
            if found[own as usize - 1].is_some() {
                return;
            }
            // No address is as good as none.
            found[own as usize - 1] = Some(option + 2).filter(|at| n(frame, *at, 6) != 0);
        }
        option += len;
    }
    let found = found[kind as usize - 135];
    spots.is_nd = true;
    out.insert(Field::Ipv6NdTarget, n(frame, at + 8, 16));
    if let Some(at) = found {
        out.insert(own, n(frame, at, 6));
        *(if kind == 135 { &mut spots.sll } else { &mut spots.tll }) = Some(at);
    }
}

/// The flow of a table that takes a packet: of the highest priority, then of the lowest number; in 1.0 an exact one first.
pub fn look_up<'a>(
    flows: &'a [Arc<Flow>],
    settings: Settings,
    table: u8,
    fields: &Fields,
) -> Option<&'a Arc<Flow>> {
    let takes = |flow: &&Arc<Flow>| {
        let mut wanted = flow.matches.fields().iter();
        flow.table == table
            && wanted.all(|f| fields.get(&f.field).is_some_and(|own| own & f.mask == f.value))
    };
    let rank = |flow: &&Arc<Flow>| {
        let exact = settings.exact_wins && is_exact(&flow.words);
        (!exact, u16::MAX - flow.priority, flow.id)
    };
    flows.iter().filter(takes).min_by_key(rank)
}

/// A switch that walks over everything.
#[derive(Debug, Default)]
pub struct Switch {
    /// Its flows.
    pub flows: Vec<Arc<Flow>>,
    /// Its groups.
    pub groups: BTreeMap<u32, Arc<Group>>,
    /// Its ports; all of them are up.
    pub ports: Vec<PortNo>,
}

/// What is known of a packet under way.
#[derive(Clone)]
struct Packet {
    frame: Vec<u8>,
    in_port: PortNo,
    metadata: u128,
    tunnel: u128,
    /// Tags before which flows have pushed others.
    covered: usize,
    is_over: bool,
}

impl Switch {
    /// What a packet becomes, and by which ports it leaves; and the flows that took it, by number.
    pub fn process(
        &self,
        settings: Settings,
        frame: &[u8],
        in_port: PortNo,
    ) -> (Vec<(PortNo, Vec<u8>)>, Vec<u32>) {
        let (mut out, mut taken) = (Vec::new(), Vec::new());
        let frame = frame.to_vec();
        let mut packet =
            Packet { frame, in_port, metadata: 0, tunnel: 0, covered: 0, is_over: false };
        let mut set: Vec<Action> = Vec::new();
        let mut table = 0;
        loop {
            let mut fields = read(&packet.frame, in_port, packet.covered).0;
            fields.insert(Field::Metadata, packet.metadata);
            fields.insert(Field::TunnelId, packet.tunnel);
            let Some(flow) = look_up(&self.flows, settings, table, &fields) else {
                if settings.miss_len.is_some() {
                    out.push((PortNo::CONTROLLER, packet.frame));
                }
                return (out, taken);
            };
            taken.push(flow.id);
            let steps = &flow.steps;
            self.actions(&mut packet, &steps.apply, &mut out);
            if packet.is_over {
                return (out, taken);
            }
            if steps.clear {
                set.clear();
            }
            set.extend(steps.write.iter().cloned());
            if let Some((value, mask)) = steps.metadata {
                packet.metadata = packet.metadata & !u128::from(mask) | u128::from(value & mask);
            }
            match steps.goto {
                Some(next) => table = next,
                None => break,
            }
        }
        self.actions(&mut packet, &action_set::ordered(&set), &mut out);
        (out, taken)
    }

    fn actions(&self, packet: &mut Packet, actions: &[Action], out: &mut Vec<(PortNo, Vec<u8>)>) {
        for action in actions {
            if packet.is_over {
                return;
            }
            match action {
                Action::Output { port, .. } => {
                    let others = self.ports.iter().filter(|own| **own != packet.in_port);
                    let to: Vec<PortNo> = match *port {
                        PortNo::FLOOD | PortNo::ALL => others.copied().collect(),
                        PortNo::IN_PORT => vec![packet.in_port],
                        PortNo::CONTROLLER | PortNo::NORMAL => vec![*port],
                        port => others.copied().filter(|own| *own == port).collect(),
                    };
                    out.extend(to.into_iter().map(|port| (port, packet.frame.clone())));
                }
                Action::Group(number) => {
                    if let Some(group) = self.groups.get(number) {
                        for bucket in self.buckets(group, packet) {
                            self.actions(&mut packet.clone(), &group.ordered[bucket], out);
                        }
                    }
                }
                Action::SetField(Field::Metadata, value) => packet.metadata = *value,
                Action::SetField(Field::TunnelId, value) => packet.tunnel = *value,
                Action::SetField(field, value) => {
                    set(&mut packet.frame, packet.covered, *field, *value);
                    fix(&mut packet.frame, packet.covered);
                }
                action => {
                    let covered = packet.covered;
                    match action {
                        Action::PushVlan(_) if read(&packet.frame, PortNo(0), 0).1.tagged => {
                            packet.covered += 1;
                        }
                        Action::PopVlan => packet.covered = covered.saturating_sub(1),
                        _ => {}
                    }
                    if !change(&mut packet.frame, covered, action) {
                        packet.is_over = true;
                        out.push((PortNo::CONTROLLER, packet.frame.clone()));
                    }
                    fix(&mut packet.frame, packet.covered);
                }
            }
        }
    }

    fn buckets(&self, group: &Group, packet: &Packet) -> Vec<usize> {
        let all = 0..group.buckets.len();
        match group.kind {
            GroupType::All => all.collect(),
            GroupType::Indirect | GroupType::FastFailover => all.take(1).collect(),
            GroupType::Select => {
                let weights = all.flat_map(|bucket| {
                    std::iter::repeat_n(bucket, group.buckets[bucket].weight.into())
                });
                let places: Vec<usize> = weights.collect();
                let mut key = crate::Key::default();
                let (frame, len) = (&packet.frame, packet.frame.len());
                let (port, covered) = (packet.in_port.0, packet.covered as u8);
                crate::headers::read_behind(frame, len, port, &mut key, covered);
                let at = chunk::hash::to_range(flow_hash(&key), places.len() as u32);
                places.get(at as usize).copied().into_iter().collect()
            }
        }
    }
}

fn put(frame: &mut [u8], at: usize, len: usize, value: u128) {
    if let Some(own) = frame.get_mut(at..at + len) {
        own.copy_from_slice(&value.to_be_bytes()[16 - len..]);
    }
}

/// Replaces bits of a number of `len` bytes.
fn mix(frame: &mut [u8], at: usize, len: usize, mask: u128, value: u128) {
    let old = n(frame, at, len);
    put(frame, at, len, old & !mask | value & mask);
}

fn set(frame: &mut [u8], covered: usize, field: Field, value: u128) {
    let (fields, spots) = read(frame, PortNo(0), covered);
    if !fields.contains_key(&field) {
        return;
    }
    let at = spots.l3;
    let is_v4 = spots.ethertype == 0x0800;
    let l4 = spots.l4.map(|(_, l4)| l4);
    match (field, l4) {
        (Field::EthDst, _) => put(frame, 0, 6, value),
        (Field::EthSrc, _) => put(frame, 6, 6, value),
        (Field::VlanVid, _) if spots.tagged => mix(frame, 14, 2, 0xfff, value),
        (Field::VlanPcp, _) => mix(frame, 14, 2, 0xe000, value << 13),
        (Field::IpDscp, _) if is_v4 => mix(frame, at + 1, 1, 0xfc, value << 2),
        (Field::IpDscp, _) => mix(frame, at, 2, 0xfc0, value << 6),
        (Field::IpEcn, _) if is_v4 => mix(frame, at + 1, 1, 3, value),
        (Field::IpEcn, _) => mix(frame, at, 2, 0x30, value << 4),
        (Field::Ipv4Src, _) => put(frame, at + 12, 4, value),
        (Field::Ipv4Dst, _) => put(frame, at + 16, 4, value),
        (Field::Ipv6Src, _) => put(frame, at + 8, 16, value),
        (Field::Ipv6Dst, _) => put(frame, at + 24, 16, value),
        (Field::Ipv6Flabel, _) => mix(frame, at, 4, 0xf_ffff, value),
        (Field::TcpSrc | Field::UdpSrc | Field::SctpSrc, Some(l4)) => put(frame, l4, 2, value),
        (Field::TcpDst | Field::UdpDst | Field::SctpDst, Some(l4)) => put(frame, l4 + 2, 2, value),
        (Field::Icmpv4Type | Field::Icmpv6Type, Some(l4)) => put(frame, l4, 1, value),
        (Field::Icmpv4Code | Field::Icmpv6Code, Some(l4)) => put(frame, l4 + 1, 1, value),
        (Field::Ipv6NdTarget, Some(l4)) if spots.is_nd => put(frame, l4 + 8, 16, value),
        (Field::Ipv6NdSll, _) => spots.sll.iter().for_each(|at| put(frame, *at, 6, value)),
        (Field::Ipv6NdTll, _) => spots.tll.iter().for_each(|at| put(frame, *at, 6, value)),
        (Field::ArpOp, _) => put(frame, at + 6, 2, value),
        (Field::ArpSha, _) => put(frame, at + 8, 6, value),
        (Field::ArpSpa, _) => put(frame, at + 14, 4, value),
        (Field::ArpTha, _) => put(frame, at + 18, 6, value),
        (Field::ArpTpa, _) => put(frame, at + 24, 4, value),
        (Field::MplsLabel, _) => mix(frame, at, 4, 0xffff_f000, value << 12),
        (Field::MplsTc, _) => mix(frame, at, 4, 0xe00, value << 9),
        (Field::PbbIsid, _) => put(frame, at + 1, 3, value),
        _ => {}
    }
}

/// Tags and TTLs; `false` if a TTL ended.
fn change(frame: &mut Vec<u8>, covered: usize, action: &Action) -> bool {
    let (_, spots) = read(frame, PortNo(0), covered);
    let at = spots.l3;
    let is_mpls = matches!(spots.ethertype, 0x8847 | 0x8848);
    let ttl = match spots.ethertype {
        0x0800 if n(frame, at, 1) >> 4 == 4 => Some(at + 8),
        0x86dd if n(frame, at, 1) >> 4 == 6 => Some(at + 7),
        _ => None,
    };
    match action {
        Action::PushVlan(tpid) => {
            let tci = if spots.tagged { n(frame, 14, 2) & 0xefff } else { 0 };
            frame.splice(12..12, [0; 4]);
            put(frame, 12, 2, (*tpid).into());
            put(frame, 14, 2, tci);
        }
        Action::PopVlan if spots.tagged => drop(frame.drain(12..16)),
        // A label stack comes behind an EtherType.
        Action::PushMpls(ethertype) if !spots.is_802_3 => {
            let entry = match is_mpls {
                true => n(frame, at, 4) & !0x100,
                false => 0x100 | ttl.map_or(0, |ttl| n(frame, ttl, 1)),
            };
            put(frame, at - 2, 2, (*ethertype).into());
            frame.splice(at..at, [0; 4]);
            put(frame, at, 4, entry);
        }
        Action::PopMpls(ethertype) if is_mpls && !spots.is_802_3 => {
            put(frame, at - 2, 2, (*ethertype).into());
            frame.drain(at..at + 4);
        }
        Action::SetMplsTtl(ttl) if is_mpls => put(frame, at + 3, 1, (*ttl).into()),
        Action::DecMplsTtl if is_mpls => match n(frame, at + 3, 1) {
            0 | 1 => return false,
            ttl => put(frame, at + 3, 1, ttl - 1),
        },
        Action::SetNwTtl(value) => ttl.iter().for_each(|at| put(frame, *at, 1, (*value).into())),
        Action::DecNwTtl => match ttl.map(|at| (at, n(frame, at, 1))) {
            Some((_, 0 | 1)) => return false,
            Some((at, ttl)) => put(frame, at, 1, ttl - 1),
            None => {}
        },
        _ => {}
    }
    true
}

/// Computes all checksums of a packet.
fn fix(frame: &mut [u8], covered: usize) {
    let (fields, spots) = read(frame, PortNo(0), covered);
    let at = spots.l3;
    if fields.contains_key(&Field::Ipv4Src) {
        put(frame, at + 10, 2, 0);
        let header = (n(frame, at, 1) as usize & 0xf) * 4;
        let sum = internet_checksum(&frame[at..at + header]);
        put(frame, at + 10, 2, sum.into());
    }
    let Some((protocol, l4)) = spots.l4 else { return };
    let len = spots.end - l4;
    let get = |field: Field| fields.get(&field).copied();
    let pseudo = match (get(Field::Ipv4Src), get(Field::Ipv4Dst)) {
        (Some(src), Some(dst)) => {
            let [src, dst] = [src, dst].map(|address| Ipv4Addr::from_bits(address as u32));
            pseudo_header_v4(src, dst, IpProtocol(protocol), len as u16)
        }
        _ => {
            let [src, dst] = [Field::Ipv6Src, Field::Ipv6Dst].map(|f| get(f).unwrap_or(0));
            let [src, dst] = [src, dst].map(Ipv6Addr::from_bits);
            pseudo_header_v6(src, dst, IpProtocol(protocol), len as u32)
        }
    };
    let place = match protocol {
        6 => l4 + 16,
        17 => l4 + 6,
        132 => l4 + 8,
        _ => l4 + 2,
    };
    if protocol == 132 {
        let sum = packet::sctp::checksum(&frame[l4..spots.end]);
        return put(frame, place, 4, sum.swap_bytes().into());
    }
    if protocol == 17 && n(frame, place, 2) == 0 {
        return;
    }
    put(frame, place, 2, 0);
    let sum = partial_sum(&frame[l4..spots.end]);
    let sum = finish(if protocol == 1 { sum } else { sum + pseudo });
    put(frame, place, 2, if protocol == 17 && sum == 0 { 0xffff } else { sum.into() });
}
