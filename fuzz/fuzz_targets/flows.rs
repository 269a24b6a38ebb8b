//! Any frames at any time through the tracker of flows: each frame ends up in one record or one count, each flow is reported
//! once, and nothing is held at the end.
//!
//! The first byte chooses bounds. Each record behind it is: time since the last one, flags, length (2), and a frame of so
//! many bytes. The highest bit of the first time says that flows count once their first packet got through, as for a firewall,
//! with a helper for FTP; the next bit of a time, that the packet is dropped then. The bit 16 of the flags, otherwise, that tunnels
//! are looked into.
#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::checksum::Checksums;
use packet::{Decoded, ipv4, tunnel};
use stream::tcp::{End, Want};
use stream::tracker::{Identity, IdleTimeouts, Input, Module, Options, Tracker};
use stream::{FlowRecord, Side, defrag, helper, tcp};

/// Times between frames, in nanoseconds.
const PAUSES: [u64; 8] =
    [0, 1, 1_000, 1_500_000, 1_000_000_000, 60_000_000_001, 601_000_000_000, 5_000_000_000_000_000];

#[derive(Default)]
struct Reader {
    packets: u64,
    flows: u64,
    ids: Vec<(u64, u64)>,
}

#[derive(Default)]
struct State {
    offset: [u64; 2],
    ended: [bool; 2],
}

impl State {
    fn advance(&mut self, side: Side, offset: u64, bytes: u64) {
        let at = side.index();
        assert_eq!((offset, self.ended[at]), (self.offset[at], false));
        self.offset[at] += bytes;
    }
}

impl Module for Reader {
    type State = State;

    fn data(
        &mut self,
        _: &Identity,
        state: &mut State,
        side: Side,
        offset: u64,
        bytes: &[u8],
    ) -> Want {
        state.advance(side, offset, bytes.len() as u64);
        Want::More
    }

    fn gap(
        &mut self,
        _: &Identity,
        state: &mut State,
        side: Side,
        offset: u64,
        bytes: u64,
        _: u64,
    ) {
        state.advance(side, offset, bytes);
    }

    fn end_of_side(&mut self, _: &Identity, state: &mut State, side: Side, offset: u64, _: End) {
        state.advance(side, offset, 0);
        state.ended[side.index()] = true;
    }

    fn ended(&mut self, record: &FlowRecord, _: Side, state: &mut State, time_ns: u64) {
        assert_eq!(state.ended, [record.tcp.is_some(); 2]);
        assert!(record.start_ns <= record.end_ns && record.end_ns <= time_ns);
        let packets: u64 = record.sides.iter().map(|side| side.packets).sum();
        assert_ne!(packets, 0, "a flow without packets");
        self.packets += packets;
        self.flows += 1;
        self.ids.push((record.id, record.start_ns));
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, mut rest)) = bytes.split_first() else { return };
    let timeouts = IdleTimeouts { udp: 1_250_000, tcp_close: 0, ..IdleTimeouts::default() };
    let options = Options {
        flows: 1 + usize::from(choice & 7),
        half_open: 1 + usize::from(choice >> 3 & 7),
        timeouts: if choice & 64 != 0 { timeouts } else { IdleTimeouts::default() },
        tcp: tcp::Options { buffer_bytes: 16 << 10, ..tcp::Options::default() },
        defrag: defrag::Config {
            datagrams: 4,
            fragments: 16,
            bytes: 0,
            fragments_per_datagram: 8,
            ..defrag::Config::default()
        },
        by_vlan: choice & 128 != 0,
        tunnels: tunnel::Kinds::all(),
        seed: 1,
        confirms: rest.first().is_some_and(|time| time & 128 != 0),
        helpers: helper::Options { ftp_ports: &[21] },
        ..Options::default()
    };
    let Ok(mut tracker) = Tracker::new(options, Reader::default()) else { return };
    let mut now_ns = 1_700_000_000_000_000_000;
    let mut batch: Vec<Own> = Vec::new();
    let mut frames = 0;
    while let Some((record, behind)) = rest.split_first_chunk::<4>() {
        let [pause, flags, high, low] = *record;
        let len = usize::from(u16::from_be_bytes([high, low]));
        let (frame, behind) = behind.split_at(behind.len().min(len));
        rest = behind;
        now_ns += PAUSES[usize::from(pause % 8)];
        let mut frame = frame.to_vec();
        if flags & 1 == 0 && frame.len() >= 34 && frame[12..15] == [8, 0, 0x45] {
            ipv4::fill_checksum(&mut frame[14..]);
        }
        let mut decoded = packet::decode(&frame, frame.len());
        let mut inner = None;
        if flags & 16 != 0 && !options.confirms {
            let found = tunnel::inside(&frame, &decoded, &options.tunnels, Checksums::Verify);
            decoded = found.map_or(decoded, |found| found.decoded);
            inner = found.map(|found| (found.at, found.path));
        }
        batch.push(Own {
            frame,
            decoded,
            inner,
            time_ns: now_ns,
            checksums: flags & 2 != 0,
            is_dropped: pause & 64 != 0,
        });
        frames += 1;
        if flags & 4 == 0 {
            give(&mut tracker, &batch);
            batch.clear();
            if flags & 8 != 0 {
                tracker.sweep(usize::from(flags >> 4) + 1, now_ns);
            }
            assert!(tracker.len() <= options.flows);
            let mut seen = 0;
            assert_eq!(tracker.visit(0, usize::MAX, &mut |_| seen += 1), None);
            assert_eq!(seen, tracker.len());
            tracker.visit_connections(0, usize::MAX, &mut |flow| assert!(flow.is_confirmed));
        }
    }
    give(&mut tracker, &batch);
    tracker.finish(now_ns);
    assert!(tracker.is_empty() && tracker.buffered_bytes() == 0);
    let counts = tracker.counts();
    let rejected = counts.not_ip + counts.malformed + counts.checksum + counts.no_room;
    let known = counts.packets + rejected + counts.fragments_lost;
    // Of a firewall's tracker ICMP errors and what is not tracked are in none of these.
    assert!(known == frames || options.confirms && known < frames, "{counts:?}");
    let statistics = tracker.statistics();
    let evicted = statistics.evicted;
    let removed = statistics.evicted + statistics.expired + statistics.removed;
    assert_eq!(statistics.inserted, removed);
    let reader = tracker.module();
    if options.confirms {
        assert!(reader.packets <= counts.packets && reader.flows >= counts.flows);
    } else {
        assert_eq!(reader.packets, counts.packets);
        assert!(reader.flows >= removed);
    }
    reader.ids.sort_unstable();
    // Flows that are evicted and come again at once have the same number.
    assert!(evicted > 0 || reader.ids.windows(2).all(|pair| pair[0].0 != pair[1].0));
});

/// A frame, and what becomes of it if that matters.
struct Own {
    frame: Vec<u8>,
    decoded: Decoded,
    /// Where it is in the frame, in tunnels.
    inner: Option<(usize, tunnel::Path)>,
    time_ns: u64,
    checksums: bool,
    is_dropped: bool,
}

/// A batch goes on where it stopped, once what was before is decided.
fn give(tracker: &mut Tracker<Reader>, batch: &[Own]) {
    let mut first = 0;
    while first < batch.len() {
        let mut decides = Vec::new();
        let input = |at: usize| {
            let own = &batch[first + at];
            Input {
                decoded: &own.decoded,
                frame: &own.frame[own.inner.map_or(0, |(at, _)| at)..],
                frame_len: own.frame.len() as u32,
                time_ns: own.time_ns,
                port: 0,
                checksums: own.checksums,
                tunnels: own.inner.as_ref().map(|(_, path)| path),
                segment: None,
            }
        };
        let taken = tracker.packets(batch.len() - first, input, |at, tracked| {
            decides.extend(tracked.opens.map(|flow| (first + at, flow)));
        });
        assert_ne!(taken, 0, "what waited has been decided");
        decides.into_iter().for_each(|(at, flow)| tracker.decide(flow, !batch[at].is_dropped));
        first += taken;
    }
}
