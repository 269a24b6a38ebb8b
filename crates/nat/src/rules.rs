//! Rules: which packets are translated and to what; and which worker a packet belongs to.
//!
//! Both directions of a session must meet at one worker, though they have different addresses. So hosts of the inside are
//! divided into classes by a hash of their address, and a worker takes outside ports of its host's class ([`crate::ports`]):
//!
//! ```text
//!  from the inside    class of the source address
//!  to an outside      destination and static rules: class of the inside address that the rule leads to
//!  address            deterministic rules: class of the subscriber
//!                     otherwise: class of the port
//! ```
//!
//! Rules are tried in the order of the configuration; the first that matches translates.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use packet::{Decoded, Kind};

use crate::deterministic::Blocks;
use crate::nat64;
use crate::ports::CLASSES_MAX;
use crate::tuple::{Tuple, is_error};

/// A prefix of either family; IPv4 as `[0, address]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// 4 or 6.
    pub family: u8,
    /// First address.
    pub address: [u64; 2],
    /// Bits.
    pub len: u8,
}

impl Prefix {
    /// An IPv4 prefix.
    pub const fn v4(address: u32, len: u8) -> Self {
        Self { family: 4, address: [0, address as u64], len }
    }

    /// Whether an address of a family is in it.
    pub const fn has(&self, family: u8, address: [u64; 2]) -> bool {
        if self.family != family {
            return false;
        }
        let len = if family == 4 { self.len as u32 + 96 } else { self.len as u32 };
        let bits = (address[0] as u128) << 64 | address[1] as u128;
        let own = (self.address[0] as u128) << 64 | self.address[1] as u128;
        let mask = if len == 0 { 0 } else { u128::MAX << (128 - len) };
        (bits ^ own) & mask == 0
    }

    /// Addresses of an IPv4 prefix, at most 2^31.
    pub const fn count(&self) -> u32 {
        1 << (32 - if self.len == 0 { 1 } else { self.len as u32 })
    }
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Sources become the address of the interface by which the packet leaves.
    Masquerade,
    /// Sources become one of these addresses.
    Source(Vec<u32>),
    /// Destinations become another address, and perhaps another port.
    Destination {
        /// Outside addresses; none: those of the rule's interfaces.
        at: Vec<u32>,
        /// Inside address.
        to: u32,
        /// Inside port of the first port of the rule, those behind it likewise; `None`: the same port.
        to_port: Option<u16>,
    },
    /// Addresses of a prefix become those of another one of the same length, and back.
    Static {
        /// Inside.
        inside: Prefix,
        /// Outside.
        outside: Prefix,
    },
    /// Subscribers have ports by arithmetic (RFC 7422).
    Deterministic {
        /// Subscribers.
        inside: Prefix,
        /// Who has which ports.
        blocks: Blocks,
    },
    /// IPv6 hosts reach IPv4 hosts (RFC 6146).
    Nat64 {
        /// The prefix in which IPv4 addresses are (RFC 6052).
        prefix: Prefix,
        /// Sources become one of these addresses.
        to: Vec<u32>,
    },
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Its number, by which sessions know it; it stays as long as the rule.
    pub number: u16,
    /// Interfaces by which packets leave, or whose addresses are forwarded; none: any.
    pub outside: Vec<u16>,
    /// Source addresses; none: any.
    pub sources: Vec<Prefix>,
    /// Upper-layer protocol; `None`: any.
    pub protocol: Option<u8>,
    /// Outside ports: those taken by sources, or those of destinations.
    pub ports: RangeInclusive<u16>,
    /// What it does.
    pub action: Action,
}

impl Rule {
    /// Outside addresses whose ports it takes; of a masquerade one place for each interface, 0 until it is known.
    pub fn pool(&self) -> Vec<u32> {
        match &self.action {
            Action::Masquerade => vec![0; self.outside.len()],
            Action::Source(to) | Action::Nat64 { to, .. } => to.clone(),
            Action::Deterministic { blocks, .. } => blocks.addresses().collect(),
            Action::Destination { .. } | Action::Static { .. } => Vec::new(),
        }
    }

    fn takes(&self, protocol: u8, source: [u64; 2], family: u8) -> bool {
        let is_source = |prefix: &Prefix| prefix.has(family, source);
        self.protocol.is_none_or(|own| own == protocol)
            && (self.sources.is_empty() || self.sources.iter().any(is_source))
    }
}

/// Addresses of the router's interfaces, by number, which control brings up to date; 0: none.
#[derive(Debug, Default)]
pub struct Own(Vec<AtomicU32>);

impl Own {
    /// None is known.
    pub fn new(interfaces: usize) -> Self {
        Self((0..interfaces).map(|_| AtomicU32::new(0)).collect())
    }

    /// The first IPv4 address of an interface.
    pub fn of(&self, interface: u16) -> Option<u32> {
        let own = self.0.get(usize::from(interface))?.load(Ordering::Relaxed);
        (own != 0).then_some(own)
    }

    /// Says what it is.
    pub fn set(&self, interface: u16, address: Option<u32>) {
        if let Some(own) = self.0.get(usize::from(interface)) {
            own.store(address.unwrap_or(0), Ordering::Relaxed);
        }
    }

    fn has(&self, interfaces: &[u16], address: u32) -> bool {
        let is_it = |own: &AtomicU32| own.load(Ordering::Relaxed) == address;
        match interfaces {
            _ if address == 0 => false,
            [] => self.0.iter().any(is_it),
            some => some.iter().any(|own| self.of(*own) == Some(address)),
        }
    }
}

/// To whom an outside address and port belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// To this inside host.
    Host([u64; 2]),
    /// To the host that has the port.
    Port,
    /// The address is none of the rules'.
    Nobody,
}

/// All rules, in order.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The rules.
    pub all: Vec<Rule>,
    /// Classes of hosts and ports: a power of two, at most [`CLASSES_MAX`].
    pub classes: u32,
    /// Addresses of interfaces.
    pub own: Arc<Own>,
    /// FTP is translated: servers behind port forwards announce other ports of their outside addresses.
    pub has_ftp: bool,
}

impl Rules {
    /// These rules for so many workers.
    pub fn new(all: Vec<Rule>, workers: usize, own: Arc<Own>) -> Self {
        let classes = (workers.max(1) as u32).next_power_of_two().min(CLASSES_MAX);
        Self { all, classes, own, has_ftp: false }
    }

    /// Says whether FTP is translated.
    #[must_use]
    pub fn with_ftp(self, has_ftp: bool) -> Self {
        Self { has_ftp, ..self }
    }

    /// The rule of a number.
    pub fn rule(&self, number: u16) -> Option<&Rule> {
        self.all.iter().find(|rule| rule.number == number)
    }

    /// Whether one of them translates IPv6.
    pub fn has_v6(&self) -> bool {
        self.all.iter().any(|rule| matches!(rule.action, Action::Nat64 { .. }))
    }

    /// Where a packet to `dst` goes instead: the rule's number, address and port.
    pub fn destination(&self, protocol: u8, dst: u32, port: u16) -> Option<(u16, u32, u16)> {
        self.all.iter().find_map(|rule| {
            let (to, port) = self.destination_of(rule, protocol, dst, port)?;
            Some((rule.number, to, port))
        })
    }

    fn destination_of(&self, rule: &Rule, protocol: u8, dst: u32, port: u16) -> Option<(u32, u16)> {
        if rule.protocol.is_some_and(|own| own != protocol) {
            return None;
        }
        match &rule.action {
            Action::Destination { at, to, to_port } => {
                let is_at = if at.is_empty() {
                    self.own.has(&rule.outside, dst)
                } else {
                    at.contains(&dst)
                };
                let takes_all = rule.ports == (0..=u16::MAX);
                let has_port = rule.protocol.is_some() && rule.ports.contains(&port);
                if !is_at || !(takes_all || has_port) {
                    return None;
                }
                let first = *rule.ports.start();
                let to_port = to_port.map_or(port, |own| own.saturating_add(port - first));
                Some((*to, to_port))
            }
            Action::Static { inside, outside } => outside.has(4, [0, dst.into()]).then(|| {
                let offset = dst - outside.address[1] as u32;
                (inside.address[1] as u32 + offset, port)
            }),
            _ => None,
        }
    }

    /// The rule for the source of a packet that leaves by an interface.
    pub fn source(&self, outside: u16, tuple: &Tuple) -> Option<u16> {
        let is_out = |rule: &Rule| rule.outside.is_empty() || rule.outside.contains(&outside);
        let takes = |rule: &Rule| {
            is_out(rule)
                && rule.takes(tuple.protocol, tuple.src.0, tuple.family)
                && match &rule.action {
                    Action::Masquerade | Action::Source(_) => tuple.family == 4,
                    Action::Static { inside, .. } | Action::Deterministic { inside, .. } => {
                        inside.has(tuple.family, tuple.src.0)
                    }
                    Action::Destination { .. } | Action::Nat64 { .. } => false,
                }
        };
        self.all.iter().find(|rule| takes(rule)).map(|rule| rule.number)
    }

    /// The rule for the source of an inside host that reaches another one by its outside address, whatever the interface;
    /// and an interface of the rule.
    pub fn hairpin(&self, tuple: &Tuple) -> Option<(u16, u16)> {
        let takes = |rule: &&Rule| {
            rule.takes(tuple.protocol, tuple.src.0, tuple.family)
                && match &rule.action {
                    Action::Masquerade | Action::Source(_) => true,
                    Action::Static { inside, .. } | Action::Deterministic { inside, .. } => {
                        inside.has(tuple.family, tuple.src.0)
                    }
                    Action::Destination { .. } | Action::Nat64 { .. } => false,
                }
        };
        let rule = self.all.iter().find(takes)?;
        Some((rule.number, rule.outside.first().copied().unwrap_or(0)))
    }

    /// Whether an address is only a translator's: no interface has it.
    pub fn is_pool(&self, address: u32) -> bool {
        let has = |rule: &Rule| match &rule.action {
            Action::Source(to) | Action::Nat64 { to, .. } => to.contains(&address),
            Action::Deterministic { blocks, .. } => blocks.has(address),
            _ => false,
        };
        self.all.iter().any(has) && !self.own.has(&[], address)
    }

    /// Whether what is sent to an address can be for nobody but a host of the inside: it is one of [`Rules::is_pool`], or a rule
    /// translates all that is sent to it, and no interface has it.
    pub fn is_translators(&self, address: u32) -> bool {
        let is_all = |rule: &Rule| match &rule.action {
            Action::Static { outside, .. } => outside.has(4, [0, address.into()]),
            Action::Destination { at, .. } => {
                at.contains(&address) && rule.protocol.is_none() && rule.ports == (0..=u16::MAX)
            }
            _ => false,
        };
        self.is_pool(address) || self.all.iter().any(is_all) && !self.own.has(&[], address)
    }

    /// Whether a rule has an address on the link of an interface, for the outside alone: addresses of interfaces are not
    /// meant.
    pub fn is_outside(&self, interface: u16, address: u32) -> bool {
        let has = |rule: &&Rule| match &rule.action {
            Action::Source(to) | Action::Nat64 { to, .. } => to.contains(&address),
            Action::Deterministic { blocks, .. } => blocks.has(address),
            Action::Static { outside, .. } => outside.has(4, [0, address.into()]),
            Action::Destination { at, .. } => at.contains(&address),
            Action::Masquerade => false,
        };
        let is_here = |rule: &Rule| rule.outside.is_empty() || rule.outside.contains(&interface);
        self.all.iter().filter(has).any(is_here) && !self.own.has(&[], address)
    }

    /// Addresses of [`Rules::is_outside`], those of each rule in order.
    pub fn outside(&self, interface: u16) -> impl Iterator<Item = u32> {
        let of = |rule: &Rule| -> Box<dyn Iterator<Item = u32>> {
            match &rule.action {
                Action::Static { outside, .. } => {
                    let first = outside.address[1] as u32;
                    Box::new(first..=first.saturating_add(outside.count() - 1))
                }
                Action::Destination { at, .. } => Box::new(at.clone().into_iter()),
                Action::Masquerade => Box::new(std::iter::empty()),
                _ => Box::new(rule.pool().into_iter()),
            }
        };
        let all = self.all.iter().flat_map(of);
        all.filter(move |address| self.is_outside(interface, *address))
    }

    /// The rule that translates a packet from IPv6 to IPv4, and the IPv4 destination.
    pub fn nat64(&self, tuple: &Tuple) -> Option<(u16, u32)> {
        self.all.iter().find_map(|rule| match &rule.action {
            Action::Nat64 { prefix, .. } if rule.takes(tuple.protocol, tuple.src.0, 6) => {
                Some((rule.number, nat64::extract(prefix, tuple.dst.0)?))
            }
            _ => None,
        })
    }

    /// Whether an IPv6 address stands for an IPv4 one.
    pub fn is_nat64(&self, address: [u64; 2]) -> bool {
        self.prefixes().any(|prefix| prefix.has(6, address))
    }

    /// Whether an IPv6 packet may begin a session to the IPv4 address `dst`, which is in its destination: its source is no
    /// translated one, which would go round (RFC 6146 §3.5), and `dst` is an IPv4 host's
    /// ([`nat64::is_reachable`]), neither the translator's nor the router's own.
    pub fn may_turn(&self, tuple: &Tuple, dst: u32) -> bool {
        !self.is_nat64(tuple.src.0)
            && nat64::is_reachable(tuple.dst.0, dst)
            && !self.is_translators(dst)
            && !self.is_own(dst)
    }

    /// Whether an address is the first one of an interface.
    pub fn is_own(&self, address: u32) -> bool {
        self.own.has(&[], address)
    }

    /// Whether an IPv6 packet to the IPv4 address `dst`, which is in its destination, may be for another inside host: `dst` is one
    /// that sources of inside hosts become, and its own source is no translated one (RFC 6146 §3.8).
    pub fn may_hairpin64(&self, tuple: &Tuple, dst: u32) -> bool {
        let has = |rule: &Rule| match &rule.action {
            Action::Nat64 { to, .. } => to.contains(&dst),
            _ => false,
        };
        self.all.iter().any(has) && self.may_reach_inside(tuple, dst)
    }

    /// Whether an IPv6 packet may reach somebody on this side by the IPv4 address `dst`, which is in its destination.
    pub fn may_reach_inside(&self, tuple: &Tuple, dst: u32) -> bool {
        !self.is_nat64(tuple.src.0) && nat64::is_reachable(tuple.dst.0, dst)
    }

    /// The IPv6 address that holds an IPv4 address for a rule from IPv6 to IPv4.
    pub fn embed_by(&self, number: u16, address: u32) -> Option<[u64; 2]> {
        match &self.rule(number)?.action {
            Action::Nat64 { prefix, .. } => Some(nat64::embed(prefix, address)),
            _ => None,
        }
    }

    /// The IPv4 address that an IPv6 address holds, and a rule by whose prefix it does.
    pub fn embedded(&self, address: [u64; 2]) -> Option<(u16, u32)> {
        self.all.iter().find_map(|rule| match &rule.action {
            Action::Nat64 { prefix, .. } => Some((rule.number, nat64::extract(prefix, address)?)),
            _ => None,
        })
    }

    /// Whether a rule translates packets of an IPv6 host to this address, of one protocol at least.
    pub fn takes64(&self, src: [u64; 2], dst: [u64; 2]) -> bool {
        self.all.iter().any(|rule| match &rule.action {
            Action::Nat64 { prefix, .. } => {
                let is_source = |own: &Prefix| own.has(6, src);
                prefix.has(6, dst)
                    && (rule.sources.is_empty() || rule.sources.iter().any(is_source))
            }
            _ => false,
        })
    }

    /// An IPv4 address as the rule shows it to whose prefix `like` belongs.
    pub fn embed(&self, like: [u64; 2], address: u32) -> [u64; 2] {
        let prefix = self.prefixes().find(|prefix| prefix.has(6, like));
        prefix.map_or(like, |prefix| nat64::embed(prefix, address))
    }

    fn prefixes(&self) -> impl Iterator<Item = &Prefix> {
        self.all.iter().filter_map(|rule| match &rule.action {
            Action::Nat64 { prefix, .. } => Some(prefix),
            _ => None,
        })
    }

    /// To whom an outside address and port belong.
    pub fn owner(&self, protocol: u8, dst: u32, port: u16) -> Owner {
        let mut found = Owner::Nobody;
        for rule in &self.all {
            if let Some((to, _)) = self.destination_of(rule, protocol, dst, port) {
                return Owner::Host([0, to.into()]);
            }
            match &rule.action {
                Action::Deterministic { blocks, .. } if blocks.has(dst) => {
                    let Some(host) = blocks.subscriber(dst, port) else { continue };
                    return Owner::Host([0, host.into()]);
                }
                Action::Masquerade if self.own.has(&rule.outside, dst) => found = Owner::Port,
                Action::Destination { at, .. } if self.has_ftp && protocol == 6 => {
                    let is_own = at.is_empty() && self.own.has(&rule.outside, dst);
                    if is_own || at.contains(&dst) {
                        found = Owner::Port;
                    }
                }
                Action::Source(to) | Action::Nat64 { to, .. } if to.contains(&dst) => {
                    found = Owner::Port;
                }
                _ => {}
            }
        }
        found
    }

    /// The class of an inside host.
    #[inline]
    pub fn class_of(&self, host: [u64; 2]) -> u32 {
        chunk::hash::key128(host, 0x6e61_7400) as u32 & (self.classes - 1)
    }

    /// The class whose worker a packet belongs to; `None` for one that no rule concerns whatever it says.
    pub fn class_of_packet(&self, d: &Decoded, l4: &[u8]) -> Option<u32> {
        let tuple = match Tuple::of(d, l4) {
            Some(tuple) => tuple,
            // An error belongs to the session of the packet that it is about: it travels against it.
            None if !d.has(Decoded::FRAGMENT) && is_error(d.protocol.0, *l4.first()?) => {
                Tuple::quoted(l4.get(8..)?)?.0.reversed()
            }
            None => return None,
        };
        if tuple.family == 6 {
            let (_, dst) = self.nat64(&tuple)?;
            // The port of an inside host says which worker has it.
            if self.may_hairpin64(&tuple, dst) && tuple.has_ports() && !self.is_own(dst) {
                return Some(u32::from(tuple.dst.1) & (self.classes - 1));
            }
            return Some(self.class_of(tuple.src.0));
        }
        Some(match self.owner(tuple.protocol, tuple.dst.0[1] as u32, tuple.dst.1) {
            Owner::Host(host) => self.class_of(host),
            Owner::Port => u32::from(tuple.dst.1) & (self.classes - 1),
            Owner::Nobody => self.class_of(tuple.src.0),
        })
    }

    /// The hash by which frames are spread over workers: all of a session, and all of an inside host, have the same one.
    /// Fragments have that of their addresses, since only the first one has ports.
    pub fn frame_hash(&self, frame: &[u8]) -> u32 {
        let d = packet::decode(frame, usize::MAX);
        if !matches!(d.kind, Kind::Ipv4 | Kind::Ipv6) {
            return packet::flow::host_hash(&d);
        }
        let l4 = frame.get(usize::from(d.l4_offset)..).unwrap_or_default();
        let class = self.class_of_packet(&d, l4);
        class.map_or_else(|| packet::flow::host_hash(&d), |class| self.hash_of(class))
    }

    /// The hash of a class: classes are spread evenly over the range of hashes.
    pub const fn hash_of(&self, class: u32) -> u32 {
        (((2 * class as u64 + 1) << 31) / self.classes as u64) as u32
    }
}
