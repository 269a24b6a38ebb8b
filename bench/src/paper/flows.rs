//! GASPP §7.2: decoding, state and reassembly, sweeps. On the CPU, one core, from memory.

use std::path::Path;
use std::time::Instant;

use stream::table::{FlowTable, Limits, Timeouts};

use crate::forms::thread_seconds;
use crate::limits::has_room;
use crate::peer::Peer;
use crate::report::median;
use crate::streams::follow::{Answer, decode_alone, decode_in_batches};
use crate::streams::frames::{Frames, http, udp, udp_ports};
use crate::streams::live::{Hot, PIECE, RECORD_BYTES, fill, ignore};
use crate::streams::nids::{self, Load};
use crate::{Args, Report, Row};

/// Bytes of packets of Figure 9(a), without the check sequence, and packets of a batch.
const SIZES: [usize; 2] = [60, 1514];
const BATCHES: [usize; 6] = [32, 128, 512, 2048, 8192, 32_768];

/// Packets of a pass of Figure 9(a): more than caches hold.
const PACKETS: usize = 1 << 17;

/// GASPP, Figure 9(a).
pub(super) fn decoding(args: &Args) -> Result<Report, String> {
    let data = "GASPP, Figure 9(a): UDP packets in memory, decoded into columns; one core";
    let mut report = Report::new("paper", data);
    let loads: Vec<Frames> = SIZES.iter().map(|size| udp(PACKETS, *size)).collect();
    let mut rates = vec![vec![Vec::new(); BATCHES.len()]; SIZES.len()];
    for load in &loads {
        let wrong = (0..load.len()).filter(|at| {
            let (frame, _) = load.get(*at);
            let decoded = packet::decode::decode(frame, frame.len());
            let [source, destination] = udp_ports(*at).map(u32::from);
            decoded.anomaly != packet::Anomaly::None
                || decoded.l4_word != source << 16 | destination
        });
        match wrong.count() {
            0 => {}
            n => report.wrong.push(format!("{n} packets were decoded wrongly")),
        }
    }
    for _ in 0..args.rounds.max(1) {
        for (load, rates) in loads.iter().zip(&mut rates) {
            for (batch, rates) in BATCHES.iter().zip(rates) {
                let begin = thread_seconds();
                decode_in_batches(load.len(), *batch, |at| load.get(at));
                rates.push(load.len() as f64 / (thread_seconds() - begin) / 1e6);
            }
        }
    }
    for (size, rates) in SIZES.iter().zip(rates) {
        for (batch, rates) in BATCHES.iter().zip(rates) {
            let name = format!("decoding, {} bytes, {batch} packets per batch", size + 4);
            let line = format!("{} bytes", size + 4);
            let row = Row::new(name, "Mpps", rates);
            report
                .rows
                .push(row.curve("CPU, one core", &line, Some(*batch)).over("packets per batch"));
        }
    }
    Ok(report)
}

/// Ways of a load of Figure 9(b).
const WAYS: [&str; 3] = ["decoding alone", "state and reassembly", "libnids"];

/// GASPP, Figure 9(b): up to `connections` at once.
pub(super) fn reassembly(args: &Args, connections: usize, folder: &Path) -> Result<Report, String> {
    has_room(&format!("{connections} connections"), connections.saturating_mul(4 << 20))?;
    let data = format!(
        "GASPP, Figure 9(b): HTTP, 870 packets a connection, by connections at once, and captures of {}; one core, no \
         checksums",
        folder.display()
    );
    let mut report = Report::new("paper", data);
    let counts = (0..).map(|step| 16 << (2 * step)).take_while(|count| *count < connections);
    let mut peer = nids::start();
    for connections in counts.chain([connections]) {
        let load = Load {
            name: format!("HTTP, {connections} connections"),
            frames: http(connections, false),
            connections,
            note: String::new(),
        };
        measure(args, &load, true, &mut peer, &mut report)?;
    }
    if let Some(load) = nids::largest(folder) {
        measure(args, &load, false, &mut peer, &mut report)?;
    }
    Ok(report)
}

/// All rows of a load. `is_made`: not a capture, of which libnids sees other connections (`bench streams` says which).
fn measure(
    args: &Args,
    load: &Load,
    is_made: bool,
    peer: &mut Result<Peer, String>,
    report: &mut Report,
) -> Result<(), String> {
    if let Ok(peer) = peer {
        load.hand_over(peer).map_err(|e| e.to_string())?;
    }
    let packets = load.frames.len() as f64 / 1e6;
    let mut rates = [const { Vec::new() }; WAYS.len()];
    let mut first = None;
    for _ in 0..args.rounds.max(1) {
        let begin = thread_seconds();
        decode_alone(load.frames.len(), |at| load.frames.get(at));
        rates[0].push(packets / (thread_seconds() - begin));
        let (seconds, answer, _) = load.pass(false, false)?;
        rates[1].push(packets / seconds);
        if answer != *first.get_or_insert(answer) {
            report.wrong.push(format!("{}: {answer:?}, before {first:?}", load.name));
        }
        let Ok(peer) = peer else { continue };
        let round = peer.nids_round(load.connections, false);
        let (seconds, theirs) = round.map_err(|e| e.to_string())?;
        let theirs = Answer::of(theirs, 0);
        if is_made && theirs != answer {
            report.wrong.push(format!("{}: {answer:?}, libnids {theirs:?}", load.name));
        }
        rates[2].push(packets / seconds);
    }
    let costs =
        rates[0].iter().zip(&rates[1]).map(|(decoding, all)| 100.0 * (decoding / all - 1.0));
    let cost = Row::new(format!("{}: cost over decoding", load.name), "%", costs.collect());
    for (way, rates) in WAYS.iter().zip(rates) {
        let row = Row::new(format!("{}: {way}", load.name), "Mpps", rates);
        let row = match peer {
            Err(why) if row.rounds.is_empty() => row.note(why.clone()),
            _ => row.note(load.note.clone()),
        };
        report.rows.push(match is_made {
            true => {
                row.curve("HTTP, one core", way, Some(load.connections)).over("connections at once")
            }
            false => row,
        });
    }
    report.rows.push(cost.note("the paper: 20 to 25 %, of few connections 45 to 50 %"));
    Ok(())
}

/// Sizes of the tables and flows of Table 3, of millions.
const CAPACITIES: [usize; 3] = [1, 8, 16];
const FLOWS: [f64; 7] = [0.1, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0];

/// GASPP, Table 3: tables of up to `records`.
pub(super) fn sweeps(args: &Args, records: usize) -> Result<Report, String> {
    has_room(&format!("{records} records"), records.saturating_mul(RECORD_BYTES))?;
    let data = "GASPP, Table 3: one sweep over the flow table, no flow of which is idle; a table is bounded, so that \
                more flows than it has records cannot be in it";
    let mut report = Report::new("paper", data);
    for capacity in CAPACITIES.map(|millions| millions << 20) {
        let name = |flows: usize| format!("{capacity} records, {flows} flows");
        for flows in FLOWS.map(|millions| (millions * f64::from(1 << 20)) as usize) {
            if flows > capacity {
                continue;
            }
            if capacity > records {
                let note = format!("not measured: --records {records}");
                report.rows.push(Row::new(name(flows), "µs", Vec::new()).note(note));
                continue;
            }
            let limits = Limits { capacity, half_open_max: capacity };
            let mut table = FlowTable::<Hot>::new(limits, 7).map_err(|e| e.to_string())?;
            fill(&mut table, flows);
            let (mut all, mut pieces) = (Vec::new(), Vec::new());
            // The first one touches memory for the first time.
            for round in 0..=args.rounds.max(1) {
                let mut sum = 0.0;
                loop {
                    let begin = Instant::now();
                    let shortest = Timeouts { half_open: 5_000, full: 5_000 };
                    let swept = table.sweep(PIECE, 7_000, shortest, |_, _| 50_000, ignore);
                    let seconds = begin.elapsed().as_secs_f64();
                    sum += seconds;
                    pieces.push(seconds);
                    if swept.is_round {
                        break;
                    }
                }
                if round > 0 {
                    all.push(sum * 1e6);
                }
            }
            if table.len() != flows {
                report.wrong.push(format!("{}: {} are left", name(flows), table.len()));
            }
            let line = format!("{} M records", capacity >> 20);
            let note = format!("a piece of {PIECE}: {:.0} µs", median(&pieces) * 1e6);
            let row = Row::new(name(flows), "µs", all).note(note);
            report.rows.push(row.curve("a sweep", &line, Some(flows)).over("flows"));
        }
    }
    Ok(report)
}
