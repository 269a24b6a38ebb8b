//! Checks of buffers that a transaction lacks, and rules of the protocol of a flow, as in Suricata 7.0.10.

use std::sync::Arc;

use detect::{Alert, BufferPart, Detector, FlowState, Options, Packet, Ruleset, Sender};
use signatures::{Buffer, Loader, Variables};

use crate::twin::segment;

fn detector(rules: &[String]) -> Detector {
    let variables = Variables::with_defaults([], []).expect("defaults");
    let mut loader = Loader::new(variables.clone());
    loader.read("rules", rules.join("\n").as_bytes()).expect("memory");
    let set = loader.finish();
    assert!(set.problems.is_empty(), "{:?}", set.problems);
    let (rules, refused) = Ruleset::compile(&set, &variables, &Options::default());
    assert!(refused.is_empty(), "{refused:?}");
    Detector::new(Arc::new(rules))
}

/// A rule for a request that has only a method.
const CHECKS: &[(&str, bool)] = &[
    ("http.user_agent; content:!\"curl\"", false),
    ("http.user_agent; pcre:!\"/curl/\"", false),
    ("http.user_agent; isdataat:!10", false),
    ("http.user_agent; absent", true),
    ("http.user_agent; absent: or_else; content:!\"curl\"", true),
    ("http.method; content:\"GET\"; http.referer; content:!\"evil\"", false),
    ("http.method; content:\"GET\"; http.referer; absent", true),
    ("http.method; content:\"GET\"; http.referer; absent: or_else; content:\"good\"", true),
    ("http.method; content:!\"POST\"", true),
    ("http.method; content:!\"GET\"", false),
    ("http.method; absent: or_else; content:!\"GET\"", false),
];

#[test]
fn a_check_of_a_buffer_that_is_missing() {
    for (checks, expected) in CHECKS {
        let rule = format!("alert http any any -> any any (flow:to_server; {checks}; sid:1;)");
        let mut detector = detector(&[rule]);
        let (mut flow, mut alerts): (_, Vec<Alert>) = (FlowState::new(1), Vec::new());
        for (sender, flags) in [(Sender::Client, 2), (Sender::Server, 18), (Sender::Client, 16)] {
            let frame = segment(sender, flags, b"");
            let decoded = packet::decode(&frame, frame.len());
            let packet = Packet { decoded: &decoded, frame: &frame, time_ns: 1 };
            detector.begin(&packet, &mut flow, sender);
            if flags == 16 {
                flow.set_application(Sender::Client, "http");
                let part = BufferPart {
                    buffer: Buffer::HttpMethod,
                    sender,
                    transaction: 1,
                    number: 0,
                    bytes: b"GET",
                    is_complete: true,
                };
                detector.buffer(&mut flow, &part);
                detector.end_of_side(&mut flow, sender, 1);
            }
            detector.finish(&mut flow, &mut alerts);
        }
        assert_eq!(!alerts.is_empty(), *expected, "{checks}");
    }
}

/// Rules, and alerts in a connection of three packets of the handshake, one more of the client with which the protocol is known,
/// and two of either end.
const PROTOCOLS: &[(&str, &str, usize)] = &[
    ("tcp", "app-layer-protocol:ssh", 2),
    ("ip", "app-layer-protocol:ssh", 2),
    ("tcp", "app-layer-protocol:!http; app-layer-protocol:!tls", 2),
    ("tcp", "app-layer-protocol:!ssh", 0),
    ("tcp", "flow:to_server; app-layer-protocol:ssh", 1),
    ("tcp", "app-layer-protocol:ssh; flowbits:set,x", 2),
    ("tcp", "flow:established; app-layer-protocol:ssh", 5),
    ("tcp", "flow:established,to_client; app-layer-protocol:ssh", 2),
    ("tcp", "app-layer-protocol:ssh; flowbits:isset,x; flowbits:noalert", 0),
    ("ssh", "", 5),
    ("ssh", "flow:to_server;", 3),
    ("http", "", 0),
];

#[test]
fn rules_of_protocols() {
    for (protocol, options, expected) in PROTOCOLS {
        let options = options.trim_end_matches(';');
        let end = if options.is_empty() { "" } else { ";" };
        let rule = format!("alert {protocol} any any -> any any ({options}{end} sid:1;)");
        let mut detector = detector(&[rule]);
        let (mut flow, mut alerts): (_, Vec<Alert>) = (FlowState::new(1), Vec::new());
        let (client, server) = (Sender::Client, Sender::Server);
        let packets = [(client, 2), (server, 18), (client, 16), (client, 24)];
        let more = [(server, 24), (client, 24), (server, 24), (client, 24)];
        for (at, (sender, flags)) in packets.into_iter().chain(more).enumerate() {
            let frame = segment(sender, flags, b"");
            let decoded = packet::decode(&frame, frame.len());
            let packet = Packet { decoded: &decoded, frame: &frame, time_ns: 1 };
            detector.begin(&packet, &mut flow, sender);
            if at == 3 {
                flow.set_application(client, "ssh");
                flow.set_application(server, "ssh");
            }
            detector.finish(&mut flow, &mut alerts);
        }
        assert_eq!(alerts.len(), *expected, "{protocol}: {options}");
    }
}
