//! Every kernel of the applications against its form on the CPU, on PoCL, over several sizes of groups and numbers of rows.
//!
//! Device, random tables and frames are those of the tests of the crate `kernels`.

#[path = "../../../kernels/tests/pocl/bed.rs"]
#[allow(dead_code)] // not all of it is used here
mod bed;
mod bridge;
mod connections;
#[path = "../../../kernels/tests/pocl/cuckoo_tables.rs"]
mod cuckoo_tables;
mod decode;
mod flow;
#[path = "../../../kernels/tests/pocl/frames.rs"]
mod frames;
mod known;
mod module_program;
mod modules;
mod name_lookup;
#[path = "../../../kernels/tests/pocl/name_tables.rs"]
mod name_tables;
mod oclgrind;
#[path = "../../../kernels/tests/pocl/random.rs"]
mod random;
mod reassembly;
mod rewrite;
mod route;
mod search;
#[path = "../flow/segments.rs"]
mod segments;
#[path = "../../../kernels/tests/pocl/under_oclgrind.rs"]
mod under_oclgrind;
