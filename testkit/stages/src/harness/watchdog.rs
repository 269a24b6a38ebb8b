//! A limit of time for what may hang, and a picture of all threads where it does.

use std::fmt::Write;
use std::fs;
use std::panic::resume_unwind;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long the debugger may take to show the threads' calls.
const DEBUGGER_LIMIT: Duration = Duration::from_secs(60);

/// Runs `what` on a thread of its own and gives its result. After a sixth of `limit` it prints all threads, and goes
/// on: what comes to its end then was not a hang, but a stall.
///
/// # Panics
/// With the panic of `what`; and when it has not ended within `limit`, after all threads, and what `more` says, were
/// printed. What hangs is left behind.
pub fn within<R: Send + 'static>(
    limit: Duration,
    name: &str,
    more: impl Fn() -> String,
    what: impl FnOnce() -> R + Send + 'static,
) -> R {
    let (done, ended) = channel();
    let run = move || {
        let result = what();
        // The receiver is gone only after the limit: then the result is not needed.
        let _ = done.send(result);
    };
    let thread = std::thread::Builder::new().name("bed".into()).spawn(run);
    let thread = thread.unwrap_or_else(|error| panic!("{name}: no thread: {error}"));
    let early = limit / 6;
    let result = ended.recv_timeout(early).or_else(|error| match error {
        RecvTimeoutError::Timeout => {
            eprintln!("{name}: not ended after {} s\n{}{}", early.as_secs(), more(), threads());
            ended.recv_timeout(limit - early)
        }
        error => Err(error),
    });
    match result {
        Ok(result) => result,
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => resume_unwind(panic),
            Ok(()) => unreachable!("a thread that ends well sends its result"),
        },
        Err(RecvTimeoutError::Timeout) => {
            eprintln!("{name}: it hangs\n{}{}", more(), threads());
            panic!("{name}: it has not ended within {} s", limit.as_secs());
        }
    }
}

/// All threads of this process: name, state, the kernel function in which each waits, the time that it ran in the last
/// fifth of a second; and the calls of each, where `gdb` may look.
pub fn threads() -> String {
    let ids = || {
        let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        tasks.filter_map(|task| task.file_name().to_str().map(str::to_owned))
    };
    let before: Vec<_> = ids().map(|id| (ticks(&id), id)).collect();
    std::thread::sleep(Duration::from_millis(200));
    let mut text = String::from("thread     ran ms  state  waits in              name\n");
    for (ticks_before, id) in before {
        let of = |file: &str| {
            let text = fs::read_to_string(format!("/proc/self/task/{id}/{file}"));
            text.unwrap_or_default().trim().to_owned()
        };
        // A tick is 10 ms on every Linux of ours.
        let ran = 10 * ticks(&id).saturating_sub(ticks_before);
        let state = after_name(&of("stat")).chars().next().unwrap_or('?');
        let line =
            writeln!(text, "{id:>8} {ran:>8}  {state:<5}  {:<20}  {}", of("wchan"), of("comm"));
        line.unwrap_or_default(); // writing to a String cannot fail
    }
    text + &calls()
}

/// What is behind the name in `stat`: the name may hold spaces.
fn after_name(stat: &str) -> &str {
    stat.rsplit_once(") ").map_or("", |(_, rest)| rest)
}

/// The clock ticks that a thread has run.
fn ticks(id: &str) -> u64 {
    let stat = fs::read_to_string(format!("/proc/self/task/{id}/stat")).unwrap_or_default();
    let fields: Vec<&str> = after_name(&stat).split(' ').collect();
    // Times in user and in kernel mode, the 14th and 15th fields, the name being the second.
    let field = |at: usize| fields.get(at).and_then(|n| n.parse().ok()).unwrap_or(0);
    field(11) + field(12)
}

/// What a debugger shows of the threads' calls; a line saying why not, where there is none.
fn calls() -> String {
    let id = std::process::id().to_string();
    let arguments = ["-p", &id, "-batch", "-nx", "-ex", "thread apply all backtrace 24"];
    let mut command = Command::new("gdb");
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null());
    let path = std::env::temp_dir().join(format!("threads-{id}"));
    let Ok(out) = fs::File::create(&path) else { return String::new() };
    let mut debugger = match command.stdout(out).spawn() {
        Ok(child) => child,
        Err(error) => return format!("(no calls: gdb: {error})\n"),
    };
    let begin = Instant::now();
    while matches!(debugger.try_wait(), Ok(None)) {
        if begin.elapsed() > DEBUGGER_LIMIT {
            // It may have ended by itself meanwhile.
            let _ = debugger.kill();
            let _ = debugger.wait();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    // Left behind, it is a small file among temporary ones.
    let _ = fs::remove_file(&path);
    let of_threads =
        text.lines().filter(|line| line.starts_with("Thread") || line.starts_with('#'));
    of_threads.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    #[test]
    fn what_hangs_is_an_error_and_threads_are_named() {
        let hung = catch_unwind(|| {
            let sleep = || std::thread::sleep(Duration::from_secs(3600));
            within(Duration::from_millis(50), "a test", String::new, sleep);
        });
        assert!(hung.is_err());
        assert!(threads().contains("bed"), "{}", threads());
    }

    #[test]
    fn results_and_panics_come_through() {
        let limit = Duration::from_secs(60);
        assert_eq!(within(limit, "a test", String::new, || 7), 7);
        let failed = catch_unwind(|| within(limit, "a test", String::new, || panic!("as planned")));
        assert_eq!(*failed.unwrap_err().downcast::<&str>().unwrap(), "as planned");
    }
}
