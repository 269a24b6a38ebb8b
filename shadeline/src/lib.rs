//! The program: commands over the libraries. What a packet lives through is wired in `wiring`.
//!
//! It is a library, so that a package of one's own makes a program with stages of its own beside the shipped ones
//! ([`main_with`]; docs/own-stage.md).

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)] // see `output`

mod backend;
mod check;
mod classify;
mod cli;
mod color;
mod compilers;
mod ctl;
mod demo;
mod devices;
mod drops;
mod earlier;
mod failure;
mod gen_packets;
mod gen_rules;
mod help;
mod ids;
mod interrupt;
mod l7;
mod live;
mod log;
mod lpm;
mod manual;
mod measure;
mod names;
mod offline;
mod output;
mod pipelines;
mod ports;
mod privileges;
mod programs;
mod report;
mod service;
mod stages;
mod streams;
mod top;
mod traffic;
mod twins;
mod wiring;

#[cfg(feature = "count-allocations")]
use std::alloc::System;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use cli::{Cli, Command, GenCommand};
use controlplane::Descriptor;
use failure::Failure;
#[cfg(feature = "count-allocations")]
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

/// Counts allocations, so that `bench forward` can show that packets need none.
#[cfg(feature = "count-allocations")]
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Runs the program with the shipped applications.
pub fn main() -> ExitCode {
    main_with(&[])
}

/// Runs the program with these applications beside the shipped ones.
pub fn main_with(own: &[&'static Descriptor]) -> ExitCode {
    pipelines::add(own);
    let color = color::choose(std::env::args_os().skip(1));
    let args = match cli::words::of_command_line(std::env::args_os().collect()) {
        Ok(args) => args,
        Err(message) => return Failure::usage(message).report(),
    };
    let done = match (help::wanted(std::env::args_os()), parse(Cli::command().color(color), args)) {
        (Some(words), _) => help::run(&words),
        (None, Ok(cli)) => run(cli.command),
        (None, Err(message)) => return explain(&message),
    };
    match done {
        Ok(()) => {
            log::finish();
            ExitCode::SUCCESS
        }
        Err(failure) => failure.report(),
    }
}

/// The command line.
fn parse(mut command: clap::Command, args: Vec<OsString>) -> Result<Cli, clap::Error> {
    let first = args.get(1).cloned();
    let matches = command.try_get_matches_from_mut(args);
    let matches = matches.map_err(|error| {
        let first = first.as_deref();
        with_tip(with_ctl(error, first, &command), first)
    })?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Suggests `ctl stop` for `stop`: what a running instance is told begins with `ctl`.
fn with_ctl(mut error: clap::Error, first: Option<&OsStr>, command: &clap::Command) -> clap::Error {
    use clap::error::{ContextKind, ContextValue};
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let ctl = command.find_subcommand("ctl").and_then(|ctl| ctl.find_subcommand(word));
    if let Some(own) = ctl.filter(|_| first.is_some_and(|first| first == word.as_str())) {
        let suggested = vec![format!("ctl {}", own.get_name())];
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(suggested));
    }
    error
}

/// Says what stands for options of Suricata and Snort, and for files without an option.
fn with_tip(mut error: clap::Error, first: Option<&OsStr>) -> clap::Error {
    use clap::error::{ContextKind, ContextValue};
    let command = first.and_then(OsStr::to_str).filter(|first| matches!(*first, "ids" | "l7"));
    let (Some(command), Some(ContextValue::String(word))) =
        (command, error.get(ContextKind::InvalidArg))
    else {
        return error;
    };
    if error.kind() != clap::error::ErrorKind::UnknownArgument
        || error.get(ContextKind::SuggestedArg).is_some()
    {
        return error;
    }
    let tip = match (word.as_str(), command) {
        ("-c", "ids") => {
            "a suricata.yaml or snort.conf is not read; variables are given with --set, other settings with --config"
                .to_owned()
        }
        ("-s", "ids") => "rules are given with -S".to_owned(),
        ("-i", _) => {
            format!("live traffic is inspected by `shadeline run` with [{command}] in its configuration")
        }
        (word, _) if word.starts_with('-') => return error,
        (word, "ids") if word.contains(".rules") => "rules are given with -S".to_owned(),
        _ => "captures are given with -r".to_owned(),
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

/// Prints the help that was requested, or what is wrong with the command line.
fn explain(message: &clap::Error) -> ExitCode {
    use std::io::Write;
    let printed = message.print().and_then(|()| std::io::stdout().flush());
    match printed {
        Err(error) if !message.use_stderr() => Failure::standard_output(error).report(),
        _ => ExitCode::from(message.exit_code() as u8),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::Run(args) if args.read.is_empty() => live::run(&args),
        Command::Run(args) => offline::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Restore => earlier::restore(),
        Command::Ctl(args) => ctl::run(&args),
        Command::Stages(args) => stages::run(&args),
        Command::Streams(args) => streams::run(&args),
        Command::L7(args) => l7::run(&args),
        Command::Ids(args) => ids::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Lpm(args) => lpm::run(&args),
        Command::Names(args) => names::run(&args),
        Command::Classify(args) => classify::run(&args),
        Command::Gen(GenCommand::Packets(args)) => gen_packets::run(&args),
        Command::Gen(GenCommand::Rules(args)) => gen_rules::rules(&args),
        Command::Gen(GenCommand::Trace(args)) => gen_rules::trace(&args),
        Command::Measure(args) => measure::run(&args),
        Command::Bench(args) => {
            #[cfg(feature = "count-allocations")]
            let allocations: Option<fn() -> u64> = Some(|| ALLOCATOR.stats().allocations as u64);
            #[cfg(not(feature = "count-allocations"))]
            let allocations = None;
            let probes = bench::Probes { allocations };
            bench::check_backend(&args).map_err(Failure::usage)?;
            bench::run(&args, probes).map_err(Failure::other)
        }
        Command::Programs { pack } => programs::run(pack.as_deref()),
        Command::Compile => compilers::compile(),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "shadeline", &mut script);
            output::print(format_args!("{}", String::from_utf8_lossy(&script)))
        }
        Command::Man { folder } => manual::write(&folder),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_ctl_is_found_there() {
        let told = |words: &str| {
            let words = std::iter::once("shadeline").chain(words.split(' ')).map(OsString::from);
            parse(Cli::command(), words.collect()).unwrap_err().to_string()
        };
        assert!(told("stop").contains("a similar subcommand exists: 'ctl stop'"));
        assert!(told("show ports").contains("exists: 'ctl show'"));
        assert!(told("demoo").contains("exists: 'demo'"));
        assert!(!told("bench stop").contains("ctl"));
    }
}
