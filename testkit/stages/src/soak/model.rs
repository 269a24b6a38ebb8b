//! What must become of a packet: a walk through the stages by itself.

use chunk::{DropReason, VerdictKind, reasons};

use super::scenario::{Part, Scenario};
use crate::Find;
use crate::parts::{
    Ask, At, COPY_OF_ASK, COPY_OF_SPRAY, COPY_OF_TURN, Divert, HELD, Hold, Show, Sift, Steps,
    TURNED, Turn,
};

/// How often a packet may enter the pipeline at a place, as the engine has it.
const PASSES_MAX: u8 = 8;

/// What must become of a packet.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fate {
    Sent(usize, Vec<u8>),
    Dropped(DropReason, Vec<u8>),
    Dumped(Vec<u8>),
    /// Sent or dropped, by when the engine ends.
    Held(Vec<u8>),
    /// Sent if the gate lets it; `None` is nothing to send.
    Asked(usize, Option<Vec<u8>>),
}

/// What the model says of a packet or of a copy.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) fate: Fate,
    /// Which counter counts it for which flow.
    pub(super) counted: Vec<(usize, u8)>,
    /// Its records in [`Find`].
    pub(super) found: Vec<Vec<u32>>,
    /// What it adds to the records of [`crate::Flows`].
    pub(super) flows: Vec<(u16, u32)>,
    /// Copies made on its way, by their numbers, in the order in which they were made.
    pub(super) copies: Vec<(u64, Outcome)>,
    /// It enters the pipeline at a place.
    pub(super) turns: bool,
}

impl Outcome {
    fn of(fate: Fate) -> Self {
        let (counted, found) = (Vec::new(), Vec::new());
        let (flows, copies) = (Vec::new(), Vec::new());
        Self { fate, counted, found, flows, copies, turns: false }
    }
}

/// A packet in the model.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) number: u64,
    pub(super) bytes: Vec<u8>,
    mark: u32,
    passes: u8,
}

impl Seen {
    /// A received packet.
    pub(super) fn new(number: u64, bytes: &[u8]) -> Self {
        Self { number, bytes: bytes.to_vec(), mark: 0, passes: 0 }
    }
}

impl Scenario {
    /// What becomes of a packet from stage `at` of pipeline `kind` on.
    pub(super) fn walk(&self, kind: usize, at: usize, packet: Seen) -> Outcome {
        let parts = &self.pipelines[kind];
        let place = |part| parts.iter().position(|placed| placed.part == part);
        let Seen { number, mut bytes, mut mark, passes } = packet;
        let mut outcome = Outcome::of(Fate::Dumped(Vec::new()));
        outcome.turns = passes > 0;
        // Each chunk begins without contexts.
        let (mut context, mut made) = (0, [[0; 3]; 2]);
        for placed in &parts[at..] {
            if placed.contexts != 0 && placed.contexts & context == 0 {
                continue;
            }
            let flow = bytes[0];
            let port = usize::from(flow) % self.ports;
            let turned_to = match placed.part {
                Part::First | Part::Last | Part::Fence | Part::Plain => None,
                Part::Age | Part::Touchy(_) => None,
                Part::Steps(steps) => {
                    made[usize::from(steps.is_second)] = Steps::of(flow);
                    if steps.key.at != At::Never {
                        context |= steps.key.of(flow);
                    }
                    None
                }
                Part::Show => {
                    Show::add(&mut bytes, made);
                    None
                }
                Part::Key(key) => {
                    context |= key.of(flow);
                    None
                }
                Part::Sum => {
                    let sum = bytes.iter().fold(0u32, |sum, byte| sum.wrapping_add((*byte).into()));
                    if let Some(capacity) = bytes.get_mut(8..12) {
                        capacity.copy_from_slice(&sum.to_be_bytes());
                    }
                    None
                }
                Part::Xor | Part::HostXor => {
                    bytes.iter_mut().skip(1).for_each(|byte| *byte ^= flow | 1);
                    None
                }
                Part::Count(which) => {
                    outcome.counted.push((which, flow));
                    None
                }
                Part::Find { words } => {
                    let find = Find::new(false, super::scenario::FIND_BELOW, words);
                    outcome.found.extend(find.record_of(flow, &bytes));
                    None
                }
                Part::Flows { .. } => {
                    outcome.flows.push(crate::flow_and_value(&bytes));
                    None
                }
                Part::Sift if Sift::drops(flow) => {
                    outcome.fate = Fate::Dropped(crate::reasons::TEST, bytes);
                    return outcome;
                }
                Part::Sift => None,
                Part::Divert => {
                    let verdict = Divert::verdict(flow);
                    outcome.fate = match verdict.kind() {
                        VerdictKind::Next => continue,
                        VerdictKind::Dump => Fate::Dumped(bytes),
                        VerdictKind::Host => Fate::Dropped(reasons::HOST_ABSENT, bytes),
                        VerdictKind::Forward => Fate::Dropped(reasons::TX_NO_PORT, bytes),
                        _ => Fate::Dropped(verdict.reason(), bytes),
                    };
                    return outcome;
                }
                Part::Turn if mark & TURNED != 0 && flow & 15 != 6 => None,
                Part::Turn => {
                    mark |= TURNED;
                    match flow & 15 {
                        0 | 6 => Some(Part::First),
                        8 => Some(Part::Last),
                        2 => {
                            bytes[0] = Turn::handed(flow);
                            Some(Part::Last)
                        }
                        4 => {
                            let number = number | COPY_OF_TURN;
                            let copy =
                                Seen { number, bytes: bytes.clone(), mark, passes: passes + 1 };
                            let from = place(Part::Last).expect("a turn has its places");
                            outcome.copies.push((number, self.walk(kind, from, copy)));
                            outcome.fate = Fate::Dumped(bytes);
                            return outcome;
                        }
                        _ => None,
                    }
                }
                Part::Hold if Hold::holds(flow) && mark & HELD == 0 => {
                    outcome.fate = Fate::Held(bytes);
                    return outcome;
                }
                Part::Hold => None,
                Part::Spray => {
                    if number.is_multiple_of(16) {
                        let copy = Outcome::of(Fate::Sent(0, bytes.clone()));
                        outcome.copies.push((number | COPY_OF_SPRAY, copy));
                    }
                    None
                }
                Part::Ask => {
                    if Ask::asks(flow) {
                        let sent = (!Ask::is_empty(flow)).then(|| bytes.clone());
                        let copy = Outcome::of(Fate::Asked(port, sent));
                        outcome.copies.push((number | COPY_OF_ASK, copy));
                    }
                    None
                }
                Part::Out => {
                    outcome.fate = Fate::Sent(port, bytes);
                    return outcome;
                }
            };
            if let Some(target) = turned_to {
                outcome.turns = true;
                if passes + 1 > PASSES_MAX {
                    outcome.fate = Fate::Dropped(reasons::AGAIN_TOO_OFTEN, bytes);
                    return outcome;
                }
                let from = place(target).expect("a turn has its places");
                let rest = self.walk(kind, from, Seen { number, bytes, mark, passes: passes + 1 });
                outcome.counted.extend(rest.counted);
                outcome.found.extend(rest.found);
                outcome.flows.extend(rest.flows);
                outcome.copies.extend(rest.copies);
                outcome.fate = rest.fate;
                return outcome;
            }
        }
        outcome.fate = Fate::Dropped(reasons::NO_VERDICT, bytes);
        outcome
    }
}
