//! A small packet-filter language for captures, after tcpdump's.
//!
//! ```text
//! expression = term { ( "and" | "&&" | "or" | "||" ) term }
//! term       = ( "not" | "!" ) term | "(" expression ")" | test
//! test       = [ protocol ] [ "src" | "dst" ] ( "host" ADDRESS | "net" PREFIX | "port" NUMBER )
//!            | [ "src" | "dst" ] ADDRESS | protocol
//!            | "vlan" [ IDENTIFIER ] | "less" BYTES | "greater" BYTES
//! protocol   = "ip" | "ip6" | "arp" | "tcp" | "udp" | "icmp" | "icmp6" | "esp"
//! ```
//!
//! As in tcpdump, `and` and `or` bind equally and from left to right, `not` binds tighter, `less`
//! and `greater` include their bound, and `host` also looks into ARP. Unlike there, `vlan` does not
//! shift what the tests behind it look at: tags are seen through anyhow.
//!
//! The expression becomes a postfix program that runs on a stack of bits: bounded work, no
//! recursion. A filter is read-only once parsed: any thread.

use crate::IpProtocol;
use crate::arp::ArpView;
use crate::decode::{Decoded, Kind};
use std::net::{IpAddr, Ipv4Addr};

/// Parentheses within parentheses.
const DEPTH_MAX: usize = 64;
/// Bits of the stack: one for each open parenthesis, and two operands.
const STACK_BITS: u32 = u128::BITS;
const _: () = assert!(DEPTH_MAX + 2 <= STACK_BITS as usize);

/// A parsed expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    program: Vec<Op>,
}

/// Where an expression went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: expected {expected}")]
pub struct FilterError {
    /// Character, counted from 1.
    pub column: usize,
    /// What could be there.
    pub expected: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Test(Test),
    Not,
    And,
    Or,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    Net(Side, Prefix),
    Port(Side, u16),
    Kind(Kind),
    Protocol(Option<Kind>, IpProtocol),
    Vlan(Option<u16>),
    Less(usize),
    Greater(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Src,
    Dst,
    Either,
}

/// Addresses as 128 bits; IPv4 in the low 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Prefix {
    is_v6: bool,
    bits: u128,
    mask: u128,
}

impl Filter {
    /// Parses `text`; the empty text matches everything.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        let mut parser = Parser { tokens: tokens(text), at: 0, program: Vec::new(), depth: 0 };
        if parser.tokens.len() > 1 {
            parser.expression()?;
            if parser.peek() != "" {
                return Err(parser.expected("`and`, `or` or the end"));
            }
        }
        Ok(Filter { program: parser.program })
    }

    /// Whether the frame matches; `frame` is the whole of it.
    pub fn matches(&self, decoded: &Decoded, frame: &[u8]) -> bool {
        self.matches_cell(decoded, frame, frame.len())
    }

    /// [`Filter::matches`] where `cell` may be only the start of a frame of `frame_len` bytes.
    pub fn matches_cell(&self, decoded: &Decoded, cell: &[u8], frame_len: usize) -> bool {
        let mut stack = 1u128; // the empty program leaves this: true
        for op in &self.program {
            match op {
                Op::Test(test) => {
                    stack = stack << 1 | u128::from(test.holds(decoded, cell, frame_len));
                }
                Op::Not => stack ^= 1,
                Op::And => stack = stack >> 1 & (stack | !1),
                Op::Or => stack = stack >> 1 | stack & 1,
            }
        }
        stack & 1 != 0
    }
}

impl Test {
    fn holds(&self, d: &Decoded, cell: &[u8], frame_len: usize) -> bool {
        match *self {
            Test::Net(side, prefix) => {
                let Some((is_v6, src, dst)) = addresses(d, cell) else { return false };
                is_v6 == prefix.is_v6
                    && side.any(src & prefix.mask == prefix.bits, dst & prefix.mask == prefix.bits)
            }
            Test::Port(side, port) => {
                d.ports().is_some_and(|(src, dst)| side.any(src == port, dst == port))
            }
            Test::Kind(kind) => d.kind == kind,
            Test::Protocol(kind, protocol) => {
                d.protocol == protocol && kind.map_or(d.is_ip(), |kind| d.kind == kind)
            }
            Test::Vlan(None) => d.vlan_count > 0,
            Test::Vlan(id) => d.vlan_id() == id || (d.vlan_count > 1 && d.inner_vlan_id() == id),
            Test::Less(len) => frame_len <= len,
            Test::Greater(len) => frame_len >= len,
        }
    }
}

impl Side {
    fn any(self, src: bool, dst: bool) -> bool {
        match self {
            Side::Src => src,
            Side::Dst => dst,
            Side::Either => src || dst,
        }
    }
}

/// Family, source and destination; of ARP the sender's and the target's address.
fn addresses(d: &Decoded, cell: &[u8]) -> Option<(bool, u128, u128)> {
    let wide = |words: [u64; 2]| u128::from(words[0]) << 64 | u128::from(words[1]);
    match d.kind {
        Kind::Ipv4 => Some((false, wide(d.src), wide(d.dst))),
        Kind::Ipv6 => Some((true, wide(d.src), wide(d.dst))),
        Kind::Arp => {
            let arp = ArpView::new_checked(cell.get(usize::from(d.l3_offset)..)?)?;
            let wide = |ip: Ipv4Addr| u128::from(u32::from(ip));
            Some((false, wide(arp.sender_ip()), wide(arp.target_ip())))
        }
        Kind::Other => None,
    }
}

/// Words with the column of each; the last is empty and marks the end.
fn tokens(text: &str) -> Vec<(usize, &str)> {
    let mut tokens = Vec::new();
    let mut rest = text;
    let mut column = 1;
    loop {
        let trimmed = rest.trim_start();
        column += rest.chars().count() - trimmed.chars().count();
        let word_len = match trimmed.as_bytes() {
            [b'(' | b')' | b'!', ..] => 1,
            [b'&', b'&', ..] | [b'|', b'|', ..] => 2,
            _ => {
                let ends = |c: char| c.is_whitespace() || "()!&|".contains(c);
                // A lone `&` or `|` is a word of its own, so that the loop moves on.
                let len = trimmed.find(ends).unwrap_or(trimmed.len());
                if len == 0 { trimmed.chars().next().map_or(0, char::len_utf8) } else { len }
            }
        };
        let (word, behind) = trimmed.split_at(word_len);
        tokens.push((column, word));
        if word.is_empty() {
            return tokens;
        }
        column += word.chars().count();
        rest = behind;
    }
}

struct Parser<'a> {
    tokens: Vec<(usize, &'a str)>,
    at: usize,
    program: Vec<Op>,
    depth: usize,
}

impl<'a> Parser<'a> {
    /// The next word; empty at the end.
    fn peek(&self) -> &'a str {
        self.tokens.get(self.at).map_or("", |(_, word)| word)
    }

    /// The last word stays, so that errors at the end have a column.
    fn advance(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }

    fn take(&mut self, words: &[&str]) -> bool {
        let found = words.contains(&self.peek());
        if found {
            self.advance();
        }
        found
    }

    fn expected(&self, expected: &str) -> FilterError {
        let column = self.tokens.get(self.at).map_or(1, |(column, _)| *column);
        FilterError { column, expected: expected.to_owned() }
    }

    fn expression(&mut self) -> Result<(), FilterError> {
        self.term()?;
        loop {
            let op = match self.peek() {
                "and" | "&&" => Op::And,
                "or" | "||" => Op::Or,
                _ => return Ok(()),
            };
            self.advance();
            self.term()?;
            self.program.push(op);
        }
    }

    fn term(&mut self) -> Result<(), FilterError> {
        let mut negate = false;
        while self.take(&["not", "!"]) {
            negate = !negate;
        }
        if self.peek() == "(" {
            if self.depth == DEPTH_MAX {
                return Err(self.expected("at most 64 nested parentheses"));
            }
            self.advance();
            self.depth += 1;
            self.expression()?;
            self.depth -= 1;
            if !self.take(&[")"]) {
                return Err(self.expected("`and`, `or` or `)`"));
            }
        } else {
            self.test()?;
        }
        if negate {
            self.program.push(Op::Not);
        }
        Ok(())
    }

    fn test(&mut self) -> Result<(), FilterError> {
        if self.take(&["vlan"]) {
            let id = if self.peek().starts_with(|c: char| c.is_ascii_digit()) {
                Some(self.number("a VLAN identifier from 0 to 4095", 4095)? as u16)
            } else {
                None
            };
            self.push(Test::Vlan(id));
            return Ok(());
        }
        if self.take(&["less"]) {
            let len = self.number("a length in bytes", u32::MAX)?;
            self.push(Test::Less(len as usize));
            return Ok(());
        }
        if self.take(&["greater"]) {
            let len = self.number("a length in bytes", u32::MAX)?;
            self.push(Test::Greater(len as usize));
            return Ok(());
        }
        let Some(protocol) = protocol(self.peek()) else {
            return self.qualified();
        };
        self.advance();
        self.push(protocol);
        if matches!(self.peek(), "src" | "dst" | "host" | "net" | "port") {
            self.qualified()?;
            self.program.push(Op::And);
        }
        Ok(())
    }

    /// `[src|dst] (host|net|port) …`, or an address alone.
    fn qualified(&mut self) -> Result<(), FilterError> {
        let side = match self.peek() {
            "src" => Side::Src,
            "dst" => Side::Dst,
            _ => Side::Either,
        };
        if side != Side::Either {
            self.advance();
        }
        if self.take(&["port"]) {
            let port = self.number("a port from 0 to 65535", 65_535)?;
            self.push(Test::Port(side, port as u16));
        } else if self.take(&["net"]) {
            let Some(prefix) = parse_prefix(self.peek()) else {
                return Err(self
                    .expected("a prefix without host bits, such as 10.0.0.0/8 or 2001:db8::/32"));
            };
            self.advance();
            self.push(Test::Net(side, prefix));
        } else {
            let named = self.take(&["host"]);
            let Ok(address) = self.peek().parse::<IpAddr>() else {
                return Err(self.expected(if named {
                    "an IPv4 or IPv6 address"
                } else if side == Side::Either {
                    "a test such as `host`, `net`, `port`, `tcp`, `vlan` or `less`"
                } else {
                    "`host`, `net`, `port` or an address"
                }));
            };
            self.advance();
            self.push(Test::Net(side, prefix(address, 128)));
        }
        Ok(())
    }

    fn push(&mut self, test: Test) {
        self.program.push(Op::Test(test));
    }

    fn number(&mut self, expected: &str, max: u32) -> Result<u32, FilterError> {
        let word = self.peek();
        let digits = word.bytes().all(|b| b.is_ascii_digit());
        match word.parse::<u32>() {
            Ok(number) if digits && number <= max => {
                self.advance();
                Ok(number)
            }
            _ => Err(self.expected(expected)),
        }
    }
}

fn protocol(word: &str) -> Option<Test> {
    Some(match word {
        "ip" => Test::Kind(Kind::Ipv4),
        "ip6" => Test::Kind(Kind::Ipv6),
        "arp" => Test::Kind(Kind::Arp),
        "tcp" => Test::Protocol(None, IpProtocol::TCP),
        "udp" => Test::Protocol(None, IpProtocol::UDP),
        "esp" => Test::Protocol(None, IpProtocol::ESP),
        "icmp" => Test::Protocol(Some(Kind::Ipv4), IpProtocol::ICMP),
        "icmp6" => Test::Protocol(Some(Kind::Ipv6), IpProtocol::ICMPV6),
        _ => return None,
    })
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

fn parse_prefix(word: &str) -> Option<Prefix> {
    let (address, length) = word.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let digits = length.bytes().all(|b| b.is_ascii_digit());
    let length = length.parse().ok().filter(|length| digits && *length <= width)?;
    let prefix = prefix(address, length);
    (prefix.bits & prefix.mask == prefix.bits).then_some(prefix)
}
