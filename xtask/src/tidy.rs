//! The rules of the tree that no compiler checks.
//!
//! Each rule is a function from files to complaints, so that a planted offence shows that it bites.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::suites::Report;
use crate::{packages, tree};

/// A tracked file: path relative to the root with `/`, and its text where it is UTF-8.
struct File {
    path: String,
    text: Option<String>,
}

type Rule = fn(&[File]) -> Vec<String>;

const RULES: &[(&str, Rule)] = &[
    ("whitespace", whitespace),
    ("length", length),
    ("safety", safety),
    ("layers", layers),
    ("words", words),
    ("phrases", phrases),
    ("headers", headers),
    ("sources", sources),
    ("links", links),
];

/// What a crate may import from the workspace; its own list and what is here is the whole of it.
const LAYERS: &[(&str, &[&str])] = &[
    ("chunk", &[]),
    ("packet", &["chunk"]),
    ("interleave", &[]),
    ("files", &[]),
    ("lookup", &["interleave", "chunk", "files"]),
    ("automata", &[]),
    ("signatures", &[]),
    (
        "detect",
        &["automata", "packet", "signatures", "stream", "applayer", "l7proto", "io", "chunk"],
    ),
    ("classify", &["interleave", "lookup", "chunk", "files"]),
    ("stream", &["packet", "interleave", "chunk"]),
    ("nat", &["stream", "packet", "interleave", "chunk"]),
    ("flowlog", &["stream", "packet", "files", "chunk", "applayer", "l7proto"]),
    ("crypto", &["interleave"]),
    ("openflow", &[]),
    ("xfrm", &["crypto", "control"]),
    ("flowtable", &["interleave", "openflow", "classify", "lookup", "packet", "chunk"]),
    ("xfrm", &["crypto"]),
    ("ipsec", &["classify", "crypto", "interleave", "packet"]),
    ("l7proto", &["crypto"]),
    ("applayer", &["l7proto", "crypto"]),
    ("kernels", &["chunk"]),
    ("device", &["kernels", "chunk"]),
    ("io", &["chunk", "packet", "files"]),
    ("engine", &["chunk", "io", "kernels", "device"]),
    (
        "controlplane",
        &["chunk", "packet", "lookup", "io", "kernels", "device", "engine", "control", "files"],
    ),
    (
        "apps",
        &[
            "chunk",
            "packet",
            "interleave",
            "lookup",
            "classify",
            "stream",
            "nat",
            "openflow",
            "flowtable",
            "flowlog",
            "automata",
            "signatures",
            "detect",
            "applayer",
            "l7proto",
            "crypto",
            "xfrm",
            "ipsec",
            "kernels",
            "device",
            "io",
            "engine",
            "control",
            "controlplane",
            "files",
        ],
    ),
    ("control", &["packet", "lookup", "classify", "files"]),
];

/// The only crates of the layers with unsafe code. `bench` counts allocations, which takes an allocator;
/// the tests of `kernels` set variables before the libraries that read them are there.
const UNSAFE_CRATES: &[&str] = &[
    "chunk",
    "io",
    "device",
    "interleave",
    "lookup",
    "classify",
    "automata",
    "crypto",
    "bench",
    "kernels",
];
/// Crates that say so to the compiler.
const FORBID_CRATES: &[&str] = &[
    "packet",
    "stream",
    "flowlog",
    "signatures",
    "detect",
    "apps",
    "control",
    "controlplane",
    "files",
    "ipsec",
    "l7proto",
    "applayer",
    "openflow",
    "xfrm",
    "flowtable",
];
const LINES_MAX: usize = 900;
const DATA_TYPES: &[&str] = &["pcap", "pcapng", "cap", "gz", "xz", "zst", "dat", "bin"];
const RESTRICTED: &str = "../shared/data/restricted";

/// Runs all rules; each is one test.
pub(crate) fn run(root: &Path) -> Report {
    let mut report = Report::begin(root, "tidy");
    let paths = tree::tracked_files(root);
    if paths.is_empty() {
        report.counts.skip("tidy", "no git checkout", report.in_ci);
        return report.end();
    }
    let files: Vec<File> = paths.iter().map(|path| read(root, path)).collect();
    for (name, rule) in RULES {
        settle(&mut report, name, rule(&files));
    }
    let restricted = root.join(RESTRICTED);
    match restricted.is_dir() {
        true => settle(&mut report, "licences", copies(root, &paths, &restricted)),
        false => report.counts.skip("licences", "no ../shared/data/restricted", report.in_ci),
    }
    packages::check(root, &mut report);
    report.end()
}

fn settle(report: &mut Report, name: &str, complaints: Vec<String>) {
    for complaint in &complaints {
        report.say(&format!("{name}: {complaint}"));
    }
    match complaints.is_empty() {
        true => report.counts.pass(),
        false => report.counts.fail(format!("tidy {name}: {} complaints", complaints.len())),
    }
}

fn read(root: &Path, path: &Path) -> File {
    let text = std::fs::read(root.join(path)).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    File { path: path.to_string_lossy().into_owned(), text }
}

impl File {
    fn extension(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.').map(|(_, e)| e).unwrap_or_default()
    }

    fn folder(&self) -> &str {
        self.path.rsplit_once('/').map(|(folder, _)| folder).unwrap_or_default()
    }

    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.iter().flat_map(|t| t.lines()).enumerate().map(|(i, line)| (i + 1, line))
    }

    fn is_rust(&self) -> bool {
        self.extension() == "rs"
    }

    /// The crate's name, from the folder that it is in.
    fn crate_name(&self) -> &str {
        let mut parts = self.path.split('/');
        match parts.next() {
            Some("crates") => parts.next().unwrap_or_default(),
            Some(first) => first,
            None => "",
        }
    }
}

/// No tab in Rust, no space at a line's end, a newline at the end of a file.
fn whitespace(files: &[File]) -> Vec<String> {
    let ours =
        |f: &&File| ["rs", "toml", "md", "py", "sh", "yml", "c", "h"].contains(&f.extension());
    let mut complaints = Vec::new();
    for file in files.iter().filter(ours) {
        for (number, line) in file.lines() {
            if file.is_rust() && line.contains('\t') {
                complaints.push(format!("{}:{number}: a tab", file.path));
            }
            if line.ends_with([' ', '\t', '\r']) {
                complaints.push(format!("{}:{number}: a space at the end", file.path));
            }
        }
        if file.text.as_ref().is_some_and(|t| !t.is_empty() && !t.ends_with('\n')) {
            complaints.push(format!("{}: no newline at the end", file.path));
        }
    }
    complaints
}

/// One idea a file: a long one holds several.
fn length(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|f| f.is_rust()) {
        let lines = file.lines().count();
        if lines > LINES_MAX {
            complaints.push(format!("{}: {lines} lines, at most {LINES_MAX}", file.path));
        }
    }
    complaints
}

/// Unsafe code is only in the crates meant for it, and each piece is argued.
fn safety(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|f| f.is_rust()) {
        let lines: Vec<&str> = file.lines().map(|(_, line)| line).collect();
        for (at, line) in lines.iter().enumerate() {
            let Some(reach) = unsafe_reach(line) else { continue };
            let place = format!("{}:{}", file.path, at + 1);
            if !UNSAFE_CRATES.contains(&file.crate_name()) {
                complaints.push(format!("{place}: unsafe code outside of the crates meant for it"));
            }
            let before = &lines[at.saturating_sub(reach)..=at];
            if !before.iter().any(|l| l.contains("SAFETY") || l.contains("# Safety")) {
                complaints.push(format!("{place}: unsafe without SAFETY"));
            }
        }
    }
    for name in FORBID_CRATES {
        let root = files.iter().find(|f| f.path == format!("crates/{name}/src/lib.rs"));
        let text = root.and_then(|f| f.text.as_deref());
        if text.is_some_and(|t| !t.contains("#![forbid(unsafe_code)]")) {
            complaints.push(format!("crates/{name}/src/lib.rs: does not forbid unsafe code"));
        }
    }
    complaints
}

/// How many lines above may hold the argument, where this line has the keyword `unsafe` in code: a few for a
/// block, a whole doc comment for a function or trait.
fn unsafe_reach(line: &str) -> Option<usize> {
    let code = line.trim_start();
    if code.starts_with("//") || code.starts_with("#!") || code.starts_with("#[") {
        return None;
    }
    let code = strip_strings(code);
    let code = code.split("//").next().unwrap_or_default();
    let (_, after) = code.split_once("unsafe")?;
    let before = code.split("unsafe").next().unwrap_or_default();
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    if before.ends_with(joins) || after.starts_with(joins) {
        return None;
    }
    let after = after.trim_start();
    // A function pointer's type has nothing to argue.
    if after.starts_with("fn(") || after.starts_with("extern \"C\" fn(") {
        return None;
    }
    Some(if after.starts_with("fn") || after.starts_with("trait") { 40 } else { 8 })
}

fn strip_strings(code: &str) -> String {
    code.replace("\\\"", "").split('"').step_by(2).collect::<Vec<_>>().join("\"\"")
}

/// Imports between crates point down only.
fn layers(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    let ours: Vec<&str> = LAYERS.iter().map(|(name, _)| *name).collect();
    for file in
        files.iter().filter(|f| f.path.starts_with("crates/") && f.path.ends_with("/Cargo.toml"))
    {
        let name = file.crate_name();
        let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| *layer == name) else {
            complaints.push(format!("{}: the crate {name} has no layer", file.path));
            continue;
        };
        for (number, import) in dependencies(file) {
            let above = ["shadeline", "bench"].contains(&import);
            if above || (ours.contains(&import) && !allowed.contains(&import)) {
                complaints.push(format!("{}:{number}: {name} may not import {import}", file.path));
            }
        }
    }
    complaints
}

/// Names in `[dependencies]` tables; what only tests import may come from anywhere.
fn dependencies(file: &File) -> Vec<(usize, &str)> {
    let mut names = Vec::new();
    let mut inside = false;
    for (number, line) in file.lines() {
        let line = line.trim();
        if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_end_matches(']');
            inside = table == "dependencies" || table.ends_with(".dependencies");
            if let Some(name) = table.strip_prefix("dependencies.") {
                names.push((number, name));
            }
        } else if inside && !line.starts_with('#') {
            let end = line.find([' ', '.', '=']).unwrap_or(line.len());
            if end > 0 {
                names.push((number, &line[..end]));
            }
        }
    }
    names
}

/// Paths of one machine mean nothing on another.
fn words(files: &[File]) -> Vec<String> {
    let forbidden = [
        concat!("/", "work/"),
        concat!("/", "root/"),
        concat!("/tmp/", "brief"),
        concat!("/tmp/", "target-"),
    ];
    let mut complaints = Vec::new();
    for file in files {
        // Captures and other people's texts are what they are.
        if file.path.contains("/data/") && file.extension() != "rs" && file.extension() != "md" {
            continue;
        }
        for (number, line) in file.lines() {
            for word in forbidden.iter().filter(|w| has_word(line, w)) {
                complaints.push(format!("{}:{number}: {word}", file.path));
            }
        }
    }
    complaints
}

/// What a user sees is plain English: phrases that were replaced, each with what is in their place, do not come back.
/// In sources that is text in quotation marks and the help of commands, in pages every line.
fn phrases(files: &[File]) -> Vec<String> {
    let replaced = [
        (concat!("in", " vain"), "lost, without result"),
        (concat!("ask or", " steer"), "query or control"),
        (concat!("over captures", " nothing"), "capture runs need no privileges"),
        (concat!("nobody", " pays"), "otherwise there is no cost"),
        (concat!("than a device", " is sent"), "exceeds the device limit"),
        (concat!("this is", " no "), "this instance has no"),
        (concat!("read as", " they are"), "may be gzip or xz"),
        (concat!("is", " told"), "is reported, logged, counted, shown"),
        (concat!("are", " told"), "are reported, logged, counted, shown"),
        (concat!("stands", " twice"), "is listed twice"),
        (concat!("this line", " stands"), "this line is used"),
        (concat!("some", "body"), "a host, another station, a thread"),
        (concat!("were", " asked for"), "were requested"),
        (concat!("what it", " costs"), "time, memory, cost"),
        (concat!("never", " counts"), "never applies"),
        (concat!("put", " together here"), "reassembled"),
        (concat!("` is", " no "), "`…` is not a …"),
        (concat!("is not for", " modules"), "is not available in modules"),
    ];
    let mut complaints = Vec::new();
    for file in files {
        let is_page =
            file.path == "README.md" || file.path.starts_with("docs/") && file.extension() == "md";
        let is_help = file.path.ends_with("/cli.rs");
        if !is_page && (file.extension() != "rs" || file.path.starts_with("xtask/")) {
            continue;
        }
        for (number, line) in file.lines() {
            let line = line.to_lowercase();
            let is_seen = |at: usize| {
                let is_comment = line.trim_start().starts_with("//");
                is_page || is_help || !is_comment && line[..at].matches('"').count() % 2 == 1
            };
            for (phrase, instead) in replaced {
                if line.find(phrase).is_some_and(is_seen) {
                    complaints.push(format!("{}:{number}: `{phrase}`: {instead}", file.path));
                }
            }
        }
    }
    complaints
}

/// The path is at the start of a word, not in the middle of a longer path.
fn has_word(line: &str, word: &str) -> bool {
    let joined =
        |before: &str| before.ends_with(|c: char| c.is_alphanumeric() || c == '.' || c == '_');
    line.match_indices(word).any(|(at, _)| !joined(&line[..at]))
}

/// A crate opens by saying what it is.
fn headers(files: &[File]) -> Vec<String> {
    let root = |f: &&File| f.path.ends_with("src/lib.rs") || f.path.ends_with("src/main.rs");
    let bare = |f: &&File| f.text.as_ref().is_some_and(|t| !t.starts_with("//!"));
    let files = files.iter().filter(root).filter(bare);
    files.map(|f| format!("{}: does not open with //!", f.path)).collect()
}

/// Data that others made, or that came out of a program, has an entry in a SOURCES.md of its folder or of one
/// above: its name, its path from there, or the folder that holds it.
fn sources(files: &[File]) -> Vec<String> {
    let data = |f: &&File| DATA_TYPES.contains(&f.extension());
    let lists: Vec<&File> = files.iter().filter(|f| f.path.ends_with("SOURCES.md")).collect();
    let mut complaints = Vec::new();
    for file in files.iter().filter(data) {
        let named = lists.iter().any(|list| {
            let base = if list.folder().is_empty() {
                String::new()
            } else {
                format!("{}/", list.folder())
            };
            let Some(path) = file.path.strip_prefix(&base) else { return false };
            let text = list.text.as_deref().unwrap_or_default();
            let mut folders = path.match_indices('/').map(|(at, _)| &path[..=at]);
            let quoted = |name: &str| text.contains(&format!("`{name}`"));
            quoted(path) || folders.any(quoted)
        });
        if !named {
            complaints.push(format!("{}: no SOURCES.md names it", file.path));
        }
    }
    complaints
}

/// Nothing from the restricted folder, under whatever name.
fn copies(root: &Path, tracked: &[PathBuf], restricted: &Path) -> Vec<String> {
    let mut by_size: HashMap<u64, Vec<PathBuf>> = HashMap::new();
    for path in tree::walk(restricted) {
        // The empty file belongs to nobody.
        if let Some(size) = path.metadata().ok().map(|m| m.len()).filter(|size| *size > 0) {
            by_size.entry(size).or_default().push(path);
        }
    }
    let mut complaints = Vec::new();
    for path in tracked {
        let full = root.join(path);
        let Some(same_size) = full.metadata().ok().and_then(|m| by_size.get(&m.len())) else {
            continue;
        };
        let bytes = std::fs::read(&full).unwrap_or_default();
        for other in same_size.iter().filter(|o| std::fs::read(o).is_ok_and(|b| b == bytes)) {
            complaints.push(format!("{}: a copy of {}", path.display(), other.display()));
        }
    }
    complaints
}

/// Links between our documents lead somewhere.
fn links(files: &[File]) -> Vec<String> {
    let exists = |path: &str| {
        let below = format!("{path}/");
        path.is_empty() || files.iter().any(|f| f.path == path || f.path.starts_with(&below))
    };
    let mut complaints = Vec::new();
    for file in files.iter().filter(|f| f.extension() == "md") {
        let mut in_code = false;
        for (number, line) in file.lines() {
            in_code ^= line.trim_start().starts_with("```");
            for link in targets(line).into_iter().filter(|_| !in_code) {
                let path = link.split('#').next().unwrap_or_default();
                if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
                    continue;
                }
                // The shared folder is beside the checkout, and not everywhere.
                let Some(path) = tree::resolve(file.folder(), path) else { continue };
                if !exists(&path) {
                    complaints.push(format!("{}:{number}: no {path}", file.path));
                }
            }
        }
    }
    complaints
}

/// What is in `](…)`.
fn targets(line: &str) -> Vec<&str> {
    let ends = line.match_indices("](").map(|(at, _)| &line[at + 2..]);
    ends.filter_map(|rest| rest.split([')', ' ']).next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_string(), text: Some(text.to_string()) }
    }

    fn complaints(rule: Rule, path: &str, text: &str) -> usize {
        rule(&[file(path, text)]).len()
    }

    #[test]
    fn whitespace_bites() {
        assert_eq!(complaints(whitespace, "a.rs", "fn a() {}\n"), 0);
        assert_eq!(complaints(whitespace, "a.rs", "\tfn a() {}\n"), 1);
        assert_eq!(complaints(whitespace, "a.md", "a \nb\n"), 1);
        assert_eq!(complaints(whitespace, "a.toml", "a = 1"), 1);
        assert_eq!(complaints(whitespace, "tests/data/x.txt", "a \n"), 0);
    }

    #[test]
    fn length_bites() {
        assert_eq!(complaints(length, "a.rs", &"x\n".repeat(LINES_MAX)), 0);
        assert_eq!(complaints(length, "a.rs", &"x\n".repeat(LINES_MAX + 1)), 1);
    }

    #[test]
    fn safety_bites() {
        let path = "crates/chunk/src/a.rs";
        assert_eq!(complaints(safety, path, "// SAFETY: in bounds\nunsafe { x() }\n"), 0);
        assert_eq!(complaints(safety, path, "let y = unsafe { x() };\n"), 1);
        assert_eq!(complaints(safety, path, "unsafe impl Send for A {}\n"), 1);
        assert_eq!(
            complaints(safety, path, "/// # Safety\n/// `x` is live.\npub unsafe fn f() {}\n"),
            0
        );
        assert_eq!(complaints(safety, path, "pub unsafe fn f() {}\n"), 1);
        assert_eq!(
            complaints(safety, path, "// unsafe\nlet s = \"unsafe {\";\n#![deny(unsafe_code)]\n"),
            0
        );
        assert_eq!(
            complaints(safety, "crates/apps/src/a.rs", "// SAFETY: no\nunsafe { x() }\n"),
            1
        );
        assert_eq!(complaints(safety, "crates/packet/src/lib.rs", "//! Wire.\n"), 1);
        assert_eq!(complaints(safety, "crates/packet/src/lib.rs", "#![forbid(unsafe_code)]\n"), 0);
    }

    #[test]
    fn layers_bite() {
        let path = "crates/packet/Cargo.toml";
        assert_eq!(
            complaints(layers, path, "[dependencies]\nchunk.workspace = true\nserde = \"1\"\n"),
            0
        );
        assert_eq!(complaints(layers, path, "[dependencies]\nio = { path = \"../io\" }\n"), 1);
        assert_eq!(
            complaints(layers, path, "[target.'cfg(unix)'.dependencies]\nio.workspace = true\n"),
            1
        );
        assert_eq!(complaints(layers, path, "[dependencies.io]\npath = \"../io\"\n"), 1);
        assert_eq!(complaints(layers, path, "[dependencies]\nbench.workspace = true\n"), 1);
        assert_eq!(complaints(layers, path, "[dev-dependencies]\ntestkit.workspace = true\n"), 0);
        assert_eq!(complaints(layers, "crates/new/Cargo.toml", "[package]\n"), 1);
    }

    #[test]
    fn words_bite() {
        assert_eq!(complaints(words, "a.md", concat!("see /", "work/main\n")), 1);
        assert_eq!(complaints(words, "a.md", "see net/work/load\n"), 0);
    }

    #[test]
    fn phrases_bite() {
        let vain = concat!("asked in", " vain");
        assert_eq!(complaints(phrases, "docs/a.md", &format!("It {vain}.\n")), 1);
        assert_eq!(complaints(phrases, "a/b.rs", &format!("let a = \"{vain}\";\n")), 1);
        assert_eq!(complaints(phrases, "a/cli.rs", &format!("    /// {vain}\n")), 1);
        assert_eq!(complaints(phrases, "a/b.rs", &format!("// {vain}\n")), 0);
        assert_eq!(complaints(phrases, "ARCHITECTURE.md", &format!("{vain}\n")), 0);
    }

    #[test]
    fn headers_bite() {
        assert_eq!(complaints(headers, "crates/io/src/lib.rs", "//! I/O.\n"), 0);
        assert_eq!(complaints(headers, "crates/io/src/lib.rs", "mod a;\n"), 1);
    }

    #[test]
    fn sources_bite() {
        let capture = || file("tests/data/a.pcap", "");
        assert_eq!(sources(&[capture()]).len(), 1);
        assert_eq!(
            sources(&[capture(), file("tests/data/SOURCES.md", "| `a.pcap` | BSD |\n")]).len(),
            0
        );
        assert_eq!(
            sources(&[capture(), file("tests/data/SOURCES.md", "| `aa.pcap` | BSD |\n")]).len(),
            1
        );
        assert_eq!(sources(&[capture(), file("tests/SOURCES.md", "| `data/` | BSD |\n")]).len(), 0);
        assert_eq!(
            sources(&[capture(), file("other/SOURCES.md", "| `a.pcap` | BSD |\n")]).len(),
            1
        );
    }

    #[test]
    fn copies_bite() {
        let root = std::env::temp_dir().join(format!("xtask-tidy-{}", std::process::id()));
        let restricted = root.join("restricted");
        std::fs::create_dir_all(&restricted).unwrap();
        std::fs::write(restricted.join("seed"), "seed").unwrap();
        std::fs::write(root.join("renamed"), "seed").unwrap();
        std::fs::write(root.join("other"), "tree").unwrap();
        assert_eq!(copies(&root, &["renamed".into()], &restricted).len(), 1);
        assert_eq!(copies(&root, &["other".into()], &restricted).len(), 0);
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn links_bite() {
        let other = || file("docs/b.md", "");
        assert_eq!(
            links(&[file("docs/a.md", "[b](b.md#part) [c](../docs/b.md)\n"), other()]).len(),
            0
        );
        assert_eq!(links(&[file("docs/a.md", "[b](c.md)\n"), other()]).len(), 1);
        assert_eq!(links(&[file("a.md", "[d](docs) [x](https://x.y)\n"), other()]).len(), 0);
        assert_eq!(links(&[file("a.md", "```\n[b](c.md)\n```\n")]).len(), 0);
    }
}
