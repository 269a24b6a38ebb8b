//! The firewall's stage: rows of both families between rows of none, over each structure that a set may stand in.

use chunk::{Columns, Verdict};

use super::classify::{Case, GROUP_ITEMS_MIN, NONE, linear, tuple};
use super::cuts::cuts;
use super::{Known, Sparse, bytes_of};
use crate::columns::FilterColumns;
use crate::filter::UNKNOWN;
use crate::image::{ImageLayout, firewall};
use crate::job::JobBytes;

pub(super) fn all() -> Vec<Known> {
    let pairs = [
        [linear(4), tuple(10, 2)],
        [tuple(4, 2), linear(10)],
        [cuts(), tuple(10, 0)],
        [of_no_kernel(&tuple(4, 0)), of_no_kernel(&linear(10))],
    ];
    let four = pairs.iter().map(|pair| known(&["filter4"], 4, pair));
    four.chain(pairs.iter().map(|pair| known(&["filter6"], 6, pair))).collect()
}

/// The same headers over rules that no kernel reads.
fn of_no_kernel(case: &Case) -> Case {
    let Case { headers, image, .. } = case;
    let (headers, image) = (headers.clone(), [&[0x1234_5601], &image[1..]].concat());
    Case { answers: vec![u64::from(UNKNOWN); headers.len()], headers, image }
}

/// A row, and what must stand in it.
struct Row {
    verdict: Verdict,
    family: u8,
    header: Vec<u32>,
    rule: u32,
}

/// Before the stage has been there.
const BEFORE: u32 = 0xdead_beef;

/// Headers of both families in turn, and every seventh row one that the kernels leave alone.
fn rows(cases: &[Case; 2]) -> Vec<Row> {
    let mut rows = Vec::new();
    for at in 0..cases.iter().map(|case| case.headers.len()).max().unwrap_or(0) {
        for (case, family) in cases.iter().zip([4, 6]) {
            let Some(header) = case.headers.get(at) else { continue };
            if rows.len() % 7 == 3 {
                let dropped = rows.len() % 2 == 0;
                let drop = Verdict::drop(crate::reasons::NO_ROUTE);
                let verdict = if dropped { drop } else { Verdict::NEXT };
                let family = if dropped { family } else { 0 };
                rows.push(Row { verdict, family, header: header.clone(), rule: BEFORE });
            }
            let rule = if case.answers[at] == NONE { u32::MAX } else { case.answers[at] as u32 };
            rows.push(Row { verdict: Verdict::NEXT, family, header: header.clone(), rule });
        }
    }
    rows
}

/// The kernel of a family: it leaves the rows of the other one alone.
fn known(kernel: &'static [&'static str], family: u8, cases: &[Case; 2]) -> Known {
    let rows = rows(cases);
    let mut before = JobBytes::new(FilterColumns::COLUMNS, rows.len());
    let heads =
        [FilterColumns::FILTER_HEAD0, FilterColumns::FILTER_HEAD1, FilterColumns::FILTER_HEAD2];
    for (at, row) in rows.iter().enumerate() {
        before.put(FilterColumns::VERDICT, at, row.verdict.0);
        before.put(FilterColumns::FILTER_FAMILY, at, row.family);
        before.put(FilterColumns::FILTER_RULE, at, BEFORE);
        let mut words = row.header.clone();
        // What a header of IPv4 does not reach is whatever was there.
        words.resize(12, if row.family == 4 { BEFORE } else { 0 });
        for (head, words) in heads.into_iter().zip(words.chunks_exact(4)) {
            let half = |at: usize| u64::from(words[at + 1]) << 32 | u64::from(words[at]);
            before.put(head, at, [half(0), half(2)]);
        }
    }
    let mut after = before.clone();
    for (at, row) in rows.iter().enumerate().filter(|(_, row)| row.family == family) {
        after.put(FilterColumns::FILTER_RULE, at, row.rule);
    }
    let mut regions = vec![&[][..]; firewall::REGIONS];
    (regions[firewall::RULES4], regions[firewall::RULES6]) = (&cases[0].image, &cases[1].image);
    let lens: Vec<_> = regions.iter().map(|region| (region.len(), 0)).collect();
    let image = bytes_of(&ImageLayout::new(&lens).write(1, &regions));
    let mut known = Known::new("filter", &["filter"], kernel, FilterColumns::COLUMNS);
    for launch in &mut known.launches {
        // Enough for the smallest groups, so that items of larger ones share rows.
        launch.groups = rows.len().div_ceil(GROUP_ITEMS_MIN) as u32;
    }
    known.tables = Sparse { bytes: image.len(), parts: vec![(0, image)] };
    known.job(&before, &after)
}
