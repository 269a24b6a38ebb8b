//! Elements: a type, a length, a value.
//!
//! Both numbers take 1 byte below 253, else 253, 254 or 255 and 2, 4 or 8 bytes, in network order; only the
//! shortest form is allowed (NDN Packet Format §1.2).

pub(super) const IMPLICIT_DIGEST: u32 = 1;
pub(super) const PARAMETERS_DIGEST: u32 = 2;
pub(super) const INTEREST: u32 = 5;
pub(super) const DATA: u32 = 6;
pub(super) const NAME: u32 = 7;
pub(super) const GENERIC: u32 = 8;
pub(super) const SELECTORS: u32 = 9; // v0.2
pub(super) const NONCE: u32 = 10;
pub(super) const LIFETIME: u32 = 12;
pub(super) const MAX_SUFFIX: u32 = 14; // v0.2
pub(super) const MUST_BE_FRESH: u32 = 18;
pub(super) const META_INFO: u32 = 20;
pub(super) const CONTENT: u32 = 21;
pub(super) const SIGNATURE_INFO: u32 = 22;
pub(super) const SIGNATURE_VALUE: u32 = 23;
pub(super) const CONTENT_TYPE: u32 = 24;
pub(super) const FRESHNESS: u32 = 25;
pub(super) const FINAL_BLOCK: u32 = 26;
pub(super) const FORWARDING_HINT: u32 = 30;
pub(super) const CAN_BE_PREFIX: u32 = 33;
pub(super) const HOP_LIMIT: u32 = 34;
pub(super) const PARAMETERS: u32 = 36;
pub(super) const INTEREST_SIGNATURE_INFO: u32 = 44;
pub(super) const INTEREST_SIGNATURE_VALUE: u32 = 46;

pub(super) const NDNLP_1: u32 = 80; // outermost; inside an LpPacket it is the fragment
pub(super) const FRAGMENT: u32 = 80;
pub(super) const SEQUENCE: u32 = 81;
pub(super) const FRAG_INDEX: u32 = 82;
pub(super) const FRAG_COUNT: u32 = 83;
pub(super) const OLD_PAYLOAD: u32 = 84; // of NDNLP 1
pub(super) const HOP_COUNT: u32 = 84; // of ndnSIM
pub(super) const PIT_TOKEN: u32 = 98;
pub(super) const LP_PACKET: u32 = 100;
pub(super) const NACK: u32 = 800;
pub(super) const NACK_REASON: u32 = 801;
pub(super) const INCOMING_FACE: u32 = 812;
pub(super) const NEXT_HOP_FACE: u32 = 816;
pub(super) const CACHE_POLICY: u32 = 820;
pub(super) const CACHE_POLICY_TYPE: u32 = 821;
pub(super) const CONGESTION_MARK: u32 = 832;
pub(super) const ACK: u32 = 836;
pub(super) const TX_SEQUENCE: u32 = 840;
pub(super) const NON_DISCOVERY: u32 = 844;
pub(super) const PREFIX_ANNOUNCEMENT: u32 = 848;

/// Why bytes are not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Malformed {
    /// An element's type or length is cut off.
    #[error("the packet ends inside an element's type or length")]
    Truncated,
    /// A length goes beyond the bytes around it.
    #[error("a length goes beyond the bytes that are there")]
    LengthLies,
    /// A number is not in its shortest form.
    #[error("a number is not in its shortest form")]
    NotShortest,
    /// A type is 0 or above 2^32 - 1.
    #[error("an element's type is 0 or above 4294967295")]
    BadType,
    /// A packet of this type is none of ours.
    #[error("the outermost element has type {0}, neither Interest, Data nor LpPacket")]
    UnknownPacket(u32),
    /// Bytes follow the packet inside its link packet.
    #[error("bytes follow the packet in its fragment")]
    TrailingBytes,
    /// Longer than [`super::PACKET_MAX`].
    #[error("the packet is longer than 8800 bytes")]
    TooLong,
    /// An unknown or misplaced element that may not be skipped.
    #[error("a critical element of type {0} is unknown or out of place")]
    Critical(u32),
    /// An element's value has the wrong number of bytes.
    #[error("the value of an element of type {0} has a wrong length")]
    BadLength(u32),
    /// The first element is not a name.
    #[error("the packet does not begin with a name")]
    NoName,
    /// An Interest for the name of no components.
    #[error("an Interest has a name of no components")]
    EmptyName,
    /// A component's type is 0 or above 65,535.
    #[error("a name component has type {0}")]
    BadComponent(u32),
    /// A piece of a packet; pieces are not put together.
    #[error("the packet is one fragment of several")]
    Fragment,
    /// A Nack around a Data packet.
    #[error("a Nack is about a Data packet")]
    NackOfData,
    /// A Nack around nothing.
    #[error("a Nack is about no packet")]
    NackOfNothing,
}

/// One element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tlv<'a> {
    /// Type, 1 to 2^32 - 1.
    pub kind: u32,
    /// What it holds.
    pub value: &'a [u8],
    /// All of it: type, length and value.
    pub encoded: &'a [u8],
}

impl Tlv<'_> {
    /// A non-negative integer of 1, 2, 4 or 8 bytes.
    pub(super) fn number(&self) -> Result<u64, Malformed> {
        match *self.value {
            [a] => Ok(a.into()),
            [a, b] => Ok(u16::from_be_bytes([a, b]).into()),
            [a, b, c, d] => Ok(u32::from_be_bytes([a, b, c, d]).into()),
            [a, b, c, d, e, f, g, h] => Ok(u64::from_be_bytes([a, b, c, d, e, f, g, h])),
            _ => Err(Malformed::BadLength(self.kind)),
        }
    }

    /// Exactly `N` bytes.
    pub(super) fn array<const N: usize>(&self) -> Result<[u8; N], Malformed> {
        self.value.try_into().map_err(|_| Malformed::BadLength(self.kind))
    }

    /// What an unknown element means.
    pub(super) fn skip_unless_critical(&self) -> Result<(), Malformed> {
        match is_critical(self.kind) {
            true => Err(Malformed::Critical(self.kind)),
            false => Ok(()),
        }
    }
}

pub(super) const fn is_critical(kind: u32) -> bool {
    kind <= 31 || kind % 2 == 1
}

/// The first element of `bytes`, and what follows it.
///
/// # Errors
/// When it is cut off or its numbers are wrong.
#[inline]
pub fn read_tlv(bytes: &[u8]) -> Result<(Tlv<'_>, &[u8]), Malformed> {
    let (kind, rest) = read_number(bytes)?;
    let kind = u32::try_from(kind).ok().filter(|kind| *kind != 0).ok_or(Malformed::BadType)?;
    let (len, rest) = read_number(rest)?;
    let len = usize::try_from(len).map_err(|_| Malformed::LengthLies)?;
    let (value, rest) = rest.split_at_checked(len).ok_or(Malformed::LengthLies)?;
    let encoded = &bytes[..bytes.len() - rest.len()];
    Ok((Tlv { kind, value, encoded }, rest))
}

#[inline]
fn read_number(bytes: &[u8]) -> Result<(u64, &[u8]), Malformed> {
    fn wide<const N: usize>(rest: &[u8]) -> Result<([u8; N], &[u8]), Malformed> {
        rest.split_first_chunk().map(|(bytes, rest)| (*bytes, rest)).ok_or(Malformed::Truncated)
    }
    let (first, rest) = bytes.split_first().ok_or(Malformed::Truncated)?;
    let (number, rest, least) = match first {
        253 => wide(rest).map(|(b, rest)| (u16::from_be_bytes(b).into(), rest, 253))?,
        254 => wide(rest).map(|(b, rest)| (u32::from_be_bytes(b).into(), rest, 1 << 16))?,
        255 => wide(rest).map(|(b, rest)| (u64::from_be_bytes(b), rest, 1 << 32))?,
        small => (u64::from(*small), rest, 0),
    };
    if number < least {
        return Err(Malformed::NotShortest);
    }
    Ok((number, rest))
}

fn emit_number(number: u64, out: &mut Vec<u8>) {
    match number {
        0..253 => out.push(number as u8),
        253..0x1_0000 => {
            out.push(253);
            out.extend_from_slice(&(number as u16).to_be_bytes());
        }
        0x1_0000..0x1_0000_0000 => {
            out.push(254);
            out.extend_from_slice(&(number as u32).to_be_bytes());
        }
        _ => {
            out.push(255);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

/// Appends an element.
pub fn emit_tlv(kind: u32, value: &[u8], out: &mut Vec<u8>) {
    emit_number(kind.into(), out);
    emit_number(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Appends an element whose value is a non-negative integer.
pub(super) fn emit_number_tlv(kind: u32, number: u64, out: &mut Vec<u8>) {
    let bytes = number.to_be_bytes();
    let len = match number {
        0..0x100 => 1,
        0x100..0x1_0000 => 2,
        0x1_0000..0x1_0000_0000 => 4,
        _ => 8,
    };
    emit_tlv(kind, &bytes[8 - len..], out);
}

/// Walks over elements that have been checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elements<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Tlv<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        Some(match read_tlv(self.0) {
            Ok((element, rest)) => {
                self.0 = rest;
                Ok(element)
            }
            Err(error) => {
                self.0 = &[];
                Err(error)
            }
        })
    }
}
