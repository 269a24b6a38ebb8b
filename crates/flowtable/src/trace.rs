//! What becomes of one packet, table by table, for people: as `ofproto/trace` of Open vSwitch.
//!
//! The packet is what a match says of it, and zero where it says nothing. Nothing is counted, no meter measures, and no frame is made: fields
//! change as actions set them.

use openflow::flow::ANY_GROUP;
use openflow::group::Bucket;
use openflow::port::PortConfig;
use openflow::syntax::{ActionsText, InstructionsText, MatchText};
use openflow::{Action, Field, GroupType, Match, PortNo};

use crate::action_set;
use crate::exact::is_exact;
use crate::groups::CHAIN_MAX;
use crate::headers::VID_PRESENT;
use crate::key::{Key, Words, place, place_of};
use crate::run::LOOKS_MAX;
use crate::tables::rank;
use crate::{FlowControl, Port};

/// Buckets that a trace follows, those of all groups together.
const FOLLOWED_MAX: usize = 1024;

/// Follows a packet; a line for each step. `ttl`: the packet's TTL or hop limit; without it TTLs are not followed.
pub fn trace(control: &FlowControl, packet: &Match, ttl: Option<u8>) -> Vec<String> {
    let of_ttl = ttl.map_or_else(String::new, |ttl| format!(",nw_ttl={ttl}"));
    let mut lines = vec![format!("packet: {}{of_ttl}", text(packet))];
    let key = Words::of(packet).value;
    let (covered, ports, ttls) = (Vec::new(), Vec::new(), ttl.into_iter().collect());
    let (one_of, lines_of_steps) = (Vec::new(), Vec::new());
    let buckets_left = FOLLOWED_MAX;
    let mut own =
        Traced { control, key, covered, ports, one_of, ttls, lines: lines_of_steps, buckets_left };
    let (mut table, mut set) = (0, Vec::new());
    loop {
        let Some(flow) = own.look_up(table) else {
            let to_controller = control.settings().miss_len.is_some();
            let end = if to_controller { "for the controller" } else { "dropped" };
            own.lines.push(format!("table {table}: no flow, {end}"));
            own.ports.extend(to_controller.then_some(PortNo::CONTROLLER));
            set.clear();
            break;
        };
        let stats = flow.matches.clone();
        own.lines.push(format!(
            "table {table}: priority={}, {}, actions={}",
            flow.priority,
            text(&stats),
            InstructionsText(&flow.instructions)
        ));
        let steps = &flow.steps;
        if let Some(meter) = steps.meter {
            own.lines.push(format!("  through meter {meter}"));
        }
        if !own.actions(&steps.apply, 1) {
            set.clear();
            break;
        }
        if steps.clear {
            set.clear();
        }
        set.extend(steps.write.iter().cloned());
        if let Some((value, mask)) = steps.metadata {
            let old = own.key.get(place::METADATA) as u64;
            own.key.set(place::METADATA, (old & !mask | value & mask).into());
        }
        match steps.goto {
            Some(next) => table = next,
            None => break,
        }
    }
    if !set.is_empty() {
        let set = action_set::ordered(&set);
        own.lines.push(format!("action set: {}", ActionsText(&set)));
        own.actions(&set, 1);
    }
    lines.append(&mut own.lines);
    let names = |ports: &[PortNo]| ports.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut ports = names(&own.ports);
    for all in &own.one_of {
        let (mut all, mut seen) = (names(all), std::collections::BTreeSet::new());
        all.retain(|name| seen.insert(name.clone()));
        ports.push(match all.as_slice() {
            [] => continue,
            [one] => one.clone(),
            all => format!("one of {}", all.join(", ")),
        });
    }
    lines.push(match ports.is_empty() {
        true => "sent to: nowhere".to_owned(),
        false => format!("sent to: {}", ports.join(", ")),
    });
    lines
}

fn text(matches: &Match) -> String {
    match matches.is_empty() {
        true => "any packet".to_owned(),
        false => MatchText(matches).to_string(),
    }
}

struct Traced<'a> {
    control: &'a FlowControl,
    key: Key,
    /// VLAN and priority of tags before which flows have pushed others.
    covered: Vec<(u128, u128)>,
    ports: Vec<PortNo>,
    /// Of groups of which a packet takes one bucket: where all of them lead.
    one_of: Vec<Vec<PortNo>>,
    /// What is known of TTLs, the outermost last: that of IP, and those of labels before it. Empty: nothing.
    ttls: Vec<u8>,
    lines: Vec<String>,
    /// Buckets that may still be followed: groups lead to groups.
    buckets_left: usize,
}

impl<'a> Traced<'a> {
    fn look_up(&self, table: u8) -> Option<&'a crate::Flow> {
        let takes = |flow: &&std::sync::Arc<crate::Flow>| {
            flow.table == table && flow.words.takes(&self.key)
        };
        let exact_wins = self.control.settings().exact_wins;
        let order = |flow: &&std::sync::Arc<crate::Flow>| {
            (!(exact_wins && is_exact(&flow.words)), rank(flow.priority), flow.id)
        };
        self.control.flows().filter(takes).min_by_key(order).map(|flow| &**flow)
    }

    /// `false`: the packet's TTL ended, and nothing more happens to it.
    fn actions(&mut self, actions: &[Action], depth: usize) -> bool {
        let indent = "  ".repeat(depth);
        for action in actions {
            if let Some(ttl) = self.ttl_of(action) {
                let text = ActionsText(std::slice::from_ref(action));
                match ttl {
                    Some(ttl) => self.lines.push(format!("{indent}{text} (TTL {ttl})")),
                    None => {
                        self.lines
                            .push(format!("{indent}{text}: the TTL ends, for the controller"));
                        self.ports.push(PortNo::CONTROLLER);
                        return false;
                    }
                }
                continue;
            }
            match action {
                Action::Output { port, .. } | Action::Enqueue { port, .. } => self.output(*port),
                Action::Group(number) => self.group(*number, depth),
                Action::SetField(field, value) => {
                    self.key.set(place_of(*field), *value);
                    self.lines
                        .push(format!("{indent}{}", ActionsText(std::slice::from_ref(action))));
                }
                action => {
                    match action {
                        Action::PushVlan(_) if self.key.get(place::VLAN_VID) == 0 => {
                            self.key.set(place::VLAN_VID, VID_PRESENT.into());
                        }
                        Action::PushVlan(_) => {
                            let (vid, pcp) = (place::VLAN_VID, place::VLAN_PCP);
                            self.covered.push((self.key.get(vid), self.key.get(pcp)));
                        }
                        Action::PopVlan => {
                            let (vid, pcp) = self.covered.pop().unwrap_or_default();
                            self.key.set(place::VLAN_VID, vid);
                            self.key.set(place::VLAN_PCP, pcp);
                        }
                        Action::SetVlanVid(vid) => {
                            self.key.set(place::VLAN_VID, u128::from(vid | VID_PRESENT));
                        }
                        Action::SetVlanPcp(pcp) => {
                            let vid = self.key.get(place::VLAN_VID) | u128::from(VID_PRESENT);
                            self.key.set(place::VLAN_VID, vid);
                            self.key.set(place::VLAN_PCP, (*pcp).into());
                        }
                        Action::SetTpSrc(port) => {
                            self.key.set(place_of(Field::TcpSrc), (*port).into())
                        }
                        Action::SetTpDst(port) => {
                            self.key.set(place_of(Field::TcpDst), (*port).into())
                        }
                        Action::PushMpls(ethertype)
                        | Action::PopMpls(ethertype)
                        | Action::PushPbb(ethertype) => {
                            self.key.set(place::ETH_TYPE, (*ethertype).into())
                        }
                        _ => {}
                    }
                    self.push_and_pop(action);
                    self.lines
                        .push(format!("{indent}{}", ActionsText(std::slice::from_ref(action))));
                }
            }
        }
        true
    }

    /// The TTL that an action leaves, where one is known that it sets; within it `None`: it ends.
    fn ttl_of(&mut self, action: &Action) -> Option<Option<u8>> {
        let has_labels = self.ttls.len() > 1;
        let at = self.ttls.len().checked_sub(1)?;
        let new = match action {
            Action::SetNwTtl(ttl) if !has_labels => Some(*ttl),
            Action::SetMplsTtl(ttl) if has_labels => Some(*ttl),
            Action::DecNwTtl if !has_labels => self.ttls[at].checked_sub(1).filter(|ttl| *ttl > 0),
            Action::DecMplsTtl if has_labels => self.ttls[at].checked_sub(1).filter(|ttl| *ttl > 0),
            Action::CopyTtlOut if has_labels => Some(self.ttls[at - 1]),
            Action::CopyTtlIn if has_labels => {
                self.ttls[at - 1] = self.ttls[at];
                Some(self.ttls[at])
            }
            _ => return None,
        };
        self.ttls[at] = new.unwrap_or(0);
        Some(new)
    }

    /// Labels come and go with their TTLs; behind a tag of PBB nothing is known.
    fn push_and_pop(&mut self, action: &Action) {
        match action {
            Action::PushMpls(_) => self.ttls.extend(self.ttls.last().copied()),
            Action::PopMpls(_) if self.ttls.len() > 1 => self.ttls.truncate(self.ttls.len() - 1),
            Action::PushPbb(_) => self.ttls.clear(),
            _ => {}
        }
    }

    fn output(&mut self, port: PortNo) {
        let in_port = PortNo(self.key.get(place::IN_PORT) as u32);
        match port {
            PortNo::FLOOD | PortNo::ALL => {
                let floods =
                    |own: &Port| port == PortNo::ALL || !own.config.contains(PortConfig::NO_FLOOD);
                let others = self.control.ports().filter(|own| own.number != in_port);
                let to: Vec<PortNo> =
                    others.filter(|own| floods(own)).map(|own| own.number).collect();
                to.into_iter().for_each(|port| self.leave(port));
            }
            PortNo::IN_PORT => self.leave(in_port),
            PortNo::CONTROLLER | PortNo::NORMAL => self.ports.push(port),
            port if port == in_port => self.lines.push(format!("  {port} is the port of entry")),
            port => self.leave(port),
        }
    }

    /// Out by a port, if it forwards.
    fn leave(&mut self, port: PortNo) {
        let is_off = |config: PortConfig| {
            config.contains(PortConfig::PORT_DOWN) || config.contains(PortConfig::NO_FWD)
        };
        match self.control.port(port) {
            None => self.lines.push(format!("  there is no port {port}")),
            Some(own) if is_off(own.config) => {
                self.lines.push(format!("  port {port} is configured not to forward"));
            }
            Some(own) if !own.live => self.lines.push(format!("  the link of port {port} is down")),
            Some(_) => self.ports.push(port),
        }
    }

    /// As packets find it: what a bucket watches lives. What many buckets do not tell is not live.
    fn is_live(&self, bucket: &Bucket, depth: usize, looks: &mut u32) -> bool {
        let Some(left) = looks.checked_sub(1) else { return false };
        *looks = left;
        let port = bucket.watch_port == PortNo::ANY
            || self
                .control
                .port(bucket.watch_port)
                .is_some_and(|own| own.live && !own.config.contains(PortConfig::PORT_DOWN));
        let mut watched = || {
            let group = self.control.group(bucket.watch_group)?;
            let has_live = group.buckets.iter().any(|own| self.is_live(own, depth + 1, looks));
            Some(depth < CHAIN_MAX && has_live)
        };
        port && (bucket.watch_group == ANY_GROUP || watched().unwrap_or(false))
    }

    fn group(&mut self, number: u32, depth: usize) {
        let Some(group) = self.control.group(number).cloned() else { return };
        let indent = "  ".repeat(depth);
        let which = match group.kind {
            GroupType::All => "each bucket",
            GroupType::Select => "the bucket of the flow's hash, one of",
            GroupType::Indirect => "its bucket",
            GroupType::FastFailover => "the first live bucket of",
        };
        self.lines.push(format!("{indent}group {number}: {which}"));
        if depth > CHAIN_MAX {
            return;
        }
        let mut looks = LOOKS_MAX;
        let mut takes = |bucket: &Bucket| match group.kind {
            GroupType::All | GroupType::Indirect => true,
            GroupType::Select => bucket.weight > 0 && self.is_live(bucket, 0, &mut looks),
            GroupType::FastFailover => self.is_live(bucket, 0, &mut looks),
        };
        let mut taken: Vec<usize> =
            (0..group.buckets.len()).filter(|at| takes(&group.buckets[*at])).collect();
        if group.kind == GroupType::FastFailover {
            taken.truncate(1);
        }
        if taken.is_empty() {
            let why =
                if group.buckets.is_empty() { "there is no bucket" } else { "no bucket is live" };
            self.lines.push(format!("{indent}  {why}: dropped"));
        }
        // Which bucket of a select group a packet takes depends on fields that the match may leave out: all are shown.
        let is_one = group.kind == GroupType::Select && taken.len() > 1;
        let before = std::mem::take(&mut self.ports);
        for at in taken {
            let Some(left) = self.buckets_left.checked_sub(1) else {
                self.lines.push(format!("{indent}  and more buckets, which are not followed"));
                break;
            };
            self.buckets_left = left;
            let actions = &group.ordered[at];
            self.lines.push(format!("{indent}  bucket {at}: {}", ActionsText(actions)));
            let before = (self.key, self.covered.clone(), self.ttls.clone());
            self.actions(actions, depth + 2);
            (self.key, self.covered, self.ttls) = before;
        }
        let found = std::mem::replace(&mut self.ports, before);
        match is_one {
            true => self.one_of.push(found),
            false => self.ports.extend(found),
        }
    }
}
