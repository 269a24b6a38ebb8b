//! NVIDIA's run-time compiler: kernels for CUDA, with or without a GPU.
//!
//! The library is loaded at run time and may be missing, also beside a working driver. `SHADELINE_NVRTC`
//! names its file where the loader would not find it.
//!
//! Threads: any.

use std::ffi::{CString, c_char};
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use cudarc::nvrtc::sys::{self, nvrtcProgram, nvrtcResult};

use crate::DeviceError;
use crate::driver::{Program, prologue};

/// Options of every compilation.
const OPTIONS: &[&str] = &["--std=c++17"];

/// What came out of the compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// A cubin, or PTX as text that ends with a 0.
    pub code: Vec<u8>,
    /// Warnings, and what `--ptxas-options=-v` reports about registers and spills.
    pub log: String,
}

/// The compiler's version, `(13, 0)` for example; `None` without a compiler.
pub fn version() -> Option<(u32, u32)> {
    if !is_present() {
        return None;
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is there; room for both numbers.
    let code = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    (code == nvrtcResult::NVRTC_SUCCESS).then_some((major.unsigned_abs(), minor.unsigned_abs()))
}

/// Compiles to PTX for `compute_75` and the like, to a cubin for `sm_90` and the like. `options` go to the
/// compiler beside the usual ones.
///
/// # Errors
/// [`DeviceError::Absent`] without a compiler, [`DeviceError::Build`] with its log.
pub fn compile(program: &Program, target: &str, options: &[&str]) -> Result<Compiled, DeviceError> {
    if !is_present() {
        return Err(DeviceError::Absent("no NVRTC library (libnvrtc.so.13)".into()));
    }
    let failed = |log: String| DeviceError::Build { name: program.name.clone(), log };
    let c_text = |text: &str| CString::new(text).map_err(|_| failed(format!("a 0 in {text:?}")));
    let architecture = format!("--gpu-architecture={target}");
    let all = [&[architecture.as_str()], OPTIONS, options].concat();
    let all = all.into_iter().map(c_text).collect::<Result<Vec<CString>, _>>()?;

    let job = Job::new(&c_text(&(prologue(program) + &program.source))?, &c_text(&program.name)?)
        .map_err(failed)?;
    let compiled = job.compile(&all);
    let log = job.log();
    compiled.map_err(|text| failed(errors_of(&log).unwrap_or_else(|| format!("{text}\n{log}"))))?;
    let code = if target.starts_with("sm_") { job.cubin() } else { job.ptx() };
    Ok(Compiled { code: code.map_err(failed)?, log })
}

/// The errors of a log in one form, `FILE:LINE: message`, a line each; `None` if it has none of that form.
fn errors_of(log: &str) -> Option<String> {
    let of_line = |line: &str| {
        let (place, message) = line.split_once("): error: ")?;
        let (file, line) = place.rsplit_once('(')?;
        Some(format!("{}:{}: {message}", file.trim(), line.parse::<u32>().ok()?))
    };
    let all: Vec<String> = log.lines().filter_map(of_line).collect();
    (!all.is_empty()).then(|| all.join("\n"))
}

/// What to compile for on a device `sm_…`: its own code if the compiler knows the device, else PTX for the
/// newest architecture before it, which the driver translates.
pub(crate) fn target_for(device: &str) -> String {
    let number = |name: &str| name.trim_start_matches("sm_").parse::<i32>().unwrap_or(0);
    let wanted = number(device);
    let known = architectures();
    if known.contains(&wanted) {
        return device.to_owned();
    }
    let before = known.into_iter().filter(|a| *a <= wanted).max();
    before.map_or_else(|| device.to_owned(), |a| format!("compute_{a}"))
}

/// What the key of a cached kernel must say of the compiler.
pub(crate) fn identity() -> Option<String> {
    version().map(|(major, minor)| format!("nvrtc {major}.{minor} {OPTIONS:?}"))
}

fn architectures() -> Vec<i32> {
    let mut count = 0;
    if !is_present() {
        return Vec::new();
    }
    // SAFETY: the library is there; room for the count.
    let code = unsafe { sys::nvrtcGetNumSupportedArchs(&mut count) };
    let mut all = vec![0; usize::try_from(count).unwrap_or(0)];
    if code != nvrtcResult::NVRTC_SUCCESS || all.is_empty() {
        return Vec::new();
    }
    // SAFETY: room for as many numbers as the library said.
    let code = unsafe { sys::nvrtcGetSupportedArchs(all.as_mut_ptr()) };
    if code == nvrtcResult::NVRTC_SUCCESS { all } else { Vec::new() }
}

/// Whether the library is there with all functions that are called; `cudarc` would panic otherwise.
fn is_present() -> bool {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    *PRESENT.get_or_init(|| {
        let named = std::env::var_os("SHADELINE_NVRTC").filter(|path| !path.is_empty());
        if named.is_some_and(|path| !load_for_good(Path::new(&path))) {
            return false;
        }
        // SAFETY: runs the initialisers of NVIDIA's compiler, which it offers to any program.
        if !unsafe { sys::is_culib_present() } {
            return false;
        }
        // SAFETY: as above; it was just found, so that this does not panic.
        let library = unsafe { sys::culib() };
        let names = [
            "nvrtcVersion",
            "nvrtcCreateProgram",
            "nvrtcDestroyProgram",
            "nvrtcCompileProgram",
            "nvrtcGetProgramLogSize",
            "nvrtcGetProgramLog",
            "nvrtcGetPTXSize",
            "nvrtcGetPTX",
            "nvrtcGetCUBINSize",
            "nvrtcGetCUBIN",
            "nvrtcGetNumSupportedArchs",
            "nvrtcGetSupportedArchs",
        ];
        // SAFETY: the pointers are looked for, not called.
        names.iter().all(|name| unsafe { library.get::<*const ()>(name.as_bytes()).is_ok() })
    })
}

/// Loads the library that the operator chose, and its part that it looks for by name only. The loader then
/// finds both by the names that `cudarc` and the library ask for.
fn load_for_good(path: &Path) -> bool {
    let mut wanted = vec![path.to_owned()];
    let beside = path.parent().and_then(|folder| folder.read_dir().ok());
    for file in beside.into_iter().flatten().flatten() {
        if file.file_name().to_string_lossy().starts_with("libnvrtc-builtins.so") {
            wanted.insert(0, file.path());
        }
    }
    wanted.into_iter().all(|file| {
        // SAFETY: runs the initialisers of NVIDIA's compiler, which it offers to any program.
        let library = unsafe { libloading::Library::new(file) };
        library.map(std::mem::forget).is_ok()
    })
}

/// A program in the compiler's hands.
struct Job(nvrtcProgram);

impl Job {
    fn new(source: &CString, name: &CString) -> Result<Self, String> {
        let mut program = ptr::null_mut();
        // SAFETY: C strings, which the call copies; no headers.
        let code = unsafe {
            let none = ptr::null();
            let (source, name) = (source.as_ptr(), name.as_ptr());
            sys::nvrtcCreateProgram(&mut program, source, name, 0, none, none)
        };
        check("nvrtcCreateProgram", code)?;
        Ok(Self(program))
    }

    fn compile(&self, options: &[CString]) -> Result<(), String> {
        let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        let count = i32::try_from(options.len()).unwrap_or(0);
        // SAFETY: a program of ours; `count` C strings that outlive the call.
        let code = unsafe { sys::nvrtcCompileProgram(self.0, count, options.as_ptr()) };
        check("nvrtcCompileProgram", code)
    }

    fn log(&self) -> String {
        let bytes =
            self.get("nvrtcGetProgramLog", sys::nvrtcGetProgramLogSize, sys::nvrtcGetProgramLog);
        let bytes = bytes.unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').trim().to_owned()
    }

    fn ptx(&self) -> Result<Vec<u8>, String> {
        self.get("nvrtcGetPTX", sys::nvrtcGetPTXSize, sys::nvrtcGetPTX)
    }

    fn cubin(&self) -> Result<Vec<u8>, String> {
        self.get("nvrtcGetCUBIN", sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN)
    }

    /// What a pair of functions gives: its size, then itself.
    fn get(
        &self,
        call: &str,
        size: unsafe fn(nvrtcProgram, *mut usize) -> nvrtcResult,
        get: unsafe fn(nvrtcProgram, *mut c_char) -> nvrtcResult,
    ) -> Result<Vec<u8>, String> {
        let mut bytes = 0usize;
        // SAFETY: a program of ours; room for the size.
        check(call, unsafe { size(self.0, &mut bytes) })?;
        let mut all = vec![0u8; bytes];
        // SAFETY: a program of ours; room for as many bytes as the library said.
        check(call, unsafe { get(self.0, all.as_mut_ptr().cast()) })?;
        Ok(all)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once. The code says only whether it was a program.
        let _ = unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

fn check(call: &str, code: nvrtcResult) -> Result<(), String> {
    if code == nvrtcResult::NVRTC_SUCCESS {
        return Ok(());
    }
    Err(format!("{call}: {code:?} ({})", code as u32))
}

#[cfg(test)]
mod tests {
    use super::errors_of;

    #[test]
    fn errors_have_one_form() {
        let log = "own.k(4): error: class \"packet_t\" has no member \"tll\"\n      return packet->tll;\n             ^\n\n1 error detected.\n";
        let expected = "own.k:4: class \"packet_t\" has no member \"tll\"";
        assert_eq!(errors_of(log).as_deref(), Some(expected));
        assert_eq!(errors_of("NVRTC_ERROR\n"), None);
    }
}
