//! The classifiers against the plain reference: random sets of all widths, changes, real sets, damaged images.

use chunk::ColumnId;
use classify::bloom::BloomBuilder;
use classify::cuts::{Copies, CutsBuilder};
use classify::linear::LinearBuilder;
use classify::reference::Reference;
use classify::rfc::RfcBuilder;
use classify::tic::TicBuilder;
use classify::tuple::{FilterPlan, HashKind, Options, TupleBuilder};
use classify::{Classifier as _, Condition, Field, Kind, Match, RuleRef, RuleSet, Schema};
use kernels::classifiers::{Classifier, FOUND, Structure};
use kernels::image::ImageLayout;
use kernels::job::JobBytes;
use kernels::{Launch, Spec};

use crate::bed::{Bed, GROUP_ITEMS, Memories, over_rows};
use crate::classify_sets::{self as sets, Random};

/// How a launch is made: work items of a group, and how many times the groups that the rows need.
#[derive(Clone, Copy, Debug)]
struct Form {
    items: u32,
    times: u32,
}

/// What the kernel of a structure finds for headers, in an image of one region.
fn run(
    bed: &mut Bed,
    classifier: &Classifier,
    form: Form,
    image: &[u32],
    headers: &[u32],
) -> Vec<Match> {
    let rows = headers.len() / classifier.words;
    // Rows before and behind belong to others.
    let mut job = JobBytes::new(classifier.columns, rows + 5);
    job.set_range(3, rows as u32);
    for row in 0..rows + 5 {
        job.put(FOUND, row, 0xdead_beef_u64);
    }
    for (number, column) in classifier.heads().enumerate() {
        let mut bytes = vec![0; 16 * rows];
        classifier.fill(number, headers, &mut bytes);
        put(&mut job, column, &bytes);
    }
    let tables = bed.memory_of_words(image);
    let arena = bed.memory(job.bytes());
    let spec = Spec::of_file(classifier.file);
    let launch = over_rows(classifier.kernel, rows, form.items);
    let launch = Launch { groups: launch.groups * form.times, ..launch };
    let memories = Memories { arena, tables, ..bed.memories() };
    bed.run(&spec.with_group_items(form.items), memories, &[launch]);
    bed.read(arena, job.bytes_mut());
    bed.free(arena);
    bed.free(tables);
    for row in [0, 1, 2, rows + 3, rows + 4] {
        assert_eq!(job.get::<u64>(FOUND, row), 0xdead_beef, "row {row} is not of this launch");
    }
    let found = (0..rows).map(|row| job.get::<u64>(FOUND, row + 3));
    found.map(|found| Match::new((found >> 32) as u32, found as u32)).collect()
}

fn put(job: &mut JobBytes, column: ColumnId, bytes: &[u8]) {
    let range = job.column_range(column, 3 + bytes.len() / 16);
    job.bytes_mut()[range.start + 48..range.end].copy_from_slice(bytes);
}

/// One region, with these words.
fn image(words: &[u32]) -> Vec<u32> {
    ImageLayout::new(&[(words.len(), 0)]).write(1, &[words])
}

/// A structure, its image, and what it must find.
fn check(
    bed: &mut Bed,
    (structure, words): (Structure, &[u32]),
    form: Form,
    headers: &[u32],
    width: usize,
    expected: &[Match],
) {
    let classifier = Classifier::of(structure, width).expect("a kernel");
    let found = run(bed, &classifier, form, &image(words), headers);
    for (at, header) in headers.chunks(width).enumerate() {
        assert_eq!(
            found[at], expected[at],
            "{} {form:?}, row {at}: {header:x?}",
            classifier.kernel
        );
    }
}

/// The schemas of the references' tests, and those that fill the widest headers.
fn schemas() -> Vec<Schema> {
    let mut schemas = sets::schemas();
    let field = |name: &'static str, bits, kind| Field::new(name, bits, kind);
    let mut sixteen: Vec<Field> = (0..3).map(|_| field("a", 128, Kind::Mask)).collect();
    sixteen.extend([field("b", 16, Kind::Range), field("c", 30, Kind::Range)]);
    schemas.push(Schema::new(sixteen).unwrap());
    let wide: Vec<Field> = (0..8).map(|_| field("w", 128, Kind::Prefix)).collect();
    schemas.push(Schema::new(wide).unwrap());
    let wide = (0..32).map(|at| field("w", 32, if at % 2 == 0 { Kind::Range } else { Kind::Mask }));
    schemas.push(Schema::new(wide.collect()).unwrap());
    schemas
}

/// Forms of launches, in turn.
fn forms() -> impl Iterator<Item = Form> {
    let times = [1, 2, 4, 8, 9].into_iter().cycle();
    times.zip(GROUP_ITEMS.into_iter().cycle()).map(|(times, items)| Form { items, times })
}

/// Rules of a set that a tuple space takes: ranges of 32 bits make too many prefixes together.
fn narrow(set: &RuleSet) -> RuleSet {
    let mut narrow = RuleSet::new(set.schema().clone());
    for rule in set.iter() {
        let mut one = RuleSet::new(set.schema().clone());
        one.push(rule).unwrap();
        if TupleBuilder::build(&one).is_ok_and(|built| built.stats().entries <= 200) {
            narrow.push(rule).unwrap();
        }
    }
    narrow
}

#[test]
fn random_sets() {
    let Some(mut bed) = Bed::open() else { return };
    let random = &mut Random(31);
    let mut forms = forms();
    for schema in schemas() {
        let width = schema.words();
        for rules in [0, 1, 2, 30, 500] {
            let set = sets::set(&schema, rules, random);
            let rows = [0, 1, 64, 257, 1000][random.below(5) as usize];
            let headers = sets::headers(&set, rows, random);
            let expected = sets::classify(&Reference::new(&set).unwrap(), &headers);
            let linear = LinearBuilder::build(&set).unwrap();
            let mut both = |image: &[u32], structure, expected: &[Match]| {
                for _ in 0..2 {
                    let form = forms.next().unwrap();
                    check(&mut bed, (structure, image), form, &headers, width, expected);
                }
            };
            both(linear.blob().words(), Structure::Linear, &expected);
            let set = narrow(&set);
            let expected = sets::classify(&Reference::new(&set).unwrap(), &headers);
            for (hash, functions) in
                [(HashKind::Universal, 0), (HashKind::Murmur3, 0), (HashKind::Universal, 2)]
            {
                // Filters that say yes too often do no harm.
                let filter = (functions > 0).then_some(FilterPlan { functions, rate: 0.3 });
                let options = Options { hash, filter, seed: Some(random.next()) };
                let tuple = TupleBuilder::with(&set, options).unwrap();
                both(tuple.blob().words(), Structure::Tuple, &expected);
            }
        }
    }
}

/// Fresh blocks, empty places, loose bounds: rules come and go.
#[test]
fn changed_sets() {
    let Some(mut bed) = Bed::open() else { return };
    let random = &mut Random(32);
    let mut forms = forms();
    for (number, schema) in sets::schemas().into_iter().enumerate() {
        let set = narrow(&sets::set(&schema, 300, random));
        let mut reference = Reference::new(&set).unwrap();
        let mut linear = LinearBuilder::build(&set).unwrap();
        let mut tuple = TupleBuilder::build(&set).unwrap();
        let mut bloom = BloomBuilder::build(&set).unwrap();
        let mut ids: Vec<u32> = set.iter().map(|rule| rule.id).collect();
        let more = narrow(&sets::set(&schema, 400, random));
        for (at, rule) in more.iter().enumerate() {
            let (rule, patches) = (RuleRef { id: 1000 + rule.id, ..rule }, &mut Vec::new());
            linear.insert(rule, patches).unwrap();
            tuple.insert(rule, patches).unwrap();
            bloom.insert(rule, patches).unwrap();
            reference.insert(rule).unwrap();
            ids.push(rule.id);
            if at % 3 != number % 3 {
                let id = ids.swap_remove(random.below(ids.len() as u128) as usize);
                assert!(linear.remove(id, patches) && reference.remove(id));
                assert!(tuple.remove(id, patches) && bloom.remove(id, patches));
            }
        }
        let headers = sets::headers(&more, 600, random);
        let expected = sets::classify(&reference, &headers);
        for (structure, image) in [
            (Structure::Linear, linear.blob().words()),
            (Structure::Tuple, tuple.blob().words()),
            (Structure::Tuple, bloom.blob().words()),
        ] {
            let image = (structure, image);
            for form in forms.by_ref().take(3) {
                check(&mut bed, image, form, &headers, schema.words(), &expected);
            }
        }
    }
}

/// Identical rules, rules that match everything, with the worst priority, and a thousand fresh ones: no test refuses an
/// empty place of a set of ranges.
#[test]
fn odd_sets() {
    let Some(mut bed) = Bed::open() else { return };
    let random = &mut Random(33);
    let mut forms = forms();
    for schema in sets::schemas() {
        let any: Vec<Condition> = schema.fields().iter().map(Condition::any).collect();
        let any = schema.conditions(&any).unwrap();
        let same = sets::words(&schema, random);
        for (words, priority) in [(&any, 7), (&same, 7), (&any, u32::MAX), (&same, u32::MAX)] {
            let mut set = RuleSet::new(schema.clone());
            for id in 0..700 {
                set.push(RuleRef { words, priority, id: 2000 - id }).unwrap();
            }
            let set = narrow(&set);
            let mut headers = sets::headers(&set, 40, random);
            headers.extend(vec![u32::MAX; schema.words()]);
            let expected = sets::classify(&Reference::new(&set).unwrap(), &headers);
            let linear = LinearBuilder::build(&set).unwrap();
            let bloom = BloomBuilder::build(&set).unwrap();
            for (structure, image) in [
                (Structure::Linear, linear.blob().words()),
                (Structure::Tuple, bloom.blob().words()),
            ] {
                let form = forms.next().unwrap();
                check(&mut bed, (structure, image), form, &headers, schema.words(), &expected);
            }
        }
    }
}

/// Trees of random sets, whose protocols have masks and whose lists go over several blocks.
#[test]
fn trees() {
    let Some(mut bed) = Bed::open() else { return };
    let random = &mut Random(34);
    let schema = Schema::five_tuple();
    for (round, form) in forms().take(10).enumerate() {
        let set = sets::set(&schema, [0, 1, 20, 200, 400][round % 5], random);
        let headers = sets::headers(&set, 800, random);
        let expected = sets::classify(&Reference::new(&set).unwrap(), &headers);
        let form = Form { times: 1, ..form };
        let rfc = RfcBuilder::build(&set).unwrap();
        let image = (Structure::Rfc, rfc.blob().words());
        check(&mut bed, image, form, &headers, 4, &expected);
        let copies = if round % 2 == 0 { Copies::Few } else { Copies::Many };
        let cuts = CutsBuilder::with(&set, copies).unwrap();
        let image = (Structure::Cuts, cuts.blob().words());
        check(&mut bed, image, form, &headers, 4, &expected);
        let block = if round % 2 == 0 {
            classify::tic::Block::Bytes64
        } else {
            classify::tic::Block::Bytes32
        };
        let options = classify::tic::Options { block, ..classify::tic::Options::default() };
        let tic = TicBuilder::with(&set, options).unwrap();
        let image = (Structure::Tic, tic.blob().words());
        check(&mut bed, image, form, &headers, 4, &expected);
    }
}

/// Cut trees whose rules ask for any bits of the last word, as a packet filter's do.
#[test]
fn wide_cuts() {
    let Some(mut bed) = Bed::open() else { return };
    let random = &mut Random(38);
    let schema = classify::filter::schema_v4();
    for (rules, form) in [0, 1, 60, 500].into_iter().zip(forms()) {
        let set = sets::set(&schema, rules, random);
        let headers = sets::headers(&set, 800, random);
        let expected = sets::classify(&Reference::new(&set).unwrap(), &headers);
        let cuts = CutsBuilder::build(&set).unwrap();
        let image = (Structure::Cuts, cuts.blob().words());
        check(&mut bed, image, Form { times: 1, ..form }, &headers, 4, &expected);
    }
}

/// A schema of masks alone, of so many words.
fn masks(words: usize) -> Schema {
    Schema::new((0..words).map(|_| Field::new("w", 32, Kind::Mask)).collect()).unwrap()
}

/// Cut trees over words of any fields, as the flows of an OpenFlow table are.
#[test]
fn cuts_of_masks() {
    let Some(mut bed) = Bed::open() else { return };
    let random = &mut Random(39);
    for (round, form) in forms().take(9).enumerate() {
        let schema = masks([1, 2, 3, 4, 8, 9, 10, 13, 16][round % 9]);
        let set = sets::set(&schema, [0, 1, 30, 300, 900][round % 5], random);
        let headers = sets::headers(&set, 600, random);
        let expected = sets::classify(&Reference::new(&set).unwrap(), &headers);
        let copies = if round % 2 == 0 { Copies::Few } else { Copies::Fewest };
        let cuts = CutsBuilder::with(&set, copies).unwrap();
        let image = (Structure::Cuts, cuts.blob().words());
        check(&mut bed, image, Form { times: 1, ..form }, &headers, schema.words(), &expected);
    }
}

/// Real sets, by every structure; the larger ones have classes of thousands of rules.
#[test]
fn real_sets() {
    let Some(mut bed) = Bed::open() else { return };
    for (name, times) in
        [("neurocuts/acl1_1k", 1), ("neurocuts/fw1_1k", 4), ("neurocuts/ipc1_10k", 2)]
    {
        let Some(set) = sets::rules(name) else { return };
        let random = &mut Random(35);
        let mut headers = Vec::new();
        for _ in 0..4000 {
            let rule = set.rule(random.below(set.len() as u128) as usize);
            headers.extend(sets::header_in(set.schema(), rule.words, random));
        }
        let linear = LinearBuilder::build(&set).unwrap();
        let expected = sets::classify(&linear.tables().unwrap(), &headers);
        let tuple = TupleBuilder::build(&set).unwrap();
        let bloom = BloomBuilder::build(&set).unwrap();
        let tic = TicBuilder::build(&set).unwrap();
        let cuts = CutsBuilder::build(&set).unwrap();
        for (structure, image) in [
            (Structure::Linear, linear.blob().words()),
            (Structure::Tuple, tuple.blob().words()),
            (Structure::Tuple, bloom.blob().words()),
            (Structure::Tic, tic.blob().words()),
            (Structure::Cuts, cuts.blob().words()),
        ] {
            let form = Form { items: 256, times };
            check(&mut bed, (structure, image), form, &headers, 4, &expected);
        }
    }
}

/// An image of each kind whose numbers lie, and none at all: no match, or one of the image's words, and no access beyond
/// memory (Oclgrind runs this too).
#[test]
pub(crate) fn damaged_images() {
    let Some(mut bed) = Bed::open() else { return };
    let random = &mut Random(36);
    let schema = Schema::five_tuple();
    let set = sets::set(&schema, 20, random);
    let headers = sets::headers(&set, 10, random);
    let flows = CutsBuilder::build(&sets::set(&masks(4), 40, random)).unwrap();
    let images = [
        (Structure::Cuts, flows.blob().words().to_vec()),
        (Structure::Linear, LinearBuilder::build(&set).unwrap().blob().words().to_vec()),
        (Structure::Tuple, BloomBuilder::build(&set).unwrap().blob().words().to_vec()),
        (Structure::Tuple, TupleBuilder::build(&set).unwrap().blob().words().to_vec()),
        (Structure::Cuts, CutsBuilder::build(&set).unwrap().blob().words().to_vec()),
    ];
    let form = Form { items: 32, times: 2 };
    for (structure, good) in images {
        let classifier = Classifier::of(structure, 4).unwrap();
        if let Some(other) = Classifier::of(structure, 10) {
            let mut wide = headers.clone();
            wide.resize(headers.len() / 4 * 10, 7);
            let found = run(&mut bed, &other, form, &image(&good), &wide);
            let takes = matches!(structure, Structure::Linear | Structure::Cuts);
            assert!(takes || found.iter().all(|found| !found.is_some()));
        }
        for empty in [vec![], vec![0; 64], vec![good[0]], good[..40].to_vec()] {
            let found = run(&mut bed, &classifier, form, &image(&empty), &headers);
            assert!(found.iter().all(|found| !found.is_some()), "{structure:?}");
        }
        let end = good.len().min(400) as u128;
        for round in 0..14_u128 {
            let mut image = good.clone();
            // The numbers of the header in turn, then any of the first words.
            let at = if round < 8 { round } else { random.below(end) } as usize;
            image[at] = [u32::MAX, 1 << 30, 0, random.next() as u32][random.below(4) as usize];
            run(&mut bed, &classifier, form, &self::image(&image), &headers);
        }
    }
}
