//! What a worker that has ended leaves to that of the next engine.

use chunk::reasons;

use super::{TxSide, Worker};
use crate::handover::WorkerQueues;
use crate::stage::{Stage, Versions};
use crate::view::EngineView;

impl<V: Versions> Worker<V> {
    /// The stage of this name in the pipeline of that name.
    pub(crate) fn stage_of(
        &mut self,
        view: &EngineView,
        pipeline: &str,
        name: &str,
    ) -> Option<&mut Box<dyn Stage<V::Tables>>> {
        let mut first = 0;
        for own in &self.path.pipelines {
            let stages = first..first + own.stages.len();
            first = stages.end;
            if view.pipelines.get(usize::from(own.number)).is_some_and(|own| own.name == pipeline) {
                let mut stages = self.path.stages[stages].iter_mut();
                return stages.find(|stage| stage.name() == name);
            }
        }
        None
    }

    pub(crate) fn into_queues(mut self) -> WorkerQueues {
        if !self.is_drained {
            self.drain_stages();
        }
        // What was drained has its last chance to leave.
        self.flush();
        for again in self.again.iter_mut().flat_map(|waiting| waiting.drain(..)) {
            self.reports.counters.count_drop(reasons::TX_FULL);
            again.packet.free(&mut self.queues.pool);
        }
        for ring in &mut self.links.rings_in {
            while let Ok(passed) = ring.pop() {
                self.reports.counters.count_drop(reasons::TX_FULL);
                passed.into_packet().free(&mut self.queues.pool);
            }
        }
        for side in self.queues.tx.iter_mut().chain(&mut self.queues.host) {
            for packet in side.waiting.drain(..) {
                self.reports.counters.count_drop(reasons::TX_FULL);
                packet.free(&mut self.queues.pool);
            }
        }
        let mut rx = std::mem::take(&mut self.queues.rx);
        for slot in &mut rx {
            // Whether they must be finished on receipt, the next engine decides.
            if let Some(inner) = slot.queue.give_back() {
                slot.queue = inner;
            }
        }
        let slots = |sides: &mut Vec<TxSide>| {
            std::mem::take(sides).into_iter().map(|side| side.slot).collect()
        };
        let (tx, host) = (slots(&mut self.queues.tx), slots(&mut self.queues.host));
        WorkerQueues { rx, tx, host }
    }
}
