//! Conversations, written as frames: TCP, UDP, ICMP queries, errors about any of them, and GRE between a few hosts, some of it
//! fragmented or damaged.

use packet::checksum::{pseudo_header_v4, pseudo_header_v6};
use packet::fragment::Fragmenter;
use packet::icmpv4::Icmpv4Header;
use packet::icmpv6::Icmpv6Header;
use packet::ipv4::Ipv4Header;
use packet::ipv6::Ipv6Header;
use packet::query::Query;
use packet::tcp::{TcpHeader, flags};
use packet::udp::UdpHeader;

use std::net::{Ipv4Addr, Ipv6Addr};

use super::super::*;
use super::steps::{Fate, Step};

/// When the first packet comes.
const START_NS: u64 = 1_700_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

/// A frame as it comes.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub bytes: Vec<u8>,
    pub time_ns: u64,
}

/// A packet, whole, when its last fragment comes.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub bytes: Vec<u8>,
    pub time_ns: u64,
    pub key: FlowKey,
    pub side: Side,
    /// Frames that it came in, and their bytes.
    pub frames: (u64, u64),
    /// Of an ICMP error that came whole: what it quotes.
    pub about: Option<About>,
}

/// The flow of a packet that an ICMP error quotes, which side sent the packet, and its sequence number if it is of TCP.
pub(super) type About = (FlowKey, Side, Option<u32>);

/// What comes, and what it is.
#[derive(Debug, Default)]
pub(super) struct Scene {
    pub frames: Vec<Frame>,
    /// Those that are of flows.
    pub packets: Vec<Packet>,
    /// What the others are counted as.
    pub counts: Counts,
}

impl Scene {
    pub(super) fn new(steps: &[Step]) -> Self {
        let mut writer = Writer { now_ns: START_NS, ..Writer::default() };
        writer.conversations.resize_with(256, Conversation::default);
        for step in steps {
            writer.now_ns += step.pause_ns;
            writer.step(step);
            writer.fragment();
        }
        while !writer.waiting.is_empty() {
            writer.fragment();
        }
        writer.scene
    }

    pub(super) fn latest_ns(&self) -> u64 {
        self.frames.last().map_or(0, |frame| frame.time_ns)
    }
}

/// Sequence numbers of a TCP conversation, client first.
#[derive(Clone, Default)]
struct Conversation {
    next: [u32; 2],
}

/// A fragment that comes later.
struct Waiting {
    bytes: Vec<u8>,
    datagram: usize,
}

/// A datagram whose fragments come.
struct Datagram {
    packet: Packet,
    first_ns: Option<u64>,
    timeout_ns: u64,
    came: u64,
    is_lost: bool,
}

#[derive(Default)]
struct Writer {
    scene: Scene,
    now_ns: u64,
    conversations: Vec<Conversation>,
    datagrams: Vec<Datagram>,
    waiting: Vec<Waiting>,
    serial: u32,
}

/// Where a packet goes.
#[derive(Clone, Copy)]
struct Way {
    conversation: u8,
    by_server: bool,
    fate: Fate,
}

impl Way {
    fn pair(self) -> u8 {
        self.conversation / 5 % 6
    }

    fn is_v6(self) -> bool {
        self.pair() % 3 == 2
    }

    /// Addresses of client and server.
    fn hosts(self) -> [[u64; 2]; 2] {
        let pair = u64::from(self.pair());
        match self.is_v6() {
            true => [[0x2001_0db8 << 32, 9 - pair], [0x2001_0db8 << 32, 5]],
            false => [[0, 0x0a00_0005 + pair], [0, 0x0a00_0007]],
        }
    }

    fn ports(self) -> [u16; 2] {
        [1024 + u16::from(self.conversation), 80]
    }

    fn key(self, protocol: IpProtocol, ports: [u16; 2]) -> (FlowKey, Side) {
        let [client, server] = self.hosts();
        let (client, server) = ((client, ports[0]), (server, ports[1]));
        let family = if self.is_v6() { 6 } else { 4 };
        match self.by_server {
            false => FlowKey::new(client, server, protocol.0, family, 0),
            true => FlowKey::new(server, client, protocol.0, family, 0),
        }
    }

    /// Source and destination.
    fn addresses(self) -> [[u64; 2]; 2] {
        let [client, server] = self.hosts();
        if self.by_server { [server, client] } else { [client, server] }
    }

    fn pseudo(self, protocol: IpProtocol, len: usize) -> u32 {
        match self.is_v6() {
            true => {
                let [src, dst] = v6(self.addresses());
                pseudo_header_v6(src, dst, protocol, len as u32)
            }
            false => {
                let [src, dst] = v4(self.addresses());
                pseudo_header_v4(src, dst, protocol, len as u16)
            }
        }
    }
}

fn v4(addresses: [[u64; 2]; 2]) -> [Ipv4Addr; 2] {
    addresses.map(|[_, low]| Ipv4Addr::from_bits(low as u32))
}

fn v6(addresses: [[u64; 2]; 2]) -> [Ipv6Addr; 2] {
    addresses.map(|[high, low]| Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)))
}

/// An IP header from the first to the second address.
fn header(addresses: [[u64; 2]; 2], protocol: IpProtocol, len: usize, serial: u32) -> Vec<u8> {
    if addresses[0][0] != 0 {
        let mut header = vec![0; 40];
        let [src, dst] = v6(addresses);
        Ipv6Header::new(src, dst, protocol).emit(len, &mut header).unwrap();
        return header;
    }
    let mut header = vec![0; 20];
    let [src, dst] = v4(addresses);
    let own = Ipv4Header {
        identification: serial as u16,
        dont_fragment: false,
        ..Ipv4Header::new(src, dst, protocol)
    };
    own.emit(len, &mut header).unwrap();
    header
}

/// Writes the header of an ICMP message; its protocol.
fn emit(
    addresses: [[u64; 2]; 2],
    (kind, code, parameter): (u8, u8, u32),
    message: &mut [u8],
) -> IpProtocol {
    if addresses[0][0] != 0 {
        let [src, dst] = v6(addresses);
        Icmpv6Header { kind, code, parameter }.emit(src, dst, message).unwrap();
        return IpProtocol::ICMPV6;
    }
    Icmpv4Header { kind, code, parameter }.emit(message).unwrap();
    IpProtocol::ICMP
}

fn bytes(len: u16, salt: u32) -> impl Iterator<Item = u8> {
    (0..u32::from(len)).map(move |at| (at.wrapping_add(salt).wrapping_mul(0x9e37_79b1) >> 24) as u8)
}

impl Writer {
    fn step(&mut self, step: &Step) {
        let Step { conversation, by_server, fate, .. } = *step;
        let way = Way { conversation, by_server, fate };
        match conversation % 5 {
            0 | 1 => self.tcp_step(way, step),
            2 => {
                let mut datagram = vec![0; 8];
                datagram.extend(bytes(step.len, self.serial));
                let [mut src_port, mut dst_port] = way.ports();
                if by_server {
                    (src_port, dst_port) = (dst_port, src_port);
                }
                let pseudo = way.pseudo(IpProtocol::UDP, datagram.len());
                UdpHeader { src_port, dst_port }.emit(Some(pseudo), &mut datagram).unwrap();
                self.send(way, IpProtocol::UDP, way.ports(), &datagram);
            }
            3 => self.icmp(way, step),
            _ => {
                let payload: Vec<u8> = bytes(step.len + 8, self.serial).collect();
                self.send(way, IpProtocol(47), [0, 0], &payload);
            }
        }
    }

    /// A query, its answer, an error about another conversation of the hosts, or a message that has no answer.
    fn icmp(&mut self, way: Way, step: &Step) {
        match step.what {
            0..=2 => return self.error(way, step),
            3 => return self.message(way, ([9, 139], 0), None, step.len),
            _ => {}
        }
        // Conversations of one pair have the same identifiers.
        let id = u16::from(way.pair() % 2) + 1;
        let kinds = [[8, 0], [13, 14], [15, 16], [17, 18]];
        let kind = kinds[usize::from(step.what % 4)][usize::from(way.by_server)];
        let kind_v6 = 128 + u8::from(way.by_server);
        self.message(way, ([kind, kind_v6], 0), Some(id), step.len);
    }

    /// A message of this type, in IPv4 and IPv6, and code.
    fn message(&mut self, way: Way, (kinds, code): ([u8; 2], u8), id: Option<u16>, len: u16) {
        let kind = kinds[usize::from(way.is_v6())];
        let parameter = id.map_or(0, |id| u32::from(id) << 16) | self.serial & 0xffff;
        let mut message = vec![0; 8];
        message.extend(bytes(len, self.serial));
        let protocol = emit(way.addresses(), (kind, code, parameter), &mut message);
        let (key, side) = way.key(protocol, [id.unwrap_or(0); 2]);
        let key = match Query::of(protocol, kind) {
            Some((query, _)) => key.of_query(query, None),
            None => key.of_message(kind, code, side),
        };
        self.send_of(way, (protocol, way.addresses()), (key, side, None), &message);
    }

    /// An error about a packet of another conversation of the hosts, from the other one of them or from a router.
    fn error(&mut self, way: Way, step: &Step) {
        let about = Way {
            conversation: way.conversation - 3 + step.what, // two of TCP, and one of UDP
            by_server: !way.by_server,
            ..way
        };
        let [mut src, mut dst] = about.ports();
        if about.by_server {
            (src, dst) = (dst, src);
        }
        let next = self.conversations[usize::from(about.conversation)].next;
        let sequence = next[usize::from(about.by_server)].wrapping_sub(u32::from(step.len % 3));
        let (protocol, sequence) = match step.what {
            2 => (IpProtocol::UDP, None),
            _ => (IpProtocol::TCP, Some(sequence)),
        };
        let (key, side) = about.key(protocol, about.ports());
        let mut quoted = header(about.addresses(), protocol, 40, 7);
        quoted.extend([src, dst].iter().flat_map(|port| port.to_be_bytes()));
        quoted.extend(sequence.unwrap_or(8).to_be_bytes());
        let mut addresses = way.addresses();
        if step.len % 2 == 1 {
            addresses[0][1] += 0x100;
        }
        let kind = [[3, 1], [11, 3]][usize::from(step.len % 4 / 2)][usize::from(way.is_v6())];
        let mut message = vec![0; 8];
        message.extend(quoted);
        message.extend(bytes(step.len / 3, self.serial));
        let own = emit(addresses, (kind, 0, 0), &mut message);
        let [from, to] = addresses.map(|address| (address, 0));
        let (own_key, own_side) = FlowKey::new(from, to, own.0, if way.is_v6() { 6 } else { 4 }, 0);
        let own_key = own_key.of_message(kind, 0, own_side);
        let about = Some((key, side, sequence));
        self.send_of(way, (own, addresses), (own_key, own_side, about), &message);
    }

    fn tcp_step(&mut self, way: Way, step: &Step) {
        use flags::{ACK, FIN, RST, SYN};
        let good = |by_server| Way { by_server, fate: Fate::Good, ..way };
        let from = usize::from(way.by_server);
        match step.what {
            0..=2 => {
                // Perhaps another connection with the same ports.
                let first = self.serial.wrapping_mul(0x0101_0101);
                self.conversations[usize::from(way.conversation)].next = [first, first ^ 0x8000];
                self.tcp(good(false), SYN, 0, 0);
                if step.what < 2 {
                    self.tcp(good(true), SYN | ACK, 0, 0);
                    self.tcp(Way { by_server: false, ..way }, ACK, 0, 0);
                }
            }
            3..=7 => self.tcp(way, ACK, step.len, 0),
            8 => {
                // The second half first.
                let half = step.len / 2 + 1;
                self.tcp(good(way.by_server), ACK, half, i32::from(half));
                self.tcp(way, ACK, half, -i32::from(half));
                let next = &mut self.conversations[usize::from(way.conversation)].next[from];
                *next = next.wrapping_add(u32::from(half));
            }
            9 => {
                // A segment again, perhaps longer or shorter.
                let next = self.conversations[usize::from(way.conversation)].next[from];
                self.tcp(way, ACK, step.len, -i32::from(step.len / 2));
                self.conversations[usize::from(way.conversation)].next[from] = next;
            }
            10 => {
                // A hole.
                self.tcp(way, ACK, step.len, 20);
            }
            11 => self.tcp(way, ACK | FIN, 0, 0),
            12 => {
                self.tcp(good(way.by_server), ACK | FIN, 0, 0);
                self.tcp(good(!way.by_server), ACK | FIN, 0, 0);
                self.tcp(way, ACK, 0, 0);
            }
            _ => self.tcp(way, RST, 0, 0),
        }
    }

    /// A segment with `len` bytes, `ahead` of where its side is.
    fn tcp(&mut self, way: Way, bits: u16, len: u16, ahead: i32) {
        use flags::{ACK, FIN, SYN};
        let from = usize::from(way.by_server);
        let next = self.conversations[usize::from(way.conversation)].next;
        let sequence = next[from].wrapping_add_signed(ahead);
        let [mut src_port, mut dst_port] = way.ports();
        if way.by_server {
            (src_port, dst_port) = (dst_port, src_port);
        }
        let header = TcpHeader {
            src_port,
            dst_port,
            sequence,
            acknowledgment: if bits & ACK != 0 { next[1 - from] } else { 0 },
            flags: bits,
            window: u16::MAX,
            ..TcpHeader::default()
        };
        let mut segment = vec![0; 20];
        segment.extend(bytes(len, sequence));
        let pseudo = way.pseudo(IpProtocol::TCP, segment.len());
        header.emit(pseudo, &mut segment).unwrap();
        match way.fate {
            Fate::Checksum => segment[16] ^= 1,
            Fate::Header => segment.truncate(20),
            _ => {}
        }
        if way.fate == Fate::Header {
            segment[12] = 0xf0;
        }
        let numbers = u32::from(len) + u32::from(bits & SYN != 0) + u32::from(bits & FIN != 0);
        let end = sequence.wrapping_add(numbers);
        self.conversations[usize::from(way.conversation)].next[from] = end;
        self.send(way, IpProtocol::TCP, way.ports(), &segment);
        self.now_ns += u64::from(len % 2) * 1_000;
    }

    fn send(&mut self, way: Way, protocol: IpProtocol, ports: [u16; 2], upper: &[u8]) {
        let (key, side) = way.key(protocol, ports);
        self.send_of(way, (protocol, way.addresses()), (key, side, None), upper);
    }

    fn send_of(
        &mut self,
        way: Way,
        (protocol, addresses): (IpProtocol, [[u64; 2]; 2]),
        (key, side, about): (FlowKey, Side, Option<About>),
        upper: &[u8],
    ) {
        self.serial += 1;
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if way.conversation % 4 == 3 {
            frame.extend([0x81, 0, 0, way.conversation]);
        }
        let ip_at = frame.len() + 2;
        frame.extend(if way.is_v6() { [0x86, 0xdd] } else { [8, 0] });
        frame.extend(header(addresses, protocol, upper.len(), self.serial));
        frame.extend_from_slice(upper);
        let is_tcp = protocol == IpProtocol::TCP;
        let counts = &mut self.scene.counts;
        match way.fate {
            Fate::Checksum if is_tcp => counts.checksum += 1,
            Fate::Header if is_tcp => counts.malformed += 1,
            Fate::Ip => {
                counts.malformed += 1;
                frame[ip_at] ^= 0x30;
            }
            Fate::Cut => {
                counts.malformed += 1;
                frame.truncate(ip_at + 12);
            }
            Fate::NotIp => {
                counts.not_ip += 1;
                frame[ip_at - 2..ip_at].copy_from_slice(&[8, 6]);
            }
            Fate::Fragmented | Fate::FragmentLost if upper.len() > 64 => {
                return self.wait(way, frame, ip_at, (key, side));
            }
            _ => {
                let frames = (1, frame.len() as u64);
                let bytes = frame.clone();
                let time_ns = self.now_ns;
                let hash = packet::flow::quoted_hash(&bytes, &packet::decode(&bytes, bytes.len()));
                assert_eq!(hash.is_some(), about.is_some());
                let key = hash.map_or(key, |hash| key.quoting(hash));
                self.scene.packets.push(Packet { bytes, time_ns, key, side, frames, about });
            }
        }
        self.frame(frame);
    }

    fn frame(&mut self, bytes: Vec<u8>) {
        self.scene.frames.push(Frame { bytes, time_ns: self.now_ns });
    }

    /// Cuts a packet into fragments, which come later.
    fn wait(&mut self, way: Way, frame: Vec<u8>, ip_at: usize, (key, side): (FlowKey, Side)) {
        let mut fragments: Vec<Vec<u8>> = match way.is_v6() {
            true => fragments_v6(&frame, ip_at, self.serial),
            false => Fragmenter::new(&frame[ip_at..], 84)
                .unwrap()
                .map(|fragment| {
                    let payload = &frame[ip_at..][fragment.payload.clone()];
                    [&frame[..ip_at], fragment.header(), payload].concat()
                })
                .collect(),
        };
        if self.serial.is_multiple_of(2) {
            fragments.reverse();
        }
        if way.fate == Fate::FragmentLost {
            fragments.pop();
        }
        let datagram = self.datagrams.len();
        let total: usize = fragments.iter().map(Vec::len).sum();
        let frames = (fragments.len() as u64, total as u64);
        self.datagrams.push(Datagram {
            packet: Packet { bytes: frame, time_ns: 0, key, side, frames, about: None },
            first_ns: None,
            timeout_ns: if way.is_v6() { 60 * SECOND } else { 30 * SECOND },
            came: 0,
            is_lost: way.fate == Fate::FragmentLost,
        });
        let waiting = fragments.into_iter().map(|bytes| Waiting { bytes, datagram });
        self.waiting.extend(waiting);
    }

    /// The next fragment comes.
    fn fragment(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let at = self.serial as usize % self.waiting.len().min(3);
        let Waiting { bytes, datagram } = self.waiting.remove(at);
        let now_ns = self.now_ns;
        self.frame(bytes);
        let datagram = &mut self.datagrams[datagram];
        let first_ns = *datagram.first_ns.get_or_insert(now_ns);
        datagram.came += 1;
        if datagram.came < datagram.packet.frames.0 {
            return;
        }
        self.scene.counts.fragments += datagram.came;
        if datagram.is_lost || now_ns >= first_ns + datagram.timeout_ns {
            self.scene.counts.fragments_lost += datagram.came;
        } else {
            let packet = Packet { time_ns: now_ns, ..datagram.packet.clone() };
            self.scene.packets.push(packet);
        }
    }
}

fn fragments_v6(frame: &[u8], ip_at: usize, serial: u32) -> Vec<Vec<u8>> {
    let (head, upper) = frame.split_at(ip_at + 40);
    let pieces = upper.len().div_ceil(64);
    let piece = |(at, payload): (usize, &[u8])| {
        let mut frame = head.to_vec();
        let len = payload.len() as u16 + 8;
        frame[ip_at + 4..ip_at + 6].copy_from_slice(&len.to_be_bytes());
        frame[ip_at + 6] = 44;
        frame.extend([head[ip_at + 6], 0]);
        let offset = (at * 64) as u16 | u16::from(at + 1 < pieces);
        frame.extend(offset.to_be_bytes());
        frame.extend(serial.to_be_bytes());
        frame.extend_from_slice(payload);
        frame
    };
    upper.chunks(64).enumerate().map(piece).collect()
}
