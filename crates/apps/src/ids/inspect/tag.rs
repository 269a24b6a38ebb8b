//! `tag`: packets that follow an alert, of its flow or of a host, are written whole.
//!
//! ```text
//!  alert ─ tags of its rule ─▶ its flow, or the table of hosts ─▶ packets that follow: event `packet`, until the amount is used up
//! ```
//!
//! As in Suricata, the packet of the alert is not written but counts, and another match of the rule begins anew, up to nine times until the tag ends.
//!
//! Threads: tags of flows belong to their worker; those of hosts are shared, behind a lock that is taken only while there are some.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use control::config::IdsEvent;
use detect::{Alert, RuleInfo, Sender};
use flowlog::eve::{Link, Origin};
use signatures::{Tag, TagScope, TagUnit};
use stream::tracker::Input;

use super::{OfFlowKept, Parts};
use crate::flow::order::Key;
use crate::ids::outputs::{Lines, To};

/// Tags of a flow or of a host at most.
const TAGS_MAX: usize = 16;
/// Hosts with tags at most.
const HOSTS_MAX: usize = 1 << 16;
/// The match from which on a tag does not begin anew.
const MATCHES_MAX: u8 = 10;
/// What is written where a rule says no amount.
const AMOUNT: (u32, TagUnit) = (256, TagUnit::Packets);
/// Tags of a host that is silent for so long are over where there is no room.
const SILENT_NS: u64 = 600 * SECOND;
const SECOND: u64 = 1_000_000_000;

/// The tag of a rule that applies.
#[derive(Debug)]
struct Tagged {
    rule: (u32, u32),
    amount: (u32, TagUnit),
    begin_ns: u64,
    /// Packets or bytes so far.
    used: u64,
    matches: u8,
}

/// The tags of a flow or of a host.
#[derive(Debug, Default)]
pub(super) struct Tags {
    all: Vec<Tagged>,
    latest_ns: u64,
}

impl Tags {
    /// A rule has matched a packet of so many bytes.
    fn add(&mut self, rule: (u32, u32), tag: Tag, now_ns: u64, len: u64) {
        let amount = tag.amount.unwrap_or(AMOUNT);
        let used = if amount.1 == TagUnit::Bytes { len } else { 1 };
        self.latest_ns = now_ns;
        let has_room = self.all.len() < TAGS_MAX;
        match self.all.iter_mut().find(|own| own.rule == rule && own.amount == amount) {
            Some(own) => {
                own.matches = own.matches.saturating_add(1);
                if own.matches < MATCHES_MAX {
                    (own.begin_ns, own.used) = (now_ns, used);
                }
            }
            None if has_room => {
                self.all.push(Tagged { rule, amount, begin_ns: now_ns, used, matches: 0 });
            }
            None => {}
        }
    }

    /// Whether a packet of so many bytes is to be written.
    fn take(&mut self, now_ns: u64, len: u64) -> bool {
        self.latest_ns = now_ns;
        self.all.retain_mut(|own| {
            let (most, unit) = own.amount;
            own.used += if unit == TagUnit::Bytes { len } else { 1 };
            match unit {
                TagUnit::Packets | TagUnit::Bytes => own.used <= most.into(),
                TagUnit::Seconds => {
                    now_ns.saturating_sub(own.begin_ns) < (u64::from(most) + 1) * SECOND
                }
            }
        });
        !self.all.is_empty()
    }
}

/// The tags of hosts, of all workers.
#[derive(Debug, Default)]
pub struct HostTags {
    hosts: AtomicUsize,
    all: Mutex<ByHost>,
}

#[derive(Debug, Default)]
struct ByHost {
    tags: HashMap<IpAddr, Tags>,
    /// When silent hosts may go again.
    sweep_ns: u64,
}

impl HostTags {
    fn lock(&self) -> MutexGuard<'_, ByHost> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, host: IpAddr, rule: (u32, u32), tag: Tag, now_ns: u64, len: u64) {
        let mut own = self.lock();
        if own.tags.len() >= HOSTS_MAX && !own.tags.contains_key(&host) {
            if own.sweep_ns > now_ns {
                return;
            }
            own.sweep_ns = now_ns + SECOND;
            own.tags.retain(|_, tags| now_ns.saturating_sub(tags.latest_ns) < SILENT_NS);
        }
        if own.tags.len() < HOSTS_MAX || own.tags.contains_key(&host) {
            own.tags.entry(host).or_default().add(rule, tag, now_ns, len);
        }
        self.hosts.store(own.tags.len(), Ordering::Relaxed);
    }

    fn take(&self, (src, dst): (IpAddr, IpAddr), now_ns: u64, len: u64) -> bool {
        if self.hosts.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut own = self.lock();
        let mut of = |host: IpAddr| {
            let Some(tags) = own.tags.get_mut(&host) else { return false };
            let is_tagged = tags.take(now_ns, len);
            if !is_tagged {
                own.tags.remove(&host);
            }
            is_tagged
        };
        let is_tagged = of(src) | (src != dst && of(dst));
        self.hosts.store(own.tags.len(), Ordering::Relaxed);
        is_tagged
    }
}

/// The tags of a rule that has matched a packet of so many bytes begin; `flow`: those of the packet's flow.
pub(super) fn begin(
    rule: &RuleInfo,
    alert: &Alert,
    (origin, len): (&Origin<'_>, u64),
    parts: &Parts,
    flow: Option<&mut Option<Box<Tags>>>,
) {
    if rule.tags.is_empty() || !parts.outputs.has(IdsEvent::Packet) {
        return;
    }
    let (id, now_ns) = ((rule.gid, rule.sid), alert.time_ns);
    let mut flow = flow;
    for tag in &rule.tags {
        let host = match tag.scope {
            TagScope::Session => {
                if let Some(tags) = &mut flow {
                    tags.get_or_insert_default().add(id, *tag, now_ns, len);
                }
                continue;
            }
            TagScope::Source => origin.src.0,
            TagScope::Destination => origin.dst.0,
        };
        parts.tags.add(host, id, *tag, now_ns, len);
    }
}

/// Writes a packet if its flow or one of its hosts is tagged.
pub(super) fn of_flow(
    flow: &mut OfFlowKept,
    sender: Sender,
    input: &Input<'_>,
    parts: &Parts,
    lines: &mut Lines,
) {
    let (now_ns, len) = (input.time_ns, input.frame_len.into());
    let of_flow = flow.tags.as_mut().is_some_and(|tags| tags.take(now_ns, len));
    if !of_flow {
        flow.tags = None;
    }
    let origin = flow.origin(&parts.outputs, sender, now_ns);
    if parts.tags.take((origin.src.0, origin.dst.0), now_ns, len) || of_flow {
        write(&origin, input, parts, lines);
        let key = flow.key(now_ns);
        lines.put(To::Eve, key);
    }
}

/// Writes a packet of no flow if one of its hosts is tagged.
pub(super) fn alone(
    origin: &Origin<'_>,
    input: &Input<'_>,
    parts: &Parts,
    lines: &mut Lines,
    key: Key,
) {
    let hosts = (origin.src.0, origin.dst.0);
    if parts.tags.take(hosts, input.time_ns, input.frame_len.into()) {
        write(origin, input, parts, lines);
        lines.put(To::Eve, key);
    }
}

fn write(origin: &Origin<'_>, input: &Input<'_>, parts: &Parts, lines: &mut Lines) {
    let link = if input.decoded.l3_offset == 0 { Link::Raw } else { Link::Ethernet };
    parts.outputs.eve.packet(origin, link, input.frame, &mut lines.line);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(amount: Option<(u32, TagUnit)>) -> Tag {
        Tag { scope: TagScope::Session, amount }
    }

    /// How many of 1,000 packets of 100 bytes, ten a second, are written.
    fn written(amount: Option<(u32, TagUnit)>) -> usize {
        let mut tags = Tags::default();
        tags.add((1, 1), tag(amount), 0, 100);
        (1..=1000).filter(|at| tags.take(at * SECOND / 10, 100)).count()
    }

    /// The packet of the alert counts.
    #[test]
    fn amounts() {
        assert_eq!(written(Some((5, TagUnit::Packets))), 4);
        assert_eq!(written(Some((1, TagUnit::Packets))), 0);
        assert_eq!(written(Some((450, TagUnit::Bytes))), 3);
        assert_eq!(written(Some((2, TagUnit::Seconds))), 29, "to the end of the second");
        assert_eq!(written(None), 255);
    }

    #[test]
    fn tags_begin_anew_so_often() {
        let mut tags = Tags::default();
        let own = tag(Some((3, TagUnit::Packets)));
        let mut is_taken = |at| {
            tags.add((1, 1), own, at, 100);
            tags.take(at, 100)
        };
        // Nine times anew, then to the end of the amount.
        assert_eq!((0..100).take_while(|at| is_taken(*at)).count(), 11);
        assert!(is_taken(100), "one that has ended is a new one");
    }

    #[test]
    fn tags_have_bounds() {
        let mut tags = Tags::default();
        let own = tag(None);
        (0..100).for_each(|sid| tags.add((1, sid), own, 0, 100));
        assert_eq!(tags.all.len(), TAGS_MAX);

        let hosts = HostTags::default();
        let host = |number: u32| IpAddr::from(number.to_be_bytes());
        let most = HOSTS_MAX as u32;
        (0..=most).for_each(|number| hosts.add(host(number), (1, 1), own, 0, 100));
        let nobody = host(u32::MAX);
        assert!(hosts.take((host(0), nobody), 0, 100));
        assert!(!hosts.take((host(most), nobody), 0, 100), "there was no room");
        // All others are silent for long.
        let later = SILENT_NS + SECOND;
        assert!(hosts.take((host(0), nobody), later, 100));
        hosts.add(host(most), (1, 1), own, later, 100);
        assert!(hosts.take((nobody, host(most)), later, 100));
        assert_eq!(hosts.lock().tags.len(), 2);
    }
}
