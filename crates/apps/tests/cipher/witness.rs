//! A driver that looks for keys in all memory of the device when it ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use device::DeviceError;
use device::driver::{Arguments, DeviceInfo, Driver, Event, Kernel, Memory, Program, Queue, Shape};

/// What to look for, and what was seen.
#[derive(Default)]
pub(crate) struct Seen {
    /// Bytes that must be gone in the end.
    pub(crate) secrets: Vec<Vec<u8>>,
    /// Which of them were sent.
    pub(crate) sent: Vec<bool>,
    /// Bytes of memory that were looked at.
    pub(crate) looked_at: usize,
    /// Which of them were found in the end.
    pub(crate) left: Vec<usize>,
}

/// See the module.
pub(crate) struct Witness {
    driver: Box<dyn Driver>,
    memories: BTreeMap<u32, usize>,
    seen: Arc<Mutex<Seen>>,
}

impl Witness {
    pub(crate) fn new(driver: Box<dyn Driver>, seen: Arc<Mutex<Seen>>) -> Self {
        Self { driver, memories: BTreeMap::new(), seen }
    }

    fn look(&mut self, memory: Memory, bytes: usize) {
        let mut found = vec![0; bytes];
        let queue = self.driver.queue().expect("a queue");
        let patience = Duration::from_secs(60);
        device::download_all(&mut *self.driver, queue, memory, 0, &mut found, patience)
            .expect("a copy");
        let mut seen = self.seen.lock().unwrap();
        seen.looked_at += bytes;
        for number in 0..seen.secrets.len() {
            if has(&found, &seen.secrets[number]) {
                seen.left.push(number);
            }
        }
    }
}

fn has(bytes: &[u8], wanted: &[u8]) -> bool {
    let first = wanted[0];
    let starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == first);
    starts.map(|(at, _)| &bytes[at..]).any(|rest| rest.starts_with(wanted))
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
        self.driver.info()
    }
    fn build(&mut self, program: &Program, names: &[&str]) -> Result<Vec<Kernel>, DeviceError> {
        self.driver.build(program, names)
    }
    fn allocate(&mut self, bytes: usize) -> Result<Memory, DeviceError> {
        let memory = self.driver.allocate(bytes)?;
        self.memories.insert(memory.0, bytes);
        Ok(memory)
    }
    fn free(&mut self, memory: Memory) {
        if let Some(bytes) = self.memories.remove(&memory.0) {
            self.look(memory, bytes);
        }
        self.driver.free(memory);
    }
    fn queue(&mut self) -> Result<Queue, DeviceError> {
        self.driver.queue()
    }
    // SAFETY: what the functions of a driver ask for, their callers here do.
    unsafe fn upload(
        &mut self,
        queue: Queue,
        bytes: *const [u8],
        to: Memory,
        at: usize,
    ) -> Result<(), DeviceError> {
        {
            // SAFETY: the caller's: the bytes stay as they are.
            let bytes = unsafe { &*bytes };
            let mut seen = self.seen.lock().unwrap();
            let Seen { secrets, sent, .. } = &mut *seen;
            sent.resize(secrets.len(), false);
            sent.iter_mut().zip(secrets).for_each(|(sent, wanted)| *sent |= has(bytes, wanted));
        }
        // SAFETY: the caller's.
        unsafe { self.driver.upload(queue, bytes, to, at) }
    }
    unsafe fn download(
        &mut self,
        queue: Queue,
        from: Memory,
        at: usize,
        to: *mut [u8],
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller's.
        unsafe { self.driver.download(queue, from, at, to) }
    }
    fn copy(
        &mut self,
        queue: Queue,
        from: (Memory, usize),
        to: (Memory, usize),
        bytes: usize,
    ) -> Result<(), DeviceError> {
        self.driver.copy(queue, from, to, bytes)
    }
    fn launch(
        &mut self,
        queue: Queue,
        kernel: Kernel,
        shape: Shape,
        arguments: &Arguments,
    ) -> Result<(), DeviceError> {
        self.driver.launch(queue, kernel, shape, arguments)
    }
    fn event(&mut self, queue: Queue) -> Result<Event, DeviceError> {
        self.driver.event(queue)
    }
    fn is_done(&mut self, event: Event) -> Result<bool, DeviceError> {
        self.driver.is_done(event)
    }
    fn wait_for(&mut self, queue: Queue, event: Event) -> Result<(), DeviceError> {
        self.driver.wait_for(queue, event)
    }
    unsafe fn register(&mut self, memory: *mut [u8]) -> Result<Option<Memory>, DeviceError> {
        // SAFETY: the caller's.
        unsafe { self.driver.register(memory) }
    }
    unsafe fn share(&mut self, memory: *mut [u8]) -> Result<Option<Memory>, DeviceError> {
        // SAFETY: the caller's.
        unsafe { self.driver.share(memory) }
    }
    fn unregister(&mut self, start: *mut u8) -> Result<(), DeviceError> {
        self.driver.unregister(start)
    }
    fn abandon(&mut self) {
        self.driver.abandon();
    }
}
