//! Builds and runs the fuzz targets of `fuzz/`.
//!
//! The targets are those of `cargo fuzz`, which works on them too; here they are built with the same flags
//! straight by cargo, on the stable compiler, so that nothing needs installing. Seeds that everyone shares
//! are in `fuzz/seeds/TARGET`; what a run learns goes to `fuzz/corpus/TARGET`, a crash to
//! `fuzz/artifacts/TARGET`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::suites::Report;
use crate::tree;

const TRIPLE: &str = "x86_64-unknown-linux-gnu";
const BUILD_LIMIT: Duration = Duration::from_secs(900);

const FLAGS: &[&str] = &[
    "--cfg fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cdebug-assertions",
    "-Zsanitizer=address",
];

/// For runs that look for something new: slower to build, faster to run.
const THOROUGH: &str = "-Ccodegen-units=1";

/// Of a test, which tries few inputs: built sooner is done sooner. What decodes is optimised a little, all else not.
const QUICK: &[&str] = &[
    "packet",
    "io",
    "files",
    "lookup",
    "classify",
    "stream",
    "chunk",
    "interleave",
    "crypto",
    "ipsec",
    "automata",
    "signatures",
    "detect",
    "l7proto",
    "applayer",
    "openflow",
    "flowtable",
    "flowlog",
];

/// Runs each target (all, or those named) for the time given. A target is one test. With a `seed` it tries the same
/// inputs each time, as a test has to; without, it goes where no run has been.
pub(crate) fn run(root: &Path, time: Duration, seed: Option<u32>, chosen: &[String]) -> Report {
    let mut report = Report::begin(root, "fuzz");
    report.has_time = seed.is_some();
    let manifest = root.join("fuzz/Cargo.toml");
    let Ok(text) = std::fs::read_to_string(&manifest) else {
        return report.end();
    };
    let all = targets(&text);
    for name in chosen.iter().filter(|name| !all.contains(name)) {
        report.counts.fail(format!("{name}: no such target; there are {}", all.join(", ")));
    }
    let target_dir = tree::target_dir(root).join("fuzz");
    let mut build = Command::new("cargo");
    build
        .args(["build", "--release", "--bins", "--target", TRIPLE, "--manifest-path"])
        .arg(&manifest);
    build.env("CARGO_TARGET_DIR", &target_dir).env("RUSTC_BOOTSTRAP", "1");
    let mut flags = FLAGS.join(" ");
    if seed.is_some() {
        build.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
        build.args(["--config", "profile.release.package.\"*\".opt-level=0"]);
        build.args(["--config", "profile.release.package.\"*\".debug=false"]);
        for name in QUICK {
            build.args(["--config", &format!("profile.release.package.{name}.opt-level=1")]);
        }
    } else {
        flags = format!("{flags} {THOROUGH}");
    }
    build.env("RUSTFLAGS", flags);
    if !report.build(&mut build, BUILD_LIMIT) {
        return report.end();
    }
    for name in all.iter().filter(|name| chosen.is_empty() || chosen.contains(name)) {
        let corpus = root.join("fuzz/corpus").join(name);
        let artifacts = root.join("fuzz/artifacts").join(name);
        for dir in [&corpus, &artifacts] {
            if let Err(error) = std::fs::create_dir_all(dir) {
                report.counts.fail(format!("{}: {error}", dir.display()));
            }
        }
        let mut fuzzer = Command::new(target_dir.join(TRIPLE).join("release").join(name));
        fuzzer.current_dir(root).arg(&corpus);
        let seeds = root.join("fuzz/seeds").join(name);
        if seeds.is_dir() {
            fuzzer.arg(seeds);
        }
        fuzzer.arg(format!("-max_total_time={}", time.as_secs()));
        // A test has what processor time others leave.
        let timeout = if report.has_time { 60 } else { 10 };
        fuzzer.arg(format!("-timeout={timeout}"));
        fuzzer.args(["-rss_limit_mb=4096", "-print_final_stats=1"]);
        fuzzer.args(seed.map(|seed| format!("-seed={seed}")));
        fuzzer.arg(format!("-artifact_prefix={}/", artifacts.display()));
        report.run_one(name, &mut fuzzer, time + Duration::from_secs(120));
    }
    report.end()
}

/// The names of the `[[bin]]` tables.
fn targets(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut in_bin = false;
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            in_bin = line == "[[bin]]";
        } else if let Some(value) = line.strip_prefix("name").filter(|_| in_bin) {
            names.push(value.trim_matches([' ', '=', '"']).to_string());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_bins_of_the_manifest() {
        let manifest = "[package]\nname = \"fuzz\"\n\n[[bin]]\nname = \"ipv4\"\npath = \"a.rs\"\n[[bin]]\nname=\"pcap\"\n";
        assert_eq!(targets(manifest), ["ipv4", "pcap"]);
    }
}
