//! Where things lie in the checkout.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the checkout.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// Where cargo builds: `CARGO_TARGET_DIR` or `target`.
pub(crate) fn target_dir(root: &Path) -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root.join(dir),
        None => root.join("target"),
    }
}

/// Tools that are unpacked for this checkout alone.
pub(crate) fn tools_dir(root: &Path) -> PathBuf {
    root.join("target/tools")
}

/// The search path of tests: the user's, then the folders that an ordinary user's lacks.
pub(crate) fn search_path(root: &Path) -> String {
    let mut path = std::env::var("PATH").unwrap_or_default();
    for extra in ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/lib/frr"] {
        if !path.split(':').any(|p| p == extra) {
            path = format!("{path}:{extra}");
        }
    }
    format!("{path}:{}", tools_dir(root).join("bin").display())
}

/// The first file of this name on the search path.
pub(crate) fn find_program(root: &Path, name: &str) -> Option<PathBuf> {
    search_path(root).split(':').map(|dir| Path::new(dir).join(name)).find(|p| p.is_file())
}

/// The files that git tracks, relative to the root, sorted; those deleted in the work tree are left out.
pub(crate) fn tracked_files(root: &Path) -> Vec<PathBuf> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output();
    let Ok(output) = output else { return Vec::new() };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let paths = text.split('\0').filter(|p| !p.is_empty()).map(PathBuf::from);
    paths.filter(|p| root.join(p).is_file()).collect()
}

/// All files below `dir`, or none where it is missing.
pub(crate) fn walk(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(dir) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(path),
                Ok(kind) if kind.is_file() => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// A relative path as seen from `folder`; none where it leaves the checkout.
pub(crate) fn resolve(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}
