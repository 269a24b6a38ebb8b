//! In debug builds: a stage that writes a column which it did not declare panics, and its chunk is dropped.
//!
//! The columns of a chunk are copied before each step of a stage on the CPU, and compared behind it.

use std::any::Any;

use chunk::{CHUNK_PACKETS_MAX, ColumnDesc, ColumnId, ColumnSet, Layout, Rows};

use crate::stage::{Phases, Stage};

/// A step of a stage that works on rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Pre,
    Shade,
    Post,
}

/// What the stages of a worker may write, and what was there before.
pub(super) struct Declared {
    columns: Vec<ColumnDesc>,
    stages: Vec<OfStage>,
    /// The bytes of all columns, one behind the other.
    before: Vec<u8>,
}

/// By column: whether a stage may write it,
struct OfStage {
    name: &'static str,
    /// in its steps on packets, `context` apart,
    declared: Vec<bool>,
    /// and in its shade.
    shaded: Vec<bool>,
    sets_context: Phases,
}

impl Declared {
    /// For these stages, of a worker whose columns are those of `layout`.
    pub(super) fn new<T>(stages: &[Box<dyn Stage<T>>], layout: &Layout) -> Self {
        let columns = layout.columns().to_vec();
        let verdict = ColumnSet::of(&[ColumnId::VERDICT]);
        let of_stage = |stage: &dyn Stage<T>| {
            let own: Vec<&ColumnDesc> = stage.columns().iter().copied().flatten().collect();
            let is_own = |column: &ColumnDesc| {
                let is_common = column == ColumnId::CONTEXT.desc();
                !is_common && own.contains(&column) || verdict.contains(column)
            };
            let shaded = stage.writes().union(&verdict);
            OfStage {
                name: stage.name(),
                declared: columns.iter().map(is_own).collect(),
                shaded: columns.iter().map(|column| shaded.contains(column)).collect(),
                sets_context: stage.sets_context(),
            }
        };
        let stages = stages.iter().map(|stage| of_stage(&**stage)).collect();
        let bytes = columns.iter().map(|column| column.width).sum::<usize>() * CHUNK_PACKETS_MAX;
        Self { columns, stages, before: Vec::with_capacity(bytes) }
    }

    /// Keeps what is in the columns.
    pub(super) fn remember(&mut self, rows: &Rows) {
        self.before.clear();
        for column in 0..self.columns.len() {
            self.before.extend_from_slice(rows.column_bytes(column));
        }
    }

    /// Whether a step of the stage at place `stage` has changed only what it may.
    ///
    /// # Errors
    /// What its panic says.
    pub(super) fn check(
        &self,
        stage: usize,
        step: Step,
        rows: &Rows,
    ) -> Result<(), Box<dyn Any + Send>> {
        let OfStage { name, declared, shaded, sets_context } = &self.stages[stage];
        let mut at = 0;
        for (place, column) in self.columns.iter().enumerate() {
            let now = rows.column_bytes(place);
            let before = self.before.get(at..at + now.len());
            at += now.len();
            let is_context = column == ColumnId::CONTEXT.desc();
            let may_write = match step {
                Step::Shade => shaded[place],
                Step::Pre => declared[place] || is_context && sets_context.pre_shade,
                Step::Post => declared[place] || is_context && sets_context.post_shade,
            };
            if !may_write && before != Some(now) {
                let column = column.name;
                let message =
                    format!("stage `{name}` wrote column `{column}`, which it did not declare");
                return Err(Box::new(message));
            }
        }
        Ok(())
    }
}
