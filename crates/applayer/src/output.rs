//! What parsers write to: the sink with the numbers and the time of the session.

use crate::anomaly::{Anomaly, AnomalyKind};
use crate::buffer::Buffer;
use crate::file::{File, FileState, OpenFile};
use crate::limits::Limits;
use crate::sink::{Direction, Piece, Progress, Sink};
use crate::transaction::{Data, Transaction};

/// Numbers that a session gives out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers {
    /// The transaction that comes next.
    pub(crate) transaction: u64,
    /// Anomalies so far.
    pub(crate) anomalies: u32,
}

/// The sink, for the duration of a call.
pub(crate) struct Output<'a> {
    pub(crate) sink: &'a mut dyn Sink,
    pub(crate) limits: &'a Limits,
    pub(crate) numbers: &'a mut Numbers,
    pub(crate) time_ns: u64,
}

impl Output<'_> {
    /// A new transaction, which the sink hears of.
    pub(crate) fn begin(&mut self, data: Data) -> Transaction {
        let id = self.numbers.transaction;
        self.numbers.transaction += 1;
        let (start_ns, last_ns) = (self.time_ns, self.time_ns);
        let transaction =
            Transaction { id, start_ns, last_ns, done: [false; 2], is_late: false, data };
        self.sink.transaction(&transaction, Progress::Begun);
        transaction
    }

    /// Says how far a transaction is, once of each.
    pub(crate) fn progress(&mut self, transaction: &mut Transaction, progress: Progress) {
        transaction.last_ns = self.time_ns;
        if let Progress::Done(direction) = progress {
            if transaction.done[direction as usize] {
                return;
            }
            transaction.done[direction as usize] = true;
        }
        self.sink.transaction(transaction, progress);
    }

    /// A whole buffer.
    pub(crate) fn buffer(
        &mut self,
        transaction: u64,
        direction: Direction,
        buffer: Buffer,
        number: usize,
        bytes: &[u8],
    ) {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let piece =
            Piece { transaction, direction, buffer, number, offset: 0, bytes, is_last: true };
        self.sink.piece(&piece);
    }

    pub(crate) fn anomaly(
        &mut self,
        kind: AnomalyKind,
        transaction: Option<u64>,
        direction: Option<Direction>,
    ) {
        if self.numbers.anomalies < self.limits.anomalies {
            self.numbers.anomalies += 1;
            self.sink.anomaly(&Anomaly { kind, transaction, direction, time_ns: self.time_ns });
        }
    }

    /// A file begins; its name is a buffer of its own.
    pub(crate) fn open(
        &mut self,
        transaction: u64,
        direction: Direction,
        number: u32,
        name: Vec<u8>,
    ) -> Box<OpenFile> {
        if !name.is_empty() {
            self.buffer(transaction, direction, Buffer::FileName, number as usize, &name);
        }
        Box::new(OpenFile::new(File {
            transaction,
            direction,
            number,
            name,
            size: 0,
            state: FileState::Truncated,
            has_gaps: false,
            range: None,
            digests: None,
            start_ns: self.time_ns,
        }))
    }

    /// Bytes of a file.
    pub(crate) fn write(&mut self, open: &mut OpenFile, bytes: &[u8]) {
        open.update(bytes);
        let room = self.limits.body_bytes.saturating_sub(open.given);
        let len = usize::try_from(room).map_or(bytes.len(), |room| bytes.len().min(room));
        if len > 0 {
            self.file_data(open, &bytes[..len], false);
            open.given += len as u64;
        }
    }

    fn file_data(&mut self, open: &OpenFile, bytes: &[u8], is_last: bool) {
        let File { transaction, direction, number, .. } = open.file;
        let (buffer, offset) = (Buffer::FileData, open.given);
        self.sink.piece(&Piece { transaction, direction, buffer, number, offset, bytes, is_last });
    }

    /// A file ends.
    pub(crate) fn close(&mut self, open: Box<OpenFile>, state: FileState) {
        self.file_data(&open, &[], true);
        let file = open.close(state);
        self.sink.file(&file);
    }
}
