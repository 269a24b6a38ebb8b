//! The firewall's stage: rows of both families between rows of none, over each structure that a set may be in, with
//! the verdicts of the rules' actions.

use chunk::{Columns, Verdict};
use kernels::image::ImageLayout;
use kernels::job::JobBytes;
use kernels::known::samples::{Case, GROUP_ITEMS_MIN, NONE, cuts, linear, tuple};
use kernels::known::{Known, Sparse, bytes_of};
use kernels::reasons::{BAD_LOOKUP, NO_ROUTE};

use super::{
    ACTION, ACTIONS, FILTER, FilterColumns, MALFORMED, NOT_JUDGED, REGIONS, RULES4, RULES6, SHORT,
    UNKNOWN, job,
};
use crate::firewall::reasons::{FIREWALL_MALFORMED, FIREWALL_SHORT};

/// Region of the actions of a second firewall, for the last pair.
const OTHER_ACTIONS: usize = REGIONS;

pub(super) fn filters(_: u32) -> Vec<Known> {
    let pairs = [
        ([linear(4), tuple(10, 2)], ACTIONS),
        ([tuple(4, 2), linear(10)], ACTIONS),
        ([cuts(), tuple(10, 0)], OTHER_ACTIONS),
        ([of_no_kernel(&tuple(4, 0)), of_no_kernel(&linear(10))], ACTIONS),
    ];
    let of = |kernel: &'static [&'static str], family| {
        pairs.iter().map(move |(pair, actions)| known(kernel, family, pair, *actions))
    };
    // Without actions nothing is judged: filter4 alone says so.
    let none = known(&["filter4"], 4, &pairs[0].0, OTHER_ACTIONS + 1);
    of(&["filter4"], 4).chain(of(&["filter6"], 6)).chain([none]).collect()
}

/// Actions by rule: all verdicts that a rule may give, and rules without one. The table is shorter than the rules are
/// many.
fn actions() -> Vec<u32> {
    let verdict = |rule: u32| match rule % 5 {
        _ if rule == 0 => ACTION | Verdict::forward(77).0,
        0 => 0,
        1 => ACTION | Verdict::NEXT.0,
        2 => ACTION | Verdict::drop(NO_ROUTE).0,
        _ => ACTION | Verdict::forward(rule as u16).0,
    };
    (0..24).map(verdict).collect()
}

/// The verdict of a rule.
fn verdict_of(rule: u32) -> u32 {
    if rule == UNKNOWN {
        return Verdict::drop(BAD_LOOKUP).0;
    }
    let actions = actions();
    let own = actions.get(rule as usize).copied().filter(|word| *word != 0);
    own.unwrap_or(actions[0]) & !ACTION
}

/// The same headers over rules that no kernel reads.
fn of_no_kernel(case: &Case) -> Case {
    let Case { headers, image, .. } = case;
    let (headers, image) = (headers.clone(), [&[0x1234_5601], &image[1..]].concat());
    Case { answers: vec![u64::from(UNKNOWN); headers.len()], headers, image }
}

/// A row, and the rule that must be in it; `None` for one that no rule judges.
struct Row {
    verdict: Verdict,
    family: u8,
    header: Vec<u32>,
    rule: Option<u32>,
}

/// Before the stage has been there.
const BEFORE: u32 = 0xdead_beef;

/// Headers of both families in turn, and every seventh row one that no rule judges.
fn rows(cases: &[Case; 2]) -> Vec<Row> {
    let mut rows = Vec::new();
    for at in 0..cases.iter().map(|case| case.headers.len()).max().unwrap_or(0) {
        for (case, family) in cases.iter().zip([4, 6]) {
            let Some(header) = case.headers.get(at) else { continue };
            if rows.len() % 7 == 3 {
                let drop = Verdict::drop(NO_ROUTE);
                let (verdict, family) = match rows.len() % 5 {
                    0 => (drop, family),
                    1 => (Verdict::NEXT, SHORT),
                    2 => (Verdict::NEXT, MALFORMED),
                    3 => (drop, SHORT),
                    _ => (Verdict::NEXT, 0),
                };
                rows.push(Row { verdict, family, header: header.clone(), rule: None });
            }
            let rule = if case.answers[at] == NONE { 0 } else { case.answers[at] as u32 };
            let rule = Some(rule);
            rows.push(Row { verdict: Verdict::NEXT, family, header: header.clone(), rule });
        }
    }
    rows
}

/// The kernel of a family: it leaves the rows of the other one alone.
fn known(
    kernel: &'static [&'static str],
    family: u8,
    cases: &[Case; 2],
    actions_at: usize,
) -> Known {
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
    let is_there = actions_at <= OTHER_ACTIONS;
    let mut after = before.clone();
    for (at, row) in rows.iter().enumerate() {
        let dropped = match row.family {
            SHORT => Some(Verdict::drop(FIREWALL_SHORT)),
            MALFORMED => Some(Verdict::drop(FIREWALL_MALFORMED)),
            _ => None,
        };
        match row.rule.filter(|_| is_there) {
            Some(rule) if row.family == family => {
                after.put(FilterColumns::FILTER_RULE, at, rule);
                after.put(FilterColumns::VERDICT, at, verdict_of(rule));
            }
            None if family == 4 => {
                after.put(FilterColumns::FILTER_RULE, at, NOT_JUDGED);
                if let Some(dropped) = dropped.filter(|_| is_there && row.verdict.is_next()) {
                    after.put(FilterColumns::VERDICT, at, dropped.0);
                }
            }
            _ => {}
        }
    }
    let mut regions = vec![&[][..]; OTHER_ACTIONS + 2];
    (regions[RULES4], regions[RULES6]) = (&cases[0].image, &cases[1].image);
    let actions = actions();
    (regions[ACTIONS], regions[OTHER_ACTIONS]) = (&actions, &actions);
    let lens: Vec<_> = regions.iter().map(|region| (region.len(), 0)).collect();
    let image = bytes_of(&ImageLayout::new(&lens).write(1, &regions));
    let mut known = Known::new("filter", &[&FILTER], kernel, FilterColumns::COLUMNS);
    let rules = if family == 4 { RULES4 } else { RULES6 };
    for launch in &mut known.launches {
        // Enough for the smallest groups, so that items of larger ones share rows.
        launch.groups = rows.len().div_ceil(GROUP_ITEMS_MIN) as u32;
        launch.job = job(rules, actions_at);
    }
    known.tables = Sparse { bytes: image.len(), parts: vec![(0, image)] };
    known.job(&before, &after)
}
