//! Pieces of a flow for a session: segments of any size say the same, and everything that begins ends.
//!
//! The first byte chooses transport, port and limits. Each piece begins with a byte: its length in the lower six bits (63 is
//! followed by a second one), whether it is a gap, its direction.
#![no_main]

use std::collections::BTreeMap;

use applayer::{Anomaly, Buffer, Direction, File, Limits, Piece, Progress, Session, Sink, Start, Transaction};
use l7proto::{Ports, Transport};
use libfuzzer_sys::fuzz_target;

const PORTS: [u16; 8] = [80, 25, 21, 22, 53, 443, 9, 8080];

#[derive(Default, PartialEq)]
struct Found {
    buffers: BTreeMap<(u64, Direction, Buffer, u32), (Vec<u8>, bool)>,
    open: Vec<u64>,
    finished: Vec<Transaction>,
    files: Vec<File>,
    anomalies: u32,
}

impl Sink for Found {
    fn piece(&mut self, piece: &Piece<'_>) {
        let key = (piece.transaction, piece.direction, piece.buffer, piece.number);
        let (bytes, is_over) = self.buffers.entry(key).or_default();
        assert!(!*is_over && bytes.len() as u64 == piece.offset);
        bytes.extend(piece.bytes);
        *is_over = piece.is_last;
    }

    fn transaction(&mut self, transaction: &Transaction, progress: Progress) {
        match progress {
            Progress::Begun => self.open.push(transaction.id),
            Progress::Finished => {
                let at = self.open.iter().position(|id| *id == transaction.id).unwrap();
                self.open.remove(at);
                self.finished.push(transaction.clone());
            }
            _ => assert!(self.open.contains(&transaction.id)),
        }
    }

    fn file(&mut self, file: &File) {
        self.files.push(file.clone());
    }

    fn anomaly(&mut self, _: &Anomaly) {
        self.anomalies += 1;
    }
}

type Part<'a> = (Direction, bool, &'a [u8]);

fn run(start: Start, limits: &Limits, parts: &[Part<'_>]) -> Found {
    let mut found = Found::default();
    let mut session = Session::new(start);
    let mut offsets = [0; 2];
    for (direction, is_gap, bytes) in parts {
        let offset = &mut offsets[*direction as usize];
        let len = bytes.len() as u64;
        match (start.transport, is_gap) {
            (Transport::Datagram, _) => session.datagram(limits, *direction, bytes, 1, &mut found),
            (_, true) => session.gap(limits, *direction, *offset, len, 1, &mut found),
            (_, false) => session.data(limits, *direction, *offset, bytes, 1, &mut found),
        };
        *offset += len;
    }
    session.finish(limits, 1, &mut found);
    assert!(found.open.is_empty() && found.buffers.values().all(|(_, is_over)| *is_over));
    assert!(found.anomalies <= limits.anomalies);
    found
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, mut rest)) = bytes.split_first() else { return };
    let ports = Ports { opener: 50_000, responder: PORTS[usize::from(choice & 7)] };
    let transport = if choice & 8 == 0 { Transport::Stream } else { Transport::Datagram };
    let start = Start { transport, ports, is_midstream: choice & 16 != 0 };
    let small = Limits { open_transactions: 2, head_bytes: 100, line_bytes: 30, body_bytes: 50, ..Limits::default() };
    // Many anomalies: their order within a segment is not defined, so none may be left out.
    let limits = Limits { anomalies: u32::MAX, decoded_bytes: 1 << 16, ..if choice & 32 == 0 { Limits::default() } else { small } };
    let mut parts: Vec<Part<'_>> = Vec::new();
    while let Some((head, bytes)) = rest.split_first() {
        let (len, bytes) = match (head & 63, bytes.split_first()) {
            (63, Some((more, bytes))) => (63 + usize::from(*more), bytes),
            (len, _) => (usize::from(len), bytes),
        };
        let (part, bytes) = bytes.split_at(len.min(bytes.len()));
        rest = bytes;
        let direction = if head & 0x80 == 0 { Direction::ToServer } else { Direction::ToClient };
        parts.push((direction, head & 0x40 != 0, part));
    }
    let whole = run(start, &limits, &parts);
    if transport == Transport::Stream {
        let single: Vec<Part<'_>> = parts
            .iter()
            .flat_map(|(direction, is_gap, bytes)| {
                let size = if *is_gap { bytes.len().max(1) } else { 1 };
                bytes.chunks(size).map(|bytes| (*direction, *is_gap, bytes))
            })
            .collect();
        assert!(run(start, &limits, &single) == whole);
    }
});
