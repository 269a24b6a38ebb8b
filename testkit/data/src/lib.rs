//! Files that tests read and nobody on the project wrote: rule sets, names, captures, routing tables.
//!
//! What is small and permissively licensed lies in `tests/data`. What is large or restricted lies in `../shared/data`,
//! beside the checkout, where somebody put it; `tests/data/SOURCES.md` says where each file comes from. A test that
//! wants a file that is in neither place is skipped.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the checkout; where tests run without one, the folder that `SHADELINE_TEST_ROOT` names. `cargo xtask gpu` sets it.
pub fn repository() -> PathBuf {
    match std::env::var_os("SHADELINE_TEST_ROOT") {
        Some(root) => root.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
    }
}

/// A file or folder by its name below `tests/data` or `../shared/data`. Where neither has it, prints the line that makes
/// the test a skipped one.
pub fn path(relative: &str) -> Option<PathBuf> {
    let found = places(relative).into_iter().find(|path| path.exists());
    if found.is_none() {
        println!("skipped: {}", absent(relative));
    }
    found
}

/// Why a test that wants this file is skipped.
pub fn absent(relative: &str) -> String {
    format!("no ../shared/data/{relative} (tests/data/SOURCES.md says where to get it)")
}

/// The bytes of a file by its name without `.xz`, unpacked if it is packed so.
pub fn bytes(relative: &str) -> Option<Vec<u8>> {
    if let Some(plain) = places(relative).into_iter().find(|path| path.is_file()) {
        return Some(std::fs::read(&plain).unwrap_or_else(|e| panic!("{}: {e}", plain.display())));
    }
    let packed = path(&format!("{relative}.xz"))?;
    match Command::new("xz").arg("-dc").arg(&packed).output() {
        Ok(output) if output.status.success() => Some(output.stdout),
        Ok(output) => panic!("{}: {}", packed.display(), String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            println!("skipped: xz: {error}");
            None
        }
    }
}

/// The routes of the Internet: the whole table where it is at hand (1,062,046 prefixes), otherwise the share of it that
/// the project has.
pub struct Internet {
    /// A file of prefixes, compressed by gzip.
    pub path: PathBuf,
    /// Of IPv4 and of IPv6.
    pub prefixes: (usize, usize),
}

/// Finds it.
pub fn internet() -> Internet {
    let full = places("bgp/bart-prefixes-v4v6.txt.gz").into_iter().find(|path| path.is_file());
    match full {
        Some(path) => Internet { path, prefixes: (901_899, 160_147) },
        None => Internet {
            path: repository().join("shadeline/data/routes.txt.gz"),
            prefixes: (96_555, 28_996),
        },
    }
}

fn places(relative: &str) -> [PathBuf; 2] {
    ["tests/data", "../shared/data"].map(|folder| repository().join(folder).join(relative))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checkout_comes_first() {
        let license = path("COPYING.zeek").unwrap();
        assert!(license.ends_with("tests/data/COPYING.zeek"));
        assert_eq!(bytes("COPYING.zeek").unwrap(), std::fs::read(license).unwrap());
    }

    #[test]
    fn packed_files_are_unpacked() {
        let names = bytes("ndn/opendns-top-domains.txt").unwrap();
        assert_eq!(names.iter().filter(|byte| **byte == b'\n').count(), 10_000);
    }

    #[test]
    fn a_missing_file_says_what_is_missing() {
        assert!(absent("a/b").starts_with("no ../shared/data/a/b ("));
    }
}
