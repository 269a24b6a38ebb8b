//! What an application declares, and how the program joins applications on one data path.
//!
//! - [`tables`]: the tables of all applications as one version, each application's a part of its own type.
//! - [`over`]: a stage that knows its own part alone, in a pipeline over all parts.
//! - [`request`]: requests and tables of `ctl`.
#![forbid(unsafe_code)]

pub mod over;
pub mod request;
pub mod tables;

pub use over::OverPart;
pub use request::{GroupKind, RequestKind, TableKind};
pub use tables::{
    Newest, PartId, PartImages, PatchOf, TablePart, Tables, TablesImages, TablesPatch, Without,
};
