//! The OpenCL library, loaded at run time, and what its platforms and devices say of themselves.
//!
//! `opencl-sys` gives the types. The functions are looked up here and not by `opencl3`, which calls them
//! through pointers of Rust's calling convention and panics when a release fails (as it does once a
//! device is lost).

use std::ffi::c_void;
use std::sync::{LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

use opencl_sys::cl_function_types::*;
use opencl_sys::*;

use super::codes;
use super::forms::Forms;
use crate::DeviceError;
use crate::driver::{Api, DeviceInfo};

/// The function pointer inside `opencl-sys`' optional one.
pub(super) trait Function {
    type Pointer: Copy;
}

impl<T: Copy> Function for Option<T> {
    type Pointer = T;
}

macro_rules! functions {
    ($($name:ident: $type:ty,)*) => {
        /// The functions of OpenCL 1.2 that the driver calls. Never unloaded.
        #[allow(non_snake_case)] // as the standard spells them
        pub(super) struct Library {
            $(pub(super) $name: <$type as Function>::Pointer,)*
        }

        impl Library {
            fn from_library(library: libloading::Library) -> Result<Self, String> {
                // A library may start threads that outlive every handle: it stays for the life of the
                // process, which also makes the pointers below valid for as long.
                let library: &'static libloading::Library = Box::leak(Box::new(library));
                Ok(Self {$(
                    $name: {
                        let name = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the type is that of the function of this name in the standard's header;
                        // null becomes `None`, which is refused.
                        let found = unsafe { library.get::<$type>(name) };
                        let found = found.map_err(|_| format!("it has no {}", stringify!($name)))?;
                        (*found).ok_or_else(|| format!("{} is null", stringify!($name)))?
                    },
                )*})
            }
        }
    };
}

functions! {
    clGetPlatformIDs: clGetPlatformIDs_t,
    clGetPlatformInfo: clGetPlatformInfo_t,
    clGetDeviceIDs: clGetDeviceIDs_t,
    clGetDeviceInfo: clGetDeviceInfo_t,
    clCreateContext: clCreateContext_t,
    clReleaseContext: clReleaseContext_t,
    clCreateCommandQueue: clCreateCommandQueue_t,
    clReleaseCommandQueue: clReleaseCommandQueue_t,
    clCreateBuffer: clCreateBuffer_t,
    clReleaseMemObject: clReleaseMemObject_t,
    clCreateProgramWithSource: clCreateProgramWithSource_t,
    clCreateProgramWithBinary: clCreateProgramWithBinary_t,
    clBuildProgram: clBuildProgram_t,
    clReleaseProgram: clReleaseProgram_t,
    clGetProgramInfo: clGetProgramInfo_t,
    clGetProgramBuildInfo: clGetProgramBuildInfo_t,
    clCreateKernel: clCreateKernel_t,
    clReleaseKernel: clReleaseKernel_t,
    clGetKernelInfo: clGetKernelInfo_t,
    clSetKernelArg: clSetKernelArg_t,
    clEnqueueWriteBuffer: clEnqueueWriteBuffer_t,
    clEnqueueReadBuffer: clEnqueueReadBuffer_t,
    clEnqueueCopyBuffer: clEnqueueCopyBuffer_t,
    clEnqueueNDRangeKernel: clEnqueueNDRangeKernel_t,
    clEnqueueMarkerWithWaitList: clEnqueueMarkerWithWaitList_t,
    clEnqueueBarrierWithWaitList: clEnqueueBarrierWithWaitList_t,
    clGetEventInfo: clGetEventInfo_t,
    clGetEventProfilingInfo: clGetEventProfilingInfo_t,
    clRetainEvent: clRetainEvent_t,
    clReleaseEvent: clReleaseEvent_t,
    clFlush: clFlush_t,
    clFinish: clFinish_t,
}

/// The library, loaded at the first call; the reason where there is none.
///
/// `OPENCL_DYLIB_PATH` names libraries (separated by `;`) to take instead, as Oclgrind needs it.
pub(super) fn library() -> Result<&'static Library, DeviceError> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    let loaded = LIBRARY.get_or_init(|| {
        let named = std::env::var("OPENCL_DYLIB_PATH").unwrap_or_default();
        let mut names: Vec<&str> = named.split(';').filter(|n| !n.is_empty()).collect();
        if names.is_empty() {
            names = vec!["libOpenCL.so.1", "libOpenCL.so"];
        }
        let mut reasons = Vec::new();
        for name in names {
            // SAFETY: loading runs the library's initialisers, which an OpenCL library offers to any
            // program; the operator chose it.
            match unsafe { libloading::Library::new(name) } {
                Ok(library) => match Library::from_library(library) {
                    Ok(library) => return Ok(library),
                    Err(reason) => reasons.push(format!("{name}: {reason}")),
                },
                // The error itself says only that it failed, its source why.
                Err(error) => reasons.push(match std::error::Error::source(&error) {
                    Some(why) => format!("{name}: {why}"),
                    None => format!("{name}: {error}"),
                }),
            }
        }
        Err(format!("no OpenCL library: {}", reasons.join("; ")))
    });
    loaded.as_ref().map_err(|reason| DeviceError::Absent(reason.clone()))
}

/// One thread at a time looks for devices, opens one, or builds. The standard asks no such thing, but PoCL
/// 3.1 starts its devices at the first question and lets a second thread ask them half started (it
/// crashes), and none of this is on the packet path. Launches are, and wait for none of it: a program that is built while
/// packets flow does not hold them up.
pub(super) fn one_at_a_time() -> MutexGuard<'static, ()> {
    static GATE: Mutex<()> = Mutex::new(());
    GATE.lock().unwrap_or_else(PoisonError::into_inner) // there is nothing in it
}

/// One thread at a time launches a kernel on the host's own processor: see [`Forms`].
pub(super) fn forms() -> MutexGuard<'static, Forms> {
    static FORMS: LazyLock<Mutex<Forms>> = LazyLock::new(Mutex::default);
    FORMS.lock().unwrap_or_else(PoisonError::into_inner) // nothing in it could be half changed
}

/// A device of a platform.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) platform: cl_platform_id,
    pub(super) device: cl_device_id,
}

/// All devices of all platforms, in the platforms' order.
pub(super) fn found(cl: &Library) -> Result<Vec<Found>, DeviceError> {
    let mut all = Vec::new();
    for platform in platforms(cl)? {
        let mut count = 0;
        // SAFETY: no array and a count to write to: asks for the number only.
        let code = unsafe {
            (cl.clGetDeviceIDs)(platform, CL_DEVICE_TYPE_ALL, 0, std::ptr::null_mut(), &mut count)
        };
        if code != CL_SUCCESS || count == 0 {
            continue; // a platform without devices, or one that cannot say: the others may have some
        }
        let mut devices = vec![std::ptr::null_mut(); count as usize];
        // SAFETY: the array has room for `count` devices.
        let code = unsafe {
            let at = devices.as_mut_ptr();
            (cl.clGetDeviceIDs)(platform, CL_DEVICE_TYPE_ALL, count, at, &mut count)
        };
        if code == CL_SUCCESS {
            devices.truncate(count as usize);
            all.extend(devices.into_iter().map(|device| Found { platform, device }));
        }
    }
    if all.is_empty() {
        return Err(DeviceError::Absent("no OpenCL platform has a device".into()));
    }
    Ok(all)
}

fn platforms(cl: &Library) -> Result<Vec<cl_platform_id>, DeviceError> {
    let mut count = 0;
    // SAFETY: no array and a count to write to: asks for the number only.
    let code = unsafe { (cl.clGetPlatformIDs)(0, std::ptr::null_mut(), &mut count) };
    if code == CL_PLATFORM_NOT_FOUND_KHR || (code == CL_SUCCESS && count == 0) {
        return Err(DeviceError::Absent("no OpenCL platform".into()));
    }
    let refused = |code| {
        DeviceError::Absent(format!(
            "no OpenCL platform: {}",
            codes::text("clGetPlatformIDs", code)
        ))
    };
    if code != CL_SUCCESS {
        return Err(refused(code));
    }
    let mut platforms = vec![std::ptr::null_mut(); count as usize];
    // SAFETY: the array has room for `count` platforms.
    let code = unsafe { (cl.clGetPlatformIDs)(count, platforms.as_mut_ptr(), &mut count) };
    if code != CL_SUCCESS {
        return Err(refused(code));
    }
    platforms.truncate(count as usize);
    Ok(platforms)
}

/// Whether a device is the host's own processor: PoCL.
pub(super) fn is_host(cl: &Library, found: Found) -> bool {
    let (mut kind, mut unified): (cl_device_type, cl_uint) = (0, 0);
    let ask = |what, value: *mut c_void, bytes| {
        // SAFETY: `value` has room for `bytes`, the size of this answer.
        let code =
            unsafe { (cl.clGetDeviceInfo)(found.device, what, bytes, value, std::ptr::null_mut()) };
        code == CL_SUCCESS
    };
    ask(CL_DEVICE_TYPE, (&raw mut kind).cast(), size_of::<cl_device_type>())
        && ask(CL_DEVICE_HOST_UNIFIED_MEMORY, (&raw mut unified).cast(), size_of::<cl_uint>())
        && kind & CL_DEVICE_TYPE_CPU != 0
        && kind & CL_DEVICE_TYPE_GPU == 0
        && unified != 0
}

/// What the device says of itself; empty or 0 where it does not answer.
pub(super) fn describe(cl: &Library, number: u32, found: Found) -> DeviceInfo {
    let Found { platform, device } = found;
    let of_device = |what| {
        // SAFETY: `text` gives an array of `bytes`, or null and 0.
        text(|bytes, value, size| unsafe { (cl.clGetDeviceInfo)(device, what, bytes, value, size) })
    };
    let of_platform = |what| {
        text(|bytes, value, size| {
            // SAFETY: as above.
            unsafe { (cl.clGetPlatformInfo)(platform, what, bytes, value, size) }
        })
    };
    let number_of = |what| {
        let mut value = 0u64;
        // SAFETY: room for eight bytes; the answers asked for here have four or eight, and the machine is
        // little-endian, so that four bytes fill the low half of what was zero.
        let code = unsafe {
            let at = (&raw mut value).cast::<c_void>();
            (cl.clGetDeviceInfo)(device, what, 8, at, std::ptr::null_mut())
        };
        if code == CL_SUCCESS { value } else { 0 }
    };
    let small = |what| u32::try_from(number_of(what)).unwrap_or(u32::MAX);
    let (platform_version, driver_version) =
        (of_platform(CL_PLATFORM_VERSION), of_device(CL_DRIVER_VERSION));
    let name = of_device(CL_DEVICE_NAME);
    DeviceInfo {
        api: Api::OpenCl,
        number,
        driver: format!("{} {driver_version}", of_platform(CL_PLATFORM_NAME)),
        memory_bytes: number_of(CL_DEVICE_GLOBAL_MEM_SIZE),
        units: small(CL_DEVICE_MAX_COMPUTE_UNITS),
        group_items_max: small(CL_DEVICE_MAX_WORK_GROUP_SIZE),
        group_bytes: small(CL_DEVICE_LOCAL_MEM_SIZE),
        is_gpu: number_of(CL_DEVICE_TYPE) & CL_DEVICE_TYPE_GPU != 0,
        target: format!("{name}; {}; {platform_version}", of_device(CL_DEVICE_VERSION)),
        name,
    }
}

/// The text that an information function gives: asked for its size, then for itself.
pub(super) fn text(ask: impl Fn(usize, *mut c_void, *mut usize) -> cl_int) -> String {
    let mut bytes = 0;
    if ask(0, std::ptr::null_mut(), &mut bytes) != CL_SUCCESS || bytes == 0 {
        return String::new();
    }
    let mut value = vec![0u8; bytes];
    if ask(bytes, value.as_mut_ptr().cast(), std::ptr::null_mut()) != CL_SUCCESS {
        return String::new();
    }
    let end = value.iter().position(|&b| b == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).trim().to_owned()
}
