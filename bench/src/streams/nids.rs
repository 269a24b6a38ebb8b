//! The streams of whole captures beside libnids (`bench/peers/nids_peer.c`).
//!
//! Both sides have all frames in memory, follow them from the first to the last, and count the bytes of both directions of
//! each connection. Before that, untimed, each hashes all bytes; hashes, bytes and numbers of connections must be equal.

use std::io;
use std::path::{Path, PathBuf};

use super::follow::{Answer, Head, Worker, decode_alone, options};
use super::frames::{CLIENT_BYTES, Frames, PACKETS, SERVER_BYTES, http};
use crate::forms::{ratio, thread_seconds};
use crate::peer::Peer;
use crate::{Args, Report, Row, lpm};

/// What the issue of the work asks for.
const AIM: f64 = 10.0;
/// And of late data.
const LATE_AIM: f64 = 0.5;

/// Bytes for segments that wait, of each connection.
const WAITING_BYTES: usize = 256 << 10;
/// And of all.
const WAITING_BYTES_MAX: usize = 1 << 30;

/// Packets of a capture whose time can be measured.
const PACKETS_MIN: usize = 10_000;
/// Connections of a capture at once: with tables for more neither side would fit in a cache.
const CAPTURE_CONNECTIONS: usize = 1 << 10;

/// A load of both sides.
pub(crate) struct Load {
    pub(crate) name: String,
    pub(crate) frames: Frames,
    /// Connections at once, at most.
    pub(crate) connections: usize,
    pub(crate) note: String,
}

impl Load {
    /// One pass of ours: its seconds, and what it delivered.
    pub(crate) fn pass(&self, checksums: bool, hashes: bool) -> Result<(f64, Answer, u64), String> {
        self.pass_of(None, checksums, hashes)
    }

    /// The same; `heads`: what a device has found of the frames.
    fn pass_of(
        &self,
        heads: Option<&[Head]>,
        checksums: bool,
        hashes: bool,
    ) -> Result<(f64, Answer, u64), String> {
        let waiting = (self.connections * WAITING_BYTES).min(WAITING_BYTES_MAX);
        let options = options(2 * self.connections + 64, waiting);
        let options = stream::tracker::Options {
            // As libnids, which needs the handshake.
            tcp: stream::tcp::Options { midstream: false, ..options.tcp },
            ..options
        };
        let mut worker = Worker::new(options, checksums)?;
        worker.tracker.module().hashes = hashes;
        let begin = thread_seconds();
        match heads {
            Some(heads) => worker.follow_decoded(heads, &[], |at| self.frames.get(at)),
            None => worker.follow(self.frames.len(), |at| self.frames.get(at)),
        }
        let seconds = thread_seconds() - begin;
        worker.tracker.finish(u64::MAX);
        let counter = worker.tracker.module();
        Ok((seconds, counter.answer, counter.missing))
    }

    /// The same of the peer, which has the frames.
    pub(crate) fn hand_over(&self, peer: &mut Peer) -> io::Result<()> {
        let path = peer.folder().join("frames.pcap");
        self.frames.write(&path)?;
        let loaded = peer.nids_load(&path);
        std::fs::remove_file(&path)?;
        match loaded? == self.frames.len() as u64 {
            true => Ok(()),
            false => Err(io::Error::other("the peer read another number of frames")),
        }
    }

    fn measure(
        &self,
        peer: &mut Result<Peer, String>,
        rounds: usize,
        report: &mut Report,
    ) -> Result<(), String> {
        let name = &self.name;
        let mut theirs = None;
        if let Ok(peer) = peer {
            self.hand_over(peer).map_err(|e| e.to_string())?;
            let answer = peer.nids_check(self.connections, true).map_err(|e| e.to_string())?;
            theirs = Some(Answer::of(answer.1, answer.0));
        }
        let (_, ours, _) = self.pass(true, true)?;
        if let Some(theirs) = theirs.filter(|theirs| *theirs != ours) {
            report.wrong.push(format!("{name}: {ours:?}, libnids {theirs:?}"));
        }
        let plain = Answer { hash: 0, ..ours };
        let head = |at: usize| Head::of(self.frames.get(at).0, true);
        let heads: Vec<_> = (0..self.frames.len()).map(head).collect();
        let mut rates = [const { Vec::new() }; 6];
        for _ in 0..rounds.max(1) {
            for (at, checksums) in [true, false].into_iter().enumerate() {
                let (seconds, answer, _) = self.pass(checksums, false)?;
                if answer != plain {
                    report.wrong.push(format!("{name}: {answer:?} in a round, {plain:?} before"));
                }
                rates[at].push(self.frames.len() as f64 / seconds / 1e6);
                let Ok(peer) = peer else { continue };
                let round = peer.nids_round(self.connections, checksums);
                let (seconds, answer) = round.map_err(|e| e.to_string())?;
                let answer = Answer::of(answer, 0);
                if answer != plain {
                    report.wrong.push(format!("{name}: libnids {answer:?}, ours {plain:?}"));
                }
                rates[2 + at].push(self.frames.len() as f64 / seconds / 1e6);
            }
            let (seconds, answer, _) = self.pass_of(Some(&heads), true, false)?;
            if answer != plain {
                report.wrong.push(format!("{name}: {answer:?} behind a device, {plain:?} before"));
            }
            rates[5].push(self.frames.len() as f64 / seconds / 1e6);
            let begin = thread_seconds();
            decode_alone(self.frames.len(), |at| self.frames.get(at));
            rates[4].push(self.frames.len() as f64 / (thread_seconds() - begin) / 1e6);
        }
        let [verified, unverified, nids, nids_unverified, decoding, behind] = &rates;
        let bits = self.frames.len_bytes() as f64 * 8.0 / self.frames.len() as f64 / 1e3;
        let row = |more: &str, rates: &[f64]| {
            let note = format!("{:.1} Gbit/s", crate::report::median(rates) * bits);
            Row::new(format!("{name}, {more}"), "Mpps", rates.to_vec()).note(note)
        };
        let mut first = row("checksums verified", verified);
        if !self.note.is_empty() {
            first.note = format!("{}; {}", first.note, self.note);
        }
        report.rows.extend([
            first,
            row("no checksums", unverified),
            row("behind a device that decodes and verifies", behind),
            ratio(format!("{name}, behind a device over a worker alone"), behind, verified),
            Row::new(format!("{name}, decoding alone"), "Mpps", decoding.clone()),
        ]);
        match peer {
            Err(why) => report
                .rows
                .push(Row::new(format!("{name}, libnids"), "Mpps", Vec::new()).note(why.clone())),
            Ok(peer) => {
                let mut theirs = row("libnids, checksums verified", nids);
                theirs.note = format!("{}; {}", theirs.note, peer.version());
                report.rows.extend([
                    theirs,
                    row("libnids, no checksums", nids_unverified),
                    ratio(format!("{name}, over libnids, checksums verified"), verified, nids)
                        .at_least(AIM),
                    ratio(
                        format!("{name}, over libnids, no checksums"),
                        unverified,
                        nids_unverified,
                    )
                    .at_least(AIM),
                ]);
            }
        }
        Ok(())
    }
}

/// The HTTP mix of so many connections, and the captures of a folder, beside libnids; and the mix with half of the data
/// late.
pub(crate) fn run(
    args: &Args,
    connections: usize,
    folder: &Path,
    report: &mut Report,
) -> Result<(), String> {
    let mut peer = start();
    let mix = Load {
        name: format!("HTTP, {connections} connections"),
        frames: http(connections, false),
        connections,
        note: String::new(),
    };
    mix.measure(&mut peer, args.rounds, report)?;
    late(args, connections, report)?;
    drop(mix);
    captures(args, folder, &mut peer, report)
}

/// In order against half of the answers' packets late, of connections of which all data of both loads is in memory at
/// once.
fn late(args: &Args, connections: usize, report: &mut Report) -> Result<(), String> {
    let connections = connections.div_ceil(4);
    let load = |late| Load {
        name: String::new(),
        frames: http(connections, late),
        connections,
        note: String::new(),
    };
    let loads = [load(false), load(true)];
    let kinds = [false, true];
    let mut rates = [const { [const { Vec::new() }; 2] }; 2];
    let bytes = [CLIENT_BYTES, SERVER_BYTES].map(|bytes| bytes * connections as u64);
    let (_, expected, _) = loads[0].pass(true, true)?;
    for round in 0..args.rounds.max(1) {
        for (at, load) in loads.iter().enumerate() {
            if round == 0 {
                let (_, answer, missing) = load.pass(true, true)?;
                let is_whole = answer.bytes == bytes && answer.streams == expected.streams;
                if missing > 0 || !is_whole {
                    report.wrong.push(format!("half late: {answer:?}, {missing} bytes missing"));
                }
            }
            for (rates, checksums) in rates.iter_mut().zip(kinds) {
                let (seconds, ..) = load.pass(checksums, false)?;
                rates[at].push((connections * PACKETS) as f64 / seconds / 1e6);
            }
        }
    }
    let name = format!("HTTP, {connections} connections");
    for ([in_order, late], checksums) in rates.into_iter().zip(kinds) {
        let more = if checksums { ", checksums verified" } else { "" };
        let over = ratio(format!("{name}, half late over in order{more}"), &late, &in_order);
        let late_name = format!("{name}, half of the data 1 to 64 places late{more}");
        report.rows.extend([
            Row::new(format!("{name}, in order{more}"), "Mpps", in_order),
            Row::new(late_name, "Mpps", late),
            over.at_least(LATE_AIM),
        ]);
    }
    Ok(())
}

/// Compares what both sides say of each capture of a folder, and measures the long ones.
fn captures(
    args: &Args,
    folder: &Path,
    peer: &mut Result<Peer, String>,
    report: &mut Report,
) -> Result<(), String> {
    let (mut alike, mut streams, mut others) = (Vec::new(), 0, Vec::new());
    for load in of_folder(folder) {
        let (_, ours, _) = load.pass(true, true)?;
        if let Ok(peer) = peer {
            load.hand_over(peer).map_err(|e| e.to_string())?;
            let theirs = peer.nids_check(load.connections, true).map_err(|e| e.to_string())?;
            let theirs = Answer::of(theirs.1, theirs.0);
            if theirs != ours {
                let [own, other] = [ours, theirs].map(|a| (a.streams, a.bytes[0] + a.bytes[1]));
                others.push(format!(
                    "{}: {} connections and {} bytes, libnids {} and {}",
                    load.name, own.0, own.1, other.0, other.1
                ));
                continue;
            }
        }
        streams += ours.streams;
        alike.push(load);
    }
    let is_any = !alike.is_empty() || !others.is_empty();
    if is_any && let Ok(peer) = peer {
        let mut note = format!("{streams} connections, {}", peer.version());
        if !others.is_empty() {
            note = format!("{note}; others: {}", others.join("; "));
        }
        let figures = vec![alike.len() as f64];
        report.rows.push(Row::new("captures with the same answers", "files", figures).note(note));
    }
    let long: Vec<_> = alike.iter().filter(|load| load.frames.len() >= PACKETS_MIN).collect();
    if long.is_empty() {
        let note = format!("none of {PACKETS_MIN} packets in {}", folder.display());
        report.rows.push(Row::new("captures", "Mpps", Vec::new()).note(note));
    }
    long.into_iter().try_for_each(|load| load.measure(peer, args.rounds, report))
}

/// The captures of a folder that are of Ethernet and have packets, one after the other.
fn of_folder(folder: &Path) -> impl Iterator<Item = Load> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths.into_iter().filter_map(|path| {
        let frames = Frames::read(&path).ok().filter(|frames| frames.len() > 0)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let connections = frames.len().min(CAPTURE_CONNECTIONS);
        let note = format!("{} packets", frames.len());
        Some(Load { name, frames, connections, note })
    })
}

/// The capture of a folder with the most packets, of those whose time can be measured.
pub(crate) fn largest(folder: &Path) -> Option<Load> {
    let long = of_folder(folder).filter(|load| load.frames.len() >= PACKETS_MIN);
    long.max_by_key(|load| load.frames.len())
}

/// Starts the peer.
///
/// # Errors
/// Why there is none.
pub(crate) fn start() -> Result<Peer, String> {
    let binary = lpm::binary("nids_peer")
        .ok_or("not compared with libnids: `cargo xtask peers` builds it, with libnids-dev")?;
    Peer::start(binary, 0).map_err(|e| format!("not compared with libnids: {e}"))
}
