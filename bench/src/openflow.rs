//! `bench openflow`: the tables of an OpenFlow switch, from memory to memory on one core.
//!
//! ```text
//!  64-byte packets ─▶ openflow (exact table ─▶ classifier of wildcards) ─▶ ports
//!                         ▲ a version each
//!  FLOW_MODs, a hundred ──┘
//! ```
//!
//! The flows are those of OpenFlow 1.0: exact ones give all twelve fields, wildcards prefixes of both addresses, whose lengths
//! are the *masks*. Packets are half for exact flows and half for wildcards, or all of one kind where there is only one, and each
//! meets a random flow: what PacketShader's Figure 11(c) varies is the number of both. Before time begins, all packets of a table
//! go through it once, and the port of each is compared: of exact flows with the flow that it was made from, of wildcards with a
//! search through all of them, for the first [`CHECKED`].
//!
//! The peer is Open vSwitch's userspace datapath ([`ovs`]): the same flows by OpenFlow, the same packets, from memory to memory on one
//! core. Rounds of a table take turns, ours and the peer's; both rates are packets over the time that the one thread ran. That both
//! do the same with each packet is a test of `flowtable`; here the numbers of packets by port are compared.

pub(crate) mod apart;
pub(crate) mod delay;
mod ovs;
mod sets;
mod wire;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::openflow::flow::FlowFilter;
use ::openflow::message::{Body, Message, MultipartReply};
use ::openflow::port::PortConfig;
use ::openflow::{Action, Field, FlowCommand, FlowMod, Instruction, PortNo, Version};
use apps::openflow::stage::{Counters, OpenFlow};
use engine::Stage;
use flowtable::{Dropped, Egress, FlowControl, FlowTables, Pipeline, Port, Sent, Settings};
use lookup::versions::{Pin, Reader, Writer, versions};

use crate::forms::ratio;
use crate::forward::{depot, received, start};
use crate::limits::{has_room, up_to};
use crate::tables::{PORTS, Random};
use crate::{Args, Report, Row};

/// Flows of the largest table at most.
const FLOWS_MAX: usize = 4 << 20;

/// Distinct packets: cells of 2 KB each. Half of what the peer has buffers for.
const PACKETS: usize = 131_072;

/// Packets to wildcards that are compared with a search through all of them.
const CHECKED: usize = 1_000;

/// The aims: over the peer, and over it where there are many masks.
const PEER_AIM: f64 = 2.0;
const PEER_AIM_MASKS: f64 = 10.0;
const FLOW_MODS_AIM: f64 = 50_000.0;
const FORWARDING_AIM: f64 = 0.9;

/// FLOW_MODs before a barrier.
const BARRIER: usize = 100;

/// What is measured.
#[derive(Debug, Clone, clap::Args)]
pub struct OpenFlowArgs {
    /// Seconds per case and round
    #[arg(long, default_value_t = 0.5)]
    pub seconds: f64,
    /// Flows of the largest table, about 2.5 KB each
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = up_to::<FLOWS_MAX>)]
    pub flows: usize,
    /// Only packets through tables whose name has this in it
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Folder of the ClassBench sets
    #[arg(long, value_name = "FOLDER", default_value = "../shared/data/classbench")]
    pub sets: PathBuf,
}

/// A table: exact flows, wildcards, and the masks of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    exact: usize,
    wildcards: usize,
    masks: usize,
}

impl Size {
    const fn new(exact: usize, wildcards: usize, masks: usize) -> Self {
        Self { exact, wildcards, masks }
    }

    fn name(self) -> String {
        format!("{} exact + {} wildcards in {} masks", self.exact, self.wildcards, self.masks)
    }
}

/// PacketShader, Figure 11(c), and on to a million.
const FIGURE: [Size; 7] = [
    Size::new(32, 32, 32),
    Size::new(1 << 10, 32, 32),
    Size::new(8 << 10, 32, 32),
    Size::new(32 << 10, 32, 32),
    Size::new(64 << 10, 64, 64),
    Size::new(256 << 10, 256, 64),
    Size::new(1_000_000, 1_000, 64),
];

/// Wildcards alone.
const WILDCARDS: [Size; 2] = [Size::new(0, 10_000, 512), Size::new(0, 100_000, 512)];

/// The sizes that have no more flows than that.
fn sizes(all: &[Size], flows: usize) -> Vec<Size> {
    all.iter()
        .copied()
        .filter(|size| size.exact + size.wildcards <= flows.max(2_000) + 1_000)
        .collect()
}

/// Of a wildcard: both addresses under their masks, its priority and its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Wildcard {
    src: (u32, u32),
    dst: (u32, u32),
    priority: u16,
    port: u16,
}

/// The mask of the first `len` bits.
fn prefix(len: u32) -> u32 {
    !(u32::MAX.checked_shr(len).unwrap_or(0))
}

/// Wildcards of so many masks: of one mask none overlaps another, and each mask has a priority of its own.
fn wildcards(size: Size, random: &mut Random) -> Vec<Wildcard> {
    let mut seen = HashSet::new();
    let mut all = Vec::with_capacity(size.wildcards);
    while all.len() < size.wildcards {
        let mask = (all.len() % size.masks) as u32;
        let (src, dst) = (prefix(17 + mask % 16), prefix(1 + mask / 16));
        let own = Wildcard {
            // 20.0.0.0/8
            src: ((20 << 24 | random.next() as u32 >> 8) & src, src),
            dst: (random.next() as u32 & dst, dst),
            priority: 1000 + mask as u16,
            port: out_port(all.len()),
        };
        if seen.insert((own.src, own.dst)) {
            all.push(own);
        }
    }
    all
}

/// The port that flow `number` sends to, counted from 0: all but the first.
fn out_port(number: usize) -> u16 {
    1 + (number % usize::from(PORTS - 1)) as u16
}

/// Addresses and ports of exact flow `number`.
fn exact(number: usize) -> (u32, u32, u16, u16) {
    let number = number as u32;
    (10 << 24 | number, 0xc612_0001, 1024 + (number % 50_000) as u16, 53)
}

const MACS: [u64; 2] = [0x0200_0000_0100, 0x0200_0000_0200];

/// The FLOW_MOD of exact flow `number`.
fn exact_flow(number: usize, command: FlowCommand) -> FlowMod {
    let (src, dst, from, to) = exact(number);
    let fields = [
        (Field::InPort, 1),
        (Field::EthDst, MACS[0].into()),
        (Field::EthSrc, MACS[1].into()),
        (Field::VlanVid, 0),
        (Field::EthType, 0x0800),
        (Field::IpDscp, 0),
        (Field::IpProto, 17),
        (Field::Ipv4Src, src.into()),
        (Field::Ipv4Dst, dst.into()),
        (Field::UdpSrc, from.into()),
        (Field::UdpDst, to.into()),
    ];
    let mut flow = FlowMod::new(command);
    fields.into_iter().for_each(|(field, value)| flow.matches.set(field, value, field.full()));
    if command == FlowCommand::Add {
        flow.instructions = to_port(out_port(number));
    }
    flow
}

fn wildcard_flow(own: &Wildcard) -> FlowMod {
    let mut flow = FlowMod::new(FlowCommand::Add);
    flow.priority = own.priority;
    flow.matches.set(Field::EthType, 0x0800, 0xffff);
    flow.matches.set(Field::Ipv4Src, own.src.0.into(), own.src.1.into());
    flow.matches.set(Field::Ipv4Dst, own.dst.0.into(), own.dst.1.into());
    flow.instructions = to_port(own.port);
    flow
}

fn to_port(port: u16) -> Vec<Instruction> {
    vec![Instruction::ApplyActions(vec![Action::output(PortNo(u32::from(port) + 1))])]
}

/// A frame of 60 bytes: 64 with the check sequence.
fn frame((src, dst, from, to): (u32, u32, u16, u16)) -> Vec<u8> {
    let mut f = vec![0u8; 60];
    f[..6].copy_from_slice(&MACS[0].to_be_bytes()[2..]);
    f[6..12].copy_from_slice(&MACS[1].to_be_bytes()[2..]);
    f[12..14].copy_from_slice(&[8, 0]);
    f[14] = 0x45;
    f[16..18].copy_from_slice(&46u16.to_be_bytes());
    (f[22], f[23]) = (64, 17);
    f[26..30].copy_from_slice(&src.to_be_bytes());
    f[30..34].copy_from_slice(&dst.to_be_bytes());
    let sum = packet::checksum::internet_checksum(&f[14..34]);
    f[24..26].copy_from_slice(&sum.to_be_bytes());
    f[34..36].copy_from_slice(&from.to_be_bytes());
    f[36..38].copy_from_slice(&to.to_be_bytes());
    f[38..40].copy_from_slice(&26u16.to_be_bytes());
    f
}

/// Flows, and packets for them.
struct Load {
    name: String,
    flows: Vec<FlowMod>,
    /// Exact flows among them, where that is known.
    exact: Option<usize>,
    frames: Vec<Vec<u8>>,
    /// Where packets go, counted from 0, as far as that was found by a search.
    wanted: Vec<Option<u16>>,
}

/// A switch with the flows of a load, and the packets that it gets.
struct Case {
    name: String,
    size: Size,
    control: FlowControl,
    writer: Writer<FlowTables>,
    reader: Reader<FlowTables>,
    frames: Vec<Vec<u8>>,
    /// Packets by port.
    by_port: Vec<u64>,
    flows: Vec<FlowMod>,
    rates: Vec<f64>,
}

/// An empty switch with the ports of the benchmark.
fn switch(flows_max: usize) -> (FlowControl, FlowTables) {
    switch_of(Settings::of_10(128), flows_max)
}

fn switch_of(settings: Settings, flows_max: usize) -> (FlowControl, FlowTables) {
    let (mut control, tables) = FlowControl::new(settings, flows_max, "auto");
    set_ports(&mut control);
    (control, tables)
}

/// The ports of the benchmark.
fn set_ports(control: &mut FlowControl) {
    for number in 1..=u32::from(PORTS) {
        let number = PortNo(number);
        control.set_port(number, Some(Port { number, config: PortConfig::empty(), live: true }));
    }
}

/// The tables of a switch whose flows a device looks up, 32,768 exact ones and 32 wildcards; and packets for them.
///
/// # Errors
/// A flow that the tables refuse.
pub(crate) fn on_device(packets: usize) -> Result<(Pin<FlowTables>, Vec<Vec<u8>>), String> {
    let load = Load::of(Size::new(32 << 10, 32, 32), packets);
    let settings = Settings { device: true, ..Settings::of_10(128) };
    let (mut control, tables) = switch_of(settings, load.flows.len());
    for flow in &load.flows {
        control.flow_mod(flow, Version::V10, 1).map_err(|e| e.to_string())?;
    }
    let (mut writer, reader) = versions(tables);
    writer.publish(control.take_patches());
    Ok((reader.pin(), load.frames))
}

impl Load {
    fn of(size: Size, packets: usize) -> Self {
        let mut random = Random(11);
        let wildcards = wildcards(size, &mut random);
        let flows = (0..size.exact).map(|number| exact_flow(number, FlowCommand::Add));
        let flows = flows.chain(wildcards.iter().map(wildcard_flow)).collect();
        let (mut frames, mut wanted) = (Vec::new(), Vec::new());
        for at in 0..packets {
            if size.exact > 0 && (size.wildcards == 0 || at % 2 == 0) {
                let number = random.below(size.exact);
                frames.push(frame(exact(number)));
                wanted.push(Some(out_port(number)));
                continue;
            }
            let own = wildcards[random.below(wildcards.len())];
            let src = own.src.0 | random.next() as u32 & !own.src.1;
            let dst = own.dst.0 | random.next() as u32 & !own.dst.1;
            frames.push(frame((src, dst, random.next() as u16, random.next() as u16)));
            let takes =
                |own: &&Wildcard| src & own.src.1 == own.src.0 && dst & own.dst.1 == own.dst.0;
            let search = || wildcards.iter().filter(takes).max_by_key(|own| own.priority);
            wanted.push(if at < CHECKED { search().map(|own| own.port) } else { None });
        }
        Self { name: size.name(), flows, exact: Some(size.exact), frames, wanted }
    }
}

impl Case {
    fn new(size: Size, packets: usize, report: &mut Report) -> Result<Self, String> {
        Self::of(Load::of(size, packets), size, report)
    }

    fn of(load: Load, size: Size, report: &mut Report) -> Result<Self, String> {
        let Load { name, flows, exact, frames, wanted } = load;
        let (mut control, tables) = switch(flows.len() + 2 * CHURN);
        for flow in &flows {
            control.flow_mod(flow, Version::V10, 1).map_err(|e| e.to_string())?;
        }
        let (mut writer, reader) = versions(tables);
        writer.publish(control.take_patches());
        let found = control.tables().iter().map(|table| table.exact).sum::<usize>();
        if exact.is_some_and(|exact| found != exact) {
            report.wrong.push(format!("{name}: {found} exact flows"));
        }
        let by_port = check(&name, &writer, &frames, &wanted, report);
        let rates = Vec::new();
        Ok(Self { name, size, control, writer, reader, frames, by_port, flows, rates })
    }

    fn start(&self) -> Result<engine::Engine<controlplane::Newest<FlowTables>>, String> {
        let stage = OpenFlow::new("openflow", Arc::new(Counters::new(1)), None, &[]);
        let stages = vec![Box::new(stage) as Box<dyn Stage<FlowTables>>];
        start(&self.frames, stages, &self.reader, depot()?, Some(0))
    }

    /// Millions of packets per second of a round, on the wall and of the thread's own time, while `work` runs; what it returns.
    fn round<R>(
        &mut self,
        time: Duration,
        work: impl FnOnce(&mut FlowControl, &mut Writer<FlowTables>) -> Result<R, String>,
    ) -> Result<([f64; 2], R), String> {
        let engine = self.start()?;
        let worker = worker().ok_or("the worker has no thread")?;
        let ran = || thread_seconds(&worker).ok_or("the worker's thread is gone");
        let view = engine.view().clone();
        std::thread::sleep(time / 4);
        view.clear();
        let (packets, begin, before) = (received(&view), Instant::now(), ran()?);
        let result = work(&mut self.control, &mut self.writer);
        let elapsed = begin.elapsed();
        let packets = received(&view) - packets;
        let ran = ran()? - before;
        let dropped: u64 = view.reasons().iter().map(|r| view.drops(r.code())).sum();
        engine.stop(Duration::from_secs(1))?;
        if dropped > 0 || packets == 0 {
            return Err(format!("{}: {dropped} of {packets} packets dropped", self.name));
        }
        Ok(([elapsed.as_secs_f64(), ran].map(|time| packets as f64 / time / 1e6), result?))
    }
}

/// Where the packets of a check went.
struct Ports(Vec<Option<u16>>);

impl Egress for Ports {
    type Frame = Vec<u8>;

    fn copy(&mut self, frame: &Vec<u8>) -> Option<Vec<u8>> {
        Some(frame.clone())
    }

    fn send(&mut self, row: usize, _frame: Vec<u8>, to: &Sent) {
        self.0[row] = u16::try_from(to.port.0 - 1).ok();
    }

    fn done(&mut self, _row: usize, _frame: Option<Vec<u8>>, _why: Option<Dropped>) {}

    fn free(&mut self, _frame: Vec<u8>) {}
}

/// Packets by port.
fn check(
    name: &str,
    writer: &Writer<FlowTables>,
    frames: &[Vec<u8>],
    wanted: &[Option<u16>],
    report: &mut Report,
) -> Vec<u64> {
    let mut by_port = vec![0; PORTS.into()];
    let mut pipeline = Pipeline::new();
    for (frames, wanted) in frames.chunks(256).zip(wanted.chunks(256)) {
        for (row, frame) in frames.iter().enumerate() {
            pipeline.push(row, frame.clone(), PortNo(1), 1);
        }
        let mut ports = Ports(vec![None; frames.len()]);
        pipeline.run(writer.current(), &mut ports, &mut ());
        let differs = |(own, wanted): (&Option<u16>, &Option<u16>)| match wanted {
            Some(_) => own != wanted,
            None => own.is_none(),
        };
        if ports.0.iter().zip(wanted).any(differs) {
            report.wrong.push(format!("{name}: a packet left by another port"));
            break;
        }
        ports.0.iter().flatten().for_each(|port| by_port[usize::from(*port)] += 1);
    }
    by_port
}

/// The folder of `/proc` of the worker's thread, which takes its name a moment after it has begun.
fn worker() -> Option<PathBuf> {
    let pause = || std::thread::sleep(Duration::from_millis(1));
    (0..1000).find_map(|_| named_worker().or_else(|| (pause(), None).1))
}

fn named_worker() -> Option<PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let is_worker = |path: &PathBuf| {
        let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        name.starts_with("worker")
    };
    tasks.flatten().map(|entry| entry.path()).find(is_worker)
}

/// Seconds that a thread has run.
fn thread_seconds(task: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(task.join("schedstat")).ok()?;
    text.split(' ').next()?.parse::<f64>().ok().map(|ns| ns / 1e9)
}

fn data(seconds: f64) -> String {
    format!(
        "{PACKETS} distinct 64-byte packets (60 bytes and frame check sequence), {seconds} s a round, one core"
    )
}

/// Rates of all cases. Of each the rounds are interleaved with those of the peer, which has one table at a time.
fn rates(
    args: &Args,
    seconds: f64,
    cases: &mut [Case],
    report: &mut Report,
) -> Result<Vec<Row>, String> {
    let time = Duration::from_secs_f64(seconds);
    let (mut rows, mut note) = (Vec::new(), None);
    for case in &mut *cases {
        let mut own = Vec::new();
        let mut peer = ovs::Ovs::start(case.flows.iter().cloned(), &case.frames);
        let mut theirs: [Vec<f64>; 2] = Default::default();
        let mut cycles = Vec::new();
        for _ in 0..args.rounds.max(1) {
            let sleep = |_: &mut FlowControl, _: &mut Writer<FlowTables>| {
                std::thread::sleep(time);
                Ok(())
            };
            let ([rate, of_thread], ()) = case.round(time, sleep)?;
            case.rates.push(rate);
            own.push(of_thread);
            let Ok(ovs) = &mut peer else { continue };
            let mut round = || {
                let mut both = [0.0; 2];
                for (rate, smc) in both.iter_mut().zip([false, true]) {
                    ovs.use_smc(smc)?;
                    let round = ovs.round(time)?;
                    *rate = round.rate;
                    if !smc {
                        cycles.push(round.cycles);
                    }
                }
                Ok::<_, String>(both)
            };
            match round() {
                Ok(both) => theirs.iter_mut().zip(both).for_each(|(all, rate)| all.push(rate)),
                Err(why) => peer = Err(why),
            }
        }
        let name = &case.name;
        rows.push(Row::new(format!("{name}: of the thread's time"), "Mpps", own.clone()));
        match &mut peer {
            Err(why) => {
                let row = Row::new(format!("{name}: Open vSwitch"), "Mpps", Vec::new());
                rows.push(row.note(format!("not measured: {why}")));
            }
            Ok(ovs) => {
                let wrong = compare_ports(name, &ovs.counts()?, &case.by_port);
                report.wrong.extend(wrong);
                note = Some(ovs.note());
                let [plain, smc] = &theirs;
                rows.push(Row::new(format!("{name}: Open vSwitch"), "Mpps", plain.clone()));
                let row = Row::new(format!("{name}: Open vSwitch, with SMC"), "Mpps", smc.clone());
                rows.push(row);
                rows.push(Row::new(
                    format!("{name}: Open vSwitch, cycles by its own count"),
                    "1/packet",
                    cycles.clone(),
                ));
                // Its better configuration, by round.
                let best: Vec<f64> = plain.iter().zip(smc).map(|(a, b)| a.max(*b)).collect();
                rows.push(ratio(format!("{name}: over Open vSwitch by default"), &own, plain));
                let row = ratio(format!("{name}: over Open vSwitch at its best"), &own, &best);
                let many = case.size.masks >= 512;
                rows.push(row.at_least(if many { PEER_AIM_MASKS } else { PEER_AIM }));
            }
        }
    }
    if let Some(note) = note {
        report.data = format!("{}; peer: {note}", report.data);
    }
    Ok(rows)
}

/// What the peer sent by port, of what it received, against the packets of a pass: in one part in a hundred of all packets at most they
/// may differ, as the peer's counters are not of one moment.
fn compare_ports(name: &str, counts: &[u64], by_port: &[u64]) -> Option<String> {
    let [received, sent @ ..] = counts else { return None };
    let (received, all) = (*received as f64, by_port.iter().sum::<u64>() as f64);
    let differs =
        |(sent, own): (&u64, &u64)| (*sent as f64 / received - *own as f64 / all).abs() > 0.01;
    let is_wrong = received == 0.0 || sent.iter().zip(&by_port[1..]).any(differs);
    is_wrong.then(|| format!("{name}: Open vSwitch sends {counts:?}, and not as {by_port:?}"))
}

fn cases(sizes: Vec<Size>, report: &mut Report) -> Result<Vec<Case>, String> {
    let flows: usize = sizes.iter().map(|size| size.exact + size.wildcards).sum();
    has_room(
        &format!("{flows} flows and their packets"),
        flows * 2_000 + sizes.len() * PACKETS * 100,
    )?;
    sizes.into_iter().map(|size| Case::new(size, PACKETS, report)).collect()
}

/// PacketShader, Figure 11(c).
pub(crate) fn figure(args: &Args, seconds: f64, flows: usize) -> Result<Report, String> {
    let mut report = Report::new("PacketShader, Figure 11(c)", data(seconds));
    let mut cases = cases(sizes(&FIGURE, flows), &mut report)?;
    let rows = rates(args, seconds, &mut cases, &mut report)?;
    for case in cases {
        let row = Row::new(case.size.name(), "Mpps", case.rates);
        let row = row.curve("packets", "one core", Some(case.size.exact)).over("exact flows");
        report.rows.push(row);
        for line in ["Open vSwitch", "Open vSwitch, with SMC"] {
            let peer = format!("{}: {line}", case.size.name());
            for row in rows.iter().filter(|row| row.name == peer && !row.rounds.is_empty()) {
                let row = row.clone().curve("packets", line, Some(case.size.exact));
                report.rows.push(row.over("exact flows"));
            }
        }
    }
    let is_new =
        |row: &Row| row.curve.is_none() && !report.rows.iter().any(|own| own.name == row.name);
    let others: Vec<Row> = rows.into_iter().filter(is_new).collect();
    report.rows.extend(others);
    Ok(report)
}

pub(crate) fn run(args: &Args, options: &OpenFlowArgs) -> Result<Report, String> {
    let seconds = options.seconds;
    let mut report = Report::new("openflow", data(seconds));
    let only = options.only.as_deref();
    if only.is_none() {
        // Before anything else: memory that is free again would not count as new.
        many(args, options.flows, &mut report)?;
    }
    let mut all = sizes(&FIGURE, options.flows);
    all.extend(sizes(&WILDCARDS, options.flows));
    let is_wanted = |name: &str| only.is_none_or(|only| name.contains(only));
    all.retain(|size| is_wanted(&size.name()));
    let mut cases = cases(all, &mut report)?;
    for load in sets::loads(&options.sets, PACKETS) {
        match load {
            Ok(load) if !is_wanted(&load.name) => {}
            Ok(load) => cases.push(Case::of(load, Size::new(0, 0, 0), &mut report)?),
            Err(why) => {
                report.rows.push(Row::new("ClassBench", "Mpps", Vec::new()).note(why));
            }
        }
    }
    let rows = rates(args, seconds, &mut cases, &mut report)?;
    for case in &cases {
        let tables = case.control.tables();
        let searched =
            tables.iter().map(|own| format!("{} over {} words", own.structure, own.words));
        let row = Row::new(case.name.clone(), "Mpps", case.rates.clone());
        report.rows.push(row.note(searched.collect::<Vec<_>>().join(", ")));
        let own = rows.iter().filter(|row| row.name.starts_with(&format!("{}:", case.name)));
        report.rows.extend(own.cloned());
    }
    if only.is_some() {
        return Ok(report);
    }
    let with_changes = cases
        .iter_mut()
        .filter(|case| case.size.exact > 0 && case.size.exact <= 32 << 10)
        .max_by_key(|case| case.size.exact);
    if let Some(case) = with_changes {
        changes(args, seconds, case, &mut report)?;
        wire::changes(args, seconds, case, &mut report)?;
    }
    wire::added(args, &mut report)?;
    Ok(report)
}

/// Flows that come and go while packets flow.
const CHURN: usize = 10_000;

/// FLOW_MODs with a barrier after each hundred, while packets flow: a flow comes or one that came leaves.
fn changes(args: &Args, seconds: f64, case: &mut Case, report: &mut Report) -> Result<(), String> {
    let time = Duration::from_secs_f64(seconds);
    let (mut mods, mut with, mut without) = (Vec::new(), Vec::new(), Vec::new());
    let first = case.size.exact;
    let (mut next, mut is_there) = (0, false);
    for _ in 0..args.rounds.max(1) {
        let ([rate, _], ()) = case.round(time, |_, _| {
            std::thread::sleep(time);
            Ok(())
        })?;
        without.push(rate);
        let ([rate, _], done) = case.round(time, |control, writer| {
            let (begin, mut done) = (Instant::now(), 0);
            while begin.elapsed() < time {
                for _ in 0..BARRIER {
                    let command =
                        if is_there { FlowCommand::DeleteStrict } else { FlowCommand::Add };
                    let flow = exact_flow(first + next, command);
                    control.flow_mod(&flow, Version::V10, 1).map_err(|e| e.to_string())?;
                    next += 1;
                    if next == CHURN {
                        (next, is_there) = (0, !is_there);
                    }
                }
                // A barrier answers when all packets see what came before.
                writer.publish(control.take_patches());
                writer.settle();
                control.take_removed();
                done += BARRIER;
            }
            Ok(done as f64 / begin.elapsed().as_secs_f64())
        })?;
        with.push(rate);
        mods.push(done);
    }
    let name = &case.name;
    let row = Row::new(format!("{name}: FLOW_MODs, a barrier after each {BARRIER}"), "1/s", mods);
    report.rows.push(
        row.at_least(FLOW_MODS_AIM).note("from the model of a FLOW_MOD on, without a socket"),
    );
    report.rows.push(Row::new(format!("{name}: packets meanwhile"), "Mpps", with.clone()));
    let row = ratio(format!("{name}: packets meanwhile over packets without"), &with, &without);
    report.rows.push(row.at_least(FORWARDING_AIM));
    Ok(())
}

/// Resident memory of this process, bytes.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.unwrap_or(0.0) * 4096.0
}

/// Flows of a reply: as many as fit into 64 KB.
const PAGE: usize = 256;

/// Many exact flows: how long they take to come, to be listed and to leave, and their memory.
fn many(args: &Args, flows: usize, report: &mut Report) -> Result<(), String> {
    has_room(&format!("{flows} flows"), flows * 2_500)?;
    let second = 1_000_000_000;
    let mut rounds: [Vec<f64>; 5] = Default::default();
    for _ in 0..args.rounds.max(1) {
        let before = resident();
        let (mut control, tables) = switch(flows);
        let (mut writer, _reader) = versions(tables);
        let begin = Instant::now();
        for number in 0..flows {
            let mut flow = exact_flow(number, FlowCommand::Add);
            flow.hard_timeout = 10;
            control.flow_mod(&flow, Version::V10, second).map_err(|e| e.to_string())?;
        }
        writer.publish(control.take_patches());
        writer.settle();
        rounds[0].push(begin.elapsed().as_secs_f64());
        // Later rounds take what this one gave back.
        if rounds[1].is_empty() {
            rounds[1].push((resident() - before) / 1e6);
        }
        let (begin, mut from, mut listed, mut bytes) = (Instant::now(), Some(0), 0, 0);
        while let Some(at) = from {
            let page = control.flow_page(&FlowFilter::all(), Version::V10, 2 * second, at, PAGE);
            let (page, next) = page.map_err(|e| e.to_string())?;
            listed += page.len();
            let reply = MultipartReply::Flow(page);
            let body = Body::MultipartReply { more: next.is_some(), reply };
            let message = Message::new(Version::V10, 1, body);
            bytes += ::openflow::wire::encode(&message).map_err(|e| e.to_string())?.len();
            from = next;
        }
        rounds[2].push(begin.elapsed().as_secs_f64());
        rounds[3].push(bytes as f64 / 1e6);
        let begin = Instant::now();
        let mut left = 0;
        loop {
            let some = control.expire(20 * second);
            writer.publish(control.take_patches());
            control.take_removed();
            left += some;
            if some == 0 {
                break;
            }
        }
        writer.settle();
        rounds[4].push(begin.elapsed().as_secs_f64());
        if (listed, left, control.len()) != (flows, flows, 0) {
            report.wrong.push(format!("{flows} flows: {listed} listed, {left} left"));
        }
    }
    let names = [
        "added",
        "memory of all versions",
        "listed, as replies",
        "replies",
        "left by hard timeout",
    ];
    for ((name, unit), rounds) in names.iter().zip(["s", "MB", "s", "MB", "s"]).zip(rounds) {
        report.rows.push(Row::new(format!("{flows} exact flows: {name}"), unit, rounds));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::What;

    #[test]
    fn every_size_answers_right() {
        let mut report = Report::new("openflow", "");
        for size in [Size::new(100, 40, 32), Size::new(0, 2_000, 512), Size::new(1_000, 0, 1)] {
            Case::new(size, 1_500, &mut report).unwrap();
        }
        assert!(report.wrong.is_empty(), "{:?}", report.wrong);
    }

    #[test]
    fn packets_by_port_are_compared() {
        let own = [0, 500, 300, 200];
        assert_eq!(compare_ports("", &[2_000, 1_001, 600, 399], &own), None);
        assert!(compare_ports("", &[2_000, 1_000, 500, 500], &own).is_some());
        assert!(compare_ports("", &[0; 4], &own).is_some());
    }

    #[test]
    fn flows_come_are_listed_and_leave() {
        let options = OpenFlowArgs { seconds: 0.05, flows: 600, only: None, sets: PathBuf::new() };
        let what = What::OpenFlow(options);
        let args = Args { what, rounds: 1, json: false, against: None, plot: None };
        let mut report = Report::new("openflow", "");
        many(&args, 600, &mut report).unwrap();
        assert!(report.wrong.is_empty(), "{:?}", report.wrong);
        assert_eq!(report.rows.len(), 5);
    }
}
