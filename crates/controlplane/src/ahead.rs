//! Over captures: parts that learn from frames before the pipeline sees them.
//!
//! Live, what a stage tells control is known a moment later. Over a capture that moment must not depend on how frames fall
//! into chunks or on how long a device takes, so the receive queue itself lets the parts learn: a frame that tells of
//! something new begins a burst, before which the tables that know it are published. A burst is a chunk, and a chunk sees
//! one version. So the answer is that of a program that takes one frame after the other.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use chunk::{Packet, Pool};
use engine::UnderWay;
use io::{Losses, QueueStats, RxQueue};

use crate::application::Ahead;
use crate::publisher::Publisher;

/// A receive queue that stamps its packets' ports, and the tables that learn from it.
pub struct LearnAhead<Q> {
    inner: Q,
    publisher: Arc<Mutex<Publisher>>,
    /// By port: the parts whose stages a packet passes before it is learned from.
    passed: Vec<Vec<usize>>,
    /// Packets that workers have not looked up yet.
    under_way: UnderWay,
    /// Received, and not handed out yet.
    held: VecDeque<Packet>,
    batch: Vec<Packet>,
    /// Something was learned that no version has yet.
    unpublished: bool,
}

impl<Q: RxQueue> LearnAhead<Q> {
    /// The queue, over parts whose totals are read at the end by `publisher`. `passed`: by port, the parts whose stages a packet
    /// passes before it is learned from.
    pub fn new(
        inner: Q,
        publisher: Arc<Mutex<Publisher>>,
        passed: Vec<Vec<usize>>,
        under_way: UnderWay,
    ) -> Self {
        let (held, batch) = (VecDeque::new(), Vec::new());
        Self { inner, publisher, passed, under_way, held, batch, unpublished: true }
    }
}

/// Lets the parts learn from a packet, unless that must wait for a new burst. `passed`: the parts whose stages it passes before.
fn look(publisher: &mut Publisher, packet: &Packet, passed: &[usize], is_first: bool) -> Ahead {
    let mut all = Ahead::default();
    for at in 0..publisher.parts.len() {
        if !publisher.parts[at].part.learns_ahead() {
            continue;
        }
        // The tables are read while one part changes what it knows: that part is taken out for the moment.
        let (before, rest) = publisher.parts.split_at_mut(at);
        let (own, after) = rest.split_first_mut().expect("a part");
        let tables = publisher.writer.current();
        let part = |number: usize| match number < at {
            true => before.get(number),
            false => number.checked_sub(at + 1).and_then(|number| after.get(number)),
        };
        let mut asked = passed.iter().filter_map(|number| part(*number));
        let passes = asked.all(|own| own.part.passes(packet, tables));
        let found = own.part.ahead(packet, is_first, tables, passes);
        all.begins |= found.begins;
        all.changed |= found.changed;
    }
    all
}

impl<Q: RxQueue> RxQueue for LearnAhead<Q> {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        if self.held.is_empty() {
            self.inner.recv(pool, &mut self.batch, max);
            self.held.extend(self.batch.drain(..));
        }
        let mut publisher = self.publisher.lock().unwrap_or_else(PoisonError::into_inner);
        let mut n = 0;
        while n < max
            && let Some(packet) = self.held.pop_front()
        {
            let passed = self.passed.get(usize::from(packet.port)).map_or(&[][..], Vec::as_slice);
            let found = look(&mut publisher, &packet, passed, n == 0);
            self.unpublished |= found.changed;
            if found.begins {
                self.held.push_front(packet);
                break;
            }
            if self.unpublished {
                self.unpublished = false;
                // Packets on their way to other workers must not see what comes behind them, and
                // chunks in flight may still read the copy that is to be written.
                if !self.under_way.is_none() || !publisher.try_publish() {
                    self.unpublished = true;
                    self.held.push_front(packet);
                    break;
                }
            }
            // Counted with the packet: one that was put back is looked at again.
            publisher.parts.iter_mut().for_each(|own| own.part.went_on());
            out.push(packet);
            n += 1;
        }
        n
    }

    fn is_finished(&self) -> bool {
        self.held.is_empty() && self.inner.is_finished()
    }

    fn take_error(&mut self) -> Option<String> {
        self.inner.take_error()
    }

    fn release(&mut self, pool: &mut Pool) {
        self.held.drain(..).for_each(|packet| packet.free(pool));
        self.inner.release(pool);
    }

    fn stats(&self) -> QueueStats {
        self.inner.stats()
    }

    fn losses(&self) -> Vec<Arc<Losses>> {
        self.inner.losses()
    }

    fn progress(&self) -> Option<(u64, u64)> {
        self.inner.progress()
    }
}
