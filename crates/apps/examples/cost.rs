//! What each stage of the router costs, in nanoseconds a packet, on one core.
//!
//! 65,536 distinct 64-byte packets (60 bytes without FCS), each in a cell of its own, so that no
//! first line is in the cache when it is needed; the full table of `../shared/data/bgp`, or random
//! prefixes where it is missing; addresses below random prefixes of the table. Stages run as the engine
//! runs them, chunk by chunk; the best and the median round are shown.
//!
//! `cargo run --release -p apps --example cost -- [CHUNK] [ROUNDS]`

use std::net::IpAddr;
use std::path::Path as FilePath;
use std::time::Instant;

use apps::router::{DEFAULT_STAGES, PipelineOptions, RouterColumns, pipeline};
use chunk::{Arena, Chunk, Columns, HugePages, Layout, Packet, Pool, Region, Verdict, VerdictKind};
use engine::{Context, Stage};
use lookup::dir24_8::Limits;
use lookup::fib::{Fib, FibBuilder, Interface, Options, Path, RouteTarget};
use lookup::{NextHopId, Prefix};

const PACKETS: usize = 65_536;
const PORTS: u16 = 4;
const GATEWAYS: u8 = 16;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let chunk_packets: usize = arguments.next().unwrap_or(256);
    let rounds: usize = arguments.next().unwrap_or(60).min(200); // the TTL lasts for so many
    let (v4, v6) = routes();
    println!("{} IPv4 routes, {} IPv6 routes, chunks of {chunk_packets}", v4.len(), v6.len());
    let fib = fib(&v4, &v6);
    let mut random = Random(1);
    let to4: Vec<u32> = (0..PACKETS)
        .map(|_| {
            let prefix = v4[random.below(v4.len())];
            let host = (random.next() as u32).checked_shr(prefix.len().into()).unwrap_or(0);
            prefix.addr() | host
        })
        .collect();
    let uniform: Vec<u32> =
        (0..PACKETS).map(|_| 0x0100_0000 + random.next() as u32 % 0xde00_0000).collect();
    let to6: Vec<u128> = (0..PACKETS)
        .map(|_| {
            let prefix = v6[random.below(v6.len())];
            let bits = u128::from(random.next()) << 64 | u128::from(random.next());
            prefix.addr() | bits.checked_shr(prefix.len().into()).unwrap_or(0)
        })
        .collect();
    let frames = |make: &dyn Fn(usize) -> Vec<u8>| (0..PACKETS).map(make).collect::<Vec<_>>();
    measure("IPv4, below prefixes", &fib, &frames(&|i| frame4(to4[i], i)), chunk_packets, rounds);
    measure("IPv4, uniform", &fib, &frames(&|i| frame4(uniform[i], i)), chunk_packets, rounds);
    measure("IPv6, below prefixes", &fib, &frames(&|i| frame6(to6[i], i)), chunk_packets, rounds);
}

fn measure(name: &str, fib: &Fib, frames: &[Vec<u8>], chunk_packets: usize, rounds: usize) {
    let (_, depot) = Region::new(PACKETS as u32 + 4096, HugePages::Advise).expect("memory");
    let mut pool = Pool::new(depot, 256);
    let mut all: Vec<Packet> = frames
        .iter()
        .map(|frame| {
            let mut packet = Packet::copy_from(&mut pool, frame).expect("a cell");
            packet.port = 0;
            packet
        })
        .collect();
    let mut stages = pipeline(DEFAULT_STAGES, &PipelineOptions::default()).expect("a pipeline");
    let arena = Arena::new(Layout::new(RouterColumns::COLUMNS, chunk::CHUNK_PACKETS_MAX));
    let mut chunk = Chunk::new(arena.reserve(chunk::CHUNK_PACKETS_MAX).expect("rows"), 0);
    let mut cost_ns = vec![Vec::new(); stages.len()];
    let mut forwarded = 0u64;
    for round in 0..rounds {
        let mut spent = vec![0u64; stages.len()];
        let mut done = Vec::with_capacity(PACKETS);
        let mut waiting = all.drain(..);
        loop {
            chunk.packets.extend(waiting.by_ref().take(chunk_packets));
            if chunk.packets.is_empty() {
                break;
            }
            chunk.rows.set_len(chunk.packets.len());
            chunk.rows.verdicts().fill(Verdict::NEXT.0);
            chunk.time_ns = round as u64;
            for (stage, spent) in stages.iter_mut().zip(&mut spent) {
                *spent += run(&mut **stage, &mut chunk, &mut pool, fib);
            }
            forwarded += chunk
                .rows
                .verdicts()
                .iter()
                .filter(|&&v| Verdict(v).kind() == VerdictKind::Forward)
                .count() as u64;
            for emitted in chunk.emitted.drain(..) {
                emitted.packet.free(&mut pool);
            }
            done.append(&mut chunk.packets);
        }
        drop(waiting);
        all = done;
        for (costs, spent) in cost_ns.iter_mut().zip(spent) {
            costs.push(spent as f64 / PACKETS as f64);
        }
    }
    let part = forwarded as f64 / (rounds * PACKETS) as f64;
    println!("{name}: {:.1} % forwarded", 100.0 * part);
    let (mut best_sum, mut median_sum) = (0.0, 0.0);
    for (stage, costs) in stages.iter().zip(&mut cost_ns) {
        costs.sort_by(f64::total_cmp);
        let (best, median) = (costs[0], costs[costs.len() / 2]);
        best_sum += best;
        median_sum += median;
        println!("  {:8} {best:6.1} {median:6.1} ns", stage.name());
    }
    println!("  {:8} {best_sum:6.1} {median_sum:6.1} ns, {:.1} Mpps", "sum", 1e3 / median_sum);
    for packet in all {
        packet.free(&mut pool);
    }
}

fn run(stage: &mut dyn Stage<Fib>, chunk: &mut Chunk, pool: &mut Pool, fib: &Fib) -> u64 {
    let (mut dropped, mut released) = (Vec::new(), Vec::new());
    let mut cx = Context::detached(pool, fib, chunk.time_ns, &mut dropped, &mut released);
    let begin = Instant::now();
    stage.pre_shade(chunk, &mut cx);
    if let Some(shader) = stage.shader() {
        shader.shade(&mut chunk.rows, fib);
    }
    stage.post_shade(chunk, &mut cx);
    begin.elapsed().as_nanos() as u64
}

fn routes() -> (Vec<Prefix<u32>>, Vec<Prefix<u128>>) {
    let file = FilePath::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/bgp/bart-prefixes-v4v6.txt.gz");
    match lookup::routes::read_file(&file) {
        Ok(file) => (
            file.v4.iter().map(|route| route.0).collect(),
            file.v6.iter().map(|route| route.0).collect(),
        ),
        Err(error) => {
            println!("{}: {error}; random prefixes instead", file.display());
            let mut random = Random(7);
            let v4 = (0..900_000).map(|_| Prefix::masked(random.next() as u32, 24)).collect();
            let top = |bits: u64| 1 << 125 | u128::from(bits) << 61;
            let v6 = (0..160_000).map(|_| Prefix::masked(top(random.next()), 48)).collect();
            (v4, v6)
        }
    }
}

fn fib(v4: &[Prefix<u32>], v6: &[Prefix<u128>]) -> Fib {
    let mut builder = FibBuilder::new(Options::default(), Limits::default());
    for port in 0..=PORTS {
        let tags = if port == PORTS { vec![(0x8100, 7)] } else { Vec::new() };
        let interface = Interface {
            name: format!("port{port}"),
            up: true,
            port: port % PORTS, // the last one is a subinterface of the first
            tags,
            mac: [2, 0, 0, 0, 0, port as u8],
            mtu: 1500,
            addresses4: vec![(0x0a00_0001 + (u32::from(port) << 16), 16)],
            any_mac: true, // the packets go round with the MAC of the round before
            ..Interface::default()
        };
        builder.set_interface(port, Some(interface));
    }
    let mut hops4: Vec<NextHopId> = Vec::new();
    let mut hops6: Vec<NextHopId> = Vec::new();
    for gateway in 0..GATEWAYS {
        let interface = u16::from(gateway) % PORTS;
        let a = IpAddr::from([10, interface as u8, 1, gateway]);
        let b = IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, u16::from(gateway) + 1]);
        for address in [a, b] {
            builder.set_neighbour(interface, address, Some([2, 1, 0, 0, 0, gateway]));
        }
        let to = |gateway| {
            RouteTarget::Paths(vec![Path { interface, gateway: Some(gateway), weight: 1 }])
        };
        hops4.push(builder.create_hop::<u32>(&to(a)).expect("a next hop"));
        hops6.push(builder.create_hop::<u128>(&to(b)).expect("a next hop"));
    }
    let spread = |i: usize| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % usize::from(GATEWAYS);
    builder
        .load(v4.iter().enumerate().map(|(i, &p)| (p, hops4[spread(i)])).collect())
        .expect("room");
    builder
        .load(v6.iter().enumerate().map(|(i, &p)| (p, hops6[spread(i)])).collect())
        .expect("room");
    builder.freeze().expect("a table")
}

fn frame4(dst: u32, i: usize) -> Vec<u8> {
    let dst = std::net::Ipv4Addr::from_bits(dst).to_string();
    let src = std::net::Ipv4Addr::from_bits(0x0b00_0000 + i as u32).to_string();
    let frame = testkit::frames::Frame::new().ipv4(&src, &dst).ttl(255);
    frame.udp(1024 + (i % 50_000) as u16, 53, &[]).padded(60)
}

fn frame6(dst: u128, i: usize) -> Vec<u8> {
    let dst = std::net::Ipv6Addr::from_bits(dst).to_string();
    let src = std::net::Ipv6Addr::from_bits(0x2001_0db8 << 96 | i as u128).to_string();
    let frame = testkit::frames::Frame::new().ipv6(&src, &dst).ttl(255);
    frame.udp(1024 + (i % 50_000) as u16, 53, &[]).padded(60)
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}
