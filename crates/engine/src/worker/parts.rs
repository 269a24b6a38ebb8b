//! What a worker is given at its start, in pieces that it holds as they are.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use chunk::{CHUNK_PACKETS_MAX, DropReason, Layout, Packet, Pool};
use io::{RxQueue, TxQueue};

use super::PanicSink;
use crate::balance::Balance;
use crate::counters::{QueueCounters, WorkerCounters};
use crate::heirs::Heirs;
use crate::hooks::Hooks;
use crate::in_flight::Returns;
use crate::master::MasterLink;
use crate::merge::Lane;
use crate::quiet::Quiet;
use crate::ring::{Passed, Wakeup};
use crate::segment::Segment;
use crate::stage::{Stage, Versions};

/// Decides which packets go to the twins of interfaces; shared by all workers.
pub trait HostGate: Send + Sync {
    /// Whether a packet may go to the twin of an interface now.
    ///
    /// # Errors
    /// It is dropped, for this reason.
    fn admit(&self, packet: &Packet, interface: u16) -> Result<(), DropReason>;
}

/// Hash of a frame that is the same for both directions of a flow.
#[derive(Clone)]
pub struct SpreadHash(Arc<HashFrame>);

type HashFrame = dyn Fn(&[u8]) -> u32 + Send + Sync;

impl SpreadHash {
    /// The hash of a frame, of which at least the first cell is there.
    #[inline]
    pub fn of(&self, frame: &[u8]) -> u32 {
        (self.0)(frame)
    }
}

impl<F: Fn(&[u8]) -> u32 + Send + Sync + 'static> From<F> for SpreadHash {
    fn from(hash: F) -> Self {
        Self(Arc::new(hash))
    }
}

/// A receive queue and what its owner must know of it.
pub struct RxSlot {
    /// Its port; [`chunk::PORT_NONE`] if the queue itself stamps each packet.
    pub port: u16,
    /// Set in each packet's mark.
    pub mark: u32,
    /// The queue.
    pub queue: Box<dyn RxQueue>,
    /// Spreads its packets over all workers of the pipeline that they enter; `None` keeps them.
    pub spread: Option<SpreadHash>,
    /// Where its packets enter.
    pub entry: Entry,
    /// Where its counters are read.
    pub counters: Arc<QueueCounters>,
}

/// The pipeline that the packets of a receive queue enter, by its number in
/// [`WorkerSpec::pipelines`](crate::WorkerSpec::pipelines).
#[derive(Clone, Debug)]
pub enum Entry {
    /// One for all of them.
    Pipeline(usize),
    /// By the packet's port, for a queue that stamps each packet with one. Ports beyond the list enter the first
    /// pipeline.
    ByPort(Arc<[usize]>),
}

impl Default for Entry {
    /// The first pipeline.
    fn default() -> Self {
        Entry::Pipeline(0)
    }
}

/// Where packets for a port, or for a twin, go at this worker.
pub enum TxSlot {
    /// There is no such port.
    Absent,
    /// The port has no queue now.
    Closed,
    /// Its queue belongs to this worker.
    Own(Box<dyn TxQueue>, Arc<QueueCounters>),
    /// Its queue belongs to that worker.
    Worker(usize),
}

/// Told of each dropped packet before its cells are recycled.
pub type DropSink = Box<dyn FnMut(&Packet, DropReason, u64) + Send>;

/// Told of each packet with the verdict dump, and of the time in nanoseconds since 1970, before its cells are recycled.
pub type DumpSink = Box<dyn FnMut(&Packet, u64) + Send>;

/// Told of a queue's failure: the port and what happened.
pub type ErrorSink = Arc<dyn Fn(u16, &str) + Send + Sync>;

/// What a worker is made of; see [`Worker`](super::Worker).
pub(crate) struct Parts<V: Versions> {
    pub(crate) path: Path<V>,
    pub(crate) queues: Queues,
    pub(crate) links: Links<V>,
    pub(crate) signals: Signals,
    pub(crate) reports: Reports,
    pub(crate) settings: Settings,
    /// Its chunks: how many, and their columns.
    pub(crate) chunks: usize,
    pub(crate) layout: Layout,
    /// What each of its segments begins with.
    pub(crate) balance: Balance,
}

/// What a worker's packets go through.
pub(crate) struct Path<V: Versions> {
    pub(crate) versions: V,
    /// Of all its pipelines, one behind the other.
    pub(crate) stages: Vec<Box<dyn Stage<V::Tables>>>,
    pub(crate) pipelines: Vec<OwnPipeline>,
    pub(crate) segments: Arc<[Segment]>,
    /// Columns that start a chunk as zero, by their places.
    pub(crate) zeroed: Arc<[usize]>,
}

/// One of a worker's pipelines.
#[derive(Clone, Debug)]
pub(crate) struct OwnPipeline {
    /// Its number among those of the engine.
    pub(crate) number: u16,
    /// Its stages and its segments, by their numbers among those of all pipelines.
    pub(crate) stages: std::ops::Range<usize>,
    pub(crate) segments: std::ops::Range<usize>,
    /// Names of the places that packets may be sent to, each with its segment.
    pub(crate) places: Arc<[(&'static str, u16)]>,
    /// The workers that have it, in ascending order.
    pub(crate) peers: Arc<[usize]>,
}

/// Where its packets come from and where they go.
pub(crate) struct Queues {
    pub(crate) pool: Pool,
    pub(crate) rx: Vec<RxSlot>,
    pub(crate) tx: Vec<TxSide>,
    pub(crate) host: Vec<TxSide>,
}

/// A queue to send by, and what waits for room in it.
pub(crate) struct TxSide {
    pub(super) slot: TxSlot,
    pub(super) waiting: Vec<Packet>,
}

impl TxSide {
    pub(crate) fn new(slot: TxSlot) -> Self {
        Self { slot, waiting: Vec::with_capacity(4 * CHUNK_PACKETS_MAX) }
    }
}

/// What binds it to the other threads of its engine.
pub(crate) struct Links<V: Versions> {
    /// Its number among the workers.
    pub(crate) index: u16,
    /// Rings from the other workers, and to them.
    pub(crate) rings_in: Vec<rtrb::Consumer<Passed>>,
    pub(crate) rings_out: Vec<Option<(rtrb::Producer<Passed>, Wakeup)>>,
    pub(crate) wakeup: Wakeup,
    pub(crate) master: Option<Arc<MasterLink<V>>>,
    pub(crate) returns: Returns<V>,
    /// Before a merger: where packets go instead.
    pub(crate) lane: Option<Lane>,
    /// Who works on the packets of workers that gave their stages up.
    pub(crate) heirs: Arc<Heirs>,
    /// The workers that have all its pipelines.
    pub(crate) heirs_of: Arc<[usize]>,
    /// Its part in the count of workers that have nothing left to do.
    pub(crate) quiet: Quiet,
}

/// How the threads of an engine come to their end.
#[derive(Clone, Default)]
pub(crate) struct Signals {
    /// Receive nothing more, and end when all is done.
    pub(crate) stop: Arc<AtomicBool>,
    /// Give up what cannot be sent.
    pub(crate) abort: Arc<AtomicBool>,
    /// A thread of the engine has died.
    pub(crate) died: Arc<AtomicBool>,
}

/// Where it says what it did and what it saw.
pub(crate) struct Reports {
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) on_drop: Option<DropSink>,
    pub(crate) on_dump: Option<DumpSink>,
    pub(crate) on_panic: PanicSink,
    pub(crate) on_error: ErrorSink,
    pub(crate) host_gate: Option<Arc<dyn HostGate>>,
}

/// How the workers of an engine are to work.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    /// Stop by itself once every source is finished.
    pub(crate) until_finished: bool,
    /// Take chunk time from the packets instead of the clock.
    pub(crate) packet_time: bool,
    /// Wait for a full transmit queue instead of dropping.
    pub(crate) lossless: bool,
    /// Packets of a chunk at most.
    pub(crate) chunk_packets: usize,
    /// How long a packet may be under way; zero: a burst leaves at once.
    pub(crate) max_delay: Duration,
}
