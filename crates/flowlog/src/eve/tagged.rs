//! Packets as they were, for rules that tag what follows their alerts.

use super::{Eve, Origin};

/// What a packet begins with, by the numbers that libpcap has for link layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The header of Ethernet.
    Ethernet = 1,
    /// That of IP, as in a tunnel.
    Raw = 12,
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

impl Eve {
    /// Appends the line of event type `packet`.
    pub fn packet(&self, origin: &Origin<'_>, link: Link, bytes: &[u8], out: &mut Vec<u8>) {
        let mut line = self.begin("packet", origin, out);
        let value = line.value("packet");
        value.push(b'"');
        base64(bytes, value);
        value.push(b'"');
        let mut info = line.object("packet_info");
        info.number("linktype", link as u8);
        info.end();
        line.end();
        out.push(b'\n');
    }
}

/// RFC 4648 §4, with padding.
fn base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let digit = |shift: u32| DIGITS[(bits >> shift) as usize & 63];
        let has = |at: usize, shift: u32| if group.len() > at { digit(shift) } else { b'=' };
        out.extend([digit(18), digit(12), has(1, 6), has(2, 0)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 4648 §10, and the last digits.
    #[test]
    fn base64_of_vectors() {
        let of = |bytes: &[u8]| {
            let mut out = Vec::new();
            base64(bytes, &mut out);
            String::from_utf8(out).unwrap()
        };
        let all = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (len, text) in all.into_iter().enumerate() {
            assert_eq!(of(&b"foobar"[..len]), text);
        }
        assert_eq!(of(&[0xfb, 0xff, 0xbf]), "+/+/");
    }
}
