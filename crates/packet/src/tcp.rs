//! TCP (RFC 9293).

use crate::bytes::{be16, be32, put};
use crate::checksum::{finish, partial_sum};

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;
/// Most bytes of options.
pub const OPTIONS_LEN_MAX: usize = 40;

/// Bits of the flags field.
#[allow(missing_docs)] // the names are the RFC's
pub mod flags {
    pub const FIN: u16 = 1 << 0;
    pub const SYN: u16 = 1 << 1;
    pub const RST: u16 = 1 << 2;
    pub const PSH: u16 = 1 << 3;
    pub const ACK: u16 = 1 << 4;
    pub const URG: u16 = 1 << 5;
    pub const ECE: u16 = 1 << 6;
    pub const CWR: u16 = 1 << 7;
    pub const NS: u16 = 1 << 8;
}

/// A segment whose header is there.
#[derive(Clone, Copy, Debug)]
pub struct TcpView<'a> {
    fixed: &'a [u8; HEADER_LEN],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> TcpView<'a> {
    /// `None` below 20 bytes and where the data offset is below 5 or beyond the bytes.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Option<Self> {
        let (fixed, rest) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let options_len = (usize::from(fixed[12] >> 4) * 4).checked_sub(HEADER_LEN)?;
        let (options, payload) = rest.split_at_checked(options_len)?;
        Some(TcpView { fixed, options, payload })
    }

    /// Source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        be16(self.fixed, 0)
    }

    /// Destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        be16(self.fixed, 2)
    }

    /// Sequence number of the first byte, or of SYN.
    #[inline]
    pub fn sequence(&self) -> u32 {
        be32(self.fixed, 4)
    }

    /// Next byte expected; meaningful with ACK.
    #[inline]
    pub fn acknowledgment(&self) -> u32 {
        be32(self.fixed, 8)
    }

    /// Bits of [`flags`].
    #[inline]
    pub fn flags(&self) -> u16 {
        be16(self.fixed, 12) & 0x1ff
    }

    /// Unscaled.
    #[inline]
    pub fn window(&self) -> u16 {
        be16(self.fixed, 14)
    }

    /// As stored.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.fixed, 16)
    }

    /// Meaningful with URG.
    #[inline]
    pub fn urgent_pointer(&self) -> u16 {
        be16(self.fixed, 18)
    }

    /// Whether the segment sums up with the pseudo header's partial sum.
    #[inline]
    pub fn is_checksum_correct(&self, pseudo_header: u32) -> bool {
        let header = partial_sum(self.fixed) + partial_sum(self.options);
        finish(pseudo_header + header + partial_sum(self.payload)) == 0
    }

    /// 20 to 60 bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Options as bytes, padding included.
    #[inline]
    pub fn options_bytes(&self) -> &'a [u8] {
        self.options
    }

    /// Everything behind the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The options of a header, of [`TcpView::options_bytes`], by kind and content. It ends before one that is malformed.
pub fn options(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut left = bytes;
    std::iter::from_fn(move || {
        loop {
            match left {
                [] | [0, ..] | [_] => return None,
                [1, rest @ ..] => left = rest,
                [kind, len, rest @ ..] => {
                    let len = usize::from(*len).checked_sub(2)?;
                    let (content, behind) = rest.split_at_checked(len)?;
                    left = behind;
                    return Some((*kind, content));
                }
            }
        }
    })
}

/// A header to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TcpHeader<'a> {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgment number.
    pub acknowledgment: u32,
    /// Bits of [`flags`].
    pub flags: u16,
    /// Unscaled.
    pub window: u16,
    /// Urgent pointer.
    pub urgent_pointer: u16,
    /// At most 40 bytes; padded with end-of-list to a multiple of 4.
    pub options: &'a [u8],
}

impl TcpHeader<'_> {
    /// Bytes that [`TcpHeader::emit`] writes: 20 to 60.
    pub const fn len(&self) -> usize {
        HEADER_LEN + self.options.len().next_multiple_of(4)
    }

    /// Never true; a header has bytes.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header in front of a payload that already is behind it: `segment` is header
    /// and payload. `pseudo_header` is the partial sum of the pseudo header with the length of
    /// `segment`. Returns the header's length; `None` where there is no room or the options are
    /// too long.
    pub fn emit(&self, pseudo_header: u32, segment: &mut [u8]) -> Option<usize> {
        let len = self.len();
        if self.options.len() > OPTIONS_LEN_MAX {
            return None;
        }
        let header = segment.get_mut(..len)?;
        put(header, 0, self.src_port.to_be_bytes());
        put(header, 2, self.dst_port.to_be_bytes());
        put(header, 4, self.sequence.to_be_bytes());
        put(header, 8, self.acknowledgment.to_be_bytes());
        put(header, 12, ((len as u16 / 4) << 12 | self.flags & 0x1ff).to_be_bytes());
        put(header, 14, self.window.to_be_bytes());
        put(header, 16, [0, 0]);
        put(header, 18, self.urgent_pointer.to_be_bytes());
        let (options, padding) = header[HEADER_LEN..].split_at_mut(self.options.len());
        options.copy_from_slice(self.options);
        padding.fill(0);
        let checksum = finish(pseudo_header + partial_sum(segment));
        put(segment, 16, checksum.to_be_bytes());
        Some(len)
    }
}
