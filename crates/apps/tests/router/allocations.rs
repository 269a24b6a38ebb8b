//! Nothing is allocated per packet after the first chunks: neither for plain packets, nor for those
//! that cause errors, leave in fragments, are answered or wait.

use apps::router::{DEFAULT_STAGES, PipelineOptions, RouterColumns, pipeline};
use chunk::{Arena, Chunk, Columns, HugePages, Layout, Packet, Pool, Region, Verdict};
use engine::Context;
use lookup::fib::Fib;

use crate::random::{Random, input, reference};
use crate::scenario::{fib, frame, two_ports, unlimited};

/// Allocations of the last of some equal rounds.
fn allocations(fib: &Fib, frames: &[(u16, Vec<u8>)]) -> u64 {
    let (_, depot) = Region::new(20_000, HugePages::Off).expect("memory");
    let mut pool = Pool::new(depot, 10_000);
    let mut stages = pipeline(DEFAULT_STAGES, &PipelineOptions::default()).expect("a pipeline");
    let arena = Arena::new(Layout::new(RouterColumns::COLUMNS, chunk::CHUNK_PACKETS_MAX));
    let mut chunk = Chunk::new(arena.reserve(chunk::CHUNK_PACKETS_MAX).expect("rows"), 0);
    let (mut dropped, mut released) = (Vec::with_capacity(1000), Vec::with_capacity(1000));
    let mut count = 0;
    for round in 0..4u64 {
        for (port, frame) in frames {
            let mut packet = Packet::copy_from(&mut pool, frame).expect("cells");
            packet.port = *port;
            chunk.packets.push(packet);
        }
        chunk.rows.set_len(frames.len());
        chunk.rows.verdicts().fill(Verdict::NEXT.0);
        let measured = allocation_counter::measure(|| {
            for stage in &mut stages {
                let now_ns = (1 + round) * 100_000_000_000;
                let mut cx = Context::detached(&mut pool, fib, now_ns, &mut dropped, &mut released);
                stage.pre_shade(&mut chunk, &mut cx);
                if let Some(shader) = stage.shader() {
                    shader.shade(&mut chunk.rows, fib);
                }
                stage.post_shade(&mut chunk, &mut cx);
                cx.now_ns += 10_000_000_000; // whatever waits has waited long enough
                stage.tick(&mut cx);
            }
        });
        count = measured.count_total;
        let emitted = chunk.emitted.drain(..).map(|emitted| emitted.packet);
        let apart = dropped.drain(..).map(|d| d.0).chain(released.drain(..).map(|r| r.0));
        for packet in chunk.packets.drain(..).chain(emitted).chain(apart) {
            packet.free(&mut pool);
        }
    }
    count
}

#[test]
fn plain_packets_allocate_nothing() {
    let counted = allocation_counter::measure(|| drop(std::hint::black_box(vec![0u8; 100])));
    assert_eq!(counted.count_total, 1, "the counter counts");
    let fib = fib(&two_ports(unlimited()));
    let plain = frame().ipv4("10.0.1.2", "8.8.8.8").udp(1, 2, &[0; 18]).bytes();
    let frames: Vec<_> = (0..256).map(|_| (0, plain.clone())).collect();
    assert_eq!(allocations(&fib, &frames), 0);
}

#[test]
fn odd_packets_allocate_nothing_either() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let fib = fib(&reference(&mut random));
        let frames: Vec<_> = (0..200)
            .map(|_| input(&mut random))
            .filter(|input| !input.from_host)
            .map(|input| (input.port, input.frame))
            .collect();
        assert_eq!(allocations(&fib, &frames), 0, "seed {seed}");
    }
}
