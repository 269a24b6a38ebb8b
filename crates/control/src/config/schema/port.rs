//! `[port.NAME]`.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use ipnet::IpNet;
use packet::MacAddr;
use packet::checksum::Checksums;
use toml::de::DeValue;

use super::switch::{self, Bridging};
use crate::config::kinds::{
    Custom, Kind, OrWord, Rate, boolean, custom, integer, interface_address, list, name_of,
    or_word, probability, rate, table, table_in_one, unicast_mac, words,
};
use crate::config::next_hop::is_port_name;
use crate::config::read::PortSpans;
use crate::config::section::SectionValue;
use crate::config::stages::{Application, KnownStages};
use crate::config::values::{self, Value, Walk, string, wrong_kind};
use crate::config::walk::{Section, Word};

/// Longest name of a Linux interface, in bytes.
const INTERFACE_NAME_MAX: usize = 15;

crate::section! {
    /// A port.
    pub struct Port("port.NAME") {
        /// Longest layer-3 packet in bytes. At least 1280 with an IPv6 address. If the key is absent, the MTU follows the
        /// interface's (a subinterface: the parent's, less what does not fit with two tags; `backend = "ipsec"`: 1400). The twin
        /// has the same MTU.
        live mtu: Option<u32> = None, integer(68..=65_535).unit("bytes").optional().shown("the interface's");
        /// MAC address of the port. Without a kernel interface, the default is derived from the port's place in the
        /// file.
        rebuild mac: Option<MacAddr> = None, unicast_mac().optional().shown("the interface's");
        /// Addresses of the router on this port, with the lengths of their subnets: `["192.0.2.1/24",
        /// "2001:db8::1/64"]`.
        live addresses: Vec<IpNet> = Vec::new(),
            list(interface_address(), "an array such as [\"192.0.2.1/24\"]").joined_by(" ");
        /// Reverse-path check of sources (RFC 3704). `strict`: the route to the source must leave by this port.
        /// `loose`: a route to the source must exist.
        live rpf: Rpf = Rpf::Off, words();
        /// Limits for packets to this machine, which the port passes to its twin, see below.
        live host: HostLimits = HostLimits::default(), table();
        /// Faces over UDP. `on-demand`: a neighbour that sends an Interest to port 6363 of one of the port's `addresses` gets a
        /// face. `configured`: only those of `[ndn.face.NAME]`.
        live faces: Faces = Faces::OnDemand, words();
        /// Neighbours that may register prefixes of names over this port by NFD's management protocol. `any`: all; keys of
        /// signatures are not verified. `none`: none.
        live register: Register = Register::None, words();
        /// TAP device that represents the port in the kernel: `true` (called `sl-NAME`), its name, or `false`. The
        /// default is `true` for the back ends `auto`, `af_packet`, `af_xdp` and `ipsec`, and `false` for the others, for
        /// subinterfaces, and in a switch or a wire.
        rebuild twin: Option<String> = None, twin().shown("depends on `backend`");
        /// Use the default routes of Router Advertisements that the port receives, in the order of their preferences
        /// (RFC 4191), if no other source has a default route. Addresses and subnets in them are ignored. For a port whose
        /// upstream router is known only by its Router Advertisements; any host on its link can send them. Needs the
        /// port's twin and `kernel` of `[router]`.
        rebuild accept_ra: bool = false, boolean();
        /// With `accept_ra`: use their more specific routes (RFC 4191), too, for prefixes for which no other source has a
        /// route. Any host on the link can then draw traffic that a shorter prefix of yours covers.
        rebuild accept_ra_routes: bool = false, boolean();
    }
    also {
        /// The name in routes, tables and counters.
        name: String = String::new();
        /// Where its packets come from.
        kind: PortKind = PortKind::Physical(Physical::default());
        /// As a port of a switch.
        bridging: Bridging = Bridging::default();
    }
}

/// Queues of its own, or a tag on another port.
#[derive(Debug, Clone, PartialEq)]
pub enum PortKind {
    /// Has queues.
    Physical(Physical),
    /// A VLAN subinterface.
    Vlan {
        /// The physical port that carries it.
        parent: String,
        /// Its tags.
        tag: VlanTag,
    },
}

/// `physical`, `5 on lan`.
impl fmt::Display for PortKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Physical(_) => f.write_str("physical"),
            Self::Vlan { parent, tag } => write!(f, "{tag} on {parent}"),
        }
    }
}

crate::section! {
    /// A port with queues of its own.
    pub struct Physical("port.NAME") {
        /// Interface of the kernel. With `backend = "tap"`: name of the TAP device. Not used by `memory`, `pcap` and `ipsec`.
        rebuild interface: String = String::new(), interface().shown("the port's name");
        /// How packets are received and sent. `auto`: AF_XDP where the driver works without copying, otherwise
        /// AF_PACKET. `af_packet`: AF_PACKET (TPACKET_V2). `af_xdp`: AF_XDP. `tap`: a TAP device. `memory`: rings in
        /// this process. `pcap`: capture files. `ipsec`: a tunnel interface, whose packets leave and come by the associations of
        /// IPsec with its `if_id` ([ipsec.md](ipsec.md)).
        rebuild backend: Backend = Backend::Auto, words();
        /// AF_XDP: where the program is attached. `native`: in the driver. `skb`: in the network stack. `auto`:
        /// native if possible, otherwise skb.
        rebuild xdp: XdpMode = XdpMode::Auto, words();
        /// AF_XDP without copies. `on`: required. `off`: never. `auto`: where the driver supports it.
        rebuild zero_copy: ZeroCopy = ZeroCopy::Auto, words();
        /// With `backend = "ipsec"`: the number by which associations belong to the tunnel interface (`if_id` of `[[sa]]`, and
        /// of an XFRM interface in Linux).
        rebuild if_id: Option<u32> = None, integer(1..=4_294_967_295).optional();
        /// Receive queues. `"auto"`: as many as the interface and the workers allow. With AF_XDP the interface has this
        /// number of queues until the port is closed.
        rebuild queues: Option<usize> = None, queues();
        /// Pipeline that received packets enter: a `[pipeline.NAME]` or a shipped one.
        rebuild pipeline: Option<String> = None, name_of("a pipeline").optional().shown("that of `mode`");
        /// Take frames with any unicast destination MAC address for the router's own, not only those to the address of the
        /// port. The default is `true` where frames come from a capture (`backend = "pcap"`, or `-r`), otherwise `false`.
        /// Subinterfaces follow their port; a switch and a wire take every frame.
        rebuild promiscuous: Option<bool> = None, boolean().optional().shown("`true` for captures");
        /// Checksums of received packets: of IPv4 headers, of ICMPv6 in neighbour discovery, of ICMP echo requests to the router,
        /// and of UDP with NDN. `verify`: packets with a wrong checksum are dropped. `ignore`: they are processed, for captures
        /// taken on the sender. The option `-k` takes precedence.
        rebuild checksums: Checksums = Checksums::Verify, words();
        /// With `backend = "pcap"`: the capture that is read.
        rebuild read: Option<PathBuf> = None, path().optional();
        /// With `backend = "pcap"`: the capture that is written.
        rebuild write: Option<PathBuf> = None, path().optional();
        /// Injected faults at receive, see below. They apply live, over captures and with `gen --engine`.
        rebuild fault: Option<Fault> = None, table_in_one().optional();
    }
}

crate::words! {
    /// `port.backend`.
    pub enum Backend {
        /// AF_XDP where the interface does it natively, otherwise AF_PACKET.
        Auto = "auto",
        /// TPACKET_V2.
        AfPacket = "af_packet",
        /// AF_XDP sockets.
        AfXdp = "af_xdp",
        /// In-process rings.
        Memory = "memory",
        /// A TAP device.
        Tap = "tap",
        /// Capture files.
        Pcap = "pcap",
        /// A tunnel of IPsec.
        Ipsec = "ipsec",
    }
}

impl Word for Checksums {
    const WORDS: &'static [(&'static str, Self)] =
        &[("verify", Self::Verify), ("ignore", Self::Ignore)];
}

crate::words! {
    /// `port.faces`.
    pub enum Faces {
        /// Strangers get one.
        OnDemand = "on-demand",
        /// Those of the file.
        Configured = "configured",
    }
}

crate::words! {
    /// `port.register`.
    pub enum Register {
        /// Everybody may.
        Any = "any",
        /// Nobody may.
        None = "none",
    }
}

crate::words! {
    /// `port.xdp`.
    pub enum XdpMode {
        /// Native, otherwise SKB.
        Auto = "auto",
        /// In the driver.
        Native = "native",
        /// In the stack (generic).
        Skb = "skb",
    }
}

crate::words! {
    /// `port.zero_copy`.
    pub enum ZeroCopy {
        /// Where the driver has it.
        Auto = "auto",
        /// Or fail.
        On = "on",
        /// Copy.
        Off = "off",
    }
}

crate::words! {
    /// Reverse-path check (RFC 3704).
    pub enum Rpf {
        /// None.
        Off = "off",
        /// The route to the source leaves by the port that received.
        Strict = "strict",
        /// There is a route to the source.
        Loose = "loose",
    }
}

crate::section! {
    /// Faults that a port injects at receive. The same seed and packets give the same faults.
    #[derive(Copy)]
    pub struct Fault("port.NAME.fault") {
        /// Probability that a frame is lost.
        rebuild loss: f64 = 0.0, probability();
        /// Probability that a frame is duplicated.
        rebuild duplicate: f64 = 0.0, probability();
        /// Probability that a frame changes places with a later one.
        rebuild reorder: f64 = 0.0, probability();
        /// Probability that one bit of a frame is flipped.
        rebuild corrupt: f64 = 0.0, probability();
        /// Seed of the pseudo-random sequence.
        rebuild seed: u64 = 1, integer(0..=i128::from(u64::MAX));
    }
}

crate::section! {
    /// A VLAN subinterface.
    pub(in crate::config) struct Subinterface("port.NAME") {
        /// Port that carries the subinterface.
        rebuild parent: String = String::new(), name_of("a port").needed("\"lan\"");
        /// VLAN of the subinterface, or `[OUTER, INNER]` for QinQ.
        // 0 is not a VLAN: the checks pass it over.
        rebuild vlan: VlanTag = VlanTag::Single(0), vlan().needed("100");
    }
}

// RFC 6192 §3; the rates are those of what others ship, rounded.
crate::section! {
    /// Packets for this machine that a port passes on to its twin, by class. A tenth of a second's packets, at least 16,
    /// may come at once. Those beyond are dropped and counted under a reason of each class. Packets that the router forwards
    /// or answers itself are not limited.
    #[derive(Copy, Eq)]
    pub struct HostLimits("port.NAME.host") {
        /// ARP.
        live arp: u32 = 1_000, host_rate();
        /// IPv6 neighbour discovery, Router Advertisements and redirects among it.
        live nd: u32 = 1_000, host_rate();
        /// Protocols of routers: BGP, OSPF, IS-IS, RIP, EIGRP, Babel, BFD, PIM, LDP, RSVP, VRRP, LLDP and LACP.
        live routing: u32 = 20_000, host_rate();
        /// All other packets: echo, SSH, DNS, and unknown protocols.
        live other: u32 = 10_000, host_rate();
    }
}

/// 0: no limit.
fn host_rate() -> OrWord<Rate<u32>> {
    or_word("off", 0, rate(1..=1_000_000_000))
}

/// The tags that make a frame belong to a subinterface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VlanTag {
    /// One 802.1Q tag.
    Single(u16),
    /// QinQ: an outer and an inner tag.
    Double(u16, u16),
}

/// `5`, `[5, 6]`.
impl fmt::Display for VlanTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single(id) => write!(f, "{id}"),
            Self::Double(outer, inner) => write!(f, "[{outer}, {inner}]"),
        }
    }
}

/// `None` where the value is not a table. `app`: what the file is about, where that is known. A port with mistakes is
/// still there, so that what names it is not wrong as well.
pub(in crate::config) fn port(
    walk: &mut Walk<'_>,
    name: &str,
    name_span: Range<usize>,
    value: &Value<'_>,
    app: Option<&Application>,
    known: &KnownStages,
) -> Option<(Port, PortSpans)> {
    if !is_port_name(name) {
        walk.error(name_span, format!("`{name}` cannot name a port")).expected(
            "at most 32 letters, digits, `.`, `_` and `-`, one letter at least, not blackhole, \
             unreachable, drops, host or all",
        );
    }
    let mut section = Section::of(walk, value, &format!("port.{name}"))?;
    section.hide(known.foreign_port_keys(app));
    let keys = section.place();
    let is_vlan = section.has("vlan") || section.has("parent");
    let (kind, twin_default) = if is_vlan {
        (subinterface(&mut section, walk), false)
    } else {
        section.know(Subinterface::KEYS);
        let mut physical = Physical { interface: name.to_owned(), ..Physical::default() };
        physical.read(&mut section, walk);
        let twin = app.is_some_and(|app| has_twin(app, physical.backend));
        (PortKind::Physical(physical), twin)
    };
    let mut port = Port { name: name.to_owned(), kind, ..Port::default() };
    port.read(&mut section, walk);
    if twin_default && !keys.has("twin") {
        port.twin = Some(twin_name(name));
    }
    if let Some(name) = &port.twin
        && name.len() > INTERFACE_NAME_MAX
    {
        walk.error(keys.at("twin"), format!("the twin's name `{name}` is too long"))
            .expected(format!("at most {INTERFACE_NAME_MAX} bytes"))
            .help("name it: twin = \"short\"");
    }
    port.bridging = switch::bridging(&mut section, walk);
    let addresses = section.elements_of("addresses");
    section.finish(walk);
    Some((port, PortSpans { keys, addresses }))
}

/// A subinterface has its parent's queues.
fn subinterface(section: &mut Section<'_, '_>, walk: &mut Walk<'_>) -> PortKind {
    for key in Physical::KEYS.iter().map(|key| key.name) {
        if let Some(value) = section.get(walk, key) {
            walk.error(value.span(), format!("`{key}` in a VLAN subinterface"))
                .expected(format!("`{key}` in the port that `parent` names"));
        }
    }
    let mut keys = Subinterface::default();
    keys.read(section, walk);
    PortKind::Vlan { parent: keys.parent, tag: keys.vlan }
}

/// The port whose key is read.
fn port_name(walk: &Walk<'_>) -> String {
    let path = walk.path().strip_prefix("port.").unwrap_or_default();
    path.rsplit_once('.').map_or(path, |(name, _)| name).to_owned()
}

/// The twin of a port is called so unless the file names it.
fn twin_name(port: &str) -> String {
    format!("sl-{port}")
}

/// Whether a port with this back end has a twin unless the file says otherwise: where there is a kernel interface to
/// represent, or a tunnel. Ports of a switch and a wire have none: their frames are not for this machine.
fn has_twin(app: &Application, backend: Backend) -> bool {
    let backends = [Backend::Auto, Backend::AfPacket, Backend::AfXdp, Backend::Ipsec];
    app.has_host && backends.contains(&backend)
}

fn twin() -> Custom<Option<String>> {
    let read = |walk: &mut Walk<'_>, value: &Value<'_>| match value.get_ref() {
        DeValue::Boolean(on) => Some(on.then(|| twin_name(&port_name(walk)))),
        DeValue::String(_) => read_interface(walk, value).map(Some),
        _ => wrong_kind(walk, value, "true, false or the twin's name"),
    };
    let text = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
    custom("name", "`true`, `false`, or the name of an interface", read, text)
}

fn queues() -> Custom<Option<usize>> {
    let read = |walk: &mut Walk<'_>, value: &Value<'_>| match value.get_ref() {
        DeValue::String(text) if text == "auto" => Some(None),
        DeValue::Integer(_) => values::integer(QUEUES)(walk, value).map(Some),
        _ => {
            let message = format!("{} is not a valid number of queues", walk.subject());
            let (from, to) = QUEUES.into_inner();
            walk.error(value.span(), message)
                .expected(format!("\"auto\" or an integer from {from} to {to}"));
            None
        }
    };
    let text = |n: &Option<usize>| n.map_or_else(|| "auto".to_owned(), |n| n.to_string());
    let (from, to) = QUEUES.into_inner();
    custom("integer", format!("{from} to {to}, or `\"auto\"`"), read, text)
}

/// Receive queues of a port.
const QUEUES: std::ops::RangeInclusive<i128> = 1..=256;

fn vlan() -> Custom<VlanTag> {
    let read = |walk: &mut Walk<'_>, value: &Value<'_>| {
        let id = values::integer(1..=4094);
        match value.get_ref() {
            DeValue::Integer(_) => id(walk, value).map(VlanTag::Single),
            DeValue::Array(array) if array.len() == 2 => {
                match walk.elements(array, &id).as_slice() {
                    [(outer, _), (inner, _)] => Some(VlanTag::Double(*outer, *inner)),
                    _ => None,
                }
            }
            _ => {
                let message = format!("{} of `{}` is not a VLAN", walk.subject(), port_name(walk));
                walk.error(value.span(), message)
                    .expected("an integer from 1 to 4094, or two of them: [outer, inner]");
                None
            }
        }
    };
    custom("VLAN", "1 to 4094, or an array of two", read, VlanTag::to_string).bare()
}

fn interface() -> Custom<String> {
    let allowed = format!("1 to {INTERFACE_NAME_MAX} bytes without spaces, `/` and `:`");
    custom("name", allowed, read_interface, String::clone)
}

pub(in crate::config) fn path() -> Custom<PathBuf> {
    custom("path", "a path", read_path, |path| path.display().to_string())
}

/// A name that the kernel takes for an interface.
fn read_interface(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<String> {
    let text = string(walk, value)?;
    if !is_interface_name(text) {
        let message = format!("{} `{text}` cannot name an interface", walk.subject());
        walk.error(value.span(), message)
            .expected(format!("1 to {INTERFACE_NAME_MAX} bytes without spaces, `/` and `:`"));
        return None;
    }
    Some(text.to_owned())
}

fn is_interface_name(name: &str) -> bool {
    let bad = |c: char| c.is_whitespace() || c.is_control() || c == '/' || c == ':';
    (1..=INTERFACE_NAME_MAX).contains(&name.len())
        && name != "."
        && name != ".."
        && !name.contains(bad)
}

fn read_path(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<PathBuf> {
    let text = string(walk, value)?;
    if text.is_empty() || text.contains('\0') {
        let message = format!("{} is not a path", walk.subject());
        walk.error(value.span(), message).expected("the path of a capture file");
        return None;
    }
    Some(text.into())
}
