//! Which checks may hold of a buffer: those whose literal is in it, and those that have none.
//!
//! ```text
//!  port ─┬▶ Group: bytes ─▶ literals ─ pattern ─▶ starts ─▶ refs: numbers of parts
//!        └▶ always: parts without a literal
//! ```
//!
//! There is one group for all ports, unless the plain design is asked for ([`Search::Grouped`]).

use std::cmp::Reverse;
use std::collections::HashMap;

use automata::{Finder, Found, Match, Pattern, PatternError, Patterns, Scratch, State};

use crate::plain::Table;
use crate::ruleset::Search;

/// Groups of ports at most, in the plain design; Suricata has as many for what goes to servers.
const GROUPS_MAX: usize = 40;
/// Ranges of ports times parts at most, for parts to be told apart by port.
const WORK_MAX: usize = 1 << 24;
/// Lists of parts without a literal at most.
const LISTS_MAX: usize = 256;

/// Ports of servers for which a part is looked for, both ends included; none: all.
pub(crate) type Ports = Option<Vec<(u16, u16)>>;

/// Bytes that are looked for, and whether case does not count.
pub(crate) type Bytes = (Vec<u8>, bool);

/// A part, and the number of its rule's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ref {
    pub(crate) part: u32,
    pub(crate) header: u32,
}

/// The parts of one buffer and sender.
#[derive(Debug, Default)]
pub(crate) struct Set {
    /// Those with a literal.
    groups: Vec<Group>,
    /// The first port of a range, and its group; sorted.
    places: Vec<(u16, u16)>,
    /// Those without, likewise.
    lists: Vec<Vec<Ref>>,
    list_places: Vec<(u16, u16)>,
    all: Vec<Ref>,
}

/// The parts with a literal that are looked for together.
#[derive(Debug, Default)]
pub(crate) struct Group {
    engine: Engine,
    /// By pattern: where its parts begin in `refs`; one more at the end.
    starts: Vec<u32>,
    refs: Vec<Ref>,
    /// Bytes of the longest literal.
    longest: usize,
}

#[derive(Debug, Default)]
enum Engine {
    #[default]
    None,
    Shared(Box<Finder>),
    Plain(Box<Table>),
}

/// The parts of a set for one port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfPort<'a> {
    group: Option<&'a Group>,
    /// Those without a literal.
    pub(crate) always: &'a [Ref],
}

/// Room of a worker for the search.
#[derive(Debug, Default)]
pub(crate) struct Room {
    scratch: Scratch,
    found: Vec<Found>,
}

fn place(places: &[(u16, u16)], port: u16) -> Option<usize> {
    let above = places.partition_point(|(first, _)| *first <= port);
    Some(usize::from(places.get(above.checked_sub(1)?)?.1))
}

impl Set {
    /// Those for a port of a server; none: not known.
    pub(crate) fn of(&self, port: Option<u16>) -> OfPort<'_> {
        match (port, &self.groups[..]) {
            // Of rules in groups, all are tried.
            (None, [_, _, ..]) => OfPort { group: None, always: &self.all },
            (None, groups) => OfPort { group: groups.first(), always: &self.all },
            (Some(port), groups) => OfPort {
                group: place(&self.places, port).and_then(|at| groups.get(at)),
                always: place(&self.list_places, port).map_or(&[], |at| &self.lists[at]),
            },
        }
    }
}

impl Group {
    /// The parts of a literal that is there.
    fn each(&self, found: Match, hit: &mut impl FnMut(Ref, u64)) {
        let at = found.pattern as usize;
        let parts = self.starts[at] as usize..self.starts[at + 1] as usize;
        self.refs[parts].iter().for_each(|part| hit(*part, found.end));
    }
}

impl OfPort<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.group.is_none() && self.always.is_empty()
    }

    /// All that is looked at: `hit` gets parts, each as often as its literal is there, and where it ends.
    pub(crate) fn scan_whole(&self, room: &mut Room, bytes: &[u8], hit: impl FnMut(Ref, u64)) {
        self.scan_more(room, None, bytes, 0, false, hit);
    }

    /// What begins before the place `at` and ends behind it, and some of what is near: `hit` gets parts, and where the literal ends.
    pub(crate) fn scan_across(
        &self,
        room: &mut Room,
        bytes: &[u8],
        at: usize,
        mut hit: impl FnMut(Ref, u64),
    ) {
        let reach = self.group.map_or(0, |group| group.longest.saturating_sub(1));
        let (from, to) = (at.saturating_sub(reach), bytes.len().min(at + reach));
        self.scan_whole(room, &bytes[from..to], |own, end| hit(own, from as u64 + end));
    }

    /// As [`OfPort::scan_whole`], of what ends behind the first `before` bytes; those were searched before, and the state is what that gave.
    /// `is_clean`: no literal is as a whole in the bytes behind them.
    pub(crate) fn scan_more(
        &self,
        room: &mut Room,
        state: Option<State>,
        bytes: &[u8],
        before: usize,
        is_clean: bool,
        mut hit: impl FnMut(Ref, u64),
    ) -> Option<State> {
        let group = self.group?;
        let mut pattern = |pattern: u32, end: u64| group.each(Match { pattern, end }, &mut hit);
        match &group.engine {
            Engine::None => None,
            Engine::Plain(table) => {
                let state = state.map_or(0, |state| state.to_bits() as u32);
                let state = table.scan(state, &bytes[before..], |number, end| {
                    pattern(number, before as u64 + end);
                });
                Some(State::from_bits(state.into()))
            }
            // A literal that began before is found by its bytes, which are there still: most messages are of one segment, and then
            // neither a walk to a state nor one from it is needed.
            Engine::Shared(finder) => {
                let reach = group.longest.saturating_sub(1);
                let from = before.saturating_sub(reach);
                let to = match is_clean {
                    true if before == 0 => return None,
                    true => bytes.len().min(before + reach),
                    false => bytes.len(),
                };
                if before == bytes.len() {
                    return None;
                }
                room.found.clear();
                finder.find(&bytes[from..to], &mut room.found, &mut room.scratch);
                for found in &room.found {
                    let end = from as u64 + found.end;
                    if end > before as u64 {
                        pattern(found.pattern, end);
                    }
                }
                None
            }
        }
    }
}

/// A part on its way into a set.
#[derive(Debug)]
struct Entry {
    part: Ref,
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
    /// A part of which one of the literals is there if it holds; without literals it is always tried.
    pub(crate) fn add(
        &mut self,
        part: Ref,
        literals: &[Bytes],
        ports: Ports,
    ) -> Result<(), PatternError> {
        for (bytes, nocase) in literals {
            self.patterns.insert(pattern(bytes, *nocase))?;
        }
        self.entries.push(Entry { part, literals: literals.to_vec(), ports });
        Ok(())
    }

    /// The literals.
    pub(crate) fn patterns(&self) -> &[Pattern] {
        self.patterns.as_slice()
    }

    pub(crate) fn build(self, search: Search) -> Set {
        let Self { patterns, mut entries } = self;
        let with_literals = entries.iter().any(|entry| !entry.literals.is_empty());
        let finder = match search {
            Search::Shared if with_literals => Finder::new(&patterns).ok(),
            _ => None,
        };
        // Where the tables of the literals are too large, every part is evaluated on every buffer.
        if search == Search::Every || search == Search::Shared && finder.is_none() {
            entries.iter_mut().for_each(|entry| entry.literals.clear());
        }
        let (with, without): (Vec<&Entry>, Vec<&Entry>) =
            entries.iter().partition(|entry| !entry.literals.is_empty());
        let (lists, list_places) = by_port(&without, LISTS_MAX);
        let lists = lists.into_iter().map(|own| own.iter().map(|entry| entry.part).collect());
        let (groups, places) = match finder {
            Some(finder) => (vec![shared(patterns, finder, &with)], vec![(0, 0)]),
            None => {
                let (groups, places) = by_port(&with, GROUPS_MAX);
                (groups.iter().map(|own| plain(own)).collect(), places)
            }
        };
        let all = match groups.len() {
            0 | 1 => without.iter().map(|entry| entry.part).collect(),
            _ => entries.iter().map(|entry| entry.part).collect(),
        };
        Set { groups, places, lists: lists.collect(), list_places, all }
    }
}

fn pattern(bytes: &[u8], nocase: bool) -> Pattern {
    let pattern = Pattern::new(bytes);
    if nocase { pattern.nocase() } else { pattern }
}

fn shared(mut patterns: Patterns, finder: Finder, entries: &[&Entry]) -> Group {
    // A pattern that is there has its number.
    let number = |(bytes, nocase): &Bytes| patterns.insert(pattern(bytes, *nocase)).unwrap_or(0);
    group(Engine::Shared(Box::new(finder)), entries, number)
}

fn plain(entries: &[&Entry]) -> Group {
    let own = entries.iter().flat_map(|entry| &entry.literals);
    let mut literals: Vec<Vec<u8>> = own.map(|(bytes, _)| bytes.to_ascii_lowercase()).collect();
    literals.sort_unstable();
    literals.dedup();
    let number = |(bytes, _): &Bytes| {
        let lower = bytes.to_ascii_lowercase();
        literals.binary_search(&lower).map_or(0, |at| at as u32)
    };
    group(Engine::Plain(Box::new(Table::new(&literals))), entries, number)
}

fn group(engine: Engine, entries: &[&Entry], mut number: impl FnMut(&Bytes) -> u32) -> Group {
    let mut pairs = Vec::new();
    for entry in entries {
        pairs.extend(entry.literals.iter().map(|own| (number(own), entry.part)));
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
    let literals = entries.iter().flat_map(|entry| &entry.literals);
    let longest = literals.map(|(bytes, _)| bytes.len()).max().unwrap_or(0);
    Group { engine, starts, refs, longest }
}

/// Parts by port: ranges of ports with the same parts are together, those with most parts each for itself, and all others in one,
/// so that there are not more than `max`. With each range's first port and place.
fn by_port<'a>(all: &[&'a Entry], max: usize) -> (Vec<Vec<&'a Entry>>, Vec<(u16, u16)>) {
    if all.is_empty() {
        return <_>::default();
    }
    let ranges = all.iter().flat_map(|entry| entry.ports.iter().flatten());
    let mut firsts: Vec<u16> = ranges
        .flat_map(|(first, last)| [Some(*first), last.checked_add(1)])
        .flatten()
        .chain([0])
        .collect();
    firsts.sort_unstable();
    firsts.dedup();
    if firsts.len().saturating_mul(all.len()) > WORK_MAX {
        return (vec![all.to_vec()], vec![(0, 0)]);
    }
    let of_range = |first: &u16| -> Vec<u32> {
        let own = all.iter().enumerate().filter(|(_, entry)| entry.has(*first));
        own.map(|(at, _)| at as u32).collect()
    };
    let mut lists: Vec<Vec<u32>> = Vec::new();
    let mut known: HashMap<Vec<u32>, usize> = HashMap::new();
    let mut places: Vec<(u16, usize)> = Vec::new();
    for first in firsts {
        let list = of_range(&first);
        let at = *known.entry(list).or_insert_with_key(|list| {
            lists.push(list.clone());
            lists.len() - 1
        });
        places.push((first, at));
    }
    let mut order: Vec<usize> = (0..lists.len()).collect();
    order.sort_by_key(|at| Reverse(lists[*at].len()));
    let others = order.split_off(order.len().min(max - 1));
    let mut rest: Vec<u32> = others.iter().flat_map(|at| &lists[*at]).copied().collect();
    rest.sort_unstable();
    rest.dedup();
    let new = |at: usize| order.iter().position(|own| *own == at).unwrap_or(order.len()) as u16;
    let places = places.into_iter().map(|(first, at)| (first, new(at))).collect();
    let lists = order.iter().map(|at| &lists[*at]).chain((!others.is_empty()).then_some(&rest));
    (lists.map(|list| list.iter().map(|at| all[*at as usize]).collect()).collect(), places)
}
