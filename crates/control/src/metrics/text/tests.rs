//! The text, judged by a small parser of ours, and by Prometheus' own where it is installed.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::api::{DropRow, MasterRow, Runtime, StageRow, WorkerRow};
use crate::metrics::{Serving, Sources, serve};

fn snapshot(packets: u64) -> Snapshot {
    let lan = InterfaceRow {
        name: "lan".into(),
        kind: "odd \"kind\"\\\nhere".into(),
        state: "up".into(),
        rx_packets: packets,
        ..InterfaceRow::default()
    };
    let wan = InterfaceRow { name: "wan".into(), ..lan.clone() };
    Snapshot {
        interfaces: vec![lan, wan],
        queues: vec![QueueRow { port: "lan".into(), ..QueueRow::default() }],
        stages: vec![StageRow {
            name: "ip_lookup".into(),
            packets: 2_000_000_000,
            ns_per_packet: 12.5,
            ..StageRow::default()
        }],
        hottest: Vec::new(),
        drops: vec![DropRow { reason: "no_route".into(), packets: 7, ..DropRow::default() }],
        runtime: Runtime {
            version: "0.1.0".into(),
            workers: vec![WorkerRow {
                busy_percent: 50.0,
                packets_handed_over: 8,
                packets_late: 9,
                panics: 16,
                gave_up: true,
                ..WorkerRow::default()
            }],
            masters: ["sim #0", "sim #1"]
                .map(|device| MasterRow {
                    device: device.into(),
                    uploads: 2,
                    launches: 6,
                    jobs_sorted: 3,
                    jobs_packed: 4,
                    up_bytes: 9000,
                    ..MasterRow::default()
                })
                .to_vec(),
            ..Runtime::default()
        },
    }
}

/// The families of an application.
fn application(out: &mut Metrics) {
    out.gauge("stations", "Known stations.").sample(&[], 12);
    let mut family = out.counter("rule_packets_total", "Packets that matched a rule.");
    family.sample(&[("rule", "ssh")], 3);
    family.sample(&[("rule", "default")], 4);
    out.gauge("nothing", "A family without samples.");
}

fn text(snapshot: &Snapshot) -> String {
    encode(snapshot, application)
}

#[test]
fn counters_are_written() {
    let text = text(&snapshot(123_456_789_012));
    for line in [
        "# TYPE shadeline_interface_receive_packets_total counter",
        "shadeline_interface_receive_packets_total{interface=\"lan\"} 123456789012",
        "shadeline_interface_up{interface=\"wan\"} 1",
        "shadeline_stage_seconds_total{stage=\"ip_lookup\"} 25",
        "shadeline_drop_packets_total{reason=\"no_route\"} 7",
        "shadeline_worker_busy_ratio{worker=\"0\"} 0.5",
        "shadeline_worker_handed_over_packets_total{worker=\"0\"} 8",
        "shadeline_worker_late_packets_total{worker=\"0\"} 9",
        "shadeline_worker_panics_total{worker=\"0\"} 16",
        "shadeline_worker_gave_up{worker=\"0\"} 1",
        "shadeline_device_jobs_total{device=\"sim #0\"} 0",
        "shadeline_device_up{device=\"sim #1\"} 1",
        "shadeline_device_uploads_total{device=\"sim #0\"} 2",
        "shadeline_device_launches_total{device=\"sim #1\"} 6",
        "shadeline_device_jobs_sorted_total{device=\"sim #0\"} 3",
        "shadeline_device_jobs_packed_total{device=\"sim #0\"} 4",
        "shadeline_device_jobs_gathered_total{device=\"sim #0\"} 0",
        "shadeline_device_upload_bytes_total{device=\"sim #0\"} 9000",
        "# HELP shadeline_device_up_bytes_total Deprecated: use shadeline_device_upload_bytes_total.",
        "shadeline_device_up_bytes_total{device=\"sim #0\"} 9000",
        "shadeline_uptime_seconds 0",
        "shadeline_stations 12",
        "shadeline_rule_packets_total{rule=\"ssh\"} 3",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\nnot in\n{text}");
    }
    assert!(text.contains(r#"kind="odd \"kind\"\\\nhere""#), "{text}");
}

/// Each family occurs once, help and type before its samples, and each sample once.
#[test]
fn families_are_whole() {
    let text = text(&snapshot(1));
    let (mut families, mut samples) = (HashSet::new(), HashSet::new());
    let mut family = "";
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            family = name;
            assert!(help.ends_with('.') || help.ends_with("always 1."), "{help}");
            assert!(families.insert(family), "{family} twice");
            let kind = lines.next().unwrap().strip_prefix("# TYPE ").unwrap();
            let (typed, kind) = kind.split_once(' ').unwrap();
            assert_eq!(typed, family);
            assert_eq!(kind == "counter", family.ends_with("_total"), "{family} is a {kind}");
            continue;
        }
        let (key, value) = line.rsplit_once(' ').unwrap();
        assert_eq!(key.split('{').next().unwrap(), family);
        assert!(samples.insert(key), "{key} twice");
        assert!(value.parse::<f64>().unwrap() >= 0.0);
    }
    assert!(families.len() > 30);
    // A snapshot of nothing has no empty families.
    let nothing = encode(&Snapshot::default(), application);
    assert!(!nothing.contains("interface") && !nothing.contains("nothing"), "{nothing}");
}

/// Prometheus refuses a whole text for one family that is there twice, and samples of one family that are apart.
#[test]
fn samples_of_one_name_are_one_family() {
    let text = encode(&Snapshot::default(), |out| {
        application(out);
        out.gauge("stations", "Known stations of another.").sample(&[("of", "other")], 7);
    });
    assert_eq!(text.matches("# TYPE shadeline_stations gauge").count(), 1, "{text}");
    let at = |sample: &str| text.lines().position(|line| line == sample);
    let other = at("shadeline_stations{of=\"other\"} 7").expect("the sample");
    assert!(text.lines().nth(other - 1).unwrap().starts_with("shadeline_stations"), "{text}");
}

#[test]
fn promtool_accepts_it() {
    for snapshot in [snapshot(5), Snapshot::default()] {
        let started = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut child) = started else {
            return testkit::skip("promtool is not installed (Debian package prometheus)");
        };
        child.stdin.take().unwrap().write_all(text(&snapshot).as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        assert_eq!(said, "");
    }
}

/// Sources with this text of a scrape and no snapshot.
fn sources(metrics: impl Fn() -> String + Send + Sync + 'static) -> Sources {
    let failed = Arc::new(|why: &str| panic!("{why}"));
    Sources { metrics: Arc::new(metrics), snapshot: Arc::new(|| None), failed }
}

fn get(serving: &Serving, path: &str) -> String {
    let mut stream = TcpStream::connect(serving.address()).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_dashboard_needs_nothing_else() {
    let odd = snapshot(5);
    let text = serde_json::to_string(&odd).unwrap();
    let stopping = Arc::new(AtomicU64::new(0));
    let is_stopping = stopping.clone();
    let snapshot = move || (is_stopping.load(Ordering::Relaxed) == 0).then(|| text.clone());
    let sources = Sources { snapshot: Arc::new(snapshot), ..sources(String::new) };
    let serving = serve("127.0.0.1:0".parse().unwrap(), &[], sources).unwrap();
    let answer = get(&serving, "/");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    for header in [
        "content-type: text/html; charset=utf-8\r\n",
        "cache-control: no-store\r\n",
        "content-security-policy: default-src 'none'; script-src 'nonce-",
    ] {
        assert!(answer.contains(header), "{header}: {answer}");
    }
    // Nothing is loaded from elsewhere, and nothing is written as HTML that comes from the instance.
    for word in ["http:", "https:", "innerHTML", "insertAdjacent", "document.write", "NONCE\""] {
        let page = answer.replace("http://www.w3.org/2000/svg", "");
        assert!(!page.contains(word), "{word}");
    }
    let nonce = answer.split("'nonce-").nth(1).and_then(|rest| rest.split('\'').next()).unwrap();
    assert_eq!(answer.matches(&format!("nonce=\"{nonce}\"")).count(), 2, "{nonce}");
    assert!(!get(&serving, "/").contains(nonce), "another answer, another number");
    let answer = get(&serving, "/api/top.json");
    assert!(answer.contains("content-type: application/json\r\n"), "{answer}");
    assert!(answer.contains("cache-control: no-store\r\n"), "{answer}");
    let body = answer.split("\r\n\r\n").nth(1).unwrap();
    assert_eq!(serde_json::from_str::<Snapshot>(body).unwrap(), odd);
    stopping.store(1, Ordering::Relaxed);
    assert!(get(&serving, "/api/top.json").starts_with("HTTP/1.1 503 "));
}

#[test]
fn served_over_http_as_of_the_scrape() {
    let packets = Arc::new(AtomicU64::new(0));
    let source = packets.clone();
    let source = move || text(&snapshot(source.fetch_add(1, Ordering::Relaxed)));
    let serving = serve("127.0.0.1:0".parse().unwrap(), &[], sources(source)).unwrap();
    for n in 0..3 {
        let answer = get(&serving, "/metrics");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
        let line = format!("shadeline_interface_receive_packets_total{{interface=\"lan\"}} {n}\n");
        assert!(answer.contains(&line), "{answer}");
    }
    assert!(get(&serving, "/nowhere").starts_with("HTTP/1.1 404 "));
    assert_eq!(packets.load(Ordering::Relaxed), 3);
    let taken = serve(serving.address(), &[], sources(String::new)).unwrap_err();
    assert!(taken.to_string().contains("system.metrics"));
    // A connection that stays open does not keep the server.
    let _open = TcpStream::connect(serving.address()).unwrap();
    let address = serving.address();
    drop(serving);
    assert!(TcpStream::connect(address).is_err());
}
