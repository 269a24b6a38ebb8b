//! One version of the tables, as packets see it.
//!
//! ```text
//! table ─┬─ exact flows: a hash table over the whole key          ─┐
//!        └─ others: a classifier over the words that they look at ─┴▶ number of the flow ─▶ Flow
//! ```
//!
//! Control makes patches ([`crate::control`]); [`lookup::versions`] applies them to two copies in turn. Flows, groups and meters are
//! shared by both copies and by control: they do not change, but for their counters.
//!
//! Threads: read-only for workers.

use std::sync::Arc;

use classify::{Classify, Match as Found, Tables as Classes};
use lookup::versions::Patchable;
use openflow::PortNo;

use crate::exact::{self, ExactTable};
use crate::flow::{Flow, Group, Port};
use crate::key::Key;
use crate::meter::Meter;

/// Packets that are looked up at once.
pub const BATCH: usize = 256;

/// A change of the tables.
#[derive(Debug)]
pub enum FlowPatch {
    /// Another set of tables, all empty, with these settings.
    Begin(Settings, u64),
    /// A flow under its number, or none.
    Flow(u32, Option<Arc<Flow>>),
    /// An exact flow of a table: added, or taken away.
    Exact(u8, Arc<Flow>, bool),
    /// Another classifier for a table, and the words of the key that it looks at; `None`: no wildcard flow.
    Classifier(u8, Option<(Vec<u8>, Classes)>),
    /// A change of that classifier.
    Classes(u8, lookup::Patch),
    /// A group, or none.
    Group(u32, Option<Arc<Group>>),
    /// A meter, or none.
    Meter(u32, Option<Arc<Meter>>),
    /// A port, or none under this number.
    Port(PortNo, Option<Port>),
    /// Other settings.
    Settings(Settings),
    /// Whether all packets go to NORMAL, whatever flows say.
    Standalone(bool),
}

/// What does not change with flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Tables, 1 to 254.
    pub tables: u8,
    /// An exact flow wins over every other one (OpenFlow 1.0).
    pub exact_wins: bool,
    /// A packet that no flow takes goes to the controller with so many bytes (OpenFlow 1.0); `None`: it is dropped (1.3).
    pub miss_len: Option<u16>,
}

impl Settings {
    /// 1.3 with so many tables.
    pub const fn of_13(tables: u8) -> Self {
        Self { tables, exact_wins: false, miss_len: None }
    }

    /// 1.0: one table, packets that no flow takes go to the controller.
    pub const fn of_10(miss_len: u16) -> Self {
        Self { tables: 1, exact_wins: true, miss_len: Some(miss_len) }
    }
}

/// One table.
#[derive(Debug, Clone)]
struct Table {
    exact: ExactTable,
    /// The words of a key that the classifier's header is made of.
    words: Vec<u8>,
    classes: Option<Classes>,
}

/// One version of everything.
#[derive(Debug, Clone)]
pub struct FlowTables {
    settings: Settings,
    tables: Vec<Table>,
    flows: Vec<Option<Arc<Flow>>>,
    /// By number.
    groups: Vec<(u32, Arc<Group>)>,
    meters: Vec<(u32, Arc<Meter>)>,
    ports: Vec<Port>,
    is_standalone: bool,
}

impl FlowTables {
    /// Empty tables. `seed`: of their hashes, unknown to senders.
    pub fn new(settings: Settings, seed: u64) -> Self {
        let table = Table { exact: ExactTable::new(seed), words: Vec::new(), classes: None };
        let tables = vec![table; settings.tables.into()];
        let (flows, groups, meters, ports) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { settings, tables, flows, groups, meters, ports, is_standalone: false }
    }

    /// All packets go to NORMAL, whatever flows say: no controller can be reached.
    #[inline]
    pub fn is_standalone(&self) -> bool {
        self.is_standalone
    }

    /// The settings.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// The flow of a number.
    #[inline]
    pub fn flow(&self, id: u32) -> Option<&Flow> {
        self.flows.get(id as usize)?.as_deref()
    }

    /// All flows.
    pub fn flows(&self) -> impl Iterator<Item = &Arc<Flow>> {
        self.flows.iter().flatten()
    }

    /// The group of a number.
    pub fn group(&self, number: u32) -> Option<&Group> {
        let at = self.groups.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&self.groups[at].1)
    }

    /// The meter of a number.
    pub fn meter(&self, number: u32) -> Option<&Meter> {
        let at = self.meters.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&self.meters[at].1)
    }

    /// The ports, by number.
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// The port of a number.
    pub fn port(&self, number: PortNo) -> Option<&Port> {
        let at = self.ports.binary_search_by_key(&number, |port| port.number).ok()?;
        Some(&self.ports[at])
    }

    /// Memory of one copy, bytes, without what copies share.
    pub fn len_bytes(&self) -> usize {
        let tables = self.tables.iter().map(|table| {
            table.exact.len_bytes() + table.classes.as_ref().map_or(0, |own| own.blob().len_bytes())
        });
        tables.sum::<usize>() + self.flows.len() * size_of::<Option<Arc<Flow>>>()
    }

    /// Whether the order of all packets matters: meters measure them together.
    pub fn has_meters(&self) -> bool {
        !self.meters.is_empty()
    }

    /// Looks up `out.len()` keys in a table: writes the number of the flow that takes each, or `None`. Of flows of one priority
    /// that with the lower number is taken. `headers` is a buffer.
    pub fn look_up<'k>(
        &self,
        table: u8,
        key: impl Fn(usize) -> &'k Key,
        headers: &mut Vec<u32>,
        out: &mut [Option<u32>],
    ) {
        let Some(table) = self.tables.get(usize::from(table)) else {
            out.fill(None);
            return;
        };
        let mut first = 0;
        for out in out.chunks_mut(BATCH) {
            let mut found = [Found::NONE; BATCH];
            let found = &mut found[..out.len()];
            let keys = || (first..first + out.len()).map(&key);
            if let Some(classes) = &table.classes {
                let width = classes.words();
                headers.clear();
                for key in keys() {
                    headers.extend(table.words.iter().map(|word| key.0[usize::from(*word)]));
                    headers.resize(headers.len() + width - table.words.len(), 0);
                }
                classes.classify(headers, found);
            }
            for ((out, found), at) in out.iter_mut().zip(found).zip(first..) {
                let key = key(at);
                *out = match self.exact(table, key) {
                    Some(flow) if self.settings.exact_wins => Some(flow.id),
                    Some(flow) => Found::new(rank(flow.priority), flow.id).min(*found).id(),
                    None => found.id(),
                };
            }
            first += BATCH;
        }
    }

    fn exact(&self, table: &Table, key: &Key) -> Option<&Flow> {
        if table.exact.is_empty() {
            return None;
        }
        let key = key.and(exact::shape(key));
        let id = table
            .exact
            .get(&key, |id| self.flow(id).is_some_and(|flow| flow.words.value == key))?;
        self.flow(id)
    }
}

/// Priorities of OpenFlow are better the higher they are, those of classifiers the lower.
pub(crate) fn rank(priority: u16) -> u32 {
    u32::from(u16::MAX - priority)
}

fn put<T>(list: &mut Vec<(u32, Arc<T>)>, number: u32, entry: Option<&Arc<T>>) {
    let place = list.binary_search_by_key(&number, |(number, _)| *number);
    match (place, entry) {
        (Ok(at), Some(entry)) => list[at].1 = entry.clone(),
        (Ok(at), None) => drop(list.remove(at)),
        (Err(at), Some(entry)) => list.insert(at, (number, entry.clone())),
        (Err(_), None) => {}
    }
}

impl Patchable for FlowTables {
    type Patch = FlowPatch;

    fn apply(&mut self, patch: &FlowPatch) {
        match patch {
            FlowPatch::Begin(settings, seed) => {
                let (ports, is_standalone) = (std::mem::take(&mut self.ports), self.is_standalone);
                *self = Self { ports, is_standalone, ..Self::new(*settings, *seed) };
            }
            FlowPatch::Flow(id, flow) => {
                let id = *id as usize;
                if self.flows.len() <= id {
                    self.flows.resize(id + 1, None);
                }
                self.flows[id].clone_from(flow);
            }
            FlowPatch::Exact(table, flow, is_there) => {
                let Some(table) = self.tables.get_mut(usize::from(*table)) else { return };
                let (key, flows) = (&flow.words.value, &self.flows);
                match is_there {
                    true => table.exact.insert(key, flow.id, |id| {
                        flows
                            .get(id as usize)
                            .and_then(Option::as_ref)
                            .map_or_else(Key::default, |flow| flow.words.value)
                    }),
                    false => table.exact.remove(key, flow.id),
                }
            }
            FlowPatch::Classifier(table, classes) => {
                let Some(table) = self.tables.get_mut(usize::from(*table)) else { return };
                (table.words, table.classes) = match classes {
                    Some((words, classes)) => (words.clone(), Some(classes.clone())),
                    None => (Vec::new(), None),
                };
            }
            FlowPatch::Classes(table, patch) => {
                let classes = self.tables.get_mut(usize::from(*table));
                if let Some(classes) = classes.and_then(|table| table.classes.as_mut()) {
                    classes.apply(patch);
                }
            }
            FlowPatch::Group(number, group) => put(&mut self.groups, *number, group.as_ref()),
            FlowPatch::Meter(number, meter) => put(&mut self.meters, *number, meter.as_ref()),
            FlowPatch::Port(number, port) => {
                let place = self.ports.binary_search_by_key(number, |port| port.number);
                match (place, port) {
                    (Ok(at), Some(port)) => self.ports[at] = *port,
                    (Ok(at), None) => drop(self.ports.remove(at)),
                    (Err(at), Some(port)) => self.ports.insert(at, *port),
                    (Err(_), None) => {}
                }
            }
            FlowPatch::Settings(settings) => self.settings = *settings,
            FlowPatch::Standalone(is_standalone) => self.is_standalone = *is_standalone,
        }
    }
}
