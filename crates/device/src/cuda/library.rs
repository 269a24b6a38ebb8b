//! The CUDA driver library: found without a panic, asked what devices there are; its codes.
//!
//! `cudarc` panics where the library or a function of it is missing, so both are looked for first.

use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute as Attribute, CUresult};

use crate::DeviceError;
use crate::driver::{Api, DeviceInfo};

/// The functions that the driver calls: all of CUDA 11 or older.
const FUNCTIONS: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemHostGetDevicePointer_v2",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventDestroy_v2",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuLaunchKernel",
];

/// A proof that the library is loaded, has all [`FUNCTIONS`] and is initialised.
#[derive(Clone, Copy)]
pub(super) struct Ready(());

/// Loads and initialises the library at the first call; the reason where that cannot be.
pub(super) fn ready() -> Result<Ready, DeviceError> {
    static READY: OnceLock<Result<Ready, String>> = OnceLock::new();
    let ready = READY.get_or_init(|| {
        // SAFETY: runs the initialisers of NVIDIA's driver library, which it offers to any program.
        if !unsafe { sys::is_culib_present() } {
            return Err("no CUDA driver library (libcuda.so.1)".into());
        }
        // SAFETY: as above; it was just found, so that this does not panic.
        let library = unsafe { sys::culib() };
        for name in FUNCTIONS {
            // SAFETY: the pointer is looked for, not called.
            let found = unsafe { library.get::<*const ()>(name.as_bytes()) };
            found.map_err(|_| format!("the CUDA driver is too old: it has no {name}"))?;
        }
        // SAFETY: the function is there; 0 is the only flag that there is.
        check("cuInit", unsafe { sys::cuInit(0) })?;
        Ok(Ready(()))
    });
    ready.clone().map_err(DeviceError::Absent)
}

/// Whether the library has a function that not every driver has.
pub(super) fn has(_: Ready, name: &str) -> bool {
    // SAFETY: the library is loaded; the pointer is looked for, not called.
    unsafe { sys::culib().get::<*const ()>(name.as_bytes()).is_ok() }
}

/// A code that is not success as `call: NAME (code)`.
pub(super) fn check(call: &str, code: CUresult) -> Result<(), String> {
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(text(call, code)) }
}

/// `call: NAME (code)`.
pub(super) fn text(call: &str, code: CUresult) -> String {
    format!("{call}: {code:?} ({})", code as u32)
}

/// Codes after which nothing else succeeds in this process: the device has gone, or a kernel has faulted
/// (CUDA Driver API, "CUresult": "the context cannot be used, must be destroyed" and the like).
pub(super) fn is_lost(code: CUresult) -> bool {
    use CUresult::*;
    matches!(
        code,
        CUDA_ERROR_DEINITIALIZED
            | CUDA_ERROR_NOT_INITIALIZED
            | CUDA_ERROR_DEVICE_UNAVAILABLE
            | CUDA_ERROR_NO_DEVICE
            | CUDA_ERROR_INVALID_DEVICE
            | CUDA_ERROR_INVALID_CONTEXT
            | CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUDA_ERROR_CONTAINED
            | CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_LAUNCH_FAILED
            | CUDA_ERROR_TENSOR_MEMORY_LEAK
            | CUDA_ERROR_EXTERNAL_DEVICE
            | CUDA_ERROR_UNKNOWN
    )
}

/// All devices, in CUDA's order.
pub(super) fn found(_: Ready) -> Result<Vec<CUdevice>, DeviceError> {
    let mut count = 0;
    // SAFETY: room for the count.
    let code = unsafe { sys::cuDeviceGetCount(&mut count) };
    check("cuDeviceGetCount", code).map_err(DeviceError::Absent)?;
    let mut devices = Vec::new();
    for ordinal in 0..count {
        let mut device = 0;
        // SAFETY: room for the device; the number is below the count.
        let code = unsafe { sys::cuDeviceGet(&mut device, ordinal) };
        check("cuDeviceGet", code).map_err(DeviceError::Absent)?;
        devices.push(device);
    }
    if devices.is_empty() {
        return Err(DeviceError::Absent("no CUDA device".into()));
    }
    Ok(devices)
}

/// What the device says of itself; 0 or empty where it does not answer.
pub(super) fn describe(_: Ready, number: u32, device: CUdevice) -> DeviceInfo {
    let attribute = |which: Attribute| {
        let mut value = 0;
        // SAFETY: room for the value; a device that the library named.
        let code = unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) };
        if code == CUresult::CUDA_SUCCESS { u32::try_from(value).unwrap_or(0) } else { 0 }
    };
    let mut name = [0u8; 256];
    // SAFETY: room for as many bytes as are passed; a device that the library named.
    let code = unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast(), 255, device) };
    let end = name.iter().position(|&b| b == 0).unwrap_or(0);
    let name = if code == CUresult::CUDA_SUCCESS { &name[..end] } else { &[] };
    let mut memory = 0usize;
    // SAFETY: room for the value; a device that the library named. 0 stays where it fails.
    let _ = unsafe { sys::cuDeviceTotalMem_v2(&mut memory, device) };
    let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    DeviceInfo {
        api: Api::Cuda,
        number,
        name: String::from_utf8_lossy(name).into_owned(),
        driver: driver(),
        memory_bytes: memory as u64,
        units: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        group_items_max: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        group_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
        is_gpu: true,
        target: format!("sm_{major}{minor}"),
    }
}

/// CUDA's version as the driver knows it, and the driver's own where the kernel module has it.
fn driver() -> String {
    let mut version = 0;
    // SAFETY: room for the value. 0 stays where it fails.
    let _ = unsafe { sys::cuDriverGetVersion(&mut version) };
    let cuda = format!("CUDA {}.{}", version / 1000, version % 1000 / 10);
    match std::fs::read_to_string("/sys/module/nvidia/version") {
        Ok(module) => format!("{cuda}, NVIDIA {}", module.trim()),
        Err(_) => cuda,
    }
}
