//! The simulated device: the CPU's shade on other threads, at a settable cost, with settable faults.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::{Device, DeviceError, Shadeable};

/// What a job costs on the simulated device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Once a job: launch and copies' latency.
    pub launch: Duration,
    /// For each row.
    pub row: Duration,
}

impl Cost {
    /// The time of a job of `rows` rows.
    pub fn of(&self, rows: usize) -> Duration {
        self.launch + self.row * u32::try_from(rows).unwrap_or(u32::MAX)
    }
}

/// Which launches go wrong, by their number from 0.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// The kernels do not build: there is no device at all.
    pub no_build: bool,
    /// These fail and leave the device whole.
    pub failing: BTreeSet<u64>,
    /// A copy of these fails and leaves the device whole.
    pub failing_copy: BTreeSet<u64>,
    /// From this one on the device is lost.
    pub lost_from: Option<u64>,
    /// This one does not end; it is given up after so long, and the device with it.
    pub hangs: Option<(u64, Duration)>,
}

impl FaultPlan {
    fn fault(&self, number: u64) -> Option<DeviceError> {
        if self.lost_from.is_some_and(|n| number >= n) {
            Some(DeviceError::Lost("as planned".into()))
        } else if self.failing.contains(&number) {
            Some(DeviceError::Launch("as planned".into()))
        } else if self.failing_copy.contains(&number) {
            Some(DeviceError::Copy("as planned".into()))
        } else {
            None
        }
    }
}

type Done<J> = (usize, J, Result<(), DeviceError>);
type Slot<J> = (Option<SyncSender<(u64, J)>>, JoinHandle<()>);

/// See the [crate]. Each slot is a thread, as each stream of a GPU goes its own way: jobs may end in
/// another order than they were launched in.
#[derive(Debug)]
pub struct SimulatedDevice<J> {
    slots: Vec<Slot<J>>,
    idle: Vec<usize>,
    done: Receiver<Done<J>>,
    launched: u64,
}

impl<J: Shadeable> SimulatedDevice<J> {
    /// A device with `slots` jobs in flight at most (at least one).
    ///
    /// # Errors
    /// When a thread cannot be started, or as planned.
    pub fn new(slots: usize, cost: Cost, faults: FaultPlan) -> Result<Self, DeviceError> {
        if faults.no_build {
            let (name, log) = ("simulated".into(), "as planned".into());
            return Err(DeviceError::Build { name, log });
        }
        let failed = |error: std::io::Error| DeviceError::Absent(error.to_string());
        let (done_in, done) = channel();
        let slots = (0..slots.max(1))
            .map(|slot| {
                let (jobs_in, jobs) = sync_channel(1);
                let (done, faults) = (done_in.clone(), faults.clone());
                let thread = std::thread::Builder::new()
                    .name(format!("sim-slot-{slot}"))
                    .spawn(move || serve(slot, &jobs, &done, cost, &faults))
                    .map_err(failed)?;
                Ok((Some(jobs_in), thread))
            })
            .collect::<Result<Vec<_>, DeviceError>>()?;
        Ok(Self { idle: (0..slots.len()).collect(), slots, done, launched: 0 })
    }
}

/// The life of one slot.
fn serve<J: Shadeable>(
    slot: usize,
    jobs: &Receiver<(u64, J)>,
    done: &Sender<Done<J>>,
    cost: Cost,
    faults: &FaultPlan,
) {
    while let Ok((number, mut job)) = jobs.recv() {
        let begin = Instant::now();
        let is_hung = faults.hangs.is_some_and(|(hung, _)| number >= hung);
        let result = if is_hung {
            Ok(())
        } else {
            faults.fault(number).map_or_else(
                || {
                    job.shade();
                    Ok(())
                },
                Err,
            )
        };
        let cost = cost.of(job.rows());
        let result = match faults.hangs {
            Some((hung, patience)) if number >= hung => {
                std::thread::sleep(if number == hung { patience } else { Duration::ZERO });
                Err(DeviceError::Hang(patience))
            }
            _ => result,
        };
        if let Some(left) = cost.checked_sub(begin.elapsed()) {
            std::thread::sleep(left);
        }
        if done.send((slot, job, result)).is_err() {
            return;
        }
    }
}

impl<J: Shadeable> Device<J> for SimulatedDevice<J> {
    fn name(&self) -> String {
        format!("simulated, {} slots", self.slots.len())
    }

    fn slots(&self) -> usize {
        self.slots.len()
    }

    fn launch(&mut self, job: J) -> Result<(), (J, Option<DeviceError>)> {
        let Some(slot) = self.idle.pop() else { return Err((job, None)) };
        let Some(jobs) = &self.slots[slot].0 else { return Err((job, None)) };
        jobs.send((self.launched, job))
            .map_err(|e| (e.0.1, Some(DeviceError::Lost("its thread has ended".into()))))?;
        self.launched += 1;
        Ok(())
    }

    fn retire(&mut self, wait: Duration) -> Option<(J, Result<(), DeviceError>)> {
        match self.done.recv_timeout(wait) {
            Ok((slot, job, result)) => {
                self.idle.push(slot);
                Some((job, result))
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.idle.len()
    }
}

impl<J> Drop for SimulatedDevice<J> {
    fn drop(&mut self) {
        for (jobs, thread) in self.slots.drain(..) {
            drop(jobs);
            // A slot that panicked has already said so.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Add(u32, usize);
    impl Shadeable for Add {
        fn rows(&self) -> usize {
            self.1
        }
        fn shade(&mut self) {
            self.0 += 1;
        }
    }

    fn device(faults: FaultPlan) -> SimulatedDevice<Add> {
        let cost = Cost { launch: Duration::from_micros(50), row: Duration::from_micros(100) };
        SimulatedDevice::new(2, cost, faults).unwrap()
    }

    #[test]
    fn takes_as_many_jobs_as_it_has_slots_and_may_end_them_out_of_order() {
        let mut device = device(FaultPlan::default());
        assert!(device.launch(Add(10, 200)).is_ok());
        assert!(device.launch(Add(20, 1)).is_ok());
        assert_eq!(device.launch(Add(30, 1)).unwrap_err().0.0, 30);
        assert_eq!(device.in_flight(), 2);
        let (first, _) = device.retire(Duration::from_secs(10)).unwrap();
        let (second, _) = device.retire(Duration::from_secs(10)).unwrap();
        assert_eq!((first.0, second.0), (21, 11), "the short job overtakes the long one");
        assert!(device.retire(Duration::ZERO).is_none());
    }

    #[test]
    fn a_failing_job_comes_back_as_it_was() {
        let faults = FaultPlan {
            failing: [0].into(),
            failing_copy: [2].into(),
            lost_from: Some(4),
            ..FaultPlan::default()
        };
        let mut device = device(faults);
        for expected in [10, 11, 10, 11, 10, 10] {
            assert!(device.launch(Add(10, 1)).is_ok());
            let (job, result) = device.retire(Duration::from_secs(10)).unwrap();
            assert_eq!((job.0, result.is_ok()), (expected, expected == 11));
        }
    }
}
