//! Files within transactions: name, size, digests.

use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::sink::Direction;

/// How a file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileState {
    /// It is whole.
    Closed,
    /// Its end did not come, or bytes of it are missing.
    Truncated,
    /// Its coding is broken.
    Error,
}

impl FileState {
    /// As EVE names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "CLOSED",
            Self::Truncated => "TRUNCATED",
            Self::Error => "ERROR",
        }
    }
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The transaction that it came in.
    pub transaction: u64,
    /// Whither it went.
    pub direction: Direction,
    /// Which of the transaction and direction, from 0; the number of its pieces of `file.data` and `file.name`.
    pub number: u32,
    /// Its name; empty where it has none.
    pub name: Vec<u8>,
    /// Bytes, codings undone, without those that are missing.
    pub size: u64,
    /// How it ended.
    pub state: FileState,
    /// Bytes of it are missing.
    pub has_gaps: bool,
    /// First byte, last byte and size of all of it, where the response is a part (RFC 9110 §14.4).
    pub range: Option<(u64, u64, Option<u64>)>,
    /// Digests; of a file that is not whole there are none.
    pub digests: Option<Digests>,
    /// When it began, in nanoseconds since 1970.
    pub start_ns: u64,
}

/// Digests of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digests {
    /// MD5.
    pub md5: [u8; 16],
    /// SHA-1.
    pub sha1: [u8; 20],
    /// SHA-256.
    pub sha256: [u8; 32],
}

/// A file that is being read.
#[derive(Clone, Debug)]
pub(crate) struct OpenFile {
    pub(crate) file: File,
    /// Bytes of `file.data` handed on.
    pub(crate) given: u64,
    md5: Md5,
    sha1: Sha1,
    sha256: Sha256,
}

impl OpenFile {
    pub(crate) fn new(file: File) -> Self {
        Self { file, given: 0, md5: Md5::new(), sha1: Sha1::new(), sha256: Sha256::new() }
    }

    /// Bytes of memory that it holds, with its own.
    pub(crate) fn held(&self) -> usize {
        size_of::<Self>() + self.file.name.capacity()
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.file.size += bytes.len() as u64;
        if !self.file.has_gaps {
            self.md5.update(bytes);
            self.sha1.update(bytes);
            self.sha256.update(bytes);
        }
    }

    pub(crate) fn close(self, state: FileState) -> File {
        let mut file = self.file;
        let is_whole = state == FileState::Closed && !file.has_gaps;
        file.state =
            if file.has_gaps && state == FileState::Closed { FileState::Truncated } else { state };
        file.digests = is_whole.then(|| Digests {
            md5: self.md5.finalize().into(),
            sha1: self.sha1.finalize().into(),
            sha256: self.sha256.finalize().into(),
        });
        file
    }
}
