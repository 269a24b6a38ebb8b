//! Segments: consecutive stages that are shaded together, and the program that a device runs for them.

use chunk::{ColumnDesc, ColumnId, ColumnSet};
use device::accelerator::{PayloadUse, SegmentProgram, Step};
use device::driver::Program;

use crate::stage::Stage;

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

/// The segment as a device's driver runs it; `None` if some shade has no kernels.
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
    let mut payload_steps = 0;
    for stage in stages {
        let form = stage.shader()?.kernels()?;
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
        }
        state_bytes = state_bytes.max(form.state_bytes);
    }
    let spec = kernels::Spec::new("segment", &files, columns);
    let source = texts.iter().fold(kernels::source(&spec), |text, own| text + own);
    let name = stages.iter().map(|stage| stage.name()).collect::<Vec<_>>().join("+");
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
        state_bytes,
    })
}

/// Cuts a pipeline into segments: stages with a device form that follow one another go together,
/// until one needs the packets rewritten; every other stage stands alone.
pub fn segments<T>(stages: &[Box<dyn Stage<T>>]) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut open = false;
    for (i, stage) in stages.iter().enumerate() {
        let shader = stage.shader();
        let on_device = shader.is_some();
        let form = shader.and_then(|shader| shader.kernels());
        let has_state = form.is_some_and(|form| form.state_bytes > 0);
        match segments.last_mut() {
            // A segment has at most one stage with state.
            Some(last) if open && on_device && !(has_state && last.has_state) => {
                last.end = i + 1;
                last.has_state |= has_state;
            }
            _ => segments.push(Segment { first: i, end: i + 1, on_device, has_state }),
        }
        open = on_device && !stage.ends_segment();
    }
    segments
}
