//! NDNLPv2: what a packet says to the next hop alone.
//!
//! Fields may be in any order. An unknown field spoils the packet unless its type is odd and between 800
//! and 959. Fragments are not put together: a whole packet in one fragment passes, a piece is refused.

use super::tlv::{self, Elements, Malformed, emit_number_tlv, emit_tlv};

/// The longest token that a neighbour may send, bytes.
pub const PIT_TOKEN_MAX: usize = 32;

/// Why an Interest came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Nack {
    /// No reason given.
    None,
    /// The link is congested (50).
    Congestion,
    /// The nonce has been seen (100).
    Duplicate,
    /// There is no route (150).
    NoRoute,
    /// A reason that is not known.
    Other(u64),
}

impl Nack {
    fn from_number(number: u64) -> Nack {
        match number {
            0 => Nack::None,
            50 => Nack::Congestion,
            100 => Nack::Duplicate,
            150 => Nack::NoRoute,
            other => Nack::Other(other),
        }
    }

    /// The number that is in packets; 0 for none.
    pub fn number(self) -> u64 {
        match self {
            Nack::None => 0,
            Nack::Congestion => 50,
            Nack::Duplicate => 100,
            Nack::NoRoute => 150,
            Nack::Other(other) => other,
        }
    }
}

/// The fields that a forwarder reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkHeader<'a> {
    /// The Interest is one that comes back.
    pub nack: Option<Nack>,
    /// What the neighbour wants to find in the answer; empty for none.
    pub pit_token: &'a [u8],
    /// The neighbour's queue was long.
    pub congestion_mark: u64,
    /// The fragment's number.
    pub sequence: Option<u64>,
    /// Data is not to be kept for others.
    pub no_cache: bool,
}

/// The fields that a forwarder writes.
pub type LpFields<'a> = LinkHeader<'a>;

impl<'a> LinkHeader<'a> {
    /// Reads an LpPacket's value; the header and the packet inside, if there is one.
    pub(super) fn read(value: &'a [u8]) -> Result<(Self, Option<&'a [u8]>), Malformed> {
        let (mut header, mut fragment) = (LinkHeader::default(), None);
        let (mut index, mut count) = (0, 1);
        for field in Elements(value) {
            let field = field?;
            match field.kind {
                tlv::FRAGMENT if fragment.is_none() => {
                    fragment = Some(field.value).filter(|value| !value.is_empty());
                }
                tlv::SEQUENCE => header.sequence = Some(field.number()?),
                tlv::FRAG_INDEX => index = field.number()?,
                tlv::FRAG_COUNT => count = field.number()?,
                tlv::PIT_TOKEN => {
                    if !(1..=PIT_TOKEN_MAX).contains(&field.value.len()) {
                        return Err(Malformed::BadLength(field.kind));
                    }
                    header.pit_token = field.value;
                }
                tlv::NACK => header.nack = Some(read_nack(field.value)?),
                tlv::CONGESTION_MARK => header.congestion_mark = field.number()?,
                tlv::CACHE_POLICY => header.no_cache = is_no_cache(field.value)?,
                tlv::HOP_COUNT
                | tlv::INCOMING_FACE
                | tlv::NEXT_HOP_FACE
                | tlv::ACK
                | tlv::TX_SEQUENCE
                | tlv::NON_DISCOVERY
                | tlv::PREFIX_ANNOUNCEMENT => {}
                unknown if is_ignored(unknown) => {}
                unknown => return Err(Malformed::Critical(unknown)),
            }
        }
        if (index, count) != (0, 1) {
            return Err(Malformed::Fragment);
        }
        if header.nack.is_some() && fragment.is_none() {
            return Err(Malformed::NackOfNothing);
        }
        Ok((header, fragment))
    }

    /// Reads the header of NDNLP before version 2, where it is the outermost element.
    pub(super) fn read_old(value: &'a [u8]) -> Result<(Self, Option<&'a [u8]>), Malformed> {
        let (mut header, mut payload) = (LinkHeader::default(), None);
        for field in Elements(value) {
            let field = field?;
            match field.kind {
                tlv::SEQUENCE => header.sequence = Some(field.number()?),
                tlv::OLD_PAYLOAD if payload.is_none() => payload = Some(field.value),
                tlv::FRAG_INDEX | tlv::FRAG_COUNT => return Err(Malformed::Fragment),
                unknown => return Err(Malformed::Critical(unknown)),
            }
        }
        Ok((header, payload))
    }
}

fn read_nack(value: &[u8]) -> Result<Nack, Malformed> {
    let mut nack = Nack::None;
    for field in Elements(value) {
        let field = field?;
        if field.kind == tlv::NACK_REASON {
            nack = Nack::from_number(field.number()?);
        }
    }
    Ok(nack)
}

/// Whether a cache policy is NoCache (1), the only one that there is.
fn is_no_cache(value: &[u8]) -> Result<bool, Malformed> {
    let mut is_no_cache = false;
    for field in Elements(value) {
        let field = field?;
        if field.kind == tlv::CACHE_POLICY_TYPE {
            is_no_cache = field.number()? == 1;
        }
    }
    Ok(is_no_cache)
}

const fn is_ignored(kind: u32) -> bool {
    matches!(kind, 800..=959) && kind % 2 == 1
}

/// Appends a packet with its link fields, as an LpPacket where there are any, else bare.
pub fn emit_link(fields: &LpFields<'_>, packet: &[u8], out: &mut Vec<u8>) {
    if *fields == LinkHeader::default() {
        return out.extend_from_slice(packet);
    }
    let mut value = Vec::with_capacity(packet.len() + 64);
    if let Some(sequence) = fields.sequence {
        emit_tlv(tlv::SEQUENCE, &sequence.to_be_bytes(), &mut value);
    }
    if !fields.pit_token.is_empty() {
        emit_tlv(tlv::PIT_TOKEN, fields.pit_token, &mut value);
    }
    if let Some(nack) = fields.nack {
        let mut reason = Vec::new();
        if nack != Nack::None {
            emit_number_tlv(tlv::NACK_REASON, nack.number(), &mut reason);
        }
        emit_tlv(tlv::NACK, &reason, &mut value);
    }
    if fields.congestion_mark > 0 {
        emit_number_tlv(tlv::CONGESTION_MARK, fields.congestion_mark, &mut value);
    }
    if fields.no_cache {
        let mut policy = Vec::new();
        emit_number_tlv(tlv::CACHE_POLICY_TYPE, 1, &mut policy);
        emit_tlv(tlv::CACHE_POLICY, &policy, &mut value);
    }
    emit_tlv(tlv::FRAGMENT, packet, &mut value);
    emit_tlv(tlv::LP_PACKET, &value, out);
}
