//! The start of a chunk: packets of rings and queues, and the spread over workers.

use std::time::Instant;

use chunk::{CHUNK_PACKETS_MAX, Packet, reasons};

use super::{
    AGAIN_PACKETS, Entry, MARK_FROM_HOST, PASSES_MAX, RING_PACKETS, SpreadHash, Worker,
    look::begin_trace,
};
use crate::columns;
use crate::hooks::CapturePoint;
use crate::in_flight::InFlight;
use crate::merge::Lane;
use crate::ring::{Again, Passed};
use crate::stage::Versions;

impl<V: Versions> Worker<V> {
    /// Fills a chunk from the rings and from all queues and begins it.
    ///
    /// Rings come first, but leave half of the chunk to the queues; so neither starves the other. Each turn begins
    /// with the queue behind the one that filled the last chunk: a queue that is always full delays another one by a
    /// chunk for each queue between them, never more.
    pub(super) fn receive(&mut self, stopping: bool) -> usize {
        self.is_held_up = false;
        if self.links.heirs.has_queues(self.links.index.into()) {
            self.inherit();
        }
        if self.gave_up {
            self.give_queues();
        }
        self.room.begin_turn();
        let room = self.room.packets();
        self.begin_again();
        let mut work = self.take_passed(if stopping { room } else { room.div_ceil(2) });
        if stopping {
            self.pass_waiting();
        } else {
            let received = self.receive_queues();
            // A turn that had room and did not fill it says that nothing waits in the queues.
            self.begun.1 = self.begun.1.max(received as f64 / room as f64);
            work += received;
            work += self.take_passed(room);
        }
        self.note_arrivals();
        if stopping {
            self.begin_chunk();
        } else {
            self.gather();
        }
        work
    }

    /// Takes bursts from the queues until the chunk is full or every queue was asked once.
    fn receive_queues(&mut self) -> usize {
        if self.queues.rx.is_empty() || self.is_to_give() {
            if self.settings.lossless {
                self.pass_waiting();
            }
            return 0;
        }
        if self.settings.lossless
            && (self.pass_waiting()
                || self.queues.tx.iter().any(|side| side.waiting.len() > CHUNK_PACKETS_MAX))
        {
            return 0; // let the transmit queues and the other workers catch up
        }
        if self.links.lane.as_ref().is_some_and(Lane::is_full) {
            self.is_held_up = true;
            return 0;
        }
        // Packets for which there was no free chunk: over captures, tables must not learn from what comes behind them.
        if self.has_several_pipelines() && self.settings.packet_time && !self.inbox.is_empty() {
            return 0;
        }
        let (queues, mut received) = (self.queues.rx.len(), 0);
        let first = self.next_rx;
        for i in (first..queues).chain(0..first) {
            // Chunks in flight bound the work in progress.
            let capacity = self.room.packets().saturating_sub(self.inbox.len());
            if capacity == 0 || self.free.is_empty() || self.has_many_again() {
                break;
            }
            let n = self.receive_queue(i, capacity);
            if n == capacity {
                self.next_rx = (i + 1) % queues;
            }
            received += n;
        }
        received
    }

    /// Takes a burst of at most `capacity` packets from queue `i`.
    fn receive_queue(&mut self, i: usize, capacity: usize) -> usize {
        let waiting = self.inbox.len();
        let slot = &mut self.queues.rx[i];
        let n = slot.queue.recv(&mut self.queues.pool, &mut self.inbox, capacity);
        if n == 0 {
            while let Some(error) = slot.queue.take_error() {
                (self.reports.on_error)(slot.port, &error);
            }
            return 0;
        }
        slot.counters.set(slot.queue.stats());
        if slot.port != chunk::PORT_NONE {
            for packet in &mut self.inbox[waiting..] {
                packet.port = slot.port;
                packet.mark |= slot.mark;
            }
        }
        self.reports.counters.rx_packets.add(n as u64);
        if self.has_several_pipelines() {
            self.note_entries(i, waiting);
        }
        // What a twin sent is seen where it leaves.
        if self.reports.hooks.capturing() && self.queues.rx[i].mark & MARK_FROM_HOST == 0 {
            let now = self.now_ns;
            for packet in &self.inbox[waiting..] {
                let point = CapturePoint::Port(packet.port);
                self.reports.hooks.offer(point, packet, now, packet.port, false, None);
            }
        }
        let has_peers = self.path.pipelines.iter().any(|own| own.peers.len() > 1);
        if let (Some(hash), true) = (self.queues.rx[i].spread.clone(), has_peers) {
            self.spread(&hash, waiting);
        } else if let Some(lane) = &mut self.links.lane {
            lane.note_own(n);
            lane.schedule();
        }
        n
    }

    /// Tells the balance what the turn brought. A turn that had no chunk to begin says nothing.
    pub(super) fn weigh(&mut self) {
        let (packets, fullest) = std::mem::take(&mut self.begun);
        if self.links.master.is_some() && (packets > 0 || !self.free.is_empty()) {
            for balance in &mut self.balances {
                balance.auto.turn_ended(packets, fullest, self.clock_ns);
            }
        }
    }

    /// Whether chunks wait to fill: a device does many rows cheaply. Where the worker shades, a burst leaves
    /// at once.
    fn gathers(&self) -> bool {
        let Some(master) =
            self.links.master.as_ref().filter(|_| !self.settings.max_delay.is_zero())
        else {
            return false;
        };
        self.shared_segments()
            .any(|segment| master.shades(segment) && self.balances[segment].is_on_device())
    }

    /// The segments that a device can shade.
    pub(super) fn shared_segments(&self) -> impl Iterator<Item = usize> {
        let all = self.path.pipelines.iter().flat_map(|own| own.segments.clone());
        all.filter(|&segment| self.path.segments[segment].on_device)
    }

    fn has_several_pipelines(&self) -> bool {
        self.path.pipelines.len() > 1
    }

    /// Notes which pipelines the packets of queue `i` enter, from place `first` of the inbox on.
    fn note_entries(&mut self, i: usize, first: usize) {
        let place = |number: usize| self.owned.pipelines.get(number).copied().unwrap_or(0);
        match &self.queues.rx[i].entry {
            Entry::Pipeline(number) => self.entries.resize(self.inbox.len(), place(*number)),
            Entry::ByPort(by_port) => {
                let of = |port: u16| {
                    let number = by_port.get(usize::from(port)).or(by_port.last());
                    place(number.copied().unwrap_or(0))
                };
                self.entries.extend(self.inbox[first..].iter().map(|packet| of(packet.port)));
            }
        }
    }

    /// Remembers when the packets were received that the turn brought.
    fn note_arrivals(&mut self) {
        let new = self.inbox.len().saturating_sub(self.noted);
        if new > 0 && !self.settings.max_delay.is_zero() {
            self.arrivals.push((Instant::now(), new as u32));
            self.noted += new;
        }
    }

    /// Begins a chunk of the inbox when it is full or may wait no longer.
    fn gather(&mut self) {
        if self.gave_up || self.inbox.len() >= self.room.packets() || !self.gathers() {
            return self.begin_chunk();
        }
        if self.inbox.is_empty() {
            return;
        }
        let now = Instant::now();
        // What the chunk still has before it counts as delay too.
        let wait = self.settings.max_delay.saturating_sub(self.service);
        if now >= *self.leaves.get_or_insert(now + wait) {
            self.begin_chunk();
        }
    }

    /// Leaves in the inbox, of the packets from place `first` on, what this worker keeps, and passes on
    /// the rest.
    fn spread(&mut self, hash: &SpreadHash, first: usize) {
        let mut inbox = std::mem::take(&mut self.inbox);
        if self.has_several_pipelines() {
            let mut entries = std::mem::take(&mut self.entries);
            let packets = inbox.drain(first..).zip(entries.drain(first..));
            self.spread_packets::<true>(hash, packets);
            self.entries = entries;
            self.entries.append(&mut self.passed_entries);
        } else {
            self.spread_packets::<false>(hash, inbox.drain(first..).map(|packet| (packet, 0)));
        }
        self.inbox = inbox;
        self.inbox.append(&mut self.passed);
        if let Some(lane) = &mut self.links.lane {
            lane.schedule();
        }
    }

    /// Passes packets on by their hash, each in the pipeline beside it, or keeps them in `passed`. `SEVERAL`: the worker
    /// has several pipelines.
    fn spread_packets<const SEVERAL: bool>(
        &mut self,
        hash: &SpreadHash,
        packets: impl Iterator<Item = (Packet, u16)>,
    ) {
        for (packet, entry) in packets {
            let own = usize::from(entry);
            let target = self.peer_of(own, hash.of(packet.data()));
            if let Some(lane) = &mut self.links.lane {
                lane.note(target);
            }
            if target == usize::from(self.links.index) {
                self.passed.push(packet);
                if SEVERAL {
                    self.passed_entries.push(entry);
                }
            } else {
                let number = self.path.pipelines[own].number;
                self.pass(target, Passed::Received(packet, number));
            }
        }
    }

    /// The worker of this one's pipeline at place `own` that packets of a flow hash belong to.
    pub(super) fn peer_of(&self, own: usize, hash: u32) -> usize {
        let all = &self.path.pipelines[own].peers;
        let peers = all.len() as u64;
        let place = ((u64::from(hash) * peers) >> 32) as usize;
        self.links.heirs.of(all.get(place).copied().unwrap_or(self.links.index.into()))
    }

    /// Puts `passed` in the ring to worker `target`. A full ring drops it, counted; where nothing may be lost, it waits,
    /// and this worker receives nothing until it has left.
    pub(super) fn pass(&mut self, target: usize, passed: Passed) {
        let may_pass = self.links.quiet.leave();
        let Some(Some((ring, wakeup))) = self.links.rings_out.get_mut(target) else {
            return self.drop_packet(passed.into_packet(), reasons::TX_NO_PORT);
        };
        if !may_pass || ring.is_abandoned() {
            return self.drop_packet(passed.into_packet(), reasons::RING_FULL); // nobody takes it any more
        }
        if !self.ring_waiting[target].is_empty() {
            return self.ring_waiting[target].push_back(passed);
        }
        match ring.push(passed) {
            Ok(()) => self.to_wake[target] = true,
            Err(rtrb::PushError::Full(passed)) => {
                // Woken at once: the other one may sleep on a full ring.
                wakeup.wake();
                if self.settings.lossless && !ring.is_abandoned() {
                    self.ring_waiting[target].push_back(passed);
                } else {
                    self.drop_packet(passed.into_packet(), reasons::RING_FULL);
                }
            }
        }
    }

    /// Sends what waits for rings. Whether anything still waits.
    fn pass_waiting(&mut self) -> bool {
        let mut waits = false;
        for target in 0..self.ring_waiting.len() {
            let Some(Some((ring, _))) = self.links.rings_out.get_mut(target) else { continue };
            while !ring.is_full()
                && let Some(passed) = self.ring_waiting[target].pop_front()
            {
                // Not full: nobody else fills it.
                if let Err(rtrb::PushError::Full(passed)) = ring.push(passed) {
                    self.ring_waiting[target].push_front(passed);
                }
                self.to_wake[target] = true;
            }
            if ring.is_abandoned() {
                let lost = std::mem::take(&mut self.ring_waiting[target]);
                for passed in lost {
                    self.drop_packet(passed.into_packet(), reasons::RING_FULL);
                }
            }
            waits |= !self.ring_waiting[target].is_empty();
        }
        waits
    }

    /// Takes what other workers have passed on, until the inbox holds `limit` packets.
    fn take_passed(&mut self, limit: usize) -> usize {
        let mut work = 0;
        let rings = self.links.rings_in.len();
        let first = self.next_ring;
        for i in (first..rings).chain(0..first) {
            for _ in 0..RING_PACKETS {
                // A received packet needs a chunk; without one it stays in the ring.
                let is_full =
                    self.inbox.len() >= limit || self.free.is_empty() || self.has_many_again();
                match self.links.rings_in[i].peek() {
                    // What arrives after this look was not looked at.
                    Err(_) => break,
                    Ok(Passed::Received(..)) if is_full => break,
                    Ok(Passed::Again(_)) if self.again_count >= AGAIN_PACKETS => break,
                    Ok(_) => {}
                }
                // Before the ring is seen to be empty by its producer; a packet may have come since an earlier look.
                self.links.quiet.leave();
                let Ok(passed) = self.links.rings_in[i].pop() else { break };
                work += 1;
                let had_capacity = self.inbox.len() < limit && self.again_count < AGAIN_PACKETS;
                match passed {
                    Passed::Received(packet, number) => {
                        if self.has_several_pipelines() {
                            self.entries.push(self.owned.pipelines[usize::from(number)]);
                        }
                        self.inbox.push(packet);
                    }
                    Passed::Transmit(packet, port) => self.queue_tx(packet, port),
                    Passed::Host(packet, port) => self.queue_host(packet, port),
                    Passed::Again(again) => self.queue_again(again),
                }
                // The ring that took the last room comes last the next time.
                if had_capacity && (self.inbox.len() >= limit || self.again_count >= AGAIN_PACKETS)
                {
                    self.next_ring = (i + 1) % rings;
                }
            }
        }
        work
    }

    /// Makes a chunk of the inbox, the youngest one of this worker.
    fn begin_chunk(&mut self) {
        if self.gave_up {
            return self.relay();
        }
        if self.inbox.is_empty() {
            return;
        }
        if self.has_several_pipelines() {
            return self.begin_chunks();
        }
        // Without a free chunk the packets wait for one.
        let Some(mut flight) = self.free.pop() else { return };
        let is_measured = self.leave_inbox();
        std::mem::swap(&mut flight.received, &mut self.arrivals);
        self.noted = 0;
        std::mem::swap(&mut flight.chunk.packets, &mut self.inbox);
        self.begin_received(flight, 0, is_measured);
    }

    /// What is in the inbox begins. Whether it is measured how long that takes.
    fn leave_inbox(&mut self) -> bool {
        self.begun.0 += self.inbox.len();
        self.begun.1 = self.begun.1.max(self.inbox.len() as f64 / self.room.packets() as f64);
        self.leaves.take().is_some() || !self.settings.max_delay.is_zero()
    }

    /// The same where there are several pipelines: a chunk for each that packets of the inbox enter. Those for which
    /// there is no free chunk stay.
    ///
    /// Where the order of all packets counts, over captures, a chunk ends where the next packet enters another pipeline:
    /// chunks retire in the order in which they begin, and so do their packets.
    fn begin_chunks(&mut self) {
        if self.free.is_empty() {
            return;
        }
        let is_in_order = self.settings.packet_time || self.links.lane.is_some();
        let is_measured = self.leave_inbox();
        let mut inbox = std::mem::take(&mut self.inbox);
        let mut entries = std::mem::take(&mut self.entries);
        let mut arrivals = std::mem::take(&mut self.arrivals);
        let mut arrival = Arrivals { of: &arrivals, at: 0, used: 0 };
        let (mut last, mut is_stuck) = (None, false);
        self.noted = 0;
        for (packet, entry) in inbox.drain(..).zip(entries.drain(..)) {
            let arrived = arrival.next();
            let own = usize::from(entry);
            if let Some(before) = last.replace(own).filter(|&before| is_in_order && before != own) {
                self.begin_filled(before, is_measured);
            }
            let may_fill = !(is_in_order && is_stuck);
            if may_fill && self.filling[own].is_none() {
                self.filling[own] = self.free.pop();
            }
            if let Some(flight) = self.filling[own].as_mut().filter(|_| may_fill) {
                flight.chunk.packets.push(packet);
                note(&mut flight.received, arrived);
            } else {
                is_stuck = true;
                self.passed.push(packet);
                self.passed_entries.push(entry);
                self.noted += usize::from(arrived.is_some());
                note(&mut self.arrivals, arrived);
            }
        }
        for own in 0..self.path.pipelines.len() {
            self.begin_filled(own, is_measured);
        }
        // Lists keep their memory; what stays goes back to the inbox.
        arrivals.clear();
        arrivals.append(&mut self.arrivals);
        inbox.append(&mut self.passed);
        entries.append(&mut self.passed_entries);
        (self.inbox, self.entries, self.arrivals) = (inbox, entries, arrivals);
    }

    /// Begins the chunk that was filled for a pipeline, if there is one.
    fn begin_filled(&mut self, own: usize, is_measured: bool) {
        if let Some(flight) = self.filling[own].take() {
            self.begin_received(flight, own, is_measured);
        }
    }

    /// Begins a chunk of received packets.
    fn begin_received(&mut self, mut flight: Box<InFlight<V>>, own: usize, is_measured: bool) {
        if is_measured {
            flight.begun = Some(Instant::now());
        }
        if self.reports.hooks.tracing() {
            begin_trace(&self.reports.hooks, &mut flight);
        }
        self.reports.counters.chunks.add(1);
        flight.pipeline = own;
        self.begin(flight, self.path.pipelines[own].segments.start);
    }

    /// Makes a chunk of packets for each place at which some enter the pipeline.
    fn begin_again(&mut self) {
        if self.again_count == 0 {
            return;
        }
        if self.gave_up {
            return self.relay();
        }
        for segment in 0..self.again.len() {
            if self.again[segment].is_empty() {
                continue;
            }
            let Some(own) = self.owned.of_segment(segment) else { continue };
            let Some(mut flight) = self.free.pop() else { return };
            let n = self.again[segment].len().min(self.settings.chunk_packets);
            for again in self.again[segment].drain(..n) {
                flight.passes.push(again.passes);
                flight.chunk.packets.push(again.packet);
            }
            self.again_count -= n;
            self.reports.counters.again.add(n as u64);
            flight.pipeline = own;
            self.begin(flight, segment);
        }
    }

    /// Whether so many packets wait to enter the pipeline again that no others are received meanwhile.
    fn has_many_again(&self) -> bool {
        self.again_count >= AGAIN_PACKETS / 2
    }

    /// Starts a chunk in front of a segment.
    fn begin(&mut self, mut flight: Box<InFlight<V>>, segment: usize) {
        let chunk = &mut flight.chunk;
        if self.settings.packet_time {
            // The capture's time never runs back here, whatever the file says.
            let newest = chunk.packets.last().map_or(0, |packet| packet.time_ns);
            self.now_ns = self.now_ns.max(newest);
        }
        chunk.time_ns = self.now_ns;
        chunk.seq = self.next_seq;
        self.next_seq += 1;
        flight.count = chunk.packets.len();
        chunk.rows.set_len(flight.count);
        columns::begin(&mut chunk.rows, &self.path.zeroed);
        chunk.attached.clear();
        flight.segment = segment;
        flight.wanted = None;
        flight.is_spoilt = false;
        flight.pin = Some(self.path.versions.pin());
        self.order.push(flight);
    }

    /// Lets a packet enter the pipeline at a place. One that did so too often is dropped, and one that finds too many
    /// waiting, where packets may be lost.
    pub(super) fn queue_again(&mut self, again: Again) {
        let segment = usize::from(again.place);
        if again.passes > PASSES_MAX {
            self.drop_packet(again.packet, reasons::AGAIN_TOO_OFTEN);
        } else if self.again_count >= AGAIN_PACKETS && !self.settings.lossless {
            self.drop_packet(again.packet, reasons::AGAIN_FULL);
        } else if self.owned.of_segment(segment).is_some() {
            self.again[segment].push_back(again);
            self.again_count += 1;
        } else {
            self.drop_packet(again.packet, reasons::UNKNOWN);
        }
    }
}

/// When the packets of the inbox were received, one after the other.
struct Arrivals<'a> {
    /// Times, and how many packets each time.
    of: &'a [(Instant, u32)],
    at: usize,
    used: u32,
}

impl Arrivals<'_> {
    /// That of the next packet, where it was noted.
    fn next(&mut self) -> Option<Instant> {
        while let Some((arrived, packets)) = self.of.get(self.at) {
            if self.used < *packets {
                self.used += 1;
                return Some(*arrived);
            }
            (self.at, self.used) = (self.at + 1, 0);
        }
        None
    }
}

/// One more packet that was received then.
fn note(received: &mut Vec<(Instant, u32)>, arrived: Option<Instant>) {
    let Some(arrived) = arrived else { return };
    match received.last_mut() {
        Some((last, packets)) if *last == arrived => *packets += 1,
        _ => received.push((arrived, 1)),
    }
}
