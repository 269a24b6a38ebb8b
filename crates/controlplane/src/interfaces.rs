//! The interfaces of a program: their numbers, names and records.

use control::config::{Backend, Config, PortKind, Rpf, VlanTag};
use ipnet::IpNet;
use lookup::fib::{Interface, ReversePath};
use packet::MacAddr;

/// The TPIDs of an outer and an inner tag (IEEE 802.1ad, 802.1Q).
const TPID_SERVICE: u16 = 0x88a8;
const TPID_CUSTOMER: u16 = 0x8100;

/// Numbers for names: ports first, in the order of the file, then subinterfaces; so an untagged frame's interface has its
/// port's number.
#[derive(Debug, Clone)]
pub struct Interfaces {
    names: Vec<String>,
    physical: usize,
    /// Of each subinterface: the port that carries it and its VLANs, the outer one first.
    tagged: Vec<(u16, Vec<u16>)>,
}

impl Interfaces {
    /// Those of a configuration.
    pub fn of(config: &Config) -> Self {
        let is = |physical: bool| {
            config.ports.iter().filter(move |p| matches!(p.kind, PortKind::Physical(_)) == physical)
        };
        let names: Vec<_> = is(true).chain(is(false)).map(|port| port.name.clone()).collect();
        let tagged = is(false).filter_map(|port| match &port.kind {
            PortKind::Physical(_) => None,
            PortKind::Vlan { parent, tag } => {
                let parent = names.iter().position(|n| n == parent).unwrap_or_default() as u16;
                Some(match *tag {
                    VlanTag::Single(id) => (parent, vec![id]),
                    VlanTag::Double(outer, inner) => (parent, vec![outer, inner]),
                })
            }
        });
        Self { tagged: tagged.collect(), physical: is(true).count(), names }
    }

    /// The number of an interface.
    pub fn number(&self, name: &str) -> Option<u16> {
        self.names.iter().position(|n| n == name).map(|n| n as u16)
    }

    /// The name of an interface; `-` for no interface at all.
    pub fn name(&self, number: u16) -> &str {
        self.names.get(usize::from(number)).map_or("-", String::as_str)
    }

    /// Of a subinterface: the port that carries it and its VLANs, the outer one first.
    pub fn tagged(&self, number: u16) -> Option<(u16, &[u16])> {
        let (port, vlans) = self.tagged.get(usize::from(number).checked_sub(self.physical)?)?;
        Some((*port, vlans))
    }

    /// All, in order of their numbers.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// How many of them are ports; they come first.
    pub fn physical(&self) -> usize {
        self.physical
    }
}

/// What the system says of a port, where the configuration leaves it open.
#[derive(Debug, Clone, Copy, Default)]
pub struct PortFacts {
    /// The MAC of the network interface.
    pub mac: Option<[u8; 6]>,
    /// Its MTU.
    pub mtu: Option<u32>,
}

/// Interface `number` as configuration and system say. `is_live`: packets come from ports and Linux has the twins;
/// otherwise from captures (`-r`), and there are no twins.
pub fn record(
    config: &Config,
    interfaces: &Interfaces,
    number: u16,
    facts: impl Fn(u16) -> PortFacts,
    is_live: bool,
) -> Interface {
    let Some(port) = config.port(interfaces.name(number)) else { return Interface::default() };
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
    let mtu = port.mtu.or(parent.and_then(|p| p.mtu)).or(facts.mtu).unwrap_or(1500);
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
