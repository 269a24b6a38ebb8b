//! Who opens or seals the packets of an association (`workers` of `[ipsec]`), as one worker sees it.
//!
//! A worker without this pipeline cannot be given packets: those of its associations stay with whoever receives them. Those of one that
//! gave its stages up go to who works for it.
//!
//! Threads: each stage has its own.

use control::config::SaWorkers;
use controlplane::Tables;
use engine::Context;
use ipsec::Association;

/// What a stage knows of workers.
pub(super) struct Owners {
    workers: SaWorkers,
    /// Its own worker.
    worker: u16,
    /// By worker: who gets the packets that are handed to it.
    reach: Vec<Option<u16>>,
}

impl Owners {
    /// Nothing is known of others yet.
    pub(super) fn new(workers: SaWorkers) -> Self {
        Self { workers, worker: 0, reach: Vec::new() }
    }

    /// Whether packets are handed over at all.
    pub(super) fn hand_over(&self) -> bool {
        self.workers != SaWorkers::Any
    }

    /// Looks at the workers, for a chunk.
    pub(super) fn look(&mut self, cx: &Context<'_, Tables>) {
        self.worker = cx.worker;
        if self.hand_over() {
            self.reach.clear();
            self.reach.extend((0..cx.workers()).map(|worker| cx.hands_to(worker as u16)));
        }
    }

    /// The other worker that opens or seals the packets of an association, if one does. `is_handed`: this one was given the packet.
    #[inline]
    pub(super) fn elsewhere(&self, association: &Association, is_handed: bool) -> Option<u16> {
        let own = match self.workers {
            SaWorkers::Any => return None,
            SaWorkers::One => association.claim(self.worker),
            SaWorkers::Auto => association.worker()?,
        };
        let to = (*self.reach.get(usize::from(own))?)?;
        (to != self.worker && !is_handed).then_some(to)
    }

    /// Counts packets of an association for `auto`.
    #[inline]
    pub(super) fn note<'a>(&self, all: impl Iterator<Item = &'a Association>) {
        if self.workers == SaWorkers::Auto {
            all.for_each(|own| own.note_worker(self.worker));
        }
    }
}

#[cfg(test)]
mod tests {
    use crypto::{Authentication, Encryption, Icv, Key, KeySize, Secret, Suite};
    use ipsec::{Direction, Parameters};

    use super::*;

    fn association() -> Association {
        let cipher = Encryption::AesGcm(KeySize::Bits128, Icv::Bytes16);
        let suite = Suite::new(cipher, Authentication::None).unwrap();
        let key = Key::new(suite, &Secret::new(vec![7; 20]), &Secret::none()).unwrap();
        let ends = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        Association::new(Parameters::new(Direction::Out, 0x1000, ends, 1), key, 0).unwrap()
    }

    /// Worker `own` of three, where each hands packets to `reach`.
    fn owners(workers: SaWorkers, own: u16, reach: [Option<u16>; 3]) -> Owners {
        Owners { workers, worker: own, reach: reach.to_vec() }
    }

    #[test]
    fn packets_go_to_who_works_for_a_worker_that_gave_up() {
        for workers in [SaWorkers::One, SaWorkers::Auto] {
            let association = association();
            let all = [Some(0), Some(1), Some(2)];
            association.set_worker(Some(1));
            let asked = |own, reach, is_handed| {
                owners(workers, own, reach).elsewhere(&association, is_handed)
            };
            assert_eq!([0, 1, 2].map(|own| asked(own, all, false)), [Some(1), None, Some(1)]);
            // Worker 1 gave up, and 2 works for it.
            let heir = [Some(0), Some(2), Some(2)];
            assert_eq!([0, 2].map(|own| asked(own, heir, false)), [Some(2), None]);
            assert_eq!(asked(0, heir, true), None, "what is given goes no further");
            // Nobody has its pipeline.
            let nobody = [Some(0), None, Some(2)];
            assert_eq!([0, 2].map(|own| asked(own, nobody, false)), [None, None]);
        }
    }

    #[test]
    fn the_first_worker_keeps_an_association_where_each_has_one() {
        let association = association();
        let reach = [Some(0), Some(1), Some(2)];
        let asked = |own| owners(SaWorkers::One, own, reach).elsewhere(&association, false);
        assert_eq!([2, 0, 1, 2].map(asked), [None, Some(2), Some(2), None]);
        assert_eq!(owners(SaWorkers::Any, 0, reach).elsewhere(&association, false), None);
    }
}
