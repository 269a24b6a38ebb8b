//! The step that a device can take: from headers in columns to rules.
//!
//! ```text
//!  filter_family, filter_head0 … ─▶ rows of IPv4 ─▶ rules of IPv4 ─┐
//!                                └▶ rows of IPv6 ─▶ rules of IPv6 ─┴▶ filter_rule
//! ```
//!
//! | | |
//! | --- | --- |
//! | reads | `filter_family`, `filter_head0`, `filter_head1`, `filter_head2` |
//! | writes | `filter_rule` |
//!
//! A pure function of columns and tables. The kernels `filter4` and `filter6` do the same over the images that the CPU
//! reads, whichever structure they are. What a kernel does not know it leaves as [`UNKNOWN`], and the worker
//! looks itself: a set that goes over to a structure without a kernel costs time and changes nothing else.
//!
//! Threads: without state; any thread may.

use chunk::{Columns, Rows, Verdict};
use classify::filter::{WORDS_V4, WORDS_V6};
use classify::{Classify, Match, NO_ID, Tables};
use engine::{KernelForm, Shade, Step};
use kernels::classifiers::ITEMS_PER_ROW_MAX;
use kernels::filter::UNKNOWN;
use kernels::{FilterColumns, FilterView};

use super::columns::words;
use super::stage::BATCH;
use super::tables::FirewallTables;

// No rule has the number that says "not known".
const _: () = assert!(super::hits::IDS_MAX < UNKNOWN as usize && UNKNOWN != NO_ID);

/// See the module.
pub(super) struct Search;

impl<T: AsRef<FirewallTables>> Shade<T> for Search {
    fn shade(&self, rows: &mut Rows, tables: &T) {
        if let Some(rules) = tables.as_ref().rules() {
            search(FilterColumns::view(rows), rules, |_| true);
        }
    }

    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            files: &["filter"],
            steps: ["filter4", "filter6"]
                .map(|kernel| Step::shared(kernel, 256, ITEMS_PER_ROW_MAX).into())
                .to_vec(),
            ..KernelForm::default()
        })
    }
}

impl Search {
    /// What was found, by row: the rule's id, 0 for none, of a packet that is judged.
    pub(super) fn take(
        &self,
        rows: &mut Rows,
        rules: (&Tables, &Tables),
        found: &mut Vec<Option<u32>>,
    ) {
        let view = FilterColumns::view(rows);
        let judged = |row: usize| is_live(view.verdict[row]) && view.filter_family[row] != 0;
        let all = 0..view.verdict.len();
        if all.clone().any(|row| judged(row) && view.filter_rule[row] == UNKNOWN) {
            return self.take_again(rows, rules, found);
        }
        let id = |rule: u32| if rule == NO_ID { 0 } else { rule };
        found.extend(all.map(|row| judged(row).then(|| id(view.filter_rule[row]))));
    }

    /// Finds here what a device did not know.
    #[cold]
    fn take_again(&self, rows: &mut Rows, rules: (&Tables, &Tables), found: &mut Vec<Option<u32>>) {
        search(FilterColumns::view(rows), rules, |rule| rule == UNKNOWN);
        self.take(rows, rules, found);
    }
}

#[inline(always)]
fn is_live(verdict: u32) -> bool {
    Verdict(verdict).is_next()
}

/// Finds the rules of the rows whose `filter_rule` is `wanted` to be found.
fn search(mut view: FilterView<'_>, (v4, v6): (&Tables, &Tables), wanted: impl Fn(u32) -> bool) {
    for first in (0..view.verdict.len()).step_by(BATCH) {
        of_family::<WORDS_V4>(&mut view, first, 4, v4, &wanted, |view, row| {
            words(view.filter_head0[row])
        });
        of_family::<WORDS_V6>(&mut view, first, 6, v6, &wanted, |view, row| {
            let [a, b, c, d] = words(view.filter_head0[row]);
            let [e, f, g, h] = words(view.filter_head1[row]);
            let [ports, what, ..] = words(view.filter_head2[row]);
            [a, b, c, d, e, f, g, h, ports, what]
        });
    }
}

/// The same of one family, in the batch of rows from `first` on.
fn of_family<const WORDS: usize>(
    view: &mut FilterView<'_>,
    first: usize,
    family: u8,
    rules: &Tables,
    wanted: &impl Fn(u32) -> bool,
    header: impl Fn(&FilterView<'_>, usize) -> [u32; WORDS],
) {
    let (mut headers, mut rows) = ([[0; WORDS]; BATCH], [0; BATCH]);
    let mut count = 0;
    for row in first..(first + BATCH).min(view.verdict.len()) {
        let is_it = is_live(view.verdict[row]) && view.filter_family[row] == family;
        if is_it && wanted(view.filter_rule[row]) {
            (headers[count], rows[count]) = (header(view, row), row);
            count += 1;
        }
    }
    if count == 0 {
        return;
    }
    let mut best = [Match::NONE; BATCH];
    if rules.words() == WORDS {
        rules.classify(headers[..count].as_flattened(), &mut best[..count]);
    }
    for (row, best) in rows[..count].iter().zip(&best) {
        view.filter_rule[*row] = best.id().unwrap_or(NO_ID);
    }
}
