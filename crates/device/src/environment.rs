//! Variables of the environment by which drivers find their folders.

use std::ffi::OsStr;
use std::io;

/// Sets variables for the drivers of this process: `HOME`, `XDG_CACHE_HOME`, `POCL_CACHE_DIR` and the like.
///
/// # Errors
/// The process has more than one thread, or their number is unknown: another one might read the environment meanwhile.
pub fn set<V: AsRef<OsStr>>(variables: &[(&str, V)]) -> io::Result<()> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        let message = format!("the environment of a process with {threads} threads cannot change");
        return Err(io::Error::other(message));
    }
    for (name, value) in variables {
        // SAFETY: this is the only thread, so none reads or writes the environment, and none can be started by another.
        unsafe { std::env::set_var(name, value) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_keeps_its_environment() {
        // The harness of the tests is one more.
        let before = std::env::var_os("SHADELINE_TEST_SET");
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || stopped.recv());
            assert!(set(&[("SHADELINE_TEST_SET", "1")]).is_err());
            drop(stop);
        });
        assert_eq!(std::env::var_os("SHADELINE_TEST_SET"), before);
    }
}
