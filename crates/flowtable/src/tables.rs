//! One version of the tables, as packets see it.
//!
//! ```text
//! table ─┬─ exact flows: a hash table over the whole key          ─┐
//!        └─ others: what all ask for alike ─▶ a classifier over   ─┴▶ number of the flow ─▶ Flow
//!                   the other words that they look at
//! ```
//!
//! Control makes patches ([`crate::control`]); [`lookup::versions`] applies them to two copies in turn. Flows, groups and meters are
//! shared by both copies and by control: they do not change, but for their counters.
//!
//! Threads: read-only for workers.

use std::sync::Arc;

use classify::schema::WIDTHS;
use classify::{Classify, Match as Found, Tables as Classes};
use interleave::prefetch;
use lookup::versions::Patchable;
use openflow::{Action, PortNo};

use crate::device::{ExactSlots, Searched, region};
use crate::exact::{ExactKey, ExactTable, exact_key};
use crate::flow::{Counters, Flow, Group, Port};
use crate::key::{Key, WORDS};
use crate::meter::Meter;

/// Packets that are looked up at once.
pub const BATCH: usize = 256;

/// Ports with lower numbers are found by them.
const NEAR_PORTS: u32 = 4096;

/// Packets that go through the steps of a lookup together: as many as a near cache has room for.
const GROUP: usize = 64;

/// A change of the tables.
#[derive(Debug)]
pub enum FlowPatch {
    /// Another set of tables, all empty, with these settings.
    Begin(Settings, u64),
    /// A flow under its number, or none.
    Flow(u32, Option<Arc<Flow>>),
    /// An exact flow of a table: added, or taken away.
    Exact(u8, Arc<Flow>, bool),
    /// Another search of a table's wildcard flows; `None`: there is none.
    Classifier(u8, Option<Wildcards>),
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
    /// A change of a region that only a device has ([`crate::device`]).
    Device(usize, lookup::Patch),
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
    /// There are regions for a device, too.
    pub device: bool,
}

impl Settings {
    /// 1.3 with so many tables.
    pub const fn of_13(tables: u8) -> Self {
        Self { tables, exact_wins: false, miss_len: None, device: false }
    }

    /// 1.0: one table, packets that no flow takes go to the controller.
    pub const fn of_10(miss_len: u16) -> Self {
        Self { tables: 1, exact_wins: true, miss_len: Some(miss_len), device: false }
    }
}

/// How the wildcard flows of a table are searched.
#[derive(Debug, Clone)]
pub struct Wildcards {
    /// What all of them ask for alike: the words of a key that the classifier need not look at.
    pub common: Vec<Common>,
    /// The words of a key that the classifier's header is made of.
    pub words: Vec<u8>,
    /// The classifier.
    pub classes: Classes,
}

/// A word of a key as all wildcard flows of a table ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Common {
    /// Its number.
    pub word: u8,
    /// The bits that count.
    pub mask: u32,
    /// Their values.
    pub value: u32,
}

impl Wildcards {
    /// Whether a key has what all flows ask for.
    #[inline]
    fn may_take(&self, key: &Key) -> bool {
        let differs = |all: u32, own: &Common| {
            all | (key.0[usize::from(own.word) % WORDS] ^ own.value) & own.mask
        };
        self.common.iter().fold(0, differs) == 0
    }
}

/// Words of a header that is made of so many words of a key.
pub(crate) fn width(words: usize) -> usize {
    WIDTHS.into_iter().find(|width| *width >= words).unwrap_or(WORDS)
}

/// One table.
#[derive(Debug, Clone)]
struct Table {
    exact: ExactTable,
    wildcards: Option<Wildcards>,
}

/// What most packets need of their flow, on one line of the cache.
#[derive(Debug, Clone, Default)]
#[repr(align(64))]
struct Record {
    /// The key of an exact flow.
    key: ExactKey,
    /// The port where packets go, if that is all that the flow does; 0: see the flow.
    output: u32,
    counters: Option<Arc<Counters>>,
    flow: Option<Arc<Flow>>,
}

const _: () = assert!(size_of::<Record>() == 64);

impl Record {
    fn of(flow: &Arc<Flow>) -> Self {
        let output = match (&*flow.steps.apply, &flow.steps) {
            ([Action::Output { port, .. }], steps)
                if port.is_ordinary()
                    && steps.meter.is_none()
                    && steps.write.is_empty()
                    && steps.metadata.is_none()
                    && steps.goto.is_none() =>
            {
                port.0
            }
            _ => 0,
        };
        Self {
            key: exact_key(&flow.words.value),
            output,
            counters: Some(flow.counters.clone()),
            flow: Some(flow.clone()),
        }
    }
}

/// A flow whose packets all leave by one port, and that does nothing else.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Direct<'a> {
    pub(crate) port: PortNo,
    pub(crate) counters: &'a Counters,
}

/// One version of everything.
#[derive(Debug, Clone)]
pub struct FlowTables {
    settings: Settings,
    tables: Vec<Table>,
    records: Vec<Record>,
    /// By number.
    groups: Vec<(u32, Arc<Group>)>,
    meters: Vec<(u32, Arc<Meter>)>,
    ports: Vec<Port>,
    /// By number, of ports with low ones: whether they are there and send.
    sending: Vec<bool>,
    is_standalone: bool,
    /// For a device: its table of exact flows.
    device: Option<ExactSlots>,
}

impl FlowTables {
    /// Empty tables. `seed`: of their hashes, unknown to senders.
    pub fn new(settings: Settings, seed: u64) -> Self {
        let table = Table { exact: ExactTable::new(seed), wildcards: None };
        let tables = vec![table; settings.tables.into()];
        let (records, groups, meters, ports) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let device = settings.device.then(|| ExactSlots::new(seed));
        let (sending, is_standalone) = (Vec::new(), false);
        Self { settings, tables, records, groups, meters, ports, sending, is_standalone, device }
    }

    /// A device's table of exact flows.
    pub(crate) fn device(&self) -> Option<&ExactSlots> {
        self.device.as_ref()
    }

    /// How the wildcard flows of a table are searched.
    pub(crate) fn classes(&self, table: u8) -> Option<Searched<'_>> {
        let own = self.tables.get(usize::from(table))?.wildcards.as_ref()?;
        Some((&own.words, &own.classes))
    }

    /// Numbers of flows that there have been.
    pub(crate) fn numbers(&self) -> usize {
        self.records.len()
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
        self.records.get(id as usize)?.flow.as_deref()
    }

    /// What the flow of a number does, if it is only to send packets out by a port.
    #[inline]
    pub(crate) fn direct(&self, id: u32) -> Option<Direct<'_>> {
        let record = self.records.get(id as usize).filter(|record| record.output != 0)?;
        Some(Direct { port: PortNo(record.output), counters: record.counters.as_deref()? })
    }

    /// Starts to load what [`FlowTables::direct`] reads.
    #[inline]
    pub(crate) fn prefetch_flow(&self, id: u32) {
        if let Some(record) = self.records.get(id as usize) {
            prefetch(record);
        }
    }

    /// Starts to load the counters of a flow; its record should be there.
    #[inline]
    pub(crate) fn prefetch_counters(&self, id: u32) {
        if let Some(counters) =
            self.records.get(id as usize).and_then(|record| record.counters.as_deref())
        {
            prefetch(counters);
        }
    }

    /// All flows.
    pub fn flows(&self) -> impl Iterator<Item = &Arc<Flow>> {
        self.records.iter().filter_map(|record| record.flow.as_ref())
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

    /// Whether a port is there and sends.
    #[inline]
    pub(crate) fn sends(&self, number: PortNo) -> bool {
        match self.sending.get(number.0 as usize) {
            Some(sends) => *sends,
            None => self.port(number).is_some_and(Port::sends),
        }
    }

    /// Memory of one copy, bytes, without what copies share.
    pub fn len_bytes(&self) -> usize {
        let tables = self.tables.iter().map(|table| {
            table.exact.len_bytes()
                + table.wildcards.as_ref().map_or(0, |own| own.classes.blob().len_bytes())
        });
        let device = self.device.as_ref().map_or(0, ExactSlots::len_bytes);
        tables.sum::<usize>() + device + self.records.len() * size_of::<Record>()
    }

    /// Whether the order of all packets matters: meters measure them together.
    pub fn has_meters(&self) -> bool {
        !self.meters.is_empty()
    }

    /// Looks up `out.len()` keys in a table: writes the number of the flow that takes each, or `None`. Of flows of one priority
    /// that with the lower number is taken. `headers` is a buffer.
    ///
    /// Exact flows are searched in groups: the slots of all keys are on their way to the cache before the first is read, and so
    /// are the records that slots name. Where an exact flow wins anyway, its packets are not classified.
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
        for out in out.chunks_mut(GROUP) {
            out.fill(None);
            if !table.exact.is_empty() {
                self.look_up_exact(table, |at| key(first + at), out);
            }
            if let Some(wildcards) = &table.wildcards {
                self.look_up_wildcards(wildcards, |at| key(first + at), headers, out);
            }
            first += GROUP;
        }
    }

    /// Finds the wildcard flows of those keys for which `out` has no flow that wins anyway.
    #[inline]
    fn look_up_wildcards<'k>(
        &self,
        wildcards: &Wildcards,
        key: impl Fn(usize) -> &'k Key,
        headers: &mut Vec<u32>,
        out: &mut [Option<u32>],
    ) {
        let Wildcards { words, classes, .. } = wildcards;
        let exact_wins = self.settings.exact_wins;
        let (mut rows, mut len) = ([0_u8; GROUP], 0);
        for (at, out) in out.iter().enumerate() {
            rows[len] = at as u8;
            // No branch: which keys they are nobody can guess.
            len += usize::from(!(exact_wins && out.is_some()) & wildcards.may_take(key(at)));
        }
        let rows = &rows[..len];
        let width = width(words.len());
        headers.resize(len * width, 0);
        for (header, row) in headers.chunks_exact_mut(width).zip(rows) {
            let (key, (header, rest)) = (key((*row).into()), header.split_at_mut(words.len()));
            for (at, word) in words.iter().enumerate() {
                header[at] = key.0[usize::from(*word) % WORDS];
            }
            rest.fill(0);
        }
        let mut found = [Found::NONE; GROUP];
        classes.classify(headers, &mut found[..len]);
        for (row, found) in rows.iter().zip(found) {
            let out = &mut out[usize::from(*row)];
            *out = match out.and_then(|id| self.flow(id)) {
                Some(flow) => Found::new(rank(flow.priority), flow.id).min(found).id(),
                None => found.id(),
            };
        }
    }

    #[inline]
    fn look_up_exact<'k>(
        &self,
        table: &Table,
        key: impl Fn(usize) -> &'k Key,
        out: &mut [Option<u32>],
    ) {
        let (mut keys, mut hashes) = ([ExactKey::default(); GROUP], [0; GROUP]);
        let len = out.len().min(GROUP);
        for (at, own) in keys[..len].iter_mut().enumerate() {
            *own = exact_key(key(at));
            hashes[at] = table.exact.hash(own);
        }
        for (out, hash) in out.iter_mut().zip(&hashes) {
            *out = table.exact.candidate(*hash);
            if let Some(id) = *out {
                self.prefetch_flow(id);
            }
        }
        let is_key = |id: u32, key: &ExactKey| {
            self.records.get(id as usize).is_some_and(|record| record.key == *key)
        };
        for ((out, hash), key) in out.iter_mut().zip(hashes).zip(&keys) {
            if out.is_some_and(|id| !is_key(id, key)) {
                *out = table.exact.get(hash, |id| is_key(id, key));
            }
        }
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
                let sending = std::mem::take(&mut self.sending);
                *self = Self { ports, sending, is_standalone, ..Self::new(*settings, *seed) };
            }
            FlowPatch::Flow(id, flow) => {
                let id = *id as usize;
                if self.records.len() <= id {
                    self.records.resize(id + 1, Record::default());
                }
                self.records[id] = flow.as_ref().map(Record::of).unwrap_or_default();
            }
            FlowPatch::Exact(table, flow, is_there) => {
                let Some(table) = self.tables.get_mut(usize::from(*table)) else { return };
                let (key, records) = (exact_key(&flow.words.value), &self.records);
                let key_of = |id: u32| {
                    records.get(id as usize).map_or_else(ExactKey::default, |own| own.key)
                };
                match is_there {
                    true => table.exact.insert(&key, flow.id, key_of),
                    false => table.exact.remove(&key, flow.id),
                }
            }
            FlowPatch::Classifier(table, wildcards) => {
                if let Some(table) = self.tables.get_mut(usize::from(*table)) {
                    table.wildcards.clone_from(wildcards);
                }
            }
            FlowPatch::Classes(table, patch) => {
                let table = self.tables.get_mut(usize::from(*table));
                if let Some(own) = table.and_then(|table| table.wildcards.as_mut()) {
                    own.classes.apply(patch);
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
                if number.0 < NEAR_PORTS {
                    let at = number.0 as usize;
                    self.sending.resize(self.sending.len().max(at + 1), false);
                    self.sending[at] = port.is_some_and(|port| port.sends());
                }
            }
            FlowPatch::Settings(settings) => self.settings = *settings,
            FlowPatch::Device(region, patch) => {
                if let Some(device) = self.device.as_mut().filter(|_| *region == region::EXACT) {
                    device.apply(patch);
                }
            }
            FlowPatch::Standalone(is_standalone) => self.is_standalone = *is_standalone,
        }
    }
}
