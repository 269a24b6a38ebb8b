//! Drop reasons from declaration to counter: an engine registers what its stages declare.

use std::sync::{Arc, Mutex};

use chunk::{
    Chunk, Columns, Declaration, DropReason, HugePages, Packet, ReasonBlock, Region, Verdict,
    reasons,
};
use engine::{
    Context, Engine, EngineError, EngineSpec, QueueCounters, RxSlot, Stage, Versions, WorkerSpec,
};
use io::memory::Script;
use teststages::TestColumns;

mod own {
    chunk::drop_reasons! {
        /// Of the stage under test, with a gap.
        pub const BLOCK: 240, "stage under test";
        EARLY = 0, "own_early", "a reason", "Nothing.";
        LATE = 9, "own_late", "another reason", "Nothing.";
    }
}

mod other {
    chunk::drop_reasons! {
        /// The number of another block.
        pub const BLOCK: 240, "another stage";
        ONE = 0, "other_one", "a reason", "Nothing.";
    }
}

#[derive(Clone)]
struct NoTables;
impl Versions for NoTables {
    type Tables = ();
    type Pin = Arc<()>;
    fn pin(&mut self) -> Arc<()> {
        Arc::new(())
    }
    fn number(_: &Arc<()>) -> u64 {
        0
    }
}

/// Gives each packet the verdict that its first four bytes say.
struct Judge(&'static [&'static ReasonBlock]);
impl Stage<()> for Judge {
    fn name(&self) -> &'static str {
        "judge"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        self.0
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, ()>) {
        let view = TestColumns::view(&mut chunk.rows);
        for (verdict, packet) in view.verdict.iter_mut().zip(&chunk.packets) {
            *verdict = u32::from_be_bytes(packet.data()[..4].try_into().unwrap());
        }
    }
}

type Dropped = Arc<Mutex<Vec<DropReason>>>;

fn start(
    stages: &[&'static [&'static ReasonBlock]],
    verdicts: &[Verdict],
) -> Result<(Engine<NoTables>, Dropped), EngineError> {
    let (_, depot) = Region::new(1024, HugePages::Off).unwrap();
    let frames: Vec<Vec<u8>> =
        verdicts.iter().map(|v| [&v.0.to_be_bytes()[..], &[0; 60]].concat()).collect();
    let dropped = Dropped::default();
    let sink = dropped.clone();
    let stages = stages.iter().map(|blocks| Box::new(Judge(blocks)) as Box<_>).collect();
    let worker = WorkerSpec {
        rx: vec![RxSlot {
            entry: engine::Entry::default(),
            port: 0,
            mark: 0,
            queue: Box::new(Script::untimed(frames)),
            spread: None,
            counters: Arc::new(QueueCounters::default()),
        }],
        on_drop: Some(Box::new(move |_: &Packet, reason, _| sink.lock().unwrap().push(reason))),
        ..WorkerSpec::new(NoTables, stages)
    };
    let engine = Engine::start(EngineSpec {
        chunk_packets: 32,
        until_finished: true,
        ..EngineSpec::new(vec![worker], depot)
    })?;
    Ok((engine, dropped))
}

#[test]
fn reasons_count_under_their_names_and_others_as_unknown() {
    let stray = DropReason::from_code(240 << 8 | 4);
    let nobodys = DropReason::from_code(u16::MAX);
    let verdicts = [own::EARLY, own::LATE, own::LATE, stray, nobodys, reasons::NO_CELLS]
        .map(Verdict::drop)
        .into_iter()
        .chain([Verdict::DUMP, Verdict::DUMP, Verdict::forward(3), Verdict(0x7700_0000)]);
    let (engine, dropped) = start(&[&[own::BLOCK]], &verdicts.collect::<Vec<_>>()).unwrap();
    let view = engine.view().clone();
    engine.join().unwrap();
    let counted: Vec<_> = view
        .reasons()
        .iter()
        .map(|reason| (reason.name(), view.drops(reason.code())))
        .filter(|(_, packets)| *packets > 0)
        .collect();
    let expected = [
        // The two codes that nobody declared, and a verdict of no kind.
        ("unknown", 3),
        ("tx_no_port", 1),
        ("no_cells", 1),
        ("own_early", 1),
        ("own_late", 2),
    ];
    assert_eq!(counted, expected);
    assert_eq!((view.drops(stray), view.drops(nobodys)), (0, 0));
    assert_eq!(view.workers[0].dumped.get(), 2);
    assert_eq!(dropped.lock().unwrap().len(), 8);
    assert_eq!(dropped.lock().unwrap()[3].name(), "unknown");
    view.clear();
    assert!(view.reasons().iter().all(|reason| view.drops(reason.code()) == 0));
}

#[test]
fn two_blocks_with_one_number_do_not_start() {
    let error = start(&[&[own::BLOCK], &[other::BLOCK]], &[]).map(|_| ()).unwrap_err();
    let expected =
        "two blocks of drop reasons have number 240: \"stage under test\" and \"another stage\"";
    assert_eq!(error.to_string(), expected);
}
