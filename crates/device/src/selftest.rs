//! Known answers: a device that gives another is not used.
//!
//! A compiler, a driver or a memory may be wrong without any call failing. So every kernel runs once, as
//! it runs later, on the inputs of [`kernels::known`], and what it leaves in memory is compared byte by
//! byte. Which kernels there are, the caller says: those of the crate `kernels` ([`kernels::files::ALL`]) and of the
//! applications.
//!
//! ```text
//! for each known answer:
//!     build the file's program (once)      allocate arena, payload, tables, state
//!     upload ─▶ launch, launch, … ─▶ download, all in one queue ─▶ wait, free, compare
//! ```
//!
//! Memory is given back in any case but one: while the device has not been seen to end, nothing that it
//! may still touch is freed: the host's part of that is leaked then, and the driver abandoned.
//! The queue and the kernels stay with the driver, which cannot give them back.
//!
//! Threads: as the driver's.

use std::time::{Duration, Instant};

use kernels::known::{self, Expected, Known, Place};
use kernels::{KernelFile, source};

use crate::DeviceError;
use crate::driver::{Arguments, Driver, Kernel, Memory, Program, Queue, Shape};

/// What takes longer has hung. PoCL compiles kernels while they are launched.
const PATIENCE: Duration = Duration::from_secs(60);
/// Work items of a group: what programs are built for unless the device cannot.
const GROUP_ITEMS_MAX: u32 = 256;
/// With fewer the kernels that share memory do not work.
const GROUP_ITEMS_MIN: u32 = 16;
/// Some libraries have no memory of no bytes, and kernels read whole words.
const MEMORY_BYTES_MIN: usize = 64;

/// How a kernel did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The kernel.
    pub kernel: &'static str,
    /// Whether its answer was the known one, or what went wrong. Kernels that only do something together,
    /// such as those of a sort, have one result.
    pub result: Result<(), DeviceError>,
    /// From the beginning until the answer was compared, with building the program where that had not been
    /// done for a kernel of the same file. Kernels with one result have one time.
    pub time: Duration,
}

/// Runs every kernel of `files` on inputs whose answers are known, until one fails.
///
/// # Errors
/// The first kernel that failed ([`DeviceError::Hang`] after a minute) or gave another answer
/// ([`DeviceError::WrongAnswer`]).
pub fn run(driver: &mut dyn Driver, files: &[&'static KernelFile]) -> Result<(), DeviceError> {
    let (mut bench, all) = begin(driver, files)?;
    all.into_iter().try_for_each(|known| bench.prove(known))
}

/// Runs every kernel of `files`, whatever the others do, and says how each one did. After a hang or the loss of
/// the device the kernels that are left have the same result.
pub fn each(driver: &mut dyn Driver, files: &[&'static KernelFile]) -> Vec<Answer> {
    let mut answers = Vec::new();
    let mut gone = None;
    let (mut bench, all) = match begin(driver, files) {
        Ok((bench, all)) => (Some(bench), all),
        Err(error) => {
            gone = Some(error);
            (None, known::of(files, GROUP_ITEMS_MAX))
        }
    };
    for known in all {
        let (kernels, since) = (known.kernels.clone(), Instant::now());
        let result = match (&mut bench, &gone) {
            (Some(bench), None) => bench.prove(known),
            (_, Some(error)) => Err(error.clone()),
            (None, None) => Ok(()), // there is a bench or an error
        };
        gone = gone.or_else(|| bench.as_ref()?.gone.clone());
        let time = since.elapsed();
        let answer = |kernel: &&'static str| Answer { kernel, result: result.clone(), time };
        answers.extend(kernels.iter().map(answer));
    }
    answers
}

fn begin<'a>(
    driver: &'a mut dyn Driver,
    files: &[&'static KernelFile],
) -> Result<(Bench<'a>, Vec<Known>), DeviceError> {
    let items_max = driver.info().group_items_max.min(GROUP_ITEMS_MAX);
    if items_max < GROUP_ITEMS_MIN {
        return Err(DeviceError::Launch(format!(
            "groups have at most {items_max} work items, kernels need {GROUP_ITEMS_MIN}"
        )));
    }
    let queue = driver.queue()?;
    let bench = Bench { driver, queue, patience: PATIENCE, built: Vec::new(), gone: None };
    Ok((bench, known::of(files, 1 << items_max.ilog2())))
}

/// A device under test.
struct Bench<'a> {
    driver: &'a mut dyn Driver,
    queue: Queue,
    patience: Duration,
    /// Programs so far: files that have more than one known answer are built once.
    built: Vec<(Program, Built)>,
    /// Why nothing more can be asked of it.
    gone: Option<DeviceError>,
}

/// Kernels by name.
type Built = Vec<(&'static str, Kernel)>;

/// The device's memories of one known answer, as far as they could be had.
#[derive(Default)]
struct Memories {
    arena: Option<Memory>,
    payload: Option<Memory>,
    tables: Option<Memory>,
    state: Option<Memory>,
}

/// What copies read and write: stays where it is until they have ended.
struct Host {
    known: Known,
    found: Vec<Vec<u8>>,
}

impl Bench<'_> {
    /// Does a known answer's launches give it?
    fn prove(&mut self, known: Known) -> Result<(), DeviceError> {
        let built = self.build(&known)?;
        let found = known.expected.iter().map(|expected| vec![0; expected.bytes.len()]).collect();
        let mut host = Host { known, found };
        let mut memories = Memories::default();
        let enqueued = self.enqueue(&mut host, &mut memories, &built);
        // Also after an error: what was enqueued before it may be under way.
        let ended = self.finish();
        let over = match &ended {
            // A device that did not answer within that time is not tried again.
            Ok(()) | Err(DeviceError::Hang(_)) => ended.clone(),
            Err(_) => self.finish(),
        };
        if let Err(error) = over {
            std::mem::forget(host); // and the device's memories stay
            self.driver.abandon();
            self.gone = Some(error.clone());
            return enqueued.and(ended);
        }
        let Memories { arena, payload, tables, state } = memories;
        for memory in [arena, payload, tables, state].into_iter().flatten() {
            self.driver.free(memory);
        }
        enqueued.and(ended)?;
        let Host { known, found } = host;
        let wrong = known.expected.iter().zip(&found).find_map(|(expected, found)| {
            difference(expected, found).map(|(i, byte)| DeviceError::WrongAnswer {
                kernel: known.kernels.join(", "),
                place: name(expected.place),
                at: expected.at + i,
                expected: expected.bytes[i],
                got: byte,
            })
        });
        wrong.map_or(Ok(()), Err)
    }

    fn build(&mut self, known: &Known) -> Result<Built, DeviceError> {
        let (name, source) = (format!("{} (self-test)", known.spec.name), source(&known.spec));
        let program = Program { name, source, defines: Vec::new(), ptx: None };
        if let Some((_, built)) =
            self.built.iter().find(|(other, _)| other.source == program.source)
        {
            return Ok(built.clone());
        }
        let names = known.spec.kernels();
        let kernels = self.driver.build(&program, &names)?;
        let built: Built = names.into_iter().zip(kernels).collect();
        self.built.push((program, built.clone()));
        Ok(built)
    }

    fn enqueue(
        &mut self,
        host: &mut Host,
        memories: &mut Memories,
        built: &Built,
    ) -> Result<(), DeviceError> {
        let Host { known, found } = host;
        let arena = self.memory(&mut memories.arena, known.arena.len())?;
        let payload = self.memory(&mut memories.payload, known.payload.len())?;
        let tables = self.memory(&mut memories.tables, known.tables.bytes)?;
        let state = self.memory(&mut memories.state, known.state.len())?;
        let whole = [(arena, &known.arena), (payload, &known.payload), (state, &known.state)];
        let whole = whole.into_iter().map(|(memory, bytes)| (memory, 0, bytes));
        let parts = known.tables.parts.iter().map(|(at, bytes)| (tables, *at, bytes));
        for (memory, at, bytes) in whole.chain(parts).filter(|(_, _, bytes)| !bytes.is_empty()) {
            // SAFETY: `prove` keeps the bytes, unchanged, until the queue has been seen to end, or for good.
            unsafe { self.driver.upload(self.queue, &raw const bytes[..], memory, at) }?;
        }
        for launch in &known.launches {
            let kernel = built.iter().find(|(name, _)| *name == launch.kernel);
            let &(_, kernel) = kernel.ok_or_else(|| {
                DeviceError::Launch(format!("{} has no {}", known.spec.name, launch.kernel))
            })?;
            let shape = Shape { groups: launch.groups, items: launch.items };
            let arguments = Arguments { arena, payload, tables, state, job: launch.job };
            self.driver.launch(self.queue, kernel, shape, &arguments)?;
        }
        for (expected, found) in known.expected.iter().zip(found) {
            let memory = match expected.place {
                Place::Arena => arena,
                Place::Payload => payload,
                Place::Tables => tables,
                Place::State => state,
            };
            if !found.is_empty() {
                // SAFETY: `prove` looks at the bytes when the queue has been seen to end, and keeps them
                // until then, or for good.
                unsafe {
                    self.driver.download(self.queue, memory, expected.at, &raw mut found[..])
                }?;
            }
        }
        Ok(())
    }

    /// Memory of so many bytes, which is noted where it is to be freed.
    fn memory(&mut self, place: &mut Option<Memory>, bytes: usize) -> Result<Memory, DeviceError> {
        let memory = self.driver.allocate(bytes.max(MEMORY_BYTES_MIN))?;
        *place = Some(memory);
        Ok(memory)
    }

    /// Waits until nothing is under way.
    fn finish(&mut self) -> Result<(), DeviceError> {
        let event = self.driver.event(self.queue)?;
        let is_done = self.driver.wait(event, self.patience)?;
        if is_done { Ok(()) } else { Err(DeviceError::Hang(self.patience)) }
    }
}

/// The first byte that is not as expected, and what it is.
fn difference(expected: &Expected, found: &[u8]) -> Option<(usize, u8)> {
    let pairs = expected.bytes.iter().zip(found);
    let at = pairs.into_iter().position(|(expected, found)| expected != found)?;
    Some((at, found[at]))
}

fn name(place: Place) -> &'static str {
    match place {
        Place::Arena => "arena",
        Place::Payload => "payload",
        Place::Tables => "tables",
        Place::State => "state",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use crate::driver::{Api, DeviceInfo, Event};
    use crate::faulty::{Faults, Faulty};
    use crate::probe;
    use kernels::files::ALL;

    /// A device whose memories are counted, and which may change a byte on its way back.
    struct Watched {
        inner: Box<dyn Driver>,
        allocated: usize,
        freed: usize,
        programs: usize,
        downloads: usize,
        /// Of this download the byte there is another.
        flip: Option<(usize, usize)>,
    }

    impl Driver for Watched {
        fn info(&self) -> &DeviceInfo {
            self.inner.info()
        }
        fn build(&mut self, program: &Program, names: &[&str]) -> Result<Vec<Kernel>, DeviceError> {
            self.programs += 1;
            self.inner.build(program, names)
        }
        fn allocate(&mut self, bytes: usize) -> Result<Memory, DeviceError> {
            let memory = self.inner.allocate(bytes)?;
            self.allocated += 1;
            Ok(memory)
        }
        fn free(&mut self, memory: Memory) {
            self.freed += 1;
            self.inner.free(memory);
        }
        fn queue(&mut self) -> Result<Queue, DeviceError> {
            self.inner.queue()
        }
        // SAFETY: the conditions are the trait's; they are passed on.
        unsafe fn upload(
            &mut self,
            queue: Queue,
            bytes: *const [u8],
            to: Memory,
            at: usize,
        ) -> Result<(), DeviceError> {
            // SAFETY: the caller's.
            unsafe { self.inner.upload(queue, bytes, to, at) }
        }
        // SAFETY: as above.
        unsafe fn download(
            &mut self,
            queue: Queue,
            from: Memory,
            at: usize,
            to: *mut [u8],
        ) -> Result<(), DeviceError> {
            // SAFETY: the caller's.
            unsafe { self.inner.download(queue, from, at, to) }?;
            let number = self.downloads;
            self.downloads += 1;
            if let Some((_, byte)) = self.flip.filter(|(download, _)| *download == number) {
                let event = self.inner.event(queue)?;
                assert!(self.inner.wait(event, PATIENCE)?);
                // SAFETY: the copy has ended, and until the caller's event the bytes are ours.
                unsafe { (&mut *to)[byte] ^= 0x10 };
            }
            Ok(())
        }
        fn copy(
            &mut self,
            queue: Queue,
            from: (Memory, usize),
            to: (Memory, usize),
            bytes: usize,
        ) -> Result<(), DeviceError> {
            self.inner.copy(queue, from, to, bytes)
        }
        fn launch(
            &mut self,
            queue: Queue,
            kernel: Kernel,
            shape: Shape,
            arguments: &Arguments,
        ) -> Result<(), DeviceError> {
            self.inner.launch(queue, kernel, shape, arguments)
        }
        fn event(&mut self, queue: Queue) -> Result<Event, DeviceError> {
            self.inner.event(queue)
        }
        fn is_done(&mut self, event: Event) -> Result<bool, DeviceError> {
            self.inner.is_done(event)
        }
        fn wait_for(&mut self, queue: Queue, event: Event) -> Result<(), DeviceError> {
            self.inner.wait_for(queue, event)
        }
        // SAFETY: as above.
        unsafe fn register(&mut self, memory: *mut [u8]) -> Result<Option<Memory>, DeviceError> {
            // SAFETY: the caller's.
            unsafe { self.inner.register(memory) }
        }
        fn unregister(&mut self, start: *mut u8) -> Result<(), DeviceError> {
            self.inner.unregister(start)
        }
        fn abandon(&mut self) {
            self.inner.abandon();
        }
    }

    fn opencl() -> Option<Box<dyn Driver>> {
        if !testkit::require_opencl() {
            return None;
        }
        Some(probe::open_with(Api::OpenCl, 0, Cache::none()).expect("a device"))
    }

    fn watched(faults: Faults, flip: Option<(usize, usize)>) -> Option<Watched> {
        let inner: Box<dyn Driver> = Box::new(Faulty::new(opencl()?, faults));
        Some(Watched { inner, allocated: 0, freed: 0, programs: 0, downloads: 0, flip })
    }

    #[test]
    fn every_kernel_answers() {
        let Some(mut device) = watched(Faults::default(), None) else { return };
        let answers = each(&mut device, ALL);
        let mut names: Vec<_> = answers.iter().map(|answer| answer.kernel).collect();
        for answer in &answers {
            assert_eq!(answer.result, Ok(()), "{}", answer.kernel);
        }
        let kernels = ALL.iter().flat_map(|file| file.kernels);
        let mut all: Vec<_> = kernels.map(|kernel| kernel.name).collect();
        names.sort_unstable();
        names.dedup(); // some are asked more than once
        all.sort_unstable();
        assert_eq!(names, all);
        let sources = known::of(ALL, GROUP_ITEMS_MAX).into_iter().map(|known| source(&known.spec));
        let sources: std::collections::HashSet<_> = sources.collect();
        assert_eq!((device.allocated, device.programs), (device.freed, sources.len()));
        assert_eq!(run(&mut device, ALL), Ok(()));
    }

    #[test]
    fn one_wrong_byte_is_found_and_named() {
        let first = known::of(ALL, GROUP_ITEMS_MAX)
            .into_iter()
            .find(|known| !known.expected.is_empty())
            .expect("an answer");
        let byte = first.expected[0].bytes.len() - 1;
        let Some(mut device) = watched(Faults::default(), Some((0, byte))) else { return };
        let answers = each(&mut device, ALL);
        for answer in &answers {
            let is_wrong = first.kernels.contains(&answer.kernel);
            assert_eq!(answer.result.is_err(), is_wrong, "{}", answer.kernel);
        }
        assert_eq!(device.allocated, device.freed);
        device.downloads = 0;
        let right = first.expected[0].bytes[byte];
        let error = DeviceError::WrongAnswer {
            kernel: first.kernels.join(", "),
            place: "arena",
            at: byte,
            expected: right,
            got: right ^ 0x10,
        };
        assert_eq!(run(&mut device, ALL), Err(error.clone()));
        let text = error.to_string();
        assert!(text.starts_with(first.kernels[0]) && text.contains("known answer"), "{text}");
    }

    #[test]
    fn a_failure_is_reported_and_leaves_nothing_behind() {
        for (faults, failing) in [
            (Faults { build: true, ..Faults::default() }, usize::MAX),
            (Faults { upload: Some(0), ..Faults::default() }, 1),
            (Faults { launch: Some(1), ..Faults::default() }, 1),
            (Faults { download: Some(2), ..Faults::default() }, 1),
        ] {
            let Some(mut device) = watched(faults, None) else { return };
            let answers = each(&mut device, ALL);
            let failed = answers.iter().filter(|answer| answer.result.is_err()).count();
            assert_eq!(failed, failing.min(answers.len()), "{faults:?}");
            assert_eq!(device.allocated, device.freed, "{faults:?}");
        }
    }

    /// What a device that has hung may still write to is not freed, and it is not asked again.
    #[test]
    fn a_hang_ends_the_test() {
        let Some(mut device) = watched(Faults { hang: Some(0), ..Faults::default() }, None) else {
            return;
        };
        let (mut bench, all) = begin(&mut device, ALL).expect("a queue");
        bench.patience = Duration::from_millis(1);
        let hang = DeviceError::Hang(bench.patience);
        let known = all.into_iter().next().expect("an answer");
        assert_eq!(bench.prove(known), Err(hang.clone()));
        assert_eq!(bench.gone, Some(hang));
        assert_eq!((device.allocated, device.freed), (4, 0));
        let lost = Faults { lost: Some(0), ..Faults::default() };
        let Some(mut device) = watched(lost, None) else { return };
        let answers = each(&mut device, ALL);
        let is_lost = |answer: &Answer| matches!(answer.result, Err(DeviceError::Lost(_)));
        assert!(answers.iter().all(is_lost));
        assert_eq!(device.allocated, 4, "nothing more was asked of it");
    }
}
