//! Which checks may hold of a buffer: those whose literal is in it, and those that have none.
//!
//! ```text
//!  port ─▶ Group: bytes ─▶ literals ─ pattern ─▶ starts ─▶ refs: numbers of parts
//!                                                          always: parts without a literal
//! ```
//!
//! There is one group for all ports, unless the plain design is asked for ([`Search::Grouped`]).

use automata::{Automaton, Found, Pattern, PatternError, Patterns, Scratch, Segment, State};

use crate::plain::Table;
use crate::ruleset::Search;

/// Groups of ports at most, in the plain design; Suricata has as many for what goes to servers.
const GROUPS_MAX: usize = 40;

/// Ports of servers for which a part is looked for, both ends included; none: all.
pub(crate) type Ports = Option<Vec<(u16, u16)>>;

/// Bytes that are looked for, and whether case does not count.
pub(crate) type Bytes = (Vec<u8>, bool);

/// The parts of one buffer and sender.
#[derive(Debug, Default)]
pub(crate) struct Set {
    /// Of all ports.
    whole: Group,
    groups: Vec<Group>,
    /// The first port of a range, and its group; sorted.
    places: Vec<(u16, u16)>,
}

/// The parts of a set that are looked for together.
#[derive(Debug, Default)]
pub(crate) struct Group {
    engine: Engine,
    /// By pattern: where its parts begin in `refs`; one more at the end.
    starts: Vec<u32>,
    refs: Vec<u32>,
    pub(crate) always: Vec<u32>,
}

#[derive(Debug, Default)]
enum Engine {
    #[default]
    None,
    Shared(Box<Automaton>),
    Plain(Box<Table>),
}

/// Room of a worker for the search.
#[derive(Debug, Default)]
pub(crate) struct Room {
    scratch: Scratch,
    found: Vec<Found>,
}

impl Set {
    /// Those for a port of a server; none: not known.
    pub(crate) fn of(&self, port: Option<u16>) -> &Group {
        match port {
            Some(port) if !self.places.is_empty() => {
                let above = self.places.partition_point(|(first, _)| *first <= port);
                &self.groups[usize::from(self.places[above.saturating_sub(1)].1)]
            }
            _ => &self.whole,
        }
    }
}

impl Group {
    pub(crate) fn is_empty(&self) -> bool {
        self.refs.is_empty() && self.always.is_empty()
    }

    /// Walks on: `hit` gets parts, each as often as its literal is there, and where it ends.
    pub(crate) fn scan(
        &self,
        room: &mut Room,
        state: Option<State>,
        bytes: &[u8],
        offset: u64,
        mut hit: impl FnMut(u32, u64),
    ) -> Option<State> {
        let mut pattern = |pattern: u32, end: u64| {
            let at = pattern as usize;
            let parts = self.starts[at] as usize..self.starts[at + 1] as usize;
            self.refs[parts].iter().for_each(|part| hit(*part, end));
        };
        match &self.engine {
            Engine::None => None,
            Engine::Plain(table) => {
                let state = state.map_or(0, |state| state.to_bits() as u32);
                let state = table.scan(state, bytes, |number, at| pattern(number, offset + at));
                Some(State::from_bits(state.into()))
            }
            Engine::Shared(automaton) => {
                let state = state.unwrap_or_else(|| automaton.start());
                let mut segments = [Segment { state, offset, bytes }];
                room.found.clear();
                automaton.scan_many(&mut segments, &mut room.found, &mut room.scratch);
                room.found.iter().for_each(|found| pattern(found.pattern, found.end));
                Some(segments[0].state)
            }
        }
    }
}

/// A part on its way into a set.
#[derive(Debug)]
struct Entry {
    part: u32,
    /// One of these is there where the part holds; none: nothing is known.
    literals: Vec<Bytes>,
    ports: Ports,
}

impl Entry {
    fn has(&self, port: u16) -> bool {
        let is_in = |(first, last): &(u16, u16)| (*first..=*last).contains(&port);
        self.ports.as_ref().is_none_or(|ports| ports.iter().any(is_in))
    }
}

/// Collects the parts of a set.
#[derive(Default)]
pub(crate) struct SetBuilder {
    patterns: Patterns,
    entries: Vec<Entry>,
}

impl SetBuilder {
    /// A part of which one of the literals is there if it holds.
    pub(crate) fn add(
        &mut self,
        part: u32,
        literals: &[Bytes],
        ports: Ports,
    ) -> Result<(), PatternError> {
        for (bytes, nocase) in literals {
            self.patterns.insert(pattern(bytes, *nocase))?;
        }
        self.entries.push(Entry { part, literals: literals.to_vec(), ports });
        Ok(())
    }

    pub(crate) fn build(self, search: Search) -> Set {
        let all: Vec<&Entry> = self.entries.iter().collect();
        if all.is_empty() {
            return Set::default();
        }
        match search {
            Search::Every => Set { whole: every(&all), ..Set::default() },
            Search::Shared => Set { whole: shared(self.patterns, &all), ..Set::default() },
            Search::Grouped => grouped(&all),
        }
    }
}

fn pattern(bytes: &[u8], nocase: bool) -> Pattern {
    let pattern = Pattern::new(bytes);
    if nocase { pattern.nocase() } else { pattern }
}

fn every(entries: &[&Entry]) -> Group {
    Group { always: entries.iter().map(|entry| entry.part).collect(), ..Group::default() }
}

/// Where the tables of the literals are too large, every part is evaluated on every buffer.
fn shared(mut patterns: Patterns, entries: &[&Entry]) -> Group {
    if patterns.is_empty() {
        return every(entries);
    }
    let Ok(automaton) = Automaton::new(&patterns) else { return every(entries) };
    // A pattern that is there has its number.
    let number = |(bytes, nocase): &Bytes| patterns.insert(pattern(bytes, *nocase)).unwrap_or(0);
    let engine = Engine::Shared(Box::new(automaton));
    group(engine, entries, number)
}

fn group(engine: Engine, entries: &[&Entry], mut number: impl FnMut(&Bytes) -> u32) -> Group {
    let (mut pairs, mut always) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry.literals.is_empty() {
            true => always.push(entry.part),
            false => pairs.extend(entry.literals.iter().map(|own| (number(own), entry.part))),
        }
    }
    pairs.sort_unstable();
    pairs.dedup();
    let patterns = pairs.last().map_or(0, |(pattern, _)| *pattern as usize + 1);
    let mut starts = vec![0; patterns + 1];
    pairs.iter().for_each(|(pattern, _)| starts[*pattern as usize + 1] += 1);
    for at in 1..starts.len() {
        starts[at] += starts[at - 1];
    }
    let refs = pairs.iter().map(|(_, part)| *part).collect();
    Group { engine, starts, refs, always }
}

/// Parts by port: ranges of ports with the same parts are a group, those with most parts one each, all others one together.
fn grouped(all: &[&Entry]) -> Set {
    let ranges = all.iter().flat_map(|entry| entry.ports.iter().flatten());
    let mut firsts: Vec<u16> = ranges
        .flat_map(|(first, last)| [Some(*first), last.checked_add(1)])
        .flatten()
        .chain([0])
        .collect();
    firsts.sort_unstable();
    firsts.dedup();
    let of_range = |first: &u16| -> Vec<u32> {
        let own = all.iter().enumerate().filter(|(_, entry)| entry.has(*first));
        own.map(|(at, _)| at as u32).collect()
    };
    let lists: Vec<Vec<u32>> = firsts.iter().map(of_range).collect();
    let mut distinct: Vec<&Vec<u32>> = lists.iter().collect();
    distinct.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    distinct.dedup();
    let others = distinct.split_off(distinct.len().min(GROUPS_MAX - 1));
    let mut rest: Vec<u32> = others.into_iter().flatten().copied().collect();
    rest.sort_unstable();
    rest.dedup();
    let place = |list: &Vec<u32>| {
        distinct.iter().position(|own| *own == list).unwrap_or(distinct.len()) as u16
    };
    let places = firsts.into_iter().zip(lists.iter().map(place)).collect();
    let groups = distinct.iter().copied().chain([&rest]).map(|list| {
        let entries: Vec<&Entry> = list.iter().map(|at| all[*at as usize]).collect();
        let mut literals: Vec<Vec<u8>> = Vec::new();
        let own = entries.iter().flat_map(|entry| &entry.literals);
        literals.extend(own.map(|(bytes, _)| bytes.to_ascii_lowercase()));
        literals.sort_unstable();
        literals.dedup();
        let number = |(bytes, _): &Bytes| {
            let lower = bytes.to_ascii_lowercase();
            literals.binary_search(&lower).map_or(0, |at| at as u32)
        };
        let engine = match literals.is_empty() {
            true => Engine::None,
            false => Engine::Plain(Box::new(Table::new(&literals))),
        };
        group(engine, &entries, number)
    });
    let groups = groups.collect();
    Set { whole: every(all), groups, places }
}
