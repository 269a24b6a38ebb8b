//! IPv4 (RFC 791).

use crate::IpProtocol;
use crate::bytes::{array, be16, put};
use crate::checksum::{internet_checksum, partial_sum};
use std::net::Ipv4Addr;

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;
/// Most bytes of options.
pub const OPTIONS_LEN_MAX: usize = 40;

/// A packet whose header is there and whose lengths fit the bytes. The checksum is not verified.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4View<'a> {
    fixed: &'a [u8; HEADER_LEN],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Ipv4View<'a> {
    /// `None` where version, IHL or total length are wrong for `bytes`. Bytes behind the total
    /// length are padding and left out.
    pub fn new_checked(bytes: &'a [u8]) -> Option<Self> {
        let total_len = usize::from(be16(bytes.first_chunk::<HEADER_LEN>()?, 2));
        let view = Self::new_header_checked(bytes)?;
        let payload_len = total_len.checked_sub(view.header_len())?;
        Some(Ipv4View { payload: view.payload.get(..payload_len)?, ..view })
    }

    /// [`Ipv4View::new_checked`] for a packet that may be cut off behind its header, as ICMP
    /// errors quote it: the payload is whatever is there up to the total length.
    pub fn new_quoted(bytes: &'a [u8]) -> Option<Self> {
        let view = Self::new_header_checked(bytes)?;
        let payload_len = usize::from(view.total_len()).checked_sub(view.header_len())?;
        let payload = view.payload.get(..payload_len).unwrap_or(view.payload);
        Some(Ipv4View { payload, ..view })
    }

    fn new_header_checked(bytes: &'a [u8]) -> Option<Self> {
        let (fixed, rest) = bytes.split_first_chunk::<HEADER_LEN>()?;
        if fixed[0] >> 4 != 4 {
            return None;
        }
        let options_len = (usize::from(fixed[0] & 0xf) * 4).checked_sub(HEADER_LEN)?;
        let (options, payload) = rest.split_at_checked(options_len)?;
        Some(Ipv4View { fixed, options, payload })
    }

    /// Header with options, 20 to 60 bytes.
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Header and payload in bytes, as the header states it.
    pub fn total_len(&self) -> u16 {
        be16(self.fixed, 2)
    }

    /// Code point, 6 bits.
    pub fn dscp(&self) -> u8 {
        self.fixed[1] >> 2
    }

    /// Congestion notification, 2 bits.
    pub fn ecn(&self) -> u8 {
        self.fixed[1] & 3
    }

    /// Identification, common to the fragments of a datagram.
    pub fn identification(&self) -> u16 {
        be16(self.fixed, 4)
    }

    /// DF.
    pub fn dont_fragment(&self) -> bool {
        self.fixed[6] & 0x40 != 0
    }

    /// MF.
    pub fn more_fragments(&self) -> bool {
        self.fixed[6] & 0x20 != 0
    }

    /// In bytes.
    pub fn fragment_offset(&self) -> u16 {
        (be16(self.fixed, 6) & 0x1fff) << 3
    }

    /// Time to live.
    pub fn ttl(&self) -> u8 {
        self.fixed[8]
    }

    /// Upper layer.
    pub fn protocol(&self) -> IpProtocol {
        IpProtocol(self.fixed[9])
    }

    /// As stored.
    pub fn checksum(&self) -> u16 {
        be16(self.fixed, 10)
    }

    /// Whether the header sums up.
    pub fn is_checksum_correct(&self) -> bool {
        crate::checksum::finish(partial_sum(self.fixed) + partial_sum(self.options)) == 0
    }

    /// Source.
    pub fn src(&self) -> Ipv4Addr {
        array::<4, HEADER_LEN>(self.fixed, 12).into()
    }

    /// Destination.
    pub fn dst(&self) -> Ipv4Addr {
        array::<4, HEADER_LEN>(self.fixed, 16).into()
    }

    /// The options as bytes, padding included.
    pub fn options_bytes(&self) -> &'a [u8] {
        self.options
    }

    /// The options one by one, without padding.
    pub fn options(&self) -> Ipv4Options<'a> {
        Ipv4Options { rest: self.options }
    }

    /// Payload without padding.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Option<'a> {
    /// Type: copied flag, class, number.
    pub kind: u8,
    /// What follows the length byte; empty for no-operation.
    pub data: &'a [u8],
    /// Type, length and data as they stand.
    pub bytes: &'a [u8],
}

impl Ipv4Option<'_> {
    /// Loose source route.
    pub const LOOSE_SOURCE_ROUTE: u8 = 131;
    /// Strict source route.
    pub const STRICT_SOURCE_ROUTE: u8 = 137;
    /// Record route.
    pub const RECORD_ROUTE: u8 = 7;
    /// Timestamp.
    pub const TIMESTAMP: u8 = 68;
    /// Router alert (RFC 2113).
    pub const ROUTER_ALERT: u8 = 148;

    /// Whether every fragment carries it.
    pub fn is_copied(&self) -> bool {
        self.kind & 0x80 != 0
    }
}

/// Iterator over options. It ends at the end-of-list option, or at the first one whose length is
/// wrong: at most 40 steps.
#[derive(Clone, Debug)]
pub struct Ipv4Options<'a> {
    rest: &'a [u8],
}

impl<'a> Ipv4Options<'a> {
    /// Over option bytes that come without a header.
    pub fn new(bytes: &'a [u8]) -> Self {
        Ipv4Options { rest: bytes }
    }
}

impl<'a> Iterator for Ipv4Options<'a> {
    type Item = Ipv4Option<'a>;

    fn next(&mut self) -> Option<Ipv4Option<'a>> {
        let kind = *self.rest.first()?;
        let len = match kind {
            0 => return None,
            1 => 1,
            _ => usize::from(*self.rest.get(1)?),
        };
        let data_at = len.min(2);
        if kind != 1 && len < 2 {
            self.rest = &[];
            return None;
        }
        let Some((bytes, rest)) = self.rest.split_at_checked(len) else {
            self.rest = &[];
            return None;
        };
        self.rest = rest;
        Some(Ipv4Option { kind, data: &bytes[data_at..], bytes })
    }
}

/// A header to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Header<'a> {
    /// DSCP (6 bits) and ECN (2 bits).
    pub traffic_class: u8,
    /// Identification.
    pub identification: u16,
    /// DF.
    pub dont_fragment: bool,
    /// MF.
    pub more_fragments: bool,
    /// In bytes; the last three bits are dropped.
    pub fragment_offset: u16,
    /// Time to live.
    pub ttl: u8,
    /// Upper layer.
    pub protocol: IpProtocol,
    /// Source.
    pub src: Ipv4Addr,
    /// Destination.
    pub dst: Ipv4Addr,
    /// At most 40 bytes; padded with end-of-list to a multiple of 4.
    pub options: &'a [u8],
}

impl Ipv4Header<'static> {
    /// Without options, fragmentation and marking; TTL 64.
    pub const fn new(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol) -> Self {
        Ipv4Header {
            traffic_class: 0,
            identification: 0,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol,
            src,
            dst,
            options: &[],
        }
    }
}

impl Ipv4Header<'_> {
    /// Bytes that [`Ipv4Header::emit`] writes: 20 to 60.
    pub const fn len(&self) -> usize {
        HEADER_LEN + self.options.len().next_multiple_of(4)
    }

    /// Never true; a header has bytes.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header, checksum included, for `payload_len` bytes of payload; returns its
    /// length. `None` where `out` has no room, the options are too long or the packet would
    /// exceed 65,535 bytes.
    pub fn emit(&self, payload_len: usize, out: &mut [u8]) -> Option<usize> {
        let len = self.len();
        if self.options.len() > OPTIONS_LEN_MAX {
            return None;
        }
        let total_len = u16::try_from(payload_len.checked_add(len)?).ok()?;
        let out = out.get_mut(..len)?;
        let fragment = u16::from(self.dont_fragment) << 14
            | u16::from(self.more_fragments) << 13
            | self.fragment_offset >> 3;
        put(out, 0, [0x40 | (len / 4) as u8, self.traffic_class]);
        put(out, 2, total_len.to_be_bytes());
        put(out, 4, self.identification.to_be_bytes());
        put(out, 6, fragment.to_be_bytes());
        put(out, 8, [self.ttl, self.protocol.0, 0, 0]);
        put(out, 12, self.src.octets());
        put(out, 16, self.dst.octets());
        let (options, padding) = out[HEADER_LEN..].split_at_mut(self.options.len());
        options.copy_from_slice(self.options);
        padding.fill(0);
        fill_checksum(out);
        Some(len)
    }
}

/// Sets the differentiated services code point (RFC 2474, 6 bits) of a packet and updates its
/// checksum; ECN stays. Bytes too few for a header are left alone.
pub fn set_dscp_v4(packet: &mut [u8], dscp: u8) {
    let Some(h) = packet.first_chunk_mut::<HEADER_LEN>() else { return };
    let old = u16::from_be_bytes([h[0], h[1]]);
    h[1] = dscp << 2 | h[1] & 3;
    let new = u16::from_be_bytes([h[0], h[1]]);
    let checksum = u16::from_be_bytes([h[10], h[11]]);
    [h[10], h[11]] = crate::checksum::update_u16(checksum, old, new).to_be_bytes();
}

/// Recomputes the checksum of a whole header, options included; nothing where the bytes are no
/// header.
pub fn fill_checksum(packet: &mut [u8]) {
    let header_len = usize::from(packet.first().map_or(0, |byte| byte & 0xf)) * 4;
    if header_len < HEADER_LEN {
        return;
    }
    if let Some(header) = packet.get_mut(..header_len) {
        put(header, 10, [0, 0]);
        let checksum = internet_checksum(header);
        put(header, 10, checksum.to_be_bytes());
    }
}
