//! Every kernel of the applications with NVIDIA's compiler.

#[path = "../../kernels/tests/nvrtc/check.rs"]
mod check;

#[path = "kernels/module_program.rs"]
#[allow(dead_code)] // not all of it is used here
mod module_program;

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
fn modules() {
    let (text, kernels) = module_program::program();
    check::text(text, kernels.len() + 1); // `empty` is one
}

#[test]
fn a_spill_is_seen() {
    check::spill(&DECODE);
}
