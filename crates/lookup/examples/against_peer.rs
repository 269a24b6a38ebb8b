//! Quick figures while tuning: load time, memory, lookups beside DPDK's, updates; full table.
//!
//! `cargo run --release -p lookup --example against_peer [PEER_BINARY]`

#[allow(dead_code, unreachable_pub)]
#[path = "../../../bench/src/peer.rs"]
mod peer;

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use lookup::bspl::{Bspl, BsplBuilder};
use lookup::dir24_8::{Dir24_8, Dir24_8Builder, Limits};
use lookup::rib::Rib;
use lookup::versions::{Patchable, versions};
use lookup::{Address, Blob, Key6, Lpm, NextHopId, Patch, Prefix, routes};
use peer::{Family, Peer, Round};

const KEYS: usize = 1 << 22;
const BURST: usize = 256;
const ROUNDS: usize = 15;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let table = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/bgp/bart-prefixes-v4v6.txt.gz");
    let start = Instant::now();
    let file = routes::read_file(&table)?;
    let read = start.elapsed();
    let (v4, v6) = (file.v4.clone(), file.v6.clone());
    let four = Instant::now();
    let rib = file.v4.iter().copied().collect();
    let rib4 = four.elapsed();
    let (mut dir, blob4) = Dir24_8Builder::build(rib, Limits::default())?;
    let four = four.elapsed();
    let six = Instant::now();
    let (mut bspl, blob6) = BsplBuilder::build(file.v6.iter().copied().collect())?;
    let six = six.elapsed();
    let total = start.elapsed();
    println!(
        "load {total:?}: read {read:?}, dir24_8 {four:?} (rib {rib4:?}), bspl {six:?}; \
         {} MB, {} MB ({} entries)",
        blob4.len_bytes() >> 20,
        blob6.len_bytes() >> 20,
        bspl.entries()
    );
    let second = (blob4.clone(), blob6.clone());
    println!("memory with two copies and the file: {}", memory());
    drop((second, file));

    let mut random = Random(42);
    let inside4 = (0..KEYS).map(|_| {
        let prefix = v4[random.below(v4.len())].0;
        prefix.addr() | random.next() as u32 & !u32::MAX.truncate(prefix.len())
    });
    let in4 = on_huge_pages(inside4.map(|key| [key]));
    let any4 = on_huge_pages((0..KEYS).map(|_| [random.next() as u32]));
    let (in4, any4) = (in4.words(), any4.words());
    let in6 = inside6(&v6, &mut random);
    let any6 = on_huge_pages((0..KEYS).map(|_| words_of([random.next(), random.next()])));
    let (in6, any6) = (keys6(&in6), keys6(&any6));

    let mut peer = match std::env::args().nth(1) {
        Some(binary) => Some(Peer::start(binary, 6000)?),
        None => None,
    };
    if let Some(peer) = &mut peer {
        peer.load4(v4.iter().copied(), 1 << 15)?;
        peer.load6(v6.iter().copied(), 1 << 18)?;
        let pages = peer.pages()?;
        println!("{}: resident, huge: {pages:?}", peer.version());
    }
    let view4 = Dir24_8::new(&blob4).ok_or("no table")?;
    let view6 = Bspl::new(&blob6).ok_or("no table")?;
    for (name, keys) in [("IPv4 in prefixes", in4), ("IPv4 uniform", any4)] {
        if let Some(peer) = &mut peer {
            peer.keys4(keys)?;
        }
        let scalar = |keys: &[u32], out: &mut [NextHopId]| view4.lookup_scalar(keys, out);
        let batch = |keys: &[u32], out: &mut [NextHopId]| view4.lookup(keys, out);
        compare(&format!("{name}, scalar"), keys, scalar, Family::V4, &mut peer)?;
        compare(name, keys, batch, Family::V4, &mut peer)?;
    }
    let batch = |keys: &[Key6], out: &mut [NextHopId]| view6.lookup(keys, out);
    lines_read(&view6, in6);
    lines_read(&view6, any6);
    for (name, keys) in [("IPv6 in prefixes", in6), ("IPv6 uniform", any6)] {
        if let Some(peer) = &mut peer {
            peer.keys6(keys)?;
        }
        let scalar = |keys: &[Key6], out: &mut [NextHopId]| view6.lookup_scalar(keys, out);
        compare(&format!("{name}, scalar"), keys, scalar, Family::V6, &mut peer)?;
        compare(name, keys, batch, Family::V6, &mut peer)?;
    }
    for (name, lens) in [("lengths 1..=128", 1..=128), ("lengths 16..=64", 16..=64)] {
        let rib: Rib<u128> = (1..=200_000)
            .map(|next_hop| {
                let len =
                    *lens.start() + random.below((lens.end() - lens.start()) as usize + 1) as u8;
                let addr = u128::from(random.next()) << 64 | u128::from(random.next());
                (Prefix::masked(addr, len), next_hop)
            })
            .collect();
        let routes: Vec<_> = rib.iter().collect();
        let start = Instant::now();
        let (builder, blob) = BsplBuilder::build(rib)?;
        println!(
            "200,000 random, {name}: {} routes, built in {:?}, {} MB ({} entries)",
            routes.len(),
            start.elapsed(),
            blob.len_bytes() >> 20,
            builder.entries()
        );
        if let Some(peer) = &mut peer {
            peer.load6(routes.iter().copied(), 7 << 18)?;
        }
        let view = Bspl::new(&blob).ok_or("no table")?;
        let inside = inside6(&routes, &mut random);
        lines_read(&view, keys6(&inside));
        lines_read(&view, any6);
        let batch = |keys: &[Key6], out: &mut [NextHopId]| view.lookup(keys, out);
        for (name, keys) in [("random, in prefixes", keys6(&inside)), ("random, uniform", any6)] {
            if let Some(peer) = &mut peer {
                peer.keys6(keys)?;
            }
            compare(name, keys, batch, Family::V6, &mut peer)?;
        }
    }
    updates4(&mut dir, &blob4)?;
    updates6(&mut bspl, &blob6)
}

fn lines_read(view: &Bspl<'_>, keys: &[Key6]) {
    let lines: u64 = keys.iter().map(|key| u64::from(view.lines_read(*key))).sum();
    println!("cache lines per lookup: {:.2}", lines as f64 / keys.len() as f64);
}

/// Addresses under random prefixes of the table.
fn inside6(routes: &[(Prefix<u128>, NextHopId)], random: &mut Random) -> Blob {
    on_huge_pages((0..KEYS).map(|_| {
        let prefix = routes[random.below(routes.len())].0;
        let host = u128::from(random.next()) << 64 | u128::from(random.next());
        words_of((prefix.addr() | host & !u128::MAX.truncate(prefix.len())).to_key())
    }))
}

/// Keys where the peer has its own, so that both read them alike.
fn on_huge_pages<const N: usize>(keys: impl Iterator<Item = [u32; N]>) -> Blob {
    let mut blob = Blob::zeroed(KEYS * N, 0).expect("memory for keys");
    for (words, key) in blob.words_mut().as_chunks_mut().0.iter_mut().zip(keys) {
        *words = key;
    }
    blob
}

fn words_of(key: Key6) -> [u32; 4] {
    let bytes = key.map(u64::to_ne_bytes);
    let mut words = bytes.as_flattened().as_chunks().0.iter().map(|b| u32::from_ne_bytes(*b));
    std::array::from_fn(|_| words.next().unwrap_or_default())
}

fn keys6(blob: &Blob) -> &[Key6] {
    blob.words64().as_chunks().0
}

fn round<K>(keys: &[K], lookup: impl Fn(&[K], &mut [NextHopId])) -> Round {
    let mut out = [0; BURST];
    let mut sum = 0_u64;
    let start = thread_seconds();
    for keys in keys.chunks(BURST) {
        let out = &mut out[..keys.len()];
        lookup(keys, out);
        sum = out.iter().fold(sum, |sum, next_hop| sum.wrapping_add(u64::from(*next_hop)));
    }
    Round { seconds: thread_seconds() - start, sum: black_box(sum) }
}

fn compare<K: Copy>(
    name: &str,
    keys: &[K],
    lookup: impl Fn(&[K], &mut [NextHopId]),
    family: Family,
    peer: &mut Option<Peer>,
) -> Result<()> {
    let rate = |seconds: f64| KEYS as f64 / seconds / 1e6;
    // The peer's best variant first; then ours and it in turn, each after the other's round.
    let mut best = ("", f64::INFINITY);
    if let Some(peer) = peer {
        for variant in family.variants() {
            peer.variant(family, variant)?;
            let mut seconds = Vec::new();
            for _ in 0..5 {
                seconds.push(peer.round(family, BURST)?.seconds);
            }
            let seconds = median(&mut seconds);
            print!("  [{variant} {:.1}]", rate(seconds));
            if seconds < best.1 {
                best = (variant, seconds);
            }
        }
        peer.variant(family, best.0)?;
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mine = round(keys, &lookup);
        ours.push(mine.seconds);
        if let Some(peer) = peer {
            let other = peer.round(family, BURST)?;
            assert_eq!(mine.sum, other.sum, "{name}: answers differ");
            theirs.push(other.seconds);
        }
    }
    if let Some(peer) = peer {
        let mut out = vec![0; keys.len()];
        lookup(keys, &mut out);
        assert_eq!(peer.check(family)?, peer::hash(out), "{name}: answers differ");
    }
    let (mine, theirs) = (median(&mut ours), median(&mut theirs));
    println!(
        "\n{name}: {:.1} M/s, {} {:.1} M/s, ratio {:.2}",
        rate(mine),
        best.0,
        rate(theirs),
        theirs / mine
    );
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::INFINITY)
}

#[derive(Clone)]
struct Table(Blob);

impl Patchable for Table {
    type Patch = Patch;

    fn apply(&mut self, patch: &Patch) {
        self.0.apply(std::slice::from_ref(patch));
    }
}

/// Times from the call until the change is visible, by prefix length.
fn updates4(builder: &mut Dir24_8Builder, blob: &Blob) -> Result<()> {
    let (mut writer, _reader) = versions(Table(blob.clone()));
    let firsts: Vec<u32> = builder.rib().iter().map(|(prefix, _)| prefix.addr()).collect();
    let mut random = Random(3);
    for len in [8, 9, 10, 12, 16, 20, 24, 25, 28, 32] {
        let mut times = Vec::new();
        for _ in 0..if len < 12 { 256 } else { 500 } {
            let prefix = Prefix::masked(firsts[random.below(firsts.len())], len);
            let old = builder.rib().get(prefix);
            for change in 0..2 {
                let (start, ran) = (Instant::now(), thread_seconds());
                let mut patches = Vec::new();
                match (change, old) {
                    (0, _) => drop(builder.insert(prefix, 77, &mut patches)?),
                    (_, Some(old)) => drop(builder.insert(prefix, old, &mut patches)?),
                    (_, None) => drop(builder.remove(prefix, &mut patches)),
                }
                writer.publish(patches);
                let (visible, ran) = (start.elapsed(), thread_seconds() - ran);
                writer.settle();
                times.push((visible, Duration::from_secs_f64(ran)));
            }
        }
        report(&format!("update IPv4 /{len}"), times);
    }
    Ok(())
}

fn updates6(builder: &mut BsplBuilder, blob: &Blob) -> Result<()> {
    let (mut writer, _reader) = versions(Table(blob.clone()));
    let firsts: Vec<u128> = builder.rib().iter().map(|(prefix, _)| prefix.addr()).collect();
    let mut random = Random(3);
    let mut replaced = 0;
    for len in [1, 3, 8, 12, 16, 17, 19, 20, 22, 24, 28, 29, 32, 36, 40, 44, 48, 56, 64, 96, 128] {
        let mut times = Vec::new();
        for _ in 0..200 {
            let prefix = Prefix::masked(firsts[random.below(firsts.len())], len);
            let old = builder.rib().get(prefix);
            for change in 0..2 {
                let (start, ran) = (Instant::now(), thread_seconds());
                let mut patches = Vec::new();
                match (change, old) {
                    (0, _) => drop(builder.insert(prefix, 77, &mut patches)?),
                    (_, Some(old)) => drop(builder.insert(prefix, old, &mut patches)?),
                    (_, None) => drop(builder.remove(prefix, &mut patches)),
                }
                replaced += patches.iter().filter(|p| matches!(p, Patch::Replace(_))).count();
                writer.publish(patches);
                let (visible, ran) = (start.elapsed(), thread_seconds() - ran);
                writer.settle();
                times.push((visible, Duration::from_secs_f64(ran)));
            }
        }
        report(&format!("update IPv6 /{len}"), times);
    }
    let mut times = Vec::new();
    for next_hop in 1..150_000 {
        let addr = 0x2000_u128 << 112 | u128::from(random.next()) << 60;
        let (start, ran) = (Instant::now(), thread_seconds());
        let mut patches = Vec::new();
        builder.insert(Prefix::masked(addr, 48), next_hop, &mut patches)?;
        replaced += patches.iter().filter(|p| matches!(p, Patch::Replace(_))).count();
        writer.publish(patches);
        times.push((start.elapsed(), Duration::from_secs_f64(thread_seconds() - ran)));
    }
    report("update IPv6, 150,000 more", times);
    println!("replaced whole: {replaced}");
    Ok(())
}

/// Wall time, and the longest that the thread ran: on a busy machine the wall's worst is others'.
fn report(name: &str, mut times: Vec<(Duration, Duration)>) {
    times.sort();
    let ran = times.iter().map(|t| t.1).max().unwrap_or_default();
    let (median, worst) = (times[times.len() / 2].0, times[times.len() - 1].0);
    println!("{name}: visible after {median:?}, worst {worst:?}, of which ran {ran:?}");
}

/// Time that this thread ran: what other programs on the machine take does not count.
fn thread_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec, which is there.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn memory() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let files = [read("/proc/self/status"), read("/proc/self/smaps_rollup")];
    let lines = files.iter().flat_map(|file| file.lines());
    let lines = lines
        .filter(|line| ["VmHWM", "VmRSS", "AnonHuge"].iter().any(|name| line.starts_with(name)));
    lines.map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join(", ")
}

/// splitmix64
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}
