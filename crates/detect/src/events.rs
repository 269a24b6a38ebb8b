//! Rules about packets that cannot be decoded (`decode-event`), about what is odd in streams (`stream-event`) and in sessions
//! (`app-layer-event`), and about fragments (`fragbits`, `fragoffset`).

use std::net::IpAddr;

use applayer::{Anomaly, AnomalyKind};

use crate::alert::{Alert, Found, Verdict};
use crate::detector::{Detector, headers_hold};
use crate::flow::{Match, way_of_packet};
use crate::header::Header;
use crate::rule::Way;
use crate::{FlowState, Packet, Sender, conditions, sender_of};

/// Events that rules may name, sorted. Suricata has more; those of fragments that do not all come, or that have a tunnel in them, are not
/// Suricata's.
pub const EVENTS: &[&str] = &[
    "icmpv4.pkt_too_small",
    "icmpv6.pkt_too_small",
    "ip.pkt_too_small",
    "ip.tunnel_in_fragments",
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
    "too_many_layers",
    "udp.pkt_too_small",
];

/// Events of streams that rules may name (`stream-event`), sorted. Suricata has more; `ack_unseen_data`, `data_after_fin`, `data_on_syn`, `no_flags`,
/// `rst_in_window` and `rst_out_of_window` are not Suricata's.
pub const STREAM_EVENTS: &[&str] = &[
    "ack_unseen_data",
    "data_after_fin",
    "data_on_syn",
    "est_packet_out_of_window",
    "est_syn_resend_diff_seq",
    "fin_out_of_window",
    "no_flags",
    "pkt_invalid_ack",
    "pkt_retransmission",
    "reassembly_depth_reached",
    "reassembly_insert_memcap",
    "reassembly_overlap_different_data",
    "reassembly_seq_gap",
    "rst_in_window",
    "rst_out_of_window",
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

/// Why there is no event of an application with this name.
pub(crate) fn no_event(name: &str) -> String {
    if let Some(why) = applayer::unseen(name) {
        return why.to_owned();
    }
    let protocol_of = |kind: &AnomalyKind| kind.protocol().map_or("", |own| own.name());
    let (protocol, event) = name.split_once('.').unwrap_or(("", name));
    let of_protocol = |kind: &&AnomalyKind| protocol_of(kind).eq_ignore_ascii_case(protocol);
    let known = AnomalyKind::ALL.iter().filter(of_protocol).map(|kind| kind.name());
    let known: Vec<&'static str> = known.collect();
    if known.is_empty() {
        return format!("no parser here sees events of {protocol}");
    }
    match signatures::nearest(&known, event) {
        Some(near) if protocol.is_empty() => format!("no such event; did you mean `{near}`?"),
        Some(near) => format!("no such event; did you mean `{protocol}.{near}`?"),
        None => "no such event".to_owned(),
    }
}

/// Why there is no event of packets or streams with this name.
pub(crate) fn unseen(known: &[&'static str], name: &str) -> String {
    match signatures::nearest(known, name) {
        Some(near) => format!("no such event is seen here; did you mean `{near}`?"),
        None => "no such event is seen here".to_owned(),
    }
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

    /// Rules about an event of a stream of the flow, one of [`STREAM_EVENTS`], in the step that is open. The alert is of the packet
    /// that brought it. Where a flow ends none did, and it is of `sender`, whose stream it is.
    pub fn stream_event(&mut self, name: &str, sender: Sender) {
        if self.step.is_over {
            return;
        }
        let Some(numbers) = self.rules.events.get(name) else { return };
        let (found, sender) = match self.step.header {
            Some(_) => (Found::Packet, self.step.sender),
            None => (Found::Event, sender),
        };
        let matches = numbers.iter().map(|rule| Match { rule: *rule, found, sender, waits: false });
        self.step.matches.extend(matches);
    }

    /// Rules about something odd in a session of the flow, in the step that is open: once a transaction and direction.
    pub(crate) fn application_event(&mut self, flow: &mut FlowState, anomaly: &Anomaly) {
        if self.step.is_over {
            return;
        }
        let Some(numbers) = self.rules.app_events.get(&anomaly.kind) else { return };
        let sender = anomaly.direction.map_or(self.step.sender, sender_of);
        let Some(id) = anomaly.transaction else {
            let found = if self.step.header.is_some() { Found::Packet } else { Found::Event };
            let found = |rule: &u32| Match { rule: *rule, found, sender, waits: false };
            self.step.matches.extend(numbers.iter().map(found));
            return;
        };
        let done = &mut flow.transaction(id).done;
        for rule in numbers {
            let once = self.rules.rules[*rule as usize].once(*rule, sender);
            if let Err(at) = done.binary_search(&once) {
                done.insert(at, once);
                let (rule, found) = (*rule, Found::Transaction(id));
                self.step.matches.push(Match { rule, found, sender, waits: false });
            }
        }
    }

    /// Rules about fragments, of a single one: a step by itself. As in Suricata it belongs to no flow, and has neither ports nor
    /// payload.
    pub fn fragment(&mut self, packet: &Packet<'_>, alerts: &mut Vec<Alert>) -> Verdict {
        if self.rules.fragments.is_empty() {
            return Verdict::default();
        }
        let Some(header) = Header::of_fragment(packet) else { return Verdict::default() };
        let rules = self.rules.clone();
        let mut flow = self.no_flow();
        flow.way = Some(way_of_packet(&header));
        self.open(&mut flow, Sender::Client, packet.time_ns);
        self.step.header = Some(header);
        for number in &rules.fragments {
            let rule = &rules.rules[*number as usize];
            if conditions::of_packet_hold(rule, &header)
                && headers_hold(&rules, rule, packet, &header, &mut self.scratch.values)
            {
                self.found(*number, Found::Packet);
            }
        }
        self.keep_values(&mut flow, None);
        let verdict = self.finish(&mut flow, alerts);
        self.give_back(flow);
        verdict
    }
}
