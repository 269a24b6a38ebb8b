//! Random rules over random streams: a plain twin, and every way to cut the stream.
//!
//! The twin tries each place of each content, without literals, windows or bounds. The streams are messages of either end
//! in turn.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use detect::{Alert, Detector, FlowState, Found, Options, Packet, Ruleset, Search, Sender};
use signatures::{Check, Content, Loader, Rule, Value, Variables};

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn chance(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    fn letters(&mut self, most: u64) -> String {
        (0..1 + self.below(most)).map(|_| char::from(b"abAB"[self.below(4) as usize])).collect()
    }
}

fn rule(random: &mut Random, sid: u32) -> String {
    let mut options = String::new();
    let arrow = ["", "flow:to_server;", "flow:to_client;", "flow:to_server,established;"];
    options.push_str(arrow[random.below(4) as usize]);
    for at in 0..1 + random.below(4) {
        let negated = if at > 0 && random.chance(4) { "!" } else { "" };
        options.push_str(&format!("content:{negated}\"{}\";", random.letters(3)));
        if random.chance(3) {
            options.push_str("nocase;");
        }
        match random.below(8) {
            0 => options.push_str(&format!("offset:{};", random.below(5))),
            1 => options.push_str(&format!("depth:{};", 3 + random.below(5))),
            2 => options.push_str(&format!(
                "offset:{};depth:{};",
                random.below(3),
                3 + random.below(4)
            )),
            3 if at > 0 => options.push_str(&format!("distance:{};", random.below(4) as i64 - 1)),
            4 if at > 0 => options.push_str(&format!("within:{};", 3 + random.below(4))),
            5 if at > 0 => {
                options.push_str(&format!(
                    "distance:{};within:{};",
                    random.below(3),
                    3 + random.below(4)
                ));
            }
            6 => options.push_str("endswith;"),
            _ => {}
        }
        if random.chance(5) {
            let negated = if random.chance(2) { "!" } else { "" };
            options.push_str(&format!("isdataat:{negated}{},relative;", 1 + random.below(3)));
        }
    }
    format!("alert tcp any any -> any any ({options} sid:{sid};)")
}

/// Is a place of a content as its modifiers ask for?
fn fits(content: &Content, at: usize, last: usize, len: usize, begin: usize) -> bool {
    let number = |value: &Option<Value>| {
        value.as_ref().map(|value| match value {
            Value::Number(number) => *number,
            Value::Name(_) => unreachable!("the rules here have no names"),
        })
    };
    // Places count from the beginning of the stream.
    let start = -(begin as i64);
    let (begin, end) = (at as i64, (at + content.bytes.len()) as i64);
    let is_relative = content.distance.is_some() || content.within.is_some();
    let base = if is_relative { last as i64 } else { start };
    let offset = number(&content.offset).unwrap_or(0);
    let from = base + number(&content.distance).unwrap_or(0);
    (!is_relative || begin >= from)
        && number(&content.within).is_none_or(|within| end <= from + within)
        && (content.offset.is_none() || begin >= base + offset)
        && number(&content.depth).is_none_or(|depth| end <= base + offset + depth)
        && (!content.startswith || begin == base)
        && (!content.endswith || end == len as i64)
}

/// Whether checks hold of bytes that begin at this place of a stream.
fn holds(checks: &[Check], bytes: &[u8], last: usize, begin: usize) -> bool {
    let Some((check, rest)) = checks.split_first() else { return true };
    match check {
        Check::Content(content) => {
            let places = (0..bytes.len()).filter(|at| {
                let piece = bytes.get(*at..*at + content.bytes.len());
                piece.is_some_and(|piece| match content.nocase {
                    true => piece.eq_ignore_ascii_case(&content.bytes),
                    false => piece == content.bytes,
                }) && fits(content, *at, last, bytes.len(), begin)
            });
            let mut places = places.collect::<Vec<_>>().into_iter();
            match content.negated {
                true => places.next().is_none() && holds(rest, bytes, last, begin),
                false => places.any(|at| holds(rest, bytes, at + content.bytes.len(), begin)),
            }
        }
        Check::IsDataAt(is) => {
            let Value::Number(number) = is.at else { unreachable!("no names") };
            (last as i64 + number <= bytes.len() as i64) != is.negated
                && holds(rest, bytes, last, begin)
        }
        other => unreachable!("{other:?}"),
    }
}

/// A segment of IPv4 and TCP in an Ethernet frame.
pub(crate) fn segment(sender: Sender, flags: u8, payload: &[u8]) -> Vec<u8> {
    let len = (40 + payload.len()) as u16;
    let (source, destination) = match sender {
        Sender::Client => (([10, 0, 0, 1], 4000_u16), ([10, 0, 0, 2], 80_u16)),
        Sender::Server => (([10, 0, 0, 2], 80), ([10, 0, 0, 1], 4000)),
    };
    let mut frame =
        [&[2; 12][..], &[8, 0], &[0x45, 0], &len.to_be_bytes(), &[0, 1, 0, 0, 64, 6, 0, 0]]
            .concat();
    frame.extend_from_slice(&source.0);
    frame.extend_from_slice(&destination.0);
    frame.extend_from_slice(&source.1.to_be_bytes());
    frame.extend_from_slice(&destination.1.to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 16, 0, 0, 0, 0, 0]);
    frame.extend_from_slice(payload);
    frame
}

/// A detector and what it found.
struct Worker {
    detector: Detector,
    flow: FlowState,
    found: Vec<Alert>,
}

impl Worker {
    fn new(rules: &Arc<Ruleset>) -> Self {
        Self { detector: Detector::new(rules.clone()), flow: FlowState::new(1), found: Vec::new() }
    }

    fn packet(&mut self, sender: Sender, flags: u8, payload: &[u8], offset: u64, is_clean: bool) {
        let frame = segment(sender, flags, payload);
        let decoded = packet::decode(&frame, frame.len());
        let packet = Packet { decoded: &decoded, frame: &frame, time_ns: 1 };
        self.detector.begin_searched(&packet, &mut self.flow, sender, is_clean);
        if !payload.is_empty() {
            self.detector.data_searched(&mut self.flow, sender, offset, payload, is_clean);
        }
        self.detector.finish(&mut self.flow, &mut self.found);
    }
}

/// Alerts by sid of messages that are cut into pieces of `cut(length)` bytes. With a search ahead they are the same.
fn alerts(
    rules: &Arc<Ruleset>,
    messages: &[Vec<u8>],
    cut: impl FnMut(usize) -> usize,
) -> BTreeMap<u32, usize> {
    alerts_and_packets(rules, messages, cut).0
}

/// And alerts of packets that begin a message.
fn alerts_and_packets(
    rules: &Arc<Ruleset>,
    messages: &[Vec<u8>],
    mut cut: impl FnMut(usize) -> usize,
) -> (BTreeMap<u32, usize>, BTreeMap<u32, usize>) {
    let literals = rules.literals().expect("small tables");
    let mut workers = [Worker::new(rules), Worker::new(rules)];
    let mut begun = BTreeMap::new();
    let mut packets = |sender, flags, payload: &[u8], offset, begins| {
        let mut is_clean = literals.is_some();
        if let Some(literals) = &literals {
            literals.scan(literals.start(), payload, 0, |_| is_clean = false);
        }
        let [plain, searched] = &mut workers;
        let before = plain.found.len();
        plain.packet(sender, flags, payload, offset, false);
        searched.packet(sender, flags, payload, offset, is_clean);
        assert_eq!(plain.found, searched.found, "{is_clean}: {payload:02x?} at {offset}");
        let of_packet = |alert: &&Alert| begins && alert.found == Found::Packet;
        for alert in plain.found[before..].iter().filter(of_packet) {
            *begun.entry(rules.rule(alert.rule).sid).or_default() += 1;
        }
    };
    packets(Sender::Client, 2, &[], 0, false);
    packets(Sender::Server, 18, &[], 0, false);
    packets(Sender::Client, 16, &[], 0, false);
    let mut offsets = [0; 2];
    for (number, message) in messages.iter().enumerate() {
        let sender = if number % 2 == 0 { Sender::Client } else { Sender::Server };
        let mut rest = &message[..];
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(cut(rest.len()).clamp(1, rest.len()));
            packets(sender, 24, piece, offsets[number % 2], rest.len() == message.len());
            offsets[number % 2] += piece.len() as u64;
            rest = behind;
        }
    }
    let [found, searched] = workers.map(|mut own| {
        own.detector.begin_end(&mut own.flow, 2);
        own.detector.finish(&mut own.flow, &mut own.found);
        own.found
    });
    assert_eq!(found, searched, "at the end");
    let mut counts = BTreeMap::new();
    // Those of packets depend on segments.
    let streams = found.iter().filter(|alert| alert.found == Found::Stream);
    streams.for_each(|alert| *counts.entry(rules.rule(alert.rule).sid).or_default() += 1);
    (counts, begun)
}

fn check(seed: u64) -> usize {
    let mut random = Random(seed);
    let texts: Vec<String> = (1..=20).map(|sid| rule(&mut random, sid)).collect();
    // Some combinations of modifiers are no rules.
    let rules: Vec<Rule> =
        texts.iter().filter_map(|text| Rule::parse(text.as_bytes()).ok()).collect();
    let variables = Variables::with_defaults([], []).expect("defaults");
    let mut loader = Loader::new(variables.clone());
    loader.read("random", texts.join("\n").as_bytes()).expect("memory");
    let (set, options) = (loader.finish(), Options::default());
    let (fast, refused) = Ruleset::compile(&set, &variables, &options);
    assert!(refused.is_empty(), "seed {seed}: {refused:?}");
    let plain = [Search::Grouped, Search::Every].map(|search| {
        let options = Options { search, ..options.clone() };
        Arc::new(Ruleset::compile(&set, &variables, &options).0)
    });
    let messages: Vec<Vec<u8>> = (0..1 + random.below(8))
        .map(|_| (0..1 + random.below(24)).map(|_| b"abABc"[random.below(5) as usize]).collect())
        .collect();
    let mut expected: BTreeMap<u32, usize> = BTreeMap::new();
    for rule in &rules {
        // What each end sent, and up to where the rule was found in it.
        let mut streams = [(Vec::new(), 0), (Vec::new(), 0)];
        for (number, message) in messages.iter().enumerate() {
            let text = rule.to_string();
            let is_other = text.contains("to_server") && number % 2 == 1
                || text.contains("to_client") && number % 2 == 0;
            let (stream, from) = &mut streams[number % 2];
            let is_first = *from == stream.len();
            stream.extend_from_slice(message);
            let checks = &rule.inspections[0].checks;
            let is_found = holds(checks, message, 0, 0)
                || !is_first && holds(checks, &stream[*from..], 0, *from);
            if !is_other && is_found {
                *expected.entry(rule.sid).or_default() += 1;
                *from = stream.len();
            }
        }
    }
    let show = || format!("seed {seed}\n{}\n{messages:?}", texts.join("\n"));
    let agrees = |(found, begun): (BTreeMap<u32, usize>, BTreeMap<u32, usize>), how: &str| {
        for rule in &rules {
            let of = |counts: &BTreeMap<u32, usize>| counts.get(&rule.sid).copied().unwrap_or(0);
            let (found, begun, expected) = (of(&found), of(&begun), of(&expected));
            let text = rule.to_string();
            let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
            // With a fixed place and an absence, the packet that begins a message may match in place of the message.
            let may_begin = has(&["offset", "depth", "startswith"]) && has(&["!", "endswith"]);
            let is_it = match may_begin {
                true => found + begun >= expected,
                false => found == expected && begun == 0,
            };
            assert!(is_it, "{how}: {found}, {begun}, {expected} of {text}, {}", show());
        }
    };
    for rules in plain.iter().chain([&Arc::new(fast)]) {
        agrees(alerts_and_packets(rules, &messages, |len| len), "whole");
        agrees(alerts_and_packets(rules, &messages, |_| 1), "bytes");
        let cut = 1 + random.below(24) as usize;
        agrees(alerts_and_packets(rules, &messages, |_| cut), &format!("by {cut}"));
        let any = |len| 1 + random.below(len as u64) as usize;
        agrees(alerts_and_packets(rules, &messages, any), "random");
    }
    expected.values().sum()
}

#[test]
fn alerts_are_those_of_the_plain_twin_however_streams_are_cut() {
    let alerts: usize = (0..300).map(check).sum();
    assert!(alerts > 1_000, "{alerts} alerts");
}

/// Fifty seeds that no run had before; a failure names its own.
#[test]
fn the_same_with_fresh_seeds() {
    let fresh = RandomState::new().hash_one(0);
    (0..50).for_each(|n| {
        check(fresh.wrapping_add(n));
    });
}

/// Messages that are longer than what is kept of them.
#[test]
fn a_match_in_a_long_message_is_found_once_wherever_it_is() {
    let text = b"alert tcp any any -> any any (content:\"needle\"; content:\"thread\"; distance:0; within:40; sid:1;)
alert tcp any any -> any any (content:\"needle\"; content:!\"absent\"; sid:2;)
alert tcp any any -> any any (content:\"tail\"; endswith; sid:3;)
alert tcp any any -> any any (content:\"needle\"; depth:6; sid:4;)
alert tcp any any -> any any (pcre:\"/needle.{0,40}thread/\"; sid:5;)";
    let variables = Variables::with_defaults([], []).expect("defaults");
    let mut loader = Loader::new(variables.clone());
    loader.read("long", &text[..]).expect("memory");
    let (rules, refused) = Ruleset::compile(&loader.finish(), &variables, &Options::default());
    assert!(refused.is_empty(), "{refused:?}");
    let rules = Arc::new(rules);
    let mut random = Random(7);
    let mut seen: HashMap<usize, BTreeMap<u32, usize>> = HashMap::new();
    for at in [0, 1, 4_080, 4_090, 4_096, 8_160, 8_170, 8_185, 8_192, 12_270, 20_000, 29_950] {
        let mut message = vec![b'.'; 30_000];
        message[at..at + 6].copy_from_slice(b"needle");
        message[at + 20..at + 26].copy_from_slice(b"thread");
        message[29_996..].copy_from_slice(b"tail");
        let mut expected = BTreeMap::from([(1, 1), (2, 1), (3, 1), (5, 1)]);
        if at == 0 {
            expected.insert(4, 1);
        }
        for cut in [30_000, 1_460, 8_192, 4_096, 97] {
            assert_eq!(alerts(&rules, &[message.clone()], |_| cut), expected, "at {at}, by {cut}");
        }
        let cut = 1 + random.below(3_000) as usize;
        seen.insert(at, alerts(&rules, &[message], |_| cut));
        assert_eq!(seen[&at], expected, "at {at}, by {cut}");
    }
}
