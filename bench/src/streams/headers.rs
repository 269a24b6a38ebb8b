//! What a second stage pays for the headers of a packet: decoding them once more, or reading columns that the first one wrote.
//!
//! ```text
//!  again     decode ─▶ d     …  decode ─▶ d             the first line of the frame is in the cache by then
//!  columns   decode ─▶ d ─▶ words of columns  …  words ─▶ d
//!  record    decode ─▶ a column of whole records  …  the record      no conversion: what no column could undercut
//! ```
//!
//! A batch of frames as a worker has it: in cells, each from one of five lines on. Figures are nanoseconds a packet over those
//! of one decoding alone.

use std::hint::black_box;
use std::net::Ipv6Addr;

use packet::decode::decode_into;
use packet::ipv6::Ipv6Header;
use packet::{Decoded, IpProtocol, ipv6};

use super::follow::BATCH;
use super::frames::{FRAME_MIN, udp};
use crate::forms::thread_seconds;
use crate::{Args, Report, Row};

/// Batches of a measurement.
const PASSES: usize = 2_000;

/// Bytes of a cell, and of a line.
const CELL: usize = 2048;
const LINE: usize = 64;

/// Frames in cells.
struct Cells {
    bytes: Vec<u8>,
    len: usize,
}

impl Cells {
    fn new(frame: impl Fn(usize) -> Vec<u8>) -> Self {
        let mut cells = Self { bytes: vec![0; BATCH * CELL], len: 0 };
        for at in 0..BATCH {
            let frame = frame(at);
            cells.len = frame.len();
            cells.bytes[Self::begin(at)..][..frame.len()].copy_from_slice(&frame);
        }
        cells
    }

    const fn begin(at: usize) -> usize {
        at * CELL + at % 5 * LINE
    }

    #[inline(always)]
    fn get(&self, at: usize) -> &[u8] {
        &self.bytes[Self::begin(at)..][..self.len]
    }
}

/// Plain UDP over IPv4; the same with a tag; UDP over IPv6.
fn cases() -> [(&'static str, Cells); 3] {
    let plain = udp(BATCH, FRAME_MIN);
    let tagged = |at: usize| {
        let (frame, _) = plain.get(at);
        [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat()
    };
    let six = |at: usize| {
        let mut frame = plain.get(at).0[..14].to_vec();
        frame[12..].copy_from_slice(&[0x86, 0xdd]);
        frame.resize(14 + ipv6::HEADER_LEN + 8, 0);
        let ends = [1, 2 + at as u16].map(|end| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, end));
        Ipv6Header::new(ends[0], ends[1], IpProtocol::UDP).emit(8, &mut frame[14..]);
        frame[54..56].copy_from_slice(&(1024 | at as u16).to_be_bytes());
        frame[58..60].copy_from_slice(&[0, 8]);
        frame
    };
    [
        ("IPv4", Cells::new(|at| plain.get(at).0.to_vec())),
        ("IPv4 with a tag", Cells::new(tagged)),
        ("IPv6", Cells::new(six)),
    ]
}

/// Columns, as words that a column may hold.
#[derive(Default)]
struct Words {
    columns: [Vec<[u64; 2]>; 4],
    is_known: Vec<u8>,
}

impl Words {
    #[inline(always)]
    fn put(&mut self, at: usize, d: &Decoded) {
        let [a, b, c, e] = d.words();
        let [src, dst, first, last] = &mut self.columns;
        (src[at], dst[at], first[at], last[at]) = (d.src, d.dst, [a, b], [c, e]);
        self.is_known[at] = 1;
    }

    #[inline(always)]
    fn get(&self, at: usize) -> Option<Decoded> {
        let [src, dst, first, last] = &self.columns;
        let ([a, b], [c, e]) = (first[at], last[at]);
        (self.is_known[at] != 0).then(|| Decoded::from_words(src[at], dst[at], [a, b, c, e]))
    }
}

/// Ways to the headers for two stages; the first is one stage alone.
const WAYS: [&str; 4] = ["alone", "decoded again", "columns", "a column of records"];

/// One batch in one way; what the second stage has seen of it.
#[inline(never)]
fn pass(way: usize, cells: &Cells, words: &mut Words, records: &mut [Decoded]) -> u64 {
    let (mut d, mut seen) = (Decoded::default(), 0_u64);
    let note = |d: &Decoded| d.dst[1].wrapping_add(d.l4_word.into());
    match way {
        2 => {
            words.is_known.fill(0);
            for at in 0..BATCH {
                decode_into(cells.get(at), cells.len, &mut d);
                words.put(at, black_box(&d));
            }
            for at in 0..BATCH {
                match words.get(at) {
                    Some(own) => d = own,
                    None => decode_into(cells.get(at), cells.len, &mut d),
                }
                seen = seen.wrapping_add(note(black_box(&d)));
            }
        }
        3 => {
            words.is_known.fill(0);
            for (at, record) in records.iter_mut().enumerate() {
                decode_into(cells.get(at), cells.len, record);
                words.is_known[at] = 1;
                black_box(record);
            }
            for (at, record) in records.iter_mut().enumerate() {
                if words.is_known[at] == 0 {
                    decode_into(cells.get(at), cells.len, record);
                }
                seen = seen.wrapping_add(note(black_box(record)));
            }
        }
        _ => {
            for _ in 0..=way {
                seen = 0;
                for at in 0..BATCH {
                    decode_into(cells.get(at), cells.len, &mut d);
                    seen = seen.wrapping_add(note(black_box(&d)));
                }
            }
        }
    }
    seen
}

/// Adds the rows.
pub(crate) fn run(args: &Args, report: &mut Report) {
    for (name, cells) in cases() {
        let mut words =
            Words { columns: [(); 4].map(|()| vec![[0; 2]; BATCH]), is_known: vec![0; BATCH] };
        let mut records = vec![Decoded::default(); BATCH];
        let mut times = [const { Vec::new() }; WAYS.len()];
        let mut first = None;
        for _ in 0..args.rounds.max(1) {
            for (way, times) in times.iter_mut().enumerate() {
                let begin = thread_seconds();
                let mut seen = 0;
                for _ in 0..PASSES {
                    seen = pass(way, black_box(&cells), &mut words, &mut records);
                }
                times.push((thread_seconds() - begin) * 1e9 / (PASSES * BATCH) as f64);
                if *first.get_or_insert(seen) != seen {
                    report.wrong.push(format!("headers, {name}: {} differ", WAYS[way]));
                }
            }
        }
        let [alone, others @ ..] = times;
        let note = "its frames in the cache";
        report
            .rows
            .push(Row::new(format!("headers, {name}: decoding"), "ns", alone.clone()).note(note));
        for (way, times) in WAYS[1..].iter().zip(others) {
            let over = times.iter().zip(&alone).map(|(all, alone)| all - alone).collect();
            let row = Row::new(format!("headers, {name}, second stage: {way}"), "ns", over);
            report.rows.push(row);
        }
    }
}
