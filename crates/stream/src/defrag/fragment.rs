//! One fragment as it comes in, and the header that the whole datagram gets.

use super::blocks::HEADER_ROOM;
use super::outcome::Reason;
use super::policy::Policy;
use packet::ipv6::Ipv6View;
use packet::{Anomaly, Decoded, IpProtocol, Kind};

/// Least bytes of a TCP segment in a first fragment: up to and with the flags, rounded up (RFC 1858 §3.2.1).
const TCP_FIRST_MIN: usize = 16;
/// Bytes of the IPv6 fixed header.
const IPV6_LEN: usize = packet::ipv6::HEADER_LEN;
/// Bytes of the IPv4 header without options.
const IPV4_LEN: usize = packet::ipv4::HEADER_LEN;

/// What the fragments of one datagram have in common (RFC 791 §3.2, RFC 8200 §4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatagramKey {
    /// Source, as [`Decoded`] has it: IPv6 as `[high, low]`, IPv4 as `[0, address]`.
    pub src: [u64; 2],
    /// Destination, likewise.
    pub dst: [u64; 2],
    /// Identification: 16 bits of IPv4, 32 bits of IPv6.
    pub identification: u32,
    /// Its VLANs.
    pub scope: u32,
    /// The tunnels that it is in, as [`packet::tunnel::Path::key`] has them; 0 for none.
    pub tunnels: (u16, u32),
    /// IPv4: upper-layer protocol (IANA). IPv6: 0, as fragments may name different next headers.
    pub protocol: u8,
    /// 4 or 6.
    pub family: u8,
}

impl DatagramKey {
    /// The key of a decoded IP packet; the scope is made of its VLAN identifiers.
    pub fn new(decoded: &Decoded, identification: u32) -> Self {
        let is_v6 = decoded.kind == Kind::Ipv6;
        let [outer, inner] = decoded.vlan_tci.map(|tci| u32::from(tci & 0xfff));
        Self {
            src: decoded.src,
            dst: decoded.dst,
            identification,
            scope: outer | inner << 16,
            tunnels: (0, 0),
            protocol: if is_v6 { 0 } else { decoded.protocol.0 },
            family: if is_v6 { 6 } else { 4 },
        }
    }

    pub(super) fn words(&self) -> [u32; 13] {
        let [a, b, c, d] = [self.src[0], self.src[1], self.dst[0], self.dst[1]];
        let high = |word: u64| (word >> 32) as u32;
        [
            high(a),
            a as u32,
            high(b),
            b as u32,
            high(c),
            c as u32,
            high(d),
            d as u32,
            self.identification,
            self.scope,
            self.tunnels.0.into(),
            self.tunnels.1,
            u32::from(self.protocol) << 8 | u32::from(self.family),
        ]
    }

    /// The address pair: the key without what distinguishes datagrams of one pair.
    pub(super) fn pair(&self) -> Self {
        Self { identification: 0, protocol: 0, ..*self }
    }
}

/// A fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// The datagram.
    pub key: DatagramKey,
    /// Fragment offset in bytes, a multiple of 8.
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
    /// The fragment's part of the datagram, behind the IPv4 header or the IPv6 fragment header.
    pub payload: &'a [u8],
    /// Everything in front of the part that is fragmented: link header, IPv4 header with options, or IPv6 header with
    /// extension headers, up to the fragment header and without it. At most [`HEADER_ROOM`] bytes. The datagram gets that of
    /// the first fragment with `offset` 0 to arrive, whichever bytes the policy favours.
    pub header: &'a [u8],
    /// Where the IP header starts in `header`.
    pub ip_at: usize,
    /// IPv6: where in `header` the next header field is that names the fragment header.
    pub next_header_at: usize,
    /// IPv6: the next header that the fragment header names.
    pub next_header: u8,
    /// Congestion experienced: then the whole datagram has it too (RFC 3168 §5.3).
    pub has_ce: bool,
    /// Policy of the datagram, if this is its first fragment to arrive; `None` for that of the configuration.
    pub policy: Option<Policy>,
}

impl<'a> Fragment<'a> {
    /// The fragment in a frame, all bytes of which are in `frame`; `None` if the frame is not a fragment. An IPv6 packet
    /// whose fragment header fragments nothing is one (RFC 6946).
    ///
    /// # Errors
    /// The reason for which a receiver discards this fragment alone.
    pub fn from_frame(decoded: &Decoded, frame: &'a [u8]) -> Result<Option<Fragment<'a>>, Reason> {
        let is_fragment = decoded.has(Decoded::FRAGMENT) || decoded.has(Decoded::FRAGMENT_HEADER);
        if !decoded.is_ip() || !is_fragment {
            return Ok(None);
        }
        match decoded.anomaly {
            Anomaly::None => {}
            Anomaly::ZeroLengthFragment => return Err(Reason::ZeroLength),
            Anomaly::OverlongFragment => return Err(Reason::TooLong),
            _ => return Err(Reason::Malformed),
        }
        let ip_at = usize::from(decoded.l3_offset);
        let ip = frame.get(ip_at..decoded.l3_end()).ok_or(Reason::Malformed)?;
        let fragment = match decoded.kind {
            Kind::Ipv4 => Self::from_ipv4(decoded, frame, ip),
            _ => Self::from_ipv6(decoded, frame, ip),
        };
        fragment.map(Some).ok_or(Reason::Malformed)
    }

    fn from_ipv4(decoded: &Decoded, frame: &'a [u8], ip: &'a [u8]) -> Option<Self> {
        let (ip_at, header_len) =
            (usize::from(decoded.l3_offset), usize::from(decoded.ip_header_len));
        let identification = u16::from_be_bytes([*ip.get(4)?, *ip.get(5)?]);
        Some(Fragment {
            key: DatagramKey::new(decoded, identification.into()),
            offset: decoded.fragment_offset,
            more: decoded.has(Decoded::MORE_FRAGMENTS),
            payload: ip.get(header_len..)?,
            header: frame.get(..ip_at + header_len)?,
            ip_at,
            next_header_at: 0,
            next_header: 0,
            has_ce: decoded.traffic_class & 3 == 3,
            policy: None,
        })
    }

    fn from_ipv6(decoded: &Decoded, frame: &'a [u8], ip: &'a [u8]) -> Option<Self> {
        let ip_at = usize::from(decoded.l3_offset);
        let (mut at, mut next_header_at) = (ip_at + IPV6_LEN, ip_at + 6);
        for extension in Ipv6View::new_checked(ip)?.extensions() {
            if let Some(fields) = extension.fragment() {
                let behind = at + extension.bytes.len();
                return Some(Fragment {
                    key: DatagramKey::new(decoded, fields.identification),
                    offset: fields.offset,
                    more: fields.more,
                    payload: ip.get(behind - ip_at..)?,
                    header: frame.get(..at)?,
                    ip_at,
                    next_header_at,
                    next_header: *extension.bytes.first()?,
                    has_ce: decoded.traffic_class & 3 == 3,
                    policy: None,
                });
            }
            next_header_at = at;
            at += extension.bytes.len();
        }
        None
    }

    /// Bytes of the datagram up to the end of this fragment.
    pub(super) fn end(&self) -> usize {
        usize::from(self.offset) + self.payload.len()
    }

    /// Whole by itself: first and last fragment in one.
    pub(super) fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// What is wrong with this fragment, whatever came before.
    pub(super) fn check(&self) -> Result<(), Reason> {
        if self.offset == 0 {
            self.check_header()?;
        }
        if self.payload.is_empty() && !self.is_atomic() {
            return Err(Reason::ZeroLength);
        }
        if !self.offset.is_multiple_of(8) || self.more && !self.payload.len().is_multiple_of(8) {
            return Err(Reason::Misaligned);
        }
        let ip_len = self.header.len().saturating_sub(self.ip_at);
        let counted = match self.key.family {
            6 => ip_len.saturating_sub(IPV6_LEN),
            _ => ip_len.max(IPV4_LEN),
        };
        if counted + self.end() > 65_535 { Err(Reason::TooLong) } else { Ok(()) }
    }

    fn check_header(&self) -> Result<(), Reason> {
        let ip = self.header.get(self.ip_at..).unwrap_or_default();
        let fits = match self.key.family {
            6 => {
                ip.len() >= IPV6_LEN
                    && (self.ip_at..self.header.len()).contains(&self.next_header_at)
            }
            _ => ip.len() >= IPV4_LEN && usize::from(ip[0] & 0xf) * 4 == ip.len(),
        };
        if fits && self.header.len() <= HEADER_ROOM { Ok(()) } else { Err(Reason::BadHeader) }
    }

    /// The header without a fragment header: its bytes in front of the result, and their number.
    pub(super) fn whole_header(&self) -> ([u8; HEADER_ROOM], usize) {
        let mut header = [0; HEADER_ROOM];
        let len = self.header.len().min(HEADER_ROOM);
        header[..len].copy_from_slice(&self.header[..len]);
        if let (6, Some(field)) = (self.key.family, header.get_mut(self.next_header_at)) {
            *field = self.next_header;
        }
        (header, len)
    }

    /// The upper-layer header is split: filters that read ports and flags of first fragments do not see all of it
    /// (IPv4 TCP: RFC 1858 §3.2; IPv6: RFC 7112 §5).
    pub(super) fn is_tiny(&self) -> bool {
        let is_tcp = self.key.protocol == IpProtocol::TCP.0;
        match (self.key.family, self.offset) {
            (6, 0) => self.more && !has_upper_layer_header(self.next_header, self.payload),
            (6, _) => false,
            (_, 0) => self.more && is_tcp && self.payload.len() < TCP_FIRST_MIN,
            (_, offset) => is_tcp && offset == 8,
        }
    }
}

/// Whether all extension headers behind the fragment header, and the fixed part of the upper-layer header, are in `bytes`.
fn has_upper_layer_header(next_header: u8, bytes: &[u8]) -> bool {
    let (mut next, mut rest) = (IpProtocol(next_header), bytes);
    // Each step takes 8 bytes at least.
    while next.is_extension_header() {
        let [following, len, ..] = *rest else { return false };
        let len = match next {
            IpProtocol::IPV6_FRAGMENT => 8,
            IpProtocol::AH => (usize::from(len) + 2) * 4,
            _ => (usize::from(len) + 1) * 8,
        };
        let Some(behind) = rest.get(len..) else { return false };
        (next, rest) = (IpProtocol(following), behind);
    }
    let len = match next {
        IpProtocol::TCP => 20,
        IpProtocol::DCCP | IpProtocol::SCTP => 12,
        IpProtocol::UDP | IpProtocol::UDP_LITE | IpProtocol::ESP => 8,
        IpProtocol::ICMPV6 | IpProtocol::GRE => 4,
        _ => 0,
    };
    rest.len() >= len
}

/// Makes the header of a whole datagram of that of its first fragment: lengths, no fragment fields, checksum. `frame` has the
/// datagram from its link header on, the IP header at `ip_at`. `None` if the packet exceeds 65,535 bytes (IPv6: of payload).
pub(super) fn finish_header(frame: &mut [u8], ip_at: usize, has_ce: bool) -> Option<()> {
    let ip = frame.get_mut(ip_at..)?;
    let len = ip.len();
    if *ip.first()? >> 4 == 6 {
        let payload_len = u16::try_from(len.checked_sub(IPV6_LEN)?).ok()?;
        ip.get_mut(4..6)?.copy_from_slice(&payload_len.to_be_bytes());
        if has_ce && ip[1] & 0x30 != 0 {
            ip[1] |= 0x30;
        }
        return Some(());
    }
    let total_len = u16::try_from(len).ok()?;
    let header = ip.first_chunk_mut::<IPV4_LEN>()?;
    [header[2], header[3]] = total_len.to_be_bytes();
    // DF and the reserved bit stay.
    (header[6], header[7]) = (header[6] & 0xc0, 0);
    if has_ce && header[1] & 3 != 0 {
        header[1] |= 3;
    }
    packet::ipv4::fill_checksum(ip);
    Some(())
}
