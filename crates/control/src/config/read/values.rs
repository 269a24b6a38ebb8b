//! Readers of single values: each gives the value, or a diagnostic and `None`.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use packet::MacAddr;
use toml::de::{DeArray, DeValue};

use crate::config::types::*;
use crate::config::units;
use crate::config::walk::{Value, Walk, Word, wrong_kind};

/// Elements of `engine.devices` at most: each has threads and copies of the tables of its own.
const DEVICES_MAX: usize = 16;

pub(super) fn string<'t>(walk: &mut Walk<'_>, value: &'t Value<'_>) -> Option<&'t str> {
    match value.get_ref() {
        DeValue::String(text) => Some(text),
        _ => wrong_kind(walk, value, "a string"),
    }
}

pub(super) fn boolean(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<bool> {
    match value.get_ref() {
        DeValue::Boolean(boolean) => Some(*boolean),
        _ => wrong_kind(walk, value, "true or false"),
    }
}

pub(super) fn array<'t, 'i>(
    walk: &mut Walk<'_>,
    value: &'t Value<'i>,
    expected: &str,
) -> Option<&'t DeArray<'i>> {
    match value.get_ref() {
        DeValue::Array(array) => Some(array),
        _ => wrong_kind(walk, value, expected),
    }
}

/// The path of a file that can be read; `folder`: where relative paths start, `None`: nobody looks.
pub(super) fn file(
    walk: &mut Walk<'_>,
    value: &Value<'_>,
    folder: Option<&Path>,
    expected: &str,
) -> Option<PathBuf> {
    let file = string(walk, value)?;
    let Some(folder) = folder else { return Some(file.into()) };
    let path = folder.join(file);
    if let Err(error) = std::fs::File::open(&path).and_then(|file| file.metadata()) {
        walk.error(value.span(), format!("{}: {error}", path.display())).expected(expected);
    }
    Some(path)
}

/// An integer in `range`.
pub(super) fn integer<T: TryFrom<i128>>(
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
pub(super) fn probability(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<f64> {
    let number: Option<f64> = match value.get_ref() {
        DeValue::Float(float) => float.as_str().parse().ok(),
        DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().parse().ok(),
        _ => return wrong_kind(walk, value, "a number from 0 to 1"),
    };
    number.filter(|number| (0.0..=1.0).contains(number)).or_else(|| {
        let message = format!("{} is no probability", walk.subject());
        walk.error(value.span(), message).expected("a number from 0 to 1");
        None
    })
}

/// A duration between two numbers of nanoseconds.
pub(super) fn duration(
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
pub(super) fn rate<T: TryFrom<i128>>(
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
pub(super) fn word<W: Word>(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<W> {
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

/// Where jobs are shaded: a word, for a real device with its number.
pub(super) fn engine_backend(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<EngineBackend> {
    backend(walk, value, "auto, cpu, sim, opencl, opencl:N, cuda or cuda:N")
}

/// Devices, each as [`engine_backend`] reads it, with where it stands.
pub(super) fn devices(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<Vec<EngineBackend>> {
    const EXPECTED: &str = "sim, opencl, opencl:N, cuda or cuda:N";
    let list = array(walk, value, "an array of devices such as [\"opencl:0\", \"cuda:1\"]")?;
    if list.is_empty() {
        walk.error(value.span(), "`devices` is empty")
            .expected("at least one device")
            .help("`backend = \"cpu\"` shades on the workers alone");
        return None;
    }
    if list.len() > DEVICES_MAX {
        walk.error(value.span(), format!("`devices` has {} elements", list.len()))
            .expected(format!("at most {DEVICES_MAX}"));
        return None;
    }
    let devices = walk.elements(list, |walk, value| {
        let device = backend(walk, value, EXPECTED)?;
        if matches!(device, EngineBackend::Auto | EngineBackend::Cpu) {
            let message = format!("{} is `{device}`, which names no device", walk.subject());
            walk.error(value.span(), message).expected(EXPECTED);
            return None;
        }
        Some(device)
    });
    let all = devices.len() == list.len();
    all.then(|| devices.into_iter().map(|(device, _)| device).collect())
}

fn backend(
    walk: &mut Walk<'_>,
    value: &Value<'_>,
    expected: &'static str,
) -> Option<EngineBackend> {
    let DeValue::String(text) = value.get_ref() else {
        return wrong_kind(walk, value, expected);
    };
    let (name, number) = text.split_once(':').map_or((text.as_ref(), None), |(n, d)| (n, Some(d)));
    let digits = number.unwrap_or("0");
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let device = digits.parse().ok().filter(|_| is_number);
    let found = match (name, number, device) {
        ("auto", None, _) => Some(EngineBackend::Auto),
        ("cpu", None, _) => Some(EngineBackend::Cpu),
        ("sim", None, _) => Some(EngineBackend::Sim),
        ("opencl", _, Some(device)) => Some(EngineBackend::OpenCl(device)),
        ("cuda", _, Some(device)) => Some(EngineBackend::Cuda(device)),
        _ => None,
    };
    if found.is_none() {
        let message = format!("{} is `{text}`", walk.subject());
        let words = ["auto", "cpu", "sim", "opencl", "cuda"];
        walk.error(value.span(), message).nearest(name, words).expected(expected);
    }
    found
}

pub(super) fn address(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<IpAddr> {
    let text = string(walk, value)?;
    text.parse().ok().or_else(|| {
        let message = format!("{} is `{text}`", walk.subject());
        walk.error(value.span(), message).expected("an IPv4 or IPv6 address");
        None
    })
}

/// An address with the length of its subnet.
pub(super) fn interface_address(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<IpNet> {
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
pub(super) fn prefix(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<IpNet> {
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

pub(super) fn unicast_mac(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<MacAddr> {
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

/// The words of an enum in the file.
macro_rules! words {
    ($($type:ty { $($word:literal => $value:ident),* $(,)? })*) => {
        $(impl Word for $type {
            const WORDS: &'static [(&'static str, $type)] = &[$(($word, <$type>::$value)),*];
        })*
    };
}

words! {
    HugePages { "auto" => Auto, "off" => Off, "try" => Try }
    LogLevel {
        "off" => Off, "error" => Error, "warn" => Warn, "info" => Info, "debug" => Debug,
        "trace" => Trace,
    }
    LogFormat { "text" => Text, "json" => Json }
    Backend {
        "auto" => Auto, "af_packet" => AfPacket, "af_xdp" => AfXdp, "memory" => Memory,
        "tap" => Tap, "pcap" => Pcap,
    }
    XdpMode { "auto" => Auto, "native" => Native, "skb" => Skb }
    ZeroCopy { "auto" => Auto, "on" => On, "off" => Off }
    Rpf { "off" => Off, "strict" => Strict, "loose" => Loose }
    TableV4 { "auto" => Auto, "dir24-8" => Dir24_8, "poptrie" => Poptrie }
    TableV6 { "auto" => Auto, "bspl" => Bspl, "mtrie6" => Mtrie6 }
    Offload { "auto" => Auto, "always" => Always }
}
