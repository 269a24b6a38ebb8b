//! `shadeline programs`: the device programs that this build can ask for; for `cargo xtask dist`.
//!
//! The code that sets up kernels runs on a driver that only records the programs that it should build.

use std::path::Path;
use std::sync::Arc;

use chunk::CHUNK_PACKETS_MAX;
use control::config::Config;
use controlplane::{Descriptor, Interfaces};
use device::driver::Program;
use device::embedded::{self, Recorded};
use device::tables::NoTables;
use device::{accelerator, measure, selftest};
use engine::{DeviceKind, DeviceSpec, Policy, UnderWay};
use kernels::{KernelFile, Spec};

use crate::failure::Failure;
use crate::output::say;
use crate::pipelines;
use crate::wiring::{self, Plan};

/// Ports to wire a pipeline to; no packet passes.
const CONFIG: &str = include_str!("../data/demo.toml");

/// Prints each program and whether this build brings its PTX; or compiles them all into a file.
pub(crate) fn run(pack: Option<&Path>) -> Result<(), Failure> {
    let programs = all()?;
    if let Some(path) = pack {
        let pack = embedded::pack(&programs).map_err(Failure::other)?;
        say!("{} programs, {} bytes of text and PTX", programs.len(), pack.len())?;
        return write_if_changed(path, &pack).map_err(|error| Failure::file(path, error));
    }
    let mut missing = 0;
    for program in &programs {
        let ptx = embedded::ptx(program);
        missing += usize::from(ptx.is_none());
        let found = ptx.map_or("no PTX".to_owned(), |ptx| format!("{} bytes of PTX", ptx.len()));
        say!("{:<24} {:>6} bytes of source, {found}", program.name, program.source.len())?;
    }
    match missing {
        0 => Ok(()),
        missing => Err(Failure::other(format!(
            "{missing} of {} programs need a compiler on the machine: build with `cargo xtask dist`",
            programs.len()
        ))),
    }
}

/// Every file of kernels: those that a device must answer for before it is used.
pub(crate) fn kernel_files() -> Vec<&'static KernelFile> {
    let own = pipelines::descriptors().iter().flat_map(|own| own.kernels);
    kernels::files::ALL.iter().chain(own).copied().collect()
}

/// Every program: of the self-test, of the measurements and benchmarks, of each usual pipeline, of those with a stage that needs
/// keys, and each file of kernels alone.
fn all() -> Result<Vec<Program>, Failure> {
    let recorded = Recorded::default();
    // The answers are wrong, for nothing runs; the programs are right.
    selftest::each(&mut recorded.driver(), &kernel_files());
    recorded.add(measure::program());
    bench::programs().into_iter().for_each(|program| recorded.add(program));
    for file in kernel_files() {
        let spec = Spec::of_file(file);
        let (name, source) = (spec.name.to_owned(), kernels::source(&spec));
        recorded.add(Program { name, source, defines: Vec::new(), ptx: None });
    }
    let (config, _) = control::config::parse(CONFIG, &pipelines::known())
        .map_err(|d| Failure::other(control::config::render(&d, "demo.toml", CONFIG, false)))?;
    for stages in pipelines::of_needed_keys() {
        let mut config = config.clone();
        pipelines::with_stages(&mut config, &stages).map_err(Failure::other)?;
        record(&config, &recorded)?;
        // A second one with other keys: where several stages decode, records are columns.
        config.pipeline.stages.insert(1, format!("{}.2", stages[0]));
        config.pipeline.kinds.insert(1, stages[0].to_owned());
        config.stage_lines = vec![vec![None; 3]];
        record(&config, &recorded)?;
    }
    for stages in pipelines::usual() {
        let has_stage =
            |own: &&&Descriptor| own.stages.iter().any(|kind| stages.contains(&kind.name));
        let with = pipelines::descriptors().iter().filter(has_stage);
        for variant in std::iter::once(None).chain(with.flat_map(|own| own.variants).map(Some)) {
            let mut config = config.clone();
            if let Some(variant) = variant {
                variant(&mut config);
            }
            pipelines::with_stages(&mut config, &stages).map_err(Failure::other)?;
            pipelines::known().part(&mut config);
            record(&config, &recorded)?;
        }
    }
    Ok(recorded.programs())
}

/// Starts the engine as a capture without packets would, and lets it end.
fn record(config: &Config, recorded: &Recorded) -> Result<(), Failure> {
    let interfaces = Interfaces::of(config);
    let (mut publisher, reader) = wiring::examples(config, &interfaces)?;
    let (_, depot) = wiring::cells(config, 1)?;
    let kind = DeviceKind::Driver {
        driver: Box::new(recorded.driver()),
        tables: Box::new(NoTables),
        options: accelerator::Options::default(),
    };
    let device = DeviceSpec { kind, slots: 1, rows: CHUNK_PACKETS_MAX, policy: Policy::Device };
    let plan = Plan {
        workers: 1,
        offline: true,
        devices: vec![device],
        under_way: UnderWay::default(),
        on_drop: None,
        on_dump: None,
        file: String::new(),
        on_error: Arc::new(|_, _| {}),
    };
    let path =
        wiring::start(config, &interfaces, depot, &reader, &mut publisher.parts, Vec::new(), plan)?;
    path.engine.join().map_err(Failure::other)
}

/// Leaves a file of the same content alone: what is built from it stays up to date.
fn write_if_changed(path: &Path, content: &[u8]) -> std::io::Result<()> {
    if std::fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    std::fs::write(path, content)
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use apps::ndn::NdnColumns;
    use apps::router::RouterColumns;
    use apps::switch::SwitchColumns;
    use chunk::Columns;

    use super::*;

    /// The list, made once: that takes a while.
    fn listed() -> &'static [Program] {
        static LISTED: OnceLock<Vec<Program>> = OnceLock::new();
        LISTED.get_or_init(|| all().unwrap())
    }

    #[test]
    fn programs_of_every_pipeline_and_of_the_self_test_are_listed() {
        let programs = listed();
        let kernel =
            |program: &&Program, name: &str| program.source.contains(&format!("\nKERNEL({name})"));
        // What the pipelines run, over their own columns.
        for (columns, name) in [
            (RouterColumns::COLUMNS, "rpf"),
            (RouterColumns::COLUMNS, "route"),
            (SwitchColumns::COLUMNS, "bridge"),
            (NdnColumns::COLUMNS, "name_lookup"),
        ] {
            let all = chunk::dialect(columns);
            let is_over = |p: &&Program| {
                let own = p.source.lines().filter(|line| line.starts_with("#define COL_"));
                own.clone().next().is_some() && own.into_iter().all(|line| all.contains(line))
            };
            let mut of_app = programs.iter().filter(is_over);
            assert!(of_app.any(|p| kernel(&p, name)), "{name}");
        }
        // A firewall and the lookups behind it are one program: one upload, and one launch sequence.
        // That without the reverse path has the same text as that with it. `flow` adds columns.
        for name in ["firewall+rpf+route", "firewall+bridge", "firewall"] {
            let of_pipeline: Vec<_> = programs.iter().filter(|p| p.name == name).collect();
            // Stages beside them, such as those that translate addresses, have columns of their own.
            let mut texts: Vec<_> = of_pipeline.iter().map(|program| &program.source).collect();
            texts.sort();
            texts.dedup();
            assert!(!texts.is_empty() && texts.len() == of_pipeline.len(), "{name}");
            assert!(["filter4", "filter6"].iter().all(|kernel_name| {
                of_pipeline.iter().all(|program| kernel(program, kernel_name))
            }));
        }
        for known in kernel_files().into_iter().flat_map(|file| file.kernels) {
            assert!(programs.iter().any(|p| kernel(&p, known.name)), "{}", known.name);
        }
    }

    /// What a file asks for, which `all` has never seen.
    #[test]
    fn programs_of_a_variant_of_the_configuration_are_listed() {
        let recorded = Recorded::default();
        for case in ["flow_device", "ids_device", "openflow_device"] {
            let path = testkit::repository().join(format!("tests/golden/{case}/config.toml"));
            let (config, _) = control::config::load(&path, &pipelines::known()).unwrap();
            record(&config, &recorded).unwrap();
        }
        let asked = recorded.programs();
        for name in ["flow", "firewall", "openflow"] {
            assert!(asked.iter().any(|program| program.name == name), "{name}");
        }
        assert!(asked.iter().any(|program| program.source.contains("\nKERNEL(flow_search)")));
        for program in asked {
            assert!(listed().iter().any(|p| p.source == program.source), "{}", program.name);
        }
    }
}
