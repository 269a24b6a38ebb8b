//! A JSON object, written field by field to the end of a buffer (RFC 8259): no value is built, and nothing is allocated
//! apart from the buffer.
//!
//! A function of its arguments.

use std::fmt::Display;
use std::io::Write;
use std::net::IpAddr;

/// An object that is being written; [`Object::end`] closes it.
pub struct Object<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

impl<'a> Object<'a> {
    /// Begins one at the end of a buffer.
    pub fn begin(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_empty: true }
    }

    /// Closes it.
    pub fn end(self) {
        self.out.push(b'}');
    }

    /// The buffer, at the place of a value. Names are constants of letters, digits and `_`.
    pub fn value(&mut self, name: &'static str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.is_empty) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// An object in it.
    pub fn object(&mut self, name: &'static str) -> Object<'_> {
        Object::begin(self.value(name))
    }

    /// A number.
    pub fn number(&mut self, name: &'static str, value: impl Into<u64>) {
        number(value.into(), self.value(name));
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, name: &'static str, value: bool) {
        self.value(name).extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// A string of anything.
    pub fn string(&mut self, name: &'static str, value: &str) {
        string(value, self.value(name));
    }

    /// A string of bytes; see [`bytes()`].
    pub fn bytes(&mut self, name: &'static str, value: &[u8]) {
        bytes(value, self.value(name));
    }

    /// An array of strings of bytes.
    pub fn list<'b>(&mut self, name: &'static str, values: impl IntoIterator<Item = &'b [u8]>) {
        let out = self.value(name);
        out.push(b'[');
        for (number, value) in values.into_iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            bytes(value, out);
        }
        out.push(b']');
    }

    /// A string whose name is not known before.
    pub fn named(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.is_empty) {
            self.out.push(b',');
        }
        string(name, self.out);
        self.out.push(b':');
        self.out
    }

    /// An address, as its `Display` has it.
    pub fn address(&mut self, name: &'static str, value: IpAddr) {
        let out = self.value(name);
        out.push(b'"');
        match value {
            IpAddr::V4(own) => {
                for (at, byte) in own.octets().into_iter().enumerate() {
                    if at > 0 {
                        out.push(b'.');
                    }
                    number(byte.into(), out);
                }
            }
            IpAddr::V6(own) => {
                // A vector takes whatever is written to it.
                let _ = write!(out, "{own}");
            }
        }
        out.push(b'"');
    }

    /// A string of what needs no escape: numbers.
    pub fn plain(&mut self, name: &'static str, value: impl Display) {
        let out = self.value(name);
        out.push(b'"');
        // A vector takes whatever is written to it.
        let _ = write!(out, "{value}");
        out.push(b'"');
    }
}

/// Appends a decimal number.
pub fn number(value: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut rest = value;
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends a string: quotation marks, backslashes and control characters are escaped, so a line stays a line.
pub fn string(value: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    escaped(value, out);
    out.push(b'"');
}

fn escaped(value: &str, out: &mut Vec<u8>) {
    let mut rest = value.as_bytes();
    // What needs no escape goes in one piece; it is nearly always all.
    while let Some(at) = rest.iter().position(|byte| is_escaped(*byte)) {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            byte => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.extend([HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

const fn is_escaped(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | 0..0x20 | 0x7f)
}

/// Appends a string of bytes: where they are no UTF-8, each that is no ASCII is written `\\xhh`, as in Suricata.
pub fn bytes(value: &[u8], out: &mut Vec<u8>) {
    if let Ok(text) = std::str::from_utf8(value) {
        return string(text, out);
    }
    out.push(b'"');
    for chunk in value.chunk_by(|one, other| one.is_ascii() == other.is_ascii()) {
        match std::str::from_utf8(chunk) {
            Ok(text) if text.is_ascii() => escaped(text, out),
            _ => {
                for byte in chunk {
                    let _ = write!(out, "\\\\x{byte:02x}");
                }
            }
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: u64) -> String {
        let mut out = Vec::new();
        number(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers() {
        for value in [0, 9, 10, 1_234_567_890, u64::MAX] {
            assert_eq!(written(value), value.to_string());
        }
    }

    #[test]
    fn addresses() {
        for text in ["0.0.0.0", "255.10.9.100", "::", "2001:db8::1", "::ffff:1.2.3.4"] {
            let mut out = Vec::new();
            Object::begin(&mut out).address("a", text.parse().unwrap());
            assert_eq!(out, format!("{{\"a\":\"{text}\"").into_bytes());
        }
    }

    /// Byte by byte, as pieces are not.
    #[test]
    fn escapes_stand_where_the_bytes_do() {
        for text in ["", "plain", "\"", "a\"b\\\u{1}\u{7f}c\n\r\t", "\tend\u{1f}", "\u{e9}\n"] {
            let (mut whole, mut single) = (Vec::new(), Vec::new());
            escaped(text, &mut whole);
            text.chars().for_each(|c| escaped(c.encode_utf8(&mut [0; 4]), &mut single));
            assert_eq!(whole, single, "{text:?}");
        }
    }

    #[test]
    fn strings_come_back() {
        let all: String =
            (0..0x250).filter_map(char::from_u32).chain("😀\u{2028}".chars()).collect();
        let mut out = Vec::new();
        string(&all, &mut out);
        assert!(out.iter().all(|byte| *byte >= 0x20 && *byte != 0x7f));
        assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), all);
    }

    #[test]
    fn bytes_that_are_no_text() {
        let mut out = Vec::new();
        bytes(b"a\xff\"\xc3\xa9", &mut out);
        assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), "a\\xff\"\\xc3\\xa9");
        out.clear();
        bytes(b"\xc3\xa9\"", &mut out);
        assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), "\u{e9}\"");
    }
}
