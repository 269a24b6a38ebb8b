//! What a rule asks of a packet.

use std::fmt;
use std::str::FromStr;

use classify::filter::shape;
use classify::{Condition, Schema};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Of an address or a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Family {
    V4,
    V6,
}

/// What a packet must be for the rule to match; `None` and the default: anything.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Conditions {
    /// The interface that it came in by.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    pub interface: Option<Box<str>>,
    /// Its source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src: Option<IpNet>,
    /// Its destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dst: Option<IpNet>,
    /// Its upper layer; behind IPv6 extension headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proto: Option<Protocol>,
    /// Its source port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sport: Option<Ports>,
    /// Its destination port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dport: Option<Ports>,
    /// Its TCP flags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_flags: Option<TcpFlags>,
    /// Its type of ICMP or ICMPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<u8>,
    /// The code beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp_code: Option<u8>,
    /// Whether it is a fragment, the first or a later one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragment: Option<bool>,
    /// Its state in its flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<States>,
    /// The application of its flow, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<Box<str>>,
}

/// Conditions that no packet can meet, or that say too little.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// The key that is wrong.
    pub key: &'static str,
    /// Why.
    pub message: String,
    /// What would be right.
    pub expected: &'static str,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}", self.message, self.expected)
    }
}

impl Conditions {
    /// What contradicts itself here.
    pub fn check(&self) -> Result<(), Contradiction> {
        let wrong = |key, message: String, expected| Err(Contradiction { key, message, expected });
        for (key, net) in [("src", self.src), ("dst", self.dst)] {
            if let Some(net) = net.filter(|net| *net != net.trunc()) {
                let message = format!("`{key}` has bits set beyond the length of {net}");
                return wrong(key, message, "the prefix without them");
            }
        }
        if let (Some(src), Some(dst)) = (self.src, self.dst)
            && src.addr().is_ipv4() != dst.addr().is_ipv4()
        {
            return wrong("dst", format!("{dst} with {src}"), "both of one family");
        }
        let has_ports = self.proto.is_none_or(Protocol::has_ports);
        for (key, ports) in [("sport", self.sport), ("dport", self.dport)] {
            if ports.is_some() && !has_ports {
                let message = format!("`{key}`, but the protocol has no ports");
                return wrong(key, message, "proto = \"tcp\", \"udp\", \"sctp\" or none");
            }
        }
        if self.tcp_flags.is_some() && self.proto != Some(Protocol::TCP) {
            return wrong("tcp_flags", "`tcp_flags` without TCP".to_owned(), "proto = \"tcp\"");
        }
        let is_icmp = matches!(self.proto, Some(Protocol::ICMP | Protocol::ICMPV6));
        if self.icmp_type.is_some() && !is_icmp {
            let message = "`icmp_type` without ICMP".to_owned();
            return wrong("icmp_type", message, "proto = \"icmp\" or \"icmpv6\"");
        }
        if self.icmp_code.is_some() && self.icmp_type.is_none() {
            let message = "`icmp_code` without `icmp_type`".to_owned();
            return wrong("icmp_code", message, "icmp_type = 3 with it");
        }
        if Family::both().into_iter().all(|family| !self.is_of(family)) {
            let message = "ICMP of one family, addresses of the other".to_owned();
            return wrong("proto", message, "icmp for IPv4, icmpv6 for IPv6");
        }
        if let Some(name) = self.application.as_deref().filter(|name| !is_application(name)) {
            let name: String = name.chars().take(48).collect();
            let lower = name.to_ascii_lowercase();
            let hint = match is_application(&lower) {
                true => format!(", did you mean `{lower}`?"),
                false => String::new(),
            };
            let message = format!("`{name}` cannot be the name of an application{hint}");
            return wrong("application", message, APPLICATION);
        }
        Ok(())
    }

    /// Whether packets of a family may match.
    pub fn is_of(&self, family: Family) -> bool {
        let of_address = [self.src, self.dst].into_iter().flatten();
        let mut of_address = of_address.map(|net| match net {
            IpNet::V4(_) => Family::V4,
            IpNet::V6(_) => Family::V6,
        });
        of_address.all(|own| own == family)
            && match self.proto {
                Some(Protocol::ICMP) => family == Family::V4,
                Some(Protocol::ICMPV6) => family == Family::V6,
                _ => true,
            }
    }

    /// Words of a rule over the headers of `schema`, the one of a family that it [is of](Self::is_of). `interface` is
    /// the number of its interface.
    ///
    /// # Errors
    /// Prefixes that the family does not have. Conditions that otherwise [contradict](Self::check) themselves make
    /// a rule that never matches.
    pub fn words(&self, schema: &Schema, interface: Option<u16>) -> Result<Box<[u32]>, String> {
        let (mut wanted, mut looked_at) = (0, 0);
        let mut ask = |bit: u8, value: bool| {
            looked_at |= bit;
            wanted |= if value { bit } else { 0 };
        };
        if self.sport.is_some() || self.dport.is_some() || self.tcp_flags.is_some() {
            ask(shape::PORTS, true);
        }
        if self.icmp_type.is_some() {
            ask(shape::ICMP, true);
        }
        if let Some(is_fragment) = self.fragment {
            ask(shape::FRAGMENT, is_fragment);
        }
        let number = |number: Option<u8>| number.map(|n| Ports::new(n.into(), n.into()));
        let mask = |value: u128, mask: u128| Condition::Mask { value, mask };
        let exact = |value: Option<u16>, all: u128| match value {
            Some(value) => mask(value.into(), all),
            None => mask(0, 0),
        };
        let flags = self.tcp_flags.unwrap_or_default();
        let mut conditions = vec![
            prefix(self.src),
            prefix(self.dst),
            range(self.sport.or(number(self.icmp_type))),
            range(self.dport.or(number(self.icmp_code))),
            exact(self.proto.map(|proto| proto.0.into()), 0xff),
            mask(flags.set.into(), flags.of.into()),
            mask(wanted.into(), looked_at.into()),
            state(self.state),
            exact(interface, classify::filter::INTERFACE_MAX.into()),
        ];
        if schema.fields().len() > conditions.len() {
            let number = self.application.as_deref().map(classify::filter::application);
            conditions.push(number.map_or(mask(0, 0), |n| mask(n.into(), u32::MAX.into())));
        } else if self.application.is_some() {
            return Err("these headers have no application".to_owned());
        }
        schema.conditions(&conditions).map_err(|error| error.to_string())
    }
}

/// What an application may be called.
pub const APPLICATION: &str = "1 to 64 lower-case letters, digits or `-`, `_`, `.`, `+`";

/// Whether an application may have this name.
pub fn is_application(name: &str) -> bool {
    let is_letter =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.+".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(is_letter)
}

impl Family {
    /// IPv4, then IPv6.
    pub fn both() -> [Self; 2] {
        [Self::V4, Self::V6]
    }
}

fn prefix(net: Option<IpNet>) -> Condition {
    match net {
        None => Condition::Prefix { value: 0, len: 0 },
        Some(IpNet::V4(net)) => {
            Condition::Prefix { value: net.addr().to_bits().into(), len: net.prefix_len() }
        }
        Some(IpNet::V6(net)) => {
            Condition::Prefix { value: net.addr().to_bits(), len: net.prefix_len() }
        }
    }
}

fn state(states: Option<States>) -> Condition {
    let (value, mask) = states.map_or((0, 0), States::value_and_mask);
    Condition::Mask { value: value.into(), mask: mask.into() }
}

fn range(ports: Option<Ports>) -> Condition {
    let ports = ports.unwrap_or(Ports { low: 0, high: u16::MAX });
    Condition::Range { low: ports.low.into(), high: ports.high.into() }
}

/// In the words of the file: `in wan proto tcp dst 192.0.2.0/24 dport 22`; `any` for no condition.
impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: Option<&dyn fmt::Display>| value.map(ToString::to_string);
        let all = [
            ("in", text(self.interface.as_ref().map(|i| i as &dyn fmt::Display))),
            ("proto", text(self.proto.as_ref().map(|p| p as &dyn fmt::Display))),
            ("src", self.src.map(|net| net.to_string())),
            ("sport", self.sport.map(|ports| ports.to_string())),
            ("dst", self.dst.map(|net| net.to_string())),
            ("dport", self.dport.map(|ports| ports.to_string())),
            ("tcp_flags", self.tcp_flags.map(|flags| flags.to_string())),
            ("icmp_type", self.icmp_type.map(|number| number.to_string())),
            ("icmp_code", self.icmp_code.map(|number| number.to_string())),
            ("fragment", self.fragment.map(|is| is.to_string())),
            ("state", self.state.map(|states| states.to_string())),
            ("application", self.application.as_ref().map(ToString::to_string)),
        ];
        let mut some = all.into_iter().filter_map(|(key, value)| Some((key, value?)));
        match some.next() {
            None => return f.write_str("any"),
            Some((key, value)) => write!(f, "{key} {value}")?,
        }
        some.try_for_each(|(key, value)| write!(f, " {key} {value}"))
    }
}

/// A text that is not a value of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a valid {what}: expected {expected}")]
pub struct ParseConditionError {
    text: String,
    what: &'static str,
    expected: &'static str,
}

fn wrong(text: &str, what: &'static str, expected: &'static str) -> ParseConditionError {
    ParseConditionError { text: text.chars().take(48).collect(), what, expected }
}

macro_rules! as_text {
    ($type:ty) => {
        impl TryFrom<String> for $type {
            type Error = ParseConditionError;

            fn try_from(text: String) -> Result<Self, ParseConditionError> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    };
}

as_text!(Protocol);
as_text!(Ports);
as_text!(TcpFlags);
as_text!(States);

/// An upper-layer protocol, by name or number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Protocol(pub u8);

impl Protocol {
    /// Of IPv4.
    pub const ICMP: Self = Self(1);
    /// Of IPv6.
    pub const ICMPV6: Self = Self(58);
    /// TCP.
    pub const TCP: Self = Self(6);

    const NAMES: &[(&str, u8)] = &[
        ("icmp", 1),
        ("igmp", 2),
        ("tcp", 6),
        ("udp", 17),
        ("dccp", 33),
        ("gre", 47),
        ("esp", 50),
        ("icmpv6", 58),
        ("ospf", 89),
        ("sctp", 132),
        ("udplite", 136),
    ];

    /// Whether its packets begin with two ports.
    pub fn has_ports(self) -> bool {
        matches!(self.0, 6 | 17 | 33 | 132 | 136)
    }
}

impl FromStr for Protocol {
    type Err = ParseConditionError;

    fn from_str(text: &str) -> Result<Self, ParseConditionError> {
        const EXPECTED: &str = "a number from 0 to 255, or icmp, igmp, tcp, udp, dccp, gre, esp, \
             icmpv6, ospf, sctp or udplite";
        let named = Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, number)| *number);
        let number = named.or_else(|| text.parse().ok());
        number.map(Self).ok_or_else(|| wrong(text, "protocol", EXPECTED))
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Ports from a lowest to a highest one: `22`, `1024-65535`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ports {
    low: u16,
    high: u16,
}

impl Ports {
    /// From `low` to `high`, which is not below it.
    pub fn new(low: u16, high: u16) -> Self {
        Self { low, high: high.max(low) }
    }

    /// Whether `port` is among them.
    pub fn has(self, port: u16) -> bool {
        (self.low..=self.high).contains(&port)
    }

    /// Whether these are all there are. A rule with such ports wants a packet that has some.
    pub fn is_all(self) -> bool {
        (self.low, self.high) == (0, u16::MAX)
    }
}

impl FromStr for Ports {
    type Err = ParseConditionError;

    fn from_str(text: &str) -> Result<Self, ParseConditionError> {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.trim().parse::<u16>().ok();
        match (number(low), number(high)) {
            (Some(low), Some(high)) if low <= high => Ok(Self { low, high }),
            _ => Err(wrong(text, "port or range of ports", "such as 22 or 1024-65535")),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.low == self.high {
            write!(f, "{}", self.low)
        } else {
            write!(f, "{}-{}", self.low, self.high)
        }
    }
}

/// TCP flags that must be set, of those that are looked at: `syn/syn,ack`. Without `/` those that are set are looked
/// at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TcpFlags {
    set: u8,
    of: u8,
}

impl TcpFlags {
    const NAMES: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];

    fn list(text: &str) -> Option<u8> {
        if text == "none" {
            return Some(0);
        }
        text.split(',').try_fold(0, |bits, name| {
            let at = Self::NAMES.iter().position(|known| *known == name.trim())?;
            Some(bits | 1 << at)
        })
    }

    fn text(bits: u8) -> String {
        let set = Self::NAMES.iter().enumerate().filter(|(at, _)| bits >> at & 1 != 0);
        match bits {
            0 => "none".to_owned(),
            _ => set.map(|(_, name)| *name).collect::<Vec<_>>().join(","),
        }
    }
}

impl FromStr for TcpFlags {
    type Err = ParseConditionError;

    fn from_str(text: &str) -> Result<Self, ParseConditionError> {
        const EXPECTED: &str = "the flags that are set, of those that are checked, such as \
             syn/syn,ack of fin, syn, rst, psh, ack, urg, ece, cwr";
        let (set, of) = text.split_once('/').unwrap_or((text, text));
        match (Self::list(set), Self::list(of)) {
            (Some(set), Some(of)) if set & !of == 0 && of != 0 => Ok(Self { set, of }),
            _ => Err(wrong(text, "list of TCP flags", EXPECTED)),
        }
    }
}

impl fmt::Display for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Self::text(self.set), Self::text(self.of))
    }
}

/// States of packets in their flows: `established,related`. Those that one value under a mask tells from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct States {
    value: u8,
    mask: u8,
}

impl States {
    /// Names and numbers, as the tracker of flows has them (`stream::tracker::PacketState`).
    pub const NAMES: [(&'static str, u8); 5] = [
        ("new", 0b100),
        ("established", 0b110),
        ("related", 0b111),
        ("invalid", 0b001),
        ("untracked", 0b000),
    ];

    /// The states that this value and mask leave.
    fn of(value: u8, mask: u8) -> impl Iterator<Item = &'static str> {
        let is_in = move |own: &&(&str, u8)| own.1 & mask == value;
        Self::NAMES.iter().filter(is_in).map(|(name, _)| *name)
    }

    /// The number of a state, and its bits that are looked at.
    pub const fn value_and_mask(self) -> (u8, u8) {
        (self.value, self.mask)
    }
}

impl FromStr for States {
    type Err = ParseConditionError;

    fn from_str(text: &str) -> Result<Self, ParseConditionError> {
        const EXPECTED: &str = "new, established, related, invalid, untracked, or a set of them such as established,related; \
             sets with invalid, and with related but not established, need a rule for each state";
        let names: Vec<&str> = text.split(',').map(str::trim).collect();
        let is_known = |name: &&str| Self::NAMES.iter().any(|(known, _)| known == name);
        let is_set = |value: u8, mask: u8| {
            let count = Self::of(value, mask).count();
            count == names.len() && Self::of(value, mask).all(|name| names.contains(&name))
        };
        // The fewest bits: 0 is every state.
        let all = (0..8_u8).flat_map(|mask| (0..8).map(move |value| (value & mask, mask)));
        let found = all.into_iter().find(|(value, mask)| is_set(*value, *mask));
        match found.filter(|_| names.iter().all(is_known)) {
            Some((value, mask)) => Ok(Self { value, mask }),
            None => Err(wrong(text, "set of states", EXPECTED)),
        }
    }
}

impl fmt::Display for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Self::of(self.value, self.mask).collect();
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use classify::filter::{Tail, header_v4, header_v6, schema_v4, schema_v6};

    #[test]
    fn values_are_read_and_written() {
        for text in ["tcp", "icmpv6", "99"] {
            assert_eq!(text.parse::<Protocol>().unwrap().to_string(), text);
        }
        for text in ["22", "0-65535", "1024-2047"] {
            assert_eq!(text.parse::<Ports>().unwrap().to_string(), text);
        }
        for (text, written) in
            [("syn/syn,ack", "syn/syn,ack"), ("ack", "ack/ack"), ("none/ack,rst", "none/rst,ack")]
        {
            assert_eq!(text.parse::<TcpFlags>().unwrap().to_string(), written);
        }
        for (text, written) in [
            ("new", "new"),
            ("related, established", "established,related"),
            ("new,established,related", "new,established,related"),
            ("invalid,untracked", "invalid,untracked"),
            ("new,invalid,untracked", "new,invalid,untracked"),
        ] {
            let states = text.parse::<States>().unwrap();
            assert_eq!(states.to_string(), written);
            let (value, mask) = states.value_and_mask();
            for (name, number) in States::NAMES {
                assert_eq!(number & mask == value, text.contains(name), "{text}: {name}");
            }
        }
        for text in ["", "open", "new,invalid", "new,new", "new,related"] {
            assert!(text.parse::<States>().is_err(), "{text}");
        }
        assert!("256".parse::<Protocol>().is_err() && "TCP".parse::<Protocol>().is_err());
        assert!("9-8".parse::<Ports>().is_err() && "65536".parse::<Ports>().is_err());
        for text in ["", "syn/ack", "none", "syn/"] {
            assert!(text.parse::<TcpFlags>().is_err(), "{text}");
        }
    }

    fn conditions(json: &str) -> Conditions {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn contradictions_are_reported() {
        for (json, key) in [
            (r#"{"src":"10.0.0.1/24"}"#, "src"),
            (r#"{"src":"10.0.0.0/24","dst":"2001:db8::/32"}"#, "dst"),
            (r#"{"proto":"esp","dport":"1"}"#, "dport"),
            (r#"{"tcp_flags":"syn"}"#, "tcp_flags"),
            (r#"{"icmp_type":8}"#, "icmp_type"),
            (r#"{"proto":"icmp","icmp_code":8}"#, "icmp_code"),
            (r#"{"proto":"icmp","src":"2001:db8::/32"}"#, "proto"),
        ] {
            assert_eq!(conditions(json).check().unwrap_err().key, key, "{json}");
        }
        assert!(conditions("{}").check().is_ok());
        assert_eq!(conditions("{}").to_string(), "any");
        let text = r#"{"in":"wan","proto":"tcp","dport":"22"}"#;
        assert_eq!(conditions(text).to_string(), "in wan proto tcp dport 22");
        assert_eq!(serde_json::to_string(&conditions(text)).unwrap(), text);
    }

    #[test]
    fn who_asks_for_ports_gets_packets_with_ports() {
        let schema = schema_v4();
        let rule = conditions(r#"{"proto":"tcp","sport":"0-65535"}"#);
        let words = rule.words(&schema, None).unwrap();
        let whole = Tail { proto: 6, shape: shape::PORTS, ..Tail::default() };
        let fragment = Tail { proto: 6, shape: shape::FRAGMENT, ..Tail::default() };
        assert!(schema.matches(&words, &header_v4(1, 2, whole)));
        assert!(!schema.matches(&words, &header_v4(1, 2, fragment)));
        let any = conditions(r#"{"proto":"tcp"}"#).words(&schema, None).unwrap();
        assert!(schema.matches(&any, &header_v4(1, 2, fragment)));
        let no_fragments = conditions(r#"{"fragment":false}"#).words(&schema, None).unwrap();
        assert!(!schema.matches(&no_fragments, &header_v4(1, 2, fragment)));
        assert!(schema.matches(&no_fragments, &header_v4(1, 2, whole)));
        let inside = conditions(r#"{"in":"lan"}"#).words(&schema, Some(3)).unwrap();
        assert!(!schema.matches(&inside, &header_v4(1, 2, whole)));
        assert!(schema.matches(&inside, &header_v4(1, 2, Tail { interface: 3, ..whole })));
    }

    #[test]
    fn icmp_types_are_no_ports() {
        let schema = schema_v6();
        let echo = conditions(r#"{"proto":"icmpv6","icmp_type":128}"#);
        assert!(!echo.is_of(Family::V4) && echo.is_of(Family::V6));
        let words = echo.words(&schema, None).unwrap();
        let tail = Tail { sport: 128, proto: 58, shape: shape::ICMP, ..Tail::default() };
        assert!(schema.matches(&words, &header_v6([1, 2], [3, 4], tail)));
        let ports = conditions(r#"{"sport":"128"}"#).words(&schema, None).unwrap();
        assert!(!schema.matches(&ports, &header_v6([1, 2], [3, 4], tail)));
        let flags = conditions(r#"{"proto":"tcp","tcp_flags":"syn/syn,ack"}"#);
        let words = flags.words(&schema, None).unwrap();
        let tail = Tail { proto: 6, shape: shape::PORTS, ..Tail::default() };
        for (flags, wanted) in [(0x02, true), (0xc2, true), (0x12, false), (0x10, false)] {
            let header = header_v6([1, 2], [3, 4], Tail { flags, ..tail });
            assert_eq!(schema.matches(&words, &header), wanted);
        }
    }
}
