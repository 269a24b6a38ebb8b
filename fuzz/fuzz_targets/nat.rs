//! Frames of any kind through a translator: nothing panics, what is translated and translated back is the packet as it was,
//! and a right IPv4 header stays right.
//!
//! Each record is a length and so many bytes of a frame.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use nat::rewrite::{set_ends, set_quoted};
use nat::rules::{Action, Own, Prefix, Rule, Rules};
use nat::translator::{Options, Source, Timeouts};
use nat::tuple::Tuple;
use nat::{Tcp, Translator, nat64};
use packet::Anomaly;
use stream::table::Found;

static RULES: LazyLock<Arc<Rules>> = LazyLock::new(|| {
    let prefix = Prefix { family: 6, address: [0x0064_ff9b_0000_0000, 0], len: 96 };
    let rule = |number, action| Rule {
        number,
        outside: Vec::new(),
        sources: Vec::new(),
        protocol: None,
        ports: 1024..=2048,
        action,
    };
    let all = vec![
        rule(0, Action::Source(vec![0xcb00_7101])),
        rule(1, Action::Nat64 { prefix, to: vec![0xcb00_7102] }),
    ];
    Arc::new(Rules::new(all, 4, Arc::new(Own::new(0))))
});

fn is_right(frame: &[u8]) -> bool {
    packet::decode(frame, frame.len()).anomaly == Anomaly::None
}

fuzz_target!(|data: &[u8]| {
    let options = Options {
        sessions: 16,
        bindings_per_host: 4,
        filter_by_remote: false,
        timeouts: Timeouts::default(),
        ftp_ports: &[],
        seed: 1,
    };
    let Ok(mut translator) = Translator::new(options, RULES.clone()) else { return };
    let mut rest = data;
    let mut now_s = 1;
    while let Some((&len, more)) = rest.split_first() {
        let (bytes, more) = more.split_at(usize::from(len).min(more.len()));
        rest = more;
        now_s += 40;
        translator.sweep(8, now_s);
        let mut frame = bytes.to_vec();
        let d = packet::decode(&frame, frame.len());
        let _ = RULES.frame_hash(&frame);
        let (l3, l4) = (usize::from(d.l3_offset), usize::from(d.l4_offset));
        if d.anomaly == Anomaly::None
            && let Some((plain, _)) = Tuple::plain(frame.get(l3..).unwrap_or_default())
        {
            assert_eq!(Tuple::of(&d, frame.get(l4..).unwrap_or_default()), Some(plain));
        }
        let Some(tuple) = Tuple::of(&d, frame.get(l4..).unwrap_or_default()) else {
            let mut out = [0; 1280];
            let ip = frame.get(l3..).unwrap_or_default();
            let sent = Tuple { family: 6, protocol: 17, ..Tuple::default() };
            let _ = nat64::error(&d, ip, std::iter::empty(), &sent, [0; 2], &mut out);
            set_quoted(frame.get_mut(l3..).unwrap_or_default(), l4.saturating_sub(l3), 20, &sent);
            continue;
        };
        let (key, side) = tuple.key();
        let mut found = [Found::NONE];
        translator.find(&[key], now_s, &mut found);
        let segment = frame.get(l4..).filter(|_| tuple.protocol == 6);
        let tcp = segment.map_or(Tcp::default(), Tcp::of);
        let step = found[0].slot().and_then(|slot| translator.step(slot, side, tcp));
        let to = match step {
            Some((to, _)) => to,
            None if tuple.family == 4 => {
                let source = Source::Rule(0, 0);
                let Ok(to) = translator.begin(&tuple, tuple.dst, 4, source, now_s) else { continue };
                to
            }
            None => {
                let Some((rule, dst)) = RULES.nat64(&tuple) else { continue };
                let dst = ([0, dst.into()], tuple.dst.1);
                let source = Source::Rule(rule, 0);
                let Ok(to) = translator.begin(&tuple, dst, 4, source, now_s) else { continue };
                to
            }
        };
        assert!(translator.restore(&to) == Some(tuple) || to == tuple);
        if to.family != tuple.family {
            let ip = &mut frame[l3..];
            let _ = match to.family {
                4 => nat64::to_v4(&d, ip, &to, 1, false),
                _ => {
                    let l4 = usize::from(d.l4_offset.saturating_sub(d.l3_offset));
                    let l4 = ip.get(l4..).unwrap_or_default();
                    let sum = nat64::datagram_sum(&d, l4, std::iter::empty());
                    nat64::to_v6(&d, ip, &to, sum)
                }
            };
            continue;
        }
        let was_right = is_right(&frame);
        set_ends(&mut frame[l3..], l4 - l3, &to);
        assert!(!was_right || is_right(&frame));
        let d = packet::decode(&frame, frame.len());
        if d.anomaly == Anomaly::None {
            let again = Tuple::of(&d, &frame[l4..]);
            assert!(again.is_some_and(|own| own.src.0 == to.src.0 && own.dst.0 == to.dst.0));
        }
    }
});
