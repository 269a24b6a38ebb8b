//! A switch over captures: who is behind which port is learned frame by frame.
//!
//! Live, a station is known a moment after its first frame. Over a capture that moment must not depend on how
//! frames fall into chunks or on how long a device takes, so the receive queue itself learns: a frame that tells
//! of a new station, or of one that moved or is forgotten by now, begins a burst, before which the tables that
//! know it are published. A burst is a chunk, and a chunk sees one version. So the answer is that of a switch
//! that takes one frame after the other. A frame that the firewall stops tells nothing, as live.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use apps::switch::ingress::source_of;
use chunk::{Packet, Pool};
use control::api::SwitchTotals;
use engine::UnderWay;
use io::{Losses, QueueStats, RxQueue};
use lookup::bridge::{Learned, StationEvent};

use crate::plane::Plane;

/// A receive queue that stamps its packets' ports, and the tables that learn from it.
pub(crate) struct Learner<Q> {
    inner: Q,
    plane: Plane,
    /// Packets that workers have not looked up yet.
    under_way: UnderWay,
    /// Received, and not handed out yet.
    held: VecDeque<Packet>,
    batch: Vec<Packet>,
    now_s: u32,
    /// Something was learned that no version has yet.
    unpublished: bool,
    /// The packet that was looked at last is of a station that there was no room for.
    is_refused: bool,
    /// Packets of such stations.
    refused: u64,
    /// What the tables know, for the report: the engine has this queue then.
    totals: Arc<Mutex<SwitchTotals>>,
}

impl<Q: RxQueue> Learner<Q> {
    pub(crate) fn new(inner: Q, plane: Plane, under_way: UnderWay) -> Self {
        let (held, batch) = (VecDeque::new(), Vec::new());
        let totals = Arc::default();
        Self {
            inner,
            plane,
            under_way,
            held,
            batch,
            now_s: 0,
            unpublished: true,
            is_refused: false,
            refused: 0,
            totals,
        }
    }

    /// What is known and was learned, to be read at the end.
    pub(crate) fn totals(&self) -> Arc<Mutex<SwitchTotals>> {
        self.totals.clone()
    }

    fn tell(&self) {
        let Some(bridge) = &self.plane.bridge else { return };
        let totals = SwitchTotals { refused: self.refused, ..bridge.totals() };
        *self.totals.lock().unwrap_or_else(PoisonError::into_inner) = totals;
    }

    /// Whether `packet` may stand in one burst with those before it; if not, and if it is the `first`, learns
    /// what it tells.
    fn fits(&mut self, packet: &Packet, first: bool) -> bool {
        self.is_refused = false;
        let Some(bridge) = &mut self.plane.bridge else { return true };
        let now_s = (packet.time_ns / 1_000_000_000) as u32;
        if now_s != self.now_s {
            if !first {
                return false;
            }
            self.now_s = now_s;
            self.unpublished |= bridge.age_some(now_s, usize::MAX) > 0;
        }
        let tables = self.plane.writer.current();
        let source = source_of(packet.data(), packet.port, tables.part(self.plane.parts.switch));
        let source = source.filter(|_| {
            apps::firewall::stage::passes(packet, tables.part(self.plane.parts.firewall))
        });
        let Some((vlan, mac)) = source else { return true };
        let event = StationEvent { vlan, mac, port: packet.port };
        let known = bridge.known(vlan, mac);
        let tells = if known.is_known() {
            known.port() != packet.port && !known.is_static()
        } else {
            !bridge.macs.is_full()
        };
        if tells && !first {
            return false;
        }
        self.is_refused = bridge.learn(event, now_s) == Learned::Refused;
        self.unpublished |= tells;
        true
    }
}

impl<Q: RxQueue> RxQueue for Learner<Q> {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        if self.held.is_empty() {
            self.inner.recv(pool, &mut self.batch, max);
            self.held.extend(self.batch.drain(..));
        }
        let mut n = 0;
        while n < max
            && let Some(packet) = self.held.pop_front()
        {
            if !self.fits(&packet, n == 0) {
                self.held.push_front(packet);
                break;
            }
            if self.unpublished {
                self.unpublished = false;
                // Packets on their way to other workers must not see what comes behind them, and
                // chunks in flight may still read the copy that is to be written.
                if !self.under_way.is_none() || !self.plane.try_publish() {
                    self.unpublished = true;
                    self.held.push_front(packet);
                    break;
                }
            }
            // Counted with the packet: one that was put back is looked at again.
            self.refused += u64::from(self.is_refused);
            out.push(packet);
            n += 1;
        }
        self.tell();
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
