//! Rules in the first half, bytes of a stream in the other: whatever either is, evaluation ends, and cutting the stream
//! changes no count of alerts.
#![no_main]

use std::sync::Arc;

use detect::{Detector, FlowState, Options, Packet, PatternLimits, Ruleset, Sender};
use libfuzzer_sys::fuzz_target;
use signatures::{Loader, Variables};

/// An Ethernet frame with a segment of TCP over IPv4.
fn segment(sender: Sender, flags: u8, payload: &[u8]) -> Vec<u8> {
    let len = (40 + payload.len()) as u16;
    let (source, destination) = match sender {
        Sender::Client => ([10, 0, 0, 1, 10, 0, 0, 2], [16, 0, 0, 80]),
        Sender::Server => ([10, 0, 0, 2, 10, 0, 0, 1], [0, 80, 16, 0]),
    };
    let lead = [&[2; 12][..], &[8, 0, 0x45, 0], &len.to_be_bytes(), &[0, 1, 0, 0, 64, 6, 0, 0]];
    let tcp = [&destination[..], &[0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 16, 0, 0, 0, 0, 0]];
    [&lead.concat(), &source[..], &tcp.concat(), payload].concat()
}

fn alerts(rules: &Arc<Ruleset>, stream: &[u8], cut: usize) -> Vec<u32> {
    let mut detector = Detector::new(rules.clone());
    let (mut flow, mut found) = (FlowState::new(1), Vec::new());
    let mut give = |sender, flags, payload: &[u8], offset: usize| {
        let frame = segment(sender, flags, payload);
        let decoded = packet::decode(&frame, frame.len());
        let packet = Packet { decoded: &decoded, frame: &frame, time_ns: 1 };
        detector.begin(&packet, &mut flow, sender);
        detector.data(&mut flow, sender, offset as u64, payload);
        detector.finish(&mut flow, &mut found);
    };
    give(Sender::Client, 2, &[], 0);
    give(Sender::Server, 18, &[], 0);
    give(Sender::Client, 16, &[], 0);
    for (number, piece) in stream.chunks(cut).enumerate() {
        give(Sender::Client, 24, piece, number * cut);
    }
    detector.begin_end(&mut flow, 2);
    detector.finish(&mut flow, &mut found);
    let streams = found.iter().filter(|alert| alert.found == detect::Found::Stream);
    let mut rules: Vec<u32> = streams.map(|alert| alert.rule).collect();
    rules.sort_unstable();
    rules
}

/// Fragments of any kind by themselves, and each event of a stream in a step of its own: they end, too.
fn apart(rules: &Arc<Ruleset>, stream: &[u8]) {
    let mut detector = Detector::new(rules.clone());
    let (mut flow, mut found) = (FlowState::new(1), Vec::new());
    for field in stream.chunks_exact(2).take(8) {
        let mut frame = segment(Sender::Client, 16, stream);
        frame[20..22].copy_from_slice(field);
        let decoded = packet::decode(&frame, frame.len());
        let packet = Packet { decoded: &decoded, frame: &frame, time_ns: 1 };
        let _ = detector.fragment(&packet, &mut found);
    }
    let frame = segment(Sender::Client, 16, stream);
    let decoded = packet::decode(&frame, frame.len());
    for name in detect::STREAM_EVENTS {
        let packet = Packet { decoded: &decoded, frame: &frame, time_ns: 1 };
        detector.begin(&packet, &mut flow, Sender::Client);
        detector.stream_event(name, Sender::Client);
        let _ = detector.finish(&mut flow, &mut found);
    }
    detector.begin_end(&mut flow, 2);
    detector.stream_event("reassembly_seq_gap", Sender::Server);
    let _ = detector.finish(&mut flow, &mut found);
}

fuzz_target!(|bytes: &[u8]| {
    let at = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (text, stream) = bytes.split_at(at);
    let variables = Variables::with_defaults([], []).expect("they are in order");
    let mut loader = Loader::new(variables.clone());
    loader.read("rules", text).expect("memory can be read");
    let patterns = PatternLimits { size_max: 1 << 18, backtrack_max: 1_000 };
    let options = Options { patterns, ..Options::default() };
    let set = loader.finish();
    let (rules, refused) = Ruleset::compile(&set, &variables, &options);
    assert_eq!(rules.len() + refused.len(), set.rules.len());
    let stream = &stream[..stream.len().min(2_000)];
    let rules = Arc::new(rules);
    apart(&rules, stream);
    let whole = alerts(&rules, stream, 2_000);
    // What a match sets, and how often it counts, is of the order in which matches come; so is what a bound gives up.
    let text = String::from_utf8_lossy(text);
    let is_plain = ![
        "flowbits",
        "flowint",
        "bits",
        "threshold",
        "filter",
        "pcre",
        "byte_",
        "drop",
        "pass",
        "reject",
    ]
    .iter()
    .any(|word| text.contains(word));
    let cut = alerts(&rules, stream, 7);
    assert!(!is_plain || whole == cut, "{whole:?} {cut:?}");
});
