//! One version of all tables, as the data path reads it, and the patches that make the next one.
//!
//! ```text
//!  lookup4, lookup6 (batches) ─▶ NextHopId ─▶ resolve(id, flow hash) ─▶ Resolved
//!  classify(port, tags) ─▶ interface index ─▶ interface(i)
//! ```
//!
//! No accessor panics, whatever number it is given: a number out of range resolves to
//! [`Resolved::Bad`], which a stage counts as `bad_lookup`.
//!
//! Thread rule: a version is read-only; [`versions::Writer`](crate::versions::Writer) applies
//! patches to the copy without readers.

use std::collections::HashMap;
use std::net::IpAddr;

use super::own::OwnAddresses;
use super::records::{Adjacency, Interface, NextHop, NextHopKind, Options};
use crate::bspl::Bspl;
use crate::dir24_8::Dir24_8;
use crate::mtrie6::Mtrie6;
use crate::poptrie::Poptrie;
use crate::versions::Patchable;
use crate::{Blob, Key6, Lpm, NO_ROUTE, NextHopId, blob};

/// One version of all forwarding tables. Made by [`FibBuilder::freeze`](super::FibBuilder::freeze); the
/// default is that of a program that routes nothing.
#[derive(Clone, Debug, Default)]
pub struct Fib {
    pub(super) v4: Blob,
    pub(super) v6: Blob,
    pub(super) next_hops: Vec<NextHop>,
    pub(super) group_members: Vec<u32>,
    pub(super) adjacencies: Vec<Adjacency>,
    pub(super) interfaces: Vec<Option<Interface>>,
    pub(super) vlans: Vec<(u64, u16)>, // (vlan_key, interface), sorted
    pub(super) own: OwnAddresses,
    pub(super) neighbours: HashMap<(u16, IpAddr), u32>,
    pub(super) options: Options,
}

/// What to do with a packet, found by [`Fib::resolve`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Resolved<'a> {
    /// No route covers the destination.
    NoRoute,
    /// To this neighbour, known or not ([`Adjacency::resolved`]); and the adjacency's number.
    Adjacency(&'a Adjacency, u32),
    /// On the link of this interface: the destination itself is the neighbour. Those that are known
    /// have routes of their own where that is possible; [`Fib::neighbour`] knows all.
    Connected(u16),
    /// An address of this interface.
    Local(u16),
    /// The directed broadcast of this interface.
    Broadcast(u16),
    /// Dropped in silence.
    Blackhole,
    /// Dropped with an ICMP destination unreachable.
    Unreachable,
    /// The number is in no table: a defect, counted and dropped.
    Bad,
}

/// One change of a [`Fib`].
#[derive(Clone, Debug)]
pub enum FibPatch {
    /// Changes of the IPv4 table.
    V4(Vec<blob::Patch>),
    /// Changes of the IPv6 table.
    V6(Vec<blob::Patch>),
    /// Sets the record of a next hop.
    NextHop(u32, NextHop),
    /// Sets members of groups.
    GroupMembers {
        /// The first one's position.
        first: u32,
        /// Numbers of adjacencies.
        members: Vec<u32>,
    },
    /// Sets an adjacency.
    Adjacency(u32, Adjacency),
    /// Sets an interface, or takes it away.
    Interface(u16, Option<Interface>),
    /// A neighbour has this adjacency, or none any more.
    Neighbour(u16, IpAddr, Option<u32>),
    /// Sets the options.
    Options(Options),
}

/// A router that has no other tables.
impl AsRef<Fib> for Fib {
    fn as_ref(&self) -> &Fib {
        self
    }
}

impl Fib {
    /// The next hop of each IPv4 address (host order), [`NO_ROUTE`] for none.
    ///
    /// # Panics
    /// When the slices differ in length.
    #[inline]
    pub fn lookup4(&self, keys: &[u32], out: &mut [NextHopId]) {
        // Each tells its own by the first word; a batch pays once.
        if let Some(table) = Poptrie::new(&self.v4) {
            table.lookup(keys, out);
        } else if let Some(table) = Dir24_8::new(&self.v4) {
            table.lookup(keys, out);
        } else {
            out.fill(NO_ROUTE);
        }
    }

    /// The next hop of each IPv6 address, [`NO_ROUTE`] for none.
    ///
    /// # Panics
    /// When the slices differ in length.
    #[inline]
    pub fn lookup6(&self, keys: &[Key6], out: &mut [NextHopId]) {
        if let Some(table) = Mtrie6::new(&self.v6) {
            table.lookup(keys, out);
        } else if let Some(table) = Bspl::new(&self.v6) {
            table.lookup(keys, out);
        } else {
            out.fill(NO_ROUTE);
        }
    }

    /// The next hop of one address: for tests, traces and single packets.
    pub fn lookup_one(&self, address: IpAddr) -> NextHopId {
        let mut out = [NO_ROUTE];
        match address {
            IpAddr::V4(v4) => self.lookup4(&[v4.to_bits()], &mut out),
            IpAddr::V6(v6) => self.lookup6(&[key6(v6)], &mut out),
        }
        out[0]
    }

    /// The record of a next hop; one out of range reads as no route.
    #[inline]
    pub fn next_hop(&self, id: NextHopId) -> NextHop {
        self.next_hops.get(id as usize).copied().unwrap_or_default()
    }

    /// What to do with a packet whose lookup gave `id`. `flow_hash` chooses among equal-cost members:
    /// all its bits should be good.
    #[inline]
    pub fn resolve(&self, id: NextHopId, flow_hash: u32) -> Resolved<'_> {
        let Some(hop) = self.next_hops.get(id as usize) else {
            return Resolved::Bad;
        };
        match hop.kind {
            NextHopKind::Adjacency => self.resolve_adjacency(hop.first),
            NextHopKind::Group => {
                let index = (u64::from(flow_hash) * u64::from(hop.count)) >> 32;
                match self.group_members.get(hop.first as usize + index as usize) {
                    Some(&member) => self.resolve_adjacency(member),
                    None => Resolved::Bad,
                }
            }
            NextHopKind::Connected => Resolved::Connected(hop.first as u16),
            NextHopKind::Local => Resolved::Local(hop.first as u16),
            NextHopKind::Broadcast => Resolved::Broadcast(hop.first as u16),
            NextHopKind::Blackhole => Resolved::Blackhole,
            NextHopKind::Unreachable => Resolved::Unreachable,
            NextHopKind::NoRoute => Resolved::NoRoute,
        }
    }

    #[inline]
    fn resolve_adjacency(&self, index: u32) -> Resolved<'_> {
        match self.adjacencies.get(index as usize) {
            Some(adjacency) if adjacency.family != 0 => Resolved::Adjacency(adjacency, index),
            Some(adjacency) => Resolved::Connected(adjacency.interface),
            None => Resolved::Bad,
        }
    }

    /// Whether some path of next hop `id` leaves by `interface`: the strict reverse-path check
    /// (RFC 3704 section 2.2; equal-cost paths all count).
    pub fn leads_to(&self, id: NextHopId, interface: u16) -> bool {
        let hop = self.next_hop(id);
        let by = |index: u32| {
            self.adjacencies.get(index as usize).is_some_and(|a| a.interface == interface)
        };
        match hop.kind {
            NextHopKind::Adjacency => by(hop.first),
            NextHopKind::Group => {
                let first = hop.first as usize;
                let members = self.group_members.get(first..first + usize::from(hop.count));
                members.unwrap_or(&[]).iter().any(|&index| by(index))
            }
            NextHopKind::Connected => hop.first == u32::from(interface),
            _ => false,
        }
    }

    /// The adjacency of that number.
    #[inline]
    pub fn adjacency(&self, index: u32) -> Option<&Adjacency> {
        self.adjacencies.get(index as usize)
    }

    /// The adjacency of a neighbour on the link of `interface`, whatever the routes say; `None`
    /// if it was not requested yet. Off the fast path.
    pub fn neighbour(&self, interface: u16, address: IpAddr) -> Option<(&Adjacency, u32)> {
        let index = *self.neighbours.get(&(interface, address))?;
        Some((self.adjacencies.get(index as usize)?, index))
    }

    /// The interface of that index.
    #[inline]
    pub fn interface(&self, index: u16) -> Option<&Interface> {
        self.interfaces.get(usize::from(index))?.as_ref()
    }

    /// Indices and records of all interfaces, ports first.
    pub fn interfaces(&self) -> impl Iterator<Item = (u16, &Interface)> {
        (0u16..).zip(&self.interfaces).filter_map(|(i, record)| Some((i, record.as_ref()?)))
    }

    /// The interface of a frame that came in by `port` with `count` tags, outer first: whether it
    /// is up or not. A tag with identifier 0 carries only a priority (IEEE 802.1Q §9.6) and counts
    /// as none. `None`: the tags belong to no interface.
    #[inline]
    pub fn classify(&self, port: u16, count: u8, tci: [u16; 2]) -> Option<u16> {
        if count == 0 {
            return self.interface(port).map(|_| port);
        }
        self.classify_tagged(port, count, tci)
    }

    fn classify_tagged(&self, port: u16, count: u8, tci: [u16; 2]) -> Option<u16> {
        let mut ids = tci.map(|tci| tci & 0xfff);
        if count == 1 {
            ids[1] = 0;
        } else if ids[0] == 0 {
            ids = [ids[1], 0];
        }
        if ids == [0, 0] {
            return self.interface(port).map(|_| port);
        }
        let key = vlan_key(port, ids);
        let at = self.vlans.binary_search_by_key(&key, |entry| entry.0).ok()?;
        Some(self.vlans[at].1)
    }

    /// The addresses of all interfaces.
    #[inline]
    pub fn own_addresses(&self) -> &OwnAddresses {
        &self.own
    }

    /// The options.
    #[inline]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Memory of the tables, bytes.
    pub fn len_bytes(&self) -> usize {
        self.v4.len_bytes()
            + self.v6.len_bytes()
            + self.next_hops.capacity() * size_of::<NextHop>()
            + self.group_members.capacity() * size_of::<u32>()
            + self.adjacencies.capacity() * size_of::<Adjacency>()
    }

    /// The bytes of both address tables, for devices.
    pub fn blobs(&self) -> [&Blob; 2] {
        [&self.v4, &self.v6]
    }
}

impl Patchable for Fib {
    type Patch = FibPatch;

    fn apply(&mut self, patch: &FibPatch) {
        match patch {
            FibPatch::V4(patches) => self.v4.apply(patches),
            FibPatch::V6(patches) => self.v6.apply(patches),
            FibPatch::NextHop(id, record) => set(&mut self.next_hops, *id as usize, *record),
            FibPatch::GroupMembers { first, members } => {
                let first = *first as usize;
                if self.group_members.len() < first + members.len() {
                    self.group_members.resize(first + members.len(), 0);
                }
                self.group_members[first..][..members.len()].copy_from_slice(members);
            }
            FibPatch::Adjacency(index, record) => {
                set(&mut self.adjacencies, *index as usize, *record);
            }
            FibPatch::Interface(index, record) => {
                set(&mut self.interfaces, usize::from(*index), record.clone());
                self.vlans = vlans(&self.interfaces);
                self.own = OwnAddresses::of(&self.interfaces);
            }
            FibPatch::Neighbour(interface, address, Some(index)) => {
                self.neighbours.insert((*interface, *address), *index);
            }
            FibPatch::Neighbour(interface, address, None) => {
                self.neighbours.remove(&(*interface, *address));
            }
            FibPatch::Options(options) => self.options = *options,
        }
    }
}

fn set<T: Clone + Default>(table: &mut Vec<T>, index: usize, record: T) {
    if table.len() <= index {
        table.resize(index + 1, T::default());
    }
    table[index] = record;
}

/// Which tags on which port lead to which interface. A subinterface that is named twice goes to the
/// later one; the configuration refuses that.
pub(super) fn vlans(interfaces: &[Option<Interface>]) -> Vec<(u64, u16)> {
    let mut map = std::collections::BTreeMap::new();
    for (index, record) in (0u16..).zip(interfaces) {
        if let Some(record) = record
            && let Some(outer) = record.tags.first()
        {
            let inner = record.tags.get(1).map_or(0, |tag| tag.1);
            map.insert(vlan_key(record.port, [outer.1, inner]), index);
        }
    }
    map.into_iter().collect()
}

fn vlan_key(port: u16, ids: [u16; 2]) -> u64 {
    u64::from(port) << 32 | u64::from(ids[0]) << 16 | u64::from(ids[1])
}

pub(super) fn key6(address: std::net::Ipv6Addr) -> Key6 {
    let bits = address.to_bits();
    [(bits >> 64) as u64, bits as u64]
}
