//! Matches of OpenFlow 1.0: twelve fields in 40 bytes with a word of wildcards (section 5.2.3).
//!
//! Fields that the header before them rules out are ignored, as the specification has it: ports without TCP, UDP or ICMP,
//! addresses without IPv4 or ARP. What is ignored or wildcarded is written as zero.

use super::Unencodable;
use super::bytes::{Put, Reader};
use crate::error::ErrorCode;
use crate::field::{Field, VLAN_PRESENT};
use crate::matches::Match;
use crate::port::PortNo;

const IN_PORT: u32 = 1;
const DL_VLAN: u32 = 1 << 1;
const DL_SRC: u32 = 1 << 2;
const DL_DST: u32 = 1 << 3;
const DL_TYPE: u32 = 1 << 4;
const NW_PROTO: u32 = 1 << 5;
const TP_SRC: u32 = 1 << 6;
const TP_DST: u32 = 1 << 7;
const NW_SRC_SHIFT: u32 = 8;
const NW_DST_SHIFT: u32 = 14;
const DL_VLAN_PCP: u32 = 1 << 20;
const NW_TOS: u32 = 1 << 21;

/// Every field is left open, in the form that Open vSwitch writes: 32 bits of both addresses.
pub(crate) const ALL: u32 = 0x0038_20ff | 32 << NW_DST_SHIFT;

/// `dl_vlan` of a packet without a tag.
const NO_VLAN: u16 = 0xffff;

pub(super) fn read_match(reader: &mut Reader<'_>) -> Result<Match, ErrorCode> {
    let wild = reader.u32()?;
    let is = |bit: u32| wild & bit == 0;
    let in_port = PortNo::from_v10(reader.u16()?);
    let (src, dst) = (reader.number(6)?, reader.number(6)?);
    let (vlan, pcp) = (reader.u16()?, reader.u8()?);
    reader.skip(1)?;
    let (ethertype, tos, proto) = (reader.u16()?, reader.u8()?, reader.u8()?);
    reader.skip(2)?;
    let (nw_src, nw_dst) = (reader.u32()?, reader.u32()?);
    let (tp_src, tp_dst) = (u128::from(reader.u16()?), u128::from(reader.u16()?));

    let mut m = Match::new();
    let mut exact = |field: Field, value: u128, is_there: bool| {
        if is_there {
            m.set(field, value, field.full());
        }
    };
    exact(Field::InPort, u128::from(in_port.0), is(IN_PORT));
    exact(Field::EthSrc, src, is(DL_SRC));
    exact(Field::EthDst, dst, is(DL_DST));
    let is_tagged = match (is(DL_VLAN), is(DL_VLAN_PCP)) {
        (true, _) if vlan == NO_VLAN => {
            m.set(Field::VlanVid, 0, Field::VlanVid.full());
            false
        }
        (true, _) => {
            m.set(Field::VlanVid, u128::from(vlan & 0xfff | VLAN_PRESENT), Field::VlanVid.full());
            true
        }
        (false, true) => {
            m.set(Field::VlanVid, u128::from(VLAN_PRESENT), u128::from(VLAN_PRESENT));
            true
        }
        (false, false) => false,
    };
    if is_tagged && is(DL_VLAN_PCP) {
        m.set(Field::VlanPcp, u128::from(pcp & 7), 7);
    }
    if !is(DL_TYPE) {
        return Ok(m);
    }
    m.set(Field::EthType, u128::from(ethertype), 0xffff);
    let (from, to) = match ethertype {
        0x0800 => (Field::Ipv4Src, Field::Ipv4Dst),
        0x0806 => (Field::ArpSpa, Field::ArpTpa),
        _ => return Ok(m),
    };
    if ethertype == 0x0800 && is(NW_TOS) {
        m.set(Field::IpDscp, u128::from(tos >> 2), 0x3f);
    }
    if is(NW_PROTO) {
        let field = if ethertype == 0x0800 { Field::IpProto } else { Field::ArpOp };
        m.set(field, u128::from(proto), field.full());
    }
    m.set(from, u128::from(nw_src), address_mask(wild >> NW_SRC_SHIFT));
    m.set(to, u128::from(nw_dst), address_mask(wild >> NW_DST_SHIFT));
    if ethertype == 0x0800
        && is(NW_PROTO)
        && let Some((from, to)) = transport(proto)
    {
        if is(TP_SRC) {
            m.set(from, tp_src, from.full());
        }
        if is(TP_DST) {
            m.set(to, tp_dst, to.full());
        }
    }
    Ok(m)
}

/// The mask of an address of which so many low bits are left open; 32 and more: all.
fn address_mask(wild_bits: u32) -> u128 {
    match wild_bits & 0x3f {
        bits if bits >= 32 => 0,
        bits => u128::from(u32::MAX << bits),
    }
}

fn transport(proto: u8) -> Option<(Field, Field)> {
    match proto {
        1 => Some((Field::Icmpv4Type, Field::Icmpv4Code)),
        6 => Some((Field::TcpSrc, Field::TcpDst)),
        17 => Some((Field::UdpSrc, Field::UdpDst)),
        132 => Some((Field::SctpSrc, Field::SctpDst)),
        _ => None,
    }
}

#[derive(Default)]
struct Wire {
    in_port: u16,
    addresses: [u128; 2],
    vlan: u16,
    pcp: u8,
    ethertype: u16,
    tos: u8,
    proto: u8,
    nw: [u32; 2],
    tp: [u16; 2],
}

/// # Errors
/// `Version` where 1.0 has no such field or mask.
pub(super) fn write_match(out: &mut Vec<u8>, matches: &Match) -> Result<(), Unencodable> {
    let mut wild = ALL;
    let mut wire = Wire::default();
    for f in matches.fields() {
        let low = f.value as u32;
        let mut masked = false;
        match f.field {
            Field::InPort => {
                wire.in_port = PortNo(low).to_v10().ok_or(Unencodable::Version)?;
                wild &= !IN_PORT;
            }
            Field::EthSrc => {
                wire.addresses[0] = f.value;
                wild &= !DL_SRC;
            }
            Field::EthDst => {
                wire.addresses[1] = f.value;
                wild &= !DL_DST;
            }
            Field::EthType => {
                wire.ethertype = low as u16;
                wild &= !DL_TYPE;
            }
            Field::VlanVid if f.is_exact() => {
                let is_tagged = low as u16 & VLAN_PRESENT != 0;
                wire.vlan = if is_tagged { low as u16 & 0xfff } else { NO_VLAN };
                wild &= !DL_VLAN;
            }
            // A tag of any identifier: 1.0 says it by the priority alone.
            Field::VlanVid => {
                let present = u128::from(VLAN_PRESENT);
                let says = f.mask == present && f.value == present;
                masked = says && matches.get(Field::VlanPcp).is_some();
            }
            Field::VlanPcp => {
                wire.pcp = low as u8;
                wild &= !DL_VLAN_PCP;
            }
            Field::IpDscp => {
                wire.tos = (low as u8) << 2;
                wild &= !NW_TOS;
            }
            Field::IpProto => {
                wire.proto = low as u8;
                wild &= !NW_PROTO;
            }
            Field::ArpOp => {
                wire.proto = u8::try_from(low).map_err(|_| Unencodable::Version)?;
                wild &= !NW_PROTO;
            }
            Field::Ipv4Src | Field::Ipv4Dst | Field::ArpSpa | Field::ArpTpa => {
                let is_to = matches!(f.field, Field::Ipv4Dst | Field::ArpTpa);
                let open = (f.mask as u32).trailing_zeros();
                let shift = if is_to { NW_DST_SHIFT } else { NW_SRC_SHIFT };
                masked = address_mask(open) == f.mask;
                wire.nw[usize::from(is_to)] = low;
                wild = wild & !(0x3f << shift) | open << shift;
            }
            Field::TcpSrc | Field::UdpSrc | Field::SctpSrc | Field::Icmpv4Type => {
                wire.tp[0] = low as u16;
                wild &= !TP_SRC;
            }
            Field::TcpDst | Field::UdpDst | Field::SctpDst | Field::Icmpv4Code => {
                wire.tp[1] = low as u16;
                wild &= !TP_DST;
            }
            _ => return Err(Unencodable::Version),
        }
        if !f.is_exact() && !masked {
            return Err(Unencodable::Version);
        }
    }
    // IPv6 has no fields beyond its type in 1.0.
    if wire.ethertype == 0x86dd && wild & (NW_PROTO | NW_TOS) != NW_PROTO | NW_TOS {
        return Err(Unencodable::Version);
    }
    out.u32(wild);
    out.u16(wire.in_port);
    wire.addresses.into_iter().for_each(|a| out.number(a, 6));
    out.u16(wire.vlan);
    out.u8(wire.pcp);
    out.u8(0);
    out.u16(wire.ethertype);
    out.u8(wire.tos);
    out.u8(wire.proto);
    out.u16(0);
    wire.nw.into_iter().for_each(|a| out.u32(a));
    wire.tp.into_iter().for_each(|p| out.u16(p));
    Ok(())
}
