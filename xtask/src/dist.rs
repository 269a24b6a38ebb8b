//! `cargo xtask dist`: the release program with the PTX of all its kernels inside.
//!
//! 1. The program lists the device programs that it can ask for and has NVRTC compile them into one file.
//! 2. The release is built with that file inside (`SHADELINE_PTX`, read by `crates/device/build.rs`).
//! 3. The release itself must find the PTX of every program of its own list.
//!
//! So a machine with NVIDIA's driver alone, without NVRTC, runs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::suites::{BUILD_LIMIT, Report, cargo};
use crate::{setup, tree};

/// The newest glibc that the program may ask for, its minor version: Debian 12's.
const GLIBC_MINOR_MAX: u32 = 36;
const LIMIT: Duration = Duration::from_secs(120);

/// Where the program lies afterwards.
pub(crate) fn program(root: &Path) -> PathBuf {
    folder(root).join("shadeline")
}

/// The PTX that is inside it.
pub(crate) fn ptx(root: &Path) -> PathBuf {
    folder(root).join("programs.ptx")
}

fn folder(root: &Path) -> PathBuf {
    tree::target_dir(root).join("dist")
}

/// The suite.
pub(crate) fn run(root: &Path) -> Report {
    let mut report = Report::begin(root, "dist");
    build(root, &mut report);
    report.end()
}

/// Builds it; true if it is there and whole.
pub(crate) fn build(root: &Path, report: &mut Report) -> bool {
    let Some(nvrtc) = setup::nvrtc(root) else {
        let reason = "nvidia-cuda-nvrtc is not in .venv (`cargo xtask setup dist`)";
        report.counts.skip("dist", reason, report.in_ci);
        return false;
    };
    let before = report.counts.failures.len();
    if let Err(error) = fs::create_dir_all(folder(root)) {
        report.counts.fail(format!("{}: {error}", folder(root).display()));
        return false;
    }
    // The program of the tests makes the list, so that the release is built once and not twice.
    if !report.build(&mut cargo(root, &["build", "-p", "shadeline"]), BUILD_LIMIT) {
        return false;
    }
    let mut list = Command::new(tree::target_dir(root).join("debug/shadeline"));
    list.arg("programs").arg("--pack").arg(ptx(root)).env("SHADELINE_NVRTC", nvrtc);
    report.run_one("programs compile", &mut list, LIMIT);
    if report.counts.failures.len() > before {
        return false;
    }
    let mut release = cargo(root, &["build", "--release", "-p", "shadeline"]);
    if !report.build(release.env("SHADELINE_PTX", ptx(root)), BUILD_LIMIT) {
        return false;
    }
    let built = tree::target_dir(root).join("release/shadeline");
    if let Err(error) = strip(&built, &program(root)) {
        report.counts.fail(format!("{}: {error}", program(root).display()));
        return false;
    }
    let mut found = Command::new(program(root));
    report.run_one("the release finds its PTX", found.arg("programs"), LIMIT);
    match fs::read(program(root)).map(|program| glibc_minor(&program)) {
        Ok(Some(minor)) if minor <= GLIBC_MINOR_MAX => report.counts.pass(),
        Ok(minor) => report.counts.fail(format!(
            "the program asks for glibc 2.{}; Debian 12 has 2.{GLIBC_MINOR_MAX}",
            minor.map_or("?".into(), |minor| minor.to_string())
        )),
        Err(error) => report.counts.fail(format!("{}: {error}", program(root).display())),
    }
    report.counts.failures.len() == before
}

/// Copies a program without the line tables, half of its size; whole where there is no `strip`.
pub(crate) fn strip(from: &Path, to: &Path) -> std::io::Result<()> {
    let beside = to.with_extension("new");
    let mut strip = Command::new("strip");
    strip.arg("--strip-debug").arg("-o").arg(&beside).arg(from);
    if !strip.status().is_ok_and(|status| status.success()) {
        fs::copy(from, &beside)?;
    }
    // One that runs just now is not overwritten but replaced.
    fs::rename(&beside, to)
}

/// The newest version of glibc whose symbols a program names: the number behind `GLIBC_2.`.
fn glibc_minor(program: &[u8]) -> Option<u32> {
    let prefix = b"GLIBC_2.";
    let places = program.windows(prefix.len()).enumerate().filter(|(_, window)| window == prefix);
    let numbers = places.filter_map(|(at, _)| {
        let digits = program[at + prefix.len()..].iter().take(3).take_while(|b| b.is_ascii_digit());
        digits.map(|b| char::from(*b)).collect::<String>().parse().ok()
    });
    numbers.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_glibc_counts() {
        assert_eq!(glibc_minor(b"..GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0"), Some(34));
        assert_eq!(glibc_minor(b"GLIBC_2."), None);
        assert_eq!(glibc_minor(b"GLIBC_PRIVATE"), None);
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(glibc_minor(&own).is_some_and(|minor| minor >= 17), "of Rust's own minimum");
    }
}
