//! Labels of flows: which application, what found it, and how sure that is.
//!
//! Rules and contexts know an application by a number that follows from its name alone ([`number`]), so that a firewall needs no
//! list of them.

use std::fmt;

pub use classify::filter::application as number;
use l7proto::Protocol;
use serde::Serialize;

/// What found a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FoundBy {
    /// Bytes at the beginning are those of a pattern of ours.
    Pattern,
    /// Fields at the beginning have a meaning, and it is consistent.
    Parser,
    /// A registered port, nothing else.
    Port,
    /// A pattern of a file of the user.
    File,
}

/// How sure a label is; the lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// A port alone, one side of two that fits, or a pattern that is not good.
    Low,
    /// One side fits and the other has not spoken, or a good pattern of a file.
    Medium,
    /// Both sides fit, or one is like nothing else.
    High,
}

macro_rules! texts {
    ($type:ident: $($variant:ident $text:literal,)*) => {
        impl $type {
            /// In a word.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

texts!(FoundBy: Pattern "pattern", Parser "parser", Port "port", File "file",);
texts!(Confidence: Low "low", Medium "medium", High "high",);

/// A flow's application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// What found it.
    pub found_by: FoundBy,
    /// How sure it is.
    pub confidence: Confidence,
}

impl From<l7proto::Label> for Label {
    fn from(own: l7proto::Label) -> Self {
        Self {
            name: own.protocol.name(),
            found_by: match own.found_by {
                l7proto::FoundBy::Pattern => FoundBy::Pattern,
                l7proto::FoundBy::Parser => FoundBy::Parser,
                l7proto::FoundBy::Port => FoundBy::Port,
            },
            confidence: match own.confidence {
                l7proto::Confidence::Low => Confidence::Low,
                l7proto::Confidence::Medium => Confidence::Medium,
                l7proto::Confidence::High => Confidence::High,
            },
        }
    }
}

/// The names of the applications that are known without files.
pub fn names() -> impl Iterator<Item = &'static str> {
    Protocol::ALL.iter().map(|protocol| protocol.name())
}

/// Two names that have one number, of these and of those that are known without files.
pub fn collision(all: &[&'static str]) -> Option<(&'static str, &'static str)> {
    let mut names: Vec<&str> = names().chain(all.iter().copied()).collect();
    names.sort_unstable();
    names.dedup();
    let mut numbers: Vec<(u32, &'static str)> =
        names.into_iter().map(|name| (number(name), name)).collect();
    numbers.sort_unstable();
    numbers.windows(2).find(|two| two[0].0 == two[1].0).map(|two| (two[0].1, two[1].1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_a_number() {
        assert_eq!(collision(&[]), None);
        assert_eq!(collision(&["http", "mine"]), None);
        // Two words whose hashes are known to be one.
        assert_eq!(collision(&["costarring", "liquid"]), Some(("costarring", "liquid")));
    }
}
