//! Whole pipelines with firewalls in an engine: on the CPU, on the simulated device and on PoCL, with the same bytes, in
//! the same order, for the same reasons as each packet gets by itself, stage after stage. The reference of a firewall
//! is plain: every rule in order, over a packet that it decodes itself.

use std::sync::Arc;
use std::time::Duration;

use apps::firewall::FirewallPart;
use apps::ndn::NdnPart;
use apps::router::{PipelineOptions, RouterPart, decode, rewrite, route, rpf};
use apps::switch::{SwitchPart, SwitchPipeline, egress, forward, ingress};
use apps::wire::Wire;
use controlplane::{Newest, OverPart, PartId, Tables, TablesImages};
use device::accelerator::{Options, Traffic};
use device::faulty::{Faults, Faulty};
use device::{Cost, FaultPlan, probe};
use engine::{DeviceKind, DeviceSpec, Policy};
use lookup::Prefix;
use lookup::bridge::{BridgePort, MacLimits, MacTable, SwitchTables};
use lookup::fib::{
    Fib, FibBuilder, Interface, Options as FibOptions, Path, ReversePath, RouteTables, RouteTarget,
};
use lookup::versions::{Writer, versions};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use teststages::harness::{Arrival, Bed, Stages, device_of_tests};

use super::*;

const PORTS: u16 = 4;

/// A pipeline: the first of its firewalls decodes in one that begins with it.
type Names = &'static [&'static str];

/// A stage `cpu` is a firewall without kernels.
const PIPELINES: [Names; 9] = [
    &["decode", "firewall", "rpf", "route", "rewrite"],
    &["decode", "firewall", "edge", "rpf", "route", "rewrite"],
    &["decode", "firewall", "rpf", "route", "edge", "rewrite"],
    &["decode", "cpu", "rpf", "edge", "route", "rewrite"],
    &["bridge_in", "firewall", "bridge", "bridge_out"],
    &["bridge_in", "edge", "bridge", "firewall", "bridge_out"],
    &["firewall", "wire"],
    &["edge", "firewall", "wire"],
    &["cpu", "edge", "wire"],
];

const FIREWALLS: [&str; 3] = ["firewall", "edge", "cpu"];

/// Where the tables of each application are.
struct Parts {
    router: PartId<RouterPart>,
    switch: PartId<SwitchPart>,
    /// Of each firewall, in the order of the pipeline.
    firewalls: Vec<PartId<FirewallPart>>,
}

/// Tables of all applications, and a part for each firewall. The parts, and so their regions, have any order: all calls
/// with one `order` and as many firewalls have the same parts.
fn join(
    order: usize,
    fib: Fib,
    switch: SwitchTables,
    firewalls: Vec<FirewallTables>,
) -> (Tables, Parts) {
    let mut tables = Tables::default();
    let (mut fib, mut switch) = (Some(fib), Some(switch));
    let mut given: Vec<_> = firewalls.into_iter().map(Some).collect();
    let count = 3 + given.len();
    let (mut of_router, mut of_switch, mut firewalls) = (None, None, vec![None; given.len()]);
    for part in (0..count).map(|at| (at + order) % count) {
        match part {
            0 => of_router = fib.take().map(|fib| tables.add::<RouterPart>(fib)),
            1 => of_switch = switch.take().map(|switch| tables.add::<SwitchPart>(switch)),
            2 => drop(tables.add::<NdnPart>(Default::default())),
            _ => {
                let rules = given[part - 3].take();
                firewalls[part - 3] = rules.map(|rules| tables.add::<FirewallPart>(rules));
            }
        }
    }
    let firewalls = firewalls.into_iter().flatten().collect();
    (tables, Parts { router: of_router.unwrap(), switch: of_switch.unwrap(), firewalls })
}

/// The stages of a worker.
fn stages(names: Names, order: usize) -> Stages<Tables> {
    names.iter().enumerate().map(|(at, name)| stage(names, order, at, name)).collect()
}

/// How many firewalls there are before a place.
fn firewalls_before(names: Names, at: usize) -> usize {
    names[..at].iter().filter(|name| FIREWALLS.contains(name)).count()
}

fn is_router(names: Names) -> bool {
    names[0] == "decode"
}

fn firewall(names: Names, at: usize, name: &str) -> Firewall {
    let all: Vec<_> = names.iter().filter(|name| FIREWALLS.contains(name)).copied().collect();
    let own = Instance::of_pipeline(&all).into_iter().find(|instance| instance.name() == name);
    let stage = Firewall::of(own.unwrap());
    let stage = if name == "cpu" { stage.on_cpu() } else { stage };
    match at {
        0 => stage.decoding(),
        _ if is_router(names) => stage.in_router(),
        _ => stage,
    }
}

fn stage(names: Names, order: usize, at: usize, name: &str) -> Box<dyn Stage<Tables>> {
    let firewalls = vec![FirewallTables::default(); firewalls_before(names, names.len())];
    let (_, parts) = join(order, Default::default(), Default::default(), firewalls);
    let router = PipelineOptions::default();
    let of_router = parts.router.regions().start;
    // Nobody learns.
    let switch = SwitchPipeline { learns_ahead: true, ..SwitchPipeline::default() };
    match name {
        "decode" => {
            let stage = decode::Decode::new(true, &router).with_headers();
            OverPart::boxed(Box::new(stage), parts.router)
        }
        "rpf" => OverPart::boxed(
            Box::new(rpf::ReversePathCheck::new().with_first_region(of_router)),
            parts.router,
        ),
        "route" => OverPart::boxed(
            Box::new(route::Route::new().with_first_region(of_router)),
            parts.router,
        ),
        "rewrite" => OverPart::boxed(Box::new(rewrite::Rewrite::new(&router)), parts.router),
        "bridge_in" => {
            OverPart::boxed(Box::new(ingress::BridgeIn::new().with_headers()), parts.switch)
        }
        "bridge" => {
            let stage = forward::Bridge::new().with_first_region(parts.switch.regions().start);
            OverPart::boxed(Box::new(stage), parts.switch)
        }
        "bridge_out" => OverPart::boxed(Box::new(egress::BridgeOut::new(&switch)), parts.switch),
        "wire" => Box::new(Wire::new()),
        _ => {
            let part = parts.firewalls[firewalls_before(names, at)];
            let stage = firewall(names, at, name).with_first_region(part.regions().start);
            OverPart::boxed(Box::new(stage), part)
        }
    }
}

/// Everything random of a run.
#[derive(Debug)]
struct World {
    names: Names,
    /// Of the parts of the tables.
    order: usize,
    /// Of each firewall.
    rules: Vec<Rules>,
    fib: Fib,
    frames: Vec<Vec<u8>>,
}

/// The rules of a firewall.
#[derive(Debug)]
struct Rules {
    rules: Vec<Own>,
    default: Action,
    is_linear: bool,
}

fn rules() -> impl Strategy<Value = Rules> {
    let rules = prop::collection::vec(rule(), 0..20);
    (rules, action(), any::<bool>()).prop_map(|(rules, default, is_linear)| Rules {
        rules,
        default,
        is_linear,
    })
}

impl Rules {
    fn tables(&self, hits: &Arc<Hits>) -> FirewallTables {
        match self.is_linear {
            true => tables::<LinearBuilder>(&self.rules, self.default, hits),
            false => tables::<TupleBuilder>(&self.rules, self.default, hits),
        }
    }
}

fn interface(number: u16, reverse_path: ReversePath) -> Interface {
    Interface {
        name: format!("if{number}"),
        up: true,
        port: number,
        mac: [2, 0, 0, 0, 0x10, number as u8],
        mtu: 1500,
        any_mac: true,
        reverse_path,
        ..Interface::default()
    }
}

/// Routes to the addresses of [`frame`]: each of them by some port, to nobody, or to this router.
fn fib() -> impl Strategy<Value = Fib> {
    let target = prop_oneof![
        6 => (0..PORTS).prop_map(|interface| {
            RouteTarget::Paths(vec![Path { interface, gateway: None, weight: 1 }])
        }),
        1 => Just(RouteTarget::Blackhole),
        1 => Just(RouteTarget::Unreachable),
        1 => (0..PORTS).prop_map(RouteTarget::Local),
    ];
    let modes = [ReversePath::Off, ReversePath::Strict, ReversePath::Loose];
    let targets = prop::collection::vec(prop::option::weighted(0.9, target), 8);
    let modes = prop::collection::vec(prop::sample::select(modes.to_vec()), usize::from(PORTS));
    (targets, modes).prop_map(|(targets, modes)| {
        let options = FibOptions {
            derive_neighbours: true,
            icmp_rate: 1_000_000_000,
            icmp_burst: u32::MAX,
            ..FibOptions::default()
        };
        let mut builder = FibBuilder::new(options, RouteTables::default());
        for (number, mode) in (0..).zip(modes) {
            builder.set_interface(number, Some(interface(number, mode)));
        }
        for (at, target) in targets.into_iter().enumerate() {
            let Some(target) = target else { continue };
            let last = at as u128 / 2;
            if at % 2 == 0 {
                let prefix = Prefix::<u32>::masked(0x0a00_0000 + last as u32, 32);
                builder.add_route(prefix, &target).expect("room");
            } else {
                let prefix = Prefix::<u128>::masked((0xfd << 120) + last, 128);
                builder.add_route(prefix, &target).expect("room");
            }
        }
        builder.freeze().expect("tables")
    })
}

fn world(names: Names) -> impl Strategy<Value = World> {
    let rules = prop::collection::vec(rules(), firewalls_before(names, names.len()));
    let frames = prop::collection::vec(frame(), 1..700);
    (0..5_usize, rules, fib(), frames).prop_map(move |(order, rules, fib, frames)| World {
        names,
        order,
        rules,
        fib,
        frames,
    })
}

impl World {
    /// All tables, and the hits of each firewall.
    fn tables(&self) -> (Tables, Vec<Arc<Hits>>) {
        let hits: Vec<_> = self.rules.iter().map(|_| Arc::new(Hits::new(1))).collect();
        let firewalls = self.rules.iter().zip(&hits).map(|(rules, hits)| rules.tables(hits));
        let firewalls = firewalls.collect();
        // The destination of all frames, and nobody else, is known.
        let limits = MacLimits { stations: 30, ageing_s: 300 };
        let (mut macs, blob, seen) = MacTable::new(limits).expect("memory");
        macs.set_static(1, [2, 0, 0, 0, 0, 2], 2).expect("room");
        let ports = (0..PORTS).map(|port| Some(BridgePort::access(format!("p{port}"), 1)));
        let mut switch = SwitchTables::new(blob, seen, ports.collect());
        macs.take_patches(100).iter().for_each(|patch| switch.apply(patch));
        (join(self.order, self.fib.clone(), switch, firewalls).0, hits)
    }

    fn port(&self, at: usize) -> u16 {
        (at % usize::from(PORTS)) as u16
    }
}

/// What came out: by port in order, what was dropped in order, and packets by rule.
#[derive(Debug, PartialEq, Default)]
struct Out {
    ports: Vec<Vec<Arrival>>,
    dropped: Vec<(DropReason, Arrival)>,
    dumped: Vec<Arrival>,
    /// Of each firewall.
    hits: Vec<Vec<u64>>,
}

/// Whether the stage has kernels.
fn has_kernels(name: &str) -> bool {
    launches(&[name]) > 0
}

/// One chunk of one packet, of which nobody knows what its columns hold.
struct One<'a> {
    chunk: Chunk,
    pool: &'a mut Pool,
    tables: &'a Tables,
}

impl One<'_> {
    /// A stage, whole.
    fn stage(&mut self, stage: &mut dyn Stage<Tables>) {
        let (mut dropped, mut released) = (Vec::new(), Vec::new());
        let (chunk, tables) = (&mut self.chunk, self.tables);
        let mut cx = Context::detached(self.pool, tables, 7_000, &mut dropped, &mut released);
        stage.pre_shade(chunk, &mut cx);
        if let Some(shade) = stage.shader() {
            shade.shade_packets(&mut chunk.rows, &mut chunk.packets, tables);
        }
        stage.post_shade(chunk, &mut cx);
        assert!(dropped.is_empty() && released.is_empty());
    }

    fn verdict(&mut self) -> &mut u32 {
        &mut self.chunk.rows.verdicts()[0]
    }
}

/// What the router's columns say of a packet that it is to answer, and of one that a firewall rejected.
const REJECTED: [u16; 2] = [4 | 3 << 8, 4 | 4 << 8];

/// A firewall, plain: what it does to one packet.
fn judge(one: &mut One<'_>, world: &World, rules: &Rules, counted: &mut [u64]) {
    if !Verdict(*one.verdict()).is_next() {
        return;
    }
    let is_router = is_router(world.names);
    let mut interface = one.chunk.packets[0].port;
    if is_router {
        let view = RouterColumns::view(&mut one.chunk.rows);
        interface = view.interface[0];
        if view.flags[0] & 3 == 0 {
            return;
        }
    }
    let id = match reference(&one.chunk.packets[0], interface, &rules.rules) {
        None => return,
        Some(Err(reason)) => return *one.verdict() = Verdict::drop(reason).0,
        Some(Ok(id)) => id,
    };
    counted[id as usize] += 1;
    let action = if id == 0 { rules.default } else { rules.rules[id as usize - 1].action };
    if let Some(port) = action.mirror {
        let copy = one.chunk.packets[0].duplicate(one.pool).expect("a cell");
        one.chunk.emit(0, Verdict::forward(port), copy);
    }
    if let Some(dscp) = action.dscp {
        let packet = &mut one.chunk.packets[0];
        let d = packet::decode(packet.data(), packet.frame_len());
        let ip = &mut packet.data_mut()[usize::from(d.l3_offset)..];
        match d.kind {
            packet::Kind::Ipv4 => packet::ipv4::set_dscp_v4(ip, dscp),
            _ => packet::ipv6::set_dscp_v6(ip, dscp),
        }
    }
    if action.ending == Ending::Reject && is_router {
        let view = RouterColumns::view(&mut one.chunk.rows);
        view.flags[0] = REJECTED[usize::from(view.flags[0] & 1 == 0)];
    } else if action.ending == Ending::Reject {
        return answer(one);
    }
    // `rewrite` answers a packet that is settled.
    *one.verdict() = action.verdict().0;
}

/// What the sender of a rejected frame gets: the oracle judges it, here a firewall that rejects everything makes it.
fn answer(one: &mut One<'_>) {
    let hits = Arc::new(Hits::new(1));
    let all = Action::of(Ending::Reject);
    let firewall = tables::<LinearBuilder>(&[], all, &hits);
    let tables = firewall;
    let mut stage = Firewall::new().decoding();
    let One { chunk, pool, .. } = one;
    let (mut dropped, mut released) = (Vec::new(), Vec::new());
    let mut cx = Context::detached(pool, &tables, 7_000, &mut dropped, &mut released);
    Stage::<FirewallTables>::pre_shade(&mut stage, chunk, &mut cx);
    Stage::<FirewallTables>::shader(&stage).expect("a shade").shade(&mut chunk.rows, &tables);
    Stage::<FirewallTables>::post_shade(&mut stage, chunk, &mut cx);
}

/// Each packet by itself, stage after stage; and whether one came as far as a stage with kernels.
fn each_by_itself(world: &World) -> (Out, bool) {
    let (tables, _) = world.tables();
    let mut counted: Vec<_> =
        world.rules.iter().map(|rules| vec![0; rules.rules.len() + 1]).collect();
    let mut out = Out { ports: vec![Vec::new(); usize::from(PORTS)], ..Out::default() };
    let mut is_shaded = false;
    let mut own = stages(world.names, world.order);
    let plain = Firewall::new().in_router();
    let declared = own.iter().flat_map(|stage| stage.columns());
    let declared: Vec<_> =
        declared.chain(Stage::<FirewallTables>::columns(&plain)).copied().collect();
    let layout = Layout::join(&declared, ROWS).unwrap();
    let (_, depot) = Region::new(64, HugePages::Off).unwrap();
    let mut pool = Pool::new(depot, 8);
    for (at, frame) in world.frames.iter().enumerate() {
        let mut chunk = chunk_of(layout.clone());
        let mut packet = Packet::copy_from(&mut pool, frame).unwrap();
        (packet.port, packet.time_ns) = (world.port(at), 1 + at as u64);
        chunk.packets.push(packet);
        chunk.rows.set_len(1);
        chunk.rows.verdicts().fill(Verdict::NEXT.0);
        let mut one = One { chunk, pool: &mut pool, tables: &tables };
        for (place, (stage, name)) in own.iter_mut().zip(world.names).enumerate() {
            is_shaded |= has_kernels(name) && Verdict(*one.verdict()).is_next();
            match FIREWALLS.contains(name) {
                true => {
                    let which = firewalls_before(world.names, place);
                    judge(&mut one, world, &world.rules[which], &mut counted[which]);
                }
                false => one.stage(&mut **stage),
            }
        }
        let mut chunk = one.chunk;
        let flight =
            |packet: &Packet| (packet.time_ns, packet.segments().collect::<Vec<_>>().concat());
        let verdict = Verdict(chunk.rows.verdicts()[0]);
        let packet = chunk.packets.pop().unwrap();
        let emitted = chunk.emitted.drain(..).map(|emitted| (emitted.verdict, emitted.packet));
        for (verdict, packet) in std::iter::once((verdict, packet)).chain(emitted) {
            match verdict.kind() {
                VerdictKind::Forward => {
                    out.ports[usize::from(verdict.port())].push(flight(&packet));
                }
                VerdictKind::Drop => out.dropped.push((verdict.reason(), flight(&packet))),
                // Nobody has a twin here.
                VerdictKind::Host => {
                    out.dropped.push((chunk::reasons::HOST_ABSENT, flight(&packet)));
                }
                VerdictKind::Dump => out.dumped.push(flight(&packet)),
                VerdictKind::Taken => {}
                kind => panic!("no such end: {kind:?}"),
            }
            packet.free(&mut pool);
        }
    }
    out.hits = counted;
    (out, is_shaded)
}

/// Makes a device that follows the changes of tables.
type Kind = fn(&Writer<Tables>) -> DeviceKind<Tables>;

/// Runs the pipeline in an engine; what came out, what went to the device, and the stages of each segment.
fn in_engine(
    world: &World,
    kind: Option<Kind>,
    chunk_packets: usize,
) -> (Out, Traffic, Vec<usize>) {
    let (tables, hits) = world.tables();
    let (writer, _) = versions(tables);
    let devices = kind.map(|kind| {
        let kind = kind(&writer);
        DeviceSpec { kind, slots: 3, rows: 1024, policy: Policy::Device }
    });
    let feed = teststages::harness::Feed {
        entry: engine::Entry::default(),
        worker: 0,
        port: chunk::PORT_NONE,
        queue: Box::new(Feeding { frames: world.frames.clone(), at: 0 }),
        spread: None,
    };
    let bed = Bed {
        feeds: vec![feed],
        ports: PORTS.into(),
        devices: devices.into_iter().collect(),
        chunk_packets,
        packet_time: true,
        cells: 20_000,
        ..Bed::new(Vec::new())
    };
    let run = bed.run(vec![(Newest(writer.reader()), stages(world.names, world.order))]);
    assert!(run.panics.is_empty(), "{}", run.panics[0]);
    assert!(run.device_errors.is_empty(), "{:?}", run.device_errors);
    run.conserves().unwrap();
    let segments = run.view.segments.iter().map(|segment| segment.end - segment.first).collect();
    let traffic = run.view.master().map(|master| master.traffic).unwrap_or_default();
    let of = |(rules, hits): (&Rules, &Arc<Hits>)| {
        (0..=rules.rules.len() as u32).map(|id| hits.get(id).packets).collect()
    };
    let hits = world.rules.iter().zip(&hits).map(of).collect();
    (Out { ports: run.ports, dropped: run.dropped, dumped: run.dumped, hits }, traffic, segments)
}

/// Frames of four ports in turn, with numbers for times.
struct Feeding {
    frames: Vec<Vec<u8>>,
    at: usize,
}

impl io::RxQueue for Feeding {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        let from = self.at;
        while self.at < self.frames.len() && self.at - from < max {
            let Some(mut packet) = Packet::copy_from(pool, &self.frames[self.at]) else { break };
            packet.port = (self.at % usize::from(PORTS)) as u16;
            self.at += 1;
            packet.time_ns = self.at as u64;
            out.push(packet);
        }
        self.at - from
    }

    fn is_finished(&self) -> bool {
        self.at == self.frames.len()
    }

    fn stats(&self) -> io::QueueStats {
        io::QueueStats { packets: self.at as u64, ..io::QueueStats::default() }
    }
}

fn simulated(_: &Writer<Tables>) -> DeviceKind<Tables> {
    let cost = Cost { launch: Duration::from_micros(20), row: Duration::from_nanos(10) };
    DeviceKind::Simulated { cost, faults: FaultPlan::default() }
}

fn driver(writer: &Writer<Tables>) -> DeviceKind<Tables> {
    let (api, number) = device_of_tests();
    let device = probe::open(api, number).expect("a device");
    let options = Options { patience: Duration::from_secs(60), ..Options::default() };
    let driver = Box::new(Faulty::new(device, Faults::default()));
    DeviceKind::Driver { driver, tables: Box::new(TablesImages(writer.changes())), options }
}

/// Whether a packet came as far as a stage with kernels.
fn check(world: &World, found: &Out, where_: &str) -> bool {
    let (expected, is_shaded) = each_by_itself(world);
    for (port, (found, expected)) in found.ports.iter().zip(&expected.ports).enumerate() {
        let at = found.iter().zip(expected).position(|(one, other)| one != other);
        let (lens, names) = ((found.len(), expected.len()), world.names);
        assert!(
            found == expected,
            "{where_} {names:?} port {port}: {lens:?}, first difference at {at:?}: {:02x?} not {:02x?}",
            at.map(|at| &found[at]),
            at.map(|at| &expected[at])
        );
    }
    assert!(
        found.dropped == expected.dropped,
        "{where_} {:?}: {:?} not {:?}",
        world.names,
        found.dropped.iter().map(|(reason, (at, _))| (at, reason.name())).collect::<Vec<_>>(),
        expected.dropped.iter().map(|(reason, (at, _))| (at, reason.name())).collect::<Vec<_>>()
    );
    assert!(found.dumped == expected.dumped, "{where_} {:?}: dumped", world.names);
    assert_eq!(found.hits, expected.hits, "{where_} {:?}", world.names);
    is_shaded
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn a_pipeline_does_what_its_stages_do_one_by_one(
        world in prop::sample::select(PIPELINES.to_vec()).prop_flat_map(world),
        chunk_packets in prop::sample::select(vec![7_usize, 64, 256]),
    ) {
        check(&world, &in_engine(&world, None, chunk_packets).0, "CPU");
        check(&world, &in_engine(&world, Some(simulated), chunk_packets).0, "simulated");
    }
}

/// The launches of a device segment for a job: two for a firewall, three for one of several, one for each other kernel.
fn launches(names: &[&str]) -> u64 {
    let is_alone = names.iter().filter(|name| FIREWALLS.contains(name)).count() == 1;
    let of = |name: &&str| match *name {
        "firewall" | "edge" if is_alone => 2,
        "firewall" | "edge" => 3,
        "rpf" | "route" | "bridge" => 1,
        _ => 0,
    };
    names.iter().map(of).sum()
}

#[test]
fn a_device_does_so_too() {
    if !testkit::require_opencl() {
        return;
    }
    let mut runner = TestRunner::default();
    for names in PIPELINES {
        for _ in 0..2 {
            let world = world(names).new_tree(&mut runner).unwrap().current();
            let (out, traffic, segments) = in_engine(&world, Some(driver), 64);
            let Traffic { jobs, launches: launched, uploads, .. } = traffic;
            let is_shaded = check(&world, &out, "PoCL");
            assert_eq!(jobs > 0, is_shaded, "{names:?}: {jobs} jobs");
            // All kernels of a segment are one launch sequence, and all columns of a small job one upload.
            if segments.len() <= 2 && !names.contains(&"cpu") {
                assert_eq!(launched, jobs * launches(names), "{names:?}: {jobs} jobs");
                if world.frames.len() <= 256 {
                    assert_eq!(uploads, jobs, "{names:?}");
                }
            }
        }
    }
}

/// A firewall ends no segment: with the lookups behind it, it is one upload.
#[test]
fn a_firewall_shares_its_segment() {
    let lens = |names: Names| {
        let segments = engine::segments(&stages(names, 0));
        segments.iter().map(|segment| segment.end - segment.first).collect::<Vec<_>>()
    };
    let expected: [&[usize]; 9] =
        [&[4, 1], &[5, 1], &[5, 1], &[2, 3, 1], &[3, 1], &[4, 1], &[1, 1], &[2, 1], &[1, 1, 1]];
    for (names, expected) in PIPELINES.into_iter().zip(expected) {
        assert_eq!(lens(names), expected, "{names:?}");
    }
}
