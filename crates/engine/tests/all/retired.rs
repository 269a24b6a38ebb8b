//! What stages see when a chunk retires is what becomes of its packets.

use std::sync::{Arc, Mutex};

use chunk::{Chunk, Declaration, HugePages, Region, Verdict, reasons};
use engine::{Context, Engine, EngineSpec, InOrder, Phases, RxSlot, Stage, TxSlot, WorkerSpec};
use io::memory::{Collect, Script};

use super::merge::{NoTables, frames, serial};

/// Sends all packets to the host by interfaces 0 to 2 in turn, and keeps the verdicts that it sees in the end.
struct ToHost(Arc<Mutex<Vec<(u32, u32)>>>);

fn interface(serial: u32) -> u16 {
    serial as u16 % 3
}

impl Stage<()> for ToHost {
    fn name(&self) -> &'static str {
        "to_host"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[]
    }
    fn phases(&self) -> Phases {
        Phases::PRE
    }
    fn sees_retired(&self) -> bool {
        true
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, ()>) {
        for (packet, verdict) in chunk.packets.iter().zip(chunk.rows.verdicts()) {
            *verdict = Verdict::host(interface(serial(packet.data()))).0;
        }
    }
    fn retired(&mut self, chunk: &mut Chunk, _: &mut Context<'_, ()>) {
        let all = chunk.packets.iter().zip(chunk.rows.verdicts());
        let all = all.map(|(packet, verdict)| (serial(packet.data()), *verdict));
        self.0.lock().unwrap().extend(all);
    }
}

#[test]
fn packets_for_a_host_that_is_absent_are_dropped_when_stages_see_them() {
    let n = 500;
    for in_order in [false, true] {
        let (_, depot) = Region::new(4_000, HugePages::Off).unwrap();
        let (seen, drops) = (Arc::default(), Arc::<Mutex<Vec<u32>>>::default());
        let mut spec = WorkerSpec::new(NoTables, vec![Box::new(ToHost(Arc::clone(&seen)))]);
        let out = Collect::new();
        let taken = out.frames();
        // Interface 0 has a twin, 1 has none, 2 is not there.
        spec.host = vec![TxSlot::Own(Box::new(out), Arc::default()), TxSlot::Absent];
        let sink = drops.clone();
        spec.on_drop = Some(Box::new(move |packet, reason, _| {
            assert_eq!(reason, reasons::HOST_ABSENT);
            sink.lock().unwrap().push(serial(packet.data()));
        }));
        spec.rx.push(RxSlot {
            entry: engine::Entry::default(),
            port: 0,
            mark: 0,
            queue: Box::new(Script::new(frames(n))),
            spread: None,
            counters: Arc::default(),
        });
        let spec = EngineSpec {
            chunk_packets: 64,
            packet_time: true,
            until_finished: true,
            lossless: true,
            on_error: Arc::new(|port, error| panic!("port {port}: {error}")),
            ..EngineSpec::new(vec![spec], depot)
        };
        let engine = match in_order {
            false => Engine::start(spec),
            true => Engine::start_in_order(spec, InOrder::default()),
        };
        engine.unwrap().join().unwrap();
        let wanted = |serial: u32| match interface(serial) {
            0 => (serial, Verdict::host(0).0),
            _ => (serial, Verdict::drop(reasons::HOST_ABSENT).0),
        };
        assert_eq!(*seen.lock().unwrap(), (0..n).map(wanted).collect::<Vec<_>>());
        let taken: Vec<u32> =
            taken.lock().unwrap().iter().map(|(_, frame)| serial(frame)).collect();
        let (here, absent): (Vec<u32>, Vec<u32>) = (0..n).partition(|own| interface(*own) == 0);
        assert_eq!((taken, &*drops.lock().unwrap()), (here, &absent), "{in_order}");
    }
}
