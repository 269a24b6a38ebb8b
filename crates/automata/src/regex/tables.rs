//! A DFA of some patterns as words.
//!
//! ```text
//!  quad 0           MAGIC, 1, number of tables, number of patterns
//!  quads 1–3        the first table:  classes, states, start, anywhere │
//!                                     quad of the classes, quad of the table, quad of the lists, their words │
//!                                     end of the states with matches, dead state, 1 if it is late, mark
//!  quads 4–6, …     the others
//!  then, for each:
//!    classes        256 bytes: the class of each byte
//!    table          for each state a row of `classes` states
//!    lists          for each state with matches where its patterns begin, and where the last ones end; the patterns, sorted
//! ```
//!
//! A *state* is where its row begins in the table, in words. States with matches are first, so that one comparison tells
//! them. A dead state leads to itself alone; where there is none, its number is all ones.
//!
//! The DFA of `regex-automata` says that a pattern has ended when it has read the byte behind it. Where no pattern looks at
//! that byte, its list is moved one byte forward, to the state that is behind the pattern's last byte; states that
//! differ by the delay alone become one then.

use std::collections::HashMap;

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_automata::{Anchored, MatchKind};
use regex_syntax::hir::Hir;

use super::SETS_MAX;
use crate::Match;

/// First word of an image.
pub const MAGIC: u32 = 0x7265_6766;
/// No dead state.
const NONE: u32 = u32::MAX;
/// Quads of a table's head.
const HEAD: usize = 3;
/// How often states that are the same are looked for: each time those before them may have become so.
const MERGES_MAX: usize = 16;

/// A byte that is neither a letter nor the end of a line.
pub(super) const NO_WORD: u8 = 0;

#[derive(Debug)]
pub(super) struct Group {
    classes: [u8; 256],
    count: usize,
    start: u32,
    anywhere: u32,
    table: Vec<u32>,
    /// The states below have matches.
    ends: u32,
    dead: u32,
    lists: Vec<u32>,
    /// The patterns that end where the stream does, by state; of a late group.
    last: Vec<Vec<u32>>,
    late: bool,
    mark: u32,
    patterns: Vec<u32>,
}

/// A state on its way to a table.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Draft {
    row: Vec<u32>,
    ends: Vec<u32>,
    last: Vec<u32>,
}

impl Group {
    /// Of the patterns with these numbers; `None` where it would have too many states or bytes.
    pub(super) fn new(
        parsed: &[Hir],
        numbers: &[u32],
        late: bool,
        states_max: usize,
        bytes_max: usize,
    ) -> Option<Self> {
        let of: Vec<&Hir> = numbers.iter().map(|number| &parsed[*number as usize]).collect();
        // States are made of sets of it: far smaller than the table may be, or the table does not fit.
        let nfa = super::nfa(&of, states_max.saturating_mul(256)).ok()?;
        let stride = nfa.byte_classes().alphabet_len().next_power_of_two();
        // As the crate counts: rows, and a little for starts and matches. Its states are up to twice ours.
        let bytes = states_max.saturating_mul(8 * stride).saturating_add(1 << 16);
        let config = dense::Config::new()
            .match_kind(MatchKind::All)
            .start_kind(StartKind::Unanchored)
            .accelerate(false)
            .dfa_size_limit(Some(bytes))
            .determinize_size_limit(Some(SETS_MAX));
        let dfa = dense::Builder::new().configure(config).build_from_nfa(&nfa).ok()?;
        let group = Self::of_dfa(&dfa, numbers, late, states_max)?;
        (group.bytes() <= bytes_max).then_some(group)
    }

    fn of_dfa(
        dfa: &dense::DFA<Vec<u32>>,
        numbers: &[u32],
        late: bool,
        states_max: usize,
    ) -> Option<Self> {
        let mut classes = [0; 256];
        let mut bytes = Vec::new(); // one of each class
        for byte in 0..=255_u8 {
            let class = dfa.byte_classes().get(byte);
            if usize::from(class) == bytes.len() {
                bytes.push(byte);
            }
            classes[usize::from(byte)] = class;
        }
        let patterns = |state: StateID| -> Vec<u32> {
            let count = if dfa.is_match_state(state) { dfa.match_len(state) } else { 0 };
            let of = |at| numbers[dfa.match_pattern(state, at).as_usize()];
            let mut patterns: Vec<u32> = (0..count).map(of).collect();
            patterns.sort_unstable();
            patterns
        };
        let start = |before| {
            let config = start::Config::new().anchored(Anchored::No).look_behind(before);
            dfa.start_state(&config).ok()
        };
        let mut numbers_of: HashMap<StateID, u32> = HashMap::new();
        let mut order = Vec::new();
        let mut number = |state: StateID, order: &mut Vec<StateID>| {
            *numbers_of.entry(state).or_insert_with(|| {
                order.push(state);
                order.len() as u32 - 1
            })
        };
        let start = [start(None)?, start(Some(NO_WORD))?].map(|state| number(state, &mut order));
        let mut drafts = Vec::new();
        while let Some(state) = order.get(drafts.len()).copied() {
            let row = bytes.iter().map(|byte| number(dfa.next_state(state, *byte), &mut order));
            let row = row.collect();
            let behind = patterns(dfa.next_eoi_state(state));
            drafts.push(match late {
                true => Draft { row, ends: patterns(state), last: behind },
                false => Draft { row, ends: behind, last: Vec::new() },
            });
        }
        let (drafts, start) = merged(drafts, start);
        (drafts.len() <= states_max)
            .then(|| Self::of_drafts(&drafts, start, classes, numbers, late))
    }

    /// States with matches first, a dead one last.
    fn of_drafts(
        drafts: &[Draft],
        [start, anywhere]: [u32; 2],
        classes: [u8; 256],
        numbers: &[u32],
        late: bool,
    ) -> Self {
        let count = usize::from(classes.iter().max().copied().unwrap_or(0)) + 1;
        let is_dead = |number: usize| {
            let Draft { row, ends, last } = &drafts[number];
            ends.is_empty() && last.is_empty() && row.iter().all(|next| *next as usize == number)
        };
        let mut order: Vec<usize> = (0..drafts.len()).collect();
        order.sort_by_key(|number| (drafts[*number].ends.is_empty(), is_dead(*number)));
        let mut place = vec![0; drafts.len()];
        for (at, number) in order.iter().enumerate() {
            place[*number] = (at * count) as u32;
        }
        let with_matches = order.iter().take_while(|n| !drafts[**n].ends.is_empty()).count();
        let (mut table, mut lists) = (Vec::with_capacity(drafts.len() * count), Vec::new());
        let mut patterns: Vec<u32> = Vec::new();
        for number in &order {
            table.extend(drafts[*number].row.iter().map(|next| place[*next as usize]));
            if lists.len() <= with_matches {
                lists.push((with_matches + 1 + patterns.len()) as u32);
            }
            patterns.extend(&drafts[*number].ends);
        }
        if lists.len() <= with_matches {
            lists.push((with_matches + 1 + patterns.len()) as u32);
        }
        lists.extend(patterns);
        let dead = order.last().filter(|number| is_dead(**number)).map_or(NONE, |n| place[*n]);
        let last = match late {
            true => order.iter().map(|number| drafts[*number].last.clone()).collect(),
            false => Vec::new(),
        };
        // FNV-1a.
        let words = table.iter().chain(&lists).chain(numbers);
        let hash = words.fold(0xcbf2_9ce4_8422_2325_u64, |hash, word| {
            (hash ^ u64::from(*word)).wrapping_mul(0x0100_0000_01b3)
        });
        Self {
            classes,
            count,
            start: place[start as usize],
            anywhere: place[anywhere as usize],
            table,
            ends: (with_matches * count) as u32,
            dead,
            lists,
            last,
            late,
            mark: (hash >> 32) as u32,
            patterns: numbers.to_vec(),
        }
    }

    pub(super) fn patterns(&self) -> &[u32] {
        &self.patterns
    }

    pub(super) fn states(&self) -> usize {
        self.table.len() / self.count
    }

    /// Bytes in the image.
    pub(super) fn bytes(&self) -> usize {
        16 * (HEAD + 16 + self.table.len().div_ceil(4) + self.lists.len().div_ceil(4))
    }

    pub(super) fn start(&self) -> u64 {
        self.state(self.start)
    }

    pub(super) fn anywhere(&self) -> u64 {
        self.state(self.anywhere)
    }

    fn state(&self, row: u32) -> u64 {
        u64::from(self.mark) << 32 | u64::from(row)
    }

    /// The row of a state; of one that is not ours, that of which nothing is known.
    fn row(&self, state: u64) -> u32 {
        let row = state as u32;
        let is_row = (row as usize) < self.table.len() && (row as usize).is_multiple_of(self.count);
        if state >> 32 == u64::from(self.mark) && is_row { row } else { self.anywhere }
    }

    pub(super) fn scan(&self, state: &mut u64, bytes: &[u8], offset: u64, found: &mut Vec<Match>) {
        let mut row = self.row(*state);
        let first = offset.wrapping_add(u64::from(!self.late));
        for (at, byte) in bytes.iter().enumerate() {
            let class = self.classes[usize::from(*byte)];
            row = self.table[row as usize + usize::from(class)];
            if row < self.ends {
                let end = first.wrapping_add(at as u64);
                found.extend(self.list(row).iter().map(|pattern| Match { pattern: *pattern, end }));
            }
            if row == self.dead {
                break;
            }
        }
        *state = self.state(row);
    }

    pub(super) fn finish(&self, state: u64, offset: u64, found: &mut Vec<Match>) {
        if let Some(last) = self.last.get(self.row(state) as usize / self.count) {
            found.extend(last.iter().map(|pattern| Match { pattern: *pattern, end: offset }));
        }
    }

    #[cold]
    fn list(&self, row: u32) -> &[u32] {
        let at = row as usize / self.count;
        &self.lists[self.lists[at] as usize..self.lists[at + 1] as usize]
    }
}

/// One state for all that are the same.
fn merged(mut drafts: Vec<Draft>, mut start: [u32; 2]) -> (Vec<Draft>, [u32; 2]) {
    for _ in 0..MERGES_MAX {
        let mut number_of: HashMap<&Draft, u32> = HashMap::with_capacity(drafts.len());
        let mut kept = Vec::new();
        let mut number = Vec::with_capacity(drafts.len());
        for (at, draft) in drafts.iter().enumerate() {
            number.push(*number_of.entry(draft).or_insert_with(|| {
                kept.push(at);
                kept.len() as u32 - 1
            }));
        }
        if kept.len() == drafts.len() {
            break;
        }
        let fewer = kept.iter().map(|at| {
            let mut draft = drafts[*at].clone();
            draft.row.iter_mut().for_each(|next| *next = number[*next as usize]);
            draft
        });
        drafts = fewer.collect();
        start = start.map(|state| number[state as usize]);
    }
    (drafts, start)
}

/// The image of all tables.
pub(super) fn write(groups: &[Group], patterns: usize) -> Vec<u32> {
    let mut image = vec![0; 4 * (1 + HEAD * groups.len())];
    image[..4].copy_from_slice(&[MAGIC, 1, groups.len() as u32, patterns as u32]);
    let extend = |image: &mut Vec<u32>, words: &mut dyn Iterator<Item = u32>| -> u32 {
        let quad = image.len() as u32 / 4;
        image.extend(words);
        image.resize(image.len().next_multiple_of(4), 0);
        quad
    };
    for (number, group) in groups.iter().enumerate() {
        let classes = group.classes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        let classes = extend(&mut image, &mut classes.into_iter());
        let table = extend(&mut image, &mut group.table.iter().copied());
        let lists = extend(&mut image, &mut group.lists.iter().copied());
        let head = [
            [group.count as u32, group.states() as u32, group.start, group.anywhere],
            [classes, table, lists, group.lists.len() as u32],
            [group.ends, group.dead, u32::from(group.late), group.mark],
        ];
        image[4 * (1 + HEAD * number)..][..4 * HEAD].copy_from_slice(head.as_flattened());
    }
    image
}
