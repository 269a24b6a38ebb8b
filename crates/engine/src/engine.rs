//! Building an engine, starting it, and stopping it without loss.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ::io::offload::Finished;
use chunk::{CHUNK_PACKETS_MAX, Depot, Pool};
use device::accelerator;
use device::driver::Driver;
use device::tables::TableSource;
use device::{Cost, DeviceError, FaultPlan};

use crate::balance::{Balance, Policy};
use crate::columns::{self, ColumnsError};
use crate::counters::{DropPlaces, WorkerCounters};
use crate::heirs::Heirs;
use crate::hooks::Hooks;
use crate::master::{Master, MasterLink};
use crate::merge::{InOrder, Lane, Merger, MergerParts, Merging, Out, WINDOW_PACKETS};
use crate::plan::{Pipeline, Plan};
use crate::quiet::Quiet;
use crate::reserve::{Reserve, Reserved, Waiting, Working};
use crate::ring::{Passed, Wakeup};
use crate::stage::{Stage, Versions};
use crate::twins::Crew;
use crate::view::{EngineView, MasterView};
use crate::worker::{
    DropSink, DumpSink, Entry, ErrorSink, HostGate, Links, PanicSink, Parts, Path, Queues,
    RING_PACKETS, Reports, RxSlot, Settings, Signals, TxSide, TxSlot, Worker, panic_text,
};

/// What one worker is given.
pub struct WorkerSpec<V: Versions> {
    /// The core it is pinned to; `None` leaves that to the system.
    pub cpu: Option<usize>,
    /// Its view of the tables.
    pub versions: V,
    /// Its pipelines, at least one. Two workers run the same pipeline where its name, its places and the names of its
    /// stages are the same; a second one like that at one worker is another pipeline.
    pub pipelines: Vec<PipelineSpec<V::Tables>>,
    /// Queues that it receives from.
    pub rx: Vec<RxSlot>,
    /// By port: where packets to send go.
    pub tx: Vec<TxSlot>,
    /// By interface: where packets for its twin go.
    pub host: Vec<TxSlot>,
    /// Number of its device in [`EngineSpec::devices`]; `None` deals the workers out.
    pub device: Option<usize>,
    /// Gets each dropped packet.
    pub on_drop: Option<DropSink>,
    /// Gets each packet with the verdict dump.
    pub on_dump: Option<DumpSink>,
}

/// A pipeline of a worker.
pub struct PipelineSpec<T> {
    /// Its name, for display ([`PipelineView`](crate::PipelineView)); it may be empty.
    pub name: String,
    /// The worker's instances of its stages.
    pub stages: Vec<Box<dyn Stage<T>>>,
    /// Where the places of [`Stage::sends_to`] are: place and stage. A place that is not in the list is the stage of
    /// that name.
    pub places: Vec<(String, String)>,
}

impl<T> PipelineSpec<T> {
    /// A pipeline in which each place is the stage of its name.
    pub fn new(name: impl Into<String>, stages: Vec<Box<dyn Stage<T>>>) -> Self {
        Self { name: name.into(), stages, places: Vec::new() }
    }
}

impl<V: Versions> WorkerSpec<V> {
    /// A worker with one pipeline, of these stages, and no queues.
    pub fn new(versions: V, stages: Vec<Box<dyn Stage<V::Tables>>>) -> Self {
        Self::with_pipelines(versions, vec![PipelineSpec::new("", stages)])
    }

    /// A worker with these pipelines and no queues.
    pub fn with_pipelines(versions: V, pipelines: Vec<PipelineSpec<V::Tables>>) -> Self {
        Self {
            cpu: None,
            versions,
            pipelines,
            rx: Vec::new(),
            tx: Vec::new(),
            host: Vec::new(),
            device: None,
            on_drop: None,
            on_dump: None,
        }
    }
}

/// A device and how it is used.
pub struct DeviceSpec<T> {
    /// Which one.
    pub kind: DeviceKind<T>,
    /// Jobs in flight at most.
    pub slots: usize,
    /// Rows of a job at most.
    pub rows: usize,
    /// Which chunks go there.
    pub policy: Policy,
}

/// What is behind a device.
pub enum DeviceKind<T> {
    /// The simulated one: the CPU's shade on threads of its own.
    Simulated {
        /// What a job costs.
        cost: Cost,
        /// Which launches go wrong.
        faults: FaultPlan,
    },
    /// Kernels on a real one.
    Driver {
        /// The device, opened.
        driver: Box<dyn Driver>,
        /// Where its copies of the tables come from.
        tables: Box<dyn TableSource<T>>,
        /// How it is set up; `slots` is taken from the [`DeviceSpec`].
        options: accelerator::Options,
    },
}

/// What an engine is built from.
pub struct EngineSpec<V: Versions> {
    /// The workers, at least one.
    pub workers: Vec<WorkerSpec<V>>,
    /// All free cells.
    pub depot: Arc<Depot>,
    /// Packets in a chunk at most.
    pub chunk_packets: usize,
    /// Chunks in flight at each worker at most.
    pub chunks: usize,
    /// Shade on devices as well: a master each.
    pub devices: Vec<DeviceSpec<V::Tables>>,
    /// A chunk waits until it is full, but not so long that a packet would be under way for longer
    /// than this (GSwitch §5). `None`: a burst leaves at once.
    pub max_delay: Option<Duration>,
    /// Take time from the packets: offline.
    pub packet_time: bool,
    /// Stop by itself once every source is finished.
    pub until_finished: bool,
    /// Wait for full transmit queues instead of dropping: for files, never for networks.
    pub lossless: bool,
    /// Called for a queue's failure.
    pub on_error: ErrorSink,
    /// Decides which packets go to twins; without one, all do.
    pub host_gate: Option<Arc<dyn HostGate>>,
    /// Called for failures of devices.
    pub on_device_error: DeviceSink,
    /// Called for each panic of a stage.
    pub on_panic: PanicSink,
    /// What was seen of the engine whose work this one goes on with ([`crate::Suspended`]). Counters of workers, and of
    /// stages that both have, go on from there; captures and traces that run there go on here. Counters of devices begin
    /// anew.
    pub before: Option<Arc<EngineView>>,
    /// Captures and traces that have begun; with `before`, those that run there go on instead.
    pub hooks: Arc<Hooks>,
}

/// Called for failures of a device, with the device's number.
pub type DeviceSink = Arc<dyn Fn(usize, DeviceEvent<'_>) + Send + Sync>;

impl<V: Versions> EngineSpec<V> {
    /// An engine without devices, over `depot`, live: it runs until it is stopped, and drops what a queue does not
    /// take. What goes wrong is logged.
    pub fn new(workers: Vec<WorkerSpec<V>>, depot: Arc<Depot>) -> Self {
        Self {
            workers,
            depot,
            chunk_packets: CHUNK_PACKETS_MAX,
            chunks: 8,
            devices: Vec::new(),
            max_delay: None,
            packet_time: false,
            until_finished: false,
            lossless: false,
            on_error: Arc::new(|port, error| tracing::error!("port {port}: {error}")),
            host_gate: None,
            on_device_error: Arc::new(|number, event| {
                tracing::warn!("device {number}: {event:?}; the CPU takes over");
            }),
            on_panic: Arc::new(|panic| tracing::error!("{panic}")),
            before: None,
            hooks: Arc::default(),
        }
    }
}

/// What becomes of a device that fails. Its packets are shaded on the CPU, but by stages that have no form for it ([`DeviceEvent::Idle`]).
#[derive(Clone, Copy, Debug)]
pub enum DeviceEvent<'a> {
    /// A job failed; reported once for each kind of error. Later jobs go to the device again.
    JobFailed(&'a DeviceError),
    /// The kernels of one segment are used no more, since the start or from now on; those of the others are. The error
    /// names the stage or the program.
    SegmentGivenUp(&'a DeviceError),
    /// A part of a stage is used no more on the device; the others of its stage are. The error names it.
    PartGivenUp(&'a DeviceError),
    /// The device is no longer used, or was not from the start; reported once.
    GivenUp(&'a DeviceError),
    /// Behind one of the two above: what this means for a stage without a CPU form, as a sentence
    /// ([`Shade::without_device`](crate::Shade::without_device)).
    Idle(&'a str),
}

/// Why an engine could not start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// There is no worker, or its stages do not fit together.
    #[error("{0}")]
    Spec(String),
    /// The stages' columns do not fit together.
    #[error("{0}")]
    Columns(#[from] ColumnsError),
    /// No thread or descriptor was to be had.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
    /// A stage has no CPU form ([`Shade::needs_device`](crate::Shade::needs_device)), and there is no device, or a simulated
    /// one.
    #[error(
        "stage {0} needs an OpenCL or CUDA device: choose one with `--backend opencl` or `backend` in [engine]; for machines \
         without a GPU there is PoCL (Debian: pocl-opencl-icd)"
    )]
    NeedsDevice(&'static str),
    /// The device cannot run the kernels of such a stage.
    #[error("{}", kernels_error(stage, error))]
    Kernels {
        /// The stage.
        stage: &'static str,
        /// Why.
        error: DeviceError,
    },
    /// Two blocks of drop reasons of its stages have the same number, or two reasons the same name.
    #[error(transparent)]
    Reasons(#[from] chunk::ReasonClash),
}

/// Errors in files that people wrote have their places; others need the stage.
fn kernels_error(stage: &str, error: &DeviceError) -> String {
    error.in_files().map_or_else(|| format!("stage {stage}: {error}"), str::to_owned)
}

/// A running engine.
pub struct Engine<V: Versions> {
    threads: Threads<V>,
    view: Arc<EngineView>,
    depot: Arc<Depot>,
}

/// The threads of an engine, and how they are stopped.
struct Threads<V: Versions> {
    workers: Vec<Working<Worker<V>>>,
    masters: Vec<(Arc<MasterLink<V>>, Working<()>)>,
    merger: Option<(Arc<Merging>, Working<Merger>)>,
    /// By worker.
    wakeups: Vec<Wakeup>,
    signals: Signals,
}

impl<V: Versions> Engine<V> {
    /// Starts every thread.
    ///
    /// # Errors
    /// When the spec makes no sense or the system gives no thread.
    pub fn start(mut spec: EngineSpec<V>) -> Result<Self, EngineError> {
        let reserve = spec.reserve()?;
        Self::start_with(spec, reserve, None)
    }

    /// Starts on threads that were reserved for this spec ([`EngineSpec::reserve`]): the system has nothing to refuse any
    /// more.
    ///
    /// # Errors
    /// The spec makes no sense, or the threads were reserved for another one.
    pub fn start_reserved(spec: EngineSpec<V>, reserve: Reserve<V>) -> Result<Self, EngineError> {
        Self::start_with(spec, reserve, None)
    }

    /// Starts every thread, and one that sends what the workers make in the order in which one worker
    /// would make it: for captures. There is one receive queue, spread over the workers, and at most
    /// one transmit queue for a port or a twin. The sinks of drops and dumps are the first
    /// ones that a worker was given; they see the packets of all workers, in order, each at its own time.
    ///
    /// The reader waits where packets would be lost for want of room in a ring. No stage may hold packets, hand them to
    /// another worker or send them through the pipeline again, for the order knows of none of these;
    /// see [`Stage::needs_one_worker`].
    ///
    /// # Errors
    /// As [`Engine::start`], and when there are other queues than these.
    pub fn start_in_order(mut spec: EngineSpec<V>, in_order: InOrder) -> Result<Self, EngineError> {
        let reserve = spec.reserve()?;
        Self::start_with(spec, reserve, Some(in_order))
    }

    fn start_with(
        spec: EngineSpec<V>,
        reserve: Reserve<V>,
        in_order: Option<InOrder>,
    ) -> Result<Self, EngineError> {
        if reserve.workers.len() != spec.workers.len() || !spec.devices.is_empty() {
            return Err(EngineError::Spec("the threads were reserved for another engine".into()));
        }
        let depot = spec.depot.clone();
        let mut threads = Threads {
            workers: Vec::new(),
            masters: Vec::new(),
            merger: None,
            wakeups: reserve.wakeups.clone(),
            signals: Signals::default(),
        };
        let view = threads.start(spec, reserve, in_order)?;
        Ok(Self { threads, view, depot })
    }

    /// What may be seen of it.
    pub fn view(&self) -> &Arc<EngineView> {
        &self.view
    }

    /// Whether it has come to its end: every worker has ended, for all sources were finished, or one has died of a
    /// panic outside of its stages, and its queues are not served. The others go on until they are stopped.
    pub fn is_finished(&self) -> bool {
        self.threads.signals.died.load(Ordering::Acquire) || self.threads.are_finished()
    }

    /// Stops receiving, lets every packet come to its end, and ends the threads. Packets that the
    /// transmit queues do not get rid of within `patience` are given up.
    ///
    /// # Errors
    /// The panic message of a worker that died.
    pub fn stop(self, patience: Duration) -> Result<(), String> {
        self.threads.stop(patience)
    }

    /// The same; the workers as they ended, and the panic message of one that died.
    pub(crate) fn end_workers(self, patience: Duration) -> (Vec<Worker<V>>, Option<String>) {
        let deadline = self.threads.signal(patience);
        self.threads.end(Some(deadline), Some)
    }

    /// Waits until every worker has ended by itself.
    ///
    /// # Errors
    /// The panic message of a worker that died.
    pub fn join(self) -> Result<(), String> {
        self.threads.join()
    }

    /// Free cells; see [`Depot::available`].
    pub fn depot(&self) -> &Arc<Depot> {
        &self.depot
    }
}

/// What a master shows.
type MasterLook = Box<dyn Fn() -> MasterView + Send + Sync>;

/// The ends of rings from every worker to every other one, of so many packets: by worker those it receives from, and by
/// worker and receiver those it sends to.
#[expect(clippy::type_complexity, reason = "two lists of lists")]
fn rings(
    wakeups: &[Wakeup],
    packets: usize,
) -> (Vec<Vec<rtrb::Consumer<Passed>>>, Vec<Vec<Option<(rtrb::Producer<Passed>, Wakeup)>>>) {
    let n = wakeups.len();
    let mut rings_in: Vec<Vec<_>> = (0..n).map(|_| Vec::new()).collect();
    let mut rings_out: Vec<Vec<_>> = (0..n).map(|_| Vec::new()).collect();
    for (i, out) in rings_out.iter_mut().enumerate() {
        for (j, wakeup) in wakeups.iter().enumerate() {
            if i == j {
                out.push(None);
            } else {
                let (producer, consumer) = rtrb::RingBuffer::new(packets);
                out.push(Some((producer, wakeup.clone())));
                rings_in[j].push(consumer);
            }
        }
    }
    (rings_in, rings_out)
}

/// Has queues finish what their senders left to a network card, where a stage needs packets as they are on a wire.
fn finish_on_receipt<V: Versions>(spec: &mut EngineSpec<V>) {
    for worker in &mut spec.workers {
        let takes = |wanted: &usize| match worker.pipelines.get(*wanted) {
            Some(pipeline) => pipeline.stages.iter().all(|stage| stage.takes_offloads()),
            None => true, // an error, which is found later
        };
        let all_take = |entry: &Entry| match entry {
            Entry::Pipeline(wanted) => takes(wanted),
            Entry::ByPort(by_port) => by_port.iter().chain([&0]).all(takes),
        };
        let slots = std::mem::take(&mut worker.rx).into_iter();
        worker.rx = slots
            .map(|slot| match all_take(&slot.entry) {
                true => slot,
                false => RxSlot { queue: Box::new(Finished::new(slot.queue)), ..slot },
            })
            .collect();
    }
}

impl<V: Versions> Threads<V> {
    /// Gives them all their work, one after the other; after an error none has any.
    fn start(
        &mut self,
        mut spec: EngineSpec<V>,
        reserve: Reserve<V>,
        in_order: Option<InOrder>,
    ) -> Result<Arc<EngineView>, EngineError> {
        let Reserve { plan, layout, returns, devices, workers: threads, .. } = reserve;
        let n = spec.workers.len();
        let pipelines = spec.workers.iter().flat_map(|worker| &worker.pipelines);
        let stages = pipelines.flat_map(|pipeline| &pipeline.stages).map(|stage| &**stage);
        let zeroed = columns::zeroed(stages, &layout);
        finish_on_receipt(&mut spec);
        plan.number_queues(&mut spec)?;
        let (wakeups, signals) = (self.wakeups.clone(), self.signals.clone());
        let hooks = spec.before.as_ref().map_or(&spec.hooks, |before| &before.hooks).clone();
        let merger =
            in_order.map(|i| merger_of(&mut spec, i, signals.abort.clone())).transpose()?;
        let (merger, merging) = merger.unzip();
        let of_merger = merger.as_ref().map(|_| Waiting::new("merger".into())).transpose()?;
        // Nothing fails from here on.

        let policies: Vec<_> = devices.iter().map(|device| device.policy).collect();
        let (links, views) = self.start_masters(devices, &plan, &spec);
        let places = Arc::new(DropPlaces::of_registered());
        let own: Vec<_> = (0..n).map(|i| plan.of_one(i)).collect();
        let heirs_of: Vec<_> = (0..n).map(|i| plan.heirs(i)).collect();
        let view = EngineView {
            workers: (0..n)
                .map(|_| Arc::new(WorkerCounters::new(plan.stages.len(), &places)))
                .collect(),
            stages: plan.stages,
            segments: plan.segments.to_vec(),
            pipelines: plan.pipelines.iter().map(Pipeline::view).collect(),
            hooks: hooks.clone(),
            cpus: spec.workers.iter().map(|w| w.cpu).collect(),
            base: Mutex::new(Vec::new()),
            merging: merging.clone(),
            masters: views,
        };
        if let Some(before) = &spec.before {
            view.go_on_from(before);
        }
        let view = Arc::new(view);

        // The reader is never further ahead than a ring is long.
        let ring_packets = if merging.is_some() { WINDOW_PACKETS } else { RING_PACKETS };
        let (rings_in, rings_out) = rings(&wakeups, ring_packets);
        let heirs = Arc::new(Heirs::new(n));
        let rings = rings_in.into_iter().zip(rings_out);
        let settings = Settings {
            until_finished: spec.until_finished,
            packet_time: spec.packet_time,
            lossless: spec.lossless,
            chunk_packets: spec.chunk_packets.clamp(1, CHUNK_PACKETS_MAX),
            max_delay: spec.max_delay.unwrap_or_default(),
        };
        let given = spec.workers.into_iter().zip(threads).zip(rings).zip(own);
        for (i, (given, quiet)) in given.zip(Quiet::of_workers(n)).enumerate() {
            let (((worker, thread), (rings_in, rings_out)), pipelines) = given;
            let cpu = worker.cpu;
            let device = worker.device.unwrap_or(i % policies.len().max(1));
            let policy = policies.get(device).copied().unwrap_or(Policy::Cpu);
            let parts = Parts {
                path: Path {
                    versions: worker.versions,
                    stages: worker.pipelines.into_iter().flat_map(|own| own.stages).collect(),
                    pipelines,
                    segments: plan.segments.clone(),
                    zeroed: zeroed.clone(),
                },
                queues: Queues {
                    pool: Pool::new(spec.depot.clone(), 2 * CHUNK_PACKETS_MAX),
                    rx: worker.rx,
                    tx: worker.tx.into_iter().map(TxSide::new).collect(),
                    host: worker.host.into_iter().map(TxSide::new).collect(),
                },
                links: Links {
                    index: i as u16,
                    rings_in,
                    rings_out,
                    wakeup: wakeups[i].clone(),
                    master: links.get(device).cloned().flatten(),
                    returns: returns[i].clone(),
                    lane: merging.as_ref().map(|merging| Lane::new(merging.clone(), i as u16)),
                    heirs: heirs.clone(),
                    heirs_of: heirs_of[i].clone(),
                    quiet,
                },
                signals: signals.clone(),
                reports: Reports {
                    counters: view.workers[i].clone(),
                    hooks: hooks.clone(),
                    on_drop: worker.on_drop,
                    on_dump: worker.on_dump,
                    on_panic: spec.on_panic.clone(),
                    on_error: spec.on_error.clone(),
                    host_gate: spec.host_gate.clone(),
                },
                settings,
                chunks: spec.chunks.max(2),
                layout: layout.clone(),
                balance: Balance::new(policy, spec.max_delay),
            };
            self.workers.push(thread.begin(move || {
                if let Some(cpu) = cpu {
                    core_affinity::set_for_current(core_affinity::CoreId { id: cpu });
                }
                Worker::new(parts).run()
            }));
        }
        if let Some(((merger, merging), thread)) = merger.zip(merging).zip(of_merger) {
            self.merger = Some((merging, thread.begin(move || merger.run())));
        }
        Ok(view)
    }

    /// Starts a master for each device that comes up; by device its link, and the views of those.
    #[expect(clippy::type_complexity, reason = "two lists")]
    fn start_masters(
        &mut self,
        devices: Vec<Reserved<V>>,
        plan: &Plan,
        spec: &EngineSpec<V>,
    ) -> (Vec<Option<Arc<MasterLink<V>>>>, Vec<MasterLook>) {
        let (mut links, mut views) = (Vec::new(), Vec::new());
        for (number, own) in devices.into_iter().enumerate() {
            let Reserved { link, device, mut report, thread, .. } = own;
            match device.map(|device| device.complete(spec.depot.region())) {
                Some(Ok(device)) => {
                    let name = device.name();
                    // Twins are a device's own.
                    let crew =
                        Arc::new(Crew::new(plan.shaders(&spec.workers), plan.states.clone()));
                    let segments = plan.segments.clone();
                    let side = Master::new(link.clone(), device, crew, segments, report);
                    self.masters.push((link.clone(), thread.begin(move || side.run())));
                    let seen = link.clone();
                    views.push(Box::new(move || MasterView::of(number, &name, &seen)) as _);
                    links.push(Some(link));
                }
                Some(Err(error)) => {
                    report(None, DeviceEvent::GivenUp(&error));
                    links.push(None);
                }
                // It has been reported.
                None => links.push(None),
            }
        }
        (links, views)
    }

    fn are_finished(&self) -> bool {
        self.workers.iter().all(JoinHandle::is_finished)
    }

    /// See [`Engine::stop`].
    fn stop(self, patience: Duration) -> Result<(), String> {
        let deadline = self.signal(patience);
        self.recycle(Some(deadline))
    }

    /// Tells the workers to stop and waits until they have, or have been told to give up; when that is at the latest.
    fn signal(&self, patience: Duration) -> Instant {
        self.signals.stop.store(true, Ordering::Release);
        self.wakeups.iter().for_each(Wakeup::wake);
        let deadline = Instant::now() + patience;
        while !self.are_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(200));
            self.wakeups.iter().for_each(Wakeup::wake);
        }
        if !self.are_finished() {
            self.signals.abort.store(true, Ordering::Release);
        }
        deadline
    }

    /// See [`Engine::join`].
    fn join(self) -> Result<(), String> {
        self.recycle(None)
    }

    /// Ends them, and all queues.
    fn recycle(self, deadline: Option<Instant>) -> Result<(), String> {
        let (_, died) = self.end(deadline, |worker| {
            worker.recycle();
            None::<()>
        });
        died.map_or(Ok(()), Err)
    }

    /// Ends them; what a merger has not sent by `deadline` is given up. What `each` made of the workers, on one thread
    /// after every worker has ended, and the panic message of one that died.
    fn end<R>(
        self,
        deadline: Option<Instant>,
        each: impl FnMut(Worker<V>) -> Option<R>,
    ) -> (Vec<R>, Option<String>) {
        let mut died = None;
        let mut ended = Vec::new();
        for thread in self.workers {
            match thread.join() {
                Ok(worker) => ended.extend(worker),
                Err(panic) => died = Some(panic_text(&*panic)),
            }
        }
        let ended = ended.into_iter().filter_map(each).collect();
        if let Some((merging, thread)) = self.merger {
            merging.end();
            while deadline.is_some_and(|deadline| Instant::now() < deadline)
                && !thread.is_finished()
            {
                std::thread::sleep(Duration::from_micros(200));
            }
            if deadline.is_some() {
                self.signals.abort.store(true, Ordering::Release);
            }
            match thread.join() {
                Ok(merger) => drop(merger),
                Err(panic) => died = Some(panic_text(&*panic)),
            }
        }
        for (link, thread) in self.masters {
            link.stop.store(true, Ordering::Release);
            link.wakeup.wake();
            if let Err(panic) = thread.join() {
                died = Some(panic_text(&*panic));
            }
        }
        (ended, died)
    }
}

/// What follows from the stages of all workers, with the layout of their columns. Their drop reasons are registered.
pub(crate) fn plan<V: Versions>(
    spec: &EngineSpec<V>,
) -> Result<(Plan, chunk::Layout), EngineError> {
    if spec.workers.is_empty() {
        return Err(EngineError::Spec("an engine needs a worker".into()));
    }
    if let Some(small) = spec.devices.iter().position(|d| d.rows < CHUNK_PACKETS_MAX) {
        return Err(EngineError::Spec(format!(
            "device {small}: a job of {} rows has no room for a chunk of {CHUNK_PACKETS_MAX}",
            spec.devices[small].rows
        )));
    }
    let pipelines = || spec.workers.iter().flat_map(|worker| &worker.pipelines);
    let stages = || pipelines().flat_map(|pipeline| &pipeline.stages).map(|stage| &**stage);
    for block in stages().flat_map(|stage| stage.drop_reasons()) {
        chunk::reasons::register(block)?;
    }
    // Rows of the largest arena that there will be: a worker's own, or a job's.
    let rows = spec.devices.iter().map(|device| device.rows).max().unwrap_or(0);
    let layout = columns::layout(stages(), rows.max(spec.chunks.max(2) * CHUNK_PACKETS_MAX))?;
    let plan = Plan::of(spec, &layout)?;
    Ok((plan, layout))
}

/// The merger of an engine, which takes the workers' transmit queues and their sink of drops.
fn merger_of<V: Versions>(
    spec: &mut EngineSpec<V>,
    in_order: InOrder,
    abort: Arc<AtomicBool>,
) -> Result<(Merger, Arc<Merging>), EngineError> {
    let workers = &mut spec.workers;
    let n = workers.len();
    let mut queues = workers.iter().flat_map(|worker| &worker.rx);
    match (queues.next(), queues.next()) {
        (Some(slot), None) if n == 1 || slot.spread.is_some() => {}
        _ => return Err(EngineError::Spec("capture order needs one receive queue, spread".into())),
    }
    let tx = outs(workers.iter_mut().map(|worker| &mut worker.tx))?;
    let host = outs(workers.iter_mut().map(|worker| &mut worker.host))?;
    let on_drop = workers.iter_mut().find_map(|worker| worker.on_drop.take());
    let on_dump = workers.iter_mut().find_map(|worker| worker.on_dump.take());
    let (depot, on_error) = (spec.depot.clone(), spec.on_error.clone());
    let parts =
        MergerParts { workers: n, depot, tx, host, on_drop, on_dump, on_error, in_order, abort };
    Ok(Merger::new(parts)?)
}

/// Takes the queues of all workers, by port.
fn outs<'a>(
    workers: impl Iterator<Item = &'a mut Vec<TxSlot>>,
) -> Result<Vec<Option<Out>>, EngineError> {
    let mut outs: Vec<Option<Out>> = Vec::new();
    for slots in workers {
        outs.resize_with(outs.len().max(slots.len()), || None);
        for (slot, out) in slots.iter_mut().zip(&mut outs) {
            if let TxSlot::Own(queue, counters) = std::mem::replace(slot, TxSlot::Absent) {
                let waiting = Vec::with_capacity(4 * CHUNK_PACKETS_MAX);
                if out.replace(Out { queue, counters, waiting }).is_some() {
                    let message = "capture order needs one queue for each port";
                    return Err(EngineError::Spec(message.into()));
                }
            }
        }
    }
    Ok(outs)
}
