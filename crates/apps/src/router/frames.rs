//! The link layer: headers in front of IP packets, tags on and off.

use chunk::Packet;
use lookup::fib::{Adjacency, Fib};
use packet::{EtherType, MacAddr};

/// Bytes of an Ethernet header without tags.
pub(super) const ETHERNET_LEN: usize = 14;

/// A finished link header and where it leads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    header: [u8; 22],
    len: u8,
    /// The interface whose link it is.
    pub(super) interface: u16,
    /// Physical port.
    pub(super) port: u16,
    /// Largest IP packet, bytes.
    pub(super) mtu: u16,
}

impl Link {
    /// To `dst` on the link of interface `index`; `None` if there is none of that number.
    pub(super) fn new(fib: &Fib, index: u16, dst: MacAddr, ethertype: EtherType) -> Option<Self> {
        let interface = fib.interface(index)?;
        let mut header = [0; 22];
        header[..6].copy_from_slice(&dst.0);
        header[6..12].copy_from_slice(&interface.mac);
        let mut at = 12;
        for &(tpid, id) in interface.tags.iter().take(2) {
            header[at..at + 2].copy_from_slice(&tpid.to_be_bytes());
            header[at + 2..at + 4].copy_from_slice(&id.to_be_bytes());
            at += 4;
        }
        header[at..at + 2].copy_from_slice(&ethertype.0.to_be_bytes());
        let (port, mtu) = (interface.port, interface.mtu);
        Some(Link { header, len: at as u8 + 2, interface: index, port, mtu })
    }

    /// The rewrite of a resolved adjacency, with the packet's own EtherType: an IPv4 route may
    /// have an IPv6 next hop (RFC 8950). `None` for a record that holds no header.
    #[inline]
    pub(super) fn of(adjacency: &Adjacency, ethertype: EtherType) -> Option<Self> {
        let len = usize::from(adjacency.rewrite_len);
        let mut header = adjacency.rewrite;
        header.get_mut(len.checked_sub(2)?..len)?.copy_from_slice(&ethertype.0.to_be_bytes());
        let (len, interface) = (adjacency.rewrite_len, adjacency.interface);
        Some(Link { header, len, interface, port: adjacency.tx_port, mtu: adjacency.mtu })
    }

    /// Whether frames have tags there.
    #[inline]
    pub(super) fn is_tagged(&self) -> bool {
        usize::from(self.len) > ETHERNET_LEN
    }

    /// The header: 14, 18 or 22 bytes.
    #[inline]
    pub(super) fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.len)]
    }
}

/// Replaces the first `l3` bytes of the frame by `header`. `false`, and nothing changed, where
/// there is no room in front.
#[inline]
pub(super) fn replace_link_header(packet: &mut Packet, l3: usize, header: &[u8]) -> bool {
    let fits = if header.len() >= l3 {
        packet.push_front(header.len() - l3)
    } else {
        packet.pull_front(l3 - header.len())
    };
    if let (true, Some(front)) = (fits, packet.data_mut().get_mut(..header.len())) {
        front.copy_from_slice(header);
        return true;
    }
    false
}

/// Puts tags (TPID, VLAN identifier; outer first) behind the addresses of a frame.
pub(crate) fn push_tags(packet: &mut Packet, tags: &[(u16, u16)]) -> bool {
    let len = 4 * tags.len();
    if packet.data().len() < ETHERNET_LEN || !packet.push_front(len) {
        return false;
    }
    let data = packet.data_mut();
    data.copy_within(len..len + 12, 0);
    for (tag, bytes) in tags.iter().zip(data[12..].chunks_exact_mut(4)) {
        bytes[..2].copy_from_slice(&tag.0.to_be_bytes());
        bytes[2..].copy_from_slice(&tag.1.to_be_bytes());
    }
    true
}

/// Takes the tags off a frame whose payload starts at `l3`: the host gets frames as they would be
/// on the interface itself.
pub(crate) fn strip_tags(packet: &mut Packet, l3: usize) {
    let len = l3.saturating_sub(ETHERNET_LEN);
    if len > 0 && packet.data().len() >= l3 {
        packet.data_mut().copy_within(..12, len);
        packet.pull_front(len);
    }
}

/// The source address of a frame.
pub(super) fn source_mac(frame: &[u8]) -> MacAddr {
    MacAddr(frame.get(6..12).and_then(|mac| mac.first_chunk().copied()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunk::{HugePages, Pool, Region};

    #[test]
    fn tags_come_off_as_they_went_on() {
        let (_, depot) = Region::new(2, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot, 1);
        let bytes: Vec<u8> = (0..64).collect();
        for tags in [&[][..], &[(0x8100, 7)], &[(0x88a8, 100), (0x8100, 200)]] {
            let mut packet = Packet::copy_from(&mut pool, &bytes).unwrap();
            assert!(push_tags(&mut packet, tags));
            assert_eq!(packet.data()[..12], bytes[..12]);
            assert_eq!(packet.data()[12 + 4 * tags.len()..], bytes[12..]);
            if let Some(&(tpid, id)) = tags.first() {
                let written: [u8; 4] = packet.data()[12..16].try_into().unwrap();
                assert_eq!(u32::from_be_bytes(written), u32::from(tpid) << 16 | u32::from(id));
            }
            strip_tags(&mut packet, 14 + 4 * tags.len());
            assert_eq!(packet.data(), bytes);
            packet.free(&mut pool);
        }
    }
}
