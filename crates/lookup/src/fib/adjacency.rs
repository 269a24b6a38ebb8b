//! Interfaces and adjacencies on the control side: who is reached how.
//!
//! An adjacency stands for (interface, neighbour, family of the packets): an IPv4 packet to an IPv6
//! next hop (RFC 8950) carries another EtherType than an IPv6 packet to the same neighbour. It
//! lives while next hops refer to it or while its neighbour is known. A neighbour that gets another
//! MAC, or an interface that changes, is a changed record; the routes stay as they are.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use super::records::{Adjacency, Interface};
use super::tables::key6;

/// What an adjacency stands for. Without a gateway: whatever the packet's destination is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct AdjacencyKey {
    pub(super) interface: u16,
    pub(super) gateway: Option<IpAddr>,
    pub(super) v4: bool,
}

/// A change of the map from neighbours to adjacencies.
pub(super) type Named = (u16, IpAddr, Option<u32>);

#[derive(Debug, Clone, Default)]
pub(super) struct Adjacencies {
    interfaces: Vec<Option<Interface>>,
    records: Vec<Adjacency>,
    slots: Vec<Option<(AdjacencyKey, u32)>>, // and how many hold it
    index: HashMap<AdjacencyKey, u32>,
    macs: HashMap<(u16, IpAddr), [u8; 6]>,
    free: Vec<u32>,
    retired: Vec<u32>,
    changed: BTreeSet<u32>,
    changed_interfaces: BTreeSet<u16>,
    named: Vec<Named>,
}

/// What changed since the last call.
#[derive(Debug, Clone, Default)]
pub(super) struct AdjacencyChanges {
    pub(super) records: Vec<(u32, Adjacency)>,
    pub(super) interfaces: Vec<(u16, Option<Interface>)>,
    pub(super) named: Vec<Named>,
}

impl Adjacencies {
    pub(super) fn interfaces(&self) -> &[Option<Interface>] {
        &self.interfaces
    }

    pub(super) fn records(&self) -> &[Adjacency] {
        &self.records
    }

    /// Neighbours and the adjacencies for packets of their own family.
    pub(super) fn neighbours(&self) -> HashMap<(u16, IpAddr), u32> {
        let native = self.index.iter().filter_map(|(key, index)| Some((native(key)?, *index)));
        native.collect()
    }

    /// The MAC address of a neighbour that is known.
    pub(super) fn mac(&self, interface: u16, address: IpAddr) -> Option<[u8; 6]> {
        self.macs.get(&(interface, address)).copied()
    }

    /// Sets or takes away an interface; whether anything changed.
    pub(super) fn set_interface(&mut self, index: u16, interface: Option<Interface>) -> bool {
        let at = usize::from(index);
        if self.interfaces.len() <= at {
            self.interfaces.resize(at + 1, None);
        }
        if self.interfaces[at] == interface {
            return false;
        }
        self.interfaces[at] = interface;
        self.changed_interfaces.insert(index);
        for i in 0..self.slots.len() {
            if let Some((key, _)) = self.slots[i]
                && key.interface == index
            {
                self.render(i as u32, key);
            }
        }
        true
    }

    /// The adjacency of `key`, held once more.
    pub(super) fn acquire(&mut self, key: AdjacencyKey) -> u32 {
        if let Some(&index) = self.index.get(&key) {
            if let Some((_, refs)) = &mut self.slots[index as usize] {
                *refs += 1;
            }
            return index;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.records.push(Adjacency::default());
            self.slots.len() as u32 - 1
        });
        self.slots[index as usize] = Some((key, 1));
        self.index.insert(key, index);
        self.render(index, key);
        if let Some((interface, address)) = native(&key) {
            self.named.push((interface, address, Some(index)));
        }
        index
    }

    /// Lets go of an adjacency once.
    pub(super) fn release(&mut self, index: u32) {
        let Some(Some((key, refs))) = self.slots.get_mut(index as usize) else { return };
        *refs -= 1;
        if *refs > 0 {
            return;
        }
        let key = *key;
        self.slots[index as usize] = None;
        self.index.remove(&key);
        self.records[index as usize] = Adjacency::default();
        self.changed.insert(index);
        self.retired.push(index);
        if let Some((interface, address)) = native(&key) {
            self.named.push((interface, address, None));
        }
    }

    /// Sets what is known of a neighbour; what was known before.
    pub(super) fn set_mac(
        &mut self,
        interface: u16,
        address: IpAddr,
        mac: Option<[u8; 6]>,
    ) -> Option<[u8; 6]> {
        let before = match mac {
            Some(mac) => self.macs.insert((interface, address), mac),
            None => self.macs.remove(&(interface, address)),
        };
        if before != mac {
            for v4 in [false, true] {
                let key = AdjacencyKey { interface, gateway: Some(address), v4 };
                if let Some(&index) = self.index.get(&key) {
                    self.render(index, key);
                }
            }
        }
        before
    }

    /// What changed. Numbers that were let go become free.
    pub(super) fn take_changes(&mut self) -> AdjacencyChanges {
        self.free.append(&mut self.retired);
        let changed = std::mem::take(&mut self.changed);
        let interfaces = std::mem::take(&mut self.changed_interfaces);
        AdjacencyChanges {
            records: changed.into_iter().map(|i| (i, self.records[i as usize])).collect(),
            interfaces: interfaces
                .into_iter()
                .map(|i| (i, self.interfaces[usize::from(i)].clone()))
                .collect(),
            named: std::mem::take(&mut self.named),
        }
    }

    fn render(&mut self, index: u32, key: AdjacencyKey) {
        let interface = self.interfaces.get(usize::from(key.interface)).and_then(Option::as_ref);
        let mac = key.gateway.and_then(|address| self.mac(key.interface, address));
        let record = adjacency(&key, interface, mac);
        if self.records[index as usize] != record {
            self.records[index as usize] = record;
            self.changed.insert(index);
        }
    }
}

/// The neighbour whose own adjacency `key` is.
fn native(key: &AdjacencyKey) -> Option<(u16, IpAddr)> {
    let address = key.gateway?;
    (address.is_ipv4() == key.v4).then_some((key.interface, address))
}

fn adjacency(key: &AdjacencyKey, interface: Option<&Interface>, mac: Option<[u8; 6]>) -> Adjacency {
    let (family, address) = match key.gateway {
        Some(IpAddr::V4(v4)) => (4, [0, u64::from(v4.to_bits())]),
        Some(IpAddr::V6(v6)) => (6, key6(v6)),
        None => (0, [0, 0]),
    };
    let mut record = Adjacency { interface: key.interface, family, address, ..Default::default() };
    let Some(interface) = interface else { return record };
    record.rewrite[0..6].copy_from_slice(&mac.unwrap_or_default());
    record.rewrite[6..12].copy_from_slice(&interface.mac);
    let mut at = 12;
    for (tpid, vlan) in interface.tags.iter().take(2) {
        record.rewrite[at..at + 2].copy_from_slice(&tpid.to_be_bytes());
        record.rewrite[at + 2..at + 4].copy_from_slice(&vlan.to_be_bytes());
        at += 4;
    }
    let ethertype: u16 = if key.v4 { 0x0800 } else { 0x86dd };
    record.rewrite[at..at + 2].copy_from_slice(&ethertype.to_be_bytes());
    record.rewrite_len = (at + 2) as u8;
    record.resolved = u8::from(mac.is_some());
    record.tx_port = interface.port;
    record.mtu = interface.mtu;
    record
}
