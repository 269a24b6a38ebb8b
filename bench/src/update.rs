//! `bench update`: routes change while a worker forwards all it can over the full table.
//!
//! Each change goes through the routing information base as an operator's would: a route of the
//! control socket is put over what the table says for a prefix, is replaced, and is taken away. The
//! time is from the call until a reader that pins after it gets the new answer. A further stage of the
//! worker, the [`Witness`], looks up addresses that the change concerns with every chunk, in the
//! version that the chunk was routed by: all must give the old answer or all the new one, and once
//! the new one was seen the old one must not come back.

use std::fmt::Display;
use std::ops::BitXor;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use apps::router::FibImages;
use chunk::{Arena, Chunk, Depot};
use control::rib::{RibChange, RibManager, Source, Target};
use device::accelerator::{Accelerator, Options as DeviceOptions};
use device::{Backend, Device, DeviceError};
use engine::{Context, Stage};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use lookup::fib::{Family, Fib, FibBuilder, Options, Resolved, RouteTables};
use lookup::routes::RoutesFile;
use lookup::versions::{Pin, Reader, Writer, versions};
use lookup::{Address, Key6, NextHopId, Prefix};

use crate::forward::{self, PACKETS};
use crate::lookup_job::{self, Kind, LookupJob, LookupKernels};
use crate::tables::{self, PORTS, Random, Spread, keys4, keys6};
use crate::{Args, Report, Row};

/// Addresses that the witness looks up for each change.
const PROBES: usize = 8;

/// Answer of an address that no route covers; otherwise the interface.
const NO_ROUTE: u32 = u32::MAX;
/// Answer that is neither: never one that a change leads to.
const OTHER: u32 = u32::MAX - 1;

const SHARED_CORES: &str = "where threads share cores, the tail is the scheduler's";

pub(crate) fn run(
    args: &Args,
    routes: &Path,
    changes: usize,
    backend: Option<Backend>,
) -> Result<Report, String> {
    let routes = tables::routes(routes)?;
    measure(routes, changes, args.rounds, PACKETS, forward::depot()?, Some(0), backend)
}

/// Bound of an IPv4 route's way to the device, milliseconds.
const DEVICE_BOUND_MS: f64 = 10.0;

/// Rows of the load on the device.
const LOAD_ROWS: usize = 4096;

/// A device that follows the tables and is asked after each change, with a job of the version before
/// still in flight.
struct Follower {
    device: Accelerator<LookupJob>,
    arenas: Vec<Arena>,
    /// Times by family, milliseconds, by round.
    times: [Vec<Vec<f64>>; 2],
    random: Random,
    mixed: usize,
}

impl Follower {
    fn new(backend: Backend, writer: &Writer<Fib>) -> Result<Self, String> {
        let options = DeviceOptions { slots: 4, ..DeviceOptions::default() };
        let source = Box::new(FibImages::new(writer.changes(), 0));
        let driver = crate::on_device::open(backend)?;
        let (device, arenas) = lookup_job::accelerator::<Pin<Fib>>(
            driver,
            source,
            LookupKernels::default(),
            LOAD_ROWS,
            options,
        )
        .map_err(text)?;
        let times = [Vec::new(), Vec::new()];
        Ok(Self { device, arenas, times, random: Random(9), mixed: 0 })
    }

    /// Launches a job of random addresses by the version of `pin`.
    fn load(&mut self, pin: Pin<Fib>, arena: usize) -> Result<(), String> {
        let arena = &self.arenas[arena];
        arena.close();
        arena.reopen();
        let keys: Vec<u32> = (0..LOAD_ROWS).map(|_| self.random.next() as u32).collect();
        let job = lookup_job::job(arena, &Arc::new(pin), Kind::V4, &keys, &[])?;
        let refused = |(_, error): (_, Option<DeviceError>)| {
            error.map_or("no slot".into(), |error| error.to_string())
        };
        self.device.launch(job).map_err(refused)
    }

    /// Asks for the answers of `probes` by the version of `pin`; the time is from `begin` until they are
    /// here. Jobs that were in flight must give the answers of their own version.
    fn ask(&mut self, pin: Pin<Fib>, probes: &Probes, begin: Instant) -> Result<(), String> {
        let arena = &self.arenas[1];
        arena.close();
        arena.reopen();
        let pin = Arc::new(pin);
        let (kind, job) = match probes {
            Probes::V4(keys) => (Kind::V4, lookup_job::job(arena, &pin, Kind::V4, keys, &[])?),
            Probes::V6(keys) => (Kind::V6, lookup_job::job(arena, &pin, Kind::V6, &[], keys)?),
        };
        self.device
            .launch(job)
            .map_err(|(_, e)| e.map_or("no slot".into(), |error| error.to_string()))?;
        let mut time = None;
        while self.device.in_flight() > 0 {
            let (mut job, result) =
                self.device.retire(Duration::from_secs(20)).ok_or("the device hangs")?;
            if job.rows.len() == PROBES {
                time = Some(begin.elapsed());
            }
            result.map_err(text)?;
            if lookup_job::check(&mut job).is_err() {
                self.mixed += 1;
            }
        }
        let time = time.ok_or("the probes did not come back")?;
        if let Some(round) = self.times[kind as usize].last_mut() {
            round.push(time.as_secs_f64() * 1e3);
        }
        Ok(())
    }

    fn report(self, report: &mut Report) {
        let traffic = self.device.traffic();
        for (name, bound, mut rounds) in [
            ("IPv4", Some(DEVICE_BOUND_MS), self.times[0].clone()),
            ("IPv6", None, self.times[1].clone()),
        ] {
            rounds.iter_mut().for_each(|round| round.sort_by(f64::total_cmp));
            rounds.retain(|round| !round.is_empty());
            for (what, part) in [("median", 0.5), ("99 %", 0.99), ("most", 1.0)] {
                let at =
                    |round: &Vec<f64>| round[((round.len() - 1) as f64 * part).ceil() as usize];
                let values = rounds.iter().map(at).collect();
                let row =
                    Row::new(format!("{name}, until the device answers: {what}"), "ms", values);
                report.rows.push(match bound {
                    Some(bound) => row.at_most(bound).note(SHARED_CORES),
                    None => row,
                });
            }
        }
        let row = Row::new(
            "whole images sent to the device",
            "images",
            vec![traffic.table_images as f64],
        );
        report.rows.push(row.note(format!("{} jobs", traffic.jobs)));
        let mixed = self.mixed as f64;
        report.rows.push(
            Row::new("launches with answers of two versions", "jobs", vec![mixed]).at_most(0.0),
        );
        if self.mixed > 0 {
            report.wrong.push(format!("{} launches mixed two versions", self.mixed));
        }
    }
}

/// What is changed: prefixes of one kind.
struct Group {
    name: &'static str,
    bound_ms: f64,
    next: fn(&mut Random, &RoutesFile) -> IpNet,
    /// Whether the next change waits until the worker has seen this one; else it comes at once, and
    /// both copies of the tables are in use.
    waits: bool,
    /// By round: times until readers and until the worker saw the change, in milliseconds.
    rounds: Vec<[Vec<f64>; 2]>,
}

fn groups() -> [Group; 7] {
    let group =
        |name, bound_ms, waits, next| Group { name, bound_ms, next, waits, rounds: Vec::new() };
    [
        group("IPv4, /8", 1.0, true, |random, _| net4((1 + random.below(223) as u32) << 24, 8)),
        group("IPv4, /8 to /32", 1.0, true, any4),
        group("IPv4, prefixes of the table", 1.0, true, |random, routes| {
            let (prefix, _) = routes.v4[random.below(routes.v4.len())];
            net4(prefix.addr(), prefix.len().max(8))
        }),
        group("IPv4, /8 to /32, one right after another", 1.0, false, any4),
        group("IPv6, /1 to /128", 50.0, true, any6),
        group("IPv6, prefixes of the table", 50.0, true, |random, routes| {
            let (prefix, _) = routes.v6[random.below(routes.v6.len())];
            net6(prefix.addr(), prefix.len())
        }),
        group("IPv6, /1 to /128, one right after another", 50.0, false, any6),
    ]
}

/// A prefix of any length from /8, somewhere in the table.
fn any4(random: &mut Random, routes: &RoutesFile) -> IpNet {
    let (prefix, _) = routes.v4[random.below(routes.v4.len())];
    net4(prefix.addr() | random.next() as u32 & 0xff, 8 + random.below(25) as u8)
}

/// A prefix of any length, somewhere in the table.
fn any6(random: &mut Random, routes: &RoutesFile) -> IpNet {
    let (prefix, _) = routes.v6[random.below(routes.v6.len())];
    net6(prefix.addr() | u128::from(random.next()), 1 + random.below(128) as u8)
}

fn measure(
    routes: RoutesFile,
    changes: usize,
    rounds: usize,
    packets: usize,
    depot: Arc<Depot>,
    cpu: Option<usize>,
    backend: Option<Backend>,
) -> Result<Report, String> {
    if routes.v4.is_empty() || routes.v6.is_empty() || changes == 0 {
        return Err("changes and a table with prefixes of both families are needed".into());
    }
    let data = format!(
        "{} IPv4 and {} IPv6 routes, {changes} changes of each kind a round, while one worker \
         forwards {packets} distinct packets of both families from memory to memory",
        routes.v4.len(),
        routes.v6.len()
    );
    let mut report = Report::new("update", data);
    // A device is asked by kernels for tables of one kind.
    let kind = if backend.is_some() { tables::of_kernels() } else { RouteTables::default() };
    let (mut rib, mut writer, reader) = start_rib(&routes, kind)?;
    let witness = Arc::new(Witness::default());
    let mut stages = forward::router()?;
    stages.push(Box::new(WitnessStage(witness.clone())));
    let engine = forward::start(&frames(&routes, packets), stages, &reader, depot, cpu)?;
    let view = engine.view().clone();

    let mut follower = backend.map(|backend| Follower::new(backend, &writer)).transpose()?;
    let mut groups = groups();
    let mut random = Random(5);
    let mut rates = Vec::new();
    for _ in 0..rounds.max(1) {
        if let Some(follower) = &mut follower {
            follower.times.iter_mut().for_each(|times| times.push(Vec::new()));
        }
        let (begin, before) = (Instant::now(), forward::received(&view));
        for group in &mut groups {
            let mut times = [Vec::new(), Vec::new()];
            let mut in_vain = 0;
            while times[0].len() < changes {
                let prefix = (group.next)(&mut random, &routes);
                let Some(probes) = Probes::inside(prefix, rib.fib(), &mut random) else {
                    in_vain += 1;
                    if in_vain > 1000 * changes {
                        return Err(format!("{}: other routes cover all of them", group.name));
                    }
                    continue;
                };
                let worker = group.waits.then_some(&*witness);
                let follower = follower.as_mut();
                change(
                    (&mut rib, &mut writer),
                    &reader,
                    worker,
                    follower,
                    prefix,
                    probes,
                    &mut times,
                )?;
            }
            group.rounds.push(times);
        }
        let forwarded = forward::received(&view) - before;
        rates.push(forwarded as f64 / begin.elapsed().as_secs_f64() / 1e6);
    }
    engine.stop(Duration::from_secs(5))?;

    for group in groups {
        report_group(group, &mut report);
    }
    if let Some(follower) = follower {
        follower.report(&mut report);
    }
    let thirds = witness.wrong.load(Ordering::Relaxed);
    let looks = witness.looks.load(Ordering::Relaxed);
    let row = Row::new("lookups that gave a third answer", "lookups", vec![thirds as f64]);
    report.rows.push(row.at_most(0.0).note(format!("of {}", looks * PROBES as u64)));
    if thirds > 0 {
        report.wrong.push(format!("{thirds} lookups gave neither the old nor the new answer"));
    }
    let sent: u64 = view.workers.iter().map(|w| w.tx_packets.get()).sum();
    let all = forward::received(&view);
    let row = Row::new("packets lost", "packets", vec![all as f64 - sent as f64]);
    report.rows.push(row.at_most(0.0).note(format!("of {all}")));
    if sent != all || sent == 0 {
        report.wrong.push(format!("{all} packets came in, {sent} went out"));
    }
    report.rows.push(Row::new("forwarded meanwhile", "Mpps", rates));
    Ok(report)
}

fn report_group(mut group: Group, report: &mut Report) {
    for round in group.rounds.iter_mut().flatten() {
        round.sort_by(f64::total_cmp);
    }
    let at = |i: usize, part: f64| -> Vec<f64> {
        let of = |times: &Vec<f64>| times[((times.len() - 1) as f64 * part).ceil() as usize];
        group.rounds.iter().map(|times| of(&times[i])).collect()
    };
    for (i, who) in [(0, "to readers"), (1, "to the worker")] {
        if group.rounds.iter().any(|times| times[i].is_empty()) {
            continue;
        }
        for (what, part, note) in
            [("median", 0.5, ""), ("99 %", 0.99, SHARED_CORES), ("most", 1.0, SHARED_CORES)]
        {
            let row = Row::new(format!("{}, {who}: {what}", group.name), "ms", at(i, part));
            report.rows.push(row.at_most(group.bound_ms).note(note));
        }
    }
    let all = || group.rounds.iter().flat_map(|times| &times[0]);
    let over = all().filter(|time| **time > group.bound_ms).count();
    let name = format!("{}, to readers: over {} ms", group.name, group.bound_ms);
    let note = format!("of {}; {SHARED_CORES}", all().count());
    report.rows.push(Row::new(name, "changes", vec![over as f64]).at_most(0.0).note(note));
}

/// Adds a route, replaces it and takes it away, and times each: until readers see it, and until
/// `worker` does.
fn change(
    (rib, writer): (&mut RibManager, &mut Writer<Fib>),
    reader: &Reader<Fib>,
    worker: Option<&Witness>,
    mut follower: Option<&mut Follower>,
    prefix: IpNet,
    probes: Probes,
    times: &mut [Vec<f64>; 2],
) -> Result<(), String> {
    let v4 = prefix.addr().is_ipv4();
    let before = probes.answers(&reader.pin())[0];
    let ports = u32::from(PORTS);
    let first = if before < ports { (before + 1) % ports } else { 0 };
    let second = (first + 1) % ports;
    let via = |port: u32| RibChange::Route {
        prefix,
        source: Source::Api,
        metric: 0,
        target: Target::via(tables::gateway(port as u16, v4)),
    };
    let take = RibChange::RemoveRoute { prefix, source: Source::Api, metric: None };
    let steps = [(before, via(first), first), (first, via(second), second), (second, take, before)];
    for (old, step, new) in steps {
        if let Some(worker) = worker {
            worker.watch(Watch { probes: probes.clone(), old, new, seen: None })?;
        }
        if let Some(follower) = &mut follower {
            follower.load(reader.pin(), 0)?;
        }
        let begin = Instant::now();
        rib.apply(step).map_err(text)?;
        rib.commit(writer);
        let answers = probes.answers(&reader.pin());
        let visible = begin.elapsed();
        if let Some(follower) = &mut follower {
            follower.ask(reader.pin(), &probes, begin)?;
        }
        if answers != [new; PROBES] {
            return Err(format!("{prefix}: answers {answers:?} after the change to {new}"));
        }
        times[0].push(visible.as_secs_f64() * 1e3);
        if let Some(worker) = worker {
            let seen = worker.wait()?;
            times[1].push(seen.saturating_duration_since(begin).as_secs_f64() * 1e3);
            writer.try_settle(); // as the program does when it has nothing else to do
        }
    }
    if let Some(worker) = worker {
        worker.rest();
    }
    Ok(())
}

/// Addresses whose answer a change of one prefix decides.
#[derive(Debug, Clone)]
enum Probes {
    V4([u32; PROBES]),
    V6([Key6; PROBES]),
}

impl Probes {
    /// Random addresses inside `prefix` and inside no longer one; `None` where there are hardly any,
    /// and for addresses that are the router's own.
    fn inside(prefix: IpNet, fib: &FibBuilder, random: &mut Random) -> Option<Self> {
        match prefix {
            IpNet::V4(net) => {
                if net.addr().is_loopback() || net.addr().octets()[0] == 10 {
                    return None;
                }
                let prefix = Prefix::masked(net.addr().to_bits(), net.prefix_len());
                find(prefix, |random| random.next() as u32, fib, random).map(Self::V4)
            }
            IpNet::V6(net) => {
                let prefix = Prefix::masked(net.addr().to_bits(), net.prefix_len());
                let any = |random: &mut Random| {
                    u128::from(random.next()) << 64 | u128::from(random.next())
                };
                find(prefix, any, fib, random).map(|found| Self::V6(found.map(Address::to_key)))
            }
        }
    }

    fn answers(&self, tables: &Fib) -> [u32; PROBES] {
        let mut ids = [0; PROBES];
        match self {
            Self::V4(keys) => tables.lookup4(keys, &mut ids),
            Self::V6(keys) => tables.lookup6(keys, &mut ids),
        }
        ids.map(|id| answer(tables, id))
    }
}

fn find<A>(
    prefix: Prefix<A>,
    any: impl Fn(&mut Random) -> A,
    fib: &FibBuilder,
    random: &mut Random,
) -> Option<[A; PROBES]>
where
    A: Family + BitXor<Output = A>,
{
    let mut found = Vec::new();
    for _ in 0..16 * PROBES {
        let bits = any(random);
        let address = prefix.addr() ^ bits ^ bits.truncate(prefix.len());
        let matched = fib.longest_match(address).map_or(0, |(matched, _)| matched.len());
        if matched <= prefix.len() {
            found.push(address);
            if found.len() == PROBES {
                return found.try_into().ok();
            }
        }
    }
    None
}

/// The interface that next hop `id` leads to.
fn answer(tables: &Fib, id: NextHopId) -> u32 {
    match tables.resolve(id, 0) {
        Resolved::Adjacency(adjacency, _) => u32::from(adjacency.interface),
        Resolved::NoRoute => NO_ROUTE,
        _ => OTHER,
    }
}

/// What is being watched: the addresses and their two right answers.
struct Watch {
    probes: Probes,
    old: u32,
    new: u32,
    /// When the new answers were first seen.
    seen: Option<Instant>,
}

impl Watch {
    /// Judges the answers of one version; how many were wrong.
    fn judge(&mut self, answers: &[u32; PROBES]) -> usize {
        let count = |right: u32| answers.iter().filter(|answer| **answer == right).count();
        let (old, new) = (count(self.old), count(self.new));
        if new == PROBES {
            self.seen.get_or_insert_with(Instant::now);
            0
        } else if self.seen.is_none() {
            PROBES - old // some old and some new would be half a change
        } else {
            PROBES - new
        }
    }
}

/// Sees each change as the worker sees it.
#[derive(Default)]
struct Witness {
    watch: Mutex<Option<Watch>>,
    seen: AtomicBool,
    looks: AtomicU64,
    wrong: AtomicU64,
}

impl Witness {
    /// Watches a change that is about to come; returns when the worker has looked.
    fn watch(&self, watch: Watch) -> Result<(), String> {
        {
            let mut place = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
            *place = Some(watch);
            self.seen.store(false, Ordering::Relaxed);
        }
        let looks = self.looks.load(Ordering::Acquire);
        self.until(|| self.looks.load(Ordering::Acquire) > looks)
    }

    /// Waits until the worker has seen the change; when it did.
    fn wait(&self) -> Result<Instant, String> {
        // The flag is asked first: a lock held here would make the worker leave a look out.
        self.until(|| self.seen.load(Ordering::Acquire))?;
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = watch.as_ref().and_then(|watch| watch.seen);
        seen.ok_or_else(|| "the change was not seen".into())
    }

    /// Looks at nothing until the next watch.
    fn rest(&self) {
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn until(&self, mut done: impl FnMut() -> bool) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !done() {
            if Instant::now() > deadline {
                return Err("the worker does not see the change, or does not run".into());
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// The worker's look, once a chunk. Never waits for the control thread.
    fn look(&self, tables: &Fib) {
        let Ok(mut watch) = self.watch.try_lock() else { return };
        let Some(watch) = &mut *watch else { return };
        let wrong = watch.judge(&watch.probes.answers(tables));
        if wrong > 0 {
            self.wrong.fetch_add(wrong as u64, Ordering::Relaxed);
        }
        if watch.seen.is_some() {
            self.seen.store(true, Ordering::Release);
        }
        self.looks.fetch_add(1, Ordering::Release);
    }
}

struct WitnessStage(Arc<Witness>);

impl Stage<Fib> for WitnessStage {
    fn name(&self) -> &'static str {
        "witness"
    }

    fn post_shade(&mut self, _: &mut Chunk, cx: &mut Context<'_, Fib>) {
        self.0.look(cx.tables);
    }
}

/// A router with four ports whose neighbours are known, and the table spread over them.
fn start_rib(
    routes: &RoutesFile,
    kind: RouteTables,
) -> Result<(RibManager, Writer<Fib>, Reader<Fib>), String> {
    let mut rib = RibManager::new(Options::default(), kind);
    for port in 0..PORTS {
        let interface = Some(tables::interface(port));
        rib.apply(RibChange::Interface { index: port, interface }).map_err(text)?;
        for v4 in [true, false] {
            let (address, mac) = (tables::gateway(port, v4), Some(tables::gateway_mac(port)));
            rib.apply(RibChange::Neighbour { interface: port, address, mac }).map_err(text)?;
        }
    }
    let mut random = Random(1);
    let mut port = || random.below(usize::from(PORTS)) as u32;
    let v4 = routes.v4.iter().map(|(prefix, _)| (*prefix, port())).collect();
    let v6 = routes.v6.iter().map(|(prefix, _)| (*prefix, port())).collect();
    let gateway = |v4, port| Some(Target::via(tables::gateway(port as u16, v4)));
    rib.sync_file(0, 0, v4, v6, gateway).map_err(text)?;
    let (writer, reader) = versions(rib.freeze().map_err(text)?);
    Ok((rib, writer, reader))
}

/// Packets of both families to addresses of the table, in turn.
fn frames(routes: &RoutesFile, packets: usize) -> Vec<Vec<u8>> {
    let prefixes4: Vec<_> = routes.v4.iter().map(|(prefix, _)| *prefix).collect();
    let prefixes6: Vec<_> = routes.v6.iter().map(|(prefix, _)| *prefix).collect();
    let v4 = forward::udp4(&keys4(&prefixes4, packets / 2, Spread::Prefixes, 7));
    let v6 = forward::udp6(&keys6(&prefixes6, packets / 2, Spread::Prefixes, 8));
    v4.into_iter().zip(v6).flat_map(|(four, six)| [four, six]).collect()
}

fn net4(bits: u32, len: u8) -> IpNet {
    Ipv4Net::new_assert(Prefix::masked(bits, len).addr().to_ip(), len).into()
}

fn net6(bits: u128, len: u8) -> IpNet {
    Ipv6Net::new_assert(Prefix::masked(bits, len).addr().to_ip(), len).into()
}

fn text(error: impl Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunk::{HugePages, Region};

    fn watch(old: u32, new: u32) -> Watch {
        Watch { probes: Probes::V4([0; PROBES]), old, new, seen: None }
    }

    #[test]
    fn a_third_answer_half_a_change_and_a_step_back_are_wrong() {
        let mut half = [1; PROBES];
        half[2] = 2;
        for (answers, wrong) in [
            (vec![[1; PROBES], [1; PROBES], [2; PROBES], [2; PROBES]], 0),
            (vec![[1; PROBES], [3; PROBES], [2; PROBES]], PROBES),
            (vec![[1; PROBES], half, [2; PROBES]], 1),
            (vec![[2; PROBES], [1; PROBES]], PROBES),
            (vec![[2; PROBES], half], PROBES - 1),
            (vec![[NO_ROUTE; PROBES]], PROBES),
        ] {
            let mut watch = watch(1, 2);
            let found: usize = answers.iter().map(|answers| watch.judge(answers)).sum();
            assert_eq!(found, wrong, "{answers:?}");
        }
    }

    #[test]
    fn routes_change_under_load() {
        let lines = (12..60u32).flat_map(|n| {
            [
                format!("{n}.0.0.0/7 a"),
                format!("{n}.{n}.0.0/16 a"),
                format!("{n}.{n}.7.0/25 a"),
                format!("2001:{n}::/32 a"),
                format!("2001:{n}:5::/48 a"),
            ]
        });
        let text = lines.collect::<Vec<_>>().join("\n");
        let routes = lookup::routes::read(text.as_bytes()).unwrap();
        let (_, depot) = Region::new(16_384 + 1024, HugePages::Off).unwrap();
        let report = measure(routes, 9, 1, 1024, depot, None, None).unwrap();
        assert!(report.wrong.is_empty(), "{:?}", report.wrong);
        let row = |name: &str| report.rows.iter().find(|row| row.name == name).unwrap();
        assert_eq!(row("packets lost").median, 0.0);
        assert!(row("forwarded meanwhile").median > 0.0);
        assert!(row("IPv4, /8, to readers: median").median > 0.0);
    }
}
