//! The packages of other people, by the rules of `deny.toml`: their licences, versions and sources, as `cargo deny` judges
//! them, which is run too where it is installed and its database can be reached.
//!
//! What is judged is the list of `cargo metadata`, for the platform of this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::dist::licences;
use crate::json::Json;
use crate::suites::Report;

/// What only tests and some builds for measurements use, and the program is not linked with.
const TESTS_ONLY: &[&str] = &["stats_alloc", "plotters", "proptest", "testkit"];

/// The registry that packages come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The lists of `deny.toml`.
#[derive(Debug, Default, PartialEq)]
struct Rules {
    /// Licences.
    allow: BTreeSet<String>,
    /// Packages of which there are several versions.
    skip: BTreeSet<String>,
    /// Packages that are not used.
    deny: BTreeSet<String>,
}

/// A package.
#[derive(Debug, Default, Clone)]
struct Package {
    name: String,
    version: String,
    licence: String,
    /// None of the workspace's own.
    source: Option<String>,
}

/// Runs all rules; each is one test.
pub(crate) fn check(root: &Path, report: &mut Report) {
    let name = "packages";
    let complaints = match judged(root) {
        Ok(complaints) => complaints,
        Err(error) => vec![error.to_string()],
    };
    for complaint in &complaints {
        report.say(&format!("{name}: {complaint}"));
    }
    match complaints.is_empty() {
        true => report.counts.pass(),
        false => report.counts.fail(format!("tidy {name}: {} complaints", complaints.len())),
    }
    advisories(root, report);
}

/// The database is on the Internet: without it, nothing is said.
fn advisories(root: &Path, report: &mut Report) {
    let cargo = |args: &[&str]| {
        let mut command = Command::new("cargo");
        command.args(args).current_dir(root).stdin(Stdio::null()).output()
    };
    if !cargo(&["deny", "--version"]).is_ok_and(|output| output.status.success()) {
        report.say("advisories: not checked, cargo-deny is not installed");
        return;
    }
    match cargo(&["deny", "fetch", "db"]).and_then(|fetched| {
        let reached = fetched.status.success();
        reached.then(|| cargo(&["deny", "check", "--disable-fetch", "advisories"])).transpose()
    }) {
        Ok(Some(output)) if output.status.success() => report.counts.pass(),
        Ok(Some(output)) => {
            report.say(&String::from_utf8_lossy(&output.stderr));
            report.counts.fail("tidy advisories: see `cargo deny check advisories`".to_owned());
        }
        Ok(None) => report.say("advisories: not checked, the database cannot be reached"),
        Err(error) => report.counts.fail(format!("tidy advisories: {error}")),
    }
}

fn judged(root: &Path) -> io::Result<Vec<String>> {
    let rules = Rules::read(&std::fs::read_to_string(root.join("deny.toml"))?);
    let metadata = licences::metadata(root)?;
    let packages = packages(&metadata);
    let linked = licences::linked(&metadata, "shadeline").into_keys().collect();
    Ok([
        licences_of(&rules, &packages),
        several(&rules, &packages),
        others(&rules, &packages),
        tests_only(&linked),
    ]
    .concat())
}

fn packages(metadata: &Json) -> Vec<Package> {
    let all = metadata.get("packages").map(Json::list).unwrap_or_default();
    let text = |json: &Json, name: &str| json.get(name).and_then(Json::text).map(str::to_owned);
    let package = |json: &Json| Package {
        name: text(json, "name").unwrap_or_default(),
        version: text(json, "version").unwrap_or_default(),
        licence: text(json, "license").unwrap_or_default(),
        source: text(json, "source"),
    };
    all.iter().map(package).collect()
}

/// Each package may be used under a licence of the list.
fn licences_of(rules: &Rules, packages: &[Package]) -> Vec<String> {
    let is_bad = |own: &&Package| !is_allowed(&own.licence, &rules.allow);
    let say = |own: &Package| {
        format!("{} {}: licence `{}` is not one of deny.toml", own.name, own.version, own.licence)
    };
    packages.iter().filter(is_bad).map(say).collect()
}

/// A package has one version, or is listed; who is listed has several.
fn several(rules: &Rules, packages: &[Package]) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for own in packages {
        versions.entry(&own.name).or_default().insert(&own.version);
    }
    let mut complaints = Vec::new();
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        if !rules.skip.contains(*name) {
            let versions: Vec<_> = versions.iter().copied().collect();
            complaints.push(format!("{name}: several versions: {}", versions.join(", ")));
        }
    }
    let has_several = |name: &&String| versions.get(name.as_str()).is_some_and(|v| v.len() > 1);
    let listed = rules.skip.iter().filter(|name| !has_several(name));
    complaints.extend(listed.map(|name| format!("{name}: listed in deny.toml, has one version")));
    complaints
}

/// Packages come from the registry, and none is one that is not used.
fn others(rules: &Rules, packages: &[Package]) -> Vec<String> {
    let mut complaints = Vec::new();
    for own in packages {
        if own.source.as_ref().is_some_and(|source| source != REGISTRY) {
            complaints.push(format!("{}: not of the registry crates.io", own.name));
        }
        if rules.deny.contains(&own.name) {
            complaints.push(format!("{}: deny.toml denies it", own.name));
        }
    }
    complaints
}

/// By `name version`.
fn tests_only(linked: &BTreeSet<String>) -> Vec<String> {
    let name = |package: &str| package.split(' ').next().unwrap_or_default().to_owned();
    let found = linked.iter().filter(|own| TESTS_ONLY.contains(&name(own).as_str()));
    found.map(|own| format!("{own}: the program is linked with it")).collect()
}

/// Whether a licence as a manifest says it (SPDX, or with `/` for `OR`) leaves a choice of these alone.
fn is_allowed(expression: &str, allow: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let allowed = either(&words, &mut at, allow);
    allowed && at == words.len()
}

/// `A OR B`, where `AND` binds closer.
fn either(words: &[&str], at: &mut usize, allow: &BTreeSet<String>) -> bool {
    let mut allowed = both(words, at, allow);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        allowed |= both(words, at, allow);
    }
    allowed
}

fn both(words: &[&str], at: &mut usize, allow: &BTreeSet<String>) -> bool {
    let mut allowed = one(words, at, allow);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        allowed &= one(words, at, allow);
    }
    allowed
}

fn one(words: &[&str], at: &mut usize, allow: &BTreeSet<String>) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let allowed = either(words, at, allow);
        let is_closed = words.get(*at) == Some(&")");
        *at += usize::from(is_closed);
        return allowed && is_closed;
    }
    match (words.get(*at), words.get(*at + 1)) {
        (Some(&"WITH"), Some(exception)) => {
            *at += 2;
            allow.contains(&format!("{word} WITH {exception}"))
        }
        _ => allow.contains(*word),
    }
}

impl Rules {
    /// Of the form that `deny.toml` has: a list begins with `NAME = [`, has one entry a line, and ends with `]`. An entry
    /// is a text, or a table whose `crate` is one.
    fn read(text: &str) -> Self {
        let mut rules = Self::default();
        let mut list: Option<&mut BTreeSet<String>> = None;
        for line in text.lines().map(str::trim) {
            match line {
                "allow = [" => list = Some(&mut rules.allow),
                "skip = [" => list = Some(&mut rules.skip),
                "deny = [" => list = Some(&mut rules.deny),
                "]" => list = None,
                _ => {
                    let entry = line.strip_prefix("{ crate =").unwrap_or(line);
                    let name = entry.split('"').nth(1);
                    if let (Some(list), Some(name), false) =
                        (&mut list, name, line.starts_with('#'))
                    {
                        list.insert(name.to_owned());
                    }
                }
            }
        }
        rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn package(name: &str, version: &str, licence: &str) -> Package {
        let source = Some(REGISTRY.to_owned());
        Package { name: name.into(), version: version.into(), licence: licence.into(), source }
    }

    #[test]
    fn licences_are_expressions() {
        let allow = set(&["MIT", "BSD-3-Clause", "Apache-2.0 WITH LLVM-exception"]);
        for (licence, expected) in [
            ("MIT", true),
            ("MIT OR GPL-3.0", true),
            ("GPL-3.0/MIT", true),
            ("MIT AND GPL-3.0", false),
            ("MIT AND BSD-3-Clause", true),
            ("GPL-3.0 OR MIT AND BSD-3-Clause", true),
            ("(GPL-3.0 OR MIT) AND GPL-2.0", false),
            ("(GPL-3.0 OR MIT) AND BSD-3-Clause", true),
            ("Apache-2.0", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("Apache-2.0 WITH other", false),
            ("", false),
            ("(MIT", false),
            ("MIT)", false),
            ("MIT OR", true),
        ] {
            assert_eq!(is_allowed(licence, &allow), expected, "{licence}");
        }
    }

    #[test]
    fn each_rule_bites() {
        let text = "[licenses]\nallow = [\n    \"MIT\", # comment\n]\n[bans]\nskip = [\n    { crate = \"syn\", reason = \"x\" },\n\
                    \n    # \"no\"\n]\ndeny = [\n    { crate = \"plotters\" },\n]\n";
        let rules = Rules::read(text);
        let expected =
            Rules { allow: set(&["MIT"]), skip: set(&["syn"]), deny: set(&["plotters"]) };
        assert_eq!(rules, expected);
        let good =
            [package("syn", "1", "MIT"), package("syn", "2", "MIT"), package("a", "1", "MIT")];
        let all = |packages: &[Package]| {
            [licences_of(&rules, packages), several(&rules, packages), others(&rules, packages)]
                .concat()
        };
        assert_eq!(all(&good), [""; 0]);
        let with = |more: Package| all(&[&good[..], &[more]].concat()).len();
        assert_eq!(with(package("b", "1", "GPL-3.0")), 1);
        assert_eq!(with(package("a", "2", "MIT")), 1);
        assert_eq!(with(package("plotters", "1", "MIT")), 1);
        assert_eq!(with(Package { source: Some("git+x".into()), ..package("b", "1", "MIT") }), 1);
        assert_eq!(all(&good[1..]).len(), 1, "listed for nothing");
        assert_eq!(tests_only(&set(&["clap 4.0.0", "plotters 0.3.7"])).len(), 1);
    }
}
