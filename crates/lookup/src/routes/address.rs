//! Addresses and prefixes from bytes.
//!
//! The usual forms are parsed by hand; what is rare (an IPv4 tail inside an IPv6 address) is left to
//! std, with which the whole agrees: property tests compare them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{ProblemKind, quote};

/// The first word of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrefixText {
    V4(u32, u8),
    V6(u128, u8),
}

impl PrefixText {
    #[inline]
    pub(super) fn parse(word: &[u8]) -> Result<Self, ProblemKind> {
        let (addr, len) = match word.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&word[..slash], Some(&word[slash + 1..])),
            None => (word, None),
        };
        let length = |max: u8| match len {
            None => Ok(max),
            Some(digits) => parse_len(digits)
                .filter(|len| *len <= max)
                .ok_or_else(|| ProblemKind::Length { found: quote(digits), max }),
        };
        if let Some(addr) = parse_v4(addr) {
            Ok(Self::V4(addr, length(32)?))
        } else if let Some(addr) = parse_v6(addr) {
            Ok(Self::V6(addr, length(128)?))
        } else {
            Err(ProblemKind::Prefix { found: quote(word) })
        }
    }
}

/// An address of either family from text: what `str::parse::<IpAddr>` takes, quicker.
pub fn parse_address(text: &[u8]) -> Option<IpAddr> {
    if let Some(addr) = parse_v4(text) {
        return Some(IpAddr::V4(Ipv4Addr::from_bits(addr)));
    }
    parse_v6(text).map(|addr| IpAddr::V6(Ipv6Addr::from_bits(addr)))
}

fn parse_len(digits: &[u8]) -> Option<u8> {
    if digits.is_empty() || digits.len() > 3 {
        return None;
    }
    digits.iter().try_fold(0_u8, |value, digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit <= 9).then_some(())?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// Four decimal numbers without leading zeros.
#[inline]
fn parse_v4(text: &[u8]) -> Option<u32> {
    if text.len() > 15 {
        return None;
    }
    let (mut addr, mut octet, mut digits, mut dots) = (0_u32, 0_u32, 0_u32, 0_u32);
    for byte in text {
        let digit = u32::from(byte.wrapping_sub(b'0'));
        if digit <= 9 {
            if digits > 0 && octet == 0 {
                return None; // a leading zero
            }
            octet = octet * 10 + digit;
            digits += 1;
            if octet > 255 {
                return None;
            }
        } else if *byte == b'.' && digits > 0 && dots < 3 {
            addr = addr << 8 | octet;
            (octet, digits) = (0, 0);
            dots += 1;
        } else {
            return None;
        }
    }
    (dots == 3 && digits > 0).then_some(addr << 8 | octet)
}

/// Groups of up to four hex digits, `::` once for one or more groups of zeros.
#[inline]
fn parse_v6(text: &[u8]) -> Option<u128> {
    if text.len() > 39 || text.contains(&b'.') {
        // Rare: leave it to std. Nothing longer than 45 bytes is an address.
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= 45)?;
        return text.parse().ok().map(Ipv6Addr::to_bits);
    }
    let mut rest = text;
    let mut addr = 0_u128; // the groups so far, right-aligned
    let mut groups = 0_u32;
    let mut gap = None; // groups before `::`
    if let Some(tail) = rest.strip_prefix(b"::") {
        (gap, rest) = (Some(0), tail);
    }
    while !rest.is_empty() {
        let (mut group, mut digits) = (0_u128, 0);
        while let Some(digit) = rest.first().and_then(|byte| (*byte as char).to_digit(16)) {
            group = group << 4 | u128::from(digit);
            digits += 1;
            rest = &rest[1..];
        }
        if digits == 0 || digits > 4 || groups == 8 {
            return None;
        }
        addr = addr << 16 | group;
        groups += 1;
        match rest {
            [] => {}
            [b':', b':', tail @ ..] if gap.is_none() => (gap, rest) = (Some(groups), tail),
            [b':', tail @ ..] if !tail.is_empty() => rest = tail,
            _ => return None,
        }
    }
    match gap {
        None => (groups == 8).then_some(addr),
        Some(_) if groups > 7 => None,
        Some(before) => {
            let after = groups - before;
            let low = if after == 0 { 0 } else { addr & (u128::MAX >> (128 - 16 * after)) };
            let high = if before == 0 { 0 } else { addr >> (16 * after) << (128 - 16 * before) };
            Some(high | low)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn agrees_with_std(text: &str) -> bool {
        parse_address(text.as_bytes()) == text.parse().ok()
    }

    #[test]
    fn the_ends_of_the_grammar() {
        for text in [
            "",
            "0",
            "0.0.0.0",
            "00.0.0.0",
            "255.255.255.255",
            "256.0.0.0",
            "1.2.3",
            "1.2.3.",
            ".1.2.3",
            "1..2.3",
            "1.2.3.4.5",
            "1.2.3.04",
            "+1.2.3.4",
            "1.2.3.4 ",
            "0000.0.0.0",
            "::",
            ":",
            ":::",
            "::1",
            "1::",
            "1::2::3",
            "1:2:3:4:5:6:7:8",
            "1:2:3:4:5:6:7::",
            "::2:3:4:5:6:7:8",
            "1:2:3:4:5:6:7::8",
            "::1:2:3:4:5:6:7:8",
            "1:2:3:4:5:6:7:8::",
            "1:2:3:4:5:6:7:8:9",
            "1:2:3:4:5:6:7",
            "12345::",
            "g::",
            ":1::",
            "1::2:",
            "1:::2",
            "::ffff:1.2.3.4",
            "1:2:3:4:5:6:1.2.3.4",
            "::1.2.3",
            "fe80::1%eth0",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255",
            "FFFF::aBcD",
            "\u{665}::",
        ] {
            assert!(agrees_with_std(text), "{text:?}: {:?}", parse_address(text.as_bytes()));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn every_address_is_read_back(v4: u32, v6: u128, keep: u128) {
            let v4 = Ipv4Addr::from_bits(v4);
            prop_assert_eq!(parse_address(v4.to_string().as_bytes()), Some(v4.into()));
            // Zero some groups, so that `::` comes up.
            let mask = (0..8).filter(|g| keep >> g & 1 == 1).fold(0, |m, g| m | 0xffff << (16 * g));
            let v6 = Ipv6Addr::from_bits(v6 & mask);
            prop_assert_eq!(parse_address(v6.to_string().as_bytes()), Some(v6.into()));
        }

        #[test]
        fn agrees_on_near_addresses(text in "[0-9a-f:.]{0,20}|([0-9a-f]{0,5}:){0,9}[0-9a-f]{0,5}|([0-9]{0,4}\\.){2,4}[0-9]{1,3}") {
            prop_assert!(agrees_with_std(&text), "{:?}", text);
        }
    }
}
