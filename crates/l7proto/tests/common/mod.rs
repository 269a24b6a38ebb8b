//! Flows of captures: a small reader for tests, for whole packets in order of their sequence numbers.
#![allow(dead_code, unreachable_pub)] // each test uses a part of it

use std::collections::HashMap;
use std::fmt::{Debug, Formatter};
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;

use l7proto::{Answer, Direction, Identifier, Ports, Transport};
use pcap_file::DataLink;

/// A side's bytes in the order in which they came.
pub type Piece = (Direction, Vec<u8>);

/// Protocol number, opener, responder.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    pub protocol: u8,
    pub opener: (IpAddr, u16),
    pub responder: (IpAddr, u16),
}

impl Debug for Key {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let name = if self.protocol == 6 { "tcp" } else { "udp" };
        let ((a, ap), (b, bp)) = (self.opener, self.responder);
        write!(f, "{name} {a}:{ap} {b}:{bp}")
    }
}

impl Key {
    pub fn ports(&self) -> Ports {
        Ports { opener: self.opener.1, responder: self.responder.1 }
    }

    pub fn transport(&self) -> Transport {
        if self.protocol == 6 { Transport::Stream } else { Transport::Datagram }
    }
}

#[derive(Default)]
struct Side {
    next: Option<u32>,
    /// Segments that came before those in front of them.
    early: Vec<(u32, Vec<u8>)>,
}

pub struct Flow {
    pub key: Key,
    pub pieces: Vec<Piece>,
    sides: [Side; 2],
}

impl Flow {
    fn segment(&mut self, direction: Direction, seq: u32, syn: bool, payload: &[u8]) {
        let side = &mut self.sides[direction as usize];
        let next = *side.next.get_or_insert(seq.wrapping_add(syn.into()));
        if payload.is_empty() {
            return;
        }
        side.early.push((seq.wrapping_add(syn.into()), payload.to_vec()));
        side.early.sort_by_key(|(seq, _)| seq.wrapping_sub(next) as i32);
        self.deliver(direction, false);
    }

    fn deliver(&mut self, direction: Direction, over_gaps: bool) {
        let side = &mut self.sides[direction as usize];
        while let Some((seq, payload)) = side.early.first() {
            let next = side.next.unwrap_or(*seq);
            let ahead = seq.wrapping_sub(next) as i32;
            if ahead > 0 && !over_gaps {
                break;
            }
            let known = if ahead < 0 { ahead.unsigned_abs() as usize } else { 0 };
            let fresh = payload.get(known..).unwrap_or_default().to_vec();
            side.next = Some(next.wrapping_add(ahead.max(0) as u32 + fresh.len() as u32));
            side.early.remove(0);
            if !fresh.is_empty() {
                self.pieces.push((direction, fresh));
            }
        }
    }

    /// Identifies the flow; the answer at its end.
    pub fn answer(&self) -> Answer {
        identify(self.key.transport(), &self.pieces, self.key.ports())
    }

    /// One side's bytes.
    pub fn side(&self, direction: Direction) -> Vec<u8> {
        self.pieces.iter().filter(|(d, _)| *d == direction).flat_map(|(_, b)| b.clone()).collect()
    }
}

pub fn identify(transport: Transport, pieces: &[Piece], ports: Ports) -> Answer {
    let mut identifier = Identifier::new(transport);
    for (direction, bytes) in pieces {
        let before = identifier.answer();
        let after = identifier.feed(*direction, bytes, ports);
        assert!(!before.is_settled() || before == after, "a settled answer changed");
    }
    identifier.finish(ports)
}

/// The flows of a capture, in the order of their first packets.
pub fn flows(path: &Path) -> Vec<Flow> {
    let mut bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    if path.extension().is_some_and(|extension| extension == "gz") {
        let packed = std::mem::take(&mut bytes);
        flate2::read::MultiGzDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
    }
    let mut flows: Vec<Flow> = Vec::new();
    let mut numbers = HashMap::new();
    for (link, frame) in frames(&bytes) {
        let Some(ip) = network_layer(link, &frame) else { continue };
        let Some((protocol, source, destination, payload)) = addresses(ip) else { continue };
        let Some((ports, header)) = payload.split_at_checked(4) else { continue };
        let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
        let (source, destination) = ((source, port(0)), (destination, port(2)));
        let key = Key { protocol, opener: source, responder: destination };
        let reverse = Key { protocol, opener: destination, responder: source };
        let (number, direction) = match (numbers.get(&key), numbers.get(&reverse)) {
            (Some(number), _) => (*number, Direction::Opener),
            (None, Some(number)) => (*number, Direction::Responder),
            (None, None) => {
                numbers.insert(key.clone(), flows.len());
                flows.push(Flow { key, pieces: Vec::new(), sides: Default::default() });
                (flows.len() - 1, Direction::Opener)
            }
        };
        let flow = &mut flows[number];
        if protocol == 17 {
            let len = usize::from(u16::from_be_bytes([header[0], header[1]])).saturating_sub(8);
            let Some(data) = header.get(4..) else { continue };
            flow.pieces.push((direction, data[..len.min(data.len())].to_vec()));
            continue;
        }
        let Some(fixed) = header.get(..16) else { continue };
        let seq = u32::from_be_bytes([fixed[0], fixed[1], fixed[2], fixed[3]]);
        let start = usize::from(fixed[8] >> 4) * 4;
        flow.segment(direction, seq, fixed[9] & 2 != 0, payload.get(start..).unwrap_or_default());
    }
    for flow in &mut flows {
        flow.deliver(Direction::Opener, true);
        flow.deliver(Direction::Responder, true);
    }
    flows
}

fn frames(bytes: &[u8]) -> Vec<(DataLink, Vec<u8>)> {
    use pcap_file::pcapng::Block;
    if bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) {
        let mut reader = pcap_file::pcapng::PcapNgReader::new(bytes).unwrap();
        let mut links = Vec::new();
        let mut frames = Vec::new();
        while let Some(Ok(block)) = reader.next_block() {
            match block {
                Block::InterfaceDescription(interface) => links.push(interface.linktype),
                Block::EnhancedPacket(packet) => {
                    frames.push((links[packet.interface_id as usize], packet.data.to_vec()));
                }
                _ => {}
            }
        }
        return frames;
    }
    let mut reader = pcap_file::pcap::PcapReader::new(bytes).unwrap();
    let link = reader.header().datalink;
    let mut frames = Vec::new();
    while let Some(Ok(packet)) = reader.next_raw_packet() {
        frames.push((link, packet.data.to_vec()));
    }
    frames
}

fn network_layer(link: DataLink, frame: &[u8]) -> Option<&[u8]> {
    let mut at = match u32::from(link) {
        0 | 108 => return frame.get(4..),
        12 | 14 | 101 | 228 | 229 => return Some(frame),
        1 => 12,
        113 => 14,
        276 => return frame.get(20..),
        _ => return None,
    };
    while matches!(frame.get(at..at + 2)?, [0x81, 0] | [0x88, 0xa8]) {
        at += 4;
    }
    matches!(frame.get(at..at + 2)?, [8, 0] | [0x86, 0xdd]).then(|| frame.get(at + 2..))?
}

/// Protocol, addresses, payload; no fragments but the first.
fn addresses(ip: &[u8]) -> Option<(u8, IpAddr, IpAddr, &[u8])> {
    match ip.first()? >> 4 {
        4 => {
            let header: &[u8; 20] = ip.first_chunk()?;
            let (start, len) = (
                usize::from(header[0] & 15) * 4,
                usize::from(u16::from_be_bytes([header[2], header[3]])),
            );
            // Zero where the card was to cut the packet.
            let len = if len == 0 { ip.len() } else { len.min(ip.len()) };
            let address = |at: usize| {
                IpAddr::from([header[at], header[at + 1], header[at + 2], header[at + 3]])
            };
            let first = u16::from_be_bytes([header[6], header[7]]) & 0x1fff == 0;
            first.then_some((header[9], address(12), address(16), ip.get(start..len)?))
        }
        6 => {
            let header: &[u8; 40] = ip.first_chunk()?;
            let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
            let end = if len == 0 { ip.len() } else { (40 + len).min(ip.len()) };
            let address =
                |at: usize| IpAddr::from(<[u8; 16]>::try_from(&header[at..at + 16]).unwrap());
            Some((header[6], address(8), address(24), ip.get(40..end)?))
        }
        _ => None,
    }
    .filter(|(protocol, ..)| [6, 17].contains(protocol))
}
