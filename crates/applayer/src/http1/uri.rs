//! Targets of requests: their parts, and the form that rules look into.

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
    // The dot of the root is left out.
    let name = name.trim_ascii();
    let name = name.strip_suffix(b".").unwrap_or(name);
    (name.to_ascii_lowercase(), port)
}

/// Can it be the name of a server?
pub(crate) fn is_host(name: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    match name {
        [b'[', inner @ .., b']'] => {
            inner.iter().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'))
        }
        _ => {
            (1..=255).contains(&name.len())
                && name.iter().all(is_plain)
                && name.split(|byte| *byte == b'.').all(|label| (1..64).contains(&label.len()))
        }
    }
}

/// Path and query as `http.uri` has them: percent-coding undone once, in the path also backslashes as slashes, slashes
/// in a row as one, and `.` and `..` resolved (RFC 3986 §5.2.4).
pub(crate) fn normal(path: &[u8]) -> Vec<u8> {
    let question = path.iter().position(|byte| *byte == b'?').unwrap_or(path.len());
    let (path, query) = path.split_at(question);
    let decoded = decode(path);
    let mut out: Vec<u8> = Vec::with_capacity(decoded.len() + query.len());
    for byte in decoded {
        let byte = if byte == b'\\' { b'/' } else { byte };
        if byte != b'/' || out.last() != Some(&b'/') {
            out.push(byte);
        }
    }
    let mut out = without_dots(&out);
    out.extend(decode(query));
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
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match (byte, digit(text.get(at + 1)), digit(text.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                out.push((high << 4 | low) as u8); // two digits
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
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
        assert_eq!(host("u:p@a."), ("a".into(), None));
        assert_eq!(host("[2001:db8::1]:80"), ("[2001:db8::1]".into(), Some(80)));
        assert_eq!(host("a:99999"), ("a".into(), None));
        assert!(is_host(b"a.b-c") && is_host(b"[::1]") && is_host(b"10.0.0.1"));
        assert!(!is_host(b"") && !is_host(b"a..b") && !is_host(b"a b") && !is_host(&[b'a'; 64]));
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
        ];
        for (raw, expected) in cases {
            assert_eq!(String::from_utf8(normal(raw.as_bytes())).unwrap(), expected, "{raw}");
        }
    }
}
