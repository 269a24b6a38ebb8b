//! What a test does whose component is missing: it prints `skipped: WHY` and returns. Under `CI=true` that is
//! a failure, except for a missing GPU, NIC or `../shared`.

use std::path::PathBuf;
use std::process::Command;

use crate::{repository, skip_rule};

/// Says that the running test is skipped; the test then returns.
///
/// # Panics
/// Under `CI=true`, unless the reason is one that continuous integration accepts.
pub fn skip(reason: &str) {
    println!("skipped: {reason}");
    if skip_rule::in_ci() && !skip_rule::is_allowed(reason) {
        panic!("skipped under CI=true: {reason}");
    }
}

/// Is this root? Otherwise the test is skipped.
pub fn require_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("needs root");
    }
    root
}

/// Are there root, `ip` and network namespaces? Otherwise the test is skipped.
pub fn require_namespaces() -> bool {
    if !require_root() || require_tool("ip").is_none() || require_tool("ethtool").is_none() {
        return false;
    }
    // A container may be root and still lack the capability.
    let probe = format!("sl-probe-{}-{}", std::process::id(), crate::netns::next_number());
    let made = Command::new("ip").args(["netns", "add", &probe]).output();
    let made = made.is_ok_and(|o| o.status.success());
    let _ = Command::new("ip").args(["netns", "del", &probe]).output();
    if !made {
        skip("network namespaces are not allowed here");
    }
    made
}

/// The path of a program; none, and the test is skipped, where it is missing. Beside `PATH` it looks where
/// an ordinary user's path does not lead and where `cargo xtask setup` puts its tools.
pub fn require_tool(name: &str) -> Option<PathBuf> {
    let found = find_tool(name);
    if found.is_none() {
        skip(&format!("{name} is not installed (`cargo xtask setup`)"));
    }
    found
}

/// The device that tests of kernels run on where it is not the first of OpenCL: `SHADELINE_TEST_BACKEND`, as
/// `--backend` names it. `cargo xtask gpu` sets it.
pub fn named_backend() -> Option<String> {
    std::env::var("SHADELINE_TEST_BACKEND").ok().filter(|name| !name.is_empty())
}

/// Is there an OpenCL platform (PoCL will do), or a device that was named? Otherwise the test is skipped.
pub fn require_opencl() -> bool {
    if named_backend().is_some() {
        return true;
    }
    let vendors = std::fs::read_dir("/etc/OpenCL/vendors").into_iter().flatten().flatten();
    let there = vendors.into_iter().any(|v| v.path().extension().is_some_and(|e| e == "icd"))
        || std::env::var_os("OPENCL_DYLIB_PATH").is_some();
    if !there {
        skip("no OpenCL platform (`cargo xtask setup`)");
    }
    there
}

fn find_tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    for extra in ["/usr/sbin", "/sbin", "/usr/lib/frr"] {
        dirs.push(PathBuf::from(extra));
    }
    dirs.push(repository().join("target/tools/bin"));
    dirs.iter().map(|dir| dir.join(name)).find(|p| p.is_file())
}

/// The interpreter of `.venv`, where it has this package; otherwise none, and the test is skipped.
pub fn require_python(package: &str) -> Option<PathBuf> {
    let python = repository().join(".venv/bin/python");
    let import = format!("import {package}");
    let there =
        Command::new(&python).args(["-c", &import]).output().is_ok_and(|o| o.status.success());
    if !there {
        skip(&format!("Python's {package} is not in .venv (`cargo xtask setup`)"));
    }
    there.then_some(python)
}

/// The built program: `SHADELINE_BIN`, else the newer of the release and the debug build; none, and the test
/// is skipped, where it is not built.
pub fn shadeline_bin() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("SHADELINE_BIN") {
        let named = PathBuf::from(named);
        assert!(named.is_file(), "SHADELINE_BIN names no file: {}", named.display());
        return Some(named);
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = repository().join(target.unwrap_or(PathBuf::from("target")));
    let built =
        |profile: &str| Some(target.join(profile).join("shadeline")).filter(|p| p.is_file());
    let modified = |path: &PathBuf| path.metadata().and_then(|m| m.modified()).ok();
    let newest = [built("release"), built("debug")].into_iter().flatten().max_by_key(modified);
    if newest.is_none() {
        skip("the program is not built (`cargo build --release`)");
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_found_or_not() {
        assert!(find_tool("sh").is_some());
        assert!(find_tool("no-such-tool").is_none());
    }

    #[test]
    fn the_rule_of_skips() {
        assert!(skip_rule::is_allowed("no GPU"));
        assert!(skip_rule::is_allowed("no ../shared/data/bgp"));
        assert!(!skip_rule::is_allowed("iperf3 is not installed"));
    }
}
