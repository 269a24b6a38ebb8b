//! From tokens to a program, by recursive descent.
//!
//! Operations are appended as they are read: both operands of `and` and `or`, and in between a skip whose length is filled
//! in behind the second one. `arithmetic` has what compares numbers, `values` the names behind qualifiers.
//!
//! What tcpdump's users rely on most is that a name or number without a qualifier has those of the one before it: `host a
//! or b`, `port 80 or 443`, `src net 10.0.0.0/8 and not 10.1.0.0/16`. `carry` holds them. A test of another kind ends that,
//! and parentheses leave it as it was before them.

use std::net::Ipv4Addr;

use super::lexer::{Token, mac, tokens};
use super::names;
use super::program::{Arith, Base, Op, Side, Test};
use super::{Filter, FilterError};
use crate::decode::Kind;
use crate::{EtherType, IpProtocol};

/// Parentheses and brackets within each other.
const DEPTH_MAX: usize = 64;

/// What is in front of a name or number.
#[derive(Clone, Copy)]
pub(super) struct Qualifiers {
    protocol: Option<Protocol>,
    side: Side,
    what: What,
}

/// The kind of name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Not said: an address.
    Default,
    Host,
    Net,
    Port,
    PortRange,
    Proto,
}

/// A protocol by name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Ether,
    Network(EtherType),
    /// Of one family, or of both.
    Upper(Option<Kind>, IpProtocol),
}

/// What an operand turned out to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operand {
    /// Its operations are in the program.
    Truth,
    /// Its operations are in the list of relations.
    Number,
}

const TEST: &str =
    "a test such as `host`, `net`, `port`, `tcp`, `vlan`, `less`, `ether host` or `icmp[0] = 8`";
const MAC: &str = "a MAC address such as 02:00:00:00:00:01";

pub(super) struct Parser<'a> {
    tokens: Vec<(usize, Token<'a>)>,
    pub(super) at: usize,
    pub(super) program: Vec<Op>,
    pub(super) arith: Vec<Arith>,
    pub(super) depth: usize,
    pub(super) carry: Option<Qualifiers>,
}

type Parsed<T> = Result<T, FilterError>;

impl<'a> Parser<'a> {
    pub(super) fn parse(text: &'a str) -> Parsed<Filter> {
        let mut parser = Parser {
            tokens: tokens(text),
            at: 0,
            program: Vec::new(),
            arith: Vec::new(),
            depth: 0,
            carry: None,
        };
        if parser.peek() != Token::End {
            parser.expression()?;
            if parser.peek() != Token::End {
                return Err(parser.expected("`and`, `or` or the end"));
            }
        }
        Ok(Filter { program: parser.program, arith: parser.arith })
    }

    fn token(&self, ahead: usize) -> Token<'a> {
        self.tokens.get(self.at + ahead).map_or(Token::End, |(_, token)| *token)
    }

    pub(super) fn peek(&self) -> Token<'a> {
        self.token(0)
    }

    pub(super) fn word(&self, ahead: usize) -> &'a str {
        match self.token(ahead) {
            Token::Word(word) => word,
            _ => "",
        }
    }

    pub(super) fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self.peek(), Token::Symbol(own) if own == symbol)
    }

    /// The end stays, so that errors there have a column.
    pub(super) fn advance(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len().saturating_sub(1));
    }

    fn take(&mut self, words: &[&str]) -> bool {
        let found = match self.peek() {
            Token::Word(word) => words.contains(&word),
            Token::Symbol(symbol) => words.contains(&symbol),
            _ => false,
        };
        if found {
            self.advance();
        }
        found
    }

    pub(super) fn expected(&self, expected: impl Into<String>) -> FilterError {
        let column = self.tokens.get(self.at).map_or(1, |(column, _)| *column);
        FilterError { column, expected: expected.into() }
    }

    pub(super) fn deeper(&mut self) -> Parsed<()> {
        if self.depth == DEPTH_MAX {
            return Err(self.expected(format!("at most {DEPTH_MAX} nested parentheses")));
        }
        self.depth += 1;
        Ok(())
    }

    pub(super) fn push(&mut self, test: Test) {
        self.program.push(Op::Test(test));
    }

    /// Leaves the place of a skip.
    pub(super) fn skip(&mut self, on: bool) -> usize {
        self.program.push(Op::SkipIf(on, 0));
        self.program.len() - 1
    }

    /// The skip ends here.
    pub(super) fn land(&mut self, skip: usize) {
        let ops = (self.program.len() - skip - 1) as u32;
        if let Some(Op::SkipIf(_, own)) = self.program.get_mut(skip) {
            *own = ops;
        }
    }

    /// A truth: terms with `and` and `or` between them, which bind equally, from left to right.
    fn expression(&mut self) -> Parsed<()> {
        match self.operand()? {
            Operand::Truth => self.rest(),
            Operand::Number => Err(self.expected("a comparison such as `= 8` or `!= 0`")),
        }
    }

    /// What follows the first term.
    fn rest(&mut self) -> Parsed<()> {
        loop {
            let skip = match self.peek() {
                Token::Word("and") | Token::Symbol("&&") => false,
                Token::Word("or") | Token::Symbol("||") => true,
                _ => return Ok(()),
            };
            self.advance();
            let skip = self.skip(skip);
            if self.operand()? == Operand::Number {
                return Err(self.expected("a comparison such as `= 8` or `!= 0`"));
            }
            self.land(skip);
        }
    }

    /// `{ not } primary`, and the relation that begins with it.
    fn operand(&mut self) -> Parsed<Operand> {
        let mut negations = 0;
        while self.take(&["not", "!"]) {
            negations += 1;
        }
        let from = self.arith.len();
        let operand = match self.primary()? {
            Operand::Truth => Operand::Truth,
            Operand::Number => self.relation(from)?,
        };
        match operand {
            Operand::Number if negations > 0 => {
                return Err(self.expected("a comparison such as `= 8` or `!= 0`"));
            }
            _ if negations % 2 == 1 => self.program.push(Op::Not),
            _ => {}
        }
        Ok(operand)
    }

    pub(super) fn close(&mut self, bracket: &str, expected: &str) -> Parsed<()> {
        if !self.is_symbol(bracket) {
            return Err(self.expected(expected));
        }
        self.advance();
        self.depth -= 1;
        Ok(())
    }

    fn primary(&mut self) -> Parsed<Operand> {
        let word = match self.peek() {
            Token::Symbol("(") => return self.parentheses(),
            Token::Symbol("-") => {
                self.number()?;
                return Ok(Operand::Number);
            }
            Token::Number(_) => {
                // A number by itself, also in parentheses, has the qualifiers of the one before it.
                let mut ahead = 1;
                while self.token(ahead) == Token::Symbol(")") {
                    ahead += 1;
                }
                let is_id = |of: Qualifiers| match self.token(ahead) {
                    Token::Symbol("/") => of.what == What::Net,
                    Token::Symbol(symbol) => matches!(symbol, "&&" | "||"),
                    _ => true,
                };
                return match self.carry {
                    Some(own) if is_id(own) => self.leaf(own).map(|()| Operand::Truth),
                    _ => self.number().map(|()| Operand::Number),
                };
            }
            Token::V6(_) | Token::Mac(_) => {
                let qualifiers = self.carry_or_host();
                return self.leaf(qualifiers).map(|()| Operand::Truth);
            }
            Token::Word(word) => word,
            Token::Symbol(_) | Token::Junk | Token::End => return Err(self.expected(TEST)),
        };
        if word == "len" || names::constant(word).is_some() {
            self.number()?;
            return Ok(Operand::Number);
        }
        if let Some(protocol) = protocol(word) {
            return self.of_protocol(word, protocol);
        }
        if self.is_head() {
            self.head(None)?;
            return Ok(Operand::Truth);
        }
        let test = match word {
            "vlan" => {
                self.advance();
                let id = match self.peek() {
                    Token::Number(id @ 0..=4095) => Some(id as u16),
                    Token::Number(_) => {
                        return Err(self.expected("a VLAN identifier from 0 to 4095"));
                    }
                    _ => None,
                };
                if id.is_some() {
                    self.advance();
                }
                Test::Vlan(id)
            }
            "less" | "greater" => {
                self.advance();
                let Token::Number(len) = self.peek() else {
                    return Err(self.expected("a length in bytes"));
                };
                self.advance();
                if word == "less" { Test::Less(len as usize) } else { Test::Greater(len as usize) }
            }
            "broadcast" | "multicast" => {
                self.advance();
                if word == "broadcast" { Test::Broadcast } else { Test::Multicast(None) }
            }
            _ => {
                let is_address = word.parse::<Ipv4Addr>().is_ok();
                let is_keyword = matches!(word, "and" | "or" | "not" | "mask");
                if (self.carry.is_none() && !is_address) || is_keyword {
                    return Err(self.expected(TEST));
                }
                let carry = match self.carry {
                    // An address behind ports is a host all the same.
                    Some(Qualifiers {
                        what: What::Port | What::PortRange | What::Proto, ..
                    }) if is_address => {
                        self.carry = None;
                        self.carry_or_host()
                    }
                    _ => self.carry_or_host(),
                };
                return self.leaf(carry).map(|()| Operand::Truth);
            }
        };
        self.push(test);
        self.carry = None;
        Ok(Operand::Truth)
    }

    /// The qualifiers of the name before, or those of an address by itself.
    fn carry_or_host(&self) -> Qualifiers {
        let host = Qualifiers { protocol: None, side: Side::Either, what: What::Default };
        self.carry.unwrap_or(host)
    }

    /// A truth or a number in parentheses.
    fn parentheses(&mut self) -> Parsed<Operand> {
        let before = self.carry;
        self.deeper()?;
        self.advance();
        let operand = self.operand()?;
        if operand == Operand::Truth {
            self.rest()?;
            self.carry = before;
        }
        let expected = match operand {
            Operand::Truth => "`and`, `or` or `)`",
            Operand::Number => "an operator or `)`",
        };
        self.close(")", expected)?;
        Ok(operand)
    }

    /// A test that begins with the name of a protocol.
    fn of_protocol(&mut self, word: &str, protocol: Protocol) -> Parsed<Operand> {
        self.advance();
        if self.is_symbol("[") {
            let Some(base) = base(word) else {
                return Err(self.expected(format!("no bytes: `{word}` has none to count from")));
            };
            self.bytes(base)?;
            return Ok(Operand::Number);
        }
        if self.is_head() {
            self.head(Some(protocol))?;
            return Ok(Operand::Truth);
        }
        let group = self.word(0);
        let test = match (group, protocol) {
            ("broadcast", Protocol::Ether) => Some(Test::Broadcast),
            ("multicast", Protocol::Ether) => Some(Test::Multicast(None)),
            ("broadcast", Protocol::Network(EtherType::IPV4)) => Some(Test::IpBroadcast),
            ("multicast", Protocol::Network(EtherType::IPV4)) => {
                Some(Test::Multicast(Some(Kind::Ipv4)))
            }
            ("multicast", Protocol::Network(EtherType::IPV6)) => {
                Some(Test::Multicast(Some(Kind::Ipv6)))
            }
            ("broadcast" | "multicast", _) => {
                return Err(self.expected(format!("no `{group}` after `{word}`")));
            }
            _ => None,
        };
        self.carry = None;
        match test {
            Some(test) => {
                self.advance();
                self.push(test);
            }
            None if protocol == Protocol::Ether => {
                return Err(
                    self.expected("`host`, `src`, `dst`, `proto`, `broadcast`, `multicast` or `[`")
                );
            }
            None => self.push(protocol.test()),
        }
        Ok(Operand::Truth)
    }

    /// Whether qualifiers begin here.
    fn is_head(&self) -> bool {
        let words = ["src", "dst", "host", "net", "port", "portrange", "proto"];
        words.contains(&self.word(0))
    }

    /// `[src|dst] [host|net|port|portrange]`, or `proto`, and the name behind it.
    fn head(&mut self, protocol: Option<Protocol>) -> Parsed<()> {
        let side = match [self.word(0), self.word(1), self.word(2)] {
            ["src", "or", "dst"] | ["dst", "or", "src"] => Some((Side::Either, 3)),
            ["src", "and", "dst"] | ["dst", "and", "src"] => Some((Side::Both, 3)),
            ["src", ..] => Some((Side::Src, 1)),
            ["dst", ..] => Some((Side::Dst, 1)),
            _ => None,
        };
        for _ in 0..side.map_or(0, |(_, words)| words) {
            self.advance();
        }
        let what = match self.word(0) {
            "host" => What::Host,
            "net" => What::Net,
            "port" => What::Port,
            "portrange" => What::PortRange,
            "proto" if side.is_none() => What::Proto,
            _ => What::Default,
        };
        let is_ip =
            |protocol| matches!(protocol, Protocol::Network(EtherType::IPV4 | EtherType::IPV6));
        let fits = match (what, protocol) {
            (_, None) | (What::Default | What::Host, _) => true,
            (What::Net, Some(protocol)) => protocol != Protocol::Ether,
            (What::Port | What::PortRange, Some(Protocol::Upper(_, upper))) => {
                matches!(upper, IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP)
            }
            (What::Port | What::PortRange, Some(protocol)) => is_ip(protocol),
            (What::Proto, Some(protocol)) => matches!(
                protocol,
                Protocol::Ether | Protocol::Network(EtherType::IPV4 | EtherType::IPV6)
            ),
        };
        if !fits {
            let expected =
                "qualifiers that go together, such as `ether host`, `ip proto` or `tcp port`";
            return Err(self.expected(expected));
        }
        if what != What::Default {
            self.advance();
        }
        let side = side.map_or(Side::Either, |(side, _)| side);
        self.names(Qualifiers { protocol, side, what })
    }

    /// One name, or several in parentheses with `and` and `or` between them; each may be negated.
    fn names(&mut self, qualifiers: Qualifiers) -> Parsed<()> {
        let mut negate = false;
        while self.take(&["not", "!"]) {
            negate = !negate;
        }
        if self.is_symbol("(") {
            self.deeper()?;
            self.advance();
            self.names(qualifiers)?;
            loop {
                let skip = match self.peek() {
                    Token::Word("and") | Token::Symbol("&&") => false,
                    Token::Word("or") | Token::Symbol("||") => true,
                    _ => break,
                };
                self.advance();
                let skip = self.skip(skip);
                self.names(qualifiers)?;
                self.land(skip);
            }
            self.close(")", "`and`, `or` or `)`")?;
            self.carry = Some(qualifiers);
        } else {
            self.leaf(qualifiers)?;
        }
        if negate {
            self.program.push(Op::Not);
        }
        Ok(())
    }

    /// A name or number with its qualifiers, which the next one has too.
    fn leaf(&mut self, qualifiers: Qualifiers) -> Parsed<()> {
        let Qualifiers { protocol, side, what } = qualifiers;
        let (test, transport) = match what {
            What::Default | What::Host if protocol == Some(Protocol::Ether) => {
                let mac = match self.peek() {
                    Token::Mac(mac) => Some(mac),
                    Token::Word(word) => mac(word),
                    _ => None,
                };
                let Some(mac) = mac else { return Err(self.expected(MAC)) };
                self.advance();
                (Test::Mac(side, mac), None)
            }
            What::Default | What::Host => (Test::Net(side, self.host(what)?), None),
            What::Net => (Test::Net(side, self.net()?), None),
            What::Port => {
                let (port, transport) = self.port()?;
                (Test::Ports(side, port, port), transport)
            }
            What::PortRange => {
                let (first, last) = self.range()?;
                (Test::Ports(side, first.min(last), first.max(last)), None)
            }
            What::Proto => (self.proto(protocol)?, None),
        };
        self.carry = Some(qualifiers);
        let guards = [
            protocol.filter(|own| !matches!((own, what), (Protocol::Ether, _) | (_, What::Proto))),
            transport.filter(|_| protocol.is_none()).map(|own| Protocol::Upper(None, own)),
        ];
        let mut skips = Vec::new();
        for guard in guards.into_iter().flatten() {
            self.push(guard.test());
            skips.push(self.skip(false));
        }
        self.push(test);
        skips.into_iter().for_each(|skip| self.land(skip));
        Ok(())
    }
}

impl Protocol {
    /// The test of the protocol by itself.
    fn test(self) -> Test {
        match self {
            // Every frame is Ethernet's.
            Protocol::Ether => Test::Greater(0),
            Protocol::Network(EtherType::IPV4) => Test::Kind(Kind::Ipv4),
            Protocol::Network(EtherType::IPV6) => Test::Kind(Kind::Ipv6),
            Protocol::Network(ethertype) => Test::EtherType(ethertype),
            Protocol::Upper(kind, protocol) => Test::Protocol(kind, protocol),
        }
    }
}

/// Protocols by name.
fn protocol(word: &str) -> Option<Protocol> {
    Some(match word {
        "ether" | "link" => Protocol::Ether,
        "ip" => Protocol::Network(EtherType::IPV4),
        "ip6" => Protocol::Network(EtherType::IPV6),
        "arp" => Protocol::Network(EtherType::ARP),
        "rarp" => Protocol::Network(EtherType::RARP),
        "tcp" => Protocol::Upper(None, IpProtocol::TCP),
        "udp" => Protocol::Upper(None, IpProtocol::UDP),
        "sctp" => Protocol::Upper(None, IpProtocol::SCTP),
        "esp" => Protocol::Upper(None, IpProtocol::ESP),
        "ah" => Protocol::Upper(None, IpProtocol::AH),
        "pim" => Protocol::Upper(None, IpProtocol::PIM),
        "icmp" => Protocol::Upper(Some(Kind::Ipv4), IpProtocol::ICMP),
        "igmp" => Protocol::Upper(Some(Kind::Ipv4), IpProtocol::IGMP),
        "vrrp" => Protocol::Upper(Some(Kind::Ipv4), IpProtocol::VRRP),
        "icmp6" => Protocol::Upper(Some(Kind::Ipv6), IpProtocol::ICMPV6),
        _ => return None,
    })
}

/// Where bytes behind the name of a protocol are counted from.
pub(super) fn base(word: &str) -> Option<Base> {
    Some(match protocol(word)? {
        Protocol::Ether => Base::Ether,
        Protocol::Network(ethertype) => Base::Network(ethertype),
        Protocol::Upper(_, IpProtocol::ICMPV6) => Base::Icmpv6,
        Protocol::Upper(_, IpProtocol::ESP | IpProtocol::AH) => return None,
        Protocol::Upper(_, protocol) => Base::Upper(protocol),
    })
}
