//! Once warm, packets and bytes of streams allocate nothing.

use std::sync::Arc;

use detect::{Detector, FlowState, Options, Packet, Ruleset, Sender};
use signatures::{Loader, Variables};

use crate::twin::segment;

#[test]
fn a_packet_allocates_nothing() {
    let text =
        br#"alert tcp any any -> any any (content:"needle"; content:"thread"; distance:0; sid:1;)
alert tcp any any -> any any (flags:PA; sid:2;)
alert tcp any any -> any any (dsize:>10; content:"need"; nocase; pcre:"/n(e+)dle/"; sid:3;)
alert tcp any any -> any any (content:"needle"; flowbits:set,found; content:!"absent"; sid:4;)
"#;
    let variables = Variables::with_defaults([], []).expect("defaults");
    let mut loader = Loader::new(variables.clone());
    loader.read("rules", &text[..]).expect("memory");
    let (rules, refused) = Ruleset::compile(&loader.finish(), &variables, &Options::default());
    assert!(refused.is_empty(), "{refused:?}");
    let mut detector = Detector::new(Arc::new(rules));
    let (mut flow, mut alerts) = (FlowState::new(1), Vec::with_capacity(1_024));
    let mut payload = vec![b'.'; 1_000];
    payload[100..106].copy_from_slice(b"needle");
    payload[300..306].copy_from_slice(b"thread");
    let frames = [2, 18, 16, 24].map(|flags| {
        let sender = if flags == 18 { Sender::Server } else { Sender::Client };
        let frame = segment(sender, flags, if flags == 24 { &payload } else { &[] });
        (sender, packet::decode(&frame, frame.len()), frame)
    });
    let answer = segment(Sender::Server, 24, b"answer");
    let answer = (Sender::Server, packet::decode(&answer, answer.len()), answer);
    let mut offsets = [0; 2];
    let mut give = |(sender, decoded, frame): &(Sender, packet::Decoded, Vec<u8>)| {
        detector.begin(&Packet { decoded, frame, time_ns: 1 }, &mut flow, *sender);
        let payload = &frame[54..];
        if !payload.is_empty() {
            detector.data(&mut flow, *sender, offsets[sender.index()], payload);
            offsets[sender.index()] += payload.len() as u64;
        }
        alerts.clear();
        detector.finish(&mut flow, &mut alerts);
        alerts.len()
    };
    frames[..3].iter().for_each(|frame| assert_eq!(give(frame), 0));
    let mut round = || {
        let found: usize = (0..20).map(|_| give(&frames[3])).sum();
        found + give(&answer)
    };
    let warm = [round(), round(), round(), round()];
    let counted = allocation_counter::measure(|| {
        assert_eq!(round(), warm[3]);
        assert_eq!(round(), warm[3]);
    });
    assert!(warm[3] > 20, "{warm:?}");
    assert_eq!(counted.count_total, 0, "{counted:?}");
}
