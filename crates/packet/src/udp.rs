//! UDP (RFC 768).

use crate::bytes::{be16, put};
use crate::checksum::{finish, partial_sum};

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;

/// A datagram whose header is there and whose length fits the bytes.
#[derive(Clone, Copy, Debug)]
pub struct UdpView<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> UdpView<'a> {
    /// `None` below 8 bytes and where the length field is below 8 or beyond the bytes.
    pub fn new_checked(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let payload = rest.get(..usize::from(be16(header, 4)).checked_sub(HEADER_LEN)?)?;
        Some(UdpView { header, payload })
    }

    /// Source port.
    pub fn src_port(&self) -> u16 {
        be16(self.header, 0)
    }

    /// Destination port.
    pub fn dst_port(&self) -> u16 {
        be16(self.header, 2)
    }

    /// Header and payload, bytes.
    pub fn len(&self) -> u16 {
        be16(self.header, 4)
    }

    /// No payload.
    pub fn is_empty(&self) -> bool {
        self.payload.is_empty()
    }

    /// As stored; 0 means none.
    pub fn checksum(&self) -> u16 {
        be16(self.header, 6)
    }

    /// Whether the datagram sums up with the pseudo header of
    /// [`crate::checksum::pseudo_header_v4`] or its IPv6 twin. A missing checksum is correct.
    pub fn is_checksum_correct(&self, pseudo_header: u32) -> bool {
        self.checksum() == 0
            || finish(pseudo_header + partial_sum(self.header) + partial_sum(self.payload)) == 0
    }

    /// What the length field covers.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A header to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpHeader {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
}

impl UdpHeader {
    /// Writes the header in front of a payload that already is behind it: `datagram` is all 8
    /// + payload bytes. `pseudo_header` is the partial sum of the pseudo header with the length
    ///   of `datagram`; `None` leaves the checksum out. Returns 8, or `None` for a datagram below
    ///   8 or above 65,535 bytes.
    pub fn emit(&self, pseudo_header: Option<u32>, datagram: &mut [u8]) -> Option<usize> {
        let len = u16::try_from(datagram.len()).ok()?;
        let header = datagram.get_mut(..HEADER_LEN)?;
        put(header, 0, self.src_port.to_be_bytes());
        put(header, 2, self.dst_port.to_be_bytes());
        put(header, 4, len.to_be_bytes());
        put(header, 6, [0, 0]);
        if let Some(pseudo_header) = pseudo_header {
            // 0 would mean no checksum; its one's complement twin means the same number.
            let checksum = match finish(pseudo_header + partial_sum(datagram)) {
                0 => 0xffff,
                checksum => checksum,
            };
            put(datagram, 6, checksum.to_be_bytes());
        }
        Some(HEADER_LEN)
    }
}
