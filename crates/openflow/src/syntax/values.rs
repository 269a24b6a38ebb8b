//! Values of fields in text.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Parsed, Syntax, Word};
use crate::field::{Field, Form};
use crate::port::PortNo;

/// A number as C writes it: decimal, `0x` hexadecimal, `0` octal.
pub(super) fn number(text: &str) -> Option<u128> {
    let (digits, base) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    // `from_str_radix` takes a sign, too.
    match digits.starts_with('+') {
        true => None,
        false => u128::from_str_radix(digits, base).ok(),
    }
}

/// `aa:bb:cc:dd:ee:ff`.
fn mac(text: &str) -> Option<u128> {
    let mut bytes = text.split(':');
    let mut value = 0;
    for _ in 0..6 {
        let byte = bytes.next().filter(|b| matches!(b.len(), 1 | 2) && !b.starts_with('+'))?;
        value = value << 8 | u128::from(u8::from_str_radix(byte, 16).ok()?);
    }
    bytes.next().is_none().then_some(value)
}

/// A value in the form of its field.
pub(super) fn value(syntax: &Syntax<'_>, field: Field, word: &Word<'_>) -> Parsed<u128> {
    let read = match field.form() {
        Form::Port => return syntax.port(word).map(|port| u128::from(port.0)),
        Form::Mac => mac(word.text),
        Form::Ipv4 => word.text.parse().ok().map(|a: Ipv4Addr| u128::from(u32::from(a))),
        Form::Ipv6 => word.text.parse().ok().map(|a: Ipv6Addr| u128::from(a)),
        Form::Decimal | Form::Hex => number(word.text),
    };
    match read {
        Some(value) if value <= field.full() => Ok(value),
        Some(_) => Err(word.error(&format!("does not fit into {field}"))),
        None => Err(word.error(&format!("is not a value of {field}"))),
    }
}

/// `value`, `value/mask`, of addresses `value/length`; `*`: any value.
pub(super) fn masked(syntax: &Syntax<'_>, field: Field, word: &Word<'_>) -> Parsed<(u128, u128)> {
    if word.text == "*" {
        return Ok((0, 0));
    }
    let (left, right) = word.split_at(&['/']);
    let exact = value(syntax, field, &left)?;
    let Some(right) = right else { return Ok((exact, field.full())) };
    let bits = field.bits();
    let length =
        right.text.parse::<u32>().ok().filter(|_| matches!(field.form(), Form::Ipv4 | Form::Ipv6));
    let mask = match length {
        Some(0) => 0,
        Some(length) if length <= bits => field.full() >> (bits - length) << (bits - length),
        Some(_) => return Err(right.error(&format!("is above {bits}"))),
        // Masks have a number's form where the value is a name.
        None if field.form() == Form::Port => right.number(field.full())?,
        None => value(syntax, field, &right)?,
    };
    if mask & field.full() != field.full() && mask != 0 && !field.is_maskable() {
        return Err(right.error(&format!("is a mask, and {field} takes none")));
    }
    Ok((exact & mask, mask))
}

/// Prints a value in the form of its field.
pub(super) fn write(f: &mut impl fmt::Write, field: Field, value: u128) -> fmt::Result {
    match field.form() {
        Form::Decimal => write!(f, "{value}"),
        Form::Hex if field == Field::Ipv6Flabel => write!(f, "{value:#07x}"),
        Form::Hex => write!(f, "{value:#x}"),
        Form::Port => write!(f, "{}", PortNo(value as u32)),
        Form::Mac => {
            let b = value.to_be_bytes();
            let b = &b[10..];
            write!(
                f,
                "{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}",
                b[0], b[1], b[2], b[3], b[4], b[5]
            )
        }
        Form::Ipv4 => write!(f, "{}", Ipv4Addr::from(value as u32)),
        Form::Ipv6 => write!(f, "{}", Ipv6Addr::from(value)),
    }
}

/// Prints a value with its mask; addresses with a length where the mask is one.
pub(super) fn write_masked(
    f: &mut impl fmt::Write,
    field: Field,
    value: u128,
    mask: u128,
) -> fmt::Result {
    if mask == field.full() {
        return write(f, field, value);
    }
    let open = mask.trailing_zeros();
    let is_prefix = mask == field.full() >> open << open;
    match field.form() {
        Form::Ipv4 | Form::Ipv6 if is_prefix => {
            write(f, field, value)?;
            write!(f, "/{}", field.bits() - open)
        }
        Form::Hex if field == Field::Ipv6Flabel => write!(f, "{value:#07x}/{mask:#07x}"),
        Form::Decimal | Form::Port | Form::Hex => write!(f, "{value:#x}/{mask:#x}"),
        _ => {
            write(f, field, value)?;
            f.write_char('/')?;
            write(f, field, mask)
        }
    }
}
