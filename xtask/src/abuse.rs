//! Runs the attacks on a live router and switch (`testkit/examples/abuse`).

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::suites::{self, BUILD_LIMIT, Report, cargo};
use crate::tree;

/// All attacks at a rate that two busy processors carry, two seconds each.
const SUITE: &[&str] = &["--short"];

/// Beyond what `--seconds` and `--mixed` ask for.
const LIMIT: Duration = Duration::from_secs(3600);

/// The suite.
pub(crate) fn suite(root: &Path) -> Report {
    run(root, SUITE)
}

/// `cargo xtask abuse OPTIONS`: one test, which prints its table.
pub(crate) fn run(root: &Path, options: &[impl AsRef<str>]) -> Report {
    let mut report = Report::begin(root, "abuse");
    // With the features of the other suites' build.
    let mut build = cargo(root, &["build", "--workspace", "--example", "abuse"]);
    if !report.build(&mut build, BUILD_LIMIT) {
        return report.end();
    }
    if let Some(env) = suites::release_program(root, &mut report) {
        let mut abuse = Command::new(tree::target_dir(root).join("debug/examples/abuse"));
        abuse.current_dir(root).envs(env.iter().map(|(name, value)| (name, value)));
        abuse.args(options.iter().map(AsRef::as_ref));
        let output = report.run_or_skip("attacks", &mut abuse, LIMIT);
        // A failure has been printed whole.
        for line in output.lines().filter(|_| report.counts.failures.is_empty()) {
            report.say(line);
        }
    }
    report.end()
}
