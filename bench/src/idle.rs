//! `bench idle`: what a router without traffic costs.

use std::time::{Duration, Instant};

use crate::namespace::{Background, Host, Hosts};
use crate::{Args, Report, Row};

pub(crate) fn run(args: &Args, seconds: f64) -> Result<Report, String> {
    let hosts = Hosts::new()?;
    let mut report = Report::new(
        "idle",
        "a live router on two veth ports with twins and kernel mirror, no traffic",
    );
    for backend in ["af_packet", "af_xdp"] {
        let folder = std::env::temp_dir().join(format!("sl-bench-idle-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
        let config = folder.join("idle.toml");
        let text = format!(
            "mode = \"router\"\n[system]\nworkers = 1\nsocket = \"{0}/idle.sock\"\n\
             [port.in]\ninterface = \"in\"\nbackend = \"{backend}\"\naddresses = [\"10.0.1.1/24\"]\n\
             [port.out]\ninterface = \"out\"\nbackend = \"{backend}\"\naddresses = [\"10.0.2.1/24\"]\n",
            folder.display()
        );
        std::fs::write(&config, text).map_err(|e| e.to_string())?;
        let command = hosts.own(Host::Router, &["run".into(), config.display().to_string()])?;
        let child = Background::start(command)?;
        // Duplicate address detection and the like are over after two seconds.
        std::thread::sleep(Duration::from_secs(3));
        let mut shares = Vec::new();
        for _ in 0..args.rounds.max(1) {
            let (begin, before) = (Instant::now(), cpu_seconds(child.0.id())?);
            std::thread::sleep(Duration::from_secs_f64(seconds));
            let spent = cpu_seconds(child.0.id())? - before;
            shares.push(100.0 * spent / begin.elapsed().as_secs_f64());
        }
        drop(child);
        let _ = std::fs::remove_dir_all(&folder);
        report.rows.push(Row::new(format!("{backend}: share of a core"), "%", shares).at_most(2.0));
    }
    Ok(report)
}

/// Seconds of processor time that a process has used. `ip netns exec` becomes the program itself.
fn cpu_seconds(pid: u32) -> Result<f64, String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .map_err(|_| "the router ended: it could not run here".to_owned())?;
    // Fields count from behind the name, which may hold anything.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || fields.next().and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    Ok((ticks() + ticks()) / 100.0)
}
