//! A packet as the tracker gets it: to which flow it belongs, and its TCP segment.

use packet::checksum::{finish, partial_sum, pseudo_header};
use packet::tcp::TcpView;
use packet::tunnel::Path;
use packet::{Anomaly, Decoded, EtherType, IpProtocol, Kind};

use super::Options;
use crate::key::{FlowKey, Side};
use crate::tcp::Segment;

/// A packet, decoded.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// What decoding found.
    pub decoded: &'a Decoded,
    /// The frame; all of it, for TCP and fragments, that was captured. Of a packet in a tunnel the frame or IP packet that is inside.
    pub frame: &'a [u8],
    /// Bytes of the frame on the wire, of all of it.
    pub frame_len: u32,
    /// When it came, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Number of the port by which it came.
    pub port: u16,
    /// Whether a TCP segment with a wrong checksum is passed over, as its receiver does.
    pub checksums: bool,
    /// The tunnels that the packet was in; `None` for none.
    pub tunnels: Option<&'a Path>,
    /// What [`checked_segment`] says of the packet, if that was found out before; `None` if the tracker is to find it out. Only
    /// a whole TCP packet has one.
    pub segment: Option<Result<Segment<'a>, Reject>>,
}

/// Why a packet belongs to no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reject {
    /// It is not IP.
    NotIp,
    /// It has none by its nature.
    Untracked,
    /// Its IP header is wrong, or the header of its upper layer is missing or wrong.
    Malformed,
    /// The checksum of its TCP segment is wrong.
    Checksum,
}

/// Whether a frame that is not IP may have IP behind what is not looked into: MPLS, PPPoE, or a further VLAN tag.
pub(super) fn is_encapsulated(input: &Input<'_>) -> bool {
    let of = input.decoded.ethertype;
    let is_other = [EtherType::MPLS, EtherType::MPLS_MULTICAST, EtherType::PPPOE_SESSION];
    input.decoded.kind == Kind::Other && (of.is_vlan() || is_other.contains(&of))
}

/// Writes the key of a packet, field by field: a copy of it as a whole right after would wait for them. The side that sent it.
#[inline(always)]
pub(super) fn key_of(
    input: &Input<'_>,
    options: &Options,
    defers: bool,
    key: &mut FlowKey,
) -> Result<Side, Reject> {
    let d = input.decoded;
    if !d.is_ip() {
        return Err(Reject::NotIp);
    }
    let is_right =
        matches!(d.anomaly, Anomaly::None | Anomaly::MartianSource | Anomaly::MartianDestination);
    // A fragment that comes so far is a datagram in a datagram, unless fragments are passed on: then it is the first one.
    let is_fragment = d.has(Decoded::FRAGMENT);
    if !is_right || is_fragment && !options.confirms {
        return Err(Reject::Malformed);
    }
    if options.confirms && is_discovery(d) {
        return Err(Reject::Untracked);
    }
    let ports = match (d.ports(), d.protocol) {
        (Some(ports), _) => ports,
        (None, IpProtocol::TCP | IpProtocol::UDP) => return Err(Reject::Malformed),
        (None, IpProtocol::ICMP | IpProtocol::ICMPV6) => {
            let id = echo_id(input);
            (id, id)
        }
        (None, _) => (0, 0),
    };
    if d.protocol == IpProtocol::TCP && !is_fragment {
        match input.segment {
            Some(checked) => checked.map(drop)?,
            None if defers => check_header(input).map(drop)?,
            None => check_segment(input)?,
        }
    }
    let side = write_ends(d, ports, key);
    key.scope = scope(d, options);
    (key.tunnels, key.tunnel_id) = input.tunnels.map_or((0, 0), Path::key);
    if options.confirms
        && let Some((kind, _)) = d.icmp_type_code()
    {
        mark_asker(key, side, kind);
    }
    Ok(side)
}

/// Writes what a key has of both ends, and the protocol; the side that sent the packet.
#[inline(always)]
fn write_ends(d: &Decoded, (src_port, dst_port): (u16, u16), key: &mut FlowKey) -> Side {
    let number = |[high, low]: [u64; 2]| u128::from(high) << 64 | u128::from(low);
    let (src, dst) = (number(d.src), number(d.dst));
    // Without a branch: which end sends next is anybody's guess.
    let is_first = (src < dst) | (src == dst) & (src_port <= dst_port);
    let side = if is_first { Side::A } else { Side::B };
    key.addresses[side.index()] = d.src;
    key.addresses[side.other().index()] = d.dst;
    key.ports[side.index()] = src_port;
    key.ports[side.other().index()] = dst_port;
    (key.protocol, key.family) = (d.protocol.0, if d.kind == Kind::Ipv4 { 4 } else { 6 });
    side
}

/// Whether a packet is a whole TCP segment in no tunnel, whose flow is known by both ends alone. Its own header may be wrong.
#[inline(always)]
pub(super) fn is_plain(input: &Input<'_>, options: &Options) -> bool {
    let d = input.decoded;
    d.is_ip()
        && d.anomaly == Anomaly::None
        && d.protocol == IpProtocol::TCP
        && d.flags & (Decoded::FRAGMENT | Decoded::HAS_PORTS) == Decoded::HAS_PORTS
        && input.tunnels.is_none()
        && input.segment.is_none()
        && !options.by_vlan
}

/// Writes the key of such a packet, which is none so far; the side that sent it.
#[inline(always)]
pub(super) fn write_key(input: &Input<'_>, key: &mut FlowKey) -> Side {
    let d = input.decoded;
    write_ends(d, (d.src_port(), d.dst_port()), key)
}

/// The VLANs of a packet, where they distinguish flows.
fn scope(d: &Decoded, options: &Options) -> u32 {
    // 0 is no tag.
    let vlan = |n: usize| match options.by_vlan && usize::from(d.vlan_count) > n {
        true => u32::from(d.vlan_tci[n] & 0xfff) + 1,
        false => 0,
    };
    vlan(0) | vlan(1) << 16
}

/// In the scope of a flow of ICMP: the second end asked. Both ends may ask by one identifier, and a request is never an answer.
const ASKED_BY_B: u32 = 1 << 31;

fn mark_asker(key: &mut FlowKey, side: Side, kind: u8) {
    let is_answer = match key.family {
        4 => matches!(kind, 0 | 14 | 16 | 18),
        _ => kind == 129,
    };
    let asker = if is_answer { side.other() } else { side };
    if asker == Side::B {
        key.scope |= ASKED_BY_B;
    }
}

/// Whether a packet is of neighbour discovery or multicast listener discovery, which have no flow (as in Linux's conntrack).
fn is_discovery(d: &Decoded) -> bool {
    d.protocol == IpProtocol::ICMPV6
        && d.icmp_type_code().is_some_and(|(kind, _)| matches!(kind, 130..=136 | 143))
}

/// The flow that an ICMP error is about, and the side that sent the packet which it quotes; the sequence number of that, of TCP.
/// An error goes to the sender of what it quotes.
pub(super) fn cause_of(
    input: &Input<'_>,
    options: &Options,
) -> Option<((FlowKey, Side), Option<u32>)> {
    let d = input.decoded;
    let quoted = packet::quoted::quoted(input.frame, d).filter(|quoted| quoted.src == d.dst)?;
    let ports = match (quoted.ports, quoted.icmp) {
        (Some(ports), _) => ports,
        (None, Some((_, _, id))) => (id, id),
        (None, None) => (0, 0),
    };
    let family = if d.kind == Kind::Ipv4 { 4 } else { 6 };
    let (src, dst) = ((quoted.src, ports.0), (quoted.dst, ports.1));
    let (mut key, side) = FlowKey::new(src, dst, quoted.protocol.0, family, scope(d, options));
    if let Some((kind, ..)) = quoted.icmp {
        mark_asker(&mut key, side, kind);
    }
    Some(((key, side), quoted.sequence))
}

/// The identifier of an echo, a timestamp or the like (RFC 792, RFC 4443); 0 for other messages.
fn echo_id(input: &Input<'_>) -> u16 {
    let d = input.decoded;
    let has_id = match (d.kind, d.icmp_type_code()) {
        (Kind::Ipv4, Some((kind, _))) => matches!(kind, 0 | 8 | 13..=18),
        (_, Some((kind, _))) => matches!(kind, 128 | 129),
        (_, None) => false,
    };
    let at = usize::from(d.l4_offset) + 4;
    let bytes = input.frame.get(at..at + 2).filter(|_| has_id);
    bytes.map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// The bytes of a TCP segment, without padding of the link.
#[inline(always)]
fn tcp_bytes<'a>(input: &Input<'a>) -> Option<&'a [u8]> {
    let d = input.decoded;
    let end = d.l3_end().min(input.frame.len());
    input.frame.get(usize::from(d.l4_offset)..end)
}

/// Whether the header of a TCP segment is right, but for its checksum; its bytes.
#[inline(always)]
pub(super) fn check_header<'a>(input: &Input<'a>) -> Result<&'a [u8], Reject> {
    let bytes = tcp_bytes(input).ok_or(Reject::Malformed)?;
    TcpView::new_checked(bytes).ok_or(Reject::Malformed)?;
    Ok(bytes)
}

/// Whether a TCP segment is one that its receiver takes.
pub(super) fn check_segment(input: &Input<'_>) -> Result<(), Reject> {
    let d = input.decoded;
    let bytes = check_header(input)?;
    let is_cut = d.l3_end() > input.frame.len();
    if !input.checksums || is_cut {
        return Ok(());
    }
    let pseudo = pseudo_header(d.src, d.dst, IpProtocol::TCP, bytes.len() as u32);
    // The header is a whole number of words: one sum over all is that of its parts.
    let is_correct = finish(pseudo + partial_sum(bytes)) == 0;
    if is_correct { Ok(()) } else { Err(Reject::Checksum) }
}

/// The TCP segment of a packet.
#[inline(always)]
pub(super) fn segment_of<'a>(input: &Input<'a>) -> Option<Segment<'a>> {
    match input.segment {
        Some(checked) => checked.ok(),
        None => {
            let segment = Segment::from(&TcpView::new_checked(tcp_bytes(input)?)?);
            let missing = input.decoded.l3_end().saturating_sub(input.frame.len());
            Some(Segment { missing: missing.min(u16::MAX.into()) as u16, ..segment })
        }
    }
}

/// The segment of a whole TCP packet, if it is one that its receiver takes: what the tracker finds out of a packet whose
/// [`Input::segment`] is `None`.
///
/// # Errors
/// Why the packet belongs to no flow.
pub fn checked_segment<'a>(input: &Input<'a>) -> Result<Segment<'a>, Reject> {
    let plain = Input { segment: None, ..*input };
    check_segment(&plain)?;
    segment_of(&plain).ok_or(Reject::Malformed)
}

/// Whether a segment has flags that hosts do not send together, as Linux's conntrack has it (`tcp_valid_flags`): a reset or SYN
/// that ends something too, or none at all.
pub(super) fn has_odd_flags(flags: u16) -> bool {
    use packet::tcp::flags::{ACK, FIN, RST, SYN, URG};
    let flags = flags & (SYN | ACK | RST | FIN | URG);
    let may_be_urgent = |flags: u16| [SYN, ACK, FIN | ACK].contains(&flags);
    !(may_be_urgent(flags & !URG) || [SYN | ACK, RST, RST | ACK].contains(&flags))
}

/// Whether a packet may be the first of a flow, as Linux's conntrack has it: of TCP a SYN, or a plain segment where flows may be
/// joined in the middle; of ICMP a request.
pub(super) fn opens(input: &Input<'_>, segment: Option<&Segment<'_>>, options: &Options) -> bool {
    use packet::tcp::flags::{ACK, FIN, RST, SYN};
    let d = input.decoded;
    match (d.protocol, segment, d.icmp_type_code()) {
        (IpProtocol::TCP, Some(segment), _) => match segment.flags & (SYN | ACK | RST | FIN) {
            SYN => true,
            ACK => options.tcp.midstream,
            _ => false,
        },
        (IpProtocol::ICMP, _, Some((kind, _))) => matches!(kind, 8 | 13 | 15 | 17),
        (IpProtocol::ICMPV6, _, Some((kind, _))) => kind == 128,
        (IpProtocol::TCP | IpProtocol::ICMP | IpProtocol::ICMPV6, ..) => false,
        _ => true,
    }
}
