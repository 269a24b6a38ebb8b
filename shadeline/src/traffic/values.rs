//! The options' values as people write them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use ipnet::IpNet;

/// How fast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Rate {
    /// Packets per second.
    Packets(f64),
    /// Bits per second on the wire, overhead included.
    Bits(f64),
    /// As fast as possible.
    Max,
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "expected a rate such as 10kpps, 1Mpps, 10Gbps or max".to_owned();
        if text == "max" {
            return Ok(Rate::Max);
        }
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(expected)?;
        let (number, unit) = text.split_at(end);
        let number: f64 = number.parse().map_err(|_| expected())?;
        let unit = unit.trim_start();
        let (prefix, of) =
            unit.split_at_checked(unit.len().saturating_sub(3)).ok_or_else(expected)?;
        let scale = match prefix {
            "" => 1.0,
            "k" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            _ => return Err(expected()),
        };
        let rate = number * scale;
        match of {
            _ if !(rate > 0.0 && rate <= 1e12) => Err("expected a rate above 0".into()),
            "pps" => Ok(Rate::Packets(rate)),
            "bps" => Ok(Rate::Bits(rate)),
            _ => Err(expected()),
        }
    }
}

/// Frame sizes with check sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sizes {
    /// These, in turn.
    List(Vec<usize>),
    /// The simple IMIX.
    Imix,
}

/// What an IPv4 packet, an Ethernet header with two tags and the check sequence can hold together.
const SIZE_MAX: usize = 65_535 + 22 + 4;

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "imix" {
            return Ok(Sizes::Imix);
        }
        let size = |part: &str| {
            let size = part.trim().parse::<usize>().ok();
            size.filter(|size| (64..=SIZE_MAX).contains(size)).ok_or_else(|| {
                format!("expected `imix` or sizes of 64 to {SIZE_MAX} bytes, such as 64,512,1518")
            })
        };
        text.split(',').map(size).collect::<Result<_, _>>().map(Sizes::List)
    }
}

/// Addresses to choose from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Addresses {
    /// Any unicast address.
    Random,
    /// At random within a prefix; one of full length is a single address.
    Prefix(IpNet),
    /// At random one of a list.
    File(PathBuf),
}

impl FromStr for Addresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "random" {
            return Ok(Addresses::Random);
        }
        if let Some(path) = text.strip_prefix('@') {
            return Ok(Addresses::File(path.into()));
        }
        let single = || text.parse::<IpAddr>().ok().map(IpNet::from);
        let net = text.parse::<IpNet>().ok().map(|net| net.trunc()).or_else(single);
        net.map(Addresses::Prefix)
            .ok_or_else(|| "expected an address, a prefix, `random` or @FILE".into())
    }
}

/// Ports to choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ports {
    /// Any.
    Random,
    /// From the first to the last, in turn.
    Range(u16, u16),
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "random" {
            return Ok(Ports::Random);
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Ports::Range(first, last)),
            _ => Err("expected a port, a range such as 1024-65535, or `random`".into()),
        }
    }
}

/// VLAN identifiers, the outer one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tags(pub(crate) u16, pub(crate) Option<u16>);

impl FromStr for Tags {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let id = |text: &str| {
            let id = text.trim().parse::<u16>().ok().filter(|id| *id <= 4094);
            id.ok_or("expected a VLAN identifier of 0 to 4094, or two joined by `,`")
        };
        match text.split_once(',') {
            None => Ok(Tags(id(text)?, None)),
            Some((outer, inner)) => Ok(Tags(id(outer)?, Some(id(inner)?))),
        }
    }
}

/// The upper layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protocol {
    /// Datagrams of zeros
    Udp,
    /// Segments of zeros with ACK set
    Tcp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write() {
        let rate = |text: &str| text.parse::<Rate>();
        assert_eq!(rate("1.5Mpps"), Ok(Rate::Packets(1.5e6)));
        assert_eq!(rate("100 kpps"), Ok(Rate::Packets(1e5)));
        assert_eq!(rate("10Gbps"), Ok(Rate::Bits(1e10)));
        assert_eq!(rate("7pps"), Ok(Rate::Packets(7.0)));
        assert_eq!(rate("max"), Ok(Rate::Max));
        for bad in ["", "1", "pps", "1pp", "0pps", "-1pps", "1Xpps", "1..2pps", "1µs", "1e400Gpps"]
        {
            assert!(rate(bad).is_err(), "{bad}");
        }
        assert_eq!("64, 1518".parse(), Ok(Sizes::List(vec![64, 1518])));
        for bad in ["", "63", "64,,", "70000", "IMIX"] {
            assert!(bad.parse::<Sizes>().is_err(), "{bad}");
        }
        assert_eq!("9".parse(), Ok(Ports::Range(9, 9)));
        assert_eq!("9-11".parse(), Ok(Ports::Range(9, 11)));
        for bad in ["", "11-9", "65536", "1-2-3"] {
            assert!(bad.parse::<Ports>().is_err(), "{bad}");
        }
        assert_eq!("7,8".parse(), Ok(Tags(7, Some(8))));
        assert!("4095".parse::<Tags>().is_err());
        let net = |text: &str| Addresses::Prefix(text.parse().unwrap());
        assert_eq!("10.1.2.3/8".parse(), Ok(net("10.0.0.0/8")));
        assert_eq!("::1".parse(), Ok(net("::1/128")));
        assert_eq!("@a/b".parse(), Ok(Addresses::File("a/b".into())));
        assert!("10.0.0.0/33".parse::<Addresses>().is_err());
    }
}
