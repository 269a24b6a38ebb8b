//! A packet as the tracker gets it: to which flow it belongs, and its TCP segment.

use packet::checksum::{finish, partial_sum, pseudo_header};
use packet::query::Query;
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
    if let Some((kind, code)) = d.icmp_type_code() {
        *key = of_icmp(*key, side, (kind, code, identifier(input)), options);
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

/// The key of an ICMP message that `side` sent, by its type, code and identifier. Where flows are tracked for a firewall, a request
/// of the other end by the same identifier is another flow.
fn of_icmp(
    key: FlowKey,
    side: Side,
    (kind, code, id): (u8, u8, u16),
    options: &Options,
) -> FlowKey {
    let Some((query, is_answer)) = Query::of(IpProtocol(key.protocol), kind) else {
        return key.of_message(kind, code, side);
    };
    let asker = if is_answer { side.other() } else { side };
    let key = FlowKey { ports: [id; 2], ..key };
    key.of_query(query, options.confirms.then_some(asker))
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
    let ports = quoted.ports.unwrap_or_default();
    let family = if d.kind == Kind::Ipv4 { 4 } else { 6 };
    let (src, dst) = ((quoted.src, ports.0), (quoted.dst, ports.1));
    let (mut key, side) = FlowKey::new(src, dst, quoted.protocol.0, family, scope(d, options));
    if let Some(message) = quoted.icmp {
        key = of_icmp(key, side, message, options);
    }
    Some(((key.inside(input.tunnels), side), quoted.sequence))
}

/// Where queries of ICMP have their identifier; 0 where it was not captured.
fn identifier(input: &Input<'_>) -> u16 {
    let at = usize::from(input.decoded.l4_offset) + 4;
    let bytes = input.frame.get(at..at + 2);
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
    if is_correct || is_correct_at_end(input, bytes) { Ok(()) } else { Err(Reject::Checksum) }
}

/// Whether the checksum of a segment is that of the last destination of a routing header.
#[cold]
fn is_correct_at_end(input: &Input<'_>, bytes: &[u8]) -> bool {
    let d = input.decoded;
    if !d.has(Decoded::ROUTING_HEADER) {
        return false;
    }
    let ip = input.frame.get(d.l3_offset.into()..).and_then(packet::ipv6::Ipv6View::new_quoted);
    let pseudo = |ip: &packet::ipv6::Ipv6View<'_>| {
        let len = bytes.len() as u32;
        packet::checksum::pseudo_header_v6(ip.src(), ip.final_dst(), IpProtocol::TCP, len)
    };
    ip.is_some_and(|ip| finish(pseudo(&ip) + partial_sum(bytes)) == 0)
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
        (IpProtocol::ICMP | IpProtocol::ICMPV6, _, Some((kind, _))) => {
            Query::of(d.protocol, kind).is_some_and(|(_, is_answer)| !is_answer)
        }
        (IpProtocol::TCP | IpProtocol::ICMP | IpProtocol::ICMPV6, ..) => false,
        _ => true,
    }
}
