//! A public rule set: how much of it is evaluated.

use std::collections::BTreeMap;

use detect::{Options, Ruleset};
use signatures::{Loader, Variables};

const FILES: [&str; 13] = [
    "activex",
    "dns",
    "dos",
    "exploit",
    "ftp",
    "malware",
    "scan",
    "shellcode",
    "sql",
    "trojan",
    "user_agents",
    "web_client",
    "web_server",
];

/// The set, and the rules of it that are evaluated.
pub(crate) fn load() -> Option<(signatures::RuleSet, Variables)> {
    let variables = Variables::with_defaults([], []).expect("defaults");
    let mut loader = Loader::new(variables.clone());
    for name in FILES {
        let bytes = testdata::bytes(&format!("ids/etopen-2017/emerging-{name}.rules"))?;
        loader.read(name, &bytes[..]).expect("memory");
    }
    Some((loader.finish(), variables))
}

#[test]
fn nearly_all_active_rules_are_evaluated() {
    let Some((set, variables)) = load() else { return };
    let (rules, refused) = Ruleset::compile(&set, &variables, &Options::default());
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    refused.iter().for_each(|own| *reasons.entry(&own.reason).or_default() += 1);
    let (total, own) = (set.summary.total, rules.len());
    println!("{own} of {total}; {} problems; {reasons:#?}", set.problems.len());
    assert_eq!(own + refused.len(), set.rules.len());
    assert!(own as f64 >= 0.97 * total as f64, "{own} of {total}: {reasons:#?}");
}
