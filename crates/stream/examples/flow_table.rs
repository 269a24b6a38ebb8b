//! Measures the flow table on this machine: lookups per second at several numbers of live flows, against the walk that
//! is not interleaved and a plain `HashMap`; new flows per second; sweeps.
//!
//! `cargo run --release -p stream --example flow_table [flows …]`
//!
//! Rates count the CPU time of the thread where Linux tells it, so that other programs of the machine take little part in
//! them; the pieces of a sweep are timed by the clock. The rivals of a row take turns in each of five rounds, and the median of the rounds is shown. Keys are random IPv4
//! flows; a lookup takes a random one of the live flows. `HashMap` has the default hasher, which is keyed too, and a value
//! of 16 bytes.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use stream::FlowKey;
use stream::table::{Class, FlowTable, Found, Limits, Slot, Timeouts};

type Table = FlowTable<[u64; 2]>;
type Hot = [u64; 2];

const ROUNDS: usize = 5;
const LOOKUPS: usize = 1 << 20;

fn random(seed: u64, at: u64) -> u64 {
    chunk::hash::parameter(seed, 0) ^ chunk::hash::fmix64(at.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Flow `number`: different ones for different numbers.
fn key(number: u64) -> FlowKey {
    let mixed = chunk::hash::key64(number, 0x5eed);
    let ends =
        (([0, mixed & 0xffff_ffff], (mixed >> 32) as u16), ([0, number], (mixed >> 48) as u16));
    FlowKey::new(ends.0, ends.1, if mixed & 1 == 0 { 6 } else { 17 }, 4, 0).0
}

fn table(capacity: usize, half_open_max: usize) -> Table {
    let limits = Limits { capacity, half_open_max };
    match Table::new(limits, 0x1234_5678) {
        Ok(table) => table,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}

fn ignore(_: Slot, _: &FlowKey, _: &Hot) {}

fn fill(table: &mut Table, flows: std::ops::Range<u64>, class: Class, now: u32) {
    let mut found = [Found::NONE; 256];
    let mut keys = Vec::with_capacity(256);
    let mut next = flows.start;
    while next < flows.end {
        let end = flows.end.min(next + 256);
        keys.clear();
        keys.extend((next..end).map(key));
        table.lookup(&keys, now, &mut (|_| Some(class), ignore), &mut found[..keys.len()]);
        next = end;
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// CPU time of this thread in seconds, as Linux counts it (to some milliseconds).
fn cpu_s() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let ns: u64 = text.split(' ').next()?.parse().ok()?;
    Some(ns as f64 / 1e9)
}

/// Millions per second.
fn rate(count: usize, run: impl FnOnce()) -> f64 {
    let (start, start_s) = (Instant::now(), cpu_s());
    run();
    let elapsed_s = match (start_s, cpu_s()) {
        (Some(start_s), Some(end_s)) if end_s > start_s => end_s - start_s,
        _ => start.elapsed().as_secs_f64(),
    };
    count as f64 / elapsed_s / 1e6
}

fn lookups(flows: u64, with_map: bool) {
    let mut table = table(flows as usize / 4 * 5, 0);
    fill(&mut table, 0..flows, Class::Full, 1);
    let map: HashMap<FlowKey, Hot> =
        if with_map { (0..flows).map(|n| (key(n), [n, 0])).collect() } else { HashMap::new() };
    let keys: Vec<FlowKey> = (0..LOOKUPS as u64).map(|at| key(random(9, at) % flows)).collect();
    let mut found = vec![Found::NONE; LOOKUPS];
    let mut results: [Vec<f64>; 4] = Default::default();
    for round in 0..ROUNDS as u32 {
        let policy = &mut (|_| None, ignore);
        for (place, batch) in [(0, 256), (1, 64)] {
            results[place].push(rate(LOOKUPS, || {
                for (keys, found) in keys.chunks(batch).zip(found.chunks_mut(batch)) {
                    table.lookup(keys, round, policy, found);
                }
            }));
            assert!(found.iter().all(|found| found.slot().is_some()), "each flow is found");
        }
        results[2].push(rate(LOOKUPS, || {
            for (keys, found) in keys.chunks(256).zip(found.chunks_mut(256)) {
                table.lookup_direct(keys, round, policy, found);
            }
        }));
        if with_map {
            results[3].push(rate(LOOKUPS, || {
                let sum = keys.iter().fold(0, |sum: u64, key| sum.wrapping_add(map[key][0]));
                black_box(sum);
            }));
        } else {
            results[3].push(0.0);
        }
    }
    let [b256, b64, direct, map] = results.map(median);
    println!("{flows:>10}  {b256:>8.1}  {b64:>8.1}  {direct:>8.1}  {map:>8.1}");
}

/// New flows in a table of 4 million, half full, and half-open ones at their bound, each of which evicts one.
fn new_flows() {
    let (capacity, batch) = (4u64 << 20, 256);
    let count = 1u64 << 19;
    let mut found = vec![Found::NONE; count as usize];
    let bound = capacity as usize / 2;
    for (name, class, half_open_max) in [
        ("full, at 50 % of the bound", Class::Full, 0),
        ("half-open, at 50 % of the bound", Class::HalfOpen, capacity as usize),
        ("half-open, each evicts one", Class::HalfOpen, bound),
    ] {
        let mut table = table(capacity as usize, half_open_max);
        fill(&mut table, 0..capacity / 2, class, 1);
        let mut rates = Vec::new();
        for round in 1..=ROUNDS as u64 {
            let keys: Vec<FlowKey> = (0..count).map(|n| key(round << 28 | n)).collect();
            let policy = &mut (|_| Some(class), ignore);
            rates.push(rate(keys.len(), || {
                for (keys, found) in keys.chunks(batch).zip(found.chunks_mut(batch)) {
                    table.lookup(keys, round as u32 + 1, policy, found);
                }
            }));
            assert!(found.iter().all(|found| found.is_new()), "each flow is new");
            if half_open_max != bound {
                found.iter().filter_map(|found| found.slot()).for_each(|slot| {
                    table.remove(slot);
                });
            }
        }
        println!("  {name:<34} {:>6.1}", median(rates));
    }
}

fn sweeps() {
    let capacity = 16_000_000;
    let mut table = table(capacity, capacity);
    fill(&mut table, 0..capacity as u64, Class::Full, 1_000);
    let piece = 1 << 16;
    let mut run = |name: &str, now: u32, shortest: u32, timeout: u32| {
        let mut results: [Vec<f64>; 3] = Default::default();
        for _ in 0..ROUNDS {
            let (mut total, mut pieces, mut ended) = (0.0, Vec::new(), 0);
            loop {
                let start = Instant::now();
                let shortest = Timeouts { half_open: shortest, full: shortest };
                let swept = table.sweep(piece, now, shortest, |_, _| timeout, ignore);
                let took = start.elapsed().as_secs_f64();
                (total, ended) = (total + took, ended + swept.ended);
                pieces.push(took);
                if swept.is_round {
                    break;
                }
            }
            results[0].push(total * 1e3);
            results[1].push(pieces.iter().copied().fold(0.0, f64::max) * 1e6);
            results[2].push(median(pieces) * 1e6);
            if ended > 0 {
                break; // it cannot be repeated
            }
        }
        let [total, worst, piece] = results.map(median);
        println!("  {name:<34} {total:>8.1} ms {piece:>8.1} us {worst:>8.1} us");
    };
    run("none may be idle", 2_000, 5_000, 5_000);
    run("all may be, none is", 7_000, 5_000, 50_000);
    run("all are", 60_000, 5_000, 50_000);
}

fn main() {
    let arguments: Vec<u64> =
        std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let flows = if arguments.is_empty() { vec![10_000, 1_000_000, 10_000_000] } else { arguments };
    println!("Millions of lookups per second");
    println!("     flows   by 256     by 64    direct   HashMap");
    for flows in flows {
        lookups(flows, true);
    }
    if std::env::args().len() > 1 {
        return;
    }
    println!("Millions of new flows per second, batches of 256, table of 4 million");
    new_flows();
    println!("Sweep of 16 million flows in pieces of 65,536: in all, median piece, longest piece");
    sweeps();
}
