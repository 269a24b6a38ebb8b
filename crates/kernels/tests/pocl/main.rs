//! Every kernel against its twin on the CPU, on PoCL, over several sizes of groups and numbers of rows.

mod areas;
mod bed;
mod classify;
#[path = "../../../classify/tests/common/mod.rs"]
mod classify_sets;
mod decode;
mod exact;
mod frames;
mod hash;
mod known;
mod lpm;
mod names;
mod oclgrind;
mod patch;
mod payload;
mod rewrite;
mod route;
mod schedule;
mod tries;
