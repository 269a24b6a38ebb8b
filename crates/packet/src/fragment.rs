//! IPv4 fragmentation (RFC 791 §3.2), and that of IPv6 packets that were IPv4 ones (RFC 7915 §4).
//!
//! A packet that exceeds the next hop's MTU, and whose DF is clear, leaves as several. Each piece
//! but the last carries a multiple of 8 bytes; the first keeps all options, the others only those
//! with the copied flag; a packet that was a fragment already stays one, so its offset is added
//! and its MF lives on in the last piece.
//!
//! The iterator yields headers and ranges and copies no payload: the caller writes both into its
//! own cells. Pure: any thread.

use crate::bytes::be16;
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
    /// The finished header: 20 to 60 bytes of IPv4; 48 of IPv6, with the fragment header.
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

/// Bytes of an IPv6 header and a fragment header.
const HEADERS_V6: usize = 48;

/// Iterator over the fragments of an IPv6 packet that begins with a fragment header of the whole: offset 0, no more fragments
/// (an *atomic* fragment, RFC 6946). A translator writes one into a packet of IPv4 that may be fragmented (RFC 7915 §4.1);
/// packets of IPv6 are fragmented by nobody but their source (RFC 8200 §5). It does not allocate.
#[derive(Clone, Debug)]
pub struct Fragmenter6 {
    /// IPv6 header and fragment header of the original.
    template: [u8; HEADERS_V6],
    rest: Range<usize>,
    mtu: usize,
    is_done: bool,
}

impl Fragmenter6 {
    /// `packet` starts with the IPv6 header; only the headers are looked at. `mtu` is the most bytes of a fragment.
    ///
    /// A packet that fits comes out as it is. `None` where there is no such fragment header, or where `mtu` leaves no room for
    /// 8 bytes behind it.
    pub fn new(packet: &[u8], mtu: u16) -> Option<Self> {
        const FRAGMENT_HEADER: u8 = 44;
        let template: [u8; HEADERS_V6] = *packet.first_chunk()?;
        let end = 40 + usize::from(be16(&template, 4));
        let mtu = usize::from(mtu);
        let is_atomic = template[0] >> 4 == 6
            && template[6] == FRAGMENT_HEADER
            && be16(&template, 42) & 0xfff9 == 0;
        let has_room = end >= HEADERS_V6 && mtu >= HEADERS_V6 + 8;
        let rest = HEADERS_V6..end;
        (is_atomic && has_room).then_some(Self { template, rest, mtu, is_done: false })
    }
}

impl Iterator for Fragmenter6 {
    type Item = Fragment;

    fn next(&mut self) -> Option<Fragment> {
        if self.is_done {
            return None;
        }
        let available = self.mtu - HEADERS_V6;
        let is_last = self.rest.len() <= available;
        let len = if is_last { self.rest.len() } else { available & !7 };
        let payload = self.rest.start..self.rest.start + len;
        let mut header = [0; HEADER_LEN + OPTIONS_LEN_MAX];
        let own = &mut header[..HEADERS_V6];
        own.copy_from_slice(&self.template);
        // At most 65,535 bytes in all, so that both fit.
        own[4..6].copy_from_slice(&((8 + len) as u16).to_be_bytes());
        let offset = (payload.start - HEADERS_V6) as u16 | u16::from(!is_last);
        own[42..44].copy_from_slice(&offset.to_be_bytes());
        self.rest.start += len;
        self.is_done = is_last;
        Some(Fragment { header, header_len: HEADERS_V6 as u8, payload })
    }
}
