//! What one application has and another does not.

use crate::config::owners::{PORT_KEYS, SECTIONS, foreign};
use crate::config::read::Spans;
use crate::config::types::*;
use crate::config::walk::{Place, Walk};

/// Sections that somebody relies on to be safe: that they do nothing is an error.
const GUARDS: [&str; 2] = ["firewall", "rule"];

pub(super) fn check(app: App, config: &Config, spans: &Spans, walk: &mut Walk<'_>) {
    for (owners, sections) in SECTIONS.iter().filter(|(owners, _)| !owners.contains(&app)) {
        for section in sections.iter().filter(|section| spans.file.has(section)) {
            let message = format!("`{section}` has no effect in {}", app.title());
            let titles: Vec<_> = owners.iter().map(|owner| owner.title()).collect();
            let diagnostic = match GUARDS.contains(section) {
                true => walk.error(spans.file.at(section), message + ": nothing would be judged"),
                false => walk.warning(spans.file.at(section), message),
            };
            diagnostic.expected(titles.join(" or "));
        }
    }
    for (port, spans) in config.ports.iter().zip(&spans.ports) {
        of_port(app, port, &spans.keys, walk);
    }
}

fn of_port(app: App, port: &Port, keys: &Place, walk: &mut Walk<'_>) {
    if app != App::Router && matches!(port.kind, PortKind::Vlan { .. }) {
        let message = format!("{} has no subinterfaces", app.title());
        let diagnostic = walk.error(keys.at("vlan"), message);
        if app == App::Switch {
            diagnostic
                .expected("`access` or `trunk` at the port itself")
                .help("a VLAN of the switch reaches every port that carries it");
        } else {
            diagnostic.expected("ports alone: a frame with a tag is dropped");
        }
        return;
    }
    for key in foreign(&PORT_KEYS, Some(app)).filter(|key| keys.has(key)) {
        let message = format!("`{key}` has no effect at a port of {}", app.title());
        let diagnostic = walk.warning(keys.at(key), message);
        if app == App::Switch {
            diagnostic.help("frames of a switch never reach this machine's Linux");
        }
    }
}
