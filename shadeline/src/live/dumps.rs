//! The captures of `[dump.NAME]`.
//!
//! ```text
//!  prepare: the file is opened, the capture begins, a thread waits ──▶ exchange: old ones end, new ones are written
//!                                                                 └──▶ forget: as if they had not been prepared
//! ```
//!
//! A capture begins before the first engine whose packets it has, and ends after the last one. A reload that changes an
//! entry ends its capture and begins a new one; the others go on, whatever else the reload changes.
//!
//! Threads: one for each file. [`Dumps`] belongs to the control loop's.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, ErrorKind};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use control::config::{Config, Dump};
use controlplane::Interfaces;
use engine::{Capture, CapturePoint, CaptureReader, Hooks};
use io::capture::{CaptureWriter, Seen};

use super::{CAPTURE_FRAMES, LOOK, Names, frame_filter, spawn};
use crate::failure::Failure;

/// See the head of this file.
pub(super) struct Dumps {
    hooks: Arc<Hooks>,
    /// Those of the newest engine, for the names in the files.
    interfaces: Arc<Mutex<Interfaces>>,
    written: Vec<Writing>,
    next: Option<Next>,
}

/// What the next configuration asks for.
struct Next {
    dumps: Vec<Dump>,
    /// Of them, those that are not written yet.
    new: Vec<Writing>,
}

/// A thread with its file. It waits for a word, then it writes until the sender is gone.
struct Writing {
    dump: Dump,
    begin: Sender<()>,
    thread: JoinHandle<()>,
}

impl Dumps {
    /// None yet.
    pub(super) fn new(hooks: Arc<Hooks>, interfaces: Interfaces) -> Self {
        let interfaces = Arc::new(Mutex::new(interfaces));
        Self { hooks, interfaces, written: Vec::new(), next: None }
    }

    /// Makes what the captures of this configuration need beside those that are written.
    ///
    /// # Errors
    /// A file cannot be opened for writing, or the system has no descriptor or thread left.
    pub(super) fn prepare(&mut self, config: &Config) -> Result<(), Failure> {
        self.forget();
        let mut new = Vec::new();
        for dump in config.dumps.iter().filter(|dump| !self.has(dump)) {
            match self.open(dump) {
                Ok(writing) => new.push(writing),
                Err(failure) => {
                    Writing::end(new);
                    return Err(failure);
                }
            }
        }
        self.next = Some(Next { dumps: config.dumps.clone(), new });
        Ok(())
    }

    fn has(&self, dump: &Dump) -> bool {
        self.written.iter().any(|own| own.dump == *dump)
    }

    fn open(&self, dump: &Dump) -> Result<Writing, Failure> {
        // Checked with the configuration.
        let filter = frame_filter(dump.filter.as_deref().unwrap_or_default()).unwrap_or_default();
        let capture = Capture { point: CapturePoint::Dumps, filter, frames: CAPTURE_FRAMES };
        let frames = self.hooks.capture(capture).map_err(Failure::other)?;
        let open = |new: bool| OpenOptions::new().write(true).create_new(new).open(&dump.file);
        // What there is stays until the capture is written: the reload may be refused.
        let (file, made) = match open(true) {
            Ok(file) => (Ok(file), Some(Made(dump.file.clone()))),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => (open(false), None),
            Err(error) => (Err(error), None),
        };
        let file = file.map_err(|error| Failure::output(&dump.file, &error))?;
        let (begin, word) = mpsc::channel();
        let newest = self.interfaces.clone();
        let newest = move || newest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let name = dump.name.clone();
        let thread = spawn("dump", move || {
            if word.recv().is_err() {
                return;
            }
            // It is in use now.
            std::mem::forget(made);
            let names = Names { known: newest(), newest: Box::new(newest) };
            let mut frames = frames;
            if let Err(error) = write(&mut frames, file, names, &word) {
                tracing::error!("dump {name}: {error}; it ends");
            }
            let lost = frames.lost();
            if lost > 0 {
                tracing::warn!("dump {name} lost {lost} frames: the disk is too slow");
            }
        })?;
        Ok(Writing { dump: dump.clone(), begin, thread })
    }

    /// The engine that comes has these interfaces.
    pub(super) fn expect(&self, interfaces: &Interfaces) {
        *self.interfaces.lock().unwrap_or_else(PoisonError::into_inner) = interfaces.clone();
    }

    /// The engine that was prepared runs: so do its captures.
    pub(super) fn exchange(&mut self) {
        let Some(Next { dumps, new }) = self.next.take() else { return };
        let written = std::mem::take(&mut self.written).into_iter();
        let (stay, gone) = written.partition(|own| dumps.contains(&own.dump));
        self.written = stay;
        // Before the new ones: they may have the same file.
        Writing::end(gone);
        for own in new {
            // The thread waits for it.
            let _ = own.begin.send(());
            self.written.push(own);
        }
    }

    /// What was prepared is not needed.
    pub(super) fn forget(&mut self) {
        Writing::end(self.next.take().map(|next| next.new).unwrap_or_default());
    }
}

impl Drop for Dumps {
    fn drop(&mut self) {
        self.forget();
        Writing::end(std::mem::take(&mut self.written));
    }
}

/// A file that was made for a capture and is not in use; it goes when this is dropped.
struct Made(PathBuf);

impl Drop for Made {
    fn drop(&mut self) {
        // An error leaves an empty file: nothing depends on it.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Writing {
    /// Writes what is there, and ends; one that was not to begin leaves nothing behind.
    fn end(all: Vec<Writing>) {
        // All are told before one is waited for.
        let threads: Vec<_> = all.into_iter().map(|own| own.thread).collect();
        for thread in threads {
            // It has logged what it had to say.
            let _ = thread.join();
        }
    }
}

fn write(
    frames: &mut CaptureReader,
    file: File,
    mut names: Names,
    word: &Receiver<()>,
) -> std::io::Result<()> {
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    let mut writer = CaptureWriter::with_interfaces(BufWriter::new(file))?;
    for name in names.known.names() {
        writer.interface(name)?;
    }
    loop {
        // Frames that were there when it was to stop are written too.
        let is_last = word.try_recv() == Err(TryRecvError::Disconnected);
        let wait = if is_last { Duration::ZERO } else { LOOK };
        while let Some(frame) = frames.recv_timeout(wait) {
            let interface = writer.interface(names.name(frame.port))?;
            let seen = Seen { interface, outgoing: false };
            writer.write_from(seen, &frame.bytes, frame.time_ns, None)?;
        }
        writer.flush()?;
        if is_last {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(entries: &[(&str, &std::path::Path)]) -> Config {
        let dumps = entries.iter().map(|(name, file)| format!("[dump.{name}]\nfile = {file:?}\n"));
        let text = "[port.a]\n".to_owned() + &dumps.collect::<String>();
        control::config::parse(&text, &crate::pipelines::known()).expect("good").0
    }

    #[test]
    fn what_was_prepared_and_is_not_needed_leaves_nothing() {
        let scratch = testkit::Scratch::new();
        let (kept, made) = (scratch.join("kept"), scratch.join("made"));
        let mut dumps = Dumps::new(Arc::default(), Interfaces::of(&config(&[])));
        dumps.prepare(&config(&[("x", &kept)])).unwrap();
        dumps.exchange();
        // The same entry, another one, and the same file under another name.
        dumps.prepare(&config(&[("x", &kept), ("y", &made)])).unwrap();
        assert!(made.exists());
        dumps.forget();
        assert!(!made.exists());
        dumps.prepare(&config(&[("z", &kept), ("y", &made)])).unwrap();
        // The next one takes its place.
        dumps.prepare(&config(&[("z", &kept)])).unwrap();
        assert!(kept.exists() && !made.exists());
        dumps.prepare(&config(&[("y", &made)])).unwrap();
        drop(dumps);
        assert!(kept.metadata().unwrap().len() > 0 && !made.exists());
    }
}
