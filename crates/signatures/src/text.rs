//! Lines of rule files: continuation, comments, disabled rules, places.
//!
//! A logical line is one or more lines of the file, each but the last ending in `\`. [`Joined`] keeps where each began, so
//! that an offset in the logical line has a line and a column again.

use std::io::{self, BufRead, Read};

/// Longest rule in bytes, continuations included. Longer ones are a problem; they are passed over without being kept.
pub const RULE_BYTES_MAX: usize = 64 << 10;

/// Words that begin a rule; those that no engine knows today are refused by the parser.
pub(crate) const ACTION_WORDS: &[&str] = &[
    "alert",
    "drop",
    "reject",
    "rejectsrc",
    "rejectdst",
    "rejectboth",
    "pass",
    "log",
    "sdrop",
    "config",
    "activate",
    "dynamic",
];

/// A logical line.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    pub(crate) bytes: Vec<u8>,
    /// Offset in `bytes`, line, bytes of that line before.
    starts: Vec<(usize, u64, usize)>,
}

impl Joined {
    /// Line and column of an offset.
    pub(crate) fn place(&self, at: usize) -> (u64, u64) {
        let index = self.starts.partition_point(|(start, ..)| *start <= at).saturating_sub(1);
        let Some((start, line, before)) = self.starts.get(index) else { return (1, 1) };
        (*line, (at.saturating_sub(*start) + before + 1) as u64)
    }

    /// The first logical line of a text of its own, and the first line behind it that is not empty.
    pub(crate) fn from_text(text: &[u8]) -> (Self, Option<u64>) {
        let mut joined = Self::default();
        let mut goes_on = true;
        for (number, line) in text.split(|b| *b == b'\n').enumerate() {
            let number = number as u64 + 1;
            match goes_on {
                true => goes_on = joined.push(number, line.strip_suffix(b"\r").unwrap_or(line)),
                false if line.trim_ascii().is_empty() => {}
                false => return (joined, Some(number)),
            }
        }
        (joined, None)
    }

    /// Appends a line without its end; does the next one continue it?
    fn push(&mut self, line: u64, text: &[u8]) -> bool {
        let end = text.trim_ascii_end();
        let (text, goes_on) = match end.strip_suffix(b"\\") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        self.starts.push((self.bytes.len(), line, 0));
        self.bytes.extend_from_slice(text);
        goes_on
    }
}

/// What a logical line is.
#[derive(Debug)]
pub(crate) enum Entry {
    Rule(Joined),
    /// A rule behind `#`.
    Disabled,
    /// Longer than [`RULE_BYTES_MAX`]; the line where it begins.
    TooLong(u64),
}

/// Reads logical lines one by one.
pub(crate) struct Lines<R> {
    reader: R,
    number: u64,
    buffer: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader, number: 0, buffer: Vec::new() }
    }

    /// The next rule, disabled or not; comments and empty lines are passed over.
    pub(crate) fn next_entry(&mut self) -> io::Result<Option<Entry>> {
        loop {
            let Some(whole) = self.read_line()? else { return Ok(None) };
            let start = self.number;
            let text = self.buffer.trim_ascii_start();
            if text.is_empty() && whole {
                continue;
            }
            if let Some(comment) = text.strip_prefix(b"#") {
                let comment = comment.trim_ascii_start();
                let comment = comment
                    .iter()
                    .position(|b| *b != b'#')
                    .map_or(&[][..], |at| comment[at..].trim_ascii_start());
                if !is_rule(comment) {
                    continue;
                }
                while whole && self.goes_on() {
                    if self.read_line()?.is_none() {
                        break;
                    }
                }
                return Ok(Some(Entry::Disabled));
            }
            let mut joined = Joined::default();
            let mut fits = whole;
            loop {
                let goes_on = if fits {
                    let goes_on = joined.push(self.number, &self.buffer);
                    fits = joined.bytes.len() <= RULE_BYTES_MAX;
                    goes_on
                } else {
                    self.goes_on()
                };
                match goes_on {
                    true => match self.read_line()? {
                        Some(whole) => fits &= whole,
                        None => break,
                    },
                    false => break,
                }
            }
            return Ok(Some(match fits {
                true => Entry::Rule(joined),
                false => Entry::TooLong(start),
            }));
        }
    }

    fn goes_on(&self) -> bool {
        self.buffer.trim_ascii_end().ends_with(b"\\")
    }

    /// A line without its end into the buffer; false where it is longer than a rule may be, and then the buffer has only
    /// its beginning and its last byte. None at the end.
    fn read_line(&mut self) -> io::Result<Option<bool>> {
        self.buffer.clear();
        let limit = RULE_BYTES_MAX as u64 + 2;
        let read = (&mut self.reader).take(limit).read_until(b'\n', &mut self.buffer)?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        let mut whole = true;
        if !self.buffer.ends_with(b"\n") && read as u64 == limit {
            whole = false;
            let mut last = *self.buffer.last().unwrap_or(&b' ');
            loop {
                let piece = self.reader.fill_buf()?;
                let end = piece.iter().position(|b| *b == b'\n');
                let taken = &piece[..end.unwrap_or(piece.len())];
                let solid = taken.iter().rev().find(|b| !b.is_ascii_whitespace());
                last = solid.copied().unwrap_or(last);
                let (used, done) = (end.map_or(piece.len(), |end| end + 1), piece.is_empty());
                self.reader.consume(used);
                if end.is_some() || done {
                    break;
                }
            }
            self.buffer.truncate(256);
            self.buffer.push(last);
        }
        if self.buffer.ends_with(b"\n") {
            self.buffer.pop();
        }
        if self.buffer.ends_with(b"\r") {
            self.buffer.pop();
        }
        if self.number == 1 && self.buffer.starts_with(b"\xef\xbb\xbf") {
            self.buffer.drain(..3);
        }
        Ok(Some(whole))
    }
}

/// Does a comment's text read like a rule: an action, more words, a parenthesis?
fn is_rule(comment: &[u8]) -> bool {
    let mut words = comment.split(|b| b.is_ascii_whitespace()).filter(|w| !w.is_empty());
    let action = words.next().and_then(|w| std::str::from_utf8(w).ok());
    // `config` is in the list for messages; no rule begins with it.
    let known = action.is_some_and(|a| a != "config" && ACTION_WORDS.contains(&a));
    let protocol = words.next().and_then(|w| std::str::from_utf8(w).ok());
    known
        && protocol.is_some_and(|p| crate::Protocol::from_name(p).is_some())
        && (comment.contains(&b'(') || comment.trim_ascii_end().ends_with(b"\\"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &[u8]) -> Vec<Entry> {
        // A reader of three bytes at a time: lines over every boundary.
        let mut lines = Lines::new(io::BufReader::with_capacity(3, text));
        std::iter::from_fn(|| lines.next_entry().unwrap()).collect()
    }

    #[test]
    fn kinds_of_lines() {
        let text = b"\xef\xbb\xbf# a comment\r\n\r\n   \nalert tcp \\\r\n  any\n#alert tcp any any -> any any (sid:1;)\n\
            ## drop udp a \\\n b (sid:2;)\n# alert is a word (really)\n# C:\\\nlast";
        let entries = entries(text);
        assert_eq!(entries.len(), 4);
        let Entry::Rule(first) = &entries[0] else { panic!("{entries:?}") };
        assert_eq!(first.bytes, b"alert tcp   any");
        assert_eq!((first.place(0), first.place(10), first.place(12)), ((4, 1), (5, 1), (5, 3)));
        assert!(matches!(entries[1..3], [Entry::Disabled, Entry::Disabled]));
        let Entry::Rule(last) = &entries[3] else { panic!("{entries:?}") };
        assert_eq!((last.bytes.as_slice(), last.place(0)), (&b"last"[..], (11, 1)));
    }

    #[test]
    fn long_lines_are_passed_over() {
        let mut text = vec![b'a'; RULE_BYTES_MAX];
        text.push(b'\n');
        text.extend(vec![b'b'; RULE_BYTES_MAX + 1]);
        text.extend(b"  \\\nof the long one\n");
        text.extend([vec![b'c'; RULE_BYTES_MAX / 2], b"\\\n".to_vec()].concat().repeat(5));
        text.extend(b"\nd\n");
        text.extend(vec![b'e'; 3 * RULE_BYTES_MAX]);
        let entries = entries(&text);
        assert!(matches!(&entries[0], Entry::Rule(line) if line.bytes.len() == RULE_BYTES_MAX));
        assert!(matches!(entries[1], Entry::TooLong(2)));
        assert!(matches!(entries[2], Entry::TooLong(4)));
        assert!(matches!(&entries[3], Entry::Rule(line) if line.bytes == b"d"));
        assert!(matches!(entries[4], Entry::TooLong(11)), "{:?}", entries[4]);
        assert_eq!(entries.len(), 5);
    }
}
