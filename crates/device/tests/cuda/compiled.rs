//! From source through NVIDIA's real compiler and the cache into the driver.

use device::cache::Cache;
use device::driver::{Api, Program};
use device::{DeviceError, measure, probe};

use crate::common::{NO_NVRTC, nvrtc_file};
use crate::fixture::on_the_fake_beside;

#[test]
fn a_program_is_compiled_for_the_device_once_and_then_found() {
    let Some(nvrtc) = nvrtc_file() else {
        testkit::skip(NO_NVRTC);
        return;
    };
    let name = "compiled::a_program_is_compiled_for_the_device_once_and_then_found";
    on_the_fake_beside(name, &nvrtc, || {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        for (hits, misses) in [(0, 1), (1, 1), (2, 1)] {
            let mut driver = probe::open_with(Api::Cuda, 0, cache.clone()).unwrap();
            driver.build(&measure::program(), &["empty"]).unwrap();
            assert_eq!((cache.hits(), cache.misses()), (hits, misses));
        }
        let entry = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let bytes = std::fs::read(entry).unwrap();
        let key = String::from_utf8_lossy(&bytes[43..600]).into_owned();
        for part in ["Cuda", "target sm_90", "driver CUDA 13.0", "nvrtc 13.", "options sm_90"] {
            assert!(key.contains(part), "{part}: {key}");
        }
        let cubin = b"\x7fELF";
        assert!(bytes.windows(cubin.len()).any(|w| w == cubin), "code for the device, not PTX");

        let mut driver = probe::open_with(Api::Cuda, 0, cache.clone()).unwrap();
        let bad = Program { source: "nonsense".into(), ..measure::program() };
        let error = driver.build(&bad, &["empty"]).unwrap_err();
        assert!(
            matches!(&error, DeviceError::Build { log, .. } if log.starts_with("measure:1: ")),
            "{error}"
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was kept of it");
    });
}
