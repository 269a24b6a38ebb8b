//! Looking on: traces and captures of a running engine.
//!
//! Both cost one relaxed load a chunk while nobody looks. The engine knows no protocol: which packets
//! are meant is a function given by the caller.
//!
//! Threads: whoever looks takes a lock to begin and to end; workers take none. They read the lists of
//! what runs through [`ArcSwap`], which costs a thread one allocation, the first time it does so.

mod capture;
mod trace;

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use chunk::{DropReason, Packet};

use capture::{About, Running};
pub use capture::{Capture, CaptureReader, CapturedFrame};
pub use trace::{TraceEvent, frame_text};

/// Says whether a packet is meant. It sees packets as they pass the pipeline: one of many segments before it is cut.
pub type FrameFilter = Arc<dyn Fn(&Packet) -> bool + Send + Sync>;

/// Where a capture stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturePoint {
    /// A port, both ways.
    Port(u16),
    /// The packets that leave stage number `n` of the pipeline for the next one.
    Stage(usize),
    /// Dropped packets.
    Drops,
    /// Packets with the verdict dump.
    Dumps,
}

/// A running trace: the next packets that pass the filter, stage by stage.
pub struct Trace {
    /// Which frames; `None` for all.
    pub filter: Option<FrameFilter>,
    /// How many packets are still wanted.
    pub left: AtomicU64,
    /// Where the finished reports go: the receipt, each stage, what was emitted, the end.
    pub sender: SyncSender<Vec<TraceEvent>>,
}

/// What is being looked at now, shared by all workers.
#[derive(Default)]
pub struct Hooks {
    /// How many captures run, and how many traces still want packets.
    capturing: AtomicUsize,
    tracing: AtomicUsize,
    captures: ArcSwap<Vec<Arc<Running>>>,
    traces: ArcSwap<Vec<Arc<Trace>>>,
    /// Held by whoever changes one of the lists.
    changes: Mutex<()>,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({:?} left)", self.left)
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hooks(capturing: {:?}, tracing: {:?})", self.capturing, self.tracing)
    }
}

impl Hooks {
    /// Starts a capture; it ends with its reader.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn capture(self: &Arc<Self>, capture: Capture) -> std::io::Result<CaptureReader> {
        let running = Arc::new(Running::new(capture)?);
        self.change(&self.captures, |captures| captures.push(running.clone()));
        self.capturing.fetch_add(1, Relaxed);
        Ok(CaptureReader::new(self.clone(), running))
    }

    /// Captures at stages stand at the stages of other numbers from now on; at `None`, nowhere.
    pub(crate) fn renumber(&self, number: impl Fn(usize) -> Option<usize>) {
        let _alone = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        for capture in self.captures.load().iter() {
            if let Some(CapturePoint::Stage(stage)) = capture.point() {
                capture.set_point(number(stage).map(CapturePoint::Stage));
            }
        }
    }

    fn end_capture(&self, own: &Arc<Running>) {
        self.capturing.fetch_sub(1, Relaxed);
        self.change(&self.captures, |all| all.retain(|capture| !Arc::ptr_eq(capture, own)));
    }

    /// Starts a trace; it ends with the guard.
    #[must_use = "the trace ends when the guard is dropped"]
    pub fn trace(self: &Arc<Self>, trace: Trace) -> TraceGuard {
        let trace = Arc::new(trace);
        // Before any worker sees it, for one may take its last packet at once.
        if trace.left.load(Relaxed) > 0 {
            self.tracing.fetch_add(1, Relaxed);
        }
        self.change(&self.traces, |traces| traces.push(trace.clone()));
        TraceGuard { hooks: self.clone(), trace }
    }

    fn change<T>(&self, list: &ArcSwap<Vec<Arc<T>>>, change: impl FnOnce(&mut Vec<Arc<T>>)) {
        let _alone = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = Vec::clone(&list.load());
        change(&mut new);
        list.store(Arc::new(new));
    }

    #[inline(always)]
    pub(crate) fn capturing(&self) -> bool {
        self.capturing.load(Relaxed) > 0
    }

    #[inline(always)]
    pub(crate) fn tracing(&self) -> bool {
        self.tracing.load(Relaxed) > 0
    }

    /// Gives `packet` to the captures at `point`.
    #[cold]
    pub(crate) fn offer(
        &self,
        point: CapturePoint,
        packet: &Packet,
        now_ns: u64,
        port: u16,
        outgoing: bool,
        reason: Option<DropReason>,
    ) {
        for capture in self.captures.load().iter() {
            let meant = capture.stands_at(point)
                && capture.filter.as_ref().is_none_or(|filter| filter(packet));
            if meant {
                let time_ns = if packet.time_ns != 0 { packet.time_ns } else { now_ns };
                capture.take(packet, About { time_ns, port, outgoing, reason });
            }
        }
    }

    /// The trace that wants `packet`, one of its packets taken.
    #[cold]
    pub(crate) fn wants_trace(&self, packet: &Packet) -> Option<Arc<Trace>> {
        let traces = self.traces.load();
        let found = traces.iter().find(|trace| {
            trace.left.load(Relaxed) > 0
                && trace.filter.as_ref().is_none_or(|filter| filter(packet))
                && self.take_one(trace)
        })?;
        Some(found.clone())
    }

    /// Takes one of the packets that a trace wants; `false` where another worker took the last.
    fn take_one(&self, trace: &Trace) -> bool {
        let before = trace.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        if before == Ok(1) {
            self.tracing.fetch_sub(1, Relaxed);
        }
        before.is_ok()
    }
}

/// Ends a trace when it is dropped.
#[derive(Debug)]
pub struct TraceGuard {
    hooks: Arc<Hooks>,
    trace: Arc<Trace>,
}

impl Drop for TraceGuard {
    fn drop(&mut self) {
        if self.trace.left.swap(0, Relaxed) > 0 {
            self.hooks.tracing.fetch_sub(1, Relaxed);
        }
        let own = &self.trace;
        self.hooks.change(&self.hooks.traces, |all| all.retain(|trace| !Arc::ptr_eq(trace, own)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunk::{HugePages, Pool, Region};
    use std::sync::mpsc::sync_channel;

    fn trace_of(left: u64, filter: Option<FrameFilter>) -> Trace {
        Trace { filter, left: AtomicU64::new(left), sender: sync_channel(1).0 }
    }

    #[test]
    fn a_trace_takes_as_many_packets_as_it_wants() {
        let hooks = Arc::new(Hooks::default());
        let (_, depot) = Region::new(2, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot, 1);
        let mut packet = |byte| Packet::copy_from(&mut pool, &[byte]).unwrap();
        let (seven, eight) = (packet(7), packet(8));
        let only_7: FrameFilter = Arc::new(|packet: &Packet| packet.data() == [7]);
        let first = hooks.trace(trace_of(2, Some(only_7)));
        let second = hooks.trace(trace_of(1, None));
        let none = hooks.trace(trace_of(0, None));
        let wants = |packet: &Packet| hooks.wants_trace(packet);
        assert!(wants(&seven).is_some_and(|t| Arc::ptr_eq(&t, &first.trace)));
        assert!(wants(&eight).is_some_and(|t| Arc::ptr_eq(&t, &second.trace)));
        assert!(wants(&eight).is_none() && hooks.tracing());
        assert!(wants(&seven).is_some_and(|t| Arc::ptr_eq(&t, &first.trace)));
        assert!(!hooks.tracing(), "nobody wants a packet any more");
        let third = hooks.trace(trace_of(5, None));
        assert!(hooks.tracing());
        drop((first, second, none, third));
        assert!(!hooks.tracing() && hooks.traces.load().is_empty());
    }

    #[test]
    fn workers_that_want_the_last_packet_get_it_once() {
        const LEFT: u64 = if cfg!(miri) { 20 } else { 1000 };
        let hooks = Arc::new(Hooks::default());
        let guard = hooks.trace(trace_of(LEFT, None));
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let hooks = hooks.clone();
                std::thread::spawn(move || {
                    (0..LEFT).filter(|_| hooks.wants_trace(&Packet::empty()).is_some()).count()
                        as u64
                })
            })
            .collect();
        let taken: u64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        assert_eq!(taken, LEFT);
        assert!(!hooks.tracing());
        drop(guard);
        assert_eq!(hooks.tracing.load(Relaxed), 0);
    }
}
