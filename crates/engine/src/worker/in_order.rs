//! A worker before a merger: what it makes goes to its lane.

use chunk::{Emitted, Packet, Verdict, reasons};

use super::Worker;
use crate::in_flight::InFlight;
use crate::merge::MARK_DEFERRED;
use crate::stage::Versions;

impl<V: Versions> Worker<V> {
    /// Puts every packet of a chunk on the lane, with what stages made of it behind it. `emitted` is
    /// in order of causes.
    pub(super) fn put_on_lane(
        &mut self,
        flight: &mut InFlight<V>,
        packets: &mut Vec<Packet>,
        emitted: &mut Vec<Emitted>,
    ) {
        // Packets that go through again have retired before, and so have those of a chunk that a panic ended.
        let is_first = flight.passes.is_empty() && !flight.is_spoilt;
        let mut received = if is_first { flight.count } else { 0 };
        let last = packets.len().saturating_sub(1);
        let mut made = emitted.drain(..).peekable();
        for (row, (packet, verdict)) in
            packets.drain(..).zip(flight.chunk.rows.verdicts()).enumerate()
        {
            self.passes_now = flight.passes.get(row).copied().unwrap_or(0);
            self.dispose(packet, Verdict(*verdict));
            while let Some(e) = made.next_if(|e| usize::from(e.cause) <= row || row == last) {
                if e.packet.mark & MARK_DEFERRED == 0 {
                    self.dispose(e.packet, e.verdict);
                } else if let Some(lane) = &mut self.links.lane {
                    lane.put(e.packet, e.verdict);
                }
            }
            if received > 0 {
                received -= 1;
                self.retired_on_lane(1);
            }
        }
        drop(made);
        self.retired_on_lane(received);
        self.hand_in();
    }

    /// What is on the lane belongs to a packet that retires now, and so with the next ones, `n` in all.
    pub(super) fn retired_on_lane(&mut self, n: usize) {
        if let Some(lane) = &mut self.links.lane {
            (0..n).for_each(|_| lane.retired());
        }
    }

    /// Drops the inbox of a worker that runs no stage any more. Its heir would retire these packets
    /// without knowing their place in the order; those that come later go straight to it.
    #[cold]
    pub(super) fn drop_inbox_on_lane(&mut self) {
        let mut inbox = std::mem::take(&mut self.inbox);
        for packet in inbox.drain(..) {
            self.drop_packet(packet, reasons::STAGE_PANIC);
            self.retired_on_lane(1);
        }
        self.inbox = inbox;
        self.entries.clear();
        self.hand_in();
    }

    /// Gives the merger what waits on the lane.
    pub(super) fn hand_in(&mut self) {
        if let Some(lane) = &mut self.links.lane {
            lane.free_if_dead(&mut self.queues.pool);
            lane.hand_in();
        }
    }
}
