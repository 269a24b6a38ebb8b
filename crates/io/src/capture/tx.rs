//! A capture file as a transmit queue.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chunk::{Packet, Pool, reasons};
use files::output;

use super::{CaptureWriter, Format};
use crate::{Losses, QueueStats, TxQueue};

/// Called with the first error of a file.
type OnFailure = Box<dyn FnOnce(String) + Send>;

/// Writes what it is sent to a capture, at the packets' own times.
///
/// The file is written when some hundred kilobytes have come together, at a [`TxQueue::flush`]
/// without a packet since the one before, and when dropped. After a failed write packets are
/// dropped and counted.
pub struct CaptureTx {
    writer: CaptureWriter<BufWriter<File>>,
    path: PathBuf,
    failed: bool,
    error: Option<String>,
    on_failure: Option<OnFailure>,
    /// Packets at the last flush.
    flushed: u64,
    stats: QueueStats,
    losses: Arc<Losses>,
}

impl CaptureTx {
    /// Makes the file at `path`, replacing one that is there; `-` is standard output.
    ///
    /// # Errors
    /// If it cannot be made, is a terminal, or its header cannot be written.
    pub fn create(path: impl AsRef<Path>, format: Format) -> io::Result<Self> {
        let path = path.as_ref().to_path_buf();
        let buffered = BufWriter::with_capacity(256 << 10, output::create_capture(&path)?);
        Ok(Self {
            writer: CaptureWriter::new(buffered, format)?,
            path,
            failed: false,
            error: None,
            on_failure: None,
            flushed: 0,
            stats: QueueStats::default(),
            losses: Arc::default(),
        })
    }

    /// Calls `report` with the first error, as soon as it happens, instead of keeping it for
    /// [`TxQueue::take_error`] and [`CaptureTx::finish`].
    pub fn on_failure(&mut self, report: impl FnOnce(String) + Send + 'static) {
        self.on_failure = Some(Box::new(report));
    }

    /// Writes one packet with a comment (why it was dropped) and leaves it to the caller.
    pub fn write_with_comment(&mut self, packet: &Packet, time_ns: u64, comment: Option<&str>) {
        if self.failed {
            self.losses.count(&mut self.stats, reasons::TX_FAILED, 1);
            return;
        }
        match self.writer.write_with_comment(packet, time_ns, comment) {
            Ok(()) => self.stats.count(packet.frame_len() as u64),
            Err(error) => {
                self.losses.count(&mut self.stats, reasons::TX_FAILED, 1);
                self.fail(&error);
            }
        }
    }

    /// Writes everything out.
    ///
    /// # Errors
    /// The first one that came up, now or before; it names the file.
    pub fn finish(mut self) -> Result<QueueStats, String> {
        if !self.failed
            && let Err(error) = self.writer.flush()
        {
            self.fail(&error);
        }
        self.error.take().map_or(Ok(self.stats), Err)
    }

    fn fail(&mut self, error: &io::Error) {
        self.stats.errors += 1;
        if !std::mem::replace(&mut self.failed, true) {
            let text = format!("{}: {}", output::name(&self.path), output::reason(error));
            match self.on_failure.take() {
                Some(report) => report(text),
                None => self.error = Some(text),
            }
        }
    }
}

impl std::fmt::Debug for CaptureTx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CaptureTx({})", self.path.display())
    }
}

/// What is buffered is written, and an error of that is reported.
impl Drop for CaptureTx {
    fn drop(&mut self) {
        if !self.failed
            && let Err(error) = self.writer.flush()
        {
            self.fail(&error);
        }
    }
}

impl TxQueue for CaptureTx {
    fn send(&mut self, pool: &mut Pool, packets: &mut Vec<Packet>) {
        for packet in packets.drain(..) {
            self.write_with_comment(&packet, packet.time_ns, None);
            packet.free(pool);
        }
    }

    fn flush(&mut self, _pool: &mut Pool) {
        if self.flushed == self.stats.packets
            && !self.failed
            && let Err(error) = self.writer.flush()
        {
            self.fail(&error);
        }
        self.flushed = self.stats.packets;
    }

    fn is_drained(&self) -> bool {
        self.failed || self.writer.get_ref().buffer().is_empty()
    }

    fn take_error(&mut self) -> Option<String> {
        self.error.take()
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }

    fn losses(&self) -> Vec<Arc<Losses>> {
        vec![self.losses.clone()]
    }
}
