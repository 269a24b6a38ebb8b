//! `poptrie` and `mtrie6` against the plain trie, on random and on real routes.

use chunk::Columns;
use device::driver::Memory;
use kernels::image::ImageLayout;
use kernels::job::JobBytes;
use kernels::{LpmColumns, Spec, files};
use lookup::mtrie6::{self, Mtrie6Builder};
use lookup::poptrie::{self, PoptrieBuilder};
use lookup::rib::Rib;
use lookup::trie::Trie;
use lookup::{Address, Prefix};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::bed::{Bed, GROUP_ITEMS, Memories, ROWS, over_rows};
use crate::random::Random;

const SPEC: fn() -> Spec = || Spec::new("tries", &[&files::TRIES], LpmColumns::COLUMNS);

struct Tables {
    image: Vec<u32>,
    trie4: Trie<u32>,
    trie6: Trie<u128>,
    prefixes4: Vec<Prefix<u32>>,
    prefixes6: Vec<Prefix<u128>>,
}

impl Tables {
    fn new(routes4: &[(Prefix<u32>, u32)], routes6: &[(Prefix<u128>, u32)]) -> Self {
        let rib4: Rib<u32> = routes4.iter().copied().collect();
        let rib6: Rib<u128> = routes6.iter().copied().collect();
        let (trie4, trie6) = (Trie::build(&rib4), Trie::build(&rib6));
        let (_, v4) = PoptrieBuilder::build(rib4, poptrie::Limits::default()).unwrap();
        let (_, v6) = Mtrie6Builder::build(rib6, mtrie6::Limits::default()).unwrap();
        let blobs = [v4.words(), v6.words()];
        let image = ImageLayout::new(&blobs.map(|words| (words.len(), 0))).write(1, &blobs);
        let prefixes4 = routes4.iter().map(|route| route.0).collect();
        let prefixes6 = routes6.iter().map(|route| route.0).collect();
        Self { image, trie4, trie6, prefixes4, prefixes6 }
    }
}

/// An address in a prefix, at its ends or right beside them; or any.
fn address<A: Address>(
    prefixes: &[Prefix<A>],
    random: &mut Random,
    any: A,
    mix: impl Fn(A, A) -> A,
    next: impl Fn(A) -> A,
) -> A {
    if prefixes.is_empty() || random.below(4) == 0 {
        return any;
    }
    let prefix = prefixes[random.below(prefixes.len())];
    match random.below(4) {
        0 => prefix.addr(),
        1 => prefix.last(),
        2 => next(prefix.last()),
        _ => mix(prefix.addr(), any.fill(0)).max(prefix.addr()).min(prefix.last()),
    }
}

/// Runs both kernels over as many random keys and compares with the trie.
fn check(bed: &mut Bed, tables: &Tables, memory: Memory, spec: &Spec, rows: usize, seed: u64) {
    let mut random = Random(seed);
    let mut job = JobBytes::new(LpmColumns::COLUMNS, rows);
    let mut expected = Vec::new();
    for row in 0..rows {
        let any6 = u128::from(random.next()) << 64 | u128::from(random.next());
        let any4 = any6 as u32;
        let four = address(
            &tables.prefixes4,
            &mut random,
            any4,
            |a, _| a ^ any4 >> 9,
            |a| a.wrapping_add(1),
        );
        let six = address(
            &tables.prefixes6,
            &mut random,
            any6,
            |a, _| a ^ any6 >> 40,
            |a| a.wrapping_add(1),
        );
        job.put(LpmColumns::DST4, row, four);
        job.put(LpmColumns::DST6, row, six.to_key());
        job.put(LpmColumns::RESULT, row, 0xdead_beef_u32);
        let answers = (tables.trie4.lookup_one(four), tables.trie6.lookup_one(six.to_key()));
        expected.push((four, six, answers));
    }
    let arena = bed.memory(job.bytes());
    for kernel in ["poptrie", "mtrie6"] {
        let launch = over_rows(kernel, rows, spec.group_items);
        bed.run(spec, Memories { arena, tables: memory, ..bed.memories() }, &[launch]);
        let mut back = job.clone();
        bed.read(arena, back.bytes_mut());
        for (row, (four, six, answers)) in expected.iter().enumerate() {
            let found: u32 = back.get(LpmColumns::RESULT, row);
            let answer = if kernel == "poptrie" { answers.0 } else { answers.1 };
            assert_eq!(found, answer, "{kernel}, row {row} of {rows}: {four:x} {six:x}");
        }
    }
    bed.free(arena);
}

type Routes<A> = Vec<(Prefix<A>, u32)>;

fn routes(largest: u32) -> impl Strategy<Value = (Routes<u32>, Routes<u128>)> {
    // Few distinct first bits, so that prefixes nest.
    let v4 = (0u32..8, any::<u32>(), 0u8..=32, 1..=largest).prop_map(|(top, low, len, hop)| {
        (Prefix::masked(top << 29 | (low & 0x0103_03ff), len), hop)
    });
    let v6 = (0u128..4, any::<u128>(), 0u8..=128, 1..=largest).prop_map(|(top, low, len, hop)| {
        let address = 0x2001 << 112 | top << 108 | (low & 0x0303_0303_0003_0003_0003_0003_0003);
        (Prefix::masked(address, len), hop)
    });
    (prop::collection::vec(v4, 0..200), prop::collection::vec(v6, 0..300))
}

/// With answers of 16 and of 32 bits.
#[test]
fn random_routes() {
    let Some(mut bed) = Bed::open() else { return };
    let mut runner = TestRunner::deterministic();
    for round in 0..8 {
        let largest = if round % 2 == 0 { 0x7fff } else { 0x7fff_ffff };
        let (routes4, routes6) = routes(largest).new_tree(&mut runner).unwrap().current();
        let tables = Tables::new(&routes4, &routes6);
        let memory = bed.memory_of_words(&tables.image);
        for (i, rows) in ROWS.into_iter().enumerate() {
            let items = GROUP_ITEMS[(round as usize + i) % GROUP_ITEMS.len()];
            let spec = SPEC().with_group_items(items);
            check(&mut bed, &tables, memory, &spec, rows, round << 8 | i as u64);
        }
        bed.free(memory);
    }
}

#[test]
fn the_full_table() {
    let path = testkit::data::internet().path;
    let Some(mut bed) = Bed::open() else { return };
    let routes = lookup::routes::read_file(&path).unwrap();
    for next_hops in [u32::MAX, 200] {
        let four: Vec<_> = routes.v4.iter().map(|(p, id)| (*p, 1 + id % next_hops)).collect();
        let tables = Tables::new(&four, &routes.v6);
        let memory = bed.memory_of_words(&tables.image);
        check(&mut bed, &tables, memory, &SPEC(), 200_000, 1);
        bed.free(memory);
    }
}

/// A damaged table gives a next hop that does not exist, and no access beyond its memory (Oclgrind runs this
/// too).
#[test]
pub(crate) fn damaged_tables() {
    let Some(mut bed) = Bed::open() else { return };
    const HEAP: usize = 16 + (1 << 18);
    let mut four = vec![0u32; HEAP + 4];
    four[..3].copy_from_slice(&[0x0018_0624, 9, 1]);
    // A record beyond the end, one of which an answer is, one that names a group that is not there.
    four[16..20].copy_from_slice(&[4, 1 << 31 | 77, 1 << 31 | 1, 1 << 31]);
    four[HEAP..].copy_from_slice(&[1, 0, 1 << 31 | 77, 1]);
    let mut six = vec![0u32; HEAP + 16];
    six[..2].copy_from_slice(&[0x006d_7436, 9]);
    // A node beyond the end, buckets beyond it, a node that leads to itself.
    let itself = 1 << 31 | 1 << 29;
    six[16..21].copy_from_slice(&[4, 1 << 31 | 77, 3 << 30 | 77, 7 << 29 | 77, itself]);
    six[HEAP..].fill(itself);
    let layout = ImageLayout::new(&[(four.len(), 0), (six.len(), 0)]);
    let memory = bed.memory_of_words(&layout.write(1, &[&four, &six]));
    let bad = u32::MAX;
    let cases = [(4, 4), (bad, bad), (bad, bad), (bad, bad), (9, bad), (9, 9)];
    let mut job = JobBytes::new(LpmColumns::COLUMNS, cases.len());
    for row in 0..cases.len() {
        job.put(LpmColumns::DST4, row, (row as u32) << 14);
        job.put(LpmColumns::DST6, row, [(row as u64) << 46, 1]);
    }
    for image in [true, false] {
        let memory = if image { memory } else { bed.memory(&[0; 256]) };
        for kernel in ["poptrie", "mtrie6"] {
            let arena = bed.memory(job.bytes());
            let launch = over_rows(kernel, cases.len(), 32);
            let spec = SPEC().with_group_items(32);
            bed.run(&spec, Memories { arena, tables: memory, ..bed.memories() }, &[launch]);
            let mut back = job.clone();
            bed.read(arena, back.bytes_mut());
            for (row, (four, six)) in cases.into_iter().enumerate() {
                let expected = match (image, kernel) {
                    (false, _) => 0,
                    (true, "poptrie") => four,
                    _ => six,
                };
                let found: u32 = back.get(LpmColumns::RESULT, row);
                assert_eq!(found, expected, "{kernel}, row {row}, an image: {image}");
            }
            bed.free(arena);
        }
    }
}
