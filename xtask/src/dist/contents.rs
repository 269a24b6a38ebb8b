//! What users get beside the program: completions, manual pages, documentation, examples, licences, the unit.
//!
//! ```text
//!  tarball (below shadeline-VERSION-…)   package                       what
//!  bin/                                  usr/bin/                      the program
//!  share/                                usr/share/                    completions, man, doc/shadeline
//!  lib/                                  usr/lib/                      systemd/system, sysusers.d
//!  etc/shadeline/shadeline.toml          the same                      the default configuration
//! ```

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
    documentation(root, places, &mut files)?;
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

/// Pages keep their places relative to each other, so that links lead on.
fn documentation(root: &Path, places: &Places, files: &mut Files) -> io::Result<()> {
    files.copy(&format!("{DOC}/README.md"), &root.join("README.md"))?;
    for tracked in tree::tracked_files(root) {
        let path = tracked.to_string_lossy();
        if path.starts_with("docs/") {
            files.copy(&format!("{DOC}/{path}"), &root.join(&tracked))?;
        } else if let Some(example) = path.strip_prefix("shadeline/examples/") {
            files.copy(&format!("{DOC}/examples/{example}"), &root.join(&tracked))?;
        }
    }
    // The examples name it.
    files.copy(&format!("{DOC}/data/routes.txt.gz"), &root.join("shadeline/data/routes.txt.gz"))?;
    let text = licences::text(root)?.into_bytes();
    let changes = fs::read(root.join("CHANGELOG.md"))?;
    match places.packs {
        true => {
            files.file(&format!("{DOC}/THIRD-PARTY.gz"), gzip(&text)?);
            files.file(&format!("{DOC}/changelog.gz"), gzip(&changes)?);
            files.file(&format!("{DOC}/copyright"), copyright(root)?);
        }
        false => {
            files.file(&format!("{DOC}/THIRD-PARTY"), text);
            files.file(&format!("{DOC}/CHANGELOG.md"), changes);
            licence_files(root, DOC, files)?;
        }
    }
    Ok(())
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
