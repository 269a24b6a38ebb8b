//! `[[nat]]` and `[translation]`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;

use crate::config::kinds::{
    Kind, address, boolean, duration, integer, list, name_of, number_or_parsed, parsed, prefix,
    words,
};

const LONGEST: Duration = Duration::from_hours(24 * 7);
const SHORTEST: Duration = Duration::from_secs(1);

crate::section! {
    /// Address translation: a router with `[[nat]]`.
    #[derive(Eq)]
    pub struct Translation("translation") {
        /// Sessions of each worker. Memory for them is reserved at the start: about 600 bytes each.
        restart sessions: usize = 65_536, integer(16..=16_777_216);
        /// Ports and identifiers that one inside host may use at a time, so that it cannot use those of all others.
        restart bindings_per_host: u32 = 8192, integer(1..=1_000_000);
        /// Who may send to an inside host by its outside address and port. `remote`: the address and port that the host has
        /// sent to. `anybody`: everyone, as long as the host uses the port.
        restart filter: NatFilter = NatFilter::Remote, words();
        /// Answer ARP requests for outside addresses of `[[nat]]` that no port has and that are in a prefix of the port (proxy
        /// ARP), and neighbour solicitations for addresses of `prefix` of `nat64`. New addresses are announced by
        /// gratuitous ARP.
        restart proxy_arp: bool = true, boolean();
        /// Ports of FTP servers. Addresses and ports in the lines of their control connections are translated, and data
        /// connections that they announce let through. The usual port is 21. None: FTP is a protocol like others, and only
        /// passive mode towards the outside works.
        restart ftp_ports: Vec<u16> = Vec::new(), list(integer(1..=65_535), "an array of ports such as [21]");
        /// Idle time after which an established TCP connection is forgotten. RFC 5382: not below 2h4m.
        restart tcp_established: Duration = Duration::from_secs(7440), duration(SHORTEST..=LONGEST);
        /// Idle time of a TCP connection that is opening or closing. RFC 5382: not below 4m.
        restart tcp_transitory: Duration = Duration::from_secs(240), duration(SHORTEST..=LONGEST);
        /// Idle time of UDP. RFC 4787: not below 2m.
        restart udp: Duration = Duration::from_secs(300), duration(SHORTEST..=LONGEST);
        /// Idle time of ICMP queries. RFC 5508: not below 60s.
        restart icmp: Duration = Duration::from_secs(60), duration(SHORTEST..=LONGEST);
        /// Idle time of other protocols.
        restart other: Duration = Duration::from_secs(600), duration(SHORTEST..=LONGEST);
    }
}

crate::section! {
    /// A rule of address translation. The first one that matches a packet translates it.
    #[derive(Eq, Hash)]
    pub struct NatRule("[[nat]]") {
        /// What the rule does.
        live kind: NatKind = NatKind::Masquerade, words().needed("\"masquerade\"");
        /// Ports of the outside. `masquerade`: packets that leave by them get their address. `destination`: without
        /// `destination`, packets to their addresses. `source`, `static`, `deterministic`: packets that leave by them; none:
        /// by any.
        live outside: Vec<String> = Vec::new(), list(name_of("a port"), "an array of ports").joined_by(" ");
        /// Inside addresses whose packets are translated; none: all. `static` and `deterministic` need one.
        live source: Vec<IpNet> = Vec::new(), list(prefix(), "an array of prefixes").joined_by(" ");
        /// `destination`: outside addresses that are forwarded.
        live destination: Vec<IpAddr> = Vec::new(), list(address(), "an array of addresses").joined_by(" ");
        /// Protocol; without it, all.
        live protocol: Option<NatProtocol> = None, words().optional();
        /// `destination`: outside port, or a range of ports; without it, all.
        live port: Option<PortRange> = None,
            number_or_parsed("a port or a range of ports such as \"8000-8010\"")
                .named("port or range", "1 to 65,535, or a range").optional();
        /// `source`, `nat64`, `deterministic`: outside addresses, as an address or prefix. `static`: the outside prefix.
        /// `destination`: the inside address, perhaps with a port: `"192.168.1.9:8080"`.
        live to: Option<NatTarget> = None,
            parsed("an address, a prefix or an address with a port")
                .named("target", "an address, a prefix, or an address with a port").optional();
        /// Outside ports and identifiers that sources get.
        live ports: PortRange = PortRange(1024..=65_535),
            number_or_parsed("a range of ports such as \"1024-65535\"")
                .named("range of ports", "1 to 65,535");
        /// `nat64`: IPv6 prefix in which IPv4 addresses are reached (RFC 6052).
        live prefix: IpNet = WELL_KNOWN, prefix();
    }
}

/// 64:ff9b::/96 (RFC 6052 §2.1).
const WELL_KNOWN: IpNet = IpNet::V6(ipnet::Ipv6Net::new_assert(
    std::net::Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0),
    96,
));

crate::words! {
    /// `nat.kind`.
    pub enum NatKind {
        /// Sources become the address of the port by which packets leave.
        Masquerade = "masquerade",
        /// Sources become one of the given addresses.
        Source = "source",
        /// Destinations become another address: a port forward.
        Destination = "destination",
        /// Inside addresses of a prefix have an outside address each.
        Static = "static",
        /// Subscribers share addresses by arithmetic (RFC 7422).
        Deterministic = "deterministic",
        /// IPv6 hosts reach IPv4 hosts (RFC 6146).
        Nat64 = "nat64",
    }
}

crate::words! {
    /// `nat.protocol`.
    pub enum NatProtocol {
        /// TCP.
        Tcp = "tcp",
        /// UDP.
        Udp = "udp",
        /// ICMP.
        Icmp = "icmp",
    }
}

crate::words! {
    /// `translation.filter`.
    pub enum NatFilter {
        /// Address- and port-dependent filtering (RFC 4787 §5).
        Remote = "remote",
        /// Endpoint-independent filtering.
        Anybody = "anybody",
    }
}

/// Ports from the first to the last.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PortRange(pub RangeInclusive<u16>);

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is not a range of ports: expected 1 to 65535, or two joined by `-`")
        };
        let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = port(first).zip(port(last)).ok_or_else(wrong)?;
        if first <= last { Ok(Self(first..=last)) } else { Err(wrong()) }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.start(), self.0.end()) {
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

/// What addresses become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NatTarget {
    /// An address or the addresses of a prefix.
    Net(IpNet),
    /// An address and a port.
    Socket(SocketAddr),
}

impl FromStr for NatTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Net(address.into()));
        }
        if let Ok(socket) = text.parse::<SocketAddr>() {
            return if socket.port() == 0 {
                Err(format!("`{text}` has port 0: expected a port from 1 to 65535"))
            } else {
                Ok(Self::Socket(socket))
            };
        }
        match text.parse::<IpNet>() {
            Ok(net) if net.trunc() == net => Ok(Self::Net(net)),
            Ok(net) => Err(format!("`{text}` has host bits: expected {}", net.trunc())),
            Err(_) => Err(format!(
                "`{text}` is not a target: expected an address, a prefix or an address with a port"
            )),
        }
    }
}

impl fmt::Display for NatTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(net) if net.prefix_len() == net.max_prefix_len() => net.addr().fmt(f),
            Self::Net(net) => net.fmt(f),
            Self::Socket(socket) => socket.fmt(f),
        }
    }
}

impl fmt::Display for NatRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use crate::config::section::SectionValue;
        let all = |rule: &Self| {
            let mut settings = Vec::new();
            SectionValue::settings(rule, "", &mut settings);
            settings
        };
        let settings = all(self);
        let shown = settings.iter().map(|setting| {
            let key = setting.key.trim_start_matches('.');
            (key, setting.text.as_str())
        });
        let plain = NatRule::default();
        let defaults = all(&plain);
        let mut is_first = true;
        for ((key, text), default) in shown.zip(&defaults) {
            if key != "kind" && text == default.text {
                continue;
            }
            let gap = if std::mem::take(&mut is_first) { "" } else { " " };
            match key {
                "kind" => write!(f, "{gap}{text}")?,
                _ => write!(f, "{gap}{key} {text}")?,
            }
        }
        Ok(())
    }
}
