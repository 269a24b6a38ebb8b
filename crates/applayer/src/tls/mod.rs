//! TLS (RFC 5246, RFC 8446) and SSL 3: records, handshake messages in the clear, certificates; then everything is encrypted.
//!
//! ```text
//!  records ─┬─ handshake (22) ─▶ messages over records: hellos, certificates, … up to ChangeCipherSpec of the side
//!           ├─ alert (21), ChangeCipherSpec (20), heartbeat (24)
//!           └─ data (23), or a handshake (22) behind ChangeCipherSpec ─▶ the side is done
//!  both sides are done ─▶ nothing more is read
//! ```

mod certificate;

use l7proto::tls::{ClientHello, Ja4Transport, ServerHello, hex};

use crate::anomaly::AnomalyKind;
use crate::buffer::Buffer;
use crate::output::Output;
use crate::parser::{Next, Parser};
use crate::sink::{Direction, Progress};
use crate::transaction::{Data, Tls, Transaction};

const CHANGE_CIPHER_SPEC: u8 = 20;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
const HEARTBEAT: u8 = 24;

/// Bytes of a record (RFC 8446 §5.2), with what older versions add.
const RECORD_MAX: usize = (1 << 14) + 2048;
/// Bytes of other records that are looked at.
const LOOK: usize = 8;
/// Records of a side without its encryption: what has more is no handshake.
const RECORDS_MAX: u32 = 4096;

#[derive(Debug, Default)]
struct Side {
    header: Vec<u8>,
    /// Bytes of the record that have not come.
    left: usize,
    kind: u8,
    /// Its records are encrypted from now on.
    is_encrypted: bool,
    /// Bytes of handshake messages, the first of which is not whole.
    messages: Vec<u8>,
    /// Bytes of a message that is too long, which are skipped.
    skipped: usize,
    /// The first bytes of the record.
    look: Vec<u8>,
    record_len: usize,
    records: u32,
    is_lost: bool,
    /// It was said that a record has a version that does not exist.
    is_odd: bool,
}

/// A flow of TLS.
#[derive(Debug, Default)]
pub(crate) struct TlsFlow {
    sides: [Side; 2],
    transaction: Option<Transaction>,
    session_offered: Vec<u8>,
    has_ticket: bool,
}

impl TlsFlow {
    fn tls<'a>(&'a mut self, out: &mut Output<'_>) -> (u64, &'a mut Tls) {
        let transaction =
            self.transaction.get_or_insert_with(|| out.begin(Data::Tls(Box::default())));
        match &mut transaction.data {
            Data::Tls(tls) => (transaction.id, tls),
            _ => unreachable!("the transaction was made here"),
        }
    }

    fn odd(&mut self, out: &mut Output<'_>, kind: AnomalyKind, direction: Direction) {
        let id = self.transaction.as_ref().map(|transaction| transaction.id);
        out.anomaly(kind, id, Some(direction));
    }

    /// A header of a record; `false` if it is none.
    fn begin_record(&mut self, out: &mut Output<'_>, direction: Direction) -> bool {
        let side = &mut self.sides[direction as usize];
        let [kind, major, minor, high, low] = side.header[..] else { return false };
        side.header.clear();
        side.look.clear();
        let len = usize::from(u16::from_be_bytes([high, low]));
        (side.kind, side.left, side.record_len) = (kind, len, len);
        side.records += 1;
        let records = side.records;
        // Implementations take any minor version. Drafts of TLS 1.3 have 0x7f as major version in hellos only.
        let is_odd = major == 3 && minor > 4 && !std::mem::replace(&mut side.is_odd, true);
        let wrong = if !(CHANGE_CIPHER_SPEC..=HEARTBEAT).contains(&kind) {
            Some(AnomalyKind::TlsRecordType)
        } else if major != 3 {
            Some(AnomalyKind::TlsRecordVersion)
        } else if len > RECORD_MAX || records > RECORDS_MAX {
            Some(AnomalyKind::TlsRecordLength)
        } else {
            None
        };
        if is_odd {
            self.odd(out, AnomalyKind::TlsRecordVersion, direction);
        }
        if let Some(kind) = wrong {
            self.odd(out, kind, direction);
            return false;
        }
        if len == 0 {
            self.end_record(out, direction);
        }
        true
    }

    /// Bytes of a record.
    fn record(&mut self, out: &mut Output<'_>, direction: Direction, bytes: &[u8]) {
        let side = &mut self.sides[direction as usize];
        side.left -= bytes.len();
        if side.kind == HANDSHAKE && !side.is_encrypted {
            let skipped = side.skipped.min(bytes.len());
            side.skipped -= skipped;
            side.messages.extend_from_slice(&bytes[skipped..]);
            self.messages(out, direction);
        } else {
            let room = LOOK.saturating_sub(side.look.len()).min(bytes.len());
            side.look.extend_from_slice(&bytes[..room]);
        }
        if self.sides[direction as usize].left == 0 {
            self.end_record(out, direction);
        }
    }

    fn end_record(&mut self, out: &mut Output<'_>, direction: Direction) {
        let side = &mut self.sides[direction as usize];
        match side.kind {
            CHANGE_CIPHER_SPEC => {
                // In TLS 1.3 it means nothing, and what follows is data.
                side.is_encrypted = true;
                side.messages = Vec::new();
                let version = self.tls(out).1.version;
                if direction == Direction::ToClient && version < 0x0304 {
                    self.note_resumption(out);
                }
            }
            DATA => {
                side.is_encrypted = true;
                side.messages = Vec::new();
                self.done(out, direction);
            }
            HANDSHAKE if side.is_encrypted => {
                // Finished.
                self.done(out, direction);
            }
            HEARTBEAT if !side.is_encrypted => {
                // Type, length of the payload; three bytes and sixteen of padding at least (RFC 6520 §4).
                let (is_valid, is_too_long) = match side.look[..] {
                    [kind @ (1 | 2), high, low, ..] => {
                        let len = usize::from(u16::from_be_bytes([high, low])) + 19;
                        (true, kind == 1 && len > side.record_len)
                    }
                    _ => (false, false),
                };
                self.odd(out, AnomalyKind::TlsHeartbeatSeen, direction);
                if !is_valid {
                    self.odd(out, AnomalyKind::TlsHeartbeatInvalid, direction);
                } else if is_too_long {
                    self.odd(out, AnomalyKind::TlsHeartbeat, direction);
                }
            }
            _ => {}
        }
    }

    /// The server went on without certificates of its own: the session is an older one.
    fn note_resumption(&mut self, out: &mut Output<'_>) {
        let (has_ticket, offered) = (self.has_ticket, !self.session_offered.is_empty());
        let (_, tls) = self.tls(out);
        tls.is_resumed =
            tls.certificates[1].is_empty() && tls.cipher.is_some() && (has_ticket || offered);
    }

    fn done(&mut self, out: &mut Output<'_>, direction: Direction) {
        let encrypted = self.sides.iter().all(|side| side.is_encrypted);
        let (_, tls) = self.tls(out);
        tls.is_established |= encrypted;
        let Some(transaction) = &mut self.transaction else { return };
        if !transaction.is_done(direction) {
            out.progress(transaction, Progress::Done(direction));
            if transaction.done == [true; 2] {
                out.progress(transaction, Progress::Finished);
            }
        }
    }

    fn messages(&mut self, out: &mut Output<'_>, direction: Direction) {
        loop {
            let side = &mut self.sides[direction as usize];
            let [_, a, b, c, ..] = side.messages[..] else { return };
            let len = 4 + u32::from_be_bytes([0, a, b, c]) as usize;
            if len > out.limits.handshake_bytes {
                side.skipped = len - side.messages.len().min(len);
                let rest = side.messages.get(len..).unwrap_or_default().to_vec();
                side.messages = rest;
                self.odd(out, AnomalyKind::TlsHandshakeLength, direction);
                continue;
            }
            if side.messages.len() < len {
                return;
            }
            let rest = side.messages.split_off(len);
            let message = std::mem::replace(&mut side.messages, rest);
            self.message(out, direction, &message);
        }
    }

    fn message(&mut self, out: &mut Output<'_>, direction: Direction, message: &[u8]) {
        let is_read = match message[0] {
            1 if direction == Direction::ToServer => self.client_hello(out, message),
            2 if direction == Direction::ToClient => self.server_hello(out, message),
            11 => self.certificates(out, direction, &message[4..]),
            _ => Some(()),
        };
        if is_read.is_none() {
            self.odd(out, AnomalyKind::TlsHandshake, direction);
        }
    }

    fn client_hello(&mut self, out: &mut Output<'_>, message: &[u8]) -> Option<()> {
        let direction = Direction::ToServer;
        let hello = ClientHello::parse(message)?;
        let random: [u8; 32] = *message.get(6..)?.first_chunk()?;
        self.session_offered = hello.session().to_vec();
        self.has_ticket = hello.extension(35).is_some_and(|ticket| !ticket.is_empty())
            || hello.extension(41).is_some();
        let (id, tls) = self.tls(out);
        if tls.random[0].is_some() {
            // The second one of a retry says the same again.
            return Some(());
        }
        tls.version = hello
            .supported_versions()
            .filter(|v| *v >> 8 == 3)
            .max()
            .unwrap_or(hello.legacy_version);
        tls.sni = hello.server_name().map(<[u8]>::to_vec);
        tls.alpn_offered = hello.alpn().take(64).map(<[u8]>::to_vec).collect();
        tls.random[0] = Some(random);
        tls.ja3 = Some((hello.ja3_text(), hello.ja3()));
        tls.ja4 = Some(hello.ja4(Ja4Transport::Tcp));
        let mut give =
            |buffer, number, bytes: &[u8]| out.buffer(id, direction, buffer, number, bytes);
        if let Some(sni) = &tls.sni {
            give(Buffer::TlsSni, 0, sni);
        }
        for (number, protocol) in tls.alpn_offered.iter().enumerate() {
            give(Buffer::TlsAlpn, number, protocol);
        }
        give_random(&random, &mut give);
        if let Some((text, digest)) = &tls.ja3 {
            give(Buffer::Ja3String, 0, text.as_bytes());
            give(Buffer::Ja3Hash, 0, hex(digest).as_bytes());
        }
        if let Some(ja4) = &tls.ja4 {
            give(Buffer::Ja4Hash, 0, ja4.as_bytes());
        }
        let sni = tls.sni.clone();
        if sni.is_some_and(|sni| sni.is_empty() || !sni.iter().all(u8::is_ascii_graphic)) {
            self.odd(out, AnomalyKind::TlsSni, direction);
        }
        for kind in odd_names(&hello) {
            self.odd(out, kind, direction);
        }
        self.head(out, direction);
        Some(())
    }

    fn head(&mut self, out: &mut Output<'_>, direction: Direction) {
        if let Some(transaction) = &mut self.transaction {
            out.progress(transaction, Progress::Head(direction));
        }
    }

    fn server_hello(&mut self, out: &mut Output<'_>, message: &[u8]) -> Option<()> {
        let direction = Direction::ToClient;
        let hello = ServerHello::parse(message)?;
        let random: [u8; 32] = *message.get(6..)?.first_chunk()?;
        let (id, tls) = self.tls(out);
        if tls.random[1].is_some() && tls.random[1] != Some(RETRY) {
            return Some(());
        }
        tls.version = hello.version();
        tls.cipher = Some(hello.cipher);
        tls.alpn = hello.alpn().map(<[u8]>::to_vec);
        let is_retry = tls.random[1] == Some(RETRY);
        tls.random[1] = Some(random);
        tls.is_resumed = hello.extension(41).is_some();
        if is_retry {
            // JA3S and the rest are those of the first message.
            return Some(());
        }
        tls.ja3s = Some((hello.ja3s_text(), hello.ja3s()));
        let mut give =
            |buffer, number, bytes: &[u8]| out.buffer(id, direction, buffer, number, bytes);
        if let Some(protocol) = &tls.alpn {
            give(Buffer::TlsAlpn, 0, protocol);
        }
        give_random(&random, &mut give);
        if let Some((text, digest)) = &tls.ja3s {
            give(Buffer::Ja3sString, 0, text.as_bytes());
            give(Buffer::Ja3sHash, 0, hex(digest).as_bytes());
        }
        self.head(out, direction);
        Some(())
    }

    fn certificates(
        &mut self,
        out: &mut Output<'_>,
        direction: Direction,
        body: &[u8],
    ) -> Option<()> {
        let take = |bytes: &mut &[u8]| -> Option<Vec<u8>> {
            let (len, rest) = bytes.split_at_checked(3)?;
            let len = u32::from_be_bytes([0, len[0], len[1], len[2]]) as usize;
            let (taken, rest) = rest.split_at_checked(len)?;
            *bytes = rest;
            Some(taken.to_vec())
        };
        let mut body = body;
        let list = take(&mut body)?;
        let mut list = &list[..];
        let limit = out.limits.certificates;
        let side = direction as usize;
        let mut has_odd = false;
        let (id, tls) = self.tls(out);
        let is_first = tls.certificates[side].is_empty();
        let mut is_right = true;
        while !list.is_empty() && is_first && tls.certificates[side].len() < limit {
            let Some(der) = take(&mut list) else {
                is_right = false;
                break;
            };
            let certificate = certificate::read(&der);
            has_odd |= !certificate.is_read;
            tls.certificates[side].push(certificate);
        }
        let mut give =
            |buffer, number, bytes: &[u8]| out.buffer(id, direction, buffer, number, bytes);
        if is_first {
            for (number, certificate) in tls.certificates[side].iter().enumerate() {
                give(Buffer::TlsCerts, number, &certificate.der);
            }
            if let Some(own) = tls.certificates[side].first() {
                if own.is_read {
                    give(Buffer::TlsCertSubject, 0, own.subject.as_bytes());
                    give(Buffer::TlsCertIssuer, 0, own.issuer.as_bytes());
                    give(Buffer::TlsCertSerial, 0, own.serial.as_bytes());
                    for (number, name) in own.names.iter().enumerate() {
                        give(Buffer::TlsSubjectAltName, number, name.as_bytes());
                    }
                }
                give(Buffer::TlsCertFingerprint, 0, own.fingerprint.as_bytes());
            }
            self.head(out, direction);
        }
        if has_odd {
            self.odd(out, AnomalyKind::TlsCertificate, direction);
        }
        is_right.then_some(())
    }
}

/// What is odd in the names of the server that a client wants (RFC 6066 §3).
fn odd_names(hello: &ClientHello<'_>) -> Vec<AnomalyKind> {
    let mut lists = hello.extensions().filter(|(kind, _)| *kind == 0).map(|(_, data)| data);
    let Some(data) = lists.next() else { return Vec::new() };
    let several = lists.next().map(|_| AnomalyKind::TlsSeveralSni);
    // The length of the list; kind, length and bytes of its only name.
    let of_list = match *data {
        [a, b, kind, c, d, ref name @ ..] => {
            let [list, len] = [[a, b], [c, d]].map(|own| usize::from(u16::from_be_bytes(own)));
            match kind {
                0 if list + 2 == data.len() && len == name.len() => None,
                0 => Some(AnomalyKind::TlsSniLength),
                _ => Some(AnomalyKind::TlsSniType),
            }
        }
        _ => Some(AnomalyKind::TlsSniLength),
    };
    several.into_iter().chain(of_list).collect()
}

/// The random value of a message that asks for another hello (RFC 8446 §4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

fn give_random(random: &[u8; 32], give: &mut dyn FnMut(Buffer, usize, &[u8])) {
    give(Buffer::TlsRandom, 0, random);
    give(Buffer::TlsRandomTime, 0, &random[..4]);
    give(Buffer::TlsRandomBytes, 0, &random[4..]);
}

impl Parser for TlsFlow {
    fn held(&self) -> usize {
        let of_side =
            |side: &Side| side.header.capacity() + side.messages.capacity() + side.look.capacity();
        let open = self.transaction.as_ref().map_or(0, |own| own.data.held());
        let sides = self.sides.iter().map(of_side).sum::<usize>();
        size_of::<Self>() + sides + open + self.session_offered.capacity()
    }

    fn data(&mut self, out: &mut Output<'_>, direction: Direction, mut bytes: &[u8]) -> Next {
        while !bytes.is_empty() {
            let side = &mut self.sides[direction as usize];
            if side.is_lost {
                return Next::More;
            }
            if side.left > 0 {
                let len = side.left.min(bytes.len());
                let (piece, rest) = bytes.split_at(len);
                bytes = rest;
                self.record(out, direction, piece);
            } else {
                let len = (5 - side.header.len()).min(bytes.len());
                side.header.extend_from_slice(&bytes[..len]);
                bytes = &bytes[len..];
                if side.header.len() == 5 && !self.begin_record(out, direction) {
                    self.sides[direction as usize].is_lost = true;
                    let is_over = self.sides.iter().all(|side| side.is_lost);
                    return if is_over { Next::Bypass } else { Next::More };
                }
            }
            if self.transaction.as_ref().is_some_and(|transaction| transaction.done == [true; 2]) {
                return Next::Encrypted { unread: bytes.len() };
            }
        }
        Next::More
    }

    fn gap(&mut self, _: &mut Output<'_>, direction: Direction, bytes: u64) -> Next {
        let side = &mut self.sides[direction as usize];
        let is_within = side.header.is_empty() && (side.left as u64) > bytes;
        if is_within && (side.is_encrypted || side.kind != HANDSHAKE) {
            side.left -= bytes as usize; // less than what is left
            return Next::More;
        }
        side.is_lost = true;
        side.messages = Vec::new();
        if self.sides.iter().all(|side| side.is_lost) { Next::Bypass } else { Next::More }
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
