//! TLS hellos: from the records of one side of a stream, with names and fingerprints.
//!
//! [`HelloReader`] takes the bytes of one side in segments of any size and puts the first handshake message together, over
//! as many records as it needs (RFC 8446 §5.1), up to a bound. [`ClientHello`] and [`ServerHello`] read that message;
//! [`ja3`](ClientHello::ja3), [`ja3s`](ServerHello::ja3s) and [`ja4`](ClientHello::ja4) make fingerprints of it. QUIC has
//! the same messages without records ([`crate::quic`]).

mod fingerprint;
mod hello;

use thiserror::Error;

pub use fingerprint::{Ja4Transport, hex, is_grease};
pub use hello::{ClientHello, Extensions, ServerHello};

/// Bytes of a handshake message. Hellos with post-quantum key shares have less than 4 KiB.
pub const HELLO_MAX: usize = 16 << 10;
/// Records in which it may come.
const RECORDS_MAX: u16 = 1 << 10;
const RECORD_LEN_MAX: usize = (1 << 14) + 256;

/// Why a side is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HelloError {
    /// It does not begin with a record of a handshake.
    #[error("no TLS handshake record")]
    NotHandshake,
    /// A record is longer than TLS allows, or empty (RFC 8446 §5.1).
    #[error("TLS record of {0} bytes")]
    RecordLength(usize),
    /// The first message is neither hello.
    #[error("first handshake message has type {0}")]
    NotHello(u8),
    /// The message says that it is longer than [`HELLO_MAX`], or comes in too many records.
    #[error("hello of {0} bytes")]
    TooLong(usize),
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More bytes are wanted.
    More,
    /// The message is there.
    Done,
    /// It is given up.
    Failed(HelloError),
}

/// Puts the first handshake message of one side together. Its buffer grows to what has come, never beyond [`HELLO_MAX`].
#[derive(Clone, Debug)]
pub struct HelloReader {
    header: [u8; 5],
    header_len: usize,
    /// Bytes of the record that have not come.
    record_left: usize,
    /// The record is an alert.
    is_skipped: bool,
    records: u16,
    message: Vec<u8>,
    progress: Progress,
}

impl Default for HelloReader {
    fn default() -> Self {
        Self {
            header: [0; 5],
            header_len: 0,
            record_left: 0,
            is_skipped: false,
            records: 0,
            message: Vec::new(),
            progress: Progress::More,
        }
    }
}

impl HelloReader {
    /// Forgets what it has and keeps its buffer.
    pub fn clear(&mut self) {
        let mut message = std::mem::take(&mut self.message);
        message.clear();
        *self = Self { message, ..Self::default() };
    }

    /// Takes the next bytes. Those behind the message are not looked at.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Progress {
        while self.progress == Progress::More && !bytes.is_empty() {
            if self.record_left == 0 {
                let len = bytes.len().min(5 - self.header_len);
                self.header[self.header_len..][..len].copy_from_slice(&bytes[..len]);
                self.header_len += len;
                bytes = &bytes[len..];
                if self.header_len == 5 {
                    self.begin_record();
                } else if !matches!(self.header[0], 21 | 22) {
                    self.progress = Progress::Failed(HelloError::NotHandshake);
                }
                continue;
            }
            if self.is_skipped {
                let len = bytes.len().min(self.record_left);
                self.record_left -= len;
                bytes = &bytes[len..];
                continue;
            }
            let len = bytes.len().min(self.record_left).min(self.wanted() - self.message.len());
            self.message.extend_from_slice(&bytes[..len]);
            self.record_left -= len;
            bytes = &bytes[len..];
            self.look();
        }
        self.progress
    }

    fn begin_record(&mut self) {
        let [kind, major, _, high, low] = self.header;
        let len = usize::from(u16::from_be_bytes([high, low]));
        self.header_len = 0;
        self.records += 1;
        self.record_left = len;
        // A server may warn before its hello: that it does not know the name (RFC 6066 §3).
        self.is_skipped = kind == 21 && len == 2 && self.message.is_empty();
        if (kind != 22 && !self.is_skipped) || major != 3 {
            self.progress = Progress::Failed(HelloError::NotHandshake);
        } else if len > RECORD_LEN_MAX {
            self.progress = Progress::Failed(HelloError::RecordLength(len));
        } else if self.records > RECORDS_MAX {
            self.progress = Progress::Failed(HelloError::TooLong(self.wanted()));
        }
    }

    /// Bytes of the message, or of its header while that is not there.
    fn wanted(&self) -> usize {
        match self.message[..] {
            [_, a, b, c, ..] => 4 + u32::from_be_bytes([0, a, b, c]) as usize,
            _ => 4,
        }
    }

    fn look(&mut self) {
        self.progress = match self.message[..] {
            [kind, ..] if kind != 1 && kind != 2 => Progress::Failed(HelloError::NotHello(kind)),
            [_, _, _, _, ..] if self.wanted() > HELLO_MAX => {
                Progress::Failed(HelloError::TooLong(self.wanted()))
            }
            [_, _, _, _, ..] if self.message.len() == self.wanted() => Progress::Done,
            _ => Progress::More,
        };
    }

    /// The message with its header of four bytes, when it is there.
    pub fn message(&self) -> Option<&[u8]> {
        (self.progress == Progress::Done).then_some(&self.message[..])
    }

    /// The client's hello, when it is there and right.
    pub fn client_hello(&self) -> Option<ClientHello<'_>> {
        self.message().and_then(ClientHello::parse)
    }

    /// The server's hello, when it is there and right.
    pub fn server_hello(&self) -> Option<ServerHello<'_>> {
        self.message().and_then(ServerHello::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(body: &[u8]) -> Vec<u8> {
        let len = (body.len() as u16).to_be_bytes();
        [&[22, 3, 1], &len[..], body].concat()
    }

    fn read(bytes: &[u8]) -> Progress {
        HelloReader::default().feed(bytes)
    }

    #[test]
    fn a_message_over_records() {
        let message = [&[1, 0, 0, 9][..], b"123456789"].concat();
        for size in 1..=message.len() {
            let stream = message.chunks(size).flat_map(record).chain(*b"rest").collect::<Vec<_>>();
            for segment in 1..=stream.len() {
                let mut reader = HelloReader::default();
                for bytes in stream.chunks(segment) {
                    reader.feed(bytes);
                }
                assert_eq!(reader.message(), Some(&message[..]));
                reader.clear();
                assert_eq!(reader.message(), None);
                reader.feed(&[21, 3, 1, 0, 2, 1]);
                reader.feed(&[112]);
                assert_eq!(reader.feed(&stream), Progress::Done);
            }
        }
    }

    #[test]
    fn lengths_that_lie() {
        use HelloError::*;
        assert_eq!(read(b"GET"), Progress::Failed(NotHandshake));
        assert_eq!(read(&[22, 2, 0, 0, 4]), Progress::Failed(NotHandshake));
        assert_eq!(read(&[21, 3, 1, 0, 3]), Progress::Failed(NotHandshake));
        assert_eq!(
            read(&[record(&[1]), vec![21, 3, 3, 0, 2]].concat()),
            Progress::Failed(NotHandshake)
        );
        // Some clients and their peers take an empty record.
        assert_eq!(read(&[&[22, 3, 1, 0, 0][..], &record(&[2, 0, 0, 0])].concat()), Progress::Done);
        assert_eq!(read(&[22, 3, 1, 0xff, 0xff]), Progress::Failed(RecordLength(65535)));
        assert_eq!(read(&record(&[1, 0xff, 0xff, 0xff])), Progress::Failed(TooLong(0x100_0003)));
        assert_eq!(read(&record(&[11, 0, 0, 1])), Progress::Failed(NotHello(11)));
        assert_eq!(
            read(&[record(&[1]), vec![23, 3, 3, 0, 1]].concat()),
            Progress::Failed(NotHandshake)
        );
        // A byte in each record: more records than a hello may have.
        let message = [&[1, 0, 0x3f, 0xfc][..], &[0; 0x3ffc]].concat();
        let stream = message.chunks(1).flat_map(record).collect::<Vec<_>>();
        assert_eq!(read(&stream), Progress::Failed(TooLong(HELLO_MAX)));
        assert_eq!(read(&record(&message)), Progress::Done);
    }
}
