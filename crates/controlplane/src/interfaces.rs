//! The interfaces of a program: their numbers, names and records.

use control::config::{Backend, Config, PortKind, Rpf, VlanTag};
use ipnet::IpNet;
use lookup::fib::{Interface, ReversePath};
use packet::MacAddr;

/// The TPIDs of an outer and an inner tag (IEEE 802.1ad, 802.1Q).
const TPID_SERVICE: u16 = 0x88a8;
const TPID_CUSTOMER: u16 = 0x8100;

/// Interfaces at most, those that are gone among them.
pub const INTERFACES_MAX: usize = 4096;

/// Numbers for names. At the start ports come first, in the order of the file, then subinterfaces; those that a reload adds
/// come behind them. An untagged frame's interface has its port's number. A name keeps its number as long as the program
/// runs: one that is gone may come back, and nothing that still has the number leads to another interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interfaces {
    names: Vec<String>,
    kinds: Vec<Kind>,
}

/// What an interface is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Port,
    /// A subinterface: the port that carries it and its VLANs, the outer one first.
    Tagged(u16, Vec<u16>),
    /// It was there, and is no more.
    Gone,
}

impl Interfaces {
    /// Those of a configuration.
    pub fn of(config: &Config) -> Self {
        Self::none().with(config)
    }

    /// No interfaces.
    pub const fn none() -> Self {
        Self { names: Vec::new(), kinds: Vec::new() }
    }

    /// Those of a configuration that comes after theirs.
    ///
    /// # Errors
    /// There have been too many since the start, in words.
    pub fn after(&self, config: &Config) -> Result<Self, String> {
        let next = self.with(config);
        let n = next.names.len();
        if n > INTERFACES_MAX {
            return Err(format!(
                "{n} names of ports and subinterfaces since the start, more than {INTERFACES_MAX}; those that are gone \
                 count, for each name keeps its number: use names again, or restart the instance"
            ));
        }
        Ok(next)
    }

    fn with(&self, config: &Config) -> Self {
        let is = |physical: bool| {
            config.ports.iter().filter(move |p| matches!(p.kind, PortKind::Physical(_)) == physical)
        };
        let mut next =
            Self { names: self.names.clone(), kinds: vec![Kind::Gone; self.names.len()] };
        for port in is(true).chain(is(false)) {
            let kind = match &port.kind {
                PortKind::Physical(_) => Kind::Port,
                PortKind::Vlan { parent, tag } => {
                    let parent = next.number(parent).unwrap_or_default();
                    Kind::Tagged(
                        parent,
                        match *tag {
                            VlanTag::Single(id) => vec![id],
                            VlanTag::Double(outer, inner) => vec![outer, inner],
                        },
                    )
                }
            };
            match next.names.iter().position(|name| *name == port.name) {
                Some(known) => next.kinds[known] = kind,
                None => {
                    next.names.push(port.name.clone());
                    next.kinds.push(kind);
                }
            }
        }
        next
    }

    /// The number of an interface that there is.
    pub fn number(&self, name: &str) -> Option<u16> {
        let number = self.names.iter().position(|n| n == name)?;
        (self.kinds[number] != Kind::Gone).then_some(number as u16)
    }

    /// The name of an interface, also of one that is gone; `-` for no interface at all.
    pub fn name(&self, number: u16) -> &str {
        self.names.get(usize::from(number)).map_or("-", String::as_str)
    }

    /// Of a subinterface: the port that carries it and its VLANs, the outer one first.
    pub fn tagged(&self, number: u16) -> Option<(u16, &[u16])> {
        match self.kinds.get(usize::from(number))? {
            Kind::Tagged(port, vlans) => Some((*port, vlans)),
            Kind::Port | Kind::Gone => None,
        }
    }

    /// Whether it is there.
    pub fn has(&self, number: u16) -> bool {
        self.kinds.get(usize::from(number)).is_some_and(|kind| *kind != Kind::Gone)
    }

    /// Whether it is a port.
    pub fn is_port(&self, number: u16) -> bool {
        self.kinds.get(usize::from(number)) == Some(&Kind::Port)
    }

    /// How many numbers are in use, those of interfaces that are gone among them.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// The numbers of those that there are.
    pub fn numbers(&self) -> impl Iterator<Item = u16> {
        (0..self.names.len() as u16).filter(|number| self.has(*number))
    }

    /// The numbers of the ports.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        (0..self.names.len() as u16).filter(|number| self.is_port(*number))
    }

    /// By number, names of those that are gone among them.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The names of those that there are, for a message.
    pub fn list(&self) -> String {
        self.numbers().map(|number| self.name(number)).collect::<Vec<_>>().join(", ")
    }

    /// The names of the ports, for a message.
    pub fn list_ports(&self) -> String {
        self.ports().map(|number| self.name(number)).collect::<Vec<_>>().join(", ")
    }
}

/// What the system says of a port, where the configuration leaves it open.
#[derive(Debug, Clone, Copy, Default)]
pub struct PortFacts {
    /// The index of the network interface; none if the interface is gone.
    pub index: Option<u32>,
    /// The MAC of the network interface.
    pub mac: Option<[u8; 6]>,
    /// Its MTU.
    pub mtu: Option<u32>,
    /// Bytes of a frame with two tags that the kernel does not grant above the MTU when the port sends it.
    pub ungranted: u32,
}

impl PortFacts {
    /// The longest layer-3 packet in bytes that the network interface sends in a frame with so many tags.
    fn mtu_with(&self, tags: usize) -> Option<u32> {
        // A single tag is granted everywhere.
        self.mtu.map(|mtu| if tags > 1 { mtu.saturating_sub(self.ungranted) } else { mtu })
    }
}

/// What to say of interface `number` if the configuration gives it an MTU with which full-size packets cannot leave.
pub fn mtu_warning(
    config: &Config,
    interfaces: &Interfaces,
    number: u16,
    facts: impl Fn(u16) -> PortFacts,
) -> Option<String> {
    let name = interfaces.name(number);
    let mtu = config.port(name)?.mtu?;
    let (port, tags) =
        interfaces.tagged(number).map_or((number, 0), |(port, ids)| (port, ids.len()));
    let fits = facts(port).mtu_with(tags).filter(|fits| mtu > *fits)?;
    let why = if tags > 1 { " with two tags" } else { "" };
    Some(format!(
        "port {name}: the interface sends packets of at most {fits} bytes{why}; with `mtu = {mtu}`, longer ones are lost as \
         tx_oversize"
    ))
}

/// Without an interface of the kernel.
const ETHERNET_MTU: u32 = 1500;
/// Of a tunnel: with an outer header, UDP and ESP, a link of 1500 bytes takes it.
const TUNNEL_MTU: u32 = 1400;

/// Interface `number` as configuration and system say. `is_live`: packets come from ports and Linux has the twins;
/// otherwise from captures (`-r`), and there are no twins.
pub fn record(
    config: &Config,
    interfaces: &Interfaces,
    number: u16,
    facts: impl Fn(u16) -> PortFacts,
    is_live: bool,
) -> Interface {
    let known = config.port(interfaces.name(number)).filter(|_| interfaces.has(number));
    let Some(port) = known else {
        // Gone: nothing leads there.
        let name = interfaces.name(number).to_owned();
        return Interface { name, port: number, up: false, ..Interface::default() };
    };
    let (physical, tags) = match &port.kind {
        PortKind::Physical(_) => (number, Vec::new()),
        PortKind::Vlan { parent, tag } => {
            let tags = match *tag {
                VlanTag::Single(id) => vec![(TPID_CUSTOMER, id)],
                VlanTag::Double(outer, inner) => {
                    vec![(TPID_SERVICE, outer), (TPID_CUSTOMER, inner)]
                }
            };
            (interfaces.number(parent).unwrap_or(number), tags)
        }
    };
    let facts = facts(physical);
    let parent = config.port(interfaces.name(physical));
    let mac = port.mac.or(parent.and_then(|p| p.mac)).map(|m| m.0).or(facts.mac);
    let if_id = match &port.kind {
        PortKind::Physical(own) if own.backend == Backend::Ipsec => own.if_id.unwrap_or(0),
        _ => 0,
    };
    let own_mtu = if if_id == 0 { ETHERNET_MTU } else { TUNNEL_MTU };
    let inherited = parent.and_then(|p| p.mtu).or(facts.mtu).unwrap_or(own_mtu);
    let mtu =
        port.mtu.unwrap_or_else(|| inherited.min(facts.mtu_with(tags.len()).unwrap_or(inherited)));
    let mut addresses4 = Vec::new();
    let mut addresses6 = Vec::new();
    for address in &port.addresses {
        match address {
            IpNet::V4(net) => addresses4.push((net.addr().to_bits(), net.prefix_len())),
            IpNet::V6(net) => {
                let bits = net.addr().to_bits();
                addresses6.push(([(bits >> 64) as u64, bits as u64], net.prefix_len()));
            }
        }
    }
    Interface {
        name: port.name.clone(),
        up: true,
        port: physical,
        tags,
        mac: mac.unwrap_or_else(|| derived_mac(physical)),
        mtu: mtu.min(u32::from(u16::MAX)) as u16,
        addresses4,
        addresses6,
        reverse_path: match port.rpf {
            Rpf::Off => ReversePath::Off,
            Rpf::Strict => ReversePath::Strict,
            Rpf::Loose => ReversePath::Loose,
        },
        any_mac: takes_any_mac(config, interfaces.name(physical), is_live),
        twin: is_live && port.twin.is_some(),
        if_id,
    }
}

/// The rule which unicast frames of a port are the router's: those to its MAC, or all where `promiscuous` says so. By
/// default a capture's are, wherever it was taken and however it is read.
fn takes_any_mac(config: &Config, port: &str, is_live: bool) -> bool {
    let Some(PortKind::Physical(physical)) = config.port(port).map(|port| &port.kind) else {
        return !is_live;
    };
    physical.promiscuous.unwrap_or(!is_live || physical.backend == Backend::Pcap)
}

/// The MAC of a port that nobody gave one, locally administered: captures need some.
fn derived_mac(port: u16) -> [u8; 6] {
    let [high, low] = port.to_be_bytes();
    [0x02, 0x53, 0x4c, 0x00, high, low]
}

/// A MAC as the configuration writes it.
pub fn mac_text(mac: [u8; 6]) -> String {
    MacAddr(mac).to_string()
}

/// The addresses of an interface, IPv4 first.
pub fn addresses(record: &Interface) -> Vec<IpNet> {
    let v4 = record.addresses4.iter().map(|&(a, len)| net(true, [0, u64::from(a)], len));
    let v6 = record.addresses6.iter().map(|&(a, len)| net(false, a, len));
    v4.chain(v6).flatten().collect()
}

/// An address of the forwarding tables with its prefix length.
pub fn net(v4: bool, bits: [u64; 2], len: u8) -> Option<IpNet> {
    let address: std::net::IpAddr = if v4 {
        std::net::Ipv4Addr::from_bits(bits[1] as u32).into()
    } else {
        std::net::Ipv6Addr::from_bits(u128::from(bits[0]) << 64 | u128::from(bits[1])).into()
    };
    IpNet::new(address, len).ok()
}
