//! Inputs and outputs of every command, as a user names them: files, compressed or not, and `-`.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use testkit::Scratch;
use testkit::frames::Frame;
use testkit::packed;
use testkit::pcap::Record;

const CONFIG: &str = "mode = \"router\"\n\
    [port.lan]\naddresses = [\"192.0.2.1/24\"]\n\
    [port.wan]\naddresses = [\"198.51.100.1/24\"]\n\
    [[route]]\nprefix = \"0.0.0.0/0\"\nvia = \"198.51.100.2\"\n";

const ROUTES: &str = "10.0.0.0/8 east\n10.1.0.0/16 west\n2001:db8::/32 six\n";
const ADDRESSES: &str = "10.0.0.1\n10.1.0.1\n2001:db8::1\n192.0.2.1\n";
const NEXT_HOPS: &str = "east\nwest\nsix\n-\n";
const NAME_ROUTES: &str = "/org east\n/org/example west\n";
const NAMES: &str = "/org/x\n/org/example/y\n/com\n";
const NAME_HOPS: &str = "east\nwest\n-\n";
const RULES: &str = "@10.0.0.0/8\t0.0.0.0/0\t0 : 65535\t80 : 80\t0x06/0xFF\n\
    @0.0.0.0/0\t0.0.0.0/0\t0 : 65535\t0 : 65535\t0x11/0xFF\n";
/// 10.0.0.1 to port 80, a UDP packet, and one that nothing matches.
const TRACE: &str = "167772161 1 1024 80 6\n1 2 3 4 17\n1 2 3 4 6\n";
const MATCHES: &str = "0\n1\n-1\n";

fn packets(n: u32) -> Vec<Record> {
    let packet = |i: u32| {
        let to = format!("10.{}.{}.{}", i % 7, i % 100, 1 + i % 200);
        let frame = Frame::new().ipv4("192.0.2.9", &to).udp(1000 + i as u16, 53, &[i as u8; 90]);
        Record::new(1_700_000_000_000_000_000 + u64::from(i) * 1000, frame.bytes())
    };
    (0..n).map(packet).collect()
}

/// `shadeline ARGS` in the folder, with this on standard input.
fn shadeline(folder: &Scratch, args: &str, input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.args(args.split_whitespace()).current_dir(folder.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    // A program that fails does not read to the end.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("the program ends");
    writer.join().expect("the writer");
    output
}

fn ok(output: &Output) -> String {
    assert!(output.status.success(), "{}: {}", output.status, errors(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn files_in(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, std::fs::read(&path).expect("a file"))
    });
    let mut files: Vec<_> = entries.collect();
    files.sort();
    files
}

#[test]
fn captures_of_every_form_are_read_from_files_and_pipes() {
    let folder = Scratch::new();
    folder.write("c.toml", CONFIG);
    testkit::pcap::write_pcap(&folder.join("one.pcap"), &packets(300));
    testkit::pcap::write_pcapng(&folder.join("one.pcapng"), &["eth0"], &packets(300));
    let one = std::fs::read(folder.join("one.pcap")).expect("a capture");
    let ng = std::fs::read(folder.join("one.pcapng")).expect("a capture");
    ok(&shadeline(&folder, "run c.toml -r one.pcap -w expected", b""));
    let expected = files_in(&folder.join("expected"));
    let stats = expected.iter().find(|(name, _)| name == "stats.json").expect("stats.json");
    assert!(String::from_utf8_lossy(&stats.1).contains("\"rx_packets\": 300"));
    for capture in [one.clone(), turned_pcap(&one), ng.clone(), turned_pcapng(&ng)] {
        for (_, pack) in packed::all() {
            // The name says nothing of what is inside.
            std::fs::write(folder.join("capture.dat"), pack(&capture)).expect("a file");
            for (read, input) in [("capture.dat", Vec::new()), ("-", pack(&capture))] {
                let _ = std::fs::remove_dir_all(folder.join("out"));
                ok(&shadeline(&folder, &format!("run c.toml -r {read} -w out"), &input));
                assert!(files_in(&folder.join("out")) == expected, "{read}");
            }
        }
    }
    // In a folder they are found by their names.
    for (name, pack) in packed::all() {
        std::fs::create_dir_all(folder.join("all")).expect("a folder");
        std::fs::write(folder.join(&format!("all/x.pcap{name}")), pack(&one)).expect("a file");
    }
    let said = ok(&shadeline(&folder, "run c.toml -r all", b""));
    assert!(said.contains("\n1,200 packets in"), "{said}");
    // A pipe with a name.
    let output = Command::new("bash")
        .args(["-c", "\"$0\" run c.toml -r lan=<(cat one.pcap) -r wan=<(cat one.pcapng)"])
        .arg(env!("CARGO_BIN_EXE_shadeline"))
        .current_dir(folder.path())
        .output()
        .expect("bash");
    let said = ok(&output);
    assert!(said.contains("\n600 packets in"), "{said}");
}

/// A word of a capture in one of the byte orders.
fn word(bytes: &[u8], at: usize, is_big: bool) -> u32 {
    let four = bytes[at..at + 4].try_into().expect("four bytes");
    if is_big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
}

/// The same capture in the other byte order.
fn turned_pcap(bytes: &[u8]) -> Vec<u8> {
    let is_big = bytes[0] == 0xa1;
    let mut turned = bytes.to_vec();
    for field in [0..4, 4..6, 6..8, 16..20, 20..24] {
        turned[field].reverse();
    }
    let mut at = 24;
    while at < bytes.len() {
        (0..4).for_each(|field| turned[at + 4 * field..at + 4 * field + 4].reverse());
        at += 16 + word(bytes, at + 8, is_big) as usize;
    }
    turned
}

/// The same, with its options left out.
fn turned_pcapng(bytes: &[u8]) -> Vec<u8> {
    let is_big = word(bytes, 8, true) == 0x1a2b_3c4d;
    let (mut turned, mut at) = (Vec::new(), 0);
    let half = |n: u16| if is_big { n.to_le_bytes() } else { n.to_be_bytes() };
    let whole = |n: u32| if is_big { n.to_le_bytes() } else { n.to_be_bytes() };
    while at < bytes.len() {
        let (kind, len) = (word(bytes, at, is_big), word(bytes, at + 4, is_big) as usize);
        let words = |from: usize, n: usize| -> Vec<u8> {
            (0..n).flat_map(|i| whole(word(bytes, at + from + 4 * i, is_big))).collect()
        };
        let body = match kind {
            0x0a0d_0d0a => [&words(8, 1)[..], &half(1), &half(0), &[0xff; 8]].concat(),
            // Its resolution is an option: nanoseconds.
            1 => {
                let resolution = [&half(9)[..], &half(1), &[9, 0, 0, 0], &[0; 4]].concat();
                [&half(1)[..], &half(0), &words(12, 1), &resolution].concat()
            }
            _ => {
                let data = word(bytes, at + 20, is_big).next_multiple_of(4) as usize;
                [&words(8, 5)[..], &bytes[at + 28..at + 28 + data]].concat()
            }
        };
        let total = whole(body.len() as u32 + 12);
        turned.extend([&whole(kind)[..], &total, &body, &total].concat());
        at += len;
    }
    turned
}

#[test]
fn a_compressed_capture_that_is_cut_or_corrupt_is_named_and_its_rest_delivered() {
    let folder = Scratch::new();
    folder.write("c.toml", CONFIG);
    testkit::pcap::write_pcap(&folder.join("in.pcap"), &packets(30_000));
    let whole = std::fs::read(folder.join("in.pcap")).expect("a capture");
    for (name, pack) in &packed::all()[1..] {
        let good = pack(&whole);
        let (mut cut, mut corrupt) = (good.clone(), good);
        cut.truncate(cut.len() * 3 / 4);
        let at = corrupt.len() * 3 / 4;
        corrupt[at..at + 40].fill(0xa5);
        for (what, bytes) in [("truncated", cut), ("", corrupt)] {
            std::fs::write(folder.join("bad.pcap"), &bytes).expect("a file");
            for (read, called) in [("bad.pcap", "bad.pcap"), ("-", "standard input")] {
                let output = shadeline(&folder, &format!("run c.toml -r {read} -w out"), &bytes);
                let said = errors(&output);
                assert_eq!(output.status.code(), Some(1), "{name}: {said}");
                assert!(said.starts_with(&format!("error: {called}: at byte ")), "{name}: {said}");
                assert!(said.contains(what) && said.lines().count() == 1, "{name}: {said}");
                let stats = std::fs::read_to_string(folder.join("out/stats.json")).expect("stats");
                let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
                assert_eq!(stats["incomplete"], true, "{stats}");
                let received = stats["rx_packets"].as_u64().expect("a number");
                assert!((2_000..=30_000).contains(&received), "{name} {what}: {received}");
            }
        }
    }
}

#[test]
fn a_run_without_w_prints_and_writes_nothing() {
    let folder = Scratch::new();
    folder.write("c.toml", CONFIG);
    testkit::pcap::write_pcap(&folder.join("in.pcap"), &packets(50));
    let before = files_in(folder.path());
    let said = ok(&shadeline(&folder, "run c.toml -r in.pcap", b""));
    assert!(said.contains("\n50 packets in, 50 out") && !said.contains("stats.json"), "{said}");
    let json = ok(&shadeline(&folder, "run c.toml -r in.pcap --json", b""));
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["tx_packets"], 50);
    assert!(files_in(folder.path()) == before);
    // A folder is no pipe.
    let output = shadeline(&folder, "run c.toml -r in.pcap -w -", b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("-w writes a capture for each port, so it needs a folder"));
    assert!(files_in(folder.path()) == before);
}

#[test]
fn results_take_standard_output_and_figures_leave_it() {
    let folder = Scratch::new();
    for (name, text) in [
        ("routes", ROUTES),
        ("addresses", ADDRESSES),
        ("name-routes", NAME_ROUTES),
        ("names", NAMES),
        ("rules", RULES),
        ("trace", TRACE),
    ] {
        folder.write(name, text);
        for (end, pack) in &packed::all()[1..] {
            let path = folder.join(&format!("{name}{end}"));
            std::fs::write(path, pack(text.as_bytes())).expect("a file");
        }
    }
    let cases = [
        ("lpm --results -", ["routes", "addresses"], [ROUTES, ADDRESSES], NEXT_HOPS, "peak memory"),
        ("names --results -", ["routes", "names"], [NAME_ROUTES, NAMES], NAME_HOPS, "peak memory"),
        ("classify --matches -", ["rules", "trace"], [RULES, TRACE], MATCHES, "peak memory"),
    ];
    for (command, options, texts, expected, figures) in cases {
        let file = |option: &str| match (command.starts_with("names"), option) {
            (true, "routes") => "name-routes".to_owned(),
            _ => option.to_owned(),
        };
        for (end, pack) in packed::all() {
            let [first, second] = options.map(|option| file(option) + end);
            for (args, input) in [
                (format!("--{} {first} --{} {second}", options[0], options[1]), ""),
                (format!("--{} - --{} {second}", options[0], options[1]), texts[0]),
                (format!("--{} {first} --{} -", options[0], options[1]), texts[1]),
            ] {
                let output =
                    shadeline(&folder, &format!("{command} {args}"), &pack(input.as_bytes()));
                assert_eq!(ok(&output), expected, "{command} {args}: {}", errors(&output));
                assert!(errors(&output).contains(figures), "{}", errors(&output));
            }
        }
        // Figures as JSON leave it, too.
        let args =
            format!("{command} --json --{} {} --{} -", options[0], file(options[0]), options[1]);
        let output = shadeline(&folder, &args, texts[1].as_bytes());
        assert_eq!(ok(&output), expected);
        serde_json::from_slice::<serde_json::Value>(&output.stderr).expect("JSON");
        // Standard input is one file.
        let both = format!("{command} --{} - --{} -", options[0], options[1]);
        let output = shadeline(&folder, &both, b"");
        assert_eq!(output.status.code(), Some(1));
        let said = errors(&output);
        assert!(said.contains("standard input: only one input can be `-`"), "{said}");
    }
    // A bad line is one of standard input.
    let output =
        shadeline(&folder, "lpm --routes routes --addresses - --results -", b"10.0.0.1\nx\n");
    let said = errors(&output);
    assert!(said.contains("standard input, line 2: expected an address, found `x`"), "{said}");
    let made =
        shadeline(&folder, "gen trace --rules - --count 5 -w -", &packed::zstd(RULES.as_bytes()));
    assert_eq!(ok(&made).lines().count(), 5);
}

#[test]
fn a_configuration_comes_from_standard_input() {
    let folder = Scratch::new();
    testkit::pcap::write_pcap(&folder.join("in.pcap"), &packets(5));
    let said = ok(&shadeline(&folder, "run - -r in.pcap", CONFIG.as_bytes()));
    assert!(said.contains("\n5 packets in"), "{said}");
    // Ports without interfaces, which no machine lacks.
    let inside = ["lan", "wan"].iter().fold(CONFIG.to_owned(), |text, port| {
        let header = format!("[port.{port}]\n");
        text.replace(&header, &format!("{header}backend = \"memory\"\n"))
    });
    let checked = ok(&shadeline(&folder, "check -", inside.as_bytes()));
    assert_eq!(checked, "standard input: no errors\n");
    let output = shadeline(&folder, "check -", b"mode = \"ruoter\"\n");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("standard input:1:8") && output.status.code() == Some(1), "{said}");
    let output = shadeline(&folder, "run - -r -", CONFIG.as_bytes());
    assert!(errors(&output).contains("standard input: only one input can be `-`"));
    // A file that a configuration names is a file.
    folder.write("c.toml", &format!("{CONFIG}[[routes_file]]\npath = \"-\"\n"));
    let output = shadeline(&folder, "check c.toml", ROUTES.as_bytes());
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn commands_are_joined_by_pipes() {
    let folder = Scratch::new();
    folder.write("c.toml", CONFIG);
    for options in ["", "--json"] {
        let made = shadeline(&folder, &format!("gen packets --count 500 -w - {options}"), b"");
        assert!(made.status.success(), "{}", errors(&made));
        assert!(errors(&made).contains(if options.is_empty() {
            "500 packets"
        } else {
            "\"packets\": 500"
        }));
        let said = ok(&shadeline(&folder, "run c.toml -r - --json", &made.stdout));
        assert!(said.contains("\"rx_packets\": 500"), "{said}");
    }
}

#[test]
fn packets_are_not_written_to_a_terminal_and_not_read_from_one() {
    if testkit::require_tool("script").is_none() {
        return;
    }
    let folder = Scratch::new();
    folder.write("c.toml", CONFIG);
    for (args, expected) in [
        ("gen packets --count 5 -w -", "standard output: a capture is not written to a terminal"),
        ("run c.toml -r -", "standard input: expected a capture, found a terminal"),
    ] {
        let command = format!("{} {args}", env!("CARGO_BIN_EXE_shadeline"));
        let output = Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .output()
            .expect("script");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains(expected) && output.status.code() == Some(1), "{args}: {said}");
    }
}

/// The total counts what matches, and frames that are not looked into are named.
#[test]
fn a_filter_is_in_the_total_and_what_is_behind_mpls_in_a_warning() {
    let folder = Scratch::new();
    let segment =
        |client: u16| Frame::new().ipv4("192.0.2.9", "192.0.2.8").tcp(client, 80, 1, b"x").bytes();
    let with = |link: &[u8]| {
        let frame = segment(1);
        [&frame[..12], link, &frame[14..]].concat()
    };
    let mut frames: Vec<Vec<u8>> = (0..10).map(|i| segment(1000 + i % 2)).collect();
    frames.push(with(&[0x88, 0x47, 0, 1, 0x01, 64]));
    frames.push(with(&[0x88, 0x64, 0x11, 0, 0, 1, 0, 43, 0, 0x21]));
    frames.push(with(&[0x81, 0, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 8, 0]));
    frames.push(with(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0]));
    let records: Vec<Record> = (0u64..)
        .zip(frames)
        .map(|(i, frame)| Record::new(1_700_000_000_000_000_000 + i, frame))
        .collect();
    testkit::pcap::write_pcap(&folder.join("in.pcap"), &records);
    let all = shadeline(&folder, "streams -r in.pcap", b"");
    assert!(ok(&all).contains("3 connections in 14 packets;"), "{}", ok(&all));
    let warning = "warning: 3 packets are behind MPLS, PPPoE or more than two VLAN tags";
    assert!(errors(&all).contains(warning), "{}", errors(&all));
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command
        .args(["streams", "-r", "in.pcap", "--filter", "tcp port 1001"])
        .current_dir(folder.path());
    let some = command.output().expect("the program starts");
    assert!(ok(&some).contains("1 connection in 5 of 14 packets;"), "{}", ok(&some));
    let none = errors(&shadeline(&folder, "streams", b""));
    assert!(none.contains("--read <IN>") && none.contains("--interface <INTERFACE>"), "{none}");
}
