//! A line, read from its begin to its end.

use super::{ProblemKind, Problems};

/// What is left of a line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line<'a>(&'a [u8]);

impl<'a> Line<'a> {
    pub(crate) fn new(line: &'a [u8]) -> Self {
        Self(line)
    }

    /// All that is left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn skip_blanks(&mut self) {
        let blanks = self.0.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.0 = &self.0[blanks..];
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a word has ended here.
    pub(crate) fn is_at_end(&self) -> bool {
        self.0.first().is_none_or(u8::is_ascii_whitespace)
    }

    /// Takes a character if it is the next one.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        match self.0.split_first() {
            Some((first, rest)) if *first == byte => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    /// Takes a decimal number; `None`, with nothing taken, if there is none or it exceeds 2^64.
    pub(crate) fn number(&mut self) -> Option<u64> {
        let digits = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (text, rest) = self.0.split_at(digits);
        let value = text.iter().try_fold(0_u64, |value, digit| {
            value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        });
        if digits > 0 && value.is_some() {
            self.0 = rest;
            return value;
        }
        None
    }

    /// Takes a number that is hexadecimal after `0x`, else decimal.
    pub(crate) fn any_number(&mut self) -> Option<u64> {
        let rest = match self.0 {
            [b'0', b'x' | b'X', rest @ ..] => rest,
            _ => return self.number(),
        };
        let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if digits == 0 || digits > 16 {
            return None;
        }
        let (text, rest) = rest.split_at(digits);
        self.0 = rest;
        let digit = |byte: &u8| u64::from(char::from(*byte).to_digit(16).unwrap_or_default());
        Some(text.iter().fold(0, |value, byte| value << 4 | digit(byte)))
    }

    /// The next word, for messages.
    pub(crate) fn quote(&self) -> String {
        let end = self.0.iter().position(u8::is_ascii_whitespace).unwrap_or(self.0.len());
        quote(&self.0[..end])
    }

    /// What was expected and is not there.
    pub(crate) fn expected(&self, expected: &'static str) -> ProblemKind {
        let found = if self.is_empty() { "the end of the line".to_owned() } else { self.quote() };
        ProblemKind::Expected { expected, found }
    }
}

/// At most 40 characters of what was found; those that a terminal would not show as they are, as `?`.
pub(crate) fn quote(bytes: &[u8]) -> String {
    const MOST: usize = 40;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MOST)]);
    let shown = |c: char| if c.is_control() || c == char::REPLACEMENT_CHARACTER { '?' } else { c };
    let mut quoted: String = text.chars().take(MOST).map(shown).collect();
    if text.chars().count() > MOST {
        quoted.push('…');
    }
    quoted
}

/// What files begin with that are not text, and what they are.
const KNOWN: &[(&[u8], &str)] = &[
    (&[0x1f, 0x8b], "a file compressed with gzip twice"),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "a file compressed with xz twice"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "a file compressed with zstd twice"),
    (b"BZh", "a file compressed with bzip2: decompress it, or use gzip, xz or zstd"),
    (b"PK\x03\x04", "a zip archive: unpack it"),
    (b"\x7fELF", "a program"),
    (&[0xd4, 0xc3, 0xb2, 0xa1], "a capture (pcap)"),
    (&[0xa1, 0xb2, 0xc3, 0xd4], "a capture (pcap)"),
    (&[0x0a, 0x0d, 0x0d, 0x0a], "a capture (pcapng)"),
    (&[0xff, 0xfe], "text in UTF-16: convert it to UTF-8"),
    (&[0xfe, 0xff], "text in UTF-16: convert it to UTF-8"),
];

/// Bytes at the beginning of a file that determine its type.
const JUDGED: usize = 4096;

/// What a file is that is not text: of a known kind, or with bytes that no text has. Bytes beyond ASCII do no harm.
fn binary(bytes: &[u8]) -> Option<ProblemKind> {
    let known = KNOWN.iter().find(|(magic, _)| bytes.starts_with(magic));
    let is_odd = |byte: &u8| matches!(byte, 0..=8 | 14..=31 | 127) && ![0x1a, 0x1b].contains(byte);
    let head = &bytes[..bytes.len().min(JUDGED)];
    let found = match (known, head.iter().position(is_odd)) {
        (Some((_, what)), _) => (*what).to_owned(),
        (None, Some(at)) => format!("a binary file: byte {at} is {:#04x}", bytes[at]),
        (None, None) => return None,
    };
    Some(ProblemKind::Binary { found })
}

/// Gives every line that holds something to `read`, and collects what is wrong.
pub(crate) fn each_line(
    bytes: &[u8],
    mut read: impl FnMut(Line<'_>) -> Result<(), ProblemKind>,
) -> Result<(), Problems> {
    let mut problems = Problems::default();
    if let Some(kind) = binary(bytes) {
        problems.add(0, kind);
        return Err(problems);
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes); // byte order mark
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let mut line = Line::new(line);
        line.skip_blanks();
        if line.is_empty() || line.0[0] == b'#' {
            continue;
        }
        if let Err(kind) = read(line) {
            problems.add(number, kind);
        }
    }
    if problems.count > 0 { Err(problems) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(bytes: &[u8]) -> String {
        let bad = |_: Line<'_>| Err(ProblemKind::At { found: "x".into() });
        each_line(bytes, bad).unwrap_err().to_string()
    }

    #[test]
    fn a_file_that_is_not_text_is_reported_without_its_bytes() {
        for (bytes, wanted) in [
            (&b"\xd4\xc3\xb2\xa1\x02\0\x04\0"[..], "expected text, found a capture (pcap)"),
            (b"\x28\xb5\x2f\xfd\x04", "expected text, found a file compressed with zstd"),
            (b"\xff\xfe@\x001\x000\0", "expected text, found text in UTF-16: convert it to UTF-8"),
            (b"@10.0.0.0/8 \x07\n", "expected text, found a binary file: byte 12 is 0x07"),
            (b"# na\xefve, as Latin-1 has it\n1\n\x1a", "line 2: expected `@`"),
        ] {
            assert!(error(bytes).starts_with(wanted), "{}", error(bytes));
        }
        assert!(each_line(b"\xef\xbb\xbf# comment\n", |_| Ok(())).is_ok());
    }

    #[test]
    fn quotes_hold_nothing_that_a_terminal_would_obey() {
        assert_eq!(quote(b"a\x1b[31m\xff\xfeb"), "a?[31m??b");
        assert_eq!(quote("é".repeat(41).as_bytes()), format!("{}…", "é".repeat(40)));
    }
}
