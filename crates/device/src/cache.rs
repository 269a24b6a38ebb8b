//! Compiled kernels on disk, so that a program starts without waiting for a compiler.
//!
//! A compiled kernel depends on its source and definitions, the compiler's options, the device, the
//! driver's version, and how this program uses it. All of that, as text, is the key. A file is named by
//! the key's hash and holds the key itself, which is compared: two keys of one hash cost a compilation,
//! never a wrong kernel. That is also why 64-bit FNV-1a is enough, which is a loop of two operations and,
//! unlike the standard library's hasher, the same in every release.
//!
//! ```text
//! "shadeline kernel 1\n"  key bytes  code bytes  check  key …  code …
//!         19 bytes        u64        u64         u64                    little-endian; check: FNV-1a of the rest
//! ```
//!
//! A file is written beside its place and moved there, so that no reader sees half of it. A file that is
//! cut short, changed or foreign is ignored and written anew. The cache never makes anything fail.
//!
//! Threads and processes: any number may use one folder.

use std::fs::{self, DirBuilder, File};
use std::io::{Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::driver::{DeviceInfo, Program, prologue};

/// Where compiled kernels are kept; clones share their counts.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: Option<PathBuf>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
}

const MAGIC: &[u8] = b"shadeline kernel 1\n";
/// Magic and three numbers.
const HEADER_BYTES: usize = MAGIC.len() + 3 * 8;
/// Files beyond this many: the oldest go.
const ENTRIES_MAX: usize = 512;
/// A file beyond this is not ours.
const ENTRY_BYTES_MAX: u64 = 256 << 20;
const ENDING: &str = "kernel";

impl Cache {
    /// The operator's: the folder that `SHADELINE_CACHE` names (set to nothing: no cache), else
    /// `shadeline/kernels` below `XDG_CACHE_HOME`, else below `~/.cache`. Without a home there is none.
    pub fn from_environment() -> Self {
        let folder = folder(|name| std::env::var_os(name).map(PathBuf::from));
        Self { folder, counts: Arc::default() }
    }

    /// In this folder, made when first needed.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()), counts: Arc::default() }
    }

    /// None: every program is compiled.
    pub fn none() -> Self {
        Self { folder: None, counts: Arc::default() }
    }

    /// The folder; `None` where nothing is kept.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Programs found so far.
    pub fn hits(&self) -> u64 {
        self.counts.hits.load(Ordering::Relaxed)
    }

    /// Programs looked for and not found so far.
    pub fn misses(&self) -> u64 {
        self.counts.misses.load(Ordering::Relaxed)
    }

    /// The code kept under `key`.
    pub(crate) fn get(&self, key: &str) -> Option<Vec<u8>> {
        let code = read(&entry(self.folder.as_ref()?, key), key);
        let count = if code.is_some() { &self.counts.hits } else { &self.counts.misses };
        count.fetch_add(1, Ordering::Relaxed);
        code
    }

    /// Keeps `code` under `key`. A full disk or a folder that cannot be written costs a compilation the
    /// next time, nothing else.
    pub(crate) fn put(&self, key: &str, code: &[u8]) {
        let Some(folder) = &self.folder else { return };
        if write(folder, &entry(folder, key), key, code).is_ok() {
            let _ = sweep(folder);
        }
    }
}

/// Everything that code compiled from `program` depends on.
pub(crate) fn key(info: &DeviceInfo, options: &str, compiler: &str, program: &Program) -> String {
    format!(
        "{} {}\n{:?}\ntarget {}\ndriver {}\ncompiler {compiler}\noptions {options}\n\n{}{}",
        env!("CARGO_PKG_NAME"),
        env!("CARGO_PKG_VERSION"),
        info.api,
        info.target,
        info.driver,
        prologue(program),
        program.source,
    )
}

fn folder(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    if let Some(named) = variable("SHADELINE_CACHE") {
        return Some(named).filter(|f| !f.as_os_str().is_empty());
    }
    // The standard for these folders says that a relative path is to be ignored.
    let absolute = |name| variable(name).filter(|f| f.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("shadeline/kernels"))
}

/// 64-bit FNV-1a (the Internet draft draft-eastlake-fnv).
fn fnv1a(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().copied().flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn entry(folder: &Path, key: &str) -> PathBuf {
    folder.join(format!("{:016x}.{ENDING}", fnv1a(&[key.as_bytes()])))
}

fn read(path: &Path, key: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = File::open(path).ok()?;
    if file.metadata().ok()?.len() > ENTRY_BYTES_MAX {
        return None;
    }
    file.read_to_end(&mut bytes).ok()?;
    let rest = bytes.strip_prefix(MAGIC)?;
    let (numbers, rest) = rest.split_at_checked(3 * 8)?;
    let number = |i: usize| {
        let bytes = numbers.get(8 * i..)?.first_chunk()?;
        usize::try_from(u64::from_le_bytes(*bytes)).ok()
    };
    let (found, code) = rest.split_at_checked(number(0)?)?;
    let whole = code.len() == number(1)? && fnv1a(&[found, code]) as usize == number(2)?;
    (whole && found == key.as_bytes()).then(|| code.to_vec())
}

fn write(folder: &Path, path: &Path, key: &str, code: &[u8]) -> std::io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let beside = path.with_extension(format!("{}-{number}.part", std::process::id()));
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend_from_slice(MAGIC);
    for value in [key.len() as u64, code.len() as u64, fnv1a(&[key.as_bytes(), code])] {
        header.extend_from_slice(&value.to_le_bytes());
    }
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(&header)?;
        file.write_all(key.as_bytes())?;
        file.write_all(code)?;
        fs::rename(&beside, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&beside); // there may be none
    }
    written
}

/// Takes the oldest files away where there are too many, and parts that a crash left behind.
fn sweep(folder: &Path) -> std::io::Result<()> {
    let mut entries = Vec::new();
    let now = SystemTime::now();
    for file in fs::read_dir(folder)?.flatten() {
        let (path, modified) = (file.path(), file.metadata().and_then(|m| m.modified()));
        let Ok(modified) = modified else { continue };
        let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        let is_old = now.duration_since(modified).is_ok_and(|age| age.as_secs() > 3600);
        if ending == ENDING {
            entries.push((modified, path));
        } else if ending == "part" && is_old {
            let _ = fs::remove_file(&path);
        }
    }
    entries.sort();
    for (_, path) in entries.iter().rev().skip(ENTRIES_MAX) {
        let _ = fs::remove_file(path);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_found_under_its_key_alone() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("a/b"));
        assert_eq!(cache.get("one"), None);
        cache.put("one", b"code of one");
        cache.put("two", b"");
        assert_eq!(cache.get("one").as_deref(), Some(&b"code of one"[..]));
        assert_eq!(cache.get("two").as_deref(), Some(&b""[..]));
        assert_eq!(cache.get("three"), None);
        cache.put("one", b"newer");
        assert_eq!(Cache::at(folder.path().join("a/b")).get("one").as_deref(), Some(&b"newer"[..]));
        assert_eq!((cache.hits(), cache.misses()), (2, 2));
        assert_eq!(
            fs::read_dir(folder.path().join("a/b")).unwrap().count(),
            2,
            "no parts are left"
        );
    }

    /// As if two keys had one hash.
    #[test]
    fn an_entry_of_another_key_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        cache.put("one", b"code");
        fs::rename(entry(folder.path(), "one"), entry(folder.path(), "two")).unwrap();
        assert_eq!(cache.get("two"), None);
    }

    #[test]
    fn an_entry_that_is_cut_short_or_changed_anywhere_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        cache.put("key", b"some code");
        let path = entry(folder.path(), "key");
        let good = fs::read(&path).unwrap();
        for length in 0..good.len() {
            fs::write(&path, &good[..length]).unwrap();
            assert_eq!(cache.get("key"), None, "cut to {length}");
        }
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                fs::write(&path, &bad).unwrap();
                assert_eq!(cache.get("key"), None, "bit {bit} of byte {at}");
            }
        }
        cache.put("key", b"some code");
        assert!(cache.get("key").is_some(), "written anew");
    }

    #[test]
    fn a_folder_that_cannot_be_is_no_trouble() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for cache in [Cache::none(), Cache::at(file.path().join("below a file"))] {
            cache.put("key", b"code");
            assert_eq!(cache.get("key"), None);
        }
    }

    #[test]
    fn the_oldest_of_too_many_go() {
        let folder = tempfile::tempdir().unwrap();
        for i in 0..ENTRIES_MAX + 3 {
            fs::write(folder.path().join(format!("{i:016x}.{ENDING}")), b"").unwrap();
        }
        let cache = Cache::at(folder.path());
        cache.put("key", b"code");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), ENTRIES_MAX);
        assert!(cache.get("key").is_some());
    }

    #[test]
    fn the_folder_is_the_operators() {
        let found = |variables: &[(&str, &str)]| {
            let variables = variables.to_vec();
            let all = move |name: &str| {
                variables.iter().find(|(n, _)| *n == name).map(|(_, v)| PathBuf::from(v))
            };
            folder(all).map(|f| f.to_string_lossy().into_owned())
        };
        for (variables, expected) in [
            (&[("HOME", "/h")][..], Some("/h/.cache/shadeline/kernels")),
            (&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")], Some("/x/shadeline/kernels")),
            (&[("HOME", "/h"), ("XDG_CACHE_HOME", "x")], Some("/h/.cache/shadeline/kernels")),
            (&[("HOME", "/h"), ("SHADELINE_CACHE", "here")], Some("here")),
            (&[("HOME", "/h"), ("SHADELINE_CACHE", "")], None),
            (&[], None),
        ] {
            assert_eq!(found(variables).as_deref(), expected, "{variables:?}");
        }
    }
}
