//! Tables of the file become typed values: keys, kinds and ranges, each on its own.

use std::ops::Range;

use toml::de::DeTable;

use super::schema::{StageKeys, firewall, ndn, places, port, routes, switch};
use super::section::SectionValue;
use super::stages::{Application, KnownStages, Settings, StageKind};
use super::types::*;
use super::values::{array, duration, string};
use super::walk::{Place, Section, Walk};

/// Where things are, beside the [`Config`]: vectors match its vectors.
///
/// Whatever is wrong in a section, the section is there, so that one bad key hides no mistake in another: what could
/// not be read is a placeholder, and [`Place::is_right`] says so.
#[derive(Debug, Default)]
pub(super) struct Spans {
    /// What the file is about, by pipeline in use: that of `mode` first; `None` if it is unknown (an error).
    pub(super) apps: Vec<Option<&'static Application>>,
    pub(super) file: Place,
    pub(super) system: Place,
    pub(super) router: Place,
    pub(super) ports: Vec<PortSpans>,
    /// Something under `port` is not a table, so that a port is missing here.
    pub(super) has_lost_ports: bool,
    pub(super) routes: Vec<RouteSpans>,
    pub(super) route_files: Vec<RouteSpans>,
    pub(super) neighbours: Vec<Place>,
    pub(super) switch: Place,
    pub(super) stations: Vec<Place>,
    pub(super) ndn: Place,
    pub(super) faces: Vec<Place>,
    pub(super) names: Vec<NameSpans>,
    pub(super) firewall: Place,
    pub(super) l7: Place,
    pub(super) rules: Vec<Place>,
    pub(super) nat: Vec<Place>,
    pub(super) associations: Vec<Place>,
    pub(super) policies: Vec<Place>,
    /// By stage of `[stage.NAME]`: its keys, and its rules.
    pub(super) stages: Vec<(Place, Vec<Place>)>,
    pub(super) modules: Vec<Place>,
    pub(super) engine: Place,
}

/// Of a port.
#[derive(Debug)]
pub(super) struct PortSpans {
    pub(super) keys: Place,
    pub(super) addresses: Vec<Range<usize>>,
}

/// Of a route or routes file.
#[derive(Debug)]
pub(super) struct RouteSpans {
    pub(super) keys: Place,
    /// Where each next hop is: several members may be in one text.
    pub(super) next_hops: Vec<(super::NextHop, Range<usize>)>,
}

/// Of a route for names.
#[derive(Debug)]
pub(super) struct NameSpans {
    pub(super) keys: Place,
    /// Where each face is.
    pub(super) faces: Vec<Range<usize>>,
}

/// Reads the whole file.
pub(super) fn config(
    table: &DeTable<'_>,
    known: &KnownStages,
    cores: usize,
    walk: &mut Walk<'_>,
) -> (Config, Spans) {
    let mut file = Section::new(table, "", 0..0);
    let mut spans = Spans { file: file.place(), ..Spans::default() };

    let mut known = known.clone();
    let mut stages = Vec::new();
    if let Some(section) = section(&mut file, walk, "stage") {
        for (name, span, value) in section.entries() {
            let read = stage(walk, name, span, value, &mut known);
            stages.extend(read.map(|(stage, place, rules)| {
                spans.stages.push((place, rules));
                stage
            }));
        }
    }
    let known = &known;
    let (mut pipelines, mut wrong, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    if let Some(section) = section(&mut file, walk, "pipeline") {
        for (name, _, value) in section.entries() {
            let Some((pipeline, is_right, stages)) = pipeline(walk, name, value, known) else {
                continue;
            };
            wrong.extend((!is_right).then_some(name));
            pipelines.push(pipeline);
            lines.push(stages);
        }
    }
    let chosen = mode(&mut file, walk, &pipelines, known);
    let is_known = !wrong.contains(&chosen.0.name.as_str());
    spans.apps = vec![chosen.1.filter(|_| is_known)];
    let pipeline = chosen.0;
    let of_file = |pipeline: &Pipeline, line: Option<usize>| -> Vec<Option<usize>> {
        match pipelines.iter().position(|p: &Pipeline| p.name == pipeline.name) {
            Some(at) => lines[at].iter().copied().map(Some).collect(),
            None => vec![line; pipeline.stages.len()],
        }
    };
    let mode = spans.file.has("mode").then(|| walk.line(spans.file.at("mode").start));
    let mut stage_lines = vec![of_file(&pipeline, mode)];
    let mut in_use = vec![pipeline];
    for (name, span) in pipelines_of_ports(table) {
        let all = || pipelines.iter().chain(&known.modes);
        if in_use.iter().any(|own| own.name == name) {
            continue;
        }
        match all().find(|own| own.name == name) {
            Some(own) => {
                let is_known = !wrong.contains(&name);
                spans.apps.push(own.applications.first().copied().filter(|_| is_known));
                stage_lines.push(of_file(own, Some(walk.line(span.start))));
                in_use.push(own.clone());
            }
            None if walk.is_whole() => {
                let names: Vec<&str> = all().map(|own| own.name.as_str()).collect();
                walk.error(span, format!("unknown pipeline `{name}`"))
                    .nearest(name, names.iter().copied())
                    .expected(format!("one of {}", names.join(", ")))
                    .help(format!("define it: [pipeline.{name}] stages = […]"));
                // Of a port without a pipeline nothing can be said.
                spans.apps.push(None);
            }
            None => {}
        }
    }
    file.hide(known.foreign_sections(&spans.apps));

    let mut system = System::on(cores);
    if let Some(mut section) = section(&mut file, walk, "system") {
        spans.system = section.place();
        system.has_workers = section.has("workers");
        system.read(&mut section, walk);
        section.finish(walk);
    }
    let mut router = Router::default();
    if let Some(mut section) = section(&mut file, walk, "router") {
        spans.router = section.place();
        router.read(&mut section, walk);
        section.finish(walk);
    }
    let mut switch = Switch::default();
    if let Some(mut section) = section(&mut file, walk, "switch") {
        spans.switch = section.place();
        switch.read(&mut section, walk);
        section.finish(walk);
    }
    let mut stations = Vec::new();
    for section in sections(&mut file, walk, "station") {
        let (station, place) = switch::station(section, walk);
        stations.push(station);
        spans.stations.push(place);
    }
    let (mut ndn, mut faces) = (Ndn::default(), Vec::new());
    if let Some(mut section) = section(&mut file, walk, "ndn") {
        spans.ndn = section.place();
        (faces, spans.faces) = ndn::ndn(&mut section, walk, &mut ndn).into_iter().unzip();
        section.finish(walk);
    }
    let mut names = Vec::new();
    for section in sections(&mut file, walk, "name") {
        let (route, place) = ndn::name(section, walk);
        names.push(route);
        spans.names.push(place);
    }
    let sections_of_files = sections(&mut file, walk, "names");
    let name_files = sections_of_files.into_iter().filter_map(|s| ndn::names(s, walk)).collect();
    let mut firewall = Firewall::default();
    if let Some(mut section) = section(&mut file, walk, "firewall") {
        spans.firewall = section.place();
        firewall.read(&mut section, walk);
        section.finish(walk);
    }
    let mut flow = Flow { is_on: file.has("flow"), ..Flow::default() };
    if let Some(mut section) = section(&mut file, walk, "flow") {
        flow.read(&mut section, walk);
        section.renamed(walk, super::schema::RENAMED);
        section.finish(walk);
    }
    let mut l7 = L7 { is_on: file.has(L7::NAME), ..L7::default() };
    if let Some(mut section) = section(&mut file, walk, L7::NAME) {
        spans.l7 = section.place();
        l7.read(&mut section, walk);
        section.finish(walk);
    }
    let mut ids = Ids { is_on: file.has("ids"), ..Ids::default() };
    if let Some(mut section) = section(&mut file, walk, "ids") {
        ids.read(&mut section, walk);
        section.finish(walk);
    }
    let mut modules = Vec::new();
    for mut section in sections(&mut file, walk, "module") {
        let mut module = ModuleEntry::default();
        module.read(&mut section, walk);
        spans.modules.push(section.place());
        section.finish(walk);
        modules.push(module);
    }
    let mut nat = Vec::new();
    for mut section in sections(&mut file, walk, "nat") {
        let mut rule = NatRule::default();
        rule.read(&mut section, walk);
        spans.nat.push(section.place());
        section.finish(walk);
        nat.push(rule);
    }
    let mut translation = Translation::default();
    if let Some(mut section) = section(&mut file, walk, "translation") {
        translation.read(&mut section, walk);
        section.finish(walk);
    }
    let mut ipsec = Ipsec::default();
    if let Some(mut section) = section(&mut file, walk, "ipsec") {
        ipsec.read(&mut section, walk);
        section.finish(walk);
    }
    let mut associations = Vec::new();
    for mut section in sections(&mut file, walk, "sa") {
        let mut own = SaEntry::default();
        own.read(&mut section, walk);
        spans.associations.push(section.place());
        section.finish(walk);
        associations.push(own);
    }
    let mut policies = Vec::new();
    for mut section in sections(&mut file, walk, "policy") {
        let mut own = PolicyEntry::default();
        own.read(&mut section, walk);
        spans.policies.push(section.place());
        section.finish(walk);
        policies.push(own);
    }
    (firewall.rules, spans.rules) = read_rules(&mut file, walk, "");
    firewall.is_on = file.has("firewall") || file.has("rule");
    let mut in_use = in_use.into_iter();
    let pipeline = in_use.next().expect("that of `mode`");
    let others: Vec<Pipeline> = in_use.collect();
    let mut dumps = Vec::new();
    if let Some(section) = section(&mut file, walk, "dump") {
        for (name, _, value) in section.entries() {
            let Some(mut section) = Section::of(walk, value, &format!("dump.{name}")) else {
                continue;
            };
            let mut dump = Dump { name: name.to_owned(), ..Dump::default() };
            dump.read(&mut section, walk);
            section.finish(walk);
            dumps.push(dump);
        }
    }
    let mut engine = Engine::default();
    if let Some(mut section) = section(&mut file, walk, "engine") {
        spans.engine = section.place();
        engine.read(&mut section, walk);
        section.finish(walk);
    }
    let mut ports = Vec::new();
    let section_of_ports = section(&mut file, walk, "port");
    spans.has_lost_ports = section_of_ports.is_none() && file.has("port");
    if let Some(section) = section_of_ports {
        for (name, span, value) in section.entries() {
            let own = pipeline_of_port(value, &section).map(|(name, _)| name);
            let at = own.and_then(|name| others.iter().position(|other| other.name == name));
            let app = match own {
                // It was said that it is unknown.
                Some(name) if at.is_none() && name != pipeline.name => None,
                _ => spans.apps.get(at.map_or(0, |at| at + 1)).copied().flatten(),
            };
            if let Some((port, place)) = port::port(walk, name, span, value, app, known) {
                ports.push(port);
                spans.ports.push(place);
            } else {
                spans.has_lost_ports = true;
            }
        }
    }
    let mut routes = Vec::new();
    for section in sections(&mut file, walk, "route") {
        if let Some((route, place)) = routes::route(section, walk) {
            routes.push(route);
            spans.routes.push(place);
        }
    }
    let mut route_files = Vec::new();
    for section in sections(&mut file, walk, "routes") {
        if let Some((routes, place)) = routes::route_file(section, walk) {
            route_files.push(routes);
            spans.route_files.push(place);
        }
    }
    let mut neighbours = Vec::new();
    for mut section in sections(&mut file, walk, "neighbour") {
        let mut neighbour = Neighbour::default();
        neighbour.read(&mut section, walk);
        spans.neighbours.push(section.place());
        section.finish(walk);
        neighbours.push(neighbour);
    }
    let mut config = Config {
        pipeline,
        others,
        system,
        ports,
        router,
        routes,
        route_files,
        neighbours,
        switch,
        stations,
        ndn,
        faces,
        names,
        name_files,
        firewall,
        flow,
        l7,
        ids,
        modules,
        nat,
        translation,
        ipsec,
        associations,
        policies,
        stages,
        dumps,
        engine,
        pipelines,
        stage_lines,
    };
    with_joining(&file, walk, known, &mut config);
    known.part(&mut config);
    file.finish(walk);
    (config, spans)
}

/// The pipelines that ports name, each with its place.
fn pipelines_of_ports<'t>(file: &'t DeTable<'_>) -> Vec<(&'t str, Range<usize>)> {
    let ports = file.get("port").and_then(|value| value.get_ref().as_table());
    let ports = ports.into_iter().flat_map(|ports| ports.values());
    let named = |port: &'t super::walk::Value<'_>| {
        let value = port.get_ref().as_table()?.get("pipeline")?;
        Some((value.get_ref().as_str()?, value.span()))
    };
    let mut all: Vec<_> = ports.filter_map(named).collect();
    all.sort_by_key(|(_, span)| span.start);
    all
}

/// The pipeline that a port names, or the port that carries it.
fn pipeline_of_port<'t>(
    port: &'t super::walk::Value<'_>,
    ports: &Section<'t, '_>,
) -> Option<(&'t str, Range<usize>)> {
    let table = port.get_ref().as_table()?;
    let table = match table.get("parent").and_then(|parent| parent.get_ref().as_str()) {
        Some(parent) => ports.table_of(parent)?,
        None => table,
    };
    let value = table.get("pipeline")?;
    Some((value.get_ref().as_str()?, value.span()))
}

/// `[[rule]]`, each with its place; `within`: the section that has them, with a dot behind it.
fn read_rules(
    file: &mut Section<'_, '_>,
    walk: &mut Walk<'_>,
    within: &str,
) -> (Vec<RuleEntry>, Vec<Place>) {
    let sections = sections_in(file, walk, within, "rule").into_iter().zip(1..);
    sections.filter_map(|(section, number)| firewall::rule(section, walk, number)).unzip()
}

/// Reads a file of rules alone.
pub(super) fn rules(table: &DeTable<'_>, walk: &mut Walk<'_>) -> Vec<RuleEntry> {
    let mut file = Section::new(table, "", 0..0);
    let (rules, _) = read_rules(&mut file, walk, "");
    file.finish(walk);
    rules
}

/// Puts the stages of applications into a shipped pipeline whose sections the file has, and the lines of those
/// sections.
fn with_joining(file: &Section<'_, '_>, walk: &Walk<'_>, known: &KnownStages, config: &mut Config) {
    let joining: Vec<_> = known
        .applications()
        .into_iter()
        .filter_map(|application| {
            let has = |section: &&&str| file.has(section);
            let own = application.sections.iter().find(has);
            let of_others = || {
                let needs = application.joins_when.is_none_or(|needs| needs(config, known));
                application.joins_for.iter().find(has).filter(|_| needs)
            };
            let section = own.or_else(of_others)?;
            Some((application, walk.line(file.place().at(section).start)))
        })
        .collect();
    let Config { pipeline, others, stage_lines, .. } = config;
    for (pipeline, lines) in std::iter::once(pipeline).chain(others).zip(stage_lines) {
        if !known.modes.contains(pipeline) {
            continue;
        }
        // A stage that needs what another one provides joins behind it.
        let mut waiting: Vec<_> = joining.iter().collect();
        loop {
            let before = waiting.len();
            waiting.retain(|(application, line)| {
                let places = known.join(pipeline, application);
                places.iter().for_each(|at| lines.insert(*at, Some(*line)));
                places.is_empty()
            });
            if waiting.len() == before {
                break;
            }
        }
    }
}

fn section<'t, 'i>(
    file: &mut Section<'t, 'i>,
    walk: &mut Walk<'_>,
    name: &'static str,
) -> Option<Section<'t, 'i>> {
    let value = file.get(walk, name)?;
    Section::of(walk, value, name)
}

/// Elements of `[[name]]`.
fn sections<'t, 'i>(
    file: &mut Section<'t, 'i>,
    walk: &mut Walk<'_>,
    name: &'static str,
) -> Vec<Section<'t, 'i>> {
    sections_in(file, walk, "", name)
}

/// Elements of `[[within.name]]`.
fn sections_in<'t, 'i>(
    file: &mut Section<'t, 'i>,
    walk: &mut Walk<'_>,
    within: &str,
    name: &'static str,
) -> Vec<Section<'t, 'i>> {
    let title = format!("[[{within}{name}]]");
    let Some(value) = file.get(walk, name) else { return Vec::new() };
    let Some(array) = value.get_ref().as_array() else {
        let message = format!("`{name}` is one value");
        walk.error(value.span(), message).expected(format!("{title}, as often as needed"));
        return Vec::new();
    };
    let sections = walk.elements(array, |walk, value| Section::of(walk, value, &title));
    sections.into_iter().map(|(section, _)| section).collect()
}

/// A stage under a name of its own, its place, and those of its rules. It is known from then on.
fn stage(
    walk: &mut Walk<'_>,
    name: &str,
    span: Range<usize>,
    value: &super::walk::Value<'_>,
    known: &mut KnownStages,
) -> Option<(StageConfig, Place, Vec<Place>)> {
    let title = format!("stage.{name}");
    let mut section = Section::of(walk, value, &title)?;
    let place = section.place();
    let names: Vec<&'static str> =
        known.kinds.iter().map(|kind| known.kind_of(kind.name)).collect();
    let mut keys = StageKeys::default();
    keys.read(&mut section, walk);
    let wanted = keys.kind.as_deref().unwrap_or(name);
    // Not a stage of the file: that is of a kind itself.
    let is_kind = |kind: &&StageKind| kind.name == wanted && known.kind_of(wanted) == wanted;
    let Some(kind) = known.kinds.iter().find(is_kind).copied() else {
        let mut all = names;
        all.dedup();
        let message = match keys.kind {
            Some(_) => format!("unknown kind of stage `{wanted}`"),
            None => format!("there is no kind of stage `{name}`, and no `kind`"),
        };
        let at = if place.has("kind") { place.at("kind") } else { span };
        let expected = format!("one of {}", all.join(", "));
        walk.error(at, message).nearest(wanted, all.iter().copied()).expected(expected);
        return None;
    };
    if name != kind.name {
        let is_taken = known.kind(name).is_some();
        if is_taken {
            walk.error(span.clone(), format!("`{name}` is the name of another stage"))
                .expected("a name of its own");
        } else if !super::is_port_name(name) {
            walk.error(span.clone(), format!("`{name}` is not a valid name of a stage"))
                .expected("1 to 32 letters, digits or `.`, `_`, `-`");
        } else if !kind.settings.is_some() {
            let message = format!("a stage of the kind `{}` has no name of its own", kind.name);
            walk.error(place.at("kind"), message)
                .expected("a kind with settings of its own")
                .help(format!("all stages of `{}` share its sections", kind.application.name));
        } else {
            known.add(name, kind);
        }
    }
    let why = match kind {
        StageKind { is_first: true, .. } => Some("it must decode every packet".to_owned()),
        StageKind { is_last: true, .. } => Some("it must send every packet".to_owned()),
        StageKind { provides: [what, ..], .. } => {
            Some(format!("later stages need {what} for every packet"))
        }
        _ => None,
    };
    if let Some(why) = why.filter(|_| !keys.context.is_empty()) {
        let message = format!("`context` is not allowed at `{}`: {why}", kind.name);
        walk.error(place.at("context"), message).expected("no `context`");
    }
    let mut rules = Vec::new();
    let settings: Option<Box<dyn SectionValue>> = match kind.settings {
        Settings::None => None,
        Settings::Keys(new) => {
            let mut settings = new();
            settings.read(&mut section, walk);
            Some(settings)
        }
        // The one with the name of its kind has the rules of the file, unless it has some of its own.
        Settings::Rules if name == kind.name && place.keys().all(is_of_all_stages) => None,
        Settings::Rules => {
            let mut firewall = Firewall { is_on: true, ..Firewall::default() };
            firewall.read(&mut section, walk);
            (firewall.rules, rules) = read_rules(&mut section, walk, &format!("{title}."));
            Some(Box::new(firewall))
        }
    };
    section.finish(walk);
    let (name, context) = (name.to_owned(), keys.context);
    Some((StageConfig { name, kind: kind.name, context, settings }, place, rules))
}

/// Whether each `[stage.NAME]` has a key.
fn is_of_all_stages(key: &str) -> bool {
    ["kind", "context"].contains(&key)
}

/// A pipeline, whether it is known what it does, and the lines of its stages.
fn pipeline(
    walk: &mut Walk<'_>,
    name: &str,
    value: &super::walk::Value<'_>,
    known: &KnownStages,
) -> Option<(Pipeline, bool, Vec<usize>)> {
    let mut section = Section::of(walk, value, &format!("pipeline.{name}"))?;
    let place = section.place();
    let stages = section.need(walk, "stages", "[\"…\"]", |walk, value| {
        let stages = array(walk, value, "an array of names of stages")?;
        if stages.is_empty() {
            walk.error(value.span(), "`stages` is empty").expected("at least one stage");
        }
        let names = || known.kinds.iter().map(|kind| kind.name);
        let stages = walk.elements(stages, |walk, value| {
            let stage = string(walk, value)?;
            if known.kind(stage).is_none() {
                let expected = format!("one of {}", names().collect::<Vec<_>>().join(", "));
                walk.error(value.span(), format!("unknown stage `{stage}`"))
                    .nearest(stage, names())
                    .expected(expected);
            }
            Some(stage.to_owned())
        });
        Some(stages.into_iter().map(|(stage, span)| (stage, walk.line(span.start))).unzip())
    });
    let max_delay =
        section.take(walk, "max_delay", |walk, value| duration(walk, value, 0, 1_000_000_000));
    let mut to = Vec::new();
    section.key(walk, "places", &places(), &mut to);
    let (stages, lines): (Vec<String>, Vec<usize>) = stages.unwrap_or_default();
    let own = stages.iter().filter_map(|stage| known.kind(stage));
    let sent: Vec<&str> = own.flat_map(|kind| kind.places).copied().collect();
    for (name, _) in to.iter().filter(|(name, _)| !sent.contains(&name.as_str())) {
        let message = format!("no stage of this pipeline sends packets to a place `{name}`");
        let diagnostic = walk.error(place.at("places"), message);
        if !sent.is_empty() {
            diagnostic.expected(format!("one of {}", sent.join(", ")));
        }
    }
    for (name, stage) in to.iter().filter(|(_, stage)| !stages.contains(stage)) {
        let message =
            format!("place `{name}` leads to `{stage}`, which is not a stage of this pipeline");
        walk.error(place.at("places"), message).expected(format!("one of {}", stages.join(", ")));
    }
    let is_known = stages.iter().all(|stage| known.kind(stage).is_some());
    let arranged = known.arrange(&stages);
    let is_right = arranged.is_ok();
    let applications = arranged.unwrap_or_else(|problem| {
        // An unknown stage was reported already.
        if is_known && !stages.is_empty() {
            walk.error(place.at("stages"), problem);
        }
        Vec::new()
    });
    section.finish(walk);
    let pipeline =
        Pipeline { applications, max_delay, places: to, ..known.unchecked(name, &stages) };
    Some((pipeline, is_right, lines))
}

/// The pipeline that `mode` names: one of the file, else a shipped one; and what it does, where that is known.
fn mode(
    file: &mut Section<'_, '_>,
    walk: &mut Walk<'_>,
    pipelines: &[Pipeline],
    known: &KnownStages,
) -> (Pipeline, Option<&'static Application>) {
    let all = || pipelines.iter().chain(&known.modes);
    let fallback = || known.modes.iter().chain(pipelines).next().cloned();
    let chosen = file.take(walk, "mode", |walk, value| {
        let name = string(walk, value)?;
        let pipeline = all().find(|pipeline| pipeline.name == name);
        if pipeline.is_none() && walk.is_whole() {
            let names: Vec<&str> = all().map(|pipeline| pipeline.name.as_str()).collect();
            walk.error(value.span(), format!("unknown pipeline `{name}`"))
                .nearest(name, names.iter().copied())
                .expected(format!("one of {}", names.join(", ")))
                .help(format!("define it: [pipeline.{name}] stages = […]"));
        }
        pipeline.cloned()
    });
    let is_known = chosen.is_some() || !file.has("mode");
    let nothing = || known.unchecked::<String>("none", &[]);
    let pipeline = chosen.or_else(fallback).unwrap_or_else(nothing);
    let app = pipeline.applications.first().copied().filter(|_| is_known);
    (pipeline, app)
}
