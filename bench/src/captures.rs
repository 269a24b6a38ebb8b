//! Whole programs over one large capture: `shadeline streams` with one worker and with several, beside `ndpiReader`.
//!
//! ```text
//!  GASPP's HTTP in a file ─┬▶ shadeline streams --json, 1 worker
//!                          ├▶ shadeline streams --json, 2 workers: the same bytes
//!                          └▶ ndpiReader, where it is installed: as many flows
//! ```
//!
//! Time is that of the process by the clock, from its start to its end; the file is in the page cache. `ndpiReader` (nDPI's
//! example program, one thread) keeps flows and says what protocol each one has, but puts no streams together;
//! `shadeline streams` puts both directions of each connection together and hashes their bytes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::forms::ratio;
use crate::limits::has_room;
use crate::streams::frames::{Frames, PACKETS, http, short_http};
use crate::{Args, Report, Row};

/// Workers of the second run.
const WORKERS: usize = 2;

/// What the issue of the work asks of two cores.
const AIM: f64 = 1.7;

pub(crate) fn run(args: &Args, connections: usize) -> Result<Report, String> {
    has_room(&format!("{connections} connections"), connections.saturating_mul(1 << 20))?;
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let capture = Capture::new(connections)?;
    let data = format!(
        "GASPP's HTTP, {connections} connections at once, {} packets, {:.2} GB, in a file of the page cache",
        connections * PACKETS,
        capture.bytes as f64 / 1e9
    );
    let mut report = Report::new("captures", data);
    measure(args.rounds, &own, &capture, &mut report)?;
    Ok(report)
}

/// The file, removed when dropped.
pub(crate) struct Capture {
    pub(crate) path: PathBuf,
    pub(crate) connections: usize,
    pub(crate) bytes: u64,
}

impl Capture {
    fn new(connections: usize) -> Result<Self, String> {
        Self::of("captures", &http(connections, false), connections)
    }

    /// Connections of one request and its answer.
    pub(crate) fn short(connections: usize) -> Result<Self, String> {
        Self::of("l7", &short_http(connections), connections)
    }

    /// Frames of so many connections in a file whose name has `what`.
    pub(crate) fn of(what: &str, frames: &Frames, connections: usize) -> Result<Self, String> {
        let name = format!("shadeline-bench-{what}-{}.pcap", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut capture = Self { path, connections, bytes: 0 };
        let written = frames.write(&capture.path);
        let about = written.and_then(|()| std::fs::metadata(&capture.path));
        capture.bytes = about.map_err(|e| format!("{}: {e}", capture.path.display()))?.len();
        Ok(capture)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn measure(
    rounds: usize,
    own: &Path,
    capture: &Capture,
    report: &mut Report,
) -> Result<(), String> {
    let ndpi = PathBuf::from("ndpiReader");
    let mut seconds = [const { Vec::new() }; 3];
    let (mut expected, mut has_ndpi) = (None, true);
    for _ in 0..rounds.max(1) {
        for (at, workers) in [1, WORKERS].into_iter().enumerate() {
            let workers = workers.to_string();
            let options = ["streams", "--json", "--workers", &workers, "-r"];
            let (time, rows) = timed(own, &options, &capture.path)?.ok_or("not found")?;
            seconds[at].push(time);
            let lines = rows.lines().count();
            if lines != capture.connections {
                report.wrong.push(format!("{workers} workers: {lines} connections"));
            }
            if *expected.get_or_insert_with(|| rows.clone()) != rows {
                report.wrong.push(format!("{workers} workers: other rows than in the first run"));
            }
        }
        if has_ndpi {
            let Some((time, text)) = timed(&ndpi, &["-i"], &capture.path)? else {
                has_ndpi = false;
                continue;
            };
            seconds[2].push(time);
            let flows = flows(&text);
            if flows != Some(capture.connections) {
                report.wrong.push(format!("ndpiReader: {flows:?} flows"));
            }
        }
    }
    let packets = (capture.connections * PACKETS) as f64;
    let rates =
        seconds.map(|all| all.iter().map(|time| packets / time / 1e6).collect::<Vec<f64>>());
    let bits = capture.bytes as f64 * 8.0 / packets / 1e3;
    let row = |name: &str, rates: &[f64]| {
        let note = format!("{:.1} Gbit/s", crate::report::median(rates) * bits);
        Row::new(name, "Mpps", rates.to_vec()).note(note)
    };
    let [one, two, ndpi] = &rates;
    report.rows.extend([
        row("streams, 1 worker", one),
        row("streams, 2 workers", two),
        ratio("2 workers over 1", two, one).at_least(AIM),
    ]);
    match has_ndpi {
        true => report.rows.extend([
            row("ndpiReader", ndpi),
            ratio("streams, 1 worker, over ndpiReader", one, ndpi),
        ]),
        false => {
            let why = "not installed (Debian: libndpi-bin)";
            report.rows.push(Row::new("ndpiReader", "Mpps", Vec::new()).note(why));
        }
    }
    Ok(())
}

/// Seconds of a program that has run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    /// From its start to its end, by the clock.
    pub(crate) clock: f64,
    /// Those that its threads were on a processor, of the program and of the kernel for it, in steps of 10 ms: others on the
    /// machine do not count.
    pub(crate) processor: f64,
}

/// Runs a program over a file: its seconds by the clock, and what it printed. `None` if there is no such program.
pub(crate) fn timed(
    program: &Path,
    options: &[&str],
    file: &Path,
) -> Result<Option<(f64, String)>, String> {
    Ok(run_timed(program, options, file)?.map(|(took, text)| (took.clock, text)))
}

/// The same with its time on processors. No other program that this one has started may end meanwhile.
pub(crate) fn run_timed(
    program: &Path,
    options: &[&str],
    file: &Path,
) -> Result<Option<(Took, String)>, String> {
    let failed = |why: String| format!("{}: {why}", program.display());
    let mut command = Command::new(program);
    command.args(options).arg(file).stdin(Stdio::null()).stderr(Stdio::piped());
    let (begin, before) = (Instant::now(), children_seconds());
    let output = match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        output => output.map_err(|error| failed(error.to_string()))?,
    };
    let clock = begin.elapsed().as_secs_f64();
    // One step at least, so that a rate is a number.
    let took = Took { clock, processor: (children_seconds() - before).max(0.01) };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{}: {}", output.status, said.trim_end())));
    }
    Ok(Some((took, String::from_utf8_lossy(&output.stdout).into_owned())))
}

/// The time on processors of all programs that this one has started and that have ended; proc(5), `cutime` and `cstime`.
fn children_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program is in brackets and may have spaces.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks =
        |at: usize| fields.split_whitespace().nth(at).and_then(|own| own.parse::<f64>().ok());
    // Linux counts in hundredths of a second here, on every architecture that this program runs on.
    (ticks(13).unwrap_or(0.0) + ticks(14).unwrap_or(0.0)) / 100.0
}

/// The flows that `ndpiReader` counts.
pub(crate) fn flows(text: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("Unique flows:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_of_ndpi_are_read() {
        let text = "Traffic statistics:\n\tIP packets:            125\n\tUnique flows:          9            \n";
        assert_eq!((flows(text), flows("Unique flows: x"), flows("")), (Some(9), None, None));
    }

    /// A program that counts is on a processor; one that waits is not.
    #[test]
    fn time_on_processors_is_counted() {
        let shell = Path::new("/bin/sh");
        let file = Path::new("/dev/null");
        let busy = ["-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"];
        let (took, _) = run_timed(shell, &busy, file).unwrap().unwrap();
        assert!(took.processor > 0.01 && took.clock > 0.0, "{took:?}");
    }

    /// A program in place of the real ones: wrong numbers of rows are seen, and a failure has its message.
    #[test]
    fn answers_are_checked() {
        let capture = Capture::new(2).unwrap();
        assert!(capture.bytes > 2 * PACKETS as u64 * 60);
        let scratch = testkit::Scratch::new();
        let program = |text: &str| {
            let path = scratch.write("program", &format!("#!/bin/sh\n{text}\n"));
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&path, mode).unwrap();
            path
        };
        let judged = |text: &str| {
            let mut report = Report::new("captures", String::new());
            measure(2, &program(text), &capture, &mut report).map(|()| report)
        };
        let report = judged("echo a; echo b").unwrap();
        // ndpiReader may be here or not; it reads the same file.
        assert_eq!(report.wrong, [""; 0]);
        assert_eq!(report.rows[0].rounds.len(), 2);
        assert_eq!(judged("echo a").unwrap().wrong.len(), 4);
        let differing = judged("echo a; echo $4").unwrap().wrong;
        assert!(differing.len() == 2 && differing[0].contains("other rows"), "{differing:?}");
        let error = judged("echo no such thing >&2; exit 3").err().unwrap();
        assert!(error.contains("exit status: 3: no such thing"), "{error}");
        let path = capture.path.clone();
        drop(capture);
        assert!(!path.exists());
    }
}
