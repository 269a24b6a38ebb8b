//! The hello inside QUIC's Initial packets.
//!
//! Initial packets are encrypted with keys that follow from the client's first destination connection ID, so that whoever
//! sees the first datagram can read them (RFC 9001 §5.2; RFC 9369 §3.3 for version 2). [`InitialReader`] takes the datagrams
//! of a flow, removes header protection, opens the packets, puts the CRYPTO frames of one side in order and ends when the
//! TLS hello is whole.

use std::ops::Range;

use crypto::Secret;
use crypto::modes::{Mode, Padding, RawKey};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use thiserror::Error;

use crate::bytes::Cursor;
use crate::identifier::Direction;
use crate::tls::{ClientHello, HELLO_MAX, ServerHello};

/// Packets that are opened before a flow is given up.
const TRIES_MAX: u8 = 32;
/// Ranges of the CRYPTO stream that may be apart.
const RANGES_MAX: usize = 16;

/// A version of which the keys are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RFC 9000.
    V1,
    /// RFC 9369.
    V2,
}

impl Version {
    /// By its number on the wire.
    pub const fn of(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::V1),
            0x6b33_43cf => Some(Self::V2),
            _ => None,
        }
    }

    const fn salt(self) -> [u8; 20] {
        match self {
            Self::V1 => [
                0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8,
                0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a,
            ],
            Self::V2 => [
                0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26,
                0x9d, 0xcb, 0xf9, 0xbd, 0x2e, 0xd9,
            ],
        }
    }

    const fn labels(self) -> [&'static [u8]; 3] {
        match self {
            Self::V1 => [b"quic key", b"quic iv", b"quic hp"],
            Self::V2 => [b"quicv2 key", b"quicv2 iv", b"quicv2 hp"],
        }
    }

    /// The packet type of Initial in a long header (RFC 9369 §3.2).
    const fn initial_type(self) -> u8 {
        match self {
            Self::V1 => 0,
            Self::V2 => 1,
        }
    }
}

/// Why a flow is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InitialError {
    /// None of the client's first datagrams has an Initial packet of a known version.
    #[error("no Initial packet of a known QUIC version")]
    NotInitial,
    /// None of the client's first packets is genuine: their tags are wrong.
    #[error("QUIC Initial packets with wrong tags")]
    WrongTag,
    /// A frame that Initial packets must not have, or one that is broken.
    #[error("wrong frame in a QUIC Initial packet")]
    Frame,
    /// The hello is longer than [`HELLO_MAX`], too scattered, or comes in too many packets.
    #[error("QUIC hello too long or too scattered")]
    TooLong,
    /// The first message is not the hello of that side.
    #[error("no TLS hello in the QUIC Initial packets")]
    NotHello,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More datagrams are wanted.
    More,
    /// The hello is there.
    Done,
    /// It is given up.
    Failed(InitialError),
}

struct Keys {
    packet: RawKey,
    iv: [u8; 12],
    header: RawKey,
}

/// One step of HKDF-Expand-Label with an empty context (RFC 8446 §7.1), for at most 32 bytes.
fn expand<const N: usize>(secret: &[u8], label: &[u8]) -> [u8; N] {
    let mut mac = hmac(secret);
    mac.update(&[0, N as u8, 6 + label.len() as u8]); // labels have at most ten bytes
    mac.update(b"tls13 ");
    mac.update(label);
    mac.update(&[0, 1]);
    let block = mac.finalize().into_bytes();
    let mut out = [0; N];
    out.copy_from_slice(&block[..N]);
    out
}

fn hmac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

impl Keys {
    /// Removes both protections (RFC 9001 §5.3, §5.4) and says where in the buffer the text is; `None` where the packet
    /// is not genuine.
    fn open(&self, initial: &Initial<'_>, buffer: &mut Vec<u8>) -> Option<Range<usize>> {
        let (header_len, bytes) = (initial.header_len, initial.bytes);
        // The sample is 16 bytes, four behind where the packet number begins, however long that is.
        let mut mask: [u8; 16] = bytes.get(header_len + 4..header_len + 20)?.try_into().ok()?;
        self.header.encrypt(&[], &[], &mut mask, 16).ok()?;
        buffer.clear();
        buffer.extend_from_slice(bytes);
        buffer[0] ^= mask[0] & 0x0f;
        let number_len = usize::from(buffer[0] & 3) + 1;
        let start = header_len + number_len;
        let (header, payload) = buffer.split_at_mut(start);
        let mut nonce = self.iv;
        // The number that was sent is the whole one: Initial packets are the first.
        for (at, byte) in header[header_len..].iter_mut().enumerate() {
            *byte ^= mask[1 + at];
            nonce[12 - number_len + at] ^= *byte;
        }
        let len = payload.len();
        let len = self.packet.decrypt(&nonce, header, payload, len).ok()?;
        Some(start..start + len)
    }
}

/// What follows from a connection ID of the client.
struct Secrets {
    version: Version,
    id: Vec<u8>,
    /// The opener's first.
    sides: [Keys; 2],
}

impl Secrets {
    fn new(version: Version, id: Vec<u8>) -> Self {
        let mut mac = hmac(&version.salt());
        mac.update(&id);
        let initial = mac.finalize().into_bytes();
        let sides = [b"client in", b"server in"].map(|label| {
            let secret: [u8; 32] = expand(&initial, label);
            let [key, iv, header] = version.labels();
            let raw = |mode, key: [u8; 16]| {
                RawKey::new(mode, &Secret::new(key.to_vec())).expect("a key of 16 bytes")
            };
            Keys {
                packet: raw(Mode::Gcm, expand(&secret, key)),
                iv: expand(&secret, iv),
                header: raw(Mode::Ecb(Padding::None), expand(&secret, header)),
            }
        });
        Self { version, id, sides }
    }
}

/// The CRYPTO stream of one side.
#[derive(Default)]
struct Crypto {
    bytes: Vec<u8>,
    /// What has come, in order and apart.
    ranges: Vec<(usize, usize)>,
}

impl Crypto {
    fn put(&mut self, offset: u64, data: &[u8]) -> Result<(), InitialError> {
        let start = usize::try_from(offset).map_err(|_| InitialError::TooLong)?;
        let end = start
            .checked_add(data.len())
            .filter(|end| *end <= HELLO_MAX)
            .ok_or(InitialError::TooLong)?;
        if data.is_empty() {
            return Ok(());
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        // What came first stays: a copy that differs changes nothing.
        let mut from = start;
        for (known, known_end) in &self.ranges {
            let gap_end = (*known).min(end);
            if from < gap_end {
                self.bytes[from..gap_end].copy_from_slice(&data[from - start..gap_end - start]);
            }
            from = from.max(*known_end);
        }
        if from < end {
            self.bytes[from..end].copy_from_slice(&data[from - start..]);
        }
        let (mut low, mut high) = (start, end);
        self.ranges.retain(|(known, known_end)| {
            let touches = *known <= high && low <= *known_end;
            if touches {
                (low, high) = (low.min(*known), high.max(*known_end));
            }
            !touches
        });
        let place = self.ranges.partition_point(|(known, _)| *known < low);
        self.ranges.insert(place, (low, high));
        match self.ranges.len() > RANGES_MAX {
            true => Err(InitialError::TooLong),
            false => Ok(()),
        }
    }

    /// The bytes without a gap from the start.
    fn front(&self) -> &[u8] {
        match self.ranges.first() {
            Some((0, end)) => &self.bytes[..*end],
            _ => &[],
        }
    }

    fn hello(&self, kind: u8) -> Result<Option<&[u8]>, InitialError> {
        match self.front() {
            [found, ..] if *found != kind => Err(InitialError::NotHello),
            front @ [_, a, b, c, ..] => {
                let len = 4 + u32::from_be_bytes([0, *a, *b, *c]) as usize;
                if len > HELLO_MAX {
                    return Err(InitialError::TooLong);
                }
                Ok(front.get(..len))
            }
            _ => Ok(None),
        }
    }
}

/// Reads the hello of one side from the datagrams of a flow. Its buffers grow to what has come, never beyond
/// [`HELLO_MAX`]. As a peer would, it discards packets that are not genuine.
pub struct InitialReader {
    side: Direction,
    secrets: Option<Secrets>,
    tries: u8,
    saw_initial: bool,
    crypto: Crypto,
    buffer: Vec<u8>,
    progress: Progress,
}

impl InitialReader {
    /// For the hello of one side; the keys come from the opener's packets in both cases.
    pub fn new(side: Direction) -> Self {
        let (crypto, buffer) = (Crypto::default(), Vec::new());
        let progress = Progress::More;
        Self { side, secrets: None, tries: 0, saw_initial: false, crypto, buffer, progress }
    }

    /// Takes the next datagram of the flow.
    pub fn feed(&mut self, direction: Direction, datagram: &[u8]) -> Progress {
        if self.progress != Progress::More {
            return self.progress;
        }
        if let Err(error) = self.packets(direction, datagram) {
            self.progress = Progress::Failed(error);
            return self.progress;
        }
        match self.crypto.hello(self.kind()) {
            Ok(None) if self.tries >= TRIES_MAX => {
                self.progress = Progress::Failed(match (&self.secrets, self.saw_initial) {
                    (Some(_), _) => InitialError::TooLong,
                    (None, true) => InitialError::WrongTag,
                    (None, false) => InitialError::NotInitial,
                });
            }
            Ok(None) => {}
            Ok(Some(_)) => self.progress = Progress::Done,
            Err(error) => self.progress = Progress::Failed(error),
        }
        self.progress
    }

    fn kind(&self) -> u8 {
        1 + self.side as u8
    }

    /// The hello with its header of four bytes, when it is there.
    pub fn message(&self) -> Option<&[u8]> {
        match self.progress {
            Progress::Done => self.crypto.hello(self.kind()).ok().flatten(),
            _ => None,
        }
    }

    /// The client's hello, when it is there and right.
    pub fn client_hello(&self) -> Option<ClientHello<'_>> {
        self.message().and_then(ClientHello::parse)
    }

    /// The server's hello, when it is there and right.
    pub fn server_hello(&self) -> Option<ServerHello<'_>> {
        self.message().and_then(ServerHello::parse)
    }

    /// The version, once a packet has been opened.
    pub fn version(&self) -> Option<Version> {
        self.secrets.as_ref().map(|secrets| secrets.version)
    }

    /// The packets of a datagram, one after the other (RFC 9000 §12.2).
    fn packets(&mut self, direction: Direction, datagram: &[u8]) -> Result<(), InitialError> {
        if direction == Direction::Responder && self.side == Direction::Opener {
            return Ok(());
        }
        let mut has_initial = false;
        let mut rest = datagram;
        while let Some(packet) = Initial::parse(rest) {
            rest = &rest[packet.end..];
            let Some(initial) = packet.initial else { continue };
            has_initial = true;
            if self.tries < TRIES_MAX {
                self.tries += 1;
                self.packet(direction, &initial)?;
            }
        }
        self.saw_initial |= has_initial;
        // Until there are keys, other datagrams count as well.
        self.tries += u8::from(!has_initial && self.secrets.is_none() && self.tries < TRIES_MAX);
        Ok(())
    }

    /// Opens a packet with the keys that there are, or else with those that follow from it: a client's has a connection ID of
    /// its own behind a Retry, a server's may have another version (RFC 9368 §2.3). Keys that open nothing are not kept,
    /// so that a packet that the peer discards does not hide what follows.
    fn packet(&mut self, direction: Direction, initial: &Initial<'_>) -> Result<(), InitialError> {
        let side = direction as usize;
        let known = self.secrets.as_ref();
        let current = known.filter(|secrets| secrets.version == initial.version);
        if let Some(text) = current.and_then(|s| s.sides[side].open(initial, &mut self.buffer)) {
            return self.take(direction, text);
        }
        let id = match (direction, known) {
            (Direction::Opener, _) => initial.id.to_vec(),
            (Direction::Responder, Some(secrets)) => secrets.id.clone(),
            (Direction::Responder, None) => return Ok(()),
        };
        if current.is_some_and(|secrets| secrets.id == id) {
            return Ok(());
        }
        let secrets = Secrets::new(initial.version, id);
        match secrets.sides[side].open(initial, &mut self.buffer) {
            Some(text) => {
                self.secrets = Some(secrets);
                self.take(direction, text)
            }
            None => Ok(()),
        }
    }

    fn take(&mut self, direction: Direction, text: Range<usize>) -> Result<(), InitialError> {
        match direction == self.side {
            true => frames(&self.buffer[text], &mut self.crypto),
            false => Ok(()),
        }
    }
}

/// A packet with a long header, at the beginning of some bytes.
struct Packet<'a> {
    end: usize,
    initial: Option<Initial<'a>>,
}

struct Initial<'a> {
    version: Version,
    /// The destination connection ID.
    id: &'a [u8],
    /// Bytes before the packet number.
    header_len: usize,
    /// The whole packet.
    bytes: &'a [u8],
}

impl Initial<'_> {
    /// Reads a long header (RFC 9000 §17.2); `None` at a short one, at a Retry and at the end.
    fn parse(bytes: &[u8]) -> Option<Packet<'_>> {
        let mut cursor = Cursor::new(bytes);
        let first = cursor.u8()?;
        let version = Version::of(cursor.u32()?)?;
        if first & 0xc0 != 0xc0 {
            return None;
        }
        let (id, source) = (cursor.vector8()?, cursor.vector8()?);
        if id.len() > 20 || source.len() > 20 {
            return None;
        }
        let kind = (first >> 4 & 3).wrapping_sub(version.initial_type()) & 3;
        match kind {
            0 => {
                let token_len = usize::try_from(cursor.varint()?).ok()?;
                cursor.take(token_len)?;
            }
            // 0-RTT, Handshake.
            1 | 2 => {}
            _ => return None,
        }
        let len = usize::try_from(cursor.varint()?).ok()?;
        let header_len = bytes.len() - cursor.rest().len();
        cursor.take(len)?;
        let end = header_len + len;
        let initial = Initial { version, id, header_len, bytes: &bytes[..end] };
        Some(Packet { end, initial: (kind == 0).then_some(initial) })
    }
}

/// The frames that Initial packets may have (RFC 9000 §17.2.2).
fn frames(payload: &[u8], crypto: &mut Crypto) -> Result<(), InitialError> {
    let mut cursor = Cursor::new(payload);
    while let Some(kind) = cursor.u8() {
        match kind {
            // PADDING, PING.
            0 | 1 => {}
            2 | 3 => acknowledgement(&mut cursor, kind == 3).ok_or(InitialError::Frame)?,
            6 => {
                let (offset, data) = crypto_frame(&mut cursor).ok_or(InitialError::Frame)?;
                crypto.put(offset, data)?;
            }
            // CONNECTION_CLOSE: nothing comes any more.
            0x1c => return Ok(()),
            _ => return Err(InitialError::Frame),
        }
    }
    Ok(())
}

/// Offset and data of a CRYPTO frame (RFC 9000 §19.6).
fn crypto_frame<'a>(cursor: &mut Cursor<'a>) -> Option<(u64, &'a [u8])> {
    let (offset, len) = (cursor.varint()?, cursor.varint()?);
    Some((offset, cursor.take(usize::try_from(len).ok()?)?))
}

/// Steps over an ACK frame (§19.3): bounded by the payload, as each range has two bytes at least.
fn acknowledgement(cursor: &mut Cursor<'_>, has_ecn: bool) -> Option<()> {
    let (_largest, _delay, ranges, _first) =
        (cursor.varint()?, cursor.varint()?, cursor.varint()?, cursor.varint()?);
    for _ in 0..ranges {
        let _ = (cursor.varint()?, cursor.varint()?);
    }
    if has_ecn {
        let _ = (cursor.varint()?, cursor.varint()?, cursor.varint()?);
    }
    Some(())
}
