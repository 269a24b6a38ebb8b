//! Why a rule does not match.

use std::sync::Arc;

use detect::{Answered, Detector, FlowState, Options, Packet, Ruleset, Sender};
use signatures::{Buffer, Loader, Variables};

use crate::twin::segment;

#[test]
fn each_condition_is_answered() {
    let text = b"alert tcp 10.0.0.0/8 any -> any 80 (flow:to_server; flags:S; content:\"GET \"; startswith; content:\"x\"; distance:0; content:\"y\"; distance:0; sid:1;)
alert http any any -> any any (http.uri; to_lowercase; content:\"/a\"; bsize:3; sid:2;)
";
    let variables = Variables::with_defaults([], []).expect("defaults");
    let mut loader = Loader::new(variables.clone());
    loader.read("two", &text[..]).expect("memory");
    let (rules, refused) = Ruleset::compile(&loader.finish(), &variables, &Options::default());
    assert!(refused.is_empty(), "{refused:?}");
    let number = |sid| (0..2).find(|number| rules.rule(*number).sid == sid).expect("it is there");
    let (first, second) = (number(1), number(2));
    let detector = Detector::new(Arc::new(rules));
    let frame = segment(Sender::Client, 24, b"GET /a");
    let decoded = packet::decode(&frame, frame.len());
    let packet = Packet { decoded: &decoded, frame: &frame, time_ns: 1 };
    let lines = detector.explain_packet(first, &packet, &FlowState::new(1), Sender::Client);
    let answers: Vec<(&str, Answered)> =
        lines.iter().map(|line| (line.text.as_str(), line.answer)).collect();
    assert_eq!(
        answers,
        [
            ("protocol of `alert tcp 10.0.0.0/8 any -> any 80`", Answered::Yes),
            ("addresses and ports of `alert tcp 10.0.0.0/8 any -> any 80`", Answered::Yes),
            ("flow:to_server", Answered::Yes),
            ("tcp.flags:S", Answered::No),
            ("pkt_data: content:\"GET \"; startswith", Answered::Yes),
            ("pkt_data: content:\"x\"; distance:0", Answered::No),
            ("pkt_data: content:\"y\"; distance:0", Answered::NotReached),
        ]
    );
    let lines = detector.explain_packet(second, &packet, &FlowState::new(1), Sender::Client);
    assert_eq!(lines[0].answer, Answered::NotYet);
    let lines = detector.explain_buffer(second, Buffer::HttpUri, b"/AB");
    assert!(lines.len() == 2 && lines.iter().all(|line| line.answer == Answered::Yes), "{lines:?}");
}
