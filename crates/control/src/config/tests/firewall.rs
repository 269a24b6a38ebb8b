//! `[firewall]` and `[[rule]]`.

use super::*;
use crate::firewall::{Ending, Family};

fn known() -> KnownStages {
    use crate::config::stages::tests::{FIREWALL, NDN, ROUTER, kind};
    let first = |kind| StageKind { is_first: true, ..kind };
    let last = |kind| StageKind { is_last: true, ..kind };
    let kinds = vec![
        first(kind("decode", &ROUTER, &[], &[FRAMES])),
        kind("firewall", &FIREWALL, &[FRAMES], &[]),
        last(kind("route", &ROUTER, &[FRAMES], &[])),
        last(first(kind("ask", &NDN, &[], &[]))),
    ];
    let mode = |name: &str, application, stages: &[&str]| {
        let stages = stages.iter().map(|stage| (*stage).to_owned()).collect();
        let kinds: Vec<String> = stages;
        Pipeline {
            name: name.into(),
            applications: vec![application],
            stages: kinds.clone(),
            kinds,
            places: Vec::new(),
            max_delay: None,
        }
    };
    let modes = vec![mode("router", &ROUTER, &["decode", "route"]), mode("ndn", &NDN, &["ask"])];
    KnownStages { kinds, modes, cores: 2, ..KnownStages::default() }
}

const PORTS: &str = "[port.a]\n[port.b]\n[port.v]\nparent = \"a\"\nvlan = 7\n";

fn read(text: &str) -> Config {
    let text = PORTS.to_owned() + text;
    match parse(&text, &known()) {
        Ok((config, warnings)) => {
            assert_eq!(warnings, [], "{}", render(&warnings, "t", &text, false));
            config
        }
        Err(errors) => panic!("{}", render(&errors, "t", &text, false)),
    }
}

#[test]
fn the_example_of_a_firewall_is_good() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = path.join("../../shadeline/examples/firewall.toml");
    let (config, report) = load(&path, &known()).unwrap();
    assert!(report.diagnostics.is_empty(), "{:?}", report.diagnostics);
    assert_eq!(config.firewall.default.ending, Ending::Drop);
    let (name, conditions, _) = config.rule_list().nth(3).unwrap();
    assert_eq!(name.to_string(), "blocked:3");
    assert!(conditions.is_of(Family::V4) && !conditions.is_of(Family::V6));
}

#[test]
fn the_name_of_an_application_is_a_lower_case_one() {
    let scratch = testkit::Scratch::new();
    for (name, said) in [
        ("HTTP", "`HTTP` cannot be the name of an application, did you mean `http`?"),
        ("a b", "`a b` cannot be the name of an application\n"),
    ] {
        let rule = format!("[[rule]]\napplication = \"{name}\"\naction = \"drop\"\n");
        let error = load_rules(&scratch.write("own.toml", &rule), None).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn the_stage_is_there_where_there_are_rules() {
    assert_eq!(read("").pipeline.stages, ["decode", "route"]);
    assert!(!read("").firewall.is_on);
    assert_eq!(read("[firewall]\n").pipeline.stages, ["decode", "firewall", "route"]);
    let config = read("[[rule]]\naction = \"drop\"\n");
    assert_eq!(config.pipeline.stages, ["decode", "firewall", "route"]);
    assert_eq!(config.firewall.rules[0].name(), "#1");
    assert_eq!(config.stage_lines[0], [None, Some(6), None], "the first rule puts it there");
    let warned = |text: &str| {
        let (_, warnings) = parse(&(PORTS.to_owned() + text), &known()).unwrap();
        warnings.into_iter().map(|d| d.message).collect::<Vec<_>>()
    };
    let own = "[pipeline.mine]\nstages = [\"decode\", \"route\"]\n[firewall]\n";
    let lines = warned(&format!("{own}[system]\nworkers = 1\n"));
    assert_eq!(lines, [""; 0], "the shipped pipeline is the one in use");
    let text = format!("mode = \"mine\"\n{PORTS}{own}");
    let errors = parse(&text, &known()).unwrap_err();
    assert!(errors[0].message.contains("the pipeline `mine` has no firewall"), "{errors:?}");
    for section in ["[[rule]]\naction = \"drop\"\n", "[firewall]\n"] {
        let text = format!("mode = \"ndn\"\n[port.a]\n{section}");
        let errors = parse(&text, &known()).unwrap_err();
        assert_eq!((errors.len(), errors[0].severity), (1, Severity::Error));
        let wanted = "has no effect in a named-data forwarder: no packet would be filtered";
        assert!(errors[0].message.ends_with(wanted), "{errors:?}");
    }
}

#[test]
fn a_reload_tells_what_becomes_of_rules() {
    let text = "[firewall]\ndefault = \"drop\"\n[[rule]]\nname = \"x\"\nproto = \"tcp\"\n\
                dport = 22\naction = \"accept\"\n[[rule]]\nname = \"y\"\nproto = \"udp\"\naction = \"mark 3\"\n";
    let old = read(text);
    let diff = |new: &str| Config::diff(&old, &read(new)).to_string();
    assert_eq!(diff(text), "nothing changed");
    let changed = diff(&text.replace("22", "\"22-23\"").replace("\"drop\"", "\"reject\""));
    for line in [
        "changed firewall.default: drop -> reject",
        "- rule x: proto tcp dport 22: accept",
        "+ rule x: proto tcp dport 22-23: accept",
    ] {
        assert!(changed.contains(line), "{changed}");
    }
    let (head, tail) = text.split_at(text.find("[[rule]]").unwrap());
    let second = tail[1..].find("[[rule]]").unwrap() + 1;
    let swapped = format!("{head}{}{}", &tail[second..], &tail[..second]);
    assert!(diff(&swapped).contains("changed order of rules: x y -> y x"), "{}", diff(&swapped));
    let gone = diff("");
    assert!(gone.contains("changed pipeline.router.stages: decode firewall"), "{gone}");
}

/// What has no end, or no writer, is refused at once.
#[test]
fn files_of_modules_are_regular_ones() {
    let scratch = testkit::Scratch::new();
    let pipe = scratch.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for file in ["pipe", "/dev/zero", "."] {
        for key in ["source", "patterns"] {
            let module = format!("[[module]]\nname = \"own\"\n{key} = \"{file}\"\n");
            let path = scratch.write("own.toml", &(PORTS.to_owned() + &module));
            let error = load(&path, &known()).unwrap_err().to_string();
            assert!(error.contains("cannot read "), "{error}");
            assert!(error.contains(": not a regular file"), "{error}");
        }
    }
    // A path that is only looked at is not opened: its writer would be waited for.
    let routes = "[[routes]]\nfile = \"pipe\"\n";
    let path = scratch.write("own.toml", &(PORTS.to_owned() + routes));
    assert!(load(&path, &known()).is_ok());
}

#[test]
fn rules_of_a_file_stand_in_its_place() {
    let scratch = testkit::Scratch::new();
    let classbench = "@10.0.0.0/8 0.0.0.0/0 0 : 65535 22 : 22 0x06/0xFF\n";
    let path = scratch.write("set.txt", classbench);
    let rules = load_rules(&path, Some(&"drop".parse().unwrap())).unwrap();
    assert_eq!((rules[0].name(), rules[0].len()), ("set", 1));
    assert!(matches!(load_rules(&path, None), Err(LoadError::NoAction { .. })));
    let path = scratch.write("own.toml", "[[rule]]\nfile = \"set.txt\"\naction = \"reject\"\n");
    let rules = load_rules(&path, None).unwrap();
    assert_eq!(rule_list(&rules).next().unwrap().0.to_string(), "set:0");
    let own = load_rules(&path, Some(&"drop".parse().unwrap()));
    assert!(matches!(own, Err(LoadError::OwnActions { .. })));
    let path = scratch.write("bad.toml", "[[rule]]\naction = \"drop\"\n[router]\nttl = 1\n");
    let error = load_rules(&path, None).unwrap_err().to_string();
    assert!(error.contains("unknown section or key `router`"), "{error}");
    let path = scratch.write("bad.txt", "\n# x\n@10.0.0.0/8 0.0.0.0/0 9 : 8\n");
    let error = load_rules(&path, Some(&"drop".parse().unwrap())).unwrap_err().to_string();
    assert!(error.contains("bad.txt, line 3: "), "{error}");
    // Other files than of rules, packed ones, and text that is none.
    let path = scratch.write("trace.txt", "\n167772161\t3232235777\t1\t2\t6\n");
    for action in [None, Some("drop".parse().unwrap())] {
        let error = load_rules(&path, action.as_ref()).unwrap_err().to_string();
        let wanted =
            "trace.txt:2: expected ClassBench rules (`@…`) or `[[rule]]` entries, found `16777";
        assert!(error.contains(wanted), "{error}");
    }
    for (bytes, line) in [(&b"\x7fELF\x02\x01\0"[..], 1), (b"[[rule]]\nname = \"\xff\"\n", 2)] {
        let path = scratch.join("binary");
        std::fs::write(&path, bytes).unwrap();
        let error = load_rules(&path, None).unwrap_err().to_string();
        assert!(error.ends_with(&format!("binary:{line}: expected UTF-8 text")), "{error}");
    }
    // Another word than a rule's is looked for where there is none.
    let twice = "[[rule]]\nname = \"set:0\"\naction = \"drop\"\n\
                 [[rule]]\nfile = \"set.txt\"\naction = \"drop\"\n";
    let path = scratch.write("whole.toml", &(PORTS.to_owned() + twice));
    let error = load(&path, &known()).unwrap_err().to_string();
    assert!(error.contains("`set:0` is a rule of that file"), "{error}");
}
