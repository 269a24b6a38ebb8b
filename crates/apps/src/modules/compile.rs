//! `check` compiles the sources of modules: the compiler of a device has the last word about them.
//!
//! The device is that of the configuration, or else one that is there. Nothing is launched.

use std::path::Path;
use std::sync::Arc;

use control::config::{Config, EngineBackend, ModuleSource};
use controlplane::Findings;
use device::DeviceError;
use device::driver::{Api, Driver};
use device::probe;
use engine::Stage;

use super::counters::Counters;
use super::gather::Shared;
use super::kernels::{KernelShade, Sources};
use super::stage::{Group, Modules, Parts};

/// Adds what the compiler says of these sources, with the lines of their files.
pub(super) fn check(config: &Config, sources: &[Sources], findings: &mut Findings) {
    if sources.iter().all(Sources::is_empty) {
        return;
    }
    let mut driver = match open(config) {
        Ok(driver) => driver,
        Err(why) => {
            return findings
                .warn_of_all(format!("the sources of modules were not compiled: {why}"));
        }
    };
    for (at, own) in sources.iter().enumerate().filter(|(_, own)| !own.is_empty()) {
        let stages: Vec<Box<dyn Stage<()>>> = vec![Box::new(stage(config, sources, at, own))];
        let programs = match engine::device_programs(&stages) {
            Ok(programs) => programs,
            Err(error) => return findings.error_of_all(error),
        };
        for (program, kernels) in programs {
            let names: Vec<&str> = kernels.iter().map(String::as_str).collect();
            match driver.build(&program, &names) {
                Ok(_) => {}
                Err(DeviceError::Build { log, .. }) => refused(config, &log, findings),
                Err(error) => {
                    return findings
                        .warn_of_all(format!("the sources of modules were not compiled: {error}"));
                }
            }
        }
    }
}

/// The stage of a group, with its kernels alone.
fn stage(config: &Config, all: &[Sources], at: usize, own: &Sources) -> Modules {
    Modules::new(Parts {
        name: super::STAGE,
        group: Group::of(config, all, at),
        gathered: Shared::default(),
        rust: Vec::new(),
        kernels: Some(Arc::new(KernelShade::new(Arc::new(own.clone())))),
        by_port: vec![u32::MAX],
        contexts: Arc::from([]),
        counters: Arc::new(Counters::new(Vec::new())),
        needs_one_worker: None,
        shares: false,
    })
}

/// The first device of the configuration that is one, or any.
fn open(config: &Config) -> Result<Box<dyn Driver>, String> {
    let engine = &config.engine;
    let named = engine.devices.iter().chain([&engine.backend]).find_map(|backend| match backend {
        EngineBackend::OpenCl(number) => Some((Api::OpenCl, *number)),
        EngineBackend::Cuda(number) => Some((Api::Cuda, *number)),
        EngineBackend::Auto | EngineBackend::Cpu | EngineBackend::Sim => None,
    });
    let place = named.or_else(|| {
        let mut found = probe::devices().into_iter().filter_map(|probe| probe.found.ok());
        found.next().map(|info| (info.api, info.number))
    });
    let Some((api, number)) = place else {
        return Err("no device was found; `shadeline devices` gives the reason".to_owned());
    };
    probe::open(api, number).map_err(|error| error.to_string())
}

/// Adds the errors of a compiler's log.
fn refused(config: &Config, log: &str, findings: &mut Findings) {
    let sources = config.modules.iter().filter_map(|module| module.source.as_ref());
    let sources: Vec<&ModuleSource> = sources.collect();
    let mut any = false;
    // A log of which only the errors are left has none that is marked.
    let is_marked = log.contains("error:");
    for line in log.lines().filter(|line| !is_marked || line.contains("error")) {
        let found = sources.iter().find_map(|source| Some((source, place(line, &source.file)?)));
        if let Some((ModuleSource { path, .. }, (line, message))) = found {
            any = true;
            findings.error(Path::new(path), Some(line), message);
        }
    }
    if !any {
        findings.error_of_all(format!("the sources of modules do not compile: {log}"));
    }
}

/// The line and the message of a line of a log about a file, as clang (`f.k:4:20: error: …`) and NVRTC (`f.k(4): error: …`)
/// write them.
fn place(text: &str, file: &str) -> Option<(u64, String)> {
    let (_, rest) =
        text.split_once(&format!("{file}:")).or_else(|| text.split_once(&format!("{file}(")))?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let line = rest[..digits].parse().ok()?;
    let rest = rest[digits..].trim_start_matches(|c: char| c.is_ascii_digit() || ":) ".contains(c));
    Some((line, rest.strip_prefix("error:").unwrap_or(rest).trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_log_have_their_place() {
        for (text, expected) in [
            ("own.k:4:20: error: no member named 'tll'", Some((4, "no member named 'tll'"))),
            ("error: own.k:4:20: no member named 'tll'", Some((4, "no member named 'tll'"))),
            ("own.k(12): error: too few arguments", Some((12, "too few arguments"))),
            ("other.k:4:20: error: no", None),
            ("own.k: error: no", None),
        ] {
            let found = place(text, "own.k");
            let found = found.as_ref().map(|(line, message)| (*line, message.as_str()));
            assert_eq!(found, expected, "{text}");
        }
    }
}
