//! How commands end when what they print or write cannot be taken, and when a signal comes: one line, an exit status,
//! closed files, and never a panic.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use control::api::{Request, Response, Server, TraceStep};
use control::metrics::Snapshot;
use testkit::Scratch;
use testkit::frames::Frame;
use testkit::pcap::Record;

const CONFIG: &str = "mode = \"router\"\n\
    [port.lan]\naddresses = [\"192.0.2.1/24\"]\n\
    [port.wan]\naddresses = [\"198.51.100.1/24\"]\n\
    [[route]]\nprefix = \"0.0.0.0/0\"\nvia = \"198.51.100.2\"\n";

/// Every command that prints, by the word that it is listed under.
const PRINTING: &[&str] = &[
    "demo --packets 1000",
    "demo --packets 1000 --json",
    "run c.toml -r in.pcap",
    "run c.toml -r in.pcap --json",
    "check c.toml",
    "check c.toml --json",
    "ctl --socket sock show runtime",
    "ctl --socket sock show runtime --json",
    "ctl --socket sock top --interval 0.1",
    "ctl --socket sock flows top --interval 0.1",
    "ctl --socket sock trace",
    "ctl --socket sock trace --json",
    "ctl --socket sock capture lan -w -",
    "streams -r in.pcap",
    "l7 -r in.pcap",
    "l7 -r in.pcap --json",
    "ids -T -S ids.rules",
    "ids -r in.pcap -S ids.rules",
    "stages",
    "stages route --json",
    "devices --quick",
    "lpm --routes routes --addresses addresses --results -",
    "lpm --routes routes --addresses addresses --results out",
    "names --routes prefixes --names names --results -",
    "names --routes prefixes --names names --results out",
    "classify --rules rules --trace trace --algorithm linear --matches -",
    "classify --rules rules --trace trace --algorithm linear",
    "classify --rules rules --explain 10.0.0.1,192.0.2.1,1024,80,tcp",
    "gen packets --count 10000 -w -",
    "gen packets --count 10 -w out.pcap",
    "gen packets --count 10 --engine c.toml",
    "gen rules --rules 1000 -w -",
    "gen rules --rules 10 -w out",
    "gen trace --rules rules --count 1000 -w -",
    "gen trace --rules rules --count 10 -w out",
    "bench order --packets 1000",
    "completions bash",
    "help",
    "help run",
    "--help",
    "run --help",
    "ctl show --help",
    "--version",
];

/// Those that print nothing on success, or need interfaces.
const QUIET: &[&str] = &["man", "measure", "restore"];

fn folder() -> Scratch {
    let folder = Scratch::new();
    folder.write("c.toml", CONFIG);
    folder.write("routes", "10.0.0.0/8 east\n");
    folder.write("addresses", &"10.0.0.1\n".repeat(20_000));
    folder.write("prefixes", "/org east\n");
    folder.write("names", &"/org/x\n".repeat(20_000));
    folder
        .write("ids.rules", "alert tcp any any -> any any (msg:\"x\"; content:\"GET\"; sid:1;)\n");
    folder.write("rules", "@10.0.0.0/8\t0.0.0.0/0\t0 : 65535\t80 : 80\t0x06/0xFF\n");
    folder.write("trace", &"167772161 1 1024 80 6\n".repeat(20_000));
    testkit::pcap::write_pcap(&folder.join("in.pcap"), &packets(0..20));
    folder
}

fn packets(numbers: std::ops::Range<u32>) -> Vec<Record> {
    let packet = |i: u32| {
        let frame = Frame::new().ipv4("192.0.2.9", "10.2.3.4").udp(1000 + i as u16, 53, &[7; 400]);
        Record::new(1_700_000_000_000_000_000 + u64::from(i) * 1000, frame.bytes())
    };
    numbers.map(packet).collect()
}

/// A running program as `ctl` sees it.
fn served(folder: &Scratch) -> Server {
    Server::bind(folder.join("sock"), |asked, responder| {
        let response = match asked.request {
            Request::Trace { .. } => Response::Trace {
                steps: vec![TraceStep {
                    stage: "rx".into(),
                    verdict: "next".into(),
                    detail: "lan".into(),
                }],
            },
            Request::Capture { .. } => Response::Frame(control::api::Frame {
                time_ns: 1,
                port: "lan".into(),
                sent: false,
                original_len: 60,
                comment: None,
                bytes: vec![0; 60],
            }),
            Request::Show { what, .. } if what == "snapshot" => {
                let fields = control::api::fields_of(&Snapshot::default()).expect("an object");
                Response::Object { table: what, fields }
            }
            Request::Show { what, .. } if what == "flows" => {
                Response::Rows { table: what, rows: Vec::new() }
            }
            _ => Response::Text { text: "the answer\n".into() },
        };
        let _ = responder.send(response);
    })
    .expect("a socket")
}

fn shadeline(folder: &Scratch, args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    // The fields of a header are one word.
    let words = args.split_whitespace().map(|word| match word.starts_with("10.0.0.1,") {
        true => word.replace(',', " "),
        false => word.to_owned(),
    });
    command.args(words).current_dir(folder.path()).stdin(Stdio::null());
    // A device compiles for minutes.
    command.env("OPENCL_DYLIB_PATH", "/absent");
    command
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// One line that begins so, status 1, no panic.
fn assert_one_line(args: &str, output: &Output, expected: &str) {
    let said = errors(output);
    assert_eq!(output.status.code(), Some(1), "{args}: {said}");
    let wrong: Vec<_> = said.lines().filter(|line| line.starts_with("error")).collect();
    assert!(wrong.len() == 1 && wrong[0].starts_with(expected), "{args}: {said}");
    assert!(!said.contains("panicked"), "{args}: {said}");
}

/// A pipe that nobody reads any more.
fn closed_pipe() -> std::io::PipeWriter {
    let (reads, writes) = std::io::pipe().expect("a pipe");
    drop(reads);
    writes
}

#[test]
fn output_that_is_not_taken_is_one_line() {
    let folder = folder();
    let server = served(&folder);
    for args in PRINTING {
        let full = File::options().write(true).open("/dev/full").expect("/dev/full");
        let output = shadeline(&folder, args).stdout(full).output().expect("the program");
        assert_one_line(args, &output, "error: standard output: No space left on device");
        let output = shadeline(&folder, args).stdout(closed_pipe()).output().expect("the program");
        assert_one_line(args, &output, "error: standard output: the reader closed the pipe");
    }
    drop(server);
}

#[test]
fn every_command_is_in_the_table() {
    let folder = Scratch::new();
    let output = shadeline(&folder, "--help").output().expect("the program");
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    let list = help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next());
    let line = |line: &str| line.strip_prefix("  ")?.split(' ').next().map(str::to_owned);
    let listed: BTreeSet<String> = list.expect("commands").lines().filter_map(line).collect();
    let here = PRINTING.iter().chain(QUIET).filter_map(|args| args.split(' ').next());
    let here: BTreeSet<&str> = here.collect();
    assert!(listed.len() > 10, "{help}");
    for command in listed.iter().filter(|command| !command.is_empty()) {
        assert!(here.contains(command.as_str()), "{command} is not tested here");
    }
}

#[test]
fn messages_that_are_not_taken_change_nothing() {
    let folder = folder();
    for args in ["check absent.toml", "run c.toml -r absent.pcap", "gen rules --rules 5 -w -"] {
        let plain = shadeline(&folder, args).output().expect("the program");
        let full = File::options().write(true).open("/dev/full").expect("/dev/full");
        let output = shadeline(&folder, args).stderr(full).output().expect("the program");
        assert_eq!((output.status, output.stdout), (plain.status, plain.stdout), "{args}");
        let output = shadeline(&folder, args).stderr(closed_pipe()).output().expect("the program");
        assert_eq!(output.status, plain.status, "{args}");
    }
}

#[test]
fn files_that_cannot_be_written_are_named() {
    let folder = folder();
    std::fs::create_dir(folder.join("manual")).expect("a folder");
    for link in ["full", "full.pcap", "manual/shadeline.1"] {
        std::os::unix::fs::symlink("/dev/full", folder.join(link)).expect("a link");
    }
    let server = served(&folder);
    for (args, name) in [
        ("lpm --routes routes --addresses addresses --results full", "full"),
        ("names --routes prefixes --names names --results full", "full"),
        ("classify --rules rules --trace trace --algorithm linear --matches full", "full"),
        ("gen packets --count 10000 -w full.pcap", "full.pcap"),
        ("gen rules --rules 1000 -w full", "full"),
        ("gen trace --rules rules --count 1000 -w full", "full"),
        ("ctl --socket sock capture lan -w full", "full"),
        ("man manual", "manual"),
    ] {
        let output = shadeline(&folder, args).output().expect("the program");
        assert_one_line(args, &output, &format!("error: {name}"));
        assert!(errors(&output).contains("No space left on device"), "{args}");
    }
    drop(server);
}

#[test]
fn a_full_disk_ends_a_run_over_captures() {
    let folder = folder();
    testkit::pcap::write_pcap(&folder.join("long.pcap"), &packets(0..30_000));
    for (links, expected) in [
        (&["wan.pcapng"][..], "error: out/wan.pcapng: No space left on device (os error 28)\n"),
        (
            &["lan.pcapng", "wan.pcapng", "dropped.pcapng"],
            "No space left on device (os error 28) (and 2 more files)\n",
        ),
        (
            &["wan.pcapng", "dropped.pcapng"],
            "No space left on device (os error 28) (and 1 more file)\n",
        ),
    ] {
        for json in ["", "--json"] {
            let _ = std::fs::remove_dir_all(folder.join("out"));
            std::fs::create_dir(folder.join("out")).expect("a folder");
            for link in links {
                let link = folder.join("out").join(link);
                std::os::unix::fs::symlink("/dev/full", link).expect("a link");
            }
            let args = format!("run c.toml -r long.pcap -w out {json}");
            let output = shadeline(&folder, &args).output().expect("the program");
            assert_one_line(&args, &output, "error: out/");
            assert!(errors(&output).ends_with(expected), "{}", errors(&output));
            // The rest of the input is of no use.
            let stats = std::fs::read_to_string(folder.join("out/stats.json")).expect("totals");
            let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
            assert!(stats["rx_packets"].as_u64() <= Some(30_000), "{stats}");
            assert!(stats["errors"][0].as_str().is_some_and(|text| text.contains("No space")));
            assert_eq!(stats["incomplete"], true, "{stats}");
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let end = "incomplete captures and stats.json in out\n";
            assert!(!json.is_empty() || said.ends_with(end), "{said}");
        }
    }
    // Totals that cannot be written are not left half written.
    let _ = std::fs::remove_dir_all(folder.join("out"));
    let output = shadeline(&folder, "run c.toml -r in.pcap -w /dev/full").output().expect("it");
    assert_one_line("-w /dev/full", &output, "error: /dev/full: ");
}

/// Totals that cannot be written are not promised, and those of an earlier run are gone.
#[test]
fn totals_are_those_of_this_run_or_none() {
    let folder = folder();
    std::fs::create_dir(folder.join("out")).expect("a folder");
    for args in ["run c.toml -r absent.pcap -w out", "run absent.toml -r in.pcap -w out"] {
        folder.write("out/stats.json", "of an earlier run");
        let output = shadeline(&folder, args).output().expect("the program");
        assert_one_line(args, &output, "error: absent.");
        assert!(!folder.join("out/stats.json").exists(), "{args}");
    }
    // A folder that fills up: limit the size of files instead of a disk.
    let Some(prlimit) = testkit::require_tool("prlimit") else { return };
    let mut command = Command::new(prlimit);
    command.args(["--fsize=200", "--", "env", "--ignore-signal=XFSZ"]);
    command
        .arg(env!("CARGO_BIN_EXE_shadeline"))
        .args(["run", "c.toml", "-r", "in.pcap", "-w", "out"]);
    for link in ["lan.pcapng", "wan.pcapng", "dropped.pcapng"] {
        let _ = std::fs::remove_file(folder.join("out").join(link));
        std::os::unix::fs::symlink("/dev/null", folder.join("out").join(link)).expect("a link");
    }
    let output = command.current_dir(folder.path()).output().expect("the program");
    assert_one_line("a full disk", &output, "error: out/stats.json: File too large");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.ends_with("captures, but no stats.json, in out\n"), "{said}");
    assert!(!folder.join("out/stats.json").exists());
}

/// Reads until this has been printed.
fn read_until(from: &mut impl Read, text: &str) -> String {
    let (mut all, mut byte) = (Vec::new(), [0]);
    while !String::from_utf8_lossy(&all).contains(text) {
        assert_eq!(from.read(&mut byte).expect("a pipe"), 1, "{}", String::from_utf8_lossy(&all));
        all.push(byte[0]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

fn kill(child: &Child, signal: &str) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(status.expect("kill").success());
}

#[test]
fn a_signal_over_captures_closes_files_and_prints_totals() {
    let folder = folder();
    testkit::pcap::write_pcap(&folder.join("long.pcap"), &packets(0..5_000));
    let capture = std::fs::read(folder.join("long.pcap")).expect("a capture");
    for (signal, name, status) in [("-INT", "SIGINT", 130), ("-TERM", "SIGTERM", 143)] {
        std::fs::create_dir_all(folder.join("out")).expect("a folder");
        folder.write("out/stats.json", "of an earlier run");
        let mut command = shadeline(&folder, "run c.toml -r - -w out");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program");
        // A pipe that stays open: without the signal the run would wait for ever.
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(&capture).expect("a pipe");
        let dropped = folder.join("out/dropped.pcapng");
        let started = testkit::wait_until(Duration::from_secs(60), || {
            dropped.exists() && !folder.join("out/stats.json").exists()
        });
        assert!(started, "the totals of the earlier run are there");
        kill(&child, signal);
        let output = child.wait_with_output().expect("the program");
        drop(stdin);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(status), "{said}{}", errors(&output));
        assert_eq!(errors(&output), "");
        assert!(said.contains(&format!("interrupted by {name}")), "{said}");
        assert!(said.contains(" packets in, "), "{said}");
        let stats = std::fs::read_to_string(folder.join("out/stats.json")).expect("totals");
        let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
        assert_eq!(stats["interrupted"], name);
        let written = testkit::pcap::read(&folder.join("out/wan.pcapng")).len() as u64;
        assert_eq!(stats["tx_packets"], written);
    }
    // Before a header has come there is nothing to write.
    let _ = std::fs::remove_dir_all(folder.join("out"));
    let mut command = shadeline(&folder, "run c.toml -r - -w out");
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program");
    let stdin = child.stdin.take().expect("a pipe");
    let id = child.id();
    // Signals are taken before the input is opened.
    let caught = || {
        let text = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
        u64::from_str_radix(line.trim(), 16).unwrap_or(0) & 1 << 14 != 0
    };
    assert!(testkit::wait_until(Duration::from_secs(60), caught));
    kill(&child, "-TERM");
    let output = child.wait_with_output().expect("the program");
    drop(stdin);
    assert_eq!((output.status.code(), errors(&output)), (Some(143), String::new()));
    assert!(!folder.join("out").exists());
}

#[test]
fn a_signal_ends_the_generator_in_order() {
    let folder = folder();
    for (signal, status) in [("-INT", 130), ("-TERM", 143)] {
        let path = folder.join("endless.pcap");
        let _ = std::fs::remove_file(&path);
        let mut command = shadeline(&folder, "gen packets --count 100000000000 -w endless.pcap");
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program");
        let has_begun = || path.metadata().is_ok_and(|about| about.len() > 100_000);
        assert!(testkit::wait_until(Duration::from_secs(60), has_begun));
        kill(&child, signal);
        let said = read_until(child.stdout.as_mut().expect("a pipe"), "\n");
        assert_eq!(child.wait().expect("the program").code(), Some(status), "{said}");
        let packets = said.split(' ').next().expect("a number").replace(',', "");
        let written = testkit::pcap::read(&path).len();
        assert_eq!(packets, written.to_string(), "{said}");

        let args = "gen packets --count 100000000000 --engine c.toml";
        let mut child = shadeline(&folder, args).stdout(Stdio::piped()).spawn().expect("it");
        let id = child.id();
        let caught = || {
            let text = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
            u64::from_str_radix(line.trim(), 16).unwrap_or(0) & 1 << 14 != 0
        };
        assert!(testkit::wait_until(Duration::from_secs(60), caught));
        kill(&child, signal);
        let said = read_until(child.stdout.as_mut().expect("a pipe"), " packets, ");
        assert!(said.contains(" packets in, "), "{said}");
        let mut rest = String::new();
        child.stdout.take().expect("a pipe").read_to_string(&mut rest).expect("text");
        assert_eq!(child.wait().expect("the program").code(), Some(status));
    }
}
