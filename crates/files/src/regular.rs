//! Files that belong to a configuration: regular ones of a bounded size.
//!
//! Whoever opens a pipe waits for its writer, and a device such as `/dev/zero` has no end. A program that reads its configuration
//! must do neither, so such files are refused before a byte is read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file, or a link to one. It never waits.
///
/// # Errors
/// It cannot be opened, or it is no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Before it is opened, because opening a device may do something; and afterwards, because it may be another one by then.
    check(&std::fs::metadata(path)?)?;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

/// The same of a file with secrets: only its owner has access to it, and that is root or the user who runs the program. For root it is
/// anybody, as files of the user that a run changes to are.
///
/// # Errors
/// As of [`open_regular`]; others have access to it, or it is another user's.
pub fn open_private(path: &Path) -> io::Result<File> {
    let file = open_regular(path)?;
    let about = file.metadata()?;
    check_private(about.mode() & 0o777, about.uid(), rustix::process::geteuid().as_raw())?;
    Ok(file)
}

fn check_private(mode: u32, owner: u32, user: u32) -> io::Result<()> {
    const ROOT: u32 = 0;
    if mode & 0o077 != 0 {
        return Err(io::Error::other(format!(
            "mode {mode:03o} gives others access to the key: expected 600 or 400 (chmod 600)"
        )));
    }
    if user != ROOT && owner != ROOT && owner != user {
        return Err(io::Error::other(format!(
            "user {owner} owns the key and can change it: expected user {user}, who runs the program, or root as owner (chown)"
        )));
    }
    Ok(())
}

/// The bytes of a regular file, at most `max`.
///
/// # Errors
/// It cannot be opened or read, is no regular file, or has more bytes.
pub fn read_regular(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One more than there may be; a file may grow while it is read.
    open_regular(path)?.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::other(match max % (1 << 20) {
            0 => format!("more than {} MiB", max >> 20),
            _ => format!("more than {max} bytes"),
        }));
    }
    Ok(bytes)
}

fn check(about: &std::fs::Metadata) -> io::Result<()> {
    if about.is_file() { Ok(()) } else { Err(io::Error::other("not a regular file")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_those_of_root_or_of_the_user() {
        let said =
            |mode, owner, user| check_private(mode, owner, user).map_err(|error| error.to_string());
        for (owner, user) in [(0, 0), (0, 998), (998, 998), (998, 0)] {
            assert_eq!((said(0o600, owner, user), said(0o400, owner, user)), (Ok(()), Ok(())));
        }
        for mode in [0o640, 0o604, 0o610, 0o601, 0o777] {
            assert!(said(mode, 0, 0).unwrap_err().contains("gives others access"), "{mode:o}");
        }
        let other = said(0o600, 1000, 998).unwrap_err();
        assert!(other.contains("user 1000 owns the key") && other.contains("user 998"), "{other}");
    }

    #[test]
    fn only_regular_files_of_a_bounded_size_are_read() {
        let folder = std::env::temp_dir().join(format!("shadeline-regular-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [file, link, pipe, zero] =
            ["file", "link", "pipe", "zero"].map(|name| folder.join(name));
        std::fs::write(&file, b"12345").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &zero).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let said = |path: &Path, max| read_regular(path, max).map_err(|error| error.to_string());
        for path in [&file, &link] {
            assert_eq!(said(path, 5), Ok(b"12345".to_vec()));
            assert_eq!(said(path, 4), Err("more than 4 bytes".to_owned()));
        }
        std::fs::write(&file, vec![0; (1 << 20) + 1]).unwrap();
        assert_eq!(said(&file, 1 << 20), Err("more than 1 MiB".to_owned()));
        for path in [&pipe, &zero, &folder, Path::new("/dev/zero")] {
            assert_eq!(said(path, 5), Err("not a regular file".to_owned()), "{}", path.display());
        }
        assert!(said(&folder.join("none"), 5).unwrap_err().starts_with("No such file"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
