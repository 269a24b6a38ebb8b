//! Control's side: what controllers change, checked, and handed to packets as patches.
//!
//! Requests change what control knows at once. [`FlowControl::take_patches`] makes the patches of everything that has changed since
//! the last call: what is applied together becomes one version, which a packet sees all of or nothing. A list of requests that
//! belong together (a bundle) is [`FlowControl::all_or_nothing`].
//!
//! | module | holds |
//! | --- | --- |
//! | `flow_mod` | flows are added, changed and removed |
//! | `leaving` | flows that leave, time-outs |
//! | `stats` | statistics, filters |
//!
//! Threads: belongs to control.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;

use classify::algorithms::{Algorithm, find};
use openflow::flow::FlowRemoved;
use openflow::monitor::FlowEvent;
use openflow::{Action, PortNo};

use crate::flow::{Flow, Group, Port};
use crate::index::Index;
use crate::key::Words;
use crate::meter::Meter;
use crate::publish::{AUTO, Published};
use crate::tables::{FlowPatch, FlowTables, Settings};

mod flow_mod;
mod leaving;
mod stats;

/// Flows that a switch holds by default.
pub const FLOWS_MAX: usize = 1 << 20;

/// Table, match and priority: no two flows have the same.
pub(crate) type Identity = (u8, Words, u16);

/// Everything that controllers change.
#[derive(Debug)]
pub struct FlowControl {
    pub(crate) settings: Settings,
    flows_max: usize,
    flows: Vec<Option<Arc<Flow>>>,
    free: Vec<u32>,
    by_identity: HashMap<Identity, u32>,
    pub(crate) index: Index,
    len: usize,
    /// Flows of each table.
    table_len: Vec<usize>,
    pub(crate) groups: BTreeMap<u32, Arc<Group>>,
    pub(crate) meters: BTreeMap<u32, Arc<Meter>>,
    ports: BTreeMap<PortNo, Port>,
    queues: BTreeSet<(PortNo, u32)>,
    published: Published,
    /// Patches of anything but flows.
    pub(crate) patches: Vec<FlowPatch>,
    removed: Vec<FlowRemoved>,
    /// The number of the last change of a flow.
    sequence: u64,
    /// Changes since they were last taken; `None`: nobody wants them.
    changes: Option<Vec<FlowChange>>,
    /// When flows may have to leave, nanoseconds since 1970, and their numbers.
    deadlines: BinaryHeap<Reverse<(u64, u32)>>,
    /// While a list of requests is carried out: what flows, groups and meters were before.
    undo: Option<Vec<Undo>>,
    seed: u64,
    /// When time begins, nanoseconds since 1970: flows that were there before have come then.
    epoch_ns: u64,
}

/// A change of a flow, for flow monitors.
#[derive(Debug, Clone)]
pub struct FlowChange {
    /// What happened.
    pub event: FlowEvent,
    /// The flow as it is now, or was at last.
    pub flow: Arc<Flow>,
    /// The flow before, where there was one.
    pub before: Option<Arc<Flow>>,
}

/// What was, and is to be again.
#[derive(Debug)]
pub(crate) enum Undo {
    Flow(u32, Option<Arc<Flow>>),
    Group(u32, Option<Arc<Group>>),
    Meter(u32, Option<Arc<Meter>>),
}

/// How a table is searched, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableInfo {
    /// Its number.
    pub table: u8,
    /// Its flows.
    pub flows: usize,
    /// Those in the hash table of exact flows.
    pub exact: usize,
    /// The structure of the others.
    pub structure: &'static str,
    /// The words of the key that they look at.
    pub words: usize,
}

impl FlowControl {
    /// No flows, and the tables that packets see at first. `algorithm`: one of [`classify::algorithms`]; `auto` where it is not known.
    pub fn new(settings: Settings, flows_max: usize, algorithm: &str) -> (Self, FlowTables) {
        let seed = chunk::hash::random_seed();
        let algorithm = algorithm_of(algorithm);
        let control = Self {
            settings,
            flows_max,
            flows: Vec::new(),
            free: Vec::new(),
            by_identity: HashMap::new(),
            index: Index::default(),
            len: 0,
            table_len: vec![0; settings.tables.into()],
            groups: BTreeMap::new(),
            meters: BTreeMap::new(),
            ports: BTreeMap::new(),
            queues: BTreeSet::new(),
            published: Published::new(settings, algorithm, seed),
            patches: Vec::new(),
            removed: Vec::new(),
            sequence: 0,
            changes: None,
            deadlines: BinaryHeap::new(),
            undo: None,
            seed,
            epoch_ns: 0,
        };
        let tables = FlowTables::new(settings, seed);
        (control, tables)
    }

    /// The settings.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Other settings of the same number of tables.
    pub fn set_settings(&mut self, settings: Settings) {
        let Settings { tables, device, .. } = self.settings;
        self.settings = Settings { tables, device, ..settings };
        self.patches.push(FlowPatch::Settings(self.settings));
    }

    /// Flows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All flows, by number.
    pub fn flows(&self) -> impl Iterator<Item = &Arc<Flow>> {
        self.flows.iter().flatten()
    }

    /// How tables are searched, as of the last patches; those with flows.
    pub fn tables(&self) -> Vec<TableInfo> {
        let tables = self.table_len.iter().enumerate().filter(|(_, flows)| **flows > 0);
        let info = |(table, flows): (usize, &usize)| {
            let table = table as u8;
            let (structure, words, _, exact) = self.published.structure(table);
            TableInfo { table, flows: *flows, exact, structure, words }
        };
        tables.map(info).collect()
    }

    /// Patches that make packets see the present state.
    pub fn take_patches(&mut self) -> Vec<FlowPatch> {
        let mut patches = std::mem::take(&mut self.patches);
        self.published.patches(&self.flows, &mut patches);
        patches
    }

    /// Flows that have left and asked for FLOW_REMOVED.
    pub fn take_removed(&mut self) -> Vec<FlowRemoved> {
        std::mem::take(&mut self.removed)
    }

    /// A port as it is now, or that there is none of this number.
    pub fn set_port(&mut self, number: PortNo, port: Option<Port>) {
        match port {
            Some(port) => self.ports.insert(number, port),
            None => self.ports.remove(&number),
        };
        self.patches.push(FlowPatch::Port(number, port));
    }

    /// The port of a number.
    pub fn port(&self, number: PortNo) -> Option<&Port> {
        self.ports.get(&number)
    }

    /// The queues that flows may name: port and number.
    pub fn set_queues(&mut self, queues: impl IntoIterator<Item = (PortNo, u32)>) {
        self.queues = queues.into_iter().collect();
    }

    /// Whether a port, or any, has a queue of this number.
    fn has_queue(&self, port: Option<PortNo>, queue: u32) -> bool {
        match port {
            Some(port) => self.queues.contains(&(port, queue)),
            None => self.queues.iter().any(|own| own.1 == queue),
        }
    }

    /// All ports, by number.
    pub fn ports(&self) -> impl Iterator<Item = &Port> {
        self.ports.values()
    }

    pub(crate) fn remember(&mut self, undo: impl FnOnce(&Self) -> Undo) {
        if self.undo.is_some() {
            let undo = undo(self);
            self.undo.get_or_insert_default().push(undo);
        }
    }

    /// Carries out requests that belong together: if one is refused, nothing has changed.
    ///
    /// # Errors
    /// That of the first request that is refused.
    pub fn all_or_nothing<E>(
        &mut self,
        requests: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let removed = self.removed.len();
        let changes = self.changes.as_ref().map_or(0, Vec::len);
        self.undo = Some(Vec::new());
        let result = requests(self);
        let undo = self.undo.take().unwrap_or_default();
        if result.is_err() {
            for was in undo.into_iter().rev() {
                match was {
                    Undo::Flow(id, flow) => self.put(id, flow),
                    Undo::Group(number, group) => self.put_group(number, group),
                    Undo::Meter(number, meter) => self.put_meter(number, meter),
                }
            }
            self.removed.truncate(removed);
            self.changes.iter_mut().for_each(|own| own.truncate(changes));
        }
        result
    }

    /// Makes `flow` the one of this number.
    fn put(&mut self, id: u32, flow: Option<Arc<Flow>>) {
        let at = id as usize;
        if self.flows.len() <= at {
            self.flows.resize(at + 1, None);
        }
        let old = self.flows[at].take();
        if let Some(old) = &old {
            self.by_identity.remove(&(old.table, old.words, old.priority));
            self.index.remove(old);
            self.table_len[usize::from(old.table)] -= 1;
            self.len -= 1;
        }
        match &flow {
            Some(flow) => {
                self.by_identity.insert((flow.table, flow.words, flow.priority), id);
                self.index.insert(flow);
                self.table_len[usize::from(flow.table)] += 1;
                self.len += 1;
            }
            None if old.is_some() => self.free.push(id),
            None => {}
        }
        // A flow that comes back as a change is undone.
        if old.is_none() && flow.is_some() && self.free.last() == Some(&id) {
            self.free.pop();
        }
        self.flows[at] = flow;
        self.published.touch(id);
    }

    /// A number for a new flow.
    fn next_id(&mut self) -> u32 {
        while let Some(id) = self.free.pop() {
            if self.flows[id as usize].is_none() {
                return id;
            }
        }
        self.flows.len() as u32
    }

    fn change(&mut self, id: u32, flow: Option<Arc<Flow>>, event: FlowEvent) {
        self.remember(|own| Undo::Flow(id, own.flows.get(id as usize).and_then(Clone::clone)));
        if let Some(changes) = &mut self.changes {
            let before = self.flows.get(id as usize).and_then(Clone::clone);
            // A change that changes nothing is none for who watches.
            let is_same = |new: &Arc<Flow>| {
                event == FlowEvent::Modified
                    && before.as_ref().is_some_and(|old| {
                        old.instructions == new.instructions && old.cookie == new.cookie
                    })
            };
            match (&flow, &before) {
                (Some(flow), _) if is_same(flow) => {}
                (Some(flow), _) => changes.push(FlowChange { event, flow: flow.clone(), before }),
                (None, Some(flow)) => {
                    changes.push(FlowChange { event, flow: flow.clone(), before: None })
                }
                (None, None) => {}
            }
        }
        self.put(id, flow);
    }

    /// The number of the next change of a flow.
    fn next_change(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// The number of the last change of a flow; 0: there has been none.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Keeps changes of flows from now on, or no more.
    pub fn watch(&mut self, is_wanted: bool) {
        match (is_wanted, &self.changes) {
            (true, None) => self.changes = Some(Vec::new()),
            (true, Some(_)) => {}
            (false, _) => self.changes = None,
        }
    }

    /// What has changed since the last call, while that is watched.
    pub fn take_changes(&mut self) -> Vec<FlowChange> {
        self.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// At most `limit` flows with a change after the one of number `since`, from number `from` on, and the number of the next one.
    pub fn changed(
        &self,
        since: u64,
        from: usize,
        limit: usize,
    ) -> (Vec<Arc<Flow>>, Option<usize>) {
        let mut page = Vec::new();
        for flow in self.flows.iter().skip(from).flatten().filter(|flow| flow.changed > since) {
            if page.len() == limit {
                return (page, Some(flow.id as usize));
            }
            page.push(flow.clone());
        }
        (page, None)
    }

    /// Whether packets that come in the same order may get other answers from several workers: meters measure all of them, and idle
    /// timeouts end with the last one.
    pub fn depends_on_order(&self) -> bool {
        !self.meters.is_empty() || !self.deadlines.is_empty()
    }

    /// The seed of the tables' hashes.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

fn algorithm_of(name: &str) -> &'static Algorithm {
    let known = find(name).filter(|algorithm| algorithm.any_fields);
    known.or_else(|| find(AUTO)).expect("`auto` is an algorithm")
}

/// Groups that the actions of a bucket lead to.
pub(crate) fn groups_of(actions: &[Action]) -> impl Iterator<Item = u32> + '_ {
    actions.iter().filter_map(|action| match action {
        Action::Group(group) => Some(*group),
        _ => None,
    })
}
