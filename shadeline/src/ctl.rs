//! `shadeline ctl`: the control socket's client.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use control::api::{CaptureAt, Client, ClientError, Frame, Request, Response, answer, place};
use io::capture::{CaptureWriter, Seen};

use crate::cli::{ClearCommand, CoreCommand, CtlArgs, CtlCommand};
use crate::failure::Failure;

/// How long the running program may work on a request that is not a stream.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(args: &CtlArgs) -> Result<(), Failure> {
    let request = match &args.command {
        CtlCommand::Declared(kind, matches) => kind.request(matches).map_err(Failure::usage)?,
        CtlCommand::Core(command) => request(command),
    };
    let client = args.socket.as_ref().map_or_else(place::connect, Client::connect);
    let client = client.map_err(Failure::other)?;
    match &args.command {
        CtlCommand::Core(CoreCommand::Trace { .. }) => trace(client, request, args.json),
        CtlCommand::Core(CoreCommand::Capture { write, .. }) => capture(client, request, write),
        _ => call(client, request, args.json),
    }
}

fn request(command: &CoreCommand) -> Request {
    match command {
        CoreCommand::Show { what } => Request::Show { what: what.clone() },
        CoreCommand::Clear(ClearCommand::Counters) => Request::ClearCounters,
        CoreCommand::Reload => Request::Reload,
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
        // A reader that went away (`| head`) is not a failure.
        let _ = writeln!(std::io::stdout().lock(), "{}", text.trim_end());
    }
    Ok(())
}

fn trace(client: Client, request: Request, json: bool) -> Result<(), Failure> {
    let mut seen = 0;
    client
        .stream(&request.asked(!json), |response| {
            if let Response::Trace { steps } = &response {
                seen += 1;
                if json {
                    println!("{}", serde_json::to_string(steps).unwrap_or_default());
                } else {
                    println!("packet {seen}");
                    for step in steps {
                        println!("  {:<10} {:<24} {}", step.stage, step.verdict, step.detail);
                    }
                }
            }
            ControlFlow::Continue(())
        })
        .map_err(Failure::other)?;
    if seen == 0 {
        eprintln!("no packet matched the filter in that time");
    }
    Ok(())
}

fn capture(client: Client, request: Request, path: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::file(path, error);
    // What is in the file stays there until the instance has accepted the request.
    let is_new = !path.exists();
    File::options().append(true).create(true).open(path).map_err(failed)?;
    let open = || CaptureWriter::with_interfaces(BufWriter::new(File::create(path)?));
    let mut opened = None;
    let mut ports: Vec<String> = Vec::new();
    let hang_up = client.hang_up_handle().map_err(Failure::other)?;
    let stopped = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let interrupted = stopped.clone();
    let mut signals = signal_hook::iterator::Signals::new([
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
    ])
    .map_err(Failure::other)?;
    let signal_handle = signals.handle();
    let listener = std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            interrupted.store(true, std::sync::atomic::Ordering::Relaxed);
            let _ = hang_up.shutdown(std::net::Shutdown::Both);
        }
    });
    let (mut frames, mut failure) = (0u64, None);
    let ended = client.stream(&request.asked(false), |response| {
        if let Response::Frame(Frame { time_ns, port, sent, bytes, comment, .. }) = response {
            let write = || {
                let writer = match &mut opened {
                    Some(writer) => writer,
                    none => none.insert(open()?),
                };
                let known = ports.iter().position(|known| *known == port);
                if known.is_none() {
                    writer.interface(&port)?;
                    ports.push(port);
                }
                let interface = known.unwrap_or(ports.len() - 1) as u32;
                let seen = Seen { interface, outgoing: sent };
                writer.write_from(seen, &bytes, time_ns, comment.as_deref())
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
    signal_handle.close();
    let _ = listener.join();
    if let Some(error) = failure {
        return Err(failed(error));
    }
    let ended = match ended {
        // Hanging up is how an endless capture ends.
        Err(ClientError::HungUp(_) | ClientError::Io { .. })
            if stopped.load(std::sync::atomic::Ordering::Relaxed) =>
        {
            Ok(())
        }
        other => other,
    };
    if let (Err(error), None) = (&ended, &opened) {
        if is_new {
            let _ = std::fs::remove_file(path);
        }
        return Err(Failure::other(error));
    }
    let mut writer = opened.map_or_else(open, Ok).map_err(failed)?;
    if ports.is_empty() {
        // A capture of nothing is a capture, too.
        writer.interface("").map_err(failed)?;
    }
    writer.flush().map_err(failed)?;
    ended.map_err(Failure::other)?;
    eprintln!("{frames} packets written to {}", path.display());
    Ok(())
}
