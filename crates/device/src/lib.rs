//! Devices that shade jobs.
//!
//! A [`Device`] takes jobs, several at a time, and gives each back when it is done, in any order. It
//! knows nothing of packets: a job is anything that can be [`Shadeable`]. Today there is the
//! [`SimulatedDevice`], which does what the CPU would do, on threads of its own, at a cost that can
//! be set: with it jobs, order and balance are proven without a GPU.
//!
//! Threads: a device belongs to its master.

mod simulated;

pub use simulated::{Cost, FaultPlan, SimulatedDevice};

use std::time::Duration;

/// A job, as a device sees it.
pub trait Shadeable: Send + 'static {
    /// Rows of the job, all of one version of the tables.
    fn rows(&self) -> usize;
    /// Does the CPU's shade. The simulated device calls it in place of a kernel.
    fn shade(&mut self);
}

/// Why a device did not do a job. The job itself comes back and its inputs are as they were.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The launch failed.
    #[error("the launch failed: {0}")]
    Launch(String),
    /// The device's context is gone; no further job will succeed.
    #[error("the device is lost: {0}")]
    Lost(String),
}

/// Where jobs are shaded.
pub trait Device<J: Shadeable>: Send {
    /// Its name for people.
    fn name(&self) -> String;
    /// How many jobs it takes at a time.
    fn slots(&self) -> usize;
    /// Starts a job; returns it if all slots are taken.
    ///
    /// # Errors
    /// The job, not started.
    fn launch(&mut self, job: J) -> Result<(), J>;
    /// A job that has ended, waiting for one up to `wait`. `None` if none has.
    fn retire(&mut self, wait: Duration) -> Option<(J, Result<(), DeviceError>)>;
    /// Jobs launched and not yet retired.
    fn in_flight(&self) -> usize;
}
