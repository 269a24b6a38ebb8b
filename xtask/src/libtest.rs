//! Reads what Rust's test harness prints.

use std::path::Path;

/// The tests of one suite, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    /// One line a failure: what failed, and why where that is known.
    pub(crate) failures: Vec<String>,
    /// One line a skipped test, the reason after a colon.
    pub(crate) skipped: Vec<String>,
}

impl Counts {
    pub(crate) fn pass(&mut self) {
        self.passed += 1;
    }

    pub(crate) fn fail(&mut self, line: impl Into<String>) {
        self.failures.push(line.into());
    }

    pub(crate) fn skip(&mut self, what: &str, reason: &str, in_ci: bool) {
        let line = format!("{what}: {reason}");
        match in_ci && !crate::skip_rule::is_allowed(reason) {
            true => self.failures.push(format!("{line} (skipped, which CI=true forbids)")),
            false => self.skipped.push(line),
        }
    }

    pub(crate) fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failures.extend(other.failures);
        self.skipped.extend(other.skipped);
    }

    /// Takes in the output of one run with `--show-output`. A test that prints a line `skipped: WHY` and
    /// returns is skipped, not passed. A run that ended badly without naming a failed test (a crash, a build
    /// error, a time limit) is one failure called `label`.
    pub(crate) fn read(&mut self, label: &str, output: &str, ok: bool, end: &str, in_ci: bool) {
        let mut passed = 0;
        let mut failed = 0;
        let mut succeeded = false;
        let mut test = String::new();
        let mut skipped: Vec<String> = Vec::new();
        for line in output.lines() {
            if let Some(rest) = line.strip_prefix("test result: ") {
                passed += number_before(rest, " passed");
                failed += number_before(rest, " failed");
            } else if line == "successes:" || line == "failures:" {
                succeeded = line == "successes:";
                test.clear();
            } else if let Some(name) =
                line.strip_prefix("---- ").and_then(|l| l.strip_suffix(" stdout ----"))
            {
                test = name.to_string();
            } else if let Some((name, why)) = ignored(line) {
                self.skip(&format!("{label} {name}"), &format!("ignored {why}"), in_ci);
            } else if let Some(name) =
                line.strip_prefix("test ").and_then(|l| l.strip_suffix(" ... FAILED"))
            {
                self.fail(format!("{label} {name}"));
            } else if let Some(why) = line.strip_prefix("skipped: ")
                && succeeded
                && !test.is_empty()
                && !skipped.contains(&test)
            {
                self.skip(&format!("{label} {test}"), why, in_ci);
                skipped.push(test.clone());
            }
        }
        self.passed += passed - skipped.len().min(passed);
        if !ok && failed == 0 {
            self.fail(format!("{label}: {end}"));
        }
    }
}

fn number_before(text: &str, word: &str) -> usize {
    let Some((head, _)) = text.split_once(word) else { return 0 };
    head.rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn ignored(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.strip_prefix("test ")?.rsplit_once(" ... ignored")?;
    Some((name, rest.trim_start_matches([',', ' '])))
}

/// A test program that cargo built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestProgram {
    /// Name of the cargo target: the crate's for unit tests, the file's for integration tests.
    pub(crate) target: String,
    /// The package's folder, in which tests run.
    pub(crate) dir: String,
    pub(crate) executable: String,
}

impl TestProgram {
    /// Whether it may call programs by `CARGO_BIN_EXE_…`: its package has some.
    pub(crate) fn may_call_programs(&self) -> bool {
        Path::new(&self.dir).join("src/main.rs").is_file()
    }

    /// `package/target`, for people.
    pub(crate) fn label(&self) -> String {
        let package = self.dir.rsplit('/').next().unwrap_or_default();
        match package == self.target {
            true => self.target.clone(),
            false => format!("{package}/{}", self.target),
        }
    }
}

/// The test program that a line of `cargo test --no-run --message-format=json` names, if it names one.
pub(crate) fn test_program(line: &str) -> Option<TestProgram> {
    if !line.contains("\"reason\":\"compiler-artifact\"") {
        return None;
    }
    let executable = string_field(line, "executable")?;
    let manifest = string_field(line, "manifest_path")?;
    let target = string_field(line.split_once("\"target\":{")?.1, "name")?;
    // Programs that tests call by CARGO_BIN_EXE_… are built too, without a test harness.
    let (_, profile) = line.split_once("\"profile\":{")?;
    if !profile.split('}').next().unwrap_or_default().contains("\"test\":true") {
        return None;
    }
    let dir = manifest.trim_end_matches("/Cargo.toml").to_string();
    Some(TestProgram { target, dir, executable })
}

/// The first string field of this name in a line of cargo's JSON; its paths hold no escapes here.
fn string_field(line: &str, name: &str) -> Option<String> {
    let (_, rest) = line.split_once(&format!("\"{name}\":\""))?;
    Some(rest.split('"').next()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "
running 4 tests
test a::works ... ok
test a::skips ... ok
test a::slow ... ignored, takes hours
test a::breaks ... FAILED

successes:

---- a::skips stdout ----
skipped: no root
skipped: a second line of the same test

successes:
    a::skips
    a::works

failures:

---- a::breaks stdout ----
skipped: printed by a test that failed all the same
thread panicked

failures:
    a::breaks

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn counts_passed_failed_skipped() {
        let mut counts = Counts::default();
        counts.read("x", RUN, false, "exit status: 101", false);
        assert_eq!(counts.passed, 1);
        assert_eq!(counts.failures, ["x a::breaks"]);
        assert_eq!(counts.skipped, ["x a::slow: ignored takes hours", "x a::skips: no root"]);
    }

    #[test]
    fn under_ci_a_skip_fails_unless_allowed() {
        let mut counts = Counts::default();
        counts.read("x", RUN, false, "exit status: 101", true);
        assert_eq!((counts.passed, counts.failures.len(), counts.skipped.len()), (1, 3, 0));
        for (reason, allowed) in
            [("no GPU", true), ("no ../shared/data/bgp", true), ("needs a NIC", true)]
        {
            let mut counts = Counts::default();
            counts.skip("t", reason, true);
            assert_eq!(counts.failures.is_empty(), allowed, "{reason}");
        }
        let mut counts = Counts::default();
        counts.skip("t", "no NICOLE", true);
        assert_eq!(counts.failures.len(), 1);
    }

    #[test]
    fn a_crash_is_a_failure() {
        let mut counts = Counts::default();
        counts.read("x", "running 3 tests\n", false, "signal: 11", false);
        assert_eq!(counts.failures, ["x: signal: 11"]);
    }

    #[test]
    fn programs_are_found_in_cargo_json() {
        let json = concat!(
            r#"{"reason":"compiler-artifact","package_id":"p","manifest_path":"/r/crates/io/Cargo.toml","target":{"kind":["test"],"crate_types":["bin"],"name":"net_io","src_path":"x","edition":"2024","doc":false,"doctest":false,"test":true},"profile":{"opt_level":"1","debuginfo":1,"debug_assertions":true,"overflow_checks":true,"test":true},"features":[],"filenames":["/t/net_io-1"],"executable":"/t/net_io-1","fresh":true}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"p","manifest_path":"/r/shadeline/Cargo.toml","target":{"kind":["bin"],"crate_types":["bin"],"name":"shadeline","src_path":"x","edition":"2024","doc":true,"doctest":false,"test":true},"profile":{"opt_level":"1","test":false},"features":[],"filenames":["/t/shadeline"],"executable":"/t/shadeline","fresh":true}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/r/crates/io/Cargo.toml","target":{"name":"io"},"profile":{"test":false},"executable":null}"#,
        );
        let programs: Vec<_> = json.lines().filter_map(test_program).collect();
        assert_eq!(programs.len(), 1);
        assert_eq!(programs[0].label(), "io/net_io");
    }
}
