//! RFC and TIC against the naive twin.

mod common;

use classify::naive::Naive;
use classify::rfc::{self, Rfc, RfcBuilder};
use classify::tic::{self, Block, Tic, TicBuilder};
use classify::tuple::Form;
use classify::{Classifier, Classify, Condition, Match, RuleError, RuleRef, RuleSet, Schema};
use common::{Bed, Random, SETS, classify, headers, rules, schemas, set, words};
use proptest::prelude::*;

const FORMS: [Form; 4] = [Form::Best, Form::Direct, Form::Switched, Form::Vectors];
const BLOCKS: [Block; 2] = [Block::Bytes32, Block::Bytes64];

/// A way ends where a lookup does, and reads what it reads.
fn explained(builder: &dyn Classifier, header: &[u32], expected: Match) -> classify::Explained {
    let explained = builder.tables().unwrap().explain(&Schema::five_tuple(), header).unwrap();
    assert_eq!(explained.found, expected);
    let last = explained.steps.iter().rfind(|step| step.outcome.found().is_some());
    assert_eq!(last.map_or(Match::NONE, |step| step.outcome.found()), expected);
    explained
}

/// Both structures, all forms and blocks.
fn all_agree(set: &RuleSet, headers: &[u32], expected: &[Match]) {
    let mut found = vec![Match::new(0, 77); expected.len()];
    let rfc = RfcBuilder::build(set).unwrap();
    assert_eq!(classify(&rfc.tables().unwrap(), headers), expected);
    let view = Rfc::new(rfc.blob()).unwrap();
    for form in FORMS {
        view.classify_by(form, headers, &mut found);
        assert_eq!(found, expected, "RFC, {form:?}");
        found.fill(Match::new(0, 77));
    }
    for (header, expected) in headers.chunks(4).zip(expected).take(5) {
        let way = explained(&rfc, header, *expected);
        assert_eq!(way.accesses(), 13 + u32::from(expected.is_some()));
    }
    let memory = rfc.memory();
    assert_eq!(memory.total(), rfc.blob().len_bytes(), "{memory:?}");
    for block in BLOCKS {
        let options = tic::Options { block, ..tic::Options::default() };
        let tic = TicBuilder::with(set, options).unwrap();
        assert_eq!(classify(&tic.tables().unwrap(), headers), expected);
        let view = Tic::new(tic.blob()).unwrap();
        for form in FORMS {
            view.classify_by(form, headers, &mut found);
            assert_eq!(found, expected, "TIC, {block:?}, {form:?}");
            found.fill(Match::new(0, 77));
        }
        for (header, expected) in headers.chunks(4).zip(expected).take(5) {
            let way = explained(&tic, header, *expected);
            let blocks = tic::measure(tic.blob(), header).unwrap().blocks as u32;
            assert_eq!(way.accesses(), 10 + blocks + u32::from(expected.is_some()), "{way:#?}");
        }
        let memory = tic.memory();
        assert_eq!(memory.total(), tic.blob().len_bytes(), "{memory:?}");
        assert!(memory.total() <= rfc.memory().total(), "TIC takes more than RFC: {memory:?}");
        let counts = tic::measure(tic.blob(), headers).unwrap();
        assert_eq!(counts.headers, expected.len() as u64);
        let matched = expected.iter().filter(|found| found.is_some()).count() as u64;
        assert!(counts.ranges >= matched && counts.blocks >= counts.headers);
        assert!(counts.ranges_max * counts.headers >= counts.ranges);
        assert!(counts.blocks_max * counts.headers >= counts.blocks);
        let report = tic.report();
        assert!(counts.ranges_max <= report.rules_max && report.rules_max <= report.ranges());
        assert_eq!(report.code_bytes, report.blocks * report.block_bytes);
        let code = memory.parts.iter().find(|(part, _)| *part == "code").map_or(0, |part| part.1);
        assert_eq!((report.code_bytes as usize).next_multiple_of(64), code);
        assert!(report.tree_bytes + report.code_bytes < memory.total() as u64);
    }
}

fn against_the_twin(set: &RuleSet, random: &mut Random, count: usize) {
    let headers = headers(set, count, random);
    let expected = classify(&Naive::new(set).unwrap(), &headers);
    all_agree(set, &headers, &expected);
}

/// Rules of few values, nearly all of which overlap.
fn overlapping(count: usize, random: &mut Random) -> RuleSet {
    let mut set = RuleSet::new(Schema::five_tuple());
    for id in 0..count as u32 {
        let mut prefix = || {
            let len = [0, 0, 1, 8, 15, 16, 17, 24, 31, 32][random.below(10) as usize];
            Condition::Prefix { value: random.below(4) * 0x5555_5555, len }
        };
        let (src, dst) = (prefix(), prefix());
        let mut port = || {
            let ends = [0, 1, 80, 1023, 1024, 5000, 65534, 65535];
            let (a, b) = (ends[random.below(8) as usize], ends[random.below(8) as usize]);
            match random.below(6) {
                0 => Condition::Range { low: 0, high: 65535 },
                1 => Condition::Range { low: 1024, high: 65535 },
                2 => Condition::Range { low: 0, high: 1023 },
                3 => Condition::Range { low: a, high: a },
                _ => Condition::Range { low: a.min(b), high: a.max(b) },
            }
        };
        let (sport, dport) = (port(), port());
        let masks = [0, 255, 255, 0xf0, 1];
        let mask = masks[random.below(5) as usize];
        let proto = Condition::Mask { value: [6, 17, 1][random.below(3) as usize], mask };
        let words = set.schema().conditions(&[src, dst, sport, dport, proto]).unwrap();
        let priority = random.below(count as u128 + 1) as u32;
        set.push(RuleRef { words: &words, priority, id }).unwrap();
    }
    set
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn agree_with_the_twin(seed: u64, rules in 0..120_usize) {
        let random = &mut Random(seed);
        let set = set(&schemas()[0], rules, random);
        against_the_twin(&set, random, 300);
    }

    #[test]
    fn overlapping_rules_agree(seed: u64, rules in 0..90_usize) {
        let random = &mut Random(seed);
        let set = overlapping(rules, random);
        against_the_twin(&set, random, 400);
    }
}

#[test]
fn odd_sets() {
    let schema = Schema::five_tuple();
    let random = &mut Random(7);
    let any: Vec<Condition> = schema.fields().iter().map(Condition::any).collect();
    let any = schema.conditions(&any).unwrap();
    let same = words(&schema, random);
    let rule = |words: &[u32], priority, id| (words.to_vec(), priority, id);
    let sets = [
        vec![],
        vec![rule(&any, 3, 9)],
        vec![rule(&same, 3, 9)],
        (0..50).map(|id| rule(&any, 0, 50 - id)).collect(),
        (0..50).map(|id| rule(&same, 7, id)).collect(),
        // The first covers all others, which never match.
        (0..50).map(|id| rule(if id == 0 { &any } else { &same }, id, id)).collect(),
        vec![rule(&any, u32::MAX, 1), rule(&same, u32::MAX, 0)],
    ];
    for rules in sets {
        let mut set = RuleSet::new(schema.clone());
        for (words, priority, id) in &rules {
            set.push(RuleRef { words, priority: *priority, id: *id }).unwrap();
        }
        against_the_twin(&set, random, 50);
    }
    let mut twice = RuleSet::new(schema);
    for priority in [1, 2] {
        twice.push(RuleRef { words: &same, priority, id: 4 }).unwrap();
    }
    assert_eq!(RfcBuilder::build(&twice).unwrap_err(), RuleError::DuplicateId(4));
    assert_eq!(TicBuilder::build(&twice).unwrap_err(), RuleError::DuplicateId(4));
}

/// Updates build anew, and readers follow.
#[test]
fn changes_build_anew() {
    fn change<C: Classifier>() {
        let random = &mut Random(5);
        let set = set(&schemas()[0], 30, random);
        let mut bed = Bed::<C>::new(&set);
        assert!(bed.builder.rebuilds());
        for _ in 0..12 {
            bed.insert(random);
            bed.remove(random);
            bed.remove(random);
            bed.check(&headers(&set, 40, random));
        }
    }
    change::<RfcBuilder>();
    change::<TicBuilder>();
}

#[test]
fn traces_with_answers() {
    common::traces_with_answers::<RfcBuilder>();
    common::traces_with_answers::<TicBuilder>();
}

/// Rule numbers above 64K: the instructions that set their upper half.
#[test]
fn more_than_64k_rules() {
    let mut set = RuleSet::new(Schema::five_tuple());
    let any = Condition::Range { low: 0, high: 65535 };
    // Many rules of few addresses, each of another port; then some that catch what is left.
    for number in 0..70_000_u128 {
        let port = Condition::Range { low: number % 65536, high: number % 65536 };
        let conditions = [
            Condition::Prefix { value: (number % 1000) << 20, len: 12 },
            Condition::Prefix { value: 0, len: 0 },
            any,
            port,
            Condition::Mask { value: if number < 65536 { 6 } else { 17 }, mask: 255 },
        ];
        set.append(&conditions).unwrap();
    }
    for value in 0..16_u128 {
        let mut conditions: Vec<Condition> =
            set.schema().fields().iter().map(Condition::any).collect();
        conditions[1] = Condition::Prefix { value: value << 28, len: 4 };
        conditions[4] = Condition::Mask { value: value << 4, mask: 0xf0 };
        set.append(&conditions).unwrap();
    }
    let random = &mut Random(4);
    let mut headers = Vec::new();
    for _ in 0..400 {
        let top = 65_000 + random.below(5016) as usize;
        let rule = set.rule(if random.one_in(2) { top } else { top - 60_000 });
        headers.extend(common::header_in(set.schema(), rule.words, random));
    }
    // The first that matches is the best.
    let best = |header: &[u32]| {
        let rule = set.iter().find(|rule| set.schema().matches(rule.words, header));
        rule.map_or(Match::NONE, |rule| rule.place())
    };
    let expected: Vec<Match> = headers.chunks(4).map(best).collect();
    let late = expected.iter().filter(|found| found.id().is_some_and(|id| id >= 65_536));
    assert!(late.count() > 50);
    for block in BLOCKS {
        let options = tic::Options { block, ..tic::Options::default() };
        let tic = TicBuilder::with(&set, options).unwrap();
        assert!(tic.report().bases > 1000);
        for form in FORMS {
            let mut found = vec![Match::NONE; expected.len()];
            Tic::new(tic.blob()).unwrap().classify_by(form, &headers, &mut found);
            assert_eq!(found, expected, "{block:?} {form:?}");
        }
    }
}

/// What would pass a limit is refused with its size; the same set fits into that size.
#[test]
fn a_limit_is_kept() {
    let random = &mut Random(9);
    let set = overlapping(200, random);
    let rfc = |limit_bytes| RfcBuilder::with(&set, rfc::Options { limit_bytes });
    let tic = |limit_bytes| {
        TicBuilder::with(&set, tic::Options { limit_bytes, ..tic::Options::default() })
    };
    let (of_rfc, of_tic) =
        (rfc(1 << 30).unwrap().memory().total(), tic(1 << 30).unwrap().memory().total());
    assert!(rfc(of_rfc as u64).is_ok() && tic(of_tic as u64).is_ok());
    let refused = |error: RuleError, limit: u64| match error {
        RuleError::TooLarge { bytes, limit: found, .. } => {
            assert_eq!(found, limit);
            assert!(bytes > limit);
            bytes
        }
        other => panic!("{other}"),
    };
    let last = of_rfc as u64 - 1;
    assert_eq!(refused(rfc(last).unwrap_err(), last), of_rfc as u64);
    for share in 1..10 {
        let limit = of_rfc as u64 * share / 10;
        assert!(refused(rfc(limit).unwrap_err(), limit) <= of_rfc as u64);
        let limit = of_tic as u64 * share / 10;
        assert!(refused(tic(limit).unwrap_err(), limit) <= of_tic as u64);
    }
    let text = rfc(1000).unwrap_err().to_string();
    assert!(text.contains("at most 1000 are allowed"), "{text}");
    // A change that would pass the limit leaves all as it was.
    let mut builder = rfc(of_rfc as u64).unwrap();
    let mut wide = RuleSet::new(Schema::five_tuple());
    for number in 0..40 {
        let conditions = [
            Condition::Prefix { value: number << 19 | 0x4000_0001, len: 32 },
            Condition::Prefix { value: number << 18 | 0x2000_0001, len: 32 },
            Condition::Range { low: number + 100, high: number + 200 },
            Condition::Range { low: number + 300, high: number + 400 },
            Condition::Mask { value: 6, mask: 255 },
        ];
        wide.append(&conditions).unwrap();
    }
    let mut patches = Vec::new();
    let refused = wide.iter().find_map(|rule| {
        patches.clear();
        let words = builder.blob().words().to_vec();
        let rule = RuleRef { id: rule.id + 1000, ..rule };
        let result = builder.insert(rule, &mut patches);
        result.err().map(|error| (error, words))
    });
    let (error, words) = refused.unwrap();
    assert!(matches!(error, RuleError::TooLarge { .. }), "{error}");
    assert!(patches.is_empty() && builder.blob().words() == words);
}

#[test]
fn other_schemas_are_refused() {
    for schema in schemas().into_iter().skip(1) {
        let set = RuleSet::new(schema);
        let of = |structure| RuleError::Schema { structure };
        assert_eq!(RfcBuilder::build(&set).unwrap_err(), of("RFC"));
        assert_eq!(TicBuilder::build(&set).unwrap_err(), of("TIC"));
    }
}

/// Broken images are none, or give some answer; never a panic.
#[test]
fn broken_images_do_no_harm() {
    let random = &mut Random(12);
    let set = overlapping(40, random);
    let headers = headers(&set, 50, random);
    let builders: [Box<dyn Classifier>; 2] =
        [Box::new(RfcBuilder::build(&set).unwrap()), Box::new(TicBuilder::build(&set).unwrap())];
    for builder in builders {
        for _ in 0..300 {
            let mut tables = builder.tables().unwrap();
            let length = builder.blob().words().len();
            let patches: Vec<lookup::Patch> = (0..4)
                .map(|_| {
                    let near = if random.one_in(2) { 128 } else { length as u128 };
                    let offset_words = random.below(near) as usize;
                    let count =
                        1 + random.below(8).min((length - offset_words - 1) as u128) as usize;
                    let value = random.next() as u32 >> random.below(32);
                    lookup::Patch::Fill {
                        offset_words: offset_words.max(1),
                        count: count - 1,
                        value,
                    }
                })
                .collect();
            patches.iter().for_each(|p| lookup::versions::Patchable::apply(&mut tables, p));
            let mut out = vec![Match::NONE; headers.len() / 4];
            if tables.words() == 4 {
                tables.classify(&headers, &mut out);
            }
            for form in FORMS {
                if let Some(view) = Rfc::new(tables.blob()) {
                    view.classify_by(form, &headers, &mut out);
                }
                if let Some(view) = Tic::new(tables.blob()) {
                    view.classify_by(form, &headers, &mut out);
                }
            }
        }
    }
}

#[test]
fn shared_sets_agree_with_the_twin() {
    for (name, _) in SETS {
        let Some(set) = rules(name) else { return };
        let headers = headers(&set, 200, &mut Random(5));
        let expected = classify(&Naive::new(&set).unwrap(), &headers);
        // Sets of 10,000 rules are too large for this, or not; never wrong.
        let limit_bytes = 1 << 26;
        let rfc = RfcBuilder::with(&set, rfc::Options { limit_bytes });
        match &rfc {
            Ok(rfc) => assert_eq!(classify(&rfc.tables().unwrap(), &headers), expected, "{name}"),
            Err(error) => refused_for_size(name, error),
        }
        for block in BLOCKS {
            let tic = match TicBuilder::with(&set, tic::Options { limit_bytes, block }) {
                Ok(tic) => tic,
                Err(error) => {
                    refused_for_size(name, &error);
                    continue;
                }
            };
            for form in FORMS {
                let mut found = vec![Match::NONE; expected.len()];
                Tic::new(tic.blob()).unwrap().classify_by(form, &headers, &mut found);
                assert_eq!(found, expected, "{name} {block:?} {form:?}");
            }
            if let Ok(rfc) = &rfc {
                let (tic, rfc) = (tic.memory().total(), rfc.memory().total());
                println!("{name}, {block:?}: TIC {tic} bytes, RFC {rfc}");
                assert!(tic <= rfc, "{name}: {tic} > {rfc}");
            }
        }
    }
}

/// Only large sets are refused.
fn refused_for_size(name: &str, error: &RuleError) {
    assert!(matches!(error, RuleError::TooLarge { .. }), "{name}: {error}");
    assert!(name.ends_with("_10k"), "{name}: {error}");
}
