//! `[flow]`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use packet::tunnel::Kinds;

use crate::config::kinds::{Custom, Kind, boolean, custom, duration, integer, list, words};
use crate::config::values;

const MINUTE: Duration = Duration::from_mins(1);
const LONGEST: Duration = Duration::from_hours(24 * 7);
const SHORTEST: Duration = Duration::from_millis(1);

/// Keys of `[flow]` that have other names now: those of the sysctls of Linux's conntrack.
pub(in crate::config) const RENAMED: &[(&str, &str)] = &[
    ("tcp_new", "tcp_syn_sent and tcp_syn_recv"),
    ("tcp_closed", "tcp_time_wait and tcp_close"),
    ("udp_new", "udp"),
    ("udp_established", "udp_stream"),
    ("other", "generic"),
];

crate::section! {
    /// Flow tracking and TCP reassembly: a monitor, or a stage of a router, switch or wire.
    #[derive(Eq)]
    pub struct Flow("flow") {
        /// Flows that each worker follows at most. Memory for them is reserved at the start: about 500 bytes each.
        restart flows: usize = 262_144, integer(16..=67_108_864);
        /// Flows without an answer among them, such as half-open connections. If there are more, the oldest ones make room;
        /// established flows never do.
        restart half_open: usize = 131_072, integer(16..=67_108_864);
        /// Idle time of a TCP connection of which one end sent SYN.
        restart tcp_syn_sent: Duration = MINUTE, duration(SHORTEST..=LONGEST);
        /// Idle time of a TCP connection of which both ends sent SYN, before the handshake is over.
        restart tcp_syn_recv: Duration = MINUTE, duration(SHORTEST..=LONGEST);
        /// Idle time of an established TCP connection.
        restart tcp_established: Duration = 10 * MINUTE, duration(SHORTEST..=LONGEST);
        /// Idle time of a TCP connection of which one end sent FIN.
        restart tcp_fin_wait: Duration = 2 * MINUTE, duration(SHORTEST..=LONGEST);
        /// Idle time of a TCP connection whose first FIN is acknowledged: the other end may go on sending.
        restart tcp_close_wait: Duration = MINUTE, duration(SHORTEST..=LONGEST);
        /// Idle time of a TCP connection of which both ends sent FIN, before both are acknowledged.
        restart tcp_last_ack: Duration = 2 * MINUTE, duration(SHORTEST..=LONGEST);
        /// Idle time after which a TCP connection that both ends closed is forgotten.
        restart tcp_time_wait: Duration = MINUTE, duration(SHORTEST..=LONGEST);
        /// Idle time after which a TCP connection that was reset is forgotten.
        restart tcp_close: Duration = MINUTE, duration(SHORTEST..=LONGEST);
        /// Idle time of a TCP connection with data that is not acknowledged, if the time-out of its state is longer.
        restart tcp_unacknowledged: Duration = 5 * MINUTE, duration(SHORTEST..=LONGEST);
        /// Idle time of a UDP flow without an answer.
        restart udp: Duration = MINUTE, duration(SHORTEST..=LONGEST);
        /// Idle time of a UDP flow with packets in both directions.
        restart udp_stream: Duration = MINUTE, duration(SHORTEST..=LONGEST);
        /// Idle time of ICMP.
        restart icmp: Duration = MINUTE, duration(SHORTEST..=LONGEST);
        /// Idle time of ICMPv6.
        restart icmpv6: Duration = MINUTE, duration(SHORTEST..=LONGEST);
        /// Idle time of other protocols.
        restart generic: Duration = MINUTE, duration(SHORTEST..=LONGEST);
        /// How long the fragments of a datagram are remembered or wait for the others. Without it 30 s for IPv4, 60 s for IPv6.
        restart frag: Option<Duration> = None, duration(SHORTEST..=LONGEST).optional();
        /// Ports of FTP servers whose data connections are `related` for a firewall after the stage. The usual port is 21. None:
        /// FTP is treated like any other protocol.
        restart ftp_ports: Vec<u16> = Vec::new(), list(integer(1..=65_535), "an array of ports such as [21]");
        /// Decode packets and verify TCP checksums on the device, before the workers follow flows. It needs a `backend` with a
        /// device; otherwise workers do it, slower than without the key. Results do not depend on it.
        restart device: bool = false, boolean();
        /// TCP connections of each worker that the device knows from batch to batch, with `device`: it tells the worker where it found a
        /// connection before. The device reserves 12 bytes for each, and should know twice as many as there are at a time. 0: none.
        /// Results do not depend on it.
        restart device_connections: usize = 0, integer(0..=67_108_864);
        /// Flows with the same addresses and ports in different VLANs are different flows.
        restart by_vlan: bool = false, boolean();
        /// Tunnels whose inner packets are followed: flows have the addresses of the inner packets, and flows in different
        /// tunnels are different. `ipip` (IP in IP, 6in4), `gre`, `erspan`, `vxlan`, `geneve`, `gtp-u`, `teredo`, or `all`. A
        /// port after a colon replaces the usual one, as in `vxlan:8472`. Without it a tunnel is one flow.
        restart tunnels: Kinds = Kinds::NONE, tunnels();
        /// Memory of each worker for TCP segments that arrive before others that precede them, in MiB. A segment takes 32 bytes
        /// more than its own, in units of 32 bytes. If the memory is full, the connection that holds most gives up the segments
        /// that are farthest ahead.
        restart reassembly_mib: usize = 64, integer(1..=65_536);
        /// Memory for the segments of one connection, in KiB. If it is full, those farthest ahead are not kept. The default has
        /// room for the 6 MiB that a Linux host has in flight at most, unless `tcp_rmem` is set.
        restart reassembly_kib_per_flow: usize = 8192, integer(3..=1_048_576);
        /// Bytes of each direction that are reassembled. 0: all.
        restart depth: u64 = 0, integer(0..=i128::from(u64::MAX >> 1));
        /// How overlapping TCP segments and fragments of IPv4 with different bytes are resolved: as the receiving system does it.
        /// Where fragments are held back, such datagrams are dropped instead; of IPv6, fragments never overlap (RFC 5722).
        restart overlap: Overlap = Overlap::Bsd, words();
        /// Follow TCP connections whose beginning was not seen.
        restart midstream: bool = true, boolean();
        /// File for flow events in Suricata's EVE JSON format, one object per line: appended to, and opened again on SIGHUP.
        /// `-`: standard output. `unix:PATH`: a Unix stream socket that another program listens on.
        restart events: Option<PathBuf> = None, events();
        /// Events that are written: `flow`, for flows that end; `netflow`, the same with an event for each direction; `active`,
        /// for flows that continue, as events of the type `flow` with the reason `active`; `anomaly`, for errors in packets and
        /// byte streams; `ipsec`, for security associations that are added or removed, reach limits or are missing (live);
        /// `drop`, packets that rules of a firewall drop, also for the `eve.json` of an `[ids]` with that type.
        restart event_types: Vec<EventType> = vec![EventType::Flow, EventType::Anomaly],
            list(words(), "an array such as [\"flow\", \"anomaly\"]").not_empty("[\"flow\"]");
        /// Collector for IPFIX (RFC 7011): `udp:` or `tcp:`, address and port. It gets flows that end and flows that continue.
        restart ipfix: Option<Collector> = None, collector();
        /// Observation domain of IPFIX messages. It distinguishes exporters with the same address.
        restart ipfix_domain: u32 = 0, integer(0..=4_294_967_295);
        /// How often templates are sent again over UDP. They are also sent after 100 messages.
        restart ipfix_templates: Duration = MINUTE, duration(Duration::from_secs(1)..=Duration::from_hours(24));
        /// How often a flow that continues is reported, to the collector and as events `active`.
        restart active: Duration = MINUTE, duration(Duration::from_millis(1)..=LONGEST);
        /// Apache Parquet file for the records of flows that end. A file of this name is replaced, and the new one can be
        /// read when the run has ended.
        restart parquet: Option<PathBuf> = None, parquet();
        /// Seed of the community ID in events and records (community ID v1).
        restart community_id_seed: u16 = 0, integer(0..=65_535);
    }
    also {
        /// The file has the section.
        is_on: bool = false;
    }
}

crate::words! {
    /// `flow.overlap`.
    pub enum Overlap {
        /// BSD and most others: the segment or fragment that begins first.
        Bsd = "bsd",
        /// The bytes that arrived first.
        First = "first",
        /// The bytes that arrived last.
        Last = "last",
        /// Linux.
        Linux = "linux",
        /// Linux before 2.4.
        OldLinux = "old-linux",
        /// Windows before Vista.
        Windows = "windows",
        /// Windows 2003.
        Windows2003 = "windows2003",
        /// Windows Vista and later.
        Vista = "vista",
        /// Solaris.
        Solaris = "solaris",
        /// HP-UX 10.
        Hpux10 = "hpux10",
        /// HP-UX 11.
        Hpux11 = "hpux11",
        /// IRIX.
        Irix = "irix",
        /// macOS.
        Macos = "macos",
    }
}

crate::words! {
    /// An element of `flow.event_types`.
    pub enum EventType {
        /// Flows that end.
        Flow = "flow",
        /// Directions of flows that end.
        Netflow = "netflow",
        /// Flows that go on.
        Active = "active",
        /// What is wrong in packets and streams.
        Anomaly = "anomaly",
        /// Changes of security associations.
        Ipsec = "ipsec",
        /// Packets that rules of a firewall drop.
        Drop = "drop",
    }
}

/// Where records go: `udp:192.0.2.1:4739`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collector {
    /// Over TCP; otherwise UDP.
    pub is_tcp: bool,
    /// Its address and port.
    pub address: SocketAddr,
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", if self.is_tcp { "tcp" } else { "udp" }, self.address)
    }
}

impl FromStr for Collector {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (protocol, address) = text.split_once(':').ok_or(())?;
        let is_tcp = match protocol {
            "udp" => false,
            "tcp" => true,
            _ => return Err(()),
        };
        let address: SocketAddr = address.parse().map_err(|_| ())?;
        let is_place = !address.ip().is_unspecified() && address.port() != 0;
        is_place.then_some(Self { is_tcp, address }).ok_or(())
    }
}

/// A value, or `off`.
fn collector() -> Custom<Option<Collector>> {
    let read = |walk: &mut values::Walk<'_>, value: &values::Value<'_>| {
        let text = values::string(walk, value)?;
        if text == "off" {
            return Some(None);
        }
        let parsed = text.parse().map(Some);
        if parsed.is_err() {
            let message = format!("{} is not a collector", walk.subject());
            let expected = "\"udp:192.0.2.1:4739\", \"tcp:[2001:db8::1]:4739\" or \"off\"";
            walk.error(value.span(), message).expected(expected);
        }
        parsed.ok()
    };
    let text =
        |own: &Option<Collector>| own.map_or_else(|| "off".to_owned(), |own| own.to_string());
    custom("text", "`\"udp:ADDRESS:PORT\"`, `\"tcp:ADDRESS:PORT\"` or `\"off\"`", read, text)
}

fn parquet() -> Custom<Option<PathBuf>> {
    let read = |walk: &mut values::Walk<'_>, value: &values::Value<'_>| {
        let text = values::string(walk, value)?;
        if text.is_empty() || text.contains('\0') {
            let message = format!("{} cannot name a file", walk.subject());
            walk.error(value.span(), message).expected("\"flows.parquet\"");
            return None;
        }
        Some((text != "off").then(|| text.into()))
    };
    let text = |path: &Option<PathBuf>| {
        path.as_ref().map_or_else(|| "off".to_owned(), |path| path.display().to_string())
    };
    custom("path", "a path, or `\"off\"`", read, text)
}

fn tunnels() -> Custom<Kinds> {
    const EXPECTED: &str = "an array such as [\"vxlan\", \"gre\"]";
    let read = |walk: &mut values::Walk<'_>, value: &values::Value<'_>| {
        let array = values::array(walk, value, EXPECTED)?;
        let elements = walk.elements(array, |walk, value| {
            let element = values::string(walk, value)?;
            if let Err(error) = Kinds::NONE.with_element(element) {
                walk.error(value.span(), error).expected(
                    "\"ipip\", \"gre\", \"erspan\", \"vxlan\", \"geneve\", \"gtp-u\", \"teredo\" or \"all\"; with a port \"vxlan:8472\"",
                );
                return None;
            }
            Some(element.to_owned())
        });
        let add = |all: Kinds, element: &String| all.with_element(element).unwrap_or(all);
        Some(elements.iter().map(|(element, _)| element).fold(Kinds::NONE, add))
    };
    let text = |own: &Kinds| {
        let elements: Vec<_> = own.elements().map(|own| format!("\"{own}\"")).collect();
        format!("[{}]", elements.join(", "))
    };
    let allowed = "an array of `\"ipip\"`, `\"gre\"`, `\"erspan\"`, `\"vxlan\"`, `\"geneve\"`, `\"gtp-u\"`, `\"teredo\"`, `\"all\"`; with a port `\"vxlan:8472\"`";
    custom("array", allowed, read, text).bare()
}

fn events() -> Custom<Option<PathBuf>> {
    let read = |walk: &mut values::Walk<'_>, value: &values::Value<'_>| {
        let text = values::string(walk, value)?;
        let rest = text.strip_prefix("unix:").unwrap_or(text);
        if rest.is_empty() || rest.contains('\0') {
            let message = format!("{} cannot name a file", walk.subject());
            walk.error(value.span(), message).expected("\"eve.json\", \"-\" or \"unix:PATH\"");
            return None;
        }
        Some((text != "off").then(|| text.into()))
    };
    let text = |path: &Option<PathBuf>| {
        path.as_ref().map_or_else(|| "off".to_owned(), |path| path.display().to_string())
    };
    custom("path", "a path, `\"-\"`, `\"unix:PATH\"` or `\"off\"`", read, text)
}
