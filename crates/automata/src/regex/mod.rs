//! Regular expressions: many patterns, with state across segments.
//!
//! ```text
//!  Regex, Regex, … ─▶ groups ─▶ tables as words (CPU and device)     as many patterns to a group as its states allow
//!                   └▶ rest  ─▶ the hybrid engine of `regex-automata`     what has too many states by itself
//! ```
//!
//! Patterns are over bytes, in the syntax of the crate `regex` without Unicode; there are no back-references and no
//! look-around but assertions. A match is (pattern, end): every place where the pattern can end, once, wherever it begins.
//!
//! What ends in an assertion about the byte behind it (`$`, `\b`) is *late*: it is found with that byte, so perhaps in the
//! next segment, or by [`Regexes::finish`] at the end of the stream. Patterns of the hybrid engine are late too.
//!
//! - `tables`: a group and its walk.
//! - `lazy`: the hybrid engine, which makes states as bytes need them. Its states are of one [`RegexScratch`].
//!
//! Building is bounded in states: [`RegexLimits`].

mod lazy;
mod tables;

use regex_automata::nfa::thompson;
use regex_syntax::hir::{Hir, HirKind, Look};

use crate::Match;
use lazy::Lazy;
pub use lazy::RegexScratch;
use tables::Group;
pub use tables::MAGIC;

/// A regular expression over bytes.
///
/// ```
/// use automata::Regex;
///
/// let agent = Regex::new(r"user-agent: \w+/\d").nocase();
/// let method = Regex::new(r"(GET|POST) /").anchored();
/// assert!(method.is_anchored() && agent.text().starts_with("user"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Regex {
    text: String,
    nocase: bool,
    anchored: bool,
    dot_all: bool,
    lines: bool,
    spaced: bool,
}

impl Regex {
    /// A pattern anywhere in a stream. `.` is any byte but a line feed.
    pub fn new(text: &str) -> Self {
        let text = text.into();
        Self { text, nocase: false, anchored: false, dot_all: false, lines: false, spaced: false }
    }

    /// A–Z and a–z match each other (`i`).
    #[must_use]
    pub fn nocase(self) -> Self {
        Self { nocase: true, ..self }
    }

    /// At the start of the stream only.
    #[must_use]
    pub fn anchored(self) -> Self {
        Self { anchored: true, ..self }
    }

    /// `.` is a line feed too (`s`).
    #[must_use]
    pub fn dot_all(self) -> Self {
        Self { dot_all: true, ..self }
    }

    /// `^` and `$` are the start and end of a line (`m`).
    #[must_use]
    pub fn lines(self) -> Self {
        Self { lines: true, ..self }
    }

    /// Blanks and comments in the pattern mean nothing (`x`).
    #[must_use]
    pub fn spaced(self) -> Self {
        Self { spaced: true, ..self }
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it matches at the start of the stream only.
    pub fn is_anchored(&self) -> bool {
        self.anchored
    }

    fn parse(&self, limits: &RegexLimits) -> Result<Hir, Why> {
        if self.text.len() > limits.pattern_bytes_max {
            return Err(Why::TooLong { bytes: self.text.len(), limit: limits.pattern_bytes_max });
        }
        let mut parser = regex_syntax::ParserBuilder::new()
            .unicode(false)
            .utf8(false)
            .nest_limit(NESTED_MAX)
            .case_insensitive(self.nocase)
            .dot_matches_new_line(self.dot_all)
            .multi_line(self.lines)
            .ignore_whitespace(self.spaced)
            .build();
        let hir = parser.parse(&self.text).map_err(|e| Why::Syntax(e.to_string()))?;
        if hir.properties().minimum_len() == Some(0) {
            return Err(Why::Empty);
        }
        Ok(match self.anchored {
            true => Hir::concat(vec![Hir::look(Look::Start), hir]),
            false => hir,
        })
    }
}

/// Parentheses within each other, at most: what goes through a pattern is recursive.
const NESTED_MAX: u32 = 128;
/// Bytes of the sets of NFA states that make one table, at most: they bound the time of an attempt that fails.
const SETS_MAX: usize = 1 << 20;

/// What a set of regular expressions may be at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegexLimits {
    /// Patterns.
    pub patterns_max: usize,
    /// Bytes of the text of one.
    pub pattern_bytes_max: usize,
    /// Bytes of the NFA of one: counted repetitions become large.
    pub nfa_bytes_max: usize,
    /// Bytes of the NFA of all that have no table.
    pub lazy_nfa_bytes_max: usize,
    /// States of a table. A pattern that needs more is for the hybrid engine.
    pub table_states_max: usize,
    /// Bytes of all tables. What comes when they are full is for the hybrid engine.
    pub table_bytes_max: usize,
    /// States that building makes in all, those of attempts that led to no table too; then as with full tables.
    pub build_states_max: usize,
    /// Bytes that the hybrid engine keeps for a [`RegexScratch`].
    pub cache_bytes: usize,
}

impl Default for RegexLimits {
    /// 20,000 patterns of 8,192 bytes, NFAs of 1 MiB and 32 MiB, tables of 2,048 states and 64 MiB, built in 2^21 states;
    /// 8 MiB of cache.
    fn default() -> Self {
        Self {
            patterns_max: 20_000,
            pattern_bytes_max: 8_192,
            nfa_bytes_max: 1 << 20,
            lazy_nfa_bytes_max: 32 << 20,
            table_states_max: 2_048,
            table_bytes_max: 64 << 20,
            build_states_max: 1 << 21,
            cache_bytes: 8 << 20,
        }
    }
}

/// Why a set was refused, and the pattern that is to blame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pattern {pattern}: {why}")]
pub struct RegexError {
    /// Its place in the set.
    pub pattern: usize,
    /// What is wrong with it.
    pub why: Why,
}

/// What is wrong with a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Not the syntax: back-references and look-around too.
    #[error("{0}")]
    Syntax(String),
    /// It matches no bytes, and so everywhere.
    #[error("it matches the empty string")]
    Empty,
    /// The text is too long.
    #[error("it has {bytes} bytes, at most {limit} are allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
    /// The NFA is too large.
    #[error("its NFA needs more than {limit} bytes")]
    TooLarge {
        /// What is allowed.
        limit: usize,
    },
    /// There are more.
    #[error("more than {limit} patterns")]
    TooMany {
        /// What is allowed.
        limit: usize,
    },
    /// The crate refuses it for another reason.
    #[error("{0}")]
    Unsupported(String),
}

/// What walks for a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// The table of this number: CPU and device.
    Table(usize),
    /// The hybrid engine of the crate `regex-automata`, on the CPU.
    Lazy,
}

/// The automata of a set of regular expressions: read-only, for any number of threads and streams.
///
/// ```
/// use automata::{Engine, Match, Regex, RegexLimits, Regexes};
///
/// let patterns = [Regex::new(r"id=\d+;").nocase(), Regex::new(r"\.exe$").nocase()];
/// let regexes = Regexes::new(&patterns, &RegexLimits::default()).unwrap();
/// assert!(matches!(regexes.engine(0), Engine::Table(_)) && !regexes.is_late(0));
/// assert!(regexes.is_late(1)); // whether the stream ends is known when it ends
///
/// // One stream, two segments: the state joins them.
/// let (mut state, mut scratch, mut found) = (regexes.start(), regexes.scratch(), Vec::new());
/// regexes.scan(&mut state, b"GET /a?ID=1", 0, &mut scratch, &mut found);
/// regexes.scan(&mut state, b"7;/cmd.exe", 11, &mut scratch, &mut found);
/// regexes.finish(&mut state, 21, &mut scratch, &mut found);
/// assert_eq!(found, [Match { pattern: 0, end: 13 }, Match { pattern: 1, end: 21 }]);
/// ```
#[derive(Debug)]
pub struct Regexes {
    image: Vec<u32>,
    groups: Vec<Group>,
    lazy: Option<Lazy>,
    engines: Vec<Engine>,
    late: Vec<bool>,
}

impl Regexes {
    /// Builds tables as far as they fit. Patterns are numbered as they come.
    ///
    /// # Errors
    /// The first pattern that cannot be read or is too large.
    pub fn new(patterns: &[Regex], limits: &RegexLimits) -> Result<Self, RegexError> {
        if patterns.len() > limits.patterns_max {
            let why = Why::TooMany { limit: limits.patterns_max };
            return Err(RegexError { pattern: limits.patterns_max, why });
        }
        let mut parsed = Vec::with_capacity(patterns.len());
        for (pattern, regex) in patterns.iter().enumerate() {
            let of = |why| RegexError { pattern, why };
            let hir = regex.parse(limits).map_err(of)?;
            nfa(&[&hir], limits.nfa_bytes_max).map_err(of)?;
            parsed.push(hir);
        }
        let mut late: Vec<bool> = parsed.iter().map(|hir| end(hir).looks).collect();
        let mut build = Build {
            parsed: &parsed,
            limits,
            groups: Vec::new(),
            rest: Vec::new(),
            bytes: 0,
            states: 0,
        };
        for kind in [false, true] {
            let numbers: Vec<u32> =
                (0..parsed.len() as u32).filter(|number| late[*number as usize] == kind).collect();
            build.groups_of(&numbers, kind);
        }
        let Build { groups, mut rest, .. } = build;
        rest.sort_unstable();
        let mut engines = vec![Engine::Lazy; parsed.len()];
        for (number, group) in groups.iter().enumerate() {
            group.patterns().iter().for_each(|p| engines[*p as usize] = Engine::Table(number));
        }
        rest.iter().for_each(|pattern| late[*pattern as usize] = true);
        let lazy = Lazy::new(&parsed, rest, limits)?;
        let image = tables::write(&groups, parsed.len());
        Ok(Self { image, groups, lazy, engines, late })
    }

    /// How many patterns there are.
    pub fn len(&self) -> usize {
        self.engines.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.engines.is_empty()
    }

    /// Tables.
    pub fn tables(&self) -> usize {
        self.groups.len()
    }

    /// What walks for a pattern.
    ///
    /// # Panics
    /// There is no such pattern.
    pub fn engine(&self, pattern: u32) -> Engine {
        self.engines[pattern as usize]
    }

    /// Whether its matches are found with the byte behind them, or at the end of the stream.
    ///
    /// # Panics
    /// There is no such pattern.
    pub fn is_late(&self, pattern: u32) -> bool {
        self.late[pattern as usize]
    }

    /// The tables as words, for a device; `regex::tables` in the crate's sources shows how they lie.
    pub fn words(&self) -> &[u32] {
        &self.image
    }

    /// Bytes of the tables.
    pub fn bytes(&self) -> usize {
        4 * self.image.len()
    }

    /// Words of a stream's state: one for each table in their order, and one more where the hybrid engine has patterns.
    pub fn state_words(&self) -> usize {
        self.groups.len() + usize::from(self.lazy.is_some())
    }

    /// The state before the first byte of a stream.
    pub fn start(&self) -> Box<[u64]> {
        let tables = self.groups.iter().map(Group::start);
        tables.chain(self.lazy.as_ref().map(|_| lazy::START)).collect()
    }

    /// The state in the middle of a stream of which nothing is known: anchored patterns match no more.
    pub fn anywhere(&self) -> Box<[u64]> {
        let tables = self.groups.iter().map(Group::anywhere);
        tables.chain(self.lazy.as_ref().map(|_| lazy::ANYWHERE)).collect()
    }

    /// What a thread needs for [`Regexes::scan`].
    pub fn scratch(&self) -> RegexScratch {
        RegexScratch::new(self.lazy.as_ref())
    }

    /// Walks over a part of a stream. `state` is that behind the part before it and becomes that behind this one; `offset`
    /// is the place of `bytes` in the stream. Adds each match to `found` once, by end and then by pattern. Of late patterns
    /// these are the matches that end before the last byte; one that ends at `offset` itself may be among them.
    ///
    /// A state that another set gave is [`Regexes::anywhere`], and so is, for the patterns of the hybrid engine, one that
    /// another scratch gave: [`RegexScratch::lost`].
    ///
    /// # Panics
    /// `state` has not [`Regexes::state_words`].
    pub fn scan(
        &self,
        state: &mut [u64],
        bytes: &[u8],
        offset: u64,
        scratch: &mut RegexScratch,
        found: &mut Vec<Match>,
    ) {
        self.each(state, found, |engine, state, found| match engine {
            Ok(group) => group.scan(state, bytes, offset, found),
            Err(lazy) => lazy.scan(state, bytes, offset, scratch, found),
        });
    }

    /// The stream ends here, at `offset`: adds the late matches that end there.
    ///
    /// # Panics
    /// As [`Regexes::scan`].
    pub fn finish(
        &self,
        state: &mut [u64],
        offset: u64,
        scratch: &mut RegexScratch,
        found: &mut Vec<Match>,
    ) {
        self.each(state, found, |engine, state, found| match engine {
            Ok(group) => group.finish(*state, offset, found),
            Err(lazy) => lazy.finish(state, offset, scratch, found),
        });
    }

    /// All engines, and their matches in order.
    fn each(
        &self,
        state: &mut [u64],
        found: &mut Vec<Match>,
        mut scan: impl FnMut(Result<&Group, &Lazy>, &mut u64, &mut Vec<Match>),
    ) {
        assert_eq!(state.len(), self.state_words(), "words of the state");
        let begin = found.len();
        let engines = self.groups.iter().map(Ok).chain(self.lazy.as_ref().map(Err));
        for (engine, state) in engines.zip(state) {
            scan(engine, state, found);
        }
        if self.state_words() > 1 {
            found[begin..].sort_unstable_by_key(|m| (m.end, m.pattern));
        }
    }
}

/// Tables under way.
struct Build<'a> {
    parsed: &'a [Hir],
    limits: &'a RegexLimits,
    groups: Vec<Group>,
    rest: Vec<u32>,
    bytes: usize,
    states: usize,
}

impl Build<'_> {
    /// One table for all patterns; else one for as many at a time as fit, of those that have a table alone.
    fn groups_of(&mut self, numbers: &[u32], late: bool) {
        if self.is_group(numbers, late) {
            return;
        }
        let (alone, rest): (Vec<u32>, Vec<u32>) =
            numbers.iter().partition(|number| self.group(&[**number], late).is_some());
        let mut left = &alone[..];
        // All have just failed, unless the large ones were to blame.
        let mut many = if rest.is_empty() { left.len().div_ceil(2) } else { left.len() };
        self.rest.extend(rest);
        while !left.is_empty() {
            many = many.min(left.len());
            let (first, others) = left.split_at(many);
            if self.is_group(first, late) {
                left = others;
                many += many.div_ceil(2);
            } else if let [number] = first {
                self.rest.push(*number);
                left = others;
            } else {
                many = many.div_ceil(2);
            }
        }
    }

    /// Keeps the table of patterns, where there is one.
    fn is_group(&mut self, numbers: &[u32], late: bool) -> bool {
        if numbers.is_empty() {
            return true;
        }
        let group = self.group(numbers, late);
        self.bytes += group.as_ref().map_or(0, Group::bytes);
        let is_there = group.is_some();
        self.groups.extend(group);
        is_there
    }

    fn group(&mut self, numbers: &[u32], late: bool) -> Option<Group> {
        let limits = self.limits;
        let room = limits.table_bytes_max.saturating_sub(self.bytes);
        if self.states >= limits.build_states_max || room == 0 {
            return None;
        }
        let group = Group::new(self.parsed, numbers, late, limits.table_states_max, room);
        // One that fails has cost what it may have, or less.
        self.states += group.as_ref().map_or(limits.table_states_max, Group::states);
        group
    }
}

/// The NFA of patterns.
fn nfa(parsed: &[&Hir], bytes_max: usize) -> Result<thompson::NFA, Why> {
    let config = thompson::Config::new()
        .utf8(false)
        .nfa_size_limit(Some(bytes_max))
        .which_captures(thompson::WhichCaptures::None);
    let compiled = thompson::Compiler::new().configure(config).build_many_from_hir(parsed);
    compiled.map_err(|error| match error.size_limit() {
        Some(limit) => Why::TooLarge { limit },
        None => Why::Unsupported(error.to_string()),
    })
}

/// How a pattern may end.
struct End {
    /// In an assertion about the byte behind it.
    looks: bool,
    /// In nothing.
    empty: bool,
}

fn end(hir: &Hir) -> End {
    match hir.kind() {
        HirKind::Empty => End { looks: false, empty: true },
        HirKind::Literal(_) | HirKind::Class(_) => End { looks: false, empty: false },
        // The others ask for the byte before alone.
        HirKind::Look(look) => {
            End { looks: !matches!(look, Look::Start | Look::StartLF), empty: true }
        }
        HirKind::Repetition(repeated) => {
            let End { looks, empty } = end(&repeated.sub);
            End { looks, empty: empty || repeated.min == 0 }
        }
        HirKind::Capture(capture) => end(&capture.sub),
        HirKind::Concat(parts) => {
            let mut all = End { looks: false, empty: true };
            for part in parts.iter().rev() {
                let End { looks, empty } = end(part);
                all.looks |= looks;
                if !empty {
                    all.empty = false;
                    break;
                }
            }
            all
        }
        HirKind::Alternation(parts) => {
            let ends = parts.iter().map(end);
            ends.fold(End { looks: false, empty: false }, |a, b| End {
                looks: a.looks | b.looks,
                empty: a.empty | b.empty,
            })
        }
    }
}
