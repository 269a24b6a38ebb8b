//! `bench l7`: `shadeline l7` over one capture, beside `ndpiReader` and `tshark`; and how soon labels are known, over real captures.
//!
//! ```text
//!  first packets of HTTP connections in a file ─┬▶ shadeline l7 --json, 1 worker: each is http
//!                                               ├▶ ndpiReader, where it is installed: as many flows
//!                                               └▶ tshark over a twentieth of them, where it is installed: each is HTTP
//!  captures of a folder ─▶ shadeline l7 --json: packets with payload until a label is settled, of each flow
//! ```
//!
//! Time is that of the whole process, from its start to its end, on processors: that of all its threads, and of the kernel for
//! them. So a rate is what one core gives, and others on the machine do not count. The file is in the page cache. All of them keep
//! flows and say what application each one has; `shadeline l7` also puts streams together until it knows, reads the host, and
//! prints a line for each flow. `tshark` dissects every packet.

use std::path::{Path, PathBuf};

use crate::captures::{Capture, flows, run_timed, timed};
use crate::forms::ratio;
use crate::report::median;
use crate::streams::frames::SHORT_PACKETS as PACKETS;
use crate::{Args, Report, Row};

/// What the issue of the work asks for, on one core.
const FLOWS_AIM: f64 = 300_000.0;
const PACKETS_AIM: f64 = 3.0;

/// One of so many connections is for `tshark`, which takes long.
const OF: usize = 20;

/// The captures.
#[derive(Debug, Clone, clap::Args)]
pub struct L7Args {
    /// Connections in the generated capture; the table of flows of a worker holds no more at once
    #[arg(long, default_value_t = 250_000, value_parser = crate::limits::up_to::<{ 1 << 18 }>)]
    pub connections: usize,
    /// Folder with real captures, for packets until known
    #[arg(long, value_name = "FOLDER", default_value = "../shared/data/pcap-l7/zeek")]
    pub captures: PathBuf,
}

pub(crate) fn run(args: &Args, options: &L7Args) -> Result<Report, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let capture = Capture::short(options.connections)?;
    let data = format!(
        "{} HTTP connections of {PACKETS} packets, {:.2} GB, in a file of the page cache; captures of {}",
        options.connections,
        capture.bytes as f64 / 1e9,
        options.captures.display()
    );
    let mut report = Report::new("l7", data);
    measure(args.rounds, &own, &capture, &mut report)?;
    if let Some(count) = options.connections.checked_div(OF).filter(|count| *count > 0) {
        drop(capture);
        dissected(args.rounds, &Capture::short(count)?, &mut report)?;
    }
    until_known(&own, &options.captures, &mut report)?;
    Ok(report)
}

fn measure(
    rounds: usize,
    own: &Path,
    capture: &Capture,
    report: &mut Report,
) -> Result<(), String> {
    let (mut ours, mut ndpi, mut has_ndpi) = (Vec::new(), Vec::new(), true);
    let count = capture.connections;
    for _ in 0..rounds.max(1) {
        let options = ["l7", "--json", "--workers", "1", "-k", "none", "-r"];
        let (took, lines) = run_timed(own, &options, &capture.path)?.ok_or("not found")?;
        ours.push(count as f64 / took.processor);
        let labelled =
            lines.lines().filter(|line| line.contains("\"application\":\"http\",\"found"));
        let labelled = labelled.count();
        if labelled != count {
            report.wrong.push(format!("shadeline l7: {labelled} flows are http"));
        }
        if has_ndpi {
            let ran = run_timed(Path::new("ndpiReader"), &["-i"], &capture.path)?;
            let Some((took, text)) = ran else {
                has_ndpi = false;
                continue;
            };
            ndpi.push(count as f64 / took.processor);
            if flows(&text) != Some(count) {
                report.wrong.push(format!("ndpiReader: {:?} flows", flows(&text)));
            }
        }
    }
    report
        .rows
        .push(Row::new("shadeline l7, 1 worker", "flows/s", ours.clone()).at_least(FLOWS_AIM));
    match has_ndpi {
        true => report.rows.extend([
            Row::new("ndpiReader", "flows/s", ndpi.clone()),
            ratio("shadeline l7 over ndpiReader", &ours, &ndpi),
        ]),
        false => {
            let why = "not installed (Debian: libndpi-bin)";
            report.rows.push(Row::new("ndpiReader", "flows/s", Vec::new()).note(why));
        }
    }
    Ok(())
}

/// `tshark` over connections, each of which has to be one of HTTP.
fn dissected(rounds: usize, capture: &Capture, report: &mut Report) -> Result<(), String> {
    let mut rates = Vec::new();
    for _ in 0..rounds.max(1) {
        let options = ["-n", "-Y", "http.request", "-T", "fields", "-e", "tcp.stream", "-r"];
        let Some((took, text)) = run_timed(Path::new("tshark"), &options, &capture.path)? else {
            let why = "not installed (Debian: tshark)";
            report.rows.push(Row::new("tshark", "flows/s", Vec::new()).note(why));
            return Ok(());
        };
        rates.push(capture.connections as f64 / took.processor);
        let requests = text.lines().count();
        if requests != capture.connections {
            report.wrong.push(format!("tshark: {requests} requests of HTTP"));
        }
    }
    let note = format!("over {} connections", capture.connections);
    report.rows.push(Row::new("tshark", "flows/s", rates).note(note));
    Ok(())
}

/// How many packets with payload it takes until the label of a flow is settled.
fn until_known(own: &Path, folder: &Path, report: &mut Report) -> Result<(), String> {
    let name = "packets until known (median)";
    if !folder.is_dir() {
        let note = format!("{}: no such folder", folder.display());
        report.rows.push(Row::new(name, "packets", Vec::new()).note(note));
        return Ok(());
    }
    let (_, lines) =
        timed(own, &["l7", "--json", "-k", "none", "-r"], folder)?.ok_or("not found")?;
    let counts: Vec<f64> = lines
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|line| line["packets_until_known"].as_f64())
        .collect();
    if counts.is_empty() {
        report.wrong.push("no flow has a label".to_owned());
    }
    let note = format!("{} flows with a label", counts.len());
    let row = Row::new(name, "packets", vec![median(&counts)]).at_most(PACKETS_AIM);
    report.rows.push(row.note(note));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program in place of the real one: labels that are missing are seen.
    #[test]
    fn answers_are_checked() {
        let capture = Capture::short(2).unwrap();
        let scratch = testkit::Scratch::new();
        let program = |text: &str| {
            let path = scratch.write("program", &format!("#!/bin/sh\n{text}\n"));
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&path, mode).unwrap();
            path
        };
        let line = |packets: u32| {
            format!(
                "echo '{{\"application\":\"http\",\"found_by\":\"parser\",\"packets_until_known\":{packets}}}'"
            )
        };
        let mut report = Report::new("l7", String::new());
        let right = program(&format!("{}; {}", line(1), line(2)));
        measure(1, &right, &capture, &mut report).unwrap();
        assert_eq!(report.wrong, [""; 0]);
        measure(1, &program(&line(1)), &capture, &mut report).unwrap();
        assert_eq!(report.wrong, ["shadeline l7: 1 flows are http"]);
        let right = program(&format!("{}; {}; {}", line(1), line(2), line(2)));
        until_known(&right, scratch.path(), &mut report).unwrap();
        assert_eq!(report.rows.last().unwrap().median, 2.0);
        until_known(&program("true"), scratch.path(), &mut report).unwrap();
        assert_eq!(report.wrong.len(), 2);
    }
}
