//! What is made of a buffer before it is looked into.

use md5::Digest;
use signatures::{Base64Mode, Transform};

/// Whether a transform is evaluated here.
pub(crate) fn check(transform: &Transform) -> Result<(), String> {
    match transform {
        Transform::Domain => Err("transform domain".to_owned()),
        Transform::Tld => Err("transform tld".to_owned()),
        Transform::Pcre(_) => Err("transform pcrexform".to_owned()),
        _ => Ok(()),
    }
}

/// Applies all, one after the other; the result is in `bytes`.
pub(crate) fn apply(transforms: &[Transform], bytes: &mut Vec<u8>) {
    for transform in transforms {
        one(transform, bytes);
    }
}

fn one(transform: &Transform, bytes: &mut Vec<u8>) {
    match transform {
        Transform::CompressWhitespace => {
            bytes.dedup_by(|now, before| is_space(*now) && is_space(*before));
            bytes.iter_mut().filter(|b| is_space(**b)).for_each(|b| *b = b' ');
        }
        Transform::StripWhitespace => bytes.retain(|b| !is_space(*b)),
        Transform::StripPseudoHeaders => {
            let kept = bytes.split_inclusive(|b| *b == b'\n').filter(|line| line[0] != b':');
            *bytes = kept.flatten().copied().collect();
        }
        Transform::DotPrefix => bytes.insert(0, b'.'),
        Transform::ToLowercase => bytes.make_ascii_lowercase(),
        Transform::ToUppercase => bytes.make_ascii_uppercase(),
        Transform::HeaderLowercase => {
            let mut is_name = true;
            for byte in bytes.iter_mut() {
                match *byte {
                    b'\n' => is_name = true,
                    b':' => is_name = false,
                    _ if is_name => byte.make_ascii_lowercase(),
                    _ => {}
                }
            }
        }
        Transform::ToMd5 => *bytes = md5::Md5::digest(&bytes[..]).to_vec(),
        Transform::ToSha1 => *bytes = sha1::Sha1::digest(&bytes[..]).to_vec(),
        Transform::ToSha256 => *bytes = sha2::Sha256::digest(&bytes[..]).to_vec(),
        Transform::UrlDecode => url_decode(bytes),
        Transform::Xor(key) => {
            if !key.is_empty() {
                bytes.iter_mut().zip(key.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
            }
        }
        Transform::FromBase64 { bytes: most, offset, mode } => {
            let from = offset.unwrap_or(0) as usize;
            let encoded = bytes.get(from..).unwrap_or_default();
            let encoded = &encoded[..encoded.len().min(most.unwrap_or(u32::MAX) as usize)];
            let mode = mode.unwrap_or(Base64Mode::Rfc4648);
            *bytes = base64(encoded, mode);
        }
        Transform::Domain | Transform::Tld | Transform::Pcre(_) => {}
    }
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

fn url_decode(bytes: &mut Vec<u8>) {
    let (mut from, mut to) = (0, 0);
    while from < bytes.len() {
        let digit = |at: usize| char::from(*bytes.get(at)?).to_digit(16);
        let hex = (bytes[from] == b'%').then(|| Some(digit(from + 1)? << 4 | digit(from + 2)?));
        let (byte, len) = match (hex.flatten(), bytes[from]) {
            (Some(byte), _) => (byte as u8, 3),
            (None, b'+') => (b' ', 1),
            (None, byte) => (byte, 1),
        };
        bytes[to] = byte;
        (from, to) = (from + len, to + 1);
    }
    bytes.truncate(to);
}

/// RFC 4648 §4. Characters of no alphabet end it, are passed over (RFC 2045) or make it nothing (strict).
pub(crate) fn base64(encoded: &[u8], mode: Base64Mode) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(encoded.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in encoded {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => break,
            _ if mode == Base64Mode::Rfc2045 => continue,
            _ if mode == Base64Mode::Strict => return Vec::new(),
            _ => break,
        };
        (bits, count) = (bits << 6 | u32::from(value), count + 1);
        if count % 4 != 1 {
            decoded.push((bits >> ((4 - count % 4) % 4 * 2)) as u8);
        }
    }
    let is_cut = mode == Base64Mode::Strict && !encoded.len().is_multiple_of(4);
    if is_cut { Vec::new() } else { decoded }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply_to(transform: Transform, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        apply(&[transform], &mut bytes);
        bytes
    }

    #[test]
    fn each_of_them() {
        let base64 = |mode| Transform::FromBase64 { bytes: None, offset: None, mode: Some(mode) };
        let cases: &[(Transform, &[u8], &[u8])] = &[
            (Transform::CompressWhitespace, b"a \t b\n", b"a b "),
            (Transform::StripWhitespace, b"a \t b\n", b"ab"),
            (Transform::DotPrefix, b"a.b", b".a.b"),
            (Transform::StripPseudoHeaders, b":path: /\r\nhost: a\r\n", b"host: a\r\n"),
            (Transform::HeaderLowercase, b"Host: A\r\nX-Y: B", b"host: A\r\nx-y: B"),
            (Transform::UrlDecode, b"a%20b+c%4", b"a b c%4"),
            (Transform::Xor(vec![1, 2]), b"\x01\x02\x03", b"\0\0\x02"),
            (base64(Base64Mode::Rfc4648), b"SGVsbG8gd29ybGQ=", b"Hello world"),
            (base64(Base64Mode::Rfc4648), b"SGVs*G8", b"Hel"),
            (base64(Base64Mode::Rfc2045), b"SGV\r\nsbG8=", b"Hello"),
            (base64(Base64Mode::Strict), b"SGV*", b""),
        ];
        for (transform, bytes, expected) in cases {
            assert_eq!(apply_to(transform.clone(), bytes), *expected, "{transform:?}");
        }
        assert_eq!(apply_to(Transform::ToMd5, b"")[..4], [0xd4, 0x1d, 0x8c, 0xd9]);
        assert_eq!(apply_to(Transform::ToSha1, b"abc")[..4], [0xa9, 0x99, 0x3e, 0x36]);
        assert_eq!(apply_to(Transform::ToSha256, b"abc")[..4], [0xba, 0x78, 0x16, 0xbf]);
    }
}
