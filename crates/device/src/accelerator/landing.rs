//! What a job brings down, until all who have a part in it have taken that.
//!
//! ```text
//!  device ──down──▶ Landing │ columns │ payload │ records │     one for each job in flight, and two more
//!                              │ shared, read only, once the job has ended well
//!                              ├─▶ worker 0: its rows, its packets, its records
//!                              └─▶ worker 1: …
//! ```
//!
//! A job ends on its master's thread, but what came down for a chunk is copied by the thread that goes on with the
//! chunk: its packets are in that core's cache, or will be needed there, and masters have other jobs to start. So what
//! comes down lies behind an [`Arc`]. While a job is in flight, its slot alone holds the landing, and the device
//! writes it; when it has ended well, [`super::Offload::landed`] shares it, and it is not written before the last one
//! has dropped it. A slot without a landing of its own takes one of the spare ones.
//!
//! [`Arc`]: std::sync::Arc

use std::ops::Range;

use chunk::{Packet, Rows};

use super::Offload;
use super::part::Frame;
use super::staging::Staging;
use super::steps::{Areas, Output, Records};
use crate::DeviceError;

/// See the module. The default one brings nothing.
#[derive(Default)]
pub struct Landing {
    /// Rows of the job.
    pub(super) rows: usize,
    /// Columns that do not come straight to the rows, and for each its byte offset in there and its place.
    pub(super) columns: Staging,
    pub(super) results: Vec<(usize, usize)>,
    /// By row: where its frame is in the payload.
    pub(super) frames: Vec<Frame>,
    /// Staged payload, up and, if kernels change it, down.
    pub(super) payload: Staging,
    pub(super) brings_payload: bool,
    /// Records, and for each output where its starts and its words are.
    pub(super) records: Staging,
    pub(super) outputs: Vec<(Output, [Range<usize>; 2])>,
}

impl std::fmt::Debug for Landing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Landing({} rows)", self.rows)
    }
}

impl Landing {
    /// Forgets the job before, for one of `rows` rows.
    pub(super) fn begin(&mut self, rows: usize, areas: &Areas) {
        self.rows = rows;
        self.results.clear();
        self.frames.clear();
        self.brings_payload = false;
        self.outputs.clear();
        self.outputs.extend(areas.outputs_of(rows));
    }

    /// Brings results and changed payload to a part of the job: its rows, of which `first` is the number of the first
    /// one in the job, and their packets.
    ///
    /// # Panics
    /// If the job has fewer rows.
    pub fn land(&self, first: usize, rows: &mut Rows, packets: &mut [Packet]) {
        for &(place, column) in &self.results {
            let width = rows.layout().columns()[column].width;
            let to = rows.column_bytes_mut(column);
            to.copy_from_slice(&self.columns.bytes()[place + first * width..][..to.len()]);
        }
        if self.brings_payload {
            let frames = self.frames[first..][..rows.len()].iter();
            for (frame, packet) in frames.zip(packets) {
                self.land_packet(frame, packet);
            }
        }
    }

    fn land_packet(&self, frame: &Frame, packet: &mut Packet) {
        if frame.len > 0 {
            packet.write_all(&self.payload.bytes()[frame.at as usize..][..frame.len as usize]);
        }
    }

    /// The same for all of a job, with its records.
    pub(super) fn land_all<J: Offload + ?Sized>(&self, job: &mut J) {
        let mut first = 0;
        job.parts(&mut |rows| {
            self.land(first, rows, &mut []);
            first += rows.len();
        });
        if self.brings_payload {
            let mut frames = self.frames.iter();
            job.packets(&mut |packet| {
                frames.next().into_iter().for_each(|frame| self.land_packet(frame, packet));
            });
        }
        for (shade, records) in self.records() {
            job.output(shade, records);
        }
    }

    /// The records that kernels wrote for the rows of the job, each output's with the number of its shade.
    pub fn records(&self) -> impl Iterator<Item = (usize, Records<'_>)> {
        self.read().filter_map(|(output, records)| Some((output.shade, records?)))
    }

    fn read(&self) -> impl Iterator<Item = (Output, Option<Records<'_>>)> {
        let down = self.records.bytes();
        self.outputs.iter().map(move |(output, [starts, words])| {
            let halves = down.get(starts.clone()).zip(down.get(words.clone()));
            let records = halves.and_then(|(starts, words)| Records::new(starts, words, self.rows));
            (*output, records)
        })
    }

    /// Whether all records are there.
    ///
    /// # Errors
    /// [`DeviceError::Overflow`], with the stage whose kernels exceeded the capacity.
    pub(super) fn is_whole(&self) -> Result<(), DeviceError> {
        match self.read().find(|(_, records)| records.is_none()) {
            Some((output, _)) => Err(DeviceError::Overflow(output.stage.to_owned())),
            None => Ok(()),
        }
    }
}
