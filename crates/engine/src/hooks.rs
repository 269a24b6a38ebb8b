//! Looking on: traces and captures of a running engine.
//!
//! Both cost one relaxed load a chunk while nobody looks. The engine knows no protocol: which packets
//! are meant is a function given by the caller.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};

use chunk::{DropReason, Packet};

/// Says whether a frame (its first cell's bytes) is meant.
pub type FrameFilter = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

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

/// A captured frame.
#[derive(Clone, Debug)]
pub struct CapturedFrame {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// The port it came in by or leaves by.
    pub port: u16,
    /// Whether it was leaving.
    pub outgoing: bool,
    /// Why it was dropped, at [`CapturePoint::Drops`].
    pub reason: Option<DropReason>,
    /// All its bytes.
    pub bytes: Vec<u8>,
}

/// A running capture.
pub struct Capture {
    /// Where it stands.
    pub point: CapturePoint,
    /// Which frames; `None` for all.
    pub filter: Option<FrameFilter>,
    /// Where they go; a full channel loses the frame, counted.
    pub sender: SyncSender<CapturedFrame>,
    /// Frames that found the channel full.
    pub lost: AtomicU64,
}

/// A running trace: the next packets that pass the filter, stage by stage.
pub struct Trace {
    /// Which frames; `None` for all.
    pub filter: Option<FrameFilter>,
    /// How many packets are still wanted.
    pub left: AtomicU64,
    /// Where the finished reports go: a line for the receipt, one for each stage, one for the end.
    pub sender: SyncSender<Vec<String>>,
}

/// What is being looked at now, shared by all workers.
#[derive(Default)]
pub struct Hooks {
    capturing: AtomicBool,
    tracing: AtomicBool,
    captures: Mutex<Vec<Arc<Capture>>>,
    traces: Mutex<Vec<Arc<Trace>>>,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Capture({:?})", self.point)
    }
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
    /// Starts a capture; it ends with the guard.
    #[must_use = "the capture ends when the guard is dropped"]
    pub fn capture(self: &Arc<Self>, capture: Capture) -> HookGuard {
        let capture = Arc::new(capture);
        self.captures.lock().unwrap_or_else(PoisonError::into_inner).push(capture.clone());
        self.capturing.store(true, Relaxed);
        HookGuard { hooks: self.clone(), capture: Some(capture), trace: None }
    }

    /// Starts a trace; it ends with the guard.
    #[must_use = "the trace ends when the guard is dropped"]
    pub fn trace(self: &Arc<Self>, trace: Trace) -> HookGuard {
        let trace = Arc::new(trace);
        self.traces.lock().unwrap_or_else(PoisonError::into_inner).push(trace.clone());
        self.tracing.store(true, Relaxed);
        HookGuard { hooks: self.clone(), capture: None, trace: Some(trace) }
    }

    #[inline(always)]
    pub(crate) fn capturing(&self) -> bool {
        self.capturing.load(Relaxed)
    }

    #[inline(always)]
    pub(crate) fn tracing(&self) -> bool {
        self.tracing.load(Relaxed)
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
        let mut captures = self.captures.lock().unwrap_or_else(PoisonError::into_inner);
        captures.retain(|capture| {
            let meant = capture.point == point
                && capture.filter.as_ref().is_none_or(|filter| filter(packet.data()));
            if !meant {
                return true;
            }
            let bytes = packet.segments().collect::<Vec<_>>().concat();
            let time_ns = if packet.time_ns != 0 { packet.time_ns } else { now_ns };
            match capture.sender.try_send(CapturedFrame { time_ns, port, outgoing, reason, bytes })
            {
                Ok(()) => true,
                Err(TrySendError::Full(_)) => {
                    capture.lost.fetch_add(1, Relaxed);
                    true
                }
                Err(TrySendError::Disconnected(_)) => false,
            }
        });
        self.capturing.store(!captures.is_empty(), Relaxed);
    }

    /// The trace that wants `frame`, one of its packets taken.
    #[cold]
    pub(crate) fn wants_trace(&self, frame: &[u8]) -> Option<Arc<Trace>> {
        let mut traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        traces.retain(|trace| trace.left.load(Relaxed) > 0);
        self.tracing.store(!traces.is_empty(), Relaxed);
        let found = traces.iter().find(|t| t.filter.as_ref().is_none_or(|f| f(frame)))?;
        found.left.fetch_sub(1, Relaxed);
        Some(found.clone())
    }
}

/// Ends a capture or trace when it is dropped.
#[derive(Debug)]
pub struct HookGuard {
    hooks: Arc<Hooks>,
    capture: Option<Arc<Capture>>,
    trace: Option<Arc<Trace>>,
}

impl HookGuard {
    /// Frames of the capture that found the channel full.
    pub fn lost(&self) -> u64 {
        self.capture.as_ref().map_or(0, |capture| capture.lost.load(Relaxed))
    }
}

impl Drop for HookGuard {
    fn drop(&mut self) {
        if let Some(own) = &self.capture {
            let mut captures = self.hooks.captures.lock().unwrap_or_else(PoisonError::into_inner);
            captures.retain(|capture| !Arc::ptr_eq(capture, own));
            self.hooks.capturing.store(!captures.is_empty(), Relaxed);
        }
        if let Some(own) = &self.trace {
            let mut traces = self.hooks.traces.lock().unwrap_or_else(PoisonError::into_inner);
            traces.retain(|trace| !Arc::ptr_eq(trace, own));
            self.hooks.tracing.store(!traces.is_empty(), Relaxed);
        }
    }
}
