//! Rules that drop packets and may match once the packets that they are about were forwarded.

use std::fmt;

use signatures::Buffer;

use crate::Ruleset;
use crate::rule::{Kind, Part, When};

/// So many parts without a literal are evaluated with each segment of full length, however long the message is.
const EARLY_MAX: usize = 13;

/// Why a rule may be late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// It asks for something of a body that is known at its end only.
    Body(Buffer),
    /// It is one of so many for streams that no literal tells when to evaluate.
    Streams(usize),
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body(buffer) => {
                write!(f, "what it asks of {} is known once all of it is there", buffer.name())
            }
            Self::Streams(count) => write!(
                f,
                "one of {count} rules for streams without a content of two bytes, not all of which are evaluated with each packet"
            ),
        }
    }
}

impl Ruleset {
    /// Rules that drop or reject, with their numbers, that may match late inline. Rules for streams may also match late over an
    /// answer of the other end.
    pub fn late(&self) -> Vec<(u32, Late)> {
        let is_of_stream = |part: &&Part| {
            let rule = &self.rules[part.rule as usize];
            part.decides && !part.has_literal && rule.kind == Kind::Stream
        };
        let of_sender = |side: usize| {
            self.parts.iter().filter(is_of_stream).filter(|part| part.senders[side]).count()
        };
        let count = of_sender(0).max(of_sender(1));
        let of = |part: &Part| {
            let is_body = matches!(
                part.buffer,
                Buffer::FileData | Buffer::HttpRequestBody | Buffer::HttpResponseBody
            );
            match part {
                _ if !part.decides => None,
                _ if is_body && (part.when != When::Always || !part.transforms.is_empty()) => {
                    Some(Late::Body(part.buffer))
                }
                _ if count > EARLY_MAX && is_of_stream(&part) => Some(Late::Streams(count)),
                _ => None,
            }
        };
        let drops = |number: u32| {
            use signatures::Action::{Alert, Log, Pass};
            !matches!(self.info[number as usize].action, Alert | Log | Pass)
        };
        let all = self.parts.iter().filter(|part| drops(part.rule));
        let mut all: Vec<_> = all.filter_map(|part| Some((part.rule, of(part)?))).collect();
        all.dedup_by_key(|(rule, _)| *rule);
        all
    }
}
