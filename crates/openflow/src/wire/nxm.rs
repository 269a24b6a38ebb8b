//! Matches of Nicira's extension of OpenFlow 1.0: NXM (`nicira-ext.h` of Open vSwitch). Fields that it does not have are those of OXM,
//! as in Open vSwitch.
//!
//! The tag is one field of 16 bits: priority, presence, identifier.

use super::bytes::{Put, Reader};
use super::{Unencodable, oxm};
use crate::error::ErrorCode;
use crate::field::{Field, VLAN_PRESENT};
use crate::matches::{FieldMatch, Match};
use crate::port::PortNo;

/// Class, number and bytes of NXM's fields that are one of OXM.
const FIELDS: &[(u16, u8, usize, Field)] = &[
    (0, 0, 2, Field::InPort),
    (0, 1, 6, Field::EthDst),
    (0, 2, 6, Field::EthSrc),
    (0, 3, 2, Field::EthType),
    (0, 5, 1, Field::IpDscp),
    (0, 6, 1, Field::IpProto),
    (0, 7, 4, Field::Ipv4Src),
    (0, 8, 4, Field::Ipv4Dst),
    (0, 9, 2, Field::TcpSrc),
    (0, 10, 2, Field::TcpDst),
    (0, 11, 2, Field::UdpSrc),
    (0, 12, 2, Field::UdpDst),
    (0, 13, 1, Field::Icmpv4Type),
    (0, 14, 1, Field::Icmpv4Code),
    (0, 15, 2, Field::ArpOp),
    (0, 16, 4, Field::ArpSpa),
    (0, 17, 4, Field::ArpTpa),
    (1, 16, 8, Field::TunnelId),
    (1, 17, 6, Field::ArpSha),
    (1, 18, 6, Field::ArpTha),
    (1, 19, 16, Field::Ipv6Src),
    (1, 20, 16, Field::Ipv6Dst),
    (1, 21, 1, Field::Icmpv6Type),
    (1, 22, 1, Field::Icmpv6Code),
    (1, 23, 16, Field::Ipv6NdTarget),
    (1, 24, 6, Field::Ipv6NdSll),
    (1, 25, 6, Field::Ipv6NdTll),
    (1, 27, 4, Field::Ipv6Flabel),
    (1, 28, 1, Field::IpEcn),
];

/// Class and number of the cookie, which is no field of packets: which flows a request is about.
const COOKIE: (u16, u8) = (1, 30);

/// The cookie of flows under a mask; of all flows where the mask is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cookie {
    pub(super) value: u64,
    pub(super) mask: u64,
}

/// Class and number of the tag.
const VLAN_TCI: (u16, u8) = (0, 4);
/// Bits of the identifier with its presence, and of the priority, in the tag.
const VID: u128 = 0x1fff;
const PCP: u128 = 0xe000;

/// The fields of a match: all of `reader`, without padding.
pub(super) fn read_match(reader: Reader<'_>) -> Result<Match, ErrorCode> {
    read(reader, None)
}

/// The same of a request about flows, which may name their cookies.
pub(super) fn read_with_cookie(reader: Reader<'_>) -> Result<(Match, Cookie), ErrorCode> {
    let mut cookie = Cookie::default();
    let matches = read(reader, Some(&mut cookie))?;
    Ok((matches, cookie))
}

fn read(mut reader: Reader<'_>, mut cookie: Option<&mut Cookie>) -> Result<Match, ErrorCode> {
    let mut matches = Match::new();
    while !reader.is_empty() {
        let mut ahead = reader;
        let head = (ahead.u16(), ahead.u8(), ahead.u8());
        let (Ok(class), Ok(number), Ok(len)) = head else { return Err(ErrorCode::BadMatchLen) };
        let (has_mask, number) = (number & 1 != 0, number >> 1);
        if let Some(own) = cookie.as_deref_mut().filter(|_| (class, number) == COOKIE) {
            reader = ahead;
            *own = read_cookie(&mut reader, *own, has_mask, len)?;
            continue;
        }
        let known = FIELDS.iter().find(|own| (own.0, own.1) == (class, number));
        let bytes = match known {
            _ if (class, number) == VLAN_TCI => 2,
            Some((_, _, bytes, _)) => *bytes,
            None => {
                let (field, value, mask) = oxm::read_field(&mut reader)?;
                set(&mut matches, field, value, mask.unwrap_or(field.full()))?;
                continue;
            }
        };
        reader = ahead;
        if usize::from(len) != bytes * if has_mask { 2 } else { 1 } {
            return Err(ErrorCode::BadMatchLen);
        }
        let bad = |_| ErrorCode::BadMatchLen;
        let value = reader.number(bytes).map_err(bad)?;
        let full = u128::MAX >> (128 - bytes * 8);
        let mask = if has_mask { reader.number(bytes).map_err(bad)? } else { full };
        match known {
            Some((_, _, _, Field::InPort)) if !has_mask => {
                let port = PortNo::from_v10(value as u16);
                set(&mut matches, Field::InPort, port.0.into(), Field::InPort.full())?;
            }
            // Six bits of eight.
            Some((_, _, _, Field::IpDscp)) if !has_mask && value & 3 == 0 => {
                set(&mut matches, Field::IpDscp, value >> 2, Field::IpDscp.full())?;
            }
            Some((_, _, _, Field::InPort)) => return Err(ErrorCode::BadMatchMask),
            Some((_, _, _, Field::IpDscp)) if has_mask => return Err(ErrorCode::BadMatchMask),
            Some((_, _, _, Field::IpDscp)) => return Err(ErrorCode::BadMatchValue),
            Some((_, _, _, field)) => set(&mut matches, *field, value, mask)?,
            None => tag(&mut matches, value, mask)?,
        }
    }
    Ok(matches)
}

fn read_cookie(
    reader: &mut Reader<'_>,
    before: Cookie,
    has_mask: bool,
    len: u8,
) -> Result<Cookie, ErrorCode> {
    let bad = |_| ErrorCode::BadMatchLen;
    if len != if has_mask { 16 } else { 8 } {
        return Err(ErrorCode::BadMatchLen);
    }
    let value = reader.u64().map_err(bad)?;
    let mask = if has_mask { reader.u64().map_err(bad)? } else { u64::MAX };
    if before.mask != 0 {
        return Err(ErrorCode::BadMatchDupField);
    }
    if value & !mask != 0 {
        return Err(ErrorCode::BadMatchWildcards);
    }
    Ok(Cookie { value, mask })
}

/// Behind the fields of a match.
pub(super) fn write_cookie(out: &mut Vec<u8>, Cookie { value, mask }: Cookie) {
    if mask != 0 {
        write(out, COOKIE, 8, ((value & mask).into(), mask.into()));
    }
}

fn set(matches: &mut Match, field: Field, value: u128, mask: u128) -> Result<(), ErrorCode> {
    let mask = mask & field.full();
    if matches.get(field).is_some() {
        return Err(ErrorCode::BadMatchDupField);
    }
    if value & !field.full() != 0 {
        return Err(ErrorCode::BadMatchValue);
    }
    if value & !mask != 0 {
        return Err(ErrorCode::BadMatchWildcards);
    }
    if mask != field.full() && !field.is_maskable() {
        return Err(ErrorCode::BadMatchMask);
    }
    matches.set(field, value, mask);
    // What a field needs comes before it.
    match mask == 0 || matches.provides(field) {
        true => Ok(()),
        false => Err(ErrorCode::BadMatchPrereq),
    }
}

fn tag(matches: &mut Match, value: u128, mask: u128) -> Result<(), ErrorCode> {
    let is_known = |field: &Field| matches.get(*field).is_some();
    if [Field::VlanVid, Field::VlanPcp].iter().any(is_known) {
        return Err(ErrorCode::BadMatchDupField);
    }
    if value & !mask != 0 {
        return Err(ErrorCode::BadMatchWildcards);
    }
    if ![0, PCP].contains(&(mask & PCP)) {
        return Err(ErrorCode::BadMatchMask);
    }
    matches.set(Field::VlanVid, value & VID, mask & VID);
    // Without a tag there is no priority.
    if mask & PCP != 0 && !(mask == 0xffff && value == 0) {
        matches.set(Field::VlanPcp, value >> 13, Field::VlanPcp.full());
        if !matches.provides(Field::VlanPcp) {
            return Err(ErrorCode::BadMatchPrereq);
        }
    }
    Ok(())
}

/// The order of Open vSwitch: what a field needs comes before it.
fn rank(field: Field) -> u8 {
    match field {
        Field::InPort | Field::InPhyPort => 0,
        Field::EthDst | Field::EthSrc => 1,
        Field::EthType => 2,
        Field::VlanVid | Field::VlanPcp => 3,
        Field::MplsLabel | Field::MplsTc | Field::MplsBos | Field::PbbIsid => 4,
        Field::Ipv4Src | Field::Ipv4Dst | Field::Ipv6Src | Field::Ipv6Dst => 5,
        Field::IpDscp => 6,
        Field::IpEcn => 7,
        Field::IpProto => 8,
        Field::Icmpv6Type => 9,
        Field::TunnelId => 11,
        Field::Metadata => 12,
        _ => 10,
    }
}

/// # Errors
/// `Version` where 1.0 has no such port.
pub(super) fn write_match(out: &mut Vec<u8>, matches: &Match) -> Result<(), Unencodable> {
    let mut fields: Vec<&FieldMatch> = matches.fields().iter().collect();
    fields.sort_by_key(|f| (rank(f.field), f.field));
    for f in fields {
        match f.field {
            Field::InPort => {
                let port = PortNo(f.value as u32).to_v10().ok_or(Unencodable::Version)?;
                write(out, (0, 0), 2, (port.into(), 0xffff));
            }
            Field::IpDscp => write(out, (0, 5), 1, (f.value << 2, 0xff)),
            Field::VlanVid => {
                let is_none = f.is_exact() && f.value == 0;
                let pcp = matches.get(Field::VlanPcp).map_or(0, |pcp| pcp.value << 13);
                let has_pcp = matches.get(Field::VlanPcp).is_some();
                let mask = f.mask | if has_pcp || is_none { PCP } else { 0 };
                write(out, VLAN_TCI, 2, (f.value | pcp, mask));
            }
            // With its tag.
            Field::VlanPcp if matches.get(Field::VlanVid).is_some() => {}
            Field::VlanPcp => {
                let present = u128::from(VLAN_PRESENT);
                write(out, VLAN_TCI, 2, (f.value << 13 | present, PCP | present));
            }
            field => match FIELDS.iter().find(|own| own.3 == field) {
                Some((class, number, bytes, _)) => {
                    // A field of fewer bits than its bytes have is written as exact with all of them.
                    let full = u128::MAX >> (128 - bytes * 8);
                    let mask = if f.is_exact() { full } else { f.mask };
                    write(out, (*class, *number), *bytes, (f.value, mask));
                }
                None => oxm::write_field(out, f),
            },
        }
    }
    Ok(())
}

/// One field; without a mask where it is exact.
fn write(out: &mut Vec<u8>, (class, number): (u16, u8), bytes: usize, (value, mask): (u128, u128)) {
    let is_exact = mask == u128::MAX >> (128 - bytes * 8);
    out.u16(class);
    out.u8(number << 1 | u8::from(!is_exact));
    out.u8((bytes * if is_exact { 1 } else { 2 }) as u8);
    out.number(value, bytes);
    if !is_exact {
        out.number(mask, bytes);
    }
}
