//! Control's side: what controllers change, checked, and handed to packets as patches.
//!
//! Requests change what control knows at once. [`FlowControl::take_patches`] makes the patches of everything that has changed since
//! the last call: what is applied together becomes one version, which a packet sees all of or nothing. A list of requests that
//! belong together (a bundle) is [`FlowControl::all_or_nothing`].
//!
//! Threads: belongs to control.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use classify::algorithms::{Algorithm, find};
use openflow::flow::{
    ALL_TABLES, ANY_GROUP, AggregateStats, FlowFilter, FlowRemoved, FlowStats, RemovedReason,
};
use openflow::{Action, ErrorCode, Field, FlowCommand, FlowFlags, FlowMod, Match, PortNo, Version};

use crate::check::Known;
use crate::exact;
use crate::flow::{Flow, Group, Port, Steps};
use crate::key::Words;
use crate::meter::Meter;
use crate::publish::{AUTO, Published};
use crate::tables::{FlowPatch, FlowTables, Settings};

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
    /// When flows may have to leave, nanoseconds since 1970, and their numbers.
    deadlines: BinaryHeap<Reverse<(u64, u32)>>,
    /// While a list of requests is carried out: what flows, groups and meters were before.
    undo: Option<Vec<Undo>>,
    seed: u64,
    /// When time begins, nanoseconds since 1970: flows that were there before have come then.
    epoch_ns: u64,
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
            len: 0,
            table_len: vec![0; settings.tables.into()],
            groups: BTreeMap::new(),
            meters: BTreeMap::new(),
            ports: BTreeMap::new(),
            queues: BTreeSet::new(),
            published: Published::new(settings.tables, algorithm),
            patches: Vec::new(),
            removed: Vec::new(),
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
        let tables = self.settings.tables;
        self.settings = Settings { tables, ..settings };
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
            self.table_len[usize::from(old.table)] -= 1;
            self.len -= 1;
        }
        match &flow {
            Some(flow) => {
                self.by_identity.insert((flow.table, flow.words, flow.priority), id);
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

    fn change(&mut self, id: u32, flow: Option<Arc<Flow>>) {
        self.remember(|own| Undo::Flow(id, own.flows.get(id as usize).and_then(Clone::clone)));
        self.put(id, flow);
    }

    /// FLOW_MOD. `now_ns`: nanoseconds since 1970.
    ///
    /// # Errors
    /// What the specification of `version` says of a request that cannot be carried out; nothing has changed then.
    pub fn flow_mod(
        &mut self,
        request: &FlowMod,
        version: Version,
        now_ns: u64,
    ) -> Result<(), ErrorCode> {
        let is_delete = matches!(request.command, FlowCommand::Delete | FlowCommand::DeleteStrict);
        let is_of_all = request.table == ALL_TABLES && is_delete;
        if request.table >= self.settings.tables && !is_of_all {
            return Err(ErrorCode::FlowModTableId);
        }
        let target = Target::of(request, version, now_ns)?;
        match request.command {
            FlowCommand::Add => self.add(request, &target),
            FlowCommand::Modify | FlowCommand::ModifyStrict => self.modify(request, &target),
            FlowCommand::Delete | FlowCommand::DeleteStrict => {
                let found = self.found(request, &target);
                found.into_iter().for_each(|id| self.leave(id, RemovedReason::Delete, now_ns));
                Ok(())
            }
        }
    }

    /// What no two flows have the same of.
    pub(crate) fn identity(
        &self,
        request: &FlowMod,
        version: Version,
    ) -> Result<Identity, ErrorCode> {
        if request.table >= self.settings.tables {
            return Err(ErrorCode::FlowModTableId);
        }
        let target = Target::of(request, version, 0)?;
        Ok((request.table, target.words, target.priority))
    }

    /// The flow of an identity.
    pub(crate) fn flow_of(&self, identity: &Identity) -> Option<&Arc<Flow>> {
        self.flows[*self.by_identity.get(identity)? as usize].as_ref()
    }

    pub(crate) fn check_request(
        &self,
        request: &FlowMod,
        version: Version,
    ) -> Result<(), ErrorCode> {
        self.check(request, &Target::of(request, version, 0)?)
    }

    fn check(&self, request: &FlowMod, target: &Target) -> Result<(), ErrorCode> {
        let known = Known {
            tables: self.settings.tables,
            group: &|group| self.groups.contains_key(&group),
            meter: &|meter| self.meters.contains_key(&meter),
            queue: &|port, queue| self.has_queue(port, queue),
            local: self.port(PortNo::LOCAL).is_some(),
            version: target.version,
        };
        known.instructions(request.table, &target.matches, &request.instructions)
    }

    /// Actions of a PACKET_OUT, which alone may send to TABLE.
    ///
    /// # Errors
    /// As [`FlowControl::flow_mod`].
    pub fn check_packet_out(&self, actions: &[Action]) -> Result<(), ErrorCode> {
        let is_table =
            |action: &&Action| matches!(action, Action::Output { port: PortNo::TABLE, .. });
        let others: Vec<Action> =
            actions.iter().filter(|action| !is_table(action)).cloned().collect();
        self.check_actions(&others)
    }

    /// Actions of a bucket, of packets that nothing is known of.
    ///
    /// # Errors
    /// As [`FlowControl::flow_mod`].
    pub(crate) fn check_actions(&self, actions: &[Action]) -> Result<(), ErrorCode> {
        let known = Known {
            tables: self.settings.tables,
            group: &|group| self.groups.contains_key(&group),
            meter: &|_| false,
            queue: &|port, queue| self.has_queue(port, queue),
            local: self.port(PortNo::LOCAL).is_some(),
            version: Version::V10,
        };
        known.actions(actions, &mut Match::new())
    }

    fn add(&mut self, request: &FlowMod, target: &Target) -> Result<(), ErrorCode> {
        self.check(request, target)?;
        let identity = (request.table, target.words, target.priority);
        if request.flags.contains(FlowFlags::CHECK_OVERLAP) {
            let mut others = self
                .flows()
                .filter(|flow| flow.table == request.table && flow.priority == target.priority);
            if others.any(|flow| flow.words.overlaps(&target.words)) {
                return Err(ErrorCode::FlowModOverlap);
            }
        }
        let old = self.by_identity.get(&identity).copied();
        if old.is_none() && self.len >= self.flows_max {
            return Err(ErrorCode::FlowModTableFull);
        }
        let resets =
            target.version == Version::V10 || request.flags.contains(FlowFlags::RESET_COUNTS);
        let kept =
            old.and_then(|id| self.flows[id as usize].as_ref()).map(|flow| flow.counters.clone());
        let counters = kept.filter(|_| !resets).unwrap_or_default();
        let id = old.unwrap_or_else(|| self.next_id());
        let flow = Arc::new(Flow {
            id,
            table: request.table,
            priority: target.priority,
            matches: target.matches.clone(),
            words: target.words,
            instructions: request.instructions.clone(),
            steps: Steps::of(&request.instructions),
            cookie: request.cookie,
            idle_timeout: request.idle_timeout,
            hard_timeout: request.hard_timeout,
            flags: request.flags,
            created_ns: target.now_ns,
            counters,
        });
        if let Some(deadline) = deadline(&flow, self.epoch_ns) {
            self.deadlines.push(Reverse((deadline, id)));
        }
        self.change(id, Some(flow));
        // Flows that came again, or are gone, leave their entries behind.
        if self.deadlines.len() > 2 * self.len + 64 {
            self.collect_deadlines();
        }
        Ok(())
    }

    fn modify(&mut self, request: &FlowMod, target: &Target) -> Result<(), ErrorCode> {
        self.check(request, target)?;
        let found = self.found(request, target);
        if found.is_empty() && target.version == Version::V10 {
            return self.add(request, target);
        }
        for id in found {
            let Some(old) = self.flows[id as usize].clone() else { continue };
            let resets = request.flags.contains(FlowFlags::RESET_COUNTS);
            let counters = if resets { Arc::default() } else { old.counters.clone() };
            let is_10 = target.version == Version::V10;
            let flow = Flow {
                id,
                table: old.table,
                priority: old.priority,
                matches: old.matches.clone(),
                words: old.words,
                instructions: request.instructions.clone(),
                steps: Steps::of(&request.instructions),
                cookie: if is_10 { request.cookie } else { old.cookie },
                idle_timeout: old.idle_timeout,
                hard_timeout: old.hard_timeout,
                flags: old.flags,
                created_ns: old.created_ns,
                counters,
            };
            self.change(id, Some(Arc::new(flow)));
        }
        Ok(())
    }

    /// Numbers of the flows that a modify or delete is about.
    fn found(&self, request: &FlowMod, target: &Target) -> Vec<u32> {
        let filter = FlowFilter {
            table: request.table,
            out_port: request.out_port,
            out_group: request.out_group,
            cookie: request.cookie,
            cookie_mask: if target.version == Version::V10 { 0 } else { request.cookie_mask },
            matches: target.matches.clone(),
        };
        let is_delete = matches!(request.command, FlowCommand::Delete | FlowCommand::DeleteStrict);
        let passes = |flow: &Flow| {
            let is_cookie = (flow.cookie ^ filter.cookie) & filter.cookie_mask == 0;
            let is_to = !is_delete || goes_to(&flow.steps, filter.out_port, filter.out_group);
            is_cookie && is_to
        };
        let is_strict =
            matches!(request.command, FlowCommand::ModifyStrict | FlowCommand::DeleteStrict);
        if !is_strict {
            let within = |flow: &&Arc<Flow>| is_within(flow, &filter, &target.words);
            let found = self.flows().filter(within).filter(|flow| passes(flow));
            return found.map(|flow| flow.id).collect();
        }
        let tables = match request.table {
            ALL_TABLES => 0..self.settings.tables,
            table => table..table + 1,
        };
        let found = tables.filter_map(|table| {
            let id = self.by_identity.get(&(table, target.words, target.priority))?;
            self.flows[*id as usize].as_ref().filter(|flow| passes(flow)).map(|flow| flow.id)
        });
        found.collect()
    }

    /// A flow leaves.
    pub(crate) fn leave(&mut self, id: u32, reason: RemovedReason, now_ns: u64) {
        let Some(flow) = self.flows.get(id as usize).and_then(Clone::clone) else { return };
        if flow.flags.contains(FlowFlags::SEND_FLOW_REM) {
            let (packets, bytes) = flow.counters.get();
            self.removed.push(FlowRemoved {
                cookie: flow.cookie,
                priority: flow.priority,
                reason,
                table: flow.table,
                duration: Duration::from_nanos(
                    now_ns.saturating_sub(flow.created_ns.max(self.epoch_ns)),
                ),
                idle_timeout: flow.idle_timeout,
                hard_timeout: flow.hard_timeout,
                packets,
                bytes,
                matches: flow.matches.clone(),
            });
        }
        self.change(id, None);
    }

    /// Flows that use something that is gone leave.
    pub(crate) fn leave_if(&mut self, uses: impl Fn(&Steps) -> bool, now_ns: u64) {
        let ids: Vec<u32> =
            self.flows().filter(|flow| uses(&flow.steps)).map(|flow| flow.id).collect();
        ids.into_iter().for_each(|id| self.leave(id, RemovedReason::GroupDelete, now_ns));
    }

    /// Lets the flows leave whose time is over; how many did.
    pub fn expire(&mut self, now_ns: u64) -> usize {
        let mut left = 0;
        while let Some(Reverse((at, id))) = self.deadlines.peek().copied() {
            if at > now_ns {
                break;
            }
            self.deadlines.pop();
            let Some(flow) = self.flows.get(id as usize).and_then(Option::as_ref) else { continue };
            match deadline(flow, self.epoch_ns) {
                Some(later) if later > now_ns => self.deadlines.push(Reverse((later, id))),
                Some(_) => {
                    let hard = hard_end(flow, self.epoch_ns).is_some_and(|end| end <= now_ns);
                    let reason =
                        if hard { RemovedReason::HardTimeout } else { RemovedReason::IdleTimeout };
                    self.leave(id, reason, now_ns);
                    left += 1;
                }
                None => {}
            }
        }
        left
    }

    /// Time begins: over captures, with the first packet.
    pub fn begin_time(&mut self, epoch_ns: u64) {
        self.epoch_ns = epoch_ns;
        self.collect_deadlines();
    }

    /// One entry for each flow that may leave.
    fn collect_deadlines(&mut self) {
        let flows = self.flows.iter().flatten();
        let deadlines =
            flows.filter_map(|flow| Some(Reverse((deadline(flow, self.epoch_ns)?, flow.id))));
        self.deadlines = deadlines.collect();
    }

    /// When the next flow may have to leave, nanoseconds since 1970.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.peek().map(|Reverse((at, _))| *at)
    }

    /// FLOW statistics.
    ///
    /// # Errors
    /// A match that cannot be.
    pub fn flow_stats(
        &self,
        filter: &FlowFilter,
        version: Version,
        now_ns: u64,
    ) -> Result<Vec<FlowStats>, ErrorCode> {
        self.flow_page(filter, version, now_ns, 0, usize::MAX).map(|(flows, _)| flows)
    }

    /// FLOW statistics of at most `limit` flows, beginning at `from`: 0, or what the page before gave for the next one. A flow
    /// that is there all the time is in exactly one page.
    ///
    /// # Errors
    /// A match that cannot be.
    pub fn flow_page(
        &self,
        filter: &FlowFilter,
        version: Version,
        now_ns: u64,
        from: usize,
        limit: usize,
    ) -> Result<(Vec<FlowStats>, Option<usize>), ErrorCode> {
        let matches = check_match(&filter.matches, version)?;
        let words = Words::of(&matches);
        let mut page = Vec::new();
        for (id, flow) in self.flows.iter().enumerate().skip(from) {
            let Some(flow) = flow else { continue };
            let passes = is_within(flow, filter, &words)
                && (flow.cookie ^ filter.cookie) & filter.cookie_mask == 0
                && goes_to(&flow.steps, filter.out_port, filter.out_group);
            if !passes {
                continue;
            }
            if page.len() == limit {
                return Ok((page, Some(id)));
            }
            let since = now_ns.saturating_sub(flow.created_ns.max(self.epoch_ns));
            page.push(FlowStats { duration: Duration::from_nanos(since), ..flow.stats() });
        }
        Ok((page, None))
    }

    /// AGGREGATE statistics.
    ///
    /// # Errors
    /// A match that cannot be.
    pub fn aggregate(
        &self,
        filter: &FlowFilter,
        version: Version,
    ) -> Result<AggregateStats, ErrorCode> {
        let mut sum = AggregateStats::default();
        for flow in self.flow_stats(filter, version, 0)? {
            sum.packets += flow.packets;
            sum.bytes += flow.bytes;
            sum.flows += 1;
        }
        Ok(sum)
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

/// What a FLOW_MOD is about.
struct Target {
    matches: Match,
    words: Words,
    priority: u16,
    version: Version,
    now_ns: u64,
}

impl Target {
    fn of(request: &FlowMod, version: Version, now_ns: u64) -> Result<Self, ErrorCode> {
        let matches = check_match(&request.matches, version)?;
        let words = Words::of(&matches);
        // An exact flow is above all others in 1.0, whatever its priority.
        let is_first = version == Version::V10 && exact::is_exact(&words);
        let priority = if is_first { u16::MAX } else { request.priority };
        Ok(Self { matches, words, priority, version, now_ns })
    }
}

fn algorithm_of(name: &str) -> &'static Algorithm {
    let known = find(name).filter(|algorithm| algorithm.any_fields);
    known.or_else(|| find(AUTO)).expect("`auto` is an algorithm")
}

/// The match as it counts: in 1.0 fields without their prerequisites are as good as absent.
fn check_match(matches: &Match, version: Version) -> Result<Match, ErrorCode> {
    let mut own = matches.clone();
    if version == Version::V10 {
        // A field that goes may be what another one needs.
        loop {
            let provided = own.fields().iter().filter(|field| own.provides(field.field)).copied();
            let kept: Match = provided.collect();
            if kept.fields().len() == own.fields().len() {
                return Ok(own);
            }
            own = kept;
        }
    }
    own.check()?;
    let is_wrong = |field: &openflow::FieldMatch| !field.field.is_maskable() && !field.is_exact();
    if own.fields().iter().any(is_wrong) {
        return Err(ErrorCode::BadMatchMask);
    }
    if own
        .get(Field::VlanVid)
        .is_some_and(|field| field.value & 0xfff != 0 && field.value & !field.mask != 0)
    {
        return Err(ErrorCode::BadMatchValue);
    }
    Ok(own)
}

/// A flow of the tables and within the match of a filter; `words` is of that match.
fn is_within(flow: &Flow, filter: &FlowFilter, words: &Words) -> bool {
    (filter.table == ALL_TABLES || filter.table == flow.table)
        && flow.words.is_within(words)
        && has_fields(&flow.matches, &filter.matches)
}

/// Fields share places in words; within a match they have to be the same fields.
fn has_fields(matches: &Match, filter: &Match) -> bool {
    filter.fields().iter().all(|field| matches.get(field.field).is_some())
}

/// Whether some action sends to a port and some to a group, where these are asked for.
fn goes_to(steps: &Steps, port: PortNo, group: u32) -> bool {
    let actions = || steps.apply.iter().chain(&steps.write);
    let to_port = |action: &Action| match action {
        Action::Output { port: to, .. } | Action::Enqueue { port: to, .. } => *to == port,
        _ => false,
    };
    (port == PortNo::ANY || actions().any(to_port))
        && (group == ANY_GROUP || uses_group(steps, group))
}

/// Whether a flow leads to a group.
pub(crate) fn uses_group(steps: &Steps, group: u32) -> bool {
    steps.apply.iter().chain(&steps.write).any(|action| *action == Action::Group(group))
}

fn hard_end(flow: &Flow, epoch_ns: u64) -> Option<u64> {
    let seconds = u64::from(flow.hard_timeout);
    (seconds > 0).then(|| flow.created_ns.max(epoch_ns) + seconds * 1_000_000_000)
}

/// When a flow leaves unless a packet comes.
fn deadline(flow: &Flow, epoch_ns: u64) -> Option<u64> {
    let used = flow.counters.used_ns.load(std::sync::atomic::Ordering::Relaxed);
    let seconds = u64::from(flow.idle_timeout);
    let idle =
        (seconds > 0).then(|| used.max(flow.created_ns).max(epoch_ns) + seconds * 1_000_000_000);
    match (idle, hard_end(flow, epoch_ns)) {
        (Some(idle), Some(hard)) => Some(idle.min(hard)),
        (one, other) => one.or(other),
    }
}

/// Groups that the actions of a bucket lead to.
pub(crate) fn groups_of(actions: &[Action]) -> impl Iterator<Item = u32> + '_ {
    actions.iter().filter_map(|action| match action {
        Action::Group(group) => Some(*group),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A million requests that leave as many flows as there were leave as much memory.
    #[test]
    fn flows_that_come_again_leave_nothing_behind() {
        let (mut control, _) = FlowControl::new(Settings::of_13(1), 10, "linear");
        let mut flow = FlowMod::new(FlowCommand::Add);
        (flow.idle_timeout, flow.hard_timeout) = (10, u16::MAX);
        let delete = FlowMod::new(FlowCommand::Delete);
        let wrong = FlowMod { table: 9, ..flow.clone() };
        for n in 0..2000 {
            control.flow_mod(&flow, Version::V13, n).unwrap();
            let bundle = control.all_or_nothing(|control| {
                control.flow_mod(&delete, Version::V13, n)?;
                control.flow_mod(&wrong, Version::V13, n)
            });
            assert_eq!(bundle, Err(ErrorCode::FlowModTableId));
            assert_eq!(control.len(), 1);
        }
        assert!(control.deadlines.len() < 100, "{} deadlines", control.deadlines.len());
        assert!(control.free.len() < 2, "{} free numbers", control.free.len());
        // It still leaves in time.
        assert_eq!(control.expire(5_000_000_000), 0);
        assert_eq!(control.expire(20_000_000_000), 1);
    }
}
