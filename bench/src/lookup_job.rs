//! A job that looks addresses up and nothing else: what the kernels and the way to them can do.

use std::sync::Arc;

use chunk::{Arena, ColumnSet, Columns, Layout, Packet, Rows};
use device::accelerator::{Accelerator, Offload, Options, SegmentProgram, Step};
use device::driver::{Driver, Program};
use device::tables::TableSource;
use device::{Device, DeviceError, Shadeable};
use kernels::{LpmColumns, Spec};
use lookup::Key6;
use lookup::fib::Fib;
use lookup::versions::Pin;

/// The address family of a job, and its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    V4 = 0,
    V6 = 1,
}

/// Rows of [`LpmColumns`] with one version of the tables.
pub(crate) struct LookupJob {
    pub(crate) rows: Rows,
    pub(crate) pin: Arc<Pin<Fib>>,
    pub(crate) kind: Kind,
}

impl Shadeable for LookupJob {
    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn shade(&mut self) {
        let view = LpmColumns::view(&mut self.rows);
        match self.kind {
            Kind::V4 => self.pin.lookup4(view.dst4, view.result),
            Kind::V6 => self.pin.lookup6(view.dst6, view.result),
        }
    }
}

impl Offload for LookupJob {
    type Tables = Fib;

    fn segment(&self) -> usize {
        self.kind as usize
    }

    fn tables(&self) -> Option<(&Fib, u64)> {
        Some((&self.pin, self.pin.version()))
    }

    fn parts(&mut self, part: &mut dyn FnMut(&mut Rows)) {
        part(&mut self.rows);
    }

    fn packets(&mut self, _: &mut dyn FnMut(&mut Packet)) {}
}

/// The program of all lookups.
pub(crate) fn program() -> Program {
    let spec = Spec::new("lpm", &["lpm"], LpmColumns::COLUMNS);
    let source = kernels::source(&spec);
    Program { name: "lpm".into(), source, defines: Vec::new(), ptx: None }
}

/// A device for jobs of at most `rows` rows, and the arenas of as many jobs as may be in flight, and one
/// more.
pub(crate) fn accelerator(
    driver: Box<dyn Driver>,
    source: Box<dyn TableSource<Fib>>,
    rows: usize,
    options: Options,
) -> Result<(Accelerator<LookupJob>, Vec<Arena>), DeviceError> {
    let layout = Layout::new(LpmColumns::COLUMNS, rows);
    let arenas: Vec<_> = (0..=options.slots).map(|_| Arena::new(layout.clone())).collect();
    let segment = |kernel, key| {
        Some(SegmentProgram {
            program: program(),
            steps: vec![Step { kernel, items: 256 }],
            reads: ColumnSet::of(&[key]),
            writes: ColumnSet::of(&[LpmColumns::RESULT]),
            fills: ColumnSet::of(&[LpmColumns::RESULT]),
            payload: None,
            state_bytes: 0,
        })
    };
    let segments = vec![segment("lpm4", LpmColumns::DST4), segment("lpm6", LpmColumns::DST6)];
    let accelerator =
        Accelerator::new(driver, layout, segments, source, arenas.clone(), None, options)?;
    Ok((accelerator, arenas))
}

/// A job of `arena`'s first rows, its keys filled in.
pub(crate) fn job(
    arena: &Arena,
    pin: &Arc<Pin<Fib>>,
    kind: Kind,
    keys4: &[u32],
    keys6: &[Key6],
) -> Result<LookupJob, String> {
    let n = if kind == Kind::V4 { keys4.len() } else { keys6.len() };
    let mut rows = arena.reserve(n).ok_or("an arena is still in use")?;
    let view = LpmColumns::view(&mut rows);
    match kind {
        Kind::V4 => view.dst4.copy_from_slice(keys4),
        Kind::V6 => view.dst6.copy_from_slice(keys6),
    }
    Ok(LookupJob { rows, pin: pin.clone(), kind })
}

/// Launches a job and waits for its end.
pub(crate) fn run(
    device: &mut Accelerator<LookupJob>,
    job: LookupJob,
) -> Result<LookupJob, String> {
    device.launch(job).map_err(|(_, error)| error.map_or("no slot".into(), |e| e.to_string()))?;
    loop {
        if let Some((job, result)) = device.retire(std::time::Duration::from_secs(20)) {
            return result.map(|()| job).map_err(|e| e.to_string());
        }
    }
}

/// Compares a job's answers with the CPU's.
pub(crate) fn check(job: &mut LookupJob) -> Result<(), String> {
    let n = job.rows.len();
    let mut wanted = vec![0; n];
    let view = LpmColumns::view(&mut job.rows);
    match job.kind {
        Kind::V4 => job.pin.lookup4(view.dst4, &mut wanted),
        Kind::V6 => job.pin.lookup6(view.dst6, &mut wanted),
    }
    match view.result.iter().zip(&wanted).position(|(got, wanted)| got != wanted) {
        None => Ok(()),
        Some(row) => Err(format!(
            "row {row} of {n}: the device says {}, the CPU {}",
            view.result[row], wanted[row]
        )),
    }
}
