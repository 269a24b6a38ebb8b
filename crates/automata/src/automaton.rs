//! The automaton of a set, and the plain walk.

use crate::layout::{ENDS, Machine, Parts, Quad, RECORD};
use crate::patterns::{PatternError, Patterns};
use crate::{filter, layout};

/// Where a walk over a stream is: what it needs to know of all bytes so far. 8 bytes, for a flow's record.
///
/// It belongs to the automaton that gave it. Another one takes it as [`Automaton::anywhere`] (it has a mark of 16 bits to
/// see that by; where the marks happen to agree, matches may be wrong, but nothing panics or loops).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State(u64);

impl State {
    /// As a word: the mark (16 bits), the record of either machine (24 bits each).
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// From [`State::to_bits`].
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// A pattern that ends at a place of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Match {
    /// The number of the pattern in its set.
    pub pattern: u32,
    /// The offset of the byte behind its last one.
    pub end: u64,
}

/// The tables of a set of patterns: read-only, for any number of threads and streams.
///
/// Exact patterns and those where case does not count have a machine each; a walk goes through both where a set has both.
pub struct Automaton {
    image: Vec<Quad>,
    parts: [Option<Parts>; 2],
    mark: u64,
    pub(crate) filter: filter::Filter,
    level: filter::Level,
}

impl std::fmt::Debug for Automaton {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Automaton").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl Automaton {
    /// Builds the tables. Time and memory are proportional to the bytes of the patterns.
    ///
    /// # Errors
    /// [`PatternError::TableTooLarge`].
    pub fn new(patterns: &Patterns) -> Result<Self, PatternError> {
        let (mut image, parts) = layout::write(patterns)?;
        // FNV-1a of the image.
        let hash = image.as_flattened().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, word| {
            (hash ^ u64::from(*word)).wrapping_mul(0x0100_0000_01b3)
        });
        image[0][3] = (hash >> 48) as u32;
        let filter = filter::Filter::new(patterns);
        Ok(Self { image, parts, mark: hash >> 48 << 48, filter, level: filter::Level::best() })
    }

    /// The state before the first byte of a stream.
    pub fn start(&self) -> State {
        self.state([0, 1].map(|m| self.parts[m].as_ref().map_or(0, |parts| parts.start)))
    }

    /// The state in the middle of a stream of which nothing is known: anchored patterns match no more.
    pub fn anywhere(&self) -> State {
        self.state([0, 0])
    }

    /// Walks over a part of a stream: `state` is what the walk over the part before it gave, `offset` the place of
    /// `bytes` in the stream. `sink` gets each match once, by end and then by pattern. This is the plain walk;
    /// [`Automaton::scan_many`] is for many streams at a time.
    ///
    /// ```
    /// use automata::{Automaton, Match, Pattern, Patterns};
    ///
    /// let mut patterns = Patterns::default();
    /// patterns.insert(Pattern::new(b"GET ").anchored()).unwrap();
    /// patterns.insert(Pattern::new(b"/etc/passwd").nocase()).unwrap();
    /// let automaton = Automaton::new(&patterns).unwrap();
    ///
    /// let mut found = Vec::new();
    /// let state = automaton.scan(automaton.start(), b"GET /ETC/pa", 0, |m| found.push(m));
    /// automaton.scan(state, b"sswd", 11, |m| found.push(m));
    /// assert_eq!(found, [Match { pattern: 0, end: 4 }, Match { pattern: 1, end: 15 }]);
    /// ```
    pub fn scan(
        &self,
        state: State,
        bytes: &[u8],
        offset: u64,
        mut sink: impl FnMut(Match),
    ) -> State {
        let [mut exact, mut folded] = self.states(state);
        match self.machines() {
            [None, None] => {}
            [Some(machine), None] => exact = scan_one(machine, exact, bytes, offset, sink),
            [None, Some(machine)] => folded = scan_one(machine, folded, bytes, offset, sink),
            [Some(a), Some(b)] => {
                let (mut row_a, mut row_b) = (a.row_of(exact), b.row_of(folded));
                for (end, byte) in (offset + 1..).zip(bytes) {
                    let class = (a.classes[usize::from(*byte)], b.classes[usize::from(*byte)]);
                    exact = a.step(exact, row_a, class.0);
                    folded = b.step(folded, row_b, class.1);
                    (row_a, row_b) = (a.row(class.0), b.row(class.1));
                    if (exact | folded) & ENDS != 0 {
                        let (mut few_a, mut few_b) = ([0; 4], [0; 4]);
                        let ends = (a.ends(exact, &mut few_a), b.ends(folded, &mut few_b));
                        merge(ends.0, ends.1, |pattern| sink(Match { pattern, end }));
                    }
                }
            }
        }
        self.state([exact, folded])
    }

    /// Walks on as [`Automaton::scan`] does, until no pattern that began before `bytes` can end in them any more; gives the
    /// state there, and how many bytes that took, at most all. From there on, matches are those of the bytes alone.
    ///
    /// ```
    /// use automata::{Automaton, Pattern, Patterns};
    ///
    /// let mut patterns = Patterns::default();
    /// patterns.insert(Pattern::new(b"passwd")).unwrap();
    /// let automaton = Automaton::new(&patterns).unwrap();
    ///
    /// let state = automaton.scan(automaton.start(), b"pass", 0, |_| {});
    /// assert_eq!(automaton.scan_begun(state, b"age of time", 4, |_| {}).1, 1);
    /// assert_eq!(automaton.scan_begun(automaton.start(), b"passwd", 0, |_| {}).1, 0);
    /// ```
    pub fn scan_begun(
        &self,
        state: State,
        bytes: &[u8],
        offset: u64,
        mut sink: impl FnMut(Match),
    ) -> (State, usize) {
        let machines = self.machines();
        let mut states = self.states(state);
        let mut rows = [0, 1].map(|m| machines[m].map_or(0, |machine| machine.row_of(states[m])));
        for (at, byte) in bytes.iter().enumerate() {
            let reach = |m: usize| machines[m].map_or(0, |machine| machine.reach(states[m]));
            if reach(0).max(reach(1)) <= at {
                return (self.state(states), at);
            }
            let mut few = [[0; 4]; 2];
            let mut ends: [&[u32]; 2] = [&[], &[]];
            for (m, few) in few.iter_mut().enumerate() {
                let Some(machine) = machines[m] else { continue };
                let class = machine.classes[usize::from(*byte)];
                states[m] = machine.step(states[m], rows[m], class);
                rows[m] = machine.row(class);
                if states[m] & ENDS != 0 {
                    ends[m] = machine.ends(states[m], few);
                }
            }
            let end = offset + at as u64 + 1;
            merge(ends[0], ends[1], |pattern| sink(Match { pattern, end }));
        }
        (self.state(states), bytes.len())
    }

    /// The tables as words, for a device; `layout` in the crate's sources shows how they lie.
    pub fn words(&self) -> &[u32] {
        self.image.as_flattened()
    }

    /// Bytes of the tables that a walk reads.
    pub fn bytes(&self) -> usize {
        self.image.len() * 16
    }

    /// The vector instructions that the prefilter uses.
    pub fn level(&self) -> filter::Level {
        self.level
    }

    /// Uses other vector instructions; those that the processor does not have stay unused.
    pub fn set_level(&mut self, level: filter::Level) {
        if level.is_available() {
            self.level = level;
        }
    }

    pub(crate) fn machines(&self) -> [Option<Machine<'_>>; 2] {
        let machine = |parts| Machine::new(&self.image, parts);
        [self.parts[0].as_ref().map(machine), self.parts[1].as_ref().map(machine)]
    }

    /// The states of the two machines.
    #[inline]
    pub(crate) fn states(&self, state: State) -> [u32; 2] {
        match state.0 >> 48 << 48 == self.mark {
            true => [state.0 as u32 & RECORD, (state.0 >> 24) as u32 & RECORD],
            false => [0, 0],
        }
    }

    #[inline]
    pub(crate) fn state(&self, [exact, folded]: [u32; 2]) -> State {
        State(self.mark | u64::from(folded & RECORD) << 24 | u64::from(exact & RECORD))
    }
}

/// The plain walk of one machine.
fn scan_one(
    machine: Machine<'_>,
    mut state: u32,
    bytes: &[u8],
    offset: u64,
    mut sink: impl FnMut(Match),
) -> u32 {
    let mut row = machine.row_of(state);
    for (end, byte) in (offset + 1..).zip(bytes) {
        let class = machine.classes[usize::from(*byte)];
        state = machine.step(state, row, class);
        row = machine.row(class);
        if state & ENDS != 0 {
            machine
                .ends(state, &mut [0; 4])
                .iter()
                .for_each(|pattern| sink(Match { pattern: *pattern, end }));
        }
    }
    state
}

/// Two sorted lists as one.
fn merge(mut a: &[u32], mut b: &[u32], mut sink: impl FnMut(u32)) {
    while let ([x, rest_a @ ..], [y, rest_b @ ..]) = (a, b) {
        if x < y {
            sink(*x);
            a = rest_a;
        } else {
            sink(*y);
            b = rest_b;
        }
    }
    a.iter().chain(b).for_each(|pattern| sink(*pattern));
}
