//! The commands of one job, in the order in which the device's queues get them.
//!
//! ```text
//!  slot's queue   payload ─ columns ─┐                       ┌─ columns ─ payload ─ records ─ event
//!  kernels' queue                    └─ state ─ kernels ─────┘    the same queue for jobs without state
//! ```
//!
//! Each step enqueues and counts; nothing here waits, but where memory has to grow. After an error the caller waits for
//! what was enqueued before it.

use chunk::Layout;

use super::columns::Places;
use super::part::Frame;
use super::payload::{Cells, PIECE_BYTES, Source, View};
use super::staging::Quiet;
use super::{
    Built, Landing, Offload, PACK_BYTES, PACK_DOWN_BYTES, Packing, Resources, Traffic, payload,
};
use crate::DeviceError;
use crate::driver::{Arguments, Driver, Event, Memory, Queue, Shape};

/// A job that is being enqueued.
pub(super) struct Launch<'a> {
    pub(super) driver: &'a mut dyn Driver,
    pub(super) layout: &'a Layout,
    pub(super) quiet: &'a Quiet,
    pub(super) packing: Packing,
    pub(super) cells: Option<&'a Cells>,
    /// Memory of zeros, for arguments that a kernel does not use.
    pub(super) nothing: Memory,
    pub(super) built: &'a mut Built,
    /// Of the job's slot.
    pub(super) own: &'a mut Resources,
    pub(super) landing: &'a mut Landing,
    pub(super) traffic: &'a mut Traffic,
    /// Where its kernels run: the slot's queue, or the one of all jobs with state.
    pub(super) run: Queue,
    pub(super) rows: usize,
    pub(super) places: Places,
    /// Its rows are sorted for the kernels, where these take them so.
    pub(super) is_scheduled: bool,
}

/// The payload of a job on the device.
pub(super) struct Payload {
    /// Where its frames are, or will be when they are gathered.
    memory: Memory,
    /// Bytes of it, but for frames that are read in place.
    bytes: usize,
    /// The list of the pieces that the device fetches first, and how many there are.
    list: Option<(Memory, usize)>,
}

impl Launch<'_> {
    /// Writes the job's header and the list of its areas into the staging block.
    pub(super) fn write_head(&mut self, version: u64) {
        let (header_bytes, head_bytes) = self.head_bytes();
        let head = &mut self.own.up.bytes_mut()[..head_bytes];
        self.places.write_header(self.layout, self.rows, version, head);
        let without = if self.is_scheduled { &[] } else { &self.built.schedules[..] };
        self.built.areas.write(head, header_bytes, self.rows, (self.places.end, without));
    }

    /// Bytes of the header, and of that with the list of areas.
    fn head_bytes(&self) -> (usize, usize) {
        let header = self.layout.header_bytes();
        (header, header + self.built.areas.list_bytes())
    }

    /// Sends the payload, or the list by which the device fetches it, and writes the places of the frames into the
    /// staging block: they are columns that go up.
    ///
    /// # Errors
    /// The driver's; more payload than a job may have.
    pub(super) fn send_payload<J: Offload>(&mut self, job: &mut J) -> Result<Payload, DeviceError> {
        let mut sent = Payload { memory: self.nothing, bytes: 0, list: None };
        let Some((_, columns)) = self.built.payload else { return Ok(sent) };
        let memories = &mut self.own.payload;
        let view = View { way: job.payload_way(), ..view_of(self.packing, self.built, self.cells) };
        let plan = payload::plan(self.driver, self.quiet, (memories, self.landing), job, view)?;
        sent.bytes = plan.bytes;
        sent.memory = match (&plan.source, self.cells) {
            (Source::InPlace, Some(cells)) => cells.memory,
            _ => payload::at_least(self.driver, self.quiet, &mut memories.frames, plan.bytes)?,
        };
        match (plan.source, self.cells) {
            (Source::InPlace, _) => self.traffic.payload_in_place += 1,
            (Source::Gathered(pieces), Some(_)) => {
                self.traffic.payload_gathered += 1;
                if pieces > 0 {
                    sent.list = Some((self.send_list(pieces)?, pieces));
                    self.traffic.payload_up_bytes += plan.bytes as u64;
                }
            }
            _ => {
                self.traffic.payload_packed += 1;
                self.send_packed(sent.memory, plan.bytes)?;
            }
        }
        self.write_frames(columns);
        Ok(sent)
    }

    /// Sends the staged list of the pieces to be gathered; where it is on the device.
    fn send_list(&mut self, pieces: usize) -> Result<Memory, DeviceError> {
        let (queue, memories) = (self.own.queue, &mut self.own.payload);
        let bytes = PIECE_BYTES * (pieces + 1);
        let list = payload::at_least(self.driver, self.quiet, &mut memories.list, bytes)?;
        let host: *const [u8] = &raw const memories.list_host.bytes()[..bytes];
        // SAFETY: the staging blocks of this slot are written again only when its flight has ended
        // (`retire`, `settle`); after a hang they are never freed.
        unsafe { self.driver.upload(queue, host, list, 0) }?;
        self.traffic.count_uploads(1);
        Ok(list)
    }

    /// Sends the payload that workers and master have packed.
    fn send_packed(&mut self, to: Memory, bytes: usize) -> Result<(), DeviceError> {
        self.traffic.count_uploads(self.own.payload.runs.len());
        self.traffic.payload_up_bytes += bytes as u64;
        for (bytes, place) in self.own.payload.runs.drain() {
            // SAFETY: the bytes are a worker's packed payload, of which the job holds the range, or lie in
            // the landing, which is the slot's alone. Nobody writes either before the flight has ended
            // (`retire`, `settle`). After a hang neither is ever freed.
            unsafe { self.driver.upload(self.own.queue, bytes, to, place) }?;
        }
        Ok(())
    }

    /// Writes offset and length of each frame to their columns in the staging block.
    fn write_frames(&mut self, [at, len]: [usize; 2]) {
        let (up, frames) = (self.own.up.bytes_mut(), &self.landing.frames);
        let mut write = |column: usize, value: fn(&Frame) -> u32| {
            let Some(place) = self.places.of(column) else { return };
            for (to, frame) in up[place..].chunks_exact_mut(4).zip(frames) {
                to.copy_from_slice(&value(frame).to_ne_bytes());
            }
        };
        write(at, |frame| frame.at);
        write(len, |frame| frame.len);
    }

    /// Sends header and columns: a small job in one piece, packed into the staging block; a large one straight from its
    /// rows. Kernels on another queue wait for it.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn send_columns<J: Offload>(&mut self, job: &mut J) -> Result<(), DeviceError> {
        let (_, head_bytes) = self.head_bytes();
        let Resources { queue, arena, up, runs, .. } = &mut *self.own;
        let staged =
            |column: usize| self.built.payload.is_some_and(|(_, own)| own.contains(&column));
        let is_packed = self.places.up_end <= PACK_BYTES;
        runs.clear();
        for &(column, place, _) in self.places.columns.iter().filter(|(_, _, way)| way.is_up()) {
            if staged(column) {
                if !is_packed {
                    let width = self.layout.columns()[column].width;
                    let bytes = &mut up.bytes_mut()[place..place + self.rows * width];
                    runs.push(&raw mut *bytes, place);
                }
                continue;
            }
            let mut to = place;
            job.parts(&mut |rows| {
                let from = rows.column_bytes_mut(column);
                if is_packed {
                    up.bytes_mut()[to..to + from.len()].copy_from_slice(from);
                } else {
                    runs.push(&raw mut *from, to);
                }
                to += from.len();
            });
        }
        let block: *const [u8] =
            &raw const up.bytes()[..if is_packed { self.places.up_end } else { head_bytes }];
        // SAFETY: the staging block is this slot's: see `send_list`.
        unsafe { self.driver.upload(*queue, block, *arena, 0) }?;
        self.traffic.count_uploads(1 + runs.len());
        self.traffic.up_bytes += block.len() as u64;
        for (bytes, place) in runs.drain() {
            // SAFETY: the bytes are rows of the job, which have no other holder and are kept
            // unchanged in `flight` until its event is done; its arena is leaked after a hang.
            unsafe { self.driver.upload(*queue, bytes, *arena, place) }?;
            self.traffic.up_bytes += bytes.len() as u64;
        }
        self.join(self.own.queue, self.run)
    }

    /// What `after` gets from now on waits for what `before` has, where they are two queues.
    fn join(&mut self, before: Queue, after: Queue) -> Result<(), DeviceError> {
        if before != after {
            let joint = self.driver.event(before)?;
            self.own.joints.push(joint);
            self.driver.wait_for(after, joint)?;
        }
        Ok(())
    }

    /// Sends the state that the device lacks; where it is.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn send_state<J: Offload>(&mut self, job: &mut J) -> Result<Memory, DeviceError> {
        let Some(state) = &mut self.built.state else { return Ok(self.nothing) };
        let staging = (&mut self.own.state_host, &mut *self.traffic);
        state.bring(self.driver, self.quiet, self.run, job, staging)
    }

    /// Launches the segment's kernels, behind the one that gathers the payload, for a job with this number.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn run_kernels(
        &mut self,
        payload: &Payload,
        tables: Memory,
        state: Memory,
        job: u32,
    ) -> Result<(), DeviceError> {
        let (run, nothing) = (self.run, self.nothing);
        if let (Some((list, pieces)), Some(cells)) = (payload.list, self.cells) {
            let arguments = Arguments {
                arena: list,
                payload: cells.memory,
                tables: nothing,
                state: payload.memory,
                job: 0,
            };
            let groups = u32::try_from(pieces).unwrap_or(u32::MAX).clamp(1, 65_535);
            let shape = Shape { groups, items: cells.gather.items };
            self.driver.launch(run, cells.gather.kernel, shape, &arguments)?;
        }
        let at_once = self.driver.info().groups_at_once();
        let Built { steps, has_limits, .. } = &*self.built;
        self.own.watch.clear();
        if *has_limits {
            self.own.watch.mark(self.driver, run)?;
        }
        for (number, (kernel, step)) in steps.iter().enumerate() {
            if step.schedules && !self.is_scheduled {
                continue;
            }
            let shape = step.shape(self.rows, payload.bytes, at_once);
            let arguments = Arguments {
                arena: self.own.arena,
                payload: if step.has_payload { payload.memory } else { nothing },
                tables,
                state,
                job: step.job.unwrap_or(job),
            };
            self.driver.launch(run, *kernel, shape, &arguments)?;
            self.traffic.launches += 1;
            if *has_limits {
                self.own.watch.mark_end(number, self.driver, run)?;
            }
        }
        self.traffic.scheduled += u64::from(self.is_scheduled && !self.built.schedules.is_empty());
        self.join(run, self.own.queue)
    }

    /// Fetches the columns that kernels wrote: a small job's in one piece, a large one's straight to its rows, but for
    /// those that kernels also read.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn fetch_columns<J: Offload>(&mut self, job: &mut J) -> Result<(), DeviceError> {
        let Resources { queue, arena, runs, .. } = &mut *self.own;
        let (places, landing) = (&self.places, &mut *self.landing);
        let is_packed = places.end - places.down < PACK_DOWN_BYTES;
        let staged_end = if is_packed { places.end } else { places.straight };
        if staged_end > places.down {
            let to: *mut [u8] = &raw mut landing.columns.bytes_mut()[..staged_end - places.down];
            // SAFETY: the landing is this slot's alone, and neither read nor shared before its flight has ended
            // (`finish`); after a hang it is never freed.
            unsafe { self.driver.download(*queue, *arena, places.down, to) }?;
            self.traffic.count_download(to.len());
        }
        for &(column, place, _) in places.columns.iter().filter(|(_, _, way)| way.is_down()) {
            if place < staged_end {
                landing.results.push((place - places.down, column));
                continue;
            }
            let mut from = place;
            job.parts(&mut |rows| {
                let to = rows.column_bytes_mut(column);
                runs.push(&raw mut *to, from);
                from += to.len();
            });
        }
        for (to, place) in runs.drain() {
            // SAFETY: as for the uploads from there: the rows of the job are not read before its
            // event is done, or it has left them for good.
            unsafe { self.driver.download(*queue, *arena, place, to) }?;
            self.traffic.count_download(to.len());
        }
        Ok(())
    }

    /// Fetches the payload, where kernels change it.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn fetch_payload(&mut self, payload: &Payload) -> Result<(), DeviceError> {
        let landing = &mut *self.landing;
        landing.brings_payload = self.built.payload.is_some_and(|(uses, _)| uses.writes);
        let ends = landing.frames.iter().map(|frame| frame.at as usize + frame.len as usize);
        let bytes = ends.max().unwrap_or(0);
        if !landing.brings_payload || bytes == 0 {
            return Ok(());
        }
        // A gathered job has staged nothing.
        landing.payload.grow(self.driver, self.quiet, bytes, payload::STAGING)?;
        let to: *mut [u8] = &raw mut landing.payload.bytes_mut()[..bytes];
        // SAFETY: as for columns; the upload from the same block comes before it in the same queue.
        unsafe { self.driver.download(self.own.queue, payload.memory, 0, to) }?;
        self.traffic.copies += 1;
        self.traffic.payload_down_bytes += bytes as u64;
        Ok(())
    }

    /// Fetches the records that kernels wrote.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn fetch_records(&mut self) -> Result<(), DeviceError> {
        let mut at = 0;
        for (start, bytes) in self.built.areas.records(self.rows, self.places.end) {
            let to: *mut [u8] = &raw mut self.landing.records.bytes_mut()[at..at + bytes];
            // SAFETY: as for columns.
            unsafe { self.driver.download(self.own.queue, self.own.arena, start, to) }?;
            at += bytes;
            self.traffic.count_download(bytes);
        }
        Ok(())
    }

    /// The event behind everything; the lists go back to the slot, for its next job.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn end(self) -> Result<Event, DeviceError> {
        self.own.columns = self.places.columns;
        self.driver.event(self.own.queue)
    }
}

/// How a segment's kernels may see payload.
pub(super) fn view_of(packing: Packing, built: &Built, cells: Option<&Cells>) -> View {
    let region = cells.map(|cells| cells.region);
    View { packing, reach: built.reach, region, way: None }
}
