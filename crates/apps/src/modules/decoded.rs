//! What modules with a source are told of a frame, as the first kernel of their program finds it out on the device.
//!
//! The frames are there for the modules anyway, and on the worker's core the headers of each would come from memory once
//! more. The kernel `module_begin` ([`kernels`](super::kernels)) puts three words for each row into scratch memory:
//!
//! ```text
//!  31         16 15          0
//! │ upper layer │ IP header   │   offsets in the frame, bytes; 0 for a frame that is not IP
//! │ end         │ its payload │
//! │ layers      │ TTL  │ prot.│   layers as in `columns::layers`
//! ```
//!
//! [`reference()`] is the same in Rust, by which tests judge the kernel.

use controlplane::module::{is_right, payload_offset};
use packet::{Decoded, IpProtocol};

use super::columns::layers;

/// Words for a row.
pub const WORDS: usize = 3;

/// The words of a frame, of which `head` is what is in its first cell, and `frame_len` all its bytes. `has`: what is known
/// before, the column `module_layers`.
pub fn reference(head: &[u8], frame_len: usize, has: u32) -> [u32; WORDS] {
    let mut d = Decoded::default();
    packet::decode::decode_into(head, frame_len, &mut d);
    if has & layers::FORGIVEN != 0 {
        packet::decode::ignore_checksum(&mut d);
    }
    words(&d, head, has)
}

/// The words of a frame that is decoded, of which `head` is the beginning.
pub fn words(d: &Decoded, head: &[u8], has: u32) -> [u32; WORDS] {
    let mut found = layers::ETH | has & (layers::STREAM | layers::REPLY);
    let (mut l3, mut l4, mut data, mut end) = (0, 0, 0, 0);
    if is_right(d) {
        found |= layers::IP | if d.kind == packet::Kind::Ipv6 { layers::IPV6 } else { 0 };
        (l3, l4) = (usize::from(d.l3_offset), usize::from(d.l4_offset));
        end = d.l3_end();
        let is_whole = d.ports().is_some() && !d.has(Decoded::FRAGMENT);
        let of_layer = match d.protocol {
            IpProtocol::UDP => layers::UDP,
            IpProtocol::TCP => layers::TCP,
            _ => 0,
        };
        if is_whole && of_layer != 0 {
            found |= of_layer;
            data = payload_offset(d, head).unwrap_or(0).min(end);
        }
    }
    let pair = |low: usize, high: usize| low.min(0xffff) as u32 | (high.min(0xffff) as u32) << 16;
    let info = u32::from(d.protocol.0) | u32::from(d.ttl) << 8;
    [pair(l3, l4), pair(data, end), info | found << 16]
}
