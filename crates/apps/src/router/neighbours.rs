//! Packets that wait for a neighbour's MAC address.
//!
//! A queue for each (interface, address), first in first out, bounded each and in total by the
//! options: a scan of a connected network must not eat the cells. Packets that came in by one port may take as many places
//! as are free (dynamic thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998), so a scan from one
//! port leaves room for packets of others. All queues lie in one slab of slots, linked by number, which grows to the bound
//! once and is recycled.
//!
//! The resolver is asked for the neighbour of a queue when its first packet comes, and again as long as packets wait: at
//! once, [`AT_ONCE`] times at most, where a new version still has no MAC for it, and otherwise after 0.1 s, 0.2 s, 0.4 s
//! and so on. It may have forgotten the question: an interface that was down for a millisecond has lost all of its
//! neighbours, and those that were asked for.
//!
//! ```text
//!  index: (interface, address) ─▶ place in queues
//!  queues: [ key, head, tail, count ]      slots: [ packet, next ] …      free ─▶ slot ─▶ slot
//! ```

use std::collections::HashMap;
use std::net::IpAddr;

use chunk::Packet;
use lookup::fib::Options;

use super::rewrite::Transit;

/// A neighbour: its interface and its address.
pub(super) type Key = (u16, IpAddr);

const NONE: u32 = u32::MAX;

/// How long after the first question for a neighbour the second one follows; then twice as long each time.
const AGAIN_NS: u64 = 100_000_000;

/// How many questions for a neighbour do not wait for that.
const AT_ONCE: u32 = 4;

/// All packets that wait at one worker.
pub(super) struct Waiting {
    slots: Vec<Slot>,
    free: u32,
    queues: Vec<Queue>,
    index: HashMap<Key, u32>,
    len: usize,
    /// How many of them came in by each port.
    by_port: Vec<u32>,
    wait_ns: u64,
}

/// Why a packet may not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// As many as may wait for its neighbour, which was asked for.
    Queue,
    /// As many as may wait for all neighbours, or as may of those that came in by its port.
    Room,
}

/// The last number of a port that is counted by itself; all above are counted together.
const PORT_MAX: u16 = 8191;

struct Slot {
    held: Option<(Packet, Transit)>,
    next: u32,
}

/// The packets of one neighbour.
pub(super) struct Queue {
    key: Key,
    head: u32,
    tail: u32,
    len: u32,
    /// Questions to the resolver so far.
    asked: u32,
    /// When the next one is due.
    ask_ns: u64,
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: NONE,
            queues: Vec::new(),
            index: HashMap::new(),
            len: 0,
            by_port: Vec::new(),
            wait_ns: Options::default().neighbour_wait_ns,
        }
    }

    /// Packets that wait.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// When the first of them has waited long enough.
    pub(super) fn expires_ns(&self) -> Option<u64> {
        let since = self.queues.iter().filter_map(|q| {
            self.slots[q.head as usize].held.as_ref().map(|(_, transit)| transit.since_ns)
        });
        since.min().map(|since| since.saturating_add(self.wait_ns))
    }

    pub(super) fn set_wait_ns(&mut self, wait_ns: u64) {
        self.wait_ns = wait_ns;
    }

    /// Takes `packet` over, leaving an empty one; the place of its queue.
    ///
    /// # Errors
    /// Nothing is taken: its queue, all of them, or the share of the port by which it came is full.
    pub(super) fn push(
        &mut self,
        key: Key,
        packet: &mut Packet,
        transit: Transit,
        options: &Options,
    ) -> Result<usize, Full> {
        let total = options.neighbour_queue_total_packets as usize;
        let port = usize::from(packet.port.min(PORT_MAX));
        if port >= self.by_port.len() {
            self.by_port.resize(port + 1, 0); // once for each port
        }
        if self.len + self.by_port[port] as usize >= total {
            return Err(Full::Room);
        }
        if self.slots.capacity() < total {
            // Once, at the first miss, or when the options allow more. Room for twice as many
            // keys as can be: then the map cleans up after removals without growing.
            self.slots.reserve_exact(total - self.slots.len());
            self.queues.reserve_exact(total - self.queues.len());
            self.index.reserve(2 * total);
        }
        let place = match self.index.get(&key) {
            Some(&place) => place as usize,
            None => {
                self.index.insert(key, self.queues.len() as u32);
                self.queues.push(Queue {
                    key,
                    head: NONE,
                    tail: NONE,
                    len: 0,
                    asked: 0,
                    ask_ns: 0,
                });
                self.queues.len() - 1
            }
        };
        if self.queues[place].len >= options.neighbour_queue_packets {
            if self.queues[place].len == 0 {
                self.take(place); // a bound of zero: leave no empty queue behind
            }
            return Err(Full::Queue);
        }
        let held = Some((std::mem::replace(packet, Packet::empty()), transit));
        let slot = Slot { held, next: NONE };
        let number = if self.free == NONE {
            self.slots.push(slot);
            self.slots.len() as u32 - 1
        } else {
            let number = self.free;
            self.free = std::mem::replace(&mut self.slots[number as usize], slot).next;
            number
        };
        let queue = &mut self.queues[place];
        if queue.tail == NONE {
            queue.head = number;
        } else {
            self.slots[queue.tail as usize].next = number;
        }
        queue.tail = number;
        queue.len += 1;
        self.len += 1;
        self.by_port[port] += 1;
        Ok(place)
    }

    /// Key and first packet of the queue at `place`; `None` behind the last one.
    pub(super) fn first(&self, place: usize) -> Option<(Key, &(Packet, Transit))> {
        let queue = self.queues.get(place)?;
        Some((queue.key, self.slots[queue.head as usize].held.as_ref()?))
    }

    /// Asks the resolver for the neighbour of the queue at `place`, if that is due: `ask` returns whether the question is
    /// on its way.
    pub(super) fn ask(&mut self, place: usize, now_ns: u64, ask: impl FnOnce() -> bool) {
        if let Some(queue) = self.queues.get_mut(place)
            && now_ns >= queue.ask_ns
            && ask()
        {
            queue.ask_ns = now_ns.saturating_add(AGAIN_NS << queue.asked.min(20));
            queue.asked += 1;
        }
    }

    /// The tables have changed and the neighbour of the queue at `place` is still unknown: it is asked for anew.
    pub(super) fn doubt(&mut self, place: usize) {
        if let Some(queue) = self.queues.get_mut(place).filter(|queue| queue.asked < AT_ONCE) {
            queue.ask_ns = 0;
        }
    }

    /// Takes the queue at `place` out of the order; the last one moves there. Its packets still
    /// count until they are popped.
    pub(super) fn take(&mut self, place: usize) -> Queue {
        let queue = self.queues.swap_remove(place);
        self.index.remove(&queue.key);
        if let Some(moved) = self.queues.get(place) {
            self.index.insert(moved.key, place as u32);
        }
        queue
    }

    /// The next packet of a queue that was taken.
    pub(super) fn pop(&mut self, queue: &mut Queue) -> Option<(Packet, Transit)> {
        let slot = self.slots.get_mut(queue.head as usize)?;
        let number = std::mem::replace(&mut queue.head, slot.next);
        slot.next = self.free;
        self.free = number;
        self.len -= 1;
        let held = slot.held.take();
        if let Some((packet, _)) = &held {
            self.by_port[usize::from(packet.port.min(PORT_MAX))] -= 1;
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunk::{HugePages, Pool, Region};
    use proptest::prelude::*;
    use std::collections::{BTreeMap, VecDeque};

    fn key(n: u8) -> Key {
        (u16::from(n % 2), IpAddr::from([10, 0, 0, n]))
    }

    fn transit(n: u32) -> Transit {
        Transit { flags: 1, l3: 14, interface: 0, flow_hash: n, since_ns: n.into() }
    }

    #[test]
    fn a_neighbour_is_asked_for_as_long_as_packets_wait() {
        let (_, depot) = Region::new(64, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot, 8);
        let mut waiting = Waiting::new();
        let mut packet = Packet::copy_from(&mut pool, &[1]).unwrap();
        let place = waiting.push(key(1), &mut packet, transit(1), &Options::default()).unwrap();
        let asked = |waiting: &mut Waiting, from_ms: u64, to_ms: u64, answer: bool| {
            let mut asked = Vec::new();
            for at_ms in from_ms..to_ms {
                waiting.ask(place, at_ms * 1_000_000, || {
                    asked.push(at_ms);
                    answer
                });
            }
            asked
        };
        assert_eq!(asked(&mut waiting, 0, 3, false), [0, 1, 2], "none of these got through");
        assert_eq!(asked(&mut waiting, 3, 3000, true), [3, 103, 303, 703, 1503]);
        // A version in which it is still unknown, and many more of them.
        let mut waiting = Waiting::new();
        waiting
            .push(
                key(1),
                &mut Packet::copy_from(&mut pool, &[1]).unwrap(),
                transit(1),
                &Options::default(),
            )
            .unwrap();
        let mut count = 0;
        for at_ms in 0..100 {
            waiting.doubt(place);
            count += asked(&mut waiting, at_ms, at_ms + 1, true).len();
        }
        assert_eq!(count as u32, AT_ONCE);
        while let Some(queue) = waiting.first(0).is_some().then(|| waiting.take(0)) {
            let mut queue = queue;
            while let Some((packet, _)) = waiting.pop(&mut queue) {
                packet.free(&mut pool);
            }
        }
    }

    proptest! {
        /// Against a map of deques: bounds, shares, order, counts.
        #[test]
        fn queues_are_bounded_and_in_order(
            steps in prop::collection::vec((any::<bool>(), 0u8..12, 0..5usize), 0..400),
        ) {
            const PORTS: [u16; 5] = [0, 1, 4096, 9000, chunk::PORT_NONE];
            let (_, depot) = Region::new(64, HugePages::Off).unwrap();
            let mut pool = Pool::new(depot.clone(), 8);
            let options = Options {
                neighbour_queue_packets: 4,
                neighbour_queue_total_packets: 20,
                ..Options::default()
            };
            let mut waiting = Waiting::new();
            let mut twin: BTreeMap<Key, VecDeque<u32>> = BTreeMap::new();
            let mut ports: BTreeMap<u32, u16> = BTreeMap::new();
            for (serial, (push, n, port)) in (0u32..).zip(steps) {
                let total: usize = twin.values().map(VecDeque::len).sum();
                prop_assert_eq!(waiting.len(), total);
                let first = twin.values().filter_map(|q| q.front()).min();
                prop_assert_eq!(
                    waiting.expires_ns(),
                    first.map(|&s| u64::from(s) + options.neighbour_wait_ns)
                );
                if push {
                    let mut packet = Packet::copy_from(&mut pool, &[n]).unwrap();
                    // The last two are no ports, and count as one.
                    packet.port = PORTS[port];
                    let of_port = ports.values().filter(|own| PORTS[port].min(8191) == **own).count();
                    let in_queue = twin.get(&key(n)).map_or(0, VecDeque::len);
                    let expected = match (of_port < 20 - total, in_queue < 4) {
                        (false, _) => Err(Full::Room),
                        (true, false) => Err(Full::Queue),
                        (true, true) => Ok(()),
                    };
                    let fits = expected.is_ok();
                    let pushed = waiting.push(key(n), &mut packet, transit(serial), &options);
                    prop_assert_eq!(pushed.map(drop), expected);
                    prop_assert_eq!(packet.is_empty(), fits);
                    packet.free(&mut pool);
                    if fits {
                        twin.entry(key(n)).or_default().push_back(serial);
                        ports.insert(serial, PORTS[port].min(8191));
                    }
                } else if let Some((found, _)) = waiting.first(n.into()) {
                    let mut queue = waiting.take(n.into());
                    for serial in twin.remove(&found).unwrap() {
                        let (packet, transit) = waiting.pop(&mut queue).unwrap();
                        prop_assert_eq!(transit.flow_hash, serial);
                        ports.remove(&serial);
                        packet.free(&mut pool);
                    }
                    prop_assert!(waiting.pop(&mut queue).is_none());
                }
            }
            while waiting.first(0).is_some() {
                let mut queue = waiting.take(0);
                while let Some((packet, _)) = waiting.pop(&mut queue) {
                    packet.free(&mut pool);
                }
            }
            prop_assert_eq!(waiting.len(), 0);
            drop(pool);
            prop_assert_eq!(depot.available(), 64);
        }
    }
}
