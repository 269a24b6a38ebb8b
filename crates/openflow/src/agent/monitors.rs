//! Flow monitors of a channel: changes of flows as they happen, and those of a reader that was slow when it has caught up.
//!
//! ```text
//!             request with INITIAL ─▶ pass ─┐          more than out_max waits
//!                                           ├─▶ live ──────────────────────────▶ paused ─▶ pass, when all is read ─▶ live
//!             request without ──────────────┘         PAUSED                                                RESUMED
//! ```
//!
//! Every flow has the numbers of the change that added it and of its last one. A **pass** goes over all flows page by page, as the
//! peer reads, and reports those that have changed after what the monitor has heard of. What changes under way is for the pass
//! behind it; a monitor is *live* when there is nothing of that kind. So nothing is kept for a slow reader but where it is.
//! Flows that leave are reported at once, where the monitor has heard of them, as Open vSwitch does: they cannot be found later.

use std::collections::BTreeMap;

use super::channel::{Channel, Closed};
use super::{Agent, ChannelId, Settings, Switch};
use crate::error::ErrorCode;
use crate::message::{Body, MultipartReply};
use crate::monitor::{FlowEvent, FlowMonitor, FlowUpdate, MonitorFlags};
use crate::wire::Unencodable;

/// Monitors of a channel.
const MONITORS_MAX: usize = 64;
/// Updates of one message, and flows of one page of a pass.
const UPDATES_A_MESSAGE: usize = 128;
/// Bytes that may wait for a reader with flow monitors, of flows that leave above all; above it the channel ends.
const WAITING_MAX: usize = 64 << 20;

impl Channel {
    /// Bytes that the peer may leave unread before the channel ends.
    pub(super) fn unread_max(&self, settings: &Settings) -> usize {
        match self.monitors.all.is_empty() {
            true => 2 * settings.out_max,
            false => WAITING_MAX.max(2 * settings.out_max),
        }
    }
}

/// A change of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowChange {
    /// What happened.
    pub event: FlowEvent,
    /// The flow as it is now, or was at last.
    pub flow: StampedFlow,
    /// Its instructions before, where there were any.
    pub before: Option<Vec<crate::Instruction>>,
}

/// A flow with its place and the numbers of its changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StampedFlow {
    /// Its place: pages of flows are in order of places. No two flows have the same.
    pub place: u64,
    /// The number of the change that added it. A flow that takes the place of one with the same match and priority has its number.
    pub added: u64,
    /// The number of its last change.
    pub changed: u64,
    /// The flow.
    pub flow: crate::flow::FlowStats,
}

#[derive(Debug)]
struct Monitor {
    request: FlowMonitor,
    /// It has heard of all changes up to this number; while the channel is live, of all.
    heard: u64,
    /// It has not yet heard of the flows that were there at first.
    is_new: bool,
}

#[derive(Debug)]
struct Pass {
    /// Of the request that it answers; `None`: it answers none.
    reply: Option<u32>,
    /// Changes up to this number are reported.
    end: u64,
    /// The place that comes next.
    cursor: u64,
    /// It begins when all has been read.
    waits: bool,
    /// PAUSED was sent, and RESUMED is to be.
    is_paused: bool,
}

/// What a channel monitors.
#[derive(Debug, Default)]
pub(super) struct Monitors {
    all: BTreeMap<u32, Monitor>,
    /// `None`: it is live.
    pass: Option<Pass>,
    /// Updates that have not been sent yet.
    updates: Vec<FlowUpdate>,
}

impl Monitors {
    /// A pass is under way or waits.
    pub(super) const fn is_behind(&self) -> bool {
        self.pass.is_some()
    }

    /// What a change is reported with, if it is.
    fn wanted(&self, change: &FlowChange) -> Option<MonitorFlags> {
        let FlowChange { event, flow, before } = change;
        let heard_of = |own: &Monitor| match &self.pass {
            None => true,
            Some(pass) => {
                let is_passed = flow.place < pass.cursor && flow.added <= pass.end;
                let is_deleted = matches!(event, FlowEvent::Deleted(_));
                is_deleted && (flow.added <= own.heard || !pass.waits && is_passed)
            }
        };
        let takes = |own: &&Monitor| {
            own.request.flags.contains(event.flag())
                && heard_of(own)
                && own.request.takes(&flow.flow, before.as_deref())
        };
        let all = self.all.values().filter(takes).map(|own| own.request.flags);
        all.reduce(MonitorFlags::with)
    }
}

impl Agent {
    /// Some channel has a flow monitor: the switch is to say what changes ([`Switch::flow_changes`]).
    pub fn has_monitors(&self) -> bool {
        self.channels.values().any(|channel| !channel.monitors.all.is_empty())
    }

    /// Reports what has changed in the switch. `cause`: the request that has done it.
    pub(super) fn changed(&mut self, switch: &mut dyn Switch, cause: Option<(ChannelId, u32)>) {
        let watching = |own: &&mut Channel| !own.monitors.all.is_empty();
        if !self.has_monitors() {
            return;
        }
        let (channels, settings) = (&mut self.channels, &self.settings);
        // Its own changes are said in short once for each request.
        let mut is_said = false;
        switch.flow_changes(&mut |change| {
            for (id, channel) in channels.iter_mut() {
                let own = cause.filter(|(cause, _)| cause == id).map(|(_, xid)| xid);
                channel.hear(&change, (own, &mut is_said), settings);
            }
        });
        for channel in self.channels.values_mut().filter(watching) {
            channel.send_updates(0, false);
            if channel.outgoing().len() > channel.unread_max(&self.settings) {
                self.counters.dropped_full += 1;
                channel.close(Closed::SlowReader);
            }
        }
    }

    /// Reports what others than the agent have changed in the switch: time-outs, other programs.
    pub fn flow_changes(&mut self, switch: &mut dyn Switch) {
        self.changed(switch, None);
    }

    /// Monitors begin.
    pub(super) fn monitor(
        &mut self,
        id: ChannelId,
        xid: u32,
        requests: Vec<FlowMonitor>,
        switch: &mut dyn Switch,
    ) -> Result<(), ErrorCode> {
        switch.watch_flows(true);
        let now = switch.flow_sequence();
        let Some(channel) = self.channels.get_mut(&id) else { return Ok(()) };
        let all = &mut channel.monitors.all;
        let mut numbers: Vec<u32> = requests.iter().map(|own| own.id).collect();
        numbers.sort_unstable();
        if numbers.windows(2).any(|two| two[0] == two[1])
            || numbers.iter().any(|id| all.contains_key(id))
        {
            return Err(ErrorCode::MonitorExists);
        }
        if all.len() + requests.len() > MONITORS_MAX {
            return Err(ErrorCode::BadRequestMultipartOverflow);
        }
        // All others are live: requests are not read during a pass.
        all.values_mut().for_each(|own| own.heard = now);
        for request in requests {
            let is_new = request.flags.contains(MonitorFlags::INITIAL);
            let heard = if is_new { 0 } else { now };
            all.insert(request.id, Monitor { request, heard, is_new });
        }
        let (reply, end, cursor) = (Some(xid), now, 0);
        channel.monitors.pass = Some(Pass { reply, end, cursor, waits: false, is_paused: false });
        Ok(())
    }

    /// A monitor ends.
    pub(super) fn cancel_monitor(&mut self, id: ChannelId, monitor: u32) -> Result<(), ErrorCode> {
        let channel = self.channels.get_mut(&id);
        let removed = channel.and_then(|channel| channel.monitors.all.remove(&monitor));
        removed.map(|_| ()).ok_or(ErrorCode::MonitorUnknown)
    }

    /// The next page of a pass; `false`: it waits for the reader.
    pub(super) fn pass(&mut self, id: ChannelId, switch: &mut dyn Switch) -> bool {
        let Some(channel) = self.channels.get_mut(&id) else { return false };
        let has_read = channel.outgoing().is_empty();
        let monitors = &mut channel.monitors;
        let Some(mut pass) = monitors.pass.take() else { return false };
        if pass.waits {
            if !has_read {
                monitors.pass = Some(pass);
                return false;
            }
            (pass.waits, pass.end, pass.cursor) = (false, switch.flow_sequence(), 0);
        }
        let heard = monitors.all.values().map(|own| own.heard).min().unwrap_or(u64::MAX);
        let page = switch.changed_flows(heard, pass.cursor, UPDATES_A_MESSAGE);
        for own in page.flows {
            // What came under way is for the pass behind this one.
            if own.added <= pass.end
                && let Some(update) = monitors.listed(own)
            {
                monitors.updates.push(update);
            }
        }
        if let Some(next) = page.next {
            pass.cursor = next;
            let reply = pass.reply;
            monitors.pass = Some(pass);
            if !channel.monitors.updates.is_empty() {
                channel.send_updates(reply.unwrap_or(0), reply.is_some());
            }
            return true;
        }
        for own in monitors.all.values_mut() {
            (own.heard, own.is_new) = (pass.end, false);
        }
        let now = switch.flow_sequence();
        let (is_over, is_paused) = (now == pass.end, pass.is_paused);
        if !is_over {
            let (reply, end, cursor) = (None, now, 0);
            monitors.pass = Some(Pass { reply, end, cursor, waits: false, is_paused });
        }
        match pass.reply {
            // An answer is sent even if it says nothing.
            Some(xid) if monitors.updates.is_empty() => {
                let reply = MultipartReply::FlowMonitor(Vec::new());
                let _ = channel.send(xid, Body::MultipartReply { more: false, reply });
            }
            Some(xid) => channel.send_updates(xid, false),
            None => channel.send_updates(0, false),
        }
        if is_over && is_paused {
            let _ = channel.send(0, Body::FlowMonitorResumed);
        }
        true
    }
}

impl Monitors {
    /// What a pass reports of a flow.
    fn listed(&self, own: StampedFlow) -> Option<FlowUpdate> {
        let mut found: Option<(FlowEvent, MonitorFlags)> = None;
        for monitor in self.all.values() {
            let is_unknown = own.added > monitor.heard;
            let event = if is_unknown { FlowEvent::Added } else { FlowEvent::Modified };
            let is_wanted = monitor.is_new || monitor.request.flags.contains(event.flag());
            if own.changed > monitor.heard && is_wanted && monitor.request.takes(&own.flow, None) {
                let (before, flags) = found.unwrap_or((event, MonitorFlags::empty()));
                let event = if is_unknown { event } else { before };
                found = Some((event, flags | monitor.request.flags));
            }
        }
        found.map(|(event, flags)| update(event, own.flow, flags))
    }
}

fn update(event: FlowEvent, flow: crate::flow::FlowStats, flags: MonitorFlags) -> FlowUpdate {
    let mut flow = flow;
    if !flags.contains(MonitorFlags::ACTIONS) {
        flow.instructions = Vec::new();
    }
    FlowUpdate::Flow(event, flow)
}

impl Channel {
    /// A flow has changed, by the request `own` of this channel where it is given.
    fn hear(
        &mut self,
        change: &FlowChange,
        (own, is_said): (Option<u32>, &mut bool),
        settings: &Settings,
    ) {
        let Some(flags) = self.monitors.wanted(change) else { return };
        let is_left = matches!(change.event, FlowEvent::Deleted(_));
        if !is_left && self.is_full(settings) {
            // From this change on.
            self.send_updates(0, false);
            for monitor in self.monitors.all.values_mut() {
                monitor.heard = change.flow.changed.saturating_sub(1);
            }
            let (reply, end, cursor) = (None, 0, 0);
            self.monitors.pass = Some(Pass { reply, end, cursor, waits: true, is_paused: true });
            let _ = self.send(0, Body::FlowMonitorPaused);
            return;
        }
        let is_short = !flags.contains(MonitorFlags::OWN) && self.monitors.pass.is_none();
        match own.filter(|_| is_short) {
            Some(_) if *is_said => return,
            Some(xid) => {
                *is_said = true;
                self.monitors.updates.push(FlowUpdate::Abbreviated { xid });
            }
            None => {
                let update = update(change.event, change.flow.flow.clone(), flags);
                self.monitors.updates.push(update);
            }
        }
        if self.monitors.updates.len() >= UPDATES_A_MESSAGE && self.outgoing().len() <= WAITING_MAX
        {
            self.send_updates(0, false);
        }
    }

    /// Sends the updates that there are, in as many messages as they need; `more`: others of the same reply follow.
    fn send_updates(&mut self, xid: u32, more: bool) {
        let updates = std::mem::take(&mut self.monitors.updates);
        let mut waiting = if updates.is_empty() { Vec::new() } else { vec![updates] };
        while let Some(mut updates) = waiting.pop() {
            let reply = MultipartReply::FlowMonitor(updates.clone());
            let more = more || xid != 0 && !waiting.is_empty();
            match self.send(xid, Body::MultipartReply { more, reply }) {
                Ok(()) => {}
                // Only flows with very long actions: half of them at a time.
                Err(Unencodable::TooLong) if updates.len() > 1 => {
                    waiting.push(updates.split_off(updates.len() / 2));
                    waiting.push(updates);
                }
                // What 1.0 cannot express is left out, so that the rest can be seen.
                Err(_) => {
                    let Some(version) = self.version() else { return };
                    updates.retain(|update| {
                        let reply = MultipartReply::FlowMonitor(vec![update.clone()]);
                        let body = Body::MultipartReply { more: false, reply };
                        crate::encode(&crate::Message::new(version, 0, body)).is_ok()
                    });
                    if !updates.is_empty() || xid != 0 {
                        waiting.push(updates);
                    }
                }
            }
        }
    }
}
