//! `bench order`: overtakes within a flow while chunks are shaded here and there.
//!
//! Two workers, packets spread by flow hash, a simulated device with eight jobs in flight whose
//! slots end out of order. Every packet carries its flow and its number; the transmit side looks at
//! each. PacketShader §5.3: packets of a flow must not be reordered.
//!
//! Besides the plain pipeline there are three in which more could go wrong:
//!
//! | | what is in front of the choice of a port |
//! | --- | --- |
//! | with state | a stage whose state, at home at the worker or on the device, keeps each flow's last number and looks too |
//! | with fragments | packets of odd flows come as two fragments, spread without their flow; a stage joins them and hands them over to the flow's worker |
//! | sent again | packets of odd flows go through the pipeline twice |

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chunk::{
    Chunk, ColumnSet, Columns, Declaration, HugePages, Packet, Pool, Region, Rows, Verdict, reasons,
};
use device::{Cost, FaultPlan};
use engine::{
    Context, DeviceKind, DeviceSpec, Engine, EngineSpec, KernelForm, Phases, Policy, RxSlot, Shade,
    Stage, StateForm, Step, TxSlot, Versions, WorkerSpec,
};
use io::{QueueStats, RxQueue, TxQueue};

use crate::tables::Random;
use crate::{Report, Row};

chunk::columns! {
    /// What the bench's stage needs.
    pub(crate) struct OrderColumns / OrderView {
        /// The packet's flow.
        pub flow: u32,
        /// The port chosen for it.
        pub port: u32,
        /// The packet's number in its flow.
        pub number: u32,
        /// Whether a packet with a greater number came before, by the stage with state.
        pub is_late: u32,
    }
}

/// Flows of the load.
const FLOWS: usize = 4096;

/// Flows of a step of state.
const STEP: usize = 1024;

/// Tables of nothing, of which there is one version.
pub(crate) struct OneVersion;

pub(crate) struct Unit(());

impl Deref for Unit {
    type Target = ();
    fn deref(&self) -> &() {
        &self.0
    }
}

impl Versions for OneVersion {
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
pub(crate) struct ByFlow;

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
    fn reads(&self) -> ColumnSet {
        ColumnSet::of(&[OrderColumns::FLOW])
    }
    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[OrderColumns::PORT])
    }
    fn shader(&self) -> Option<Arc<dyn Shade<()>>> {
        Some(Arc::new(ByFlow))
    }
}

impl Shade<()> for ByFlow {
    fn shade(&self, rows: &mut Rows, (): &()) {
        let view = OrderColumns::view(rows);
        for i in 0..view.flow.len() {
            if Verdict(view.verdict[i]).is_next() {
                view.port[i] = view.flow[i] % 2;
                view.verdict[i] = Verdict::forward(view.port[i] as u16).0;
            }
        }
    }
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            text: "
                KERNEL(by_flow)
                {
                    const uint row = JOB_FIRST(arena) + GLOBAL_ID;
                    if (GLOBAL_ID < job_rows(arena) && IS_NEXT(COL_VERDICT(arena)[row])) {
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

/// What is in front of the choice of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Plain,
    State,
    Fragments,
    Again,
}

/// Keeps the next number of each flow, and looks whether an earlier one comes. The kernel's state is the same.
#[derive(Clone)]
struct Last {
    next: Arc<Vec<AtomicU32>>,
    late: Arc<AtomicU64>,
}

impl Last {
    fn new(late: Arc<AtomicU64>) -> Self {
        Self { next: Arc::new((0..FLOWS).map(|_| AtomicU32::new(0)).collect()), late }
    }
}

impl Stage<()> for Last {
    fn name(&self) -> &'static str {
        "last"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[OrderColumns::COLUMNS]
    }
    fn reads(&self) -> ColumnSet {
        ColumnSet::of(&[OrderColumns::FLOW, OrderColumns::NUMBER])
    }
    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[OrderColumns::IS_LATE])
    }
    fn ends_segment(&self) -> bool {
        true
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, ()>) {
        let view = OrderColumns::view(&mut chunk.rows);
        for (row, packet) in chunk.packets.iter().enumerate() {
            view.flow[row] = flow_of(packet.data());
            view.number[row] = number_of(packet.data()) as u32;
        }
    }
    fn shader(&self) -> Option<Arc<dyn Shade<()>>> {
        Some(Arc::new(self.clone()))
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, ()>) {
        let late: u64 =
            OrderColumns::view(&mut chunk.rows).is_late.iter().map(|late| u64::from(*late)).sum();
        self.late.fetch_add(late, Ordering::Relaxed);
    }
}

impl Shade<()> for Last {
    fn shade(&self, rows: &mut Rows, (): &()) {
        let view = OrderColumns::view(rows);
        for row in 0..view.flow.len() {
            let next = &self.next[view.flow[row] as usize % FLOWS];
            let before = next.fetch_max(view.number[row] + 1, Ordering::Relaxed);
            view.is_late[row] = u32::from(view.number[row] < before);
        }
    }
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            // One work item walks the rows, so that those of a flow run in their order.
            text: "
                KERNEL(last_number)
                {
                    if (GLOBAL_ID == 0u)
                        for (uint i = 0u; i < job_rows(arena); i++) {
                            const uint row = JOB_FIRST(arena) + i;
                            const uint flow = COL_FLOW(arena)[row] & 4095u;
                            const uint number = COL_NUMBER(arena)[row];
                            GLOBAL uint *next = (GLOBAL uint *)STATE_RECORD(arena, state, row, flow);
                            COL_IS_LATE(arena)[row] = number < *next ? 1u : 0u;
                            if (number >= *next)
                                *next = number + 1u;
                        }
                }"
            .into(),
            steps: vec![Step::rows("last_number", 64).into()],
            state: Some(StateForm { record_bytes: 4, slots_per_step: STEP }),
            ..KernelForm::default()
        })
    }
    fn state_slots(&self) -> usize {
        FLOWS
    }
    fn state(&self, step: usize, bytes: &mut [u8]) {
        for (to, next) in bytes.chunks_exact_mut(4).zip(&self.next[step * STEP..]) {
            to.copy_from_slice(&next.load(Ordering::Relaxed).to_le_bytes());
        }
    }
    fn twin(&self) -> Option<Arc<dyn Shade<()>>> {
        Some(Arc::new(Last::new(Arc::default())))
    }
    fn set_state(&self, step: usize, bytes: &[u8]) {
        for (next, from) in self.next[step * STEP..].iter().zip(bytes.as_chunks::<4>().0) {
            next.store(u32::from_le_bytes(*from), Ordering::Relaxed);
        }
    }
    fn retired(&self, rows: &mut Rows, _: &mut [Packet]) {
        let view = OrderColumns::view(rows);
        for (flow, number) in view.flow.iter().zip(view.number) {
            self.next[*flow as usize % FLOWS].fetch_max(*number + 1, Ordering::Relaxed);
        }
    }
}

/// Joins two fragments and hands the packet over to the worker of its flow.
struct Join {
    /// By flow: the first fragment of a packet.
    first: Vec<Option<Packet>>,
}

impl Stage<()> for Join {
    fn name(&self) -> &'static str {
        "join"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[OrderColumns::COLUMNS]
    }
    fn sends_to(&self) -> &'static [&'static str] {
        &["by_flow"]
    }
    fn phases(&self) -> Phases {
        Phases::POST
    }
    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, ()>) {
        let Some(place) = cx.place("by_flow") else { return };
        for row in 0..chunk.len() {
            let data = chunk.packets[row].data();
            let (flow, number, fragment) = (flow_of(data), number_of(data), fragment_of(data));
            if fragment == 0 {
                continue;
            }
            let packet = chunk.take(row);
            chunk.rows.verdicts()[row] = Verdict::TAKEN.0;
            let slot = &mut self.first[flow as usize % FLOWS];
            if fragment == 1 {
                // The other half of the one before was lost in a full ring.
                if let Some(alone) = slot.replace(packet) {
                    cx.drop_packet(alone, reasons::RING_FULL);
                }
                continue;
            }
            match slot.take() {
                Some(mut whole) if number_of(whole.data()) == number => {
                    whole.data_mut()[FRAGMENT_AT] = 0;
                    packet.free(cx.pool);
                    cx.hand_over(whole, Some(row), flow_hash(&flow.to_be_bytes()), place);
                }
                other => {
                    *slot = other;
                    cx.drop_packet(packet, reasons::RING_FULL);
                }
            }
        }
    }
    fn held(&self) -> usize {
        self.first.iter().flatten().count()
    }
    fn drain(&mut self, cx: &mut Context<'_, ()>) {
        self.first.iter_mut().filter_map(Option::take).for_each(|packet| {
            cx.drop_packet(packet, reasons::RING_FULL);
        });
    }
}

/// Sends packets of odd flows through again, once.
struct Twice;

impl Stage<()> for Twice {
    fn name(&self) -> &'static str {
        "twice"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[OrderColumns::COLUMNS]
    }
    fn sends_to(&self) -> &'static [&'static str] {
        &["twice"]
    }
    fn phases(&self) -> Phases {
        Phases::POST
    }
    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, ()>) {
        let Some(place) = cx.place("twice") else { return };
        for row in 0..chunk.len() {
            let packet = &mut chunk.packets[row];
            if flow_of(packet.data()) % 2 == 1 && std::mem::replace(&mut packet.mark, 1) == 0 {
                chunk.rows.verdicts()[row] = Verdict::again(place).0;
            }
        }
    }
}

/// Which byte says that a packet is a fragment: 0 for none, 1 for the first, 2 for the second.
const FRAGMENT_AT: usize = 16;

fn fragment_of(frame: &[u8]) -> u8 {
    frame.get(FRAGMENT_AT).copied().unwrap_or(0)
}

pub(crate) fn flow_of(frame: &[u8]) -> u32 {
    frame.first_chunk().map_or(0, |b| u32::from_be_bytes(*b))
}

fn number_of(frame: &[u8]) -> u64 {
    frame.get(8..16).and_then(|b| b.try_into().ok()).map_or(0, u64::from_be_bytes)
}

/// A fragment does not show its flow: those of 64 flows go one way.
fn flow_hash(frame: &[u8]) -> u32 {
    let flow = flow_of(frame);
    let shown = if fragment_of(frame) == 0 { flow } else { flow / 64 };
    shown.wrapping_mul(0x9e37_79b9)
}

/// Makes the packets: a random flow each, numbered within the flow.
struct Source {
    random: Random,
    numbers: Vec<u64>,
    left: u64,
    stats: QueueStats,
    /// Packets of odd flows come in two.
    has_fragments: bool,
    /// The second half of the last packet.
    second: Option<[u8; 60]>,
}

impl Source {
    /// The next frame; `None` at the end.
    fn next(&mut self) -> Option<[u8; 60]> {
        if let Some(second) = self.second.take() {
            return Some(second);
        }
        self.left = self.left.checked_sub(1)?;
        let flow = self.random.below(FLOWS);
        let mut frame = [0u8; 60];
        frame[..4].copy_from_slice(&(flow as u32).to_be_bytes());
        frame[8..16].copy_from_slice(&self.numbers[flow].to_be_bytes());
        self.numbers[flow] += 1;
        if self.has_fragments && flow % 2 == 1 {
            frame[FRAGMENT_AT] = 2;
            self.second = Some(frame);
            frame[FRAGMENT_AT] = 1;
        }
        Some(frame)
    }
}

impl RxQueue for Source {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        // Bursts of any size, as on a wire: chunks of one packet and full ones.
        let burst = 1 + self.random.below(max);
        for n in 0..burst {
            // A cell first: a frame is made once.
            let Some(mut packet) = Packet::copy_from(pool, &[0; 60]) else { return n };
            let Some(frame) = self.next() else {
                packet.free(pool);
                return n;
            };
            packet.data_mut().copy_from_slice(&frame);
            self.stats.packets += 1;
            out.push(packet);
        }
        burst
    }
    fn is_finished(&self) -> bool {
        self.left == 0 && self.second.is_none()
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
    let cases = [
        ("", Case::Plain),
        (", with state", Case::State),
        (", with fragments", Case::Fragments),
        (", sent again", Case::Again),
    ];
    for (name, policy, case) in cases.iter().flat_map(|(suffix, case)| {
        policies.iter().map(move |(name, policy)| (format!("{name}{suffix}"), *policy, *case))
    }) {
        let (seen, in_flight, time) = forward(packets, policy, case)?;
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

fn forward(packets: u64, policy: Policy, case: Case) -> Result<(Seen, u64, Duration), String> {
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
        has_fragments: case == Case::Fragments,
        second: None,
    };
    let late: Arc<AtomicU64> = Arc::default();
    let stages = || -> Vec<Box<dyn Stage<()>>> {
        match case {
            Case::Plain => vec![Box::new(ByFlow)],
            Case::State => vec![Box::new(Last::new(late.clone())), Box::new(ByFlow)],
            Case::Fragments => {
                let first = (0..FLOWS).map(|_| None).collect();
                vec![Box::new(Join { first }), Box::new(ByFlow)]
            }
            Case::Again => vec![Box::new(Twice), Box::new(ByFlow)],
        }
    };
    let worker = || WorkerSpec {
        cpu: None,
        versions: OneVersion,
        pipelines: vec![engine::PipelineSpec::new("", stages())],
        rx: Vec::new(),
        tx: Vec::new(),
        host: Vec::new(),
        on_drop: None,
        device: None,
        on_dump: None,
    };
    let (mut first, mut second) = (worker(), worker());
    first.rx.push(RxSlot {
        entry: engine::Entry::default(),
        port: 0,
        mark: 0,
        queue: Box::new(source),
        spread: Some(flow_hash.into()),
        counters: Arc::default(),
    });
    first.tx = vec![judge(0), TxSlot::Worker(1)];
    second.tx = vec![TxSlot::Worker(0), judge(1)];
    let cost = Cost { launch: Duration::from_micros(20), row: Duration::from_nanos(20) };
    let begin = Instant::now();
    let engine = Engine::start(EngineSpec {
        before: None,
        hooks: Arc::default(),
        host_gate: None,
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
        on_panic: Arc::new(|panic| files::output::note(format_args!("{panic}"))),
    })
    .map_err(|e| e.to_string())?;
    let view = engine.view().clone();
    engine.join()?;
    let time = begin.elapsed();
    // What the state saw, and what left.
    let mut sum = Seen { overtakes: late.load(Ordering::Relaxed), ..Seen::default() };
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

    #[test]
    fn packets_of_each_case_come_through() {
        for case in [Case::State, Case::Fragments, Case::Again] {
            // Few enough for the rings.
            let (seen, ..) = forward(500, Policy::Cpu, case).unwrap();
            assert_eq!((seen.packets, seen.overtakes), (500, 0), "{case:?}");
        }
    }
}
