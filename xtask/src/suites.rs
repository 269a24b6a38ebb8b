//! The suites of `cargo xtask test`, and the counts that close it.
//!
//! They run side by side ([`seats`]): while the tests of one run, the next ones are built. So those that have most to wait
//! for come first, and those that only take processor time come last. Test programs are built once by cargo and then run
//! one by one from here, so that each suite gets its own, with a time limit, in the folder that cargo would use.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::slice;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::exec::{Log, Outcome};
use crate::libtest::{self, Counts, TestProgram};
use crate::seats::{self, BESIDE, CLOCKS, SPARE};
use crate::{abuse, dist, fuzz, gpu, peers, setup, skip_rule, soak, tidy, tree};

/// A named part of the tests.
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    run: fn(&Path) -> Report,
}

/// All of them, in order.
pub(crate) const SUITES: &[Suite] = &[
    Suite { name: "tidy", about: "the rules of the tree", run: tidy::run },
    Suite { name: "unit", about: "unit and integration tests of all crates", run: unit },
    Suite {
        name: "golden",
        about: "a folder per case: capture in, expectation out; scapy as oracle",
        run: golden,
    },
    Suite { name: "own-stage", about: "a stage from outside the workspace", run: own_stage },
    Suite { name: "quickstart", about: "the demo, as a newcomer runs it", run: quickstart },
    Suite { name: "net", about: "the router among real programs, in network namespaces", run: net },
    Suite {
        name: "abuse",
        about: "attacks on a live router and switch; what a bystander loses",
        run: abuse::suite,
    },
    Suite {
        name: "dist",
        about: "the release with PTX inside; its packages install and start",
        run: dist::run,
    },
    Suite {
        name: "gpu",
        about: "the kit for a machine with a GPU packs, and runs on PoCL",
        run: gpu::run,
    },
    Suite { name: "soak", about: "a minute of random pipelines against a model", run: soak_minute },
    Suite { name: "lint", about: "rustfmt, clippy without warnings", run: lint },
    Suite {
        name: "docs",
        about: "examples in the docs; the docs build without warnings",
        run: docs,
    },
    Suite { name: "asan", about: "crates with unsafe code under AddressSanitizer", run: asan },
    Suite { name: "loom", about: "all interleavings of the lock-free parts", run: loom },
    Suite {
        name: "features",
        about: "what is built only with a feature that is off by default",
        run: features,
    },
    Suite { name: "fuzz", about: "each fuzz target, a few seconds", run: fuzz_smoke },
    Suite { name: "peers", about: "the rivals of the benches build", run: peers::run },
    Suite { name: "miri", about: "unit tests of unsafe code under Miri", run: miri },
    Suite {
        name: "valgrind",
        about: "crates whose futures and slots valgrind watches",
        run: valgrind,
    },
];

/// Crates with features that are off by default, and the modules of their tests (`--test all`) that concern them.
const FEATURES: &[(&str, &str, &[&str])] =
    &[("crypto", "aws-lc-rs", &["providers::", "vectors::", "packets::"])];

const TRIPLE: &str = "x86_64-unknown-linux-gnu";
pub(crate) const BUILD_LIMIT: Duration = Duration::from_secs(1500);
const PROGRAM_LIMIT: Duration = Duration::from_secs(900);
const FUZZ_SMOKE: Duration = Duration::from_secs(2);

/// Crates whose unsafe code AddressSanitizer watches.
const ASAN_CRATES: &[&str] =
    &["chunk", "io", "device", "interleave", "lookup", "classify", "crypto", "automata"];

/// What AddressSanitizer does not see: tests over large sets that touch memory as those over smaller ones do, or as the same
/// test of another structure does (`auto4` and `bspl` have the routes of the Internet).
const ASAN_SKIPS: &[&str] = &[
    "shared_sets",
    "a_flood_of_four_million",
    "poptrie::the_routes_of_the_internet",
    "dir24_8::the_routes_of_the_internet",
    "mtrie6::the_routes_of_the_internet",
];

/// Crates whose tests valgrind runs too: it sees reads of what was never written, AddressSanitizer does not.
const VALGRIND_CRATES: &[&str] = &["interleave"];

/// Crates whose unit tests Miri runs, with the modules chosen: those with unsafe code that make no system call and end in
/// minutes. Tests of `device` open libraries, which Miri cannot.
const MIRI_CRATES: &[(&str, &[&str])] =
    &[("chunk", &["arena::", "cell::", "columns::", "frame::"])];

/// What one suite found.
pub(crate) struct Report {
    name: &'static str,
    /// Its place among the suites: who waits for a seat goes in their order.
    rank: usize,
    pub(crate) counts: Counts,
    pub(crate) in_ci: bool,
    /// Building and testing, without waiting for others.
    seconds: f64,
    /// Of them: building.
    build_seconds: f64,
    /// What was run, and how long it took, seconds.
    times: Vec<(String, f64)>,
    log: Log,
    path: String,
    /// What PoCL has compiled, for all suites.
    pocl: PathBuf,
    /// Its tests look at no clock and have no peers: they take what processor time the others leave.
    pub(crate) has_time: bool,
}

impl Report {
    pub(crate) fn begin(root: &Path, name: &'static str) -> Report {
        Self::logging_to(root, name, name)
    }

    /// With another name for the log.
    fn logging_to(root: &Path, name: &'static str, log: &str) -> Report {
        Report {
            name,
            rank: SUITES.iter().position(|suite| suite.name == name).unwrap_or(SUITES.len()),
            counts: Counts::default(),
            in_ci: skip_rule::in_ci(),
            seconds: 0.0,
            build_seconds: 0.0,
            times: Vec::new(),
            log: Log::create(root, log),
            path: tree::search_path(root),
            pocl: tree::target_dir(root).join("pocl"),
            has_time: false,
        }
    }

    /// Does what another suite waits for too, at the place in the line of that suite.
    pub(crate) fn in_place_of<T>(&mut self, name: &str, work: impl FnOnce(&mut Report) -> T) -> T {
        let own = self.rank;
        self.rank = SUITES.iter().position(|suite| suite.name == name).unwrap_or(own).min(own);
        let result = work(self);
        self.rank = own;
        result
    }

    /// Prints a line with the suite's name before it: others print too.
    pub(crate) fn say(&self, line: &str) {
        println!("{:<10} {line}", self.name);
    }

    /// Runs a command that is one test by itself: passed where it exits with 0.
    pub(crate) fn run_one(
        &mut self,
        label: &str,
        command: &mut Command,
        limit: Duration,
    ) -> String {
        let outcome = self.test(label, command, limit);
        self.judge(label, outcome)
    }

    /// The same for a test that is a build.
    pub(crate) fn build_one(
        &mut self,
        label: &str,
        command: &mut Command,
        limit: Duration,
    ) -> String {
        let outcome = self.compile(label, command, limit, Log::run);
        self.judge(label, outcome)
    }

    fn judge(&mut self, label: &str, outcome: Outcome) -> String {
        match outcome.ok {
            true => self.counts.pass(),
            false => {
                self.counts.fail(format!("{label}: {}", outcome.end));
                print!("{}", outcome.output);
            }
        }
        outcome.output
    }

    /// The same for a script that skips with status 77; its last line says why.
    pub(crate) fn run_or_skip(
        &mut self,
        label: &str,
        command: &mut Command,
        limit: Duration,
    ) -> String {
        let outcome = self.test(label, command, limit);
        let last = outcome.output.lines().last().unwrap_or("no reason given");
        match outcome.end.as_str() {
            _ if outcome.ok => self.counts.pass(),
            "exit status: 77" => self.counts.skip(label, last, self.in_ci),
            end => {
                self.counts.fail(format!("{label}: {end}"));
                print!("{}", outcome.output);
            }
        }
        self.say(&format!("{label:<28} {:>7.1} s", self.last_time()));
        outcome.output
    }

    /// Most programs of kernels are asked for by several suites.
    fn pocl(&self) -> [(&'static str, &Path); 1] {
        [("POCL_CACHE_DIR", &self.pocl)]
    }

    /// Runs a test.
    fn test(&mut self, label: &str, command: &mut Command, limit: Duration) -> Outcome {
        command.env("PATH", &self.path).envs(self.pocl());
        let (_seat, command) = match self.has_time {
            true => (BESIDE.take(self.rank), &mut seats::idle(command)),
            false => (CLOCKS.take(self.rank), command),
        };
        let begun = Instant::now();
        let outcome = self.log.run(command, limit);
        self.took(label, begun);
        outcome
    }

    /// Runs a build.
    fn compile<T>(
        &mut self,
        label: &str,
        command: &mut Command,
        limit: Duration,
        run: impl FnOnce(&Log, &mut Command, Duration) -> T,
    ) -> T {
        let mut command = seats::idle(command.env("PATH", &self.path).envs(self.pocl()));
        let _seat = SPARE.take(self.rank);
        let begun = Instant::now();
        let outcome = run(&self.log, &mut command, limit);
        self.took(label, begun);
        self.build_seconds += self.last_time();
        outcome
    }

    /// Notes how long something took that began then.
    fn took(&mut self, label: &str, begun: Instant) {
        let seconds = begun.elapsed().as_secs_f64();
        self.times.push((format!("{}: {label}", self.name), seconds));
        self.seconds += seconds;
    }

    /// How long the last command took, seconds.
    fn last_time(&self) -> f64 {
        self.times.last().map_or(0.0, |(_, seconds)| *seconds)
    }

    /// Runs a build step: no test of its own, but a failure where it fails.
    pub(crate) fn build(&mut self, command: &mut Command, limit: Duration) -> bool {
        let outcome = self.compile("build", command, limit, Log::run);
        self.built(&outcome)
    }

    /// Says how long a build took, or how it failed.
    fn built(&mut self, outcome: &Outcome) -> bool {
        match outcome.ok {
            true => self.say(&format!("built in {:.1} s", self.last_time())),
            false => {
                self.counts.fail(format!("build: {}", outcome.end));
                print!("{}", outcome.output);
            }
        }
        outcome.ok
    }

    /// Runs a command that prints what Rust's harness prints.
    fn run_harness(&mut self, label: &str, command: &mut Command, limit: Duration) {
        let outcome = self.test(label, command, limit);
        self.read_harness(label, &outcome);
    }

    /// The same for one that compiles for most of its time.
    fn build_harness(&mut self, label: &str, command: &mut Command, limit: Duration) {
        let outcome = self.compile(label, command, limit, Log::run);
        self.read_harness(label, &outcome);
    }

    fn read_harness(&mut self, label: &str, outcome: &Outcome) {
        let mut counts = Counts::default();
        counts.read(label, &outcome.output, outcome.ok, &outcome.end, self.in_ci);
        if !counts.failures.is_empty() {
            print!("{}", outcome.output);
        }
        if counts != Counts::default() {
            let (passed, failed, skipped) =
                (counts.passed, counts.failures.len(), counts.skipped.len());
            let seconds = self.last_time();
            self.say(&format!(
                "{label:<28} {passed:>4} passed {failed:>3} failed {skipped:>3} skipped {seconds:>7.1} s"
            ));
        }
        self.counts.add(counts);
    }

    /// Builds test programs and returns those that this suite wants.
    pub(crate) fn test_programs(
        &mut self,
        cargo: &mut Command,
        wanted: impl Fn(&TestProgram) -> bool,
    ) -> Vec<TestProgram> {
        let mut programs = Vec::new();
        let found = |program: TestProgram| programs.extend(Some(program).filter(&wanted));
        match self.find_test_programs(cargo, found) {
            true => programs,
            false => Vec::new(),
        }
    }

    /// Builds test programs, and names each as soon as it is built.
    fn find_test_programs(
        &mut self,
        cargo: &mut Command,
        mut found: impl FnMut(TestProgram),
    ) -> bool {
        cargo.args(["--no-run", "--message-format=json-render-diagnostics"]);
        let mut each = |line: &str| libtest::test_program(line).into_iter().for_each(&mut found);
        let run = |log: &Log, cargo: &mut Command, limit| log.run_lines(cargo, limit, &mut each);
        let outcome = self.compile("build", cargo, BUILD_LIMIT, run);
        self.built(&outcome)
    }

    /// Builds test programs and runs those that this suite wants, each as soon as it is built, or as soon as all are built if it
    /// calls programs of its package: cargo builds those at any time. `builds` is the report of
    /// the build, with a log of its own.
    fn run_as_built(
        &mut self,
        mut builds: Report,
        cargo: &mut Command,
        wanted: impl Fn(&TestProgram) -> bool,
    ) {
        let (sender, programs) = mpsc::channel();
        thread::scope(|scope| {
            let builds = &mut builds;
            // Who runs them waits for all of them.
            scope.spawn(move || builds.find_test_programs(cargo, |own| drop(sender.send(own))));
            let mut later = Vec::new();
            for program in programs.iter().filter(wanted) {
                match program.may_call_programs() {
                    true => later.push(program),
                    false => self.run_programs(slice::from_ref(&program), &[], &[]),
                }
            }
            self.run_programs(&later, &[], &[]);
        });
        self.counts.add(builds.counts);
        self.seconds += builds.seconds;
        self.build_seconds += builds.build_seconds;
        self.times.extend(builds.times);
    }

    /// Runs the programs one after another.
    fn run_programs(&mut self, programs: &[TestProgram], args: &[&str], env: &[(&str, String)]) {
        for program in programs {
            let mut command = Command::new(&program.executable);
            command.current_dir(&program.dir).env("CARGO_MANIFEST_DIR", &program.dir);
            command.envs(env.iter().map(|(k, v)| (k, v))).arg("--show-output").args(args);
            self.run_harness(&program.label(), &mut command, PROGRAM_LIMIT);
        }
    }

    /// Runs the programs under another, on one thread.
    fn run_under(&mut self, runner: &str, options: &[&str], programs: &[TestProgram]) {
        for program in programs {
            let mut command = Command::new(runner);
            command.current_dir(&program.dir).args(options).arg(&program.executable);
            command.args(["--show-output", "--test-threads=1"]);
            self.run_harness(&program.label(), &mut command, PROGRAM_LIMIT);
        }
    }

    pub(crate) fn end(mut self) -> Report {
        // Whatever it was meant to find has moved away.
        if self.counts == Counts::default() {
            self.counts.fail(format!("{}: ran no test", self.name));
        }
        for line in &self.counts.failures {
            self.log.note(&format!("failed: {line}"));
        }
        let Counts { passed, failures, skipped } = &self.counts;
        let line = format!("{passed} passed, {} failed, {} skipped", failures.len(), skipped.len());
        self.say(&line);
        self
    }
}

/// The suites named; all for none.
pub(crate) fn parse_names(args: &[String]) -> Result<Vec<&'static str>, String> {
    let known = |name: &String| SUITES.iter().find(|s| s.name == name).map(|s| s.name);
    if args.is_empty() {
        return Ok(SUITES.iter().map(|s| s.name).collect());
    }
    args.iter().map(|a| known(a).ok_or_else(|| format!("no such suite: {a}"))).collect()
}

/// A suite whose first step is a long build that needs nothing from outside: it is built while that is installed.
const BUILT_FIRST: &str = "unit";

/// Installs, runs, counts.
pub(crate) fn test(root: &Path, chosen: &[&str]) -> ExitCode {
    let begun = Instant::now();
    let mut setup_seconds = 0.0;
    let reports = thread::scope(|scope| {
        // No test begins before all is installed.
        let tests = CLOCKS.take(usize::MAX);
        let suites = SUITES.iter().filter(|s| chosen.contains(&s.name));
        let start = |s: &'static Suite| (s, scope.spawn(|| (s.run)(root)));
        let (first, others): (Vec<_>, Vec<_>) = suites.partition(|s| s.name == BUILT_FIRST);
        let mut running: Vec<_> = first.into_iter().map(start).collect();
        // What stays missing is named there, and again by each test that skips or fails for it.
        let _ = setup::ensure(root, chosen);
        setup_seconds = begun.elapsed().as_secs_f64();
        let builds = running.is_empty().then(|| SPARE.take(usize::MAX));
        running.extend(others.into_iter().map(start));
        running.sort_by_key(|(suite, _)| SUITES.iter().position(|own| own.name == suite.name));
        // They stand in line before the first one has a seat.
        thread::sleep(Duration::from_millis(300));
        drop((tests, builds));
        let ended = running.into_iter().map(|(suite, thread)| {
            thread.join().unwrap_or_else(|_| {
                let mut report = Report::begin(root, suite.name);
                report.counts.fail(format!("{}: the runner itself panicked", suite.name));
                report
            })
        });
        ended.collect()
    });
    finish_in(Wall { all: begun.elapsed().as_secs_f64(), setup: setup_seconds }, reports)
}

/// One suite, without installing.
pub(crate) fn only(root: &Path, name: &str) -> ExitCode {
    finish(SUITES.iter().filter(|s| s.name == name).map(|s| (s.run)(root)).collect())
}

/// How many of the slowest are named.
const SLOWEST: usize = 10;

/// Prints the counts of what ran one after another.
pub(crate) fn finish(reports: Vec<Report>) -> ExitCode {
    let all = reports.iter().map(|report| report.seconds).sum();
    finish_in(Wall { all, setup: 0.0 }, reports)
}

/// What a run took, seconds.
struct Wall {
    /// All of it: less than the sum of the suites, which run side by side.
    all: f64,
    /// Before the first test, while what is missing was installed.
    setup: f64,
}

/// Prints the table, the slowest and the last line; failure where any test failed or none ran.
fn finish_in(wall: Wall, reports: Vec<Report>) -> ExitCode {
    let mut total = Counts::default();
    let (mut seconds, mut build_seconds) = (0.0, 0.0);
    println!(
        "\n{:<12} {:>7} {:>7} {:>8} {:>9} {:>9}",
        "suite", "passed", "failed", "skipped", "seconds", "building"
    );
    for report in &reports {
        let Counts { passed, failures, skipped } = &report.counts;
        let (failed, skipped) = (failures.len(), skipped.len());
        println!(
            "{:<12} {passed:>7} {failed:>7} {skipped:>8} {:>9.1} {:>9.1}",
            report.name, report.seconds, report.build_seconds
        );
        total.add(report.counts.clone());
        seconds += report.seconds;
        build_seconds += report.build_seconds;
    }
    println!(
        "{:<12} {:>7} {:>7} {:>8} {seconds:>9.1} {build_seconds:>9.1}",
        "all",
        total.passed,
        total.failures.len(),
        total.skipped.len()
    );
    let mut times: Vec<&(String, f64)> = reports.iter().flat_map(|own| &own.times).collect();
    times.sort_by(|a, b| b.1.total_cmp(&a.1));
    if !times.is_empty() {
        println!("\n{:>9.1} s  the whole run", wall.all);
        println!("{:>9.1} s  of it setup, beside the first build\nslowest:", wall.setup);
    }
    for (label, seconds) in times.iter().take(SLOWEST) {
        println!("{seconds:>9.1} s  {label}");
    }
    println!();
    for line in &total.skipped {
        println!("skipped: {line}");
    }
    for line in &total.failures {
        println!("failed: {line}");
    }
    println!();
    println!(
        "{} passed, {} failed, {} skipped",
        total.passed,
        total.failures.len(),
        total.skipped.len()
    );
    match total.failures.is_empty() && total.passed > 0 {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

pub(crate) fn cargo(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(root).args(args);
    command
}

/// Tests in namespaces and whole-program cases have suites of their own.
fn is_net(program: &TestProgram) -> bool {
    program.target.starts_with("net_")
}

fn is_golden(program: &TestProgram) -> bool {
    program.target.starts_with("golden")
}

fn lint(root: &Path) -> Report {
    let mut report = Report::begin(root, "lint");
    report.build_one("rustfmt", &mut cargo(root, &["fmt", "--all", "--check"]), BUILD_LIMIT);
    let clippy = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
    report.build_one("clippy", &mut cargo(root, &clippy), BUILD_LIMIT);
    report.end()
}

fn unit(root: &Path) -> Report {
    let mut report = Report::begin(root, "unit");
    let builds = Report::logging_to(root, "unit", "unit-build");
    let mut build = cargo(root, &["test", "--workspace"]);
    report.run_as_built(builds, &mut build, |p| !is_net(p) && !is_golden(p));
    report.end()
}

fn docs(root: &Path) -> Report {
    let mut report = Report::begin(root, "docs");
    let mut examples = cargo(root, &["test", "--workspace", "--doc", "--", "--show-output"]);
    report.build_harness("examples", &mut examples, BUILD_LIMIT);
    let mut build = cargo(root, &["doc", "--quiet", "--workspace", "--no-deps"]);
    report.build_one("docs", build.env("RUSTDOCFLAGS", "-D warnings"), BUILD_LIMIT);
    report.end()
}

/// The program as users run it; the suites that need it share the build.
pub(crate) fn release_program(
    root: &Path,
    report: &mut Report,
) -> Option<Vec<(&'static str, String)>> {
    dist::release(root, report)
        .map(|program| vec![("SHADELINE_BIN", program.display().to_string())])
}

fn golden(root: &Path) -> Report {
    let mut report = Report::begin(root, "golden");
    if let Some(env) = release_program(root, &mut report) {
        let programs = report.test_programs(&mut cargo(root, &["test", "--workspace"]), is_golden);
        report.run_programs(&programs, &[], &env);
    }
    report.end()
}

/// The package that no file of the workspace knows.
/// A program of one's own, also the one that is built without Parquet.
fn own_stage(root: &Path) -> Report {
    let mut report = Report::begin(root, "own-stage");
    let folder = root.join("examples/own-stage");
    let cargo = |args: &[&str]| {
        let mut command = cargo(&folder, &["--config", "profile.dev.package.\"*\".debug=false"]);
        command.args(args);
        // What others wrote is built there already, as the workspace's profile has it.
        command.env("CARGO_TARGET_DIR", tree::target_dir(root));
        command.env("CARGO_PROFILE_DEV_DEBUG", "false");
        command
    };
    let programs = report.test_programs(&mut cargo(&["test", "--locked"]), |_| true);
    report.run_programs(&programs, &[], &[]);
    // The program that the tests have had built; `cargo run` would build it again, without the features of their crates.
    let mut check = Command::new(tree::target_dir(root).join("debug/own-stage"));
    report.run_one("check", check.current_dir(&folder).args(["check", "dscp.toml"]), PROGRAM_LIMIT);
    report.end()
}

fn net(root: &Path) -> Report {
    let mut report = Report::begin(root, "net");
    if let Some(env) = release_program(root, &mut report) {
        let programs = report.test_programs(&mut cargo(root, &["test", "--workspace"]), is_net);
        // One at a time: they measure loss and rates, and two cores are few.
        report.run_programs(&programs, &["--test-threads=1"], &env);
    }
    report.end()
}

/// What the demo must speak of.
const DEMO_WORDS: &[&str] = &["port", "drop", "stage", "packets", "pps"];
/// How long it may take, seconds.
const DEMO_LIMIT: f64 = 5.0;

fn quickstart(root: &Path) -> Report {
    let mut report = Report::begin(root, "quickstart");
    if release_program(root, &mut report).is_none() {
        return report.end();
    }
    let mut quickest = f64::MAX;
    // A busy machine may spoil one run; a slow program spoils all three.
    for _ in 0..3 {
        let mut demo = cargo(root, &["run", "--release", "--quiet", "--", "demo"]);
        demo.envs(dist::with_ptx(root));
        let output = report.run_one("demo", &mut demo, Duration::from_secs(60)).to_lowercase();
        quickest = quickest.min(report.last_time());
        for word in DEMO_WORDS.iter().filter(|w| !output.contains(**w)) {
            report.counts.fail(format!("demo: says nothing of {word}"));
        }
        if quickest < DEMO_LIMIT || !report.counts.failures.is_empty() {
            break;
        }
    }
    report.say(&format!("demo: {quickest:.1} s"));
    if quickest >= DEMO_LIMIT {
        report.counts.fail(format!("demo: took {quickest:.1} s"));
    }
    report.end()
}

fn loom(root: &Path) -> Report {
    let mut report = Report::begin(root, "loom");
    report.has_time = true;
    let mut build = cargo(root, &["test", "--lib"]);
    for name in crates_with_loom(root) {
        build.args(["-p", &name]);
    }
    build
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", tree::target_dir(root).join("loom"));
    // Outside of its models loom's types panic, so only tests that say so in their path run.
    let preemptions = [("LOOM_MAX_PREEMPTIONS", "3".to_string())];
    for program in report.test_programs(&mut build, |_| true) {
        let before = report.counts.passed;
        report.run_programs(slice::from_ref(&program), &["loom", "model::"], &preemptions);
        if report.counts.passed == before && report.counts.failures.is_empty() {
            let name = program.label();
            let why = "uses loom::model, but no test called loom or model ran";
            report.counts.fail(format!("{name}: {why}"));
        }
    }
    report.end()
}

fn crates_with_loom(root: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for file in tree::tracked_files(root) {
        let parts: Vec<_> = file.iter().map(|p| p.to_string_lossy()).collect();
        if parts.first().is_none_or(|p| p != "crates") || file.extension().is_none_or(|e| e != "rs")
        {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(root.join(&file)) else { continue };
        let name = parts[1].to_string();
        if text.contains("loom::model") && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn features(root: &Path) -> Report {
    let mut report = Report::begin(root, "features");
    report.has_time = true;
    for (name, feature, tests) in FEATURES {
        let mut build = cargo(root, &["test", "-p", name, "--features", feature, "--test", "all"]);
        let programs = report.test_programs(&mut build, |_| true);
        report.run_programs(&programs, tests, &[]);
    }
    report.end()
}

fn soak_minute(root: &Path) -> Report {
    soak::run(root, soak::Options::SUITE)
}

fn fuzz_smoke(root: &Path) -> Report {
    fuzz::run(root, FUZZ_SMOKE, Some(1), &[])
}

fn asan(root: &Path) -> Report {
    let mut report = Report::begin(root, "asan");
    let mut build = cargo(root, &["test", "--target", TRIPLE, "--lib", "--tests"]);
    for name in ASAN_CRATES {
        build.args(["-p", name]);
    }
    build.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    build.env("CARGO_TARGET_DIR", tree::target_dir(root).join("asan"));
    let programs = report.test_programs(&mut build, |p| !is_net(p));
    let suppressions = root.join("xtask/lsan.supp");
    // The random cases ran in full already; here the memory accesses count.
    // PoCL's threads have signal stacks of their own, which the sanitizer must not unmap.
    let options = |more: &str| ("ASAN_OPTIONS", format!("use_sigaltstack=0{more}"));
    let env = |more: &str| {
        [
            ("PROPTEST_CASES", "16".to_string()),
            ("LSAN_OPTIONS", format!("suppressions={}", suppressions.display())),
            options(more),
        ]
    };
    // OpenCL's libraries leave memory behind, and what a device that hangs may still touch is left to it on
    // purpose: leaks say nothing there, wrong accesses all the more.
    let (device, others): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|program| program.label().starts_with("device"));
    let args: Vec<&str> = ASAN_SKIPS.iter().flat_map(|name| ["--skip", name]).collect();
    report.has_time = true;
    report.run_programs(&others, &args, &env(""));
    // Devices have time limits, so they wait for the seat of clocks, last.
    report.has_time = false;
    report.run_programs(&device, &args, &env(":detect_leaks=0"));
    report.end()
}

fn valgrind(root: &Path) -> Report {
    let mut report = Report::begin(root, "valgrind");
    report.has_time = true;
    let mut build = cargo(root, &["test", "--lib", "--tests"]);
    for name in VALGRIND_CRATES {
        build.args(["-p", name]);
    }
    let programs = report.test_programs(&mut build, |_| true);
    // Rust's own record of the main thread counts as possibly lost.
    let options =
        ["-q", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite"];
    report.run_under("valgrind", &options, &programs);
    report.end()
}

/// Miri needs a nightly toolchain, which `cargo xtask setup miri` brings.
fn miri(root: &Path) -> Report {
    let mut report = Report::begin(root, "miri");
    report.has_time = true;
    if !setup::has_miri() {
        report.counts.skip("miri", "no Miri (`cargo xtask setup miri`)", report.in_ci);
        return report.end();
    }
    for (name, tests) in MIRI_CRATES {
        let mut command = cargo(root, &["+nightly", "miri", "test", "-p", name, "--lib", "--"]);
        command.arg("--show-output").args(*tests);
        // Time and threads are real ones; regions of cells live as long as the process.
        command.env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-ignore-leaks");
        // The random cases ran in full already; here the memory accesses count.
        command.env("PROPTEST_CASES", "2");
        command.env("CARGO_TARGET_DIR", tree::target_dir(root).join("miri"));
        report.run_harness(name, &mut command, BUILD_LIMIT);
    }
    report.end()
}
