//! `bench patterns`: thousands of literals in packets, each way to scan beside Vectorscan in block mode.
//!
//! Both sides have the same literals and the same packets, scan one packet after the other (ours in batches of 256) without
//! state between them, and count the time that their thread ran. Rounds alternate: every way of ours once, then the peer
//! (`bench/peers/vectorscan_peer.c`). Matches of every pass are compared.

use std::path::{Path, PathBuf};

use automata::{Automaton, Finder, Found, Level, Limits, Pattern, Patterns, Scratch, Segment};

use crate::forms::{ratio, thread_seconds};
use crate::limits::{has_room, up_to};
use crate::peer::Peer;
use crate::tables::Random;
use crate::{Args, Report, Row, lpm};

/// Bytes of the packets of a pass.
const BYTES: usize = 4 << 20;
/// Packets of a batch.
const BATCH: usize = 256;
/// Of so many packets one has a literal, where packets are random.
const ONE_HAS: usize = 64;
/// Tables of more bytes are larger than a last-level cache, and the interleaved walk should gain there (G-Opt).
const LARGE: usize = 64 << 20;

const LITERALS_MAX: usize = 1 << 20;

/// The literals.
#[derive(Debug, Clone, clap::Args)]
pub struct PatternsArgs {
    /// Numbers of random literals of 4 to 16 printable bytes
    #[arg(long, value_delimiter = ',', default_value = "5000,20000,500000", value_parser = up_to::<LITERALS_MAX>)]
    pub literals: Vec<usize>,
    /// Folder with rules (`.rules`; gzip, xz and zstd are read), of which the longest content of each is a literal
    #[arg(long, value_name = "FOLDER", default_value = "../shared/data/ids/etopen-2017")]
    pub rules: PathBuf,
}

pub(crate) fn run(args: &Args, options: &PatternsArgs) -> Result<Report, String> {
    let most = options.literals.iter().copied().max().unwrap_or(0);
    // Tables and what they are built from, by experience; the same for the peer.
    has_room(&format!("tables of {most} literals"), most.saturating_mul(2000))?;
    let rules = rule_literals(&options.rules)?;
    let data = format!(
        "packets of {} MiB, batches of {BATCH}, one in {ONE_HAS} with a literal; rules of {}",
        BYTES >> 20,
        options.rules.display()
    );
    let mut report = Report::new("patterns", data);
    for &count in &options.literals {
        measure(args, &format!("{count} literals"), &random_literals(count), &mut report)?;
    }
    match rules.is_empty() {
        false => measure(args, &format!("{} of rules", rules.len()), &rules, &mut report)?,
        true => {
            let note = format!("{} has no rules", options.rules.display());
            report.rows.push(Row::new("literals of rules", "MB/s", Vec::new()).note(note));
        }
    }
    Ok(report)
}

/// Printable literals of 4 to 16 bytes.
pub(crate) fn random_literals(count: usize) -> Vec<Vec<u8>> {
    let mut random = Random(1);
    let mut literal =
        |_| (0..4 + random.next() % 13).map(|_| printable(&mut random)).collect::<Vec<u8>>();
    (0..count).map(&mut literal).collect()
}

pub(crate) fn printable(random: &mut Random) -> u8 {
    b' ' + (random.next() % 95) as u8
}

/// The longest content of each rule of a folder, where it has four bytes: what an engine would look for first.
fn rule_literals(folder: &Path) -> Result<Vec<Vec<u8>>, String> {
    let Ok(files) = std::fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut files: Vec<_> = files.flatten().map(|file| file.path()).collect();
    files.retain(|path| path.to_string_lossy().contains(".rules"));
    files.sort();
    let mut literals = Vec::new();
    for path in files {
        let text = files::input::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let text = String::from_utf8_lossy(&text);
        for line in text.lines().filter(|line| line.starts_with("alert")) {
            let contents = line.split("content:\"").skip(1).filter_map(content);
            literals.extend(contents.max_by_key(Vec::len).filter(|bytes| bytes.len() >= 4));
        }
    }
    Ok(literals)
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

/// A way to scan all packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// One walk after the other.
    Plain,
    /// Sixteen walks in turns.
    Switched,
    /// The prefilter, and a walk of what passes.
    Filter(Level),
    /// What applications call.
    Best,
    /// By the rarest bytes of each literal, without a state behind a packet: as the peer in block mode.
    Finder,
}

impl Way {
    const ALL: [Self; 7] = [
        Self::Plain,
        Self::Switched,
        Self::Filter(Level::Portable),
        Self::Filter(Level::Avx2),
        Self::Filter(Level::Avx512),
        Self::Best,
        Self::Finder,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Switched => "switched, 16",
            Self::Filter(Level::Portable) => "filter, portable",
            Self::Filter(Level::Avx2) => "filter, AVX2",
            Self::Filter(Level::Avx512) => "filter, AVX-512",
            Self::Best => "best",
            Self::Finder => "finder",
        }
    }

    fn level(self) -> Level {
        match self {
            Self::Filter(level) => level,
            _ => Level::best(),
        }
    }
}

/// What packets are full of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Random printable bytes.
    Printable,
    /// Random bytes.
    Any,
    /// Literals without their last bytes: each leads deep into the tables, and nearly none matches.
    Prefixes,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Printable => "printable",
            Self::Any => "any bytes",
            Self::Prefixes => "prefixes",
        }
    }

    /// What the best way over the peer should come to; prefixes are no aim.
    fn aim(self, size: usize) -> Option<f64> {
        match (self, size) {
            (Self::Prefixes, _) => None,
            (_, 64) => Some(1.2),
            (Self::Printable, _) => Some(1.0),
            (Self::Any, _) => Some(0.6),
        }
    }
}

fn measure(
    args: &Args,
    name: &str,
    literals: &[Vec<u8>],
    report: &mut Report,
) -> Result<(), String> {
    let limits = Limits { bytes_max: 64 << 20, ..Limits::default() };
    let mut patterns = Patterns::with_limits(limits);
    for literal in literals {
        patterns.insert(Pattern::new(literal)).map_err(|e| format!("{name}: {e}"))?;
    }
    let mut automaton = Automaton::new(&patterns).map_err(|e| format!("{name}: {e}"))?;
    let finder = Finder::new(&patterns).map_err(|e| format!("{name}: {e}"))?;
    let bytes = automaton.bytes();
    let tables = Row::new(format!("{name}, tables"), "MiB", vec![bytes as f64 / (1 << 20) as f64]);
    report.rows.push(tables.note(format!("{} different", patterns.len())));
    let mut peer = peer(&patterns);
    if let Err(why) = &peer {
        let row = Row::new(format!("{name}, Vectorscan"), "MB/s", Vec::new());
        report.rows.push(row.note(why.clone()));
    }
    for kind in [Kind::Printable, Kind::Any, Kind::Prefixes] {
        for size in [64, 1460] {
            let prefix = format!("{name}, {size} bytes, {}", kind.name());
            let packets = packets(&patterns, size, kind);
            if let Ok(peer) = &mut peer {
                peer.vectorscan_packets(&packets, size).map_err(|e| e.to_string())?;
            }
            let figures = rounds(
                args.rounds,
                (&mut automaton, &finder),
                &packets,
                size,
                peer.as_mut().ok(),
                &mut |what| {
                    report.wrong.push(format!("{prefix}: {what}"));
                },
            )?;
            let Figures { ours, theirs } = figures;
            let of = |way: Way| ours.iter().find(|(own, _)| *own == way).map(|(_, rates)| rates);
            for (way, rates) in &ours {
                report.rows.push(Row::new(
                    format!("{prefix}, {}", way.name()),
                    "MB/s",
                    rates.clone(),
                ));
            }
            if let (Some(plain), Some(switched)) = (of(Way::Plain), of(Way::Switched)) {
                let row = ratio(format!("{prefix}, switched over plain"), switched, plain);
                report.rows.push(match kind == Kind::Prefixes && bytes > LARGE {
                    true => row.at_least(2.4),
                    false => row,
                });
            }
            if let (Some(best), Ok(peer)) = (of(Way::Best), &peer) {
                let row = ratio(format!("{prefix}, best over Vectorscan"), best, &theirs);
                let theirs = Row::new(format!("{prefix}, Vectorscan"), "MB/s", theirs);
                let theirs = theirs.note(peer.version().to_owned());
                if let Some(finder) = of(Way::Finder) {
                    let name = format!("{prefix}, finder over Vectorscan");
                    report.rows.push(ratio(name, finder, &theirs.rounds));
                }
                report.rows.push(theirs);
                // The sets that the aim names.
                let is_aim = name.starts_with("5000 ") || name.starts_with("20000 ");
                report.rows.push(match kind.aim(size).filter(|_| is_aim) {
                    Some(aim) => row.at_least(aim),
                    None => row,
                });
            }
        }
    }
    Ok(())
}

/// MB/s by round.
struct Figures {
    ours: Vec<(Way, Vec<f64>)>,
    theirs: Vec<f64>,
}

fn rounds(
    rounds: usize,
    (automaton, finder): (&mut Automaton, &Finder),
    packets: &[u8],
    size: usize,
    mut peer: Option<&mut Peer>,
    wrong: &mut dyn FnMut(String),
) -> Result<Figures, String> {
    let rate = |seconds: f64| packets.len() as f64 / seconds / 1e6;
    let mut figures = Figures { ours: Vec::new(), theirs: Vec::new() };
    let mut expected = None;
    for _ in 0..rounds.max(1) {
        for way in Way::ALL {
            automaton.set_level(way.level());
            // The processor lacks it.
            if automaton.level() != way.level() {
                continue;
            }
            let (seconds, matches) = pass((automaton, finder), packets, size, way);
            if *expected.get_or_insert(matches) != matches {
                wrong(format!("{} finds another number of matches: {matches}", way.name()));
            }
            match figures.ours.iter_mut().find(|(own, _)| *own == way) {
                Some((_, rates)) => rates.push(rate(seconds)),
                None => figures.ours.push((way, vec![rate(seconds)])),
            }
        }
        if let Some(peer) = &mut peer {
            let round = peer.vectorscan_round().map_err(|e| e.to_string())?;
            if expected != Some(round.sum) {
                wrong(format!("Vectorscan finds another number of matches: {}", round.sum));
            }
            figures.theirs.push(rate(round.seconds));
        }
    }
    Ok(figures)
}

/// Packets one after the other.
fn packets(patterns: &Patterns, size: usize, kind: Kind) -> Vec<u8> {
    let mut random = Random(2);
    let patterns = patterns.as_slice();
    let len = BYTES / size * size;
    let mut bytes = Vec::with_capacity(len + usize::from(u16::MAX));
    while bytes.len() < len {
        match kind {
            Kind::Printable => bytes.push(printable(&mut random)),
            Kind::Any => bytes.push(random.next() as u8),
            Kind::Prefixes => {
                let literal = patterns[random.next() as usize % patterns.len()].bytes();
                bytes.extend_from_slice(&literal[..literal.len() - 1]);
            }
        }
    }
    bytes.truncate(len);
    if kind != Kind::Prefixes {
        for packet in bytes.chunks_mut(size).step_by(ONE_HAS) {
            let literal = patterns[random.next() as usize % patterns.len()].bytes();
            let literal = &literal[..literal.len().min(size)];
            let at = random.next() as usize % (size - literal.len() + 1);
            packet[at..at + literal.len()].copy_from_slice(literal);
        }
    }
    bytes
}

/// Seconds of this thread, and matches, of all packets.
fn pass(
    (automaton, finder): (&Automaton, &Finder),
    packets: &[u8],
    size: usize,
    way: Way,
) -> (f64, u64) {
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
            Way::Plain => {
                for segment in &segments {
                    automaton.scan(segment.state, segment.bytes, 0, |_| matches += 1);
                }
            }
            Way::Switched => automaton.walk_many(&mut segments, &mut found),
            Way::Filter(_) => automaton.filter_many(&mut segments, &mut found, &mut scratch),
            Way::Best => automaton.scan_many(&mut segments, &mut found, &mut scratch),
            Way::Finder => finder.find_many(&segments, &mut found, &mut scratch),
        }
        matches += found.len() as u64;
        found.clear();
    }
    (thread_seconds() - begun, matches)
}

/// The peer with its literals, or why there is none.
fn peer(patterns: &Patterns) -> Result<Peer, String> {
    let binary = lpm::binary("vectorscan_peer").ok_or(
        "not compared with Vectorscan: `cargo xtask peers` builds it, with libvectorscan-dev",
    )?;
    let start = || {
        let mut peer = Peer::start(&binary, 0)?;
        peer.vectorscan_load(patterns.as_slice().iter().map(Pattern::bytes))?;
        Ok(peer)
    };
    start().map_err(|e: std::io::Error| format!("not compared with Vectorscan: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_of_rules_are_read_as_they_are_meant() {
        let of =
            |text: &str| content(text).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert_eq!(of("GET |2f 2F|a\"; nocase;").as_deref(), Some("GET //a"));
        assert_eq!(of(r#"a\"b\;c\\d";"#).as_deref(), Some(r#"a"b;c\d"#));
        assert_eq!(of("\";"), None);
        assert_eq!(of("|0g|\";"), None);
        assert_eq!(of("no end"), None);
    }

    #[test]
    fn all_ways_find_what_a_search_of_each_packet_finds() {
        let literals = random_literals(50);
        let mut patterns = Patterns::default();
        for literal in &literals {
            patterns.insert(Pattern::new(literal)).unwrap();
        }
        let mut automaton = Automaton::new(&patterns).unwrap();
        let finder = Finder::new(&patterns).unwrap();
        for kind in [Kind::Printable, Kind::Any, Kind::Prefixes] {
            let packets = &packets(&patterns, 64, kind)[..64 * 1000];
            let expected: usize = packets
                .chunks(64)
                .map(|packet| {
                    let of = |literal: &Vec<u8>| {
                        packet.windows(literal.len()).filter(|w| w == literal).count()
                    };
                    literals.iter().map(of).sum::<usize>()
                })
                .sum();
            assert!(kind == Kind::Prefixes || expected >= 1000 / ONE_HAS);
            let mut wrong = Vec::new();
            let own = (&mut automaton, &finder);
            let figures = rounds(1, own, packets, 64, None, &mut |what| wrong.push(what)).unwrap();
            assert!(wrong.is_empty() && figures.ours.len() >= 4, "{wrong:?}");
            let own = (&automaton, &finder);
            assert_eq!(pass(own, packets, 64, Way::Plain).1, expected as u64);
            assert_eq!(pass(own, packets, 64, Way::Finder).1, expected as u64);
        }
    }
}
