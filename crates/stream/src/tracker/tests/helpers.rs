//! FTP sessions through the tracker: what is related, in batches, whatever is dropped, and by a plain model.

use std::net::IpAddr;

use packet::ipv4::Ipv4Header;
use packet::ipv6::Ipv6Header;
use packet::tcp::{TcpHeader, flags};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::helper::{self, TIMEOUT_NS};

use flags::{ACK, SYN};

/// Client, server, and a third host.
const V4: [&str; 3] = ["192.0.2.1", "198.51.100.2", "203.0.113.3"];
const V6: [&str; 3] = ["2001:db8::1", "2001:db8:1::2", "2001:db8:2::3"];

/// What a frame is, for the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Note {
    Nothing,
    /// It ends the announcement of a connection from one host to a port of another one.
    Announces((usize, usize, u16)),
    /// It opens one.
    Opens((usize, usize, u16)),
}

struct Written {
    bytes: Vec<u8>,
    time_ns: u64,
    note: Note,
}

/// A connection between two hosts.
struct Wire {
    hosts: [usize; 2],
    ports: [u16; 2],
    next: [u32; 2],
}

struct Talk {
    is_v6: bool,
    now_ns: u64,
    frames: Vec<Written>,
    control: Wire,
    ports: u16,
}

impl Talk {
    fn new(is_v6: bool) -> Self {
        let control = Wire { hosts: [0, 1], ports: [40_000, 21], next: [100, 200] };
        let mut talk = Self { is_v6, now_ns: 1 << 60, frames: Vec::new(), control, ports: 50_000 };
        talk.control_packet(0, SYN, b"", Note::Nothing);
        talk.control_packet(1, SYN | ACK, b"", Note::Nothing);
        talk.control_packet(0, ACK, b"", Note::Nothing);
        talk
    }

    fn address(&self, host: usize) -> IpAddr {
        if self.is_v6 { V6[host] } else { V4[host] }.parse().unwrap()
    }

    fn packet(&mut self, wire: &mut Wire, side: usize, bits: u16, payload: &[u8], note: Note) {
        let header = TcpHeader {
            src_port: wire.ports[side],
            dst_port: wire.ports[1 - side],
            sequence: wire.next[side],
            acknowledgment: if bits & ACK != 0 { wire.next[1 - side] } else { 0 },
            flags: bits,
            window: u16::MAX,
            ..TcpHeader::default()
        };
        let mut segment = vec![0; 20];
        segment.extend_from_slice(payload);
        header.emit(0, &mut segment).unwrap();
        wire.next[side] =
            wire.next[side].wrapping_add(payload.len() as u32 + u32::from(bits & SYN != 0));
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        match wire.hosts.map(|host| self.address(host)) {
            [IpAddr::V4(a), IpAddr::V4(b)] => {
                let (src, dst) = if side == 0 { (a, b) } else { (b, a) };
                bytes.extend([8, 0]);
                bytes.resize(34, 0);
                let header = Ipv4Header::new(src, dst, IpProtocol::TCP);
                header.emit(segment.len(), &mut bytes[14..]).unwrap();
            }
            [IpAddr::V6(a), IpAddr::V6(b)] => {
                let (src, dst) = if side == 0 { (a, b) } else { (b, a) };
                bytes.extend([0x86, 0xdd]);
                bytes.resize(54, 0);
                let header = Ipv6Header::new(src, dst, IpProtocol::TCP);
                header.emit(segment.len(), &mut bytes[14..]).unwrap();
            }
            _ => unreachable!("both are of one family"),
        }
        bytes.extend_from_slice(&segment);
        self.now_ns += 1_000_000;
        self.frames.push(Written { bytes, time_ns: self.now_ns, note });
    }

    fn control_packet(&mut self, side: usize, bits: u16, payload: &[u8], note: Note) {
        let Wire { hosts, ports, next } = self.control;
        let mut wire = Wire { hosts, ports, next };
        self.packet(&mut wire, side, bits, payload, note);
        self.control = wire;
    }

    /// A line in segments of so many bytes; the last one has the note.
    fn say(&mut self, side: usize, line: &str, size: usize, note: Note) {
        let bytes = format!("{line}\r\n").into_bytes();
        let pieces = bytes.chunks(size).count();
        for (at, piece) in bytes.chunks(size).enumerate() {
            let note = if at + 1 == pieces { note } else { Note::Nothing };
            self.control_packet(side, ACK, piece, note);
        }
    }

    /// A connection to a port, which answers.
    fn connect(&mut self, (from, to, port): (usize, usize, u16)) {
        self.ports += 1;
        let mut wire = Wire { hosts: [from, to], ports: [self.ports, port], next: [7, 9] };
        self.packet(&mut wire, 0, SYN, b"", Note::Opens((from, to, port)));
        self.packet(&mut wire, 1, SYN | ACK, b"", Note::Nothing);
        self.packet(&mut wire, 0, ACK, b"", Note::Nothing);
        self.packet(&mut wire, 0, ACK, b"data", Note::Nothing);
    }

    /// The client waits at a port of `host`, as it says.
    fn active(&mut self, host: usize, port: u16, size: usize) {
        let [high, low] = port.to_be_bytes();
        let line = match self.address(host) {
            IpAddr::V4(own) if port.is_multiple_of(2) => {
                let [a, b, c, d] = own.octets();
                format!("PORT {a},{b},{c},{d},{high},{low}")
            }
            own => format!("EPRT |{}|{own}|{port}|", if self.is_v6 { 2 } else { 1 }),
        };
        let is_right = host == 0 && port >= 1024;
        let note = if is_right { Note::Announces((1, 0, port)) } else { Note::Nothing };
        self.say(0, &line, size, note);
    }

    /// The server waits at a port of `host`, as it says.
    fn passive(&mut self, host: usize, port: u16, size: usize) {
        let [high, low] = port.to_be_bytes();
        let (line, is_own) = match self.address(host) {
            IpAddr::V4(own) if port.is_multiple_of(2) => {
                let [a, b, c, d] = own.octets();
                (format!("227 Entering Passive Mode ({a},{b},{c},{d},{high},{low})."), host == 1)
            }
            _ => (format!("229 Entering Extended Passive Mode (|||{port}|)"), true),
        };
        let is_right = is_own && port >= 1024;
        let note = if is_right { Note::Announces((0, 1, port)) } else { Note::Nothing };
        self.say(1, &line, size, note);
    }
}

type Said = (PacketState, bool);

fn run(
    frames: &[Written],
    (batch, overtaking): (usize, Overtaking),
    drops: impl Fn(usize) -> bool,
) -> (Vec<Said>, helper::Counts) {
    let timeouts = IdleTimeouts {
        tcp_established: u64::MAX,
        tcp_unacknowledged: u64::MAX,
        ..IdleTimeouts::default()
    };
    let options = Options {
        confirms: true,
        helpers: helper::Options { ftp_ports: &[2121, 21] },
        ..options(timeouts)
    };
    let mut tracker = Tracker::new(options, Ears::default()).unwrap();
    tracker.let_overtake(overtaking);
    let mut said: Vec<Said> = vec![(PacketState::Untracked, false); frames.len()];
    let decode = |own: &Written| packet::decode(&own.bytes, own.bytes.len());
    let decoded: Vec<_> = frames.iter().map(decode).collect();
    for first in (0..frames.len()).step_by(batch) {
        let mut left: Vec<usize> = (first..frames.len().min(first + batch)).collect();
        while !left.is_empty() {
            let mut decides = Vec::new();
            let input = |at: usize| Input {
                decoded: &decoded[left[at]],
                frame: &frames[left[at]].bytes,
                frame_len: frames[left[at]].bytes.len() as u32,
                time_ns: frames[left[at]].time_ns,
                port: 3,
                checksums: false,
                tunnels: None,
                segment: None,
            };
            let taken = tracker.packets(left.len(), input, |at, tracked| {
                said[left[at]] = (tracked.state, tracked.is_reply);
                decides.extend(tracked.opens.map(|flow| (left[at], flow)));
            });
            for (at, flow) in decides {
                tracker.decide(flow, !drops(at));
            }
            let waiting = tracker.waiting().iter().map(|at| left[*at as usize]);
            let rest: Vec<_> = waiting.chain(left[taken..].iter().copied()).collect();
            assert!(rest.len() < left.len(), "what waited has been decided");
            left = rest;
        }
    }
    let counts = tracker.helper_counts();
    tracker.finish(frames[frames.len() - 1].time_ns);
    assert_eq!((tracker.len(), tracker.buffered_bytes()), (0, 0));
    (said, counts)
}

/// One step of a session.
#[derive(Clone, Copy, Debug)]
enum Act {
    Active { host: usize, port: u16 },
    Passive { host: usize, port: u16 },
    Connect { from: usize, to: usize, port: u16 },
    Chat,
    Pause,
}

fn act() -> impl Strategy<Value = (Act, usize)> {
    let port = || prop_oneof![6 => 2000_u16..2004, 1 => Just(80), 1 => Just(1023)];
    let host = |own: usize| prop_oneof![5 => Just(own), 1 => 0_usize..3];
    let act = prop_oneof![
        3 => (host(0), port()).prop_map(|(host, port)| Act::Active { host, port }),
        3 => (host(1), port()).prop_map(|(host, port)| Act::Passive { host, port }),
        6 => (0_usize..3, 1_usize..3, port())
            .prop_map(|(from, by, port)| Act::Connect { from, to: (from + by) % 3, port }),
        1 => Just(Act::Chat),
        1 => Just(Act::Pause),
    ];
    (act, 1_usize..60)
}

fn session(is_v6: bool, acts: &[(Act, usize)]) -> Vec<Written> {
    let mut talk = Talk::new(is_v6);
    for &(act, size) in acts {
        match act {
            Act::Active { host, port } => talk.active(host, port, size),
            Act::Passive { host, port } => talk.passive(host, port, size),
            Act::Connect { from, to, port } => talk.connect((from, to, port)),
            Act::Chat => {
                talk.say(0, "NOOP PORT 192,0,2,1,7,208", size, Note::Nothing);
                talk.say(1, "200 227 (198,51,100,2,7,208)", size, Note::Nothing);
            }
            Act::Pause => talk.now_ns += TIMEOUT_NS / 2 + 1,
        }
    }
    talk.frames
}

/// Which connections are announced when they come, by what was said before in packets that got through.
fn model(frames: &[Written], drops: impl Fn(usize) -> bool) -> Vec<(usize, PacketState)> {
    let (mut expected, mut all) = (None, Vec::new());
    for (at, frame) in frames.iter().enumerate() {
        match frame.note {
            Note::Announces(own) if !drops(at) => expected = Some((own, frame.time_ns)),
            Note::Opens(own) => {
                let is_it = |(announced, time_ns): &((usize, usize, u16), u64)| {
                    *announced == own && frame.time_ns - time_ns <= TIMEOUT_NS
                };
                let is_related = expected.as_ref().is_some_and(is_it);
                if expected.as_ref().is_some_and(|known| known.0 == own) {
                    expected = None;
                }
                all.push((at, if is_related { PacketState::Related } else { PacketState::New }));
            }
            _ => {}
        }
    }
    all
}

fn check(is_v6: bool, acts: &[(Act, usize)], salt: u64) {
    let frames = session(is_v6, acts);
    // The control connection itself is not dropped at its beginning.
    let drops =
        |at: usize| salt != 0 && at > 2 && chunk::hash::key64(at as u64, salt).is_multiple_of(4);
    let (said, counts) = run(&frames, (1, Overtaking::None), drops);
    for (at, state) in model(&frames, drops) {
        assert_eq!(said[at].0, state, "frame {at}");
    }
    for size in [2, 7, 64] {
        for overtaking in [Overtaking::None, Overtaking::OtherHosts, Overtaking::OtherFlows] {
            let found = run(&frames, (size, overtaking), drops);
            assert_eq!(found, (said.clone(), counts), "batches of {size}, {overtaking:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(192) })]

    #[test]
    fn sessions_agree_with_the_model(
        is_v6 in any::<bool>(),
        acts in vec(act(), 1..24),
        salt in prop_oneof![1 => Just(0), 1 => any::<u64>()],
    ) {
        check(is_v6, &acts, salt);
    }
}

/// Both modes, both families, all four forms; the answer is established.
#[test]
fn a_data_connection_is_related() {
    for is_v6 in [false, true] {
        for port in [2000, 2001] {
            for size in [1, 7, 1000] {
                for is_active in [false, true] {
                    let (act, from) = match is_active {
                        true => (Act::Active { host: 0, port }, 1),
                        false => (Act::Passive { host: 1, port }, 0),
                    };
                    let connect = Act::Connect { from, to: 1 - from, port };
                    let frames = session(is_v6, &[(act, size), (connect, 1), (connect, 1)]);
                    let (said, counts) = run(&frames, (64, Overtaking::OtherFlows), |_| false);
                    use PacketState::{Established, New, Related};
                    let of = |first| {
                        [
                            (first, false),
                            (Established, true),
                            (Established, false),
                            (Established, false),
                        ]
                    };
                    let expected = [of(Related), of(New)].concat();
                    assert_eq!(said[said.len() - 8..], expected, "{act:?}, IPv6: {is_v6}");
                    let known =
                        helper::Counts { announced: 1, related: 1, ..helper::Counts::default() };
                    assert_eq!(counts, known);
                }
            }
        }
    }
}

/// Another host's address, and a port of a service (RFC 2577).
#[test]
fn nobody_announces_for_others() {
    for (act, to, port) in [
        (Act::Active { host: 2, port: 2000 }, 2, 2000),
        (Act::Active { host: 2, port: 2001 }, 2, 2001),
        (Act::Active { host: 0, port: 22 }, 0, 22),
    ] {
        let connect = Act::Connect { from: 1, to, port };
        let frames = session(false, &[(act, 100), (connect, 1)]);
        let (said, counts) = run(&frames, (64, Overtaking::OtherFlows), |_| false);
        assert_eq!(said[said.len() - 4], (PacketState::New, false), "{act:?}");
        assert_eq!(counts, helper::Counts { refused: 1, ..helper::Counts::default() });
    }
}

/// What the end of a control connection announced ends with it; a connection says which one announced it.
#[test]
fn a_connection_knows_what_it_is_related_to() {
    let mut talk = Talk::new(false);
    talk.passive(1, 2000, 100);
    talk.connect((0, 1, 2000));
    talk.passive(1, 2002, 100);
    talk.control_packet(1, flags::RST | ACK, b"", Note::Nothing);
    talk.now_ns += 2 * IDLE_NS;
    talk.control_packet(0, SYN, b"", Note::Nothing);
    talk.connect((0, 1, 2002));
    let options = Options {
        confirms: true,
        helpers: helper::Options { ftp_ports: &[21] },
        ..options(IdleTimeouts::default())
    };
    let mut tracker = Tracker::new(options, Ears::default()).unwrap();
    let mut states = Vec::new();
    for frame in &talk.frames {
        let decoded = packet::decode(&frame.bytes, frame.bytes.len());
        let input = |_| Input {
            decoded: &decoded,
            frame: &frame.bytes,
            frame_len: frame.bytes.len() as u32,
            time_ns: frame.time_ns,
            port: 0,
            checksums: false,
            tunnels: None,
            segment: None,
        };
        let mut last = Tracked::default();
        tracker.packets(1, input, |_, own| last = own);
        last.opens.into_iter().for_each(|flow| tracker.decide(flow, true));
        states.push(last.state);
        if states.len() == 9 {
            let mut all = Vec::new();
            tracker.visit_connections(0, 10, &mut |flow| all.push(flow));
            let of = |port| all.iter().find(|own| own.record.server_port == port).unwrap();
            assert_eq!(of(2000).announced_by, Some(of(21).record.id));
            assert_eq!(of(21).announced_by, None);
        }
    }
    let opened: Vec<_> = talk
        .frames
        .iter()
        .zip(&states)
        .filter(|(frame, _)| matches!(frame.note, Note::Opens(_)))
        .map(|(_, state)| *state)
        .collect();
    assert_eq!(opened, [PacketState::Related, PacketState::New]);
    assert_eq!(tracker.helper_counts().expected, 0);
}
