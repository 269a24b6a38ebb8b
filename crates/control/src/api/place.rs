//! Where the control socket is, if neither a file nor an option says so.
//!
//! [`SYSTEM`] belongs to the machine. An ordinary user, also as root of a user namespace (`unshare -Urn`), cannot write
//! there and has a socket of their own: in `$XDG_RUNTIME_DIR`, or in `/tmp` under their number. Whoever runs an instance and
//! whoever queries it find the same place, inside and outside of the namespace. [`VARIABLE`] names another place for both.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{Access, access};

use super::client::{Client, ClientError};

/// The socket of the machine's instance.
pub const SYSTEM: &str = "/run/shadeline/ctl.sock";

/// The environment variable that names the socket where neither a file nor an option does.
pub const VARIABLE: &str = "SHADELINE_SOCKET";

/// Longest path of the control socket in bytes. `sockaddr_un` holds 108; the rest is for the name under which the
/// socket is made.
pub const PATH_BYTES_MAX: usize = 96;

/// The default in words, for people who read the documentation on another machine.
pub const SHOWN: &str = "`\"/run/shadeline/ctl.sock\"`; without write access to `/run`: `shadeline.sock` in \
    `$XDG_RUNTIME_DIR`, or `/tmp/shadeline-UID.sock`; `$SHADELINE_SOCKET` where it is set";

/// Where an instance listens.
pub fn of_instance() -> PathBuf {
    named(std::env::var_os(VARIABLE)).unwrap_or_else(by_default)
}

/// The same without [`VARIABLE`].
fn by_default() -> PathBuf {
    // The folder is there for a service; else the instance makes it.
    let folder = match access("/run/shadeline", Access::EXISTS) {
        Ok(()) => "/run/shadeline",
        Err(_) => "/run",
    };
    match access(folder, Access::WRITE_OK) {
        Ok(()) => SYSTEM.into(),
        Err(_) => of_user(),
    }
}

/// What [`VARIABLE`] says; nothing where it is empty.
fn named(variable: Option<OsString>) -> Option<PathBuf> {
    variable.filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Connects to the instance that [`VARIABLE`] names, or of the machine, or else to the user's own.
///
/// # Errors
/// Neither answers: what was wrong with the machine's, if that is the one to expect, else with the user's.
pub fn connect() -> Result<Client, ClientError> {
    if let Some(named) = named(std::env::var_os(VARIABLE)) {
        return Client::connect(named);
    }
    let error = match Client::connect(SYSTEM) {
        Err(error @ (ClientError::NotRunning(_) | ClientError::Permission(_))) => error,
        result => return result,
    };
    let own = of_user();
    match (of_another(&own), error) {
        (None, _) if own.exists() => Client::connect(own),
        (Some(owner), ClientError::NotRunning(_)) if of_instance() == own => {
            Err(ClientError::OfAnother { path: own, owner })
        }
        (None, ClientError::NotRunning(_)) if of_instance() == own => {
            Err(ClientError::NotRunning(own))
        }
        (_, error) => Err(error),
    }
}

/// Where an instance keeps the settings that its network interfaces had before, until they are put back. One place for all
/// instances of a user, wherever their sockets are; the same as long as the program runs, whatever becomes of its rights.
pub fn settings_folder() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    let find = || {
        let socket = by_default();
        match socket == Path::new(SYSTEM) {
            true => socket.with_file_name("ports"),
            false => socket.with_extension(""),
        }
    };
    FOUND.get_or_init(find).clone()
}

/// Makes a folder of this user only, if it is missing.
///
/// # Errors
/// It cannot be made, or it belongs to somebody else.
pub fn make_own(folder: &Path) -> io::Result<()> {
    if folder.parent() == Path::new(SYSTEM).parent() {
        fs::create_dir_all(folder.parent().unwrap_or(folder))?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => check_own(folder),
    }
}

/// Whether a folder is one, and this user's.
///
/// # Errors
/// It is not.
pub fn check_own(folder: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(folder)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    match of_another(folder) {
        // Root goes where an instance goes that has changed its user, but not where others may write.
        Some(_) if is_systems(folder) && is_private(folder) => Ok(()),
        Some(user) => Err(io::Error::other(format!("the folder belongs to user {user}"))),
        None => Ok(()),
    }
}

/// Whether this is root, and the folder one of the system's.
fn is_systems(folder: &Path) -> bool {
    rustix::process::geteuid().is_root() && folder.parent() == Path::new(SYSTEM).parent()
}

fn is_private(folder: &Path) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|own| own.mode() & 0o022 == 0)
}

/// Removes the folder of a file that was removed, if it is empty, and that of the system's instance.
pub fn remove_settings_folder(file: &Path) {
    let Some(folder) = file.parent() else { return };
    if fs::remove_dir(folder).is_ok() && folder.parent() == Path::new(SYSTEM).parent() {
        // With a socket in it, it stays.
        let _ = fs::remove_dir(folder.parent().unwrap_or(folder));
    }
}

/// The user who made the file, if that is not this one: in `/tmp` anyone may make one of any name.
fn of_another(path: &Path) -> Option<u32> {
    let owner = fs::metadata(path).ok()?.uid();
    (owner != rustix::process::geteuid().as_raw()).then_some(owner)
}

fn of_user() -> PathBuf {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let user = outside(rustix::process::geteuid().as_raw(), &map);
    place(std::env::var_os("XDG_RUNTIME_DIR"), user)
}

fn place(runtime: Option<OsString>, user: u32) -> PathBuf {
    match runtime.map(PathBuf::from).filter(|folder| folder.is_absolute()) {
        Some(folder) => folder.join("shadeline.sock"),
        None => format!("/tmp/shadeline-{user}.sock").into(),
    }
}

/// The number that a user has outside of the user namespace, by the lines `INSIDE OUTSIDE COUNT` of its map.
fn outside(user: u32, map: &str) -> u32 {
    let line = |line: &str| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let (inside, outside) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        let count = numbers.next()?.ok()?;
        let place = user.checked_sub(inside).filter(|place| *place < count)?;
        outside.checked_add(place)
    };
    map.lines().find_map(line).unwrap_or(user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_socket_of_their_own() {
        assert_eq!(
            place(Some("/run/user/1000".into()), 7),
            Path::new("/run/user/1000/shadeline.sock")
        );
        for unusable in [None, Some("".into()), Some("here".into())] {
            assert_eq!(place(unusable, 7), Path::new("/tmp/shadeline-7.sock"));
        }
    }

    #[test]
    fn a_variable_names_the_socket_unless_it_is_empty() {
        assert_eq!(
            named(Some("/lab/ctl.sock".into())).as_deref(),
            Some(Path::new("/lab/ctl.sock"))
        );
        assert_eq!((named(Some("".into())), named(None)), (None, None));
    }

    #[test]
    fn a_file_of_somebody_else_is_not_used() {
        let scratch = testkit::Scratch::new();
        let own = scratch.write("own", "");
        assert_eq!((of_another(&own), of_another(&scratch.join("absent"))), (None, None));
        if std::os::unix::fs::chown(&own, Some(65534), None).is_ok() {
            assert_eq!(of_another(&own), Some(65534));
        }
        let said = ClientError::OfAnother { path: own, owner: 65534 }.to_string();
        assert!(said.contains("own: belongs to user 65534, ignored"), "{said}");
    }

    #[test]
    fn a_user_has_one_number_inside_and_outside_of_a_user_namespace() {
        assert_eq!(outside(0, "         0       1000          1\n"), 1000);
        assert_eq!(outside(1000, "         0          0 4294967295\n"), 1000);
        assert_eq!(outside(5, "0 1000 1\n1 100000 65536\n"), 100_004);
        for odd in ["", "0 1000", "a b c", "0 4294967295 10"] {
            assert_eq!(outside(3, odd), 3, "{odd}");
        }
    }
}
