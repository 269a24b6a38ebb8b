//! The end of a chunk: every packet goes where its verdict says, and what waits is sent.

use chunk::{DropReason, Packet, Verdict, VerdictKind, reasons};
use io::offload::finish;

use super::overtake::keep;
use super::{TxSide, TxSlot, Worker, look::end_trace};
use crate::hooks::CapturePoint;
use crate::in_flight::InFlight;
use crate::merge::MARK_DEFERRED;
use crate::ring::{Again, Passed};
use crate::stage::Versions;

impl<V: Versions> Worker<V> {
    /// Sends every packet of a chunk where its verdict says. The chunk comes back if a stage has divided it: the rest of its
    /// packets goes on.
    pub(super) fn retire(&mut self, mut flight: Box<InFlight<V>>) -> Option<Box<InFlight<V>>> {
        if !flight.traced.is_empty() {
            end_trace(&mut flight);
        }
        if flight.is_spoilt {
            self.send_apart(&mut flight);
            self.drop_chunk(&mut flight);
        }
        if !self.see_retired[flight.pipeline].is_empty() {
            self.tell_retired(&mut flight);
        }
        let is_apart = flight.rest.apart.is_on();
        for (packet, reason) in flight.dropped.drain(..) {
            match is_apart {
                true => flight.rest.apart.keep_dropped(packet, reason),
                false => self.drop_packet(packet, reason),
            }
        }
        let mut packets = std::mem::take(&mut flight.chunk.packets);
        let mut emitted = std::mem::take(&mut flight.chunk.emitted);
        let deferred = match self.links.lane {
            Some(_) => emitted.iter().filter(|e| e.packet.mark & MARK_DEFERRED != 0).count(),
            None => 0,
        };
        self.reports.counters.emitted.add((emitted.len() - deferred) as u64);
        if !emitted.is_sorted_by_key(|e| e.cause) {
            emitted.sort_by_key(|e| e.cause); // stable: stages' order within a cause
        }
        if is_apart {
            keep(&mut flight, &mut packets, &mut emitted);
        } else if self.links.lane.is_some() {
            self.put_on_lane(&mut flight, &mut packets, &mut emitted);
        } else {
            let verdicts = flight.chunk.rows.verdicts();
            let has_made = !emitted.is_empty();
            let mut made = emitted.drain(..).peekable();
            for (row, (packet, verdict)) in packets.drain(..).zip(verdicts).enumerate() {
                self.passes_now = flight.passes.get(row).copied().unwrap_or(0);
                self.dispose(packet, Verdict(*verdict));
                while has_made && let Some(e) = made.next_if(|e| usize::from(e.cause) <= row) {
                    self.dispose(e.packet, e.verdict);
                }
            }
            for e in made {
                self.dispose(e.packet, e.verdict);
            }
        }
        self.passes_now = 0;
        flight.passes.clear();
        flight.chunk.packets = packets;
        flight.chunk.emitted = emitted;
        if flight.rest.at.is_some() {
            self.go_on_with_rest(&mut flight);
            return Some(flight);
        }
        self.end_apart(&mut flight);
        flight.pin = None;
        self.retired.append(&mut flight.received);
        if let Some(begun) = flight.begun.take() {
            // Half the bound at most: a slow while must not end all waiting.
            let service = begun.elapsed().min(self.settings.max_delay / 2);
            self.service = self.service * 7 / 8 + service / 8;
        }
        if let Some(rows) = flight.spare.take() {
            flight.chunk.rows = rows; // the range in the arena is given back here
        }
        self.free.push(flight);
        self.timed = std::time::Instant::now();
        None
    }

    /// Sends a packet where its verdict says. Almost all are forwarded: that way is inlined.
    #[inline(always)]
    pub(super) fn dispose(&mut self, packet: Packet, verdict: Verdict) {
        if verdict.kind() == VerdictKind::Forward {
            self.queue_tx(packet, verdict.port());
        } else {
            self.dispose_here(packet, verdict);
        }
    }

    #[inline(never)]
    pub(super) fn dispose_here(&mut self, packet: Packet, verdict: Verdict) {
        match verdict.kind() {
            VerdictKind::Forward => self.queue_tx(packet, verdict.port()),
            VerdictKind::Drop => self.drop_packet(packet, verdict.reason()),
            VerdictKind::Host => self.send_to_host(packet, verdict.port()),
            VerdictKind::Next => self.drop_packet(packet, reasons::NO_VERDICT),
            VerdictKind::Dump => self.dump(packet),
            VerdictKind::Again => {
                let (place, passes) = (verdict.port(), self.passes_now + 1);
                self.queue_again(Again { packet, place, passes });
            }
            VerdictKind::Taken => {
                debug_assert!(packet.is_empty(), "a taken packet left its cells behind");
                packet.free(&mut self.queues.pool);
            }
        }
    }

    #[inline(always)]
    pub(super) fn queue_tx(&mut self, packet: Packet, port: u16) {
        if self.reports.hooks.capturing() {
            let point = CapturePoint::Port(port);
            self.reports.hooks.offer(point, &packet, self.now_ns, port, true, None);
        }
        match self.queues.tx.get_mut(usize::from(port)) {
            Some(TxSide { slot: TxSlot::Own(..), waiting }) => waiting.push(packet),
            _ => self.queue_tx_elsewhere(packet, port),
        }
    }

    /// For a port whose queue is another worker's, or that does not exist.
    #[inline(never)]
    pub(super) fn queue_tx_elsewhere(&mut self, packet: Packet, port: u16) {
        if let Some(lane) = &mut self.links.lane
            && lane.has_queue(port, false)
        {
            return lane.put(packet, Verdict::forward(port));
        }
        match self.queues.tx.get(usize::from(port)) {
            Some(TxSide { slot: TxSlot::Worker(w), .. }) => {
                self.pass(*w, Passed::Transmit(packet, port));
            }
            Some(TxSide { slot: TxSlot::Closed, .. }) => {
                self.drop_packet(packet, reasons::TX_PORT_DOWN);
            }
            _ => self.drop_packet(packet, reasons::TX_NO_PORT),
        }
    }

    /// For the twin of an interface, if the gate lets it pass: here, before it takes room in another worker's ring.
    fn send_to_host(&mut self, packet: Packet, port: u16) {
        match self.reports.host_gate.as_ref().map_or(Ok(()), |gate| gate.admit(&packet, port)) {
            Ok(()) => self.queue_host(packet, port),
            Err(reason) => self.drop_packet(packet, reason),
        }
    }

    /// Whether an interface has a twin.
    pub(super) fn has_host(&self, port: u16) -> bool {
        let is_on_lane = self.links.lane.as_ref().is_some_and(|lane| lane.has_queue(port, true));
        let own = self.queues.host.get(usize::from(port)).map(|side| &side.slot);
        is_on_lane || matches!(own, Some(TxSlot::Own(..) | TxSlot::Worker(_)))
    }

    pub(super) fn queue_host(&mut self, packet: Packet, port: u16) {
        if let Some(lane) = &mut self.links.lane
            && lane.has_queue(port, true)
        {
            return lane.put(packet, Verdict::host(port));
        }
        match self.queues.host.get_mut(usize::from(port)) {
            Some(TxSide { slot: TxSlot::Own(..), waiting }) => waiting.push(packet),
            Some(TxSide { slot: TxSlot::Worker(w), .. }) => {
                let target = *w;
                self.pass(target, Passed::Host(packet, port));
            }
            _ => self.drop_packet(packet, reasons::HOST_ABSENT),
        }
    }

    /// Gives a packet to the capture sink and nowhere else.
    fn dump(&mut self, packet: Packet) {
        self.reports.counters.dumped.add(1);
        if self.reports.hooks.capturing() {
            let point = CapturePoint::Dumps;
            self.reports.hooks.offer(point, &packet, self.now_ns, packet.port, false, None);
        }
        if let Some(lane) = &mut self.links.lane {
            return lane.put(packet, Verdict::DUMP);
        }
        if let Some(sink) = &mut self.reports.on_dump {
            sink(&packet, self.now_ns);
        }
        packet.free(&mut self.queues.pool);
    }

    #[inline]
    pub(super) fn drop_packet(&mut self, packet: Packet, reason: DropReason) {
        self.reports.counters.count_drop(reason);
        if self.reports.hooks.capturing() {
            self.reports.hooks.offer(
                CapturePoint::Drops,
                &packet,
                self.now_ns,
                packet.port,
                false,
                Some(reason),
            );
        }
        if let Some(lane) = &mut self.links.lane {
            return lane.put(packet, Verdict::drop(reason));
        }
        if let Some(sink) = &mut self.reports.on_drop {
            sink(&packet, reason, self.now_ns);
        }
        packet.free(&mut self.queues.pool);
    }

    /// Sends what waits, and drops what the queues have no room for.
    pub(super) fn flush(&mut self) {
        let lossless = self.settings.lossless;
        self.hand_in(); // what stages parted with beside their chunks
        for host in [false, true] {
            for i in 0..if host { self.queues.host.len() } else { self.queues.tx.len() } {
                let side = if host { &mut self.queues.host[i] } else { &mut self.queues.tx[i] };
                let TxSlot::Own(queue, counters) = &mut side.slot else { continue };
                if side.waiting.is_empty() && queue.is_drained() {
                    continue;
                }
                let mut lost = Vec::new();
                if side.waiting.iter().any(|packet| !packet.offload.is_none()) {
                    let carries = |packet: &Packet| queue.carries(packet);
                    let pool = &mut self.queues.pool;
                    finish(pool, &mut side.waiting, carries, |packet, why| {
                        lost.push((packet, why))
                    });
                }
                let n = side.waiting.len();
                if n > 0 {
                    queue.send(&mut self.queues.pool, &mut side.waiting);
                }
                queue.flush(&mut self.queues.pool);
                if !side.waiting.is_empty() && !lossless {
                    // Room may have come by flushing; after that the packets are lost.
                    queue.send(&mut self.queues.pool, &mut side.waiting);
                    queue.flush(&mut self.queues.pool);
                }
                self.reports.counters.tx_packets.add((n - side.waiting.len()) as u64);
                counters.set(queue.stats());
                if let Some(error) = queue.take_error() {
                    (self.reports.on_error)(i as u16, &error);
                }
                if !side.waiting.is_empty() && !lossless {
                    let mut lost = std::mem::take(&mut side.waiting);
                    for packet in lost.drain(..) {
                        self.drop_packet(packet, reasons::TX_FULL);
                    }
                    let side = if host { &mut self.queues.host[i] } else { &mut self.queues.tx[i] };
                    side.waiting = lost;
                }
                for (packet, reason) in lost {
                    self.drop_packet(packet, reason);
                }
            }
        }
        self.count_late();
        for target in 0..self.to_wake.len() {
            if std::mem::take(&mut self.to_wake[target])
                && let Some(Some((_, wakeup))) = self.links.rings_out.get(target)
            {
                wakeup.wake();
            }
        }
    }

    /// Counts the packets of this turn that were under way for too long. Only now have they left: a turn may retire many
    /// chunks, and the first of them waits for the last.
    fn count_late(&mut self) {
        if self.retired.is_empty() {
            return;
        }
        let now = std::time::Instant::now();
        for (received, packets) in self.retired.drain(..) {
            if now.duration_since(received) > self.settings.max_delay {
                self.reports.counters.late.add(packets.into());
            }
        }
    }
}
