//! Several instances of one kind of stage, each under a name of its own, with columns, state, kernels and contexts of
//! its own.

use std::sync::atomic::AtomicU64;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chunk::{Chunk, ColumnDesc, ColumnId, ColumnSet, Columns, Declaration, Packet, Rows, Verdict};
use engine::{Context, InContext, KernelForm, Parameter, Shade, Stage, StateForm, Step, Trace};
use teststages::harness::{Answer, Bed, Case, Feed, Random, Stages, Subject, numbered};
use teststages::parts::{At, Key, Out, flow_of};
use teststages::{TestColumns, reasons};

/// Adds a multiple of its flow's packets so far to each packet's byte 1, by a column and a state of its own, and
/// drops the packets of one flow.
#[derive(Clone)]
struct Adder {
    name: &'static str,
    /// The own column, behind those of all tests.
    columns: &'static [Declaration],
    factor: u32,
    drops: u8,
    counts: Arc<Mutex<Vec<u32>>>,
}

const SLOTS: usize = 256;

impl Adder {
    /// One of this name, whose column has its number.
    fn new(name: &'static str, number: usize, factor: u32, drops: u8) -> Self {
        let own = ColumnDesc {
            name: String::leak(format!("added_{number}")),
            ..*TestColumns::SUM.desc()
        };
        let columns: Declaration =
            Vec::leak(vec![*ColumnId::VERDICT.desc(), *ColumnId::CONTEXT.desc(), own]);
        let columns = Vec::leak(vec![TestColumns::COLUMNS, columns]);
        Self { name, columns, factor, drops, counts: Arc::new(Mutex::new(vec![0; SLOTS])) }
    }

    fn own(&self) -> ColumnId {
        ColumnId::of(self.columns[1], 2)
    }

    fn with<R>(&self, change: impl FnOnce(&mut [u32]) -> R) -> R {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Visits the rows: verdict, slot, own column.
    fn rows(&self, rows: &mut Rows, mut visit: impl FnMut(&mut u32, usize, &mut u32)) {
        let slots = TestColumns::view(rows).slot.to_vec();
        let mut split = rows.split(self.columns[1]);
        let verdicts = split.column::<u32>();
        let _context = split.column::<u32>();
        for ((verdict, slot), own) in verdicts.iter_mut().zip(slots).zip(split.column::<u32>()) {
            visit(verdict, slot as usize % SLOTS, own);
        }
    }
}

impl Stage<u64> for Adder {
    fn name(&self) -> &'static str {
        self.name
    }
    fn columns(&self) -> &'static [Declaration] {
        self.columns
    }
    fn drop_reasons(&self) -> &'static [&'static chunk::ReasonBlock] {
        &[reasons::BLOCK]
    }
    fn zeroed(&self) -> ColumnSet {
        ColumnSet::of(&[self.own()])
    }
    fn reads(&self) -> ColumnSet {
        ColumnSet::of(&[TestColumns::SLOT])
    }
    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[self.own()])
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, u64>) {
        let view = TestColumns::view(&mut chunk.rows);
        for (row, packet) in chunk.packets.iter().enumerate() {
            cx.at(row);
            view.slot[row] = flow_of(packet).into();
            assert!(packet.data().get(2) != Some(&0xee), "as planned");
        }
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(self.clone()))
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        let packets = &mut chunk.packets;
        let mut row = 0;
        self.rows(&mut chunk.rows, |verdict, _, own| {
            if let Some(byte) = packets[row].data_mut().get_mut(1)
                && Verdict(*verdict).is_next()
            {
                *byte = byte.wrapping_add(*own as u8);
            }
            row += 1;
        });
    }
    fn describe(&self, chunk: &mut Chunk, row: usize, _: &u64) -> String {
        let (mut own_value, mut at) = (0, 0);
        self.rows(&mut chunk.rows, |_, _, own| {
            if at == row {
                own_value = *own;
            }
            at += 1;
        });
        own_value.to_string()
    }
}

impl Shade<u64> for Adder {
    fn shade(&self, rows: &mut Rows, _: &u64) {
        self.with(|counts| {
            self.rows(rows, |verdict, slot, own| {
                if Verdict(*verdict).is_next() {
                    counts[slot] += 1;
                    *own = counts[slot] * self.factor;
                    if slot == usize::from(self.drops) {
                        *verdict = Verdict::drop(reasons::TEST).0;
                    }
                }
            });
        });
    }
    fn kernels(&self) -> Option<KernelForm> {
        let own = self.own().name.to_ascii_uppercase();
        Some(KernelForm {
            text: format!(
                "
                KERNEL(adder)
                {{
                    if (GLOBAL_ID == 0u)
                        for (uint i = 0u; i < job_rows(arena); i++) {{
                            const uint row = JOB_FIRST(arena) + i, slot = COL_SLOT(arena)[row] & 255u;
                            if (IS_NEXT(COL_VERDICT(arena)[row])) {{
                                GLOBAL uint *count = (GLOBAL uint *)STATE_RECORD(arena, state, row, slot);
                                COL_{own}(arena)[row] = ++*count * FACTOR;
                                if (slot == DROPS)
                                    COL_VERDICT(arena)[row] = DROPPED;
                            }}
                        }}
                }}"
            )
            .into(),
            parameters: vec![
                ("FACTOR".into(), Parameter::U32(self.factor)),
                ("DROPS".into(), Parameter::U32(self.drops.into())),
                ("DROPPED".into(), Parameter::U32(Verdict::drop(reasons::TEST).0)),
            ],
            steps: vec![Step::rows("adder", 64).into()],
            state: Some(StateForm { record_bytes: 4, slots_per_step: SLOTS }),
            ..KernelForm::default()
        })
    }
    fn state_slots(&self) -> usize {
        SLOTS
    }
    fn state(&self, _: usize, bytes: &mut [u8]) {
        self.with(|counts| {
            for (to, count) in bytes.chunks_exact_mut(4).zip(counts) {
                to.copy_from_slice(&count.to_le_bytes());
            }
        });
    }
    fn twin(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(Self { counts: Arc::new(Mutex::new(vec![0; SLOTS])), ..self.clone() }))
    }
    fn set_state(&self, _: usize, bytes: &[u8]) {
        self.with(|counts| {
            for (count, from) in counts.iter_mut().zip(bytes.chunks_exact(4)) {
                *count = u32::from_le_bytes(from.try_into().expect("four bytes"));
            }
        });
    }
    fn retired(&self, rows: &mut Rows, _: &mut [Packet]) {
        self.with(|counts| {
            self.rows(rows, |_, slot, own| {
                if *own != 0 {
                    counts[slot] = *own / self.factor;
                }
            });
        });
    }
}

/// Names of instances: also such as a source must not take as they are.
const NAMES: [&str; 4] = ["edge", "inner-2", "a \"b\"\\n", "work"];

fn random_adders(random: &mut Random) -> Vec<(usize, u32, u8, u32)> {
    let mut numbers: Vec<usize> = (0..NAMES.len()).collect();
    random.shuffle(&mut numbers);
    numbers.truncate(random.between(2, 4));
    let adder = |number| {
        let contexts = if random.one_in(2) { 0 } else { random.between(1, 15) as u32 };
        (number, random.between(1, 200) as u32, random.below(256) as u8, contexts)
    };
    numbers.into_iter().map(adder).collect()
}

#[test]
fn instances_keep_what_is_theirs() {
    let seed = Random::from_time().word();
    let mut random = Random::new(seed);
    for round in 0..3 {
        let adders = random_adders(&mut random);
        let key = Key { at: At::Pre, shift: 3 };
        let frame = |_| (0..4).map(|_| (random.word() & 0x3f) as u8).collect();
        let input: Vec<Vec<u8>> = (0..1500).map(frame).collect();
        // Packet after packet.
        let mut wanted = Answer { ports: vec![Vec::new()], ..Answer::default() };
        let mut counts = vec![vec![0u32; SLOTS]; adders.len()];
        'packets: for frame in &input {
            let (flow, mut frame) = (frame[0], frame.clone());
            for (counts, (_, factor, drops, contexts)) in counts.iter_mut().zip(&adders) {
                if *contexts == 0 || key.of(flow) & contexts != 0 {
                    let count = &mut counts[usize::from(flow)];
                    *count += 1;
                    if flow == *drops {
                        *wanted.drops.entry(reasons::TEST.code()).or_insert(0) += 1;
                        continue 'packets;
                    }
                    frame[1] = frame[1].wrapping_add((*count * factor) as u8);
                }
            }
            wanted.ports[0].push(frame);
        }
        wanted.state = counts.concat().into_iter().flat_map(u32::to_be_bytes).collect();
        let subject = |workers: usize| {
            let own: Vec<Vec<Adder>> = (0..workers)
                .map(|_| {
                    let adder = |&(number, factor, drops, _): &(usize, u32, u8, u32)| {
                        Adder::new(NAMES[number], number, factor, drops)
                    };
                    adders.iter().map(adder).collect()
                })
                .collect();
            let stages = |own: &Vec<Adder>| {
                let mut stages: Stages<u64> = vec![Box::new(key)];
                for (adder, (.., contexts)) in own.iter().zip(&adders) {
                    stages.push(Box::new(InContext::new(Box::new(adder.clone()), *contexts)));
                }
                stages.push(Box::new(Out { ports: 1 }));
                stages
            };
            let workers = own.iter().map(stages).collect();
            let kinds = adders.len();
            let state = move || {
                let of = |adder: usize, slot: usize| {
                    own.iter().map(|own| own[adder].with(|counts| counts[slot])).sum::<u32>()
                };
                let all = (0..kinds).flat_map(|adder| (0..SLOTS).map(move |slot| (adder, slot)));
                all.flat_map(|(adder, slot)| of(adder, slot).to_be_bytes()).collect()
            };
            Subject { workers, state: Box::new(state) }
        };
        let name = format!("round {round} of seed {seed}: {adders:?}");
        Case::new(&name, input, &subject).check_random(random.word(), 1, Some(&wanted));
    }
}

/// Counters, traces and panics name the instance.
#[test]
fn instances_are_named_where_one_looks() {
    let mut frames: Vec<Vec<u8>> = (0..100).map(|i| vec![i as u8, 0, 0, 0]).collect();
    frames.push(vec![100, 0, 0xee, 0]);
    let (sender, reports) = sync_channel(4);
    let trace = Mutex::new(Some(Trace { filter: None, left: AtomicU64::new(1), sender }));
    let mut guards = Vec::new();
    let late = Late { left: 40, script: io::memory::Script::untimed(frames) };
    let feed = Feed {
        worker: 0,
        port: 0,
        queue: Box::new(late),
        spread: None,
        entry: engine::Entry::default(),
    };
    let bed = Bed { feeds: vec![feed], chunk_packets: 100, ..Bed::new(Vec::new()) };
    let workers = numbered(1, |_| {
        // The first one lets no packet that makes it panic through to the second one.
        let edge = Box::new(InContext::new(Box::new(Adder::new("edge", 0, 2, 7)), 0));
        vec![edge, Box::new(Adder::new("inner", 1, 3, 9)), Box::new(Out { ports: 1 })]
    });
    let done = bed.run_while(workers, move |view| {
        if let Some(trace) = trace.lock().unwrap_or_else(PoisonError::into_inner).take() {
            guards.push(view.hooks.trace(trace));
        }
    });
    done.conserves().unwrap();
    assert_eq!(done.view.stages, ["edge", "inner", "out"]);
    let trace = reports.try_recv().expect("a trace");
    let lines: Vec<_> = trace[1..3].iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["edge: 2 → next", "inner: 3 → next"], "{trace:?}");
    let panic = &done.panics[0];
    assert_eq!((panic.stage, panic.step), ((0, "edge"), "pre_shade"));
    assert!(panic.packet.as_ref().is_some_and(|(_, bytes)| bytes[0] == 100));
}

/// Frames that come a little later, so that a trace has begun.
struct Late {
    left: u32,
    script: io::memory::Script,
}

impl io::RxQueue for Late {
    fn recv(&mut self, pool: &mut chunk::Pool, out: &mut Vec<Packet>, max: usize) -> usize {
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
