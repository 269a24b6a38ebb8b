//! Building an engine, starting it, and stopping it without loss.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use chunk::{CHUNK_PACKETS_MAX, Depot, DropReason, Layout, Pool};
use crossbeam_queue::ArrayQueue;
use device::accelerator::{self, Accelerator, Traffic};
use device::driver::Driver;
use device::tables::TableSource;
use device::{Cost, Device, DeviceError, FaultPlan, SimulatedDevice};

use crate::balance::{Balance, Policy};
use crate::counters::WorkerCounters;
use crate::flight::Job;
use crate::hooks::Hooks;
use crate::master::{Master, MasterLink};
use crate::ring::Bell;
use crate::segment::{Segment, segment_program, segments};
use crate::stage::{Stage, Versions};
use crate::worker::{
    DropSink, ErrorSink, Parts, RING_PACKETS, RxSlot, TxSlot, Worker, segment_shaders,
};

/// What one worker is given.
pub struct WorkerSpec<V: Versions> {
    /// The core it is pinned to; `None` leaves that to the system.
    pub cpu: Option<usize>,
    /// Its view of the tables.
    pub versions: V,
    /// Its instances of the pipeline's stages; the same names at every worker.
    pub stages: Vec<Box<dyn Stage<V::Tables>>>,
    /// Queues that it receives from.
    pub rx: Vec<RxSlot>,
    /// By port: where packets to send go.
    pub tx: Vec<TxSlot>,
    /// By interface: where packets for its twin go.
    pub host: Vec<TxSlot>,
    /// Told of each dropped packet.
    pub on_drop: Option<DropSink>,
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

/// What stands behind a device.
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
    /// The pipeline's columns; the capacity is of no account.
    pub layout: Layout,
    /// All free cells.
    pub depot: Arc<Depot>,
    /// Packets in a chunk at most.
    pub chunk_packets: usize,
    /// Chunks in flight at each worker at most.
    pub chunks: usize,
    /// Shade on a device as well.
    pub device: Option<DeviceSpec<V::Tables>>,
    /// A chunk waits until it is full, but not so long that a packet would be under way for longer
    /// than this (GSwitch §5). `None`: a burst leaves at once.
    pub max_delay: Option<Duration>,
    /// Take time from the packets: offline.
    pub packet_time: bool,
    /// Stop by itself once every source is finished.
    pub until_finished: bool,
    /// Wait for full transmit queues instead of dropping: for files, never for networks.
    pub lossless: bool,
    /// Told of a queue's failure.
    pub on_error: ErrorSink,
    /// Told of the device's failures.
    pub on_device_error: Box<dyn FnMut(DeviceEvent<'_>) + Send>,
}

/// What becomes of a device that fails. Its packets are shaded on the CPU either way.
#[derive(Clone, Copy, Debug)]
pub enum DeviceEvent<'a> {
    /// A job failed; told once for each kind of error. Later jobs go to the device again.
    JobFailed(&'a DeviceError),
    /// It is used no more, since the start or from now on; told once.
    GivenUp(&'a DeviceError),
}

/// Why an engine could not start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// There is no worker, or workers differ in their stages.
    #[error("{0}")]
    Spec(&'static str),
    /// No thread or descriptor was to be had.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// A running engine.
pub struct Engine<V: Versions> {
    workers: Vec<JoinHandle<Worker<V>>>,
    master: Option<(Arc<MasterLink<V>>, JoinHandle<()>)>,
    bells: Vec<Bell>,
    stop: Arc<AtomicBool>,
    abort: Arc<AtomicBool>,
    view: Arc<EngineView>,
    depot: Arc<Depot>,
}

/// What others may see of a running engine; it outlives it.
pub struct EngineView {
    /// Names of the stages, in order.
    pub stages: Vec<&'static str>,
    /// How they are cut into segments.
    pub segments: Vec<Segment>,
    /// By worker.
    pub workers: Vec<Arc<WorkerCounters>>,
    /// Where captures and traces are started.
    pub hooks: Arc<Hooks>,
    /// The core of each worker.
    pub cpus: Vec<Option<usize>>,
    base: Mutex<Vec<u64>>,
    master: Option<Box<dyn Fn() -> MasterView + Send + Sync>>,
}

/// What the master and its device did, read at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MasterView {
    /// The device's name.
    pub device: String,
    /// Jobs launched.
    pub jobs: u64,
    /// Packets in them.
    pub packets: u64,
    /// Jobs done again on the CPU.
    pub failed: u64,
    /// Jobs in flight now.
    pub in_flight: u64,
    /// Most jobs in flight at a time.
    pub in_flight_max: u64,
    /// Whether the device is used no more.
    pub is_lost: bool,
    /// Nanoseconds a row between the ends of jobs; 0 before the first.
    pub row_ns: f64,
    /// How long a chunk is away, nanoseconds; 0 before the first.
    pub away_ns: u64,
    /// What travelled.
    pub traffic: Traffic,
}

/// Sums over all workers, of one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTotals {
    /// Chunks seen.
    pub calls: u64,
    /// Packets that came in with the verdict next.
    pub packets: u64,
    /// Nanoseconds spent.
    pub busy_ns: u64,
}

impl EngineView {
    /// Packets dropped for `reason` since the last [`EngineView::clear`].
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.workers.iter().map(|w| w.drops(reason)).sum::<u64>()
            - self.base(self.stages.len() * 3 + reason as usize)
    }

    /// What stage `i` did since the last [`EngineView::clear`].
    pub fn stage(&self, i: usize) -> StageTotals {
        let sum = |f: fn(&crate::counters::StageCounters) -> u64| {
            self.workers.iter().map(|w| f(&w.stages[i])).sum::<u64>()
        };
        StageTotals {
            calls: sum(|s| s.calls.get()) - self.base(3 * i),
            packets: sum(|s| s.packets.get()) - self.base(3 * i + 1),
            busy_ns: sum(|s| s.busy_ns.get()) - self.base(3 * i + 2),
        }
    }

    /// What the master did; `None` without one.
    pub fn master(&self) -> Option<MasterView> {
        self.master.as_ref().map(|view| view())
    }

    /// Counts from zero from now on, as seen here. Counters have one writer, so what they showed is
    /// kept and taken off.
    pub fn clear(&self) {
        let mut base = self.base.lock().unwrap_or_else(PoisonError::into_inner);
        base.clear();
        let stages: Vec<u64> = {
            let sum = |i: usize, f: fn(&crate::counters::StageCounters) -> u64| {
                self.workers.iter().map(|w| f(&w.stages[i])).sum::<u64>()
            };
            (0..self.stages.len())
                .flat_map(|i| {
                    [
                        sum(i, |s| s.calls.get()),
                        sum(i, |s| s.packets.get()),
                        sum(i, |s| s.busy_ns.get()),
                    ]
                })
                .collect()
        };
        base.extend(stages);
        base.extend(
            chunk::DROP_REASONS
                .iter()
                .map(|&r| self.workers.iter().map(|w| w.drops(r)).sum::<u64>()),
        );
    }

    fn base(&self, i: usize) -> u64 {
        self.base.lock().unwrap_or_else(PoisonError::into_inner).get(i).copied().unwrap_or(0)
    }
}

impl<V: Versions> Engine<V> {
    /// Starts every thread.
    ///
    /// # Errors
    /// When the spec makes no sense or the system gives no thread.
    pub fn start(spec: EngineSpec<V>) -> Result<Self, EngineError> {
        let Some(first) = spec.workers.first() else {
            return Err(EngineError::Spec("an engine needs a worker"));
        };
        let names: Vec<_> = first.stages.iter().map(|s| s.name()).collect();
        if spec.workers.iter().any(|w| !w.stages.iter().map(|s| s.name()).eq(names.iter().copied()))
        {
            return Err(EngineError::Spec("the workers' pipelines differ"));
        }
        let n = spec.workers.len();
        let mut cut = segments(&first.stages);
        let mut programs: Vec<_> = cut
            .iter()
            .map(|segment| match (&spec.device, segment.on_device) {
                (Some(DeviceSpec { kind: DeviceKind::Driver { .. }, .. }), true) => {
                    segment_program(&first.stages, *segment, spec.layout.columns())
                }
                _ => None,
            })
            .collect();
        let is_real =
            matches!(&spec.device, Some(DeviceSpec { kind: DeviceKind::Driver { .. }, .. }));
        for (segment, program) in cut.iter_mut().zip(&programs) {
            // The simulated device runs its jobs side by side on the host's own state: it has no order
            // to keep state in.
            segment.on_device &= if is_real { program.is_some() } else { !segment.has_state };
        }
        let segments: Arc<[Segment]> = cut.into();
        let of_worker = |w: &WorkerSpec<V>| segment_shaders(&w.stages, &segments);
        let shaders = spec.workers.iter().map(of_worker).collect();
        let chunks = spec.chunks.max(2);
        let bells = (0..n).map(|_| Bell::new()).collect::<io::Result<Vec<_>>>()?;
        let returns: Vec<_> = (0..n).map(|_| Arc::new(ArrayQueue::new(chunks))).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let abort = Arc::new(AtomicBool::new(false));
        let hooks = Arc::new(Hooks::default());

        let mut report = spec.on_device_error;
        let policy = spec.device.as_ref().map_or(Policy::Cpu, |device| device.policy);
        let mut master = None;
        if let Some(device) = spec.device {
            let rows = device.rows.max(CHUNK_PACKETS_MAX);
            let layout = spec.layout.with_capacity(rows);
            let ends = returns.iter().cloned().zip(bells.iter().cloned()).collect();
            let link =
                MasterLink::new(&layout, device.slots + 2, ends, n * chunks, segments.len())?;
            let link = Arc::new(link);
            let opened: Result<Box<dyn Device<Job<V>>>, DeviceError> = match device.kind {
                DeviceKind::Simulated { cost, faults } => {
                    SimulatedDevice::new(device.slots, cost, faults).map(|d| Box::new(d) as Box<_>)
                }
                DeviceKind::Driver { driver, tables, options } => {
                    let options = accelerator::Options { slots: device.slots, ..options };
                    let programs = std::mem::take(&mut programs);
                    let arenas = link.arenas();
                    let region = Some(spec.depot.region());
                    Accelerator::new(driver, layout, programs, tables, arenas, region, options)
                        .map(|d| Box::new(d) as Box<_>)
                }
            };
            match opened {
                Ok(device) => {
                    let name = device.name();
                    let side = Master::new(link.clone(), device, shaders, segments.clone(), report);
                    let thread = std::thread::Builder::new()
                        .name("master".into())
                        .spawn(move || side.run())?;
                    master = Some((link, thread, name));
                }
                // A device that does not come up is no reason not to start: the CPU shades.
                Err(error) => report(DeviceEvent::GivenUp(&error)),
            }
        }
        let view = Arc::new(EngineView {
            workers: (0..n).map(|_| Arc::new(WorkerCounters::new(names.len()))).collect(),
            stages: names,
            segments: segments.to_vec(),
            hooks: hooks.clone(),
            cpus: spec.workers.iter().map(|w| w.cpu).collect(),
            base: Mutex::new(Vec::new()),
            master: master.as_ref().map(|(link, _, name)| {
                let (link, name) = (link.clone(), name.clone());
                Box::new(move || MasterView::of(&name, &link)) as Box<_>
            }),
        });

        // ring[i][j]: from worker i to worker j.
        let mut rings_in: Vec<Vec<_>> = (0..n).map(|_| Vec::new()).collect();
        let mut rings_out: Vec<Vec<_>> = (0..n).map(|_| Vec::new()).collect();
        for (i, out) in rings_out.iter_mut().enumerate() {
            for (j, bell) in bells.iter().enumerate() {
                if i == j {
                    out.push(None);
                } else {
                    let (producer, consumer) = rtrb::RingBuffer::new(RING_PACKETS);
                    out.push(Some((producer, bell.clone())));
                    rings_in[j].push(consumer);
                }
            }
        }
        let quiet_workers = Arc::new(AtomicUsize::new(0));
        let mut workers = Vec::new();
        for (i, (worker, (rings_in, rings_out))) in
            spec.workers.into_iter().zip(rings_in.into_iter().zip(rings_out)).enumerate()
        {
            let cpu = worker.cpu;
            let parts = Parts {
                index: i as u16,
                pool: Pool::new(spec.depot.clone(), 2 * CHUNK_PACKETS_MAX),
                versions: worker.versions,
                stages: worker.stages,
                segments: segments.clone(),
                layout: spec.layout.clone(),
                rx: worker.rx,
                tx: worker.tx,
                host: worker.host,
                rings_in,
                rings_out,
                bell: bells[i].clone(),
                master: master.as_ref().map(|(link, ..)| link.clone()),
                returns: returns[i].clone(),
                balance: Balance::new(policy, spec.max_delay),
                max_delay: spec.max_delay.unwrap_or_default(),
                counters: view.workers[i].clone(),
                hooks: hooks.clone(),
                on_drop: worker.on_drop,
                on_error: spec.on_error.clone(),
                quiet_workers: quiet_workers.clone(),
                until_finished: spec.until_finished,
                stop: stop.clone(),
                abort: abort.clone(),
                packet_time: spec.packet_time,
                lossless: spec.lossless,
                chunk_packets: spec.chunk_packets,
                chunks,
            };
            let thread =
                std::thread::Builder::new().name(format!("worker-{i}")).spawn(move || {
                    if let Some(cpu) = cpu {
                        core_affinity::set_for_current(core_affinity::CoreId { id: cpu });
                    }
                    Worker::new(parts).run()
                })?;
            workers.push(thread);
        }
        let master = master.map(|(link, thread, _)| (link, thread));
        Ok(Self { workers, master, bells, stop, abort, view, depot: spec.depot })
    }

    /// What may be seen of it.
    pub fn view(&self) -> &Arc<EngineView> {
        &self.view
    }

    /// Whether every worker has ended: all sources were finished, or a thread panicked.
    pub fn is_finished(&self) -> bool {
        self.workers.iter().all(JoinHandle::is_finished)
    }

    /// Stops receiving, lets every packet come to its end, and ends the threads. Packets that the
    /// transmit queues do not get rid of within `patience` are given up.
    ///
    /// # Errors
    /// The panic message of a worker that died.
    pub fn stop(self, patience: Duration) -> Result<(), String> {
        self.stop.store(true, Ordering::Release);
        self.bells.iter().for_each(Bell::ring);
        let deadline = Instant::now() + patience;
        while !self.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(200));
            self.bells.iter().for_each(Bell::ring);
        }
        self.abort.store(true, Ordering::Release);
        self.join()
    }

    /// Waits until every worker has ended by itself.
    ///
    /// # Errors
    /// The panic message of a worker that died.
    pub fn join(self) -> Result<(), String> {
        let mut died = None;
        // All queues are dropped here, on one thread, after every worker has ended.
        let mut ended = Vec::new();
        for thread in self.workers {
            match thread.join() {
                Ok(worker) => ended.push(worker),
                Err(panic) => died = Some(panic_text(&*panic)),
            }
        }
        ended.into_iter().for_each(Worker::recycle);
        if let Some((link, thread)) = self.master {
            link.stop.store(true, Ordering::Release);
            link.bell.ring();
            if let Err(panic) = thread.join() {
                died = Some(panic_text(&*panic));
            }
        }
        died.map_or(Ok(()), Err)
    }

    /// Free cells; see [`Depot::available`].
    pub fn depot(&self) -> &Arc<Depot> {
        &self.depot
    }
}

impl MasterView {
    fn of<V: Versions>(device: &str, link: &MasterLink<V>) -> Self {
        let counters = &link.counters;
        Self {
            device: device.to_owned(),
            jobs: counters.jobs.load(Ordering::Relaxed),
            packets: counters.packets.load(Ordering::Relaxed),
            failed: counters.failed.load(Ordering::Relaxed),
            in_flight: counters.in_flight.load(Ordering::Relaxed),
            in_flight_max: counters.in_flight_max.load(Ordering::Relaxed),
            is_lost: link.is_lost.load(Ordering::Relaxed),
            row_ns: link.cost.row_ns().unwrap_or(0.0),
            away_ns: link.cost.away().map_or(0, |away| away.as_nanos() as u64),
            traffic: *counters.traffic.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a thread panicked".into())
}
