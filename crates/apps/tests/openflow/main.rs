//! An OpenFlow switch whose tables a device looks up, with the random flows and frames of the tests of the crate `flowtable`.

#[path = "../../../kernels/tests/pocl/bed.rs"]
#[allow(dead_code)] // not all of it is used here
mod bed;
#[path = "../../../flowtable/tests/all/generate.rs"]
#[allow(dead_code, unreachable_pub)] // those of another test
mod generate;
mod kernel;
#[path = "../../../flowtable/tests/all/random.rs"]
#[allow(dead_code, unreachable_pub)]
mod random;
#[path = "../../../flowtable/tests/all/world.rs"]
#[allow(dead_code, unreachable_pub)]
mod world;
