//! Conditions on packets, flows and hosts, thresholds and actions: small rules and what they give.

use std::net::IpAddr;
use std::sync::Arc;

use detect::{Alert, Detector, Event, FlowState, Options, Packet, Ruleset, Sender, Verdict};
use signatures::{Loader, Variables, config};

use crate::twin::segment;

/// A datagram of UDP over IPv4, with a TTL.
pub(crate) fn datagram(
    source: ([u8; 4], u16),
    destination: ([u8; 4], u16),
    ttl: u8,
    payload: &[u8],
) -> Vec<u8> {
    let len = (28 + payload.len()) as u16;
    let lead =
        [&[2; 12][..], &[8, 0, 0x45, 0], &len.to_be_bytes(), &[0, 7, 0x40, 0, ttl, 17, 0, 0]];
    let mut frame = lead.concat();
    frame.extend_from_slice(&source.0);
    frame.extend_from_slice(&destination.0);
    frame.extend_from_slice(&source.1.to_be_bytes());
    frame.extend_from_slice(&destination.1.to_be_bytes());
    frame.extend_from_slice(&(len - 20).to_be_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(payload);
    frame
}

struct Bench {
    detector: Detector,
    flow: FlowState,
    alerts: Vec<Alert>,
}

impl Bench {
    fn new(rules: &str, limits: &str) -> Self {
        let variables = Variables::with_defaults([], []).expect("defaults");
        let mut loader = Loader::new(variables.clone());
        loader.read("rules", rules.as_bytes()).expect("memory");
        let set = loader.finish();
        assert!(set.problems.is_empty(), "{:?}", set.problems);
        let limits = config::thresholds(limits.as_bytes()).expect("memory");
        assert!(limits.problems.is_empty(), "{:?}", limits.problems);
        let options = Options { limits: limits.found, ..Options::default() };
        let (rules, refused) = Ruleset::compile(&set, &variables, &options);
        assert!(refused.is_empty(), "{refused:?}");
        Self {
            detector: Detector::new(Arc::new(rules)),
            flow: FlowState::new(1),
            alerts: Vec::new(),
        }
    }

    fn give(&mut self, frame: &[u8], sender: Sender, second: u64) -> (Vec<u32>, Verdict) {
        let decoded = packet::decode(frame, frame.len());
        let packet = Packet { decoded: &decoded, frame, time_ns: second * 1_000_000_000 };
        self.alerts.clear();
        self.detector.begin(&packet, &mut self.flow, sender);
        let verdict = self.detector.finish(&mut self.flow, &mut self.alerts);
        let rules = self.detector.rules();
        (self.alerts.iter().map(|alert| rules.rule(alert.rule).sid).collect(), verdict)
    }

    /// A packet of the client.
    fn ask(&mut self, payload: &[u8], second: u64) -> Vec<u32> {
        let frame = datagram(([10, 0, 0, 1], 4000), ([10, 0, 0, 2], 53), 64, payload);
        self.give(&frame, Sender::Client, second).0
    }

    fn answer(&mut self, payload: &[u8], second: u64) -> Vec<u32> {
        let frame = datagram(([10, 0, 0, 2], 53), ([10, 0, 0, 1], 4000), 64, payload);
        self.give(&frame, Sender::Server, second).0
    }
}

#[test]
fn headers_and_payloads() {
    let cases = [
        ("udp any any -> any 53", "dsize:3;", true),
        ("udp any any -> any 54", "dsize:3;", false),
        ("udp 10.0.0.1 4000 -> 10.0.0.0/24 :60", "dsize:3;", true),
        ("udp !10.0.0.1 any -> any any", "dsize:3;", false),
        ("udp any 53 <> any 4000", "dsize:3;", true),
        ("udp any any -> any any", "ttl:64;", true),
        ("udp any any -> any any", "ttl:<64;", false),
        ("ip any any -> any any", "id:7;", true),
        ("ip any any -> any any", "fragbits:D;", true),
        ("ip any any -> any any", "fragbits:M;", false),
        ("ip any any -> any any", "ip_proto:17;", true),
        ("tcp any any -> any any", "dsize:3;", false),
        ("ip any any -> any any", "sameip; dsize:3;", false),
        ("udp any any -> any any", "content:\"abc\"; dsize:3;", true),
        ("udp any any -> any any", "content:\"abc\"; dsize:4;", false),
        ("udp any any -> any any", "content:\"BC\"; nocase; offset:1; depth:2;", true),
        ("udp any any -> any any", "byte_test:1,=,0x61,0;", true),
        ("udp any any -> any any", "byte_test:1,!=,0x61,0;", false),
        (
            "udp any any -> any any",
            "byte_math:bytes 1, offset 0, oper -, rvalue 0x60, result one; content:\"b\"; offset:one;",
            true,
        ),
        ("udp any any -> any any", "pcre:\"/^a.c$/\";", true),
        ("udp any any -> any any", "pcre:\"/^(a)(?!c)/\";", true),
        ("udp any any -> any any", "ipv4.hdr; content:\"|11|\"; offset:9; depth:1;", true),
        ("udp any any -> any any", "flow:established; dsize:3;", false),
        ("udp any any -> any any", "flow:to_server; dsize:3;", true),
        ("udp any any -> any any", "flow:to_client; dsize:3;", false),
    ];
    for (header, options, expected) in cases {
        let rule = format!("alert {header} ({options} sid:1;)");
        let found = !Bench::new(&rule, "").ask(b"abc", 1).is_empty();
        assert_eq!(found, expected, "{rule}");
    }
}

/// No bytes of a number in text are all digits that there are.
#[test]
fn numbers_in_text_may_have_any_length() {
    let cases = [
        ("byte_test:0,=,1234,1,string,dec;", true),
        ("byte_test:0,=,0x1234ab,1,string,hex;", true),
        ("byte_test:0,=,123,1,string,dec;", false),
        ("byte_test:0,>=,0,0,string,dec;", false),
        ("byte_test:0,>=,0,7,string,dec;", false),
        ("content:\"x12\"; byte_test:0,=,34,0,relative,string,dec;", true),
        ("byte_extract:0,3,n,string,dec; byte_test:2,=,n,3,string,dec;", true),
        ("byte_jump:0,1,string,dec,post_offset -1233; content:\"b\"; within:1;", true),
        ("byte_jump:0,7; isdataat:!1,relative;", true),
    ];
    for (options, expected) in cases {
        let rule = format!("alert udp any any -> any any ({options} sid:1;)");
        let found = !Bench::new(&rule, "").ask(b"x1234ab", 1).is_empty();
        assert_eq!(found, expected, "{rule}");
    }
}

/// Forms of options that Snort and Suricata take.
#[test]
fn options_in_other_forms() {
    let rules = "alert udp any any -> any any (flow:to_server; flow:established; sid:1;)\n\
                 alert udp any any -> any any (flow:to_server; flow:to_client; sid:2;)\n\
                 alert udp any any -> any any (content:\"a\"; flowbits:set,a&b; sid:3;)\n\
                 alert udp any any -> any any (flowbits:isset,a&b; dsize:1; sid:4;)\n\
                 alert udp any any -> any any (flowbits:isset,a&c; dsize:1; sid:5;)\n\
                 alert udp any any -> any any (flowbits:isset,a|c; dsize:1; sid:6;)\n\
                 alert udp any any -> any any (flowbits:isnotset,a&b; dsize:1; sid:7;)\n\
                 alert udp any any -> any any (flowbits:isnotset,a|c; dsize:1; sid:8;)\n";
    let mut bench = Bench::new(rules, "");
    let sorted = |mut sids: Vec<u32>| {
        sids.sort_unstable();
        sids
    };
    assert_eq!(sorted(bench.ask(b"x", 1)), [2, 7, 8]);
    assert_eq!(sorted(bench.answer(b"a", 2)), [2, 3, 4, 6, 8]);
    assert_eq!(sorted(bench.ask(b"x", 3)), [1, 4, 6, 8]);
}

/// Numbers that are read from the packet may be as large as numbers get: places that follow from them are out of reach.
#[test]
fn numbers_that_are_read_have_no_bounds() {
    let reads = [
        "byte_extract:8,0,v;",
        "byte_extract:8,0,v,multiplier 65535;",
        "byte_extract:8,1,v,relative,multiplier 100,align 4;",
        "byte_math:bytes 8, offset 0, oper +, rvalue 4294967295, result v;",
    ];
    let uses = [
        ("content:\"T\"; distance:v;", false),
        ("content:\"T\"; distance:v; within:v;", false),
        ("content:\"T\"; within:v;", true),
        ("content:\"T\"; offset:v;", false),
        ("content:\"T\"; depth:v;", true),
        ("content:\"T\"; offset:v; depth:v;", false),
        ("content:\"T\"; distance:v; endswith;", false),
        ("content:!\"T\"; distance:v;", true),
        ("isdataat:v;", false),
        ("isdataat:v,relative;", false),
        ("isdataat:!v,relative;", true),
        ("byte_test:1,>,0,v;", false),
        ("byte_test:1,>,0,v,relative;", false),
        ("byte_jump:1,v;", false),
        ("byte_jump:1,v,relative;", false),
        ("byte_jump:1,0,post_offset v;", false),
        ("byte_jump:1,0,relative,multiplier 65535,post_offset v;", false),
        ("byte_jump:1,0,from_end,post_offset v;", false),
    ];
    let payload = [&[0xff; 12][..], b"G", &[0xff; 16], b"T"].concat();
    for read in reads {
        for (using, expected) in uses {
            let rule =
                format!("alert udp any any -> any any (content:\"G\"; {read} {using} sid:1;)");
            let found = !Bench::new(&rule, "").ask(&payload, 1).is_empty();
            assert_eq!(found, expected, "{rule}");
        }
    }
}

#[test]
fn flows_remember() {
    let rules = r#"
alert udp any any -> any any (content:"two"; flowbits:isset,one; sid:1;)
alert udp any any -> any any (content:"one"; flowbits:set,one; noalert; sid:2;)
alert udp any any -> any any (content:"off"; flowbits:unset,one; sid:3;)
alert udp any any -> any any (content:"add"; flowint:n,+,1; noalert; sid:4;)
alert udp any any -> any any (dsize:>0; flowint:n,isset; flowint:n,>,1; sid:5;)
alert udp any any -> any any (content:"host"; xbits:set,seen,track ip_src,expire 10; sid:6;)
alert udp any any -> any any (content:"ask"; xbits:isset,seen,track ip_src; sid:7;)
alert udp any any -> any any (flow:established; content:"est"; sid:8;)
"#;
    let mut bench = Bench::new(rules, "");
    assert_eq!(bench.ask(b"two", 1), []);
    // What sets comes before what reads, wherever it is written.
    assert_eq!(bench.ask(b"one two", 1), [1]);
    assert_eq!(bench.ask(b"two", 1), [1]);
    assert_eq!(bench.ask(b"off", 1), [3]);
    assert_eq!(bench.ask(b"two", 1), []);
    assert_eq!(bench.ask(b"add", 1), []);
    assert_eq!(bench.ask(b"add", 1), [5]);
    let mut bench = Bench::new(rules, "");
    assert_eq!(bench.ask(b"ask", 1), []);
    assert_eq!(bench.ask(b"host", 1), [6]);
    assert_eq!(bench.ask(b"ask", 11), [7]);
    assert_eq!(bench.answer(b"ask est", 5), [8]);
    assert_eq!(bench.ask(b"ask", 12), []);
}

#[test]
fn thresholds_count() {
    let rule = |option: &str| format!("alert udp any any -> any any (dsize:>0; {option}; sid:1;)");
    let alerts = |rule: &str, limits: &str| {
        let mut bench = Bench::new(rule, limits);
        [1, 2, 3, 4, 5, 6, 61, 62, 70].map(|second| bench.ask(b"x", second).len())
    };
    let own =
        |kind: &str| rule(&format!("threshold:type {kind}, track by_src, count 2, seconds 10"));
    assert_eq!(alerts(&own("limit"), ""), [1, 1, 0, 0, 0, 0, 1, 1, 0]);
    assert_eq!(alerts(&own("threshold"), ""), [0, 1, 0, 1, 0, 1, 0, 1, 0]);
    assert_eq!(alerts(&own("both"), ""), [0, 1, 0, 0, 0, 0, 0, 1, 0]);
    // An alert does not begin a window: the third of seconds 40 to 60 and the first of the next one are of two.
    let rule_of_three = rule("threshold:type threshold, track by_src, count 3, seconds 60");
    let mut bench = Bench::new(&rule_of_three, "");
    let found = [0, 20, 40, 55, 58, 60, 80].map(|second| bench.ask(b"x", second + 1).len());
    assert_eq!(found, [0, 0, 1, 0, 0, 1, 0]);
    // Both ways of a pair count together.
    let both = rule("threshold:type limit, track by_both, count 1, seconds 60");
    let mut bench = Bench::new(&both, "");
    assert_eq!((bench.ask(b"x", 1).len(), bench.answer(b"x", 2).len()), (1, 0));
    let filter = rule("detection_filter:track by_src, count 2, seconds 10");
    assert_eq!(alerts(&filter, ""), [0, 0, 1, 1, 1, 1, 0, 0, 1]);
    let plain = "alert udp any any -> any any (dsize:>0; sid:1;)";
    let file = "event_filter gen_id 1, sig_id 1, type limit, track by_dst, count 1, seconds 5\n";
    assert_eq!(alerts(plain, file), [1, 0, 0, 0, 0, 0, 1, 0, 1]);
    assert_eq!(
        alerts(plain, "suppress gen_id 1, sig_id 1, track by_src, ip 10.0.0.0/24\n"),
        [0; 9]
    );
    assert_eq!(
        alerts(plain, "suppress gen_id 1, sig_id 1, track by_src, ip 10.0.1.0/24\n"),
        [1; 9]
    );
    let rate = "rate_filter gen_id 1, sig_id 1, track by_src, count 2, seconds 10, new_action drop, timeout 3\n";
    let mut bench = Bench::new(plain, rate);
    // After the time the count goes on where it was, as in Suricata.
    let drops = [1, 2, 3, 4, 9, 10, 14, 15, 16, 17].map(|second| {
        let frame = datagram(([10, 0, 0, 1], 4000), ([10, 0, 0, 2], 53), 64, b"x");
        bench.give(&frame, Sender::Client, second).1.drops
    });
    let dropped = [3, 4, 10, 17];
    assert_eq!(drops, [1, 2, 3, 4, 9, 10, 14, 15, 16, 17].map(|own| dropped.contains(&own)));
}

/// A search that is given up is no match, and no absence either; it is counted.
#[test]
fn searches_that_are_given_up_decide_nothing() {
    let expression = "/(?=a)(?:a|a)*(?=c)|zzz/";
    let rules = format!(
        "alert udp any any -> any any (dsize:>0; pcre:\"{expression}\"; sid:1;)\n\
         alert udp any any -> any any (dsize:>0; pcre:!\"{expression}\"; sid:2;)\n"
    );
    let mut bench = Bench::new(&rules, "");
    assert_eq!(bench.ask(b"b zzz", 1), [1]);
    assert_eq!(bench.ask(b"aac", 1), [1]);
    assert_eq!(bench.ask(b"b", 1), [2]);
    assert_eq!(bench.detector.counts().given_up, 0);
    let many = [&[b'a'; 60][..], b"c no, zzz"].concat();
    assert_eq!(bench.ask(&many, 1), [1]);
    let many = [&[b'a'; 60][..], b" c, zzz"].concat();
    assert_eq!(bench.ask(&many, 1), [0; 0]);
    assert_eq!(bench.detector.counts().given_up, 2);
}

/// An expression that matches nowhere is searched for once, however often what is before it is found.
#[test]
fn what_is_nowhere_is_searched_for_once() {
    let rules = "alert udp any any -> any any (content:\"a\"; pcre:\"/a(?=a)[^z]*zz/R\"; sid:1;)\n\
                 alert udp any any -> any any (content:\"a\"; pcre:\"/b(?=b)zc/R\"; sid:2;)\n";
    let mut bench = Bench::new(rules, "");
    // For the second rule, an expression without look-around finds something.
    let payload = [&[b'a'; 700][..], &[b'b'; 700], b"zc"].concat();
    assert_eq!(bench.ask(&payload, 1), [0; 0]);
    assert_eq!(bench.detector.counts().given_up, 0);
    assert_eq!(bench.ask(&[&payload[..700], b"zz"].concat(), 1), [1]);
}

#[test]
fn actions_have_an_order() {
    let rules = r#"
alert udp any any -> any any (content:"a"; sid:1;)
drop udp any any -> any any (content:"b"; sid:2;)
pass udp any any -> any any (content:"c"; sid:3;)
reject udp any any -> any any (content:"d"; sid:4;)
sdrop udp any any -> any any (content:"e"; sid:5;)
drop ip 10.9.9.9 any -> any any (sid:6;)
alert udp any any -> any any (content:"f"; priority:2; sid:7;)
alert udp any any -> any any (content:"f"; priority:1; sid:8;)
"#;
    let mut bench = Bench::new(rules, "");
    let mut give = |source: [u8; 4], payload: &[u8]| {
        let frame = datagram((source, 4000), ([10, 0, 0, 2], 53), 64, payload);
        let (sids, verdict) = bench.give(&frame, Sender::Client, 1);
        (sids, verdict.drops, verdict.rejects_source, verdict.drops_flow)
    };
    let own = [10, 0, 0, 1];
    assert_eq!(give(own, b"a"), (vec![1], false, false, false));
    assert_eq!(give(own, b"ab"), (vec![2, 1], true, false, false));
    assert_eq!(give(own, b"abc"), (vec![], false, false, false));
    assert_eq!(give(own, b"d"), (vec![4], true, true, false));
    assert_eq!(give(own, b"e"), (vec![], true, false, false));
    assert_eq!(give(own, b"f"), (vec![8, 7], false, false, false));
    // A rule of addresses alone drops the flow; what follows is not inspected.
    let mut bench = Bench::new(rules, "");
    let mut give = |payload: &[u8]| {
        let frame = datagram(([10, 9, 9, 9], 4000), ([10, 0, 0, 2], 53), 64, payload);
        let (sids, verdict) = bench.give(&frame, Sender::Client, 1);
        (sids, verdict.drops, verdict.drops_flow)
    };
    assert_eq!(give(b"a"), (vec![6, 1], true, true));
    assert_eq!(give(b"a"), (vec![], true, true));
}

/// A rule of ports alone is of the flow, negated addresses or not: what it passes is passed both ways.
#[test]
fn rules_of_ports_pass_and_drop_flows() {
    for pass in ["any any -> any 22", "any any -> !10.9.0.0/16 22", "any any <> any 22"] {
        let rules =
            format!("pass tcp {pass} (sid:1;)\ndrop tcp any any -> any any (noalert; sid:2;)\n");
        for (port, is_passed) in [(22, true), (23, false)] {
            let mut bench = Bench::new(&rules, "");
            for (sender, flags) in [(Sender::Client, 2), (Sender::Server, 18), (Sender::Client, 16)]
            {
                let mut frame = segment(sender, flags, &[]);
                let at = if sender == Sender::Client { 36 } else { 34 };
                frame[at..at + 2].copy_from_slice(&u16::to_be_bytes(port));
                let (sids, verdict) = bench.give(&frame, sender, 1);
                assert_eq!(sids, []);
                let found = (verdict.drops, verdict.drops_flow, verdict.passes_flow);
                assert_eq!(found, (!is_passed, !is_passed, is_passed), "{pass}, {port}");
            }
        }
    }
    // Such a rule is reported once for each direction.
    let mut bench = Bench::new("alert udp any any -> any 53 (sid:1;)\n", "");
    assert_eq!(
        [bench.ask(b"a", 1), bench.answer(b"b", 1), bench.ask(b"c", 1)],
        [vec![1], vec![], vec![]]
    );
}

/// Modes of `flags`: with `!`, not all of them are set, as in Suricata.
#[test]
fn flags_have_modes() {
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let cases: &[(&str, u8, bool)] = &[
        ("SF", SYN | FIN, true),
        ("SF", SYN | FIN | ACK, false),
        ("+SF", SYN | FIN | ACK, true),
        ("*SF", FIN, true),
        ("!SF", SYN | FIN, false),
        ("!SF", SYN | FIN | ACK, false),
        ("!SF", SYN, true),
        ("!SF", SYN | ACK, true),
        ("!SF", ACK, true),
        ("!S", SYN | ACK, false),
        ("!S", ACK, true),
        ("!SF,F", SYN | FIN, true),
        ("0", 0, true),
        ("!0", 0, false),
        ("!0", ACK, true),
    ];
    for (mode, flags, expected) in cases {
        let mut bench =
            Bench::new(&format!("alert tcp any any -> any any (flags:{mode}; sid:1;)\n"), "");
        let (sids, _) = bench.give(&segment(Sender::Client, *flags, &[]), Sender::Client, 1);
        assert_eq!(sids == [1], *expected, "{mode} of {flags}");
    }
}

#[test]
fn what_is_not_evaluated_is_said() {
    let rules = r#"
alert http any any -> any any (http.host; dataset:isset,none; sid:1;)
alert tcp any any -> any any (pcre:"/(?(1)a|b)/"; sid:2;)
alert tcp any any -> any any (content:"x"; sid:3;)
alert tcp any any -> any any (stream-event:3whs_synack_flood; sid:4;)
alert http any any -> any any (app-layer-event:http.unknown_error; sid:5;)
alert pkthdr any any -> any any (decode-event:ipv4.opt_pad_required; sid:6;)
alert tls any any -> any any (tls_cert_expired; sid:7;)
alert tls any any -> any any (ssl_state:client_hello; sid:8;)
alert http any any -> any any (app-layer-event:http.missing_host_headr; sid:9;)
alert ip any any -> any any (app-layer-event:aplayer_unexpected_protocol; sid:10;)
alert smb any any -> any any (app-layer-event:smb.internal_error; sid:11;)
alert http any any -> any any (app-layer-event:HTTP.MISSING_HOST_HEADER; sid:12;)
alert pkthdr any any -> any any (decode-event:ipv4.trunk_pkt; sid:13;)
"#;
    let variables = Variables::with_defaults([], []).expect("defaults");
    let mut loader = Loader::new(variables.clone());
    loader.read("rules", rules.as_bytes()).expect("memory");
    let (rules, refused) = Ruleset::compile(&loader.finish(), &variables, &Options::default());
    let reasons: Vec<(u32, &str)> =
        refused.iter().map(|own| (own.sid, own.reason.as_str())).collect();
    let expected = [
        (1, "dataset none was not loaded"),
        (2, "pcre: a group `(?(`"),
        (4, "stream-event:3whs_synack_flood: no such event is seen here"),
        (5, "app-layer-event:http.unknown_error: it is an error of the parser of Suricata"),
        (6, "decode-event:ipv4.opt_pad_required: no such event is seen here"),
        (7, "option tls_cert_expired"),
        (8, "option ssl_state"),
        (
            9,
            "app-layer-event:http.missing_host_headr: no such event; did you mean `http.missing_host_header`?",
        ),
        (
            10,
            "app-layer-event:aplayer_unexpected_protocol: no such event; did you mean `applayer_unexpected_protocol`?",
        ),
        (11, "app-layer-event:smb.internal_error: no parser here sees events of smb"),
        (
            13,
            "decode-event:ipv4.trunk_pkt: no such event is seen here; did you mean `ipv4.trunc_pkt`?",
        ),
    ];
    assert_eq!(reasons, expected);
    assert_eq!(rules.len(), 2);
}

#[test]
fn packets_without_a_flow() {
    let rules = "alert ip 10.0.0.1 any -> any any (sid:1;)\nalert udp any any -> any any (flow:established; sid:2;)\n";
    let mut bench = Bench::new(rules, "");
    let frame = datagram(([10, 0, 0, 1], 1), ([10, 0, 0, 2], 2), 64, b"x");
    let decoded = packet::decode(&frame, frame.len());
    let packet = Packet { decoded: &decoded, frame: &frame, time_ns: 1 };
    for _ in 0..2 {
        let mut alerts = Vec::new();
        bench.detector.lone(&packet, &mut alerts);
        assert_eq!(alerts.len(), 1);
    }
    assert_eq!(decoded.src_ip(), Some(IpAddr::from([10, 0, 0, 1])));
}

/// Rules about packets that cannot be decoded: by event, addresses and thresholds.
#[test]
fn events_of_the_decoder() {
    let rules = r#"
alert pkthdr any any -> any any (decode-event:ipv4.trunc_pkt; sid:1;)
alert ip 10.0.0.1 any -> any any (decode-event:ipv4.trunc_pkt; threshold:type limit, track by_src, count 1, seconds 60; sid:2;)
alert ipv6 any any -> any any (decode-event:ipv6.frag_missing; sid:3;)
alert ip any any -> any any (sid:4;)
pass ip 10.0.0.9 any -> any any (decode-event:ipv4.trunc_pkt; sid:5;)
"#;
    let mut bench = Bench::new(rules, "");
    let mut give = |name, source: &str| {
        let source = (source.parse().expect("an address"), 0);
        let event = Event { name, source, destination: source, protocol: 17, time_ns: 1 };
        bench.alerts.clear();
        bench.detector.event(&event, &mut bench.alerts);
        let rules = bench.detector.rules();
        let sids = bench.alerts.iter().map(|alert| rules.rule(alert.rule).sid);
        sids.collect::<Vec<_>>()
    };
    assert_eq!(give("ipv4.trunc_pkt", "10.0.0.1"), [1, 2]);
    assert_eq!(give("ipv4.trunc_pkt", "10.0.0.1"), [1]);
    assert_eq!(give("ipv4.trunc_pkt", "10.0.0.2"), [1]);
    assert_eq!(give("ipv4.trunc_pkt", "10.0.0.9"), []);
    assert_eq!(give("ipv6.frag_missing", "2001:db8::1"), [3]);
    assert_eq!(give("ipv4.hlen_too_small", "10.0.0.1"), []);
    // A packet of which nothing is wrong is none of them.
    let mut bench = Bench::new(rules, "");
    assert_eq!(bench.ask(b"x", 1), [4]);
}

/// Rules about streams are of the packet that brings the event, with the other conditions on it.
#[test]
fn events_of_streams() {
    let rules = r#"
alert tcp any any -> any any (stream-event:pkt_retransmission; sid:1;)
alert tcp any any -> any any (stream-event:pkt_retransmission; flow:to_client; sid:2;)
alert tcp any any -> any any (stream-event:pkt_retransmission; flags:A; flowbits:set,again; sid:3;)
alert tcp any any -> any any (stream-event:reassembly_seq_gap; flowbits:isset,again; sid:4;)
alert udp any any -> any any (stream-event:pkt_retransmission; sid:5;)
"#;
    let mut bench = Bench::new(rules, "");
    let mut give = |sender, flags, names: &[&str]| {
        let frame = segment(sender, flags, b"x");
        let decoded = packet::decode(&frame, frame.len());
        let packet = Packet { decoded: &decoded, frame: &frame, time_ns: 1 };
        bench.alerts.clear();
        bench.detector.begin(&packet, &mut bench.flow, sender);
        names.iter().for_each(|name| bench.detector.stream_event(name, sender));
        bench.detector.finish(&mut bench.flow, &mut bench.alerts);
        let rules = bench.detector.rules();
        let sids = bench.alerts.iter().map(|alert| rules.rule(alert.rule).sid);
        let mut sids: Vec<u32> = sids.collect();
        sids.sort_unstable(); // who writes a bit comes first
        sids
    };
    const AGAIN: &str = "pkt_retransmission";
    assert_eq!(give(Sender::Client, 16, &["reassembly_seq_gap"]), []);
    assert_eq!(give(Sender::Client, 24, &[AGAIN, AGAIN]), [1]);
    assert_eq!(give(Sender::Server, 16, &[AGAIN, "reassembly_seq_gap"]), [1, 2, 3, 4]);
    assert_eq!(give(Sender::Server, 16, &["no_flags"]), []);
    // At the end of a flow there is no packet.
    bench.alerts.clear();
    bench.detector.begin_end(&mut bench.flow, 2);
    bench.detector.stream_event("reassembly_seq_gap", Sender::Server);
    bench.detector.finish(&mut bench.flow, &mut bench.alerts);
    let alerts: Vec<_> = bench.alerts.iter().map(|own| own.sender).collect();
    assert_eq!(alerts, [Sender::Server]);
}

/// Bits of the header of IPv4, in fragments and in whole packets. Other rules do not see fragments.
#[test]
fn fragments() {
    // More 0x20, do not 0x40, reserved 0x80; the offset in units of eight bytes.
    let cases: &[(&str, u8, u8, bool)] = &[
        ("fragbits:M", 0x20, 0, true),
        ("fragbits:M", 0x60, 0, false),
        ("fragbits:M", 0x20, 9, true),
        ("fragbits:M", 0, 9, false),
        ("fragbits:+M", 0x20, 0, false),
        ("fragbits:+M", 0x60, 0, true),
        ("fragbits:M+", 0x20, 0, true),
        ("fragbits:M+", 0x60, 0, true),
        ("fragbits:MD+", 0x60, 0, true),
        ("fragbits:MD+", 0x20, 0, false),
        ("fragbits:*MR", 0xa0, 0, true),
        ("fragbits:*MD", 0, 9, false),
        ("fragbits:*MD", 0x20, 0, true),
        ("fragbits:!M", 0x20, 0, false),
        ("fragbits:!M", 0, 9, true),
        ("fragbits:!MD", 0x20, 0, true),
        ("fragbits:MD", 0x60, 0, true),
        ("fragbits:RDM", 0xe0, 0, true),
        ("fragbits:D", 0x40, 0, true),
        ("fragbits:R", 0x80, 0, true),
        ("fragbits:!D", 0, 0, true),
        ("fragoffset:0", 0x20, 0, true),
        ("fragoffset:>0", 0x20, 9, true),
        ("fragoffset:>0", 0x20, 0, false),
        ("fragoffset:9", 0, 9, true),
        ("fragoffset:0; dsize:0", 0x20, 0, true),
        ("fragbits:M; flags:S", 0x20, 0, false),
        ("fragbits:M; ttl:64", 0x20, 0, true),
        ("fragbits:M; ipv4.hdr; content:\"|40 11|\"; offset:8; depth:2", 0x20, 0, true),
        ("ttl:64", 0x20, 0, false),
        ("fragbits:M; content:\"abc\"", 0x20, 0, false),
    ];
    for (options, flags, offset, expected) in cases {
        let is_fragment = flags & 0x20 != 0 || *offset != 0;
        let rule = format!("alert ip any any -> any any ({options}; sid:1;)\n");
        let mut bench = Bench::new(&rule, "");
        let mut frame = datagram(([10, 0, 0, 1], 4000), ([10, 0, 0, 2], 53), 64, b"abc");
        (frame[20], frame[21]) = (*flags, *offset);
        let decoded = packet::decode(&frame, frame.len());
        let packet = Packet { decoded: &decoded, frame: &frame, time_ns: 1 };
        if is_fragment {
            bench.detector.fragment(&packet, &mut bench.alerts);
        } else {
            bench.detector.lone(&packet, &mut bench.alerts);
        }
        assert_eq!(bench.alerts.len() == 1, *expected, "{rule}, {flags:#x}, {offset}");
    }
    // Fragments have no ports.
    let mut bench = Bench::new("alert udp any any -> any !9 (fragbits:M; sid:1;)\n", "");
    let mut frame = datagram(([10, 0, 0, 1], 4000), ([10, 0, 0, 2], 53), 64, b"abc");
    frame[20] = 0x20;
    let decoded = packet::decode(&frame, frame.len());
    let packet = Packet { decoded: &decoded, frame: &frame, time_ns: 1 };
    bench.detector.fragment(&packet, &mut bench.alerts);
    assert!(bench.alerts.is_empty());
}

/// The windows of a rule go on after a reload, also where other rules come before it now.
#[test]
fn windows_outlive_a_reload() {
    let limited = |sid: u32| {
        format!(
            "alert udp any any -> any any (dsize:1; threshold:type limit, track by_rule, count 1, seconds 60; sid:{sid};)\n"
        )
    };
    let variables = Variables::with_defaults([], []).expect("defaults");
    let load = |text: &str| {
        let mut loader = Loader::new(variables.clone());
        loader.read("rules", text.as_bytes()).expect("memory");
        loader.finish()
    };
    let mut bench = Bench::new(&limited(2), "");
    assert_eq!([bench.ask(b"a", 1), bench.ask(b"b", 2)], [vec![2], vec![]]);
    let set = load(&(limited(1) + &limited(2)));
    let before = bench.detector.rules().clone();
    let (rules, _) = Ruleset::compile_after(&before, &set, &variables, &Options::default());
    bench.detector.replace(Arc::new(rules));
    assert_eq!([bench.ask(b"c", 3), bench.ask(b"d", 4)], [vec![1], vec![]]);
    assert_eq!(bench.ask(b"e", 70), [1, 2]);
}
