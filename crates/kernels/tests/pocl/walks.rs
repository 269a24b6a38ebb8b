//! Walks over payload against the crate `automata`: random patterns, streams in pieces, every row's state and matches.

use automata::{Automaton, Pattern, Patterns, Regex, RegexLimits, Regexes};
use chunk::Columns;
use kernels::image::ImageLayout;
use kernels::job::JobBytes;
use kernels::known::samples::{self, WalkCase};
use kernels::{KernelFile, Launch, Spec, WalkColumns as W, files};

use crate::bed::{Bed, GROUP_ITEMS, Memories, ROWS, over_rows};
use crate::frames::pack;
use crate::random::Random;

/// A match: row, end in it, pattern.
type Found = (usize, u32, u32);

/// What a device is asked, and what it says.
struct Walk {
    file: &'static KernelFile,
    kernels: [&'static str; 2],
    table: u32,
    image: Vec<u32>,
    /// Words of records that there is room for.
    room: usize,
}

impl Walk {
    fn literals(words: &[u32]) -> Self {
        let kernels = ["literals_count", "literals_write"];
        Self { file: &files::LITERALS, kernels, table: 0, image: image(words), room: 1 << 20 }
    }

    fn dfa(words: &[u32], table: usize) -> Self {
        let kernels = ["dfa_count", "dfa_write"];
        Self { file: &files::DFA, kernels, table: table as u32, image: image(words), room: 1 << 20 }
    }

    /// The states behind the rows, and all matches; `None` for these where there is no room.
    fn run(
        &self,
        bed: &mut Bed,
        rows: &[Vec<u8>],
        from: &[u64],
        items: u32,
    ) -> (Vec<u64>, Option<Vec<Found>>) {
        let files = [self.file, &files::AREAS];
        let spec = Spec::new(self.kernels[0], &files, W::COLUMNS).with_group_items(items);
        let (payload, places) = pack(rows, &mut Random(items.into()));
        let mut job = JobBytes::new(W::COLUMNS, rows.len());
        for (row, bytes) in rows.iter().enumerate() {
            job.put(W::PAYLOAD_AT, row, places[row]);
            job.put(W::PAYLOAD_LEN, row, bytes.len() as u32);
            job.put(W::WALK_FROM, row, from[row]);
        }
        let [starts_at, words_at] = job.add_areas(&[4 * (5 + rows.len()), 4 * self.room])[..]
        else {
            unreachable!("two areas")
        };
        let (arena, payload) = (bed.memory(job.bytes()), bed.memory(&payload));
        let tables = bed.memory_of_words(&self.image);
        let memories = Memories { arena, payload, tables, ..bed.memories() };
        let of_rows =
            |kernel| Launch { job: self.table << 16, ..over_rows(kernel, rows.len(), items) };
        let scan = Launch { kernel: "output_scan", groups: 1, items, job: 0 };
        bed.run(&spec, memories, &[of_rows(self.kernels[0]), scan, of_rows(self.kernels[1])]);
        bed.read(arena, job.bytes_mut());
        [arena, payload, tables].into_iter().for_each(|memory| bed.free(memory));

        let to = (0..rows.len()).map(|row| job.get(W::WALK_TO, row)).collect();
        let word = |at: usize, i: usize| {
            let bytes = &job.bytes()[at + 4 * i..][..4];
            u32::from_le_bytes(bytes.try_into().expect("four"))
        };
        if word(starts_at, 1) != 0 {
            return (to, None);
        }
        let found = (0..rows.len()).flat_map(|row| {
            let (start, end) = (word(starts_at, 4 + row), word(starts_at, 5 + row));
            let pairs = (start as usize..end as usize).step_by(2);
            pairs.map(move |i| (row, word(words_at, i), word(words_at, i + 1)))
        });
        (to, Some(found.collect()))
    }
}

fn image(words: &[u32]) -> Vec<u32> {
    ImageLayout::new(&[(words.len(), 0)]).write(1, &[words])
}

/// Few letters, so that patterns are everywhere; some of any kind.
fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len)
        .map(|_| match random.below(12) {
            0 => random.next() as u8,
            _ => b"aabbcdAB\n -"[random.below(11)],
        })
        .collect()
}

fn patterns(random: &mut Random) -> Patterns {
    let mut patterns = Patterns::default();
    for _ in 0..random.below(150) {
        let len = 1 + random.below(7);
        let mut pattern = Pattern::new(&bytes(random, len));
        if random.below(3) == 0 {
            pattern = pattern.nocase();
        }
        if random.below(5) == 0 {
            pattern = pattern.anchored();
        }
        patterns.insert(pattern).unwrap();
    }
    patterns
}

const REGEXES: [&str; 14] = [
    "ab+c",
    "a[^b]{3}b",
    r"(?i)ab",
    "b$",
    "(?m)a$",
    r"\bab",
    r"ab\b",
    "^ab",
    "(?m)^b",
    ".d",
    r"\xff|c",
    "[a-c]{4}",
    "(a|b)(c|d)+",
    "-",
];

fn regexes(random: &mut Random) -> Regexes {
    let mut patterns = Vec::new();
    for _ in 0..1 + random.below(8) {
        let regex = Regex::new(REGEXES[random.below(REGEXES.len())]);
        let regex = if random.below(3) == 0 { regex.nocase() } else { regex };
        patterns.push(if random.below(5) == 0 { regex.anchored() } else { regex });
    }
    let table_states_max = [20, 100, 1000][random.below(3)];
    Regexes::new(&patterns, &RegexLimits { table_states_max, ..RegexLimits::default() }).unwrap()
}

#[test]
fn literals_as_on_the_cpu() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(31);
    for items in GROUP_ITEMS {
        for rows in ROWS {
            let automaton = Automaton::new(&patterns(&mut random)).unwrap();
            let walk = Walk::literals(automaton.words());
            let mut from = vec![automaton.start().to_bits(); rows];
            // Streams in two pieces.
            for piece in 0..2 {
                let rows: Vec<Vec<u8>> = (0..rows)
                    .map(|_| {
                        let len = [3, 40][random.below(2)];
                        let len = random.below(len);
                        bytes(&mut random, len)
                    })
                    .collect();
                let (mut to, mut expected) = (Vec::new(), Vec::new());
                for (row, bytes) in rows.iter().enumerate() {
                    let state = automata::State::from_bits(from[row]);
                    let behind = automaton.scan(state, bytes, 0, |m| {
                        expected.push((row, m.end as u32, m.pattern));
                    });
                    to.push(behind.to_bits());
                }
                let (states, found) = walk.run(&mut bed, &rows, &from, items);
                assert!(states == to, "piece {piece} of {} rows", rows.len());
                assert!(found.unwrap() == expected, "piece {piece} of {} rows", rows.len());
                from = to;
            }
        }
    }
}

#[test]
fn regular_expressions_as_on_the_cpu() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(32);
    for items in GROUP_ITEMS {
        for rows in ROWS {
            let regexes = regexes(&mut random);
            let mut states = vec![regexes.start(); rows];
            let mut scratch = regexes.scratch();
            for _piece in 0..2 {
                let rows: Vec<Vec<u8>> = (0..rows)
                    .map(|_| {
                        let len = [3, 40][random.below(2)];
                        let len = random.below(len);
                        bytes(&mut random, len)
                    })
                    .collect();
                let before = states.clone();
                let mut expected = Vec::new();
                for (row, bytes) in rows.iter().enumerate() {
                    let mut found = Vec::new();
                    regexes.scan(&mut states[row], bytes, 0, &mut scratch, &mut found);
                    expected.extend(found.iter().map(|m| (row, m.end as u32, m.pattern)));
                }
                for table in 0..regexes.tables() {
                    let walk = Walk::dfa(regexes.words(), table);
                    let from: Vec<u64> = before.iter().map(|state| state[table]).collect();
                    let (to, found) = walk.run(&mut bed, &rows, &from, items);
                    assert!(to.iter().zip(&states).all(|(to, state)| *to == state[table]));
                    let of_table =
                        |m: &&Found| regexes.engine(m.2) == automata::Engine::Table(table);
                    let expected: Vec<Found> = expected.iter().filter(of_table).copied().collect();
                    assert!(found.unwrap() == expected, "table {table}, {} rows", rows.len());
                }
            }
        }
    }
}

/// More matches than a row may have, or a job has room for: nothing is written, and it is said.
#[test]
fn too_many_matches() {
    let Some(mut bed) = Bed::open() else { return };
    let mut patterns = Patterns::default();
    patterns.insert(Pattern::new(b"a")).unwrap();
    let automaton = Automaton::new(&patterns).unwrap();
    let most = files::MATCH_WORDS_MAX as usize / 2;
    let from = vec![automaton.start().to_bits(); 3];
    let mut walk = Walk::literals(automaton.words());
    for (len, room, fits) in
        [(most, 6 * most, true), (most + 1, 1 << 20, false), (most, 6 * most - 1, false)]
    {
        walk.room = room;
        let (to, found) = walk.run(&mut bed, &vec![vec![b'a'; len]; 3], &from, 64);
        assert_eq!(found.map(|found| found.len()), fits.then_some(3 * len));
        assert_eq!(to, vec![automaton.scan(automaton.start(), b"a", 0, |_| ()).to_bits(); 3]);
    }
}

/// The known answers are the crate's: images word by word, states and matches.
#[test]
fn known_answers_are_the_crates() {
    let mut patterns = Patterns::default();
    let exact = ["aba", "abb", "abc", "abd", "abe", "bca", "bcb", "caaa", "d", "dd", "ddd", "dddd"];
    for bytes in exact {
        patterns.insert(Pattern::new(bytes.as_bytes())).unwrap();
    }
    patterns.insert(Pattern::new(b"ee").anchored()).unwrap();
    patterns.insert(Pattern::new(b"bca").nocase()).unwrap();
    patterns.insert(Pattern::new(b"d").nocase()).unwrap();
    let automaton = Automaton::new(&patterns).unwrap();
    assert_eq!(automaton.words(), samples::literal_words());
    for case in samples::LITERALS {
        let mut found = Vec::new();
        let from = automata::State::from_bits(case.from);
        let to = automaton.scan(from, case.bytes, 0, |m| found.push((m.end as u32, m.pattern)));
        assert_eq!((to.to_bits(), &found[..]), (case.to, case.matches), "{case:?}");
    }

    let patterns =
        [Regex::new("ab").anchored(), Regex::new("a[bc]+").anchored(), Regex::new("c$").lines()];
    let regexes = Regexes::new(&patterns, &RegexLimits::default()).unwrap();
    assert_eq!(regexes.words(), samples::dfa_words());
    for (table, cases) in [samples::EARLY, samples::LATE].into_iter().enumerate() {
        for WalkCase { bytes, from, to, matches } in cases {
            let (mut state, mut found) = (regexes.anywhere(), Vec::new());
            state[table] = *from;
            regexes.scan(&mut state, bytes, 0, &mut regexes.scratch(), &mut found);
            found.retain(|m| regexes.engine(m.pattern) == automata::Engine::Table(table));
            let found: Vec<_> = found.iter().map(|m| (m.end as u32, m.pattern)).collect();
            assert_eq!((state[table], &found[..]), (*to, *matches), "{bytes:?}");
        }
    }
}

/// No image, an image of something else, any word of it wrong: no access beyond, and no endless walk.
#[test]
pub(crate) fn damaged_images() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(33);
    let rows = vec![b"abcabdddd ee caaabcb".to_vec(), b"ee".to_vec(), b"abccc\nc\n".to_vec()];
    let literals = samples::literal_words();
    let dfa = samples::dfa_words();
    let check = |bed: &mut Bed, of: fn(&[u32], usize) -> Walk, words: &[u32], from: &[u64]| {
        for table in 0..2 {
            let walk = of(words, table);
            walk.run(bed, &rows, from, 16);
        }
    };
    let rounds = if bed.name().contains("Oclgrind") { 12 } else { 300 };
    for (of, words) in [
        ((|words, _| Walk::literals(words)) as fn(&[u32], usize) -> Walk, &literals),
        (Walk::dfa, &dfa),
    ] {
        let from = [samples::LITERALS[0].from, samples::EARLY[0].from, samples::LATE[0].from];
        for image in [&[][..], &[7; 64], &words[..30], &words[..words.len() - 8]] {
            check(&mut bed, of, image, &from);
        }
        for _ in 0..rounds {
            let mut words = words.clone();
            for _ in 0..1 + random.below(3) {
                let at = 2 + random.below(words.len() - 2);
                words[at] = [0, 1, 5, u32::MAX, 1 << 31, random.next() as u32][random.below(6)];
            }
            let from = [from[0], from[1 + random.below(2)], random.next()];
            check(&mut bed, of, &words, &from);
        }
    }
}
