//! `shadeline demo`: the router at work, with nothing but this program.
//!
//! A shipped capture and a generated load pass through the real engine and a shipped share of a
//! real routing table. No root, no network, no GPU.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use apps::router::{RouterControl, routes};
use chunk::{Packet, Pool};
use control::config::{Config, FileNextHops, NextHop};
use controlplane::{Interfaces, PortFacts, Publisher, Running, Setup, Tables};
use engine::UnderWay;
use io::capture::read_all;
use io::memory::{Recycle, Replay, Script, Sink};
use io::{QueueStats, RxQueue, TxQueue};
use lookup::routes::parse_bytes;

use crate::cli::DemoArgs;
use crate::failure::Failure;
use crate::output::{self, say};
use crate::report::Report;
use crate::wiring::{self, DataPath, Plan, PortIo};
use crate::{backend, pipelines};

const CONFIG: &str = include_str!("../data/demo.toml");
const CAPTURE: &[u8] = include_bytes!("../data/demo.pcap");
const ROUTES: &[u8] = include_bytes!("../data/routes.txt.gz");

/// The MAC of every port here; the load is addressed to it, the capture is taken whatever its MACs.
const PORT_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];

/// Distinct packets of the load: enough to fall out of the nearer caches.
const LOAD_PACKETS: usize = 65_536;

pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    let (config, _) = control::config::parse(CONFIG, &pipelines::known())
        .map_err(|d| Failure::other(control::config::render(&d, "demo.toml", CONFIG, false)))?;
    let interfaces = Interfaces::of(&config);
    let (frames, error) = read_all(CAPTURE);
    if let Some(error) = error {
        return Err(Failure::other(format!("the shipped capture is damaged: {error}")));
    }
    let begin = Instant::now();
    let setup = Setup {
        config: &config,
        name: "router",
        interfaces: &interfaces,
        facts: &facts,
        is_live: false,
        modules: &[],
        attachments: &[],
    };
    let mut rib = routes::rib(&setup).map_err(Failure::other)?;
    let hops = |text: &str| text.parse::<NextHop>().map_err(Failure::other);
    let spread = FileNextHops::Spread {
        v4: vec![hops("192.0.2.2")?, hops("198.51.100.2")?, hops("203.0.113.2")?],
        v6: vec![hops("2001:db8:1::2")?, hops("2001:db8:2::2")?, hops("2001:db8:3::2")?],
    };
    let table = parse_bytes(ROUTES);
    let counts = (table.v4.len(), table.v6.len());
    let name = Path::new("routes.txt.gz");
    let addresses = addresses(&table);
    routes::load_routes(&mut rib, 0, 20, &spread, table, &interfaces, name)
        .map_err(Failure::other)?;
    let mut tables = Tables::default();
    let part = RouterControl::start(&setup, rib, &mut tables).map_err(Failure::other)?;
    let descriptor = &apps::router::DESCRIPTOR;
    let router = Running::new(descriptor, "router", part);
    let (mut publisher, reader) = Publisher::new(tables, vec![router]);
    let built = begin.elapsed();

    let (_, depot) = wiring::cells(&config, 1)?;
    // First the capture …
    let script = frames.into_iter().map(|record| (record.time_ns, record.data)).collect::<Vec<_>>();
    let rx: Box<dyn RxQueue> = Box::new(Script::new(script));
    let sinks = |_| Box::new(Sink::new()) as Box<dyn TxQueue>;
    let devices =
        |publisher: &Publisher| backend::open(&config, &args.backend.into(), || publisher.images());
    let own = devices(&publisher)?;
    let parts = &mut publisher.parts;
    let (capture, _) = forward(&config, &interfaces, &depot, (&reader, parts), own, rx, sinks)?;
    // … then as many small packets as a machine can, one of each thousand prefixes or so.
    let mut pool = Pool::new(depot.clone(), 512);
    let load = load(&addresses);
    let slices = load.iter().map(Vec::as_slice);
    let mut replay = Replay::new(&mut pool, slices, true)
        .ok_or_else(|| Failure::other("too few cells for the load"))?;
    drop(pool);
    let recycle: Vec<Recycle> = interfaces.names().iter().map(|_| replay.recycle(4096)).collect();
    let mut recycle = recycle.into_iter();
    let left = Arc::new(AtomicU64::new(args.packets));
    let rx: Box<dyn RxQueue> = Box::new(Limited { inner: replay, left });
    let back = move |_| match recycle.next() {
        Some(queue) => Box::new(queue) as Box<dyn TxQueue>,
        None => Box::new(Sink::new()),
    };
    let own = devices(&publisher)?;
    let parts = &mut publisher.parts;
    let (load, _) = forward(&config, &interfaces, &depot, (&reader, parts), own, rx, back)?;
    print(args, counts, built, &capture, &load)
}

fn print(
    args: &DemoArgs,
    counts: (usize, usize),
    built: Duration,
    capture: &Report,
    load: &Report,
) -> Result<(), Failure> {
    if args.json {
        let both = serde_json::json!({
            "routes_v4": counts.0,
            "routes_v6": counts.1,
            "table_build_s": built.as_secs_f64(),
            "capture": capture,
            "load": load,
        });
        return output::json(&both);
    }
    say!(
        "A share of a real Internet table: {} IPv4 and {} IPv6 routes, built in {:.0} ms.\n",
        counts.0,
        counts.1,
        built.as_secs_f64() * 1e3
    )?;
    say!("── A real capture, received by port lan ──\n")?;
    say!("{}", capture.text())?;
    say!("── A generated load of 64-byte packets to addresses of the table ──\n")?;
    say!("{}", load.text())?;
    say!(
        "Next: `shadeline check FILE` and `shadeline run FILE -r IN.pcap -w DIR` with your own configuration. `shadeline help configuration` lists every key; router.toml among the examples of the documentation is a complete example."
    )?;
    Ok(())
}

fn facts(_: u16) -> PortFacts {
    PortFacts { mac: Some(PORT_MAC), mtu: Some(1500), ..PortFacts::default() }
}

/// Forwards everything that `rx` has, by one worker.
fn forward(
    config: &Config,
    interfaces: &Interfaces,
    depot: &Arc<chunk::Depot>,
    (reader, parts): (&lookup::versions::Reader<Tables>, &mut [Running]),
    devices: Vec<engine::DeviceSpec<Tables>>,
    rx: Box<dyn RxQueue>,
    mut tx: impl FnMut(usize) -> Box<dyn TxQueue>,
) -> Result<(Report, Duration), Failure> {
    let mut rx = Some(rx);
    let ports = interfaces
        .ports()
        .map(|number| PortIo::new(number, vec![(rx.take(), Some(tx(number.into())))]))
        .collect();
    let plan = Plan {
        workers: 1,
        offline: true,
        under_way: UnderWay::default(),
        on_drop: None,
        on_dump: None,
        file: String::new(),
        devices,
        on_error: Arc::new(|_, error| tracing::warn!("{error}")),
    };
    let begin = Instant::now();
    let path: DataPath =
        wiring::start(config, interfaces, depot.clone(), reader, parts, ports, plan)?;
    let (view, ports) = (path.engine.view().clone(), path.ports);
    path.engine.join().map_err(Failure::other)?;
    let time = begin.elapsed();
    Ok((Report::of(&view, &ports, parts, interfaces, Some(time)), time))
}

/// An address inside every so-manieth prefix of the table.
fn addresses(routes: &lookup::routes::RoutesFile) -> Vec<u32> {
    let n = routes.v4.len().max(1);
    (0..LOAD_PACKETS)
        .filter_map(|i| routes.v4.get(i * 7919 % n))
        .enumerate()
        .map(|(i, (prefix, _))| {
            let host = if prefix.len() >= 32 { 0 } else { u32::MAX >> prefix.len() };
            prefix.addr() | (i as u32).wrapping_mul(0x9e37_79b9) & host
        })
        .collect()
}

/// UDP packets of 64 bytes on the wire (60 and the frame check sequence), one to each address.
fn load(addresses: &[u32]) -> Vec<Vec<u8>> {
    let make = |(i, address): (usize, &u32)| {
        let mut frame = vec![0u8; 60];
        frame[..6].copy_from_slice(&PORT_MAC);
        frame[6..14].copy_from_slice(&[2, 0, 0, 0, 9, 9, 0x08, 0x00]);
        frame[14] = 0x45;
        frame[16..18].copy_from_slice(&46u16.to_be_bytes());
        (frame[22], frame[23]) = (64, 17);
        frame[26..30].copy_from_slice(&[192, 0, 2, 9]);
        frame[30..34].copy_from_slice(&address.to_be_bytes());
        let sum = packet::checksum::internet_checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame[34..36].copy_from_slice(&(1024 + (i % 60_000) as u16).to_be_bytes());
        frame[36..40].copy_from_slice(&[0, 53, 0, 26]);
        frame
    };
    addresses.iter().enumerate().map(make).collect()
}

/// The first so many packets of an endless queue.
struct Limited<Q> {
    inner: Q,
    left: Arc<AtomicU64>,
}

impl<Q: RxQueue> RxQueue for Limited<Q> {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        let left = self.left.load(Ordering::Relaxed);
        let n = self.inner.recv(pool, out, max.min(usize::try_from(left).unwrap_or(max)));
        self.left.store(left - n as u64, Ordering::Relaxed);
        n
    }

    fn is_finished(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    fn stats(&self) -> QueueStats {
        self.inner.stats()
    }
}
