//! Checks of a set against their definitions.

use crate::common::{Random, SETS, classify, headers, rules, schemas, set};
use classify::check::{Warning, check};
use classify::reference::Reference;
use classify::{Condition, Match, RuleSet, Schema};
use proptest::prelude::*;

/// The definitions, pair by pair.
fn plain(set: &RuleSet, actions: &[u32]) -> Vec<Warning> {
    let ranked = set.ranked();
    let words = |rank: usize| set.rule(ranked[rank] as usize).words;
    let schema = set.schema();
    let mut warnings = Vec::new();
    for rank in 0..ranked.len() {
        let rule = ranked[rank];
        if let Some(first) = (0..rank).find(|other| schema.covers(words(*other), words(rank))) {
            let same = words(first) == words(rank);
            warnings.push(Warning::Shadowed { rule, by: ranked[first], same });
            continue;
        }
        let action = |rank: usize| actions.get(ranked[rank] as usize);
        let alike = |other: usize| action(rank).is_some() && action(rank) == action(other);
        let mut behind = rank + 1..ranked.len();
        let behind = behind.find(|o| alike(*o) && schema.covers(words(*o), words(rank)));
        let Some(behind) = behind else { continue };
        let mut between = rank + 1..behind;
        if !between.any(|o| !alike(o) && schema.overlap(words(o), words(rank))) {
            warnings.push(Warning::Redundant { rule, by: ranked[behind] });
        }
    }
    warnings.sort_unstable_by_key(Warning::rule);
    warnings
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn is_what_the_definitions_say(
        seed: u64, schema in 0..5_usize, rules in 0..80_usize, kinds in 1..4_u128,
    ) {
        let random = &mut Random(seed);
        let set = set(&schemas()[schema], rules, random);
        let actions: Vec<u32> = (0..rules).map(|_| random.below(kinds) as u32).collect();
        let found = check(&set, &actions);
        prop_assert_eq!(&found, &plain(&set, &actions));
        // Without actions no two rules do the same.
        let shadowed = found.iter().filter(|w| matches!(w, Warning::Shadowed { .. })).copied();
        prop_assert_eq!(check(&set, &[]), shadowed.collect::<Vec<_>>());
        // What may be left out one by one changes no action.
        for warning in found.iter().take(5) {
            let mut rest = RuleSet::new(set.schema().clone());
            let kept = set.iter().filter(|rule| rule.id != warning.rule());
            kept.for_each(|rule| rest.push(rule).unwrap());
            let headers = headers(&set, 60, random);
            let action = |found: &Match| found.id().map(|id| actions[id as usize]);
            let with = classify(&Reference::new(&set).unwrap(), &headers);
            let without = classify(&Reference::new(&rest).unwrap(), &headers);
            prop_assert!(with.iter().map(action).eq(without.iter().map(action)));
        }
    }
}

#[test]
fn a_firewall_with_slips() {
    let rule = |src: u128, len, low, high| {
        [
            Condition::Prefix { value: src, len },
            Condition::Prefix { value: 0, len: 0 },
            Condition::Range { low: 0, high: 65535 },
            Condition::Range { low, high },
            Condition::Mask { value: 6, mask: 255 },
        ]
    };
    let mut set = RuleSet::new(Schema::five_tuple());
    let (accept, drop) = (1, 0);
    let rules = [
        (rule(0x0a01_0000, 16, 80, 80), accept), // 5 does the same, and nothing is between
        (rule(0x0a02_0000, 16, 22, 22), drop),   // 5 accepts what this drops
        (rule(0x0a02_0000, 16, 0, 1023), accept), // 5 does the same
        (rule(0x0a02_0300, 24, 20, 30), drop),   // 2 has it all
        (rule(0x0a02_0000, 16, 22, 22), accept), // 1 is the same
        (rule(0x0a00_0000, 8, 0, 65535), accept),
    ];
    rules.iter().for_each(|(rule, _)| set.append(rule).unwrap());
    let actions = rules.map(|(_, action)| action);
    let expected = [
        Warning::Redundant { rule: 0, by: 5 },
        Warning::Shadowed { rule: 3, by: 2, same: false },
        Warning::Shadowed { rule: 4, by: 1, same: true },
    ];
    // 3 is never reached, yet it is between 2 and 5 and overlaps 2.
    assert_eq!(check(&set, &actions), expected);
}

#[test]
fn shared_sets_have_the_shadows_of_the_definition() {
    for (name, _) in SETS {
        let Some(set) = rules(name) else { return };
        let found = check(&set, &vec![0; set.len()]);
        assert!(found.iter().is_sorted_by_key(Warning::rule));
        if name.ends_with("1k") {
            assert_eq!(found, plain(&set, &vec![0; set.len()]), "{name}");
        }
    }
}
