//! Where NVIDIA's compiler may lie.

use std::path::PathBuf;

/// `SHADELINE_NVRTC`, else the library of the package `nvidia-cuda-nvrtc` in `.venv`.
pub(crate) fn nvrtc_file() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("SHADELINE_NVRTC") {
        return Some(named.into());
    }
    let versions = std::fs::read_dir(testkit::repository().join(".venv/lib")).ok()?;
    let file = "site-packages/nvidia/cu13/lib/libnvrtc.so.13";
    versions.flatten().map(|version| version.path().join(file)).find(|path| path.is_file())
}

/// Why a test that needs the compiler is skipped.
pub(crate) const NO_NVRTC: &str = "nvidia-cuda-nvrtc is not in .venv (`cargo xtask setup`)";
