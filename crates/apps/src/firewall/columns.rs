//! The columns of one firewall among those of its pipeline.
//!
//! ```text
//!  verdict, context │ the router's or the switch's │ family │ head0 head1 head2 │ rule of `edge` │ rule of `core`
//!                                                    └─ by the first that decodes ┘  └─ each firewall has its own ──┘
//! ```
//!
//! A pipeline may have several firewalls. They share the header columns and differ in their names: that of the column
//! for the rule that was found follows from it. Names are known at the start alone, so what is declared by them is
//! made then, once for each name, and lives as long as the program.

use chunk::{ColumnDesc, ColumnId, ColumnSet, Columns, Declaration, Rows};

use super::header::HeaderColumns;
use super::kernels::FilterColumns;
use crate::flow::FlowColumns;
use crate::l7::L7Columns;
use crate::router::RouterColumns;

/// A firewall's name, and its column.
#[derive(Debug, Clone, Copy)]
pub struct Instance {
    name: &'static str,
    /// Those of [`FilterColumns`], and the own one behind them where there is one.
    shade: Declaration,
    /// What the stage declares.
    columns: &'static [Declaration],
    /// The same where the stage also writes the router's columns.
    columns_in_router: &'static [Declaration],
    /// Both, where it reads the columns of flows; and where it reads their applications, too.
    columns_of_flows: [[&'static [Declaration]; 2]; 2],
}

/// The columns of a shade over some rows.
pub(super) struct ShadeView<'a> {
    pub(super) verdict: &'a mut [u32],
    pub(super) family: &'a mut [u8],
    pub(super) head0: &'a mut [[u64; 2]],
    pub(super) head1: &'a mut [[u64; 2]],
    pub(super) head2: &'a mut [[u64; 2]],
    pub(super) rule: &'a mut [u32],
    /// What all firewalls share, where that is another one.
    pub(super) shared: Option<&'a mut [u32]>,
}

impl Instance {
    /// The firewall that is the only one of its pipeline: its kernels write their result where it stays.
    pub const ALONE: Instance = Instance {
        name: super::STAGE,
        shade: FilterColumns::COLUMNS,
        columns: &[HeaderColumns::COLUMNS, FilterColumns::COLUMNS],
        columns_in_router: &[
            HeaderColumns::COLUMNS,
            FilterColumns::COLUMNS,
            RouterColumns::COLUMNS,
        ],
        columns_of_flows: [
            [
                &[HeaderColumns::COLUMNS, FilterColumns::COLUMNS, FlowColumns::COLUMNS],
                &[
                    HeaderColumns::COLUMNS,
                    FilterColumns::COLUMNS,
                    RouterColumns::COLUMNS,
                    FlowColumns::COLUMNS,
                ],
            ],
            [
                &[
                    HeaderColumns::COLUMNS,
                    FilterColumns::COLUMNS,
                    FlowColumns::COLUMNS,
                    L7Columns::COLUMNS,
                ],
                &[
                    HeaderColumns::COLUMNS,
                    FilterColumns::COLUMNS,
                    RouterColumns::COLUMNS,
                    FlowColumns::COLUMNS,
                    L7Columns::COLUMNS,
                ],
            ],
        ],
    };

    /// The firewall of that name, `is_alone` in its pipeline or one of several. Call it once for each: what it makes is
    /// never freed.
    pub fn named(name: &str, is_alone: bool) -> Self {
        let kept = if name == super::STAGE { super::STAGE } else { String::leak(name.to_owned()) };
        if is_alone { Self { name: kept, ..Self::ALONE } } else { Self::one_of_several(kept) }
    }

    /// The firewalls of a pipeline, by their names, which differ. Call it once for a pipeline, and give the stages of
    /// all workers what it makes, for that is never freed. One by itself is [`Instance::ALONE`] but for its name; of
    /// several each has a column of its own, whose kernels copy what they found there.
    pub fn of_pipeline(names: &[&str]) -> Vec<Self> {
        names.iter().map(|name| Self::named(name, names.len() == 1)).collect()
    }

    fn one_of_several(name: &'static str) -> Self {
        let own = ColumnDesc {
            name: String::leak(column_name(name)),
            ..*FilterColumns::FILTER_RULE.desc()
        };
        let shade: Declaration = Vec::leak([FilterColumns::COLUMNS, &[own]].concat());
        let columns = vec![HeaderColumns::COLUMNS, shade];
        let in_router = [&columns[..], &[RouterColumns::COLUMNS]].concat();
        let of_flows = |more: &[Declaration]| {
            [&columns, &in_router].map(|own| -> &'static [Declaration] {
                Vec::leak([&own[..], &[FlowColumns::COLUMNS], more].concat())
            })
        };
        Self {
            name,
            shade,
            columns_of_flows: [of_flows(&[]), of_flows(&[L7Columns::COLUMNS])],
            columns: Vec::leak(columns),
            columns_in_router: Vec::leak(in_router),
        }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The column of the rule that was found for each row: its id, 0 for the default,
    /// [`NOT_JUDGED`](super::kernels::NOT_JUDGED) for none.
    pub fn rule(&self) -> ColumnId {
        ColumnId::of(self.shade, self.shade.len() - 1)
    }

    /// Whether the kernels write the rule to a column that all firewalls share, from which it is copied to the own one.
    pub(super) fn copies_rule(&self) -> bool {
        self.shade.len() > FilterColumns::COLUMNS.len()
    }

    /// What the shade writes.
    pub(super) fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[FilterColumns::FILTER_RULE, self.rule()])
    }

    pub(super) fn columns(
        &self,
        is_in_router: bool,
        has_states: bool,
        has_applications: bool,
    ) -> &'static [Declaration] {
        match (is_in_router, has_states) {
            (_, true) => {
                self.columns_of_flows[usize::from(has_applications)][usize::from(is_in_router)]
            }
            (true, false) => self.columns_in_router,
            (false, false) => self.columns,
        }
    }

    /// The columns of the shade.
    pub(super) fn view<'a>(&self, rows: &'a mut Rows) -> ShadeView<'a> {
        let mut split = rows.split(self.shade);
        let verdict = split.column::<u32>();
        let _context = split.column::<u32>();
        let family = split.column();
        let [head0, head1, head2] = std::array::from_fn(|_| split.column());
        let shared = split.column();
        let (rule, shared) = match self.copies_rule() {
            true => (split.column(), Some(shared)),
            false => (shared, None),
        };
        ShadeView { verdict, family, head0, head1, head2, rule, shared }
    }
}

/// The column of a firewall's rules: a C identifier of its own for each name, also where case is lost.
fn column_name(stage: &str) -> String {
    let mut name = String::from("filter_rule_");
    for byte in stage.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' => name.push(char::from(byte)),
            _ => name += &format!("_{byte:02x}"),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use chunk::{Arena, Layout};

    use super::*;

    #[test]
    fn each_name_has_a_column_of_its_own() {
        let names = ["edge", "Edge", "EDGE", "ed-ge", "ed_ge", "ed_2dge", "é", "filter", "a"];
        let columns: HashSet<_> =
            names.iter().map(|name| column_name(name).to_uppercase()).collect();
        assert_eq!(columns.len(), names.len());
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        assert!(columns.iter().all(|name| name.chars().all(is_word)), "{columns:?}");
        for name in ["firewall", "edge"] {
            let [alone] = Instance::of_pipeline(&[name])[..] else { panic!("one") };
            assert_eq!((alone.rule(), alone.name()), (FilterColumns::FILTER_RULE, name));
        }
        let both = Instance::of_pipeline(&["firewall", "edge"]);
        let columns: Vec<_> = both.iter().map(|instance| instance.rule().name).collect();
        assert_eq!(columns, ["filter_rule_firewall", "filter_rule_edge"]);
    }

    #[test]
    fn firewalls_share_the_header_and_nothing_else() {
        let several = Instance::of_pipeline(&["one", "other", "firewall"]);
        let all: Vec<_> =
            several.iter().flat_map(|i| i.columns(true, true, true)).copied().collect();
        let layout = Layout::join(&all, 8).unwrap();
        let mut rows = Arena::new(layout).reserve(8).unwrap();
        for (at, instance) in several.iter().enumerate() {
            let view = instance.view(&mut rows);
            view.rule.fill(at as u32 + 1);
            view.family[at] = 4;
            view.head0[at] = [at as u64, 7];
        }
        for (at, instance) in several.iter().enumerate() {
            let view = instance.view(&mut rows);
            assert!(view.rule.iter().all(|rule| *rule == at as u32 + 1));
            assert_eq!(view.family[..4], [4, 4, 4, 0]);
            assert_eq!(view.head0[2], [2, 7]);
        }
    }
}
