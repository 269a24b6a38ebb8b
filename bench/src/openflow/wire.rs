//! FLOW_MODs over a socket, while one core forwards.
//!
//! ```text
//!  controller: 100 FLOW_MODs, BARRIER ─▶ TCP ─▶ Channels, codec, FlowControl ─▶ a version for each piece read
//!              ◀───────── BARRIER_REPLY ──────┘
//! ```
//!
//! The socket's threads, the agent and the codec are those of the program; what a piece of input (up to 64 KB) changes is published as
//! one version, as the program does.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use flowtable::{FlowControl, FlowTables};
use lookup::versions::Writer;
use openflow::agent::{Change, FlowPage, Refused, Settings};
use openflow::flow::{AggregateStats, FlowFilter, PacketOut};
use openflow::group::{
    GroupDesc, GroupFeatures, GroupStats, MeterConfig, MeterFeatures, MeterStats,
};
use openflow::message::{Body, Hello};
use openflow::port::{PortStats, QueueDesc, QueueStats};
use openflow::serve::{Channels, SocketEvent};
use openflow::table::{Description, Features, TableFeatures, TableStats};
use openflow::{ErrorCode, FlowCommand, Message, PortDesc, PortNo, Switch, Version, wire};

use super::{BARRIER, CHURN, Case, FLOW_MODS_AIM, FORWARDING_AIM, exact_flow, switch};
use crate::forms::ratio;
use crate::{Args, Report, Row};

/// Flows that `ovs-ofctl add-flows` brings, and seconds that it may take.
const ADDED: usize = 20_000;
const ADDED_AIM: f64 = 2.0;

/// The tables behind the agent. Controllers of this benchmark send FLOW_MODs alone.
struct Tables<'a>(&'a mut FlowControl);

fn now() -> Duration {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap_or_default()
}

impl Switch for Tables<'_> {
    fn features(&self) -> Features {
        Features { tables: 1, ..Features::default() }
    }
    fn description(&self) -> Description {
        Description::default()
    }
    fn ports(&self) -> Vec<PortDesc> {
        Vec::new()
    }
    fn apply(&mut self, version: Version, all: &[Change], now: Duration) -> Result<(), Refused> {
        let now_ns = now.as_nanos() as u64;
        for (index, change) in all.iter().enumerate() {
            let done = match change {
                Change::Flow(flow) => self.0.flow_mod(flow, version, now_ns),
                _ => Err(ErrorCode::BadRequestType),
            };
            done.map_err(|code| Refused { index, code })?;
        }
        Ok(())
    }
    fn packet_out(&mut self, _: Version, _: &PacketOut) -> Result<(), ErrorCode> {
        Err(ErrorCode::BadRequestType)
    }
    fn flows(
        &self,
        _: Version,
        _: &FlowFilter,
        _: u64,
        _: usize,
        _: Duration,
    ) -> Result<FlowPage, ErrorCode> {
        Err(ErrorCode::BadRequestType)
    }
    fn aggregate(&self, _: Version, _: &FlowFilter) -> Result<AggregateStats, ErrorCode> {
        Err(ErrorCode::BadRequestType)
    }
    fn tables(&self) -> Vec<TableStats> {
        Vec::new()
    }
    fn table_features(&self) -> Vec<TableFeatures> {
        Vec::new()
    }
    fn port_stats(&self, _: PortNo, _: Duration) -> Result<Vec<PortStats>, ErrorCode> {
        Err(ErrorCode::BadRequestType)
    }
    fn queue_stats(&self, _: PortNo, _: u32, _: Duration) -> Result<Vec<QueueStats>, ErrorCode> {
        Err(ErrorCode::BadRequestType)
    }
    fn queues(&self, _: PortNo) -> Result<Vec<QueueDesc>, ErrorCode> {
        Err(ErrorCode::BadRequestType)
    }
    fn group_stats(&self, _: u32, _: Duration) -> Vec<GroupStats> {
        Vec::new()
    }
    fn groups(&self) -> Vec<GroupDesc> {
        Vec::new()
    }
    fn group_features(&self) -> GroupFeatures {
        GroupFeatures::default()
    }
    fn meter_stats(&self, _: u32, _: Duration) -> Result<Vec<MeterStats>, ErrorCode> {
        Err(ErrorCode::BadRequestType)
    }
    fn meters(&self, _: u32) -> Result<Vec<MeterConfig>, ErrorCode> {
        Err(ErrorCode::BadRequestType)
    }
    fn meter_features(&self) -> MeterFeatures {
        MeterFeatures::default()
    }
}

/// A listening switch.
struct Listening {
    channels: Channels,
    events: Receiver<SocketEvent>,
    address: SocketAddr,
}

impl Listening {
    fn new() -> Result<Self, String> {
        let (sender, events) = sync_channel(64);
        let settings = Settings { versions: vec![Version::V10], ..Settings::default() };
        let sink = Arc::new(move |event| sender.send(event).is_ok());
        let mut channels = Channels::new(settings, sink);
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let address = channels.listen(address).map_err(|e| format!("a listener: {e}"))?;
        Ok(Self { channels, events, address })
    }

    /// Carries out what comes until `ends`.
    fn serve(
        &mut self,
        control: &mut FlowControl,
        writer: &mut Writer<FlowTables>,
        ends: impl Fn() -> bool,
    ) {
        while !ends() {
            let Ok(event) = self.events.recv_timeout(Duration::from_millis(5)) else { continue };
            self.channels.event(event, &mut Tables(control), now());
            let patches = control.take_patches();
            if !patches.is_empty() {
                writer.publish(patches);
                control.take_removed();
            }
            self.channels.flush(now());
        }
    }
}

fn bytes(body: Body, xid: u32) -> Result<Vec<u8>, String> {
    wire::encode(&Message::new(Version::V10, xid, body)).map_err(|e| e.to_string())
}

/// Reads messages up to the answer to a barrier.
fn answered(stream: &mut TcpStream, xid: u32) -> Result<(), String> {
    loop {
        let mut bytes = vec![0; wire::HEADER_LEN];
        stream.read_exact(&mut bytes).map_err(|e| e.to_string())?;
        let len = wire::Header::read(&bytes).map_or(0, |header| usize::from(header.len));
        bytes.resize(len.max(wire::HEADER_LEN), 0);
        stream.read_exact(&mut bytes[wire::HEADER_LEN..]).map_err(|e| e.to_string())?;
        let message = wire::decode(&bytes).map_err(|e| e.to_string())?;
        match message.body {
            Body::BarrierReply if message.xid == xid => return Ok(()),
            Body::Error(error) => return Err(format!("refused: {error:?}")),
            _ => {}
        }
    }
}

/// Messages of a hundred FLOW_MODs and a barrier, the number of which is their place.
fn hundreds(first: usize) -> Result<Vec<Vec<u8>>, String> {
    let mut all = Vec::new();
    for command in [FlowCommand::Add, FlowCommand::DeleteStrict] {
        for start in (0..CHURN).step_by(BARRIER) {
            let mut piece = Vec::new();
            for number in start..start + BARRIER {
                let flow = exact_flow(first + number, command);
                piece.extend(bytes(Body::FlowMod(flow), 0)?);
            }
            piece.extend(bytes(Body::BarrierRequest, 1 + all.len() as u32)?);
            all.push(piece);
        }
    }
    Ok(all)
}

/// Sends hundreds from place `at` on, at a rate or as fast as they are answered, for a while; FLOW_MODs a second.
fn send(
    address: SocketAddr,
    all: &[Vec<u8>],
    at: &mut usize,
    rate: Option<f64>,
    time: Duration,
) -> Result<f64, String> {
    let mut stream = TcpStream::connect(address).map_err(|e| e.to_string())?;
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    let timeout = Some(Duration::from_secs(60));
    stream.set_read_timeout(timeout).map_err(|e| e.to_string())?;
    let hello = bytes(Body::Hello(Hello::default()), 0)?;
    stream.write_all(&hello).map_err(|e| e.to_string())?;
    let (begin, mut done) = (Instant::now(), 0);
    while begin.elapsed() < time {
        stream.write_all(&all[*at]).map_err(|e| e.to_string())?;
        answered(&mut stream, 1 + *at as u32)?;
        *at = (*at + 1) % all.len();
        done += BARRIER;
        if let Some(rate) = rate {
            let due = Duration::from_secs_f64(done as f64 / rate);
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
        }
    }
    Ok(done as f64 / begin.elapsed().as_secs_f64())
}

/// FLOW_MODs while packets flow: paced at the aim, and as fast as they are answered.
pub(super) fn changes(
    args: &Args,
    seconds: f64,
    case: &mut Case,
    report: &mut Report,
) -> Result<(), String> {
    let time = Duration::from_secs_f64(seconds);
    let all = hundreds(case.size.exact)?;
    let mut at = 0;
    let mut without = Vec::new();
    let (mut with, mut mods): ([Vec<f64>; 2], [Vec<f64>; 2]) = Default::default();
    for _ in 0..args.rounds.max(1) {
        let ([_, rate], ()) = case.round(time, |_, _| {
            std::thread::sleep(time);
            Ok(())
        })?;
        without.push(rate);
        for (paced, pace) in [Some(FLOW_MODS_AIM), None].into_iter().enumerate() {
            let mut listening = Listening::new()?;
            let ([_, rate], sent) = case.round(time, |control, writer| {
                let (address, ended) = (listening.address, AtomicBool::new(false));
                std::thread::scope(|scope| {
                    let controller = scope.spawn(|| {
                        let sent = send(address, &all, &mut at, pace, time);
                        ended.store(true, Ordering::Release);
                        sent
                    });
                    listening.serve(control, writer, || ended.load(Ordering::Acquire));
                    controller.join().map_err(|_| "the controller failed".to_owned())?
                })
            })?;
            with[paced].push(rate);
            mods[paced].push(sent);
        }
    }
    let name = &case.name;
    let [paced, free] = mods;
    let row = Row::new(format!("{name}: FLOW_MODs by a socket, paced"), "1/s", paced);
    report.rows.push(row.at_least(FLOW_MODS_AIM * 0.98).note(format!("at {FLOW_MODS_AIM}/s")));
    let row = ratio(format!("{name}: packets meanwhile over packets without"), &with[0], &without);
    report.rows.push(row.at_least(FORWARDING_AIM).note("of the thread's time"));
    report.rows.push(Row::new(format!("{name}: FLOW_MODs by a socket"), "1/s", free));
    let row = ratio(
        format!("{name}: packets meanwhile over packets without, FLOW_MODs as fast as answered"),
        &with[1],
        &without,
    );
    report.rows.push(row.note("of the thread's time"));
    Ok(())
}

/// Seconds that `ovs-ofctl add-flows` takes.
pub(super) fn added(args: &Args, report: &mut Report) -> Result<(), String> {
    let name = format!("{ADDED} flows by ovs-ofctl add-flows");
    let mut text = String::new();
    for number in 0..ADDED {
        let (src, dst, from, to) = super::exact(number);
        let (src, dst) = (std::net::Ipv4Addr::from(src), std::net::Ipv4Addr::from(dst));
        text += &format!(
            "udp,nw_src={src},nw_dst={dst},tp_src={from},tp_dst={to},actions=output:{}\n",
            super::out_port(number) + 1
        );
    }
    let path = std::env::temp_dir().join(format!("shadeline-flows-{}", std::process::id()));
    std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut rounds = Vec::new();
    for _ in 0..args.rounds.max(1) {
        let mut listening = Listening::new()?;
        let (mut control, tables) = switch(ADDED);
        let (mut writer, _reader) = lookup::versions::versions(tables);
        let begin = Instant::now();
        let child = std::process::Command::new("ovs-ofctl")
            .args(["-O", "OpenFlow10", "add-flows", &format!("tcp:{}", listening.address)])
            .arg(&path)
            .stdin(std::process::Stdio::null())
            .spawn();
        let Ok(mut child) = child else {
            let row = Row::new(name.clone(), "s", Vec::new());
            report.rows.push(row.note("not measured: ovs-ofctl is not installed"));
            break;
        };
        let has_ended = std::cell::RefCell::new(&mut child);
        listening.serve(&mut control, &mut writer, || {
            !matches!(has_ended.borrow_mut().try_wait(), Ok(None))
        });
        rounds.push(begin.elapsed().as_secs_f64());
        if control.len() != ADDED {
            report.wrong.push(format!("{name}: {} flows are there", control.len()));
        }
    }
    let _ = std::fs::remove_file(&path);
    if !rounds.is_empty() {
        report.rows.push(Row::new(name, "s", rounds).at_most(ADDED_AIM));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_come_and_leave_by_a_socket() {
        let all = hundreds(0).unwrap();
        let mut listening = Listening::new().unwrap();
        let (mut control, tables) = switch(2 * CHURN);
        let (mut writer, reader) = lookup::versions::versions(tables);
        let (address, ended, mut at) = (listening.address, AtomicBool::new(false), 0);
        std::thread::scope(|scope| {
            let controller = scope.spawn(|| {
                let sent = send(address, &all, &mut at, None, Duration::from_millis(50));
                ended.store(true, Ordering::Release);
                sent
            });
            listening.serve(&mut control, &mut writer, || ended.load(Ordering::Acquire));
            assert!(controller.join().unwrap().unwrap() > 0.0);
        });
        // Hundreds come until all are there, and then leave.
        let half = all.len() / 2;
        let there = if at <= half { at } else { all.len() - at };
        assert_eq!(control.len(), there * BARRIER);
        drop(reader);
    }
}
