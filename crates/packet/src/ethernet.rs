//! Ethernet II (IEEE 802.3): 14 bytes of destination, source and EtherType.

use crate::bytes::{array, be16, put};
use crate::{EtherType, MacAddr};

/// Bytes of the header without tags.
pub const HEADER_LEN: usize = 14;

/// A frame whose header is there.
#[derive(Clone, Copy, Debug)]
pub struct EthernetView<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> EthernetView<'a> {
    /// `None` below 14 bytes.
    pub fn new_checked(frame: &'a [u8]) -> Option<Self> {
        let (header, payload) = frame.split_first_chunk()?;
        Some(EthernetView { header, payload })
    }

    /// Destination.
    pub fn dst(&self) -> MacAddr {
        MacAddr(array(self.header, 0))
    }

    /// Source.
    pub fn src(&self) -> MacAddr {
        MacAddr(array(self.header, 6))
    }

    /// EtherType, that of a tag among them.
    pub fn ethertype(&self) -> EtherType {
        EtherType(be16(self.header, 12))
    }

    /// Everything behind the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A header to write, with up to two tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetHeader {
    /// Destination.
    pub dst: MacAddr,
    /// Source.
    pub src: MacAddr,
    /// Tag protocol and tag control information, outer tag first; a second without a first is
    /// written as the only one.
    pub tags: [Option<(EtherType, u16)>; 2],
    /// EtherType behind the tags.
    pub ethertype: EtherType,
}

impl EthernetHeader {
    /// Without tags.
    pub const fn new(dst: MacAddr, src: MacAddr, ethertype: EtherType) -> Self {
        EthernetHeader { dst, src, tags: [None, None], ethertype }
    }

    /// Bytes that [`EthernetHeader::emit`] writes: 14, 18 or 22.
    pub fn len(&self) -> usize {
        HEADER_LEN + 4 * self.tags.iter().flatten().count()
    }

    /// Never true; a header has bytes.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header at the start of `out`; returns its length, `None` where there is no room.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let len = self.len();
        let out = out.get_mut(..len)?;
        put(out, 0, self.dst.0);
        put(out, 6, self.src.0);
        let mut at = 12;
        for (tpid, tci) in self.tags.iter().flatten() {
            put(out, at, tpid.0.to_be_bytes());
            put(out, at + 2, tci.to_be_bytes());
            at += 4;
        }
        put(out, at, self.ethertype.0.to_be_bytes());
        Some(len)
    }
}

/// Overwrites both addresses of a frame: the adjacency's rewrite. Nothing below 12 bytes.
#[inline]
pub fn set_addresses(frame: &mut [u8], dst: MacAddr, src: MacAddr) {
    if let Some(header) = frame.first_chunk_mut::<12>() {
        put(header, 0, dst.0);
        put(header, 6, src.0);
    }
}
