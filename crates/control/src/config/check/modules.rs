//! `[[module]]`: names, and that each has one kind.

use crate::config::read::Spans;
use crate::config::stages::KnownStages;
use crate::config::types::*;
use crate::config::walk::Walk;

use super::addresses::unknown_port;

/// Modules at most: each has a bit in columns.
const MODULES_MAX: usize = 32;

pub(super) fn check(known: &KnownStages, config: &Config, spans: &Spans, walk: &mut Walk<'_>) {
    for (at, (module, place)) in config.modules.iter().zip(&spans.modules).enumerate() {
        let name = &module.name;
        if config.modules[..at].iter().any(|other| !name.is_empty() && other.name == *name) {
            walk.error(place.at("name"), format!("there are two modules `{name}`"))
                .expected("a name of its own");
        }
        match (place.has("source"), place.has("kind")) {
            (true, true) => {
                walk.error(place.at("kind"), "`kind` beside `source`").expected("one of them");
            }
            (false, false) if walk.is_whole() => {
                walk.error(place.header(), format!("module `{name}` has no code")).expected(
                    "`source = \"my_module.k\"`, or `kind` for a Rust module of the program",
                );
            }
            _ => {}
        }
        if place.has("patterns") && place.has("kind") && !place.has("source") {
            walk.error(place.at("patterns"), "`patterns` of a Rust module".to_owned())
                .expected("a module with `source`; a Rust module reads files of its own");
        }
        if let Some(kind) = module.kind.as_deref() {
            let names: Vec<&str> = known.modules.iter().map(|own| own.name).collect();
            if !names.contains(&kind) {
                let message = format!("unknown Rust module `{kind}`");
                let expected = match names.as_slice() {
                    [] => "a program with Rust modules; this one has none".to_owned(),
                    names => format!("one of {}", names.join(", ")),
                };
                walk.error(place.at("kind"), message)
                    .nearest(kind, names.iter().copied())
                    .expected(expected);
            }
        }
        for port in module.ports.iter().filter(|_| place.is_right("ports")) {
            if config.port(port).is_none() {
                unknown_port(config, port, place.at("ports"), walk);
            }
        }
    }
    if let (true, Some(place)) = (config.modules.len() > MODULES_MAX, spans.modules.last()) {
        let message = format!("{} modules", config.modules.len());
        walk.error(place.header(), message).expected(format!("at most {MODULES_MAX}"));
    }
}
