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

    /// Takes a decimal number; `None` and nothing taken where none stands or one beyond 2^64.
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

/// At most 40 characters of what was found.
fn quote(bytes: &[u8]) -> String {
    const MOST: usize = 40;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MOST)]);
    let mut quoted: String = text.chars().take(MOST).collect();
    if text.chars().count() > MOST {
        quoted.push('…');
    }
    quoted
}

/// Gives every line that holds something to `read`, and collects what is wrong.
pub(crate) fn each_line(
    bytes: &[u8],
    mut read: impl FnMut(Line<'_>) -> Result<(), ProblemKind>,
) -> Result<(), Problems> {
    let mut problems = Problems::default();
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
