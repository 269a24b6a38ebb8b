//! `shadeline stages`: the stages that pipelines are composed of, as they declare themselves.
//!
//! Nothing here is a list: needs and provides are those of [`control::config::StageKind`], columns, kernels and drop
//! reasons those of the stage that a pipeline would have, keys those of the configuration's sections.

use std::fmt::Write as _;

use chunk::{ColumnSet, Declaration};
#[cfg(test)]
use control::config::KnownStages;
use control::config::section::{About, Key, KeyDefault};
use control::config::{Config, Settings, StageKind, keys};
use control::metrics::Metrics;
use controlplane::{ControlPart, Descriptor, Interfaces, Running, Tables};
use engine::{KernelStep, Spread, Stage};
use serde::Serialize;

use crate::cli::StagesArgs;
use crate::failure::Failure;
use crate::output::{self, put};
use crate::pipelines;
use crate::wiring;

/// Ports to compose a pipeline over; no packet passes.
const CONFIG: &str = include_str!("../data/demo.toml");

/// Everything that is declared of a stage.
#[derive(Debug, Serialize)]
struct Described {
    name: &'static str,
    about: &'static str,
    application: &'static str,
    /// `first`, `last` or `between`.
    place: &'static str,
    needs: &'static [&'static str],
    provides: &'static [&'static str],
    columns_read: Vec<&'static str>,
    columns_written: Vec<&'static str>,
    /// All columns of its application: on the CPU it may use any.
    columns_declared: Vec<&'static str>,
    /// None: the CPU alone does it.
    kernels: Vec<String>,
    /// Those that it has where keys of its application ask for a device; none if it has kernels anyway.
    optional_kernels: Vec<String>,
    /// Which packets must meet at one worker.
    packets_meet: &'static str,
    drop_reasons: Vec<&'static str>,
    sections: Vec<Section>,
    requests: Vec<String>,
    metrics: Vec<String>,
}

/// A section of the configuration that its application reads.
#[derive(Debug, Serialize)]
struct Section {
    title: &'static str,
    keys: Vec<KeyRow>,
}

#[derive(Debug, Serialize)]
struct KeyRow {
    name: &'static str,
    kind: &'static str,
    values: String,
    default: String,
    reload: String,
    text: String,
}

pub(crate) fn run(args: &StagesArgs) -> Result<(), Failure> {
    let all = described()?;
    let Some(name) = &args.name else {
        if args.json {
            output::json(&all)?;
        } else {
            put!("{}", list(&all))?;
        }
        return Ok(());
    };
    let Some(stage) = all.iter().find(|stage| stage.name == name) else {
        let names: Vec<_> = all.iter().map(|stage| stage.name).collect();
        let expected = names.join(", ");
        return Err(Failure::usage(format!("unknown stage `{name}`: expected one of {expected}")));
    };
    if args.json {
        output::json(stage)?;
    } else {
        put!("{}", text(stage))?;
    }
    Ok(())
}

/// Every stage, in an order in which stages make sense.
fn described() -> Result<Vec<Described>, Failure> {
    let known = pipelines::known();
    let (mut config, _) = control::config::parse(CONFIG, &known)
        .map_err(|d| Failure::other(control::config::render(&d, "demo.toml", CONFIG, false)))?;
    let interfaces = Interfaces::of(&config);
    // Each stage is asked in a pipeline that has it.
    let usual = [pipelines::usual(), pipelines::of_needed_keys()].concat();
    let mut all = Vec::new();
    for kind in &known.kinds {
        let names = usual.iter().find(|stages| stages.contains(&kind.name));
        let names = names
            .ok_or_else(|| Failure::other(format!("no pipeline has the stage `{}`", kind.name)))?;
        pipelines::with_stages(&mut config, names).map_err(Failure::other)?;
        let (mut publisher, _) = wiring::examples(&config, &interfaces)?;
        let stages = wiring::stages_of(&config, &mut publisher.parts)?;
        let stage = stages.iter().find(|stage| stage.name() == kind.name);
        let stage = stage.ok_or_else(|| Failure::other(format!("no stage `{}`", kind.name)))?;
        let own = |own: &&Running| own.descriptor.application == kind.application;
        let own = publisher.parts.iter().find(own);
        let own = own.ok_or_else(|| Failure::other(format!("no part of `{}`", kind.name)))?;
        let mut described = describe(kind, &**stage, own.descriptor, &*own.part);
        if described.kernels.is_empty() {
            described.optional_kernels =
                optional_kernels(kind.name, names, &config, own.descriptor)?;
        }
        all.push(described);
    }
    Ok(all)
}

/// The kernels of a stage in a pipeline of these stages, over all that its application varies by configuration.
fn optional_kernels(
    name: &str,
    names: &[&str],
    config: &Config,
    descriptor: &Descriptor,
) -> Result<Vec<String>, Failure> {
    let mut all = Vec::new();
    for variant in descriptor.variants {
        let mut config = config.clone();
        variant(&mut config);
        pipelines::with_stages(&mut config, names).map_err(Failure::other)?;
        pipelines::known().part(&mut config);
        let (mut publisher, _) = wiring::examples(&config, &Interfaces::of(&config))?;
        let stages = wiring::stages_of(&config, &mut publisher.parts)?;
        for kernel in stages.iter().filter(|own| own.name() == name).flat_map(|own| kernels(&**own))
        {
            if !all.contains(&kernel) {
                all.push(kernel);
            }
        }
    }
    Ok(all)
}

/// The kernels of a stage.
fn kernels(stage: &dyn Stage<Tables>) -> Vec<String> {
    let form = stage.shader().and_then(|shader| shader.kernels());
    let steps = form.map(|form| form.steps).unwrap_or_default();
    let kernels = steps.into_iter().filter_map(|step| match step {
        KernelStep::Kernel(step) => Some(step.kernel.to_string()),
        _ => None,
    });
    kernels.collect()
}

fn describe(
    kind: &StageKind,
    stage: &dyn Stage<Tables>,
    descriptor: &Descriptor,
    part: &dyn ControlPart,
) -> Described {
    let reasons = stage.drop_reasons().iter().flat_map(|block| block.reasons());
    let of = |set: &ColumnSet| columns(stage.columns(), |column| set.contains(column));
    let (reads, writes) = (stage.reads(), stage.writes());
    let application = kind.application;
    Described {
        name: kind.name,
        about: kind.about,
        application: application.name,
        place: match (kind.is_first, kind.is_last) {
            (true, _) => "first",
            (_, true) => "last",
            _ => "between",
        },
        needs: kind.needs,
        provides: kind.provides,
        columns_read: of(&reads),
        columns_written: of(&writes),
        columns_declared: columns(stage.columns(), |_| true),
        kernels: kernels(stage),
        optional_kernels: Vec::new(),
        packets_meet: match (stage.spread_hash(), stage.spread()) {
            (Some(_), _) => "by a hash of its own",
            (None, Spread::Any) => "none",
            (None, Spread::Flow) => "of a flow, both directions",
            (None, Spread::Hosts) => "between two hosts",
        },
        drop_reasons: reasons.map(|reason| reason.name()).collect(),
        sections: settings(kind).into_iter().chain(sections(application.sections)).collect(),
        requests: requests(descriptor),
        metrics: metrics(part),
    }
}

/// What `ctl` asks of an application: `show routes`, `route add`.
fn requests(descriptor: &Descriptor) -> Vec<String> {
    let tables = descriptor.tables.iter().map(|table| format!("show {}", table.name));
    let visible = descriptor.requests.iter().filter(|kind| !(kind.command)().is_hide_set());
    tables.chain(visible.map(|kind| kind.words.join(" "))).collect()
}

/// The families that a part has metrics of before the first packet.
fn metrics(part: &dyn ControlPart) -> Vec<String> {
    let mut out = Metrics::default();
    part.metrics(&mut out);
    let text = out.text();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

fn columns(
    declared: &[Declaration],
    wanted: impl Fn(&chunk::ColumnDesc) -> bool,
) -> Vec<&'static str> {
    let all = declared.iter().flat_map(|declaration| declaration.iter());
    let mut names = Vec::new();
    for column in all.filter(|column| wanted(column)) {
        if !names.contains(&column.name) && !["verdict", "context"].contains(&column.name) {
            names.push(column.name);
        }
    }
    names
}

/// What `[stage.NAME]` has for a stage of this kind.
fn settings(kind: &StageKind) -> Option<Section> {
    let Settings::Keys(new) = kind.settings else { return None };
    Some(Section { title: "[stage.NAME]", keys: new().keys().iter().map(row).collect() })
}

/// The sections of these names, `[router]` or `[[route]]`, with those below them.
fn sections(names: &[&str]) -> Vec<Section> {
    let is_own = |title: &str| {
        let name = title.trim_start_matches('[');
        let end = name.find([']', '.']).unwrap_or(name.len());
        names.contains(&&name[..end])
    };
    let own = keys().into_iter().filter(|section| is_own(section.title));
    own.map(|section| Section {
        title: section.title,
        keys: section.keys.iter().map(|key| row(key)).collect(),
    })
    .collect()
}

fn row(key: &Key) -> KeyRow {
    let About { kind, allowed, default, .. } = key.about();
    KeyRow {
        name: key.name,
        kind,
        values: allowed,
        default: match default {
            KeyDefault::Value(value) => value,
            KeyDefault::Words(words) => words.to_owned(),
            KeyDefault::Absent => "none".to_owned(),
            KeyDefault::Needed(_) => "required".to_owned(),
        },
        reload: key.reload.to_string(),
        text: key.text(),
    }
}

fn list(all: &[Described]) -> String {
    let mut out = format!(
        "{:<12} {:<12} {:<8} {:<7} {}\n",
        "stage", "application", "place", "device", "what it does"
    );
    for stage in all {
        let device = on_device(stage).unwrap_or("-");
        let row = (stage.name, stage.application, stage.place, device, stage.about);
        let _ = writeln!(out, "{:<12} {:<12} {:<8} {:<7} {}", row.0, row.1, row.2, row.3, row.4);
    }
    out += "\n`shadeline stages NAME` shows what a stage needs, provides, reads and writes.\n";
    out
}

/// Whether a device may shade it, in a word.
fn on_device(stage: &Described) -> Option<&'static str> {
    match (stage.kernels.is_empty(), stage.optional_kernels.is_empty()) {
        (false, _) => Some("yes"),
        (true, false) => Some("opt-in"),
        (true, true) => None,
    }
}

/// One stage, for people.
fn text(stage: &Described) -> String {
    let mut out = format!("{}: {}\n\n", stage.name, stage.about);
    for (name, value) in facts(stage) {
        let _ = writeln!(out, "{name:<18} {value}");
    }
    for section in &stage.sections {
        let _ = writeln!(out, "\n{}", section.title);
        for key in &section.keys {
            let (name, default) = (key.name, &key.default);
            let _ = writeln!(out, "  {name:<24} {default:<14} {:<8} {}", key.reload, key.text);
        }
    }
    out
}

/// What is said of a stage in a line each.
fn facts(stage: &Described) -> Vec<(&'static str, String)> {
    let list = |names: &[&str]| match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    let texts = |all: &[String]| list(&all.iter().map(String::as_str).collect::<Vec<_>>());
    let device = match on_device(stage) {
        None => "CPU only".to_owned(),
        Some("yes") => format!("kernels {}", stage.kernels.join(", ")),
        _ => format!("if configured: kernels {}", stage.optional_kernels.join(", ")),
    };
    vec![
        ("application", stage.application.to_owned()),
        ("place", stage.place.to_owned()),
        ("needs", list(stage.needs)),
        ("provides", list(stage.provides)),
        ("shade reads", list(&stage.columns_read)),
        ("shade writes", list(&stage.columns_written)),
        ("declared columns", list(&stage.columns_declared)),
        ("device", device),
        ("packets that meet", stage.packets_meet.to_owned()),
        ("declared reasons", list(&stage.drop_reasons)),
        ("ctl", texts(&stage.requests)),
        ("metrics", texts(&stage.metrics)),
    ]
}

/// Which stages provide something, for the page.
#[cfg(test)]
fn providers(known: &KnownStages, what: &str) -> Vec<&'static str> {
    let all = known.kinds.iter().filter(|kind| kind.provides.contains(&what));
    all.map(|kind| kind.name).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    const HEAD: &str = "\
# Stages

A pipeline is a list of stages, such as `[pipeline.NAME] stages = [\"decode\", \"firewall\", \"route\", \"rewrite\"]`; `mode =
\"NAME\"` selects it. An order is valid if each stage finds what it needs: something that an earlier stage provides, or the
received `frames`. A stage with the place `first` decodes received frames, and replaces what was provided before it; a stage
with the place `last` sends packets. `shadeline check` reports what is missing and suggests an order that works. `mode =
\"router\"`, `\"switch\"`, `\"openflow\"`, `\"ndn\"`, `\"wire\"` and `\"monitor\"` are shipped pipelines.

A kind with settings of its own, such as `firewall`, may be used several times, with names defined by `[stage.NAME]`. A stage
may be limited to packets of certain contexts. A port may name the pipeline that its packets enter
([configuration.md](configuration.md)). [own-stage.md](own-stage.md) shows how to add a stage from outside this repository.

*Shade reads* and *shade writes* are the columns of the step that a device can run. *Declared columns* and *declared
reasons* are those that the stage may use; the stages of an application share them.

`shadeline stages` prints this list, and `shadeline stages NAME` one stage with its configuration keys; both have `--json`.
All stages have the metrics `shadeline_stage_calls_total`, `…_packets_total` and `…_seconds_total`.

<!-- Made from the declarations by a test: UPDATE_STAGES=1 cargo test -p shadeline stages -->
";

    fn page() -> String {
        let known = pipelines::known();
        let all = described().unwrap();
        let mut page = HEAD.to_owned();
        page += "\n| stage | application | place | needs | provides | device |\n";
        page += "| --- | --- | --- | --- | --- | --- |\n";
        for stage in &all {
            let device = on_device(stage).unwrap_or("–");
            let name = stage.name;
            let (needs, provides) = (stage.needs.join(", "), stage.provides.join(", "));
            let _ = writeln!(
                page,
                "| [`{name}`](#{name}) | {} | {} | {needs} | {provides} | {device} |",
                stage.application, stage.place
            );
        }
        for stage in &all {
            let _ =
                write!(page, "\n## {}\n\n{}\n\n| | |\n| --- | --- |\n", stage.name, stage.about);
            for (name, value) in facts(stage) {
                let value = match (name, value.as_str()) {
                    ("needs", needs) if needs != "none" => {
                        let of = |what: &str| match providers(&known, what).as_slice() {
                            [] => what.to_owned(),
                            _ if stage.place == "first" => format!("{what} (as received)"),
                            providers if what == control::config::FRAMES => {
                                format!("{what} (as received, or from {})", providers.join(", "))
                            }
                            providers => format!("{what} (from {})", providers.join(", ")),
                        };
                        stage.needs.iter().map(|what| of(what)).collect::<Vec<_>>().join("; ")
                    }
                    ("declared reasons", reasons) if reasons != "none" => {
                        format!("{} ([drops.md](drops.md))", stage.drop_reasons.len())
                    }
                    _ => value,
                };
                let _ = writeln!(page, "| {name} | {value} |");
            }
            let titles: Vec<_> =
                stage.sections.iter().map(|section| format!("`{}`", section.title)).collect();
            if !titles.is_empty() {
                let titles = titles.join(", ");
                let _ = writeln!(
                    page,
                    "| sections | {titles} ([configuration.md](configuration.md)) |"
                );
            }
        }
        page
    }

    #[test]
    fn the_page_is_made_from_the_declarations() {
        let path = testkit::repository().join("docs/stages.md");
        if std::env::var_os("UPDATE_STAGES").is_some() {
            std::fs::write(&path, page()).unwrap();
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == page(),
            "docs/stages.md is old: UPDATE_STAGES=1 cargo test -p shadeline stages"
        );
    }

    #[test]
    fn what_is_declared_is_there() {
        let all = described().unwrap();
        let has_device: Vec<_> =
            all.iter().filter(|stage| !stage.kernels.is_empty()).map(|stage| stage.name).collect();
        for name in ["rpf", "route", "bridge", "name_lookup"] {
            assert!(has_device.contains(&name), "{has_device:?}");
        }
        let opt_in = all.iter().filter(|stage| on_device(stage) == Some("opt-in"));
        let opt_in: Vec<_> = opt_in.map(|stage| stage.name).collect();
        for name in ["flow", "openflow", "esp_in", "esp_out"] {
            assert!(opt_in.contains(&name), "{opt_in:?}");
        }
        let route = all.iter().find(|stage| stage.name == "route").unwrap();
        assert!(route.columns_written.contains(&"decision"), "{route:?}");
        assert!(route.metrics.iter().any(|metric| metric == "shadeline_routes"), "{route:?}");
        assert!(route.requests.iter().any(|request| request == "route add"), "{route:?}");
        // Each request is a command of `ctl`.
        let cli = crate::cli::Cli::command();
        let ctl = cli.find_subcommand("ctl").unwrap();
        for stage in &all {
            assert!(!stage.about.is_empty() && stage.about.ends_with('.'), "{}", stage.name);
            for request in &stage.requests {
                let mut at = ctl;
                for word in request.split(' ') {
                    let is_value = |arg: &clap::Arg| {
                        arg.get_possible_values().iter().any(|value| value.get_name() == word)
                    };
                    match at.find_subcommand(word) {
                        Some(next) => at = next,
                        None => assert!(at.get_arguments().any(is_value), "ctl {request}: {word}"),
                    }
                }
            }
            assert!(stage.metrics.iter().all(|m| m.starts_with("shadeline_")), "{stage:?}");
            for section in stage.sections.iter().map(|section| section.title) {
                assert!(section.starts_with('['), "{section}");
            }
        }
    }
}
