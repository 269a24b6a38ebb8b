//! A driver in which things go wrong as planned: for proving that no job is lost.
//!
//! It wraps any other. Calls are counted from 0 from the moment when the plan is set, so that opening
//! a device does not count.
//!
//! A hang is as bad as a real one. Code that then does what would wait for ever (ends the driver, frees or
//! unregisters memory, without having abandoned the device) gets a panic in place of the wait. Copies to
//! the host that were under way still come, long after, with bytes that were not requested: into memory
//! that was freed, were it not left alone for good.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::DeviceError;
use crate::driver::{Arguments, DeviceInfo, Driver, Event, Kernel, Memory, Program, Queue, Shape};

/// Which call of each kind goes wrong; `None`: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// No program builds.
    pub build: bool,
    /// This upload fails.
    pub upload: Option<u64>,
    /// This launch fails.
    pub launch: Option<u64>,
    /// This download fails.
    pub download: Option<u64>,
    /// This copy within the device fails.
    pub copy: Option<u64>,
    /// From this look at an event on the context is gone.
    pub lost: Option<u64>,
    /// From this look at an event on nothing is ever done.
    pub hang: Option<u64>,
    /// From this upload on nothing is ever done.
    pub hang_upload: Option<u64>,
    /// From this call on that enqueues something (a copy, a launch, an event, a wait) nothing is ever done.
    pub hang_call: Option<u64>,
    /// The first event looked at after this launch is not done for 200 ms, while younger ones are; then the
    /// context is gone.
    pub late_then_lost: Option<u64>,
    /// No event is reached earlier than this after it was enqueued: jobs pile up.
    pub slow: Option<Duration>,
    /// Calls of each kind before this many do not count: those of setting up.
    pub after_launches: u64,
}

/// See the module.
pub struct Faulty {
    inner: Box<dyn Driver>,
    faults: Faults,
    launches: u64,
    uploads: u64,
    downloads: u64,
    copies: u64,
    looks: u64,
    calls: u64,
    /// Memories that were taken and not given back.
    memories: u64,
    /// When, where and behind which download each event was enqueued.
    enqueued: HashMap<Event, (Instant, Queue, u64)>,
    /// Downloads that may be under way.
    downloading: Vec<Download>,
    /// The event of `late_then_lost` and since when it is.
    late: Option<(Event, Instant)>,
    /// A look was answered by the hang.
    is_hung: bool,
    is_abandoned: bool,
}

impl Faulty {
    /// `inner` with `faults`.
    pub fn new(inner: Box<dyn Driver>, faults: Faults) -> Self {
        Self {
            inner,
            faults,
            launches: 0,
            uploads: 0,
            downloads: 0,
            copies: 0,
            looks: 0,
            calls: 0,
            memories: 0,
            enqueued: HashMap::new(),
            downloading: Vec::new(),
            late: None,
            is_hung: false,
            is_abandoned: false,
        }
    }

    /// Calls so far that enqueued something.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Memories that were taken and not given back.
    pub fn memories(&self) -> u64 {
        self.memories
    }

    /// Counts a call that enqueues something.
    fn count_call(&mut self) {
        self.calls += u64::from(self.launches >= self.faults.after_launches);
    }

    /// Whether the device has stopped at a copy or a call.
    fn has_stopped(&self) -> bool {
        self.faults.hang_upload.is_some_and(|at| self.uploads > at)
            || self.faults.hang_call.is_some_and(|at| self.calls > at)
    }

    /// A call that a real device would not come back from.
    fn would_wait(&self, call: &str) {
        let hangs = self.is_hung || self.has_stopped();
        assert!(!hangs || self.is_abandoned, "{call} waits for a device that hangs");
    }

    /// Whether this call of its kind is the one; none is while the device is being set up.
    fn strikes(launches: u64, after: u64, count: &mut u64, at: Option<u64>) -> bool {
        if launches < after {
            return false;
        }
        let number = *count;
        *count += 1;
        at == Some(number)
    }
}

/// A copy to the host: its queue, the count of its kind, where to, and how many bytes.
struct Download {
    queue: Queue,
    number: u64,
    to: usize,
    bytes: usize,
}

/// When the copies of a device that hangs come after all.
const LATE: Duration = Duration::from_millis(300);

fn planned() -> String {
    "as planned".into()
}

impl Driver for Faulty {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn stops_to_build(&self) -> bool {
        self.inner.stops_to_build()
    }

    fn build(&mut self, program: &Program, names: &[&str]) -> Result<Vec<Kernel>, DeviceError> {
        if self.faults.build {
            return Err(DeviceError::Build { name: program.name.clone(), log: planned() });
        }
        self.inner.build(program, names)
    }

    fn allocate(&mut self, bytes: usize) -> Result<Memory, DeviceError> {
        let memory = self.inner.allocate(bytes)?;
        self.memories += 1;
        Ok(memory)
    }

    fn free(&mut self, memory: Memory) {
        self.would_wait("free");
        self.memories -= 1;
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
        let faults = self.faults;
        self.count_call();
        if Self::strikes(self.launches, faults.after_launches, &mut self.uploads, faults.upload) {
            return Err(DeviceError::Copy(planned()));
        }
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
        let faults = self.faults;
        self.count_call();
        if Self::strikes(self.launches, faults.after_launches, &mut self.downloads, faults.download)
        {
            return Err(DeviceError::Copy(planned()));
        }
        if self.faults.hang.is_some() || self.faults.hang_call.is_some() {
            let (number, bytes) = (self.downloads, to.len());
            let to = to.cast::<u8>().expose_provenance();
            self.downloading.push(Download { queue, number, to, bytes });
        }
        // SAFETY: the caller's.
        unsafe { self.inner.download(queue, from, at, to) }
    }

    fn copy(
        &mut self,
        queue: Queue,
        from: (Memory, usize),
        to: (Memory, usize),
        bytes: usize,
    ) -> Result<(), DeviceError> {
        let faults = self.faults;
        self.count_call();
        if Self::strikes(self.launches, faults.after_launches, &mut self.copies, faults.copy) {
            return Err(DeviceError::Copy(planned()));
        }
        self.inner.copy(queue, from, to, bytes)
    }

    fn launch(
        &mut self,
        queue: Queue,
        kernel: Kernel,
        shape: Shape,
        arguments: &Arguments,
    ) -> Result<(), DeviceError> {
        let number = self.launches;
        self.count_call();
        self.launches += 1;
        let after = self.faults.after_launches;
        if number >= after && self.faults.launch == Some(number - after) {
            return Err(DeviceError::Launch(planned()));
        }
        self.inner.launch(queue, kernel, shape, arguments)
    }

    fn timed(
        &mut self,
        launches: &[(Kernel, Shape, Arguments)],
        limit: Duration,
    ) -> Result<Option<Duration>, DeviceError> {
        self.inner.timed(launches, limit)
    }

    fn event(&mut self, queue: Queue) -> Result<Event, DeviceError> {
        self.count_call();
        let event = self.inner.event(queue)?;
        self.enqueued.insert(event, (Instant::now(), queue, self.downloads));
        Ok(event)
    }

    fn is_done(&mut self, event: Event) -> Result<bool, DeviceError> {
        if self.launches >= self.faults.after_launches {
            let number = self.looks;
            self.looks += 1;
            if self.faults.lost.is_some_and(|at| number >= at) {
                return Err(DeviceError::Lost(planned()));
            }
            if self.faults.late_then_lost.is_some_and(|at| self.launches > at) {
                let (late, since) = *self.late.get_or_insert((event, Instant::now()));
                if since.elapsed() > Duration::from_millis(200) {
                    return Err(DeviceError::Lost(planned()));
                }
                if late == event {
                    return Ok(false);
                }
            }
            let hangs_at = |at: Option<u64>, count: u64| at.is_some_and(|at| count >= at);
            if hangs_at(self.faults.hang, number) || self.has_stopped() {
                self.is_hung = true;
                return Ok(false);
            }
        }
        let too_early = match (self.faults.slow, self.enqueued.get(&event)) {
            (Some(slow), Some((since, _, _))) => since.elapsed() < slow,
            _ => false,
        };
        let done = !too_early && self.inner.is_done(event)?;
        if done && let Some((_, queue, until)) = self.enqueued.remove(&event) {
            self.downloading.retain(|copy| copy.queue != queue || copy.number > until);
        }
        Ok(done)
    }

    fn wait_for(&mut self, queue: Queue, event: Event) -> Result<(), DeviceError> {
        self.count_call();
        self.inner.wait_for(queue, event)
    }

    // SAFETY: as above.
    unsafe fn register(&mut self, memory: *mut [u8]) -> Result<Option<Memory>, DeviceError> {
        // SAFETY: the caller's.
        unsafe { self.inner.register(memory) }
    }

    // SAFETY: as above.
    unsafe fn share(&mut self, memory: *mut [u8]) -> Result<Option<Memory>, DeviceError> {
        // SAFETY: the caller's.
        unsafe { self.inner.share(memory) }
    }

    fn unregister(&mut self, start: *mut u8) -> Result<(), DeviceError> {
        self.would_wait("unregister");
        self.inner.unregister(start)
    }

    fn abandon(&mut self) {
        self.inner.abandon();
        if std::mem::replace(&mut self.is_abandoned, true) || !self.is_hung {
            return;
        }
        let late = std::mem::take(&mut self.downloading);
        std::thread::spawn(move || {
            std::thread::sleep(LATE);
            for Download { to, bytes, .. } in late {
                let to = std::ptr::with_exposed_provenance_mut::<u8>(to);
                // SAFETY: `download`'s caller leaves these bytes alone until an event after it is done,
                // and none was: they are still there, and have no other user.
                unsafe { to.write_bytes(0xee, bytes) };
            }
        });
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.would_wait("the driver's end");
        }
    }
}
