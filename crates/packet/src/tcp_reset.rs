//! The segment that refuses a TCP connection (RFC 9293 §3.5.2, §3.10.7.1).
//!
//! A device between two hosts that refuses a connection informs the client at once, as the server's own
//! TCP would on a closed port. The answer seems to come from the server. Pure function: any thread.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::checksum::{pseudo_header_v4, pseudo_header_v6};
use crate::ipv4::{self, Ipv4Header};
use crate::ipv6::{self, Ipv6Header};
use crate::tcp::{self, TcpHeader, TcpView, flags};
use crate::{Decoded, IpProtocol, Kind};

/// Longest packet that [`build_tcp_reset`] and [`build_tcp_reset_onward`] write, bytes.
pub const RESET_LEN_MAX: usize = ipv6::HEADER_LEN + tcp::HEADER_LEN;

/// TTL and hop limit.
const TTL: u8 = 64;

/// Writes a whole IP packet, a reset in answer to the segment in `frame` (as many bytes of it as are at hand), into
/// `out`; returns its length in bytes. `d` is what [`crate::decode()`] found in the frame.
///
/// `None` where the frame holds no TCP header, where it is a fragment or a reset itself, or where `out` has no room.
pub fn build_tcp_reset(d: &Decoded, frame: &[u8], out: &mut [u8]) -> Option<usize> {
    if d.protocol != IpProtocol::TCP || d.has(Decoded::FRAGMENT) {
        return None;
    }
    let segment = TcpView::new_checked(frame.get(usize::from(d.l4_offset)..)?)?;
    let bits = segment.flags();
    if bits & flags::RST != 0 {
        return None;
    }
    let end = d.l3_end().checked_sub(usize::from(d.l4_offset))?;
    let payload_len = end.checked_sub(segment.header_len())? as u32;
    let of = |flag: u16| u32::from(bits & flag != 0);
    let header = TcpHeader {
        src_port: segment.dst_port(),
        dst_port: segment.src_port(),
        ..TcpHeader::default()
    };
    let header = if bits & flags::ACK != 0 {
        TcpHeader { sequence: segment.acknowledgment(), flags: flags::RST, ..header }
    } else {
        let len = payload_len + of(flags::SYN) + of(flags::FIN);
        let acknowledgment = segment.sequence().wrapping_add(len);
        TcpHeader { acknowledgment, flags: flags::RST | flags::ACK, ..header }
    };
    emit(d.kind, &header, [d.dst, d.src], TTL, out)
}

/// Writes a whole IP packet, a reset that goes on in the place of the segment in `frame`: with its ends, its sequence number and
/// its TTL or hop limit, so that its receiver ends the connection as if the sender had. Otherwise as [`build_tcp_reset`].
pub fn build_tcp_reset_onward(d: &Decoded, frame: &[u8], out: &mut [u8]) -> Option<usize> {
    if d.protocol != IpProtocol::TCP || d.has(Decoded::FRAGMENT) {
        return None;
    }
    let segment = TcpView::new_checked(frame.get(usize::from(d.l4_offset)..)?)?;
    let bits = segment.flags();
    if bits & flags::RST != 0 {
        return None;
    }
    let is_acknowledging = bits & flags::ACK != 0;
    let header = TcpHeader {
        src_port: segment.src_port(),
        dst_port: segment.dst_port(),
        sequence: segment.sequence(),
        acknowledgment: if is_acknowledging { segment.acknowledgment() } else { 0 },
        flags: flags::RST | bits & flags::ACK,
        ..TcpHeader::default()
    };
    let ttl_at = usize::from(d.l3_offset) + if d.kind == Kind::Ipv4 { 8 } else { 7 };
    emit(d.kind, &header, [d.src, d.dst], *frame.get(ttl_at)?, out)
}

/// Writes IP header and TCP header; `ends`: source and destination, as [`Decoded`] has them.
fn emit(
    kind: Kind,
    header: &TcpHeader,
    [src, dst]: [[u64; 2]; 2],
    ttl: u8,
    out: &mut [u8],
) -> Option<usize> {
    let len = tcp::HEADER_LEN;
    match kind {
        Kind::Ipv4 => {
            let whole = out.get_mut(..ipv4::HEADER_LEN + len)?;
            let (src, dst) = (Ipv4Addr::from(src[1] as u32), Ipv4Addr::from(dst[1] as u32));
            let pseudo = pseudo_header_v4(src, dst, IpProtocol::TCP, len as u16);
            header.emit(pseudo, &mut whole[ipv4::HEADER_LEN..])?;
            let ip = Ipv4Header {
                dont_fragment: true,
                ttl,
                ..Ipv4Header::new(src, dst, IpProtocol::TCP)
            };
            ip.emit(len, whole)?;
            Some(whole.len())
        }
        Kind::Ipv6 => {
            let whole = out.get_mut(..ipv6::HEADER_LEN + len)?;
            let address =
                |a: [u64; 2]| Ipv6Addr::from_bits(u128::from(a[0]) << 64 | u128::from(a[1]));
            let (src, dst) = (address(src), address(dst));
            let pseudo = pseudo_header_v6(src, dst, IpProtocol::TCP, len as u32);
            header.emit(pseudo, &mut whole[ipv6::HEADER_LEN..])?;
            let ip = Ipv6Header { hop_limit: ttl, ..Ipv6Header::new(src, dst, IpProtocol::TCP) };
            ip.emit(len, whole)?;
            Some(whole.len())
        }
        Kind::Arp | Kind::Other => None,
    }
}
