//! Modules, as a user runs them: sources over captures on a device, what is wrong with them, and the examples.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use testkit::Scratch;
use testkit::frames::Frame;
use testkit::pcap::{self, Record};
use testkit::process::Process;

const WIRE: &str = "mode = \"wire\"\n[port.a]\n[port.b]\n[engine]\nbackend = \"opencl\"\ndevice_timeout = \"20s\"\n";

fn example(name: &str) -> String {
    testkit::repository().join("examples/modules").join(name).display().to_string()
}

fn run(folder: &Scratch, config: &str, args: &str) -> Output {
    folder.write("c.toml", config);
    Command::new(env!("CARGO_BIN_EXE_shadeline"))
        .args("run c.toml -r a=in.pcap -w out".split_whitespace())
        .args(args.split_whitespace())
        .env("RUST_BACKTRACE", "0")
        .current_dir(folder.path())
        .output()
        .expect("the program starts")
}

fn ok(output: &Output) -> String {
    assert!(output.status.success(), "{}: {}", output.status, errors(output));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A module with this text in a file, and a line of keys.
fn module(folder: &Scratch, name: &str, text: &str, keys: &str) -> String {
    let file = format!("{name}.k");
    folder.write(&file, text);
    format!("[[module]]\nname = \"{name}\"\nsource = \"{file}\"\ntime_limit = \"10s\"\n{keys}\n")
}

/// A module of the examples.
fn of_example(name: &str, keys: &str) -> String {
    let source = example(&format!("{name}.k"));
    format!("[[module]]\nname = \"{name}\"\nsource = \"{source}\"\ntime_limit = \"10s\"\n{keys}\n")
}

fn stats(folder: &Scratch) -> Value {
    let text = std::fs::read_to_string(folder.join("out/stats.json")).expect("a report");
    serde_json::from_str(&text).expect("JSON")
}

/// A count of a module.
fn count(stats: &Value, name: &str, column: &str) -> u64 {
    let all = stats["modules"].as_array().unwrap_or_else(|| panic!("{stats:#}"));
    let own = all.iter().find(|own| own["module"] == name).unwrap_or_else(|| panic!("{stats:#}"));
    own[column].as_u64().unwrap_or_else(|| panic!("{own:#}"))
}

fn frames(folder: &Scratch, port: &str) -> Vec<Vec<u8>> {
    let path: PathBuf = folder.join(&format!("out/{port}.pcapng"));
    if !Path::new(&path).exists() {
        return Vec::new();
    }
    pcap::read(&path).into_iter().map(|record| record.data).collect()
}

fn write(folder: &Scratch, frames: &[Vec<u8>]) {
    let record = |(i, frame): (usize, &Vec<u8>)| {
        Record::new(1_700_000_000_000_000_000 + i as u64 * 1_000_000, frame.clone())
    };
    let records: Vec<Record> = frames.iter().enumerate().map(record).collect();
    pcap::write_pcap(&folder.join("in.pcap"), &records);
}

fn udp(ttl: u8, from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    Frame::new().ipv4("192.0.2.1", "198.51.100.1").ttl(ttl).udp(from, to, payload).padded(60)
}

/// Frames of several flows and protocols, by a plain generator.
fn mixed(n: u32) -> Vec<Vec<u8>> {
    let frame = |i: u32| {
        let host = format!("192.0.2.{}", 1 + i % 13);
        let four = Frame::new().ipv4(&host, "198.51.100.1").ttl((i * 7 % 64) as u8 + 1);
        let payload: Vec<u8> = (0..i % 90).map(|j| (i + j) as u8).collect();
        let from = 1000 + (i * i % 5) as u16;
        match i % 4 {
            0 => four.udp(from, 53, &payload).padded(60),
            1 => four.tcp(from, 80, i * 100, &payload).padded(60),
            2 => Frame::new().ipv6("2001:db8::1", "2001:db8::2").udp(from, 53, &payload).bytes(),
            _ => four.echo_request(1, i as u16, &payload).padded(60),
        }
    };
    (0..n).map(frame).collect()
}

#[test]
fn a_source_decides_about_packets() {
    if !testkit::require_opencl() {
        return;
    }
    let folder = Scratch::new();
    let ttls = [1, 4, 5, 6, 64, 255, 3];
    write(&folder, &ttls.map(|ttl| udp(ttl, 1, 2, b"x")));
    let config = format!(
        "{WIRE}{}{}",
        of_example("pass", ""),
        of_example("ttl_floor", "parameters = { FLOOR = 5 }")
    );
    ok(&run(&folder, &config, ""));
    let left: Vec<u8> = frames(&folder, "b").iter().map(|frame| frame[22]).collect();
    assert_eq!(left, [5, 6, 64, 255]);
    let stats = stats(&folder);
    assert_eq!(count(&stats, "pass", "packets"), 7);
    assert_eq!(
        (count(&stats, "ttl_floor", "packets"), count(&stats, "ttl_floor", "dropped")),
        (7, 3)
    );
    let drops = stats["drops"].as_array().expect("a list");
    assert!(
        drops.iter().any(|own| own["reason"] == "module_drop" && own["packets"] == 3),
        "{stats:#}"
    );
}

/// Patterns in datagrams, and in streams over the end of a segment and in a segment that came late; a connection stays dropped.
#[test]
fn a_source_looks_for_patterns() {
    if !testkit::require_opencl() {
        return;
    }
    let folder = Scratch::new();
    let tcp = |from: u16, sequence: u32, payload: &[u8]| {
        Frame::new().ipv4("192.0.2.1", "198.51.100.1").tcp(from, 80, sequence, payload).padded(60)
    };
    let input = [
        (udp(64, 1, 2, b"run CMD.EXE now"), false),
        (udp(64, 1, 2, b"run cmd-exe now"), true),
        (udp(64, 1, 2, b"/ETC/passwd"), true),
        (tcp(5005, 100, b"GET /etc/pas"), true),
        (tcp(5006, 100, b"GET /etc/pas"), true),
        (tcp(5005, 112, b"swd HTTP/1.1"), false),
        (tcp(5006, 115, b" HTTP/1.1"), true), // its place is behind what is missing
        (tcp(5005, 124, b"more"), false),
        (tcp(5006, 112, b"swd"), false),
        (tcp(5006, 124, b"more"), false),
    ];
    write(&folder, &input.each_ref().map(|(frame, _)| frame.clone()));
    let patterns = format!("patterns = \"{}\"", example("word_filter.patterns"));
    let config = format!("{WIRE}{}", of_example("word_filter", &patterns));
    ok(&run(&folder, &config, ""));
    let expected: Vec<Vec<u8>> =
        input.iter().filter(|(_, passes)| *passes).map(|(frame, _)| frame.clone()).collect();
    assert_eq!(frames(&folder, "b"), expected);
    for (text, part) in [
        ("one\n\\q\n", "p.txt:2: unknown escape `\\q`"),
        ("one\n\none\n", "p.txt:3: the pattern of line 1 again"),
        ("# none\n", "p.txt:1: the file has no pattern"),
    ] {
        folder.write("p.txt", text);
        let config = format!("{WIRE}{}", of_example("word_filter", "patterns = \"p.txt\""));
        let output = run(&folder, &config, "");
        assert!(!output.status.success() && errors(&output).contains(part), "{}", errors(&output));
    }
    for (name, keys, part) in [
        ("word_filter", "", "add `patterns = \"FILE\"`"),
        ("pass", patterns.as_str(), "looks for no patterns"),
    ] {
        let output = run(&folder, &format!("{WIRE}{}", of_example(name, keys)), "");
        assert!(!output.status.success() && errors(&output).contains(part), "{}", errors(&output));
    }
}

/// A payload that is changed twice is as before, with right checksums in between.
#[test]
fn a_source_changes_packets_with_their_checksums() {
    if !testkit::require_opencl() {
        return;
    }
    let folder = Scratch::new();
    let input: Vec<Vec<u8>> = mixed(200);
    write(&folder, &input);
    let key = "parameters = { KEY = 85 }";
    ok(&run(&folder, &format!("{WIRE}{}", of_example("xor_payload", key)), ""));
    let changed = frames(&folder, "b");
    assert_eq!(changed.len(), input.len());
    let mut differ = 0;
    for (before, after) in input.iter().zip(&changed) {
        let (mut was, mut is) = (packet::Decoded::default(), packet::Decoded::default());
        packet::decode::decode_into(before, before.len(), &mut was);
        packet::decode::decode_into(after, after.len(), &mut is);
        let is_udp = was.protocol == packet::IpProtocol::UDP;
        let begin = usize::from(was.l4_offset) + 8;
        for (at, (before, after)) in before.iter().zip(after).enumerate() {
            let is_payload = is_udp && (begin..was.l3_end()).contains(&at);
            let is_sum = is_udp && (begin - 2..begin).contains(&at);
            match (is_payload, is_sum) {
                (true, _) => assert_eq!(*after, before ^ 85),
                (false, true) => {}
                _ => assert_eq!(after, before, "byte {at}"),
            }
        }
        if is_udp && was.l3_end() > begin {
            differ += 1;
            let sum = |frame: &[u8], d: &packet::Decoded| {
                let l4 = usize::from(d.l4_offset);
                checksum_of(&frame[l4..d.l3_end()], d)
            };
            assert_eq!(sum(after, &is), 0xffff, "a right checksum");
        }
    }
    assert!(differ > 40, "{differ}");
    std::fs::rename(folder.join("out/b.pcapng"), folder.join("once.pcapng")).expect("a capture");
    let twice = format!("{WIRE}{}", of_example("xor_payload", key));
    folder.write("c.toml", &twice);
    write(&folder, &changed);
    ok(&run(&folder, &twice, ""));
    assert_eq!(frames(&folder, "b"), input);
}

/// Test vectors 1 and 2 of RFC 3686 §6, behind their initialisation vectors; then as before.
#[test]
fn a_source_encrypts_payload() {
    if !testkit::require_opencl() {
        return;
    }
    let cases: [(&str, [u8; 8], Vec<u8>, u128); 2] = [
        (
            "NONCE = 0x30, KEY_0 = 0xae6852f8, KEY_1 = 0x121067cc, KEY_2 = 0x4bf7a576, KEY_3 = 0x5577f39e",
            [0; 8],
            b"Single block msg".to_vec(),
            0xe409_5d4f_b7a7_b379_2d61_75a3_2613_11b8,
        ),
        (
            "NONCE = 0x6cb6db, KEY_0 = 0x7e240678, KEY_1 = 0x17fae0d7, KEY_2 = 0x43d6ce1f, KEY_3 = 0x32539163",
            [0xc0, 0x54, 0x3b, 0x59, 0xda, 0x48, 0xd9, 0x0b],
            (0..32).collect(),
            0x5104_a106_168a_72d9_790d_41ee_8eda_d388,
        ),
    ];
    for (parameters, iv, text, first_block) in cases {
        let folder = Scratch::new();
        let config =
            format!("{WIRE}{}", of_example("aes_ctr", &format!("parameters = {{ {parameters} }}")));
        // Whole, cut within a block, no text, and less than an initialisation vector.
        let whole = [&iv[..], &text].concat();
        let input: Vec<Vec<u8>> =
            [whole.len(), 8 + 13, 8, 3].iter().map(|len| udp(64, 1, 2, &whole[..*len])).collect();
        write(&folder, &input);
        ok(&run(&folder, &config, ""));
        let changed = frames(&folder, "b");
        assert_eq!(changed[0][42..50], iv);
        assert_eq!(changed[0][50..66], first_block.to_be_bytes());
        assert_eq!(changed[1][50..63], changed[0][50..63]);
        assert_eq!(changed[3], input[3]);
        write(&folder, &changed);
        ok(&run(&folder, &config, ""));
        assert_eq!(frames(&folder, "b"), input, "twice is as before, with the checksums");
    }
}

/// The sum over a UDP datagram and its pseudo header (RFC 768, RFC 8200 §8.1): all ones if it is right.
fn checksum_of(datagram: &[u8], d: &packet::Decoded) -> u16 {
    let mut sum = 17 + datagram.len() as u64;
    for word in d.src.iter().chain(&d.dst) {
        sum += (0..4).map(|i| word >> (16 * i) & 0xffff).sum::<u64>();
    }
    for pair in datagram.chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// State for each flow, against a plain reference, with any number of workers and any chunks.
#[test]
fn flows_have_states_of_their_own() {
    if !testkit::require_opencl() {
        return;
    }
    let folder = Scratch::new();
    let input = mixed(600);
    write(&folder, &input);
    let limit = 600u64;
    let mut bytes = std::collections::HashMap::new();
    let expected: Vec<Vec<u8>> = input
        .iter()
        .filter(|frame| {
            let mut d = packet::Decoded::default();
            packet::decode::decode_into(frame, frame.len(), &mut d);
            let Some(ports) = d.ports() else { return true };
            let own: &mut u64 = bytes.entry((d.src, d.dst, ports, d.protocol.0)).or_default();
            *own += frame.len() as u64;
            *own <= limit
        })
        .cloned()
        .collect();
    assert!(expected.len() > 200 && expected.len() < 550, "{}", expected.len());
    let keys = format!("parameters = {{ LIMIT = {limit}, TRUSTED = 9999 }}");
    for system in ["workers = 1", "workers = 2", "workers = 4"] {
        for chunk in [7, 256] {
            let config = format!(
                "{}chunk = {chunk}\n[system]\n{system}\n{}",
                WIRE,
                of_example("elephant", &keys)
            );
            ok(&run(&folder, &config, ""));
            assert_eq!(frames(&folder, "b"), expected, "{system}, chunks of {chunk}");
        }
    }
}

/// The time of packets, in a limit of each flow's packets a second, against a plain reference, with any number of workers and
/// any chunks.
#[test]
fn a_source_knows_the_time() {
    if !testkit::require_opencl() {
        return;
    }
    let folder = Scratch::new();
    let input = mixed(700);
    let time_ns = |i: usize| 1_700_000_000_700_000_000 + i as u64 * 3_000_000;
    let records = input.iter().enumerate();
    let records = records.map(|(i, frame)| Record::new(time_ns(i), frame.clone()));
    pcap::write_pcap(&folder.join("in.pcap"), &records.collect::<Vec<_>>());
    let mut counts = std::collections::HashMap::new();
    let expected: Vec<Vec<u8>> = (input.iter().enumerate())
        .filter(|(i, frame)| {
            let mut d = packet::Decoded::default();
            packet::decode::decode_into(frame, frame.len(), &mut d);
            let Some(ports) = d.ports() else { return true };
            let second = time_ns(*i) / 1_000_000_000;
            let own = counts.entry((d.src, d.dst, ports, d.protocol.0, second)).or_insert(0);
            *own += 1;
            *own <= 2
        })
        .map(|(_, frame)| frame.clone())
        .collect();
    assert!(expected.len() > 250 && expected.len() < 650, "{}", expected.len());
    for system in ["workers = 1", "workers = 3"] {
        for chunk in [7, 256] {
            let config = format!(
                "{WIRE}chunk = {chunk}\n[system]\n{system}\n{}",
                of_example("rate", "parameters = { RATE = 2 }")
            );
            ok(&run(&folder, &config, ""));
            assert_eq!(frames(&folder, "b"), expected, "{system}, chunks of {chunk}");
        }
    }
}

/// A module that has later ones ignore a flow: they see the packets before, and those of other flows.
#[test]
fn an_ignored_flow_is_ignored_by_later_modules() {
    if !testkit::require_opencl() {
        return;
    }
    let folder = Scratch::new();
    write(&folder, &(0..20).map(|i| udp(9, 1 + i % 2, 53, b"x")).collect::<Vec<_>>());
    let third = "STATE { uint packets; };\nMODULE_UDP(packet)\n{\n    FLOW(packet)->packets += 1u;\n    \
                 return FLOW(packet)->packets == 3u ? IGNORE : PASS;\n}\n";
    // Without a firewall: before one, a flow counts only once its first packet got through.
    let wire = WIRE.replace(
        "mode = \"wire\"\n",
        "mode = \"plain\"\npipeline.plain.stages = [\"flow\", \"modules\", \"wire\"]\n",
    );
    let config = format!(
        "{wire}{}{}",
        module(&folder, "third", third, ""),
        of_example("ttl_floor", "parameters = { FLOOR = 10 }")
    );
    ok(&run(&folder, &config, ""));
    let stats = stats(&folder);
    assert_eq!(count(&stats, "third", "packets"), 20);
    assert_eq!(count(&stats, "ttl_floor", "dropped"), 4, "two packets of each flow");
    assert_eq!(frames(&folder, "b").len(), 16);
}

/// The hash table is there from chunk to chunk: the first packet of each port is dumped, and no other.
#[test]
fn a_table_stays_from_job_to_job() {
    if !testkit::require_opencl() {
        return;
    }
    let folder = Scratch::new();
    write(
        &folder,
        &(0..700u16).map(|i| udp(9, 1000 + i % 3, 1 + i % 50, b"x")).collect::<Vec<_>>(),
    );
    let config = format!("{WIRE}chunk = 32\n{}", of_example("port_counter", ""));
    ok(&run(&folder, &config, ""));
    assert_eq!(count(&stats(&folder), "port_counter", "dumped"), 50);
    assert_eq!(frames(&folder, "b").len(), 650);
}

/// A pattern over the ends of segments.
#[test]
fn a_source_reads_streams() {
    if !testkit::require_opencl() {
        return;
    }
    let folder = Scratch::new();
    let request =
        |host: &str| format!("GET / HTTP/1.1\r\nAccept: */*\r\nHost: {host}\r\n\r\n").into_bytes();
    let mut input = Vec::new();
    for (client, host) in [(1u16, "good.example"), (2, "bad.example")] {
        for (i, part) in request(host).chunks(7).enumerate() {
            let frame = Frame::new().ipv4("192.0.2.1", "198.51.100.1");
            input.push(frame.tcp(1000 + client, 80, 1 + 7 * i as u32, part).padded(60));
        }
    }
    write(&folder, &input);
    ok(&run(&folder, &format!("{WIRE}chunk = 3\n{}", of_example("http_host", "")), ""));
    let stats = stats(&folder);
    // "\r\nHost: bad" ends with byte 38 of the request: the sixth segment and those behind it.
    let segments = request("bad.example").len().div_ceil(7) as u64;
    assert_eq!(count(&stats, "http_host", "dropped"), segments - 5, "{stats:#}");
}

/// A write outside of the packet is refused and counted under the module's name; the packet is as it was.
#[test]
fn a_write_outside_of_a_packet_is_refused() {
    if !testkit::require_opencl() {
        return;
    }
    let folder = Scratch::new();
    let input = mixed(50);
    write(&folder, &input);
    let wild = "MODULE_ETH(packet)\n{\n    packet_set_byte(packet, packet->len, 1u);\n    \
                packet_change_byte(packet, 0xffffffffu, 1u);\n    return packet_byte(packet, 0x80000000u) == 0u ? PASS : DROP;\n}\n";
    ok(&run(&folder, &format!("{WIRE}{}", module(&folder, "wild", wild, "")), ""));
    assert_eq!(frames(&folder, "b"), input);
    let stats = stats(&folder);
    assert_eq!((count(&stats, "wild", "packets"), count(&stats, "wild", "errors")), (50, 50));
}

/// The length that a module reads is its own copy: a greater one opens no memory behind the packet.
#[test]
fn a_length_that_a_module_changes_opens_no_memory() {
    if !testkit::require_opencl() {
        return;
    }
    let folder = Scratch::new();
    let input = mixed(50);
    write(&folder, &input);
    let longer = "MODULE_ETH(packet)\n{\n    packet->len = 0xffffffffu;\n    packet->end = 0xffffffffu;\n    \
                  piece_t piece = packet_payload(packet);\n    piece.len = 0xffffffffu;\n    \
                  packet_set_byte(packet, 0x70000000u, 1u);\n    \
                  return packet_byte(packet, 0x70000000u) + piece_byte(packet, &piece, 0x70000000u) == 0u ? PASS : DROP;\n}\n";
    ok(&run(&folder, &format!("{WIRE}{}", module(&folder, "longer", longer, "")), ""));
    assert_eq!(frames(&folder, "b"), input);
    let stats = stats(&folder);
    assert_eq!((count(&stats, "longer", "packets"), count(&stats, "longer", "errors")), (50, 50));
}

/// An index that comes from a packet and is beyond its array reads and writes nothing else, and is counted.
#[test]
fn an_index_beyond_an_array_is_an_error_of_its_module() {
    if !testkit::require_opencl() {
        return;
    }
    let folder = Scratch::new();
    // The first byte of payload selects an element: 0 to 3 are there.
    let input: Vec<Vec<u8>> =
        (0..200u16).map(|i| udp(9, i, 2, &[if i % 50 == 7 { 255 } else { i as u8 % 4 }])).collect();
    write(&folder, &input);
    let head = "CONSTANT uint SIZES[4] = { 1u, 1u, 1u, 1u };\nSTATE { uint last[4]; };\n\
                FN uint far(uint byte) { return byte == 255u ? 0x30000000u : byte; }\n\
                MODULE_UDP(packet)\n{\n    const uint i = far(packet_byte(packet, packet->data));\n    \
                uint counts[4] = { 0u, 0u, 0u, 0u };\n    ";
    for (name, body) in [
        ("read", "return SIZES[i] == 1u ? PASS : DROP;"),
        (
            "write",
            "counts[i] = 1u;\n    return counts[0] + counts[1] + counts[2] + counts[3] < 2u ? PASS : DROP;",
        ),
        ("state", "FLOW(packet)->last[i] += 1u;\n    return PASS;"),
        ("below", "return counts[i == 0x30000000u ? -1 : 0] == 0u ? PASS : DROP;"),
    ] {
        let text = format!("{head}{body}\n}}\n");
        ok(&run(&folder, &format!("{WIRE}{}", module(&folder, name, &text, "")), ""));
        assert_eq!(frames(&folder, "b"), input, "{name}");
        let stats = stats(&folder);
        assert_eq!(
            (count(&stats, name, "packets"), count(&stats, name, "errors")),
            (200, 4),
            "{name}"
        );
    }
}

/// A number that is no verdict lets the packet pass, and is counted.
#[test]
fn an_unknown_verdict_is_an_error_of_its_module() {
    if !testkit::require_opencl() {
        return;
    }
    let folder = Scratch::new();
    let input: Vec<Vec<u8>> = (0..100).map(|i| udp(9, i, 2, b"x")).collect();
    write(&folder, &input);
    let odd = "MODULE_UDP(packet)\n{\n    return packet_src_port(packet) < 3u ? 77u : PASS;\n}\n";
    ok(&run(&folder, &format!("{WIRE}{}", module(&folder, "odd", odd, "")), ""));
    assert_eq!(frames(&folder, "b"), input);
    let stats = stats(&folder);
    assert_eq!((count(&stats, "odd", "packets"), count(&stats, "odd", "errors")), (100, 3));
}

#[test]
fn an_error_of_a_source_has_its_own_line() {
    let folder = Scratch::new();
    write(&folder, &[udp(9, 1, 2, b"x")]);
    // Of the reader of sources, and of the compiler: in each of them the last line.
    let hidden = "MODULE_IP(packet)\n{\n    return arena[0];\n}\n";
    let wrong = "// One\nMODULE_IP(packet)\n{\n    return packet->tll < 3u;\n}\n";
    let behind = "MODULE_IP(packet)\n{\n    uint a[3];\n    while (a[1] != 2u) a[2] = missing;\n    return PASS;\n}\n";
    let large = "MODULE_IP(packet)\n{\n    uint a[5000]; a[0] = 1u;\n    return a[1];\n}\n";
    let taken = "#define PASS 7u\nMODULE_IP(packet)\n{\n    return PASS;\n}\n";
    let needs =
        "MODULE_UDP(packet)\n{\n    match_t match = match_begin(0u, 0u);\n    return PASS;\n}\n";
    for (text, place, message, is_compiled) in [
        (hidden, "3:12", "`arena` is not available in modules", false),
        (taken, "1:9", "`PASS` has a meaning already", false),
        (needs, "3:5", "a search for patterns", false),
        (wrong, "4:20", "no member named 'tll' in 'packet_t'", true),
        (behind, "4:31", "use of undeclared identifier 'missing'", true),
        (large, "3:18", "static assertion failed", true),
    ] {
        if is_compiled && !testkit::require_opencl() {
            continue;
        }
        let good = of_example("pass", "");
        let config = format!("{WIRE}{good}{}", module(&folder, "own", text, ""));
        let output = run(&folder, &config, "");
        assert!(!output.status.success());
        let said = errors(&output);
        // PoCL 3.1 is a clang: others name the column otherwise.
        let line = format!("error: own.k:{place}: {message}");
        assert!(said.lines().any(|own| own.starts_with(&line)), "{line}: {said}");
        assert!(!said.contains(" generated.") && !said.contains("build"), "{said}");
    }
}

/// A loop without an end is ended, and counted; its packets go on, and so does the module.
#[test]
fn a_loop_without_an_end_is_ended() {
    if !testkit::require_opencl() {
        return;
    }
    let forever = "MODULE_UDP(packet)\n{\n    uint i = 1u;\n    while (packet_dst_port(packet) == 666u && i != 0u)\n        \
                   i += 2u;\n    return PASS;\n}\n";
    let folder = Scratch::new();
    let input: Vec<Vec<u8>> =
        (0..300).map(|i| udp(9, i, if i % 100 == 7 { 666 } else { 2 }, b"x")).collect();
    write(&folder, &input);
    let module = module(&folder, "forever", forever, "");
    let text = ok(&run(&folder, &format!("{WIRE}{module}"), ""));
    assert!(!text.contains("disabled"), "{text}");
    let stats = stats(&folder);
    assert_eq!((count(&stats, "forever", "packets"), count(&stats, "forever", "errors")), (300, 3));
    assert_eq!(frames(&folder, "b"), input);
}

/// Divisions, for as many rounds as a packet may have in each function: long, but no error.
const SLOW: &str = "FN uint spin(uint x)\n{\n    for (uint i = 0u; i < 120000u && x != 1u; i++)\n        \
                    x = (uint)(0x7fffffffffffffful / (ulong)(x | 3u)) / ((x & 7u) + 3u);\n    return x;\n}\n\
                    MODULE_ETH(packet)\n{\n    const uint is_slow = packet_be16(packet, 36u) == 666u;\n    \
                    return is_slow != 0u && spin(packet->len) == 77u ? DROP : PASS;\n}\n\
                    MODULE_UDP(packet)\n{\n    const uint is_slow = packet_dst_port(packet) == 666u;\n    \
                    return is_slow != 0u && spin(packet_src_port(packet)) == 77u ? DROP : PASS;\n}\n";

/// A module that takes too long is disabled, and it alone: those before and behind it go on, and what a job did that was late
/// is kept. Its packets go on, or are dropped if that was asked for.
#[test]
fn a_module_that_is_too_slow_is_disabled_alone() {
    if !testkit::require_opencl() {
        return;
    }
    for keys in ["on_failure = \"pass\"", "on_failure = \"drop\""] {
        let folder = Scratch::new();
        // Of the first ones, one takes longer than the limit of all.
        let slow = (0..40).map(|i| udp(9, 1 + i, 666, b"x"));
        let others = (0..960).map(|i| udp(if i % 10 == 0 { 4 } else { 9 }, 1000 + i, 2, b"x"));
        write(&folder, &slow.chain(others).collect::<Vec<_>>());
        let slow = module(&folder, "slow", SLOW, keys).replace("10s", "2ms");
        let keys_of_flow = "parameters = { LIMIT = 60, TRUSTED = 9999 }";
        // The first jobs have the packets that take long, and each at most the 64 chunks that may be in flight: 128 packets.
        let config = format!(
            "{WIRE}chunk = 2\njobs_in_flight = 1\n{}{slow}{}",
            of_example("elephant", keys_of_flow),
            of_example("ttl_floor", "parameters = { FLOOR = 5 }")
        );
        let text = ok(&run(&folder, &config, ""));
        let named = "module slow (slow.k) ran for longer than its limit of 2ms: it is disabled, the others go on";
        assert!(text.contains(named) && !text.contains("CPU"), "{text}");
        assert_eq!(text.matches("it is disabled").count(), 1, "{text}");
        let stats = stats(&folder);
        let (seen, failed) = (count(&stats, "slow", "packets"), count(&stats, "slow", "failed"));
        assert!(seen > 0 && failed > 500 && seen + failed == 1000, "{seen}, {failed}");
        assert_eq!(count(&stats, "slow", "errors"), 0, "within its rounds");
        // No flow has more than 60 bytes, so the first one lets all pass.
        assert_eq!(count(&stats, "elephant", "packets"), 1000);
        let is_dropped = keys.contains("drop");
        let behind = if is_dropped { seen } else { 1000 };
        assert_eq!(count(&stats, "ttl_floor", "packets"), behind, "{keys}");
        assert_eq!(count(&stats, "elephant", "failed") + count(&stats, "ttl_floor", "failed"), 0);
        let floor = count(&stats, "ttl_floor", "dropped");
        assert!(is_dropped || floor == 96, "{floor}");
        assert_eq!(frames(&folder, "b").len() as u64, behind - floor, "{keys}");
    }
}

/// A launch has a bound, too, whatever its packets do: those behind it count as failed, and no other module loses anything.
#[test]
fn a_launch_has_a_bound() {
    if !testkit::require_opencl() {
        return;
    }
    let forever = "FN uint spin(uint x)\n{\n    while (x != 0u)\n        x += 2u;\n    return x;\n}\n\
                   MODULE_ETH(packet)\n{\n    return spin(packet->len | 1u) == 0u ? DROP : PASS;\n}\n\
                   MODULE_IP(packet)\n{\n    return spin(packet->len | 1u) == 0u ? DROP : PASS;\n}\n\
                   MODULE_UDP(packet)\n{\n    return spin(packet->len | 1u) == 0u ? DROP : PASS;\n}\n";
    let folder = Scratch::new();
    let input: Vec<Vec<u8>> = (0..8000).map(|i| udp(9, i, 2, b"x")).collect();
    write(&folder, &input);
    let forever = module(&folder, "forever", forever, "");
    let text = ok(&run(&folder, &format!("{WIRE}{forever}{}", of_example("pass", "")), ""));
    assert!(!text.contains("disabled"), "{text}");
    let stats = stats(&folder);
    let (seen, failed) = (count(&stats, "forever", "packets"), count(&stats, "forever", "failed"));
    assert!(failed > 0 && seen + failed == 8000, "{seen}, {failed}");
    assert_eq!(count(&stats, "forever", "errors"), seen);
    assert_eq!(count(&stats, "pass", "packets"), 8000);
    assert_eq!(frames(&folder, "b"), input);
}

/// `check` compiles the sources, and says of each error where it is; or that they were not compiled.
#[test]
fn check_compiles_sources() {
    let folder = Scratch::new();
    let good = of_example("pass", "");
    let check = |modules: &str, environment: &[(&str, &str)]| {
        folder.write("c.toml", &format!("{WIRE}{modules}"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        command.args(["check", "c.toml", "--json"]).current_dir(folder.path());
        let output =
            command.envs(environment.iter().copied()).output().expect("the program starts");
        let found: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
        // clang's count, which PoCL lets it write to standard error.
        assert!(!errors(&output).contains(" generated."), "{}", errors(&output));
        // The ports of the test are no interfaces of the machine.
        let is_of_port = |own: &Value| own["message"].to_string().contains("has no interface");
        (
            output.status.success(),
            found.into_iter().filter(|own| !is_of_port(own)).collect::<Vec<_>>(),
        )
    };
    // Without a library of devices.
    let (good_without, found) = check(&good, &[("OCL_ICD_VENDORS", "/nonexistent")]);
    let message = found.first().map(|own| own["message"].to_string()).unwrap_or_default();
    assert!(good_without && message.contains("were not compiled"), "{found:?}");
    if !testkit::require_opencl() {
        return;
    }
    assert_eq!(check(&good, &[]), (true, Vec::new()));
    let wrong = "// One\nMODULE_IP(packet)\n{\n    return packet->tll < 3u;\n}\n";
    let other = "MODULE_UDP(packet)\n{\n    for (uint i = 0u; i < 2u; i++)\n        i += missing;\n    return PASS;\n}\n";
    let modules = format!(
        "{}{good}{}",
        module(&folder, "wrong", wrong, ""),
        module(&folder, "other", other, "")
    );
    let (is_good, found) = check(&modules, &[]);
    let places: Vec<(&str, u64, u64, &str)> = found
        .iter()
        .map(|own| {
            let number = |key: &str| own[key].as_u64().unwrap_or(0);
            let text = |key: &str| own[key].as_str().unwrap_or_default();
            (text("file"), number("line"), number("column"), text("message"))
        })
        .collect();
    assert!(!is_good);
    let is_there = |file: &str, place: (u64, u64), message: &str| {
        let is_it = |own: &&(&str, u64, u64, &str)| {
            own.0.ends_with(file) && (own.1, own.2) == place && own.3.starts_with(message)
        };
        places.iter().any(|own| is_it(&own))
    };
    assert!(is_there("wrong.k", (4, 20), "no member named 'tll'"), "{found:?}");
    assert!(is_there("other.k", (4, 14), "use of undeclared identifier 'missing'"), "{found:?}");
    // What the reader of the configuration refuses has the place of its source, too.
    let hidden = "MODULE_IP(packet)\n{\n    return arena[0];\n}\n";
    let (is_good, found) = check(&module(&folder, "hidden", hidden, ""), &[]);
    assert!(!is_good);
    let own = found.iter().find(|own| own["file"].to_string().contains("hidden.k")).expect("it");
    assert_eq!((own["line"].as_u64(), own["column"].as_u64()), (Some(3), Some(12)));
    assert!(own["message"].to_string().starts_with("\"`arena` is not"), "{own}");
}

/// Bytes that waited for others reach a source, with the packet that brings them.
#[test]
fn a_source_gets_bytes_that_waited() {
    if !testkit::require_opencl() {
        return;
    }
    let folder = Scratch::new();
    let request = b"GET / HTTP/1.1\r\nAccept: */*\r\nHost: bad.example\r\n\r\n";
    let segment = |(at, part): (usize, &[u8])| {
        let frame = Frame::new().ipv4("192.0.2.1", "198.51.100.1");
        frame.tcp(1000, 80, 1 + 7 * at as u32, part).padded(60)
    };
    let mut input: Vec<Vec<u8>> = request.chunks(7).enumerate().map(segment).collect();
    // The second segment comes last, and brings all others.
    let second = input.remove(1);
    input.push(second);
    write(&folder, &input);
    ok(&run(&folder, &format!("{WIRE}{}", of_example("http_host", "")), ""));
    let stats = stats(&folder);
    assert_eq!(count(&stats, "http_host", "dropped"), 1, "{stats:#}");
    assert_eq!(frames(&folder, "b"), input[..input.len() - 1]);
}

#[test]
fn sources_need_a_device() {
    let folder = Scratch::new();
    write(&folder, &[udp(9, 1, 2, b"x")]);
    for backend in ["cpu", "sim"] {
        let output = run(
            &folder,
            &format!("{WIRE}{}", of_example("pass", "")),
            &format!("--backend {backend}"),
        );
        assert!(!output.status.success(), "{backend}");
        let text = errors(&output);
        assert!(text.contains("pocl") && text.contains("--backend opencl"), "{text}");
    }
}

#[test]
fn mistakes_in_the_configuration_are_named() {
    let folder = Scratch::new();
    write(&folder, &[udp(9, 1, 2, b"x")]);
    let pass = of_example("pass", "");
    let rust = "[[module]]\nname = \"r\"\nkind = \"nothing\"\n";
    for (modules, expected) in [
        (format!("{pass}{pass}"), "there are two modules `pass`"),
        (format!("{pass}{rust}"), "unknown Rust module `nothing`"),
        ("[[module]]\nname = \"x\"\n".to_owned(), "module `x` has no code"),
        ("[[module]]\nname = \"x y\"\nsource = \"c.toml\"\n".to_owned(), "cannot name a module"),
        ("[[module]]\nname = \"x\"\nsource = \"none.k\"\n".to_owned(), "cannot read"),
        (pass.replace("time_limit", "ports = [\"c\"]\ntime_limit"), "unknown port `c`"),
        (
            pass.replace("time_limit", "parameters = { floor = 1 }\ntime_limit"),
            "cannot name a parameter",
        ),
    ] {
        let output = run(&folder, &format!("{WIRE}{modules}"), "");
        assert!(!output.status.success(), "{modules}");
        assert!(errors(&output).contains(expected), "{expected}: {}", errors(&output));
    }
}

/// A reload changes a source; one that does not compile is refused, and the modules stay what they were.
#[test]
fn a_reload_changes_a_source() {
    if !testkit::require_opencl() {
        return;
    }
    let folder = Scratch::new();
    let (socket, pass) = (folder.join("ctl.sock"), "MODULE_IP(packet)\n{\n    return PASS;\n}\n");
    let wire = WIRE
        .replace("[port.a]", "[port.a]\nbackend = \"memory\"")
        .replace("[port.b]", "[port.b]\nbackend = \"memory\"");
    let system = format!("[system]\nworkers = 1\nsocket = \"{}\"\n", socket.display());
    let config = format!("{wire}{system}{}", module(&folder, "own", pass, ""));
    folder.write("c.toml", &config);
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.arg("run").arg(folder.join("c.toml"));
    let mut process = Process::spawn(command);
    process.wait_for("running: ", Duration::from_secs(120));
    let ctl = |args: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        let output = command.arg("ctl").arg("--socket").arg(&socket).args(args.split(' ')).output();
        let output = output.expect("the program starts");
        let text = [&output.stdout[..], &output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    let (good, text) = ctl("show modules");
    assert!(good && text.contains("own") && text.contains("dropped"), "{text}");
    for (source, part) in [
        (
            "MODULE_IP(packet)\n{\n    return payload[0];\n}\n",
            "own.k:3:12: `payload` is not available in modules",
        ),
        (
            "MODULE_IP(packet)\n{\n    return packet->nothing;\n}\n",
            "own.k:3:20: no member named 'nothing'",
        ),
    ] {
        folder.write("own.k", source);
        let (good, text) = ctl("reload");
        assert!(!good && text.contains(part) && !text.contains("build"), "{text}");
        let (good, text) = ctl("show modules");
        assert!(good && text.contains("own"), "{text}");
    }
    folder.write("own.k", &pass.replace("PASS", "DROP"));
    let (good, text) = ctl("reload");
    assert!(good && text.contains("module.own.source: own.k (39 bytes"), "{text}");
    // Another process compiles what is new, before the exchange.
    let said = process.output();
    let (compiled, reloaded) =
        (said.rfind("kernels compiled while packets flow"), said.rfind("reloaded: "));
    assert!(compiled.is_some() && compiled < reloaded, "{said}");
    folder.write("c.toml", &config.replace("\"own\"", "\"other\""));
    let (good, text) = ctl("reload");
    assert!(good && text.contains("module.other: - -> new"), "{text}");
    let (good, text) = ctl("show modules --json");
    assert!(good && text.contains("other") && !text.contains("own"), "{text}");
    let said = process.output();
    assert!(!said.contains(" generated."), "the compiler's own count: {said}");
}
