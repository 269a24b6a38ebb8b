//! `shadeline streams -r IN`, `-i INTERFACE`: the TCP connections of captures, or of what an interface receives and sends.
//!
//! ```text
//!  captures ─▶ monitor: the pipeline `flow` `monitor` ─▶ Followers, one per worker ─▶ Ordered ─▶ table or lines of JSON
//! ```
//!
//! It is the pipeline of a monitor over captures, with a listener of its own. Lines come in the order in which connections
//! end, rows of the table in that in which they began; neither depends on the number of workers.

use std::any::Any;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Result as IoResult, Seek, SeekFrom, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use apps::flow::follow::Kept;
use apps::flow::order::{Key, Ordered};
use apps::flow::rows::{in_tunnels, tcp_state};
use apps::flow::{Attached, Follower, Listener};
use control::api::table::{Row, table, thousands};
use control::config::Config;
use controlplane::Interfaces;
use packet::IpProtocol;
use packet::checksum::Checksums;
use packet::filter::Filter;
use packet::tunnel::{Kinds, Tunnel};
use serde::Serialize;
use sha1::{Digest, Sha1};
use stream::tcp::Want;
use stream::tracker::Identity;
use stream::{FlowRecord, Side, SideRecord};

use crate::cli::StreamsArgs;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::offline::{self, Carry, Merged, Progress};
use crate::output::{self, Beside, note, print};
use crate::report::Report;
use crate::{check, log, pipelines, wiring};

/// The only port.
const CONFIG: &str = "mode = \"monitor\"\n[port.capture]\ninterface = \"capture\"\n";

/// Bytes of a direction that wait before they are written into its file.
const PIECE: usize = 16 << 10;

pub(crate) fn run(args: &StreamsArgs) -> Result<(), Failure> {
    let mut config = monitor(args.config.as_deref(), args.tunnels, args.workers)?;
    if let Some(path) = &args.parquet {
        config.flow.parquet = Some(path.clone());
    }
    let table_to = Beside::of(&config.flow)?;
    if args.json && table_to == Beside::Error {
        let what = "standard output gets the rows of --json: name a file for the records of flows";
        return Err(Failure::usage(what));
    }
    log::start_command(config.system.log, config.system.log_format);
    let filter = args.filter.as_deref().map(|text| {
        Filter::parse(text).map_err(|error| Failure::usage(format!("--filter `{text}`: {error}")))
    });
    let filter = filter.transpose()?;
    if let Some(folder) = &args.bytes {
        output::folder(folder)?;
    }
    let interfaces = Interfaces::of(&config);
    let interrupt = Interrupt::listen()?;
    let checksums = args.checksums().unwrap_or(Checksums::Verify);
    let opened = match &args.interface {
        Some(interface) => listen(interface, args.duration, checksums, &interrupt),
        None => {
            let marks = vec![wiring::mark_of(checksums)];
            Merged::open(vec![(0, args.read.clone())], marks, &interrupt, |_, queue| queue)
        }
    };
    interrupt.check()?;
    let (mut merged, progress) = opened?;
    if let Some(filter) = filter {
        merged.only(filter);
    }
    let shared = Arc::new(Shared {
        rows: Mutex::default(),
        failure: Mutex::default(),
        lost_rows: AtomicBool::new(false),
        lost_files: AtomicBool::new(false),
        interrupt: interrupt.clone(),
        folder: args.bytes.clone(),
        json: args.json,
    });
    let attached = Attached(Arc::new(Streams { shared: shared.clone(), ordered: OnceLock::new() }));
    let attachments: [&(dyn Any + Sync); 1] = [&attached];
    let opened = (merged, progress.clone());
    let carried = Carry::without_outputs(&config, &interfaces, opened, &attachments);
    let (report, elapsed) = offline::carry(carried)?;
    let failure = shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
    let mut rows = std::mem::take(&mut *shared.rows.lock().unwrap_or_else(PoisonError::into_inner));
    if !args.json {
        rows.sort_by_key(|row| row.order);
        let connections = if rows.len() == 1 { "connection" } else { "connections" };
        table_to.put(format_args!(
            "{}{} {connections} in {}; {:.3} s\n",
            table(&rows),
            thousands(rows.len() as u64),
            progress.packets(&report),
            elapsed.as_secs_f64()
        ))?;
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    warn_of_time(&report, &progress);
    warn_of(&report)?;
    match &args.interface {
        Some(_) => Ok(()), // it has no other end
        None => interrupt.check(),
    }
}

/// Says which packet made others late by its time, if flows began with those. How many is not said: workers have their own clocks.
pub(crate) fn warn_of_time(report: &Report, progress: &Progress) {
    let (clock, flows) = (progress.clock(), report.flow_packets("late_flows"));
    let Some(ahead) = clock.ahead.filter(|_| flows > 0) else { return };
    let mut time = Vec::new();
    flowlog::write_timestamp(ahead.time_ns, &mut time);
    let (packets, are) = if clock.late == 1 { ("packet", "is") } else { ("packets", "are") };
    note!(
        "warning: packet {} is of {}, and {} {packets} behind it {are} earlier by more than 10 s: flows began with them, and those before it may have ended as idle; if its time is wrong, leave it out",
        thousands(ahead.number),
        String::from_utf8_lossy(&time),
        thousands(clock.late),
    );
}

/// Says what was not followed, and what went wrong.
///
/// # Errors
/// Something went wrong; it has been said.
pub(crate) fn warn_of(report: &Report) -> Result<(), Failure> {
    let wrong = report.wrong_checksums();
    if wrong > 0 {
        let (packets, have) = if wrong == 1 { ("packet", "has") } else { ("packets", "have") };
        note!(
            "warning: {} {packets} {have} a wrong checksum and {} not followed; over a capture taken on the sender, use -k none",
            thousands(wrong),
            if wrong == 1 { "was" } else { "were" }
        );
    }
    let is_are = |packets| if packets == 1 { "packet is" } else { "packets are" };
    let malformed = report.flow_packets("malformed");
    if malformed > 0 {
        note!(
            "warning: {} {} malformed or truncated by the capture's snap length in a header or a fragment, and belong to no connection",
            thousands(malformed),
            is_are(malformed)
        );
    }
    let cut = report.flow_packets("cut");
    if cut > 0 {
        note!(
            "warning: {} {} cut by the capture's snap length: the bytes that were not captured are gaps of the streams",
            thousands(cut),
            is_are(cut)
        );
    }
    let encapsulated = report.flow_packets("encapsulated");
    if encapsulated > 0 {
        note!(
            "warning: {} {} behind MPLS, PPPoE or more than two VLAN tags, which are not decoded",
            thousands(encapsulated),
            is_are(encapsulated)
        );
    }
    let refused = report.flow_packets("refused");
    if refused > 0 {
        note!(
            "warning: {} {} of flows for which the table had no room; raise `flows` of [flow] (--config)",
            thousands(refused),
            is_are(refused)
        );
    }
    for lost in report.lost_at_receive() {
        note!(
            "warning: {} {} lost at receive ({}): {}",
            thousands(lost.packets),
            if lost.packets == 1 { "packet was" } else { "packets were" },
            lost.reason,
            lost.text
        );
    }
    for error in &report.errors {
        note!("error: {error}");
    }
    if report.errors.is_empty() { Ok(()) } else { Err(Failure::reported()) }
}

/// The packets of an interface, until a signal or the time ends them.
fn listen(
    interface: &str,
    duration: Option<Duration>,
    checksums: Checksums,
    interrupt: &Interrupt,
) -> Result<(Merged, Arc<Progress>), Failure> {
    let queue = io::af_packet::listen(interface).map_err(Failure::other)?;
    if let Some(duration) = duration {
        let stop = interrupt.stop.clone();
        let timer = move || {
            std::thread::sleep(duration);
            stop.store(true, Ordering::Relaxed);
        };
        std::thread::Builder::new().name("timer".into()).spawn(timer).map_err(Failure::other)?;
    }
    Ok(Merged::live(queue, wiring::mark_of(checksums), interrupt))
}

/// A monitor of one port, with the settings of a file and of the command line.
pub(crate) fn monitor(
    file: Option<&Path>,
    tunnels: Option<Kinds>,
    workers: Option<u16>,
) -> Result<Config, Failure> {
    let (mut config, _) = control::config::parse(CONFIG, &pipelines::known())
        .map_err(|d| Failure::other(control::config::render(&d, "", CONFIG, false)))?;
    if let Some(file) = file {
        config.flow = check::load(file)?.flow;
    }
    if let Some(tunnels) = tunnels {
        config.flow.tunnels = tunnels;
    }
    if let Some(workers) = workers {
        (config.system.workers, config.system.has_workers) = (workers.into(), true);
    }
    Ok(config)
}

/// What workers share.
struct Shared {
    /// For the table.
    rows: Mutex<Vec<StreamRow>>,
    /// The first output that failed.
    failure: Mutex<Option<Failure>>,
    /// Rows cannot be printed, which ends the input.
    lost_rows: AtomicBool,
    /// A file of bytes could not be written, and no more are. Rows do not need them.
    lost_files: AtomicBool,
    interrupt: Interrupt,
    folder: Option<PathBuf>,
    json: bool,
}

impl Shared {
    fn fail(&self, failure: Failure) {
        let mut first = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(failure);
        self.lost_rows.store(true, Ordering::Relaxed);
        self.interrupt.stop.store(true, Ordering::Relaxed);
    }

    /// A file of `bytes` cannot be written: there are no more of them, but all rows.
    fn lose_files(&self, failure: Failure) {
        let mut first = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(failure);
        self.lost_files.store(true, Ordering::Relaxed);
    }

    fn has_failed(&self) -> bool {
        self.lost_rows.load(Ordering::Relaxed)
    }

    fn put(&self, row: StreamRow) {
        if !self.json {
            return self.rows.lock().unwrap_or_else(PoisonError::into_inner).push(row);
        }
        if self.has_failed() {
            return;
        }
        let printed = match serde_json::to_string(&row) {
            Ok(line) => print(format_args!("{line}\n")),
            Err(error) => Err(Failure::other(error)),
        };
        if let Err(failure) = printed {
            self.fail(failure);
        }
    }
}

struct Streams {
    shared: Arc<Shared>,
    ordered: OnceLock<Arc<Ordered<StreamRow>>>,
}

impl Listener for Streams {
    fn follower(&self, _: usize, _: usize) -> Box<dyn Follower> {
        let shared = self.shared.clone();
        let out = move |row| shared.put(row);
        let ordered = self.ordered.get_or_init(|| Arc::new(Ordered::new(out))).clone();
        let worker = ordered.join();
        Box::new(OfWorker { shared: self.shared.clone(), worker, ordered, items: Vec::new() })
    }
}

/// The follower of a worker.
struct OfWorker {
    shared: Arc<Shared>,
    worker: usize,
    ordered: Arc<Ordered<StreamRow>>,
    items: Vec<(Key, StreamRow)>,
}

/// What is kept for a connection, by side.
#[derive(Default)]
struct Both([OfSide; 2]);

#[derive(Default)]
struct OfSide {
    hash: Sha1,
    /// Bytes that are not written yet, and their place in the stream.
    waiting: Vec<u8>,
    offset: u64,
    file: Option<PathBuf>,
}

impl OfSide {
    /// Writes what waits into the file.
    fn flush(&mut self, shared: &Shared) {
        let Some(path) = self.file.as_ref().filter(|_| !self.waiting.is_empty()) else { return };
        if shared.lost_files.load(Ordering::Relaxed) {
            self.file = None;
        } else if let Err(error) = write_at(path, self.offset, &self.waiting) {
            shared.lose_files(Failure::output(path, &error));
            self.file = None;
        }
        self.offset += self.waiting.len() as u64;
        self.waiting.clear();
    }
}

/// Opened for each piece: there may be more connections than a process may have files.
fn write_at(path: &Path, offset: u64, bytes: &[u8]) -> IoResult<()> {
    let mut file: File = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    file.write_all(bytes)
}

/// The file of a direction: begin of the connection, sender, receiver; of a connection in tunnels also their kinds and
/// identifier as numbers ([`packet::tunnel::Path::key`]); with `by_vlan`, the IDs of its VLANs.
fn file_name(flow: &Identity, side: Side) -> String {
    let (s, ns) = (flow.start_ns / 1_000_000_000, flow.start_ns % 1_000_000_000);
    let end = |side: Side| format!("{}.{}", flow.key.address(side), flow.key.port(side));
    let tunnels = match flow.key.tunnels {
        0 => String::new(),
        kinds => format!("-{kinds:x}.{}", flow.key.tunnel_id),
    };
    // Each is an ID and 1 ([`stream::FlowKey::scope`]).
    let vlans = match (flow.key.scope & 0xffff, flow.key.scope >> 16) {
        (0, _) => String::new(),
        (outer, 0) => format!("-vlan{}", outer - 1),
        (outer, inner) => format!("-vlan{}.{}", outer - 1, inner - 1),
    };
    format!("{s}.{ns:09}-{}-{}{tunnels}{vlans}", end(side), end(side.other()))
}

impl Follower for OfWorker {
    fn data(
        &mut self,
        flow: &Identity,
        kept: &mut Kept,
        side: Side,
        offset: u64,
        bytes: &[u8],
    ) -> Want {
        let kept = kept.get_or_insert_with(|| Box::new(Both::default()));
        let Some(Both(sides)) = kept.downcast_mut::<Both>() else { return Want::More };
        let own = &mut sides[side.index()];
        own.hash.update(bytes);
        let Some(folder) = &self.shared.folder else { return Want::More };
        if self.shared.lost_files.load(Ordering::Relaxed) {
            // Its rest is in no file, so that it has none.
            (own.file, own.waiting) = (None, Vec::new());
            return Want::More;
        }
        if own.file.is_none() {
            let path = folder.join(file_name(flow, side));
            // Of an earlier run.
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    self.shared.lose_files(Failure::output(&path, &error));
                    return Want::More;
                }
                _ => {}
            }
            own.file = Some(path);
        }
        if offset != own.offset + own.waiting.len() as u64 {
            own.flush(&self.shared);
            own.offset = offset;
        }
        own.waiting.extend_from_slice(bytes);
        if own.waiting.len() >= PIECE {
            own.flush(&self.shared);
        }
        Want::More
    }

    fn ended(&mut self, record: &FlowRecord, client: Side, kept: &mut Kept, time_ns: u64) {
        if record.protocol != IpProtocol::TCP.0 {
            return;
        }
        let mut both = kept.take().and_then(|kept| kept.downcast::<Both>().ok());
        let mut of = |side: Side, own: &SideRecord| {
            let kept = both.as_mut().map(|both| &mut both.0[side.index()]);
            let (hash, file) = match kept {
                Some(kept) => {
                    kept.flush(&self.shared);
                    (std::mem::take(&mut kept.hash), kept.file.take())
                }
                None => <_>::default(),
            };
            Direction::of(own, hash, file)
        };
        let [client_sent, server_sent] = &record.sides;
        let directions = (of(client, client_sent), of(client.other(), server_sent));
        let row = StreamRow::of(record, directions);
        self.items.push(((time_ns, record.start_ns, record.id, 0), row));
    }

    fn ends_from(&mut self, (time_ns, start_ns, id): (u64, u64, u64)) {
        let key = (time_ns, start_ns, id, 0);
        self.ordered.advance_to(self.worker, &mut self.items, key);
    }

    fn advanced(&mut self, time_ns: u64) {
        self.ordered.advance(self.worker, &mut self.items, time_ns);
    }

    fn finished(&mut self) {
        self.advanced(u64::MAX);
    }
}

/// What one end sent.
#[derive(Debug, Clone, Serialize)]
struct Direction {
    packets: u64,
    /// Of the stream, in order; gaps are not among them.
    bytes: u64,
    retransmissions: u32,
    out_of_order: u32,
    overlaps: u32,
    conflicts: u32,
    gaps: u32,
    gap_bytes: u64,
    /// Smallest time between bytes and their acknowledgment.
    rtt_min_s: Option<f64>,
    /// Of the bytes that are there, in hexadecimal.
    sha1: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
}

impl Direction {
    fn of(record: &SideRecord, hash: Sha1, file: Option<PathBuf>) -> Self {
        let sha1 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            packets: record.packets,
            bytes: record.stream_bytes,
            retransmissions: record.retransmissions,
            out_of_order: record.out_of_order,
            overlaps: record.overlaps,
            conflicts: record.conflicts,
            gaps: record.gaps,
            gap_bytes: record.gap_bytes,
            rtt_min_s: record.rtt_min_ns.map(seconds),
            sha1,
            file,
        }
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// A TCP connection.
#[derive(Debug, Clone, Serialize)]
struct StreamRow {
    /// Seconds since 1970, to the nanosecond.
    start: String,
    end: String,
    client_ip: IpAddr,
    client_port: u16,
    server_ip: IpAddr,
    server_port: u16,
    vlans: Vec<u16>,
    /// Around it, the outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tunnels: Vec<TunnelRow>,
    /// By RFC 9293.
    state: &'static str,
    /// Time between SYN and the ACK that ends the handshake.
    handshake_rtt_s: Option<f64>,
    community_id: String,
    client: Direction,
    server: Direction,
    #[serde(skip)]
    order: (u64, u64),
    /// The same tunnels as text.
    #[serde(skip)]
    around: String,
}

impl StreamRow {
    fn of(record: &FlowRecord, (client, server): (Direction, Direction)) -> Self {
        let time = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        let id = flowlog::community_id::v1(
            0,
            (record.client, record.client_port),
            (record.server, record.server_port),
            record.protocol,
            None,
        );
        Self {
            start: time(record.start_ns),
            end: time(record.end_ns),
            client_ip: record.client,
            client_port: record.client_port,
            server_ip: record.server,
            server_port: record.server_port,
            vlans: record.vlans.into_iter().filter(|vlan| *vlan != 0).collect(),
            tunnels: record.tunnels.iter().map(TunnelRow::of).collect(),
            state: record.tcp.map_or("none", tcp_state),
            handshake_rtt_s: record.handshake_rtt_ns.map(seconds),
            community_id: String::from_utf8_lossy(&id).into_owned(),
            client,
            server,
            order: (record.start_ns, record.id),
            around: record.tunnels.to_string(),
        }
    }
}

/// A tunnel around a connection.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TunnelRow {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u32>,
}

impl TunnelRow {
    pub(crate) fn of(tunnel: Tunnel) -> Self {
        Self { kind: tunnel.kind.name(), id: (tunnel.id != 0).then_some(tunnel.id) }
    }
}

impl Row for StreamRow {
    const COLUMNS: &'static [&'static str] = &[
        "client",
        "server",
        "state",
        ">bytes",
        ">bytes back",
        ">gaps",
        ">retr.",
        ">overl.",
        ">ooo",
        ">rtt",
        "sha1",
        "sha1 back",
    ];
    const EMPTY: &'static str = "no TCP connections";

    fn cells(&self) -> Vec<String> {
        let (there, back) = (&self.client, &self.server);
        let sum = |of: fn(&Direction) -> u32| thousands(u64::from(of(there)) + u64::from(of(back)));
        let short = |own: &Direction| match own.bytes {
            0 => "-".to_owned(),
            _ => own.sha1.chars().take(12).collect(),
        };
        vec![
            in_tunnels(
                &self.around,
                &SocketAddr::new(self.client_ip, self.client_port).to_string(),
            ),
            SocketAddr::new(self.server_ip, self.server_port).to_string(),
            self.state.to_owned(),
            thousands(there.bytes),
            thousands(back.bytes),
            sum(|own| own.gaps),
            sum(|own| own.retransmissions),
            sum(|own| own.overlaps),
            sum(|own| own.out_of_order),
            self.handshake_rtt_s.map(|rtt| format!("{:.2} ms", rtt * 1e3)).unwrap_or_default(),
            short(there),
            short(back),
        ]
    }
}
