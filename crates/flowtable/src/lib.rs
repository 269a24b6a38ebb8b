//! The data path of an OpenFlow switch: flow keys, tables, groups, meters and actions.
//!
//! | module | holds |
//! | --- | --- |
//! | [`headers`], [`key`] | from a frame to the fields that flows match |
//! | [`control`], [`groups`], [`replace`] | what controllers change, checked; patches |
//! | [`tables`], [`exact`] | one version of everything, as packets see it; lookups in batches |
//! | [`pipeline`], [`action_set`], [`edit`], [`meter`] | packets through tables, groups and meters; changes of frames |
//! | [`walk`], [`device`] | which flows take a packet, from its key alone; the tables as a device has them |
//! | [`queues`] | the scheduler in front of a port |
//! | [`mod@trace`] | what becomes of one packet, for people |
//! | [`mod@reference`] | the same, flow by flow, for tests |
//!
//! The model (matches, actions, requests) is that of the crate `openflow`. Nothing here knows sockets, stages or threads; time is
//! given by the caller.
#![forbid(unsafe_code)]

pub mod action_set;
mod check;
pub mod control;
pub mod device;
pub mod edit;
pub mod exact;
pub mod flow;
pub mod groups;
pub mod headers;
mod index;
pub mod key;
pub mod meter;
pub mod pipeline;
mod publish;
pub mod queues;
pub mod reference;
pub mod replace;
mod run;
pub mod tables;
pub mod trace;
pub mod walk;

pub use control::FlowControl;
pub use flow::{Flow, Group, Port};
pub use key::Key;
pub use pipeline::{Dropped, Egress, Observer, Pipeline, Sent};
pub use replace::{Differences, Wrong};
pub use tables::{FlowPatch, FlowTables, Settings};

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
