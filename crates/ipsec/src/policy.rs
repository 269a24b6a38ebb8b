//! Security policies (RFC 4301 §4.4.1): what is protected, what passes, what is discarded.
//!
//! Policies of a direction have an order by priority, and the first one that matches a packet decides. A lookup is one of
//! `classify`: IPv4 and IPv6 have tables of their own, and a policy without addresses is in both.

use std::fmt;
use std::ops::RangeInclusive;

use classify::filter::{self, Tail, field, shape};
use classify::{Classify, Condition, Match, RuleRef, RuleSet, Tables};
use ipnet::IpNet;
use packet::quoted::{Quoted, is_error_packet, quoted};
use packet::{Decoded, Kind};

use crate::Words;
use crate::parameters::Direction;

/// Policies of one family that are searched one after the other; above, by tuples of their masks.
const LINEAR_MAX: usize = 128;

/// Protocols whose packets begin with two ports: a later fragment does not show them.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// What a policy asks of a packet. `None` asks nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Selector {
    /// Source addresses.
    pub source: Option<IpNet>,
    /// Destination addresses, of the same family.
    pub destination: Option<IpNet>,
    /// The upper layer's protocol.
    pub protocol: Option<u8>,
    /// Source ports. A packet without ports matches only where all are asked for; see [`Policies::find`] about fragments.
    pub source_ports: RangeInclusive<u16>,
    /// Destination ports, likewise.
    pub destination_ports: RangeInclusive<u16>,
}

/// All ports.
pub const ANY_PORT: RangeInclusive<u16> = 0..=u16::MAX;

impl Selector {
    /// Every packet.
    pub const ANY: Self = Self {
        source: None,
        destination: None,
        protocol: None,
        source_ports: ANY_PORT,
        destination_ports: ANY_PORT,
    };

    /// That of the opposite direction.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            protocol: self.protocol,
            source_ports: self.destination_ports.clone(),
            destination_ports: self.source_ports.clone(),
        }
    }

    /// The family that it asks for, 4 or 6; `None` for both.
    fn family(&self) -> Option<u8> {
        let family = |net: &IpNet| if matches!(net, IpNet::V4(_)) { 4 } else { 6 };
        self.source.as_ref().or(self.destination.as_ref()).map(family)
    }

    /// Whether its two prefixes are of two families.
    fn is_mixed(&self) -> bool {
        let both = self.source.zip(self.destination);
        both.is_some_and(|(a, b)| matches!(a, IpNet::V4(_)) != matches!(b, IpNet::V4(_)))
    }

    fn asks_for_ports(&self) -> bool {
        self.source_ports != ANY_PORT || self.destination_ports != ANY_PORT
    }

    /// The protocols with ports of packets that it may match, although they do not show their ports.
    fn hidden(&self) -> impl Iterator<Item = u8> {
        let (asks, own) = (self.asks_for_ports(), self.protocol);
        let all = WITH_PORTS.into_iter();
        all.filter(move |protocol| asks && own.is_none_or(|own| own == *protocol))
    }

    /// Whether it may match a packet that does not show its ports: the plain form of the lookup.
    pub fn may_match(&self, tuple: &Tuple) -> bool {
        let any = Self { source_ports: ANY_PORT, destination_ports: ANY_PORT, ..self.clone() };
        let is_hidden = tuple.ports.is_none() && self.hidden().any(|own| own == tuple.protocol);
        is_hidden && any.matches(tuple)
    }

    /// Whether it matches a packet: the plain form of the lookup.
    pub fn matches(&self, tuple: &Tuple) -> bool {
        let holds = |net: &Option<IpNet>, address: Words| {
            net.is_none_or(|net| {
                let (family, prefix) = crate::words(net.network());
                let bits = |words: Words| u128::from(words[0]) << 64 | u128::from(words[1]);
                let width = if family == 4 { 32 } else { 128 };
                let dropped = u32::from(width - net.prefix_len());
                let same = bits(prefix).checked_shr(dropped) == bits(address).checked_shr(dropped);
                family == tuple.family && same
            })
        };
        let has_ports = match tuple.ports {
            Some((from, to)) => {
                self.source_ports.contains(&from) && self.destination_ports.contains(&to)
            }
            None => !self.asks_for_ports(),
        };
        holds(&self.source, tuple.src)
            && holds(&self.destination, tuple.dst)
            && self.protocol.is_none_or(|own| own == tuple.protocol)
            && has_ports
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let net = |net: &Option<IpNet>| net.map_or("any".to_owned(), |net| net.to_string());
        let ports = |ports: &RangeInclusive<u16>| match (ports.start(), ports.end()) {
            _ if *ports == ANY_PORT => String::new(),
            (first, last) if first == last => format!(" port {first}"),
            (first, last) => format!(" port {first}-{last}"),
        };
        let (from, to) = (net(&self.source), net(&self.destination));
        write!(f, "{from}{} > {to}{}", ports(&self.source_ports), ports(&self.destination_ports))?;
        self.protocol.map_or(Ok(()), |own| write!(f, " {}", packet::IpProtocol(own)))
    }
}

/// What a packet is looked up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tuple {
    /// 4 or 6.
    pub family: u8,
    /// Protocol of the upper layer.
    pub protocol: u8,
    /// Source.
    pub src: Words,
    /// Destination.
    pub dst: Words,
    /// Source and destination port, where they are known.
    pub ports: Option<(u16, u16)>,
}

impl Tuple {
    /// That of a decoded packet; `None` where it is not IP.
    #[inline]
    pub fn of(d: &Decoded) -> Option<Self> {
        let family = match d.kind {
            Kind::Ipv4 => 4,
            Kind::Ipv6 => 6,
            Kind::Arp | Kind::Other => return None,
        };
        Some(Self { family, protocol: d.protocol.0, src: d.src, dst: d.dst, ports: d.ports() })
    }

    /// That of a packet in answer to the one that an ICMP error is about: by it go errors that no policy is for (RFC 4301 §6.2).
    /// `None` for what is no error, or a redirect, and where the error does not quote enough.
    pub fn answering(frame: &[u8], d: &Decoded) -> Option<Self> {
        const REDIRECT: u8 = 5;
        let family = if d.kind == Kind::Ipv4 { 4 } else { 6 };
        let is_redirect = family == 4 && matches!(d.icmp_type_code(), Some((REDIRECT, _)));
        if !is_error_packet(d) || is_redirect {
            return None;
        }
        let Quoted { src, dst, protocol, ports, .. } = quoted(frame, d)?;
        let ports = ports.map(|(from, to)| (to, from));
        Some(Self { family, protocol: protocol.0, src: dst, dst: src, ports })
    }

    #[inline]
    fn tail(&self) -> Tail {
        let (sport, dport) = self.ports.unwrap_or_default();
        let shape = if self.ports.is_some() { shape::PORTS } else { 0 };
        Tail { sport, dport, proto: self.protocol, shape, ..Tail::default() }
    }
}

/// How a packet is protected: which associations serve it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Template {
    /// Associations with this number.
    pub reqid: u32,
    /// Only those between these ends.
    pub tunnel: Option<(std::net::IpAddr, std::net::IpAddr)>,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// It passes as it is.
    Bypass,
    /// It is dropped.
    Discard,
    /// It leaves as ESP, or must have come so.
    Protect(Template),
}

/// A policy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Policy {
    /// Of packets that leave, or that came in.
    pub direction: Direction,
    /// The lowest comes first; among equals the one that was added first.
    pub priority: u32,
    /// The tunnel interface by which its packets leave or come; 0: those of all others.
    pub if_id: u32,
    /// What it asks for.
    pub selector: Selector,
    /// What becomes of those packets.
    pub action: Action,
}

/// Why a policy cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Its prefixes are of two families.
    #[error("source and destination are of two address families")]
    Families,
    /// A range of ports is empty.
    #[error("a range of ports is empty")]
    Ports,
    /// The tables do not take it.
    #[error("the policy cannot be looked up: {0}")]
    Rule(#[from] classify::RuleError),
}

impl Policy {
    /// Whether it can be.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), PolicyError> {
        match &self.selector {
            own if own.is_mixed() => Err(PolicyError::Families),
            own if own.source_ports.is_empty() || own.destination_ports.is_empty() => {
                Err(PolicyError::Ports)
            }
            _ => Ok(()),
        }
    }
}

/// The policies of one direction, to be looked up.
#[derive(Debug)]
pub struct Policies {
    v4: Tables,
    v6: Tables,
    /// By their number in the tables.
    actions: Vec<Action>,
}

impl Policies {
    /// Of policies in their order.
    ///
    /// # Errors
    /// One cannot be looked up.
    pub fn new<'a>(policies: impl Iterator<Item = &'a Policy>) -> Result<Self, PolicyError> {
        let mut sets = [filter::schema_v4(), filter::schema_v6()].map(RuleSet::new);
        let mut actions = Vec::new();
        for policy in policies {
            policy.check()?;
            let own = &policy.selector;
            let mut put = |hidden, action| {
                for (set, family) in sets.iter_mut().zip([4, 6]) {
                    if own.family().is_none_or(|wanted| wanted == family) {
                        add(set, own, hidden, actions.len() as u32)?;
                    }
                }
                actions.push(action);
                Ok::<_, PolicyError>(())
            };
            put(None, policy.action)?;
            if policy.action != Action::Bypass {
                own.hidden().try_for_each(|protocol| put(Some(protocol), Action::Discard))?;
            }
        }
        let [v4, v6] = sets;
        Ok(Self { v4: tables(&v4)?, v6: tables(&v6)?, actions })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// What becomes of a packet; `None` where no policy matches. A packet that does not show its ports, such as a later fragment,
    /// is discarded where a policy with ports that protects or discards may be meant: passing it would show what is to be
    /// protected (RFC 4301 §7).
    pub fn find(&self, tuple: &Tuple) -> Option<Action> {
        let mut out = [Match::NONE];
        let tail = tuple.tail();
        match tuple.family {
            4 => {
                let header = filter::header_v4(tuple.src[1] as u32, tuple.dst[1] as u32, tail);
                self.v4.classify(&header, &mut out);
            }
            _ => self.v6.classify(&filter::header_v6(tuple.src, tuple.dst, tail), &mut out),
        }
        self.action(out[0])
    }

    /// The same of the packets of a room, in one lookup for each family.
    pub fn find_in(&self, room: &mut Room) {
        room.numbers.clear();
        room.numbers.resize(room.count, Number::NONE);
        if self.is_empty() {
            return;
        }
        for (tables, Asked { headers, places }) in [&self.v4, &self.v6].into_iter().zip(&room.asked)
        {
            if places.is_empty() {
                continue;
            }
            room.found.clear();
            room.found.resize(places.len(), Match::NONE);
            tables.classify(headers, &mut room.found);
            for (at, found) in places.iter().zip(&room.found) {
                room.numbers[*at as usize] = found.id().map_or(Number::NONE, Number);
            }
        }
    }

    /// What the policy with this number says; `None` where none was found.
    #[inline]
    pub fn answer(&self, number: Number) -> Option<&Action> {
        self.actions.get(number.index())
    }

    /// What all policies say, by their numbers.
    pub(crate) fn answers(&self) -> &[Action] {
        &self.actions
    }

    fn action(&self, found: Match) -> Option<Action> {
        found.id().and_then(|id| self.actions.get(id as usize).copied())
    }
}

/// The number of a policy that was found, or [`Number::NONE`]. Packets with one number have one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number(u32);

impl Number {
    /// No policy was found.
    pub const NONE: Self = Self(u32::MAX);

    /// Its place among all; behind all of them for [`Number::NONE`].
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Packets of a family that are asked about.
#[derive(Debug, Default)]
struct Asked {
    headers: Vec<u32>,
    /// Their places among all.
    places: Vec<u32>,
}

/// Room for lookups of many packets: who asks puts them in, and finds answers in their order.
#[derive(Debug, Default)]
pub struct Room {
    /// Of IPv4, and of IPv6.
    asked: [Asked; 2],
    count: usize,
    found: Vec<Match>,
    numbers: Vec<Number>,
}

impl Room {
    /// For so many packets without a further allocation.
    pub fn for_packets(count: usize) -> Self {
        let asked = |words: usize| Asked {
            headers: Vec::with_capacity(count * words),
            places: Vec::with_capacity(count),
        };
        Self {
            asked: [filter::WORDS_V4, filter::WORDS_V6].map(asked),
            count: 0,
            found: Vec::with_capacity(count),
            numbers: Vec::with_capacity(count),
        }
    }

    /// Takes all packets out.
    pub fn clear(&mut self) {
        for Asked { headers, places } in &mut self.asked {
            headers.clear();
            places.clear();
        }
        self.count = 0;
    }

    /// Puts a packet behind those before.
    #[inline]
    pub fn put(&mut self, tuple: &Tuple) {
        let Tuple { src, dst, .. } = *tuple;
        let [v4, v6] = &mut self.asked;
        if tuple.family == 4 {
            let header = filter::header_v4(src[1] as u32, dst[1] as u32, tuple.tail());
            v4.headers.extend_from_slice(&header);
            v4.places.push(self.count as u32);
        } else {
            v6.headers.extend_from_slice(&filter::header_v6(src, dst, tuple.tail()));
            v6.places.push(self.count as u32);
        }
        self.count += 1;
    }

    /// After [`Policies::find_in`]: the policy of the packet at a place.
    #[inline]
    pub fn number(&self, at: usize) -> Number {
        self.numbers.get(at).copied().unwrap_or(Number::NONE)
    }
}

/// Adds a rule; with `hidden`, one for packets of this protocol that do not show their ports.
fn add(
    set: &mut RuleSet,
    own: &Selector,
    hidden: Option<u8>,
    number: u32,
) -> Result<(), PolicyError> {
    let schema = set.schema().clone();
    let mut conditions: Vec<Condition> = schema.fields().iter().map(Condition::any).collect();
    let address = |net: IpNet| {
        let (_, words) = crate::words(net.network());
        let value = u128::from(words[0]) << 64 | u128::from(words[1]);
        Condition::Prefix { value, len: net.prefix_len() }
    };
    let ports = |own: &RangeInclusive<u16>| Condition::Range {
        low: (*own.start()).into(),
        high: (*own.end()).into(),
    };
    for (at, net) in [(field::SRC, own.source), (field::DST, own.destination)] {
        if let Some(net) = net {
            conditions[at] = address(net);
        }
    }
    if hidden.is_none() {
        conditions[field::SPORT] = ports(&own.source_ports);
        conditions[field::DPORT] = ports(&own.destination_ports);
    }
    if let Some(protocol) = hidden.or(own.protocol) {
        conditions[field::PROTO] =
            Condition::exact(&schema.fields()[field::PROTO], protocol.into());
    }
    if own.asks_for_ports() {
        let bit = u128::from(shape::PORTS);
        let value = if hidden.is_none() { bit } else { 0 };
        conditions[field::SHAPE] = Condition::Mask { value, mask: bit };
    }
    let words = schema.conditions(&conditions)?;
    set.push(RuleRef { words: &words, priority: number, id: number })?;
    Ok(())
}

fn tables(set: &RuleSet) -> Result<Tables, PolicyError> {
    let name = if set.len() <= LINEAR_MAX { "linear" } else { "tuple" };
    let algorithm = classify::algorithms::find(name).expect("a structure of `classify`");
    let classifier = (algorithm.build)(set)?;
    Ok(classifier.tables()?)
}

/// The plain form of the lookup.
pub mod reference {
    use super::{Action, Policy, Tuple};

    /// The action of the first policy that matches, or may match a packet that does not show its ports.
    pub fn find<'a>(
        mut policies: impl Iterator<Item = &'a Policy>,
        tuple: &Tuple,
    ) -> Option<Action> {
        policies.find_map(|own| match own.action {
            action if own.selector.matches(tuple) => Some(action),
            Action::Bypass => None,
            _ => own.selector.may_match(tuple).then_some(Action::Discard),
        })
    }
}
