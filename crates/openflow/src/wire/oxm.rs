//! Matches of OpenFlow 1.3: OXM (section 7.2.3).

use super::Unencodable;
use super::bytes::close;
use super::bytes::{Put, Reader};
use crate::error::ErrorCode;
use crate::field::Field;
use crate::matches::{FieldMatch, Match};

const BASIC: u16 = 0x8000;

/// `ofp_match` with its padding.
pub(super) fn read_match(reader: &mut Reader<'_>) -> Result<Match, ErrorCode> {
    let bad = ErrorCode::BadMatchLen;
    let (kind, len) = (reader.u16()?, usize::from(reader.u16()?));
    if kind != 1 {
        return Err(ErrorCode::BadMatchType);
    }
    let fields = reader.part(len.checked_sub(4).ok_or(bad)?, bad)?;
    reader.skip(len.next_multiple_of(8) - len).map_err(|_| bad)?;
    read_fields(fields)
}

/// The fields of a match: all of `fields`.
pub(super) fn read_fields(mut fields: Reader<'_>) -> Result<Match, ErrorCode> {
    let mut matches = Match::new();
    while !fields.is_empty() {
        let (field, value, mask) = read_field(&mut fields)?;
        if matches.get(field).is_some() {
            return Err(ErrorCode::BadMatchDupField);
        }
        let mask = mask.unwrap_or(field.full());
        if value & !mask != 0 {
            return Err(ErrorCode::BadMatchWildcards);
        }
        if mask & field.full() != field.full() && !field.is_maskable() {
            return Err(ErrorCode::BadMatchMask);
        }
        matches.set(field, value, mask);
        // What a field needs comes before it (section 7.2.3.6).
        if mask != 0 && !matches.provides(field) {
            return Err(ErrorCode::BadMatchPrereq);
        }
    }
    Ok(matches)
}

/// One OXM: its field, its value, its mask where it has one.
pub(super) fn read_field(
    reader: &mut Reader<'_>,
) -> Result<(Field, u128, Option<u128>), ErrorCode> {
    let bad = |_| ErrorCode::BadMatchLen;
    let class = reader.u16().map_err(bad)?;
    let number = reader.u8().map_err(bad)?;
    let len = usize::from(reader.u8().map_err(bad)?);
    let known = Field::from_oxm(number >> 1).filter(|_| class == BASIC);
    let Some(field) = known else { return Err(ErrorCode::BadMatchField) };
    let has_mask = number & 1 != 0;
    if len != field.bytes() * if has_mask { 2 } else { 1 } {
        return Err(ErrorCode::BadMatchLen);
    }
    let value = reader.number(field.bytes()).map_err(bad)?;
    let mask = has_mask.then(|| reader.number(field.bytes())).transpose().map_err(bad)?;
    match value & !field.full() {
        0 => Ok((field, value, mask)),
        _ => Err(ErrorCode::BadMatchValue),
    }
}

/// The OXM of SET_FIELD: no mask.
pub(super) fn read_set_field(reader: &mut Reader<'_>) -> Result<(Field, u128), ErrorCode> {
    match read_field(reader) {
        Ok((field, value, None)) if field.is_settable() => Ok((field, value)),
        Ok(_) | Err(ErrorCode::BadMatchField) => Err(ErrorCode::BadActionSetType),
        Err(ErrorCode::BadMatchLen) => Err(ErrorCode::BadActionSetLen),
        Err(_) => Err(ErrorCode::BadActionSetArgument),
    }
}

pub(super) fn write_match(out: &mut Vec<u8>, matches: &Match) -> Result<(), Unencodable> {
    let start = out.len();
    out.u16(1);
    out.u16(0);
    matches.fields().iter().for_each(|field| write_field(out, field));
    close(out, start, start + 2)?;
    out.pad8(start);
    Ok(())
}

/// One OXM; an exact match without a mask.
pub(super) fn write_field(out: &mut Vec<u8>, matched: &FieldMatch) {
    let (field, bytes) = (matched.field, matched.field.bytes());
    out.u16(BASIC);
    out.u8(field.oxm() << 1 | u8::from(!matched.is_exact()));
    out.u8((bytes * if matched.is_exact() { 1 } else { 2 }) as u8);
    out.number(matched.value, bytes);
    if !matched.is_exact() {
        out.number(matched.mask, bytes);
    }
}
