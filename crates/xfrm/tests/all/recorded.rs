//! Messages that `ip xfrm` sent and the kernel answered and announced (`data/record.py`).

use std::path::Path;

use xfrm::Message;

/// Who sent a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    Ip,
    KernelAnswer,
    KernelEvent,
}

/// A recorded message, and the command that led to it.
pub(crate) struct Recorded {
    pub(crate) command: String,
    pub(crate) from: From,
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) payload: Vec<u8>,
}

impl Recorded {
    /// `NLMSG_ERROR` and `NLMSG_DONE` are none of XFRM's.
    pub(crate) fn is_status(&self) -> bool {
        self.kind < 0x10
    }

    pub(crate) fn decode(&self) -> Message {
        let message = Message::decode(self.kind, self.flags, &self.payload);
        message.unwrap_or_else(|error| panic!("{}: {error}", self.command))
    }
}

pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks_exact(2);
    digits.map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
}

/// All of them, in order.
pub(crate) fn all() -> Vec<Recorded> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/messages.txt");
    let text = std::fs::read_to_string(path).expect("recorded messages");
    let mut command = String::new();
    let mut all = Vec::new();
    for line in text.lines() {
        let (word, rest) = line.split_once(' ').expect("a word and its rest");
        let from = match word {
            "#" => {
                command = rest.to_owned();
                continue;
            }
            "request" => From::Ip,
            "answer" => From::KernelAnswer,
            "event" => From::KernelEvent,
            _ => panic!("{line}"),
        };
        let bytes = bytes(rest);
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let (kind, flags) = (half(4), half(6));
        all.push(Recorded {
            command: command.clone(),
            from,
            kind,
            flags,
            payload: bytes[16..].into(),
        });
    }
    all
}
