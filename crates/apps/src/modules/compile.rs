//! `check` compiles the sources of modules: the compiler of a device has the last word about them.
//!
//! The device is that of the configuration, or else one that is there. Nothing is launched.

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
                Err(DeviceError::Build { log, .. }) => {
                    let log = own.explained(&log);
                    if !refused(config, &log, findings) {
                        findings
                            .error_of_all(format!("the sources of modules do not compile: {log}"));
                    }
                }
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

/// Adds the errors of a log that have their places in sources; whether there are some.
pub(super) fn refused(config: &Config, log: &str, findings: &mut Findings) -> bool {
    let sources = config.modules.iter().filter_map(|module| module.source.as_ref());
    let sources: Vec<&ModuleSource> = sources.collect();
    let mut any = false;
    for line in log.lines() {
        let of = |source: &&ModuleSource| place(line, &source.path.display().to_string());
        if let Some((path, (at, message))) =
            sources.iter().find_map(|source| Some((&source.path, of(source)?)))
        {
            any = true;
            findings.error_at(path, at, message);
        }
    }
    any
}

/// Line, column and message of a line of a log about a file, `FILE:LINE:COLUMN: message` or without the column.
fn place<'a>(text: &'a str, file: &str) -> Option<((u64, Option<u64>), &'a str)> {
    let rest = text.strip_prefix(file)?.strip_prefix(':')?;
    let (line, rest) = rest.split_once(':')?;
    let column = rest.split_once(':').and_then(|(column, rest)| Some((column.parse().ok()?, rest)));
    let (column, message) = column.map_or((None, rest), |(column, rest)| (Some(column), rest));
    Some(((line.parse().ok()?, column), message.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_log_have_their_place() {
        for (text, expected) in [
            ("own.k:4:20: no member named 'tll'", Some(((4, Some(20)), "no member named 'tll'"))),
            ("own.k:12: too few arguments", Some(((12, None), "too few arguments"))),
            ("own.k:12: expected a:b", Some(((12, None), "expected a:b"))),
            ("other.k:4:20: no", None),
            ("own.k: no", None),
        ] {
            assert_eq!(place(text, "own.k"), expected, "{text}");
        }
    }
}
