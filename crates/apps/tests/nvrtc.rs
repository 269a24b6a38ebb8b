//! Every kernel of the applications with NVIDIA's compiler.

#[path = "../../kernels/tests/nvrtc/check.rs"]
mod check;

use apps::router::kernels::DECODE;

#[test]
fn ptx() {
    check::ptx(&apps::kernel_files());
}

#[test]
fn a_cubin_without_spills() {
    check::cubin(&apps::kernel_files());
}

#[test]
fn a_spill_is_seen() {
    check::spill(&DECODE);
}
