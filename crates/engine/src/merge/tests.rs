//! The merger against one worker that does one packet after the other.

use super::*;

use chunk::{HugePages, Region, reasons};
use io::QueueStats;
use io::memory::{Collect, Frames};
use proptest::prelude::*;

const PORTS: usize = 3;

/// Takes a few packets at a time, as a queue does that is slower than the merger.
struct Slow(Collect, usize);

impl TxQueue for Slow {
    fn send(&mut self, pool: &mut Pool, packets: &mut Vec<Packet>) {
        let rest = packets.split_off(self.1.min(packets.len()));
        self.0.send(pool, packets);
        *packets = rest;
    }
    fn flush(&mut self, _: &mut Pool) {}
    fn stats(&self) -> QueueStats {
        self.0.stats()
    }
}

/// Admits two of three.
#[derive(Default)]
struct TwoOfThree(u32);

impl Gate for TwoOfThree {
    fn admits(&mut self, _: &Packet) -> bool {
        self.0 += 1;
        !self.0.is_multiple_of(3)
    }
}

/// What becomes of a received packet and of what is emitted behind it.
#[derive(Debug, Clone, Copy)]
enum Piece {
    Forward(u16),
    Host,
    Drop,
    /// Emitted, if the gate admits it.
    Deferred(u16),
    /// Nothing is emitted, but the gate is asked.
    Asked,
}

fn piece() -> impl Strategy<Value = Piece> {
    let port = 0..PORTS as u16;
    prop_oneof![
        4 => port.clone().prop_map(Piece::Forward),
        1 => Just(Piece::Host),
        1 => Just(Piece::Drop),
        1 => port.prop_map(Piece::Deferred),
        1 => Just(Piece::Asked),
    ]
}

/// The bytes of piece `j` of packet `i`.
fn bytes(i: usize, j: usize) -> Vec<u8> {
    [(i as u32).to_be_bytes(), (j as u32).to_be_bytes()].concat()
}

/// What each port, the host and the sink of drops get from one worker.
#[derive(Debug, Default, PartialEq)]
struct Written {
    ports: Vec<Vec<Vec<u8>>>,
    host: Vec<Vec<u8>>,
    drops: Vec<Vec<u8>>,
    admitted: u64,
}

fn plainly(packets: &[(u16, Vec<Piece>)]) -> Written {
    let mut written = Written { ports: vec![Vec::new(); PORTS], ..Written::default() };
    let mut gate = TwoOfThree::default();
    for (i, (_, pieces)) in packets.iter().enumerate() {
        for (j, piece) in pieces.iter().enumerate() {
            match *piece {
                Piece::Forward(port) => written.ports[usize::from(port)].push(bytes(i, j)),
                Piece::Host => written.host.push(bytes(i, j)),
                Piece::Drop => written.drops.push(bytes(i, j)),
                Piece::Deferred(port) => {
                    if gate.admits(&Packet::empty()) {
                        written.ports[usize::from(port)].push(bytes(i, j));
                        written.admitted += 1;
                    }
                }
                Piece::Asked => _ = gate.admits(&Packet::empty()),
            }
        }
    }
    written
}

/// A merger of so many workers before queues that are collected.
struct Bench {
    merger: Merger,
    merging: Arc<Merging>,
    lanes: Vec<Lane>,
    pool: Pool,
    depot: Arc<Depot>,
    frames: Vec<Frames>,
    drops: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Bench {
    fn new(workers: usize, at_once: usize) -> Self {
        let (_, depot) = Region::new(8192, HugePages::Off).unwrap();
        let mut frames = Vec::new();
        let mut out = || {
            let collect = Collect::new();
            frames.push(collect.frames());
            let queue = Box::new(Slow(collect, at_once));
            Some(Out { queue, counters: Arc::default(), waiting: Vec::new() })
        };
        let tx = (0..PORTS).map(|_| out()).chain([None]).collect();
        let host = vec![None, out()];
        let drops = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let sink = drops.clone();
        let (merger, merging) = Merger::new(MergerParts {
            workers,
            depot: depot.clone(),
            tx,
            host,
            on_drop: Some(Box::new(move |packet, _, time_ns| {
                assert_eq!(time_ns, packet.time_ns);
                lock(&sink).push(packet.data().to_vec());
            })),
            on_dump: None,
            on_error: Arc::new(|_, error| panic!("{error}")),
            in_order: InOrder {
                gate: Some(Box::new(TwoOfThree::default())),
                under_way: UnderWay::default(),
            },
            abort: Arc::default(),
        })
        .unwrap();
        let lanes = (0..workers).map(|w| Lane::new(merging.clone(), w as u16)).collect();
        let pool = Pool::new(depot.clone(), 64);
        Self { merger, merging, lanes, pool, depot, frames, drops }
    }

    /// Worker `w` retires packet `i`.
    fn retire(&mut self, w: usize, i: usize, pieces: &[Piece]) {
        for (j, piece) in pieces.iter().enumerate() {
            let mut packet = Packet::copy_from(&mut self.pool, &bytes(i, j)).unwrap();
            packet.time_ns = i as u64;
            let verdict = match *piece {
                Piece::Forward(port) => Verdict::forward(port),
                Piece::Host => Verdict::host(1),
                Piece::Drop => Verdict::drop(reasons::NO_CELLS),
                Piece::Deferred(port) => {
                    packet.mark = MARK_DEFERRED | 7;
                    Verdict::forward(port)
                }
                Piece::Asked => {
                    std::mem::replace(&mut packet, Packet::empty()).free(&mut self.pool);
                    packet.mark = MARK_DEFERRED;
                    Verdict::TAKEN
                }
            };
            self.lanes[w].put(packet, verdict);
        }
        self.lanes[w].retired();
    }

    /// Everything has been handed in.
    fn end(self) -> Written {
        self.merging.end();
        drop(self.merger.run());
        drop((self.lanes, self.pool));
        assert_eq!(self.depot.available(), 8192, "cells leaked");
        let all = |f: &Frames| f.lock().unwrap().iter().map(|(_, b)| b.clone()).collect();
        let mut ports: Vec<_> = self.frames.iter().map(all).collect();
        let host = ports.pop().unwrap();
        let drops = std::mem::take(&mut *lock(&self.drops));
        Written { ports, host, drops, admitted: self.merging.admitted() }
    }
}

/// What happens next: the reader schedules so many packets, a worker retires so many or hands in
/// what it has, or the merger takes a step.
#[derive(Debug, Clone, Copy)]
enum Event {
    Schedule(usize),
    Retire(usize, usize),
    HandIn(usize),
    Step,
}

fn event(workers: usize) -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (1usize..20).prop_map(Event::Schedule),
        4 => (0..workers, 1usize..10).prop_map(|(w, n)| Event::Retire(w, n)),
        2 => (0..workers).prop_map(Event::HandIn),
        2 => Just(Event::Step),
    ]
}

type Packets = Vec<(u16, Vec<Piece>)>;

fn scene() -> impl Strategy<Value = (usize, Packets, Vec<Event>, usize)> {
    (1usize..6).prop_flat_map(|workers| {
        let packet = (0..workers as u16, prop::collection::vec(piece(), 0..4));
        (
            Just(workers),
            prop::collection::vec(packet, 0..300),
            prop::collection::vec(event(workers), 0..400),
            1usize..40,
        )
    })
}

proptest! {
    /// Workers retire their packets whenever they like; what is written is what one worker writes.
    #[test]
    fn the_order_is_that_of_one_worker((workers, packets, events, at_once) in scene()) {
        let mut bench = Bench::new(workers, at_once);
        // By worker: its packets in order, and how many it has retired.
        let mut own = vec![(Vec::new(), 0); workers];
        let mut scheduled = 0;
        let schedule = |bench: &mut Bench, own: &mut Vec<(Vec<usize>, usize)>, n: usize, at: &mut usize| {
            let end = (*at + n).min(packets.len());
            for (i, (worker, _)) in packets.iter().enumerate().take(end).skip(*at) {
                let w = usize::from(*worker);
                bench.lanes[0].note(w);
                own[w].0.push(i);
            }
            bench.lanes[0].schedule();
            *at = end;
        };
        let retire = |bench: &mut Bench, own: &mut Vec<(Vec<usize>, usize)>, w: usize, n: usize| {
            for _ in 0..n {
                let (given, done) = &mut own[w];
                let Some(&i) = given.get(*done) else { break };
                *done += 1;
                bench.retire(w, i, &packets[i].1);
            }
        };
        for event in events {
            match event {
                Event::Schedule(n) => schedule(&mut bench, &mut own, n, &mut scheduled),
                Event::Retire(w, n) => retire(&mut bench, &mut own, w, n),
                Event::HandIn(w) => bench.lanes[w].hand_in(),
                Event::Step => _ = bench.merger.step(),
            }
        }
        schedule(&mut bench, &mut own, packets.len(), &mut scheduled);
        for w in (0..workers).rev() {
            retire(&mut bench, &mut own, w, packets.len());
            bench.lanes[w].hand_in();
        }
        prop_assert_eq!(bench.end(), plainly(&packets));
    }
}

#[test]
fn the_reader_waits_until_packets_have_been_merged() {
    let mut bench = Bench::new(2, 1000);
    assert!(!bench.lanes[0].is_full());
    let window = bench.merging.window as usize;
    bench.lanes[0].note_own(window - CHUNK_PACKETS_MAX);
    bench.lanes[0].schedule();
    assert!(!bench.lanes[0].is_full(), "one more chunk has room");
    bench.lanes[0].note(1);
    bench.lanes[0].schedule();
    assert!(bench.lanes[0].is_full());
    for i in 0..10 {
        bench.retire(0, i, &[Piece::Forward(0)]);
    }
    bench.lanes[0].hand_in();
    assert_eq!(bench.merger.step(), 10);
    assert!(!bench.lanes[0].is_full());
    // Few free cells: the reader waits as long as anything is under way, and no longer.
    let cells: Vec<_> = (0..5000).map_while(|_| bench.pool.get()).collect();
    assert!(bench.lanes[0].is_full() && !bench.merging.under_way.is_none());
    for i in 10..window - CHUNK_PACKETS_MAX {
        bench.retire(0, i, &[]);
    }
    bench.retire(1, 0, &[]);
    bench.lanes.iter_mut().for_each(Lane::hand_in);
    bench.merger.step();
    assert!(!bench.lanes[0].is_full() && bench.merging.under_way.is_none());
    cells.into_iter().for_each(|cell| bench.pool.put(cell));
    let written = bench.end();
    assert_eq!(written.ports[0].len(), 10);
}

/// A worker that has died leaves a gap; what the others made is written all the same, and so is
/// what a stage gave up at the end.
#[test]
fn nothing_waits_for_a_worker_that_has_died() {
    let mut bench = Bench::new(2, 1000);
    for worker in [0, 1, 1, 0] {
        bench.lanes[0].note(worker);
    }
    bench.lanes[0].schedule();
    bench.retire(0, 0, &[Piece::Forward(0)]);
    bench.retire(0, 3, &[Piece::Forward(0), Piece::Host]);
    let held = Packet::copy_from(&mut bench.pool, b"held").unwrap();
    bench.lanes[1].put(held, Verdict::drop(reasons::NO_CELLS));
    bench.lanes.iter_mut().for_each(Lane::hand_in);
    assert_eq!(bench.merger.step(), 1);
    let written = bench.end();
    assert_eq!(written.ports[0], [bytes(0, 0), bytes(3, 0)]);
    assert_eq!((written.host, written.drops), (vec![bytes(3, 1)], vec![b"held".to_vec()]));
}

#[test]
fn lanes_know_which_queues_there_are() {
    let bench = Bench::new(1, 1);
    let lane = &bench.lanes[0];
    assert!(lane.has_queue(0, false) && lane.has_queue(2, false) && lane.has_queue(1, true));
    assert!(!lane.has_queue(3, false) && !lane.has_queue(9, false) && !lane.has_queue(0, true));
}

/// Workers that do not read ask as well, while the reader schedules and the merger merges.
#[test]
fn the_count_includes_no_packets_that_are_not_under_way() {
    let (under_way, is_over) = (UnderWay::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..300_000 {
                under_way.0.scheduled.fetch_add(256, Ordering::Relaxed);
                under_way.0.merged.fetch_add(256, Ordering::Release);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            assert!(under_way.packets() < 1 << 32);
        }
    });
    assert!(under_way.is_none());
}
