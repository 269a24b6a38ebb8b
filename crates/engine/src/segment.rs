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
    /// By what the rows of a job are sorted where that makes the kernels quicker (GASPP §5.3): see [`ScheduleForm`].
    pub schedule: Option<ScheduleForm>,
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

impl KernelForm {
    /// Whether its kernels have memory, besides columns and payload.
    fn has_area(&self) -> bool {
        let has_order = !self.sort.is_empty() || self.schedule.is_some();
        self.scratch.is_some() || self.output.is_some() || has_order || self.state.is_some()
    }
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
    /// Sorts the rows by [`KernelForm::schedule`], in jobs for which that is chosen. Behind it `SCHEDULED(arena, i)` is the
    /// row of item `i`: each row of the job once, in some order.
    Schedule,
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
    /// Whether kernels of `files`, which do not know the stage, find it as `job_area(arena, 0u)`, and the stage's state as
    /// number 0: the stage joins no segment in which one before it has such memory, keeps state, sorts, or writes records.
    pub is_first: bool,
}

/// A column to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// The column, of at most eight bytes.
    pub column: ColumnId,
    /// Its lowest bits, which are looked at. All columns of a sort have 64 at most. Four bits cost three launches.
    pub bits: u32,
}

/// How the rows of a job are sorted so that items beside one another do alike work: of one protocol and context, of about one
/// length. What kernels do must not depend on the order of the rows.
///
/// Whether a job is sorted is chosen by what that has cost and gained in jobs like it. Rows stay where they are, so packets
/// leave in the order in which they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleForm {
    /// The key of a row is what this function of the text says: `FN ulong OWN(NAME)(GLOBAL uchar *arena, uint row)`.
    pub key: Cow<'static, str>,
    /// The key's lowest bits, which are looked at; at most 64. Four bits cost three launches.
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
    let source = kernels::source_with(&spec, &texts.text);
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
        let schedule = form.schedule.as_ref().map(|schedule| {
            let area = order_area(made);
            made.schedules.push(area);
            let row = format!("job_scheduled((arena), {area}u, (i))");
            define("SCHEDULED", "(arena, i)", row);
            (area, schedule)
        });
        let sort = (!form.sort.is_empty()).then(|| {
            let area = order_area(made);
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
        let has_order = sort.is_some() || schedule.is_some();
        let is_bare =
            form.scratch.is_none() && form.state.is_none() && output.is_none() && !has_order;
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
                (KernelStep::Schedule, ..) => {
                    let Some((area, ScheduleForm { key, bits })) = schedule else { continue };
                    let kernel = format!("schedule_keys_of_{shade}");
                    let mask = u64::MAX >> (64 - bits.clamp(&1, &64));
                    let key = format!("{}(arena, row) & {mask:#x}ul", own_name(key));
                    let sort = self.order(kernel, area, &key, (*bits).min(64));
                    steps.extend(sort.into_iter().map(|step| Step { schedules: true, ..step }));
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
        self.order(format!("order_keys_of_{shade}"), area, &key, bits)
    }

    /// The launches of a sort by a key of so many bits; the first one is a kernel of this name, which puts the keys.
    fn order(&mut self, kernel: String, area: usize, key: &str, bits: u32) -> Vec<Step> {
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

/// Adds the area of a sort, and says its number.
fn order_area(made: &mut SegmentProgram) -> usize {
    let (fixed, per_row) = OrderPlan::AREA_BYTES;
    made.areas.push(Area { fixed, per_row, max: 0 });
    made.areas.len() - 1
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
/// A stage whose kernels have a time limit is a device segment of its own. One that uses other columns for its packets' bytes
/// than the stage before it begins a segment, and so does one that needs the verdicts of all shades before it
/// ([`Stage::begins_segment`]). A segment ends too where a stage would see contexts that are set at
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
    // Whether its stages have memory of a job.
    let mut has_area = false;
    for (i, stage) in stages.iter().enumerate() {
        let shader = stage.shader();
        let is_bare = shader.is_none() && stage.phases() == Phases::PRE && !stage.ends_segment();
        let form = shader.and_then(|shader| shader.kernels());
        let on_device = form.is_some();
        let overwrites = stage.writes().intersection(&read) != ColumnSet::EMPTY;
        let has_state = form.as_ref().is_some_and(|form| form.state.is_some());
        let is_limited = form.as_ref().is_some_and(|form| form.time_limit.is_some());
        let needs_area = form.as_ref().is_some_and(KernelForm::has_area);
        let needs_first =
            form.as_ref().is_some_and(|form| form.scratch.is_some_and(|own| own.is_first));
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
            && !stage.begins_segment()
            && !overwrites
            && (!has_area || !needs_first)
            && (places.is_none() || payload.is_none() || places == payload);
        match segments.last_mut() {
            Some(last) if open == Open::Any && fits(last) => {
                *last = Segment { first: last.first, end: i + 1, on_device, has_state };
                payload = places;
                has_area = needs_area;
            }
            Some(last) if open == Open::Kernels && goes_along && fits(last) => {
                last.end = i + 1;
                last.has_state |= has_state;
                payload = payload.or(places);
                has_area |= needs_area;
            }
            _ => {
                segments.push(Segment { first: i, end: i + 1, on_device, has_state });
                payload = places;
                has_area = needs_area;
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
mod tests;
