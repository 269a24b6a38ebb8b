//! What a run may ask for: numbers that make sense, and no more memory than there is.
//!
//! A process that takes more than there is is killed without a word, and others may go first. So each benchmark says
//! about how much it will take before it takes it.

use std::fs;

use rustix::process::{Resource, getrlimit};

/// A number of things, at least 1 and at most `MOST`; for the command line.
pub(crate) fn up_to<const MOST: usize>(text: &str) -> Result<usize, String> {
    let number = text.parse::<usize>().ok().filter(|number| (1..=MOST).contains(number));
    number.ok_or_else(|| format!("expected a number from 1 to {MOST}"))
}

/// Whether there is memory for about so many bytes.
///
/// # Errors
/// There is not; `what` takes it, in words such as "16 stations".
pub(crate) fn has_room(what: &str, bytes: usize) -> Result<(), String> {
    room_of(what, bytes, free_bytes())
}

fn room_of(what: &str, bytes: usize, free: usize) -> Result<(), String> {
    if bytes <= free {
        return Ok(());
    }
    let mega = |bytes: usize| bytes.div_ceil(1_000_000);
    Err(format!("{what} take about {} MB, and {} MB are free here", mega(bytes), mega(free)))
}

/// Memory that this process may still take: what the machine has, and what a limit of its own leaves. Where the system
/// does not say, all of it.
fn free_bytes() -> usize {
    let kib_of = |file: &str, key: &str| -> Option<usize> {
        let text = fs::read_to_string(file).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let machine = kib_of("/proc/meminfo", "MemAvailable:").map(|kib| kib.saturating_mul(1024));
    let used = kib_of("/proc/self/status", "VmSize:").unwrap_or(0).saturating_mul(1024);
    let limit = getrlimit(Resource::As).current.and_then(|bytes| usize::try_from(bytes).ok());
    let limit = limit.map(|limit| limit.saturating_sub(used));
    machine.unwrap_or(usize::MAX).min(limit.unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_reason_are_refused() {
        assert_eq!(up_to::<100>("100"), Ok(100));
        for text in ["0", "101", "99999999999999999999999", "-1", "x", ""] {
            assert_eq!(up_to::<100>(text).unwrap_err(), "expected a number from 1 to 100");
        }
    }

    #[test]
    fn what_takes_more_than_there_is_is_refused() {
        assert!(free_bytes() > 1 << 20);
        assert_eq!(has_room("4 stations", 4), Ok(()));
        let error = room_of("9 stations", 5_000_001, 3_000_000).unwrap_err();
        assert_eq!(error, "9 stations take about 6 MB, and 3 MB are free here");
        assert!(has_room("9 stations", usize::MAX / 2).is_err());
    }
}
