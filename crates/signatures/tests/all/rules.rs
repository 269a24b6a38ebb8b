//! Other people's rules: Emerging Threats of 2017, and the rules of Suricata's own tests.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use signatures::{Loader, Rule, RuleSet, Variables, config};

const ETOPEN: &str = "ids/etopen-2017";
const VERIFY: &str = "ids/suricata-verify";

fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.to_string_lossy().ends_with(end) => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    found
}

/// All rule files of Emerging Threats in one set, with their bytes.
fn etopen() -> Option<(RuleSet, Vec<Vec<u8>>)> {
    let folder = testdata::path(ETOPEN)?;
    let mut loader = Loader::new(Variables::with_defaults([], []).unwrap());
    let mut texts = Vec::new();
    for path in files(&folder, ".rules.xz") {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let bytes = testdata::bytes(&format!("{ETOPEN}/{name}"))?;
        loader.read(&name, bytes.as_slice()).unwrap();
        texts.push(bytes);
    }
    Some((loader.finish(), texts))
}

/// `etopen.txt` has each rule that does not load, with its file, line and reason.
#[test]
fn emerging_threats_load() {
    let Some((set, _)) = etopen() else { return };
    let listed = include_str!("../data/etopen.txt");
    let listed = listed.lines().filter(|line| !line.starts_with('#'));
    let found: Vec<String> = set.problems.iter().map(|p| p.to_string()).collect();
    let listed: Vec<&str> = listed.collect();
    assert_eq!(found, listed, "\n{}\n", found.join("\n"));
    let summary = set.summary;
    assert_eq!((summary.total, summary.disabled), (7960, 1080), "{summary}");
    assert_eq!(summary.loaded as usize, set.rules.len());
    assert!(summary.share() >= 0.97, "{summary}");
}

/// Each rule is the same after it is written and read again.
#[test]
fn emerging_threats_have_a_normal_form() {
    let Some((set, _)) = etopen() else { return };
    for loaded in &set.rules {
        let text = loaded.rule.to_string();
        let again = Rule::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(again, loaded.rule, "{text}");
        assert_eq!(again.to_string(), text);
    }
}

/// Counts that a few lines of shell give as well: nothing is lost between text and model.
#[test]
fn emerging_threats_are_complete() {
    let Some((set, texts)) = etopen() else { return };
    let mut contents = 0;
    let mut expressions = 0;
    for loaded in &set.rules {
        for check in loaded.rule.inspections.iter().flat_map(|i| &i.checks) {
            contents += usize::from(matches!(check, signatures::Check::Content(_)));
            expressions += usize::from(matches!(check, signatures::Check::Pcre(_)));
        }
    }
    let refused: HashMap<&str, Vec<u64>> =
        set.problems.iter().fold(HashMap::new(), |mut by_file, p| {
            by_file.entry(p.file.as_str()).or_insert_with(Vec::new).push(p.problem.line);
            by_file
        });
    let mut expected = (0, 0);
    for (name, text) in set.files.iter().zip(&texts) {
        let text = String::from_utf8_lossy(text);
        for (number, line) in text.lines().enumerate() {
            let lost = refused.get(name.as_str());
            if line.starts_with("alert")
                && !lost.is_some_and(|lines| lines.contains(&(number as u64 + 1)))
            {
                expected.0 += line.matches("content:").count();
                expected.1 += line.matches("pcre:").count();
            }
        }
    }
    assert_eq!((contents, expressions), expected);
    assert!(contents > 20_000 && expressions > 2_000);
}

#[test]
fn classes_and_references_of_emerging_threats() {
    let Some(folder) = testdata::path(ETOPEN) else { return };
    let open = |name: &str| std::io::Cursor::new(std::fs::read(folder.join(name)).unwrap());
    let classes = config::classifications(open("classification.config")).unwrap();
    assert_eq!((classes.problems.len(), classes.found.len()), (0, 34));
    let class = &classes.found["trojan-activity"];
    assert_eq!((class.description.as_str(), class.priority), ("A Network Trojan was Detected", 1));
    let references = config::references(open("reference.config")).unwrap();
    assert_eq!(references.problems, []);
    assert_eq!(references.found["cve"], "http://cve.mitre.org/cgi-bin/cvename.cgi?name=");
    assert_eq!(references.found["secunia"], "http://secunia.com/advisories/");
    let Some((set, _)) = etopen() else { return };
    for Rule { classtype, references: systems, .. } in set.rules.iter().map(|l| &l.rule) {
        assert!(classes.found.contains_key(classtype.as_ref().unwrap()));
        for (system, id) in systems {
            assert!(references.found.contains_key(&system.to_ascii_lowercase()), "{system},{id}");
        }
    }
}

/// Files of Suricata's tests in which a rule does not load, with the reason.
const VERIFY_LISTED: &[(&str, &str)] = &[];

#[test]
fn rules_of_suricata_verify_load() {
    let Some(folder) = testdata::path(VERIFY) else { return };
    let paths = files(&folder, ".rules");
    assert!(paths.len() >= 80, "{}", paths.len());
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let mut total = 0;
    for path in paths {
        let mut loader = Loader::new(Variables::with_defaults([], []).unwrap());
        loader.read_file(&path).unwrap();
        let set = loader.finish();
        let name = path.strip_prefix(&folder).unwrap().to_string_lossy().into_owned();
        total += set.summary.total;
        for problem in &set.problems {
            found.insert(name.clone(), problem.problem.to_string());
        }
        for loaded in &set.rules {
            let text = loaded.rule.to_string();
            assert_eq!(Rule::parse(text.as_bytes()).unwrap(), loaded.rule, "{name}: {text}");
        }
    }
    let found: Vec<(&str, &str)> = found.iter().map(|(n, p)| (n.as_str(), p.as_str())).collect();
    assert_eq!(found, VERIFY_LISTED);
    assert!(total >= 200, "{total}");
}

/// What Suricata's tests have of `threshold.config`.
#[test]
fn thresholds_of_suricata_verify() {
    let Some(folder) = testdata::path(VERIFY) else { return };
    for path in files(&folder, "threshold.config") {
        let bytes = std::fs::read(&path).unwrap();
        let read = config::thresholds(bytes.as_slice()).unwrap();
        assert_eq!(read.problems, [], "{}", path.display());
        assert!(!read.found.is_empty());
    }
}
