//! The simulated device: the CPU's shade on other threads, at a settable cost, with settable faults.
//!
//! Jobs of a chain ([`Shadeable::chain`]), those that work on state, are shaded in the order of their launch, whatever
//! thread has them. When one fails, so do those that were launched before it came back: they would go on from a state
//! that lacks it.

use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
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
type Slot<J> = (Option<SyncSender<Launched<J>>>, JoinHandle<()>);

/// A job on its way to a slot.
struct Launched<J> {
    /// Among all jobs.
    number: u64,
    job: J,
    place: Option<Place>,
}

/// A job's place in its chain.
#[derive(Clone, Copy)]
struct Place {
    chain: usize,
    turn: u64,
    /// How many jobs of the chain had failed and come back when it was launched.
    failures: u64,
}

/// How far a chain is.
#[derive(Clone, Copy, Debug, Default)]
struct Chain {
    launched: u64,
    shaded: u64,
    /// Jobs that failed by themselves, and those of them that have come back.
    failures: u64,
    came_back: u64,
}

/// All chains, by their numbers.
#[derive(Debug, Default)]
struct Chains {
    chains: Mutex<HashMap<usize, Chain>>,
    turned: Condvar,
}

impl Chains {
    fn with<R>(&self, chain: usize, change: impl FnOnce(&mut Chain) -> R) -> R {
        let mut chains = self.chains.lock().unwrap_or_else(PoisonError::into_inner);
        change(chains.entry(chain).or_default())
    }

    /// A place for a job that is launched now.
    fn join(&self, chain: usize) -> Place {
        self.with(chain, |state| {
            state.launched += 1;
            Place { chain, turn: state.launched - 1, failures: state.came_back }
        })
    }

    /// Waits for a job's turn. Whether an earlier one failed that it was launched behind.
    fn wait(&self, place: Place) -> bool {
        let mut chains = self.chains.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let state = chains.entry(place.chain).or_default();
            if state.shaded == place.turn {
                return state.failures > place.failures;
            }
            chains = self.turned.wait(chains).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends a job's turn.
    fn end(&self, place: Place, has_failed: bool) {
        self.with(place.chain, |state| {
            state.shaded += 1;
            state.failures += u64::from(has_failed);
        });
        self.turned.notify_all();
    }
}

/// A turn, which ends in any case.
struct Turn<'a> {
    chains: &'a Chains,
    place: Option<Place>,
    has_failed: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.chains.end(place, self.has_failed || std::thread::panicking());
        }
    }
}

/// See the [crate]. Each slot is a thread, as each stream of a GPU goes its own way: jobs may end in
/// another order than they were launched in.
#[derive(Debug)]
pub struct SimulatedDevice<J> {
    slots: Vec<Slot<J>>,
    idle: Vec<usize>,
    done: Receiver<Done<J>>,
    chains: Arc<Chains>,
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
        let chains = Arc::new(Chains::default());
        let slots = (0..slots.max(1))
            .map(|slot| {
                let (jobs_in, jobs) = sync_channel(1);
                let (done, faults, chains) = (done_in.clone(), faults.clone(), chains.clone());
                let thread = std::thread::Builder::new()
                    .name(format!("sim-slot-{slot}"))
                    .spawn(move || serve(slot, &jobs, &done, &chains, (cost, &faults)))
                    .map_err(failed)?;
                Ok((Some(jobs_in), thread))
            })
            .collect::<Result<Vec<_>, DeviceError>>()?;
        Ok(Self { idle: (0..slots.len()).collect(), slots, done, chains, launched: 0 })
    }
}

/// The life of one slot.
fn serve<J: Shadeable>(
    slot: usize,
    jobs: &Receiver<Launched<J>>,
    done: &Sender<Done<J>>,
    chains: &Chains,
    (cost, faults): (Cost, &FaultPlan),
) {
    while let Ok(Launched { number, mut job, place }) = jobs.recv() {
        let begin = Instant::now();
        let is_behind = place.is_some_and(|place| chains.wait(place));
        let mut turn = Turn { chains, place, has_failed: false };
        let hung = faults.hangs.filter(|(first, _)| number >= *first);
        let result = match (is_behind, hung, faults.fault(number)) {
            (_, Some((_, patience)), _) => Err(DeviceError::Hang(patience)),
            (_, None, Some(lost @ DeviceError::Lost(_))) => Err(lost),
            (true, ..) => Err(DeviceError::Behind),
            (false, None, Some(error)) => Err(error),
            // A stage that panics here panics again on its worker, where that is reported.
            (false, None, None) => {
                catch_unwind(AssertUnwindSafe(|| job.shade())).map_err(|_| DeviceError::StagePanic)
            }
        };
        turn.has_failed = result.as_ref().is_err_and(|error| *error != DeviceError::Behind);
        drop(turn);
        if let Some((_, patience)) = hung.filter(|(first, _)| number == *first) {
            std::thread::sleep(patience);
        }
        if let Some(left) = cost.of(job.rows()).checked_sub(begin.elapsed()) {
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
        let place = job.chain().map(|chain| self.chains.join(chain));
        if let Err(unsent) = jobs.send(Launched { number: self.launched, job, place }) {
            place.into_iter().for_each(|place| self.chains.end(place, true));
            return Err((unsent.0.job, Some(DeviceError::Lost("its thread has ended".into()))));
        }
        self.launched += 1;
        Ok(())
    }

    fn retire(&mut self, wait: Duration) -> Option<(J, Result<(), DeviceError>)> {
        match self.done.recv_timeout(wait) {
            Ok((slot, job, result)) => {
                self.idle.push(slot);
                let is_own = result.as_ref().is_err_and(|error| *error != DeviceError::Behind);
                if let Some(chain) = job.chain().filter(|_| is_own) {
                    self.chains.with(chain, |state| state.came_back += 1);
                }
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

    /// Appends its number to a list that all jobs share.
    struct Chained(u64, Arc<Mutex<Vec<u64>>>);
    impl Shadeable for Chained {
        fn rows(&self) -> usize {
            1 + self.0 as usize % 3
        }
        fn shade(&mut self) {
            self.1.lock().unwrap().push(self.0);
        }
        fn chain(&self) -> Option<usize> {
            (self.0 % 4 != 3).then_some(7)
        }
    }

    #[test]
    fn jobs_of_a_chain_are_done_in_order_and_fail_behind_one_that_failed() {
        let cost = Cost { launch: Duration::ZERO, row: Duration::from_micros(100) };
        let faults = FaultPlan { failing: [5, 41].into(), ..FaultPlan::default() };
        let mut device = SimulatedDevice::new(4, cost, faults).unwrap();
        let list = Arc::new(Mutex::new(Vec::new()));
        let mut ends = [const { None }; 80];
        // Jobs that were launched before the first failure, or the second, came back.
        let (mut launched, mut until) = (0, Vec::new());
        for _ in 0..80 {
            while launched < 80 && device.launch(Chained(launched, list.clone())).is_ok() {
                launched += 1;
            }
            let (job, result) = device.retire(Duration::from_secs(10)).unwrap();
            if matches!(result, Err(DeviceError::Launch(_))) {
                until.push((job.0, launched));
            }
            ends[job.0 as usize] = Some(result);
        }
        for (number, end) in (0..).zip(ends) {
            let is_chained = number % 4 != 3;
            let is_behind =
                is_chained && until.iter().any(|(at, end)| (at + 1..*end).contains(&number));
            let expected = match number {
                5 | 41 => Err(DeviceError::Launch("as planned".into())),
                _ if is_behind => Err(DeviceError::Behind),
                _ => Ok(()),
            };
            assert_eq!(end, Some(expected), "job {number}");
        }
        let done = list.lock().unwrap();
        let chained = done.iter().filter(|number| *number % 4 != 3);
        assert!(chained.is_sorted() && done.len() > 60, "{done:?}");
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
