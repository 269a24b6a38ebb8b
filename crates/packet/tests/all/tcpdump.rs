//! Filters match the packets that tcpdump matches: those of `data/filters.txt`, and random ones, on all captures at hand.
//!
//! Where the language differs from tcpdump's on purpose (tags and extension headers are seen through), frames are left out.

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

use packet::filter::Filter;
use packet::{Decoded, Kind, decode};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use proptest::prelude::*;

/// A frame as captured, and its length on the wire.
type Frame = (Vec<u8>, usize);

/// Frames of one kind, and a capture of them in which each has its number as its time.
struct Frames {
    frames: Vec<(Frame, Decoded)>,
    capture: PathBuf,
}

/// Frames of each capture at most, so that long flows do not outweigh everything else.
const OF_EACH: usize = 400;

fn captures(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            captures(&path, files);
        } else if path.extension().is_some_and(|end| end == "pcap" || end == "trace") {
            files.push(path);
        }
    }
}

/// Frames without tags, and with one.
fn frames() -> &'static [Frames; 2] {
    static FRAMES: OnceLock<[Frames; 2]> = OnceLock::new();
    FRAMES.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files = Vec::new();
        captures(&root.join("tests/data"), &mut files);
        captures(&root.join("tests/golden"), &mut files);
        captures(&root.join("../shared/data/pcap-mixed"), &mut files);
        captures(&root.join("../shared/data/pcap-tcp"), &mut files);
        files.sort();
        let mut frames: [Vec<(Frame, Decoded)>; 2] = Default::default();
        for file in files {
            let Ok(mut reader) = PcapReader::new(File::open(&file).expect("a capture")) else {
                continue;
            };
            if reader.header().datalink != DataLink::ETHERNET {
                continue;
            }
            for _ in 0..OF_EACH {
                let Some(Ok(raw)) = reader.next_raw_packet() else { break };
                let (bytes, len) = (raw.data.to_vec(), raw.orig_len as usize);
                let d = decode(&bytes, len);
                let tags = usize::from(d.vlan_count);
                // Extension headers are seen through; tcpdump looks at the first one alone. A test of addresses or ports
                // that are not there is no match there, whatever else is asked.
                let l3_len = match d.kind {
                    Kind::Ipv4 => 20,
                    Kind::Ipv6 => 40,
                    Kind::Arp => 28,
                    Kind::Other => 0,
                };
                let l4_len = if d.is_ip() && d.fragment_offset == 0 { 4 } else { 0 };
                let end = (usize::from(d.l3_offset).max(14) + l3_len)
                    .max(usize::from(d.l4_offset) + l4_len);
                let is_whole = bytes.len() >= end;
                let has_extensions = d.kind == Kind::Ipv6 && d.protocol.is_extension_header();
                let is_comparable =
                    tags < 2 && is_whole && !has_extensions && d.extension_count == 0;
                if is_comparable {
                    frames[tags].push(((bytes, len), d));
                }
            }
        }
        frames.map(|frames| {
            let tagged = frames.first().is_some_and(|(_, d)| d.vlan_count > 0);
            let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
            let capture = folder.join(format!("filter-{tagged}-{}.pcap", std::process::id()));
            write(&capture, &frames);
            Frames { frames, capture }
        })
    })
}

fn write(path: &Path, frames: &[(Frame, Decoded)]) {
    let header =
        PcapHeader { datalink: DataLink::ETHERNET, snaplen: 262_144, ..PcapHeader::default() };
    let file = std::io::BufWriter::new(File::create(path).expect("a file"));
    let mut writer = PcapWriter::with_header(file, header).expect("a header");
    for (number, ((bytes, len), _)) in frames.iter().enumerate() {
        let time = Duration::from_secs(number as u64);
        let packet = PcapPacket::new(time, *len as u32, bytes);
        writer.write_packet(&packet).expect("room");
    }
}

/// Runs tcpdump on the frames; `None` where there is none.
fn tcpdump(frames: &Frames, filter: &str) -> Option<Output> {
    let mut command = Command::new("tcpdump");
    // Its optimiser leaves out reads of bytes that are not there, where a tautology follows.
    command.arg("-O").arg("-r").arg(&frames.capture).args(["-w", "-", filter]);
    command.output().ok()
}

/// The numbers of the frames that tcpdump matches, or what it says against the filter.
fn expected(frames: &Frames, filter: &str) -> Option<Result<Vec<usize>, String>> {
    let output = tcpdump(frames, filter)?;
    if !output.status.success() {
        return Some(Err(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let Ok(mut reader) = PcapReader::new(&output.stdout[..]) else { return Some(Ok(Vec::new())) };
    let mut numbers = Vec::new();
    while let Some(Ok(packet)) = reader.next_packet() {
        numbers.push(packet.timestamp.as_secs() as usize);
    }
    Some(Ok(numbers))
}

fn found(frames: &Frames, filter: &Filter) -> Vec<usize> {
    let all = frames.frames.iter().enumerate();
    let found = all.filter(|(_, ((bytes, len), d))| filter.matches_cell(d, bytes, *len));
    found.map(|(number, _)| number).collect()
}

/// The first frame that only one side matches.
fn difference(frames: &Frames, found: &[usize], expected: &[usize]) -> String {
    let of = |number: &usize| {
        let ((bytes, len), d) = &frames.frames[*number];
        format!("frame {number} of {len} bytes: {:02x?}\n{d:?}", &bytes[..bytes.len().min(80)])
    };
    let more = found.iter().find(|number| expected.binary_search(number).is_err());
    let less = expected.iter().find(|number| found.binary_search(number).is_err());
    format!("matched here alone: {:?}\nby tcpdump alone: {:?}", more.map(of), less.map(of))
}

#[test]
fn the_listed_filters_match_what_tcpdump_matches() {
    let lists = frames();
    let text = include_str!("data/filters.txt");
    let filters = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let (mut differences, mut matching, mut n) = (String::new(), 0, 0);
    for text in filters {
        let frames = &lists[usize::from(text.contains("vlan"))];
        let Some(expected) = expected(frames, text) else {
            assert!(std::env::var_os("CI").is_none(), "no tcpdump");
            println!("skipped: no tcpdump");
            return;
        };
        let expected = expected.unwrap_or_else(|error| panic!("{text}: {error}"));
        let filter = Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let found = found(frames, &filter);
        if found != expected {
            let _ = writeln!(differences, "{text}\n{}", difference(frames, &found, &expected));
        }
        n += 1;
        matching += usize::from(!expected.is_empty());
    }
    assert!(differences.is_empty(), "{differences}");
    println!(
        "{n} filters, {matching} with matches, {} frames",
        lists[0].frames.len() + lists[1].frames.len()
    );
    assert!(n > 150 && matching > n * 3 / 4, "{n} filters, {matching} with matches");
}

/// A random filter in which every form may be anywhere.
fn filter() -> impl Strategy<Value = String> {
    let name = |words: &'static [&'static str]| prop::sample::select(words).prop_map(str::to_owned);
    let host =
        name(&["141.142.220.118", "192.168.1.1", "10.0.0.1", "fe80::1", "ff02::fb", "8.8.8.8"]);
    let net = name(&[
        "141.142.0.0/16",
        "10",
        "192.168",
        "10.0.0.0 mask 255.0.0.0",
        "ff00::/8",
        "0.0.0.0/0",
    ]);
    let port = name(&["80", "53", "443", "25", "http", "domain", "22"]);
    let listed = |of: BoxedStrategy<String>| {
        let more = prop::collection::vec((any::<bool>(), any::<bool>(), of.clone()), 0..3);
        (any::<bool>(), of, more).prop_map(|(negate, first, more)| {
            let mut text = format!("{}{first}", if negate { "not " } else { "" });
            for (is_and, negate, next) in more {
                let word = if is_and { "and" } else { "or" };
                let _ = write!(text, " {word} {}{next}", if negate { "not " } else { "" });
            }
            text
        })
    };
    let side = name(&["", "src ", "dst ", "src or dst ", "src and dst "]);
    let qualified = prop_oneof![
        (side.clone(), listed(host.boxed()))
            .prop_map(|(side, names)| format!("{side}host {names}")),
        (side.clone(), listed(net.boxed())).prop_map(|(side, names)| format!("{side}net {names}")),
        (
            name(&["", "tcp ", "udp "]),
            side.clone(),
            listed(name(&["80", "53", "443", "25"]).boxed())
        )
            .prop_map(|(protocol, side, names)| format!("{protocol}{side}port {names}")),
        (side.clone(), port).prop_map(|(side, port)| format!("{side}port {port}")),
        (side, 0u16..2000, 0u16..2000).prop_map(|(side, a, b)| format!("{side}portrange {a}-{b}")),
    ];
    let number = prop_oneof![
        any::<u8>().prop_map(|n| n.to_string()),
        (0u32..30).prop_map(|n| n.to_string()),
        (0u32..70_000).prop_map(|n| format!("{n:#x}")),
        name(&["len", "tcp-syn", "icmp-echo", "tcpflags"]),
        (
            name(&["ether", "ip", "ip6", "tcp", "udp", "icmp", "arp"]),
            0u32..40,
            name(&["", ":1", ":2", ":4"])
        )
            .prop_map(|(protocol, at, size)| format!("{protocol}[{at}{size}]")),
    ];
    // Bytes on the right of an operator: tcpdump 4.99 does not look whether their header is there.
    let constant = (0u32..300).prop_map(|n| n.to_string());
    let operator = name(&["+", "-", "*", "&", "|", "<<", ">>"]);
    let number = number.prop_recursive(3, 8, 2, move |inner| {
        prop_oneof![
            (inner.clone(), operator.clone(), constant.clone())
                .prop_map(|(a, op, b)| format!("({a}) {op} ({b})")),
            (inner, operator.clone(), constant.clone())
                .prop_map(|(a, op, b)| format!("{a} {op} {b}")),
        ]
    });
    let relation = (number.clone(), name(&["=", "==", "!=", "<", "<=", ">", ">="]), number)
        .prop_map(|(a, op, b)| format!("{a} {op} {b}"));
    let plain = name(&[
        "tcp",
        "udp",
        "ip",
        "ip6",
        "arp",
        "icmp",
        "icmp6",
        "broadcast",
        "multicast",
        "ip multicast",
        "less 100",
        "greater 500",
        "ip proto 17",
        "proto 6",
        "ether proto 0x806",
        "ether src 00:19:e3:e7:5d:23",
    ]);
    let test = prop_oneof![qualified, relation, plain];
    test.prop_recursive(4, 12, 3, move |inner| {
        prop_oneof![
            (inner.clone(), name(&["and", "or", "&&", "||"]), inner.clone())
                .prop_map(|(a, word, b)| format!("{a} {word} {b}")),
            (inner.clone(), name(&["and", "or"]), inner.clone())
                .prop_map(|(a, word, b)| format!("({a}) {word} ({b})")),
            inner.clone().prop_map(|a| format!("not {a}")),
            inner.prop_map(|a| format!("! ({a})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::with_cases(64) })]

    /// What tcpdump refuses may be a filter here; what it takes is one, and means the same.
    #[test]
    fn random_filters_match_what_tcpdump_matches(text in filter()) {
        let frames = &frames()[0];
        if let Some(Ok(expected)) = expected(frames, &text) {
            let filter = Filter::parse(&text);
            prop_assert!(filter.is_ok(), "{}: {:?}", text, filter);
            if let Ok(filter) = filter {
                let found = found(frames, &filter);
                prop_assert!(found == expected, "{}\n{}", text, difference(frames, &found, &expected));
            }
        }
    }
}
