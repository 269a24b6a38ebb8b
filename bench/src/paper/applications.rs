//! GASPP §7.2 and §7.3, Figures 9(c), 11 and 12: applications, which are modules with a source, on a device.
//!
//! | application | what its module does |
//! | --- | --- |
//! | FW | compares the headers with 64 rules, one after the other |
//! | NIDS | searches all streams for many patterns at once |
//! | L7F | looks for each of twelve protocols in the whole payload |
//! | AES | encrypts the payload |
//!
//! The program itself runs over a capture: it reads packets, follows flows, puts streams together, and the modules do their
//! work on the device. Its start does not count: the time is that of a capture of many connections less that of one, after a run
//! for which the device has compiled the modules. It is the time of all processors, since PoCL runs on them too; with CUDA it is
//! by the clock. In Figure 12 the applications come together in one program, over one upload; beside it, the
//! time of programs of one application each, added up. Where the paper changes the order of applications with the flow, here
//! all packets have one order. Sources have no CPU form, so that the CPU of the comparison is PoCL's.

use std::path::PathBuf;

use device::Backend;
use serde_json::Value;

use crate::captures::{Capture, timed};
use crate::streams::frames::{PACKETS, http};
use crate::{Args, Report, Row};

/// An application: its module, and how many patterns it has.
struct Application {
    name: &'static str,
    file: &'static str,
    source: &'static str,
    patterns: usize,
}

/// In the order of the paper: more and more work.
const ALL: [Application; 4] = [
    Application { name: "FW", file: "fw", source: include_str!("applications/fw.k"), patterns: 0 },
    Application {
        name: "NIDS",
        file: "nids",
        source: include_str!("applications/nids.k"),
        patterns: 1000,
    },
    Application {
        name: "L7F",
        file: "l7f",
        source: include_str!("applications/l7f.k"),
        patterns: 0,
    },
    Application {
        name: "AES",
        file: "aes",
        source: include_str!("applications/aes.k"),
        patterns: 0,
    },
];

/// Connections of the capture whose time counts, beyond those of the other.
const CONNECTIONS: usize = 48;
const START: usize = 1;

/// Packets of a chunk, of Figure 11.
const CHUNKS: [usize; 4] = [8, 32, 128, 256];
const CHUNK: usize = 256;

/// Programs over two captures.
struct Bench {
    own: PathBuf,
    folder: PathBuf,
    backend: String,
    /// Time is that of all processors, not of the clock.
    counts_processors: bool,
    /// Few and many connections.
    captures: [Capture; 2],
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Bench {
    fn new(backend: Backend) -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let folder =
            std::env::temp_dir().join(format!("shadeline-bench-gaspp-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let capture = |what: &str, count| Capture::of(what, &http(count, false), count);
        let captures = [capture("start", START)?, capture("gaspp", START + CONNECTIONS)?];
        let counts_processors = !matches!(backend, Backend::Cuda(_));
        let backend = match backend {
            Backend::Auto => "opencl".to_owned(),
            other => other.to_string(),
        };
        Ok(Self { own, folder, backend, counts_processors, captures })
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let path = self.folder.join(name);
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(path)
    }

    /// A configuration with these applications.
    fn config(&self, applications: &[&Application], chunk: usize) -> Result<PathBuf, String> {
        let mut text = format!(
            "mode = \"wire\"\n[port.a]\n[port.b]\n[engine]\nbackend = \"{}\"\nchunk = {chunk}\ndevice_timeout = \"60s\"\n",
            self.backend
        );
        for own in applications {
            let Application { file, source, patterns, .. } = own;
            self.write(&format!("{file}.k"), source)?;
            text += &format!(
                "[[module]]\nname = \"{file}\"\nsource = \"{file}.k\"\ntime_limit = \"30s\"\n"
            );
            if *patterns > 0 {
                // No stream has them: all of each is searched.
                let list: String = (0..*patterns).map(|n| format!("{n:04}-\\xff\\xfe\n")).collect();
                self.write(&format!("{file}.patterns"), &list)?;
                text += &format!("patterns = \"{file}.patterns\"\n");
            }
            if *file == "fw" {
                text += "parameters = { RULES = 64 }\n";
            }
        }
        self.write(&format!("config-{}-{chunk}.toml", applications.len()), &text)
    }

    /// The seconds that the packets of the large capture take beyond those of the small one.
    fn seconds(&self, applications: &[&Application], chunk: usize) -> Result<f64, String> {
        let config = self.config(applications, chunk)?;
        let config = config.to_str().ok_or("the temporary folder has no name in UTF-8")?;
        let run = |capture: &Capture| -> Result<f64, String> {
            let before = processor_seconds()?;
            let ran = timed(&self.own, &["run", config, "--json", "-r"], &capture.path)?;
            let (time, text) = ran.ok_or("not found")?;
            check(&text, applications, capture.connections * PACKETS)?;
            Ok(if self.counts_processors { processor_seconds()? - before } else { time })
        };
        let [start, all] = &self.captures;
        run(start)?;
        match run(all)? - run(start)? {
            seconds if seconds > 0.0 => Ok(seconds),
            _ => Err(String::from(
                "the start took longer than the packets: repeat on a quiet machine",
            )),
        }
    }

    /// Bits and packets between both captures.
    fn work(&self) -> (f64, f64) {
        let bytes = self.captures[1].bytes - self.captures[0].bytes;
        (bytes as f64 * 8.0, (CONNECTIONS * PACKETS) as f64)
    }
}

/// What programs that this one has started and that have ended took of all processors, in seconds (proc(5): `cutime`, `cstime`, in
/// hundredths).
fn processor_seconds() -> Result<f64, String> {
    let text = std::fs::read_to_string("/proc/self/stat").map_err(|e| format!("/proc: {e}"))?;
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let mut times = fields.skip(13).map(|field| field.parse::<f64>().unwrap_or(0.0) / 100.0);
    Ok(times.next().unwrap_or(0.0) + times.next().unwrap_or(0.0))
}

/// Each module has processed every packet, and none has failed.
fn check(text: &str, applications: &[&Application], packets: usize) -> Result<(), String> {
    let totals: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    for own in applications {
        let rows = totals["modules"].as_array().into_iter().flatten();
        let row = rows.into_iter().find(|row| row["module"] == own.file).ok_or("no module")?;
        let of = |key: &str| row[key].as_u64();
        if (of("packets"), of("failed"), of("errors")) != (Some(packets as u64), Some(0), Some(0)) {
            return Err(format!(
                "{}: not all of {packets} packets were processed: {row}",
                own.name
            ));
        }
    }
    Ok(())
}

/// GASPP, Figure 9(c): each application by itself.
pub(super) fn each(args: &Args, backend: Backend) -> Result<Report, String> {
    let bench = Bench::new(backend)?;
    let mut report = Report::new("paper", about("9(c)", &bench));
    let mut rates = [const { Vec::new() }; ALL.len()];
    for _ in 0..args.rounds.max(1) {
        for (own, rates) in ALL.iter().zip(&mut rates) {
            rates.push(bench.work().1 / bench.seconds(&[own], CHUNK)? / 1e6);
        }
    }
    for (own, rates) in ALL.iter().zip(rates) {
        report.rows.push(Row::new(own.name, "Mpps", rates));
    }
    Ok(report)
}

/// GASPP, Figure 11(a): the same by packets of a chunk.
pub(super) fn by_batch(args: &Args, backend: Backend) -> Result<Report, String> {
    let bench = Bench::new(backend)?;
    let mut report = Report::new("paper", about("11(a)", &bench));
    let mut rates = vec![[const { Vec::new() }; CHUNKS.len()]; ALL.len()];
    for _ in 0..args.rounds.max(1) {
        for (own, rates) in ALL.iter().zip(&mut rates) {
            for (chunk, rates) in CHUNKS.iter().zip(rates) {
                rates.push(bench.work().0 / bench.seconds(&[own], *chunk)? / 1e9);
            }
        }
    }
    for (own, rates) in ALL.iter().zip(rates) {
        for (chunk, rates) in CHUNKS.iter().zip(rates) {
            let row = Row::new(format!("{}, chunks of {chunk}", own.name), "Gbit/s", rates);
            report
                .rows
                .push(row.curve("throughput", own.name, Some(*chunk)).over("packets of a chunk"));
        }
    }
    Ok(report)
}

/// GASPP, Figure 12: one, two, three and all applications in one program, against a program for each.
pub(super) fn consolidated(args: &Args, backend: Backend) -> Result<Report, String> {
    let bench = Bench::new(backend)?;
    let mut report = Report::new("paper", about("12", &bench));
    let mut rates = [const { [const { Vec::new() }; ALL.len()] }; 2];
    for _ in 0..args.rounds.max(1) {
        let mut alone = 0.0;
        for last in 0..ALL.len() {
            let own = &ALL[last];
            alone += bench.seconds(&[own], CHUNK)?;
            let all: Vec<_> = ALL[..=last].iter().collect();
            let together = if last == 0 { alone } else { bench.seconds(&all, CHUNK)? };
            for (rates, seconds) in rates.iter_mut().zip([together, alone]) {
                rates[last].push(bench.work().0 / seconds / 1e9);
            }
        }
    }
    for (rates, line) in rates.iter().zip(["in one program", "one program each"]) {
        for (rates, count) in rates.iter().zip(1..) {
            let names: Vec<_> = ALL[..count].iter().map(|own| own.name).collect();
            let row = Row::new(format!("{}, {line}", names.join(" + ")), "Gbit/s", rates.clone());
            report.rows.push(row.curve("throughput", line, Some(count)).over("applications"));
        }
    }
    Ok(report)
}

fn about(figure: &str, bench: &Bench) -> String {
    format!(
        "GASPP, Figure {figure}: HTTP, {PACKETS} packets a connection, {CONNECTIONS} connections; applications as modules on {}, \
         flows and streams on one core",
        bench.backend
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_programs_counts() {
        let before = processor_seconds().unwrap();
        let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let status = std::process::Command::new("sh").args(["-c", work]).status().unwrap();
        assert!(status.success() && processor_seconds().unwrap() > before);
    }

    #[test]
    fn what_modules_did_is_checked() {
        let row = |file: &str, packets: u64, failed: u64| {
            format!(
                r#"{{"module": "{file}", "packets": {packets}, "failed": {failed}, "errors": 0}}"#
            )
        };
        let totals = |rows: &[String]| format!(r#"{{"modules": [{}]}}"#, rows.join(","));
        let both = [&ALL[0], &ALL[3]];
        let right = totals(&[row("fw", 7, 0), row("aes", 7, 0)]);
        assert_eq!(check(&right, &both, 7), Ok(()));
        for (wrong, why) in [
            (totals(&[row("fw", 7, 0), row("aes", 6, 0)]), "AES: not all"),
            (totals(&[row("fw", 7, 1), row("aes", 7, 0)]), "FW: not all"),
            (totals(&[row("fw", 7, 0)]), "no module"),
        ] {
            let error = check(&wrong, &both, 7).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
