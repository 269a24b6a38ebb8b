//! A device and small programs for the tests.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use device::cache::Cache;
use device::driver::{Api, Arguments, Driver, Memory, Program, Queue};
use device::{Backend, DeviceError, probe};

/// Longer than anything here takes; PoCL compiles a kernel at its first launch.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// The device that the tests run on: the first of OpenCL, unless another one is named.
pub(crate) fn device_of_tests() -> (Api, u32) {
    let named = testkit::named_backend().map(|name| name.parse::<Backend>().expect("a backend"));
    named.and_then(Backend::device).unwrap_or((Api::OpenCl, 0))
}

/// PoCL's compiled kernels go into a folder of this process; those of processes that have ended go away.
pub(crate) fn own_cache() {
    static MADE: OnceLock<()> = OnceLock::new();
    MADE.get_or_init(|| {
        if std::env::var_os("POCL_CACHE_DIR").is_some() {
            return;
        }
        let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pocl");
        let own = base.join(std::process::id().to_string());
        fs::create_dir_all(&own).expect("a folder for PoCL");
        for folder in fs::read_dir(&base).into_iter().flatten().flatten() {
            if !Path::new("/proc").join(folder.file_name()).exists() {
                let _ = fs::remove_dir_all(folder.path()); // another process may be at it, too
            }
        }
        // SAFETY: every test calls this first, and the once lock lets none on before it is done; no thread
        // reads the environment until then.
        unsafe { std::env::set_var("POCL_CACHE_DIR", own) };
    });
}

/// The first OpenCL device; none, and the test is skipped, where there is none.
pub(crate) fn opencl() -> Option<Box<dyn Driver>> {
    opencl_with(Cache::none())
}

/// The same with a cache.
pub(crate) fn opencl_with(cache: Cache) -> Option<Box<dyn Driver>> {
    own_cache();
    let (api, number) = device_of_tests();
    match probe::open_with(api, number, cache) {
        Ok(driver) => Some(driver),
        Err(DeviceError::Absent(reason)) if testkit::named_backend().is_none() => {
            testkit::skip(&format!("no OpenCL platform ({reason})"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A program in OpenCL C.
pub(crate) fn program(source: &str) -> Program {
    let source = source.replace(
        "ARGUMENTS",
        "__global uint *arena, __global uint *payload, __global const uint *tables, __global uint *state, uint job",
    );
    Program { name: "test".into(), source, defines: Vec::new(), ptx: None }
}

/// The same memory for all arguments.
pub(crate) fn all(memory: Memory, job: u32) -> Arguments {
    Arguments { arena: memory, payload: memory, tables: memory, state: memory, job }
}

/// Uploads words and waits.
pub(crate) fn upload(driver: &mut dyn Driver, queue: Queue, words: &[u32], to: Memory) {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    // SAFETY: waited for below.
    unsafe { driver.upload(queue, &raw const bytes[..], to, 0).unwrap() };
    let event = driver.event(queue).unwrap();
    assert!(driver.wait(event, LIMIT).unwrap());
}

/// Downloads words and waits: everything enqueued before is done then.
pub(crate) fn download(
    driver: &mut dyn Driver,
    queue: Queue,
    from: Memory,
    words: usize,
) -> Vec<u32> {
    let mut bytes = vec![0u8; words * 4];
    // SAFETY: waited for below.
    unsafe { driver.download(queue, from, 0, &raw mut bytes[..]).unwrap() };
    let event = driver.event(queue).unwrap();
    assert!(driver.wait(event, LIMIT).unwrap());
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}
