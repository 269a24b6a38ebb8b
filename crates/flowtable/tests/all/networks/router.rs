//! A router as its tables say, what it does with a packet, and the same as flows of three tables.
//!
//! ```text
//!  table 0: lists at the entry    table 1: routes                          table 2: lists at the exit
//!  by VLAN; the tag leaves   ──▶  longest prefix first; MACs, TTL, tag ──▶  by metadata, the interface; output
//! ```
//!
//! Packets enter by port 1, and by the interface of their VLAN; interfaces send by ports 2 to 4 in turn.

use std::collections::BTreeMap;

use openflow::{Action, Field, FlowCommand, FlowMod, Instruction, Match, PortNo};

/// An address under a mask.
pub type Masked = (u32, u32);

/// One line of an access list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub permits: bool,
    pub protocol: Option<u8>,
    pub src: Masked,
    pub dst: Masked,
    /// Ports that match; empty: any.
    pub src_ports: Vec<u16>,
    pub dst_ports: Vec<u16>,
}

/// An interface. Lists are names; one that does not exist permits everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub vlan: Option<u16>,
    pub list_in: Option<String>,
    pub list_out: Option<String>,
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    Nowhere,
    /// The router itself.
    Host,
    /// An interface, and the MAC of the next hop.
    Out(usize, u64),
}

/// The tables of a router.
#[derive(Default)]
pub struct Router {
    pub lists: BTreeMap<String, Vec<Rule>>,
    pub interfaces: Vec<Interface>,
    /// By prefix and its length.
    pub routes: BTreeMap<(u32, u8), To>,
    /// Lines that flows of OpenFlow 1.3 cannot express.
    pub left_out: usize,
}

/// A packet, as far as these tables look at it.
#[derive(Clone, Debug)]
pub struct Packet {
    pub vlan: Option<u16>,
    pub src: u32,
    pub dst: u32,
    pub protocol: u8,
    pub src_port: u16,
    pub dst_port: u16,
}

/// What becomes of it: port, MAC of the next hop, and VLAN.
pub type Sent = (u32, u64, Option<u16>);

/// The MAC of the router.
pub const OWN: u64 = 0x0200_0000_00fe;

pub fn mask(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or_default()
}

impl Rule {
    fn takes(&self, packet: &Packet) -> bool {
        let within = |(value, mask): Masked, address: u32| address & mask == value & mask;
        let is_port = |ports: &[u16], port: u16| ports.is_empty() || ports.contains(&port);
        self.protocol.is_none_or(|own| own == packet.protocol)
            && within(self.src, packet.src)
            && within(self.dst, packet.dst)
            && is_port(&self.src_ports, packet.src_port)
            && is_port(&self.dst_ports, packet.dst_port)
    }

    /// The rule as matches, one for each pair of ports.
    fn matches(&self, base: &Match) -> Vec<Match> {
        let [src, dst] = match self.protocol {
            Some(17) => [Field::UdpSrc, Field::UdpDst],
            _ => [Field::TcpSrc, Field::TcpDst],
        };
        let any = |ports: &[u16]| match ports {
            [] => vec![None],
            ports => ports.iter().copied().map(Some).collect::<Vec<_>>(),
        };
        let mut out = Vec::new();
        for src_port in any(&self.src_ports) {
            for dst_port in any(&self.dst_ports) {
                let mut own = base.clone().with(Field::EthType, 0x0800_u16);
                if let Some(protocol) = self.protocol {
                    own.set(Field::IpProto, protocol.into(), 0xff);
                }
                own.set(Field::Ipv4Src, self.src.0.into(), self.src.1.into());
                own.set(Field::Ipv4Dst, self.dst.0.into(), self.dst.1.into());
                for (field, port) in [(src, src_port), (dst, dst_port)] {
                    if let Some(port) = port {
                        own.set(field, port.into(), 0xffff);
                    }
                }
                out.push(own);
            }
        }
        out
    }
}

impl Router {
    /// The number of an interface, made where there is none of this name.
    pub fn interface(&mut self, name: &str) -> usize {
        if let Some(at) = self.interfaces.iter().position(|own| own.name == name) {
            return at;
        }
        let digits = name.strip_prefix("Vlan").or_else(|| name.rsplit_once('.').map(|own| own.1));
        let vlan =
            digits.and_then(|text| text.parse().ok()).filter(|vlan| (1..4095).contains(vlan));
        self.interfaces.push(Interface { name: name.to_owned(), vlan, ..Interface::default() });
        self.interfaces.len() - 1
    }

    fn list(&self, name: Option<&String>) -> Option<&[Rule]> {
        self.lists.get(name?).map(Vec::as_slice)
    }

    /// The list of each VLAN at the entry; the first interface of a VLAN counts.
    fn entries(&self) -> BTreeMap<u16, &[Rule]> {
        let mut out = BTreeMap::new();
        for own in self.interfaces.iter().rev() {
            if let (Some(vlan), Some(list)) = (own.vlan, self.list(own.list_in.as_ref())) {
                out.insert(vlan, list);
            }
        }
        out
    }

    /// What a router does: lists line by line, routes one after the other.
    pub fn forward(&self, packet: &Packet) -> Option<Sent> {
        let permits = |list: Option<&[Rule]>| {
            let Some(list) = list else { return true };
            list.iter().find(|rule| rule.takes(packet)).is_some_and(|rule| rule.permits)
        };
        let entries = self.entries();
        if !permits(packet.vlan.and_then(|vlan| entries.get(&vlan)).copied()) {
            return None;
        }
        let covers = |((prefix, len), _): &(&(u32, u8), &To)| packet.dst & mask(*len) == *prefix;
        let route = self.routes.iter().filter(covers).max_by_key(|((_, len), _)| *len);
        let To::Out(interface, mac) = route?.1 else { return None };
        let own = &self.interfaces[*interface];
        permits(self.list(own.list_out.as_ref())).then_some((port(*interface), *mac, own.vlan))
    }

    /// The same as flows.
    pub fn flows(&self) -> Vec<FlowMod> {
        let mut out = Vec::new();
        let mut add =
            |table: u8, priority: usize, matches: Match, instructions: Vec<Instruction>| {
                let priority = u16::try_from(priority).expect("few lines");
                let own = FlowMod::new(FlowCommand::Add);
                out.push(FlowMod { table, priority, matches, instructions, ..own });
            };
        let actions = Instruction::ApplyActions;
        let on = vec![actions(vec![Action::PopVlan]), Instruction::GotoTable(1)];
        for (vlan, list) in self.entries() {
            let base = Match::new().with(Field::VlanVid, 0x1000 | vlan);
            for (matches, priority, permits) in lines(list, &base) {
                add(0, priority, matches, if permits { on.clone() } else { Vec::new() });
            }
        }
        add(0, 1, Match::new().with_masked(Field::VlanVid, 0x1000, 0x1000), on);
        add(0, 0, Match::new(), vec![Instruction::GotoTable(1)]);
        for ((prefix, len), to) in &self.routes {
            let mut matches = Match::new().with(Field::EthType, 0x0800_u16);
            matches.set(Field::Ipv4Dst, (*prefix).into(), mask(*len).into());
            let instructions = match to {
                To::Nowhere => Vec::new(),
                To::Host => vec![actions(vec![Action::controller(128)])],
                To::Out(interface, mac) => self.hop(*interface, *mac),
            };
            add(1, 1 + usize::from(*len), matches, instructions);
        }
        add(1, 0, Match::new(), Vec::new());
        for (number, own) in self.interfaces.iter().enumerate() {
            let base = Match::new().with(Field::Metadata, number as u64 + 1);
            let send = vec![actions(vec![Action::output(PortNo(port(number)))])];
            let list = self.list(own.list_out.as_ref());
            for (matches, priority, permits) in lines(list.unwrap_or_default(), &base) {
                add(2, priority, matches, if permits { send.clone() } else { Vec::new() });
            }
            let last = if list.is_some() { Vec::new() } else { send };
            add(2, 0, base, last);
        }
        out
    }

    fn hop(&self, interface: usize, mac: u64) -> Vec<Instruction> {
        let mut actions = vec![
            Action::DecNwTtl,
            Action::SetField(Field::EthSrc, OWN.into()),
            Action::SetField(Field::EthDst, mac.into()),
        ];
        if let Some(vlan) = self.interfaces[interface].vlan {
            actions.push(Action::PushVlan(0x8100));
            actions.push(Action::SetField(Field::VlanVid, (0x1000 | vlan).into()));
        }
        vec![
            Instruction::ApplyActions(actions),
            Instruction::WriteMetadata { value: interface as u64 + 1, mask: u64::MAX },
            Instruction::GotoTable(2),
        ]
    }
}

/// A list as matches, priorities and what each line says; what no line takes is denied.
fn lines(list: &[Rule], base: &Match) -> Vec<(Match, usize, bool)> {
    let mut out = Vec::new();
    for (at, rule) in list.iter().enumerate() {
        let priority = 10 + list.len() - at;
        out.extend(rule.matches(base).into_iter().map(|own| (own, priority, rule.permits)));
    }
    if !list.is_empty() {
        out.push((base.clone().with(Field::EthType, 0x0800_u16), 10, false));
    }
    out
}

fn port(interface: usize) -> u32 {
    2 + interface as u32 % 3
}
