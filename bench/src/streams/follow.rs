//! Decoding and tracking, as the stage of flows does it: batch by batch, decode all, then the tracker.

use std::hint::black_box;
use std::ops::Range;

use apps::flow::connections::OfConnection;
use apps::flow::decode::{reference, segment_of};
use interleave::prefetch_at;
use packet::Decoded;
use packet::checksum::Checksums;
use packet::decode::decode_into;
use stream::tcp::{End, Want};
use stream::tracker::{Identity, Input, Module, Options, Tracker};
use stream::{FlowRecord, Side, tcp};

use crate::tables::Random;

/// Packets of a batch.
pub(crate) const BATCH: usize = 256;

/// Frames that are asked for before their turn, as the stages do.
const AHEAD: usize = 24;

/// What was delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Connections whose handshake was seen.
    pub(crate) streams: u64,
    /// Bytes in order of clients and of servers.
    pub(crate) bytes: [u64; 2],
    /// As `bench/peers/nids_peer.c` says; 0 where it was not asked for.
    pub(crate) hash: u64,
}

impl Answer {
    /// Of connections and the bytes of their clients and servers.
    pub(crate) fn of([streams, client, server]: [u64; 3], hash: u64) -> Self {
        Self { streams, bytes: [client, server], hash }
    }
}

/// Counts the bytes of streams, and hashes them if told to.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    pub(crate) answer: Answer,
    pub(crate) hashes: bool,
    /// Bytes that never came.
    pub(crate) missing: u64,
    /// Flows that ended.
    pub(crate) ended: u64,
}

impl Module for Counter {
    type State = ();

    #[inline]
    fn data(&mut self, flow: &Identity, (): &mut (), side: Side, at: u64, bytes: &[u8]) -> Want {
        let from = usize::from(side != flow.client);
        self.answer.bytes[from] += bytes.len() as u64;
        if self.hashes {
            let sum = bytes.iter().zip(at + 1..).fold(0_u64, |sum, (byte, place)| {
                sum.wrapping_add(u64::from(*byte).wrapping_mul(place))
            });
            self.answer.hash = self.answer.hash.wrapping_add(sum.wrapping_mul(factor(flow, from)));
        }
        Want::More
    }

    fn gap(&mut self, _: &Identity, (): &mut (), _: Side, _: u64, bytes: u64, _: u64) {
        self.missing += bytes;
    }

    fn end_of_side(&mut self, _: &Identity, (): &mut (), _: Side, _: u64, _: End) {}

    fn ended(&mut self, record: &FlowRecord, _: Side, (): &mut (), _: u64) {
        self.ended += 1;
        // Both ends acknowledged: the time of the handshake is known.
        self.answer.streams += u64::from(record.handshake_rtt_ns.is_some());
    }
}

/// What the sum over a stream is multiplied by: `from` is 0 for the client's, 1 for the server's.
fn factor(flow: &Identity, from: usize) -> u64 {
    let (client, server) = (flow.client.index(), flow.client.other().index());
    let [a, b] = [flow.key.addresses[client][1], flow.key.addresses[server][1]];
    let ports = u64::from(flow.key.ports[client]) << 16 | u64::from(flow.key.ports[server]);
    let seed = (a << 32 | b).wrapping_add(ports.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // The generator adds its constant first.
    let mixed = Random(seed.wrapping_sub(0x9e37_79b9_7f4a_7c15)).next();
    mixed.rotate_left(32 * from as u32) | 1
}

/// A tracker, and the column of what decoding found.
pub(crate) struct Worker<M: Module = Counter> {
    pub(crate) tracker: Tracker<M>,
    decoded: Vec<Decoded>,
    checksums: bool,
}

impl Worker {
    pub(crate) fn new(options: Options, checksums: bool) -> Result<Self, String> {
        Self::with(options, checksums, Counter::default())
    }
}

impl<M: Module> Worker<M> {
    pub(crate) fn with(options: Options, checksums: bool, module: M) -> Result<Self, String> {
        let tracker = Tracker::new(options, module).map_err(|e| e.to_string())?;
        Ok(Self { tracker, decoded: vec![Decoded::default(); BATCH], checksums })
    }

    /// Decodes and follows so many frames; `frame` gives one, and when it came.
    #[inline]
    pub(crate) fn follow<'a>(&mut self, count: usize, frame: impl Fn(usize) -> (&'a [u8], u64)) {
        for first in (0..count).step_by(BATCH) {
            let rows = BATCH.min(count - first);
            decode(first..first + rows, count, &frame, &mut self.decoded);
            let (decoded, checksums) = (&self.decoded, self.checksums);
            self.tracker.packets(
                rows,
                |at| {
                    let (frame, time_ns) = frame(first + at);
                    Input {
                        decoded: &decoded[at],
                        frame,
                        frame_len: frame.len() as u32,
                        time_ns,
                        port: 0,
                        checksums,
                        tunnels: None,
                        segment: None,
                    }
                },
                |_, _| {},
            );
        }
    }
}

/// What a device leaves of a packet, in columns: addresses, headers, and the TCP segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    addresses: [[u64; 2]; 2],
    words: [u64; 4],
    segment: [u64; 2],
}

impl Head {
    /// Of a frame.
    pub(crate) fn of(frame: &[u8], checksums: bool) -> Self {
        let checksums = if checksums { Checksums::Verify } else { Checksums::Ignore };
        let (d, segment) = reference(frame, frame, checksums);
        Self { addresses: [d.src, d.dst], words: d.words(), segment }
    }

    /// As the connection table of a device sees it.
    pub(crate) fn of_connection(&self, time_ns: u64) -> Option<OfConnection> {
        let ([src, dst], [w0, w1, ..]) = (self.addresses, self.words);
        let time = (time_ns / 1_000_000_000) as u32;
        OfConnection::of_columns((src, dst), [w0, w1], self.segment, time, 1)
    }
}

impl Worker {
    /// Follows so many frames of which a device has found the heads, as the stage does behind it; and numbers of connections, or none
    /// of them.
    #[inline]
    pub(crate) fn follow_decoded<'a>(
        &mut self,
        heads: &[Head],
        numbers: &[u32],
        frame: impl Fn(usize) -> (&'a [u8], u64),
    ) {
        for (heads, first) in heads.chunks(BATCH).zip((0..).step_by(BATCH)) {
            for (decoded, head) in self.decoded.iter_mut().zip(heads) {
                let [src, dst] = head.addresses;
                *decoded = Decoded::from_words(src, dst, head.words);
            }
            let numbers = numbers.iter().skip(first).take(heads.len());
            self.tracker.numbers(numbers.copied());
            let (decoded, checksums) = (&self.decoded, self.checksums);
            self.tracker.packets(
                heads.len(),
                |at| {
                    let (frame, time_ns) = frame(first + at);
                    Input {
                        decoded: &decoded[at],
                        frame,
                        frame_len: frame.len() as u32,
                        time_ns,
                        port: 0,
                        checksums,
                        tunnels: None,
                        segment: segment_of(heads[at].segment, &decoded[at], frame),
                    }
                },
                |_, _| {},
            );
        }
    }
}

/// Decodes a batch of `count` frames; those that come soon are asked for, as the stages do.
#[inline(always)]
fn decode<'a>(
    batch: Range<usize>,
    count: usize,
    frame: &impl Fn(usize) -> (&'a [u8], u64),
    column: &mut [Decoded],
) {
    for (at, decoded) in batch.zip(column) {
        let later = at + AHEAD;
        if later < count {
            prefetch_at(frame(later).0.as_ptr());
        }
        let (frame, _) = frame(at);
        decode_into(frame, frame.len(), decoded);
    }
}

/// Decodes so many frames, and nothing else.
pub(crate) fn decode_alone<'a>(count: usize, frame: impl Fn(usize) -> (&'a [u8], u64)) {
    decode_in_batches(count, BATCH, frame);
}

/// The same with another number of frames in a batch.
pub(crate) fn decode_in_batches<'a>(
    count: usize,
    batch: usize,
    frame: impl Fn(usize) -> (&'a [u8], u64),
) {
    let mut column = vec![Decoded::default(); batch];
    for first in (0..count).step_by(batch) {
        let rows = batch.min(count - first);
        decode(first..first + rows, count, &frame, &mut column);
        black_box(&mut column);
    }
}

/// Room for so many connections at once and segments of them that wait.
pub(crate) fn options(flows: usize, buffer_bytes: usize) -> Options {
    Options {
        flows,
        half_open: flows,
        tcp: tcp::Options { buffer_bytes, ..tcp::Options::default() },
        ..Options::default()
    }
}
