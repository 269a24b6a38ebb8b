//! A sink that keeps everything, and a way to feed a session.

use std::collections::BTreeMap;

use applayer::{
    Anomaly, AnomalyKind, Buffer, Direction, File, Limits, Piece, Progress, Session, Sink, Start,
    Transaction,
};
use l7proto::{Ports, Protocol, Transport};

/// Which buffer.
pub type Key = (u64, Direction, Buffer, u32);

#[derive(Debug, Default, PartialEq)]
pub struct Recorder {
    pub protocols: Vec<Option<Protocol>>,
    /// Bytes, and whether the end was said.
    pub buffers: BTreeMap<Key, (Vec<u8>, bool)>,
    pub progress: Vec<(u64, Progress)>,
    pub finished: Vec<Transaction>,
    pub files: Vec<File>,
    pub anomalies: Vec<(AnomalyKind, Option<u64>, Option<Direction>)>,
}

impl Sink for Recorder {
    fn protocol(&mut self, protocol: Option<Protocol>) {
        self.protocols.push(protocol);
    }

    fn piece(&mut self, piece: &Piece<'_>) {
        let key = (piece.transaction, piece.direction, piece.buffer, piece.number);
        let (bytes, is_over) = self.buffers.entry(key).or_default();
        assert!(!*is_over, "{key:?}: bytes behind the end");
        assert_eq!(bytes.len() as u64, piece.offset, "{key:?}");
        bytes.extend(piece.bytes);
        *is_over = piece.is_last;
    }

    fn transaction(&mut self, transaction: &Transaction, progress: Progress) {
        let is_over = self.finished.iter().any(|finished| finished.id == transaction.id);
        assert!(!is_over, "{transaction:?} goes on behind its end");
        self.progress.push((transaction.id, progress));
        if progress == Progress::Finished {
            self.finished.push(transaction.clone());
        }
    }

    fn file(&mut self, file: &File) {
        self.files.push(file.clone());
    }

    fn anomaly(&mut self, anomaly: &Anomaly) {
        self.anomalies.push((anomaly.kind, anomaly.transaction, anomaly.direction));
    }
}

impl Recorder {
    /// The text of a buffer, the first of its name.
    pub fn text(&self, transaction: u64, buffer: Buffer) -> Option<String> {
        self.texts(transaction, buffer).into_iter().next()
    }

    pub fn texts(&self, transaction: u64, buffer: Buffer) -> Vec<String> {
        let all = self.buffers.iter();
        let of = all.filter(|((id, _, found, _), _)| *id == transaction && *found == buffer);
        of.map(|(_, (bytes, _))| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    /// What was odd, sorted.
    pub fn kinds(&self) -> Vec<AnomalyKind> {
        self.anomalies.iter().map(|own| own.0).collect()
    }

    pub fn has(&self, kind: AnomalyKind) -> bool {
        self.anomalies.iter().any(|(found, ..)| *found == kind)
    }

    /// Each transaction has begun and ended once, and each buffer ended.
    pub fn check(&self) {
        let begun = self.progress.iter().filter(|(_, progress)| *progress == Progress::Begun);
        assert_eq!(begun.count(), self.finished.len());
        for (key, (_, is_over)) in &self.buffers {
            assert!(is_over, "{key:?} has no end");
        }
        assert!(self.progress.iter().all(|(id, _)| self.finished.iter().any(|t| t.id == *id)));
    }
}

/// What happens to a flow.
#[derive(Clone, Debug)]
pub enum Step {
    Data(Direction, Vec<u8>),
    Gap(Direction, u64),
    End(Direction),
}

pub const C: Direction = Direction::ToServer;
pub const S: Direction = Direction::ToClient;

pub fn c(bytes: &[u8]) -> Step {
    Step::Data(C, bytes.to_vec())
}

pub fn s(bytes: &[u8]) -> Step {
    Step::Data(S, bytes.to_vec())
}

pub fn start(transport: Transport, responder: u16) -> Start {
    Start { transport, ports: Ports { opener: 50_000, responder }, is_midstream: false }
}

/// Runs a session to its end.
pub fn run(start: Start, limits: &Limits, steps: &[Step]) -> Recorder {
    let mut recorder = Recorder::default();
    let mut session = Session::new(start);
    let mut offsets = [0; 2];
    for step in steps {
        match step {
            Step::Data(direction, bytes) if start.transport == Transport::Datagram => {
                session.datagram(limits, *direction, bytes, 1, &mut recorder);
            }
            Step::Data(direction, bytes) => {
                let offset = &mut offsets[*direction as usize];
                session.data(limits, *direction, *offset, bytes, 1, &mut recorder);
                *offset += bytes.len() as u64;
            }
            Step::Gap(direction, bytes) => {
                let offset = &mut offsets[*direction as usize];
                session.gap(limits, *direction, *offset, *bytes, 1, &mut recorder);
                *offset += bytes;
            }
            Step::End(direction) => {
                session.end_of_side(limits, *direction, 1, &mut recorder);
            }
        }
    }
    session.finish(limits, 1, &mut recorder);
    recorder.check();
    // Which of two parsers says something first is not defined within a segment.
    recorder.anomalies.sort();
    recorder
}

/// A stream with the usual limits.
pub fn stream(port: u16, steps: &[Step]) -> Recorder {
    run(start(Transport::Stream, port), &Limits::default(), steps)
}
