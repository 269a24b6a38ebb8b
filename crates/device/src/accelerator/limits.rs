//! How long kernels run, where a segment sets a limit.
//!
//! An event follows each kernel of such a segment. A kernel begins when the event before it is seen to be reached;
//! one that is seen not to be at its end after its limit is too slow. Nothing on a device can be taken back, so the
//! job is waited for as any other, up to the device's patience. It comes back with the error, to be done again on the
//! CPU, and the segment is used no more.
//!
//! If the kernel is of a [part](super::Part) of its stage, the job is as good as any, only late. From then on another kernel is
//! launched in its place, which says for each row that the part has failed. Such a kernel bounds its work itself ([`Part`](super::Part)),
//! so it ends: jobs that are under way then, and those that wait for them, have the time that this takes.
//!
//! Nobody looks between two calls of `retire`, so a kernel may run for somewhat longer than its limit without being
//! noticed, but none is called slow that was not.

use std::time::{Duration, Instant};

use super::{Accelerator, Offload};
use crate::DeviceError;
use crate::driver::{Driver, Event, Queue};

/// The kernels of a job and how far they have come.
#[derive(Default)]
pub(super) struct Watch {
    /// An event before the first kernel and one behind each.
    marks: Vec<Event>,
    /// The numbers of these kernels among the segment's steps: a job may be launched without some.
    kernels: Vec<usize>,
    /// How many were reached, and when the last of them was seen to be.
    reached: usize,
    since: Option<Instant>,
    /// The kernel that was too slow.
    too_slow: Option<usize>,
}

impl Watch {
    /// For a new job.
    pub(super) fn clear(&mut self) {
        self.marks.clear();
        self.kernels.clear();
        (self.reached, self.since, self.too_slow) = (0, None, None);
    }

    /// The kernels launched so far end here.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn mark(
        &mut self,
        driver: &mut dyn Driver,
        queue: Queue,
    ) -> Result<(), DeviceError> {
        self.marks.push(driver.event(queue)?);
        Ok(())
    }

    /// Kernel `number` of the segment's ends here.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn mark_end(
        &mut self,
        number: usize,
        driver: &mut dyn Driver,
        queue: Queue,
    ) -> Result<(), DeviceError> {
        self.kernels.push(number);
        self.mark(driver, queue)
    }

    /// Looks how far the kernels have come; the first that was found too slow by now.
    ///
    /// # Errors
    /// What went wrong at a kernel: the job has failed.
    fn look(
        &mut self,
        driver: &mut dyn Driver,
        limit: impl Fn(usize) -> Option<Duration>,
    ) -> Result<Option<usize>, DeviceError> {
        while let Some(&event) = self.marks.get(self.reached) {
            let done = driver.is_done(event);
            if !matches!(done, Ok(false)) {
                self.reached += 1; // an event that was reached, or failed, is used up
                self.since = Some(Instant::now());
                done?;
                continue;
            }
            // The mark before all is the first kernel's beginning.
            let launched = self.reached.checked_sub(1);
            let kernel = launched.and_then(|launched| self.kernels.get(launched).copied());
            let ran = self.since.map_or(Duration::ZERO, |since| since.elapsed());
            if self.too_slow.is_none() && kernel.and_then(limit).is_some_and(|limit| ran > limit) {
                self.too_slow = kernel;
            }
            break;
        }
        Ok(self.too_slow)
    }

    /// Returns the events that were not seen completed to the driver: the job has ended, or failed.
    ///
    /// # Errors
    /// What went wrong at a kernel.
    pub(super) fn end(&mut self, driver: &mut dyn Driver) -> Result<(), DeviceError> {
        let mut result = Ok(());
        for event in self.marks.drain(self.reached.min(self.marks.len())..) {
            result = result.and(driver.is_done(event).map(|_| ()));
        }
        self.marks.clear();
        result
    }
}

/// A part was too slow, and its kernel may run yet.
pub(super) struct Late {
    since: Instant,
    /// The last job that was launched with it.
    last: u32,
}

impl<J: Offload> Accelerator<J> {
    /// How long a job may take: the parts of its segment have their own time, and the jobs before it have had theirs.
    pub(super) fn patience(&self) -> Duration {
        let of_parts = |built: &super::Built| -> Duration {
            let parts = built.steps.iter().filter(|(_, step)| step.part.is_some());
            parts.filter_map(|(_, step)| step.limit).sum()
        };
        let parts = self.segments.iter().flatten().map(of_parts).max().unwrap_or_default();
        self.options.patience + parts.saturating_mul(self.slots.len().max(1) as u32)
    }

    /// How long it may be until a job has ended that may be behind a part that was too slow.
    pub(super) fn longest(&self) -> Duration {
        self.patience() + if self.late.is_some() { self.options.grace } else { Duration::ZERO }
    }

    /// Whether a job that was launched at this time takes too long.
    pub(super) fn is_overdue(&self, launched: Instant) -> bool {
        let begin = self.calm_since.map_or(launched, |calm| calm.max(launched));
        let is_excused =
            self.late.as_ref().is_some_and(|late| late.since.elapsed() < self.options.grace);
        !is_excused && begin.elapsed() >= self.patience()
    }

    /// A job has ended. Where it was the last one with a part that was too slow, the time of the others begins.
    pub(super) fn calm(&mut self) {
        let Some(late) = &self.late else { return };
        let is_behind =
            |plan: &super::FlightPlan| late.last.wrapping_sub(plan.number).cast_signed() < 0;
        let mut flights = self.slots.iter().filter_map(|slot| slot.flight.as_ref());
        if flights.all(|flight| is_behind(&flight.plan)) {
            (self.late, self.calm_since) = (None, Some(Instant::now()));
        }
    }

    /// Looks at the kernels of the job on `slot`, and ends the use of its segment where one is too slow.
    ///
    /// # Errors
    /// As [`Watch::look`].
    pub(super) fn watch(&mut self, slot: usize) -> Result<(), DeviceError> {
        let slot = &mut self.slots[slot];
        let (Some(driver), Some(flight)) = (self.driver.as_deref_mut(), &slot.flight) else {
            return Ok(());
        };
        let segment = flight.plan.segment;
        let Some(Some(built)) = self.segments.get_mut(segment) else { return Ok(()) };
        let step = |kernel: usize| built.steps.get(kernel).map(|(_, step)| step);
        let limit = |kernel| step(kernel).and_then(|step| step.limit);
        let Some(kernel) = slot.own.watch.look(driver, limit)? else { return Ok(()) };
        let Some(limit) = limit(kernel) else { return Ok(()) };
        let instead = built.instead.get(kernel).copied().flatten();
        let Some((own, step)) = built.steps.get_mut(kernel) else { return Ok(()) };
        if let (Some(part), Some(instead)) = (step.part.take(), instead) {
            (*own, step.limit) = (instead, None);
            slot.own.watch.too_slow = None;
            self.notices.push_back(DeviceError::PartTooSlow { part: part.name.into(), limit });
            self.late = Some(Late { since: Instant::now(), last: self.jobs });
        } else if self.disabled[segment].is_none() {
            let (stage, kernel) = (step.stage.to_owned(), step.kernel.clone().into_owned());
            self.disabled[segment] = Some(DeviceError::TooSlow { stage, kernel, limit });
        }
        Ok(())
    }

    /// What the job on `slot`, which has ended, comes back with.
    ///
    /// # Errors
    /// A kernel that failed or was too slow.
    pub(super) fn judge(&mut self, slot: usize) -> Result<(), DeviceError> {
        let slot = &mut self.slots[slot];
        if let Some(driver) = self.driver.as_deref_mut() {
            slot.own.watch.end(driver)?;
        }
        let segment = slot.flight.as_ref().map_or(0, |flight| flight.plan.segment);
        let is_slow = slot.own.watch.too_slow.is_some();
        let error = self.disabled.get(segment).and_then(|disabled| disabled.clone());
        error.filter(|_| is_slow).map_or(Ok(()), Err)
    }
}
