//! What a stateful stage needs below it: the identity of flows, a table of them, IP defragmentation and TCP reassembly.
//!
//! | module | holds |
//! | --- | --- |
//! | [`defrag`] | IP defragmentation, bounded in memory and time |
//! | [`helper`] | flows that others announce: FTP |
//! | [`key`] | the identity of a flow, the same for both directions |
//! | [`record`] | what is reported of a flow |
//! | [`table`] | the flow table of one shard |
//! | [`tcp`] | TCP connections, and the byte streams of both directions in order |
//! | [`tracker`] | all of it: flows of a worker, from decoded packets to records |
//!
//! Nothing here knows sockets, stages or threads: an instance belongs to one worker. Time is given by the caller, in
//! nanoseconds, so that captures give the same results as often as they are read.

#![forbid(unsafe_code)]

pub mod defrag;
pub mod helper;
pub mod key;
pub mod record;
pub mod table;
pub mod tcp;
pub mod tracker;

pub use key::{FlowKey, Side};
pub use record::{FlowRecord, SideRecord};
pub use table::FlowTable;
pub use tracker::Tracker;
