//! Runs a command with a time limit, its output in a log file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How a command ended.
pub(crate) struct Outcome {
    /// It exited with 0.
    pub(crate) ok: bool,
    /// One phrase: exit status, signal or time limit.
    pub(crate) end: String,
    /// Standard output and error, as they came; without standard output where that was read line by line.
    pub(crate) output: String,
}

/// A file that a command writes, read line by line meanwhile.
struct Lines<'a> {
    path: &'a Path,
    /// Bytes of whole lines so far.
    read: u64,
    each: &'a mut dyn FnMut(&str),
}

impl Lines<'_> {
    /// Takes the lines that have become whole.
    fn take(&mut self) -> io::Result<()> {
        let mut file = File::open(self.path)?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.read += whole as u64;
        String::from_utf8_lossy(&bytes[..whole]).lines().for_each(&mut *self.each);
        Ok(())
    }
}

/// A log of one suite; commands append to it.
pub(crate) struct Log {
    path: PathBuf,
}

impl Log {
    /// An empty log `target/test-logs/NAME.log`.
    pub(crate) fn create(root: &Path, name: &str) -> Log {
        let dir = crate::tree::target_dir(root).join("test-logs");
        let path = dir.join(format!("{name}.log"));
        let made = std::fs::create_dir_all(&dir).and_then(|()| File::create(&path));
        if let Err(error) = made {
            eprintln!("xtask: {}: {error}", path.display());
        }
        Log { path }
    }

    /// Writes a line of the runner's own.
    pub(crate) fn note(&self, line: &str) {
        if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(&self.path) {
            // A log that cannot be written loses lines, not the run.
            let _ = writeln!(file, "{line}");
        }
    }

    /// Runs the command to its end or to the limit; then its whole process group is killed.
    pub(crate) fn run(&self, command: &mut Command, limit: Duration) -> Outcome {
        self.start(command, limit, None)
    }

    /// The same; each line of standard output goes to `each` as soon as it is written, and not into the log.
    pub(crate) fn run_lines(
        &self,
        command: &mut Command,
        limit: Duration,
        each: &mut dyn FnMut(&str),
    ) -> Outcome {
        let path = self.path.with_extension("stdout");
        let mut lines = Lines { path: &path, read: 0, each };
        let outcome = self.start(command, limit, Some(&mut lines));
        // Written anew each time; what matters of it is in the log.
        let _ = std::fs::remove_file(&path);
        outcome
    }

    fn start(
        &self,
        command: &mut Command,
        limit: Duration,
        stdout: Option<&mut Lines<'_>>,
    ) -> Outcome {
        match self.try_start(command, limit, stdout) {
            Ok(outcome) => outcome,
            Err(error) => {
                let end = format!("{}: {error}", command.get_program().to_string_lossy());
                self.note(&end);
                Outcome { ok: false, output: format!("{end}\n"), end }
            }
        }
    }

    fn try_start(
        &self,
        command: &mut Command,
        limit: Duration,
        mut stdout: Option<&mut Lines<'_>>,
    ) -> io::Result<Outcome> {
        self.note(&format!("$ {}", line_of(command)));
        let mut log = OpenOptions::new().read(true).append(true).open(&self.path)?;
        let start = log.seek(SeekFrom::End(0))?;
        let out = match &stdout {
            Some(lines) => File::create(lines.path)?,
            None => log.try_clone()?,
        };
        command.stdin(Stdio::null()).stdout(out).stderr(log.try_clone()?).process_group(0);
        let begun = Instant::now();
        let mut child = command.spawn()?;
        let mut timed_out = false;
        let status = loop {
            let ended = child.try_wait()?;
            if let Some(lines) = &mut stdout {
                lines.take()?;
            }
            if let Some(status) = ended {
                break status;
            }
            if begun.elapsed() > limit && !timed_out {
                timed_out = true;
                kill_group(child.id());
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        // What the command left behind in its group must not outlive it.
        kill_group(child.id());
        let mut bytes = Vec::new();
        log.seek(SeekFrom::Start(start))?;
        log.read_to_end(&mut bytes)?;
        let end = match timed_out {
            true => format!("killed after its limit of {} s", limit.as_secs()),
            false => status.to_string(),
        };
        let output = String::from_utf8_lossy(&bytes).into_owned();
        Ok(Outcome { ok: status.success() && !timed_out, end, output })
    }
}

fn kill_group(id: u32) {
    let script = format!("kill -KILL -{id} 2>/dev/null");
    // An empty group is the usual case and no error.
    let _ = Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).status();
}

/// The command as a person would type it.
pub(crate) fn line_of(command: &Command) -> String {
    let mut line = String::new();
    for (key, value) in command.get_envs() {
        if let Some(value) = value.filter(|_| key != "PATH") {
            line += &format!("{}={} ", key.to_string_lossy(), quote(&value.to_string_lossy()));
        }
    }
    line += &command.get_program().to_string_lossy();
    for arg in command.get_args() {
        line += " ";
        line += &quote(&arg.to_string_lossy());
    }
    line
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_string(),
        false => format!("'{word}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(name: &str) -> Log {
        let path = std::env::temp_dir().join(format!("xtask-exec-{name}-{}", std::process::id()));
        File::create(&path).unwrap();
        Log { path }
    }

    #[test]
    fn output_and_status_come_back() {
        let log = log("status");
        let mut command = Command::new("sh");
        let outcome =
            log.run(command.args(["-c", "echo a; echo b >&2; exit 3"]), Duration::from_secs(20));
        assert!(!outcome.ok);
        assert_eq!(outcome.output, "a\nb\n");
        assert_eq!(outcome.end, "exit status: 3");
        std::fs::remove_file(&log.path).unwrap();
    }

    #[test]
    fn lines_come_while_a_command_runs() {
        let log = log("lines");
        let (mut lines, mut first) = (Vec::new(), None);
        let begun = Instant::now();
        let mut command = Command::new("sh");
        // It waits for what the first line makes.
        let made = log.path.with_extension("made");
        let script = format!(
            "echo a; while ! test -e {0}; do sleep 0.01; done; printf 'b\\nhalf'; echo c >&2",
            made.display()
        );
        let outcome =
            log.run_lines(command.args(["-c", &script]), Duration::from_secs(20), &mut |line| {
                first.get_or_insert_with(|| File::create(&made).map(|_| begun.elapsed()));
                lines.push(line.to_owned());
            });
        assert!(outcome.ok && first.is_some_and(|made| made.is_ok()), "{}", outcome.end);
        assert_eq!((lines, outcome.output.as_str()), (vec!["a".into(), "b".into()], "c\n"));
        for path in [&log.path, &made] {
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn a_hanging_command_ends_at_its_limit_with_its_children() {
        let log = log("limit");
        let mut command = Command::new("sh");
        let outcome =
            log.run(command.args(["-c", "sleep 60 & sleep 60"]), Duration::from_millis(100));
        assert!(!outcome.ok);
        assert!(outcome.end.contains("limit"), "{}", outcome.end);
        std::fs::remove_file(&log.path).unwrap();
    }

    #[test]
    fn a_missing_program_is_an_outcome() {
        let log = log("missing");
        let outcome = log.run(&mut Command::new("no-such-program"), Duration::from_secs(1));
        assert!(!outcome.ok && outcome.end.contains("no-such-program"));
        std::fs::remove_file(&log.path).unwrap();
    }

    #[test]
    fn command_lines_are_quoted_where_needed() {
        let mut command = Command::new("cargo");
        command.env("RUSTFLAGS", "--cfg loom").args(["test", "a b"]);
        assert_eq!(line_of(&command), "RUSTFLAGS='--cfg loom' cargo test 'a b'");
    }
}
