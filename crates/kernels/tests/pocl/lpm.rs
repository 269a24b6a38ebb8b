//! `lpm4` and `lpm6` against the trie and the CPU's tables, on random and on real routes.

use std::path::Path;

use chunk::Columns;
use kernels::image::ImageLayout;
use kernels::job::JobBytes;
use kernels::{LpmColumns, Spec, files};
use lookup::bspl::{Bspl, BsplBuilder};
use lookup::dir24_8::{Dir24_8, Dir24_8Builder, Limits};
use lookup::rib::Rib;
use lookup::{Blob, Prefix};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::bed::{Bed, GROUP_ITEMS, Memories, ROWS, over_rows};
use crate::random::Random;

const SPEC: fn() -> Spec = || Spec::new("lpm", &[&files::LPM], LpmColumns::COLUMNS);

fn image(blobs: [&Blob; 2]) -> Vec<u32> {
    let regions = blobs.map(|blob| (blob.words().len(), blob.words().len()));
    let layout = ImageLayout::new(&regions);
    layout.write(1, &blobs.map(|blob| blob.words()))
}

/// Runs both kernels over the keys and compares with what is expected.
fn check(bed: &mut Bed, tables: device::driver::Memory, spec: &Spec, cases: &[Case]) {
    let mut job = JobBytes::new(LpmColumns::COLUMNS, cases.len());
    for (row, case) in cases.iter().enumerate() {
        job.put(LpmColumns::DST4, row, case.key4);
        job.put(LpmColumns::DST6, row, case.key6);
        job.put(LpmColumns::RESULT, row, 0xdead_beef_u32);
    }
    let arena = bed.memory(job.bytes());
    for (kernel, expected) in [
        ("lpm4", cases.iter().map(|case| case.answer4).collect::<Vec<u32>>()),
        ("lpm6", cases.iter().map(|case| case.answer6).collect()),
    ] {
        let launch = over_rows(kernel, cases.len(), spec.group_items);
        bed.run(spec, Memories { arena, tables, ..bed.memories() }, &[launch]);
        let mut back = job.clone();
        bed.read(arena, back.bytes_mut());
        for (row, expected) in expected.into_iter().enumerate() {
            let found: u32 = back.get(LpmColumns::RESULT, row);
            let case = &cases[row];
            assert_eq!(found, expected, "{kernel}, row {row} of {}: {case:x?}", cases.len());
        }
    }
    bed.free(arena);
}

#[derive(Debug, Clone, Copy)]
struct Case {
    key4: u32,
    key6: [u64; 2],
    answer4: u32,
    answer6: u32,
}

struct Tables {
    rib4: Rib<u32>,
    rib6: Rib<u128>,
    v4: Blob,
    v6: Blob,
    prefixes4: Vec<Prefix<u32>>,
    prefixes6: Vec<Prefix<u128>>,
}

impl Tables {
    fn new(routes4: &[(Prefix<u32>, u32)], routes6: &[(Prefix<u128>, u32)]) -> Self {
        let (mut rib4, mut rib6) = (Rib::new(), Rib::new());
        for &(prefix, hop) in routes4 {
            rib4.insert(prefix, hop);
        }
        for &(prefix, hop) in routes6 {
            rib6.insert(prefix, hop);
        }
        let (_, v4) = Dir24_8Builder::build(rib4.clone(), Limits::default()).unwrap();
        let (_, v6) = BsplBuilder::build(rib6.clone()).unwrap();
        Self {
            rib4,
            rib6,
            v4,
            v6,
            prefixes4: routes4.iter().map(|route| route.0).collect(),
            prefixes6: routes6.iter().map(|route| route.0).collect(),
        }
    }

    /// Keys of which many lie in prefixes, at their ends and right beside them.
    fn case(&self, random: &mut Random) -> Case {
        let mut key4 = random.next() as u32;
        let mut key6 = u128::from(random.next()) << 64 | u128::from(random.next());
        if random.below(4) > 0 && !self.prefixes4.is_empty() {
            let prefix = self.prefixes4[random.below(self.prefixes4.len())];
            key4 = match random.below(4) {
                0 => prefix.addr(),
                1 => prefix.last(),
                2 => prefix.last().wrapping_add(1),
                _ => prefix.addr() | (key4 & (prefix.last() - prefix.addr())),
            };
        }
        if random.below(4) > 0 && !self.prefixes6.is_empty() {
            let prefix = self.prefixes6[random.below(self.prefixes6.len())];
            key6 = match random.below(4) {
                0 => prefix.addr(),
                1 => prefix.last(),
                2 => prefix.last().wrapping_add(1),
                _ => prefix.addr() | (key6 & (prefix.last() - prefix.addr())),
            };
        }
        let key6 = [(key6 >> 64) as u64, key6 as u64];
        Case {
            key4,
            key6,
            answer4: Dir24_8::new(&self.v4).unwrap().lookup_one(key4),
            answer6: Bspl::new(&self.v6).unwrap().lookup_one(key6),
        }
    }

    /// The tables' answers are the plain definition's.
    fn judge(&self, case: &Case) {
        let six = u128::from(case.key6[0]) << 64 | u128::from(case.key6[1]);
        let four = self.rib4.longest_match(case.key4).map_or(0, |(_, hop)| hop);
        assert_eq!(case.answer4, four);
        assert_eq!(case.answer6, self.rib6.longest_match(six).map_or(0, |(_, hop)| hop));
    }
}

type Routes<A> = Vec<(Prefix<A>, u32)>;

fn routes() -> impl Strategy<Value = (Routes<u32>, Routes<u128>)> {
    let hop = || 1u32..0x7fff_ffff;
    // Few distinct first bits, so that prefixes nest.
    let v4 = (0u32..8, any::<u32>(), 0u8..=32, hop()).prop_map(|(top, low, len, hop)| {
        (Prefix::masked(top << 29 | (low & 0x0103_03ff), len), hop)
    });
    let v6 = (0u128..4, any::<u128>(), 0u8..=128, hop()).prop_map(|(top, low, len, hop)| {
        let address = 0x2001 << 112 | top << 108 | (low & 0x0303_0303_0003_0003_0003_0003_0003);
        (Prefix::masked(address, len), hop)
    });
    (prop::collection::vec(v4, 0..200), prop::collection::vec(v6, 0..300))
}

/// A table of 64 MB is built and copied for each case, so there are few cases, of many keys each.
#[test]
fn random_routes() {
    let Some(mut bed) = Bed::open() else { return };
    let mut runner = TestRunner::deterministic();
    for round in 0..6 {
        let (routes4, routes6) = routes().new_tree(&mut runner).unwrap().current();
        let tables = Tables::new(&routes4, &routes6);
        let memory = bed.memory_of_words(&image([&tables.v4, &tables.v6]));
        let mut random = Random(round);
        for (i, rows) in ROWS.into_iter().enumerate() {
            let cases: Vec<Case> = (0..rows).map(|_| tables.case(&mut random)).collect();
            cases.iter().for_each(|case| tables.judge(case));
            let items = GROUP_ITEMS[(round as usize + i) % GROUP_ITEMS.len()];
            check(&mut bed, memory, &SPEC().with_group_items(items), &cases);
        }
        bed.free(memory);
    }
}

#[test]
fn the_full_table() {
    full_table(&testkit::data::internet().path);
}

#[test]
fn the_full_table_of_2014() {
    let Some(path) = testkit::data::path("bgp/routeviews-ipasn-20140513.dat.gz") else { return };
    full_table(&path);
}

fn full_table(path: &Path) {
    let Some(mut bed) = Bed::open() else { return };
    {
        let routes = lookup::routes::read_file(path).unwrap();
        assert!(routes.v4.len() > 90_000, "a large table: {}", routes.v4.len());
        let tables = Tables::new(&routes.v4, &routes.v6);
        let memory = bed.memory_of_words(&image([&tables.v4, &tables.v6]));
        let mut random = Random(1);
        let cases: Vec<Case> = (0..200_000).map(|_| tables.case(&mut random)).collect();
        check(&mut bed, memory, &SPEC(), &cases);
        bed.free(memory);
    }
}

/// A launch may cover some rows from the middle of an arena; the others stay as they are.
#[test]
fn rows_from_the_middle() {
    let Some(mut bed) = Bed::open() else { return };
    let tables = Tables::new(&[(Prefix::default_route(), 5)], &[]);
    let tables = bed.memory_of_words(&image([&tables.v4, &tables.v6]));
    let mut job = JobBytes::new(LpmColumns::COLUMNS, 100);
    job.set_range(30, 41);
    let arena = bed.memory(job.bytes());
    let memories = Memories { arena, tables, ..bed.memories() };
    bed.run(&SPEC(), memories, &[over_rows("lpm4", 41, 32)]);
    bed.read(arena, job.bytes_mut());
    for row in 0..100 {
        let expected = if (30..71).contains(&row) { 5 } else { 0 };
        assert_eq!(job.get::<u32>(LpmColumns::RESULT, row), expected, "row {row}");
    }
}

/// A damaged table gives a next hop that does not exist, and no access beyond its memory (Oclgrind runs this too).
#[test]
pub(crate) fn damaged_tables() {
    let Some(mut bed) = Bed::open() else { return };
    // DIR-24-8 with three cells: one names a group that is not there.
    let mut cells = vec![0u32; 19];
    cells[..3].copy_from_slice(&[0x0024_0801, 9, 0]);
    cells[16..].copy_from_slice(&[4, 0, 1 << 31 | 77]);
    let no_bspl = [0u32; 16];
    let layout = ImageLayout::new(&[(cells.len(), 0), (no_bspl.len(), 0)]);
    let memory = bed.memory_of_words(&layout.write(1, &[&cells, &no_bspl]));
    let answers = [(0, 4), (0x1ff, 9), (0x200, u32::MAX), (0x300, u32::MAX), (u32::MAX, u32::MAX)];
    let cases = answers.map(|(key4, answer4)| Case { key4, key6: [1, 2], answer4, answer6: 0 });
    check(&mut bed, memory, &SPEC(), &cases);
    // No image at all: no route.
    let memory = bed.memory(&[0; 256]);
    let cases = cases.map(|case| Case { answer4: 0, ..case });
    check(&mut bed, memory, &SPEC(), &cases);
}
