//! Names behind qualifiers: addresses, networks, ports, protocols.

use std::net::{IpAddr, Ipv4Addr};

use super::FilterError;
use super::lexer::Token;
use super::names::{self, Transport};
use super::parser::{Parser, Protocol, What};
use super::program::{Prefix, Test};
use crate::decode::Kind;
use crate::{EtherType, IpProtocol};

const ADDRESS: &str = "an IPv4 or IPv6 address";
const PREFIX: &str = "a prefix without host bits, such as 10.0.0.0/8, 10.0.0.0 mask 255.0.0.0, 10.1 or 2001:db8::/32";
const PORT: &str = "a port from 0 to 65535, or the name of a service";
const RANGE: &str = "two ports with a hyphen between them, such as 6000-6008";

impl Parser<'_> {
    pub(super) fn host(&mut self, what: What) -> Result<Prefix, FilterError> {
        let address = match self.peek() {
            Token::V6(address) => Some(IpAddr::V6(address)),
            Token::Word(word) => word.parse().ok(),
            Token::Mac(_) => {
                return Err(self.expected(format!("{ADDRESS}; before a MAC address, `ether host`")));
            }
            _ => None,
        };
        let Some(address) = address else {
            return Err(self.expected(match what {
                What::Host => ADDRESS,
                _ => "`host`, `net`, `port` or an address",
            }));
        };
        self.advance();
        if self.is_symbol("/") {
            return Err(self.expected("`and`, `or` or the end; before a prefix, `net`"));
        }
        Ok(prefix(address, 128))
    }

    /// A prefix: with a length, with a mask, or with as many octets as it has.
    pub(super) fn net(&mut self) -> Result<Prefix, FilterError> {
        let at = self.at;
        let found = self.any_net();
        // The whole of it is wrong, so the column is that of its start.
        found.ok_or_else(|| {
            self.at = at;
            self.expected(PREFIX)
        })
    }

    pub(super) fn any_net(&mut self) -> Option<Prefix> {
        let (address, octets) = match self.peek() {
            Token::V6(address) => (IpAddr::V6(address), 16),
            Token::Word(word) => {
                let (bits, octets) = dotted(word)?;
                (IpAddr::V4(bits.into()), octets)
            }
            // One octet, or all 32 bits.
            Token::Number(number) => {
                let octets = (4 - number.leading_zeros() / 8).max(1);
                (IpAddr::V4((number << ((4 - octets) * 8)).into()), octets)
            }
            _ => return None,
        };
        self.advance();
        let is_v4 = address.is_ipv4();
        let prefix = if self.is_symbol("/") {
            self.advance();
            let Token::Number(length) = self.peek() else { return None };
            self.advance();
            prefix(address, Some(length).filter(|length| *length <= if is_v4 { 32 } else { 128 })?)
        } else if self.word(0) == "mask" && is_v4 {
            self.advance();
            let Token::Word(mask) = self.peek() else { return None };
            let mask = mask.parse::<Ipv4Addr>().ok()?;
            self.advance();
            Prefix { mask: u32::from(mask).into(), ..prefix(address, 32) }
        } else {
            prefix(address, octets * 8)
        };
        (prefix.bits & prefix.mask == prefix.bits).then_some(prefix)
    }

    pub(super) fn port(&mut self) -> Result<(u16, Option<IpProtocol>), FilterError> {
        let found = match self.peek() {
            Token::Number(port) => u16::try_from(port).ok().map(|port| (port, None)),
            Token::Word(word) => names::service(word).map(|(port, transport)| match transport {
                Transport::Tcp => (port, Some(IpProtocol::TCP)),
                Transport::Udp => (port, Some(IpProtocol::UDP)),
                Transport::Both => (port, None),
            }),
            _ => None,
        };
        let found = found.ok_or_else(|| self.expected(PORT))?;
        self.advance();
        Ok(found)
    }

    /// `A-B`, or one port. Names may have hyphens themselves.
    pub(super) fn range(&mut self) -> Result<(u16, u16), FilterError> {
        let port =
            |text: &str| text.parse().ok().or_else(|| names::service(text).map(|(port, _)| port));
        let found = match self.peek() {
            Token::Number(port) => u16::try_from(port).ok().map(|port| (port, port)),
            Token::Word(word) => {
                let mut hyphens = word.match_indices('-');
                hyphens.find_map(|(at, _)| Some((port(&word[..at])?, port(&word[at + 1..])?)))
            }
            _ => None,
        };
        let found = found.ok_or_else(|| self.expected(RANGE))?;
        self.advance();
        Ok(found)
    }

    /// A protocol behind `proto`, `ip proto`, `ip6 proto` or `ether proto`.
    pub(super) fn proto(&mut self, of: Option<Protocol>) -> Result<Test, FilterError> {
        let (test, expected) = if of == Some(Protocol::Ether) {
            let number = match self.peek() {
                // Below, the field is a length.
                Token::Number(number @ 0x600..=0xffff) => Some(number as u16),
                Token::Word(word) => names::ethertype(word),
                _ => None,
            };
            let expected = "an EtherType from 0x600 to 0xffff, or ip, ip6, arp or rarp";
            (number.map(|number| Test::EtherType(EtherType(number))), expected)
        } else {
            let kind = match of {
                Some(Protocol::Network(EtherType::IPV4)) => Some(Kind::Ipv4),
                Some(Protocol::Network(EtherType::IPV6)) => Some(Kind::Ipv6),
                _ => None,
            };
            let number = match self.peek() {
                Token::Number(number) => u8::try_from(number).ok(),
                Token::Word(word) => names::protocol(word),
                _ => None,
            };
            let expected = "a protocol from 0 to 255, or its name, such as tcp, ospf or gre";
            (number.map(|number| Test::Protocol(kind, IpProtocol(number))), expected)
        };
        let test = test.ok_or_else(|| self.expected(expected))?;
        self.advance();
        Ok(test)
    }
}

/// One to four octets with points, from the left, and how many.
fn dotted(word: &str) -> Option<(u32, u32)> {
    let (mut bits, mut octets) = (0u32, 0);
    for part in word.split('.') {
        let is_plain = part.bytes().all(|byte| byte.is_ascii_digit()) && octets < 4;
        let octet = part.parse::<u8>().ok().filter(|_| is_plain)?;
        bits |= u32::from(octet) << (24 - octets * 8);
        octets += 1;
    }
    Some((bits, octets))
}

/// `length` beyond the family's is all of it.
fn prefix(address: IpAddr, length: u32) -> Prefix {
    let (is_v6, bits, width) = match address {
        IpAddr::V4(v4) => (false, u128::from(u32::from(v4)), 32),
        IpAddr::V6(v6) => (true, u128::from(v6), 128),
    };
    let all = u128::MAX >> (128 - width);
    let host_bits = width - length.min(width);
    let mask = if host_bits == 128 { 0 } else { all >> host_bits << host_bits };
    Prefix { is_v6, bits, mask }
}
