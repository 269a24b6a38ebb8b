//! What an engine needs of the system, made before it starts.
//!
//! One engine follows another in a moment in which nothing may fail or take long, for the one before has stopped
//! ([`crate::Suspended`]). So threads and descriptors are there before that moment, and the kernels of devices are built: a
//! thread waits for its work, and ends if none comes.
//!
//! ```text
//!  EngineSpec::reserve ─▶ Reserve (threads that wait, wakeups, devices) ─▶ Engine::start_reserved ─▶ workers, masters
//!                            └─ dropped: the threads end
//! ```

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use chunk::{CHUNK_PACKETS_MAX, Layout, Region};
use crossbeam_queue::ArrayQueue;
use device::accelerator::{self, Accelerator, SegmentProgram};
use device::{Device, DeviceError, SimulatedDevice};

use crate::balance::Policy;
use crate::engine::{DeviceEvent, DeviceKind, DeviceSpec, EngineError, EngineSpec, plan};
use crate::in_flight::{Job, Returns};
use crate::master::MasterLink;
use crate::plan::Plan;
use crate::ring::Wakeup;
use crate::segment::Segment;
use crate::stage::Versions;
use crate::worker::Worker;

/// What runs on a thread.
type Work<R> = Box<dyn FnOnce() -> R + Send>;

/// A thread with what its work came to; nothing without work.
pub(crate) type Working<R> = JoinHandle<Option<R>>;

/// A thread that waits for its work.
pub(crate) struct Waiting<R> {
    work: SyncSender<Work<R>>,
    thread: Working<R>,
}

impl<R: Send + 'static> Waiting<R> {
    /// A thread of this name.
    ///
    /// # Errors
    /// The system gives none.
    pub(crate) fn new(name: String) -> io::Result<Self> {
        let (work, inbox) = sync_channel::<Work<R>>(1);
        let wait = move || inbox.recv().ok().map(|work| work());
        Ok(Self { work, thread: Builder::new().name(name).spawn(wait)? })
    }

    /// Gives it its work; what that comes to, from the thread.
    pub(crate) fn begin(self, work: impl FnOnce() -> R + Send + 'static) -> Working<R> {
        // It waits for nothing else, and there is room.
        let _ = self.work.send(Box::new(work));
        self.thread
    }
}

/// Threads, descriptors and devices of an engine that is to start ([`Engine::start_reserved`](crate::Engine::start_reserved)).
/// They are given back if it is dropped.
pub struct Reserve<V: Versions> {
    pub(crate) plan: Plan,
    /// Of the chunks' columns.
    pub(crate) layout: Layout,
    pub(crate) workers: Vec<Waiting<Worker<V>>>,
    /// By worker.
    pub(crate) wakeups: Vec<Wakeup>,
    /// By worker: where its chunks come back from masters.
    pub(crate) returns: Vec<Returns<V>>,
    pub(crate) devices: Vec<Reserved<V>>,
}

/// Told of a device's failures; those of a segment with its number.
pub(crate) type Report = Box<dyn FnMut(Option<usize>, DeviceEvent<'_>) + Send>;

/// A device and the thread of its master.
pub(crate) struct Reserved<V: Versions> {
    pub(crate) policy: Policy,
    pub(crate) link: Arc<MasterLink<V>>,
    /// `None` for one that did not come up, which is not a reason not to start: the CPU shades.
    pub(crate) device: Option<ReadyDevice<V>>,
    pub(crate) report: Report,
    pub(crate) thread: Waiting<()>,
}

/// A device whose kernels are built.
pub(crate) enum ReadyDevice<V: Versions> {
    Simulated(SimulatedDevice<Job<V>>),
    Accelerator(Box<Accelerator<Job<V>>>),
}

impl<V: Versions> ReadyDevice<V> {
    /// The device as a master has it; `region` is where the packets' cells are.
    pub(crate) fn complete(
        self,
        region: &'static Region,
    ) -> Result<Box<dyn Device<Job<V>>>, DeviceError> {
        match self {
            Self::Simulated(device) => Ok(Box::new(device)),
            Self::Accelerator(mut device) => device.share(region).map(|()| device as Box<_>),
        }
    }
}

impl<V: Versions> EngineSpec<V> {
    /// Threads and descriptors for an engine of this spec, and its devices, which are taken out of the spec: their kernels
    /// are built here, which may take seconds.
    ///
    /// # Errors
    /// As [`Engine::start`](crate::Engine::start); nothing is left then of what the system gave.
    pub fn reserve(&mut self) -> Result<Reserve<V>, EngineError> {
        let (plan, layout) = plan(self)?;
        let n = self.workers.len();
        let chunks = self.chunks.max(2);
        let worker = |i| Waiting::new(format!("worker-{i}"));
        let workers = (0..n).map(worker).collect::<io::Result<_>>()?;
        let wakeups = (0..n).map(|_| Wakeup::new()).collect::<io::Result<Vec<_>>>()?;
        let returns: Vec<Returns<V>> = (0..n).map(|_| Arc::new(ArrayQueue::new(chunks))).collect();
        let (needed, idle) = (self.needed(&plan), self.idle(&plan));
        if let (Some((_, stage)), true) = (needed.first(), self.devices.is_empty()) {
            return Err(EngineError::NeedsDevice(stage));
        }
        let mut devices = Vec::new();
        for (number, device) in std::mem::take(&mut self.devices).into_iter().enumerate() {
            let thread = Waiting::new(format!("master-{number}"))?;
            let rows = device.rows.max(CHUNK_PACKETS_MAX);
            let layout = layout.with_capacity(rows);
            let ends = returns.iter().cloned().zip(wakeups.iter().cloned()).collect();
            let sizes = (device.slots + 2, n * chunks, plan.segments.len());
            let link = Arc::new(MasterLink::new(&layout, sizes, ends, Wakeup::new()?));
            let report = self.on_device_error.clone();
            let idle = idle.clone();
            let mut report: Report = Box::new(move |segment, event| {
                let is_of = |own: &&(usize, String)| match event {
                    DeviceEvent::GivenUp(_) => true,
                    DeviceEvent::SegmentGivenUp(_) => segment == Some(own.0),
                    _ => false,
                };
                let texts = idle.iter().filter(is_of).map(|(_, text)| DeviceEvent::Idle(text));
                for event in [event].into_iter().chain(texts) {
                    // A sink that panics must not end the master, which holds chunks of all workers.
                    let _ = catch_unwind(AssertUnwindSafe(|| report(number, event)));
                }
            });
            let policy = device.policy;
            let device = open(device, layout, plan.programs.clone(), &link);
            for (segment, stage) in &needed {
                let refused = match &device {
                    Ok(ReadyDevice::Simulated(_)) => return Err(EngineError::NeedsDevice(stage)),
                    Ok(ReadyDevice::Accelerator(device)) => device.disabled(*segment),
                    Err(error) => Some(error),
                };
                if let Some(error) = refused {
                    let error = self.explained(&plan, *segment, error.clone());
                    return Err(EngineError::Kernels { stage, error });
                }
            }
            let device = device.map_err(|error| report(None, DeviceEvent::GivenUp(&error))).ok();
            devices.push(Reserved { policy, link, device, report, thread });
        }
        Ok(Reserve { plan, layout, workers, wakeups, returns, devices })
    }
}

impl<V: Versions> EngineSpec<V> {
    /// The programs that [`EngineSpec::reserve`] builds, for a process that compiles them before ([`device::apart`]).
    ///
    /// # Errors
    /// As [`Engine::start`](crate::Engine::start).
    pub fn programs(&self) -> Result<Vec<device::apart::Kernels>, EngineError> {
        let (plan, _) = plan(self)?;
        let made = plan.programs.into_iter().flatten().map(|segment| {
            let kernels = segment.steps.iter().flat_map(|step| {
                let instead = step.part.as_ref().map(|part| part.instead.to_string());
                let names = [step.kernel.to_string()].into_iter().chain(instead);
                names.map(|name| (name, step.items))
            });
            (segment.program.clone(), kernels.collect())
        });
        Ok(made.collect())
    }

    /// Segments that have a shade without a CPU form, each with the name of its stage.
    fn needed(&self, plan: &Plan) -> Vec<(usize, &'static str)> {
        let shaders = plan.shaders(&self.workers);
        let of_segment = |(number, segment): (usize, &Segment)| {
            let all = shaders.iter().flat_map(|own| own[number].iter());
            let mut all = all.filter(|(_, shade)| shade.needs_device());
            all.next().map(|(at, _)| (number, plan.stages[segment.first + at]))
        };
        plan.segments.iter().enumerate().filter_map(of_segment).collect()
    }

    /// An error of a segment's program, as its shades explain it.
    fn explained(&self, plan: &Plan, segment: usize, error: DeviceError) -> DeviceError {
        let DeviceError::Build { name, log } = error else { return error };
        let shaders = plan.shaders(&self.workers);
        let shades = shaders.first().map_or(&[][..], |own| &own[segment][..]);
        let log = shades.iter().fold(log, |log, (_, shade)| shade.explained(&log));
        DeviceError::Build { name, log }
    }

    /// By segment: what their shades without a CPU form do if there is no device any more.
    fn idle(&self, plan: &Plan) -> Vec<(usize, String)> {
        let shaders = plan.shaders(&self.workers);
        let all = shaders.iter().flat_map(|own| own.iter().enumerate());
        let mut texts: Vec<(usize, String)> = Vec::new();
        for (segment, shades) in all {
            for text in shades.iter().flat_map(|(_, shade)| shade.without_device()) {
                // All workers say the same.
                if !texts.contains(&(segment, text.clone())) {
                    texts.push((segment, text));
                }
            }
        }
        texts
    }
}

fn open<V: Versions>(
    device: DeviceSpec<V::Tables>,
    layout: Layout,
    programs: Vec<Option<SegmentProgram>>,
    link: &MasterLink<V>,
) -> Result<ReadyDevice<V>, DeviceError> {
    match device.kind {
        DeviceKind::Simulated { cost, faults } => {
            SimulatedDevice::new(device.slots, cost, faults).map(ReadyDevice::Simulated)
        }
        DeviceKind::Driver { driver, tables, options } => {
            let options = accelerator::Options { slots: device.slots, ..options };
            let arenas = link.arenas();
            let opened = Accelerator::open(driver, layout, programs, tables, arenas, options);
            opened.map(|device| ReadyDevice::Accelerator(Box::new(device)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_work_or_ends() {
        let waiting = Waiting::new("idle".into()).unwrap();
        let thread = waiting.begin(|| std::thread::current().name() == Some("idle"));
        assert_eq!(thread.join().unwrap(), Some(true));
        let Waiting::<u8> { work, thread } = Waiting::new("idle".into()).unwrap();
        drop(work);
        assert_eq!(thread.join().unwrap(), None);
    }
}
