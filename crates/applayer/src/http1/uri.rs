//! Targets of requests: their parts, and the form that rules look into.

use super::best_fit::best_fit;

/// The parts of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    /// Name and port, of an absolute form or that of `CONNECT`.
    pub(crate) authority: Option<&'a [u8]>,
    /// The path with its query.
    pub(crate) path: &'a [u8],
}

impl<'a> Target<'a> {
    /// Splits a target (RFC 9112 §3.2).
    pub(crate) fn parse(target: &'a [u8], is_connect: bool) -> Self {
        if is_connect {
            return Self { authority: Some(target), path: target };
        }
        let scheme = target.iter().position(|byte| *byte == b':').filter(|at| {
            target[..*at].iter().all(u8::is_ascii_alphanumeric) && target[*at..].starts_with(b"://")
        });
        let Some(scheme) = scheme.filter(|at| *at > 0) else {
            return Self { authority: None, path: target };
        };
        let rest = &target[scheme + 3..];
        let end = rest.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(rest.len());
        Self { authority: Some(&rest[..end]), path: &rest[end..] }
    }
}

/// Name in lower case and port of an authority or of the value of `Host`; user and password are left out.
pub(crate) fn host_port(authority: &[u8]) -> (Vec<u8>, Option<u16>) {
    let user = authority.iter().rposition(|byte| *byte == b'@').map_or(0, |at| at + 1);
    let authority = &authority[user..];
    let bracket = authority.iter().position(|byte| *byte == b']').unwrap_or(0);
    let colon = authority[bracket..].iter().position(|byte| *byte == b':').map(|at| bracket + at);
    let name = &authority[..colon.unwrap_or(authority.len())];
    let port = colon.and_then(|at| std::str::from_utf8(&authority[at + 1..]).ok()?.parse().ok());
    (name.trim_ascii().to_ascii_lowercase(), port)
}

/// The port of an authority or of the value of `Host`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// There is none, or an empty one.
    None,
    Number(u16),
    OutOfRange,
    NoNumber,
}

/// The port of an authority or of the value of `Host`.
pub(crate) fn port(authority: &[u8]) -> Port {
    let user = authority.iter().rposition(|byte| *byte == b'@').map_or(0, |at| at + 1);
    let bracket = authority.iter().rposition(|byte| *byte == b']').unwrap_or(0);
    let rest = &authority[user.max(bracket)..];
    let Some(colon) = rest.iter().position(|byte| *byte == b':') else { return Port::None };
    let text = rest[colon + 1..].trim_ascii();
    if text.is_empty() {
        return Port::None;
    }
    if !text.iter().all(u8::is_ascii_digit) {
        return Port::NoNumber;
    }
    let number = std::str::from_utf8(text).ok().and_then(|own| own.parse::<u16>().ok());
    number.filter(|own| *own != 0).map_or(Port::OutOfRange, Port::Number)
}

/// Whether both are names of one server: the dot of the root may be there or not.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    without_root(one) == without_root(other)
}

fn without_root(name: &[u8]) -> &[u8] {
    name.strip_suffix(b".").unwrap_or(name)
}

/// Can it be the name of a server?
pub(crate) fn is_host(name: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    match without_root(name) {
        [b'[', inner @ .., b']'] => {
            inner.iter().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'))
        }
        name => {
            (1..=255).contains(&name.len())
                && name.iter().all(is_plain)
                && name.split(|byte| *byte == b'.').all(|label| (1..64).contains(&label.len()))
        }
    }
}

/// Path and query as `http.uri` has them, as libhtp's personality IDS does: percent-coding undone once; in the path also
/// `%uHHHH`, backslashes as slashes, slashes in a row as one, then UTF-8 as single bytes, and `.` and `..` resolved
/// (RFC 3986 §5.2.4).
pub(crate) fn normal(path: &[u8]) -> Vec<u8> {
    let question = path.iter().position(|byte| *byte == b'?').unwrap_or(path.len());
    let (path, query) = path.split_at(question);
    let decoded = undo(path, true);
    let mut out: Vec<u8> = Vec::with_capacity(decoded.len() + query.len());
    for byte in decoded {
        let byte = if byte == b'\\' { b'/' } else { byte };
        if byte != b'/' || out.last() != Some(&b'/') {
            out.push(byte);
        }
    }
    let mut out = without_dots(&single_bytes(out));
    out.extend(decode(query));
    out
}

/// The characters of UTF-8 as single bytes, also those in more bytes than they need, which servers have taken for slashes
/// and dots; `?` for a byte that is none; without the beginning of one at the end.
fn single_bytes(text: Vec<u8>) -> Vec<u8> {
    if text.is_ascii() {
        return text;
    }
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&lead) = text.get(at) {
        at += 1;
        let (len, bits) = match lead {
            0..0x80 => (1, lead),
            0xc0..0xe0 => (2, lead & 0x1f),
            0xe0..0xf0 => (3, lead & 0x0f),
            0xf0..=0xf4 => (4, lead & 0x07),
            _ => {
                out.push(b'?');
                continue;
            }
        };
        let mut character = u32::from(bits);
        for place in 1..len {
            let Some(&byte) = text.get(at) else { return out };
            // Neither surrogates nor what is beyond the last plane (RFC 3629 §3).
            let most = match (lead, place) {
                (0xed, 1) => 0x9f,
                (0xf4, 1) => 0x8f,
                _ => 0xbf,
            };
            if !(0x80..=most).contains(&byte) {
                character = u32::MAX;
                break;
            }
            character = character << 6 | u32::from(byte & 0x3f);
            at += 1;
        }
        out.push(best_fit(character));
    }
    out
}

fn without_dots(path: &[u8]) -> Vec<u8> {
    if path.first() != Some(&b'/') {
        return path.to_vec();
    }
    let mut out: Vec<u8> = Vec::with_capacity(path.len());
    let mut segments = path[1..].split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            b"." | b".." => {
                if segment == b".." {
                    let parent = out.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                    out.truncate(parent);
                }
                if is_last {
                    out.push(b'/');
                }
            }
            _ => {
                out.push(b'/');
                out.extend(segment);
            }
        }
    }
    out
}

/// Undoes percent-coding once; what is none stays.
pub(crate) fn decode(text: &[u8]) -> Vec<u8> {
    undo(text, false)
}

/// Undoes percent-coding once, perhaps also `%uHHHH`.
fn undo(text: &[u8], with_u: bool) -> Vec<u8> {
    // Digits at a place.
    let number = |at: usize, len: usize| -> Option<u32> {
        let digits = text.get(at..at + len)?.iter();
        digits.copied().try_fold(0, |sum, byte| Some(sum << 4 | char::from(byte).to_digit(16)?))
    };
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let (byte, len) = match (byte, text.get(at + 1)) {
            (b'%', Some(b'u' | b'U')) if with_u => {
                number(at + 2, 4).map_or((byte, 1), |character| (best_fit(character), 6))
            }
            // Two digits.
            (b'%', Some(_)) => number(at + 1, 2).map_or((byte, 1), |own| (own as u8, 3)),
            _ => (byte, 1),
        };
        out.push(byte);
        at += len;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let parse = |target: &'static str| {
            let target = Target::parse(target.as_bytes(), false);
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            (target.authority.map(text), text(target.path))
        };
        assert_eq!(parse("/a?b://c"), (None, "/a?b://c".into()));
        assert_eq!(parse("http://h:80/a"), (Some("h:80".into()), "/a".into()));
        assert_eq!(parse("http://h"), (Some("h".into()), String::new()));
        assert_eq!(parse("*"), (None, "*".into()));
        assert_eq!(parse("://x"), (None, "://x".into()));
        assert_eq!(Target::parse(b"h:443", true).authority, Some(b"h:443".as_slice()));
    }

    #[test]
    fn hosts() {
        let host = |text: &str| {
            let (name, port) = host_port(text.as_bytes());
            (String::from_utf8(name).unwrap(), port)
        };
        assert_eq!(host("Example.COM:8080"), ("example.com".into(), Some(8080)));
        assert_eq!(host("u:p@A."), ("a.".into(), None));
        assert_eq!(host("[2001:db8::1]:80"), ("[2001:db8::1]".into(), Some(80)));
        assert_eq!(host("a:99999"), ("a".into(), None));
        for (text, expected) in [
            ("a", Port::None),
            ("a:", Port::None),
            ("a:80", Port::Number(80)),
            ("u:p@a:80", Port::Number(80)),
            ("[2001:db8::1]", Port::None),
            ("[2001:db8::1]:80", Port::Number(80)),
            ("a:0", Port::OutOfRange),
            ("a:65536", Port::OutOfRange),
            ("a:99999999999999999999", Port::OutOfRange),
            ("a:8x", Port::NoNumber),
        ] {
            assert_eq!(port(text.as_bytes()), expected, "{text}");
        }
        assert!(is_host(b"a.b-c") && is_host(b"[::1]") && is_host(b"10.0.0.1"));
        assert!(is_host(b"a.b.") && is_same(b"a.b.", b"a.b") && !is_same(b"a.b", b"a.c"));
        assert!(
            !is_host(b"")
                && !is_host(b"a..")
                && !is_host(b"a..b")
                && !is_host(b"a b")
                && !is_host(&[b'a'; 64])
        );
    }

    #[test]
    fn normal_forms() {
        let cases = [
            ("/a%2fb?c%2Fd", "/a/b?c/d"),
            ("/a%252fb", "/a%2fb"),
            ("/../../images.gif", "/images.gif"),
            ("/a/./b/../c//d/", "/a/c/d/"),
            ("/a/b/..", "/a/"),
            ("/a\\b", "/a/b"),
            ("/%zz%4", "/%zz%4"),
            ("/a?x=../y//z", "/a?x=../y//z"),
            ("*", "*"),
            ("", ""),
            // The rest is what Suricata 7.0.10 gives.
            ("/%u0065tc/passwd", "/etc/passwd"),
            ("/%U0065tc", "/etc"),
            ("/%uff0fetc/%uff41%uff21", "/etc/aA"),
            ("/%u2215etc", "/etc"),
            ("/a%2e%2e%u002fb", "/a../b"),
            ("/%u002e%u002e/a", "/a"),
            ("/%u0025u0041", "/%u0041"),
            ("/%u00zz%u006%u%uzzzz", "/%u00zz%u006%u%uzzzz"),
            ("/%u4e00", "/?"),
            ("/%u00e9", "/"),
            ("/..%c0%af..%c0%afetc/passwd", "/etc/passwd"),
            ("/%c0%ae%c0%ae/x", "/x"),
            ("/a%e0%80%afb%f0%80%80%afc", "/a/b/c"),
            ("/%5c%5cx%c1%9cy", "/x\\y"),
            ("/%c1%81%e0%81%81", "/AA"),
            ("/%c4%80%e2%88%95", "/A/"),
            ("/%e4%b8%80", "/?"),
            ("/%c0", "/"),
            ("/%c0%2f", "/?/"),
            ("/%c0%C1", "/?"),
            ("/%ed%a0%80", "/???"),
            ("/%f8%80%80%80%af", "/?????"),
            ("/%e9%c0%af", "/?/"),
            ("/a?%u0065=%uff41", "/a?%u0065=%uff41"),
        ];
        for (raw, expected) in cases {
            assert_eq!(String::from_utf8(normal(raw.as_bytes())).unwrap(), expected, "{raw}");
        }
        assert_eq!(normal(b"/\xa0x%c3%a9%c3%a8%ff%c2%a0"), b"/?x\xe9\xe8?\xa0");
        assert_eq!(normal(b"/a?%e9%c0%af"), b"/a?\xe9\xc0\xaf");
    }
}
