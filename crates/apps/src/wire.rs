//! A wire: what comes in by one port of a pair leaves by the other.
//!
//! ```text
//!  port 0 ──▶ firewall ──▶ wire ──▶ port 1        port 2 ◀──▶ port 3, and so on
//!  port 0 ◀── wire ◀── firewall ◀── port 1
//! ```
//!
//! A firewall by itself, which no host and no switch sees: nothing is learned, no address is ours, and frames that no
//! bridge forwards pass, too. The stage stands behind [`crate::firewall`] and needs no column but the verdict.
//!
//! | | |
//! | --- | --- |
//! | forward | out by the other port of the pair, as they are |
//!
//! Threads: one instance per worker, without state.

use chunk::{Chunk, Verdict};
use control::config::{Application, RAW, Settings, StageKind};
use controlplane::{ControlPart, Descriptor, Setup, Tables, WorkerSetup};
use engine::{Context, MARK_FROM_HOST, Phases, Stage};

/// What it has in the configuration.
pub static APPLICATION: Application = Application {
    name: "wire",
    title: "a wire",
    sections: &[],
    port_keys: &[],
    has_host: false,
    is_promiscuous: true,
    in_pairs: true,
    joins: None,
    joins_for: &[],
    joins_when: None,
    behind: &[],
    parts: None,
    joins_end: None,
};

/// Its stage.
pub const STAGES: &[StageKind] = &[StageKind {
    name: "wire",
    about: "Sends what comes in by one port of a pair out by the other.",
    application: &APPLICATION,
    needs: &[RAW],
    provides: &[],
    is_first: false,
    is_last: true,
    places: &[],
    leads_to: &[],
    settings: Settings::None,
}];

/// The stages that `mode = "wire"` stands for.
pub const DEFAULT_STAGES: &[&str] = &[crate::firewall::STAGE, "wire"];

/// What it declares.
pub static DESCRIPTOR: Descriptor = Descriptor {
    application: &APPLICATION,
    stages: STAGES,
    pipeline: DEFAULT_STAGES,
    kernels: &[],
    reasons: &[],
    requests: &[],
    tables: &[],
    groups: &[],
    absent: "this instance has no wire: its pipeline has no stage `wire`",
    start,
    ..Descriptor::NONE
};

/// A wire has no tables and nothing to ask for.
struct WireControl;

fn start(_setup: &Setup<'_>, _tables: &mut Tables) -> Result<Box<dyn ControlPart>, String> {
    Ok(Box::new(WireControl))
}

impl ControlPart for WireControl {
    fn stage(&mut self, kind: &str, _worker: &WorkerSetup<'_>) -> Option<Box<dyn Stage<Tables>>> {
        (kind == "wire").then(|| Box::new(Wire::new()) as _)
    }
}

/// The stage.
#[derive(Debug, Default)]
pub struct Wire(());

impl Wire {
    /// A stage without state.
    pub fn new() -> Self {
        Self(())
    }
}

/// The other port of a pair.
pub const fn partner(port: u16) -> u16 {
    port ^ 1
}

impl<T: Send + Sync + 'static> Stage<T> for Wire {
    fn name(&self) -> &'static str {
        "wire"
    }

    fn phases(&self) -> Phases {
        Phases::POST
    }

    /// Headers are all that is looked at, and all that is changed.
    fn takes_offloads(&self) -> bool {
        true
    }

    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, T>) {
        for (verdict, packet) in chunk.rows.verdicts().iter_mut().zip(&chunk.packets) {
            if Verdict(*verdict).is_next() {
                let own = packet.mark & MARK_FROM_HOST != 0;
                *verdict = Verdict::forward(if own { packet.port } else { partner(packet.port) }).0;
            }
        }
    }
}
