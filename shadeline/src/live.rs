//! `shadeline run CONFIG`: a live router, until a signal, a time or `ctl stop` ends it.

use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chunk::{Packet, Verdict, VerdictKind};
use control::api::{
    Asked, CaptureAt, ErrorKind, Frame, Request, Responder, Response, Server, TraceStep, place,
};
use control::metrics::Sources;
use controlplane::inject::injector;
use controlplane::statistics::{Shown, stage_names};
use controlplane::{
    ControlLoop, DataPath, Event, HostPolice, Interfaces, Phase, Publisher, Seen as SeenPath,
    Setup, Start, Vital, Watch,
};
use engine::{Capture, CapturePoint, FrameFilter, Hooks, Trace, TraceEvent};
use io::RxQueue;
use packet::filter::Filter;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cli::RunArgs;
use crate::failure::Failure;
use crate::output::{self, Beside, note};
use crate::ports::{LivePorts, Opening};
use crate::report::Report;
use crate::service::{Service, Watchdog};
use crate::wiring::{self, PortIo};
use crate::{backend, check, log, pipelines, privileges};
use path::{Fixed, LiveEngine, LivePath};
use running::Running;

mod dumps;
mod path;
mod running;

/// Where events for the control loop go.
type Events = mpsc::SyncSender<Event>;

/// Events that may wait for the control loop; workers drop more, and repeat what they tell.
const EVENTS: usize = 4096;

/// How long the transmit queues have to get rid of the last packets.
const DRAIN: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let (config, warnings) = check::read(&args.config)?;
    // Of a file this is known already.
    let length = config.system.socket.as_os_str().len();
    if length > place::PATH_BYTES_MAX {
        return Err(Failure::other(format!(
            "{}: the path has {length} bytes, a Unix socket's at most {}",
            place::VARIABLE,
            place::PATH_BYTES_MAX
        )));
    }
    let report_to = Beside::of(&config.flow)?;
    log::start(config.system.log, config.system.log_format);
    check::warn(&warnings);
    // Before any thread: rights are those of a thread, and the next ones have them from this one.
    let kept = privileges::limit(&config, &args.config)?;
    log::queue();
    tracing::info!("rights: {kept}");
    let interfaces = Interfaces::of(&config);
    // Signals first: one that comes while ports are being opened must close them again.
    let mut signals =
        signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(Failure::other)?;
    let socket = &config.system.socket;
    if let Ok(other) = std::os::unix::net::UnixStream::connect(socket) {
        // Of the process that listens; the kernel knows it, so a busy instance need not answer.
        let pid = rustix::net::sockopt::socket_peercred(&other).map(|peer| peer.pid);
        let pid =
            pid.map_or_else(|_| String::new(), |pid| format!(" (pid {})", pid.as_raw_nonzero()));
        // Without a socket `ctl` may find another instance.
        let shown = socket.display();
        return Err(Failure::other(format!(
            "an instance is already running at {shown}{pid}: stop it with `shadeline ctl --socket {shown} stop`, or use \
             another `socket`"
        )));
    }
    let wanted = backend::chosen(&config, args.backend.clone());
    let workers = wanted.workers(&config.system);
    let (_, depot) = wiring::cells(&config, workers)?;
    let (events, inbox) = mpsc::sync_channel(EVENTS);
    let errors = events.clone();

    let mut ports = LivePorts::default();
    let opening = Opening {
        config: &config,
        interfaces: &interfaces,
        depot: &depot,
        workers,
        checksums: args.checksums(),
        patient: true,
    };
    let numbers: Vec<u16> = interfaces.numbers().collect();
    let (opened, mut io) = ports.open(&opening, &numbers)?;
    let by_number = |number: u16| opened.iter().find(|own| own.number == number);
    let fact = |port| by_number(port).map(|own| own.facts).unwrap_or_default();
    let setup = Setup {
        config: &config,
        name: "",
        interfaces: &interfaces,
        facts: &fact,
        is_live: true,
        modules: &[],
        attachments: &[],
    };
    let (mut publisher, reader) =
        Publisher::start(pipelines::descriptors(), &setup).map_err(Failure::other)?;
    let (injector, injected) = injector(depot.clone()).map_err(Failure::other)?;
    let injected: Box<dyn RxQueue> = Box::new(injected);
    io.push(PortIo { twin: true, stamps: true, ..PortIo::new(0, vec![(Some(injected), None)]) });

    let host_police = Arc::new(HostPolice::default());
    let fixed = Fixed {
        depot: depot.clone(),
        reader: reader.clone(),
        workers,
        checksums: args.checksums(),
        backends: wanted,
        file: args.config.display().to_string(),
        // A worker never waits: an error that finds the queue full comes again or is lost.
        on_error: Arc::new(move |port, error| {
            let _ = errors.try_send(Event::PortError(port, error.to_owned()));
        }),
        events: events.clone(),
        hooks: Arc::new(Hooks::default()),
        host_police: host_police.clone(),
    };
    let mut path = LivePath::new(fixed, &interfaces, ports, &opened, io);
    path.prepare(&config, &interfaces, &mut publisher).map_err(Failure::other)?;
    host_police.set(&config);
    let engine = path.engine();
    let seen = path.start()?;
    let watch = Watch::new(seen.clone());
    let (stop, stopped) = mpsc::channel::<()>();
    let on_stop = stop.clone();
    let running = status(&seen);
    let service = Arc::new(Service::from_environment());
    let mut control = ControlLoop::new(Start {
        file: args.config.clone(),
        known: pipelines::known(),
        descriptors: pipelines::descriptors(),
        facts: opened.iter().map(|own| own.facts).collect(),
        twins: opened.iter().map(|own| own.twin.clone()).collect(),
        links: opened.iter().map(|own| own.link.clone()).collect(),
        path: Box::new(path),
        watch: watch.clone(),
        publisher,
        injector,
        shown: Shown {
            seen,
            kinds: opened.iter().map(|own| own.kind.clone()).collect(),
            depot,
            reader,
            log_lines_lost: log::lost,
        },
        events: events.clone(),
        on_stop: Box::new(move || {
            let _ = on_stop.send(());
        }),
        on_reload: Box::new(move |config| {
            log::set_level(config.system.log);
            host_police.set(config);
        }),
        on_phase: on_phase(service.clone(), watch.clone()),
        config: config.clone(),
    });
    control.start_sources().map_err(Failure::other)?;
    let ended = OnDrop(stop.clone());
    let control = spawn("control", move || {
        // Without control nothing would be served: its end is that of the run.
        let _ended = ended;
        control.run(inbox)
    })?;

    let begin = Instant::now();
    let open = |running: &str| -> Result<_, Failure> {
        let server = serve(&config, &watch, &events)?;
        let hosts = &config.system.metrics_hosts;
        let metrics = config.system.metrics;
        let metrics = metrics.map(|own| control::metrics::serve(own, hosts, sources(&events)));
        let metrics = metrics.transpose().map_err(Failure::other)?;
        let reload = events.clone();
        let handle = signals.handle();
        let vital = Vital::new("signals", &events);
        spawn("signals", move || {
            let _vital = vital;
            for signal in signals.forever() {
                if signal == SIGHUP {
                    let _ = reload.send(Event::Reload);
                } else {
                    let _ = stop.send(());
                }
            }
        })?;
        tracing::info!("running: {running}");
        service.ready(running);
        Ok((server, metrics, handle))
    };
    let open = open(&running);
    // What cannot be served ends as a run does: interfaces get back what they had.
    if open.is_ok() {
        wait(&stopped, args.duration, &engine);
        tracing::info!("draining");
        service.stopping();
    }

    // The packets first, then those who change tables; captures and ports close with the control loop's path. A reload that
    // is under way holds the engine and has its end before, or it is cancelled. Whoever asked for it hears of that.
    let ended = end(&engine);
    let time = begin.elapsed();
    let _ = events.send(Event::Stop);
    let control = control.join().unwrap_or_else(|panic| {
        Err(format!("the control loop panicked: {}", engine::panic_text(&*panic)))
    });
    let (.., signals) = open?;
    signals.close();
    let (parts, lost) = match control {
        Ok(parts) => (parts, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    let seen = watch.get();
    let report = Report::of(&seen.view, &seen.all_ports(), &parts, &seen.interfaces, Some(time));
    let json = args.json;
    output::in_time(move || match json {
        true => {
            let text = serde_json::to_string_pretty(&report).map_err(Failure::other)?;
            report_to.put(format_args!("{text}\n"))
        }
        false => {
            report.errors.iter().for_each(|error| note!("warning: {error}"));
            report_to.put(format_args!("{}", report.text()))
        }
    })?;
    ended.map_err(Failure::other)?;
    lost.map_or(Ok(()), |text| Err(Failure::other(text)))
}

/// What the HTTP server asks the control loop for.
fn sources(events: &mpsc::SyncSender<Event>) -> Sources {
    let (for_text, for_rows) = (Mutex::new(events.clone()), Mutex::new(events.clone()));
    let to = |events: &Mutex<mpsc::SyncSender<Event>>| {
        events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    };
    let metrics = move || {
        let (answer, text) = mpsc::channel();
        let asked = to(&for_text).send(Event::Metrics(answer));
        asked.ok().and_then(|()| text.recv().ok()).unwrap_or_default()
    };
    let snapshot = move || {
        let (answer, responses) = mpsc::channel();
        let request = Request::show("snapshot").asked(false);
        to(&for_rows).send(Event::Request(request, answer)).ok()?;
        let whole = control::api::answer::json(responses.iter().collect())?;
        serde_json::to_string(&whole).ok()
    };
    let failed = |why: &str| tracing::error!("metrics: the server ended: {why}; it starts again");
    Sources { metrics: Arc::new(metrics), snapshot: Arc::new(snapshot), failed: Arc::new(failed) }
}

/// Sends when it is dropped.
struct OnDrop(mpsc::Sender<()>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<std::thread::JoinHandle<T>, Failure> {
    std::thread::Builder::new().name(name.into()).spawn(work).map_err(Failure::other)
}

/// What runs, in words.
fn status(seen: &SeenPath) -> String {
    let number = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let (ports, workers) = (seen.interfaces.ports().count(), seen.view.workers.len());
    format!("{}, {}", number(ports, "port"), number(workers, "worker"))
}

/// What the service manager hears of the control loop.
fn on_phase(service: Arc<Service>, watch: Watch) -> Box<dyn FnMut(Phase) + Send> {
    let mut watchdog = Watchdog::from_environment();
    Box::new(move |phase| match phase {
        Phase::Turn => {
            if let Some(watchdog) = &mut watchdog {
                let turns =
                    |w: &Arc<engine::WorkerCounters>| w.busy_turns.get() + w.idle_turns.get();
                watchdog.turn(&service, watch.view().workers.iter().map(turns));
            }
        }
        Phase::Reloading => service.reloading(),
        Phase::Reloaded { good } => service.reloaded(&status(&watch.get()), good),
    })
}

/// Waits for the end: a signal, `ctl stop`, the time, or a worker that died.
fn wait(stopped: &mpsc::Receiver<()>, duration: Option<Duration>, engine: &Running<LiveEngine>) {
    let deadline = duration.map(|d| Instant::now() + d);
    loop {
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        let wait = left.unwrap_or(Duration::MAX).min(Duration::from_millis(500));
        match stopped.recv_timeout(wait) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let is_over = engine.is_over(LiveEngine::is_finished);
        if left.is_some_and(|left| left.is_zero()) || is_over {
            return;
        }
    }
}

/// Stops the engine, if there is one.
fn end(engine: &Running<LiveEngine>) -> Result<(), String> {
    let stopped = engine.end()?.map(|engine| engine.stop(DRAIN));
    stopped.unwrap_or(Ok(())).map_err(|panic| format!("a worker died: {panic}"))
}

/// Names of interfaces, also of those that a reload adds.
struct Names {
    known: Interfaces,
    newest: Box<dyn Fn() -> Interfaces + Send>,
}

impl Names {
    fn of(watch: &Watch) -> Self {
        let (known, watch) = (watch.interfaces(), watch.clone());
        Self { known, newest: Box::new(move || watch.interfaces()) }
    }

    /// The name of an interface; `-` for none at all.
    fn name(&mut self, number: u16) -> &str {
        if number != chunk::PORT_NONE && usize::from(number) >= self.known.count() {
            self.known = (self.newest)();
        }
        self.known.name(number)
    }
}

fn serve(
    config: &control::config::Config,
    watch: &Watch,
    events: &Events,
) -> Result<Server, Failure> {
    // The sender is not shared by threads: each connection clones it under a lock.
    let events = Mutex::new(events.clone());
    let watch = watch.clone();
    let handler = move |asked: Asked, responder: &mut dyn Responder| match asked.request {
        Request::Trace { count, filter, duration_s } => {
            trace(&watch, responder, count, &filter, duration_s);
        }
        Request::Capture { at, filter, count, duration_s } => {
            capture(&watch, responder, &at, &filter, count, duration_s);
        }
        _ => {
            let events = events.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let (answer, answers) = mpsc::channel();
            if events.send(Event::Request(asked, answer)).is_err() {
                let gone = Response::error(ErrorKind::Internal, "the instance is stopping");
                let _ = responder.send(gone);
                return;
            }
            let mut is_answered = false;
            for response in answers {
                is_answered = true;
                if responder.send(response).is_err() {
                    return;
                }
            }
            if !is_answered {
                let gone = Response::error(ErrorKind::Internal, "the instance is stopping");
                let _ = responder.send(gone);
            }
        }
    };
    Server::bind(&config.system.socket, handler).map_err(Failure::other)
}

/// The filter of a request, or the answer that it is none.
fn frame_filter(text: &str) -> Result<Option<FrameFilter>, Box<Response>> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let filter = Filter::parse(text)
        .map_err(|error| Response::error(ErrorKind::BadRequest, format!("`{text}`: {error}")))
        .map_err(Box::new)?;
    Ok(Some(Arc::new(move |packet: &Packet| {
        let d = packet::decode::decode(packet.data(), packet.frame_len());
        filter.matches_packet(&d, packet)
    })))
}

/// Whether a frame has these VLANs and no others. A priority tag in front (VLAN 0) does not count.
fn has_tags(frame: &[u8], vlans: &[u16]) -> bool {
    let d = packet::decode::decode(frame, frame.len());
    let ids = d.vlan_tci.map(|tci| tci & 0xfff);
    let own = &ids[..ids.len().min(d.vlan_count.into())];
    own == vlans || own.strip_prefix(&[0]) == Some(vlans)
}

/// Frames of a capture that may wait for its client: 8.5 MB.
const CAPTURE_FRAMES: usize = 4096;

/// How often a stream looks whether its client is still there.
const LOOK: Duration = Duration::from_millis(100);

fn trace(
    watch: &Watch,
    responder: &mut dyn Responder,
    count: u32,
    filter: &str,
    duration: Option<Duration>,
) {
    let filter = match frame_filter(filter) {
        Ok(filter) => filter,
        Err(response) => return drop(responder.send(*response)),
    };
    let (sender, reports) = mpsc::sync_channel(64);
    let mut names = Names::of(watch);
    let hooks = watch.view().hooks.clone();
    let _guard = hooks.trace(Trace { filter, left: AtomicU64::new(count.into()), sender });
    let deadline = duration.map(|d| Instant::now() + d);
    let mut left = count;
    while left > 0 && deadline.is_none_or(|d| Instant::now() < d) {
        match reports.recv_timeout(LOOK) {
            Ok(events) => {
                left -= 1;
                let steps = events.into_iter().map(|event| step(event, &mut names)).collect();
                if responder.send(Response::Trace { steps }).is_err() {
                    return;
                }
            }
            Err(_) if responder.is_closed() => return,
            Err(_) => {}
        }
    }
}

/// What a trace saw, as a row, with names for the numbers of ports.
fn step(event: TraceEvent, names: &mut Names) -> TraceStep {
    let (stage, verdict, detail) = match event {
        TraceEvent::Received { port, frame_len, offload } => {
            let frame = engine::frame_text(frame_len, offload);
            let detail = format!("{}, {frame}", names.name(port));
            ("rx".to_owned(), String::new(), detail)
        }
        TraceEvent::Stage { name, detail, verdict } => {
            (name.to_owned(), named(verdict, names), detail)
        }
        TraceEvent::Emitted { frame_len, verdict } => {
            (format!("emitted {frame_len} bytes"), String::new(), named(verdict, names))
        }
        TraceEvent::End { verdict } => ("end".to_owned(), named(verdict, names), String::new()),
    };
    TraceStep { stage, verdict, detail }
}

/// A verdict with the name of its port.
fn named(verdict: Verdict, names: &mut Names) -> String {
    match verdict.kind() {
        VerdictKind::Forward => format!("forward({})", names.name(verdict.port())),
        VerdictKind::Host => format!("host({})", names.name(verdict.port())),
        _ => verdict.to_string(),
    }
}

fn capture(
    watch: &Watch,
    responder: &mut dyn Responder,
    at: &CaptureAt,
    filter: &str,
    count: Option<u64>,
    duration: Option<Duration>,
) {
    let SeenPath { view, interfaces, .. } = &watch.get();
    let mut names = Names::of(watch);
    let mut tagged = None;
    // A subinterface's packets pass its port, with its tags.
    let mut port = |name: &str| {
        interfaces.number(name).map(|number| {
            tagged = interfaces.tagged(number).map(|(port, vlans)| (number, port, vlans.to_vec()));
            CapturePoint::Port(tagged.as_ref().map_or(number, |(_, port, _)| *port))
        })
    };
    let stages = stage_names(view);
    let stage = |name: &str| stages.iter().position(|own| own == name).map(CapturePoint::Stage);
    let point = match at {
        CaptureAt::Drops => Some(CapturePoint::Drops),
        CaptureAt::Dumps => Some(CapturePoint::Dumps),
        CaptureAt::Port(name) => port(name),
        CaptureAt::Stage(name) => stage(name),
        CaptureAt::Named(name) => stage(name).or_else(|| port(name)),
    };
    let Some(point) = point else {
        let named = match at {
            CaptureAt::Port(name) | CaptureAt::Stage(name) | CaptureAt::Named(name) => {
                name.as_str()
            }
            CaptureAt::Drops | CaptureAt::Dumps => "",
        };
        let message = format!(
            "unknown capture point `{named}`: expected a port ({}), a stage ({}), drops or dumps",
            interfaces.list(),
            stages.join(", ")
        );
        return drop(responder.send(Response::error(ErrorKind::NotFound, message)));
    };
    let filter = match frame_filter(filter) {
        Ok(filter) => filter,
        Err(response) => return drop(responder.send(*response)),
    };
    let own = tagged.as_ref().map(|(number, ..)| *number);
    let filter = match tagged {
        None => filter,
        Some((.., vlans)) => Some(Arc::new(move |packet: &Packet| {
            has_tags(packet.data(), &vlans) && filter.as_ref().is_none_or(|filter| filter(packet))
        }) as FrameFilter),
    };
    let mut frames = match view.hooks.capture(Capture { point, filter, frames: CAPTURE_FRAMES }) {
        Ok(reader) => reader,
        Err(error) => {
            let message = format!("starting the capture: {error}");
            return drop(responder.send(Response::error(ErrorKind::Internal, message)));
        }
    };
    let deadline = duration.map(|d| Instant::now() + d);
    let mut left = count.unwrap_or(u64::MAX);
    while left > 0 && deadline.is_none_or(|d| Instant::now() < d) {
        match frames.recv_timeout(LOOK) {
            Some(frame) => {
                left -= 1;
                let response = Response::Frame(Frame {
                    time_ns: frame.time_ns,
                    port: names.name(own.unwrap_or(frame.port)).to_owned(),
                    sent: frame.outgoing,
                    original_len: frame.len as u32,
                    comment: frame.reason.map(|r| r.name().to_owned()),
                    bytes: frame.bytes,
                });
                if responder.send(response).is_err() {
                    return;
                }
            }
            None if responder.is_closed() => return,
            None => {}
        }
    }
    if frames.lost() > 0 {
        tracing::warn!("a capture lost {} frames: the client reads too slowly", frames.lost());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunk::Offload;

    #[test]
    fn names_of_ports_that_are_gone_count() {
        let of = |ports: std::ops::Range<u32>| {
            let text: String = ports.map(|n| format!("[port.p{n}]\n")).collect();
            control::config::parse(&text, &pipelines::known()).unwrap().0
        };
        let mut interfaces = Interfaces::of(&of(0..1));
        for first in (1..4096).step_by(1365) {
            interfaces = interfaces.after(&of(first..first + 1365)).unwrap();
        }
        let refused = interfaces.after(&of(4096..4097)).unwrap_err();
        assert!(refused.starts_with("4097 names of ports"), "{refused}");
        assert!(refused.contains("those that are gone count"), "{refused}");
        assert_eq!(interfaces.after(&of(0..1)).unwrap().number("p0"), Some(0));
    }

    #[test]
    fn a_trace_has_names_for_ports_and_leaves_other_text_alone() {
        let text = "[port.wan]\n[port.lan]\n";
        let (config, _) = control::config::parse(text, &pipelines::known()).unwrap();
        let interfaces = Interfaces::of(&config);
        let number = |name| interfaces.number(name).unwrap();
        // The trace has begun before the second port was there.
        let (before, _) = control::config::parse("[port.wan]\n", &pipelines::known()).unwrap();
        let newest = interfaces.clone();
        let mut names =
            Names { known: Interfaces::of(&before), newest: Box::new(move || newest.clone()) };
        let (wan, lan) = (number("wan"), number("lan"));
        let rule = "rule port 0: accept → port 1".to_owned();
        let forward = Verdict::forward(lan);
        let dropped = Verdict::drop(chunk::reasons::TX_FULL);
        let received = |frame_len, offload| TraceEvent::Received { port: wan, frame_len, offload };
        let events = [
            (received(98, Offload::NONE), ["rx", "", "wan, 98 bytes"]),
            (received(98, Offload::CHECKSUM), ["rx", "", "wan, 98 bytes, checksum open"]),
            (
                received(64_206, Offload::segments(1448).unwrap()),
                ["rx", "", "wan, 64206 bytes in segments of 1448"],
            ),
            (
                TraceEvent::Stage { name: "emitter", detail: rule, verdict: Verdict::NEXT },
                ["emitter", "next", "rule port 0: accept → port 1"],
            ),
            (
                TraceEvent::Stage { name: "route", detail: String::new(), verdict: forward },
                ["route", "forward(lan)", ""],
            ),
            (
                TraceEvent::Emitted { frame_len: 60, verdict: Verdict::host(wan) },
                ["emitted 60 bytes", "", "host(wan)"],
            ),
            (TraceEvent::End { verdict: dropped }, ["end", "drop(tx_full)", ""]),
        ];
        for (event, expected) in events {
            let TraceStep { stage, verdict, detail } = step(event, &mut names);
            assert_eq!([&*stage, &*verdict, &*detail], expected);
        }
    }
}
