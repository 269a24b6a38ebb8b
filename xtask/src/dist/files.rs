//! A tree of files on its way into an archive, and the archives themselves: tar (POSIX.1-1988, "ustar") and ar.
//!
//! The same input gives the same bytes: entries are sorted, owners are numbers, and there is one time for all. Both
//! formats are a few fields in front of the data, so they are written here instead of by a library, which a newcomer
//! would have to wait for. dpkg, GNU tar and umoci read the result in the suite.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Files by path, which is relative and has no `.` in front.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    kind: Kind,
    mode: u32,
    /// Number of user and group.
    owner: u32,
}

#[derive(Clone, Debug)]
enum Kind {
    Folder,
    File(Vec<u8>),
}

impl Files {
    /// A file that everyone may read.
    pub(crate) fn file(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.add(path, Kind::File(bytes.into()), 0o644, 0);
    }

    /// A file that everyone may run.
    pub(crate) fn program(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.add(path, Kind::File(bytes.into()), 0o755, 0);
    }

    /// A folder of its own, where no file needs it or it has an owner.
    pub(crate) fn folder(&mut self, path: &str, mode: u32, owner: u32) {
        self.add(path, Kind::Folder, mode, owner);
    }

    /// A file of the disk.
    pub(crate) fn copy(&mut self, path: &str, from: &Path) -> io::Result<()> {
        let read = std::fs::read(from);
        let bytes =
            read.map_err(|error| io::Error::other(format!("{}: {error}", from.display())))?;
        self.file(path, bytes);
        Ok(())
    }

    /// All files of another tree, below a folder.
    pub(crate) fn join(&mut self, folder: &str, other: Files) {
        for (path, entry) in other.entries {
            self.add(&format!("{folder}/{path}"), entry.kind, entry.mode, entry.owner);
        }
    }

    fn add(&mut self, path: &str, kind: Kind, mode: u32, owner: u32) {
        for (at, _) in path.match_indices('/') {
            let parent = Entry { kind: Kind::Folder, mode: 0o755, owner: 0 };
            self.entries.entry(path[..at].to_owned()).or_insert(parent);
        }
        self.entries.insert(path.to_owned(), Entry { kind, mode, owner });
    }

    /// Paths and contents of the regular files.
    pub(crate) fn contents(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries.iter().filter_map(|(path, entry)| match &entry.kind {
            Kind::File(bytes) => Some((path.as_str(), bytes.as_slice())),
            _ => None,
        })
    }

    /// A tar archive whose entries have `prefix` in front of their paths.
    pub(crate) fn tar(&self, prefix: &str, time: u64) -> io::Result<Vec<u8>> {
        let mut archive = Vec::new();
        for (path, entry) in &self.entries {
            let slash = if matches!(entry.kind, Kind::Folder) { "/" } else { "" };
            let path = format!("{prefix}{path}{slash}");
            let bytes = match &entry.kind {
                Kind::Folder => &[][..],
                Kind::File(bytes) => bytes,
            };
            archive.extend(header(&path, entry, bytes.len(), time)?);
            archive.extend(bytes);
            archive.resize(archive.len().next_multiple_of(BLOCK), 0);
        }
        // Two empty blocks are the end.
        archive.resize(archive.len() + 2 * BLOCK, 0);
        Ok(archive)
    }
}

const BLOCK: usize = 512;

/// Offsets and lengths of the fields: `pax(1)`, "ustar Interchange Format".
fn header(path: &str, entry: &Entry, length: usize, time: u64) -> io::Result<[u8; BLOCK]> {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, room: usize, text: &str| {
        if text.len() > room {
            return Err(io::Error::other(format!("{path}: `{text}` is too long for an archive")));
        }
        block[at..at + text.len()].copy_from_slice(text.as_bytes());
        Ok(())
    };
    let (front, name) = split(path);
    put(0, 100, name)?;
    put(100, 8, &format!("{:07o}", entry.mode))?;
    put(108, 8, &format!("{:07o}", entry.owner))?;
    put(116, 8, &format!("{:07o}", entry.owner))?;
    put(124, 12, &format!("{length:011o}"))?;
    put(136, 12, &format!("{time:011o}"))?;
    put(148, 8, "        ")?; // counts as blanks in its own sum
    put(156, 1, if matches!(entry.kind, Kind::Folder) { "5" } else { "0" })?;
    put(257, 8, "ustar\x0000")?;
    put(345, 155, front)?;
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(block)
}

/// Prefix and name of a path: a long one is cut at a slash.
fn split(path: &str) -> (&str, &str) {
    if path.len() <= 100 {
        return ("", path);
    }
    let cut = path.match_indices('/').map(|(at, _)| at).find(|at| path.len() - at - 1 <= 100);
    cut.map_or(("", path), |at| (&path[..at], &path[at + 1..]))
}

/// An ar archive, the outer form of a Debian package.
pub(crate) fn ar(members: &[(&str, &[u8])], time: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        let head =
            format!("{name:<16}{time:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 100_644, bytes.len());
        archive.extend(head.as_bytes());
        archive.extend(*bytes);
        if bytes.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    fn listed(program: &str, args: &[&str], bytes: &[u8]) -> String {
        let mut child = Command::new(program)
            .args(args)
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(bytes).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn tar_reads_what_is_written() {
        let mut files = Files::default();
        files.program("usr/bin/b", "12345");
        files.folder("run/own", 0o700, 65532);
        let long = format!("{}/{}", "d".repeat(90), "f".repeat(60));
        files.file(&long, vec![7; 512]);
        let archive = files.tar("./", 86_400).unwrap();
        assert_eq!(archive.len() % 512, 0);
        let list = listed("tar", &["-tvf", "-", "--numeric-owner"], &archive);
        let lines: Vec<String> =
            list.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let expected = [
            format!("drwxr-xr-x 0/0 0 1970-01-02 00:00 ./{}/", "d".repeat(90)),
            format!("-rw-r--r-- 0/0 512 1970-01-02 00:00 ./{long}"),
            "drwxr-xr-x 0/0 0 1970-01-02 00:00 ./run/".into(),
            "drwx------ 65532/65532 0 1970-01-02 00:00 ./run/own/".into(),
            "drwxr-xr-x 0/0 0 1970-01-02 00:00 ./usr/".into(),
            "drwxr-xr-x 0/0 0 1970-01-02 00:00 ./usr/bin/".into(),
            "-rwxr-xr-x 0/0 5 1970-01-02 00:00 ./usr/bin/b".into(),
        ];
        assert_eq!(lines, expected);
        assert_eq!(listed("tar", &["-xOf", "-", "./usr/bin/b"], &archive), "12345");
    }

    #[test]
    fn a_name_that_does_not_fit_is_an_error() {
        let mut files = Files::default();
        files.file(&"x".repeat(101), "");
        let error = files.tar("", 0).unwrap_err().to_string();
        assert!(error.ends_with("is too long for an archive"), "{error}");
    }

    #[test]
    fn ar_pads_to_even() {
        let archive = ar(&[("a", b"1"), ("b", b"22")], 5);
        assert_eq!(archive.len(), 8 + 60 + 2 + 60 + 2);
        assert_eq!(&archive[8..24], b"a               ");
        assert_eq!(&archive[66..70], b"`\n1\n");
    }
}
