//! From application-layer sessions to a detector.

use std::sync::OnceLock;

use applayer::{Anomaly, Data, Direction, File, FileState, Piece, Progress, Sink, Transaction};
use signatures::Buffer;

use crate::checks::number_bytes;
use crate::{BufferPart, Detector, FlowState, Sender};

/// The sink of a flow's session within a step: hands protocols, buffers and ends of transactions to a detector.
#[derive(Debug)]
pub struct Feed<'a> {
    /// Where the step is open.
    pub detector: &'a mut Detector,
    /// The flow of the step.
    pub flow: &'a mut FlowState,
}

/// Who sends what goes there.
pub const fn sender_of(direction: Direction) -> Sender {
    match direction {
        Direction::ToServer => Sender::Client,
        Direction::ToClient => Sender::Server,
    }
}

/// The same buffer, as rules have it.
pub fn buffer_of(buffer: applayer::Buffer) -> Option<Buffer> {
    static TABLE: OnceLock<Vec<Option<Buffer>>> = OnceLock::new();
    let all = applayer::Buffer::ALL;
    let table = TABLE.get_or_init(|| {
        let mut table = vec![None; all.iter().map(|own| *own as usize + 1).max().unwrap_or(0)];
        all.iter().for_each(|own| table[*own as usize] = Buffer::from_sticky(own.name()));
        table
    });
    table[buffer as usize]
}

impl Feed<'_> {
    /// A number of a transaction and sender, which is the n-th of these; `is_exact`: it is not only at least so much.
    fn number(
        &mut self,
        (transaction, number, sender): (u64, u32, Sender),
        buffer: Buffer,
        value: u64,
        is_exact: bool,
    ) {
        let bytes = &number_bytes(value, is_exact);
        let part = BufferPart { buffer, sender, transaction, number, bytes, is_complete: true };
        self.detector.buffer(self.flow, &part);
    }

    /// Types of records of a message.
    fn record_types(
        &mut self,
        (transaction, _, sender): (u64, u32, Sender),
        types: impl Iterator<Item = u16>,
    ) {
        for (number, kind) in (0..).zip(types) {
            self.number((transaction, number, sender), Buffer::DnsRrtype, kind.into(), true);
        }
    }
}

impl Sink for Feed<'_> {
    fn protocol(&mut self, protocol: Option<l7proto::Protocol>) {
        let name = protocol.map_or("failed", l7proto::Protocol::name);
        self.flow.set_application(Sender::Client, name);
        self.flow.set_application(Sender::Server, name);
    }

    fn piece(&mut self, piece: &Piece<'_>) {
        let Some(buffer) = buffer_of(piece.buffer) else { return };
        let part = BufferPart {
            buffer,
            sender: sender_of(piece.direction),
            transaction: piece.transaction,
            number: piece.number,
            bytes: piece.bytes,
            is_complete: piece.is_last,
        };
        self.detector.buffer(self.flow, &part);
    }

    fn file(&mut self, file: &File) {
        let is_whole = file.state == FileState::Closed && !file.has_gaps;
        let of = (file.transaction, file.number, sender_of(file.direction));
        self.number(of, Buffer::FileSize, file.size, is_whole);
    }

    fn anomaly(&mut self, anomaly: &Anomaly) {
        self.detector.application_event(self.flow, anomaly);
    }

    fn transaction(&mut self, transaction: &Transaction, progress: Progress) {
        match progress {
            Progress::Begun => {}
            Progress::Head(direction) => {
                if let Data::Tls(tls) = &transaction.data {
                    let of = (transaction.id, 0, sender_of(direction));
                    self.number(of, Buffer::TlsVersion, tls.version.into(), true);
                }
            }
            Progress::Done(direction) => {
                if let Data::Dns(dns) = &transaction.data {
                    let of = (transaction.id, 0, sender_of(direction));
                    self.number(of, Buffer::DnsOpcode, dns.opcode().into(), true);
                    // As in Suricata, without the bits of EDNS.
                    self.number(of, Buffer::DnsRcode, (dns.flags & 15).into(), true);
                    let questions = dns.questions.iter().map(|own| own.kind);
                    let answers = dns.answers.iter().map(|own| own.kind);
                    match direction {
                        Direction::ToServer => self.record_types(of, questions),
                        Direction::ToClient => self.record_types(of, answers),
                    }
                }
                if let Data::Tls(tls) = &transaction.data {
                    let of = (transaction.id, 0, sender_of(direction));
                    let chain = &tls.certificates[direction as usize];
                    if !chain.is_empty() {
                        self.number(of, Buffer::TlsChainLength, chain.len() as u64, true);
                    }
                }
                self.detector.end_of_side(self.flow, sender_of(direction), transaction.id);
            }
            Progress::Finished => {
                self.detector.end_of_transaction(self.flow, transaction.id);
            }
        }
    }
}
