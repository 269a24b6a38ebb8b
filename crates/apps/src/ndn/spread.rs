//! Which worker a frame belongs to.

use std::sync::OnceLock;

use lookup::names::NameHasher;
use packet::ndn::{ETHERTYPE, first_component};
use packet::{Decoded, IpProtocol, decode};

use super::hash_of;

/// The hash by which the engine spreads frames over workers: of an NDN packet that of its name's first component, so
/// that Interests, the Data that answers them and Nacks meet in one worker's table; of other frames that of their
/// flow. The same for every queue and port of the process; drawn at random once, so that no sender can choose
/// names for one worker.
///
/// Whatever its ports, the payload of a datagram that reads as NDN is taken for it: at worst a flow goes elsewhere.
pub fn spread_hash(frame: &[u8]) -> u32 {
    static HASHER: OnceLock<NameHasher> = OnceLock::new();
    match ndn_of(frame).and_then(first_component) {
        Some(first) => hash_of(HASHER.get_or_init(NameHasher::random), first),
        None => packet::flow::flow_hash_of_frame(frame),
    }
}

/// Where an NDN packet would be.
fn ndn_of(frame: &[u8]) -> Option<&[u8]> {
    let (header, payload) = frame.split_first_chunk::<14>()?;
    if header[12..] == ETHERTYPE.0.to_be_bytes() {
        return Some(payload);
    }
    let d = decode(frame, frame.len());
    let is_udp = d.protocol == IpProtocol::UDP && d.ports().is_some() && !d.has(Decoded::FRAGMENT);
    frame.get(usize::from(d.l4_offset) + 8..).filter(|_| is_udp)
}
