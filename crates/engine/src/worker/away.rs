//! Chunks at a master: which ones go, where a shard of state is at home, and how they come back.

use std::sync::atomic::Ordering;

use chunk::Rows;

use super::Worker;
use crate::balance::Side;
use crate::master::MasterLink;
use crate::stage::Versions;

impl<V: Versions> Worker<V> {
    /// The side of the next chunk of a segment. A shard of state has one home; it moves when nothing of
    /// it is away.
    pub(super) fn side(&mut self, segment: usize, master: &MasterLink<V>) -> Side {
        let has_state = self.segments[segment].has_state;
        let wanted = self.balance.choose(&master.cost, has_state);
        if !has_state {
            return wanted;
        }
        let is_stale = master.is_stale[usize::from(self.index)].load(Ordering::Acquire);
        let is_lost = master.is_lost.load(Ordering::Relaxed);
        let home = self.homes[segment];
        if home == Side::Device && (is_stale || is_lost) {
            // What follows is done here, once all that is away has been done again.
            self.drain(segment);
            self.homes[segment] = Side::Cpu;
            self.state_is_there[segment] = false;
            return Side::Cpu;
        }
        if wanted != home && !(wanted == Side::Device && is_lost) {
            self.drain(segment);
            // It brings its state along.
            master.is_stale[usize::from(self.index)].store(false, Ordering::Release);
            self.homes[segment] = wanted;
            self.state_is_there[segment] = false;
            self.counters.shard_moves.add(1);
        }
        self.homes[segment]
    }

    /// Rows in the master's open arena. A chunk of a shard that is at home on the device waits for
    /// them; any other is shaded here where there are none.
    pub(super) fn reserve(
        &mut self,
        segment: usize,
        master: &MasterLink<V>,
        n: usize,
    ) -> Option<Rows> {
        loop {
            if let Some(rows) = master.reserve(n) {
                return Some(rows);
            }
            if !self.segments[segment].has_state {
                return None;
            }
            if master.is_lost.load(Ordering::Relaxed) {
                self.drain(segment);
                self.homes[segment] = Side::Cpu;
                return None;
            }
            self.collect();
            std::thread::yield_now();
        }
    }

    /// Waits until no chunk of a segment is away. Chunks that come back meanwhile retire later; their places in
    /// the master's arenas are given back now, for the master may need one to go on.
    pub(super) fn drain(&mut self, segment: usize) {
        while self.away[segment] > 0 {
            self.collect();
            for flight in &mut self.back {
                if let Some(mut own) = flight.spare.take() {
                    own.copy_from(&mut flight.chunk.rows);
                    flight.chunk.rows = own;
                }
            }
            std::thread::yield_now();
        }
    }

    /// Takes what masters have shaded, to be entered in the order later.
    pub(super) fn collect(&mut self) -> usize {
        let before = self.back.len();
        while let Some(flight) = self.returns.pop() {
            self.away[flight.segment] -= 1;
            self.back.push(flight);
        }
        self.back.len() - before
    }

    /// Chunks that masters have shaded.
    pub(super) fn take_back(&mut self) -> usize {
        self.collect();
        let work = self.back.len();
        for flight in self.back.drain(..) {
            self.order.came_back(flight);
        }
        work
    }
}
