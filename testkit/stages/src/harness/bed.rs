//! An engine between queues of memory, run to its end.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chunk::{Depot, DropReason, HugePages, Packet, Pool, Region};
use engine::{
    DeviceEvent, DeviceSpec, Engine, EngineSpec, EngineView, Entry, InOrder, PipelineSpec,
    QueueCounters, RxSlot, SpreadHash, Stage, StagePanic, TxSlot, Versions, WorkerCounters,
    WorkerSpec,
};
use io::memory::Script;
use io::{QueueStats, RxQueue, TxQueue};

use super::{Random, flow_hash, watchdog};

/// A receive queue.
pub struct Feed {
    /// The worker that owns it.
    pub worker: usize,
    /// The port that its packets are stamped with.
    pub port: u16,
    /// The queue.
    pub queue: Box<dyn RxQueue>,
    /// Spreads its packets over all workers; `None` keeps them.
    pub spread: Option<SpreadHash>,
    /// The pipeline that its packets enter.
    pub entry: Entry,
}

/// The stages of a worker.
pub type Stages<T> = Vec<Box<dyn Stage<T>>>;

/// When an engine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Once all sources are finished.
    Finished,
    /// It is stopped after so long, whatever is left in the sources.
    Stopped(Duration),
    /// It is stopped once so many packets have passed the stage of this number.
    Passed(usize, u64),
}

/// An engine to be built.
pub struct Bed<V: Versions> {
    /// What it is called where it fails.
    pub name: String,
    /// Receive queues.
    pub feeds: Vec<Feed>,
    /// Transmit queues, one a port. Port `p` belongs to worker `p` modulo their number; the others send by its rings.
    pub ports: usize,
    /// Transmit queues refuse packets at random, from this seed; `None`: they take all.
    pub refuses: Option<u64>,
    /// Devices.
    pub devices: Vec<DeviceSpec<V::Tables>>,
    /// Packets in a chunk at most.
    pub chunk_packets: usize,
    /// Chunks in flight at each worker at most.
    pub chunks: usize,
    /// See [`EngineSpec::max_delay`].
    pub max_delay: Option<Duration>,
    /// See [`EngineSpec::packet_time`].
    pub packet_time: bool,
    /// See [`EngineSpec::lossless`].
    pub lossless: bool,
    /// Behind the workers is a merger; see [`Engine::start_in_order`].
    pub in_order: Option<InOrder>,
    /// When it ends.
    pub ends: Ends,
    /// Cells of 2,048 bytes.
    pub cells: u32,
    /// How long it may take.
    pub limit: Duration,
}

/// A packet that came out: the time stamp that it went in with, and its bytes.
pub type Arrival = (u64, Vec<u8>);

/// What a run left behind.
pub struct Run {
    /// By port: what was sent, in order.
    pub ports: Vec<Vec<Arrival>>,
    /// What was dropped with its bytes.
    pub dropped: Vec<(DropReason, Arrival)>,
    /// What had the verdict dump.
    pub dumped: Vec<Arrival>,
    /// Panics of stages.
    pub panics: Vec<StagePanic>,
    /// What went wrong at devices: the device's number, and what happened.
    pub device_errors: Vec<(usize, String)>,
    /// Packets received.
    pub received: u64,
    /// Cells that did not come back.
    pub lost_cells: usize,
    /// Counters.
    pub view: Arc<EngineView>,
}

impl<V: Versions> Bed<V> {
    /// An engine whose first worker receives `input` for all of them, that loses nothing and ends with it.
    pub fn new(input: Vec<Vec<u8>>) -> Self {
        let queue = Box::new(Script::untimed(input));
        Self {
            name: "a bed".into(),
            feeds: vec![Feed {
                worker: 0,
                port: 0,
                queue,
                spread: Some(flow_hash.into()),
                entry: Entry::default(),
            }],
            ports: 1,
            refuses: None,
            devices: Vec::new(),
            chunk_packets: 256,
            chunks: 64,
            max_delay: None,
            packet_time: false,
            lossless: true,
            in_order: None,
            ends: Ends::Finished,
            cells: 100_000,
            limit: Duration::from_secs(120),
        }
    }

    /// Runs it with these workers: the tables and the stages of each.
    ///
    /// # Panics
    /// When it does not start, a thread dies, or it hangs.
    pub fn run(self, workers: Vec<(V, Stages<V::Tables>)>) -> Run {
        self.run_while(workers, |_| {})
    }

    /// The same while `meanwhile` is called every 100 µs.
    ///
    /// # Panics
    /// As [`Bed::run`].
    pub fn run_while(
        self,
        workers: Vec<(V, Stages<V::Tables>)>,
        meanwhile: impl FnMut(&EngineView) + Send + 'static,
    ) -> Run {
        let one = |(versions, stages)| (versions, vec![PipelineSpec::new("", stages)]);
        self.run_pipelines(workers.into_iter().map(one).collect(), meanwhile)
    }

    /// The same with the pipelines of each worker.
    ///
    /// # Panics
    /// As [`Bed::run`].
    pub fn run_pipelines(
        self,
        workers: Vec<(V, Vec<PipelineSpec<V::Tables>>)>,
        meanwhile: impl FnMut(&EngineView) + Send + 'static,
    ) -> Run {
        let seen: Arc<Mutex<Option<Arc<EngineView>>>> = Arc::default();
        let (shown, name) = (seen.clone(), self.name.clone());
        let more =
            move || seen.lock().map_or(String::new(), |v| v.as_deref().map_or(String::new(), show));
        watchdog::within(self.limit, &name, more, move || self.go(workers, meanwhile, &shown))
    }

    fn go(
        self,
        given: Vec<(V, Vec<PipelineSpec<V::Tables>>)>,
        mut meanwhile: impl FnMut(&EngineView),
        shown: &Mutex<Option<Arc<EngineView>>>,
    ) -> Run {
        let depot = depot(self.cells);
        let cells = depot.available();
        let sent: Vec<Arc<Mutex<Vec<Arrival>>>> = (0..self.ports).map(|_| Arc::default()).collect();
        let dropped: Arc<Mutex<Vec<_>>> = Arc::default();
        let dumped: Arc<Mutex<Vec<_>>> = Arc::default();
        let panics: Arc<Mutex<Vec<_>>> = Arc::default();
        let device_errors: Arc<Mutex<Vec<_>>> = Arc::default();
        let n = given.len();
        let worker = |(versions, pipelines)| WorkerSpec::with_pipelines(versions, pipelines);
        let mut workers: Vec<_> = given.into_iter().map(worker).collect();
        for (w, worker) in workers.iter_mut().enumerate() {
            let (drops, dumps) = (dropped.clone(), dumped.clone());
            worker.on_drop = Some(Box::new(move |packet, reason, _| {
                of(&drops).push((reason, flight(packet)));
            }));
            worker.on_dump = Some(Box::new(move |packet, _| of(&dumps).push(flight(packet))));
            let tx = |(port, frames): (usize, &Arc<Mutex<Vec<Arrival>>>)| {
                if port % n != w {
                    return TxSlot::Worker(port % n);
                }
                let refuses = self.refuses.map(|seed| Random::new(seed ^ port as u64));
                let stats = QueueStats::default();
                TxSlot::Own(
                    Box::new(Keep { frames: frames.clone(), refuses, stats }),
                    Arc::default(),
                )
            };
            worker.tx = sent.iter().enumerate().map(tx).collect();
        }
        let mut counters: Vec<Arc<QueueCounters>> = Vec::new();
        for Feed { worker, port, queue, spread, entry } in self.feeds {
            counters.push(Arc::default());
            let of_queue = counters[counters.len() - 1].clone();
            let spread = spread.filter(|_| n > 1);
            workers[worker].rx.push(RxSlot {
                port,
                mark: 0,
                queue,
                spread,
                entry,
                counters: of_queue,
            });
        }
        let (of_panics, failed) = (panics.clone(), device_errors.clone());
        let spec = EngineSpec {
            chunk_packets: self.chunk_packets,
            chunks: self.chunks,
            devices: self.devices,
            max_delay: self.max_delay,
            packet_time: self.packet_time,
            until_finished: self.ends == Ends::Finished,
            lossless: self.lossless,
            on_error: Arc::new(|port, error| panic!("port {port}: {error}")),
            on_device_error: Arc::new(move |number, event: DeviceEvent<'_>| {
                of(&failed).push((number, format!("{event:?}")));
            }),
            on_panic: Arc::new(move |panic| of(&of_panics).push(panic)),
            ..EngineSpec::new(workers, depot.clone())
        };
        let engine = match self.in_order {
            Some(in_order) => Engine::start_in_order(spec, in_order),
            None => Engine::start(spec),
        };
        let engine = engine.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let view = engine.view().clone();
        *of(shown) = Some(view.clone());
        let begin = Instant::now();
        let is_over = || match self.ends {
            Ends::Finished => engine.is_finished(),
            Ends::Stopped(after) => begin.elapsed() >= after,
            Ends::Passed(stage, packets) => view.stage(stage).packets >= packets,
        };
        while !is_over() {
            meanwhile(&view);
            std::thread::sleep(Duration::from_micros(100));
        }
        let ended = match self.ends {
            Ends::Finished => engine.join(),
            Ends::Stopped(_) | Ends::Passed(..) => engine.stop(self.limit / 2),
        };
        ended.unwrap_or_else(|panic| panic!("{}: {panic}", self.name));
        let lost_cells = cells - depot.available();
        if lost_cells == 0 {
            of(&DEPOTS).push((self.cells, depot));
        }
        fn all<T>(list: &Mutex<Vec<T>>) -> Vec<T> {
            std::mem::take(&mut *of(list))
        }
        Run {
            ports: sent.iter().map(|frames| all(frames)).collect(),
            dropped: all(&dropped),
            dumped: all(&dumped),
            panics: all(&panics),
            device_errors: all(&device_errors),
            received: counters.iter().map(|counters| counters.get().packets).sum(),
            lost_cells,
            view,
        }
    }
}

impl Run {
    /// Packets dropped, for any reason.
    pub fn drops(&self) -> u64 {
        self.view.reasons().iter().map(|reason| self.view.drops(reason.code())).sum()
    }

    /// A counter, summed over all workers.
    pub fn sum(&self, counter: impl Fn(&WorkerCounters) -> u64) -> u64 {
        self.view.workers.iter().map(|worker| counter(worker)).sum()
    }

    /// The frames that were sent by all ports, those of a port in order.
    pub fn frames(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.ports.iter().flatten().map(|(_, bytes)| bytes)
    }

    /// Whether every packet has one fate, the sinks saw what was counted, and every cell is back.
    ///
    /// # Errors
    /// What does not add up.
    pub fn conserves(&self) -> Result<(), String> {
        let sent = self.frames().count() as u64;
        let (drops, dumped) = (self.drops(), self.sum(|w| w.dumped.get()));
        // Before a merger those that its gate let pass count too.
        let emitted = self.view.emitted();
        let went_in = self.received + emitted;
        let came_out = sent + drops + dumped;
        if went_in != came_out {
            return Err(format!(
                "{} received and {emitted} emitted, but {sent} sent, {drops} dropped, {dumped} dumped",
                self.received
            ));
        }
        if dumped != self.dumped.len() as u64 {
            return Err(format!("{dumped} dumped by count, {} in the sink", self.dumped.len()));
        }
        // What went with a panic has a count and no bytes.
        let unseen = drops.checked_sub(self.dropped.len() as u64);
        let spoilt = self.view.drops(chunk::reasons::STAGE_PANIC);
        if unseen.is_none_or(|unseen| unseen > spoilt) {
            return Err(format!("{drops} dropped by count, {} in the sink", self.dropped.len()));
        }
        match self.lost_cells {
            0 => Ok(()),
            lost => Err(format!("{lost} cells are lost")),
        }
    }
}

fn of<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn flight(packet: &Packet) -> Arrival {
    (packet.time_ns, packet.segments().collect::<Vec<_>>().concat())
}

/// Depots that have all their cells: a region stays mapped for the life of the process, so the next bed uses it again.
static DEPOTS: Mutex<Vec<(u32, Arc<Depot>)>> = Mutex::new(Vec::new());

fn depot(cells: u32) -> Arc<Depot> {
    let mut depots = of(&DEPOTS);
    match depots.iter().position(|(of, _)| *of == cells) {
        Some(at) => depots.swap_remove(at).1,
        None => Region::new(cells, HugePages::Off).expect("memory for cells").1,
    }
}

/// What the counters say while it hangs.
fn show(view: &EngineView) -> String {
    let mut text = format!("pipelines {:?}, segments {:?}\n", view.pipelines, view.segments);
    for (i, w) in view.workers.iter().enumerate() {
        let [rx, tx, chunks, away] = [&w.rx_packets, &w.tx_packets, &w.chunks, &w.chunks_to_device];
        let [again, flying, held, panics] = [&w.again, &w.in_flight, &w.held, &w.panics];
        let line = writeln!(
            text,
            "worker {i}: {} received, {} sent, {} chunks, {} to a device, {} again, {} in flight, {} held, \
             {} panics, gave up {}",
            rx.get(),
            tx.get(),
            chunks.get(),
            away.get(),
            again.get(),
            flying.get(),
            held.get(),
            panics.get(),
            w.gave_up.get(),
        );
        line.unwrap_or_default(); // writing to a String cannot fail
    }
    for master in view.masters() {
        text += &format!("{master:?}\n");
    }
    text
}

/// Keeps what it is given, and takes not always all of it.
struct Keep {
    frames: Arc<Mutex<Vec<Arrival>>>,
    refuses: Option<Random>,
    stats: QueueStats,
}

impl TxQueue for Keep {
    fn send(&mut self, pool: &mut Pool, packets: &mut Vec<Packet>) {
        let n = match &mut self.refuses {
            Some(random) => match random.one_in(4) {
                true => random.below(packets.len() + 1),
                false => packets.len(),
            },
            None => packets.len(),
        };
        let mut frames = of(&self.frames);
        for packet in packets.drain(..n) {
            self.stats.packets += 1;
            self.stats.bytes += packet.frame_len() as u64;
            frames.push(flight(&packet));
            packet.free(pool);
        }
    }

    fn flush(&mut self, _: &mut Pool) {}

    fn stats(&self) -> QueueStats {
        self.stats
    }
}
