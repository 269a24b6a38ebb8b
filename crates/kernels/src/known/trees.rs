//! Reduction trees of RFC and TIC: a few classes of each part of a 5-tuple, and two lists of code.

use super::Known;
use super::classify::{NONE, known};
use crate::classifiers::{Classifier, Structure};

/// A table: logarithm of an entry's bytes, columns, and a rule that gives its entries.
struct Table {
    width: u32,
    columns: u32,
    entries: Vec<u32>,
}

fn table(width: u32, columns: u32, count: u32, entry: impl Fn(u32) -> u32) -> Table {
    Table { width, columns, entries: (0..count).map(entry).collect() }
}

impl Table {
    fn cross(&self, row: u32, column: u32) -> u32 {
        self.entries[(row * self.columns + column) as usize]
    }

    /// As it is in an image.
    fn words(&self) -> Vec<u32> {
        let each = 4 >> self.width;
        let bits = 8 << self.width;
        let words = self.entries.chunks(each).map(|entries| {
            (0..).zip(entries).fold(0, |word, (at, entry)| word | entry << (at * bits))
        });
        words.collect()
    }
}

/// Halves of addresses, addresses, and their pairs: two classes of source, three of destination.
fn addresses(pair: impl Fn(u32) -> u32, width: u32) -> Vec<Table> {
    vec![
        table(0, 1, 1 << 16, |half| u32::from(half == 0x0a00)),
        table(0, 1, 1 << 16, |half| u32::from(half >= 0x8000)),
        table(1, 1, 1 << 16, |half| u32::from(half >> 8 == 0xc0)),
        table(0, 1, 1 << 16, |half| half & 1),
        table(0, 2, 4, |cell| u32::from(cell == 3)),
        table(2, 2, 4, |cell| cell.saturating_sub(1)),
        table(width, 3, 6, pair),
    ]
}

/// How far apart the columns of cross products in strips are: from one strip to the next, or the one behind it.
const APART: u32 = 40;

/// The same with cross products in strips: the directories, then the strips. What no class leads to is 5.
fn in_strips(whole: &[Table]) -> Vec<Table> {
    let spread = |table: &Table, by: u32| {
        let entries = table.entries.iter().map(|entry| entry * by).collect();
        Table { width: table.width, columns: table.columns, entries }
    };
    // The classes that are columns: lower halves, and destinations.
    let mut tables: Vec<Table> =
        (0..4).map(|at| spread(&whole[at], if at % 2 == 1 { APART } else { 1 })).collect();
    let crosses = [spread(&whole[4], 1), spread(&whole[5], APART), spread(&whole[6], 1)];
    let mut strips = Vec::new();
    for cross in &crosses {
        let a_row = (cross.columns - 1) * APART / 32 + 1;
        let count = cross.entries.len() as u32 / cross.columns * a_row;
        // The last one first.
        tables.push(table(1, a_row, count, |at| count - 1 - at));
        strips.push(table(cross.width, 32, 32 * count, |at| {
            let strip = count - 1 - at / 32;
            let column = strip % a_row * 32 + at % 32;
            let is_one = column.is_multiple_of(APART) && column / APART < cross.columns;
            if is_one { cross.cross(strip / a_row, column / APART) } else { 5 }
        }));
    }
    tables.extend(strips);
    tables
}

/// Places of rules: priority above id.
fn places(count: u32) -> Vec<u64> {
    (0..count).map(|rank| u64::from(2 * rank) << 32 | u64::from(100 - rank)).collect()
}

fn image(magic: u32, tables: &[Table], code: &[u32], [block, unit]: [u32; 2]) -> Vec<u32> {
    let mut head = vec![magic, 4];
    let (mut about, mut body) = (Vec::new(), Vec::new());
    let first = (16 + 4 * tables.len()).next_multiple_of(16);
    for table in tables {
        let at = (first + body.len()) as u32;
        about.extend([at, table.width, table.columns, table.entries.len() as u32]);
        body.extend(table.words());
        body.resize(body.len().next_multiple_of(16), 0);
    }
    let code_at = first + body.len();
    body.extend_from_slice(code);
    body.resize(body.len().next_multiple_of(16), 0);
    let places = places(6);
    let numbers = [(first + body.len()) as u32, 6, code_at as u32, code.len() as u32, block, unit];
    head.extend(numbers);
    head.resize(16, 0);
    head.extend(about);
    head.resize(first, 0);
    head.extend(body);
    head.extend(places.iter().flat_map(|place| [*place as u32, (place >> 32) as u32]));
    head
}

/// The class of a pair of addresses, by the tables as they are here.
fn pair_of(tables: &[Table], src: u32, dst: u32) -> u32 {
    let half = |table: usize, half: u32| tables[table].entries[half as usize];
    let from = tables[4].cross(half(0, src >> 16), half(1, src & 0xffff));
    let to = tables[5].cross(half(2, dst >> 16), half(3, dst & 0xffff));
    tables[6].cross(from, to)
}

const SOURCES: [u32; 3] = [0x0a00_8001, 0x0a00_7fff, 0x0b00_9000];
const DESTINATIONS: [u32; 4] = [0xc0a8_0001, 0xc0a8_0002, 0x0100_0003, 0x0100_0004];

pub(super) fn rfc() -> Known {
    let mut tables = addresses(|cell| cell.saturating_sub(2), 0);
    tables.extend([
        table(0, 1, 1 << 16, |port| u32::from(port >= 1024)),
        table(1, 1, 1 << 16, |port| u32::from(port == 80) + 2 * u32::from(port == 443)),
        table(0, 1, 1 << 8, |proto| u32::from(proto == 6)),
        table(0, 3, 6, |cell| cell % 4),
        table(1, 2, 8, |cell| cell / 2),
        table(0, 4, 16, |cell| [0, 1, 6, 3, 0, 5, 2, 7][cell as usize % 8]),
    ]);
    let (mut headers, mut answers) = (Vec::new(), Vec::new());
    for (src, dst) in SOURCES.iter().flat_map(|src| DESTINATIONS.map(|dst| (*src, dst))) {
        for (sport, dport, proto) in [(1023, 80, 6), (1024, 443, 17), (9, 9, 6), (0xffff, 80, 0)] {
            headers.push(vec![src, dst, sport << 16 | dport, proto << 24 | 0x77]);
            let of = |table: usize, at: u32| tables[table].entries[at as usize];
            let ports = tables[10].cross(of(7, sport), of(8, dport));
            let tail = tables[11].cross(ports, of(9, proto));
            let number = tables[12].cross(pair_of(&tables, src, dst), tail) as usize;
            // 0 is none, and 7 one that is not there.
            let rule = number.checked_sub(1).and_then(|rule| places(6).get(rule).copied());
            answers.push(rule.unwrap_or(NONE));
        }
    }
    let classifier = Classifier::of(Structure::Rfc, 4).expect("a kernel");
    known(&classifier, &headers, &answers, &image(0x7266_6301, &tables, &[], [0, 0]))
}

/// Blocks of eight words: a list over three of them, and in word 19 one that ends without an answer.
const CODE: [u32; 20] = [
    // source port exact, destination from 1024 on, TCP: rule 0
    (0x40 | 3 << 3 | 1) << 24 | 6 << 16,
    7,
    // source range, destination range, any protocol: rule 1
    (4 << 3 | 4) << 24 | 1,
    20 << 16 | 10,
    90 << 16 | 80,
    // only if the protocol's upper half is 1: source below 1024, any destination: rule 2
    (7 << 3 | 2) << 24 | 0x10 << 16 | 0xf0 << 8,
    (2 << 3) << 24 | 2,
    // the rest is in the next block
    (7 << 3) << 24,
    // any source, destination exact: rule 3
    3 << 24 | 3,
    53,
    // a number beyond the rules, for a port that is rare, and back
    (7 << 3 | 1) << 24 | 1,
    3 << 24,
    54,
    (7 << 3 | 1) << 24,
    (7 << 3) << 24,
    0,
    // source exact, destination range, UDP: rule 4, the last
    (0x80 | 0x40 | 3 << 3 | 4) << 24 | 17 << 16 | 4,
    100 << 16 | 60_000,
    200,
    // a list without a rule
    (0x80 | 7 << 3) << 24,
];

pub(super) fn tic() -> Known {
    let tables = addresses(|cell| if cell == 3 { 0 } else { 19 }, 1);
    let place = |rule: usize| places(6)[rule];
    let cases = [
        ([7, 1024, 6], place(0)),
        ([7, 1023, 6], NONE),
        ([7, 1024, 17], place(2)),
        ([10, 80, 0], place(1)),
        ([20, 90, 255], place(1)),
        ([21, 90, 17], place(2)),
        ([21, 90, 33], NONE),
        ([1023, 5, 16], place(2)),
        ([1024, 53, 16], place(3)),
        ([1024, 54, 16], NONE),
        ([60_000, 100, 17], place(4)),
        ([60_000, 200, 17], place(4)),
        ([60_000, 201, 17], NONE),
        ([60_000, 100, 6], NONE),
    ];
    let (mut headers, mut answers) = (Vec::new(), Vec::new());
    for (src, dst) in SOURCES.iter().flat_map(|src| DESTINATIONS.map(|dst| (*src, dst))) {
        for ([sport, dport, proto], answer) in cases {
            headers.push(vec![src, dst, sport << 16 | dport, proto << 24]);
            let list = pair_of(&tables, src, dst);
            answers.push(if list == 0 { answer } else { NONE });
        }
    }
    let classifier = Classifier::of(Structure::Tic, 4).expect("a kernel");
    known(&classifier, &headers, &answers, &image(0x7469_6301, &in_strips(&tables), &CODE, [8, 1]))
}
