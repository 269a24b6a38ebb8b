//! Any text as a configuration: it is taken, or every error has a place in the text.
#![no_main]

use control::config::{Application, FRAMES, KnownStages, Settings, StageKind, parse};
use libfuzzer_sys::fuzz_target;

static ROUTER: Application = Application {
    name: "router",
    title: "a router",
    sections: &["router", "route", "routes", "neighbour"],
    port_keys: &["addresses", "twin", "rpf", "parent", "vlan"],
    has_host: true,
    ..Application::NONE
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
    StageKind { needs, provides, is_first, is_last, ..StageKind::new(name, application) }
}

fuzz_target!(|text: &str| {
    let kinds = vec![
        kind("decode", &ROUTER, true, false),
        kind("rewrite", &ROUTER, false, true),
        kind("bridge_out", &SWITCH, false, true),
        kind("pit", &NDN, false, true),
        kind("wire", &WIRE, false, true),
        StageKind { settings: Settings::Rules, ..kind("firewall", &FIREWALL, false, false) },
    ];
    let mut known = KnownStages { kinds, cores: 2, ..KnownStages::default() };
    known.modes = ["rewrite", "bridge_out", "pit", "wire"]
        .map(|last| {
            let kind = known.kind(last).expect("a kind of the list");
            known.pipeline(kind.application.name, &["decode", last]).expect("a pipeline")
        })
        .into();
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
