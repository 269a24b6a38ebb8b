//! Several pipelines at one worker.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use chunk::{Chunk, HugePages, PORT_NONE, Packet, Pool, Region, Verdict, reasons};
use engine::{
    Context, Engine, EngineSpec, Entry, Phases, PipelineSpec, RxSlot, Stage, TxSlot, WorkerSpec,
};
use io::{QueueStats, RxQueue};
use teststages::Count;
use teststages::harness::{Backing, Bed, Feed, NumberImage, Setup, Stages};
use teststages::parts::{Plain, Sift, Witness, flow_of};

use super::{input, one, out};

/// Gives frames, each received at the port that is its flow modulo 3.
struct ByFlow {
    frames: std::vec::IntoIter<Vec<u8>>,
    stats: QueueStats,
}

impl ByFlow {
    fn new(packets: usize) -> Box<Self> {
        Box::new(Self { frames: input(packets).into_iter(), stats: QueueStats::default() })
    }
}

impl RxQueue for ByFlow {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        let before = out.len();
        for frame in self.frames.by_ref().take(max) {
            let mut packet = Packet::copy_from(pool, &frame).expect("a cell");
            packet.port = u16::from(frame[0]) % 3;
            out.push(packet);
        }
        self.stats.packets += (out.len() - before) as u64;
        out.len() - before
    }
    fn is_finished(&self) -> bool {
        self.frames.as_slice().is_empty()
    }
    fn stats(&self) -> QueueStats {
        self.stats
    }
}

fn pipelines(all: Vec<(&str, Stages<u64>)>) -> Vec<PipelineSpec<u64>> {
    all.into_iter().map(|(name, stages)| PipelineSpec::new(name, stages)).collect()
}

/// Ports 0 and 2 lead to the first pipeline, port 1 to the second one.
fn by_port() -> Entry {
    Entry::ByPort([0, 1].into())
}

/// Over captures packets leave in the order in which they came, whichever pipeline each one is in; chunks of both are
/// shaded on a device.
#[test]
fn captures_keep_their_order_over_two_pipelines() {
    const PACKETS: usize = 3_000;
    for backing in [Backing::Cpu, Backing::Simulated] {
        let setup =
            Setup { backing, devices: usize::from(backing != Backing::Cpu), ..Setup::default() };
        let feed = Feed {
            worker: 0,
            port: PORT_NONE,
            queue: ByFlow::new(PACKETS),
            spread: None,
            entry: by_port(),
        };
        let bed = Bed {
            feeds: vec![feed],
            packet_time: true,
            devices: setup.devices(|| Box::new(NumberImage) as Box<_>),
            ..Bed::new(Vec::new())
        };
        let count = Count::new();
        let edge: Stages<u64> = vec![Box::new(Plain), Box::new(count.clone()), out()];
        let workers = vec![(one(), pipelines(vec![("edge", edge), ("inner", vec![out()])]))];
        let done = bed.run_pipelines(workers, |_| {});
        done.conserves().unwrap();
        let sent: Vec<_> = done.frames().map(|frame| frame[4..8].to_vec()).collect();
        assert_eq!(sent.len(), PACKETS);
        assert!(sent.is_sorted(), "{backing:?}");
        let counted = input(PACKETS).iter().filter(|frame| frame[0] % 3 != 1).count() as u64;
        assert_eq!(count.sum(), counted);
        let view = &done.view;
        assert_eq!((view.stages[1], view.stage(1).packets), ("count", counted));
        assert_eq!((view.stages[3], view.stage(3).packets), ("out", PACKETS as u64 - counted));
        let of: Vec<_> = (0..5).map(|i| view.pipeline_of(i).map(|own| own.name.as_str())).collect();
        assert_eq!(of, [Some("edge"), Some("edge"), Some("edge"), Some("inner"), None]);
    }
}

/// Bursts of many queues share a chunk for each pipeline: a turn makes two, not one a queue.
#[test]
fn small_bursts_of_many_queues_share_chunks_by_pipeline() {
    /// Gives a packet each time.
    struct Drip(u32, QueueStats);
    impl RxQueue for Drip {
        fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, _: usize) -> usize {
            let Some(left) = self.0.checked_sub(1) else { return 0 };
            self.0 = left;
            self.1.packets += 1;
            out.extend(Packet::copy_from(pool, &[1; 60]));
            1
        }
        fn is_finished(&self) -> bool {
            self.0 == 0
        }
        fn stats(&self) -> QueueStats {
            self.1
        }
    }
    let feed = |i: usize| Feed {
        worker: 0,
        port: 0,
        queue: Box::new(Drip(500, QueueStats::default())),
        spread: None,
        entry: Entry::Pipeline(i % 2),
    };
    let bed = Bed { feeds: (0..20).map(feed).collect(), ..Bed::new(Vec::new()) };
    let workers = vec![(one(), pipelines(vec![("a", vec![out()]), ("b", vec![out()])]))];
    let done = bed.run_pipelines(workers, |_| {});
    done.conserves().unwrap();
    assert_eq!((done.view.stage(0).packets, done.view.stage(1).packets), (5_000, 5_000));
    // A turn takes one packet of each queue.
    let chunks = done.sum(|worker| worker.chunks.get());
    assert!(chunks <= 2 * 500 + 2, "{chunks} chunks");
}

/// Pipelines with the same stages are two all the same, with state of their own; their packets do not meet.
#[test]
fn two_pipelines_of_the_same_stages_are_two() {
    const PACKETS: usize = 2_000;
    for backing in [Backing::Cpu, Backing::Simulated] {
        let setup =
            Setup { backing, devices: usize::from(backing != Backing::Cpu), ..Setup::default() };
        let counts: Vec<Count> = (0..4).map(|_| Count::new()).collect();
        let feed = Feed {
            worker: 0,
            port: PORT_NONE,
            queue: ByFlow::new(PACKETS),
            spread: Some(teststages::harness::flow_hash.into()),
            entry: by_port(),
        };
        let bed = Bed {
            feeds: vec![feed],
            devices: setup.devices(|| Box::new(NumberImage) as Box<_>),
            ..Bed::new(Vec::new())
        };
        let pipeline = |i: usize| {
            let stages: Stages<u64> = vec![Box::new(counts[i].clone()), Box::new(Sift), out()];
            PipelineSpec::new("", stages)
        };
        let workers = (0..2).map(|w| (one(), vec![pipeline(2 * w), pipeline(2 * w + 1)]));
        let done = bed.run_pipelines(workers.collect(), |_| {});
        done.conserves().unwrap();
        assert_eq!(done.view.pipelines.len(), 2);
        let of = |flow: u8| input(PACKETS).iter().filter(|frame| frame[0] == flow).count() as u64;
        for flow in 0..=250 {
            let [first, second] = [0, 1].map(|at| counts[at].of(flow) + counts[at + 2].of(flow));
            let wanted = if flow % 3 == 1 { (0, of(flow)) } else { (of(flow), 0) };
            assert_eq!((first, second), wanted, "flow {flow}");
        }
    }
}

/// Sends every packet to a place.
struct To(&'static str, &'static [&'static str]);

impl Stage<u64> for To {
    fn name(&self) -> &'static str {
        self.0
    }
    fn sends_to(&self) -> &'static [&'static str] {
        self.1
    }
    fn phases(&self) -> Phases {
        Phases::POST
    }
    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, u64>) {
        let place = cx.place(self.1[0]).expect("the place");
        for row in 0..chunk.len() {
            let is_odd = flow_of(&chunk.packets[row]) & 1 == 1;
            if is_odd && Verdict(chunk.rows.verdicts()[row]).is_next() {
                chunk.packets[row].data_mut()[0] ^= 1;
                chunk.rows.verdicts()[row] = Verdict::again(place).0;
            }
        }
    }
}

/// The same place is another stage in each of two pipelines, and packets stay in theirs.
#[test]
fn a_place_leads_where_its_pipeline_says() {
    const PACKETS: usize = 1_000;
    let seen: Vec<Arc<Mutex<Vec<Vec<u32>>>>> =
        (0..4).map(|_| Arc::new(Mutex::new(vec![Vec::new(); 256]))).collect();
    let witness = |i: usize, name| Box::new(Witness { name, seen: seen[i].clone() }) as Box<_>;
    let stages = |i| -> Stages<u64> {
        vec![witness(i, "early"), Box::new(To("to", &["place"])), witness(i + 1, "late"), out()]
    };
    let lead = |i, stage: &str| PipelineSpec {
        places: vec![("place".into(), stage.into())],
        ..PipelineSpec::new("", stages(i))
    };
    let feed = Feed {
        worker: 0,
        port: PORT_NONE,
        queue: ByFlow::new(PACKETS),
        spread: None,
        entry: by_port(),
    };
    let bed = Bed { feeds: vec![feed], ..Bed::new(Vec::new()) };
    let done = bed.run_pipelines(vec![(one(), vec![lead(0, "early"), lead(2, "late")])], |_| {});
    done.conserves().unwrap();
    assert_eq!((done.frames().count(), done.drops()), (PACKETS, 0));
    let all = input(PACKETS);
    let count = |of_second: bool, is_odd: bool| {
        let is_it = |f: &&Vec<u8>| (f[0] % 3 == 1) == of_second && (f[0] % 2 == 1) == is_odd;
        all.iter().filter(is_it).count()
    };
    let saw: Vec<usize> =
        seen.iter().map(|seen| seen.lock().unwrap().iter().map(Vec::len).sum()).collect();
    let (first, second) = (count(false, false) + count(false, true), count(true, false));
    let odd = (count(false, true), count(true, true));
    assert_eq!(saw, [first + odd.0, first, second + odd.1, second + odd.1]);
}

/// A stage that sends every packet to itself: each goes round as often as it may, and is counted.
#[test]
fn a_loop_ends_with_all_packets_counted() {
    struct Round;
    impl Stage<u64> for Round {
        fn name(&self) -> &'static str {
            "round"
        }
        fn sends_to(&self) -> &'static [&'static str] {
            &["start"]
        }
        fn phases(&self) -> Phases {
            Phases::POST
        }
        fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, u64>) {
            chunk.rows.verdicts().fill(Verdict::again(cx.place("start").expect("itself")).0);
        }
    }
    for workers in [1, 3] {
        let spec = |_| PipelineSpec {
            places: vec![("start".into(), "round".into())],
            ..PipelineSpec::new("", vec![Box::new(Round) as Box<dyn Stage<u64>>, out()])
        };
        let workers = (0..workers).map(|worker| (one(), vec![spec(worker)])).collect();
        let done = Bed::new(input(5_000)).run_pipelines(workers, |_| {});
        done.conserves().unwrap();
        assert_eq!(done.view.drops(reasons::AGAIN_TOO_OFTEN), 5_000);
        assert_eq!(done.sum(|worker| worker.again.get()), 8 * 5_000);
    }
}

#[test]
fn odd_pipelines_are_errors() {
    let start = |pipelines, entry| {
        let (_, depot) = Region::new(64, HugePages::Off).unwrap();
        let mut worker = WorkerSpec::with_pipelines(one(), pipelines);
        let queue = ByFlow::new(0);
        let counters = Arc::default();
        worker.rx = vec![RxSlot { port: 0, mark: 0, queue, spread: None, entry, counters }];
        worker.tx = vec![TxSlot::Absent];
        let engine = Engine::start(EngineSpec::new(vec![worker], depot));
        engine
            .map(|engine| engine.stop(Duration::from_secs(5)))
            .err()
            .map(|error| error.to_string())
    };
    let named = |places: &[(&str, &str)]| PipelineSpec {
        places: places.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect(),
        ..PipelineSpec::new(
            "edge",
            vec![Box::new(To("to", &["place"])) as Box<dyn Stage<u64>>, out()],
        )
    };
    let plain = || PipelineSpec::new("", vec![out()]);
    assert_eq!(start(vec![plain(), named(&[("place", "out")])], Entry::Pipeline(1)), None);
    for (pipelines, entry, wanted) in [
        (vec![], Entry::default(), "worker 0 has no pipeline"),
        (vec![PipelineSpec::new("edge", vec![])], Entry::default(), "pipeline `edge` has no stage"),
        (vec![plain()], Entry::Pipeline(1), "leads to pipeline 1, but there are 1"),
        (vec![plain()], Entry::ByPort([0, 3].into()), "leads to pipeline 3"),
        (vec![named(&[])], Entry::default(), "to stage `place`, which the pipeline lacks"),
        (
            vec![named(&[("place", "nobody")])],
            Entry::default(),
            "`nobody` (place `place`), which the",
        ),
        (vec![named(&[("place", "out"), ("other", "out")])], Entry::default(), "place `other`"),
    ] {
        let text = start(pipelines, entry).expect("it does not start");
        assert!(text.contains(wanted), "{text}");
    }
}
