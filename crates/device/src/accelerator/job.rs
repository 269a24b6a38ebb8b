//! What an accelerator is given: jobs, programs and options; and what it counts.

use std::sync::Arc;
use std::time::Duration;

use chunk::{ColumnId, ColumnSet, Packet, Rows};

use super::{Area, Landing, Output, PayloadPart, Records, State, Step};
use crate::Shadeable;
use crate::driver::Program;

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
    /// Hands out what is attached to packets ([`chunk::Attached`]), each with the row in the job, in their order. It goes to
    /// the device behind the frame.
    fn attached(&mut self, each: &mut dyn FnMut(usize, &[u8])) {
        let _ = each;
    }
    /// Hands out what its workers have found of its packets' bytes, part by part in the order of the rows; `false`, and
    /// hands out nothing, where they have not looked at all of them. Then [`Offload::packets`] is called in their stead.
    fn payload(&mut self, part: &mut dyn FnMut(&mut PayloadPart)) -> bool {
        let _ = part;
        false
    }
    /// Who brings its packets' bytes to the device; `None` for whoever can. It is a choice among
    /// [`Device::payload_ways`](crate::Device::payload_ways): packets that cannot go that way go another one.
    fn payload_way(&self) -> Option<PayloadWay> {
        None
    }
    /// Whether its rows are sorted for the kernels of its segment: see [`SegmentProgram::schedules`].
    fn is_scheduled(&self) -> bool {
        false
    }
    /// Names the shards of its segment's state that it works on, and of each whether it has just moved to the device:
    /// then all of it is sent.
    fn shards(&mut self, shard: &mut dyn FnMut(usize, bool)) {
        let _ = shard;
    }
    /// How many slots a shard has of a state, by its number in [`SegmentProgram::states`]: never fewer than before.
    fn state_slots(&self, shard: usize, state: usize) -> usize {
        let _ = (shard, state);
        0
    }
    /// Writes one step of that state's records, as the host has them, to `bytes`, which are zero.
    fn state(&self, shard: usize, state: usize, step: usize, bytes: &mut [u8]) {
        let _ = (shard, state, step, bytes);
    }
    /// Whether something of what it handed out is not as it should be. It comes back as it was, with
    /// [`DeviceError::Behind`](crate::DeviceError::Behind), and so do jobs with that state which were launched before it came back.
    fn is_spoilt(&self) -> bool {
        false
    }
    /// Takes what came down when it has ended well, before it comes back. By default all of it is brought to its rows
    /// and packets at once, and its records to [`Offload::output`]. A job may keep the landing instead, for other
    /// threads to take their parts: the device does the next job with it when the last one has dropped it.
    fn landed(&mut self, landing: &Arc<Landing>) {
        landing.land_all(self);
    }
    /// Takes the records that the kernels of its segment's shade `shade` wrote: see [`Output`]. Not called for a job
    /// that keeps its landing.
    fn output(&mut self, shade: usize, records: Records<'_>) {
        let _ = (shade, records);
    }
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
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// How many of the kernels use them. The only one reads the cells where they are, if it can.
    pub payload_steps: usize,
    /// Whether the kernels that use them are known to keep to their rows' bytes. Others are given memory that
    /// holds frames of their job and nothing else.
    pub is_trusted: bool,
    /// Memory beside the columns, which a job's kernels work in.
    pub areas: Vec<Area>,
    /// The areas that hold an order in which kernels take the rows of a job: those of sorts, by the steps for which
    /// [`Step::schedules`] is set. A job that is not scheduled ([`Offload::is_scheduled`]) is launched without these steps,
    /// and its list of areas says that these have no bytes: then kernels take the rows as they came.
    pub schedules: Vec<usize>,
    /// Records that come back in some of it.
    pub outputs: Vec<Output>,
    /// State that stays on the device from job to job. Jobs of a segment with state run in order, and when one fails, so
    /// do those that were launched before it came back.
    pub states: Vec<State>,
    /// How many shards of it there are.
    pub shards: usize,
}

/// How an accelerator is set up.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Jobs in flight at most.
    pub slots: usize,
    /// A job that takes longer than this is given up, and the device with it. The limits of parts are added, for each job
    /// that may be under way.
    pub patience: Duration,
    /// And this where a part was too slow: its kernel has to end.
    pub grace: Duration,
    /// The same for the first launches, at which a library may still compile.
    pub warm_up: Duration,
    /// Whether queues overlap; `false` runs one job after the other, for comparison.
    pub overlap: bool,
    /// How payload travels.
    pub packing: Packing,
    /// Which jobs have their rows sorted, of segments that can have it.
    pub scheduling: Scheduling,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            slots: 4,
            patience: Duration::from_secs(5),
            grace: Duration::from_secs(10),
            warm_up: Duration::from_secs(120),
            overlap: true,
            packing: Packing::Auto,
            scheduling: Scheduling::Never,
        }
    }
}

/// How payload travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// By the device itself where it reaches the cells, else packed by the host.
    Auto,
    /// In place where that can be, else packed by the host.
    InPlace,
    /// Packed, one frame behind the other, by the host.
    Packed,
    /// Whichever way costs least, as whoever launches jobs has measured: [`Offload::payload_way`].
    Measured,
}

/// Who brings the bytes of a job's packets to the device (GASPP §5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadWay {
    /// Nobody: the segment's only kernel reads the cells where they are.
    InPlace,
    /// The device, which fetches the frames from the cells.
    Gathered,
    /// The host, which packs them, one behind the other, and sends that.
    Packed,
}

/// Which jobs have their rows sorted, so that neighbours on a device do alike work (GASPP §5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// None.
    Never,
    /// All.
    Always,
    /// Those of which that is expected to cost less, as whoever launches jobs has measured.
    Measured,
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
    /// Jobs whose payload the device fetched from the cells, without a copy of the host's.
    pub payload_gathered: u64,
    /// Jobs whose payload the host packed, all of it or some.
    pub payload_packed: u64,
    /// Jobs whose rows were sorted for their kernels.
    pub scheduled: u64,
    /// Bytes of payload that came down.
    pub payload_down_bytes: u64,
    /// Bytes of state that moved to the device.
    pub state_up_bytes: u64,
    /// Copies started, in both directions.
    pub copies: u64,
    /// Of these, copies to the device: of columns, payload, lists and state. Those of tables, which belong to a version
    /// and not to a job, do not count.
    pub uploads: u64,
    /// Kernels of segments launched.
    pub launches: u64,
    /// Bytes of tables that went up.
    pub table_bytes: u64,
    /// Times an image was sent as a whole.
    pub table_images: u64,
}

impl Traffic {
    /// Counts copies to the device.
    pub(super) fn count_uploads(&mut self, copies: usize) {
        self.copies += copies as u64;
        self.uploads += copies as u64;
    }

    /// Counts a copy of columns or records from the device.
    pub(super) fn count_download(&mut self, bytes: usize) {
        self.copies += 1;
        self.down_bytes += bytes as u64;
    }
}
