//! Traces and captures of a worker's chunks; see [`crate::hooks`].

use std::panic::{AssertUnwindSafe, catch_unwind};

use chunk::Verdict;

use super::Worker;
use crate::hooks::{CapturePoint, Hooks, TraceEvent};
use crate::in_flight::{InFlight, Traced};
use crate::stage::Versions;

impl<V: Versions> Worker<V> {
    pub(super) fn capture_stage(&mut self, stage: usize, flight: &mut InFlight<V>) {
        let chunk = &mut flight.chunk;
        for row in 0..chunk.packets.len() {
            if Verdict(chunk.rows.verdicts()[row]).is_next() {
                let packet = &chunk.packets[row];
                let point = CapturePoint::Stage(stage);
                self.reports.hooks.offer(point, packet, self.now_ns, packet.port, false, None);
            }
        }
    }

    pub(super) fn trace_stage(&mut self, i: usize, flight: &mut InFlight<V>) {
        let Some(pin) = &flight.pin else { return };
        for t in &mut flight.traced {
            let verdict = Verdict(flight.chunk.rows.verdicts()[t.row]);
            let stage = &mut self.path.stages[usize::from(self.owned.stages[i])];
            let describe = || stage.describe(&mut flight.chunk, t.row, pin);
            // What a stage cannot describe is no reason to stop.
            let detail = catch_unwind(AssertUnwindSafe(describe)).unwrap_or_default();
            t.events.push(TraceEvent::Stage { name: stage.name(), detail, verdict });
        }
    }
}

pub(super) fn begin_trace<V: Versions>(hooks: &Hooks, flight: &mut InFlight<V>) {
    for (row, packet) in flight.chunk.packets.iter().enumerate() {
        if let Some(trace) = hooks.wants_trace(packet) {
            let (port, frame_len) = (packet.port, packet.frame_len());
            let received = TraceEvent::Received { port, frame_len, offload: packet.offload };
            flight.traced.push(Traced { row, trace, events: vec![received] });
        }
    }
}

pub(super) fn end_trace<V: Versions>(flight: &mut InFlight<V>) {
    for mut traced in flight.traced.drain(..) {
        let made = flight.chunk.emitted.iter().filter(|e| usize::from(e.cause) == traced.row);
        for e in made {
            let (frame_len, verdict) = (e.packet.frame_len(), e.verdict);
            traced.events.push(TraceEvent::Emitted { frame_len, verdict });
        }
        let verdict = Verdict(flight.chunk.rows.verdicts()[traced.row]);
        traced.events.push(TraceEvent::End { verdict });
        // A reader that is gone or slow loses the report; packets are not held up.
        let _ = traced.trace.sender.try_send(traced.events);
    }
}
