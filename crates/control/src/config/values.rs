//! Readers of single values: each gives the value, or a diagnostic and `None`.

use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use packet::MacAddr;
use toml::de::{DeArray, DeValue};

use super::units;
use super::walk::Word;
pub use super::walk::wrong_kind;
pub use super::walk::{Value, Walk};

/// A text.
pub fn string<'t>(walk: &mut Walk<'_>, value: &'t Value<'_>) -> Option<&'t str> {
    match value.get_ref() {
        DeValue::String(text) => Some(text),
        _ => wrong_kind(walk, value, "a string"),
    }
}

/// `true` or `false`.
pub fn boolean(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<bool> {
    match value.get_ref() {
        DeValue::Boolean(boolean) => Some(*boolean),
        _ => wrong_kind(walk, value, "true or false"),
    }
}

/// An array; `expected`: for the message where it is none.
pub fn array<'t, 'i>(
    walk: &mut Walk<'_>,
    value: &'t Value<'i>,
    expected: &str,
) -> Option<&'t DeArray<'i>> {
    match value.get_ref() {
        DeValue::Array(array) => Some(array),
        _ => wrong_kind(walk, value, expected),
    }
}

/// The path of a file that can be read: relative ones start at [`Walk::folder`]; without one, files are not looked at.
pub fn file(walk: &mut Walk<'_>, value: &Value<'_>, expected: &str) -> Option<PathBuf> {
    let file = string(walk, value)?;
    let Some(folder) = walk.folder() else { return Some(file.into()) };
    let path = folder.join(file);
    if files::is_standard(&path) {
        walk.error(value.span(), format!("{} is `-`, standard input", walk.subject()))
            .expected(expected);
        return None;
    }
    // To open a named pipe is to wait for its writer: what reads such a file decides.
    let tried = std::fs::metadata(&path).and_then(|about| match about.file_type() {
        kind if kind.is_file() => std::fs::File::open(&path).map(drop),
        kind if kind.is_dir() => Err(io::Error::new(io::ErrorKind::IsADirectory, "Is a directory")),
        _ => Ok(()),
    });
    if let Err(error) = tried {
        walk.error(value.span(), format!("cannot read {}: {error}", path.display()));
    }
    Some(path)
}

/// An integer in `range`.
pub fn integer<T: TryFrom<i128>>(
    range: RangeInclusive<i128>,
) -> impl Fn(&mut Walk<'_>, &Value<'_>) -> Option<T> {
    move |walk, value| {
        let expected = format!("an integer from {} to {}", range.start(), range.end());
        let DeValue::Integer(integer) = value.get_ref() else {
            return wrong_kind(walk, value, &expected);
        };
        let number = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
        let inside = number.filter(|number| range.contains(number));
        inside.and_then(|number| T::try_from(number).ok()).or_else(|| {
            let message = format!("{} is {integer}", walk.subject());
            walk.error(value.span(), message).expected(expected.clone());
            None
        })
    }
}

/// A probability.
pub fn probability(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<f64> {
    let number: Option<f64> = match value.get_ref() {
        DeValue::Float(float) => float.as_str().parse().ok(),
        DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().parse().ok(),
        _ => return wrong_kind(walk, value, "a number from 0 to 1"),
    };
    number.filter(|number| (0.0..=1.0).contains(number)).or_else(|| {
        let message = format!("{} is not a probability", walk.subject());
        walk.error(value.span(), message).expected("a number from 0 to 1");
        None
    })
}

/// A duration between two numbers of nanoseconds.
pub fn duration(
    walk: &mut Walk<'_>,
    value: &Value<'_>,
    from_ns: u64,
    to_ns: u64,
) -> Option<Duration> {
    let (from, to) = (Duration::from_nanos(from_ns), Duration::from_nanos(to_ns));
    let expected = format!(
        "a duration from \"{}\" to \"{}\" (ns, us, ms, s, min, h)",
        units::format_duration(from),
        units::format_duration(to)
    );
    let DeValue::String(text) = value.get_ref() else {
        return wrong_kind(walk, value, &expected);
    };
    let duration = units::parse_duration(text);
    duration.filter(|duration| (from..=to).contains(duration)).or_else(|| {
        let message = format!("{} is `{text}`", walk.subject());
        walk.error(value.span(), message).expected(expected);
        None
    })
}

/// Packets per second in `range`: an integer or a text with a unit.
pub fn rate<T: TryFrom<i128>>(
    range: RangeInclusive<i128>,
) -> impl Fn(&mut Walk<'_>, &Value<'_>) -> Option<T> {
    move |walk, value| {
        let DeValue::String(text) = value.get_ref() else {
            return integer(range.clone())(walk, value);
        };
        let number = units::parse_rate(text).map(i128::from);
        let inside = number.filter(|number| range.contains(number));
        inside.and_then(|number| T::try_from(number).ok()).or_else(|| {
            let message = format!("{} is `{text}`", walk.subject());
            let expected = format!(
                "packets per second from {} to {} such as 100 or \"1kpps\"",
                range.start(),
                range.end()
            );
            walk.error(value.span(), message).expected(expected);
            None
        })
    }
}

/// One of an enum's words.
pub fn word<W: Word>(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<W> {
    let words = || W::WORDS.iter().map(|(word, _)| *word);
    let expected = format!("one of {}", words().collect::<Vec<_>>().join(", "));
    let DeValue::String(text) = value.get_ref() else {
        return wrong_kind(walk, value, &expected);
    };
    let found = W::WORDS.iter().find(|(word, _)| *word == text.as_ref());
    found.map(|(_, value)| *value).or_else(|| {
        let message = format!("{} is `{text}`", walk.subject());
        walk.error(value.span(), message).nearest(text, words()).expected(expected);
        None
    })
}

/// An IPv4 or IPv6 address.
pub fn address(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<IpAddr> {
    let text = string(walk, value)?;
    text.parse().ok().or_else(|| {
        let message = format!("{} is `{text}`", walk.subject());
        walk.error(value.span(), message).expected("an IPv4 or IPv6 address");
        None
    })
}

/// An address with the length of its subnet.
pub fn interface_address(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<IpNet> {
    let text = string(walk, value)?;
    let net = parse_net(text);
    if net.is_none() {
        let message = format!("{} is `{text}`", walk.subject());
        let diagnostic = walk.error(value.span(), message);
        diagnostic.expected("ADDRESS/LENGTH such as \"192.0.2.1/24\" or \"2001:db8::1/64\"");
        if let Ok(address) = text.parse::<IpAddr>() {
            diagnostic.help(format!("for this address alone: \"{}\"", IpNet::from(address)));
        }
    }
    net
}

/// A prefix without host bits.
pub fn prefix(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<IpNet> {
    let text = string(walk, value)?;
    let Some(net) = parse_net(text) else {
        let message = format!("{} is `{text}`", walk.subject());
        walk.error(value.span(), message)
            .expected("PREFIX/LENGTH such as \"192.0.2.0/24\" or \"2001:db8::/32\"");
        return None;
    };
    if net.trunc() != net {
        let message = format!("{} `{text}` has bits set beyond its length", walk.subject());
        walk.error(value.span(), message).expected(format!("\"{}\"", net.trunc()));
    }
    Some(net.trunc())
}

/// The MAC address of a station: neither a group nor zero.
pub fn unicast_mac(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<MacAddr> {
    let text = string(walk, value)?;
    let mac = text.parse().ok().filter(|mac: &MacAddr| mac.is_unicast());
    mac.or_else(|| {
        let message = format!("{} is `{text}`", walk.subject());
        walk.error(value.span(), message)
            .expected("a station's MAC address such as \"02:00:5e:10:00:01\"");
        None
    })
}

fn parse_net(text: &str) -> Option<IpNet> {
    text.contains('/').then(|| text.parse().ok()).flatten()
}

/// A text that its type reads; an error's text may end in `: expected …`.
pub fn parsed<T: FromStr<Err: std::fmt::Display>>(
    walk: &mut Walk<'_>,
    value: &Value<'_>,
    text: &str,
) -> Option<T> {
    text.parse()
        .map_err(|error: T::Err| {
            let message = error.to_string();
            let (message, expected) = match message.split_once(": expected ") {
                Some((message, expected)) => (message.to_owned(), Some(expected.to_owned())),
                None => (message, None),
            };
            let message = format!("{}: {message}", walk.subject());
            let diagnostic = walk.error(value.span(), message);
            if let Some(expected) = expected {
                diagnostic.expected(expected);
            }
        })
        .ok()
}
