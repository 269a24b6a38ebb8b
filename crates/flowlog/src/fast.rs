//! `fast.log`: an alert as a line for people, as Suricata and Snort write it.
//!
//! ```text
//! 03/06/2017-06:21:46.789012  [**] [1:2100498:7] GPL ATTACK_RESPONSE id check returned root [**] \
//!     [Classification: Potentially Bad Traffic] [Priority: 2] {TCP} 192.0.2.1:80 -> 198.51.100.7:40000
//! ```
//!
//! An alert whose packet was dropped has `[Drop]` in front of the first mark. Times are UTC. ICMP has type and code instead
//! of ports.

use std::io::Write;

use crate::eve::{Alert, Decision, Origin, protocol_name};
use crate::time;

/// Appends the line of an alert.
pub fn alert(origin: &Origin<'_>, alert: &Alert<'_>, out: &mut Vec<u8>) {
    time::write_fast(origin.at_ns, out);
    out.extend_from_slice(b"  ");
    if alert.decision == Decision::Blocked {
        out.extend_from_slice(b"[Drop] ");
    }
    let category = if alert.category.is_empty() { "(null)" } else { alert.category };
    let (src, dst) = match origin.icmp {
        Some((kind, code)) => ((origin.src.0, kind.into()), (origin.dst.0, code.into())),
        None => (origin.src, origin.dst),
    };
    // A vector takes whatever is written to it.
    let Alert { gid, sid, rev, priority, .. } = alert;
    let _ = write!(out, "[**] [{gid}:{sid}:{rev}] ");
    text(alert.msg, out);
    out.extend_from_slice(b" [**] [Classification: ");
    text(category, out);
    let _ = write!(out, "] [Priority: {priority}] {{");
    let _ = match protocol_name(origin.protocol) {
        Some(name) => write!(out, "{name}"),
        None => write!(out, "PROTO:{:03}", origin.protocol),
    };
    let _ = writeln!(out, "}} {}:{} -> {}:{}", src.0, src.1, dst.0, dst.1);
}

/// A line stays a line.
fn text(text: &str, out: &mut Vec<u8>) {
    out.extend(text.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }));
}
