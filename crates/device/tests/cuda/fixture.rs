//! Each case runs in a process whose loader finds the fake library first.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use device::cache::Cache;
use device::driver::{Api, Arguments, Driver, Memory, Program, Queue};
use device::probe;

pub(crate) const LIMIT: Duration = Duration::from_secs(10);
const MARK: &str = "SHADELINE_FAKE_CUDA";

/// Runs `body` on the fake library, in a process of its own. `name` is the test's path. There is no
/// compiler: programs bring what the fake takes.
pub(crate) fn on_the_fake(name: &str, body: fn()) {
    on_the_fake_beside(name, Path::new("/no/such/file"), body);
}

/// The same beside a compiler.
pub(crate) fn on_the_fake_beside(name: &str, nvrtc: &Path, body: fn()) {
    if std::env::var_os(MARK).is_some() {
        return body();
    }
    let Some(folder) = fake() else { return };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command.env(MARK, "1").env("LD_LIBRARY_PATH", folder).env("SHADELINE_CACHE", "");
    command.env("SHADELINE_NVRTC", nvrtc);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}\n{errors}", output.status);
    assert!(text.contains("1 passed"), "the case ran: {text}");
}

/// The folder of the fake library, compiled once; none, and the test is skipped, without a compiler.
fn fake() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let rustc = testkit::require_tool("rustc")?;
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fake-cuda");
        std::fs::create_dir_all(&folder).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda/fake/libcuda.rs");
        let made = folder.join(format!("libcuda.{}", std::process::id()));
        let mut command = Command::new(rustc);
        command.args(["--edition=2024", "--crate-type=cdylib", "-Copt-level=1", "-o"]);
        let output = command.arg(&made).arg(source).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::rename(made, folder.join("libcuda.so")).unwrap();
        Some(folder)
    });
    folder.as_deref()
}

/// The fake device.
pub(crate) fn cuda() -> Box<dyn Driver> {
    let driver = probe::open_with(Api::Cuda, 0, Cache::none()).unwrap();
    assert_eq!(driver.info().name, "Fake GPU");
    driver
}

fn fake_library() -> libloading::Library {
    // SAFETY: the library is loaded already; this is a further handle.
    unsafe { libloading::Library::new("libcuda.so") }.unwrap()
}

/// The next call of this name answers with this code.
pub(crate) fn fail(call: &str, code: u32) {
    let (library, call) = (fake_library(), CString::new(call).unwrap());
    // SAFETY: the signature is the fake's.
    unsafe {
        let fail = library.get::<unsafe extern "C" fn(*const std::ffi::c_char, u32)>("fake_fail");
        fail.unwrap()(call.as_ptr(), code);
    }
}

/// Objects that nobody has given back to the fake.
pub(crate) fn live() -> u64 {
    let library = fake_library();
    // SAFETY: the signature is the fake's.
    unsafe { library.get::<extern "C" fn() -> u64>("fake_live").unwrap()() }
}

/// A program that the fake takes.
pub(crate) fn program() -> Program {
    let (name, source) = ("test".into(), "nothing reads this".into());
    Program { name, source, defines: Vec::new(), ptx: Some("// PTX for the fake") }
}

pub(crate) fn all(memory: Memory, job: u32) -> Arguments {
    Arguments { arena: memory, payload: memory, tables: memory, state: memory, job }
}

/// Memory that holds these words.
pub(crate) fn words(driver: &mut dyn Driver, queue: Queue, words: &[u32]) -> Memory {
    let memory = driver.allocate(words.len() * 4).unwrap();
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    // SAFETY: waited for below.
    unsafe { driver.upload(queue, &raw const bytes[..], memory, 0) }.unwrap();
    let event = driver.event(queue).unwrap();
    assert!(driver.wait(event, LIMIT).unwrap());
    memory
}

/// Downloads words and waits: everything enqueued before is done then.
pub(crate) fn read(driver: &mut dyn Driver, queue: Queue, from: Memory, words: usize) -> Vec<u32> {
    let mut bytes = vec![0u8; words * 4];
    // SAFETY: waited for below.
    unsafe { driver.download(queue, from, 0, &raw mut bytes[..]) }.unwrap();
    let event = driver.event(queue).unwrap();
    assert!(driver.wait(event, LIMIT).unwrap());
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}
