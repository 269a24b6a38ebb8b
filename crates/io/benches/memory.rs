//! How many packets a second the memory queues carry, with a loop that does nothing else: what a
//! memory I/O bench of the engine has as its upper bound. `cargo bench -p io --bench memory`

use std::time::{Duration, Instant};

use chunk::{HugePages, Packet, Pool, Region};
use io::generator::{Generator, Options, Template, Values, Vary};
use io::memory::{Replay, Sink, pair};
use io::{RxQueue, TxQueue};

const PACKETS: usize = 131_072;
const BATCH: usize = 64;

fn main() {
    let (_, depot) = Region::new(PACKETS as u32 + 8192, HugePages::Advise).unwrap();
    let mut pool = Pool::new(depot, 512);
    let frames: Vec<[u8; 60]> = (0..PACKETS).map(|i| [i as u8; 60]).collect();
    for (name, restore, touch) in [
        ("replay, packets untouched", false, false),
        ("replay, headers restored", true, false),
        ("replay, restored, one line read and written", true, true),
    ] {
        let mut replay =
            Replay::new(&mut pool, frames.iter().map(|f| f.as_slice()), restore).unwrap();
        let mut recycle = replay.recycle(4096);
        measure(name, &mut replay, &mut recycle, &mut pool, touch);
        drop(recycle);
        replay.free(&mut pool);
    }
    let (mut tx, mut rx) = pair(4096);
    let mut packets: Vec<Packet> =
        (0..1024).map(|_| Packet::copy_from(&mut pool, &[0; 60]).unwrap()).collect();
    tx.send(&mut pool, &mut packets);
    measure("pair, round and round", &mut rx, &mut tx, &mut pool, false);
    let template = Template {
        frame: vec![0; 60],
        vary: vec![Vary {
            offset: 30,
            values: Values::Random { mask: vec![0xff; 4] },
            checksums: vec![],
        }],
        weight: 1,
        ..Template::default()
    };
    let options = Options { templates: vec![template], ..Options::default() };
    let mut generator = Generator::new(options).unwrap();
    measure("generator, one field, to a sink", &mut generator, &mut Sink::new(), &mut pool, false);
}

fn measure(name: &str, rx: &mut dyn RxQueue, tx: &mut dyn TxQueue, pool: &mut Pool, touch: bool) {
    let mut packets = Vec::with_capacity(BATCH);
    let mut best = 0.0f64;
    for _ in 0..5 {
        let (start, before) = (Instant::now(), rx.stats().packets);
        while start.elapsed() < Duration::from_millis(300) {
            for _ in 0..64 {
                rx.recv(pool, &mut packets, BATCH);
                if touch {
                    for packet in &mut packets {
                        packet.data_mut()[22] = packet.data()[22].wrapping_sub(1);
                    }
                }
                tx.send(pool, &mut packets);
            }
        }
        let rate = (rx.stats().packets - before) as f64 / start.elapsed().as_secs_f64();
        best = best.max(rate);
    }
    println!("{name:44} {:7.1} Mpps", best / 1e6);
}
