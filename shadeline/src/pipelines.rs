//! Which stages there are, and what they make together.

use control::config::{App, KnownStages, Pipeline};

/// Every application: what it is called, its stages, what `mode` stands for.
const APPS: [(App, &str, &[&str], &[&str]); 4] = [
    (App::Router, "router", apps::router::KNOWN_STAGES, apps::router::DEFAULT_STAGES),
    (App::Switch, "switch", apps::switch::KNOWN_STAGES, apps::switch::DEFAULT_STAGES),
    (App::Ndn, "ndn", apps::ndn::STAGES, apps::ndn::STAGES),
    (App::Wire, "wire", apps::wire::STAGES, apps::wire::STAGES),
];

/// The stages and pipelines that this program knows.
pub(crate) fn known() -> KnownStages {
    let owned = |stages: &[&str]| stages.iter().map(|s| (*s).to_owned()).collect();
    let mode = |(app, name, _, stages): &(App, &str, &[&str], &[&str])| Pipeline {
        name: (*name).to_owned(),
        app: *app,
        stages: owned(stages),
        max_delay: None,
    };
    KnownStages {
        stages: stages().map(str::to_owned).collect(),
        modes: APPS.iter().map(mode).collect(),
        cores: 0,
        app_of: Some(app_of),
    }
}

/// The name of every stage.
pub(crate) fn stages() -> impl Iterator<Item = &'static str> {
    let all = APPS.iter().flat_map(|(_, _, known, _)| known.iter().copied());
    // Several applications have it.
    let mut seen = false;
    all.filter(move |stage| *stage != apps::firewall::STAGE || !std::mem::replace(&mut seen, true))
}

/// What stages in this order do.
///
/// # Errors
/// Why they do nothing together.
pub(crate) fn app_of(stages: &[String]) -> Result<App, String> {
    if stages.iter().any(|stage| Some(&stage.as_str()) == apps::wire::STAGES.last()) {
        let all = apps::wire::STAGES;
        let told = || format!("{} has the stages {}", App::Wire.title(), all.join(", "));
        return (stages == all).then_some(App::Wire).ok_or_else(told);
    }
    let first = stages.first().map_or("", String::as_str);
    match APPS.iter().find(|(_, _, known, _)| known.contains(&first)) {
        Some((App::Switch, ..)) => {
            apps::switch::check(stages).map(|()| App::Switch).map_err(|error| error.to_string())
        }
        Some((App::Ndn, _, all, _)) if stages != *all => {
            Err(format!("{} has the stages {}, in this order", App::Ndn.title(), all.join(", ")))
        }
        Some((App::Ndn, ..)) => Ok(App::Ndn),
        _ => apps::router::check(stages).map(|()| App::Router).map_err(|error| error.to_string()),
    }
}

/// Every list of stages that makes a pipeline.
pub(crate) fn all() -> Vec<Vec<String>> {
    let lists = APPS.iter().flat_map(|(_, _, known, _)| {
        (0..1u32 << known.len()).map(|bits| {
            let chosen = known.iter().enumerate().filter(move |(i, _)| bits >> i & 1 == 1);
            chosen.map(|(_, name)| (*name).to_owned()).collect()
        })
    });
    lists.filter(|stages: &Vec<String>| app_of(stages).is_ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_of_one_application_in_its_order_make_a_pipeline() {
        let lists: Vec<_> = all().iter().map(|stages| stages.join(" ")).collect();
        let expected = [
            "decode route rewrite",
            "decode firewall route rewrite",
            "decode rpf route rewrite",
            "decode firewall rpf route rewrite",
            "bridge_in bridge bridge_out",
            "bridge_in firewall bridge bridge_out",
            "ndn_decode name_lookup pit",
            "firewall wire",
        ];
        assert_eq!(lists, expected);
        let app = |text: &str| app_of(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(app(expected[5]), Ok(App::Switch));
        assert_eq!(app(expected[0]), Ok(App::Router));
        assert_eq!(app(expected[6]), Ok(App::Ndn));
        assert_eq!(app(expected[7]), Ok(App::Wire));
        assert!(app("wire").unwrap_err().contains("firewall, wire"));
        assert!(app("ndn_decode pit").unwrap_err().contains("ndn_decode, name_lookup, pit"));
        assert!(app("bridge_in bridge_out").unwrap_err().contains("bridge_in, bridge, bridge_out"));
        assert!(app("firewall route rewrite").unwrap_err().contains("`decode` is missing"));
        assert_eq!(stages().filter(|stage| *stage == "firewall").count(), 1);
        assert!(app("route rewrite").unwrap_err().contains("`decode` is missing"));
        assert!(app("decode route bridge_out").unwrap_err().contains("unknown stage `bridge_out`"));
        for mode in known().modes {
            assert_eq!(app_of(&mode.stages), Ok(mode.app), "{}", mode.name);
        }
    }
}
