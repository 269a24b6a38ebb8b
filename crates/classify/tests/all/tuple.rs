//! Tuple and Bloom search: hashes and filters, large classes, what searches do.

use classify::bloom::{self, BloomBuilder};
use classify::linear::LinearBuilder;
use classify::tuple::{self, FilterPlan, HashKind, Options, TupleBuilder, TupleSpace};
use classify::{Classifier, Condition, RuleError, RuleRef, RuleSet, Schema};
use lookup::Blob;

use crate::common::{Random, headers};
use crate::suite::{Structure, Visit, check_forms, four_forms, reference, shared_answers};

impl Structure for TupleBuilder {
    /// As by default; and with any hash, and filters that say yes too often, which does no harm.
    fn ways(set: &RuleSet, random: &mut Random) -> Vec<Result<Self, RuleError>> {
        let hash = if random.one_in(2) { HashKind::Murmur3 } else { HashKind::Universal };
        let functions = random.below(5) as u32;
        let filter = (functions > 0).then_some(FilterPlan { functions, rate: 0.3 });
        let drawn = TupleBuilder::with(set, Options { hash, filter, seed: Some(random.next()) });
        let drawn = drawn.inspect(|builder| {
            let space = TupleSpace::new(builder.blob()).unwrap();
            assert_eq!(space.has_filters(), filter.is_some());
        });
        vec![TupleBuilder::build(set), drawn]
    }
    fn forms(image: &Blob, visit: Visit<'_>) {
        let space = TupleSpace::new(image).unwrap();
        four_forms(visit, |form, headers, out| space.classify_by(form, headers, out));
    }
}

impl Structure for BloomBuilder {
    fn forms(image: &Blob, visit: Visit<'_>) {
        TupleBuilder::forms(image, visit);
    }
}

/// One class of thousands of entries, whose slots and filter are gathered from; and many small ones.
#[test]
fn large_classes() {
    let schema = &Schema::five_tuple();
    let any = Condition::Range { low: 0, high: 65535 };
    let mut set = RuleSet::new(schema.clone());
    for number in 0..6000_u128 {
        let len = if number % 3 == 0 { (number % 31) as u8 } else { 32 };
        let conditions = [
            Condition::Prefix { value: (number * 0x9e37_79b9) & 0xffff_ffff, len },
            Condition::Prefix { value: 0, len: 0 },
            any,
            any,
            Condition::Mask { value: 6, mask: 255 },
        ];
        set.append(&conditions).unwrap();
    }
    let random = &mut Random(2);
    let headers = headers(&set, 500, random);
    let expected = reference(&set, &headers);
    for filter in [None, Some(FilterPlan::TABLE_2)] {
        let options = Options { filter, ..Options::default() };
        let builder = TupleBuilder::with(&set, options).unwrap();
        assert!(builder.stats().class_max > 3000);
        check_forms::<TupleBuilder>(&builder.tables().unwrap(), &headers, &expected);
    }
}

#[test]
fn filters_of_the_shared_sets_are_as_planned() {
    for (name, set, headers, _) in shared_answers() {
        let headers = &headers[..800];
        let (tuple, bloom) = (TupleBuilder::build(set).unwrap(), BloomBuilder::build(set).unwrap());
        let (plain, filtered) = (tuple.stats(), bloom.stats());
        assert!(plain.entries >= set.len() && plain.classes > 50);
        assert_eq!((plain.entries, plain.classes), (filtered.entries, filtered.classes));
        assert_eq!(plain.filters, None);
        assert!(bloom::measure(tuple.blob(), headers).is_none());
        // The formula and what is measured; small filters in large numbers make both smaller than the plan.
        let report = bloom::measure(bloom.blob(), headers).unwrap();
        assert!(report.misses > 0);
        assert!(report.rate() < 4.0 * FilterPlan::TABLE_2.rate, "{name}: {report:?}");
        let filters = filtered.filters.unwrap();
        assert!(filters.false_positives_paper < FilterPlan::TABLE_2.rate);
        assert!(filters.false_positives_formula > filters.false_positives_paper);
        assert!(filters.functions >= 2 && filters.bits_min >= 64);
        assert!(filters.bits_max <= filters.bits && filters.bits_min <= filters.bits_max);
    }
}

/// A class that is nearly full has the formula's rate.
#[test]
fn false_positives_are_as_the_formula_says() {
    let schema = &Schema::five_tuple();
    let mut set = RuleSet::new(schema.clone());
    for number in 0..3000_u32 {
        let fields = schema.fields().iter().enumerate();
        let conditions: Vec<Condition> = fields
            .map(|(at, field)| match at {
                0 => Condition::exact(field, chunk::hash::fmix32(number).into()),
                _ => Condition::any(field),
            })
            .collect();
        set.append(&conditions).unwrap();
    }
    let filter = Some(FilterPlan { functions: 2, rate: 0.05 });
    let options = Options { filter, seed: Some(4), ..Options::default() };
    let builder = BloomBuilder::with(&set, options).unwrap();
    let headers: Vec<u32> =
        (0..40_000).flat_map(|at| [chunk::hash::fmix32(5000 + at), at, 0, 0]).collect();
    let report = bloom::measure(builder.blob(), &headers).unwrap();
    let filters = builder.stats().filters.unwrap();
    assert_eq!(report.misses, 40_000);
    assert_eq!((filters.functions, filters.bits_min), (2, filters.bits_max));
    let formula = bloom::formula(2, 3000, filters.bits);
    assert_eq!(formula, filters.false_positives_formula);
    assert!(formula > 0.002 && formula < 0.05, "{formula}");
    assert!(
        report.rate() > formula / 2.0 && report.rate() < formula * 2.0,
        "{report:?}, {formula}"
    );
}

/// What searches do is what a search class by class does; chains and expansions are those of the rules.
#[test]
fn searches_are_counted() {
    let schema = &Schema::five_tuple();
    let mut set = RuleSet::new(schema.clone());
    let prefix = |value: u128, len| Condition::Prefix { value, len };
    let ports = |low, high| Condition::Range { low, high };
    let tcp = Condition::Mask { value: 6, mask: 255 };
    for (src, len, low, high) in [
        (0x0a00_0000, 8, 80, 80),
        (0x0a00_0000, 8, 79, 80), // the second of its two prefixes is the rule before
        (0x0a00_0000, 8, 80, 80), // a third rule there
        (0x0a01_0000, 16, 1, 14), // six prefixes: 1, 2-3, 4-7, 8-11, 12-13, 14
        (0, 0, 0, 65535),
    ] {
        let any = ports(0, 65535);
        set.append(&[prefix(src, len), prefix(0, 0), any, ports(low, high), tcp]).unwrap();
    }
    let headers = [[0x0a00_0001, 0, 80, 6 << 24], [0x0a01_0001, 0, 14, 6 << 24], [1, 1, 1, 0]];
    for filter in [None, Some(FilterPlan::TABLE_2)] {
        let options = Options { filter, seed: Some(1), ..Options::default() };
        let builder = TupleBuilder::with(&set, options).unwrap();
        let stats = builder.stats();
        assert_eq!((stats.rules, stats.entries), (5, 1 + 2 + 1 + 6 + 1));
        assert_eq!((stats.expansion_max, stats.chain_max), (6, 3));
        let report = tuple::measure(builder.blob(), headers.as_flattened()).unwrap();
        let view = TupleSpace::new(builder.blob()).unwrap();
        // Bounds compare priorities: the first header ends in the first class, the last one sees all.
        assert_eq!((report.headers, report.classes_max), (3, view.classes() as u64));
        assert!(report.classes < 3 * view.classes() as u64 && report.entries >= 2, "{report:?}");
        match filter {
            None => assert_eq!(report.tables, report.classes),
            Some(_) => assert!(report.tables < report.classes, "{report:?}"),
        }
    }
    assert!(tuple::measure(LinearBuilder::build(&set).unwrap().blob(), &[0; 4]).is_none());
}

/// A rule of six ranges would make a million entries; after the refusal all is as before.
#[test]
fn a_rule_of_too_many_prefixes_is_refused() {
    use classify::{Field, Kind};
    let fields = (0..6).map(|_| Field::new("port", 16, Kind::Range)).collect();
    let schema = Schema::new(fields).unwrap();
    let wide = schema.conditions(&[Condition::Range { low: 1, high: 65534 }; 6]).unwrap();
    let mut set = RuleSet::new(schema);
    let mut builder = TupleBuilder::build(&set).unwrap();
    let before = builder.blob().words().to_vec();
    let mut patches = Vec::new();
    let rule = RuleRef { words: &wide, priority: 0, id: 3 };
    let entries = 30_u64.pow(6);
    let expected = Err(RuleError::Expansion { id: 3, entries, limit: 1 << 14 });
    assert_eq!(builder.insert(rule, &mut patches), expected);
    assert!(patches.is_empty() && builder.is_empty() && builder.blob().words() == before);
    set.push(rule).unwrap();
    assert_eq!(TupleBuilder::build(&set).map(|_| ()), expected);
}
