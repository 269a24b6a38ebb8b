//! The step that a device can take: from headers in columns to rules, and to verdicts.
//!
//! ```text
//!  filter_family, filter_head0 … ─▶ rows of IPv4 ─▶ rules of IPv4 ─┐
//!                                └▶ rows of IPv6 ─▶ rules of IPv6 ─┴▶ rule ─▶ actions ─▶ verdict
//! ```
//!
//! | | |
//! | --- | --- |
//! | reads | `filter_family`, `filter_head0`, `filter_head1`, `filter_head2` |
//! | writes | `filter_rule` |
//! | forward | out by the port of `send` |
//! | drop | `firewall_drop`, `firewall_reject`, `firewall_short`, `firewall_malformed` |
//!
//! A pure function of columns and tables. A rule that the column has already, marked, is not looked up (`flow_cache`). The
//! next stage of the segment passes over the rows that have their verdict. The kernels `filter4` and `filter6` do the same
//! over the images that the CPU reads. Tables with rules that no kernel knows, or too many for a device, are not for it: while
//! they last, the CPU shades the segment.
//!
//! Threads: without state; any thread may.

use chunk::{Rows, Verdict};
use classify::filter::{WORDS_V4, WORDS_V4_WIDE, WORDS_V6, WORDS_V6_WIDE, widened};
use classify::{Classify, Match, Tables};
use engine::{KernelForm, KernelStep, Shade, Step};
use kernels::classifiers::ITEMS_PER_ROW_MAX;

use super::columns::{Instance, ShadeView};
use super::flow_cache::KNOWN;
use super::header::words;
use super::kernels::{ACTIONS, FILTER, MALFORMED, NOT_JUDGED, RULES4, RULES6, SHORT, UNKNOWN, job};
use super::reasons::{FIREWALL_MALFORMED, FIREWALL_SHORT};
use super::tables::FirewallTables;

/// Rows that are classified at once.
const BATCH: usize = chunk::CHUNK_PACKETS_MAX;

// No rule has a number that says something else.
const _: () = assert!(super::hits::IDS_MAX < UNKNOWN as usize && UNKNOWN < NOT_JUDGED);

/// See the module.
pub(super) struct Search {
    pub(super) instance: Instance,
    /// Whether a device may do it.
    pub(super) has_kernels: bool,
    /// Of the firewall's part of the tables.
    pub(super) first_region: usize,
}

impl<T: AsRef<FirewallTables>> Shade<T> for Search {
    fn shade(&self, rows: &mut Rows, tables: &T) {
        let mut view = self.instance.view(rows);
        search(&mut view, tables.as_ref());
        if let Some(shared) = view.shared {
            // As the kernels leave it.
            shared.copy_from_slice(view.rule);
        }
    }

    fn kernels(&self) -> Option<KernelForm> {
        let [rules4, rules6, actions] =
            [RULES4, RULES6, ACTIONS].map(|region| self.first_region + region);
        let search = |kernel: &'static str, rules: usize| -> KernelStep {
            Step::shared(kernel, 256, ITEMS_PER_ROW_MAX).with_job(job(rules, actions)).into()
        };
        let mut form = KernelForm {
            files: &[&FILTER],
            steps: vec![search("filter4", rules4), search("filter6", rules6)],
            ..KernelForm::default()
        };
        if self.instance.copies_rule() {
            let name = self.instance.rule().name.to_uppercase();
            form.text = KEEP.replace("OWN", &name).into();
            form.file = "keep.k".into();
            form.steps.push(Step::rows("filter_keep", 256).into());
        }
        self.has_kernels.then_some(form)
    }

    fn fits_device(&self, tables: &T) -> bool {
        tables.as_ref().fits_device()
    }
}

/// Copies the rule to the firewall's own column: the next one writes over the column that they share.
const KEEP: &str = "KERNEL(filter_keep)
{
    if (GLOBAL_ID < job_rows(arena)) {
        const uint row = JOB_FIRST(arena) + GLOBAL_ID;
        COL_OWN(arena)[row] = COL_FILTER_RULE(arena)[row];
    }
}
";

/// Finds the rule of each row that is judged, and gives the row its verdict.
fn search(view: &mut ShadeView<'_>, tables: &FirewallTables) {
    let Some((v4, v6)) = tables.rules() else { return view.rule.fill(NOT_JUDGED) };
    for first in (0..view.verdict.len()).step_by(BATCH) {
        let rows = first..(first + BATCH).min(view.verdict.len());
        for row in rows.clone() {
            // Established flows: see `flow_cache`.
            let known = view.rule[row];
            view.rule[row] = NOT_JUDGED;
            if !Verdict(view.verdict[row]).is_next() {
                continue;
            }
            if (KNOWN..UNKNOWN).contains(&known) {
                view.rule[row] = known & !KNOWN;
            }
            match view.family[row] {
                SHORT => view.verdict[row] = Verdict::drop(FIREWALL_SHORT).0,
                MALFORMED => view.verdict[row] = Verdict::drop(FIREWALL_MALFORMED).0,
                _ => {}
            }
        }
        match v4.words() {
            WORDS_V4_WIDE => of_family::<WORDS_V4_WIDE>(view, rows.clone(), 4, v4, |view, row| {
                widened(header_v4(view, row), application(view, row))
            }),
            _ => of_family::<WORDS_V4>(view, rows.clone(), 4, v4, header_v4),
        }
        match v6.words() {
            WORDS_V6_WIDE => of_family::<WORDS_V6_WIDE>(view, rows.clone(), 6, v6, |view, row| {
                widened(header_v6(view, row), application(view, row))
            }),
            _ => of_family::<WORDS_V6>(view, rows.clone(), 6, v6, header_v6),
        }
        for row in rows {
            if view.rule[row] != NOT_JUDGED {
                view.verdict[row] = tables.verdict(view.rule[row]).0;
            }
        }
    }
}

fn header_v4(view: &ShadeView<'_>, row: usize) -> [u32; WORDS_V4] {
    words(view.head0[row])
}

fn header_v6(view: &ShadeView<'_>, row: usize) -> [u32; WORDS_V6] {
    let [a, b, c, d] = words(view.head0[row]);
    let [e, f, g, h] = words(view.head1[row]);
    let [ports, what, ..] = words(view.head2[row]);
    [a, b, c, d, e, f, g, h, ports, what]
}

/// The application of the flow of a row.
fn application(view: &ShadeView<'_>, row: usize) -> u32 {
    view.head2[row][1] as u32
}

/// Finds the rules of one family, in a batch of rows.
fn of_family<const WORDS: usize>(
    view: &mut ShadeView<'_>,
    batch: std::ops::Range<usize>,
    family: u8,
    rules: &Tables,
    header: impl Fn(&ShadeView<'_>, usize) -> [u32; WORDS],
) {
    if !view.family[batch.clone()].contains(&family) {
        return;
    }
    let (mut headers, mut rows) = ([[0; WORDS]; BATCH], [0; BATCH]);
    let mut count = 0;
    for row in batch {
        let is_asked = Verdict(view.verdict[row]).is_next() && view.rule[row] == NOT_JUDGED;
        if is_asked && view.family[row] == family {
            (headers[count], rows[count]) = (header(view, row), row);
            count += 1;
        }
    }
    let mut best = [Match::NONE; BATCH];
    if rules.words() == WORDS {
        rules.classify(headers[..count].as_flattened(), &mut best[..count]);
    }
    for (row, best) in rows[..count].iter().zip(&best) {
        view.rule[*row] = best.id().unwrap_or(0);
    }
}
