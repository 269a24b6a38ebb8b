//! The kernel by itself: keys, answers and table stay on the device.

use std::time::{Duration, Instant};

use chunk::{JobHeader, Layout};
use device::driver::{Arguments, Driver, Kernel, Memory, Queue, Shape};

use super::PATIENCE;
use super::jobs::{Keys, group_items, program};
use crate::on_device::{send_image, text, timed};

/// Batches of a size that are there at most: as many launches as a library takes the time of.
const BATCHES_MAX: usize = 256;

/// Keys as payload start at multiples of this.
const KEY_ALIGN: usize = 16;

/// A batch on the device.
struct Resident {
    memory: Memory,
    first: usize,
    rows: usize,
    /// Each column of answers, and its byte offset.
    answers: Vec<(usize, usize)>,
}

/// A device with a load's table, and batches of its keys.
pub(super) struct Alone {
    driver: Box<dyn Driver>,
    queue: Queue,
    kernel: Kernel,
    items: u32,
    tables: Memory,
    payload: Memory,
    /// By size of the batches.
    batches: Vec<(usize, Vec<Resident>)>,
    /// Whose clock tells the time.
    clock: &'static str,
}

impl Alone {
    /// Brings the table and batches of these sizes to the device.
    pub(super) fn new(
        mut driver: Box<dyn Driver>,
        keys: &mut Keys,
        sizes: &[usize],
    ) -> Result<Self, String> {
        let (load, form) = (keys.load.clone(), keys.load.kernel());
        let device = &mut *driver;
        let kernel = device.build(&program(&form), &[form.kernel]).map_err(text)?[0];
        let queue = device.queue().map_err(text)?;
        let mut regions: Vec<&[u32]> = vec![&[]; form.region];
        regions.push(load.words());
        let tables = send_image(device, &regions)?;

        let (mut bytes, mut places) = (Vec::new(), Vec::new());
        for key in (0..load.len()).filter_map(|index| load.payload(index)) {
            places.push([bytes.len() as u32, key.len() as u32]);
            bytes.extend_from_slice(key);
            bytes.resize(bytes.len().next_multiple_of(KEY_ALIGN), 0);
        }
        let payload = device.allocate(bytes.len().max(KEY_ALIGN)).map_err(text)?;
        device::upload_all(device, queue, payload, &[(&bytes, 0)], PATIENCE).map_err(text)?;

        let mut all = Vec::new();
        for &size in sizes {
            let (batches, mut resident) = (keys.batches(size)?, Vec::new());
            for batch in batches.iter().take(BATCHES_MAX) {
                let (first, rows) = (batch.first, batch.rows.len());
                let layout = Layout::new(form.columns, rows);
                let mut header = vec![0; layout.header_bytes()];
                layout.write_header(0, rows as u32, 1, &mut header);
                let mut parts: Vec<(Vec<u8>, usize)> = Vec::new();
                let mut answers = Vec::new();
                let mut end = header.len();
                let mut place = |column: usize| {
                    let at = end;
                    JobHeader::write_offset(&mut header, column, at as u32);
                    end += (form.columns[column].width * rows).next_multiple_of(64);
                    at
                };
                for column in form.reads.iter().chain(form.writes) {
                    let column = layout.column(*column);
                    let at = place(column);
                    parts.push((batch.rows.column_bytes(column).to_vec(), at));
                    answers.push((column, at));
                }
                // Those that it wrote are at the end.
                answers.drain(..form.reads.len());
                // Where the keys are in the payload, and how long.
                for (which, column) in form.payload.into_iter().flatten().enumerate() {
                    let values = places[first..first + rows].iter().map(|place| place[which]);
                    parts.push((
                        values.flat_map(u32::to_ne_bytes).collect(),
                        place(layout.column(column)),
                    ));
                }
                parts.push((header, 0));
                let memory = device.allocate(end).map_err(text)?;
                let parts: Vec<_> = parts.iter().map(|(bytes, at)| (&bytes[..], *at)).collect();
                device::upload_all(device, queue, memory, &parts, PATIENCE).map_err(text)?;
                resident.push(Resident { memory, first, rows, answers });
            }
            keys.put_back(batches);
            all.push((size, resident));
        }
        let items = group_items(&form);
        Ok(Self { driver, queue, kernel, items, tables, payload, batches: all, clock: "" })
    }

    /// Shades the batches of a size in turn for at least so long; million rows a second.
    pub(super) fn rate(&mut self, size: usize, time: Duration) -> Result<f64, String> {
        let Some((_, batches)) = self.batches.iter().find(|(of, _)| *of == size) else {
            return Err(format!("no batches of {size}"));
        };
        let launch = |batch: &Resident| {
            let (arena, payload, tables) = (batch.memory, self.payload, self.tables);
            let arguments = Arguments { arena, payload, tables, state: payload, job: 0 };
            (self.kernel, Shape::of_rows(batch.rows, self.items), arguments)
        };
        let launches: Vec<_> = batches.iter().map(launch).collect();
        let rows: usize = batches.iter().map(|batch| batch.rows).sum();
        let (begin, mut done, mut on_device) = (Instant::now(), 0, Duration::ZERO);
        while done == 0 || begin.elapsed() < time {
            let (time, clock) = timed(&mut *self.driver, self.queue, &launches)?;
            (self.clock, on_device, done) = (clock, on_device + time, done + rows);
        }
        Ok(done as f64 / on_device.as_secs_f64() / 1e6)
    }

    /// How batches of a size were measured.
    pub(super) fn note(&self, size: usize) -> String {
        let of_size = self.batches.iter().filter(|(of, _)| *of == size);
        let keys: usize = of_size.flat_map(|(_, batches)| batches).map(|batch| batch.rows).sum();
        format!("{keys} keys in turn; {}", self.clock)
    }

    /// The first key whose answer on the device is not the CPU's, of batches of a size that were shaded.
    pub(super) fn wrong(&mut self, keys: &Keys, size: usize) -> Result<Option<usize>, String> {
        let form = keys.load.kernel();
        for (_, batches) in self.batches.iter().filter(|(of, _)| *of == size) {
            for batch in batches {
                let mut found = Vec::new();
                for &(column, at) in &batch.answers {
                    let mut bytes = vec![0; form.columns[column].width * batch.rows];
                    let (driver, memory) = (&mut *self.driver, batch.memory);
                    device::download_all(driver, self.queue, memory, at, &mut bytes, PATIENCE)
                        .map_err(text)?;
                    found.push((column, bytes));
                }
                let of = |column| {
                    let found = found.iter().find(|(of, _)| *of == column);
                    found.map_or(&[][..], |(_, bytes)| bytes)
                };
                if let Some(key) = keys.differ(batch.first, of) {
                    return Ok(Some(key));
                }
            }
        }
        Ok(None)
    }
}
