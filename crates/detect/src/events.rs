//! Rules about packets that cannot be decoded: `decode-event`.

use std::net::IpAddr;

use crate::Sender;
use crate::alert::{Alert, Found, Verdict};
use crate::detector::Detector;
use crate::flow::Match;
use crate::rule::Way;

/// Events that rules may name, sorted. Suricata has more; those of fragments that do not all come are not Suricata's.
pub const EVENTS: &[&str] = &[
    "icmpv4.pkt_too_small",
    "icmpv6.pkt_too_small",
    "ip.pkt_too_small",
    "ipv4.frag_ignored",
    "ipv4.frag_invalid_length",
    "ipv4.frag_missing",
    "ipv4.frag_overlap",
    "ipv4.frag_pkt_too_large",
    "ipv4.hlen_too_small",
    "ipv4.invalid_checksum",
    "ipv4.iplen_smaller_than_hlen",
    "ipv4.trunc_pkt",
    "ipv4.wrong_ip_version",
    "ipv6.frag_ignored",
    "ipv6.frag_invalid_length",
    "ipv6.frag_missing",
    "ipv6.frag_overlap",
    "ipv6.frag_pkt_too_large",
    "ipv6.trunc_exthdr",
    "ipv6.trunc_pkt",
    "ipv6.wrong_ip_version",
    "tcp.invalid_checksum",
    "tcp.pkt_too_small",
    "udp.pkt_too_small",
];

/// What is wrong with a packet, or with fragments.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// One of [`EVENTS`].
    pub name: &'a str,
    /// Address and port of the sender, as far as they can be read; 0 where not.
    pub source: (IpAddr, u16),
    /// Those of the other end.
    pub destination: (IpAddr, u16),
    /// Upper-layer protocol (IANA), as far as it is known.
    pub protocol: u8,
    /// When it came, in nanoseconds since 1970.
    pub time_ns: u64,
}

impl Detector {
    /// Rules about an event of this name: a step by itself.
    pub fn event(&mut self, event: &Event<'_>, alerts: &mut Vec<Alert>) -> Verdict {
        let rules = self.rules.clone();
        let Some(numbers) = rules.events.get(event.name) else { return Verdict::default() };
        let Event { source, destination, protocol, time_ns, .. } = *event;
        let way = Way {
            source: source.0,
            destination: destination.0,
            source_port: source.1,
            destination_port: destination.1,
            protocol,
        };
        let found = |rule: &u32| {
            let (rule, sender) = (*rule, Sender::Client);
            Match { rule, found: Found::Event, sender, waits: false }
        };
        self.alone(way, time_ns, numbers.iter().map(found), alerts)
    }
}
