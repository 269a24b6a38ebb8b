//! `bench forward --backend af_packet|af_xdp`: one core forwarding between two veth ports, beside
//! the bare receive-and-transmit loop of the same back end.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apps::router::PipelineOptions;
use chunk::{HugePages, Region};
use controlplane::Newest;
use engine::{Engine, EngineSpec, RxSlot, Stage, TxSlot, WorkerSpec};
use io::{RxQueue, TxQueue, af_packet, af_xdp};
use lookup::fib::Fib;
use lookup::versions::versions;

use crate::forward::Pass;
use crate::namespace::{Background, Host, Hosts};
use crate::{Args, Backend, Report, Row, tables};

pub(crate) fn run(
    args: &Args,
    routes: &Path,
    backend: Backend,
    seconds: f64,
) -> Result<Report, String> {
    let hosts = Hosts::new()?;
    let name = backend.name();
    let data = format!("64-byte UDP over veth, {name}, one core forwards, the other sends");
    let mut report = Report::new("forward", data);
    // The sender floods from the other core for the whole time.
    let flood: Vec<String> = format!(
        "gen packets --interface eth --rate max --size 64 --dst 198.18.0.0/15 --src 10.0.0.2 \
         --dst-mac 02:00:00:00:01:00 --duration {}s --seed 1",
        60 + (args.rounds.max(1) as f64 * 4.0 * (seconds + 3.0)) as u64
    )
    .split_whitespace()
    .map(str::to_owned)
    .collect();
    let mut command = hosts.own(Host::Sender, &flood)?;
    pin(&mut command, 1);
    let _sender = Background::start(command)?;
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..args.rounds.max(1) {
        for (case, rates) in ["bare", "router"].iter().zip(&mut rates) {
            let child: Vec<String> = format!(
                "bench veth-child --backend {name} --case {case} --seconds {seconds} --routes {}",
                routes.display()
            )
            .split_whitespace()
            .map(str::to_owned)
            .collect();
            let output = hosts.own(Host::Router, &child)?.output().map_err(|e| e.to_string())?;
            let text = String::from_utf8_lossy(&output.stdout);
            let rate = text.trim().parse::<f64>().map_err(|_| {
                format!("{case}: {}", String::from_utf8_lossy(&output.stderr).trim())
            })?;
            rates.push(rate);
        }
    }
    let ratios = rates[1].iter().zip(&rates[0]).map(|(router, bare)| router / bare).collect();
    let [bare, router] = rates;
    report.rows.push(Row::new(format!("{name}: bare loop"), "Mpps", bare));
    report.rows.push(Row::new(format!("{name}: router"), "Mpps", router));
    report.rows.push(Row::new(format!("{name}: router/bare"), "ratio", ratios).at_least(0.95));
    Ok(report)
}

/// Binds a command to one processor, where `taskset` is there.
fn pin(command: &mut std::process::Command, cpu: usize) {
    let program = command.get_program().to_owned();
    let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let mut pinned = std::process::Command::new("taskset");
    pinned.arg("-c").arg(cpu.to_string()).arg(program).args(args);
    *command = pinned;
}

/// Opens what the round before may still be giving up: the kernel takes a socket's queue back some
/// time after its process has ended.
fn patiently<T, E: std::fmt::Display>(open: impl Fn() -> Result<T, E>) -> Result<T, String> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match open() {
            Ok(opened) => return Ok(opened),
            Err(error) if Instant::now() >= deadline => return Err(error.to_string()),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// The forwarding side of a round, in the router's namespace: prints Mpps.
pub(crate) fn child(
    routes: &Path,
    backend: Backend,
    bare: bool,
    seconds: f64,
) -> Result<(), String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let (_, depot) = Region::new(32_768, HugePages::Advise).map_err(|e| text(&e))?;
    type Pair = (Box<dyn RxQueue>, Box<dyn TxQueue>);
    let open = |interface: &str| -> Result<Pair, String> {
        match backend {
            Backend::AfXdp => {
                let options = af_xdp::Options::default();
                let opened = patiently(|| af_xdp::open(interface, &depot, &options))?;
                let (rx, tx) = opened.queues.into_iter().next().ok_or("no queue")?;
                Ok((Box::new(rx), Box::new(tx)))
            }
            _ => {
                let options = af_packet::Options::default();
                let opened = af_packet::open(interface, 1, &options).map_err(|e| text(&e))?;
                let (rx, tx) = opened.into_iter().next().ok_or("no queue")?;
                Ok((Box::new(rx), Box::new(tx)))
            }
        }
    };
    let (rx, _in_tx) = open("in")?;
    let (_out_rx, tx) = open("out")?;
    let mut routes = tables::routes(routes)?;
    if bare {
        (routes.v4, routes.v6) = (Vec::new(), Vec::new());
    }
    // The benchmark network, all by the second port (number 0 of the slots below).
    let (_, fib) = tables::fib_by_port(&routes, 0)?;
    let (_writer, reader) = versions(fib);
    let stages: Vec<Box<dyn Stage<Fib>>> = if bare {
        vec![Box::new(Pass)]
    } else {
        apps::router::pipeline(&["decode", "route", "rewrite"], &PipelineOptions::default())
            .map_err(|e| text(&e))?
    };
    let engine = Engine::start(EngineSpec {
        before: None,
        hooks: Arc::default(),
        host_gate: None,
        workers: vec![WorkerSpec {
            cpu: Some(0),
            versions: Newest(reader),
            pipelines: vec![engine::PipelineSpec::new("", stages)],
            rx: vec![RxSlot {
                entry: engine::Entry::default(),
                port: 0,
                mark: 0,
                queue: rx,
                spread: None,
                counters: Arc::default(),
            }],
            tx: vec![TxSlot::Own(tx, Arc::default())],
            host: Vec::new(),
            on_drop: None,
            device: None,
            on_dump: None,
        }],
        depot: depot.clone(),
        chunk_packets: 256,
        chunks: 4,
        devices: Vec::new(),
        max_delay: None,
        packet_time: false,
        until_finished: false,
        lossless: false,
        on_error: Arc::new(|_, _| {}),
        on_device_error: Arc::new(|_, _| {}),
        on_panic: Arc::new(|panic| files::output::note(format_args!("{panic}"))),
    })
    .map_err(|e| text(&e))?;
    let view = engine.view().clone();
    std::thread::sleep(Duration::from_millis(500));
    let sent = || view.workers.iter().map(|w| w.tx_packets.get()).sum::<u64>();
    let (begin, before) = (Instant::now(), sent());
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let rate = (sent() - before) as f64 / begin.elapsed().as_secs_f64() / 1e6;
    engine.stop(Duration::from_millis(500))?;
    crate::print(format_args!("{rate}\n"))
}
