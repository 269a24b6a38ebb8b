//! Regular expressions against the crate `regex` over whole streams, with tables and without, over streams cut anywhere.

use automata::regex::Why;
use automata::{Engine, Match, Regex, RegexError, RegexLimits, Regexes};
use proptest::collection::vec;
use proptest::prelude::*;

/// Every end of every pattern in a whole stream, by the crate `regex`: a search of all of the stream for the pattern and as
/// many bytes as are behind the end.
fn reference(patterns: &[Regex], flags: &[Flags], stream: &[u8]) -> Vec<Match> {
    let mut found = Vec::new();
    for end in 1..=stream.len() {
        for (number, (pattern, flags)) in patterns.iter().zip(flags).enumerate() {
            let before = if pattern.is_anchored() { "" } else { "(?s-u:.)*?" };
            let behind = stream.len() - end;
            let text = format!(r"\A{before}(?:{})(?s-u:.){{{behind}}}\z", pattern.text());
            let whole = regex::bytes::RegexBuilder::new(&text)
                .unicode(false)
                .case_insensitive(flags.nocase)
                .dot_matches_new_line(flags.dot_all)
                .multi_line(flags.lines)
                .build()
                .unwrap();
            if whole.is_match(stream) {
                found.push(Match { pattern: number as u32, end: end as u64 });
            }
        }
    }
    found
}

#[derive(Debug, Clone, Copy)]
struct Flags {
    nocase: bool,
    anchored: bool,
    dot_all: bool,
    lines: bool,
}

fn regex_of(text: &str, flags: Flags) -> Regex {
    let mut regex = Regex::new(text);
    if flags.nocase {
        regex = regex.nocase();
    }
    if flags.anchored {
        regex = regex.anchored();
    }
    if flags.dot_all {
        regex = regex.dot_all();
    }
    if flags.lines {
        regex = regex.lines();
    }
    regex
}

fn flags() -> impl Strategy<Value = Flags> {
    let often = prop::bool::weighted(0.3);
    (any::<bool>(), often, any::<bool>(), any::<bool>())
        .prop_map(|(nocase, anchored, dot_all, lines)| Flags { nocase, anchored, dot_all, lines })
}

/// A pattern as people write it, and as nobody would.
fn text() -> impl Strategy<Value = String> {
    let letter = prop::sample::select(
        &[
            "a", "b", "ab", "B", r"\n", " ", ".", r"\w", r"\W", r"\s", "[ab]", "[^a]", r"[^\n]",
            r"\xff", "(?-i:A)",
        ][..],
    );
    let look = prop::sample::select(
        &[
            "^",
            "$",
            r"\b",
            r"\B",
            r"\A",
            r"\z",
            r"\b{start}",
            r"\b{end}",
            "(?m:^)",
            "(?m:$)",
            "(?Rm:$)",
            "(?Rm:^)",
        ][..],
    );
    let leaf = prop_oneof![5 => letter, 1 => look].prop_map(str::to_owned);
    leaf.prop_recursive(4, 16, 4, |inner| {
        prop_oneof![
            4 => vec(inner.clone(), 1..5).prop_map(|parts| parts.concat()),
            2 => vec(inner.clone(), 2..4).prop_map(|parts| format!("(?:{})", parts.join("|"))),
            2 => (inner, prop::sample::select(&["*", "+", "?", "{2}", "{1,3}", "*?", "{2,}"][..]))
                .prop_map(|(part, times)| format!("(?:{part}){times}")),
        ]
    })
}

fn cut(stream: &[u8], cuts: &[prop::sample::Index]) -> Vec<usize> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    cuts.sort_unstable();
    cuts
}

/// What is found in a stream that is cut. What a call finds ends where it may.
fn scan(regexes: &Regexes, stream: &[u8], cuts: &[usize]) -> Vec<Match> {
    let (mut state, mut scratch, mut all) = (regexes.start(), regexes.scratch(), Vec::new());
    let mut from = 0;
    for to in cuts.iter().copied().chain([stream.len()]) {
        let mut found = Vec::new();
        regexes.scan(&mut state, &stream[from..to], from as u64, &mut scratch, &mut found);
        assert!(found.is_sorted_by_key(|m| (m.end, m.pattern)), "{found:?}");
        for m in &found {
            let delay = u64::from(regexes.is_late(m.pattern));
            let places = from as u64 + 1 - delay..=to as u64 - delay;
            assert!(places.contains(&m.end), "{m:?} in {from}..{to}");
        }
        all.extend(found);
        from = to;
    }
    regexes.finish(&mut state, stream.len() as u64, &mut scratch, &mut all);
    assert_eq!(scratch.lost(), 0);
    all.sort_by_key(|m| (m.end, m.pattern));
    all
}

/// Tables for all, for some, for none.
fn limits() -> [RegexLimits; 4] {
    let all = RegexLimits::default();
    [
        all,
        RegexLimits { table_states_max: 6, ..all },
        RegexLimits { table_states_max: 0, ..all },
        RegexLimits { table_states_max: 40, table_bytes_max: 4000, cache_bytes: 0, ..all },
    ]
}

/// The patterns that can be taken.
fn taken(texts: &[(String, Flags)]) -> (Vec<Regex>, Vec<Flags>) {
    let all = texts.iter().map(|(text, flags)| (regex_of(text, *flags), *flags));
    let alone = |regex: &Regex| Regexes::new(std::slice::from_ref(regex), &RegexLimits::default());
    all.filter(|(regex, _)| match alone(regex) {
        Ok(_) => true,
        Err(RegexError { pattern: 0, why: Why::Empty }) => false,
        Err(error) => panic!("{regex:?}: {error}"),
    })
    .unzip()
}

fn agree(texts: &[(String, Flags)], stream: &[u8], cuts: &[usize]) {
    let (patterns, flags) = taken(texts);
    let expected = reference(&patterns, &flags, stream);
    for limits in limits() {
        let regexes = Regexes::new(&patterns, &limits).unwrap();
        assert_eq!(regexes.len(), patterns.len());
        let found = scan(&regexes, stream, cuts);
        assert_eq!(found, expected, "{patterns:?} in {stream:?} at {cuts:?}, {limits:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn as_the_crate_regex(
        texts in vec((text(), flags()), 1..5),
        stream in vec(prop::sample::select(&b"aaabbAB \n\r-\xff"[..]), 0..14),
        cuts in vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let cuts = cut(&stream, &cuts);
        agree(&texts, &stream, &cuts);
    }
}

fn plain(texts: &[&str]) -> Vec<(String, Flags)> {
    let flags = Flags { nocase: false, anchored: false, dot_all: false, lines: false };
    texts.iter().map(|text| (text.to_string(), flags)).collect()
}

/// Patterns of rules, cut at each byte in turn.
#[test]
fn every_boundary() {
    let stream = b"GET /a?id=17;x HTTP/1.1\r\nA: b\r\n\r\ncmd.exe";
    let texts = plain(&[
        r"GET /\w+\?",
        r"id=\d{1,3};",
        r"\d",
        r"HTTP/1\.[01]\r\n",
        r"(?i)a: b",
        r"\r\n\r\n",
        r"\.exe$",
        r"\bcmd\b",
        r"[^;]{5};",
    ]);
    for cut in 0..=stream.len() {
        let (patterns, flags) = taken(&texts);
        let expected = reference(&patterns, &flags, stream);
        assert!(expected.len() > 10);
        for limits in limits() {
            assert_eq!(scan(&Regexes::new(&patterns, &limits).unwrap(), stream, &[cut]), expected);
        }
    }
}

/// Which engine has a pattern, and that tables are bounded.
#[test]
fn what_is_too_large_is_for_the_hybrid_engine() {
    let texts = [r"ab+c", r"a[^\n]{12}b", r"x\d+y", r"(a|b).{14}(c|d)"];
    let patterns = texts.map(Regex::new);
    let limits = RegexLimits { table_states_max: 500, ..RegexLimits::default() };
    let regexes = Regexes::new(&patterns, &limits).unwrap();
    let engines: Vec<Engine> = (0..4).map(|pattern| regexes.engine(pattern)).collect();
    assert_eq!((engines[1], engines[3]), (Engine::Lazy, Engine::Lazy));
    assert!(matches!((engines[0], engines[2]), (Engine::Table(_), Engine::Table(_))));
    assert_eq!([0, 1, 2, 3].map(|pattern| regexes.is_late(pattern)), [false, true, false, true]);
    assert!(regexes.bytes() < 100_000 && regexes.state_words() == regexes.tables() + 1);
    let mut state = regexes.start();
    let (mut scratch, mut found) = (regexes.scratch(), Vec::new());
    regexes.scan(&mut state, b"abbc axxxxxxxxxxxxb x12y", 0, &mut scratch, &mut found);
    let ends: Vec<_> = found.iter().map(|m| (m.pattern, m.end)).collect();
    assert_eq!(ends, [(0, 4), (1, 19), (2, 24)]);
}

/// Equal states are one: a literal takes as many as it has bytes, and one more.
#[test]
fn tables_are_small() {
    let regexes = Regexes::new(&[Regex::new("abcde")], &RegexLimits::default()).unwrap();
    assert_eq!(regexes.words()[5], 6);
    let limits = RegexLimits { table_states_max: 6, ..RegexLimits::default() };
    assert_eq!(Regexes::new(&[Regex::new("abcde")], &limits).unwrap().engine(0), Engine::Table(0));
    let limits = RegexLimits { table_states_max: 5, ..limits };
    assert_eq!(Regexes::new(&[Regex::new("abcde")], &limits).unwrap().engine(0), Engine::Lazy);
}

#[test]
fn what_is_refused() {
    let limits = RegexLimits {
        patterns_max: 2,
        pattern_bytes_max: 40,
        nfa_bytes_max: 20_000,
        ..RegexLimits::default()
    };
    let why = |text: &str| {
        let patterns = [Regex::new("ab"), Regex::new(text)];
        let error = Regexes::new(&patterns, &limits).unwrap_err();
        assert_eq!(error.pattern, 1, "{error}");
        error.why
    };
    for text in [r"(a)\1", "(?=a)b", "a(", "*", "[z-a]", r"\p{Greek}"] {
        assert!(matches!(why(text), Why::Syntax(_)), "{text}");
    }
    for text in ["", "a*", "a?|b", "^", r"\b", "(?:)", "x{0}"] {
        assert_eq!(why(text), Why::Empty, "{text}");
    }
    assert_eq!(why(&"a".repeat(41)), Why::TooLong { bytes: 41, limit: 40 });
    assert_eq!(why("((a{50}){50}){50}"), Why::TooLarge { limit: 20_000 });
    assert!(matches!(why(&format!("(?x: {}", "(".repeat(30))), Why::Syntax(_)));
    let many = ["a", "b", "c"].map(Regex::new);
    let error = Regexes::new(&many, &limits).unwrap_err();
    assert_eq!((error.pattern, error.why), (2, Why::TooMany { limit: 2 }));
    let none = Regexes::new(&[], &limits).unwrap();
    assert!(none.is_empty() && none.state_words() == 0 && none.tables() == 0);
    none.scan(&mut [], b"abc", 0, &mut none.scratch(), &mut Vec::new());
    // Nesting is bounded before anything recursive begins.
    let deep = format!("{}a{}", "(".repeat(4000), ")".repeat(4000));
    let error = Regexes::new(&[Regex::new(&deep)], &RegexLimits::default()).unwrap_err();
    assert!(matches!(error.why, Why::Syntax(_)), "{error}");
}

/// Patterns that match nothing are no error.
#[test]
fn impossible_patterns() {
    agree(&plain(&[r"[a&&b]", "a", r"a\Ab", "ab$c"]), b"abcaab", &[2]);
}

/// A state of another set, or any word at all, begins in the middle; so does one of another scratch, and that is counted.
#[test]
fn states_belong_to_their_set() {
    let patterns = [Regex::new("ab").anchored(), Regex::new("cd")];
    let lazily = RegexLimits { table_states_max: 0, ..RegexLimits::default() };
    for limits in [RegexLimits::default(), lazily] {
        let regexes = Regexes::new(&patterns, &limits).unwrap();
        let ends = |state: &mut [u64]| {
            let (mut scratch, mut found) = (regexes.scratch(), Vec::new());
            regexes.scan(state, b"abcdx", 0, &mut scratch, &mut found);
            (found.iter().map(|m| (m.pattern, m.end)).collect::<Vec<_>>(), scratch.lost())
        };
        let is_lazy = u64::from(limits == lazily);
        assert_eq!(ends(&mut regexes.start()), (vec![(0, 2), (1, 4)], 0));
        assert_eq!(ends(&mut regexes.anywhere()), (vec![(1, 4)], 0));
        let mark = regexes.start()[0] >> 32 << 32;
        for word in [0, 7, 1 << 33, u64::MAX - 2, mark | 1, mark | 0xffff_fff0] {
            let (found, lost) = ends(&mut vec![word; regexes.state_words()]);
            assert_eq!((found, lost), (vec![(1, 4)], is_lazy), "{word:x}");
        }
        let mut state = regexes.start();
        ends(&mut state);
        let (_, lost) = ends(&mut state);
        assert_eq!(lost, is_lazy);
    }
}

/// The hybrid engine forgets its states when they are too many. The walk that makes them goes on; others begin anew.
#[test]
fn a_full_cache_is_cleared() {
    let patterns = [Regex::new("(a|b).{12}(P|Q)"), Regex::new("start.*end").anchored().dot_all()];
    let limits =
        RegexLimits { table_states_max: 0, cache_bytes: 100_000, ..RegexLimits::default() };
    let regexes = Regexes::new(&patterns, &limits).unwrap();
    let mut scratch = regexes.scratch();
    let mut random = 1_u64;
    let noise: Vec<u8> = (0..60_000)
        .map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            b"abxy"[(random >> 40) as usize % 4]
        })
        .collect();
    let (mut waits, mut works, mut found) = (regexes.start(), regexes.start(), Vec::new());
    regexes.scan(&mut waits, b"start", 0, &mut scratch, &mut found);
    let stream = [b"start", &noise[..], b"end."].concat();
    regexes.scan(&mut works, &stream, 0, &mut scratch, &mut found);
    assert_eq!(found, [Match { pattern: 1, end: stream.len() as u64 - 1 }]);
    assert_eq!(scratch.lost(), 0);
    found.clear();
    regexes.scan(&mut waits, b"end.", 5, &mut scratch, &mut found);
    assert_eq!((found.len(), scratch.lost()), (0, 1));
}
