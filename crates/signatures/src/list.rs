//! Lists of addresses and of ports: `any`, items, variables, negations, nesting; and what they come to.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::problem::Fault;
use crate::variables::Variables;

/// How deep lists nest; negations count as well.
pub const LIST_DEPTH_MAX: usize = 32;

/// How many ranges a list may come to.
pub const RANGES_MAX: usize = 1 << 18;

/// A list as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum List<T> {
    /// `any`
    Any,
    /// An address, network, port or range.
    Item(T),
    /// `$NAME`, without the `$`.
    Variable(String),
    /// `!` and what follows.
    Not(Box<List<T>>),
    /// `[a,b,…]`: what is in a member that is not negated (in any, where all are negated) and in none that is.
    Several(Vec<List<T>>),
}

/// An item of a list of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressItem {
    /// One.
    Address(IpAddr),
    /// A prefix without host bits.
    Net(IpNet),
    /// From the first to the second, both included.
    Range(IpAddr, IpAddr),
}

/// An item of a list of ports: from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortRange {
    /// The lowest.
    pub first: u16,
    /// The highest.
    pub last: u16,
}

/// Why a list does not resolve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The table has no such variable.
    #[error("variable ${0} is not defined")]
    Undefined(String),
    /// It leads back to itself.
    #[error("variable ${0} refers to itself")]
    Cycle(String),
    /// Variables lead to variables too often.
    #[error("variable ${0} refers to variables more than {LIST_DEPTH_MAX} deep")]
    Depth(String),
    /// `!any`, `[a,!a]`.
    #[error("the list excludes everything")]
    Empty,
    /// More than [`RANGES_MAX`].
    #[error("the list comes to more than {RANGES_MAX} ranges")]
    Ranges,
}

/// What items of a list are: how they are written, and which numbers they cover. Numbers of both families of addresses
/// are in one space of 129 bits: IPv4 first, then IPv6.
pub(crate) trait Item: Sized + Clone + fmt::Display {
    fn parse(text: &str) -> Result<Self, String>;
    fn covers(&self, into: &mut Vec<(Key, Key)>);
    fn all() -> Vec<(Key, Key)>;
    /// Resolved variables of this kind.
    fn variable<'a>(variables: &'a Variables, name: &str) -> Option<&'a Intervals>;
}

/// Family (0: IPv4 or ports, 1: IPv6) and number.
type Key = (u8, u128);

/// Sorted, disjoint ranges of addresses or of ports that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Intervals {
    ranges: Vec<(Key, Key)>,
}

impl Intervals {
    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Is the address in one of them?
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.has(key(address))
    }

    /// Is the port in one of them?
    pub fn has_port(&self, port: u16) -> bool {
        self.has((0, u128::from(port)))
    }

    /// The ranges of IPv4, or of ports, in order; both ends included.
    pub fn low(&self) -> impl Iterator<Item = (u32, u32)> {
        let narrow = self.ranges.iter().filter(|(first, _)| first.0 == 0);
        narrow.map(|(first, last)| (first.1 as u32, last.1 as u32))
    }

    /// The ranges of IPv6, in order; both ends included.
    pub fn ipv6(&self) -> impl Iterator<Item = (u128, u128)> {
        let wide = self.ranges.iter().filter(|(first, _)| first.0 == 1);
        wide.map(|(first, last)| (first.1, last.1))
    }

    fn has(&self, key: Key) -> bool {
        let above = self.ranges.partition_point(|(first, _)| *first <= key);
        above > 0 && self.ranges[above - 1].1 >= key
    }

    fn new(mut ranges: Vec<(Key, Key)>) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<(Key, Key)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(before) if before.1 >= first || touches(before.1, first) => {
                    before.1 = before.1.max(last);
                }
                _ => joined.push((first, last)),
            }
        }
        Self { ranges: joined }
    }

    /// What is here and not there; both sorted, so in one pass.
    fn without(&self, other: &Self) -> Self {
        let mut rest = Vec::new();
        let mut at = 0;
        for &(mut first, last) in &self.ranges {
            while at < other.ranges.len() && other.ranges[at].1 < first {
                at += 1;
            }
            let mut gone = false;
            for &(from, to) in &other.ranges[at..] {
                if from > last {
                    break;
                }
                if from > first {
                    rest.push((first, (from.0, from.1 - 1)));
                }
                if to >= last {
                    gone = true;
                    break;
                }
                first = (to.0, to.1 + 1);
                at += 1;
            }
            if !gone {
                rest.push((first, last));
            }
        }
        Self { ranges: rest }
    }
}

fn touches(last: Key, first: Key) -> bool {
    last.0 == first.0 && last.1.checked_add(1) == Some(first.1)
}

fn key(address: IpAddr) -> Key {
    match address {
        IpAddr::V4(address) => (0, u128::from(u32::from(address))),
        IpAddr::V6(address) => (1, u128::from(address)),
    }
}

impl Item for AddressItem {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not an address, network or range");
        if let Some((address, length)) = text.split_once('/') {
            let address: IpAddr = address.trim().parse().map_err(|_| wrong())?;
            let length = match (length.trim().parse::<u8>(), address) {
                (Ok(length), _) => length,
                (_, IpAddr::V4(_)) => {
                    let mask: std::net::Ipv4Addr = length.trim().parse().map_err(|_| wrong())?;
                    let mask = u32::from(mask);
                    if mask.leading_ones() + mask.trailing_zeros() < 32 {
                        return Err(format!("`{text}` has a netmask with a gap"));
                    }
                    mask.leading_ones() as u8
                }
                _ => return Err(wrong()),
            };
            let net = IpNet::new(address, length)
                .map_err(|_| format!("`{text}` has a prefix longer than its address"))?;
            return Ok(Self::Net(net.trunc()));
        }
        if let Some((first, last)) = text.split_once('-') {
            let first: IpAddr = first.trim().parse().map_err(|_| wrong())?;
            let last: IpAddr = last.trim().parse().map_err(|_| wrong())?;
            if first.is_ipv4() != last.is_ipv4() {
                return Err(format!("`{text}` mixes IPv4 and IPv6"));
            }
            if first > last {
                return Err(format!("`{text}` begins above its end"));
            }
            return Ok(Self::Range(first, last));
        }
        text.parse().map(Self::Address).map_err(|_| wrong())
    }

    fn covers(&self, into: &mut Vec<(Key, Key)>) {
        into.push(match self {
            Self::Address(address) => (key(*address), key(*address)),
            Self::Range(first, last) => (key(*first), key(*last)),
            Self::Net(net) => (key(net.network()), key(net.broadcast())),
        });
    }

    fn all() -> Vec<(Key, Key)> {
        vec![((0, 0), (0, u128::from(u32::MAX))), ((1, 0), (1, u128::MAX))]
    }

    fn variable<'a>(variables: &'a Variables, name: &str) -> Option<&'a Intervals> {
        variables.address(name)
    }
}

impl fmt::Display for AddressItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::Net(net) => write!(f, "{net}"),
            Self::Range(first, last) => write!(f, "{first}-{last}"),
        }
    }
}

impl Item for PortRange {
    fn parse(text: &str) -> Result<Self, String> {
        let port = |part: &str, open: u16| match part.trim() {
            "" => Ok(open),
            number => match number.parse::<u32>() {
                Ok(number) => {
                    u16::try_from(number).map_err(|_| format!("port {number} is above 65535"))
                }
                Err(_) => Err(format!("`{text}` is not a port or range of ports")),
            },
        };
        let (first, last) = match text.split_once(':') {
            Some((first, last)) if first.trim().is_empty() && last.trim().is_empty() => {
                return Err("a range of ports has at least one end".to_owned());
            }
            Some((first, last)) => (port(first, 0)?, port(last, u16::MAX)?),
            None if text.is_empty() => return Err("a port is missing".to_owned()),
            None if text.contains('-') => {
                return Err(format!("`{text}`: ranges of ports are written with `:`"));
            }
            None => (port(text, 0)?, port(text, 0)?),
        };
        if first > last {
            return Err(format!("`{text}` begins above its end"));
        }
        Ok(Self { first, last })
    }

    fn covers(&self, into: &mut Vec<(Key, Key)>) {
        into.push(((0, u128::from(self.first)), (0, u128::from(self.last))));
    }

    fn all() -> Vec<(Key, Key)> {
        vec![((0, 0), (0, u128::from(u16::MAX)))]
    }

    fn variable<'a>(variables: &'a Variables, name: &str) -> Option<&'a Intervals> {
        variables.port(name)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.first, self.last) {
            (first, last) if first == last => write!(f, "{first}"),
            (first, u16::MAX) => write!(f, "{first}:"),
            (first, last) => write!(f, "{first}:{last}"),
        }
    }
}

#[expect(private_bounds, reason = "items are of these two kinds")]
impl<T: Item> List<T> {
    /// The ranges of it, with variables from the table.
    ///
    /// # Errors
    /// A variable is not in the table; the list excludes everything; there are too many ranges.
    pub fn resolve(&self, variables: &Variables) -> Result<Intervals, ResolveError> {
        let found = self.resolve_with(&mut |name| {
            T::variable(variables, name)
                .cloned()
                .ok_or_else(|| ResolveError::Undefined(name.into()))
        })?;
        match found.is_empty() {
            true => Err(ResolveError::Empty),
            false => Ok(found),
        }
    }

    /// The same, variables from a function.
    pub(crate) fn resolve_with(
        &self,
        variable: &mut dyn FnMut(&str) -> Result<Intervals, ResolveError>,
    ) -> Result<Intervals, ResolveError> {
        match self {
            Self::Any => Ok(Intervals { ranges: T::all() }),
            Self::Item(item) => {
                let mut ranges = Vec::new();
                item.covers(&mut ranges);
                Ok(Intervals { ranges })
            }
            Self::Variable(name) => variable(name),
            Self::Not(inner) => {
                let inner = inner.resolve_with(variable)?;
                Ok(Intervals { ranges: T::all() }.without(&inner))
            }
            Self::Several(members) => {
                let (mut with, mut without) = (Vec::new(), Vec::new());
                let mut has_with = false;
                for member in members {
                    let (side, member) = match member {
                        Self::Not(inner) => (&mut without, &**inner),
                        member => {
                            has_with = true;
                            (&mut with, member)
                        }
                    };
                    match member {
                        Self::Item(item) => item.covers(side),
                        _ => side.extend(member.resolve_with(variable)?.ranges),
                    }
                    if with.len() + without.len() > RANGES_MAX {
                        return Err(ResolveError::Ranges);
                    }
                }
                if !has_with {
                    with = T::all();
                }
                Ok(Intervals::new(with).without(&Intervals::new(without)))
            }
        }
    }

    /// The names of the variables in it.
    pub fn variables(&self) -> Vec<&str> {
        match self {
            Self::Any | Self::Item(_) => Vec::new(),
            Self::Variable(name) => vec![name],
            Self::Not(inner) => inner.variables(),
            Self::Several(members) => members.iter().flat_map(Self::variables).collect(),
        }
    }

    /// A list from its text; offsets of faults count from `base`.
    pub(crate) fn parse_at(text: &[u8], base: usize) -> Result<Self, Fault> {
        let text = std::str::from_utf8(text)
            .map_err(|e| Fault::new(base + e.valid_up_to(), "not valid UTF-8"))?;
        let mut parser = Parser { text, at: 0, base };
        let list = parser.list(0)?;
        parser.space();
        if parser.at < text.len() {
            return Err(match &text[parser.at..] {
                rest if rest.starts_with(']') => parser.fault("`]` closes no list"),
                rest if rest.starts_with(',') => parser.fault("several items need `[` and `]`"),
                rest => parser.fault(format!("`{}` after the list", clip(rest))),
            });
        }
        Ok(list)
    }
}

impl<T: Item> fmt::Display for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Item(item) => write!(f, "{item}"),
            Self::Variable(name) => write!(f, "${name}"),
            Self::Not(inner) => write!(f, "!{inner}"),
            Self::Several(members) => {
                f.write_str("[")?;
                for (at, member) in members.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    write!(f, "{comma}{member}")?;
                }
                f.write_str("]")
            }
        }
    }
}

/// The beginning of a text, for a message.
pub(crate) fn clip(text: &str) -> &str {
    match text.char_indices().nth(40) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    base: usize,
}

impl Parser<'_> {
    fn fault(&self, reason: impl Into<String>) -> Fault {
        Fault::new(self.base + self.at, reason)
    }

    fn space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_ascii_start().len();
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.text.as_bytes().get(self.at) == Some(&byte);
        self.at += usize::from(there);
        there
    }

    fn list<T: Item>(&mut self, depth: usize) -> Result<List<T>, Fault> {
        if depth > LIST_DEPTH_MAX {
            return Err(self.fault(format!("lists nest more than {LIST_DEPTH_MAX} deep")));
        }
        self.space();
        if self.take(b'!') {
            return Ok(List::Not(Box::new(self.list(depth + 1)?)));
        }
        if self.take(b'[') {
            let mut members = Vec::new();
            self.space();
            if self.take(b']') {
                return Err(self.fault("the list is empty"));
            }
            loop {
                members.push(self.list(depth + 1)?);
                self.space();
                if self.take(b']') {
                    return Ok(List::Several(members));
                }
                if !self.take(b',') {
                    let rest = &self.text[self.at..];
                    return Err(match rest {
                        "" => self.fault("a list has no closing `]`"),
                        _ => self.fault(format!("`,` or `]` expected, not `{}`", clip(rest))),
                    });
                }
            }
        }
        let start = self.at;
        let rest = &self.text[start..];
        let length = rest.find([',', ']', '[', '!']).unwrap_or(rest.len());
        let word = rest[..length].trim_ascii_end();
        self.at = start + length;
        let fault = |reason: String| Fault::new(self.base + start, reason);
        if let Some(name) = word.strip_prefix('$') {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if name.is_empty() || !name.chars().all(plain) {
                return Err(fault(format!("`{}` is not a name of a variable", clip(word))));
            }
            return Ok(List::Variable(name.to_owned()));
        }
        match word {
            "" => Err(fault("an item is missing".to_owned())),
            word if word.eq_ignore_ascii_case("any") => Ok(List::Any),
            word if word.len() > 100 => Err(fault(format!("`{}` is too long", clip(word)))),
            word => T::parse(word).map(List::Item).map_err(fault),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(text: &str) -> List<AddressItem> {
        List::parse_at(text.as_bytes(), 0).unwrap_or_else(|e| panic!("{text}: {e:?}"))
    }

    /// The definition, item by item.
    fn has(list: &List<AddressItem>, address: IpAddr) -> bool {
        match list {
            List::Any => true,
            List::Item(AddressItem::Address(one)) => *one == address,
            List::Item(AddressItem::Net(net)) => net.contains(&address),
            List::Item(AddressItem::Range(first, last)) => {
                first.is_ipv4() == address.is_ipv4() && (*first..=*last).contains(&address)
            }
            List::Variable(_) => unreachable!("none here"),
            List::Not(inner) => !has(inner, address),
            List::Several(members) => {
                let negated = |m: &&List<_>| matches!(m, List::Not(_));
                let mut with = members.iter().filter(|m| !negated(m)).peekable();
                (with.peek().is_none() || with.any(|m| has(m, address)))
                    && members.iter().filter(negated).all(|m| has(m, address))
            }
        }
    }

    #[test]
    fn ranges_agree_with_the_definition() {
        let texts = [
            "any",
            "!10.0.0.0/8",
            "[10.0.0.0/30,!10.0.0.1,10.0.0.9-10.0.0.12,2001:db8::/126]",
            "[!10.0.0.0/31,!10.0.0.4]",
            "![10.0.0.0/29,![10.0.0.2,10.0.0.3]]",
            "[10.0.0.0/28,![10.0.0.4/30,!10.0.0.6],![10.0.0.1]]",
            "[0.0.0.0/0,!0.0.0.0/1,::/0,![::/1]]",
            "[10.0.0.1/255.255.255.254,10.0.0.2,10.0.0.3,10.0.0.5]",
        ];
        let mut probes: Vec<IpAddr> = (0..20).map(|n| IpAddr::from([10, 0, 0, n])).collect();
        probes.extend((0..8u16).map(|n| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, n])));
        let ends = ["0.0.0.0", "255.255.255.255", "127.255.255.255", "128.0.0.0", "::", "8000::"];
        probes.extend(ends.iter().map(|a| a.parse::<IpAddr>().unwrap()));
        for text in texts {
            let list = addresses(text);
            let set = list.resolve(&Variables::default()).unwrap();
            for probe in &probes {
                assert_eq!(set.has_address(*probe), has(&list, *probe), "{text} {probe}");
            }
            assert_eq!(addresses(&list.to_string()), list);
        }
    }

    /// Lists over 32 addresses, each of which is compared with the definition, and the addresses beside them.
    fn random_lists(seed: u64) {
        let mut state = seed;
        let mut below = |bound: u64| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let x = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (x ^ x >> 31) % bound
        };
        let v4 = |n: u64| IpAddr::from([10, 0, 0, n as u8]);
        let v6 = |n: u64| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, n as u16]);
        fn make(
            depth: u32,
            below: &mut dyn FnMut(u64) -> u64,
            address: [&dyn Fn(u64) -> IpAddr; 2],
        ) -> List<AddressItem> {
            let family = below(2) as usize;
            let (a, b) = (below(16), below(16));
            let of = address[family];
            match below(if depth > 3 { 4 } else { 9 }) {
                0 => List::Any,
                1 => List::Item(AddressItem::Address(of(a))),
                2 => List::Item(AddressItem::Range(of(a.min(b)), of(a.max(b)))),
                3 => {
                    let length = [32, 128][family] - below(4) as u8;
                    let net = IpNet::new(of(a), length).unwrap().trunc();
                    List::Item(AddressItem::Net(net))
                }
                4 | 5 => List::Not(Box::new(make(depth + 1, below, address))),
                _ => {
                    let count = 1 + below(4);
                    List::Several((0..count).map(|_| make(depth + 1, below, address)).collect())
                }
            }
        }
        let mut probes: Vec<IpAddr> = (0..18).flat_map(|n| [v4(n), v6(n)]).collect();
        let ends = ["0.0.0.0", "9.255.255.255", "255.255.255.255", "::", "ffff::"];
        probes.extend(ends.iter().map(|a| a.parse::<IpAddr>().unwrap()));
        for _ in 0..200 {
            let list = make(0, &mut below, [&v4, &v6]);
            let set = match list.resolve(&Variables::default()) {
                Err(ResolveError::Empty) => Intervals::default(),
                set => set.unwrap(),
            };
            for probe in &probes {
                let expected = has(&list, *probe);
                assert_eq!(set.has_address(*probe), expected, "seed {seed}: {list}, {probe}");
            }
            // Sorted, disjoint, and nothing that could be one range is two.
            for pair in set.ranges.windows(2) {
                let ((_, last), (first, _)) = (pair[0], pair[1]);
                assert!(last < first && !touches(last, first), "seed {seed}: {list}: {set:?}");
            }
        }
    }

    #[test]
    fn random_lists_agree_with_the_definition() {
        (0..20).for_each(random_lists);
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        (0..50).for_each(|n| random_lists((time.as_nanos() as u64).wrapping_add(n << 32)));
    }

    #[test]
    fn nothing_is_left() {
        for text in ["!any", "[10.0.0.0/8,!any]", "[1.2.3.4,!1.2.3.4]"] {
            let error = addresses(text).resolve(&Variables::default());
            assert_eq!(error, Err(ResolveError::Empty), "{text}");
        }
    }

    #[test]
    fn ports() {
        let list: List<PortRange> = List::parse_at(b"[80,1024:,!2000:3000, :5]", 0).unwrap();
        assert_eq!(list.to_string(), "[80,1024:,!2000:3000,0:5]");
        let set = list.resolve(&Variables::default()).unwrap();
        let low: Vec<_> = set.low().collect();
        assert_eq!(low, [(0, 5), (80, 80), (1024, 1999), (3001, 65535)]);
        assert!(set.has_port(3001) && !set.has_port(2500));
    }

    #[test]
    fn depth_is_bounded() {
        let deep = |n: usize| format!("{}80{}", "[".repeat(n), "]".repeat(n));
        assert!(List::<PortRange>::parse_at(deep(LIST_DEPTH_MAX).as_bytes(), 0).is_ok());
        assert!(List::<PortRange>::parse_at(deep(LIST_DEPTH_MAX + 1).as_bytes(), 0).is_err());
        assert!(List::<PortRange>::parse_at("!".repeat(60_000).as_bytes(), 0).is_err());
    }
}
