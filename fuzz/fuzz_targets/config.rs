//! Any text as a configuration: it is taken, or every error has a place in the text.
#![no_main]

use control::config::{App, KnownStages, Pipeline, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let stages = || vec!["decode".to_owned(), "rewrite".to_owned()];
    let known_stages = [stages(), vec!["firewall".to_owned()]].concat();
    let mode = |name: &str, app| Pipeline {
        name: name.into(),
        app,
        stages: stages(),
        max_delay: None,
    };
    let apps = [App::Router, App::Switch, App::Ndn, App::Wire];
    let modes = ["router", "switch", "ndn", "wire"].into_iter().zip(apps);
    let modes = modes.map(|(name, app)| mode(name, app)).collect();
    let known = KnownStages { stages: known_stages, modes, cores: 2, app_of: None };
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
