//! Which devices there are, and opening one.
//!
//! Looking changes nothing: no context is made, no memory taken. A machine without a library, a platform
//! or a device is a normal machine; the reason is given.

use crate::DeviceError;
use crate::cache::Cache;
use crate::cuda::{self, Cuda};
use crate::driver::{Api, DeviceInfo, Driver};
use crate::opencl::{self, OpenCl};

/// A device, or why a library has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The library.
    pub api: Api,
    /// The device; [`DeviceError::Absent`] where the library has none.
    pub found: Result<DeviceInfo, DeviceError>,
}

/// All devices: for each library its devices in their order, or the reason why it has none.
pub fn devices() -> Vec<Probe> {
    let mut probes = Vec::new();
    for (api, found) in [(Api::Cuda, cuda::devices()), (Api::OpenCl, opencl::devices())] {
        match found {
            Ok(all) => probes.extend(all.into_iter().map(|info| Probe { api, found: Ok(info) })),
            Err(reason) => probes.push(Probe { api, found: Err(reason) }),
        }
    }
    probes
}

/// Opens a device by its library and number, with the operator's cache of compiled kernels.
///
/// # Errors
/// [`DeviceError::Absent`] when there is no such device; the library's complaint when it does not open.
pub fn open(api: Api, number: u32) -> Result<Box<dyn Driver>, DeviceError> {
    open_with(api, number, Cache::from_environment())
}

/// As [`open`], with this cache.
///
/// # Errors
/// As [`open`].
pub fn open_with(api: Api, number: u32, cache: Cache) -> Result<Box<dyn Driver>, DeviceError> {
    match api {
        Api::OpenCl => Ok(Box::new(OpenCl::open(number, cache)?)),
        Api::Cuda => Ok(Box::new(Cuda::open(number, cache)?)),
    }
}
