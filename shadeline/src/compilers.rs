//! What compilers do to the process that they are in.
//!
//! They write to standard error by themselves: clang in PoCL ends the errors of a source with a line such as "1 error generated.",
//! beside the log that it returns. And PoCL runs no kernel meanwhile, so another process compiles what a running instance needs
//! ([`device::apart`]):
//!
//! ```text
//!  control loop ─ apart ─▶ shadeline compile ─▶ folders of compiled kernels
//!       └────────────────── build ◀──────────────────┘
//! ```

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use controlplane::Tables;
use device::apart::{self, Kernels};
use device::driver::{Api, Program};
use device::probe;
use engine::{DeviceKind, DeviceSpec};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::stdio::dup2_stderr;

use crate::failure::Failure;

/// Calls `run`, then writes what came to standard error meanwhile, but the counts of a compiler. Only for a process whose other
/// threads write nothing that must be seen at once.
pub(crate) fn without_counts<T>(run: impl FnOnce() -> T) -> T {
    let _held = Held::new();
    run()
}

/// How long a process may compile; this one does it then.
const PATIENCE: Duration = Duration::from_secs(120);

/// Has the programs compiled by a process of its own, where they would stop the kernels of this one. If that fails, this one
/// compiles them.
pub(crate) fn apart(devices: &[DeviceSpec<Tables>], programs: &[Kernels]) {
    let mut places: Vec<(Api, u32)> = Vec::new();
    for device in devices {
        let DeviceKind::Driver { driver, .. } = &device.kind else { continue };
        places.extend(apart::place(&**driver).filter(|place| !places.contains(place)));
    }
    if programs.is_empty() {
        return;
    }
    for (_, number) in places.into_iter().filter(|(api, _)| *api == Api::OpenCl) {
        match compiled(number, programs) {
            Ok(()) => tracing::info!("kernels compiled while packets flow"),
            Err(error) => tracing::warn!("kernels are compiled while packets wait: {error}"),
        }
    }
}

fn compiled(number: u32, programs: &[Kernels]) -> std::io::Result<()> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("compile").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = command.spawn()?;
    let text = serde_json::to_vec(&(number, programs.iter().map(Sent::of).collect::<Vec<_>>()))?;
    // It ends without its input, and says so by its status.
    let _ = process.stdin.take().map(|mut input| input.write_all(&text));
    let begin = Instant::now();
    loop {
        match process.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(std::io::Error::other(status.to_string())),
            None if begin.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(10)),
            None => {
                process.kill()?;
                process.wait()?;
                return Err(std::io::Error::other("it does not end"));
            }
        }
    }
}

/// A program on its way to the process that compiles it.
#[derive(serde::Serialize, serde::Deserialize)]
struct Sent {
    name: String,
    source: String,
    defines: Vec<(String, String)>,
    kernels: Vec<(String, u32)>,
}

impl Sent {
    fn of((program, kernels): &Kernels) -> Self {
        let Program { name, source, defines, .. } = program.clone();
        Self { name, source, defines, kernels: kernels.clone() }
    }

    fn kernels(self) -> Kernels {
        let Self { name, source, defines, kernels } = self;
        (Program { name, source, defines, ptx: None }, kernels)
    }
}

/// That process.
pub(crate) fn compile() -> Result<(), Failure> {
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text).map_err(Failure::other)?;
    let (number, programs): (u32, Vec<Sent>) =
        serde_json::from_slice(&text).map_err(Failure::other)?;
    let mut driver = probe::open(Api::OpenCl, number).map_err(Failure::other)?;
    let programs: Vec<Kernels> = programs.into_iter().map(Sent::kernels).collect();
    apart::compile(&mut *driver, &programs, PATIENCE).map_err(Failure::other)
}

/// Standard error, held back until this is dropped.
struct Held {
    stderr: OwnedFd,
    lines: File,
}

impl Held {
    /// `None` if it cannot be held back: then everything is seen.
    fn new() -> Option<Held> {
        let stderr = std::io::stderr().as_fd().try_clone_to_owned().ok()?;
        let lines = File::from(memfd_create("stderr", MemfdFlags::CLOEXEC).ok()?);
        dup2_stderr(&lines).ok()?;
        Some(Held { stderr, lines })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut text = Vec::new();
        let is_back = dup2_stderr(&self.stderr).is_ok();
        if is_back && self.lines.rewind().is_ok() && self.lines.read_to_end(&mut text).is_ok() {
            for line in text.split_inclusive(|byte| *byte == b'\n') {
                if !is_count(&String::from_utf8_lossy(line)) {
                    _ = std::io::stderr().write_all(line);
                }
            }
        }
    }
}

/// Whether a line is clang's count of diagnostics.
fn is_count(line: &str) -> bool {
    let Some(counts) = line.trim_end().strip_suffix(" generated.") else { return false };
    counts.split(" and ").all(|count| {
        count.split_once(' ').is_some_and(|(number, what)| {
            number.parse::<u32>().is_ok()
                && matches!(what, "error" | "errors" | "warning" | "warnings")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::is_count;

    #[test]
    fn counts_are_no_messages() {
        for line in
            ["1 error generated.\n", "2 errors generated.", "1 warning and 3 errors generated.\n"]
        {
            assert!(is_count(line), "{line}");
        }
        for line in ["", "own.k:3:12: error: none generated.", "generated.", "1 file generated.\n"]
        {
            assert!(!is_count(line), "{line}");
        }
    }
}
