//! What is odd in heads, as Suricata's parser has it.

use l7proto::http1::{Head, Span, is_blank};

use crate::anomaly::AnomalyKind;
use crate::http1::head::Headers;
use crate::http1::uri::{self, Port, Target};
use crate::sink::Direction;

/// So many fields of names that came before are odd.
const REPETITIONS_MAX: usize = 64;

/// The blanks of the first line of a request.
pub(crate) fn of_first_line(text: &[u8], head: &Head, odd: &mut dyn FnMut(AnomalyKind)) {
    let Some(method) = head.method() else { return };
    let is_space = |byte: &u8| *byte == b' ';
    let before = &text[..(method.start as usize).min(text.len())];
    let line = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    if !line.is_empty() {
        odd(AnomalyKind::HttpLeadingBlank);
    }
    let between = |left: Span, right: Span| {
        let start = left.start.saturating_add(left.len);
        Span { start, len: right.start.saturating_sub(start) }.of(text)
    };
    let Some(target) = head.target().filter(|target| !target.is_empty()) else { return };
    if !between(method, target).iter().all(is_space) {
        odd(AnomalyKind::HttpMethodDelimiter);
    }
    if let Some(protocol) = head.protocol()
        && !between(target, protocol).iter().all(is_space)
    {
        odd(AnomalyKind::HttpUriDelimiter);
    }
}

/// The server that a request names. `server_port`: the port of the connection, 0 if it is another one.
pub(crate) fn of_server(
    target: &Target<'_>,
    field: Option<&[u8]>,
    server_port: u16,
    odd: &mut dyn FnMut(AnomalyKind),
) {
    let name = |authority: &[u8]| uri::host_port(authority).0;
    let is_odd = |authority: &[u8]| {
        let name = name(authority);
        !name.is_empty() && !uri::is_host(&name)
    };
    if target.authority.is_some_and(is_odd) {
        odd(AnomalyKind::HttpUriHostInvalid);
    }
    if field.is_some_and(is_odd) {
        odd(AnomalyKind::HttpHostInvalid);
    }
    let named = target.authority.into_iter().chain(field).filter(|own| !is_odd(own));
    let ports: Vec<Port> = named.map(uri::port).collect();
    if ports.contains(&Port::NoNumber) {
        odd(AnomalyKind::HttpPortInvalid);
    }
    if ports.contains(&Port::OutOfRange) {
        odd(AnomalyKind::HttpAuthorityPort);
    }
    // The server of an absolute target is behind the one of the connection.
    if target.authority.is_none()
        && let Some(Port::Number(port)) = ports.first()
        && server_port != 0
        && *port != server_port
    {
        odd(AnomalyKind::HttpPortMismatch);
    }
}

/// Fields of a head.
pub(crate) fn of_fields(direction: Direction, headers: &Headers, odd: &mut dyn FnMut(AnomalyKind)) {
    use AnomalyKind::*;
    let is_request = direction == Direction::ToServer;
    let mut either =
        |is_so: bool, kinds: [AnomalyKind; 2]| is_so.then(|| odd(kinds[usize::from(!is_request)]));
    either(headers.has_invalid, [HttpRequestField, HttpResponseField]);
    either(headers.has_no_colon, [HttpRequestColon, HttpResponseColon]);
    either(headers.is_folded_first, [HttpRequestFolding, HttpResponseFolding]);
    let repetitions = headers.all.len().saturating_sub(headers.joined.len());
    let kinds = [HttpRequestRepetitions, HttpResponseRepetitions];
    either(repetitions > REPETITIONS_MAX, kinds);
    if is_request {
        let scheme = headers.get("authorization").map(|value| {
            value.split(|byte| is_blank(*byte)).next().unwrap_or_default().to_ascii_lowercase()
        });
        if scheme.is_some_and(|own| !matches!(&own[..], b"basic" | b"digest" | b"bearer")) {
            odd(HttpAuthorization);
        }
        return;
    }
    if headers
        .get("content-type")
        .is_some_and(|own| crate::mime::is_type(own, b"multipart/byteranges"))
    {
        odd(HttpByteranges);
    }
    if headers.get("content-range").is_some_and(|own| !is_range(own)) {
        odd(HttpRange);
    }
    if let Some(coding) = headers.get("transfer-encoding")
        && !coding.eq_ignore_ascii_case(b"chunked")
        && has_chunked(coding)
    {
        odd(HttpOddChunked);
    }
}

/// Whether chunks are named in a transfer coding, in any way.
pub(crate) fn has_chunked(coding: &[u8]) -> bool {
    coding.to_ascii_lowercase().windows(7).any(|own| own == b"chunked")
}

/// Whether a `Content-Range` (RFC 9110 §14.4) is one: `bytes 0-9/10`, `bytes 0-9/*`, `bytes */10`.
pub(crate) fn is_range(value: &[u8]) -> bool {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let read = || {
        let (range, size) =
            std::str::from_utf8(value).ok()?.strip_prefix("bytes")?.split_once('/')?;
        let size = if size.trim() == "*" { u64::MAX } else { number(size)? };
        if range.trim() == "*" {
            return (size != u64::MAX).then_some(());
        }
        let (first, last) = range.split_once('-')?;
        let (first, last) = (number(first)?, number(last)?);
        (first <= last && last < size).then_some(())
    };
    read().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        for (text, is_right) in [
            ("bytes 0-9/10", true),
            ("bytes 0-9/*", true),
            ("bytes */10", true),
            ("bytes */*", false),
            ("bytes 9-0/10", false),
            ("bytes 0-10/10", false),
            ("bytes 0-x/10", false),
            ("lines 0-9/10", false),
            ("bytes", false),
        ] {
            assert_eq!(is_range(text.as_bytes()), is_right, "{text}");
        }
    }
}
