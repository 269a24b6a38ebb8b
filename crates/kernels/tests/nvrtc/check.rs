//! What files of kernels must be for NVIDIA's compiler, which needs no GPU.

use std::path::PathBuf;
use std::sync::Once;

use device::driver::Program;
use device::nvrtc;
use kernels::{KernelFile, Spec, source};

/// `SHADELINE_NVRTC`, else the library of the package `nvidia-cuda-nvrtc` in `.venv`.
fn nvrtc_file() -> Option<PathBuf> {
    let versions = std::fs::read_dir(testkit::repository().join(".venv/lib")).ok()?;
    let file = "site-packages/nvidia/cu13/lib/libnvrtc.so.13";
    versions.flatten().map(|version| version.path().join(file)).find(|path| path.is_file())
}

/// Whether there is a compiler; otherwise the test is skipped.
fn require_nvrtc() -> bool {
    static NAMED: Once = Once::new();
    NAMED.call_once(|| {
        if std::env::var_os("SHADELINE_NVRTC").is_none()
            && let Some(file) = nvrtc_file()
        {
            // SAFETY: every test calls this first, and the once lets none on before it is done; no thread
            // reads the environment until then.
            unsafe { std::env::set_var("SHADELINE_NVRTC", file) };
        }
    });
    let there = nvrtc::version().is_some();
    if !there {
        testkit::skip("nvidia-cuda-nvrtc is not in .venv (`cargo xtask setup`)");
    }
    there
}

fn program(spec: &Spec) -> Program {
    Program { name: spec.name.into(), source: source(spec), defines: Vec::new(), ptx: None }
}

/// The log without the lines about registers.
fn complaints(log: &str) -> Vec<&str> {
    let lines = log.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.filter(|l| !l.starts_with("ptxas") && !l.starts_with("Function properties")).collect()
}

/// What a number in the log says before these words, for each kernel.
fn numbers(log: &str, words: &str) -> Vec<u32> {
    let before = log.match_indices(words).map(|(at, _)| log[..at].trim_end());
    before.filter_map(|text| text.rsplit(' ').next()?.parse().ok()).collect()
}

/// Each file compiles to PTX for the oldest and a newer architecture.
pub(crate) fn ptx(files: &[&'static KernelFile]) {
    if !require_nvrtc() {
        return;
    }
    for spec in files.iter().map(|file| Spec::of_file(file)) {
        for architecture in ["75", "90"] {
            let target = format!("compute_{architecture}");
            let compiled = nvrtc::compile(&program(&spec), &target, &[]).expect(spec.name);
            assert_eq!(complaints(&compiled.log), [""; 0], "{}", spec.name);
            let text = String::from_utf8_lossy(&compiled.code);
            for kernel in spec.kernels() {
                assert!(text.contains(&format!(".entry {kernel}(")), "{}: {kernel}", spec.name);
            }
        }
    }
}

/// Each file compiles to code for an H200, and no register is spilled.
pub(crate) fn cubin(files: &[&'static KernelFile]) {
    if !require_nvrtc() {
        return;
    }
    for spec in files.iter().map(|file| Spec::of_file(file)) {
        for group_items in [spec.group_items, 32, 512] {
            let spec = spec.clone().with_group_items(group_items);
            let compiled = nvrtc::compile(&program(&spec), "sm_90", &["--ptxas-options=-v"]);
            let log = compiled.expect(spec.name).log;
            let kernels = spec.kernels().len();
            for words in ["bytes spill stores", "bytes spill loads", "bytes stack frame"] {
                assert_eq!(numbers(&log, words), vec![0; kernels], "{}: {log}", spec.name);
            }
            // Below what every device gives a group without being asked.
            assert!(numbers(&log, "bytes smem").iter().all(|bytes| *bytes < 48 << 10), "{log}");
            assert_eq!(complaints(&log), [""; 0], "{}", spec.name);
        }
    }
}

/// A text compiles, to PTX and to code for an H200 without spills, and nothing is said of it.
#[allow(dead_code)] // not every crate has one
pub(crate) fn text(source: String, kernels: usize) {
    if !require_nvrtc() {
        return;
    }
    let program = Program { name: "text".into(), source, defines: Vec::new(), ptx: None };
    let compiled = nvrtc::compile(&program, "compute_75", &[]).expect("PTX");
    assert_eq!(complaints(&compiled.log), [""; 0]);
    let log = nvrtc::compile(&program, "sm_90", &["--ptxas-options=-v"]).expect("a cubin").log;
    assert_eq!(numbers(&log, "bytes spill stores"), vec![0; kernels], "{log}");
}

/// With too few registers for a file's first kernel there are spills, and they are seen.
pub(crate) fn spill(file: &'static KernelFile) {
    if !require_nvrtc() {
        return;
    }
    let mut program = program(&Spec::of_file(file));
    // The bounds of a launch would override the option.
    program.source = program.source.replace("__launch_bounds__(KERNEL_BOUNDS)", "");
    let options = ["--ptxas-options=-v", "--maxrregcount=24"];
    let compiled = nvrtc::compile(&program, "sm_90", &options).expect("it compiles");
    assert!(numbers(&compiled.log, "bytes spill stores")[0] > 0, "{}", compiled.log);
}
