//! Next hops on the control side: numbers, what they stand for, and the records made of it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::adjacency::{Adjacencies, AdjacencyKey};
use super::group::{GROUP_PATHS_MAX, Groups, members_by_weight};
use super::records::{NextHop, NextHopKind};
use crate::{NEXT_HOP_MAX, NextHopId, TableError};

/// One way to leave the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path {
    /// By this interface.
    pub interface: u16,
    /// To this neighbour; `None`: to the packet's destination, which is on the link.
    pub gateway: Option<IpAddr>,
    /// Share among the paths of a route; 0 counts as 1.
    pub weight: u32,
}

/// Where a route leads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RouteTarget {
    /// Out by one of these. Of none: as if there were no route. Of more than
    /// [`GROUP_PATHS_MAX`] the first ones are used.
    Paths(Vec<Path>),
    /// An address of this interface.
    Local(u16),
    /// The directed broadcast of this interface.
    Broadcast(u16),
    /// Dropped in silence.
    Blackhole,
    /// Dropped, and its sender gets an ICMP error.
    Unreachable,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Hops {
    pub(super) adjacencies: Adjacencies,
    pub(super) groups: Groups,
    records: Vec<NextHop>,
    slots: Vec<Option<Slot>>,
    free: Vec<NextHopId>,
    retired: Vec<NextHopId>,
    changed: BTreeSet<NextHopId>,
}

#[derive(Debug, Clone, Default)]
struct Slot {
    v4: bool,
    host: bool,
    held: Vec<u32>,    // adjacencies, one for each path
    members: Vec<u32>, // of the group, empty without
}

impl Hops {
    pub(super) fn new() -> Self {
        Self { records: vec![NextHop::default()], slots: vec![None], ..Self::default() }
    }

    /// A new number for packets of one family, without a target.
    pub(super) fn create(&mut self, v4: bool, host: bool) -> Result<NextHopId, TableError> {
        let id = match self.free.pop() {
            Some(id) => id,
            None if self.slots.len() > NEXT_HOP_MAX as usize => {
                let limit = NEXT_HOP_MAX;
                return Err(TableError::Full { what: "next hops", used: limit, limit });
            }
            None => {
                self.slots.push(None);
                self.records.push(NextHop::default());
                (self.slots.len() - 1) as NextHopId
            }
        };
        self.slots[id as usize] = Some(Slot { v4, host, ..Slot::default() });
        Ok(id)
    }

    /// Lets a number go; no route may lead there any more.
    pub(super) fn destroy(&mut self, id: NextHopId) {
        let Some(slot) = self.slots.get_mut(id as usize).and_then(Option::take) else { return };
        self.let_go(&slot);
        self.set_record(id, NextHop::default());
        self.retired.push(id);
    }

    /// Says what a number stands for.
    pub(super) fn set(&mut self, id: NextHopId, target: &RouteTarget) {
        let Some(mut slot) = self.slots.get_mut(id as usize).and_then(Option::take) else {
            return;
        };
        let before = Slot { held: std::mem::take(&mut slot.held), ..Slot::default() };
        let before = Slot { members: std::mem::take(&mut slot.members), ..before };
        let record = match target {
            RouteTarget::Paths(paths) => self.set_paths(&mut slot, paths),
            RouteTarget::Local(interface) => record(NextHopKind::Local, u32::from(*interface)),
            RouteTarget::Broadcast(interface) => {
                record(NextHopKind::Broadcast, u32::from(*interface))
            }
            RouteTarget::Blackhole => record(NextHopKind::Blackhole, 0),
            RouteTarget::Unreachable => record(NextHopKind::Unreachable, 0),
        };
        // The new ones are held before the old ones go, so that what stays is not made anew.
        self.let_go(&before);
        self.set_record(id, record);
        self.slots[id as usize] = Some(slot);
    }

    fn set_paths(&mut self, slot: &mut Slot, paths: &[Path]) -> NextHop {
        let v4 = slot.v4;
        let key =
            |path: &Path| AdjacencyKey { interface: path.interface, gateway: path.gateway, v4 };
        match paths {
            [] => record(NextHopKind::NoRoute, 0),
            [Path { gateway: None, interface, .. }] => {
                record(NextHopKind::Connected, u32::from(*interface))
            }
            [path] => {
                let index = self.adjacencies.acquire(key(path));
                slot.held.push(index);
                record(NextHopKind::Adjacency, index)
            }
            paths => {
                let paths = &paths[..paths.len().min(GROUP_PATHS_MAX)];
                let weights: Vec<u32> = paths.iter().map(|path| path.weight).collect();
                for (path, count) in paths.iter().zip(members_by_weight(&weights)) {
                    let index = self.adjacencies.acquire(key(path));
                    slot.held.push(index);
                    slot.members.extend(std::iter::repeat_n(index, count));
                }
                let first = self.groups.acquire(&slot.members);
                NextHop { count: slot.members.len() as u16, ..record(NextHopKind::Group, first) }
            }
        }
    }

    fn let_go(&mut self, slot: &Slot) {
        for index in &slot.held {
            self.adjacencies.release(*index);
        }
        if !slot.members.is_empty() {
            self.groups.release(&slot.members);
        }
    }

    fn set_record(&mut self, id: NextHopId, record: NextHop) {
        if self.records[id as usize] != record {
            self.records[id as usize] = record;
            self.changed.insert(id);
        }
    }

    /// Whether it is a neighbour's host route.
    pub(super) fn is_host(&self, id: NextHopId) -> bool {
        self.slots.get(id as usize).and_then(Option::as_ref).is_some_and(|slot| slot.host)
    }

    /// The interface onto whose link it leads, where it leads nowhere else.
    pub(super) fn link(&self, id: NextHopId) -> Option<u16> {
        let record = self.records.get(id as usize)?;
        (record.kind == NextHopKind::Connected).then_some(record.first as u16)
    }

    pub(super) fn records(&self) -> &[NextHop] {
        &self.records
    }

    /// What changed. Numbers that were let go become free.
    pub(super) fn take_changes(&mut self) -> Vec<(NextHopId, NextHop)> {
        self.free.append(&mut self.retired);
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|id| (id, self.records[id as usize])).collect()
    }
}

fn record(kind: NextHopKind, first: u32) -> NextHop {
    NextHop { kind, pad: 0, count: 1, first }
}
