//! Random packets and flows over few values, so that they meet.

use openflow::flow::{ANY_GROUP, FlowCommand, FlowMod};
use openflow::group::{Bucket, GroupMod, GroupType, TableCommand};
use openflow::{Action, Field, FlowFlags, Instruction, Match, PortNo};
use packet::IpProtocol;
use packet::checksum::{
    finish, internet_checksum, partial_sum, pseudo_header_v4, pseudo_header_v6,
};

use crate::random::Random;

const MACS: [u64; 4] = [0x0200_0000_0001, 0x0200_0000_0102, 0x0300_0000_0001, 0xffff_ffff_ffff];
const V4: [u32; 4] = [0x0a00_0001, 0x0a00_0102, 0x0a01_0001, 0xc0a8_0001];
const V6: [u128; 3] = [0x2001_0db8 << 96 | 1, 0x2001_0db8 << 96 | 2, 0xfe80 << 112 | 7];
const PORTS: [u16; 4] = [80, 443, 0, 0x1234];
const VLANS: [u16; 3] = [0, 7, 100];

fn push(out: &mut Vec<u8>, value: u128, bytes: usize) {
    out.extend(&value.to_be_bytes()[16 - bytes..]);
}

/// A frame with right checksums; sometimes cut, padded, or with a byte changed if `broken`.
pub fn frame(random: &mut Random, broken: bool) -> Vec<u8> {
    let mut out = Vec::new();
    push(&mut out, random.of(&MACS).into(), 6);
    push(&mut out, random.of(&MACS[..3]).into(), 6);
    if random.one_in(3) {
        push(&mut out, random.of(&[0x8100, 0x88a8]), 2);
        let tci = random.of(&[0u16, 3, 5]) << 13 | random.of(&VLANS);
        push(&mut out, tci.into(), 2);
    }
    let kind = random.below(10);
    match kind {
        0..4 => {
            push(&mut out, 0x0800, 2);
            let packet = ipv4(random, broken);
            out.extend(packet);
        }
        4..7 => {
            push(&mut out, 0x86dd, 2);
            let packet = ipv6(random, broken);
            out.extend(packet);
        }
        7 => {
            push(&mut out, 0x0806, 2);
            push(&mut out, 0x0001_0800_0604, 6);
            push(&mut out, random.of(&[1, 2]), 2);
            for _ in 0..2 {
                push(&mut out, random.of(&MACS).into(), 6);
                push(&mut out, random.of(&V4).into(), 4);
            }
        }
        8 => {
            push(&mut out, random.of(&[0x8847, 0x8848]), 2);
            let more = random.one_in(2);
            for bottom in if more { vec![0, 1] } else { vec![1] } {
                let label = random.of(&[16u128, 17, 100]);
                let entry = label << 12 | random.of(&[0, 3 << 9]) | bottom << 8;
                push(&mut out, entry | random.of(&[0, 1, 2, 64]), 4);
            }
            let packet = ipv4(random, broken);
            out.extend(packet);
        }
        _ => match random.below(3) {
            0 => {
                push(&mut out, 0x88e7, 2);
                push(&mut out, random.of(&[1, 2, 0x12_3456]), 4);
                out.extend([2; 60]);
            }
            1 => {
                push(&mut out, 46, 2);
                push(&mut out, random.of(&[0xaaaa_0300_0000_88cc, 0x4242_0300_0000_0000]), 8);
                out.extend([0; 38]);
            }
            _ => {
                push(&mut out, random.of(&[0x88cc, 0x1234]), 2);
                out.extend([0; 46]);
            }
        },
    }
    if random.one_in(4) {
        out.extend(vec![0; random.below(10)]);
    }
    if broken && random.one_in(3) {
        match random.below(2) {
            0 => out.truncate(random.below(out.len() + 1)),
            _ => {
                let at = random.below(out.len());
                out[at] = random.next() as u8;
            }
        }
    }
    out
}

fn ipv4(random: &mut Random, broken: bool) -> Vec<u8> {
    let (src, dst) = (random.of(&V4), random.of(&V4));
    let protocol = random.of(&[6u8, 17, 132, 1, 89]);
    let pseudo =
        |len: usize| pseudo_header_v4(src.into(), dst.into(), IpProtocol(protocol), len as u16);
    let upper = upper(random, protocol, &pseudo);
    let options = if random.one_in(5) { 4 } else { 0 };
    let fragment =
        if broken && random.one_in(5) { random.of(&[0x2000, 0x00b9, 0x20b9]) } else { 0x4000 };
    let mut out = vec![0x45 + options / 4, random.of(&[0, 0x48, 0x4b, 0xb9])];
    push(&mut out, (20 + usize::from(options) + upper.len()) as u128, 2);
    push(&mut out, 7, 2);
    push(&mut out, fragment, 2);
    out.extend([random.of(&[0, 1, 2, 64, 255]), protocol, 0, 0]);
    push(&mut out, src.into(), 4);
    push(&mut out, dst.into(), 4);
    out.extend(vec![1; options.into()]);
    let sum = internet_checksum(&out);
    out[10..12].copy_from_slice(&sum.to_be_bytes());
    out.extend(upper);
    out
}

fn ipv6(random: &mut Random, broken: bool) -> Vec<u8> {
    let (src, dst) = (random.of(&V6), random.of(&V6));
    let protocol = random.of(&[6u8, 17, 132, 58, 58, 59, 50]);
    let pseudo =
        |len: usize| pseudo_header_v6(src.into(), dst.into(), IpProtocol(protocol), len as u32);
    let upper = upper(random, protocol, &pseudo);
    let mut chain = Vec::new();
    for kind in [0u8, 60, 51] {
        if random.one_in(8) {
            chain.push(kind);
        }
    }
    if broken && random.one_in(6) {
        chain.push(44);
    }
    chain.sort_by_key(|kind| [0, 60, 44, 51].iter().position(|own| own == kind));
    let mut body = Vec::new();
    for (at, kind) in chain.iter().enumerate() {
        let next = chain.get(at + 1).copied().unwrap_or(protocol);
        match kind {
            51 => body.extend([next, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]),
            44 => body.extend([next, 0, 0, random.of(&[0, 1, 8]), 0, 0, 0, 9]),
            _ => body.extend([next, 0, 1, 4, 0, 0, 0, 0]),
        }
    }
    let class = random.of(&[0u128, 0x48, 0x4b]);
    let mut out = Vec::new();
    push(&mut out, 6 << 28 | class << 20 | random.of(&[0, 0x12345]), 4);
    push(&mut out, (body.len() + upper.len()) as u128, 2);
    out.extend([chain.first().copied().unwrap_or(protocol), random.of(&[0, 1, 2, 64])]);
    push(&mut out, src, 16);
    push(&mut out, dst, 16);
    out.extend(body);
    out.extend(upper);
    out
}

fn upper(random: &mut Random, protocol: u8, pseudo: &dyn Fn(usize) -> u32) -> Vec<u8> {
    let mut out = Vec::new();
    let payload: Vec<u8> = (0..random.below(30)).map(|_| random.next() as u8).collect();
    let mut ports = |out: &mut Vec<u8>| {
        push(out, random.of(&PORTS).into(), 2);
        push(out, random.of(&PORTS).into(), 2);
    };
    let (at, with_pseudo) = match protocol {
        6 => {
            ports(&mut out);
            out.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
            (16, true)
        }
        17 => {
            ports(&mut out);
            push(&mut out, 8 + payload.len() as u128, 2);
            out.extend([0; 2]);
            (6, true)
        }
        132 => {
            ports(&mut out);
            out.extend([0; 8]);
            out.extend(payload);
            let sum = packet::sctp::checksum(&out);
            out[8..12].copy_from_slice(&sum.to_le_bytes());
            return out;
        }
        1 => {
            out.extend([random.of(&[0, 3, 8]), random.of(&[0, 1]), 0, 0, 0, 1, 0, 1]);
            (2, false)
        }
        58 => {
            let kind = random.of(&[128u8, 135, 136]);
            out.extend([kind, random.of(&[0, 0, 0, 1]), 0, 0, 0, 0, 0, 0]);
            if kind != 128 {
                push(&mut out, random.of(&V6), 16);
                for _ in 0..random.of(&[0, 1, 1, 2]) {
                    out.extend([random.of(&[1, 2]), 1]);
                    push(&mut out, random.of(&MACS).into(), 6);
                }
            }
            if kind == 128 {
                out.extend(&payload);
            }
            let sum = finish(pseudo(out.len()) + partial_sum(&out));
            out[2..4].copy_from_slice(&sum.to_be_bytes());
            return out;
        }
        _ => return vec![9; 12],
    };
    out.extend(payload);
    // Not every datagram has a checksum.
    if protocol != 17 || !random.one_in(4) {
        let sum = partial_sum(&out) + if with_pseudo { pseudo(out.len()) } else { 0 };
        let sum = finish(sum);
        let sum = if protocol == 17 && sum == 0 { 0xffff } else { sum };
        out[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    out
}

/// A value that packets have, and sometimes one that they do not.
pub fn value(random: &mut Random, field: Field) -> u128 {
    match field {
        Field::InPort | Field::InPhyPort => random.of(&[1, 1, 2]),
        Field::Metadata | Field::TunnelId => random.of(&[0, 1, 0xff00]),
        Field::VlanVid => random.of(&[0, 0x1000, 0x1007, 0x1064]),
        Field::VlanPcp => random.of(&[0, 3, 5]),
        Field::IpDscp => random.of(&[0, 18, 46]),
        Field::IpEcn => random.of(&[0, 3, 1]),
        Field::Ipv6Flabel => random.of(&[0, 0x12345]),
        Field::Icmpv4Type => random.of(&[0, 3, 8]),
        Field::Icmpv6Type => random.of(&[128, 135, 136]),
        Field::Icmpv4Code | Field::Icmpv6Code => random.of(&[0, 1]),
        Field::ArpOp => random.of(&[1, 2]),
        Field::MplsLabel => random.of(&[16, 17, 100]),
        Field::MplsTc => random.of(&[0, 3]),
        Field::MplsBos => random.of(&[0, 1]),
        Field::PbbIsid => random.of(&[1, 2, 0x12_3456]),
        Field::Ipv6Exthdr => random.of(&[0, 64, 8, 4, 68, 1]),
        field => match field.bits() {
            48 => random.of(&MACS).into(),
            32 => random.of(&V4).into(),
            128 => random.of(&V6),
            16 => random.of(&PORTS).into(),
            _ => 0,
        },
    }
}

fn mask(random: &mut Random, field: Field) -> u128 {
    if !field.is_maskable() || !random.one_in(3) {
        return field.full();
    }
    match random.below(3) {
        0 => field.full() & !(field.full() >> random.below(field.bits() as usize)),
        1 => 0xff,
        _ => u128::from(random.next()) << 64 | u128::from(random.next()),
    }
}

/// What a match says first, and the fields that packets have then.
type Shape = (Vec<(Field, u128)>, Vec<Field>);

/// All of them.
fn kinds() -> Vec<Shape> {
    use Field as F;
    let link = [F::InPort, F::EthDst, F::EthSrc, F::VlanVid, F::Metadata, F::TunnelId];
    let with = |first: &[(Field, u128)], more: &[Field]| {
        (first.to_vec(), link.iter().chain(more).copied().collect::<Vec<_>>())
    };
    let v4 = [F::IpDscp, F::IpEcn, F::Ipv4Src, F::Ipv4Dst];
    let v6 = [F::IpDscp, F::IpEcn, F::Ipv6Src, F::Ipv6Dst, F::Ipv6Flabel, F::Ipv6Exthdr];
    let mut all = vec![
        with(&[], &[]),
        with(&[(F::EthType, 0x88cc)], &[]),
        with(&[(F::EthType, 0x0800)], &v4),
        with(&[(F::EthType, 0x86dd)], &v6),
        with(&[(F::EthType, 0x0806)], &[F::ArpOp, F::ArpSpa, F::ArpTpa, F::ArpSha, F::ArpTha]),
        with(&[(F::EthType, 0x8847)], &[F::MplsLabel, F::MplsTc, F::MplsBos]),
        with(&[(F::EthType, 0x88e7)], &[F::PbbIsid]),
    ];
    let uppers: [(u128, &[Field]); 5] = [
        (6, &[F::TcpSrc, F::TcpDst]),
        (17, &[F::UdpSrc, F::UdpDst]),
        (132, &[F::SctpSrc, F::SctpDst]),
        (1, &[F::Icmpv4Type, F::Icmpv4Code]),
        (58, &[F::Icmpv6Code]),
    ];
    for (protocol, fields) in uppers {
        if protocol != 58 {
            let more: Vec<Field> = v4.iter().chain(fields).copied().collect();
            all.push(with(&[(F::EthType, 0x0800), (F::IpProto, protocol)], &more));
        }
        if protocol != 1 {
            let more: Vec<Field> = v6.iter().chain(fields).copied().collect();
            all.push(with(&[(F::EthType, 0x86dd), (F::IpProto, protocol)], &more));
        }
    }
    for (kind, own) in [(135, F::Ipv6NdSll), (136, F::Ipv6NdTll)] {
        let first = [(F::EthType, 0x86dd), (F::IpProto, 58), (F::Icmpv6Type, kind)];
        all.push(with(&first, &[F::Ipv6Src, F::Ipv6NdTarget, own]));
    }
    all
}

pub fn matches(random: &mut Random) -> Match {
    let (first, fields) = random.of(&kinds());
    let mut out = Match::new();
    first.into_iter().for_each(|(field, value)| out.set(field, value, field.full()));
    // Some flows say everything.
    let often = random.of(&[1, 2, 4]);
    for field in fields {
        if random.one_in(often) {
            let (value, mask) = (value(random, field), mask(random, field));
            out.set(field, value, mask);
        }
    }
    if out.provides(Field::VlanPcp) && random.one_in(2) {
        out.set(Field::VlanPcp, random.of(&[0, 3, 5]), 7);
    }
    out
}

/// An action on packets that match.
fn action(random: &mut Random, matches: &Match, groups: u32) -> Action {
    match random.below(12) {
        0..4 => Action::output(random.of(&[
            PortNo(1),
            PortNo(2),
            PortNo(3),
            PortNo(9),
            PortNo::IN_PORT,
            PortNo::FLOOD,
            PortNo::ALL,
            PortNo::CONTROLLER,
            PortNo::NORMAL,
        ])),
        4..8 => {
            // What a frame is stays: the reference computes checksums by what it has become.
            let fixed = [
                Field::EthType,
                Field::IpProto,
                Field::InPort,
                Field::InPhyPort,
                Field::Icmpv6Type,
                Field::Ipv6Exthdr,
                Field::MplsBos,
                Field::VlanPcp,
            ];
            let fields = Field::ALL.iter().filter(|field| !fixed.contains(field));
            let fields: Vec<Field> =
                fields.filter(|field| matches.provides(**field)).copied().collect();
            let field = random.of(&fields);
            Action::SetField(field, value(random, field))
        }
        8 => Action::PushVlan(random.of(&[0x8100, 0x88a8])),
        9 => Action::PopVlan,
        10 if groups > 0 => Action::Group(random.below(groups as usize) as u32),
        10 => Action::DecNwTtl,
        _ => random.of(&[
            Action::DecNwTtl,
            Action::SetNwTtl(9),
            Action::DecMplsTtl,
            Action::SetMplsTtl(7),
            Action::PushMpls(0x8847),
            Action::SetQueue(3),
        ]),
    }
}

fn actions(random: &mut Random, matches: &Match, groups: u32) -> Vec<Action> {
    (0..random.below(5)).map(|_| action(random, matches, groups)).collect()
}

/// A group of actions that fit every packet.
pub fn group(random: &mut Random, number: u32) -> GroupMod {
    let kind = random.of(&[GroupType::All, GroupType::Select, GroupType::Indirect]);
    let count = if kind == GroupType::Indirect { 1 } else { random.below(4) };
    let bucket = |random: &mut Random| Bucket {
        weight: if kind == GroupType::Select { random.of(&[1, 2, 5]) } else { 0 },
        watch_port: PortNo::ANY,
        watch_group: ANY_GROUP,
        actions: actions(random, &Match::new(), number),
    };
    let buckets = (0..count).map(|_| bucket(random)).collect();
    GroupMod { command: TableCommand::Add, kind, group: number, buckets }
}

pub fn flow_mod(random: &mut Random, groups: u32) -> FlowMod {
    let command = match random.below(12) {
        0 => FlowCommand::Delete,
        1 => FlowCommand::DeleteStrict,
        2 => FlowCommand::Modify,
        3 => FlowCommand::ModifyStrict,
        _ => FlowCommand::Add,
    };
    let mut own = FlowMod::new(command);
    own.table = random.below(3) as u8;
    own.priority = random.of(&[0, 1, 100, 0x8000]);
    own.matches = matches(random);
    own.cookie = random.of(&[0, 1]);
    if random.one_in(6) {
        own.flags = FlowFlags::CHECK_OVERLAP;
    }
    if random.one_in(20) {
        own.matches = Match::new();
    }
    if random.one_in(3) {
        let write = actions(random, &own.matches, groups);
        own.instructions.push(Instruction::WriteActions(write));
    }
    if random.one_in(6) {
        own.instructions.push(Instruction::ClearActions);
    }
    if random.one_in(4) {
        let (value, mask) = (random.of(&[1, 0xff00]), random.of(&[u64::MAX, 0xff]));
        own.instructions.push(Instruction::WriteMetadata { value, mask });
    }
    if random.one_in(2) {
        own.instructions.push(Instruction::ApplyActions(actions(random, &own.matches, groups)));
    }
    if own.table < 2 && random.one_in(2) {
        own.instructions.push(Instruction::GotoTable(own.table + 1));
    }
    own
}

/// Whether an exact flow of 1.0 may give a field of a packet.
pub fn is_of_exact(field: Field) -> bool {
    use Field as F;
    let other = [F::InPhyPort, F::Ipv6Flabel, F::Ipv6Exthdr, F::IpEcn, F::Ipv6Src, F::Ipv6Dst];
    let more = [F::MplsLabel, F::MplsTc, F::MplsBos, F::PbbIsid, F::Ipv6NdTarget, F::Ipv6NdSll];
    let last = [F::Ipv6NdTll, F::ArpSha, F::ArpTha];
    !other.contains(&field) && !more.contains(&field) && !last.contains(&field)
}
