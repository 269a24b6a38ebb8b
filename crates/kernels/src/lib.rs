//! Device sources in one C dialect, and the layout of their arguments.
//!
//! A kernel is written once, as a thin wrapper that picks a row, over a core that works on one item.
//! [`source`] joins the dialect header, the constants that host and device share, the accessors of the
//! columns that they name (from the one declaration) and the files that are wanted into a text that is CUDA C++ for
//! NVRTC and OpenCL C 1.2 alike:
//!
//! ```text
//!   dialect.h │ constants │ COL_… of those columns of Spec that are named │ lpm.h, hash.h, scan.h │ lpm.k, patch.k, …
//!        └── one text ──▶ NVRTC ▶ PTX, cubin      └── the same text ──▶ OpenCL
//! ```
//!
//! What is here, applications share: the dialect, lookup structures, sorting, payload, patches of tables. The kernels of
//! an application lie in its own folder with their constants and known answers; a [`KernelFile`] names the headers of
//! this crate that it needs.
//!
//! Every kernel takes the same five arguments: arena (a job: header, columns and areas, [`job`]), payload (the
//! packets' bytes), tables (one table image, [`image`]), state (state or scratch) and a job number.
//!
//! Threads: plain data, any thread.
#![forbid(unsafe_code)]

pub mod cipher;
pub mod classifiers;
mod columns;
mod constants;
pub mod files;
pub mod image;
pub mod job;
pub mod known;
pub mod plan;
pub mod reasons;
mod registry;
mod source;

pub use chunk::hash;
pub use columns::{
    CipherColumns, CipherView, Classify4Columns, Classify4View, Classify12Columns, Classify12View,
    Classify32Columns, Classify32View, ExactColumns, ExactView, HashColumns, HashView, LpmColumns,
    LpmView, NameColumns, NameView, PayloadColumns, PayloadView, ScheduleColumns, ScheduleView,
    WalkColumns, WalkView,
};
pub use registry::{KernelFile, KernelInfo, Launch, problems};
pub use source::{Spec, source, source_with};
