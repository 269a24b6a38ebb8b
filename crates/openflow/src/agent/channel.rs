//! One connection to a controller: bytes become messages, messages become bytes.

use std::fmt;
use std::time::Duration;

use super::bundles::{Budget, Bundles};
use super::monitors::Monitors;
use super::{ChannelKind, Settings};
use crate::error::{ErrorCode, Version};
use crate::flow::FlowFilter;
use crate::message::{AsyncConfig, Body, ErrorMessage, Hello, Message, Role};
use crate::table::SwitchConfig;
use crate::wire::{self, Extensions, HEADER_LEN, Header, Unencodable};

/// Why a channel ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Both sides have no version in common.
    NoCommonVersion,
    /// The first message was not HELLO.
    NoHello,
    /// The peer refused with an ERROR in place of HELLO.
    Refused(ErrorCode),
    /// A message of another version, or shorter than a header: what follows has no meaning.
    Garbage(ErrorCode),
    /// Nothing was heard for too long.
    Silent,
    /// The peer does not read what it gets.
    SlowReader,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCommonVersion => f.write_str("no common version"),
            Self::NoHello => f.write_str("the first message was not HELLO"),
            Self::Refused(code) => write!(f, "refused in HELLO: {code}"),
            Self::Garbage(code) => write!(f, "not a message of OpenFlow: {code}"),
            Self::Silent => f.write_str("no answer to probes"),
            Self::SlowReader => f.write_str("messages were not read"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// HELLO has been sent, none has come.
    Greeting,
    Open(Version),
    Closed,
}

/// A dump of flows that has not ended: more of it is sent when the peer has read what it got.
#[derive(Debug)]
pub(super) struct Dump {
    pub(super) xid: u32,
    pub(super) filter: FlowFilter,
    /// In the form of Nicira's extension of 1.0.
    pub(super) is_nicira: bool,
    pub(super) from: u64,
}

#[derive(Debug)]
pub(super) struct Channel {
    pub(super) kind: ChannelKind,
    stage: Stage,
    closed: Option<Closed>,
    /// Received, not yet handled; `read` bytes of it are.
    inbox: Vec<u8>,
    read: usize,
    /// To be sent; `sent` bytes of it are.
    outbox: Vec<u8>,
    sent: usize,
    pub(super) role: Role,
    pub(super) config: SwitchConfig,
    pub(super) is_configured: bool,
    /// Packets come in the form of Nicira's extension of 1.0, and flows that leave.
    pub(super) is_nicira: bool,
    pub(super) has_nicira_flows: bool,
    pub(super) extensions: Extensions,
    pub(super) asynchronous: AsyncConfig,
    pub(super) bundles: Bundles,
    pub(super) dump: Option<Dump>,
    pub(super) monitors: Monitors,
    /// When something was last received, when the probe after it was sent.
    heard: Duration,
    probed: Option<Duration>,
    /// The peer has taken some of much output, which is a sign of life: its answers may wait behind it.
    took: bool,
    /// Messages received and sent.
    pub(super) messages: [u64; 2],
    /// Messages that the peer did not get because it reads too slowly.
    pub(super) lost: u64,
    /// Copies of messages since they were last taken, where somebody snoops.
    pub(super) copies: Option<Copies>,
}

/// Messages that somebody snoops.
#[derive(Debug, Default)]
pub(super) struct Copies {
    pub(super) bytes: Vec<u8>,
    /// How many are in `bytes`.
    pub(super) count: u64,
    /// How many had no place.
    pub(super) lost: u64,
}

impl Copies {
    /// All of `others` behind these.
    pub(super) fn append(&mut self, others: Self) {
        self.bytes.extend(others.bytes);
        self.count += others.count;
        self.lost += others.lost;
    }
}

/// Bytes that are much output.
const MUCH: usize = 64 << 10;

impl Channel {
    pub(super) fn new(
        kind: ChannelKind,
        settings: &Settings,
        now: Duration,
        budget: Budget,
        is_watched: bool,
    ) -> Self {
        let mut channel = Self {
            kind,
            stage: Stage::Greeting,
            closed: None,
            inbox: Vec::new(),
            read: 0,
            outbox: Vec::new(),
            sent: 0,
            role: Role::Equal,
            config: SwitchConfig::default(),
            is_configured: kind == ChannelKind::Controller,
            is_nicira: false,
            has_nicira_flows: false,
            extensions: Extensions::default(),
            asynchronous: AsyncConfig::default(),
            bundles: Bundles::new(budget),
            dump: None,
            monitors: Monitors::default(),
            heard: now,
            probed: None,
            took: false,
            messages: [0; 2],
            lost: 0,
            copies: is_watched.then(Copies::default),
        };
        let bitmap = settings.versions.iter().fold(0, |bits, v| bits | 1 << v.wire());
        let highest = settings.versions.iter().max().map_or(Version::V13.wire(), |v| v.wire());
        // 1.0's HELLO has nothing in it.
        let versions = if highest == 1 { Vec::new() } else { vec![bitmap] };
        let body = Body::Hello(Hello { versions });
        channel.write(&Message { version: highest, xid: 0, body });
        channel
    }

    pub(super) fn version(&self) -> Option<Version> {
        match self.stage {
            Stage::Open(version) => Some(version),
            _ => None,
        }
    }

    pub(super) fn closed(&self) -> Option<&Closed> {
        self.closed.as_ref()
    }

    /// Ends the channel; what is in the outbox can still be sent.
    pub(super) fn close(&mut self, why: Closed) {
        if self.closed.is_none() {
            self.closed = Some(why);
        }
        self.stage = Stage::Closed;
        self.inbox = Vec::new();
        self.read = 0;
        self.dump = None;
        self.monitors = Monitors::default();
        self.bundles.clear();
    }

    pub(super) fn receive(&mut self, bytes: &[u8], now: Duration) {
        // Without bytes nothing was heard.
        if self.closed.is_none() && !bytes.is_empty() {
            self.heard = now;
            self.probed = None;
            self.inbox.drain(..std::mem::take(&mut self.read));
            self.inbox.extend_from_slice(bytes);
        }
    }

    pub(super) fn outgoing(&self) -> &[u8] {
        &self.outbox[self.sent..]
    }

    pub(super) fn sent(&mut self, len: usize) {
        self.sent += len.min(self.outbox.len() - self.sent);
        let has_more = self.dump.is_some() || self.monitors.is_behind();
        self.took |= len > 0 && (has_more || self.outgoing().len() >= MUCH);
        if self.sent == self.outbox.len() {
            self.outbox.clear();
            self.sent = 0;
        } else if self.sent >= 1 << 16 && self.sent * 2 >= self.outbox.len() {
            self.outbox.drain(..self.sent);
            self.sent = 0;
        }
    }

    pub(super) fn is_full(&self, settings: &Settings) -> bool {
        self.outgoing().len() >= settings.out_max
    }

    /// The next whole message, where there is one. `None` also where the channel ended.
    pub(super) fn next_message(&mut self, settings: &Settings) -> Option<(Header, Vec<u8>)> {
        let rest = &self.inbox[self.read..];
        let header = Header::read(rest)?;
        let is_right = match self.stage {
            // Something else than OpenFlow says what it likes where the length is: it is not waited for.
            Stage::Greeting if header.kind > 1 => {
                self.hello_failed(header, "The first message is not HELLO.", settings);
                self.close(Closed::NoHello);
                return None;
            }
            Stage::Greeting => true,
            Stage::Open(version) => header.version == version.wire() || header.is_hello(),
            Stage::Closed => return None,
        };
        let len = usize::from(header.len);
        let error = match (is_right, len < HEADER_LEN) {
            (false, _) => Some(ErrorCode::BadRequestVersion),
            (true, true) => Some(ErrorCode::BadRequestLen),
            (true, false) => None,
        };
        if let Some(error) = error {
            let request = echoed(&rest[..rest.len().min(len.max(HEADER_LEN))]).to_vec();
            self.error(header.xid, error, &request, settings);
            self.close(Closed::Garbage(error));
            return None;
        }
        let message = rest.get(..len)?.to_vec();
        self.read += len;
        self.messages[0] += 1;
        keep(&mut self.copies, &message);
        Some((header, message))
    }

    /// The first message: both sides' HELLO give the version.
    pub(super) fn greet(&mut self, header: Header, bytes: &[u8], settings: &Settings) {
        if header.kind == 1 {
            let code = match wire::decode(bytes).map(|m| m.body) {
                Ok(Body::Error(error)) => error.code,
                _ => ErrorCode::HelloFailedIncompatible,
            };
            return self.close(Closed::Refused(code));
        }
        let Ok(Message { body: Body::Hello(hello), .. }) = wire::decode(bytes) else {
            self.hello_failed(header, "The first message is not HELLO.", settings);
            return self.close(Closed::NoHello);
        };
        let has = |v: Version| match hello.versions.first() {
            // Both sides have a bitmap: the highest in both.
            Some(bits) => bits >> v.wire() & 1 != 0,
            // Otherwise the lower of both highest, where we have it.
            None => v.wire() == header.version.min(self.highest(settings)),
        };
        match settings.versions.iter().copied().filter(|v| has(*v)).max() {
            Some(version) => self.stage = Stage::Open(version),
            None => {
                let ours: Vec<String> = settings.versions.iter().map(|v| v.to_string()).collect();
                let text = format!("This switch speaks {}.", ours.join(" and "));
                self.hello_failed(header, &text, settings);
                self.close(Closed::NoCommonVersion);
            }
        }
    }

    fn highest(&self, settings: &Settings) -> u8 {
        settings.versions.iter().max().map_or(0, |v| v.wire())
    }

    fn hello_failed(&mut self, header: Header, text: &str, settings: &Settings) {
        // In the peer's version where it is one of ours, so that it can read it.
        let version =
            Version::from_wire(header.version).map_or(self.highest(settings), |v| v.wire());
        let code = ErrorCode::HelloFailedIncompatible;
        let body = Body::Error(ErrorMessage { code, data: text.as_bytes().to_vec() });
        self.write(&Message { version, xid: header.xid, body });
    }

    pub(super) fn error(&mut self, xid: u32, code: ErrorCode, request: &[u8], settings: &Settings) {
        let version = self.version().map_or(self.highest(settings), |v| v.wire());
        let body = Body::Error(ErrorMessage { code, data: echoed(request).to_vec() });
        self.write(&Message { version, xid, body });
    }

    pub(super) fn send(&mut self, xid: u32, body: Body) -> Result<(), Unencodable> {
        self.messages[1] += 1;
        let Some(version) = self.version() else { return Ok(()) };
        let before = self.outbox.len();
        let done = wire::encode_into(&mut self.outbox, &Message::new(version, xid, body));
        keep(&mut self.copies, &self.outbox[before.min(self.outbox.len())..]);
        done
    }

    /// Messages of others, as far as there is place.
    pub(super) fn copy(&mut self, messages: &Copies, settings: &Settings) {
        self.lost += messages.lost;
        match self.is_full(settings) {
            true => self.lost += messages.count,
            false => self.outbox.extend_from_slice(&messages.bytes),
        }
    }

    fn write(&mut self, message: &Message) {
        self.messages[1] += 1;
        // HELLO and ERROR are short, and there in every version.
        let before = self.outbox.len();
        let _ = wire::encode_into(&mut self.outbox, message);
        keep(&mut self.copies, &self.outbox[before.min(self.outbox.len())..]);
    }

    /// Who only listens is not probed: `ovs-ofctl snoop` does not answer. Its connection is probed by TCP ([`crate::serve`]).
    fn is_silent(&self) -> bool {
        self.kind == ChannelKind::Snoop && self.version().is_some()
    }

    /// Sends a probe after a silence, ends the channel after another.
    pub(super) fn tick(&mut self, settings: &Settings, now: Duration) {
        let silence = settings.probe_interval;
        if silence.is_zero() || self.is_silent() {
            return;
        }
        if std::mem::take(&mut self.took) {
            (self.heard, self.probed) = (now, None);
        }
        if self.closed.is_some() {
            // Nobody reads the last words.
            if !self.outgoing().is_empty() && now.saturating_sub(self.heard) >= 2 * silence {
                self.closed = Some(Closed::Silent);
            }
            return;
        }
        match self.probed {
            Some(at) if now.saturating_sub(at) >= silence => self.close(Closed::Silent),
            Some(_) => {}
            None if now.saturating_sub(self.heard) < silence => {}
            None => {
                self.probed = Some(now);
                // Before HELLO there is nothing to ask: the silence alone counts.
                let _ = self.send(0, Body::EchoRequest(Vec::new()));
            }
        }
    }

    /// When [`Channel::tick`] has something to do.
    pub(super) fn deadline(&self, settings: &Settings) -> Option<Duration> {
        let silence = settings.probe_interval;
        match self.closed {
            _ if silence.is_zero() || self.is_silent() => None,
            None => Some(self.probed.unwrap_or(self.heard) + silence),
            Some(Closed::Silent | Closed::SlowReader) => None,
            Some(_) => (!self.outgoing().is_empty()).then(|| self.heard + 2 * silence),
        }
    }
}

/// Bytes of copies at a time; more are lost.
const COPIES_MAX: usize = 1 << 20;

/// Copies a message where copies are wanted.
fn keep(copies: &mut Option<Copies>, message: &[u8]) {
    match copies {
        Some(own) if own.bytes.len() + message.len() <= COPIES_MAX => {
            own.bytes.extend_from_slice(message);
            own.count += u64::from(!message.is_empty());
        }
        Some(own) => own.lost += 1,
        None => {}
    }
}

/// What an ERROR echoes: the first 64 bytes.
pub(super) fn echoed(request: &[u8]) -> &[u8] {
    &request[..request.len().min(64)]
}
