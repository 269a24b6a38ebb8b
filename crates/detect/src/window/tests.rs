//! Windows against a plain twin, which evaluates all parts over all bytes that are kept with each literal; and the bound of their work.

use signatures::{Loader, Variables};

use super::*;
use crate::rule::When;
use crate::{Options, Ruleset};

const HALF: usize = 64;

fn rules(text: &str) -> Ruleset {
    let variables = Variables::with_defaults([], []).expect("defaults");
    let mut loader = Loader::new(variables.clone());
    loader.read("rules", text.as_bytes()).expect("memory");
    let set = loader.finish();
    assert!(set.problems.is_empty(), "{:?}", set.problems);
    let (rules, refused) = Ruleset::compile(&set, &variables, &Options::default());
    assert!(refused.is_empty(), "{refused:?}");
    rules
}

/// What the twin keeps.
#[derive(Default)]
struct Twin {
    bytes: Vec<u8>,
    start: u64,
    done: Vec<u32>,
}

impl Twin {
    /// Parts that hold, in their order, of those not found before.
    fn evaluate(&mut self, parts: &[Part], numbers: &[u32], when: When, found: &mut Vec<u32>) {
        let view = View { bytes: &self.bytes, base: self.start };
        for number in numbers {
            let part = &parts[*number as usize];
            let is_due = part.when <= when && !self.done.contains(number) && part.fits(view);
            if is_due && holds(&part.ops, view, &mut false) {
                self.done.push(*number);
                found.push(*number);
            }
        }
    }

    fn advance(
        &mut self,
        parts: &[Part],
        numbers: &[u32],
        bytes: &[u8],
        is_last: bool,
        early: Option<When>,
    ) -> Vec<u32> {
        let mut found = Vec::new();
        for byte in bytes {
            if self.bytes.len() == 2 * HALF {
                self.evaluate(parts, numbers, When::Full, &mut found);
                self.bytes.drain(..HALF);
                self.start += HALF as u64;
            }
            self.bytes.push(*byte);
            self.evaluate(parts, numbers, When::Always, &mut found);
        }
        if let Some(early) = early {
            let decide = |number: &&u32| parts[**number as usize].decides;
            let decide: Vec<u32> = numbers.iter().filter(decide).copied().collect();
            self.evaluate(parts, &decide, early, &mut found);
        }
        if is_last {
            self.evaluate(parts, numbers, When::Whole, &mut found);
        }
        found
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31) % limit
    }

    fn letters(&mut self, most: u64) -> String {
        (0..=self.below(most)).map(|_| char::from(b"abc"[self.below(3) as usize])).collect()
    }

    fn rule(&mut self, sid: usize) -> String {
        let (first, second) = (self.letters(4), self.letters(4));
        let checks = match self.below(7) {
            0 => format!("content:\"{first}\";"),
            1 => format!("content:\"{first}\"; content:\"{second}\"; distance:{};", self.below(20)),
            2 => {
                format!("content:\"{first}\"; content:\"{second}\"; within:{};", 4 + self.below(9))
            }
            3 => format!("content:\"{first}\"; content:!\"{second}\";"),
            4 => format!("content:\"{first}\"; pcre:\"/{first}.*{second}/\";"),
            5 => format!("content:\"{first}\"; pcre:\"/{first}(?=[ab]*{second})/\";"),
            _ => format!("content:\"{first}\"; pcre:\"/{second}$/\";"),
        };
        format!("alert tcp any any -> any any (msg:\"x\"; {checks} sid:{sid};)\n")
    }
}

/// Runs a window over pieces of these lengths; what each found.
fn run(
    rules: &Ruleset,
    window: &mut Window,
    bytes: &[u8],
    cuts: &[usize],
    early: Option<When>,
) -> Vec<Vec<u32>> {
    let (mut room, mut given_up, mut rest) = (Room::default(), false, bytes);
    let found = cuts.iter().map(|len| {
        let (now, behind) = rest.split_at((*len).min(rest.len()));
        rest = behind;
        let mut found = Vec::new();
        window.advance(
            rules.streams[0].of(None),
            &rules.parts,
            HALF,
            now,
            false,
            rest.is_empty(),
            early,
            &mut room,
            &mut given_up,
            |_| true,
            |part, _| found.push(part),
        );
        found
    });
    let found = found.collect();
    assert!(!given_up);
    found
}

/// Pieces of `bytes` bytes in all, the last one not empty.
fn cuts(random: &mut Random, bytes: usize) -> Vec<usize> {
    let most = [1, 3, 30, 400][random.below(4) as usize];
    let (mut cuts, mut left) = (Vec::new(), bytes);
    while left > 0 {
        let len = (1 + random.below(most) as usize).min(left);
        cuts.push(len);
        left -= len;
    }
    cuts
}

#[test]
fn what_is_found_is_what_the_twin_finds() {
    use std::hash::{BuildHasher, RandomState};
    let seed = RandomState::new().hash_one(0);
    let mut random = Random(seed);
    let (mut total, mut with_literal) = (0, 0);
    for round in 0..60 {
        let count = 1 + random.below(6) as usize;
        let text: String = (1..=count).map(|sid| random.rule(sid)).collect();
        let rules = rules(&text);
        with_literal += rules.parts.iter().filter(|part| part.has_literal).count();
        let bytes = 1 + random.below(500) as usize;
        let bytes: Vec<u8> = (0..bytes).map(|_| b"aaabbcd"[random.below(7) as usize]).collect();
        let cuts = cuts(&mut random, bytes.len());
        let own = run(&rules, &mut Window::default(), &bytes, &cuts, None);
        let numbers: Vec<u32> = (0..rules.parts.len() as u32).collect();
        let (mut twin, mut rest) = (Twin::default(), &bytes[..]);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for (at, (len, own)) in cuts.iter().zip(own).enumerate() {
            let (now, behind) = rest.split_at(*len);
            rest = behind;
            let is_last = rest.is_empty();
            theirs.extend(twin.advance(&rules.parts, &numbers, now, is_last, None));
            ours.extend(own);
            // Nothing is found before it is there.
            let early = ours.iter().find(|own| !theirs.contains(own));
            assert_eq!(early, None, "seed {seed}, round {round}, piece {at}:\n{text}{cuts:?}");
        }
        total += theirs.len();
        ours.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(ours, theirs, "seed {seed}, round {round}:\n{text}{cuts:?} {bytes:?}");
    }
    assert!(total > 40 && with_literal > 40, "{total} found, {with_literal} parts with a literal");
}

/// Early, parts of rules that drop are found with the piece that the twin finds them with; all others as ever.
#[test]
fn rules_that_drop_are_evaluated_with_each_piece() {
    use std::hash::{BuildHasher, RandomState};
    let seed = RandomState::new().hash_one(0);
    let mut random = Random(seed);
    let (mut total, mut absent, mut others) = (0, 0, 0);
    for round in 0..60 {
        let early = Some([When::Always, When::Whole][round % 2]);
        let count = 1 + random.below(6) as usize;
        let mut rule = |sid| {
            let rule = match random.below(3) {
                0 => random.rule(sid).replace("; sid", "; isdataat:!9,relative; sid"),
                _ => random.rule(sid),
            };
            let action = ["alert", "drop", "pass", "reject"][random.below(4) as usize];
            rule.replacen("alert", action, 1)
        };
        let text: String = (1..=count).map(&mut rule).collect();
        let rules = rules(&text);
        let bytes = 1 + random.below(500) as usize;
        let bytes: Vec<u8> = (0..bytes).map(|_| b"aaabbcd"[random.below(7) as usize]).collect();
        let cuts = cuts(&mut random, bytes.len());
        let own = run(&rules, &mut Window::default(), &bytes, &cuts, early);
        let numbers: Vec<u32> = (0..rules.parts.len() as u32).collect();
        let (mut twin, mut rest) = (Twin::default(), &bytes[..]);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for (at, (len, own)) in cuts.iter().zip(own).enumerate() {
            let (now, behind) = rest.split_at(*len);
            rest = behind;
            let twins = twin.advance(&rules.parts, &numbers, now, rest.is_empty(), early);
            let that_decide = |all: &[u32]| {
                let all = all.iter().filter(|part| rules.parts[**part as usize].decides);
                let mut all: Vec<u32> = all.copied().collect();
                all.sort_unstable();
                all
            };
            let of_piece = that_decide(&own);
            assert_eq!(
                of_piece,
                that_decide(&twins),
                "seed {seed}, round {round}, piece {at}:\n{text}{cuts:?} {bytes:?}"
            );
            total += of_piece.len();
            let waits = |part: &&u32| rules.parts[**part as usize].when == When::Whole;
            absent += of_piece.iter().filter(waits).count() * usize::from(!rest.is_empty());
            theirs.extend(twins);
            ours.extend(own);
        }
        ours.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(ours, theirs, "seed {seed}, round {round}:\n{text}{cuts:?} {bytes:?}");
        others += ours.len();
    }
    assert!(total > 40 && others > total + 5 && absent > 0, "{total} {others} {absent}");
}

/// What has no look-around is found with the last byte of its last literal, if there are not many literals.
#[test]
fn a_new_literal_is_looked_at_at_once() {
    let rules = rules("alert tcp any any -> any any (content:\"ab\"; content:\"cde\"; sid:1;)\n");
    let mut bytes = vec![b'x'; 100];
    bytes[3..5].copy_from_slice(b"ab");
    bytes[97..100].copy_from_slice(b"cde");
    bytes.push(b'x');
    let found = run(&rules, &mut Window::default(), &bytes, &[1; 101], None);
    assert_eq!(found.iter().position(|own| !own.is_empty()), Some(99), "{found:?}");
}

/// Segments of a byte, and a literal with every fourth, of parts that do not hold: the work is in proportion to the bytes.
#[test]
fn the_work_is_in_proportion_to_the_bytes() {
    let own = |sid| {
        format!(
            "alert tcp any any -> any any (content:\"abcd\"; pcre:\"/a[a-z]*[0-9]/\"; sid:{sid};)\n\
             alert tcp any any -> any any (content:\"abcd\"; byte_test:1,=,120,5,relative; sid:{};)\n",
            sid + 100
        )
    };
    let text: String = (1..20).map(own).collect();
    let rules = rules(&text);
    let half = 4096;
    let (mut room, mut given_up, mut window) = (Room::default(), false, Window::default());
    let bytes = 3 * half;
    for at in 0..bytes {
        window.advance(
            rules.streams[0].of(None),
            &rules.parts,
            half,
            &[b"abcd"[at % 4]],
            false,
            false,
            None,
            &mut room,
            &mut given_up,
            |_| true,
            |part, _| panic!("{part} is found"),
        );
    }
    let parts = rules.parts.len();
    assert!(parts >= 38 && rules.parts.iter().all(|part| part.has_literal), "{parts}");
    // Each part goes over all bytes ten times at most as these become more, and for new literals as far as is paid for.
    let most = bytes * (PAID_PER_BYTE + 10 * parts);
    assert!(window.work <= most, "{} bytes of work, {most} at most", window.work);
}

/// The same early, of rules that drop and have no literal: what is evaluated is paid for by bytes and pieces.
#[test]
fn early_work_is_in_proportion_to_bytes_and_pieces() {
    let own =
        |sid| format!("drop tcp any any -> any any (pcre:\"/[0-9]{{{sid}}}x/\"; sid:{sid};)\n");
    let text: String = (4..44).map(own).collect();
    let rules = rules(&text);
    assert!(rules.decides && rules.parts.iter().all(|part| part.decides && !part.has_literal));
    let half = 4096;
    for piece in [1, 100, 1_460] {
        let (mut room, mut given_up, mut window) = (Room::default(), false, Window::default());
        let bytes = 3 * half;
        let pieces = usize::div_ceil(bytes, piece);
        for at in 0..pieces {
            let len = piece.min(bytes - at * piece);
            window.advance(
                rules.streams[0].of(None),
                &rules.parts,
                half,
                &vec![b'a'; len],
                false,
                false,
                Some(When::Whole),
                &mut room,
                &mut given_up,
                |_| true,
                |part, _| panic!("{part} is found"),
            );
        }
        let most = bytes * (PAID_PER_BYTE + 10 * rules.parts.len()) + pieces * PAID_PER_PIECE;
        assert!(window.work <= most, "{piece}: {} bytes of work, {most} at most", window.work);
        assert!(window.work > bytes * PAID_PER_BYTE / 2, "{piece}: {}", window.work);
    }
}
