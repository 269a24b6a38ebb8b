//! Rules, headers and data that the tests share.
#![allow(dead_code, unreachable_pub)] // each test program uses a part

use classify::{Classify, Condition, Field, Kind, Match, RuleRef, RuleSet, Schema};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// A small generator of reproducible numbers (splitmix64).
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub fn below(&mut self, bound: u128) -> u128 {
        let wide = u128::from(self.next()) << 64 | u128::from(self.next());
        if bound == 0 { wide } else { wide % bound }
    }

    pub fn one_in(&mut self, n: u128) -> bool {
        self.below(n) == 0
    }
}

/// The schemas that every structure is tested with: the presets, and one of odd fields.
pub fn schemas() -> Vec<Schema> {
    let odd = vec![
        Field::new("a", 3, Kind::Range),
        Field::new("b", 3, Kind::Mask),
        Field::new("c", 5, Kind::Range),
        Field::new("d", 40, Kind::Prefix),
        Field::new("e", 16, Kind::Mask),
        Field::new("f", 32, Kind::Range),
    ];
    let ranges = vec![Field::new("x", 16, Kind::Range), Field::new("y", 16, Kind::Range)];
    vec![
        Schema::five_tuple(),
        Schema::five_tuple_v6(),
        Schema::twelve_fields(),
        Schema::new(odd).unwrap(),
        Schema::new(ranges).unwrap(),
    ]
}

/// A value of few different ones, so that rules meet: near the ends and a few in between.
fn value(field: &Field, random: &mut Random) -> u128 {
    let max = field.max();
    match random.below(4) {
        0 => random.below(3).min(max),
        1 => max - random.below(3).min(max),
        2 => (max / 3).wrapping_mul(random.below(3)) & max,
        _ => 0x1234_5678_9abc_def0_0fed_cba9_8765_4321 & max & !random.below(4),
    }
}

fn condition(field: &Field, random: &mut Random) -> Condition {
    if random.one_in(3) {
        return Condition::any(field);
    }
    match field.kind {
        Kind::Prefix => {
            let len = random.below(u128::from(field.bits) + 1) as u8;
            let len = if random.one_in(2) { field.bits.min(len & !7) } else { len };
            Condition::Prefix { value: value(field, random), len }
        }
        Kind::Range => {
            let (a, b) = (value(field, random), value(field, random));
            let b = if random.one_in(2) { a } else { b };
            Condition::Range { low: a.min(b), high: a.max(b) }
        }
        Kind::Mask => {
            let mask = match random.below(3) {
                0 => value(field, random),
                _ => field.max(),
            };
            Condition::Mask { value: value(field, random), mask }
        }
    }
}

/// A rule that is often like others.
pub fn conditions(schema: &Schema, random: &mut Random) -> Vec<Condition> {
    if random.one_in(40) {
        return schema.fields().iter().map(Condition::any).collect();
    }
    schema.fields().iter().map(|field| condition(field, random)).collect()
}

/// The words of such a rule.
pub fn words(schema: &Schema, random: &mut Random) -> Box<[u32]> {
    schema.conditions(&conditions(schema, random)).unwrap()
}

/// A set of `count` such rules, whose priorities come in no order and more than once.
pub fn set(schema: &Schema, count: usize, random: &mut Random) -> RuleSet {
    let mut set = RuleSet::new(schema.clone());
    for id in 0..count as u32 {
        let priority = random.below(count as u128 + 1) as u32;
        set.push(RuleRef { words: &words(schema, random), priority, id }).unwrap();
    }
    set
}

/// A header inside a rule: a corner of it, or anywhere.
pub fn header_in(schema: &Schema, words: &[u32], random: &mut Random) -> Vec<u32> {
    let values = (0..schema.fields().len()).map(|at| {
        let field = &schema.fields()[at];
        let free =
            if random.one_in(2) { value(field, random) } else { random.below(0) & field.max() };
        match schema.condition(words, at) {
            Condition::Prefix { value, len } => {
                let below = field.max() & !prefix_mask(field.bits, len);
                value | free & below
            }
            Condition::Range { low, high } => match random.below(3) {
                0 => low,
                1 => high,
                _ => low + free % (high - low + 1),
            },
            Condition::Mask { value, mask } => value | free & !mask & field.max(),
        }
    });
    let values: Vec<u128> = values.collect();
    schema.header(&values)
}

fn prefix_mask(bits: u8, len: u8) -> u128 {
    (0..len).fold(0, |mask, at| mask | 1 << (bits - 1 - at))
}

/// Headers: half of them inside some rule, half anywhere.
pub fn headers(set: &RuleSet, count: usize, random: &mut Random) -> Vec<u32> {
    let schema = set.schema();
    let mut headers = Vec::new();
    for _ in 0..count {
        if !set.is_empty() && random.one_in(2) {
            let rule = set.rule(random.below(set.len() as u128) as usize);
            headers.extend(header_in(schema, rule.words, random));
        } else {
            let values: Vec<u128> = schema.fields().iter().map(|f| value(f, random)).collect();
            headers.extend(schema.header(&values));
        }
    }
    headers
}

pub fn classify(classifier: &impl Classify, headers: &[u32]) -> Vec<Match> {
    let mut out = vec![Match::new(0, 77); headers.len() / classifier.words()];
    classifier.classify(headers, &mut out);
    out
}

/// Runs a property over fresh random inputs; a failing one is shrunk, and its seed kept beside the caller's file. Where
/// `PROPTEST_CASES` is set there are no more than that.
#[track_caller]
pub fn property<S: Strategy>(cases: u32, inputs: S, property: impl Fn(S::Value)) {
    let most = std::env::var("PROPTEST_CASES").ok().and_then(|most| most.parse().ok());
    let cases = most.map_or(cases, |most: u32| most.min(cases));
    let source_file = Some(std::panic::Location::caller().file());
    let config = ProptestConfig { source_file, ..ProptestConfig::with_cases(cases) };
    let result = TestRunner::new(config).run(&inputs, |input| {
        property(input);
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
}

/// The bytes of a file of `classbench`; `None` with a line that says so.
pub fn shared(name: &str) -> Option<Vec<u8>> {
    testdata::bytes(&format!("classbench/{name}"))
}

/// All rule files there, with the number of rules that each has.
pub const SETS: [(&str, usize); 16] = [
    ("cutsplit/acl_1k", 1016),
    ("cutsplit/ipc_1k", 1007),
    ("neurocuts/acl1_1k", 942),
    ("neurocuts/acl1_10k", 9774),
    ("neurocuts/acl2_1k", 961),
    ("neurocuts/acl2_10k", 9476),
    ("neurocuts/acl3_1k", 990),
    ("neurocuts/acl3_10k", 9419),
    ("neurocuts/fw1_1k", 857),
    ("neurocuts/fw1_10k", 9379),
    ("neurocuts/fw2_1k", 971),
    ("neurocuts/fw2_10k", 9655),
    ("neurocuts/fw3_1k", 799),
    ("neurocuts/fw3_10k", 9037),
    ("neurocuts/ipc1_1k", 974),
    ("neurocuts/ipc1_10k", 9518),
];

/// The two traces with known answers.
pub const TRACES: [&str; 2] = ["cutsplit/acl_1k", "cutsplit/ipc_1k"];

pub fn rules(name: &str) -> Option<RuleSet> {
    Some(classify::classbench::parse_rules(&shared(name)?).unwrap().set)
}
