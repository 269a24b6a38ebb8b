//! Asking the kernel for neighbours.

use std::net::IpAddr;

use netlink_packet_core::NLM_F_CREATE;
use netlink_packet_route::{
    AddressFamily,
    neighbour::{
        NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
    },
};

use crate::netlink::{Client, Error, emit, rtm};

/// Says that the neighbour `address` on an interface is in use, as if a packet had been sent to it: one that is not
/// known is asked for, one that was confirmed long ago is probed. The mirror reports the result.
///
/// # Errors
/// The kernel's: the interface is gone or down, the table is full.
pub fn use_neighbour(client: &mut Client, ifindex: u32, address: IpAddr) -> Result<(), Error> {
    let mut message = NeighbourMessage::default();
    message.header.ifindex = ifindex;
    message.header.state = NeighbourState::None;
    message.header.flags = NeighbourFlags::Use;
    let (family, destination) = match address {
        IpAddr::V4(v4) => (AddressFamily::Inet, NeighbourAddress::Inet(v4)),
        IpAddr::V6(v6) => (AddressFamily::Inet6, NeighbourAddress::Inet6(v6)),
    };
    message.header.family = family;
    message.attributes.push(NeighbourAttribute::Destination(destination));
    let what = format!("asking for neighbour {address} on interface {ifindex}");
    client.change(&what, rtm::NEWNEIGH, NLM_F_CREATE, &emit(&message))
}
