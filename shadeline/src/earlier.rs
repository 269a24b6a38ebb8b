//! Settings that a network interface had before it became a port, in a file until they are put back.
//!
//! A program that is killed puts nothing back. The next one that opens the interface finds in the file what to put back at
//! its own end. Each interface has a file of its own, which is locked while a program uses it.

use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

use control::api::place;
use serde::{Deserialize, Serialize};

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
    settings: Settings,
}

/// The earlier settings of an interface that is a port. Its file goes when it is dropped.
pub(crate) struct Earlier {
    path: PathBuf,
    entry: Entry,
    file: Option<File>,
    /// Another program uses the interface, and the file.
    is_in_use: bool,
}

impl Earlier {
    /// Of an interface, with what a program left that was killed.
    pub(crate) fn of(interface: &str, index: u32) -> Self {
        Self::inside(&place::settings_folder(), interface, index, namespace())
    }

    fn inside(folder: &Path, interface: &str, index: u32, namespace: String) -> Self {
        let number = fs::metadata("/proc/thread-self/ns/net").map_or(0, |own| own.ino());
        let interface = interface.to_owned();
        let mut earlier = Self {
            path: folder.join(format!("{number}-{index}")),
            entry: Entry { interface, namespace, settings: Settings::default() },
            file: None,
            is_in_use: false,
        };
        if let Err(error) = earlier.read(folder) {
            tracing::warn!("{}: ignored: {error}", earlier.path.display());
        }
        earlier
    }

    /// The settings.
    pub(crate) fn settings(&self) -> &Settings {
        &self.entry.settings
    }

    fn read(&mut self, folder: &Path) -> Result<()> {
        let mut file = match OpenOptions::new().read(true).write(true).open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        place::check_own(folder)?;
        self.is_in_use = file.try_lock().is_err();
        if self.is_in_use {
            return Ok(());
        }
        let mut text = String::new();
        let read = file.read_to_string(&mut text);
        self.file = Some(file);
        read?;
        let found: Entry = serde_json::from_str(&text)?;
        if (&found.interface, &found.namespace) == (&self.entry.interface, &self.entry.namespace) {
            self.entry.settings = found.settings;
        }
        Ok(())
    }

    /// Notes what was changed. Without a place for it the program works as well.
    pub(crate) fn note(&mut self, settings: Settings) {
        if self.is_in_use || settings == self.entry.settings {
            return;
        }
        self.entry.settings = settings;
        if let Err(error) = self.write() {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                tracing::warn!(
                    "{}: {error}; if the program is killed, the settings of its interfaces stay changed",
                    self.path.display()
                );
            });
        }
    }

    fn write(&mut self) -> Result<()> {
        let text = serde_json::to_string(&self.entry)?;
        let mut file = match self.file.take() {
            Some(file) => file,
            None => create(&self.path)?,
        };
        file.rewind()?;
        file.set_len(0)?;
        file.write_all(text.as_bytes())?;
        self.file = Some(file);
        Ok(())
    }
}

impl Drop for Earlier {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = fs::remove_file(&self.path);
            place::remove_settings_folder(&self.path);
        }
    }
}

fn create(path: &Path) -> Result<File> {
    let folder = path.parent().unwrap_or(path);
    // Another program may remove the folder, which is empty.
    for _ in 0..3 {
        place::make_own(folder)?;
        match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(file) => return file.try_lock().map(|()| file).map_err(Error::from),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::NotFound.into())
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
        let open = |name, namespace: &str| Earlier::inside(&folder, name, 7, namespace.to_owned());
        let mut own = open("eth0", "one");
        assert_eq!(*own.settings(), Settings::default());
        own.note(Settings::default());
        assert!(!folder.exists(), "nothing was changed");
        own.note(settings("first"));
        own.note(settings("second"));
        let path = own.path.clone();
        let text = fs::read_to_string(&path).unwrap();

        // A second program changes nothing of it.
        let mut second = open("eth0", "one");
        assert_eq!(*second.settings(), Settings::default());
        second.note(settings("other"));
        drop(second);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        drop(own);
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
    fn a_program_goes_on_without_a_folder() {
        let scratch = testkit::Scratch::new();
        let file = scratch.write("file", "");
        let mut own = Earlier::inside(&file.join("ports"), "eth0", 7, String::new());
        own.note(settings("first"));
        assert_eq!(*own.settings(), settings("first"));
    }
}
