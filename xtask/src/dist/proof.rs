//! Each package is installed and started, where the machine allows.
//!
//! The scripts beside this file run in namespaces of their own, over a copy of this machine's files that takes all
//! changes (overlayfs), so the machine itself stays as it is. A script that cannot run here ends with status 77, and its
//! last line says why.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::contents::{self, Release};
use super::deb::{self, Parts};
use super::{Packages, folder, tarball};
use crate::suites::Report;

const LIMIT: Duration = Duration::from_secs(300);

/// Installs and starts them all.
pub(super) fn run(
    root: &Path,
    report: &mut Report,
    release: &Release,
    glibc_minor: u32,
    packages: &Packages,
) {
    match (tarball(root, release), tarball(root, release)) {
        (Ok(one), Ok(two)) if one == two => report.counts.pass(),
        (Ok(_), Ok(_)) => report.counts.fail("the tarball is another one each time"),
        (Err(error), _) | (_, Err(error)) => report.counts.fail(format!("tarball: {error}")),
    }
    let script = |name: &str| root.join("xtask/src/dist").join(name);
    let mut unpacked = Command::new("sh");
    unpacked.arg(script("tarball.sh")).arg(&packages.tarball).arg(&packages.sums);
    report.run_or_skip("tarball", &mut unpacked, LIMIT);

    let mut image = Command::new("sh");
    image.arg(script("image.sh")).arg(&packages.image).arg(&release.version);
    report.run_or_skip("image", &mut image, LIMIT);

    let older = match older(root, release, glibc_minor) {
        Ok(path) => path,
        Err(error) => return report.counts.fail(format!("the older package: {error}")),
    };
    for name in ["package", "service"] {
        let mut command = Command::new("sh");
        command.arg(script(&format!("{name}.sh"))).arg(&packages.deb).arg(&older);
        command.current_dir("/");
        report.run_or_skip(name, &mut command, LIMIT);
    }
    // Only for the test; a user must not find it beside the packages.
    let _ = fs::remove_file(older);
}

/// The same package in an older version with another default configuration, to upgrade from.
fn older(root: &Path, release: &Release, glibc_minor: u32) -> io::Result<PathBuf> {
    let mut parts = Parts::read(root, release, glibc_minor)?;
    parts.version += "~older";
    parts.configuration = [b"# Of an older version.\n".to_vec(), parts.configuration].concat();
    let usr = contents::usr(root, release, &contents::DEBIAN)?;
    let path = folder(root).join("older.deb");
    fs::write(&path, deb::package(root, parts, usr, "-0")?)?;
    Ok(path)
}
