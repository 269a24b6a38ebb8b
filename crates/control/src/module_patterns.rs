//! Files of literal patterns, which a module looks for.
//!
//! ```text
//!  # a comment
//!  GET /admin            the bytes of the line
//!  (?i)password=         in capital or small letters
//!  \x7fELF\x02           escapes: \xHH, \n, \r, \t, \\ and \# for a `#` at the beginning
//! ```
//!
//! A pattern has the number of its place among the patterns of the file, from 0.

use std::fmt;

/// Begins a pattern whose letters may be capital or small.
const NOCASE: &[u8] = b"(?i)";

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModulePattern {
    /// Its bytes, at least one.
    pub bytes: Vec<u8>,
    /// Whether capital and small letters are the same.
    pub is_nocase: bool,
    /// Its line in the file, from 1.
    pub line: usize,
}

/// What is wrong with a file of patterns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// Why, in words.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.message)
    }
}

/// Reads a file of patterns.
///
/// # Errors
/// An unknown escape, a pattern without bytes, or no pattern at all.
pub fn read(text: &[u8]) -> Result<Vec<ModulePattern>, Problem> {
    let mut all = Vec::new();
    for (line, bytes) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line + 1;
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        if bytes.is_empty() || bytes[0] == b'#' {
            continue;
        }
        let (rest, is_nocase) = match bytes.strip_prefix(NOCASE) {
            Some(rest) => (rest, true),
            None => (bytes, false),
        };
        let bytes = unescape(rest).map_err(|message| Problem { line, message })?;
        if bytes.is_empty() {
            return Err(Problem { line, message: "a pattern needs at least one byte".into() });
        }
        all.push(ModulePattern { bytes, is_nocase, line });
    }
    if all.is_empty() {
        return Err(Problem { line: 1, message: "the file has no pattern".into() });
    }
    Ok(all)
}

/// The bytes that a line means.
fn unescape(line: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(line.len());
    let mut rest = line.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        bytes.push(match rest.next() {
            Some(b'x') => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => (high << 4 | low) as u8,
                _ => return Err(r"`\x` needs two hexadecimal digits".into()),
            },
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(own @ (b'\\' | b'#')) => own,
            Some(own) => {
                let shown = own.escape_ascii();
                return Err(format!(
                    r"unknown escape `\{shown}`: expected \xHH, \n, \r, \t, \\ or \#"
                ));
            }
            None => return Err(r"`\` at the end of a pattern: write `\\`".into()),
        });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(text: &str) -> Vec<(Vec<u8>, bool, usize)> {
        let all = read(text.as_bytes()).unwrap();
        all.into_iter().map(|own| (own.bytes, own.is_nocase, own.line)).collect()
    }

    #[test]
    fn lines_are_patterns() {
        let text = "# two\nGET /admin \r\n\n(?i)Pass\\x77ord=\n\\#\\\\\\n\\r\\t\\x00\\xFf\n";
        let expected = vec![
            (b"GET /admin ".to_vec(), false, 2),
            (b"Password=".to_vec(), true, 4),
            (b"#\\\n\r\t\0\xff".to_vec(), false, 5),
        ];
        assert_eq!(patterns(text), expected);
    }

    #[test]
    fn mistakes_have_a_line() {
        for (text, line, part) in [
            ("a\n\\x1\n", 2, "hexadecimal"),
            ("\\q\n", 1, r"`\q`"),
            ("a\nb\\", 2, "at the end"),
            ("(?i)\n", 1, "at least one byte"),
            ("# nothing\n\n", 1, "no pattern"),
        ] {
            let problem = read(text.as_bytes()).unwrap_err();
            assert!(problem.line == line && problem.message.contains(part), "{text:?}: {problem}");
        }
    }
}
