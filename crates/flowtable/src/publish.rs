//! From what control knows to what packets see: patches, a few for each change.
//!
//! Changes are gathered by the number of the flow, so that a flow that comes and goes between two versions leaves no trace, and
//! twenty thousand flows of one file are one build. A classifier takes changes one by one while they are few beside what it
//! holds; otherwise, and when a flow looks at a word of the key that no flow of the table has looked at, it is built anew over
//! the words that the flows look at then. Words that all of them ask for alike, such as an EtherType, are not among these: packets
//! are compared with them first ([`Wildcards`]), and a flow that asks for something else there has the classifier built anew.
//!
//! By default a small table is searched one by one, and a larger one by what `classify`'s `auto` measures to be the quickest of what
//! changes easily; it measures again each time a table has grown sixteen times, and not for each build between.

use std::collections::HashMap;
use std::sync::Arc;

use classify::algorithms::{Algorithm, find};
use classify::auto::{AutoBuilder, Options};
use classify::linear::LinearBuilder;
use classify::{Classifier, Field, Kind, RuleError, RuleRef, RuleSet, Schema};

use crate::device::Follower;
use crate::exact::is_exact;
use crate::flow::Flow;
use crate::key::{Key, WORDS, Words};
use crate::tables::{Common, FlowPatch, Settings, Wildcards, rank, width};

/// Wildcard flows up to which `auto` searches one by one without measuring.
const FEW: usize = 64;

/// How much larger a table is when it is measured again.
const GROWTH: usize = 16;

/// How a table is searched by default.
pub(crate) const AUTO: &str = "auto";

/// The lookup of one table, as control keeps it.
#[derive(Debug, Default)]
struct Lookup {
    /// The exact flow of each key.
    exact: HashMap<Key, u32>,
    /// The wildcard flows, by number.
    wild: HashMap<u32, Arc<Flow>>,
    /// What all wildcard flows ask for alike: words of a key, whole ones.
    common: Words,
    words: Vec<u8>,
    /// Words that flows ask for: those and the common ones.
    looked_at: usize,
    classifier: Option<Box<dyn Classifier>>,
    /// Wildcard flows when the structure was chosen, and what `auto` has chosen.
    chosen_at: usize,
    chosen: Option<&'static str>,
}

/// A flow as packets see it, and whether it is in the hash table of exact ones.
type Seen = (Arc<Flow>, bool);

/// What packets see, and what has changed since.
#[derive(Debug)]
pub(crate) struct Published {
    tables: Vec<Lookup>,
    flows: Vec<Option<Seen>>,
    dirty: Vec<u32>,
    is_dirty: Vec<bool>,
    algorithm: &'static Algorithm,
    /// What a device sees follows.
    device: Option<Follower>,
}

impl Published {
    /// Nothing, of so many tables, searched by an algorithm of `classify`.
    pub(crate) fn new(settings: Settings, algorithm: &'static Algorithm, seed: u64) -> Self {
        let device = settings.device.then(|| Follower::new(seed));
        let tables = (0..settings.tables).map(|_| Lookup::default()).collect();
        let (flows, dirty, is_dirty) = (Vec::new(), Vec::new(), Vec::new());
        Self { tables, flows, dirty, is_dirty, algorithm, device }
    }

    /// The flow of a number has changed.
    pub(crate) fn touch(&mut self, id: u32) {
        let at = id as usize;
        if self.is_dirty.len() <= at {
            self.is_dirty.resize(at + 1, false);
            self.flows.resize(at + 1, None);
        }
        if !std::mem::replace(&mut self.is_dirty[at], true) {
            self.dirty.push(id);
        }
    }

    /// The structure that a table is searched by, its words and its wildcard and exact flows.
    pub(crate) fn structure(&self, table: u8) -> (&'static str, usize, usize, usize) {
        let Some(own) = self.tables.get(usize::from(table)) else { return ("none", 0, 0, 0) };
        let name = match &own.classifier {
            None => "none",
            Some(_) => own.chosen.unwrap_or(match own.chosen_at <= FEW {
                true if self.algorithm.name == AUTO => "linear",
                _ => self.algorithm.name,
            }),
        };
        (name, own.looked_at, own.wild.len(), own.exact.len())
    }

    /// Patches to make packets see `current`.
    pub(crate) fn patches(&mut self, current: &[Option<Arc<Flow>>], patches: &mut Vec<FlowPatch>) {
        let mut changes: Vec<Vec<(u32, Option<Arc<Flow>>)>> = vec![Vec::new(); self.tables.len()];
        let (mut fresh, before) = (Vec::new(), patches.len());
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.sort_unstable();
        for &id in &dirty {
            let at = id as usize;
            self.is_dirty[at] = false;
            let new = current.get(at).and_then(Clone::clone);
            let old = self.flows[at].take();
            match (old, &new) {
                (Some((old, is_exact)), Some(new)) if is_same_key(&old, new) => {
                    if !is_exact {
                        self.tables[usize::from(new.table)].wild.insert(id, new.clone());
                    }
                    self.flows[at] = Some((new.clone(), is_exact));
                }
                (old, new) => {
                    if let Some((old, is_exact)) = old {
                        let table = &mut self.tables[usize::from(old.table)];
                        if is_exact {
                            table.exact.remove(&old.words.value);
                            patches.push(FlowPatch::Exact(old.table, old, false));
                        } else {
                            table.wild.remove(&id);
                            changes[usize::from(old.table)].push((id, None));
                        }
                    }
                    fresh.extend(new.clone());
                }
            }
        }
        let flow =
            |id: &u32| FlowPatch::Flow(*id, current.get(*id as usize).and_then(Clone::clone));
        patches.extend(dirty.iter().map(flow));
        for flow in fresh {
            let table = &mut self.tables[usize::from(flow.table)];
            let (id, key) = (flow.id, flow.words.value);
            let exact = is_exact(&flow.words) && !table.exact.contains_key(&key);
            if exact {
                table.exact.insert(key, id);
                patches.push(FlowPatch::Exact(flow.table, flow.clone(), true));
            } else {
                table.wild.insert(id, flow.clone());
                changes[usize::from(flow.table)].push((id, Some(flow.clone())));
            }
            self.flows[id as usize] = Some((flow, exact));
        }
        for (number, changes) in
            changes.iter().enumerate().filter(|(_, changes)| !changes.is_empty())
        {
            let how = How { algorithm: self.algorithm, for_devices: self.device.is_some() };
            self.tables[number].change(number as u8, how, changes, patches);
        }
        if let Some(device) = &mut self.device {
            device.follow(patches, before);
        }
        dirty.clear();
        self.dirty = dirty;
    }
}

/// How wildcard flows are searched.
#[derive(Clone, Copy)]
struct How {
    algorithm: &'static Algorithm,
    /// A device is to know it.
    for_devices: bool,
}

impl How {
    /// `chosen`: what `auto` has chosen for these flows, or nearly so many.
    fn build(
        self,
        set: &RuleSet,
        chosen: Option<&'static str>,
    ) -> Result<Box<dyn Classifier>, RuleError> {
        let auto = || -> Result<Box<dyn Classifier>, RuleError> {
            Ok(Box::new(AutoBuilder::with(set, Options { changes: true })?))
        };
        match (self.algorithm.name, chosen.and_then(find)) {
            (AUTO, _) if set.len() <= FEW => Ok(Box::new(LinearBuilder::build(set)?)),
            // It may not take what flows look at now.
            (AUTO, Some(known)) => (known.build)(set).or_else(|_| auto()),
            (AUTO, None) => auto(),
            _ => (self.algorithm.build)(set),
        }
    }
}

fn is_same_key(a: &Flow, b: &Flow) -> bool {
    a.table == b.table && a.priority == b.priority && a.words == b.words
}

impl Lookup {
    fn change(
        &mut self,
        number: u8,
        how: How,
        changes: &[(u32, Option<Arc<Flow>>)],
        patches: &mut Vec<FlowPatch>,
    ) {
        if self.wild.is_empty() {
            (self.classifier, self.words) = (None, Vec::new());
            (self.common, self.looked_at) = (Words::default(), 0);
            (self.chosen_at, self.chosen) = (0, None);
            return patches.push(FlowPatch::Classifier(number, None));
        }
        let is_few = changes.len() <= 64 + self.wild.len() / 4;
        let has_grown =
            self.wild.len() > FEW && self.wild.len() > GROWTH * self.chosen_at.max(FEW / GROWTH);
        let has_words = changes.iter().all(|(_, flow)| match flow {
            Some(flow) => self.looks_at(&flow.words),
            None => true,
        });
        let mut own = Vec::new();
        if is_few && !has_grown && has_words && self.change_some(changes, &mut own) {
            let patch = own.into_iter().map(|patch| FlowPatch::Classes(number, patch));
            return patches.extend(patch);
        }
        patches.push(FlowPatch::Classifier(number, self.build(how)));
    }

    /// Whether a match asks for what all ask for, and else for words of the classifier.
    fn looks_at(&self, own: &Words) -> bool {
        (0..WORDS).all(|at| match (self.common.mask.0[at], own.mask.0[at]) {
            (0, 0) => true,
            (0, _) => self.words.contains(&(at as u8)),
            (common, mask) => common == mask && self.common.value.0[at] == own.value.0[at],
        })
    }

    /// Changes rule by rule; `false` if that does not work.
    fn change_some(
        &mut self,
        changes: &[(u32, Option<Arc<Flow>>)],
        patches: &mut Vec<lookup::Patch>,
    ) -> bool {
        let Some(classifier) = &mut self.classifier else { return false };
        for (id, flow) in changes {
            let done = match flow {
                None => classifier.remove(*id, patches),
                Some(flow) => {
                    let words = rule_words(flow, &self.words);
                    let rule = RuleRef { words: &words, priority: rank(flow.priority), id: *id };
                    classifier.insert(rule, patches).is_ok()
                }
            };
            if !done {
                return false;
            }
        }
        true
    }

    /// The words that all wildcard flows ask for alike.
    fn find_common(&self) -> Words {
        let mut flows = self.wild.values();
        let mut common = flows.next().map(|flow| flow.words).unwrap_or_default();
        for flow in flows {
            for at in 0..WORDS {
                let own = (flow.words.mask.0[at], flow.words.value.0[at]);
                if (common.mask.0[at], common.value.0[at]) != own {
                    (common.mask.0[at], common.value.0[at]) = (0, 0);
                }
            }
        }
        common
    }

    /// Builds the classifier of all wildcard flows.
    fn build(&mut self, how: How) -> Option<Wildcards> {
        // A device looks at all words.
        self.common = if how.for_devices { Words::default() } else { self.find_common() };
        let mut used = [false; WORDS];
        for flow in self.wild.values() {
            used.iter_mut().zip(&flow.words.mask.0).for_each(|(used, mask)| *used |= *mask != 0);
        }
        let is_own =
            |word: &u8| used[usize::from(*word)] && self.common.mask.0[usize::from(*word)] == 0;
        self.looked_at = used.iter().filter(|used| **used).count().max(1);
        // Where flows differ in no word, the classifier looks at one that does not matter.
        self.words = (0..WORDS as u8).filter(is_own).collect();
        if self.words.is_empty() {
            self.words.push(0);
        }
        let fields =
            self.words.iter().map(|word| Field::new(format!("word {word}"), 32, Kind::Mask));
        let schema = Schema::new(fields.collect()).expect("at most 32 words");
        let mut set = RuleSet::new(schema);
        let mut flows: Vec<_> = self.wild.values().collect();
        flows.sort_unstable_by_key(|flow| flow.id);
        for flow in flows {
            let words = rule_words(flow, &self.words);
            let rule = RuleRef { words: &words, priority: rank(flow.priority), id: flow.id };
            set.push(rule).expect("a rule of the schema");
        }
        let is_near = (self.chosen_at / GROWTH..=self.chosen_at.saturating_mul(GROWTH))
            .contains(&self.wild.len());
        let is_auto = how.algorithm.name == AUTO;
        let known = self.chosen.filter(|_| is_auto && is_near && set.len() > FEW);
        // Every set of masks can be searched one by one.
        let (built, instead) = match how.build(&set, known) {
            Ok(built) => (Some(built), None),
            Err(_) => {
                let linear = LinearBuilder::build(&set).ok();
                (linear.map(|own| Box::new(own) as Box<dyn Classifier>), Some("linear"))
            }
        };
        self.classifier = built;
        let chosen = self.classifier.as_ref().and_then(|own| own.chosen());
        self.chosen = instead.or(chosen).or(known);
        if known.is_none() {
            self.chosen_at = self.wild.len();
        }
        let classes = self.classifier.as_ref()?.tables().ok()?;
        let is_common = |at: &usize| self.common.mask.0[*at] != 0;
        let common = (0..WORDS).filter(is_common).map(|at| Common {
            word: at as u8,
            mask: self.common.mask.0[at],
            value: self.common.value.0[at],
        });
        Some(Wildcards { common: common.collect(), words: self.words.clone(), classes })
    }
}

/// A flow as a rule: values, then masks, each padded to the width of the schema.
fn rule_words(flow: &Flow, words: &[u8]) -> Vec<u32> {
    let width = width(words.len());
    let mut rule = vec![0; 2 * width];
    for (at, word) in words.iter().enumerate() {
        rule[at] = flow.words.value.0[usize::from(*word)];
        rule[width + at] = flow.words.mask.0[usize::from(*word)];
    }
    rule
}
