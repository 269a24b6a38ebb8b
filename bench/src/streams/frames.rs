//! Frames in memory: HTTP as GASPP mixes it, captures, and small packets of many flows.

use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::net::Ipv4Addr;
use std::path::Path;

use ::io::capture::{CaptureReader, CaptureWriter, Format, LinkType};
use packet::checksum::pseudo_header_v4;
use packet::ipv4::Ipv4Header;
use packet::tcp::TcpHeader;
use packet::tcp::flags::{ACK, FIN, PSH, SYN};
use packet::{IpProtocol, ipv4, tcp};

use crate::tables::Random;

/// Full-size data packets of a connection, and minimum-size ones (GASPP §7.2).
const DATA: usize = 550;
const SMALL: usize = 320;
/// Packets of a connection.
pub(crate) const PACKETS: usize = DATA + SMALL;

/// Data of a full-size packet.
const PAYLOAD: usize = 1460;
/// Bytes that client and server of a connection send: the request is one full-size packet.
pub(crate) const CLIENT_BYTES: u64 = PAYLOAD as u64;
pub(crate) const SERVER_BYTES: u64 = ((DATA - 1) * PAYLOAD) as u64;

/// Most places by which a late packet is behind its own.
const LATE_MAX: usize = 64;

const ETHERNET: usize = packet::ethernet::HEADER_LEN;
pub(crate) const HEADERS: usize = ETHERNET + ipv4::HEADER_LEN + tcp::HEADER_LEN;

/// The smallest frame, without its check sequence.
pub(crate) const FRAME_MIN: usize = 60;
/// Where frames begin.
const ALIGN: usize = 64;

/// When the first frame comes.
pub(crate) const START_NS: u64 = 1_700_000_000_000_000_000;
/// Between two frames.
pub(crate) const STEP_NS: u64 = 1_000;

/// Both ends of a connection, the client first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends(pub(crate) [(Ipv4Addr, u16); 2]);

/// A TCP packet to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// 0: the client sends it, 1: the server.
    pub(crate) from: usize,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) acknowledgment: u32,
    pub(crate) len: usize,
}

/// Writes the headers of a segment whose data is in `frame` already, or is what was there.
pub(crate) fn write(frame: &mut [u8], ends: &Ends, segment: &Segment) {
    let Segment { from, flags, sequence, acknowledgment, len } = *segment;
    let [(src, src_port), (dst, dst_port)] = [ends.0[from], ends.0[1 - from]];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[12..ETHERNET].copy_from_slice(&[0x08, 0x00]);
    let datagram = &mut frame[ETHERNET..HEADERS + len];
    let header = Ipv4Header { dont_fragment: true, ..Ipv4Header::new(src, dst, IpProtocol::TCP) };
    let bytes = datagram.len() - ipv4::HEADER_LEN;
    header.emit(bytes, datagram);
    let pseudo = pseudo_header_v4(src, dst, IpProtocol::TCP, bytes as u16);
    let header = TcpHeader {
        src_port,
        dst_port,
        sequence,
        acknowledgment,
        flags,
        window: 0xffff,
        ..TcpHeader::default()
    };
    header.emit(pseudo, &mut datagram[ipv4::HEADER_LEN..]);
}

/// Frames, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    /// Where each begins, its length, and when it came.
    places: Vec<(usize, usize, u64)>,
}

impl Frames {
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Bytes of all frames.
    pub(crate) fn len_bytes(&self) -> usize {
        self.places.iter().map(|(_, len, _)| len).sum()
    }

    /// A frame, and when it came.
    #[inline(always)]
    pub(crate) fn get(&self, at: usize) -> (&[u8], u64) {
        let (begin, len, time_ns) = self.places[at];
        (&self.bytes[begin..begin + len], time_ns)
    }

    /// None yet, with room for so many bytes: those do not move, and so begin where cache lines do.
    fn with_room(bytes: usize) -> Self {
        let mut frames = Self { bytes: Vec::with_capacity(bytes + ALIGN), places: Vec::new() };
        let skip = frames.bytes.as_ptr().align_offset(ALIGN);
        frames.bytes.resize(skip, 0);
        frames
    }

    /// Room for one more frame, which is zero.
    fn push(&mut self, len: usize, time_ns: u64) -> &mut [u8] {
        let begin = self.bytes.len();
        self.bytes.resize(begin + len.next_multiple_of(ALIGN), 0);
        self.places.push((begin, len, time_ns));
        &mut self.bytes[begin..begin + len]
    }

    /// These one after the other: the times of each begin so long behind the last one before.
    pub(crate) fn joined(all: &[Self], gap_ns: u64) -> Self {
        let count = all.iter().map(Self::len).sum::<usize>();
        let bytes = all.iter().map(Self::len_bytes).sum::<usize>();
        let mut joined = Self::with_room(bytes + count * ALIGN);
        let mut last_ns = 0;
        for own in all {
            let times = || (0..own.len()).map(|at| own.get(at).1);
            let (first, begin_ns) = (times().min().unwrap_or(0), last_ns + gap_ns);
            for at in 0..own.len() {
                let (frame, time_ns) = own.get(at);
                let time_ns = time_ns - first + begin_ns;
                last_ns = last_ns.max(time_ns);
                joined.push(frame.len(), time_ns).copy_from_slice(frame);
            }
        }
        joined
    }

    /// Ethernet frames of a capture; of another link layer, an error.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let reason = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(|e| reason(&e))?;
        let mut input = files::input::reader(file).map_err(|e| reason(&e))?;
        input.read_to_end(&mut bytes).map_err(|e| reason(&e))?;
        let mut reader = CaptureReader::new(bytes.as_slice()).map_err(|e| reason(&e))?;
        let mut frames = Self::with_room(4 * bytes.len()); // a record has 16 bytes beside its frame
        while reader.advance().map_err(|e| reason(&e))? {
            let Some(record) = reader.record() else { break };
            if record.link_type != LinkType::ETHERNET {
                return Err(reason(&"not Ethernet"));
            }
            frames.push(record.data.len(), record.time_ns).copy_from_slice(record.data);
        }
        Ok(frames)
    }

    /// Writes them as a capture.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let mut writer = CaptureWriter::new(file, Format::Pcap)?;
        for at in 0..self.len() {
            let (frame, time_ns) = self.get(at);
            writer.write_bytes(frame, time_ns, None)?;
        }
        writer.flush()
    }
}

/// The packets of a connection, with numbers relative to the initial ones: handshake, request, answer with an
/// acknowledgment for each so many packets in order, end. With `late`, half of the answer's packets come one to 64 places
/// behind their own.
fn script(late: bool, random: &mut Random) -> Vec<Segment> {
    let answer = DATA - 1;
    let mut places: Vec<(usize, bool, usize)> = (0..answer)
        .map(|index| match late && random.below(2) == 0 {
            true => (index + 1 + random.below(LATE_MAX), false, index),
            false => (index, true, index),
        })
        .collect();
    places.sort_unstable();
    let request = 1 + PAYLOAD as u32;
    let client = |flags, sequence, acknowledgment, len| Segment {
        from: 0,
        flags,
        sequence,
        acknowledgment,
        len,
    };
    let server = |flags, sequence, acknowledgment, len| Segment {
        from: 1,
        ..client(flags, sequence, acknowledgment, len)
    };
    let mut packets = vec![
        client(SYN, 0, 0, 0),
        server(SYN | ACK, 0, 1, 0),
        client(ACK, 1, 1, 0),
        client(ACK | PSH, 1, 1, PAYLOAD),
    ];
    let plain = SMALL - 6; // less those of handshake and end
    let (mut arrived, mut next, mut sent) = (vec![false; answer], 0, 0);
    for (count, (_, _, index)) in places.into_iter().enumerate() {
        packets.push(server(ACK, (1 + index * PAYLOAD) as u32, request, PAYLOAD));
        arrived[index] = true;
        while arrived.get(next) == Some(&true) {
            next += 1;
        }
        if (count + 1) * plain / answer > sent {
            sent += 1;
            packets.push(client(ACK, request, (1 + next * PAYLOAD) as u32, 0));
        }
    }
    let end = 1 + SERVER_BYTES as u32;
    packets.push(server(FIN | ACK, end, request, 0));
    packets.push(client(FIN | ACK, request, end + 1, 0));
    packets.push(server(ACK, end + 1, request + 1, 0));
    packets
}

/// So many connections at once, with random addresses and ports, whose packets come in a random order of connections.
pub(crate) fn http(connections: usize, late: bool) -> Frames {
    let mut random = Random(17);
    let mut places: Vec<usize> = (0..connections).collect();
    let mut live: Vec<_> = (0..connections)
        .map(|_| {
            let packets = script(late, &mut random);
            let [a, b] = [random.next(), random.next()];
            // Of networks that are in use; ports that are not reserved.
            let address = |bits: u64| Ipv4Addr::from(0x0b00_0000 + (bits as u32 & 0x3fff_ffff));
            let port = |bits: u64| (bits >> 32) as u16 | 0x400;
            let ends = Ends([(address(a), port(a)), (address(b), port(b))]);
            (ends, [random.next() as u32, random.next() as u32], packets.into_iter())
        })
        .collect();
    let data: Vec<u8> = (0..1 << 13).flat_map(|_| random.next().to_le_bytes()).collect();
    let mut frames = Frames::with_room(connections * (DATA * 1536 + SMALL * ALIGN));
    frames.places.reserve(connections * PACKETS);
    let mut time_ns = START_NS;
    while !places.is_empty() {
        let at = random.below(places.len());
        let (ends, initial, packets) = &mut live[places[at]];
        let Some(segment) = packets.next() else {
            places.swap_remove(at);
            continue;
        };
        let [own, other] = [initial[segment.from], initial[1 - segment.from]];
        let acknowledgment = match segment.flags & ACK {
            0 => 0,
            _ => other.wrapping_add(segment.acknowledgment),
        };
        let sequence = own.wrapping_add(segment.sequence);
        let frame = frames.push((HEADERS + segment.len).max(FRAME_MIN), time_ns);
        let from = random.below(data.len() - PAYLOAD);
        frame[HEADERS..HEADERS + segment.len].copy_from_slice(&data[from..from + segment.len]);
        write(frame, ends, &Segment { sequence, acknowledgment, ..segment });
        time_ns += STEP_NS;
    }
    frames
}

/// UDP packets of one size, between changing ports.
pub(crate) fn udp(count: usize, size: usize) -> Frames {
    let mut frames = Frames::with_room(count * size.next_multiple_of(ALIGN));
    for at in 0..count {
        let frame = frames.push(size, START_NS + at as u64 * STEP_NS);
        frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        frame[12..ETHERNET].copy_from_slice(&[0x08, 0x00]);
        let datagram = &mut frame[ETHERNET..];
        let addresses = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::from(0x0b00_0000 | at as u32)];
        let header = Ipv4Header::new(addresses[0], addresses[1], IpProtocol::UDP);
        let bytes = datagram.len() - ipv4::HEADER_LEN;
        header.emit(bytes, datagram);
        let [source, destination] = udp_ports(at);
        datagram[ipv4::HEADER_LEN..][..2].copy_from_slice(&source.to_be_bytes());
        datagram[ipv4::HEADER_LEN + 2..][..2].copy_from_slice(&destination.to_be_bytes());
        datagram[ipv4::HEADER_LEN + 4..][..2].copy_from_slice(&(bytes as u16).to_be_bytes());
    }
    frames
}

/// Source and destination of packet `at` of [`udp`].
pub(crate) fn udp_ports(at: usize) -> [u16; 2] {
    [1024 | at as u16, 53]
}

/// Small frames of equal size, which are written anew for each pass.
pub(crate) struct Small {
    bytes: Vec<u8>,
    /// Where the first cache line begins.
    skip: usize,
}

/// Data of a small frame.
pub(crate) const SMALL_DATA: usize = FRAME_MIN - HEADERS;

impl Small {
    pub(crate) fn new(frames: usize) -> Self {
        let bytes = vec![0x61; (frames + 1) * ALIGN];
        let skip = bytes.as_ptr().align_offset(ALIGN);
        Self { bytes, skip }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() / ALIGN - 1
    }

    #[inline(always)]
    pub(crate) fn get(&self, at: usize) -> &[u8] {
        &self.bytes[self.skip + at * ALIGN..][..FRAME_MIN]
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> &mut [u8] {
        &mut self.bytes[self.skip + at * ALIGN..][..FRAME_MIN]
    }
}

/// The ends of flow `number`, different ones for different numbers, the server's address and ports at random.
pub(crate) fn ends(number: usize) -> Ends {
    let mixed = Random(number as u64).next();
    let client =
        Ipv4Addr::from(0x0a00_0000 | (number as u32).wrapping_mul(0x9e37_79b1) & 0xff_ffff);
    let server = Ipv4Addr::from(0x1000_0000 | mixed as u32 & 0x0fff_ffff);
    let ports = [1024 + (number >> 24) as u16, 1024 | (mixed >> 32) as u16];
    Ends([(client, ports[0]), (server, ports[1])])
}

/// Packets of a connection of [`short_http`].
pub(crate) const SHORT_PACKETS: usize = 8;

/// Connections one after the other: handshake, a request with its answer, and the end.
pub(crate) fn short_http(connections: usize) -> Frames {
    const REQUEST: &[u8] =
        b"GET /index.html HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: bench\r\n\r\n";
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let (ask, answer) = (REQUEST.len() as u32, ANSWER.len() as u32);
    let mut frames = Frames::with_room(connections * SHORT_PACKETS * 3 * ALIGN);
    let mut time_ns = START_NS;
    for number in 0..connections as u32 {
        let client = Ipv4Addr::from_bits(0x0a00_0000 + number / 32_768);
        let ends =
            Ends([(client, 1024 + (number % 32_768) as u16), (Ipv4Addr::new(192, 0, 2, 1), 80)]);
        // Who sends, its flags, sequence and acknowledgment, and bytes.
        let segments: [(usize, u16, u32, u32, &[u8]); SHORT_PACKETS] = [
            (0, SYN, 0, 0, b""),
            (1, SYN | ACK, 0, 1, b""),
            (0, ACK, 1, 1, b""),
            (0, PSH | ACK, 1, 1, REQUEST),
            (1, PSH | ACK, 1, 1 + ask, ANSWER),
            (1, FIN | ACK, 1 + answer, 1 + ask, b""),
            (0, FIN | ACK, 1 + ask, 2 + answer, b""),
            (1, ACK, 2 + answer, 2 + ask, b""),
        ];
        for (from, flags, sequence, acknowledgment, bytes) in segments {
            let len = bytes.len();
            let frame = frames.push(FRAME_MIN.max(HEADERS + len), time_ns);
            frame[HEADERS..HEADERS + len].copy_from_slice(bytes);
            write(frame, &ends, &Segment { from, flags, sequence, acknowledgment, len });
            time_ns += STEP_NS;
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_the_packets_of_the_paper() {
        for late in [false, true] {
            let script = script(late, &mut Random(3));
            assert_eq!(script.len(), PACKETS);
            assert_eq!(script.iter().filter(|packet| packet.len == PAYLOAD).count(), DATA);
            let bytes: usize = script.iter().map(|packet| packet.len).sum();
            assert_eq!(bytes as u64, CLIENT_BYTES + SERVER_BYTES);
            let server = script.iter().filter(|packet| packet.from == 1 && packet.len > 0);
            let numbers: Vec<u32> = server.map(|packet| packet.sequence).collect();
            let behind = numbers.windows(2).filter(|pair| pair[1] < pair[0]).count();
            assert_eq!(behind > 0, late);
        }
    }

    #[test]
    fn frames_are_what_they_say() {
        let frames = http(3, false);
        assert_eq!(frames.len(), 3 * PACKETS);
        for at in 0..frames.len() {
            let (frame, _) = frames.get(at);
            let decoded = packet::decode::decode(frame, frame.len());
            assert!(matches!(decoded.anomaly, packet::Anomaly::None), "{:?}", decoded.anomaly);
            assert!(frame.len() == FRAME_MIN || frame.len() == 1514);
        }
    }
}
