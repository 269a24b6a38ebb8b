//! The image as a device reads it: a walk over the words alone, written from their description in `layout`, gives what
//! the automaton gives.

use automata::{Automaton, MAGIC, Match, Pattern, Patterns};

const RECORD: u32 = (1 << 24) - 1;

/// A machine by its two quads of the header.
struct Image<'a> {
    words: &'a [u32],
    classes: u32,
    start: u32,
    class_quad: u32,
    default_quad: u32,
    record_quad: u32,
    list_quad: u32,
}

impl<'a> Image<'a> {
    fn machine(words: &'a [u32], machine: usize) -> Option<Self> {
        assert_eq!(words[..2], [MAGIC, 1]);
        let head = &words[4 + 8 * machine..][..8];
        (head[0] != 0).then_some(Self {
            words,
            classes: head[0],
            start: head[1],
            class_quad: head[2],
            default_quad: head[3],
            record_quad: head[4],
            list_quad: head[6],
        })
    }

    fn class(&self, byte: u8) -> u32 {
        let word = self.words[self.class_quad as usize * 4 + usize::from(byte) / 4];
        word >> (8 * (byte % 4)) & 0xff
    }

    fn record(&self, at: u32, word: u32) -> u32 {
        self.words[(self.record_quad + at) as usize * 4 + word as usize]
    }

    fn step(&self, state: u32, row: u32, class: u32) -> u32 {
        let mut at = state & RECORD;
        loop {
            let (head, mask, fail, next) =
                (self.record(at, 0), self.record(at, 1), self.record(at, 2), self.record(at, 3));
            if mask >> (class % 32) & 1 == 1 {
                let children = head >> 16 & 0xff;
                if children == 1 && head >> 24 == class {
                    return next;
                }
                for child in 0..if children <= 4 { children } else { 0 } {
                    if children > 1 && next >> (8 * child) & 0xff == class {
                        return self.record(at + 1, child);
                    }
                }
                if children == 255 {
                    let bits = self.record(at + 1, 2 * (class / 32));
                    if bits >> (class % 32) & 1 == 1 {
                        let begins = self.record(at + 1, 2 * (class / 32) + 1);
                        let below = bits & ((1 << (class % 32)) - 1);
                        return self.record(at + 1, begins + below.count_ones());
                    }
                }
            }
            at = fail & RECORD;
            if at == 0 {
                return self.words[(self.default_quad * 4 + row * self.classes + class) as usize];
            }
        }
    }

    fn scan(&self, text: &[u8], found: &mut Vec<Match>) {
        let (mut state, mut row) = (self.start, self.classes);
        for (at, byte) in text.iter().enumerate() {
            let class = self.class(*byte);
            state = self.step(state, row, class);
            row = class;
            if state >> 31 == 1 {
                let at_quad = (state & RECORD) - 1;
                let count = self.record(at_quad, 0);
                for place in 0..count {
                    let pattern = match count {
                        0..=3 => self.record(at_quad, 1 + place),
                        _ => {
                            self.words
                                [(self.list_quad * 4 + self.record(at_quad, 1) + place) as usize]
                        }
                    };
                    found.push(Match { pattern, end: at as u64 + 1 });
                }
            }
        }
    }
}

#[test]
fn words_are_enough() {
    let mut patterns = Patterns::default();
    let mut random = 9_u64;
    let mut random = move |below: u32| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as u32 % below
    };
    for number in 0..400 {
        let bytes: Vec<u8> =
            (0..1 + random(9)).map(|_| b"abcdABCD-=x"[random(11) as usize]).collect();
        let pattern = Pattern::new(&bytes);
        let pattern = if number % 3 == 0 { pattern.nocase() } else { pattern };
        patterns.insert(if number % 5 == 0 { pattern.anchored() } else { pattern }).unwrap();
    }
    (0..60_u8).for_each(|byte| drop(patterns.insert(Pattern::new(&[b'a', b'b', 4 * byte]))));
    (0..6).for_each(|len| drop(patterns.insert(Pattern::new(&b"xxxxxxxx"[len..]))));
    let automaton = Automaton::new(&patterns).unwrap();
    let text: Vec<u8> = (0..5000).map(|_| b"abcdABCD-=xxx\0"[random(14) as usize]).collect();

    let mut expected = Vec::new();
    automaton.scan(automaton.start(), &text, 0, |m| expected.push(m));
    let mut found = Vec::new();
    for machine in 0..2 {
        Image::machine(automaton.words(), machine).unwrap().scan(&text, &mut found);
    }
    found.sort_unstable_by_key(|m| (m.end, m.pattern));
    assert!(found == expected && found.len() > 5_000, "{} and {}", found.len(), expected.len());
}
