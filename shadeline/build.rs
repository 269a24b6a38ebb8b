//! Lists the pages of docs/ for `shadeline help TOPIC`, so that a new page is a topic at once.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

fn main() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    println!("cargo::rerun-if-changed={}", docs.display());
    let entries = fs::read_dir(&docs).expect("docs").flatten().map(|entry| entry.path());
    let mut pages: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.sort();
    let mut list = "[\n".to_owned();
    for page in pages {
        let name = page.file_stem().expect("a name").to_string_lossy();
        let path = page.canonicalize().expect("a page");
        writeln!(list, "    ({name:?}, include_str!({path:?})),").expect("memory");
    }
    list += "]\n";
    let out = Path::new(&env::var_os("OUT_DIR").expect("OUT_DIR")).join("topics.rs");
    fs::write(out, list).expect("the list of topics");
}
