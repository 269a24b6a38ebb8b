//! Station events to control. Sending one never waits.
//!
//! The events of one port that control has not taken yet may be as many as there are places left (dynamic thresholds:
//! Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). A port that floods gets half of the queue, two
//! get a third each, and some places always stay free for the stations of other ports.
//!
//! In a full table a new station takes the place of another one. A port may do so [`REPLACED_PER_S`] times a second: a flood
//! does not keep control busy.
//!
//! Until control has learned a station, each of its frames would cause another event. An event that was sent less than
//! [`QUIET_NS`] ago is not repeated. A direct-mapped table of the last events is enough for that: where two share a
//! slot, the only harm is a repeated event, which control ignores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::SyncSender;

use chunk::hash::key64;
use lookup::bridge::{StationEvent, station_key};

use super::counters::SwitchCounters;

/// How long the same event is not repeated.
pub(super) const QUIET_NS: u64 = 100_000_000;

const PLACES: usize = 4096;

/// Stations of a second that replace others in a full table, for each port and worker.
pub(super) const REPLACED_PER_S: u32 = 1000;

/// Events that may wait for control, those of all workers.
const WAITING_MAX: u32 = 4096;

/// Ports that are counted by themselves; with more, some share a count.
const COUNTED_PORTS: usize = 256;

/// Events that wait for control, by port. Shared by all workers and control.
#[derive(Debug)]
pub struct Waiting {
    all: AtomicU32,
    ports: Box<[AtomicU32]>,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            all: AtomicU32::new(0),
            ports: (0..COUNTED_PORTS).map(|_| AtomicU32::new(0)).collect(),
        }
    }
}

impl Waiting {
    /// Whether an event of a port may wait, too. Workers may do this at the same time: a few more may wait then.
    fn begin(&self, port: u16) -> bool {
        let all = self.all.load(Ordering::Relaxed);
        let is_free = self.of(port).load(Ordering::Relaxed) < WAITING_MAX.saturating_sub(all);
        if is_free {
            self.all.fetch_add(1, Ordering::Relaxed);
            self.of(port).fetch_add(1, Ordering::Relaxed);
        }
        is_free
    }

    /// Control has taken an event of a port.
    pub fn end(&self, port: u16) {
        self.all.fetch_sub(1, Ordering::Relaxed);
        self.of(port).fetch_sub(1, Ordering::Relaxed);
    }

    fn of(&self, port: u16) -> &AtomicU32 {
        &self.ports[usize::from(port) % COUNTED_PORTS]
    }
}

/// The sending end at one worker.
pub(super) struct Stations {
    sender: Option<SyncSender<StationEvent>>,
    waiting: Arc<Waiting>,
    counters: Arc<SwitchCounters>,
    /// Hash of the event and when it was sent.
    recent: Box<[(u64, u64)]>,
    seed: u64,
    /// By port: the second of its last event that replaces a station, and how many there were in it.
    replaced: Box<[(u64, u32)]>,
}

impl Stations {
    pub(super) fn new(
        sender: Option<SyncSender<StationEvent>>,
        waiting: Arc<Waiting>,
        counters: Arc<SwitchCounters>,
    ) -> Self {
        let recent = vec![(0, 0); PLACES].into_boxed_slice();
        let seed = chunk::hash::random_seed();
        let replaced = vec![(0, 0); COUNTED_PORTS].into_boxed_slice();
        Self { sender, waiting, counters, recent, seed, replaced }
    }

    /// Sends `event` unless it was sent a moment ago. `replaces`: the station takes the place of another one.
    #[cold]
    pub(super) fn send(&mut self, event: StationEvent, replaces: bool, now_ns: u64) {
        let Some(sender) = &self.sender else { return };
        let key = station_key(event.vlan, event.mac) ^ u64::from(event.port) << 40;
        let hash = key64(key, self.seed) | 1; // 0 is an empty place
        let place = &mut self.recent[(hash >> 32) as usize % PLACES];
        // Time that went backwards is not a reason to keep silent.
        if place.0 == hash && now_ns >= place.1 && now_ns - place.1 < QUIET_NS {
            return;
        }
        let second = now_ns / 1_000_000_000;
        let replaced = &mut self.replaced[usize::from(event.port) % COUNTED_PORTS];
        if replaced.0 != second {
            *replaced = (second, 0);
        }
        if replaces && replaced.1 >= REPLACED_PER_S {
            return self.counters.table_full.add(1);
        }
        if !self.waiting.begin(event.port) {
            return self.counters.events_lost.add(1);
        }
        if sender.try_send(event).is_err() {
            self.waiting.end(event.port);
            return self.counters.events_lost.add(1);
        }
        *place = (hash, now_ns);
        replaced.1 += u32::from(replaces);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_not_repeated_at_once_and_a_full_channel_is_counted() {
        let (sender, receiver) = std::sync::mpsc::sync_channel(2);
        let counters = Arc::new(SwitchCounters::default());
        let mut stations = Stations::new(Some(sender), Arc::default(), counters.clone());
        let event = |last, port| StationEvent { vlan: 1, mac: [2, 0, 0, 0, 0, last], port };
        stations.send(event(1, 0), false, 1_000);
        stations.send(event(1, 0), false, 2_000);
        stations.send(event(1, 3), false, 2_000);
        let received: Vec<_> = receiver.try_iter().collect();
        assert_eq!(received, [event(1, 0), event(1, 3)], "another port is another event");
        stations.send(event(1, 3), false, 2_000 + QUIET_NS);
        stations.send(event(2, 3), false, 2_000 + QUIET_NS);
        stations.send(event(3, 3), false, 2_000 + QUIET_NS);
        assert_eq!(counters.events_lost.get(), 1);
        assert_eq!(receiver.try_iter().count(), 2);
        stations.send(event(3, 3), false, 2_001 + QUIET_NS);
        assert_eq!(receiver.try_iter().count(), 1, "what was lost may be said again");
    }
    /// A port that floods leaves places to another one; what control takes makes room.
    #[test]
    fn a_port_that_floods_leaves_room_to_others() {
        let (sender, receiver) = std::sync::mpsc::sync_channel(2 * WAITING_MAX as usize);
        let (counters, waiting) =
            (Arc::new(SwitchCounters::default()), Arc::new(Waiting::default()));
        let mut stations = Stations::new(Some(sender), waiting.clone(), counters.clone());
        let event = |number: u32, port| {
            let [a, b, c, d] = number.to_be_bytes();
            StationEvent { vlan: 1, mac: [2, 0, a, b, c, d], port }
        };
        for number in 0..20_000 {
            stations.send(event(number, 3), false, 1_000);
        }
        assert_eq!(receiver.try_iter().count(), WAITING_MAX as usize / 2);
        assert_eq!(counters.events_lost.get(), 20_000 - u64::from(WAITING_MAX / 2));
        for number in 0..100 {
            stations.send(event(30_000 + number, 4), false, 1_000);
        }
        let received: Vec<_> = receiver.try_iter().collect();
        assert_eq!(received.len(), 100);
        (0..10).for_each(|_| waiting.end(3));
        for number in 0..10 {
            stations.send(event(40_000 + number, 3), false, 1_000);
        }
        assert_eq!(
            receiver.try_iter().count(),
            0,
            "it has no share of the places of the other one"
        );
        received.iter().for_each(|event| waiting.end(event.port));
        (0..100).for_each(|_| waiting.end(3));
        for number in 0..10 {
            stations.send(event(50_000 + number, 3), false, 1_000);
        }
        assert_eq!(receiver.try_iter().count(), 10);
    }

    #[test]
    fn stations_that_replace_others_are_limited_by_port() {
        let (sender, receiver) = std::sync::mpsc::sync_channel(8192);
        let counters = Arc::new(SwitchCounters::default());
        let mut stations = Stations::new(Some(sender), Arc::default(), counters.clone());
        let second = 1_000_000_000;
        for (number, now_ns) in (0..1500u16).map(|number| (number, 5 * second + u64::from(number)))
        {
            let [a, b] = number.to_be_bytes();
            stations.send(StationEvent { vlan: 1, mac: [2, 0, 0, 0, a, b], port: 0 }, true, now_ns);
        }
        assert_eq!(receiver.try_iter().count(), REPLACED_PER_S as usize);
        assert_eq!(counters.table_full.get(), 500);
        let other = StationEvent { vlan: 1, mac: [2, 0, 0, 1, 0, 0], port: 1 };
        stations.send(other, true, 5 * second + 2000);
        stations.send(StationEvent { port: 0, ..other }, true, 6 * second);
        assert_eq!(
            receiver.try_iter().count(),
            2,
            "stations of other ports are not limited, nor the next second"
        );
    }
}
