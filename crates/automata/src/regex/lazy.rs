//! Patterns without a table: the hybrid engine of `regex-automata`, which makes the states of a DFA as bytes need them and
//! forgets all of them when there are too many.
//!
//! A state is valid in the cache that made it, as long as that has not been cleared. So what a stream keeps is a number of
//! the scratch's list of states, and a mark of the scratch and of how often its cache was cleared. A walk itself goes on
//! over a clearing; the walks of other streams begin anew, and are counted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Builder, Cache, Config, DFA};
use regex_automata::util::start;
use regex_automata::{Anchored, MatchKind};
use regex_syntax::hir::Hir;

use super::tables::NO_WORD;
use super::{RegexError, RegexLimits, Why};
use crate::Match;

/// Before the first byte.
pub(super) const START: u64 = u64::MAX;
/// In the middle.
pub(super) const ANYWHERE: u64 = u64::MAX - 1;
/// Marks of scratches.
static SCRATCHES: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
pub(super) struct Lazy {
    dfa: DFA,
    /// The number of each pattern in the set.
    patterns: Vec<u32>,
}

/// What a thread keeps for the hybrid engine: its states. Streams stay with the scratch that they began with.
#[derive(Debug)]
pub struct RegexScratch {
    cache: Option<Cache>,
    /// States that streams have.
    states: Vec<LazyStateID>,
    numbers: HashMap<LazyStateID, u32>,
    /// Clearings of the cache that `states` have seen.
    clears: usize,
    mark: u32,
    lost: u64,
}

impl RegexScratch {
    pub(super) fn new(lazy: Option<&Lazy>) -> Self {
        Self {
            cache: lazy.map(|lazy| lazy.dfa.create_cache()),
            states: Vec::new(),
            numbers: HashMap::new(),
            clears: 0,
            mark: SCRATCHES.fetch_add(1, Ordering::Relaxed),
            lost: 0,
        }
    }

    /// How often a walk of the hybrid engine began anew in the middle of a stream, because its state was of another
    /// scratch or too old: a match over that place may be missed. Nothing is lost before the states exceed
    /// [`RegexLimits::cache_bytes`].
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// 16 bits of the scratch, 16 of its clearings; never that of a start.
    fn mark(&self) -> u32 {
        (self.mark % 0xffff) << 16 | (self.clears as u32 & 0xffff)
    }
}

impl Lazy {
    /// Of the patterns with these numbers; `None` where there are none.
    pub(super) fn new(
        parsed: &[Hir],
        patterns: Vec<u32>,
        limits: &RegexLimits,
    ) -> Result<Option<Self>, RegexError> {
        let Some(first) = patterns.first() else { return Ok(None) };
        let of = |why| RegexError { pattern: *first as usize, why };
        let all: Vec<&Hir> = patterns.iter().map(|number| &parsed[*number as usize]).collect();
        let nfa = super::nfa(&all, limits.lazy_nfa_bytes_max).map_err(of)?;
        let config = Config::new()
            .match_kind(MatchKind::All)
            .cache_capacity(limits.cache_bytes)
            .skip_cache_capacity_check(true);
        let dfa = Builder::new().configure(config).build_from_nfa(nfa);
        let dfa = dfa.map_err(|error| of(Why::Unsupported(error.to_string())))?;
        Ok(Some(Self { dfa, patterns }))
    }

    pub(super) fn scan(
        &self,
        state: &mut u64,
        bytes: &[u8],
        offset: u64,
        scratch: &mut RegexScratch,
        found: &mut Vec<Match>,
    ) {
        // Nothing to learn, and nothing to lose.
        if bytes.is_empty() {
            return;
        }
        let Some(mut now) = self.state(*state, scratch) else { return };
        let Some(cache) = &mut scratch.cache else { return };
        for (at, byte) in bytes.iter().enumerate() {
            match self.dfa.next_state(cache, now, *byte) {
                Ok(next) => now = next,
                // Only with settings that we do not make.
                Err(_) => {
                    scratch.lost += 1;
                    *state = ANYWHERE;
                    return;
                }
            }
            if now.is_match() {
                self.report(cache, now, offset.wrapping_add(at as u64), found);
            }
            if now.is_dead() {
                break;
            }
        }
        if cache.clear_count() != scratch.clears {
            scratch.clears = cache.clear_count();
            scratch.states.clear();
            scratch.numbers.clear();
        }
        let states = &mut scratch.states;
        let number = *scratch.numbers.entry(now).or_insert_with(|| {
            states.push(now);
            states.len() as u32 - 1
        });
        *state = u64::from(scratch.mark()) << 32 | u64::from(number);
    }

    pub(super) fn finish(
        &self,
        state: &mut u64,
        offset: u64,
        scratch: &mut RegexScratch,
        found: &mut Vec<Match>,
    ) {
        let Some(now) = self.state(*state, scratch) else { return };
        *state = ANYWHERE; // the last step may clear the cache
        let Some(cache) = &mut scratch.cache else { return };
        if let Ok(last) = self.dfa.next_eoi_state(cache, now)
            && last.is_match()
        {
            self.report(cache, last, offset, found);
        }
    }

    #[cold]
    fn report(&self, cache: &Cache, state: LazyStateID, end: u64, found: &mut Vec<Match>) {
        let begin = found.len();
        found.extend((0..self.dfa.match_len(cache, state)).map(|at| {
            let number = self.dfa.match_pattern(cache, state, at).as_usize();
            Match { pattern: self.patterns[number], end }
        }));
        found[begin..].sort_unstable();
    }

    /// The state that a stream is in.
    fn state(&self, state: u64, scratch: &mut RegexScratch) -> Option<LazyStateID> {
        let mark = scratch.mark();
        let cache = scratch.cache.as_mut()?;
        let known = (state >> 32 == u64::from(mark) && cache.clear_count() == scratch.clears)
            .then(|| scratch.states.get(state as u32 as usize).copied())
            .flatten();
        if known.is_some() {
            return known;
        }
        scratch.lost += u64::from(state < ANYWHERE);
        let before = (state != START).then_some(NO_WORD);
        let config = start::Config::new().anchored(Anchored::No).look_behind(before);
        self.dfa.start_state(cache, &config).ok()
    }
}
