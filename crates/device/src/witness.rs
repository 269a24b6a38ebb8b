//! A driver that looks for secrets in the memory of its device: what is left of keys when they should be gone.
//!
//! Memory is looked at before it is given back, and all of it when the driver ends.
//!
//! Threads: as the driver's; what was seen is shared with the test.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::DeviceError;
use crate::driver::{Arguments, DeviceInfo, Driver, Event, Kernel, Memory, Program, Queue, Shape};

/// How long a copy may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to look for, and what was seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Bytes that must be gone in the end; none of them is empty.
    pub secrets: Vec<Vec<u8>>,
    /// Which of them were sent to the device.
    pub sent: Vec<bool>,
    /// Bytes of memory that were looked at.
    pub looked_at: usize,
    /// Numbers of those that were found.
    pub left: Vec<usize>,
}

/// See the module.
pub struct Witness {
    inner: Box<dyn Driver>,
    /// Bytes of each memory.
    memories: BTreeMap<u32, usize>,
    seen: Arc<Mutex<Seen>>,
}

impl Witness {
    /// Looks for what `seen` says, by the time it is needed.
    pub fn new(inner: Box<dyn Driver>, seen: Arc<Mutex<Seen>>) -> Self {
        Self { inner, memories: BTreeMap::new(), seen }
    }

    fn with<R>(&self, look: impl FnOnce(&mut Seen) -> R) -> R {
        look(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn look(&mut self, memory: Memory, bytes: usize) {
        let mut found = vec![0; bytes];
        let Ok(queue) = self.inner.queue() else { return };
        let driver = &mut *self.inner;
        if crate::download_all(driver, queue, memory, 0, &mut found, PATIENCE).is_err() {
            return; // it is not counted as looked at
        }
        self.with(|seen| {
            seen.looked_at += bytes;
            let Seen { secrets, left, .. } = seen;
            let all = secrets.iter().enumerate().filter(|(_, wanted)| has(&found, wanted));
            left.extend(all.map(|(number, _)| number));
        });
    }
}

fn has(bytes: &[u8], wanted: &[u8]) -> bool {
    let first = wanted.first();
    let mut all = bytes.windows(wanted.len().max(1));
    all.any(|window| window.first() == first && window == wanted)
}

impl Drop for Witness {
    fn drop(&mut self) {
        for (memory, bytes) in std::mem::take(&mut self.memories) {
            self.look(Memory(memory), bytes);
        }
    }
}

impl Driver for Witness {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn build(&mut self, program: &Program, names: &[&str]) -> Result<Vec<Kernel>, DeviceError> {
        self.inner.build(program, names)
    }

    fn allocate(&mut self, bytes: usize) -> Result<Memory, DeviceError> {
        let memory = self.inner.allocate(bytes)?;
        self.memories.insert(memory.0, bytes);
        Ok(memory)
    }

    fn free(&mut self, memory: Memory) {
        if let Some(bytes) = self.memories.remove(&memory.0) {
            self.look(memory, bytes);
        }
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
        // SAFETY: the caller's: the bytes stay as they are.
        let sent = unsafe { &*bytes };
        self.with(|seen| {
            seen.sent.resize(seen.secrets.len(), false);
            let all = seen.sent.iter_mut().zip(&seen.secrets);
            all.for_each(|(was, wanted)| *was |= has(sent, wanted));
        });
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
        unsafe { self.inner.download(queue, from, at, to) }
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

    // SAFETY: as above.
    unsafe fn share(&mut self, memory: *mut [u8]) -> Result<Option<Memory>, DeviceError> {
        // SAFETY: the caller's.
        unsafe { self.inner.share(memory) }
    }

    fn unregister(&mut self, start: *mut u8) -> Result<(), DeviceError> {
        self.inner.unregister(start)
    }

    fn abandon(&mut self) {
        self.inner.abandon();
    }
}
