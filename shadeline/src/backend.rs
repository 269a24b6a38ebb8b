//! From `--backend` and `[engine]` to a device that is ready for the engine.

use apps::tables::{Tables, TablesImages, TablesPatch};
use control::config::{Config, EngineBackend, Offload};
use device::driver::Driver;
use device::{Backend, Cost, DeviceError, FaultPlan, accelerator, probe};
use engine::{DeviceKind, DeviceSpec, Policy};
use lookup::versions::Changes;

use crate::failure::Failure;

/// Rows of a job at most.
const JOB_ROWS: usize = 8192;

/// What the operator chose: the command line's word over the file's.
pub(crate) fn chosen(config: &Config, option: Option<Backend>) -> Backend {
    option.unwrap_or(match config.engine.backend {
        EngineBackend::Auto => Backend::Auto,
        EngineBackend::Cpu => Backend::Cpu,
        EngineBackend::Sim => Backend::Sim,
        EngineBackend::OpenCl(number) => Backend::OpenCl(number),
        EngineBackend::Cuda(number) => Backend::Cuda(number),
    })
}

/// The device for a data path; `None` where the CPU shades. `auto` takes a GPU that answers its
/// self-test and is silent where there is none; a device that was named must be there.
///
/// # Errors
/// A device that was named and is absent, or does not answer rightly.
pub(crate) fn open(
    config: &Config,
    backend: Backend,
    changes: Changes<TablesPatch>,
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
            let options = accelerator::Options { patience, ..accelerator::Options::default() };
            DeviceKind::Driver { driver, tables: Box::new(TablesImages(changes)), options }
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
            device::selftest::run(&mut *driver).map_err(failed)?;
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
        let opened = probe::open(found.api, found.number)
            .and_then(|mut driver| device::selftest::run(&mut *driver).map(|()| driver));
        match opened {
            Ok(driver) => return Some(driver),
            Err(error) => tracing::warn!("device {}: {error}; not used", found.name),
        }
    }
    None
}
