//! `bench l2`: the layer-2 switch's whole loop, one core: decode, two lookups, out by a port.
//!
//! ```text
//!  addresses written into frames ─▶ bridge_in ─▶ bridge ─▶ bridge_out ─▶ verdicts
//! ```
//!
//! Sources and destinations are random among all stations, all of which are known. The writing of the two
//! addresses stands for what a network card would do; it is part of the loop in each form alike. The forms
//! differ in how stage `bridge` looks up and in nothing else, and must give the same verdicts. Beside each rate
//! is the share of the memory's limit that the lookups of the frames come to.

use std::sync::{Arc, Mutex};

use apps::switch::{SwitchColumns, SwitchPipeline, egress, forward, ingress};
use chunk::{
    Arena, CHUNK_PACKETS_MAX, Chunk, Columns, Depot, HugePages, Layout, Packet, Pool, Region,
    Verdict, VerdictKind,
};
use engine::{Context, Stage};
use lookup::blob::Pages;
use lookup::bridge::{BridgePort, Learned, MacLimits, MacTable, SwitchTables, station_key};
use lookup::versions::Patchable;

use crate::forms::{Form, lines_per_key, rates, ratio, share};
use crate::limit::lines_per_second;
use crate::limits::has_room;
use crate::report::median;
use crate::tables::Random;
use crate::{Args, Report, Row};

const PORTS: u16 = 4;

/// Chunks that take turns, so that the frames are not always in the nearest cache.
const CHUNKS: usize = 16;

/// Stations of the table that fits in a large machine's last cache.
pub(crate) const FEW: usize = 1 << 20;

/// Stations of the table that fits in a core's own cache.
const NEAR: usize = 1 << 13;

/// Threads that forward at once, where several do.
const THREADS: usize = 2;

/// Stations learned between two lists of patches.
const LEARNED_AT_ONCE: usize = 1 << 16;

const NOW_NS: u64 = 1_700_000_000_000_000_000;

/// Source and destination of a frame.
type Pair = [[u8; 6]; 2];

/// A load: tables, and how they are used.
struct Case<'a> {
    prefix: String,
    tables: &'a SwitchTables,
    pairs: &'a [Pair],
    /// Frames that are forwarded together.
    burst: usize,
    threads: usize,
    /// Million random lines a second from a table of this size on its pages.
    limit: f64,
    /// What switched over plain should come to.
    aim: Option<f64>,
}

/// The ways to look stations up, the plain one first.
const LOOKS: [(&str, forward::Form); 4] = [
    ("plain", |t, keys, out| with(t, out, |s, out| s.lookup_direct(keys, out))),
    ("group, 32", |t, keys, out| with(t, out, |s, out| s.lookup_grouped::<32>(keys, out))),
    ("switched, 32", |t, keys, out| with(t, out, |s, out| s.lookup_switched::<32>(keys, out))),
    ("machine, 32", |t, keys, out| with(t, out, |s, out| s.lookup_machine::<32>(keys, out))),
];

pub(crate) fn run(args: &Args, packets: usize, stations: usize) -> Result<Report, String> {
    if packets == 0 || stations < 4 {
        return Err("nothing to forward: packets and four stations are needed".into());
    }
    // Three copies of the table, what learns it, and pairs, answers and frames.
    has_room(&format!("{stations} stations"), stations.saturating_mul(160))?;
    has_room(&format!("{packets} packets"), packets.saturating_mul(24))?;
    let data = format!(
        "{packets} frames of 60 bytes between random stations, {PORTS} ports, {CHUNK_PACKETS_MAX} frames at a \
         time unless said otherwise"
    );
    let mut report = Report::new("l2", data);
    // A region stays mapped, so all cases share one.
    let frames = (THREADS * CHUNKS * CHUNK_PACKETS_MAX) as u32;
    let (_, depot) = Region::new(frames + 256, HugePages::Advise).map_err(|e| e.to_string())?;
    for (name, stations, aim) in groups(stations) {
        let tables = learn(stations)?;
        let pairs = pairs(packets, stations);
        let prefix = format!("{name}{stations} stations, ");
        let small_pages = on_pages(&tables, Pages::Small)?;
        let bytes = tables.blob().len_bytes();
        let limit = |pages| lines_per_second(bytes, pages, args.rounds);
        let (huge, small) = (limit(Pages::Huge)?, limit(Pages::Small)?);
        let case = |more: &str, burst, threads| Case {
            prefix: format!("{prefix}{more}"),
            tables: &tables,
            pairs: &pairs,
            burst,
            threads,
            limit: huge,
            aim: None,
        };
        let mut cases = vec![Case { aim, ..case("", CHUNK_PACKETS_MAX, 1) }];
        if name.is_empty() {
            cases.extend([
                case("two threads, ", CHUNK_PACKETS_MAX, THREADS),
                case("bursts of 64, ", 64, 1),
                case("bursts of 32, ", 32, 1),
                Case {
                    tables: &small_pages,
                    limit: small,
                    ..case("4 KB pages, ", CHUNK_PACKETS_MAX, 1)
                },
            ]);
        }
        for case in &cases {
            measure(case, &depot, args.rounds, &mut report)?;
        }
    }
    Ok(report)
}

/// The tables, smallest first: what their rows begin with, stations, and what switched over plain should come to. One
/// that is not larger than the one before is not measured again.
fn groups(stations: usize) -> Vec<(&'static str, usize, Option<f64>)> {
    let mut groups = vec![("in cache, ", NEAR.min(stations), None)];
    if stations > NEAR {
        groups.push(("", FEW.min(stations), None));
    }
    if stations > FEW {
        groups.push(("", stations, Some(1.5)));
    }
    groups
}

/// Runs all forms in turn, checks their verdicts, and reports their rates.
fn measure(
    case: &Case<'_>,
    depot: &Arc<Depot>,
    rounds: usize,
    report: &mut Report,
) -> Result<(), String> {
    let Case { prefix, tables, pairs, burst, threads, limit, aim } = case;
    let cells: Vec<Mutex<Cells>> = (0..*threads)
        .map(|_| Cells::new(depot, *burst).map(Mutex::new))
        .collect::<Result<_, _>>()?;
    let cells = &cells;
    let forms: Vec<Form<'_, u32>> = LOOKS
        .into_iter()
        .map(|(name, look)| {
            Form::new(name, move |out: &mut [u32]| {
                // Each thread finds cells that no other one has; the lock is taken once a pass.
                if let Some(mut cells) = cells.iter().find_map(|cells| cells.try_lock().ok()) {
                    let Cells { pool, chunks } = &mut *cells;
                    forward(look, tables, pool, chunks, (pairs, *burst), out);
                }
            })
        })
        .collect();
    let mut verdicts = vec![0; pairs.len()];
    (forms[0].run)(&mut verdicts);
    let lost = verdicts.iter().filter(|v| Verdict(**v).kind() != VerdictKind::Forward).count();
    if lost > 0 {
        report.wrong.push(format!("{prefix}{lost} frames were not forwarded"));
    }
    let rates = rates(&forms, pairs.len(), rounds, *threads, &mut report.wrong);
    // Of source and destination.
    let lines = lines_of(tables, pairs);
    for (form, rates) in forms.iter().zip(&rates) {
        let note = share(median(rates), lines, limit * *threads as f64);
        let row = Row::new(format!("{prefix}{}", form.name), "Mpps", rates.clone());
        report.rows.push(row.note(note));
    }
    let over = ratio(format!("{prefix}switched over plain"), &rates[2], &rates[0]);
    report.rows.push(match aim {
        Some(aim) => over.at_least(*aim),
        None => over,
    });
    drop(forms);
    for cells in cells {
        if let Ok(mut cells) = cells.lock() {
            cells.free();
        }
    }
    Ok(())
}

/// Lines that the lookups of a frame read, on average.
fn lines_of(tables: &SwitchTables, pairs: &[Pair]) -> f64 {
    let keys: Vec<u64> =
        pairs.iter().take(1 << 16).flatten().map(|mac| station_key(1, *mac)).collect();
    tables.stations().map_or(f64::NAN, |table| 2.0 * lines_per_key(&table, &keys))
}

/// The same tables, the stations on pages of a kind.
fn on_pages(tables: &SwitchTables, pages: Pages) -> Result<SwitchTables, String> {
    let blob = tables.blob().copy_on(pages).map_err(|e| e.to_string())?;
    Ok(SwitchTables::new(blob, tables.seen().clone(), ports()))
}

/// What one thread forwards with.
struct Cells {
    pool: Pool,
    chunks: Vec<Chunk>,
}

impl Cells {
    fn new(depot: &Arc<Depot>, burst: usize) -> Result<Self, String> {
        let mut pool = Pool::new(depot.clone(), 64);
        let chunks = chunks(&mut pool, burst)?;
        Ok(Self { pool, chunks })
    }

    /// Gives the cells back.
    fn free(&mut self) {
        for packet in self.chunks.drain(..).flat_map(|chunk| chunk.packets) {
            packet.free(&mut self.pool);
        }
    }
}

fn with(
    tables: &SwitchTables,
    out: &mut [u64],
    look: impl FnOnce(&lookup::cuckoo::Cuckoo<'_, u64>, &mut [u64]),
) {
    if let Some(stations) = tables.stations() {
        look(&stations, out);
    }
}

/// The address of a station.
pub(crate) fn mac(station: usize) -> [u8; 6] {
    let [.., a, b, c, d] = (station as u32).wrapping_mul(0x9e37_79b1).to_be_bytes();
    [2, 0, a, b, c, d]
}

/// The tables of a switch that knows so many stations, the `i`th behind port `i` mod 4.
pub(crate) fn learn(stations: usize) -> Result<SwitchTables, String> {
    let limits = MacLimits { stations: stations as u32, ageing_s: 0 };
    let (mut macs, blob, seen) = MacTable::new(limits).map_err(|e| e.to_string())?;
    let mut tables = SwitchTables::new(blob, seen, ports());
    let now_s = (NOW_NS / 1_000_000_000) as u32;
    for station in 0..stations {
        if macs.learn(1, mac(station), station as u16 % PORTS, now_s) != Learned::New {
            return Err(format!("station {station} was not learned"));
        }
        if station % LEARNED_AT_ONCE == 0 {
            macs.take_patches(LEARNED_AT_ONCE).iter().for_each(|patch| tables.apply(patch));
        }
    }
    loop {
        macs.take_patches(usize::MAX).iter().for_each(|patch| tables.apply(patch));
        if !macs.is_rebuilding() {
            return Ok(tables);
        }
    }
}

fn ports() -> Vec<Option<BridgePort>> {
    (0..PORTS).map(|port| Some(BridgePort::access(format!("p{port}"), 1))).collect()
}

/// Random sources behind port 0 and destinations behind the others.
fn pairs(packets: usize, stations: usize) -> Vec<Pair> {
    let (mut random, groups) = (Random(9), stations / 4);
    let pair = |_| {
        let from = 4 * random.below(groups);
        let to = 4 * random.below(groups) + 1 + random.below(3);
        [mac(from), mac(to)]
    };
    (0..packets).map(pair).collect()
}

/// Chunks of so many frames without addresses, received at port 0.
fn chunks(pool: &mut Pool, burst: usize) -> Result<Vec<Chunk>, String> {
    let mut frame = vec![0; 60];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    let chunk = |_| {
        let arena = Arena::new(Layout::new(SwitchColumns::COLUMNS, burst));
        let rows = arena.reserve(burst).ok_or("no rows")?;
        let mut chunk = Chunk::new(rows, 0);
        for _ in 0..burst {
            let mut packet = Packet::copy_from(pool, &frame).ok_or("too few cells")?;
            packet.port = 0;
            chunk.packets.push(packet);
        }
        Ok(chunk)
    };
    (0..CHUNKS * CHUNK_PACKETS_MAX / burst).map(chunk).collect()
}

/// Forwards a frame for each pair; its verdict to `out`.
fn forward(
    look: forward::Form,
    tables: &SwitchTables,
    pool: &mut Pool,
    chunks: &mut [Chunk],
    (pairs, burst): (&[Pair], usize),
    out: &mut [u32],
) {
    let mut stages: [Box<dyn Stage<SwitchTables>>; 3] = [
        Box::new(ingress::BridgeIn::new()),
        Box::new(forward::Bridge::with_form(look)),
        Box::new(egress::BridgeOut::new(&SwitchPipeline::default())),
    ];
    let (mut dropped, mut released) = (Vec::new(), Vec::new());
    let (bursts, chunk_count) = (pairs.chunks(burst).zip(out.chunks_mut(burst)), chunks.len());
    for (number, (pairs, out)) in bursts.enumerate() {
        let chunk = &mut chunks[number % chunk_count];
        chunk.time_ns = NOW_NS;
        for (packet, [source, destination]) in chunk.packets.iter_mut().zip(pairs) {
            if let Some(header) = packet.data_mut().first_chunk_mut::<12>() {
                header[..6].copy_from_slice(destination);
                header[6..].copy_from_slice(source);
            }
        }
        chunk.rows.verdicts().fill(Verdict::NEXT.0);
        for stage in &mut stages {
            let mut cx = Context::detached(pool, tables, NOW_NS, &mut dropped, &mut released);
            stage.pre_shade(chunk, &mut cx);
            if let Some(shader) = stage.shader() {
                shader.shade(&mut chunk.rows, tables);
            }
            stage.post_shade(chunk, &mut cx);
        }
        out.copy_from_slice(&chunk.rows.verdicts()[..out.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_forwards_every_frame() {
        let args = crate::Args {
            what: crate::What::L2 { packets: 1000, stations: 9000 },
            rounds: 1,
            json: false,
            against: None,
            plot: None,
        };
        let report = run(&args, 1000, 9000).unwrap();
        assert!(report.wrong.is_empty(), "{:?}", report.wrong);
        // Two tables, the larger one in five ways; each row once.
        assert_eq!(report.rows.len(), 5 * (1 + 5));
        assert!(report.rows.iter().all(|row| row.median > 0.0));
        let shares = report.rows.iter().filter(|row| row.note.ends_with("memory's limit"));
        assert_eq!(shares.count(), 4 * 6);
        let names: std::collections::BTreeSet<_> =
            report.rows.iter().map(|row| &row.name).collect();
        assert_eq!(names.len(), report.rows.len());
        let large = 16 << 20;
        assert_eq!(
            groups(large),
            [("in cache, ", NEAR, None), ("", FEW, None), ("", large, Some(1.5))]
        );
        assert_eq!(groups(FEW), [("in cache, ", NEAR, None), ("", FEW, None)]);
        assert_eq!(groups(100), [("in cache, ", 100, None)]);
    }
}
