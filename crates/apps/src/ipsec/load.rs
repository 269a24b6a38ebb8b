//! `workers = "auto"`: whether one worker opens the packets of an association, by measured load.
//!
//! Workers that open packets of an association in turn pass its window and its counts from core to core; a worker that hands a packet
//! over has the other core load it, and decodes it twice. So handing over can pay for an association whose packets change worker
//! nearly as often as they come, in small batches, and costs where each worker opens many at a time. Once a second control looks at
//! what was counted, and at the time that opening has taken:
//!
//! ```text
//!  any ──▶ one    every second packet changes worker at least, and one worker is busy with them for ROOM at most
//!  one ──▶ any    no packet came; or one worker is busy with them for FULL at least
//! ```
//!
//! The bounds are chosen, not measured: a change of worker moves three lines of a cache or more, a packet that is handed over as many.
//!
//! The order of a flow's packets stays. Only where an association goes back to all workers because it is too much for one, packets
//! that wait for that one may be overtaken by later ones.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipsec::{Association, Direction};

use super::current::Counters;

/// Packets for each change of worker, at most.
const PACKETS_A_CHANGE: u64 = 2;
/// Shares of a worker's time.
const ROOM: f64 = 0.4;
const FULL: f64 = 0.8;

/// What was measured of an association since the last look.
#[derive(Debug, Clone, Copy)]
struct Load {
    packets: u64,
    /// Times that its packets came to another worker than before.
    changes: u64,
    /// Part of a worker's time that its packets take.
    share: f64,
}

impl Load {
    /// Whether it is to have one worker, as it `has` now or not.
    fn wants_one(&self, has: bool) -> bool {
        if has {
            return self.packets > 0 && self.share < FULL;
        }
        let is_often = self.changes > 0 && self.packets <= self.changes * PACKETS_A_CHANGE;
        is_often && self.share <= ROOM
    }
}

/// What was counted at the last look.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// Packets and changes of worker.
    before: HashMap<(u32, IpAddr), [u64; 2]>,
    opened: u64,
    opening_ns: u64,
    at_ns: u64,
}

impl Loads {
    /// Gives associations one worker, or all of them.
    pub(super) fn look(
        &mut self,
        all: Vec<&Arc<Association>>,
        counters: &[Arc<Counters>],
        now_ns: u64,
    ) {
        let sum = |of: fn(&Counters) -> u64| counters.iter().map(|own| of(own)).sum::<u64>();
        let (opened, opening_ns) = (sum(|own| own.opened.get()), sum(|own| own.opening_ns.get()));
        let elapsed_ns = now_ns.saturating_sub(self.at_ns).max(1);
        let packet_ns = opening_ns.saturating_sub(self.opening_ns) as f64
            / opened.saturating_sub(self.opened).max(1) as f64;
        let is_first = self.at_ns == 0;
        (self.opened, self.opening_ns, self.at_ns) = (opened, opening_ns, now_ns);
        let mut now = HashMap::with_capacity(all.len());
        for own in all.into_iter().filter(|own| own.parameters().direction == Direction::In) {
            let (spi, destination) = (own.parameters().spi, own.parameters().destination);
            let ((last, changes), [_, packets, ..]) = (own.noted(), own.counts());
            let before = self.before.get(&(spi, destination)).copied();
            now.insert((spi, destination), [packets, changes]);
            let Some([had_packets, had_changes]) = before.filter(|_| !is_first) else { continue };
            let packets = packets.saturating_sub(had_packets);
            let changes = changes.saturating_sub(had_changes);
            let share = packets as f64 * packet_ns / elapsed_ns as f64;
            let has = own.worker();
            let wants_one = Load { packets, changes, share }.wants_one(has.is_some());
            match (has, last) {
                (None, Some(worker)) if wants_one => {
                    own.set_worker(Some(worker));
                    tracing::info!(
                        "IPsec: worker {worker} opens the packets of association {spi:#x} to {destination}: {changes} changes of \
                         worker, {packets} packets"
                    );
                }
                (Some(_), _) if !wants_one => {
                    own.set_worker(None);
                    tracing::info!(
                        "IPsec: all workers open the packets of association {spi:#x} to {destination} again: {packets} packets, {:.0} \
                         % of a worker",
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

    #[test]
    fn packets_that_change_worker_often_and_are_few_get_one() {
        let load = |packets, changes, share| Load { packets, changes, share };
        assert!(load(1000, 900, 0.1).wants_one(false));
        assert!(!load(1000, 300, 0.1).wants_one(false), "in larger batches");
        assert!(!load(1000, 900, 0.5).wants_one(false), "too much for one worker");
        assert!(!load(0, 0, 0.0).wants_one(false));
        // One that has one worker changes it no more, and keeps it while it comes and fits.
        assert!(load(1000, 0, 0.7).wants_one(true));
        assert!(!load(1000, 0, 0.9).wants_one(true));
        assert!(!load(0, 0, 0.0).wants_one(true));
    }

    #[test]
    fn associations_are_given_and_taken_workers_by_what_was_counted() {
        const SECOND: u64 = 1_000_000_000;
        let gcm = Encryption::AesGcm(KeySize::Bits128, Icv::Bytes16);
        let suite = Suite::new(gcm, Authentication::None).unwrap();
        let ends = ("198.51.100.1".parse().unwrap(), "192.0.2.1".parse().unwrap());
        let mut database = Database::new();
        for spi in [0x101, 0x102] {
            let key = Key::new(suite, &Secret::new(vec![spi as u8; 20]), &Secret::none()).unwrap();
            database.add(Parameters::new(Direction::In, spi, ends, 1), key, 0).unwrap();
        }
        let counters = [Arc::<Counters>::default(), Arc::default()];
        let mut loads = Loads::default();
        let get = |spi| database.get(spi, ends.1).unwrap();
        // One association is opened by two workers in turn, the other one by batches.
        let come = |batch: usize, spi, packets: usize| {
            for at in 0..packets {
                get(spi).note_worker((at / batch % 2) as u16);
                get(spi).count(100, 0).unwrap();
            }
            counters[0].opened.add(packets as u64);
            counters[0].opening_ns.add(packets as u64 * 1000);
        };
        let mut second = 1;
        let mut look = || {
            loads.look(database.associations(), &counters, second * SECOND);
            second += 1;
            [0x101, 0x102].map(|spi| get(spi).worker())
        };
        come(1, 0x101, 1000);
        assert_eq!(look(), [None, None], "nothing to compare with");
        come(1, 0x101, 1000);
        come(32, 0x102, 1000);
        assert_eq!(look(), [Some(1), None]);
        come(1, 0x101, 1000);
        assert_eq!(look(), [Some(1), None]);
        assert_eq!(look(), [None, None], "nothing came");
        come(1, 0x101, 1000);
        assert_eq!(look(), [Some(1), None]);
        // A microsecond each: more than four fifths of a second.
        come(1, 0x101, 900_000);
        assert_eq!(look(), [None, None], "too much for one");
    }
}
