//! The quickstart of README.md: exactly its script, as an ordinary user and as root, to its end and interrupted.

#[path = "common/lab.rs"]
mod lab;

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lab::Lab;
use testkit::process::{Process, Stop};

/// The script takes a few seconds; a busy machine takes longer.
const ENDED: Duration = Duration::from_secs(120);

/// One run at a time: the packets of an iperf3 beside it would crowd out those of a ping in the kernel's queues.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The whole output of a run to its end.
fn assert_shown(text: &str) {
    // Both families, three packets each.
    assert_eq!(text.matches("3 received, 0% packet loss").count(), 2, "{text}");
    match testkit::require_tool("iperf3") {
        Some(_) => {
            let line = text.lines().find(|line| line.ends_with("receiver")).unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            let unit = words.iter().position(|word| word.ends_with("bits/sec"));
            let rate = unit.and_then(|at| words[at - 1].parse::<f64>().ok());
            assert!(rate.is_some_and(|rate| rate > 0.0), "no rate in `{line}`: {text}");
        }
        None => assert!(text.contains("iperf3 is not installed"), "{text}"),
    }
    // The trace names every stage and the port.
    for step in ["packet 1\n", "  decode ", "  route ", "  rewrite ", "forward(right)"] {
        assert!(text.contains(step), "no `{step}` in the trace: {text}");
    }
    let row = |name: &str| text.lines().find(|line| line.starts_with(&format!("{name} ")));
    let packets = |name| row(name)?.split_whitespace().nth(1)?.parse::<u32>().ok();
    assert_eq!(packets("no_route"), Some(2), "{text}");
    assert_eq!(packets("ttl_expired"), Some(1), "{text}");
    // What the ports sent did not come back as received.
    assert_eq!(row("not_for_us"), None, "{text}");
    assert!(!text.contains(" WARN ") && !text.contains("ERROR"), "{text}");
}

/// Runs it to its end; notes its namespaces on the way.
fn run(lab: &Lab, command: Command) {
    let mut process = Process::spawn(command);
    process.wait_for("# Host `left`", ENDED);
    let namespaces = lab.namespaces();
    assert_eq!(namespaces.len(), 3, "a router and two hosts: {namespaces:?}");
    let (status, text) = process.wait(ENDED);
    assert!(status.success(), "{status}: {text}");
    assert_shown(&text);
    lab.assert_gone(&namespaces);
}

#[test]
fn an_ordinary_user_runs_the_quickstart() {
    let _alone = alone();
    let Some(lab) = Lab::new() else { return };
    run(&lab, lab.command(&format!("exec sh {}", lab.quickstart.display())));
}

#[test]
fn the_quickstart_runs_in_a_namespace_of_the_user() {
    let _alone = alone();
    let Some(lab) = Lab::new() else { return };
    run(&lab, lab.command(&format!("exec unshare -Urn sh {}", lab.quickstart.display())));
}

#[test]
fn root_runs_the_quickstart() {
    if !testkit::require_namespaces() || !lab::is_root() {
        return;
    }
    let _alone = alone();
    let Some(lab) = Lab::new() else { return };
    run(&lab, lab.command_of_root(&format!("exec sh {}", lab.quickstart.display())));
}

/// At each of its steps, and at its end.
#[test]
fn an_interrupted_quickstart_leaves_nothing() {
    let _alone = alone();
    let Some(lab) = Lab::new() else { return };
    for step in
        ["port left", "running: ", "packets transmitted", "# TCP", "packet 1\n", "show interfaces"]
    {
        let step = match testkit::require_tool("iperf3") {
            None if step == "# TCP" => continue,
            _ => step,
        };
        let mut process =
            Process::spawn(lab.command(&format!("exec sh {}", lab.quickstart.display())));
        process.wait_for(step, ENDED);
        let namespaces = lab.namespaces();
        // As a terminal does: to the script and to everything that it started.
        let group = format!("-{}", process.id());
        assert!(
            Command::new("kill").args(["-INT", "--", &group]).status().is_ok_and(|s| s.success())
        );
        let (status, text) = process.wait(ENDED);
        // The last step may have ended before.
        let ended = status.code() == Some(130) || status.success() && step == "show interfaces";
        assert!(ended, "{step}: {status}: {text}");
        lab.assert_gone(&namespaces);
    }
    let mut process = Process::spawn(lab.command(&format!("exec sh {}", lab.quickstart.display())));
    process.wait_for("running: ", ENDED);
    let (status, text) = process.stop(Stop::Terminate, ENDED);
    assert_eq!(status.code(), Some(130), "{text}");
    lab.assert_gone(&BTreeSet::new());
}

#[test]
fn a_quickstart_that_fails_leaves_nothing() {
    let _alone = alone();
    let Some(lab) = Lab::new() else { return };
    let missing = "SHADELINE=/nowhere/shadeline";
    let fails = "SHADELINE=/bin/false";
    for (setting, code, expected) in [(missing, 2, "cargo build --release"), (fails, 1, "")] {
        let line = format!("exec env {setting} sh {}", lab.quickstart.display());
        let output = lab.user(&line);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{setting}: {text}");
        assert!(text.contains(expected), "{setting}: {text}");
        lab.assert_gone(&BTreeSet::new());
    }
}
