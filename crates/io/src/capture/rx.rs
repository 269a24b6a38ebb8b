//! Capture files as a receive queue.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chunk::{Packet, Pool, reasons};
use files::input::{self, Source};

use super::{CaptureError, CaptureFault, CaptureReader, LinkType};
use crate::{Losses, QueueStats, RxQueue};

/// A packet that finds too few cells is tried again so many times before it is given up: a frame
/// that is longer than all cells that can ever be free must not stop the capture for good.
const TRIES_MAX: u32 = 10_000;

/// The most errors that are kept for [`RxQueue::take_error`].
const ERRORS_MAX: usize = 64;

/// Receives the packets of one capture after the other.
///
/// Packets of link layers that only name a protocol get an Ethernet header in front; captures of
/// other layers are refused. What is wrong with a capture comes out of [`RxQueue::take_error`] when
/// the packets before that place have been received; then it goes on with the next file.
#[derive(Debug)]
pub struct CaptureRx {
    files: VecDeque<Waiting>,
    stop: Arc<AtomicBool>,
    open: Option<(PathBuf, CaptureReader<Input>)>,
    /// Whether the open capture is at a record that was not delivered yet.
    pending: bool,
    /// Link types that were complained about in the open capture.
    refused: Vec<LinkType>,
    /// Destination and source of the Ethernet headers that are put in front.
    macs: [u8; 12],
    /// A frame that is made from one without an Ethernet header.
    made: Vec<u8>,
    tries: u32,
    bytes_done: Arc<AtomicU64>,
    bytes_total: u64,
    errors: VecDeque<String>,
    stats: QueueStats,
    losses: Arc<Losses>,
}

type Input = Box<dyn Read + Send>;

/// A capture whose turn has not come.
#[derive(Debug)]
struct Waiting {
    path: PathBuf,
    /// Of a pipe, which can be opened only once.
    reader: Option<CaptureReader<Input>>,
    /// The time of the first packet of a file; `u64::MAX` if it is not known.
    begins_ns: u64,
}

impl CaptureRx {
    /// The captures at `paths` in this order; a folder stands for the captures in it and in its
    /// folders (`.pcap`, `.pcapng`, `.cap`, and these with `.gz`, `.xz` or `.zst`) in the order of their first packets, so
    /// that time does not run back; `-` is standard input.
    ///
    /// What cannot be read in a folder that has other captures is an error of the queue ([`RxQueue::take_error`]).
    ///
    /// # Errors
    /// If one of them cannot be opened, or is not a capture, or one that holds no Ethernet, or a folder
    /// without captures.
    pub fn open<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Self, CaptureError> {
        Self::open_until(paths, Arc::default())
    }

    /// The same; the packets end when `stop` is set, even while a pipe is waited for.
    ///
    /// # Errors
    /// Those of [`CaptureRx::open`].
    pub fn open_until<P: AsRef<Path>>(
        paths: impl IntoIterator<Item = P>,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, CaptureError> {
        let (bytes_done, mut bytes_total) = (Arc::default(), 0);
        let (mut files, mut bad) = (VecDeque::new(), Vec::new());
        for path in paths {
            let path = path.as_ref();
            let before = files.len();
            let found = captures(path).map_err(|error| io_error(path, error))?;
            for own in found {
                match look(own, &stop, &bytes_done) {
                    Ok((waiting, len)) => {
                        bytes_total += len.unwrap_or(0);
                        files.push_back(waiting);
                    }
                    // The others in a folder are not lost with it.
                    Err(error) if path.is_dir() => bad.push(error),
                    Err(error) => return Err(error),
                }
            }
            if files.len() == before && !bad.is_empty() {
                return Err(bad.swap_remove(0));
            }
            // Those of the same time stay in the order of their paths.
            files.make_contiguous()[before..].sort_by_key(|waiting| waiting.begins_ns);
        }
        let mut own = Self {
            files,
            stop,
            open: None,
            pending: false,
            refused: Vec::new(),
            macs: [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2],
            made: Vec::new(),
            tries: 0,
            bytes_done,
            bytes_total,
            errors: VecDeque::new(),
            stats: QueueStats::default(),
            losses: Arc::default(),
        };
        bad.iter().for_each(|error| own.fail(error));
        Ok(own)
    }

    /// Sets the MAC addresses of the Ethernet headers that packets of other link layers get.
    pub fn set_macs(&mut self, destination: [u8; 6], source: [u8; 6]) {
        self.macs[..6].copy_from_slice(&destination);
        self.macs[6..].copy_from_slice(&source);
    }

    /// The captures that are not open yet, in their order; at the start, all of them.
    pub fn waiting(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|waiting| &*waiting.path)
    }

    /// Goes to the next record that can be delivered; `false` when there is none any more.
    fn advance(&mut self) -> bool {
        while !self.pending {
            if self.stop.load(Ordering::Relaxed) {
                self.files.clear();
                self.close();
                return false;
            }
            let Some((path, reader)) = &mut self.open else {
                let Some(Waiting { path, reader, .. }) = self.files.pop_front() else {
                    return false;
                };
                let opened = match reader {
                    Some(reader) => Ok(reader),
                    None => source(&path, &self.stop)
                        .and_then(|source| capture(&path, source, self.bytes_done.clone())),
                };
                match opened {
                    Ok(reader) => self.open = Some((path, reader)),
                    Err(error) => self.fail(&error),
                }
                continue;
            };
            match reader.advance() {
                Ok(true) => {
                    let link_type = reader.record().map_or(LinkType::ETHERNET, |r| r.link_type);
                    self.pending = link_type.is_convertible();
                    if !self.pending {
                        self.losses.count(&mut self.stats, reasons::RX_UNREADABLE, 1);
                        if !self.refused.contains(&link_type) {
                            self.refused.push(link_type);
                            let (path, offset) = (Some(path.clone()), reader.offset());
                            let fault = CaptureFault::LinkType(link_type);
                            self.fail(&CaptureError { path, offset, fault });
                        }
                    }
                }
                Ok(false) => self.close(),
                // A pipe that was stopped within a record.
                Err(_) if self.stop.load(Ordering::Relaxed) => {}
                Err(mut error) => {
                    error.path = Some(path.clone());
                    self.fail(&error);
                    self.close();
                }
            }
        }
        true
    }

    fn close(&mut self) {
        self.open = None;
        self.refused.clear();
    }

    fn fail(&mut self, error: &CaptureError) {
        self.stats.errors += 1;
        if self.errors.len() < ERRORS_MAX {
            self.errors.push_back(error.to_string());
        }
    }

    /// The pending record as a packet; `None` if there are too few cells.
    fn packet(&mut self, pool: &mut Pool) -> Option<Packet> {
        let record = self.open.as_ref()?.1.record()?;
        let mut bytes = record.data;
        if record.link_type != LinkType::ETHERNET {
            // A protocol that has no EtherType gets one that no stage knows.
            let (skip, ethertype) = record.link_type.to_ethertype(bytes).unwrap_or((0, 0xffff));
            self.made.clear();
            self.made.extend_from_slice(&self.macs);
            self.made.extend_from_slice(&ethertype.to_be_bytes());
            self.made.extend_from_slice(&bytes[skip..]);
            bytes = &self.made;
        }
        let mut packet = Packet::copy_from(pool, bytes)?;
        packet.time_ns = record.time_ns;
        packet.set_cut((record.wire_len as usize).saturating_sub(record.data.len()));
        Some(packet)
    }
}

impl RxQueue for CaptureRx {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        let mut n = 0;
        while n < max && self.advance() {
            match self.packet(pool) {
                Some(packet) => {
                    self.stats.count(packet.frame_len() as u64);
                    out.push(packet);
                    n += 1;
                }
                None if n == 0 && self.tries >= TRIES_MAX => {
                    self.losses.count(&mut self.stats, reasons::RX_OVERSIZE, 1);
                }
                None => {
                    self.tries += u32::from(n == 0);
                    return n;
                }
            }
            self.tries = 0;
            self.pending = false;
        }
        n
    }

    fn is_finished(&self) -> bool {
        !self.pending && self.open.is_none() && self.files.is_empty()
    }

    fn peek_time_ns(&mut self) -> Option<u64> {
        if !self.advance() {
            return None;
        }
        self.open.as_ref()?.1.record().map(|record| record.time_ns)
    }

    fn progress(&self) -> Option<(u64, u64)> {
        Some((self.bytes_done.load(Ordering::Relaxed), self.bytes_total))
    }

    fn take_error(&mut self) -> Option<String> {
        self.errors.pop_front()
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }

    fn losses(&self) -> Vec<Arc<Losses>> {
        vec![self.losses.clone()]
    }
}

fn io_error(path: &Path, error: io::Error) -> CaptureError {
    CaptureError { path: Some(path.to_path_buf()), offset: 0, fault: CaptureFault::Io(error) }
}

/// `path` itself, or the captures in the folder that it is and in its folders.
fn captures(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let (mut files, mut folders) = (Vec::new(), vec![path.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir()? {
            let entry = entry?;
            let path = entry.path();
            // Links to folders may lead in circles.
            if entry.file_type()?.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.to_string_lossy();
            let name = COMPRESSED.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
            let is_capture = [".pcap", ".pcapng", ".cap"].iter().any(|end| name.ends_with(end));
            if is_capture && path.is_file() {
                files.push(path);
            }
        }
    }
    if files.is_empty() {
        let what = "no capture in this folder: expected .pcap, .pcapng or .cap files, or these with .gz, .xz or .zst";
        return Err(io::Error::new(io::ErrorKind::NotFound, what));
    }
    files.sort();
    Ok(files)
}

/// Ends of the names of compressed files.
const COMPRESSED: &[&str] = &[".gz", ".xz", ".zst"];

/// What is at `path`, and its length in bytes. Opened only to see that it is what it should be; there may be thousands.
fn look(
    path: PathBuf,
    stop: &Arc<AtomicBool>,
    bytes_done: &Arc<AtomicU64>,
) -> Result<(Waiting, Option<u64>), CaptureError> {
    let source = source(&path, stop)?;
    let (len, opened_again) = (source.len_bytes(), source.can_be_opened_again());
    let counted = if opened_again { Arc::default() } else { Arc::clone(bytes_done) };
    let mut reader = capture(&path, source, counted)?;
    if let Some(link_type) = reader.link_type().filter(|t| !t.is_convertible()) {
        let fault = CaptureFault::LinkType(link_type);
        return Err(CaptureError { path: Some(path), offset: 20, fault });
    }
    // A pipe may have no packet yet, and is waited for in its turn.
    let has_first = opened_again && reader.advance().is_ok_and(|is_there| is_there);
    let begins_ns = reader.record().filter(|_| has_first).map_or(u64::MAX, |first| first.time_ns);
    Ok((Waiting { path, reader: (!opened_again).then_some(reader), begins_ns }, len))
}

/// The file at `path`, not typed by a person.
fn source(path: &Path, stop: &Arc<AtomicBool>) -> Result<Source, CaptureError> {
    let source = Source::open(path).map_err(|error| io_error(path, error))?;
    if source.is_terminal() {
        let what = "expected a capture, found a terminal: redirect a file or a pipe to it";
        return Err(io_error(path, io::Error::other(what)));
    }
    source.until(stop.clone()).map_err(|error| io_error(path, error))
}

/// The capture in a file, decompressed.
fn capture(
    path: &Path,
    source: Source,
    bytes_done: Arc<AtomicU64>,
) -> Result<CaptureReader<Input>, CaptureError> {
    let input = input::reader(Counting { source, bytes_done });
    let input = input.map_err(|error| io_error(path, error))?;
    CaptureReader::new(input)
        .map_err(|error| CaptureError { path: Some(path.to_path_buf()), ..error })
}

/// A file that counts what was read of it, for the progress.
struct Counting {
    source: Source,
    bytes_done: Arc<AtomicU64>,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.source.read(buffer)?;
        self.bytes_done.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}
