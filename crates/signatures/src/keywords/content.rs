//! Contents, their modifiers, regular expressions, sticky buffers, transforms.

use super::arg::{Arg, Part};
use crate::parse::Builder;
use crate::problem::Fault;
use crate::{
    Base64Mode, Buffer, Capture, CaptureScope, Content, FastPattern, Pcre, Transform, Value,
};

/// Places in a buffer, as Suricata bounds them.
const PLACE_MAX: i64 = 65_535;
const DISTANCE_MAX: i64 = 1 << 20;

pub(super) fn apply(builder: &mut Builder, name: &str, arg: &Arg<'_>) -> Result<bool, Fault> {
    match name {
        "content" => {
            let content = content(arg)?;
            builder.content(content, None)?;
        }
        "uricontent" => {
            let content = content(arg)?;
            builder.content(content, Some(Buffer::HttpUri))?;
        }
        "nocase" => flag(builder, arg, |c| &mut c.nocase)?,
        "rawbytes" => flag(builder, arg, |c| &mut c.rawbytes)?,
        "startswith" => flag(builder, arg, |c| &mut c.startswith)?,
        "endswith" => flag(builder, arg, |c| &mut c.endswith)?,
        "offset" => place(builder, arg, 0, PLACE_MAX, |c| &mut c.offset)?,
        "depth" => place(builder, arg, 1, PLACE_MAX, |c| &mut c.depth)?,
        "distance" => place(builder, arg, -DISTANCE_MAX, DISTANCE_MAX, |c| &mut c.distance)?,
        "within" => place(builder, arg, 1, DISTANCE_MAX, |c| &mut c.within)?,
        "fast_pattern" => {
            let fast_pattern = fast_pattern(arg)?;
            builder.amend(|content| match content.fast_pattern.replace(fast_pattern) {
                None => Ok(()),
                Some(_) => Err("the content has this option already".into()),
            })?;
        }
        "pcre" => {
            let (pcre, buffer) = pcre(arg)?;
            builder.pcre(pcre, buffer)?;
        }
        _ => {
            if let Some(transform) = transform(name, arg)? {
                builder.transform(transform)?;
            } else if let Some(buffer) = Buffer::from_modifier(name) {
                arg.none()?;
                builder.modifier(buffer)?;
            } else if let Some(buffer) = Buffer::from_sticky(name) {
                arg.none()?;
                builder.select(buffer)?;
            } else {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn flag(
    builder: &mut Builder,
    arg: &Arg<'_>,
    which: fn(&mut Content) -> &mut bool,
) -> Result<(), Fault> {
    arg.none()?;
    builder.amend(|content| match std::mem::replace(which(content), true) {
        false => Ok(()),
        true => Err("the content has this option already".into()),
    })
}

fn place(
    builder: &mut Builder,
    arg: &Arg<'_>,
    low: i64,
    high: i64,
    which: fn(&mut Content) -> &mut Option<Value>,
) -> Result<(), Fault> {
    let value = Part { at: arg.at, text: arg.plain()? }.value(builder, low, high)?;
    builder.amend(|content| match which(content).replace(value) {
        None => Ok(()),
        Some(_) => Err("the content has this option already".into()),
    })
}

fn content(arg: &Arg<'_>) -> Result<Content, Fault> {
    let value = arg.unquoted()?;
    if !value.quoted {
        return Err(Fault::new(value.at, "a content is written in `\"`"));
    }
    let bytes = content_bytes(value.bytes, value.at)?;
    Ok(Content { negated: value.negated, bytes, ..Content::default() })
}

/// Bytes of a content: `|68 65|` in hexadecimal, `\` before `\`, `"`, `;` and `:`.
fn content_bytes(text: &[u8], base: usize) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut high: Option<u8> = None;
    let mut hex = None;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let place = base + at;
        let fault = |reason: String| Err(Fault::new(place, reason));
        match (hex, byte) {
            (Some(_), b'|') if high.is_some() => {
                return fault("an odd number of hexadecimal digits".into());
            }
            (Some(_), b'|') => hex = None,
            (None, b'|') => hex = Some(at),
            (Some(_), b' ') => {}
            (Some(_), digit) => {
                let Some(value) = char::from(digit).to_digit(16) else {
                    let digit = digit.escape_ascii();
                    return fault(format!("`{digit}` between `|` is not a hexadecimal digit"));
                };
                match high.take() {
                    Some(high) => bytes.push(high << 4 | value as u8),
                    None => high = Some(value as u8),
                }
            }
            (None, b'\\') => {
                at += 1;
                match text.get(at) {
                    Some(byte @ (b'\\' | b'"' | b';' | b':')) => bytes.push(*byte),
                    Some(byte) => {
                        let byte = byte.escape_ascii();
                        return fault(format!(
                            "`\\{byte}`: only `\\`, `\"`, `;` and `:` are escaped"
                        ));
                    }
                    None => return fault("a backslash before nothing".into()),
                }
            }
            (None, b'"') => {
                return fault("a `\"` within a content is written `\\\"` or `|22|`".into());
            }
            (None, byte) => bytes.push(byte),
        }
        at += 1;
    }
    match (hex, bytes.is_empty()) {
        (Some(at), _) => Err(Fault::new(base + at, "the closing `|` is missing")),
        (None, true) => Err(Fault::new(base, "the content is empty")),
        (None, false) => Ok(bytes),
    }
}

fn fast_pattern(arg: &Arg<'_>) -> Result<FastPattern, Fault> {
    if arg.none().is_ok() {
        return Ok(FastPattern::Whole);
    }
    let parts = arg.parts()?;
    match parts.as_slice() {
        [only] if only.text == "only" => Ok(FastPattern::Only),
        [offset, length] => {
            let offset = offset.number(PLACE_MAX as u64)? as u16;
            match length.number(PLACE_MAX as u64)? as u16 {
                0 => Err(length.fault("a piece has at least one byte")),
                length => Ok(FastPattern::Piece { offset, length }),
            }
        }
        [first, ..] => Err(first.unknown(&["only"])),
        [] => Err(arg.fault("it needs a value")),
    }
}

/// `[!]"/expression/flags[, scope:name …]"`
fn pcre(arg: &Arg<'_>) -> Result<(Pcre, Option<Buffer>), Fault> {
    let value = arg.unquoted()?;
    let (base, text) = (value.at, value.bytes);
    if text.first() != Some(&b'/') {
        return Err(Fault::new(base, "a regular expression is written between `/`"));
    }
    let end = text.iter().rposition(|b| *b == b'/').unwrap_or(0);
    if end == 0 {
        return Err(Fault::new(base, "the regular expression has no closing `/`"));
    }
    if end == 1 {
        return Err(Fault::new(base, "the regular expression is empty"));
    }
    let (pattern, rest) = (&text[1..end], &text[end + 1..]);
    let mut pcre =
        Pcre { negated: value.negated, pattern: ascii_pattern(pattern), ..Pcre::default() };
    let mut buffer = None;
    let rest_at = base + end + 1;
    let comma = rest.iter().position(|b| *b == b',').unwrap_or(rest.len());
    for (at, &letter) in rest[..comma].iter().enumerate() {
        match letter {
            b'i' => pcre.caseless = true,
            b'm' => pcre.multiline = true,
            b's' => pcre.dotall = true,
            b'x' => pcre.extended = true,
            b'A' => pcre.anchored = true,
            b'E' => pcre.dollar_end_only = true,
            b'G' => pcre.ungreedy = true,
            b'R' => pcre.relative = true,
            b'B' => pcre.rawbytes = true,
            b'O' => pcre.no_limit = true,
            // Snort's raw cookie is Suricata's cookie.
            b'K' => buffer = one_buffer(buffer, Buffer::HttpCookie, rest_at + at)?,
            b' ' | b'\t' => {}
            letter => match Buffer::from_pcre(letter) {
                Some(named) => buffer = one_buffer(buffer, named, rest_at + at)?,
                None => {
                    let letter = letter.escape_ascii();
                    let reason = format!("unknown flag `{letter}` of a regular expression");
                    return Err(Fault::new(rest_at + at, reason));
                }
            },
        }
    }
    if let Some(captures) = rest.get(comma + 1..) {
        let at = rest_at + comma + 1;
        for part in Arg::new(at, Some(captures)).parts()? {
            pcre.captures.push(capture(&part)?);
        }
    }
    if let Some(reason) = pattern_fault(&pcre) {
        return Err(Fault::new(base, reason));
    }
    Ok((pcre, buffer))
}

fn one_buffer(before: Option<Buffer>, named: Buffer, at: usize) -> Result<Option<Buffer>, Fault> {
    match before {
        Some(other) if other != named => {
            Err(Fault::new(at, "flags of two buffers in one regular expression"))
        }
        _ => Ok(Some(named)),
    }
}

fn capture(part: &Part<'_>) -> Result<Capture, Fault> {
    let Some((scope, name)) = part.text.split_once(':') else {
        return Err(part.fault("a captured variable is written `flow:NAME` or `pkt:NAME`"));
    };
    let scope = match scope.trim_ascii() {
        "flow" => CaptureScope::Flow,
        "pkt" => CaptureScope::Packet,
        "alert" => CaptureScope::Alert,
        _ => return Err(part.unknown(&["flow", "pkt", "alert"])),
    };
    let name = Part { at: part.at, text: name.trim_ascii() }.name()?;
    Ok(Capture { scope, name })
}

/// Bytes above 127 and control characters but for tabs as `\xhh`, which PCRE takes for the same.
fn ascii_pattern(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut escaped = false;
    for &byte in bytes {
        if byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t') {
            text.push(char::from(byte));
            escaped = byte == b'\\' && !escaped;
            continue;
        }
        if escaped {
            text.pop();
        }
        text.push_str(&format!("\\x{byte:02x}"));
        escaped = false;
    }
    text
}

/// What is wrong with an expression, as far as brackets tell: PCRE itself checks the rest.
fn pattern_fault(pcre: &Pcre) -> Option<&'static str> {
    let bytes = pcre.pattern.as_bytes();
    if pcre.extended || pcre.pattern.contains("\\Q") || pcre.pattern.contains("(?") {
        // Comments and quotations hide brackets.
        return None;
    }
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' if at + 1 == bytes.len() => return Some("a backslash before nothing"),
            b'\\' => at += 1,
            b'(' => depth += 1,
            b')' => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return Some("`)` without `(` in the regular expression"),
            },
            b'[' => match class_end(bytes, at) {
                Some(end) => at = end,
                None => return Some("`[` without `]` in the regular expression"),
            },
            _ => {}
        }
        at += 1;
    }
    (depth > 0).then_some("`(` without `)` in the regular expression")
}

/// Where the `]` is that ends the class which begins at `start`.
fn class_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    at += usize::from(bytes.get(at) == Some(&b'^'));
    // The first `]` is a member.
    at += usize::from(bytes.get(at) == Some(&b']'));
    loop {
        match bytes.get(at)? {
            b'\\' => at += 2,
            b']' => return Some(at),
            b'[' if bytes.get(at + 1) == Some(&b':') => {
                let letters = bytes[at + 2..].iter().take_while(|b| b.is_ascii_alphabetic());
                let end = at + 2 + letters.count();
                at = if bytes[end..].starts_with(b":]") { end + 2 } else { at + 1 };
            }
            _ => at += 1,
        }
    }
}

fn transform(name: &str, arg: &Arg<'_>) -> Result<Option<Transform>, Fault> {
    let plain = match name {
        "compress_whitespace" => Transform::CompressWhitespace,
        "strip_whitespace" => Transform::StripWhitespace,
        "strip_pseudo_headers" => Transform::StripPseudoHeaders,
        "dotprefix" => Transform::DotPrefix,
        "to_lowercase" => Transform::ToLowercase,
        "to_uppercase" => Transform::ToUppercase,
        "header_lowercase" => Transform::HeaderLowercase,
        "to_md5" => Transform::ToMd5,
        "to_sha1" => Transform::ToSha1,
        "to_sha256" => Transform::ToSha256,
        "url_decode" => Transform::UrlDecode,
        "domain" => Transform::Domain,
        "tld" => Transform::Tld,
        "xor" => return xor(arg).map(Some),
        "pcrexform" => {
            let value = arg.unquoted()?;
            if !value.quoted || value.negated {
                return Err(arg.fault("a regular expression is written in `\"`"));
            }
            return match ascii_pattern(value.bytes) {
                pattern if pattern.is_empty() => Err(arg.fault("it needs a value")),
                pattern => Ok(Some(Transform::Pcre(pattern))),
            };
        }
        "from_base64" => return from_base64(arg).map(Some),
        _ => return Ok(None),
    };
    arg.none()?;
    Ok(Some(plain))
}

fn xor(arg: &Arg<'_>) -> Result<Transform, Fault> {
    let text = arg.plain()?;
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    match digits {
        Some(digits) if digits.len() % 2 == 0 && !digits.is_empty() => {
            Ok(Transform::Xor(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()))
        }
        _ => Err(arg.fault("a key is pairs of hexadecimal digits")),
    }
}

fn from_base64(arg: &Arg<'_>) -> Result<Transform, Fault> {
    let (mut bytes, mut offset, mut mode) = (None, None, None);
    if arg.none().is_err() {
        for part in arg.parts()? {
            let (name, value) = part.pair();
            match name.trim_end_matches(':') {
                "bytes" => bytes = Some(value.number(PLACE_MAX as u64)? as u32),
                "offset" => offset = Some(value.number(PLACE_MAX as u64)? as u32),
                "mode" => {
                    mode = Some(match value.text {
                        "rfc2045" => Base64Mode::Rfc2045,
                        "rfc4648" => Base64Mode::Rfc4648,
                        "strict" => Base64Mode::Strict,
                        _ => return Err(value.unknown(&["rfc2045", "rfc4648", "strict"])),
                    });
                }
                _ => return Err(part.unknown(&["bytes", "offset", "mode"])),
            }
        }
    }
    Ok(Transform::FromBase64 { bytes, offset, mode })
}
