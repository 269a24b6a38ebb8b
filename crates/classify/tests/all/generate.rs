//! Generated sets and traces are what they were asked to be.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use classify::classbench::write_rules;
use classify::generate::parameters::Parameters;
use classify::generate::synthetic::{self, Distribution};
use classify::generate::trace::{self, Copies, Point};
use classify::generate::{GenerateError, structured};
use classify::reference::Reference;
use classify::{RuleSet, Schema};

fn synthetic(schema: Schema) -> synthetic::Options {
    synthetic::Options {
        schema: Arc::new(schema),
        rules: 1000,
        classes: 128,
        full_classes: None,
        overlap: 1,
        distribution: Distribution::Full,
        seed: 7,
    }
}

/// Rules by mask; a range that is not any counts as exact.
fn classes(set: &RuleSet) -> BTreeMap<Vec<u128>, usize> {
    let schema = set.schema();
    let mut classes = BTreeMap::new();
    for rule in set.iter() {
        let mask = (0..schema.fields().len()).map(|at| match schema.condition(rule.words, at) {
            classify::Condition::Prefix { len, .. } => len.into(),
            classify::Condition::Range { low, high } => u128::from(low == high),
            classify::Condition::Mask { mask, .. } => mask,
        });
        *classes.entry(mask.collect()).or_default() += 1;
    }
    classes
}

fn traced(headers: usize, first: Option<usize>) -> trace::Options {
    trace::Options { headers, copies: Copies::Uniform, point: Point::Inside, first, seed: 1 }
}

#[test]
fn classes_are_as_many_and_as_full_as_asked_for() {
    for schema in [Schema::five_tuple(), Schema::twelve_fields()] {
        let options = synthetic(schema);
        let set = synthetic::rules(&options).unwrap().set;
        let mut sizes: Vec<usize> = classes(&set).into_values().collect();
        sizes.sort_unstable();
        assert_eq!((set.len(), sizes.len()), (1000, 128));
        assert_eq!((sizes[0], sizes[127]), (7, 8));

        let skewed = synthetic::Options { full_classes: Some(4), ..options.clone() };
        let mut sizes: Vec<usize> =
            classes(&synthetic::rules(&skewed).unwrap().set).into_values().collect();
        sizes.sort_unstable();
        // 1,000 less 124 classes of one rule, in four.
        assert_eq!(sizes[..124], [1; 124]);
        assert_eq!(sizes[124..], [219; 4]);

        let zipf = synthetic::Options { distribution: Distribution::Zipf, ..options.clone() };
        let sizes = classes(&synthetic::rules(&zipf).unwrap().set);
        assert_eq!((sizes.len(), sizes.values().sum::<usize>()), (128, 1000));
        assert!(sizes.values().max().unwrap() > &100);
    }
}

#[test]
fn headers_of_the_first_rules_match_as_many_classes_as_asked_for() {
    for (schema, overlap) in [(Schema::five_tuple(), 4), (Schema::twelve_fields(), 128)] {
        let options = synthetic::Options { overlap, ..synthetic(schema) };
        let made = synthetic::rules(&options).unwrap();
        let (set, heads) = (&made.set, made.heads);
        assert_eq!(classes(set).len(), 128);
        assert_eq!(heads, if overlap == 4 { 250 } else { 8 });
        let reference = Reference::new(set).unwrap();
        let trace = trace::trace(set, &traced(200, Some(heads)));
        for header in trace.headers.chunks(set.schema().words()) {
            // Families of the classes that are not full are shorter; others may match by chance.
            let matching = reference.explain(header).count();
            let least = if overlap == 4 { 3 } else { 104 };
            assert!(matching >= least && matching <= overlap + 8, "{matching}");
        }
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let five = synthetic(Schema::five_tuple());
    let refused = |options: synthetic::Options| {
        assert!(
            matches!(synthetic::rules(&options), Err(GenerateError::Options(_))),
            "{options:?}"
        );
    };
    refused(synthetic::Options { classes: 0, ..five.clone() });
    refused(synthetic::Options { classes: 1001, ..five.clone() });
    refused(synthetic::Options { full_classes: Some(129), ..five.clone() });
    refused(synthetic::Options { overlap: 0, ..five.clone() });
    // Five fields have no chain of 128 masks.
    refused(synthetic::Options { overlap: 128, ..five.clone() });
    let zipf = Distribution::Zipf;
    refused(synthetic::Options { distribution: zipf, full_classes: Some(3), ..five });
}

/// The parameter files that may be read here, and not copied.
fn seeds() -> Vec<PathBuf> {
    let Some(folder) = testdata::path("restricted/classbench-seeds") else { return Vec::new() };
    let files = std::fs::read_dir(&folder).unwrap();
    let mut files: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    files.sort();
    files
}

const STRUCTURED: structured::Options =
    structured::Options { rules: 2000, smoothing: 0, address_scope: 0.0, port_scope: 0.0, seed: 3 };

/// Bits of prefixes, summed over the rules.
fn prefix_bits(set: &RuleSet) -> u32 {
    set.iter().map(|rule| rule.words[4].count_ones() + rule.words[5].count_ones()).sum()
}

#[test]
fn sets_of_every_parameter_file() {
    for path in seeds() {
        let name = path.display();
        let parameters = Parameters::parse(&std::fs::read(&path).unwrap()).unwrap();
        let file = structured::rules(&parameters, &STRUCTURED).unwrap();
        let set = &file.set;
        assert_eq!(set.len(), 2000, "{name}");
        let different: HashSet<&[u32]> = set.iter().map(|rule| rule.words).collect();
        assert_eq!(different.len(), 2000, "{name}: some rules are the same");
        // No rule hides one that it covers: the better one of two is never the wider one.
        for later in 1..300 {
            for earlier in 0..later {
                let (earlier, later) = (set.rule(earlier).words, set.rule(later).words);
                assert!(!set.schema().covers(earlier, later), "{name}");
            }
        }
        let (mut once, mut again) = (Vec::new(), Vec::new());
        write_rules(&mut once, set, &file.flags).unwrap();
        let file = structured::rules(&parameters, &STRUCTURED).unwrap();
        write_rules(&mut again, &file.set, &file.flags).unwrap();
        assert!(once == again, "{name}: the same seed, other bytes");
        let other = structured::Options { seed: 4, ..STRUCTURED };
        let other = structured::rules(&parameters, &other).unwrap();
        assert!(!other.set.iter().eq(file.set.iter()), "{name}: another seed, the same rules");
        let with = |address_scope| {
            let options = structured::Options { address_scope, smoothing: 2, ..STRUCTURED };
            prefix_bits(&structured::rules(&parameters, &options).unwrap().set)
        };
        let bits = [with(0.8), with(0.0), with(-0.8)];
        assert!(bits.is_sorted() && bits[0] < bits[2], "{name}: scopes give {bits:?}");
    }
}

#[test]
fn protocols_and_lengths_come_as_often_as_the_file_says() {
    let classes = "0.5 0 0 0 0 0 0 0 0 0 0 0 0 0.5 0 0 0 0 0 0 0 0 0 0 0";
    let text = format!(
        "-prots\n6 0.75 {classes}\n17 0.25 {classes}\n#\n-dpem\n0.5 80:80\n0.5 443:443\n#\n\
         -wc_wc\n48,0.5 24,1.0\n64,0.5 32,1.0\n#\n-wc_em\n56,1.0 24,0.5 32,0.5\n#\n\
         -pcorr\n1 1.0\n2 1.0\n3 0.0\n"
    );
    let parameters = Parameters::parse(text.as_bytes()).unwrap();
    let file = structured::rules(&parameters, &STRUCTURED).unwrap();
    let rules: Vec<&[u32]> = file.set.iter().map(|rule| rule.words).collect();
    let part = |test: &dyn Fn(&[u32]) -> bool| {
        rules.iter().filter(|rule| test(rule)).count() as f64 / rules.len() as f64
    };
    let near = |found: f64, wanted: f64| (found - wanted).abs() < 0.05;
    assert!(near(part(&|rule| rule[3] >> 24 == 6), 0.75));
    assert!(near(part(&|rule| rule[6] & 0xffff == 80), 0.25));
    let lengths = |rule: &[u32]| (rule[4].count_ones(), rule[5].count_ones());
    assert!(near(part(&|rule| lengths(rule) == (24, 24)), 0.25));
    assert!(near(part(&|rule| lengths(rule) == (32, 24)), 0.25));
    // Both addresses are alike in two bits, and never in the third.
    assert!(rules.iter().all(|rule| (rule[0] ^ rule[1]) >> 29 == 1));
    let any = |text: &str, options| {
        structured::rules(&Parameters::parse(text.as_bytes()).unwrap(), &options)
    };
    let one = "-prots\n6 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n#\n-wc_wc\n0,1 0,1\n";
    assert_eq!(any(one, STRUCTURED).unwrap_err(), GenerateError::TooFew { found: 1, wanted: 2000 });
    let few = structured::Options { rules: 1, ..STRUCTURED };
    assert_eq!(any(one, few).unwrap().set.len(), 1);
    let scope = structured::Options { port_scope: 1.5, ..few };
    assert!(matches!(any(one, scope), Err(GenerateError::Options(_))));
}

#[test]
fn headers_match_what_they_were_drawn_from() {
    for schema in [Schema::five_tuple(), Schema::five_tuple_v6(), Schema::twelve_fields()] {
        let set = synthetic::rules(&synthetic(schema)).unwrap().set;
        let schema = set.schema();
        for point in [Point::Corner, Point::Inside] {
            for copies in [Copies::Uniform, Copies::Pareto { scale: 1.0 }] {
                let options = trace::Options { point, copies, ..traced(3000, None) };
                let trace = trace::trace(&set, &options);
                assert_eq!(trace.len(), 3000);
                assert_eq!(trace.headers.len(), 3000 * schema.words());
                let headers = trace.headers.chunks(schema.words());
                for (header, filter) in headers.clone().zip(&trace.filters) {
                    assert!(schema.matches(set.rule(*filter as usize).words, header));
                }
                assert_eq!(trace::trace(&set, &options), trace);
                let other = trace::Options { seed: 2, ..options };
                assert_ne!(trace::trace(&set, &other), trace);
                let same = trace.headers.chunks(schema.words()).skip(1).zip(headers);
                let repeats = same.filter(|(a, b)| a == b).count();
                // Bursts of a mean that grows with the logarithm of the trace.
                match copies {
                    Copies::Uniform => assert!(repeats < 100, "{repeats}"),
                    Copies::Pareto { .. } => assert!(repeats > 1500, "{repeats}"),
                }
            }
        }
        let first = trace::trace(&set, &traced(500, Some(10)));
        assert!(first.filters.iter().all(|filter| *filter < 10));
    }
    let empty = RuleSet::new(Schema::five_tuple());
    assert!(trace::trace(&empty, &traced(10, None)).is_empty());
}
