//! Stages that put packets which they held before others: they go through the pipeline in the place of the packet that released
//! them, whatever the chunks, workers and devices.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chunk::{
    Chunk, ColumnSet, Columns, Declaration, HugePages, Packet, ReasonBlock, Region, Verdict,
};
use device::{Cost, FaultPlan};
use engine::{
    Context, DeviceKind, DeviceSpec, Engine, EngineSpec, InOrder, KernelForm, Phases, Policy,
    RxSlot, Shade, Spread, Stage, Step, TxSlot, WorkerSpec,
};
use io::memory::{Collect, Script};

use super::merge::{NoTables, flow_hash, frames, serial};

chunk::columns! {
    /// What the stages pass on.
    pub struct Passing / PassingView {
        /// The serial number, by the first stage.
        pub serial: u32,
        /// Whether the packet was held.
        pub was_held: u32,
        /// By the shade.
        pub sum: u32,
    }
}

/// How many packets of a flow are held together.
const TOGETHER: usize = 5;

/// Every third packet is held, until there are enough of its flow.
fn is_held(serial: u32) -> bool {
    serial.is_multiple_of(3)
}

/// What becomes of a packet.
fn is_dropped(serial: u32) -> bool {
    serial.is_multiple_of(7)
}

/// Writes the serial numbers: of packets that were held, too, since they enter at the first stage.
struct First;

impl Stage<()> for First {
    fn name(&self) -> &'static str {
        "first"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[Passing::COLUMNS]
    }
    fn ends_segment(&self) -> bool {
        true
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, ()>) {
        let view = Passing::view(&mut chunk.rows);
        for (to, packet) in view.serial.iter_mut().zip(&chunk.packets) {
            *to = serial(packet.data());
        }
    }
}

/// Whether a packet is left behind once, so that others overtake it.
fn is_left(serial: u32) -> bool {
    serial.is_multiple_of(17)
}

#[derive(Default)]
struct Holder {
    held: HashMap<u8, Vec<Packet>>,
    leaves: bool,
    were_left: HashSet<u32>,
}

impl Stage<()> for Holder {
    fn name(&self) -> &'static str {
        "holder"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[Passing::COLUMNS]
    }
    fn zeroed(&self) -> ColumnSet {
        ColumnSet::of(&[Passing::WAS_HELD])
    }
    fn phases(&self) -> Phases {
        Phases::PRE
    }
    fn spread(&self) -> Spread {
        Spread::Hosts
    }
    fn divides(&self) -> bool {
        true
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, ()>) {
        let Chunk { packets, rows, .. } = chunk;
        let view = Passing::view(rows);
        let count = packets.len();
        let (mut left, mut of_flows) = (Vec::new(), HashSet::new());
        for (row, packet) in packets.iter_mut().enumerate() {
            if !Verdict(view.verdict[row]).is_next() {
                continue;
            }
            assert_eq!(view.serial[row], serial(packet.data()), "columns go along");
            let is_first = self.leaves && !cx.is_again(row) && is_left(view.serial[row]);
            let (flow, held) = (packet.data()[0], &self.held);
            if of_flows.contains(&flow) || is_first && self.were_left.insert(view.serial[row]) {
                of_flows.insert(flow);
                left.push(row as u16);
                continue;
            }
            let completes = is_held(view.serial[row])
                && held.get(&flow).is_some_and(|own| own.len() + 1 == TOGETHER);
            if completes && !left.is_empty() {
                // Those that it releases come before it, and so do those that are left.
                assert!(cx.leave(left.drain(..), row));
                return;
            }
            if cx.is_again(row) {
                view.was_held[row] = 1;
                continue;
            }
            if !is_held(view.serial[row]) {
                continue;
            }
            let held = self.held.entry(packet.data()[0]).or_default();
            held.push(std::mem::replace(packet, Packet::empty()));
            view.verdict[row] = Verdict::TAKEN.0;
            if held.len() == TOGETHER {
                assert!(cx.put_before(row, held.drain(..)));
                return;
            }
        }
        assert!(left.is_empty() || cx.leave(left.drain(..), count));
    }
    fn held(&self) -> usize {
        self.held.values().map(Vec::len).sum()
    }
    fn drain(&mut self, cx: &mut Context<'_, ()>) {
        for packet in self.held.drain().flat_map(|(_, held)| held) {
            cx.drop_packet(packet, teststages::reasons::TEST);
        }
    }
}

/// Sums on a device, and decides.
struct Judge;

struct Sum;

impl Shade<()> for Sum {
    fn shade(&self, rows: &mut chunk::Rows, (): &()) {
        let view = Passing::view(rows);
        for (row, sum) in view.sum.iter_mut().enumerate() {
            *sum = view.serial[row].wrapping_add(view.was_held[row]);
        }
    }
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm { steps: vec![Step::rows("sum", 256).into()], ..KernelForm::default() })
    }
}

impl Stage<()> for Judge {
    fn name(&self) -> &'static str {
        "judge"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[Passing::COLUMNS]
    }
    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        &[teststages::reasons::BLOCK]
    }
    fn reads(&self) -> ColumnSet {
        ColumnSet::of(&[Passing::SERIAL, Passing::WAS_HELD])
    }
    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[Passing::SUM])
    }
    fn phases(&self) -> Phases {
        Phases::POST
    }
    fn shader(&self) -> Option<Arc<dyn Shade<()>>> {
        Some(Arc::new(Sum))
    }
    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, ()>) {
        let view = Passing::view(&mut chunk.rows);
        for (row, packet) in chunk.packets.iter().enumerate() {
            if !Verdict(view.verdict[row]).is_next() {
                continue;
            }
            let (serial, was_held) = (super::merge::serial(packet.data()), view.was_held[row]);
            assert_eq!((was_held == 1, was_held == 1), (is_held(serial), cx.is_again(row)));
            assert_eq!(view.sum[row], serial.wrapping_add(was_held));
            view.verdict[row] = match is_dropped(serial) {
                true => Verdict::drop(teststages::reasons::TEST).0,
                false => Verdict::forward(0).0,
            };
        }
    }
}

type Serials = Vec<u32>;

/// What passes, in order, and what is dropped.
fn run(
    leaves: bool,
    workers: usize,
    n: u32,
    chunk: usize,
    device: Option<DeviceSpec<()>>,
) -> [Serials; 2] {
    let (_, depot) = Region::new(40_000, HugePages::Off).unwrap();
    let drops: Arc<Mutex<Serials>> = Arc::default();
    let sink = drops.clone();
    let mut on_drop: Option<engine::DropSink> = Some(Box::new(move |packet, _, _| {
        sink.lock().unwrap().push(serial(packet.data()));
    }));
    let out = Collect::new();
    let passed = out.frames();
    let mut specs: Vec<_> = (0..workers)
        .map(|_| {
            let stages: Vec<Box<dyn Stage<()>>> = vec![
                Box::new(First),
                Box::new(Holder { leaves, ..Holder::default() }),
                Box::new(Judge),
            ];
            let mut spec = WorkerSpec::new(NoTables, stages);
            spec.tx = vec![TxSlot::Worker(0)];
            spec.on_drop = on_drop.take();
            spec
        })
        .collect();
    specs[0].tx = vec![TxSlot::Own(Box::new(out), Arc::default())];
    specs[workers - 1].rx.push(RxSlot {
        entry: engine::Entry::default(),
        port: 0,
        mark: 0,
        queue: Box::new(Script::new(frames(n))),
        spread: Some(flow_hash.into()),
        counters: Arc::default(),
    });
    let spec = EngineSpec {
        chunk_packets: chunk,
        devices: device.into_iter().collect(),
        packet_time: true,
        until_finished: true,
        lossless: true,
        on_error: Arc::new(|port, error| panic!("port {port}: {error}")),
        ..EngineSpec::new(specs, depot)
    };
    let engine = Engine::start_in_order(spec, InOrder::default()).unwrap();
    let depot = engine.depot().clone();
    engine.join().unwrap();
    assert_eq!(depot.available(), 40_000, "cells leaked");
    let passed = passed.lock().unwrap().iter().map(|(_, frame)| serial(frame)).collect();
    let mut dropped = std::mem::take(&mut *drops.lock().unwrap());
    dropped.sort_unstable();
    [passed, dropped]
}

/// The same, packet by packet.
fn plainly(n: u32) -> [Serials; 2] {
    let (mut held, mut all) = (HashMap::<u8, Serials>::new(), [Serials::new(), Serials::new()]);
    for (_, frame) in frames(n) {
        let own = serial(&frame);
        let mut leaving = vec![own];
        if is_held(own) {
            let held = held.entry(frame[0]).or_default();
            held.push(own);
            leaving = if held.len() == TOGETHER { std::mem::take(held) } else { Vec::new() };
        }
        for serial in leaving {
            all[usize::from(is_dropped(serial))].push(serial);
        }
    }
    all[1].extend(held.into_values().flatten());
    all[1].sort_unstable();
    all
}

#[test]
fn packets_that_were_held_take_the_place_of_the_one_that_released_them() {
    let n = 20_000;
    let wanted = plainly(n);
    assert!(wanted[0].len() > 10_000 && !wanted[0].is_sorted());
    let cost = Cost { launch: Duration::from_micros(30), row: Duration::from_nanos(200) };
    for leaves in [false, true] {
        // With chunks smaller than what is held together, and larger.
        for (workers, chunk) in [(1, 64), (2, 64), (4, 256), (1, 3), (2, 1)] {
            let found = run(leaves, workers, n, chunk, None);
            assert!(found == wanted, "{leaves}, {workers} workers, chunks of {chunk}");
        }
        for policy in [Policy::Device, Policy::Share { device: 1, of: 2 }] {
            let kind = DeviceKind::Simulated { cost, faults: FaultPlan::default() };
            let device = DeviceSpec { kind, slots: 8, rows: 2048, policy };
            assert!(run(leaves, 2, n, 64, Some(device)) == wanted, "{leaves}, with a device");
        }
    }
}
