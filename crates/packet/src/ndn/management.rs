//! NFD's management protocol, as far as routes for names go: commands in Interests, and their answers in Data.
//!
//! A *control command* is an Interest whose name says what is to be done, with what, and who says so:
//!
//! ```text
//! /localhop/nfd/rib/register/<ControlParameters>/params-sha256=…       signed Interest, format 0.3
//! /localhop/nfd/rib/register/<ControlParameters>/<timestamp>/<nonce>/<SignatureInfo>/<SignatureValue>   the older form
//! ```
//!
//! The answer is Data of the same name, with a *ControlResponse*: a code as HTTP has them, a text, and the parameters as
//! they were applied. (NFD Management Protocol, "Control Command", "RIB Management"; Packet Format 0.3 §5.4.)
//!
//! A signature that is a digest (type 0) is checked; it says that the command is whole, not who sent it. A signature by a
//! key is taken as it is: whoever lets strangers register prefixes does not know their keys.

use super::name::Name;
use super::packets::Interest;
use super::tlv::{self, Elements, Malformed, Tlv, emit_number_tlv, emit_tlv};
use super::{digest, packets};

const CONTROL_RESPONSE: u32 = 101;
const STATUS_CODE: u32 = 102;
const STATUS_TEXT: u32 = 103;
const CONTROL_PARAMETERS: u32 = 104;
const FACE_ID: u32 = 105;
const COST: u32 = 106;
const ROUTE_FLAGS: u32 = 108;
const EXPIRATION_PERIOD: u32 = 109;
const ORIGIN: u32 = 111;
const SIGNATURE_TYPE: u32 = 27;

/// How far a name goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// As far as there are routes.
    Global,
    /// To the next forwarder: `/localhop`.
    Hop,
    /// Nowhere beyond the host: `/localhost`.
    Host,
}

/// How far a name goes.
pub fn scope(name: &Name<'_>) -> Scope {
    match name.encodings().next() {
        Some(b"\x08\x08localhop") => Scope::Hop,
        Some(b"\x08\x09localhost") => Scope::Host,
        _ => Scope::Global,
    }
}

/// Whether a name is that of a command to this forwarder: it begins with `/localhop/nfd`.
pub fn is_command(name: &Name<'_>) -> bool {
    scope(name) == Scope::Hop && name.encodings().nth(1) == Some(b"\x08\x03nfd")
}

/// What a command is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters<'a> {
    /// A prefix of names.
    pub name: Option<Name<'a>>,
    /// A face; 0, or none: the one that the command came by.
    pub face_id: Option<u64>,
    /// Who made the route.
    pub origin: Option<u64>,
    /// Of several routes the one with the least.
    pub cost: Option<u64>,
    /// How the route applies to longer names.
    pub flags: Option<u64>,
    /// For how long the route is wanted, milliseconds.
    pub expiration_ms: Option<u64>,
}

impl<'a> Parameters<'a> {
    fn read(value: &'a [u8]) -> Result<Self, Malformed> {
        let mut all = Self::default();
        for element in Elements(value) {
            let element = element?;
            match element.kind {
                tlv::NAME => all.name = Some(Name::new_checked(element.value)?),
                FACE_ID => all.face_id = Some(element.number()?),
                ORIGIN => all.origin = Some(element.number()?),
                COST => all.cost = Some(element.number()?),
                ROUTE_FLAGS => all.flags = Some(element.number()?),
                EXPIRATION_PERIOD => all.expiration_ms = Some(element.number()?),
                _ => {} // of other commands
            }
        }
        Ok(all)
    }

    fn emit(&self, out: &mut Vec<u8>) {
        let mut value = Vec::new();
        if let Some(name) = &self.name {
            emit_tlv(tlv::NAME, name.value(), &mut value);
        }
        let numbers = [
            (FACE_ID, self.face_id),
            (ORIGIN, self.origin),
            (COST, self.cost),
            (ROUTE_FLAGS, self.flags),
            (EXPIRATION_PERIOD, self.expiration_ms),
        ];
        for (kind, number) in numbers {
            if let Some(number) = number {
                emit_number_tlv(kind, number, &mut value);
            }
        }
        emit_tlv(CONTROL_PARAMETERS, &value, out);
    }
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// `rib`.
    pub module: &'a [u8],
    /// `register`.
    pub verb: &'a [u8],
    /// With what.
    pub parameters: Parameters<'a>,
}

/// What is wrong with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// A part of it cannot be read.
    #[error("malformed command")]
    Malformed,
    /// There is no signature.
    #[error("the command is not signed")]
    NotSigned,
    /// Its digest, or that of its parameters, is another one.
    #[error("the digest of the command is wrong")]
    WrongDigest,
}

impl From<Malformed> for CommandError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl<'a> Command<'a> {
    /// Reads a command whose name [`is_command`], and checks its digests.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(interest: &Interest<'a>) -> Result<Self, CommandError> {
        let name = interest.name();
        let mut parts = name.components().skip(2);
        let mut generic = || parts.next().filter(|part| part.kind == tlv::GENERIC);
        let (module, verb) =
            (generic().ok_or(CommandError::Malformed)?, generic().ok_or(CommandError::Malformed)?);
        let parameters = generic().ok_or(CommandError::Malformed)?;
        let parameters = only(parameters.value, CONTROL_PARAMETERS)?;
        let parameters = Parameters::read(parameters.value)?;
        if name.components().last().is_some_and(|last| last.kind == tlv::PARAMETERS_DIGEST) {
            check_signed(interest)?;
        } else {
            check_old(&name)?;
        }
        Ok(Self { module: module.value, verb: verb.value, parameters })
    }
}

/// The one element that is all of some bytes.
fn only(bytes: &[u8], kind: u32) -> Result<Tlv<'_>, CommandError> {
    match tlv::read_tlv(bytes)? {
        (element, []) if element.kind == kind => Ok(element),
        _ => Err(CommandError::Malformed),
    }
}

/// A signed Interest of format 0.3: the digest of its parameters, and its signature.
fn check_signed(interest: &Interest<'_>) -> Result<(), CommandError> {
    let (packet, _) = tlv::read_tlv(interest.bytes())?;
    let (mut signed, mut rest, mut info, mut signature) = (Vec::new(), &[][..], None, None);
    for component in interest.name().components() {
        if component.kind != tlv::PARAMETERS_DIGEST {
            signed.extend_from_slice(component.encoded);
        }
    }
    for element in Elements(packet.value) {
        let element = element?;
        match element.kind {
            tlv::PARAMETERS if rest.is_empty() => {
                let from = element.encoded.as_ptr().addr() - packet.encoded.as_ptr().addr();
                rest = &packet.encoded[from..];
                signed.extend_from_slice(element.encoded);
            }
            tlv::INTEREST_SIGNATURE_INFO => {
                signed.extend_from_slice(element.encoded);
                info = Some(element.value);
            }
            tlv::INTEREST_SIGNATURE_VALUE => signature = Some(element.value),
            _ => {}
        }
    }
    let last = interest.name().components().last().map_or(&[][..], |last| last.value);
    if digest(rest) != *last {
        return Err(CommandError::WrongDigest);
    }
    let (info, signature) = info.zip(signature).ok_or(CommandError::NotSigned)?;
    check_signature(info, signature, &signed)
}

/// The older form: the signature is in the name.
fn check_old(name: &Name<'_>) -> Result<(), CommandError> {
    // Prefix, module, verb, parameters; timestamp, nonce, SignatureInfo, SignatureValue.
    if name.len() != 9 {
        return Err(CommandError::NotSigned);
    }
    let mut last = name.components().skip(7);
    let (Some(info), Some(value)) = (last.next(), last.next()) else {
        return Err(CommandError::NotSigned);
    };
    let signature = only(value.value, tlv::SIGNATURE_VALUE)?;
    let info = only(info.value, tlv::SIGNATURE_INFO)?;
    let signed = &name.value()[..name.value().len() - value.encoded.len()];
    check_signature(info.value, signature.value, signed)
}

fn check_signature(info: &[u8], signature: &[u8], signed: &[u8]) -> Result<(), CommandError> {
    let mut kind = None;
    for element in Elements(info) {
        let element = element?;
        if element.kind == SIGNATURE_TYPE {
            kind = Some(element.number()?);
        }
    }
    match kind {
        Some(0) if digest(signed) != *signature => Err(CommandError::WrongDigest),
        Some(_) => Ok(()),
        None => Err(CommandError::Malformed),
    }
}

/// The answer to a command, as content of Data.
pub fn response(code: u16, text: &str, parameters: Option<&Parameters<'_>>) -> Vec<u8> {
    let (mut value, mut out) = (Vec::new(), Vec::new());
    emit_number_tlv(STATUS_CODE, code.into(), &mut value);
    emit_tlv(STATUS_TEXT, text.as_bytes(), &mut value);
    if let Some(parameters) = parameters {
        parameters.emit(&mut value);
    }
    emit_tlv(CONTROL_RESPONSE, &value, &mut out);
    out
}

/// The Data that answers a command: of the command's name, fresh for a second, signed with a digest. `None` if it would be
/// longer than any packet.
pub fn answer(name: &Name<'_>, content: &[u8]) -> Option<Vec<u8>> {
    let mut signed = Vec::new();
    emit_tlv(tlv::NAME, name.value(), &mut signed);
    let mut meta_info = Vec::new();
    emit_number_tlv(tlv::FRESHNESS, 1000, &mut meta_info);
    emit_tlv(tlv::META_INFO, &meta_info, &mut signed);
    emit_tlv(tlv::CONTENT, content, &mut signed);
    emit_tlv(tlv::SIGNATURE_INFO, &[SIGNATURE_TYPE as u8, 1, 0], &mut signed);
    let signature = digest(&signed);
    emit_tlv(tlv::SIGNATURE_VALUE, &signature, &mut signed);
    let mut out = Vec::new();
    packets::emit_packet(tlv::DATA, &signed, &mut out)?;
    Some(out)
}
