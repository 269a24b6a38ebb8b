//! What every classifier must do, whichever it is: each case runs for each [`Structure`].

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use classify::reference::Reference;
use classify::tuple::Form;
use classify::{
    Classifier, Condition, Explained, Match, RuleError, RuleRef, RuleSet, Schema, Tables,
    classbench,
};
use lookup::versions::{Patchable, versions};
use lookup::{Blob, Patch};
use proptest::prelude::*;

use crate::common::{
    Random, SETS, TRACES, classify, headers, property, rules, schemas, set, shared, words,
};

/// Takes a way to classify a batch, and its name.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(&str, &dyn Fn(&[u32], &mut [Match]));

/// What a classifier offers to the suite.
pub(crate) trait Structure: Classifier + Sized {
    /// Runs of a property; rules of a set and changes of a run, at most.
    const CASES: u32 = 60;
    const RULES: usize = 200;
    const CHANGES: usize = 120;
    /// Many changes: rules at first, and changes in each of some rounds.
    const MANY: (usize, usize) = (100, 250);
    /// Headers for each shared set, 1,500 at most; and the rules that the sets have at most.
    const HEADERS: usize = 200;
    const SHARED: usize = usize::MAX;

    /// Those of its rules, the 5-tuple of IPv4 first.
    fn schemas() -> Vec<Schema> {
        let mut all = schemas();
        all.push((*classify::filter::schema_v4()).clone());
        all
    }
    /// The structure, built in each way that there is, or in one drawn by chance.
    fn ways(set: &RuleSet, _random: &mut Random) -> Vec<Result<Self, RuleError>> {
        vec![Self::build(set)]
    }
    /// Shows every form of the lookup beside that of [`Tables`].
    fn forms(_image: &Blob, _visit: Visit<'_>) {}
    /// What holds in this structure alone, after a build.
    fn check(&self, _headers: &[u32], _expected: &[Match]) {}
    /// As that, of the steps that explain the answer to one header.
    fn check_explained(&self, _header: &[u32], _explained: &Explained) {}
}

/// The forms of structures that have all four.
pub(crate) fn four_forms(visit: Visit<'_>, classify_by: impl Fn(Form, &[u32], &mut [Match])) {
    for form in [Form::Best, Form::Direct, Form::Switched, Form::Vectors] {
        visit(&format!("{form:?}"), &|headers, out| classify_by(form, headers, out));
    }
}

/// The cases, and the structures that run through them.
macro_rules! suite {
    ($($name:ident: $structure:ty,)*) => {
        $(mod $name {
            crate::suite::cases! { $structure:
                all_forms_agree
                changes_agree
                one_set_becomes_another
                odd_sets
                many_changes
                lookups_beside_updates
                traces_with_answers
                shared_sets
                other_schemas_are_refused
            }
        })*
    };
}
pub(crate) use suite;

macro_rules! cases {
    ($structure:ty: $($case:ident)*) => {
        $(#[test]
        fn $case() {
            crate::suite::$case::<$structure>();
        })*
    };
}
pub(crate) use cases;

fn apply(tables: &mut Tables, patches: &[Patch]) {
    patches.iter().for_each(|patch| tables.apply(patch));
}

/// What a scan over the rules finds.
pub(crate) fn reference(set: &RuleSet, headers: &[u32]) -> Vec<Match> {
    classify(&Reference::new(set).unwrap(), headers)
}

/// Every form finds what is expected.
pub(crate) fn check_forms<C: Structure>(tables: &Tables, headers: &[u32], expected: &[Match]) {
    let words = headers.len() / expected.len().max(1);
    let mut compare = |name: &str, form: &dyn Fn(&[u32], &mut [Match])| {
        let mut found = vec![Match::new(0, 77); expected.len()];
        form(headers, &mut found);
        let differs = (0..found.len()).find(|at| found[*at] != expected[*at]);
        let differs = differs.map(|at| (&headers[at * words..][..words], found[at], expected[at]));
        assert_eq!(differs, None, "{name}");
    };
    compare("tables", &|headers, out| classify::Classify::classify(tables, headers, out));
    C::forms(tables.blob(), &mut compare);
}

/// A built structure: its forms, its memory, and its explanations.
fn check_built<C: Structure>(builder: &C, schema: &Schema, headers: &[u32], expected: &[Match]) {
    let tables = builder.tables().unwrap();
    check_forms::<C>(&tables, headers, expected);
    let memory = builder.memory();
    assert_eq!(memory.total(), builder.blob().len_bytes(), "{memory:?}");
    for (header, expected) in headers.chunks(schema.words()).zip(expected).take(10) {
        let explained = tables.explain(schema, header).unwrap();
        assert_eq!(explained.found, *expected);
        builder.check_explained(header, &explained);
    }
    builder.check(headers, expected);
}

/// A classifier, its readers' tables, and the reference.
pub(crate) struct Bed<C> {
    schema: Schema,
    pub(crate) builder: C,
    tables: Tables,
    reference: Reference,
    pub(crate) ids: Vec<u32>,
    next: u32,
}

impl<C: Structure> Bed<C> {
    pub(crate) fn new(set: &RuleSet) -> Self {
        let builder = C::build(set).unwrap();
        let tables = builder.tables().unwrap();
        let ids = set.iter().map(|rule| rule.id).collect();
        let (schema, reference) = ((**set.schema()).clone(), Reference::new(set).unwrap());
        Self { schema, builder, tables, reference, ids, next: set.len() as u32 + 5 }
    }

    /// Adds a rule. If it is refused, nothing changes.
    pub(crate) fn add(&mut self, rule: RuleRef<'_>) -> Result<(), RuleError> {
        let mut patches = Vec::new();
        let result = self.builder.insert(rule, &mut patches);
        apply(&mut self.tables, &patches);
        if result.is_ok() {
            self.reference.insert(rule).unwrap();
            self.ids.push(rule.id);
        }
        result
    }

    /// A random rule; a second one with its id is refused.
    fn insert(&mut self, random: &mut Random) {
        let words = words(&self.schema, random);
        let rule = RuleRef { words: &words, priority: random.below(40) as u32, id: self.next };
        self.add(rule).unwrap();
        self.next += 1;
        assert!(self.add(rule).is_err());
    }

    pub(crate) fn take(&mut self, id: u32) {
        let (mut patches, is_there) = (Vec::new(), self.reference.remove(id));
        assert_eq!(self.builder.remove(id, &mut patches), is_there);
        assert!(!self.builder.remove(id, &mut patches));
        apply(&mut self.tables, &patches);
        self.ids.retain(|other| *other != id);
    }

    pub(crate) fn remove(&mut self, random: &mut Random) {
        match self.ids.len() as u128 {
            0 => self.take(0),
            rules => self.take(self.ids[random.below(rules) as usize]),
        }
    }

    /// Tables, the builder's image and the reference say the same.
    pub(crate) fn check(&self, headers: &[u32]) {
        assert_eq!(self.builder.len(), self.ids.len());
        assert!(self.tables.blob().words() == self.builder.blob().words(), "patched image");
        check_forms::<C>(&self.tables, headers, &classify(&self.reference, headers));
        let memory = self.builder.memory();
        assert_eq!(memory.total(), self.builder.blob().len_bytes(), "{memory:?}");
    }
}

/// Sets of any schema, and, of the 5-tuple, sets whose rules nearly all overlap.
pub(crate) fn all_forms_agree<C: Structure>() {
    let schemas = C::schemas();
    let inputs = (any::<u64>(), 0..schemas.len(), 0..C::RULES);
    property(C::CASES, inputs, |(seed, schema, rules)| {
        let random = &mut Random(seed);
        let mut sets = vec![set(&schemas[schema], rules, random)];
        if schema == 0 {
            sets.push(overlapping(rules * 3 / 4, random));
        }
        for set in sets {
            let headers = headers(&set, 200, random);
            let expected = reference(&set, &headers);
            for way in C::ways(&set, random) {
                check_built(&way.unwrap(), &schemas[schema], &headers, &expected);
            }
        }
    });
}

/// Sets of any schema and size, changes, and lookups between them.
pub(crate) fn changes_agree<C: Structure>() {
    let schemas = C::schemas();
    let rules = prop_oneof![Just(0_usize), Just(1), 2..20_usize, 20..150_usize];
    let inputs = (any::<u64>(), 0..schemas.len(), rules, 0..C::CHANGES);
    property(C::CASES, inputs, |(seed, schema, rules, changes)| {
        let random = &mut Random(seed);
        let set = set(&schemas[schema], rules.min(C::RULES), random);
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
    });
}

/// Patches lead from one set to another, one rule at a time.
pub(crate) fn one_set_becomes_another<C: Structure>() {
    let (schemas, most) = (C::schemas(), 60.min(C::CHANGES));
    let inputs = (any::<u64>(), 0..schemas.len(), 0..most, 0..most);
    property(C::CASES, inputs, |(seed, schema, first, second)| {
        let (random, schema) = (&mut Random(seed), &schemas[schema]);
        let (first, second) = (set(schema, first, random), set(schema, second, random));
        let mut bed = Bed::<C>::new(&first);
        for at in 0..first.len().max(second.len()) {
            bed.take(at as u32);
            if at < second.len() {
                bed.add(second.rule(at)).unwrap();
            }
        }
        bed.check(&headers(&second, 100, random));
    });
}

/// Sets that one would forget.
pub(crate) fn odd_sets<C: Structure>() {
    for schema in C::schemas() {
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
            let some = headers(&set, 50, random);
            let expected = reference(&set, &some);
            for way in C::ways(&set, random) {
                check_built(&way.unwrap(), &schema, &some, &expected);
            }
            let mut bed = Bed::<C>::new(&set);
            // Down to nothing, and up again; a few steps where each builds everything.
            let few = if bed.builder.rebuilds() { 3 } else { usize::MAX };
            for _ in 0..bed.ids.len().min(few) {
                bed.remove(random);
                bed.check(&headers(&set, 5, random));
            }
            (0..few.min(20)).for_each(|_| bed.insert(random));
            bed.check(&some);
        }
        let mut twice = RuleSet::new(schema.clone());
        for priority in [1, 2] {
            twice.push(RuleRef { words: &same, priority, id: 4 }).unwrap();
        }
        assert_eq!(C::build(&twice).unwrap_err(), RuleError::DuplicateId(4));
    }
}

/// Enough changes that everything is put in order, or made anew, several times.
pub(crate) fn many_changes<C: Structure>() {
    let (rules, changes) = C::MANY;
    let random = &mut Random(3);
    let set = set(&C::schemas()[0], rules, random);
    let mut bed = Bed::<C>::new(&set);
    for round in 0..6 {
        for _ in 0..changes {
            match random.below(10) < if round % 2 == 0 { 8 } else { 1 } {
                true => bed.insert(random),
                false => bed.remove(random),
            }
        }
        bed.check(&headers(&set, 100, random));
    }
}

/// A thread classifies while rules come and go: what it finds is what its version says.
pub(crate) fn lookups_beside_updates<C: Structure>() {
    let random = &mut Random(11);
    let schema = &C::schemas()[0];
    let set = set(schema, 120.min(C::RULES), random);
    let headers = headers(&set, 64, random);
    let mut builder = C::build(&set).unwrap();
    let mut reference = Reference::new(&set).unwrap();
    let (mut writer, reader) = versions(builder.tables().unwrap());
    // What version v must say.
    let mut expected = vec![classify(&reference, &headers)];
    let mut batches = Vec::new();
    let mut ids: Vec<u32> = set.iter().map(|rule| rule.id).collect();
    for id in 1000..1000 + 150.min(C::CHANGES as u32) {
        let mut patches = Vec::new();
        let words = words(schema, random);
        let rule = RuleRef { words: &words, priority: random.below(120) as u32, id };
        builder.insert(rule, &mut patches).unwrap();
        reference.insert(rule).unwrap();
        ids.push(id);
        let gone = ids.swap_remove(random.below(ids.len() as u128) as usize);
        assert!(builder.remove(gone, &mut patches) && reference.remove(gone));
        batches.push(patches);
        expected.push(classify(&reference, &headers));
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let seen = scope.spawn(|| {
            let mut seen = BTreeSet::new();
            loop {
                let last = done.load(Ordering::Acquire);
                let pin = reader.pin();
                check_forms::<C>(&pin, &headers, &expected[pin.version() as usize]);
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

/// First matching rules of the shipped traces: as an independent program found them.
pub(crate) fn traces_with_answers<C: Structure>() {
    for name in TRACES {
        let Some(set) = rules(name) else { return };
        let trace = shared(&format!("{name}_trace")).unwrap();
        let trace = classbench::parse_trace(&trace).unwrap();
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

/// A shared set, headers, and what is expected for them.
type Answers = (&'static str, RuleSet, Vec<u32>, Vec<Match>);

/// The shared sets with headers and what the reference finds, made once for all structures.
pub(crate) fn shared_answers() -> &'static [Answers] {
    static ANSWERS: OnceLock<Vec<Answers>> = OnceLock::new();
    ANSWERS.get_or_init(|| {
        let answers = SETS.iter().map_while(|(name, count)| {
            let set = rules(name)?;
            assert_eq!(set.len(), *count);
            let headers = headers(&set, 1500, &mut Random(5));
            let expected = reference(&set, &headers);
            assert!(expected.iter().filter(|found| found.is_some()).count() >= 750);
            Some((*name, set, headers, expected))
        });
        answers.collect()
    })
}

/// Only sets of 10,000 rules may be too large for a structure; none gives a wrong answer.
pub(crate) fn shared_sets<C: Structure>() {
    for (name, set, headers, expected) in shared_answers() {
        if set.len() > C::SHARED {
            continue;
        }
        let headers = &headers[..C::HEADERS * set.schema().words()];
        let expected = &expected[..C::HEADERS];
        for way in C::ways(set, &mut Random(1)) {
            match way {
                Ok(way) => check_built(&way, set.schema(), headers, expected),
                Err(error) => {
                    assert!(matches!(error, RuleError::TooLarge { .. }), "{name}: {error}");
                    assert!(name.ends_with("_10k"), "{name}: {error}");
                }
            }
        }
    }
}

pub(crate) fn other_schemas_are_refused<C: Structure>() {
    for schema in schemas() {
        let result = C::build(&RuleSet::new(schema.clone()));
        match C::schemas().contains(&schema) {
            true => drop(result.unwrap()),
            false => {
                let refused = result.unwrap_err();
                assert!(matches!(refused, RuleError::Schema { .. }), "{refused:?}");
            }
        }
    }
}

/// Rules of few values, nearly all of which overlap.
pub(crate) fn overlapping(count: usize, random: &mut Random) -> RuleSet {
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
