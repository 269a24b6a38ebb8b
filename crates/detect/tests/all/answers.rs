//! Streams whose other end answers in between, and packets of streams.
//!
//! Whether a rule matches was compared with Suricata 7.0.10, where all segments are acknowledged. How often it matches depends there
//! on when its stream is inspected, here on messages.

use std::sync::Arc;

use detect::{Alert, Detector, FlowState, Found, Options, Packet, Ruleset, Sender};
use signatures::{Loader, Variables};

use crate::twin::segment;

/// Segments in turn, with the sender's letter before it: `C` the client, `S` the server.
const CASES: &[(&str, &str, &[&str], usize)] = &[
    ("a content over an answer", r#"content:"root""#, &["Cxx ro", "Sok", "Cot yy"], 1),
    ("the same byte by byte", r#"content:"root""#, &["Cr", "Sr", "Co", "So", "Co", "So", "Ct"], 1),
    ("an expression", r#"pcre:"/ro+t/""#, &["Cxx ro", "Sok", "Cot yy"], 1),
    ("two contents", r#"content:"xx"; content:"yy""#, &["Cxx ro", "Sok", "Cot yy"], 1),
    (
        "two contents, in order",
        r#"content:"yy"; content:"xx"; distance:0"#,
        &["Cxx", "S1", "Cyy"],
        0,
    ),
    ("of the server", r#"flow:to_client; content:"root""#, &["Cr", "Sxro", "Co", "Sotx"], 1),
    ("the other end's bytes do not count", r#"content:"root""#, &["Cro", "Sot", "Cxx"], 0),
    (
        "each message by itself",
        r#"content:"root""#,
        &["Croot", "S1", "Croot", "S2", "Cro", "S3", "Cot"],
        3,
    ),
    (
        "once over an answer",
        r#"content:"root""#,
        &["Cro", "S1", "Cot", "S2", "Cxx", "S3", "Cyy"],
        1,
    ),
    // Suricata inspects all of it at once, and finds nothing.
    (
        "absent from a message",
        r#"content:"ro"; content:!"zz""#,
        &["Crx", "S1", "Cro", "S2", "Czz"],
        1,
    ),
    (
        "fixed places count from the beginning",
        r#"flow:only_stream; content:"root"; depth:7"#,
        &["Cxx ro", "Sok", "Cot yy"],
        1,
    ),
    (
        "a place too far",
        r#"flow:only_stream; content:"root"; depth:6"#,
        &["Cxx ro", "Sok", "Cot yy"],
        0,
    ),
    (
        "each packet at a fixed place",
        r#"content:"BEACON"; depth:6"#,
        &["CAAAA", "CBEACON01", "CBEACON02"],
        2,
    ),
    (
        "and at the beginning of a message",
        r#"content:"BEACON"; startswith"#,
        &["CBEACON01", "S1", "CBEACON02", "CBEACON03"],
        3,
    ),
    (
        "no packets where streams are asked for",
        r#"flow:only_stream; content:"BEACON"; depth:6"#,
        &["CAAAA", "CBEACON01"],
        0,
    ),
    (
        "a packet that begins a message, and an absence",
        r#"content:"ro"; depth:4; isdataat:!3,relative"#,
        &["Cxro", "Cmore of it", "S1"],
        1,
    ),
    (
        "the same of the message as well",
        r#"content:"ro"; depth:4; isdataat:!3,relative"#,
        &["Cxro", "S1", "Cxro", "Cx", "S2"],
        2,
    ),
    (
        "an absence that the message ends",
        r#"content:"ro"; depth:4; content:!"A""#,
        &["Cxro", "C A", "S1", "CA ro", "Cxx"],
        1,
    ),
    (
        "the same of streams only",
        r#"flow:only_stream; content:"ro"; depth:4; content:!"A""#,
        &["Cxro", "C A", "S1", "CA ro", "Cxx"],
        0,
    ),
    ("a packet and its message are one match", r#"content:"ot"; offset:1"#, &["Cxxro", "Cxot"], 1),
];

/// Alerts of a rule over segments, with the kind of each.
fn alerts(options: &str, segments: &[(Sender, Vec<u8>)]) -> Vec<Found> {
    let variables = Variables::with_defaults([], []).expect("defaults");
    let mut loader = Loader::new(variables.clone());
    let text = format!("alert tcp any any -> any any ({options}; sid:1;)");
    loader.read("rules", text.as_bytes()).expect("memory");
    let (rules, refused) = Ruleset::compile(&loader.finish(), &variables, &Options::default());
    assert!(refused.is_empty(), "{refused:?}");
    let mut detector = Detector::new(Arc::new(rules));
    let (mut flow, mut alerts): (_, Vec<Alert>) = (FlowState::new(1), Vec::new());
    let mut offsets = [0; 2];
    let handshake = [(Sender::Client, 2), (Sender::Server, 18), (Sender::Client, 16)];
    let handshake = handshake.map(|(sender, flags)| (sender, flags, &[][..]));
    let segments = segments.iter().map(|(sender, bytes)| (*sender, 24, &bytes[..]));
    for (sender, flags, bytes) in handshake.into_iter().chain(segments) {
        let frame = segment(sender, flags, bytes);
        let decoded = packet::decode(&frame, frame.len());
        detector.begin(&Packet { decoded: &decoded, frame: &frame, time_ns: 1 }, &mut flow, sender);
        if !bytes.is_empty() {
            let offset = &mut offsets[sender.index()];
            detector.data(&mut flow, sender, *offset, bytes);
            *offset += bytes.len() as u64;
        }
        detector.finish(&mut flow, &mut alerts);
    }
    detector.begin_end(&mut flow, 2);
    detector.finish(&mut flow, &mut alerts);
    alerts.iter().map(|alert| alert.found).collect()
}

fn segments(texts: &[&str]) -> Vec<(Sender, Vec<u8>)> {
    let segment = |text: &&str| {
        let sender = if text.starts_with('C') { Sender::Client } else { Sender::Server };
        (sender, text.as_bytes()[1..].to_vec())
    };
    texts.iter().map(segment).collect()
}

#[test]
fn answers_hide_nothing() {
    for (name, options, texts, expected) in CASES {
        let found = alerts(options, &segments(texts));
        assert_eq!(found.len(), *expected, "{name}: {found:?}");
    }
}

/// The tail of a long message, and the head of one.
#[test]
fn long_messages_before_and_behind_an_answer() {
    let fill = |len: usize| vec![b'.'; len];
    for (before, behind) in
        [(0, 20_000), (20_000, 0), (20_000, 20_000), (4_000, 9_000), (8_192, 8_188)]
    {
        let first = [fill(before), b"need".to_vec()].concat();
        let second = [b"le".to_vec(), fill(behind)].concat();
        let whole =
            [(Sender::Client, first), (Sender::Server, b"ok".to_vec()), (Sender::Client, second)];
        for cut in [usize::MAX, 1_460, 1_000, 4_096] {
            let pieces = whole.iter().flat_map(|(sender, bytes)| {
                bytes.chunks(cut.min(bytes.len())).map(|piece| (*sender, piece.to_vec()))
            });
            let pieces: Vec<_> = pieces.collect();
            let found = alerts("content:\"needle\"", &pieces);
            assert_eq!(found, [Found::Stream], "{before}, {behind} by {cut}");
        }
    }
}

/// Very short messages, each answered: the work is bounded, and what is split over many of them is found.
#[test]
fn a_line_of_single_bytes_with_echo() {
    let text = [&b"login: ".repeat(800)[..], b"needle thread", &b"x".repeat(2_000)].concat();
    let pieces = text
        .iter()
        .flat_map(|byte| [Sender::Client, Sender::Server].map(|sender| (sender, vec![*byte])));
    let pieces: Vec<_> = pieces.collect();
    let rule = "flow:to_server; content:\"needle\"; content:\"thread\"; distance:1; within:6";
    assert_eq!(alerts(rule, &pieces), [Found::Stream]);
}

/// What a flow keeps is counted; without memory its streams are searched as they come.
#[test]
fn memory_is_counted_and_given_back() {
    let variables = Variables::with_defaults([], []).expect("defaults");
    let mut loader = Loader::new(variables.clone());
    let text = br#"alert tcp any any -> any any (content:"needle"; sid:1;)
alert tcp any any -> any any (content:"thr"; content:!"ead"; sid:2;)"#;
    loader.read("rules", &text[..]).expect("memory");
    let (rules, refused) = Ruleset::compile(&loader.finish(), &variables, &Options::default());
    assert!(refused.is_empty(), "{refused:?}");
    let mut detector = Detector::new(Arc::new(rules));
    let (mut flow, mut offset) = (FlowState::new(1), 0);
    let mut give = |bytes: &[u8], is_short: bool| {
        let frame = segment(Sender::Client, 24, bytes);
        let decoded = packet::decode(&frame, frame.len());
        let packet = Packet { decoded: &decoded, frame: &frame, time_ns: 1 };
        let mut alerts = Vec::new();
        detector.begin(&packet, &mut flow, Sender::Client);
        detector.data(&mut flow, Sender::Client, offset, bytes);
        offset += bytes.len() as u64;
        let before = detector.memory(&mut flow);
        if is_short {
            detector.cut(&mut flow, 0);
        }
        detector.finish(&mut flow, &mut alerts);
        let sids = alerts.iter().map(|alert| detector.rules().rule(alert.rule).sid);
        (before, detector.memory(&mut flow), sids.collect::<Vec<u32>>())
    };
    for len in [100, 5_000, 9_000, 9_000] {
        let (before, after, found) = give(&vec![b'x'; len], false);
        assert_eq!(found, []);
        assert!((len.min(8_192)..8_192 + 1_024).contains(&before), "{before} bytes of {len}");
        assert_eq!(before, after);
    }
    // A match waits for nothing that is not kept.
    let (before, after, found) = give(b"thr nee", true);
    assert!(before > 8_000 && after < 100, "{before} {after}");
    assert_eq!(found, [2]);
    assert_eq!(give(b"dle", true).2, []);
    assert_eq!(give(b"needle", true).2, [1]);
    assert_eq!(give(b"nee", false).2, []);
    assert_eq!(give(b"dle", false).2, [1]);
}
