//! Devices that shade jobs.
//!
//! A [`Device`] takes jobs, several at a time, and gives each back when it is done, in any order. It
//! knows nothing of packets: a job is anything that can be [`Shadeable`]. Today there is the
//! [`SimulatedDevice`], which does what the CPU would do, on threads of its own, at a cost that can
//! be set: with it jobs, order and balance are proven without a GPU.
//!
//! Threads: a device belongs to its master.

pub mod accelerator;
pub mod apart;
mod backend;
pub mod cache;
mod cuda;
pub mod driver;
pub mod embedded;
pub mod environment;
pub mod faulty;
pub mod measure;
pub mod nvrtc;
mod opencl;
pub mod probe;
mod range;
pub mod selftest;
mod simulated;
mod slots;
pub mod tables;
pub mod witness;

pub use accelerator::{download_all, upload_all, upload_keys};
pub use backend::{Backend, BackendError};
pub use cuda::Cuda;
pub use opencl::OpenCl;
pub use simulated::{Cost, FaultPlan, SimulatedDevice};

use std::time::Duration;

use accelerator::{PayloadBlock, PayloadWay, PayloadWork, Scheduling, Traffic};

/// A job, as a device sees it.
pub trait Shadeable: Send + 'static {
    /// Rows of the job, all of one version of the tables.
    fn rows(&self) -> usize;
    /// Does the CPU's shade. The simulated device calls it in place of a kernel.
    fn shade(&mut self);
    /// The chain that it belongs to, for a job that works on state: jobs of a chain are done in the order of their
    /// launch, and when one fails, so do those that were launched before it came back. `None` for others.
    fn chain(&self) -> Option<usize> {
        None
    }
}

/// Why a device did not do a job. The job itself comes back and its inputs are as they were.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// No library, no platform, no such device.
    #[error("no device: {0}")]
    Absent(String),
    /// A program did not build; the compiler's log.
    #[error("the program {name} did not build: {log}")]
    Build {
        /// The program.
        name: String,
        /// What the compiler said.
        log: String,
    },
    /// There is too little device memory.
    #[error("no device memory: {0}")]
    Memory(String),
    /// A copy failed.
    #[error("a copy failed: {0}")]
    Copy(String),
    /// The launch failed.
    #[error("the launch failed: {0}")]
    Launch(String),
    /// Another call of the library failed, or a number was given that names nothing.
    #[error("the device's library refused: {0}")]
    Call(String),
    /// A job did not end in time.
    #[error("a job has not ended after {0:?}")]
    Hang(Duration),
    /// A kernel ran for longer than its stage allows; the segment of the stage is used no more.
    #[error("the kernel {kernel} of {stage} ran for longer than its limit of {limit:?}")]
    TooSlow {
        /// The stage.
        stage: String,
        /// The kernel.
        kernel: String,
        /// The limit.
        limit: Duration,
    },
    /// A part of a stage ran for longer than it may; it is used no more, and the others of its stage are. No job comes back
    /// with this: see [`Device::take_notice`].
    #[error("{part} ran for longer than its limit of {limit:?}")]
    PartTooSlow {
        /// The part.
        part: String,
        /// The limit.
        limit: Duration,
    },
    /// The kernels of a stage had more to write for a job than the capacity that the stage asked for.
    #[error("{0}: the records of a job exceed its capacity")]
    Overflow(String),
    /// An earlier job on the same state failed, and this one had begun on what that one left.
    #[error("an earlier job on the same state failed")]
    Behind,
    /// A stage panicked while the simulated device shaded by it.
    #[error("a stage panicked")]
    StagePanic,
    /// The device's context is gone; no further job will succeed.
    #[error("the device is lost: {0}")]
    Lost(String),
    /// A kernel ran and left other bytes than it should have: see [`selftest`].
    #[error(
        "{kernel}: byte {at} of the {place} is {got:#04x}; the known answer is {expected:#04x}"
    )]
    WrongAnswer {
        /// The kernel, or those that make the answer together.
        kernel: String,
        /// Which memory: arena, payload, tables or state.
        place: &'static str,
        /// The first byte that differs.
        at: usize,
        /// What it should be.
        expected: u8,
        /// What it is.
        got: u8,
    },
}

impl DeviceError {
    /// The errors of a compiler, where each has the place in its file, a line each: `FILE:LINE: message`, or `FILE:LINE:COLUMN: message`.
    pub fn in_files(&self) -> Option<&str> {
        let Self::Build { log, .. } = self else { return None };
        let has_place = |line: &str| {
            let number = line.split(':').nth(1).map(str::parse::<u32>);
            matches!(number, Some(Ok(_)))
        };
        (!log.is_empty() && log.lines().all(has_place)).then_some(log)
    }

    /// Whether it says nothing of the device: the job is done again on the CPU, and the next one is as good as any.
    /// A segment may be disabled all the same: see [`Device::disabled`].
    pub fn is_of_stage(&self) -> bool {
        matches!(
            self,
            Self::Overflow(_)
                | Self::TooSlow { .. }
                | Self::PartTooSlow { .. }
                | Self::Build { .. }
                | Self::Behind
                | Self::StagePanic
        )
    }
}

/// Where jobs are shaded.
pub trait Device<J: Shadeable>: Send {
    /// Its name for people.
    fn name(&self) -> String;
    /// How many jobs it takes at a time.
    fn slots(&self) -> usize;
    /// Starts a job.
    ///
    /// # Errors
    /// The job, not started and as it was: with what went wrong, or nothing if all slots are taken.
    fn launch(&mut self, job: J) -> Result<(), (J, Option<DeviceError>)>;
    /// A job that has ended, waiting for one up to `wait`. `None` if none has.
    fn retire(&mut self, wait: Duration) -> Option<(J, Result<(), DeviceError>)>;
    /// Jobs launched and not yet retired.
    fn in_flight(&self) -> usize;
    /// Whether it takes a job now. A slot may stay taken for a while after its job was retired: see
    /// [`accelerator::Offload::landed`].
    fn has_capacity(&self) -> bool {
        self.in_flight() < self.slots()
    }
    /// What travelled to and from it so far.
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
    /// What workers do about payload of a segment before they hand a chunk in. Asked once, before the first job.
    fn payload_work(&self, segment: usize) -> PayloadWork {
        let _ = segment;
        PayloadWork::None
    }
    /// The ways by which payload of a segment may come to it, if whoever launches jobs is to measure which one costs
    /// least ([`Offload::payload_way`](accelerator::Offload::payload_way)); none where there is no choice. For a job that is
    /// to be packed, workers pack; for others they do what [`Device::payload_work`] says. Asked once, before the first
    /// job.
    fn payload_ways(&self, segment: usize) -> &'static [PayloadWay] {
        let _ = segment;
        &[]
    }
    /// Which jobs of a segment are to have their rows sorted
    /// ([`Offload::is_scheduled`](accelerator::Offload::is_scheduled)).
    fn scheduling(&self, segment: usize) -> Scheduling {
        let _ = segment;
        Scheduling::Never
    }
    /// Memory in which workers pack payload, one block for each of so many arenas; none where no segment needs any. Asked
    /// for once, before the first job.
    fn payload_blocks(&mut self, number: usize) -> Vec<PayloadBlock> {
        let _ = number;
        Vec::new()
    }
    /// Why it takes no jobs of this segment, or no more; `None` where it does. Jobs of other segments go on. Asked
    /// after the start, for programs that did not build, and when a job has come back with an error.
    fn disabled(&self, segment: usize) -> Option<&DeviceError> {
        let _ = segment;
        None
    }
    /// A part of a stage that is used no more since the last call ([`accelerator::Step::part`]); its jobs go on.
    fn take_notice(&mut self) -> Option<DeviceError> {
        None
    }
}

impl<J: Shadeable, D: Device<J> + ?Sized> Device<J> for Box<D> {
    fn name(&self) -> String {
        (**self).name()
    }
    fn slots(&self) -> usize {
        (**self).slots()
    }
    fn launch(&mut self, job: J) -> Result<(), (J, Option<DeviceError>)> {
        (**self).launch(job)
    }
    fn retire(&mut self, wait: Duration) -> Option<(J, Result<(), DeviceError>)> {
        (**self).retire(wait)
    }
    fn in_flight(&self) -> usize {
        (**self).in_flight()
    }
    fn has_capacity(&self) -> bool {
        (**self).has_capacity()
    }
    fn traffic(&self) -> Traffic {
        (**self).traffic()
    }
    fn payload_work(&self, segment: usize) -> PayloadWork {
        (**self).payload_work(segment)
    }
    fn payload_ways(&self, segment: usize) -> &'static [PayloadWay] {
        (**self).payload_ways(segment)
    }
    fn scheduling(&self, segment: usize) -> Scheduling {
        (**self).scheduling(segment)
    }
    fn payload_blocks(&mut self, number: usize) -> Vec<PayloadBlock> {
        (**self).payload_blocks(number)
    }
    fn disabled(&self, segment: usize) -> Option<&DeviceError> {
        (**self).disabled(segment)
    }
    fn take_notice(&mut self) -> Option<DeviceError> {
        (**self).take_notice()
    }
}
