//! `[stage.NAME]`, contexts, and ports that name a pipeline.

use super::*;
use crate::config::Settings;
use crate::firewall::Ending;

crate::section! {
    /// Settings of a stage that sets contexts.
    pub(super) struct Marker("stage.NAME") {
        /// Contexts of all packets.
        restart set: Vec<String> = Vec::new(), crate::config::kinds::contexts();
    }
}

fn known() -> KnownStages {
    use crate::config::stages::tests::{FIREWALL, ROUTER, SWITCH, kind};
    let first = |kind| StageKind { is_first: true, ..kind };
    let last = |kind| StageKind { is_last: true, ..kind };
    let rules = |kind| StageKind { settings: Settings::Rules, ..kind };
    let kinds = vec![
        first(kind("decode", &ROUTER, &[], &[FRAMES, "ip"])),
        rules(kind("firewall", &FIREWALL, &[FRAMES], &[])),
        StageKind { settings: Settings::of::<Marker>(), ..kind("marker", &ROUTER, &[FRAMES], &[]) },
        kind("rpf", &ROUTER, &["ip"], &[]),
        kind("route", &ROUTER, &["ip"], &["hop"]),
        last(kind("rewrite", &ROUTER, &["hop"], &[])),
        last(first(kind("bridge", &SWITCH, &[], &[]))),
    ];
    let mut known = KnownStages { kinds, cores: 2, ..KnownStages::default() };
    let router = known.pipeline("router", &["decode", "route", "rewrite"]).unwrap();
    known.modes = vec![router, known.pipeline("switch", &["bridge"]).unwrap()];
    known
}

const PORTS: &str = "[port.a]\n[port.b]\n";
const TWO: &str = "mode = \"two\"\n[pipeline.two]\nstages = [\"decode\", \"edge\", \"inner\", \"route\", \"rewrite\"]\n";

fn read(text: &str) -> Config {
    let text = text.to_owned() + PORTS;
    match parse(&text, &known()) {
        Ok((config, warnings)) => {
            assert_eq!(warnings, [], "{}", render(&warnings, "t", &text, false));
            config
        }
        Err(errors) => panic!("{}", render(&errors, "t", &text, false)),
    }
}

#[track_caller]
fn said(text: &str, expected: &str) {
    let text = text.to_owned() + PORTS;
    let all = match parse(&text, &known()) {
        Ok((_, warnings)) => warnings,
        Err(errors) => errors,
    };
    let is_there = all.iter().any(|d| d.message.contains(expected));
    assert!(is_there, "{expected}\nnot in\n{}", render(&all, "t", &text, false));
}

/// The firewall of the file keeps its rules where a section limits it to a context; two places for rules are an error.
#[test]
fn a_section_with_the_name_of_the_kind_takes_no_rules_away() {
    let file = "mode = \"p\"\n[pipeline.p]\nstages = [\"decode\", \"marker\", \"firewall\", \"route\", \"rewrite\"]\n\
                [stage.marker]\nset = [\"web\"]\n[firewall]\ndefault = \"drop\"\n[[rule]]\nname = \"r\"\nproto = \"udp\"\naction = \"accept\"\n";
    for own in ["", "context = [\"web\"]\n"] {
        let (config, _) =
            parse(&format!("{file}[stage.firewall]\n{own}{PORTS}"), &known()).unwrap();
        let firewall = config.firewall_of("firewall").unwrap();
        assert_eq!((&firewall.default.ending, firewall.rules.len()), (&Ending::Drop, 1));
        assert!(!config.has_own_firewall("firewall"));
    }
    let own = "[stage.firewall]\ndefault = \"accept\"\n";
    let errors = parse(&format!("{file}{own}{PORTS}"), &known()).unwrap_err();
    let expected = "`rule` has no effect: `[stage.firewall]` has keys or rules of its own";
    assert!(errors.iter().any(|error| error.message == expected), "{errors:?}");
    let alone = file.split("[firewall]").next().unwrap();
    let (config, _) = parse(&format!("{alone}{own}{PORTS}"), &known()).unwrap();
    assert!(config.has_own_firewall("firewall"));
}

#[test]
fn a_kind_may_stand_several_times_under_names_of_its_own() {
    let text = TWO.to_owned()
        + "[stage.edge]\nkind = \"firewall\"\ndefault = \"drop\"\n[[stage.edge.rule]]\nname = \"r\"\n\
           dport = 80\nproto = \"tcp\"\naction = \"context web, accept\"\n\
           [stage.inner]\nkind = \"firewall\"\ncontext = [\"web\"]\n";
    let config = read(&text);
    assert_eq!(config.pipeline.kinds, ["decode", "firewall", "firewall", "route", "rewrite"]);
    assert_eq!(config.pipeline.named("firewall").collect::<Vec<_>>(), ["edge", "inner"]);
    let [edge, inner] = ["edge", "inner"].map(|name| config.firewall_of(name).unwrap());
    assert_eq!(config.firewall_of("other"), None);
    assert_eq!((&edge.default.ending, edge.rules.len()), (&Ending::Drop, 1));
    assert_eq!((&inner.default.ending, inner.rules.len()), (&Ending::Accept, 0));
    assert_eq!(config.contexts(), ["web"]);
    let RuleEntry::One(rule) = &edge.rules[0] else { panic!("a rule") };
    assert_eq!(rule.action.contexts, ["web"]);
    // A reload sees which one has changed.
    let other =
        read(&text.replace("name = \"r\"", "name = \"s\"").replace("\"drop\"", "\"reject\""));
    let diff = Config::diff(&config, &other).to_string();
    assert!(diff.contains("changed stage.edge.default: drop -> reject"), "{diff}");
    assert!(diff.contains("edge r") && diff.contains("edge s"), "{diff}");
    assert!(Config::diff(&config, &read(&text)).is_empty());
}

#[test]
fn what_is_wrong_with_a_stage_is_said() {
    let edge = |keys: &str| {
        let stages = "[\"decode\", \"edge\", \"route\", \"rewrite\"]";
        format!("mode = \"one\"\n[pipeline.one]\nstages = {stages}\n[stage.edge]\n{keys}")
    };
    said(&edge("kind = \"firewal\"\n"), "unknown kind of stage `firewal`");
    said(&edge(""), "there is no kind of stage `edge`");
    said(&edge("kind = \"route\"\n"), "a stage of the kind `route` has no name of its own");
    said(&edge("kind = \"firewall\"\nmtu = 5\n"), "unknown key `mtu`");
    said(&edge("kind = \"firewall\"\n[[stage.edge.rule]]\naction = \"dorp\"\n"), "`action`");
    said(
        &edge("kind = \"firewall\"\ncontext = [\"web\"]\n"),
        "no stage before `edge` sets the context `web`",
    );
    let sets = "kind = \"firewall\"\n[[stage.edge.rule]]\naction = \"context web\"\n";
    said(&edge(sets), "no stage sees the context `web`");
    said(
        "[stage.route]\ncontext = [\"web\"]\n",
        "`context` is not allowed at `route`: later stages need hop",
    );
    said("[stage.decode]\ncontext = [\"web\"]\n", "it must decode every packet");
    said("[stage.edge]\nkind = \"firewall\"\n", "[stage.edge] has no effect");
    said("[stage.route]\nkind = \"firewall\"\n", "`route` is the name of another stage");
    said(&TWO.replace("\"inner\", ", ""), "unknown stage `edge`");
}

#[test]
fn settings_and_rules_set_contexts_for_stages_behind_them() {
    let text = |stages: &str| {
        format!(
            "mode = \"one\"\n[pipeline.one]\nstages = [\"decode\", {stages}, \"route\", \"rewrite\"]\n\
             [stage.edge]\nkind = \"firewall\"\ncontext = [\"web\"]\n[stage.marker]\nset = [\"web\"]\n"
        )
    };
    read(&text("\"marker\", \"edge\""));
    said(&text("\"edge\", \"marker\""), "no stage before `edge` sets the context `web`");
    said(&text("\"edge\""), "no stage before `edge` sets the context `web`");
    // Packets that go through again begin without contexts.
    let again = text("\"edge\", \"marker\"")
        .replace("[stage.edge]", "places = { back = \"edge\" }\n[stage.edge]");
    let mut known = known();
    for kind in known.kinds.iter_mut().filter(|kind| kind.name == "marker") {
        kind.places = &["back"];
    }
    let (_, warnings) = parse(&(again + PORTS), &known).expect("a place of the marker");
    assert!(warnings[0].message.contains("no stage before `edge` sets the context `web`"));
    let both = text("\"marker\", \"edge\"")
        .replace("context = [\"web\"]", "context = [\"web\", \"mail\"]");
    said(&both, "no stage before `edge` sets the context `mail`");
    said(
        &text("\"marker\", \"edge\"").replace("[\"web\"]", "[\"w eb\"]"),
        "`w eb` is not a context",
    );
    let default = "[stage.edge]\nkind = \"firewall\"\ndefault = \"context mail, accept\"\n";
    said(
        &text("\"edge\"").replace("[stage.edge]\nkind = \"firewall\"\n", default),
        "no stage sees the context `mail`",
    );
    said(
        "mode = \"one\"\n[pipeline.one]\nstages = [\"decode\", \"marker\", \"route\", \"rewrite\"]\n\
         [stage.marker]\nset = [\"mail\"]\n",
        "no stage sees the context `mail`",
    );
}

#[test]
fn ports_name_the_pipeline_of_their_packets() {
    let text = "[port.c]\npipeline = \"switch\"\naccess = 5\n[port.v]\nparent = \"b\"\nvlan = 7\n";
    let config = read(text);
    let names: Vec<&str> = config.in_use().map(|pipeline| pipeline.name.as_str()).collect();
    assert_eq!(names, ["router", "switch"]);
    let numbers = ["a", "b", "c", "v"].map(|port| config.pipeline_number(port));
    assert_eq!(numbers, [0, 0, 1, 0]);
    assert!(config.uses("switch") && config.uses("router") && !config.uses("firewall"));
    // Both read their sections; a port has the keys of its pipeline.
    read("[switch]\nageing = \"10s\"\n[router]\nttl = 9\n[port.c]\npipeline = \"switch\"\n");
    said("[port.c]\npipeline = \"swich\"\n", "unknown pipeline `swich`");
    said(
        "[port.c]\npipeline = \"switch\"\nrpf = \"loose\"\n",
        "`rpf` has no effect at a port of a switch",
    );
    said("[port.c]\naccess = 5\n", "`access` has no effect at a port of a router");
    let diff = Config::diff(&config, &read(&text.replace("access = 5\n", "access = 6\n")));
    assert!(diff.restart.is_empty(), "{diff}");
}

#[test]
fn places_are_stages_of_the_pipeline() {
    let text = "mode = \"one\"\n[pipeline.one]\nstages = [\"decode\", \"route\", \"rewrite\"]\n";
    said(
        &format!("{text}places = {{ inner = \"route\" }}\n"),
        "no stage of this pipeline sends packets",
    );
    said(
        &format!("{text}places = {{ inner = \"rpf\" }}\n"),
        "place `inner` leads to `rpf`, which is not a stage",
    );
    said(&format!("{text}places = \"route\"\n"), "`places` is a string");
    said("[dump.x]\nfile = \"f\"\nfilter = \"udp or or\"\n", "`filter`");
    assert_eq!(read("[dump.x]\nfile = \"f\"\n").dumps[0].name, "x");
}
