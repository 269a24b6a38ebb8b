//! Queues of ports: a scheduler in front of a port, with a least and a highest rate for each queue.
//!
//! ```text
//!   packet of a queue ─▶ first in, first out ─┐   highest rate of the queue: never above
//!                                             ├─▶ least rate: goes whatever others do ───────┐
//!                                             └─▶ what the port has left: borrowed, in turn ─┴─▶ port
//! ```
//!
//! As hierarchical token buckets (HTB) have it: a packet leaves when the bucket of its queue's highest rate is not in debt, and
//! either that of its least rate is not or that of the port; then it takes what it costs. What queues borrow they share evenly,
//! byte by byte (start-time fair queueing: of those that may go, the one with the smallest tag). The least rates of a port
//! together are at most its rate, so borrowing ends before they suffer.
//!
//! A bucket is kept as the time at which it will be full again (the generic cell rate algorithm, ITU-T I.371). Packets leave at the
//! time that the buckets give, not when somebody looks: who looks late sends more at once, and the rate stays exact. Over captures
//! that time is the packets'.
//!
//! Threads: [`Shaper`] holds the packets of one worker. The buckets of a port ([`PortShape`]) are shared by all workers, one lock for
//! each port; several workers have queues of their own in front of the same rates.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bits a second; 0: none is given.
pub type Rate = u64;

/// A queue as it is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueConfig {
    /// Its number among those of the port.
    pub id: u32,
    /// What it gets whatever other queues do; 0: nothing.
    pub min_rate: Rate,
    /// What it gets at most; 0: not limited.
    pub max_rate: Rate,
    /// Packets that wait in it at most, at each worker.
    pub packets: usize,
}

/// The queues of a port as they are configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortConfig {
    /// The port's own rate; 0: not limited, so what queues borrow is not either.
    pub rate: Rate,
    /// Its queues.
    pub queues: Vec<QueueConfig>,
}

/// Tokens that a bucket holds at most, as time at its rate.
const BURST_NS: u64 = 10_000_000;

/// Debt that packets which do not wait leave to a port at most, as time at its rate: queues borrow again that long after an
/// overload, however long it was.
const DEBT_NS: u64 = 100_000_000;

/// Tokens of a rate, kept as the time at which they are all there.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    rate: Rate,
    full_ns: u64,
}

impl Bucket {
    const fn new(rate: Rate) -> Self {
        Self { rate, full_ns: 0 }
    }

    /// What a packet costs, nanoseconds.
    fn cost_ns(&self, len: usize) -> u64 {
        let bits = len as u128 * 8 * 1_000_000_000;
        u64::try_from(bits.div_ceil(u128::from(self.rate))).unwrap_or(u64::MAX)
    }

    /// From when on it is not in debt.
    fn ready_ns(&self) -> u64 {
        self.full_ns.saturating_sub(BURST_NS)
    }

    fn take(&mut self, len: usize, now_ns: u64) {
        self.full_ns = self.full_ns.max(now_ns).saturating_add(self.cost_ns(len));
    }

    /// The same for a packet that asks nobody: debt beyond [`DEBT_NS`], and beyond the packet itself, is forgotten.
    fn take_unasked(&mut self, len: usize, now_ns: u64) {
        let most = DEBT_NS.max(self.cost_ns(len)).saturating_add(BURST_NS);
        self.take(len, now_ns);
        self.full_ns = self.full_ns.min(now_ns.saturating_add(most));
    }
}

/// Buckets of a queue.
#[derive(Debug)]
struct Buckets {
    min: Bucket,
    max: Bucket,
    /// Bytes that it has borrowed, and those that it would have if it had always wanted to.
    tag: u64,
}

#[derive(Debug)]
struct Rates {
    port: Bucket,
    queues: Vec<Buckets>,
    /// The tag of the queue that borrowed last.
    tag: u64,
}

/// What a queue has done. Written by workers, read by control.
#[derive(Debug, Default)]
pub struct QueueCounters {
    /// Packets sent.
    pub packets: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Packets dropped because the queue was full.
    pub dropped: AtomicU64,
}

/// The queues of a port, as all workers share them.
#[derive(Debug)]
pub struct PortShape {
    config: PortConfig,
    rates: Mutex<Rates>,
    counters: Vec<QueueCounters>,
}

impl PortShape {
    /// Full buckets.
    pub fn new(config: PortConfig) -> Self {
        let buckets = |own: &QueueConfig| Buckets {
            min: Bucket::new(own.min_rate),
            max: Bucket::new(own.max_rate),
            tag: 0,
        };
        let queues: Vec<Buckets> = config.queues.iter().map(buckets).collect();
        let counters = queues.iter().map(|_| QueueCounters::default()).collect();
        let rates = Mutex::new(Rates { port: Bucket::new(config.rate), queues, tag: 0 });
        Self { config, rates, counters }
    }

    /// What it was made of.
    pub fn config(&self) -> &PortConfig {
        &self.config
    }

    /// The place of a queue.
    pub fn queue(&self, id: u32) -> Option<usize> {
        self.config.queues.iter().position(|own| own.id == id)
    }

    /// What queues have done, in the order of the configuration.
    pub fn counters(&self) -> &[QueueCounters] {
        &self.counters
    }

    fn with_rates<T>(&self, work: impl FnOnce(&mut Rates) -> T) -> T {
        // Nothing in it panics half way.
        work(&mut self.rates.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Rates {
    /// When the first packet of a queue, which is there since `since_ns`, may go, and whether its least rate pays for it.
    fn departure(&self, queue: usize, since_ns: u64) -> (u64, bool) {
        let own = &self.queues[queue];
        let max = if own.max.rate > 0 { own.max.ready_ns() } else { 0 };
        let min = if own.min.rate > 0 { own.min.ready_ns() } else { u64::MAX };
        let port = if self.port.rate > 0 { self.port.ready_ns() } else { 0 };
        let at = max.max(since_ns);
        (at.max(min.min(port)), min <= at.max(port))
    }

    fn leave(&mut self, queue: usize, len: usize, now_ns: u64, is_own: bool) {
        let own = &mut self.queues[queue];
        if own.max.rate > 0 {
            own.max.take(len, now_ns);
        }
        if is_own {
            own.min.take(len, now_ns);
        } else {
            // Who has not borrowed for a while has no claim on what others did meanwhile.
            self.tag = own.tag.max(self.tag);
            own.tag = self.tag + len as u64;
        }
        if self.port.rate > 0 {
            self.port.take(len, now_ns);
        }
    }
}

#[derive(Debug)]
struct Waiting<P> {
    packet: P,
    len: usize,
    since_ns: u64,
}

#[derive(Debug)]
struct PortQueues<P> {
    shape: Arc<PortShape>,
    queues: Vec<VecDeque<Waiting<P>>>,
    len: usize,
    /// The last departure.
    last_ns: u64,
}

impl<P> PortQueues<P> {
    /// The queue whose first packet leaves next, when, and whether its least rate pays for it.
    fn next(&self, rates: &Rates) -> Option<(u64, usize, bool)> {
        let first = |(at, queue): (usize, &VecDeque<Waiting<P>>)| {
            let first = queue.front()?;
            let (ns, is_own) = rates.departure(at, first.since_ns.max(self.last_ns));
            Some(((ns, !is_own, rates.queues[at].tag.max(rates.tag), at), is_own))
        };
        let all = self.queues.iter().enumerate().filter_map(first);
        all.min().map(|((ns, _, _, at), is_own)| (ns, at, is_own))
    }
}

/// The packets of one worker that wait in queues.
#[derive(Debug)]
pub struct Shaper<P> {
    /// By port of the program.
    ports: Vec<Option<PortQueues<P>>>,
    len: usize,
}

impl<P> Shaper<P> {
    /// Empty queues in front of ports, by number; `None`: the port has none.
    pub fn new(shapes: &[Option<Arc<PortShape>>]) -> Self {
        let port = |shape: &Option<Arc<PortShape>>| {
            let shape = shape.clone()?;
            let queue = |own: &QueueConfig| VecDeque::with_capacity(own.packets.min(256));
            let queues = shape.config.queues.iter().map(queue).collect();
            Some(PortQueues { shape, queues, len: 0, last_ns: 0 })
        };
        Self { ports: shapes.iter().map(port).collect(), len: 0 }
    }

    /// Whether no port has queues.
    pub fn is_idle(&self) -> bool {
        self.ports.iter().all(Option::is_none)
    }

    /// Packets that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The place of the queue that a packet for a port waits in; without a number, or with one that the port does not have, queue
    /// 0 if there is one. `None`: the packet goes without waiting.
    pub fn queue(&self, port: u16, id: Option<u32>) -> Option<usize> {
        let shape = &self.ports.get(usize::from(port))?.as_ref()?.shape;
        id.and_then(|id| shape.queue(id)).or_else(|| shape.queue(0))
    }

    /// A packet goes by a port without waiting: the port's rate pays for it, up to a debt of 100 ms.
    pub fn passes(&mut self, port: u16, len: usize, now_ns: u64) {
        if let Some(Some(own)) = self.ports.get(usize::from(port))
            && own.shape.config.rate > 0
        {
            own.shape.with_rates(|rates| rates.port.take_unasked(len, now_ns));
        }
    }

    /// A packet waits in the queue at a place of a port.
    ///
    /// # Errors
    /// The packet: the queue is full.
    pub fn push(
        &mut self,
        port: u16,
        queue: usize,
        packet: P,
        len: usize,
        now_ns: u64,
    ) -> Result<(), P> {
        let Some(Some(own)) = self.ports.get_mut(usize::from(port)) else { return Err(packet) };
        let (Some(waiting), Some(config)) =
            (own.queues.get_mut(queue), own.shape.config.queues.get(queue))
        else {
            return Err(packet);
        };
        if waiting.len() >= config.packets {
            own.shape.counters[queue].dropped.fetch_add(1, Ordering::Relaxed);
            return Err(packet);
        }
        waiting.push_back(Waiting { packet, len, since_ns: now_ns });
        own.len += 1;
        self.len += 1;
        Ok(())
    }

    /// The packets that leave up to `now_ns`, port by port, each in the order of departure: given to `send` with port and
    /// departure.
    pub fn leave(&mut self, now_ns: u64, mut send: impl FnMut(u16, P, u64)) {
        if self.len == 0 {
            return;
        }
        for (port, own) in self.ports.iter_mut().enumerate() {
            let Some(own) = own.as_mut().filter(|own| own.len > 0) else { continue };
            let shape = own.shape.clone();
            shape.with_rates(|rates| {
                while let Some((at_ns, queue, is_own)) = own.next(rates)
                    && at_ns <= now_ns
                    && let Some(waiting) = own.queues[queue].pop_front()
                {
                    rates.leave(queue, waiting.len, at_ns, is_own);
                    own.last_ns = at_ns;
                    let counters = &shape.counters[queue];
                    counters.packets.fetch_add(1, Ordering::Relaxed);
                    counters.bytes.fetch_add(waiting.len as u64, Ordering::Relaxed);
                    own.len -= 1;
                    self.len -= 1;
                    send(port as u16, waiting.packet, at_ns);
                }
            });
        }
    }

    /// When the next packet leaves, unless another worker's go before.
    pub fn next_ns(&self) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let ports = self.ports.iter().flatten().filter(|own| own.len > 0);
        ports
            .filter_map(|own| own.shape.with_rates(|rates| own.next(rates)))
            .map(|(ns, ..)| ns)
            .min()
    }

    /// Everything that waits, with its port, in order.
    pub fn drain(&mut self) -> impl Iterator<Item = (u16, P)> {
        self.len = 0;
        let port = |(port, own): (usize, &mut Option<PortQueues<P>>)| {
            let queues = own.iter_mut().flat_map(|own| {
                own.len = 0;
                own.queues.iter_mut().flat_map(|queue| queue.drain(..))
            });
            queues.map(move |waiting| (port as u16, waiting.packet)).collect::<Vec<_>>()
        };
        self.ports.iter_mut().enumerate().flat_map(port)
    }
}
