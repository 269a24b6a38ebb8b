//! The head of an HTTP/1 message: its first line and some of its fields, as places in the stream.
//!
//! A [`Head`] takes the bytes of one side in segments of any size and keeps none of them; who holds the stream reads the
//! text at the [`Span`]s. It is lenient as an observer has to be: it accepts what servers accept (RFC 9112 §2.2), a line
//! feed alone ends a line, and a line that means nothing is skipped.
//!
//! ```text
//!  Start ─▶ FirstLine ─LF─▶ Name ─':'─▶ Value ─LF─▶ Name … ─▶ an empty line: done
//!                            └─── a line without a colon ──▲
//! ```

use thiserror::Error;

/// Bytes of a head.
pub const HEAD_MAX: u32 = 64 << 10;
/// Fields of a head.
pub const FIELDS_MAX: u16 = 1024;

/// Bytes of the stream, from where the [`Head`] began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first of them.
    pub start: u32,
    /// How many.
    pub len: u32,
}

impl Span {
    /// The bytes in a buffer that begins where the [`Head`] did; none of those that it does not hold.
    pub fn of(self, stream: &[u8]) -> &[u8] {
        let start = (self.start as usize).min(stream.len());
        let end = start.saturating_add(self.len as usize).min(stream.len());
        &stream[start..end]
    }

    /// Nothing is there.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// The fields whose places are kept; of several with one name, the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `Host`
    Host,
    /// `User-Agent`
    UserAgent,
    /// `Content-Type`
    ContentType,
    /// `Content-Length`
    ContentLength,
    /// `Transfer-Encoding`
    TransferEncoding,
    /// `Content-Encoding`
    ContentEncoding,
    /// `Referer`
    Referer,
    /// `Server`
    Server,
    /// `Location`
    Location,
    /// `Upgrade`
    Upgrade,
}

const FIELDS: [Field; NAMES.len()] = [
    Field::Host,
    Field::UserAgent,
    Field::ContentType,
    Field::ContentLength,
    Field::TransferEncoding,
    Field::ContentEncoding,
    Field::Referer,
    Field::Server,
    Field::Location,
    Field::Upgrade,
];

const NAMES: [&[u8]; 10] = [
    b"host",
    b"user-agent",
    b"content-type",
    b"content-length",
    b"transfer-encoding",
    b"content-encoding",
    b"referer",
    b"server",
    b"location",
    b"upgrade",
];

/// Why a head is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeadError {
    /// It does not end within [`HEAD_MAX`] bytes.
    #[error("HTTP head longer than {HEAD_MAX} bytes")]
    TooLong,
    /// It has more than [`FIELDS_MAX`] fields.
    #[error("HTTP head with more than {FIELDS_MAX} fields")]
    TooManyFields,
    /// The first line is neither a request's nor a response's.
    #[error("first line is not HTTP/1")]
    FirstLine,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More bytes are wanted.
    More,
    /// The head has ended; so many bytes of the last segment belong to it.
    Done(usize),
    /// It is given up.
    Failed(HeadError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    FirstLine,
    Name,
    Value,
    /// A line that means nothing.
    Skip,
    Done,
    Failed(HeadError),
}

/// A head that is being read: a fixed size, without allocations.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    state: State,
    /// The byte that comes next.
    at: u32,
    line: u32,
    /// The last bytes before `at` that are no blanks, of the first line.
    tail: u64,
    /// Of the word of the first line that is being read, the first [`START`] bytes.
    start: u64,
    /// Where the first word of the first line ends, and where the second begins.
    first_end: Option<u32>,
    second: Option<u32>,
    /// Where the second ends, and where the third begins.
    second_end: u32,
    third: Option<u32>,
    /// Where the last word begins, and where the one before it ends.
    last: u32,
    before_last: u32,
    /// Where the blanks begin that the first line is in.
    gap: Option<u32>,
    /// Fields whose name is the line so far.
    candidates: u16,
    field: Option<Field>,
    value: Span,
    line_end: u32,
    spans: [Option<Span>; NAMES.len()],
    fields: u16,
    method: Span,
    target: Span,
    protocol: Span,
    /// The first word is the version of a response.
    is_response: bool,
    /// Digits of the status so far.
    digits: u32,
    status: u16,
    version: Option<u8>,
}

/// Bytes of `HTTP/`.
const START: u32 = 5;

impl Default for Head {
    fn default() -> Self {
        Self::new()
    }
}

impl Head {
    /// Of which no byte has come.
    pub const fn new() -> Self {
        Self {
            state: State::Start,
            at: 0,
            line: 0,
            tail: 0,
            start: 0,
            first_end: None,
            second: None,
            second_end: 0,
            third: None,
            last: 0,
            before_last: 0,
            gap: None,
            candidates: 0,
            field: None,
            value: Span { start: 0, len: 0 },
            line_end: 0,
            spans: [None; NAMES.len()],
            fields: 0,
            method: Span { start: 0, len: 0 },
            target: Span { start: 0, len: 0 },
            protocol: Span { start: 0, len: 0 },
            is_response: false,
            digits: 0,
            status: 0,
            version: None,
        }
    }

    /// The method of a request.
    pub const fn method(&self) -> Option<Span> {
        if self.method.is_empty() { None } else { Some(self.method) }
    }

    /// The target of a request.
    pub const fn target(&self) -> Option<Span> {
        if self.method.is_empty() { None } else { Some(self.target) }
    }

    /// Whether the first line is that of a response: its first word begins with `HTTP`, in any case, as clients have it.
    pub const fn is_response(&self) -> bool {
        self.is_response
    }

    /// The status of a response; `None` where it is none, from 100 to 999, or is not there.
    pub const fn status(&self) -> Option<u16> {
        match self.status {
            100..=999 => Some(self.status),
            _ => None,
        }
    }

    /// Whether the first line is over, so that it is known whether it is a request's or a response's.
    pub const fn has_first_line(&self) -> bool {
        matches!(self.state, State::Name | State::Value | State::Skip | State::Done)
    }

    /// The version of a request as sent, whatever it is; a request of HTTP/0.9 has none.
    pub const fn protocol(&self) -> Option<Span> {
        if self.protocol.is_empty() { None } else { Some(self.protocol) }
    }

    /// The minor version in `HTTP/1.x`; no other version has one.
    pub const fn version(&self) -> Option<u8> {
        self.version
    }

    /// The value of a field without spaces around it.
    pub const fn field(&self, field: Field) -> Option<Span> {
        self.spans[field as usize]
    }

    /// How many fields it has so far.
    pub const fn fields(&self) -> u16 {
        self.fields
    }

    /// After a line without a version, which is all of a request of HTTP/0.9: fields follow it, after all.
    pub const fn expect_fields(&mut self) {
        if matches!(self.state, State::Done) && self.fields == 0 {
            self.state = State::Name;
        }
    }

    /// Takes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Progress {
        let mut number = 0;
        while let Some(byte) = bytes.get(number) {
            match self.state {
                State::Done => return Progress::Done(number),
                State::Failed(error) => return Progress::Failed(error),
                _ if self.at >= HEAD_MAX => self.state = State::Failed(HeadError::TooLong),
                State::Value | State::Skip if *byte != b'\n' => {
                    number += self.rest_of_line(&bytes[number..]);
                    continue;
                }
                State::FirstLine if self.is_in_word() && is_of_word(*byte) => {
                    number += self.word(&bytes[number..]);
                    continue;
                }
                State::Name if self.at == self.line => match self.name(&bytes[number..]) {
                    0 => self.step(*byte),
                    len => {
                        number += len;
                        continue;
                    }
                },
                _ => self.step(*byte),
            }
            number += 1;
        }
        match self.state {
            State::Done => Progress::Done(bytes.len()),
            State::Failed(error) => Progress::Failed(error),
            _ => Progress::More,
        }
    }

    /// Takes what follows of a value, or of a line that means nothing, as far as it is there and a head may go: most bytes of a head.
    fn rest_of_line(&mut self, bytes: &[u8]) -> usize {
        let bytes = &bytes[..bytes.len().min((HEAD_MAX - self.at) as usize)];
        let len = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
        let text = &bytes[..len];
        let is_text = |byte: &u8| !matches!(byte, b' ' | b'\t' | b'\r');
        if self.state == State::Value
            && let Some(last) = text.iter().rposition(is_text)
        {
            if self.value.is_empty() {
                let first = text.iter().position(is_text).unwrap_or(last);
                self.value.start = self.at + first as u32;
            }
            self.value.len = self.at + last as u32 + 1 - self.value.start;
        }
        self.at += len as u32;
        len
    }

    /// Whether the first line is in a word of which no digits of a status may follow.
    const fn is_in_word(&self) -> bool {
        self.gap.is_none() && !(self.is_response && self.second.is_some())
    }

    /// Takes what follows of a word of the first line, as far as it is there and a head may go.
    fn word(&mut self, bytes: &[u8]) -> usize {
        let bytes = &bytes[..bytes.len().min((HEAD_MAX - self.at) as usize)];
        let len = bytes.iter().position(|byte| !is_of_word(*byte)).unwrap_or(bytes.len());
        let word = &bytes[..len];
        for byte in word.iter().take(START.saturating_sub(self.at - self.last) as usize) {
            self.start = self.start << 8 | u64::from(*byte);
        }
        self.tail = match word.last_chunk() {
            Some(last) => u64::from_be_bytes(*last),
            None => word.iter().fold(self.tail, |tail, byte| tail << 8 | u64::from(*byte)),
        };
        self.at += len as u32;
        self.line_end = self.at;
        len
    }

    /// Takes the name with which a line begins, and its colon, if both are there as far as a head may go; else 0 bytes.
    fn name(&mut self, bytes: &[u8]) -> usize {
        let bytes = &bytes[..bytes.len().min((HEAD_MAX - self.at) as usize)];
        let end = bytes.iter().position(|byte| matches!(byte, b':' | b'\n'));
        let Some((name, [b':', ..])) = end.and_then(|end| bytes.split_at_checked(end)) else {
            return 0;
        };
        if let [b' ' | b'\t', ..] = name {
            return 0; // a folded line
        }
        self.at += name.len() as u32 + 1;
        let is_name = |field: &Field| NAMES[*field as usize].eq_ignore_ascii_case(name);
        self.end_of_name(FIELDS.into_iter().find(is_name));
        name.len() + 1
    }

    fn step(&mut self, byte: u8) {
        let at = self.at;
        self.at += 1;
        match (self.state, byte) {
            // Empty lines before a request are skipped, and so are blanks.
            (State::Start, byte) if is_blank(byte) || byte == b'\n' => self.line = at + 1,
            (State::Start, _) => {
                (self.line, self.last) = (at, at);
                self.state = State::FirstLine;
                self.first_line(at, byte);
            }
            (State::FirstLine, b'\n') => self.end_of_first_line(),
            (State::FirstLine, _) => self.first_line(at, byte),
            (State::Name, b'\n') => {
                // Empty, or with a carriage return only; else without a colon.
                let is_empty = self.line_end == self.line;
                self.next_line(at);
                if is_empty {
                    self.state = State::Done;
                }
            }
            (State::Name, b':') => {
                let len = (at - self.line) as usize;
                let is_name = |field: &Field| {
                    self.candidates >> *field as usize & 1 != 0
                        && NAMES[*field as usize].len() == len
                };
                self.end_of_name(FIELDS.into_iter().find(is_name));
            }
            (State::Name, b' ' | b'\t') if at == self.line => {
                // A folded line goes on with the value before (RFC 9112 §5.2); its text is left out.
                self.state = State::Skip;
            }
            (State::Name, byte) => {
                if byte != b'\r' {
                    self.line_end = at + 1;
                }
                let place = (at - self.line) as usize;
                let lower = byte.to_ascii_lowercase();
                let mut left = self.candidates;
                while left != 0 {
                    let bit = left.trailing_zeros();
                    left &= left - 1;
                    if NAMES[bit as usize].get(place) != Some(&lower) {
                        self.candidates &= !(1 << bit);
                    }
                }
            }
            (State::Value, b'\n') => {
                if let Some(field) = self.field {
                    self.spans[field as usize].get_or_insert(self.value);
                }
                self.next_line(at);
            }
            (State::Skip, b'\n') => self.next_line(at),
            // The rest of such a line is no step.
            (State::Value | State::Skip | State::Done | State::Failed(_), _) => {}
        }
    }

    fn next_line(&mut self, at: u32) {
        self.state = State::Name;
        self.line = at + 1;
        self.line_end = at + 1;
        self.candidates = (1 << NAMES.len()) - 1;
        self.field = None;
    }

    fn first_line(&mut self, at: u32, byte: u8) {
        if is_blank(byte) {
            self.gap.get_or_insert(at);
            if self.first_end.is_none() {
                self.end_of_first_word(at);
            } else if self.second == Some(self.last) {
                self.second_end = self.line_end;
            }
            return;
        }
        if let Some(gap) = self.gap.take() {
            (self.last, self.before_last) = (at, gap);
            (self.start, self.tail) = (0, 0);
            let place = if self.second.is_none() { &mut self.second } else { &mut self.third };
            place.get_or_insert(at);
        }
        self.line_end = at + 1;
        self.tail = self.tail << 8 | u64::from(byte);
        if at - self.last < START {
            self.start = self.start << 8 | u64::from(byte);
        }
        // Zeros before it count for nothing, nor do digits after three others.
        if let (b'0'..=b'9', Some(second)) = (byte, self.second)
            && self.is_response
            && self.last == second
            && at - second == self.digits
        {
            self.digits += 1;
            if self.status < 100 {
                self.status = self.status * 10 + u16::from(byte - b'0');
            }
        }
    }

    fn end_of_first_word(&mut self, end: u32) {
        self.first_end = Some(end);
        let len = end - self.line;
        let start = self.start.to_be_bytes();
        self.is_response = match len {
            4 => start[4..].eq_ignore_ascii_case(b"http"),
            5.. => start[3..7].eq_ignore_ascii_case(b"http"),
            _ => false,
        };
        if self.is_response && len == 8 {
            self.version = version(self.tail);
        }
    }

    /// A word that begins with `HTTP/` and is the last one is the version. Else the target ends with the second word, and
    /// all that follows it is the version.
    fn end_of_first_line(&mut self) {
        let (line, end) = (self.line, self.line_end);
        if self.first_end.is_none() {
            self.end_of_first_word(end);
        }
        self.next_line(self.at - 1);
        if self.is_response {
            return;
        }
        let (Some(first_end), Some(second)) = (self.first_end, self.second) else {
            self.state = State::Failed(HeadError::FirstLine);
            return;
        };
        self.method = Span { start: line, len: first_end - line };
        let between = |start, end| Span { start, len: end - start };
        let minor = if end == self.last + 8 { version(self.tail) } else { None };
        let is_named = self.start.to_be_bytes()[3..].eq_ignore_ascii_case(b"http/");
        (self.target, self.protocol) = match self.last == second {
            // Without a target, `GET HTTP/1.1`, the version is the second word.
            true if minor.is_some() => (between(second, second), between(second, end)),
            true => (between(second, end), Span::default()),
            false if is_named => (between(second, self.before_last), between(self.last, end)),
            false => {
                (between(second, self.second_end), between(self.third.unwrap_or(self.last), end))
            }
        };
        self.version = minor;
        if self.protocol.is_empty() {
            // HTTP/0.9: the line is all of it.
            self.state = State::Done;
        }
    }

    fn end_of_name(&mut self, field: Option<Field>) {
        if self.fields >= FIELDS_MAX {
            self.state = State::Failed(HeadError::TooManyFields);
            return;
        }
        self.fields += 1;
        self.state = State::Value;
        self.value = Span::default();
        self.field = field;
    }
}

/// Whether a byte is between words of a first line, as servers that are lenient have it (RFC 9112 §3).
pub const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0x0b | 0x0c | b'\r')
}

/// Whether a byte of the first line is part of a word.
const fn is_of_word(byte: u8) -> bool {
    !is_blank(byte) && byte != b'\n'
}

/// The minor version in `HTTP/1.x`, in any case, in the last eight bytes.
fn version(tail: u64) -> Option<u8> {
    match tail.to_be_bytes() {
        [h, t, t2, p, b'/', b'1', b'.', minor @ b'0'..=b'9'] => {
            let name = [h, t, t2, p];
            name.eq_ignore_ascii_case(b"http").then(|| minor - b'0')
        }
        _ => None,
    }
}

/// The first line of a head that is whole, without its end, and the fields behind it.
pub fn lines(head: &[u8]) -> (&[u8], Fields<'_>) {
    let is_text = |byte: &u8| !is_blank(*byte) && *byte != b'\n';
    let start = head.iter().position(is_text).unwrap_or(head.len());
    let (first, rest) = line(&head[start..]);
    (first, Fields { rest })
}

/// The fields of a head, in order; see [`lines`].
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

/// A line of a head that is no first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldLine<'a> {
    /// Name as sent, value without spaces around it.
    Field(&'a [u8], &'a [u8]),
    /// A folded line, which goes on with the value before (RFC 9112 §5.2), without spaces around it.
    Folded(&'a [u8]),
    /// A line without a colon.
    Other(&'a [u8]),
}

impl<'a> Fields<'a> {
    /// What follows: before the first item, the lines of all fields and the empty line.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = FieldLine<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (text, rest) = line(self.rest);
        if text.is_empty() {
            return None;
        }
        self.rest = rest;
        if matches!(text[0], b' ' | b'\t') {
            return Some(FieldLine::Folded(text.trim_ascii()));
        }
        Some(match text.iter().position(|byte| *byte == b':') {
            Some(colon) => FieldLine::Field(&text[..colon], text[colon + 1..].trim_ascii()),
            None => FieldLine::Other(text),
        })
    }
}

/// The first line without its end, and what is behind it.
fn line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let (line, rest) = match end {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[][..]),
    };
    (line.strip_suffix(b"\r").unwrap_or(line), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_head() {
        let head = b"\r\nGET / HTTP/1.1\r\nA:  b \r\n c \nno colon\nD:\r\n\r\nbody";
        let (first, fields) = lines(head);
        assert_eq!(first, b"GET / HTTP/1.1");
        assert!(fields.rest().starts_with(b"A:  b"));
        use FieldLine::*;
        let expected = [Field(b"A", b"b"), Folded(b"c"), Other(b"no colon"), Field(b"D", b"")];
        assert_eq!(fields.collect::<Vec<_>>(), expected);
        assert_eq!(lines(b"\n").0, b"");
    }

    fn read(text: &[u8]) -> (Head, Progress) {
        let mut head = Head::new();
        let progress = head.feed(text);
        (head, progress)
    }

    fn text(span: Option<Span>, stream: &str) -> &str {
        std::str::from_utf8(span.unwrap_or_default().of(stream.as_bytes())).unwrap()
    }

    #[test]
    fn a_request() {
        let stream = "\r\nGET /a b?c HTTP/1.1\r\nHOST:  example.com \r\nX-Host: no\r\nUser-Agent: x y\n\
                      Content-Type:\r\nHost: second\r\n folded\r\nno colon\r\n\r\nbody";
        let (head, progress) = read(stream.as_bytes());
        assert_eq!(progress, Progress::Done(stream.len() - 4));
        assert_eq!(text(head.method(), stream), "GET");
        assert_eq!(text(head.target(), stream), "/a b?c");
        assert_eq!(head.version(), Some(1));
        assert_eq!(text(head.field(Field::Host), stream), "example.com");
        assert_eq!(text(head.field(Field::UserAgent), stream), "x y");
        assert_eq!(head.field(Field::ContentType), Some(Span::default()));
        assert_eq!(head.field(Field::Server), None);
        assert_eq!((head.fields(), head.status()), (5, None));
    }

    #[test]
    fn responses() {
        let stream = "HTTP/1.0 404 Not Found\r\nserver: a\r\n\r\n";
        let (head, progress) = read(stream.as_bytes());
        assert_eq!(progress, Progress::Done(stream.len()));
        assert_eq!((head.status(), head.version(), head.method()), (Some(404), Some(0), None));
        assert_eq!(text(head.field(Field::Server), stream), "a");
        assert_eq!(read(b"http/1.1 200\n\n").0.status(), Some(200));
    }

    /// Versions and statuses that are none do not hide what follows: clients read on.
    #[test]
    fn odd_responses() {
        for (line, status, version) in [
            ("HTTP/1.1 0200 OK", Some(200), Some(1)),
            ("HTTP/9.1 200 OK", Some(200), None),
            ("http/01.1 200", Some(200), None),
            ("HTTP 404 Not Found", Some(404), None),
            ("HTTP/1.1 200OK", Some(200), Some(1)),
            ("HTTP/1.1 +200 OK", None, Some(1)),
            ("HTTP/1.1 20", None, Some(1)),
            ("HTTP/1.1 099 No", None, Some(1)),
            ("HTTP/1.1 ", None, Some(1)),
            ("HTTP/1.1", None, Some(1)),
        ] {
            let stream = format!("{line}\r\nServer: a\r\n\r\n");
            let (head, progress) = read(stream.as_bytes());
            assert_eq!(progress, Progress::Done(stream.len()), "{line}");
            assert!(head.is_response() && head.method().is_none(), "{line}");
            assert_eq!((head.status(), head.version()), (status, version), "{line}");
            assert_eq!(text(head.field(Field::Server), &stream), "a", "{line}");
        }
    }

    /// Nor do those of requests. Where the last word is a version, the target is all before it; else it is the second
    /// word, as in Suricata 7.
    #[test]
    fn odd_versions() {
        for (line, target, protocol) in [
            ("GET /a HTTP/1.1", "/a", "HTTP/1.1"),
            ("GET /a http/01.1", "/a", "http/01.1"),
            ("GET /a HTTP/2", "/a", "HTTP/2"),
            ("GET /a b HTTP/9.9 ", "/a b", "HTTP/9.9"),
            ("GET /a HTTP/1.1 foo", "/a", "HTTP/1.1 foo"),
            ("GET /a \t b  c", "/a", "b  c"),
            ("GET /a HTTP /1.1", "/a", "HTTP /1.1"),
            ("GET /a JUNK/1.1", "/a", "JUNK/1.1"),
            ("GET HTTP/1.1", "", "HTTP/1.1"),
        ] {
            let stream = format!("{line}\r\nHost: h\r\n\r\n");
            for size in 1..=stream.len() {
                let (mut head, mut last) = (Head::new(), Progress::More);
                stream.as_bytes().chunks(size).for_each(|piece| last = head.feed(piece));
                assert!(matches!(last, Progress::Done(_)), "{line}, {size}");
                let found = [head.target(), head.protocol()].map(|span| text(span, &stream));
                assert_eq!(found, [target, protocol], "{line}, {size}");
                assert_eq!(text(head.field(Field::Host), &stream), "h", "{line}, {size}");
            }
        }
        // Without one the line is all, unless fields follow.
        let stream = "GET /a\r\nHost: h\r\n\r\n";
        let (mut head, progress) = read(stream.as_bytes());
        assert_eq!((progress, head.protocol()), (Progress::Done(8), None));
        head.expect_fields();
        assert_eq!(head.feed(&stream.as_bytes()[8..]), Progress::Done(stream.len() - 8));
        assert_eq!((text(head.field(Field::Host), stream), head.version()), ("h", None));
    }

    #[test]
    fn lines_of_few_words() {
        let stream = "GET HTTP/1.1\r\n\r\n";
        let (head, progress) = read(stream.as_bytes());
        assert_eq!(progress, Progress::Done(stream.len()));
        assert_eq!((text(head.target(), stream), head.version()), ("", Some(1)));
        let stream = "GET /\r\n";
        let (head, progress) = read(stream.as_bytes());
        assert_eq!(progress, Progress::Done(stream.len()));
        assert_eq!((text(head.target(), stream), head.version()), ("/", None));
        assert_eq!(read(b"quit\r\n").1, Progress::Failed(HeadError::FirstLine));
        assert_eq!(read(b"GET \r\n").1, Progress::Failed(HeadError::FirstLine));
        assert_eq!(read(b" \r\n").1, Progress::More);
    }

    /// Words are as lenient servers have them: blanks before the line, several of them, tabs.
    #[test]
    fn blanks_of_first_lines() {
        let cases = [
            ("GET\t/a HTTP/1.1", ("GET", "/a", Some(1))),
            (" GET /a HTTP/1.1", ("GET", "/a", Some(1))),
            ("\t \x0bGET /a HTTP/1.1", ("GET", "/a", Some(1))),
            ("GET  /a HTTP/1.1", ("GET", "/a", Some(1))),
            ("GET \t /a \t HTTP/1.1", ("GET", "/a", Some(1))),
            ("GET /a\tHTTP/1.0", ("GET", "/a", Some(0))),
            ("GET\r/a\x0cHTTP/1.1", ("GET", "/a", Some(1))),
            ("GET /a HTTP/1.1 \t", ("GET", "/a", Some(1))),
            ("GET /a  b HTTP/1.1", ("GET", "/a  b", Some(1))),
            ("GET  /a ", ("GET", "/a", None)),
        ];
        for (line, expected) in cases {
            let stream = format!("{line}\r\n\r\n");
            for size in 1..stream.len() {
                let mut head = Head::new();
                for piece in stream.as_bytes().chunks(size) {
                    head.feed(piece);
                }
                let found =
                    (text(head.method(), &stream), text(head.target(), &stream), head.version());
                assert_eq!(found, expected, "{line:?} by {size}");
            }
        }
        assert_eq!(read(b"HTTP/1.1\t 200  OK\r\n\r\n").0.status(), Some(200));
        assert_eq!(lines(b" \tGET / HTTP/1.1\r\n\r\n").0, b"GET / HTTP/1.1");
    }

    proptest::proptest! {
        /// Words and names that are there as a whole are taken at once: it is the same as step by step.
        #[test]
        fn words_at_once_are_those_step_by_step(
            stream in "[\r\n\t ]{0,2}(GET|HTTP/1\\.1|http/1\\.[0-9x]|[A-Z]{0,9}|.{0,4})( |  |\t|\r )(200|2x0 OK|/[a-z\r ]{0,9})([ \t]{1,2}HTTP/1\\.[01x])?\r?\n(([ \t]{0,1}(Host|USER-agent|server|upgrade|referer|[a-z\r -]{0,8})[: ]?[a-z\r \t]{0,4}):?[a-z \r]{0,4}\r?\n){0,4}\r?\n?.{0,5}",
        ) {
            let (whole, progress) = read(stream.as_bytes());
            let mut head = Head::new();
            let mut single = Progress::More;
            for (number, byte) in stream.bytes().enumerate() {
                match head.state {
                    State::Value | State::Skip if byte != b'\n' => _ = head.rest_of_line(&[byte]),
                    _ => head.step(byte),
                }
                single = match head.state {
                    State::Done => Progress::Done(number + 1),
                    State::Failed(error) => Progress::Failed(error),
                    _ => continue,
                };
                break;
            }
            let seen = |head: &Head| {
                (head.method(), head.target(), head.status(), head.version(), head.fields(), head.spans)
            };
            proptest::prop_assert_eq!((seen(&whole), progress), (seen(&head), single));
        }
    }

    #[test]
    fn endless_heads_end() {
        let long = [b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'a'; HEAD_MAX as usize]].concat();
        assert_eq!(read(&long).1, Progress::Failed(HeadError::TooLong));
        let most = usize::from(FIELDS_MAX);
        let many = [b"GET / HTTP/1.1\r\n".as_slice(), &b"a:\n".repeat(most + 1)].concat();
        assert_eq!(read(&many).1, Progress::Failed(HeadError::TooManyFields));
        let allowed = [b"GET / HTTP/1.1\r\n".as_slice(), &b"a:\n".repeat(most), b"\n"].concat();
        assert_eq!(read(&allowed).1, Progress::Done(allowed.len()));
    }
}
