//! IPv4 fragmentation (RFC 791 §3.2).

use std::ops::Range;

/// One fragment: a header to write in front of a range of the original packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    header: [u8; 60],
    header_len: u8,
    /// Bytes of the original packet, counted from the start of its IP header.
    pub payload: Range<usize>,
}

impl Fragment {
    /// The finished IPv4 header, 20 to 60 bytes.
    pub fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_len)]
    }
}

/// Iterator over the fragments of a packet, in order. It does not allocate.
#[derive(Clone, Debug)]
pub struct Fragmenter {
    mtu: usize,
}

impl Fragmenter {
    /// `packet` starts with the IPv4 header, options included; only the header is looked at, so a
    /// chain of cells need not be one slice. `mtu` is the most bytes of a fragment.
    ///
    /// `None` where the header is broken, DF is set, or `mtu` leaves no room for 8 bytes behind
    /// the header. A packet that fits comes out as one piece.
    pub fn new(packet: &[u8], mtu: u16) -> Option<Fragmenter> {
        let _ = (packet, mtu);
        todo!()
    }
}

impl Iterator for Fragmenter {
    type Item = Fragment;

    fn next(&mut self) -> Option<Fragment> {
        let _ = self.mtu;
        todo!()
    }
}
