//! Literals, a stream and where it is cut: every way to scan gives what the reference gives, and ends in the same state.
//!
//! The first byte is the number of patterns. Each begins with a byte (length in the lower five bits, then nocase,
//! anchored); its bytes follow. Then a byte for each cut, up to one that is 0: so many bytes behind the one before. The
//! rest is the stream.
#![no_main]

use automata::{Automaton, Found, Level, Match, Pattern, Patterns, Scratch, Segment, reference};
use libfuzzer_sys::fuzz_target;

/// The reference compares each pattern at each place.
const STREAM_MAX: usize = 1 << 10;

fuzz_target!(|bytes: &[u8]| {
    let Some((count, mut rest)) = bytes.split_first() else { return };
    let mut patterns = Patterns::default();
    for _ in 0..*count {
        let Some((kind, bytes)) = rest.split_first() else { break };
        let (literal, bytes) = bytes.split_at(usize::from(kind & 31).min(bytes.len()));
        rest = bytes;
        let mut pattern = Pattern::new(literal);
        if kind & 32 != 0 {
            pattern = pattern.nocase();
        }
        if kind & 64 != 0 {
            pattern = pattern.anchored();
        }
        let refused = patterns.insert(pattern).is_err();
        assert_eq!(refused, literal.is_empty());
    }
    let mut cuts = vec![0];
    while let Some((step, bytes)) = rest.split_first() {
        rest = bytes;
        match (step, cuts.last()) {
            (1.., Some(last)) => cuts.push(last + usize::from(*step)),
            _ => break,
        }
    }
    let stream = &rest[..rest.len().min(STREAM_MAX)];
    cuts.push(usize::MAX);

    let mut automaton = Automaton::new(&patterns).expect("few patterns");
    let expected = reference::matches(patterns.as_slice(), stream);
    let mut found: Vec<Match> = Vec::new();
    let mut states = vec![automaton.start()];
    let pieces = || cuts.windows(2).map(|c| c[0].min(stream.len())..c[1].min(stream.len()));
    for piece in pieces() {
        let state = *states.last().expect("the first");
        let offset = piece.start as u64;
        states.push(automaton.scan(state, &stream[piece], offset, |m| found.push(m)));
    }
    assert!(found == expected);

    for level in Level::ALL {
        automaton.set_level(level);
        for way in 0..3 {
            let (mut found, mut scratch) = (Vec::new(), Scratch::default());
            let mut state = automaton.start();
            for (piece, behind) in pieces().zip(&states[1..]) {
                let offset = piece.start as u64;
                let mut segments = [Segment { state, offset, bytes: &stream[piece] }];
                match way {
                    0 => automaton.walk_many(&mut segments, &mut found),
                    1 => automaton.filter_many(&mut segments, &mut found, &mut scratch),
                    _ => automaton.scan_many(&mut segments, &mut found, &mut scratch),
                }
                [Segment { state, .. }] = segments;
                assert_eq!(state, *behind);
            }
            assert!(found.iter().map(Found::as_match).eq(expected.iter().copied()));
        }
    }
});
