//! HTTP/2 in the clear (RFC 9113): each stream is a transaction, as a request of HTTP/1 is.
//!
//! ```text
//!  preface ─▶ frame ─▶ HEADERS, CONTINUATION … ─▶ block ─ HPACK ─▶ fields ─▶ head of the message, or trailer
//!                ├──▶ DATA ─▶ body of the stream's message
//!                ├──▶ RST_STREAM ─▶ the stream has ended
//!                └──▶ others are skipped
//! ```
//!
//! Blocks depend on all blocks before them. So a side that cannot be read is not read again: the session ends there, as behind a gap
//! that does not lie within the payload of a frame that is skipped or of a body.

mod hpack;
mod huffman;

use crate::anomaly::AnomalyKind;
use crate::buffer::Buffer;
use crate::http1::body::{Body, Framing, Taken};
use crate::http1::head::{self, Headers};
use crate::http1::{body_of, odd, uri};
use crate::http2::hpack::{Fields, Table};
use crate::output::Output;
use crate::parser::{Next, Parser};
use crate::sink::{Direction, Progress};
use crate::transaction::{Data, Http, Transaction};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of the header of a frame (RFC 9113 §4.1).
const HEADER: usize = 9;
/// Bodies of a session that are in a coding at a time: each has a window.
const CODED_MAX: usize = 16;

const VERSION: &[u8] = b"HTTP/2";

/// Types of frames (RFC 9113 §6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;

/// Flags of frames.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

/// Nothing more of the session can be read.
struct Lost;

/// The header of a frame.
#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    len: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Frame {
    fn new(bytes: [u8; HEADER]) -> Self {
        let [a, b, c, kind, flags, s @ ..] = bytes;
        let len = u32::from_be_bytes([0, a, b, c]) as usize;
        Self { len, kind, flags, stream: u32::from_be_bytes(s) & 0x7fff_ffff }
    }

    const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A header block of which there may be more.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// The stream of its frames.
    on: u32,
    /// The stream that it is about: another one if the server opens that with a promise (§8.4).
    stream: u32,
    ends_stream: bool,
}

impl Block {
    const fn is_promised(&self) -> bool {
        self.on != self.stream
    }
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// So many bytes of the preface came.
    Preface(usize),
    /// In the header of a frame.
    Header,
    /// In a payload that is gathered: so many bytes are left.
    Gathered(usize),
    /// In the byte of a frame that says how much padding it has.
    PaddingLen,
    /// In the bytes of a body, with padding behind them.
    Body { left: usize, padding: usize },
    /// In bytes that are skipped.
    Skipped(usize),
}

#[derive(Debug)]
struct Side {
    place: Place,
    frame: Frame,
    /// The bytes of the header, or of the payload that is gathered.
    text: Vec<u8>,
    open: Option<Block>,
    block: Vec<u8>,
    table: Table,
}

impl Side {
    fn new(place: Place) -> Self {
        let (text, block) = (Vec::new(), Vec::new());
        Self { place, frame: Frame::default(), text, open: None, block, table: Table::default() }
    }
}

/// A request with its response.
#[derive(Debug)]
struct Stream {
    id: u32,
    transaction: Transaction,
    /// Heads that came.
    heads: [bool; 2],
    bodies: [Option<Box<Body>>; 2],
}

/// A flow of HTTP/2.
#[derive(Debug)]
pub(crate) struct Http2 {
    /// The oldest comes first.
    open: Vec<Stream>,
    /// What the open ones cost to keep, in bytes.
    cost: usize,
    sides: [Side; 2],
    /// The last stream that the client began.
    last: u32,
}

impl Default for Http2 {
    fn default() -> Self {
        let sides = [Side::new(Place::Preface(0)), Side::new(Place::Header)];
        Self { open: Vec::new(), cost: 0, sides, last: 0 }
    }
}

impl Http2 {
    fn place_of(&self, stream: u32) -> Option<usize> {
        self.open.iter().position(|own| own.id == stream)
    }

    /// Begins a stream. The oldest ones are given up where there are as many as may be, or as large ones.
    fn begin(&mut self, out: &mut Output<'_>, stream: u32, http: Http) -> usize {
        let cost = http.cost();
        while !self.open.is_empty()
            && (self.open.len() >= out.limits.open_transactions
                || self.cost + cost > out.limits.session_bytes)
        {
            let oldest = Some(self.open[0].transaction.id);
            out.anomaly(AnomalyKind::Http2TooManyStreams, oldest, None);
            self.end(out, 0);
        }
        let transaction = out.begin(Data::Http(Box::new(http)));
        self.cost += cost;
        let (heads, bodies) = ([false; 2], [None, None]);
        self.open.push(Stream { id: stream, transaction, heads, bodies });
        self.open.len() - 1
    }

    /// A stream has ended, with what is open of it.
    fn end(&mut self, out: &mut Output<'_>, at: usize) {
        for direction in Direction::BOTH {
            end_body(&mut self.open[at], out, direction, false);
        }
        let mut transaction = self.open.remove(at).transaction;
        self.cost -= transaction.cost().unwrap_or_default();
        out.progress(&mut transaction, Progress::Finished);
    }

    /// Nothing more of a stream comes from this side.
    fn end_side(&mut self, out: &mut Output<'_>, stream: u32, direction: Direction) {
        let Some(at) = self.place_of(stream) else { return };
        let own = &mut self.open[at];
        end_body(own, out, direction, true);
        out.progress(&mut own.transaction, Progress::Done(direction));
        let has_request = own.heads[Direction::ToServer as usize];
        if own.transaction.done == [true; 2] || direction == Direction::ToClient && !has_request {
            self.end(out, at);
        }
    }

    /// The header of a frame came.
    fn frame(&mut self, out: &mut Output<'_>, direction: Direction) -> Result<(), Lost> {
        let side = &mut self.sides[direction as usize];
        let header = side.text.first_chunk().copied().unwrap_or_default();
        side.text.clear();
        let frame = Frame::new(header);
        side.frame = frame;
        let is_continued = frame.kind == CONTINUATION;
        // Nothing is between the parts of a block (§6.10).
        let is_in_place = match side.open {
            Some(block) => is_continued && block.on == frame.stream,
            None => !is_continued,
        };
        let has_stream = frame.stream != 0 || !matches!(frame.kind, DATA | HEADERS | RST_STREAM);
        if !is_in_place || !has_stream {
            out.anomaly(AnomalyKind::Http2FrameData, None, Some(direction));
            return Err(Lost);
        }
        side.place = match frame.kind {
            HEADERS | PUSH_PROMISE | CONTINUATION => {
                if side.block.len() + frame.len > out.limits.head_bytes {
                    out.anomaly(AnomalyKind::Http2HeaderTooLong, None, Some(direction));
                    return Err(Lost);
                }
                Place::Gathered(frame.len)
            }
            DATA if frame.has(PADDED) && frame.len > 0 => Place::PaddingLen,
            DATA => Place::Body { left: frame.len, padding: 0 },
            _ => Place::Skipped(frame.len),
        };
        Ok(())
    }

    /// The payload of a frame came, as far as it is gathered.
    fn gathered(&mut self, out: &mut Output<'_>, direction: Direction) -> Result<(), Lost> {
        let side = &mut self.sides[direction as usize];
        let frame = side.frame;
        let mut payload = &side.text[..];
        let mut lost = |kind| {
            out.anomaly(kind, None, Some(direction));
            Lost
        };
        let mut padding = 0;
        if frame.has(PADDED) && frame.kind != CONTINUATION {
            let (len, rest) =
                payload.split_first().ok_or_else(|| lost(AnomalyKind::Http2FrameLength))?;
            (padding, payload) = (usize::from(*len), rest);
        }
        let fields = match frame.kind {
            HEADERS if frame.has(PRIORITY) => 5,
            PUSH_PROMISE => 4,
            _ => 0,
        };
        let (fields, rest) =
            payload.split_at_checked(fields).ok_or_else(|| lost(AnomalyKind::Http2FrameLength))?;
        let fragment = rest.len().checked_sub(padding).map(|len| &rest[..len]);
        let fragment = fragment.ok_or_else(|| lost(AnomalyKind::Http2FrameData))?;
        side.block.extend_from_slice(fragment);
        let block = side.open.unwrap_or_else(|| {
            let promised = fields.first_chunk().filter(|_| frame.kind == PUSH_PROMISE);
            let stream = promised.map(|own| u32::from_be_bytes(*own) & 0x7fff_ffff);
            let ends_stream = stream.is_none() && frame.has(END_STREAM);
            Block { on: frame.stream, stream: stream.unwrap_or(frame.stream), ends_stream }
        });
        side.text.clear();
        side.place = Place::Header;
        if !frame.has(END_HEADERS) {
            side.open = Some(block);
            return Ok(());
        }
        side.open = None;
        let bytes = std::mem::take(&mut side.block);
        let read = side.table.read(&bytes, out.limits.fields, out.limits.head_bytes);
        let Ok(fields) = read else {
            out.anomaly(AnomalyKind::Http2Header, None, Some(direction));
            return Err(Lost);
        };
        self.block(out, direction, block, fields);
        Ok(())
    }

    /// A whole block.
    fn block(&mut self, out: &mut Output<'_>, direction: Direction, block: Block, fields: Fields) {
        let is_cut = fields.is_cut;
        let headers = headers_of(fields);
        let at = self.place_of(block.stream);
        let is_head = at.is_none_or(|at| !self.open[at].heads[direction as usize]);
        let id = match (direction, at) {
            _ if block.is_promised() => {
                // The server says what it answers: its bytes are none of a request.
                let at = self.begin(out, block.stream, http_of(&headers));
                let own = &mut self.open[at];
                own.heads[Direction::ToServer as usize] = true;
                out.progress(&mut own.transaction, Progress::Done(Direction::ToServer));
                Some(own.transaction.id)
            }
            (Direction::ToServer, None) => {
                if block.stream <= self.last {
                    out.anomaly(AnomalyKind::Http2StreamReuse, None, Some(direction));
                }
                self.last = self.last.max(block.stream);
                Some(self.request(out, block.stream, &headers))
            }
            (Direction::ToClient, _) if is_head => self.response(out, block.stream, &headers),
            // A trailer; nobody looks into it, as into those of HTTP/1.
            _ => at.map(|at| self.open[at].transaction.id),
        };
        if is_cut {
            out.anomaly(AnomalyKind::Http2HeaderTooLong, id, Some(direction));
        }
        if block.ends_stream {
            self.end_side(out, block.stream, direction);
        }
    }

    /// The head of a request; its transaction.
    fn request(&mut self, out: &mut Output<'_>, stream: u32, headers: &Headers) -> u64 {
        let direction = Direction::ToServer;
        let http = http_of(headers);
        let line = [&http.method[..], b" ", &http.uri_raw, b" ", VERSION].concat();
        let (method, raw) = (http.method.clone(), http.uri_raw.clone());
        let (uri, host) = (http.uri.clone(), http.host.clone());
        let at = self.begin(out, stream, http);
        let own = &mut self.open[at];
        own.heads[direction as usize] = true;
        let id = own.transaction.id;
        let mut give = |buffer, bytes: &[u8]| out.buffer(id, direction, buffer, 0, bytes);
        give(Buffer::HttpMethod, &method);
        give(Buffer::HttpUri, &uri);
        give(Buffer::HttpUriRaw, &raw);
        give(Buffer::HttpProtocol, VERSION);
        if let Some(host) = &host {
            give(Buffer::HttpHost, host);
        }
        let authority = headers.get(":authority");
        if let Some(raw) = headers.get("host").or(authority) {
            give(Buffer::HttpHostRaw, raw);
        }
        head::buffers(out, id, direction, (&line, &lines(headers)), headers);
        let mut odd = |kind| out.anomaly(kind, Some(id), Some(direction));
        if headers.has_invalid {
            odd(AnomalyKind::HttpRequestField);
        }
        if host.as_ref().is_some_and(|host| !uri::is_host(host)) {
            odd(AnomalyKind::HttpHostInvalid);
        }
        if let (Some(authority), Some(field)) = (authority, headers.get("host"))
            && !uri::is_same(&uri::host_port(authority).0, &uri::host_port(field).0)
        {
            odd(AnomalyKind::Http2AuthorityMismatch);
        }
        if authority.is_some_and(|authority| authority.contains(&b'@')) {
            odd(AnomalyKind::Http2Userinfo);
        }
        out.progress(&mut own.transaction, Progress::Head(direction));
        self.body(out, at, direction, headers);
        id
    }

    /// The head of a response; its transaction, unless it is one of those before the response.
    fn response(&mut self, out: &mut Output<'_>, stream: u32, headers: &Headers) -> Option<u64> {
        let direction = Direction::ToClient;
        let code = headers.get(":status").unwrap_or_default();
        let status = std::str::from_utf8(code).ok().and_then(|code| code.parse::<u16>().ok());
        if status.is_some_and(|status| (100..200).contains(&status)) {
            return None;
        }
        let at = self.place_of(stream);
        let is_unmatched = at.is_none();
        let at = at.unwrap_or_else(|| self.begin(out, stream, Http::default()));
        let own = &mut self.open[at];
        own.heads[direction as usize] = true;
        let id = own.transaction.id;
        if is_unmatched {
            out.anomaly(AnomalyKind::HttpUnmatchedResponse, Some(id), Some(direction));
        }
        if let Data::Http(http) = &mut own.transaction.data {
            self.cost -= http.cost();
            http.response_protocol = VERSION.to_vec();
            http.status = status;
            http.response_headers.clone_from(&headers.all);
            self.cost += http.cost();
        }
        out.buffer(id, direction, Buffer::HttpProtocol, 0, VERSION);
        if !code.is_empty() {
            out.buffer(id, direction, Buffer::HttpStatCode, 0, code);
        }
        let line = [VERSION, b" ", code].concat();
        head::buffers(out, id, direction, (&line, &lines(headers)), headers);
        if headers.has_invalid {
            out.anomaly(AnomalyKind::HttpResponseField, Some(id), Some(direction));
        }
        if headers.get("content-range").is_some_and(|own| !odd::is_range(own)) {
            out.anomaly(AnomalyKind::Http2Range, Some(id), Some(direction));
        }
        out.progress(&mut own.transaction, Progress::Head(direction));
        self.body(out, at, direction, headers);
        Some(id)
    }

    /// A body may follow.
    fn body(&mut self, out: &mut Output<'_>, at: usize, direction: Direction, headers: &Headers) {
        let coded = self.open.iter().flat_map(|own| own.bodies.iter().flatten());
        let coded = coded.filter(|body| body.decoder.is_some()).count();
        let own = &mut self.open[at];
        let mut body = body_of(out, &own.transaction, direction, headers, Framing::UntilClose);
        if body.decoder.is_some() && coded >= CODED_MAX {
            body.decoder = None;
            let id = own.transaction.id;
            out.anomaly(AnomalyKind::Http2TooManyStreams, Some(id), Some(direction));
        }
        own.bodies[direction as usize] = Some(Box::new(body));
    }

    /// Bytes of a side; how many were taken.
    fn take(
        &mut self,
        out: &mut Output<'_>,
        direction: Direction,
        bytes: &[u8],
    ) -> Result<usize, Lost> {
        let side = &mut self.sides[direction as usize];
        match side.place {
            Place::Preface(at) => {
                let len = bytes.len().min(PREFACE.len() - at);
                if bytes[..len] != PREFACE[at..at + len] {
                    out.anomaly(AnomalyKind::Http2Magic, None, Some(direction));
                    return Err(Lost);
                }
                let is_whole = at + len == PREFACE.len();
                side.place = if is_whole { Place::Header } else { Place::Preface(at + len) };
                Ok(len)
            }
            Place::Header => {
                let len = bytes.len().min(HEADER - side.text.len());
                side.text.extend_from_slice(&bytes[..len]);
                if side.text.len() == HEADER {
                    self.frame(out, direction)?;
                    self.settle(out, direction)?;
                }
                Ok(len)
            }
            Place::Gathered(left) => {
                let len = bytes.len().min(left);
                side.text.extend_from_slice(&bytes[..len]);
                side.place = Place::Gathered(left - len);
                self.settle(out, direction)?;
                Ok(len)
            }
            Place::PaddingLen => {
                let padding = usize::from(bytes[0]);
                let Some(left) = (side.frame.len - 1).checked_sub(padding) else {
                    out.anomaly(AnomalyKind::Http2FrameData, None, Some(direction));
                    return Err(Lost);
                };
                side.place = Place::Body { left, padding };
                self.settle(out, direction)?;
                Ok(1)
            }
            Place::Body { left, padding } => {
                let len = bytes.len().min(left);
                let stream = side.frame.stream;
                side.place = Place::Body { left: left - len, padding };
                if let Some(at) = self.place_of(stream)
                    && let Some(body) = &mut self.open[at].bodies[direction as usize]
                {
                    let taken = body.feed(out, &bytes[..len]);
                    debug_assert_eq!(taken, Taken::All, "its end is that of the stream");
                }
                self.settle(out, direction)?;
                Ok(len)
            }
            Place::Skipped(left) => {
                let len = bytes.len().min(left);
                side.place = Place::Skipped(left - len);
                self.settle(out, direction)?;
                Ok(len)
            }
        }
    }

    /// Goes on behind a payload that has ended.
    fn settle(&mut self, out: &mut Output<'_>, direction: Direction) -> Result<(), Lost> {
        let side = &mut self.sides[direction as usize];
        let frame = side.frame;
        match side.place {
            Place::Gathered(0) => self.gathered(out, direction)?,
            Place::Body { left: 0, padding } => {
                side.place = Place::Skipped(padding);
                if frame.has(END_STREAM) {
                    self.end_side(out, frame.stream, direction);
                }
                return self.settle(out, direction);
            }
            Place::Skipped(0) => {
                side.place = Place::Header;
                if frame.kind == RST_STREAM
                    && let Some(at) = self.place_of(frame.stream)
                {
                    self.end(out, at);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Parser for Http2 {
    fn data(&mut self, out: &mut Output<'_>, direction: Direction, mut bytes: &[u8]) -> Next {
        while !bytes.is_empty() {
            match self.take(out, direction, bytes) {
                Ok(taken) => bytes = &bytes[taken..],
                Err(Lost) => return Next::Bypass,
            }
        }
        Next::More
    }

    fn gap(&mut self, _: &mut Output<'_>, direction: Direction, bytes: u64) -> Next {
        let side = &mut self.sides[direction as usize];
        let missing = usize::try_from(bytes).unwrap_or(usize::MAX);
        let stream = side.frame.stream;
        match &mut side.place {
            Place::Skipped(left) if missing < *left => *left -= missing,
            Place::Body { left, .. } if missing < *left => {
                *left -= missing;
                if let Some(at) = self.place_of(stream)
                    && let Some(body) = &mut self.open[at].bodies[direction as usize]
                {
                    body.gap(bytes);
                }
            }
            _ => return Next::Bypass,
        }
        Next::More
    }

    fn end_of_side(&mut self, out: &mut Output<'_>, direction: Direction) {
        for own in &mut self.open {
            end_body(own, out, direction, false);
        }
    }

    fn held(&self) -> usize {
        let sides = self
            .sides
            .iter()
            .map(|side| side.text.capacity() + side.block.capacity() + side.table.held());
        let bodies = self.open.iter().flat_map(|own| own.bodies.iter().flatten());
        let bodies = bodies.map(|body| body.held()).sum::<usize>();
        let streams = self.open.capacity() * size_of::<Stream>();
        size_of::<Self>() + self.cost + streams + bodies + sides.sum::<usize>()
    }

    fn finish(&mut self, out: &mut Output<'_>) {
        while !self.open.is_empty() {
            self.end(out, 0);
        }
    }
}

/// Ends the body of a message, if it has one.
fn end_body(own: &mut Stream, out: &mut Output<'_>, direction: Direction, is_whole: bool) {
    let Some(body) = own.bodies[direction as usize].take() else { return };
    let [bytes, decoded] = body.end(out, is_whole);
    if let Data::Http(http) = &mut own.transaction.data {
        http.body_bytes[direction as usize] = bytes;
        http.decoded_bytes[direction as usize] = decoded;
    }
}

/// The fields of a block. Parts of a cookie are one (RFC 9113 §8.2.3), at the place of the first.
fn headers_of(fields: Fields) -> Headers {
    let mut all: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(fields.all.len());
    let mut cookie = None;
    for (name, value) in fields.all {
        if name[..] != *b"cookie" {
            all.push((name.to_vec(), value.to_vec()));
            continue;
        }
        match cookie.and_then(|at: usize| all.get_mut(at)) {
            Some((_, joined)) => {
                joined.extend(b"; ");
                joined.extend_from_slice(&value);
            }
            None => {
                cookie = Some(all.len());
                all.push((name.to_vec(), value.to_vec()));
            }
        }
    }
    Headers { are_separate: true, ..Headers::of(all) }
}

/// What a request says.
fn http_of(headers: &Headers) -> Http {
    let get = |name| headers.get(name).unwrap_or_default().to_vec();
    let raw = get(":path");
    let authority = headers.get(":authority").or_else(|| headers.get("host"));
    let named = authority.map(uri::host_port);
    Http {
        method: get(":method"),
        uri: uri::normal(&raw),
        uri_raw: raw,
        request_protocol: VERSION.to_vec(),
        host: named.as_ref().map(|(name, _)| name.clone()).filter(|name| !name.is_empty()),
        port: named.as_ref().and_then(|(_, port)| *port),
        request_headers: headers.all.clone(),
        ..Http::default()
    }
}

/// The fields as lines.
fn lines(headers: &Headers) -> Vec<u8> {
    let lines = headers.all.iter().flat_map(|(name, value)| [&name[..], b": ", value, b"\r\n"]);
    lines.collect::<Vec<_>>().concat()
}
