//! Telling the neighbour resolver, without ever waiting for it.
//!
//! * **Wanted**: whoever holds packets asks, and asks again while they wait ([`super::neighbours`] has the times). A
//!   question is in the channel, or the caller learns that it is not. None is left out here: the same neighbour may have
//!   been found and forgotten within a millisecond.
//! * **Seen**: a flood of ARP packets must not become a flood of events. The same event passes [`BURST`] times at once,
//!   and once in [`QUIET_NS`] after that. A small direct-mapped memory of the last events is enough for that; where two
//!   share a place, the only harm is an event more. More than one passes because a neighbour gives the same answer to
//!   each question: to that of before and of after a link was down.
//! * **Different** ones are limited, too: about packets of one port, [`PORT_RATE`] events a second. A neighbour that invents
//!   neighbours cannot fill the channel, which all ports share.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use lookup::fib::NeighbourEvent;

use super::counters::RouterCounters;
use super::errors::Limits;

/// How often the same event passes in a flood of it.
pub(super) const QUIET_NS: u64 = 100_000_000;

/// How many of the same event pass at once.
const BURST: u64 = 4;

const PLACES: usize = 256;

/// Events about packets of one port, a second at each worker, and at once. The resolver handles a hundred times as many.
const PORT_RATE: u32 = 2_000;
const PORT_BURST: u32 = 256;

/// The sending end at one stage.
pub(super) struct Events {
    sender: Option<SyncSender<NeighbourEvent>>,
    counters: Arc<RouterCounters>,
    recent: Box<[Recent]>,
    ports: Limits,
    seed: u64,
}

/// An event that was sent a moment ago.
#[derive(Clone, Copy, Default)]
struct Recent {
    /// Its hash; 0 if there is none.
    key: u64,
    /// When all of [`BURST`] may be sent again (the theoretical arrival time of the generic cell rate algorithm, ITU-T
    /// I.371).
    due_ns: u64,
}

impl Recent {
    /// What it is after the event `key` was sent once more; `None` if that is too often.
    fn after(self, key: u64, now_ns: u64) -> Option<Self> {
        // Time that went backwards is not a reason to keep silent.
        let is_same = self.key == key && self.due_ns <= now_ns.saturating_add(BURST * QUIET_NS);
        let due_ns = if is_same { self.due_ns.max(now_ns) } else { now_ns };
        let is_free = due_ns <= now_ns.saturating_add((BURST - 1) * QUIET_NS);
        is_free.then(|| Self { key, due_ns: due_ns.saturating_add(QUIET_NS) })
    }
}

impl Events {
    pub(super) fn new(
        sender: Option<SyncSender<NeighbourEvent>>,
        counters: Arc<RouterCounters>,
        seed: u64,
    ) -> Self {
        let recent = vec![Recent::default(); PLACES].into_boxed_slice();
        Self { sender, counters, recent, ports: Limits::new(), seed }
    }

    /// Sends what a packet that came in by `port` said of a neighbour, unless the same was sent too often a moment ago, or
    /// too much about packets of that port. It may be lost, as the packet could have been.
    #[cold]
    pub(super) fn seen(&mut self, port: u16, event: NeighbourEvent, now_ns: u64) {
        let key = self.hash(event) | 1; // 0 is an empty place
        let place = key as usize / 2 % PLACES;
        let Some(after) = self.recent[place].after(key, now_ns) else { return };
        if !self.ports.take(port, PORT_RATE, PORT_BURST, now_ns) {
            self.counters.events_lost.add(1);
        } else if self.send(event) {
            self.recent[place] = after;
        }
    }

    /// Of an event, which a neighbour chooses: nobody who does not know the seed finds two that share a place.
    fn hash(&self, event: NeighbourEvent) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, event).hash(&mut hasher);
        hasher.finish()
    }

    /// Asks for the neighbour of a packet that came in by `port` and that may not wait. Like [`Events::seen`].
    #[cold]
    pub(super) fn wanted_by(&mut self, port: u16, interface: u16, address: IpAddr, now_ns: u64) {
        self.seen(port, NeighbourEvent::Wanted { interface, address }, now_ns);
    }

    /// Asks for a neighbour; `false` if the question is not on its way, because the channel is full.
    #[cold]
    pub(super) fn wanted(&self, interface: u16, address: IpAddr) -> bool {
        self.send(NeighbourEvent::Wanted { interface, address })
    }

    /// `true` without a resolver, too: nobody is to ask again.
    fn send(&self, event: NeighbourEvent) -> bool {
        let Some(sender) = &self.sender else { return true };
        let sent = sender.try_send(event).is_ok();
        if !sent {
            self.counters.events_lost.add(1);
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(depth: usize) -> (Events, std::sync::mpsc::Receiver<NeighbourEvent>) {
        let (sender, receiver) = std::sync::mpsc::sync_channel(depth);
        (Events::new(Some(sender), Arc::default(), 5), receiver)
    }

    #[test]
    fn a_question_is_sent_or_said_to_be_lost() {
        let (events, receiver) = events(2);
        let address = IpAddr::from([10, 0, 0, 1]);
        assert!(events.wanted(1, address));
        assert!(events.wanted(1, address), "the neighbour may have been forgotten since");
        assert!(!events.wanted(1, address), "the channel is full");
        assert_eq!(events.counters.events_lost.get(), 1);
        let wanted = NeighbourEvent::Wanted { interface: 1, address };
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [wanted; 2]);
        assert!(events.wanted(1, address));
    }

    #[test]
    fn a_flood_of_the_same_answer_is_a_few_events() {
        let (mut events, receiver) = events(64);
        let seen = |n: u8| NeighbourEvent::Seen {
            interface: 1,
            address: IpAddr::from([10, 0, 0, n]),
            mac: [2, 0, 0, 0, 0, n],
            solicited: true,
            overrides: true,
            asks_us: false,
        };
        // The answers before and after a link was down count both.
        let start = 5_000_000_000;
        for at_ms in [0, 30] {
            events.seen(1, seen(1), start + at_ms * 1_000_000);
            assert_eq!(receiver.try_iter().count(), 1, "{at_ms} ms");
        }
        // A second of a flood.
        let flood = start + QUIET_NS;
        (0..100_000).for_each(|n| events.seen(1, seen(1), flood + n * 10_000));
        let passed = receiver.try_iter().count() as u64;
        assert!((10..=10 + BURST).contains(&passed), "{passed}");
        events.seen(1, seen(2), flood);
        assert_eq!(receiver.try_iter().count(), 1, "another one is not held up");
        events.seen(1, seen(1), start - 1_000_000_000);
        assert_eq!(receiver.try_iter().count(), 1, "the clock was set back");
        // What is different comes at the rate of its port, and that of another port beside it.
        let other = |n: u32| NeighbourEvent::Wanted {
            interface: 1,
            address: IpAddr::from(n.to_be_bytes()),
        };
        let (later, mut passed) = (2 * flood, 0);
        for n in 0..100_000 {
            events.seen(1, other(n), later + u64::from(n) * 10_000);
            passed += receiver.try_iter().count() as u64;
            if n % 10_000 == 0 {
                events.seen(2, seen(9), later + u64::from(n) * 10_000);
                assert_eq!(receiver.try_iter().last(), Some(seen(9)), "{n}");
            }
        }
        assert!((2_000..=2_000 + u64::from(PORT_BURST)).contains(&passed), "{passed}");
        // What finds the channel full may be said again.
        let flood = 4 * flood;
        (0..64).for_each(|n| events.seen(1, seen(n), 2 * flood));
        assert_eq!(receiver.try_iter().count(), 64);
    }
}
