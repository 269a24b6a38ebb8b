//! ARP for IPv4 over Ethernet (RFC 826): 28 bytes.

use crate::MacAddr;
use crate::bytes::{array, be16, put};
use std::net::Ipv4Addr;

/// Bytes of an ARP packet.
pub const PACKET_LEN: usize = 28;

/// Hardware type Ethernet, protocol type IPv4, lengths 6 and 4.
const PREFIX: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// The operation field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArpOperation {
    /// 1
    Request,
    /// 2
    Reply,
    /// Any other.
    Other(u16),
}

impl ArpOperation {
    fn number(self) -> u16 {
        match self {
            ArpOperation::Request => 1,
            ArpOperation::Reply => 2,
            ArpOperation::Other(number) => number,
        }
    }
}

/// An ARP packet of Ethernet and IPv4.
#[derive(Clone, Copy, Debug)]
pub struct ArpView<'a> {
    packet: &'a [u8; PACKET_LEN],
}

impl<'a> ArpView<'a> {
    /// `None` below 28 bytes and for other address types or lengths.
    pub fn new_checked(bytes: &'a [u8]) -> Option<Self> {
        let packet = bytes.first_chunk()?;
        (array(packet, 0) == PREFIX).then_some(ArpView { packet })
    }

    /// What is asked or said.
    pub fn operation(&self) -> ArpOperation {
        match be16(self.packet, 6) {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            other => ArpOperation::Other(other),
        }
    }

    /// MAC of the sender.
    pub fn sender_mac(&self) -> MacAddr {
        MacAddr(array(self.packet, 8))
    }

    /// Address of the sender.
    pub fn sender_ip(&self) -> Ipv4Addr {
        array::<4, PACKET_LEN>(self.packet, 14).into()
    }

    /// MAC of the target; of no meaning in a request.
    pub fn target_mac(&self) -> MacAddr {
        MacAddr(array(self.packet, 18))
    }

    /// Address that is asked for.
    pub fn target_ip(&self) -> Ipv4Addr {
        array::<4, PACKET_LEN>(self.packet, 24).into()
    }

    /// All fields by value.
    pub fn header(&self) -> ArpPacket {
        ArpPacket {
            operation: self.operation(),
            sender_mac: self.sender_mac(),
            sender_ip: self.sender_ip(),
            target_mac: self.target_mac(),
            target_ip: self.target_ip(),
        }
    }
}

/// An ARP packet to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpPacket {
    /// What is asked or said.
    pub operation: ArpOperation,
    /// MAC of the sender.
    pub sender_mac: MacAddr,
    /// Address of the sender.
    pub sender_ip: Ipv4Addr,
    /// MAC of the target; zero in a request.
    pub target_mac: MacAddr,
    /// Address that is asked for.
    pub target_ip: Ipv4Addr,
}

impl ArpPacket {
    /// Who has `target_ip`? Sent to the broadcast MAC.
    pub const fn request(sender_mac: MacAddr, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> Self {
        ArpPacket {
            operation: ArpOperation::Request,
            sender_mac,
            sender_ip,
            target_mac: MacAddr::ZERO,
            target_ip,
        }
    }

    /// The answer to this request from `mac`, which has the address that was asked for.
    pub const fn reply(&self, mac: MacAddr) -> Self {
        ArpPacket {
            operation: ArpOperation::Reply,
            sender_mac: mac,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }

    /// Writes 28 bytes; returns their number, `None` where there is no room.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..PACKET_LEN)?;
        put(out, 0, PREFIX);
        put(out, 6, self.operation.number().to_be_bytes());
        put(out, 8, self.sender_mac.0);
        put(out, 14, self.sender_ip.octets());
        put(out, 18, self.target_mac.0);
        put(out, 24, self.target_ip.octets());
        Some(PACKET_LEN)
    }
}
