//! Random rules over buffers of transactions: however rules are searched for, and however buffers come, the alerts are the same.

use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use detect::{BufferPart, Detector, FlowState, Found, Options, Packet, Ruleset, Search, Sender};
use signatures::{Buffer, Loader, Variables};

use crate::twin::{Random, segment};

const BUFFERS: [(Buffer, Sender); 7] = [
    (Buffer::HttpMethod, Sender::Client),
    (Buffer::HttpUri, Sender::Client),
    (Buffer::HttpHeader, Sender::Client),
    (Buffer::HttpCookie, Sender::Client),
    (Buffer::HttpRequestBody, Sender::Client),
    (Buffer::HttpHeader, Sender::Server),
    (Buffer::FileData, Sender::Server),
];

fn word(random: &mut Random) -> String {
    (0..3 + random.below(3)).map(|_| char::from(b"abAB"[random.below(4) as usize])).collect()
}

fn rule(random: &mut Random, sid: u32) -> String {
    let to = ["", "flow:to_server;", "flow:to_client;", "flow:established;"];
    let mut options = to[random.below(4) as usize].to_owned();
    for _ in 0..1 + random.below(3) {
        let (buffer, _) = BUFFERS[random.below(7) as usize];
        options.push_str(buffer.name());
        options.push(';');
        if random.below(5) == 0 {
            options.push_str("to_lowercase;");
        }
        for _ in 0..1 + random.below(2) {
            let word = word(random);
            let _ = match random.below(8) {
                0 => write!(options, "content:!\"{word}\";"),
                1 => write!(options, "pcre:\"/{word}[ab]*{word}/i\";"),
                2 => write!(options, "pcre:\"/({word}|a+b)/\";"),
                3 => write!(options, "content:\"{word}\";nocase;"),
                4 => write!(options, "content:\"{word}\";depth:12;"),
                5 => write!(options, "content:\"{}\";", &word[..1]),
                _ => write!(options, "content:\"{word}\";"),
            };
        }
    }
    format!("alert http any any -> any any ({options} sid:{sid};)")
}

/// A buffer that comes, in one piece or several.
#[derive(Clone, Debug)]
struct Given {
    buffer: usize,
    transaction: u64,
    bytes: Vec<u8>,
    cut: usize,
}

type Alerts = Vec<(u32, Option<u64>, Sender)>;

fn alerts(rules: &Arc<Ruleset>, steps: &[Vec<Given>], is_cut: bool) -> Alerts {
    let mut detector = Detector::new(rules.clone());
    let (mut flow, mut found) = (FlowState::new(1), Vec::new());
    flow.set_application(Sender::Client, "http");
    flow.set_application(Sender::Server, "http");
    let begin = |sender: Sender, flags, detector: &mut Detector, flow: &mut FlowState| {
        let frame = segment(sender, flags, &[]);
        let decoded = packet::decode(&frame, frame.len());
        detector.begin(&Packet { decoded: &decoded, frame: &frame, time_ns: 1 }, flow, sender);
    };
    for (sender, flags) in [(Sender::Client, 2), (Sender::Server, 18), (Sender::Client, 16)] {
        begin(sender, flags, &mut detector, &mut flow);
        detector.finish(&mut flow, &mut found);
    }
    for step in steps {
        begin(Sender::Client, 16, &mut detector, &mut flow);
        for given in step {
            let (buffer, sender) = BUFFERS[given.buffer];
            let at = if is_cut { given.cut.min(given.bytes.len()) } else { 0 };
            let (first, last) = given.bytes.split_at(at);
            let pieces = [(first, false), (last, true)];
            for (bytes, is_complete) in &pieces[usize::from(at == 0)..] {
                let (transaction, number) = (given.transaction, 0);
                let is_complete = *is_complete;
                let part = BufferPart { buffer, sender, transaction, number, bytes, is_complete };
                detector.buffer(&mut flow, &part);
            }
            // The last buffer of a side.
            if matches!(given.buffer, 4 | 6) {
                detector.end_of_side(&mut flow, sender, given.transaction);
            }
        }
        detector.finish(&mut flow, &mut found);
    }
    let mut alerts: Alerts = found
        .iter()
        .map(|own| {
            let transaction = match own.found {
                Found::Transaction(number) => Some(number),
                _ => None,
            };
            (rules.rule(own.rule).sid, transaction, own.sender)
        })
        .collect();
    alerts.sort_unstable_by_key(|own| (own.0, own.1, own.2 as u8));
    alerts
}

fn check(seed: u64) -> usize {
    let mut random = Random(seed);
    let texts: Vec<String> = (1..=30).map(|sid| rule(&mut random, sid)).collect();
    let variables = Variables::with_defaults([], []).expect("defaults");
    let mut loader = Loader::new(variables.clone());
    loader.read("random", texts.join("\n").as_bytes()).expect("memory");
    let set = loader.finish();
    let [shared, grouped, every] = [Search::Shared, Search::Grouped, Search::Every].map(|search| {
        let options = Options { search, ..Options::default() };
        Arc::new(Ruleset::compile(&set, &variables, &options).0)
    });
    let steps: Vec<Vec<Given>> = (0..2_u64)
        .flat_map(|transaction| {
            let mut sides = [Vec::new(), Vec::new()];
            for (buffer, (_, sender)) in BUFFERS.iter().enumerate() {
                // Bodies are always there: they end a side.
                if !matches!(buffer, 4 | 6) && random.below(4) == 0 {
                    continue;
                }
                let bytes: Vec<u8> =
                    (0..random.below(30)).map(|_| b"abABc"[random.below(5) as usize]).collect();
                let cut = random.below(30) as usize;
                sides[*sender as usize].push(Given { buffer, transaction, bytes, cut });
            }
            sides
        })
        .collect();
    let expected = alerts(&every, &steps, false);
    let show = || format!("seed {seed}\n{}\n{steps:?}", texts.join("\n"));
    for rules in [&shared, &grouped, &every] {
        assert_eq!(alerts(rules, &steps, false), expected, "{}", show());
        assert_eq!(alerts(rules, &steps, true), expected, "cut, {}", show());
    }
    expected.len()
}

/// A rule on buffers that both directions have matches once for each that has all of them, as in Suricata. A buffer of one
/// direction gives all others theirs.
#[test]
fn rules_match_once_for_each_direction() {
    let (client, server) = (Sender::Client, Sender::Server);
    let rules: [(&str, &[Sender]); 9] = [
        ("http.header; content:\"ab\";", &[client, server]),
        ("http.header; content:\"ab\"; flow:to_server;", &[client]),
        ("http.header; content:\"ab\"; http.method; content:\"ab\";", &[client]),
        ("http.header; content:\"ab\"; file.data; content:\"ab\";", &[server]),
        ("http.header; content:\"ab\"; http.cookie; content:\"ab\";", &[client]),
        ("http.header; content:\"ab\"; http.cookie; absent;", &[server]),
        (
            "http.header; content:\"ab\"; http.header; to_lowercase; content:\"a\";",
            &[client, server],
        ),
        // One has the cookie, the other one the file.
        ("http.cookie; content:\"ab\"; file.data; content:\"ab\";", &[]),
        ("http.method; content:\"ab\"; file.data; content:\"ab\";", &[]),
    ];
    let texts = rules.iter().zip(1..).map(|((options, _), sid)| {
        format!("alert http any any -> any any ({options} sid:{sid};)\n")
    });
    let variables = Variables::with_defaults([], []).expect("defaults");
    let mut loader = Loader::new(variables.clone());
    loader.read("rules", texts.collect::<String>().as_bytes()).expect("memory");
    let set = loader.finish();
    let given = |buffer| Given { buffer, transaction: 0, bytes: b"ab".to_vec(), cut: 1 };
    let expected: Vec<_> = rules
        .iter()
        .zip(1..)
        .flat_map(|((_, senders), sid)| senders.iter().map(move |own| (sid, Some(0), *own)))
        .collect();
    for search in [Search::Shared, Search::Grouped, Search::Every] {
        let options = Options { search, ..Options::default() };
        let (rules, refused) = Ruleset::compile(&set, &variables, &options);
        assert!(refused.is_empty(), "{refused:?}");
        let rules = Arc::new(rules);
        // In any order of the sides.
        for steps in
            [[&[0, 2, 3, 4][..], &[5, 6]], [&[5, 6], &[0, 2, 3, 4]], [&[2, 5, 0, 3, 4], &[2, 5, 6]]]
        {
            let steps = steps.map(|step| step.iter().copied().map(given).collect());
            let found = alerts(&rules, &steps, false);
            assert_eq!(found, expected, "{search:?} {steps:?}");
        }
    }
}

#[test]
fn parts_of_a_rule_are_found_in_any_order() {
    let alerts: usize = (0..60).map(check).sum();
    assert!(alerts > 150, "{alerts} alerts");
}

/// Fifty seeds that no run had before; a failure names its own.
#[test]
fn the_same_with_fresh_seeds() {
    let fresh = RandomState::new().hash_one(0);
    (0..50).for_each(|n| {
        check(fresh.wrapping_add(n));
    });
}
