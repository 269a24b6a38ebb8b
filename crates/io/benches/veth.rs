//! Bare forwarding over veth: receive here, send there, nothing else. `cargo bench -p io --bench veth`
//!
//! ```text
//!   sender ── veth ── rx │ this loop │ tx ── veth ── nobody (the kernel counts and drops)
//! ```
//!
//! Measured on two cores of a virtual machine, Linux 6.18, in a real-time class (`chrt -r 10`), so that
//! nothing else ran on them; under load from others, stalls of the loop decide, and the deeper ring of
//! AF_PACKET wins more clearly:
//!
//! | back end             | Mpps forwarded | share of offered | wake-up p50 |
//! |----------------------|----------------|------------------|-------------|
//! | AF_PACKET            | 1.95–1.99      | 94–96 %          | 0.5 ms      |
//! | AF_XDP native        | 1.37–1.49      | 93–94 %          | 9 µs        |
//! | AF_XDP SKB           | 1.33–1.50      | 94–95 %          | 9 µs        |
//! | AF_PACKET, AF_XDP tx | 1.86–1.89      | 94–97 %          |             |
//!
//! On veth the receiving end's work is done on the sender's core, so the offered rate differs.
//!
//! One thread sends, one forwards; both ends of each veth pair are in namespaces of their own.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use chunk::{Depot, HugePages, Pool, Region};
use io::generator::{Generator, Options, Template};
use io::{RxQueue, TxQueue, af_packet, af_xdp};
use testkit::netns::{Netns, veth};

type Queues = (Box<dyn RxQueue>, Box<dyn TxQueue>);

fn main() {
    if !testkit::require_namespaces() {
        return;
    }
    println!("{:34} {:>10} {:>10}", "back end, one frame at a time", "p50 us", "p99 us");
    for (name, open) in &BACKENDS[..4] {
        let mut waits = wake(*open);
        waits.sort_unstable();
        let at = |share: usize| waits[waits.len() * share / 100].as_nanos() as f64 / 1e3;
        println!("{name:34} {:10.0} {:10.0}", at(50), at(99));
    }
    let seconds = 2.0;
    println!(
        "{:34} {:>10} {:>10} {:>10}",
        "back end, 60-byte frames", "offered/s", "forward/s", "share"
    );
    for round in 0..2 {
        for (name, open) in BACKENDS {
            for batch in [64, 256] {
                let (offered, forwarded) = run(*open, batch, seconds);
                let share = 100.0 * forwarded / offered;
                println!(
                    "{name:22} batch {batch:3} #{round} {offered:10.0} {forwarded:10.0} {share:9.1}%"
                );
            }
        }
    }
}

type Open = fn(&str, &Arc<Depot>) -> Queues;

const BACKENDS: &[(&str, Open)] = &[
    ("af_packet", |interface, _| packet(interface)),
    ("af_packet, ring of 8 MB", |interface, _| packet_with(interface, 32)),
    ("af_xdp native", |interface, depot| xdp(interface, depot, af_xdp::Mode::Native)),
    ("af_xdp skb", |interface, depot| xdp(interface, depot, af_xdp::Mode::Skb)),
    ("packet rx, xdp skb tx", |interface, depot| {
        let tx = xdp(interface, depot, af_xdp::Mode::Skb).1;
        (packet(interface).0, tx)
    }),
];

fn packet(interface: &str) -> Queues {
    packet_with(interface, af_packet::Options::default().blocks)
}

fn packet_with(interface: &str, blocks: u32) -> Queues {
    let options = af_packet::Options { blocks, ..af_packet::Options::default() };
    let (rx, tx) = af_packet::open(interface, 1, &options).unwrap().remove(0);
    (Box::new(rx), Box::new(tx))
}

fn xdp(interface: &str, depot: &Arc<Depot>, mode: af_xdp::Mode) -> Queues {
    let options = af_xdp::Options { mode, ..af_xdp::Options::default() };
    let (rx, tx) = af_xdp::open(interface, depot, &options).unwrap().queues.remove(0);
    (Box::new(rx), Box::new(tx))
}

/// Packets a second that were sent and that came out.
fn run(open: Open, batch: usize, seconds: f64) -> (f64, f64) {
    let [a, r, b] = ["io-a", "io-r", "io-b"].map(Netns::new);
    for netns in [&a, &r, &b] {
        netns.sysctl("net.ipv6.conf.default.disable_ipv6", "1");
    }
    veth((&a, "out", "02:00:00:00:00:01"), (&r, "left", "02:00:00:00:00:02"), 1500);
    veth((&r, "right", "02:00:00:00:00:03"), (&b, "in", "02:00:00:00:00:04"), 1500);
    let (_, depot) = Region::new(32_768, HugePages::Advise).unwrap();
    let stop = AtomicBool::new(false);
    let warm = Duration::from_millis(500);
    std::thread::scope(|scope| {
        let (stop, depot) = (&stop, &depot);
        let sender = scope.spawn(|| {
            pin(0);
            enter(&a);
            let mut tx = packet("out").1;
            let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
            frame.resize(60, 0);
            let template = Template { frame, weight: 1, ..Template::default() };
            let options = Options { templates: vec![template], ..Options::default() };
            let mut generator = Generator::new(options).unwrap();
            let mut pool = Pool::new(depot.clone(), 256);
            let mut packets = Vec::new();
            let mut at_start = 0;
            let start = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                let wanted = 64 - packets.len();
                generator.recv(&mut pool, &mut packets, wanted);
                tx.send(&mut pool, &mut packets);
                if start.elapsed() < warm {
                    at_start = tx.stats().packets;
                }
            }
            (tx.stats().packets - at_start) as f64 / (start.elapsed() - warm).as_secs_f64()
        });
        let forwarder = scope.spawn(|| {
            pin(1);
            enter(&r);
            let mut rx = open("left", depot).0;
            let mut tx = open("right", depot).1;
            let mut pool = Pool::new(depot.clone(), 256);
            let mut packets = Vec::new();
            let mut at_start = 0;
            let start = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                rx.recv(&mut pool, &mut packets, batch);
                tx.send(&mut pool, &mut packets);
                tx.flush(&mut pool);
                if start.elapsed() < warm {
                    at_start = tx.stats().packets;
                }
            }
            packets.drain(..).for_each(|p| p.free(&mut pool));
            (tx.stats().packets - at_start) as f64 / (start.elapsed() - warm).as_secs_f64()
        });
        std::thread::sleep(warm + Duration::from_secs_f64(seconds));
        stop.store(true, Ordering::Relaxed);
        (sender.join().unwrap(), forwarder.join().unwrap())
    })
}

/// From a frame's sending to its receipt by a worker that sleeps.
fn wake(open: Open) -> Vec<Duration> {
    let [a, r] = ["io-a", "io-r"].map(Netns::new);
    for netns in [&a, &r] {
        netns.sysctl("net.ipv6.conf.default.disable_ipv6", "1");
    }
    veth((&a, "out", "02:00:00:00:00:01"), (&r, "left", "02:00:00:00:00:02"), 1500);
    let (_, depot) = Region::new(16_384, HugePages::Advise).unwrap();
    let mut pool = Pool::new(depot.clone(), 64);
    let mut tx = within(&a, || packet("out").1);
    let mut rx = within(&r, || open("left", &depot).0);
    let (mut packets, mut waits) = (Vec::new(), Vec::new());
    for i in 0..300 {
        std::thread::sleep(Duration::from_micros(2000 + 37 * (i % 50)));
        packets.push(chunk::Packet::copy_from(&mut pool, &[2; 60]).unwrap());
        let start = Instant::now();
        tx.send(&mut pool, &mut packets);
        while rx.recv(&mut pool, &mut packets, 64) == 0 {
            if rx.arm() {
                let fd = rx.fd().unwrap().as_raw_fd();
                let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: one `pollfd`, alive during the call.
                unsafe { libc::poll(&mut poll, 1, 100) };
            }
        }
        waits.push(start.elapsed());
        packets.drain(..).for_each(|p| p.free(&mut pool));
    }
    waits
}

/// What `f` returns, run in `netns`.
fn within<T: Send>(netns: &Netns, f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            enter(netns);
            f()
        });
        inside.join().unwrap()
    })
}

fn pin(core: usize) {
    // SAFETY: a zeroed set of processors, of the size that is given.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

fn enter(netns: &Netns) {
    let file = std::fs::File::open(format!("/run/netns/{}", netns.name())).unwrap();
    // SAFETY: takes no pointers; it moves this thread only.
    assert_eq!(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
}
