//! Points in time as text, without a table of time zones: all of them are UTC.

/// Length of what [`write_timestamp`] writes, for years of four digits.
pub(crate) const TIMESTAMP_LEN: usize = "2017-03-06T06:21:46.789012+0000".len();

const NS_PER_SECOND: u64 = 1_000_000_000;

/// Appends a point in time as Suricata writes it (`2017-03-06T06:21:46.789012+0000`): microseconds, rounded down.
/// `ns` are nanoseconds since 1970.
pub fn write_timestamp(ns: u64, out: &mut Vec<u8>) {
    let (seconds, micros) = (ns / NS_PER_SECOND, ns % NS_PER_SECOND / 1000);
    let (year, month, day) = civil(seconds / 86_400);
    let of_day = seconds % 86_400;
    let mut text = *b"0000-00-00T00:00:00.000000+0000";
    const { assert!(TIMESTAMP_LEN == 31) };
    let fields = [
        (0..4, year),
        (5..7, month),
        (8..10, day),
        (11..13, of_day / 3600),
        (14..16, of_day / 60 % 60),
        (17..19, of_day % 60),
        (20..26, micros),
    ];
    for (place, value) in fields {
        let mut rest = value;
        for digit in text[place].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }
    out.extend_from_slice(&text);
}

/// Appends a point in time as `fast.log` has it: `03/06/2017-06:21:46.789012`.
pub(crate) fn write_fast(ns: u64, out: &mut Vec<u8>) {
    let mut iso = Vec::with_capacity(TIMESTAMP_LEN);
    write_timestamp(ns, &mut iso);
    for part in [&iso[5..7], b"/", &iso[8..10], b"/", &iso[..4], b"-", &iso[11..26]] {
        out.extend_from_slice(part);
    }
}

/// Year, month and day of a day since 1970-01-01, by H. Hinnant, *chrono-Compatible Low-Level Date Algorithms*,
/// `civil_from_days`: years begin in March, so that the leap day is their last one. 2^64 nanoseconds end in 2554, so four
/// digits hold every year.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468; // since 0000-03-01
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(ns: u64) -> String {
        let mut out = Vec::new();
        write_timestamp(ns, &mut out);
        String::from_utf8(out).unwrap()
    }

    /// Expected values by `date -u -d @SECONDS`.
    #[test]
    fn known_points_in_time() {
        assert_eq!(text(0), "1970-01-01T00:00:00.000000+0000");
        assert_eq!(text(1_488_781_306_789_012_345), "2017-03-06T06:21:46.789012+0000");
        assert_eq!(text(951_782_399_999_999_999), "2000-02-28T23:59:59.999999+0000");
        assert_eq!(text(951_782_400_000_000_000), "2000-02-29T00:00:00.000000+0000");
        assert_eq!(text(4_107_542_400_000_000_000), "2100-03-01T00:00:00.000000+0000");
        assert_eq!(text(u64::MAX), "2554-07-21T23:34:33.709551+0000");
    }

    /// Counting days one by one gives the same.
    #[test]
    fn agrees_with_a_calendar() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..220_000 {
            assert_eq!(civil(days), (year, month, day), "day {days}");
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let last = match month {
                2 => 28 + u64::from(is_leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (year, month, day) = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                (_, day) if day == last => (year, month + 1, 1),
                (_, day) => (year, month, day + 1),
            };
        }
    }
}
