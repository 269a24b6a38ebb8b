//! Every way to scan against the reference, over streams cut anywhere.

use automata::{
    Automaton, Finder, Found, Level, Limits, Match, Pattern, PatternError, Patterns, Scratch,
    Segment, State, reference,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn automaton(patterns: &[Pattern]) -> (Automaton, Vec<Pattern>) {
    let mut set = Patterns::default();
    for pattern in patterns {
        set.insert(pattern.clone()).unwrap();
    }
    (Automaton::new(&set).unwrap(), set.as_slice().to_vec())
}

fn finder(patterns: &[Pattern]) -> Finder {
    let mut set = Patterns::default();
    for pattern in patterns {
        set.insert(pattern.clone()).unwrap();
    }
    Finder::new(&set).unwrap()
}

/// How a batch is scanned.
type Way = fn(&Automaton, &mut [Segment<'_>], &mut Vec<Found>, &mut Scratch);

const WAYS: [(&str, Way); 5] = [
    ("plain", |automaton, segments, found, _| {
        for (number, segment) in segments.iter_mut().enumerate() {
            segment.state = automaton.scan(segment.state, segment.bytes, segment.offset, |m| {
                found.push(Found { segment: number as u32, end: m.end, pattern: m.pattern });
            });
        }
    }),
    // From where what began before has ended, matches and state are those of the bytes alone.
    ("begun", |automaton, segments, found, _| {
        for (number, segment) in segments.iter_mut().enumerate() {
            let Segment { state, offset, bytes } = *segment;
            let of = |m: Match| Found { segment: number as u32, end: m.end, pattern: m.pattern };
            let (behind, taken) = automaton.scan_begun(state, bytes, offset, |m| found.push(of(m)));
            segment.state = behind;
            if taken < bytes.len() {
                let from = offset + taken as u64;
                segment.state = automaton.scan(automaton.anywhere(), bytes, offset, |m| {
                    found.extend((m.end > from).then(|| of(m)));
                });
            }
        }
    }),
    ("interleaved", |automaton, segments, found, _| automaton.walk_many(segments, found)),
    ("filter", |automaton, segments, found, scratch| {
        automaton.filter_many(segments, found, scratch)
    }),
    ("auto", |automaton, segments, found, scratch| automaton.scan_many(segments, found, scratch)),
];

/// Scans streams, each cut at its places, the n-th pieces of all in one batch. Gives the matches of each stream and the
/// states behind each piece.
fn scan(
    automaton: &Automaton,
    streams: &[(Vec<u8>, Vec<usize>)],
    way: Way,
) -> (Vec<Vec<Match>>, Vec<Vec<State>>) {
    let mut matches = vec![Vec::new(); streams.len()];
    let mut states = vec![vec![automaton.start()]; streams.len()];
    let mut scratch = Scratch::default();
    let rounds = streams.iter().map(|(_, cuts)| cuts.len() + 1).max().unwrap_or(0);
    for round in 0..rounds {
        let mut numbers = Vec::new();
        let mut segments = Vec::new();
        for (number, (bytes, cuts)) in
            streams.iter().enumerate().filter(|(_, s)| round <= s.1.len())
        {
            let cut = |at: usize| cuts.get(at).copied().unwrap_or(bytes.len());
            let start = round.checked_sub(1).map_or(0, cut);
            numbers.push(number);
            segments.push(Segment {
                state: *states[number].last().unwrap(),
                offset: start as u64,
                bytes: &bytes[start..cut(round)],
            });
        }
        let mut found = vec![Found { segment: 9, end: 9, pattern: 9 }];
        way(automaton, &mut segments, &mut found, &mut scratch);
        let found = &found[1..]; // what was there stays
        assert!(found.is_sorted(), "{found:?}");
        found.iter().for_each(|f| matches[numbers[f.segment as usize]].push(f.as_match()));
        for (number, segment) in numbers.iter().zip(&segments) {
            states[*number].push(segment.state);
        }
    }
    (matches, states)
}

/// All ways and all vector levels agree with the reference, and with each other in their states.
fn agree(patterns: &[Pattern], streams: &[(Vec<u8>, Vec<usize>)]) {
    let mut finder = finder(patterns);
    let (mut automaton, patterns) = automaton(patterns);
    let expected: Vec<Vec<Match>> =
        streams.iter().map(|(bytes, _)| reference::matches(&patterns, bytes)).collect();
    let (_, states) = scan(&automaton, streams, WAYS[0].1);
    for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
        automaton.set_level(level);
        for (name, way) in WAYS {
            let (found, behind) = scan(&automaton, streams, way);
            assert_eq!(found, expected, "{name} with {level:?} of {patterns:?} in {streams:?}");
            assert_eq!(
                behind, states,
                "{name} with {level:?}: states of {patterns:?} in {streams:?}"
            );
        }
        // A stream as all that there is.
        finder.set_level(level);
        let (mut found, mut scratch) = (Vec::new(), Scratch::default());
        // All of them at once, each for itself; what was there stays.
        let (state, offset) = (automaton.start(), 7);
        let segments: Vec<Segment<'_>> =
            streams.iter().map(|(bytes, _)| Segment { state, offset, bytes }).collect();
        found.push(Found { segment: 9, end: 9, pattern: 9 });
        finder.find_many(&segments, &mut found, &mut scratch);
        let all = expected.iter().zip(0..).flat_map(|(own, segment)| {
            own.iter().map(move |m| Found { segment, end: m.end, pattern: m.pattern })
        });
        let all: Vec<Found> = found[..1].iter().copied().chain(all).collect();
        assert_eq!(found, all, "many with {level:?} of {patterns:?} in {streams:?}");
        for ((bytes, _), expected) in streams.iter().zip(&expected) {
            found.clear();
            automaton.find_whole(bytes, &mut found, &mut scratch);
            let own: Vec<Match> = found.iter().map(Found::as_match).collect();
            assert_eq!(own, *expected, "whole with {level:?} of {patterns:?} in {bytes:?}");
            found.clear();
            finder.find(bytes, &mut found, &mut scratch);
            let own: Vec<Match> = found.iter().map(Found::as_match).collect();
            assert_eq!(own, *expected, "finder with {level:?} of {patterns:?} in {bytes:?}");
        }
    }
}

fn pattern(bytes: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Pattern> {
    (bytes, any::<bool>(), prop::bool::weighted(0.2)).prop_map(|(bytes, nocase, anchored)| {
        let pattern = Pattern::new(&bytes);
        let pattern = if nocase { pattern.nocase() } else { pattern };
        if anchored { pattern.anchored() } else { pattern }
    })
}

fn stream(
    byte: impl Strategy<Value = u8>,
    len: usize,
) -> impl Strategy<Value = (Vec<u8>, Vec<usize>)> {
    (vec(byte, 0..len), vec(any::<prop::sample::Index>(), 0..4)).prop_map(|(bytes, cuts)| {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        (bytes, cuts)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Few letters, so that patterns overlap, contain each other and end at one place.
    #[test]
    fn few_letters(
        patterns in vec(pattern(vec(prop::sample::select(&b"aAbB"[..]), 1..7)), 0..14),
        streams in vec(stream(prop::sample::select(&b"aabAB."[..]), 150), 1..22),
    ) {
        agree(&patterns, &streams);
    }

    /// All bytes, and pieces of patterns within them.
    #[test]
    fn all_bytes(
        patterns in vec(pattern(vec(any::<u8>(), 1..9)), 1..40),
        noise in vec(any::<u8>(), 0..400),
        places in vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..9_usize), 0..30),
        cuts in vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let mut bytes = noise;
        for (pattern, place, len) in places {
            let pattern = pattern.get(&patterns).bytes();
            let at = place.index(bytes.len() + 1);
            bytes.splice(at..at, pattern[..len.min(pattern.len())].iter().copied());
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        agree(&patterns, &[(bytes, cuts)]);
    }
}

/// A stream cut at each byte in turn, and into single bytes.
#[test]
fn every_boundary() {
    let text =
        b"GET /Index.html HTTP/1.1\r\nUser-Agent: aaaaaaaab\r\n\r\nGET /x /etc/passwd aab".to_vec();
    let patterns = [
        Pattern::new(b"GET ").anchored(),
        Pattern::new(b"GET /i").nocase().anchored(),
        Pattern::new(b"GET /index.html").nocase(),
        Pattern::new(b"user-agent:").nocase(),
        Pattern::new(b"User-Agent:"),
        Pattern::new(b"user-agent:"),
        Pattern::new(b"aaaab"),
        Pattern::new(b"aab"),
        Pattern::new(b"b"),
        Pattern::new(b"\r\n\r\n"),
        Pattern::new(b"/etc/passwd"),
    ];
    let mut streams: Vec<_> = (0..=text.len()).map(|cut| (text.clone(), vec![cut])).collect();
    streams.push((text.clone(), (1..text.len()).collect()));
    agree(&patterns, &streams);
    assert!(reference::matches(&patterns, &text).len() > 10);
}

fn random(seed: u64) -> impl FnMut() -> u32 {
    let mut state = seed;
    move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    }
}

/// A large set against another's automaton (the crate `aho-corasick`).
#[test]
fn another_agrees() {
    for shortest in [2, 4] {
        another_agrees_from(shortest);
    }
}

fn another_agrees_from(shortest: u32) {
    let mut random = random(7);
    let mut set = Patterns::default();
    for _ in 0..2000 {
        let len = shortest + random() % 12;
        let bytes: Vec<u8> = (0..len).map(|_| b' ' + (random() % 95) as u8).collect();
        set.insert(Pattern::new(&bytes)).unwrap();
    }
    let mut text: Vec<u8> = (0..20_000).map(|_| b' ' + (random() % 95) as u8).collect();
    for _ in 0..200 {
        let bytes = set.as_slice()[random() as usize % set.len()].bytes();
        let at = random() as usize % (text.len() - 20);
        text[at..at + bytes.len()].copy_from_slice(bytes);
    }
    let other = aho_corasick::AhoCorasick::new(set.as_slice().iter().map(Pattern::bytes)).unwrap();
    let mut expected: Vec<Match> = other
        .find_overlapping_iter(&text)
        .map(|m| Match { pattern: m.pattern().as_u32(), end: m.end() as u64 })
        .collect();
    expected.sort_unstable_by_key(|m| (m.end, m.pattern));
    assert!(expected.len() > 120, "{}", expected.len());
    let ours = Automaton::new(&set).unwrap();
    let cuts: Vec<usize> = (0..text.len()).step_by(997).collect();
    for (name, way) in WAYS {
        let (found, _) = scan(&ours, &[(text.clone(), cuts.clone())], way);
        assert!(found[0] == expected, "{name} from {shortest}");
    }
}

/// Rows of bitmaps, and all 256 bytes as classes: each byte after each of several.
#[test]
fn wide_nodes() {
    let mut patterns = Vec::new();
    for byte in 0..=255 {
        patterns.push(Pattern::new(&[b'x', b'y', byte]));
        patterns.push(Pattern::new(&[b'x', byte, b'z', byte]));
        patterns.push(Pattern::new(&[b'x', b'y', byte]).nocase());
    }
    let mut random = random(3);
    let bytes: Vec<u8> = (0..600)
        .flat_map(|_| {
            [b'x', [b'y', b'Y', random() as u8][random() as usize % 3], random() as u8, b'z']
        })
        .collect();
    agree(&patterns, &[(bytes, vec![100, 101, 1000])]);
}

/// More than three patterns end at one place; of both machines, in order.
#[test]
fn many_ends() {
    let mut patterns = Vec::new();
    for len in (1..40).rev() {
        patterns.push(Pattern::new(&b"a".repeat(len)));
        patterns.push(Pattern::new(&b"a".repeat(len)).nocase());
        patterns.push(Pattern::new(&b"a".repeat(len)).anchored());
    }
    let bytes =
        b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaAaaaaaaaaaaaaaaaaaaaaaaaaaba"
            .to_vec();
    agree(&patterns, &[(bytes, vec![3, 60])]);
}

/// A set without patterns, segments without bytes.
#[test]
fn nothing() {
    agree(&[], &[(b"abc".to_vec(), vec![1])]);
    agree(&[Pattern::new(b"ab")], &[(Vec::new(), vec![0, 0]), (b"ab".to_vec(), vec![1, 1, 2])]);
}

#[test]
fn limits_are_errors() {
    let limits =
        Limits { patterns_max: 3, pattern_bytes_max: 5, bytes_max: 9, table_bytes_max: 1 << 20 };
    let mut set = Patterns::with_limits(limits);
    assert_eq!(
        set.insert(Pattern::new(b"abcdef")),
        Err(PatternError::TooLong { bytes: 6, limit: 5 })
    );
    assert_eq!(set.insert(Pattern::new(b"abcde")), Ok(0));
    assert_eq!(
        set.insert(Pattern::new(b"12345")),
        Err(PatternError::TooManyBytes { bytes: 10, limit: 9 })
    );
    assert_eq!(set.insert(Pattern::new(b"1")), Ok(1));
    assert_eq!(set.insert(Pattern::new(b"1").nocase()), Ok(1), "no letter: the same pattern");
    assert_eq!(set.insert(Pattern::new(b"2")), Ok(2));
    assert_eq!(set.insert(Pattern::new(b"3")), Err(PatternError::TooMany { limit: 3 }));
    assert_eq!((set.len(), set.bytes()), (3, 7));
    assert!(Automaton::new(&set).is_ok());

    let limits = Limits { table_bytes_max: 20_000, ..Limits::default() };
    let mut set = Patterns::with_limits(limits);
    for number in 0..400_u32 {
        set.insert(Pattern::new(&number.wrapping_mul(0x9e37_79b1).to_be_bytes())).unwrap();
    }
    let refused = Automaton::new(&set).unwrap_err();
    assert!(
        matches!(refused, PatternError::TableTooLarge { bytes: 20_001.., limit: 20_000 }),
        "{refused}"
    );
    let longest = PatternError::TooLong { bytes: 70_000, limit: automata::PATTERN_BYTES_MAX };
    let mut set =
        Patterns::with_limits(Limits { pattern_bytes_max: usize::MAX, ..Limits::default() });
    assert_eq!(set.insert(Pattern::new(&[7; 70_000])), Err(longest));
    assert_eq!(set.insert(Pattern::new(&[7; automata::PATTERN_BYTES_MAX]).anchored()), Ok(0));
    let automaton = Automaton::new(&set).unwrap();
    let mut ends = Vec::new();
    automaton.scan(automaton.start(), &[7; 70_000], 0, |m| ends.push(m.end));
    assert_eq!(ends, [automata::PATTERN_BYTES_MAX as u64]);
}

/// What an attacker would choose: every prefix of a long run, and tables stay proportional to the patterns.
#[test]
fn runs_stay_linear() {
    let mut set = Patterns::default();
    for len in 1..=1500 {
        set.insert(Pattern::new(&b"a".repeat(len))).unwrap();
    }
    for tail in 0..100_u8 {
        let mut bytes = b"a".repeat(1500);
        bytes.push(b'b' + tail % 20);
        bytes.push(tail);
        set.insert(Pattern::new(&bytes)).unwrap();
    }
    let automaton = Automaton::new(&set).unwrap();
    assert!(automaton.bytes() < 16 * set.bytes(), "{} bytes", automaton.bytes());
    let mut count = 0;
    automaton.scan(automaton.start(), &b"a".repeat(1500), 0, |_| count += 1);
    assert_eq!(count, 1500 * 1501 / 2);
}

/// A state of another automaton is no state: the walk begins in the middle of a stream.
#[test]
fn states_belong_to_their_automaton() {
    let (first, _) = automaton(&[Pattern::new(b"abcdef"), Pattern::new(b"ab").anchored()]);
    let (second, _) = automaton(&[Pattern::new(b"xyz").anchored(), Pattern::new(b"def")]);
    let state = first.scan(first.start(), b"abc", 0, |_| ());
    assert_eq!(State::from_bits(state.to_bits()), state);
    let mut found = Vec::new();
    second.scan(state, b"def", 3, |m| found.push(m));
    assert_eq!(found, [Match { pattern: 1, end: 6 }]);
    found.clear();
    second.scan(first.start(), b"xyz", 0, |m| found.push(m));
    assert_eq!(found, []);
    for (bytes, expected) in [(b"xyz", 1), (b"yxz", 0)] {
        found.clear();
        second.scan(second.start(), bytes, 0, |m| found.push(m));
        assert_eq!(found.len(), expected);
    }
    // Any word at all: nothing panics and nothing loops.
    let mut random = random(1);
    for _ in 0..2000 {
        let word = u64::from(random() & 0xff) << 24 | u64::from(random() & 0xff);
        let state = State::from_bits(second.start().to_bits() >> 48 << 48 | word);
        second.scan(state, b"xyzdef", 0, |_| ());
        let mut segments = [Segment { state, offset: 0, bytes: b"xyzdefxyz" }];
        second.filter_many(&mut segments, &mut Vec::new(), &mut Scratch::default());
    }
}

/// The filter passes few places of bytes that match nothing, and rests where it passes many.
#[test]
fn the_filter_filters() {
    let mut random = random(11);
    let mut set = Patterns::default();
    for _ in 0..1000 {
        let bytes: Vec<u8> = (0..8).map(|_| b' ' + (random() % 95) as u8).collect();
        set.insert(Pattern::new(&bytes)).unwrap();
    }
    let mut automaton = Automaton::new(&set).unwrap();
    let printable: Vec<u8> = (0..10_000).map(|_| b' ' + (random() % 95) as u8).collect();
    let any: Vec<u8> = (0..10_000).map(|_| random() as u8).collect();
    let beginnings: Vec<u8> = (0..1000)
        .flat_map(|_| set.as_slice()[random() as usize % set.len()].bytes()[..7].to_vec())
        .collect();
    for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
        automaton.set_level(level);
        let mut scratch = Scratch::default();
        let passed = automaton.places(&printable, &mut scratch);
        assert!((3..400).contains(&passed), "{level:?}: {passed} printable");
        let passed = automaton.places(&any, &mut scratch);
        assert!((3..100).contains(&passed), "{level:?}: {passed} of all bytes");
        let passed = automaton.places(&beginnings, &mut scratch);
        assert!((3..100).contains(&passed), "{level:?}: {passed} of beginnings");
    }
}
