//! `shadeline gen packets`: the traffic generator of PacketShader §6.1.
//!
//! One thread makes packets and hands them to an interface, a capture, or the engine. To a capture
//! and to the engine they come as fast as can be, with times that follow the rate from a fixed
//! moment on: the same options give the same bytes.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use chunk::{Depot, HugePages, Pool, Region};
use control::api::table::thousands;
use controlplane::Interfaces;
use engine::UnderWay;
use indicatif::{ProgressBar, ProgressStyle};
use io::af_packet;
use io::capture::{CaptureTx, Format};
use io::generator::Pace;
use io::memory::Sink;
use packet::MacAddr;
use serde::Serialize;

use crate::cli::GenPacketsArgs;
use crate::failure::Failure;
use crate::interrupt::{Interrupt, UntilStopped};
use crate::output::{self, line, note, put};
use crate::report::Report;
use crate::traffic::{Rate, Sent, Traffic, TrafficArgs, send, source_mac, wire_bps};
use crate::wiring::{self, Plan, PortIo};
use crate::{backend, check, ports};

/// Time of the first packet of a capture: 2000-01-01, in nanoseconds since 1970.
const START_NS: u64 = 946_684_800_000_000_000;

/// Rate of times where none is asked for, or the highest.
const RATE_OF_TIMES: Rate = Rate::Packets(1e6);

/// Default rate on an interface: a harmless one.
const RATE_OF_INTERFACE: Rate = Rate::Packets(1e4);

/// Source where no interface gives one.
const SRC_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

/// Packets of one call; PacketShader §4.6 gains nothing above.
const BURST: usize = 64;

/// Cells for packets on their way.
const CELLS: u32 = 16_384;

#[derive(Debug, Serialize)]
struct Totals {
    /// Asked for; `None`: as fast as possible.
    rate_pps: Option<f64>,
    packets: u64,
    /// In memory, without check sequence.
    bytes: u64,
    dropped: u64,
    /// Of the clock; for a capture, of its packets.
    seconds: f64,
    pps: f64,
    /// Overhead included.
    gbps: f64,
}

impl Totals {
    fn of(rate_pps: Option<f64>, sent: &Sent) -> Self {
        let per_second = |n: u64| if sent.seconds > 0.0 { n as f64 / sent.seconds } else { 0.0 };
        Self {
            rate_pps,
            packets: sent.packets,
            bytes: sent.bytes,
            dropped: sent.dropped,
            seconds: sent.seconds,
            pps: per_second(sent.packets),
            gbps: wire_bps(sent.packets, sent.bytes, sent.seconds) / 1e9,
        }
    }

    /// Prints them; beside the packets, where these take standard output.
    fn print(&self, written: Option<&Path>, json: bool) -> Result<(), Failure> {
        output::figures(written, json, self, || self.text())
    }

    fn text(&self) -> String {
        let mut out = String::new();
        let rate = match self.pps {
            pps if pps >= 1e5 => format!("{:.3} Mpps, {:.3} Gb/s", pps / 1e6, self.gbps),
            pps => format!("{pps:.0} pps, {:.3} Mb/s", self.gbps * 1e3),
        };
        line!(
            &mut out,
            "{} packets, {} bytes in {:.3} s: {rate}",
            thousands(self.packets),
            thousands(self.bytes),
            self.seconds,
        );
        if let Some(rate) = self.rate_pps.filter(|rate| self.pps < rate * 0.98) {
            line!(&mut out, "the sender could not keep up: {:.4} Mpps were requested", rate / 1e6);
        }
        if self.dropped > 0 {
            line!(&mut out, "{} more packets could not be sent", thousands(self.dropped));
        }
        out
    }
}

pub(crate) fn run(args: &GenPacketsArgs) -> Result<(), Failure> {
    match (&args.interface, &args.write, &args.engine) {
        (Some(interface), None, None) => to_interface(args, interface),
        (None, Some(path), None) => to_file(args, path),
        (None, None, Some(target)) => to_engine(args, target),
        _ => Err(Failure::usage(
            "no destination: expected one of --interface IF, -w FILE, --engine CONFIG",
        )),
    }
}

/// What to send: the frames of a capture, or those that the options describe.
fn traffic(
    args: &GenPacketsArgs,
    src_mac: impl FnOnce() -> Result<MacAddr, Failure>,
) -> Result<Traffic, Failure> {
    match &args.frames {
        Some(path) => Traffic::of_capture(path),
        None => args.traffic.traffic(src_mac()?, false),
    }
}

fn depot() -> Result<Arc<Depot>, Failure> {
    let region = Region::new(CELLS, HugePages::Advise);
    region.map(|(_, depot)| depot).map_err(|e| Failure::other(format!("no memory for cells: {e}")))
}

/// Sends until the count, the time or a signal ends it.
fn to_interface(args: &GenPacketsArgs, interface: &str) -> Result<(), Failure> {
    let traffic = traffic(args, || source_mac(args.traffic.src_mac, interface))?;
    let pps = traffic.pps(args.traffic.rate.unwrap_or(RATE_OF_INTERFACE));
    let pace = pps.map_or(Pace::Unlimited, |pps| Pace::Live { pps });
    let mut generator = traffic.generator(pace, args.traffic.count)?;
    let mut pool = Pool::new(depot()?, 256);
    // The receiving half takes nothing in: it goes at once.
    let pair = af_packet::open(interface, 1, &TX_ONLY).map_err(Failure::other)?.pop();
    let (_, mut tx) = pair.ok_or_else(|| Failure::other(format!("{interface}: no queue")))?;

    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, interrupted.clone()).map_err(Failure::other)?;
    }
    let mut progress = Progress::new(&args.traffic, args.traffic.count);
    let (begin, limit) = (Instant::now(), args.traffic.duration);
    let sent = send(&mut generator, &mut tx, &mut pool, pps, BURST, |packets| {
        progress.show(packets);
        interrupted.load(Ordering::Relaxed) || limit.is_some_and(|limit| begin.elapsed() >= limit)
    });
    progress.end();
    Totals::of(pps, &sent?).print(None, args.json)
}

/// The least that a pair of queues needs for receiving.
const TX_ONLY: af_packet::Options = af_packet::Options {
    block_bytes: 4096,
    blocks: 1,
    blocks_min: 1,
    slot_bytes: 2048,
    promiscuous: false,
    outgoing: false,
    unfinished: false,
};

fn to_file(args: &GenPacketsArgs, path: &Path) -> Result<(), Failure> {
    let traffic = traffic(args, || Ok(args.traffic.src_mac.unwrap_or(SRC_MAC)))?;
    let (pps, count) = timed(&args.traffic, |rate| traffic.pps(rate))?;
    let mut generator =
        traffic.generator(Pace::Stamped { start_ns: START_NS, pps }, Some(count))?;
    let mut pool = Pool::new(depot()?, 256);
    let mut tx =
        CaptureTx::create(path, Format::of(path)).map_err(|e| Failure::output(path, &e))?;
    let interrupt = Interrupt::listen()?;
    let mut progress = Progress::new(&args.traffic, Some(count));
    let sent = send(&mut generator, &mut tx, &mut pool, None, BURST, |packets| {
        progress.show(packets);
        interrupt.stop.load(Ordering::Relaxed)
    });
    progress.end();
    let mut sent = sent?;
    tx.finish().map_err(Failure::other)?;
    sent.seconds = sent.packets as f64 / pps;
    Totals::of(Some(pps), &sent).print(Some(path), args.json)?;
    interrupt.check()
}

/// Rate of times and number of packets of traffic that no clock paces.
fn timed(args: &TrafficArgs, pps: impl Fn(Rate) -> Option<f64>) -> Result<(f64, u64), Failure> {
    let asked = args.rate.and_then(&pps);
    let pps = asked.or_else(|| pps(RATE_OF_TIMES)).unwrap_or(1e6);
    let within = args.duration.map(|time| (time.as_secs_f64() * pps).ceil() as u64);
    let count = args.count.into_iter().chain(within).min();
    let count =
        count.ok_or_else(|| Failure::usage("no limit: expected --count N or --duration TIME"))?;
    Ok((pps, count))
}

/// Feeds the pipeline of a configuration, whose ports are memory here, by one worker.
fn to_engine(args: &GenPacketsArgs, target: &str) -> Result<(), Failure> {
    let traffic = traffic(args, || Ok(args.traffic.src_mac.unwrap_or(SRC_MAC)))?;
    let (pps, count) = timed(&args.traffic, |rate| traffic.pps(rate))?;
    let generator = traffic.generator(Pace::Stamped { start_ns: START_NS, pps }, Some(count))?;

    let named = target.split_once('=').filter(|_| !wiring::is_readable(Path::new(target)));
    let (port, path) = named.map_or((None, target), |(port, path)| (Some(port), path));
    let config = check::load(Path::new(path))?;
    let interfaces = Interfaces::of(&config);
    let number = match port {
        None => 0,
        Some(port) => {
            let number = interfaces.number(port).filter(|number| interfaces.is_port(*number));
            number.ok_or_else(|| {
                Failure::usage(format!(
                    "--engine {target}: there is no port `{port}`: expected one of {}",
                    interfaces.list_ports()
                ))
            })?
        }
    };
    let interrupt = Interrupt::listen()?;
    let generator = UntilStopped { inner: generator, stop: interrupt.stop.clone() };
    let mut generator = Some(generator);
    let io = interfaces.ports().map(|port| {
        let name = interfaces.name(port);
        let own = generator.take_if(|_| port == number);
        let rx = own.map(|own| ports::with_faults(&config, name, Box::new(own)));
        PortIo {
            checksums: ports::checksums(&config, name, None),
            ..PortIo::new(port, vec![(rx, Some(Box::new(Sink::new())))])
        }
    });
    let io = io.collect();
    let (mut publisher, reader) = wiring::offline(&config, &interfaces, &[])?;
    let (_, depot) = wiring::cells(&config, 1)?;
    let wanted = backend::chosen(&config, args.backend.map(Into::into));
    let plan = Plan {
        workers: 1,
        offline: true,
        under_way: UnderWay::default(),
        on_drop: None,
        on_dump: None,
        file: String::new(),
        devices: backend::open(&config, &wanted, || publisher.images())?,
        on_error: Arc::new(|_, error| note!("error: {error}")),
    };
    let begin = Instant::now();
    let parts = &mut publisher.parts;
    let path = wiring::start(&config, &interfaces, depot, &reader, parts, io, plan)?;
    let (view, ports) = (path.engine.view().clone(), path.ports);
    let mut progress = Progress::new(&args.traffic, Some(count));
    while !path.engine.is_finished() {
        std::thread::sleep(Duration::from_millis(1));
        progress.show(view.workers.iter().map(|worker| worker.rx_packets.get()).sum());
    }
    progress.end();
    path.engine.join().map_err(Failure::other)?;
    let time = begin.elapsed();
    let report = Report::of(&view, &ports, &publisher.parts, &interfaces, Some(time));
    let bytes = report.ports.iter().map(|port| port.rx_bytes).sum();
    let packets = report.rx_packets;
    let totals =
        Totals::of(None, &Sent { packets, bytes, dropped: 0, seconds: time.as_secs_f64() });
    if args.json {
        let both = serde_json::json!({ "generated": totals, "report": report });
        output::json(&both)?;
    } else {
        put!("{}{}", report.text(), totals.text())?;
    }
    interrupt.check()
}

/// A bar on a terminal: of packets where their number is known, else of time.
struct Progress {
    bar: Option<ProgressBar>,
    counts: bool,
    begin: Instant,
    /// When it was last drawn, and the packets then.
    drawn: (Instant, u64),
}

impl Progress {
    const EVERY: Duration = Duration::from_millis(100);

    fn new(args: &TrafficArgs, count: Option<u64>) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let millis = args.duration.map(|time| time.as_millis() as u64);
            let (bar, style) = match (count, millis) {
                (Some(count), _) => {
                    (ProgressBar::new(count), "{bar:40} {human_pos}/{human_len}  {msg}  {eta} left")
                }
                (None, Some(millis)) => (ProgressBar::new(millis), "{bar:40} {msg}  {eta} left"),
                (None, None) => (ProgressBar::new_spinner(), "{elapsed} {msg}"),
            };
            if let Ok(style) = ProgressStyle::with_template(style) {
                bar.set_style(style);
            }
            bar
        });
        let begin = Instant::now();
        Self { bar, counts: count.is_some(), begin, drawn: (begin, 0) }
    }

    fn show(&mut self, packets: u64) {
        let Some(bar) = &self.bar else { return };
        let (then, before) = self.drawn;
        let since = then.elapsed();
        if since < Self::EVERY {
            return;
        }
        let rate = packets.saturating_sub(before) as f64 / since.as_secs_f64();
        self.drawn = (Instant::now(), packets);
        let millis = self.begin.elapsed().as_millis() as u64;
        bar.set_position(if self.counts { packets } else { millis });
        bar.set_message(format!("{:.3} Mpps", rate / 1e6));
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
