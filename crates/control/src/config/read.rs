//! Tables of the file become typed values: keys, kinds and ranges, each on its own.

mod firewall;
mod ndn;
mod ports;
mod routes;
mod switch;
mod values;

use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::Path;

use toml::de::DeTable;

use super::defaults;
use super::stages::{Application, KnownStages};
use super::types::*;
use super::walk::{Place, Section, Walk};
use values::*;

/// Where things stand, beside the [`Config`]: vectors match its vectors.
///
/// Whatever is wrong in a section, the section is there, so that one bad key hides no mistake in another: what could
/// not be read is a stand-in, and [`Place::is_right`] says so.
#[derive(Debug, Default)]
pub(super) struct Spans {
    /// What the file is about; `None` where `mode` does not say, which was told.
    pub(super) app: Option<&'static Application>,
    pub(super) file: Place,
    pub(super) system: Place,
    pub(super) router: Place,
    pub(super) ports: Vec<PortSpans>,
    /// Something under `port` is no table, so that a port is missing here.
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
    pub(super) rules: Vec<Place>,
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
    /// Where each next hop stands: several members may stand in one text.
    pub(super) next_hops: Vec<(super::NextHop, Range<usize>)>,
}

/// Of a route for names.
#[derive(Debug)]
pub(super) struct NameSpans {
    pub(super) keys: Place,
    /// Where each face stands.
    pub(super) faces: Vec<Range<usize>>,
}

/// Reads the whole file. `folder`: where relative paths start; `None`: paths are not looked at.
pub(super) fn config(
    table: &DeTable<'_>,
    known: &KnownStages,
    cores: usize,
    folder: Option<&Path>,
    walk: &mut Walk<'_>,
) -> (Config, Spans) {
    let mut file = Section::new(table, "", 0..0);
    let mut spans = Spans { file: file.place(), ..Spans::default() };

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
    spans.app = chosen.1.filter(|_| is_known);
    let mut pipeline = chosen.0;
    let of_file = pipelines.iter().position(|p: &Pipeline| p.name == pipeline.name);
    let mut stage_lines: Vec<_> = match of_file {
        Some(at) => std::mem::take(&mut lines[at]).into_iter().map(Some).collect(),
        None => {
            let mode = spans.file.has("mode").then(|| walk.line(spans.file.at("mode").start));
            vec![mode; pipeline.stages.len()]
        }
    };
    file.hide(known.foreign_sections(spans.app));

    let mut system = defaults::system(cores);
    if let Some(mut section) = section(&mut file, walk, "system") {
        spans.system = section.place();
        read_system(&mut section, walk, &mut system);
        section.finish(walk);
    }
    let mut router = defaults::router();
    if let Some(mut section) = section(&mut file, walk, "router") {
        spans.router = section.place();
        read_router(&mut section, walk, &mut router);
        section.finish(walk);
    }
    let mut switch = defaults::switch();
    if let Some(mut section) = section(&mut file, walk, "switch") {
        spans.switch = section.place();
        switch::switch(&mut section, walk, &mut switch);
        section.finish(walk);
    }
    let mut stations = Vec::new();
    for section in sections(&mut file, walk, "station") {
        let (station, place) = switch::station(section, walk);
        stations.push(station);
        spans.stations.push(place);
    }
    let (mut ndn, mut faces) = (defaults::ndn(), Vec::new());
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
    let name_files =
        sections_of_files.into_iter().filter_map(|s| ndn::names(s, walk, folder)).collect();
    let mut firewall = defaults::firewall();
    if let Some(mut section) = section(&mut file, walk, "firewall") {
        spans.firewall = section.place();
        firewall::firewall(&mut section, walk, &mut firewall);
        section.finish(walk);
    }
    let rules;
    (rules, spans.rules) = read_rules(&mut file, walk, folder);
    firewall.is_on = file.has("firewall") || file.has("rule");
    with_joining(&file, walk, known, &mut pipeline, &mut stage_lines);
    let mut engine = defaults::engine();
    if let Some(mut section) = section(&mut file, walk, "engine") {
        spans.engine = section.place();
        read_engine(&mut section, walk, &mut engine);
        section.finish(walk);
    }
    let mut ports = Vec::new();
    let section_of_ports = section(&mut file, walk, "port");
    spans.has_lost_ports = section_of_ports.is_none() && file.has("port");
    if let Some(section) = section_of_ports {
        for (name, span, value) in section.entries() {
            if let Some((port, place)) = ports::port(walk, name, span, value, spans.app, known) {
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
        if let Some((routes, place)) = routes::route_file(section, walk, folder) {
            route_files.push(routes);
            spans.route_files.push(place);
        }
    }
    let mut neighbours = Vec::new();
    for mut section in sections(&mut file, walk, "neighbour") {
        let port = section.need(walk, "port", "\"lan\"", string);
        let address = section.need(walk, "address", "\"192.0.2.7\"", address);
        let mac = section.need(walk, "mac", "\"02:00:5e:10:00:07\"", unicast_mac);
        spans.neighbours.push(section.place());
        section.finish(walk);
        neighbours.push(Neighbour {
            port: port.unwrap_or_default().to_owned(),
            address: address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
            mac: mac.unwrap_or_default(),
        });
    }
    file.finish(walk);
    let config = Config {
        pipeline,
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
        rules,
        engine,
        pipelines,
        stage_lines,
    };
    (config, spans)
}

/// `[[rule]]`, each with its place.
fn read_rules(
    file: &mut Section<'_, '_>,
    walk: &mut Walk<'_>,
    folder: Option<&Path>,
) -> (Vec<RuleEntry>, Vec<Place>) {
    let sections = sections(file, walk, "rule").into_iter().zip(1..);
    sections.filter_map(|(section, number)| firewall::rule(section, walk, number, folder)).unzip()
}

/// Reads a file of rules alone.
pub(super) fn rules(table: &DeTable<'_>, folder: &Path, walk: &mut Walk<'_>) -> Vec<RuleEntry> {
    let mut file = Section::new(table, "", 0..0);
    let (rules, _) = read_rules(&mut file, walk, Some(folder));
    file.finish(walk);
    rules
}

/// Puts the stages of applications into a shipped pipeline whose sections the file has, and the lines of those sections.
fn with_joining(
    file: &Section<'_, '_>,
    walk: &Walk<'_>,
    known: &KnownStages,
    pipeline: &mut Pipeline,
    lines: &mut Vec<Option<usize>>,
) {
    if !known.modes.contains(pipeline) {
        return;
    }
    for application in known.applications() {
        let Some(stage) = application.joins else { continue };
        let Some(section) = application.sections.iter().find(|s| file.has(s)) else { continue };
        if let Some(at) = known.place_of_joining(&pipeline.stages, stage) {
            pipeline.stages.insert(at, stage.to_owned());
            pipeline.applications = known.arrange(&pipeline.stages).unwrap_or_default();
            lines.insert(at, Some(walk.line(file.place().at(section).start)));
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
    let title = format!("[[{name}]]");
    let Some(value) = file.get(walk, name) else { return Vec::new() };
    let Some(array) = value.get_ref().as_array() else {
        let message = format!("`{name}` is one value");
        walk.error(value.span(), message).expected(format!("{title}, as often as needed"));
        return Vec::new();
    };
    let sections = walk.elements(array, |walk, value| Section::of(walk, value, &title));
    sections.into_iter().map(|(section, _)| section).collect()
}

fn read_system(section: &mut Section<'_, '_>, walk: &mut Walk<'_>, system: &mut System) {
    system.has_workers = section.has("workers");
    section.set(walk, "workers", &mut system.workers, integer(1..=1024));
    section.set(walk, "cpus", &mut system.cpus, |walk, value| {
        let cpus = array(walk, value, "an array of CPU numbers")?;
        let cpus = walk.elements(cpus, integer(0..=65_535));
        Some(cpus.into_iter().map(|(cpu, _)| cpu).collect())
    });
    section.set(walk, "cells", &mut system.cells, integer(256..=16_777_216));
    section.set(walk, "huge_pages", &mut system.huge_pages, word);
    section.set(walk, "log", &mut system.log, word);
    section.set(walk, "log_format", &mut system.log_format, word);
    section.set(walk, "socket", &mut system.socket, |walk, value| {
        let text = string(walk, value)?;
        // sockaddr_un holds 108 bytes; some are for the name under which the socket is made.
        if text.is_empty() || text.len() > 96 || text.contains('\0') {
            walk.error(value.span(), "`socket` cannot name a Unix socket")
                .expected("a path of 1 to 96 bytes");
            return None;
        }
        Some(text.into())
    });
    section.set(walk, "metrics", &mut system.metrics, |walk, value| match string(walk, value)? {
        "off" => Some(None),
        text => text.parse().map(Some).ok().or_else(|| {
            walk.error(value.span(), format!("`metrics` is `{text}`"))
                .expected("ADDRESS:PORT such as \"127.0.0.1:9101\" or \"[::1]:9101\", or \"off\"");
            None
        }),
    });
}

fn read_router(section: &mut Section<'_, '_>, walk: &mut Walk<'_>, router: &mut Router) {
    section.set(walk, "kernel", &mut router.kernel, boolean);
    section.set(walk, "ttl", &mut router.ttl, integer(1..=255));
    section.set(walk, "fragment", &mut router.fragment, boolean);
    section.set(walk, "icmp_rate", &mut router.icmp_rate, rate(0..=10_000_000));
    section.set(walk, "icmp_burst", &mut router.icmp_burst, integer(1..=1_000_000));
    section.set(walk, "arp_queue_packets", &mut router.arp_queue_packets, integer(0..=4096));
    section.set(
        walk,
        "arp_queue_total_packets",
        &mut router.arp_queue_total_packets,
        integer(0..=1_048_576),
    );
    section.set(walk, "neighbours_max", &mut router.neighbours_max, integer(16..=1_048_576));
    let range = (1, 86_400);
    section.set(walk, "neighbour_reachable", &mut router.neighbour_reachable, seconds(range));
    section.set(walk, "neighbour_attempts", &mut router.neighbour_attempts, integer(1..=100));
    section.set(walk, "table_v4", &mut router.table_v4, word);
    section.set(walk, "table_v6", &mut router.table_v6, word);
    section.set(walk, "neighbour_retry", &mut router.neighbour_retry, |walk, value| {
        duration(walk, value, 10_000_000, 3_600_000_000_000)
    });
}

/// A duration of whole seconds from and to.
fn seconds<'t, 'i, 'a>(
    (from, to): (u64, u64),
) -> impl FnOnce(&mut Walk<'a>, &'t super::walk::Value<'i>) -> Option<std::time::Duration> {
    move |walk, value| duration(walk, value, from * 1_000_000_000, to * 1_000_000_000)
}

fn read_engine(section: &mut Section<'_, '_>, walk: &mut Walk<'_>, engine: &mut Engine) {
    section.set(walk, "backend", &mut engine.backend, engine_backend);
    section.set(walk, "devices", &mut engine.devices, devices);
    if let Some(offload) = section.take(walk, "offload", word) {
        engine.offload = Some(offload);
    }
    section.set(walk, "chunk", &mut engine.chunk, integer(1..=256));
    section.set(walk, "max_delay", &mut engine.max_delay, |walk, value| {
        duration(walk, value, 0, 1_000_000_000)
    });
    section.set(walk, "jobs_in_flight", &mut engine.jobs_in_flight, integer(1..=64));
    section.set(walk, "device_timeout", &mut engine.device_timeout, |walk, value| {
        duration(walk, value, 1_000_000, 60_000_000_000)
    });
    let sim = section.take(walk, "sim", |walk, value| Section::of(walk, value, "engine.sim"));
    if let Some(mut sim) = sim {
        let cost = &mut engine.sim;
        let second = 1_000_000_000;
        sim.set(walk, "launch", &mut cost.launch, |walk, value| duration(walk, value, 0, second));
        sim.set(walk, "packet", &mut cost.packet, |walk, value| duration(walk, value, 0, second));
        sim.finish(walk);
    }
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
    let (stages, lines): (Vec<String>, Vec<usize>) = stages.unwrap_or_default();
    let is_known = stages.iter().all(|stage| known.kind(stage).is_some());
    let arranged = known.arrange(&stages);
    let is_right = arranged.is_ok();
    let applications = arranged.unwrap_or_else(|problem| {
        // Of a stage that nobody knows, that was said.
        if is_known && !stages.is_empty() {
            walk.error(place.at("stages"), problem);
        }
        Vec::new()
    });
    section.finish(walk);
    Some((Pipeline { name: name.to_owned(), applications, stages, max_delay }, is_right, lines))
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
    let pipeline = chosen.or_else(fallback).unwrap_or_else(|| Pipeline {
        name: "none".to_owned(),
        applications: Vec::new(),
        stages: Vec::new(),
        max_delay: None,
    });
    let app = pipeline.applications.first().copied().filter(|_| is_known);
    (pipeline, app)
}
