//! What a run left behind, beside what the model says.

use std::collections::{BTreeMap, HashMap, HashSet};

use chunk::{DropReason, reasons};

use super::model::{self, Fate, Outcome};
use super::scenario::{Part, Placed, Scenario, is_admitted};
use crate::harness::{Arrival, Ends, Run};
use crate::parts::{COPY_OF_ASK, COPY_OF_SPRAY, COPY_OF_TURN};
use crate::{Count, Find, Flows, Record};

/// What a run left behind.
pub(super) struct Seen<'a> {
    pub(super) run: &'a Run,
    /// By worker.
    pub(super) counts: &'a [[Count; 2]],
    pub(super) finds: &'a [Find],
    pub(super) flows: &'a [Flows],
    /// The packets that the gate was asked about.
    pub(super) asked: &'a [u64],
}

/// How a packet is called.
fn name(number: u64) -> String {
    match number & !(COPY_OF_SPRAY | COPY_OF_TURN | COPY_OF_ASK) {
        own if own == number => format!("packet {own}"),
        own => format!("a copy of packet {own}"),
    }
}

/// What stages must have counted at least, and at most: a packet that was lost may have been counted before.
#[derive(Default)]
struct Tally {
    counts: BTreeMap<(usize, u8), (u64, u64)>,
    /// By record. One of a lost packet may have been found again, when the engine looked for the row of a panic.
    found: HashMap<Vec<u32>, (u64, u64)>,
    /// Any record may have been found again: the simulated device finds by the workers' shades, and a job in which a
    /// stage panicked there was done once more.
    finds_again: bool,
    /// By flow of [`Flows`]: its record, and all its packets.
    flows: BTreeMap<u16, Record>,
    /// Packets of them that were lost.
    lost_of_flows: u64,
}

impl Tally {
    fn add(&mut self, outcome: &Outcome, is_lost: bool) {
        for counted in &outcome.counted {
            let (least, most) = self.counts.entry(*counted).or_default();
            *least += u64::from(!is_lost);
            *most += 1;
        }
        for record in &outcome.found {
            let (least, most) = self.found.entry(record.clone()).or_default();
            *least += u64::from(!is_lost);
            let may_repeat = is_lost || self.finds_again;
            *most = if may_repeat { u64::MAX } else { most.saturating_add(1) };
        }
        for (flow, value) in &outcome.flows {
            self.flows.entry(*flow).or_default().add(*value);
            self.lost_of_flows += u64::from(is_lost);
        }
    }

    fn check(&self, seen: &Seen<'_>) -> Result<(), String> {
        for (which, flow) in (0..2).flat_map(|which| (0..=255).map(move |flow| (which, flow))) {
            let counted: u64 = seen.counts.iter().map(|count| count[which].of(flow)).sum();
            let (least, most) = self.counts.get(&(which, flow)).copied().unwrap_or_default();
            if !(least..=most).contains(&counted) {
                return Err(format!(
                    "counter {which}, flow {flow}: {counted}, but must be {least} to {most}"
                ));
            }
        }
        let mut found: HashMap<Vec<u32>, u64> = HashMap::new();
        for find in seen.finds {
            let records = find.records.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            records.iter().for_each(|record| *found.entry(record.clone()).or_default() += 1);
        }
        let all = found.keys().chain(self.found.keys()).collect::<HashSet<_>>();
        for record in all {
            let times = found.get(record).copied().unwrap_or_default();
            let (least, most) = self.found.get(record).copied().unwrap_or_default();
            if !(least..=most).contains(&times) {
                return Err(format!(
                    "record {record:?}: {times} times, but must be {least} to {most}"
                ));
            }
        }
        Ok(())
    }

    /// Flows' records: all packets are in them, in order if that `is_exact`, and each sweep that was asked for, if that
    /// `is_swept`.
    fn check_flows(&self, flows: &[Flows], is_exact: bool, is_swept: bool) -> Result<(), String> {
        let (mut came, mut packets) = (Vec::new(), 0);
        for flows in flows {
            let (records, asked) = flows.records();
            for (slot, (record, asked)) in records.iter().zip(asked).enumerate() {
                if record.sweeps > asked || (is_swept && record.sweeps < asked) {
                    return Err(format!("slot {slot}: {record:?}, {asked} sweeps asked for"));
                }
            }
            packets += records.iter().map(|record| u64::from(record.packets)).sum::<u64>();
            // A packet that was settled before has a slot as well.
            let used = records.iter().filter(|record| record.packets > 0);
            came.extend(used.map(|record| Record { sweeps: 0, ..*record }));
        }
        let most = self.flows.values().map(|record| u64::from(record.packets)).sum::<u64>();
        if !(most - self.lost_of_flows..=most).contains(&packets) {
            let lost = self.lost_of_flows;
            return Err(format!("{packets} packets of flows, but must be {most}, less {lost}"));
        }
        let mut wanted: Vec<Record> = self.flows.values().copied().collect();
        let by = |record: &Record| (record.packets, record.sum);
        came.sort_unstable_by_key(by);
        wanted.sort_unstable_by_key(by);
        let odd = wanted.iter().zip(&came).find(|(wanted, came)| wanted != came);
        match odd.filter(|_| is_exact && self.lost_of_flows == 0) {
            Some((wanted, came)) => Err(format!("a flow is {came:?}, but must be {wanted:?}")),
            None => Ok(()),
        }
    }
}

impl Scenario {
    /// What the stages counted.
    fn check_tally(&self, tally: &Tally, seen: &Seen<'_>) -> Result<(), String> {
        tally.check(seen)?;
        let gave_up = seen.run.sum(|worker| worker.gave_up.get()) > 0;
        // Who goes through twice may meet others in another order, and so may those of an heir.
        let is_exact = !gave_up && !self.has(|placed| placed.part == Part::Turn);
        let breaks =
            |placed: &Placed| placed.breaks.is_some() && matches!(placed.part, Part::Flows { .. });
        tally.check_flows(seen.flows, is_exact, !self.has(breaks))
    }

    /// Whether a packet with this outcome may be lost for this reason here.
    fn may_lose(&self, reason: DropReason, outcome: &Outcome, panics: bool) -> bool {
        let has_peers = self.of_worker.len() > 1;
        let is_held = matches!(outcome.fate, Fate::Held(_));
        match reason {
            reasons::STAGE_PANIC => panics,
            // A tick may find that all workers have ended.
            reasons::RING_FULL => has_peers && (!self.is_lossless || is_held),
            reasons::TX_FULL => !self.is_lossless && self.refuses.is_some(),
            reasons::AGAIN_FULL => !self.is_lossless && outcome.turns,
            _ => false,
        }
    }

    /// Compares packet by packet, and the order of each flow. `worker_of`: where the packets of a flow begin.
    pub(super) fn compare(
        &self,
        seen: &Seen<'_>,
        worker_of: impl Fn(u8) -> usize,
    ) -> Result<(), String> {
        let run = seen.run;
        let panics = !run.panics.is_empty();
        if panics && !self.may_panic() {
            return Err(format!("a panic that was not planned: {}", run.panics[0]));
        }
        let gave_up = |worker: usize| run.view.workers[worker].gave_up.get() > 0;
        // What became of each number.
        let mut came: HashMap<u64, Fate> = HashMap::new();
        let mut twice = Vec::new();
        let mut put = |number, fate| {
            if came.insert(number, fate).is_some() {
                twice.push(number);
            }
        };
        for (port, frames) in run.ports.iter().enumerate() {
            frames.iter().for_each(|(number, bytes)| put(*number, Fate::Sent(port, bytes.clone())));
        }
        for (reason, (number, bytes)) in &run.dropped {
            put(*number, Fate::Dropped(*reason, bytes.clone()));
        }
        run.dumped.iter().for_each(|(number, bytes)| put(*number, Fate::Dumped(bytes.clone())));
        if let Some(number) = twice.first() {
            return Err(format!("{} came out twice ({} of them)", name(*number), twice.len()));
        }
        let finds_again = self.may_panic() && self.has_simulated();
        let mut tally = Tally { finds_again, ..Tally::default() };
        let mut received = 0;
        // Packets that go straight through: they keep their order.
        let mut straight: HashSet<u64> = HashSet::new();
        for (number, frame) in (1..).zip(&self.frames) {
            let Some(fate) = came.remove(&number) else {
                // A source that was stopped still has it.
                if self.ends == Ends::Finished {
                    return Err(format!("{} vanished", name(number)));
                }
                continue;
            };
            received += 1;
            let worker = worker_of(frame[0]);
            let kind = self.kind_of(frame[0], &self.of_worker);
            let outcome = self.walk(kind, 0, model::Seen::new(number, frame));
            // An heir may overtake.
            if !outcome.turns && !gave_up(worker) {
                straight.insert(number);
            }
            let mut queue: Vec<(u64, Option<Fate>, Outcome)> = vec![(number, Some(fate), outcome)];
            while let Some((number, fate, outcome)) = queue.pop() {
                let fits = match (&outcome.fate, &fate) {
                    (Fate::Held(bytes), Some(Fate::Sent(0, sent))) => bytes == sent,
                    (Fate::Held(bytes), Some(Fate::Dropped(crate::reasons::TEST, dropped))) => {
                        bytes == dropped
                    }
                    (wanted, Some(fate)) => wanted == fate,
                    (_, None) => false,
                };
                let is_lost = !fits
                    && match &fate {
                        Some(Fate::Dropped(reason, _)) => self.may_lose(*reason, &outcome, panics),
                        // No cell was free for it, or what it is a copy of was lost before.
                        None => true,
                        _ => false,
                    };
                if !fits && !is_lost {
                    let wanted = outcome.fate;
                    return Err(format!("{}: {fate:?}, but must be {wanted:?}", name(number)));
                }
                tally.add(&outcome, is_lost);
                for (copy, of_copy) in outcome.copies {
                    let fate = came.remove(&copy);
                    queue.push((copy, fate, of_copy));
                }
            }
        }
        if let Some(number) = came.keys().min() {
            return Err(format!("{} came from nowhere", name(*number)));
        }
        if received != run.received {
            return Err(format!("{} received by count, {received} came out", run.received));
        }
        self.check_tally(&tally, seen)?;
        for (port, frames) in run.ports.iter().enumerate() {
            let mut last = HashMap::new();
            for (number, bytes) in frames.iter().filter(|(number, _)| straight.contains(number)) {
                let before = last.insert(bytes[0], *number).unwrap_or(0);
                if before > *number {
                    let flow = bytes[0];
                    return Err(format!(
                        "port {port}, flow {flow}: packet {number} behind {before}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Compares with what one worker would make, one packet after the other: everything in its order. Where a stage
    /// panicked, packets of its chunk are missing, and what was dropped with them comes at their places.
    pub(super) fn compare_in_order(&self, seen: &Seen<'_>) -> Result<(), String> {
        let run = seen.run;
        let panics = !run.panics.is_empty();
        if panics && !self.may_panic() {
            return Err(format!("a panic that was not planned: {}", run.panics[0]));
        }
        let lost: HashSet<u64> = run.dropped.iter().filter_map(is_panic).collect();
        let mut wanted = InOrder { ports: vec![Vec::new(); self.ports], ..InOrder::default() };
        let finds_again = self.may_panic() && self.has_simulated();
        let mut tally = Tally { finds_again, ..Tally::default() };
        for (number, frame) in (1..=run.received).zip(&self.frames) {
            // All workers have the same pipelines.
            let kind = self.kind_of(frame[0], &self.of_worker);
            let outcome = self.walk(kind, 0, model::Seen::new(number, frame));
            let is_lost = lost.contains(&number);
            tally.add(&outcome, is_lost);
            if is_lost {
                // What it had emitted is dropped with it, at its place or behind it.
                wanted.drops.push((reasons::STAGE_PANIC, (number, Vec::new())));
                continue;
            }
            wanted.put(number, outcome.fate);
            outcome.copies.into_iter().for_each(|(copy, outcome)| wanted.put(copy, outcome.fate));
        }
        differ("the gate", &wanted.asked, seen.asked, |number| name(*number))?;
        let of = |flight: &Arrival| name(flight.0);
        for (port, (wanted, sent)) in wanted.ports.iter().zip(&run.ports).enumerate() {
            differ(&format!("port {port}"), wanted, sent, of)?;
        }
        differ("the sink of dumps", &wanted.dumps, &run.dumped, of)?;
        let is_received = |number: u64| number < COPY_OF_ASK;
        let drops: Vec<(DropReason, Arrival)> = run
            .dropped
            .iter()
            .filter(|drop| is_panic(drop).is_none_or(is_received))
            // What a panic left of the bytes is anybody's guess.
            .map(|drop| match is_panic(drop) {
                Some(number) => (reasons::STAGE_PANIC, (number, Vec::new())),
                None => drop.clone(),
            })
            .collect();
        let of = |(reason, flight): &(DropReason, Arrival)| format!("{} {reason:?}", of(flight));
        differ("the sink of drops", &wanted.drops, &drops, of)?;
        for reason in run.view.reasons().iter().map(|reason| reason.code()) {
            let counted = run.view.drops(reason);
            let dropped = run.dropped.iter().filter(|(of, _)| *of == reason).count() as u64;
            if counted != dropped {
                return Err(format!("{reason:?}: {counted} by count, {dropped} in the sink"));
            }
        }
        if !panics && run.view.emitted() != wanted.emitted {
            return Err(format!("{} emitted, not {}", run.view.emitted(), wanted.emitted));
        }
        self.check_tally(&tally, seen)
    }
}

/// The number of a packet that a panic took along.
fn is_panic((reason, (number, _)): &(DropReason, Arrival)) -> Option<u64> {
    (*reason == reasons::STAGE_PANIC).then_some(*number)
}

/// What must come out, in order.
#[derive(Default)]
struct InOrder {
    ports: Vec<Vec<Arrival>>,
    drops: Vec<(DropReason, Arrival)>,
    dumps: Vec<Arrival>,
    asked: Vec<u64>,
    emitted: u64,
}

impl InOrder {
    fn put(&mut self, number: u64, fate: Fate) {
        let is_copy = number >= COPY_OF_ASK;
        let emitted = match fate {
            Fate::Sent(port, bytes) => {
                self.ports[port].push((number, bytes));
                true
            }
            Fate::Dropped(reason, bytes) => {
                self.drops.push((reason, (number, bytes)));
                true
            }
            Fate::Dumped(bytes) => {
                self.dumps.push((number, bytes));
                true
            }
            Fate::Held(_) => unreachable!("nothing is held before a merger"),
            Fate::Asked(port, bytes) => {
                self.asked.push(number);
                let admitted = bytes.filter(|_| is_admitted(self.asked.len() - 1));
                let is_admitted = admitted.is_some();
                self.ports[port].extend(admitted.map(|bytes| (number, bytes)));
                is_admitted
            }
        };
        self.emitted += u64::from(is_copy && emitted);
    }
}

/// Where two lists differ first.
fn differ<T: PartialEq>(
    what: &str,
    wanted: &[T],
    came: &[T],
    name: impl Fn(&T) -> String,
) -> Result<(), String> {
    let same = wanted.iter().zip(came).take_while(|(wanted, came)| wanted == came).count();
    if same == wanted.len().max(came.len()) {
        return Ok(());
    }
    let of = |list: &[T]| list.get(same).map_or("nothing".into(), &name);
    Err(format!(
        "{what}, place {same} of {}: {} came, but must be {}",
        wanted.len(),
        of(came),
        of(wanted)
    ))
}
