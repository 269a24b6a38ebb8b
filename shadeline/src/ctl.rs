//! `shadeline ctl`: the control socket's client. Without a command it is a [`shell`].

mod complete;
mod shell;

use std::io::BufWriter;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use control::api::{
    CaptureAt, Client, ClientError, Frame, Request, Response, TraceStep, answer, place,
};
use files::output;
use io::capture::{CaptureWriter, Seen};

use crate::cli::{ClearCommand, CoreCommand, CtlArgs, CtlCommand, FlowsCommand};
use crate::failure::Failure;
use crate::output::{line, note, put, say};
use crate::top::Subject;

/// How long the running program may work on a request that is not a stream.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How long `stop` waits for the end of the instance, which sends the packets that it has.
const END: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &CtlArgs) -> Result<(), Failure> {
    let Some(command) = &args.command else { return shell::run(args) };
    execute(command, args.socket.as_deref(), args.json, By::Itself)
}

/// Who executes a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// The program that was started for it: SIGINT ends it.
    Itself,
    /// A shell, which goes on: SIGINT ends the command.
    Shell,
}

/// Executes one command over a connection of its own.
fn execute(command: &CtlCommand, socket: Option<&Path>, json: bool, by: By) -> Result<(), Failure> {
    let request = match command {
        CtlCommand::Declared(kind, matches) => kind.request(matches).map_err(Failure::usage)?,
        CtlCommand::Show(table, matches) => table.request(matches).map_err(Failure::usage)?,
        CtlCommand::ShowOther(name) => Request::show(name),
        CtlCommand::Core(command) => request(command),
    };
    let client = connect(socket)?;
    match command {
        CtlCommand::Core(CoreCommand::Capture { write, .. }) => {
            return capture(client, request, write);
        }
        CtlCommand::Core(CoreCommand::Top { interval, once }) if !json => {
            return crate::top::run(client, *interval, *once, Subject::Instance);
        }
        CtlCommand::Core(CoreCommand::Flows(FlowsCommand::Top { interval, once })) if !json => {
            return crate::top::run(client, *interval, *once, Subject::Flows);
        }
        _ => {}
    }
    let hang_up = (by == By::Shell).then(|| HangUp::on_signals(&client)).transpose()?;
    let done = match command {
        CtlCommand::Core(CoreCommand::Trace { .. }) => trace(client, request, json),
        CtlCommand::Core(CoreCommand::Save { file: Some(file), .. }) => save(client, file),
        CtlCommand::Core(CoreCommand::Stop) => stop(client, request, json),
        _ => call(client, request, json),
    };
    match hang_up.is_some_and(HangUp::end) {
        true => Err(Failure::interrupted(signal_hook::consts::SIGINT)),
        false => done,
    }
}

fn connect(socket: Option<&Path>) -> Result<Client, Failure> {
    socket.map_or_else(place::connect, Client::connect).map_err(Failure::other)
}

/// Hangs up when SIGINT or SIGTERM comes: that is how an endless answer ends.
struct HangUp {
    handle: signal_hook::iterator::Handle,
    listener: std::thread::JoinHandle<()>,
    came: Arc<AtomicBool>,
}

impl HangUp {
    fn on_signals(client: &Client) -> Result<Self, Failure> {
        let hang_up = client.hang_up_handle().map_err(Failure::other)?;
        let came = Arc::new(AtomicBool::new(false));
        let mut signals = signal_hook::iterator::Signals::new([
            signal_hook::consts::SIGINT,
            signal_hook::consts::SIGTERM,
        ])
        .map_err(Failure::other)?;
        let (handle, noted) = (signals.handle(), came.clone());
        let listener = std::thread::spawn(move || {
            if signals.forever().next().is_some() {
                noted.store(true, Ordering::Relaxed);
                let _ = hang_up.shutdown(std::net::Shutdown::Both);
            }
        });
        Ok(Self { handle, listener, came })
    }

    /// Listens no more; whether a signal came.
    fn end(self) -> bool {
        self.handle.close();
        let _ = self.listener.join();
        self.came.load(Ordering::Relaxed)
    }
}

fn request(command: &CoreCommand) -> Request {
    match command {
        CoreCommand::Clear(ClearCommand::Counters) => Request::ClearCounters,
        CoreCommand::Reload => Request::Reload,
        CoreCommand::Top { .. } => Request::show("snapshot"),
        CoreCommand::Flows(FlowsCommand::Top { .. }) => Request::show("flows"),
        CoreCommand::Diff | CoreCommand::Save { file: Some(_), .. } => Request::Diff,
        CoreCommand::Save { file: None, force } => Request::Save { force: *force },
        CoreCommand::Stop => Request::Stop,
        CoreCommand::Trace { count, duration, filter } => {
            Request::Trace { count: *count, filter: filter.join(" "), duration_s: Some(*duration) }
        }
        CoreCommand::Capture { at, count, duration, filter, .. } => Request::Capture {
            at: place(at),
            filter: filter.join(" "),
            count: *count,
            duration_s: *duration,
        },
    }
}

/// Whether another name is a stage's or a port's, the running program decides.
fn place(at: &str) -> CaptureAt {
    match at {
        "drops" | "drop" => CaptureAt::Drops,
        "dumps" | "dump" => CaptureAt::Dumps,
        name => CaptureAt::Named(name.to_owned()),
    }
}

/// One request, its answer printed.
fn call(mut client: Client, request: Request, json: bool) -> Result<(), Failure> {
    client.set_timeout(Some(PATIENCE)).map_err(Failure::other)?;
    let responses = client.call(&request.asked(!json)).map_err(Failure::other)?;
    let text = if json {
        let whole = answer::json(responses).map(|whole| serde_json::to_string_pretty(&whole));
        whole.transpose().map_err(Failure::other)?.unwrap_or_default()
    } else {
        answer::text(responses)
    };
    if !text.is_empty() {
        say!("{}", text.trim_end())?;
    }
    Ok(())
}

/// Stops the instance and waits for its end: until then its sockets, interfaces and files are in use.
fn stop(client: Client, request: Request, json: bool) -> Result<(), Failure> {
    let process = client.process();
    call(client, request, json)?;
    match process.filter(|process| !process.wait(END)) {
        Some(process) => Err(Failure::other(format!(
            "the instance (pid {}) is stopping, but it has not ended within {} s",
            process.pid,
            END.as_secs()
        ))),
        None => Ok(()),
    }
}

/// Writes the changed configuration into a file of the user's.
fn save(mut client: Client, path: &Path) -> Result<(), Failure> {
    client.set_timeout(Some(PATIENCE)).map_err(Failure::other)?;
    let responses = client.call(&Request::Diff.asked(false)).map_err(Failure::other)?;
    let whole = answer::json(responses).unwrap_or_default();
    let Some(text) = whole.get("text").and_then(serde_json::Value::as_str) else {
        return Err(Failure::other("invalid answer: does the instance have another version?"));
    };
    crate::output::write(path, |file| file.write_all(text.as_bytes()))?;
    let left_out = whole.get("left_out").and_then(serde_json::Value::as_array);
    for what in left_out.into_iter().flatten().filter_map(serde_json::Value::as_str) {
        note!("not saved: {what}");
    }
    if !files::is_standard(path) {
        note!("saved to {}", output::name(path));
    }
    Ok(())
}

fn trace(client: Client, request: Request, json: bool) -> Result<(), Failure> {
    let (mut seen, mut printed) = (0, Ok(()));
    client
        .stream(&request.asked(!json), |response| {
            if let Response::Trace { steps } = &response {
                seen += 1;
                printed = print_trace(seen, steps, json);
            }
            if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .map_err(Failure::other)?;
    printed?;
    if seen == 0 {
        note!("no packet matched the filter in that time");
    }
    Ok(())
}

/// Prints the way of a packet.
fn print_trace(number: u64, steps: &[TraceStep], json: bool) -> Result<(), Failure> {
    if json {
        return say!("{}", serde_json::to_string(steps).map_err(Failure::other)?);
    }
    let mut text = format!("packet {number}\n");
    for step in steps {
        line!(&mut text, "  {:<10} {:<24} {}", step.stage, step.verdict, step.detail);
    }
    put!("{text}")
}

fn capture(client: Client, request: Request, path: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::output(path, &error);
    let is_standard = files::is_standard(path);
    let is_new = !is_standard && !path.exists();
    let file = match is_standard {
        true => output::create_capture(path),
        false => output::append(path),
    };
    let file = file.map_err(failed)?;
    let is_file = !is_standard && file.metadata().map_err(failed)?.is_file();
    let mut file = Some(file);
    // What is in the file stays there until the instance has accepted the request. A named pipe is opened once: its
    // reader takes the end of the first writer for the end.
    let mut open = || {
        let file = file.take().ok_or_else(|| std::io::Error::other("opened twice"))?;
        if is_file {
            file.set_len(0)?;
        }
        CaptureWriter::with_interfaces(BufWriter::new(file))
    };
    let mut opened = None;
    let hang_up = HangUp::on_signals(&client)?;
    let (mut frames, mut failure) = (0u64, None);
    let ended = client.stream(&request.asked(false), |response| {
        if let Response::Frame(Frame { time_ns, port, sent, bytes, comment, .. }) = response {
            let mut write = || {
                let writer = match &mut opened {
                    Some(writer) => writer,
                    none => none.insert(open()?),
                };
                let interface = writer.interface(&port)?;
                let seen = Seen { interface, outgoing: sent };
                writer.write_from(seen, &bytes, time_ns, comment.as_deref())?;
                // The program behind a pipe shows a packet as soon as it has come.
                if is_file { Ok(()) } else { writer.flush() }
            };
            match write() {
                Ok(()) => frames += 1,
                Err(error) => {
                    failure = Some(error);
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    });
    let stopped = hang_up.end();
    if let Some(error) = failure {
        return Err(failed(error));
    }
    let ended = match ended {
        // Hanging up is how an endless capture ends.
        Err(ClientError::HungUp(_) | ClientError::Io { .. }) if stopped => Ok(()),
        other => other,
    };
    if let (Err(error), None) = (&ended, &opened) {
        if is_new {
            let _ = std::fs::remove_file(path);
        }
        return Err(Failure::other(error));
    }
    let mut writer = opened.map_or_else(open, Ok).map_err(failed)?;
    if frames == 0 {
        // A capture of nothing is a capture, too.
        writer.interface("").map_err(failed)?;
    }
    writer.flush().map_err(failed)?;
    ended.map_err(Failure::other)?;
    note!("{frames} packets written to {}", output::name(path));
    Ok(())
}
