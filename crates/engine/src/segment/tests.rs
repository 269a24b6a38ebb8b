//! How pipelines are cut, and the programs of segments.

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
    /// With kernels, behind no other one of its segment.
    First,
}

impl Stage<()> for Kind {
    fn name(&self) -> &'static str {
        "kind"
    }
    fn phases(&self) -> Phases {
        if *self == Kind::Pre { Phases::PRE } else { Phases::BOTH }
    }
    fn begins_segment(&self) -> bool {
        *self == Kind::First
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
    for (part, times) in
        [("KERNEL(work)", 2), ("#undef SIZE\n", 2), ("#undef work\n", 2), ("#define SIZE 0x2u", 1)]
    {
        assert_eq!(source.matches(part).count(), times, "{part}");
    }
    assert!(made.steps.iter().all(|step| step.stage == "own" && step.limit.is_none()));
    assert!(made.steps.iter().all(|step| !step.has_payload), "they do not say that they use it");
}

#[test]
fn memory_is_each_instances_own() {
    let column = chunk::ColumnId::CONTEXT;
    let form = KernelForm {
        scratch: Some(Scratch { bytes: 8, bytes_per_row: 4, is_zeroed: true, is_first: false }),
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
    let outputs: Vec<_> = made.outputs.iter().map(|output| (output.area, output.shade)).collect();
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
fn a_schedule_is_a_sort_that_a_job_may_do_without() {
    let form = KernelForm {
        text: "FN ulong OWN(key)(GLOBAL uchar *arena, uint row)\n{\n    return row;\n}\nKERNEL(work)\n{\n}\n"
            .into(),
        schedule: Some(ScheduleForm { key: "key".into(), bits: 7 }),
        steps: vec![KernelStep::Schedule, Step::rows("work", 64).into()],
        ..own(1)
    };
    let made = program(vec![form.clone(), form, own(1)]);
    assert_eq!((&made.schedules[..], made.areas.len()), (&[0, 1][..], 2), "each its own");
    let steps = made.steps.iter().map(|step| (&*step.kernel, step.schedules));
    let steps: Vec<_> = steps.collect();
    let sort = |keys| {
        let passes = ["order_count", "order_scan", "order_scatter"].repeat(2);
        std::iter::once((keys, true)).chain(passes.into_iter().map(|kernel| (kernel, true)))
    };
    let wanted = sort("schedule_keys_of_0").chain([("work_of_0", false)]);
    let wanted = wanted.chain(sort("schedule_keys_of_1")).chain([("work_of_1", false)]);
    let wanted: Vec<_> = wanted.chain([("work_of_2", false), ("route", false)]).collect();
    assert_eq!(steps, wanted);
    let source = &made.program.source;
    assert!(source.contains("#define SCHEDULED(arena, i) job_scheduled((arena), 1u, (i))\n"));
    assert!(source.contains("key_of_1(arena, row) & 0x7ful"), "{source}");
    assert!(source.contains("#undef SCHEDULED\n"));
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

/// Kernels of files find their memory as the first of the job.
#[test]
fn memory_for_kernels_of_files_is_the_first() {
    let scratch =
        |is_first| Some(Scratch { bytes: 8, bytes_per_row: 4, is_zeroed: false, is_first });
    let of_files = KernelForm { scratch: scratch(true), ..own(1) };
    let of_text = KernelForm { scratch: scratch(false), ..own(1) };
    let sorted =
        KernelForm { sort: vec![SortKey { column: chunk::ColumnId::CONTEXT, bits: 5 }], ..own(1) };
    let cut = |forms: &[&KernelForm]| {
        let stages: Vec<Box<dyn Stage<()>>> =
            forms.iter().map(|form| Box::new(Own((*form).clone())) as Box<_>).collect();
        segments(&stages).iter().map(|s| s.end - s.first).collect::<Vec<_>>()
    };
    let none = own(1);
    assert_eq!(cut(&[&none, &of_files, &sorted, &of_text]), [4]);
    assert_eq!(cut(&[&of_files, &of_files]), [1, 1]);
    assert_eq!(cut(&[&of_text, &of_text, &of_files]), [2, 1]);
    assert_eq!(cut(&[&none, &sorted, &none, &of_files, &none]), [3, 2]);
    // So they find their state as the first one.
    let state = Some(StateForm { record_bytes: 4, slots_per_step: 16 });
    let keeps_state = KernelForm { state, ..own(1) };
    assert_eq!(cut(&[&none, &keeps_state, &of_files, &keeps_state]), [2, 2]);
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

/// Its pre-shade comes behind the shades in front of it, and behind pre-shades alone it needs no other segment.
#[test]
fn a_stage_may_begin_its_segment() {
    use Kind::{First, Kernels, Pre};
    assert_eq!(cut(&[Kernels, First, Kernels]), [(0, 1, true), (1, 3, true)]);
    assert_eq!(cut(&[Pre, First, First]), [(0, 2, true), (2, 3, true)]);
}

proptest! {
    /// Segments cover the stages in order; no pre-shade runs before a shade or a post-shade that it stood
    /// behind, but for that of a stage with kernels; a device segment has kernels in each stage with a shade.
    #[test]
    fn a_cut_keeps_the_order_of_what_depends_on_it(kinds in prop::collection::vec(0u8..7, 0..12)) {
        let kinds: Vec<Kind> = kinds
            .into_iter()
            .map(|kind| match kind {
                0 => Kind::Pre,
                1 => Kind::Post,
                2 => Kind::Shade,
                3 => Kind::Kernels,
                4 => Kind::State,
                5 => Kind::First,
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
            let has_kernels = |kind: &Kind| {
                matches!(kind, Kind::Kernels | Kind::State | Kind::Last | Kind::First)
            };
            if on_device {
                prop_assert!(!rest.is_empty() && rest.iter().all(has_kernels));
                prop_assert!(!rest[..rest.len() - 1].contains(&Kind::Last));
                prop_assert!(!rest[1..].contains(&Kind::First));
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
