//! Runs the soak of the test stages: random pipelines of the engine, compared with a model
//! (`testkit/stages/src/soak.rs`).

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::suites::{BUILD_LIMIT, Report, cargo};
use crate::tree;

/// What a scenario may take that has begun when the time is over, and the watchdog's picture of it.
const MARGIN: Duration = Duration::from_secs(360);

/// A process lasts no longer: over PoCL it grows with each program that is built, and every scenario has others. Without
/// a driver it does not grow.
const SLICE: Duration = Duration::from_secs(60);

/// The seeds of the next process begin so much further.
const SLICE_SEEDS: u64 = 1_000_000;

/// How long, from which seed, how many scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) time: Duration,
    pub(crate) seed: Option<u64>,
    pub(crate) count: Option<u64>,
}

impl Options {
    /// Of the suite: a minute from a fresh seed.
    pub(crate) const SUITE: Options =
        Options { time: Duration::from_secs(60), seed: None, count: None };

    /// Reads `[--minutes N] [--seed S] [--count N]`; ten minutes by default.
    pub(crate) fn parse(args: &[String]) -> Result<Options, String> {
        let mut options = Options { time: Duration::from_secs(600), ..Options::SUITE };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let value = args.next().and_then(|value| value.parse::<u64>().ok());
            match (arg.as_str(), value) {
                ("--minutes", Some(minutes)) => options.time = Duration::from_secs(60 * minutes),
                ("--seed", value @ Some(_)) => options.seed = value,
                ("--count", value @ Some(_)) => options.count = value,
                ("--minutes" | "--seed" | "--count", None) => {
                    return Err(format!("{arg} wants a number"));
                }
                _ => return Err(format!("no such option: {arg}")),
            }
        }
        Ok(options)
    }
}

/// Each minute is one test, in a process of its own.
pub(crate) fn run(root: &Path, options: Options) -> Report {
    let mut report = Report::begin(root, "soak");
    // With the features of the other suites' build.
    let mut build = cargo(root, &["build", "--workspace", "--example", "soak"]);
    if !report.build(&mut build, BUILD_LIMIT) {
        return report.end();
    }
    // Short enough to be typed.
    let fresh = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64);
    let seed = options.seed.unwrap_or(fresh % 1_000_000_000);
    let seconds = options.time.as_secs();
    report.say(&format!("seed {seed} for {seconds} s; again: cargo xtask soak --seed {seed}"));
    let program = tree::target_dir(root).join("debug/examples/soak");
    let mut left = options.time;
    for slice in 0.. {
        let time = left.min(SLICE);
        let mut soak = Command::new(&program);
        soak.current_dir(root).args(["--seed", &(seed + slice * SLICE_SEEDS).to_string()]);
        soak.args(["--seconds", &time.as_secs().to_string()]);
        if let Some(count) = options.count {
            soak.args(["--count", &count.to_string()]);
        }
        let output = report.run_one("soak", &mut soak, time + MARGIN);
        if let Some(totals) = output.lines().find_map(|line| line.strip_prefix("soak: ran ")) {
            report.say(totals);
        }
        left -= time;
        if left.is_zero() || options.count.is_some() || !report.counts.failures.is_empty() {
            break;
        }
    }
    report.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_defaults_and_want_numbers() {
        let parse = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            Options::parse(&words)
        };
        let ten = Options { time: Duration::from_secs(600), seed: None, count: None };
        assert_eq!(parse(""), Ok(ten));
        let given = Options { time: Duration::from_secs(120), seed: Some(7), count: Some(1) };
        assert_eq!(parse("--minutes 2 --seed 7 --count 1"), Ok(given));
        assert!(parse("--minutes").is_err() && parse("--seed x").is_err());
        assert!(parse("--hours 1").is_err());
    }
}
