//! The columns of a pipeline: what its stages declare, joined once, at start.

use std::sync::Arc;

use chunk::{ColumnId, ColumnSet, Columns, Declaration, Layout, LayoutError, Rows, Verdict};

use crate::stage::{Stage, has_state};

chunk::columns! {
    /// The engine's own: in the layout where a stage keeps state on devices.
    pub struct Shard / ShardView {
        /// The shard of state that the row belongs to: the number of its worker. The engine writes it before a job.
        pub shard: u32,
    }
}

/// Why the columns of some stages make no pipeline.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnsError {
    /// Two stages declare columns of one name but different types.
    #[error("stages `{first}` and `{second}`: {error}")]
    Clash {
        /// The stage that comes first.
        first: &'static str,
        /// The other one.
        second: &'static str,
        /// The column and its types.
        error: LayoutError,
    },
    /// The declaration of one stage is wrong.
    #[error("stage `{stage}`: {error}")]
    Stage {
        /// The stage.
        stage: &'static str,
        /// What is wrong.
        error: LayoutError,
    },
    /// All columns together are too large.
    #[error("{0}")]
    Layout(LayoutError),
    /// A stage names a column that no stage declares with that type.
    #[error("stage `{stage}` names column `{column}`, which no stage declares with that type")]
    Unknown {
        /// The stage.
        stage: &'static str,
        /// The column.
        column: &'static str,
    },
}

/// The layout of all columns that some stages declare, for `capacity` rows. The stages may be those of one worker or
/// of several.
///
/// # Errors
/// Declarations that do not fit together; a column in a set of a stage that no stage declares.
pub fn layout<'a, T: 'a>(
    stages: impl Iterator<Item = &'a dyn Stage<T>>,
    capacity: usize,
) -> Result<Layout, ColumnsError> {
    let stages: Vec<_> = stages.collect();
    let mut declared: Vec<(&'static str, Declaration)> = stages
        .iter()
        .flat_map(|stage| stage.columns().iter().map(|columns| (stage.name(), *columns)))
        .collect();
    let keeper = |stage: &&dyn Stage<T>| stage.shader().is_some_and(|shade| has_state(&*shade));
    if let Some(stage) = stages.iter().copied().find(keeper) {
        declared.push((stage.name(), Shard::COLUMNS));
    }
    let columns: Vec<Declaration> = declared.iter().map(|(_, columns)| *columns).collect();
    let name = |declaration: usize| declared[declaration].0;
    let layout = Layout::join(&columns, capacity).map_err(|error| match error {
        LayoutError::Clash { first: (_, Some(first)), second: (_, second) } => {
            ColumnsError::Clash { first: name(first), second: name(second), error }
        }
        LayoutError::Clash { second: (_, declaration), .. }
        | LayoutError::Twice { declaration, .. } => {
            ColumnsError::Stage { stage: name(declaration), error }
        }
        LayoutError::TooLarge { .. } => ColumnsError::Layout(error),
    })?;
    for stage in stages {
        let named = [stage.reads(), stage.writes(), stage.zeroed()];
        if let Some(unknown) = named
            .iter()
            .flat_map(ColumnSet::iter)
            .find(|column| column.place_in(layout.columns()).is_none())
        {
            return Err(ColumnsError::Unknown { stage: stage.name(), column: unknown.name });
        }
    }
    Ok(layout)
}

/// The columns that start a chunk as zero: verdict, context, and what stages ask for.
pub(crate) fn zeroed<'a, T: 'a>(
    stages: impl Iterator<Item = &'a dyn Stage<T>>,
    layout: &Layout,
) -> Arc<[usize]> {
    let common = ColumnSet::of(&[ColumnId::VERDICT, ColumnId::CONTEXT]);
    let all = stages.fold(common, |all, stage| all.union(&stage.zeroed()));
    let mut places: Vec<usize> =
        all.iter().filter_map(|column| column.place_in(layout.columns())).collect();
    places.sort_unstable();
    places.into()
}

// The verdict of a chunk's packets at its start is a zero.
const _: () = assert!(Verdict::NEXT.0 == 0);

/// Makes rows ready for the packets of a new chunk: all have the verdict next, and the columns of [`zeroed`] are zero.
pub(crate) fn begin(rows: &mut Rows, zeroed: &[usize]) {
    rows.clear(zeroed);
}

#[cfg(test)]
mod tests {
    use super::*;

    chunk::columns! { struct One / OneView { pub flags: u16, pub dst: u32, } }
    chunk::columns! { struct Two / TwoView { pub dst: u32, pub rule: u64, } }
    chunk::columns! { struct Clashing / ClashingView { pub dst: u64, } }

    struct Test {
        name: &'static str,
        columns: &'static [Declaration],
        reads: &'static [ColumnId],
        zeroed: &'static [ColumnId],
    }

    impl Stage<()> for Test {
        fn name(&self) -> &'static str {
            self.name
        }
        fn columns(&self) -> &'static [Declaration] {
            self.columns
        }
        fn reads(&self) -> ColumnSet {
            ColumnSet::of(self.reads)
        }
        fn zeroed(&self) -> ColumnSet {
            ColumnSet::of(self.zeroed)
        }
    }

    fn test(name: &'static str, columns: &'static [Declaration]) -> Test {
        Test { name, columns, reads: &[], zeroed: &[] }
    }

    fn of(stages: &[Test]) -> Result<Layout, ColumnsError> {
        layout(stages.iter().map(|stage| stage as &dyn Stage<()>), 8)
    }

    #[test]
    fn what_stages_declare_is_joined() {
        let one = Test { reads: &[Two::RULE], ..test("one", &[One::COLUMNS]) };
        let two = Test { zeroed: &[Two::RULE, Two::DST], ..test("two", &[Two::COLUMNS]) };
        let stages = [one, two, test("plain", &[])];
        let layout = of(&stages).unwrap();
        let names: Vec<_> = layout.columns().iter().map(|column| column.name).collect();
        assert_eq!(names, ["verdict", "context", "flags", "dst", "rule"]);
        let stages = stages.iter().map(|stage| stage as &dyn Stage<()>);
        assert_eq!(*zeroed(stages, &layout), [0, 1, 3, 4]);
    }

    #[test]
    fn errors_name_the_stages() {
        let one = || test("one", &[One::COLUMNS]);
        let text = |stages: &[Test]| of(stages).unwrap_err().to_string();
        assert_eq!(
            text(&[one(), test("other", &[Two::COLUMNS, Clashing::COLUMNS])]),
            "stages `one` and `other`: column `dst` is declared as uint (4 bytes) and as ulong (8 bytes)"
        );
        let reader = Test { reads: &[Two::RULE], ..test("reader", &[]) };
        assert_eq!(
            text(&[one(), reader]),
            "stage `reader` names column `rule`, which no stage declares with that type"
        );
        let wrong = Test { zeroed: &[Clashing::DST], ..test("wrong", &[]) };
        let unknown = ColumnsError::Unknown { stage: "wrong", column: "dst" };
        assert_eq!(of(&[one(), wrong]), Err(unknown));
    }
}
