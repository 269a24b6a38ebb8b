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
pub use conditions::{Conditions, Family, Ports, Protocol, TcpFlags};
pub use set::{Finding, findings, findings_of_one, of_classbench, words};

use serde::{Deserialize, Serialize};

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rule {
    /// No other rule of the set has it.
    pub name: String,
    /// What it asks of a packet.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// What it does.
    pub action: Action,
}

/// `proto tcp dport 22: drop`.
impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}: {}", self.name, self.conditions, self.action)
    }
}

/// Whether a rule may be called so: letters, digits and `.`, `_`, `-`, `:`, `#`, `/`, up to 64.
pub fn is_rule_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-:#/".contains(c);
    (1..=64).contains(&name.len()) && name.chars().all(allowed)
}
