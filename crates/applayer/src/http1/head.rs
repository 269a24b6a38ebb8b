//! Heads: their fields, and the buffers that rules look into.

use std::collections::HashMap;

use l7proto::http1::{self, FieldLine, is_blank};

use crate::buffer::Buffer;
use crate::output::Output;
use crate::sink::Direction;

/// Fields that are looked through one by one.
const FEW: usize = 32;

/// Fields with names as sent.
pub(crate) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The fields of a head.
#[derive(Debug, Default)]
pub(crate) struct Headers {
    /// As sent.
    pub(crate) all: Fields,
    /// Those of one name as one, joined by commas, at the place of the first.
    pub(crate) joined: Fields,
    /// What rules look into has those of one name one by one, as of HTTP/2 in Suricata.
    pub(crate) are_separate: bool,
    /// There is a name with a space or control character.
    pub(crate) has_invalid: bool,
    /// There is a line without a colon.
    pub(crate) has_no_colon: bool,
    /// The first line goes on with a field, and there is none.
    pub(crate) is_folded_first: bool,
}

impl Headers {
    pub(crate) fn parse(head: &[u8]) -> Self {
        let mut headers = Self::default();
        for line in http1::lines(head).1 {
            match line {
                FieldLine::Field(name, value) => {
                    let is_name = |byte: &u8| byte.is_ascii_graphic();
                    headers.has_invalid |= name.is_empty() || !name.iter().all(is_name);
                    headers.all.push((name.trim_ascii().to_vec(), value.to_vec()));
                }
                FieldLine::Folded(text) => match headers.all.last_mut() {
                    Some((_, value)) => {
                        value.push(b' ');
                        value.extend(text);
                    }
                    None => headers.is_folded_first = true,
                },
                FieldLine::Other(_) => headers.has_no_colon = true,
            }
        }
        headers.joined()
    }

    /// Of fields without a line of text.
    pub(crate) fn of(all: Fields) -> Self {
        let is_name = |byte: &u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase();
        let is_value = |byte: &u8| !matches!(byte, 0 | b'\r' | b'\n');
        let is_valid = |(name, value): &(Vec<u8>, Vec<u8>)| {
            !name.is_empty() && name.iter().all(is_name) && value.iter().all(is_value)
        };
        let has_invalid = !all.iter().all(is_valid);
        Self { all, has_invalid, ..Self::default() }.joined()
    }

    fn joined(mut self) -> Self {
        let headers = &mut self;
        // Where each name is, once there are so many that looking through all of them would take long.
        let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
        let is_long = headers.all.len() > FEW;
        for (name, value) in &headers.all {
            let place = match is_long {
                true => places.get(&name.to_ascii_lowercase()).copied(),
                false => headers.joined.iter().position(|own| own.0.eq_ignore_ascii_case(name)),
            };
            if let Some((_, joined)) = place.and_then(|place| headers.joined.get_mut(place)) {
                joined.extend(b", ");
                joined.extend(value);
                continue;
            }
            if is_long {
                places.insert(name.to_ascii_lowercase(), headers.joined.len());
            }
            headers.joined.push((name.clone(), value.clone()));
        }
        self
    }

    /// The value of a field, all of its name.
    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        let mut all = self.joined.iter();
        let found = all.find(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, value)| &value[..])
    }

    /// The length of the body, whether it is written as it may be, and whether others differ from it. Lenient as libhtp: of
    /// several lengths the first counts, and of one its first digits; below zero is none.
    pub(crate) fn content_length(&self) -> Length {
        let Some(value) = self.get("content-length") else {
            return Length { bytes: None, is_right: true, is_ambiguous: false };
        };
        let mut numbers = value.split(|byte| *byte == b',').map(|text| {
            let text = text.trim_ascii();
            let start = text.iter().position(u8::is_ascii_digit).unwrap_or(text.len());
            let (before, digits) = text.split_at(start);
            let end = digits.iter().position(|byte| !byte.is_ascii_digit());
            let digits = &digits[..end.unwrap_or(digits.len())];
            let number = std::str::from_utf8(digits).ok().and_then(|own| own.parse::<u64>().ok());
            (number.filter(|_| !before.contains(&b'-')), digits.len() == text.len())
        });
        let (bytes, is_right) = numbers.next().unwrap_or_default();
        let is_ambiguous = numbers.any(|other| other != (bytes, true));
        Length { bytes, is_right: is_right && bytes.is_some(), is_ambiguous }
    }

    /// `filename` of `Content-Disposition`.
    pub(crate) fn file_name(&self) -> Option<Vec<u8>> {
        crate::mime::parameter(self.get("content-disposition")?, "filename")
    }

    /// `Content-Range: bytes 0-99/1000`.
    pub(crate) fn range(&self) -> Option<(u64, u64, Option<u64>)> {
        let value = std::str::from_utf8(self.get("content-range")?).ok()?;
        let (range, size) = value.strip_prefix("bytes")?.trim().split_once('/')?;
        let (first, last) = range.split_once('-')?;
        Some((first.trim().parse().ok()?, last.trim().parse().ok()?, size.trim().parse().ok()))
    }
}

/// The length of a body, as its head has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length {
    pub(crate) bytes: Option<u64>,
    pub(crate) is_right: bool,
    pub(crate) is_ambiguous: bool,
}

/// The first word of a line, and what follows the blanks behind it.
pub(crate) fn word(line: &[u8]) -> (&[u8], &[u8]) {
    let is_text = |byte: &u8| !is_blank(*byte);
    let start = line.iter().position(is_text).unwrap_or(line.len());
    let len = line[start..].iter().position(|byte| is_blank(*byte));
    let (word, rest) = line[start..].split_at(len.unwrap_or(line.len() - start));
    (word, &rest[rest.iter().position(is_text).unwrap_or(rest.len())..])
}

/// The minor version as the first line has it.
pub(crate) fn protocol_of(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii_end();
    let last = line.rsplit(|byte| is_blank(*byte)).next().unwrap_or_default();
    let is_version = last.get(..5).is_some_and(|name| name.eq_ignore_ascii_case(b"http/"));
    if is_version { last } else { &[] }
}

/// Hands on what both sides have: of the first line, the lines behind it, and the fields.
pub(crate) fn buffers(
    out: &mut Output<'_>,
    transaction: u64,
    direction: Direction,
    (line, fields): (&[u8], &[u8]),
    headers: &Headers,
) {
    let mut give =
        |buffer, number, bytes: &[u8]| out.buffer(transaction, direction, buffer, number, bytes);
    let is_request = direction == Direction::ToServer;
    let line_buffer = if is_request { Buffer::HttpRequestLine } else { Buffer::HttpResponseLine };
    give(line_buffer, 0, line);
    let shown = if headers.are_separate { &headers.all } else { &headers.joined };
    let Texts { start, normal, names } = texts(line, shown);
    give(Buffer::HttpStart, 0, &start);
    if headers.all.is_empty() {
        return;
    }
    give(Buffer::HttpHeaderRaw, 0, fields);
    let each = if is_request { Buffer::HttpRequestHeader } else { Buffer::HttpResponseHeader };
    let mut cookies = 0;
    for (number, (name, value)) in shown.iter().enumerate() {
        give(each, number, &[&name[..], b": ", value].concat());
        if is_cookie(name) {
            give(Buffer::HttpCookie, cookies, value);
            cookies += 1;
        }
    }
    if !normal.is_empty() {
        give(Buffer::HttpHeader, 0, &normal);
    }
    give(Buffer::HttpHeaderNames, 0, &names);
    const BOTH: &[(&str, Buffer)] = &[
        ("content-type", Buffer::HttpContentType),
        ("content-length", Buffer::HttpContentLength),
        ("connection", Buffer::HttpConnection),
    ];
    const REQUEST: &[(&str, Buffer)] = &[
        ("user-agent", Buffer::HttpUserAgent),
        ("accept", Buffer::HttpAccept),
        ("accept-encoding", Buffer::HttpAcceptEncoding),
        ("accept-language", Buffer::HttpAcceptLanguage),
        ("referer", Buffer::HttpReferer),
    ];
    const RESPONSE: &[(&str, Buffer)] =
        &[("server", Buffer::HttpServer), ("location", Buffer::HttpLocation)];
    let own = if is_request { REQUEST } else { RESPONSE };
    for (name, buffer) in BOTH.iter().chain(own) {
        if let Some(value) = headers.get(name) {
            give(*buffer, 0, value);
        }
    }
}

/// Hands on the fields behind a body of chunks (RFC 9112 §7.1.2): once more what joins all fields, with them, and each of them.
/// `line`: the first line.
pub(crate) fn trailer(
    out: &mut Output<'_>,
    transaction: u64,
    direction: Direction,
    (line, mut all): (&[u8], Fields),
    text: &[u8],
) {
    let behind = Headers::parse(&[&b"-\r\n"[..], text].concat());
    if behind.all.is_empty() {
        return;
    }
    let before = Headers::of(all.clone()).joined.len();
    all.extend(behind.all);
    let joined = Headers::of(all).joined;
    let Texts { start, normal, names } = texts(line, &joined);
    let mut give =
        |buffer, number, bytes: &[u8]| out.buffer(transaction, direction, buffer, number, bytes);
    give(Buffer::HttpStart, 1, &start);
    give(Buffer::HttpHeaderRaw, 1, text);
    give(Buffer::HttpHeader, 1, &normal);
    give(Buffer::HttpHeaderNames, 1, &names);
    let each = match direction {
        Direction::ToServer => Buffer::HttpRequestHeader,
        Direction::ToClient => Buffer::HttpResponseHeader,
    };
    for (number, (name, value)) in behind.joined.iter().enumerate() {
        give(each, before + number, &[&name[..], b": ", value].concat());
    }
}

fn is_cookie(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"cookie") || name.eq_ignore_ascii_case(b"set-cookie")
}

/// What joins all fields.
struct Texts {
    /// The first line and all fields.
    start: Vec<u8>,
    /// All fields but cookies.
    normal: Vec<u8>,
    names: Vec<u8>,
}

fn texts(line: &[u8], joined: &Fields) -> Texts {
    let (mut start, mut normal, mut names) = (line.to_vec(), Vec::new(), b"\r\n".to_vec());
    start.extend(b"\r\n");
    for (name, value) in joined {
        let text = [&name[..], b": ", value, b"\r\n"].concat();
        start.extend(&text);
        names.extend(name);
        names.extend(b"\r\n");
        if !is_cookie(name) {
            normal.extend(text);
        }
    }
    if !joined.is_empty() {
        start.extend(b"\r\n");
    }
    names.extend(b"\r\n");
    Texts { start, normal, names }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few fields and many are joined alike: by name in any case, at the place of the first.
    #[test]
    fn fields_of_one_name_are_joined() {
        for count in [1, FEW / 4, FEW, 4 * FEW] {
            let mut head = b"GET / HTTP/1.1\r\n".to_vec();
            for number in 0..count {
                let name = if number % 2 == 0 { "X-Name" } else { "x-nAME" };
                head.extend(format!("{name}-{}: {number}\r\n", number % (count / 3 + 1)).bytes());
            }
            head.extend(b"\r\n");
            let headers = Headers::parse(&head);
            let mut expected: Vec<(String, String)> = Vec::new();
            for (name, value) in &headers.all {
                let [name, value] =
                    [name, value].map(|own| String::from_utf8(own.clone()).unwrap());
                match expected.iter_mut().find(|own| own.0.eq_ignore_ascii_case(&name)) {
                    Some(own) => own.1 = format!("{}, {value}", own.1),
                    None => expected.push((name, value)),
                }
            }
            let text = |own: &Vec<u8>| String::from_utf8(own.clone()).unwrap();
            let found: Vec<_> = headers.joined.iter().map(|(a, b)| (text(a), text(b))).collect();
            assert_eq!((headers.all.len(), found), (count, expected));
        }
    }
}
