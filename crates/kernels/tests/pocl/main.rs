//! Every kernel of the library against its reference on the CPU, on PoCL, over several sizes of groups and numbers of rows.

mod areas;
mod bed;
mod cipher;
mod classify;
#[path = "../../../classify/tests/common/mod.rs"]
mod classify_sets;
mod cuckoo_tables;
mod exact;
#[allow(dead_code)] // headers are decoded in the tests of `apps`
mod frames;
mod hash;
mod known;
mod lpm;
mod name_tables;
mod names;
mod oclgrind;
mod patch;
mod payload;
mod random;
mod schedule;
mod tries;
mod under_oclgrind;
mod walks;
