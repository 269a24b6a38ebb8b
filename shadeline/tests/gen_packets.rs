//! `shadeline gen packets`, as a user calls it. Frames are judged by others: rebuilt with etherparse
//! (through testkit), read by tshark, counted by the kernel.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use testkit::Scratch;
use testkit::frames::Frame;
use testkit::netns::{Netns, veth};
use testkit::pcap::{self, Record};
use testkit::process::Stop;

/// 2000-01-01, where captures begin.
const START_NS: u64 = 946_684_800_000_000_000;

fn run(options: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.args(["gen", "packets"]).args(options.split_whitespace()).output().unwrap()
}

fn generate(path: &Path, options: &str) -> Vec<Record> {
    let output = run(&format!("-w {} {options}", path.display()));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{options}: {errors}");
    pcap::read(path)
}

fn frames(options: &str) -> Vec<Record> {
    generate(&Scratch::new().join("out.pcapng"), options)
}

/// What is in a frame, found by offsets.
struct Found {
    src: IpAddr,
    dst: IpAddr,
    sport: u16,
    dport: u16,
    is_tcp: bool,
    /// Behind the tags and the IP header.
    l4: usize,
    tags: Vec<(u16, u16)>,
}

fn find(frame: &[u8]) -> Found {
    let be16 = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let (mut l3, mut tags) = (14, Vec::new());
    while matches!(be16(l3 - 2), 0x8100 | 0x88a8) {
        tags.push((be16(l3 - 2), be16(l3)));
        l3 += 4;
    }
    let (src, dst, l4, protocol): (IpAddr, IpAddr, usize, u8) = match be16(l3 - 2) {
        0x0800 => {
            let at =
                |at: usize| Ipv4Addr::from(*frame[l3 + at..].first_chunk::<4>().unwrap()).into();
            (at(12), at(16), l3 + 20, frame[l3 + 9])
        }
        0x86dd => {
            let at =
                |at: usize| Ipv6Addr::from(*frame[l3 + at..].first_chunk::<16>().unwrap()).into();
            (at(8), at(24), l3 + 40, frame[l3 + 6])
        }
        other => panic!("EtherType {other:04x}"),
    };
    assert!(matches!(protocol, 6 | 17), "{protocol}");
    Found { src, dst, sport: be16(l4), dport: be16(l4 + 2), is_tcp: protocol == 6, l4, tags }
}

/// The same frame by another library, checksums and all.
fn rebuild(frame: &[u8], ttl: u8) -> Vec<u8> {
    let found = find(frame);
    let mut built = Frame::new()
        .macs(frame[6..12].try_into().unwrap(), frame[..6].try_into().unwrap())
        .ttl(ttl)
        .identification(0);
    for &(protocol, id) in &found.tags {
        built = if protocol == 0x8100 { built.vlan(id) } else { built.service_vlan(id) };
    }
    let (src, dst) = (found.src.to_string(), found.dst.to_string());
    built = match found.src {
        IpAddr::V4(_) => built.ipv4(&src, &dst).dont_fragment(),
        IpAddr::V6(_) => built.ipv6(&src, &dst),
    };
    match found.is_tcp {
        false => built.udp(found.sport, found.dport, &frame[found.l4 + 8..]).bytes(),
        true => {
            let sequence = u32::from_be_bytes(*frame[found.l4 + 4..].first_chunk().unwrap());
            let mut bytes =
                built.tcp(found.sport, found.dport, sequence, &frame[found.l4 + 20..]).bytes();
            // The builder leaves the acknowledgment number 0, and ours is 1: so is the checksum's
            // difference (RFC 1624).
            bytes[found.l4 + 11] = 1;
            let sum = !u16::from_be_bytes([bytes[found.l4 + 16], bytes[found.l4 + 17]]);
            let sum = u32::from(sum) + 1;
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            bytes[found.l4 + 16..found.l4 + 18].copy_from_slice(&sum.to_be_bytes());
            bytes
        }
    }
}

#[test]
fn frames_are_those_that_another_library_builds() {
    for (options, ttl) in [
        ("", 64),
        ("--size imix --seed 5", 64),
        ("--size 65,66,1517,9018 --ttl 3", 3),
        ("--protocol tcp --size 64,101 --src random --dst random --sport 1-3", 64),
        ("--ipv6 --size 66,70,1518", 64),
        ("--ipv6 --protocol tcp --size imix --src random --dst random --dport 443", 64),
        ("--vlan 7 --size 64,65", 64),
        ("--vlan 7,4094 --ipv6 --size 100 --dst 2001:db8::/61 --ttl 255", 255),
        (
            "--src 10.0.0.0/9 --dst 192.0.2.1 --src-mac 02:11:22:33:44:55 --dst-mac ff-ff-ff-ff-ff-ff",
            64,
        ),
    ] {
        let records = frames(&format!("--count 500 {options}"));
        assert_eq!(records.len(), 500, "{options}");
        for record in &records {
            assert_eq!(record.data, rebuild(&record.data, ttl), "{options}");
            assert_eq!(record.original_len as usize, record.data.len());
        }
    }
}

#[test]
fn tshark_finds_nothing_wrong() {
    if testkit::require_tool("tshark").is_none() {
        return;
    }
    let scratch = Scratch::new();
    for (number, options) in [
        "--size imix --dst random --vlan 9",
        "--ipv6 --protocol tcp --size 200 --vlan 5,6",
        "--protocol tcp --size 64,9000",
    ]
    .iter()
    .enumerate()
    {
        let path = scratch.join(&format!("{number}.pcapng"));
        generate(&path, &format!("--count 200 {options}"));
        let checks = ["ip.check_checksum", "udp.check_checksum", "tcp.check_checksum"];
        let mut command = Command::new("tshark");
        command.arg("-r").arg(&path);
        for check in checks {
            command.args(["-o", &format!("{check}:TRUE")]);
        }
        command.args(["-T", "fields"]);
        let fields =
            ["_ws.malformed", "ip.checksum.status", "udp.checksum.status", "tcp.checksum.status"];
        for field in fields {
            command.args(["-e", field]);
        }
        let output = command.output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text.lines().count(), 200);
        for line in text.lines() {
            let columns: Vec<&str> = line.split('\t').collect();
            assert_eq!(columns[0], "", "{options}: {line}");
            // 1 is good; of an absent header there is none.
            let good = |columns: &[&str]| columns.iter().filter(|&&c| c == "1").count();
            let expected = if options.contains("ipv6") { 1 } else { 2 };
            assert_eq!(good(&columns[1..]), expected, "{options}: {line}");
        }
    }
}

#[test]
fn a_seed_gives_the_same_bytes() {
    let scratch = Scratch::new();
    let bytes = |name: &str, seed: u32| {
        let path = scratch.join(name);
        generate(&path, &format!("--count 300 --size imix --dst random --seed {seed}"));
        std::fs::read(path).unwrap()
    };
    assert_eq!(bytes("a", 1), bytes("b", 1));
    assert_ne!(bytes("a", 1), bytes("c", 2));
    // The seed is 1 where none is given.
    let path = scratch.join("d");
    generate(&path, "--count 300 --size imix --dst random");
    assert_eq!(bytes("a", 1), std::fs::read(path).unwrap());
}

#[test]
fn sizes_come_as_asked() {
    let lens = |options: &str| -> Vec<usize> {
        frames(options).iter().map(|record| record.data.len()).collect()
    };
    assert_eq!(lens("--count 4 --size 64,512,1518"), [60, 508, 1514, 60]);
    let mut counts = HashMap::new();
    for len in lens("--count 1200 --size imix") {
        *counts.entry(len).or_insert(0) += 1;
    }
    assert_eq!(counts, HashMap::from([(60, 700), (590, 400), (1514, 100)]));
    // IPv6 and UDP headers do not fit in 64 bytes.
    assert!(lens("--count 12 --size imix --ipv6").contains(&62));
    assert_eq!(lens("--count 1 --ipv6"), [62]);
    let longest = lens("--count 2 --size 65553");
    assert_eq!(longest, [65_549, 65_549]);
}

#[test]
fn times_follow_the_rate() {
    let times = |options: &str| -> Vec<u64> {
        frames(options).iter().map(|record| record.time_ns - START_NS).collect()
    };
    assert_eq!(times("--count 3 --rate 1Mpps"), [0, 1_000, 2_000]);
    assert_eq!(times("--count 3"), [0, 1_000, 2_000]);
    assert_eq!(times("--count 2 --rate max"), [0, 1_000]);
    // A 64-byte frame takes 84 bytes on the wire: 67.2 ns at 10 Gb/s, 14.88 Mpps.
    let ten_gigabit = times("--count 1001 --rate 10Gbps");
    assert!(ten_gigabit.iter().zip(0u64..).all(|(&t, k)| t.abs_diff(k * 672 / 10) <= 1));
    assert!(ten_gigabit[1000].abs_diff(67_200) <= 1);
    // The mean of IMIX: (7·84 + 4·614 + 1538) / 12 bytes.
    let imix = times("--count 1201 --rate 1Gbps --size imix");
    assert!(imix[1200].abs_diff((7 * 84 + 4 * 614 + 1538) * 8 * 100) <= 1, "{}", imix[1200]);
    assert_eq!(times("--duration 5ms --rate 10kpps").len(), 50);
    assert_eq!(times("--duration 5ms --rate 10kpps --count 7").len(), 7);
}

#[test]
fn addresses_and_ports_come_as_asked() {
    let within = |options: &str, v: fn(&Found) -> bool| {
        let records = frames(&format!("--count 2000 {options}"));
        let found: Vec<Found> = records.iter().map(|record| find(&record.data)).collect();
        assert!(found.iter().all(v), "{options}");
        found
    };
    let distinct = |found: &[Found]| found.iter().map(|f| f.dst).collect::<HashSet<_>>().len();
    let first = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => v4.octets()[0],
        IpAddr::V6(v6) => v6.octets()[0],
    };
    let default = within("", |f| {
        f.src.to_string().starts_with("198.18.") && f.dst.to_string().starts_with("198.19.")
    });
    assert!(distinct(&default) > 1900);
    let random = within("--dst random", |_| true);
    let firsts: HashSet<u8> = random.iter().map(|f| first(f.dst)).collect();
    assert!(firsts.len() > 200 && firsts.iter().all(|b| (1..=223).contains(b) && *b != 127));
    let random = within("--dst random --ipv6", |_| true);
    assert!(random.iter().all(|f| first(f.dst) >> 5 == 1));
    // A prefix that ends within a byte: all of it, and nothing else.
    let narrow = within("--dst 10.1.2.248/29", |f| f.dst.to_string().starts_with("10.1.2."));
    let lasts: HashSet<String> = narrow.iter().map(|f| f.dst.to_string()).collect();
    assert_eq!(lasts, (248..=255).map(|n| format!("10.1.2.{n}")).collect());
    within("--dst 2001:db8::7 --sport 1 --dport 2", |f| {
        f.dst == "2001:db8::7".parse::<IpAddr>().unwrap() && (f.sport, f.dport) == (1, 2)
    });
    let ports = within("--sport 10-12 --dport random", |_| true);
    let in_turn = ports.iter().zip([10, 11, 12].into_iter().cycle());
    assert!(in_turn.into_iter().all(|(f, port)| f.sport == port));
    assert!(ports.iter().map(|f| f.dport).collect::<HashSet<_>>().len() > 1500);
}

#[test]
fn lists_of_addresses() {
    let scratch = Scratch::new();
    let list = scratch.write(
        "list",
        "# comment\n192.0.2.1\n192.0.2.2 AS7 ; more\n198.51.100.0/24\n2001:db8::1\n\n",
    );
    let list = list.display();
    let found = |options: &str| -> Vec<String> {
        let records = frames(&format!("--count 4000 {options}"));
        let dst = records.iter().map(|record| find(&record.data).dst.to_string());
        dst.collect()
    };
    let all = found(&format!("--dst @{list}"));
    let distinct: HashSet<&str> = all.iter().map(String::as_str).collect();
    // One address is drawn from a prefix.
    assert_eq!(distinct.len(), 4, "{distinct:?}");
    assert!(distinct.iter().any(|d| d.starts_with("198.51.100.")));
    let v6 = all.iter().filter(|d| d.contains(':')).count();
    assert_eq!(v6, 1000, "a quarter of the list");
    assert!(found(&format!("--dst @{list} --ipv6")).iter().all(|d| d == "2001:db8::1"));
    let v4 = found(&format!("--dst @{list} --src 10.0.0.1"));
    assert!(v4.iter().all(|d| !d.contains(':')));
    let table = testkit::data::internet().path;
    let records = frames(&format!("--count 1000 --dst @{} --ipv6", table.display()));
    let distinct: HashSet<IpAddr> = records.iter().map(|r| find(&r.data).dst).collect();
    assert!(distinct.len() > 900 && distinct.iter().all(IpAddr::is_ipv6));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let scratch = Scratch::new();
    let empty = scratch.write("empty", "# nothing\n");
    let empty = empty.display();
    let config = scratch.write("router.toml", CONFIG);
    let config = config.display();
    for (options, code, expected) in [
        (
            "--count 1".into(),
            2,
            "no destination: expected one of --interface IF, -w FILE, --engine CONFIG",
        ),
        ("-w /dev/null".into(), 2, "no limit: expected --count N or --duration TIME"),
        ("-w /dev/null --interface lo --count 1".into(), 2, "cannot be used with"),
        ("-w /dev/null --count 1 --rate 7".into(), 2, "expected a rate such as 10kpps"),
        ("-w /dev/null --count 1 --size 63".into(), 2, "sizes of 64 to 65561 bytes"),
        ("-w /dev/null --count 1 --size 65561".into(), 2, "longer than an IP packet"),
        ("-w /dev/null --count 1 --size 64 --ipv6".into(), 2, "the headers take at least 66 bytes"),
        ("-w /dev/null --count 1 --src ::1 --dst 10.0.0.1".into(), 2, "to be of one family"),
        ("-w /dev/null --count 1 --src 10.0.0.1 --ipv6".into(), 2, "to both be IPv6"),
        ("-w /dev/null --count 1 --vlan 4095".into(), 2, "expected a VLAN identifier"),
        ("-w /dev/null --count 1 --dst-mac 02:00".into(), 2, "expected a MAC address"),
        ("-w /dev/null --count 1 --dst nowhere".into(), 2, "expected an address, a prefix"),
        (format!("-w /dev/null --count 1 --dst @{empty}"), 1, "empty: --dst: expected one address"),
        ("-w /dev/null --count 1 --dst @/no/list".into(), 1, "/no/list"),
        ("-w /no/folder/out --count 1".into(), 1, "/no/folder/out: No such file"),
        ("--interface sl-no-such --count 1".into(), 1, "sl-no-such"),
        (
            format!("--count 1 --engine lost={config}"),
            2,
            "no port `lost`: expected one of lan, wan",
        ),
        ("--count 1 --engine /no/config.toml".into(), 1, "/no/config.toml"),
    ] {
        let options: String = options;
        let output = run(&options);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{options}: {errors}");
        assert!(errors.contains(expected), "{options}: no {expected:?} in\n{errors}");
    }
    // A full disk is reported as an error.
    let output = run("-w /dev/full --count 100000");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/dev/full: No space left"));
}

const CONFIG: &str = r#"
[port.lan]
backend = "memory"
addresses = ["192.0.2.1/24"]

[port.wan]
backend = "memory"
addresses = ["198.51.100.1/24"]

[[route]]
prefix = "198.19.0.0/16"
via = "198.51.100.2"

[[route]]
prefix = "198.19.128.0/17"
blackhole = true

[[route]]
prefix = "203.0.113.0/24"
via = "192.0.2.9"
"#;

#[test]
fn straight_into_the_engine() {
    let scratch = Scratch::new();
    let config = scratch.write("router.toml", CONFIG);
    let config = config.display();
    // The same packets in a file say how many are for the blackhole.
    let records = frames("--count 5000");
    let v4 = |record: &Record| match find(&record.data).dst {
        IpAddr::V4(v4) => v4.octets(),
        IpAddr::V6(_) => panic!("IPv6"),
    };
    let black = records.iter().filter(|record| v4(record)[2] >= 128).count();
    assert!(black > 2000 && black < 3000);

    let output = run(&format!("--count 5000 --json --engine {config}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&json["generated"]["packets"], &json["generated"]["bytes"]),
        (&5000.into(), &300_000.into())
    );
    let report = &json["report"];
    assert_eq!(report["rx_packets"], 5000);
    let port = |name: &str| {
        let ports = report["ports"].as_array().unwrap();
        ports.iter().find(|port| port["port"] == name).unwrap().clone()
    };
    assert_eq!((&port("lan")["rx_packets"], &port("wan")["rx_packets"]), (&5000.into(), &0.into()));
    assert_eq!(port("wan")["tx_packets"], 5000 - black);
    assert_eq!(report["dropped_packets"], black);

    // Into a port that is named; the report for people.
    let output = run(&format!("--count 100 --dst 203.0.113.0/24 --engine wan={config}"));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let rows: HashMap<&str, Vec<&str>> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, rest)| (name, rest.split_whitespace().collect()))
        .collect();
    assert_eq!(rows["wan"], ["100", "6,000", "0", "0"], "{text}");
    assert_eq!(rows["lan"], ["0", "0", "100", "6,000"], "{text}");
}

/// Two hosts and a wire, nothing else on it.
struct Wire {
    from: Netns,
    to: Netns,
}

impl Wire {
    fn new() -> Option<Wire> {
        if !testkit::require_namespaces() {
            return None;
        }
        let wire = Wire { from: Netns::new("gen"), to: Netns::new("gen") };
        for netns in [&wire.from, &wire.to] {
            netns.sysctl("net.ipv6.conf.default.disable_ipv6", "1");
        }
        veth(
            (&wire.from, "eth0", "02:00:00:00:01:02"),
            (&wire.to, "eth0", "02:00:00:00:01:01"),
            1500,
        );
        Some(wire)
    }

    fn generate(&self, options: &str) -> String {
        let bin = env!("CARGO_BIN_EXE_shadeline");
        self.from.run(&format!("{bin} gen packets --interface eth0 {options}"))
    }
}

#[test]
fn by_an_interface_as_into_a_file() {
    let Some(wire) = Wire::new() else { return };
    if testkit::require_tool("tcpdump").is_none() {
        return;
    }
    let scratch = Scratch::new();
    let path: PathBuf = scratch.join("wire.pcap");
    let mut tcpdump = wire.to.spawn(&format!("tcpdump -i eth0 -c 300 -U -w {}", path.display()));
    tcpdump.wait_for("listening on", Duration::from_secs(20));
    let options = "--count 300 --size imix --dst random --rate 20kpps";
    let json: Value = serde_json::from_str(&wire.generate(&format!("{options} --json"))).unwrap();
    let (status, output) = tcpdump.wait(Duration::from_secs(20));
    assert!(status.success(), "{output}");
    let on_wire = pcap::read(&path);
    // The source MAC is the interface's.
    let in_file = frames(&format!("{options} --src-mac 02:00:00:00:01:02"));
    assert_eq!(on_wire.len(), 300);
    for (wire, file) in on_wire.iter().zip(&in_file) {
        assert_eq!(wire.data, file.data);
    }
    let bytes: usize = in_file.iter().map(|record| record.data.len()).sum();
    assert_eq!(
        (&json["packets"], &json["bytes"], &json["dropped"]),
        (&300.into(), &bytes.into(), &0.into())
    );
    // No faster than asked.
    assert_eq!(json["rate_pps"], 20_000.0);
    assert!(json["pps"].as_f64().unwrap() < 21_000.0, "{json}");
}

#[test]
fn frames_of_a_capture_go_out_as_they_are_and_in_turn() {
    let scratch = Scratch::new();
    // Of any length, and no packets at all for whoever decodes them; one is longer than a cell.
    let sent: Vec<Vec<u8>> =
        [60, 1514, 14, 9000, 61].iter().enumerate().map(|(n, len)| vec![n as u8; *len]).collect();
    let records: Vec<Record> =
        sent.iter().map(|frame| Record::new(START_NS, frame.clone())).collect();
    let path = scratch.join("frames.pcap");
    pcap::write_pcap(&path, &records);
    let found = frames(&format!("--frames {} --count 12", path.display()));
    let expected: Vec<&[u8]> = sent.iter().cycle().take(12).map(Vec::as_slice).collect();
    assert_eq!(found.iter().map(|record| &record.data[..]).collect::<Vec<_>>(), expected);

    pcap::write_pcap(&path, &[]);
    let broken = scratch.write("broken.pcap", "no capture");
    let many = scratch.join("many.pcap");
    pcap::write_pcap(&many, &vec![Record::new(START_NS, vec![0; 14]); 65_537]);
    for (options, expected) in [
        (format!("--frames {}", path.display()), "no frame to send"),
        (format!("--frames {}", broken.display()), "broken.pcap"),
        (format!("--frames {}", many.display()), "more than 65536 frames"),
        (format!("--frames {} --size 64", path.display()), "cannot be used with '--size"),
        (format!("--frames {} --dst-mac 02:00:00:00:00:09", path.display()), "'--dst-mac"),
    ] {
        let output = run(&format!("-w {} --count 5 {options}", scratch.join("out.pcap").display()));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(expected), "{options}: {errors}");
    }
}

#[test]
fn the_kernel_counts_what_was_sent() {
    let Some(wire) = Wire::new() else { return };
    let json: Value =
        serde_json::from_str(&wire.generate("--rate max --count 20000 --json")).unwrap();
    assert_eq!(json["packets"], 20_000);
    assert_eq!(wire.to.received("eth0"), (20_000, 1_200_000));
    let text = wire.generate("--rate 1kpps --duration 300ms --vlan 5");
    let packets: u64 = text.split(' ').next().unwrap().replace(',', "").parse().unwrap();
    assert!(packets > 0 && packets <= 301, "{text}");
    assert_eq!(wire.to.received("eth0").0, 20_000 + packets);
}

#[test]
fn a_signal_ends_it_with_totals_and_a_lost_interface_with_an_error() {
    let Some(wire) = Wire::new() else { return };
    let bin = env!("CARGO_BIN_EXE_shadeline");
    let mut endless = wire.from.spawn(&format!("{bin} gen packets --interface eth0 --rate 2kpps"));
    let some = || wire.to.received("eth0").0 > 20;
    assert!(testkit::wait_until(Duration::from_secs(20), some));
    let (status, output) = endless.stop(Stop::Interrupt, Duration::from_secs(20));
    assert!(status.success() && output.contains(" packets, "), "{status} {output}");

    let mut endless = wire.from.spawn(&format!("{bin} gen packets --interface eth0 --rate 2kpps"));
    let before = wire.to.received("eth0").0;
    let some = || wire.to.received("eth0").0 > before + 20;
    assert!(testkit::wait_until(Duration::from_secs(20), some));
    wire.from.ip("link del eth0");
    let (status, output) = endless.wait(Duration::from_secs(20));
    assert_eq!(status.code(), Some(1), "{output}");
    assert!(output.contains("error: eth0: sending:"), "{output}");
}

#[test]
fn the_name_says_the_format() {
    let scratch = Scratch::new();
    let magic = |name: &str| {
        generate(&scratch.join(name), "--count 3");
        std::fs::read(scratch.join(name)).expect("a capture")[..4].to_vec()
    };
    assert_eq!(magic("a.pcap"), 0xa1b2_3c4d_u32.to_le_bytes());
    assert_eq!(magic("a.pcapng"), 0x0a0d_0d0a_u32.to_le_bytes());
}
