//! `bench hash`: exact match in a cuckoo table, in all its forms, beside DPDK's `rte_hash`.
//!
//! Both sides hold the same keys with the same values and look up the same random ones that are there; both
//! make them from the same seeds (`bench/peers/rte_hash_peer.c` says how) and count the time that their thread
//! ran. Rounds alternate: all forms of ours once, then the peer. Every pass of the peer must give the sum of
//! our answers, and a hash over all in order is compared.

use lookup::Blob;
use lookup::blob::Pages;
use lookup::cuckoo::{Cuckoo, CuckooBuilder, CuckooKey, Limits};

use crate::forms::{Form, rates, ratio, rows};
use crate::limit::lines_per_second;
use crate::limits::has_room;
use crate::peer::{Peer, hash_bytes};
use crate::tables::Random;
use crate::{Args, Report, Row, lpm};

/// Keys of one call, and of the peer's: the most that `rte_hash` takes.
const BURST: usize = 256;
const PEER_BURST: usize = 64;

const TABLE_SEED: u64 = 3;
const KEYS_SEED: u64 = 5;

/// Memory for the peer's table, MB: its buckets, keys and values take twice what ours do.
const PEER_MEMORY_MB: u32 = 5000;

/// A key of the benchmark, made of one random number.
trait Made: CuckooKey + Sync {
    const BYTES: usize;
    /// Lines of 64 bytes hold so many keys well.
    const PER_100_LINES: usize;
    /// What ours over `rte_hash` should come to.
    const AIM: f64;
    fn entry(random: u64) -> (Self, Self::Value);
    fn wide(value: Self::Value) -> u64;
}

impl Made for u64 {
    const BYTES: usize = 8;
    const PER_100_LINES: usize = 360;
    const AIM: f64 = 4.0;
    fn entry(random: u64) -> (u64, u64) {
        (random, random >> 1)
    }
    fn wide(value: u64) -> u64 {
        value
    }
}

impl Made for [u64; 2] {
    const BYTES: usize = 16;
    const PER_100_LINES: usize = 246;
    const AIM: f64 = 2.0;
    fn entry(random: u64) -> ([u64; 2], u32) {
        ([random, random.wrapping_mul(0x9e37_79b9_7f4a_7c15)], random as u32 >> 1)
    }
    fn wide(value: u32) -> u64 {
        value.into()
    }
}

/// The `index`th number of a seed.
fn number(seed: u64, index: u64) -> u64 {
    Random(seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15))).next()
}

pub(crate) fn run(args: &Args, keys: usize, mebibytes: usize) -> Result<Report, String> {
    if keys == 0 || mebibytes == 0 {
        return Err("nothing to look up: keys and a table are needed".into());
    }
    // Keys, answers and what they are compared with, of the larger of both sizes; the table and one on small pages.
    has_room(&format!("{keys} keys"), keys.saturating_mul(64))?;
    has_room(&format!("tables of {mebibytes} MiB"), mebibytes.saturating_mul(3 << 20))?;
    let data = format!("tables of {mebibytes} MiB, {keys} random keys that are there");
    let mut report = Report::new("hash", data);
    let limit = lines_per_second(mebibytes << 20, Pages::Huge, args.rounds)?;
    report.rows.push(Row::new("random lines, 2 MB pages", "Mlines/s", vec![limit]));
    of_size::<u64>(args, keys, mebibytes, limit, &mut report)?;
    of_size::<[u64; 2]>(args, keys, mebibytes, limit, &mut report)?;
    Ok(report)
}

fn of_size<K: Made>(
    args: &Args,
    keys: usize,
    mebibytes: usize,
    limit: f64,
    report: &mut Report,
) -> Result<(), String> {
    let entries = |bytes: usize| bytes / 64 * K::PER_100_LINES / 100;
    let large = Table::<K>::new(entries(mebibytes << 20), keys)?;
    let bytes = K::BYTES;
    // What the issue of the work asks for, beside the peer.
    let peer = peer(bytes, large.entries, keys);
    let prefix = format!("{bytes}-byte keys, ");
    let (forms, mut peer) = (large.forms(&large.blob, BURST), peer);
    let mut all: Vec<Vec<f64>> = vec![Vec::new(); forms.len()];
    let (mut theirs, mut over) = (Vec::new(), Vec::new());
    let mut answers = vec![K::Value::default(); keys];
    (forms[0].run)(&mut answers);
    let wide = || answers.iter().map(|value| K::wide(*value));
    let sum = wide().fold(0, u64::wrapping_add);
    if answers.contains(&K::MISS) {
        report.wrong.push(format!("{prefix}a key that is there was not found"));
    }
    for _ in 0..args.rounds.max(1) {
        for (all, round) in all.iter_mut().zip(rates(&forms, keys, 1, 1, &mut report.wrong)) {
            all.extend(round);
        }
        if let Ok(peer) = &mut peer {
            let round = peer.hash_round(PEER_BURST).map_err(|e| e.to_string())?;
            if round.sum != sum {
                report.wrong.push(format!("{prefix}the sums of all answers differ"));
            }
            theirs.push(keys as f64 / round.seconds / 1e6);
        }
    }
    let find = |name: &str| forms.iter().position(|form| form.name == name).unwrap_or(0);
    let (plain, switched, machine) = (find("plain"), find("switched, 32"), find("machine, 32"));
    // Of a table that is nine tenths full two thirds of the entries are in their first line.
    report.rows.extend(rows(&prefix, &forms, &all, 1.4, limit));
    let over_plain = ratio(format!("{prefix}switched over plain"), &all[switched], &all[plain]);
    let over_machine =
        ratio(format!("{prefix}switched over machine"), &all[switched], &all[machine]);
    report.rows.extend([over_plain.at_least(2.0), over_machine.at_least(0.95)]);
    match &mut peer {
        Err(why) => report.rows.push(
            Row::new(format!("{prefix}rte_hash"), "Mlookups/s", Vec::new()).note(why.clone()),
        ),
        Ok(peer) => {
            if peer.hash_check().map_err(|e| e.to_string())? != hash_bytes(wide()) {
                report.wrong.push(format!("{prefix}rte_hash answers otherwise"));
            }
            over.extend(all[switched].iter().zip(&theirs).map(|(ours, theirs)| ours / theirs));
            let name = format!("{prefix}rte_hash, bulk of {PEER_BURST}");
            report.rows.push(Row::new(name, "Mlookups/s", theirs).note(peer.version().to_owned()));
            let row = Row::new(format!("{prefix}switched over rte_hash"), "ratio", over);
            report.rows.push(row.at_least(K::AIM));
        }
    }
    drop(forms);

    let mut more =
        |name: &str, table: &Table<K>, blob: &Blob, burst: usize, threads: usize, limit: f64| {
            let forms = table.forms(blob, burst);
            let rates = rates(&forms, keys, args.rounds, threads, &mut report.wrong);
            let prefix = format!("{bytes}-byte keys, {name}, ");
            report.rows.extend(rows(&prefix, &forms, &rates, 1.4, limit * threads as f64));
            let over =
                ratio(format!("{prefix}switched over plain"), &rates[switched], &rates[plain]);
            report.rows.push(over);
        };
    more("2 threads", &large, &large.blob, BURST, 2, limit);
    more("bursts of 64", &large, &large.blob, 64, 1, limit);
    more("bursts of 32", &large, &large.blob, 32, 1, limit);
    let small_pages = large.blob.copy_on(Pages::Small).map_err(|e| e.to_string())?;
    let limit = |blob: &Blob, pages| lines_per_second(blob.len_bytes(), pages, args.rounds);
    more("4 KB pages", &large, &small_pages, BURST, 1, limit(&small_pages, Pages::Small)?);
    drop(small_pages);
    let cached = Table::<K>::new(entries(1 << 19), keys)?;
    more("in cache", &cached, &cached.blob, BURST, 1, limit(&cached.blob, Pages::Huge)?);
    Ok(())
}

/// A table and keys of it.
struct Table<K> {
    entries: usize,
    blob: Blob,
    keys: Vec<K>,
}

impl<K: Made> Table<K> {
    fn new(entries: usize, keys: usize) -> Result<Self, String> {
        let limits = Limits { entries, reserve: entries };
        let all = (0..entries as u64).map(|index| K::entry(number(TABLE_SEED, index)));
        let (_, blob) = CuckooBuilder::<K>::build(all, limits).map_err(|e| e.to_string())?;
        let key = |index| {
            let place = (u128::from(number(KEYS_SEED, index)) * entries as u128) >> 64;
            K::entry(number(TABLE_SEED, place as u64)).0
        };
        Ok(Self { entries, blob, keys: (0..keys as u64).map(key).collect() })
    }

    fn forms<'a>(&'a self, blob: &'a Blob, burst: usize) -> Vec<Form<'a, K::Value>> {
        // The blob was made by a builder of the same kind of keys.
        let Some(table) = Cuckoo::<K>::new(blob) else { return Vec::new() };
        type Look<K> = fn(&Cuckoo<'_, K>, &[K], &mut [<K as CuckooKey>::Value]);
        let form = |name: &str, look: Look<K>| {
            Form::new(name, move |out: &mut [K::Value]| {
                for (keys, out) in self.keys.chunks(burst).zip(out.chunks_mut(burst)) {
                    look(&table, keys, out);
                }
            })
        };
        vec![
            form("plain", |table, keys, out| table.lookup_direct(keys, out)),
            form("group, 32", |table, keys, out| table.lookup_grouped::<32>(keys, out)),
            form("switched, 16", |table, keys, out| table.lookup_switched::<16>(keys, out)),
            form("switched, 32", |table, keys, out| table.lookup_switched::<32>(keys, out)),
            form("machine, 32", |table, keys, out| table.lookup_machine::<32>(keys, out)),
            form("best", |table, keys, out| table.lookup(keys, out)),
        ]
    }
}

/// The peer with its table, or why there is none.
fn peer(bytes: usize, entries: usize, keys: usize) -> Result<Peer, String> {
    let binary = lpm::binary("rte_hash_peer")
        .ok_or("not compared with rte_hash: `cargo xtask peers` builds it, with libdpdk-dev")?;
    let start = || {
        let mut peer = Peer::start(&binary, PEER_MEMORY_MB)?;
        peer.hash_table(bytes, entries, TABLE_SEED)?;
        peer.hash_keys(keys, KEYS_SEED)?;
        Ok(peer)
    };
    start().map_err(|e: std::io::Error| format!("not compared with rte_hash: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_agree_and_keys_are_there() {
        let table = Table::<u64>::new(5000, 3000).unwrap();
        let forms = table.forms(&table.blob, 100);
        let mut wrong = Vec::new();
        rates(&forms, table.keys.len(), 1, 2, &mut wrong);
        assert!(wrong.is_empty(), "{wrong:?}");
        let mut out = vec![0; 3000];
        (forms[0].run)(&mut out);
        assert!(out.iter().zip(&table.keys).all(|(value, key)| *value == key >> 1));
    }
}
