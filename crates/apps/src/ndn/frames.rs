//! NDN packets in frames: found among others, and put into the frame of a face.

use std::net::IpAddr;

use chunk::{DropReason, Packet, Pool, Verdict};
use engine::MARK_FROM_HOST;
use packet::checksum::{Checksums, pseudo_header_v4, pseudo_header_v6};
use packet::ipv4::Ipv4Header;
use packet::ipv6::Ipv6Header;
use packet::ndn::{ETHERTYPE, LinkHeader, MULTICAST_MAC, UDP_PORT, emit_link};
use packet::udp::{UdpHeader, UdpView};
use packet::{Anomaly, Decoded, EtherType, IpProtocol, Kind};

use super::reasons;
use super::tables::{Arrived, Face, NdnPort, NdnTables, UdpEnds};
use crate::received;
use crate::router::decode::reason;

const ETHERNET_LEN: usize = 14;
const UDP_LEN: usize = 8;

/// Whom a frame came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    /// A face.
    Face(u16),
    /// Nobody who is known, where strangers are welcome.
    Stranger(UdpEnds),
}

/// Where the NDN packet of a frame begins, and whom it came from; else the frame's fate.
///
/// A datagram is the forwarder's where a face has its ends, or where it is for NDN's port and one of our addresses;
/// any other frame is Linux's, if the port has a twin.
pub(super) fn find(packet: &Packet, tables: &NdnTables) -> Result<(usize, Sender), Verdict> {
    let drop = |reason| Err(Verdict::drop(reason));
    let port = tables.port(packet.port);
    if packet.mark & MARK_FROM_HOST != 0 {
        return Err(from_host(packet, port));
    }
    let frame = packet.data();
    let Some((header, _)) = frame.split_first_chunk::<ETHERNET_LEN>() else {
        return drop(packet::reasons::TRUNCATED);
    };
    if port.is_some_and(|port| !port.up) {
        return drop(packet::reasons::INTERFACE_DOWN);
    }
    let [to, from] = [&header[..6], &header[6..12]];
    let group = to[0] & 1 == 1;
    if !group && port.is_some_and(|port| !port.any_mac && port.mac != to) {
        return drop(packet::reasons::NOT_FOR_US);
    }
    if header[12..] == ETHERTYPE.0.to_be_bytes() {
        if frame.len() < packet.frame_len() {
            return drop(reasons::NDN_TOO_LONG);
        }
        let mut mac = MULTICAST_MAC.0;
        if !group {
            mac.copy_from_slice(from);
        }
        if group && to != mac {
            return drop(packet::reasons::NOT_FOR_US);
        }
        let face = tables.arrived_by(&Arrived::Ethernet(packet.port, mac));
        let found = face.map(|face| (ETHERNET_LEN, Sender::Face(face)));
        return found.ok_or(Verdict::drop(reasons::NDN_NO_FACE));
    }
    let d = received::decode(packet);
    if d.vlan_count > 0 {
        return drop(packet::reasons::VLAN_UNKNOWN);
    }
    if let Some(ends) = ends_of(&d) {
        let face = tables.arrived_by(&Arrived::Udp(packet.port, ends));
        let is_for_ndn = match port.filter(|port| port.twin) {
            Some(port) => ends.ports[0] == UDP_PORT && port.addresses.contains(&ends.addresses[0]),
            None => ends.ports.contains(&UDP_PORT),
        };
        if face.is_some() || is_for_ndn {
            let at = payload(packet, &d, &ends).map_err(Verdict::drop)?;
            let is_welcome = |port: &NdnPort| {
                port.on_demand
                    && ends.ports[0] == UDP_PORT
                    && port.addresses.contains(&ends.addresses[0])
            };
            return match face {
                Some(face) => Ok((at, Sender::Face(face))),
                None if port.is_some_and(is_welcome) => Ok((at, Sender::Stranger(ends))),
                None => drop(reasons::NDN_NO_FACE),
            };
        }
    }
    match d.anomaly {
        Anomaly::None | Anomaly::NonIp if port.is_some_and(|port| port.twin) => {
            Err(Verdict::host(packet.port))
        }
        Anomaly::None => drop(packet::reasons::ETHERTYPE_UNKNOWN),
        anomaly => drop(reason(anomaly)),
    }
}

/// A frame that the twin of a port sent: out.
fn from_host(packet: &Packet, port: Option<&NdnPort>) -> Verdict {
    match port {
        None => Verdict::drop(chunk::reasons::TX_NO_PORT),
        Some(port) if !port.up => Verdict::drop(chunk::reasons::TX_PORT_DOWN),
        Some(_) if packet.data().len() < ETHERNET_LEN => Verdict::drop(packet::reasons::TRUNCATED),
        Some(_) => Verdict::forward(packet.port),
    }
}

/// The ends of a datagram, ours first, if nothing is wrong with its headers.
fn ends_of(d: &Decoded) -> Option<UdpEnds> {
    let is_udp = d.protocol == IpProtocol::UDP && matches!(d.kind, Kind::Ipv4 | Kind::Ipv6);
    let (src, dst) = d.ports().filter(|_| is_udp && d.anomaly == Anomaly::None)?;
    Some(UdpEnds { addresses: [d.dst_ip()?, d.src_ip()?], ports: [dst, src] })
}

/// Where the payload of a datagram begins whose checksum is right or ignored.
fn payload(packet: &Packet, d: &Decoded, ends: &UdpEnds) -> Result<usize, DropReason> {
    if d.has(Decoded::FRAGMENT) {
        return Err(reasons::NDN_FRAGMENT);
    }
    let frame = packet.data();
    if frame.len() < packet.frame_len() {
        return Err(reasons::NDN_TOO_LONG);
    }
    let l4 = usize::from(d.l4_offset);
    let segment = frame.get(l4..d.l3_end().min(frame.len())).unwrap_or_default();
    let datagram = UdpView::new_checked(segment).ok_or(packet::reasons::TRUNCATED)?;
    let pseudo_header = match ends.addresses {
        [IpAddr::V4(to), IpAddr::V4(from)] => {
            pseudo_header_v4(from, to, IpProtocol::UDP, datagram.len())
        }
        [IpAddr::V6(to), IpAddr::V6(from)] => {
            pseudo_header_v6(from, to, IpProtocol::UDP, datagram.len().into())
        }
        _ => return Err(packet::reasons::ETHERTYPE_UNKNOWN),
    };
    // Over IPv6 there is always one (RFC 8200 §8.1).
    let has_none = datagram.checksum() == 0 && ends.addresses[0].is_ipv6();
    let is_correct = !has_none && datagram.is_checksum_correct(pseudo_header);
    if !is_correct && received::checksums(packet) == Checksums::Verify {
        return Err(reasons::NDN_MALFORMED);
    }
    Ok(l4 + UDP_LEN)
}

/// Bytes of the longest header that is put in front: Ethernet, IPv6, UDP, and link fields with a token and a Nack.
const HEADER_MAX: usize = 14 + 40 + 8 + 64;

/// Puts the NDN packet that is all of `packet` into a frame of a face, with link fields; its verdict, or why it
/// cannot go there.
pub(super) fn wrap(packet: &mut Packet, face: &Face, link: &LinkHeader<'_>) -> Verdict {
    match try_wrap(packet, face, link) {
        Ok(()) => Verdict::forward(face.port),
        Err(reason) => Verdict::drop(reason),
    }
}

/// Whether a payload of `len` bytes may go to a face: the neighbour's MAC, and the bytes and type of the headers of
/// layer 3 and 4.
///
/// # Errors
/// Why it may not.
pub(super) fn fits(face: &Face, len: usize) -> Result<([u8; 6], usize, EtherType), DropReason> {
    if !face.up {
        return Err(chunk::reasons::TX_PORT_DOWN);
    }
    let neighbour = face.neighbour_mac.ok_or(packet::reasons::NEIGHBOUR_FAILED)?;
    let (ip_len, ethertype) = match face.udp.map(|ends| ends.addresses[0]) {
        None => (0, ETHERTYPE),
        Some(IpAddr::V4(_)) => (20 + UDP_LEN, EtherType::IPV4),
        Some(IpAddr::V6(_)) => (40 + UDP_LEN, EtherType::IPV6),
    };
    if ip_len + len > usize::from(face.mtu) {
        return Err(packet::reasons::TOO_BIG);
    }
    Ok((neighbour, ip_len, ethertype))
}

fn try_wrap(packet: &mut Packet, face: &Face, link: &LinkHeader<'_>) -> Result<(), DropReason> {
    let fields = link_fields(link, packet.frame_len());
    let (neighbour, ip_len, ethertype) = fits(face, fields.len() + packet.frame_len())?;
    let header_len = ETHERNET_LEN + ip_len + fields.len();
    debug_assert!(header_len <= HEADER_MAX);
    if packet.data().len() != packet.frame_len() || !packet.push_front(header_len) {
        return Err(chunk::reasons::NO_CELLS);
    }
    let frame = packet.data_mut();
    frame[..6].copy_from_slice(&neighbour);
    frame[6..12].copy_from_slice(&face.mac);
    frame[12..14].copy_from_slice(&ethertype.0.to_be_bytes());
    frame[ETHERNET_LEN + ip_len..header_len].copy_from_slice(&fields);
    if let Some(ends) = face.udp {
        write_udp(&mut frame[ETHERNET_LEN..], &ends).ok_or(packet::reasons::TOO_BIG)?;
    }
    Ok(())
}

/// IP and UDP headers in front of the payload that is behind them.
fn write_udp(ip: &mut [u8], ends: &UdpEnds) -> Option<()> {
    let udp = UdpHeader { src_port: ends.ports[0], dst_port: ends.ports[1] };
    match ends.addresses {
        [IpAddr::V4(src), IpAddr::V4(dst)] => {
            let len = ip.len().checked_sub(20)?;
            let header =
                Ipv4Header { dont_fragment: true, ..Ipv4Header::new(src, dst, IpProtocol::UDP) };
            header.emit(len, ip)?;
            let sum = pseudo_header_v4(src, dst, IpProtocol::UDP, len as u16);
            udp.emit(Some(sum), &mut ip[20..])?;
        }
        [IpAddr::V6(src), IpAddr::V6(dst)] => {
            let len = ip.len().checked_sub(40)?;
            Ipv6Header::new(src, dst, IpProtocol::UDP).emit(len, ip)?;
            let sum = pseudo_header_v6(src, dst, IpProtocol::UDP, len as u32);
            udp.emit(Some(sum), &mut ip[40..])?;
        }
        _ => return None,
    }
    Some(())
}

/// What is in front of a packet of `len` bytes in a link packet; nothing where there are no fields.
fn link_fields(link: &LinkHeader<'_>, len: usize) -> Vec<u8> {
    if *link == LinkHeader::default() {
        return Vec::new();
    }
    // The packet is left out here: only its length matters.
    let mut whole = Vec::with_capacity(len + 64);
    emit_link(link, &vec![0; len], &mut whole);
    whole.truncate(whole.len() - len);
    whole
}

/// Leaves of a frame the `len` bytes from `start`.
pub(super) fn strip(packet: &mut Packet, pool: &mut Pool, start: usize, len: usize) -> bool {
    packet.shrink_front(pool, start) && packet.truncate(pool, len)
}
