//! `workers = "auto"`: whether one worker opens, or seals, the packets of an association, by measured load.
//!
//! Workers that have packets of an association in turn pass its window or its numbers, and its counts, from core to core; a worker that hands a packet
//! over has the other core load it, and decodes it twice; one that is to be sealed has its route looked up twice. So handing over can pay for an association whose packets change worker
//! nearly as often as they come, in small batches, and costs where each worker has many at a time. Once a second control looks at
//! how busy workers were, and at what was counted:
//!
//! ```text
//!  any ──▶ one    every second packet changes worker at least, and with all of them the worker is busy for ROOM at most
//!  one ──▶ any    no packet came; or the worker is busy for FULL at least, which takes one association from it
//! ```
//!
//! What an association takes of a worker is its part of all packets that the workers received, with all that they did with them.
//! The bounds are chosen, not measured: a change of worker moves three lines of a cache or more, a packet that is handed over as many.
//!
//! The order of a flow's packets stays. Only where an association goes back to all workers because its worker is full, packets
//! that wait for that one may be overtaken by later ones.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipsec::{Association, Direction};

/// Packets for each change of worker, at most.
const PACKETS_A_CHANGE: u64 = 2;
/// Parts of a worker's time.
const ROOM: f64 = 0.6;
const FULL: f64 = 0.8;

/// What a worker has counted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Work {
    /// Packets that it received.
    pub(super) packets: u64,
    /// Nanoseconds in which it had something to do.
    pub(super) busy_ns: u64,
}

/// What was counted at the last look.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// By association: packets, and changes of worker.
    before: HashMap<(u32, IpAddr), [u64; 2]>,
    workers: Vec<Work>,
    at_ns: u64,
}

impl Loads {
    /// Gives associations one worker, or all of them. `workers`: what each of them has counted.
    pub(super) fn look(&mut self, all: Vec<&Arc<Association>>, workers: &[Work], now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.at_ns).max(1) as f64;
        // Others than before are counted from the next look on.
        let is_first = self.at_ns == 0 || self.workers.len() != workers.len();
        let since = |(now, before): (&Work, &Work)| Work {
            packets: now.packets.saturating_sub(before.packets),
            busy_ns: now.busy_ns.saturating_sub(before.busy_ns),
        };
        let work: Vec<Work> = workers.iter().zip(&self.workers).map(since).collect();
        let sum = |of: fn(&Work) -> u64| work.iter().map(of).sum::<u64>() as f64;
        let packet_ns = sum(|own| own.busy_ns) / sum(|own| own.packets).max(1.0);
        // How much of its time each is busy, with what it is given now.
        let mut busy: Vec<f64> = work.iter().map(|own| own.busy_ns as f64 / elapsed_ns).collect();
        (self.workers, self.at_ns) = (workers.to_vec(), now_ns);
        let mut now = HashMap::with_capacity(all.len());
        for own in all {
            let does = match own.parameters().direction {
                Direction::In => "open",
                Direction::Out => "seal",
            };
            let (spi, destination) = (own.parameters().spi, own.parameters().destination);
            let ((last, changes), [_, packets, ..]) = (own.noted(), own.counts());
            let before = self.before.get(&(spi, destination)).copied();
            now.insert((spi, destination), [packets, changes]);
            let Some([had_packets, had_changes]) = before.filter(|_| !is_first) else { continue };
            let packets = packets.saturating_sub(had_packets);
            let changes = changes.saturating_sub(had_changes);
            let share = packets as f64 * packet_ns / elapsed_ns;
            let is_often = changes > 0 && packets <= changes * PACKETS_A_CHANGE;
            match (own.worker(), last) {
                (None, Some(worker)) if is_often => {
                    let Some(busy) = busy.get_mut(usize::from(worker)) else { continue };
                    if *busy + share > ROOM {
                        continue;
                    }
                    *busy += share;
                    own.set_worker(Some(worker));
                    tracing::info!(
                        "IPsec: worker {worker} {does}s the packets of association {spi:#x} to {destination}: {changes} changes of \
                         worker, {packets} packets"
                    );
                }
                (Some(worker), _) => {
                    let busy = busy.get_mut(usize::from(worker));
                    let is_full = busy.as_ref().is_none_or(|busy| **busy >= FULL);
                    if packets > 0 && !is_full {
                        continue;
                    }
                    // Others that it has stay, if that is enough.
                    if let Some(busy) = busy {
                        *busy -= share;
                    }
                    own.set_worker(None);
                    tracing::info!(
                        "IPsec: all workers {does} the packets of association {spi:#x} to {destination} again: {packets} packets, {:.0} \
                         % of worker {worker}",
                        share * 100.0
                    );
                }
                _ => {}
            }
        }
        self.before = now;
    }
}

#[cfg(test)]
mod tests {
    use crypto::{Authentication, Encryption, Icv, Key, KeySize, Secret, Suite};
    use ipsec::{Database, Parameters};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Associations of two workers, in and out by turns, which have counted something.
    struct Bed {
        database: Database,
        workers: [Work; 2],
        loads: Loads,
        second: u64,
    }

    impl Bed {
        fn new(associations: u32) -> Self {
            let gcm = Encryption::AesGcm(KeySize::Bits128, Icv::Bytes16);
            let suite = Suite::new(gcm, Authentication::None).unwrap();
            let mut database = Database::new();
            for spi in 0x101..0x101 + associations {
                let secret = Secret::new(vec![spi as u8; 20]);
                let key = Key::new(suite, &secret, &Secret::none()).unwrap();
                let ends = ("198.51.100.1".parse().unwrap(), "192.0.2.1".parse().unwrap());
                let direction = [Direction::Out, Direction::In][spi as usize % 2];
                database.add(Parameters::new(direction, spi, ends, 1), key, 0).unwrap();
            }
            Self { database, workers: [Work::default(); 2], loads: Loads::default(), second: 0 }
        }

        fn get(&self, spi: u32) -> &Arc<Association> {
            self.database.get(spi, "192.0.2.1".parse().unwrap()).unwrap()
        }

        /// Packets that two workers receive in turn, so many at a time, and that one of them has if it is to.
        fn come(&mut self, batch: usize, spi: u32, packets: usize, packet_ns: u64) {
            let worker = self.get(spi).worker();
            for at in 0..packets {
                let received = at / batch % 2;
                let opened = worker.map_or(received, usize::from);
                let own = self.get(spi);
                own.note_worker(opened as u16);
                own.count(100, 0).unwrap();
                self.workers[received].packets += 1;
                self.workers[opened].busy_ns += packet_ns;
            }
        }

        fn look(&mut self) -> Vec<Option<u16>> {
            self.second += 1;
            self.loads.look(self.database.associations(), &self.workers, self.second * SECOND);
            let mut all: Vec<_> = self.database.associations();
            all.sort_by_key(|own| own.parameters().spi);
            all.iter().map(|own| own.worker()).collect()
        }
    }

    #[test]
    fn associations_are_given_and_taken_workers_by_what_was_counted() {
        let mut bed = Bed::new(2);
        bed.come(1, 0x101, 1000, 1000);
        assert_eq!(bed.look(), [None, None], "nothing to compare with");
        bed.come(1, 0x101, 1000, 1000);
        bed.come(32, 0x102, 1000, 1000);
        assert_eq!(bed.look(), [Some(1), None], "the other one comes in larger batches");
        bed.come(1, 0x101, 1000, 1000);
        assert_eq!(bed.look(), [Some(1), None]);
        assert_eq!(bed.look(), [None, None], "nothing came");
        bed.come(1, 0x101, 1000, 1000);
        assert_eq!(bed.look(), [Some(1), None]);
    }

    /// Whether one is too much for a worker, or many that are little are.
    #[test]
    fn no_worker_is_given_more_than_it_has_time_for() {
        let mut bed = Bed::new(8);
        bed.look();
        let mut come = |packet_ns| {
            (0x101..0x109).for_each(|spi| bed.come(1, spi, 1000, packet_ns));
            bed.look().iter().flatten().count()
        };
        // All of them are a fifth of a worker.
        assert_eq!(come(25_000), 8);
        // They are a whole one now: it gives some back, until it has room, and is given none again.
        assert_eq!([125_000; 5].map(&mut come), [6, 5, 4, 4, 4]);
        // Each is half of a worker: nobody has one.
        assert_eq!([400_000; 4].map(&mut come)[3], 0);
    }
}
