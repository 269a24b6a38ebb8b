//! Segments: consecutive stages that are shaded together, and the program that a device runs for them.
//!
//! ```text
//!  dialect, columns, files of the crate `kernels`
//!  │ #define STAGE_NUMBER 0, parameters, memory, kernels' names │ #line 1 "FILE" │ text of a stage │ #undef … │
//!  │ #define STAGE_NUMBER 1, …                                  │ #line 1 "FILE" │ text of another │ #undef … │
//! ```
//!
//! Each instance of a stage has a copy of its text with names and numbers of its own; two that are the same share
//! one.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use chunk::{ColumnDesc, ColumnId, ColumnSet, Declaration, Layout, LayoutError};
use device::accelerator::{Area, Output, PayloadUse, SegmentProgram, State, StateForm, Step, Work};
use device::driver::Program;
use kernels::plan::OrderPlan;
use kernels::{KernelFile, files};

use crate::columns::Shard;
use crate::context::{self, HIDDEN};
use crate::stage::{Phases, Shade, Stage};

/// What a device runs in place of a shade: the same columns in, the same bytes out.
#[derive(Clone, Debug, Default)]
pub struct KernelForm {
    /// The files that hold them: of the crate `kernels`, or the application's own. All instances of a stage share them.
    pub files: &'static [&'static KernelFile],
    /// A source of the stage's own, in the kernel dialect.
    pub text: Cow<'static, str>,
    /// The name of its file, for compilers' messages: they name it and the line in `text`. Empty: the stage's name.
    pub file: Cow<'static, str>,
    /// Numbers that `text` uses by their names, as macros of this instance of the stage alone.
    pub parameters: Parameters,
    /// The kernels, one behind the other.
    pub steps: Vec<KernelStep>,
    /// How they use packets' bytes.
    pub payload: Option<PayloadUse>,
    /// Whether kernels of `text` are known to keep to their rows' bytes: they may then read packets where they are,
    /// between the bytes of others. Kernels of `files` always do.
    pub is_trusted: bool,
    /// The kernels see only rows with one of these contexts; 0: all. [`InContext`](crate::InContext) sets it.
    pub contexts: u32,
    /// How long each kernel may run. One that is slower ends the use of the device for this stage; the stage is a
    /// segment of its own, so that the others keep theirs. See [`Step::limit`].
    pub time_limit: Option<Duration>,
    /// Memory of a job for `text`: `SCRATCH(arena)`, of `SCRATCH_BYTES(arena)` bytes.
    pub scratch: Option<Scratch>,
    /// By which columns [`KernelStep::Sort`] sorts the rows, the first one first.
    pub sort: Vec<SortKey>,
    /// Records that kernels write for rows, and that [`Shade::records`](crate::Shade::records) gets.
    pub output: Option<OutputForm>,
    /// Records by slot that stay from job to job: `STATE_RECORD(arena, state, row, slot)` is where the record of a
    /// slot of the row's shard is, `STATE_SLOTS(arena, state, row)` how many slots it has. A slot that there is not
    /// has a record that means nothing. Each worker's instance of the stage is one shard, for packets of a flow
    /// belong to one worker. A shard has one home, its worker or the device, and moves as a whole when nothing of it
    /// is under way; never does a single job. A job has the rows of many shards, those of each in order of their
    /// packets; kernels treat rows of one slot of one shard in that order (a sort by `shard` and the slot keeps it).
    ///
    /// A step is sent whole, with slots that the shard does not have yet: their records are zero on the device until a
    /// kernel writes them. What a new record starts with, a stage says in columns.
    pub state: Option<StateForm>,
}

/// Names, each of them a C identifier, and numbers.
pub type Parameters = Vec<(Cow<'static, str>, Parameter)>;

/// A number that a kernel is compiled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// Of 32 bits.
    U32(u32),
    /// Of 64 bits.
    U64(u64),
}

/// One of the launches of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelStep {
    /// A kernel of `text` or of `files`.
    Kernel(Step),
    /// Sorts the rows by [`KernelForm::sort`]. Behind it `SORTED(arena)[i]` is the i-th row: all rows, settled ones
    /// too, rows of equal columns in their order.
    Sort,
    /// Finds where the records of each row start. Before it a kernel counts: `OUTPUT_COUNT(arena, row, words)`, once
    /// for each row that has any. Behind it one writes: `OUTPUT_WORD(arena, row, i, value)`, for each of those words.
    /// Rows are numbered from 0.
    ScanOutput,
}

impl From<Step> for KernelStep {
    fn from(step: Step) -> Self {
        KernelStep::Kernel(step)
    }
}

/// Memory of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scratch {
    /// Bytes, whatever the rows,
    pub bytes: usize,
    /// and for each row.
    pub bytes_per_row: usize,
    /// Whether it is zero before the stage's first kernel; else it is anything.
    pub is_zeroed: bool,
}

/// A column to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// The column, of at most eight bytes.
    pub column: ColumnId,
    /// Its lowest bits, which are looked at. All columns of a sort have 64 at most. Four bits cost three launches.
    pub bits: u32,
}

/// How much a stage's kernels may write for the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputForm {
    /// Words of four bytes for a row, at most.
    pub words_per_row: u32,
    /// Words for a job, at most. A job that has more is done again on the CPU. All of that comes back from each job.
    pub words_per_job: u32,
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
    columns: &[ColumnDesc],
    shards: usize,
) -> Option<SegmentProgram> {
    let stages = &stages[segment.first..segment.end];
    // The engine reads the verdicts, kernels look at them and may change them.
    let verdict = ColumnSet::of(&[ColumnId::VERDICT]);
    let mut made = SegmentProgram {
        reads: verdict.clone(),
        writes: verdict,
        is_trusted: true,
        shards,
        ..SegmentProgram::default()
    };
    let (mut used, mut texts) = (Vec::new(), Texts::new(columns));
    let mut names = Vec::new();
    for stage in stages {
        // A stage without a shade has done its part before.
        let Some(shader) = stage.shader() else { continue };
        let form = shader.kernels()?;
        names.push(stage.name());
        texts.see(stage.name(), form.contexts, &mut made);
        texts.add(stage.name(), &form, &mut made);
        used.extend_from_slice(form.files);
        let sorted: Vec<ColumnId> = form.sort.iter().map(|key| key.column).collect();
        let reads = stage.reads().union(&ColumnSet::of(&sorted));
        made.reads = made.reads.union(&reads.without(&made.writes));
        made.writes = made.writes.union(&stage.writes());
        if let Some(uses) = form.payload {
            let before = made.payload.get_or_insert(uses);
            before.writes |= uses.writes;
            let is_kernel = |step: &&KernelStep| matches!(step, KernelStep::Kernel(_));
            made.payload_steps += form.steps.iter().filter(is_kernel).count();
            made.is_trusted &= form.text.is_empty() || form.is_trusted;
        }
    }
    if !made.states.is_empty() {
        made.reads = made.reads.union(&ColumnSet::of(&[Shard::SHARD]));
    }
    // A stage that writes the context changes what is there, so it is read and written, like the verdict.
    let context = ColumnSet::of(&[ColumnId::CONTEXT]);
    made.reads = made.reads.union(&context.intersection(&made.writes));
    texts.see(names.last()?, 0, &mut made);
    for library in [&files::AREAS, &files::ORDER] {
        if made.steps.iter().any(|step| library.kernel(&step.kernel).is_some()) {
            used.push(library);
        }
    }
    let mut once = Vec::new();
    used.iter().for_each(|file: &&'static KernelFile| {
        if !once.contains(file) {
            once.push(*file);
        }
    });
    let spec = kernels::Spec::new("segment", &once, columns);
    for step in &mut made.steps {
        // Those of the crate's kernels that share memory have as many items as the program was built for.
        if step.items == WHOLE_GROUP {
            step.items = spec.group_items;
            if let Work::Tiles { rows } = &mut step.work {
                *rows = spec.group_items * OrderPlan::ROWS_PER_ITEM;
            }
        }
    }
    let source = kernels::source(&spec) + &texts.text;
    made.program = Program { name: names.join("+"), source, ..Program::default() };
    Some(made)
}

/// The programs that a device builds for stages with columns of their own alone, each with the names of its kernels: to find
/// out whether they compile.
///
/// # Errors
/// Two columns do not fit.
pub fn device_programs<T>(
    stages: &[Box<dyn Stage<T>>],
) -> Result<Vec<(Program, Vec<String>)>, LayoutError> {
    let columns: Vec<Declaration> =
        stages.iter().flat_map(|stage| stage.columns().iter().copied()).collect();
    let layout = Layout::join(&columns, 1)?;
    let on_device = segments(stages).into_iter().filter(|segment| segment.on_device);
    let made = on_device.filter_map(|segment| {
        let made = segment_program(stages, segment, layout.columns(), 1)?;
        let names = made.steps.iter().flat_map(|step| {
            let instead = step.part.as_ref().map(|part| part.instead.clone().into_owned());
            [step.kernel.clone().into_owned()].into_iter().chain(instead)
        });
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names.dedup();
        Some((made.program, names))
    });
    Ok(made.collect())
}

/// What the shades of a segment keep, in the order of [`SegmentProgram::states`].
pub(crate) fn states<T>(stages: &[Box<dyn Stage<T>>], segment: Segment) -> Vec<State> {
    let shades = stages[segment.first..segment.end].iter().filter_map(|stage| stage.shader());
    let form = |(shade, form): (usize, StateForm)| State { form, shade };
    let kept = |shade: Arc<dyn Shade<T>>| shade.kernels().and_then(|form| form.state);
    shades.map(kept).enumerate().filter_map(|(i, state)| Some(form((i, state?)))).collect()
}

/// In [`Step::items`] until the program's own number is known.
const WHOLE_GROUP: u32 = 0;

/// The texts of stages, one behind the other.
struct Texts<'a> {
    text: String,
    /// The contexts of the rows that kernels see behind the steps so far; and whether they were ever others than all.
    sees: u32,
    has_hidden: bool,
    columns: &'a [ColumnDesc],
    /// Which instances have a text without memory of its own: it, its parameters, and the instance's number.
    known: Vec<(Cow<'static, str>, Parameters, usize)>,
    stages: usize,
}

impl<'a> Texts<'a> {
    fn new(columns: &'a [ColumnDesc]) -> Self {
        Self {
            text: String::new(),
            sees: 0,
            has_hidden: false,
            columns,
            known: Vec::new(),
            stages: 0,
        }
    }

    /// From here on kernels see the rows of these contexts.
    fn see(&mut self, stage: &'static str, contexts: u32, made: &mut SegmentProgram) {
        if contexts == self.sees {
            return;
        }
        if !std::mem::replace(&mut self.has_hidden, true) {
            let hidden = HIDDEN.0;
            let _ = write!(
                self.text,
                "
KERNEL(see_contexts)
{{
    if (GLOBAL_ID < job_rows(arena)) {{
        const uint row = JOB_FIRST(arena) + GLOBAL_ID;
        const uint verdict = COL_VERDICT(arena)[row];
        if (IS_NEXT(verdict) || verdict == {hidden:#x}u)
            COL_VERDICT(arena)[row] = job == 0u || (COL_CONTEXT(arena)[row] & job) != 0u ? VERDICT_NEXT : {hidden:#x}u;
    }}
}}
"
            );
        }
        self.sees = contexts;
        made.steps.push(Step { stage, ..Step::rows("see_contexts", 256).with_job(contexts) });
    }

    /// Adds a stage's text, and its steps and memory to `made`.
    fn add(&mut self, stage: &'static str, form: &KernelForm, made: &mut SegmentProgram) {
        let shade = self.stages;
        self.stages += 1;
        let mut steps = Vec::new();
        let mut defines = String::new();
        let mut names: Vec<&str> = Vec::new();
        let mut define = |name: &'static str, arguments: &str, value: String| {
            let _ = writeln!(defines, "#define {name}{arguments} {value}"); // writing to a String cannot fail
            names.push(name);
        };
        let clear = |area: usize, size: Area| {
            let words = |bytes: usize| bytes.div_ceil(4) as u32;
            let list = Step::list("clear_area", 256, words(size.fixed), words(size.per_row));
            list.with_job(area as u32)
        };
        if let Some(scratch) = form.scratch {
            let (area, size) = (
                made.areas.len(),
                Area { fixed: scratch.bytes, per_row: scratch.bytes_per_row, max: 0 },
            );
            made.areas.push(size);
            define("SCRATCH", "(arena)", format!("job_area((arena), {area}u)"));
            define("SCRATCH_BYTES", "(arena)", format!("job_area_bytes((arena), {area}u)"));
            if scratch.is_zeroed {
                steps.push(clear(area, size));
            }
        }
        let output = form.output.map(|output| {
            let (area, size) = (made.areas.len(), Output::STARTS);
            let OutputForm { words_per_row, words_per_job } = output;
            made.areas.push(size);
            made.areas.push(Output::words(words_per_row as usize, words_per_job as usize));
            made.outputs.push(Output { area, shade, stage });
            let count = format!("output_count((arena), {area}u, {words_per_row}u, (row), (words))");
            define("OUTPUT_COUNT", "(arena, row, words)", count);
            let word = format!("output_word((arena), {area}u, (row), (i), (value))");
            define("OUTPUT_WORD", "(arena, row, i, value)", word);
            steps.push(clear(area, size));
            area
        });
        if let Some(state) = form.state {
            let number = made.states.len();
            let StateForm { record_bytes, slots_per_step } = state;
            made.states.push(State { form: state, shade });
            define(
                "STATE_RECORD",
                "(arena, state, row, slot)",
                format!(
                    "state_record((state), {number}u, COL_SHARD(arena)[(row)], (slot), \
                     {slots_per_step}u, {record_bytes}u)"
                ),
            );
            define(
                "STATE_SLOTS",
                "(arena, state, row)",
                format!("state_slots((state), {number}u, COL_SHARD(arena)[(row)])"),
            );
        }
        let sort = (!form.sort.is_empty()).then(|| {
            let (fixed, per_row) = OrderPlan::AREA_BYTES;
            let area = made.areas.len();
            made.areas.push(Area { fixed, per_row, max: 0 });
            define(
                "SORTED",
                "(arena)",
                format!("((GLOBAL const uint *)job_area((arena), {area}u))"),
            );
            area
        });
        // An instance that is another one's like has its text as well.
        let same = |(text, parameters, _): &&(Cow<'_, str>, Vec<_>, usize)| {
            *text == form.text && *parameters == form.parameters
        };
        let is_bare =
            form.scratch.is_none() && form.state.is_none() && output.is_none() && sort.is_none();
        let known = self.known.iter().find(same).filter(|_| is_bare).map(|(.., number)| *number);
        let number = known.unwrap_or(shade);
        let is_own = |kernel: &str| form.text.contains(&format!("KERNEL({kernel})"));
        let own_name = |kernel: &str| format!("{kernel}_of_{number}");
        if known.is_none() && !form.text.is_empty() {
            let _ = writeln!(defines, "#define STAGE_NUMBER {number}");
            let mut undefs = String::from("#undef STAGE_NUMBER\n");
            for (name, value) in &form.parameters {
                let _ = match value {
                    Parameter::U32(value) => writeln!(defines, "#define {name} {value:#x}u"),
                    Parameter::U64(value) => writeln!(defines, "#define {name} {value:#x}ul"),
                };
            }
            let kernels = form.steps.iter().flat_map(|step| match step {
                KernelStep::Kernel(step) => {
                    [Some(&*step.kernel), step.part.as_ref().map(|part| &*part.instead)]
                }
                _ => [None, None],
            });
            let mut kernels: Vec<&str> =
                kernels.flatten().filter(|kernel| is_own(kernel)).collect();
            kernels.sort_unstable();
            kernels.dedup();
            for kernel in &kernels {
                let _ = writeln!(defines, "#define {kernel} {}", own_name(kernel));
            }
            let parameters = form.parameters.iter().map(|(name, _)| &**name);
            for name in names.iter().copied().chain(parameters).chain(kernels) {
                let _ = writeln!(undefs, "#undef {name}");
            }
            let file = if form.file.is_empty() { stage } else { &*form.file };
            // A file's name is not a place for what would end the line.
            let file = file.replace(['"', '\\', '\n'], "_");
            let _ = write!(
                self.text,
                "\n{defines}#line 1 \"{file}\"\n{}\n#line 1 \"behind {file}\"\n{undefs}",
                form.text
            );
            if is_bare {
                self.known.push((form.text.clone(), form.parameters.clone(), number));
            }
        }
        for step in &form.steps {
            match (step, output, sort) {
                (KernelStep::Kernel(step), ..) => {
                    let mut step = step.clone();
                    if is_own(&step.kernel) {
                        step.kernel = own_name(&step.kernel).into();
                    }
                    if let Some(part) = step.part.as_mut().filter(|part| is_own(&part.instead)) {
                        part.instead = own_name(&part.instead).into();
                    }
                    steps.push(step);
                }
                (KernelStep::ScanOutput, Some(area), _) => {
                    steps.push(Step::group("output_scan", WHOLE_GROUP).with_job(area as u32));
                }
                (KernelStep::Sort, _, Some(area)) => {
                    steps.extend(self.sort(shade, area, &form.sort));
                }
                // Without what it works on it does nothing.
                (KernelStep::ScanOutput | KernelStep::Sort, ..) => {}
            }
        }
        let has_payload = form.payload.is_some();
        let of_stage =
            |step: Step| Step { limit: step.limit.or(form.time_limit), stage, has_payload, ..step };
        made.steps.extend(steps.into_iter().map(of_stage));
    }

    /// The launches of a sort, the first of which is a kernel made for these columns.
    fn sort(&mut self, shade: usize, area: usize, keys: &[SortKey]) -> Vec<Step> {
        let mut bits = 0;
        let mut key = String::from("0ul");
        for SortKey { column, bits: wanted } in keys.iter().rev() {
            let place = column.place_in(self.columns);
            let Some(desc) = place.and_then(|place| self.columns.get(place)) else { continue };
            let used = (*wanted).min(8 * desc.width.min(8) as u32).min(64 - bits);
            if used == 0 {
                continue;
            }
            let name = desc.name.to_ascii_uppercase();
            let mask = u64::MAX >> (64 - used);
            let _ = write!(key, " | ((ulong)COL_{name}(arena)[row] & {mask:#x}ul) << {bits}u");
            bits += used;
        }
        let kernel = format!("order_keys_of_{shade}");
        let _ = write!(
            self.text,
            "
KERNEL({kernel})
{{
    const sort_t sort = order_state(arena, job);
    if (GLOBAL_ID < sort.len) {{
        const uint row = JOB_FIRST(arena) + GLOBAL_ID;
        sort_put(sort, GLOBAL_ID, row, {key});
    }}
}}
"
        );
        let plan = OrderPlan::new(area, bits);
        let mut steps = vec![Step::rows(kernel, 64).with_job(plan.keys_job())];
        steps.extend(plan.launches().map(|(kernel, job)| {
            let step = match kernel {
                "order_scan" => Step::group(kernel, WHOLE_GROUP),
                _ => Step::tiles(kernel, WHOLE_GROUP, 1),
            };
            step.with_job(job)
        }));
        steps
    }
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
/// their device. Stages that do nothing but pre-shade ([`Phases::PRE`], and no shade) join the segment behind
/// them, so that their columns are filled where that segment's job lies. All pre-shades of a segment run
/// before its first shade: those stages come first in it, so none of them is moved before a shade or a
/// post-shade that it stood behind.
///
/// A stage whose kernels have a time limit is a device segment of its own, and so is one that uses other columns for
/// its packets' bytes than the stage before it. A segment ends too where a stage would see contexts that are set at
/// another time than its place says ([`InContext`](crate::InContext)), or packets before a stage in front of it has
/// changed them, and where two stages keep something in the same column.
///
/// What the segments are follows from the stages alone, whatever device there is.
pub fn segments<T>(stages: &[Box<dyn Stage<T>>]) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut open = Open::Nothing;
    // The columns of the newest segment's payload.
    let mut payload = None;
    // What its stages read and the engine does not restore.
    let mut read = ColumnSet::EMPTY;
    let restored = ColumnSet::of(&[ColumnId::VERDICT, ColumnId::CONTEXT]);
    for (i, stage) in stages.iter().enumerate() {
        let shader = stage.shader();
        let is_bare = shader.is_none() && stage.phases() == Phases::PRE && !stage.ends_segment();
        let form = shader.and_then(|shader| shader.kernels());
        let on_device = form.is_some();
        let overwrites = stage.writes().intersection(&read) != ColumnSet::EMPTY;
        let has_state = form.as_ref().is_some_and(|form| form.state.is_some());
        let is_limited = form.as_ref().is_some_and(|form| form.time_limit.is_some());
        let places = form.and_then(|form| form.payload).map(|uses| (uses.at, uses.len));
        let fits = |last: &Segment| {
            stages[last.first..last.end].iter().all(|before| {
                let sees_changes = before.changes_packets() && stage.reads_packets();
                let shares = before.keeps().intersection(&stage.keeps()) != ColumnSet::EMPTY;
                !sees_changes && !shares && context::fit(&**before, &**stage)
            })
        };
        let goes_along = on_device
            && !is_limited
            && !overwrites
            && (places.is_none() || payload.is_none() || places == payload);
        match segments.last_mut() {
            Some(last) if open == Open::Any && fits(last) => {
                *last = Segment { first: last.first, end: i + 1, on_device, has_state };
                payload = places;
            }
            Some(last) if open == Open::Kernels && goes_along && fits(last) => {
                last.end = i + 1;
                last.has_state |= has_state;
                payload = payload.or(places);
            }
            _ => {
                segments.push(Segment { first: i, end: i + 1, on_device, has_state });
                payload = places;
                read = ColumnSet::EMPTY;
            }
        }
        read = read.union(&stage.reads().without(&restored));
        open = match () {
            () if is_bare => Open::Any,
            () if on_device && !is_limited && !stage.ends_segment() => Open::Kernels,
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
        fn phases(&self) -> Phases {
            if *self == Kind::Pre { Phases::PRE } else { Phases::BOTH }
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
            let form = StateForm { record_bytes: 4, slots_per_step: 16 };
            let state = (*self == Kind::State).then_some(form);
            (*self != Kind::Shade).then(|| KernelForm { state, ..KernelForm::default() })
        }
    }

    /// A stage with kernels of its own text.
    #[derive(Clone)]
    struct Own(KernelForm);

    impl Stage<()> for Own {
        fn name(&self) -> &'static str {
            "own"
        }
        fn shader(&self) -> Option<Arc<dyn Shade<()>>> {
            Some(Arc::new(self.clone()))
        }
    }

    impl Shade<()> for Own {
        fn shade(&self, _: &mut Rows, (): &()) {}
        fn kernels(&self) -> Option<KernelForm> {
            Some(self.0.clone())
        }
    }

    fn own(parameter: u32) -> KernelForm {
        KernelForm {
            text: "KERNEL(work)\n{\n}\n".into(),
            file: "a \"file\".k".into(),
            parameters: vec![("SIZE".into(), Parameter::U32(parameter))],
            steps: vec![Step::rows("work", 64).into(), Step::rows("route", 256).into()],
            files: &[&files::EMPTY],
            ..KernelForm::default()
        }
    }

    fn program(forms: Vec<KernelForm>) -> SegmentProgram {
        let stages: Vec<Box<dyn Stage<()>>> =
            forms.into_iter().map(|form| Box::new(Own(form)) as Box<_>).collect();
        let whole = Segment { first: 0, end: stages.len(), on_device: true, has_state: false };
        segment_program(&stages, whole, &[], 1).expect("kernels")
    }

    #[test]
    fn instances_have_names_and_numbers_of_their_own_unless_they_are_the_same() {
        let made = program(vec![own(1), own(2), own(1)]);
        let names: Vec<_> = made.steps.iter().map(|step| &*step.kernel).collect();
        assert_eq!(
            names,
            ["work_of_0", "route", "work_of_1", "route", "work_of_0", "route"],
            "kernels of files keep their names"
        );
        let source = &made.program.source;
        let first = "#define STAGE_NUMBER 0\n#define SIZE 0x1u\n#define work work_of_0\n#line 1 \"a _file_.k\"\n";
        assert!(source.contains(first), "{source}");
        for (part, times) in [
            ("KERNEL(work)", 2),
            ("#undef SIZE\n", 2),
            ("#undef work\n", 2),
            ("#define SIZE 0x2u", 1),
        ] {
            assert_eq!(source.matches(part).count(), times, "{part}");
        }
        assert!(made.steps.iter().all(|step| step.stage == "own" && step.limit.is_none()));
        assert!(
            made.steps.iter().all(|step| !step.has_payload),
            "they do not say that they use it"
        );
    }

    #[test]
    fn memory_is_each_instances_own() {
        let column = chunk::ColumnId::CONTEXT;
        let form = KernelForm {
            scratch: Some(Scratch { bytes: 8, bytes_per_row: 4, is_zeroed: true }),
            output: Some(OutputForm { words_per_row: 2, words_per_job: 100 }),
            sort: vec![SortKey { column, bits: 5 }],
            steps: vec![KernelStep::Sort, KernelStep::ScanOutput],
            ..own(1)
        };
        let made = {
            let stages: Vec<Box<dyn Stage<()>>> =
                vec![Box::new(Own(form.clone())), Box::new(Own(form))];
            let whole = Segment { first: 0, end: 2, on_device: true, has_state: false };
            let columns = <kernels::ScheduleColumns as chunk::Columns>::COLUMNS;
            segment_program(&stages, whole, columns, 1).expect("kernels")
        };
        assert_eq!(made.areas.len(), 8);
        let outputs: Vec<_> =
            made.outputs.iter().map(|output| (output.area, output.shade)).collect();
        assert_eq!(outputs, [(1, 0), (5, 1)]);
        let names: Vec<_> = made.steps.iter().map(|step| (&*step.kernel, step.job)).collect();
        let half = names.len() / 2;
        assert_eq!(
            names[..3],
            [("clear_area", Some(0)), ("clear_area", Some(1)), ("order_keys_of_0", Some(3 << 16))]
        );
        assert_eq!(names[half - 1], ("output_scan", Some(1)));
        assert_eq!(names[half], ("clear_area", Some(4)));
        assert_eq!(names.iter().filter(|(kernel, _)| *kernel == "order_count").count(), 4);
        assert!(made.program.source.contains("((ulong)COL_CONTEXT(arena)[row] & 0x1ful) << 0u"));
        assert!(made.reads.contains(&column), "what is sorted by goes up");
    }

    #[test]
    fn rows_of_other_contexts_are_hidden_around_a_stages_kernels() {
        let of = |contexts| KernelForm { contexts, ..own(1) };
        let made = program(vec![own(1), of(2), of(2), of(4), own(1), of(1)]);
        let seen: Vec<_> = made
            .steps
            .iter()
            .filter(|step| step.kernel != "route")
            .map(|step| (&*step.kernel, step.job))
            .collect();
        let see = |contexts| ("see_contexts", Some(contexts));
        let work = ("work_of_0", None);
        let wanted = [work, see(2), work, work, see(4), work, see(0), work, see(1), work, see(0)];
        assert_eq!(seen, wanted);
        assert_eq!(made.program.source.matches("KERNEL(see_contexts)").count(), 1);
        assert!(!program(vec![own(1)]).program.source.contains("see_contexts"));
    }

    #[test]
    fn each_instance_finds_its_own_state() {
        let state = |record_bytes| {
            let state = Some(StateForm { record_bytes, slots_per_step: 64 });
            KernelForm { state, ..own(1) }
        };
        let made = program(vec![state(8), own(1), state(8), own(1)]);
        let kept: Vec<_> =
            made.states.iter().map(|state| (state.shade, state.form.step_bytes())).collect();
        assert_eq!(kept, [(0, 512), (2, 512)]);
        for number in 0..2 {
            let record = format!(
                "#define STATE_RECORD(arena, state, row, slot) state_record((state), {number}u, \
                 COL_SHARD(arena)[(row)], (slot), 64u, 8u)\n"
            );
            assert_eq!(made.program.source.matches(&record).count(), 1, "{number}");
        }
        assert_eq!(made.program.source.matches("#undef STATE_SLOTS\n").count(), 2);
        assert!(made.reads.contains(&Shard::SHARD), "it goes up");
        assert!(!program(vec![own(1)]).reads.contains(&Shard::SHARD));
    }

    /// A stage with a time limit shares no segment with another one's kernels.
    #[test]
    fn a_time_limit_sets_a_stage_apart() {
        let limited = KernelForm { time_limit: Some(Duration::from_millis(1)), ..own(1) };
        let stages: Vec<Box<dyn Stage<()>>> = vec![
            Box::new(Kind::Pre),
            Box::new(Own(own(1))),
            Box::new(Own(limited.clone())),
            Box::new(Own(own(1))),
            Box::new(Own(own(1))),
        ];
        let cut: Vec<_> = segments(&stages).iter().map(|s| (s.first, s.end, s.on_device)).collect();
        assert_eq!(cut, [(0, 2, true), (2, 3, true), (3, 5, true)]);
        let made = program(vec![limited]);
        assert!(made.steps.iter().all(|step| step.limit == Some(Duration::from_millis(1))));
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
                    prop_assert!(!rest[..rest.len() - 1].contains(&Kind::Last));
                } else {
                    prop_assert!(rest.len() <= 1 && !rest.iter().any(has_kernels));
                }
            }
        }
    }

    chunk::columns! { struct Three / ThreeView { pub a: u32, pub b: u32, pub c: u32, } }

    struct Test(&'static [ColumnId], &'static [ColumnId]);

    impl Shade<()> for Test {
        fn shade(&self, _: &mut Rows, (): &()) {}
        fn kernels(&self) -> Option<KernelForm> {
            Some(KernelForm::default())
        }
    }

    impl Stage<()> for Test {
        fn name(&self) -> &'static str {
            "test"
        }
        fn reads(&self) -> ColumnSet {
            ColumnSet::of(self.0)
        }
        fn writes(&self) -> ColumnSet {
            ColumnSet::of(self.1)
        }
        fn shader(&self) -> Option<Arc<dyn Shade<()>>> {
            Some(Arc::new(Test(self.0, self.1)))
        }
    }

    /// The engine restores verdict and context alone before a job is done again.
    #[test]
    fn what_a_segment_reads_no_later_stage_of_it_writes() {
        const CONTEXT: ColumnId = ColumnId::CONTEXT;
        let stages: [Test; 5] = [
            Test(&[Three::A, CONTEXT], &[Three::B, CONTEXT]),
            Test(&[Three::B, CONTEXT], &[Three::C, CONTEXT]),
            Test(&[], &[Three::A]),
            Test(&[Three::A], &[Three::B]),
            Test(&[Three::C], &[Three::A]),
        ];
        let stages = stages.map(|stage| Box::new(stage) as Box<dyn Stage<()>>);
        let cut: Vec<_> = segments(&stages).iter().map(|s| s.first..s.end).collect();
        assert_eq!(cut, [0..2, 2..4, 4..5]);
    }
}
