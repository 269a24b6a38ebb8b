//! Regular expressions, a stream and where it is cut: with tables for all, for some and for none the same matches, however the
//! stream is cut, and each within the piece that it is found with.
//!
//! The first byte is the number of patterns, up to four. Each begins with a byte of flags (nocase, anchored, dot_all, lines,
//! spaced) and one for the length; its text follows. Then a byte for each cut, up to one that is 0: so many bytes behind
//! the one before. The rest is the stream.
#![no_main]

use automata::{Match, Regex, RegexLimits, Regexes};
use libfuzzer_sys::fuzz_target;

const STREAM_MAX: usize = 1 << 10;

/// Small, so that an input takes no longer than any other.
const LIMITS: RegexLimits = RegexLimits {
    patterns_max: 4,
    pattern_bytes_max: 64,
    nfa_bytes_max: 1 << 16,
    lazy_nfa_bytes_max: 1 << 18,
    table_states_max: 256,
    table_bytes_max: 1 << 18,
    build_states_max: 2048,
    cache_bytes: 1 << 20,
};

fuzz_target!(|bytes: &[u8]| {
    let Some((count, mut rest)) = bytes.split_first() else { return };
    let mut patterns = Vec::new();
    for _ in 0..(*count).min(4) {
        let [flags, len, bytes @ ..] = rest else { break };
        let (text, bytes) = bytes.split_at(usize::from(*len).min(bytes.len()));
        rest = bytes;
        let mut regex = Regex::new(&String::from_utf8_lossy(text));
        let settings = [Regex::nocase, Regex::anchored, Regex::dot_all, Regex::lines, Regex::spaced];
        for (bit, set) in settings.into_iter().enumerate() {
            if flags >> bit & 1 != 0 {
                regex = set(regex);
            }
        }
        // What is refused alone is refused with others.
        if Regexes::new(std::slice::from_ref(&regex), &LIMITS).is_ok() {
            patterns.push(regex);
        }
    }
    let mut cuts = Vec::new();
    let mut last = 0;
    while let Some((step, bytes)) = rest.split_first() {
        rest = bytes;
        if *step == 0 {
            break;
        }
        last += usize::from(*step);
        cuts.push(last);
    }
    let stream = &rest[..rest.len().min(STREAM_MAX)];

    let mut expected: Option<Vec<Match>> = None;
    for table_states_max in [256, 8, 0] {
        let limits = RegexLimits { table_states_max, ..LIMITS };
        let regexes = Regexes::new(&patterns, &limits).expect("each is taken");
        for cuts in [&cuts[..], &[]] {
            let (mut state, mut scratch, mut all) = (regexes.start(), regexes.scratch(), Vec::new());
            let mut from = 0;
            for to in cuts.iter().copied().chain([stream.len()]) {
                let to = to.min(stream.len());
                let mut found = Vec::new();
                regexes.scan(&mut state, &stream[from..to], from as u64, &mut scratch, &mut found);
                assert!(found.is_sorted_by(|a, b| (a.end, a.pattern) < (b.end, b.pattern)));
                for m in &found {
                    let end = m.end as usize + usize::from(regexes.is_late(m.pattern));
                    assert!((from + 1..=to).contains(&end));
                }
                all.extend(found);
                from = to;
            }
            regexes.finish(&mut state, stream.len() as u64, &mut scratch, &mut all);
            all.sort_by_key(|m| (m.end, m.pattern));
            if scratch.lost() == 0 {
                assert!(*expected.get_or_insert_with(|| all.clone()) == all);
            }
        }
    }
});
