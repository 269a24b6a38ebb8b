//! Names as people write them (NDN Packet Format §2, "NDN URI Scheme").
//!
//! `/a/b%20c`: generic components, unreserved characters as they are, others as `%XX`. Another type is in
//! front: `54=%01`; `sha256digest=` and `params-sha256=` take hexadecimal digits. A component of nothing
//! but periods is written with three more, so that no component looks like `.` or `..`.

use std::fmt;

use super::name::{Component, Name};
use super::tlv::{self, emit_tlv};

/// A name of its own: its components' encodings.
#[derive(Clone, Debug, PartialEq, Eq, Default, Hash, PartialOrd, Ord)]
pub struct NameBuf {
    value: Vec<u8>,
}

/// Why a text is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum UriError {
    /// It does not begin with a slash.
    #[error("a name begins with `/`")]
    NoSlash,
    /// Two slashes in a row.
    #[error("a component is empty (an empty one is written `...`)")]
    Empty,
    /// One or two periods.
    #[error("`.` and `..` are not components (periods are written with three more)")]
    Periods,
    /// `%` without two hexadecimal digits.
    #[error("`%` is not followed by two hexadecimal digits")]
    Percent,
    /// What is before `=` is not a type.
    #[error(
        "the text before `=` is not a component type: 1 to 65535, sha256digest or params-sha256"
    )]
    Type,
    /// A digest that is not hexadecimal.
    #[error("a digest must consist of pairs of hexadecimal digits")]
    Digest,
}

impl NameBuf {
    /// The name of no components.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a URI, with or without `ndn:`. A slash at the end is allowed.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_uri(uri: &[u8]) -> Result<Self, UriError> {
        let mut name = Self::new();
        name.read_uri(uri)?;
        Ok(name)
    }

    /// As [`NameBuf::from_uri`], into this name's memory; on an error it holds the components before it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read_uri(&mut self, uri: &[u8]) -> Result<(), UriError> {
        self.value.clear();
        let path = uri.strip_prefix(b"ndn:").unwrap_or(uri);
        let path = path.strip_prefix(b"/").ok_or(UriError::NoSlash)?;
        if path.is_empty() {
            return Ok(());
        }
        let path = path.strip_suffix(b"/").unwrap_or(path);
        path.split(|byte| *byte == b'/').try_for_each(|text| self.read_component(text))
    }

    fn read_component(&mut self, text: &[u8]) -> Result<(), UriError> {
        let (kind, text) = match text.iter().position(|byte| *byte == b'=') {
            None => (tlv::GENERIC, text),
            Some(at) => (component_type(&text[..at])?, &text[at + 1..]),
        };
        if kind == tlv::IMPLICIT_DIGEST || kind == tlv::PARAMETERS_DIGEST {
            let (pairs, []) = text.as_chunks::<2>() else { return Err(UriError::Digest) };
            let bytes: Option<Vec<u8>> = pairs.iter().map(hex).collect();
            self.push(kind, &bytes.ok_or(UriError::Digest)?);
            return Ok(());
        }
        if text.is_empty() {
            return Err(UriError::Empty);
        }
        if text.iter().all(|byte| *byte == b'.') {
            let periods = text.len().checked_sub(3).ok_or(UriError::Periods)?;
            self.push(kind, &text[..periods]);
            return Ok(());
        }
        if !text.contains(&b'%') {
            self.push(kind, text);
            return Ok(());
        }
        let (mut value, mut rest) = (Vec::with_capacity(text.len()), text);
        while let Some((first, after)) = rest.split_first() {
            rest = after;
            if *first != b'%' {
                value.push(*first);
                continue;
            }
            let (digits, after) = rest.split_first_chunk::<2>().ok_or(UriError::Percent)?;
            value.push(hex(digits).ok_or(UriError::Percent)?);
            rest = after;
        }
        self.push(kind, &value);
        Ok(())
    }

    /// Adds a component of a type from 1 to 65,535.
    pub fn push(&mut self, kind: u32, value: &[u8]) {
        emit_tlv(kind.clamp(1, 0xffff), value, &mut self.value);
    }

    /// Adds a generic component.
    pub fn push_generic(&mut self, value: &[u8]) {
        self.push(tlv::GENERIC, value);
    }

    /// The name.
    pub fn name(&self) -> Name<'_> {
        Name::new_checked(&self.value).unwrap_or_default() // made of elements
    }
}

fn component_type(text: &[u8]) -> Result<u32, UriError> {
    match text {
        b"sha256digest" => return Ok(tlv::IMPLICIT_DIGEST),
        b"params-sha256" => return Ok(tlv::PARAMETERS_DIGEST),
        _ => {}
    }
    let text = std::str::from_utf8(text).map_err(|_| UriError::Type)?;
    let plain = !text.starts_with(['0', '+']);
    text.parse::<u16>().ok().filter(|_| plain).map(u32::from).ok_or(UriError::Type)
}

fn hex(digits: &[u8; 2]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(digits[0])? << 4 | digit(digits[1])?) as u8)
}

/// The URI, without `ndn:`.
impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("/");
        }
        self.components().try_for_each(|component| {
            f.write_str("/")?;
            write_component(&component, f)
        })
    }
}

/// The URI, without `ndn:`.
impl fmt::Display for NameBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}

fn write_component(component: &Component<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let digest = match component.kind {
        tlv::GENERIC => None,
        tlv::IMPLICIT_DIGEST => Some("sha256digest="),
        tlv::PARAMETERS_DIGEST => Some("params-sha256="),
        other => {
            write!(f, "{other}=")?;
            None
        }
    };
    if let Some(word) = digest {
        f.write_str(word)?;
        return component.value.iter().try_for_each(|byte| write!(f, "{byte:02x}"));
    }
    if component.value.iter().all(|byte| *byte == b'.') {
        f.write_str("...")?;
    }
    component.value.iter().try_for_each(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            write!(f, "{}", char::from(*byte))
        }
        other => write!(f, "%{other:02X}"),
    })
}
