//! ESP (RFC 4303): what can be seen without the key.

use crate::bytes::{be32, put};

/// Bytes of the part in front of the ciphertext.
pub const HEADER_LEN: usize = 8;

/// An ESP packet whose header is there.
#[derive(Clone, Copy, Debug)]
pub struct EspView<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> EspView<'a> {
    /// `None` below 8 bytes.
    pub fn new_checked(bytes: &'a [u8]) -> Option<Self> {
        let (header, payload) = bytes.split_first_chunk()?;
        Some(EspView { header, payload })
    }

    /// Security parameters index.
    pub fn spi(&self) -> u32 {
        be32(self.header, 0)
    }

    /// Sequence number, its low 32 bits.
    pub fn sequence(&self) -> u32 {
        be32(self.header, 4)
    }

    /// Initialisation vector, ciphertext and integrity check value.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A header to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EspHeader {
    /// Security parameters index.
    pub spi: u32,
    /// Sequence number, its low 32 bits.
    pub sequence: u32,
}

impl EspHeader {
    /// Writes 8 bytes; `None` where there is no room.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..HEADER_LEN)?;
        put(out, 0, self.spi.to_be_bytes());
        put(out, 4, self.sequence.to_be_bytes());
        Some(HEADER_LEN)
    }
}
