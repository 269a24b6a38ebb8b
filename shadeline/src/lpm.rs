//! `shadeline lpm`: longest-prefix match from files, with the tables of the data path.

mod device;

use std::io::BufRead;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::device::Backend;
use control::api::table::thousands;
use control::config::{LogFormat, LogLevel};
use files::input;
use lookup::auto4::Auto4Builder;
use lookup::bspl::{Bspl, BsplBuilder};
use lookup::dir24_8::{Dir24_8, Dir24_8Builder};
use lookup::mtrie6::{Mtrie6, Mtrie6Builder};
use lookup::poptrie::{Poptrie, PoptrieBuilder};
use lookup::rib::Rib;
use lookup::routes::{RoutesFile, parse_address, read_file};
use lookup::trie::Trie;
use lookup::{Address, Blob, Key6, Lpm, NextHopId, Prefix, TableError};
use serde::Serialize;

use crate::cli::{Algorithm, LpmArgs};
use crate::failure::Failure;
use crate::output::{self, line, note};
use apps::router::capacity;

/// Addresses looked up in one call: a burst.
const BATCH: usize = 256;

/// Bad addresses that are shown.
const SHOWN: usize = 10;

/// Looks keys up, a batch at a time.
type Lookup<K> = Box<dyn Fn(&[K], &mut [NextHopId])>;

/// A table of one family, whichever algorithm made it.
struct Table<K> {
    algorithm: &'static str,
    bytes: usize,
    routes: usize,
    build: Duration,
    lookup: Lookup<K>,
    /// The table itself, where kernels can read it.
    image: Option<Arc<Blob>>,
}

#[derive(Serialize)]
struct FamilyFigures {
    algorithm: &'static str,
    routes: usize,
    build_s: f64,
    table_bytes: usize,
    lookups: usize,
    lookup_rate_mps: f64,
}

#[derive(Serialize)]
struct Figures {
    read_s: f64,
    problems: u64,
    ipv4: FamilyFigures,
    ipv6: FamilyFigures,
    /// The device that looked up; none where it was the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    peak_memory_bytes: u64,
}

pub(crate) fn run(args: &LpmArgs) -> Result<(), Failure> {
    let begin = Instant::now();
    let routes = read_file(&args.routes).map_err(Failure::other)?;
    let read = begin.elapsed();
    tell_problems(args, &routes);
    let (keys4, keys6, families) = read_addresses(args)?;
    let for_device = args.backend != Backend::Cpu;
    let table4 = match args.algorithm {
        Algorithm::Trie => Ok(trie(rib(&routes.v4))),
        Algorithm::Dir24_8 => dir24_8(rib(&routes.v4)),
        // What kernels of lookups read.
        Algorithm::Auto | Algorithm::Bspl | Algorithm::Mtrie6 if for_device => {
            dir24_8(rib(&routes.v4))
        }
        Algorithm::Poptrie => poptrie(rib(&routes.v4)),
        _ => auto4(rib(&routes.v4)),
    };
    let table4 = table4.map_err(|error| no_room(args, error))?;
    let table6 = match args.algorithm {
        Algorithm::Trie => Ok(trie(rib(&routes.v6))),
        Algorithm::Bspl => bspl(rib(&routes.v6)),
        Algorithm::Auto | Algorithm::Dir24_8 | Algorithm::Poptrie if for_device => {
            bspl(rib(&routes.v6))
        }
        _ => mtrie6(rib(&routes.v6)),
    };
    let table6 = table6.map_err(|error| no_room(args, error))?;
    let looked = on_device(args, (&table4, &keys4[..]), (&table6, &keys6[..]))?;
    let (device, (out4, time4), (out6, time6)) = match looked {
        Some(looked) => (Some(looked.device), looked.v4, looked.v6),
        None => (None, lookup_all(&table4, &keys4), lookup_all(&table6, &keys6)),
    };
    write_results(args, &families, &out4, &out6, &routes)?;
    let figures = Figures {
        read_s: read.as_secs_f64(),
        problems: routes.problems.count,
        ipv4: figures(&table4, keys4.len(), time4),
        ipv6: figures(&table6, keys6.len(), time6),
        device,
        peak_memory_bytes: peak_memory_bytes(),
    };
    output::figures(Some(&args.results), args.json, &figures, || text(&figures))
}

/// Looks up on the device that was asked for; `None` where the CPU does.
fn on_device(
    args: &LpmArgs,
    (table4, keys4): (&Table<u32>, &[u32]),
    (table6, keys6): (&Table<Key6>, &[Key6]),
) -> Result<Option<device::Looked>, Failure> {
    match args.backend {
        Backend::Cpu => return Ok(None),
        Backend::Sim => {
            let expected = "expected auto, cpu, opencl, opencl:N, cuda or cuda:N";
            return Err(Failure::usage(format!("lpm has no --backend sim: {expected}")));
        }
        Backend::Auto | Backend::OpenCl(_) | Backend::Cuda(_) => {}
    }
    let (Some(v4), Some(v6)) = (table4.image.clone(), table6.image.clone()) else {
        if args.backend == Backend::Auto {
            return Ok(None);
        }
        let algorithm = if table4.image.is_none() { table4.algorithm } else { table6.algorithm };
        let problem = format!("--backend {}: --algorithm {algorithm}", args.backend);
        return Err(Failure::usage(format!("{problem} {}", device::NO_FORM)));
    };
    crate::log::start_command(LogLevel::Warn, LogFormat::Text);
    device::lookup_all(args.backend, device::Tables { v4, v6 }, keys4, keys6)
}

fn tell_problems(args: &LpmArgs, routes: &RoutesFile) {
    for problem in &routes.problems.first {
        note!("warning: {}: {problem}", input::name(&args.routes));
    }
    let more = routes.problems.count.saturating_sub(routes.problems.first.len() as u64);
    if more > 0 {
        note!("warning: {}: and {more} more", input::name(&args.routes));
    }
    if let Some(text) = apps::router::routes::repeated(routes.problems.repeated) {
        note!("warning: {}: {text}", input::name(&args.routes));
    }
}

/// The addresses of both families, and whether each line is IPv4.
type Addresses = (Vec<u32>, Vec<Key6>, Vec<bool>);

fn read_addresses(args: &LpmArgs) -> Result<Addresses, Failure> {
    let failed = |error| Failure::file(&args.addresses, error);
    let mut input = input::open(&args.addresses).map_err(failed)?;
    let (mut keys4, mut keys6, mut is_v4) = (Vec::new(), Vec::new(), Vec::new());
    let (mut line, mut number, mut bad) = (Vec::new(), 0u64, Vec::new());
    let mut bad_count = 0usize;
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line).map_err(failed)? == 0 {
            break;
        }
        number += 1;
        let text = line.split(|byte| matches!(byte, b'#' | b';')).next().unwrap_or_default();
        let text = text.trim_ascii();
        if text.is_empty() {
            continue;
        }
        match parse_address(text) {
            Some(IpAddr::V4(address)) => {
                keys4.push(address.to_bits());
                is_v4.push(true);
            }
            Some(IpAddr::V6(address)) => {
                keys6.push(address.to_bits().to_key());
                is_v4.push(false);
            }
            None => {
                bad_count += 1;
                if bad.len() < SHOWN {
                    let text: String = String::from_utf8_lossy(text).chars().take(48).collect();
                    let file = input::name(&args.addresses);
                    bad.push(format!("{file}, line {number}: expected an address, found `{text}`"));
                }
            }
        }
    }
    if bad_count > 0 {
        let more = bad_count - bad.len();
        let more = if more > 0 { format!("\n(and {more} more)") } else { String::new() };
        return Err(Failure::other(bad.join("\nerror: ") + &more));
    }
    Ok((keys4, keys6, is_v4))
}

fn rib<A: Address>(routes: &[(Prefix<A>, NextHopId)]) -> Rib<A> {
    let mut rib = Rib::new();
    for &(prefix, next_hop) in routes {
        rib.insert(prefix, next_hop);
    }
    rib
}

/// What went wrong with the tables, of the routes of a file.
fn no_room(args: &LpmArgs, error: TableError) -> Failure {
    Failure::file(&args.routes, capacity::text(&error))
}

/// Names the table in its error.
fn of(table: &'static str) -> impl Fn(TableError) -> TableError {
    move |error| TableError::Of { table, error: Box::new(error) }
}

fn auto4(routes: Rib<u32>) -> Result<Table<u32>, TableError> {
    let (n, begin) = (routes.len(), Instant::now());
    let limits = lookup::auto4::Limits::default();
    let (builder, blob) = Auto4Builder::build(routes, limits).map_err(of("IPv4, table auto"))?;
    let lookup = if builder.table_name() == "poptrie" { lookup_poptrie } else { lookup_dir24_8 };
    Ok(table(builder.table_name(), n, blob, begin, lookup))
}

fn lookup_poptrie(blob: &Blob, keys: &[u32], out: &mut [NextHopId]) {
    match Poptrie::new(blob) {
        Some(table) => table.lookup(keys, out),
        None => out.fill(lookup::NO_ROUTE),
    }
}

fn lookup_dir24_8(blob: &Blob, keys: &[u32], out: &mut [NextHopId]) {
    match Dir24_8::new(blob) {
        Some(table) => table.lookup(keys, out),
        None => out.fill(lookup::NO_ROUTE),
    }
}

fn dir24_8(routes: Rib<u32>) -> Result<Table<u32>, TableError> {
    let (n, begin) = (routes.len(), Instant::now());
    let limits = lookup::dir24_8::Limits::default();
    let (_, blob) = Dir24_8Builder::build(routes, limits).map_err(of("IPv4, table dir24-8"))?;
    Ok(table("dir24-8", n, blob, begin, lookup_dir24_8))
}

fn poptrie(routes: Rib<u32>) -> Result<Table<u32>, TableError> {
    let (n, begin) = (routes.len(), Instant::now());
    let limits = lookup::poptrie::Limits::default();
    let (_, blob) = PoptrieBuilder::build(routes, limits).map_err(of("IPv4, table poptrie"))?;
    Ok(table("poptrie", n, blob, begin, lookup_poptrie))
}

fn mtrie6(routes: Rib<u128>) -> Result<Table<Key6>, TableError> {
    let (n, begin) = (routes.len(), Instant::now());
    let limits = lookup::mtrie6::Limits::default();
    let (_, blob) = Mtrie6Builder::build(routes, limits).map_err(of("IPv6, table mtrie6"))?;
    Ok(table("mtrie6", n, blob, begin, |blob, keys, out| match Mtrie6::new(blob) {
        Some(table) => table.lookup(keys, out),
        None => out.fill(lookup::NO_ROUTE),
    }))
}

fn bspl(routes: Rib<u128>) -> Result<Table<Key6>, TableError> {
    let (n, begin) = (routes.len(), Instant::now());
    let (_, blob) = BsplBuilder::build(routes).map_err(of("IPv6, table bspl"))?;
    Ok(table("bspl", n, blob, begin, |blob, keys, out| match Bspl::new(blob) {
        Some(table) => table.lookup(keys, out),
        None => out.fill(lookup::NO_ROUTE),
    }))
}

fn table<K: 'static>(
    algorithm: &'static str,
    routes: usize,
    blob: Blob,
    begin: Instant,
    lookup: fn(&Blob, &[K], &mut [NextHopId]),
) -> Table<K> {
    let blob = Arc::new(blob);
    Table {
        image: Some(blob.clone()),
        algorithm,
        bytes: blob.len_bytes(),
        routes,
        build: begin.elapsed(),
        lookup: Box::new(move |keys, out| lookup(&blob, keys, out)),
    }
}

fn trie<A: Address>(routes: Rib<A>) -> Table<A::Key>
where
    Trie<A>: Lpm<A::Key>,
{
    let begin = Instant::now();
    let trie = Trie::build(&routes);
    Table {
        image: None,
        algorithm: "trie",
        bytes: trie.len_bytes(),
        routes: routes.len(),
        build: begin.elapsed(),
        lookup: Box::new(move |keys, out| trie.lookup(keys, out)),
    }
}

fn lookup_all<K>(table: &Table<K>, keys: &[K]) -> (Vec<NextHopId>, Duration) {
    let mut out = vec![0; keys.len()];
    let begin = Instant::now();
    for (keys, out) in keys.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
        (table.lookup)(keys, out);
    }
    (out, begin.elapsed())
}

fn write_results(
    args: &LpmArgs,
    is_v4: &[bool],
    out4: &[NextHopId],
    out6: &[NextHopId],
    routes: &RoutesFile,
) -> Result<(), Failure> {
    let (mut out4, mut out6) = (out4.iter(), out6.iter());
    output::write(&args.results, |file| {
        for &v4 in is_v4 {
            let next_hop = if v4 { out4.next() } else { out6.next() };
            match next_hop.copied().unwrap_or(lookup::NO_ROUTE) {
                lookup::NO_ROUTE => writeln!(file, "-")?,
                next_hop => writeln!(file, "{}", routes.token(next_hop))?,
            }
        }
        Ok(())
    })
}

fn figures<K>(table: &Table<K>, lookups: usize, time: Duration) -> FamilyFigures {
    let seconds = time.as_secs_f64();
    FamilyFigures {
        algorithm: table.algorithm,
        routes: table.routes,
        build_s: table.build.as_secs_f64(),
        table_bytes: table.bytes,
        lookups,
        lookup_rate_mps: if lookups == 0 { 0.0 } else { lookups as f64 / seconds / 1e6 },
    }
}

fn text(figures: &Figures) -> String {
    let mut out = String::new();
    line!(&mut out, "routes read in    {:.3} s", figures.read_s);
    for (family, f) in [("IPv4", &figures.ipv4), ("IPv6", &figures.ipv6)] {
        line!(
            &mut out,
            "{family} {:<8} {:>10} routes, built in {:.3} s, {} bytes; {} lookups, {:.1} Mlookups/s",
            f.algorithm,
            thousands(f.routes as u64),
            f.build_s,
            thousands(f.table_bytes as u64),
            thousands(f.lookups as u64),
            f.lookup_rate_mps,
        );
    }
    if let Some(device) = &figures.device {
        line!(&mut out, "looked up on      {device}");
    }
    line!(&mut out, "peak memory       {} bytes", thousands(figures.peak_memory_bytes));
    out
}

/// The most memory this process has used, from the system's count; 0 where it has none.
pub(crate) fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
