//! Rules, headers and data that the tests share.
#![allow(dead_code, unreachable_pub)] // each test program uses a part

use std::path::PathBuf;
use std::process::Command;

use classify::naive::Naive;
use classify::{
    Classifier, Classify, Condition, Field, Kind, Match, RuleRef, RuleSet, Schema, Tables,
};
use lookup::Patch;
use proptest::prelude::*;

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

/// A classifier, its readers' tables, and the twin.
pub struct Bed<C> {
    pub schema: Schema,
    pub builder: C,
    pub tables: Tables,
    pub twin: Naive,
    pub ids: Vec<u32>,
    next: u32,
}

impl<C: Classifier> Bed<C> {
    pub fn new(set: &RuleSet) -> Self {
        let builder = C::build(set).unwrap();
        let tables = builder.tables().unwrap();
        let ids = set.iter().map(|rule| rule.id).collect();
        let (schema, twin) = ((**set.schema()).clone(), Naive::new(set).unwrap());
        Self { schema, builder, tables, twin, ids, next: set.len() as u32 + 5 }
    }

    fn apply(&mut self, patches: &[Patch]) {
        use lookup::versions::Patchable;
        patches.iter().for_each(|patch| self.tables.apply(patch));
    }

    pub fn insert(&mut self, random: &mut Random) {
        let words = words(&self.schema, random);
        let priority = random.below(40) as u32;
        let rule = RuleRef { words: &words, priority, id: self.next };
        let mut patches = Vec::new();
        self.builder.insert(rule, &mut patches).unwrap();
        self.apply(&patches);
        self.twin.insert(rule).unwrap();
        self.ids.push(self.next);
        self.next += 1;
        // A second rule with the id is refused, and nothing changes.
        let mut patches = Vec::new();
        assert!(self.builder.insert(rule, &mut patches).is_err());
        self.apply(&patches);
    }

    pub fn remove(&mut self, random: &mut Random) {
        if self.ids.is_empty() {
            assert!(!self.builder.remove(0, &mut Vec::new()));
            return;
        }
        let at = random.below(self.ids.len() as u128) as usize;
        let id = self.ids.swap_remove(at);
        let mut patches = Vec::new();
        assert!(self.builder.remove(id, &mut patches));
        assert!(!self.builder.remove(id, &mut patches));
        self.apply(&patches);
        assert!(self.twin.remove(id));
    }

    /// Tables, the builder's image and the twin say the same.
    pub fn check(&self, headers: &[u32]) {
        assert_eq!(self.builder.len(), self.ids.len());
        assert_eq!(self.tables.blob().words(), self.builder.blob().words());
        let (found, expected) = (classify(&self.tables, headers), classify(&self.twin, headers));
        for (at, header) in headers.chunks(self.schema.words()).enumerate() {
            assert_eq!(found[at], expected[at], "header {header:x?}");
        }
        let memory = self.builder.memory();
        assert_eq!(memory.total(), self.builder.blob().len_bytes(), "{memory:?}");
    }
}

/// Sets of any schema and size, changes, and lookups between them.
pub fn against_the_twin<C: Classifier>(seed: u64, schema: usize, rules: usize, changes: usize) {
    against_the_twin_of::<C>(seed, &schemas()[schema], rules, changes);
}

/// The same of a given schema.
pub fn against_the_twin_of<C: Classifier>(
    seed: u64,
    schema: &Schema,
    rules: usize,
    changes: usize,
) {
    let random = &mut Random(seed);
    let set = set(schema, rules, random);
    let mut bed = Bed::<C>::new(&set);
    bed.check(&headers(&set, 100, random));
    for change in 0..changes {
        match random.one_in(2) {
            true => bed.insert(random),
            false => bed.remove(random),
        }
        if change % 8 == 0 {
            bed.check(&headers(&set, 20, random));
        }
    }
    bed.check(&headers(&set, 100, random));
}

/// Arguments of [`against_the_twin`].
pub fn cases() -> impl Strategy<Value = (u64, usize, usize, usize)> {
    let rules = prop_oneof![Just(0_usize), Just(1), 2..20_usize, 20..150_usize];
    (any::<u64>(), 0..5_usize, rules, 0..120_usize)
}

/// Sets that one would forget.
pub fn odd_sets<C: Classifier>() {
    odd_sets_of::<C>(&schemas());
}

/// The same for structures that take some schemas alone.
pub fn odd_sets_of<C: Classifier>(schemas: &[Schema]) {
    for schema in schemas {
        let random = &mut Random(7);
        let any: Vec<Condition> = schema.fields().iter().map(Condition::any).collect();
        let any = schema.conditions(&any).unwrap();
        let same = words(schema, random);
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
            let mut bed = Bed::<C>::new(&set);
            bed.check(&headers(&set, 50, random));
            // Down to nothing, and up again.
            while !bed.ids.is_empty() {
                bed.remove(random);
                bed.check(&headers(&set, 5, random));
            }
            (0..20).for_each(|_| bed.insert(random));
            bed.check(&headers(&set, 50, random));
        }
        let mut twice = RuleSet::new(schema.clone());
        for priority in [1, 2] {
            twice.push(RuleRef { words: &same, priority, id: 4 }).unwrap();
        }
        assert_eq!(C::build(&twice).unwrap_err(), classify::RuleError::DuplicateId(4));
    }
}

/// A thread classifies while rules come and go: what it finds is what some version said.
pub fn lookups_beside_updates<C: Classifier>() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let random = &mut Random(11);
    let schema = Schema::five_tuple();
    let set = set(&schema, 120, random);
    let headers = headers(&set, 64, random);
    let mut builder = C::build(&set).unwrap();
    let mut twin = Naive::new(&set).unwrap();
    let (mut writer, reader) = lookup::versions::versions(builder.tables().unwrap());
    // What version v must say.
    let mut expected = vec![classify(&twin, &headers)];
    let mut batches = Vec::new();
    let mut ids: Vec<u32> = (0..120).collect();
    for id in 1000..1150 {
        let mut patches = Vec::new();
        let words = words(&schema, random);
        let rule = RuleRef { words: &words, priority: random.below(120) as u32, id };
        builder.insert(rule, &mut patches).unwrap();
        twin.insert(rule).unwrap();
        ids.push(id);
        let gone = ids.swap_remove(random.below(ids.len() as u128) as usize);
        assert!(builder.remove(gone, &mut patches) && twin.remove(gone));
        batches.push(patches);
        expected.push(classify(&twin, &headers));
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let seen = scope.spawn(|| {
            let mut seen = std::collections::BTreeSet::new();
            loop {
                let last = done.load(Ordering::Acquire);
                let pin = reader.pin();
                let found = classify(&*pin, &headers);
                assert_eq!(found, expected[pin.version() as usize], "version {}", pin.version());
                seen.insert(pin.version());
                if last {
                    return seen.len();
                }
            }
        });
        for patches in batches {
            writer.publish(patches);
            std::thread::yield_now();
        }
        done.store(true, Ordering::Release);
        assert!(seen.join().unwrap() >= 1);
    });
}

/// The bytes of a file below `../shared/data/classbench`, unpacked; `None` with a line that says so.
pub fn shared(name: &str) -> Option<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/classbench");
    let path = folder.join(name);
    let packed = folder.join(format!("{name}.xz"));
    if path.exists() {
        return std::fs::read(&path).ok();
    }
    match Command::new("xz").arg("-dc").arg(&packed).output() {
        Ok(output) if output.status.success() => Some(output.stdout),
        _ => {
            println!("skipped: no {} or no xz", packed.display());
            None
        }
    }
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

/// First matching rules of the shipped traces: as an independent program found them.
pub fn traces_with_answers<C: Classifier>() {
    for name in TRACES {
        let Some(set) = rules(name) else { return };
        let trace = shared(&format!("{name}_trace")).unwrap();
        let trace = classify::classbench::parse_trace(&trace).unwrap();
        let expected = String::from_utf8(shared(&format!("{name}_expected")).unwrap()).unwrap();
        let expected: Vec<u32> =
            expected.lines().map(|line| line.trim().parse().unwrap()).collect();
        assert_eq!(expected.len(), trace.len());
        let tables = C::build(&set).unwrap().tables().unwrap();
        let found = classify(&tables, &trace.headers);
        for (at, expected) in expected.iter().enumerate() {
            assert_eq!(found[at].id(), Some(*expected), "{name}, line {}", at + 1);
        }
    }
}
