//! A job that looks addresses up and nothing else: what the kernels and the way to them can do, and what
//! `shadeline lpm` sends to a device.

use std::sync::Arc;
use std::time::Duration;

use chunk::{Arena, ColumnSet, Columns, Layout, Packet, Rows};
use device::accelerator::{Accelerator, Offload, Options, SegmentProgram, Step};
use device::driver::{Driver, Program};
use device::tables::TableSource;
use device::{Device, DeviceError, Shadeable};
use kernels::{LpmColumns, Spec, files};
use lookup::fib::Fib;
use lookup::versions::Pin;
use lookup::{Key6, NextHopId};

/// Tables that addresses are looked up in, on either side.
pub trait Lookups: Send + Sync + 'static {
    /// As their source knows them.
    type Tables;
    /// They themselves.
    fn tables(&self) -> &Self::Tables;
    /// Their version.
    fn version(&self) -> u64;
    /// Looks IPv4 addresses up, on the CPU.
    fn lookup4(&self, keys: &[u32], results: &mut [NextHopId]);
    /// Looks IPv6 addresses up, on the CPU.
    fn lookup6(&self, keys: &[Key6], results: &mut [NextHopId]);
}

impl Lookups for Pin<Fib> {
    type Tables = Fib;
    fn tables(&self) -> &Fib {
        self
    }
    fn version(&self) -> u64 {
        Pin::version(self)
    }
    fn lookup4(&self, keys: &[u32], results: &mut [NextHopId]) {
        Fib::lookup4(self, keys, results);
    }
    fn lookup6(&self, keys: &[Key6], results: &mut [NextHopId]) {
        Fib::lookup6(self, keys, results);
    }
}

/// The address family of a job, and its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    V4 = 0,
    V6 = 1,
}

/// Rows of [`LpmColumns`] with one version of the tables.
pub struct LookupJob<T = Pin<Fib>> {
    pub(crate) rows: Rows,
    pub(crate) pin: Arc<T>,
    pub(crate) kind: Kind,
    /// Its first key's place among all keys.
    first: usize,
}

impl<T: Lookups> Shadeable for LookupJob<T> {
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

impl<T: Lookups> Offload for LookupJob<T> {
    type Tables = T::Tables;

    fn segment(&self) -> usize {
        self.kind as usize
    }

    fn tables(&self) -> Option<(&T::Tables, u64)> {
        Some((self.pin.tables(), self.pin.version()))
    }

    fn parts(&mut self, part: &mut dyn FnMut(&mut Rows)) {
        part(&mut self.rows);
    }

    fn packets(&mut self, _: &mut dyn FnMut(&mut Packet)) {}
}

/// The program of all lookups.
pub(crate) fn program() -> Program {
    let spec = Spec::new("lpm", &[&files::LPM, &files::TRIES], LpmColumns::COLUMNS);
    let source = kernels::source(&spec);
    Program { name: "lpm".into(), source, defines: Vec::new(), ptx: None }
}

/// The kernels that look IPv4 and IPv6 up, by the tables that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupKernels {
    /// `lpm4` (DIR-24-8) or `poptrie`.
    pub v4: &'static str,
    /// `lpm6` (binary search on prefix lengths) or `mtrie6`.
    pub v6: &'static str,
}

impl Default for LookupKernels {
    fn default() -> Self {
        Self { v4: "lpm4", v6: "lpm6" }
    }
}

/// A device for jobs of at most `rows` rows, and the arenas of as many jobs as may be in flight, and one
/// more.
///
/// # Errors
/// As [`Accelerator::new`].
pub fn accelerator<T: Lookups>(
    driver: Box<dyn Driver>,
    source: Box<dyn TableSource<T::Tables>>,
    kernels: LookupKernels,
    rows: usize,
    options: Options,
) -> Result<(Accelerator<LookupJob<T>>, Vec<Arena>), DeviceError> {
    let layout = Layout::new(LpmColumns::COLUMNS, rows);
    let arenas: Vec<_> = (0..=options.slots).map(|_| Arena::new(layout.clone())).collect();
    let segment = |kernel, key| {
        Some(SegmentProgram {
            program: program(),
            steps: vec![Step::rows(kernel, 256)],
            reads: ColumnSet::of(&[key]),
            writes: ColumnSet::of(&[LpmColumns::RESULT]),
            fills: ColumnSet::of(&[LpmColumns::RESULT]),
            payload: None,
            payload_steps: 0,
            is_trusted: true,
            ..SegmentProgram::default()
        })
    };
    let segments =
        vec![segment(kernels.v4, LpmColumns::DST4), segment(kernels.v6, LpmColumns::DST6)];
    let accelerator =
        Accelerator::new(driver, layout, segments, source, arenas.clone(), None, options)?;
    Ok((accelerator, arenas))
}

/// A job of `arena`'s first rows, its keys filled in.
pub(crate) fn job<T: Lookups>(
    arena: &Arena,
    pin: &Arc<T>,
    kind: Kind,
    keys4: &[u32],
    keys6: &[Key6],
) -> Result<LookupJob<T>, String> {
    let n = if kind == Kind::V4 { keys4.len() } else { keys6.len() };
    let mut rows = arena.reserve(n).ok_or("an arena is still in use")?;
    let view = LpmColumns::view(&mut rows);
    match kind {
        Kind::V4 => view.dst4.copy_from_slice(keys4),
        Kind::V6 => view.dst6.copy_from_slice(keys6),
    }
    Ok(LookupJob { rows, pin: pin.clone(), kind, first: 0 })
}

/// Launches a job and waits for its end.
pub(crate) fn run<T: Lookups>(
    device: &mut Accelerator<LookupJob<T>>,
    job: LookupJob<T>,
) -> Result<LookupJob<T>, String> {
    device.launch(job).map_err(|(_, error)| error.map_or("no slot".into(), |e| e.to_string()))?;
    loop {
        if let Some((job, result)) = device.retire(std::time::Duration::from_secs(20)) {
            return result.map(|()| job).map_err(|e| e.to_string());
        }
    }
}

/// Compares a job's answers with the CPU's.
pub(crate) fn check<T: Lookups>(job: &mut LookupJob<T>) -> Result<(), String> {
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

/// Addresses of one family.
#[derive(Clone, Copy, Debug)]
pub enum Keys<'a> {
    /// IPv4.
    V4(&'a [u32]),
    /// IPv6.
    V6(&'a [Key6]),
}

impl<'a> Keys<'a> {
    fn len(self) -> usize {
        match self {
            Keys::V4(keys) => keys.len(),
            Keys::V6(keys) => keys.len(),
        }
    }

    fn job<T: Lookups>(
        self,
        arena: &Arena,
        tables: &Arc<T>,
        range: std::ops::Range<usize>,
    ) -> Result<LookupJob<T>, String> {
        let first = range.start;
        let job = match self {
            Keys::V4(keys) => job(arena, tables, Kind::V4, &keys[range], &[]),
            Keys::V6(keys) => job(arena, tables, Kind::V6, &[], &keys[range]),
        };
        job.map(|job| LookupJob { first, ..job })
    }

    fn on_cpu<T: Lookups>(self, tables: &T, from: usize, results: &mut [NextHopId]) {
        match self {
            Keys::V4(keys) => tables.lookup4(&keys[from..], &mut results[from..]),
            Keys::V6(keys) => tables.lookup6(&keys[from..], &mut results[from..]),
        }
    }
}

/// Looks all keys up on a device, as many jobs in flight as it takes. From the first failure on, which is
/// returned, the CPU does what is left, so that the results are whole in any case.
pub fn lookup_all<T: Lookups>(
    device: &mut Accelerator<LookupJob<T>>,
    arenas: &[Arena],
    tables: &Arc<T>,
    keys: Keys<'_>,
    results: &mut [NextHopId],
) -> Option<String> {
    let (mut next, mut failure) = (0, None::<String>);
    let mut idle: Vec<&Arena> = arenas.iter().take(device.slots()).collect();
    let mut take = |job: &mut LookupJob<T>| {
        let found = LpmColumns::view(&mut job.rows).result;
        results[job.first..][..found.len()].copy_from_slice(found);
    };
    loop {
        while next < keys.len() && failure.is_none() {
            let Some(arena) = idle.pop() else { break };
            arena.close();
            arena.reopen();
            let end = keys.len().min(next + arena.layout().capacity());
            match keys.job(arena, tables, next..end) {
                Err(error) => failure = Some(error),
                Ok(job) => {
                    next = end;
                    if let Err((mut job, error)) = device.launch(job) {
                        let text = error.map_or("no slot".into(), |error| error.to_string());
                        failure.get_or_insert(text);
                        job.shade();
                        take(&mut job);
                    }
                }
            }
        }
        if device.in_flight() == 0 {
            break;
        }
        let Some((mut job, result)) = device.retire(Duration::from_secs(1)) else { continue };
        let arena = arenas.iter().find(|arena| arena.holds(&job.rows));
        if let Err(error) = result {
            failure.get_or_insert(error.to_string());
            job.shade();
        }
        take(&mut job);
        drop(job);
        idle.extend(arena);
    }
    keys.on_cpu(&**tables, next, results);
    failure
}

#[cfg(test)]
mod tests {
    use device::driver::Api;
    use device::faulty::{Faults, Faulty};
    use lookup::versions::versions;

    use super::*;
    use crate::tables::{self, Spread, keys4, keys6};

    /// Whenever the device fails, the results are those of the CPU, and the failure is reported.
    #[test]
    fn results_are_whole_whatever_the_device_does() {
        if !testkit::require_opencl() {
            return;
        }
        let lines: Vec<_> =
            (1..99).map(|n| format!("{n}.{n}.0.0/17 a\n2001:{n}::/33 b\n{n}.0.0.0/9 c")).collect();
        let routes = lookup::routes::read(lines.join("\n").as_bytes()).unwrap();
        let (builder, fib) = tables::fib(&routes, tables::of_kernels()).unwrap();
        drop(builder);
        let prefixes4: Vec<_> = routes.v4.iter().map(|(prefix, _)| *prefix).collect();
        let prefixes6: Vec<_> = routes.v6.iter().map(|(prefix, _)| *prefix).collect();
        let keys4 = keys4(&prefixes4, 5000, Spread::Prefixes, 1);
        let keys6 = keys6(&prefixes6, 5000, Spread::Prefixes, 2);
        let (writer, reader) = versions(fib);
        let pin = Arc::new(reader.pin());
        // Setting up launches both kernels; the first job brings the tables before its own.
        let base = Faults { after_launches: 3, ..Faults::default() };
        for (faults, fails) in [
            (base, false),
            (Faults { launch: Some(3), ..base }, true),
            (Faults { download: Some(5), ..base }, true),
            (Faults { lost: Some(4), ..base }, true),
            (Faults { hang: Some(9), ..base }, true),
        ] {
            let driver = device::probe::open(Api::OpenCl, 0).unwrap();
            let driver = Box::new(Faulty::new(driver, faults));
            let patience = Duration::from_secs(if faults.hang.is_some() { 1 } else { 60 });
            let options = Options { patience, ..Options::default() };
            let source = Box::new(apps::router::FibImages::new(writer.changes(), 0));
            let (mut device, arenas) =
                accelerator::<Pin<Fib>>(driver, source, LookupKernels::default(), 256, options)
                    .unwrap();
            let mut failures = Vec::new();
            for keys in [Keys::V4(&keys4), Keys::V6(&keys6)] {
                let (mut found, mut wanted) = (vec![7; 5000], vec![0; 5000]);
                failures.extend(lookup_all(&mut device, &arenas, &pin, keys, &mut found));
                keys.on_cpu(&*pin, 0, &mut wanted);
                assert!(found == wanted, "{faults:?}, {keys:?}");
            }
            assert_eq!(!failures.is_empty(), fails, "{faults:?}: {failures:?}");
        }
    }
}
