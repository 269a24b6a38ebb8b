//! Packet builders, namespaces and golden cases for tests.
//!
//! - [`skip`] and its kin: a test whose component is missing says so and returns.
//! - [`frames`]: frames built with `etherparse`; [`pcap`]: captures read and written with `pcap-file`. Both are
//!   independent of the crates under test.
//! - [`netns`]: hosts and routers in network namespaces, joined by veth pairs.
//! - [`packed`]: compressed files.
//! - [`process`]: programs in the background, ended with the test.
//! - [`strongswan`]: two key-exchange daemons of IPsec.
#![forbid(unsafe_code)]

pub mod frames;
pub mod netns;
pub mod packed;
pub mod pcap;
pub mod process;
mod skip;
#[path = "../../xtask/src/skip_rule.rs"]
mod skip_rule;
pub mod strongswan;
pub mod translator;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub use testdata as data;

pub use skip::{
    named_backend, require_namespaces, require_opencl, require_python, require_root, require_tool,
    shadeline_bin, skip,
};

/// The root of the checkout.
pub fn repository() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// Gives a program a cache of kernels in that folder, and PoCL one: that of all tests, where `POCL_CACHE_DIR` names one.
/// Cold, the self-test of a device takes its time.
pub fn set_caches(program: &mut Command, folder: &Path) {
    program.env("SHADELINE_CACHE", folder.join("kernels"));
    if std::env::var_os("POCL_CACHE_DIR").is_none() {
        // PoCL makes no folders above its own; one that is missing costs time, no more.
        let _ = std::fs::create_dir_all(folder);
        program.env("POCL_CACHE_DIR", folder.join("pocl"));
    }
}

/// Looks at the condition again and again until it holds; false where it does not within the time.
pub fn wait_until(timeout: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + timeout;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A folder that goes with the test; kept where the test fails, and named then.
pub struct Scratch {
    dir: Option<tempfile::TempDir>,
}

impl Scratch {
    /// An empty folder of its own.
    ///
    /// # Panics
    /// Where none can be made.
    pub fn new() -> Scratch {
        let dir = tempfile::Builder::new().prefix("shadeline-test-").tempdir();
        Scratch { dir: Some(dir.expect("a temporary folder")) }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.dir.as_ref().map(tempfile::TempDir::path).unwrap_or(Path::new("."))
    }

    /// The path of a file or folder in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a text file into it and returns its path.
    ///
    /// # Panics
    /// Where it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.join(name);
        std::fs::write(&path, text).expect("write a temporary file");
        path
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch::new()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(dir) = self.dir.take()
        {
            println!("kept: {}", dir.keep().display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_when_the_condition_holds_or_time_is_up() {
        let mut calls = 0;
        assert!(wait_until(Duration::from_secs(5), || {
            calls += 1;
            calls == 3
        }));
        assert!(!wait_until(Duration::from_millis(20), || false));
    }

    #[test]
    fn scratch_goes_with_the_test() {
        let scratch = Scratch::new();
        let path = scratch.write("a.toml", "x");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "x");
        drop(scratch);
        assert!(!path.exists());
    }
}
