//! `bench lpm4` and `bench lpm6`: lookups by themselves, beside DPDK's `rte_fib` and `rte_fib6`.
//!
//! Table, keys, burst and page size are the same on both sides, and so is the width of a next hop;
//! both count the time that their thread ran. Passes over the keys alternate: ours, the peer's,
//! ours, and so on. The peer uses the quickest of its lookup functions, found anew for each load.
//! Every pass's sum of answers must be equal, a hash over all answers in order too, and a sample is
//! looked up in the plain trie.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::hint::black_box;
use std::io;
use std::path::PathBuf;

use lookup::bspl::{Bspl, BsplBuilder};
use lookup::dir24_8::{Dir24_8, Dir24_8Builder, Limits};
use lookup::rib::Rib;
use lookup::trie::Trie;
use lookup::{Address, Blob, Key6, Lpm, NextHopId, Prefix};
use rustix::time::{ClockId, clock_gettime};

use crate::peer::{Family, Peer, Round, hash};
use crate::report::median;
use crate::tables::{self, Random, Spread, keys4, keys6};
use crate::{Args, Report, Row};

/// Keys of one call, ours and the peer's.
const BURST: usize = 256;

/// Passes over the keys in a round, each followed by one of the peer's.
const PASSES: usize = 4;

/// Keys that the plain trie looks up, and those whose lookups wait for one another.
const SAMPLE: usize = 1 << 17;

/// Routes of PacketShader's IPv6 table (§6.2.2).
const RANDOM_ROUTES: usize = 200_000;

const RANDOM_NOTE: &str = "24 bits decide nearly every answer: one read for rte_fib6";

const SPREADS: [(&str, Spread); 2] =
    [("inside prefixes", Spread::Prefixes), ("uniform", Spread::Uniform)];

/// One load on one table.
struct Case<'a, K> {
    name: String,
    keys: &'a [K],
    family: Family,
    /// What ours over the peer's should come to, and what one should know about that.
    aim: (f64, &'static str),
}

/// Our ways to an answer: `one` is a single lookup, `plain` the twin's.
struct Ours<T, F, G> {
    name: &'static str,
    table: T,
    one: F,
    plain: G,
}

/// The peer, or why there is none.
struct Rival {
    name: &'static str,
    peer: Result<Peer, String>,
}

pub(crate) fn run4(args: &Args, keys: usize) -> Result<Report, String> {
    let routes = tables::routes(&args.routes)?.v4;
    let prefixes: Vec<_> = routes.iter().map(|(prefix, _)| *prefix).collect();
    if prefixes.is_empty() || keys == 0 {
        return Err("nothing to look up: IPv4 prefixes and keys are needed".into());
    }
    let data = format!("{} IPv4 routes, {keys} addresses, {BURST} a call", routes.len());
    let mut report = Report::new("lpm4", data);
    let mut rival =
        Rival::start("rte_fib", 2000, |peer| peer.load4(routes.iter().copied(), 1 << 15));
    let (trie, blob) = {
        let rib: Rib<u32> = routes.into_iter().collect();
        (Trie::build(&rib), Dir24_8Builder::build(rib, Limits::default()).map_err(text)?.1)
    };
    let table = Dir24_8::new(&blob).ok_or("the table cannot be viewed")?;
    for (name, spread) in SPREADS {
        let memory = on_huge_pages(&keys4(&prefixes, keys, spread, 42), |key| [*key])?;
        let keys = &memory.words()[..keys];
        let aim = (0.9, "the aim is level: 1.0");
        let case = Case { name: name.into(), keys, family: Family::V4, aim };
        if let Ok(peer) = &mut rival.peer {
            peer.keys4(keys).map_err(text)?;
        }
        let ours = Ours {
            name: "dir24_8",
            table,
            one: |key| table.lookup_one(key),
            plain: |key| trie.lookup_one(key),
        };
        measure(&case, &ours, args.rounds, &mut rival, &mut report)?;
    }
    memory("table", &blob, &trie, &mut rival, &mut report)?;
    Ok(report)
}

pub(crate) fn run6(args: &Args, keys: usize) -> Result<Report, String> {
    let full = tables::routes(&args.routes)?.v6;
    if full.is_empty() || keys == 0 {
        return Err("nothing to look up: IPv6 prefixes and keys are needed".into());
    }
    let data = format!(
        "{RANDOM_ROUTES} random routes of lengths 1 to 128 (PacketShader §6.2.2), {} IPv6 routes of \
         the full table; {keys} addresses, {BURST} a call",
        full.len()
    );
    let mut report = Report::new("lpm6", data);
    let random = (random_routes(RANDOM_ROUTES), 7 << 18, (0.8, ""));
    let full = (full, 1 << 18, (0.4, "a later structure is to do better"));
    for (table_name, (routes, groups, aim)) in [("random", random), ("full table", full)] {
        let mut rival =
            Rival::start("rte_fib6", 6000, |peer| peer.load6(routes.iter().copied(), groups));
        let prefixes: Vec<_> = routes.iter().map(|(prefix, _)| *prefix).collect();
        let (trie, blob) = {
            let rib: Rib<u128> = routes.into_iter().collect();
            (Trie::build(&rib), BsplBuilder::build(rib).map_err(text)?.1)
        };
        let table = Bspl::new(&blob).ok_or("the table cannot be viewed")?;
        for (name, spread) in SPREADS {
            let (keys, aim) = match (table_name, spread) {
                // Where routes are all over the address space, so are the addresses.
                ("random", Spread::Uniform) => (anywhere6(keys, 42), (aim.0, RANDOM_NOTE)),
                _ => (keys6(&prefixes, keys, spread, 42), aim),
            };
            let memory = on_huge_pages(&keys, words_of)?;
            let keys: &[Key6] = &memory.words64().as_chunks().0[..keys.len()];
            let case =
                Case { name: format!("{table_name}, {name}"), keys, family: Family::V6, aim };
            if let Ok(peer) = &mut rival.peer {
                peer.keys6(keys).map_err(text)?;
            }
            let ours = Ours {
                name: "bspl",
                table,
                one: |key| table.lookup_one(key),
                plain: |key| trie.lookup_one(key),
            };
            measure(&case, &ours, args.rounds, &mut rival, &mut report)?;
        }
        memory(table_name, &blob, &trie, &mut rival, &mut report)?;
    }
    Ok(report)
}

/// Runs one load on all tables, in turn, and checks what they answer.
fn measure<K, T, F, G>(
    case: &Case<'_, K>,
    ours: &Ours<T, F, G>,
    rounds: usize,
    rival: &mut Rival,
    report: &mut Report,
) -> Result<(), String>
where
    K: Copy + Debug,
    T: Lpm<K>,
    F: Fn(K) -> NextHopId,
    G: Fn(K) -> NextHopId,
{
    let Case { name, keys, family, aim } = case;
    let variant = rival.quickest(*family)?;
    let step = keys.len().div_ceil(SAMPLE);
    let sample: Vec<K> = keys.iter().copied().step_by(step).collect();
    check(case, ours, step, rival, report)?;

    let (mut mine, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut plain, mut waits) = (Vec::new(), Vec::new());
    for _ in 0..rounds.max(1) {
        let (mut our_seconds, mut peer_seconds) = (0.0, 0.0);
        for _ in 0..PASSES {
            let our = pass(keys, &ours.table);
            our_seconds += our.seconds;
            if let Ok(peer) = &mut rival.peer {
                let other = peer.round(*family, BURST).map_err(text)?;
                peer_seconds += other.seconds;
                if our.sum != other.sum {
                    let sums = format!("{} and {}", our.sum, other.sum);
                    report.wrong.push(format!("{name}: the sums of all answers differ: {sums}"));
                }
            }
        }
        let lookups = (keys.len() * PASSES) as f64;
        mine.push(lookups / our_seconds / 1e6);
        if rival.peer.is_ok() {
            theirs.push(lookups / peer_seconds / 1e6);
            ratios.push(peer_seconds / our_seconds);
        }
        let begin = thread_seconds();
        black_box(sample.iter().fold(0, |sum: u32, key| sum.wrapping_add((ours.plain)(*key))));
        plain.push(sample.len() as f64 / (thread_seconds() - begin) / 1e6);
        waits.push(dependent(&sample, &ours.one) / sample.len() as f64 * 1e9);
    }

    let rate = |of: &str, figures| Row::new(format!("{name}: {of}"), "M/s", figures);
    let row = rate(ours.name, mine);
    match &rival.peer {
        Err(why) => report.rows.push(row.note(why.clone())),
        Ok(peer) => {
            let note = format!("{}, {variant}", peer.version());
            let ratio = Row::new(format!("{name}: {}/{}", ours.name, rival.name), "ratio", ratios);
            let rows =
                [row, rate(rival.name, theirs).note(note), ratio.at_least(aim.0).note(aim.1)];
            report.rows.extend(rows);
        }
    }
    let waits = Row::new(format!("{name}: {}, one after another", ours.name), "ns", waits);
    report.rows.push(waits.note("each lookup waits for the answer of the one before"));
    report.rows.push(rate("trie", plain).note(format!("{} of the addresses", sample.len())));
    Ok(())
}

/// Compares all answers with the peer's, and every `step`th with the trie's.
fn check<K, T, F, G>(
    case: &Case<'_, K>,
    ours: &Ours<T, F, G>,
    step: usize,
    rival: &mut Rival,
    report: &mut Report,
) -> Result<(), String>
where
    K: Copy + Debug,
    T: Lpm<K>,
    F: Fn(K) -> NextHopId,
    G: Fn(K) -> NextHopId,
{
    let mut answers = vec![0; case.keys.len()];
    ours.table.lookup(case.keys, &mut answers);
    for (key, answer) in case.keys.iter().zip(&answers).step_by(step) {
        let (one, plain) = ((ours.one)(*key), (ours.plain)(*key));
        if *answer != plain || one != plain {
            report.wrong.push(format!(
                "{}: address {key:x?} gives {answer}, by itself {one}, in the trie {plain}",
                case.name
            ));
            break;
        }
    }
    if let Ok(peer) = &mut rival.peer {
        let theirs = peer.check(case.family).map_err(text)?;
        if theirs != hash(answers) {
            report.wrong.push(format!("{}: {} answers otherwise", case.name, rival.name));
        }
    }
    Ok(())
}

/// Memory of the tables, and whether they lie on huge pages.
fn memory<A: Address>(
    name: &str,
    blob: &Blob,
    trie: &Trie<A>,
    rival: &mut Rival,
    report: &mut Report,
) -> Result<(), String> {
    let mib = |bytes: u64| vec![bytes as f64 / f64::from(1 << 20)];
    let mut row =
        |of: &str, bytes| report.rows.push(Row::new(format!("{name}: {of}"), "MiB", mib(bytes)));
    row("memory", blob.len_bytes() as u64);
    row("memory of the trie", trie.len_bytes() as u64);
    row("on huge pages in this process", huge_bytes());
    if let Ok(peer) = &mut rival.peer {
        let (resident, huge) = peer.pages().map_err(text)?;
        row(&format!("resident in {}", rival.name), resident);
        row(&format!("on huge pages in {}", rival.name), huge);
    }
    Ok(())
}

impl Rival {
    /// Starts the peer, if it is built, with the table that `load` gives it.
    fn start(
        name: &'static str,
        memory_mb: u32,
        load: impl FnOnce(&mut Peer) -> io::Result<()>,
    ) -> Self {
        let start = || {
            let binary = binary().ok_or_else(|| {
                format!("no {name} beside it: `cargo xtask peers` builds it, with libdpdk-dev")
            })?;
            let failed = |e: io::Error| format!("no {name} beside it: {}: {e}", binary.display());
            let mut peer = Peer::start(&binary, memory_mb).map_err(failed)?;
            load(&mut peer).map_err(failed)?;
            Ok(peer)
        };
        Self { name, peer: start() }
    }

    /// Has the peer use the quickest of its lookup functions that this processor has.
    fn quickest(&mut self, family: Family) -> Result<&'static str, String> {
        let Ok(peer) = &mut self.peer else { return Ok("") };
        let mut best = ("", f64::INFINITY);
        for variant in family.variants() {
            if peer.variant(family, variant).is_err() {
                continue;
            }
            let mut seconds = Vec::new();
            for _ in 0..3 {
                seconds.push(peer.round(family, BURST).map_err(text)?.seconds);
            }
            if median(&seconds) < best.1 {
                best = (variant, median(&seconds));
            }
        }
        peer.variant(family, best.0).map_err(text)?;
        Ok(best.0)
    }
}

/// The peer as `cargo xtask peers` leaves it: in `peers` of the folder that cargo builds in.
fn binary() -> Option<PathBuf> {
    let program = std::env::current_exe().unwrap_or_default();
    let beside = program.ancestors().skip(1).take(3).map(PathBuf::from);
    let cargo = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let mut folders = cargo.into_iter().chain(beside).chain([PathBuf::from("target")]);
    folders.find_map(|folder| Some(folder.join("peers/rte_fib_peer")).filter(|path| path.is_file()))
}

/// One pass over the keys.
fn pass<K>(keys: &[K], table: &impl Lpm<K>) -> Round {
    let mut out = [0; BURST];
    let mut sum = 0_u64;
    let begin = thread_seconds();
    for keys in keys.chunks(BURST) {
        let out = &mut out[..keys.len()];
        table.lookup(keys, out);
        sum = out.iter().fold(sum, |sum, next_hop| sum.wrapping_add(u64::from(*next_hop)));
    }
    Round { seconds: thread_seconds() - begin, sum: black_box(sum) }
}

/// Seconds that lookups take of which each waits for the answer before it.
fn dependent<K: Copy>(keys: &[K], one: &impl Fn(K) -> NextHopId) -> f64 {
    let nothing = black_box(0); // the compiler does not know that the answers change no index
    let mut answer = 0;
    let begin = thread_seconds();
    for index in 0..keys.len() {
        answer = one(keys[index + (answer & nothing) as usize]);
    }
    black_box(answer);
    thread_seconds() - begin
}

/// Time that this thread ran: what other programs on the machine take does not count.
fn thread_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Keys as the peer has its own: on huge pages.
fn on_huge_pages<K, const N: usize>(
    keys: &[K],
    words: impl Fn(&K) -> [u32; N],
) -> Result<Blob, String> {
    let mut blob = Blob::zeroed(keys.len() * N, 0).map_err(text)?;
    for (place, key) in blob.words_mut().as_chunks_mut().0.iter_mut().zip(keys) {
        *place = words(key);
    }
    Ok(blob)
}

fn words_of(key: &Key6) -> [u32; 4] {
    let [high, low] = key.map(u64::to_ne_bytes);
    let word =
        |b: &[u8; 8], at: usize| u32::from_ne_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
    [word(&high, 0), word(&high, 4), word(&low, 0), word(&low, 4)]
}

/// `n` different prefixes of random lengths from 1 to 128 bits, each with a next hop of its own.
fn random_routes(n: usize) -> Vec<(Prefix<u128>, NextHopId)> {
    let mut random = Random(11);
    let mut routes = BTreeMap::new();
    while routes.len() < n {
        let addr = u128::from(random.next()) << 64 | u128::from(random.next());
        let next_hop = routes.len() as NextHopId + 1;
        routes.entry(Prefix::masked(addr, 1 + random.below(128) as u8)).or_insert(next_hop);
    }
    routes.into_iter().collect()
}

/// `n` addresses out of all.
fn anywhere6(n: usize, seed: u64) -> Vec<Key6> {
    let mut random = Random(seed);
    (0..n).map(|_| [random.next(), random.next()]).collect()
}

/// This process's memory on huge pages.
fn huge_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("AnonHugePages:")).unwrap_or_default();
    let kib = line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn text(error: impl Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table that is wrong about one address.
    struct Liar<'a>(Bspl<'a>, Key6);

    impl Lpm<Key6> for Liar<'_> {
        fn lookup(&self, keys: &[Key6], out: &mut [NextHopId]) {
            self.0.lookup(keys, out);
            for (key, out) in keys.iter().zip(out) {
                *out += u32::from(*key == self.1);
            }
        }
    }

    fn without_peer() -> Rival {
        Rival { name: "rte_fib6", peer: Err("none".into()) }
    }

    #[test]
    fn a_wrong_answer_is_found() {
        let rib: Rib<u128> = random_routes(500).into_iter().collect();
        let prefixes: Vec<_> = rib.iter().map(|(prefix, _)| prefix).collect();
        let trie = Trie::build(&rib);
        let (_, blob) = BsplBuilder::build(rib).unwrap();
        let bspl = Bspl::new(&blob).unwrap();
        let keys = keys6(&prefixes, 3000, Spread::Prefixes, 1);
        let case = Case { name: "toy".into(), keys: &keys, family: Family::V6, aim: (0.8, "") };
        for (lie, wrong) in [([1, 1], 0), (keys[700], 1)] {
            let ours = Ours {
                name: "bspl",
                table: Liar(bspl, lie),
                one: |key| bspl.lookup_one(key),
                plain: |key| trie.lookup_one(key),
            };
            let mut report = Report::new("toy", "data");
            measure(&case, &ours, 2, &mut without_peer(), &mut report).unwrap();
            assert_eq!(report.wrong.len(), wrong, "{:?}", report.wrong);
            let names: Vec<_> = report.rows.iter().map(|row| row.name.as_str()).collect();
            assert_eq!(names, ["toy: bspl", "toy: bspl, one after another", "toy: trie"]);
            assert!(report.rows.iter().all(|row| row.rounds.len() == 2 && row.median > 0.0));
            assert_eq!(report.rows[0].note, "none");
        }
    }

    #[test]
    fn keys_lie_in_memory_as_they_are() {
        let keys = anywhere6(100, 5);
        let memory = on_huge_pages(&keys, words_of).unwrap();
        assert_eq!(memory.words64().as_chunks().0[..100], keys[..]);
    }

    #[test]
    fn random_routes_differ() {
        let routes = random_routes(5000);
        assert_eq!(routes.len(), 5000);
        assert!(routes.iter().any(|(prefix, _)| prefix.len() == 128));
        assert!(routes.iter().all(|(prefix, _)| prefix.len() > 0));
    }
}
