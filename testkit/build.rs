//! Finds the golden cases: a test for each folder of `tests/golden`, whose list `tests/golden.rs` includes.
//!
//! Cargo runs this again when something in that folder changes, so that a new case is a test at once.

use std::path::Path;
use std::{env, fs};

fn main() {
    let golden = Path::new("../tests/golden");
    println!("cargo::rerun-if-changed={}", golden.display());
    println!("cargo::rerun-if-changed=build.rs");
    let entries = fs::read_dir(golden).expect("tests/golden");
    let folders = entries.flatten().filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> =
        folders.map(|folder| folder.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if let Some(odd) = names.iter().find(|name| !name.chars().all(is_name)) {
        panic!(
            "tests/golden/{odd}: a case is a test, so its folder needs a name of a-z, 0-9 and _"
        );
    }
    let out = env::var("OUT_DIR").expect("OUT_DIR");
    let list = format!("cases! {{ {} }}\n", names.join(" "));
    fs::write(Path::new(&out).join("golden.rs"), list).expect("the list of cases");
}
