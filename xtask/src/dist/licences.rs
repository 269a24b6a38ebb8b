//! The licences of what is linked into the program: one text, made from `cargo metadata` and the files of each package.
//!
//! A licence's text that several packages share word for word is printed once, with their names in front. A package
//! without a file of its own is listed with its licence's name; the texts of these are printed for others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::json::Json;

/// Files of a package that belong to its licence begin with one of these, in any case.
const NAMES: &[&str] = &["license", "licence", "copying", "copyright", "notice", "unlicense"];

/// A package that the program is linked with.
struct Package {
    name: String,
    version: String,
    licence: String,
    repository: String,
    /// File names and texts.
    files: Vec<(String, String)>,
}

/// The text for the program of the workspace.
pub(crate) fn text(root: &Path) -> io::Result<String> {
    let json = metadata(root)?;
    let mut packages = Vec::new();
    for (name, package) in linked(&json, "shadeline") {
        packages.push(read(name, package)?);
    }
    Ok(render(&packages, &standard_library()))
}

/// What `cargo metadata` says of all packages on this machine's platform.
pub(crate) fn metadata(root: &Path) -> io::Result<Json> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut metadata = Command::new("cargo");
    metadata.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &target]);
    let output = metadata.current_dir(root).output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("cargo metadata: {text}")));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Json::parse(&text).map_err(io::Error::other)
}

/// The packages from registries that `program` is linked with, by name and version.
pub(crate) fn linked<'a>(metadata: &'a Json, program: &str) -> BTreeMap<String, &'a Json> {
    fn member<'j>(json: &'j Json, name: &str) -> &'j str {
        json.get(name).and_then(Json::text).unwrap_or_default()
    }
    let packages = metadata.get("packages").map(Json::list).unwrap_or_default();
    let by_id: BTreeMap<&str, &Json> = packages.iter().map(|p| (member(p, "id"), p)).collect();
    let nodes = metadata.get("resolve").and_then(|resolve| resolve.get("nodes"));
    let nodes = nodes.map(Json::list).unwrap_or_default();
    let nodes: BTreeMap<&str, &Json> = nodes.iter().map(|n| (member(n, "id"), n)).collect();
    let first = packages.iter().filter(|p| member(p, "name") == program).map(|p| member(p, "id"));
    let mut open: Vec<&str> = first.collect();
    let mut seen: BTreeSet<&str> = open.iter().copied().collect();
    while let Some(id) = open.pop() {
        let deps = nodes.get(id).and_then(|node| node.get("deps")).map(Json::list);
        for dep in deps.unwrap_or_default() {
            let kinds = dep.get("dep_kinds").map(Json::list).unwrap_or_default();
            // What only tests and build scripts use has `dev` and `build` there.
            let is_linked = kinds.iter().any(|kind| kind.get("kind") == Some(&Json::Null));
            if is_linked && seen.insert(member(dep, "pkg")) {
                open.push(member(dep, "pkg"));
            }
        }
    }
    let all = seen.iter().filter_map(|id| by_id.get(id));
    // Packages of the workspace have no source.
    let others = all.filter(|package| package.get("source").and_then(Json::text).is_some());
    others.map(|p| (format!("{} {}", member(p, "name"), member(p, "version")), *p)).collect()
}

fn read(name: String, package: &Json) -> io::Result<Package> {
    let member = |name: &str| package.get(name).and_then(Json::text).unwrap_or_default().to_owned();
    let manifest = member("manifest_path");
    let folder = Path::new(&manifest).parent().unwrap_or(Path::new("."));
    let named = package.get("license_file").and_then(Json::text);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let file = entry.file_name().to_string_lossy().into_owned();
        let is_licence = NAMES.iter().any(|start| file.to_lowercase().starts_with(start));
        if entry.file_type()?.is_file() && (is_licence || named == Some(&file)) {
            let text = fs::read(entry.path())?;
            files.push((file, String::from_utf8_lossy(&text).replace("\r\n", "\n")));
        }
    }
    files.sort();
    let version = member("version");
    let name = name.split(' ').next().unwrap_or_default().to_owned();
    Ok(Package {
        name,
        version,
        licence: member("license"),
        repository: member("repository"),
        files,
    })
}

/// Where the toolchain has the texts for Rust's own library, which is linked, too.
fn standard_library() -> Vec<(String, String)> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = sysroot.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    let folder = sysroot.map(|path| Path::new(&path).join("share/doc/rust/licenses"));
    let read = |name: &str| {
        let text = fs::read_to_string(folder.as_ref().ok()?.join(name)).ok()?;
        Some((name.to_owned(), text))
    };
    ["MIT.txt", "Apache-2.0.txt"].into_iter().filter_map(read).collect()
}

const HEAD: &str = "\
Shadeline is linked with the packages of this list. Their licences follow: each text once, with the
packages that it belongs to.

";

fn render(packages: &[Package], standard: &[(String, String)]) -> String {
    let mut text = HEAD.to_owned();
    let mut texts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for package in packages {
        let Package { name, version, licence, repository, files } = package;
        let licence = if licence.is_empty() { "see its file" } else { licence };
        let _ = writeln!(text, "{name} {version}: {licence}, {repository}");
        for (file, content) in files {
            texts.entry(content.trim()).or_default().push(format!("{name} {version}: {file}"));
        }
    }
    text += "Rust's standard library: MIT OR Apache-2.0, https://github.com/rust-lang/rust\n";
    for (file, content) in standard {
        let of = format!("Rust's standard library: {file}");
        texts.entry(content.trim()).or_default().push(of);
    }
    let mut texts: Vec<(Vec<String>, &str)> =
        texts.into_iter().map(|(content, of)| (of, content)).collect();
    texts.sort();
    for (of, content) in texts {
        let _ = writeln!(text, "\n{}\n{}\n\n{content}", "=".repeat(100), of.join("\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_listed() {
        let node = |id: &str, deps: &str| format!(r#"{{"id": "{id}", "deps": [{deps}]}}"#);
        let dep = |id: &str, kind: &str| {
            format!(r#"{{"pkg": "{id}", "dep_kinds": [{{"kind": {kind}}}]}}"#)
        };
        let package = |id: &str, source: &str| {
            format!(r#"{{"id": "{id}", "name": "{id}", "version": "1", "source": {source}}}"#)
        };
        let metadata = format!(
            r#"{{"packages": [{}], "resolve": {{"nodes": [{}]}}}}"#,
            [
                package("program", "null"),
                package("own", "null"),
                package("far", "\"r\""),
                package("tests", "\"r\""),
                package("builds", "\"r\""),
                package("odd", "\"r\""),
            ]
            .join(","),
            [
                node("program", &[dep("own", "null"), dep("tests", "\"dev\"")].join(",")),
                node("own", &[dep("far", "null"), dep("builds", "\"build\"")].join(",")),
                node("far", ""),
                node("odd", ""),
            ]
            .join(",")
        );
        let json = Json::parse(&metadata).unwrap();
        let names: Vec<String> = linked(&json, "program").into_keys().collect();
        assert_eq!(names, ["far 1"]);
    }

    #[test]
    fn a_text_of_several_packages_is_printed_once() {
        let package = |name: &str, text: &str| Package {
            name: name.into(),
            version: "1".into(),
            licence: "MIT".into(),
            repository: String::new(),
            files: vec![("LICENSE".into(), text.into())],
        };
        let packages = [package("a", "one\n"), package("b", "one"), package("c", "two")];
        let text = render(&packages, &[("MIT.txt".into(), "three".into())]);
        assert_eq!(text.matches("\none\n").count(), 1);
        assert!(text.contains("a 1: LICENSE\nb 1: LICENSE\n\none\n"), "{text}");
        assert!(text.contains("Rust's standard library: MIT.txt\n\nthree\n"), "{text}");
    }
}
