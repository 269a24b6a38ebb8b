//! `cargo xtask dist`: the release program with the PTX of all its kernels inside, and packages of it.
//!
//! 1. The program lists the device programs that it can ask for and has NVRTC compile them into one file.
//! 2. The release is built with that file inside (`SHADELINE_PTX`, read by `crates/device/build.rs`).
//! 3. The release itself must find the PTX of every program of its own list.
//! 4. A tarball, a Debian package and a container image are made of it, with their SHA-256 sums.
//!
//! So a machine with NVIDIA's driver alone, without NVRTC, runs it. Without NVRTC here the packages hold the plain
//! release, which compiles kernels on the machine where it runs. `SHADELINE_BIN` names a program that is packed instead
//! of building one. The suite installs and starts each package ([`proof`]).

mod contents;
mod deb;
mod files;
pub(crate) mod licences;
mod oci;
mod proof;
mod tools;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use contents::Release;
use deb::Parts;

use crate::suites::{BUILD_LIMIT, Report, cargo};
use crate::{setup, tree};

/// The newest glibc that the program may ask for, its minor version: that of RHEL 9, older than those of Debian 12 and
/// Ubuntu 22.04. It is what the program needs when it is built on Debian 12; linking it statically would leave out the
/// loader for the libraries of GPUs.
const GLIBC_MINOR_MAX: u32 = 34;
const LIMIT: Duration = Duration::from_secs(120);

/// Where the program lies afterwards.
pub(crate) fn program(root: &Path) -> PathBuf {
    folder(root).join("shadeline")
}

/// The PTX that is inside it.
pub(crate) fn ptx(root: &Path) -> PathBuf {
    folder(root).join("programs.ptx")
}

fn folder(root: &Path) -> PathBuf {
    tree::target_dir(root).join("dist")
}

/// The packages, by what they are.
struct Packages {
    tarball: PathBuf,
    deb: PathBuf,
    image: PathBuf,
    sums: PathBuf,
}

impl Packages {
    fn of(root: &Path, version: &str) -> Packages {
        let (machine, debian) = (std::env::consts::ARCH, deb::architecture());
        let at = |name: String| folder(root).join(name);
        Packages {
            tarball: at(format!("shadeline-{version}-{machine}-linux.tar.xz")),
            deb: at(format!("shadeline_{version}_{debian}.deb")),
            image: at(format!("shadeline-{version}-{debian}.oci.tar")),
            sums: at("SHA256SUMS".into()),
        }
    }
}

/// `cargo xtask dist`.
pub(crate) fn make(root: &Path) -> Report {
    let mut report = Report::begin(root, "dist");
    if let Some((release, _)) = packed(root, &mut report) {
        let Packages { tarball, deb, image, sums } = Packages::of(root, &release.version);
        for path in [program(root), tarball, deb, image, sums] {
            report.say(&format!("{}", path.display()));
        }
    }
    report.end()
}

/// The suite: makes them, installs each, starts what was installed.
pub(crate) fn run(root: &Path) -> Report {
    let mut report = Report::begin(root, "dist");
    if let Some((release, glibc_minor)) = packed(root, &mut report) {
        let packages = Packages::of(root, &release.version);
        proof::run(root, &mut report, &release, glibc_minor, &packages);
    }
    report.end()
}

/// Program and packages; the second value is the minor version of the glibc that it needs.
fn packed(root: &Path, report: &mut Report) -> Option<(Release, u32)> {
    if let Err(error) = fs::create_dir_all(folder(root)) {
        report.counts.fail(format!("{}: {error}", folder(root).display()));
        return None;
    }
    let good = if let Some(own) = std::env::var_os("SHADELINE_BIN") {
        report.say(&format!("SHADELINE_BIN: packs {}, builds nothing", own.display()));
        placed(root, Path::new(&own), report)
    } else if setup::nvrtc(root).is_some() {
        placed_with_ptx(root, report)
    } else {
        let reason =
            "nvidia-cuda-nvrtc is not in .venv (`cargo xtask setup dist`): packages without PTX";
        report.say(reason);
        report.counts.skip("PTX", reason, report.in_ci);
        release(root, report).is_some_and(|built| placed(root, &built, report))
    };
    if !good {
        return None;
    }
    let minor = glibc(root, report)?;
    let release = Release::read(root, program(root));
    match release.and_then(|release| pack(root, &release, minor).map(|()| release)) {
        Ok(release) => {
            report.counts.pass();
            Some((release, minor))
        }
        Err(error) => {
            report.counts.fail(format!("packages: {error}"));
            None
        }
    }
}

/// Writes the packages; those of other versions go.
fn pack(root: &Path, release: &Release, glibc_minor: u32) -> io::Result<()> {
    for entry in fs::read_dir(folder(root))? {
        let name = entry?.file_name();
        let text = name.to_string_lossy();
        if text.starts_with("shadeline-") || text.starts_with("shadeline_") {
            fs::remove_file(folder(root).join(&name))?;
        }
    }
    let Packages { tarball, deb, image, sums } = Packages::of(root, &release.version);
    fs::write(&tarball, tools::xz(&self::tarball(root, release)?, "-6")?)?;
    let usr = contents::usr(root, release, &contents::DEBIAN)?;
    let parts = Parts::read(root, release, glibc_minor)?;
    fs::write(&deb, deb::package(root, parts, usr, "-6")?)?;
    fs::write(&image, oci::image(root, release)?)?;
    let mut text = String::new();
    for path in [&deb, &image, &tarball] {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        text += &format!("{}  {name}\n", tools::sha256(&fs::read(path)?)?);
    }
    fs::write(sums, text)
}

/// The release tarball before it is compressed.
fn tarball(root: &Path, release: &Release) -> io::Result<Vec<u8>> {
    let mut files = contents::usr(root, release, &contents::LOCAL)?;
    files.copy("etc/shadeline/shadeline.toml", &root.join(contents::CONFIGURATION))?;
    let prefix = format!("shadeline-{}-{}-linux/", release.version, std::env::consts::ARCH);
    files.tar(&prefix, release.time)
}

/// Whether the release could be built; nothing before the first suite has asked.
static RELEASE: Mutex<Option<bool>> = Mutex::new(None);

/// The release as cargo leaves it, with PTX inside where NVRTC is at hand. It is built once a run, for whoever asks
/// first.
pub(crate) fn release(root: &Path, report: &mut Report) -> Option<PathBuf> {
    let mut built = RELEASE.lock().unwrap_or_else(PoisonError::into_inner);
    let good = *built.get_or_insert_with(|| report.in_place_of("golden", |r| build(root, r)));
    good.then(|| tree::target_dir(root).join("release/shadeline"))
}

/// The environment in which cargo finds that the release is built already.
pub(crate) fn with_ptx(root: &Path) -> Option<(&'static str, PathBuf)> {
    ptx(root).is_file().then(|| ("SHADELINE_PTX", ptx(root)))
}

fn build(root: &Path, report: &mut Report) -> bool {
    if let Some(nvrtc) = setup::nvrtc(root) {
        if !list_programs(root, report, &nvrtc) {
            return false;
        }
    } else {
        // Of an earlier run, if any.
        let _ = fs::remove_file(ptx(root));
    }
    let mut release = cargo(root, &["build", "--release", "-p", "shadeline"]);
    report.build(release.envs(with_ptx(root)), BUILD_LIMIT)
}

/// Compiles what the program can ask for. The program of the tests makes the list, so that the release is built once
/// and not twice.
fn list_programs(root: &Path, report: &mut Report, nvrtc: &Path) -> bool {
    if let Err(error) = fs::create_dir_all(folder(root)) {
        report.counts.fail(format!("{}: {error}", folder(root).display()));
        return false;
    }
    // As a test that runs the program has it built: with the features of all other tests.
    let tests = ["test", "--workspace", "--no-run", "--test", "pages"];
    if !report.build(&mut cargo(root, &tests), BUILD_LIMIT) {
        return false;
    }
    let before = report.counts.failures.len();
    let mut list = Command::new(tree::target_dir(root).join("debug/shadeline"));
    let fresh = ptx(root).with_extension("new");
    list.arg("programs").arg("--pack").arg(&fresh).env("SHADELINE_NVRTC", nvrtc);
    report.build_one("programs compile", &mut list, BUILD_LIMIT);
    if report.counts.failures.len() > before {
        return false;
    }
    if let Err(error) = replace_if_other(&fresh, &ptx(root)) {
        report.counts.fail(format!("{}: {error}", ptx(root).display()));
        return false;
    }
    true
}

/// Puts the program with PTX inside where packages take it from; true if the PTX is there and whole.
pub(crate) fn placed_with_ptx(root: &Path, report: &mut Report) -> bool {
    if setup::nvrtc(root).is_none() {
        let reason = "nvidia-cuda-nvrtc is not in .venv (`cargo xtask setup dist`)";
        report.counts.skip("dist", reason, report.in_ci);
        return false;
    }
    let before = report.counts.failures.len();
    let Some(built) = release(root, report) else { return false };
    if !placed(root, &built, report) {
        return false;
    }
    let mut found = Command::new(program(root));
    report.run_one("the release finds its PTX", found.arg("programs"), LIMIT);
    report.counts.failures.len() == before
}

/// Cargo builds the release again if the file is newer than the last build, so one with the same bytes stays as it is:
/// several suites ask for the release.
fn replace_if_other(fresh: &Path, old: &Path) -> io::Result<()> {
    match fs::read(old) {
        Ok(bytes) if bytes == fs::read(fresh)? => fs::remove_file(fresh),
        _ => fs::rename(fresh, old),
    }
}

/// Puts a program where packages take it from.
fn placed(root: &Path, built: &Path, report: &mut Report) -> bool {
    // Suites run side by side, and two of them want it there.
    static PLACE: Mutex<()> = Mutex::new(());
    let _place = PLACE.lock().unwrap_or_else(PoisonError::into_inner);
    match strip(built, &program(root), Strip::Lines) {
        Ok(()) => true,
        Err(error) => {
            report.counts.fail(format!("{}: {error}", program(root).display()));
            false
        }
    }
}

/// The glibc that the program needs; a failure if that is a newer one than it may.
fn glibc(root: &Path, report: &mut Report) -> Option<u32> {
    let minor = fs::read(program(root)).ok().and_then(|program| glibc_minor(&program));
    match minor {
        Some(minor) if minor <= GLIBC_MINOR_MAX => report.counts.pass(),
        Some(minor) => report
            .counts
            .fail(format!("the program asks for glibc 2.{minor}; 2.{GLIBC_MINOR_MAX} must do")),
        None => report.counts.fail("the program names no version of glibc"),
    }
    if let Some(minor) = minor {
        report.say(&format!("needs glibc 2.{minor}"));
    }
    minor
}

/// What `strip` leaves out of a program.
#[derive(Clone, Copy)]
pub(crate) enum Strip {
    /// Line tables: half of its size.
    Lines,
    /// The names of functions, too: a sixth of what is left, packed. Panics name their file and line all the same.
    Names,
}

/// Copies a program without these; whole where there is no `strip`.
pub(crate) fn strip(from: &Path, to: &Path, what: Strip) -> std::io::Result<()> {
    let beside = to.with_extension("new");
    let mut strip = Command::new("strip");
    let option = match what {
        Strip::Lines => "--strip-debug",
        Strip::Names => "--strip-all",
    };
    strip.arg(option).arg("-o").arg(&beside).arg(from);
    if !strip.status().is_ok_and(|status| status.success()) {
        fs::copy(from, &beside)?;
    }
    // One that runs just now is not overwritten but replaced.
    fs::rename(&beside, to)
}

/// The newest version of glibc whose symbols a program names: the number behind `GLIBC_2.`.
fn glibc_minor(program: &[u8]) -> Option<u32> {
    let prefix = b"GLIBC_2.";
    let places = program.windows(prefix.len()).enumerate().filter(|(_, window)| window == prefix);
    let numbers = places.filter_map(|(at, _)| {
        let digits = program[at + prefix.len()..].iter().take(3).take_while(|b| b.is_ascii_digit());
        digits.map(|b| char::from(*b)).collect::<String>().parse().ok()
    });
    numbers.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_the_same_bytes_stays() {
        let folder = std::env::temp_dir().join(format!("xtask-dist-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (old, fresh) = (folder.join("old"), folder.join("fresh"));
        let put = |bytes: &str| {
            fs::write(&fresh, bytes).unwrap();
            replace_if_other(&fresh, &old).unwrap();
            assert!(!fresh.exists());
            assert_eq!(fs::read_to_string(&old).unwrap(), bytes);
            fs::metadata(&old).unwrap().modified().unwrap()
        };
        let first = put("1");
        assert_eq!(put("1"), first);
        put("2");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_newest_glibc_counts() {
        assert_eq!(glibc_minor(b"..GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0"), Some(34));
        assert_eq!(glibc_minor(b"GLIBC_2."), None);
        assert_eq!(glibc_minor(b"GLIBC_PRIVATE"), None);
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(glibc_minor(&own).is_some_and(|minor| minor >= 17), "of Rust's own minimum");
    }
}
