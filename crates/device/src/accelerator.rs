//! A device that runs kernels, seen as one that shades jobs.
//!
//! Over any [`Driver`]: slots with a queue each, so that the copies of one job run beside the kernels of
//! another; device memory laid out for each job by its number of rows; one version of all tables for
//! each launch.
//!
//! ```text
//!  host rows, chunk by chunk       device, one block a slot
//!  verdict ░░░░ ░░░  ──┐           │ header │ read only │ read and written │ written only │
//!  flags   ░░░░ ░░░  ──┼─ upload ─▶│        └───── up ──┴──────────────────┘              │
//!  dst4    ░░░░ ░░░  ──┘           │                    └──────────── down ───────────────┘
//! ```
//!
//! Columns that nobody writes travel up only, columns that nobody reads down only. A small job is packed
//! into one block and goes up in one copy: a copy costs more to start than a small block to fill. What
//! comes down lies in one piece on the device and is copied into the rows when the job has ended without
//! an error: until then the host's rows are untouched, so a job can always be done again.
//!
//! Payload goes up once for all stages of a segment: as whole cells where most of each cell is in use,
//! packed back to back where it is not (GASPP §5.1). Where the device reaches the region of the cells (CUDA,
//! which is told of it; PoCL) and no kernel changes them, whole cells are read in place, without a copy.
//!
//! Tables are on the device as two images. A job brings the image that nobody uses to its version, by
//! the changes since that image's own version where they are still known, else as a whole.
//!
//! Threads: belongs to its master.

mod payload;
mod transfer;

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use chunk::{Arena, ColumnId, ColumnSet, JobHeader, Layout, Packet, Region, Rows};

use crate::driver::{Arguments, Driver, Event, Kernel, Memory, Program, Queue, Shape};
use crate::tables::{Images, TableSource};
use crate::{Device, DeviceError, Shadeable};
use payload::{payload_memory, stage_payload};
use transfer::zeroed;
pub use transfer::{download_all, upload_all};

/// A job that kernels can do.
pub trait Offload: Shadeable {
    /// All tables, as one version.
    type Tables;
    /// Which of the device's segments is to be run.
    fn segment(&self) -> usize;
    /// The tables of the job and their version; `None` for a job without rows.
    fn tables(&self) -> Option<(&Self::Tables, u64)>;
    /// Hands out its rows, chunk by chunk.
    fn parts(&mut self, part: &mut dyn FnMut(&mut Rows));
    /// Hands out its packets, in order of the rows.
    fn packets(&mut self, packet: &mut dyn FnMut(&mut Packet));
    /// Which shard of its segment's state it works on, and that shard's content where it has just
    /// moved to the device.
    fn state(&mut self) -> (usize, Option<Vec<u8>>) {
        (0, None)
    }
}

/// A kernel of a segment.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its name.
    pub kernel: &'static str,
    /// Work items of a group.
    pub items: u32,
}

/// How a segment uses packets' bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadUse {
    /// The column that gets each frame's byte offset in the payload.
    pub at: ColumnId,
    /// The column that gets its length in bytes.
    pub len: ColumnId,
    /// Whether kernels change the bytes.
    pub writes: bool,
}

/// Consecutive stages as a device runs them.
#[derive(Clone, Debug)]
pub struct SegmentProgram {
    /// The source of all its kernels.
    pub program: Program,
    /// The kernels, one behind the other.
    pub steps: Vec<Step>,
    /// Columns that kernels read before one of them has written them.
    pub reads: ColumnSet,
    /// Columns that kernels write.
    pub writes: ColumnSet,
    /// Of those, columns that get a value in every row: they need not go up.
    pub fills: ColumnSet,
    /// Whether packets' bytes go along.
    pub payload: Option<PayloadUse>,
    /// Bytes of a shard's state, which stays on the device from job to job, zero at the start. Jobs of a
    /// segment with state run in order.
    pub state_bytes: usize,
}

/// How an accelerator is set up.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Jobs in flight at most.
    pub slots: usize,
    /// A job that takes longer than this is given up, and the device with it.
    pub patience: Duration,
    /// Whether queues overlap; `false` runs one job after the other, for comparison.
    pub overlap: bool,
    /// How payload travels.
    pub packing: Packing,
}

impl Default for Options {
    fn default() -> Self {
        Self { slots: 4, patience: Duration::from_secs(5), overlap: true, packing: Packing::Auto }
    }
}

/// How payload travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Chosen for each job by how full its cells are.
    Auto,
    /// Each frame in a cell of its own.
    Cells,
    /// Back to back.
    Packed,
}

/// Bytes and jobs so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Jobs that ended well.
    pub jobs: u64,
    /// Bytes of columns and headers that went up.
    pub up_bytes: u64,
    /// Bytes of columns that came down.
    pub down_bytes: u64,
    /// Bytes of payload that went up.
    pub payload_up_bytes: u64,
    /// Jobs whose payload the device read from the cells in place.
    pub payload_in_place: u64,
    /// Bytes of payload that came down.
    pub payload_down_bytes: u64,
    /// Bytes of state that moved to the device.
    pub state_up_bytes: u64,
    /// Copies started.
    pub copies: u64,
    /// Kernels launched.
    pub launches: u64,
    /// Bytes of tables that went up.
    pub table_bytes: u64,
    /// Times an image was sent as a whole.
    pub table_images: u64,
}

/// Below so many bytes the columns of a job are packed into one block.
const PACK_BYTES: usize = 64 << 10;

/// Cells less full than this are packed: copying the frames together costs less than sending the rest.
const PACKED_BELOW: f64 = 0.5;

/// Bytes of a cell's place on the device.
const CELL_BYTES: usize = chunk::CELL_BYTES;

/// Frames that are packed start at multiples of this.
const FRAME_ALIGN: usize = 16;

/// Bytes of the header of a job.
const HEADER_BYTES: usize = size_of::<JobHeader>();

struct Built {
    steps: Vec<(Kernel, u32)>,
    /// Columns by how they travel: up only, both ways, down only.
    order: Vec<(usize, Way)>,
    payload: Option<PayloadUse>,
    state_bytes: usize,
    /// By shard.
    shards: HashMap<usize, Memory>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Up,
    Both,
    Down,
}

impl Way {
    fn is_up(self) -> bool {
        self != Way::Down
    }
    fn is_down(self) -> bool {
        self != Way::Up
    }
}

/// Host memory that a device copies from and to: never moved, and left alone for good when the device
/// hangs.
struct Staging(Box<[u64]>);

impl Staging {
    fn new(bytes: usize) -> Self {
        Self(vec![0; bytes.div_ceil(8)].into())
    }

    fn bytes(&mut self) -> &mut [u8] {
        let (ptr, len) = (self.0.as_mut_ptr().cast::<u8>(), self.0.len() * 8);
        // SAFETY: the words are initialised, `u8` has no alignment to miss, and the borrow of `self`
        // covers the slice.
        unsafe { std::slice::from_raw_parts_mut(ptr, len) }
    }
}

struct Slot<J> {
    queue: Queue,
    arena: Memory,
    up: Staging,
    down: Staging,
    payload: Option<(Memory, usize)>,
    payload_host: Staging,
    /// State of a shard that moved to the device with the slot's job.
    state_host: Vec<u8>,
    flight: Option<InFlight<J>>,
}

struct InFlight<J> {
    job: J,
    event: Event,
    since: Instant,
    image: Option<usize>,
    segment: usize,
    /// Byte offset in `down` of each column that comes down, and the column.
    results: Vec<(usize, usize)>,
    rows: usize,
    /// Offset in the payload and length of each frame, where payload comes back.
    frames: Vec<(usize, usize)>,
}

/// See the module.
pub struct Accelerator<J: Offload> {
    slots: Vec<Slot<J>>,
    order: VecDeque<usize>,
    segments: Vec<Option<Built>>,
    images: Images<J::Tables>,
    nothing: Memory,
    /// The region of all cells, and the memory that kernels see it as.
    cells: Option<(&'static Region, Memory)>,
    layout: Layout,
    options: Options,
    traffic: Traffic,
    jobs: u32,
    lost: Option<DeviceError>,
    registered: Vec<Arena>,
    /// The last field: it goes when nothing is in flight any more.
    driver: Option<Box<dyn Driver>>,
}

impl<J: Offload> Accelerator<J> {
    /// Builds the kernels, takes memory for `options.slots` jobs of at most `layout.capacity()` rows,
    /// and makes `arenas`, and the `region` of the packets' cells, known to the driver. `segments`: by
    /// number, `None` for those of the CPU.
    ///
    /// # Errors
    /// Whatever the driver refuses; a build error carries the compiler's log.
    pub fn new(
        mut driver: Box<dyn Driver>,
        layout: Layout,
        segments: Vec<Option<SegmentProgram>>,
        source: Box<dyn TableSource<J::Tables>>,
        arenas: Vec<Arena>,
        region: Option<&'static Region>,
        options: Options,
    ) -> Result<Self, DeviceError> {
        let built = segments
            .into_iter()
            .map(|segment| segment.map(|s| build(&mut *driver, &layout, s)).transpose())
            .collect::<Result<Vec<_>, _>>()?;
        let has_state = built.iter().flatten().any(|segment| segment.state_bytes > 0);
        let in_order = has_state || !options.overlap;
        let mut slots = Vec::new();
        for i in 0..options.slots.max(1) {
            let queue = match slots.first() {
                Some(Slot { queue, .. }) if in_order && i > 0 => *queue,
                _ => driver.queue()?,
            };
            let bytes = layout.bytes() + 64 * (layout.columns().len() + 1);
            slots.push(Slot {
                queue,
                arena: driver.allocate(bytes)?,
                up: Staging::new(bytes),
                down: Staging::new(bytes),
                payload: None,
                payload_host: Staging::new(0),
                state_host: Vec::new(),
                flight: None,
            });
        }
        for slot in &mut slots {
            for staging in [&mut slot.up, &mut slot.down] {
                // SAFETY: a staging block is not moved, lives as long as the accelerator, whose drop
                // ends the driver first, and is read and written under the rules of each copy.
                // Where the driver refuses, copies work all the same.
                let _ = unsafe { driver.register(staging.bytes()) };
            }
        }
        for arena in &arenas {
            // SAFETY: `registered` keeps the arena until the driver is gone; kernels are given no
            // memory that stands for it, and copies read only rows of the jobs in flight.
            let _ = unsafe { driver.register(arena.memory()) };
        }
        let reads = built.iter().flatten().any(|s| s.payload.is_some_and(|p| !p.writes));
        let cells = region.filter(|_| reads).and_then(|region| {
            let memory = std::ptr::slice_from_raw_parts_mut(region.base().as_ptr(), region.bytes());
            // SAFETY: a region stays mapped for the life of the process. Kernels only read it, and only
            // cells of packets of the jobs in flight, which nobody else holds. Where the driver refuses,
            // payload is copied.
            let shared = unsafe { driver.share(memory) }.ok().flatten()?;
            Some((region, shared))
        });
        let nothing = driver.allocate(256)?;
        let (queue, arena) = (slots[0].queue, slots[0].arena);
        warm_up(&mut *driver, &layout, &built, queue, arena, nothing)?;
        let images = Images::new(source, &mut *driver)?;
        Ok(Self {
            slots,
            order: VecDeque::new(),
            segments: built,
            images,
            nothing,
            cells,
            layout,
            options,
            traffic: Traffic::default(),
            jobs: 0,
            lost: None,
            registered: arenas,
            driver: Some(driver),
        })
    }

    /// Starts `job` on slot `slot`, which is free.
    fn start(&mut self, slot: usize, mut job: J) -> Result<(), (J, DeviceError)> {
        match self.enqueue(slot, &mut job) {
            Ok(flight) => {
                let FlightPlan { event, image, segment, results, rows, frames } = flight;
                let since = Instant::now();
                self.slots[slot].flight =
                    Some(InFlight { job, event, since, image, segment, results, rows, frames });
                self.order.push_back(slot);
                Ok(())
            }
            Err(error) => {
                // Something of the job may be under way: nothing may touch its rows before it is over.
                self.settle(slot);
                Err((job, error))
            }
        }
    }

    /// Waits until nothing on the queue of `slot` is under way; gives the device up if that fails.
    fn settle(&mut self, slot: usize) {
        let Some(driver) = &mut self.driver else { return };
        let queue = self.slots[slot].queue;
        let patience = self.options.patience;
        let ended = driver.event(queue).and_then(|event| driver.wait(event, patience));
        match ended {
            Ok(true) => {}
            Ok(false) => self.lost = Some(DeviceError::Hang(patience)),
            Err(error) => self.lost = Some(DeviceError::Lost(error.to_string())),
        }
    }

    fn enqueue(&mut self, at: usize, job: &mut J) -> Result<FlightPlan, DeviceError> {
        let Some(driver) = self.driver.as_deref_mut() else {
            return Err(DeviceError::Lost("given up".into()));
        };
        let segment = job.segment();
        let Some(Some(built)) = self.segments.get_mut(segment) else {
            return Err(DeviceError::Launch(format!("there is no segment {segment}")));
        };
        let rows = job.rows();
        // Waits for jobs that still use the image of an older version.
        let (slots, patience) = (&self.slots, self.options.patience);
        let users = |image: usize| {
            let flights = slots.iter().filter_map(|slot| slot.flight.as_ref());
            flights.filter(|f| f.image == Some(image)).map(|f| f.event).collect()
        };
        let Some((tables, version)) = job.tables() else {
            return Err(DeviceError::Launch("the job has no rows".into()));
        };
        let queue = self.slots[at].queue;
        let image = self.images.bring(driver, tables, version, queue, &users, patience)?;
        let slot = &mut self.slots[at];

        let (header, places, up_end, down) = layout_of(&self.layout, &built.order, rows, version);
        let arena_bytes = self.layout.bytes() + 64 * (self.layout.columns().len() + 1);
        if down.1 > arena_bytes {
            return Err(DeviceError::Launch(format!("{rows} rows are more than the arena holds")));
        }
        slot.up.bytes()[..HEADER_BYTES].copy_from_slice(&header.to_bytes());

        // Payload first: its places are columns that go up.
        let mut frames = Vec::new();
        let mut payload = self.nothing;
        if let Some(uses) = built.payload {
            let in_place = self.cells.filter(|_| !uses.writes);
            let plan = stage_payload(slot, job, self.options.packing, in_place.map(|c| c.0));
            let memory = match in_place {
                Some((_, memory)) if plan.is_in_place => memory,
                _ => payload_memory(driver, slot, plan.bytes)?,
            };
            self.traffic.payload_in_place += u64::from(plan.is_in_place);
            let host: *const [u8] = &raw const slot.payload_host.bytes()[..plan.bytes];
            if plan.bytes > 0 {
                // SAFETY: the staging block of this slot is written again only when its flight has
                // ended (`retire`, `settle`); after a hang it is never freed.
                unsafe { driver.upload(slot.queue, host, memory, 0) }?;
                self.traffic.copies += 1;
            }
            self.traffic.payload_up_bytes += plan.bytes as u64;
            payload = memory;
            frames = plan.frames;
            for (i, (start, len)) in frames.iter().enumerate() {
                for (column, value) in [(uses.at, *start as u32), (uses.len, *len as u32)] {
                    if let Some(place) = place_of(&places, column.0.into()) {
                        let to = &mut slot.up.bytes()[place + 4 * i..][..4];
                        to.copy_from_slice(&value.to_ne_bytes());
                    }
                }
            }
            if !uses.writes {
                frames.clear();
            }
        }

        // Columns: packed into the staging block, or straight from the rows.
        let own = |column: usize| {
            built.payload.is_some_and(|p| [p.at.0, p.len.0].map(usize::from).contains(&column))
        };
        let mut straight: Vec<(*const [u8], usize)> = Vec::new();
        let is_packed = up_end <= PACK_BYTES;
        for &(column, place, way) in places.iter().filter(|(_, _, way)| way.is_up()) {
            let _ = way;
            if own(column) {
                if !is_packed {
                    let width = self.layout.columns()[column].width;
                    let bytes = &slot.up.bytes()[place..place + rows * width];
                    straight.push((&raw const *bytes, place));
                }
                continue;
            }
            let mut to = place;
            job.parts(&mut |rows| {
                let from = rows.column_bytes(column);
                if is_packed {
                    slot.up.bytes()[to..to + from.len()].copy_from_slice(from);
                } else {
                    push_run(&mut straight, from, to);
                }
                to += from.len();
            });
        }
        let block: *const [u8] =
            &raw const slot.up.bytes()[..if is_packed { up_end } else { HEADER_BYTES }];
        // SAFETY: as above.
        unsafe { driver.upload(slot.queue, block, slot.arena, 0) }?;
        self.traffic.copies += 1 + straight.len() as u64;
        self.traffic.up_bytes += block.len() as u64;
        for (bytes, place) in straight {
            // SAFETY: the bytes are rows of the job, which nobody else holds and which is kept
            // unchanged in `flight` until its event is done; its arena is leaked after a hang.
            unsafe { driver.upload(slot.queue, bytes, slot.arena, place) }?;
            self.traffic.up_bytes += bytes.len() as u64;
        }

        let mut state = self.nothing;
        if built.state_bytes > 0 {
            let (shard, content) = job.state();
            state = match built.shards.get(&shard) {
                Some(state) => *state,
                None => {
                    let memory = zeroed(driver, built.state_bytes)?;
                    *built.shards.entry(shard).or_insert(memory)
                }
            };
            if let Some(mut content) = content {
                content.resize(built.state_bytes, 0);
                let bytes: *const [u8] = &raw const content[..];
                self.traffic.copies += 1;
                self.traffic.state_up_bytes += content.len() as u64;
                self.slots[at].state_host = content;
                // SAFETY: the content is kept by its slot, unchanged, until the slot's next job, which
                // starts when this one has ended; after a hang it is never freed.
                unsafe { driver.upload(queue, bytes, state, 0) }?;
            }
        }
        let slot = &mut self.slots[at];
        self.jobs = self.jobs.wrapping_add(1);
        let arguments = Arguments {
            arena: slot.arena,
            payload,
            tables: image.and_then(|image| self.images.memory(image)).unwrap_or(self.nothing),
            state,
            job: self.jobs,
        };
        for &(kernel, items) in &built.steps {
            driver.launch(slot.queue, kernel, Shape::of_rows(rows, items), &arguments)?;
        }
        self.traffic.launches += built.steps.len() as u64;

        let (first, end) = down;
        if end > first {
            let to: *mut [u8] = &raw mut slot.down.bytes()[..end - first];
            // SAFETY: the staging block of this slot is read only when its flight has ended; after a
            // hang it is never freed.
            unsafe { driver.download(slot.queue, slot.arena, first, to) }?;
            self.traffic.copies += 1;
            self.traffic.down_bytes += (end - first) as u64;
        }
        if !frames.is_empty() {
            let bytes = frames.iter().map(|(start, len)| start + len).max().unwrap_or(0);
            let to: *mut [u8] = &raw mut slot.payload_host.bytes()[..bytes];
            // SAFETY: as above; the upload from the same block comes before it in the same queue.
            unsafe { driver.download(slot.queue, payload, 0, to) }?;
            self.traffic.copies += 1;
            self.traffic.payload_down_bytes += bytes as u64;
        }
        let event = driver.event(slot.queue)?;
        let results = places
            .iter()
            .filter(|(_, _, way)| way.is_down())
            .map(|&(column, place, _)| (place - first, column))
            .collect();
        Ok(FlightPlan { event, image, segment, results, rows, frames })
    }

    /// Brings the results of the flight on `slot` to its rows and packets.
    fn finish(&mut self, slot: usize) -> Option<J> {
        let slot = &mut self.slots[slot];
        let mut flight = slot.flight.take()?;
        debug_assert_eq!(flight.rows, flight.job.rows());
        for &(place, column) in &flight.results {
            let mut from = place;
            let down = slot.down.bytes();
            flight.job.parts(&mut |rows| {
                let to = rows.column_bytes_mut(column);
                let len = to.len();
                to.copy_from_slice(&down[from..from + len]);
                from += len;
            });
        }
        if !flight.frames.is_empty() {
            let payload = slot.payload_host.bytes();
            let mut frames = flight.frames.iter();
            flight.job.packets(&mut |packet| {
                if let Some(&(start, len)) = frames.next() {
                    packet.write_all(&payload[start..start + len]);
                }
            });
        }
        let _ = flight.segment;
        self.traffic.jobs += 1;
        Some(flight.job)
    }
}

struct FlightPlan {
    event: Event,
    image: Option<usize>,
    segment: usize,
    results: Vec<(usize, usize)>,
    rows: usize,
    frames: Vec<(usize, usize)>,
}

fn build(
    driver: &mut dyn Driver,
    layout: &Layout,
    segment: SegmentProgram,
) -> Result<Built, DeviceError> {
    let names: Vec<&str> = segment.steps.iter().map(|step| step.kernel).collect();
    let kernels = driver.build(&segment.program, &names)?;
    let steps = kernels.into_iter().zip(segment.steps.iter().map(|step| step.items)).collect();
    let mut order: Vec<(usize, Way)> = (0..layout.columns().len())
        .filter_map(|column| {
            let id = ColumnId(column as u8);
            let payload = segment.payload.is_some_and(|p| p.at == id || p.len == id);
            match (segment.reads.contains(id) || payload, segment.writes.contains(id)) {
                (true, false) => Some((column, Way::Up)),
                (true, true) => Some((column, Way::Both)),
                (false, true) if segment.fills.contains(id) => Some((column, Way::Down)),
                // Written for some rows only: the others keep what they have.
                (false, true) => Some((column, Way::Both)),
                (false, false) => None,
            }
        })
        .collect();
    order.sort_by_key(|(column, way)| (*way, *column));
    let state_bytes = segment.state_bytes;
    Ok(Built { steps, order, payload: segment.payload, state_bytes, shards: HashMap::new() })
}

/// Launches every kernel once, over no rows: libraries do part of their work at the first launch
/// (PoCL compiles then), which must not fall on packets.
fn warm_up(
    driver: &mut dyn Driver,
    layout: &Layout,
    built: &[Option<Built>],
    queue: Queue,
    arena: Memory,
    nothing: Memory,
) -> Result<(), DeviceError> {
    const PATIENCE: Duration = Duration::from_secs(120);
    let header = layout.header(0, 0, 0).to_bytes().to_vec();
    // SAFETY: the bytes live until the event below is done, or for good.
    unsafe { driver.upload(queue, &raw const header[..], arena, 0) }?;
    for segment in built.iter().flatten() {
        let state = nothing;
        let arguments = Arguments { arena, payload: nothing, tables: nothing, state, job: 0 };
        for &(kernel, items) in &segment.steps {
            driver.launch(queue, kernel, Shape { groups: 1, items }, &arguments)?;
        }
    }
    let event = driver.event(queue)?;
    if driver.wait(event, PATIENCE)? {
        return Ok(());
    }
    std::mem::forget(header);
    Err(DeviceError::Hang(PATIENCE))
}

/// Header and places of the columns for a job of `rows` rows: each column's place in bytes, where what
/// goes up ends, and the range that comes down.
#[allow(clippy::type_complexity, reason = "used once, next to its caller")]
fn layout_of(
    layout: &Layout,
    order: &[(usize, Way)],
    rows: usize,
    version: u64,
) -> (JobHeader, Vec<(usize, usize, Way)>, usize, (usize, usize)) {
    let mut header = layout.header(0, rows as u32, version);
    let mut at = HEADER_BYTES;
    let (mut up_end, mut down_first, mut places) = (HEADER_BYTES, None, Vec::new());
    for &(column, way) in order {
        header.offsets[column] = at as u32;
        places.push((column, at, way));
        if way.is_down() {
            down_first.get_or_insert(at);
        }
        at += (layout.columns()[column].width * rows).next_multiple_of(64);
        if way.is_up() {
            up_end = at;
        }
    }
    (header, places, up_end, (down_first.unwrap_or(at), at))
}

fn place_of(places: &[(usize, usize, Way)], column: usize) -> Option<usize> {
    places.iter().find(|(c, _, _)| *c == column).map(|(_, place, _)| *place)
}

/// Adds `bytes` for place `to`, to the run before it where both follow on one another.
fn push_run(runs: &mut Vec<(*const [u8], usize)>, bytes: &[u8], to: usize) {
    if let Some((last, place)) = runs.last_mut() {
        let end = last.cast::<u8>().wrapping_add(last.len());
        if end == bytes.as_ptr() && *place + last.len() == to {
            *last = std::ptr::slice_from_raw_parts(last.cast(), last.len() + bytes.len());
            return;
        }
    }
    runs.push((&raw const *bytes, to));
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
        let Some(free) = self.slots.iter().position(|slot| slot.flight.is_none()) else {
            return Err((job, None));
        };
        self.start(free, job).map_err(|(job, error)| (job, Some(error)))
    }

    fn retire(&mut self, wait: Duration) -> Option<(J, Result<(), DeviceError>)> {
        let begin = Instant::now();
        loop {
            for i in 0..self.order.len() {
                let slot = self.order[i];
                let Some(flight) = &self.slots[slot].flight else { continue };
                let (event, since) = (flight.event, flight.since);
                let done = match (&self.lost, &mut self.driver) {
                    (Some(lost), _) => Err(lost.clone()),
                    (None, Some(driver)) => driver.is_done(event),
                    (None, None) => Err(DeviceError::Lost("given up".into())),
                };
                match done {
                    Ok(true) => {
                        self.order.remove(i);
                        return self.finish(slot).map(|job| (job, Ok(())));
                    }
                    Ok(false) if since.elapsed() < self.options.patience => {}
                    Ok(false) => {
                        let error = DeviceError::Hang(self.options.patience);
                        self.lost = Some(error.clone());
                        return self.give_up(i, error);
                    }
                    Err(error) => {
                        let error = DeviceError::Lost(error.to_string());
                        self.lost.get_or_insert(error.clone());
                        return self.give_up(i, error);
                    }
                }
            }
            if begin.elapsed() >= wait {
                return None;
            }
            std::thread::yield_now();
        }
    }

    fn in_flight(&self) -> usize {
        self.order.len()
    }

    fn traffic(&self) -> Traffic {
        let (bytes, images) = self.images.sent();
        Traffic { table_bytes: bytes, table_images: images, ..self.traffic }
    }
}

impl<J: Offload> Accelerator<J> {
    /// Gives a job back that the device will not end.
    fn give_up(&mut self, i: usize, error: DeviceError) -> Option<(J, Result<(), DeviceError>)> {
        let slot = self.order.remove(i)?;
        let job = self.slots[slot].flight.take()?.job;
        Some((job, Err(error)))
    }
}

impl<J: Offload> Drop for Accelerator<J> {
    fn drop(&mut self) {
        for slot in 0..self.slots.len() {
            if self.lost.is_none() && self.slots[slot].flight.is_some() {
                self.settle(slot);
            }
        }
        if matches!(self.lost, Some(DeviceError::Hang(_))) {
            // The device may still read and write: nothing that it knows of is ever freed.
            std::mem::forget(self.driver.take());
            for slot in self.slots.drain(..) {
                std::mem::forget(slot);
            }
            std::mem::forget(std::mem::take(&mut self.registered));
        }
        self.driver = None;
    }
}
