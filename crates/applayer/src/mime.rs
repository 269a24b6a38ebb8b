//! MIME (RFC 2045, RFC 2046) and form data (RFC 7578): header, parts, files in them.
//!
//! ```text
//!  lines, long ones in fragments ─▶ header ─▶ body ─▶ coding undone ─▶ file, URLs
//!                                      ▲        └─ a boundary ends it
//!                                      └── the header of the next part
//! ```
//!
//! The end of a line before a boundary belongs to the boundary, so it waits for the line behind it.

mod words;

use crate::anomaly::AnomalyKind;
use crate::buffer::Buffer;
use crate::file::{FileState, OpenFile};
use crate::http1::NAME_MAX;
use crate::output::Output;
use crate::sink::Direction;
use crate::transaction::{Email, cost_of};

/// Bytes of a line that are looked at together; more than any boundary (RFC 2046 §5.1.1: 70) has.
const FRAGMENT: usize = 1024;
/// Bytes of a boundary.
const BOUNDARY_MAX: usize = 200;
/// Bytes of a line, and of one of an encoded part, without its end.
const LINE_MAX: usize = 998;
const ENCODED_MAX: usize = 76;
/// Bytes of the name and of the value of a field that are not odd.
const FIELD_NAME_MAX: usize = 75;
const FIELD_VALUE_MAX: usize = 2000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the first part, or behind the last.
    Between,
    Header,
    Body,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Encoding {
    #[default]
    Plain,
    Base64,
    QuotedPrintable,
}

/// What a part is.
#[derive(Debug, Default)]
struct Part {
    encoding: Encoding,
    file: Option<Box<OpenFile>>,
    /// URLs of it are wanted: the line so far.
    text: Option<Vec<u8>>,
    /// The end of the last line.
    line_end: &'static [u8],
    /// Base64: bits and how many digits they are of. Quoted-printable: the digits behind `=`.
    bits: u32,
    digits: u8,
    is_escaped: bool,
    is_odd: bool,
}

/// An entity that is being read.
#[derive(Debug)]
pub(crate) struct Mime {
    transaction: u64,
    direction: Direction,
    is_mail: bool,
    /// The header that is being read is that of the mail.
    is_top: bool,
    boundaries: Vec<Vec<u8>>,
    /// Messages within messages.
    messages: usize,
    place: Place,
    line: Vec<u8>,
    /// The line goes on with what comes, and has so many bytes so far.
    in_line: bool,
    line_len: usize,
    /// What was said of the mail, once each: a long line, a long line of an encoded part.
    is_long: [bool; 2],
    header: Vec<u8>,
    is_header_cut: bool,
    part: Part,
    files: u32,
    /// What names of attachments and URLs cost to keep, in bytes.
    cost: usize,
    pub(crate) email: Email,
}

impl Mime {
    fn new(transaction: u64, direction: Direction, is_mail: bool) -> Self {
        Self {
            transaction,
            direction,
            is_mail,
            is_top: is_mail,
            boundaries: Vec::new(),
            messages: 0,
            place: if is_mail { Place::Header } else { Place::Between },
            line: Vec::new(),
            in_line: false,
            line_len: 0,
            is_long: [false; 2],
            header: Vec::new(),
            is_header_cut: false,
            part: Part::default(),
            files: 0,
            cost: 0,
            email: Email::default(),
        }
    }

    /// A mail, from its header on.
    pub(crate) fn mail(transaction: u64, direction: Direction) -> Self {
        Self::new(transaction, direction, true)
    }

    /// The body of a form.
    pub(crate) fn form(transaction: u64, direction: Direction, boundary: &[u8]) -> Self {
        let mut form = Self::new(transaction, direction, false);
        form.boundaries.push(boundary[..boundary.len().min(BOUNDARY_MAX)].to_vec());
        form
    }

    /// Bytes of memory that it holds, with its own.
    pub(crate) fn held(&self) -> usize {
        let boundaries = self.boundaries.iter().map(|own| cost_of(own));
        let fields = self.email.fields.iter().map(|(name, value)| cost_of(name) + cost_of(value));
        let file = self.part.file.as_ref().map_or(0, |file| file.held());
        let text = self.part.text.as_ref().map_or(0, Vec::capacity);
        let own = size_of::<Self>() + self.line.capacity() + self.header.capacity() + self.cost;
        own + boundaries.chain(fields).sum::<usize>() + file + text
    }

    /// Takes bytes.
    pub(crate) fn feed(&mut self, out: &mut Output<'_>, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = FRAGMENT.saturating_sub(self.line.len()).max(1);
            let piece = &bytes[..bytes.len().min(room)];
            let len = piece.iter().position(|b| *b == b'\n').map_or(piece.len(), |at| at + 1);
            self.line.extend_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            let last = self.line.last().copied();
            // A carriage return at the end of a fragment may be that of the end of line.
            let is_full =
                self.line.len() > FRAGMENT || self.line.len() == FRAGMENT && last != Some(b'\r');
            if last == Some(b'\n') || is_full {
                self.fragment(out);
            }
        }
    }

    fn fragment(&mut self, out: &mut Output<'_>) {
        let line = std::mem::take(&mut self.line);
        let (text, end): (&[u8], &'static [u8]) = match &line[..] {
            [text @ .., b'\r', b'\n'] => (text, b"\r\n"),
            [text @ .., b'\n'] => (text, b"\n"),
            text => (text, b""),
        };
        let is_start = !std::mem::replace(&mut self.in_line, end.is_empty());
        self.line_len = if is_start { text.len() } else { self.line_len + text.len() };
        let is_encoded = self.place == Place::Body && self.part.encoding != Encoding::Plain;
        self.long_line(out, self.line_len > LINE_MAX, 0, AnomalyKind::MimeLongLine);
        let is_long = is_encoded && self.line_len > ENCODED_MAX;
        self.long_line(out, is_long, 1, AnomalyKind::MimeLongEncoded);
        if !(is_start && self.boundary(out, text)) {
            match self.place {
                Place::Between => {}
                Place::Header if is_start && text.is_empty() => self.end_of_header(out),
                Place::Header => self.header_line(out, text, end),
                Place::Body => {
                    let before = std::mem::replace(&mut self.part.line_end, end);
                    self.content(out, before);
                    self.content(out, text);
                }
            }
        }
        self.line = line;
        self.line.clear();
    }

    fn long_line(&mut self, out: &mut Output<'_>, is_long: bool, which: usize, kind: AnomalyKind) {
        if is_long && !std::mem::replace(&mut self.is_long[which], true) {
            self.odd(out, kind);
        }
    }

    /// Is the line a boundary? It ends parts and begins one.
    fn boundary(&mut self, out: &mut Output<'_>, line: &[u8]) -> bool {
        let Some(text) = line.strip_prefix(b"--") else { return false };
        let found = self.boundaries.iter().enumerate().rev().find_map(|(level, boundary)| {
            let rest = text.strip_prefix(&boundary[..])?.trim_ascii_end();
            match rest {
                b"" => Some((level, false)),
                b"--" => Some((level, true)),
                _ => None,
            }
        });
        let Some((level, is_last)) = found else { return false };
        if self.place == Place::Header {
            // A part without a body.
            self.end_of_header(out);
        }
        self.end_of_part(out, FileState::Closed);
        self.boundaries.truncate(if is_last { level } else { level + 1 });
        self.place = if is_last { Place::Between } else { Place::Header };
        self.header.clear();
        true
    }

    fn header_line(&mut self, out: &mut Output<'_>, text: &[u8], end: &[u8]) {
        if self.header.len() + text.len() + end.len() > out.limits.head_bytes {
            if !self.is_header_cut && self.is_mail {
                out.anomaly(
                    AnomalyKind::MimeLongHeader,
                    Some(self.transaction),
                    Some(self.direction),
                );
            }
            self.is_header_cut = true;
            return;
        }
        self.header.extend_from_slice(text);
        self.header.extend_from_slice(end);
    }

    fn end_of_header(&mut self, out: &mut Output<'_>) {
        let header = std::mem::take(&mut self.header);
        let fields = fields(&header, out.limits.fields);
        let get = |name: &str| {
            let found = fields.iter().find(|(f, _)| f.eq_ignore_ascii_case(name.as_bytes()));
            found.map(|(_, value)| &value[..])
        };
        if fields.iter().any(|(name, _)| name.len() > FIELD_NAME_MAX) {
            self.odd(out, AnomalyKind::MimeLongName);
        }
        if fields.iter().any(|(_, value)| value.len() > FIELD_VALUE_MAX) {
            self.odd(out, AnomalyKind::MimeLongValue);
        }
        if !self.is_mail && has_no_colon(&header) {
            out.anomaly(
                AnomalyKind::HttpMultipartHeader,
                Some(self.transaction),
                Some(self.direction),
            );
        }
        self.place = Place::Body;
        self.part = Part::default();
        let kind = get("content-type").unwrap_or_default();
        let is_multipart = kind.get(..10).is_some_and(|k| k.eq_ignore_ascii_case(b"multipart/"));
        let nested = self.boundaries.len() + self.messages;
        if is_multipart && let Some(mut boundary) = parameter(kind, "boundary") {
            if boundary.len() > BOUNDARY_MAX {
                self.odd(out, AnomalyKind::MimeLongBoundary);
            }
            if nested < out.limits.depth {
                boundary.truncate(BOUNDARY_MAX);
                self.boundaries.push(boundary);
                self.place = Place::Between;
            } else {
                self.odd(out, AnomalyKind::MimeDepth);
            }
        } else {
            let disposition = get("content-disposition").unwrap_or_default();
            self.part.encoding = encoding(get("content-transfer-encoding").unwrap_or_default());
            let name = parameter(disposition, "filename");
            let name = name.or_else(|| parameter(kind, "name").filter(|_| self.is_mail));
            let name = if self.is_mail { name.map(words::decoded) } else { name };
            let is_attached = self.is_mail && is_type(disposition, b"attachment");
            let is_message = self.is_mail && is_type(kind, b"message/rfc822");
            if name.is_some() || is_attached {
                let name = name.unwrap_or_default();
                if name.len() > NAME_MAX {
                    let kind = match self.is_mail {
                        true => AnomalyKind::MimeLongFilename,
                        false => AnomalyKind::HttpNameTooLong,
                    };
                    out.anomaly(kind, Some(self.transaction), Some(self.direction));
                }
                let is_room = self.email.attachments.len() < out.limits.entries;
                if self.is_mail && is_room && self.pays(out, &name) {
                    self.email.attachments.push(name.clone());
                    self.tell(out);
                }
                let number = self.files;
                self.files = self.files.saturating_add(1);
                self.part.file = Some(out.open(self.transaction, self.direction, number, name));
            } else if is_message && nested < out.limits.depth {
                self.messages += 1;
                self.place = Place::Header;
            } else if self.is_mail {
                let is_text = kind.is_empty()
                    || kind.get(..5).is_some_and(|k| k.eq_ignore_ascii_case(b"text/"));
                self.part.text = is_text.then(Vec::new);
            }
        }
        if std::mem::take(&mut self.is_top) {
            self.email.fields = fields;
            self.give_fields(out);
            self.tell(out);
        }
    }

    fn tell(&self, out: &mut Output<'_>) {
        if self.is_mail && !self.is_top {
            out.sink.mail(self.transaction, &self.email);
        }
    }

    fn give_fields(&self, out: &mut Output<'_>) {
        const BUFFERS: &[(&str, Buffer)] = &[
            ("from", Buffer::EmailFrom),
            ("to", Buffer::EmailTo),
            ("cc", Buffer::EmailCc),
            ("subject", Buffer::EmailSubject),
            ("date", Buffer::EmailDate),
            ("message-id", Buffer::EmailMessageId),
            ("x-mailer", Buffer::EmailXMailer),
        ];
        for (name, buffer) in BUFFERS {
            if let Some(value) = self.email.field(name) {
                out.buffer(self.transaction, self.direction, *buffer, 0, value);
            }
        }
        let received = self.email.fields.iter();
        let received = received.filter(|(name, _)| name.eq_ignore_ascii_case(b"received"));
        for (number, (_, value)) in received.enumerate() {
            out.buffer(self.transaction, self.direction, Buffer::EmailReceived, number, value);
        }
    }

    fn odd(&self, out: &mut Output<'_>, kind: AnomalyKind) {
        if self.is_mail {
            out.anomaly(kind, Some(self.transaction), Some(self.direction));
        }
    }

    /// Bytes of a part.
    fn content(&mut self, out: &mut Output<'_>, bytes: &[u8]) {
        if self.part.file.is_none() && self.part.text.is_none() || bytes.is_empty() {
            return;
        }
        let was_odd = self.part.is_odd;
        match self.part.encoding {
            Encoding::Plain => self.decoded(out, bytes),
            encoding => {
                let mut content = Vec::with_capacity(bytes.len());
                match encoding {
                    Encoding::Base64 => self.part.base64(bytes, &mut content),
                    _ => self.part.quoted_printable(bytes, &mut content),
                }
                self.decoded(out, &content);
            }
        }
        if self.part.is_odd && !was_odd {
            self.odd(
                out,
                match self.part.encoding {
                    Encoding::QuotedPrintable => AnomalyKind::MimeQuoted,
                    _ => AnomalyKind::MimeBase64,
                },
            );
        }
    }

    fn decoded(&mut self, out: &mut Output<'_>, bytes: &[u8]) {
        if let Some(file) = &mut self.part.file {
            out.write(file, bytes);
        }
        let Some(mut line) = self.part.text.take() else { return };
        for byte in bytes {
            line.push(*byte);
            if *byte == b'\n' || line.len() >= FRAGMENT {
                self.urls(out, &line);
                line.clear();
            }
        }
        self.part.text = Some(line);
    }

    fn urls(&mut self, out: &mut Output<'_>, line: &[u8]) {
        let mut at = 0;
        while let Some(url) = find_url(line, &mut at) {
            if self.email.urls.len() >= out.limits.entries {
                return;
            }
            if !self.email.urls.iter().any(|known| known == url) && self.pays(out, url) {
                let number = self.email.urls.len();
                out.buffer(self.transaction, self.direction, Buffer::EmailUrl, number, url);
                self.email.urls.push(url.to_vec());
                self.tell(out);
            }
        }
    }

    /// Is there room for another text of the mail? If so, it is taken.
    fn pays(&mut self, out: &Output<'_>, text: &[u8]) -> bool {
        let cost = self.cost + cost_of(text);
        let pays = cost <= out.limits.session_bytes / 2;
        if pays {
            self.cost = cost;
        }
        pays
    }

    fn end_of_part(&mut self, out: &mut Output<'_>, state: FileState) {
        if self.place != Place::Body {
            return;
        }
        if self.part.encoding == Encoding::Base64 {
            let mut rest = Vec::new();
            self.part.base64(b"=", &mut rest);
            self.decoded(out, &rest);
        }
        let mut part = std::mem::take(&mut self.part);
        if let Some(line) = part.text.take() {
            self.urls(out, &line);
        }
        if let Some(file) = part.file {
            if !self.is_mail && file.file.size == 0 && !file.file.name.is_empty() {
                out.anomaly(
                    AnomalyKind::HttpMultipartNoData,
                    Some(self.transaction),
                    Some(self.direction),
                );
            }
            out.close(file, state);
        }
    }

    /// Nothing more follows. The last part is whole in a mail without parts; otherwise its boundary did not come.
    pub(crate) fn end(mut self, out: &mut Output<'_>, state: FileState) -> Email {
        let has_rest = !self.line.is_empty();
        if has_rest {
            self.fragment(out);
        }
        let is_cut = !self.boundaries.is_empty() && self.place != Place::Between;
        let state = if is_cut && state == FileState::Closed { FileState::Truncated } else { state };
        if self.place == Place::Header && self.is_top {
            self.end_of_header(out);
        } else if self.place == Place::Body {
            let end = self.part.line_end;
            self.content(out, end);
        }
        self.end_of_part(out, state);
        self.email.is_complete = state == FileState::Closed;
        self.email
    }
}

impl Part {
    fn base64(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for byte in bytes {
            let value = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                b'=' => {
                    let [_, a, b, _] =
                        (self.bits << (6 * (4 - u32::from(self.digits)))).to_be_bytes();
                    match self.digits {
                        2 => out.push(a),
                        3 => out.extend([a, b]),
                        _ => {}
                    }
                    (self.bits, self.digits) = (0, 0);
                    continue;
                }
                b'\r' | b'\n' | b' ' | b'\t' => continue,
                _ => {
                    self.is_odd = true;
                    continue;
                }
            };
            self.bits = self.bits << 6 | u32::from(value);
            self.digits += 1;
            if self.digits == 4 {
                out.extend(&self.bits.to_be_bytes()[1..]);
                (self.bits, self.digits) = (0, 0);
            }
        }
    }

    fn quoted_printable(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for byte in bytes {
            if !self.is_escaped {
                match byte {
                    b'=' => (self.is_escaped, self.digits, self.bits) = (true, 0, 0),
                    byte => out.push(*byte),
                }
                continue;
            }
            match (char::from(*byte).to_digit(16), byte) {
                (Some(digit), _) => {
                    self.bits = self.bits << 4 | digit;
                    self.digits += 1;
                    if self.digits == 2 {
                        out.push(self.bits as u8); // two digits
                        self.is_escaped = false;
                    }
                }
                // A soft end of line.
                (None, b'\r' | b' ' | b'\t') => {}
                (None, b'\n') => self.is_escaped = false,
                (None, byte) => {
                    out.push(*byte);
                    (self.is_escaped, self.is_odd) = (false, true);
                }
            }
        }
    }
}

/// The fields of a header, unfolded.
fn fields(header: &[u8], limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut fields: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for line in header.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line.first() {
            Some(b' ' | b'\t') => {
                if let Some((_, value)) = fields.last_mut() {
                    value.push(b' ');
                    value.extend(line.trim_ascii());
                }
            }
            Some(_) if fields.len() < limit => {
                let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
                let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
                fields.push((name.to_vec(), value.to_vec()));
            }
            _ => {}
        }
    }
    fields
}

/// Whether a line of a header that does not go on with the one before has no colon.
fn has_no_colon(header: &[u8]) -> bool {
    let mut lines = header.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    lines.any(|line| {
        line.first().is_some_and(|first| !matches!(first, b' ' | b'\t')) && !line.contains(&b':')
    })
}

fn encoding(name: &[u8]) -> Encoding {
    match name.to_ascii_lowercase().as_slice() {
        b"base64" => Encoding::Base64,
        b"quoted-printable" => Encoding::QuotedPrintable,
        _ => Encoding::Plain,
    }
}

/// Is the value of a field of this type, whatever its parameters are?
pub(crate) fn is_type(value: &[u8], name: &[u8]) -> bool {
    let end = value.iter().position(|byte| *byte == b';').unwrap_or(value.len());
    value[..end].trim_ascii().eq_ignore_ascii_case(name)
}

/// A parameter of a field: `form-data; name="a"; filename="b c"` (RFC 2045 §5.1), also in numbered parts (RFC 2231 §3) and
/// percent-coded (§4, its charset is left out).
pub(crate) fn parameter(value: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut parts: Vec<(u32, Vec<u8>)> = Vec::new();
    let whole = whole_parameter(value, name, &mut parts);
    if whole.is_some() || parts.is_empty() {
        return whole;
    }
    // In any order; those behind a number that is missing are left out.
    parts.sort_by_key(|(number, _)| *number);
    parts.dedup_by_key(|(number, _)| *number);
    let in_order = (0..).zip(parts).take_while(|(at, (number, _))| at == number);
    Some(in_order.flat_map(|(_, (_, text))| text).collect())
}

/// The parameter if it is in one part; else its parts, each with its number.
fn whole_parameter(value: &[u8], name: &str, parts: &mut Vec<(u32, Vec<u8>)>) -> Option<Vec<u8>> {
    let mut rest = &value[value.iter().position(|byte| *byte == b';')? + 1..];
    loop {
        let equals = rest.iter().position(|byte| *byte == b'=')?;
        let found = rest[..equals].trim_ascii();
        rest = rest[equals + 1..].trim_ascii_start();
        let mut text = Vec::new();
        if let Some(quoted) = rest.strip_prefix(b"\"") {
            let mut at = 0;
            while let Some(byte) = quoted.get(at) {
                match (byte, quoted.get(at + 1)) {
                    (b'"', _) => break,
                    (b'\\', Some(next @ (b'"' | b'\\'))) => {
                        text.push(*next);
                        at += 1;
                    }
                    _ => text.push(*byte),
                }
                at += 1;
            }
            rest = quoted.get(at + 1..).unwrap_or_default();
        } else {
            let end = rest.iter().position(|byte| *byte == b';').unwrap_or(rest.len());
            text.extend(rest[..end].trim_ascii());
            rest = &rest[end..];
        }
        if let Some((start, marks)) = found.split_at_checked(name.len())
            && start.eq_ignore_ascii_case(name.as_bytes())
        {
            let decoded = |text: &[u8], with_charset: bool| {
                let quote = text.iter().rposition(|byte| *byte == b'\'').filter(|_| with_charset);
                crate::http1::uri::decode(&text[quote.map_or(0, |at| at + 1)..])
            };
            match marks {
                b"" => return Some(text),
                b"*" => return Some(decoded(&text, true)),
                [b'*', digits @ .., b'*'] => {
                    parts.extend(number(digits).map(|number| (number, decoded(&text, number == 0))))
                }
                [b'*', digits @ ..] => parts.extend(number(digits).map(|number| (number, text))),
                _ => {}
            }
        }
        rest = &rest[rest.iter().position(|byte| *byte == b';')? + 1..];
    }
}

/// A number of few digits.
fn number(digits: &[u8]) -> Option<u32> {
    let is_short = digits.len() <= 4 && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_short)?.parse().ok()
}

/// The next URL of a line.
fn find_url<'a>(line: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    const SCHEMES: [&[u8]; 3] = [b"http://", b"https://", b"ftp://"];
    while *at < line.len() {
        let rest = &line[*at..];
        let is_url = SCHEMES.iter().any(|scheme| {
            rest.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        });
        if is_url {
            let ends = |byte: &u8| byte.is_ascii_whitespace() || b"<>\"'".contains(byte);
            let end = rest.iter().position(ends).unwrap_or(rest.len());
            *at += end;
            return Some(&rest[..end]);
        }
        *at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters() {
        let get = |value: &str, name| {
            parameter(value.as_bytes(), name).map(|text| String::from_utf8(text).unwrap())
        };
        assert_eq!(
            get("form-data; name=\"a\"; filename=\"b; \\\"c\"", "filename"),
            Some("b; \"c".into())
        );
        assert_eq!(get("multipart/mixed; charset=x ;Boundary=abc", "boundary"), Some("abc".into()));
        assert_eq!(get("attachment; filename*=UTF-8''a%20b", "filename"), Some("a b".into()));
        let parts = [
            ("filename*0=\"par\"; filename*1=\"t2.exe\"", "part2.exe"),
            ("filename*1=b; x=y; FileName*0=a; filename*3=d", "ab"),
            ("filename*0*=us-ascii'en'a%20; filename*1*=b%2e; filename*2=%", "a b.%"),
            ("filename*0=a; filename=whole", "whole"),
        ];
        for (text, expected) in parts {
            let text = format!("attachment; {text}");
            assert_eq!(get(&text, "filename"), Some(expected.into()), "{text}");
        }
        assert_eq!(get("attachment; filename*x=a; filename*=", "filename"), Some(String::new()));
        assert_eq!(get("attachment; filename*1=a", "filename"), Some(String::new()));
        assert_eq!(get("attachment; filename*00000=a", "filename"), None);
        assert_eq!(get("attachment; filename", "filename"), None);
        assert_eq!(get("attachment", "filename"), None);
        assert!(is_type(b"Text/HTML; x=y", b"text/html") && !is_type(b"text/htmlx", b"text/html"));
    }

    #[test]
    fn codings_of_mail() {
        let decode = |text: &str, quoted: bool| {
            let (mut part, mut out) = (Part::default(), Vec::new());
            for byte in text.bytes() {
                match quoted {
                    true => part.quoted_printable(&[byte], &mut out),
                    false => part.base64(&[byte], &mut out),
                }
            }
            String::from_utf8(out).unwrap()
        };
        assert_eq!(decode("Zm9vYmFy", false), "foobar");
        assert_eq!(decode("Zm9v\r\nYmE=", false), "fooba");
        assert_eq!(decode("Zg==Zm8=", false), "ffo");
        assert_eq!(decode("a=3Db=\r\nc", true), "a=bc");
    }

    #[test]
    fn urls_of_a_line() {
        let line = b"see <http://a/b>, HTTPS://c and ftp://d\n";
        let mut at = 0;
        let found: Vec<_> = std::iter::from_fn(|| find_url(line, &mut at)).collect();
        assert_eq!(found, [&b"http://a/b"[..], b"HTTPS://c", b"ftp://d"]);
    }
}
