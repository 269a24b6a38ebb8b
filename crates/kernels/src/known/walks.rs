//! Walks over payload: an automaton of literals and two tables of regular expressions, with rows whose states and matches
//! are written down.

use chunk::Columns;

use super::packets::frames;
use super::{Known, Sparse, bytes_of};
use crate::image::ImageLayout;
use crate::job::JobBytes;
use crate::{KernelFile, Launch, WalkColumns as W, files};

/// A row: bytes, the states before and behind them, and matches as (end, pattern).
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The bytes.
    pub bytes: &'static [u8],
    /// The state before them.
    pub from: u64,
    /// The state behind them.
    pub to: u64,
    /// Where patterns end, counted from the first byte.
    pub matches: &'static [(u32, u32)],
}

pub(crate) fn literals(_: u32) -> Vec<Known> {
    let kernels = ["literals_count", "literals_write"];
    vec![known(&files::LITERALS, kernels, &literal_words(), LITERALS, 0)]
}

pub(crate) fn dfa(_: u32) -> Vec<Known> {
    let of =
        |number, cases| known(&files::DFA, ["dfa_count", "dfa_write"], &dfa_words(), cases, number);
    vec![of(0, EARLY), of(1, LATE)]
}

fn known(
    file: &'static KernelFile,
    [count, write]: [&'static str; 2],
    words: &[u32],
    cases: &[Case],
    table: u32,
) -> Known {
    let rows: Vec<&[u8]> = cases.iter().map(|case| case.bytes).collect();
    let (payload, places) = frames(&rows);
    let mut job = JobBytes::new(W::COLUMNS, cases.len());
    let (mut starts, mut matches) = (vec![0; 4], Vec::new());
    for (row, (case, (at, len))) in cases.iter().zip(places).enumerate() {
        job.put(W::PAYLOAD_AT, row, at);
        job.put(W::PAYLOAD_LEN, row, len);
        job.put(W::WALK_FROM, row, case.from);
        starts.push(matches.len() as u32);
        matches.extend(case.matches.iter().flat_map(|(end, pattern)| [*end, *pattern]));
    }
    starts[0] = matches.len() as u32;
    starts.push(matches.len() as u32);
    let areas = [&starts, &matches];
    let areas_at = job.add_areas(&areas.map(|words| 4 * words.len()));
    let mut after = job.clone();
    for (row, case) in cases.iter().enumerate() {
        after.put(W::WALK_TO, row, case.to);
    }
    for (at, words) in areas_at.into_iter().zip(areas) {
        after.bytes_mut()[at..][..4 * words.len()].copy_from_slice(&bytes_of(words));
    }
    let image = bytes_of(&ImageLayout::new(&[(words.len(), 0)]).write(1, &[words]));
    let tables = Sparse { bytes: image.len(), parts: vec![(0, image)] };
    let mut known = Known::new(file.name, &[file, &files::AREAS], &[count, write], W::COLUMNS);
    let launch = |kernel, job| Launch { kernel, groups: 1, items: 0, job };
    known.launches =
        vec![launch(count, table << 16), launch("output_scan", 0), launch(write, table << 16)];
    Known { payload, tables, ..known.job(&job, &after) }
}

/// The words of an automaton: `aba`, `abb`, `abc`, `abd`, `abe`, `bca`, `bcb`, `caaa`, `d`, `dd`, `ddd`, `dddd`, `ee` at the
/// start alone; `bca` and `d` where case does not count. So a node has five children, two, one; and four patterns end at one.
pub fn literal_words() -> Vec<u32> {
    let mut words = vec![0; 4 * 112];
    for (quad, run) in LITERAL_QUADS {
        words[4 * quad..][..run.len()].copy_from_slice(run);
    }
    words
}

/// The words of two tables: of `ab` and `a[bc]+` at the start alone, which ends in a dead state; of `c` at the end of a
/// line, which is late.
pub fn dfa_words() -> Vec<u32> {
    let mut words = vec![
        0x7265_6766,
        1,
        2,
        3, // two tables, three patterns
        5,
        5,
        10,
        20,
        7,
        23,
        30,
        6,
        10,
        20,
        0,
        0x37e0_416d, // states 0 and 5 have matches, 20 is dead
        5,
        3,
        5,
        5,
        32,
        48,
        52,
        3,
        5,
        u32::MAX,
        1,
        0xcb1b_0f56, // state 0 has matches
    ];
    words.extend(classes(b'a', [1, 2, 3], 4));
    words.extend([20, 20, 5, 5, 20]); // 0: "ab"
    words.extend([20, 20, 5, 5, 20]); // 5: a, then b or c
    words.extend([20, 15, 20, 20, 20]); // 10: the start
    words.extend([20, 20, 0, 5, 20]); // 15: "a"
    words.extend([20, 20, 20, 20, 20, 0, 0, 0]);
    words.extend([3, 5, 6, 0, 1, 1, 0, 0]); // patterns 0 and 1 end in state 0, 1 in state 5
    let classes_of_c = (0..=255).map(|byte: u8| match byte {
        0..b'\n' => 0,
        b'\n' => 1,
        b'\x0b'..b'c' => 2,
        b'c' => 3,
        _ => 4,
    });
    words.extend(packed(classes_of_c));
    words.extend([5, 5, 5, 10, 5]); // 0: c and a line feed
    words.extend([5, 5, 5, 10, 5]); // 5: the start
    words.extend([5, 0, 5, 10, 5, 0]); // 10: c
    words.extend([2, 3, 2, 0]); // pattern 2 ends in state 0
    words
}

/// Class 0 before a byte, one for it and each of the next, one behind.
fn classes(first: u8, of: [u8; 3], behind: u8) -> Vec<u32> {
    packed((0..=255).map(|byte: u8| match byte.checked_sub(first) {
        None => 0,
        Some(at) => of.get(usize::from(at)).copied().unwrap_or(behind),
    }))
}

fn packed(classes: impl Iterator<Item = u8>) -> Vec<u32> {
    let classes: Vec<u8> = classes.collect();
    classes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

/// Quads of the automaton that are not zero: header; classes, defaults and records of the exact patterns and their lists; the
/// same where case does not count.
const LITERAL_QUADS: &[(usize, &[u32])] = &[
    (0, &[0x6175_746f, 1, 15, 0x405f, 6, 1, 5, 21, 32, 39, 71, 33, 5, 0, 80, 96, 104, 7, 111, 4]),
    (11, &[0x302_0100, 0x504, 0, 0]),
    (
        21,
        &[
            0,
            2,
            3,
            4,
            0x8000_0006,
            0,
            0,
            2,
            8,
            4,
            0x8000_0006,
            0,
            0,
            2,
            3,
            11,
            0x8000_0006,
            0,
            0,
            13,
            3,
            4,
            0x8000_0006,
            0,
            0,
            2,
            3,
            4,
            0x8000_000f,
            0,
            0,
            2,
            3,
            4,
            0x8000_0006,
            0,
            0,
            2,
            3,
            4,
            0x8000_0006,
            0,
            0,
            0,
        ],
    ),
    (
        33,
        &[
            0x501_0001,
            32,
            0,
            7,
            1,
            0,
            0x100_0000,
            0,
            1,
            0,
            0x200_0000,
            0,
            1,
            0,
            0x300_0000,
            0,
            1,
            8,
            0,
            0,
            1,
            0,
            0x400_0000,
            0,
            0x501_0002,
            32,
            0x500_0000,
            0x8000_0011,
            0xff_0002,
            62,
            0x200_0000,
            0,
            62,
            2,
            0x8000_0013,
            0x8000_0015,
            0x8000_0017,
            0x8000_0019,
            0x8000_001b,
            0,
            0x2_0002,
            6,
            0x300_0000,
            0x201,
            0x8000_001d,
            0x8000_001f,
            0,
            0,
            0x101_0002,
            2,
            0x100_0000,
            32,
            2,
            8,
            9,
            0,
            0x401_0002,
            16,
            0x400_0000,
            0x8000_0022,
            1,
            12,
            0,
            0,
            3,
            0,
            0x500_0000,
            0,
            1,
            0,
            0,
            0,
            3,
            0,
            0x100_0000,
            0,
            1,
            1,
            0,
            0,
            3,
            0,
            0x200_0000,
            0,
            1,
            2,
            0,
            0,
            3,
            0,
            0x300_000b,
            0,
            2,
            3,
            8,
            0,
            3,
            0,
            0x400_0000,
            0,
            1,
            4,
            0,
            0,
            3,
            0,
            0x500_0000,
            0,
            1,
            5,
            0,
            0,
            3,
            0,
            0x100_000d,
            0,
            1,
            6,
            0,
            0,
            3,
            0,
            0x200_0000,
            0,
            0x101_0003,
            2,
            0x100_0000,
            0x8000_0024,
            3,
            8,
            9,
            10,
            0x401_0003,
            16,
            0x400_0000,
            0x8000_0026,
            1,
            7,
            0,
            0,
            4,
            0,
            0x100_0000,
            0,
            4,
            29,
            0,
            0,
            4,
            0,
            0x400_0022,
            0,
            1,
            8,
            2,
            8,
            9,
            1,
            12,
            1,
            0,
            1,
            1,
            1,
            2,
            2,
            3,
            8,
            1,
            4,
            1,
            5,
            1,
            6,
            3,
            8,
            9,
            10,
            1,
            7,
            4,
            8,
            9,
            10,
            11,
            0,
            0,
            0,
        ],
    ),
    (84, &[0x302_0100, 4, 0, 0]),
    (86, &[0x302_0100, 4, 0, 0]),
    (
        96,
        &[
            0,
            0,
            1,
            0,
            0x8000_0003,
            0,
            0,
            1,
            0,
            0x8000_0003,
            0,
            0,
            1,
            4,
            0x8000_0003,
            0,
            0,
            1,
            0,
            0x8000_0003,
            0,
            0,
            1,
            0,
            0x8000_0003,
            0,
            0,
            1,
            0,
            0x8000_0003,
            0,
            0,
        ],
    ),
    (
        105,
        &[
            1,
            0,
            0x200_0000,
            0,
            1,
            14,
            0,
            0,
            1,
            0,
            0x400_0000,
            0,
            0x101_0002,
            2,
            0x300_0000,
            0x8000_0006,
            1,
            13,
            0,
            0,
            3,
            0,
            0x100_0000,
            0,
            1,
            14,
            1,
            13,
        ],
    ),
];

/// Rows for [`literal_words`]: from the start, from the middle, from within `ab`, without bytes, with a state of another
/// automaton, over several blocks of 16 bytes.
pub const LITERALS: &[Case] = &[
    Case {
        bytes: b"abcabcbdddda",
        from: 0x405f_0000_0000_0001,
        to: 0x405f_0000_0000_0002,
        matches: &[
            (3, 2),
            (4, 5),
            (4, 13),
            (6, 2),
            (7, 6),
            (8, 8),
            (8, 14),
            (9, 8),
            (9, 9),
            (9, 14),
            (10, 8),
            (10, 9),
            (10, 10),
            (10, 14),
            (11, 8),
            (11, 9),
            (11, 10),
            (11, 11),
            (11, 14),
        ],
    },
    Case {
        bytes: b"eeBcA",
        from: 0x405f_0000_0000_0001,
        to: 0x405f_0000_0600_0000,
        matches: &[(2, 12), (5, 13)],
    },
    Case {
        bytes: b"ee abd",
        from: 0x405f_0000_0000_0000,
        to: 0x405f_0000_0300_0019,
        matches: &[(6, 3), (6, 8), (6, 14)],
    },
    Case {
        bytes: b"e bCABCA",
        from: 0x405f_0000_0100_0008,
        to: 0x405f_0000_0600_0000,
        matches: &[(1, 4), (5, 13), (8, 13)],
    },
    Case { bytes: b"", from: 0x405f_0000_0100_0008, to: 0x405f_0000_0100_0008, matches: &[] },
    Case { bytes: b"a", from: 0x405e_0000_0100_0008, to: 0x405f_0000_0000_0002, matches: &[] },
    Case {
        bytes: b"abcab CAAAcaaaabcaaaa..abbabaabe dD DDabdbcb-bc",
        from: 0x405f_0000_0000_0001,
        to: 0x405f_0000_0400_000b,
        matches: &[
            (3, 2),
            (4, 5),
            (4, 13),
            (14, 7),
            (17, 2),
            (18, 5),
            (18, 13),
            (20, 7),
            (26, 1),
            (29, 0),
            (32, 4),
            (34, 8),
            (34, 14),
            (35, 14),
            (37, 14),
            (38, 14),
            (41, 3),
            (41, 8),
            (41, 14),
            (44, 6),
        ],
    },
];

/// Rows for the first table of [`dfa_words`].
pub const EARLY: &[Case] = &[
    Case {
        bytes: b"abccb abc",
        from: 0x37e0_416d_0000_000a,
        to: 0x37e0_416d_0000_0014,
        matches: &[(2, 0), (2, 1), (3, 1), (4, 1), (5, 1)],
    },
    Case { bytes: b"ab", from: 0x37e0_416d_0000_0014, to: 0x37e0_416d_0000_0014, matches: &[] },
    Case {
        bytes: b"b",
        from: 0x37e0_416d_0000_000f,
        to: 0x37e0_416d_0000_0000,
        matches: &[(1, 0), (1, 1)],
    },
    Case { bytes: b"", from: 0x37e0_416d_0000_000f, to: 0x37e0_416d_0000_000f, matches: &[] },
    Case { bytes: b"b", from: 0x37e0_406d_0000_000f, to: 0x37e0_416d_0000_0014, matches: &[] },
    Case { bytes: b"b", from: 0x37e0_416d_0000_0010, to: 0x37e0_416d_0000_0014, matches: &[] },
    Case {
        bytes: b"acccccccccccccccccbccccccccccccccccccbx",
        from: 0x37e0_416d_0000_000a,
        to: 0x37e0_416d_0000_0014,
        matches: &[
            (2, 1),
            (3, 1),
            (4, 1),
            (5, 1),
            (6, 1),
            (7, 1),
            (8, 1),
            (9, 1),
            (10, 1),
            (11, 1),
            (12, 1),
            (13, 1),
            (14, 1),
            (15, 1),
            (16, 1),
            (17, 1),
            (18, 1),
            (19, 1),
            (20, 1),
            (21, 1),
            (22, 1),
            (23, 1),
            (24, 1),
            (25, 1),
            (26, 1),
            (27, 1),
            (28, 1),
            (29, 1),
            (30, 1),
            (31, 1),
            (32, 1),
            (33, 1),
            (34, 1),
            (35, 1),
            (36, 1),
            (37, 1),
            (38, 1),
        ],
    },
];

/// Rows for the second table, where a match ends before the byte that tells of it.
pub const LATE: &[Case] = &[
    Case {
        bytes: b"abc\nccx",
        from: 0xcb1b_0f56_0000_0005,
        to: 0xcb1b_0f56_0000_0005,
        matches: &[(3, 2)],
    },
    Case {
        bytes: b"\n",
        from: 0xcb1b_0f56_0000_000a,
        to: 0xcb1b_0f56_0000_0000,
        matches: &[(0, 2)],
    },
    Case { bytes: b"", from: 0xcb1b_0f56_0000_000a, to: 0xcb1b_0f56_0000_000a, matches: &[] },
    Case { bytes: b"c", from: 0xcb1b_0f56_0000_000a, to: 0xcb1b_0f56_0000_000a, matches: &[] },
    Case {
        bytes: b"\nc\n",
        from: 0xcb1b_0e56_0000_000a,
        to: 0xcb1b_0f56_0000_0000,
        matches: &[(2, 2)],
    },
    Case {
        bytes: b"--------------------------c\n-------c\n",
        from: 0xcb1b_0f56_0000_0005,
        to: 0xcb1b_0f56_0000_0000,
        matches: &[(27, 2), (36, 2)],
    },
];
