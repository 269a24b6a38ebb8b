//! What the follower of a worker leaves for the stage `l7` of the same worker, and for control.
//!
//! ```text
//!  flow, in its pre_shade ─▶ Labels ─▶ Gathered ─▶ l7, in its pre_shade ─▶ column, contexts
//!                                         └─ sums ─▶ control
//! ```
//!
//! A packet has the label that its flow has after its bytes, whatever else is in the chunk, and however many chunks wait for a device
//! between both stages ([`calls`](crate::flow::calls)): so the result does not depend on chunks. Flows are counted when their label is
//! settled, or when they end.
//!
//! Threads: one worker; control takes the lock for a moment.

use stream::FlowRecord;
use stream::record::FlowState;
use stream::tracker::OfFlow;

use super::follow::{Counted, Hears, Labels, OfLabels};
use super::label::{Confidence, Label, number};
use super::labelling::Options;
use crate::flow::by_worker::{self, ByWorker, lock};
use crate::flow::calls::{Asker, Calls, OfCall};
use crate::flow::follow::{Follower, Listener, Place};

/// The name under which flows without a label are counted.
pub const UNKNOWN: &str = "unknown";

/// A packet of a flow, or about one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Of {
    row: usize,
    slot: usize,
    /// The application of the flow in its place before it, be it another one, and with it.
    before: u32,
    with: u32,
}

/// Packets of a chunk, in the order of their rows. A row with several: a flow ended and the next one began.
#[derive(Debug, Default)]
struct Packets(Vec<Of>);

impl OfCall for Packets {
    fn clear(&mut self) {
        self.0.clear();
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The flow in a place.
#[derive(Clone, Copy, Debug, Default)]
struct InPlace {
    application: u32,
    /// The call in which it became that one.
    since: u32,
}

/// Flows, packets and bytes.
pub type Sum = [u64; 3];

/// What is known at one worker.
#[derive(Debug)]
pub struct Gathered {
    options: Options,
    /// Labels that are less sure are none.
    least: Confidence,
    calls: Calls<Packets>,
    /// The call under way.
    call: u32,
    /// By place of a flow.
    slots: Vec<InPlace>,
    /// The flow of the last packet is taken in.
    is_closing: bool,
    /// By application; flows without a label are the first.
    sums: Vec<(&'static str, Sum)>,
}

impl Default for Gathered {
    fn default() -> Self {
        Self {
            options: Options::default(),
            least: Confidence::Medium,
            calls: Calls::default(),
            call: 0,
            slots: Vec::new(),
            is_closing: false,
            sums: vec![(UNKNOWN, [0; 3])],
        }
    }
}

impl Gathered {
    /// Flows that begin are labelled in this way.
    pub fn set(&mut self, options: Options, least: Confidence) {
        (self.options, self.least) = (options, least);
    }

    /// What was counted so far, by application.
    pub fn sums(&self) -> &[(&'static str, Sum)] {
        &self.sums
    }

    /// What a stage has as long as it asks for rows.
    pub fn asker(&self) -> Asker {
        self.calls.asker()
    }

    /// The packets of a chunk that the call of this number looked at, from the first row on.
    pub fn rows(&mut self, call: u32) -> Rows<'_> {
        self.calls.ask(call);
        Rows { all: self, call, next: 0 }
    }

    fn put(&mut self, row: usize, slot: usize, is_first: bool) {
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, InPlace::default());
        }
        let before = self.slots[slot].application;
        let with = if is_first { 0 } else { before };
        self.calls.now().0.push(Of { row, slot, before, with });
        self.become_at(slot, with);
    }

    fn become_at(&mut self, slot: usize, application: u32) {
        if self.slots[slot].application != application {
            self.slots[slot] = InPlace { application, since: self.call };
        }
    }

    /// Counts a flow at its application, with the packets that it had.
    fn count(&mut self, label: Option<Label>, counted: &mut Counted) {
        if counted.place != 0 {
            return;
        }
        let name = label.map_or(UNKNOWN, |label| label.name);
        let known = self.sums.iter().position(|own| own.0 == name);
        let at = known.unwrap_or_else(|| {
            self.sums.push((name, [0; 3]));
            self.sums.len() - 1
        });
        counted.place = at + 1;
        let sum = &mut self.sums[at].1;
        *sum = [sum[0] + 1, sum[1] + counted.packets, sum[2] + counted.bytes];
    }

    fn sure(&self, label: Option<Label>) -> Option<Label> {
        label.filter(|label| label.confidence >= self.least)
    }
}

/// See [`Gathered::rows`].
#[derive(Debug)]
pub struct Rows<'a> {
    all: &'a Gathered,
    call: u32,
    next: usize,
}

impl Rows<'_> {
    /// The application of the flow in a place, with the packet of a row, which is behind the one before.
    pub fn application(&mut self, row: usize, slot: usize) -> u32 {
        let all = self.all;
        let packets = all.calls.known(self.call).map_or(&[][..], |own| &own.0);
        while packets.get(self.next).is_some_and(|own| own.row <= row) {
            self.next += 1;
        }
        let (before, behind) = packets.split_at(self.next);
        if let Some(own) = before.iter().rev().find(|own| own.slot == slot) {
            return own.with;
        }
        // A packet that was passed over has what its flow had.
        let of_slot = |own: &&Of| own.slot == slot;
        if let Some(own) = behind.iter().find(of_slot) {
            return own.before;
        }
        let now = all.slots.get(slot).copied().unwrap_or_default();
        if now.since.wrapping_sub(self.call).cast_signed() <= 0 {
            return now.application;
        }
        let later = all.calls.behind(self.call).find_map(|own| own.0.iter().find(of_slot));
        later.map_or(now.application, |own| own.before)
    }
}

/// What a follower and a stage share.
pub type Shared = by_worker::Shared<Gathered>;

/// What is shared in each pipeline and worker.
pub type Places = ByWorker<Gathered>;

impl Listener for Places {
    /// Nobody asks for a follower without its place.
    fn follower(&self, worker: usize, _workers: usize) -> Box<dyn Follower> {
        Box::new(Labels::new(Gathering(self.of("", worker))))
    }

    fn stage(&self) -> Option<&'static str> {
        Some(super::STAGE)
    }

    fn follower_in(&self, pipeline: &str, at: usize, _number: (usize, usize)) -> Box<dyn Follower> {
        Box::new(Labels::new(Gathering(self.of(pipeline, at))))
    }
}

/// Puts into [`Gathered`] what it hears.
struct Gathering(Shared);

impl Hears for Gathering {
    fn options(&mut self) -> Options {
        lock(&self.0).options.clone()
    }

    fn least(&mut self) -> Confidence {
        lock(&self.0).least
    }

    fn begin(&mut self, call: u32) {
        let mut all = lock(&self.0);
        all.calls.begin(call);
        all.call = call;
        all.is_closing = false;
    }

    fn error(&mut self, at: &Place) {
        let mut all = lock(&self.0);
        all.put(at.row, at.slot.index(), false);
        // It brings its flow no bytes.
        all.is_closing = true;
    }

    fn packet(&mut self, at: &Place, packet: &OfFlow<'_>, counted: &mut Counted) {
        let all = &mut *lock(&self.0);
        all.put(at.row, at.slot.index(), packet.is_first);
        all.is_closing = false;
        if packet.is_rest {
            return; // counted with its datagram
        }
        let bytes = u64::from(packet.input.frame_len);
        counted.packets += 1;
        counted.bytes += bytes;
        if let Some((_, sum)) = counted.place.checked_sub(1).and_then(|at| all.sums.get_mut(at)) {
            *sum = [sum[0], sum[1] + 1, sum[2] + bytes];
        }
    }

    fn labelled(&mut self, label: Option<Label>, is_settled: bool, counted: &mut Counted) {
        let all = &mut *lock(&self.0);
        let label = all.sure(label);
        if is_settled {
            all.count(label, counted);
        }
        if all.is_closing {
            return;
        }
        let Some(last) = all.calls.now().0.last_mut() else { return };
        let number = label.map_or(0, |label| number(label.name));
        last.with = number;
        let slot = last.slot;
        all.become_at(slot, number);
    }

    fn closing(&mut self) {
        lock(&self.0).is_closing = true;
    }

    fn ended(&mut self, record: &FlowRecord, own: Option<&mut OfLabels>, _: u64) {
        let all = &mut *lock(&self.0);
        let sum = |of: fn(&stream::SideRecord) -> u64| record.sides.iter().map(of).sum::<u64>();
        let (packets, bytes) = (sum(|side| side.packets), sum(|side| side.bytes));
        match own {
            Some(own) => {
                let label = all.sure(own.labelling.label());
                all.count(label, &mut own.counted);
                // A packet that begins the next flow with its ports was heard of with this one, too.
                let twice = own.counted.packets.saturating_sub(packets);
                if let Some((_, sum)) = all.sums.get_mut(own.counted.place.wrapping_sub(1))
                    && twice > 0
                {
                    sum[1] = sum[1].saturating_sub(twice);
                    sum[2] = sum[2].saturating_sub(own.counted.bytes.saturating_sub(bytes));
                }
                // Packets that were passed over.
                if record.state == FlowState::Bypassed
                    && let Some((_, sum)) = all.sums.get_mut(own.counted.place.wrapping_sub(1))
                {
                    sum[1] += packets.saturating_sub(own.counted.packets);
                    sum[2] += bytes.saturating_sub(own.counted.bytes);
                }
            }
            None => all.count(None, &mut Counted { packets, bytes, place: 0 }),
        }
    }
}
