//! FLOW_MOD: flows are added, changed and removed, checked (OpenFlow 1.3.5 §6.4).

use std::cmp::Reverse;
use std::sync::Arc;

use openflow::flow::{ALL_TABLES, FlowFilter, RemovedReason};
use openflow::monitor::FlowEvent;
use openflow::{Action, ErrorCode, Field, FlowCommand, FlowFlags, FlowMod, Match, PortNo, Version};

use super::leaving::deadline;
use super::stats::{goes_to, is_within};
use super::{FlowControl, Identity};
use crate::check::Known;
use crate::exact;
use crate::flow::{Flow, Steps};
use crate::key::Words;

impl FlowControl {
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
        // Of 1.0, where it is not said which table: the first one in add, all in modify.
        let is_of_all = request.table == ALL_TABLES && (is_delete || version == Version::V10);
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

    /// How many flows a modify or a delete is about.
    ///
    /// # Errors
    /// The match is not one.
    pub fn matching(&self, request: &FlowMod, version: Version) -> Result<usize, ErrorCode> {
        Ok(self.found(request, &Target::of(request, version, 0)?).len())
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
        known.instructions(first_table(request), &target.matches, &request.instructions)
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
        known.actions(actions, &mut Match::new(), &mut false)
    }

    fn add(&mut self, request: &FlowMod, target: &Target) -> Result<(), ErrorCode> {
        self.check(request, target)?;
        let table = first_table(request);
        let identity = (table, target.words, target.priority);
        if request.flags.contains(FlowFlags::CHECK_OVERLAP) {
            let priority = target.priority;
            let has = |words: &Words| self.by_identity.contains_key(&(table, *words, priority));
            if self.index.overlaps((table, priority), &target.words, has, &self.flows) {
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
        let changed = self.next_change();
        let before = self.flows.get(id as usize).and_then(Option::as_ref);
        let added = before.map_or(changed, |old| old.added);
        let flow = Arc::new(Flow {
            id,
            table,
            priority: target.priority,
            matches: target.matches.clone(),
            words: target.words,
            instructions: request.instructions.clone(),
            steps: Steps::of(&request.instructions),
            cookie: request.new_cookie.unwrap_or(request.cookie),
            idle_timeout: request.idle_timeout,
            hard_timeout: request.hard_timeout,
            flags: request.flags,
            created_ns: target.now_ns,
            added,
            changed,
            counters,
        });
        if let Some(deadline) = deadline(&flow, self.epoch_ns) {
            self.deadlines.push(Reverse((deadline, id)));
        }
        self.change(id, Some(flow), FlowEvent::Added);
        // Flows that came again, or are gone, leave their entries behind.
        if self.deadlines.len() > 2 * self.len + 64 {
            self.collect_deadlines();
        }
        Ok(())
    }

    fn modify(&mut self, request: &FlowMod, target: &Target) -> Result<(), ErrorCode> {
        self.check(request, target)?;
        let found = self.found(request, target);
        if found.is_empty() && target.version == Version::V10 && request.cookie_mask == 0 {
            return self.add(request, target);
        }
        for id in found {
            let Some(old) = self.flows[id as usize].clone() else { continue };
            let resets = request.flags.contains(FlowFlags::RESET_COUNTS);
            let counters = if resets { Arc::default() } else { old.counters.clone() };
            let new_cookie = request.new_cookie.filter(|_| target.version == Version::V10);
            let flow = Flow {
                id,
                table: old.table,
                priority: old.priority,
                matches: old.matches.clone(),
                words: old.words,
                instructions: request.instructions.clone(),
                steps: Steps::of(&request.instructions),
                cookie: new_cookie.unwrap_or(old.cookie),
                idle_timeout: old.idle_timeout,
                hard_timeout: old.hard_timeout,
                flags: old.flags,
                created_ns: old.created_ns,
                added: old.added,
                changed: self.next_change(),
                counters,
            };
            self.change(id, Some(Arc::new(flow)), FlowEvent::Modified);
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
            cookie_mask: request.cookie_mask,
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
}

/// The table that a flow is added to.
fn first_table(request: &FlowMod) -> u8 {
    if request.table == ALL_TABLES { 0 } else { request.table }
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
        // There is no table of flows for emergencies (1.0.0 section 4.6), and no error of its own for that, as in Open vSwitch.
        if request.flags.contains(FlowFlags::EMERG) {
            let has_timeout = request.idle_timeout != 0 || request.hard_timeout != 0;
            return Err(match has_timeout {
                true => ErrorCode::FlowModEmergTimeout,
                false => ErrorCode::FlowModTableFull,
            });
        }
        let matches = check_match(&request.matches, version)?;
        let words = Words::of(&matches);
        // An exact flow is above all others in 1.0, whatever its priority.
        let is_first = version == Version::V10 && exact::is_exact(&words);
        let priority = if is_first { u16::MAX } else { request.priority };
        Ok(Self { matches, words, priority, version, now_ns })
    }
}

/// The match as it counts: in 1.0 fields without their prerequisites are as good as absent.
pub(super) fn check_match(matches: &Match, version: Version) -> Result<Match, ErrorCode> {
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
    // As a reader of flows expects them, whatever the order in which they came.
    Ok(own.in_order())
}
