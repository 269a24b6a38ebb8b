//! Flows for other programs: a collector (nfdump, tshark), events, tables (pandas, DuckDB). All say the same of a capture, and
//! the same with any number of workers; outputs that fail are errors.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use testkit::frames::Frame;
use testkit::pcap::{Record, write_pcap};
use testkit::process::{Process, Stop};
use testkit::{Scratch, repository, wait_until};

const LONG: Duration = Duration::from_secs(30);

/// Captures of different kinds: many protocols, gaps, IPv6 fragments, VLANs.
const CAPTURES: &[&str] = &[
    "var-services-std-ports.pcap",
    "reassembly.pcap",
    "smtp.pcap",
    "ipv6-fragmented-dns.pcap",
    "vlan-collisions.pcap",
    "timeout-with-pings.pcap",
    "wikipedia.pcap",
];

fn data(name: &str) -> String {
    repository().join("tests/data").join(name).display().to_string()
}

/// A monitor over a capture with these settings of `[flow]`.
fn run(scratch: &Scratch, capture: &str, workers: usize, flow: &str) -> Output {
    let config = format!(
        "mode = \"monitor\"\n[system]\nworkers = {workers}\n[port.tap]\ninterface = \"tap\"\n[flow]\n{flow}"
    );
    let config = scratch.write("monitor.toml", &config);
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.current_dir(scratch.path()).arg("run").arg(config).args(["-r", capture, "--json"]);
    command.output().unwrap()
}

/// What is printed, and everything is well.
fn ok(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn events(scratch: &Scratch) -> Vec<Value> {
    let text = std::fs::read_to_string(scratch.join("eve.json")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_type<'e>(events: &'e [Value], kind: &str) -> Vec<&'e Value> {
    events.iter().filter(|event| event["event_type"] == kind).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Who talks to whom: addresses, ports, protocol.
type Way = (String, String, u64, u64, u64);

fn protocol(event: &Value) -> u64 {
    match event["proto"].as_str() {
        Some("TCP") => 6,
        Some("UDP") => 17,
        Some("ICMP") => 1,
        Some("IPv6-ICMP") => 58,
        Some("IGMP") => 2,
        _ => event["proto"].as_u64().unwrap_or(0),
    }
}

fn way(event: &Value) -> Way {
    let port = |name: &str| event[name].as_u64().unwrap_or(0);
    (
        text(&event["src_ip"]),
        text(&event["dest_ip"]),
        port("src_port"),
        port("dest_port"),
        protocol(event),
    )
}

/// nfcapd on loopback, with its port.
fn nfcapd(folder: &Path) -> (Process, u16) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    drop(socket);
    let mut command = Command::new("nfcapd");
    command.args(["-4", "-b", "127.0.0.1", "-p", &port.to_string(), "-t", "3600", "-w"]);
    let process = Process::spawn({
        command.arg(folder);
        command
    });
    let entry = format!(":{port:04X} ");
    let is_bound = wait_until(LONG, || {
        std::fs::read_to_string("/proc/net/udp").is_ok_and(|text| text.contains(&entry))
    });
    assert!(is_bound, "{}", process.output());
    (process, port)
}

/// What nfcapd received from a run with these settings, by nfdump.
fn collected(scratch: &Scratch, capture: &str, flow: &str) -> Vec<Value> {
    let folder = scratch.join("nfcapd");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    let _ = std::fs::remove_file(scratch.join("eve.json"));
    let (mut collector, port) = nfcapd(&folder);
    let flow = format!("ipfix = \"udp:127.0.0.1:{port}\"\n{flow}");
    ok(&run(scratch, capture, 1, &flow));
    // What is on its way is read before the collector ends.
    std::thread::sleep(Duration::from_millis(500));
    let (_, log) = collector.stop(Stop::Terminate, LONG);
    assert!(log.contains("Sequence Errors: 0, Bad Packets: 0"), "{log}");
    let mut command = Command::new("nfdump");
    command.env("TZ", "UTC").args(["-o", "json", "-R"]).arg(&folder);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn way_of_record(record: &Value) -> Way {
    let address = |way: &str| {
        let names = [format!("{way}4_addr"), format!("{way}6_addr")];
        names.iter().find_map(|name| record[name].as_str()).unwrap_or_default().to_owned()
    };
    let number = |name: &str| record[name].as_u64().unwrap_or(0);
    let protocol = number("proto");
    let port = |name| if matches!(protocol, 1 | 58) { 0 } else { number(name) };
    (address("src"), address("dst"), port("src_port"), port("dst_port"), protocol)
}

/// Bytes of IP packets with right checksums by way, by tshark; of fragments the first one names ports, so captures with them are left out.
fn ip_bytes(capture: &str) -> BTreeMap<Way, u64> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", capture, "-T", "fields", "-E", "separator=;", "-E", "occurrence=f"]);
    command.args(["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-Y"]);
    command.arg("icmp || !(tcp.checksum.status == 0) && !(ip.checksum.status == 0)");
    let fields = [
        "ip.src",
        "ipv6.src",
        "ip.dst",
        "ipv6.dst",
        "tcp.srcport",
        "udp.srcport",
        "tcp.dstport",
        "udp.dstport",
        "ip.proto",
        "ipv6.nxt",
        "ip.len",
        "ipv6.plen",
    ];
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut sums = BTreeMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let cells: Vec<&str> = line.split(';').collect();
        let one = |at: usize| if cells[at].is_empty() { cells[at + 1] } else { cells[at] };
        let number = |at: usize| one(at).parse::<u64>().unwrap_or(0);
        if one(0).is_empty() {
            continue;
        }
        let protocol = number(8);
        let ports = if matches!(protocol, 6 | 17) { (number(4), number(6)) } else { (0, 0) };
        let bytes = if cells[10].is_empty() { number(10) + 40 } else { number(10) };
        let way = (one(0).to_owned(), one(2).to_owned(), ports.0, ports.1, protocol);
        *sums.entry(way).or_default() += bytes;
    }
    sums
}

/// What a collector has of a direction, and what events have: packets, flags, first and last packet.
type Seen = (Way, u64, String, String, String);

#[test]
fn a_collector_gets_what_events_say() {
    if ["nfcapd", "nfdump", "tshark"].iter().any(|tool| testkit::require_tool(tool).is_none()) {
        return;
    }
    let scratch = Scratch::new();
    let settings = "events = \"eve.json\"\nevent_types = [\"netflow\"]\nactive = \"168h\"\n";
    for name in CAPTURES {
        let capture = data(name);
        let records = collected(&scratch, &capture, settings);
        let letters = "CEUAPRSF";
        let flags = |event: &Value| {
            let bits = event["tcp"]["tcp_flags"].as_str().unwrap_or("00");
            let bits = u8::from_str_radix(bits, 16).unwrap();
            let letter = |(at, letter)| if bits & (0x80_u8 >> at) != 0 { letter } else { '.' };
            letters.chars().enumerate().map(letter).collect::<String>()
        };
        let ms = |time: &Value| text(time).chars().take(23).collect::<String>();
        let mut expected: Vec<Seen> = of_type(&events(&scratch), "netflow")
            .into_iter()
            .map(|event| {
                let own = &event["netflow"];
                let packets = own["pkts"].as_u64().unwrap();
                (way(event), packets, flags(event), ms(&own["start"]), ms(&own["end"]))
            })
            .collect();
        let mut found: Vec<Seen> = records
            .iter()
            .map(|record| {
                let flags = record["tcp_flags"].as_str().unwrap_or("........").to_owned();
                let flags = if record["proto"] == 6 { flags } else { "........".to_owned() };
                let packets = record["in_packets"].as_u64().unwrap();
                let [first, last] = ["first", "last"].map(|name| ms(&record[name]));
                (way_of_record(record), packets, flags, first, last)
            })
            .collect();
        expected.sort();
        found.sort();
        assert!(!found.is_empty());
        assert_eq!(found, expected, "{name}");
        if name.contains("fragmented") {
            continue;
        }
        let mut bytes: BTreeMap<Way, u64> = BTreeMap::new();
        for record in &records {
            *bytes.entry(way_of_record(record)).or_default() +=
                record["in_bytes"].as_u64().unwrap();
        }
        let all = ip_bytes(&capture);
        for (way, bytes) in &bytes {
            assert_eq!(all.get(way), Some(bytes), "{name}: {way:?}");
        }
    }
}

/// Events, counts and captures do not depend on what decodes packets and verifies their segments, on the back end, or on workers.
#[test]
fn a_device_that_decodes_changes_no_event() {
    let scratch = Scratch::new();
    let all = "events = \"eve.json\"\nevent_types = [\"flow\", \"netflow\", \"active\", \"anomaly\"]\n\
               active = \"500ms\"\ntunnels = [\"all\"]\n";
    // One cache for all: cold, the self-test of a device takes its time.
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut written = 0;
    for name in CAPTURES.iter().chain(&["vxlan-pings.pcap", "geneve-gre.pcap", "gre-ssh.pcap"]) {
        // Events, what is counted of flows, and whether a device had jobs.
        let run = |backend: &str, workers: usize, device: &str| {
            let config = format!(
                "mode = \"monitor\"\n[system]\nworkers = {workers}\n[port.tap]\ninterface = \"tap\"\n[flow]\n\
                 {all}{device}"
            );
            let config = scratch.write("monitor.toml", &config);
            let events = scratch.join("eve.json");
            let _ = std::fs::remove_file(&events);
            let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
            command.current_dir(scratch.path()).arg("run").arg(config).args(["-r", &data(name)]);
            command.args(["--backend", backend]);
            testkit::set_caches(&mut command, cache);
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat())
                .into_owned();
            assert!(output.status.success(), "{said}");
            let line = said.lines().find(|line| line.starts_with("flows: ")).unwrap_or_default();
            let has_jobs = said.contains("\ndevice ") && !said.contains(": 0 jobs, ");
            (std::fs::read_to_string(&events).unwrap(), line.to_owned(), has_jobs)
        };
        let (lines, flow, _) = run("cpu", 1, "");
        assert!(flow.contains(" packets; "), "{flow}");
        written += lines.lines().count();
        let mut ways = vec![("cpu", 1), ("sim", 1), ("sim", 3)];
        ways.extend(testkit::require_opencl().then_some(("opencl", 2)));
        for (backend, workers) in ways {
            let own = run(backend, workers, "device = true\n");
            assert_eq!(own.0, lines, "{name}, {workers} workers, {backend}");
            assert_eq!(own.1, flow, "{name}, {workers} workers, {backend}");
            assert_eq!(own.2, backend != "cpu", "{name}, {backend}");
        }
    }
    assert!(written > 300, "{written} events");
}

/// Records of flows that go on add up to the whole flow.
#[test]
fn records_of_long_flows_add_up() {
    if ["nfcapd", "nfdump"].iter().any(|tool| testkit::require_tool(tool).is_none()) {
        return;
    }
    let scratch = Scratch::new();
    let settings =
        "events = \"eve.json\"\nevent_types = [\"netflow\", \"active\"]\nactive = \"500ms\"\n";
    let mut more = 0;
    for name in CAPTURES {
        let records = collected(&scratch, &data(name), settings);
        let events = events(&scratch);
        let netflow = of_type(&events, "netflow");
        let sum = |ways: Vec<(Way, u64)>| {
            let mut sums: BTreeMap<Way, u64> = BTreeMap::new();
            ways.into_iter().for_each(|(way, packets)| *sums.entry(way).or_default() += packets);
            sums.retain(|_, packets| *packets > 0);
            sums
        };
        let packets = |record: &Value| record["in_packets"].as_u64().unwrap_or(0);
        let found = sum(records.iter().map(|r| (way_of_record(r), packets(r))).collect());
        let wanted = |event: &&Value| (way(event), event["netflow"]["pkts"].as_u64().unwrap());
        assert_eq!(found, sum(netflow.iter().map(wanted).collect()), "{name}");
        let active = of_type(&events, "flow");
        assert!(active.iter().all(|event| event["flow"]["reason"] == "active"));
        // Totals grow.
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        for event in &active {
            let total = event["flow"]["pkts_toserver"].as_u64().unwrap()
                + event["flow"]["pkts_toclient"].as_u64().unwrap();
            let before = last.insert(event["flow_id"].as_u64().unwrap(), total);
            assert!(before.is_none_or(|before| before < total), "{event}");
        }
        more += active.len();
    }
    assert!(more > 10, "{more} reports");
}

/// Over TCP, read by tshark: the messages of the connection, each in a frame of its own.
#[test]
fn tshark_reads_what_comes_over_tcp() {
    if testkit::require_tool("tshark").is_none() {
        return;
    }
    let scratch = Scratch::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let settings = format!(
        "ipfix = \"tcp:127.0.0.1:{port}\"\nipfix_domain = 77\nevents = \"eve.json\"\n\
         event_types = [\"netflow\"]\n"
    );
    ok(&run(&scratch, &data("var-services-std-ports.pcap"), 1, &settings));
    let bytes = reader.join().unwrap();
    let (mut rest, mut frames) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let len = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        assert_eq!(u32::from_be_bytes([rest[12], rest[13], rest[14], rest[15]]), 77);
        let frame = Frame::new().ipv4("10.0.0.1", "10.0.0.2").udp(4739, 4739, &rest[..len]);
        frames.push(Record::new(1_700_000_000_000_000_000, frame.bytes()));
        rest = &rest[len..];
    }
    let path = scratch.join("ipfix.pcap");
    write_pcap(&path, &frames);
    let mut command = Command::new("tshark");
    command.args(["-d", "udp.port==4739,cflow", "-T", "fields", "-E", "separator=;"]);
    command.args(["-e", "cflow.flow_id", "-e", "cflow.packets", "-e", "cflow.ttl_min"]);
    let output = command.args(["-e", "cflow.ttl_max", "-r"]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut columns = vec![Vec::new(); 4];
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap(),
    };
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        for (column, cell) in columns.iter_mut().zip(line.split(';')) {
            column.extend(cell.split(',').filter(|value| !value.is_empty()).map(number));
        }
    }
    let found: Vec<[u64; 4]> =
        (0..columns[0].len()).map(|at| [0, 1, 2, 3].map(|column| columns[column][at])).collect();
    let events = events(&scratch);
    let expected: Vec<[u64; 4]> = of_type(&events, "netflow")
        .iter()
        .map(|event| {
            let own = &event["netflow"];
            [&event["flow_id"], &own["pkts"], &own["min_ttl"], &own["max_ttl"]]
                .map(|value| value.as_u64().unwrap())
        })
        .collect();
    assert_eq!(found, expected);
}

/// Every event and every row, byte by byte.
#[test]
fn workers_write_the_same() {
    let scratch = Scratch::new();
    let settings = "events = \"eve.json\"\nparquet = \"flows.parquet\"\nactive = \"1s\"\n\
                    udp = \"2s\"\ntcp_time_wait = \"1s\"\ntcp_close = \"1s\"\n\
                    event_types = [\"flow\", \"netflow\", \"active\", \"anomaly\"]\n";
    let captures: Vec<String> = ["ids", "pcap-mixed"]
        .iter()
        .filter_map(|name| testdata::path(name))
        .flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten())
        .map(|entry| entry.path().display().to_string())
        .filter(|path| path.ends_with(".pcap"))
        .take(20)
        .collect();
    // Their times run back: by less than a second, by an hour, by years.
    let late = [
        ("pcap-l7", "zeek/rfb/vnc-scanner.pcap"),
        ("restricted", "pcap-l7-ndpi/pcap/tftp.pcap"),
        ("ids", "suricata-verify/bug-6875-01/fuzz.pcap"),
    ]
    .into_iter()
    .filter_map(|(folder, name)| Some(testdata::path(folder)?.join(name)))
    .filter(|path| path.exists())
    .map(|path| path.display().to_string());
    let captures: Vec<String> = captures.into_iter().chain(late).collect();
    let mut kinds = std::collections::BTreeSet::new();
    for capture in CAPTURES.iter().map(|name| data(name)).chain(captures) {
        let mut first: Option<[Vec<u8>; 2]> = None;
        for workers in [1, 2, 4] {
            let _ = std::fs::remove_file(scratch.join("eve.json"));
            let output = run(&scratch, &capture, workers, settings);
            if !output.status.success() {
                break; // of a link that is not Ethernet, or cut
            }
            let written = ["eve.json", "flows.parquet"]
                .map(|name| std::fs::read(scratch.join(name)).unwrap());
            kinds.extend(events(&scratch).iter().map(|event| text(&event["event_type"])));
            let expected = first.get_or_insert_with(|| written.clone());
            assert!(*expected == written, "{capture}, {workers} workers");
        }
    }
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["anomaly", "flow", "netflow"]);
}

/// pandas and DuckDB read the rows that events have.
#[test]
fn tables_are_read_by_others() {
    let Some(python) = testkit::require_python("duckdb, pandas, pyarrow") else { return };
    let scratch = Scratch::new();
    let script = scratch.write("read.py", READ);
    for name in CAPTURES {
        let _ = std::fs::remove_file(scratch.join("eve.json"));
        let settings =
            "events = \"eve.json\"\nevent_types = [\"flow\"]\nparquet = \"flows.parquet\"\n";
        ok(&run(&scratch, &data(name), 1, settings));
        let mut command = Command::new(&python);
        let read = command.current_dir(scratch.path()).arg(&script).output().unwrap();
        assert!(read.status.success(), "{name}: {}", String::from_utf8_lossy(&read.stderr));
    }
    // `streams` writes the same table.
    let rows = |path: &str| {
        let count = format!("import pandas; print(len(pandas.read_parquet({path:?})))");
        let output =
            Command::new(&python).current_dir(scratch.path()).args(["-c", &count]).output();
        String::from_utf8(output.unwrap().stdout).unwrap().trim().parse::<usize>().unwrap()
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.current_dir(scratch.path()).args(["streams", "--parquet", "streams.parquet", "-r"]);
    let output = command.arg(data(CAPTURES[CAPTURES.len() - 1])).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(rows("streams.parquet"), rows("flows.parquet"));
}

const READ: &str = r#"
import json
import duckdb, pandas

events = [json.loads(line) for line in open("eve.json")]
assert events

def check(reader, rows):
    assert len(rows) == len(events), (reader, len(rows), len(events))
    for row, event in zip(rows, events):
        flow = event["flow"]
        want = {
            "flow_id": event["flow_id"],
            "client": event["src_ip"],
            "server": event["dest_ip"],
            "client_packets": flow["pkts_toserver"],
            "server_packets": flow["pkts_toclient"],
            "client_bytes": flow["bytes_toserver"],
            "server_bytes": flow["bytes_toclient"],
            "state": flow["state"],
            "community_id": event["community_id"],
        }
        if "src_port" in event:
            want["client_port"], want["server_port"] = event["src_port"], event["dest_port"]
        for name, value in want.items():
            assert row[name] == value, (reader, name, row[name], value)

frame = pandas.read_parquet("flows.parquet")
starts = frame["start"].dt.strftime("%Y-%m-%dT%H:%M:%S.%f+0000")
assert list(starts) == [event["flow"]["start"] for event in events], starts
check("pandas", frame.to_dict("records"))
query = duckdb.connect().execute("select * exclude (start, \"end\") from read_parquet('flows.parquet')")
names = [column[0] for column in query.description]
check("duckdb", [dict(zip(names, row)) for row in query.fetchall()])
"#;

/// Wrong checksums are those that tshark finds.
#[test]
fn wrong_checksums_are_those_of_tshark() {
    if testkit::require_tool("tshark").is_none() {
        return;
    }
    let scratch = Scratch::new();
    let mut all = 0;
    for name in
        ["web.pcap", "http-putty-upload.pcap", "smtp.pcap", "ssh-dups.pcap", "reassembly.pcap"]
    {
        let capture = data(name);
        let _ = std::fs::remove_file(scratch.join("eve.json"));
        let settings = "events = \"eve.json\"\nevent_types = [\"anomaly\"]\n";
        ok(&run(&scratch, &capture, 1, settings));
        let events = events(&scratch);
        let own =
            |event: &str| events.iter().filter(|line| line["anomaly"]["event"] == event).count();
        let tshark = |filter: &str| {
            let mut command = Command::new("tshark");
            command.args(["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]);
            let output = command.args(["-r", &capture, "-Y", filter]).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            output.stdout.iter().filter(|byte| **byte == b'\n').count()
        };
        let ip = tshark("ip.checksum.status == 0 && !icmp");
        // Segments that are not there as a whole are another anomaly.
        let whole = "frame.len >= ip.len + 14 && !icmp";
        let tcp =
            tshark(&format!("tcp.checksum.status == 0 && ip.checksum.status != 0 && {whole}"));
        assert_eq!(own("decoder.ipv4.invalid_checksum"), ip, "{name}");
        assert_eq!(own("decoder.tcp.invalid_checksum"), tcp, "{name}");
        all += ip + tcp;
    }
    assert!(all > 0);
}

/// Odd packets, written for this: each kind has one event, by Suricata's name.
#[test]
fn anomalies_have_names() {
    let scratch = Scratch::new();
    let mut frames = Vec::new();
    let mut add = |bytes: Vec<u8>| {
        let time_ns = 1_700_000_000_000_000_000 + frames.len() as u64 * 1_000_000;
        frames.push(Record::new(time_ns, bytes));
    };
    let udp = || Frame::new().ipv4("192.0.2.1", "192.0.2.2").udp(1000, 53, &[1; 64]).bytes();
    // Bytes of the IPv4 header: total length below the header's, header length below 20, checksum, version.
    for (at, bytes) in [(16, vec![0, 19]), (14, vec![0x44]), (24, vec![0, 1]), (14, vec![0x65])] {
        let mut frame = udp();
        frame[at..at + bytes.len()].copy_from_slice(&bytes);
        add(frame);
    }
    // Shorter than its length says.
    let mut frame = udp();
    frame.truncate(60);
    add(frame);
    let tcp = |sequence, byte| {
        Frame::new().ipv4("192.0.2.1", "192.0.2.2").tcp(1000, 80, sequence, &[byte; 10]).bytes()
    };
    let mut frame = tcp(1000, 1);
    let last = frame.len() - 1;
    frame[last] ^= 1;
    add(frame);
    // A hole, and two segments behind it with other bytes for the same place.
    for (sequence, byte) in [(1000, 1), (1100, 2), (1100, 3)] {
        add(tcp(sequence, byte));
    }
    let fragment = |offset, more, byte| {
        let frame = Frame::new().ipv4("192.0.2.1", "192.0.2.2").identification(7);
        frame.fragment(offset, more).raw(17, &[byte; 64]).bytes()
    };
    add(fragment(0, true, 0));
    add(fragment(4, true, 1));
    add(fragment(12, false, 2));
    write_pcap(&scratch.join("odd.pcap"), &frames);
    let capture = scratch.join("odd.pcap").display().to_string();
    ok(&run(&scratch, &capture, 1, "events = \"eve.json\"\nevent_types = [\"anomaly\"]\n"));
    let names: Vec<String> =
        events(&scratch).iter().map(|event| text(&event["anomaly"]["event"])).collect();
    assert_eq!(
        names,
        [
            "decoder.ipv4.iplen_smaller_than_hlen",
            "decoder.ipv4.hlen_too_small",
            "decoder.ipv4.invalid_checksum",
            "decoder.ipv4.wrong_ip_version",
            "decoder.ipv4.trunc_pkt",
            "decoder.tcp.invalid_checksum",
            "stream.reassembly_overlap_different_data",
            "decoder.ipv4.frag_overlap",
            "stream.reassembly_seq_gap",
        ]
    );
}

/// Packets that rules of a firewall drop are events, in the file of `[flow]` and in that of `[ids]`, by Suricata's names, and the same
/// with any number of workers.
#[test]
fn packets_that_rules_drop_are_events() {
    let scratch = Scratch::new();
    let frame = || Frame::new().ipv4("192.0.2.1", "198.51.100.1").identification(77).ttl(9);
    let packets = [
        frame().udp(1000, 53, b"name").bytes(),
        frame().udp(1000, 54, b"pass").bytes(),
        frame().tcp(2000, 25, 4242, b"HELO").bytes(),
        frame().echo_request(5, 6, b"ping").bytes(),
        Frame::new().ipv6("2001:db8::1", "2001:db8::2").ttl(8).udp(1, 53, b"six").bytes(),
    ];
    let frames: Vec<Record> = (0..)
        .zip(&packets)
        .map(|(at, bytes): (u64, _)| {
            Record::new((1_700_000_000 + at) * 1_000_000_000, bytes.clone())
        })
        .collect();
    write_pcap(&scratch.join("in.pcap"), &frames);
    scratch.write("none.rules", "alert tcp any any -> any 9 (msg:\"none\"; sid:1;)\n");
    // What `[flow]` and `[ids]` write.
    let run_with = |workers: usize, flow: &str, ids: &str| -> [Vec<Value>; 2] {
        let files = [scratch.join("eve.json"), scratch.join("log/eve.json")];
        files.iter().for_each(|file| _ = std::fs::remove_file(file));
        let config = format!(
            "mode = \"wire\"\n[system]\nworkers = {workers}\n[port.a]\n[port.b]\n\
             [flow]\n{flow}[ids]\nrules = [\"none.rules\"]\noutput = \"log\"\n{ids}\
             [firewall]\ndefault = \"drop\"\n\
             [[rule]]\nname = \"no-dns\"\nproto = \"udp\"\ndport = 53\naction = \"reject\"\n\
             [[rule]]\nname = \"no-mail\"\nproto = \"tcp\"\ndport = 25\naction = \"drop\"\n\
             [[rule]]\nname = \"rest\"\nproto = \"udp\"\naction = \"accept\"\n"
        );
        let config = scratch.write("wire.toml", &config);
        let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        let command = command.current_dir(scratch.path()).arg("run").arg(config);
        ok(&command.args(["-r", "a=in.pcap", "-w", "out", "--json"]).output().unwrap());
        files.map(|file| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        })
    };
    let to_file = "events = \"eve.json\"\n";
    let drops = "event_types = [\"drop\"]\n";
    let run = |workers: usize| run_with(workers, &format!("{to_file}{drops}"), drops);
    let [of_flow, of_ids] = run(1);
    // Over captures events of `[ids]` name no port.
    let without_port = |event: &Value| {
        let mut own = event.clone();
        own.as_object_mut().unwrap().remove("in_iface");
        own
    };
    assert_eq!(of_flow.iter().map(without_port).collect::<Vec<_>>(), of_ids);
    let seen = |name: &str| of_flow.iter().map(|event| event[name].clone()).collect::<Vec<_>>();
    assert!(of_flow.iter().all(|event| event["event_type"] == "drop"));
    assert_eq!(seen("dest_port"), [53.into(), 25.into(), Value::Null, 53.into()]);
    let blocked = |name: &str| serde_json::json!({"action": "blocked", "signature": name});
    let by = [blocked("no-dns"), blocked("no-mail"), Value::Null, blocked("no-dns")];
    assert_eq!(seen("alert"), by);
    let drop = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(
        seen("drop"),
        [
            drop(r#"{"len":32,"tos":0,"ttl":9,"ipid":77,"udplen":12,"reason":"rules"}"#),
            drop(
                r#"{"len":44,"tos":0,"ttl":9,"ipid":77,"tcpseq":4242,"tcpack":0,"tcpwin":65535,"syn":false,"ack":true,
                    "psh":false,"rst":false,"urg":false,"fin":false,"tcpres":0,"tcpurgp":0,"reason":"rules"}"#
            ),
            drop(
                r#"{"len":32,"tos":0,"ttl":9,"ipid":77,"icmp_id":5,"icmp_seq":6,"reason":"default packet policy"}"#
            ),
            drop(r#"{"len":51,"tc":0,"hoplimit":8,"flowlbl":0,"udplen":11,"reason":"rules"}"#),
        ]
    );
    for workers in [2, 4] {
        assert_eq!(run(workers)[0], of_flow, "{workers} workers");
    }
    // Only `[flow]` asks for them, and then each has them that writes `drop`.
    for (flow, ids, wanted) in [
        ("", "", [0, 0]),
        (to_file, drops, [0, 0]),
        (drops, "", [0, 4]),
        (drops, "event_types = [\"alert\"]\n", [0, 0]),
        (&format!("{to_file}{drops}"), "event_types = [\"alert\"]\n", [4, 0]),
    ] {
        let counts = run_with(1, flow, ids).map(|events| of_type(&events, "drop").len());
        assert_eq!(counts, wanted, "{flow}, {ids}");
    }
}

#[test]
fn outputs_that_fail_are_errors() {
    let scratch = Scratch::new();
    let capture = data("smtp.pcap");
    let says = |flow: &str, status: i32, text: &str| {
        let output = run(&scratch, &capture, 1, flow);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{flow}: {errors}");
        assert!(errors.contains(text), "{flow}: {errors}");
        assert!(!errors.contains("panicked"), "{errors}");
    };
    // Nobody listens.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    says(&format!("ipfix = \"tcp:127.0.0.1:{free}\"\n"), 1, "flow.ipfix: 15 lost: 127.0.0.1");
    says(&format!("ipfix = \"udp:127.0.0.1:{free}\"\n"), 1, "Connection refused");
    // A collector that takes the connection and goes.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let goes = std::thread::spawn(move || drop(listener.accept()));
    let output = run(&scratch, &capture, 1, &format!("ipfix = \"tcp:127.0.0.1:{port}\"\n"));
    goes.join().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    for wrong in ["tcp:127.0.0.1", "sctp:127.0.0.1:4739", "udp:host:4739", "udp:0.0.0.0:4739", ""] {
        says(&format!("ipfix = \"{wrong}\"\n"), 1, "expected \"udp:192.0.2.1:4739\"");
    }
    says("active = \"0s\"\n", 1, "active");
    says("event_types = []\n", 1, "event_types");
    says("event_types = [\"flows\"]\n", 1, "flow");
    says("events = \"/dev/full\"\n", 1, "No space left");
    says("events = \"unix:none.sock\"\n", 1, "No such file");
    says("events = \"none/eve.json\"\n", 1, "none/eve.json: No such file");
    says("parquet = \"/dev/full\"\n", 1, "flow.parquet: 8 lost: /dev/full: No space left");
    says("parquet = \"none/flows.parquet\"\n", 1, "none/flows.parquet: No such file");
    says("parquet = \"/proc/flows.parquet\"\n", 1, "/proc/flows.parquet");
}

/// Lines are in the order of their times where a device has chunks when later ones come, and their packets are minutes apart.
#[test]
fn events_of_drops_are_in_order_with_a_device() {
    let scratch = Scratch::new();
    let frames: Vec<Record> = (0..2000u64)
        .map(|at| {
            let src = format!("192.0.2.{}", at * 7 % 250 + 1);
            let frame = Frame::new().ipv4(&src, "198.51.100.1");
            let frame = frame.udp(1000 + (at % 50) as u16, 53 + (at % 2) as u16, b"name");
            // Steps of milliseconds to half a minute.
            let apart_ns = [1_000_000, 100_000_000, 5_000_000_000, 30_000_000_000];
            let passed_ns: u64 = (0..at).map(|own| apart_ns[(own * 5 % 7 % 4) as usize]).sum();
            Record::new(1_700_000_000_000_000_000 + passed_ns, frame.bytes())
        })
        .collect();
    write_pcap(&scratch.join("in.pcap"), &frames);
    let config = "[engine]\nchunk = 16\n[port.a]\n[port.b]\n\
                  [flow]\nevents = \"eve.json\"\nevent_types = [\"drop\", \"flow\"]\n\
                  [firewall]\ndefault = \"accept\"\n\
                  [[rule]]\nname = \"no-dns\"\nproto = \"udp\"\ndport = 53\naction = \"drop\"\n";
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let run = |backend: &str, workers: usize| {
        let config = format!("[system]\nworkers = {workers}\n{config}");
        let config = scratch.write("wire.toml", &format!("mode = \"wire\"\n{config}"));
        let _ = std::fs::remove_file(scratch.join("eve.json"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        command.current_dir(scratch.path()).arg("run").arg(config);
        command.args(["-r", "a=in.pcap", "--json", "--backend", backend]);
        testkit::set_caches(&mut command, cache);
        ok(&command.output().unwrap());
        std::fs::read_to_string(scratch.join("eve.json")).unwrap()
    };
    let lines = run("cpu", 1);
    assert_eq!(lines.matches("\"event_type\":\"drop\"").count(), 1000);
    let mut ways = vec![("sim", 1), ("sim", 2)];
    let has_opencl = testkit::require_opencl();
    ways.extend([("opencl", 1), ("opencl", 2)].iter().filter(|_| has_opencl));
    for (backend, workers) in ways {
        assert!(run(backend, workers) == lines, "{workers} workers, {backend}: other lines");
    }
}

/// Events into a named pipe: the start does not wait for its reader, and says so.
#[test]
fn a_named_pipe_need_not_have_a_reader_yet() {
    let scratch = Scratch::new();
    let pipe = scratch.join("events");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let config =
        "mode = \"monitor\"\n[port.tap]\ninterface = \"tap\"\n[flow]\nevents = \"events\"\n";
    scratch.write("monitor.toml", config);
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.current_dir(scratch.path());
    command.args(["run", "monitor.toml", "-r", &data("smtp.pcap")]);
    let mut process = Process::spawn(command);
    process.wait_for("the named pipe has no reader: events wait for one", LONG);
    let mut text = String::new();
    std::fs::File::open(&pipe).unwrap().read_to_string(&mut text).unwrap();
    let (status, said) = process.wait(LONG);
    assert!(status.success(), "{said}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!lines.is_empty(), "{said}");

    // Nobody reads: an error of a run over captures, with the number of events.
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.current_dir(scratch.path());
    let output = command.args(["run", "monitor.toml", "-r", &data("smtp.pcap")]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("flow.events: {} lost", lines.len())), "{said}");
}

/// Live, an output that loses events is a warning at the end that says how many, in the report as JSON, and in `ctl`; the run
/// ends well.
#[test]
fn a_live_run_says_what_its_outputs_lost() {
    for json in [false, true] {
        let scratch = Scratch::new();
        let socket = scratch.join("ctl.sock");
        let timeouts: String = [
            "tcp_syn_sent",
            "tcp_syn_recv",
            "tcp_established",
            "tcp_fin_wait",
            "tcp_last_ack",
            "tcp_time_wait",
            "tcp_close",
            "udp",
            "udp_stream",
        ]
        .map(|name| format!("{name} = \"100ms\"\n"))
        .concat();
        scratch.write(
            "monitor.toml",
            &format!(
                "mode = \"monitor\"\n[system]\nworkers = 1\nsocket = \"{}\"\n[port.tap]\nbackend = \"pcap\"\nread = \"{}\"\n\
                 [flow]\nevents = \"/dev/full\"\n{timeouts}",
                socket.display(),
                data("smtp.pcap")
            ),
        );
        let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        command.current_dir(scratch.path()).args(["run", "monitor.toml"]);
        command.args(json.then_some("--json"));
        let mut process = Process::spawn(command);
        let lost = || {
            let mut ctl = Command::new(env!("CARGO_BIN_EXE_shadeline"));
            ctl.arg("ctl").arg("--socket").arg(&socket).args(["show", "runtime", "--json"]);
            let output = ctl.output().unwrap();
            let shown: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            shown["flow"]["outputs"][0]["lost"].as_u64().unwrap_or(0)
        };
        assert!(wait_until(LONG, || lost() > 0), "{}", process.output());
        let (status, said) = process.stop(Stop::Interrupt, LONG);
        assert!(status.success(), "{status}: {said}");
        let named = said.contains("flow.events: ") && said.contains(" lost: ");
        // The output itself says so once, and nobody else before the end.
        let counts =
            ["/dev/full: lines are lost: ", "flow.events: "].map(|own| said.matches(own).count());
        assert_eq!(counts, [1, 1], "{said}");
        assert!(named && (json || said.contains("warning: flow.events: ")), "{said}");
    }
}
