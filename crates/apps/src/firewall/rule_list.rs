//! The rules of a firewall in order, their structures, and what they counted.
//!
//! ```text
//!  file, `ctl rule replace --file` ─▶ Basis::build, on any thread ─▶ take: all tables anew ┐
//!  `ctl rule add`, `del`, `replace` ─▶ insert, remove ──────────────────────────patches ─┴▶ take_patches
//! ```
//!
//! A rule has a name, which is the user's, and an id, which is the tables' and the counters'. A rule that keeps its
//! name keeps its id, and so its counters, whatever else changes. Its place in the order is a priority with
//! gaps between, so that a new rule mostly moves no other.

use std::collections::HashMap;
use std::sync::Arc;

use classify::algorithms::{self, Algorithm};
use classify::{Classifier, RuleRef, RuleSet, Schema};
use control::api::table::thousands;
use control::api::{HotRow, HotTable};
use control::config::{self, Config, RuleEntry};
use control::firewall::{
    Action, Conditions, DEFAULT_RULE, Ending, Family, Finding, Place, Rule, findings,
    findings_of_one, set, words,
};
use controlplane::memory::{self, Need};
use controlplane::{Interfaces, now_ns};
use lookup::Patch;

use super::hits::IDS_MAX;
use super::ids::Ids;
use super::knows::{has_applications, has_states, may_ask};
use super::rows::{FirewallTotals, RuleRow};
use super::{self as data, FirewallOptions, FirewallPatch, FirewallTables, Hit, Hits, Record};

/// Findings that an answer names.
const FINDINGS_MAX: usize = 20;

/// Memory of a set while its structure is built beside the present one, measured with ClassBench sets of 9,400 to 97,700
/// rules and a set of 20,000 with random ranges of ports, which takes most: each of the first rules takes more, and all take
/// the rest.
const BYTES_PER_FIRST_RULE: u64 = 20_000;
const FIRST_RULES: u64 = 20_000;
const BYTES_PER_RULE: u64 = 6_000;

/// Between the priorities of neighbours, where there is room.
const GAP: u32 = 1 << 12;

/// Why a change was refused; nothing has changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no such rule.
    NotFound(String),
    /// There is one already.
    Exists(String),
    /// It cannot be.
    Bad(String),
}

/// One rule.
#[derive(Debug, Clone)]
struct Live {
    id: u32,
    priority: u32,
    name: Arc<str>,
    conditions: Conditions,
    action: Action,
    /// By `ctl`, and not in the file.
    is_added: bool,
}

/// The rules of one family.
#[derive(Debug)]
struct Rules {
    family: Family,
    schema: Arc<Schema>,
    classifier: Box<dyn Classifier>,
}

/// The rules as control sees them.
#[derive(Debug)]
pub(super) struct RuleList {
    /// The best first. Shared with what is being built of them.
    rules: Arc<Vec<Live>>,
    /// Id and priority by name.
    names: HashMap<Arc<str>, (u32, u32)>,
    tables: [Rules; 2],
    algorithm: &'static Algorithm,
    default: Action,
    options: FirewallOptions,
    ids: Ids,
    hits: Arc<Hits>,
    interfaces: Interfaces,
    /// Contexts that stages see, by number.
    contexts: Arc<[String]>,
    /// The firewall knows the states of packets in their flows.
    has_states: bool,
    /// It knows the applications of flows.
    has_applications: bool,
    changed: Vec<FirewallPatch>,
    /// The structures lack a rule until others are built: until then nothing is published.
    is_rebuilding: bool,
}

/// What rules are built from, on any thread.
#[derive(Debug, Clone)]
pub(super) struct Basis {
    rules: Arc<Vec<Live>>,
    ids: Ids,
    algorithm: &'static Algorithm,
    hits: Arc<Hits>,
    interfaces: Interfaces,
    /// Contexts that stages see, by number.
    contexts: Arc<[String]>,
    /// The firewall knows the states of packets in their flows.
    has_states: bool,
    /// It knows the applications of flows.
    has_applications: bool,
}

/// What became of a change.
pub(super) enum Changed {
    /// It is there; what is odd about the rule.
    Done(Vec<String>),
    /// The structures have no room for it as they are: all rules are built anew, and [`RuleList::rebuilt`] takes them.
    Rebuild(Rebuild),
}

/// Rules that are to be built.
pub(super) struct Rebuild {
    basis: Basis,
    rules: Vec<Live>,
    at: usize,
}

/// Rules that were built anew for the rule at `at`.
pub(super) struct Rebuilt {
    built: Result<Built, String>,
    at: usize,
}

impl Rebuild {
    /// Builds them, on any thread.
    pub(super) fn run(self) -> Rebuilt {
        Rebuilt { built: self.basis.build_of(self.rules), at: self.at }
    }
}

/// What a reload did to the rules of `ctl rule`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Gone {
    /// Those that the file does not have.
    pub(super) rules: usize,
    /// Those of the file, before and now, that were changed or gone.
    pub(super) of_file: usize,
}

/// A whole set, built and not in use.
pub(super) struct Built {
    rules: Vec<Live>,
    tables: [Rules; 2],
    ids: Ids,
    algorithm: &'static Algorithm,
}

impl RuleList {
    /// The rules of a configuration, and the first version of their tables.
    ///
    /// # Errors
    /// Rules that the structure cannot hold, or no memory.
    pub(super) fn new(
        name: &str,
        config: &Config,
        interfaces: &Interfaces,
    ) -> Result<(Self, FirewallTables), String> {
        let failed = |error: String| format!("{name}: {error}");
        let firewall = config.firewall_of(name);
        let firewall = firewall.ok_or_else(|| failed("it has no settings".to_owned()))?;
        let algorithm = algorithm(&firewall.algorithm);
        let basis = Basis {
            rules: Arc::default(),
            ids: Ids::new(),
            algorithm,
            hits: Arc::new(Hits::new(config.system.workers.max(1))),
            interfaces: interfaces.clone(),
            contexts: config.contexts().into(),
            has_states: has_states(name, config),
            has_applications: has_applications(name, config),
        };
        let Built { rules, tables, ids, .. } =
            basis.build(&firewall.rules, false).map_err(failed)?;
        let list = Self {
            names: names(&rules),
            rules: Arc::new(rules),
            tables,
            algorithm,
            default: firewall.default.clone(),
            options: options(firewall),
            ids,
            hits: basis.hits,
            interfaces: basis.interfaces,
            contexts: basis.contexts,
            has_states: basis.has_states,
            has_applications: basis.has_applications,
            changed: Vec::new(),
            is_rebuilding: false,
        };
        let tables = |rules: &Rules| rules.classifier.tables().map_err(|e| failed(e.to_string()));
        let [v4, v6] = &list.tables;
        let first = FirewallTables::new(
            (tables(v4)?, tables(v6)?),
            list.records(),
            list.options,
            list.hits.clone(),
        );
        Ok((list, first))
    }

    /// What rules are built from.
    pub(super) fn basis(&self) -> Basis {
        Basis {
            rules: self.rules.clone(),
            ids: self.ids.clone(),
            algorithm: self.algorithm,
            hits: self.hits.clone(),
            interfaces: self.interfaces.clone(),
            contexts: self.contexts.clone(),
            has_states: self.has_states,
            has_applications: self.has_applications,
        }
    }

    /// Makes the rules those of `config`, with the same ports: `built` by [`Basis::of_config`]. Says how many rules of
    /// `ctl rule`, which the file does not have, are gone.
    pub(super) fn apply(
        &mut self,
        (old, config): (Option<&config::Firewall>, &config::Firewall),
        built: Option<Built>,
    ) -> Gone {
        let before = self.rules.clone();
        let is_built = built.is_some();
        if let Some(built) = built {
            self.take(built);
        }
        let now = options(config);
        if self.options != now {
            self.options = now;
            self.changed.push(FirewallPatch::Options(now));
        }
        if self.default != config.default {
            self.default = config.default.clone();
            self.changed.push(FirewallPatch::Record(0, Some(self.default_record())));
        }
        let is_same = |one: &Live, other: &Live| {
            one.conditions == other.conditions && one.action == other.action
        };
        let is_there = |rule: &&Live| {
            let now = self.place_of(&rule.name).ok().map(|at| &self.rules[at]);
            now.is_some_and(|now| is_same(now, rule))
        };
        let added = before.iter().filter(|rule| rule.is_added);
        let rules = added.filter(|rule| !is_there(rule)).count();
        let of_file = match old.filter(|_| is_built) {
            Some(old) => {
                let had: HashMap<&str, &Live> =
                    before.iter().map(|own| (&*own.name, own)).collect();
                let file: HashMap<&str, &RuleEntry> =
                    old.rules.iter().map(|entry| (entry.name(), entry)).collect();
                let is_back = |own: &&Live| {
                    let had = had.get(&*own.name);
                    // A file of rules stands for `NAME:0` and so on.
                    let of_set = || file.get(own.name.rsplit_once(':')?.0);
                    match file.get(&*own.name).or_else(of_set) {
                        None => false,
                        Some(RuleEntry::File(_)) => had.is_none(),
                        Some(RuleEntry::One(rule)) => {
                            let is_files =
                                rule.conditions == own.conditions && rule.action == own.action;
                            is_files && !had.is_some_and(|had| is_same(had, own))
                        }
                    }
                };
                self.rules.iter().filter(is_back).count()
            }
            None => 0,
        };
        drop(before);
        Arc::make_mut(&mut self.rules).iter_mut().for_each(|rule| rule.is_added = false);
        Gone { rules, of_file }
    }

    /// Adds a rule; what is odd about it.
    pub(super) fn add(&mut self, rule: Rule, place: &Place) -> Result<Changed, Refusal> {
        check(&rule)?;
        let Rule { name, conditions, action } = rule;
        if self.names.contains_key(name.as_str()) {
            let message = format!("rule `{name}` exists already: use `ctl rule replace`");
            return Err(Refusal::Exists(message));
        }
        let at = match place {
            Place::First => 0,
            Place::Last => self.rules.len(),
            Place::Before(name) => self.place_of(name)?,
            Place::After(name) => self.place_of(name)? + 1,
        };
        if self.rules.len() + 2 > IDS_MAX {
            return Err(Refusal::Bad(format!("more than {} rules", IDS_MAX - 1)));
        }
        resolve(&action, &self.interfaces, &self.contexts).map_err(Refusal::Bad)?;
        may_ask(&conditions, self.knows()).map_err(Refusal::Bad)?;
        let priority = self.gap_at(at);
        let id = self.ids.next();
        self.hits.make(id);
        let name: Arc<str> = name.into();
        let live = Live {
            id,
            priority: priority.unwrap_or(0),
            name: name.clone(),
            conditions,
            action,
            is_added: true,
        };
        let inserted = match priority {
            Some(_) => self.insert_words(&live),
            None => Ok(false),
        };
        match inserted {
            Ok(true) => {
                self.ids.begin(id, self.hits.get(id));
                self.names.insert(name, (id, live.priority));
                let record = self.record(&live);
                Arc::make_mut(&mut self.rules).insert(at, live);
                self.changed.push(FirewallPatch::Record(id, Some(record)));
            }
            Ok(false) => {
                // No number is between its neighbours', or no room: all rules anew.
                self.ids.give_back(id);
                let mut rules = self.rules.to_vec();
                rules.insert(at, live);
                return Ok(Changed::Rebuild(Rebuild { basis: self.basis(), rules, at }));
            }
            Err(error) => {
                self.ids.give_back(id);
                return Err(Refusal::Bad(error));
            }
        }
        Ok(Changed::Done(self.odd_at(at)))
    }

    /// Changes a rule in its place; what is odd about it. A name that no rule has is refused: it is more often mistyped
    /// than meant, and a rule behind all others opens or closes more than intended.
    pub(super) fn replace(&mut self, rule: Rule) -> Result<Changed, Refusal> {
        let at = self.place_of(&rule.name)?;
        rule.conditions.check().map_err(|problem| Refusal::Bad(problem.to_string()))?;
        resolve(&rule.action, &self.interfaces, &self.contexts).map_err(Refusal::Bad)?;
        may_ask(&rule.conditions, self.knows()).map_err(Refusal::Bad)?;
        let before = self.rules[at].clone();
        let Rule { conditions, action, .. } = rule;
        let live = Live { conditions, action, is_added: true, ..before.clone() };
        // Checked before anything is taken away.
        self.words_of(&live).map_err(Refusal::Bad)?;
        self.remove_words(before.id);
        if !self.insert_words(&live).map_err(Refusal::Bad)? {
            let mut rules = self.rules.to_vec();
            rules[at] = live;
            self.is_rebuilding = true;
            return Ok(Changed::Rebuild(Rebuild { basis: self.basis(), rules, at }));
        }
        let record = self.record(&live);
        self.changed.push(FirewallPatch::Record(live.id, Some(record)));
        Arc::make_mut(&mut self.rules)[at] = live;
        Ok(Changed::Done(self.odd_at(at)))
    }

    /// The rules that were to be built anew are not there: the structures get those that they had. Without room for a
    /// new rule there is room for the old one.
    pub(super) fn rebuild_failed(&mut self) {
        if !std::mem::take(&mut self.is_rebuilding) {
            return;
        }
        match self.basis().build_of(self.rules.to_vec()) {
            Ok(built) => self.take(built),
            Err(error) => {
                tracing::error!("firewall: a changed rule is no longer in force: {error}")
            }
        }
    }

    /// Takes rules that were built anew; what is odd about the changed one. Where they could not be built, the rules
    /// are as they were.
    pub(super) fn rebuilt(&mut self, rebuilt: Rebuilt) -> Result<Vec<String>, Refusal> {
        let Rebuilt { built, at } = rebuilt;
        match built {
            Ok(built) => {
                self.take(built);
                Ok(self.odd_at(at))
            }
            Err(error) => {
                self.rebuild_failed();
                Err(Refusal::Bad(error))
            }
        }
    }

    /// Takes a rule away.
    pub(super) fn remove(&mut self, name: &str) -> Result<(), Refusal> {
        let at = self.place_of(name)?;
        let rule = Arc::make_mut(&mut self.rules).remove(at);
        self.names.remove(name);
        self.remove_words(rule.id);
        self.changed.push(FirewallPatch::Record(rule.id, None));
        self.ids.give_back(rule.id);
        Ok(())
    }

    /// What is to be published.
    pub(super) fn take_patches(&mut self) -> Vec<FirewallPatch> {
        if self.is_rebuilding { Vec::new() } else { std::mem::take(&mut self.changed) }
    }

    /// Counters begin at zero.
    pub(super) fn clear(&mut self) {
        let ids = self.rules.iter().map(|rule| rule.id).chain([0]);
        for id in ids {
            self.ids.begin(id, self.hits.get(id));
        }
    }

    /// All rules, in order.
    pub(super) fn all(&self) -> Vec<Rule> {
        let rule = |rule: &Live| Rule {
            name: rule.name.to_string(),
            conditions: rule.conditions.clone(),
            action: rule.action.clone(),
        };
        self.rules.iter().map(rule).collect()
    }

    /// Rows of all rules and of the default, or of one.
    pub(super) fn rows(&self, name: Option<&str>) -> Result<Vec<RuleRow>, Refusal> {
        let now_s = now_ns() as f64 / 1e9;
        let default = (DEFAULT_RULE, 0, &self.default);
        let row =
            |place: usize, (name, id, action): (&str, u32, &Action), conditions: &Conditions| {
                let hit = self.ids.since(id, self.hits.get(id));
                row(place, name, conditions.clone(), action.clone(), hit, Some(now_s))
            };
        let of_rule = |(at, rule): (usize, &Live)| {
            row(at + 1, (&rule.name, rule.id, &rule.action), &rule.conditions)
        };
        let none = Conditions::default();
        match name {
            None => {
                let rules = self.rules.iter().enumerate().map(of_rule);
                Ok(rules.chain([row(self.rules.len() + 1, default, &none)]).collect())
            }
            Some(DEFAULT_RULE) => Ok(vec![row(self.rules.len() + 1, default, &none)]),
            Some(name) => {
                let at = self.place_of(name)?;
                Ok(vec![of_rule((at, &self.rules[at]))])
            }
        }
    }

    /// Rows of up to `most` rules, and of the default behind them.
    pub(super) fn rows_of(&self, most: usize) -> Vec<RuleRow> {
        let of = |at: usize, id: u32, name: &str, conditions: &Conditions, action: &Action| {
            let hit = self.ids.since(id, self.hits.get(id));
            row(at + 1, name, conditions.clone(), action.clone(), hit, None)
        };
        let rules = self.rules.iter().take(most).enumerate();
        let rules = rules.map(|(at, r)| of(at, r.id, &r.name, &r.conditions, &r.action));
        let none = Conditions::default();
        let default = of(self.rules.len(), 0, DEFAULT_RULE, &none, &self.default);
        rules.chain([default]).collect()
    }

    /// Names and counters of up to `most` rules, and of the default behind them.
    pub(super) fn counts(&self, most: usize) -> impl Iterator<Item = (&str, Hit)> {
        let of = |id: u32| self.ids.since(id, self.hits.get(id));
        let rules = self.rules.iter().take(most).map(move |rule| (&*rule.name, of(rule.id)));
        rules.chain([(DEFAULT_RULE, of(0))])
    }

    /// Those with the most packets.
    pub(super) fn hottest(&self, title: String, most: usize) -> HotTable {
        let hit = |id: u32| self.ids.since(id, self.hits.get(id));
        let rules = self.rules.iter().map(|rule| (rule.id, Some(rule))).chain([(0, None)]);
        let counted = rules.map(|(id, rule)| {
            let hit = hit(id);
            (hit.packets, (hit, rule))
        });
        HotTable::of(title, most, counted, |(hit, rule)| HotRow {
            name: rule.map_or(DEFAULT_RULE, |rule| &rule.name).to_owned(),
            text: match rule {
                Some(rule) => format!("{}: {}", rule.conditions, rule.action),
                None => format!("what no rule matches: {}", self.default),
            },
            packets: hit.packets,
            bytes: hit.bytes,
        })
    }

    /// Totals.
    pub(super) fn totals(&self) -> FirewallTotals {
        let bytes =
            self.tables.iter().map(|rules| rules.classifier.memory().total()).sum::<usize>();
        let made = self.hits.made();
        FirewallTotals {
            rules: self.rules.len() as u64,
            algorithm: self.algorithm.name.to_owned(),
            rule_bytes: bytes as u64,
            copies: made.copies,
            copies_lost: made.copies_lost,
            answers: made.answers,
            answers_withheld: made.answers_withheld,
        }
    }

    /// Whether a rule, or the default, rejects.
    pub(super) fn rejects(&self) -> bool {
        let mut actions = self.rules.iter().map(|rule| &rule.action).chain([&self.default]);
        actions.any(|action| action.ending == Ending::Reject)
    }

    /// The limit of answers.
    pub(super) fn options(&self) -> FirewallOptions {
        self.options
    }

    fn place_of(&self, name: &str) -> Result<usize, Refusal> {
        let found = self.names.get(name).map(|(_, priority)| *priority);
        let found = found.map(|own| self.rules.partition_point(|rule| rule.priority < own));
        found.ok_or_else(|| Refusal::NotFound(format!("there is no rule `{name}`")))
    }

    /// A priority for a rule that should get the position `at`; `None` where no number is free.
    fn gap_at(&self, at: usize) -> Option<u32> {
        let before = at.checked_sub(1).map(|at| self.rules[at].priority);
        match (before, self.rules.get(at).map(|rule| rule.priority)) {
            (None, None) => Some(1 << 31),
            (None, Some(after)) => after.checked_sub(GAP.min(after.div_ceil(2)).max(1)),
            (Some(before), None) => {
                let capacity = u32::MAX - 1 - before;
                (capacity > 0).then(|| before + GAP.min(capacity.div_ceil(2)))
            }
            (Some(before), Some(after)) => {
                (after - before > 1).then(|| before + (after - before) / 2)
            }
        }
    }

    fn records(&self) -> Vec<Option<Record>> {
        let most = self.rules.iter().map(|rule| rule.id).max().unwrap_or(0);
        let mut records = vec![None; most as usize + 1];
        records[0] = Some(self.default_record());
        for rule in self.rules.iter() {
            records[rule.id as usize] = Some(self.record(rule));
        }
        records
    }

    fn default_record(&self) -> Record {
        let action = resolve(&self.default, &self.interfaces, &self.contexts);
        let action = action.unwrap_or(data::Action::of(data::Ending::Drop));
        Record { name: DEFAULT_RULE.into(), action }
    }

    fn record(&self, rule: &Live) -> Record {
        // It was resolved before the rule was taken.
        let action = resolve(&rule.action, &self.interfaces, &self.contexts);
        let action = action.unwrap_or(data::Action::of(data::Ending::Drop));
        Record { name: rule.name.clone(), action }
    }

    /// What it knows of packets beside their headers: states, applications.
    fn knows(&self) -> (bool, bool) {
        (self.has_states, self.has_applications)
    }

    /// Words of a rule in each family.
    fn words_of(&self, rule: &Live) -> Result<[Option<Box<[u32]>>; 2], String> {
        let [v4, v6] = &self.tables;
        let of = |rules: &Rules| rules.words(rule, &self.interfaces);
        Ok([of(v4)?, of(v6)?])
    }

    /// Puts a rule into the structures; `false`, and nothing changed, where one has no room.
    fn insert_words(&mut self, rule: &Live) -> Result<bool, String> {
        if rule.conditions.application.is_some() && !self.tables.iter().all(Rules::is_wide) {
            return Ok(false);
        }
        let words = self.words_of(rule)?;
        let mut patches = [Vec::new(), Vec::new()];
        for (at, words) in words.iter().enumerate() {
            let Some(words) = words else { continue };
            let own = RuleRef { words, priority: rule.priority, id: rule.id };
            if self.tables[at].classifier.insert(own, &mut patches[at]).is_err() {
                if at == 1 {
                    self.tables[0].classifier.remove(rule.id, &mut patches[0]);
                }
                self.push_patches(patches);
                return Ok(false);
            }
        }
        self.push_patches(patches);
        Ok(true)
    }

    fn remove_words(&mut self, id: u32) {
        let mut patches = [Vec::new(), Vec::new()];
        for (rules, patches) in self.tables.iter_mut().zip(&mut patches) {
            rules.classifier.remove(id, patches);
        }
        self.push_patches(patches);
    }

    fn push_patches(&mut self, [v4, v6]: [Vec<Patch>; 2]) {
        if !v4.is_empty() {
            self.changed.push(FirewallPatch::V4(v4));
        }
        if !v6.is_empty() {
            self.changed.push(FirewallPatch::V6(v6));
        }
    }

    /// Takes what was built into use, with patches that make all of it visible at once.
    pub(super) fn take(&mut self, built: Built) {
        let whole = |rules: &Rules| vec![Patch::Replace(rules.classifier.blob().words().to_vec())];
        let [v4, v6] = &built.tables;
        self.changed.push(FirewallPatch::V4(whole(v4)));
        self.changed.push(FirewallPatch::V6(whole(v6)));
        let mut ids = built.ids;
        // Counters may have been cleared while the rules were built.
        for id in self.rules.iter().map(|rule| rule.id).chain([0]) {
            ids.begin(id, self.ids.base(id));
        }
        self.names = names(&built.rules);
        (self.tables, self.ids, self.algorithm) = (built.tables, ids, built.algorithm);
        self.rules = Arc::new(built.rules);
        self.is_rebuilding = false;
        self.changed.push(FirewallPatch::Records(self.records()));
    }

    /// Names of ports and contexts lead to these numbers from now on.
    pub(super) fn renumber(&mut self, config: &Config, interfaces: &Interfaces) {
        self.interfaces = interfaces.clone();
        let contexts: Arc<[String]> = config.contexts().into();
        if self.contexts != contexts {
            self.contexts = contexts;
            self.changed.push(FirewallPatch::Records(self.records()));
        }
    }

    /// What is odd about the rule at `at`, in words.
    fn odd_at(&self, at: usize) -> Vec<String> {
        let rules = self.rules.iter().map(|rule| (&rule.conditions, &rule.action));
        let found = findings_of_one(rules, at, |name| self.interfaces.number(name));
        self.texts(&found)
    }

    fn texts(&self, found: &[Finding]) -> Vec<String> {
        texts(found, |at| self.rules[at].name.to_string())
    }
}

impl Basis {
    /// The same with the ports and contexts of another configuration.
    pub(super) fn of(self, config: &Config, interfaces: &Interfaces) -> Self {
        Self { interfaces: interfaces.clone(), contexts: config.contexts().into(), ..self }
    }

    /// The rules of a configuration, built aside; `None` where they are those that there are.
    ///
    /// # Errors
    /// Rules that the structure cannot hold.
    pub(super) fn of_config(mut self, config: &config::Firewall) -> Result<Option<Built>, String> {
        let algorithm = algorithm(&config.algorithm);
        if algorithm.name == self.algorithm.name && self.is_of(&config.rules) {
            return Ok(None);
        }
        self.algorithm = algorithm;
        self.build(&config.rules, false).map(Some)
    }

    /// Whether these are the rules, in this order.
    fn is_of(&self, entries: &[RuleEntry]) -> bool {
        let mut rules = self.rules.iter();
        let mut text = String::new();
        let all = config::rule_list(entries).all(|(name, conditions, action)| {
            use std::fmt::Write;
            text.clear();
            let _ = write!(text, "{name}");
            rules.next().is_some_and(|rule| {
                *rule.name == *text && rule.conditions == *conditions && rule.action == *action
            })
        });
        all && rules.next().is_none()
    }

    /// All rules of entries, built aside. Rules keep the ids of their names.
    pub(super) fn build(&self, entries: &[RuleEntry], is_added: bool) -> Result<Built, String> {
        let mut seen: HashMap<Arc<str>, ()> = HashMap::new();
        let mut rules = Vec::new();
        for (name, conditions, action) in config::rule_list(entries) {
            let name: Arc<str> = name.to_string().into();
            if seen.insert(name.clone(), ()).is_some() {
                return Err(format!("rule `{name}` is listed twice"));
            }
            let (conditions, action) = (conditions.clone(), action.clone());
            rules.push(Live { id: 0, priority: 0, name, conditions, action, is_added });
        }
        if rules.len() + 1 > IDS_MAX {
            return Err(format!("{} rules, at most {}", rules.len(), IDS_MAX - 1));
        }
        let count = rules.len() as u64;
        let bytes = count * BYTES_PER_RULE + count.min(FIRST_RULES) * BYTES_PER_FIRST_RULE;
        let need = Need { bytes, reserved_bytes: 0 };
        memory::ask_for(need, &format!("{} rules", thousands(count)))?;
        self.build_of(rules)
    }

    /// The same of rules in order, whose ids and priorities are made here.
    fn build_of(&self, mut rules: Vec<Live>) -> Result<Built, String> {
        let mut ids = self.ids.clone();
        let gap = (u32::MAX / (rules.len() as u32 + 2)).clamp(1, GAP);
        let begin =
            (1_u32 << 31).saturating_sub(gap.saturating_mul(rules.len() as u32 / 2)).max(gap);
        // Where rules are many they begin low, so that all have a number.
        let begin = if gap < GAP { gap } else { begin };
        let mut kept: HashMap<&str, u32> = HashMap::new();
        for rule in self.rules.iter() {
            kept.insert(&rule.name, rule.id);
        }
        for (at, rule) in rules.iter_mut().enumerate() {
            resolve(&rule.action, &self.interfaces, &self.contexts)
                .and_then(|_| may_ask(&rule.conditions, (self.has_states, self.has_applications)))
                .map_err(|e| format!("rule `{}`: {e}", rule.name))?;
            rule.priority = begin + gap * at as u32;
            rule.id = match kept.remove(&*rule.name) {
                Some(id) => id,
                None => {
                    let id = ids.next();
                    self.hits.make(id);
                    ids.begin(id, self.hits.get(id));
                    id
                }
            };
        }
        kept.values().for_each(|id| ids.give_back(*id));
        let build = |family| Rules::build(family, self.algorithm, &rules, &self.interfaces);
        let tables = [build(Family::V4)?, build(Family::V6)?];
        Ok(Built { rules, tables, ids, algorithm: self.algorithm })
    }
}

fn names(rules: &[Live]) -> HashMap<Arc<str>, (u32, u32)> {
    rules.iter().map(|rule| (rule.name.clone(), (rule.id, rule.priority))).collect()
}

/// Whether a rule that came by a request may be, whatever other rules there are.
///
/// # Errors
/// Its name is none, or its conditions contradict each other.
pub(super) fn check(rule: &Rule) -> Result<(), Refusal> {
    let name = &rule.name;
    if !control::firewall::is_rule_name(name) {
        let message = format!(
            "`{name}` is not a valid name of a rule: expected 1 to 64 letters, digits or `.`, `_`, `-`, `:`, `#`, `/`"
        );
        return Err(Refusal::Bad(message));
    }
    rule.conditions.check().map_err(|problem| Refusal::Bad(problem.to_string()))
}

/// The bit of a context; none for one that no stage sees.
fn context(name: &str, contexts: &[String]) -> u32 {
    contexts.iter().position(|own| own == name).map_or(0, |number| 1 << number)
}

/// An action with numbers for its ports.
fn resolve(
    action: &Action,
    interfaces: &Interfaces,
    contexts: &[String],
) -> Result<data::Action, String> {
    let port = |name: &str| {
        let number = interfaces.number(name);
        let number = number.filter(|number| interfaces.is_port(*number));
        number.ok_or_else(|| {
            format!("there is no port `{name}`: expected one of {}", interfaces.list_ports())
        })
    };
    Ok(data::Action {
        ending: match &action.ending {
            Ending::Accept => data::Ending::Accept,
            Ending::Drop => data::Ending::Drop,
            Ending::Reject => data::Ending::Reject,
            Ending::Dump => data::Ending::Dump,
            Ending::Send(name) => data::Ending::Send(port(name)?),
        },
        mirror: action.mirror.as_deref().map(port).transpose()?,
        dscp: action.mark,
        contexts: action.contexts.iter().fold(0, |all, name| all | context(name, contexts)),
    })
}

/// What is odd about rules that are not in use yet, in words. It takes its time, on any thread.
pub(super) fn odd(entries: &[RuleEntry], interfaces: &Interfaces) -> Vec<String> {
    let rules: Vec<_> = config::rule_list(entries).collect();
    let number = |name: &str| interfaces.number(name);
    let found = findings(rules.iter().map(|(_, c, a)| (*c, *a)), number);
    texts(&found, |at| rules[at].0.to_string())
}

fn texts(found: &[Finding], name: impl Fn(usize) -> String) -> Vec<String> {
    let mut texts: Vec<_> =
        found.iter().take(FINDINGS_MAX).map(|finding| finding.text(&name)).collect();
    if let Some(more) = found.len().checked_sub(FINDINGS_MAX).filter(|more| *more > 0) {
        texts.push(format!("{more} more rules never match or are redundant"));
    }
    texts
}

impl Rules {
    fn build(
        family: Family,
        algorithm: &Algorithm,
        rules: &[Live],
        interfaces: &Interfaces,
    ) -> Result<Self, String> {
        let has_applications = rules.iter().any(|rule| rule.conditions.application.is_some());
        let schema = set::schema(family, has_applications);
        let mut set = RuleSet::new(schema.clone());
        for rule in rules {
            let number = |name: &str| interfaces.number(name);
            let words = words(&rule.conditions, &schema, family, number);
            let words = words.map_err(|error| format!("rule `{}`: {error}", rule.name))?;
            let Some(words) = words else { continue };
            let own = RuleRef { words: &words, priority: rule.priority, id: rule.id };
            set.push(own).map_err(|error| format!("rule `{}`: {error}", rule.name))?;
        }
        let classifier = (algorithm.build)(&set);
        let classifier =
            classifier.map_err(|error| format!("the structure {}: {error}", algorithm.name))?;
        Ok(Self { family, schema, classifier })
    }

    /// Whether its headers have the application.
    fn is_wide(&self) -> bool {
        self.schema.fields().len() > classify::filter::field::APPLICATION
    }

    fn words(&self, rule: &Live, interfaces: &Interfaces) -> Result<Option<Box<[u32]>>, String> {
        let schema = match rule.conditions.application {
            Some(_) => set::schema(self.family, true),
            None => self.schema.clone(),
        };
        words(&rule.conditions, &schema, self.family, |name| interfaces.number(name))
    }
}

fn row(
    place: usize,
    name: &str,
    conditions: Conditions,
    action: Action,
    hit: Hit,
    now_s: Option<f64>,
) -> RuleRow {
    let last_hit_s = (hit.last_ns > 0).then(|| hit.last_ns as f64 / 1e9);
    RuleRow {
        place: place as u64,
        name: name.to_owned(),
        conditions,
        action,
        packets: hit.packets,
        bytes: hit.bytes,
        last_hit_s,
        age_s: now_s.and_then(|now| last_hit_s.map(|last| (now - last).max(0.0))),
    }
}

/// The structure of a name; `auto` is the best one that there is.
fn algorithm(name: &str) -> &'static Algorithm {
    let found = algorithms::find(name).or_else(|| algorithms::find("tuple"));
    found.unwrap_or(&algorithms::ALGORITHMS[0])
}

fn options(config: &config::Firewall) -> FirewallOptions {
    let &config::Firewall { icmp_rate, icmp_burst, .. } = config;
    FirewallOptions { icmp_rate, icmp_burst }
}

#[cfg(test)]
#[path = "rule_list_tests.rs"]
mod tests;
