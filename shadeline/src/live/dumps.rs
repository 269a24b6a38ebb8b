//! The captures of `[dump.NAME]`.
//!
//! They begin before the engine and end after it; other engines that follow it have the same captures.
//!
//! Threads: one for each file.

use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use control::config::Config;
use controlplane::Watch;
use engine::{Capture, CapturePoint, CaptureReader, Hooks};
use io::capture::{CaptureWriter, Seen};

use super::{CAPTURE_FRAMES, LOOK, Names, frame_filter, spawn};
use crate::failure::Failure;

/// Captures that have begun; nothing is written yet.
pub(super) struct Dumps(Vec<Dump>);

struct Dump {
    name: String,
    file: String,
    frames: CaptureReader,
    writer: CaptureWriter<BufWriter<File>>,
}

impl Dumps {
    /// Makes the files and begins the captures.
    pub(super) fn open(config: &Config, hooks: &Arc<Hooks>) -> Result<Self, Failure> {
        let open = |dump: &control::config::Dump| {
            let failed = |error: std::io::Error| Failure::file(&dump.file, error);
            // Checked with the configuration.
            let filter =
                frame_filter(dump.filter.as_deref().unwrap_or_default()).unwrap_or_default();
            let capture = Capture { point: CapturePoint::Dumps, filter, frames: CAPTURE_FRAMES };
            let file = BufWriter::new(File::create(&dump.file).map_err(failed)?);
            Ok(Dump {
                name: dump.name.clone(),
                file: dump.file.display().to_string(),
                frames: hooks.capture(capture).map_err(Failure::other)?,
                writer: CaptureWriter::with_interfaces(file).map_err(failed)?,
            })
        };
        config.dumps.iter().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// Writes them, a thread each.
    pub(super) fn write(self, watch: &Watch) -> Result<Written, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for mut dump in self.0 {
            let mut names = Names::of(watch);
            for name in names.known.names() {
                let written = dump.writer.interface(name);
                written.map_err(|error| Failure::file(dump.file.as_ref(), error))?;
            }
            let stop = stop.clone();
            threads.push(spawn("dump", move || {
                if let Err(error) = dump.write_until(&stop, &mut names) {
                    tracing::error!("dump {}: {error}; it ends", dump.name);
                }
                let (name, lost) = (&dump.name, dump.frames.lost());
                if lost > 0 {
                    tracing::warn!("dump {name} lost {lost} frames: the disk is too slow");
                }
            })?);
        }
        Ok(Written { stop, threads })
    }
}

impl Dump {
    fn write_until(&mut self, stop: &AtomicBool, names: &mut Names) -> std::io::Result<()> {
        loop {
            // Frames that were there when it was to stop are written too.
            let is_last = stop.load(Relaxed);
            let wait = if is_last { Duration::ZERO } else { LOOK };
            while let Some(frame) = self.frames.recv_timeout(wait) {
                let interface = self.writer.interface(names.name(frame.port))?;
                let seen = Seen { interface, outgoing: false };
                self.writer.write_from(seen, &frame.bytes, frame.time_ns, None)?;
            }
            self.writer.flush()?;
            if is_last {
                return Ok(());
            }
        }
    }
}

/// Captures that are being written.
pub(super) struct Written {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Written {
    /// Writes what is there, and ends.
    pub(super) fn end(self) {
        self.stop.store(true, Relaxed);
        self.threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}
