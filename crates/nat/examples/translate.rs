//! What translating a packet of a session takes by itself, in nanoseconds, on one core: find its ends, look its session up, write
//! its new end. Frames are in memory, 256 at a time; the time is that of the clock, medians of rounds.
//!
//! `cargo run --release -p nat --example translate -- [SESSIONS…]`

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use nat::cache::Place;
use nat::rewrite::{Which, set_end, set_end_plain};
use nat::rules::{Action, Own, Prefix, Rule, Rules};
use nat::translator::{Options, Source, Timeouts, Way};
use nat::{Plain, Tcp, Translator, Tuple};
use packet::Decoded;
use stream::Side;
use stream::table::Found;

const LINK: usize = 14;
const FRAME: usize = 64;
const PACKETS: usize = 1 << 17;
const BATCH: usize = 256;
const ROUNDS: usize = 9;
const AHEAD: usize = 16;

fn main() {
    let sizes: Vec<usize> =
        std::env::args().skip(1).map(|text| text.parse().expect("a number")).collect();
    let sizes = if sizes.is_empty() { vec![1, 10_000, 1_000_000] } else { sizes };
    let titles = ["known, ns", "by the table, ns", "by records, ns"];
    println!("{:>10}  {:>24}  {:>24}  {:>24}", "sessions", titles[0], titles[1], titles[2]);
    for sessions in sizes {
        let (mut translator, frames) = world(sessions);
        let mut all = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            for (all, how) in all.iter_mut().zip([How::Known, How::Plain, How::Decoded]) {
                all.push(round(&mut translator, &frames, how));
            }
        }
        let [known, plain, decoded] = all.map(|mut all| {
            all.sort_by(f64::total_cmp);
            format!("{:.1} ({:.1} - {:.1})", all[ROUNDS / 2], all[0], all[ROUNDS - 1])
        });
        println!("{sessions:>10}  {known:>24}  {plain:>24}  {decoded:>24}");
    }
}

/// Static sessions of so many hosts, and packets of random ones, half of them answers.
fn world(sessions: usize) -> (Translator, Vec<[u8; FRAME]>) {
    const INSIDE: u32 = 0x6440_0000;
    let action =
        Action::Static { inside: Prefix::v4(INSIDE, 10), outside: Prefix::v4(0xac00_0000, 10) };
    let rule = Rule {
        number: 0,
        outside: Vec::new(),
        sources: Vec::new(),
        protocol: None,
        ports: 1..=2,
        action,
    };
    let rules = Arc::new(Rules::new(vec![rule], 1, Arc::new(Own::new(0))));
    let options = Options {
        sessions,
        bindings_per_host: 1,
        filter_by_remote: true,
        timeouts: Timeouts::default(),
        ftp_ports: &[],
        seed: 7,
    };
    let mut translator = Translator::new(options, rules).expect("memory");
    let mut random = 1u64;
    let mut next = || {
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        chunk::hash::fmix64(random)
    };
    let mut all = Vec::with_capacity(sessions);
    for host in 0..sessions as u32 {
        let src = ([0, u64::from(INSIDE | host)], 40_000);
        let dst = ([0, 0x0100_0000 | next() & 0x3fff_ffff], 443);
        let original = Tuple { src, dst, protocol: 6, family: 4, ..Tuple::default() };
        let made = translator.begin(&original, dst, 4, Source::Rule(0, 0), 1).expect("room");
        // Established: there, back and there again.
        for tuple in [original, made.reversed(), original] {
            let (key, side) = tuple.key();
            let mut found = [Found::NONE];
            translator.find(&[key], 1, &mut found);
            translator.step(found[0].slot().expect("a session"), side, Tcp::with(0x10));
        }
        all.push((original, made));
    }
    let frames = (0..PACKETS).map(|at| {
        let (original, translated) = &all[next() as usize % all.len()];
        frame(&if at % 2 == 0 { *original } else { translated.reversed() })
    });
    let frames = frames.collect();
    (translator, frames)
}

fn frame(of: &Tuple) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[12..14].copy_from_slice(&[8, 0]);
    let ip = &mut frame[LINK..];
    ip[..10].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 6]);
    ip[12..16].copy_from_slice(&(of.src.0[1] as u32).to_be_bytes());
    ip[16..20].copy_from_slice(&(of.dst.0[1] as u32).to_be_bytes());
    let sum = packet::checksum::internet_checksum(&ip[..20]);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip[20..22].copy_from_slice(&of.src.1.to_be_bytes());
    ip[22..24].copy_from_slice(&of.dst.1.to_be_bytes());
    ip[32..34].copy_from_slice(&[0x50, 0x10]);
    frame
}

/// How the translation of a packet is found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// Without the table.
    Known,
    /// In the table, by ends read from the header.
    Plain,
    /// In the table, by the record of the packet.
    Decoded,
}

/// Nanoseconds a packet of one pass over copies of the frames.
fn round(translator: &mut Translator, frames: &[[u8; FRAME]], how: How) -> f64 {
    let mut own = frames.to_vec();
    let (mut keys, mut found) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    let mut sides: Vec<(Side, Tcp, Plain)> = Vec::with_capacity(BATCH);
    let mut records = vec![Decoded::default(); BATCH];
    let mut plains: Vec<(Plain, Place, u32, u8)> = Vec::with_capacity(BATCH);
    let places = translator.places();
    let begin = Instant::now();
    let mut translated = 0;
    for batch in own.chunks_mut(BATCH) {
        keys.clear();
        sides.clear();
        if how == How::Known {
            plains.clear();
            plains.extend(batch.iter().filter_map(|frame| {
                let (plain, tcp) = Plain::of(&frame[LINK..])?;
                Some((plain, places.of(plain), tcp.acknowledgment, tcp.flags))
            }));
            plains.iter().take(AHEAD).for_each(|own| translator.prefetch(own.1));
            for (at, frame) in batch.iter_mut().enumerate() {
                if let Some(ahead) = plains.get(at + AHEAD) {
                    translator.prefetch(ahead.1);
                }
                let (plain, place, acknowledgment, flags) = plains[at];
                let tcp = Tcp { acknowledgment, ..Tcp::with(flags) };
                match translator.known(place, plain, tcp, 2) {
                    Some(change) => {
                        change.write(&mut frame[LINK..], plain);
                        translated += 1;
                    }
                    None => {
                        let (key, side) = plain.tuple().key();
                        let mut found = [Found::NONE];
                        translator.find(&[key], 2, &mut found);
                        let slot = found[0].slot().expect("a session");
                        let step = translator.step_plain(slot, side, &plain.tuple(), tcp, 2);
                        translated += usize::from(step.is_some());
                    }
                }
            }
            continue;
        }
        for (frame, d) in batch.iter().zip(&mut records) {
            let (plain, tcp) = Plain::of(&frame[LINK..]).expect("plain");
            let tuple = if how == How::Plain {
                plain.tuple()
            } else {
                packet::decode::decode_into(frame, FRAME, d);
                Tuple::of(d, &frame[usize::from(d.l4_offset)..]).expect("ends")
            };
            let (key, side) = tuple.key();
            keys.push(key);
            sides.push((side, tcp, plain));
        }
        found.clear();
        found.resize(keys.len(), Found::NONE);
        translator.find(&keys, 2, &mut found);
        for ((frame, found), (side, tcp, plain)) in batch.iter_mut().zip(&found).zip(&sides) {
            let Some(slot) = found.slot() else { continue };
            let Some((to, way)) = translator.step_plain(slot, *side, &plain.tuple(), *tcp, 2)
            else {
                continue;
            };
            let (which, end) = match way {
                Way::Forward => (Which::Source, to.src),
                Way::Back => (Which::Destination, to.dst),
            };
            if how == How::Plain {
                set_end_plain(&mut frame[LINK..], which, end.0[1] as u32, end.1);
            } else {
                set_end(&mut frame[LINK..], 20, 6, which, end);
            }
            translated += 1;
        }
    }
    let ns = begin.elapsed().as_nanos() as f64 / frames.len() as f64;
    assert_eq!(translated, frames.len(), "each packet is one of a session");
    black_box(&own);
    ns
}
