//! The control plane: what an application declares, and how the program joins applications.
//!
//! - [`application`]: a [`Descriptor`] for each application, and the [`ControlPart`] that it starts.
//! - [`request`]: its requests and tables of `ctl`.
//! - [`tables`]: the tables of all applications as one version; [`over`]: a stage over its own part of them.
//! - [`row_stage`]: small stages, from what they do to one packet.
//! - [`publisher`]: the one place from which tables become visible.
//! - [`control_loop`]: the thread that owns configuration, interfaces and parts of a live program; reload.
//! - [`ahead`]: over captures, parts that learn from frames before the pipeline sees them.
//! - [`module`]: modules in Rust, for packets of each layer.
//! - [`findings`]: what `check` finds in the files that a configuration names.
//! - [`statistics`]: what a running data path shows.
//! - [`memory`]: memory that is asked for before something is built.
//! - [`host_police`]: how many packets go to the twins.
//! - [`interfaces`]: numbers, names and records of interfaces; [`inject`]: frames that control sends.
#![forbid(unsafe_code)]

pub mod ahead;
pub mod application;
pub mod control_loop;
pub mod data_path;
pub mod findings;
pub mod host_police;
pub mod inject;
pub mod interfaces;
pub mod memory;
pub mod module;
pub mod over;
pub mod publisher;
pub mod request;
pub mod row_stage;
pub mod statistics;
pub mod tables;

pub use application::{
    Ahead, Beginning, Built, Call, Carrier, ControlPart, Descriptor, Environment, Outcome, Prepare,
    Refusal, Rows, Save, Section, Setup, Shared, Source, Twin, Work, WorkerSetup, events,
};
pub use control_loop::{ControlLoop, Event, Phase, Start, Vital, now_ns};
pub use data_path::{DataPath, Opened, Seen, Watch};
pub use findings::{Finding, Findings};
pub use host_police::HostPolice;
pub use interfaces::{Interfaces, PortFacts};
pub use module::{Module, ModuleKind};
pub use over::OverPart;
pub use publisher::{Publisher, Running};
pub use request::{GroupKind, NameKind, RequestKind, TableKind};
pub use row_stage::{At, ByRow, CounterTable, Counters, RowStage};
pub use statistics::Statistics;
pub use tables::{
    Newest, PartId, PartImages, PatchOf, TablePart, Tables, TablesImages, TablesPatch, Without,
};
