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
