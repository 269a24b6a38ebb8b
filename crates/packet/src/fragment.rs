//! IPv4 fragmentation (RFC 791 §3.2).
//!
//! A packet that exceeds the next hop's MTU, and whose DF is clear, leaves as several. Each piece
//! but the last carries a multiple of 8 bytes; the first keeps all options, the others only those
//! with the copied flag; a packet that was a fragment already stays one, so its offset is added
//! and its MF lives on in the last piece.
//!
//! The iterator yields headers and ranges and copies no payload: the caller writes both into its
//! own cells. Pure: any thread.

use crate::ipv4::{HEADER_LEN, Ipv4Header, Ipv4View, OPTIONS_LEN_MAX};
use std::ops::Range;

/// One fragment: a header to write in front of a range of the original packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    header: [u8; HEADER_LEN + OPTIONS_LEN_MAX],
    header_len: u8,
    /// Bytes of the original packet, counted from the start of its IP header.
    pub payload: Range<usize>,
}

impl Fragment {
    /// The finished IPv4 header, 20 to 60 bytes.
    pub fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_len)]
    }

    /// Header and payload in bytes, at most the MTU.
    pub fn total_len(&self) -> usize {
        usize::from(self.header_len) + self.payload.len()
    }
}

/// Option bytes held by value.
#[derive(Clone, Debug)]
struct Options {
    bytes: [u8; OPTIONS_LEN_MAX],
    len: usize,
}

impl Options {
    const EMPTY: Options = Options { bytes: [0; OPTIONS_LEN_MAX], len: 0 };

    /// Appends; all options of one header fit.
    fn push(&mut self, bytes: &[u8]) {
        if let Some(available) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            available.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Header with these options, padded to a multiple of 4.
    fn header_len(&self) -> usize {
        HEADER_LEN + self.len.next_multiple_of(4)
    }
}

/// Iterator over the fragments of a packet, in order. It does not allocate.
#[derive(Clone, Debug)]
pub struct Fragmenter {
    /// What all pieces share; its fragment fields are those of the original.
    template: Ipv4Header<'static>,
    /// Of the next piece.
    options: Options,
    /// Of all pieces but the first.
    copied: Options,
    /// Where the payload starts in the original.
    start: usize,
    /// What is left of it.
    rest: Range<usize>,
    mtu: usize,
    is_done: bool,
}

impl Fragmenter {
    /// `packet` starts with the IPv4 header, options included; only the header is looked at, so a
    /// chain of cells need not be one slice. `mtu` is the most bytes of a fragment.
    ///
    /// A packet that fits comes out as one piece. `None` where the header is broken, or where the
    /// packet does not fit and DF is set or `mtu` leaves no room for 8 bytes behind the header.
    pub fn new(packet: &[u8], mtu: u16) -> Option<Fragmenter> {
        let view = Ipv4View::new_quoted(packet)?;
        let mtu = usize::from(mtu);
        let total_len = usize::from(view.total_len());
        let fits = total_len <= mtu;
        if !fits && (view.dont_fragment() || mtu < view.header_len() + 8) {
            return None;
        }
        let mut options = Options::EMPTY;
        options.push(view.options_bytes());
        let mut copied = Options::EMPTY;
        for option in view.options().filter(|option| option.is_copied()) {
            copied.push(option.bytes);
        }
        let template = Ipv4Header {
            traffic_class: view.dscp() << 2 | view.ecn(),
            identification: view.identification(),
            dont_fragment: view.dont_fragment(),
            more_fragments: view.more_fragments(),
            fragment_offset: view.fragment_offset(),
            ttl: view.ttl(),
            protocol: view.protocol(),
            src: view.src(),
            dst: view.dst(),
            options: &[],
        };
        let start = view.header_len();
        Some(Fragmenter {
            template,
            options,
            copied,
            start,
            rest: start..total_len,
            mtu,
            is_done: false,
        })
    }
}

impl Iterator for Fragmenter {
    type Item = Fragment;

    fn next(&mut self) -> Option<Fragment> {
        if self.is_done {
            return None;
        }
        let available = self.mtu.saturating_sub(self.options.header_len());
        let is_last = self.rest.len() <= available;
        let len = if is_last { self.rest.len() } else { available & !7 };
        let payload = self.rest.start..self.rest.start + len;
        let done = payload.start - self.start;
        let mut header = [0; HEADER_LEN + OPTIONS_LEN_MAX];
        let header_len = Ipv4Header {
            more_fragments: !is_last || self.template.more_fragments,
            // An overlong original wraps here as it would at its own source.
            fragment_offset: self.template.fragment_offset.wrapping_add(done as u16),
            options: self.options.as_slice(),
            ..self.template
        }
        .emit(len, &mut header)?;
        self.rest.start += len;
        self.is_done = is_last;
        self.options = self.copied.clone();
        Some(Fragment { header, header_len: header_len as u8, payload })
    }
}
