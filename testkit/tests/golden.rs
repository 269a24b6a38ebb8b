//! End to end, a folder per case: captures in, expectation out.
//!
//! Every folder of `tests/golden` is a case, and a test by its name. `tests/golden/CASE/case.toml` names the command and
//! what it must say; `expected/` holds what it must write. A capture is expected as text, `NAME.txt`: a line a packet with time, interface, length, a hash of the bytes, what
//! the packet is and its comment, so that a change shows as a readable difference. `UPDATE_GOLDEN=1` writes the
//! expectation anew.
//!
//! Each command runs twice: the same input gives the same bytes. Cases with an `oracle` are judged by that
//! script in `tests/oracle` besides, which computes from the input alone what the output must be.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use serde::Deserialize;
use testkit::{Scratch, repository};

/// `case.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// What the case shows.
    about: String,
    /// Arguments of the program, run in the case's folder. `{data}` is `tests/data`, `{out}` an empty folder.
    command: Vec<String>,
    /// Exit status.
    #[serde(default)]
    status: i32,
    /// What standard output and error must mention.
    #[serde(default)]
    says: Vec<String>,
    /// Whether what the program prints is expected word for word; only where it holds no times and rates.
    #[serde(default)]
    transcript: bool,
    /// No stage of the pipeline has kernels, so a device gets no jobs.
    #[serde(default)]
    without_kernels: bool,
    /// A stage has no CPU form: the case runs on OpenCL alone, as its configuration says.
    #[serde(default)]
    needs_device: bool,
    /// It fills a table of which each worker has one: with more workers more fits.
    #[serde(default)]
    fills_tables: bool,
    /// The script in `tests/oracle` that judges besides.
    oracle: Option<String>,
    /// The package that it needs beside scapy.
    oracle_needs: Option<String>,
    /// Files that nobody but their owner may read, which git does not say.
    #[serde(default)]
    private: Vec<String>,
}

impl Case {
    /// Whether this machine has what it needs.
    fn may_run(&self) -> bool {
        !self.needs_device || testkit::require_opencl()
    }
}

/// A test for each case.
macro_rules! cases {
    ($($name:ident)*) => {
        $(#[test] fn $name() { output_is_as_expected(stringify!($name)); })*

        mod oracle {
            $(#[test] fn $name() { super::oracle_agrees(stringify!($name)); })*
        }

        /// The same bytes, wherever they are shaded.
        mod backends {
            $(#[test] fn $name() { super::backends_agree(stringify!($name)); })*
        }

        /// The same bytes, however many workers there are.
        mod workers {
            $(#[test] fn $name() { super::workers_agree(stringify!($name)); })*
        }

        const CASES: &[&str] = &[$(stringify!($name)),*];
    };
}

// One word for each folder of `tests/golden`, found by `build.rs`.
include!(concat!(env!("OUT_DIR"), "/golden.rs"));

fn golden() -> PathBuf {
    repository().join("tests/golden")
}

fn read_case(name: &str) -> Case {
    find_case(&golden(), name).unwrap_or_else(|missing| panic!("{missing}"))
}

/// A case, or what its folder lacks.
fn find_case(golden: &Path, name: &str) -> Result<Case, String> {
    let path = golden.join(name).join("case.toml");
    let lacks = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let text = std::fs::read_to_string(&path).map_err(|error| {
        lacks(&format!("every folder here is a case and needs this file: {error}"))
    })?;
    let case: Case = toml::from_str(&text).map_err(|error| lacks(&error))?;
    if case.command.is_empty() {
        return Err(lacks(&"`command` is empty"));
    }
    if let Some(script) = &case.oracle
        && !repository().join("tests/oracle").join(script).is_file()
    {
        return Err(lacks(&format!("`oracle` names {script}, which is not in tests/oracle")));
    }
    for file in &case.private {
        let only_owner = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        let set = std::fs::set_permissions(golden.join(name).join(file), only_owner);
        set.map_err(|error| lacks(&format!("{file}: {error}")))?;
    }
    Ok(case)
}

/// The arguments with their places filled in.
fn arguments(case: &Case, out: &Path) -> Vec<String> {
    let data = repository().join("tests/data").display().to_string();
    let out = out.display().to_string();
    let fill = |argument: &String| argument.replace("{data}", &data).replace("{out}", &out);
    case.command.iter().map(fill).collect()
}

fn run(program: &Path, name: &str, case: &Case, out: &Path) -> Output {
    std::fs::create_dir_all(out).expect("an output folder");
    let mut command = Command::new(program);
    command.current_dir(golden().join(name)).args(arguments(case, out));
    command.output().unwrap_or_else(|e| panic!("{}: {e}", program.display()))
}

/// What `--backend` may say that every machine with the test tools has.
const BACKENDS: &[&str] = &["sim", "opencl"];

/// Packets that stages behind the first one saw, by the table of stages that a run prints.
fn packets_behind_first(said: &str) -> u64 {
    let table = said.lines().skip_while(|line| !line.starts_with("stage ")).skip(2);
    let rows = table.take_while(|line| !line.is_empty());
    rows.filter_map(|line| {
        line.split_whitespace().next_back()?.replace(',', "").parse::<u64>().ok()
    })
    .sum()
}

/// A run on another backend writes the same captures.
fn backends_agree(name: &str) {
    let case = read_case(name);
    if case.command.first().is_none_or(|command| command != "run") || !case.may_run() {
        return;
    }
    let Some(program) = testkit::shadeline_bin() else { return };
    let scratch = Scratch::new();
    let plain = scratch.join("plain");
    run(&program, name, &case, &plain);
    for backend in BACKENDS {
        if *backend == "sim" && case.needs_device {
            continue;
        }
        if *backend == "opencl" && !testkit::require_opencl() {
            continue;
        }
        let out = scratch.join(backend);
        std::fs::create_dir_all(&out).expect("an output folder");
        let mut command = Command::new(&program);
        command.current_dir(golden().join(name)).args(arguments(&case, &out));
        command.args(["--backend", backend]);
        testkit::set_caches(&mut command, Path::new(env!("CARGO_TARGET_TMPDIR")));
        let output = command.output().expect("the program");
        let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
        said += &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(case.status), "{backend}: {}\n{said}", case.about);
        if case.status == 0 {
            assert!(said.contains(", 0 jobs repeated on the CPU"), "{backend}: {said}");
            // What the first stage settles whole does not travel.
            let is_left = said.contains(": 0 jobs, ") && packets_behind_first(&said) > 0;
            assert!(!is_left || case.without_kernels, "{backend}: {said}");
        }
        assert_eq!(list(&plain), list(&out), "{backend}: other files");
        for file in list(&plain) {
            let (one, other) =
                (render(&file, &plain.join(&file)).1, render(&file, &out.join(&file)).1);
            assert!(one == other, "{backend} wrote something else to {file}");
        }
    }
}

/// Four workers write what one writes: captures and statistics, byte for byte.
fn workers_agree(name: &str) {
    let case = read_case(name);
    let is_run = case.command.first().is_some_and(|command| command == "run");
    if !is_run || case.fills_tables || !case.may_run() {
        return;
    }
    let Some(program) = testkit::shadeline_bin() else { return };
    let scratch = Scratch::new();
    let written = [1, 4].map(|workers| {
        let folder = case_with_workers(&scratch, name, workers);
        let out = scratch.join(&format!("out{workers}"));
        std::fs::create_dir_all(&out).expect("an output folder");
        let mut command = Command::new(&program);
        let output = command.current_dir(folder).args(arguments(&case, &out)).output();
        let output = output.expect("the program");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(case.status), "{workers} workers\n{said}");
        list(&out)
            .into_iter()
            .map(|file| (file.clone(), std::fs::read(out.join(&file)).expect("a file")))
            .collect::<BTreeMap<_, _>>()
    });
    let [one, four] = &written;
    assert!(one.keys().eq(four.keys()), "other files");
    for (file, bytes) in one {
        assert!(*bytes == four[file], "four workers wrote something else to {file}");
    }
}

/// A copy of a case whose configurations ask for so many workers, between the folders beside it.
fn case_with_workers(scratch: &Scratch, name: &str, workers: usize) -> PathBuf {
    let all = scratch.join(&format!("golden{workers}"));
    let folder = all.join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    for other in list(&golden()).iter().filter(|other| *other != name) {
        std::os::unix::fs::symlink(golden().join(other), all.join(other)).expect("a link");
    }
    for file in list(&golden().join(name)) {
        let (from, to) = (golden().join(name).join(&file), folder.join(&file));
        if from.is_dir() {
            continue; // what is expected
        }
        if file.ends_with(".toml") {
            let text = std::fs::read_to_string(&from).expect("a configuration");
            std::fs::write(to, with_workers(&text, workers)).expect("a configuration");
        } else {
            std::fs::copy(from, to).expect("a copy");
        }
    }
    folder
}

/// A configuration with so many workers.
fn with_workers(text: &str, workers: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut section = "";
    for line in text.lines() {
        section = if line.starts_with('[') { line } else { section };
        let is_count = section == "[system]" && line.starts_with("workers");
        lines.extend((!is_count).then(|| line.to_owned()));
    }
    let at = lines.iter().position(|line| line == "[system]").unwrap_or_else(|| {
        lines.push("[system]".into());
        lines.len() - 1
    });
    lines.insert(at + 1, format!("workers = {workers}"));
    lines.join("\n") + "\n"
}

fn output_is_as_expected(name: &str) {
    let Some(program) = testkit::shadeline_bin() else { return };
    let case = read_case(name);
    if !case.may_run() {
        return;
    }
    let scratch = Scratch::new();
    let (first, second) = (scratch.join("first"), scratch.join("second"));
    let output = run(&program, name, &case, &first);
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said += &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(case.status), "{}\n{said}", case.about);
    for word in &case.says {
        assert!(said.contains(word), "{}: says nothing of {word:?}\n{said}", case.about);
    }
    run(&program, name, &case, &second);
    let files = list(&first);
    assert_eq!(files, list(&second), "two runs wrote different files");
    let mut written = BTreeMap::new();
    for file in &files {
        let (path, again) = (first.join(file), second.join(file));
        let (file, text) = render(file, &path);
        assert!(text == render(&file, &again).1, "two runs wrote different bytes to {file}");
        written.insert(file, text);
    }
    if case.transcript {
        written.insert("transcript.txt".to_string(), said);
    }
    compare(&golden().join(name).join("expected"), &written);
}

/// Compares what was written with the expectation, or writes that.
fn compare(expected: &Path, written: &BTreeMap<String, String>) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        // Missing the first time.
        let _ = std::fs::remove_dir_all(expected);
        std::fs::create_dir_all(expected).expect("the folder of expectations");
        for (file, text) in written {
            std::fs::write(expected.join(file), text).expect("an expectation");
        }
        return;
    }
    let names: Vec<&String> = written.keys().collect();
    assert_eq!(list(expected).iter().collect::<Vec<_>>(), names, "other files than expected");
    for (file, text) in written {
        let wanted = std::fs::read_to_string(expected.join(file)).expect("an expectation");
        if let Some(at) = first_difference(&wanted, text) {
            let line = |t: &str| t.lines().nth(at).unwrap_or("(the end)").to_string();
            panic!(
                "{file}, line {}:\n  expected {}\n  written  {}",
                at + 1,
                line(&wanted),
                line(text)
            );
        }
    }
}

fn first_difference(a: &str, b: &str) -> Option<usize> {
    if a == b {
        return None;
    }
    let (mut a, mut b, mut at) = (a.lines(), b.lines(), 0);
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Some(at),
            (one, other) if one != other => return Some(at),
            _ => at += 1,
        }
    }
}

/// File names in a folder, sorted; none where it is missing.
fn list(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The file's name and text as expectations hold them.
fn render(name: &str, path: &Path) -> (String, String) {
    match path.extension().and_then(|e| e.to_str()) {
        Some("pcap" | "pcapng") => (format!("{name}.txt"), capture_text(path)),
        Some("json") => (name.to_string(), stable_json(path)),
        _ => (name.to_string(), std::fs::read_to_string(path).expect("a text file")),
    }
}

fn capture_text(path: &Path) -> String {
    let mut text = String::new();
    for record in testkit::pcap::read(path) {
        let (seconds, nanos) = (record.time_ns / 1_000_000_000, record.time_ns % 1_000_000_000);
        let hash = fnv(&record.data);
        let _ = write!(text, "{seconds}.{nanos:09} {} {} ", record.interface, record.data.len());
        let _ = write!(text, "{hash:016x} {}", summary(&record.data));
        let _ = match &record.comment {
            Some(comment) => writeln!(text, " # {comment}"),
            None => writeln!(text),
        };
    }
    text
}

/// Fowler–Noll–Vo 1a, 64 bits.
fn fnv(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// What people look for first.
fn summary(frame: &[u8]) -> String {
    let Ok(packet) = SlicedPacket::from_ethernet(frame) else {
        return "unparsed".to_string();
    };
    let mut text = String::new();
    for tag in packet.vlan_ids() {
        let _ = write!(text, "vlan {} ", tag.value());
    }
    match &packet.net {
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header();
            let _ = write!(
                text,
                "{}>{} ttl {}",
                header.source_addr(),
                header.destination_addr(),
                header.ttl()
            );
            if header.is_fragmenting_payload() {
                let offset = header.fragments_offset().byte_offset();
                let more = if header.more_fragments() { "+" } else { "" };
                let _ = write!(text, " fragment {offset}{more}");
            }
        }
        Some(NetSlice::Ipv6(ip)) => {
            let header = ip.header();
            let _ = write!(text, "{}>{}", header.source_addr(), header.destination_addr());
            let _ = write!(text, " hops {}", header.hop_limit());
        }
        Some(_) => text += "arp",
        None => text += "not ip",
    }
    match &packet.transport {
        Some(TransportSlice::Udp(udp)) => {
            let _ = write!(text, " udp {}>{}", udp.source_port(), udp.destination_port());
        }
        Some(TransportSlice::Tcp(tcp)) => {
            let _ = write!(text, " tcp {}>{}", tcp.source_port(), tcp.destination_port());
        }
        Some(TransportSlice::Icmpv4(icmp)) => {
            let _ = write!(text, " icmp {}/{}", icmp.type_u8(), icmp.code_u8());
        }
        Some(TransportSlice::Icmpv6(icmp)) => {
            let _ = write!(text, " icmpv6 {}/{}", icmp.type_u8(), icmp.code_u8());
        }
        _ => {}
    }
    text
}

/// JSON without what differs from run to run: costs, durations, rates, the build. Lines of JSON, such as events, as they are:
/// their times are those of packets.
fn stable_json(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("a text file");
    let lines = text.lines().map(serde_json::from_str::<serde_json::Value>);
    if text.lines().count() > 1 && lines.into_iter().all(|line| line.is_ok()) {
        return text;
    }
    let mut value: serde_json::Value =
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    drop_volatile(&mut value);
    serde_json::to_string_pretty(&value).expect("JSON") + "\n"
}

fn drop_volatile(value: &mut serde_json::Value) {
    const WORDS: &[&str] =
        &["seconds", "_ns", "ns_", "cycles", "rate", "pps", "bps", "version", "elapsed", "chunk"];
    match value {
        serde_json::Value::Object(map) => {
            map.retain(|key, _| !WORDS.iter().any(|word| key.contains(word)));
            map.values_mut().for_each(drop_volatile);
        }
        serde_json::Value::Array(list) => list.iter_mut().for_each(drop_volatile),
        _ => {}
    }
}

fn oracle_agrees(name: &str) {
    let case = read_case(name);
    let Some(script) = &case.oracle else { return };
    let Some(program) = testkit::shadeline_bin() else { return };
    let Some(python) = testkit::require_python("scapy") else { return };
    if let Some(package) = &case.oracle_needs
        && testkit::require_python(package).is_none()
    {
        return;
    }
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let output = run(&program, name, &case, &out);
    assert_eq!(
        output.status.code(),
        Some(case.status),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said = ask(&python, script, name, &case, &out);
    println!("{}", said.unwrap_or_else(|said| panic!("{}\n{said}", case.about)));
}

/// The oracle's words: of agreement, or what is wrong.
fn ask(python: &Path, script: &str, name: &str, case: &Case, out: &Path) -> Result<String, String> {
    let mut oracle = Command::new(python);
    // Compiled files beside the script would be litter in the checkout.
    oracle.arg("-B").arg(repository().join("tests/oracle").join(script)).arg(out);
    // It reads the program's arguments and finds the inputs by them.
    let output = oracle.current_dir(golden().join(name)).args(arguments(case, out)).output();
    let output = output.expect("Python");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(said),
        false => Err(said + &String::from_utf8_lossy(&output.stderr)),
    }
}

/// An oracle that agrees with everything would be none.
#[test]
fn the_oracle_sees_tampering() {
    let Some(program) = testkit::shadeline_bin() else { return };
    let Some(python) = testkit::require_python("scapy") else { return };
    let name = "routes";
    let case = read_case(name);
    let scratch = Scratch::new();
    let tamper = |file: &str, change: &dyn Fn(&mut Vec<testkit::pcap::Record>)| {
        let out = scratch.join("out");
        run(&program, name, &case, &out);
        let mut records = testkit::pcap::read(&out.join(file));
        change(&mut records);
        testkit::pcap::write_pcapng(&out.join(file), &["any"], &records);
        ask(&python, "router.py", name, &case, &out)
    };
    let nothing = tamper("wan.pcapng", &|_| {});
    assert!(nothing.is_ok(), "{nothing:?}");
    let missing = tamper("wan.pcapng", &|records| drop(records.pop()));
    assert!(missing.is_err());
    let swapped = tamper("wan.pcapng", &|records| records.swap(0, 1));
    assert!(swapped.is_err());
    // TTL, destination address, a byte of the payload, the MACs.
    for at in [0, 6, 22, 33, 50] {
        assert!(tamper("wan.pcapng", &|records| records[2].data[at] ^= 2).is_err(), "byte {at}");
    }
    let reason =
        tamper("dropped.pcapng", &|records| records[0].comment = Some("bad_lookup".to_string()));
    assert!(reason.is_err());
}

/// The same of that of the firewall, which looks at hits besides.
#[test]
fn the_oracle_of_the_firewall_sees_tampering() {
    let Some(program) = testkit::shadeline_bin() else { return };
    let Some(python) = testkit::require_python("scapy") else { return };
    for (name, port) in [("firewall", "mon"), ("firewall_switch", "a"), ("firewall_wire", "b")] {
        let case = read_case(name);
        let scratch = Scratch::new();
        let out = scratch.join("out");
        let tamper = |file: &str, change: &dyn Fn(&mut Vec<testkit::pcap::Record>)| {
            run(&program, name, &case, &out);
            let mut records = testkit::pcap::read(&out.join(file));
            change(&mut records);
            testkit::pcap::write_pcapng(&out.join(file), &["any"], &records);
            ask(&python, "firewall.py", name, &case, &out)
        };
        let capture = format!("{port}.pcapng");
        let nothing = tamper(&capture, &|_| {});
        assert!(nothing.is_ok(), "{nothing:?}");
        assert!(tamper(&capture, &|records| drop(records.pop())).is_err(), "{name}");
        // Within the headers, whatever the frame is.
        for at in [0, 30, 40] {
            assert!(tamper(&capture, &|records| records[0].data[at] ^= 1).is_err(), "byte {at}");
        }
        let reason = |records: &mut Vec<testkit::pcap::Record>| {
            records[0].comment = Some("firewall_other".to_string());
        };
        assert!(tamper("dropped.pcapng", &reason).is_err(), "{name}");
        run(&program, name, &case, &out);
        let stats = std::fs::read_to_string(out.join("stats.json")).expect("stats.json");
        let other = stats.replacen("\"last_hit\": \"17", "\"last_hit\": \"18", 1);
        assert_ne!(stats, other);
        std::fs::write(out.join("stats.json"), other).expect("stats.json");
        assert!(ask(&python, "firewall.py", name, &case, &out).is_err(), "{name}");
    }
}

/// A folder that is not a case is named with what it lacks; a new one is a test.
#[test]
fn folders_that_are_no_cases_are_named() {
    let scratch = Scratch::new();
    let lacks = |name: &str, text: Option<&str>| {
        std::fs::create_dir_all(scratch.join(name)).expect("a folder");
        if let Some(text) = text {
            scratch.write(&format!("{name}/case.toml"), text);
        }
        find_case(scratch.path(), name).map(|_| ()).unwrap_err()
    };
    assert!(lacks("empty", None).contains("empty/case.toml: every folder here is a case"));
    assert!(lacks("bare", Some("about = 'x'")).contains("missing field `command`"));
    assert!(lacks("idle", Some("about = 'x'\ncommand = []")).contains("`command` is empty"));
    let judged = "about = 'x'\ncommand = ['run']\noracle = 'no.py'";
    assert!(lacks("judged", Some(judged)).contains("no.py, which is not in tests/oracle"));
    let other = "about = 'x'\ncommand = ['run']\nsay = []";
    assert!(lacks("other", Some(other)).contains("unknown field `say`"));
    let folders = list(&golden()).into_iter().filter(|name| golden().join(name).is_dir());
    assert_eq!(folders.collect::<Vec<_>>(), CASES);
}

#[test]
fn the_runner_sees_differences() {
    assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
    assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some(1));
    assert_eq!(first_difference("a\n", "a\nb\n"), Some(1));
    assert_ne!(fnv(&[0]), fnv(&[0, 0]));
    assert_eq!(with_workers("a = 1", 4), "a = 1\n[system]\nworkers = 4\n");
    let text = "[system]\ncells = 9\nworkers = 1\n[pit]\nworkers = 3\n";
    let other = "[system]\nworkers = 4\ncells = 9\n[pit]\nworkers = 3\n";
    assert_eq!(with_workers(text, 4), other);
    let mut json =
        serde_json::json!({"packets": 3, "seconds": 0.1, "stages": [{"cost_ns": 7, "calls": 1}]});
    drop_volatile(&mut json);
    assert_eq!(json, serde_json::json!({"packets": 3, "stages": [{"calls": 1}]}));
}
