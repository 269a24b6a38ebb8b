//! What users get beside the program: completions, manual pages, documentation, examples, licences, the unit.
//!
//! ```text
//!  tarball (below shadeline-VERSION-…)   package                       what
//!  bin/                                  usr/bin/                      the program
//!  share/                                usr/share/                    completions, man, doc/shadeline
//!  lib/                                  usr/lib/                      systemd/system, sysusers.d
//!  etc/shadeline/shadeline.toml          the same                      the default configuration
//! ```
//!
//! Links between pages lead to installed files: those to examples and licences to the places of these, and of a link to a
//! file of the sources only its text is left.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::files::Files;
use super::tools::gzip;
use super::{folder, licences};
use crate::tree;

/// What a program from here is called elsewhere.
pub(crate) struct Release {
    /// Of the workspace.
    pub(crate) version: String,
    /// Seconds since 1970, for all files: `SOURCE_DATE_EPOCH`, else that of the commit.
    pub(crate) time: u64,
    /// The commit, or nothing.
    pub(crate) commit: String,
    /// The program.
    pub(crate) program: PathBuf,
}

/// Where a distribution looks for the files of others.
pub(crate) struct Places {
    pub(crate) zsh: &'static str,
    /// The folder of the program on the machine.
    pub(crate) bin: &'static str,
    /// Manual pages and long texts are compressed.
    pub(crate) packs: bool,
}

/// `/usr` of a Debian package.
pub(crate) const DEBIAN: Places =
    Places { zsh: "share/zsh/vendor-completions", bin: "/usr/bin", packs: true };

/// `/usr/local`, where a tarball is unpacked.
pub(crate) const LOCAL: Places =
    Places { zsh: "share/zsh/site-functions", bin: "/usr/local/bin", packs: false };

const DOC: &str = "share/doc/shadeline";

impl Release {
    pub(crate) fn read(root: &Path, program: PathBuf) -> io::Result<Release> {
        let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
        let lines = manifest.lines().skip_while(|line| *line != "[workspace.package]");
        let version = lines.skip(1).find_map(|line| line.strip_prefix("version = \""));
        let version = version.and_then(|rest| rest.strip_suffix('"'));
        let version = version.ok_or_else(|| io::Error::other("Cargo.toml: no version"))?.to_owned();
        let git = |args: &[&str]| {
            let output = Command::new("git").args(args).current_dir(root).output();
            output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default()
        };
        let time = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(text) => text
                .parse()
                .map_err(|_| io::Error::other(format!("SOURCE_DATE_EPOCH is `{text}`")))?,
            // Without git: 1980, the earliest time that every archive can hold.
            Err(_) => git(&["log", "-1", "--format=%ct"]).parse().unwrap_or(315_532_800),
        };
        Ok(Release { version, time, commit: git(&["rev-parse", "HEAD"]), program })
    }
}

/// Everything but the configuration, below `/usr` or `/usr/local`.
pub(crate) fn usr(root: &Path, release: &Release, places: &Places) -> io::Result<Files> {
    let mut files = Files::default();
    let program = &release.program;
    files.program("bin/shadeline", fs::read(program)?);
    for (shell, path) in [
        ("bash", "share/bash-completion/completions/shadeline".to_owned()),
        ("zsh", format!("{}/_shadeline", places.zsh)),
        ("fish", "share/fish/vendor_completions.d/shadeline.fish".to_owned()),
    ] {
        let output = Command::new(program).args(["completions", shell]).output()?;
        if !output.status.success() || output.stdout.is_empty() {
            return Err(io::Error::other(format!("`shadeline completions {shell}` failed")));
        }
        files.file(&path, output.stdout);
    }
    manual(root, program, places, &mut files)?;
    documentation(root, places, licences::text(root)?.into_bytes(), &mut files)?;
    let unit = fs::read_to_string(root.join("packaging/shadeline.service"))?;
    files.file("lib/systemd/system/shadeline.service", unit.replace("/usr/bin", places.bin));
    files.copy("lib/sysusers.d/shadeline.conf", &root.join("packaging/sysusers.conf"))?;
    Ok(files)
}

fn manual(root: &Path, program: &Path, places: &Places, files: &mut Files) -> io::Result<()> {
    let pages = folder(root).join("man");
    // Of an earlier version, if any.
    let _ = fs::remove_dir_all(&pages);
    if !Command::new(program).arg("man").arg(&pages).status()?.success() {
        return Err(io::Error::other("`shadeline man` failed"));
    }
    for page in tree::walk(&pages) {
        let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let section = name.rsplit('.').next().unwrap_or("1").to_owned();
        let bytes = fs::read(&page)?;
        let path = format!("share/man/man{section}/{name}");
        match places.packs {
            true => files.file(&format!("{path}.gz"), gzip(&bytes)?),
            false => files.file(&path, bytes),
        }
    }
    fs::remove_dir_all(&pages)
}

/// Where a file of the sources is below [`DOC`]; none if it is not installed. Pages keep their places relative to each
/// other.
fn installed(path: &str, places: &Places) -> Option<String> {
    Some(match path {
        "README.md" | "ARCHITECTURE.md" => path.to_owned(),
        "CHANGELOG.md" if places.packs => "changelog.gz".to_owned(),
        "CHANGELOG.md" => path.to_owned(),
        "LICENSE-MIT" | "LICENSE-APACHE" if places.packs => "copyright".to_owned(),
        "LICENSE-MIT" | "LICENSE-APACHE" => path.to_owned(),
        // The examples name it.
        "shadeline/data/routes.txt.gz" => "data/routes.txt.gz".to_owned(),
        _ if is_below(path, "docs") || is_below(path, "examples/modules") => path.to_owned(),
        _ if is_below(path, "shadeline/examples") => path["shadeline/".len()..].to_owned(),
        _ => return None,
    })
}

/// Whether `path` is the folder or in it.
fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// README.md, the pages of docs/, ARCHITECTURE.md, changes, examples and licences. `text` is that of the licences of others.
fn documentation(root: &Path, places: &Places, text: Vec<u8>, files: &mut Files) -> io::Result<()> {
    for tracked in tree::tracked_files(root) {
        let path = tracked.to_string_lossy();
        let from = root.join(&tracked);
        let Some(to) = installed(&path, places).filter(|to| to != "copyright") else { continue };
        let to = format!("{DOC}/{to}");
        match path.strip_suffix(".md") {
            Some(_) => {
                let page = relinked(&fs::read_to_string(&from)?, &path, places);
                match to.ends_with(".gz") {
                    true => files.file(&to, gzip(page.as_bytes())?),
                    false => files.file(&to, page),
                }
            }
            None => files.copy(&to, &from)?,
        }
    }
    match places.packs {
        true => {
            files.file(&format!("{DOC}/THIRD-PARTY.gz"), gzip(&text)?);
            files.file(&format!("{DOC}/copyright"), copyright(root)?);
        }
        false => {
            files.file(&format!("{DOC}/THIRD-PARTY"), text);
            licence_files(root, DOC, files)?;
        }
    }
    Ok(())
}

/// The page of this path with links to where files are installed. Of a link to another file only its text is left. Commands
/// and texts name the examples by their installed place, too.
fn relinked(page: &str, path: &str, places: &Places) -> String {
    let folder_of = |path: &str| path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
    let from = folder_of(path);
    let home = folder_of(&installed(path, places).unwrap_or_default());
    let parts = page.split("```").enumerate();
    let parts = parts.map(|(at, part)| match at % 2 {
        0 => relinked_prose(part, (&from, &home), places),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("```").replace("shadeline/examples/", "examples/")
}

/// The same of what is no code, in a page of the folder `from` that is installed in the folder `home`.
fn relinked_prose(prose: &str, (from, home): (&str, &str), places: &Places) -> String {
    let (mut out, mut rest) = (String::new(), prose);
    while let Some((before, text, target, after)) = next_link(rest) {
        let (file, anchor) = target.split_at(target.find('#').unwrap_or(target.len()));
        // What leads to the web, or to a place in this page.
        if file.is_empty() || file.contains(':') {
            out += &rest[..rest.len() - after.len()];
        } else {
            let to = tree::resolve(from, file).and_then(|file| installed(&file, places));
            out += before;
            match to {
                Some(to) => {
                    let depth = home.split('/').filter(|part| !part.is_empty()).count();
                    let beside = to.strip_prefix(home).and_then(|rest| rest.strip_prefix('/'));
                    let to = beside.map_or_else(|| "../".repeat(depth) + &to, str::to_owned);
                    out += &format!("[{text}]({to}{anchor})");
                }
                None => out += text,
            }
        }
        rest = after;
    }
    out + rest
}

/// The first link of a text, `[text](target)`: what is before it, its two parts, and what is behind it.
fn next_link(text: &str) -> Option<(&str, &str, &str, &str)> {
    text.match_indices("](").find_map(|(middle, _)| {
        let mut depth = 0;
        let open = text[..middle].bytes().enumerate().rev().find_map(|(at, byte)| {
            match byte {
                b'[' if depth == 0 => return Some(at),
                b'[' => depth -= 1,
                b']' => depth += 1,
                _ => {}
            }
            None
        })?;
        let end = middle + text[middle..].find(')')?;
        let target = &text[middle + 2..end];
        let is_target = !target.contains([' ', '\n', '`']);
        is_target.then(|| (&text[..open], &text[open + 1..middle], target, &text[end + 1..]))
    })
}

/// The project's own licences, and those of the data inside the program (the demo's capture and routing table).
pub(crate) fn licence_files(root: &Path, folder: &str, files: &mut Files) -> io::Result<()> {
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        files.copy(&format!("{folder}/{name}"), &root.join(name))?;
    }
    for name in ["SOURCES.md", "COPYING.zeek", "LICENSE.bart"] {
        files.copy(&format!("{folder}/data/{name}"), &root.join("shadeline/data").join(name))?;
    }
    Ok(())
}

/// The same as one file, as Debian wants it.
fn copyright(root: &Path) -> io::Result<String> {
    let read = |name: &str| fs::read_to_string(root.join(name));
    Ok(format!(
        "Shadeline is licensed under MIT or Apache-2.0, at your option. The licences of the packages that it\n\
         is linked with are in THIRD-PARTY.gz. Apache-2.0: /usr/share/common-licenses/Apache-2.0.\n\n\
         {}\nData of `shadeline demo`\n========================\n\n{}\n{}\n{}",
        read("LICENSE-MIT")?,
        read("shadeline/data/SOURCES.md")?,
        read("shadeline/data/LICENSE.bart")?,
        read("shadeline/data/COPYING.zeek")?,
    ))
}

/// The configuration of the service.
pub(crate) const CONFIGURATION: &str = "packaging/shadeline.toml";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn all(places: &Places) -> Files {
        let mut files = Files::default();
        documentation(&tree::root(), places, Vec::new(), &mut files).expect("the documentation");
        files
    }

    /// Relative targets of the links of a page, outside of code.
    fn targets(page: &str) -> Vec<String> {
        let mut is_code = false;
        let mut all = Vec::new();
        for line in page.lines() {
            is_code ^= line.trim_start().starts_with("```");
            let links = line.match_indices("](").filter(|_| !is_code);
            let targets = links.filter_map(|(at, _)| line[at + 2..].split([')', ' ', '#']).next());
            all.extend(
                targets.filter(|own| !own.is_empty() && !own.contains(':')).map(str::to_owned),
            );
        }
        all
    }

    #[test]
    fn links_of_installed_pages_lead_to_installed_files() {
        for places in [&DEBIAN, &LOCAL] {
            let files = all(places);
            // Files, and the folders that hold them.
            let mut known = BTreeSet::new();
            for (path, _) in files.contents() {
                known.extend(path.match_indices('/').map(|(at, _)| path[..at].to_owned()));
                known.insert(path.to_owned());
            }
            let (mut pages, mut links) = (0, 0);
            for (path, bytes) in files.contents().filter(|(path, _)| path.ends_with(".md")) {
                let folder = path.rsplit_once('/').expect("a folder").0;
                pages += 1;
                let page = String::from_utf8_lossy(bytes);
                assert!(!page.contains("shadeline/examples/"), "{path}: examples are elsewhere");
                for target in targets(&page) {
                    let file = tree::resolve(folder, &target).unwrap_or_default();
                    assert!(known.contains(&file), "{path}: {target} is not installed");
                    links += 1;
                }
            }
            assert!(pages > 25 && links > 150, "{pages} pages, {links} links");
            for file in ["ARCHITECTURE.md", "examples/modules/pass.k", "examples/lab/lab.sh"] {
                assert!(known.contains(&format!("{DOC}/{file}")), "{file}");
            }
        }
    }

    #[test]
    fn links_follow_the_files() {
        let page = "See [a](../shadeline/examples/a.toml#top), [`b[0]`](../bench/README.md) x[1] ![c](images/c.png)\n\
                    [d](d.md) [e](https://e.org) [f](#f) [g](../CHANGELOG.md) [h](../LICENSE-MIT) sh shadeline/examples/x\n";
        assert_eq!(
            relinked(page, "docs/page.md", &DEBIAN),
            "See [a](../examples/a.toml#top), `b[0]` x[1] ![c](images/c.png)\n\
             [d](d.md) [e](https://e.org) [f](#f) [g](../changelog.gz) [h](../copyright) sh examples/x\n"
        );
        assert_eq!(
            relinked("[a](docs/a.md) [b](CHANGELOG.md)", "README.md", &LOCAL),
            "[a](docs/a.md) [b](CHANGELOG.md)"
        );
    }
}
