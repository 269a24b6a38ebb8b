//! Comparisons between parts of a file whose values are each right on their own.

mod addresses;
mod apps;
mod firewall;
mod ipsec;
mod modules;
mod nat;
mod ndn;
mod ports;
mod routes;
mod switch;

use std::ops::Range;

use super::read::Spans;
use super::section::SectionValue;
use super::stages::{Application, KnownStages};
use super::types::*;
use super::walk::{Place, Walk};

/// Runs every check. `cores`: CPUs that the process may use.
pub(super) fn check(
    config: &Config,
    spans: &Spans,
    known: &KnownStages,
    cores: usize,
    walk: &mut Walk<'_>,
) {
    system(config, spans, cores, walk);
    engine(config, &spans.engine, walk);
    ports::check(config, spans, walk);
    if let Some(machine) = &known.machine {
        ports::interfaces(config, spans, machine, walk);
    }
    // What has no effect is said once, and not judged too.
    let reads = |section| known.any_reads(&spans.apps, section);
    let has_addresses = |app: &Application| app.port_keys.contains(&"addresses");
    if spans.apps.iter().any(|app| app.is_none_or(has_addresses)) {
        addresses::check(config, spans, walk);
    }
    if reads("route") {
        routes::check(config, spans, walk);
    }
    // One mistake in `mode` is one error, not one for every key of what was meant.
    if spans.apps.contains(&None) {
        return;
    }
    apps::check(known, config, spans, walk);
    firewall::check(reads("firewall"), config, spans, walk);
    firewall::stages(config, spans, walk);
    nat::check(config, spans, walk);
    let has_ipsec = known.kinds.iter().any(|kind| kind.name == "esp_out");
    ipsec::check(has_ipsec && reads("policy"), config, spans, walk);
    for (stage, (place, _)) in config.stages.iter().zip(&spans.stages) {
        if !config.in_use().any(|pipeline| pipeline.stages.contains(&stage.name)) {
            let message =
                format!("[stage.{}] has no effect: no pipeline in use has it", stage.name);
            walk.warning(place.header(), message).expected(format!(
                "`{}` in the `stages` of a pipeline that `mode` or a port names",
                stage.name
            ));
        }
    }
    contexts(config, spans, walk);
    modules::check(known, config, spans, walk);
    outputs(config, spans, walk);
    ports::in_pairs(config, spans, walk);
    if reads("switch") {
        switch::check(config, spans, walk);
    }
    if reads("ndn") {
        ndn::check(config, spans, walk);
    }
}

/// Two outputs would write over each other.
fn outputs(config: &Config, spans: &Spans, walk: &mut Walk<'_>) {
    let dump =
        |own: &super::schema::Dump| ("dump", format!("[dump.{}]", own.name), own.file.clone());
    let of_flow = [("events", &config.flow.events), ("parquet", &config.flow.parquet)];
    let of_flow = of_flow.into_iter().filter_map(|(key, path)| {
        let path =
            path.clone().filter(|path| !files::is_standard(path) && !path.starts_with("/dev"))?;
        Some(("flow", format!("`{key}` of [flow]"), path))
    });
    let all: Vec<_> = config.dumps.iter().map(dump).chain(of_flow).collect();
    for (at, (section, name, file)) in all.iter().enumerate() {
        if let Some((_, other, _)) = all[..at].iter().find(|(.., other)| other == file) {
            let message = format!("{other} and {name} write the same file");
            walk.error(spans.file.at(section), message).expected("a file for each");
        }
    }
}

/// The contexts that a stage of this name sets: by its settings, and by its rules.
fn sets(config: &Config, name: &str) -> Vec<String> {
    let mut values = Vec::new();
    if let Some(own) = config.stage(name).and_then(|stage| stage.settings.as_deref()) {
        own.settings("", &mut values);
    }
    if name == L7::NAME {
        config.l7.settings("", &mut values);
    }
    let mut all: Vec<String> = values.into_iter().flat_map(|setting| setting.contexts).collect();
    if let Some(firewall) = config.firewall_of(name) {
        let actions = firewall.rules.iter().map(|rule| rule.action());
        let actions = std::iter::once(&firewall.default).chain(actions);
        all.extend(actions.flat_map(|action| action.contexts.clone()));
    }
    all
}

/// Whether a stage can meet a packet with a context: a stage before it in a pipeline sets it. Packets that go through
/// again begin without contexts.
fn is_set(config: &Config, stage: &str, context: &str) -> bool {
    config.in_use().any(|pipeline| {
        let Some(at) = pipeline.stages.iter().position(|own| own == stage) else { return false };
        pipeline.stages[..at].iter().any(|own| {
            may_set_any(&config.modules, own) || sets(config, own).iter().any(|c| c == context)
        })
    })
}

/// Whether a stage of this name runs modules of which one may set any context: in Rust, or with a source that names contexts.
fn may_set_any(modules: &[ModuleEntry], name: &str) -> bool {
    let is_modules = name.split('.').next() == Some("modules");
    is_modules
        && modules.iter().any(|module| {
            let source = module.source.as_ref();
            source.is_none_or(|source| source.text.contains("context"))
        })
}

/// Contexts that no stage sets, or no stage sees.
fn contexts(config: &Config, spans: &Spans, walk: &mut Walk<'_>) {
    let seen = config.contexts();
    if seen.len() > 32 {
        let place = spans.stages.first().map_or(&spans.file, |(place, _)| place);
        walk.error(place.header(), format!("{} contexts", seen.len())).expected("at most 32");
    }
    // Before the first stage no stage has set a context.
    for pipeline in config.in_use() {
        let first = pipeline.stages.first();
        let at = config.stages.iter().position(|own| Some(&own.name) == first);
        if let Some(at) = at.filter(|at| !config.stages[*at].context.is_empty()) {
            let (name, of) = (&config.stages[at].name, &pipeline.name);
            let message =
                format!("`context` is not allowed at `{name}`, the first stage of `{of}`");
            walk.error(spans.stages[at].0.at("context"), message)
                .expected("a stage before it that sets the context");
        }
    }
    let is_used = |name: &String| config.in_use().any(|pipeline| pipeline.stages.contains(name));
    let is_first = |name: &String| config.in_use().any(|own| own.stages.first() == Some(name));
    for (stage, (place, rules)) in config.stages.iter().zip(&spans.stages) {
        // One that no pipeline has is reported as that, and so is one at the begin of a pipeline.
        let is_reported = !is_used(&stage.name) || is_first(&stage.name);
        let sees_any = stage.context.iter().any(|name| is_set(config, &stage.name, name));
        for name in stage.context.iter().filter(|_| !is_reported) {
            if !is_set(config, &stage.name, name) {
                let end = if sees_any { "" } else { ": it sees no packets" };
                let message =
                    format!("no stage before `{}` sets the context `{name}`{end}", stage.name);
                walk.warning(place.at("context"), message).expected(format!(
                    "a stage before it that sets `{name}`, such as a firewall with `context \
                     {name}` in the action of a rule"
                ));
            }
        }
        let Some(settings) = stage.settings.as_deref() else { continue };
        let mut values = Vec::new();
        settings.settings("", &mut values);
        for setting in values {
            for name in setting.contexts.iter().filter(|name| !seen.contains(name)) {
                unseen(place.at(setting.key.trim_start_matches('.')), name, walk);
            }
        }
        if let Some(firewall) = settings.get::<Firewall>() {
            unseen_of_rules(firewall, place, rules, &seen, walk);
        }
    }
    unseen_of_rules(&config.firewall, &spans.firewall, &spans.rules, &seen, walk);
    for (_, name) in config.l7.contexts.iter().filter(|(_, name)| !seen.contains(name)) {
        unseen(spans.l7.at("contexts"), name, walk);
    }
}

fn unseen_of_rules(
    firewall: &Firewall,
    section: &Place,
    places: &[Place],
    seen: &[String],
    walk: &mut Walk<'_>,
) {
    for name in firewall.default.contexts.iter().filter(|name| !seen.contains(name)) {
        unseen(section.at("default"), name, walk);
    }
    for (rule, place) in firewall.rules.iter().zip(places) {
        for name in rule.action().contexts.iter().filter(|name| !seen.contains(name)) {
            unseen(place.at("action"), name, walk);
        }
    }
}

fn unseen(place: Range<usize>, name: &str, walk: &mut Walk<'_>) {
    walk.warning(place, format!("no stage sees the context `{name}`"))
        .expected(format!("`context = [\"{name}\"]` in a [stage.NAME]"));
}

/// Keys of a device that these back ends do not have. The command line may still name others.
fn engine(config: &Config, keys: &Place, walk: &mut Walk<'_>) {
    let engine = &config.engine;
    if keys.has("backend") && keys.has("devices") {
        walk.error(keys.at("devices"), "`devices` together with `backend`")
            .expected("one of the two")
            .help("`devices` takes every device; `backend` names one, or `cpu`, or `auto`");
        return;
    }
    let (workers, devices) = (config.system.workers, engine.devices.len());
    if devices > workers {
        let message =
            format!("{devices} devices, but only {workers} workers: the last devices get no jobs");
        walk.warning(keys.at("devices"), message)
            .expected(format!("at most {workers}"))
            .help("each worker sends its jobs to one device: `[system] workers` sets their number");
    }
    let has_device = engine.may_use(|backend| backend != EngineBackend::Cpu);
    let is_real = |b| !matches!(b, EngineBackend::Cpu | EngineBackend::Sim);
    let may_be_sim = engine.may_use(|b| matches!(b, EngineBackend::Auto | EngineBackend::Sim));
    let a_device = "a back end with a device: auto, opencl, cuda or sim";
    let given = match devices {
        0 => format!("backend = \"{}\"", engine.backend),
        _ => "these `devices`".to_owned(),
    };
    for (key, used, by) in [
        ("offload", has_device, a_device),
        ("max_delay", has_device, a_device),
        ("jobs_in_flight", has_device, a_device),
        ("device_timeout", engine.may_use(is_real), "auto, opencl or cuda"),
        ("sim", may_be_sim, "backend = \"sim\""),
    ] {
        if keys.has(key) && !used {
            walk.warning(keys.at(key), format!("`{key}` has no effect with {given}"))
                .expected(by)
                .help("`--backend` of the command line may still name another back end");
        }
    }
}

fn system(config: &Config, spans: &Spans, cores: usize, walk: &mut Walk<'_>) {
    let System { workers, cpus, cells, .. } = &config.system;
    let place = &spans.system;
    if place.has("workers") && *workers > cores {
        let message = format!("{workers} workers, but the process may use {cores} CPUs");
        walk.warning(place.at("workers"), message)
            .expected(format!("at most {cores}"))
            .help("workers that share a CPU wait for each other");
    }
    if !cpus.is_empty() && cpus.len() < *workers {
        let message = format!("`cpus` has {}, `workers` is {workers}", cpus.len());
        walk.error(place.at("cpus"), message).expected("one CPU for each worker");
    }
    let mut sorted = cpus.clone();
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        walk.error(place.at("cpus"), format!("CPU {} is listed twice in `cpus`", pair[0]))
            .expected("each CPU once");
    }
    // One chunk at receive, one under shade, one at transmit, one in refill.
    let least = 4 * config.engine.chunk;
    if *cells < least {
        let span = if place.has("cells") { place.at("cells") } else { spans.engine.at("chunk") };
        let message = format!("{cells} cells for chunks of {}", config.engine.chunk);
        walk.error(span, message).expected(format!("at least {least} cells, four chunks"));
    }
    let Router { arp_queue_packets, arp_queue_total_packets, .. } = config.router;
    if arp_queue_packets > arp_queue_total_packets {
        let span = spans.router.at("arp_queue_packets");
        walk.error(
            span,
            "the queue of one neighbour is longer than the queues of all together may be",
        )
        .expected(format!("at most `arp_queue_total_packets`, {arp_queue_total_packets}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ModuleSource;

    #[test]
    fn a_module_may_set_a_context() {
        let of = |text: &str| {
            let source = ModuleSource { text: text.into(), ..ModuleSource::default() };
            [ModuleEntry { source: Some(source), ..ModuleEntry::default() }]
        };
        let (sets, none) = (of("packet->context |= CONTEXT_WEB;"), of("return PASS;"));
        assert!(may_set_any(&sets, "modules") && may_set_any(&sets, "modules.2"));
        assert!(!may_set_any(&sets, "firewall") && !may_set_any(&none, "modules"));
        // In Rust.
        assert!(may_set_any(&[ModuleEntry::default()], "modules"));
    }
}
