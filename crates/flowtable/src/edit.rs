//! Changes of a frame: fields, tags, TTLs. Checksums follow by what has changed (RFC 1624; CRC-32C is linear), so a
//! wrong one stays wrong, and only the headers are touched.
//!
//! Everything here works on the first part of a frame, which holds its headers ([`Frame::head`]). A change that the frame has
//! no header for does nothing: OpenFlow refuses such actions by the prerequisites of the match, but what the
//! headers are may change under way.

use openflow::Field;
use packet::checksum::update_u16;
use packet::mpls::LabelStackEntry;
use packet::{EtherType, mpls, pbb, sctp};

use crate::headers::{Headers, Network, Transport};

/// A frame that grows and shrinks at its front.
pub trait Frame {
    /// Its first part: all headers.
    fn head(&self) -> &[u8];

    /// The same, to change.
    fn head_mut(&mut self) -> &mut [u8];

    /// Bytes of the whole frame.
    fn frame_len(&self) -> usize;

    /// Puts `n` bytes before it, whatever they hold; `false`, and nothing has changed, where there is no room.
    fn grow(&mut self, n: usize) -> bool;

    /// Takes `n` bytes off its front; `false`, and nothing has changed, where its first part has fewer.
    fn shrink(&mut self, n: usize) -> bool;
}

impl Frame for Vec<u8> {
    fn head(&self) -> &[u8] {
        self
    }

    fn head_mut(&mut self) -> &mut [u8] {
        self
    }

    fn frame_len(&self) -> usize {
        self.len()
    }

    fn grow(&mut self, n: usize) -> bool {
        self.splice(..0, std::iter::repeat_n(0, n));
        true
    }

    fn shrink(&mut self, n: usize) -> bool {
        let fits = n <= self.len();
        if fits {
            self.drain(..n);
        }
        fits
    }
}

/// A checksum that follows a change.
#[derive(Clone, Copy)]
enum Sum {
    /// The Internet checksum at this place.
    At(usize),
    /// UDP's, which is 0 where there is none.
    Udp(usize),
}

/// Writes `new` at `at`, and corrects `sums`. `base`: where a sum begins, to see which bytes make a word.
fn replace(head: &mut [u8], base: usize, at: usize, new: &[u8], sums: &[Sum]) {
    if at + new.len() > head.len() {
        return;
    }
    let from = at - (at - base) % 2;
    let to = base + (at + new.len() - base).next_multiple_of(2);
    let mut old = [0; 18];
    let kept = to.min(head.len()) - from;
    old[..kept].copy_from_slice(&head[from..from + kept]);
    head[at..at + new.len()].copy_from_slice(new);
    let mut now = [0; 18];
    now[..kept].copy_from_slice(&head[from..from + kept]);
    for sum in sums {
        let (Sum::At(place) | Sum::Udp(place)) = *sum;
        let Some(field) = head.get_mut(place..).and_then(|rest| rest.first_chunk_mut::<2>()) else {
            continue;
        };
        let before = u16::from_be_bytes(*field);
        if before == 0 && matches!(sum, Sum::Udp(_)) {
            continue;
        }
        let words = old.as_chunks::<2>().0.iter().zip(now.as_chunks::<2>().0);
        let after = words.fold(before, |sum, (old, new)| {
            update_u16(sum, u16::from_be_bytes(*old), u16::from_be_bytes(*new))
        });
        let after = if after == 0 && matches!(sum, Sum::Udp(_)) { u16::MAX } else { after };
        *field = after.to_be_bytes();
    }
}

impl Headers {
    /// The checksum of the transport header, where there is one of the Internet's kind.
    fn transport_sum(&self) -> Option<Sum> {
        let l4 = usize::from(self.l4);
        match self.transport {
            Transport::Tcp => Some(Sum::At(l4 + 16)),
            Transport::Udp => Some(Sum::Udp(l4 + 6)),
            Transport::Icmp | Transport::Icmpv6 => Some(Sum::At(l4 + 2)),
            Transport::Sctp | Transport::Other => None,
        }
    }

    /// The same, where it covers the addresses and the protocol.
    fn pseudo_sum(&self) -> Option<Sum> {
        match self.transport {
            Transport::Icmp => None,
            _ => self.transport_sum(),
        }
    }

    /// Where the EtherType of the network layer is.
    fn type_at(&self) -> Option<usize> {
        (!self.is_802_3).then(|| usize::from(self.l3) - 2)
    }
}

/// Sets a field of a frame; metadata, ports and tunnel are no part of it. `value` is right-aligned.
pub fn set_field(head: &mut [u8], headers: &Headers, field: Field, value: u128) {
    let bytes = value.to_be_bytes();
    let (l3, l4) = (usize::from(headers.l3), usize::from(headers.l4));
    match field {
        Field::EthDst => put(head, 0, &bytes[10..]),
        Field::EthSrc => put(head, 6, &bytes[10..]),
        Field::EthType => {
            if let Some(at) = headers.type_at() {
                put(head, at, &bytes[14..]);
            }
        }
        Field::VlanVid if headers.tagged => {
            change16(head, 14, |tci| tci & 0xf000 | value as u16 & 0xfff)
        }
        Field::VlanPcp if headers.tagged => {
            change16(head, 14, |tci| tci & 0x1fff | (value as u16) << 13)
        }
        Field::IpDscp => set_class(head, headers, 0xfc, (value as u8) << 2),
        Field::IpEcn => set_class(head, headers, 3, value as u8),
        Field::IpProto => set_protocol(head, headers, value as u8),
        Field::Ipv4Src | Field::Ipv4Dst if headers.network == Network::Ipv4 => {
            let at = l3 + if field == Field::Ipv4Src { 12 } else { 16 };
            let ip = Sum::At(l3 + 10);
            match headers.pseudo_sum() {
                Some(sum) => replace(head, l3, at, &bytes[12..], &[ip, sum]),
                None => replace(head, l3, at, &bytes[12..], &[ip]),
            }
        }
        Field::Ipv6Src | Field::Ipv6Dst if headers.network == Network::Ipv6 => {
            let at = l3 + if field == Field::Ipv6Src { 8 } else { 24 };
            let is_covered = field == Field::Ipv6Src || !headers.is_routed;
            match headers.pseudo_sum().filter(|_| is_covered) {
                Some(sum) => replace(head, l3, at, &bytes, &[sum]),
                None => put(head, at, &bytes),
            }
        }
        Field::Ipv6Flabel if headers.network == Network::Ipv6 => {
            if let Some(word) = head.get_mut(l3..).and_then(|rest| rest.first_chunk_mut::<4>()) {
                let old = u32::from_be_bytes(*word);
                *word = (old & 0xfff0_0000 | value as u32 & 0xf_ffff).to_be_bytes();
            }
        }
        Field::TcpSrc if headers.transport == Transport::Tcp => port(head, headers, 0, &bytes),
        Field::TcpDst if headers.transport == Transport::Tcp => port(head, headers, 2, &bytes),
        Field::UdpSrc if headers.transport == Transport::Udp => port(head, headers, 0, &bytes),
        Field::UdpDst if headers.transport == Transport::Udp => port(head, headers, 2, &bytes),
        Field::SctpSrc if headers.transport == Transport::Sctp => {
            sctp_port(head, headers, 0, value as u16)
        }
        Field::SctpDst if headers.transport == Transport::Sctp => {
            sctp_port(head, headers, 2, value as u16)
        }
        Field::Icmpv4Type | Field::Icmpv4Code if headers.transport == Transport::Icmp => {
            let at = l4 + usize::from(field == Field::Icmpv4Code);
            replace(head, l4, at, &bytes[15..], &[Sum::At(l4 + 2)]);
        }
        Field::Icmpv6Type | Field::Icmpv6Code if headers.transport == Transport::Icmpv6 => {
            let at = l4 + usize::from(field == Field::Icmpv6Code);
            replace(head, l4, at, &bytes[15..], &[Sum::At(l4 + 2)]);
        }
        Field::Ipv6NdTarget if headers.is_nd => {
            replace(head, l4, l4 + 8, &bytes, &[Sum::At(l4 + 2)]);
        }
        Field::Ipv6NdSll | Field::Ipv6NdTll => {
            let at = usize::from(headers.nd_macs[usize::from(field == Field::Ipv6NdTll)]);
            if at > 0 {
                replace(head, l4, at, &bytes[10..], &[Sum::At(l4 + 2)]);
            }
        }
        Field::ArpOp if headers.network == Network::Arp => put(head, l3 + 6, &bytes[14..]),
        Field::ArpSha if headers.network == Network::Arp => put(head, l3 + 8, &bytes[10..]),
        Field::ArpSpa if headers.network == Network::Arp => put(head, l3 + 14, &bytes[12..]),
        Field::ArpTha if headers.network == Network::Arp => put(head, l3 + 18, &bytes[10..]),
        Field::ArpTpa if headers.network == Network::Arp => put(head, l3 + 24, &bytes[12..]),
        Field::MplsLabel => change_entry(head, headers, |old| old.0 & 0xfff | (value as u32) << 12),
        Field::MplsTc => {
            change_entry(head, headers, |old| old.0 & !0xe00 | (value as u32 & 7) << 9)
        }
        Field::MplsBos => {
            change_entry(head, headers, |old| old.0 & !0x100 | (value as u32 & 1) << 8)
        }
        Field::PbbIsid if headers.network == Network::Pbb => put(head, l3 + 1, &bytes[13..]),
        _ => {}
    }
}

fn put(head: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(field) = head.get_mut(at..at + bytes.len()) {
        field.copy_from_slice(bytes);
    }
}

fn change16(head: &mut [u8], at: usize, change: impl FnOnce(u16) -> u16) {
    if let Some(field) = head.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        *field = change(u16::from_be_bytes(*field)).to_be_bytes();
    }
}

fn change_entry(head: &mut [u8], headers: &Headers, change: impl FnOnce(LabelStackEntry) -> u32) {
    let l3 = usize::from(headers.l3);
    if headers.network == Network::Mpls
        && let Some(old) = head.get(l3..).and_then(LabelStackEntry::read)
    {
        put(head, l3, &change(old).to_be_bytes());
    }
}

/// Sets bits of the traffic class.
fn set_class(head: &mut [u8], headers: &Headers, mask: u8, value: u8) {
    let l3 = usize::from(headers.l3);
    match headers.network {
        Network::Ipv4 => {
            if let Some(old) = head.get(l3 + 1) {
                let new = old & !mask | value & mask;
                replace(head, l3, l3 + 1, &[new], &[Sum::At(l3 + 10)]);
            }
        }
        Network::Ipv6 => change16(head, l3, |word| {
            let class = (word >> 4) as u8 & !mask | value & mask;
            word & 0xf00f | u16::from(class) << 4
        }),
        _ => {}
    }
}

/// Sets the protocol of IPv4, or the next header of IPv6 that names the upper layer.
fn set_protocol(head: &mut [u8], headers: &Headers, protocol: u8) {
    let l3 = usize::from(headers.l3);
    match headers.network {
        Network::Ipv4 => {
            let ip = Sum::At(l3 + 10);
            match headers.pseudo_sum() {
                Some(sum) => replace(head, l3, l3 + 9, &[protocol], &[ip, sum]),
                None => replace(head, l3, l3 + 9, &[protocol], &[ip]),
            }
        }
        Network::Ipv6 => {
            let mut at = l3 + 6;
            let end = usize::from(headers.l3_end).min(head.len());
            if let Some(view) = head.get(l3..end).and_then(packet::ipv6::Ipv6View::new_quoted) {
                let mut behind = l3 + 40;
                for header in view.extensions() {
                    at = behind;
                    behind += header.bytes.len();
                }
            }
            // In the pseudo header it is the low byte of a word; in the packet it may be the high one.
            if let (Some(sum), Some(old)) = (headers.pseudo_sum(), head.get(at).copied()) {
                let (Sum::At(place) | Sum::Udp(place)) = sum;
                change16(head, place, |field| match (sum, field) {
                    (Sum::Udp(_), 0) => 0,
                    _ => update_u16(field, old.into(), protocol.into()),
                });
            }
            put(head, at, &[protocol]);
        }
        _ => {}
    }
}

fn port(head: &mut [u8], headers: &Headers, at: usize, bytes: &[u8; 16]) {
    let l4 = usize::from(headers.l4);
    if let Some(sum) = headers.transport_sum() {
        replace(head, l4, l4 + at, &bytes[14..], &[sum]);
    }
}

fn sctp_port(head: &mut [u8], headers: &Headers, at: usize, port: u16) {
    let l4 = usize::from(headers.l4);
    let behind = usize::from(headers.l3_end).saturating_sub(l4 + at + 2);
    let Some(header) = head.get_mut(l4..).and_then(|l4| l4.first_chunk_mut::<12>()) else { return };
    let [high, low] = port.to_be_bytes();
    let changed = [header[at] ^ high, header[at + 1] ^ low];
    (header[at], header[at + 1]) = (high, low);
    let field = &mut header[sctp::CHECKSUM_AT..];
    let old = u32::from_le_bytes([field[0], field[1], field[2], field[3]]);
    field.copy_from_slice(&sctp::update(old, &changed, behind).to_le_bytes());
}

/// Puts a tag before the frame's own, with its VLAN and priority, or of VLAN 0. `false` where there is no room.
pub fn push_vlan(frame: &mut impl Frame, headers: &Headers, tpid: u16) -> bool {
    if frame.head().len() < 14 || !frame.grow(4) {
        return frame.head().len() < 14;
    }
    let head = frame.head_mut();
    head.copy_within(4..16, 0);
    let tci = if headers.tagged { [head[18] & 0xef, head[19]] } else { [0; 2] };
    head[12..14].copy_from_slice(&tpid.to_be_bytes());
    head[14..16].copy_from_slice(&tci);
    true
}

/// Takes the outer tag away.
pub fn pop_vlan(frame: &mut impl Frame, headers: &Headers) {
    if headers.tagged {
        frame.head_mut().copy_within(..12, 4);
        frame.shrink(4);
    }
}

/// Puts a label stack entry behind link header and tag: a copy of the outermost one, or label 0 with the TTL of IP, 0 without IP (OpenFlow 1.3.5 table 6). `false` where there
/// is no room.
pub fn push_mpls(frame: &mut impl Frame, headers: &Headers, ethertype: u16) -> bool {
    let (Some(type_at), l3) = (headers.type_at(), usize::from(headers.l3)) else { return true };
    let head = frame.head();
    let entry = match headers.network {
        Network::Mpls => head.get(l3..).and_then(LabelStackEntry::read).map(|old| old.0 & !0x100),
        _ => None,
    };
    let entry = entry.unwrap_or_else(|| {
        let ttl = ttl_at(head, headers).and_then(|at| head.get(at)).copied();
        LabelStackEntry::new(0, 0, true, ttl.unwrap_or(0)).0
    });
    if !frame.grow(mpls::ENTRY_LEN) {
        return false;
    }
    let head = frame.head_mut();
    head.copy_within(4..4 + l3, 0);
    put(head, type_at, &ethertype.to_be_bytes());
    put(head, l3, &entry.to_be_bytes());
    true
}

/// Takes the outermost label stack entry away.
pub fn pop_mpls(frame: &mut impl Frame, headers: &Headers, ethertype: u16) {
    let (Some(type_at), l3) = (headers.type_at(), usize::from(headers.l3)) else { return };
    if headers.network == Network::Mpls && frame.head().len() >= l3 + 4 {
        put(frame.head_mut(), type_at, &ethertype.to_be_bytes());
        frame.head_mut().copy_within(..l3, 4);
        frame.shrink(4);
    }
}

/// Puts a backbone header with an I-TAG before the frame: with the frame's addresses, the service of an I-TAG that it has, and the
/// priority of its tag. `false` where there is no room.
pub fn push_pbb(frame: &mut impl Frame, headers: &Headers, ethertype: u16) -> bool {
    let head = frame.head();
    if head.len() < 14 {
        return true;
    }
    let inner = match headers.network {
        Network::Pbb => head.get(usize::from(headers.l3)..).and_then(pbb::i_tag),
        _ => None,
    };
    let priority = if headers.tagged { u32::from(head[14] >> 5) << 29 } else { 0 };
    let tag = inner.map_or(0, pbb::service_id) | priority;
    if !frame.grow(14 + pbb::I_TAG_LEN) {
        return false;
    }
    let head = frame.head_mut();
    head.copy_within(18..30, 0);
    put(head, 12, &ethertype.to_be_bytes());
    put(head, 14, &tag.to_be_bytes());
    true
}

/// Takes a backbone header with its tags away.
pub fn pop_pbb(frame: &mut impl Frame, headers: &Headers) {
    if headers.network == Network::Pbb {
        frame.shrink(usize::from(headers.l3) + pbb::I_TAG_LEN);
    }
}

/// Where the TTL of IP is; behind a label stack the version decides.
fn ttl_at(head: &[u8], headers: &Headers) -> Option<usize> {
    let l3 = usize::from(headers.l3);
    match headers.network {
        Network::Ipv4 => Some(l3 + 8),
        Network::Ipv6 => Some(l3 + 7),
        Network::Mpls => {
            let at = l3 + mpls::stack_len(head.get(l3..)?)?;
            ip_ttl_at(head, at)
        }
        _ => None,
    }
}

fn ip_ttl_at(head: &[u8], at: usize) -> Option<usize> {
    match head.get(at)? >> 4 {
        4 => Some(at + 8),
        6 => Some(at + 7),
        _ => None,
    }
}

/// Sets a TTL of IP at `at`, with the checksum of IPv4.
fn write_ttl(head: &mut [u8], at: usize, is_v4: bool, ttl: u8) {
    match is_v4 {
        true => replace(head, at - 8, at, &[ttl], &[Sum::At(at + 2)]),
        false => put(head, at, &[ttl]),
    }
}

/// Sets the TTL of IP.
pub fn set_nw_ttl(head: &mut [u8], headers: &Headers, ttl: u8) {
    let is_v4 = headers.network == Network::Ipv4;
    if let (Network::Ipv4 | Network::Ipv6, Some(at)) = (headers.network, ttl_at(head, headers)) {
        write_ttl(head, at, is_v4, ttl);
    }
}

/// Takes one from the TTL of IP; `false` if it was 0 or 1.
pub fn dec_nw_ttl(head: &mut [u8], headers: &Headers) -> bool {
    if !matches!(headers.network, Network::Ipv4 | Network::Ipv6) {
        return true;
    }
    match ttl_at(head, headers).and_then(|at| head.get(at)).copied() {
        Some(ttl @ 2..) => {
            set_nw_ttl(head, headers, ttl - 1);
            true
        }
        Some(_) => false,
        None => true,
    }
}

/// Sets the TTL of the outermost label stack entry.
pub fn set_mpls_ttl(head: &mut [u8], headers: &Headers, ttl: u8) {
    change_entry(head, headers, |old| old.0 & !0xff | u32::from(ttl));
}

/// Takes one from the TTL of the outermost label stack entry; `false` if it was 0 or 1.
pub fn dec_mpls_ttl(head: &mut [u8], headers: &Headers) -> bool {
    if headers.network != Network::Mpls {
        return true;
    }
    match head.get(usize::from(headers.l3)..).and_then(LabelStackEntry::read) {
        Some(entry) if entry.ttl() > 1 => {
            set_mpls_ttl(head, headers, entry.ttl() - 1);
            true
        }
        Some(_) => false,
        None => true,
    }
}

/// Copies the TTL of the second header with one to the outermost.
pub fn copy_ttl_out(head: &mut [u8], headers: &Headers) {
    if let Some((at, _)) = inner_ttl(head, headers)
        && let Some(ttl) = head.get(at).copied()
    {
        set_mpls_ttl(head, headers, ttl);
    }
}

/// Copies the TTL of the outermost header to the second one.
pub fn copy_ttl_in(head: &mut [u8], headers: &Headers) {
    let outer = head.get(usize::from(headers.l3)..).and_then(LabelStackEntry::read);
    let (Some((at, inner)), Some(outer)) = (inner_ttl(head, headers), outer) else { return };
    match inner {
        Inner::Entry => put(head, at, &[outer.ttl()]),
        Inner::Ipv4 => write_ttl(head, at, true, outer.ttl()),
        Inner::Ipv6 => write_ttl(head, at, false, outer.ttl()),
    }
}

/// What is behind the outermost label stack entry.
enum Inner {
    Entry,
    Ipv4,
    Ipv6,
}

/// Where its TTL is.
fn inner_ttl(head: &[u8], headers: &Headers) -> Option<(usize, Inner)> {
    if headers.network != Network::Mpls {
        return None;
    }
    let l3 = usize::from(headers.l3);
    let outer = LabelStackEntry::read(head.get(l3..)?)?;
    let behind = l3 + mpls::ENTRY_LEN;
    if !outer.is_bottom() {
        return Some((behind + 3, Inner::Entry));
    }
    let at = ip_ttl_at(head, behind)?;
    Some((at, if at == behind + 8 { Inner::Ipv4 } else { Inner::Ipv6 }))
}

/// The EtherTypes that may be pushed as a tag.
pub fn is_vlan(ethertype: u16) -> bool {
    matches!(EtherType(ethertype), EtherType::VLAN | EtherType::QINQ)
}

/// The EtherTypes of label stacks.
pub fn is_mpls(ethertype: u16) -> bool {
    matches!(EtherType(ethertype), EtherType::MPLS | EtherType::MPLS_MULTICAST)
}
