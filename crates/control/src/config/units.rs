//! Durations, sizes and rates as people write them.

use std::time::Duration;

/// `200us`, `1.5 ms`, `10s`: a number and one of ns, us (or µs), ms, s, min, h.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let nanoseconds = match unit {
        "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    let total = (number * nanoseconds).round();
    (total <= u64::MAX as f64).then(|| Duration::from_nanos(total as u64))
}

/// The shortest text that [`parse_duration`] reads back.
pub fn format_duration(duration: Duration) -> String {
    let ns = duration.as_nanos();
    let units = [
        (3_600_000_000_000, "h"),
        (60_000_000_000, "min"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
    ];
    for (size, unit) in units {
        if ns != 0 && ns.is_multiple_of(size) {
            return format!("{}{unit}", ns / size);
        }
    }
    format!("{ns}ns")
}

/// Bytes: `65536`, `64KiB`, `1.5 GiB`, `10MB`.
pub fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let bytes = match unit {
        "" | "B" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1048576.0,
        "GiB" => 1073741824.0,
        _ => return None,
    };
    whole(number * bytes)
}

/// Packets per second: `1000`, `1kpps`, `14.88 Mpps`, `100/s`.
pub fn parse_rate(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let per_second = match unit {
        "" | "pps" | "/s" => 1.0,
        "kpps" => 1e3,
        "Mpps" => 1e6,
        "Gpps" => 1e9,
        _ => return None,
    };
    whole(number * per_second)
}

/// A number that is not negative, and what follows it.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end =
        text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.replace('_', "").parse::<f64>().ok()?;
    number.is_finite().then_some((number, unit.trim_start()))
}

fn whole(number: f64) -> Option<u64> {
    let number = number.round();
    (number <= u64::MAX as f64).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read() {
        for (text, ns) in [
            ("200us", 200_000),
            ("200 µs", 200_000),
            ("1.5ms", 1_500_000),
            ("10s", 10_000_000_000),
            ("0ns", 0),
            ("2min", 120_000_000_000),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_nanos(ns)), "{text}");
        }
        for (text, bytes) in
            [("64MiB", 64 << 20), ("1_000", 1000), ("1.5KiB", 1536), ("2 kB", 2000)]
        {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for (text, rate) in
            [("1Mpps", 1_000_000), ("100", 100), ("100/s", 100), ("14.88 Mpps", 14_880_000)]
        {
            assert_eq!(parse_rate(text), Some(rate), "{text}");
        }
        for text in ["", "s", "5", "-1s", "1e999h", "1.2.3s", "99999999999999h", "5 parsecs"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
        assert_eq!((parse_size("5MHz"), parse_rate("5MB")), (None, None));
    }

    #[test]
    fn durations_are_written_as_read() {
        for text in ["200us", "1500us", "10s", "0ns", "3min", "2h", "7ns", "90s"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
    }
}
