//! A program in the background of a test, ended with the test.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::{Scratch, wait_until};

/// The signals that tests send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// SIGINT, as Ctrl-C does.
    Interrupt,
    /// SIGTERM, as service managers do.
    Terminate,
    /// SIGHUP: read the configuration again.
    Hangup,
    /// SIGKILL: a crash.
    Kill,
}

/// A running program; dropped, it is killed with its whole process group.
pub struct Process {
    child: Child,
    name: String,
    log: PathBuf,
    _scratch: Scratch,
}

impl Process {
    /// Starts the command; its output goes to a file that [`Process::output`] reads.
    ///
    /// # Panics
    /// Where it cannot be started.
    pub fn spawn(mut command: Command) -> Process {
        let name = format!("{command:?}");
        let scratch = Scratch::new();
        let log = scratch.join("output");
        let file = File::create(&log).expect("a log file");
        let second = file.try_clone().expect("a second handle of the log");
        command.stdin(Stdio::null()).stdout(file).stderr(second).process_group(0);
        let child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        Process { child, name, log, _scratch: scratch }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far, standard output and error in turn.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until it has printed this.
    ///
    /// # Panics
    /// Where it ends or the time is up before.
    pub fn wait_for(&mut self, text: &str, timeout: Duration) {
        let mut ended = None;
        let found = wait_until(timeout, || {
            // Asked first, so that the last words of an ended program count.
            ended = self.child.try_wait().ok().flatten();
            self.output().contains(text) || ended.is_some()
        });
        let output = self.output();
        if !found || !output.contains(text) {
            panic!("{}: no {text:?} within {timeout:?}, ended: {ended:?}\n{output}", self.name);
        }
    }

    /// Is it still running?
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal to the program itself.
    ///
    /// # Panics
    /// Where there is no such process any more.
    pub fn signal(&self, stop: Stop) {
        let signal = match stop {
            Stop::Interrupt => Signal::INT,
            Stop::Terminate => Signal::TERM,
            Stop::Hangup => Signal::HUP,
            Stop::Kill => Signal::KILL,
        };
        kill_process(self.pid(), signal).unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    /// Waits for its end; its status and all of its output.
    ///
    /// # Panics
    /// Where it still runs when the time is up.
    pub fn wait(&mut self, timeout: Duration) -> (ExitStatus, String) {
        let mut status = None;
        wait_until(timeout, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        });
        let output = self.output();
        match status {
            Some(status) => (status, output),
            None => panic!("{}: still running after {timeout:?}\n{output}", self.name),
        }
    }

    /// Signals, then waits.
    pub fn stop(&mut self, stop: Stop, timeout: Duration) -> (ExitStatus, String) {
        self.signal(stop);
        self.wait(timeout)
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("---- output of {}\n{}", self.name, self.output());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::spawn(command)
    }

    #[test]
    fn output_signal_and_status() {
        let mut process =
            shell("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done");
        process.wait_for("ready", Duration::from_secs(10));
        assert!(process.is_running());
        let (status, output) = process.stop(Stop::Terminate, Duration::from_secs(10));
        assert_eq!(status.code(), Some(3));
        assert_eq!(output, "ready\nbye\n");
    }

    #[test]
    fn dropping_kills_the_whole_group() {
        let mut process = shell("sleep 300 & echo $!; wait");
        process.wait_for("\n", Duration::from_secs(10));
        let child: i32 = process.output().trim().parse().unwrap();
        drop(process);
        let gone = || {
            let state = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            state.is_empty() || state.contains(") Z ")
        };
        assert!(wait_until(Duration::from_secs(10), gone));
    }
}
