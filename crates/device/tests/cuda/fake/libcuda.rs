//! A CUDA driver library of one device that exists in memory only, as strict as NVIDIA's documentation.
//!
//! Streams do nothing until an event of theirs is asked for twice or they are synchronised, so that what
//! is enqueued really is pending. Anything that the documentation forbids (another thread's context, a
//! freed address, a destroyed event) is answered with the code that it names. After a fault every call
//! answers with that fault, as a real context does.
//!
//! Compiled by the test with `rustc` alone.
#![allow(non_snake_case, static_mut_refs)]

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard};

const OK: u32 = 0;
const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const INVALID_IMAGE: u32 = 200;
const INVALID_CONTEXT: u32 = 201;
const INVALID_HANDLE: u32 = 400;
const NOT_FOUND: u32 = 500;
const NOT_READY: u32 = 600;
const ILLEGAL_ADDRESS: u32 = 700;
const ALREADY_REGISTERED: u32 = 712;
const NOT_REGISTERED: u32 = 713;

const CONTEXT: usize = 0xc0;
const MEMORY_BYTES: usize = 1 << 30;

enum Op {
    Copy { to: u64, from: u64, bytes: usize },
    Kernel { name: String, arena: u64, payload: u64, tables: u64, state: u64, job: u32, items: u64 },
    Wait { stream: usize, until: u64 },
}

#[derive(Default)]
struct Stream {
    ops: VecDeque<Op>,
    enqueued: u64,
    done: u64,
}

#[derive(Default)]
struct Event {
    recorded: Option<(usize, u64)>,
    asked: bool,
    keeps_time: bool,
}

#[derive(Default)]
struct World {
    handles: usize,
    retained: i64,
    memory: BTreeMap<u64, (usize, Box<[u64]>)>,
    registered: BTreeMap<u64, usize>,
    streams: BTreeMap<usize, Stream>,
    events: BTreeMap<usize, Event>,
    modules: BTreeMap<usize, Vec<usize>>,
    functions: BTreeMap<usize, String>,
    fault: u32,
    planned: Option<(String, u32)>,
}

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(Default::default);
thread_local!(static CURRENT: Cell<usize> = const { Cell::new(0) });

fn world() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap()
}

/// The world for a call that needs the context: the planned failure, the fault, a context that is not
/// current.
fn enter(call: &str) -> Result<MutexGuard<'static, World>, u32> {
    let mut world = world();
    if let Some((_, code)) = world.planned.take_if(|(planned, _)| planned == call) {
        return Err(code);
    }
    if world.fault != OK {
        return Err(world.fault);
    }
    if CURRENT.get() != CONTEXT || world.retained <= 0 {
        return Err(INVALID_CONTEXT);
    }
    Ok(world)
}

impl World {
    fn handle(&mut self) -> usize {
        self.handles += 1;
        0x1000 + self.handles * 16
    }

    /// Whether device code may touch these bytes.
    fn reaches(&self, at: u64, bytes: usize) -> bool {
        let within = |start: u64, size: usize| at >= start && at + bytes as u64 <= start + size as u64;
        self.memory.iter().any(|(start, (size, _))| within(*start, *size))
            || self.registered.iter().any(|(start, size)| within(*start, *size))
    }

    fn enqueue(&mut self, stream: *mut c_void, op: Op) -> u32 {
        let Some(stream) = self.streams.get_mut(&(stream as usize)) else { return INVALID_HANDLE };
        stream.ops.push_back(op);
        stream.enqueued += 1;
        OK
    }

    fn run(&mut self, stream: usize, until: u64) {
        while self.fault == OK && self.streams[&stream].done < until {
            let at = self.streams.get_mut(&stream).unwrap();
            let Some(op) = at.ops.pop_front() else { return };
            at.done += 1;
            match op {
                // SAFETY: both ranges were looked at when the copy was enqueued.
                Op::Copy { to, from, bytes } => unsafe {
                    std::ptr::copy(from as *const u8, to as *mut u8, bytes);
                },
                Op::Wait { stream, until } => self.run(stream, until),
                Op::Kernel { name, arena, payload, tables, state, job, items } => match &*name {
                    "fault" => self.fault = ILLEGAL_ADDRESS,
                    _ => {
                        for item in 0..items {
                            let at = |base: u64| (base + 4 * item) as *mut u32;
                            let all = [arena, payload, tables, state];
                            if !all.iter().all(|base| self.reaches(at(*base) as u64, 4)) {
                                self.fault = ILLEGAL_ADDRESS;
                                return;
                            }
                            // SAFETY: all four words lie in memory that was given out.
                            unsafe {
                                let [a, p, t, s] = all.map(|base| *at(base));
                                *at(arena) = a * 1000 + p * 100 + t * 10 + s + job;
                            }
                        }
                    }
                },
            }
        }
    }
}

/// The next call of this name answers with this code.
#[unsafe(no_mangle)]
// SAFETY: the test gives a text that ends with 0.
pub unsafe extern "C" fn fake_fail(call: *const c_char, code: u32) {
    // SAFETY: as above.
    let call = unsafe { CStr::from_ptr(call) }.to_str().unwrap().to_owned();
    world().planned = Some((call, code));
}

/// Objects that nobody has given back.
#[unsafe(no_mangle)]
pub extern "C" fn fake_live() -> u64 {
    let w = world();
    let objects = w.memory.len() + w.registered.len() + w.streams.len() + w.events.len() + w.modules.len();
    objects as u64 + w.retained.unsigned_abs()
}

macro_rules! call {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $body:expr)*) => {$(
        #[unsafe(no_mangle)]
        // SAFETY: arguments are what the driver's header asks for; the driver under test is held to that.
        pub unsafe extern "C" fn $name($($arg: $type),*) -> u32 {
            #[allow(unused_unsafe)]
            // SAFETY: as above.
            let result: Result<u32, u32> = (|| unsafe { $body })();
            result.unwrap_or_else(|code| code)
        }
    )*};
}

type Out<T> = *mut T;
type Handle = *mut c_void;

call! {
    fn cuInit(flags: u32) Ok(if flags == 0 { OK } else { INVALID_VALUE })
    fn cuDriverGetVersion(version: Out<c_int>) { *version = 13000; Ok(OK) }
    fn cuDeviceGetCount(count: Out<c_int>) { *count = 1; Ok(OK) }
    fn cuDeviceGet(device: Out<c_int>, ordinal: c_int) {
        *device = 7;
        Ok(if ordinal == 0 { OK } else { 101 })
    }
    fn cuDeviceGetName(name: Out<c_char>, len: c_int, device: c_int) {
        let text = c"Fake GPU".to_bytes_with_nul();
        if len < text.len() as c_int || device != 7 { return Err(INVALID_VALUE); }
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, text.len());
        Ok(OK)
    }
    fn cuDeviceTotalMem_v2(bytes: Out<usize>, _device: c_int) { *bytes = MEMORY_BYTES; Ok(OK) }
    fn cuDeviceGetAttribute(value: Out<c_int>, attribute: u32, device: c_int) {
        *value = match attribute { 1 => 1024, 8 => 49152, 16 => 132, 75 => 9, 76 => 0, _ => return Err(INVALID_VALUE) };
        Ok(if device == 7 { OK } else { 101 })
    }
    fn cuDevicePrimaryCtxRetain(context: Out<usize>, device: c_int) {
        if device != 7 { return Err(101); }
        world().retained += 1;
        *context = CONTEXT;
        Ok(OK)
    }
    fn cuDevicePrimaryCtxRelease_v2(_device: c_int) {
        let mut w = world();
        if w.retained <= 0 { return Err(INVALID_CONTEXT); }
        w.retained -= 1;
        if w.retained == 0 { w.fault = OK; } // destroyed; the next one is whole
        Ok(OK)
    }
    fn cuCtxSetCurrent(context: usize) {
        if context != 0 && context != CONTEXT { return Err(INVALID_CONTEXT); }
        CURRENT.set(context);
        Ok(OK)
    }
    fn cuStreamCreate(stream: Out<usize>, flags: u32) {
        let mut w = enter("cuStreamCreate")?;
        if flags != 1 { return Err(INVALID_VALUE); }
        let handle = w.handle();
        w.streams.insert(handle, Stream::default());
        *stream = handle;
        Ok(OK)
    }
    fn cuStreamDestroy_v2(stream: usize) {
        let mut w = world();
        Ok(if w.streams.remove(&stream).is_some() { OK } else { INVALID_HANDLE })
    }
    fn cuStreamSynchronize(stream: usize) {
        let mut w = enter("cuStreamSynchronize")?;
        let until = w.streams.get(&stream).ok_or(INVALID_HANDLE)?.enqueued;
        w.run(stream, until);
        Ok(w.fault)
    }
    fn cuStreamWaitEvent(stream: Handle, event: usize, flags: u32) {
        let mut w = enter("cuStreamWaitEvent")?;
        if flags != 0 { return Err(INVALID_VALUE); }
        let recorded = w.events.get(&event).ok_or(INVALID_HANDLE)?.recorded;
        Ok(recorded.map_or(OK, |(of, until)| w.enqueue(stream, Op::Wait { stream: of, until })))
    }
    fn cuMemAlloc_v2(at: Out<u64>, bytes: usize) {
        let mut w = enter("cuMemAlloc")?;
        if bytes == 0 { return Err(INVALID_VALUE); }
        let used: usize = w.memory.values().map(|m| m.0).sum();
        if used + bytes > MEMORY_BYTES { return Err(OUT_OF_MEMORY); }
        let memory = vec![0xdead_beef_dead_beefu64; bytes.div_ceil(8)].into_boxed_slice();
        *at = memory.as_ptr() as u64;
        w.memory.insert(*at, (bytes, memory));
        Ok(OK)
    }
    fn cuMemFree_v2(at: u64) {
        let mut w = world();
        // As NVIDIA's: waits for all work.
        let streams: Vec<(usize, u64)> = w.streams.iter().map(|(s, v)| (*s, v.enqueued)).collect();
        streams.into_iter().for_each(|(s, until)| w.run(s, until));
        Ok(if w.memory.remove(&at).is_some() { OK } else { INVALID_VALUE })
    }
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: Handle) {
        let mut w = enter("cuMemcpyHtoDAsync")?;
        if !w.reaches(to, bytes) { return Err(INVALID_VALUE); }
        Ok(w.enqueue(stream, Op::Copy { to, from: from as u64, bytes }))
    }
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Handle) {
        let mut w = enter("cuMemcpyDtoHAsync")?;
        if !w.reaches(from, bytes) { return Err(INVALID_VALUE); }
        Ok(w.enqueue(stream, Op::Copy { to: to as u64, from, bytes }))
    }
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) {
        let mut w = enter("cuMemcpyDtoDAsync")?;
        if !w.reaches(from, bytes) || !w.reaches(to, bytes) { return Err(INVALID_VALUE); }
        Ok(w.enqueue(stream, Op::Copy { to, from, bytes }))
    }
    fn cuMemHostRegister_v2(start: u64, bytes: usize, flags: u32) {
        let mut w = enter("cuMemHostRegister")?;
        if flags != 3 || bytes == 0 { return Err(INVALID_VALUE); }
        if w.registered.insert(start, bytes).is_some() { return Err(ALREADY_REGISTERED); }
        Ok(OK)
    }
    fn cuMemHostUnregister(start: u64) {
        let mut w = enter("cuMemHostUnregister").or_else(|code| if code == ILLEGAL_ADDRESS { Ok(world()) } else { Err(code) })?;
        Ok(if w.registered.remove(&start).is_some() { OK } else { NOT_REGISTERED })
    }
    fn cuMemHostGetDevicePointer_v2(at: Out<u64>, start: u64, flags: u32) {
        let w = enter("cuMemHostGetDevicePointer")?;
        if flags != 0 || !w.registered.contains_key(&start) { return Err(INVALID_VALUE); }
        *at = start;
        Ok(OK)
    }
    fn cuEventCreate(event: Out<usize>, flags: u32) {
        let mut w = enter("cuEventCreate")?;
        if flags != 2 && flags != 0 { return Err(INVALID_VALUE); }
        let handle = w.handle();
        w.events.insert(handle, Event { keeps_time: flags == 0, ..Event::default() });
        *event = handle;
        Ok(OK)
    }
    fn cuEventRecord(event: usize, stream: usize) {
        let mut w = enter("cuEventRecord")?;
        let until = w.streams.get(&stream).ok_or(INVALID_HANDLE)?.enqueued;
        let event = w.events.get_mut(&event).ok_or(INVALID_HANDLE)?;
        event.recorded = Some((stream, until));
        event.asked = false;
        Ok(OK)
    }
    fn cuEventQuery(event: usize) {
        let mut w = enter("cuEventQuery")?;
        let event = w.events.get_mut(&event).ok_or(INVALID_HANDLE)?;
        let Some((stream, until)) = event.recorded else { return Ok(OK) };
        if !std::mem::replace(&mut event.asked, true) { return Ok(NOT_READY); }
        w.run(stream, until);
        Ok(w.fault)
    }
    // A millisecond for each command between two events that have been reached.
    fn cuEventElapsedTime_v2(milliseconds: Out<f32>, from: usize, to: usize) {
        let w = enter("cuEventElapsedTime_v2")?;
        let mut places = [0; 2];
        for (place, event) in places.iter_mut().zip([from, to]) {
            let event = w.events.get(&event).ok_or(INVALID_HANDLE)?;
            let (stream, until) = event.recorded.filter(|_| event.keeps_time).ok_or(INVALID_HANDLE)?;
            if w.streams[&stream].done < until { return Err(NOT_READY); }
            *place = until;
        }
        *milliseconds = (places[1] - places[0]) as f32;
        Ok(OK)
    }
    fn cuEventDestroy_v2(event: usize) {
        Ok(if world().events.remove(&event).is_some() { OK } else { INVALID_HANDLE })
    }
    fn cuModuleLoadDataEx(module: Out<usize>, image: *const c_char, count: u32, options: *const u32, values: *const Handle) {
        let mut w = enter("cuModuleLoadDataEx")?;
        let options = std::slice::from_raw_parts(options, count as usize);
        let values = std::slice::from_raw_parts(values, count as usize);
        let start = std::slice::from_raw_parts(image.cast::<u8>(), 4);
        if start != b"\x7fELF" && !CStr::from_ptr(image).to_bytes().starts_with(b"// PTX") {
            let log = options.iter().position(|o| *o == 5).ok_or(INVALID_VALUE)?;
            let size = options.iter().position(|o| *o == 6).ok_or(INVALID_VALUE)?;
            let text = c"line 1: no PTX".to_bytes_with_nul();
            if (values[size] as usize) < text.len() { return Err(INVALID_VALUE); }
            std::ptr::copy_nonoverlapping(text.as_ptr(), values[log].cast(), text.len());
            return Err(INVALID_IMAGE);
        }
        let handle = w.handle();
        w.modules.insert(handle, Vec::new());
        *module = handle;
        Ok(OK)
    }
    fn cuModuleUnload(module: usize) {
        Ok(if world().modules.remove(&module).is_some() { OK } else { INVALID_HANDLE })
    }
    fn cuModuleGetFunction(function: Out<usize>, module: usize, name: *const c_char) {
        let mut w = enter("cuModuleGetFunction")?;
        let name = CStr::from_ptr(name).to_str().unwrap().to_owned();
        if !["mix_all", "fault", "two", "empty"].contains(&&*name) { return Err(NOT_FOUND); }
        let handle = w.handle();
        w.modules.get_mut(&module).ok_or(INVALID_HANDLE)?.push(handle);
        w.functions.insert(handle, name);
        *function = handle;
        Ok(OK)
    }
    fn cuFuncGetParamInfo(function: usize, index: usize, offset: Out<usize>, bytes: Out<usize>) {
        let w = enter("cuFuncGetParamInfo")?;
        let sizes: &[usize] = if w.functions[&function] == "two" { &[8, 4] } else { &[8, 8, 8, 8, 4] };
        *bytes = *sizes.get(index).ok_or(INVALID_VALUE)?;
        *offset = 8 * index;
        Ok(OK)
    }
    fn cuLaunchKernel(
        function: usize, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32,
        stream: Handle, parameters: *const Handle, extra: *const Handle
    ) {
        let mut w = enter("cuLaunchKernel")?;
        let name = w.functions.get(&function).ok_or(INVALID_HANDLE)?.clone();
        let flat = gy == 1 && gz == 1 && by == 1 && bz == 1 && shared == 0 && extra.is_null();
        if !flat || gx == 0 || bx == 0 || bx > 1024 { return Err(INVALID_VALUE); }
        let p = |i: usize| *(*parameters.add(i)).cast::<u64>();
        let job = *(*parameters.add(4)).cast::<u32>();
        let items = if name == "mix_all" { u64::from(gx) * u64::from(bx) } else { 0 };
        let op = Op::Kernel { name, arena: p(0), payload: p(1), tables: p(2), state: p(3), job, items };
        Ok(w.enqueue(stream, op))
    }
}
