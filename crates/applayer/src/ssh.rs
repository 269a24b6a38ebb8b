//! SSH (RFC 4253): the identification of both sides and the lists of their key exchange; then everything is encrypted.

use l7proto::lines::SshBanner;
use l7proto::tls::hex;
use md5::{Digest, Md5};

use crate::anomaly::AnomalyKind;
use crate::buffer::Buffer;
use crate::line::Line;
use crate::output::Output;
use crate::parser::{Next, Parser};
use crate::sink::{Direction, Progress};
use crate::transaction::{Data, Ssh, SshSide, Transaction};

/// Bytes of an identification with its end (RFC 4253 §4.2).
const BANNER_MAX: usize = 255;
/// Lines before it.
const LINES_MAX: u32 = 256;
/// Packets before the keys: more are no key exchange.
const PACKETS_MAX: u32 = 1024;
const KEXINIT: u8 = 20;
const NEWKEYS: u8 = 21;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Banner,
    /// The first five bytes of a packet: its length, that of its padding.
    Header,
    /// So many bytes of a packet come.
    Packet(usize),
    /// Nothing more is read of the side.
    Over,
}

#[derive(Debug, Default)]
struct Side {
    place: Place,
    line: Line,
    count: u32,
    header: Vec<u8>,
    packet: Vec<u8>,
    /// Type of the packet's message.
    kind: Option<u8>,
    has_lists: bool,
}

/// A flow of SSH.
#[derive(Debug, Default)]
pub(crate) struct SshFlow {
    sides: [Side; 2],
    transaction: Option<Transaction>,
}

impl SshFlow {
    fn ssh<'a>(&'a mut self, out: &mut Output<'_>, direction: Direction) -> (u64, &'a mut SshSide) {
        let transaction =
            self.transaction.get_or_insert_with(|| out.begin(Data::Ssh(Box::default())));
        match &mut transaction.data {
            Data::Ssh(ssh) => {
                let Ssh { sides } = &mut **ssh;
                (transaction.id, sides[direction as usize].get_or_insert_default())
            }
            _ => unreachable!("the transaction was made here"),
        }
    }

    fn odd(&self, out: &mut Output<'_>, kind: AnomalyKind, direction: Direction) {
        let id = self.transaction.as_ref().map(|transaction| transaction.id);
        out.anomaly(kind, id, Some(direction));
    }

    fn banner(&mut self, out: &mut Output<'_>, direction: Direction, text: &[u8], is_cut: bool) {
        let side = &mut self.sides[direction as usize];
        side.count += 1;
        if !text.starts_with(b"SSH-") && side.count < LINES_MAX && direction == Direction::ToClient
        {
            return;
        }
        let Some(banner) = SshBanner::parse(text) else {
            side.place = Place::Over;
            self.odd(out, AnomalyKind::SshBanner, direction);
            return;
        };
        side.place = Place::Header;
        side.count = 0;
        let (id, ssh) = self.ssh(out, direction);
        ssh.protocol = banner.protocol.to_vec();
        ssh.software = banner.software.to_vec();
        ssh.comments = banner.comments.to_vec();
        out.buffer(id, direction, Buffer::SshProto, 0, banner.protocol);
        out.buffer(id, direction, Buffer::SshSoftware, 0, banner.software);
        if is_cut || text.len() > BANNER_MAX - 2 {
            self.odd(out, AnomalyKind::SshLongBanner, direction);
        }
        self.progress(out, Progress::Head(direction));
    }

    fn progress(&mut self, out: &mut Output<'_>, progress: Progress) {
        if let Some(transaction) = &mut self.transaction {
            out.progress(transaction, progress);
            if transaction.done == [true; 2] {
                out.progress(transaction, Progress::Finished);
            }
        }
    }

    fn packet(&mut self, out: &mut Output<'_>, direction: Direction, bytes: &[u8]) {
        let side = &mut self.sides[direction as usize];
        let Place::Packet(left) = side.place else { return };
        if let (None, Some(first)) = (side.kind, bytes.first()) {
            side.kind = Some(*first);
        }
        if side.kind == Some(KEXINIT) && !side.has_lists {
            let room = out.limits.handshake_bytes.saturating_sub(side.packet.len());
            side.packet.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        side.place = Place::Packet(left - bytes.len());
        if left > bytes.len() {
            return;
        }
        side.place = Place::Header;
        side.count += 1;
        let packet = std::mem::take(&mut side.packet);
        match side.kind.take() {
            Some(KEXINIT) if !side.has_lists => {
                side.has_lists = true;
                match lists(&packet, direction) {
                    Some(text) => self.give_lists(out, direction, text),
                    None => self.odd(out, AnomalyKind::SshRecord, direction),
                }
            }
            Some(NEWKEYS) => {
                side.place = Place::Over;
                self.progress(out, Progress::Done(direction));
            }
            _ if side.count > PACKETS_MAX => side.place = Place::Over,
            _ => {}
        }
    }

    fn give_lists(&mut self, out: &mut Output<'_>, direction: Direction, text: String) {
        let (id, ssh) = self.ssh(out, direction);
        let digest = hex(&Md5::digest(text.as_bytes()));
        let (of_text, of_digest) = match direction {
            Direction::ToServer => (Buffer::SshHasshString, Buffer::SshHassh),
            Direction::ToClient => (Buffer::SshHasshServerString, Buffer::SshHasshServer),
        };
        out.buffer(id, direction, of_text, 0, text.as_bytes());
        out.buffer(id, direction, of_digest, 0, digest.as_bytes());
        (ssh.hassh_string, ssh.hassh) = (Some(text), Some(digest));
        self.progress(out, Progress::Head(direction));
    }
}

/// The lists of which hassh or hasshServer is the digest (Salesforce, BSD 3-clause: `salesforce/hassh`).
fn lists(message: &[u8], direction: Direction) -> Option<String> {
    // Type and cookie; then ten lists behind their lengths.
    let mut rest = message.get(17..)?;
    let mut lists = Vec::new();
    for _ in 0..8 {
        let (len, behind) = rest.split_first_chunk()?;
        let (list, next) = behind.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        lists.push(String::from_utf8_lossy(list));
        rest = next;
    }
    // Key exchange; encryption, MAC and compression of the direction.
    let own = direction as usize;
    Some([&lists[0][..], &lists[2 + own], &lists[4 + own], &lists[6 + own]].join(";"))
}

impl Parser for SshFlow {
    fn held(&self) -> usize {
        let of_side =
            |side: &Side| side.line.held() + side.header.capacity() + side.packet.capacity();
        let open = self.transaction.as_ref().map_or(0, |own| own.data.held());
        size_of::<Self>() + self.sides.iter().map(of_side).sum::<usize>() + open
    }

    fn data(&mut self, out: &mut Output<'_>, direction: Direction, mut bytes: &[u8]) -> Next {
        while !bytes.is_empty() {
            let limit = out.limits.line_bytes;
            let side = &mut self.sides[direction as usize];
            match side.place {
                Place::Over => break,
                Place::Banner => {
                    let mut line = std::mem::take(&mut side.line);
                    bytes = &bytes[line.feed(bytes, limit)..];
                    if let Some((text, is_cut)) = line.whole() {
                        self.banner(out, direction, text, is_cut);
                    }
                    self.sides[direction as usize].line = line;
                }
                Place::Header => {
                    let len = (5 - side.header.len()).min(bytes.len());
                    side.header.extend_from_slice(&bytes[..len]);
                    bytes = &bytes[len..];
                    if let [a, b, c, d, padding] = side.header[..] {
                        side.header.clear();
                        let len = u32::from_be_bytes([a, b, c, d]) as usize;
                        // At least the padding, its length and a type (RFC 4253 §6).
                        if len < usize::from(padding) + 2 || len > 256 << 10 {
                            side.place = Place::Over;
                            self.odd(out, AnomalyKind::SshRecord, direction);
                        } else {
                            side.place = Place::Packet(len - 1);
                        }
                    }
                }
                Place::Packet(left) => {
                    let (piece, rest) = bytes.split_at(left.min(bytes.len()));
                    bytes = rest;
                    self.packet(out, direction, piece);
                }
            }
        }
        let is_over = self.sides.iter().all(|side| side.place == Place::Over);
        if is_over { Next::Bypass } else { Next::More }
    }

    fn gap(&mut self, out: &mut Output<'_>, direction: Direction, bytes: u64) -> Next {
        let side = &mut self.sides[direction as usize];
        match side.place {
            // The lists of a key exchange are not whole then.
            Place::Packet(left)
                if (left as u64) > bytes && side.kind.is_some_and(|k| k != KEXINIT) =>
            {
                side.place = Place::Packet(left - bytes as usize); // less than what is left
            }
            _ => side.place = Place::Over,
        }
        self.data(out, direction, &[])
    }

    fn end_of_side(&mut self, _: &mut Output<'_>, _: Direction) {}

    fn finish(&mut self, out: &mut Output<'_>) {
        if let Some(mut transaction) = self.transaction.take()
            && transaction.done != [true; 2]
        {
            out.progress(&mut transaction, Progress::Finished);
        }
    }
}
