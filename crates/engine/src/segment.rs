//! Segments: consecutive stages that are shaded together, and the program that a device runs for them.

use chunk::{ColumnDesc, ColumnId, ColumnSet};
use device::accelerator::{PayloadUse, SegmentProgram, Step};
use device::driver::Program;

use crate::stage::{Stage, Steps};

/// What a device runs in place of a shade: the same columns in, the same bytes out.
#[derive(Clone, Debug, Default)]
pub struct KernelForm {
    /// Names of the files of the crate `kernels` that hold them.
    pub files: &'static [&'static str],
    /// A source of the stage's own, in the kernel dialect.
    pub text: &'static str,
    /// The kernels, one behind the other, with the work items of a group.
    pub steps: &'static [(&'static str, u32)],
    /// Work items that one row may have: see [`Step::items_per_row`]. 0 is 1.
    pub items_per_row: u32,
    /// How they use packets' bytes.
    pub payload: Option<PayloadUse>,
    /// Whether kernels of `text` are known to keep to their rows' bytes: they may then read packets where they are,
    /// between the bytes of others. Kernels of `files` always do.
    pub is_trusted: bool,
    /// Bytes of a shard's state; 0 for a shade without. Each worker's instance of the stage is one
    /// shard, for packets of a flow belong to one worker. A shard has one home, its worker or the
    /// device, and moves as a whole when nothing of it is under way; never does a single job.
    pub state_bytes: usize,
}

/// Consecutive stages that are shaded together, between one pre-shade and one post-shade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First stage.
    pub first: usize,
    /// One past the last stage.
    pub end: usize,
    /// Whether a device can shade it.
    pub on_device: bool,
    /// Whether one of its stages keeps state.
    pub has_state: bool,
}

/// The segment as a device's driver runs it; `None` if a shade of it has no kernels, or none has any.
pub(crate) fn segment_program<T>(
    stages: &[Box<dyn Stage<T>>],
    segment: Segment,
    columns: &'static [ColumnDesc],
) -> Option<SegmentProgram> {
    let stages = &stages[segment.first..segment.end];
    let mut files: Vec<&'static str> = Vec::new();
    let mut texts: Vec<&'static str> = Vec::new();
    // The engine reads the verdicts, kernels look at them and may change them.
    let verdict = ColumnSet::of(&[ColumnId(0)]);
    let (mut reads, mut writes) = (verdict, verdict);
    let (mut steps, mut payload, mut state_bytes) = (Vec::new(), None::<PayloadUse>, 0);
    let (mut payload_steps, mut is_trusted) = (0, true);
    let mut names = Vec::new();
    for stage in stages {
        // A stage without a shade has done its part before.
        let Some(shader) = stage.shader() else { continue };
        let form = shader.kernels()?;
        names.push(stage.name());
        files.extend(form.files.iter().filter(|file| !files.contains(file)).collect::<Vec<_>>());
        if !form.text.is_empty() && !texts.contains(&form.text) {
            texts.push(form.text);
        }
        steps.extend(form.steps.iter().map(|&(kernel, items)| Step {
            kernel,
            items,
            items_per_row: form.items_per_row.max(1),
        }));
        reads = reads.union(stage.reads().without(writes));
        writes = writes.union(stage.writes());
        if let Some(uses) = form.payload {
            let before = payload.get_or_insert(uses);
            before.writes |= uses.writes;
            payload_steps += form.steps.len();
            is_trusted &= form.text.is_empty() || form.is_trusted;
        }
        state_bytes = state_bytes.max(form.state_bytes);
    }
    let spec = kernels::Spec::new("segment", &files, columns);
    let source = texts.iter().fold(kernels::source(&spec), |text, own| text + own);
    if names.is_empty() {
        return None;
    }
    let name = names.join("+");
    let program = Program { name, source, defines: Vec::new(), ptx: None };
    let fills = ColumnSet::EMPTY;
    Some(SegmentProgram {
        program,
        steps,
        reads,
        writes,
        fills,
        payload,
        payload_steps,
        is_trusted,
        state_bytes,
    })
}

/// What the newest segment still takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    /// Nothing.
    Nothing,
    /// Stages with kernels.
    Kernels,
    /// Any stage: it has stages of pre-shades alone so far.
    Any,
}

/// Cuts a pipeline into segments.
///
/// Stages whose shades have kernels and that follow one another go together, until one needs the packets
/// rewritten. A stage whose shade has none is a segment of its own, for the CPU; the stages beside it keep
/// their device. Stages that do nothing but pre-shade ([`Steps::PRE`], and no shade) join the segment behind
/// them, so that their columns are filled where that segment's job lies. All pre-shades of a segment run
/// before its first shade: those stages come first in it, so none of them is moved before a shade or a
/// post-shade that it stood behind.
///
/// What the segments are follows from the stages alone, whatever device there is.
pub fn segments<T>(stages: &[Box<dyn Stage<T>>]) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut open = Open::Nothing;
    for (i, stage) in stages.iter().enumerate() {
        let shader = stage.shader();
        let is_bare = shader.is_none() && stage.steps() == Steps::PRE && !stage.ends_segment();
        let form = shader.and_then(|shader| shader.kernels());
        let on_device = form.is_some();
        let has_state = form.is_some_and(|form| form.state_bytes > 0);
        match segments.last_mut() {
            Some(last) if open == Open::Any => {
                *last = Segment { first: last.first, end: i + 1, on_device, has_state };
            }
            // A segment has at most one stage with state.
            Some(last) if open == Open::Kernels && on_device && !(has_state && last.has_state) => {
                last.end = i + 1;
                last.has_state |= has_state;
            }
            _ => segments.push(Segment { first: i, end: i + 1, on_device, has_state }),
        }
        open = match () {
            () if is_bare => Open::Any,
            () if on_device && !stage.ends_segment() => Open::Kernels,
            () => Open::Nothing,
        };
    }
    segments
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chunk::Rows;
    use proptest::prelude::*;

    use super::*;
    use crate::stage::Shade;

    /// A stage of some kind, and a shade of the same kind.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Kind {
        /// Only a pre-shade.
        Pre,
        /// Only a post-shade.
        Post,
        /// A shade without kernels.
        Shade,
        /// A shade with kernels.
        Kernels,
        /// The same, with state.
        State,
        /// With kernels, and the last of its segment.
        Last,
    }

    impl Stage<()> for Kind {
        fn name(&self) -> &'static str {
            "kind"
        }
        fn steps(&self) -> Steps {
            if *self == Kind::Pre { Steps::PRE } else { Steps::BOTH }
        }
        fn ends_segment(&self) -> bool {
            *self == Kind::Last
        }
        fn shader(&self) -> Option<Arc<dyn Shade<()>>> {
            match self {
                Kind::Pre | Kind::Post => None,
                _ => Some(Arc::new(*self)),
            }
        }
    }

    impl Shade<()> for Kind {
        fn shade(&self, _: &mut Rows, (): &()) {}
        fn kernels(&self) -> Option<KernelForm> {
            let state_bytes = if *self == Kind::State { 4 } else { 0 };
            (*self != Kind::Shade).then(|| KernelForm { state_bytes, ..KernelForm::default() })
        }
    }

    fn cut(kinds: &[Kind]) -> Vec<(usize, usize, bool)> {
        let stages: Vec<Box<dyn Stage<()>>> =
            kinds.iter().map(|kind| Box::new(*kind) as Box<_>).collect();
        segments(&stages).iter().map(|s| (s.first, s.end, s.on_device)).collect()
    }

    #[test]
    fn a_shade_without_kernels_leaves_its_neighbours_their_device() {
        use Kind::{Kernels, Post, Shade};
        assert_eq!(
            cut(&[Kernels, Shade, Kernels, Kernels, Post]),
            [(0, 1, true), (1, 2, false), (2, 4, true), (4, 5, false)]
        );
    }

    #[test]
    fn stages_that_only_pre_shade_join_the_segment_behind_them() {
        use Kind::{Kernels, Last, Post, Pre, Shade};
        assert_eq!(cut(&[Pre, Last, Kernels, Post]), [(0, 2, true), (2, 3, true), (3, 4, false)]);
        assert_eq!(cut(&[Pre, Pre, Kernels, Kernels]), [(0, 4, true)]);
        assert_eq!(cut(&[Pre, Post, Kernels]), [(0, 2, false), (2, 3, true)]);
        assert_eq!(cut(&[Pre, Shade, Kernels]), [(0, 2, false), (2, 3, true)]);
        // Behind a shade they see what it did.
        assert_eq!(cut(&[Kernels, Pre, Kernels]), [(0, 1, true), (1, 3, true)]);
        assert_eq!(cut(&[Kernels, Pre]), [(0, 1, true), (1, 2, false)]);
    }

    proptest! {
        /// Segments cover the stages in order; no pre-shade runs before a shade or a post-shade that it stood
        /// behind, but for that of a stage with kernels; a device segment has kernels in each stage with a shade.
        #[test]
        fn a_cut_keeps_the_order_of_what_depends_on_it(kinds in prop::collection::vec(0u8..6, 0..12)) {
            let kinds: Vec<Kind> = kinds
                .into_iter()
                .map(|kind| match kind {
                    0 => Kind::Pre,
                    1 => Kind::Post,
                    2 => Kind::Shade,
                    3 => Kind::Kernels,
                    4 => Kind::State,
                    _ => Kind::Last,
                })
                .collect();
            let cut = cut(&kinds);
            let ends: Vec<usize> = cut.iter().map(|(_, end, _)| *end).collect();
            let firsts: Vec<usize> = cut.iter().map(|(first, ..)| *first).collect();
            prop_assert_eq!(&firsts[..], &[&[0][..], &ends].concat()[..ends.len()]);
            prop_assert_eq!(ends.last().copied().unwrap_or(0), kinds.len());
            for (first, end, on_device) in cut {
                let stages = &kinds[first..end];
                let bare = stages.iter().take_while(|kind| **kind == Kind::Pre).count();
                let rest = &stages[bare..];
                let has_kernels = |kind: &Kind| matches!(kind, Kind::Kernels | Kind::State | Kind::Last);
                if on_device {
                    prop_assert!(!rest.is_empty() && rest.iter().all(has_kernels));
                    prop_assert!(rest.iter().filter(|kind| **kind == Kind::State).count() <= 1);
                    prop_assert!(!rest[..rest.len() - 1].contains(&Kind::Last));
                } else {
                    prop_assert!(rest.len() <= 1 && !rest.iter().any(has_kernels));
                }
            }
        }
    }
}
