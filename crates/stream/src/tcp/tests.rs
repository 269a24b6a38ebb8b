//! A recorder of what a sink is given, which demands that offsets follow each other.

mod cases;
mod model;
mod property;
mod reuse;

use packet::tcp::flags::{ACK, SYN};

use super::{Connection, End, Event, Options, Outcome, Reassembler, Segment, Sink, Want};
use crate::key::Side::{self, A, B};

/// A piece of a stream as delivered; neighbours are joined.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    Data(Vec<u8>),
    Gap(u64),
}

#[derive(Default)]
struct Recorder {
    items: [Vec<Item>; 2],
    offset: [u64; 2],
    end: [Option<End>; 2],
    events: Vec<(Side, Event)>,
    /// Answers "enough" from this offset of a side on.
    enough: [Option<(u64, Want)>; 2],
}

impl Recorder {
    fn advance(&mut self, side: Side, offset: u64, bytes: u64) {
        let at = side.index();
        assert_eq!(offset, self.offset[at], "offsets of {side:?} follow each other");
        assert_eq!(self.end[at], None, "nothing follows the end of {side:?}");
        assert_ne!(bytes, 0);
        self.offset[at] += bytes;
    }

    fn bytes(&self, side: Side) -> Vec<u8> {
        let items = self.items[side.index()].iter();
        let bytes = items.map(|item| match item {
            Item::Data(bytes) => bytes.clone(),
            Item::Gap(bytes) => vec![b'-'; *bytes as usize],
        });
        bytes.flatten().collect()
    }

    fn count(&self, event: Event) -> usize {
        self.events.iter().filter(|(_, found)| *found == event).count()
    }
}

impl Sink for Recorder {
    fn data(&mut self, side: Side, offset: u64, bytes: &[u8]) -> Want {
        self.advance(side, offset, bytes.len() as u64);
        let items = &mut self.items[side.index()];
        match items.last_mut() {
            Some(Item::Data(before)) => before.extend_from_slice(bytes),
            _ => items.push(Item::Data(bytes.to_vec())),
        }
        match self.enough[side.index()] {
            Some((from, want)) if self.offset[side.index()] >= from => want,
            _ => Want::More,
        }
    }

    fn gap(&mut self, side: Side, offset: u64, bytes: u64) {
        self.advance(side, offset, bytes);
        let items = &mut self.items[side.index()];
        match items.last_mut() {
            Some(Item::Gap(before)) => *before += bytes,
            _ => items.push(Item::Gap(bytes)),
        }
    }

    fn end(&mut self, side: Side, offset: u64, end: End) {
        let at = side.index();
        assert_eq!((offset, self.end[at]), (self.offset[at], None), "{side:?} ends once");
        self.end[at] = Some(end);
    }

    fn event(&mut self, side: Side, event: Event) {
        self.events.push((side, event));
    }
}

/// One connection between A, the client, and B, with initial sequence numbers 1,000 and 5,000.
struct Bench {
    reassembler: Reassembler,
    connection: Connection,
    sink: Recorder,
    initial: [u32; 2],
    now_ns: u64,
}

impl Bench {
    fn new(options: Options) -> Self {
        Self {
            reassembler: Reassembler::new(Options { buffer_bytes: 1 << 20, ..options }),
            connection: Connection::new(A),
            sink: Recorder::default(),
            initial: [1_000, 5_000],
            now_ns: 0,
        }
    }

    /// After the handshake.
    fn open(options: Options) -> Self {
        Self::open_at(options, [1_000, 5_000])
    }

    fn open_at(options: Options, initial: [u32; 2]) -> Self {
        let mut bench = Self { initial, ..Self::new(options) };
        let [a, b] = initial;
        bench.accept(A, segment(a, 0, SYN, b""));
        bench.accept(B, segment(b, a.wrapping_add(1), SYN | ACK, b""));
        bench.accept(A, segment(a.wrapping_add(1), b.wrapping_add(1), ACK, b""));
        bench
    }

    fn send(&mut self, side: Side, segment: Segment<'_>) -> Outcome {
        self.now_ns += 1_000;
        let Self { reassembler, connection, sink, now_ns, .. } = self;
        let outcome = reassembler.segment(connection, side, &segment, *now_ns, sink);
        check(reassembler, connection);
        outcome
    }

    fn accept(&mut self, side: Side, segment: Segment<'_>) {
        assert_eq!(self.send(side, segment), Outcome::Accepted, "{segment:?}");
    }

    /// Data at an offset of the stream of `side`, which acknowledges `acknowledged` bytes of the other one.
    fn data(&mut self, side: Side, offset: u32, acknowledged: u32, bytes: &[u8]) -> Outcome {
        self.flagged(side, offset, acknowledged, ACK, bytes)
    }

    fn flagged(
        &mut self,
        side: Side,
        offset: u32,
        acknowledged: u32,
        flags: u16,
        bytes: &[u8],
    ) -> Outcome {
        let sequence = self.initial[side.index()].wrapping_add(1).wrapping_add(offset);
        let first = self.initial[side.other().index()].wrapping_add(1);
        self.send(side, segment(sequence, first.wrapping_add(acknowledged), flags, bytes))
    }

    fn close(&mut self) {
        let Self { reassembler, connection, sink, .. } = self;
        reassembler.close(connection, sink);
        assert_eq!(reassembler.buffer_bytes_used(), 0);
        assert!(connection.waiting.is_none());
    }
}

fn segment(sequence: u32, acknowledgment: u32, flags: u16, payload: &[u8]) -> Segment<'_> {
    let window = u16::MAX;
    Segment { sequence, acknowledgment, flags, window, payload, ..Segment::default() }
}

fn check(reassembler: &Reassembler, connection: &Connection) {
    reassembler.buffer.check(connection.waiting);
    for side in Side::BOTH {
        let is_empty = reassembler.buffer.is_empty(connection.waiting, side);
        let is_held = connection.marked(side, super::connection::marks::HELD);
        let is_buffered = connection.has(side, super::connection::bits::BUFFERED);
        // All that a side had may have been given up.
        assert!(is_held || is_buffered || is_empty);
    }
}
