//! Keep-alives of associations in UDP (RFC 3948 §4): an address translator between forgets a peer that sends nothing.
//!
//! ```text
//!  control, once a second: nothing sent to a peer for `keep_alive` seconds ─▶ injector ─▶ decode ─▶ esp_out: route ─▶ rewrite
//! ```
//!
//! Only associations of the configuration and of `ctl` have them: a key-exchange daemon sends its own. The datagram is built
//! here, with a link header of zeros, which no frame of Linux has; `esp_out` gives it the route to the peer.
//!
//! Threads: control's.

use std::collections::HashMap;
use std::net::IpAddr;

use ipsec::Association;
use packet::checksum::{finish, partial_sum, pseudo_header_v6};
use packet::ipv4::Ipv4Header;
use packet::ipv6::Ipv6Header;
use packet::{EtherType, IpProtocol};

use super::settings::HOP_LIMIT;

/// Bytes of an Ethernet header.
const ETHERNET_LEN: usize = 14;
/// UDP's header and one byte (RFC 3948 §2.3).
const DATAGRAM_LEN: usize = 9;

/// Where datagrams go from and to.
type Way = (IpAddr, IpAddr, u16);

/// What was sent to a peer.
#[derive(Debug)]
struct Sent {
    packets: u64,
    since_ns: u64,
}

/// When which peer was sent something.
#[derive(Debug, Default)]
pub(super) struct KeepAlives {
    peers: HashMap<Way, Sent>,
}

impl KeepAlives {
    /// The keep-alives that are due, with their sources: to peers of these associations to which nothing was sent for `every_ns`
    /// nanoseconds.
    pub(super) fn due<'a>(
        &mut self,
        all: impl Iterator<Item = &'a Association>,
        every_ns: u64,
        now_ns: u64,
    ) -> Vec<(IpAddr, Vec<u8>)> {
        let mut now: HashMap<Way, (u64, u16)> = HashMap::new();
        for own in all.filter(|own| own.sealer().is_some() && !own.has_ended()) {
            let parameters = own.parameters();
            let (Some(udp), (peer, Some(port))) = (parameters.udp, own.peer()) else { continue };
            let sums = now.entry((parameters.source, peer, port)).or_insert((0, udp.source));
            sums.0 += own.counts()[1];
        }
        self.peers.retain(|way, _| now.contains_key(way));
        let mut due = Vec::new();
        for (way, (packets, from)) in now {
            let sent = self.peers.entry(way).or_insert(Sent { packets, since_ns: now_ns });
            if sent.packets != packets {
                *sent = Sent { packets, since_ns: now_ns };
            } else if now_ns.saturating_sub(sent.since_ns) >= every_ns {
                sent.since_ns = now_ns;
                due.extend(frame(way, from).map(|frame| (way.0, frame)));
            }
        }
        due
    }
}

/// A keep-alive in a frame; `None`: its ends are of two families.
fn frame((source, peer, port): Way, from: u16) -> Option<Vec<u8>> {
    let mut datagram = [0; DATAGRAM_LEN];
    let fields = [from, port, DATAGRAM_LEN as u16, 0].map(u16::to_be_bytes);
    datagram[..8].copy_from_slice(fields.as_flattened());
    datagram[8] = 0xff;
    let mut header = [0; 40];
    let (len, kind) = match (source, peer) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let ttl = HOP_LIMIT;
            let ip = Ipv4Header { ttl, ..Ipv4Header::new(src, dst, IpProtocol::UDP) };
            (ip.emit(DATAGRAM_LEN, &mut header)?, EtherType::IPV4)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let hop_limit = HOP_LIMIT;
            let ip = Ipv6Header { hop_limit, ..Ipv6Header::new(src, dst, IpProtocol::UDP) };
            let pseudo = pseudo_header_v6(src, dst, IpProtocol::UDP, DATAGRAM_LEN as u32);
            let sum = match finish(pseudo + partial_sum(&datagram)) {
                0 => 0xffff, // 0 says that there is none
                other => other,
            };
            datagram[6..8].copy_from_slice(&sum.to_be_bytes());
            (ip.emit(DATAGRAM_LEN, &mut header)?, EtherType::IPV6)
        }
        _ => return None,
    };
    let mut frame = vec![0; ETHERNET_LEN - 2];
    frame.extend_from_slice(&kind.0.to_be_bytes());
    frame.extend_from_slice(&header[..len]);
    frame.extend_from_slice(&datagram);
    Some(frame)
}

/// Whether a frame is one that was built here.
pub(super) fn is_own(frame: &[u8]) -> bool {
    frame.first_chunk() == Some(&[0; ETHERNET_LEN - 2])
}

#[cfg(test)]
mod tests {
    use crypto::{Authentication, Encryption, Icv, Key, KeySize, Secret, Suite};
    use std::sync::Arc;

    use ipsec::{Database, Direction, Parameters, Udp};

    use super::*;

    /// What sends, and what receives.
    fn associations([us, peer]: [&str; 2]) -> [Arc<Association>; 2] {
        let cipher = Encryption::AesGcm(KeySize::Bits128, Icv::Bytes16);
        let suite = Suite::new(cipher, Authentication::None).unwrap();
        let mut database = Database::new();
        let all = [(Direction::Out, 256, us, peer), (Direction::In, 257, peer, us)];
        all.map(|(direction, spi, from, to)| {
            let key = Key::new(suite, &Secret::new(vec![spi as u8; 20]), &Secret::none()).unwrap();
            let ends = (from.parse().unwrap(), to.parse().unwrap());
            let udp = Some(Udp { source: 4500, destination: 4500 });
            let own = Parameters { udp, ..Parameters::new(direction, spi, ends, 1) };
            database.add(own, key, 0).unwrap()
        })
    }

    #[test]
    fn a_silent_peer_is_sent_a_byte_and_others_are_not() {
        const SECOND: u64 = 1_000_000_000;
        for ends in [["192.0.2.1", "198.51.100.1"], ["2001:db8::1", "2001:db8::2"]] {
            let [own, back] = associations(ends);
            let mut all = KeepAlives::default();
            let mut due =
                |now_s: u64| all.due([&*own, &*back].into_iter(), 20 * SECOND, now_s * SECOND);
            assert!(due(100).is_empty() && due(119).is_empty());
            let sent = due(120);
            assert_eq!(sent.len(), 1);
            let frame = &sent[0].1;
            assert!(is_own(frame));
            let d = packet::decode(frame, frame.len());
            assert_eq!(d.anomaly, packet::Anomaly::None);
            assert_eq!((d.src_ip(), d.ports()), (Some(sent[0].0), Some((4500, 4500))));
            assert_eq!(ipsec::inbound::found(frame, &d), ipsec::inbound::Found::KeepAlive);
            assert!(due(139).is_empty());
            // A packet is as good.
            own.count(100, 0).unwrap();
            assert!(due(140).is_empty() && due(159).is_empty());
            assert_eq!(due(160).len(), 1);
            // A peer that has moved is sent it where it is.
            let away = if ends[0].contains(':') { "2001:db8::9" } else { "203.0.113.9" };
            back.heard_from(1, ipsec::words(away.parse().unwrap()).1, 999).unwrap();
            assert!(due(170).is_empty());
            let sent = due(190);
            let d = packet::decode(&sent[0].1, sent[0].1.len());
            assert_eq!((d.dst_ip(), d.ports()), (Some(own.peer().0), Some((4500, 999))));
        }
    }
}
