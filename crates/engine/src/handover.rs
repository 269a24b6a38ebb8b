//! One engine after another over the same queues: how stages, pipelines and ports change while the program runs.
//!
//! ```text
//!  Engine ─ suspend ─▶ Suspended ─ bequeath ─▶ stages of the next engine have what these held
//!                          │
//!                          └─ into_queues ─▶ RxSlot, TxSlot ─▶ EngineSpec { before, … }, Reserve ─▶ Engine
//! ```
//!
//! While none runs, packets wait where queues have their room: in the rings of the kernel. So the gap is kept short:
//! what takes time (opening ports and devices, building tables, making stages) and what may fail
//! ([`EngineSpec::reserve`](crate::EngineSpec::reserve)) is done before [`Engine::suspend`]. Packets that were received
//! before it have come to their end; those that a stage holds stay with the stage that inherits from it
//! ([`Stage::inherit`](crate::Stage::inherit)), or are drained. Counters, captures and traces go on
//! ([`EngineSpec::before`](crate::EngineSpec::before)).
//!
//! Threads: a [`Suspended`] belongs to whoever has it; all threads of its engine have ended.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, WorkerSpec};
use crate::stage::Versions;
use crate::view::EngineView;
use crate::worker::{RxSlot, TxSlot, Worker};

/// An engine that has stopped, with its queues and stages.
pub struct Suspended<V: Versions> {
    workers: Vec<Worker<V>>,
    view: Arc<EngineView>,
}

/// The queues of one worker, as it was given them. Queues of a worker that gave its stages up are its heir's.
#[derive(Default)]
pub struct WorkerQueues {
    /// To receive from.
    pub rx: Vec<RxSlot>,
    /// By port.
    pub tx: Vec<TxSlot>,
    /// By interface: of its twin.
    pub host: Vec<TxSlot>,
}

impl<V: Versions> Engine<V> {
    /// Stops as [`Engine::stop`] does, but keeps queues and stages for the next engine. For engines that started by
    /// [`Engine::start`].
    ///
    /// # Errors
    /// The panic message of a worker that died; all queues are closed then.
    pub fn suspend(self, patience: Duration) -> Result<Suspended<V>, String> {
        let view = self.view().clone();
        let (workers, died) = self.end_workers(patience);
        match died {
            None => Ok(Suspended { workers, view }),
            Some(panic) => {
                workers.into_iter().for_each(Worker::recycle);
                Err(panic)
            }
        }
    }
}

impl<V: Versions> Suspended<V> {
    /// What was seen of the engine, for [`EngineSpec::before`](crate::EngineSpec::before).
    pub fn view(&self) -> &Arc<EngineView> {
        &self.view
    }

    /// Lets the stages of `workers`, which have seen no packet, inherit from those of the same worker, pipeline and name.
    /// Call it once, before [`Suspended::into_queues`].
    pub fn bequeath(&mut self, workers: &mut [WorkerSpec<V>]) {
        for (old, new) in self.workers.iter_mut().zip(workers) {
            for pipeline in &mut new.pipelines {
                for stage in &mut pipeline.stages {
                    if let Some(before) = old.stage_of(&self.view, &pipeline.name, stage.name()) {
                        stage.inherit(&mut **before);
                    }
                }
            }
        }
    }

    /// The queues, by worker. What stages still hold is drained: tables that they read must still be there.
    pub fn into_queues(self) -> Vec<WorkerQueues> {
        self.workers.into_iter().map(Worker::into_queues).collect()
    }
}
