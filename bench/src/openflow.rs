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
//! No peer is measured here: Open vSwitch's userspace datapath has no input from memory, and its dummy ports take packets as text.
//! That both do the same with the same flows and packets is a test of `flowtable`.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::openflow::flow::FlowFilter;
use ::openflow::message::{Body, Message, MultipartReply};
use ::openflow::port::PortConfig;
use ::openflow::{Action, Field, FlowCommand, FlowMod, Instruction, PortNo, Version, wire};
use apps::openflow::stage::{Counters, OpenFlow};
use engine::Stage;
use flowtable::{Dropped, Egress, FlowControl, FlowTables, Pipeline, Port, Sent, Settings};
use lookup::versions::{Reader, Writer, versions};

use crate::forms::ratio;
use crate::forward::{depot, received, start};
use crate::limits::{has_room, up_to};
use crate::tables::{PORTS, Random};
use crate::{Args, Report, Row};

/// Flows of the largest table at most.
const FLOWS_MAX: usize = 4 << 20;

/// Distinct packets: cells of 2 KB each.
const PACKETS: usize = crate::forward::PACKETS;

/// Packets to wildcards that are compared with a search through all of them.
const CHECKED: usize = 1_000;

/// The aims.
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

/// A switch with the flows of a size, and the packets that it gets.
struct Case {
    size: Size,
    control: FlowControl,
    writer: Writer<FlowTables>,
    reader: Reader<FlowTables>,
    frames: Vec<Vec<u8>>,
    rates: Vec<f64>,
}

/// An empty switch with the ports of the benchmark.
fn switch(flows_max: usize) -> (FlowControl, FlowTables) {
    let (mut control, tables) = FlowControl::new(Settings::of_10(128), flows_max, "auto");
    for number in 1..=u32::from(PORTS) {
        let number = PortNo(number);
        control.set_port(number, Some(Port { number, config: PortConfig::empty(), live: true }));
    }
    (control, tables)
}

impl Case {
    fn new(size: Size, packets: usize, report: &mut Report) -> Result<Self, String> {
        let mut random = Random(11);
        let (mut control, tables) = switch(size.exact + size.wildcards + 2 * CHURN);
        let wildcards = wildcards(size, &mut random);
        let flows = (0..size.exact).map(|number| exact_flow(number, FlowCommand::Add));
        for flow in flows.chain(wildcards.iter().map(wildcard_flow)) {
            control.flow_mod(&flow, Version::V10, 1).map_err(|e| e.to_string())?;
        }
        let (mut writer, reader) = versions(tables);
        writer.publish(control.take_patches());
        let found = control.tables().iter().map(|table| table.exact).sum::<usize>();
        if found != size.exact {
            report.wrong.push(format!("{}: {found} exact flows", size.name()));
        }
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
        check(&size, &writer, &frames, &wanted, report);
        Ok(Self { size, control, writer, reader, frames, rates: Vec::new() })
    }

    fn start(&self) -> Result<engine::Engine<controlplane::Newest<FlowTables>>, String> {
        let stage = OpenFlow::new("openflow", Arc::new(Counters::new(1)), None, &[]);
        let stages = vec![Box::new(stage) as Box<dyn Stage<FlowTables>>];
        start(&self.frames, stages, &self.reader, depot()?, Some(0))
    }

    /// Packets per second of a round, while `work` runs; what it returns.
    fn round<R>(
        &mut self,
        time: Duration,
        work: impl FnOnce(&mut FlowControl, &mut Writer<FlowTables>) -> Result<R, String>,
    ) -> Result<(f64, R), String> {
        let engine = self.start()?;
        let view = engine.view().clone();
        std::thread::sleep(time / 4);
        view.clear();
        let (packets, begin) = (received(&view), Instant::now());
        let result = work(&mut self.control, &mut self.writer);
        let elapsed = begin.elapsed();
        let packets = received(&view) - packets;
        let dropped: u64 = view.reasons().iter().map(|r| view.drops(r.code())).sum();
        engine.stop(Duration::from_secs(1))?;
        if dropped > 0 || packets == 0 {
            return Err(format!("{}: {dropped} of {packets} packets dropped", self.size.name()));
        }
        Ok((packets as f64 / elapsed.as_secs_f64() / 1e6, result?))
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

fn check(
    size: &Size,
    writer: &Writer<FlowTables>,
    frames: &[Vec<u8>],
    wanted: &[Option<u16>],
    report: &mut Report,
) {
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
            report.wrong.push(format!("{}: a packet left by another port", size.name()));
            return;
        }
    }
}

fn data(seconds: f64) -> String {
    format!(
        "{PACKETS} distinct 64-byte packets (60 bytes and frame check sequence), {seconds} s a round, one core"
    )
}

/// Rates of all sizes, rounds interleaved.
fn rates(args: &Args, seconds: f64, cases: &mut [Case]) -> Result<(), String> {
    let time = Duration::from_secs_f64(seconds);
    for _ in 0..args.rounds.max(1) {
        for case in &mut *cases {
            let sleep = |_: &mut FlowControl, _: &mut Writer<FlowTables>| {
                std::thread::sleep(time);
                Ok(())
            };
            let (rate, ()) = case.round(time, sleep)?;
            case.rates.push(rate);
        }
    }
    Ok(())
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
    rates(args, seconds, &mut cases)?;
    for case in cases {
        let row = Row::new(case.size.name(), "Mpps", case.rates);
        let row = row.curve("packets", "one core", Some(case.size.exact)).over("exact flows");
        report.rows.push(row);
    }
    Ok(report)
}

pub(crate) fn run(args: &Args, options: &OpenFlowArgs) -> Result<Report, String> {
    let seconds = options.seconds;
    let mut report = Report::new("openflow", data(seconds));
    // Before anything else: memory that is free again would not count as new.
    many(args, options.flows, &mut report)?;
    let mut all = sizes(&FIGURE, options.flows);
    all.extend(sizes(&WILDCARDS, options.flows));
    let mut cases = cases(all, &mut report)?;
    rates(args, seconds, &mut cases)?;
    for case in &cases {
        report.rows.push(Row::new(case.size.name(), "Mpps", case.rates.clone()));
    }
    let with_changes = cases
        .iter_mut()
        .filter(|case| case.size.exact <= 32 << 10)
        .max_by_key(|case| case.size.exact);
    if let Some(case) = with_changes {
        changes(args, seconds, case, &mut report)?;
    }
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
        let (rate, ()) = case.round(time, |_, _| {
            std::thread::sleep(time);
            Ok(())
        })?;
        without.push(rate);
        let (rate, done) = case.round(time, |control, writer| {
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
    let name = case.size.name();
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
            bytes += wire::encode(&message).map_err(|e| e.to_string())?.len();
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
    fn flows_come_are_listed_and_leave() {
        let options = OpenFlowArgs { seconds: 0.05, flows: 600 };
        let what = What::OpenFlow(options);
        let args = Args { what, rounds: 1, json: false, against: None, plot: None };
        let mut report = Report::new("openflow", "");
        many(&args, 600, &mut report).unwrap();
        assert!(report.wrong.is_empty(), "{:?}", report.wrong);
        assert_eq!(report.rows.len(), 5);
    }
}
