//! What a device must be able to do: memory, copies, kernels, queues, events.
//!
//! One trait, spoken by CUDA and OpenCL; everything above (slots, jobs, table images, self-tests,
//! benches) is written once over it. Handles are numbers, so that a driver is an object chosen at the
//! start and nothing above knows whose library it is.
//!
//! A kernel takes the same five arguments wherever it runs: arena, payload, tables, state, job number.
//!
//! Threads: a driver belongs to one thread at a time and may be moved.

use std::time::Duration;

use crate::DeviceError;

/// Device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Memory(pub u32);

/// An in-order queue of copies and kernels (CUDA: a stream).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Queue(pub u32);

/// A point in a queue: everything that was enqueued before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event(pub u32);

/// A kernel of a built program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kernel(pub u32);

/// Which library drives a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Api {
    /// NVIDIA's driver library, loaded at run time.
    Cuda,
    /// An OpenCL 1.2 platform, loaded at run time.
    OpenCl,
}

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The library.
    pub api: Api,
    /// Its number among the devices of that library, as in `--backend opencl:1`.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Driver or platform and its version.
    pub driver: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Multiprocessors or compute units.
    pub units: u32,
    /// Work items that a group may have.
    pub group_items_max: u32,
    /// Bytes of memory that a group shares.
    pub group_bytes: u32,
    /// Whether it is a GPU; `auto` takes no other.
    pub is_gpu: bool,
    /// What a compiled kernel depends on, for the cache: `sm_90`, a platform's version.
    pub target: String,
}

/// Groups of a few hundred items that a multiprocessor works on at once.
const GROUPS_PER_UNIT: u32 = 8;

impl DeviceInfo {
    /// Groups of a few hundred items that it works on at once; fewer leave it idle.
    pub fn groups_at_once(&self) -> u32 {
        // A CPU's unit is a core.
        self.units.saturating_mul(if self.is_gpu { GROUPS_PER_UNIT } else { 1 })
    }
}

/// A source ready for the compiler: see the crate `kernels`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// For messages and the cache.
    pub name: String,
    /// The whole text, dialect header and columns included.
    pub source: String,
    /// `-D` definitions.
    pub defines: Vec<(String, String)>,
    /// PTX that was compiled when the program was packed, for a CUDA driver without NVRTC.
    pub ptx: Option<&'static str>,
}

/// The definitions as lines before the source. Compilers' options would have to be quoted, each
/// library's in its own way.
pub(crate) fn prologue(program: &Program) -> String {
    let mut text = String::new();
    for (name, value) in &program.defines {
        text += &format!("#define {name} {value}\n");
    }
    text + "#line 1\n" // the log counts the source's own lines
}

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Groups.
    pub groups: u32,
    /// Work items in each.
    pub items: u32,
}

impl Shape {
    /// One work item for each of `rows`, in groups of `items`; at least one group.
    pub fn of_rows(rows: usize, items: u32) -> Self {
        let groups = rows.div_ceil(items.max(1) as usize).max(1);
        Self { groups: u32::try_from(groups).unwrap_or(u32::MAX), items: items.max(1) }
    }

    /// The same with more groups, a power of two times as many and at most `times`, where there are not as many as
    /// `groups_at_once`: for kernels that share the work of a row out.
    #[must_use]
    pub fn shared(self, times: u32, groups_at_once: u32) -> Self {
        let times = times.min(groups_at_once / self.groups.max(1)).max(1);
        Self { groups: self.groups << times.ilog2(), ..self }
    }
}

/// Arguments of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// The job's header and columns.
    pub arena: Memory,
    /// Packets' bytes, or any memory where the kernel reads none.
    pub payload: Memory,
    /// One version of all tables.
    pub tables: Memory,
    /// State and scratch.
    pub state: Memory,
    /// The job's number, or what the kernel takes it for.
    pub job: u32,
}

/// A device, opened. Every method returns the library's complaint as an error; none panics.
///
/// Copies and launches are asynchronous: they run in the order of their queue. After an error of
/// [`DeviceError::Lost`] nothing else succeeds.
pub trait Driver: Send {
    /// What the device says of itself.
    fn info(&self) -> &DeviceInfo;

    /// Whether no kernel runs in this process while a program is built: see [`crate::apart`].
    fn stops_to_build(&self) -> bool {
        false
    }

    /// Builds a program (or finds it in the cache) and returns its kernels in the order of `names`.
    ///
    /// # Errors
    /// [`DeviceError::Build`] with the compiler's log, or a kernel that is not there.
    fn build(&mut self, program: &Program, names: &[&str]) -> Result<Vec<Kernel>, DeviceError>;

    /// Memory of `bytes` (at least 1), its contents anything.
    ///
    /// # Errors
    /// [`DeviceError::Memory`] when there is too little.
    fn allocate(&mut self, bytes: usize) -> Result<Memory, DeviceError>;

    /// Gives memory back. Nothing enqueued may still use it. Unknown memory is ignored.
    fn free(&mut self, memory: Memory);

    /// A further queue.
    ///
    /// # Errors
    /// The library's.
    fn queue(&mut self) -> Result<Queue, DeviceError>;

    /// Enqueues a copy of `bytes` to `at` bytes into `to`.
    ///
    /// # Safety
    /// The bytes stay where they are and as they are until an event enqueued after this is done, or the
    /// driver is dropped without having been abandoned.
    ///
    /// # Errors
    /// [`DeviceError::Copy`]; a range beyond `to`.
    unsafe fn upload(
        &mut self,
        queue: Queue,
        bytes: *const [u8],
        to: Memory,
        at: usize,
    ) -> Result<(), DeviceError>;

    /// Enqueues a copy from `at` bytes into `from`.
    ///
    /// # Safety
    /// The bytes at `to` have no other user until an event enqueued after this is done, or the driver is
    /// dropped without having been abandoned.
    ///
    /// # Errors
    /// As [`Driver::upload`].
    unsafe fn download(
        &mut self,
        queue: Queue,
        from: Memory,
        at: usize,
        to: *mut [u8],
    ) -> Result<(), DeviceError>;

    /// Enqueues a copy within the device.
    ///
    /// # Errors
    /// As [`Driver::upload`].
    fn copy(
        &mut self,
        queue: Queue,
        from: (Memory, usize),
        to: (Memory, usize),
        bytes: usize,
    ) -> Result<(), DeviceError>;

    /// Enqueues a kernel; without groups it does nothing.
    ///
    /// # Errors
    /// [`DeviceError::Launch`].
    fn launch(
        &mut self,
        queue: Queue,
        kernel: Kernel,
        shape: Shape,
        arguments: &Arguments,
    ) -> Result<(), DeviceError>;

    /// Enqueues an event and makes sure that the queue is worked on. An event is used up by the first
    /// [`Driver::is_done`] or [`Driver::wait`] that says so.
    ///
    /// # Errors
    /// The library's.
    fn event(&mut self, queue: Queue) -> Result<Event, DeviceError>;

    /// Whether the event has been reached. Never blocks.
    ///
    /// # Errors
    /// What went wrong in the queue before it.
    fn is_done(&mut self, event: Event) -> Result<bool, DeviceError>;

    /// Makes everything enqueued on `queue` later wait for `event`, which stays to be asked for.
    ///
    /// # Errors
    /// The library's.
    fn wait_for(&mut self, queue: Queue, event: Event) -> Result<(), DeviceError>;

    /// Runs launches one behind the other and waits for them, at most `limit`: the time on the device's own
    /// clock from the start of the first to the end of the last. `None`, and nothing was launched, where
    /// the library measures no such thing, or not so many.
    ///
    /// # Errors
    /// As [`Driver::launch`] and [`Driver::is_done`]; [`DeviceError::Hang`].
    fn timed(
        &mut self,
        launches: &[(Kernel, Shape, Arguments)],
        limit: Duration,
    ) -> Result<Option<Duration>, DeviceError> {
        let _ = (launches, limit);
        Ok(None)
    }

    /// Registers host memory that is copied from and to often with the library, so that copies run by
    /// themselves at full speed (CUDA: page-locked, readable for the CPU). Returns memory that kernels
    /// can use in place of a copy of it, where the device reaches it.
    ///
    /// # Safety
    /// The memory stays mapped until [`Driver::unregister`] or the end of the driver. Bytes that a
    /// launch reads or writes through the returned memory are subject to the rules of
    /// [`Driver::upload`] and [`Driver::download`].
    ///
    /// # Errors
    /// When the library refuses; the memory can be copied all the same.
    unsafe fn register(&mut self, memory: *mut [u8]) -> Result<Option<Memory>, DeviceError>;

    /// As [`Driver::register`], for memory that kernels shall read in place: packets' cells. `None` where
    /// the device does not reach it.
    ///
    /// # Safety
    /// As for [`Driver::register`].
    ///
    /// # Errors
    /// As for [`Driver::register`].
    unsafe fn share(&mut self, memory: *mut [u8]) -> Result<Option<Memory>, DeviceError> {
        // SAFETY: the caller's.
        unsafe { self.register(memory) }
    }

    /// Ends [`Driver::register`] of the memory that starts there.
    ///
    /// # Errors
    /// The library's.
    fn unregister(&mut self, start: *mut u8) -> Result<(), DeviceError>;

    /// Gives the device up because it does not come to an end. From here on nothing is given back to the
    /// library, also when the driver is dropped: each such call could wait for ever, and the device may
    /// go on reading and writing. Who owns host memory that it knows of never frees it.
    fn abandon(&mut self);

    /// Waits until an event is reached, at most `limit`; whether it was. Looks again and again: a launch
    /// takes microseconds. A device that does not end in time is abandoned ([`Driver::abandon`]), so
    /// so that it cannot be forgotten.
    ///
    /// # Errors
    /// As [`Driver::is_done`].
    fn wait(&mut self, event: Event, limit: Duration) -> Result<bool, DeviceError> {
        let begin = std::time::Instant::now();
        loop {
            if self.is_done(event)? {
                return Ok(true);
            }
            if begin.elapsed() >= limit {
                self.abandon();
                return Ok(false);
            }
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rows_get_more_groups_and_many_do_not() {
        let shared = |rows, times, at_once| Shape::of_rows(rows, 256).shared(times, at_once).groups;
        assert_eq!(shared(0, 8, 1056), 8);
        assert_eq!(shared(256, 8, 7), 4);
        assert_eq!(shared(8192, 8, 1056), 256);
        assert_eq!(shared(1 << 20, 8, 1056), 4096);
        assert_eq!(shared(256, 1, 1056), 1);
        assert_eq!(shared(256, 0, 0), 1);
    }
}
