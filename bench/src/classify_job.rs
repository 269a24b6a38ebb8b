//! A job that classifies headers and nothing else: what `shadeline classify` sends to a device, and
//! `bench classify --backend` measures.
//!
//! The image that the CPU reads is the device's, as its only region, and takes the same patches. It says itself what it
//! is, so a job finds its kernel by it ([`form`]).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use ::classify::cuts::Cuts;
use ::classify::linear::Linear;
use ::classify::rfc::Rfc;
use ::classify::tic::Tic;
use ::classify::tuple::TupleSpace;
use ::classify::{Classify, Match, Tables};
use chunk::{Arena, ColumnSet, JobHeader, Layout, Packet, Rows};
use device::accelerator::{Accelerator, Offload, Options, SegmentProgram, Step};
use device::driver::{Arguments, Driver, Program, Queue, Shape};
use device::tables::{Change, TableSource};
use device::{Device, DeviceError, Shadeable};
use kernels::Spec;
use kernels::classifiers::{Classifier, FOUND, Structure};
use lookup::Patch;
use lookup::versions::{Changes, Pin};

use crate::on_device::{PATIENCE, send_image, text, timed};

/// Work items of a group.
const ITEMS: u32 = 256;
/// Bytes of a match.
const FOUND_BYTES: usize = 8;
/// Bytes of a column of a header.
const HEAD_BYTES: usize = 16;

/// Rules as both sides have them.
pub trait Rules: Send + Sync + 'static {
    /// One version of them.
    fn tables(&self) -> &Tables;
    /// Which one.
    fn version(&self) -> u64;
}

impl Rules for Pin<Tables> {
    fn tables(&self) -> &Tables {
        self
    }
    fn version(&self) -> u64 {
        Pin::version(self)
    }
}

/// Rules that never change.
#[derive(Debug)]
pub struct Still(pub Tables);

impl Rules for Still {
    fn tables(&self) -> &Tables {
        &self.0
    }
    fn version(&self) -> u64 {
        1
    }
}

/// Where a device's copies come from: of rules that change with what changed, of others without.
#[derive(Debug)]
pub struct RuleImages(pub Option<Changes<Patch>>);

impl TableSource<Tables> for RuleImages {
    fn regions<'a>(&self, tables: &'a Tables) -> Vec<Cow<'a, [u32]>> {
        vec![Cow::Borrowed(tables.blob().words())]
    }

    fn changes(&self, from: u64, to: u64, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        let between = self.0.as_ref().and_then(|changes| changes.between(from, to));
        let Some(versions) = between else { return false };
        for patch in versions.iter().flat_map(|patches| patches.iter()) {
            controlplane::tables::each_change(patch, 0, change);
        }
        true
    }
}

/// The kernel for an image; `None` where it has no device form.
pub fn form(tables: &Tables) -> Option<Classifier> {
    let blob = tables.blob();
    let linear = Linear::new(blob).map(|_| Structure::Linear);
    let known = linear.or_else(|| TupleSpace::new(blob).map(|_| Structure::Tuple));
    let known = known.or_else(|| Cuts::new(blob).map(|_| Structure::Cuts));
    let known = known.or_else(|| Rfc::new(blob).map(|_| Structure::Rfc));
    let known = known.or_else(|| Tic::new(blob).map(|_| Structure::Tic));
    Classifier::of(known?, tables.words())
}

/// Headers with one version of the rules.
pub struct ClassifyJob<T> {
    rows: Rows,
    rules: Arc<T>,
    form: Classifier,
    /// Its first header's place among all.
    first: usize,
}

impl<T: Rules> ClassifyJob<T> {
    /// A job of `arena`'s first rows, its headers filled in.
    ///
    /// # Errors
    /// The arena has no room, or is still in use.
    pub fn new(
        arena: &Arena,
        rules: &Arc<T>,
        form: Classifier,
        headers: &[u32],
        first: usize,
    ) -> Result<Self, String> {
        let count = headers.len() / form.words;
        let mut rows = arena.reserve(count).ok_or("an arena is still in use")?;
        for (number, column) in form.heads().enumerate() {
            let column = rows.layout().column(column);
            form.fill(number, headers, rows.column_bytes_mut(column));
        }
        Ok(Self { rows, rules: rules.clone(), form, first })
    }

    /// The rules that it was made with.
    pub fn rules(&self) -> &T {
        &self.rules
    }

    /// Compares what was found with what the CPU says of the same version.
    ///
    /// # Errors
    /// The first header on which they differ.
    pub fn check(&self) -> Result<(), String> {
        let mut wanted = vec![Match::NONE; self.rows.len()];
        self.rules.tables().classify(&self.headers(), &mut wanted);
        match self.found().zip(&wanted).position(|(found, wanted)| found != *wanted) {
            None => Ok(()),
            Some(row) => Err(format!("row {row}: the device differs from {:?}", wanted[row])),
        }
    }

    /// What was found.
    pub fn found(&self) -> impl Iterator<Item = Match> {
        let bytes = self.rows.column_bytes(self.rows.layout().column(FOUND));
        matches(bytes)
    }

    /// The headers as the CPU's side takes them.
    fn headers(&self) -> Vec<u32> {
        let words = self.form.words;
        let mut headers = vec![0; self.rows.len() * words];
        for (number, column) in self.form.heads().enumerate() {
            let column = self.rows.layout().column(column);
            let rows = self.rows.column_bytes(column).as_chunks::<HEAD_BYTES>().0;
            for (row, header) in rows.iter().zip(headers.chunks_exact_mut(words)) {
                let column = row.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
                header[4 * number..].iter_mut().zip(column).for_each(|(to, word)| *to = word);
            }
        }
        headers
    }
}

/// Matches as they stand in a column.
fn matches(bytes: &[u8]) -> impl Iterator<Item = Match> {
    let numbers = bytes.as_chunks::<FOUND_BYTES>().0.iter().map(|found| u64::from_le_bytes(*found));
    numbers.map(|found| Match::new((found >> 32) as u32, found as u32))
}

impl<T: Rules> Shadeable for ClassifyJob<T> {
    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn shade(&mut self) {
        let mut out = vec![Match::NONE; self.rows.len()];
        self.rules.tables().classify(&self.headers(), &mut out);
        let found = self.rows.layout().column(FOUND);
        let column = self.rows.column_bytes_mut(found);
        for (bytes, found) in column.as_chunks_mut::<FOUND_BYTES>().0.iter_mut().zip(out) {
            let id = found.id().unwrap_or(u32::MAX);
            *bytes = (u64::from(found.priority()) << 32 | u64::from(id)).to_le_bytes();
        }
    }
}

impl<T: Rules> Offload for ClassifyJob<T> {
    type Tables = Tables;

    fn segment(&self) -> usize {
        0
    }

    fn tables(&self) -> Option<(&Tables, u64)> {
        Some((self.rules.tables(), self.rules.version()))
    }

    fn parts(&mut self, part: &mut dyn FnMut(&mut Rows)) {
        part(&mut self.rows);
    }

    fn packets(&mut self, _: &mut dyn FnMut(&mut Packet)) {}
}

fn program(form: &Classifier) -> Program {
    let spec = Spec::of_file(form.file);
    let source = kernels::source(&spec);
    Program { name: form.file.name.into(), source, defines: Vec::new(), ptx: None }
}

/// A device that is ready for jobs, and the arenas of them.
pub type Ready<T> = (Accelerator<ClassifyJob<T>>, Vec<Arena>);

/// A device for jobs of at most `rows` headers, and the arenas of as many as may be in flight.
///
/// # Errors
/// As [`Accelerator::new`].
pub fn accelerator<T: Rules>(
    driver: Box<dyn Driver>,
    images: RuleImages,
    form: &Classifier,
    rows: usize,
    options: Options,
) -> Result<Ready<T>, DeviceError> {
    let layout = Layout::new(form.columns, rows);
    let arenas: Vec<_> = (0..options.slots).map(|_| Arena::new(layout.clone())).collect();
    let found = ColumnSet::of(&[FOUND]);
    let segment = SegmentProgram {
        program: program(form),
        steps: vec![Step::shared(form.kernel, ITEMS, form.items_per_row)],
        reads: form.reads(),
        writes: found.clone(),
        fills: found,
        payload: None,
        payload_steps: 0,
        is_trusted: true,
        ..SegmentProgram::default()
    };
    let (segments, images) = (vec![Some(segment)], Box::new(images));
    let device = Accelerator::new(driver, layout, segments, images, arenas.clone(), None, options)?;
    Ok((device, arenas))
}

/// Classifies all headers on a device, as many jobs in flight as it takes. From the first failure on, which is
/// returned, the CPU does what is left, so that the answers are whole in any case.
pub fn classify_all<T: Rules>(
    (device, arenas): &mut Ready<T>,
    rules: &Arc<T>,
    form: Classifier,
    headers: &[u32],
    out: &mut [Match],
) -> Option<String> {
    let words = form.words;
    let (mut next, mut failure) = (0, None::<String>);
    let mut idle: Vec<&Arena> = arenas.iter().collect();
    let mut take = |job: &ClassifyJob<T>| {
        out[job.first..].iter_mut().zip(job.found()).for_each(|(to, found)| *to = found);
    };
    loop {
        while next * words < headers.len() && failure.is_none() {
            let Some(arena) = idle.pop() else { break };
            arena.close();
            arena.reopen();
            let end = (headers.len() / words).min(next + arena.layout().capacity());
            let of_job = &headers[next * words..end * words];
            let job = match ClassifyJob::new(arena, rules, form, of_job, next) {
                Ok(job) => job,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            };
            next = end;
            if let Err((mut job, error)) = device.launch(job) {
                failure.get_or_insert(error.map_or("no slot".into(), |error| error.to_string()));
                job.shade();
                take(&job);
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
        take(&job);
        drop(job);
        idle.extend(arena);
    }
    rules.tables().classify(&headers[next * words..], &mut out[next..]);
    failure
}

/// Time that is spent on the kernel alone, and passes over all headers at most.
const ALONE: Duration = Duration::from_millis(300);
const PASSES_MAX: u32 = 64;

/// The kernel alone, headers and answers on the device: nanoseconds a header, over passes over all of them, and by
/// whose clock. What it answers is written to `out`.
///
/// # Errors
/// The device's.
pub fn kernel_alone(
    driver: &mut dyn Driver,
    tables: &Tables,
    form: &Classifier,
    headers: &[u32],
    out: &mut [Match],
) -> Result<(f64, &'static str), String> {
    let rows = out.len();
    let kernel = driver.build(&program(form), &[form.kernel]).map_err(text)?[0];
    let image = send_image(driver, &[tables.blob().words()])?;
    let queue = driver.queue().map_err(text)?;
    let (bytes, found) = arena_bytes(form, headers, rows);
    let arena = driver.allocate(bytes.len()).map_err(text)?;
    device::upload_all(driver, queue, arena, &[(&bytes, 0)], PATIENCE).map_err(text)?;
    let at_once = driver.info().groups_at_once();
    let shape = Shape::of_rows(rows, ITEMS).shared(form.items_per_row, at_once);
    let arguments = Arguments { arena, payload: arena, tables: image, state: arena, job: 0 };
    let launch = (kernel, shape, arguments);
    // The first one may still compile.
    timed(driver, queue, &[launch])?;
    let (once, _) = timed(driver, queue, &[launch])?;
    let passes = ALONE.div_duration_f64(once).clamp(1.0, PASSES_MAX.into());
    let launches = vec![launch; passes as usize];
    let (time, clock) = timed(driver, queue, &launches)?;
    download(driver, queue, (arena, found), out)?;
    driver.free(arena);
    driver.free(image);
    Ok((time.as_secs_f64() * 1e9 / launches.len() as f64 / rows.max(1) as f64, clock))
}

fn download(
    driver: &mut dyn Driver,
    queue: Queue,
    (arena, at): (device::driver::Memory, usize),
    out: &mut [Match],
) -> Result<(), String> {
    let mut bytes = vec![0; out.len() * FOUND_BYTES];
    device::download_all(driver, queue, arena, at, &mut bytes, PATIENCE).map_err(text)?;
    out.iter_mut().zip(matches(&bytes)).for_each(|(to, found)| *to = found);
    Ok(())
}

/// A job of only those columns that the kernel touches, and where its answers are.
fn arena_bytes(form: &Classifier, headers: &[u32], rows: usize) -> (Vec<u8>, usize) {
    let layout = Layout::new(form.columns, rows);
    let column = (HEAD_BYTES * rows).next_multiple_of(64);
    let first = layout.header_bytes();
    let heads: Vec<_> = form.heads().collect();
    let found = first + heads.len() * column;
    let mut bytes = vec![0; found + FOUND_BYTES * rows.max(1)];
    layout.write_header(0, rows as u32, 1, &mut bytes);
    for (number, head) in heads.iter().enumerate() {
        let at = first + number * column;
        JobHeader::write_offset(&mut bytes, layout.column(*head), at as u32);
        form.fill(number, headers, &mut bytes[at..at + HEAD_BYTES * rows]);
    }
    JobHeader::write_offset(&mut bytes, layout.column(FOUND), found as u32);
    (bytes, found)
}

#[cfg(test)]
mod tests {
    use ::classify::algorithms::find;
    use ::classify::generate::synthetic;
    use ::classify::generate::trace::{self, Copies, Point, trace};
    use ::classify::{RuleSet, Schema};
    use device::driver::Api;
    use device::faulty::{Faults, Faulty};

    use super::*;

    fn set(schema: Schema) -> RuleSet {
        let distribution = synthetic::Distribution::Full;
        let schema = schema.into();
        let (rules, classes, overlap, seed) = (2000, 16, 1, 3);
        let full_classes = None;
        let options = synthetic::Options {
            schema,
            rules,
            classes,
            full_classes,
            overlap,
            distribution,
            seed,
        };
        synthetic::rules(&options).unwrap().set
    }

    fn headers(set: &RuleSet, headers: usize) -> Vec<u32> {
        let (copies, point) = (Copies::Uniform, Point::Corner);
        trace(set, &trace::Options { headers, copies, point, first: None, seed: 1 }).headers
    }

    /// Jobs of few rows and of many, and the kernel alone, answer as the CPU does.
    #[test]
    fn a_device_answers_as_the_cpu() {
        if !testkit::require_opencl() {
            return;
        }
        for (schema, name) in [
            (Schema::five_tuple(), "linear"),
            (Schema::five_tuple(), "bloom"),
            (Schema::twelve_fields(), "tuple"),
        ] {
            let set = set(schema);
            let tables = (find(name).unwrap().build)(&set).unwrap().tables().unwrap();
            let headers = &headers(&set, 3000)[..];
            let mut wanted = vec![Match::NONE; 3000];
            tables.classify(headers, &mut wanted);
            let form = form(&tables).unwrap();
            let open = || device::probe::open(Api::OpenCl, 0).unwrap();
            let mut found = vec![Match::new(0, 0); 3000];
            kernel_alone(&mut *open(), &tables, &form, headers, &mut found).unwrap();
            assert!(found == wanted, "{name}");
            let rules = Arc::new(Still(tables));
            for rows in [256, 3000] {
                let options = Options::default();
                let mut ready =
                    accelerator(open(), RuleImages(None), &form, rows, options).unwrap();
                let mut found = vec![Match::new(0, 0); 3000];
                let failed = classify_all(&mut ready, &rules, form, headers, &mut found);
                assert!(failed.is_none() && found == wanted, "{name}, {rows}: {failed:?}");
            }
        }
    }

    /// Whenever the device fails, the answers are those of the CPU, and the failure is reported.
    #[test]
    fn answers_are_whole_whatever_the_device_does() {
        if !testkit::require_opencl() {
            return;
        }
        let set = set(Schema::five_tuple_v6());
        let tables = (find("tuple").unwrap().build)(&set).unwrap().tables().unwrap();
        let headers = &headers(&set, 5000)[..];
        let mut wanted = vec![Match::NONE; 5000];
        tables.classify(headers, &mut wanted);
        let form = form(&tables).unwrap();
        let rules = Arc::new(Still(tables));
        // Setting up launches the kernel once.
        let base = Faults { after_launches: 2, ..Faults::default() };
        for (faults, fails) in [
            (base, false),
            (Faults { launch: Some(2), ..base }, true),
            (Faults { download: Some(5), ..base }, true),
            (Faults { lost: Some(4), ..base }, true),
        ] {
            let driver = device::probe::open(Api::OpenCl, 0).unwrap();
            let driver = Box::new(Faulty::new(driver, faults));
            let options = Options::default();
            let mut ready = accelerator(driver, RuleImages(None), &form, 256, options).unwrap();
            let mut found = vec![Match::new(0, 0); 5000];
            let failure = classify_all(&mut ready, &rules, form, headers, &mut found);
            assert!(found == wanted, "{faults:?}");
            assert_eq!(failure.is_some(), fails, "{faults:?}: {failure:?}");
        }
    }
}
