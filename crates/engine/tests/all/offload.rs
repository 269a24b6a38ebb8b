//! Frames that their sender left unfinished, through an engine: as one packet where stages and queues take them,
//! finished where one does not.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chunk::{
    Chunk, Columns, Declaration, HugePages, Offload, PORT_NONE, Packet, Pool, Region, Verdict,
};
use engine::{
    Capture, CapturePoint, Context, Engine, EngineSpec, QueueCounters, RxSlot, Stage, TxSlot,
    Versions, WorkerSpec,
};
use io::memory::Script;
use io::{QueueStats, RxQueue, TxQueue};
use packet::offload::open_checksum;
use testkit::frames::Frame;
use teststages::TestColumns;

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

/// Sends every packet by port 0, and notes how long they were.
struct Forward {
    takes_offloads: bool,
    seen: Arc<Mutex<Vec<usize>>>,
}

impl Stage<()> for Forward {
    fn name(&self) -> &'static str {
        "forward"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn takes_offloads(&self) -> bool {
        self.takes_offloads
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, ()>) {
        let view = TestColumns::view(&mut chunk.rows);
        for (verdict, packet) in view.verdict.iter_mut().zip(&chunk.packets) {
            self.seen.lock().unwrap().push(packet.frame_len());
            *verdict = Verdict::forward(0).0;
        }
    }
}

/// A queue whose frames are unfinished: checksums open, and longer ones with segments of 1000 bytes.
struct Unfinished(Script);

impl RxQueue for Unfinished {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        let first = out.len();
        let n = self.0.recv(pool, out, max);
        for packet in &mut out[first..] {
            if open_checksum(packet) {
                let is_long = packet.frame_len() > 1054;
                let segments = Offload::segments(1000).unwrap();
                packet.offload = if is_long { segments } else { Offload::CHECKSUM };
            }
        }
        n
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
    fn stats(&self) -> QueueStats {
        self.0.stats()
    }
}

/// Frames, and what is left to do with them.
type Frames = Vec<(Offload, Vec<u8>)>;

/// Keeps what is sent.
struct Sent {
    carries: bool,
    frames: Arc<Mutex<Frames>>,
    stats: QueueStats,
}

impl TxQueue for Sent {
    fn send(&mut self, pool: &mut Pool, packets: &mut Vec<Packet>) {
        for packet in packets.drain(..) {
            let bytes = packet.segments().collect::<Vec<_>>().concat();
            self.frames.lock().unwrap().push((packet.offload, bytes));
            self.stats.packets += 1;
            packet.free(pool);
        }
    }
    fn carries(&self, _: &Packet) -> bool {
        self.carries
    }
    fn flush(&mut self, _: &mut Pool) {}
    fn stats(&self) -> QueueStats {
        self.stats
    }
}

struct Outcome {
    seen: Vec<usize>,
    sent: Frames,
    drops: u64,
}

fn run(takes_offloads: bool, carries: bool, frames: Vec<Vec<u8>>, cells: u32) -> Outcome {
    let (_, depot) = Region::new(cells, HugePages::Off).unwrap();
    let seen = Arc::default();
    let sent = Arc::default();
    let stage = Forward { takes_offloads, seen: Arc::clone(&seen) };
    let tx = Sent { carries, frames: Arc::clone(&sent), stats: QueueStats::default() };
    let worker = WorkerSpec {
        rx: vec![RxSlot {
            entry: engine::Entry::default(),
            port: 0,
            mark: 0,
            queue: Box::new(Unfinished(Script::untimed(frames))),
            spread: None,
            counters: Arc::new(QueueCounters::default()),
        }],
        tx: vec![TxSlot::Own(Box::new(tx), Arc::new(QueueCounters::default()))],
        ..WorkerSpec::new(NoTables, vec![Box::new(stage)])
    };
    let engine = Engine::start(EngineSpec {
        chunk_packets: 4,
        until_finished: true,
        ..EngineSpec::new(vec![worker], depot.clone())
    })
    .unwrap();
    let view = engine.view().clone();
    engine.join().unwrap();
    let drops = view.reasons().iter().map(|reason| view.drops(reason.code())).sum();
    assert_eq!(depot.available(), cells as usize, "every cell is back");
    let (seen, sent) = (seen.lock().unwrap().clone(), sent.lock().unwrap().clone());
    Outcome { seen, sent, drops }
}

fn long() -> Vec<u8> {
    Frame::new().tcp(4000, 80, 7, &(0..5500).map(|i| (i / 7) as u8).collect::<Vec<_>>()).bytes()
}

fn short() -> Vec<u8> {
    Frame::new().udp(4000, 53, b"hello").bytes()
}

/// What `long` is on a wire; identifications count up.
fn segments() -> Vec<Vec<u8>> {
    let payload: Vec<u8> = (0..5500).map(|i| (i / 7) as u8).collect();
    let frame = |(i, part): (usize, &[u8])| {
        let frame = Frame::new().identification(1 + i as u16);
        frame.tcp(4000, 80, 7 + i as u32 * 1000, part).bytes()
    };
    payload.chunks(1000).enumerate().map(frame).collect()
}

#[test]
fn a_long_frame_passes_as_one_packet_where_all_take_it() {
    let out = run(true, true, vec![short(), long(), short()], 64);
    assert_eq!(out.seen, [short().len(), long().len(), short().len()]);
    let kinds: Vec<_> = out.sent.iter().map(|(offload, bytes)| (*offload, bytes.len())).collect();
    let segments = Offload::segments(1000).unwrap();
    let plain = (Offload::CHECKSUM, short().len());
    assert_eq!(kinds, [plain, (segments, long().len()), plain]);
    assert_eq!(out.drops, 0);
}

#[test]
fn it_is_finished_before_it_leaves_by_a_queue_that_does_not_carry_it() {
    let out = run(true, false, vec![short(), long(), short()], 64);
    assert_eq!(out.seen, [short().len(), long().len(), short().len()]);
    let expected: Vec<_> = [short()]
        .into_iter()
        .chain(segments())
        .chain([short()])
        .map(|f| (Offload::NONE, f))
        .collect();
    assert_eq!(out.sent, expected);
    assert_eq!(out.drops, 0);
}

#[test]
fn it_is_finished_on_receipt_for_a_stage_that_does_not_take_it() {
    let out = run(false, true, vec![short(), long(), long(), short()], 64);
    let expected: Vec<_> = [short()]
        .into_iter()
        .chain(segments())
        .chain(segments())
        .chain([short()])
        .map(|f| (Offload::NONE, f))
        .collect();
    assert_eq!(out.sent, expected);
    let lens: Vec<_> = expected.iter().map(|(_, frame)| frame.len()).collect();
    assert_eq!(out.seen, lens);
}

/// Of six cells the frames take four, which leaves too few for six segments.
#[test]
fn a_frame_that_cannot_be_finished_for_want_of_cells_is_counted() {
    let out = run(true, false, vec![long(), short()], 6);
    assert_eq!((out.sent, out.drops), (vec![(Offload::NONE, short())], 1));
}

/// A capture shows what is on the wire, whoever finishes it.
#[test]
fn captures_show_finished_frames() {
    let (_, depot) = Region::new(64, HugePages::Off).unwrap();
    let stage = Forward { takes_offloads: true, seen: Arc::default() };
    let sent = Arc::default();
    let tx = Sent { carries: true, frames: Arc::clone(&sent), stats: QueueStats::default() };
    let (mut feed, rx) = io::memory::pair(8);
    let worker = WorkerSpec {
        rx: vec![RxSlot {
            entry: engine::Entry::default(),
            port: 0,
            mark: 0,
            queue: Box::new(rx),
            spread: None,
            counters: Arc::new(QueueCounters::default()),
        }],
        tx: vec![TxSlot::Own(Box::new(tx), Arc::new(QueueCounters::default()))],
        ..WorkerSpec::new(NoTables, vec![Box::new(stage)])
    };
    let spec = EngineSpec { chunk_packets: 4, ..EngineSpec::new(vec![worker], depot.clone()) };
    let engine = Engine::start(spec).unwrap();
    let capture = Capture { point: CapturePoint::Port(0), filter: None, frames: 64 };
    let mut reader = engine.view().hooks.capture(capture).unwrap();
    let mut pool = Pool::new(depot.clone(), 8);
    let mut packet = Packet::copy_from(&mut pool, &long()).unwrap();
    assert!(open_checksum(&mut packet) && packet.port == PORT_NONE);
    packet.offload = Offload::segments(1000).unwrap();
    feed.push(packet).unwrap();
    let mut seen = [Vec::new(), Vec::new()];
    for _ in 0..2 * segments().len() {
        let frame = reader.recv_timeout(Duration::from_secs(20)).expect("a captured frame");
        seen[usize::from(frame.outgoing)].push(frame.bytes);
    }
    assert_eq!(seen, [segments(), segments()], "as received, and as sent");
    drop((reader, pool));
    engine.stop(Duration::from_secs(20)).unwrap();
    assert_eq!(sent.lock().unwrap().len(), 1);
}
