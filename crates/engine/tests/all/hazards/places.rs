//! Packets that enter the pipeline again at a place, or are handed to another worker.

use std::sync::{Arc, Mutex};

use chunk::{Chunk, HugePages, Region, Verdict, reasons};
use engine::{Context, Engine, EngineSpec, Phases, Stage, WorkerSpec};
use teststages::harness::{Bed, flow_hash};
use teststages::parts::{Witness, flow_of};

use super::{FLOWS, bed, input, one, out, run, sent};

/// Sends packets of odd flows again from `target`, with one from each flow's number taken off until it is even or
/// the packet was dropped; hands packets of flow 8 to the worker of flow 9, and those of flow 16 to the last worker.
struct Loop {
    target: &'static str,
    last_worker: u16,
    /// The last worker has this pipeline.
    is_peer: bool,
}

impl Stage<u64> for Loop {
    fn name(&self) -> &'static str {
        "loop"
    }
    fn sends_to(&self) -> &'static [&'static str] {
        &["first", "last"]
    }
    fn phases(&self) -> Phases {
        Phases::POST
    }
    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, u64>) {
        let (target, last) = (cx.place(self.target).unwrap(), cx.place("last").unwrap());
        for row in 0..chunk.len() {
            if !Verdict(chunk.rows.verdicts()[row]).is_next() {
                continue;
            }
            let flow = flow_of(&chunk.packets[row]);
            let verdict = match flow {
                8 => {
                    let mut packet = chunk.take(row);
                    packet.data_mut()[0] = 9;
                    let hash = flow_hash(&[9]);
                    cx.hand_over(packet, Some(row), hash, last);
                    Verdict::TAKEN
                }
                16 if !cx.is_again(row) => {
                    assert!(usize::from(self.last_worker) < cx.workers());
                    let to = cx.hands_to(self.last_worker);
                    assert_eq!(to, self.is_peer.then_some(self.last_worker));
                    let packet = chunk.take(row);
                    cx.hand_to(packet, Some(row), self.last_worker, last);
                    Verdict::TAKEN
                }
                10 => {
                    let copy = chunk.packets[row].duplicate(cx.pool).unwrap();
                    chunk.emit(row, Verdict::again(last), copy);
                    Verdict::DUMP
                }
                11 => Verdict::again(target),
                flow if flow % 2 == 1 => {
                    chunk.packets[row].data_mut()[0] -= 1;
                    chunk.packets[row].data_mut()[1] += 1;
                    Verdict::again(target)
                }
                _ => Verdict::NEXT,
            };
            chunk.rows.verdicts()[row] = verdict.0;
        }
    }
}

#[test]
fn packets_go_through_again_and_to_other_workers_in_order() {
    for (workers, chunk_packets, target) in
        [(1, 7, "first"), (1, 64, "last"), (1, 256, "first"), (3, 32, "first"), (4, 256, "last")]
    {
        let nothing = || Arc::new(Mutex::new(vec![Vec::new(); FLOWS]));
        let seen = nothing();
        const PACKETS: usize = 4_000;
        let bed = Bed { chunk_packets, ..bed(input(PACKETS)) };
        let done = run(bed, workers, |_| {
            vec![
                Box::new(Witness { name: "first", seen: nothing() }),
                Box::new(Loop { target, last_worker: workers as u16 - 1, is_peer: true }),
                Box::new(Witness { name: "last", seen: seen.clone() }),
                out(),
            ]
        });
        let of = |flow: u8| (0..PACKETS).filter(|i| (i * 7 % 251) as u8 == flow).count() as u64;
        let view = &done.view;
        let (ring_full, dumped) = (view.drops(reasons::RING_FULL), done.dumped.len() as u64);
        assert_eq!(
            sent(&done) as u64 + done.drops() + dumped,
            PACKETS as u64 + done.sum(|w| w.emitted.get()),
            "{workers} workers, {target}"
        );
        assert_eq!(done.sum(|w| w.dumped.get()), dumped);
        if ring_full == 0 {
            // A packet of flow 11 that turns to the start goes round until it has gone too often.
            let turns = if target == "first" { of(11) } else { 0 };
            assert_eq!(view.drops(reasons::AGAIN_TOO_OFTEN), turns);
            assert_eq!(
                (dumped, done.sum(|w| w.handed_over.get())),
                if target == "first" {
                    (of(10), of(8) + of(9) + of(16))
                } else {
                    (of(10), of(8) + of(16))
                }
            );
            // Nothing lost, and in order wherever a flow came one way.
            let seen = seen.lock().unwrap();
            assert_eq!(seen.iter().map(Vec::len).sum::<usize>(), sent(&done));
            for flow in [12, 14, 100, 250] {
                if target == "last" || workers > 1 {
                    continue;
                }
                let own: Vec<u32> =
                    seen[flow].iter().copied().filter(|n| (n * 7 % 251) as usize == flow).collect();
                let turned: Vec<u32> =
                    seen[flow].iter().copied().filter(|n| (n * 7 % 251) as usize != flow).collect();
                assert!(own.is_sorted() && turned.is_sorted(), "flow {flow}: {own:?} {turned:?}");
            }
        }
    }
}

/// It would not know the place, so what is handed to it is lost, counted, and nothing else is.
#[test]
fn a_worker_with_another_pipeline_is_handed_nothing() {
    const PACKETS: usize = 2_000;
    let nothing = || Arc::new(Mutex::new(vec![Vec::new(); FLOWS]));
    let done = run(bed(input(PACKETS)), 2, |worker| {
        let mut stages: Vec<Box<dyn Stage<u64>>> = vec![
            Box::new(Witness { name: "first", seen: nothing() }),
            Box::new(Loop { target: "last", last_worker: 1, is_peer: false }),
            Box::new(Witness { name: "last", seen: nothing() }),
        ];
        if worker == 1 {
            stages.push(Box::new(Witness { name: "other", seen: nothing() }));
        }
        stages.push(out());
        stages
    });
    let of_16 = (0..PACKETS).filter(|i| i * 7 % 251 == 16).count() as u64;
    assert_eq!((done.view.drops(reasons::UNKNOWN), done.drops()), (of_16, of_16));
    assert!(of_16 > 0 && done.view.drops(reasons::RING_FULL) == 0);
}

#[test]
fn a_place_that_the_pipeline_lacks_is_an_error() {
    let (_, depot) = Region::new(64, HugePages::Off).unwrap();
    let worker = WorkerSpec::new(
        one(),
        vec![Box::new(Loop { target: "first", last_worker: 0, is_peer: true })
            as Box<dyn Stage<u64>>],
    );
    let error = Engine::start(EngineSpec::new(vec![worker], depot)).err();
    let text = error.expect("it does not start").to_string();
    assert!(text.contains("`loop`") && text.contains("`first`"), "{text}");
}
