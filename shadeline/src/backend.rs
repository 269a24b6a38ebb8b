//! From `--backend` and `[engine]` to devices that are ready for the engine.

use std::str::FromStr;

use control::config::{Config, EngineBackend, Offload, System};
use controlplane::{Tables, TablesImages};
use device::accelerator::{Packing, Scheduling};
use device::driver::Driver;
use device::{Backend, Cost, DeviceError, FaultPlan, accelerator, probe};
use engine::{DeviceKind, DeviceSpec, Policy};

use crate::failure::Failure;
use crate::programs::kernel_files;

/// Rows of a job at most.
const JOB_ROWS: usize = 8192;

/// Devices of a data path at most, as in `[engine] devices`.
const DEVICES_MAX: usize = 16;

/// What `run --backend` takes: one backend, or devices with commas between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backends(Vec<Backend>);

impl FromStr for Backends {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = |text: &str| text.parse::<Backend>().map_err(|error| error.to_string());
        let all = text.split(',').map(read).collect::<Result<Vec<_>, _>>()?;
        if all.len() > DEVICES_MAX {
            return Err(format!("{} devices: expected at most {DEVICES_MAX}", all.len()));
        }
        let no_device = |backend: &&Backend| matches!(backend, Backend::Auto | Backend::Cpu);
        match all.iter().find(no_device) {
            Some(other) if all.len() > 1 => Err(format!(
                "`{other}` is not a device: expected sim, opencl:N or cuda:N, separated by commas"
            )),
            _ => Ok(Self(all)),
        }
    }
}

impl Backends {
    /// The workers of a live data path. Where the file leaves their number open and a device is named, a core is left to
    /// the master and the device's driver: workers that fill every core make jobs wait for a turn of the scheduler, and
    /// with them the packets (`bench delay`). Each device has a worker all the same.
    pub(crate) fn workers(&self, system: &System) -> usize {
        let names_device = |backend: &Backend| !matches!(backend, Backend::Auto | Backend::Cpu);
        let all = system.workers.max(1);
        match self.0.iter().filter(|backend| names_device(backend)).count() {
            0 => all,
            _ if system.has_workers || !system.cpus.is_empty() => all,
            devices => all.saturating_sub(1).max(devices).min(all),
        }
    }
}

impl From<Backend> for Backends {
    fn from(backend: Backend) -> Self {
        Self(vec![backend])
    }
}

/// What the operator chose: the command line's word over the file's.
pub(crate) fn chosen(config: &Config, option: Option<Backends>) -> Backends {
    let of_file = |backend: EngineBackend| match backend {
        EngineBackend::Auto => Backend::Auto,
        EngineBackend::Cpu => Backend::Cpu,
        EngineBackend::Sim => Backend::Sim,
        EngineBackend::OpenCl(number) => Backend::OpenCl(number),
        EngineBackend::Cuda(number) => Backend::Cuda(number),
    };
    let engine = &config.engine;
    option.unwrap_or_else(|| match engine.devices.as_slice() {
        [] => of_file(engine.backend).into(),
        devices => Backends(devices.iter().copied().map(of_file).collect()),
    })
}

/// The devices for a data path, in the order in which they were named; none where the CPU shades. `auto` takes a GPU
/// that answers its self-test and is silent where there is none; a device that was named must be there. `images` makes
/// one more view of the tables for a device.
///
/// # Errors
/// A device that was named and is absent, or does not answer rightly.
pub(crate) fn open(
    config: &Config,
    Backends(all): &Backends,
    images: impl Fn() -> TablesImages,
) -> Result<Vec<DeviceSpec<Tables>>, Failure> {
    let mut devices = Vec::new();
    for &backend in all {
        devices.extend(open_one(config, backend, &images)?);
    }
    Ok(devices)
}

fn open_one(
    config: &Config,
    backend: Backend,
    images: impl Fn() -> TablesImages,
) -> Result<Option<DeviceSpec<Tables>>, Failure> {
    let engine = &config.engine;
    let policy = match engine.offload {
        Some(Offload::Auto) => Policy::Auto,
        Some(Offload::Always) => Policy::Device,
        None if backend == Backend::Auto => Policy::Auto,
        None => Policy::Device,
    };
    let kind = match backend {
        Backend::Cpu => return Ok(None),
        Backend::Sim => DeviceKind::Simulated {
            cost: Cost { launch: engine.sim.launch, row: engine.sim.packet },
            faults: FaultPlan::default(),
        },
        Backend::Auto | Backend::OpenCl(_) | Backend::Cuda(_) => {
            let Some(driver) = driver(backend)? else { return Ok(None) };
            tracing::info!("device: {}", driver.info().name);
            let patience = engine.device_timeout;
            let options = accelerator::Options {
                patience,
                packing: Packing::Measured,
                scheduling: Scheduling::Measured,
                ..accelerator::Options::default()
            };
            let tables = Box::new(images());
            DeviceKind::Driver { driver, tables, options }
        }
    };
    Ok(Some(DeviceSpec { kind, slots: engine.jobs_in_flight, rows: JOB_ROWS, policy }))
}

/// The driver that a backend means, its self-test passed; `None` for the CPU.
pub(crate) fn driver(backend: Backend) -> Result<Option<Box<dyn Driver>>, Failure> {
    match backend {
        Backend::Cpu | Backend::Sim => Ok(None),
        Backend::Auto => Ok(gpu()),
        Backend::OpenCl(_) | Backend::Cuda(_) => {
            let (api, number) = backend.device().unwrap_or((device::driver::Api::OpenCl, 0));
            let failed =
                |error: DeviceError| Failure::other(format!("--backend {backend}: {error}"));
            let mut driver = probe::open(api, number).map_err(failed)?;
            device::selftest::run(&mut *driver, &kernel_files()).map_err(failed)?;
            Ok(Some(driver))
        }
    }
}

/// The first GPU that answers its self-test.
fn gpu() -> Option<Box<dyn Driver>> {
    for found in probe::devices().into_iter().filter_map(|probe| probe.found.ok()) {
        if !found.is_gpu {
            continue;
        }
        let opened = probe::open(found.api, found.number).and_then(|mut driver| {
            device::selftest::run(&mut *driver, &kernel_files()).map(|()| driver)
        });
        match opened {
            Ok(driver) => return Some(driver),
            Err(error) => tracing::warn!("device {}: {error}; not used", found.name),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_device_leaves_a_core_to_its_master() {
        let (config, _) = control::config::parse("[port.a]", &crate::pipelines::known()).unwrap();
        let workers =
            |text: &str, system: System| text.parse::<Backends>().unwrap().workers(&system);
        let open = |workers| System { workers, has_workers: false, ..config.system.clone() };
        assert_eq!(workers("cpu", open(4)), 4);
        assert_eq!(workers("auto", open(4)), 4);
        assert_eq!(workers("sim", open(4)), 3);
        assert_eq!(workers("sim", open(1)), 1);
        assert_eq!(workers("sim,sim,sim,sim", open(4)), 4, "a worker for each device");
        assert_eq!(workers("sim,sim,sim", open(2)), 2);
        assert_eq!(workers("sim", System { has_workers: true, ..open(4) }), 4);
        assert_eq!(workers("sim", System { cpus: vec![0, 1, 2, 3], ..open(4) }), 4);
    }

    #[test]
    fn a_list_names_devices_alone() {
        let read = |text: &str| text.parse::<Backends>();
        assert_eq!(read("auto"), Ok(Backends(vec![Backend::Auto])));
        assert_eq!(read("opencl:0,opencl,sim"), {
            let opencl = Backend::OpenCl(0);
            Ok(Backends(vec![opencl, opencl, Backend::Sim]))
        });
        for (text, expected) in [
            ("sim,", "`` is not a backend"),
            ("sim,cdua:1", "`cdua:1` is not a backend: expected auto, cpu"),
            ("sim,cpu", "`cpu` is not a device: expected sim, opencl:N or cuda:N"),
            ("auto,auto", "`auto` is not a device"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        let many = |n: usize| read(&vec!["sim"; n].join(","));
        assert!(many(DEVICES_MAX).is_ok());
        assert_eq!(many(17), Err("17 devices: expected at most 16".into()));
    }
}
