//! What the routing information base costs under a full Internet table: loading, memory, and the
//! time from a change to the version that readers see, while readers look up and pin without pause.
//!
//! `cargo run --release -p control --example rib [ROUTES]`

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use control::rib::{RibChange, RibManager, Source, Target, spread};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use lookup::fib::{Fib, Interface, Options, RouteTables};
use lookup::versions::{Reader, Writer, versions};
use lookup::{Address, Prefix, routes};

const NEXT_HOPS: usize = 16;
const CHANGES: usize = 2000;

fn main() {
    let default =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/bgp/bart-prefixes-v4v6.txt.gz");
    let path = std::env::args_os().nth(1).map_or(PathBuf::from(default), PathBuf::from);

    let start = Instant::now();
    let Some((v4, v6)) = read(&path) else { return };
    let parsed = start.elapsed();
    let (count4, count6) = (v4.len(), v6.len());
    let sample4: Vec<_> = v4.iter().map(|(p, _)| *p).step_by(count4 / 4000 + 1).collect();
    let sample6: Vec<_> = v6.iter().map(|(p, _)| *p).step_by(count6 / 4000 + 1).collect();
    let mut rib = RibManager::new(Options::default(), RouteTables::default());
    for index in 0..NEXT_HOPS as u16 {
        set_interface(&mut rib, index, true);
    }
    sync(&mut rib, v4, v6);
    let applied = start.elapsed();
    let (mut writer, reader) = versions(rib.freeze().expect("memory for the tables"));
    let built = start.elapsed();
    println!(
        "{count4} + {count6} routes: parsed {:.0} ms, in the RIB {:.0} ms, tables {:.0} ms, in all {:.0} ms",
        ms(parsed),
        ms(applied - parsed),
        ms(built - applied),
        ms(built)
    );
    println!(
        "memory: {} MB now, {} MB at most; one copy of the tables {} MB",
        status("VmRSS"),
        status("VmHWM"),
        reader.pin().len_bytes() >> 20
    );

    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // One core is the control thread's: a reader that is preempted keeps its pin meanwhile.
        let cores = thread::available_parallelism().map_or(1, usize::from);
        for seed in 0..cores.saturating_sub(1).max(1) as u32 {
            let (reader, stop) = (reader.clone(), &stop);
            let (sample4, sample6) = (&sample4, &sample6);
            scope.spawn(move || load(seed, &reader, sample4, sample6, stop));
        }
        thread::sleep(Duration::from_millis(50));
        let below8: Vec<_> = sample4.iter().copied().filter(|p| p.len() >= 8).collect();
        changes(&mut rib, &mut writer, "IPv4, any length", below8.iter().map(|p| net4(*p)));
        let slash8 = (1..200u32).map(|n| net4(Prefix::masked(n << 24, 8)));
        changes(&mut rib, &mut writer, "IPv4 /8", slash8);
        changes(&mut rib, &mut writer, "IPv6, any length", sample6.iter().map(|p| net6(*p)));
        let shortest = (0..16u128).map(|n| net6(Prefix::masked(0x20 << 120 | n << 112, 16)));
        changes(&mut rib, &mut writer, "IPv6 /16", shortest);
        for up in [false, true] {
            let start = Instant::now();
            set_interface(&mut rib, 3, up);
            rib.commit(&mut writer);
            let routes = rib.stats().unresolved;
            println!(
                "interface up = {up}: {:.0} ms, {routes} routes without it",
                ms(start.elapsed())
            );
        }
        for changed in [0, 10_000] {
            let Some((mut v4, v6)) = read(&path) else { break };
            let step = v4.len().checked_div(changed).unwrap_or(usize::MAX);
            for (_, token) in v4.iter_mut().skip(1).step_by(step).take(changed) {
                *token ^= 1;
            }
            let start = Instant::now();
            sync(&mut rib, v4, v6);
            rib.commit(&mut writer);
            println!("file again, {changed} routes changed: {:.0} ms", ms(start.elapsed()));
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!("memory: {} MB now, {} MB at most", status("VmRSS"), status("VmHWM"));
}

/// The routes of a file, spread over the next hops.
#[allow(clippy::type_complexity)]
fn read(path: &Path) -> Option<(Vec<(Prefix<u32>, u32)>, Vec<(Prefix<u128>, u32)>)> {
    let mut file = match routes::read_file(path) {
        Ok(file) => file,
        Err(error) => {
            println!("skipped: {}: {error}", path.display());
            return None;
        }
    };
    for (prefix, token) in &mut file.v4 {
        *token = spread(net4(*prefix), NEXT_HOPS) as u32;
    }
    for (prefix, token) in &mut file.v6 {
        *token = spread(net6(*prefix), NEXT_HOPS) as u32;
    }
    Some((file.v4, file.v6))
}

fn sync(rib: &mut RibManager, v4: Vec<(Prefix<u32>, u32)>, v6: Vec<(Prefix<u128>, u32)>) {
    rib.sync_file(0, 0, v4, v6, |v4, token| Some(Target::via(gateway(v4, token as u8))))
        .expect("a table of this size fits");
}

/// Adds, replaces and takes away api routes, each seen by readers before the next one.
fn changes(
    rib: &mut RibManager,
    writer: &mut Writer<Fib>,
    what: &str,
    prefixes: impl Iterator<Item = IpNet>,
) {
    let prefixes: Vec<IpNet> = prefixes.collect();
    let mut times = Vec::new();
    for (n, prefix) in prefixes.iter().cycle().take(CHANGES.max(3 * prefixes.len())).enumerate() {
        let prefix = *prefix;
        let v4 = prefix.addr().is_ipv4();
        let via = |n: u8| Target::via(gateway(v4, n));
        let add = |target| RibChange::Route { prefix, source: Source::Api, metric: 0, target };
        let steps = [
            add(via((n % 16) as u8)),
            add(via((n % 16) as u8 ^ 1)),
            RibChange::RemoveRoute { prefix, source: Source::Api, metric: None },
        ];
        for step in steps {
            let start = Instant::now();
            rib.apply(step).expect("room for one route");
            rib.commit(writer);
            times.push(start.elapsed());
            writer.try_settle();
        }
    }
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e6;
    println!(
        "{what}: {} changes, visible after {:.0} µs (median), {:.0} (99 %), {:.0} (99.9 %), {:.0} (most)",
        times.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}

/// A worker's life: pin, look up a burst, let go.
fn load(
    seed: u32,
    reader: &Reader<Fib>,
    sample4: &[Prefix<u32>],
    sample6: &[Prefix<u128>],
    stop: &AtomicBool,
) {
    let mut state = seed;
    let mut out = [0; 256];
    while !stop.load(Ordering::Relaxed) {
        let mut keys4 = [0; 256];
        let mut keys6 = [[0; 2]; 256];
        for (key4, key6) in keys4.iter_mut().zip(&mut keys6) {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *key4 = sample4[state as usize % sample4.len()].addr() | state & 0xff;
            *key6 = sample6[state as usize % sample6.len()].addr().to_key();
        }
        let pin = reader.pin();
        pin.lookup4(&keys4, &mut out);
        pin.lookup6(&keys6, &mut out);
        std::hint::black_box(&out);
    }
}

fn set_interface(rib: &mut RibManager, index: u16, up: bool) {
    let v4 = Ipv4Addr::new(10, 0, index as u8, 1);
    let v6 = Ipv6Addr::new(0x2001, 0xdb8, index, 0, 0, 0, 0, 1).to_bits();
    let interface = Interface {
        up,
        port: index,
        mtu: 1500,
        addresses4: vec![(v4.to_bits(), 24)],
        addresses6: vec![(v6.to_key(), 64)],
        ..Interface::default()
    };
    rib.apply(RibChange::Interface { index, interface: Some(interface) })
        .expect("room for an interface");
}

fn gateway(v4: bool, n: u8) -> IpAddr {
    if v4 {
        Ipv4Addr::new(10, 0, n, 2).into()
    } else {
        Ipv6Addr::new(0x2001, 0xdb8, n.into(), 0, 0, 0, 0, 2).into()
    }
}

fn net4(prefix: Prefix<u32>) -> IpNet {
    Ipv4Net::new_assert(prefix.addr().to_ip(), prefix.len()).into()
}

fn net6(prefix: Prefix<u128>) -> IpNet {
    Ipv6Net::new_assert(prefix.addr().to_ip(), prefix.len()).into()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A line of the kernel's account of this process, MB.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) / 1000
}
