//! The state machine.

use std::collections::BTreeMap;
use std::net::IpAddr;

use lookup::Address;
use lookup::fib::{Interface, NeighbourEvent};
use packet::MacAddr;

use super::frames::question;
use super::table::{Entry, Key, NeighbourState, Table};

/// Times and bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Entries kept, static ones included.
    pub entries_max: usize,
    /// How long an answer is good.
    pub reachable_ns: u64,
    /// Between two questions.
    pub retry_ns: u64,
    /// Questions without an answer, after which a neighbour has failed.
    pub attempts: u32,
    /// How long a failed neighbour is not asked again.
    pub failed_ns: u64,
    /// After which a neighbour is probed that only mentioned itself.
    pub delay_ns: u64,
    /// Take every known neighbour for used, and confirm it each time that `reachable_ns` is over.
    pub assume_used: bool,
    /// How long an unused neighbour is kept after that.
    pub stale_ns: u64,
}

impl Default for Settings {
    fn default() -> Self {
        const SECOND: u64 = 1_000_000_000;
        Self {
            entries_max: 16_384,
            reachable_ns: 30 * SECOND,
            retry_ns: SECOND,
            attempts: 3,
            failed_ns: 3 * SECOND,
            delay_ns: 5 * SECOND,
            assume_used: true,
            stale_ns: 600 * SECOND,
        }
    }
}

/// What comes out of the resolver, appended by each call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// Frames to send: interface and bytes from the Ethernet header on, tags included.
    pub frames: Vec<(u16, Vec<u8>)>,
    /// Neighbours that became known, changed or became unknown, in order.
    pub changes: Vec<NeighbourChange>,
}

/// A neighbour is reached by this MAC now, or is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeighbourChange {
    /// The interface it is on.
    pub interface: u16,
    /// Its address.
    pub address: IpAddr,
    /// Its MAC address.
    pub mac: Option<[u8; 6]>,
}

/// Who set a static neighbour. The configuration wins over the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permanent {
    /// The kernel holds it as permanent.
    Kernel,
    /// `[[neighbour]]`.
    Configuration,
}

/// One neighbour, for tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeighbourView {
    /// The interface it is on.
    pub interface: u16,
    /// Its address.
    pub address: IpAddr,
    /// Its MAC address.
    pub mac: Option<[u8; 6]>,
    /// What is known of it.
    pub state: NeighbourState,
    /// When it was last confirmed.
    pub confirmed_ns: Option<u64>,
}

/// What happened since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NeighbourCounters {
    /// Questions to all of a link.
    pub requests: u64,
    /// Questions to one neighbour whether it is still there.
    pub probes: u64,
    /// Neighbours that became known.
    pub resolved: u64,
    /// Neighbours that did not answer.
    pub failed: u64,
    /// Neighbours that were known and did not answer any more.
    pub lost: u64,
    /// Neighbours that got another MAC address.
    pub moved: u64,
    /// Entries that made room for others.
    pub evicted: u64,
    /// New entries for which there was no room: all others are static.
    pub refused: u64,
    /// Said of addresses outside the interface's subnets.
    pub foreign: u64,
    /// Unsolicited, and not part of a request to us.
    pub unasked: u64,
    /// Said with a MAC address that is not a single station's, or our own.
    pub bad_mac: u64,
    /// Somebody else claims an address of ours.
    pub duplicate_address: u64,
    /// Said against a static entry, or without the right to override.
    pub contradicted: u64,
    /// Wanted on an interface that is down, or an address that no neighbour can have.
    pub impossible: u64,
}

/// The neighbours of all interfaces.
#[derive(Debug)]
pub struct Resolver {
    settings: Settings,
    interfaces: BTreeMap<u16, Interface>,
    table: Table,
    permanent: BTreeMap<(Key, Permanent), [u8; 6]>,
    counters: NeighbourCounters,
}

impl Resolver {
    /// Without interfaces.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            interfaces: BTreeMap::new(),
            table: Table::default(),
            permanent: BTreeMap::new(),
            counters: NeighbourCounters::default(),
        }
    }

    /// Changes times and bounds; running deadlines stay.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// An interface is there, has changed, or is gone. One that is not up has only static
    /// neighbours.
    pub fn set_interface(&mut self, index: u16, interface: Option<&Interface>, out: &mut Output) {
        let interface = interface.filter(|interface| interface.up);
        let before = match interface {
            Some(interface) => self.interfaces.insert(index, interface.clone()),
            None => self.interfaces.remove(&index),
        };
        let gone = |resolver: &Self, (key, entry): (Key, &Entry)| {
            let kept = interface.is_some() && before.is_some() && !resolver.is_own(key);
            (key.0 == index && entry.state != NeighbourState::Static && !kept).then_some(key)
        };
        let gone: Vec<Key> = self.table.iter().filter_map(|item| gone(self, item)).collect();
        for key in gone {
            self.forget(key, out);
        }
    }

    /// Handles an event of the data path.
    pub fn event(&mut self, event: NeighbourEvent, now_ns: u64, out: &mut Output) {
        match event {
            NeighbourEvent::Wanted { interface, address } => {
                self.wanted((interface, address), now_ns, out);
            }
            NeighbourEvent::Seen { interface, address, mac, solicited, overrides, asks_us } => {
                let said = Said { mac, solicited, overrides, creates: asks_us };
                self.seen((interface, address), said, now_ns, out);
            }
        }
    }

    /// The kernel knows a neighbour: taken as if it had asked us.
    pub fn hint(
        &mut self,
        interface: u16,
        address: IpAddr,
        mac: [u8; 6],
        now_ns: u64,
        out: &mut Output,
    ) {
        let said = Said { mac, solicited: false, overrides: true, creates: true };
        self.seen((interface, address), said, now_ns, out);
    }

    /// Sets a static neighbour, or takes it away. Of two that set the same one the configuration
    /// wins.
    pub fn set_permanent(
        &mut self,
        interface: u16,
        address: IpAddr,
        mac: Option<[u8; 6]>,
        by: Permanent,
        now_ns: u64,
        out: &mut Output,
    ) {
        let key = (interface, address);
        match mac {
            Some(mac) => self.permanent.insert((key, by), mac),
            None => self.permanent.remove(&(key, by)),
        };
        let by = [Permanent::Configuration, Permanent::Kernel];
        let mac = by.iter().find_map(|by| self.permanent.get(&(key, *by)).copied());
        let is_static =
            self.table.get(key).is_some_and(|entry| entry.state == NeighbourState::Static);
        match mac {
            Some(mac) if self.free_slot(key, out) => {
                let state = NeighbourState::Static;
                self.enter(key, Entry { mac: Some(mac), ..entry(state, now_ns) }, out);
            }
            None if is_static => self.forget(key, out),
            _ => {}
        }
    }

    /// Does everything whose time has come.
    pub fn tick(&mut self, now_ns: u64, out: &mut Output) {
        while let Some((key, entry)) = self.table.due(now_ns) {
            self.expire(key, entry, now_ns, out);
        }
    }

    /// When [`Resolver::tick`] has something to do.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.table.next_deadline_ns()
    }

    /// All neighbours, by interface and address.
    pub fn neighbours(&self) -> impl Iterator<Item = NeighbourView> {
        self.table.iter().map(|((interface, address), entry)| NeighbourView {
            interface,
            address,
            mac: entry.mac,
            state: entry.state,
            confirmed_ns: entry.confirmed_ns,
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What happened since the start.
    pub fn counters(&self) -> &NeighbourCounters {
        &self.counters
    }
}

/// What a packet said about a neighbour.
struct Said {
    mac: [u8; 6],
    solicited: bool,
    overrides: bool,
    creates: bool,
}

fn entry(state: NeighbourState, now_ns: u64) -> Entry {
    Entry {
        state,
        mac: None,
        sent: 0,
        deadline_ns: None,
        confirmed_ns: None,
        wanted_ns: None,
        touched_ns: now_ns,
    }
}

impl Resolver {
    fn wanted(&mut self, key: Key, now_ns: u64, out: &mut Output) {
        let possible = self.interfaces.contains_key(&key.0)
            && !key.1.is_unspecified()
            && !key.1.is_multicast()
            && !self.is_broadcast(key)
            && !self.is_own(key);
        let Some(mut known) = self.table.get(key) else {
            if !possible {
                self.counters.impossible += 1;
            } else if self.free_slot(key, out) {
                let new =
                    Entry { wanted_ns: Some(now_ns), ..entry(NeighbourState::Incomplete, now_ns) };
                self.ask(key, new, now_ns, out);
            }
            return;
        };
        known.wanted_ns = Some(now_ns);
        known.touched_ns = now_ns;
        match known.state {
            NeighbourState::Stale => {
                known.state = NeighbourState::Probe;
                self.ask(key, Entry { sent: 0, ..known }, now_ns, out);
            }
            // Its silence is not a neighbour's merit: it stays the oldest.
            NeighbourState::Failed => {}
            _ => self.table.set(key, known),
        }
    }

    fn seen(&mut self, key: Key, said: Said, now_ns: u64, out: &mut Output) {
        let Some(interface) = self.interfaces.get(&key.0) else { return };
        if self.is_own(key) {
            self.counters.duplicate_address += u64::from(said.mac != interface.mac);
            return;
        }
        if !MacAddr(said.mac).is_unicast() || said.mac == interface.mac {
            self.counters.bad_mac += 1;
            return;
        }
        let Some(known) = self.table.get(key) else {
            if !self.is_near(key) {
                self.counters.foreign += 1;
            } else if !said.creates {
                self.counters.unasked += 1;
            } else if self.free_slot(key, out) {
                self.counters.resolved += 1;
                self.enter(
                    key,
                    self.heard(entry(NeighbourState::Stale, now_ns), &said, now_ns),
                    out,
                );
            }
            return;
        };
        match known.state {
            NeighbourState::Static => {
                self.counters.contradicted += u64::from(known.mac != Some(said.mac));
            }
            NeighbourState::Incomplete | NeighbourState::Failed => {
                self.counters.resolved += 1;
                self.enter(key, self.heard(known, &said, now_ns), out);
            }
            _ if known.mac == Some(said.mac) => {
                // A mere mention confirms nothing (RFC 4861 section 7.2.3).
                if said.solicited {
                    self.enter(key, self.heard(known, &said, now_ns), out);
                }
            }
            _ if said.overrides => {
                self.counters.moved += 1;
                self.enter(key, self.heard(known, &said, now_ns), out);
            }
            state => {
                // RFC 4861 section 7.2.5: keep the address, doubt it.
                self.counters.contradicted += 1;
                if state == NeighbourState::Reachable {
                    let deadline_ns = Some(now_ns + self.settings.delay_ns);
                    let doubted = Entry { state: NeighbourState::Stale, deadline_ns, ..known };
                    self.enter(key, doubted, out);
                }
            }
        }
    }

    /// `known` with the MAC that was said, reachable if it was an answer.
    fn heard(&self, known: Entry, said: &Said, now_ns: u64) -> Entry {
        let entry = Entry { mac: Some(said.mac), sent: 0, touched_ns: now_ns, ..known };
        if said.solicited {
            Entry {
                state: NeighbourState::Reachable,
                confirmed_ns: Some(now_ns),
                deadline_ns: Some(now_ns + self.settings.reachable_ns),
                ..entry
            }
        } else {
            Entry {
                state: NeighbourState::Stale,
                deadline_ns: Some(now_ns + self.settings.delay_ns),
                ..entry
            }
        }
    }

    fn expire(&mut self, key: Key, known: Entry, now_ns: u64, out: &mut Output) {
        let settings = self.settings;
        match known.state {
            NeighbourState::Incomplete if known.sent < settings.attempts => {
                self.ask(key, known, now_ns, out);
            }
            NeighbourState::Incomplete => {
                self.counters.failed += 1;
                let deadline_ns = Some(now_ns + settings.failed_ns);
                self.enter(key, Entry { state: NeighbourState::Failed, deadline_ns, ..known }, out);
            }
            NeighbourState::Probe if known.sent < settings.attempts => {
                self.ask(key, known, now_ns, out);
            }
            NeighbourState::Probe => {
                self.counters.lost += 1;
                self.forget(key, out);
            }
            NeighbourState::Reachable | NeighbourState::Stale => {
                let used = known.wanted_ns.is_some_and(|wanted_ns| {
                    known.confirmed_ns.is_none_or(|confirmed_ns| wanted_ns > confirmed_ns)
                });
                if used || settings.assume_used {
                    let probe = Entry { state: NeighbourState::Probe, sent: 0, ..known };
                    self.ask(key, probe, now_ns, out);
                } else if known.state == NeighbourState::Reachable {
                    let deadline_ns = Some(now_ns + settings.stale_ns);
                    self.enter(
                        key,
                        Entry { state: NeighbourState::Stale, deadline_ns, ..known },
                        out,
                    );
                } else {
                    self.forget(key, out);
                }
            }
            NeighbourState::Failed | NeighbourState::Static => self.forget(key, out),
        }
    }

    /// Sends a question for an entry that waits for an answer.
    fn ask(&mut self, key: Key, mut known: Entry, now_ns: u64, out: &mut Output) {
        known.sent += 1;
        known.deadline_ns = Some(now_ns + self.settings.retry_ns);
        let mac = known.mac.filter(|_| known.state == NeighbourState::Probe);
        match mac {
            Some(_) => self.counters.probes += 1,
            None => self.counters.requests += 1,
        }
        let frame = self.interfaces.get(&key.0).and_then(|i| question(i, key.1, mac));
        out.frames.extend(frame.map(|frame| (key.0, frame)));
        self.enter(key, known, out);
    }

    /// Sets an entry, and reports a change of its MAC.
    fn enter(&mut self, key: Key, new: Entry, out: &mut Output) {
        let before = self.table.get(key).and_then(|entry| entry.mac);
        self.table.set(key, new);
        tell(key, before, new.mac, out);
    }

    fn forget(&mut self, key: Key, out: &mut Output) {
        if let Some(entry) = self.table.remove(key) {
            tell(key, entry.mac, None, out);
        }
    }

    /// Makes sure that `key` has a place; whether it has one.
    fn free_slot(&mut self, key: Key, out: &mut Output) -> bool {
        if self.table.get(key).is_some() || self.table.len() < self.settings.entries_max {
            return true;
        }
        let Some(least) = self.table.least() else {
            self.counters.refused += 1;
            return false;
        };
        self.counters.evicted += 1;
        self.forget(least, out);
        true
    }

    /// Whether it is an address of the interface itself.
    fn is_own(&self, (index, address): Key) -> bool {
        let Some(interface) = self.interfaces.get(&index) else { return false };
        match address {
            IpAddr::V4(v4) => interface.addresses4.iter().any(|(own, _)| *own == v4.to_bits()),
            IpAddr::V6(v6) => {
                let key = v6.to_bits().to_key();
                interface.addresses6.iter().any(|(own, _)| *own == key)
            }
        }
    }

    /// Whether it is in a subnet of the interface, or link-local.
    fn is_near(&self, (index, address): Key) -> bool {
        let Some(interface) = self.interfaces.get(&index) else { return false };
        if address.is_multicast() || self.is_broadcast((index, address)) {
            return false;
        }
        match address {
            IpAddr::V4(v4) => {
                let near = |(own, len): &(u32, u8)| own.common_len(v4.to_bits()) >= *len;
                interface.addresses4.iter().any(near)
            }
            IpAddr::V6(v6) => {
                let near = |([high, low], len): &([u64; 2], u8)| {
                    let own = u128::from(*high) << 64 | u128::from(*low);
                    own.common_len(v6.to_bits()) >= *len
                };
                v6.is_unicast_link_local() || interface.addresses6.iter().any(near)
            }
        }
    }

    /// Whether it is the broadcast address of a subnet or of all.
    fn is_broadcast(&self, (index, address): Key) -> bool {
        let (Some(interface), IpAddr::V4(v4)) = (self.interfaces.get(&index), address) else {
            return false;
        };
        let of = |(own, len): &(u32, u8)| *len < 31 && own.fill(*len) == v4.to_bits();
        v4.is_broadcast() || interface.addresses4.iter().any(of)
    }
}

fn tell(key: Key, before: Option<[u8; 6]>, mac: Option<[u8; 6]>, out: &mut Output) {
    if before != mac {
        out.changes.push(NeighbourChange { interface: key.0, address: key.1, mac });
    }
}
