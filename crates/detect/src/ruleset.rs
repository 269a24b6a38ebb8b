//! Rules, compiled.

use std::collections::HashMap;

use signatures::config::{Class, Limit};
use signatures::{Action, RuleSet, Variables};

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
}

impl Default for Options {
    fn default() -> Self {
        use ActionKind::{Alert, Drop, Pass, Reject};
        let action_order = [Pass, Drop, Reject, Alert];
        Self { action_order, limits: Vec::new(), classes: HashMap::new(), midstream: false }
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
}

/// Rules in the order of evaluation, ready for any number of detectors; read-only.
#[derive(Debug, Default)]
pub struct Ruleset {
    pub(crate) info: Vec<RuleInfo>,
}

impl Ruleset {
    /// Compiles what can be evaluated; the rest comes back with reasons. Rules are as [`signatures::Loader`] gives them, and
    /// the variables are those that it had.
    pub fn compile(
        set: &RuleSet,
        variables: &Variables,
        options: &Options,
    ) -> (Self, Vec<Refused>) {
        let _ = (variables, options);
        let refused = set.rules.iter().enumerate().map(|(index, loaded)| Refused {
            index,
            sid: loaded.rule.sid,
            reason: "no rule is evaluated yet".to_owned(),
        });
        (Self::default(), refused.collect())
    }

    /// What an alert shows of a rule, by the number in the alert.
    pub fn rule(&self, number: u32) -> &RuleInfo {
        &self.info[number as usize]
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
