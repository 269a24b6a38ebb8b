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
    let (text, named) = module_program::program(256);
    // Each module has one that runs in place of it once it is off; `empty` is one, too.
    let kernels = text.lines().filter(|line| line.starts_with("KERNEL(")).count();
    assert!(kernels > named.len() + 1, "{kernels}");
    check::text(text, kernels);
}

#[test]
fn a_spill_is_seen() {
    check::spill(&DECODE);
}
