//! Linear search against the naive twin.

mod common;

use classify::linear::{Linear, LinearBuilder, Vectors};
use classify::naive::Naive;
use classify::{Classifier, Classify, Match};
use common::{Random, SETS, cases, classify, headers, rules, schemas, set};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn agrees_with_the_twin((seed, schema, rules, changes) in cases()) {
        common::against_the_twin::<LinearBuilder>(seed, schema, rules, changes);
    }

    /// Every kind of vectors says the same.
    #[test]
    fn vectors_agree(seed: u64, schema in 0..5_usize, rules in 0..100_usize) {
        let random = &mut Random(seed);
        let set = set(&schemas()[schema], rules, random);
        let headers = headers(&set, 100, random);
        let expected = classify(&Naive::new(&set).unwrap(), &headers);
        let tables = LinearBuilder::build(&set).unwrap().tables().unwrap();
        let linear = Linear::new(tables.blob()).unwrap();
        for vectors in [Vectors::Portable, Vectors::Avx2, Vectors::Avx512] {
            if vectors.is_there() {
                let mut found = vec![Match::NONE; expected.len()];
                linear.classify_with(vectors, &headers, &mut found);
                prop_assert_eq!(&found, &expected);
            }
        }
    }
}

#[test]
fn odd_sets() {
    common::odd_sets::<LinearBuilder>();
}

#[test]
fn lookups_beside_updates() {
    common::lookups_beside_updates::<LinearBuilder>();
}

#[test]
fn traces_with_answers() {
    common::traces_with_answers::<LinearBuilder>();
}

/// Enough changes that the table is put in order several times.
#[test]
fn many_changes() {
    let random = &mut Random(3);
    let schema = &schemas()[0];
    let set = set(schema, 700, random);
    let mut bed = common::Bed::<LinearBuilder>::new(&set);
    for round in 0..6 {
        for _ in 0..400 {
            match random.below(10) < if round % 2 == 0 { 8 } else { 1 } {
                true => bed.insert(random),
                false => bed.remove(random),
            }
        }
        bed.check(&headers(&set, 100, random));
    }
}

#[test]
fn shared_sets_agree_with_the_twin() {
    for (name, _) in SETS {
        let Some(set) = rules(name) else { return };
        let headers = headers(&set, 200, &mut Random(5));
        let tables = LinearBuilder::build(&set).unwrap().tables().unwrap();
        assert_eq!(tables.words(), 4);
        let expected = classify(&Naive::new(&set).unwrap(), &headers);
        assert!(expected.iter().filter(|found| found.is_some()).count() >= 100);
        assert_eq!(classify(&tables, &headers), expected, "{name}");
    }
}
