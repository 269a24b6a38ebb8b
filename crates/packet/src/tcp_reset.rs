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

/// Longest packet that [`build_tcp_reset`] writes, bytes.
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
    let len = tcp::HEADER_LEN;
    match d.kind {
        Kind::Ipv4 => {
            let whole = out.get_mut(..ipv4::HEADER_LEN + len)?;
            let (src, dst) = (Ipv4Addr::from(d.dst_v4()), Ipv4Addr::from(d.src_v4()));
            let pseudo = pseudo_header_v4(src, dst, IpProtocol::TCP, len as u16);
            header.emit(pseudo, &mut whole[ipv4::HEADER_LEN..])?;
            let ip = Ipv4Header {
                dont_fragment: true,
                ttl: TTL,
                ..Ipv4Header::new(src, dst, IpProtocol::TCP)
            };
            ip.emit(len, whole)?;
            Some(whole.len())
        }
        Kind::Ipv6 => {
            let whole = out.get_mut(..ipv6::HEADER_LEN + len)?;
            let address =
                |a: [u64; 2]| Ipv6Addr::from_bits(u128::from(a[0]) << 64 | u128::from(a[1]));
            let (src, dst) = (address(d.dst), address(d.src));
            let pseudo = pseudo_header_v6(src, dst, IpProtocol::TCP, len as u32);
            header.emit(pseudo, &mut whole[ipv6::HEADER_LEN..])?;
            let ip = Ipv6Header { hop_limit: TTL, ..Ipv6Header::new(src, dst, IpProtocol::TCP) };
            ip.emit(len, whole)?;
            Some(whole.len())
        }
        Kind::Arp | Kind::Other => None,
    }
}
