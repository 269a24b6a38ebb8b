//! Encoded words (RFC 2047): `=?utf-8?B?YQ==?=`, `=?us-ascii?Q?a=20b?=`. Mail programs read them in names of files, too, though §5 does
//! not have them there. The bytes stay in their charset.

/// The text with its encoded words decoded; blanks between two of them are none (§6.2). A word that cannot be decoded stays.
pub(super) fn decoded(text: Vec<u8>) -> Vec<u8> {
    if !text.windows(2).any(|own| own == b"=?") {
        return text;
    }
    let (mut out, mut rest) = (Vec::new(), &text[..]);
    // Where blanks behind a word begin.
    let mut blanks = None;
    while let Some(first) = rest.first() {
        if let Some((bytes, behind)) = word(rest) {
            out.truncate(blanks.unwrap_or(out.len()));
            out.extend(bytes);
            blanks = Some(out.len());
            rest = behind;
            continue;
        }
        blanks = blanks.filter(|_| first.is_ascii_whitespace());
        out.push(*first);
        rest = &rest[1..];
    }
    out
}

/// The bytes of the word that begins here, and what is behind it.
fn word(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut parts = text.strip_prefix(b"=?")?.splitn(3, |byte| *byte == b'?');
    let (charset, kind, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let is_charset = !charset.is_empty() && charset.iter().all(u8::is_ascii_graphic);
    let end = rest.windows(2).position(|own| own == b"?=").filter(|_| is_charset)?;
    let bytes = match kind {
        b"B" | b"b" => base64(&rest[..end])?,
        b"Q" | b"q" => quoted(&rest[..end]),
        _ => return None,
    };
    Some((bytes, &rest[end + 2..]))
}

fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut word, mut bits) = (Vec::new(), 0_u32, 0);
    for byte in text.iter().filter(|byte| **byte != b'=') {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (word, bits) = (word << 6 | u32::from(value), bits + 6);
        if bits >= 8 {
            bits -= 8;
            out.push((word >> bits) as u8); // the byte that is whole
        }
    }
    Some(out)
}

fn quoted(text: &[u8]) -> Vec<u8> {
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(byte) = text.get(at) {
        at += 1;
        match (byte, digit(text.get(at)), digit(text.get(at + 1))) {
            (b'=', Some(high), Some(low)) => {
                out.push((high << 4 | low) as u8); // two digits
                at += 2;
            }
            (b'_', ..) => out.push(b' '),
            _ => out.push(*byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn words_are_decoded() {
        for (text, expected) in [
            ("a.exe", "a.exe"),
            ("=?utf-8?B?ZXZpbC5leGU=?=", "evil.exe"),
            ("=?utf-8?b?ZXZpbA?= =?us-ascii?Q?l_=2Eexe?=", "evill .exe"),
            ("=?utf-8?q?a?= b =?utf-8?q?c?=", "a b c"),
            ("=?utf-8?X?a?=", "=?utf-8?X?a?="),
            ("=?utf-8?B?*?= =?", "=?utf-8?B?*?= =?"),
            ("=?utf-8?Q?a=4?=", "a=4"),
            ("=?utf-8?Q?a", "=?utf-8?Q?a"),
        ] {
            let found = super::decoded(text.as_bytes().to_vec());
            assert_eq!(String::from_utf8_lossy(&found), expected, "{text}");
        }
    }
}
