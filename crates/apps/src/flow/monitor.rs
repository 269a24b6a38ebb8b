//! A monitor: packets end here.
//!
//! Threads: one instance per worker, without state.

use chunk::{Chunk, ReasonBlock, Verdict};
use controlplane::{ControlPart, Setup, Tables, WorkerSetup};
use engine::{Context, Phases, Stage};

use super::reasons;

/// Name of the stage and of the application.
pub const STAGE: &str = "monitor";

/// It has no tables and nothing to ask for.
struct MonitorControl;

pub(super) fn start(
    _setup: &Setup<'_>,
    _tables: &mut Tables,
) -> Result<Box<dyn ControlPart>, String> {
    Ok(Box::new(MonitorControl))
}

impl ControlPart for MonitorControl {
    fn stage(&mut self, kind: &str, _worker: &WorkerSetup<'_>) -> Option<Box<dyn Stage<Tables>>> {
        (kind == STAGE).then(|| Box::new(Monitor) as _)
    }
}

/// The stage.
#[derive(Debug, Default)]
pub struct Monitor;

impl<T: Send + Sync + 'static> Stage<T> for Monitor {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn phases(&self) -> Phases {
        Phases::POST
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        &[reasons::BLOCK]
    }

    /// No byte is looked at.
    fn takes_offloads(&self) -> bool {
        true
    }

    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, T>) {
        for verdict in chunk.rows.verdicts() {
            if Verdict(*verdict).is_next() {
                *verdict = Verdict::drop(reasons::MONITORED).0;
            }
        }
    }
}
