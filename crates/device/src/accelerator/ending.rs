//! Failures, and the end of an accelerator.
//!
//! What matters is whether the device may still touch host memory. After an error it is asked: each queue
//! is waited for, with patience. If one does not end, or the library cannot say, the device is abandoned:
//! its driver gives nothing back, host memory that it knows of is never freed, and jobs move away from the
//! rows that it may write. Keys ([`crate::tables::TableSource::secrets`]) are overwritten on a device that still answers.

use super::{Accelerator, Offload, columns};
use crate::DeviceError;
use crate::driver::Queue;

impl<J: Offload> Accelerator<J> {
    /// Notes an error that ends the device's use; others are the job's alone.
    pub(super) fn note(&mut self, error: &DeviceError) {
        if matches!(error, DeviceError::Lost(_) | DeviceError::Hang(_)) {
            self.lost.get_or_insert_with(|| error.clone());
        }
        if matches!(error, DeviceError::Hang(_)) {
            self.abandon();
        }
    }

    fn abandon(&mut self) {
        self.is_abandoned = true;
        if let Some(driver) = &mut self.driver {
            driver.abandon();
        }
    }

    /// Waits until nothing of the job on `slot` is under way; gives the device up if that fails.
    pub(super) fn settle(&mut self, slot: usize) {
        let queues = [Some(self.slots[slot].own.queue), self.ordered];
        self.wait_all(queues.into_iter().flatten());
        self.release_joints(slot);
        self.release_marks(slot);
    }

    /// Waits until nothing at all is under way.
    pub(super) fn quiesce(&mut self) {
        let mut queues: Vec<Queue> = self.slots.iter().map(|slot| slot.own.queue).collect();
        queues.extend(self.ordered);
        queues.push(self.images.queue());
        queues.sort_unstable_by_key(|queue| queue.0);
        queues.dedup();
        self.wait_all(queues.into_iter());
    }

    fn wait_all(&mut self, queues: impl Iterator<Item = Queue>) {
        let patience = self.longest();
        for queue in queues {
            let Some(driver) = self.driver.as_deref_mut().filter(|_| !self.is_abandoned) else {
                return;
            };
            let ended = match driver.event(queue) {
                Ok(event) => driver.wait(event, patience),
                Err(error) => Err(DeviceError::Lost(error.to_string())),
            };
            match ended {
                Ok(true) => {}
                Ok(false) => self.note(&DeviceError::Hang(patience)),
                // The library cannot say any more what is under way.
                Err(error @ DeviceError::Lost(_)) => {
                    self.note(&error);
                    self.abandon();
                }
                // A command failed, and the queue has ended.
                Err(error) => self.note(&DeviceError::Lost(error.to_string())),
            }
        }
    }

    /// Overwrites the keys that kernels of a job may have made on `slot`, where the last kernel, which wipes them, has not run.
    /// Nothing of the job is under way.
    pub(super) fn wipe_keys(&mut self, slot: usize) {
        const BYTES: usize = 1 << 20;
        if self.lost.is_some() || !self.images.has_keys() {
            return;
        }
        let Some(driver) = self.driver.as_deref_mut() else { return };
        let (own, patience) = (&self.slots[slot].own, self.options.patience);
        let zeros = vec![0; BYTES.min(self.arena_bytes)];
        let places = (0..self.arena_bytes).step_by(BYTES);
        let parts: Vec<_> =
            places.map(|place| (&zeros[..BYTES.min(self.arena_bytes - place)], place)).collect();
        let wiped = super::upload_all(driver, own.queue, own.arena, &parts, patience);
        if let Err(error) = wiped {
            self.note(&error);
        }
    }

    /// Gives the events between the queues of a job that has ended back to the driver.
    pub(super) fn release_joints(&mut self, slot: usize) {
        for event in self.slots[slot].own.joints.drain(..) {
            if let Some(driver) = self.driver.as_deref_mut().filter(|_| !self.is_abandoned) {
                // What went wrong there, the job's own event reports.
                let _ = driver.is_done(event);
            }
        }
    }

    /// The same for the events between the kernels of a job that has failed.
    fn release_marks(&mut self, slot: usize) {
        let watch = &mut self.slots[slot].own.watch;
        if let Some(driver) = self.driver.as_deref_mut().filter(|_| !self.is_abandoned) {
            let _ = watch.end(driver); // it has failed
        }
        watch.clear();
    }

    /// Moves a job away from rows that an abandoned device may still write.
    pub(super) fn leave(&self, job: &mut J, segment: usize) {
        if self.is_abandoned
            && let Some(Some(built)) = self.segments.get(segment)
        {
            columns::leave(job, &built.order);
        }
    }

    /// Gives the oldest job back, which the device will not end.
    pub(super) fn give_up(&mut self, error: DeviceError) -> Option<(J, Result<(), DeviceError>)> {
        let slot = self.order.pop_front()?;
        let flight = self.slots[slot].flight.take()?;
        let mut job = flight.job;
        self.leave(&mut job, flight.plan.segment);
        Some((job, Err(error)))
    }
}

impl<J: Offload> Drop for Accelerator<J> {
    fn drop(&mut self) {
        if !self.is_abandoned {
            self.quiesce();
        }
        if self.is_abandoned {
            // The device may still read and write: nothing that it knows of is ever freed.
            for slot in self.slots.drain(..) {
                std::mem::forget(slot);
            }
            for landing in self.spares.drain(..) {
                std::mem::forget(landing);
            }
            std::mem::forget(std::mem::take(&mut self.registered));
            self.images.leak();
        }
        if let Some(driver) = self.driver.as_deref_mut().filter(|_| !self.is_abandoned) {
            self.images.wipe_all(driver, self.options.patience);
        }
        // Before the memory that is registered with it.
        self.driver = None;
    }
}
