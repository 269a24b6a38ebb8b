//! Station events to control. Sending one never waits.
//!
//! Until control has learned a station, each of its frames would cause another event. An event that was sent less than
//! [`QUIET_NS`] ago is not repeated. A direct-mapped table of the last events is enough for that: where two share a
//! slot, the only harm is a repeated event, which control ignores.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use chunk::hash::key64;
use lookup::bridge::{StationEvent, station_key};

use super::counters::SwitchCounters;

/// How long the same event is not repeated.
pub(super) const QUIET_NS: u64 = 100_000_000;

const PLACES: usize = 4096;

/// The sending end at one worker.
pub(super) struct Stations {
    sender: Option<SyncSender<StationEvent>>,
    counters: Arc<SwitchCounters>,
    /// Hash of the event and when it was sent.
    recent: Box<[(u64, u64)]>,
    seed: u64,
}

impl Stations {
    pub(super) fn new(
        sender: Option<SyncSender<StationEvent>>,
        counters: Arc<SwitchCounters>,
    ) -> Self {
        let recent = vec![(0, 0); PLACES].into_boxed_slice();
        Self { sender, counters, recent, seed: RandomState::new().hash_one(0) }
    }

    /// Sends `event` unless it was sent a moment ago.
    #[cold]
    pub(super) fn send(&mut self, event: StationEvent, now_ns: u64) {
        let Some(sender) = &self.sender else { return };
        let key = station_key(event.vlan, event.mac) ^ u64::from(event.port) << 40;
        let hash = key64(key, self.seed) | 1; // 0 is an empty place
        let place = &mut self.recent[(hash >> 32) as usize % PLACES];
        // Time that went backwards is not a reason to keep silent.
        if place.0 == hash && now_ns >= place.1 && now_ns - place.1 < QUIET_NS {
            return;
        }
        if sender.try_send(event).is_ok() {
            *place = (hash, now_ns);
        } else {
            self.counters.events_lost.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_not_repeated_at_once_and_a_full_channel_is_counted() {
        let (sender, receiver) = std::sync::mpsc::sync_channel(2);
        let counters = Arc::new(SwitchCounters::default());
        let mut stations = Stations::new(Some(sender), counters.clone());
        let event = |last, port| StationEvent { vlan: 1, mac: [2, 0, 0, 0, 0, last], port };
        stations.send(event(1, 0), 1_000);
        stations.send(event(1, 0), 2_000);
        stations.send(event(1, 3), 2_000);
        let received: Vec<_> = receiver.try_iter().collect();
        assert_eq!(received, [event(1, 0), event(1, 3)], "another port is another event");
        stations.send(event(1, 3), 2_000 + QUIET_NS);
        stations.send(event(2, 3), 2_000 + QUIET_NS);
        stations.send(event(3, 3), 2_000 + QUIET_NS);
        assert_eq!(counters.events_lost.get(), 1);
        assert_eq!(receiver.try_iter().count(), 2);
        stations.send(event(3, 3), 2_001 + QUIET_NS);
        assert_eq!(receiver.try_iter().count(), 1, "what was lost may be said again");
    }
}
