//! Evaluates rules.

use std::sync::Arc;

use crate::{Alert, BufferPart, FlowState, Packet, Ruleset, Sender, Verdict};

/// Evaluates the rules of a [`Ruleset`] at one worker.
///
/// A *step* is a packet and all that it brings: bytes of streams, buffers, ends of transactions. [`Detector::finish`] ends it
/// and gives the alerts, in the order of the rules.
#[derive(Debug)]
pub struct Detector {
    rules: Arc<Ruleset>,
}

impl Detector {
    /// One for a worker.
    pub fn new(rules: Arc<Ruleset>) -> Self {
        Self { rules }
    }

    /// The rules.
    pub fn rules(&self) -> &Arc<Ruleset> {
        &self.rules
    }

    /// Other rules from the next step on. What flows remember by name (flowbits and others) stays; what of a stream or
    /// transaction was matched before is forgotten.
    pub fn replace(&mut self, rules: Arc<Ruleset>) {
        self.rules = rules;
    }

    /// Begins a step with a packet of a flow.
    pub fn begin(&mut self, packet: &Packet<'_>, flow: &mut FlowState, sender: Sender) {
        let _ = (packet, flow, sender);
    }

    /// Begins and ends a step with a packet of no flow.
    pub fn lone(&mut self, packet: &Packet<'_>, alerts: &mut Vec<Alert>) -> Verdict {
        let _ = (packet, alerts);
        Verdict::default()
    }

    /// Begins a step without a packet: a flow ends, and what waited for its end is evaluated.
    pub fn begin_end(&mut self, flow: &mut FlowState, time_ns: u64) {
        let _ = (flow, time_ns);
    }

    /// Bytes of a stream in order; `offset` is that of the first one.
    pub fn data(&mut self, flow: &mut FlowState, sender: Sender, offset: u64, bytes: &[u8]) {
        let _ = (flow, sender, offset, bytes);
    }

    /// Bytes of a stream that will not come.
    pub fn gap(&mut self, flow: &mut FlowState, sender: Sender, offset: u64, bytes: u64) {
        let _ = (flow, sender, offset, bytes);
    }

    /// Nothing more of a stream follows.
    pub fn end_of_stream(&mut self, flow: &mut FlowState, sender: Sender) {
        let _ = (flow, sender);
    }

    /// A buffer or a part of one.
    pub fn buffer(&mut self, flow: &mut FlowState, part: &BufferPart<'_>) {
        let _ = (flow, part);
    }

    /// All buffers of one side of a transaction were given.
    pub fn end_of_side(&mut self, flow: &mut FlowState, sender: Sender, transaction: u64) {
        let _ = (flow, sender, transaction);
    }

    /// Ends the step: appends its alerts, and says what becomes of packet and flow.
    pub fn finish(&mut self, flow: &mut FlowState, alerts: &mut Vec<Alert>) -> Verdict {
        let _ = (flow, alerts);
        Verdict::default()
    }
}
