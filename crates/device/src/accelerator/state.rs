//! State that stays on the device from job to job.
//!
//! ```text
//!  memory of a segment │ head │ directory          │ spare record │ list │ step │ step │ list │ step │ …
//!                                for each state         for slots    where the steps of one shard's
//!                                and shard: its list,   that are     state are
//!                                how many slots         not there
//! ```
//!
//! A shard has as many slots as its host says, in steps of so many records. A step never moves in the memory: a shard
//! that grows gets further ones, sent with the first job that may use them. The memory grows by doubling, copied by the
//! device. All offsets are in units of 64 bytes.
//!
//! Whatever is sent goes to the queue on which jobs with state run, so it is there when the next job's kernels start
//! and no earlier one sees it. What a job that failed left half sent is of no account: its shards come again as a
//! whole.

use std::collections::HashMap;

use super::staging::{Quiet, Staging};
use super::{Offload, Traffic, upload_all};
use crate::DeviceError;
use crate::driver::{Driver, Event, Memory, Queue};

/// Bytes of a unit in which the directory counts.
const UNIT: usize = 64;
/// Bytes before the directory: where the spare record is, and how many shards there are.
const HEAD_BYTES: usize = UNIT;
/// Capacity of a list at first, in steps.
const LIST_STEPS: usize = UNIT / 4;
/// The staging block of state, at most, where a step is not larger: what is more waits for the copy of what came
/// before.
pub(super) const STAGED_BYTES: usize = 256 << 10;

/// The state of a stage: records by slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateForm {
    /// Bytes of a record, a multiple of four.
    pub record_bytes: usize,
    /// By how many slots a shard grows.
    pub slots_per_step: usize,
}

impl StateForm {
    /// Bytes of one step.
    pub fn step_bytes(&self) -> usize {
        self.record_bytes * self.slots_per_step
    }

    /// Steps of a shard that has so many slots.
    pub fn steps(&self, slots: usize) -> usize {
        slots.div_ceil(self.slots_per_step.max(1))
    }
}

/// State that kernels of a segment keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// What it is made of.
    pub form: StateForm,
    /// Which of the segment's shades it belongs to.
    pub shade: usize,
}

/// What the device has of one state of one shard.
#[derive(Clone, Default)]
struct Held {
    /// Where its list is, and its capacity in steps.
    list: (usize, usize),
    /// Where its steps are.
    steps: Vec<usize>,
    /// Steps whose records were sent.
    sent: usize,
    slots: usize,
}

/// The state of a segment on the device.
pub(super) struct Shards {
    states: Vec<State>,
    shards: usize,
    memory: Memory,
    bytes: usize,
    used: usize,
    /// By state and shard, as in the directory.
    held: Vec<Held>,
    /// Shards of the job that is about to start, and whether they have just moved here.
    of_job: Vec<(usize, bool)>,
    /// By shard: its place in `of_job`, for a job that names it twice.
    seen: HashMap<usize, usize>,
}

impl Shards {
    /// Memory for `shards` shards of `states`, none of which has a slot yet.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn new(
        driver: &mut dyn Driver,
        queue: Queue,
        states: Vec<State>,
        shards: usize,
        patience: std::time::Duration,
    ) -> Result<Self, DeviceError> {
        let shards = shards.max(1);
        let spare = HEAD_BYTES + (8 * states.len() * shards).next_multiple_of(UNIT);
        let largest = states.iter().map(|state| state.form.record_bytes).max().unwrap_or(0);
        let used = spare + largest.next_multiple_of(UNIT);
        let first = |state: &State| UNIT + state.form.step_bytes().next_multiple_of(UNIT);
        let bytes = used + shards * states.iter().map(first).sum::<usize>();
        let memory = driver.allocate(bytes)?;
        let mut head = vec![0; used];
        head[..4].copy_from_slice(&units(spare)?.to_ne_bytes());
        head[4..8].copy_from_slice(&(shards as u32).to_ne_bytes());
        upload_all(driver, queue, memory, &[(&head, 0)], patience)?;
        let held = vec![Held::default(); states.len() * shards];
        Ok(Self {
            states,
            shards,
            memory,
            bytes,
            used,
            held,
            of_job: Vec::new(),
            seen: HashMap::new(),
        })
    }

    /// The largest step.
    pub(super) fn step_bytes(&self) -> usize {
        self.states.iter().map(|state| state.form.step_bytes()).max().unwrap_or(0)
    }

    /// Sends what the device lacks of the shards of `job`: all of those that have just moved here, and the steps by
    /// which others grew. The memory that the job's kernels get.
    ///
    /// # Errors
    /// The driver's; [`DeviceError::Launch`] for a shard that there is not.
    pub(super) fn bring<J: Offload>(
        &mut self,
        driver: &mut dyn Driver,
        quiet: &Quiet,
        run: Queue,
        job: &mut J,
        (staging, traffic): (&mut Staging, &mut Traffic),
    ) -> Result<Memory, DeviceError> {
        let (of_job, seen) = (&mut self.of_job, &mut self.seen);
        of_job.clear();
        seen.clear();
        job.shards(&mut |shard, has_moved| {
            let place = *seen.entry(shard).or_insert(of_job.len());
            match of_job.get_mut(place) {
                Some((_, moved)) => *moved |= has_moved,
                None => of_job.push((shard, has_moved)),
            }
        });
        let mut sender = Sender { run, quiet, staging, traffic, filled: 0 };
        for i in 0..self.of_job.len() {
            let (shard, has_moved) = self.of_job[i];
            if shard >= self.shards {
                return Err(DeviceError::Launch(format!("there is no shard {shard}")));
            }
            for number in 0..self.states.len() {
                self.bring_state(driver, job, (number, shard, has_moved), &mut sender)?;
            }
        }
        Ok(self.memory)
    }

    fn bring_state<J: Offload>(
        &mut self,
        driver: &mut dyn Driver,
        job: &J,
        (number, shard, has_moved): (usize, usize, bool),
        sender: &mut Sender<'_>,
    ) -> Result<(), DeviceError> {
        let form = self.states[number].form;
        let entry = number * self.shards + shard;
        let slots = job.state_slots(shard, number);
        if has_moved {
            self.held[entry].sent = 0;
        }
        let steps = form.steps(slots);
        let held = &self.held[entry];
        if held.slots == slots && held.sent >= steps {
            return Ok(());
        }
        // Memory first: from here on nothing moves.
        let new_steps = steps.saturating_sub(held.steps.len());
        let list = match held.list.1 < steps {
            true => Some(steps.next_power_of_two().max(LIST_STEPS)),
            false => None,
        };
        let step_bytes = form.step_bytes().next_multiple_of(UNIT);
        let list_bytes = list.map_or(0, |capacity| 4 * capacity);
        self.reserve(driver, sender, new_steps * step_bytes + list_bytes)?;
        let held = &mut self.held[entry];
        if let Some(capacity) = list {
            held.list = (self.used, capacity);
            self.used += 4 * capacity;
        }
        for _ in 0..new_steps {
            held.steps.push(self.used);
            self.used += step_bytes;
        }
        for step in held.sent..steps {
            let (place, bytes) = (held.steps[step], form.step_bytes());
            sender.send(driver, self.memory, place, bytes, |to| {
                job.state(shard, number, step, to);
            })?;
            sender.traffic.state_up_bytes += bytes as u64;
        }
        if new_steps > 0 || list.is_some() || has_moved {
            let steps = held.steps.iter().map(|place| units(*place)).collect::<Result<Vec<_>, _>>();
            let steps = steps?;
            sender.send(driver, self.memory, held.list.0, 4 * steps.len(), |to| {
                for (to, step) in to.chunks_exact_mut(4).zip(&steps) {
                    to.copy_from_slice(&step.to_ne_bytes());
                }
            })?;
        }
        let list = units(held.list.0)?;
        // Never more than was sent, in case another part counts fewer steps.
        let slots_there = u32::try_from(slots).unwrap_or(u32::MAX);
        sender.send(driver, self.memory, HEAD_BYTES + 8 * entry, 8, |to| {
            to[..4].copy_from_slice(&list.to_ne_bytes());
            to[4..].copy_from_slice(&slots_there.to_ne_bytes());
        })?;
        held.sent = held.sent.max(steps);
        held.slots = slots;
        Ok(())
    }

    /// Grows the memory until it holds `more` bytes than are used. The device copies what is there; nothing may be
    /// under way when the old memory is given back.
    fn reserve(
        &mut self,
        driver: &mut dyn Driver,
        sender: &Sender<'_>,
        more: usize,
    ) -> Result<(), DeviceError> {
        if self.used + more <= self.bytes {
            return Ok(());
        }
        let bytes = (self.used + more).max(2 * self.bytes);
        units(bytes)?;
        sender.quiet.wait(driver)?;
        let memory = driver.allocate(bytes)?;
        let copied = driver.copy(sender.run, (self.memory, 0), (memory, 0), self.used);
        if let Err(error) = copied.and_then(|()| sender.quiet.wait(driver)) {
            // A device that hangs or is lost may still write there: it is given up as a whole.
            if !matches!(error, DeviceError::Hang(_) | DeviceError::Lost(_)) {
                driver.free(memory);
            }
            return Err(error);
        }
        driver.free(std::mem::replace(&mut self.memory, memory));
        self.bytes = bytes;
        Ok(())
    }
}

/// Copies to the device by way of a slot's staging block.
struct Sender<'a> {
    run: Queue,
    quiet: &'a Quiet,
    staging: &'a mut Staging,
    traffic: &'a mut Traffic,
    /// Bytes of the block that copies may still read.
    filled: usize,
}

impl Sender<'_> {
    /// Sends `bytes`, which `fill` writes, to place `at`.
    fn send(
        &mut self,
        driver: &mut dyn Driver,
        memory: Memory,
        at: usize,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        if self.filled + bytes > self.staging.bytes().len() {
            if self.filled > 0 {
                let event: Event = driver.event(self.run)?;
                if !driver.wait(event, self.quiet.patience)? {
                    return Err(DeviceError::Hang(self.quiet.patience));
                }
                self.filled = 0;
            }
            let wanted = bytes.max(STAGED_BYTES);
            self.staging.grow(driver, self.quiet, wanted, "the staging block of state")?;
        }
        let to = &mut self.staging.bytes_mut()[self.filled..self.filled + bytes];
        to.fill(0);
        fill(to);
        let from: *const [u8] = &raw const *to;
        // SAFETY: the block is its slot's. It is written again when the copies from it have been waited for (above) or
        // the slot's job has ended (`retire`, `settle`); after a hang it is never freed.
        unsafe { driver.upload(self.run, from, memory, at) }?;
        self.filled += bytes.next_multiple_of(16);
        self.filled = self.filled.min(self.staging.bytes().len());
        self.traffic.count_uploads(1);
        Ok(())
    }
}

/// A place in units.
fn units(bytes: usize) -> Result<u32, DeviceError> {
    let too_much = |_| DeviceError::Memory("a segment's state is more than 256 GiB".into());
    u32::try_from(bytes / UNIT).map_err(too_much)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cache::Cache;
    use crate::driver::Api;
    use crate::faulty::{Faults, Faulty};
    use crate::probe;

    #[test]
    fn memory_is_given_back_when_state_cannot_move_there() {
        if !testkit::require_opencl() {
            return;
        }
        let device = probe::open_with(Api::OpenCl, 0, Cache::none()).expect("a device");
        let mut driver = Faulty::new(device, Faults { copy: Some(1), ..Faults::default() });
        let patience = Duration::from_secs(60);
        let queue = driver.queue().unwrap();
        let form = StateForm { record_bytes: 4, slots_per_step: 16 };
        let states = vec![State { form, shade: 0 }];
        let mut shards = Shards::new(&mut driver, queue, states, 2, patience).unwrap();
        let quiet = Quiet { queues: vec![queue], patience };
        let (mut staging, mut traffic) = (Staging::default(), Traffic::default());
        let sender = Sender {
            run: queue,
            quiet: &quiet,
            staging: &mut staging,
            traffic: &mut traffic,
            filled: 0,
        };
        let mut grown = |driver: &mut Faulty, bytes| {
            let done = shards.reserve(driver, &sender, bytes);
            (done.is_ok(), shards.bytes, driver.memories())
        };
        let before = driver.memories();
        let (is_done, bytes, memories) = grown(&mut driver, 1 << 16);
        assert!(is_done && bytes >= 1 << 16 && memories == before);
        // The second copy fails: nothing has changed, and it can be tried again.
        assert_eq!(grown(&mut driver, 1 << 18), (false, bytes, before));
        let (is_done, bytes, memories) = grown(&mut driver, 1 << 18);
        assert!(is_done && bytes >= 1 << 18 && memories == before);
    }
}
