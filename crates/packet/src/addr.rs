//! Link-layer addresses.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A 48-bit IEEE 802 address, in transmission order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct MacAddr(pub [u8; 6]);

/// The text is not six hexadecimal octets separated by `:` or `-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a MAC address such as 02:00:5e:10:00:01")]
pub struct ParseMacError;

impl MacAddr {
    /// `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);
    /// `00:00:00:00:00:00`, never the address of a station.
    pub const ZERO: MacAddr = MacAddr([0; 6]);

    /// Group bit set: multicast, broadcast among them.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// All ones.
    pub const fn is_broadcast(self) -> bool {
        matches!(self.0, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff])
    }

    /// A station's address: no group bit, not zero.
    pub const fn is_unicast(self) -> bool {
        !self.is_multicast() && !matches!(self.0, [0, 0, 0, 0, 0, 0])
    }

    /// The locally administered unicast address that stands for next hop `ip` where no neighbour
    /// can be asked (captures): `02:00` and the four octets of an IPv4 address; `06` and 40 mixed
    /// bits of an IPv6 address. Deterministic, so that the same input gives the same bytes.
    pub const fn for_ip(ip: IpAddr) -> MacAddr {
        match ip {
            IpAddr::V4(v4) => {
                let [a, b, c, d] = v4.octets();
                MacAddr([0x02, 0, a, b, c, d])
            }
            IpAddr::V6(v6) => {
                let bits = u128::from_be_bytes(v6.octets());
                let mut x = (bits >> 64) as u64 ^ (bits as u64).rotate_left(32);
                x = (x ^ (x >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                x ^= x >> 29;
                let [_, _, _, a, b, c, d, e] = x.to_be_bytes();
                MacAddr([0x06, a, b, c, d, e])
            }
        }
    }

    /// The group address that carries IP multicast `ip`: `01:00:5e` and 23 bits (RFC 1112 §6.4),
    /// or `33:33` and 32 bits (RFC 2464 §7). `None` where `ip` is not a multicast address.
    pub const fn for_multicast(ip: IpAddr) -> Option<MacAddr> {
        match ip {
            IpAddr::V4(v4) if v4.is_multicast() => {
                let [_, b, c, d] = v4.octets();
                Some(MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d]))
            }
            IpAddr::V6(v6) if v6.is_multicast() => {
                let o = v6.octets();
                Some(MacAddr([0x33, 0x33, o[12], o[13], o[14], o[15]]))
            }
            _ => None,
        }
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MacAddr {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut octets = [0; 6];
        let mut parts = text.split(separator);
        for octet in &mut octets {
            let part = parts.next().ok_or(ParseMacError)?;
            let digits = part.bytes().all(|b| b.is_ascii_hexdigit());
            if !digits || part.is_empty() || part.len() > 2 {
                return Err(ParseMacError);
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| ParseMacError)?;
        }
        if parts.next().is_some() { Err(ParseMacError) } else { Ok(MacAddr(octets)) }
    }
}

impl From<[u8; 6]> for MacAddr {
    fn from(octets: [u8; 6]) -> Self {
        MacAddr(octets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trip() {
        let mac = MacAddr([0x02, 0, 0x5e, 0x10, 0, 0xff]);
        assert_eq!(mac.to_string(), "02:00:5e:10:00:ff");
        assert_eq!("02:00:5e:10:00:ff".parse(), Ok(mac));
        assert_eq!("2-0-5E-10-0-FF".parse(), Ok(mac));
        for bad in [
            "",
            "02:00:5e:10:00",
            "02:00:5e:10:00:ff:01",
            "02:00:5e:10:00:1ff",
            "g::::",
            "+2:0:0:0:0:0",
        ] {
            assert_eq!(bad.parse::<MacAddr>(), Err(ParseMacError), "{bad}");
        }
    }

    #[test]
    fn derived_addresses_are_local_unicast_and_differ() {
        let ips = ["10.0.0.1", "10.0.0.2", "fe80::1", "fe80::2", "2001:db8::1", "::"];
        let macs: std::collections::BTreeSet<_> =
            ips.iter().map(|ip| MacAddr::for_ip(ip.parse().unwrap())).collect();
        assert_eq!(macs.len(), ips.len());
        for mac in macs {
            assert!(mac.is_unicast() && mac.0[0] & 2 != 0, "{mac}");
        }
        assert_eq!(
            MacAddr::for_multicast("224.128.0.5".parse().unwrap()),
            Some(MacAddr([0x01, 0x00, 0x5e, 0, 0, 5]))
        );
        assert_eq!(
            MacAddr::for_multicast("ff02::1:ff00:7".parse().unwrap()),
            Some(MacAddr([0x33, 0x33, 0xff, 0, 0, 7]))
        );
        assert_eq!(MacAddr::for_multicast("10.0.0.1".parse().unwrap()), None);
    }
}
