//! Batches of a load's keys, as the CPU and a device shade them.
//!
//! All keys lie in one arena, as workers leave them there; a batch is a range of its rows. Before they are
//! measured, the answers are filled with what no table answers, so that a row that was not shaded is found.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chunk::{Arena, ColumnSet, HugePages, Layout, Packet, Pool, Region, Rows};
use device::accelerator::{
    Accelerator, Offload, Options, Packing, PayloadUse, SegmentProgram, Step,
};
use device::driver::{Driver, Program};
use device::tables::{Change, TableSource};
use device::{Device, Shadeable};
use lookup::names::NamePrefixes;

use super::PATIENCE;
use super::loads::{Form, KernelUse, Load};
use crate::forms::thread_seconds;
use crate::on_device::{program_of, text};

/// What is where an answer is to come.
const NO_ANSWER: u8 = 0xa5;

/// Rows that the CPU shades at a time: a chunk's.
const CHUNK: usize = chunk::CHUNK_PACKETS_MAX;

/// Some rows of a load.
pub(super) struct Batch {
    pub(super) rows: Rows,
    packets: Vec<Packet>,
    load: Arc<dyn Load>,
    /// Its first key.
    pub(super) first: usize,
    has_ended: bool,
}

impl Shadeable for Batch {
    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn shade(&mut self) {
        self.load.shade(Form::Best, &mut self.rows, self.first, &mut NamePrefixes::new());
    }
}

impl Offload for Batch {
    type Tables = Arc<dyn Load>;

    fn segment(&self) -> usize {
        0
    }

    fn tables(&self) -> Option<(&Arc<dyn Load>, u64)> {
        Some((&self.load, 1))
    }

    fn parts(&mut self, part: &mut dyn FnMut(&mut Rows)) {
        part(&mut self.rows);
    }

    fn packets(&mut self, packet: &mut dyn FnMut(&mut Packet)) {
        self.packets.iter_mut().for_each(packet);
    }
}

struct Images;

impl TableSource<Arc<dyn Load>> for Images {
    fn regions<'a>(&self, load: &'a Arc<dyn Load>) -> Vec<Cow<'a, [u32]>> {
        let mut regions = vec![Cow::Borrowed(&[][..]); load.kernel().region];
        regions.push(Cow::Borrowed(load.words()));
        regions
    }

    fn changes(&self, _: u64, _: u64, _: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        false
    }
}

/// The program of a load.
pub(super) fn program(form: &KernelUse) -> Program {
    program_of(form.file.name, &[form.file], form.columns, "")
}

/// Work items of a group of a load's kernel.
pub(super) fn group_items(form: &KernelUse) -> u32 {
    form.file.kernel(form.kernel).map_or(64, |info| info.group_items)
}

/// A load's keys in an arena, and what is to come out.
pub(super) struct Keys {
    pub(super) load: Arc<dyn Load>,
    arena: Arena,
    /// One a key, where keys travel as payload; those of the batches that are under way are theirs.
    packets: Vec<Packet>,
    /// Bytes of all answers, by column, of the CPU's plain form.
    expected: Vec<(usize, Vec<u8>)>,
}

impl Keys {
    pub(super) fn new(load: Box<dyn Load>) -> Result<Self, String> {
        let load: Arc<dyn Load> = load.into();
        let form = load.kernel();
        let arena = Arena::new(Layout::new(form.columns, load.len()));
        let mut packets = Vec::new();
        if form.payload.is_some() {
            let cells: usize = (0..load.len()).filter_map(|i| load.payload(i)).map(cells_of).sum();
            let cells = u32::try_from(cells + CHUNK).map_err(text)?;
            let (_, depot) = Region::new(cells, HugePages::Advise).map_err(text)?;
            let mut pool = Pool::new(depot, 64);
            for bytes in (0..load.len()).filter_map(|index| load.payload(index)) {
                packets.push(Packet::copy_from(&mut pool, bytes).ok_or("too few cells")?);
            }
        }
        let mut keys = Self { load, arena, packets, expected: Vec::new() };
        let mut batches = keys.batches(CHUNK)?;
        keys.on_cpu(&mut batches, Form::Plain, 0.0);
        for column in form.writes {
            let column = keys.arena.layout().column(*column);
            let bytes = batches.iter().flat_map(|batch| batch.rows.column_bytes(column).to_vec());
            keys.expected.push((column, bytes.collect()));
        }
        keys.put_back(batches);
        Ok(keys)
    }

    /// All keys, in batches of `size` rows, no answer there yet.
    pub(super) fn batches(&mut self, size: usize) -> Result<Vec<Batch>, String> {
        self.arena.close();
        self.arena.reopen();
        let len = self.load.len();
        let mut packets = std::mem::take(&mut self.packets).into_iter();
        (0..len)
            .step_by(size)
            .map(|first| {
                let n = size.min(len - first);
                let mut rows = self.arena.reserve(n).ok_or("the arena is still in use")?;
                self.load.fill(&mut rows, first);
                for column in self.load.kernel().writes {
                    let column = rows.layout().column(*column);
                    rows.column_bytes_mut(column).fill(NO_ANSWER);
                }
                let packets = packets.by_ref().take(n).collect();
                Ok(Batch { rows, packets, load: self.load.clone(), first, has_ended: false })
            })
            .collect()
    }

    /// Takes the batches of [`Keys::batches`] back.
    pub(super) fn put_back(&mut self, mut batches: Vec<Batch>) {
        batches.sort_unstable_by_key(|batch| batch.first);
        self.packets = batches.into_iter().flat_map(|batch| batch.packets).collect();
    }

    /// The first key of which a batch that has ended gives another answer than the CPU's plain form.
    pub(super) fn wrong(&self, batches: &[Batch]) -> Option<usize> {
        let ended = batches.iter().filter(|batch| batch.has_ended);
        ended.filter_map(|batch| self.differ(batch.first, |c| batch.rows.column_bytes(c))).min()
    }

    /// The first key from `first` on whose answers, given by column, are other ones.
    pub(super) fn differ<B: AsRef<[u8]>>(
        &self,
        first: usize,
        answers: impl Fn(usize) -> B,
    ) -> Option<usize> {
        let of_column = |(column, expected): &(usize, Vec<u8>)| {
            let width = self.load.kernel().columns[*column].width;
            let answers = answers(*column);
            let expected = expected[first * width..].chunks_exact(width);
            let place =
                answers.as_ref().chunks_exact(width).zip(expected).position(|(a, b)| a != b);
            place.map(|row| first + row)
        };
        self.expected.iter().filter_map(of_column).min()
    }

    /// Shades batches on this thread, whole passes for at least so many seconds of its own time; million rows a
    /// second.
    pub(super) fn on_cpu(&self, batches: &mut [Batch], form: Form, seconds: f64) -> f64 {
        let (begin, mut rows, mut scratch) = (thread_seconds(), 0, NamePrefixes::new());
        loop {
            for batch in &mut *batches {
                self.load.shade(form, &mut batch.rows, batch.first, &mut scratch);
                batch.has_ended = true;
                rows += batch.rows.len();
            }
            let elapsed = thread_seconds() - begin;
            if elapsed >= seconds {
                return rows as f64 / elapsed / 1e6;
            }
        }
    }

    /// A device for batches of at most `rows_max` rows.
    pub(super) fn accelerator(
        &self,
        driver: Box<dyn Driver>,
        rows_max: usize,
        slots: usize,
    ) -> Result<Box<dyn Device<Batch>>, String> {
        let form = self.load.kernel();
        let writes = ColumnSet::of(form.writes);
        let segment = SegmentProgram {
            program: program(&form),
            // Tables begin at region 0 of the image.
            steps: vec![Step::rows(form.kernel, group_items(&form)).with_job(0)],
            reads: ColumnSet::of(form.reads),
            fills: writes.clone(),
            writes,
            payload: form.payload.map(|[at, len]| PayloadUse { at, len, writes: false }),
            payload_steps: usize::from(form.payload.is_some()),
            is_trusted: true,
            ..SegmentProgram::default()
        };
        // Short keys: the host packs them as quickly as it would list them for the device to fetch.
        let packing = Packing::Packed;
        let options = Options { slots, packing, patience: PATIENCE, ..Options::default() };
        let layout = Layout::new(form.columns, rows_max);
        let arenas = vec![self.arena.clone()];
        let segments = vec![Some(segment)];
        Accelerator::new(driver, layout, segments, Box::new(Images), arenas, None, options)
            .map(|device| Box::new(device) as Box<dyn Device<Batch>>)
            .map_err(text)
    }
}

/// Cells that a packet of these bytes takes, at most.
fn cells_of(bytes: &[u8]) -> usize {
    1 + bytes.len() / (chunk::CELL_BYTES / 2)
}

/// Sends batches to a device for `time`, as many at once as it takes, each once at least and again when all
/// others had their turn; million rows a second by the clock on the wall, from the first launch to the last
/// result.
pub(super) fn stream(
    device: &mut dyn Device<Batch>,
    batches: Vec<Batch>,
    time: Duration,
) -> Result<(f64, Vec<Batch>), String> {
    let (mut untried, mut rows) = (batches.len(), 0);
    let mut ready = VecDeque::from(batches);
    let begin = Instant::now();
    loop {
        while device.in_flight() < device.slots() && (untried > 0 || begin.elapsed() < time) {
            let Some(batch) = ready.pop_front() else { break };
            untried = untried.saturating_sub(1);
            if let Err((_, error)) = device.launch(batch) {
                return Err(error.map_or("no slot".into(), text));
            }
        }
        if device.in_flight() == 0 {
            let rate = rows as f64 / begin.elapsed().as_secs_f64() / 1e6;
            return Ok((rate, ready.into()));
        }
        let (mut batch, result) = device.retire(PATIENCE).ok_or("a job does not come back")?;
        result.map_err(text)?;
        batch.has_ended = true;
        rows += batch.rows.len();
        ready.push_back(batch);
    }
}
