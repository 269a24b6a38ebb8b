//! Where the payload of a packet is, room for what a cipher adds, and headers that follow.
//!
//! ```text
//!              payload_at        end      frame_len
//!  │ headers        │ payload      │ trailer │              as it comes; trailer: padding of Ethernet, bytes behind a datagram
//!  │ headers  │ IV  │ payload      │ tail │ trailer │       with room: headers move to the front, the trailer to the back
//! ```
//!
//! Checksums are updated, not computed: a wrong one stays wrong by as much, and is what it was when the payload is again.

use chunk::{Packet, Pool};
use controlplane::module::is_right;
use packet::checksum::update_u16;
use packet::{Anomaly, Decoded, EtherType, IpProtocol, Kind};

/// Bytes behind the payload that can be moved.
pub(super) const TRAILER_MAX: usize = 1 << 16;

/// The payload of a TCP or UDP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Payload {
    /// Where it begins, in bytes from the start of the frame; at most 65,535.
    pub at: usize,
    /// Bytes of it, at least one.
    pub len: usize,
}

/// What a packet is for the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It has no payload of TCP or UDP.
    Nothing,
    /// It has this payload.
    Payload(Payload),
    /// A fragment of TCP or UDP, or of a protocol that is not known.
    Fragment,
    /// TCP or UDP may be behind headers that are not read.
    Encapsulated,
    /// A header or a length is wrong.
    Malformed,
}

/// The payload of a packet with the record `d`.
pub(super) fn find(packet: &Packet, d: &Decoded) -> Found {
    let is_tcp = d.protocol == IpProtocol::TCP;
    let (is_fragment, is_final) = (d.has(Decoded::FRAGMENT), !leads_on(d));
    match () {
        () if !d.is_ip() && hides_ip(packet) => return Found::Encapsulated,
        () if !d.is_ip() => return Found::Nothing,
        // A wrong header checksum stays wrong: whoever looks at it decides.
        () if !is_right(d) && d.anomaly != Anomaly::BadChecksum => return Found::Malformed,
        // The fragment header names what the first fragment begins with. If that is a header that names another protocol, later
        // fragments are the middle of that one, which may be TCP or UDP.
        () if !is_final && is_fragment => return Found::Fragment,
        () if !is_final => return Found::Encapsulated,
        () if !is_tcp && d.protocol != IpProtocol::UDP => return Found::Nothing,
        () if is_fragment => return Found::Fragment,
        () => {}
    }
    let (l4, l3_end) = (usize::from(d.l4_offset), d.l3_end());
    let header = packet.data().get(l4..).unwrap_or_default();
    let ends = match is_tcp {
        true => header.get(12).map(|byte| (4 * usize::from(byte >> 4), 20, l3_end)),
        false => be16(header, 4).map(|len| (8, 8, l4 + usize::from(len))),
    };
    let Some((header_len, least, end)) = ends else { return Found::Malformed };
    let at = l4 + header_len;
    let fits = header_len >= least && at <= end && end <= l3_end && l3_end <= packet.frame_len();
    if !fits || at > packet.data().len() || at > usize::from(u16::MAX) {
        return Found::Malformed;
    }
    match end - at {
        0 => Found::Nothing,
        len => Found::Payload(Payload { at, len }),
    }
}

/// Whether the protocol is a header that names another one behind it, at which decoding ended.
fn leads_on(d: &Decoded) -> bool {
    const SHIM6: IpProtocol = IpProtocol(140); // RFC 5533
    match d.kind {
        Kind::Ipv4 => d.protocol == IpProtocol::AH,
        _ => d.protocol.is_extension_header() || d.protocol == SHIM6,
    }
}

/// Whether a frame that decoding does not take for IP has an IP packet all the same: behind more tags than two, tags with numbers
/// from before the standard, or LLC and SNAP (RFC 1042).
fn hides_ip(packet: &Packet) -> bool {
    let frame = packet.data();
    let is_ip = |number: u16| [EtherType::IPV4, EtherType::IPV6].contains(&EtherType(number));
    let mut at = 12;
    while let Some(number) = be16(frame, at) {
        if EtherType(number).is_vlan() || matches!(number, 0x9200 | 0x9300) {
            at += 4;
            continue;
        }
        let snap = frame.get(at + 2..).and_then(|rest| rest.first_chunk::<8>());
        return match (number, snap) {
            (..=1500, Some([0xaa, 0xaa, 3, 0, 0, 0x00 | 0xf8, high, low])) => {
                is_ip(u16::from_be_bytes([*high, *low]))
            }
            _ => is_ip(number),
        };
    }
    // Tags up to the end of the first cell.
    frame.len() < packet.frame_len()
}

/// Makes room: `front` bytes before the payload and `tail` bytes behind it, whatever is in them. `false`: no cells are free, or
/// the trailer is too long; the packet is of no more use then.
pub(super) fn grow(
    packet: &mut Packet,
    pool: &mut Pool,
    payload: Payload,
    (front, tail): (usize, usize),
    scratch: &mut [u8],
) -> bool {
    let end = payload.at + payload.len;
    let grows = tail == 0
        || packet.grow_back(pool, tail) && {
            let trailer = packet.frame_len() - tail - end;
            move_bytes(packet, end, end + tail, trailer, scratch)
        };
    grows
        && (front == 0
            || packet.grow_front(pool, front) && {
                let moved = front + payload.at;
                let is_linear = packet.data().len() >= moved || packet.linearise(pool, moved);
                if is_linear {
                    packet.data_mut().copy_within(front..moved, 0);
                }
                is_linear
            })
}

/// Takes `front` bytes before the payload away, and what is behind the `len` bytes of it that follow them.
pub(super) fn shrink(
    packet: &mut Packet,
    pool: &mut Pool,
    payload: Payload,
    (front, len): (usize, usize),
    scratch: &mut [u8],
) -> bool {
    let (old_end, new_end) = (payload.at + payload.len, payload.at + front + len);
    let trailer = packet.frame_len() - old_end;
    let is_cut = old_end == new_end
        || move_bytes(packet, old_end, new_end, trailer, scratch)
            && packet.truncate(pool, new_end + trailer);
    is_cut
        && (front == 0 || {
            let moved = front + payload.at;
            let is_linear = packet.data().len() >= moved || packet.linearise(pool, moved);
            if is_linear {
                packet.data_mut().copy_within(0..payload.at, front);
            }
            is_linear && packet.shrink_front(pool, front)
        })
}

/// Moves bytes within a frame.
fn move_bytes(packet: &mut Packet, from: usize, to: usize, len: usize, scratch: &mut [u8]) -> bool {
    if len == 0 {
        return true;
    }
    let Some(bytes) = scratch.get_mut(..len) else { return false };
    packet.read_at(from, bytes) && packet.write_at(to, bytes)
}

/// The headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Headers {
    /// Where the IP header begins.
    pub l3: usize,
    /// Where that of TCP or UDP does.
    pub l4: usize,
    /// Which of them.
    pub protocol: IpProtocol,
}

impl Headers {
    /// Those of a packet with the record `d`.
    pub(super) fn of(d: &Decoded) -> Self {
        Self { l3: d.l3_offset.into(), l4: d.l4_offset.into(), protocol: d.protocol }
    }

    /// Lengths and checksums after the payload had `was` bytes with the sum `old`, and has `now` bytes with the sum `new`.
    pub(super) fn put_right(
        self,
        frame: &mut [u8],
        (was, old): (usize, u16),
        (now, new): (usize, u16),
    ) {
        let Self { l3, l4, protocol } = self;
        let kind = match frame.get(l3).map(|byte| byte >> 4) {
            Some(4) => Kind::Ipv4,
            _ => Kind::Ipv6,
        };
        let longer = (now as u16).wrapping_sub(was as u16);
        // Total length of IPv4, payload length of IPv6.
        let at = l3 + if kind == Kind::Ipv4 { 2 } else { 4 };
        let Some(ip_old) = be16(frame, at) else { return };
        let ip_new = ip_old.wrapping_add(longer);
        set(frame, at, ip_new);
        if kind == Kind::Ipv4
            && let Some(checksum) = be16(frame, l3 + 10)
        {
            set(frame, l3 + 10, update_u16(checksum, ip_old, ip_new));
        }
        let is_udp = protocol == IpProtocol::UDP;
        let field = l4 + if is_udp { 6 } else { 16 };
        let Some(mut checksum) = be16(frame, field) else { return };
        let has_checksum = !is_udp || checksum != 0;
        checksum = update_u16(checksum, old, new);
        // The length in the pseudo-header changes by as much as that of IP does.
        checksum = update_u16(checksum, was as u16, now as u16);
        if is_udp {
            let Some(len) = be16(frame, l4 + 4) else { return };
            set(frame, l4 + 4, len.wrapping_add(longer));
            checksum = update_u16(checksum, len, len.wrapping_add(longer));
            if checksum == 0 {
                checksum = 0xffff; // 0 means none (RFC 768)
            }
        }
        if has_checksum {
            set(frame, field, checksum);
        }
    }
}

pub(super) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

fn set(frame: &mut [u8], at: usize, value: u16) {
    if let Some(place) = frame.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}
