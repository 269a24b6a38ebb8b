//! Bodies: where they end, what is in them.

use crate::anomaly::AnomalyKind;
use crate::buffer::Buffer;
use crate::file::{FileState, OpenFile};
use crate::http1::coding::{CodingError, Decoder};
use crate::mime::Mime;
use crate::output::Output;
use crate::sink::{Direction, Piece};

/// Where a body ends (RFC 9112 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// So many bytes are left.
    Length(u64),
    Chunked(Chunk),
    /// With the connection.
    UntilClose,
}

/// Where in a body of chunks (RFC 9112 §7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// In the line of the size: the size, its digits, whether the digits are over.
    Size { size: u64, digits: u8, is_over: bool },
    /// So many bytes are left.
    Data(u64),
    /// In the end of line behind the bytes.
    End,
    /// In a line of the trailer that has so many bytes; so many lines came.
    Trailer { len: u32, total: u32 },
}

impl Chunk {
    pub(crate) const FIRST: Self = Self::Size { size: 0, digits: 0, is_over: false };
}

/// What became of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// All of them, and more are wanted.
    All,
    /// So many; the body has ended.
    Ended(usize),
    /// So many; the framing is broken there.
    Broken(usize),
}

/// Bytes of a trailer.
const TRAILER_MAX: u32 = 64 << 10;

/// A body that is being read.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) framing: Framing,
    pub(crate) decoder: Option<Decoder>,
    pub(crate) content: Content,
    /// Bytes as sent, with the lines of chunks.
    pub(crate) bytes: u64,
    pub(crate) failed: Option<FileState>,
    /// It was said that the body is not in its coding.
    pub(crate) is_plain: bool,
    /// It was said that the body is in another coding.
    pub(crate) is_other: bool,
    /// It was said that lines of sizes have more.
    pub(crate) has_extension: bool,
    /// The lines of the trailer.
    pub(crate) trailer: Vec<u8>,
}

/// The content of a body: the buffer, and the file that it is or the files that are in it.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) transaction: u64,
    pub(crate) direction: Direction,
    /// Bytes, codings undone.
    pub(crate) bytes: u64,
    pub(crate) given: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) range: Option<(u64, u64, Option<u64>)>,
    pub(crate) file: Option<Box<OpenFile>>,
    pub(crate) parts: Option<Box<Mime>>,
}

impl Content {
    fn piece(&self, out: &mut Output<'_>, bytes: &[u8], is_last: bool) {
        let buffer = match self.direction {
            Direction::ToServer => Buffer::HttpRequestBody,
            Direction::ToClient => Buffer::HttpResponseBody,
        };
        let (transaction, direction, offset) = (self.transaction, self.direction, self.given);
        out.sink.piece(&Piece {
            transaction,
            direction,
            buffer,
            number: 0,
            offset,
            bytes,
            is_last,
        });
    }

    fn write(&mut self, out: &mut Output<'_>, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.bytes += bytes.len() as u64;
        let room = out.limits.body_bytes.saturating_sub(self.given);
        let len = usize::try_from(room).map_or(bytes.len(), |room| bytes.len().min(room));
        if len > 0 {
            self.piece(out, &bytes[..len], false);
            self.given += len as u64;
        }
        if let Some(parts) = &mut self.parts {
            parts.feed(out, bytes);
            return;
        }
        let file = self.file.get_or_insert_with(|| {
            let name = std::mem::take(&mut self.name);
            let mut file = out.open(self.transaction, self.direction, 0, name);
            file.file.range = self.range;
            file
        });
        out.write(file, bytes);
    }
}

impl Body {
    /// Bytes of memory that it holds, with its own.
    pub(crate) fn held(&self) -> usize {
        let Content { name, file, parts, .. } = &self.content;
        let decoder = self.decoder.as_ref().map_or(0, Decoder::held);
        let file = file.as_ref().map_or(0, |file| file.held());
        let parts = parts.as_ref().map_or(0, |parts| parts.held());
        size_of::<Self>() + decoder + name.capacity() + file + parts + self.trailer.capacity()
    }

    fn is_response(&self) -> bool {
        self.content.direction == Direction::ToClient
    }

    /// Takes bytes of the connection.
    pub(crate) fn feed(&mut self, out: &mut Output<'_>, bytes: &[u8]) -> Taken {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match self.framing {
                Framing::UntilClose => {
                    self.write(out, rest);
                    return Taken::All;
                }
                Framing::Length(left) => {
                    let len = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    self.write(out, &rest[..len]);
                    at += len;
                    self.framing = Framing::Length(left - len as u64);
                    if left == len as u64 {
                        return Taken::Ended(at);
                    }
                }
                Framing::Chunked(Chunk::Data(left)) => {
                    let len = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    self.write(out, &rest[..len]);
                    at += len;
                    let left = left - len as u64;
                    let next = if left == 0 { Chunk::End } else { Chunk::Data(left) };
                    self.framing = Framing::Chunked(next);
                }
                Framing::Chunked(chunk) => {
                    at += 1;
                    match chunk {
                        Chunk::Trailer { .. } => self.trailer.push(rest[0]),
                        _ => self.bytes += 1,
                    }
                    if rest[0] == b';' && matches!(chunk, Chunk::Size { digits: 1.., .. }) {
                        self.extended(out);
                    }
                    match chunk.step(rest[0]) {
                        Some(Some(next)) => self.framing = Framing::Chunked(next),
                        Some(None) => return Taken::Ended(at),
                        // What a server sends is read as it is.
                        None if matches!(chunk, Chunk::Size { .. }) && self.is_response() => {
                            let id = self.content.transaction;
                            let kind = AnomalyKind::HttpResponseChunk;
                            out.anomaly(kind, Some(id), Some(self.content.direction));
                            self.framing = Framing::UntilClose;
                            at -= 1;
                            self.bytes -= 1;
                        }
                        None => return Taken::Broken(at),
                    }
                }
            }
        }
        Taken::All
    }

    /// The line of the size of a chunk has more than that.
    fn extended(&mut self, out: &mut Output<'_>) {
        if std::mem::replace(&mut self.has_extension, true) {
            return;
        }
        let kind = match self.is_response() {
            true => AnomalyKind::HttpResponseExtension,
            false => AnomalyKind::HttpRequestExtension,
        };
        out.anomaly(kind, Some(self.content.transaction), Some(self.content.direction));
    }

    /// Bytes that will not come; `false` if it is not known where the body goes on.
    pub(crate) fn gap(&mut self, bytes: u64) -> bool {
        match &mut self.framing {
            Framing::UntilClose => {}
            Framing::Length(left) | Framing::Chunked(Chunk::Data(left)) if bytes < *left => {
                *left -= bytes;
            }
            _ => return false,
        }
        self.bytes += bytes;
        if let Some(file) = &mut self.content.file {
            file.file.has_gaps = true;
        }
        self.failed.get_or_insert(FileState::Truncated);
        if self.decoder.is_some() || self.content.parts.is_some() {
            // What is behind it cannot be undone.
            self.failed = Some(FileState::Error);
        }
        true
    }

    fn write(&mut self, out: &mut Output<'_>, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let Some(decoder) = &mut self.decoder else {
            if self.failed != Some(FileState::Error) {
                self.content.write(out, bytes);
            }
            return;
        };
        if self.failed.is_some() {
            return;
        }
        let limits = *out.limits;
        let content = &mut self.content;
        let result = decoder.feed(bytes, &limits, &mut |bytes| content.write(out, bytes));
        self.decoded(out, result);
    }

    /// What the decoder found out.
    fn decoded(&mut self, out: &mut Output<'_>, result: Result<(), CodingError>) {
        let Some(decoder) = &self.decoder else { return };
        if decoder.is_other() && !std::mem::replace(&mut self.is_other, true) {
            let id = self.content.transaction;
            out.anomaly(AnomalyKind::HttpUnknownCoding, Some(id), Some(self.content.direction));
        }
        if decoder.is_plain() && !std::mem::replace(&mut self.is_plain, true) {
            let id = self.content.transaction;
            out.anomaly(AnomalyKind::HttpDecompression, Some(id), Some(self.content.direction));
        }
        if let Err(error) = result {
            let kind = match error {
                CodingError::Broken => AnomalyKind::HttpDecompression,
                CodingError::Bomb => AnomalyKind::HttpBomb,
            };
            out.anomaly(kind, Some(self.content.transaction), Some(self.content.direction));
            self.failed = Some(FileState::Error);
        }
    }

    /// The body has ended, whole or not.
    pub(crate) fn end(mut self, out: &mut Output<'_>, is_whole: bool) -> [u64; 2] {
        if let Some(decoder) = self.decoder.as_mut().filter(|_| self.failed.is_none()) {
            let (limits, content) = (*out.limits, &mut self.content);
            let result = decoder.finish(&limits, &mut |bytes| content.write(out, bytes));
            self.decoded(out, result);
        }
        let is_content_whole = self.decoder.as_ref().is_none_or(Decoder::is_whole);
        let state = match self.failed {
            Some(state) => state,
            None if is_whole && is_content_whole => FileState::Closed,
            None => FileState::Truncated,
        };
        if let Some(parts) = self.content.parts.take() {
            parts.end(out, state);
        }
        if let Some(file) = self.content.file.take() {
            out.close(file, state);
        }
        if self.content.bytes > 0 {
            self.content.piece(out, &[], true);
        }
        [self.bytes, self.content.bytes]
    }
}

impl Chunk {
    /// One byte outside the data: what comes next, nothing behind the trailer; `None` if it cannot be.
    fn step(self, byte: u8) -> Option<Option<Self>> {
        Some(Some(match (self, byte) {
            (Self::Size { digits: 0, is_over: false, .. }, b'\r' | b'\n' | b' ' | b'\t') => self,
            (Self::Size { digits: 0, is_over: true, .. }, b'\n') => return None,
            (Self::Size { size: 0, .. }, b'\n') => Self::Trailer { len: 0, total: 0 },
            (Self::Size { size, .. }, b'\n') => Self::Data(size),
            (Self::Size { size, digits, is_over: false }, byte) => {
                match char::from(byte).to_digit(16) {
                    Some(digit) => {
                        if size >> 59 != 0 {
                            return None;
                        }
                        Self::Size { size: size << 4 | u64::from(digit), digits: 1, is_over: false }
                    }
                    None if digits == 0 => return None,
                    None => Self::Size { size, digits, is_over: true },
                }
            }
            (Self::Size { .. }, _) => self,
            (Self::End, b'\n') => Self::FIRST,
            (Self::End, b'\r') => self,
            (Self::End, _) => return None,
            (Self::Trailer { len: 0, .. }, b'\n') => return Some(None),
            (Self::Trailer { total: TRAILER_MAX.., .. }, _) => return None,
            (Self::Trailer { total, .. }, b'\n') => Self::Trailer { len: 0, total: total + 1 },
            (Self::Trailer { len, total }, b'\r') => Self::Trailer { len, total: total + 1 },
            (Self::Trailer { len, total }, _) => {
                Self::Trailer { len: len.saturating_add(1), total: total + 1 }
            }
            (Self::Data(_), _) => self,
        }))
    }
}
