//! Certificates in DER (RFC 5280): subject, issuer, serial number, validity, names.
//!
//! Reads what it needs of the structure (X.690) and skips the rest; nothing is verified.

use std::fmt::Write;

use sha1::{Digest, Sha1};

use crate::transaction::Certificate;

/// Names of a certificate that are kept.
const NAMES_MAX: usize = 256;

/// Reads values in DER from the front.
#[derive(Clone, Copy)]
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// Tag and content of the next value; of tags of one byte.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, rest) = self.0.split_first()?;
        let (len, rest) = rest.split_first()?;
        let (len, rest) = match len {
            len @ 0..=0x7f => (usize::from(*len), rest),
            count @ 0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(count & 7))?;
                (bytes.iter().fold(0_usize, |len, byte| len << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((*tag, content))
    }

    /// The content of the next value, which has to have this tag.
    fn of(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }

    /// The next value, if it has this tag.
    fn optional(&mut self, tag: u8) -> Option<&'a [u8]> {
        if self.0.first() == Some(&tag) { self.of(tag) } else { None }
    }
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 2;
const OID: u8 = 6;

/// Reads a certificate; of one that is broken there are its bytes and its fingerprint.
pub(super) fn read(der: &[u8]) -> Certificate {
    let mut certificate = Certificate {
        fingerprint: colons(&Sha1::digest(der), false),
        der: der.to_vec(),
        ..Certificate::default()
    };
    certificate.is_read = fields(der, &mut certificate).is_some();
    certificate
}

/// Digits with colons.
fn colons(bytes: &[u8], is_upper: bool) -> String {
    let mut text = String::with_capacity(3 * bytes.len());
    for (number, byte) in bytes.iter().enumerate() {
        if number > 0 {
            text.push(':');
        }
        // A string takes everything.
        let _ = match is_upper {
            false => write!(text, "{byte:02x}"),
            true => write!(text, "{byte:02X}"),
        };
    }
    text
}

fn fields(der: &[u8], certificate: &mut Certificate) -> Option<()> {
    let mut body = Der(Der(der).of(SEQUENCE)?);
    let mut fields = Der(body.of(SEQUENCE)?);
    let _version = fields.optional(0xa0);
    certificate.serial = colons(fields.of(INTEGER)?, true);
    let _algorithm = fields.of(SEQUENCE)?;
    certificate.issuer = name(fields.of(SEQUENCE)?)?;
    let mut validity = Der(fields.of(SEQUENCE)?);
    certificate.not_before = time(validity.next()?)?;
    certificate.not_after = time(validity.next()?)?;
    certificate.subject = name(fields.of(SEQUENCE)?)?;
    let _key = fields.of(SEQUENCE)?;
    fields.optional(0x81);
    fields.optional(0x82);
    if let Some(extensions) = fields.optional(0xa3) {
        alternative_names(extensions, &mut certificate.names);
    }
    Some(())
}

fn alternative_names(extensions: &[u8], names: &mut Vec<String>) -> Option<()> {
    let mut list = Der(Der(extensions).of(SEQUENCE)?);
    while let Some((SEQUENCE, extension)) = list.next() {
        let mut extension = Der(extension);
        let id = extension.of(OID)?;
        let _critical = extension.optional(1);
        let value = extension.of(4)?;
        if id != [0x55, 0x1d, 0x11] {
            continue;
        }
        let mut entries = Der(Der(value).of(SEQUENCE)?);
        while let Some((tag, entry)) = entries.next() {
            // dNSName
            if tag == 0x82 && names.len() < NAMES_MAX {
                names.push(String::from_utf8_lossy(entry).into_owned());
            }
        }
    }
    Some(())
}

/// A distinguished name as `C=…, O=…`.
fn name(sequence: &[u8]) -> Option<String> {
    let mut text = String::new();
    let mut sets = Der(sequence);
    while !sets.0.is_empty() {
        let mut pairs = Der(sets.of(SET)?);
        while !pairs.0.is_empty() {
            let mut pair = Der(pairs.of(SEQUENCE)?);
            let (id, (tag, value)) = (pair.of(OID)?, pair.next()?);
            if !text.is_empty() {
                text.push_str(", ");
            }
            text.push_str(&attribute(id));
            text.push('=');
            text.push_str(&string(tag, value));
        }
    }
    Some(text)
}

/// The name of an attribute as Suricata 7 has it, or its number: `OID(2.5.4.99)`.
fn attribute(id: &[u8]) -> String {
    let known = match id {
        [0x55, 4, 3] => "CN",
        [0x55, 4, 4] => "surname",
        [0x55, 4, 5] => "serialNumber",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 9] => "streetAddress",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        [0x55, 4, 12] => "title",
        [0x55, 4, 13] => "description",
        [0x55, 4, 15] => "businessCategory",
        [0x55, 4, 16] => "postalAddress",
        [0x55, 4, 17] => "postalCode",
        [0x55, 4, 41] => "name",
        [0x55, 4, 42] => "givenName",
        [0x55, 4, 43] => "initials",
        [0x55, 4, 44] => "generationQualifier",
        [0x55, 4, 45] => "uniqueIdentifier",
        [0x55, 4, 46] => "dnQualifier",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1] => "Email",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 2] => "unstructuredName",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25] => "DC",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1] => "uid",
        // Of certificates with extended validation.
        [0x2b, 6, 1, 4, 1, 0x82, 0x37, 60, 2, 1, 1] => "msJurisdictionLocality",
        [0x2b, 6, 1, 4, 1, 0x82, 0x37, 60, 2, 1, 2] => "msJurisdictionStateOrProvince",
        [0x2b, 6, 1, 4, 1, 0x82, 0x37, 60, 2, 1, 3] => "msJurisdictionCountry",
        _ => return format!("OID({})", dotted(id)),
    };
    known.to_owned()
}

fn dotted(id: &[u8]) -> String {
    let mut text = String::new();
    let mut value = 0_u64;
    for byte in id {
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            let _ = match text.is_empty() {
                // The first two numbers are one.
                true => {
                    write!(text, "{}.{}", (value / 40).min(2), value - 40 * (value / 40).min(2))
                }
                false => write!(text, ".{value}"),
            };
            value = 0;
        }
    }
    text
}

fn string(tag: u8, value: &[u8]) -> String {
    match tag {
        // BMPString
        0x1e => {
            let words = value.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            String::from_utf16_lossy(&words.collect::<Vec<_>>())
        }
        // T61String, as most read it
        0x14 => value.iter().map(|byte| char::from(*byte)).collect(),
        _ => String::from_utf8_lossy(value).into_owned(),
    }
}

/// Seconds since 1970 of `UTCTime` or `GeneralizedTime` in `Z`.
fn time((tag, text): (u8, &[u8])) -> Option<i64> {
    let (year_digits, tag_is_known) = (if tag == 0x18 { 4 } else { 2 }, matches!(tag, 0x17 | 0x18));
    let (year, rest) = text.split_at_checked(year_digits).filter(|_| tag_is_known)?;
    let number = |digits: &[u8]| -> Option<i64> {
        digits.iter().try_fold(0, |value, digit| {
            digit.is_ascii_digit().then(|| value * 10 + i64::from(digit - b'0'))
        })
    };
    let year = match number(year)? {
        // RFC 5280 §4.1.2.5.1
        year @ 0..50 if tag == 0x17 => 2000 + year,
        year if tag == 0x17 => 1900 + year,
        year => year,
    };
    let two = |at: usize| number(rest.get(at..at + 2)?);
    let (month, day, hour, minute) = (two(0)?, two(2)?, two(4)?, two(6)?);
    let second = two(8).unwrap_or(0);
    let is_time = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60;
    is_time.then(|| ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second)
}

/// Days since 1970-01-01 in the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years that begin in March have their leap day at the end.
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let era = year.div_euclid(400);
    let in_era = year.rem_euclid(400);
    era * 146_097 + in_era * 365 + in_era / 4 - in_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(time((0x17, b"700101000000Z")), Some(0));
        assert_eq!(time((0x17, b"491231235959Z")), Some(2_524_607_999));
        assert_eq!(time((0x18, b"20240229120000Z")), Some(1_709_208_000));
        assert_eq!(time((0x17, b"5001010000Z")), Some(-631_152_000));
        assert_eq!((time((0x17, b"70")), time((0x17, b"7013010000Z"))), (None, None));
    }

    #[test]
    fn numbers_of_attributes() {
        assert_eq!(dotted(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1]), "1.2.840.113549.1.9.1");
        assert_eq!(dotted(&[0x55, 4, 99]), "2.5.4.99");
        assert_eq!(attribute(&[0x55, 4, 3]), "CN");
        assert_eq!(attribute(&[0x55, 4, 99]), "OID(2.5.4.99)");
    }

    #[test]
    fn broken_ones_are_not_read() {
        for der in [&b""[..], &[0x30], &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff], &[0x30, 2, 0x30, 0]] {
            let certificate = read(der);
            assert!(!certificate.is_read);
            assert_eq!(certificate.fingerprint.len(), 59);
        }
    }
}
