//! `shadeline ctl`: the control socket's client.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use control::api::{CaptureAt, Client, ClientError, Frame, Request, Response, Show, table};
use control::firewall::{Conditions, Place, Rule};
use io::capture::{CaptureWriter, Seen};

use crate::cli::{
    ClearWhat, CtlArgs, CtlCommand, NameCommand, RouteCommand, RuleArgs, RuleCommand, ShowWhat,
};
use crate::failure::Failure;
use crate::pipelines;

/// How long a router may think about a request that is no stream.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(args: &CtlArgs) -> Result<(), Failure> {
    let client = Client::connect(&args.socket).map_err(Failure::other)?;
    match &args.command {
        CtlCommand::Show { what } => call(client, &Request::Show { what: show(*what) }, args.json),
        CtlCommand::Route(RouteCommand::Add(route)) => {
            let (prefix, next_hop) = (route.prefix, route.next_hop.clone());
            call(client, &Request::RouteAdd { prefix, next_hop }, args.json)
        }
        CtlCommand::Route(RouteCommand::Replace(route)) => {
            let (prefix, next_hop) = (route.prefix, route.next_hop.clone());
            call(client, &Request::RouteReplace { prefix, next_hop }, args.json)
        }
        CtlCommand::Route(RouteCommand::Del { prefix }) => {
            call(client, &Request::RouteDel { prefix: *prefix }, args.json)
        }
        CtlCommand::Route(RouteCommand::Get { address }) => {
            call(client, &Request::RouteGet { address: *address }, args.json)
        }
        CtlCommand::Name(command) => call(client, &name(command), args.json),
        CtlCommand::Rule(command) => call(client, &rule(command)?, args.json),
        CtlCommand::Clear { what: ClearWhat::Counters, port: None, vlan: None } => {
            call(client, &Request::ClearCounters, args.json)
        }
        CtlCommand::Clear { what: ClearWhat::Counters, .. } => {
            Err(Failure::usage("--port and --vlan choose stations: `ctl clear macs`"))
        }
        CtlCommand::Clear { what: ClearWhat::Macs, port, vlan } => {
            let request = Request::ClearMacs { port: port.clone(), vlan: *vlan };
            call(client, &request, args.json)
        }
        CtlCommand::Reload => call(client, &Request::Reload, args.json),
        CtlCommand::Stop => call(client, &Request::Stop, args.json),
        CtlCommand::Trace { count, duration, filter } => {
            let filter = filter.join(" ");
            let request = Request::Trace { count: *count, filter, duration_s: Some(*duration) };
            trace(client, &request, args.json)
        }
        CtlCommand::Capture { at, write, count, duration, filter } => {
            let request = Request::Capture {
                at: place(at),
                filter: filter.join(" "),
                count: *count,
                duration_s: *duration,
            };
            capture(client, request, write)
        }
    }
}

fn name(command: &NameCommand) -> Request {
    match command {
        NameCommand::Add { prefix, faces } => {
            Request::NameAdd { prefix: prefix.clone(), faces: faces.clone() }
        }
        NameCommand::Del { prefix } => Request::NameDel { prefix: prefix.clone() },
        NameCommand::Get { name } => Request::NameGet { name: name.clone() },
    }
}

fn rule(command: &RuleCommand) -> Result<Request, Failure> {
    Ok(match command {
        RuleCommand::Add { rule, before, after, first } => {
            let place = match (before, after, first) {
                (Some(name), _, _) => Place::Before(name.clone()),
                (_, Some(name), _) => Place::After(name.clone()),
                (_, _, true) => Place::First,
                _ => Place::Last,
            };
            Request::RuleAdd { rule: rule_of(rule, &rule.name)?, place }
        }
        RuleCommand::Replace { file: Some(file), rule } => {
            let path = std::path::absolute(file).map_err(|error| Failure::file(file, error))?;
            Request::RuleReplaceAll { file: path, action: rule.action.clone() }
        }
        RuleCommand::Replace { file: None, rule } => {
            Request::RuleReplace { rule: rule_of(rule, &rule.name)? }
        }
        RuleCommand::Del { name } => Request::RuleDel { name: name.clone() },
        RuleCommand::Show { name } => Request::RuleShow { name: name.clone() },
    })
}

fn rule_of(args: &RuleArgs, name: &Option<String>) -> Result<Rule, Failure> {
    let name = name.clone().ok_or_else(|| Failure::usage("a rule needs a name"))?;
    let action = args.action.clone();
    let action = action.ok_or_else(|| Failure::usage("a rule needs --action"))?;
    let conditions = Conditions {
        interface: args.interface.as_deref().map(Into::into),
        src: args.src,
        dst: args.dst,
        proto: args.proto,
        sport: args.sport,
        dport: args.dport,
        tcp_flags: args.tcp_flags,
        icmp_type: args.icmp_type,
        icmp_code: args.icmp_code,
        fragment: args.fragment,
    };
    conditions.check().map_err(Failure::usage)?;
    Ok(Rule { name, conditions, action })
}

fn show(what: ShowWhat) -> Show {
    match what {
        ShowWhat::Interfaces => Show::Interfaces,
        ShowWhat::Queues => Show::Queues,
        ShowWhat::Routes => Show::Routes,
        ShowWhat::Neighbours => Show::Neighbours,
        ShowWhat::Macs => Show::Macs,
        ShowWhat::Faces => Show::Faces,
        ShowWhat::Names => Show::Names,
        ShowWhat::Stages => Show::Stages,
        ShowWhat::Drops => Show::Drops,
        ShowWhat::Runtime => Show::Runtime,
    }
}

/// A stage's name is a stage, `drops` is drops, `dumps` is dumps, anything else is meant to be a port.
fn place(at: &str) -> CaptureAt {
    if at == "drops" {
        CaptureAt::Drops
    } else if at == "dumps" {
        CaptureAt::Dumps
    } else if pipelines::stages().any(|stage| stage == at) {
        CaptureAt::Stage(at.to_owned())
    } else {
        CaptureAt::Port(at.to_owned())
    }
}

/// One request, its answer printed. The pieces of a long table become one.
fn call(mut client: Client, request: &Request, json: bool) -> Result<(), Failure> {
    client.set_timeout(Some(PATIENCE)).map_err(Failure::other)?;
    let responses = client.call(request).map_err(Failure::other)?;
    let whole = responses.into_iter().reduce(join);
    let out = std::io::stdout();
    let mut out = BufWriter::new(out.lock());
    let text = match (&whole, json) {
        (Some(response), true) => {
            serde_json::to_string_pretty(&rows_only(response)).map_err(Failure::other)?
        }
        (Some(Response::Done { message }), false) => message.clone(),
        (Some(response), false) => table::response(response).unwrap_or_default(),
        (None, _) => String::new(),
    };
    if !text.is_empty() {
        // A reader that went away (`| head`) is no failure.
        let _ = writeln!(out, "{}", text.trim_end());
    }
    Ok(())
}

/// Programs get the rows; which table they are of, they asked themselves.
fn rows_only(response: &Response) -> serde_json::Value {
    let mut value = serde_json::to_value(response).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.remove("response");
        if let Some(rows) = object.remove("rows") {
            return rows;
        }
    }
    value
}

fn join(mut first: Response, second: Response) -> Response {
    match (&mut first, second) {
        (Response::Interfaces { rows }, Response::Interfaces { rows: more }) => rows.extend(more),
        (Response::Queues { rows }, Response::Queues { rows: more }) => rows.extend(more),
        (Response::Routes { rows }, Response::Routes { rows: more }) => rows.extend(more),
        (Response::Neighbours { rows }, Response::Neighbours { rows: more }) => rows.extend(more),
        (Response::Macs { rows }, Response::Macs { rows: more }) => rows.extend(more),
        (Response::Faces { rows }, Response::Faces { rows: more }) => rows.extend(more),
        (Response::Names { rows }, Response::Names { rows: more }) => rows.extend(more),
        (Response::Rules { rows }, Response::Rules { rows: more }) => rows.extend(more),
        (Response::Stages { rows }, Response::Stages { rows: more }) => rows.extend(more),
        (Response::Drops { rows }, Response::Drops { rows: more }) => rows.extend(more),
        (_, second) => return second,
    }
    first
}

fn trace(client: Client, request: &Request, json: bool) -> Result<(), Failure> {
    let mut seen = 0;
    client
        .stream(request, |response| {
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
        eprintln!("no packet passed the filter in that time");
    }
    Ok(())
}

fn capture(client: Client, request: Request, path: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::file(path, error);
    let file = BufWriter::new(File::create(path).map_err(failed)?);
    let mut writer = CaptureWriter::with_interfaces(file).map_err(failed)?;
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
    let ended = client.stream(&request, |response| {
        if let Response::Frame(Frame { time_ns, port, sent, bytes, comment, .. }) = response {
            let write = || {
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
    if ports.is_empty() {
        // A capture of nothing is a capture, too.
        writer.interface("").map_err(failed)?;
    }
    writer.flush().map_err(failed)?;
    if let Some(error) = failure {
        return Err(failed(error));
    }
    match ended {
        // Hanging up is how an endless capture ends.
        Err(ClientError::HungUp(_) | ClientError::Io { .. })
            if stopped.load(std::sync::atomic::Ordering::Relaxed) => {}
        other => other.map_err(Failure::other)?,
    }
    eprintln!("{frames} packets written to {}", path.display());
    Ok(())
}
