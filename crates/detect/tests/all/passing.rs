//! Packets that carry encrypted streams on are passed over: alerts are those of looking at each.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use detect::{Options, Ruleset};
use signatures::{Loader, Variables};

use crate::bed::{Setup, run_counting_all};
use crate::verify::frames;

/// Rules of which some ask for what such packets have: none is passed over then.
const RULES: [(&str, bool); 17] = [
    ("alert tcp any any -> any any (flags:F+; sid:1;)", true),
    ("alert tcp any any -> any any (flags:S; sid:1;)", true),
    ("alert tcp any any -> any any (flags:R+; flow:established; sid:1;)", true),
    ("alert tls any any -> any any (tls.sni; content:\"o\"; sid:1;)", true),
    ("alert tcp any any -> any any (content:\"a\"; sid:1;)", true),
    ("alert tcp any any -> any any (content:\"GET\"; dsize:>3; sid:1;)", true),
    ("alert http any any -> any any (flow:established; dsize:>0; sid:1;)", true),
    ("alert tcp any any -> any 1 (dsize:>10; sid:1;)", true),
    ("alert tcp any any -> any any (dsize:>10; sid:1;)", true),
    ("alert tcp any any -> any any (dsize:0; flags:A; window:!0; sid:1;)", true),
    ("alert tcp any any -> any any (fragoffset:>0; sid:1;)", true),
    ("alert tcp any any -> any any (window:!65535; dsize:<9000; sid:1;)", false),
    (
        "alert tcp any any -> any any (flags:PA; threshold:type both, track by_src, count 5, seconds 9; sid:1;)",
        true,
    ),
    (
        "alert tcp any any -> any any (flags:A+; threshold:type both, track by_src, count 5, seconds 9; sid:1;)",
        false,
    ),
    (
        "alert tcp any any -> any any (flow:established; threshold:type limit, track by_src, count 9, seconds 9; sid:1;)",
        false,
    ),
    ("alert ip any any -> any any (ttl:<200; sid:1;)", true),
    ("alert tcp any any -> any any (flags:F+; stream_size:either,>,3000; sid:1;)", false),
];

fn captures(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let name = path.to_string_lossy().into_owned();
        if name.ends_with(".pcap") {
            into.push(path);
        }
    }
    into.sort();
}

fn compiled(text: &str) -> Arc<Ruleset> {
    let any = [("HOME_NET", "any"), ("EXTERNAL_NET", "any")];
    let variables = Variables::with_defaults(any, []).expect("variables");
    let mut loader = Loader::new(variables.clone());
    loader.read("x", text.as_bytes()).expect("rules");
    let set = loader.finish();
    let (rules, refused) = Ruleset::compile(&set, &variables, &Options::default());
    assert!(refused.is_empty(), "{refused:?}");
    Arc::new(rules)
}

#[test]
fn no_alert_is_another() {
    let Some(root) = testdata::path("pcap-l7/zeek") else { return };
    let mut all = Vec::new();
    ["tls", "ssh"].into_iter().for_each(|name| captures(&root.join(name), &mut all));
    let all: Vec<_> = all.iter().map(|path| frames(path)).collect();
    let mut sets: Vec<(String, Option<bool>)> =
        RULES.iter().map(|(rule, passes)| (format!("{rule}\n"), Some(*passes))).collect();
    let passing = RULES.iter().filter(|(_, passes)| *passes);
    let joined = passing
        .enumerate()
        .map(|(at, (rule, _))| rule.replace("sid:1;", &format!("sid:{};", at + 1)));
    sets.push((joined.collect::<Vec<_>>().join("\n"), None));
    sets.push((String::new(), None));
    let (mut alerts, mut times) = (0, 0);
    for (text, passes) in &sets {
        let rules = compiled(text);
        let mut passed = 0;
        for frames in &all {
            for checksums in [true, false] {
                let with = Setup { checksums, ..Setup::default() };
                let without = Setup { passes: false, ..with.clone() };
                let expected = run_counting_all(rules.clone(), frames, &without);
                let own = run_counting_all(rules.clone(), frames, &with);
                assert_eq!(own.0, expected.0, "{text}");
                assert_eq!(expected.2, 0);
                alerts += own.0.reported.len();
                passed += own.2;
            }
        }
        times += passed;
        if let Some(passes) = passes {
            assert_eq!(passed > 0, *passes, "{passed} packets passed over: {text}");
        }
    }
    assert!(alerts > 100 && times > 200, "{alerts} alerts, {times} packets passed over");
}
