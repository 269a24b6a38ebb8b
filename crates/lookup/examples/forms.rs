//! Quick figures while tuning: every form of the tries in turn, beside DPDK's tables.
//!
//! `cargo run --release -p lookup --example forms [PEER_BINARY]`

#[allow(dead_code, unreachable_pub)]
#[path = "../../../bench/src/peer.rs"]
mod peer;

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use lookup::bspl::{Bspl, BsplBuilder};
use lookup::dir24_8::{self, Dir24_8, Dir24_8Builder};
use lookup::mtrie6::{self, Mtrie6, Mtrie6Builder};
use lookup::poptrie::{self, Poptrie, PoptrieBuilder};
use lookup::rib::Rib;
use lookup::{Address, Blob, Key6, Lpm, NextHopId, Prefix, routes};
use peer::{Family, Peer};

const KEYS: usize = 1 << 21;
const BURST: usize = 256;
const ROUNDS: usize = 7;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
type Form<'a, K> = (&'static str, Box<dyn Fn(&[K], &mut [NextHopId]) + 'a>);

fn main() -> Result<()> {
    let table = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/bgp/bart-prefixes-v4v6.txt.gz");
    let file = routes::read_file(&table)?;
    let mut peer = match std::env::args().nth(1) {
        Some(binary) => Some(Peer::start(binary, 8000)?),
        None => None,
    };
    let mut random = Random(42);
    for few in [true, false] {
        let routes: Vec<_> = file
            .v4
            .iter()
            .map(|(prefix, id)| (*prefix, if few { 1 + random.below(200) as u32 } else { *id }))
            .collect();
        let rib: Rib<u32> = routes.iter().copied().collect();
        let (_, dir) = Dir24_8Builder::build(rib.clone(), dir24_8::Limits::default())?;
        let start = Instant::now();
        let (builder, pop) = PoptrieBuilder::build(rib, poptrie::Limits::default())?;
        println!(
            "poptrie: {:?}, {} KB, used {} KB",
            start.elapsed(),
            pop.len_bytes() >> 10,
            builder.used_bytes() >> 10
        );
        let (dir, pop) = (Dir24_8::new(&dir).ok_or("?")?, Poptrie::new(&pop).ok_or("?")?);
        if let Some(peer) = &mut peer {
            peer.load4(routes.iter().copied(), 1 << 15)?;
        }
        let inside: Vec<u32> = (0..KEYS)
            .map(|_| {
                let prefix = routes[random.below(routes.len())].0;
                prefix.addr() | random.next() as u32 & !u32::MAX.truncate(prefix.len())
            })
            .collect();
        let uniform: Vec<u32> = (0..KEYS).map(|_| random.next() as u32).collect();
        for (name, keys) in [("inside", &inside), ("uniform", &uniform)] {
            let forms: Vec<Form<'_, u32>> = vec![
                ("dir24_8", Box::new(|k, o| dir.lookup(k, o))),
                ("poptrie", Box::new(|k, o| pop.lookup(k, o))),
                ("plain", Box::new(|k, o| pop.lookup_plain(k, o))),
                ("switched 32", Box::new(|k, o| pop.lookup_switched::<32>(k, o))),
                ("machine 32", Box::new(|k, o| pop.lookup_machine::<32>(k, o))),
                ("group 32", Box::new(|k, o| pop.lookup_grouped::<32>(k, o))),
                ("group 64", Box::new(|k, o| pop.lookup_grouped::<64>(k, o))),
                ("group 128", Box::new(|k, o| pop.lookup_grouped::<128>(k, o))),
            ];
            let memory = blob(keys.iter().map(|key| [*key]), keys.len())?;
            if let Some(peer) = &mut peer {
                peer.keys4(keys)?;
            }
            println!("IPv4 few {few} {name}");
            compare(&memory.words()[..KEYS], &forms, Family::V4, &mut peer)?;
        }
    }
    let mut sets = vec![("full", file.v6.clone(), 1 << 18)];
    let random_routes: Rib<u128> = (1..=200_000)
        .map(|id| (Prefix::masked(random.next128(), 1 + random.below(128) as u8), id))
        .collect();
    sets.push(("random", random_routes.iter().collect(), 7 << 18));
    for (set, routes, groups) in sets {
        let rib: Rib<u128> = routes.iter().copied().collect();
        let (_, bspl) = BsplBuilder::build(rib.clone())?;
        let start = Instant::now();
        let (builder, trie) = Mtrie6Builder::build(rib, mtrie6::Limits::default())?;
        println!(
            "mtrie6 {set}: {:?}, {} KB, used {} KB, nodes {}",
            start.elapsed(),
            trie.len_bytes() >> 10,
            builder.used_bytes() >> 10,
            builder.nodes()
        );
        let (bspl, trie) = (Bspl::new(&bspl).ok_or("?")?, Mtrie6::new(&trie).ok_or("?")?);
        if let Some(peer) = &mut peer {
            peer.load6(routes.iter().copied(), groups)?;
        }
        let inside: Vec<Key6> = (0..KEYS)
            .map(|_| {
                let prefix = routes[random.below(routes.len())].0;
                (prefix.addr() | random.next128() & !u128::MAX.truncate(prefix.len())).to_key()
            })
            .collect();
        let uniform: Vec<Key6> =
            (0..KEYS).map(|_| (random.next128() >> 3 | 1 << 125).to_key()).collect();
        for (name, keys) in [("inside", &inside), ("uniform", &uniform)] {
            let forms: Vec<Form<'_, Key6>> = vec![
                ("bspl", Box::new(|k, o| bspl.lookup(k, o))),
                ("bspl plain", Box::new(|k, o| bspl.lookup_plain(k, o))),
                ("bspl machine 32", Box::new(|k, o| bspl.lookup_machine::<32>(k, o))),
                ("bspl switched 32", Box::new(|k, o| bspl.lookup_switched::<32>(k, o))),
                ("bspl scalar batch", Box::new(|k, o| bspl.lookup_scalar(k, o))),
                ("mtrie6", Box::new(|k, o| trie.lookup(k, o))),
                ("plain", Box::new(|k, o| trie.lookup_plain(k, o))),
                ("switched 32", Box::new(|k, o| trie.lookup_switched::<32>(k, o))),
                ("machine 24", Box::new(|k, o| trie.lookup_machine::<24>(k, o))),
                ("machine 32", Box::new(|k, o| trie.lookup_machine::<32>(k, o))),
                ("machine 48", Box::new(|k, o| trie.lookup_machine::<48>(k, o))),
                ("group 64", Box::new(|k, o| trie.lookup_grouped::<64>(k, o))),
                ("group 128", Box::new(|k, o| trie.lookup_grouped::<128>(k, o))),
            ];
            let memory = blob(
                keys.iter()
                    .map(|k| [k[0] as u32, (k[0] >> 32) as u32, k[1] as u32, (k[1] >> 32) as u32]),
                keys.len(),
            )?;
            if let Some(peer) = &mut peer {
                peer.keys6(keys)?;
            }
            println!("IPv6 {set} {name}");
            let keys: &[Key6] = &memory.words64().as_chunks().0[..KEYS];
            compare(keys, &forms, Family::V6, &mut peer)?;
        }
    }
    Ok(())
}

fn blob<const N: usize>(keys: impl Iterator<Item = [u32; N]>, len: usize) -> Result<Blob> {
    let mut blob = Blob::zeroed(len * N, 0)?;
    for (words, key) in blob.words_mut().as_chunks_mut().0.iter_mut().zip(keys) {
        *words = key;
    }
    Ok(blob)
}

fn compare<K>(
    keys: &[K],
    forms: &[Form<'_, K>],
    family: Family,
    peer: &mut Option<Peer>,
) -> Result<()> {
    let variants = if peer.is_some() { family.variants() } else { &[] };
    let mut times = vec![Vec::new(); forms.len() + variants.len()];
    for _ in 0..ROUNDS {
        let mut sums = Vec::new();
        for ((_, form), times) in forms.iter().zip(&mut times) {
            let mut out = [0; BURST];
            let mut sum = 0_u64;
            let start = thread_seconds();
            for keys in keys.chunks(BURST) {
                let out = &mut out[..keys.len()];
                form(keys, out);
                sum = out.iter().fold(sum, |sum, id| sum.wrapping_add(u64::from(*id)));
            }
            times.push(thread_seconds() - start);
            sums.push(black_box(sum));
        }
        for (variant, times) in variants.iter().zip(&mut times[forms.len()..]) {
            if let Some(peer) = peer
                && peer.variant(family, variant).is_ok()
            {
                let round = peer.round(family, BURST)?;
                times.push(round.seconds);
                sums.push(round.sum);
            }
        }
        assert!(sums.iter().all(|sum| *sum == sums[0]), "{sums:?}");
    }
    let names = forms.iter().map(|form| form.0).chain(variants.iter().copied());
    for (name, mut times) in names.zip(times) {
        if times.is_empty() {
            continue;
        }
        times.sort_by(f64::total_cmp);
        println!("  {name:20} {:7.1} M/s", keys.len() as f64 / times[times.len() / 2] / 1e6);
    }
    Ok(())
}

/// Time that this thread ran: what other programs on the machine take does not count.
fn thread_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec, which is there.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
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

    fn next128(&mut self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}
