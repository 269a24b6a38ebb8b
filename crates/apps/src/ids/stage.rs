//! Stage `ids`: drops what rules drop.
//!
//! | | |
//! | --- | --- |
//! | reads | what the inspector of its worker decided, in the stage `flow` before it; `flow_state`, `flow_slot`, `flow_call` |
//! | drop | `ids_drop`, `ids_flow`, `ids_reject`, `ids_limit`, `ids_invalid`, where `action` is `inline` |
//!
//! A rejected packet is answered by the port that received it: a TCP reset, for anything else ICMP. Where its receiver is told as
//! well, a reset goes on in its place: it takes the way that the packet would have taken.

use chunk::{Chunk, ColumnSet, Columns, Declaration, ReasonBlock, Verdict};
use control::config::IdsOnLimit;
use engine::{Context, Phases, Spread, Stage};
use packet::{Decoded, IpProtocol};
use stream::tracker::PacketState;

use super::inspect::{Decided, Inspector, Shared};
use super::reasons;
use crate::firewall::FirewallOptions;
use crate::firewall::answer::{Answer, Answers};
use crate::flow::by_worker::lock;
use crate::flow::calls::Asker;
use crate::flow::columns::{self, FlowColumns};
use crate::received;
use crate::records::{self, RecordColumns, Records};

/// The stage of one worker.
pub struct Ids {
    /// Nothing without a stage `flow` before it.
    inspector: Option<Shared>,
    _asker: Option<Asker>,
    answers: Answers,
    options: FirewallOptions,
    needs_one_worker: Option<&'static str>,
    /// Stages share records.
    shares: bool,
}

impl Ids {
    /// With the inspector of its worker. `icmp_rate`: answers in a second, by port.
    pub fn new(inspector: Option<Shared>, icmp_rate: u32) -> Self {
        let options = FirewallOptions { icmp_rate, icmp_burst: icmp_rate.min(10) };
        let _asker = inspector.as_ref().map(|own| lock(own).asker());
        let answers = Answers::new();
        Self { inspector, _asker, answers, options, needs_one_worker: None, shares: false }
    }

    /// Stages share records of headers, of which those of packets that resets replace are forgotten.
    #[must_use]
    pub fn sharing(mut self, shares: bool) -> Self {
        self.shares = shares;
        self
    }

    /// Why captures must go through one worker.
    #[must_use]
    pub fn needing_one_worker(mut self, why: Option<&'static str>) -> Self {
        self.needs_one_worker = why;
        self
    }
}

impl<T: Send + Sync + 'static> Stage<T> for Ids {
    fn name(&self) -> &'static str {
        super::STAGE
    }

    fn phases(&self) -> Phases {
        Phases::PRE
    }

    fn spread(&self) -> Spread {
        Spread::Hosts
    }

    fn needs_one_worker(&self, _: &T) -> Option<&'static str> {
        self.needs_one_worker
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        &[reasons::BLOCK]
    }

    fn columns(&self) -> &'static [Declaration] {
        match self.shares {
            true => &[FlowColumns::COLUMNS, RecordColumns::COLUMNS],
            false => &[FlowColumns::COLUMNS],
        }
    }

    fn zeroed(&self) -> ColumnSet {
        if self.shares { records::zeroed() } else { ColumnSet::EMPTY }
    }

    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, T>) {
        let Some(inspector) = &self.inspector else { return };
        let call = columns::call(FlowColumns::view(&mut chunk.rows).flow_call);
        let (known, drops_invalid) = {
            let mut own = lock(inspector);
            (own.decisions(call), own.drops_invalid())
        };
        let mut dropped = 0;
        for (row, decided) in &known.decisions {
            let Some(verdict) = chunk.rows.verdicts().get_mut(*row) else { continue };
            if !Verdict(*verdict).is_next() {
                continue;
            }
            dropped += 1;
            let reason = match decided {
                Decided::Drop => reasons::IDS_DROP,
                Decided::DropFlow => reasons::IDS_FLOW,
                Decided::Limit => reasons::IDS_LIMIT,
                Decided::Invalid => reasons::IDS_INVALID,
                Decided::Reject { .. } => reasons::IDS_REJECT,
            };
            let Decided::Reject { source, destination } = *decided else {
                *verdict = Verdict::drop(reason).0;
                continue;
            };
            let packet = &chunk.packets[*row];
            let (d, port) = (received::decode(packet), packet.port);
            let onward = match destination {
                true => self.answers.onward(packet, &d, cx.pool),
                false => None,
            };
            let answer = match source {
                true => {
                    let now_ns = cx.arrival_ns(packet);
                    self.answers.make(packet, &d, &self.options, now_ns, cx.pool)
                }
                false => Answer::None,
            };
            match onward {
                Some(reset) => {
                    let packet = std::mem::replace(&mut chunk.packets[*row], reset);
                    chunk.emit(*row, Verdict::drop(reason), packet);
                    if self.shares {
                        Records::of_rows(&mut chunk.rows).forget(*row);
                    }
                }
                None => *verdict = Verdict::drop(reason).0,
            }
            if let Answer::Made(frame) = answer {
                chunk.emit(*row, Verdict::forward(port), frame);
            }
        }
        let now_ns = chunk.packets.last().map_or(0, |packet| cx.arrival_ns(packet));
        let mut own = lock(inspector);
        if drops_invalid {
            dropped += drop_segments_of_no_flow(chunk, &known.undecoded);
        }
        own.dropped(dropped);
        judge_refused(chunk, &mut own, now_ns);
        own.give_back(known);
    }
}

/// Packets of flows for which the flow table has no place: nothing of them is inspected. Inline, `on_limit` decides about them, as about
/// flows that exceed another bound.
fn judge_refused(chunk: &mut Chunk, inspector: &mut Inspector, now_ns: u64) {
    let view = FlowColumns::view(&mut chunk.rows);
    let drops = inspector.is_inline() && inspector.on_limit() == IdsOnLimit::Drop;
    let (mut refused, mut dropped) = (0, 0);
    for (bits, verdict) in view.flow_state.iter().zip(view.verdict.iter_mut()) {
        if bits & columns::REFUSED == 0 || !Verdict(*verdict).is_next() {
            continue;
        }
        refused += 1;
        if drops {
            *verdict = Verdict::drop(reasons::IDS_LIMIT).0;
            dropped += 1;
        }
    }
    if refused > 0 {
        inspector.no_place(refused, dropped, now_ns);
    }
}

/// Drops segments that can begin no connection and belong to none, and counts them. What is `undecoded` has headers or checksums that
/// are wrong: its receiver discards it.
fn drop_segments_of_no_flow(chunk: &mut Chunk, undecoded: &[usize]) -> u64 {
    let view = FlowColumns::view(&mut chunk.rows);
    let mut dropped = 0;
    for (row, packet) in chunk.packets.iter().enumerate() {
        let is_of_none = columns::state(view.flow_state[row]) == PacketState::Invalid
            && view.flow_state[row] & columns::REFUSED == 0
            && view.flow_slot[row] == columns::NO_SLOT;
        let is_next = Verdict(view.verdict[row]).is_next();
        if !is_of_none || !is_next || undecoded.contains(&row) {
            continue;
        }
        let d = received::decode(packet);
        if d.protocol == IpProtocol::TCP && d.is_ip() && !d.has(Decoded::FRAGMENT) {
            view.verdict[row] = Verdict::drop(reasons::IDS_INVALID).0;
            dropped += 1;
        }
    }
    dropped
}
