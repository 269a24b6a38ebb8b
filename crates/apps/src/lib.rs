//! Applications on the data path.
//!
//! An application is a list of stages over a declaration of columns; the engine carries chunks
//! through it: the [`router`], the layer-2 [`switch`], the OpenFlow switch
//! [`mod@openflow`], the named-data forwarder [`ndn`]; the [`firewall`] is a stage of
//! the first two, and with a [`wire`] an application by itself; [`flow`] follows connections
//! in any of them, and by itself in a monitor; [`l7`] labels them with their applications; [`ids`] looks for what rules describe
//! in them; [`modules`] are those of a user; [`nat`](mod@nat) translates addresses in a router; [`cipher`] encrypts payload in any
//! of them; [`ipsec`](mod@ipsec) makes a router a gateway. Their tables are parts of one version ([`controlplane::tables`]).
#![forbid(unsafe_code)]

pub mod cipher;
pub mod firewall;
pub mod flow;
mod fragments;
pub mod ids;
pub mod ipsec;
mod key_file;
pub mod l7;
pub mod modules;
pub mod nat;
pub mod ndn;
mod neighbours;
pub mod openflow;
pub mod ports;
mod received;
pub(crate) mod records;
#[cfg(test)]
mod requests;
pub mod router;
pub mod switch;
pub mod wire;

use control::config::{KnownStages, Pipeline, RustModule, StageKind};
use controlplane::Descriptor;

/// The applications of the program, one line each. Their order is that of `ctl`, of reports and of metrics.
pub static DESCRIPTORS: &[&Descriptor] = &[
    &router::DESCRIPTOR,
    &switch::DESCRIPTOR,
    &ndn::DESCRIPTOR,
    &wire::DESCRIPTOR,
    &openflow::DESCRIPTOR,
    &firewall::DESCRIPTOR,
    &ids::DESCRIPTOR,
    &modules::DESCRIPTOR,
    &l7::DESCRIPTOR,
    &flow::DESCRIPTOR,
    &flow::MONITOR,
    &nat::DESCRIPTOR,
    &cipher::DESCRIPTOR,
    &ipsec::DESCRIPTOR,
];

/// The files of kernels of all applications, beside those of [`kernels::files::ALL`].
pub fn kernel_files() -> Vec<&'static kernels::KernelFile> {
    DESCRIPTORS.iter().flat_map(|own| own.kernels).copied().collect()
}

/// Every kind of stage of some applications, in an order in which they make sense: what decodes, what decides, what sends.
pub fn stage_kinds(descriptors: &[&Descriptor]) -> Vec<StageKind> {
    let kinds = descriptors.iter().flat_map(|own| own.stages).copied();
    let mut kinds: Vec<(usize, StageKind)> = kinds.enumerate().collect();
    let rank = |kind: &StageKind| match kind {
        StageKind { is_first: true, .. } => 0,
        StageKind { is_last: true, .. } => 5,
        // What encloses the others.
        own if own.application.joins_end == Some(own.name) => 4,
        own if own.application.joins_end.is_some() => 1,
        // What joins pipelines, and what only drops, comes before the lookups whose work it saves.
        own if own.application.joins.is_some() => 2,
        StageKind { provides: [], .. } => 2,
        _ => 3,
    };
    // Of two that join pipelines, the later one is put before the other.
    kinds.sort_by_key(|(number, kind)| match kind.application.joins {
        Some(_) => (rank(kind), 0, usize::MAX - number),
        None => (rank(kind), 1, *number),
    });
    kinds.into_iter().map(|(_, kind)| kind).collect()
}

/// The stages of all applications, and the pipelines that `mode` names.
pub fn known_stages() -> KnownStages {
    known_of(DESCRIPTORS)
}

/// The same of some applications.
pub fn known_of(descriptors: &[&Descriptor]) -> KnownStages {
    let mut known = KnownStages { kinds: stage_kinds(descriptors), ..KnownStages::default() };
    let shipped = descriptors.iter().filter(|own| !own.pipeline.is_empty());
    let modes = shipped
        .map(|own| known.pipeline(own.application.name, own.pipeline).expect("a shipped pipeline"));
    let modes: Vec<Pipeline> = modes.collect();
    known.modes = modes;
    let modules = descriptors.iter().flat_map(|own| own.modules);
    known.modules =
        modules.map(|own| RustModule { name: own.name, uses_flows: own.uses_flows }).collect();
    known
}
