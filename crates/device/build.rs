//! Puts into the library the PTX that `SHADELINE_PTX` names, a file of `cargo xtask dist`; without it, none.

use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SHADELINE_PTX");
    let out = env::var_os("OUT_DIR").expect("cargo says where to write");
    let out = Path::new(&out).join("programs.ptx");
    let pack = match env::var_os("SHADELINE_PTX").filter(|file| !file.is_empty()) {
        None => Vec::new(),
        Some(file) => {
            let file = Path::new(&file);
            println!("cargo::rerun-if-changed={}", file.display());
            fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
        }
    };
    fs::write(&out, pack).unwrap_or_else(|error| panic!("{}: {error}", out.display()));
}
