//! Applications on the data path.
//!
//! An application is a list of stages over a declaration of columns; the engine carries chunks
//! through it: the [`router`], the layer-2 [`switch`], the named-data forwarder [`ndn`]; the [`firewall`] is a stage of
//! the first two, and with a [`wire`] an application by itself. Their tables are parts of one version ([`controlplane::tables`]).
#![forbid(unsafe_code)]

pub mod firewall;
pub mod ndn;
#[cfg(test)]
mod requests;
pub mod router;
pub mod switch;
pub mod wire;

use control::config::{KnownStages, Pipeline, StageKind};

/// Every kind of stage, in an order in which they make sense: what decodes, what decides, what sends.
pub fn stage_kinds() -> Vec<StageKind> {
    let all =
        [router::STAGES, switch::STAGES, ndn::STAGES, wire::STAGES, firewall::STAGES].concat();
    let rank = |kind: &StageKind| match kind {
        StageKind { is_first: true, .. } => 0,
        StageKind { is_last: true, .. } => 3,
        // What only drops comes before the lookups whose work it saves.
        StageKind { provides: [], .. } => 1,
        _ => 2,
    };
    let mut kinds = all;
    kinds.sort_by_key(|kind| (rank(kind), kind.application.joins.is_none()));
    kinds
}

/// The stages of all applications, and the pipelines that `mode` names.
pub fn known_stages() -> KnownStages {
    let mut known = KnownStages { kinds: stage_kinds(), ..KnownStages::default() };
    let shipped = [
        ("router", router::DEFAULT_STAGES),
        ("switch", switch::DEFAULT_STAGES),
        ("ndn", ndn::DEFAULT_STAGES),
        ("wire", wire::DEFAULT_STAGES),
    ];
    let modes = shipped.map(|(name, stages)| Pipeline {
        name: name.to_owned(),
        applications: known.arrange(stages).expect("a shipped pipeline"),
        stages: stages.iter().map(|stage| (*stage).to_owned()).collect(),
        max_delay: None,
    });
    known.modes = modes.into();
    known
}
