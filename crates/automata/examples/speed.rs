//! Megabytes a second of each way to scan, over sets of literals, sizes of packets and kinds of bytes; one core.
//!
//! `cargo run --release -p automata --example speed [COUNT…] [etopen] [PEER]`; `etopen` takes the contents of the rules in
//! `../shared/data/ids`, `PEER` is the path of `bench/peers/vectorscan_peer`. Rounds of all ways alternate; the best of
//! each counts. Matches are compared.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use automata::{Automaton, Found, Level, Limits, Pattern, Patterns, Scratch, Segment};

/// Bytes of the packets of a round.
const BYTES: usize = 4 << 20;
/// Packets of a batch.
const BATCH: usize = 256;
const ROUNDS: usize = 7;

fn main() {
    let mut counts = Vec::new();
    let mut peer = None;
    let mut etopen = false;
    for argument in std::env::args().skip(1) {
        match argument.parse::<usize>() {
            Ok(count) => counts.push(count),
            Err(_) if argument == "etopen" => etopen = true,
            Err(_) => peer = Some(argument),
        }
    }
    if counts.is_empty() && !etopen {
        counts = vec![100, 1000, 5000, 20_000];
    }
    println!(
        "{:>14} {:>6} {:>9}  {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}  {:>8}",
        "literals",
        "packet",
        "bytes",
        "plain",
        "turns",
        "port.",
        "avx2",
        "avx512",
        "auto",
        "peer",
        "matches"
    );
    for count in counts {
        let patterns: Vec<Vec<u8>> = random_patterns(count);
        measure(&format!("{count} random"), &patterns, peer.as_deref());
    }
    if etopen {
        let patterns = rule_patterns();
        measure(&format!("{} etopen", patterns.len()), &patterns, peer.as_deref());
    }
}

/// A small generator (Steele, Lea and Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn printable(&mut self) -> u8 {
        b' ' + (self.next() % 95) as u8
    }
}

/// Printable literals of 4 to 16 bytes.
fn random_patterns(count: usize) -> Vec<Vec<u8>> {
    let mut random = Random(1);
    (0..count).map(|_| (0..4 + random.next() % 13).map(|_| random.printable()).collect()).collect()
}

/// The longest content of each rule of the Emerging Threats set, where it has four bytes, which is what an engine would
/// look for first.
fn rule_patterns() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/ids/etopen-2017");
    let mut patterns = Vec::new();
    let Ok(files) = std::fs::read_dir(folder) else { return patterns };
    let mut files: Vec<_> = files.flatten().map(|file| file.path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.to_string_lossy().ends_with(".rules.xz")) {
        let xz = Command::new("xz").arg("-dc").arg(file).output().expect("the program xz");
        for line in xz.stdout.split(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(line);
            if line.starts_with("alert") {
                let contents = line.split("content:\"").skip(1).filter_map(content);
                patterns.extend(contents.max_by_key(Vec::len).filter(|bytes| bytes.len() >= 4));
            }
        }
    }
    patterns
}

/// Up to the closing quotation mark, with `|0d 0a|` and `\;` read.
fn content(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut hex = None::<String>;
    let mut letters = text.bytes();
    while let Some(letter) = letters.next() {
        match (&mut hex, letter) {
            (Some(digits), b'|') => {
                for byte in digits.split_whitespace() {
                    bytes.push(u8::from_str_radix(byte, 16).ok()?);
                }
                hex = None;
            }
            (Some(digits), digit) => digits.push(digit.into()),
            (None, b'|') => hex = Some(String::new()),
            (None, b'\\') => bytes.push(letters.next()?),
            (None, b'"') => return (!bytes.is_empty()).then_some(bytes),
            (None, letter) => bytes.push(letter),
        }
    }
    None
}

fn measure(name: &str, literals: &[Vec<u8>], peer: Option<&str>) {
    let mut patterns = Patterns::with_limits(Limits { bytes_max: 64 << 20, ..Limits::default() });
    let begun = Instant::now();
    for literal in literals {
        patterns.insert(Pattern::new(literal)).expect("a pattern");
    }
    let mut automaton = Automaton::new(&patterns).expect("tables");
    println!(
        "{name:>14}: {} different, {} KiB of tables, {} ms",
        patterns.len(),
        automaton.bytes() / 1024,
        begun.elapsed().as_millis()
    );
    let mut peer = peer.map(|path| Peer::start(path, &patterns));
    for kind in [Kind::Printable, Kind::Any, Kind::Prefixes] {
        for size in [64, 1460] {
            let packets = packets(&patterns, size, kind);
            let levels = [Level::Portable, Level::Avx2, Level::Avx512];
            let mut best = [f64::INFINITY; 7];
            let mut matches = [0; 7];
            if let Some(peer) = &mut peer {
                peer.packets(&packets, size);
            }
            for _ in 0..ROUNDS {
                for way in 0..7_usize {
                    let level = levels.get(way.wrapping_sub(2)).copied().unwrap_or(Level::best());
                    automaton.set_level(level);
                    let absent = automaton.level() != level;
                    let (seconds, found) = match (way, &mut peer) {
                        (6, Some(peer)) => peer.round(),
                        (6, None) => continue,
                        _ if absent => continue,
                        _ => round(&automaton, &packets, size, way),
                    };
                    best[way] = best[way].min(seconds);
                    matches[way] = found;
                }
            }
            let rates = best.map(|seconds| match seconds.is_finite() {
                true => format!("{:7.0}", packets.len() as f64 / seconds / 1e6),
                false => format!("{:>7}", "–"),
            });
            println!(
                "{:>14} {size:>6} {:>9}  {}  {:>8}",
                "",
                kind.name(),
                rates.join(" "),
                matches[0]
            );
            for (way, best) in best.iter().enumerate() {
                assert!(best.is_infinite() || matches[way] == matches[0], "{matches:?}");
            }
        }
    }
}

/// What packets are full of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Random printable bytes; in one packet of 64 is a literal.
    Printable,
    /// Random bytes; in one packet of 64 is a literal.
    Any,
    /// Literals without their last bytes: each leads deep into the tables, and nearly none matches.
    Prefixes,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Printable => "printable",
            Self::Any => "any",
            Self::Prefixes => "prefixes",
        }
    }
}

/// Packets one after the other.
fn packets(patterns: &Patterns, size: usize, kind: Kind) -> Vec<u8> {
    let mut random = Random(2);
    let patterns = patterns.as_slice();
    let len = BYTES / size * size;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        match kind {
            Kind::Printable => bytes.push(random.printable()),
            Kind::Any => bytes.push(random.next() as u8),
            Kind::Prefixes => {
                let literal = patterns[random.next() as usize % patterns.len()].bytes();
                bytes.extend_from_slice(&literal[..literal.len() - 1]);
            }
        }
    }
    bytes.truncate(len);
    if kind != Kind::Prefixes {
        for packet in bytes.chunks_mut(size).step_by(64) {
            let literal = patterns[random.next() as usize % patterns.len()].bytes();
            let literal = &literal[..literal.len().min(size)];
            let at = random.next() as usize % (size - literal.len() + 1);
            packet[at..at + literal.len()].copy_from_slice(literal);
        }
    }
    bytes
}

/// Seconds and matches of all packets by one way.
fn round(automaton: &Automaton, packets: &[u8], size: usize, way: usize) -> (f64, usize) {
    let state = automaton.start();
    let mut found: Vec<Found> = Vec::with_capacity(1 << 16);
    let mut scratch = Scratch::default();
    let mut segments = Vec::with_capacity(BATCH);
    let mut matches = 0;
    let begun = thread_seconds();
    for batch in packets.chunks(BATCH * size) {
        segments.clear();
        segments.extend(batch.chunks(size).map(|bytes| Segment { state, offset: 0, bytes }));
        match way {
            0 => {
                for segment in &segments {
                    automaton.scan(segment.state, segment.bytes, 0, |_| matches += 1);
                }
            }
            1 => automaton.walk_many(&mut segments, &mut found),
            5 => automaton.scan_many(&mut segments, &mut found, &mut scratch),
            _ => automaton.filter_many(&mut segments, &mut found, &mut scratch),
        }
        matches += found.len();
        found.clear();
    }
    (thread_seconds() - begun, matches)
}

/// Running time of this thread, so that other work on the machine takes nothing from a round.
fn thread_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on Linux, and `time` is a timespec of this frame.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// `bench/peers/vectorscan_peer`: its source shows the protocol.
struct Peer {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Peer {
    fn start(path: &str, patterns: &Patterns) -> Self {
        let mut command = Command::new(path);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the peer");
        let answers = BufReader::new(child.stdout.take().expect("its output"));
        let mut peer = Self { child, answers };
        let mut file = Vec::new();
        for pattern in patterns.as_slice() {
            file.extend((pattern.bytes().len() as u32).to_ne_bytes());
            file.extend(pattern.bytes());
        }
        let place = Self::file("literals", &file);
        peer.ask(&format!("load {place}"));
        peer
    }

    fn file(name: &str, bytes: &[u8]) -> String {
        let path = std::env::temp_dir().join(format!("automata-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).expect("a temporary file");
        path.to_string_lossy().into_owned()
    }

    fn packets(&mut self, packets: &[u8], size: usize) {
        let place = Self::file("packets", packets);
        self.ask(&format!("packets {place} {size}"));
    }

    fn round(&mut self) -> (f64, usize) {
        let answer = self.ask("round");
        let mut words = answer.split_whitespace().skip(1);
        let mut word = || words.next().expect("an answer").to_owned();
        (word().parse().expect("seconds"), word().parse().expect("matches"))
    }

    fn ask(&mut self, line: &str) -> String {
        let input = self.child.stdin.as_mut().expect("its input");
        writeln!(input, "{line}").expect("the peer listens");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("an answer");
        assert!(answer.starts_with("ok"), "{line}: {answer}");
        answer
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
        for name in ["literals", "packets"] {
            let name = format!("automata-{}-{name}", std::process::id());
            let _ = std::fs::remove_file(std::env::temp_dir().join(name));
        }
    }
}
