//! What one application has and another does not.

use crate::config::read::Spans;
use crate::config::stages::{Application, KnownStages};
use crate::config::types::*;
use crate::config::walk::{Place, Walk};

pub(super) fn check(known: &KnownStages, config: &Config, spans: &Spans, walk: &mut Walk<'_>) {
    let mut seen = Vec::new();
    let mut titles: Vec<&str> = config.in_use().map(|pipeline| pipeline.main().title).collect();
    titles.dedup();
    let titles = titles.join(" and ");
    for owner in known.applications() {
        let reads = |section: &str| known.any_reads(&spans.apps, section);
        let foreign = owner.sections.iter().filter(|section| !reads(section));
        for section in foreign.filter(|section| spans.file.has(section)) {
            if seen.contains(section) {
                continue;
            }
            seen.push(section);
            let message = format!("`{section}` has no effect in {titles}");
            // A setting on which security may depend must not be ignored.
            let diagnostic = match owner.joins {
                Some(_) => {
                    walk.error(spans.file.at(section), message + ": no packet would be filtered")
                }
                None => walk.warning(spans.file.at(section), message),
            };
            diagnostic.expected(known.readers_of(section).join(" or "));
        }
    }
    for (port, spans) in config.ports.iter().zip(&spans.ports) {
        let app = config.pipeline_of(&port.name).main();
        of_port(app, &known.foreign_port_keys(Some(app)), port, &spans.keys, walk);
    }
}

fn of_port(app: &Application, foreign: &[&str], port: &Port, keys: &Place, walk: &mut Walk<'_>) {
    // Ports of a switch carry VLANs themselves.
    let has_vlans = app.port_keys.contains(&"trunk");
    if foreign.contains(&"vlan") && matches!(port.kind, PortKind::Vlan { .. }) {
        let message = format!("{} has no subinterfaces", app.title);
        let diagnostic = walk.error(keys.at("vlan"), message);
        if has_vlans {
            diagnostic
                .expected("`access` or `trunk` at the port itself")
                .help("a VLAN of the switch reaches every port that carries it");
        } else {
            diagnostic.expected("ports only: tagged frames are dropped");
        }
        return;
    }
    for key in foreign.iter().filter(|key| keys.has(key)) {
        let message = format!("`{key}` has no effect at a port of {}", app.title);
        let diagnostic = walk.warning(keys.at(key), message);
        if has_vlans {
            diagnostic.help("frames of a switch never reach the kernel of this machine");
        }
    }
}
