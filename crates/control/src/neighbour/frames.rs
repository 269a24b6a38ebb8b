//! The frames that ask.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lookup::Address;
use lookup::fib::Interface;
use packet::arp::{self, ArpPacket};
use packet::ethernet::EthernetHeader;
use packet::ipv6::{link_local, solicited_node};
use packet::nd::NeighbourMessage;
use packet::{EtherType, MacAddr};

const FRAME_MAX: usize = 14 + 8 + 40 + 32;

/// Asks on `interface` who has `address`: all of the link, or `known` whether it is still there.
pub(super) fn question(
    interface: &Interface,
    address: IpAddr,
    known: Option<[u8; 6]>,
) -> Option<Vec<u8>> {
    let mut frame = vec![0; FRAME_MAX];
    let len = match address {
        IpAddr::V4(target) => arp_request(interface, target, known, &mut frame)?,
        IpAddr::V6(target) => solicitation(interface, target, known, &mut frame)?,
    };
    frame.truncate(len);
    Some(frame)
}

/// Says on `interface` that `address` is here: a gratuitous ARP request (RFC 5227 §3), by which neighbours forget whoever had
/// it before.
pub fn announcement(interface: &Interface, address: Ipv4Addr) -> Option<Vec<u8>> {
    let mut frame = vec![0; FRAME_MAX];
    let at = header(interface, MacAddr::BROADCAST, EtherType::ARP).emit(&mut frame)?;
    let own = ArpPacket::request(MacAddr(interface.mac), address, address);
    let len = own.emit(&mut frame[at..])?;
    frame.truncate(at + len);
    Some(frame)
}

fn arp_request(
    interface: &Interface,
    target: Ipv4Addr,
    known: Option<[u8; 6]>,
    frame: &mut [u8],
) -> Option<usize> {
    let own = &interface.addresses4;
    let near = own.iter().find(|(own, len)| own.common_len(target.to_bits()) >= *len);
    // Without an address of our own it is a probe (RFC 5227), which is answered all the same.
    let source = near.or(own.first()).map_or(Ipv4Addr::UNSPECIFIED, |own| own.0.to_ip());
    let dst = known.map_or(MacAddr::BROADCAST, MacAddr);
    let at = header(interface, dst, EtherType::ARP).emit(frame)?;
    let request = ArpPacket::request(MacAddr(interface.mac), source, target);
    let len = request.emit(&mut frame[at..])?;
    debug_assert_eq!(len, arp::PACKET_LEN);
    Some(at + len)
}

fn solicitation(
    interface: &Interface,
    target: Ipv6Addr,
    known: Option<[u8; 6]>,
    frame: &mut [u8],
) -> Option<usize> {
    let mac = MacAddr(interface.mac);
    let own = interface
        .addresses6
        .iter()
        .map(|([high, low], _)| Ipv6Addr::from_bits(u128::from(*high) << 64 | u128::from(*low)));
    // Link-local addresses do not change with the subnets, so routers are best known by them.
    let source = own.clone().find(Ipv6Addr::is_unicast_link_local).or(own.clone().next());
    let source = source.unwrap_or(link_local(mac));
    let (dst, dst_mac) = match known {
        Some(known) => (target, MacAddr(known)),
        None => {
            let group = solicited_node(target);
            (group, MacAddr::for_multicast(IpAddr::V6(group))?)
        }
    };
    let at = header(interface, dst_mac, EtherType::IPV6).emit(frame)?;
    let message = NeighbourMessage::Solicitation { target, source_mac: Some(mac) };
    Some(at + message.emit_packet(source, dst, &mut frame[at..])?)
}

fn header(interface: &Interface, dst: MacAddr, ethertype: EtherType) -> EthernetHeader {
    let mut header = EthernetHeader::new(dst, MacAddr(interface.mac), ethertype);
    for (tag, (tpid, vlan)) in header.tags.iter_mut().zip(&interface.tags) {
        *tag = Some((EtherType(*tpid), *vlan));
    }
    header
}
