//! Rules of a firewall as control has them: text in the file and on the socket, words for the data path.
//!
//! ```text
//!  [[rule]], `ctl rule` ─▶ Rule: name, Conditions, Action ─▶ words of classify::filter, by family
//!  ClassBench file ──────▶ Conditions of each line ───────┘        └─▶ findings: shadowed, redundant
//! ```
//!
//! - [`conditions`]: what a rule asks of a packet.
//! - [`action`]: what it does.
//! - [`set`]: many rules in order: their words, and what is odd about them.
//!
//! Pure functions of values, on any thread.

pub mod action;
pub mod conditions;
pub mod set;

pub use action::{Action, Ending};
pub use conditions::{
    APPLICATION, Conditions, Family, Ports, Protocol, States, TcpFlags, is_application,
};
pub use set::{Finding, findings, findings_of_one, of_classbench, words};

use serde::{Deserialize, Serialize};

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// No other rule of the set has it.
    pub name: String,
    /// What it asks of a packet.
    #[serde(default)]
    pub conditions: Conditions,
    /// What it does.
    pub action: Action,
}

/// `ssh: proto tcp dport 22: drop`.
impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}: {}", self.name, self.conditions, self.action)
    }
}

/// Where a new rule is among the others.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Before all: the best.
    First,
    /// Behind all.
    #[default]
    Last,
    /// Right before the rule of this name.
    Before(String),
    /// Right behind it.
    After(String),
}

/// What stands for the default among rules.
pub const DEFAULT_RULE: &str = "default";

/// Whether a rule may be called so: letters, digits and `.`, `_`, `-`, `:`, `#`, `/`, up to 64; not `default`.
pub fn is_rule_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-:#/".contains(c);
    (1..=64).contains(&name.len()) && name.chars().all(allowed) && name != DEFAULT_RULE
}
