//! `bench l2`: the layer-2 switch's whole loop, one core: decode, two lookups, out by a port.
//!
//! ```text
//!  addresses written into frames ─▶ bridge_in ─▶ bridge ─▶ bridge_out ─▶ verdicts
//! ```
//!
//! Sources and destinations are random among all stations, all of which are known. The writing of the two
//! addresses stands for what a network card would do; it is part of the loop in each form alike. The forms
//! differ in how stage `bridge` looks up and in nothing else, and must give the same verdicts.

use apps::switch::{SwitchColumns, SwitchPipeline, egress, forward, ingress};
use chunk::{
    Arena, CHUNK_PACKETS_MAX, Chunk, Columns, HugePages, Layout, Packet, Pool, Region, Verdict,
    VerdictKind,
};
use engine::{Context, Stage};
use lookup::bridge::{BridgePort, Learned, MacLimits, MacTable, SwitchTables};
use lookup::versions::Patchable;

use crate::forms::{Form, rates, ratio};
use crate::tables::Random;
use crate::{Args, Report, Row};

const PORTS: u16 = 4;

/// Chunks that take turns, so that the frames are not always in the nearest cache.
const CHUNKS: usize = 16;

/// Stations of the table that fits in a cache.
pub(crate) const FEW: usize = 1 << 20;

/// Stations learned between two lists of patches.
const LEARNED_AT_ONCE: usize = 1 << 16;

const NOW_NS: u64 = 1_700_000_000_000_000_000;

/// Source and destination of a frame.
type Pair = [[u8; 6]; 2];

pub(crate) fn run(args: &Args, packets: usize, stations: usize) -> Result<Report, String> {
    if packets == 0 || stations < 4 {
        return Err("nothing to forward: packets and four stations are needed".into());
    }
    let data = format!("{packets} frames of 60 bytes between random stations, {PORTS} ports");
    let mut report = Report::new("l2", data);
    // A region stays mapped, so all cases share one.
    let frames = (CHUNKS * CHUNK_PACKETS_MAX) as u32;
    let (_, depot) = Region::new(frames + 64, HugePages::Advise).map_err(|e| e.to_string())?;
    let mut pool = Pool::new(depot, 64);
    for stations in [FEW.min(stations), stations] {
        let tables = learn(stations)?;
        let pairs = pairs(packets, stations);
        let mut chunks = chunks(&mut pool)?;
        let prefix = format!("{stations} stations, ");
        let looks: [(&str, forward::Form); 4] = [
            ("plain", |t, keys, out| with(t, out, |s, out| s.lookup_direct(keys, out))),
            ("group, 32", |t, keys, out| with(t, out, |s, out| s.lookup_grouped::<32>(keys, out))),
            ("switched, 32", |t, keys, out| {
                with(t, out, |s, out| s.lookup_switched::<32>(keys, out));
            }),
            ("machine, 32", |t, keys, out| {
                with(t, out, |s, out| s.lookup_machine::<32>(keys, out));
            }),
        ];
        let cells = std::sync::Mutex::new((&mut pool, &mut chunks));
        let forms: Vec<Form<'_, u32>> = looks
            .into_iter()
            .map(|(name, look)| {
                let (tables, pairs, cells) = (&tables, &pairs, &cells);
                Form::new(name, move |out: &mut [u32]| {
                    // One thread; the lock is taken once a pass.
                    if let Ok(mut cells) = cells.lock() {
                        let (pool, chunks) = &mut *cells;
                        forward(look, tables, pool, chunks, pairs, out);
                    }
                })
            })
            .collect();
        let mut verdicts = vec![0; packets];
        (forms[0].run)(&mut verdicts);
        let lost = verdicts.iter().filter(|v| Verdict(**v).kind() != VerdictKind::Forward).count();
        if lost > 0 {
            report.wrong.push(format!("{prefix}{lost} frames were not forwarded"));
        }
        let rates = rates(&forms, packets, args.rounds, 1, &mut report.wrong);
        for (form, rates) in forms.iter().zip(&rates) {
            report.rows.push(Row::new(format!("{prefix}{}", form.name), "Mpps", rates.clone()));
        }
        let over = ratio(format!("{prefix}switched over plain"), &rates[2], &rates[0]);
        report.rows.push(if stations > FEW { over.at_least(1.5) } else { over });
        drop(forms);
        for packet in chunks.into_iter().flat_map(|chunk| chunk.packets) {
            packet.free(&mut pool);
        }
    }
    Ok(report)
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
    let ports = (0..PORTS).map(|port| Some(BridgePort::access(format!("p{port}"), 1)));
    let mut tables = SwitchTables::new(blob, seen, ports.collect());
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

/// Chunks of frames without addresses, received at port 0.
fn chunks(pool: &mut Pool) -> Result<Vec<Chunk>, String> {
    let mut frame = vec![0; 60];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    let chunk = |_| {
        let arena = Arena::new(Layout::new(SwitchColumns::COLUMNS, CHUNK_PACKETS_MAX));
        let rows = arena.reserve(CHUNK_PACKETS_MAX).ok_or("no rows")?;
        let mut chunk = Chunk::new(rows, 0);
        for _ in 0..CHUNK_PACKETS_MAX {
            let mut packet = Packet::copy_from(pool, &frame).ok_or("too few cells")?;
            packet.port = 0;
            chunk.packets.push(packet);
        }
        Ok(chunk)
    };
    (0..CHUNKS).map(chunk).collect()
}

/// Forwards a frame for each pair; its verdict to `out`.
fn forward(
    look: forward::Form,
    tables: &SwitchTables,
    pool: &mut Pool,
    chunks: &mut [Chunk],
    pairs: &[Pair],
    out: &mut [u32],
) {
    let mut stages: [Box<dyn Stage<SwitchTables>>; 3] = [
        Box::new(ingress::BridgeIn::new()),
        Box::new(forward::Bridge::with_form(look)),
        Box::new(egress::BridgeOut::new(&SwitchPipeline::default())),
    ];
    let (mut dropped, mut released) = (Vec::new(), Vec::new());
    let bursts = pairs.chunks(CHUNK_PACKETS_MAX).zip(out.chunks_mut(CHUNK_PACKETS_MAX));
    for (number, (pairs, out)) in bursts.enumerate() {
        let chunk = &mut chunks[number % CHUNKS];
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
            what: crate::What::L2 { packets: 1000, stations: 5000 },
            rounds: 1,
            json: false,
            against: None,
            plot: None,
        };
        let report = run(&args, 1000, 5000).unwrap();
        assert!(report.wrong.is_empty(), "{:?}", report.wrong);
        assert_eq!(report.rows.len(), 10);
    }
}
