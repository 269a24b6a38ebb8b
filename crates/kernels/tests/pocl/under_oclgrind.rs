//! Runs a test of this program under Oclgrind, in a process of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bed::Bed;

/// Items in a group: the fewest that still are more than one row of anything.
pub(crate) const ITEMS: u32 = 32;

/// The environment names the planted bug to the program that runs under Oclgrind.
pub(crate) const BUG: &str = "SHADELINE_PLANTED_BUG";
/// What that program prints when it got to its end.
pub(crate) const END: &str = "reached the end";

/// Runs a test, by its name, under Oclgrind; what it printed, and the log. None, and the test is skipped,
/// where Oclgrind is missing.
pub(crate) fn under_oclgrind(test: &str, bug: &str) -> Option<(String, String)> {
    let oclgrind = testkit::require_tool("oclgrind")?;
    let library = library(&oclgrind)?;
    let scratch = testkit::Scratch::new();
    let log = scratch.join("oclgrind.log");
    let output = Command::new(oclgrind)
        .args(["--data-races", "--uninitialized", "--build-options", "-cl-opt-disable", "--log"])
        .arg(&log)
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env("OPENCL_DYLIB_PATH", library)
        .env_remove("SHADELINE_TEST_BACKEND")
        .env(BUG, bug)
        .output()
        .expect("oclgrind starts");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    Some((printed, std::fs::read_to_string(&log).unwrap_or_default()))
}

/// Oclgrind's OpenCL library, beside its program.
fn library(program: &Path) -> Option<PathBuf> {
    let prefix = program.parent()?.parent()?;
    let found = prefix.join("lib/oclgrind/liboclgrind-rt.so");
    if !found.is_file() {
        testkit::skip(&format!("oclgrind has no {}", found.display()));
        return None;
    }
    Some(found)
}

pub(crate) fn oclgrind() -> Bed {
    let bed = Bed::open().expect("Oclgrind's device");
    assert!(bed.name().contains("Oclgrind"), "{} is not Oclgrind", bed.name());
    bed
}
