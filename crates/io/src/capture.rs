//! Capture files: pcap and pcapng, read and written as a stream.
//!
//! * [`CaptureReader`]: the records of one capture, from anything that can be read.
//! * [`CaptureWriter`]: writes records, with comments in pcapng.
//! * [`CaptureRx`], [`CaptureTx`]: the same as packet queues, over files, which may be compressed, and pipes.
//!
//! Both formats are read in both byte orders and with any resolution of time. (The crate pcap-file
//! ignores pcapng's `if_tsresol`, so times would come out wrong.) Sources: the pcap and pcapng
//! Internet-Drafts, draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng.
//!
//! A record is believed as little as possible: lengths are checked against the block, the file and
//! [`RECORD_BYTES_MAX`] before anything is done with them, and whatever is before a corrupt
//! place is delivered.
//!
//! Threads: a reader or writer belongs to one thread.

mod link;
mod reader;
mod rx;
mod tx;
mod writer;

use std::fmt;
use std::path::PathBuf;

pub use link::LinkType;
pub use reader::{CaptureReader, Record};
pub use rx::CaptureRx;
pub use tx::CaptureTx;
pub use writer::{CaptureWriter, Format, Seen};

/// The longest record that is believed: 64 MiB. Longer ones are corrupt.
pub const RECORD_BYTES_MAX: usize = 64 << 20;

/// What is wrong with a capture, and where.
#[derive(Debug, thiserror::Error)]
pub struct CaptureError {
    /// The file, if the capture came from one.
    pub path: Option<PathBuf>,
    /// Offset of the record or field in the capture, after decompression.
    pub offset: u64,
    /// What is wrong.
    pub fault: CaptureFault,
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", files::input::name(path))?;
        }
        match (&self.fault, self.offset) {
            // It could not even be opened.
            (CaptureFault::Io(error), 0) => write!(f, "{error}"),
            (fault, offset) => write!(f, "at byte {offset}: {fault}"),
        }
    }
}

/// What can be wrong with a capture.
#[derive(Debug, thiserror::Error)]
pub enum CaptureFault {
    /// Reading or writing failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It does not begin like a capture.
    #[error("not a capture: begins with {0:#010x}, expected a pcap or pcapng magic number")]
    NotACapture(u32),
    /// It is too short to begin like a capture.
    #[error("not a capture: {0} bytes, expected a pcap or pcapng header")]
    TooShort(usize),
    /// A version that is not known.
    #[error("version {0}.{1}, expected {2}")]
    Version(u16, u16, &'static str),
    /// It ends within a record.
    #[error("ends within {what}: {have} bytes left, expected {need}")]
    Truncated {
        /// The part that is not whole.
        what: &'static str,
        /// Bytes there are.
        have: usize,
        /// Bytes there should be.
        need: usize,
    },
    /// A length that cannot be.
    #[error("{what} of {value} bytes, expected {expected}")]
    Length {
        /// Whose length.
        what: &'static str,
        /// What the capture says.
        value: u64,
        /// What would be right.
        expected: &'static str,
    },
    /// The two lengths around a pcapng block differ.
    #[error("leading {0} and trailing {1} block lengths differ")]
    BlockLengths(u32, u32),
    /// A byte-order mark that is none.
    #[error("byte-order magic {0:#010x}, expected 0x1a2b3c4d in either order")]
    ByteOrder(u32),
    /// A packet block names an interface that was not described.
    #[error("packet of interface {0}, but only {1} are described")]
    Interface(u32, usize),
    /// The link layer cannot be turned into Ethernet.
    #[error("link type {link_type} is not Ethernet and cannot be converted to it", link_type = .0)]
    LinkType(LinkType),
}

/// Every record of a capture that lies in memory, and the error that ended it, if one did.
///
/// For tests and fuzzing; large captures are better read with [`CaptureReader`].
pub fn read_all(bytes: &[u8]) -> (Vec<OwnedRecord>, Option<CaptureError>) {
    let mut records = Vec::new();
    let mut reader = match CaptureReader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (records, Some(error)),
    };
    loop {
        match reader.advance() {
            Ok(true) => records.extend(reader.record().map(OwnedRecord::from)),
            Ok(false) => return (records, None),
            Err(error) => return (records, Some(error)),
        }
    }
}

/// A [`Record`] with bytes of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedRecord {
    /// Time in nanoseconds since 1970.
    pub time_ns: u64,
    /// The bytes that were captured.
    pub data: Vec<u8>,
    /// Bytes that the frame had.
    pub wire_len: u32,
    /// Its link layer.
    pub link_type: LinkType,
    /// Number of its interface in the section; 0 in pcap.
    pub interface: u32,
    /// The first comment.
    pub comment: Option<String>,
}

impl From<Record<'_>> for OwnedRecord {
    fn from(record: Record<'_>) -> Self {
        Self {
            time_ns: record.time_ns,
            data: record.data.to_vec(),
            wire_len: record.wire_len,
            link_type: record.link_type,
            interface: record.interface,
            comment: record.comment.map(|c| String::from_utf8_lossy(c).into_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
