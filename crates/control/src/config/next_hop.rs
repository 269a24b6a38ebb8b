//! Next hops and their text form, shared by the configuration, routes files and the API.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::types::FileNextHops;
use crate::rib::spread;

/// Where a route leads.
///
/// Text form, read and written alike: `192.0.2.1`, `fe80::1%lan` (on that port), `lan` (a port:
/// the destination itself is the neighbour), `192.0.2.1*3,192.0.2.2` (a group with weights),
/// `blackhole` (dropped, counted), `unreachable` (dropped, counted, answered by ICMP).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NextHop {
    /// A neighbour.
    Address {
        /// Its address.
        address: IpAddr,
        /// Its port where the address alone does not say it.
        port: Option<String>,
    },
    /// A connected subnet.
    Port(String),
    /// Equal-cost members, each an `Address` or a `Port`, with weights of at least 1.
    Group(Vec<(NextHop, u16)>),
    /// Drop.
    Blackhole,
    /// Drop, and send an ICMP error to the sender.
    Unreachable,
}

/// The text is not a next hop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a next hop: expected an address, ADDRESS%PORT, a port, `blackhole`, `unreachable`, or several of the first three with `,` between them"
)]
pub struct ParseNextHopError(pub String);

impl NextHop {
    /// A neighbour whose port follows from the connected subnets.
    pub fn address(address: IpAddr) -> NextHop {
        NextHop::Address { address, port: None }
    }

    /// The members with their weights; a next hop that is not a group is its own only member.
    pub fn members(&self) -> Vec<(&NextHop, u16)> {
        match self {
            NextHop::Group(members) => members.iter().map(|(hop, weight)| (hop, *weight)).collect(),
            hop => vec![(hop, 1)],
        }
    }

    /// Whether packets of IPv4 (`v4`) or IPv6 can leave by it.
    pub fn carries(&self, v4: bool) -> bool {
        match self {
            NextHop::Address { address, .. } => address.is_ipv4() == v4,
            NextHop::Group(members) => members.iter().all(|(hop, _)| hop.carries(v4)),
            NextHop::Port(_) | NextHop::Blackhole | NextHop::Unreachable => true,
        }
    }
}

impl FromStr for NextHop {
    type Err = ParseNextHopError;

    fn from_str(text: &str) -> Result<NextHop, ParseNextHopError> {
        let error = || ParseNextHopError(text.to_owned());
        if text.contains(',') || text.contains('*') {
            let mut members = Vec::new();
            for part in text.split(',') {
                let (hop, weight) = match part.split_once('*') {
                    Some((hop, weight)) => (hop, weight.trim().parse().map_err(|_| error())?),
                    None => (part, 1),
                };
                let hop = single(hop.trim()).ok_or_else(error)?;
                if weight == 0 || matches!(hop, NextHop::Blackhole | NextHop::Unreachable) {
                    return Err(error());
                }
                members.push((hop, weight));
            }
            return Ok(NextHop::Group(members));
        }
        single(text.trim()).ok_or_else(error)
    }
}

impl fmt::Display for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NextHop::Address { address, port: None } => write!(f, "{address}"),
            NextHop::Address { address, port: Some(port) } => write!(f, "{address}%{port}"),
            NextHop::Port(port) => f.write_str(port),
            NextHop::Group(members) => {
                for (i, (hop, weight)) in members.iter().enumerate() {
                    if i > 0 {
                        f.write_str(",")?;
                    }
                    write!(f, "{hop}")?;
                    // A group of one needs its weight to be read back as a group.
                    if *weight != 1 || members.len() == 1 {
                        write!(f, "*{weight}")?;
                    }
                }
                Ok(())
            }
            NextHop::Blackhole => f.write_str("blackhole"),
            NextHop::Unreachable => f.write_str("unreachable"),
        }
    }
}

impl serde::Serialize for NextHop {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for NextHop {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<NextHop, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl FileNextHops {
    /// The next hop of a prefix without one of its own: the same prefix always gets the same.
    pub fn get(&self, prefix: IpNet) -> Option<&NextHop> {
        let FileNextHops::Spread { v4, v6 } = self else { return None };
        let hops = if prefix.addr().is_ipv4() { v4 } else { v6 };
        hops.get(spread(prefix, hops.len().max(1)))
    }
}

/// Whether `name` can name a port: letters, digits, `.`, `_` and `-`, not mistaken for an
/// address or a word of the next hops' text form.
pub fn is_port_name(name: &str) -> bool {
    let reserved = ["blackhole", "unreachable", "drops", "host", "all"];
    !name.is_empty()
        && name.len() <= 32
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        && name.chars().any(|c| c.is_ascii_alphabetic())
        && !reserved.contains(&name)
}

fn single(text: &str) -> Option<NextHop> {
    match text {
        "blackhole" => return Some(NextHop::Blackhole),
        "unreachable" => return Some(NextHop::Unreachable),
        _ => {}
    }
    if let Some((address, port)) = text.split_once('%') {
        let address = address.parse().ok()?;
        return is_port_name(port)
            .then(|| NextHop::Address { address, port: Some(port.to_owned()) });
    }
    if let Ok(address) = text.parse() {
        return Some(NextHop::address(address));
    }
    is_port_name(text).then(|| NextHop::Port(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_form_is_read_and_written() {
        for (text, written) in [
            ("192.0.2.1", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("fe80::1%lan", "fe80::1%lan"),
            ("lan.100", "lan.100"),
            ("192.0.2.1*3, lan", "192.0.2.1*3,lan"),
            ("lan*1", "lan*1"),
            ("blackhole", "blackhole"),
            ("unreachable", "unreachable"),
        ] {
            let hop: NextHop = text.parse().unwrap();
            assert_eq!(hop.to_string(), written);
            assert_eq!(written.parse::<NextHop>().unwrap(), hop);
        }
        for text in
            ["", "a b", "192.0.2", "1.2.3.4%", "a,,b", "a*0", "a*x", "blackhole,lan", "2001:db8::g"]
        {
            assert!(text.parse::<NextHop>().is_err(), "{text}");
        }
    }

    #[test]
    fn spread_is_even_and_stable() {
        let v4: Vec<NextHop> = (0..8).map(|i| NextHop::Port(format!("p{i}"))).collect();
        let hops = FileNextHops::Spread { v4: v4.clone(), v6: Vec::new() };
        let mut counts = [0; 8];
        for i in 0..8000u32 {
            let net = ipnet::Ipv4Net::new(std::net::Ipv4Addr::from_bits(i << 8), 24).unwrap();
            let hop = hops.get(net.into()).unwrap();
            counts[v4.iter().position(|other| other == hop).unwrap()] += 1;
        }
        assert!(counts.iter().all(|&n| (850..1150).contains(&n)), "{counts:?}");
        assert_eq!(hops.get("2001:db8::/32".parse().unwrap()), None);
        // Pinned: a change of the hash would move every prefix of a running router.
        assert_eq!(spread("192.0.2.0/24".parse().unwrap(), 8), 5);
    }

    proptest! {
        #[test]
        fn any_text_is_taken_or_refused(text in "\\PC{0,24}") {
            if let Ok(hop) = text.parse::<NextHop>() {
                prop_assert_eq!(hop.to_string().parse::<NextHop>().unwrap(), hop);
            }
        }
    }
}
