//! Every kernel of the library with NVIDIA's compiler.

mod check;

use kernels::files;

#[test]
fn ptx() {
    check::ptx(files::ALL);
}

#[test]
fn a_cubin_without_spills() {
    check::cubin(files::ALL);
}

#[test]
fn a_spill_is_seen() {
    check::spill(&files::NAMES);
}
