//! What compilers in this process write to standard error by themselves: clang in PoCL ends the errors of a source with a line such
//! as "1 error generated.", beside the log that it returns.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::stdio::dup2_stderr;

/// Calls `run`, then writes what came to standard error meanwhile, but the counts of a compiler. Only for a process whose other
/// threads write nothing that must be seen at once.
pub(crate) fn without_counts<T>(run: impl FnOnce() -> T) -> T {
    let _held = Held::new();
    run()
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
