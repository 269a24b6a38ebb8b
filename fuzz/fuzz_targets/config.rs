//! Any text as a configuration: it is taken, or every error has a place in the text.
#![no_main]

use control::config::{Application, FRAMES, KnownStages, Pipeline, StageKind, parse};
use libfuzzer_sys::fuzz_target;

static ROUTER: Application = Application {
    name: "router",
    title: "a router",
    sections: &["router", "route", "routes", "neighbour"],
    port_keys: &["addresses", "twin", "rpf", "parent", "vlan"],
    has_host: true,
    is_promiscuous: false,
    in_pairs: false,
    requests: &[],
    metrics: &[],
    joins: None,
};
static SWITCH: Application = Application {
    name: "switch",
    title: "a switch",
    sections: &["switch", "station"],
    port_keys: &["access", "trunk", "native", "learning", "storm"],
    has_host: false,
    ..ROUTER
};
static NDN: Application = Application {
    name: "ndn",
    title: "a named-data forwarder",
    sections: &["neighbour", "ndn", "name", "names"],
    port_keys: &["addresses", "twin"],
    ..ROUTER
};
static WIRE: Application =
    Application { name: "wire", title: "a wire", sections: &[], in_pairs: true, ..SWITCH };
static FIREWALL: Application = Application {
    name: "firewall",
    title: "a firewall",
    sections: &["firewall", "rule"],
    port_keys: &[],
    joins: Some("firewall"),
    ..WIRE
};

fn kind(
    name: &'static str,
    application: &'static Application,
    is_first: bool,
    is_last: bool,
) -> StageKind {
    let (needs, provides): (&[_], &[_]) = (&[FRAMES], &[FRAMES]);
    StageKind { name, about: "", application, needs, provides, is_first, is_last }
}

fuzz_target!(|text: &str| {
    let kinds = vec![
        kind("decode", &ROUTER, true, false),
        kind("rewrite", &ROUTER, false, true),
        kind("bridge_out", &SWITCH, false, true),
        kind("pit", &NDN, false, true),
        kind("wire", &WIRE, false, true),
        kind("firewall", &FIREWALL, false, false),
    ];
    let modes = [&ROUTER, &SWITCH, &NDN, &WIRE].into_iter().zip(&kinds[1..]);
    let modes = modes.map(|(application, last)| Pipeline {
        name: application.name.into(),
        applications: vec![application],
        stages: vec!["decode".to_owned(), last.name.to_owned()],
        max_delay: None,
    });
    let modes = modes.collect();
    let known = KnownStages { kinds, modes, cores: 2 };
    let lines = text.lines().count() + 1;
    match parse(text, &known) {
        Ok((config, _)) => assert!(config.system.workers >= 1),
        Err(diagnostics) => {
            assert!(!diagnostics.is_empty());
            for d in &diagnostics {
                assert!(d.line >= 1 && d.line <= lines && d.column >= 1, "{d:?}");
            }
        }
    }
});
