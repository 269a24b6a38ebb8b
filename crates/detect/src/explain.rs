//! Why a rule does or does not match: each of its conditions, and what it comes to.
//!
//! Nothing is changed: what a match would set is not set, and thresholds do not count it.

use signatures::Buffer;

use crate::alert::Found;
use crate::compile::canonical;
use crate::conditions::{Answer, Scene};
use crate::detector::{Detector, header_bytes};
use crate::flow::{Match, way_of_packet};
use crate::header::{Header, payload};
use crate::rule::{Kind, Part};
use crate::solve::{View, holds};
use crate::{FlowState, Packet, Sender};

/// What a condition comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// It holds.
    Yes,
    /// It does not.
    No,
    /// The application of the flow is not known yet.
    NotYet,
    /// A check before it of the same buffer fails, so that this one has no place to look at.
    NotReached,
}

impl From<Answer> for Answered {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Yes => Self::Yes,
            Answer::No => Self::No,
            Answer::NotYet => Self::NotYet,
        }
    }
}

/// A condition and what it comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// As rules write it; of checks with the buffer before it.
    pub text: String,
    /// What it comes to.
    pub answer: Answered,
}

impl Detector {
    /// The header, the conditions and the checks of headers and payload of a rule, on a packet of a flow: as they are now,
    /// behind the packet's step or without one. Checks of the payload are those of the packet, also where the rule is
    /// matched against the stream.
    pub fn explain_packet(
        &self,
        rule: u32,
        packet: &Packet<'_>,
        flow: &FlowState,
        sender: Sender,
    ) -> Vec<Line> {
        let Some(header) = Header::new(packet) else {
            return vec![Line { text: "the packet is IP".to_owned(), answer: Answered::No }];
        };
        let compiled = &self.rules.rules[rule as usize];
        let found = match compiled.kind {
            Kind::Stream if header.protocol == 6 => Found::Stream,
            Kind::Addresses => Found::Addresses,
            _ => Found::Packet,
        };
        let own = Match { rule, found, sender, waits: false };
        let header_of = Some(&header);
        let scene =
            Scene { flow, header: header_of, sender, tables: &self.tables, now_ns: packet.time_ns };
        let way = way_of_packet(&header);
        let carried = scene.carried(&compiled.carried, &way).into();
        let ends = Answer::from(compiled.ends.hold(&way)).into();
        let mut lines = vec![
            Line { text: format!("protocol of `{}`", compiled.header), answer: carried },
            Line { text: format!("addresses and ports of `{}`", compiled.header), answer: ends },
        ];
        for (cond, text) in compiled.conditions.iter().zip(&compiled.texts) {
            let answer = scene.one(cond, &own, &way).into();
            lines.push(Line { text: text.to_string(), answer });
        }
        for part in compiled.parts.iter().map(|part| &self.rules.parts[*part as usize]) {
            if part.buffer == Buffer::Payload {
                explain(part, payload(packet), &mut lines);
            } else if part.bit & compiled.headers != 0 {
                match header_bytes(part.buffer, packet, &header) {
                    Some((bytes, len)) => explain(part, &bytes[..len], &mut lines),
                    None => lines
                        .push(Line { text: part.buffer.name().to_owned(), answer: Answered::No }),
                }
            }
        }
        lines
    }

    /// The checks of a rule on all of a buffer, behind its transforms if it has some; none where the rule does not look
    /// into it.
    pub fn explain_buffer(&self, rule: u32, buffer: Buffer, bytes: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        let parts = self.rules.rules[rule as usize].parts.iter();
        for number in parts {
            let part = &self.rules.parts[*number as usize];
            if part.buffer == canonical(buffer) {
                let mut bytes = bytes.to_vec();
                crate::transform::apply(&part.transforms, &mut bytes);
                explain(part, &bytes, &mut lines);
            }
        }
        lines
    }
}

/// A check holds if all up to it hold together.
fn explain(part: &Part, bytes: &[u8], lines: &mut Vec<Line>) {
    let mut is_over = false;
    for (at, text) in part.texts.iter().enumerate() {
        let view = View { bytes, base: 0 };
        let mut given_up = false;
        let answer = match is_over {
            true => Answered::NotReached,
            false => {
                let ops = &part.ops[..=at];
                let is_it = holds(ops, view, &mut given_up) && ops.iter().all(|op| op.asks(bytes));
                Answer::from(is_it).into()
            }
        };
        is_over |= answer == Answered::No;
        lines.push(Line { text: format!("{}: {text}", part.buffer.name()), answer });
    }
}
