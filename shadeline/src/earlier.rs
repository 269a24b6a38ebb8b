//! Settings that a network interface had before it became a port, in a file until they are put back.
//!
//! A program that is killed puts nothing back. The next one that opens the interface finds in the file what to put back at
//! its own end, and `shadeline restore` puts it back at once. Each interface has a file of its own, named by its network
//! namespace and its number, which is locked while a program uses it: two programs that receive the same packets would
//! forward each of them twice.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::time::{Duration, Instant};

use control::api::place;
use control::kernel::links::Ipv6Off;
use control::kernel::offloads::earlier_offloads;
use io::link::{Channels, Link};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::output::{note, say};

/// What an interface had before, as far as it was changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Settings {
    /// `disable_ipv6`.
    pub(crate) disable_ipv6: Option<String>,
    /// Offloads that were on.
    pub(crate) offloads: Vec<String>,
    /// Queues: receive, transmit, combined.
    pub(crate) channels: Option<[u32; 3]>,
}

/// What a file holds.
#[derive(Serialize, Deserialize)]
struct Entry {
    interface: String,
    /// Numbers of files and interfaces come again.
    namespace: String,
    /// The process that uses the interface, or did.
    #[serde(default)]
    pid: u32,
    #[serde(default)]
    settings: Settings,
}

/// A lock and its file. Both go when it is dropped.
struct Lock {
    path: PathBuf,
    file: Mutex<File>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        place::remove_settings_folder(&self.path);
    }
}

/// Locks of this process: while a reload moves an interface from one port to another, both have it.
static OWN: Mutex<BTreeMap<PathBuf, Weak<Lock>>> = Mutex::new(BTreeMap::new());

/// Another process uses an interface: its number, if it is known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InUse(Option<u32>);

impl std::fmt::Display for InUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pid = self.0.map_or(String::new(), |pid| format!(" (pid {pid})"));
        write!(
            f,
            "another instance{pid} uses the interface: both would forward its packets; stop that instance, or take the port \
             out of the configuration"
        )
    }
}

/// The earlier settings of an interface that is a port.
pub(crate) struct Earlier {
    entry: Entry,
    /// None without a place for it, with which the program works as well.
    lock: Option<Arc<Lock>>,
    /// Another port of this program has the file already.
    is_second: bool,
}

impl Earlier {
    /// Of an interface that no other program uses, with what a program left that was killed. One that is just ending has
    /// `patience`.
    ///
    /// # Errors
    /// Another program uses the interface.
    pub(crate) fn of(
        interface: &str,
        index: u32,
        patience: Duration,
    ) -> std::result::Result<Self, InUse> {
        Self::inside(&place::settings_folder(), interface, index, namespace(), patience)
    }

    fn inside(
        folder: &Path,
        interface: &str,
        index: u32,
        namespace: String,
        patience: Duration,
    ) -> std::result::Result<Self, InUse> {
        let (interface, pid) = (interface.to_owned(), std::process::id());
        let entry = Entry { interface, namespace, pid, settings: Settings::default() };
        let mut earlier = Self { entry, lock: None, is_second: false };
        let path = folder.join(format!("{}-{index}", namespace_number()));
        let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        own.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = own.get(&path).and_then(Weak::upgrade) {
            (earlier.lock, earlier.is_second) = (Some(lock), true);
            return Ok(earlier);
        }
        match locked(&path, true, patience) {
            Ok(Locked::Free(file)) => {
                let file = Mutex::new(file);
                let lock = Arc::new(Lock { path: path.clone(), file });
                own.insert(path, Arc::downgrade(&lock));
                if let Err(error) = earlier.read(&lock) {
                    tracing::warn!("{}: ignored: {error}", lock.path.display());
                }
                let written = earlier.write(&lock);
                earlier.lock = Some(lock);
                written.unwrap_or_else(|error| earlier.say(&error));
            }
            Ok(Locked::InUse(pid)) => return Err(InUse(pid)),
            Ok(Locked::Absent) => {}
            Err(error) => say_unlocked(&path, &error),
        }
        Ok(earlier)
    }

    /// The settings.
    pub(crate) fn settings(&self) -> &Settings {
        &self.entry.settings
    }

    fn read(&mut self, lock: &Lock) -> Result<()> {
        let mut text = String::new();
        lock.file.lock().unwrap_or_else(PoisonError::into_inner).read_to_string(&mut text)?;
        if text.is_empty() {
            return Ok(());
        }
        let found: Entry = serde_json::from_str(&text)?;
        if (&found.interface, &found.namespace) == (&self.entry.interface, &self.entry.namespace) {
            self.entry.settings = found.settings;
        }
        Ok(())
    }

    /// Notes what was changed. Without a place for it the program works as well.
    pub(crate) fn note(&mut self, settings: Settings) {
        if self.is_second || settings == self.entry.settings {
            return;
        }
        self.entry.settings = settings;
        if let Some(lock) = &self.lock {
            self.write(lock).unwrap_or_else(|error| self.say(&error));
        }
    }

    fn write(&self, lock: &Lock) -> Result<()> {
        let text = serde_json::to_string(&self.entry)?;
        let mut file = lock.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.rewind()?;
        file.set_len(0)?;
        file.write_all(text.as_bytes())
    }

    fn say(&self, error: &Error) {
        if let Some(lock) = &self.lock {
            say_unlocked(&lock.path, error);
        }
    }
}

fn say_unlocked(path: &Path, error: &Error) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        tracing::warn!(
            "{}: {error}; if the program is killed, the settings of its interfaces stay changed, and another instance that uses \
             the same interfaces is not noticed",
            path.display()
        );
    });
}

/// What came of locking a file.
enum Locked {
    /// It is this program's.
    Free(File),
    /// It is the lock of this process, if that is known.
    InUse(Option<u32>),
    /// There is none, and none was to be made.
    Absent,
}

/// Opens a file, made if it is missing and `create` says so, and locks it.
fn locked(path: &Path, create: bool, patience: Duration) -> Result<Locked> {
    let folder = path.parent().unwrap_or(path);
    let deadline = Instant::now() + patience;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
    // Another program may remove the folder, which is empty.
    let mut attempts = 10;
    loop {
        if create {
            place::make_own(folder)?;
        } else if place::check_own(folder).is_err() {
            return Ok(Locked::Absent);
        }
        let mut file = match options.open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound && !create => {
                return Ok(Locked::Absent);
            }
            Err(error) if error.kind() == ErrorKind::NotFound && attempts > 0 => {
                attempts -= 1;
                continue;
            }
            Err(error) => return Err(error),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::Error(error)) => return Err(error),
            Err(fs::TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            Err(fs::TryLockError::WouldBlock) => {
                let mut text = String::new();
                file.read_to_string(&mut text)?;
                let entry: Option<Entry> = serde_json::from_str(&text).ok();
                return Ok(Locked::InUse(entry.map(|entry| entry.pid).filter(|pid| *pid != 0)));
            }
        }
        // Who had it before may have removed it.
        let (own, there) = (file.metadata()?, fs::symlink_metadata(path));
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino())) {
            return Ok(Locked::Free(file));
        }
    }
}

/// Whether another process uses an interface, by its number.
pub(crate) fn in_use(index: u32) -> Option<InUse> {
    let path = place::settings_folder().join(format!("{}-{index}", namespace_number()));
    match locked(&path, false, Duration::ZERO) {
        Ok(Locked::InUse(pid)) => Some(InUse(pid)),
        _ => None,
    }
}

/// `shadeline restore`: puts back what programs left that were killed, in this network namespace.
pub(crate) fn restore() -> std::result::Result<(), Failure> {
    let folder = place::settings_folder();
    let own = format!("{}-", namespace_number());
    let files = fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut is_good = true;
    for file in files.filter(|file| file.file_name().to_string_lossy().starts_with(&own)) {
        let path = file.path();
        let failed = |error: &Error| note!("{}: {error}", path.display());
        let file = match locked(&path, false, Duration::ZERO) {
            Ok(Locked::Free(file)) => Lock { path: path.clone(), file: Mutex::new(file) },
            // Its program runs.
            Ok(Locked::InUse(_) | Locked::Absent) => continue,
            Err(error) => {
                (is_good, ()) = (false, failed(&error));
                continue;
            }
        };
        let mut text = String::new();
        let read =
            file.file.lock().unwrap_or_else(PoisonError::into_inner).read_to_string(&mut text);
        let index = path.to_string_lossy().rsplit_once('-').and_then(|(_, n)| n.parse().ok());
        let entry = serde_json::from_str::<Entry>(&text).ok();
        let entry = entry.filter(|entry| read.is_ok() && entry.namespace == namespace());
        // One that is gone needs nothing.
        let Some((entry, index)) = entry.zip(index) else { continue };
        for (what, done) in put_back(&entry, index) {
            match done {
                Ok(()) => say!("{}: restored {what}", entry.interface)?,
                Err(error) => {
                    (is_good, ()) = (false, note!("{}: {what}: {error}", entry.interface));
                }
            }
        }
    }
    if is_good { Ok(()) } else { Err(Failure::reported()) }
}

/// Puts settings back; nothing where another interface has the name by now.
fn put_back(entry: &Entry, index: u32) -> Vec<(&'static str, std::result::Result<(), String>)> {
    let (name, Settings { disable_ipv6, offloads, channels }) = (&entry.interface, &entry.settings);
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut done = Vec::new();
    let Ok(link) = Link::open(name) else { return done };
    if link.index().ok() != Some(index) {
        return done;
    }
    if let Some([rx, tx, combined]) = *channels {
        let set = link.set_channels(Channels { rx, tx, combined });
        done.push(("queues", set.map_err(|error| text(&error))));
    }
    if disable_ipv6.is_some() {
        let off = Ipv6Off::on_after(name, disable_ipv6.as_deref());
        done.push(("IPv6", off.map(drop).map_err(|error| text(&error))));
    }
    if !offloads.is_empty() {
        let on = earlier_offloads(name, offloads).and_then(|off| off.restore());
        done.push(("offloads", on.map_err(|error| text(&error))));
    }
    done
}

/// The number of the network namespace.
fn namespace_number() -> u64 {
    fs::metadata("/proc/thread-self/ns/net").map_or(0, |own| own.ino())
}

/// The network namespace, of this start of the machine.
fn namespace() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("{} {}", boot.trim(), io::link::namespace().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(offload: &str) -> Settings {
        let disable_ipv6 = Some("0".to_owned());
        Settings { disable_ipv6, offloads: vec![offload.to_owned()], channels: Some([2, 2, 0]) }
    }

    #[test]
    fn what_a_killed_program_left_is_found_by_the_next() {
        let scratch = testkit::Scratch::new();
        let folder = scratch.join("run/ports");
        fs::create_dir(scratch.join("run")).unwrap();
        let open = |name, namespace: &str| {
            Earlier::inside(&folder, name, 7, namespace.to_owned(), Duration::ZERO).unwrap()
        };
        let mut own = open("eth0", "one");
        assert_eq!(*own.settings(), Settings::default());
        own.note(Settings::default());
        own.note(settings("first"));
        own.note(settings("second"));
        let path = own.lock.as_ref().unwrap().path.clone();
        let text = fs::read_to_string(&path).unwrap();

        // A second port changes nothing of it, and keeps it when the first one is gone.
        let mut second = open("eth0", "one");
        assert_eq!(*second.settings(), Settings::default());
        second.note(settings("other"));
        drop(own);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        drop(second);
        assert!(!folder.exists());

        fs::create_dir(&folder).unwrap();
        for (name, namespace, text, expected) in [
            ("eth0", "one", text.as_str(), settings("second")),
            ("eth1", "one", &text, Settings::default()),
            ("eth0", "two", &text, Settings::default()),
            ("eth0", "one", &text[..20], Settings::default()),
            ("eth0", "one", "", Settings::default()),
        ] {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, text).unwrap();
            let mut next = open(name, namespace);
            assert_eq!(*next.settings(), expected, "{name} {namespace} {text}");
            next.note(settings("third"));
            assert!(fs::read_to_string(&path).unwrap().contains("third"));
            drop(next);
            assert!(!path.exists());
        }
    }

    #[test]
    fn another_program_has_the_interface() {
        let scratch = testkit::Scratch::new();
        let folder = scratch.join("ports");
        let open = |patience| Earlier::inside(&folder, "eth0", 7, "one".to_owned(), patience);
        drop(open(Duration::ZERO).unwrap());
        let path = folder.join(format!("{}-7", namespace_number()));
        for (text, pid) in
            [("{\"interface\":\"eth0\",\"namespace\":\"one\",\"pid\":77}", Some(77)), ("", None)]
        {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, text).unwrap();
            // An open file has a lock of its own, as another program has.
            let other = File::open(&path).unwrap();
            other.lock().unwrap();
            let error = open(Duration::ZERO).map(drop).unwrap_err();
            assert_eq!(error, InUse(pid));
            assert_eq!(error.to_string().contains("another instance (pid 77)"), pid.is_some());
            let ends = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(100));
                drop(other);
            });
            drop(open(Duration::from_secs(20)).unwrap());
            ends.join().unwrap();
        }
    }

    #[test]
    fn a_program_goes_on_without_a_folder() {
        let scratch = testkit::Scratch::new();
        let file = scratch.write("file", "");
        let folder = file.join("ports");
        let own = Earlier::inside(&folder, "eth0", 7, String::new(), Duration::ZERO);
        let mut own = own.unwrap();
        own.note(settings("first"));
        assert_eq!(*own.settings(), settings("first"));
    }
}
