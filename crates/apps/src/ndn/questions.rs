//! Interests that control must look at before they go on: the first of a stranger, and commands.
//!
//! A stage asks control by an event and holds the packet. Control settles questions in their order, and the version of
//! the tables that has the face or the answer also says how many of the worker's questions are settled. With that
//! version the packet goes on. Held packets are few and bounded; one that is not settled in time is dropped.
//!
//! Over captures control has looked at each packet before it enters the pipeline ([`controlplane::ahead`]), so nothing
//! waits.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;

use chunk::Packet;

use super::tables::UdpEnds;

/// Packets that one worker holds.
const HELD: usize = 1024;

/// Control has this long.
const PATIENCE_NS: u64 = 2_000_000_000;

/// What a worker asks control.
#[derive(Debug)]
pub struct Question {
    /// The worker.
    pub worker: u16,
    /// How many it had asked with this one.
    pub number: u64,
    /// What it asks.
    pub ask: Ask,
}

/// What control is to do.
#[derive(Debug)]
pub enum Ask {
    /// Make a face of a stranger on a port, with the MAC that its frame came from.
    Face(u16, UdpEnds, [u8; 6]),
    /// A face that was made on demand has another MAC now. Nobody waits for it.
    Mac(u16, [u8; 6]),
    /// Do what the command in an Interest that came by a face says.
    Command(u16, Box<[u8]>),
}

/// A packet that waits for control.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) packet: Packet,
    /// For an answer, rather than a face.
    pub(super) is_command: bool,
    number: u64,
    since_ns: u64,
}

/// The questions of one worker's stage.
#[derive(Debug)]
pub(super) struct Questions {
    control: Option<SyncSender<Question>>,
    asked: u64,
    held: VecDeque<Held>,
}

impl Questions {
    /// `None`: control has looked at everything already.
    pub(super) fn new(control: Option<SyncSender<Question>>) -> Self {
        let held = VecDeque::with_capacity(if control.is_some() { HELD } else { 0 });
        Self { control, asked: 0, held }
    }

    /// Whether there is somebody to ask.
    pub(super) fn can_ask(&self) -> bool {
        self.control.is_some()
    }

    /// Whether there is room to wait for an answer.
    pub(super) fn has_room(&self) -> bool {
        self.held.len() < HELD
    }

    /// Packets that wait.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Asks control; `false` if it has too many questions already.
    pub(super) fn ask(&mut self, worker: u16, ask: Ask) -> bool {
        let question = Question { worker, number: self.asked + 1, ask };
        let is_sent = self.control.as_ref().is_some_and(|own| own.try_send(question).is_ok());
        self.asked += u64::from(is_sent);
        is_sent
    }

    /// Keeps a packet until the last question is settled.
    pub(super) fn hold(&mut self, packet: &mut Packet, is_command: bool, now_ns: u64) {
        let packet = std::mem::replace(packet, Packet::empty());
        self.held.push_back(Held { packet, is_command, number: self.asked, since_ns: now_ns });
    }

    /// The next packet whose question is settled, if `settled` are, or for which it is too late.
    pub(super) fn next(&mut self, settled: u64, now_ns: u64) -> Option<Held> {
        let is_due = |held: &mut Held| {
            held.number <= settled || now_ns.saturating_sub(held.since_ns) >= PATIENCE_NS
        };
        self.held.pop_front_if(is_due)
    }

    /// The next packet, settled or not.
    pub(super) fn pop(&mut self) -> Option<Held> {
        self.held.pop_front()
    }

    /// When the first packet has waited long enough.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.held.front().map(|held| held.since_ns.saturating_add(PATIENCE_NS))
    }
}
