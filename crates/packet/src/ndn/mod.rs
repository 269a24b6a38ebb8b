//! Named Data Networking: packets that ask by name, and packets that answer.
//!
//! NDN Packet Format Specification v0.3: a packet is nested elements of type, length and value. An
//! *Interest* carries a name and asks for data; a *Data* packet carries the name, content and a signature, which
//! a forwarder neither checks nor changes. Between neighbours a packet may be in an NDNLPv2 *LpPacket*
//! with fields for this hop alone.
//!
//! ```text
//! Ethernet 0x8624 │ UDP 6363 ─→ [ LpPacket: Sequence, PitToken, Nack … Fragment ─→ ] Interest │ Data
//!                                                                                   └ Name: component component …
//! ```
//!
//! [`Packet::new_checked`] looks at a packet once, from its first byte to its last element, and says in a
//! [`Malformed`] what is wrong; after that no accessor fails. The work is one pass over bytes that are at hand,
//! whatever lengths claim; elements nest at most four deep, because values that a forwarder does not read
//! are skipped whole.
//!
//! *Critical* elements (odd types, and those up to 31) that are unknown or out of place spoil a packet, others
//! are skipped (§1.3 "Considerations for evolvability").
//!
//! Two concessions to packets that are still seen, in captures at least: Interests of v0.2 with their
//! Selectors are understood, and so is the header of the older NDNLP (type 80 outside).

mod link;
pub mod management;
mod name;
mod packets;
mod tlv;
mod uri;

pub use link::{LinkHeader, LpFields, Nack, PIT_TOKEN_MAX, emit_link};
pub use name::{Component, Name, component_type};
pub use packets::{Data, Interest, InterestFields, emit_data, emit_interest};
pub use tlv::{Malformed, Tlv, emit_tlv, read_tlv};
pub use uri::{NameBuf, UriError};

/// EtherType of NDN.
pub const ETHERTYPE: crate::EtherType = crate::EtherType(0x8624);
/// UDP and TCP port of NDN.
pub const UDP_PORT: u16 = 6363;
/// The Ethernet multicast group that all forwarders listen to: 01:00:5e:00:17:aa.
pub const MULTICAST_MAC: crate::MacAddr = crate::MacAddr([1, 0, 0x5e, 0, 0x17, 0xaa]);
/// The largest packet in use, bytes, without link fields.
pub const PACKET_MAX: usize = 8_800;
/// The lifetime of an Interest that states none, milliseconds.
pub const DEFAULT_LIFETIME_MS: u64 = 4_000;

/// The SHA-256 of a packet: of Data its implicit digest.
pub fn digest(packet: &[u8]) -> [u8; 32] {
    use sha2::Digest as _;
    sha2::Sha256::digest(packet).into()
}

/// A packet with the link fields around it.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// What the LpPacket said; nothing where there was none.
    pub link: LinkHeader<'a>,
    /// What it is about.
    pub body: Body<'a>,
}

/// What a packet is.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// A question.
    Interest(Interest<'a>),
    /// An answer.
    Data(Data<'a>),
    /// A link packet that carries nothing: acknowledgements.
    Idle,
}

impl<'a> Packet<'a> {
    /// Checks the packet at the start of `bytes`; what follows it, as the padding of short frames does, is
    /// left.
    ///
    /// # Errors
    /// The first thing wrong with it.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (outer, _) = read_tlv(bytes)?;
        let (link, inner) = match outer.kind {
            tlv::LP_PACKET => LinkHeader::read(outer.value)?,
            tlv::NDNLP_1 => LinkHeader::read_old(outer.value)?,
            _ => (LinkHeader::default(), Some(outer.encoded)),
        };
        let Some(inner) = inner else { return Ok(Packet { link, body: Body::Idle }) };
        let (element, rest) = read_tlv(inner)?;
        if !rest.is_empty() {
            return Err(Malformed::TrailingBytes);
        }
        if inner.len() > PACKET_MAX {
            return Err(Malformed::TooLong);
        }
        let body = match element.kind {
            tlv::INTEREST => Body::Interest(Interest::read(element)?),
            tlv::DATA if link.nack.is_none() => Body::Data(Data::read(element)?),
            tlv::DATA => return Err(Malformed::NackOfData),
            other => return Err(Malformed::UnknownPacket(other)),
        };
        Ok(Packet { link, body })
    }
}

/// The first component, encoded, of the name of the packet that `bytes` begin with, whole or not: a cheap look for
/// who spreads packets by name. Wherever [`Packet::new_checked`] finds an Interest or Data, this is its name's first
/// component; `None` where the name has none, or nothing of the kind is there.
pub fn first_component(bytes: &[u8]) -> Option<&[u8]> {
    let (outer, _) = read_tlv(bytes).ok()?;
    let fragment = match outer.kind {
        tlv::LP_PACKET => tlv::FRAGMENT,
        tlv::NDNLP_1 => tlv::OLD_PAYLOAD,
        _ => return component_of(outer),
    };
    let fields = tlv::Elements(outer.value).map_while(Result::ok);
    let inner = fields.filter(|field| field.kind == fragment).find(|field| !field.value.is_empty());
    component_of(read_tlv(inner?.value).ok()?.0)
}

fn component_of(packet: Tlv<'_>) -> Option<&[u8]> {
    let is_named = matches!(packet.kind, tlv::INTEREST | tlv::DATA);
    let (name, _) = read_tlv(packet.value).ok().filter(|_| is_named)?;
    let (component, _) = read_tlv(name.value).ok().filter(|_| name.kind == tlv::NAME)?;
    Some(component.encoded)
}
