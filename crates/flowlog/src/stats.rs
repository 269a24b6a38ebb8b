//! `stats.log`: counters as a table for people, by Suricata's names.

use std::io::Write;

use crate::eve::Stats;
use crate::time;

const RULE: [u8; 84] = [b'-'; 84];

/// Appends a table of what is not 0.
pub fn table(at_ns: u64, stats: &Stats<'_>, out: &mut Vec<u8>) {
    let rule = |out: &mut Vec<u8>| {
        out.extend_from_slice(&RULE);
        out.push(b'\n');
    };
    let mut fast = Vec::new();
    time::write_fast(at_ns, &mut fast);
    let date = String::from_utf8_lossy(&fast);
    let s = stats.uptime_s;
    rule(out);
    // A vector takes whatever is written to it.
    let _ = writeln!(
        out,
        "Date: {} -- {} (uptime: {}d, {:02}h {:02}m {:02}s)",
        &date[..10],
        &date[11..19],
        s / 86_400,
        s / 3600 % 24,
        s / 60 % 60,
        s % 60
    );
    rule(out);
    let _ = writeln!(out, "{:<45} | {:<25} | Value", "Counter", "TM Name");
    rule(out);
    for (name, value) in stats.counters.iter().filter(|(_, value)| *value > 0) {
        let _ = writeln!(out, "{name:<45} | {:<25} | {value}", "Total");
    }
}
