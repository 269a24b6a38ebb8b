//! The way of packets through the tables from their keys alone: which flow of which table takes each.
//!
//! ```text
//!  key, flags ─▶ table 0 ─▶ flow ─▶ its effect on the key ─▶ table n ─▶ flow … ─▶ path
//!                                        │ what that is cannot be known here: the path is open from there
//! ```
//!
//! This is what a device does for the packets of a job ([`crate::device`]); [`walk`] is the same on a CPU. A *path* has the flow of
//! each table that a packet meets, in order. The pipeline follows it as it carries out instructions
//! ([`Pipeline::push_known`](crate::Pipeline::push_known)), and looks up itself where the path is open, so what becomes of packets
//! does not depend on how far a path goes.
//!
//! What later tables see of a flow is its [`Effect`]: fields of the key that it sets, tags that it pushes and pops, metadata. Of
//! other changes (labels, protocols, meters that remark) what the packet is then follows from its bytes, so a path
//! is open behind a flow with one. Groups work on copies of packets that go on.
//!
//! Threads: pure functions.

use openflow::{Action, Field};
use packet::EtherType;

use crate::device::{self, TABLES_MAX};
use crate::flow::Steps;
use crate::headers::{Headers, Network, Transport, VID_PRESENT};
use crate::key::{Key, Place, WORDS, place, place_of};
use crate::tables::{BATCH, FlowTables};

/// Tables of a path.
pub const STEPS: usize = 8;
/// In a path: no flow takes the packet.
pub const MISS: u32 = u32::MAX;
/// In a path: not looked up.
pub const OPEN: u32 = u32::MAX - 1;

/// The flows that take a packet, table after table: a number, [`MISS`] or [`OPEN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path(pub [u32; STEPS]);

impl Path {
    /// Nothing is known.
    pub const OPEN: Self = Self([OPEN; STEPS]);
}

/// What a packet is, as far as effects ask: bits.
pub mod flags {
    #![allow(missing_docs)] // the names say it
    /// It is to be looked up.
    pub const WANTED: u32 = 1;
    pub const LINK: u32 = 1 << 1;
    pub const TAGGED: u32 = 1 << 2;
    pub const IPV4: u32 = 1 << 3;
    pub const IPV6: u32 = 1 << 4;
    pub const ARP: u32 = 1 << 5;
    pub const MPLS: u32 = 1 << 6;
    pub const TCP: u32 = 1 << 7;
    pub const UDP: u32 = 1 << 8;
    pub const SCTP: u32 = 1 << 9;
}

/// The flags of a packet that is to be looked up.
pub fn flags_of(headers: &Headers) -> u32 {
    let network = match headers.network {
        Network::Ipv4 => flags::IPV4,
        Network::Ipv6 => flags::IPV6,
        Network::Arp => flags::ARP,
        Network::Mpls => flags::MPLS,
        Network::Other | Network::Pbb => 0,
    };
    let transport = match headers.transport {
        Transport::Tcp => flags::TCP,
        Transport::Udp => flags::UDP,
        Transport::Sctp => flags::SCTP,
        Transport::Other | Transport::Icmp | Transport::Icmpv6 => 0,
    };
    let link = if headers.l3 >= 14 { flags::LINK } else { 0 };
    let tagged = if headers.tagged { flags::TAGGED } else { 0 };
    flags::WANTED | link | tagged | network | transport
}

/// Changes of a key that an effect may have.
pub const OPS_MAX: usize = 5;

/// The kind of a change: the lowest byte of its first word.
pub mod op {
    /// Bits of a word become others: of a packet with one of some flags, or of every one where there are none.
    pub const SET: u32 = 1;
    /// A packet without a tag gets one; with a tag, the path is open.
    pub const PUSH: u32 = 2;
    /// A packet with one tag loses it; with two, the path is open.
    pub const POP: u32 = 3;
}

/// A change of a key: kind, word << 8 and flags << 16; mask; value.
pub type Op = [u32; 3];

/// What later tables see of a flow's actions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Changes, in order.
    pub ops: Vec<Op>,
    /// There are others: the path is open behind this flow.
    pub is_open: bool,
}

impl Effect {
    /// The effect of steps; nothing where they lead to no other table.
    pub fn of(steps: &Steps) -> Self {
        let mut effect = Self::default();
        if steps.goto.is_none() {
            return effect;
        }
        // It may change the code point.
        effect.is_open = steps.meter.is_some();
        for action in &steps.apply {
            match action {
                Action::SetField(field, value) => effect.set(*field, *value),
                Action::PushVlan(_) => effect.push([op::PUSH, 0, 0]),
                Action::PopVlan => effect.push([op::POP, 0, 0]),
                // No field has them, or a copy takes them.
                Action::Output { .. }
                | Action::Enqueue { .. }
                | Action::SetQueue(_)
                | Action::Group(_)
                | Action::CopyTtlOut
                | Action::CopyTtlIn
                | Action::SetMplsTtl(_)
                | Action::DecMplsTtl
                | Action::SetNwTtl(_)
                | Action::DecNwTtl => {}
                _ => effect.is_open = true,
            }
        }
        effect.is_open |= effect.ops.len() > OPS_MAX;
        if effect.is_open {
            effect.ops.clear();
        }
        effect
    }

    fn push(&mut self, op: Op) {
        self.ops.push(op);
    }

    fn set(&mut self, field: Field, value: u128) {
        let (place, needs, value) = match field {
            Field::Metadata | Field::TunnelId => (place_of(field), 0, value),
            Field::EthDst | Field::EthSrc => (place_of(field), flags::LINK, value),
            Field::VlanVid => {
                (place::VLAN_VID, flags::TAGGED, value & 0xfff | u128::from(VID_PRESENT))
            }
            Field::VlanPcp => (place::VLAN_PCP, flags::TAGGED, value),
            Field::IpDscp | Field::IpEcn => (place_of(field), flags::IPV4 | flags::IPV6, value),
            Field::Ipv4Src | Field::Ipv4Dst => (place_of(field), flags::IPV4, value),
            Field::Ipv6Src | Field::Ipv6Dst | Field::Ipv6Flabel => {
                (place_of(field), flags::IPV6, value)
            }
            Field::TcpSrc | Field::TcpDst => (place_of(field), flags::TCP, value),
            Field::UdpSrc | Field::UdpDst => (place_of(field), flags::UDP, value),
            Field::SctpSrc | Field::SctpDst => (place_of(field), flags::SCTP, value),
            Field::ArpSpa | Field::ArpTpa | Field::ArpSha | Field::ArpTha => {
                (place_of(field), flags::ARP, value)
            }
            Field::MplsLabel | Field::MplsTc | Field::MplsBos => {
                (place_of(field), flags::MPLS, value)
            }
            _ => return self.is_open = true,
        };
        self.set_place(place, needs, value);
    }

    fn set_place(&mut self, place: Place, needs: u32, value: u128) {
        let (mut values, mut masks) = (Key::default(), Key::default());
        values.set(place, value);
        masks.set(place, place.max());
        for word in (0..WORDS).filter(|word| masks.0[*word] != 0) {
            let (mask, value) = (masks.0[word], values.0[word]);
            let kind = op::SET | (word as u32) << 8 | needs << 16;
            // Later changes of a word join earlier ones, as far as no tag comes or goes in between.
            let is_set = |own: &&mut Op| own[0] & 0xff == op::SET;
            let before = self.ops.iter_mut().rev().take_while(is_set).find(|own| own[0] == kind);
            match before {
                Some(own) => *own = [kind, own[1] | mask, own[2] & !mask | value],
                None => self.ops.push([kind, mask, value]),
            }
        }
    }
}

/// Applies changes to a key; `false` where the path is open.
pub fn apply(ops: &[Op], key: &mut Key, flags: &mut u32) -> bool {
    for [kind, mask, value] in ops {
        let is_tagged = *flags & flags::TAGGED != 0;
        let has_inner = EtherType(key.get(place::ETH_TYPE) as u16).is_vlan();
        match kind & 0xff {
            op::PUSH if is_tagged || has_inner || *flags & flags::LINK == 0 => return false,
            op::PUSH => {
                key.set(place::VLAN_VID, VID_PRESENT.into());
                key.set(place::VLAN_PCP, 0);
                *flags |= flags::TAGGED;
            }
            op::POP if has_inner => return false,
            op::POP if is_tagged => {
                key.set(place::VLAN_VID, 0);
                key.set(place::VLAN_PCP, 0);
                *flags &= !flags::TAGGED;
            }
            op::SET if kind >> 16 == 0 || kind >> 16 & *flags != 0 => {
                let word = &mut key.0[(kind >> 8 & 0xff) as usize];
                *word = *word & !mask | value;
            }
            _ => {}
        }
    }
    true
}

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
struct Walker {
    row: u32,
    table: u8,
    step: u8,
}

/// Buffers of a [`walk`].
#[derive(Debug, Default)]
pub struct Room {
    on_their_way: Vec<Walker>,
    here: Vec<usize>,
    headers: Vec<u32>,
    found: Vec<Option<u32>>,
}

/// Finds the paths of packets whose flags say that they are [wanted](flags::WANTED); those of others are open. Keys and flags become
/// those of the last table that was looked up.
///
/// # Panics
/// If there are not as many keys as flags and paths.
pub fn walk(
    tables: &FlowTables,
    keys: &mut [Key],
    flags: &mut [u32],
    paths: &mut [Path],
    room: &mut Room,
) {
    assert!(keys.len() == flags.len() && keys.len() == paths.len(), "a row each");
    paths.fill(Path::OPEN);
    let Room { on_their_way, here, headers, found } = room;
    on_their_way.clear();
    let wanted = (0..keys.len()).filter(|row| flags[*row] & flags::WANTED != 0);
    on_their_way.extend(wanted.map(|row| Walker { row: row as u32, table: 0, step: 0 }));
    while let Some(table) = on_their_way.iter().map(|own| own.table).min() {
        if usize::from(table) >= TABLES_MAX || !device::knows(tables, table) {
            on_their_way.retain(|own| own.table != table);
            continue;
        }
        here.clear();
        let at = 0..on_their_way.len();
        here.extend(at.filter(|at| on_their_way[*at].table == table).take(BATCH));
        found.clear();
        found.resize(here.len(), None);
        let key = |at: usize| &keys[on_their_way[here[at]].row as usize];
        tables.look_up(table, key, headers, found);
        for (at, found) in here.iter().zip(&*found) {
            let own = &mut on_their_way[*at];
            let (row, step) = (own.row as usize, usize::from(own.step));
            paths[row].0[step] = found.unwrap_or(MISS);
            let flow = found.and_then(|id| tables.flow(id));
            let next = flow.and_then(|flow| {
                let steps = &flow.steps;
                let goto = steps.goto.filter(|_| !steps.effect.is_open && step + 1 < STEPS)?;
                let (key, flags) = (&mut keys[row], &mut flags[row]);
                apply(&steps.effect.ops, key, flags).then_some(())?;
                if let Some((value, mask)) = steps.metadata {
                    let old = key.get(place::METADATA) as u64;
                    key.set(place::METADATA, (old & !mask | value & mask).into());
                }
                Some(goto)
            });
            (own.table, own.step) = (next.unwrap_or(u8::MAX), own.step + 1);
        }
        // No table has the number 255.
        on_their_way.retain(|own| own.table != u8::MAX);
    }
}
