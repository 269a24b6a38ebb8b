//! Any bytes as a file of rules, and as each of the files beside it: what is read is written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use signatures::{Loader, Rule, Variables, config};

fuzz_target!(|bytes: &[u8]| {
    let variables = Variables::with_defaults([], []).expect("they are in order");
    let mut loader = Loader::new(variables.clone());
    loader.read("rules", bytes).expect("memory can be read");
    let set = loader.finish();
    for loaded in &set.rules {
        let text = loaded.rule.to_string();
        let again = Rule::parse(text.as_bytes()).expect("what was written");
        assert!(again == loaded.rule, "{text}");
        assert!(loaded.rule.source.resolve(&variables).is_ok_and(|set| !set.is_empty()));
    }
    let summary = set.summary;
    let others = summary.unsupported + summary.failed + summary.replaced;
    assert_eq!(summary.total, summary.loaded + others);
    assert_eq!(set.rules.len() as u64, summary.loaded);
    let lines = bytes.iter().filter(|b| **b == b'\n').count() as u64 + 1;
    let beside = [
        config::classifications(bytes).map(|read| read.problems),
        config::references(bytes).map(|read| read.problems),
        config::thresholds(bytes).map(|read| read.problems),
    ];
    let beside = beside.into_iter().flat_map(|problems| problems.expect("memory can be read"));
    for problem in set.problems.into_iter().map(|p| p.problem).chain(beside) {
        assert!((1..=lines).contains(&problem.line) && problem.column > 0);
        assert!(!problem.to_string().is_empty());
    }
});
