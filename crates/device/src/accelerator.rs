//! A device that runs kernels, seen as one that shades jobs.
//!
//! Over any [`Driver`]: slots with a queue each, so that the copies of one job run beside the kernels of
//! another; device memory laid out for each job by its number of rows; one version of all tables for
//! each launch.
//!
//! ```text
//!  slot 0  up ─ kernels ─ down                  jobs without state: a queue a slot
//!  slot 1       up ─ kernels ─ down
//!
//!  slot 0  up ──┐          ┌─ down              jobs with state: their kernels on one queue, in order;
//!  slot 1     up┼──────┐   │      ┌─ down       copies stay on the slots' queues, joined by events
//!  kernels      └ job 0 ┴───┴ job 1 ┘
//! ```
//!
//! Columns that are not written are only uploaded, columns that are not read only downloaded. A small job is packed
//! into one block and goes up, and comes down, in one copy: a copy costs more to start than a small block
//! to fill. A large one is copied straight between the arenas, which the driver knows, and the device; see
//! `columns.rs` for which columns may come down so. The host's inputs stay untouched until the job has
//! ended without an error, so a job can always be done again.
//!
//! Payload goes up once for all stages of a segment: see `payload.rs`.
//!
//! Who copies what, on which thread:
//!
//! ```text
//!  workers   frames and pieces of a chunk's packets; its packed bytes       before they hand it in   `part.rs`
//!  master    columns of a small job to one block; places of frames, list    `launch`                 `launch.rs`, `payload.rs`
//!  device    columns, payload, records
//!  workers   staged columns to rows, changed payload to cells, records      when they have it back   `landing.rs`
//! ```
//!
//! Jobs that have no workers, such as those of tests and benches, leave all of it to the master's thread.
//!
//! Tables are on the device as two images. A job updates the unused image to its version, with
//! the changes since that image's own version where they are still known, else as a whole.
//!
//! A device that hangs is abandoned: nothing that it knows of is freed, now or at the end, and jobs that it
//! may still write to move to other rows before they are given back.
//!
//! Threads: belongs to its master. Jobs share what came down for them with the workers, which only read it; a slot is
//! free again when they have.

mod build;
mod columns;
mod ending;
mod job;
mod landing;
mod launch;
mod limits;
mod part;
mod payload;
mod staging;
mod state;
mod steps;
mod transfer;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chunk::{Arena, Layout, Region};

use crate::driver::{Driver, Event, Kernel, Memory, Queue};
use crate::tables::{Images, TableSource};
use crate::{Device, DeviceError};
use build::{build, warm_up};
use columns::{Places, Runs, Way};
pub use job::{
    Offload, Options, Packing, PayloadUse, PayloadWay, Scheduling, SegmentProgram, Traffic,
};
pub use landing::Landing;
use launch::{Launch, view_of};
use limits::{Late, Watch};
pub use part::{PayloadBlock, PayloadPart, PayloadWork};
use payload::{Cells, Gather, Reach};
use staging::{Quiet, Staging};
use state::Shards;
pub use state::{State, StateForm};
use steps::Areas;
pub use steps::{Area, Output, Part, Records, Step, Work};
pub use transfer::{download_all, upload_all, upload_keys};

/// Below so many bytes the columns of a job are packed into one block.
const PACK_BYTES: usize = 64 << 10;

/// Frames that are packed start at multiples of this.
const FRAME_ALIGN: usize = 16;

/// Capacity for payload that each slot begins with where a segment has payload, at most: it grows when that is needed.
const PAYLOAD_BYTES: usize = 4 << 20;

/// Capacity for packed payload beside each arena at most: what does not fit, the master packs.
const BLOCK_BYTES: usize = 16 << 20;

/// Landings beyond those of the slots: jobs start while others' results are still being read.
const SPARES: usize = 2;

/// Runs of host bytes of a common job.
const RUNS: usize = 256;

/// What comes down in one piece at most; more goes straight to the rows.
const PACK_DOWN_BYTES: usize = PACK_BYTES;

struct Built {
    steps: Vec<(Kernel, Step)>,
    /// By step: what is launched in its place if it is too slow.
    instead: Vec<Option<Kernel>>,
    order: Vec<(usize, Way)>,
    /// With the places of the columns of each frame's offset and length.
    payload: Option<(PayloadUse, [usize; 2])>,
    reach: Reach,
    areas: Areas,
    /// The areas of orders by which kernels take a job's rows.
    schedules: Vec<usize>,
    /// Some step has a time limit.
    has_limits: bool,
    states: Vec<State>,
    /// How many.
    shards: usize,
    /// Where the state is, if there is any.
    state: Option<Shards>,
    /// Jobs with state up to this number are of no use: they ran behind one that failed.
    spoilt_to: Option<u32>,
}

struct Slot<J> {
    own: Resources,
    /// What the slot's job brings down. Nobody else holds it while there is one.
    landing: Arc<Landing>,
    flight: Option<InFlight<J>>,
}

/// What a slot has for the job that it sends.
struct Resources {
    queue: Queue,
    arena: Memory,
    up: Staging,
    payload: payload::Memories,
    /// Lists of a job, kept so that none is allocated for the next: places of its columns, and copies of runs of host
    /// bytes.
    columns: Vec<(usize, usize, Way)>,
    runs: Runs,
    watch: Watch,
    /// State that goes along with the slot's job.
    state_host: Staging,
    /// Events between the queues of the slot's job, to be given back when it has ended.
    joints: Vec<Event>,
}

struct InFlight<J> {
    job: J,
    since: Instant,
    plan: FlightPlan,
}

struct FlightPlan {
    event: Event,
    image: Option<usize>,
    segment: usize,
    rows: usize,
    /// The job's own.
    number: u32,
}

/// See the module.
pub struct Accelerator<J: Offload> {
    slots: Vec<Slot<J>>,
    /// Landings for slots whose last one is still being read.
    spares: Vec<Arc<Landing>>,
    /// All queues on which jobs run.
    quiet: Quiet,
    /// Where kernels of jobs with state run, in order; `None` where all jobs run in order anyway.
    ordered: Option<Queue>,
    order: VecDeque<usize>,
    segments: Vec<Option<Built>>,
    /// By segment: why its kernels are not used, or no more.
    disabled: Vec<Option<DeviceError>>,
    /// Some of the jobs in flight may be behind a part that was too slow; when that was so last.
    late: Option<Late>,
    calm_since: Option<Instant>,
    /// Parts of stages that are used no more, until somebody asks.
    notices: VecDeque<DeviceError>,
    images: Images<J::Tables>,
    nothing: Memory,
    cells: Option<Cells>,
    /// Built and launched before there are cells: [`Accelerator::share`] takes no time.
    gather: Option<Gather>,
    layout: Layout,
    options: Options,
    traffic: Traffic,
    jobs: u32,
    /// Bytes of each slot's arena.
    arena_bytes: usize,
    lost: Option<DeviceError>,
    /// The device may still touch what it knows of.
    is_abandoned: bool,
    registered: Vec<Arena>,
    /// Ended first: see `ending.rs`.
    driver: Option<Box<dyn Driver>>,
}

impl<J: Offload> Accelerator<J> {
    /// [`Accelerator::open`] and [`Accelerator::share`] in one.
    ///
    /// # Errors
    /// As both.
    pub fn new(
        driver: Box<dyn Driver>,
        layout: Layout,
        segments: Vec<Option<SegmentProgram>>,
        source: Box<dyn TableSource<J::Tables>>,
        arenas: Vec<Arena>,
        region: Option<&'static Region>,
        options: Options,
    ) -> Result<Self, DeviceError> {
        let mut made = Self::open(driver, layout, segments, source, arenas, options)?;
        region.map_or(Ok(()), |region| made.share(region))?;
        Ok(made)
    }

    /// Builds the kernels, takes memory for `options.slots` jobs of at most `layout.capacity()` rows, and makes `arenas`
    /// known to the driver. `segments`: by number, `None` for those of the CPU. A segment whose program does not build, or
    /// whose kernels cannot be launched, leaves the others their device: see [`Device::disabled`].
    ///
    /// # Errors
    /// Whatever the driver refuses; where no program builds, the first one's error, with the compiler's log.
    pub fn open(
        mut driver: Box<dyn Driver>,
        layout: Layout,
        segments: Vec<Option<SegmentProgram>>,
        source: Box<dyn TableSource<J::Tables>>,
        arenas: Vec<Arena>,
        options: Options,
    ) -> Result<Self, DeviceError> {
        let images = Images::new(source, &mut *driver)?;
        let nothing = driver.allocate(256)?;
        // From here on whatever fails ends as a whole accelerator does: `drop` knows how.
        let mut made = Self {
            slots: Vec::new(),
            spares: Vec::new(),
            quiet: Quiet { queues: Vec::new(), patience: options.patience },
            ordered: None,
            order: VecDeque::new(),
            segments: Vec::new(),
            disabled: Vec::new(),
            late: None,
            calm_since: None,
            notices: VecDeque::new(),
            images,
            nothing,
            cells: None,
            gather: None,
            layout,
            options,
            traffic: Traffic::default(),
            jobs: 0,
            arena_bytes: 0,
            lost: None,
            is_abandoned: false,
            registered: arenas,
            driver: Some(driver),
        };
        match made.set_up(segments) {
            Ok(()) => Ok(made),
            Err(error) => {
                made.note(&error);
                Err(error)
            }
        }
    }

    /// Makes the `region` of the packets' cells known to the driver, if kernels read payload. Call it before the first job.
    /// One accelerator of a device at a time may know it: some drivers register memory once.
    ///
    /// # Errors
    /// Whatever the driver refuses beside the memory itself; without that, payload is copied.
    pub fn share(&mut self, region: &'static Region) -> Result<(), DeviceError> {
        let shared = self.set_up_cells(region);
        shared.inspect_err(|error| self.note(error))
    }

    fn set_up_cells(&mut self, region: &'static Region) -> Result<(), DeviceError> {
        let Some(driver) = self.driver.as_deref_mut() else { return Ok(()) };
        if self.segments.iter().flatten().all(|segment| segment.payload.is_none()) {
            return Ok(());
        }
        let memory = std::ptr::slice_from_raw_parts_mut(region.base().as_ptr(), region.bytes());
        // SAFETY: a region stays mapped for the life of the process. Kernels only read it, and only cells of packets of
        // the jobs in flight, which have no other holder. If the driver refuses, payload is copied.
        let shared = match unsafe { driver.share(memory) } {
            Ok(Some(shared)) => shared,
            Ok(None) => return Ok(()),
            Err(error) => {
                staging::is_taken(driver, "the region of all cells", Err::<(), _>(error));
                return Ok(());
            }
        };
        self.cells = self.gather.map(|gather| Cells { region, memory: shared, gather });
        Ok(())
    }

    fn set_up(&mut self, segments: Vec<Option<SegmentProgram>>) -> Result<(), DeviceError> {
        let Some(driver) = self.driver.as_deref_mut() else { return Ok(()) };
        for segment in segments {
            let (built, refused) = match segment.map(|s| build(driver, &self.layout, s)).transpose()
            {
                Ok(built) => (built, None),
                Err(error @ DeviceError::Build { .. }) => (None, Some(error)),
                Err(error) => return Err(error),
            };
            self.segments.push(built);
            self.disabled.push(refused);
        }
        let is_nothing_built = self.segments.iter().all(Option::is_none);
        if let (true, Some(refused)) = (is_nothing_built, self.disabled.iter().flatten().next()) {
            return Err(refused.clone());
        }
        let capacity = self.layout.capacity();
        let largest = |bytes: fn(&Areas, usize) -> usize| {
            let all = self.segments.iter().flatten().map(|segment| bytes(&segment.areas, capacity));
            all.max().unwrap_or(0)
        };
        let head_bytes = largest(|areas, _| areas.list_bytes());
        let area_bytes = largest(Areas::bytes);
        let record_bytes = largest(|areas, rows| areas.record_bytes(rows));
        if u32::try_from(arena_bytes(&self.layout) + head_bytes + area_bytes).is_err() {
            return Err(DeviceError::Memory("a job's areas are more than 4 GiB".into()));
        }
        let has_state = self.segments.iter().flatten().any(|segment| !segment.states.is_empty());
        let bytes = arena_bytes(&self.layout) + head_bytes;
        let staging = "the staging block of columns";
        self.arena_bytes = bytes + area_bytes;
        // Lists have the capacity for common jobs, so that they do not grow late, when a slot is used for the first
        // time.
        let columns = self.layout.columns().len();
        let outputs = self.segments.iter().flatten().map(|built| built.areas.outputs.len()).max();
        let landing = |driver: &mut dyn Driver| Landing {
            columns: Staging::new(driver, bytes, staging),
            results: Vec::with_capacity(columns),
            frames: Vec::with_capacity(capacity),
            records: Staging::new(driver, record_bytes, "the staging block of records"),
            outputs: Vec::with_capacity(outputs.unwrap_or(0)),
            ..Landing::default()
        };
        for i in 0..self.options.slots.max(1) {
            let queue = match self.slots.first() {
                Some(slot) if !self.options.overlap && i > 0 => slot.own.queue,
                _ => driver.queue()?,
            };
            let own = Resources {
                queue,
                arena: driver.allocate(bytes + area_bytes)?,
                up: Staging::new(driver, bytes, staging),
                payload: payload::Memories::with_capacity(capacity),
                columns: Vec::with_capacity(columns),
                runs: Runs::with_capacity(RUNS),
                watch: Watch::default(),
                state_host: Staging::default(),
                joints: Vec::with_capacity(2),
            };
            self.slots.push(Slot { own, landing: Arc::new(landing(driver)), flight: None });
        }
        self.spares.extend((0..SPARES).map(|_| Arc::new(landing(driver))));
        if has_state && self.options.overlap && self.slots.len() > 1 {
            self.ordered = Some(driver.queue()?);
        }
        self.quiet.queues =
            self.slots.iter().map(|slot| slot.own.queue).chain(self.ordered).collect();
        let (queue, limit) = (self.slots[0].own.queue, self.options.warm_up);
        let mut staged = 0;
        for built in self.segments.iter_mut().flatten().filter(|built| !built.states.is_empty()) {
            let states = built.states.clone();
            let shards = Shards::new(driver, queue, states, built.shards, limit)?;
            staged = shards.step_bytes().max(state::STAGED_BYTES).max(staged);
            built.state = Some(shards);
        }
        if has_state {
            for slot in &mut self.slots {
                slot.own.state_host = Staging::new(driver, staged, "the staging block of state");
            }
        }
        for arena in &self.registered {
            // SAFETY: `registered` keeps the arena until the driver is gone; kernels are given no
            // memory that represents it, and copies touch only rows of the jobs in flight.
            let registered = unsafe { driver.register(arena.memory()) };
            staging::is_taken(driver, "an arena", registered);
        }
        let uses = self.segments.iter().flatten().any(|segment| segment.payload.is_some());
        if uses {
            // Capacity for payload of common jobs: growing waits for all that is under way.
            let quiet = &Quiet { queues: Vec::new(), patience: self.options.patience };
            let bytes = (self.layout.capacity() * chunk::CELL_BYTES).min(PAYLOAD_BYTES);
            for slot in &mut self.slots {
                payload::at_least(driver, quiet, &mut slot.own.payload.frames, bytes)?;
                payload::at_least(driver, quiet, &mut slot.own.payload.list, bytes / 16)?;
                slot.own.payload.list_host.grow(driver, quiet, bytes / 16, payload::STAGING)?;
            }
            let landings = self.slots.iter_mut().map(|slot| &mut slot.landing);
            for landing in landings.chain(&mut self.spares).filter_map(Arc::get_mut) {
                landing.payload.grow(driver, quiet, bytes, payload::STAGING)?;
            }
        }
        let limit = self.options.warm_up;
        let (queue, arena, nothing) =
            (self.slots[0].own.queue, self.slots[0].own.arena, self.nothing);
        let on = (queue, arena, nothing);
        let header_bytes = self.layout.header_bytes();
        if uses {
            // No rows, and for `gather`, which takes the header for its list, no pieces.
            let mut head = vec![0; header_bytes];
            self.layout.write_header(0, 0, 0, &mut head);
            let gather = Gather::new(driver)?;
            warm_up(driver, on, &head, [(gather.kernel, gather.items, None)].into_iter(), limit)?;
            self.gather = Some(gather);
        }
        let mut works = self.segments.iter().all(Option::is_none);
        for (built, disabled) in self.segments.iter().zip(&mut self.disabled) {
            let Some(built) = built else { continue };
            let mut head = vec![0; header_bytes + built.areas.list_bytes()];
            self.layout.write_header(0, 0, 0, &mut head);
            built.areas.write(&mut head, header_bytes, 0, (arena_bytes(&self.layout), &[]));
            let others = built.instead.iter().zip(&built.steps);
            let others = others.filter_map(|(kernel, (_, step))| Some(((*kernel)?, step)));
            let all = built.steps.iter().map(|(kernel, step)| (*kernel, step)).chain(others);
            let kernels = all.map(|(kernel, step)| (kernel, step.items, step.job));
            match warm_up(driver, on, &head, kernels, limit) {
                Ok(()) => works = true,
                // A kernel that the device does not take, such as one of too large groups.
                Err(error @ DeviceError::Launch(_)) => *disabled = Some(error),
                Err(error) => return Err(error),
            }
        }
        let has_parts = |built: &Built| built.steps.iter().any(|(_, step)| step.part.is_some());
        if self.segments.iter().flatten().any(has_parts) {
            // Memory that grows waits for all that is under way.
            self.quiet.patience = self.patience() + self.options.grace;
        }
        match self.disabled.iter().flatten().next() {
            Some(refused) if !works => Err(refused.clone()),
            _ => Ok(()),
        }
    }

    /// A slot that has no job, with a landing without readers.
    fn free_slot(&mut self) -> Option<usize> {
        let (mut free, mut spares) = (None, self.spares.iter_mut());
        for (number, slot) in self.slots.iter_mut().enumerate() {
            if slot.flight.is_none() {
                if Arc::get_mut(&mut slot.landing).is_some() {
                    return Some(number);
                }
                free.get_or_insert(number);
            }
        }
        let spare = spares.find_map(|spare| Arc::get_mut(spare).is_some().then_some(spare))?;
        std::mem::swap(spare, &mut self.slots[free?].landing);
        free
    }

    /// Starts `job` on slot `slot`, which is free.
    fn start(&mut self, slot: usize, mut job: J) -> Result<(), (J, DeviceError)> {
        // What is the application's own may panic, such as the source of its tables: the job must not go with it.
        let enqueued = catch_unwind(AssertUnwindSafe(|| self.enqueue(slot, &mut job)));
        let enqueued = enqueued.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(DeviceError::Lost(format!("a panic: {}", text.unwrap_or_default())))
        });
        match enqueued {
            Ok(plan) => {
                let since = Instant::now();
                self.slots[slot].flight = Some(InFlight { job, since, plan });
                self.order.push_back(slot);
                Ok(())
            }
            Err(error) => {
                self.note(&error);
                // Something of the job may be under way: nothing may touch its rows before it is over.
                self.settle(slot);
                self.wipe_keys(slot);
                let segment = job.segment();
                self.leave(&mut job, segment);
                Err((job, error))
            }
        }
    }

    /// Hands the commands of a job to the device, behind those that bring the tables to its version.
    fn enqueue(&mut self, at: usize, job: &mut J) -> Result<FlightPlan, DeviceError> {
        let Some(driver) = self.driver.as_deref_mut() else {
            return Err(DeviceError::Lost("given up".into()));
        };
        let segment = job.segment();
        let Some(Some(built)) = self.segments.get_mut(segment) else {
            return Err(DeviceError::Launch(format!("there is no segment {segment}")));
        };
        let rows = job.rows();
        if rows > self.layout.capacity() {
            return Err(DeviceError::Launch(format!("{rows} rows are more than the arena holds")));
        }
        // Waits for jobs that still use the image of an older version.
        let (slots, patience) = (&self.slots, self.options.patience);
        let users = |image: usize| {
            let flights = slots.iter().filter_map(|slot| slot.flight.as_ref());
            flights.filter(|f| f.plan.image == Some(image)).map(|f| f.plan.event).collect()
        };
        let Some((tables, version)) = job.tables() else {
            return Err(DeviceError::Launch("the job has no rows".into()));
        };
        let queue = self.slots[at].own.queue;
        let run = self.ordered.filter(|_| built.state.is_some()).unwrap_or(queue);
        let image = self.images.bring(driver, tables, version, run, &users, patience)?;
        let Slot { own, landing, .. } = &mut self.slots[at];
        let Some(landing) = Arc::get_mut(landing) else {
            return Err(DeviceError::Launch("the results of an earlier job are still read".into()));
        };
        landing.begin(rows, &built.areas);
        let head_bytes = self.layout.header_bytes() + built.areas.list_bytes();
        let kept = std::mem::take(&mut own.columns);
        let places = Places::new(&self.layout, &built.order, rows, (head_bytes, kept));
        let mut launch = Launch {
            driver,
            layout: &self.layout,
            quiet: &self.quiet,
            packing: self.options.packing,
            cells: self.cells.as_ref(),
            nothing: self.nothing,
            built,
            own,
            landing,
            traffic: &mut self.traffic,
            run,
            rows,
            places,
            is_scheduled: job.is_scheduled(),
        };
        launch.write_head(version);
        let payload = launch.send_payload(job)?;
        launch.send_columns(job)?;
        let state = launch.send_state(job)?;
        self.jobs = self.jobs.wrapping_add(1);
        let tables = image.and_then(|image| self.images.memory(image)).unwrap_or(self.nothing);
        launch.run_kernels(&payload, tables, state, self.jobs)?;
        launch.fetch_columns(job)?;
        launch.fetch_payload(&payload)?;
        launch.fetch_records()?;
        Ok(FlightPlan { event: launch.end()?, image, segment, rows, number: self.jobs })
    }

    /// Gives what the flight on `slot` brought down to its job; a job that kernels did not do, or not
    /// in time, comes back as it was.
    fn finish(&mut self, number: usize) -> Option<(J, Result<(), DeviceError>)> {
        self.release_joints(number);
        let done = self.judge(number);
        let slot = &mut self.slots[number];
        let InFlight { mut job, plan, .. } = slot.flight.take()?;
        self.calm();
        let slot = &mut self.slots[number];
        debug_assert_eq!(plan.rows, job.rows());
        let built = self.segments.get_mut(plan.segment).and_then(Option::as_mut);
        if let Some(built) = built.as_deref().filter(|built| built.state.is_some())
            && let Some(last) = built.spoilt_to
            && last.wrapping_sub(plan.number).cast_signed() >= 0
        {
            return Some((job, Err(DeviceError::Behind)));
        }
        let done = done.and_then(|()| match job.is_spoilt() {
            true => Err(DeviceError::Behind),
            false => Ok(()),
        });
        let done = done.and_then(|()| slot.landing.is_whole());
        if let Err(error) = done {
            if let Some(built) = built.filter(|built| built.state.is_some()) {
                built.spoilt_to = Some(self.jobs);
            }
            return Some((job, Err(error)));
        }
        job.landed(&slot.landing);
        if let Some(built) = self.segments.get_mut(plan.segment).and_then(Option::as_mut) {
            built.spoilt_to = None; // numbers come round
        }
        self.traffic.jobs += 1;
        Some((job, Ok(())))
    }
}

/// Bytes of a job of the most rows, each column at a multiple of 64.
fn arena_bytes(layout: &Layout) -> usize {
    layout.bytes() + 64 * (layout.columns().len() + 1)
}

impl<J: Offload> Device<J> for Accelerator<J> {
    fn name(&self) -> String {
        self.driver.as_ref().map_or_else(String::new, |driver| driver.info().name.clone())
    }

    fn slots(&self) -> usize {
        self.slots.len()
    }

    fn launch(&mut self, job: J) -> Result<(), (J, Option<DeviceError>)> {
        if let Some(lost) = &self.lost {
            return Err((job, Some(lost.clone())));
        }
        if let Some(Some(error)) = self.disabled.get(job.segment()) {
            return Err((job, Some(error.clone())));
        }
        let Some(free) = self.free_slot() else { return Err((job, None)) };
        self.start(free, job).map_err(|(job, error)| (job, Some(error)))
    }

    fn retire(&mut self, wait: Duration) -> Option<(J, Result<(), DeviceError>)> {
        let begin = Instant::now();
        loop {
            if let Some(lost) = self.lost.clone() {
                return self.give_up(lost);
            }
            let mut behind_state = false;
            for i in 0..self.order.len() {
                let slot = self.order[i];
                let Some(flight) = &self.slots[slot].flight else { continue };
                // State is one chain of jobs: when one fails, those behind it are done again, so none of them
                // may have changed its packets. They end in order.
                let built = self.segments.get(flight.plan.segment);
                if built.is_some_and(|built| built.as_ref().is_some_and(|b| b.state.is_some()))
                    && std::mem::replace(&mut behind_state, true)
                {
                    continue;
                }
                let (event, since) = (flight.plan.event, flight.since);
                let watched = self.watch(slot);
                let done = match &mut self.driver {
                    Some(driver) => watched.and_then(|()| driver.is_done(event)),
                    None => Err(DeviceError::Lost("given up".into())),
                };
                match done {
                    Ok(true) => {
                        self.order.remove(i);
                        return self.finish(slot);
                    }
                    Ok(false) if !self.is_overdue(since) => {}
                    Ok(false) => self.note(&DeviceError::Hang(self.patience())),
                    Err(error) => {
                        self.note(&DeviceError::Lost(error.to_string()));
                        self.quiesce();
                    }
                }
                if self.lost.is_some() {
                    break;
                }
            }
            if self.lost.is_none() {
                if begin.elapsed() >= wait {
                    return None;
                }
                std::thread::yield_now();
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.order.len()
    }

    fn has_capacity(&self) -> bool {
        // Only this thread makes clones, so what is not shared stays so.
        let is_own = |landing: &Arc<Landing>| Arc::strong_count(landing) == 1;
        let has_spare = self.spares.iter().any(is_own);
        let mut free = self.slots.iter().filter(|slot| slot.flight.is_none());
        free.any(|slot| has_spare || is_own(&slot.landing))
    }

    fn disabled(&self, segment: usize) -> Option<&DeviceError> {
        self.disabled.get(segment)?.as_ref()
    }

    fn take_notice(&mut self) -> Option<DeviceError> {
        self.notices.pop_front()
    }

    fn payload_work(&self, segment: usize) -> PayloadWork {
        let built = self.segments.get(segment).and_then(Option::as_ref);
        let Some(built) = built.filter(|built| built.payload.is_some()) else {
            return PayloadWork::None;
        };
        let is_reached = view_of(self.options.packing, built, self.cells.as_ref()).is_reached();
        if is_reached { PayloadWork::Find } else { PayloadWork::Pack }
    }

    fn payload_ways(&self, segment: usize) -> &'static [PayloadWay] {
        let built = self.segments.get(segment).and_then(Option::as_ref);
        let Some(built) = built.filter(|_| self.options.packing == Packing::Measured) else {
            return &[];
        };
        let is_reached = view_of(self.options.packing, built, self.cells.as_ref()).is_reached();
        match built.reach {
            Reach::InPlace if is_reached => {
                &[PayloadWay::InPlace, PayloadWay::Gathered, PayloadWay::Packed]
            }
            Reach::Gather if is_reached => &[PayloadWay::Gathered, PayloadWay::Packed],
            _ => &[],
        }
    }

    fn scheduling(&self, segment: usize) -> Scheduling {
        let built = self.segments.get(segment).and_then(Option::as_ref);
        match built.is_some_and(|built| !built.schedules.is_empty()) {
            true => self.options.scheduling,
            false => Scheduling::Never,
        }
    }

    fn payload_blocks(&mut self, number: usize) -> Vec<PayloadBlock> {
        let mut all = 0..self.segments.len();
        let packs = |segment| {
            self.payload_work(segment) == PayloadWork::Pack
                || !self.payload_ways(segment).is_empty()
        };
        if !all.any(packs) {
            return Vec::new();
        }
        let bytes = (self.layout.capacity() * chunk::CELL_BYTES).min(BLOCK_BYTES);
        let blocks: Vec<_> = (0..number).map(|_| PayloadBlock::new(bytes)).collect();
        if let Some(driver) = self.driver.as_deref_mut().filter(|_| self.lost.is_none()) {
            for block in &blocks {
                // SAFETY: as for the arenas, which it goes with: kept in `registered` until the driver is gone, and
                // copied from where a job in flight holds a part of it.
                let registered = unsafe { driver.register(block.memory()) };
                staging::is_taken(driver, "a block of packed payload", registered);
                self.registered.push(block.arena().clone());
            }
        }
        blocks
    }

    fn traffic(&self) -> Traffic {
        let (bytes, images) = self.images.sent();
        Traffic { table_bytes: bytes, table_images: images, ..self.traffic }
    }
}
