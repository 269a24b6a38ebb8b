//! Keys as files have them: DER of PKCS#1 (RFC 8017, appendix A.1), alone or in PKCS#8 (RFC 5958) or SubjectPublicKeyInfo.

/// The identifier of RSA keys, `rsaEncryption`, with its parameters.
const RSA: &[u8] = &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0];

const INTEGER: u8 = 2;
const BIT_STRING: u8 = 3;
const OCTET_STRING: u8 = 4;
const SEQUENCE: u8 = 0x30;

/// The content of a value with this tag, and what is behind it.
fn value(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let [own, first, rest @ ..] = bytes else { return None };
    if *own != tag {
        return None;
    }
    let (len, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => {
            let (len, rest) = rest.split_first_chunk::<2>()?;
            (u16::from_be_bytes(*len).into(), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(len)
}

/// A number that is not negative, without zeros in front.
fn integer<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (mut number, rest) = value(bytes, INTEGER)?;
    *bytes = rest;
    if number.first()? & 0x80 != 0 {
        return None;
    }
    while let [0, less @ ..] = number {
        number = less;
    }
    Some(number)
}

/// What is in a sequence that is all there is.
fn whole(bytes: &[u8]) -> Option<&[u8]> {
    value(bytes, SEQUENCE).filter(|(_, rest)| rest.is_empty()).map(|(own, _)| own)
}

/// Modulus, public exponent, private exponent, the two primes, the two exponents and the coefficient of a private key.
pub(super) fn private(der: &[u8]) -> Option<[&[u8]; 8]> {
    let mut fields = whole(der)?;
    if !integer(&mut fields)?.is_empty() {
        return None; // keys of more than two primes, and other versions
    }
    if let Some((algorithm, rest)) = value(fields, SEQUENCE) {
        // PKCS#8; attributes may follow.
        let (own, _) = value(rest, OCTET_STRING).filter(|_| algorithm == RSA)?;
        fields = whole(own)?;
        if !integer(&mut fields)?.is_empty() {
            return None;
        }
    }
    let mut all = [&[][..]; 8];
    for own in &mut all {
        *own = integer(&mut fields)?;
    }
    fields.is_empty().then_some(all)
}

/// Modulus and public exponent of a public key.
pub(super) fn public(der: &[u8]) -> Option<[&[u8]; 2]> {
    let mut fields = whole(der)?;
    if let Some((algorithm, rest)) = value(fields, SEQUENCE) {
        let (bits, rest) = value(rest, BIT_STRING).filter(|_| algorithm == RSA)?;
        let own = bits.strip_prefix(&[0]).filter(|_| rest.is_empty())?;
        fields = whole(own)?;
    }
    let all = [integer(&mut fields)?, integer(&mut fields)?];
    fields.is_empty().then_some(all)
}
