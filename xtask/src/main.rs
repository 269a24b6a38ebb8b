//! Chores: `cargo xtask COMMAND`.
//!
//! One program installs what the tests need, runs every suite, builds the peers of the benches and keeps the
//! tree tidy. It has no dependency, so it is there seconds after the checkout.
#![forbid(unsafe_code)]

mod abuse;
mod dist;
mod exec;
mod fuzz;
mod gpu;
mod json;
mod libtest;
mod packages;
mod peers;
mod seats;
mod setup;
mod skip_rule;
mod soak;
mod suites;
mod tidy;
mod tree;

use std::process::ExitCode;
use std::time::Duration;

const HELP: &str = "\
Chores of the project.

usage: cargo xtask COMMAND

  test [SUITE…]                install what is missing, run the suites (all by default), print the counts
  setup [SUITE…]               only the installing: as root it installs, otherwise it names the commands
  tidy                         the rules of the tree: layers, arguments of safety, data, links
  peers                        build the rivals of `shadeline bench` from bench/peers into target/peers
  dist                         build the release with PTX inside, for a driver without NVRTC, and its tarball, Debian
                               package and container image: target/dist
  gpu                          pack all that a machine with a GPU needs to test and measure: target/gpu-kit
  fuzz [--seconds N] [TARGET…] run fuzz targets (60 s each by default)
  soak [--minutes N] [--seed S] [--count N]
                               random pipelines of the engine against a model (10 minutes by default)
  abuse [OPTION…]              attacks on a live router and switch, as root: what a bystander loses; options: --short,
                               --seconds N, --rate PPS, --only NAME[,NAME…], --same-port, --mixed SECONDS, --json FILE
  help                         this text

suites, in their order:
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let root = tree::root();
    match args.first().map(String::as_str) {
        Some("test") => match suites::parse_names(&args[1..]) {
            Ok(chosen) => suites::test(&root, &chosen),
            Err(message) => usage(&message),
        },
        Some("setup") => match suites::parse_names(&args[1..]) {
            Ok(chosen) => match setup::ensure(&root, &chosen) {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            },
            Err(message) => usage(&message),
        },
        Some("tidy") => suites::only(&root, "tidy"),
        Some("peers") => suites::only(&root, "peers"),
        Some("dist") => {
            setup::ensure(&root, &["dist"]);
            suites::finish(vec![dist::make(&root)])
        }
        Some("gpu") => {
            setup::ensure(&root, &["dist"]);
            suites::finish(vec![gpu::kit(&root)])
        }
        Some("fuzz") => match parse_fuzz(&args[1..]) {
            Ok((seconds, targets)) => {
                suites::finish(vec![fuzz::run(&root, seconds, None, &targets)])
            }
            Err(message) => usage(&message),
        },
        Some("soak") => match soak::Options::parse(&args[1..]) {
            Ok(options) => suites::finish(vec![soak::run(&root, options)]),
            Err(message) => usage(&message),
        },
        Some("abuse") => {
            setup::ensure(&root, &["abuse"]);
            suites::finish(vec![abuse::run(&root, &args[1..])])
        }
        None | Some("help" | "--help" | "-h") => {
            print!("{HELP}");
            for suite in suites::SUITES {
                println!("  {:<12} {}", suite.name, suite.about);
            }
            println!(
                "\nLogs: target/test-logs/SUITE.log. With CI=true a skipped test is a failure, unless its reason is a"
            );
            println!("missing GPU, NIC or ../shared.");
            ExitCode::SUCCESS
        }
        Some(other) => usage(&format!("no such command: {other}")),
    }
}

fn usage(message: &str) -> ExitCode {
    eprintln!("xtask: {message}; see `cargo xtask help`");
    ExitCode::from(2)
}

fn parse_fuzz(args: &[String]) -> Result<(Duration, Vec<String>), String> {
    let mut seconds = 60;
    let mut targets = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seconds" => {
                let value = args.next().ok_or("--seconds wants a number")?;
                seconds =
                    value.parse().map_err(|_| format!("--seconds wants a number, not {value}"))?;
            }
            option if option.starts_with('-') => return Err(format!("no such option: {option}")),
            target => targets.push(target.to_string()),
        }
    }
    Ok((Duration::from_secs(seconds), targets))
}
