//! Telling the neighbour resolver, without ever waiting for it.
//!
//! A flood of ARP packets, or of packets to one silent neighbour, must not become a flood of
//! events: an event like one that was sent less than [`QUIET_NS`] ago is left out. A small
//! direct-mapped memory of the last events is enough for that; where two share a place, the only
//! harm is an event more.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use lookup::fib::NeighbourEvent;

use super::counters::RouterCounters;

/// How long the same event is not repeated.
pub(super) const QUIET_NS: u64 = 100_000_000;

const PLACES: usize = 256;

/// The sending end at one stage.
pub(super) struct Events {
    sender: Option<SyncSender<NeighbourEvent>>,
    counters: Arc<RouterCounters>,
    /// Hash of the event and when it was sent.
    recent: Box<[(u64, u64)]>,
    hasher: RandomState,
}

impl Events {
    pub(super) fn new(
        sender: Option<SyncSender<NeighbourEvent>>,
        counters: Arc<RouterCounters>,
    ) -> Self {
        let recent = vec![(0, 0); PLACES].into_boxed_slice();
        Self { sender, counters, recent, hasher: RandomState::new() }
    }

    /// Sends `event` unless it was sent a moment ago; `false` if the channel was full.
    #[cold]
    pub(super) fn send(&mut self, event: NeighbourEvent, now_ns: u64) -> bool {
        let Some(sender) = &self.sender else { return true };
        let mut hasher = self.hasher.build_hasher();
        match event {
            NeighbourEvent::Wanted { interface, address } => {
                (0u8, interface, address).hash(&mut hasher);
            }
            NeighbourEvent::Seen { interface, address, mac, solicited, overrides, asks_us } => {
                (1u8, interface, address, mac, solicited, overrides, asks_us).hash(&mut hasher);
            }
        }
        let key = hasher.finish() | 1; // 0 is an empty place
        let place = &mut self.recent[key as usize / 2 % PLACES];
        // Time that went backwards is not a reason to keep silent.
        if place.0 == key && now_ns >= place.1 && now_ns - place.1 < QUIET_NS {
            return true;
        }
        let sent = sender.try_send(event).is_ok();
        if sent {
            *place = (key, now_ns);
        } else {
            self.counters.events_lost.add(1);
        }
        sent
    }

    pub(super) fn wanted(&mut self, interface: u16, address: IpAddr, now_ns: u64) -> bool {
        self.send(NeighbourEvent::Wanted { interface, address }, now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_not_repeated_at_once_and_a_full_channel_is_counted() {
        let (sender, receiver) = std::sync::mpsc::sync_channel(2);
        let counters = Arc::new(RouterCounters::default());
        let mut events = Events::new(Some(sender), counters.clone());
        let address = IpAddr::from([10, 0, 0, 1]);
        assert!(events.wanted(1, address, 1_000));
        assert!(events.wanted(1, address, 2_000));
        assert!(events.wanted(2, address, 2_000), "another interface is another neighbour");
        assert_eq!(receiver.try_iter().count(), 2);
        assert!(events.wanted(1, address, 1_000 + QUIET_NS));
        assert!(events.wanted(3, address, 1_000 + QUIET_NS));
        assert!(!events.wanted(4, address, 1_000 + QUIET_NS));
        assert_eq!(counters.events_lost.get(), 1);
        assert_eq!(receiver.try_iter().count(), 2);
        assert!(events.wanted(4, address, 1_001 + QUIET_NS), "what was lost may be said again");
        assert_eq!(receiver.try_iter().count(), 1);
    }
}
