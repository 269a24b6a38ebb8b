//! `bench lpm4` and `bench lpm6`: lookups by themselves, beside DPDK's `rte_fib` and `rte_fib6`.
//!
//! Every table in every form. Table, keys, burst and page size are the same on both sides, and so is the
//! width of a next hop; both count the time that their thread ran. In each round every form and the peer
//! pass once over the keys, one after the other. The peer uses the quickest of its lookup functions, found
//! anew for each load. Every pass's sum of answers must be equal, a hash over all answers in order too, and
//! a sample is looked up in the plain trie.
//!
//! A row's name is `SET: FORM`, so that a chart takes the rows of a set and of one unit as its bars.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::hint::black_box;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use lookup::blob::Pages;
use lookup::bspl::{Bspl, BsplBuilder};
use lookup::dir24_8::{self, Dir24_8, Dir24_8Builder};
use lookup::mtrie6::{self, Mtrie6, Mtrie6Builder};
use lookup::poptrie::{self, Poptrie, PoptrieBuilder};
use lookup::rib::Rib;
use lookup::trie::Trie;
use lookup::{Address, Blob, Key6, Lpm, NextHopId, Prefix};
use rustix::time::{ClockId, clock_gettime};

use crate::forms::{lines_per_key, mean, share};
use crate::limit::lines_per_second;
use crate::limits::has_room;
use crate::peer::{Family, Peer, Round, hash};
use crate::report::median;
use crate::tables::{self, Random, Spread, keys4, keys6};
use crate::{Args, Report, Row};

/// Keys of one call, ours and the peer's.
const BURST: usize = 256;

/// The same where packets come few at a time.
const SMALL_BURSTS: [usize; 2] = [32, 64];

/// Keys that the plain trie looks up, and those whose lookups wait for one another.
const SAMPLE: usize = 1 << 17;

/// Routes of PacketShader's IPv6 table (§6.2.2).
const RANDOM_ROUTES: usize = 200_000;
const RANDOM: &str = "200,000 random prefixes";

/// Next hops of a large router's table: some hundred neighbours.
const NEXT_HOPS: usize = 200;

/// The small table: so few routes, from all over the full one, that a cache holds what lookups inside them read.
const IN_CACHE: &str = "in cache, 2,000 routes";
const NEAR_ROUTES: usize = 2000;
/// About what these read: two lines for each route.
const NEAR_BYTES: usize = 256 << 10;

const RANDOM_NOTE: &str = "24 bits decide nearly every answer: one read for rte_fib6";

const SPREADS: [(&str, Spread); 2] =
    [("addresses inside prefixes", Spread::Prefixes), ("uniform", Spread::Uniform)];

/// One load on one table.
struct Case<'a, K> {
    name: String,
    keys: &'a [K],
    family: Family,
    /// Rows of how many times as fast one form is as another.
    ratios: Vec<Ratio>,
}

/// One form's rate over another's, or over the peer's (`under` is empty).
#[derive(Clone)]
struct Ratio {
    over: &'static str,
    under: &'static str,
    aim: Option<f64>,
    note: &'static str,
}

type Lookup<'a, K> = Box<dyn Fn(&[K], &mut [NextHopId]) + Sync + 'a>;
type One<'a, K> = Box<dyn Fn(K) -> NextHopId + 'a>;

/// A way to the answers of a batch.
struct Form<'a, K> {
    name: &'static str,
    lookup: Lookup<'a, K>,
    /// Measured on small bursts and by two threads too.
    main: bool,
    bound: Bound,
}

/// What bounds a form: the lines that its lookups read, and those that the memory gives.
#[derive(Clone, Copy)]
struct Bound {
    /// Cache lines a lookup reads, on average.
    lines: f64,
    /// Million random lines a second, from a table of that size on such pages.
    limit: f64,
}

fn form<'a, K>(
    name: &'static str,
    lookup: impl Fn(&[K], &mut [NextHopId]) + Sync + 'a,
) -> Form<'a, K> {
    let bound = Bound { lines: 0.0, limit: f64::NAN };
    Form { name, lookup: Box::new(lookup), main: false, bound }
}

impl<K> Form<'_, K> {
    fn bound(mut self, lines: f64, limit: f64) -> Self {
        self.bound = Bound { lines, limit };
        self
    }

    /// The share of the memory's limit of a row with this rate; nothing for rows of other forms.
    fn share(&self, row: &str, rates: &[f64]) -> Option<String> {
        let rest = row.strip_prefix(self.name)?;
        let threads = match rest {
            "" => 1.0,
            ", two threads" => 2.0,
            rest if rest.starts_with(", bursts of ") => 1.0,
            _ => return None,
        };
        let Bound { lines, limit } = self.bound;
        limit.is_finite().then(|| share(median(rates), lines, limit * threads))
    }
    fn main(mut self) -> Self {
        self.main = true;
        self
    }
}

/// A form over a table on huge pages, whose lookups read so many lines.
fn bounded<'a, K>(
    name: &'static str,
    lookup: Lookup<'a, K>,
    lines: f64,
    limit: f64,
) -> Form<'a, K> {
    Form { name, lookup, main: false, bound: Bound { lines, limit } }
}

/// Routes at equal distances in the order of a table: from all over the address space, of all lengths.
fn few_of<A: Copy>(routes: &[(Prefix<A>, NextHopId)]) -> Vec<(Prefix<A>, NextHopId)> {
    let count = routes.len().min(NEAR_ROUTES);
    (0..count).map(|i| routes[i * routes.len() / count]).collect()
}

/// What the rows of the project's own table begin with.
const FULL: &str = "full table";

/// What the rows of a table begin with: with few next hops, and with one for each route.
fn names_of(routes: &Path) -> (String, String) {
    let own = routes == Path::new(tables::DEFAULT_ROUTES);
    let file = routes.file_name().unwrap_or(routes.as_os_str()).to_string_lossy();
    let whole = if own { FULL.to_owned() } else { format!("table {file}") };
    let each = format!("{whole}, a next hop for each route");
    (whole, each)
}

/// The routes of a file, and what is said of lines that were left out.
struct FileRoutes {
    v4: Vec<(Prefix<u32>, NextHopId)>,
    v6: Vec<(Prefix<u128>, NextHopId)>,
    left_out: String,
}

/// Reads a file; its first bad lines go to standard error.
fn routes_of(path: &Path) -> Result<FileRoutes, String> {
    let file = tables::routes(path)?;
    let problems = &file.problems;
    for problem in problems.first.iter().take(BAD_LINES) {
        files::output::note(format_args!("warning: {}: {problem}", path.display()));
    }
    let left_out = match problems.count {
        0 => String::new(),
        1 => " (1 line of the file is bad)".to_owned(),
        n => format!(" ({n} lines of the file are bad)"),
    };
    Ok(FileRoutes { v4: file.v4, v6: file.v6, left_out })
}

/// Bad lines of a file that are reported.
const BAD_LINES: usize = 5;

/// Million random lines a second of a table, or of what a cache holds of it (`is_near`).
fn limit_of(blob: &Blob, pages: Pages, is_near: bool, rounds: usize) -> Result<f64, String> {
    lines_per_second(if is_near { NEAR_BYTES } else { blob.len_bytes() }, pages, rounds)
}

/// Our ways to an answer: batches, single lookups by table, and the twin's.
struct Ours<'a, K> {
    forms: Vec<Form<'a, K>>,
    ones: Vec<(&'static str, One<'a, K>)>,
    plain: One<'a, K>,
}

/// The peer, or why there is none.
struct Rival {
    name: &'static str,
    peer: Result<Peer, String>,
}

fn against(over: &'static str, under: &'static str, aim: Option<f64>) -> Ratio {
    Ratio { over, under, aim, note: "" }
}

pub(crate) fn run4(args: &Args, routes: &Path, keys: usize) -> Result<Report, String> {
    let (whole, each) = names_of(routes);
    let file = routes_of(routes)?;
    let routes = file.v4;
    let prefixes: Vec<_> = routes.iter().map(|(prefix, _)| *prefix).collect();
    if prefixes.is_empty() || keys == 0 {
        return Err("nothing to look up: IPv4 prefixes and keys are needed".into());
    }
    has_room(&format!("{keys} keys"), keys.saturating_mul(40))?;
    let data = format!(
        "{} IPv4 routes{}, to {NEXT_HOPS} next hops, and again each to its own; {keys} addresses, {BURST} a \
         call unless said otherwise",
        routes.len(),
        file.left_out
    );
    let mut report = Report::new("lpm4", data);
    let mut random = Random(5);
    let few: Vec<_> =
        prefixes.iter().map(|p| (*p, 1 + random.below(NEXT_HOPS) as NextHopId)).collect();
    let near: Vec<_> = few_of(&few);
    let tables: [(_, Vec<_>); 3] = [(&*whole, few), (&*each, routes), (IN_CACHE, near)];
    for (table_name, routes) in tables {
        let is_near = table_name == IN_CACHE;
        let prefixes: Vec<_> = routes.iter().map(|(prefix, _)| *prefix).collect();
        let mut rival =
            Rival::start("rte_fib", 2000, |peer| peer.load4(routes.iter().copied(), 1 << 15));
        let rib: Rib<u32> = routes.into_iter().collect();
        let trie = Trie::build(&rib);
        let (_, dir) =
            Dir24_8Builder::build(rib.clone(), dir24_8::Limits::default()).map_err(text)?;
        let (_, pop) = PoptrieBuilder::build(rib, poptrie::Limits::default()).map_err(text)?;
        let small =
            [dir.copy_on(Pages::Small).map_err(text)?, pop.copy_on(Pages::Small).map_err(text)?];
        let none = "the table cannot be viewed";
        let dir24_8 = Dir24_8::new(&dir).ok_or(none)?;
        let poptrie = Poptrie::new(&pop).ok_or(none)?;
        let small_dir = Dir24_8::new(&small[0]).ok_or(none)?;
        let small_pop = Poptrie::new(&small[1]).ok_or(none)?;
        // Addresses from anywhere read all of a table, however few routes it has.
        let limits_of = |is_near| -> Result<[f64; 4], String> {
            let limit = |blob: &Blob, pages| limit_of(blob, pages, is_near, args.rounds);
            let (huge, small) = (Pages::Huge, Pages::Small);
            Ok([limit(&pop, huge)?, limit(&dir, huge)?, limit(&pop, small)?, limit(&dir, small)?])
        };
        let (whole, near) =
            (limits_of(false)?, if is_near { Some(limits_of(true)?) } else { None });
        for (name, spread) in SPREADS {
            let limits = near.filter(|_| spread == Spread::Prefixes).unwrap_or(whole);
            let memory = on_huge_pages(&keys4(&prefixes, keys, spread, 42), |key| [*key])?;
            let aim_of_spread = if spread == Spread::Uniform { 1.7 } else { 1.3 };
            let aim = |aim| Some(aim).filter(|_| table_name != IN_CACHE);
            let ratios = vec![
                against("poptrie", "", aim(aim_of_spread)),
                against("dir24_8", "", aim(0.9)),
                against("poptrie", "poptrie, plain", None),
                against("poptrie, switched 32", "poptrie, plain", None),
            ];
            let case = Case {
                name: format!("{table_name}, {name}"),
                keys: &memory.words()[..keys],
                family: Family::V4,
                ratios,
            };
            if let Ok(peer) = &mut rival.peer {
                peer.keys4(case.keys).map_err(text)?;
            }
            let sample = &case.keys[..case.keys.len().min(SAMPLE)];
            let lines = [
                lines_per_key(&poptrie, sample),
                mean(sample.iter().map(|key| dir24_8.lines_read(*key).into())),
            ];
            let pop = |name, lookup| bounded(name, lookup, lines[0], limits[0]);
            let dir = |name, lookup| bounded(name, lookup, lines[1], limits[1]);
            let ours = Ours {
                forms: vec![
                    pop("poptrie", Box::new(move |k, o| poptrie.lookup(k, o))).main(),
                    pop("poptrie, plain", Box::new(move |k, o| poptrie.lookup_plain(k, o))).main(),
                    pop(
                        "poptrie, switched 32",
                        Box::new(move |k, o| poptrie.lookup_switched::<32>(k, o)),
                    ),
                    pop(
                        "poptrie, machine 32",
                        Box::new(move |k, o| poptrie.lookup_machine::<32>(k, o)),
                    ),
                    pop(
                        "poptrie, group 64",
                        Box::new(move |k, o| poptrie.lookup_grouped::<64>(k, o)),
                    ),
                    dir("dir24_8", Box::new(move |k, o| dir24_8.lookup(k, o))).main(),
                    dir("dir24_8, plain", Box::new(move |k, o| dir24_8.lookup_scalar(k, o))),
                    form("poptrie, 4 KB pages", move |k, o| small_pop.lookup(k, o))
                        .bound(lines[0], limits[2]),
                    form("dir24_8, 4 KB pages", move |k, o| small_dir.lookup(k, o))
                        .bound(lines[1], limits[3]),
                ],
                ones: vec![
                    ("poptrie", Box::new(move |key| poptrie.lookup_one(key))),
                    ("dir24_8", Box::new(move |key| dir24_8.lookup_one(key))),
                ],
                plain: Box::new(|key| trie.lookup_one(key)),
            };
            measure(&case, &ours, args.rounds, &mut rival, &mut report)?;
        }
        let blobs = [("poptrie", &pop), ("dir24_8", &dir)];
        memory(table_name, &blobs, &trie, &mut rival, &mut report)?;
    }
    Ok(report)
}

pub(crate) fn run6(args: &Args, routes: &Path, keys: usize) -> Result<Report, String> {
    let (whole, _) = names_of(routes);
    let file = routes_of(routes)?;
    let full = file.v6;
    if full.is_empty() || keys == 0 {
        return Err("nothing to look up: IPv6 prefixes and keys are needed".into());
    }
    let data = format!(
        "{RANDOM_ROUTES} random routes of lengths 1 to 128 (PacketShader §6.2.2), {} IPv6 routes of \
         {}{}; {keys} addresses, {BURST} a call unless said otherwise",
        full.len(),
        if whole == FULL { "the full table" } else { &whole },
        file.left_out
    );
    has_room(&format!("{keys} keys"), keys.saturating_mul(64))?;
    let mut report = Report::new("lpm6", data);
    let random = (random_routes(RANDOM_ROUTES), 7 << 18);
    let near = (few_of(&full), 1 << 16);
    let full = (full, 1 << 18);
    for (table_name, (routes, groups)) in [(RANDOM, random), (&*whole, full), (IN_CACHE, near)] {
        let (random, is_near) = (table_name == RANDOM, table_name == IN_CACHE);
        let mut rival =
            Rival::start("rte_fib6", 6000, |peer| peer.load6(routes.iter().copied(), groups));
        let prefixes: Vec<_> = routes.iter().map(|(prefix, _)| *prefix).collect();
        let rib: Rib<u128> = routes.into_iter().collect();
        let trie = Trie::build(&rib);
        let (_, bspl_blob) = BsplBuilder::build(rib.clone()).map_err(text)?;
        let (_, trie_blob) = Mtrie6Builder::build(rib, mtrie6::Limits::default()).map_err(text)?;
        let small = [
            bspl_blob.copy_on(Pages::Small).map_err(text)?,
            trie_blob.copy_on(Pages::Small).map_err(text)?,
        ];
        let none = "the table cannot be viewed";
        let bspl = Bspl::new(&bspl_blob).ok_or(none)?;
        let mtrie6 = Mtrie6::new(&trie_blob).ok_or(none)?;
        let small_bspl = Bspl::new(&small[0]).ok_or(none)?;
        let small_trie = Mtrie6::new(&small[1]).ok_or(none)?;
        let limits_of = |is_near| -> Result<[f64; 4], String> {
            let limit = |blob: &Blob, pages| limit_of(blob, pages, is_near, args.rounds);
            let (trie, bspl, huge, small) = (&trie_blob, &bspl_blob, Pages::Huge, Pages::Small);
            Ok([limit(trie, huge)?, limit(bspl, huge)?, limit(trie, small)?, limit(bspl, small)?])
        };
        let (all, near) = (limits_of(false)?, if is_near { Some(limits_of(true)?) } else { None });
        for (name, spread) in SPREADS {
            let limits = near.filter(|_| spread == Spread::Prefixes).unwrap_or(all);
            let inside = spread == Spread::Prefixes;
            let keys = match (random, inside) {
                // Where routes are all over the address space, so are the addresses.
                (true, false) => anywhere6(keys, 42),
                _ => keys6(&prefixes, keys, spread, 42),
            };
            let memory = on_huge_pages(&keys, words_of)?;
            let aims = match (random, inside) {
                _ if is_near => [None; 3],
                (true, true) => [Some(3.0), Some(3.5), Some(2.0)],
                (false, true) => [Some(2.5), Some(3.2), None],
                _ => [None; 3],
            };
            let mut ratios = vec![
                against("mtrie6", "", aims[0]),
                against("mtrie6", "mtrie6, plain", aims[1]),
                against("mtrie6, switched 32", "mtrie6, plain", None),
                against("bspl, switched 32", "bspl, plain", aims[2]),
                against("bspl", "", None),
            ];
            if random && !inside {
                ratios.iter_mut().filter(|r| r.under.is_empty()).for_each(|r| r.note = RANDOM_NOTE);
            }
            let case = Case {
                name: format!("{table_name}, {name}"),
                keys: &memory.words64().as_chunks().0[..keys.len()],
                family: Family::V6,
                ratios,
            };
            if let Ok(peer) = &mut rival.peer {
                peer.keys6(case.keys).map_err(text)?;
            }
            let sample = &case.keys[..case.keys.len().min(SAMPLE)];
            let lines = [lines_per_key(&mtrie6, sample), lines_per_key(&bspl, sample)];
            let trie_form = |name, lookup| bounded(name, lookup, lines[0], limits[0]);
            let search = |name, lookup| bounded(name, lookup, lines[1], limits[1]);
            let ours = Ours {
                forms: vec![
                    trie_form("mtrie6", Box::new(move |k, o| mtrie6.lookup(k, o))).main(),
                    trie_form("mtrie6, plain", Box::new(move |k, o| mtrie6.lookup_plain(k, o)))
                        .main(),
                    trie_form(
                        "mtrie6, switched 32",
                        Box::new(move |k, o| mtrie6.lookup_switched::<32>(k, o)),
                    )
                    .main(),
                    trie_form(
                        "mtrie6, machine 32",
                        Box::new(move |k, o| mtrie6.lookup_machine::<32>(k, o)),
                    )
                    .main(),
                    trie_form(
                        "mtrie6, group 64",
                        Box::new(move |k, o| mtrie6.lookup_grouped::<64>(k, o)),
                    ),
                    search("bspl", Box::new(move |k, o| bspl.lookup(k, o))).main(),
                    search("bspl, plain", Box::new(move |k, o| bspl.lookup_plain(k, o))),
                    search(
                        "bspl, switched 32",
                        Box::new(move |k, o| bspl.lookup_switched::<32>(k, o)),
                    ),
                    search(
                        "bspl, machine 32",
                        Box::new(move |k, o| bspl.lookup_machine::<32>(k, o)),
                    ),
                    search("bspl, portable batch", Box::new(move |k, o| bspl.lookup_scalar(k, o))),
                    form("mtrie6, 4 KB pages", move |k, o| small_trie.lookup(k, o))
                        .bound(lines[0], limits[2]),
                    form("bspl, 4 KB pages", move |k, o| small_bspl.lookup(k, o))
                        .bound(lines[1], limits[3]),
                ],
                ones: vec![
                    ("mtrie6", Box::new(move |key| mtrie6.lookup_one(key))),
                    ("bspl", Box::new(move |key| bspl.lookup_one(key))),
                ],
                plain: Box::new(|key| trie.lookup_one(key)),
            };
            measure(&case, &ours, args.rounds, &mut rival, &mut report)?;
        }
        let blobs = [("mtrie6", &trie_blob), ("bspl", &bspl_blob)];
        memory(table_name, &blobs, &trie, &mut rival, &mut report)?;
    }
    Ok(report)
}

/// Runs one load on all tables, in turn, and checks what they answer.
fn measure<K: Copy + Debug + Sync>(
    case: &Case<'_, K>,
    ours: &Ours<'_, K>,
    rounds: usize,
    rival: &mut Rival,
    report: &mut Report,
) -> Result<(), String> {
    let Case { name, keys, family, ratios } = case;
    let variant = rival.quickest(*family)?;
    let step = keys.len().div_ceil(SAMPLE);
    let sample: Vec<K> = keys.iter().copied().step_by(step).collect();
    check(case, ours, step, rival, report)?;

    let mut figures = Figures::default();
    let mega = |lookups: usize, seconds: f64| lookups as f64 / seconds / 1e6;
    for _ in 0..rounds.max(1) {
        let mut sums = Vec::new();
        for form in &ours.forms {
            let round = pass(keys, &form.lookup, BURST);
            figures.add(form.name, mega(keys.len(), round.seconds));
            sums.push((form.name, round.sum));
        }
        if let Ok(peer) = &mut rival.peer {
            let round = peer.round(*family, BURST).map_err(text)?;
            figures.add(rival.name, mega(keys.len(), round.seconds));
            sums.push((rival.name, round.sum));
        }
        if let Some(other) = sums.iter().find(|(_, sum)| *sum != sums[0].1) {
            let sums = format!("{:?} and {other:?}", sums[0]);
            report.wrong.push(format!("{name}: the sums of all answers differ: {sums}"));
        }
        for burst in SMALL_BURSTS {
            for form in ours.forms.iter().filter(|form| form.main) {
                let round = pass(keys, &form.lookup, burst);
                let row = format!("{}, bursts of {burst}", form.name);
                figures.add(&row, mega(keys.len(), round.seconds));
            }
            if let Ok(peer) = &mut rival.peer {
                let round = peer.round(*family, burst).map_err(text)?;
                let row = format!("{}, bursts of {burst}", rival.name);
                figures.add(&row, mega(keys.len(), round.seconds));
            }
        }
        for form in ours.forms.iter().filter(|form| form.main) {
            let row = format!("{}, two threads", form.name);
            figures.add(&row, mega(keys.len(), two_threads(keys, &form.lookup)));
        }
        let begin = thread_seconds();
        black_box(sample.iter().fold(0, |sum: u32, key| sum.wrapping_add((ours.plain)(*key))));
        figures.add("trie", mega(sample.len(), thread_seconds() - begin));
        for (of, one) in &ours.ones {
            let row = format!("{of}, one after another");
            figures.add(&row, dependent(&sample, one) / sample.len() as f64 * 1e9);
        }
    }

    for (of, figures) in &figures.0 {
        let waits = of.ends_with("one after another");
        let unit = if waits { "ns" } else { "M/s" };
        let note = match &rival.peer {
            Ok(peer) if of.starts_with(rival.name) => format!("{}, {variant}", peer.version()),
            Err(why) if *of == ours.forms[0].name => why.clone(),
            _ if waits => "each lookup waits for the answer of the one before".into(),
            _ if of == "trie" => format!("{} of the addresses", sample.len()),
            _ if of.ends_with("two threads") => "both together, by the clock on the wall".into(),
            _ => String::new(),
        };
        let shares = ours.forms.iter().filter_map(|form| form.share(of, figures));
        let parts = shares.chain(Some(note).filter(|note| !note.is_empty()));
        let note = parts.collect::<Vec<_>>().join("; ");
        report.rows.push(Row::new(format!("{name}: {of}"), unit, figures.clone()).note(note));
    }
    for ratio in ratios {
        let under = if ratio.under.is_empty() { rival.name } else { ratio.under };
        let (Some(over), Some(below)) = (figures.get(ratio.over), figures.get(under)) else {
            continue; // no peer
        };
        let rounds = over.iter().zip(below).map(|(over, below)| over / below).collect();
        let row = Row::new(format!("{name}: {} / {under}", ratio.over), "ratio", rounds);
        let row = row.note(ratio.note);
        report.rows.push(match ratio.aim {
            Some(aim) => row.at_least(aim),
            None => row,
        });
    }
    Ok(())
}

/// Figures by row, in the order in which rows came up; one a round.
#[derive(Default)]
struct Figures(Vec<(String, Vec<f64>)>);

impl Figures {
    fn add(&mut self, row: &str, figure: f64) {
        match self.0.iter_mut().find(|(name, _)| name == row) {
            Some((_, figures)) => figures.push(figure),
            None => self.0.push((row.to_owned(), vec![figure])),
        }
    }

    fn get(&self, row: &str) -> Option<&[f64]> {
        self.0.iter().find(|(name, _)| name == row).map(|(_, figures)| figures.as_slice())
    }
}

/// Compares all answers of all forms, the peer's with them, and every `step`th with the trie's.
fn check<K: Copy + Debug>(
    case: &Case<'_, K>,
    ours: &Ours<'_, K>,
    step: usize,
    rival: &mut Rival,
    report: &mut Report,
) -> Result<(), String> {
    let mut first = vec![0; case.keys.len()];
    let mut answers = first.clone();
    for (number, form) in ours.forms.iter().enumerate() {
        answers.fill(0xdead_beef);
        for (keys, out) in case.keys.chunks(BURST).zip(answers.chunks_mut(BURST)) {
            (form.lookup)(keys, out);
        }
        if number == 0 {
            first.copy_from_slice(&answers);
        } else if first != answers {
            report.wrong.push(format!("{}: {} answers otherwise", case.name, form.name));
        }
    }
    for (key, answer) in case.keys.iter().zip(&first).step_by(step) {
        let plain = (ours.plain)(*key);
        let ones: Vec<_> = ours.ones.iter().map(|(_, one)| one(*key)).collect();
        if *answer != plain || ones.iter().any(|one| *one != plain) {
            report.wrong.push(format!(
                "{}: address {key:x?} gives {answer}, by itself {ones:?}, in the trie {plain}",
                case.name
            ));
            break;
        }
    }
    if let Ok(peer) = &mut rival.peer {
        let theirs = peer.check(case.family).map_err(text)?;
        if theirs != hash(first) {
            report.wrong.push(format!("{}: {} answers otherwise", case.name, rival.name));
        }
    }
    Ok(())
}

/// Memory of the tables, and whether they lie on huge pages.
fn memory<A: Address>(
    name: &str,
    blobs: &[(&str, &Blob)],
    trie: &Trie<A>,
    rival: &mut Rival,
    report: &mut Report,
) -> Result<(), String> {
    let mib = |bytes: u64| vec![bytes as f64 / f64::from(1 << 20)];
    let mut row =
        |of: &str, bytes| report.rows.push(Row::new(format!("{name}: {of}"), "MiB", mib(bytes)));
    for (of, blob) in blobs {
        row(&format!("memory of {of}"), blob.len_bytes() as u64);
    }
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
            let binary = binary("rte_fib_peer").ok_or_else(|| {
                format!("not compared with {name}: `cargo xtask peers` builds it, with libdpdk-dev")
            })?;
            let failed =
                |e: io::Error| format!("not compared with {name}: {}: {e}", binary.display());
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
pub(crate) fn binary(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().unwrap_or_default();
    let beside = program.ancestors().skip(1).take(3).map(PathBuf::from);
    let cargo = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let mut folders = cargo.into_iter().chain(beside).chain([PathBuf::from("target")]);
    folders.find_map(|folder| Some(folder.join("peers").join(name)).filter(|path| path.is_file()))
}

/// One pass over the keys.
fn pass<K>(keys: &[K], lookup: &Lookup<'_, K>, burst: usize) -> Round {
    let mut out = [0; BURST];
    let mut sum = 0_u64;
    let begin = thread_seconds();
    for keys in keys.chunks(burst) {
        let out = &mut out[..keys.len()];
        lookup(keys, out);
        sum = out.iter().fold(sum, |sum, next_hop| sum.wrapping_add(u64::from(*next_hop)));
    }
    Round { seconds: thread_seconds() - begin, sum: black_box(sum) }
}

/// Seconds on the wall that two threads take, each over its half of the keys.
fn two_threads<K: Sync>(keys: &[K], lookup: &Lookup<'_, K>) -> f64 {
    let (left, right) = keys.split_at(keys.len() / 2);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| pass(right, lookup, BURST));
        black_box(pass(left, lookup, BURST));
        drop(other.join());
    });
    begin.elapsed().as_secs_f64()
}

/// Seconds that lookups take of which each waits for the answer before it.
fn dependent<K: Copy>(keys: &[K], one: &One<'_, K>) -> f64 {
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
        let ratios = vec![against("plain", "bspl", Some(0.1)), against("bspl", "", None)];
        let case = Case { name: "toy".into(), keys: &keys, family: Family::V6, ratios };
        // A form that is wrong about one address, or about none that is asked.
        for (lie, wrong) in [([1, 1], false), (keys[700], true)] {
            let ours = Ours {
                forms: vec![
                    form("bspl", move |k, o| bspl.lookup(k, o)).main(),
                    form("plain", move |keys, out| {
                        bspl.lookup_plain(keys, out);
                        for (key, out) in keys.iter().zip(out) {
                            *out += u32::from(*key == lie);
                        }
                    })
                    .bound(lines_per_key(&bspl, &keys), 100.0),
                ],
                ones: vec![("bspl", Box::new(move |key| bspl.lookup_one(key)))],
                plain: Box::new(|key| trie.lookup_one(key)),
            };
            let mut report = Report::new("toy", "data");
            measure(&case, &ours, 2, &mut without_peer(), &mut report).unwrap();
            assert_eq!(!report.wrong.is_empty(), wrong, "{:?}", report.wrong);
            let names: Vec<_> = report.rows.iter().map(|row| row.name.as_str()).collect();
            let expected = [
                "toy: bspl",
                "toy: plain",
                "toy: bspl, bursts of 32",
                "toy: bspl, bursts of 64",
                "toy: bspl, two threads",
                "toy: trie",
                "toy: bspl, one after another",
                "toy: plain / bspl",
            ];
            assert_eq!(names, expected);
            assert!(report.rows.iter().all(|row| row.rounds.len() == 2 && row.median > 0.0));
            assert_eq!(report.rows[0].note, "none");
            let shares = report.rows.iter().filter(|row| row.note.ends_with("memory's limit"));
            assert!(shares.map(|row| row.name.as_str()).eq(["toy: plain"]));
        }
    }

    #[test]
    fn few_routes_come_from_all_over() {
        let routes: Vec<_> = (0..10_000_u32).map(|i| (Prefix::masked(i << 12, 24), i)).collect();
        let few = few_of(&routes);
        assert_eq!(few.len(), NEAR_ROUTES);
        assert!(few.windows(2).all(|two| two[1].1 - two[0].1 == 5));
        assert_eq!(few_of(&routes[..3]), routes[..3]);
        assert!(few_of::<u32>(&[]).is_empty());
    }

    #[test]
    fn a_file_of_ones_own_has_its_own_name() {
        assert_eq!(names_of(Path::new(tables::DEFAULT_ROUTES)).0, "full table");
        let (whole, each) = names_of(Path::new("/tmp/my.txt"));
        assert_eq!((&*whole, &*each), ("table my.txt", "table my.txt, a next hop for each route"));
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
