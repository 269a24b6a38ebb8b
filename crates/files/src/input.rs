//! Input: files, pipes and standard input, as they are or compressed.
//!
//! Captures, tables of the Internet and sets of rules are handed around compressed. By which program is known by the
//! first bytes:
//!
//! ```text
//!  1f 8b                       gzip, any number of members         one after the other
//!  fd 37 7a 58 5a 00           xz, any number of streams           one after the other
//!  28 b5 2f fd, 5x 2a 4d 18    Zstandard, any number of frames     one after the other
//!  anything else               the bytes themselves
//! ```
//!
//! Where compressed data is truncated or corrupt, the bytes before that place come first, then the error.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use flate2::bufread::GzDecoder;
use lzma_rust2::XzReader;

use crate::is_standard;
use crate::zstd::Zstd;

const GZIP: &[u8] = &[0x1f, 0x8b];
const XZ: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Of a frame to be skipped, whose first byte is 0x50 to 0x5f.
const ZSTD_SKIPPED: &[u8] = &[0x2a, 0x4d, 0x18];

/// Memory that decompressing xz may take, KiB: `xz -9` wants 64 MiB, and a header could ask for 4 GiB.
const XZ_MEMORY_KIB: u32 = 256 << 10;

const BUFFER: usize = 64 << 10;

/// Decoders are asked for so much at a time: what they decoded in a call that fails is lost.
const PIECE: usize = 4 << 10;

/// How often a wait for a pipe looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// Whether standard input is some file's already.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// How an input may be compressed.
pub const COMPRESSIONS: [&str; 3] = ["gzip", "xz", "zstd"];

/// What a message calls an input.
pub fn name(path: &Path) -> Cow<'_, str> {
    if is_standard(path) { "standard input".into() } else { path.to_string_lossy() }
}

/// An open input, not decompressed.
#[derive(Debug)]
pub struct Source {
    file: From,
    is_terminal: bool,
    /// Of a file that has an end.
    len: Option<u64>,
    is_standard: bool,
}

#[derive(Debug)]
enum From {
    File(File),
    /// A named pipe: to open it is to wait for its writer.
    Unopened(PathBuf),
    Waiting(Waiting),
}

impl Source {
    /// Opens a file; `-` is standard input, which only one file can be.
    ///
    /// # Errors
    /// It cannot be opened, or standard input is in use.
    pub fn open(path: &Path) -> io::Result<Self> {
        let is_standard = is_standard(path);
        if !is_standard && std::fs::metadata(path)?.file_type().is_fifo() {
            let file = From::Unopened(path.to_owned());
            return Ok(Self { file, is_terminal: false, len: None, is_standard });
        }
        let file = if is_standard {
            if IN_USE.swap(true, Ordering::Relaxed) {
                return Err(io::Error::other("only one input can be `-`"));
            }
            File::from(io::stdin().as_fd().try_clone_to_owned()?)
        } else {
            File::open(path)?
        };
        let about = file.metadata()?;
        if about.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "Is a directory"));
        }
        let len = about.is_file().then_some(about.len());
        let is_terminal = file.is_terminal();
        Ok(Self { file: From::File(file), is_terminal, len, is_standard })
    }

    /// The bytes of a regular file.
    pub fn len_bytes(&self) -> Option<u64> {
        self.len
    }

    /// Whether opening it again would give the same bytes: not those of a pipe, or of standard input.
    pub fn can_be_opened_again(&self) -> bool {
        self.len.is_some() && !self.is_standard
    }

    /// Whether a person types it.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// A pipe ends when `stop` is set, even while its writer or its bytes are waited for.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn until(mut self, stop: Arc<AtomicBool>) -> io::Result<Self> {
        if self.len.is_none() {
            self.file = match self.file {
                From::File(file) => From::Waiting(Waiting::new(move || Ok(file), stop)?),
                From::Unopened(path) => {
                    From::Waiting(Waiting::new(move || File::open(path), stop)?)
                }
                waiting => waiting,
            };
        }
        Ok(self)
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let From::Unopened(path) = &self.file {
            self.file = From::File(File::open(path)?);
        }
        match &mut self.file {
            From::File(file) => file.read(buffer),
            From::Unopened(_) => Ok(0),
            From::Waiting(waiting) => waiting.read(buffer),
        }
    }
}

/// A pipe that a thread of its own reads: that thread may wait for bytes that never come.
#[derive(Debug)]
struct Waiting {
    blocks: Receiver<io::Result<Vec<u8>>>,
    block: io::Cursor<Vec<u8>>,
    stop: Arc<AtomicBool>,
}

/// Blocks that may wait to be taken.
const BLOCKS: usize = 4;

impl Waiting {
    fn new(
        open: impl FnOnce() -> io::Result<File> + Send + 'static,
        stop: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let (sender, blocks) = mpsc::sync_channel(BLOCKS);
        // It ends with the pipe, with the receiver, or with the program.
        std::thread::Builder::new().name("input".to_owned()).spawn(move || {
            let mut file = match open() {
                Ok(file) => file,
                Err(error) => return drop(sender.send(Err(error))),
            };
            loop {
                let mut block = vec![0; BUFFER];
                let read = match file.read(&mut block) {
                    Ok(0) => return,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Ok(n) => {
                        block.truncate(n);
                        Ok(block)
                    }
                    Err(error) => Err(error),
                };
                let is_last = read.is_err();
                if sender.send(read).is_err() || is_last {
                    return;
                }
            }
        })?;
        Ok(Self { blocks, block: io::Cursor::default(), stop })
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.block.read(buffer)? {
                0 if !buffer.is_empty() => {}
                n => return Ok(n),
            }
            if self.stop.load(Ordering::Relaxed) {
                return Ok(0);
            }
            match self.blocks.recv_timeout(LOOK) {
                Ok(block) => self.block = io::Cursor::new(block?),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
            }
        }
    }
}

/// What `input` holds, decompressed.
///
/// # Errors
/// The input's. What is wrong in compressed data comes with the bytes.
pub fn reader<'a>(mut input: impl Read + Send + 'a) -> io::Result<Box<dyn Read + Send + 'a>> {
    let mut head = Vec::new();
    input.by_ref().take(XZ.len() as u64).read_to_end(&mut head)?;
    let compression = Compression::of(&head);
    let whole = io::Cursor::new(head).chain(input);
    let buffered = |whole| BufReader::with_capacity(BUFFER, whole);
    let [gzip, xz, zstd] = COMPRESSIONS;
    Ok(match compression {
        Compression::Gzip => {
            Box::new(Decompressed { name: gzip, inner: Members::new(buffered(whole)) })
        }
        Compression::Xz => {
            let inner = XzReader::new_mem_limit(buffered(whole), true, XZ_MEMORY_KIB);
            Box::new(Decompressed { name: xz, inner })
        }
        Compression::Zstd => {
            Box::new(Decompressed { name: zstd, inner: Zstd::new(buffered(whole)) })
        }
        Compression::None => Box::new(whole),
    })
}

/// How the first bytes say that the rest is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Xz,
    Zstd,
}

impl Compression {
    fn of(head: &[u8]) -> Self {
        let is_skipped = |first: &u8, rest: &[u8]| {
            (0x50..=0x5f).contains(first) && rest.starts_with(ZSTD_SKIPPED)
        };
        if head.starts_with(GZIP) {
            Self::Gzip
        } else if head.starts_with(XZ) {
            Self::Xz
        } else if head.starts_with(ZSTD)
            || head.split_first().is_some_and(|(first, rest)| is_skipped(first, rest))
        {
            Self::Zstd
        } else {
            Self::None
        }
    }
}

/// How many bytes of text a byte of a compressed file may stand for, by experience with tables of routes and rules.
const TEXT_PER_BYTE: u64 = 10;

/// About how many bytes [`read`] would give, before it is read: its length, or an estimate for a compressed file. 0 if that
/// is not known (a pipe), or the file cannot be read.
pub fn text_bytes(path: &Path) -> u64 {
    // A pipe is not opened: its writer would see a reader come and go.
    let about = std::fs::metadata(path).ok().filter(|about| about.is_file() && !is_standard(path));
    let Some((about, file)) = about.zip(File::open(path).ok()) else { return 0 };
    let mut head = Vec::new();
    if file.take(XZ.len() as u64).read_to_end(&mut head).is_err() {
        return 0;
    }
    match Compression::of(&head) {
        Compression::None => about.len(),
        _ => about.len() * TEXT_PER_BYTE,
    }
}

/// Bytes of a decoder, whose errors say what is wrong with which data.
struct Decompressed<R> {
    name: &'static str,
    inner: R,
}

impl<R: Read> Read for Decompressed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(PIECE);
        self.inner.read(&mut buffer[..most]).map_err(|error| {
            let text = match error.kind() {
                io::ErrorKind::Interrupted => return error,
                io::ErrorKind::UnexpectedEof => format!("the {} data is truncated", self.name),
                io::ErrorKind::OutOfMemory => {
                    format!("the {} data needs more than 256 MiB to decompress", self.name)
                }
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                    format!("the {} data is corrupt: {error}", self.name)
                }
                _ => format!("the {} data cannot be read: {error}", self.name),
            };
            // Not the kind of a capture that ends within a record.
            io::Error::new(io::ErrorKind::InvalidData, text)
        })
    }
}

/// Members of gzip data one after another (RFC 1952 §2.2). What follows them is an error of its own: the data before it is
/// whole. Zeros that fill a block of a tape are no error, as for gzip itself.
struct Members<R> {
    /// The member that is read; none after the last.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Members<R> {
    fn new(input: R) -> Self {
        Self { member: Some(GzDecoder::new(input)) }
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(member) = &mut self.member else { return Ok(0) };
            let n = member.read(buffer)?;
            if n > 0 || buffer.is_empty() {
                return Ok(n);
            }
            let mut rest = self.member.take().expect("a member was read").into_inner();
            let next = rest.fill_buf()?;
            if next.is_empty() {
                return Ok(0);
            }
            if next[0] == GZIP[0] {
                self.member = Some(GzDecoder::new(rest));
                continue;
            }
            loop {
                let next = rest.fill_buf()?;
                if next.iter().any(|&byte| byte != 0) {
                    let what = "something else follows its end";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
                match next.len() {
                    0 => return Ok(0),
                    n => rest.consume(n),
                }
            }
        }
    }
}

/// A file, decompressed, to be read in lines.
///
/// # Errors
/// It cannot be opened or read.
pub fn open(path: &Path) -> io::Result<Box<dyn BufRead + Send>> {
    Ok(Box::new(BufReader::with_capacity(BUFFER, reader(Source::open(path)?)?)))
}

/// Bytes that [`read`] takes: far more than any text has that a person or a program writes for this one.
pub const BYTES_MAX: u64 = 1 << 30;

/// The whole of a file, decompressed: at most [`BYTES_MAX`].
///
/// # Errors
/// It cannot be opened or read, is compressed and truncated or corrupt, or has more bytes.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_at_most(path, BYTES_MAX)
}

/// The whole of a file, decompressed: at most `most` bytes. Some files have no end (`/dev/zero`), and a few compressed
/// bytes may stand for very many.
///
/// # Errors
/// It cannot be opened or read, is compressed and truncated or corrupt, or has more bytes.
pub fn read_at_most(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader(Source::open(path)?)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let message = format!("more than {} MiB", most >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

#[cfg(test)]
#[path = "input/tests.rs"]
mod tests;
