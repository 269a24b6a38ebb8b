//! `shadeline ids`: rules over captures, with any number of workers.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::frames::Frame;
use testkit::pcap::{Record, write_pcap};
use testkit::{Scratch, require_opencl};

/// A case of Suricata's own tests; skipped where the data are absent.
const CASE: &str = "../shared/data/ids/suricata-verify/smtp-file-data-01";

fn ids(folder: &Scratch, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.arg("ids").args(args).current_dir(folder.path());
    command.output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn rules_that_cannot_be_loaded_are_named_with_their_place() {
    let folder = Scratch::new();
    let rules = "alert tcp any any -> any any (msg:\"x\"; content:\"x\"; sid:1;)\n\
                 alert tcp any any -> any any (msg:\"y\"; contnet:\"x\"; sid:2;)\n";
    folder.write("local.rules", rules);
    let out = ids(&folder, &["-T", "-S", "local.rules"]);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
    let said = text(&out.stdout);
    assert!(said.starts_with("local.rules:2:"), "{said}");
    assert!(said.contains("did you mean `content`?"), "{said}");
    assert!(said.contains("2 rules: 1 loaded (50.00 %), 1 not; 0 disabled"), "{said}");
}

/// What is no file of rules is an error with its name and the reason; nothing else is said of it, nor written.
#[test]
fn files_that_cannot_be_read_are_named() {
    let folder = Scratch::new();
    let capture = testkit::repository().join("tests/data/vxlan-pings.pcap").display().to_string();
    folder.write("own.rules", "alert icmp any any -> any any (sid:1;)\n");
    folder.write("empty.rules", "# none\n");
    folder.write("config.toml", "mode = \"monitor\"\n[port.a]\n[ids]\nrules = [\"none.rules\"]\n");
    let none = "No such file or directory (os error 2)";
    for (args, expected) in [
        (&["-S", "none.rules"][..], format!("cannot read the rule file none.rules: {none}")),
        (&["-S", "."], "cannot read the rule file .: Is a directory".to_owned()),
        (
            &["-S", &capture],
            format!("cannot read the rule file {capture}: the file has binary data, not rules"),
        ),
        (
            &["--config", "config.toml"],
            format!("cannot read none.rules: {none}\n --> config.toml:4:10"),
        ),
    ] {
        for mode in [&["-T"][..], &["-r", &capture, "-l", "out"]] {
            let out = ids(&folder, &[mode, args].concat());
            let said = text(&out.stderr);
            assert_eq!(out.status.code(), Some(1), "{args:?}: {said}");
            assert!(said.starts_with(&format!("error: {expected}")), "{args:?}: {said}");
            assert!(!said.contains("expected"), "{args:?}: {said}");
            assert_eq!((out.stdout.len(), folder.path().join("out").exists()), (0, false));
        }
    }
    let out = ids(&folder, &["-T", "-S", "own.rules", "-S", "empty.rules", "-S", "./own.rules"]);
    let said = text(&out.stdout);
    assert!(out.status.success(), "{said}{}", text(&out.stderr));
    let warnings = "warning: ./own.rules: the file is named twice; it is read once\n\
                    warning: empty.rules: the file has no rules\n";
    assert!(said.starts_with(warnings) && said.contains("1 rule: 1 loaded"), "{said}");
}

/// Options of Suricata and Snort that are others here, and files without an option.
#[test]
fn command_lines_of_other_programs_have_tips() {
    let folder = Scratch::new();
    let (live, variables) = (
        "live traffic is inspected by `shadeline run` with [ids] in its configuration",
        "variables are given with --set",
    );
    for (args, tip) in [
        (&["-c", "suricata.yaml", "-r", "a.pcap"][..], Some(variables)),
        (&["-r", "a.pcap", "-s", "a.rules"], Some("tip: rules are given with -S\n")),
        (&["-T", "a.rules"], Some("tip: rules are given with -S\n")),
        (&["-S", "a.rules", "a.pcap"], Some("tip: captures are given with -r\n")),
        (&["-i", "eth0", "-S", "a.rules"], Some(live)),
        (&["-r", "a.pcap", "--rule", "a.rules"], Some("a similar argument exists: '--rules'")),
        (&["-A", "fast"], None),
    ] {
        let out = ids(&folder, args);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {said}");
        assert!(tip.is_none_or(|tip| said.contains(tip)), "{args:?}: {said}");
        assert_eq!(said.contains("tip: "), tip.is_some(), "{args:?}: {said}");
    }
}

#[test]
fn keywords_are_listed() {
    let out = ids(&Scratch::new(), &["--list-keywords", "--json"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let all: Vec<serde_json::Value> = serde_json::from_slice(&out.stdout).expect("JSON");
    let is_evaluated = |name: &str| {
        let own = all.iter().find(|own| own["name"] == name);
        own.unwrap_or_else(|| panic!("{name} is missing"))["evaluated"].as_bool()
    };
    for name in ["content", "http.uri", "stream-event", "fragbits", "to_sha256"] {
        assert_eq!(is_evaluated(name), Some(true), "{name}");
    }
    for name in ["dnp3_func", "filemagic", "tld"] {
        assert_eq!(is_evaluated(name), Some(false), "{name}");
    }
}

#[test]
fn any_number_of_workers_writes_the_same() {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(CASE);
    if !case.is_dir() {
        return;
    }
    let file = |name: &str| case.join(name).display().to_string();
    let (capture, rules) = (file("input.pcap"), file("test.rules"));
    let folder = Scratch::new();
    let mut all = Vec::new();
    for workers in ["1", "2", "4"] {
        let args =
            ["-r", &capture, "-S", &rules, "-l", workers, "--workers", workers, "-k", "none"];
        let out = ids(&folder, &args);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let read = |name: &str| {
            let path = folder.path().join(workers).join(name);
            std::fs::read_to_string(path).expect("it is written")
        };
        all.push((read("eve.json"), read("fast.log"), read("stats.log")));
    }
    let (eve, fast, _) = &all[0];
    assert_eq!(fast.lines().count(), 1, "{fast}");
    assert!(fast.contains("[**] [1:1:0] file_data smtp test [**]"), "{fast}");
    for kind in ["alert", "fileinfo", "smtp", "flow"] {
        assert!(eve.contains(&format!("\"event_type\":\"{kind}\"")), "{kind}: {eve}");
    }
    assert!(all.iter().all(|own| own == &all[0]));
}

/// Rules that count per host need one worker over captures, whatever was asked for; their lines come out all the same.
#[test]
fn rules_that_count_per_host_write_with_one_worker() {
    let folder = Scratch::new();
    let capture = testkit::repository().join("tests/data/vxlan-pings.pcap").display().to_string();
    let rule = "alert icmp any any -> any any (msg:\"echo\"; itype:8; threshold:type limit, track by_src, count 1, \
                seconds 600; sid:1;)\n";
    folder.write("local.rules", rule);
    for workers in ["1", "3"] {
        let args = ["-r", &capture, "-S", "local.rules", "-l", workers, "--workers", workers];
        let out = ids(&folder, &args);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let is_said = text(&out.stderr).contains("captures are processed by one worker");
        assert_eq!(is_said, workers != "1", "{}", text(&out.stderr));
        let path = folder.path().join(workers).join("fast.log");
        let lines = std::fs::read_to_string(path).expect("it is written").lines().count();
        assert_eq!(lines, 1, "{workers} workers");
    }
}

/// A rule that drops an ICMP error says so, with the flow that the error is about; that one goes on.
#[test]
fn a_dropped_icmp_error_is_an_event() {
    let folder = Scratch::new();
    let rule = "drop icmp any any -> any any (msg:\"port unreachable\"; itype:3; icode:3; sid:7; rev:2;)\n";
    folder.write("local.rules", rule);
    let datagram = |number: u16| {
        Frame::new()
            .identification(number)
            .ipv4("10.0.0.1", "10.0.0.2")
            .udp(4000, 53, b"query")
            .bytes()
    };
    let mut error = vec![3, 3, 0, 0, 0, 0, 0, 0];
    error.extend_from_slice(&datagram(1)[14..]);
    let sum = packet::checksum::internet_checksum(&error);
    error[2..4].copy_from_slice(&sum.to_be_bytes());
    let error = Frame::new().ipv4("10.0.0.2", "10.0.0.1").raw(1, &error).bytes();
    let len = error.len() - 14;
    let at = |number: u64, data| Record::new(1_700_000_000_000_000_000 + number * 1_000_000, data);
    write_pcap(&folder.join("a.pcap"), &[at(0, datagram(1)), at(2, datagram(2))]);
    write_pcap(&folder.join("b.pcap"), &[at(1, error)]);
    let config = "mode = \"wire\"\n[port.a]\n[port.b]\n\
        [ids]\nrules = [\"local.rules\"]\naction = \"inline\"\noutput = \"out\"\n";
    let config = folder.write("wire.toml", config);
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.current_dir(folder.path()).arg("run").arg(config);
    let output =
        command.args(["-r", "a=a.pcap", "-r", "b=b.pcap"]).output().expect("the program runs");
    let said = text(&[&output.stdout[..], &output.stderr].concat());
    assert!(output.status.success() && said.contains("ids_drop"), "{said}");
    let events = std::fs::read_to_string(folder.join("out/eve.json")).expect("it is written");
    let events: Vec<serde_json::Value> =
        events.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let of = |kind: &str| {
        let mut own = events.iter().filter(|event| event["event_type"] == kind);
        let first = own.next().unwrap_or_else(|| panic!("{kind}: {events:?}"));
        assert!(own.next().is_none(), "{kind}: {events:?}");
        first
    };
    let (alert, drop, flow) = (of("alert"), of("drop"), of("flow"));
    assert_eq!(alert["alert"]["action"], "blocked");
    assert_eq!((&drop["drop"]["len"], &drop["drop"]["reason"]), (&len.into(), &"rules".into()));
    assert_eq!((&drop["alert"], &drop["flow_id"]), (&alert["alert"], &flow["flow_id"]));
    assert_eq!((&drop["icmp_type"], &drop["icmp_code"]), (&3.into(), &3.into()));
    assert_eq!(flow["flow"]["pkts_toserver"], 2);
}

/// A connection whose encrypted packets are passed over ends as bypassed, as Suricata calls it; others do not.
#[test]
fn encrypted_connections_are_bypassed() {
    let Some(captures) = testdata::path("pcap-l7") else { return };
    let folder = Scratch::new();
    folder.write(
        "local.rules",
        "alert tls any any -> any any (msg:\"x\"; tls.sni; content:\"x.invalid\"; sid:1;)\n",
    );
    let flows = |name: &str| -> Vec<serde_json::Value> {
        let capture = captures.join(name).display().to_string();
        let out = ids(&folder, &["-r", &capture, "-S", "local.rules", "-l", "out", "-k", "none"]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let events = std::fs::read_to_string(folder.join("out/eve.json")).expect("it is written");
        std::fs::remove_dir_all(folder.join("out")).expect("a folder");
        let events = events.lines().map(|line| serde_json::from_str(line).expect("an object"));
        events.filter(|event: &serde_json::Value| event["event_type"] == "flow").collect()
    };
    let all = flows("zeek/tls/tls-conn-with-extensions.pcap");
    let [own] = &all[..] else { panic!("{all:?}") };
    assert_eq!((&own["app_proto"], &own["flow"]["state"]), (&"tls".into(), &"bypassed".into()));
    assert_eq!(own["flow"]["bypass"], "local");
    // Neither events of flows nor labels prevent it.
    let capture =
        format!("a={}", captures.join("zeek/tls/tls-conn-with-extensions.pcap").display());
    let config = "mode = \"monitor\"\n[port.a]\nchecksums = \"ignore\"\n[flow]\nevents = \"flow.json\"\n\
        [l7]\n[ids]\nrules = [\"local.rules\"]\noutput = \"out\"\n";
    let config = folder.write("all.toml", config);
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.current_dir(folder.path()).arg("run").arg(&config);
    let out = command.args(["-r", &capture]).output().expect("the program runs");
    assert!(out.status.success(), "{}", text(&out.stderr));
    for file in ["flow.json", "out/eve.json"] {
        let events = std::fs::read_to_string(folder.join(file)).expect("it is written");
        assert!(events.contains("\"state\":\"bypassed\""), "{file}: {events}");
    }
    std::fs::remove_dir_all(folder.join("out")).expect("a folder");
    // STARTTLS is not followed.
    let all = flows("zeek/tls/imap-starttls.pcap");
    assert!(
        !all.is_empty() && all.iter().all(|own| own["flow"].get("bypass").is_none()),
        "{all:?}"
    );
}

/// Folders with a capture and rules.
fn cases(folder: &Path, into: &mut Vec<(PathBuf, PathBuf)>) {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten().map(|own| own.path());
    let mut entries: Vec<PathBuf> = entries.collect();
    entries.sort();
    let file = |ending: &[&str]| {
        let is_it = |path: &&PathBuf| {
            path.extension().is_some_and(|own| ending.iter().any(|ending| own == *ending))
        };
        entries.iter().find(is_it).cloned()
    };
    if let (Some(capture), Some(rules)) = (file(&["pcap", "pcapng"]), file(&["rules"])) {
        into.push((capture, rules));
    }
    entries.iter().filter(|path| path.is_dir()).for_each(|path| cases(path, into));
}

/// What a monitor with rules wrote: events and alerts, with its status; what it said of packets that were searched before; and
/// whether a device had jobs.
fn monitored(
    folder: &Scratch,
    (captures, rules): (&[PathBuf], &[PathBuf]),
    (backend, workers): (&str, usize),
    device: bool,
) -> ((Option<i32>, String, String), String, bool) {
    let rules: Vec<String> =
        rules.iter().map(|path| format!("{:?}", path.display().to_string())).collect();
    let config = format!(
        "mode = \"monitor\"\n[system]\nworkers = {workers}\n[port.tap]\ninterface = \"tap\"\nchecksums = \"ignore\"\n\
         [flow]\ntunnels = [\"all\"]\nmidstream = true\n\
         [ids]\nrules = [{}]\noutput = \"out\"\ndevice = {device}\n",
        rules.join(", ")
    );
    let config = folder.write("monitor.toml", &config);
    let _ = std::fs::remove_dir_all(folder.join("out"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.current_dir(folder.path()).arg("run").arg(config).args(["--backend", backend]);
    for capture in captures {
        command.arg("-r").arg(capture);
    }
    testkit::set_caches(&mut command, Path::new(env!("CARGO_TARGET_TMPDIR")));
    let output = command.output().expect("the program runs");
    let said = text(&[&output.stdout[..], &output.stderr].concat());
    // A capture may be damaged.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{captures:?}: {said}");
    let read =
        |name: &str| std::fs::read_to_string(folder.join("out").join(name)).expect("it is written");
    let line = said.lines().find(|line| line.starts_with("packets searched before: "));
    let has_jobs = said.contains("\ndevice ") && !said.contains(": 0 jobs, ");
    let written = (output.status.code(), read("eve.json"), read("fast.log"));
    (written, line.unwrap_or_default().to_owned(), has_jobs)
}

/// Events and alerts do not depend on who searches packets for the literals of rules, on the back end, or on workers.
#[test]
fn a_search_on_a_device_changes_no_event() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/ids");
    if !root.is_dir() {
        return;
    }
    let folder = Scratch::new();
    let mut all = Vec::new();
    cases(&root.join("suricata-verify"), &mut all);
    let has_opencl = require_opencl();
    let mut sets: Vec<(Vec<PathBuf>, Vec<PathBuf>)> =
        all.iter().map(|(capture, rules)| (vec![capture.clone()], vec![rules.clone()])).collect();
    // Many rules over all captures.
    let many = ["exploit", "scan", "user_agents", "web_server"];
    let many = many.map(|name| root.join(format!("etopen-2017/emerging-{name}.rules.xz")));
    sets.push((all.iter().map(|(capture, _)| capture.clone()).collect(), many.into()));
    let (mut alerts, mut clean, mut packets) = (0, 0, 0);
    for (number, (captures, rules)) in sets.iter().enumerate() {
        let is_last = number + 1 == sets.len();
        let run = |way, device| monitored(&folder, (captures, rules), way, device);
        let (written, ..) = run(("cpu", 1), false);
        let mut ways = vec![("cpu", 1), ("sim", 3)];
        // PoCL takes a second for each.
        ways.extend((has_opencl && (is_last || number % 8 == 0)).then_some(("opencl", 2)));
        let mut searched = None;
        for way in ways {
            let (own, line, has_jobs) = run(way, true);
            assert!(own == written, "{captures:?} by {way:?}: {own:?}, not {written:?}");
            assert_eq!(has_jobs, way.0 != "cpu", "{captures:?} by {way:?}");
            assert_eq!(&line, searched.get_or_insert(line.clone()), "{captures:?} by {way:?}");
        }
        let searched = searched.expect("it was run");
        alerts += written.2.lines().count();
        let numbers: Vec<usize> =
            searched.split(' ').filter_map(|word| word.replace(',', "").parse().ok()).collect();
        (clean, packets) = (clean + numbers[0], packets + numbers[1]);
    }
    assert!(alerts > 100 && clean > 1_000 && packets > clean, "{alerts}, {clean} of {packets}");
}

/// Frames of one cell and of several, with a literal at their beginning, in the middle, at the end, or none; datagrams whose literal
/// is in two fragments.
#[test]
fn a_device_searches_long_frames_too() {
    let folder = Scratch::new();
    let rule =
        "alert udp any any -> any any (msg:\"needle\"; content:\"needle\"; nocase; sid:1;)\n";
    let rules = folder.write("local.rules", rule);
    let ends = || Frame::new().ipv4("192.0.2.1", "192.0.2.2");
    let mut frames = Vec::new();
    for len in [6, 100, 1_400, 2_500, 5_000, 9_000] {
        for at in [None, Some(0), Some(len / 2), Some(len - 6)] {
            let mut payload: Vec<u8> = (0..len).map(|n| b"needl. "[n * 5 % 7]).collect();
            if let Some(place) = at.and_then(|at: usize| payload.get_mut(at..at + 6)) {
                place.copy_from_slice(b"NeEdle");
            }
            frames.push(ends().udp(1_000 + len as u16, 9, &payload).bytes());
        }
    }
    // Of a header of eight bytes and twelve of payload, the first sixteen.
    let whole = ends().udp(9, 9, b"...needle...").bytes();
    let datagram = &whole[34..];
    let piece = |from: usize, to: usize| {
        let frame = ends().identification(7).raw(17, &datagram[from..to]);
        frame.fragment(from as u16 / 8, to < datagram.len()).bytes()
    };
    frames.extend([piece(0, 16), piece(16, datagram.len())]);
    let records: Vec<Record> = (0..)
        .zip(frames)
        .map(|(number, data)| Record::new(1_700_000_000_000_000_000 + number, data))
        .collect();
    let capture = folder.join("long.pcap");
    write_pcap(&capture, &records);
    let set = ([capture], [rules]);
    let run = |way, device| monitored(&folder, (&set.0, &set.1), way, device);
    let (written, ..) = run(("cpu", 1), false);
    assert_eq!(written.2.lines().count(), 18, "{}", written.2);
    let mut ways = vec![("cpu", 1), ("sim", 3)];
    ways.extend(require_opencl().then_some(("opencl", 2)));
    for way in ways {
        let (own, line, has_jobs) = run(way, true);
        assert!(own == written && has_jobs == (way.0 != "cpu"), "{way:?}: {own:?}");
        // A datagram that was put together is no row.
        assert!(line.starts_with("packets searched before: 7 of 25 "), "{way:?}: {line}");
    }
}

/// Sessions of all flows have one bound. What has no room is not begun, or given up; rules see the packets of such flows all the same.
#[test]
fn sessions_have_a_bound_together() {
    const FLOWS: u16 = 1200;
    let query = |n: u16| {
        let mut query = n.to_be_bytes().to_vec();
        query.extend_from_slice(b"\x01\0\0\x01\0\0\0\0\0\0\x07example\x03org\0\0\x01\0\x01");
        Frame::new().ipv4("10.0.0.1", "10.0.0.2").udp(10_000 + n, 53, &query).bytes()
    };
    // Of connections that ask for much and get no answer.
    let head = format!("GET /x HTTP/1.1\r\nHost: h\r\nX: {}\r\n", "z".repeat(1000));
    let flags = |mut frame: Vec<u8>, flags: u8| {
        frame[14 + 20 + 13] = flags;
        frame
    };
    let ends = ["10.0.0.1", "10.0.0.2"];
    let segment = |port: u16, from: usize, sequence, bytes: &[u8]| {
        let ports = [port, 80];
        let frame = Frame::new().ipv4(ends[from], ends[1 - from]);
        let mut frame = frame.tcp(ports[from], ports[1 - from], sequence, bytes).bytes();
        // What follows the other end's SYN is expected.
        frame[14 + 20 + 8..][..4].copy_from_slice(&2u32.to_be_bytes());
        frame
    };
    let mut frames = Vec::new();
    for n in 0..20 {
        let port = 20_000 + n;
        frames.push(flags(segment(port, 0, 1, b""), 0x02));
        frames.push(flags(segment(port, 1, 1, b""), 0x12));
        let mut sequence = 2;
        for piece in std::iter::once(head.clone())
            .chain((0..5).map(|_| format!("Y: {}\r\n", "y".repeat(1000))))
        {
            frames.push(segment(port, 0, sequence, piece.as_bytes()));
            sequence += piece.len() as u32;
        }
    }
    let of_streams = frames.len();
    frames.extend((0..FLOWS).map(query));
    let folder = Scratch::new();
    let records: Vec<Record> = { frames.into_iter().enumerate() }
        .map(|(n, data)| Record::new(1_700_000_000_000_000_000 + n as u64 * 1_000_000, data))
        .collect();
    assert!(of_streams > 100);
    write_pcap(&folder.join("in.pcap"), &records);
    let rules = "alert udp any any -> any 53 (msg:\"query\"; content:\"example\"; sid:1;)\n\
                 alert tcp any any -> any 80 (msg:\"get\"; content:\"GET /x\"; sid:2;)\n";
    folder.write("local.rules", rules);
    let run = |name: &str, memory: u32| {
        let config = format!(
            "mode = \"wire\"\n[system]\nworkers = 1\n[port.a]\nchecksums = \"ignore\"\n[port.b]\n[ids]\n\
             rules = [\"local.rules\"]\noutput = \"{name}\"\nsession_kib = {memory}\n"
        );
        let config = folder.write(&format!("{name}.toml"), &config);
        let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        command.current_dir(folder.path()).arg("run").arg(config);
        let output = command.args(["-r", "a=in.pcap"]).output().expect("the program runs");
        let said = text(&[&output.stdout[..], &output.stderr].concat());
        assert!(output.status.success(), "{said}");
        let read = |file: &str| {
            std::fs::read_to_string(folder.join(name).join(file)).expect("it is written")
        };
        let events = read("eve.json");
        let count = |kind: &str| events.matches(&format!("\"event_type\":\"{kind}\"")).count();
        let stats = read("stats.log");
        let stat = |name: &str| -> u64 {
            // Counters of zero are not written.
            let line = stats.lines().rfind(|line| line.contains(name));
            line.map_or(0, |line| line.split('|').next_back().unwrap().trim().parse().unwrap())
        };
        assert_eq!(count("alert"), usize::from(FLOWS) + 20, "{name}: {said}");
        assert_eq!(count("flow"), usize::from(FLOWS) + 20, "{name}");
        assert_eq!(stat("app_layer.memuse"), 0, "{name}: all have ended");
        let lost = [stat("app_layer.sessions_refused"), stat("app_layer.sessions_given_up")];
        (count("dns"), lost, said.contains("without memory"))
    };
    assert_eq!(run("much", 262_144), (FLOWS.into(), [0; 2], false));
    // From the least bound on, whatever a session costs: at each a part is left out, and at some only a part.
    let mut before = 0;
    for memory in (64..).step_by(12) {
        let found = run(&memory.to_string(), memory);
        let (dns, [refused, given_up], is_said) = found;
        assert!(is_said && refused > 0, "{memory} KiB: {found:?}");
        assert!(dns as u64 + refused >= FLOWS.into(), "{memory} KiB: {found:?}");
        assert!((before..FLOWS.into()).contains(&dns), "{memory} KiB: {found:?}, {before} before");
        if dns > 0 && given_up > 0 {
            return;
        }
        before = dns;
    }
}

/// A flow that exceeds a bound: its event, and what becomes of it. In a tap nothing is dropped.
#[test]
fn flows_that_exceed_a_bound_become_what_is_configured() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/ids_limit");
    let folder = Scratch::new();
    for file in ["a.pcap", "b.pcap", "local.rules"] {
        std::fs::copy(golden.join(file), folder.join(file)).expect("it is there");
    }
    for (action, on_limit, alerts, drops, line) in [
        ("inline", "inspect", 2, 0, None),
        ("inline", "bypass", 1, 0, Some("1 flow bypassed")),
        ("inline", "drop", 1, 4, Some("1 flow dropped")),
        ("tap", "drop", 1, 0, Some("1 flow dropped")),
    ] {
        let name = format!("{action}-{on_limit}");
        let config = format!(
            "mode = \"wire\"\n[system]\nworkers = 1\n[port.a]\n[port.b]\n[ids]\nrules = [\"local.rules\"]\n\
             action = \"{action}\"\non_limit = \"{on_limit}\"\noutput = \"{name}\"\n"
        );
        let config = folder.write(&format!("{name}.toml"), &config);
        let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        command.current_dir(folder.path()).arg("run").arg(config);
        let output = command.args(["-r", "a=a.pcap", "-r", "b=b.pcap"]).output().expect("it runs");
        let said = text(&[&output.stdout[..], &output.stderr].concat());
        assert!(output.status.success(), "{said}");
        let events = std::fs::read_to_string(folder.join(&name).join("eve.json")).expect("events");
        let count = |what: &str| events.matches(what).count();
        assert_eq!(count("max_command_line_len_exceeded"), 1, "{name}: {events}");
        assert_eq!(count("\"event_type\":\"alert\""), alerts, "{name}: {events}");
        // One of each end.
        assert_eq!(count("\"event_type\":\"drop\""), drops.min(2), "{name}: {events}");
        let reasons = ["applayer error", "flow drop"];
        let reasons = reasons.map(|own| count(&format!("\"reason\":\"{own}\"")));
        assert_eq!(reasons, [usize::from(drops > 0); 2], "{name}: {events}");
        assert_eq!(said.contains("ids_limit"), drops > 0, "{name}: {said}");
        let told = line.is_none_or(|line| said.contains(line));
        assert!(told && said.contains("bounds exceeded") == line.is_some(), "{name}: {said}");
    }
}

/// Packets that cannot be decoded and fragments that never become whole are events, in each pipeline with rules, also where a stage
/// before has dropped them.
#[test]
fn what_no_rule_sees_is_an_anomaly() {
    let folder = Scratch::new();
    let rules = "alert ip any any -> any any (msg:\"x\"; sid:1;)\n\
        alert pkthdr any any -> any any (msg:\"cut\"; decode-event:ipv4.trunc_pkt; sid:2;)\n\
        drop ip 10.0.1.4 any -> any any (msg:\"missing\"; decode-event:ipv4.frag_missing; sid:3;)\n";
    folder.write("local.rules", rules);
    let frame = |number: u8| {
        let source = format!("10.0.1.{number}");
        Frame::new().macs([2; 6], [2, 0, 0, 0, 0, 1]).ipv4(&source, "10.0.2.2")
    };
    let mut bad_checksum = frame(1).udp(4000, 53, b"query").bytes();
    bad_checksum[24] ^= 1;
    let mut cut = frame(2).udp(4000, 53, &[0; 100]).bytes();
    cut.truncate(60);
    let mut no_header = frame(3).udp(4000, 53, b"query").bytes();
    no_header[14] = 0x44;
    let lone = frame(4).fragment(0, true).raw(17, &[0; 64]).bytes();
    let late = frame(5).fragment(4, true).raw(17, &[0; 64]).bytes();
    let last = frame(6).udp(4000, 53, b"query").bytes();
    let at = |s: u64, data| Record::new((1_700_000_000 + s) * 1_000_000_000, data);
    let records = [
        at(0, bad_checksum),
        at(1, cut),
        at(2, no_header),
        at(3, late),
        at(300, lone),
        at(301, last),
    ];
    write_pcap(&folder.join("a.pcap"), &records);
    write_pcap(&folder.join("b.pcap"), &[]);
    let ends = "[ids]\nrules = [\"local.rules\"]\n";
    let ports = "[port.a]\n[port.b]\n";
    folder.write("monitor.toml", &format!("mode = \"monitor\"\n[port.a]\n{ends}"));
    folder.write("inline.toml", &format!("mode = \"wire\"\n{ports}{ends}action = \"inline\"\n"));
    folder.write("wire.toml", &format!("mode = \"wire\"\n{ports}{ends}"));
    let router = "mode = \"router\"\n[port.a]\nmac = \"02:00:00:00:00:01\"\naddresses = [\"10.0.1.1/24\"]\n\
        [port.b]\nmac = \"02:00:00:00:00:02\"\naddresses = [\"10.0.2.1/24\"]\n";
    folder.write("router.toml", &format!("{router}{ends}"));
    for (name, workers) in
        [("monitor", 1), ("monitor", 4), ("inline", 1), ("wire", 1), ("router", 1)]
    {
        let text_of =
            std::fs::read_to_string(folder.join(&format!("{name}.toml"))).expect("it is there");
        let out = format!("{name}-{workers}");
        let text_of = format!("{text_of}output = \"{out}\"\n[system]\nworkers = {workers}\n");
        let config = folder.write("config.toml", &text_of);
        let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        command.current_dir(folder.path()).arg("run").arg(config).args(["-r", "a=a.pcap"]);
        if name != "monitor" {
            command.args(["-r", "b=b.pcap"]);
        }
        let output = command.output().expect("the program runs");
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        let events = std::fs::read_to_string(folder.join(&format!("{out}/eve.json")))
            .expect("it is written");
        let events = events.lines().map(|line| serde_json::from_str(line).expect("an object"));
        let events: Vec<serde_json::Value> = events.collect();
        let alerts = events.iter().filter(|event| event["event_type"] == "alert");
        let alerts: Vec<(&str, u64)> = alerts
            .map(|event| {
                let sid = event["alert"]["signature_id"].as_u64().expect("a number");
                // Fragments that never become whole do not leave: inline, a rule that drops them says so.
                let action = if name == "inline" && sid == 3 { "blocked" } else { "allowed" };
                assert_eq!(event["alert"]["action"], action, "{name} {sid}");
                (text_in(&event["src_ip"]), sid)
            })
            .collect();
        assert_eq!(alerts, [("10.0.1.2", 2), ("10.0.1.4", 3), ("10.0.1.6", 1)], "{name}");
        let events = events.iter().filter(|event| event["event_type"] == "anomaly");
        let found: Vec<String> = events
            .map(|event| {
                assert_eq!(event["anomaly"]["type"], "decode");
                format!("{} {}", text_in(&event["src_ip"]), text_in(&event["anomaly"]["event"]))
            })
            .collect();
        let expected = [
            "10.0.1.1 decoder.ipv4.invalid_checksum",
            "10.0.1.2 decoder.ipv4.trunc_pkt",
            "10.0.1.3 decoder.ipv4.hlen_too_small",
            "10.0.1.5 decoder.ipv4.frag_missing",
            "10.0.1.4 decoder.ipv4.frag_missing",
        ];
        assert_eq!(found, expected, "{name}, {workers} workers");
    }
}

fn text_in(value: &serde_json::Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A variable that nothing names is a mistake; so is a flowbit that nothing sets, most often.
#[test]
fn what_is_named_in_vain_is_said() {
    let folder = Scratch::new();
    let rules = "alert tcp $HOME_NET any -> $PRINTERS any (flowbits:isset,seen; content:\"x\"; sid:1;)\n\
                 alert tcp any any -> any any (flowbits:set,other; content:\"y\"; sid:2;)\n\
                 alert tcp any any -> any any (flowbits:isset,other; flowbits:isset,seen; content:\"y\"; sid:3;)\n";
    folder.write("local.rules", rules);
    let printers = ["-T", "-S", "local.rules", "--set", "PRINTERS=192.0.2.9"];
    let out = ids(&folder, &printers);
    let said = text(&out.stdout);
    assert!(out.status.success(), "{said}{}", text(&out.stderr));
    let warning = "warning: local.rules:1: rule 1 tests the flowbit `seen`, which no rule sets; another rule does, too\n";
    assert!(said.contains(warning) && !said.contains("`other`"), "{said}");
    for (name, hint) in [
        (
            "HOME_NETS",
            "--set HOME_NETS: no rule names the variable `HOME_NETS`, did you mean `HOME_NET`?",
        ),
        ("SCANNERS", "--set SCANNERS: no rule names the variable `SCANNERS`\n"),
    ] {
        let value = format!("{name}=192.0.2.9");
        let out = ids(&folder, &[&printers[..], &["--set", &value]].concat());
        assert!(!out.status.success() && text(&out.stderr).contains(hint), "{}", text(&out.stderr));
        // Another variable may name it.
        let through = format!("HOME_NET=${name}");
        let out = ids(&folder, &[&printers[..], &["--set", &value, "--set", &through]].concat());
        assert!(out.status.success(), "{}", text(&out.stderr));
    }
}

/// What is wrong in a threshold.config is said with its place, and no rule is refused for it.
#[test]
fn mistakes_in_thresholds_have_a_place() {
    let folder = Scratch::new();
    folder.write("local.rules", "alert tcp any any -> any any (content:\"x\"; sid:1;)\n");
    let lines = "# limits\nsuppress gen_id 1, sig_id 1, track by_src, ip $PRINTERS\n\
                 suppress gen_id 1, sig_id 1, track by_both, ip 192.0.2.1\n";
    folder.write("threshold.config", lines);
    let out = ids(&folder, &["-T", "-S", "local.rules", "--thresholds", "threshold.config"]);
    let said = text(&out.stdout);
    assert!(!out.status.success(), "{said}");
    let place = "warning: threshold.config:2: variable $PRINTERS is not defined\n";
    assert!(said.contains(place), "{said}");
    assert!(said.contains("warning: threshold.config:3:36: unknown"), "{said}");
    assert!(said.contains("1 rule: 1 loaded"), "{said}");
}

/// Rules that are silent whatever they match are explained, too, and it is said why they are.
#[test]
fn silent_rules_are_explained() {
    let folder = Scratch::new();
    let rules = "# alert udp any any -> any any (content:\"que\"; \\\n#   sid:1;)\n\
                 alert udp any any -> any any (content:\"que\"; file.magic; content:\"x\"; sid:2;)\n\
                 alert udp any any -> any any (content:\"que\"; stream-event:est_packet_out_of_window; sid:3;)\n\
                 alert udp any any -> any any (content:\"que\"; noalert; sid:4;)\n\
                 alert udp any any -> any any (content:\"que; sid:5;)\n\
                 alert udp any any -> any any (content:\"que\"; sid:6;)\n";
    folder.write("local.rules", rules);
    let frame = Frame::new().ipv4("10.0.0.1", "10.0.0.2").udp(4000, 53, b"query").bytes();
    write_pcap(&folder.join("a.pcap"), &[Record::new(1_700_000_000_000_000_000, frame)]);
    let explain =
        |sid: &str| ids(&folder, &["-r", "a.pcap", "-S", "local.rules", "--explain", sid]);
    for (sid, line, why) in [
        (
            "2",
            "1  udp any any -> any any (content:\"que\";)",
            "rule 2: 0 alerts; it is refused, so it is not evaluated: local.rules:3:1: ",
        ),
        ("3", "1  udp any any -> any any (content:\"que\";)", "stream-event"),
        (
            "4",
            "1  udp any any -> any any (content:\"que\";)",
            "rule 4: 0 alerts; it has `noalert`, so its matches raise no alerts\n",
        ),
        ("6", "1  udp any any -> any any (content:\"que\";)", "rule 6: 1 alert\n"),
    ] {
        let out = explain(sid);
        let said = text(&out.stdout);
        assert!(out.status.success(), "{said}{}", text(&out.stderr));
        assert!(said.contains(line) && said.contains(why), "{said}");
    }
    let out = explain("5");
    let said = text(&out.stderr);
    assert!(
        !out.status.success() && said.contains("rule 5 cannot be read: local.rules:6:"),
        "{said}"
    );
    let out = explain("7");
    assert!(text(&out.stderr).contains("no rule has sid 7"), "{}", text(&out.stderr));
    folder.write("local.rules", "#alert udp any any -> any any (content:\"que\"; sid:1;)\n");
    let out = explain("1");
    let said = text(&out.stdout);
    let why = "rule 1: 0 alerts; it is commented out (local.rules:1), so it is not evaluated\n";
    assert!(
        said.contains("1  udp any any -> any any (content:\"que\";)") && said.contains(why),
        "{said}"
    );
}
