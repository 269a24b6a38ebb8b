//! Who may work when suites run side by side.
//!
//! There is one seat for what looks at a clock, or has peers that do: most tests. They wait for much of their time. What
//! they leave of the processors goes to the two other seats, whose holders have the kernel's idle priority, so that no test
//! waits for them: one for builds, one for tests that only compute (sanitizers, fuzzing, Miri, loom). Some of those tests are
//! one thread, and a build has stretches of one: side by side they fill two processors. No two hold the same seat at once.
//! Among those who wait for a seat the suite that stands first in the list gets it.

use std::process::Command;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A seat that one suite holds at a time.
pub(crate) struct Seat {
    line: Mutex<Line>,
    freed: Condvar,
}

struct Line {
    taken: bool,
    /// Ranks of those who wait.
    waiting: Vec<usize>,
}

/// For builds, which use spare processor time.
pub(crate) static SPARE: Seat = Seat::new();
/// For tests that use spare processor time, beside a build.
pub(crate) static BESIDE: Seat = Seat::new();
/// For what looks at a clock.
pub(crate) static CLOCKS: Seat = Seat::new();

impl Seat {
    pub(crate) const fn new() -> Seat {
        Seat { line: Mutex::new(Line { taken: false, waiting: Vec::new() }), freed: Condvar::new() }
    }

    /// Waits until the seat is free and nobody of a smaller rank waits for it.
    pub(crate) fn take(&self, rank: usize) -> Taken<'_> {
        let mut line = self.line();
        line.waiting.push(rank);
        while line.taken || line.waiting.iter().any(|other| *other < rank) {
            line = self.freed.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
        line.taken = true;
        if let Some(at) = line.waiting.iter().position(|other| *other == rank) {
            line.waiting.swap_remove(at);
        }
        Taken(self)
    }

    /// No step below can leave the line half changed, so what a panic poisoned is good.
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Holds a seat until it is dropped.
pub(crate) struct Taken<'a>(&'a Seat);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.line().taken = false;
        self.0.freed.notify_all();
    }
}

/// The same command with idle priority; as it is where `chrt` is missing.
pub(crate) fn idle(command: &Command) -> Command {
    let has_chrt = Command::new("chrt").arg("--version").output().is_ok();
    let mut idle = match has_chrt {
        true => Command::new("chrt"),
        false => Command::new(command.get_program()),
    };
    if has_chrt {
        idle.args(["--idle", "0"]).arg(command.get_program());
    }
    idle.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => idle.env(name, value),
            None => idle.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        idle.current_dir(folder);
    }
    idle
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    #[test]
    fn one_at_a_time_and_the_first_of_the_list_before_others() {
        let seat = Seat::new();
        let inside = AtomicUsize::new(0);
        let order = Mutex::new(Vec::new());
        let first = seat.take(9);
        thread::scope(|scope| {
            for rank in [4, 2, 7, 0, 5] {
                let (seat, inside, order) = (&seat, &inside, &order);
                scope.spawn(move || {
                    let _taken = seat.take(rank);
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    order.lock().unwrap().push(rank);
                    thread::sleep(Duration::from_millis(2));
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            }
            // All of them stand in the line before the seat is given.
            while seat.line().waiting.len() < 5 {
                thread::yield_now();
            }
            drop(first);
        });
        assert_eq!(*order.lock().unwrap(), [0, 2, 4, 5, 7]);
    }

    #[test]
    fn a_command_with_idle_priority_is_the_same_command() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $WORD; pwd; chrt --pid $$ || true"]);
        command.env("WORD", "word").current_dir("/");
        let output = idle(&command).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.starts_with("word\n/\n"), "{text}");
        assert!(!text.contains("policy") || text.contains("SCHED_IDLE"), "{text}");
    }
}
