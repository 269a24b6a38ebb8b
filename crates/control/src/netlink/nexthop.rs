//! Messages about next-hop objects (`linux/nexthop.h`, Linux 5.3 and later).
//!
//! An object is a gateway on an interface, a blackhole, or a group of other objects with
//! weights; routes name it by number, so that changing one object moves all its routes.
//! `netlink-packet-route` has no types for these messages; ours follow the same traits.
//!
//! ```text
//! nhmsg   0        1        2          3        4
//!         | family | scope  | protocol | 0      | flags (4 bytes) | attributes …
//!
//! NHA_GROUP entry (8 bytes)
//!         0               4          5              6
//!         | id (4 bytes)  | weight-1 | high byte of | 0 (2 bytes)
//!                                      weight-1 (6.12 and later)
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, Nla, NlaBuffer, NlasIterator, Parseable,
};

const HEADER: usize = 8;
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_GROUP_TYPE: u16 = 3;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP_TYPE: u16 = 7;
const NHA_GROUPS: u16 = 9;
const NHA_MASTER: u16 = 10;
const NHA_FDB: u16 = 11;

/// `RTNH_F_DEAD`: the object's interface is down.
pub const DEAD: u32 = 1;
/// `RTNH_F_ONLINK`: the gateway is on the link although no prefix covers it.
pub const ONLINK: u32 = 4;

/// One member of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupMember {
    /// The object's number.
    pub id: u32,
    /// Its weight, 1 to 65,536 (1 to 256 before Linux 6.12).
    pub weight: u32,
}

/// An attribute of a next-hop object.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NextHopAttribute {
    /// The object's number.
    Id(u32),
    /// The members of a group.
    Group(Vec<GroupMember>),
    /// 0: hashed by weight, 1: resilient.
    GroupType(u16),
    /// Packets are dropped.
    Blackhole,
    /// Index of the interface.
    Oif(u32),
    /// The neighbour's address.
    Gateway(IpAddr),
    /// Kind of a light-weight tunnel (MPLS, SRv6, …).
    EncapType(u16),
    /// In a dump request: groups only.
    Groups,
    /// In a dump request: objects on ports of this interface only.
    Master(u32),
    /// For a bridge's forwarding database; no route uses it.
    Fdb,
    /// Anything else, as it came.
    Other(DefaultNla),
}

impl Nla for NextHopAttribute {
    fn value_len(&self) -> usize {
        match self {
            Self::Id(_) | Self::Oif(_) | Self::Master(_) => 4,
            Self::Group(members) => members.len() * 8,
            Self::GroupType(_) | Self::EncapType(_) => 2,
            Self::Blackhole | Self::Groups | Self::Fdb => 0,
            Self::Gateway(IpAddr::V4(_)) => 4,
            Self::Gateway(IpAddr::V6(_)) => 16,
            Self::Other(other) => other.value_len(),
        }
    }

    fn kind(&self) -> u16 {
        match self {
            Self::Id(_) => NHA_ID,
            Self::Group(_) => NHA_GROUP,
            Self::GroupType(_) => NHA_GROUP_TYPE,
            Self::Blackhole => NHA_BLACKHOLE,
            Self::Oif(_) => NHA_OIF,
            Self::Gateway(_) => NHA_GATEWAY,
            Self::EncapType(_) => NHA_ENCAP_TYPE,
            Self::Groups => NHA_GROUPS,
            Self::Master(_) => NHA_MASTER,
            Self::Fdb => NHA_FDB,
            Self::Other(other) => other.kind(),
        }
    }

    fn emit_value(&self, buffer: &mut [u8]) {
        match self {
            Self::Id(value) | Self::Oif(value) | Self::Master(value) => {
                buffer.copy_from_slice(&value.to_ne_bytes());
            }
            Self::Group(members) => {
                for (member, entry) in members.iter().zip(buffer.chunks_exact_mut(8)) {
                    let [low, high] = (member.weight.clamp(1, 1 << 16) - 1).to_le_bytes()[..2]
                    else {
                        continue;
                    };
                    entry[..4].copy_from_slice(&member.id.to_ne_bytes());
                    entry[4..].copy_from_slice(&[low, high, 0, 0]);
                }
            }
            Self::GroupType(value) | Self::EncapType(value) => {
                buffer.copy_from_slice(&value.to_ne_bytes());
            }
            Self::Blackhole | Self::Groups | Self::Fdb => {}
            Self::Gateway(IpAddr::V4(address)) => buffer.copy_from_slice(&address.octets()),
            Self::Gateway(IpAddr::V6(address)) => buffer.copy_from_slice(&address.octets()),
            Self::Other(other) => other.emit_value(buffer),
        }
    }
}

fn number<const N: usize>(name: &str, value: &[u8]) -> Result<[u8; N], DecodeError> {
    value
        .try_into()
        .map_err(|_| DecodeError::from(format!("{name} of {} bytes instead of {N}", value.len())))
}

impl<'a> Parseable<NlaBuffer<&'a [u8]>> for NextHopAttribute {
    fn parse(buffer: &NlaBuffer<&'a [u8]>) -> Result<Self, DecodeError> {
        let value = buffer.value();
        Ok(match buffer.kind() {
            NHA_ID => Self::Id(u32::from_ne_bytes(number("NHA_ID", value)?)),
            NHA_GROUP => {
                if !value.len().is_multiple_of(8) {
                    return Err(format!("NHA_GROUP of {} bytes", value.len()).into());
                }
                let member = |entry: &[u8]| GroupMember {
                    id: u32::from_ne_bytes([entry[0], entry[1], entry[2], entry[3]]),
                    weight: u32::from(u16::from_le_bytes([entry[4], entry[5]])) + 1,
                };
                Self::Group(value.chunks_exact(8).map(member).collect())
            }
            NHA_GROUP_TYPE => Self::GroupType(u16::from_ne_bytes(number("NHA_GROUP_TYPE", value)?)),
            NHA_BLACKHOLE => Self::Blackhole,
            NHA_OIF => Self::Oif(u32::from_ne_bytes(number("NHA_OIF", value)?)),
            NHA_GATEWAY => Self::Gateway(match value.len() {
                4 => Ipv4Addr::from(number::<4>("NHA_GATEWAY", value)?).into(),
                _ => Ipv6Addr::from(number::<16>("NHA_GATEWAY", value)?).into(),
            }),
            NHA_ENCAP_TYPE => Self::EncapType(u16::from_ne_bytes(number("NHA_ENCAP_TYPE", value)?)),
            NHA_GROUPS => Self::Groups,
            NHA_MASTER => Self::Master(u32::from_ne_bytes(number("NHA_MASTER", value)?)),
            NHA_FDB => Self::Fdb,
            _ => Self::Other(DefaultNla::parse(buffer)?),
        })
    }
}

/// A message of type `RTM_NEWNEXTHOP`, `RTM_DELNEXTHOP` or `RTM_GETNEXTHOP`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NextHopMessage {
    /// Address family (`AF_INET` 2, `AF_INET6` 10, 0 for groups).
    pub family: u8,
    /// Scope (`RT_SCOPE_…`); the kernel sets it.
    pub scope: u8,
    /// Who installed it (`RTPROT_…`).
    pub protocol: u8,
    /// `RTNH_F_…`: [`DEAD`], [`ONLINK`].
    pub flags: u32,
    /// What it is.
    pub attributes: Vec<NextHopAttribute>,
}

impl Emitable for NextHopMessage {
    fn buffer_len(&self) -> usize {
        HEADER + self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        buffer[..4].copy_from_slice(&[self.family, self.scope, self.protocol, 0]);
        buffer[4..HEADER].copy_from_slice(&self.flags.to_ne_bytes());
        self.attributes.as_slice().emit(&mut buffer[HEADER..]);
    }
}

impl Parseable<[u8]> for NextHopMessage {
    fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let Some((&[family, scope, protocol, _, f0, f1, f2, f3], rest)) =
            bytes.split_first_chunk::<HEADER>()
        else {
            return Err(DecodeError::buffer_too_small(bytes.len(), HEADER));
        };
        let mut attributes = Vec::new();
        for attribute in NlasIterator::new(rest) {
            attributes.push(NextHopAttribute::parse(&attribute?)?);
        }
        let flags = u32::from_ne_bytes([f0, f1, f2, f3]);
        Ok(NextHopMessage { family, scope, protocol, flags, attributes })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn attribute() -> impl Strategy<Value = NextHopAttribute> {
        let member =
            (any::<u32>(), 1..=65_536u32).prop_map(|(id, weight)| GroupMember { id, weight });
        prop_oneof![
            any::<u32>().prop_map(NextHopAttribute::Id),
            any::<u32>().prop_map(NextHopAttribute::Oif),
            any::<u32>().prop_map(NextHopAttribute::Master),
            any::<u16>().prop_map(NextHopAttribute::GroupType),
            any::<u16>().prop_map(NextHopAttribute::EncapType),
            any::<IpAddr>().prop_map(NextHopAttribute::Gateway),
            proptest::collection::vec(member, 0..9).prop_map(NextHopAttribute::Group),
            Just(NextHopAttribute::Blackhole),
            Just(NextHopAttribute::Groups),
            Just(NextHopAttribute::Fdb),
            proptest::collection::vec(any::<u8>(), 0..9)
                .prop_map(|value| NextHopAttribute::Other(DefaultNla::new(40, value))),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            family: u8, scope: u8, protocol: u8, flags: u32,
            attributes in proptest::collection::vec(attribute(), 0..6),
        ) {
            let message = NextHopMessage { family, scope, protocol, flags, attributes };
            let bytes = crate::netlink::emit(&message);
            prop_assert_eq!(NextHopMessage::parse(&bytes).unwrap(), message);
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = NextHopMessage::parse(&bytes);
            let _ = crate::netlink::Messages::new(&bytes).count();
            let _ = crate::netlink::attributes(&bytes).count();
        }

        #[test]
        fn damaged_messages_never_panic(
            attributes in proptest::collection::vec(attribute(), 1..6),
            at: prop::sample::Index, value: u8, cut: prop::sample::Index,
        ) {
            let message = NextHopMessage { attributes, ..Default::default() };
            let mut bytes = crate::netlink::emit(&message);
            let at = at.index(bytes.len());
            bytes[at] = value;
            let _ = NextHopMessage::parse(&bytes);
            let _ = NextHopMessage::parse(&bytes[..cut.index(bytes.len())]);
        }
    }

    /// `ip nexthop add id 102 group 1,3/2` as the kernel (6.18) announced it.
    #[test]
    fn a_group_as_the_kernel_writes_it() {
        let bytes = [
            0, 0, 0, 0, 0, 0, 0, 0, // nhmsg
            8, 0, 1, 0, 102, 0, 0, 0, // NHA_ID
            6, 0, 3, 0, 0, 0, 0, 0, // NHA_GROUP_TYPE
            20, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, // NHA_GROUP
        ];
        let message = NextHopMessage::parse(&bytes).unwrap();
        let members = vec![GroupMember { id: 1, weight: 1 }, GroupMember { id: 3, weight: 2 }];
        assert_eq!(
            message.attributes,
            [
                NextHopAttribute::Id(102),
                NextHopAttribute::GroupType(0),
                NextHopAttribute::Group(members)
            ]
        );
    }
}
