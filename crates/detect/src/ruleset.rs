//! Rules, compiled.

use std::collections::HashMap;

use automata::{Automaton, Pattern, PatternError, Patterns};
use signatures::config::{Class, Limit};
use signatures::{
    Action, BitsMode, Compare, Condition, RuleSet, Tag, TcpFlags, Transform, Variables,
};

use crate::compile::compile;
use crate::header::Header;
use crate::headers::Headers;
use crate::index::Set;
use crate::rule::{Compiled, Cond, Part, Registry};
use crate::{Datasets, PatternLimits, Reputation};

/// How rules are compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which actions come first: rules are evaluated in this order, and after a pass none of the same packet.
    pub action_order: [ActionKind; 4],
    /// The lines of `threshold.config`.
    pub limits: Vec<Limit>,
    /// Classes by name: priorities of rules that have none of their own.
    pub classes: HashMap<String, Class>,
    /// A connection without a handshake counts as established: it was joined in the middle.
    pub midstream: bool,
    /// What expressions may cost.
    pub patterns: PatternLimits,
    /// The sets that rules ask for by name.
    pub datasets: Datasets,
    /// Reputations of addresses.
    pub reputation: Reputation,
    /// How it is found out which rules may match. The alerts are the same.
    pub search: Search,
}

/// How it is found out which rules may match: those whose literal is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// One automaton for the literals of all rules, by buffer and direction.
    #[default]
    Shared,
    /// The plain design, to compare with: rules in groups by the port of the server, and for each group the full table of
    /// an Aho-Corasick automaton, walked byte by byte.
    Grouped,
    /// Without literals: every rule over every buffer.
    Every,
}

impl Default for Options {
    fn default() -> Self {
        use ActionKind::{Alert, Drop, Pass, Reject};
        let action_order = [Pass, Drop, Reject, Alert];
        Self {
            action_order,
            limits: Vec::new(),
            classes: HashMap::new(),
            midstream: false,
            patterns: PatternLimits::default(),
            datasets: Datasets::default(),
            reputation: Reputation::default(),
            search: Search::default(),
        }
    }
}

/// What an action comes down to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActionKind {
    /// `pass`
    Pass,
    /// `drop`, `sdrop`
    Drop,
    /// `reject` and its kin
    Reject,
    /// `alert`, `log`
    Alert,
}

/// A rule that is not evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its index in [`RuleSet::rules`].
    pub index: usize,
    /// Its identifier.
    pub sid: u32,
    /// Why.
    pub reason: String,
}

/// What an alert shows of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleInfo {
    /// Its index in the [`RuleSet`] that it came from.
    pub index: usize,
    /// `gid`
    pub gid: u32,
    /// `sid`
    pub sid: u32,
    /// `rev`
    pub rev: u32,
    /// `msg`, or nothing.
    pub msg: String,
    /// Its action.
    pub action: Action,
    /// Its own priority, or that of its class; 3 where there is neither.
    pub priority: u8,
    /// What its class is called in alerts; empty where it has none.
    pub category: String,
    /// `metadata`
    pub metadata: Vec<(String, String)>,
    /// `reference`
    pub references: Vec<(String, String)>,
    /// `tag`: packets that are wanted after an alert.
    pub tags: Vec<Tag>,
}

/// Rules in the order of evaluation, ready for any number of detectors; read-only.
#[derive(Debug, Default)]
pub struct Ruleset {
    pub(crate) info: Vec<RuleInfo>,
    pub(crate) rules: Vec<Compiled>,
    pub(crate) parts: Vec<Part>,
    /// Parts in payloads of packets, by class (TCP, UDP, others) and sender.
    pub(crate) packets: [[Set; 2]; 3],
    /// Those in payloads of packets of TCP that belong to a stream, by sender.
    pub(crate) in_stream: [Set; 2],
    /// Rules of packets without a payload part, likewise.
    pub(crate) plain: [[Plain; 2]; 3],
    /// Of them those that some packets that carry streams of TCP on may match, as their headers are.
    pub(crate) screens: [Plain; 2],
    /// Without PSH and with it, a bit for each number of bytes of payload: one of them may match a packet to any port.
    pub(crate) screened: [Box<[u64]>; 2],
    /// Headers of rules, each once.
    pub(crate) headers: Headers,
    /// Parts in streams, by sender.
    pub(crate) streams: [Set; 2],
    /// Parts in buffers, by number of the buffer: for each list of transforms.
    pub(crate) buffers: Vec<Vec<BufferSets>>,
    /// Parts that hold of a buffer that is not there, by sender; without those that wait for the key of their rule.
    pub(crate) absent: [Vec<u32>; 2],
    pub(crate) addresses: Vec<u32>,
    /// Rules about packets that cannot be decoded and about streams, by event.
    pub(crate) events: HashMap<&'static str, Vec<u32>>,
    /// Parts on sets of values, which are of whole buffers.
    pub(crate) of_sets: Vec<u32>,
    /// Rules about what is odd in sessions.
    pub(crate) app_events: HashMap<applayer::AnomalyKind, Vec<u32>>,
    /// A rule with contents or the like may drop or pass packets.
    pub(crate) decides: bool,
    /// Rules that single fragments are tried for.
    pub(crate) fragments: Vec<u32>,
    pub(crate) applications: Vec<u32>,
    pub(crate) registry: Registry,
    pub(crate) midstream: bool,
    /// A rule asks how long streams are.
    pub(crate) asks_for_sizes: bool,
    /// A rule wants packets of a host.
    pub(crate) tags_hosts: bool,
    /// No other ruleset of the process has this number.
    pub(crate) generation: u64,
    /// What is searched for in payloads of packets and in streams; none unless the search is [`Search::Shared`].
    pub(crate) literals: Option<Vec<Pattern>>,
}

/// What is looked for in a buffer behind transforms, by sender.
#[derive(Debug)]
pub(crate) struct BufferSets {
    pub(crate) transforms: Vec<Transform>,
    pub(crate) sets: [Layers; 2],
}

/// The parts of a buffer.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    /// All of them.
    pub(crate) all: Set,
    /// Without those that wait for the key of their rule; none where no part does.
    pub(crate) keys: Option<Set>,
}

impl Layers {
    /// Those that are looked for in a buffer that is kept, or in one that is not.
    pub(crate) fn of(&self, is_kept: bool) -> &Set {
        self.keys.as_ref().filter(|_| is_kept).unwrap_or(&self.all)
    }
}

/// Rules that have to be tried on each packet, by destination port where they have few.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    by_port: HashMap<u16, Vec<Tried>>,
    /// A bit for each port that has some, by the port's hash.
    ports: [u64; 16],
    any: Vec<Tried>,
}

/// A rule that is tried on each packet, with what of its conditions tells most packets apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tried {
    pub(crate) rule: u32,
    /// The number of its header.
    pub(crate) header: u32,
    /// Bits of the flags of TCP, and what they have to be.
    flags: (u8, u8),
    /// Bytes of payload, both ends included.
    payload: (u32, u32),
}

impl Tried {
    /// Of a rule, and the number of its header.
    pub(crate) fn new(number: u32, header: u32, rule: &Compiled) -> Self {
        let mut own = Self { rule: number, header, flags: (0, 0), payload: (0, u32::MAX) };
        for cond in &rule.conditions {
            let Cond::Packet(condition) = cond else { continue };
            match condition {
                Condition::Flags(TcpFlags { mode: BitsMode::Exactly, bits, ignored }) => {
                    own.flags = (!ignored, *bits);
                }
                Condition::Dsize(size) => {
                    let bound = |size: u64| u32::try_from(size).unwrap_or(u32::MAX);
                    own.payload = match *size {
                        Compare::Equal(size) => (bound(size), bound(size)),
                        Compare::Greater(size) => (bound(size), u32::MAX),
                        Compare::Less(size) => (0, bound(size)),
                        Compare::NotEqual(_) => (1, u32::MAX),
                        _ => own.payload,
                    };
                }
                _ => {}
            }
        }
        own
    }

    /// No of most packets of which its conditions do not hold.
    #[inline]
    pub(crate) fn may_hold(&self, header: &Header) -> bool {
        self.may_have(header.tcp.map_or(0, |tcp| tcp.flags), header.payload)
    }

    /// The same of flags and bytes of payload.
    #[inline]
    pub(crate) fn may_have(&self, flags: u8, payload: usize) -> bool {
        let payload = u32::try_from(payload).unwrap_or(u32::MAX);
        flags & self.flags.0 == self.flags.1
            && self.payload.0 <= payload
            && payload <= self.payload.1
    }
}

impl Plain {
    /// Those that packets to a port are tried for.
    pub(crate) fn of(&self, port: u16) -> impl Iterator<Item = &Tried> {
        let own = if self.may_have_port(port) { self.by_port.get(&port) } else { None };
        own.into_iter().flatten().chain(&self.any)
    }

    /// Whether there may be some that are for a port and few others.
    #[inline]
    pub(crate) fn may_have_port(&self, port: u16) -> bool {
        let bit = usize::from(port) % 1_024;
        self.ports[bit / 64] >> (bit % 64) & 1 != 0
    }

    /// Those that packets to any port are tried for.
    pub(crate) fn of_any(&self) -> &[Tried] {
        &self.any
    }

    /// One more: for the ports that it is for, if these are few.
    pub(crate) fn add(&mut self, number: u32, header: u32, rule: &Compiled) {
        let own = Tried::new(number, header, rule);
        let ports = rule.ends.destination_ports.as_ref().filter(|_| !rule.ends.both);
        let size = |(first, last): &(u16, u16)| u32::from(*last) - u32::from(*first) + 1;
        let few = ports.map(|ports| ports.iter().map(size).sum::<u32>());
        match (ports, few) {
            (Some(ports), Some(..=16)) => {
                for port in ports.iter().flat_map(|(first, last)| *first..=*last) {
                    let bit = usize::from(port) % 1_024;
                    self.ports[bit / 64] |= 1 << (bit % 64);
                    self.by_port.entry(port).or_default().push(own);
                }
            }
            _ => self.any.push(own),
        }
    }
}

impl Ruleset {
    /// Compiles what can be evaluated; the rest comes back with reasons. Rules are as [`signatures::Loader`] gives them, and
    /// the variables are those that it had.
    pub fn compile(
        set: &RuleSet,
        variables: &Variables,
        options: &Options,
    ) -> (Self, Vec<Refused>) {
        compile(set, variables, options, Registry::default())
    }

    /// The same, for detectors that had `before`: what flows and hosts remember by name keeps its meaning.
    pub fn compile_after(
        before: &Self,
        set: &RuleSet,
        variables: &Variables,
        options: &Options,
    ) -> (Self, Vec<Refused>) {
        compile(set, variables, options, before.registry.clone())
    }

    /// What an alert shows of a rule, by the number in the alert.
    pub fn rule(&self, number: u32) -> &RuleInfo {
        &self.info[number as usize]
    }

    /// The literals that are searched for in payloads of packets and in streams, of all rules, both senders and all protocols,
    /// as one automaton: for a search before it is known whose bytes they are. Bytes without any of them are *clean*
    /// ([`Detector::begin_searched`](crate::Detector::begin_searched)). `None`: rules are found in another way, so no bytes are.
    ///
    /// # Errors
    /// The tables are too large.
    pub fn literals(&self) -> Result<Option<Automaton>, PatternError> {
        let Some(literals) = &self.literals else { return Ok(None) };
        let mut patterns = Patterns::default();
        for pattern in literals {
            patterns.insert(pattern.clone())?;
        }
        Automaton::new(&patterns).map(Some)
    }

    /// Whether a rule wants packets of a host, whatever flows they are of.
    pub fn tags_hosts(&self) -> bool {
        self.tags_hosts
    }

    /// Its number: no other ruleset of the process has it.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether there are rules about single fragments ([`Detector::fragment`](crate::Detector::fragment)).
    pub fn asks_for_fragments(&self) -> bool {
        !self.fragments.is_empty()
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.info.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.info.is_empty()
    }
}
