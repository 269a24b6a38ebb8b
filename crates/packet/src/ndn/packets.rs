//! Interest and Data (NDN Packet Format §3 and §4).

use super::name::Name;
use super::tlv::{self, Elements, Malformed, Tlv, emit_number_tlv, emit_tlv};
use super::{DEFAULT_LIFETIME_MS, PACKET_MAX};

/// An Interest that has been checked.
#[derive(Clone, Copy, Debug)]
pub struct Interest<'a> {
    bytes: &'a [u8],
    name: Name<'a>,
    fields: InterestFields,
    hop_limit_at: usize, // 0 where there is none
    hint: &'a [u8],
    parameters: Option<&'a [u8]>,
}

/// What an Interest says beside its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterestFields {
    /// Data whose name begins with the Interest's will do.
    pub can_be_prefix: bool,
    /// Data beyond its freshness period will not.
    pub must_be_fresh: bool,
    /// Tells Interests with one name apart, in network order.
    pub nonce: Option<u32>,
    /// For how long an answer is wanted, milliseconds.
    pub lifetime_ms: u64,
    /// Hops that are left.
    pub hop_limit: Option<u8>,
}

impl Default for InterestFields {
    fn default() -> Self {
        InterestFields {
            can_be_prefix: false,
            must_be_fresh: false,
            nonce: None,
            lifetime_ms: DEFAULT_LIFETIME_MS,
            hop_limit: None,
        }
    }
}

/// Which place an element has in its packet; 0 for one that is unknown.
type Place = fn(u32) -> u8;

fn interest_place(kind: u32) -> u8 {
    match kind {
        tlv::NAME => 1,
        tlv::SELECTORS => 2,
        tlv::CAN_BE_PREFIX => 3,
        tlv::MUST_BE_FRESH => 4,
        tlv::FORWARDING_HINT => 5,
        tlv::NONCE => 6,
        tlv::LIFETIME => 7,
        tlv::HOP_LIMIT => 8,
        tlv::PARAMETERS => 9,
        tlv::INTEREST_SIGNATURE_INFO => 10,
        tlv::INTEREST_SIGNATURE_VALUE => 11,
        _ => 0,
    }
}

fn data_place(kind: u32) -> u8 {
    match kind {
        tlv::NAME => 1,
        tlv::META_INFO => 2,
        tlv::CONTENT => 3,
        tlv::SIGNATURE_INFO => 4,
        tlv::SIGNATURE_VALUE => 5,
        _ => 0,
    }
}

fn meta_info_place(kind: u32) -> u8 {
    match kind {
        tlv::CONTENT_TYPE => 1,
        tlv::FRESHNESS => 2,
        tlv::FINAL_BLOCK => 3,
        _ => 0,
    }
}

/// Calls `known` with each known element in its place; others are skipped unless they are critical.
fn walk<'a>(
    value: &'a [u8],
    place: Place,
    mut known: impl FnMut(Tlv<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut last = 0;
    for element in Elements(value) {
        let element = element?;
        match place(element.kind) {
            at if at > last => {
                last = at;
                known(element)?;
            }
            _ => element.skip_unless_critical()?,
        }
    }
    Ok(())
}

/// The name that a packet begins with.
fn first_name(value: &[u8]) -> Result<Name<'_>, Malformed> {
    match Elements(value).next() {
        Some(Ok(name)) if name.kind == tlv::NAME => Name::new_checked(name.value),
        Some(Err(error)) => Err(error),
        _ => Err(Malformed::NoName),
    }
}

impl<'a> Interest<'a> {
    pub(super) fn read(packet: Tlv<'a>) -> Result<Self, Malformed> {
        let name = first_name(packet.value)?;
        if name.is_empty() {
            return Err(Malformed::EmptyName);
        }
        let (mut fields, mut hop_limit_at) = (InterestFields::default(), 0);
        let (mut hint, mut parameters) = (&packet.value[..0], None);
        let start = packet.encoded.as_ptr() as usize;
        walk(packet.value, interest_place, |element| {
            match element.kind {
                tlv::CAN_BE_PREFIX => {
                    element.array::<0>()?;
                    fields.can_be_prefix = true;
                }
                tlv::MUST_BE_FRESH => {
                    element.array::<0>()?;
                    fields.must_be_fresh = true;
                }
                tlv::SELECTORS => read_selectors(element.value, &mut fields)?,
                tlv::FORWARDING_HINT => hint = element.value,
                tlv::NONCE => fields.nonce = Some(u32::from_be_bytes(element.array()?)),
                tlv::LIFETIME => fields.lifetime_ms = element.number()?,
                tlv::HOP_LIMIT => {
                    let [hops] = element.array()?;
                    fields.hop_limit = Some(hops);
                    hop_limit_at = element.value.as_ptr() as usize - start;
                }
                tlv::PARAMETERS => parameters = Some(element.value),
                _ => {}
            }
            Ok(())
        })?;
        Ok(Interest { bytes: packet.encoded, name, fields, hop_limit_at, hint, parameters })
    }

    /// What it asks for.
    pub fn name(&self) -> Name<'a> {
        self.name
    }

    /// What else it says.
    pub fn fields(&self) -> &InterestFields {
        &self.fields
    }

    /// The whole Interest, without link fields.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Where in [`Interest::bytes`] the hop limit is.
    pub fn hop_limit_at(&self) -> Option<usize> {
        (self.hop_limit_at > 0).then_some(self.hop_limit_at)
    }

    /// The forwarding hint, unread; empty where there is none.
    pub fn forwarding_hint(&self) -> &'a [u8] {
        self.hint
    }

    /// The application's parameters.
    pub fn parameters(&self) -> Option<&'a [u8]> {
        self.parameters
    }

    /// Whether a Data packet of this name answers it, digests of packets left aside.
    pub fn is_satisfied_by(&self, data: &Name<'_>) -> bool {
        match self.fields.can_be_prefix {
            true => self.name.is_prefix_of(data),
            false => self.name.value() == data.value(),
        }
    }
}

/// Selectors of v0.2: any suffix would do unless they bounded it.
fn read_selectors(value: &[u8], fields: &mut InterestFields) -> Result<(), Malformed> {
    fields.can_be_prefix = true;
    for element in Elements(value) {
        let element = element?;
        match element.kind {
            tlv::MUST_BE_FRESH => fields.must_be_fresh = true,
            tlv::MAX_SUFFIX => fields.can_be_prefix = element.number()? > 1,
            _ => {}
        }
    }
    Ok(())
}

/// A Data packet that has been checked.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    bytes: &'a [u8],
    name: Name<'a>,
    content_type: u64,
    freshness_ms: u64,
    content: &'a [u8],
    signature_info: &'a [u8],
    signature_value: &'a [u8],
}

impl<'a> Data<'a> {
    pub(super) fn read(packet: Tlv<'a>) -> Result<Self, Malformed> {
        let empty = &packet.value[..0];
        let mut data = Data {
            bytes: packet.encoded,
            name: first_name(packet.value)?,
            content_type: 0,
            freshness_ms: 0,
            content: empty,
            signature_info: empty,
            signature_value: empty,
        };
        walk(packet.value, data_place, |element| {
            match element.kind {
                tlv::META_INFO => walk(element.value, meta_info_place, |element| {
                    match element.kind {
                        tlv::CONTENT_TYPE => data.content_type = element.number()?,
                        tlv::FRESHNESS => data.freshness_ms = element.number()?,
                        _ => {}
                    }
                    Ok(())
                })?,
                tlv::CONTENT => data.content = element.value,
                tlv::SIGNATURE_INFO => data.signature_info = element.value,
                tlv::SIGNATURE_VALUE => data.signature_value = element.value,
                _ => {}
            }
            Ok(())
        })?;
        Ok(data)
    }

    /// What it is.
    pub fn name(&self) -> Name<'a> {
        self.name
    }

    /// The whole packet, without link fields.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// 0 for plain content, 3 for an application's Nack.
    pub fn content_type(&self) -> u64 {
        self.content_type
    }

    /// For how long after its arrival it is fresh, milliseconds.
    pub fn freshness_ms(&self) -> u64 {
        self.freshness_ms
    }

    /// The content.
    pub fn content(&self) -> &'a [u8] {
        self.content
    }

    /// How it was signed, unread.
    pub fn signature_info(&self) -> &'a [u8] {
        self.signature_info
    }

    /// The signature, unread.
    pub fn signature_value(&self) -> &'a [u8] {
        self.signature_value
    }
}

/// Appends an Interest for a name's encoded components. `None`, and nothing is appended, when it would be
/// longer than [`PACKET_MAX`].
pub fn emit_interest(
    name: &[u8],
    fields: &InterestFields,
    parameters: Option<&[u8]>,
    out: &mut Vec<u8>,
) -> Option<()> {
    let mut value = Vec::with_capacity(name.len() + 40);
    emit_tlv(tlv::NAME, name, &mut value);
    if fields.can_be_prefix {
        emit_tlv(tlv::CAN_BE_PREFIX, &[], &mut value);
    }
    if fields.must_be_fresh {
        emit_tlv(tlv::MUST_BE_FRESH, &[], &mut value);
    }
    if let Some(nonce) = fields.nonce {
        emit_tlv(tlv::NONCE, &nonce.to_be_bytes(), &mut value);
    }
    if fields.lifetime_ms != DEFAULT_LIFETIME_MS {
        emit_number_tlv(tlv::LIFETIME, fields.lifetime_ms, &mut value);
    }
    if let Some(hops) = fields.hop_limit {
        emit_tlv(tlv::HOP_LIMIT, &[hops], &mut value);
    }
    if let Some(parameters) = parameters {
        emit_tlv(tlv::PARAMETERS, parameters, &mut value);
    }
    emit_packet(tlv::INTEREST, &value, out)
}

/// Appends a Data packet for a name's encoded components, with a signature of type 0 (a digest) that is all
/// zeros. `None`, and nothing is appended, when it would be longer than [`PACKET_MAX`].
pub fn emit_data(name: &[u8], freshness_ms: u64, content: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut value = Vec::with_capacity(name.len() + content.len() + 64);
    emit_tlv(tlv::NAME, name, &mut value);
    if freshness_ms > 0 {
        let mut meta_info = Vec::new();
        emit_number_tlv(tlv::FRESHNESS, freshness_ms, &mut meta_info);
        emit_tlv(tlv::META_INFO, &meta_info, &mut value);
    }
    emit_tlv(tlv::CONTENT, content, &mut value);
    emit_tlv(tlv::SIGNATURE_INFO, &[27, 1, 0], &mut value);
    emit_tlv(tlv::SIGNATURE_VALUE, &[0; 32], &mut value);
    emit_packet(tlv::DATA, &value, out)
}

pub(super) fn emit_packet(kind: u32, value: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let before = out.len();
    emit_tlv(kind, value, out);
    if out.len() - before > PACKET_MAX {
        out.truncate(before);
        return None;
    }
    Some(())
}
