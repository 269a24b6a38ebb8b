//! The driver over CUDA's driver library.
//!
//! `cudarc`'s plain bindings, not its safe level: that one tracks events of its own and waits for them
//! where a buffer changes its stream. Here a queue is a stream, an event an event, and each return code is
//! checked and named.
//!
//! The device's primary context is used, as NVIDIA advises, and made current at each call, since a driver
//! may be moved between threads and other code may have made another one current.
//!
//! Threads: as [`Driver`]'s.

mod hosts;
mod library;

use std::ffi::{CString, c_void};
use std::ptr;
use std::time::Duration;

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUjit_option, CUmodule, CUresult,
    CUstream,
};

use crate::cache::{self, Cache};
use crate::driver::{Arguments, DeviceInfo, Driver, Event, Kernel, Memory, Program, Queue, Shape};
use crate::slots::Slots;
use crate::{DeviceError, embedded, nvrtc, range};
use hosts::HOSTS;
use library::Ready;

/// A stream that does not wait for the legacy default stream.
const NON_BLOCKING: u32 = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
/// An event without a time stamp is cheaper to record and to ask for.
const NO_TIMING: u32 = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
/// Host memory that every context may use and kernels can reach.
const REGISTER: u32 = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
/// Bytes of each argument of a kernel: four pointers and the job number.
const ARGUMENT_BYTES: [usize; 5] = [8, 8, 8, 8, 4];
/// Bytes for what the driver's own compiler says of PTX.
const LOG_BYTES: usize = 16 << 10;

/// A CUDA device, opened. See the module.
pub struct Cuda {
    ready: Ready,
    info: DeviceInfo,
    device: CUdevice,
    context: CUcontext,
    streams: Vec<CUstream>,
    buffers: Slots<Buffer>,
    modules: Vec<CUmodule>,
    kernels: Vec<CUfunction>,
    events: Slots<CUevent>,
    /// Events to be recorded again.
    spare: Vec<CUevent>,
    registered: Vec<Registered>,
    /// Where launches are timed, and events with a time that are in use there.
    timed_on: Option<Queue>,
    stamps: Vec<CUevent>,
    cache: Cache,
    lost: Option<String>,
    is_abandoned: bool,
}

#[derive(Clone, Copy)]
struct Buffer {
    at: CUdeviceptr,
    bytes: usize,
    /// Whether it is the host's memory, seen by the device.
    is_host: bool,
}

struct Registered {
    start: *mut u8,
    alias: Option<Memory>,
}

// SAFETY: the raw pointers are the library's objects, which any thread may use that has made their context
// current, as each call here does first; the start of registered memory is compared, never followed.
unsafe impl Send for Cuda {}

/// What a call was for: it chooses the error.
#[derive(Clone, Copy)]
enum For {
    Memory,
    Copy,
    Launch,
    Other,
}

/// All devices, or why there are none.
pub(crate) fn devices() -> Result<Vec<DeviceInfo>, DeviceError> {
    let ready = library::ready()?;
    let found = library::found(ready)?;
    Ok((0..).zip(found).map(|(number, device)| library::describe(ready, number, device)).collect())
}

impl Cuda {
    /// Opens the device of this number.
    ///
    /// # Errors
    /// [`DeviceError::Absent`] without a driver or such a device; the library's complaint when its context
    /// cannot be had.
    pub fn open(number: u32, cache: Cache) -> Result<Self, DeviceError> {
        let ready = library::ready()?;
        let all = library::found(ready)?;
        let Some(&device) = all.get(number as usize) else {
            let problem = format!("cuda:{number}: there are {} devices, from 0", all.len());
            return Err(DeviceError::Absent(problem));
        };
        let info = library::describe(ready, number, device);
        let mut context = ptr::null_mut();
        // SAFETY: room for the context; a device that the library named. Released by `Drop`.
        let code = unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) };
        library::check("cuDevicePrimaryCtxRetain", code).map_err(DeviceError::Absent)?;
        Ok(Self {
            ready,
            info,
            device,
            context,
            streams: Vec::new(),
            buffers: Slots::new(),
            modules: Vec::new(),
            kernels: Vec::new(),
            events: Slots::new(),
            spare: Vec::new(),
            registered: Vec::new(),
            timed_on: None,
            stamps: Vec::new(),
            cache,
            lost: None,
            is_abandoned: false,
        })
    }

    /// Turns a return code into an error that names the call; notes that the device is lost.
    fn check(&mut self, why: For, call: &str, code: CUresult) -> Result<(), DeviceError> {
        let Err(text) = library::check(call, code) else { return Ok(()) };
        if library::is_lost(code) {
            self.lost = Some(text.clone());
            return Err(DeviceError::Lost(text));
        }
        Err(match why {
            _ if code == CUresult::CUDA_ERROR_OUT_OF_MEMORY => DeviceError::Memory(text),
            For::Memory => DeviceError::Memory(text),
            For::Copy => DeviceError::Copy(text),
            For::Launch => DeviceError::Launch(text),
            For::Other => DeviceError::Call(text),
        })
    }

    /// Makes the context current; an error once the device is lost.
    fn enter(&mut self) -> Result<(), DeviceError> {
        if let Some(text) = &self.lost {
            return Err(DeviceError::Lost(text.clone()));
        }
        // SAFETY: the context is ours until `Drop`.
        let code = unsafe { sys::cuCtxSetCurrent(self.context) };
        self.check(For::Other, "cuCtxSetCurrent", code)
    }

    fn stream(&self, queue: Queue) -> Result<CUstream, DeviceError> {
        let stream = self.streams.get(queue.0 as usize).copied();
        stream.ok_or_else(|| DeviceError::Call(format!("there is no {queue:?}")))
    }

    fn buffer(&self, memory: Memory) -> Result<Buffer, DeviceError> {
        let buffer = self.buffers.get(memory.0).copied();
        buffer.ok_or_else(|| DeviceError::Call(format!("there is no {memory:?}")))
    }

    fn recorded(&self, event: Event) -> Result<CUevent, DeviceError> {
        let found = self.events.get(event.0).copied();
        found.ok_or_else(|| DeviceError::Call(format!("there is no {event:?}, or it was used up")))
    }

    /// The program's module: from the cache, from the compiler, or from PTX: the program's own or that of
    /// this build.
    fn module(&mut self, program: &Program) -> Result<CUmodule, DeviceError> {
        let Some(compiler) = nvrtc::identity() else {
            return self.brought(program).unwrap_or_else(|| {
                let log = "there is no NVRTC library (libnvrtc.so.13) to compile it, and it brings no PTX";
                Err(DeviceError::Build { name: program.name.clone(), log: log.into() })
            });
        };
        let target = nvrtc::target_for(&self.info.target);
        let key = cache::key(&self.info, &target, &compiler, program);
        if let Some(code) = self.cache.get(&key) {
            // Code that the driver does not take after all is made anew.
            if let Ok(module) = self.load(program, &code) {
                return Ok(module);
            }
        }
        let compiled = nvrtc::compile(program, &target, &[])?;
        match self.load(program, &compiled.code) {
            Ok(module) => {
                self.cache.put(&key, &compiled.code);
                Ok(module)
            }
            // A compiler that is newer than the driver; the PTX may be older than both.
            Err(error @ DeviceError::Build { .. }) => self.brought(program).unwrap_or(Err(error)),
            Err(error) => Err(error),
        }
    }

    /// The module of the PTX that the program brings, or this build for it.
    fn brought(&mut self, program: &Program) -> Option<Result<CUmodule, DeviceError>> {
        let ptx = program.ptx.or_else(|| embedded::ptx(program))?;
        let mut text = ptx.as_bytes().to_vec();
        if text.last() != Some(&0) {
            text.push(0);
        }
        Some(self.load(program, &text))
    }

    /// Loads a cubin, or PTX that ends with a 0. `Drop` unloads it.
    fn load(&mut self, program: &Program, code: &[u8]) -> Result<CUmodule, DeviceError> {
        let mut module = ptr::null_mut();
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let mut values = [
            log.as_mut_ptr().cast::<c_void>(),
            ptr::without_provenance_mut::<c_void>(LOG_BYTES), // a number in a pointer's place
        ];
        // SAFETY: the image is a whole cubin, whose header has its size, or text that ends with a 0:
        // the compiler's, or the cache's, which compares a checksum, or the program's own. Two options with
        // two values; the log has the capacity given. The call copies all it needs.
        let result = unsafe {
            let (image, count) = (code.as_ptr().cast::<c_void>(), options.len() as u32);
            let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
            sys::cuModuleLoadDataEx(&mut module, image, count, options, values)
        };
        if result == CUresult::CUDA_SUCCESS {
            self.modules.push(module);
            return Ok(module);
        }
        let end = log.iter().position(|&b| b == 0).unwrap_or(log.len());
        let log = String::from_utf8_lossy(&log[..end]).into_owned();
        match self.check(For::Other, "cuModuleLoadDataEx", result) {
            Err(DeviceError::Call(text)) => Err(DeviceError::Build {
                name: program.name.clone(),
                log: format!("{text}\n{log}"),
            }),
            Err(error) => Err(error),
            Ok(()) => Ok(module),
        }
    }

    /// Refuses a kernel of other arguments, as far as the driver knows: a launch would read beyond them.
    fn check_arguments(&self, name: &str, kernel: CUfunction) -> Result<(), String> {
        if !library::has(self.ready, "cuFuncGetParamInfo") {
            return Ok(()); // before CUDA 12.4
        }
        for index in 0..=ARGUMENT_BYTES.len() {
            let (mut offset, mut bytes) = (0usize, 0usize);
            // SAFETY: a kernel of ours; room for both numbers.
            let code = unsafe { sys::cuFuncGetParamInfo(kernel, index, &mut offset, &mut bytes) };
            let found = (code == CUresult::CUDA_SUCCESS).then_some(bytes);
            if found != ARGUMENT_BYTES.get(index).copied() {
                let expected = "arena, payload, tables, state, job number";
                return Err(format!(
                    "the kernel {name} does not take {expected} (argument {index})"
                ));
            }
        }
        Ok(())
    }
}

impl Driver for Cuda {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn build(&mut self, program: &Program, names: &[&str]) -> Result<Vec<Kernel>, DeviceError> {
        self.enter()?;
        let problem = |log| DeviceError::Build { name: program.name.clone(), log };
        let module = self.module(program)?;
        let mut kernels = Vec::with_capacity(names.len());
        for &name in names {
            let text = CString::new(name)
                .map_err(|_| problem(format!("no kernel can be called {name:?}")))?;
            let mut kernel = ptr::null_mut();
            // SAFETY: a module of ours, a C string.
            let code = unsafe { sys::cuModuleGetFunction(&mut kernel, module, text.as_ptr()) };
            if code == CUresult::CUDA_ERROR_NOT_FOUND {
                return Err(problem(format!("it has no kernel {name}")));
            }
            self.check(For::Other, "cuModuleGetFunction", code)?;
            self.check_arguments(name, kernel).map_err(problem)?;
            self.kernels.push(kernel);
            kernels.push(Kernel(self.kernels.len() as u32 - 1));
        }
        Ok(kernels)
    }

    fn allocate(&mut self, bytes: usize) -> Result<Memory, DeviceError> {
        self.enter()?;
        if self.buffers.is_full() {
            return Err(DeviceError::Memory("too many pieces".into()));
        }
        let bytes = bytes.max(1);
        let mut at = 0;
        // SAFETY: room for the address.
        let code = unsafe { sys::cuMemAlloc_v2(&mut at, bytes) };
        self.check(For::Memory, "cuMemAlloc", code)?;
        Ok(Memory(self.buffers.insert(Buffer { at, bytes, is_host: false })))
    }

    fn free(&mut self, memory: Memory) {
        if self.is_abandoned || self.buffers.get(memory.0).is_none_or(|buffer| buffer.is_host) {
            return; // unknown, or the host's: `unregister` ends it
        }
        // Memory of a lost device went with it.
        let entered = self.enter();
        if let Some(buffer) = self.buffers.remove(memory.0).filter(|_| entered.is_ok()) {
            // SAFETY: allocated by `allocate` and taken out of the list, hence freed once. The code can
            // only say that the device is lost, which the next call says as well.
            let _ = unsafe { sys::cuMemFree_v2(buffer.at) };
        }
    }

    fn queue(&mut self) -> Result<Queue, DeviceError> {
        self.enter()?;
        let mut stream = ptr::null_mut();
        // SAFETY: room for the stream.
        let code = unsafe { sys::cuStreamCreate(&mut stream, NON_BLOCKING) };
        self.check(For::Other, "cuStreamCreate", code)?;
        self.streams.push(stream);
        Ok(Queue(self.streams.len() as u32 - 1))
    }

    unsafe fn upload(
        &mut self,
        queue: Queue,
        bytes: *const [u8],
        to: Memory,
        at: usize,
    ) -> Result<(), DeviceError> {
        self.enter()?;
        let (stream, buffer) = (self.stream(queue)?, self.buffer(to)?);
        range::check("upload", at, bytes.len(), buffer.bytes)?;
        if bytes.len() == 0 {
            return Ok(());
        }
        // SAFETY: the range lies within the buffer; the caller keeps the host's bytes until an event after
        // this is done, or the driver dropped, which waits for the streams.
        let code = unsafe {
            let to = buffer.at + at as CUdeviceptr;
            sys::cuMemcpyHtoDAsync_v2(to, bytes.cast::<c_void>(), bytes.len(), stream)
        };
        self.check(For::Copy, "cuMemcpyHtoDAsync", code)
    }

    unsafe fn download(
        &mut self,
        queue: Queue,
        from: Memory,
        at: usize,
        to: *mut [u8],
    ) -> Result<(), DeviceError> {
        self.enter()?;
        let (stream, buffer) = (self.stream(queue)?, self.buffer(from)?);
        range::check("download", at, to.len(), buffer.bytes)?;
        if to.len() == 0 {
            return Ok(());
        }
        // SAFETY: the range lies within the buffer; the caller leaves the host's bytes alone until an event
        // after this is done, or the driver dropped, which waits for the streams.
        let code = unsafe {
            let from = buffer.at + at as CUdeviceptr;
            sys::cuMemcpyDtoHAsync_v2(to.cast::<c_void>(), from, to.len(), stream)
        };
        self.check(For::Copy, "cuMemcpyDtoHAsync", code)
    }

    fn copy(
        &mut self,
        queue: Queue,
        from: (Memory, usize),
        to: (Memory, usize),
        bytes: usize,
    ) -> Result<(), DeviceError> {
        self.enter()?;
        let stream = self.stream(queue)?;
        let (source, target) = (self.buffer(from.0)?, self.buffer(to.0)?);
        range::check("copy from", from.1, bytes, source.bytes)?;
        range::check("copy to", to.1, bytes, target.bytes)?;
        if from.0 == to.0 {
            range::check_apart(from.1, to.1, bytes)?;
        }
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: both ranges lie within their buffers and do not overlap.
        let code = unsafe {
            let from = source.at + from.1 as CUdeviceptr;
            let to = target.at + to.1 as CUdeviceptr;
            sys::cuMemcpyDtoDAsync_v2(to, from, bytes, stream)
        };
        self.check(For::Copy, "cuMemcpyDtoDAsync", code)
    }

    fn launch(
        &mut self,
        queue: Queue,
        kernel: Kernel,
        shape: Shape,
        arguments: &Arguments,
    ) -> Result<(), DeviceError> {
        self.enter()?;
        let stream = self.stream(queue)?;
        let Some(&kernel) = self.kernels.get(kernel.0 as usize) else {
            return Err(DeviceError::Launch(format!("there is no {kernel:?}")));
        };
        // An error for the library.
        if shape.groups == 0 {
            return Ok(());
        }
        let Arguments { arena, payload, tables, state, job } = *arguments;
        let mut arena = self.buffer(arena)?.at;
        let mut payload = self.buffer(payload)?.at;
        let mut tables = self.buffer(tables)?.at;
        let mut state = self.buffer(state)?.at;
        let mut job = job;
        let mut parameters = [
            (&raw mut arena).cast::<c_void>(),
            (&raw mut payload).cast::<c_void>(),
            (&raw mut tables).cast::<c_void>(),
            (&raw mut state).cast::<c_void>(),
            (&raw mut job).cast::<c_void>(),
        ];
        // SAFETY: one pointer for each of the kernel's parameters, to a value of its size, which the call
        // copies; what the kernel does with them is the kernel's contract.
        let code = unsafe {
            let parameters = parameters.as_mut_ptr();
            let Shape { groups, items } = shape;
            let none = ptr::null_mut();
            sys::cuLaunchKernel(kernel, groups, 1, 1, items, 1, 1, 0, stream, parameters, none)
        };
        self.check(For::Launch, "cuLaunchKernel", code)
    }

    fn event(&mut self, queue: Queue) -> Result<Event, DeviceError> {
        self.enter()?;
        let stream = self.stream(queue)?;
        if self.events.is_full() {
            return Err(DeviceError::Call("too many events".into()));
        }
        let event = match self.spare.pop() {
            Some(event) => event,
            None => {
                let mut event = ptr::null_mut();
                // SAFETY: room for the event.
                let code = unsafe { sys::cuEventCreate(&mut event, NO_TIMING) };
                self.check(For::Other, "cuEventCreate", code)?;
                event
            }
        };
        // SAFETY: an event and a stream of ours, of one context. A stream is worked on without a push.
        let code = unsafe { sys::cuEventRecord(event, stream) };
        if let Err(error) = self.check(For::Other, "cuEventRecord", code) {
            self.spare.push(event);
            return Err(error);
        }
        Ok(Event(self.events.insert(event)))
    }

    fn is_done(&mut self, event: Event) -> Result<bool, DeviceError> {
        self.enter()?;
        let recorded = self.recorded(event)?;
        // SAFETY: an event of ours that has been recorded.
        let code = unsafe { sys::cuEventQuery(recorded) };
        if code == CUresult::CUDA_ERROR_NOT_READY {
            return Ok(false);
        }
        // Waits of other streams refer to the recording, not to the event: it can be used again.
        self.events.remove(event.0);
        self.spare.push(recorded);
        // What comes asynchronously is a kernel's or a copy's fault.
        self.check(For::Launch, "cuEventQuery", code).map(|()| true)
    }

    fn wait_for(&mut self, queue: Queue, event: Event) -> Result<(), DeviceError> {
        self.enter()?;
        let (stream, event) = (self.stream(queue)?, self.recorded(event)?);
        // SAFETY: a stream and a recorded event of ours; 0: no flags.
        let code = unsafe { sys::cuStreamWaitEvent(stream, event, 0) };
        self.check(For::Other, "cuStreamWaitEvent", code)
    }

    fn timed(
        &mut self,
        launches: &[(Kernel, Shape, Arguments)],
        limit: Duration,
    ) -> Result<Option<Duration>, DeviceError> {
        if !library::has(self.ready, "cuEventElapsedTime_v2") {
            return Ok(None);
        }
        let queue = match self.timed_on {
            Some(queue) => queue,
            None => {
                let queue = self.queue()?;
                *self.timed_on.insert(queue)
            }
        };
        self.enter()?;
        let stream = self.stream(queue)?;
        let mut marks = [ptr::null_mut(); 2];
        for mark in &mut marks {
            // SAFETY: room for the event; 0: one that keeps its time.
            let code = unsafe { sys::cuEventCreate(mark, 0) };
            self.check(For::Other, "cuEventCreate", code)?;
            self.stamps.push(*mark);
        }
        // SAFETY: an event and a stream of ours, of one context.
        let code = unsafe { sys::cuEventRecord(marks[0], stream) };
        self.check(For::Other, "cuEventRecord", code)?;
        for (kernel, shape, arguments) in launches {
            self.launch(queue, *kernel, *shape, arguments)?;
        }
        // SAFETY: as above.
        let code = unsafe { sys::cuEventRecord(marks[1], stream) };
        self.check(For::Other, "cuEventRecord", code)?;
        let event = self.event(queue)?;
        if !self.wait(event, limit)? {
            return Err(DeviceError::Hang(limit));
        }
        let mut milliseconds = 0f32;
        // SAFETY: room for the number; both were recorded and have been reached.
        let code = unsafe { sys::cuEventElapsedTime_v2(&mut milliseconds, marks[0], marks[1]) };
        self.check(For::Other, "cuEventElapsedTime_v2", code)?;
        for mark in marks {
            self.stamps.retain(|stamp| *stamp != mark);
            // SAFETY: made above, taken out of the list, hence destroyed once. Its code can only say that
            // the device is lost.
            let _ = unsafe { sys::cuEventDestroy_v2(mark) };
        }
        Ok(Some(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3)))
    }

    unsafe fn register(&mut self, memory: *mut [u8]) -> Result<Option<Memory>, DeviceError> {
        self.enter()?;
        if self.buffers.is_full() {
            return Err(DeviceError::Memory("too many pieces".into()));
        }
        let (start, bytes) = (memory.cast::<u8>(), memory.len());
        if self.registered.iter().any(|own| own.start == start) {
            return Err(DeviceError::Call(format!("{start:p} is registered")));
        }
        HOSTS.register(start, bytes, || {
            // SAFETY: the caller keeps the memory mapped until it is unregistered, here or in `Drop`.
            let code = unsafe { sys::cuMemHostRegister_v2(start.cast(), bytes, REGISTER) };
            self.check(For::Memory, "cuMemHostRegister", code)
        })?;
        let mut at = 0;
        // SAFETY: registered just now; room for the address; 0 is the only flag that there is.
        let code = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut at, start.cast(), 0) };
        // Without an address the memory is page-locked all the same.
        let seen = code == CUresult::CUDA_SUCCESS;
        let alias = seen.then(|| Memory(self.buffers.insert(Buffer { at, bytes, is_host: true })));
        self.registered.push(Registered { start, alias });
        Ok(alias)
    }

    fn unregister(&mut self, start: *mut u8) -> Result<(), DeviceError> {
        if self.is_abandoned {
            return Ok(());
        }
        let Some(place) = self.registered.iter().position(|r| r.start == start) else {
            return Err(DeviceError::Call(format!("nothing is registered at {start:p}")));
        };
        self.enter()?;
        let registered = self.registered.swap_remove(place);
        if let Some(alias) = registered.alias {
            self.buffers.remove(alias.0);
        }
        // SAFETY: registered by `register`, and taken out of the list.
        let code = unsafe { give_back(&registered, self.device) };
        code.map_or(Ok(()), |code| self.check(For::Memory, "cuMemHostUnregister", code))
    }

    fn abandon(&mut self) {
        self.is_abandoned = true;
    }
}

/// Memory that a driver of this device has registered is not its own any more; what the library says if nobody else has it.
///
/// # Safety
/// Called once for each time that [`HOSTS`] registered it, with a context of the device.
unsafe fn give_back(registered: &Registered, device: CUdevice) -> Option<CUresult> {
    let start = registered.start;
    let keep = || {
        let mut context = ptr::null_mut();
        // SAFETY: room for the context; the device has one. Given back below, by the last user.
        let code = unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) };
        (code == CUresult::CUDA_SUCCESS).then_some(device)
    };
    HOSTS.unregister(start, keep, |kept| {
        // SAFETY: no driver has it any more: unregistered once. The contexts were kept, once each.
        unsafe {
            let code = sys::cuMemHostUnregister(start.cast());
            for device in kept {
                let _ = sys::cuDevicePrimaryCtxRelease_v2(*device);
            }
            code
        }
    })
}

impl Drop for Cuda {
    /// Waits for all streams: the host's memory is its owner's again afterwards. Does nothing for a
    /// device that was abandoned.
    fn drop(&mut self) {
        if self.is_abandoned {
            return;
        }
        // The codes of all these calls can only say that the device is lost, and then its owner knows;
        // nothing is left to be done about it.
        //
        // SAFETY: each object was made by the call that belongs to the one here and is given back once;
        // the context is current (or the calls fail) and no stream works on any of it any more.
        unsafe {
            let _ = sys::cuCtxSetCurrent(self.context);
            for &stream in &self.streams {
                let _ = sys::cuStreamSynchronize(stream);
            }
            let stamps = self.stamps.drain(..);
            for event in self.events.drain().chain(self.spare.drain(..)).chain(stamps) {
                let _ = sys::cuEventDestroy_v2(event);
            }
            for &stream in &self.streams {
                let _ = sys::cuStreamDestroy_v2(stream);
            }
            for registered in &self.registered {
                let _ = give_back(registered, self.device);
            }
            for buffer in self.buffers.drain().filter(|b| !b.is_host) {
                let _ = sys::cuMemFree_v2(buffer.at);
            }
            for &module in &self.modules {
                let _ = sys::cuModuleUnload(module);
            }
            let _ = sys::cuCtxSetCurrent(ptr::null_mut());
            let _ = sys::cuDevicePrimaryCtxRelease_v2(self.device);
        }
    }
}
