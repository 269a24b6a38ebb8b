//! The driver over OpenCL 1.2.
//!
//! One context for one device; each queue is an in-order command queue. Every enqueued command leaves an
//! event, so that [`Driver::is_done`] can say which of them failed: a marker alone shows the end of the
//! commands before it, not their fate. Every return code is checked and named.
//!
//! Threads: as [`Driver`]'s. OpenCL's own objects may be used from any thread; only a kernel's arguments
//! are not safe to set from two, which `&mut self` rules out.

mod codes;
mod forms;
mod library;

use std::ffi::{CString, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ptr;
use std::time::{Duration, Instant};

use opencl_sys::*;

use crate::DeviceError;
use crate::cache::{self, Cache};
use crate::driver::{
    Arguments, DeviceInfo, Driver, Event, Kernel, Memory, Program, Queue, Shape, prologue,
};
use crate::range;
use crate::slots::Slots;
use library::{Found, Library};

/// Compiler options: the dialect is OpenCL C 1.2.
const OPTIONS: &str = "-cl-std=CL1.2";
/// Arguments of every kernel: arena, payload, tables, state, job number.
const ARGUMENTS: cl_uint = 5;
/// So many commands without an event between them are followed by one of the driver's own.
const COMMANDS_MAX: usize = 256;

/// An OpenCL device, opened. See the module.
pub struct OpenCl {
    cl: &'static Library,
    info: DeviceInfo,
    device: cl_device_id,
    /// Whether it is the host's own processor.
    is_host: bool,
    context: cl_context,
    queues: Vec<Commands>,
    buffers: Slots<Buffer>,
    /// Each with a hash of its program and its name.
    kernels: Vec<(cl_kernel, u64)>,
    markers: Slots<Marker>,
    /// Emptied lists of commands, to be filled again.
    spare: Vec<Vec<(&'static str, cl_event)>>,
    /// Where launches are timed.
    timed_on: Option<Queue>,
    cache: Cache,
    lost: Option<String>,
    is_abandoned: bool,
}

/// A queue, and the commands since its last marker: the call's name and its event.
struct Commands {
    queue: cl_command_queue,
    open: Vec<(&'static str, cl_event)>,
}

#[derive(Clone, Copy)]
struct Buffer {
    handle: cl_mem,
    bytes: usize,
}

struct Marker {
    event: cl_event,
    /// The commands whose end it marks.
    commands: Vec<(&'static str, cl_event)>,
}

// SAFETY: the raw pointers are OpenCL's objects, which the standard (appendix A.2, "Multiple Host
// Threads") lets any thread use; nothing else here is tied to a thread.
unsafe impl Send for OpenCl {}

/// What a call was for: it chooses the error.
#[derive(Clone, Copy)]
enum For {
    Copy,
    Launch,
    Other,
}

/// All devices of all platforms, or why there are none.
pub(crate) fn devices() -> Result<Vec<DeviceInfo>, DeviceError> {
    let cl = library::library()?;
    let _gate = library::one_at_a_time();
    let found = library::found(cl)?;
    Ok((0..).zip(found).map(|(number, found)| library::describe(cl, number, found)).collect())
}

impl OpenCl {
    /// Opens the device of this number, counted over all platforms.
    ///
    /// # Errors
    /// [`DeviceError::Absent`] without a library, a platform or such a device; the library's complaint
    /// when no context can be made.
    pub fn open(number: u32, cache: Cache) -> Result<Self, DeviceError> {
        let cl = library::library()?;
        let _gate = library::one_at_a_time();
        let all = library::found(cl)?;
        let Some(&found) = all.get(number as usize) else {
            let problem = format!("opencl:{number}: there are {} devices, from 0", all.len());
            return Err(DeviceError::Absent(problem));
        };
        let info = library::describe(cl, number, found);
        let Found { platform, device } = found;
        let properties = [CL_CONTEXT_PLATFORM, platform as cl_context_properties, 0];
        let mut code = CL_SUCCESS;
        // SAFETY: the properties end with 0; one device of that platform; no callback.
        let context = unsafe {
            let none = ptr::null_mut();
            (cl.clCreateContext)(properties.as_ptr(), 1, &device, None, none, &mut code)
        };
        if code != CL_SUCCESS || context.is_null() {
            return Err(DeviceError::Absent(codes::text("clCreateContext", code)));
        }
        Ok(Self {
            cl,
            info,
            device,
            is_host: library::is_host(cl, found),
            context,
            queues: Vec::new(),
            buffers: Slots::new(),
            kernels: Vec::new(),
            markers: Slots::new(),
            spare: Vec::new(),
            timed_on: None,
            cache,
            lost: None,
            is_abandoned: false,
        })
    }

    /// Turns a return code into an error that names the call; notes that the device is lost.
    fn check(&mut self, why: For, call: &str, code: cl_int) -> Result<(), DeviceError> {
        if code == CL_SUCCESS {
            return Ok(());
        }
        let text = codes::text(call, code);
        if codes::is_lost(code) {
            self.lost = Some(text.clone());
            return Err(DeviceError::Lost(text));
        }
        Err(match why {
            _ if codes::is_memory(code) => DeviceError::Memory(text),
            For::Copy => DeviceError::Copy(text),
            For::Launch => DeviceError::Launch(text),
            For::Other => DeviceError::Call(text),
        })
    }

    fn alive(&self) -> Result<(), DeviceError> {
        self.lost.as_ref().map_or(Ok(()), |text| Err(DeviceError::Lost(text.clone())))
    }

    fn command_queue(&self, queue: Queue) -> Result<cl_command_queue, DeviceError> {
        self.alive()?;
        let entry = self.queues.get(queue.0 as usize);
        entry.map(|q| q.queue).ok_or_else(|| DeviceError::Call(format!("there is no {queue:?}")))
    }

    fn buffer(&self, memory: Memory) -> Result<Buffer, DeviceError> {
        let entry = self.buffers.get(memory.0).copied();
        entry.ok_or_else(|| DeviceError::Call(format!("there is no {memory:?}")))
    }

    /// Notes a command that was enqueued.
    fn enqueued(
        &mut self,
        queue: Queue,
        call: &'static str,
        event: cl_event,
    ) -> Result<(), DeviceError> {
        let Some(entry) = self.queues.get_mut(queue.0 as usize) else { return Ok(()) };
        if entry.open.len() < COMMANDS_MAX {
            entry.open.push((call, event));
            return Ok(());
        }
        // Nobody has asked for an event in a long while: one covers all of these.
        let events: Vec<cl_event> = entry.open.iter().map(|c| c.1).chain([event]).collect();
        let mut marker = ptr::null_mut();
        // SAFETY: a queue of ours and as many events, all of this context.
        let code = unsafe {
            let count = events.len() as cl_uint;
            (self.cl.clEnqueueMarkerWithWaitList)(entry.queue, count, events.as_ptr(), &mut marker)
        };
        entry.open.clear();
        if code == CL_SUCCESS {
            entry.open.push(("a command", marker));
        }
        for event in events {
            self.release_event(event);
        }
        self.check(For::Other, "clEnqueueMarkerWithWaitList", code)
    }

    fn release_event(&self, event: cl_event) {
        // SAFETY: each event is released once, when it is taken out of its list. The code says only
        // whether it was an event, or that the device is lost, which the next call says as well.
        let _ = unsafe { (self.cl.clReleaseEvent)(event) };
    }

    /// An event's state: below 0 an error, 0 done, above 0 not yet.
    fn status(&mut self, event: cl_event) -> Result<cl_int, DeviceError> {
        let mut status: cl_int = CL_SUCCESS;
        // SAFETY: an event that has not been released; room for the one integer asked for.
        let code = unsafe {
            let (at, size) = ((&raw mut status).cast::<c_void>(), size_of::<cl_int>());
            let what = CL_EVENT_COMMAND_EXECUTION_STATUS;
            (self.cl.clGetEventInfo)(event, what, size, at, ptr::null_mut())
        };
        self.check(For::Other, "clGetEventInfo", code)?;
        Ok(status)
    }

    /// The program, built: from the cache if it holds it, else from source. The caller releases it.
    fn built(&mut self, program: &Program) -> Result<cl_program, DeviceError> {
        let key = cache::key(&self.info, OPTIONS, "", program);
        if let Some(code) = self.cache.get(&key) {
            // A binary that the driver does not take after all is made anew.
            if let Ok(made) = self.load(program, &code) {
                return Ok(made);
            }
        }
        let made = self.compile(program)?;
        if let Some(code) = self.binary(made) {
            self.cache.put(&key, &code);
        }
        Ok(made)
    }

    fn compile(&mut self, program: &Program) -> Result<cl_program, DeviceError> {
        let source = prologue(program) + &program.source;
        let (mut text, length) = (source.as_ptr().cast(), source.len());
        let mut code = CL_SUCCESS;
        // SAFETY: one string of the length given.
        let made = unsafe {
            (self.cl.clCreateProgramWithSource)(self.context, 1, &mut text, &length, &mut code)
        };
        self.check(For::Other, "clCreateProgramWithSource", code)?;
        self.build_made(program, made)
    }

    fn load(&mut self, program: &Program, binary: &[u8]) -> Result<cl_program, DeviceError> {
        let (mut bytes, length) = (binary.as_ptr(), binary.len());
        let (mut of_binary, mut code) = (CL_SUCCESS, CL_SUCCESS);
        // SAFETY: one device of this context, one binary of the length given.
        let made = unsafe {
            let (status, create) = (&mut of_binary, self.cl.clCreateProgramWithBinary);
            create(self.context, 1, &self.device, &length, &mut bytes, status, &mut code)
        };
        self.check(For::Other, "clCreateProgramWithBinary", code)?;
        self.build_made(program, made)
    }

    /// The device's code of a built program; `None` where the platform gives none.
    fn binary(&self, made: cl_program) -> Option<Vec<u8>> {
        let mut size = 0usize;
        // SAFETY: room for the one size asked for: the program has one device.
        let code = unsafe {
            let (at, bytes) = ((&raw mut size).cast::<c_void>(), size_of::<usize>());
            (self.cl.clGetProgramInfo)(made, CL_PROGRAM_BINARY_SIZES, bytes, at, ptr::null_mut())
        };
        if code != CL_SUCCESS || size == 0 {
            return None;
        }
        let mut binary = vec![0u8; size];
        let mut place = binary.as_mut_ptr();
        // SAFETY: an array of one pointer, to as many bytes as the binary has.
        let code = unsafe {
            let (at, bytes) = ((&raw mut place).cast::<c_void>(), size_of::<*mut u8>());
            (self.cl.clGetProgramInfo)(made, CL_PROGRAM_BINARIES, bytes, at, ptr::null_mut())
        };
        (code == CL_SUCCESS).then_some(binary)
    }

    /// Builds what was made from source or from a binary; releases it where that fails.
    fn build_made(
        &mut self,
        program: &Program,
        made: cl_program,
    ) -> Result<cl_program, DeviceError> {
        let options = CString::new(OPTIONS).unwrap_or_default();
        // SAFETY: a program and a device of this context, a C string, no callback: the call ends when the
        // build has.
        let code = unsafe {
            let none = ptr::null_mut();
            (self.cl.clBuildProgram)(made, 1, &self.device, options.as_ptr(), None, none)
        };
        if code == CL_SUCCESS {
            return Ok(made);
        }
        let log = library::text(|bytes, value, size| {
            let what = CL_PROGRAM_BUILD_LOG;
            // SAFETY: `value` has room for `bytes`, or is null and `bytes` 0.
            unsafe { (self.cl.clGetProgramBuildInfo)(made, self.device, what, bytes, value, size) }
        });
        self.release_program(made);
        self.check(For::Other, "clBuildProgram", code).map_err(|error| match error {
            DeviceError::Call(text) => {
                let log = errors_of(&log).unwrap_or_else(|| format!("{text}\n{log}"));
                DeviceError::Build { name: program.name.clone(), log }
            }
            other => other,
        })?;
        Ok(made)
    }

    fn release_program(&self, made: cl_program) {
        // SAFETY: released once; kernels keep what they need of it. Its code is not a concern: see
        // `release_event`.
        let _ = unsafe { (self.cl.clReleaseProgram)(made) };
    }

    fn kernels(
        &mut self,
        program: &Program,
        made: cl_program,
        names: &[&str],
    ) -> Result<Vec<Kernel>, DeviceError> {
        let problem = |log| DeviceError::Build { name: program.name.clone(), log };
        let mut kernels = Vec::with_capacity(names.len());
        for &name in names {
            let text = CString::new(name)
                .map_err(|_| problem(format!("no kernel can be called {name:?}")))?;
            let mut code = CL_SUCCESS;
            // SAFETY: a program that was built, a C string.
            let kernel = unsafe { (self.cl.clCreateKernel)(made, text.as_ptr(), &mut code) };
            if code == CL_INVALID_KERNEL_NAME {
                return Err(problem(format!("it has no kernel {name}")));
            }
            self.check(For::Other, "clCreateKernel", code)?;
            // From here on `Drop` releases it.
            self.kernels.push((kernel, hash_of(program, name)));
            let mut arguments: cl_uint = 0;
            // SAFETY: room for the one integer asked for.
            let code = unsafe {
                let at = (&raw mut arguments).cast::<c_void>();
                let size = size_of::<cl_uint>();
                (self.cl.clGetKernelInfo)(kernel, CL_KERNEL_NUM_ARGS, size, at, ptr::null_mut())
            };
            self.check(For::Other, "clGetKernelInfo", code)?;
            if arguments != ARGUMENTS {
                let log = format!("the kernel {name} takes {arguments} arguments, not {ARGUMENTS}");
                return Err(problem(log));
            }
            kernels.push(Kernel(self.kernels.len() as u32 - 1));
        }
        Ok(kernels)
    }
}

/// Of a kernel: programs of different text are different to PoCL.
fn hash_of(program: &Program, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&program.source, &program.defines, name).hash(&mut hasher);
    hasher.finish()
}

impl Driver for OpenCl {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn stops_to_build(&self) -> bool {
        self.is_host
    }

    fn build(&mut self, program: &Program, names: &[&str]) -> Result<Vec<Kernel>, DeviceError> {
        self.alive()?;
        let _gate = library::one_at_a_time();
        let made = self.built(program)?;
        let kernels = self.kernels(program, made, names);
        self.release_program(made);
        kernels
    }

    fn allocate(&mut self, bytes: usize) -> Result<Memory, DeviceError> {
        self.alive()?;
        if self.buffers.is_full() {
            return Err(DeviceError::Memory("too many pieces".into()));
        }
        let bytes = bytes.max(1);
        let mut code = CL_SUCCESS;
        // SAFETY: a context of ours, no memory of the host.
        let handle = unsafe {
            let none = ptr::null_mut();
            (self.cl.clCreateBuffer)(self.context, CL_MEM_READ_WRITE, bytes, none, &mut code)
        };
        if code == CL_OUT_OF_RESOURCES {
            return Err(DeviceError::Memory(codes::text("clCreateBuffer", code)));
        }
        self.check(For::Other, "clCreateBuffer", code)?;
        Ok(Memory(self.buffers.insert(Buffer { handle, bytes })))
    }

    fn free(&mut self, memory: Memory) {
        if self.is_abandoned {
            return;
        }
        if let Some(buffer) = self.buffers.remove(memory.0) {
            // SAFETY: taken out of the list, hence released once. Its code: see `release_event`.
            let _ = unsafe { (self.cl.clReleaseMemObject)(buffer.handle) };
        }
    }

    fn queue(&mut self) -> Result<Queue, DeviceError> {
        self.queue_with(0)
    }

    unsafe fn upload(
        &mut self,
        queue: Queue,
        bytes: *const [u8],
        to: Memory,
        at: usize,
    ) -> Result<(), DeviceError> {
        let (handle, buffer) = (self.command_queue(queue)?, self.buffer(to)?);
        range::check("upload", at, bytes.len(), buffer.bytes)?;
        if bytes.len() == 0 {
            return Ok(());
        }
        let mut event = ptr::null_mut();
        // SAFETY: the range lies within the buffer; the caller keeps the host's bytes until an event after
        // this is done, or the driver dropped, which waits for the queues.
        let code = unsafe {
            let (size, from, none) = (bytes.len(), bytes.cast::<c_void>(), ptr::null());
            let write = self.cl.clEnqueueWriteBuffer;
            write(handle, buffer.handle, CL_FALSE, at, size, from, 0, none, &mut event)
        };
        self.check(For::Copy, "clEnqueueWriteBuffer", code)?;
        self.enqueued(queue, "clEnqueueWriteBuffer", event)
    }

    unsafe fn download(
        &mut self,
        queue: Queue,
        from: Memory,
        at: usize,
        to: *mut [u8],
    ) -> Result<(), DeviceError> {
        let (handle, buffer) = (self.command_queue(queue)?, self.buffer(from)?);
        range::check("download", at, to.len(), buffer.bytes)?;
        if to.len() == 0 {
            return Ok(());
        }
        let mut event = ptr::null_mut();
        // SAFETY: the range lies within the buffer; the caller leaves the host's bytes alone until an event
        // after this is done, or the driver dropped, which waits for the queues.
        let code = unsafe {
            let (size, to, none) = (to.len(), to.cast::<c_void>(), ptr::null());
            let read = self.cl.clEnqueueReadBuffer;
            read(handle, buffer.handle, CL_FALSE, at, size, to, 0, none, &mut event)
        };
        self.check(For::Copy, "clEnqueueReadBuffer", code)?;
        self.enqueued(queue, "clEnqueueReadBuffer", event)
    }

    fn copy(
        &mut self,
        queue: Queue,
        from: (Memory, usize),
        to: (Memory, usize),
        bytes: usize,
    ) -> Result<(), DeviceError> {
        let handle = self.command_queue(queue)?;
        let (source, target) = (self.buffer(from.0)?, self.buffer(to.0)?);
        range::check("copy from", from.1, bytes, source.bytes)?;
        range::check("copy to", to.1, bytes, target.bytes)?;
        if from.0 == to.0 {
            range::check_apart(from.1, to.1, bytes)?;
        }
        if bytes == 0 {
            return Ok(());
        }
        let mut event = ptr::null_mut();
        // SAFETY: both ranges lie within their buffers and do not overlap.
        let code = unsafe {
            let (source, target, none) = (source.handle, target.handle, ptr::null());
            let copy = self.cl.clEnqueueCopyBuffer;
            copy(handle, source, target, from.1, to.1, bytes, 0, none, &mut event)
        };
        self.check(For::Copy, "clEnqueueCopyBuffer", code)?;
        self.enqueued(queue, "clEnqueueCopyBuffer", event)
    }

    fn launch(
        &mut self,
        queue: Queue,
        kernel: Kernel,
        shape: Shape,
        arguments: &Arguments,
    ) -> Result<(), DeviceError> {
        let handle = self.command_queue(queue)?;
        let Some(&(kernel, hash)) = self.kernels.get(kernel.0 as usize) else {
            return Err(DeviceError::Launch(format!("there is no {kernel:?}")));
        };
        // Before OpenCL 2.1 an error for the library.
        if shape.groups == 0 {
            return Ok(());
        }
        let Arguments { arena, payload, tables, state, job } = *arguments;
        for (index, memory) in (0..).zip([arena, payload, tables, state]) {
            let buffer = self.buffer(memory)?;
            // SAFETY: the argument is a buffer's handle, read by the call.
            let code = unsafe {
                let value = (&raw const buffer.handle).cast::<c_void>();
                (self.cl.clSetKernelArg)(kernel, index, size_of::<cl_mem>(), value)
            };
            self.check(For::Launch, "clSetKernelArg", code)?;
        }
        // SAFETY: the argument is an unsigned integer, read by the call.
        let code = unsafe {
            let value = (&raw const job).cast::<c_void>();
            (self.cl.clSetKernelArg)(kernel, ARGUMENTS - 1, size_of::<cl_uint>(), value)
        };
        self.check(For::Launch, "clSetKernelArg", code)?;

        let items = shape.items as usize;
        let all = items * shape.groups as usize;
        let mut event = ptr::null_mut();
        let mut forms = self.is_host.then(library::forms);
        if let Some(forms) = &mut forms {
            forms.before(self.cl, (hash, items), all);
        }
        // SAFETY: one dimension, all arguments set; what the kernel does with them is the kernel's contract.
        let code = unsafe {
            let (none, waits) = (ptr::null(), ptr::null());
            let launch = self.cl.clEnqueueNDRangeKernel;
            launch(handle, kernel, 1, none, &all, &items, 0, waits, &mut event)
        };
        self.check(For::Launch, "clEnqueueNDRangeKernel", code)?;
        if let Some(forms) = &mut forms {
            forms.after(self.cl, (hash, items), all, event);
        }
        drop(forms);
        self.enqueued(queue, "clEnqueueNDRangeKernel", event)
    }

    fn event(&mut self, queue: Queue) -> Result<Event, DeviceError> {
        let handle = self.command_queue(queue)?;
        if self.markers.is_full() {
            return Err(DeviceError::Call("too many events".into()));
        }
        let mut event = ptr::null_mut();
        // SAFETY: a queue of ours; without a list it marks the end of all before it.
        let code =
            unsafe { (self.cl.clEnqueueMarkerWithWaitList)(handle, 0, ptr::null(), &mut event) };
        self.check(For::Other, "clEnqueueMarkerWithWaitList", code)?;
        // SAFETY: a queue of ours.
        let flushed = unsafe { (self.cl.clFlush)(handle) };
        let mut commands = self.spare.pop().unwrap_or_default();
        std::mem::swap(&mut commands, &mut self.queues[queue.0 as usize].open);
        let number = self.markers.insert(Marker { event, commands });
        self.check(For::Other, "clFlush", flushed)?;
        Ok(Event(number))
    }

    fn is_done(&mut self, event: Event) -> Result<bool, DeviceError> {
        self.alive()?;
        let Some(marker) = self.markers.get(event.0) else {
            return Err(DeviceError::Call(format!("there is no {event:?}, or it was used up")));
        };
        let status = self.status(marker.event)?;
        if status > CL_COMPLETE {
            return Ok(false);
        }
        let Some(mut marker) = self.markers.remove(event.0) else { return Ok(true) };
        let mut result = self.outcome("a command", status);
        for (call, event) in marker.commands.drain(..) {
            let status = self.status(event);
            self.release_event(event);
            let of_command = status.and_then(|status| self.outcome(call, status));
            // The first command's trouble is the cause of the others'.
            result = of_command.and(result);
        }
        self.release_event(marker.event);
        self.spare.push(marker.commands);
        result.map(|()| true)
    }

    fn wait_for(&mut self, queue: Queue, event: Event) -> Result<(), DeviceError> {
        let handle = self.command_queue(queue)?;
        let Some(marker) = self.markers.get(event.0) else {
            return Err(DeviceError::Call(format!("there is no {event:?}, or it was used up")));
        };
        // SAFETY: a queue of ours and one event of the same context; no event of its own is asked for.
        let code = unsafe {
            let barrier = self.cl.clEnqueueBarrierWithWaitList;
            barrier(handle, 1, &marker.event, ptr::null_mut())
        };
        self.check(For::Other, "clEnqueueBarrierWithWaitList", code)
    }

    fn timed(
        &mut self,
        launches: &[(Kernel, Shape, Arguments)],
        limit: Duration,
    ) -> Result<Option<Duration>, DeviceError> {
        if launches.is_empty() || launches.len() > COMMANDS_MAX {
            return Ok(None);
        }
        let queue = match self.timed_on {
            Some(queue) => queue,
            None => {
                let queue = self.queue_with(CL_QUEUE_PROFILING_ENABLE)?;
                *self.timed_on.insert(queue)
            }
        };
        for (kernel, shape, arguments) in launches {
            self.launch(queue, *kernel, *shape, arguments)?;
        }
        let open = &self.queues[queue.0 as usize].open;
        let (Some(&(_, first)), Some(&(_, last))) = (open.first(), open.last()) else {
            return Ok(None);
        };
        // SAFETY: a queue of ours.
        let code = unsafe { (self.cl.clFlush)(self.queues[queue.0 as usize].queue) };
        self.check(For::Other, "clFlush", code)?;
        // The last command's own event: the marker below gives all of them back.
        let begin = Instant::now();
        while self.status(last)? > CL_COMPLETE {
            if begin.elapsed() >= limit {
                self.abandon();
                return Err(DeviceError::Hang(limit));
            }
            std::thread::yield_now();
        }
        let start = self.stamp(first, CL_PROFILING_COMMAND_START);
        let end = self.stamp(last, CL_PROFILING_COMMAND_END);
        let event = self.event(queue)?;
        if !self.wait(event, limit)? {
            return Err(DeviceError::Hang(limit));
        }
        Ok(start.zip(end).map(|(start, end)| Duration::from_nanos(end.saturating_sub(start))))
    }

    /// OpenCL 1.2 knows no way to lock pages that it did not allocate, and memory that kernels shared with
    /// the host would have to be mapped and unmapped around each use: nothing is gained.
    unsafe fn register(&mut self, _memory: *mut [u8]) -> Result<Option<Memory>, DeviceError> {
        self.alive().map(|()| None)
    }

    /// A device that is the host's own processor (PoCL) reads the host's memory in place. A GPU would copy
    /// all of it at each launch.
    unsafe fn share(&mut self, memory: *mut [u8]) -> Result<Option<Memory>, DeviceError> {
        self.alive()?;
        if !self.is_host || self.buffers.is_full() || memory.is_empty() {
            return Ok(None);
        }
        let (flags, bytes) = (CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, memory.len());
        let mut code = CL_SUCCESS;
        // SAFETY: the caller keeps the memory mapped until the end of the driver.
        let handle = unsafe {
            (self.cl.clCreateBuffer)(self.context, flags, bytes, memory.cast(), &mut code)
        };
        self.check(For::Other, "clCreateBuffer", code)?;
        Ok(Some(Memory(self.buffers.insert(Buffer { handle, bytes }))))
    }

    fn unregister(&mut self, _start: *mut u8) -> Result<(), DeviceError> {
        Ok(())
    }

    fn abandon(&mut self) {
        self.is_abandoned = true;
    }
}

impl OpenCl {
    /// An in-order queue with these properties.
    fn queue_with(
        &mut self,
        properties: cl_command_queue_properties,
    ) -> Result<Queue, DeviceError> {
        self.alive()?;
        let mut code = CL_SUCCESS;
        // SAFETY: the context's own device; properties of the standard.
        let queue = unsafe {
            (self.cl.clCreateCommandQueue)(self.context, self.device, properties, &mut code)
        };
        self.check(For::Other, "clCreateCommandQueue", code)?;
        self.queues.push(Commands { queue, open: Vec::with_capacity(16) });
        Ok(Queue(self.queues.len() as u32 - 1))
    }

    /// When a command of a queue that measures started or ended, in nanoseconds of the device's clock.
    fn stamp(&self, event: cl_event, what: cl_profiling_info) -> Option<u64> {
        let mut time: cl_ulong = 0;
        // SAFETY: an event that has not been released; room for the one number asked for.
        let code = unsafe {
            let (at, size) = ((&raw mut time).cast::<c_void>(), size_of::<cl_ulong>());
            (self.cl.clGetEventProfilingInfo)(event, what, size, at, ptr::null_mut())
        };
        (code == CL_SUCCESS).then_some(time)
    }

    /// What a finished command's status means.
    fn outcome(&mut self, call: &str, status: cl_int) -> Result<(), DeviceError> {
        let why = match call {
            "clEnqueueNDRangeKernel" | "a command" => For::Launch,
            _ => For::Copy,
        };
        self.check(why, call, status.min(CL_SUCCESS))
    }
}

impl Drop for OpenCl {
    /// Waits for all queues: the host's memory is its owner's again afterwards. Does nothing for a
    /// device that was abandoned.
    fn drop(&mut self) {
        if self.is_abandoned {
            return;
        }
        // The codes of all these calls can only say that the device is lost; nothing is left to be done
        // about it.
        for entry in &self.queues {
            // SAFETY: a queue of ours.
            let _ = unsafe { (self.cl.clFinish)(entry.queue) };
        }
        let open: Vec<_> = self.queues.iter_mut().flat_map(|q| q.open.drain(..)).collect();
        let markers: Vec<Marker> = self.markers.drain().collect();
        for (_, event) in open {
            self.release_event(event);
        }
        for marker in markers {
            self.release_event(marker.event);
            for (_, event) in marker.commands {
                self.release_event(event);
            }
        }
        if self.is_host {
            library::forms().forget_done(self.cl);
        }
        for buffer in self.buffers.drain() {
            // SAFETY: taken out of the list, hence released once; no queue works on it any more.
            let _ = unsafe { (self.cl.clReleaseMemObject)(buffer.handle) };
        }
        for &(kernel, _) in &self.kernels {
            // SAFETY: released once, here.
            let _ = unsafe { (self.cl.clReleaseKernel)(kernel) };
        }
        for entry in &self.queues {
            // SAFETY: released once, here, after it has finished.
            let _ = unsafe { (self.cl.clReleaseCommandQueue)(entry.queue) };
        }
        // SAFETY: released once, here, after all that was made of it.
        let _ = unsafe { (self.cl.clReleaseContext)(self.context) };
    }
}

/// The errors of a build log in one form, `FILE:LINE:COLUMN: message`, a line each; `None` if it has none of that form. PoCL writes
/// `error: ` before them, and where a macro of ours is the place, that behind the place of its use.
fn errors_of(log: &str) -> Option<String> {
    let of_line = |line: &str| {
        let line = line.trim();
        let line = match line.strip_prefix("error: ") {
            Some(rest) => rest.to_owned(),
            None => line.contains(": error: ").then(|| line.replacen(": error: ", ": ", 1))?,
        };
        let line = match (line.find(" <Spelling="), line.find(">: ")) {
            (Some(from), Some(to)) if from < to => [&line[..from], &line[to + 1..]].concat(),
            _ => line,
        };
        let mut parts = line.splitn(4, ':').skip(1);
        let is_number = |part: Option<&str>| part.is_some_and(|part| part.parse::<u32>().is_ok());
        (is_number(parts.next()) && is_number(parts.next())).then_some(line)
    };
    let all: Vec<String> = log.lines().filter_map(of_line).collect();
    (!all.is_empty()).then(|| all.join("\n"))
}

#[cfg(test)]
mod log_tests {
    use super::errors_of;

    #[test]
    fn errors_have_one_form() {
        for (log, expected) in [
            (
                "error: bad.k:3:15: expected ';'\nDevice pthread failed to build the program\n",
                Some("bad.k:3:15: expected ';'"),
            ),
            (
                "error: big.k:1:100 <Spelling=modules.h:86:39>: static assertion failed: larger",
                Some("big.k:1:100: static assertion failed: larger"),
            ),
            (
                "a.k:1:2: error: one\na.k:3:4: error: two: 9\n",
                Some("a.k:1:2: one\na.k:3:4: two: 9"),
            ),
            ("Device pthread failed to build the program", None),
        ] {
            assert_eq!(errors_of(log).as_deref(), expected, "{log}");
        }
    }
}
