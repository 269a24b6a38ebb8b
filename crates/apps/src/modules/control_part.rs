//! The part of the control plane: makes the stages, checks the modules of a reload, shows counters.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use control::api::ErrorKind;
use control::api::table::thousands;
use control::config::{Config, module_groups};
use control::metrics::Metrics;
use controlplane::application::Section;
use controlplane::module::{AnyModule, ModuleKind};
use controlplane::{
    Built, Call, ControlPart, Environment, Interfaces, PartId, Refusal, Rows, Setup, Tables,
    TablesPatch, WorkerSetup,
};
use engine::Stage;
use serde_json::{Map, Value};

use super::compile;
use super::counters::{COLUMNS, Counters};
use super::gather::{Places, Shared};
use super::kernels::{KernelShade, Sources};
use super::patterns::{Automata, PatternPart, PatternTables};
use super::stage::{Group, Modules, Parts, Rust};
use crate::flow::{self, Attached};

struct ModulesControl {
    kinds: Vec<ModuleKind>,
    places: Arc<Places>,
    /// By name of a module, and the counters of each worker.
    counters: Vec<(String, usize, Arc<Counters>)>,
    /// By module and column: what was counted when the counters were cleared.
    cleared: BTreeMap<(String, usize), u64>,
    /// In the order of the file.
    names: Vec<String>,
    part: PartId<PatternPart>,
    /// The patterns as last published, and what is to be published.
    patterns: Arc<[u32]>,
    changed: bool,
}

/// Starts it.
pub(super) fn start(
    setup: &Setup<'_>,
    tables: &mut Tables,
) -> Result<Box<dyn ControlPart>, String> {
    let kinds = setup.modules.to_vec();
    check(setup.config, &kinds)?;
    let names = names(setup.config);
    let patterns: Arc<[u32]> = Automata::of(setup.config)?.words.into();
    Ok(Box::new(ModulesControl {
        kinds,
        places: Arc::default(),
        counters: Vec::new(),
        cleared: BTreeMap::new(),
        names,
        part: tables.add::<PatternPart>(PatternTables(patterns.clone())),
        patterns,
        changed: false,
    }))
}

fn names(config: &Config) -> Vec<String> {
    config.modules.iter().map(|module| module.name.clone()).collect()
}

/// What is wrong with the modules of a configuration.
fn check(config: &Config, kinds: &[ModuleKind]) -> Result<(), String> {
    Sources::of(config)?;
    for module in &config.modules {
        if let Some(kind) = &module.kind {
            make(kind, &module.parameters, kinds)
                .map_err(|error| format!("module {}: {error}", module.name))?;
        }
    }
    Ok(())
}

fn make(
    kind: &str,
    parameters: &[(String, u32)],
    kinds: &[ModuleKind],
) -> Result<Box<dyn AnyModule>, String> {
    let own = kinds.iter().find(|own| own.name == kind);
    let own = own.ok_or_else(|| format!("unknown Rust module `{kind}`"))?;
    (own.make)(parameters)
}

impl ModulesControl {
    fn modules(&mut self, worker: &WorkerSetup<'_>) -> Result<Modules, String> {
        let config = worker.config;
        let contexts: Arc<[String]> = config.contexts().into();
        let bits =
            |names: &[String]| names.iter().fold(0, |bits, name| bits | worker.context(name));
        let groups = module_groups(&config.modules);
        let kinds = worker.pipeline.kinds.iter().take(worker.at);
        let at = kinds.filter(|kind| *kind == super::STAGE).count();
        // A stage of the file without modules does nothing.
        let group = groups.get(at).cloned().unwrap_or(0..0);
        let all = Sources::of(config)?;
        let mut rust = Vec::new();
        for (number, module) in config.modules.iter().enumerate() {
            let Some(kind) = module.kind.as_ref().filter(|_| group.contains(&number)) else {
                continue;
            };
            rust.push(Rust {
                entry: module.clone(),
                number,
                contexts: bits(&module.context),
                module: make(kind, &module.parameters, &self.kinds)?,
            });
        }
        let has_rust = config.modules.iter().any(|module| module.kind.is_some());
        self.places.set_readers(has_rust || all.iter().any(Sources::reads_streams));
        let group = Group::of(config, &all, at);
        let sources = all.into_iter().nth(at).unwrap_or_default();
        let sources = sources.with_region(self.part.regions().start);
        let by_port = (0..=worker.interfaces.count()).map(|port| {
            let name = worker.interfaces.names().get(port);
            let sees = config.modules.iter().enumerate().filter(|(_, module)| {
                module.ports.is_empty() || name.is_some_and(|name| module.ports.contains(name))
            });
            sees.fold(0, |bits, (number, _)| bits | 1 << number)
        });
        let by_port = by_port.collect();
        let needs_one_worker = sources
            .with_table()
            .map(|_| "a hash table of a module is shared by all packets of a worker");
        let mut of_kind = rust.iter().filter_map(|own| {
            let kind =
                self.kinds.iter().find(|kind| Some(kind.name) == own.entry.kind.as_deref())?;
            kind.needs_one_worker
        });
        let needs_one_worker = needs_one_worker.or_else(|| of_kind.next());
        let kernels = match sources.is_empty() {
            true => None,
            false => Some(Arc::new(KernelShade::new(Arc::new(sources)))),
        };
        let names = names(config);
        let known = self.counters.iter().find(|(pipeline, number, counters)| {
            *pipeline == worker.pipeline.name
                && *number == worker.worker
                && counters.names() == names
        });
        let counters = match known {
            Some((.., counters)) => counters.clone(),
            None => {
                let counters = Arc::new(Counters::new(names));
                let pipeline = worker.pipeline.name.clone();
                self.counters.push((pipeline, worker.worker, counters.clone()));
                counters
            }
        };
        Ok(Modules::new(Parts {
            name: worker.name(),
            group,
            gathered: match worker.pipeline.has(flow::STAGE) {
                true => self.places.of(&worker.pipeline.name, worker.worker),
                false => Shared::default(),
            },
            rust,
            kernels,
            by_port,
            contexts,
            counters,
            needs_one_worker,
            shares: crate::records::are_shared(&worker.pipeline.kinds),
        }))
    }

    fn total(&self, module: &str, column: usize) -> u64 {
        let of = |counters: &Counters| {
            let number = counters.names().iter().position(|name| name == module);
            number.map_or(0, |number| counters.get(number, column))
        };
        self.counters.iter().map(|(.., counters)| of(counters)).sum()
    }

    fn value(&self, module: &str, column: usize) -> u64 {
        let before = self.cleared.get(&(module.to_owned(), column)).copied().unwrap_or(0);
        self.total(module, column) - before
    }

    fn values(&self, module: &str) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("module".to_owned(), module.into());
        for (column, (name, _)) in COLUMNS.iter().enumerate() {
            fields.insert((*name).to_owned(), self.value(module, column).into());
        }
        fields
    }
}

impl ControlPart for ModulesControl {
    fn offer(&self) -> Option<Box<dyn Any + Send + Sync>> {
        Some(Box::new(Attached(self.places.clone())))
    }

    fn stage(&mut self, kind: &str, worker: &WorkerSetup<'_>) -> Option<Box<dyn Stage<Tables>>> {
        if kind != super::STAGE {
            return None;
        }
        let made = self.modules(worker);
        let made = made.inspect_err(|error| tracing::error!("{error}")).ok()?;
        Some(Box::new(made))
    }

    fn regions(&self) -> Range<usize> {
        self.part.regions()
    }

    fn take_patches(&mut self) -> Option<TablesPatch> {
        let changed = std::mem::take(&mut self.changed);
        changed.then(|| self.part.patch(vec![self.patterns.clone()]))
    }

    fn table(&self, call: Call<'_>, _: &Environment<'_>) -> Result<Rows, Refusal> {
        if call.name != "modules" {
            return Err(Refusal::new(ErrorKind::Internal, format!("no table `{}`", call.name)));
        }
        let titles = COLUMNS.iter().map(|(name, _)| format!(">{}", name.replace('_', " ")));
        let titles = ["module".to_owned()].into_iter().chain(titles).collect();
        let mut rows = Rows::with_columns("modules", call.as_text, titles);
        for module in &self.names {
            let numbers = (0..COLUMNS.len()).map(|column| thousands(self.value(module, column)));
            let cells = [module.clone()].into_iter().chain(numbers).collect();
            rows.push_cells(cells, Value::Object(self.values(module)));
        }
        Ok(rows)
    }

    /// A module that cannot be made refuses the reload.
    fn apply(
        &mut self,
        _: &Config,
        _: Option<Built>,
        env: &mut Environment<'_>,
    ) -> Result<(), String> {
        check(env.config, &self.kinds)
    }

    fn commit(&mut self, _: &Config, _: &Config, env: &mut Environment<'_>) -> String {
        self.names = names(env.config);
        // They were built before, when the reload was checked.
        let words = Automata::of(env.config).map(|own| own.words).unwrap_or_default();
        if words[..] != self.patterns[..] {
            (self.patterns, self.changed) = (words.into(), true);
        }
        String::new()
    }

    fn clear(&mut self) {
        for module in self.names.clone() {
            for column in 0..COLUMNS.len() {
                let total = self.total(&module, column);
                self.cleared.insert((module.clone(), column), total);
            }
        }
    }

    fn metrics(&self, out: &mut Metrics) {
        for (column, (name, about)) in COLUMNS.iter().enumerate() {
            let family_name = format!("module_{name}_total");
            let mut family = out.counter(&family_name, about);
            for module in &self.names {
                family.sample(&[("module", module)], self.value(module, column));
            }
        }
    }

    fn report(&self) -> Vec<Section> {
        let values: Vec<Value> =
            self.names.iter().map(|module| Value::Object(self.values(module))).collect();
        let mut text = String::new();
        for module in &self.names {
            let all = COLUMNS.iter().enumerate().filter_map(|(column, (name, _))| {
                let value = self.value(module, column);
                (column == 0 || value > 0)
                    .then(|| format!("{} {}", thousands(value), name.replace('_', " ")))
            });
            text += &format!("module {module}: {}\n", all.collect::<Vec<_>>().join(", "));
        }
        vec![Section::new("modules", &values, text)]
    }
}

/// `check`: sources that are wrong.
pub(super) fn check_files(config: &Config, _: &Interfaces, findings: &mut controlplane::Findings) {
    let all = match Sources::of(config) {
        Ok(all) => all,
        Err(error) => {
            if !compile::refused(config, &error, findings) {
                findings.error_of_all(error);
            }
            return;
        }
    };
    compile::check(config, &all, findings);
    let with_modules = config.in_use().filter(|pipeline| pipeline.has(super::STAGE));
    for pipeline in with_modules.filter(|pipeline| !pipeline.has(flow::STAGE)) {
        if all.iter().any(|sources| sources.has_state() || sources.reads_streams()) {
            findings.warn_of_all(format!(
                "pipeline {}: no stage `flow` before `modules`: modules have no state of flows and no streams",
                pipeline.name
            ));
        }
    }
}
