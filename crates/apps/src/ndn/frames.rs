//! NDN packets in frames: found, and put into the frame of a face.

use std::net::IpAddr;

use chunk::{DropReason, Packet, Verdict};
use packet::checksum::{pseudo_header_v4, pseudo_header_v6};
use packet::ipv4::Ipv4Header;
use packet::ipv6::Ipv6Header;
use packet::ndn::{ETHERTYPE, LinkHeader, MULTICAST_MAC, UDP_PORT, emit_link};
use packet::udp::{UdpHeader, UdpView};
use packet::{Anomaly, Decoded, EtherType, IpProtocol, Kind, decode};

use super::tables::{Arrived, Face, UdpEnds};
use crate::router::decode::reason;

const ETHERNET_LEN: usize = 14;
const UDP_LEN: usize = 8;

/// Where the NDN packet of a frame begins, and by which face it came.
pub(super) fn find(packet: &Packet) -> Result<(usize, Arrived), DropReason> {
    let frame = packet.data();
    let Some((header, _)) = frame.split_first_chunk::<ETHERNET_LEN>() else {
        return Err(DropReason::Truncated);
    };
    if frame.len() < packet.frame_len() {
        return Err(DropReason::NdnTooLong);
    }
    if header[12..] == ETHERTYPE.0.to_be_bytes() {
        let [to, from] = [&header[..6], &header[6..12]];
        let group = to[0] & 1 == 1;
        let mut mac = MULTICAST_MAC.0;
        if !group {
            mac.copy_from_slice(from);
        }
        if group && to != mac {
            return Err(DropReason::NotForUs);
        }
        return Ok((ETHERNET_LEN, Arrived::Ethernet(packet.port, mac)));
    }
    let d = decode(frame, packet.frame_len());
    if d.anomaly != Anomaly::None {
        return Err(reason(d.anomaly));
    }
    if d.has(Decoded::FRAGMENT) {
        return Err(DropReason::NdnFragment);
    }
    let (Some(src), Some(dst), Some([src_port, dst_port])) = (d.src_ip(), d.dst_ip(), ports(&d))
    else {
        return Err(DropReason::EtherTypeUnknown);
    };
    let l4 = usize::from(d.l4_offset);
    let segment = frame.get(l4..d.l3_end().min(frame.len())).unwrap_or_default();
    let datagram = UdpView::new_checked(segment).ok_or(DropReason::Truncated)?;
    let pseudo_header = match (src, dst) {
        (IpAddr::V4(a), IpAddr::V4(b)) => pseudo_header_v4(a, b, IpProtocol::UDP, datagram.len()),
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            pseudo_header_v6(a, b, IpProtocol::UDP, datagram.len().into())
        }
        _ => return Err(DropReason::EtherTypeUnknown),
    };
    if !datagram.is_checksum_correct(pseudo_header) {
        return Err(DropReason::NdnMalformed);
    }
    let ends = UdpEnds { addresses: [dst, src], ports: [dst_port, src_port] };
    Ok((l4 + UDP_LEN, Arrived::Udp(packet.port, ends)))
}

fn ports(d: &Decoded) -> Option<[u16; 2]> {
    let is_udp = d.protocol == IpProtocol::UDP && matches!(d.kind, Kind::Ipv4 | Kind::Ipv6);
    let (src, dst) = d.ports().filter(|_| is_udp)?;
    (src == UDP_PORT || dst == UDP_PORT).then_some([src, dst])
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

fn try_wrap(packet: &mut Packet, face: &Face, link: &LinkHeader<'_>) -> Result<(), DropReason> {
    if !face.up {
        return Err(DropReason::TxPortDown);
    }
    let neighbour = face.neighbour_mac.ok_or(DropReason::NeighbourFailed)?;
    let fields = link_fields(link, packet.frame_len());
    let payload = fields.len() + packet.frame_len();
    let (ip_len, ethertype) = match face.udp.map(|ends| ends.addresses[0]) {
        None => (0, ETHERTYPE),
        Some(IpAddr::V4(_)) => (20 + UDP_LEN, EtherType::IPV4),
        Some(IpAddr::V6(_)) => (40 + UDP_LEN, EtherType::IPV6),
    };
    if ip_len + payload > usize::from(face.mtu) {
        return Err(DropReason::TooBig);
    }
    let header_len = ETHERNET_LEN + ip_len + fields.len();
    debug_assert!(header_len <= HEADER_MAX);
    if packet.data().len() != packet.frame_len() || !packet.push_front(header_len) {
        return Err(DropReason::NoCells);
    }
    let frame = packet.data_mut();
    frame[..6].copy_from_slice(&neighbour);
    frame[6..12].copy_from_slice(&face.mac);
    frame[12..14].copy_from_slice(&ethertype.0.to_be_bytes());
    frame[ETHERNET_LEN + ip_len..header_len].copy_from_slice(&fields);
    if let Some(ends) = face.udp {
        write_udp(&mut frame[ETHERNET_LEN..], &ends).ok_or(DropReason::TooBig)?;
    }
    Ok(())
}

/// IP and UDP headers in front of the payload that stands behind them.
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

/// What stands in front of a packet of `len` bytes in a link packet; nothing where there are no fields.
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
pub(super) fn strip(packet: &mut Packet, start: usize, len: usize) -> bool {
    packet.pull_front(start) && packet.truncate(len)
}
