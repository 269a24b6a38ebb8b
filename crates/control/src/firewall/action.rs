//! What a rule does with a packet.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What becomes of a packet in the end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Ending {
    /// It goes on.
    Accept,
    /// It ends here.
    Drop,
    /// It ends here, and its sender gets an answer.
    Reject,
    /// It leaves by this port as it is.
    Send(String),
    /// It goes to captures of dumped packets, and nowhere else.
    Dump,
}

/// What a rule does, as text `mirror PORT, mark DSCP, context NAME, accept`: each once, contexts as often as needed,
/// the ending last. Without one the packet is accepted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Action {
    /// The port that gets a copy.
    pub mirror: Option<String>,
    /// The packet's new differentiated services code point.
    pub mark: Option<u8>,
    /// Contexts that the packet gets, for the stages that see packets of some contexts alone.
    pub contexts: Vec<String>,
    /// What becomes of the packet.
    pub ending: Ending,
}

/// What an action may be, for messages.
pub const EXPECTED: &str = "accept, drop, reject, dump or send PORT, before it mirror PORT, mark 0 to 63 \
                            and context NAME, joined by `,`";

/// A text that is not an action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an action: expected {EXPECTED}")]
pub struct ParseActionError(String);

impl Action {
    /// Nothing but an ending.
    pub fn of(ending: Ending) -> Self {
        Self { mirror: None, mark: None, contexts: Vec::new(), ending }
    }

    /// The ports that it names.
    pub fn ports(&self) -> impl Iterator<Item = &str> {
        let sent = match &self.ending {
            Ending::Send(port) => Some(port.as_str()),
            _ => None,
        };
        self.mirror.as_deref().into_iter().chain(sent)
    }
}

impl FromStr for Action {
    type Err = ParseActionError;

    fn from_str(text: &str) -> Result<Self, ParseActionError> {
        let wrong = || ParseActionError(text.chars().take(64).collect());
        let mut action = Self::of(Ending::Accept);
        let mut has_ended = false;
        for part in text.split(',') {
            let mut words = part.split_whitespace();
            let (word, argument) = (words.next().ok_or_else(wrong)?, words.next());
            if words.next().is_some() || has_ended {
                return Err(wrong());
            }
            let port = || argument.map(str::to_owned).ok_or_else(wrong);
            match word {
                "mirror" if action.mirror.is_none() => action.mirror = Some(port()?),
                "mark" if action.mark.is_none() => {
                    let mark = argument.and_then(|mark| mark.parse().ok());
                    action.mark = Some(mark.filter(|mark| *mark < 64).ok_or_else(wrong)?);
                }
                "context" if !action.contexts.contains(&port()?) => action.contexts.push(port()?),
                "send" => (action.ending, has_ended) = (Ending::Send(port()?), true),
                _ => {
                    action.ending = match (word, argument) {
                        ("accept", None) => Ending::Accept,
                        ("drop", None) => Ending::Drop,
                        ("reject", None) => Ending::Reject,
                        ("dump", None) => Ending::Dump,
                        _ => return Err(wrong()),
                    };
                    has_ended = true;
                }
            }
        }
        Ok(action)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(port) = &self.mirror {
            write!(f, "mirror {port}, ")?;
        }
        if let Some(mark) = self.mark {
            write!(f, "mark {mark}, ")?;
        }
        for context in &self.contexts {
            write!(f, "context {context}, ")?;
        }
        match &self.ending {
            Ending::Accept => f.write_str("accept"),
            Ending::Drop => f.write_str("drop"),
            Ending::Reject => f.write_str("reject"),
            Ending::Dump => f.write_str("dump"),
            Ending::Send(port) => write!(f, "send {port}"),
        }
    }
}

impl TryFrom<String> for Action {
    type Error = ParseActionError;

    fn try_from(text: String) -> Result<Self, ParseActionError> {
        text.parse()
    }
}

impl From<Action> for String {
    fn from(action: Action) -> Self {
        action.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_read_and_written() {
        for text in [
            "accept",
            "drop",
            "reject",
            "send wan",
            "mirror mon, mark 46, drop",
            "context web, context tls, accept",
        ] {
            assert_eq!(text.parse::<Action>().unwrap().to_string(), text);
        }
        assert_eq!("mark 0".parse::<Action>().unwrap().to_string(), "mark 0, accept");
        assert_eq!(" mirror  m ,accept ".parse::<Action>().unwrap().mirror.as_deref(), Some("m"));
        for text in [
            "",
            "allow",
            "drop wan",
            "drop, accept",
            "mark 64",
            "mark",
            "mark x",
            "send",
            "mirror a, mirror b",
            "drop,",
            "send a b",
            "context",
            "context a, context a",
        ] {
            assert!(text.parse::<Action>().is_err(), "{text}");
        }
    }
}
