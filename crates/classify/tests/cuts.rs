//! Cut trees and `auto` against the naive twin.

mod common;

use classify::auto::AutoBuilder;
use classify::cuts::{Copies, Cuts, CutsBuilder};
use classify::naive::Naive;
use classify::tuple::Form;
use classify::{Classifier, Condition, Match, RuleError, RuleRef, RuleSet, Schema};
use common::{Bed, Random, SETS, classify, headers, rules, schemas, set};
use proptest::prelude::*;

const COPIES: [Copies; 3] = [Copies::Fewest, Copies::Few, Copies::Many];

/// Both efforts, all forms, with vectors and without.
fn all_agree(set: &RuleSet, headers: &[u32], expected: &[Match]) {
    for copies in COPIES {
        let builder = CutsBuilder::with(set, copies).unwrap();
        let memory = builder.memory();
        assert_eq!(memory.total(), builder.blob().len_bytes(), "{memory:?}");
        assert_eq!(classify(&builder.tables().unwrap(), headers), expected, "{copies:?}");
        let view = Cuts::new(builder.blob()).unwrap();
        let mut found = vec![Match::new(0, 77); expected.len()];
        for form in [Form::Best, Form::Direct, Form::Switched, Form::Vectors] {
            view.classify_by(form, headers, &mut found);
            assert_eq!(found, expected, "{copies:?}, {form:?}");
            found.fill(Match::new(0, 77));
        }
        view.classify_portable(headers, &mut found);
        assert_eq!(found, expected, "{copies:?}, without vectors");
        let tables = builder.tables().unwrap();
        for (header, expected) in headers.chunks(4).zip(expected).take(20) {
            let explained = tables.explain(set.schema(), header).unwrap();
            assert_eq!(explained.found, *expected);
            assert_eq!(explained.steps.len(), view.trees());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn agree_with_the_twin(seed: u64, wide: bool, rules in 0..250_usize) {
        let random = &mut Random(seed);
        let schema = if wide { (*classify::filter::schema_v4()).clone() } else { schemas()[0].clone() };
        let set = set(&schema, rules, random);
        let headers = headers(&set, 200, random);
        all_agree(&set, &headers, &classify(&Naive::new(&set).unwrap(), &headers));
    }

    #[test]
    fn changes_agree(seed: u64, rules in 0..150_usize, changes in 0..150_usize) {
        common::against_the_twin::<CutsBuilder>(seed, 0, rules, changes);
    }

    #[test]
    fn wide_changes_agree(seed: u64, rules in 0..150_usize, changes in 0..80_usize) {
        let schema = (*classify::filter::schema_v4()).clone();
        common::against_the_twin_of::<CutsBuilder>(seed, &schema, rules, changes);
        common::against_the_twin_of::<AutoBuilder>(seed, &schema, rules, changes % 20);
    }

    #[test]
    fn auto_agrees((seed, schema, rules, changes) in common::cases()) {
        common::against_the_twin::<AutoBuilder>(seed, schema, rules, changes % 40);
    }
}

#[test]
fn odd_sets() {
    let filter = (*classify::filter::schema_v4()).clone();
    common::odd_sets_of::<CutsBuilder>(&[Schema::five_tuple(), filter]);
    common::odd_sets::<AutoBuilder>();
}

#[test]
fn lookups_beside_updates() {
    common::lookups_beside_updates::<CutsBuilder>();
    common::lookups_beside_updates::<AutoBuilder>();
}

#[test]
fn traces_with_answers() {
    common::traces_with_answers::<CutsBuilder>();
    common::traces_with_answers::<AutoBuilder>();
}

#[test]
fn sets_of_the_shared_data() {
    for (name, count) in SETS {
        let Some(set) = rules(name) else { return };
        assert_eq!(set.len(), count);
        let headers = headers(&set, 1500, &mut Random(5));
        all_agree(&set, &headers, &classify(&Naive::new(&set).unwrap(), &headers));
    }
}

#[test]
fn other_schemas_are_refused() {
    for schema in &schemas()[1..] {
        let set = RuleSet::new(schema.clone());
        let refused = CutsBuilder::build(&set).unwrap_err();
        assert!(matches!(refused, RuleError::Schema { .. }), "{refused:?}");
    }
}

/// Grows from nothing to many rules of a real set and back, so that nodes are cut anew and everything is built anew;
/// at last as large as a set that has a second level of nodes.
#[test]
fn many_changes() {
    let Some(real) = rules("neurocuts/fw1_10k") else { return };
    let random = &mut Random(9);
    let headers = headers(&real, 300, random);
    let mut bed = Bed::<CutsBuilder>::new(&RuleSet::new(real.schema().clone()));
    let apply = |bed: &mut Bed<CutsBuilder>, patches: &[lookup::Patch]| {
        use lookup::versions::Patchable;
        patches.iter().for_each(|patch| bed.tables.apply(patch));
    };
    for index in 0..3000 {
        let mut patches = Vec::new();
        let rule = real.rule((index * 7919) % real.len());
        bed.builder.insert(rule, &mut patches).unwrap();
        bed.twin.insert(rule).unwrap();
        bed.ids.push(rule.id);
        apply(&mut bed, &patches);
        if index % 500 == 0 {
            bed.check(&headers);
        }
    }
    bed.check(&headers);
    while bed.ids.len() > 10 {
        bed.remove(random);
        if bed.ids.len().is_multiple_of(500) {
            bed.check(&headers);
        }
    }
    bed.check(&headers);
}

/// Sets large enough for a second level of nodes.
#[test]
fn two_levels() {
    let random = &mut Random(3);
    let schema = Schema::five_tuple();
    let mut set = RuleSet::new(schema.clone());
    let any = Condition::Range { low: 0, high: 65535 };
    for id in 0..40_000_u32 {
        let mut prefix = |least: u128| {
            let len = (least + random.below(33 - least)) as u8;
            Condition::Prefix { value: random.below(1 << 32) >> (32 - len) << (32 - len), len }
        };
        let (src, dst) = (prefix(14), prefix(8));
        let dport = Condition::Range { low: random.below(9000), high: 9000 + random.below(9000) };
        let proto = Condition::Mask { value: 6, mask: 255 };
        let words = schema.conditions(&[src, dst, any, dport, proto]).unwrap();
        set.push(RuleRef { words: &words, priority: random.below(9) as u32, id }).unwrap();
    }
    let headers = headers(&set, 800, random);
    let mut twin = Naive::new(&set).unwrap();
    let mut builder = CutsBuilder::build(&set).unwrap();
    let mut tables = builder.tables().unwrap();
    assert_eq!(classify(&tables, &headers), classify(&twin, &headers));
    for id in (0..40_000).step_by(37) {
        let mut patches = Vec::new();
        assert!(builder.remove(id, &mut patches) && twin.remove(id));
        if id % 2 == 0 {
            let rule = RuleRef { id: id + 100_000, ..set.rule(id as usize) };
            builder.insert(rule, &mut patches).unwrap();
            twin.insert(rule).unwrap();
        }
        use lookup::versions::Patchable;
        patches.iter().for_each(|patch| tables.apply(patch));
    }
    assert_eq!(classify(&tables, &headers), classify(&twin, &headers));
}

/// Rules that overlap and no bit tells apart: more than a leaf can have are refused, and nothing has changed.
#[test]
fn leaves_have_a_bound() {
    let schema = Schema::five_tuple();
    let mut bed = Bed::<CutsBuilder>::new(&RuleSet::new(schema.clone()));
    let any: Vec<Condition> = schema.fields().iter().map(Condition::any).collect();
    let mut refused = None;
    for id in 0..3000_u32 {
        // Each covers a port more on one side and one less on the other.
        let (low, high) = (u128::from(id) + 1, 60_000 + u128::from(id));
        let mut conditions = any.clone();
        conditions[3] = Condition::Range { low, high };
        let words = schema.conditions(&conditions).unwrap();
        let mut patches = Vec::new();
        let rule = RuleRef { words: &words, priority: 1, id };
        match bed.builder.insert(rule, &mut patches) {
            Ok(()) => {
                bed.twin.insert(rule).unwrap();
                bed.ids.push(id);
            }
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
        use lookup::versions::Patchable;
        patches.iter().for_each(|patch| bed.tables.apply(patch));
    }
    assert!(matches!(refused, Some(RuleError::Full { .. })), "{refused:?}");
    assert!(bed.ids.len() >= 2000, "{}", bed.ids.len());
    let header = |port: u128| schema.header(&[1, 2, 3, port, 6]);
    let headers: Vec<u32> = [0, 1, 2, 2000, 59_999, 60_500, 65_535].map(header).concat();
    bed.check(&headers);
}
