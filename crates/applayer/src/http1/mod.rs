//! HTTP/1 (RFC 9112): requests with their responses, bodies, files.
//!
//! ```text
//!  to the server: head ─▶ transaction (behind those that wait) ─▶ body ─▶ head …
//!  to the client: head ─▶ the first transaction that waits     ─▶ body ─▶ head …
//!                                       ├─ 1xx: another head follows
//!                                       └─ 101, 2xx to CONNECT: another protocol follows
//! ```
//!
//! A side whose bytes are no HTTP, or of whose head or framing bytes are missing, is *lost*: lines are skipped up to the
//! next one that is the first of a message.

mod best_fit;
pub(crate) mod body;
mod coding;
pub(crate) mod head;
pub(crate) mod odd;
pub(crate) mod uri;

use std::collections::VecDeque;

use l7proto::Protocol;
use l7proto::http1::{self, Head, HeadError, Progress as HeadProgress};

use crate::anomaly::AnomalyKind;
use crate::buffer::Buffer;
use crate::http1::body::{Body, Chunk, Content, Framing, Taken};
use crate::http1::coding::{Coding, Decoder};
use crate::http1::head::Headers;
use crate::http1::uri::Target;
use crate::mime::Mime;
use crate::output::Output;
use crate::parser::{Next, Parser};
use crate::sink::{Direction, Progress};
use crate::transaction::{Data, Http, Transaction};

/// Bytes of a line that is looked at while a side is lost.
const LINE_MAX: usize = 8 << 10;

/// Bytes of the name of a file: as long as paths of Linux may be.
pub(crate) const NAME_MAX: usize = 4096;

/// Another protocol follows.
struct Change {
    /// Which; found by its bytes otherwise.
    to: Option<Protocol>,
}

#[derive(Debug)]
enum Place {
    Head,
    Body(Box<Body>),
    /// Skips lines; whether the rest of this line is skipped in any case.
    Lost {
        in_line: bool,
    },
    /// Behind the first line of a request, of so many bytes, which has no version: fields may follow.
    Old {
        len: usize,
    },
    /// The client waits for the answer to `CONNECT`; bytes that it sends are held.
    Held,
}

#[derive(Debug)]
struct Side {
    place: Place,
    head: Head,
    /// The bytes of the head, of the line or those that are held.
    text: Vec<u8>,
    /// Responses were missed: the next one belongs to the last request.
    missed: bool,
}

impl Default for Side {
    fn default() -> Self {
        Self { place: Place::Head, head: Head::new(), text: Vec::new(), missed: false }
    }
}

impl Side {
    fn begin(&mut self, place: Place) {
        (self.place, self.head) = (place, Head::new());
        self.text.clear();
    }
}

/// A flow of HTTP/1.
#[derive(Debug)]
pub(crate) struct Http1 {
    open: VecDeque<Transaction>,
    /// What the open ones cost to keep, in bytes.
    cost: usize,
    sides: [Side; 2],
    /// The port of the server; 0 if it is behind the connection.
    server_port: u16,
    /// A request was read.
    has_request: bool,
    /// The transaction whose server said last that the client may go on.
    continued: Option<u64>,
    /// Requests that were given up before their responses, which come before all others.
    given_up: u64,
}

impl Http1 {
    /// `server_port`: the port of the server, or 0 if it is behind the connection.
    pub(crate) fn new(server_port: u16) -> Self {
        let (open, sides) = (VecDeque::new(), [Side::default(), Side::default()]);
        Self { open, cost: 0, sides, server_port, has_request: false, continued: None, given_up: 0 }
    }

    fn side(&mut self, direction: Direction) -> &mut Side {
        &mut self.sides[direction as usize]
    }

    fn transaction(&mut self, id: u64) -> Option<&mut Transaction> {
        self.open.iter_mut().find(|transaction| transaction.id == id)
    }

    /// Begins a transaction. The oldest ones are given up where there are as many as may be, or as large ones. One whose
    /// body is being read is not.
    fn begin(&mut self, out: &mut Output<'_>, http: Http) -> u64 {
        let cost = http.cost();
        while self.open.len() >= out.limits.open_transactions
            || self.cost + cost > out.limits.session_bytes
        {
            let is_read = |transaction: &Transaction| {
                let mut places = self.sides.iter().map(|side| &side.place);
                places.any(|place| {
                    matches!(place, Place::Body(body) if body.content.transaction == transaction.id)
                })
            };
            let oldest = self.open.iter().position(|transaction| !is_read(transaction));
            let Some(mut oldest) = oldest.and_then(|at| self.remove(at)) else { break };
            out.anomaly(AnomalyKind::HttpTooManyOpen, Some(oldest.id), None);
            let is_answered = oldest.is_done(Direction::ToClient) || !has_request(&oldest);
            self.given_up += u64::from(!is_answered);
            out.progress(&mut oldest, Progress::Finished);
        }
        let transaction = out.begin(Data::Http(Box::new(http)));
        let id = transaction.id;
        self.cost += cost;
        self.open.push_back(transaction);
        id
    }

    /// Begins the transaction of a response whose request was given up. It is the only one beyond the limit.
    fn begin_late(&mut self, out: &mut Output<'_>) -> u64 {
        self.given_up -= 1;
        let mut transaction = out.begin(Data::Http(Box::default()));
        transaction.is_late = true;
        let id = transaction.id;
        self.cost += cost_of(&transaction);
        self.open.push_back(transaction);
        id
    }

    fn remove(&mut self, at: usize) -> Option<Transaction> {
        let transaction = self.open.remove(at)?;
        self.cost -= cost_of(&transaction);
        Some(transaction)
    }

    /// A side's message has ended; the transaction too, if the other one's has or there is none.
    fn done(&mut self, out: &mut Output<'_>, id: u64, direction: Direction) {
        let Some(at) = self.open.iter().position(|transaction| transaction.id == id) else {
            return;
        };
        out.progress(&mut self.open[at], Progress::Done(direction));
        let is_whole = self.open[at].done == [true; 2];
        let is_response = direction == Direction::ToClient && !has_request(&self.open[at]);
        if (is_whole || is_response)
            && let Some(mut transaction) = self.remove(at)
        {
            out.progress(&mut transaction, Progress::Finished);
        }
    }

    fn end_body(&mut self, out: &mut Output<'_>, direction: Direction, is_whole: bool) {
        let side = self.side(direction);
        let Place::Body(mut body) = std::mem::replace(&mut side.place, Place::Head) else { return };
        side.begin(Place::Head);
        let id = body.content.transaction;
        let trailer = std::mem::take(&mut body.trailer);
        let [bytes, decoded] = body.end(out, is_whole);
        if let Some(transaction) = self.transaction(id)
            && let Data::Http(http) = &mut transaction.data
        {
            http.body_bytes[direction as usize] = bytes;
            http.decoded_bytes[direction as usize] = decoded;
            if !trailer.trim_ascii().is_empty() {
                let (line, fields) = head_of(http, direction);
                head::trailer(out, id, direction, (&line, fields), &trailer);
            }
        }
        self.done(out, id, direction);
    }

    /// The head of this side cannot be read.
    fn lose(
        &mut self,
        out: &mut Output<'_>,
        direction: Direction,
        error: HeadError,
        in_line: bool,
    ) {
        let is_request = direction == Direction::ToServer;
        let kind = match (error, is_request) {
            (HeadError::FirstLine, true) => AnomalyKind::HttpRequestLine,
            (HeadError::FirstLine, false) => AnomalyKind::HttpResponseLine,
            (HeadError::TooLong, true) => AnomalyKind::HttpHeadTooLong,
            (HeadError::TooLong, false) => AnomalyKind::HttpResponseHeadTooLong,
            (HeadError::TooManyFields, true) => AnomalyKind::HttpTooManyFields,
            (HeadError::TooManyFields, false) => AnomalyKind::HttpResponseTooManyFields,
        };
        out.anomaly(kind, None, Some(direction));
        if kind == AnomalyKind::HttpRequestLine && self.has_request {
            out.anomaly(AnomalyKind::HttpBodyUnexpected, None, Some(direction));
        }
        self.side(direction).begin(Place::Lost { in_line });
        self.side(direction).missed = true;
    }

    /// Bytes of a head; how many were taken.
    fn head(&mut self, out: &mut Output<'_>, direction: Direction, bytes: &[u8]) -> (usize, Next) {
        let side = &mut self.sides[direction as usize];
        if direction == Direction::ToClient && side.text.is_empty() {
            // The answer of HTTP/0.9 has no head, nor has that of a server that knows nothing else.
            let waiting = self.open.iter().find(|t| !t.is_done(Direction::ToClient));
            if let Some(transaction) = waiting
                && !matches!(bytes[0], b'H' | b'h' | b'\r' | b'\n')
            {
                let is_old = match &transaction.data {
                    Data::Http(http) => http.request_protocol.is_empty(),
                    _ => false,
                };
                let id = transaction.id;
                let content = content(transaction, direction, &Headers::default());
                let framing = Framing::UntilClose;
                let body = Body {
                    framing,
                    decoder: None,
                    content,
                    bytes: 0,
                    failed: None,
                    is_plain: false,
                    is_other: false,
                    has_extension: false,
                    trailer: Vec::new(),
                };
                side.place = Place::Body(Box::new(body));
                if !is_old {
                    out.anomaly(AnomalyKind::HttpResponseLine, Some(id), Some(direction));
                }
                return (0, Next::More);
            }
        }
        // Line by line, so that it is known where a head fails.
        let line = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        let room = (l7proto::http1::HEAD_MAX as usize + 1).saturating_sub(side.text.len());
        let piece = &bytes[..line.min(room)];
        let progress = side.head.feed(piece);
        side.text.extend_from_slice(piece);
        match progress {
            HeadProgress::More if side.head.has_first_line() && !is_of(&side.head, direction) => {
                let in_line = piece.last() != Some(&b'\n');
                self.lose(out, direction, HeadError::FirstLine, in_line);
                (piece.len(), Next::More)
            }
            HeadProgress::More => (piece.len(), Next::More),
            HeadProgress::Failed(error) => {
                let in_line = piece.last() != Some(&b'\n');
                self.lose(out, direction, error, in_line);
                (piece.len(), Next::More)
            }
            HeadProgress::Done(_) if !is_of(&side.head, direction) => {
                self.lose(out, direction, HeadError::FirstLine, false);
                (piece.len(), Next::More)
            }
            HeadProgress::Done(_)
                if direction == Direction::ToServer
                    && side.head.protocol().is_none()
                    && side.head.fields() == 0 =>
            {
                side.place = Place::Old { len: side.text.len() };
                (piece.len(), Next::More)
            }
            HeadProgress::Done(_) => {
                let text = std::mem::take(&mut side.text);
                let head = side.head;
                side.begin(Place::Head);
                let change = match direction {
                    Direction::ToServer => {
                        self.request(out, &head, &text, true);
                        None
                    }
                    Direction::ToClient => self.response(out, &head, &text, true),
                };
                let next = match change {
                    Some(change) => {
                        let unread = bytes.len() - piece.len();
                        let client = self.side(Direction::ToServer);
                        let is_held = matches!(client.place, Place::Held);
                        let held =
                            if is_held { std::mem::take(&mut client.text) } else { Vec::new() };
                        Next::Change { to: change.to, unread, held }
                    }
                    None => Next::More,
                };
                (piece.len(), next)
            }
        }
    }

    /// Bytes behind a first line without a version: fields if the line that they begin has a name and a colon, as libhtp
    /// has it, else the next message. How many were taken.
    fn old(&mut self, out: &mut Output<'_>, len: usize, bytes: &[u8]) -> usize {
        let side = self.side(Direction::ToServer);
        let mut was_blank = side.text[len..].iter().any(is_space);
        for (number, byte) in bytes.iter().enumerate() {
            let is_name =
                is_space(byte) || !(http1::is_blank(*byte) || *byte == b'\n' || was_blank);
            was_blank |= is_space(byte);
            if *byte == b':' {
                side.text.extend_from_slice(&bytes[..number]);
                let name = side.text.split_off(len);
                side.place = Place::Head;
                side.head.expect_fields();
                self.data(out, Direction::ToServer, &name);
                return number;
            }
            if !is_name || side.text.len() - len + number >= LINE_MAX {
                side.text.extend_from_slice(&bytes[..number]);
                self.end_old(out);
                return number;
            }
        }
        side.text.extend_from_slice(bytes);
        bytes.len()
    }

    /// No fields follow a first line without a version.
    fn end_old(&mut self, out: &mut Output<'_>) {
        let side = self.side(Direction::ToServer);
        let Place::Old { len } = side.place else { return };
        let (mut text, head) = (std::mem::take(&mut side.text), side.head);
        side.begin(Place::Head);
        let rest = text.split_off(len);
        self.request(out, &head, &text, true);
        self.data(out, Direction::ToServer, &rest);
    }

    /// A head that is whole, or what there is of one that never will be.
    fn request(&mut self, out: &mut Output<'_>, head: &Head, text: &[u8], is_whole: bool) {
        let direction = Direction::ToServer;
        let headers = Headers::parse(text);
        let at = |span: Option<l7proto::http1::Span>| span.unwrap_or_default().of(text);
        let (method, raw) = (at(head.method()), at(head.target()));
        let (line, fields) = l7proto::http1::lines(text);
        let is_connect = method == b"CONNECT";
        let target = Target::parse(raw, is_connect);
        // `CONNECT` names a server and no path.
        let normal = if is_connect { Vec::new() } else { uri::normal(target.path) };
        let field = headers.get("host");
        // `CONNECT` may have any target.
        let authority =
            target.authority.filter(|authority| uri::is_host(&uri::host_port(authority).0));
        let named = authority.or(field).map(uri::host_port);
        let protocol = at(head.protocol());
        let http = Http {
            method: method.to_vec(),
            uri_raw: raw.to_vec(),
            uri: normal,
            request_protocol: protocol.to_vec(),
            host: named.as_ref().map(|(name, _)| name.clone()).filter(|name| !name.is_empty()),
            port: named.as_ref().and_then(|(_, port)| *port),
            request_headers: headers.all.clone(),
            ..Http::default()
        };
        let (host, uri) = (http.host.clone(), http.uri.clone());
        let id = self.begin(out, http);
        self.has_request = true;

        let mut give = |buffer, bytes: &[u8]| out.buffer(id, direction, buffer, 0, bytes);
        give(Buffer::HttpMethod, method);
        give(Buffer::HttpUri, &uri);
        give(Buffer::HttpUriRaw, raw);
        if !protocol.is_empty() {
            give(Buffer::HttpProtocol, protocol);
        }
        if let Some(host) = &host {
            give(Buffer::HttpHost, host);
        }
        let of_target = authority.map(|authority| uri::host_port(authority).0);
        if let Some(raw) = of_target.as_deref().or(field) {
            give(Buffer::HttpHostRaw, raw);
        }
        head::buffers(out, id, direction, (line, fields.rest()), &headers);

        let mut odd = |kind| out.anomaly(kind, Some(id), Some(direction));
        match head.version() {
            None if !protocol.is_empty() => odd(AnomalyKind::HttpRequestLine),
            None if head.fields() > 0 => odd(AnomalyKind::HttpNoProtocol),
            _ => {}
        }
        odd::of_first_line(text, head, &mut odd);
        odd::of_fields(direction, &headers, &mut odd);
        if field.is_none() && is_whole && head.version().is_some_and(|minor| minor >= 1) {
            odd(AnomalyKind::HttpNoHost);
        }
        // `CONNECT` may have any target.
        let named = Target { authority: target.authority.filter(|_| !is_connect), ..target };
        let server_port = if is_connect { 0 } else { self.server_port };
        odd::of_server(&named, field, server_port, &mut odd);
        if let (Some(authority), Some(field)) = (authority, field)
            && !uri::is_same(&uri::host_port(authority).0, &uri::host_port(field).0)
        {
            odd(AnomalyKind::HttpHostAmbiguous);
        }
        if !is_whole {
            return;
        }
        let framing = framing(out, id, direction, &headers);
        self.progress(out, id, Progress::Head(direction));
        self.body(out, id, direction, &headers, framing);
        if is_connect && framing.is_none() {
            self.side(direction).begin(Place::Held);
        }
    }

    /// Nothing more of this side follows: a head that is not whole gives the lines that are.
    fn cut_head(&mut self, out: &mut Output<'_>, direction: Direction) {
        let side = self.side(direction);
        if !matches!(side.place, Place::Head) {
            return;
        }
        let (mut text, head) = (std::mem::take(&mut side.text), side.head);
        side.begin(Place::Head);
        text.truncate(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
        let has_line = is_of(&head, direction) && !text.is_empty();
        match direction {
            Direction::ToServer if has_line => self.request(out, &head, &text, false),
            Direction::ToClient if has_line => {
                self.response(out, &head, &text, false);
            }
            _ => {}
        }
    }

    fn progress(&mut self, out: &mut Output<'_>, id: u64, progress: Progress) {
        if let Some(transaction) = self.transaction(id) {
            out.progress(transaction, progress);
        }
    }

    /// Whether another protocol follows.
    fn response(
        &mut self,
        out: &mut Output<'_>,
        head: &Head,
        text: &[u8],
        is_whole: bool,
    ) -> Option<Change> {
        let direction = Direction::ToClient;
        let headers = Headers::parse(text);
        let status = head.status();
        if status.is_some_and(|status| (100..200).contains(&status) && status != 101) {
            let waiting = self.open.iter().find(|t| !t.is_done(direction)).map(|t| t.id);
            if status == Some(100)
                && waiting.is_some()
                && std::mem::replace(&mut self.continued, waiting) == waiting
            {
                out.anomaly(AnomalyKind::HttpContinued, waiting, Some(direction));
            }
            return None;
        }
        let missed = std::mem::take(&mut self.side(direction).missed);
        // Behind a gap it is not known whose response it is.
        self.given_up = if missed { 0 } else { self.given_up };
        let mut waiting = self.open.iter().filter(|t| !t.is_done(direction)).map(|t| t.id);
        let id = match self.given_up {
            0 if missed => waiting.next_back(),
            0 => waiting.next(),
            _ => Some(self.begin_late(out)),
        };
        let id = id.unwrap_or_else(|| {
            let id = self.begin(out, Http::default());
            out.anomaly(AnomalyKind::HttpUnmatchedResponse, Some(id), Some(direction));
            id
        });
        let (line, fields) = l7proto::http1::lines(text);
        let (protocol, rest) = head::word(line);
        let (code, reason) = head::word(rest);
        let reason = reason.trim_ascii();
        let mut method = Vec::new();
        if let Some(transaction) = self.open.iter_mut().find(|transaction| transaction.id == id)
            && let Data::Http(http) = &mut transaction.data
        {
            self.cost -= http.cost();
            method.clone_from(&http.method);
            http.response_protocol = protocol.to_vec();
            http.status = status;
            http.reason = reason.to_vec();
            http.response_headers = headers.all.clone();
            self.cost += http.cost();
        }
        let mut give = |buffer, bytes: &[u8]| out.buffer(id, direction, buffer, 0, bytes);
        give(Buffer::HttpProtocol, protocol);
        if !code.is_empty() {
            give(Buffer::HttpStatCode, code);
        }
        if !reason.is_empty() {
            give(Buffer::HttpStatMsg, reason);
        }
        head::buffers(out, id, direction, (line, fields.rest()), &headers);
        let mut odd = |kind| out.anomaly(kind, Some(id), Some(direction));
        if head.version().is_none() {
            odd(AnomalyKind::HttpResponseProtocol);
        }
        if !(code.len() == 3 && code.iter().all(u8::is_ascii_digit) && status.is_some()) {
            odd(AnomalyKind::HttpResponseStatus);
        }
        odd::of_fields(direction, &headers, &mut odd);
        let coding = headers.get("transfer-encoding");
        if head.version() == Some(0) && coding.is_some_and(odd::has_chunked) {
            odd(AnomalyKind::HttpChunkedOld);
        }
        if !is_whole {
            return None;
        }
        let is_tunnel = method == b"CONNECT" && matches!(status, Some(200..=299));
        let has_no_body = is_tunnel || method == b"HEAD" || matches!(status, Some(101 | 204 | 304));
        let framing = if has_no_body { None } else { framing(out, id, direction, &headers) };
        self.progress(out, id, Progress::Head(direction));
        self.body(out, id, direction, &headers, framing);
        if method == b"CONNECT" && !is_tunnel && matches!(self.sides[0].place, Place::Held) {
            // It asks for something else then.
            let held = std::mem::take(&mut self.sides[0].text);
            self.sides[0].begin(Place::Head);
            self.data(out, Direction::ToServer, &held);
        }
        let upgrade = headers.get("upgrade").unwrap_or_default();
        let is_http2 = status == Some(101) && upgrade.eq_ignore_ascii_case(b"h2c");
        let to = is_http2.then_some(Protocol::Http2);
        (is_tunnel || status == Some(101)).then_some(Change { to })
    }

    /// The body begins, or the message has ended.
    fn body(
        &mut self,
        out: &mut Output<'_>,
        id: u64,
        direction: Direction,
        headers: &Headers,
        framing: Option<Framing>,
    ) {
        let Some(framing) = framing else { return self.done(out, id, direction) };
        let Some(transaction) = self.open.iter().find(|transaction| transaction.id == id) else {
            return;
        };
        let body = body_of(out, transaction, direction, headers, framing);
        self.side(direction).place = Place::Body(Box::new(body));
    }

    /// Bytes of a line while the side is lost.
    fn lost(&mut self, direction: Direction, bytes: &[u8], in_line: bool) -> usize {
        let side = self.side(direction);
        let end = bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let piece = &bytes[..end.unwrap_or(bytes.len())];
        let in_line = in_line || side.text.len() + piece.len() > LINE_MAX;
        if !in_line {
            side.text.extend_from_slice(piece);
        }
        match end {
            Some(_) if !in_line && is_first_line(&side.text, direction) => {
                let text = std::mem::take(&mut side.text);
                side.begin(Place::Head);
                match side.head.feed(&text) {
                    HeadProgress::More => side.text = text,
                    _ => side.begin(Place::Lost { in_line: false }),
                }
            }
            Some(_) => {
                side.text.clear();
                side.place = Place::Lost { in_line: false };
            }
            None => side.place = Place::Lost { in_line },
        }
        piece.len()
    }
}

fn cost_of(transaction: &Transaction) -> usize {
    let Data::Http(http) = &transaction.data else { return 0 };
    http.cost()
}

/// The first line of a message, with one blank between its words, and its fields.
fn head_of(http: &Http, direction: Direction) -> (Vec<u8>, head::Fields) {
    let (words, fields) = match direction {
        Direction::ToServer => {
            let words = [&http.method, &http.uri_raw, &http.request_protocol];
            (words.map(|word| &word[..]).join(&b' '), &http.request_headers)
        }
        Direction::ToClient => {
            let status = http.status.unwrap_or_default().to_string().into_bytes();
            let words = [&http.response_protocol, &status, &http.reason];
            (words.map(|word| &word[..]).join(&b' '), &http.response_headers)
        }
    };
    (words, fields.clone())
}

/// Was a request seen?
fn has_request(transaction: &Transaction) -> bool {
    matches!(&transaction.data, Data::Http(http) if !http.method.is_empty())
}

/// The content of a body, with the name of the file that it is.
fn content(transaction: &Transaction, direction: Direction, headers: &Headers) -> Content {
    let path = match &transaction.data {
        Data::Http(http) => http.uri.split(|byte| *byte == b'?').next().unwrap_or_default(),
        _ => &[],
    };
    Content {
        transaction: transaction.id,
        direction,
        bytes: 0,
        given: 0,
        name: headers.file_name().unwrap_or_else(|| path.to_vec()),
        range: headers.range(),
        file: None,
        parts: None,
    }
}

/// A body that begins, by the head before it.
pub(crate) fn body_of(
    out: &mut Output<'_>,
    transaction: &Transaction,
    direction: Direction,
    headers: &Headers,
    framing: Framing,
) -> Body {
    let id = transaction.id;
    let mut content = content(transaction, direction, headers);
    if direction == Direction::ToServer
        && let Some(kind) = headers.get("content-type")
        && crate::mime::is_type(kind, b"multipart/form-data")
    {
        match crate::mime::parameter(kind, "boundary") {
            Some(boundary) => {
                content.parts = Some(Box::new(Mime::form(id, direction, &boundary)));
            }
            None => out.anomaly(AnomalyKind::HttpMultipart, Some(id), Some(direction)),
        }
    }
    let mut decoder = None;
    match Coding::parse(headers.get("content-encoding").unwrap_or_default()) {
        Ok(codings) if codings.len() > out.limits.codings => {
            out.anomaly(AnomalyKind::HttpTooManyCodings, Some(id), Some(direction));
        }
        Ok(codings) if codings.is_empty() => {}
        Ok(codings) => decoder = Some(Decoder::new(&codings)),
        Err(true) => {}
        Err(false) => out.anomaly(AnomalyKind::HttpUnknownCoding, Some(id), Some(direction)),
    }
    if content.name.len() > NAME_MAX {
        out.anomaly(AnomalyKind::HttpNameTooLong, Some(id), Some(direction));
    }
    Body {
        framing,
        decoder,
        content,
        bytes: 0,
        failed: None,
        is_plain: false,
        is_other: false,
        has_extension: false,
        trailer: Vec::new(),
    }
}

/// How the body of a message is framed (RFC 9112 §6.3).
fn framing(
    out: &mut Output<'_>,
    id: u64,
    direction: Direction,
    headers: &Headers,
) -> Option<Framing> {
    let mut odd = |kind| out.anomaly(kind, Some(id), Some(direction));
    let length = headers.content_length();
    let is_request = direction == Direction::ToServer;
    let otherwise = (!is_request).then_some(Framing::UntilClose);
    if let Some(coding) = headers.get("transfer-encoding") {
        if headers.get("content-length").is_some() {
            odd(AnomalyKind::HttpSmuggling);
        }
        let last = coding.rsplit(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
        if last.eq_ignore_ascii_case(b"chunked") {
            return Some(Framing::Chunked(Chunk::FIRST));
        }
        if !last.eq_ignore_ascii_case(b"identity") {
            odd(match is_request {
                true => AnomalyKind::HttpTransferCoding,
                false => AnomalyKind::HttpResponseTransferCoding,
            });
        }
    }
    if !length.is_right {
        odd(match is_request {
            true => AnomalyKind::HttpRequestLength,
            false => AnomalyKind::HttpResponseLength,
        });
    }
    if length.is_ambiguous {
        odd(match is_request {
            true => AnomalyKind::HttpRequestLengths,
            false => AnomalyKind::HttpResponseLengths,
        });
    }
    match length.bytes {
        Some(0) => None,
        Some(length) => Some(Framing::Length(length)),
        None => otherwise,
    }
}

/// Is it the head of a message of this side, as far as its first line says?
fn is_of(head: &Head, direction: Direction) -> bool {
    match direction {
        Direction::ToServer => head.method().is_some(),
        Direction::ToClient => head.is_response(),
    }
}

/// May it stand between the name of a field and the colon?
fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Is it the first line of a message?
fn is_first_line(line: &[u8], direction: Direction) -> bool {
    let line = line.trim_ascii_end();
    match direction {
        Direction::ToClient => {
            line.starts_with(b"HTTP/") && line.len() >= 12 && line[5].is_ascii_digit()
        }
        Direction::ToServer => {
            let (method, rest) = head::word(line);
            let version = head::protocol_of(rest);
            version.get(5).is_some_and(u8::is_ascii_digit)
                && rest.len() > version.len()
                && !method.is_empty()
                && method.iter().all(u8::is_ascii_uppercase)
        }
    }
}

impl Parser for Http1 {
    fn held(&self) -> usize {
        let sides = self.sides.iter().map(|side| {
            let body = match &side.place {
                Place::Body(body) => body.held(),
                _ => 0,
            };
            side.text.capacity() + body
        });
        size_of::<Self>() + self.cost + sides.sum::<usize>()
    }

    fn data(&mut self, out: &mut Output<'_>, direction: Direction, mut bytes: &[u8]) -> Next {
        if direction == Direction::ToClient && !bytes.is_empty() {
            // Whoever answers has read all that there is of the request.
            self.end_old(out);
        }
        while !bytes.is_empty() {
            let side = self.side(direction);
            let taken = match &mut side.place {
                Place::Head => match self.head(out, direction, bytes) {
                    (taken, Next::More) => taken,
                    (_, next) => return next,
                },
                Place::Body(body) => match body.feed(out, bytes) {
                    Taken::All => bytes.len(),
                    Taken::Ended(taken) => {
                        self.end_body(out, direction, true);
                        taken
                    }
                    Taken::Broken(taken) => {
                        let id = Some(body.content.transaction);
                        let kind = match direction {
                            Direction::ToServer => AnomalyKind::HttpRequestChunk,
                            Direction::ToClient => AnomalyKind::HttpResponseChunk,
                        };
                        out.anomaly(kind, id, Some(direction));
                        // The last byte may have ended the line.
                        let in_line = bytes.get(taken.wrapping_sub(1)) != Some(&b'\n');
                        self.end_body(out, direction, false);
                        self.side(direction).begin(Place::Lost { in_line });
                        taken
                    }
                },
                Place::Lost { in_line } => {
                    let in_line = *in_line;
                    self.lost(direction, bytes, in_line)
                }
                Place::Old { len } => {
                    let len = *len;
                    self.old(out, len, bytes)
                }
                Place::Held => {
                    let room = out.limits.held_bytes.saturating_sub(side.text.len());
                    side.text.extend_from_slice(&bytes[..bytes.len().min(room)]);
                    bytes.len()
                }
            };
            bytes = &bytes[taken..];
        }
        Next::More
    }

    fn gap(&mut self, out: &mut Output<'_>, direction: Direction, bytes: u64) -> Next {
        self.end_old(out);
        let side = self.side(direction);
        let goes_on = match &mut side.place {
            Place::Body(body) => body.gap(bytes),
            Place::Held => true,
            Place::Head | Place::Old { .. } | Place::Lost { .. } => false,
        };
        if !goes_on {
            self.end_body(out, direction, false);
            let side = self.side(direction);
            side.begin(Place::Lost { in_line: true });
            side.missed = true;
        }
        Next::More
    }

    fn end_of_side(&mut self, out: &mut Output<'_>, direction: Direction) {
        self.end_old(out);
        if let Place::Body(body) = &self.side(direction).place {
            let is_whole = body.framing == Framing::UntilClose;
            self.end_body(out, direction, is_whole);
        }
        let side = self.side(direction);
        let is_cut = matches!(side.place, Place::Head)
            && !side.head.has_first_line()
            && !side.text.trim_ascii().is_empty();
        if is_cut && direction == Direction::ToServer {
            out.anomaly(AnomalyKind::HttpLineIncomplete, None, Some(direction));
        }
        self.cut_head(out, direction);
    }

    fn finish(&mut self, out: &mut Output<'_>) {
        self.end_old(out);
        for direction in Direction::BOTH {
            self.end_body(out, direction, false);
            self.cut_head(out, direction);
        }
        for mut transaction in std::mem::take(&mut self.open) {
            out.progress(&mut transaction, Progress::Finished);
        }
    }
}
