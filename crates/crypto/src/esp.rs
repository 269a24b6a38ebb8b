//! Encapsulating security payload (RFC 4303): associations and the bodies of their packets.
//!
//! ```text
//!  ┌─────┬────────┬────────────────────┬─────────┬─────────┬─────────┬────────┬──────┬─────────────┐
//!  │ SPI │ number │ initialisation     │ payload │ TFC     │ padding │ length │ next │ check value │
//!  │  4  │   4    │ vector  0, 8, 16   │         │ padding │ 1, 2, … │ of it  │ hdr  │  8 to 32    │
//!  └─────┴────────┴────────────────────┴─────────┴─────────┴─────────┴────────┴──────┴─────────────┘
//!                                      ◀───────────── text, encrypted ─────────────▶
//! ```
//!
//! Sending: [`Outbound::take`] gives numbers, each a value that is used up by [`Number::seal`], so that no packet can have
//! the number of another one; [`seal_batch`] does the rest. Receiving: [`Inbound::open`] parses and looks at the window,
//! [`open_batch`] authenticates, decrypts, sets the window and takes the padding off. Several threads may work for one
//! association; where their packets retire in order behind [`open_batch_deferred`], [`Inbound::accept`] decides there. Both ways may be taken in
//! steps, one of which a device can do: [`Number::prepare`] and [`Inbound::open_as`].
//!
//! IP headers, UDP encapsulation and policies are not known here.

mod prepared;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

pub use prepared::Prepared;

use crate::batch::{Carries, Failure, Request, TEXT_MAX, open_all, seal_all};
use crate::marks::Marks;
use crate::sequence::Sequence;
use crate::suite::{Key, Suite, place_of};
use crate::window::{Replay, ReplayWindow, WORD, WindowError};

/// Bytes in front of the initialisation vector.
pub const HEADER_LEN: usize = 8;
/// Length of the padding and next header.
pub const TRAILER_LEN: usize = 2;
/// The lowest security parameters index that may be used: 0 is never sent, the others are reserved (RFC 4303 §2.1).
pub const SPI_MIN: u32 = 256;
/// Next header of a packet that is sent for its looks only (RFC 4303 §2.6).
pub const NO_NEXT_HEADER: u8 = 59;

/// What every packet begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Security parameters index.
    pub spi: u32,
    /// Sequence number, or its lower half.
    pub number: u32,
}

impl Header {
    /// Reads it from the front of a packet.
    #[inline]
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let (header, _) = packet.split_first_chunk::<HEADER_LEN>()?;
        let [a, b, c, d, e, f, g, h] = *header;
        Some(Self {
            spi: u32::from_be_bytes([a, b, c, d]),
            number: u32::from_be_bytes([e, f, g, h]),
        })
    }

    #[inline]
    fn bytes(self) -> [u8; HEADER_LEN] {
        (u64::from(self.spi) << 32 | u64::from(self.number)).to_be_bytes()
    }
}

/// What the text of every packet ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// Bytes of payload in front of it, TFC padding included: an IP header within says where its packet ends.
    pub payload_len: usize,
    /// Protocol of the payload.
    pub next_header: u8,
}

impl Trailer {
    /// Reads it from the end of a decrypted text. None if the padding is longer than the text, or is not 1, 2, 3, … (RFC
    /// 4303 §2.4).
    #[inline]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (front, &[pad_len, next_header]) = text.split_last_chunk::<TRAILER_LEN>()?;
        let payload_len = front.len().checked_sub(pad_len.into())?;
        let is_counted =
            front[payload_len..].iter().zip(1..=u8::MAX).all(|(byte, expected)| *byte == expected);
        is_counted.then_some(Self { payload_len, next_header })
    }

    /// Writes padding and trailer behind the payload, to the end of the text.
    #[inline]
    fn write(self, text: &mut [u8]) {
        let Self { payload_len, next_header } = self;
        match &mut text[payload_len..] {
            // Most suites pad to words.
            [pad_len, next] => [*pad_len, *next] = [0, next_header],
            [a, pad_len, next] => [*a, *pad_len, *next] = [1, 1, next_header],
            [a, b, pad_len, next] => [*a, *b, *pad_len, *next] = [1, 2, 2, next_header],
            [a, b, c, pad_len, next] => [*a, *b, *c, *pad_len, *next] = [1, 2, 3, 3, next_header],
            end => {
                let pad_len = end.len() - TRAILER_LEN; // below the alignment
                for (byte, value) in end.iter_mut().zip(1..=pad_len as u8) {
                    *byte = value;
                }
                if let Some(place) = end.last_chunk_mut() {
                    *place = [pad_len as u8, next_header];
                }
            }
        }
    }
}

/// What the length of a text is a multiple of (RFC 4303 §2.4).
#[inline]
fn alignment(suite: Suite) -> usize {
    suite.block_len().max(4)
}

/// Length in bytes of the text of a payload: with padding and trailer.
#[inline]
pub fn text_len(suite: Suite, payload_len: usize) -> usize {
    // A power of two: no division for a packet.
    let mask = alignment(suite) - 1;
    (payload_len + TRAILER_LEN + mask) & !mask
}

/// Bytes in front of the payload: header and initialisation vector.
#[inline]
pub fn front_len(suite: Suite) -> usize {
    HEADER_LEN + suite.iv_len()
}

/// Bytes behind a payload of `payload_len` bytes: padding, trailer, check value.
#[inline]
pub fn back_len(suite: Suite, payload_len: usize) -> usize {
    text_len(suite, payload_len) - payload_len + suite.icv_len()
}

/// The longest payload in bytes that has room, with what is behind it, in `room` bytes.
#[inline]
pub fn payload_max(suite: Suite, room: usize) -> usize {
    let text = room.saturating_sub(suite.icv_len()) & !(alignment(suite) - 1);
    text.saturating_sub(TRAILER_LEN)
}

/// Why an association cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssociationError {
    /// The security parameters index is reserved.
    Spi {
        /// It.
        spi: u32,
    },
    /// The replay window has no such length.
    Window(WindowError),
    /// Extended sequence numbers need a window, by which the upper half is found.
    ExtendedWithoutWindow,
}

impl fmt::Display for AssociationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spi { spi } => write!(f, "SPI {spi} is reserved: use {SPI_MIN} or more"),
            Self::Window(error) => error.fmt(f),
            Self::ExtendedWithoutWindow => {
                f.write_str("extended sequence numbers need a replay window")
            }
        }
    }
}

impl std::error::Error for AssociationError {}

fn check_spi(spi: u32) -> Result<(), AssociationError> {
    match spi {
        ..SPI_MIN => Err(AssociationError::Spi { spi }),
        _ => Ok(()),
    }
}

/// An association that packets are sent by.
#[derive(Debug)]
#[repr(C)] // what packets read is side by side, as in `Key`
pub struct Outbound {
    /// Shared with associations that it has taken the place of: workers may still send by those.
    sequence: Arc<Sequence>,
    spi: u32,
    is_extended: bool,
    key: Key,
}

impl Outbound {
    /// An association whose first packet has number 1.
    ///
    /// # Errors
    ///
    /// The index is reserved.
    pub fn new(key: Key, spi: u32, is_extended: bool) -> Result<Self, AssociationError> {
        Self::resume(key, spi, is_extended, 1)
    }

    /// An association that goes on with another number: those before were used elsewhere.
    ///
    /// # Errors
    ///
    /// The index is reserved.
    pub fn resume(
        key: Key,
        spi: u32,
        is_extended: bool,
        next: u64,
    ) -> Result<Self, AssociationError> {
        check_spi(spi)?;
        let sequence = Arc::new(Sequence::starting_at(next, is_extended));
        Ok(Self { key, spi, is_extended, sequence })
    }

    /// Takes its numbers from where another association takes them, from `next` of its own on: no number is given by both,
    /// whoever sends by which.
    ///
    /// # Errors
    ///
    /// Its numbers are longer than those of this one.
    pub fn share(&mut self, sequence: &Arc<Sequence>) -> Result<(), Longer> {
        if !self.is_extended && sequence.is_extended() {
            return Err(Longer);
        }
        sequence.take(self.sequence.next().saturating_sub(sequence.next()));
        self.sequence = sequence.clone();
        Ok(())
    }

    /// Its suite.
    #[inline]
    pub fn suite(&self) -> Suite {
        self.key.suite()
    }

    /// By which its keys are compared.
    pub fn marks(&self) -> Marks {
        self.key.marks()
    }

    /// Its security parameters index.
    #[inline]
    pub fn spi(&self) -> u32 {
        self.spi
    }

    /// Where what its packets read is, but for its sequence numbers ([`Key::read_by_packets`]).
    pub fn read_by_packets(&self, see: &mut dyn FnMut(Range<usize>)) {
        self.key.read_by_packets(see);
        see(place_of(&self.spi));
        see(place_of(&self.is_extended));
        see(place_of(&self.sequence));
    }

    /// Its sequence numbers.
    pub fn sequence(&self) -> &Arc<Sequence> {
        &self.sequence
    }

    /// Takes numbers for as many packets, or fewer, or none: the numbers of an association end and never wrap. What is
    /// taken and not used is lost, as packets are.
    #[inline]
    pub fn take(&self, count: u64) -> Numbers<'_> {
        Numbers { association: self, numbers: self.sequence.take(count) }
    }
}

/// That sequence numbers are longer than those of an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Longer;

/// Numbers of an association, each given once.
#[derive(Debug)]
pub struct Numbers<'a> {
    association: &'a Outbound,
    numbers: Range<u64>,
}

impl<'a> Iterator for Numbers<'a> {
    type Item = Number<'a>;

    #[inline]
    fn next(&mut self) -> Option<Number<'a>> {
        let value = self.numbers.next()?;
        Some(Number { association: self.association, value })
    }
}

/// The number of one packet. It cannot be copied.
#[derive(Debug)]
pub struct Number<'a> {
    association: &'a Outbound,
    value: u64,
}

/// A packet to be sealed.
#[derive(Debug)]
pub struct Seal<'a> {
    request: Request<'a>,
    /// Where the packet is in its buffer.
    packet: Range<usize>,
    number: u64,
    error: Option<SealError>,
}

/// Why a packet was not sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealError {
    /// The buffer has less room in front of the payload than [`front_len`].
    NoRoomInFront {
        /// Bytes wanted.
        needed: usize,
        /// Bytes there.
        found: usize,
    },
    /// The buffer has less room behind the payload than TFC padding and [`back_len`]. Also where the payload is not in the
    /// buffer.
    NoRoomBehind {
        /// Bytes wanted.
        needed: usize,
        /// Bytes there.
        found: usize,
    },
    /// The cipher did not take it.
    Cipher(Failure),
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoomInFront { needed, found } => {
                write!(
                    f,
                    "ESP needs {needed} bytes in front of the payload, the buffer has {found}"
                )
            }
            Self::NoRoomBehind { needed, found } => {
                write!(f, "ESP needs {needed} bytes behind the payload, the buffer has {found}")
            }
            Self::Cipher(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for SealError {}

impl<'a> Number<'a> {
    /// The number itself.
    #[inline]
    pub fn value(&self) -> u64 {
        self.value
    }

    /// Makes the payload at `payload` of a buffer a packet: header and initialisation vector come in front, `tfc_len`
    /// zeros (RFC 4303 §2.7), padding, trailer and check value behind. [`seal_batch`] encrypts it.
    #[inline]
    pub fn seal(
        self,
        buffer: &'a mut [u8],
        payload: Range<usize>,
        next_header: u8,
        tfc_len: usize,
    ) -> Seal<'a> {
        let Self { association, value: number } = self;
        let key = &association.key;
        let placed = place(key.suite(), buffer.len(), &payload, tfc_len);
        let (packet, error) = match placed {
            Ok(packet) => (packet, None),
            Err(error) => (0..0, Some(error)),
        };
        let bytes = &mut buffer[packet.clone()];
        let text_len =
            if error.is_none() { text_len(key.suite(), payload.len() + tfc_len) } else { 0 };
        let mut request = Request::new(key, bytes, HEADER_LEN, text_len);
        if error.is_some() {
            request.result = Err(Failure::Layout);
            return Seal { request, packet, number, error };
        }
        let header = Header { spi: association.spi, number: number as u32 }; // the lower half
        if let Some(place) = request.buffer.first_chunk_mut() {
            *place = header.bytes();
        }
        let trailer = Trailer { payload_len: payload.len() + tfc_len, next_header };
        let text = request.text_mut();
        if tfc_len > 0 {
            text[payload.len()..payload.len() + tfc_len].fill(0);
        }
        trailer.write(text);
        request.iv = key.iv(association.spi, number);
        request.sequence_high = association.is_extended.then_some((number >> 32) as u32);
        Seal { request, packet, number, error }
    }
}

/// Where a packet lies in a buffer that has its payload.
#[inline]
fn place(
    suite: Suite,
    buffer_len: usize,
    payload: &Range<usize>,
    tfc_len: usize,
) -> Result<Range<usize>, SealError> {
    let len = payload.len().saturating_add(tfc_len);
    if payload.start > payload.end || payload.end > buffer_len || len > TEXT_MAX / 2 {
        let found = buffer_len.saturating_sub(payload.start);
        return Err(SealError::NoRoomBehind { needed: len, found });
    }
    let needed = front_len(suite);
    let start = payload.start.checked_sub(needed);
    let start = start.ok_or(SealError::NoRoomInFront { needed, found: payload.start })?;
    let (needed, found) = (tfc_len + back_len(suite, len), buffer_len - payload.end);
    match needed > found {
        true => Err(SealError::NoRoomBehind { needed, found }),
        false => Ok(start..payload.end + needed),
    }
}

impl Seal<'_> {
    /// The number that the packet has.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// After [`seal_batch`]: where the packet is in its buffer.
    ///
    /// # Errors
    ///
    /// Why there is none. Its number is used up.
    #[inline]
    pub fn result(&self) -> Result<Range<usize>, SealError> {
        match (self.error, self.request.result) {
            (Some(error), _) => Err(error),
            (None, Err(failure)) => Err(SealError::Cipher(failure)),
            (None, Ok(())) => Ok(self.packet.clone()),
        }
    }
}

impl<'a> Carries<'a> for Seal<'a> {
    #[inline]
    fn request(&self) -> &Request<'a> {
        &self.request
    }

    #[inline]
    fn request_mut(&mut self) -> &mut Request<'a> {
        &mut self.request
    }
}

/// Encrypts and authenticates packets of any associations. Packets that have an error are left out.
///
/// Each is sealed once: a second call for the same packets would encrypt them again.
pub fn seal_batch(packets: &mut [Seal<'_>]) {
    seal_all(packets);
}

/// An association that packets are received by.
#[derive(Debug)]
#[repr(C)] // likewise
pub struct Inbound {
    /// Shared with associations that it has taken the place of.
    window: Option<Arc<ReplayWindow>>,
    spi: u32,
    is_extended: bool,
    key: Key,
}

/// A packet that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Where the payload is in the packet, TFC padding included.
    pub payload: Range<usize>,
    /// Protocol of the payload.
    pub next_header: u8,
    /// The whole sequence number.
    pub number: u64,
}

/// Why a packet was not opened. Each is a reason to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenError {
    /// It is shorter than the shortest packet of the suite.
    Truncated,
    /// The text is no multiple of the block, or longer than any packet.
    Length,
    /// It belongs to another association.
    Spi,
    /// Its number does not pass the window.
    Replay(Replay),
    /// The check value is wrong.
    Authentication,
    /// It is genuine, and its padding is not as it must be.
    Padding,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the packet is too short"),
            Self::Length => f.write_str("the length of the text does not fit the cipher"),
            Self::Spi => f.write_str("the packet has the SPI of another association"),
            Self::Replay(replay) => replay.fmt(f),
            Self::Authentication => f.write_str("the integrity check value is wrong"),
            Self::Padding => f.write_str("the padding is wrong"),
        }
    }
}

impl std::error::Error for OpenError {}

impl Inbound {
    /// An association with a replay window of `window` numbers; 0 accepts replays.
    ///
    /// # Errors
    ///
    /// The index is reserved, or the window does not fit.
    pub fn new(
        key: Key,
        spi: u32,
        is_extended: bool,
        window: u32,
    ) -> Result<Self, AssociationError> {
        check_spi(spi)?;
        let window = match window {
            0 if is_extended => return Err(AssociationError::ExtendedWithoutWindow),
            0 => None,
            len => Some(Arc::new(ReplayWindow::new(len).map_err(AssociationError::Window)?)),
        };
        Ok(Self { key, spi, is_extended, window })
    }

    /// Its suite.
    #[inline]
    pub fn suite(&self) -> Suite {
        self.key.suite()
    }

    /// Its security parameters index.
    #[inline]
    pub fn spi(&self) -> u32 {
        self.spi
    }

    /// Where what its packets read is, but for its window ([`Key::read_by_packets`]).
    pub fn read_by_packets(&self, see: &mut dyn FnMut(Range<usize>)) {
        self.key.read_by_packets(see);
        see(place_of(&self.spi));
        see(place_of(&self.is_extended));
        see(place_of(&self.window));
    }

    /// Its window, if it has one.
    #[inline]
    pub fn window(&self) -> Option<&ReplayWindow> {
        self.window.as_deref()
    }

    /// Its window, to be shared.
    pub fn shared_window(&self) -> Option<&Arc<ReplayWindow>> {
        self.window.as_ref()
    }

    /// Has the window of another association, if it is as long: what one accepts, the other refuses. Whether it has.
    pub fn share(&mut self, before: &Arc<ReplayWindow>) -> bool {
        let is_same = self.window().is_some_and(|own| own.len() == before.len());
        if is_same {
            self.window = Some(before.clone());
        }
        is_same
    }

    /// By which its keys are compared.
    pub fn marks(&self) -> Marks {
        self.key.marks()
    }

    /// Whether sequence numbers have 64 bits.
    pub fn is_extended(&self) -> bool {
        self.is_extended
    }

    /// Parses a packet, from the SPI to the end of the check value, and looks at the window. [`open_batch`] opens it.
    #[inline]
    pub fn open<'a>(&'a self, packet: &'a mut [u8]) -> Open<'a> {
        let checked = self.check(packet);
        let (number, text_len, error) = match checked {
            Ok((number, text_len)) => (number, text_len, None),
            Err(error) => {
                let low = Header::parse(packet).map_or(0, |header| header.number);
                (self.whole(low), 0, Some(error))
            }
        };
        let mut request = Request::new(&self.key, packet, HEADER_LEN, text_len);
        request.sequence_high = self.is_extended.then_some((number >> 32) as u32);
        if error.is_some() {
            request.result = Err(Failure::Layout);
        }
        let result = Err(error.unwrap_or(OpenError::Authentication));
        Open { association: self, request, number, result, is_settled: false }
    }

    /// Number and length of the text.
    #[inline]
    fn check(&self, packet: &[u8]) -> Result<(u64, usize), OpenError> {
        let suite = self.suite();
        let header = Header::parse(packet).ok_or(OpenError::Truncated)?;
        if header.spi != self.spi {
            return Err(OpenError::Spi);
        }
        let around = front_len(suite) + suite.icv_len();
        let text_len = packet.len().checked_sub(around).ok_or(OpenError::Truncated)?;
        if text_len < TRAILER_LEN {
            return Err(OpenError::Truncated);
        }
        if text_len & (alignment(suite) - 1) != 0 || text_len > TEXT_MAX {
            return Err(OpenError::Length);
        }
        let number = self.whole(header.number);
        if let Some(window) = &self.window {
            window.check(number).map_err(OpenError::Replay)?;
        }
        Ok((number, text_len))
    }

    /// The whole number of a packet with this lower half, as the window stands.
    #[inline]
    fn whole(&self, low: u32) -> u64 {
        match &self.window {
            Some(window) if self.is_extended => window.extend(low),
            _ => low.into(),
        }
    }

    /// Sets the number of a packet that is genuine, once.
    ///
    /// # Errors
    ///
    /// It was accepted before, or is behind the window by now.
    #[inline]
    pub fn accept(&self, number: u64) -> Result<(), OpenError> {
        match &self.window {
            Some(window) => window.update(number).map_err(OpenError::Replay),
            None => Ok(()),
        }
    }
}

/// A packet to be opened.
#[derive(Debug)]
pub struct Open<'a> {
    association: &'a Inbound,
    request: Request<'a>,
    number: u64,
    result: Result<Opened, OpenError>,
    /// Its number has been given to the window.
    is_settled: bool,
}

impl Open<'_> {
    /// After [`open_batch`]: what is in the packet.
    ///
    /// # Errors
    ///
    /// Why it is dropped. A packet that was not given to [`open_batch`] is not genuine.
    #[inline]
    pub fn result(&self) -> Result<Opened, OpenError> {
        self.result.clone()
    }

    /// Gives its number to the window, once.
    fn settle(&mut self) {
        if self.is_settled {
            return;
        }
        self.is_settled = true;
        let association = self.association;
        let is_genuine = self.is_genuine();
        if !matches!(
            self.result,
            Ok(_) | Err(OpenError::Padding | OpenError::Replay(_) | OpenError::Authentication)
        ) {
            return;
        }
        if association.is_extended {
            let now = association.whole(self.number as u32);
            if now != self.number {
                return self.is_another(now);
            }
        }
        let accepted = match (is_genuine, &association.window) {
            (true, _) => association.accept(self.number),
            (false, Some(window)) => window.check(self.number).map_err(OpenError::Replay),
            (false, None) => Ok(()),
        };
        if let Err(error) = accepted {
            self.refuse(error);
        }
    }

    /// Packets before it in the batch have moved the window so far that its whole number is another one than it was opened by.
    #[cold]
    fn is_another(&mut self, now: u64) {
        if self.is_genuine() {
            // By another number it is not.
            let replay = self.association.window.as_ref().map(|window| window.check(now));
            let replay = replay.and_then(Result::err).map(OpenError::Replay);
            return self.refuse(replay.unwrap_or(OpenError::Authentication));
        }
        let mut alone = [self.association.open(self.request.buffer)];
        open_batch(&mut alone);
        self.result = alone[0].result();
    }

    /// The window refuses its number: a packet that is genuine is to be as it came.
    #[cold]
    fn refuse(&mut self, error: OpenError) {
        let is_genuine = self.is_genuine();
        self.result = Err(error);
        if is_genuine {
            self.request.result = Ok(());
            seal_all(std::slice::from_mut(&mut self.request));
            self.request.result = Err(Failure::Layout);
        }
    }
}

impl<'a> Carries<'a> for Open<'a> {
    #[inline]
    fn request(&self) -> &Request<'a> {
        &self.request
    }

    #[inline]
    fn request_mut(&mut self) -> &mut Request<'a> {
        &mut self.request
    }
}

/// Authenticates packets of any associations, decrypts them, and accepts each number once, in the order of the packets. What is
/// refused is as it came. The answers are those of one packet after the other: a number that an earlier packet of the batch used is a
/// replay, whether the later packet is genuine or not.
pub fn open_batch(packets: &mut [Open<'_>]) {
    open_batch_deferred(packets);
    let mut at = 0;
    while at < packets.len() {
        match accept_run(&mut packets[at..]) {
            0 => {
                packets[at].settle();
                at += 1;
            }
            count => at += count,
        }
    }
}

/// Accepts the numbers of genuine packets in front that follow one another in one association, which is one change of its window;
/// how many: 0 where there is no such run.
fn accept_run(packets: &mut [Open<'_>]) -> usize {
    let Some(first) = packets.first() else { return 0 };
    let (association, number) = (first.association, first.number);
    let window = match &association.window {
        Some(window) if !association.is_extended => window,
        _ => return 0,
    };
    let follows = |(own, number): &(&Open<'_>, u64)| {
        std::ptr::eq(own.association, association)
            && own.number == *number
            && !own.is_settled
            && own.is_genuine()
    };
    let most = (WORD - number % WORD) as usize;
    let count = packets.iter().zip(number..).take(most).take_while(follows).count();
    if count < 2 {
        return 0;
    }
    let Some(accepted) = window.update_run(number, count as u32) else { return 0 };
    for (at, packet) in packets[..count].iter_mut().enumerate() {
        packet.is_settled = true;
        if accepted >> at & 1 == 0 {
            packet.refuse(OpenError::Replay(Replay::Seen));
        }
    }
    count
}

/// Authenticates and decrypts packets of any associations. The caller passes the number of each to
/// [`Inbound::accept`] and drops those that it refuses.
pub fn open_batch_deferred(packets: &mut [Open<'_>]) {
    open_all(packets);
    for packet in packets {
        match packet.request.result {
            // Found when it was parsed.
            Err(Failure::Layout) => {}
            Err(Failure::Length) => packet.result = Err(OpenError::Length),
            Err(Failure::Authentication) => packet.result = Err(OpenError::Authentication),
            Ok(()) => {
                let at = front_len(packet.association.suite());
                let trailer = Trailer::parse(packet.request.text()).ok_or(OpenError::Padding);
                packet.result = trailer.map(|trailer| Opened {
                    payload: at..at + trailer.payload_len,
                    next_header: trailer.next_header,
                    number: packet.number,
                });
            }
        }
        // Never decrypted a second time.
        packet.request.result = Err(Failure::Layout);
    }
}
