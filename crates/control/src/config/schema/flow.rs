//! `[flow]`.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::kinds::{Custom, boolean, custom, duration, integer, words};
use crate::config::values;

const MINUTE: Duration = Duration::from_mins(1);
const LONGEST: Duration = Duration::from_hours(24 * 7);

crate::section! {
    /// Flow tracking and TCP reassembly: a monitor, or a stage of a router, switch or wire.
    #[derive(Eq)]
    pub struct Flow("flow") {
        /// Flows that each worker follows at most. Memory for them is reserved at the start: about 500 bytes each.
        restart flows: usize = 262_144, integer(16..=67_108_864);
        /// Flows without an answer among them, such as half-open connections. If there are more, the oldest ones make room;
        /// established flows never do.
        restart half_open: usize = 131_072, integer(16..=67_108_864);
        /// Idle time after which a TCP connection without a finished handshake ends.
        restart tcp_new: Duration = MINUTE, duration(Duration::from_millis(1)..=LONGEST);
        /// Idle time after which an established TCP connection ends.
        restart tcp_established: Duration = 10 * MINUTE, duration(Duration::from_millis(1)..=LONGEST);
        /// Idle time after which a TCP connection that both ends closed, or that was reset, is forgotten.
        restart tcp_closed: Duration = MINUTE, duration(Duration::from_millis(1)..=LONGEST);
        /// Idle time of a UDP flow without an answer.
        restart udp_new: Duration = MINUTE, duration(Duration::from_millis(1)..=LONGEST);
        /// Idle time of a UDP flow with packets in both directions.
        restart udp_established: Duration = MINUTE, duration(Duration::from_millis(1)..=LONGEST);
        /// Idle time of ICMP and ICMPv6.
        restart icmp: Duration = MINUTE, duration(Duration::from_millis(1)..=LONGEST);
        /// Idle time of other protocols.
        restart other: Duration = MINUTE, duration(Duration::from_millis(1)..=LONGEST);
        /// Flows with the same addresses and ports in different VLANs are different flows.
        restart by_vlan: bool = false, boolean();
        /// Memory of each worker for TCP segments that arrive before others that precede them, in MiB.
        restart reassembly_mib: usize = 64, integer(1..=65_536);
        /// Memory for the segments of one connection, in KiB. If it is full, the missing bytes are given up.
        restart reassembly_kib_per_flow: usize = 1024, integer(2..=1_048_576);
        /// Bytes of each direction that are reassembled. 0: all.
        restart depth: u64 = 0, integer(0..=i128::from(u64::MAX >> 1));
        /// How overlapping TCP segments with different bytes are resolved: as the receiving system does it.
        restart overlap: Overlap = Overlap::Bsd, words();
        /// Follow TCP connections whose beginning was not seen.
        restart midstream: bool = true, boolean();
        /// File for flow events in Suricata's EVE JSON format, one object per line: appended to, and opened again on SIGHUP.
        /// `-`: standard output. `unix:PATH`: a Unix stream socket that another program listens on.
        restart events: Option<PathBuf> = None, events();
        /// Seed of the community ID in events (community ID v1).
        restart community_id_seed: u16 = 0, integer(0..=65_535);
    }
    also {
        /// The file has the section.
        is_on: bool = false;
    }
}

crate::words! {
    /// `flow.overlap`.
    pub enum Overlap {
        /// BSD, Windows before Vista, macOS, IRIX, HP-UX 10.
        Bsd = "bsd",
        /// The bytes that arrived first, as Windows Vista and later.
        First = "first",
        /// The bytes that arrived last.
        Last = "last",
        /// Linux.
        Linux = "linux",
        /// Linux before 2.4.
        OldLinux = "old-linux",
        /// Solaris and HP-UX 11.
        Solaris = "solaris",
    }
}

fn events() -> Custom<Option<PathBuf>> {
    let read = |walk: &mut values::Walk<'_>, value: &values::Value<'_>| {
        let text = values::string(walk, value)?;
        let rest = text.strip_prefix("unix:").unwrap_or(text);
        if rest.is_empty() || rest.contains('\0') {
            let message = format!("{} cannot name a file", walk.subject());
            walk.error(value.span(), message).expected("\"eve.json\", \"-\" or \"unix:PATH\"");
            return None;
        }
        Some((text != "off").then(|| text.into()))
    };
    let text = |path: &Option<PathBuf>| {
        path.as_ref().map_or_else(|| "off".to_owned(), |path| path.display().to_string())
    };
    custom("path", "a path, `\"-\"`, `\"unix:PATH\"` or `\"off\"`", read, text)
}
