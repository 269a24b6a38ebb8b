//! NVIDIA's compiler, which needs no GPU; and its absence.

mod common;

use std::process::Command;
use std::sync::OnceLock;

use common::{NO_NVRTC, nvrtc_file};
use device::driver::Program;
use device::{DeviceError, embedded, nvrtc};
use kernels::{Spec, files, source};

/// Whether there is a compiler; otherwise the test is skipped.
fn require_nvrtc() -> bool {
    name_library();
    let there = nvrtc::version().is_some();
    if !there {
        testkit::skip(NO_NVRTC);
    }
    there
}

/// Every test begins with this: the library is looked for once.
fn name_library() {
    static NAMED: OnceLock<()> = OnceLock::new();
    NAMED.get_or_init(|| {
        if let Some(file) = nvrtc_file() {
            // SAFETY: every test calls this first, and the once lock lets none on before it is done; no
            // thread reads the environment until then.
            unsafe { std::env::set_var("SHADELINE_NVRTC", file) };
        }
    });
}

fn empty() -> Program {
    let source = source(&Spec::of_file(&files::EMPTY));
    Program { name: "empty".into(), source, defines: Vec::new(), ptx: None }
}

#[test]
fn ptx_is_text_for_the_architecture() {
    if !require_nvrtc() {
        return;
    }
    for architecture in ["75", "90"] {
        let compiled = nvrtc::compile(&empty(), &format!("compute_{architecture}"), &[]).unwrap();
        let text = String::from_utf8(compiled.code).unwrap();
        assert!(text.contains(&format!(".target sm_{architecture}")), "{text}");
        assert!(text.contains(".entry empty("), "{text}");
        assert!(text.ends_with('\0'), "the driver reads up to a 0");
    }
}

#[test]
fn a_pack_holds_each_program_once_and_gives_its_ptx() {
    if !require_nvrtc() {
        return;
    }
    let other = Program { defines: vec![("OTHER".into(), "1".into())], ..empty() };
    let pack = embedded::pack(&[empty(), empty()]).unwrap();
    let ptx = embedded::find(&pack, &empty()).unwrap();
    assert!(ptx.contains(".target sm_75") && ptx.contains(".entry empty("), "{ptx}");
    assert!(!ptx.contains('\0'), "the 0 for the driver comes when it is loaded");
    assert_eq!(embedded::find(&pack, &other), None);
    assert!(pack.len() < 2 * (ptx.len() + empty().source.len()), "once");
    let both = embedded::pack(&[empty(), other.clone()]).unwrap();
    assert!(embedded::find(&both, &other).is_some());
}

#[test]
fn a_cubin_is_code_and_its_log_tells_of_spills() {
    if !require_nvrtc() {
        return;
    }
    let compiled = nvrtc::compile(&empty(), "sm_90", &["--ptxas-options=-v"]).unwrap();
    assert_eq!(compiled.code.get(..4), Some(&b"\x7fELF"[..]));
    assert!(compiled.log.contains("0 bytes spill stores"), "{}", compiled.log);
}

#[test]
fn definitions_hold_and_the_log_counts_the_sources_own_lines() {
    if !require_nvrtc() {
        return;
    }
    let text = "extern \"C\" __global__ void one(unsigned *x)\n{ x[0] = AMOUNT; }";
    let mut program = Program { source: text.into(), ..empty() };
    let error = nvrtc::compile(&program, "compute_75", &[]).unwrap_err();
    let DeviceError::Build { name, log } = error else { panic!("{error:?}") };
    assert_eq!(name, "empty");
    assert!(log.contains("AMOUNT") && log.starts_with("empty:2: "), "{log}");

    program.defines = vec![("AMOUNT".into(), "(3 * 5 * 7 * 11)".into())];
    let compiled = nvrtc::compile(&program, "compute_75", &[]).unwrap();
    let text = String::from_utf8(compiled.code).unwrap();
    assert!(text.contains("1155"), "{text}");
}

#[test]
fn what_the_compiler_does_not_know_is_an_error() {
    if !require_nvrtc() {
        return;
    }
    for (target, option) in [("sm_1", None), ("compute_90", Some("--no-such-option"))] {
        let result = nvrtc::compile(&empty(), target, option.as_slice());
        assert!(matches!(result, Err(DeviceError::Build { .. })), "{result:?}");
    }
}

/// Runs as a test of its own, and in the process that the next one starts.
#[test]
fn without_a_compiler_there_is_no_version_and_nothing_is_compiled() {
    name_library();
    if nvrtc::version().is_none() {
        let result = nvrtc::compile(&empty(), "compute_75", &[]);
        assert!(matches!(result, Err(DeviceError::Absent(_))), "{result:?}");
        println!("\nabsent");
    } else {
        assert!(nvrtc::compile(&empty(), "compute_75", &[]).is_ok());
    }
}

#[test]
fn a_compiler_that_is_named_and_missing_is_absent() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "without_a_compiler_there_is_no_version_and_nothing_is_compiled"]);
    command.args(["--nocapture", "--test-threads=1"]).env("SHADELINE_NVRTC", "/no/such/file");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.lines().any(|l| l == "absent"), "{text}");
}
