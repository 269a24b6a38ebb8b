//! Stages that see packets of some contexts only, against a plain reference: on the CPU, the simulated device and a
//! driver.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use engine::{InContext, Policy, Segment, Stage, Trace, TraceEvent, segments};
use teststages::harness::{Answer, Backing, Bed, Case, Random, Setup, Stages, Subject, numbered};
use teststages::parts::{At, Key, Out, Plain, Show, Sift, Stamp, Steps};
use teststages::{Count, HostXor, SLOTS, Sum, Xor, reasons};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Key(Key),
    Sum,
    Xor,
    HostXor,
    /// The first or the second one.
    Count(usize),
    Sift,
    Plain,
    Steps(Steps),
}

/// Parts, each with the contexts of the packets that it sees; 0: all.
type Parts = Vec<(Part, u32)>;

fn stages(parts: &Parts, counts: &[Count; 2]) -> Stages<u64> {
    let mut stages: Stages<u64> = Vec::new();
    for &(part, contexts) in parts {
        let stage: Box<dyn Stage<u64>> = match part {
            Part::Key(key) => Box::new(key),
            Part::Sum => Box::new(Sum),
            Part::Xor => Box::new(Xor),
            Part::HostXor => Box::new(HostXor),
            Part::Count(which) => Box::new(counts[which].clone()),
            Part::Sift => Box::new(Sift),
            Part::Plain => Box::new(Plain),
            Part::Steps(steps) => Box::new(steps),
        };
        stages.push(Box::new(InContext::new(stage, contexts)));
        if part == Part::Sum {
            stages.push(Box::new(InContext::new(Box::new(Stamp), contexts)));
        }
    }
    stages.push(Box::new(Show));
    stages.push(Box::new(Out { ports: 3 }));
    stages
}

/// Packet after packet, stage after stage.
fn reference(parts: &Parts, input: &[Vec<u8>]) -> Answer {
    let mut answer = Answer { ports: vec![Vec::new(); 3], ..Answer::default() };
    let mut counts = [[0u64; SLOTS]; 2];
    'packets: for frame in input {
        let (mut bytes, mut context, mut made) = (frame.clone(), 0, [[0; 3]; 2]);
        let flow = bytes[0];
        for (part, contexts) in parts {
            if *contexts != 0 && context & contexts == 0 {
                continue;
            }
            match part {
                Part::Key(key) => context |= key.of(flow),
                Part::Sum => {
                    let sum = bytes.iter().fold(0u32, |sum, byte| sum.wrapping_add((*byte).into()));
                    if let Some(field) = bytes.get_mut(8..12) {
                        field.copy_from_slice(&sum.to_be_bytes());
                    }
                }
                Part::Xor | Part::HostXor => {
                    bytes.iter_mut().skip(1).for_each(|byte| *byte ^= flow | 1);
                }
                Part::Count(which) => counts[*which][usize::from(flow)] += 1,
                Part::Sift if Sift::drops(flow) => {
                    *answer.drops.entry(reasons::TEST.code()).or_insert(0) += 1;
                    continue 'packets;
                }
                Part::Sift | Part::Plain => {}
                Part::Steps(steps) => {
                    made[usize::from(steps.is_second)] = Steps::of(flow);
                    if steps.key.at != At::Never {
                        context |= steps.key.of(flow);
                    }
                }
            }
        }
        Show::add(&mut bytes, made);
        answer.ports[usize::from(flow) % 3].push(bytes);
    }
    answer.state = state_of(counts.as_flattened().iter().copied());
    answer
}

fn state_of(counts: impl Iterator<Item = u64>) -> Vec<u8> {
    counts.flat_map(u64::to_be_bytes).collect()
}

/// Random parts: some set contexts, and most see some of them only.
fn random_parts(random: &mut Random) -> Parts {
    let mut parts = vec![
        Part::Sum,
        Part::Xor,
        Part::HostXor,
        Part::Count(0),
        Part::Count(1),
        Part::Sift,
        Part::Plain,
    ];
    random.shuffle(&mut parts);
    parts.truncate(random.between(2, 7));
    for at in [At::Pre, At::Shade, At::Post] {
        if !random.one_in(4) {
            parts.push(Part::Key(Key { at, shift: random.below(7) as u32 }));
        }
    }
    for (name, is_second) in [("steps", false), ("more_steps", true)] {
        let at = random.pick(&[At::Pre, At::Shade, At::Post, At::Never]);
        let key = Key { at, shift: random.below(7) as u32 };
        parts.push(Part::Steps(Steps { name, is_second, key }));
    }
    random.shuffle(&mut parts);
    let contexts = |_: &Part| if random.one_in(3) { 0 } else { random.between(1, 15) as u32 };
    let contexts: Vec<u32> = parts.iter().map(contexts).collect();
    parts.into_iter().zip(contexts).collect()
}

fn random_input(random: &mut Random) -> Vec<Vec<u8>> {
    let frame = |_| {
        let len = random.between(1, 120);
        (0..len).map(|_| random.word() as u8).collect()
    };
    (0..1500).map(frame).collect()
}

#[test]
fn stages_see_the_packets_of_their_contexts() {
    let seed = Random::from_time().word();
    let mut random = Random::new(seed);
    for round in 0..6 {
        let (parts, input) = (random_parts(&mut random), random_input(&mut random));
        let wanted = reference(&parts, &input);
        let subject = |workers: usize| {
            let counts: Vec<[Count; 2]> =
                (0..workers).map(|_| [Count::new(), Count::second()]).collect();
            let workers = counts.iter().map(|counts| stages(&parts, counts)).collect();
            let state = move || {
                let of = |which: usize, flow: usize| {
                    counts.iter().map(|count| count[which].of(flow as u8)).sum::<u64>()
                };
                state_of(
                    (0..2)
                        .flat_map(|which| (0..SLOTS).map(move |flow| (which, flow)))
                        .map(|(which, flow)| of(which, flow)),
                )
            };
            Subject { workers, state: Box::new(state) }
        };
        let name = format!("round {round} of seed {seed}: {parts:?}");
        let case = Case { ports: 3, ..Case::new(&name, input, &subject) };
        case.check_random(random.word(), 1, Some(&wanted));
    }
}

/// Segments of stages of all kinds: where one sets contexts that another looks at, they are one segment only where the
/// order of their steps keeps to their places.
#[test]
fn segments_end_where_contexts_would_be_seen_too_early_or_too_late() {
    let key = |at| Box::new(Key { at, shift: 0 }) as Box<dyn Stage<u64>>;
    let only =
        |stage: Box<dyn Stage<u64>>| Box::new(InContext::new(stage, 1)) as Box<dyn Stage<u64>>;
    /// Kernels and no other step.
    struct Bare;
    impl Stage<u64> for Bare {
        fn name(&self) -> &'static str {
            "bare"
        }
        fn phases(&self) -> engine::Phases {
            engine::Phases::NONE
        }
        fn shader(&self) -> Option<std::sync::Arc<dyn engine::Shade<u64>>> {
            Sift.shader()
        }
    }
    let cut = |stages: Vec<Box<dyn Stage<u64>>>| -> Vec<usize> {
        let ends: Vec<Segment> = segments(&stages);
        ends.iter().map(|segment| segment.end).collect()
    };
    let bare = || Box::new(Bare) as Box<dyn Stage<u64>>;
    let sum = || Box::new(Sum) as Box<dyn Stage<u64>>;
    assert_eq!(cut(vec![key(At::Shade), bare()]), [2]);
    assert_eq!(cut(vec![key(At::Shade), only(bare())]), [2], "it is set before it is seen");
    assert_eq!(
        cut(vec![key(At::Shade), only(sum())]),
        [1, 2],
        "its pre-shade would see it too early"
    );
    assert_eq!(cut(vec![key(At::Pre), only(sum())]), [2]);
    assert_eq!(cut(vec![key(At::Pre), only(bare()), key(At::Shade)]), [3]);
    assert_eq!(
        cut(vec![only(sum()), key(At::Shade)]),
        [1, 2],
        "its post-shade would see it too late"
    );
    assert_eq!(cut(vec![sum(), key(At::Shade)]), [2]);
    assert_eq!(cut(vec![only(bare()), key(At::Pre), bare()]), [1, 3], "its shade would see it");
}

/// Uploads and launches are those of one segment: contexts that a shade sets are seen by the next stage's kernels.
#[test]
fn contexts_set_on_a_device_are_seen_there() {
    if !testkit::require_opencl() {
        return;
    }
    let key = Key { at: At::Shade, shift: 1 };
    let input: Vec<Vec<u8>> = (0..2000).map(|i| vec![i as u8; 20]).collect();
    for backing in [Backing::Driver, Backing::Simulated] {
        let setup = Setup { backing, policy: Policy::Device, ..Setup::default() };
        let bed = Bed {
            devices: setup.devices(|| Box::new(teststages::harness::NumberImage) as Box<_>),
            ..Bed::new(input.clone())
        };
        let done = bed.run(numbered(1, |_| {
            let sift = Box::new(InContext::new(Box::new(Bare), 0b0011)) as Box<dyn Stage<u64>>;
            vec![Box::new(key), sift, Box::new(Out { ports: 1 })]
        }));
        done.conserves().unwrap();
        let segments: Vec<_> = done.view.segments.iter().map(|s| (s.end, s.on_device)).collect();
        assert_eq!(segments, [(2, true), (3, false)]);
        let is_seen = |frame: &&Vec<u8>| key.of(frame[0]) & 0b0011 != 0;
        let drops = input.iter().filter(is_seen).filter(|frame| Sift::drops(frame[0])).count();
        assert_eq!(done.view.drops(reasons::TEST), drops as u64);
        assert!(done.view.master().is_some_and(|master| master.packets > 0 && master.failed == 0));
    }
    /// [`Sift`] behind a stage that fills its column.
    struct Bare;
    impl Stage<u64> for Bare {
        fn name(&self) -> &'static str {
            "sift"
        }
        fn drop_reasons(&self) -> &'static [&'static chunk::ReasonBlock] {
            Sift.drop_reasons()
        }
        fn columns(&self) -> &'static [chunk::Declaration] {
            Sift.columns()
        }
        fn reads(&self) -> chunk::ColumnSet {
            Sift.reads()
        }
        fn phases(&self) -> engine::Phases {
            engine::Phases::NONE
        }
        fn shader(&self) -> Option<std::sync::Arc<dyn engine::Shade<u64>>> {
            Sift.shader()
        }
    }
}

/// A trace says which stages did not see the packet; counters count those that did.
#[test]
fn traces_and_counters_know_contexts() {
    let key = Key { at: At::Pre, shift: 0 };
    let input: Vec<Vec<u8>> = (0..400).map(|i| vec![i as u8; 20]).collect();
    let (sender, reports) = sync_channel(8);
    let trace = Trace { filter: None, left: AtomicU64::new(4), sender };
    let trace = std::sync::Mutex::new(Some(trace));
    let bed = Bed {
        ends: teststages::harness::Ends::Passed(2, 400),
        feeds: vec![teststages::harness::Feed {
            worker: 0,
            port: 0,
            queue: Box::new(Late { left: 40, script: io::memory::Script::untimed(input.clone()) }),
            spread: None,
            entry: engine::Entry::default(),
        }],
        ..Bed::new(Vec::new())
    };
    let workers = numbered(1, |_| {
        let sum = Box::new(InContext::new(Box::new(Sum), 0b0001)) as Box<dyn Stage<u64>>;
        vec![Box::new(key), sum, Box::new(Out { ports: 1 })]
    });
    let mut guards = Vec::new();
    let done = bed.run_while(workers, move |view| {
        if let Some(trace) = trace.lock().unwrap().take() {
            guards.push(view.hooks.trace(trace));
        }
    });
    done.conserves().unwrap();
    let seen = input.iter().filter(|frame| key.of(frame[0]) == 1).count() as u64;
    let packets: BTreeMap<&str, u64> =
        (0..3).map(|i| (done.view.stages[i], done.view.stage(i).packets)).collect();
    assert_eq!(packets, [("key_early", 400), ("sum", seen), ("out", 400)].into());
    let traces: Vec<Vec<TraceEvent>> = reports.try_iter().collect();
    assert_eq!(traces.len(), 4);
    for (flow, events) in traces.iter().enumerate() {
        let is_hidden = events.iter().any(|event| {
            matches!(event, TraceEvent::Stage { name: "sum", detail, .. } if detail == "not in its contexts")
        });
        assert_eq!(is_hidden, key.of(flow as u8) != 1, "{events:?}");
    }
}

/// Frames that come a little later, so that a trace has begun.
struct Late {
    left: u32,
    script: io::memory::Script,
}

impl io::RxQueue for Late {
    fn recv(&mut self, pool: &mut chunk::Pool, out: &mut Vec<chunk::Packet>, max: usize) -> usize {
        if self.left > 0 {
            self.left -= 1;
            std::thread::sleep(Duration::from_millis(1));
            return 0;
        }
        self.script.recv(pool, out, max)
    }
    fn is_finished(&self) -> bool {
        self.script.is_finished()
    }
    fn stats(&self) -> io::QueueStats {
        self.script.stats()
    }
}
