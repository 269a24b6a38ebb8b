//! What is around ESP in packets that are received.
//!
//! [`found`] says whether a packet is ESP, plain or in UDP; `crypto::esp` opens it; then [`inner`] is the packet of a tunnel, or
//! [`transport_back`] makes the packet of transport mode. Bytes that are wrong are a reason to drop, never more.

use crypto::esp::NO_NEXT_HEADER;
use packet::checksum::{finish, partial_sum, pseudo_header_v4, pseudo_header_v6, update_u16};
use packet::ipv4::fill_checksum;
use packet::{Decoded, IpProtocol, Kind};

use crate::association::Association;
use crate::outbound::{IPV4, IPV6, UDP_LEN};
use crate::parameters::{Mode, Parameters};

/// The port of ESP in UDP (RFC 3948).
pub const UDP_PORT: u16 = 4500;

/// What a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Something else: a message of IKE, which begins with four zero bytes on this port, among it.
    Other,
    /// ESP that begins with byte `at` of the frame, with this index. `port`: the source port of UDP around it.
    Esp {
        /// Where, from the first byte of what was decoded.
        at: usize,
        /// Security parameters index.
        spi: u32,
        /// The byte behind its check value.
        end: usize,
        /// In UDP: the source port.
        port: Option<u16>,
    },
    /// One byte that keeps a translator's session open (RFC 3948 §2.3).
    KeepAlive,
    /// A fragment of ESP, or of UDP to the port of ESP.
    Fragment,
    /// Too short for ESP.
    Short,
}

/// Whether [`found`] says [`Found::Other`] of a packet by its record alone, and no fragment of it is put together: most packets
/// of a router.
#[inline]
pub fn is_other(d: &Decoded) -> bool {
    match d.protocol {
        IpProtocol::ESP => false,
        IpProtocol::UDP => !d.has(Decoded::FRAGMENT) && !matches!(d.ports(), Some((_, UDP_PORT))),
        _ => true,
    }
}

/// What a packet is whose bytes are `frame`, at least its headers, and whose record is `d`.
#[inline]
pub fn found(frame: &[u8], d: &Decoded) -> Found {
    let is_fragment = d.has(Decoded::FRAGMENT);
    let l4 = usize::from(d.l4_offset);
    match d.protocol {
        IpProtocol::ESP if is_fragment => Found::Fragment,
        IpProtocol::ESP => esp(frame, l4, d.l3_end(), None),
        // A later fragment has no port: it is that of its datagram, which is somebody else's here.
        IpProtocol::UDP if is_fragment => {
            let port = frame.get(l4 + 2..).and_then(|rest| rest.first_chunk::<2>());
            let is_first = d.fragment_offset == 0;
            match port.map(|port| u16::from_be_bytes(*port)) {
                Some(UDP_PORT) if is_first => Found::Fragment,
                _ => Found::Other,
            }
        }
        IpProtocol::UDP => match d.ports() {
            Some((from, UDP_PORT)) => udp(frame, l4, d.l3_end(), from),
            _ => Found::Other,
        },
        _ => Found::Other,
    }
}

fn udp(frame: &[u8], l4: usize, l3_end: usize, port: u16) -> Found {
    let Some(len) = frame.get(l4 + 4..).and_then(|rest| rest.first_chunk::<2>()) else {
        return Found::Short;
    };
    let (at, end) = (l4 + UDP_LEN, l4 + usize::from(u16::from_be_bytes(*len)));
    if end < at || end > l3_end {
        return Found::Other; // whose length is wrong, it is no datagram of ours
    }
    match (end - at, frame.get(at)) {
        (1, Some(0xff)) => Found::KeepAlive,
        (..4, _) => Found::Other,
        _ => match frame.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
            Some([0, 0, 0, 0]) => Found::Other,
            _ => esp(frame, at, end, Some(port)),
        },
    }
}

#[inline]
fn esp(frame: &[u8], at: usize, end: usize, port: Option<u16>) -> Found {
    let header = frame.get(at..).and_then(|rest| rest.first_chunk::<8>());
    match header {
        Some([a, b, c, d, ..]) if end >= at + 8 => {
            Found::Esp { at, spi: u32::from_be_bytes([*a, *b, *c, *d]), end, port }
        }
        _ => Found::Short,
    }
}

/// Whether the packet came as the association says: in UDP or not.
#[inline]
pub fn is_encapsulated_right(own: &Association, port: Option<u16>) -> bool {
    own.parameters().udp.is_some() == port.is_some()
}

/// Why what was in a packet is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// It is for its looks only (RFC 4303 §2.6): nothing is wrong.
    Dummy,
    /// The inner packet is not of the protocol that ESP says, or longer than what was sealed.
    Inner,
    /// The outer header says that the way is congested, and the inner one that its sender does not know of that (RFC 6040
    /// §4.2).
    Congestion,
}

/// A packet out of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inner {
    /// Its bytes, from the start of the payload; TFC padding is behind.
    pub len: usize,
    /// 4 or 6.
    pub family: u8,
}

/// The packet at the front of an opened payload in tunnel mode. Its congestion mark becomes what RFC 6040 says; `outer` is that
/// of the outer header, 2 bits.
///
/// # Errors
/// Why there is none.
#[inline]
pub fn inner(
    own: &Association,
    payload: &mut [u8],
    next_header: u8,
    outer: u8,
) -> Result<Inner, Wrong> {
    let Parameters { ecn, .. } = own.parameters();
    let (len, family) = match (next_header, payload.first().map(|byte| byte >> 4)) {
        (NO_NEXT_HEADER, _) => return Err(Wrong::Dummy),
        (IPV4, Some(4)) => {
            let Some([a, _, b, c]) = payload.first_chunk::<4>() else { return Err(Wrong::Inner) };
            let header = usize::from(a & 0xf) * 4;
            let len = usize::from(u16::from_be_bytes([*b, *c]));
            if header < 20 || len < header {
                return Err(Wrong::Inner);
            }
            (len, 4)
        }
        (IPV6, Some(6)) => {
            let len =
                payload.get(4..6).map(|len| usize::from(u16::from_be_bytes([len[0], len[1]])));
            (len.ok_or(Wrong::Inner)? + 40, 6)
        }
        _ => return Err(Wrong::Inner),
    };
    if len > payload.len() {
        return Err(Wrong::Inner);
    }
    if *ecn {
        let class = match family {
            4 => payload[1],
            _ => payload[1] >> 4,
        };
        match combined(class & 3, outer) {
            None => return Err(Wrong::Congestion),
            Some(mark) if mark == class & 3 => {}
            Some(mark) if family == 4 => {
                // By what has changed: a wrong checksum stays wrong.
                let (old, sum) = (payload[1], u16::from_be_bytes([payload[10], payload[11]]));
                payload[1] = old & !3 | mark;
                let sum = update_u16(sum, old.into(), payload[1].into());
                payload[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            Some(mark) => payload[1] = payload[1] & 0xcf | mark << 4,
        }
    }
    Ok(Inner { len, family })
}

/// The mark of an inner header behind a tunnel (RFC 6040 §4.2, figure 4). `None`: the packet is dropped.
pub fn combined(inner: u8, outer: u8) -> Option<u8> {
    const NOT_ECT: u8 = 0;
    const ECT_1: u8 = 1;
    const ECT_0: u8 = 2;
    const CE: u8 = 3;
    match (inner, outer) {
        (NOT_ECT, CE) => None,
        (NOT_ECT, _) => Some(NOT_ECT),
        (_, CE) => Some(CE),
        (ECT_0, ECT_1) => Some(ECT_1),
        (mark, _) => Some(mark),
    }
}

/// What a packet of transport mode becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    /// Bytes of the headers in front of ESP, which stay.
    pub kept: usize,
    /// Bytes behind them that go: UDP, ESP's header and initialisation vector.
    pub gone: usize,
    /// Bytes of payload behind those.
    pub len: usize,
}

/// Writes lengths and protocol of the headers in front of an opened payload: `ip` begins with the IP header, `esp_at` is where
/// ESP begins in it, `payload` where the payload is from there.
///
/// # Errors
/// Why there is no packet.
pub fn transport_back(
    ip: &mut [u8],
    d: &Decoded,
    (esp_at, payload): (usize, std::ops::Range<usize>),
    next_header: u8,
    is_in_udp: bool,
) -> Result<Rest, Wrong> {
    if next_header == NO_NEXT_HEADER {
        return Err(Wrong::Dummy);
    }
    let kept = esp_at.checked_sub(if is_in_udp { UDP_LEN } else { 0 }).ok_or(Wrong::Inner)?;
    let len = kept + payload.len();
    let wrong = || Wrong::Inner;
    if d.kind == Kind::Ipv4 {
        let total = u16::try_from(len).map_err(|_| Wrong::Inner)?;
        let header = ip.get_mut(..kept).filter(|header| header.len() >= 20).ok_or_else(wrong)?;
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[9] = next_header;
        fill_checksum(header);
    } else {
        let behind =
            len.checked_sub(40).and_then(|len| u16::try_from(len).ok()).ok_or_else(wrong)?;
        let header = ip.get_mut(..kept).filter(|header| header.len() >= 40).ok_or_else(wrong)?;
        header[4..6].copy_from_slice(&behind.to_be_bytes());
        *protocol_before(header).ok_or_else(wrong)? = next_header;
    }
    Ok(Rest { kept, gone: esp_at - kept + payload.start, len: payload.len() })
}

/// Computes the checksum of the upper layer anew, over the addresses that a packet has now: a translator between has changed
/// those that its sender computed it over (RFC 3948 §3.1.2). `header` begins with the IP header, `segment` is all of the upper
/// layer, and `protocol` which one it is. The packet is genuine, so nothing else can have changed it. Protocols whose checksum
/// has no addresses, and UDP without one, stay as they are.
pub fn repair_checksum(header: &[u8], segment: &mut [u8], protocol: u8) {
    let at = match protocol {
        6 => 16,
        17 => 6,
        58 => 2,
        _ => return,
    };
    let is_v4 = header.first().is_some_and(|byte| byte >> 4 == 4);
    let protocol = IpProtocol(protocol);
    let address4 = |at: usize| header.get(at..).and_then(|rest| rest.first_chunk::<4>());
    let address6 = |at: usize| header.get(at..).and_then(|rest| rest.first_chunk::<16>());
    let pseudo = match (is_v4, address4(12).zip(address4(16)), address6(8).zip(address6(24))) {
        (true, ..) if protocol == IpProtocol(58) => return,
        (true, Some((src, dst)), _) => {
            let Ok(len) = u16::try_from(segment.len()) else { return };
            pseudo_header_v4((*src).into(), (*dst).into(), protocol, len)
        }
        (false, _, Some((src, dst))) => {
            let Ok(len) = u32::try_from(segment.len()) else { return };
            pseudo_header_v6((*src).into(), (*dst).into(), protocol, len)
        }
        _ => return,
    };
    let Some(field) = segment.get_mut(at..at + 2) else { return };
    let is_udp = protocol == IpProtocol::UDP;
    if is_udp && field == [0, 0] {
        return; // it has none
    }
    field.fill(0);
    let checksum = match finish(pseudo + partial_sum(segment)) {
        0 if is_udp => 0xffff, // 0 says that there is none
        other => other,
    };
    segment[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// The field that says what follows the last of the headers of an IPv6 packet, which are all of `header`.
fn protocol_before(header: &mut [u8]) -> Option<&mut u8> {
    let (mut at, mut field) = (40, 6);
    for _ in 0..=packet::decode::MAX_EXTENSION_HEADERS {
        if at == header.len() {
            return header.get_mut(field);
        }
        let kind = IpProtocol(*header.get(field)?);
        let units = usize::from(*header.get(at + 1)?);
        let len = match kind {
            IpProtocol::IPV6_FRAGMENT => 8,
            IpProtocol::AH => (units + 2) * 4,
            _ => (units + 1) * 8,
        };
        (field, at) = (at, at + len);
    }
    None
}

/// Whether an association is for tunnels.
pub fn is_tunnel(own: &Association) -> bool {
    own.parameters().mode == Mode::Tunnel
}
