//! The plain twin of the router: one packet at a time, one list of routes, no cleverness.
//!
//! Written from the RFCs over bytes and `Vec`s, without the decoder, the tables and the builders of
//! packets that the real one uses. It says which frames must come out; where the standards leave
//! a choice (what an ICMP error carries beyond the minimum, which of several faults is named) it
//! takes the same one as the router. A packet to an equal-cost group has several right outcomes.
//!
//! Rate limits and waiting are left out: errors are always sent, and a packet to an unknown
//! neighbour is [`Fate::Held`].

mod bytes;

use std::net::IpAddr;

use chunk::DropReason;
use lookup::fib::{Interface, Options, Path, ReversePath, RouteTarget};
use packet::MacAddr;

use bytes::{
    FIRST_CELL, OptionFault, be16, be32, dropped, extensions, fragments, has_fragment_header,
    header, ip_address, lower_ttl, options_fault, packet4, packet6, sum, sum6, tag_bytes,
};

use super::reasons;

/// What becomes of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// This frame leaves by this port.
    Forward(u16, Vec<u8>),
    /// This frame goes to the twin of this interface.
    Host(u16, Vec<u8>),
    /// Dropped.
    Drop(DropReason),
    /// Left as fragments, which are among the emitted.
    Fragmented,
    /// Waits for a neighbour.
    Held,
}

/// What becomes of a packet, and the frames that are made because of it: (port, frame).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Of the packet itself.
    pub fate: Fate,
    /// In order.
    pub emitted: Vec<(u16, Vec<u8>)>,
}

/// The router's configuration, as lists.
#[derive(Debug, Clone, Default)]
pub struct Reference {
    /// By index, ports first.
    pub interfaces: Vec<Option<Interface>>,
    /// (address, length, target); each prefix once. IPv4 addresses are in the low 32 bits.
    pub routes4: Vec<(u128, u8, RouteTarget)>,
    /// The same for IPv6.
    pub routes6: Vec<(u128, u8, RouteTarget)>,
    /// Known neighbours.
    pub neighbours: Vec<(u16, IpAddr, [u8; 6])>,
    /// Options; rates are not looked at.
    pub options: Options,
}

/// An IP packet with what is known of it.
struct Ip<'a> {
    v4: bool,
    /// From the IP header to the end of the packet; padding is not in it.
    bytes: &'a [u8],
    /// The same with whatever follows in the frame.
    padded: &'a [u8],
    src: u128,
    dst: u128,
    header_len: usize,
    protocol: u8,
    /// Offset and more-fragments of a fragment.
    fragment: Option<(usize, bool)>,
}

impl Ip<'_> {
    fn ttl(&self) -> u8 {
        self.bytes[if self.v4 { 8 } else { 7 }]
    }

    /// Type of an ICMP message of the packet's family, where it can be read.
    fn icmp_type(&self) -> Option<u8> {
        let icmp = if self.v4 { 1 } else { 58 };
        let first = self.fragment.is_none_or(|(offset, _)| offset == 0);
        if self.protocol == icmp && first { self.bytes.get(self.header_len).copied() } else { None }
    }

    fn is_multicast(&self) -> bool {
        if self.v4 { self.dst >> 28 == 0xe } else { self.dst >> 120 == 0xff }
    }
}

type Refused<T> = Result<T, DropReason>;

impl Reference {
    /// All right outcomes of a frame that `port` received; `from_host`: that the twin of interface
    /// `port` sent.
    pub fn outcomes(&self, port: u16, frame: &[u8], from_host: bool) -> Vec<Outcome> {
        let done = |fate| vec![Outcome { fate, emitted: Vec::new() }];
        if from_host {
            return done(match self.interface(port) {
                None => Fate::Drop(chunk::reasons::TX_NO_PORT),
                Some(i) if !i.up => Fate::Drop(chunk::reasons::TX_PORT_DOWN),
                Some(_) if frame.len() < 14 => Fate::Drop(packet::reasons::TRUNCATED),
                Some(i) => {
                    let mut out = frame[..12].to_vec();
                    out.extend(tag_bytes(i));
                    out.extend(&frame[12..]);
                    Fate::Forward(i.port, out)
                }
            });
        }
        match self.received(port, frame) {
            Ok(outcomes) => outcomes,
            Err(reason) => done(Fate::Drop(reason)),
        }
    }

    fn interface(&self, index: u16) -> Option<&Interface> {
        self.interfaces.get(usize::from(index))?.as_ref()
    }

    fn received(&self, port: u16, frame: &[u8]) -> Refused<Vec<Outcome>> {
        if frame.len() < 14 {
            return Err(packet::reasons::TRUNCATED);
        }
        let (mut at, mut tags) = (12, Vec::new());
        while matches!(be16(frame, at), 0x8100 | 0x88a8 | 0x9100) {
            if tags.len() == 2 {
                return Err(packet::reasons::VLAN_TOO_MANY);
            }
            if frame.len() < at + 6 {
                return Err(packet::reasons::VLAN_TRUNCATED);
            }
            tags.push(be16(frame, at + 2) & 0xfff);
            at += 4;
        }
        let (ethertype, l3) = (be16(frame, at), at + 2);
        let (index, interface) = self.classify(port, &tags)?;
        if frame[6] & 1 != 0 {
            return Err(packet::reasons::SOURCE_MAC_GROUP);
        }
        let group = frame[0] & 1 != 0;
        if !group && frame[..6] != interface.mac && !interface.any_mac {
            return Err(packet::reasons::NOT_FOR_US);
        }
        let here = Here { index, interface, frame, l3, group };
        match ethertype {
            0x0806 => self.arp(&here),
            0x0800 => self.ipv4(&here),
            0x86dd => self.ipv6(&here),
            _ if interface.twin => Ok(here.to_host()),
            _ => Err(packet::reasons::ETHERTYPE_UNKNOWN),
        }
    }

    /// The interface that a frame with these VLAN identifiers belongs to; 0 is not a VLAN.
    fn classify(&self, port: u16, tags: &[u16]) -> Refused<(u16, &Interface)> {
        let tagged: Vec<u16> = match tags {
            [0, inner] => vec![*inner],
            _ => tags.to_vec(),
        };
        let plain = tagged.iter().all(|&id| id == 0);
        let missing = if tags.is_empty() {
            packet::reasons::INTERFACE_DOWN
        } else {
            packet::reasons::VLAN_UNKNOWN
        };
        let found = (0u16..).zip(&self.interfaces).find(|(index, interface)| {
            interface.as_ref().is_some_and(|i| {
                let ids: Vec<u16> = i.tags.iter().map(|tag| tag.1).collect();
                let padded = |ids: &[u16]| {
                    [ids.first().copied().unwrap_or(0), ids.get(1).copied().unwrap_or(0)]
                };
                if plain {
                    *index == port
                } else {
                    i.port == port && !ids.is_empty() && padded(&ids) == padded(&tagged)
                }
            })
        });
        let (index, interface) = found.ok_or(missing)?;
        let interface = interface.as_ref().ok_or(missing)?;
        if interface.up { Ok((index, interface)) } else { Err(packet::reasons::INTERFACE_DOWN) }
    }

    /// RFC 826, RFC 5227.
    fn arp(&self, here: &Here<'_>) -> Refused<Vec<Outcome>> {
        let arp = &here.frame[here.l3..];
        if arp.len() < 8 {
            return Err(packet::reasons::TRUNCATED);
        }
        if arp[..6] != [0, 1, 8, 0, 6, 4] {
            return Err(packet::reasons::ARP_MALFORMED);
        }
        if arp.len() < 28 {
            return Err(packet::reasons::TRUNCATED);
        }
        let (mac, ip, target) = (&arp[8..14], be32(arp, 14), be32(arp, 24));
        let bad_ip = ip >> 28 == 0xe || ip == u32::MAX;
        if mac[0] & 1 != 0 || mac == [0; 6] || bad_ip {
            return Err(packet::reasons::ARP_MALFORMED);
        }
        if here.interface.twin {
            return Ok(here.to_host());
        }
        let operation = be16(arp, 6);
        let ours = here.interface.addresses4.iter().any(|own| own.0 == target);
        if operation == 2 {
            return Err(reasons::CONSUMED);
        }
        if !ours {
            return Err(reasons::NOT_MINE);
        }
        let mut emitted = Vec::new();
        if operation == 1 {
            let mut reply = header(here.interface, mac, 0x0806);
            reply.extend([0, 1, 8, 0, 6, 4, 0, 2]);
            reply.extend(here.interface.mac);
            reply.extend(&arp[24..28]);
            reply.extend(&arp[8..18]);
            emitted.push((here.interface.port, reply));
        }
        Ok(vec![Outcome { fate: Fate::Drop(reasons::CONSUMED), emitted }])
    }

    /// RFC 1812 §5.2.2, §5.3.
    fn ipv4(&self, here: &Here<'_>) -> Refused<Vec<Outcome>> {
        let bytes = &here.frame[here.l3..];
        if bytes.len() < 20 {
            return Err(packet::reasons::TRUNCATED);
        }
        let (header_len, total) = (usize::from(bytes[0] & 15) * 4, usize::from(be16(bytes, 2)));
        let (src, dst) = (be32(bytes, 12), be32(bytes, 16));
        let (src_top, dst_top) = (src >> 24, dst >> 24);
        if bytes[0] >> 4 != 4 {
            return Err(packet::reasons::IP_BAD_VERSION);
        }
        if header_len < 20 {
            return Err(packet::reasons::IP_BAD_HEADER_LENGTH);
        }
        if header_len > bytes.len() {
            return Err(packet::reasons::TRUNCATED);
        }
        if total < header_len {
            return Err(packet::reasons::IP_BAD_TOTAL_LENGTH);
        }
        if total > bytes.len() {
            return Err(packet::reasons::TRUNCATED);
        }
        if sum(&bytes[..header_len]) != 0xffff {
            return Err(packet::reasons::IP_BAD_CHECKSUM);
        }
        let to_group = dst >> 28 == 0xe || dst == u32::MAX;
        if (src == 0 && !to_group) || (src != 0 && src_top == 0) || src_top == 127 || src_top >= 224
        {
            return Err(packet::reasons::IP_MARTIAN_SOURCE);
        }
        if dst_top == 0 || dst_top == 127 || (dst_top >= 240 && dst != u32::MAX) {
            return Err(packet::reasons::IP_MARTIAN_DESTINATION);
        }
        let (offset, more) = (usize::from(be16(bytes, 6) & 0x1fff) * 8, bytes[6] & 0x20 != 0);
        let fragment = (offset > 0 || more).then_some((offset, more));
        if fragment.is_some() && total == header_len {
            return Err(packet::reasons::IP_ZERO_LENGTH_FRAGMENT);
        }
        if fragment.is_some() && offset + total - header_len > 65_535 {
            return Err(packet::reasons::IP_OVERLONG_FRAGMENT);
        }
        if dst == u32::MAX {
            return here.to_host_if_any();
        }
        if dst >> 28 == 0xe {
            return match dst >> 8 {
                0xe00000 => here.to_host_if_any(),
                _ => Err(reasons::MULTICAST_NOT_FORWARDED),
            };
        }
        if here.group {
            let broadcast = here.interface.addresses4.iter().any(|&(own, len)| {
                len < 31 && own >> (32 - len) == dst >> (32 - len) && dst << len == u32::MAX << len
            });
            if broadcast {
                return here.to_host_if_any();
            }
            return Err(reasons::BROADCAST_NOT_FORWARDED);
        }
        let ip = Ip {
            v4: true,
            bytes: &bytes[..total],
            padded: bytes,
            src: src.into(),
            dst: dst.into(),
            header_len,
            protocol: bytes[9],
            fragment,
        };
        match options_fault(&bytes[20..header_len]) {
            None => {}
            Some(OptionFault::SourceRoute) => return Err(reasons::SOURCE_ROUTE),
            Some(OptionFault::Malformed(at)) => {
                let pointer = u32::from(20 + at as u8) << 24;
                let errors = self.icmp_error(here, &ip, 12, 0, pointer);
                return Ok(dropped(packet::reasons::IP_BAD_OPTIONS, errors));
            }
        }
        let near = src >> 16 == 0xa9fe || dst >> 16 == 0xa9fe;
        self.routed(here, &ip, near)
    }

    /// RFC 8200, RFC 4291.
    fn ipv6(&self, here: &Here<'_>) -> Refused<Vec<Outcome>> {
        let bytes = &here.frame[here.l3..];
        if bytes.len() < 40 {
            return Err(packet::reasons::TRUNCATED);
        }
        if bytes[0] >> 4 != 6 {
            return Err(packet::reasons::IP_BAD_VERSION);
        }
        let total = 40 + usize::from(be16(bytes, 4));
        if total > bytes.len() {
            return Err(packet::reasons::TRUNCATED);
        }
        let bytes_whole = &bytes[..total];
        let available = FIRST_CELL - here.l3;
        let (protocol, header_len, fragment, fragment_header) = extensions(bytes_whole, available)?;
        let address =
            |at: usize| u128::from_be_bytes(bytes[at..at + 16].try_into().unwrap_or_default());
        let (src, dst) = (address(8), address(24));
        let multicast = dst >> 120 == 0xff;
        if src >> 120 == 0xff || src == 1 || (src == 0 && !multicast) {
            return Err(packet::reasons::IP_MARTIAN_SOURCE);
        }
        let scope = dst >> 112 & 0xf;
        if dst <= 1 || (multicast && scope <= 1) {
            return Err(packet::reasons::IP_MARTIAN_DESTINATION);
        }
        if fragment.is_some() && total == header_len {
            return Err(packet::reasons::IP_ZERO_LENGTH_FRAGMENT);
        }
        if fragment.is_some_and(|(offset, _)| offset + total - header_len > 65_535) {
            return Err(packet::reasons::IP_OVERLONG_FRAGMENT);
        }
        let ip = Ip {
            v4: false,
            bytes: bytes_whole,
            padded: bytes,
            src,
            dst,
            header_len,
            protocol,
            fragment,
        };
        let mapped = |address: u128| address >> 32 == 0xffff;
        if mapped(src) {
            return Err(packet::reasons::IP_MARTIAN_SOURCE);
        }
        if mapped(dst) {
            return Err(packet::reasons::IP_MARTIAN_DESTINATION);
        }
        let link_local = |address: u128| address >> 118 == 0x3fa;
        if multicast && scope != 2 {
            return Err(reasons::MULTICAST_NOT_FORWARDED);
        }
        if !multicast && here.group {
            return Err(reasons::BROADCAST_NOT_FORWARDED);
        }
        let own = here.owns6(dst);
        let to_link = multicast || link_local(dst);
        let l4_len = total - header_len;
        let nd = ip.icmp_type().filter(|kind| (133..=137).contains(kind) && l4_len >= 4);
        if let Some(kind) = nd
            && bytes[7] == 255
            && (to_link || own)
        {
            return self.neighbour_discovery(here, &ip, kind, fragment_header);
        }
        if to_link && here.interface.twin {
            return Ok(here.to_host());
        }
        if to_link && own {
            return Ok(self.local(here, &ip));
        }
        if to_link {
            return Err(if multicast {
                chunk::reasons::HOST_ABSENT
            } else {
                reasons::LINK_LOCAL_NOT_FORWARDED
            });
        }
        self.routed(here, &ip, link_local(src))
    }

    /// RFC 4861 §7.1.
    fn neighbour_discovery(
        &self,
        here: &Here<'_>,
        ip: &Ip<'_>,
        kind: u8,
        fragment_header: bool,
    ) -> Refused<Vec<Outcome>> {
        let message = &ip.bytes[ip.header_len..];
        let fixed = match kind {
            133 => 8,
            134 => 16,
            _ => 24,
        };
        if fragment_header || message.len() < 8 || sum6(ip.src, ip.dst, 58, message) != 0xffff {
            return Err(packet::reasons::ND_MALFORMED);
        }
        if kind == 137 {
            return here.to_host_if_any();
        }
        if message[1] != 0 || message.len() < fixed {
            return Err(packet::reasons::ND_MALFORMED);
        }
        let mut at = fixed;
        let mut source_mac = None;
        while at < message.len() {
            let len = message.get(at + 1).map_or(0, |&units| usize::from(units) * 8);
            if len == 0 || at + len > message.len() {
                return Err(packet::reasons::ND_MALFORMED);
            }
            if message[at] == 1 && source_mac.is_none() {
                source_mac = Some(message[at + 2..at + 8].to_vec());
            }
            at += len;
        }
        let target = &message[8..fixed.max(8)];
        if matches!(kind, 135 | 136) && target[0] == 0xff {
            return Err(packet::reasons::ND_MALFORMED);
        }
        if here.interface.twin {
            return Ok(here.to_host());
        }
        match kind {
            135 => {
                let own = here.owns6(u128::from_be_bytes(target.try_into().unwrap_or_default()));
                if !own {
                    return Err(reasons::NOT_MINE);
                }
                let probe = ip.src == 0;
                let all_nodes = 0xff02 << 112 | 1;
                let to = if probe { all_nodes } else { ip.src };
                let mac = if probe {
                    vec![0x33, 0x33, 0, 0, 0, 1]
                } else {
                    source_mac.unwrap_or_else(|| here.frame[6..12].to_vec())
                };
                let mut advertisement =
                    vec![136, 0, 0, 0, if probe { 0xa0 } else { 0xe0 }, 0, 0, 0];
                advertisement.extend(target);
                advertisement.extend([2, 1]);
                advertisement.extend(here.interface.mac);
                let own = u128::from_be_bytes(target.try_into().unwrap_or_default());
                let mut frame = header(here.interface, &mac, 0x86dd);
                frame.extend(packet6(own, to, 58, 255, advertisement));
                let emitted = vec![(here.interface.port, frame)];
                Ok(vec![Outcome { fate: Fate::Drop(reasons::CONSUMED), emitted }])
            }
            136 => Err(reasons::CONSUMED),
            _ => Err(chunk::reasons::HOST_ABSENT),
        }
    }

    /// The longest prefix that holds `address`.
    fn look_up(&self, v4: bool, address: u128) -> Option<&RouteTarget> {
        let (routes, width) = if v4 { (&self.routes4, 32) } else { (&self.routes6, 128) };
        let inside = |&&(prefix, len, _): &&(u128, u8, RouteTarget)| {
            let shift = width - u32::from(len);
            shift == 128 || address >> shift == prefix >> shift
        };
        routes.iter().filter(inside).max_by_key(|route| route.1).map(|route| &route.2)
    }

    /// RFC 1812 §5.2.1.2 and on: a unicast packet that may be for us or for another host.
    fn routed(&self, here: &Here<'_>, ip: &Ip<'_>, near: bool) -> Refused<Vec<Outcome>> {
        if self.is_own(ip) {
            return Err(reasons::OWN_SOURCE);
        }
        self.reverse_path(here, ip, near)?;
        let target = self.look_up(ip.v4, ip.dst);
        if target == Some(&RouteTarget::Blackhole) {
            return Err(kernels::reasons::BLACKHOLE);
        }
        if let Some(RouteTarget::Local(_)) = target {
            return Ok(self.local(here, ip));
        }
        let refuse = |reason, kind: u8, code: u8, word: u32| {
            Ok(dropped(reason, self.icmp_error(here, ip, kind, code, word)))
        };
        if near && ip.v4 {
            return Err(reasons::LINK_LOCAL_NOT_FORWARDED);
        }
        if near {
            return refuse(reasons::LINK_LOCAL_NOT_FORWARDED, 1, 2, 0);
        }
        let paths = match target {
            Some(RouteTarget::Broadcast(index)) if *index == here.index => {
                return here.to_host_if_any();
            }
            Some(RouteTarget::Broadcast(_)) => return Err(reasons::BROADCAST_NOT_FORWARDED),
            Some(RouteTarget::Unreachable) if ip.v4 => {
                return refuse(kernels::reasons::UNREACHABLE, 3, 1, 0);
            }
            Some(RouteTarget::Unreachable) => {
                return refuse(kernels::reasons::UNREACHABLE, 1, 3, 0);
            }
            Some(RouteTarget::Paths(paths)) if !paths.is_empty() => paths,
            _ if ip.v4 => return refuse(kernels::reasons::NO_ROUTE, 3, 0, 0),
            _ => return refuse(kernels::reasons::NO_ROUTE, 1, 0, 0),
        };
        if ip.ttl() <= 1 {
            return refuse(reasons::TTL_EXPIRED, if ip.v4 { 11 } else { 3 }, 0, 0);
        }
        Ok(paths.iter().flat_map(|path| self.send(here, ip, path)).collect())
    }

    /// Whether a packet says that it comes from the router. Link-local addresses may be those of another link.
    fn is_own(&self, ip: &Ip<'_>) -> bool {
        let wide = |[high, low]: [u64; 2]| u128::from(high) << 64 | u128::from(low);
        self.interfaces.iter().flatten().any(|own| match ip.v4 {
            true => ip.src >> 16 != 0xa9fe && own.addresses4.iter().any(|a| ip.src == a.0.into()),
            false => ip.src >> 118 != 0x3fa && own.addresses6.iter().any(|a| ip.src == wide(a.0)),
        })
    }

    /// RFC 3704.
    fn reverse_path(&self, here: &Here<'_>, ip: &Ip<'_>, near: bool) -> Refused<()> {
        let mode = here.interface.reverse_path;
        if mode == ReversePath::Off || near {
            return Ok(());
        }
        match self.look_up(ip.v4, ip.src) {
            Some(RouteTarget::Paths(paths)) if !paths.is_empty() => {
                let strict = paths.iter().any(|path| path.interface == here.index);
                if mode == ReversePath::Loose || strict {
                    return Ok(());
                }
                Err(kernels::reasons::REVERSE_PATH)
            }
            _ => Err(kernels::reasons::REVERSE_PATH),
        }
    }

    /// Interface and MAC of the next hop, if known.
    fn neighbour(&self, path: &Path, dst: IpAddr) -> Option<[u8; 6]> {
        let address = path.gateway.unwrap_or(dst);
        let known = self.neighbours.iter().find(|n| n.0 == path.interface && n.1 == address);
        match known {
            Some(neighbour) => Some(neighbour.2),
            None if self.options.derive_neighbours => Some(MacAddr::for_ip(address).0),
            None => None,
        }
    }

    fn send(&self, here: &Here<'_>, ip: &Ip<'_>, path: &Path) -> Vec<Outcome> {
        let plain = |fate| vec![Outcome { fate, emitted: Vec::new() }];
        let Some(out) = self.interface(path.interface) else {
            return plain(Fate::Drop(kernels::reasons::BAD_LOOKUP));
        };
        let Some(mac) = self.neighbour(path, ip_address(ip.v4, ip.dst)) else {
            return plain(Fate::Held);
        };
        let link = header(out, &mac, if ip.v4 { 0x0800 } else { 0x86dd });
        let mtu = usize::from(out.mtu);
        if ip.bytes.len() > mtu {
            let may_fragment = ip.v4 && self.options.fragment && ip.bytes[6] & 0x40 == 0;
            if may_fragment && let Some(pieces) = fragments(&lower_ttl(ip), ip.header_len, mtu) {
                let frame = |piece: Vec<u8>| (out.port, [&link[..], &piece].concat());
                let emitted = pieces.into_iter().map(frame).collect();
                return vec![Outcome { fate: Fate::Fragmented, emitted }];
            }
            let (reason, kind, code) = match ip.v4 {
                true => (reasons::FRAGMENTATION_NEEDED, 3, 4),
                false => (packet::reasons::TOO_BIG, 2, 0),
            };
            return dropped(reason, self.icmp_error(here, ip, kind, code, u32::from(out.mtu)));
        }
        let mut packet = lower_ttl(ip);
        if ip.padded.len() <= mtu {
            packet.extend(&ip.padded[ip.bytes.len()..]); // padding goes along where it fits
        }
        plain(Fate::Forward(out.port, [&link[..], &packet].concat()))
    }

    /// A packet to an address of ours.
    fn local(&self, here: &Here<'_>, ip: &Ip<'_>) -> Vec<Outcome> {
        if here.interface.twin {
            return here.to_host();
        }
        let absent = dropped(chunk::reasons::HOST_ABSENT, vec![Vec::new()]);
        let message = &ip.bytes[ip.header_len..];
        let (request, reply) = if ip.v4 { (8, 0) } else { (128, 129) };
        // A fragment header that fragments nothing is still not answered.
        let whole = ip.fragment.is_none() && (ip.v4 || !has_fragment_header(ip));
        if ip.icmp_type() != Some(request) || !whole || message.len() < 8 || message[1] != 0 {
            return absent;
        }
        let correct = if ip.v4 { sum(message) } else { sum6(ip.src, ip.dst, 58, message) };
        if correct != 0xffff {
            return absent;
        }
        let mut answer = message.to_vec();
        answer[0] = reply;
        answer[2..4].fill(0);
        let packet = if ip.v4 {
            let checksum = !sum(&answer);
            answer[2..4].copy_from_slice(&checksum.to_be_bytes());
            let tos = ip.bytes[1] & 0xfc;
            packet4(ip.dst, ip.src, tos, be16(ip.bytes, 4), 0, self.options.ttl, answer)
        } else {
            packet6(ip.dst, ip.src, 58, self.options.ttl, answer)
        };
        let by = |(port, link, mtu): (u16, Vec<u8>, usize)| {
            if ip.bytes.len() > mtu {
                return absent.clone();
            }
            let emitted = vec![(port, [&link[..], &packet].concat())];
            dropped(reasons::CONSUMED, vec![emitted])
        };
        let ways = self.ways_back(here, ip);
        if ways.is_empty() { absent } else { ways.into_iter().flat_map(by).collect() }
    }

    /// Port, link header and MTU towards the source of `ip`; several for a group.
    fn ways_back(&self, here: &Here<'_>, ip: &Ip<'_>) -> Vec<(u16, Vec<u8>, usize)> {
        let ethertype = if ip.v4 { 0x0800 } else { 0x86dd };
        let straight = || {
            let i = here.interface;
            Some((i.port, header(i, &here.frame[6..12], ethertype), usize::from(i.mtu)))
        };
        if !ip.v4 && ip.src >> 118 == 0x3fa {
            return straight().into_iter().collect();
        }
        let Some(RouteTarget::Paths(paths)) = self.look_up(ip.v4, ip.src) else {
            return Vec::new();
        };
        let by = |path: &Path| {
            let out = self.interface(path.interface)?;
            match self.neighbour(path, ip_address(ip.v4, ip.src)) {
                Some(mac) => Some((out.port, header(out, &mac, ethertype), usize::from(out.mtu))),
                None => straight(),
            }
        };
        paths.iter().filter_map(by).collect()
    }

    /// RFC 1812 §4.3.2, RFC 4443 §2.4: the error about `ip`, where one may be sent; one for each
    /// way that it may take.
    fn icmp_error(
        &self,
        here: &Here<'_>,
        ip: &Ip<'_>,
        kind: u8,
        code: u8,
        word: u32,
    ) -> Vec<Vec<(u16, Vec<u8>)>> {
        let none = vec![Vec::new()];
        let icmp = if ip.v4 { 1 } else { 58 };
        let later = ip.fragment.is_some_and(|(offset, _)| offset > 0);
        let about_error = ip.protocol == icmp
            && match ip.bytes.get(ip.header_len) {
                _ if later => true,
                None => true,
                Some(kind) if ip.v4 => matches!(kind, 3 | 4 | 5 | 11 | 12),
                Some(kind) => *kind < 128 || *kind == 137,
            };
        // RFC 4443 §2.4 e: if the type of the packet is unknown, no error is sent.
        if here.l3 + ip.header_len > FIRST_CELL {
            return none;
        }
        if here.group || ip.is_multicast() || about_error || (ip.v4 && later) || ip.src == 0 {
            return none;
        }
        let ways = self.ways_back(here, ip);
        let (Some(source), false) = (self.own_address(here, ip), ways.is_empty()) else {
            return none;
        };
        let mut message = vec![kind, code, 0, 0];
        message.extend(word.to_be_bytes());
        let available = if ip.v4 { 576 - 28 } else { 1280 - 48 };
        message.extend(&ip.bytes[..ip.bytes.len().min(available)]);
        let packet = if ip.v4 {
            let checksum = !sum(&message);
            message[2..4].copy_from_slice(&checksum.to_be_bytes());
            packet4(source, ip.src, 0xc0, 0, 0x4000, self.options.ttl, message)
        } else {
            packet6(source, ip.src, 58, self.options.ttl, message)
        };
        let by =
            |(port, link, _): (u16, Vec<u8>, usize)| vec![(port, [&link[..], &packet].concat())];
        ways.into_iter().map(by).collect()
    }

    fn own_address(&self, here: &Here<'_>, ip: &Ip<'_>) -> Option<u128> {
        let of = |i: &Interface| -> Option<u128> {
            if ip.v4 {
                return i.addresses4.first().map(|own| own.0.into());
            }
            let all =
                i.addresses6.iter().map(|own| u128::from(own.0[0]) << 64 | u128::from(own.0[1]));
            let near = |address: u128| address >> 118 == 0x3fa;
            all.into_iter().find(|&own| near(own) == near(ip.src))
        };
        of(here.interface).or_else(|| self.interfaces.iter().flatten().find_map(of))
    }
}

/// A frame and where it came in.
struct Here<'a> {
    index: u16,
    interface: &'a Interface,
    frame: &'a [u8],
    l3: usize,
    group: bool,
}

impl Here<'_> {
    fn to_host(&self) -> Vec<Outcome> {
        let untagged = [&self.frame[..12], &self.frame[self.l3 - 2..]].concat();
        vec![Outcome { fate: Fate::Host(self.index, untagged), emitted: Vec::new() }]
    }

    fn to_host_if_any(&self) -> Refused<Vec<Outcome>> {
        if self.interface.twin { Ok(self.to_host()) } else { Err(chunk::reasons::HOST_ABSENT) }
    }

    fn owns6(&self, address: u128) -> bool {
        let halves = [(address >> 64) as u64, address as u64];
        self.interface.addresses6.iter().any(|own| own.0 == halves)
    }
}
