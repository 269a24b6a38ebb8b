//! The cases of suricata-verify: the counts of alerts that each `test.yaml` asks for, that nothing is dropped, and how many flows
//! are passed. What does not agree is in
//! `verify.txt`, with its reason; a case there that agrees after all fails the test as well.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use detect::{ActionKind, Found, Options, Ruleset, Search};
use io::capture::read_all;
use signatures::{Loader, Variables};

use crate::bed::{Reported, Seen, Setup, has_wrong_checksums, run};
use crate::yaml::{Yaml, parse};

/// The version of Suricata whose expectations apply.
const VERSION: [u32; 3] = [9, 0, 0];

pub(crate) fn cases(folder: &Path, into: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    entries.sort();
    if entries.iter().any(|path| path.ends_with("test.yaml")) {
        into.push(folder.to_owned());
    }
    entries.iter().filter(|path| path.is_dir()).for_each(|path| cases(path, into));
}

fn version(text: &str) -> [u32; 3] {
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or(0));
    [(); 3].map(|()| parts.next().unwrap_or(0))
}

/// Does a part of `test.yaml` apply to the version?
fn applies(requires: Option<&Yaml>) -> bool {
    let of =
        |key| requires.and_then(|requires| requires.get(key)).and_then(Yaml::text).map(version);
    of("min-version").is_none_or(|least| VERSION >= least)
        && of("lt-version").is_none_or(|below| VERSION < below)
        && of("gt-version").is_none_or(|above| VERSION > above)
}

/// Frames of Ethernet; those of other link layers get a header.
pub(crate) fn frames(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let bytes = std::fs::read(path).expect("a capture");
    let (records, _) = read_all(&bytes);
    let frames = records.into_iter().filter_map(|record| {
        let (skip, ethertype) = match record.link_type.0 {
            1 => return Some((record.time_ns, record.data)),
            0 | 108 => (4, None),
            12 | 14 | 101 | 228 | 229 => (0, None),
            113 => (16, record.data.get(14..16).map(|bytes| [bytes[0], bytes[1]])),
            _ => return None,
        };
        let packet = record.data.get(skip..)?;
        let by_version = if packet.first()? >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
        let header = [&[0; 12][..], &ethertype.unwrap_or(by_version)].concat();
        Some((record.time_ns, [&header, packet].concat()))
    });
    frames.collect()
}

/// A case: its rules, its frames, how they are looked at, and what is to come out.
pub(crate) struct Case {
    pub(crate) rules: Ruleset,
    pub(crate) frames: Vec<(u64, Vec<u8>)>,
    pub(crate) setup: Setup,
    checks: Vec<(usize, Vec<(String, String)>)>,
    drops_nothing: bool,
    passed: Option<usize>,
    refused: Vec<String>,
}

pub(crate) fn load(folder: &Path, search: Search) -> Case {
    let text = std::fs::read_to_string(folder.join("test.yaml")).expect("test.yaml");
    let test = parse(&text);
    let mut args = Vec::new();
    test.get("args").iter().for_each(|list| list.flat("", &mut args));
    let args = args.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" ");
    let has = |text: &str| args.contains(text);
    let mut setup = Setup { checksums: !has("-k none"), ..Setup::default() };
    setup.midstream = has("stream.midstream=true") || has("async-oneside=true");
    setup.by_vlan = !has("vlan.use-for-tracking=false");
    let mut options = Options { midstream: setup.midstream, search, ..Options::default() };
    let mut variables = (Vec::new(), Vec::new());
    if let Ok(text) = std::fs::read_to_string(folder.join("suricata.yaml")) {
        let config = parse(&text);
        let order = config.get("action-order").map(|order| {
            order.list().iter().filter_map(|word| match word.text()? {
                "pass" => Some(ActionKind::Pass),
                "drop" => Some(ActionKind::Drop),
                "reject" => Some(ActionKind::Reject),
                "alert" => Some(ActionKind::Alert),
                _ => None,
            })
        });
        if let Some(order) = order {
            let order: Vec<ActionKind> = order.collect();
            options.action_order = order.try_into().expect("four actions");
        }
        if let Some(vars) = config.get("vars") {
            let pairs = |key: &str, into: &mut Vec<(String, String)>| {
                vars.get(key).iter().for_each(|group| group.flat("", into));
            };
            pairs("address-groups", &mut variables.0);
            pairs("port-groups", &mut variables.1);
        }
    }
    if let Some(path) = testdata::path("ids/etopen-2017/classification.config") {
        let text = std::fs::read(path).expect("a file");
        options.classes = signatures::config::classifications(&text[..]).expect("memory").found;
    }
    fn borrowed(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
        pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }
    let variables = Variables::with_defaults(borrowed(&variables.0), borrowed(&variables.1));
    let variables = variables.expect("variables");
    let mut loader = Loader::new(variables.clone());
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    entries.sort();
    let with = |extension: &str| {
        entries
            .iter()
            .filter(move |path| path.extension().is_some_and(|own| own == extension))
            .cloned()
            .collect::<Vec<_>>()
    };
    with("rules").iter().for_each(|path| loader.read_file(path).expect("rules"));
    let set = loader.finish();
    let (rules, refused) = Ruleset::compile(&set, &variables, &options);
    let mut reasons: Vec<String> = set.problems.iter().map(ToString::to_string).collect();
    reasons
        .extend(refused.iter().map(|refused| format!("sid {}: {}", refused.sid, refused.reason)));
    let pcap = with("pcap").into_iter().next().or_else(|| with("pcapng").into_iter().next());
    let (mut checks, mut drops_nothing, mut passed) = (Vec::new(), false, None);
    for check in test.get("checks").map(Yaml::list).unwrap_or_default() {
        let Some(filter) = check.get("filter") else { continue };
        if !applies(filter.get("requires")) {
            continue;
        }
        let mut wanted = Vec::new();
        filter.get("match").iter().for_each(|own| own.flat("", &mut wanted));
        let kind = wanted.iter().find(|(key, _)| key == "event_type");
        let is_alert = kind.map_or_else(
            || wanted.iter().any(|(key, _)| key.starts_with("alert.")),
            |(_, kind)| kind == "alert",
        );
        let count = filter.get("count").and_then(Yaml::text).and_then(|text| text.parse().ok());
        let is = |pairs: &[(&str, &str)]| borrowed(&wanted) == pairs;
        drops_nothing |= count == Some(0) && is(&[("event_type", "drop")]);
        if is(&[("event_type", "flow"), ("flow.action", "pass")]) {
            passed = count;
        }
        if is_alert {
            checks.push((count.expect("a count"), wanted));
        }
    }
    let frames = pcap.map(|path| frames(&path)).unwrap_or_default();
    setup.checksums &= !has_wrong_checksums(&frames);
    Case { rules, frames, setup, checks, drops_nothing, passed, refused: reasons }
}

/// Does an alert have the value that is asked for? What an alert here does not have is not asked.
fn agrees(own: &Reported, rules: &Ruleset, key: &str, value: &str) -> bool {
    let info = rules.rule(own.alert.rule);
    let is_http = matches!(own.application, Some("http" | "http2"))
        && matches!(own.alert.found, Found::Transaction(_));
    let address = |text: &str| text.parse().ok();
    match key {
        "alert.signature_id" => value.parse() == Ok(info.sid),
        "alert.gid" => value.parse() == Ok(info.gid),
        "alert.rev" => value.parse() == Ok(info.rev),
        "alert.signature" => value == info.msg,
        "alert.severity" => value.parse() == Ok(info.priority),
        "alert.category" => value.eq_ignore_ascii_case(&info.category),
        "alert.action" => value == if own.is_dropped { "blocked" } else { "allowed" },
        "src_ip" => address(value) == Some(own.source.0),
        "dest_ip" => address(value) == Some(own.destination.0),
        "src_port" => value.parse() == Ok(own.source.1),
        "dest_port" => value.parse() == Ok(own.destination.1),
        "proto" => {
            let number = match value {
                "TCP" => 6,
                "UDP" => 17,
                "ICMP" => 1,
                "GRE" => 47,
                "IPv6-ICMP" => 58,
                "IP-in-IP" => 4,
                _ => panic!("protocol {value}"),
            };
            own.protocol == number
        }
        "ip_v" => (value == "6") == own.source.0.is_ipv6(),
        "app_proto" => own.application == Some(value),
        "pkt_src" => (value == "wire/pcap") != own.is_inner,
        "tunnel.src_ip" | "tunnel.dest_ip" | "tunnel.dest_port" => own.is_inner,
        "has-key" if value == "http" => is_http,
        "not-has-key" if value == "pcap_cnt" => own.is_at_end,
        _ => true,
    }
}

fn differences(case: &Case, seen: &Seen) -> Vec<String> {
    let mut differences = Vec::new();
    for (count, wanted) in &case.checks {
        let is_all = |own: &&Reported| {
            wanted.iter().all(|(key, value)| agrees(own, &case.rules, key, value))
        };
        let found = seen.reported.iter().filter(is_all).count();
        if found != *count {
            let wanted: Vec<String> =
                wanted.iter().map(|(key, value)| format!("{key}={value}")).collect();
            differences.push(format!("{found} instead of {count}: {}", wanted.join(" ")));
        }
    }
    if case.drops_nothing && seen.dropped > 0 {
        differences.push(format!("{} packets are dropped", seen.dropped));
    }
    if let Some(passed) = case.passed.filter(|passed| *passed != seen.passed) {
        differences.push(format!("{} flows instead of {passed} are passed", seen.passed));
    }
    differences
}

/// The lines `CASE: reason` of a file.
fn known() -> BTreeMap<String, String> {
    let lines = include_str!("verify.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pairs =
        lines.map(|line| line.split_once(": ").unwrap_or_else(|| panic!("no reason: {line}")));
    pairs.map(|(case, reason)| (case.to_owned(), reason.to_owned())).collect()
}

#[test]
fn alerts_are_those_of_suricata() {
    let Some(root) = testdata::path("ids/suricata-verify") else { return };
    let (mut folders, mut known) = (Vec::new(), known());
    cases(&root, &mut folders);
    let mut wrong = Vec::new();
    let only = std::env::var("VERIFY_ONLY").ok();
    for folder in &folders {
        let name = folder.strip_prefix(&root).expect("below it").display().to_string();
        if only.as_ref().is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let case = load(folder, Search::Shared);
        let rules = Arc::new(load(folder, Search::Shared).rules);
        let seen = run(rules, &case.frames, &case.setup);
        let differences = differences(&case, &seen);
        let expected = known.remove(&name);
        match (differences.is_empty(), expected) {
            (true, None) | (false, Some(_)) => {}
            (true, Some(_)) => wrong.push(format!("{name}: agrees now")),
            (false, None) => {
                wrong.push(format!("{name}:\n  {}", differences.join("\n  ")));
                case.refused
                    .iter()
                    .for_each(|reason| wrong.push(format!("  not loaded: {reason}")));
                if only.is_some() {
                    for own in &seen.reported {
                        wrong.push(format!(
                            "  {} {:?} {:?} {:?} {:?}",
                            own.sid, own.alert.found, own.source, own.destination, own.alert.sender
                        ));
                    }
                }
            }
        }
    }
    println!("{} cases", folders.len());
    assert!(wrong.is_empty(), "{}\n{} wrong", wrong.join("\n"), wrong.len());
    assert!(only.is_some() || known.is_empty(), "no such cases: {known:?}");
}

#[test]
fn however_rules_are_searched_for_the_alerts_are_the_same() {
    let Some(root) = testdata::path("ids/suricata-verify") else { return };
    let mut folders = Vec::new();
    cases(&root, &mut folders);
    for folder in &folders {
        let [shared, grouped, every] =
            [Search::Shared, Search::Grouped, Search::Every].map(|search| {
                let Case { rules, frames, setup, .. } = load(folder, search);
                run(Arc::new(rules), &frames, &setup)
            });
        assert_eq!(shared, every, "{}", folder.display());
        assert_eq!(grouped, every, "{}", folder.display());
    }
}
