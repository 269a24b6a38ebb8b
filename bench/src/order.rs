//! `bench order`: overtakes within a flow while chunks are shaded here and there.
//!
//! Two workers, packets spread by flow hash, a simulated device with eight jobs in flight whose
//! slots end out of order. Every packet carries its flow and its number; the transmit side looks at
//! each. PacketShader §5.3: packets of a flow must not be reordered.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chunk::{Chunk, Columns, Declaration, HugePages, Packet, Pool, Region, Rows, Verdict};
use device::{Cost, FaultPlan};
use engine::{
    Context, DeviceKind, DeviceSpec, Engine, EngineSpec, KernelForm, Policy, RxSlot, Shade, Stage,
    Step, TxSlot, Versions, WorkerSpec,
};
use io::{QueueStats, RxQueue, TxQueue};

use crate::tables::Random;
use crate::{Report, Row};

chunk::columns! {
    /// What the bench's stage needs.
    struct OrderColumns / OrderView {
        /// The packet's flow.
        pub flow: u32,
        /// The port chosen for it.
        pub port: u32,
    }
}

/// Flows of the load.
const FLOWS: usize = 4096;

struct NoTables;

struct Unit(());

impl Deref for Unit {
    type Target = ();
    fn deref(&self) -> &() {
        &self.0
    }
}

impl Versions for NoTables {
    type Tables = ();
    type Pin = Unit;
    fn pin(&mut self) -> Unit {
        Unit(())
    }
    fn number(_: &Unit) -> u64 {
        0
    }
}

/// Chooses the port by the flow's number.
struct ByFlow;

impl Stage<()> for ByFlow {
    fn name(&self) -> &'static str {
        "by_flow"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[OrderColumns::COLUMNS]
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, ()>) {
        let view = OrderColumns::view(&mut chunk.rows);
        for (flow, packet) in view.flow.iter_mut().zip(&chunk.packets) {
            *flow = flow_of(packet.data());
        }
    }
    fn shader(&self) -> Option<Arc<dyn Shade<()>>> {
        Some(Arc::new(ByFlow))
    }
}

impl Shade<()> for ByFlow {
    fn shade(&self, rows: &mut Rows, (): &()) {
        let view = OrderColumns::view(rows);
        for i in 0..view.flow.len() {
            view.port[i] = view.flow[i] % 2;
            view.verdict[i] = Verdict::forward(view.port[i] as u16).0;
        }
    }
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            text: "
                KERNEL(by_flow)
                {
                    if (GLOBAL_ID < job_rows(arena)) {
                        const uint row = JOB_FIRST(arena) + GLOBAL_ID;
                        COL_PORT(arena)[row] = COL_FLOW(arena)[row] % 2u;
                        COL_VERDICT(arena)[row] = VERDICT_FORWARD | COL_PORT(arena)[row];
                    }
                }"
            .into(),
            steps: vec![Step::rows("by_flow", 64).into()],
            ..KernelForm::default()
        })
    }
}

fn flow_of(frame: &[u8]) -> u32 {
    frame.first_chunk().map_or(0, |b| u32::from_be_bytes(*b))
}

fn number_of(frame: &[u8]) -> u64 {
    frame.get(8..16).and_then(|b| b.try_into().ok()).map_or(0, u64::from_be_bytes)
}

fn flow_hash(frame: &[u8]) -> u32 {
    flow_of(frame).wrapping_mul(0x9e37_79b9)
}

/// Makes the packets: a random flow each, numbered within the flow.
struct Source {
    random: Random,
    numbers: Vec<u64>,
    left: u64,
    stats: QueueStats,
}

impl RxQueue for Source {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        // Bursts of any size, as on a wire: chunks of one packet and full ones.
        let burst = 1 + self.random.below(max);
        for n in 0..burst {
            if self.left == 0 {
                return n;
            }
            let flow = self.random.below(FLOWS);
            let mut frame = [0u8; 60];
            frame[..4].copy_from_slice(&(flow as u32).to_be_bytes());
            frame[8..16].copy_from_slice(&self.numbers[flow].to_be_bytes());
            let Some(packet) = Packet::copy_from(pool, &frame) else { return n };
            self.numbers[flow] += 1;
            self.left -= 1;
            self.stats.packets += 1;
            out.push(packet);
        }
        burst
    }
    fn is_finished(&self) -> bool {
        self.left == 0
    }
    fn stats(&self) -> QueueStats {
        self.stats
    }
}

#[derive(Default)]
struct Seen {
    next: HashMap<u32, u64>,
    packets: u64,
    overtakes: u64,
}

/// Looks at the order of what is sent.
struct Judge {
    seen: Arc<Mutex<Seen>>,
    stats: QueueStats,
}

impl TxQueue for Judge {
    fn send(&mut self, pool: &mut Pool, packets: &mut Vec<Packet>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for packet in packets.drain(..) {
            let (flow, number) = (flow_of(packet.data()), number_of(packet.data()));
            let next = seen.next.entry(flow).or_default();
            let overtaken = number < *next;
            *next = (*next).max(number + 1);
            seen.overtakes += u64::from(overtaken);
            seen.packets += 1;
            self.stats.packets += 1;
            packet.free(pool);
        }
    }
    fn flush(&mut self, _: &mut Pool) {}
    fn stats(&self) -> QueueStats {
        self.stats
    }
}

pub(crate) fn run(packets: u64) -> Result<Report, String> {
    let mut report = Report::new(
        "order",
        format!("{packets} packets of {FLOWS} flows, two workers, eight simulated jobs in flight"),
    );
    let policies = [
        ("CPU only", Policy::Cpu),
        ("device only", Policy::Device),
        ("half and half", Policy::Share { device: 1, of: 2 }),
    ];
    for (name, policy) in policies {
        let (seen, in_flight, time) = forward(packets, policy)?;
        let rows = &mut report.rows;
        let overtakes = seen.overtakes as f64;
        rows.push(Row::new(format!("{name}: overtakes"), "packets", vec![overtakes]).at_most(0.0));
        let lost = packets - seen.packets;
        rows.push(Row::new(format!("{name}: full rings"), "packets", vec![lost as f64]));
        rows.push(Row::new(format!("{name}: jobs in flight"), "jobs", vec![in_flight as f64]));
        let rate = seen.packets as f64 / time.as_secs_f64() / 1e6;
        rows.push(Row::new(format!("{name}: rate"), "Mpps", vec![rate]));
        if seen.overtakes > 0 {
            report.wrong.push(format!("{name}: {} overtakes within a flow", seen.overtakes));
        }
    }
    Ok(report)
}

fn forward(packets: u64, policy: Policy) -> Result<(Seen, u64, Duration), String> {
    let (_, depot) = Region::new(65_536, HugePages::Advise).map_err(|e| e.to_string())?;
    let seen: [Arc<Mutex<Seen>>; 2] = Default::default();
    let judge = |port: usize| {
        let queue = Judge { seen: seen[port].clone(), stats: QueueStats::default() };
        TxSlot::Own(Box::new(queue), Arc::default())
    };
    let source = Source {
        random: Random(3),
        numbers: vec![0; FLOWS],
        left: packets,
        stats: QueueStats::default(),
    };
    let worker = || WorkerSpec {
        cpu: None,
        versions: NoTables,
        stages: vec![Box::new(ByFlow) as Box<dyn Stage<()>>],
        rx: Vec::new(),
        tx: Vec::new(),
        host: Vec::new(),
        on_drop: None,
        device: None,
        on_dump: None,
    };
    let (mut first, mut second) = (worker(), worker());
    first.rx.push(RxSlot {
        port: 0,
        mark: 0,
        queue: Box::new(source),
        spread: Some(flow_hash),
        counters: Arc::default(),
    });
    first.tx = vec![judge(0), TxSlot::Worker(1)];
    second.tx = vec![TxSlot::Worker(0), judge(1)];
    let cost = Cost { launch: Duration::from_micros(20), row: Duration::from_nanos(20) };
    let begin = Instant::now();
    let engine = Engine::start(EngineSpec {
        workers: vec![first, second],
        depot,
        chunk_packets: 256,
        chunks: 64,
        devices: (policy != Policy::Cpu)
            .then(|| DeviceSpec {
                kind: DeviceKind::Simulated { cost, faults: FaultPlan::default() },
                slots: 8,
                rows: 2048,
                policy,
            })
            .into_iter()
            .collect(),
        max_delay: None,
        packet_time: false,
        until_finished: true,
        lossless: false,
        on_error: Arc::new(|_, _| {}),
        on_device_error: Arc::new(|_, _| {}),
        on_panic: Arc::new(|panic| eprintln!("{panic}")),
    })
    .map_err(|e| e.to_string())?;
    let view = engine.view().clone();
    engine.join()?;
    let time = begin.elapsed();
    let mut sum = Seen::default();
    for port in &seen {
        let port = port.lock().unwrap_or_else(PoisonError::into_inner);
        sum.packets += port.packets;
        sum.overtakes += port.overtakes;
    }
    Ok((sum, view.master().map_or(0, |m| m.in_flight_max), time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_judge_sees_an_overtake() {
        let (_, depot) = Region::new(16, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot, 4);
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let mut judge = Judge { seen: seen.clone(), stats: QueueStats::default() };
        let mut packets: Vec<_> = [0u64, 2, 1]
            .iter()
            .map(|n| {
                let mut frame = [0u8; 60];
                frame[8..16].copy_from_slice(&n.to_be_bytes());
                Packet::copy_from(&mut pool, &frame).unwrap()
            })
            .collect();
        judge.send(&mut pool, &mut packets);
        assert_eq!(seen.lock().unwrap().overtakes, 1);
    }

    #[test]
    fn nothing_overtakes() {
        let report = run(20_000).unwrap();
        assert!(report.wrong.is_empty(), "{:?}", report.wrong);
    }
}
