//! Rust modules behind a tracker: layers, states, streams in whatever chunks packets come, and what `ignore` does.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use chunk::{Arena, Chunk, Columns, HugePages, Layout, Packet, Pool, Region, Verdict, VerdictKind};
use control::config::ModuleEntry;
use controlplane::module::{Act, MODULE_DROP, Module, ModuleKind, PacketAt, Piece};
use engine::{Context, Stage};
use proptest::prelude::*;
use stream::Tracker;
use stream::tracker::Options;
use testkit::frames::Frame;

use super::columns::ModuleColumns;
use super::counters::{Column, Counters};
use super::gather::Places;
use super::stage::{Group, Modules, Parts, Rust};
use crate::flow::Flow;
use crate::flow::columns::{CallColumns, FlowColumns};
use crate::flow::follow::{Followers, Listener};

/// A flow and a direction, with what came of it: the offset of each piece, and its bytes.
type Streams = BTreeMap<(u64, bool), Vec<(u64, Vec<u8>)>>;

#[derive(Default)]
struct Heard {
    /// Calls by function.
    layers: [usize; 5],
    streams: Streams,
    /// Payloads of UDP datagrams, with the numbers of their flows.
    datagrams: Vec<(u64, Vec<u8>)>,
    /// Packets that the second module saw, and the count of its flow's state then.
    second: Vec<(u64, u32)>,
}

thread_local! {
    static HEARD: RefCell<Heard> = RefCell::default();
}

fn note(layer: usize) -> Act {
    HEARD.with_borrow_mut(|heard| heard.layers[layer] += 1);
    Act::Pass
}

/// Notes all that it hears, and has later modules ignore a flow from its third packet with ports on.
#[derive(Default)]
struct First;

impl Module for First {
    type State = u32;
    const NAME: &'static str = "first";

    fn process_eth(&mut self, _: &mut PacketAt<'_>) -> Act {
        note(0)
    }
    fn process_ip(&mut self, _: &mut PacketAt<'_>, _: &mut u32) -> Act {
        note(1)
    }
    fn process_udp(&mut self, at: &mut PacketAt<'_>, packets: &mut u32) -> Act {
        note(2);
        assert!(at.decoded.ports().is_some() && !at.decoded.has(packet::Decoded::FRAGMENT));
        HEARD.with_borrow_mut(|heard| {
            heard.datagrams.push((at.id.flow, at.payload().to_vec()));
        });
        *packets += 1;
        if *packets == 3 { Act::Ignore } else { Act::Pass }
    }
    fn process_tcp(&mut self, at: &mut PacketAt<'_>, _: &mut u32) -> Act {
        assert_eq!(at.decoded.protocol, packet::IpProtocol::TCP);
        note(3)
    }
    fn process_stream(&mut self, at: &mut PacketAt<'_>, piece: Piece<'_>, _: &mut u32) -> Act {
        HEARD.with_borrow_mut(|heard| {
            let pieces = heard.streams.entry((at.id.flow, piece.is_reply)).or_default();
            pieces.push((piece.offset, piece.bytes.to_vec()));
        });
        note(4)
    }
}

/// Counts the packets of flows; drops UDP to port 9, dumps to port 10, sends to Linux to port 11. Drops pieces of streams with an X.
#[derive(Default)]
struct Second;

impl Module for Second {
    type State = u32;
    const NAME: &'static str = "second";

    fn process_ip(&mut self, at: &mut PacketAt<'_>, packets: &mut u32) -> Act {
        *packets += 1;
        HEARD.with_borrow_mut(|heard| heard.second.push((at.id.flow, *packets)));
        match at.decoded.ports() {
            Some((_, 9)) => Act::Drop(MODULE_DROP),
            Some((_, 10)) => Act::Dump,
            Some((_, 11)) => Act::ToHost,
            _ => Act::Pass,
        }
    }
    fn process_stream(&mut self, _: &mut PacketAt<'_>, piece: Piece<'_>, _: &mut u32) -> Act {
        if piece.bytes.contains(&b'X') { Act::Drop(MODULE_DROP) } else { Act::Pass }
    }
}

struct Bed {
    flow: Flow,
    modules: Modules,
    counters: Arc<Counters>,
    pool: Pool,
    arena: Arena,
}

impl Bed {
    fn new() -> Self {
        HEARD.set(Heard::default());
        let places = Places::default();
        let follower = places.follower_in("test", 0, (0, 1));
        let followers = Followers::new(vec![follower]);
        let options = Options { flows: 1024, half_open: 1024, ..Options::default() };
        let tracker = Tracker::new(options, followers).expect("memory");
        let kinds = [ModuleKind::of::<First>(), ModuleKind::of::<Second>()];
        let rust = kinds.iter().enumerate().map(|(number, kind)| Rust {
            entry: ModuleEntry { name: kind.name.to_owned(), ..ModuleEntry::default() },
            number,
            contexts: 0,
            module: (kind.make)(&[]).expect("no parameters"),
        });
        let counters = Arc::new(Counters::new(vec!["first".into(), "second".into()]));
        let gathered = places.of("test", 0);
        places.set_readers(true);
        let modules = Modules::new(Parts {
            name: "modules",
            group: Group::ALONE,
            gathered,
            rust: rust.collect(),
            kernels: None,
            by_port: vec![u32::MAX],
            contexts: Arc::from([]),
            counters: counters.clone(),
            needs_one_worker: None,
            shares: false,
        });
        Self {
            flow: Flow::new(Arc::new(Mutex::new(tracker)), Arc::default()),
            modules,
            counters,
            pool: Pool::new(Region::new(256, HugePages::Off).expect("memory").1, 128),
            arena: Arena::new(
                Layout::join(
                    &[ModuleColumns::COLUMNS, FlowColumns::COLUMNS, CallColumns::COLUMNS],
                    512,
                )
                .expect("columns"),
            ),
        }
    }

    /// A chunk of these frames; the verdicts.
    fn chunk(&mut self, frames: &[Vec<u8>]) -> Vec<Verdict> {
        let rows = self.arena.reserve(frames.len().max(1)).expect("room");
        let mut chunk = Chunk::new(rows, 0);
        for frame in frames {
            chunk.packets.push(Packet::copy_from(&mut self.pool, frame).expect("a cell"));
        }
        chunk.rows.set_len(frames.len());
        ModuleColumns::view(&mut chunk.rows).verdict.fill(Verdict::NEXT.0);
        ModuleColumns::view(&mut chunk.rows).context.fill(0);
        let (mut dropped, mut released) = (Vec::new(), Vec::new());
        let mut cx = Context::detached(&mut self.pool, &(), 5, &mut dropped, &mut released);
        self.flow.pre_shade(&mut chunk, &mut cx);
        self.modules.pre_shade(&mut chunk, &mut cx);
        chunk.rows.verdicts().iter().map(|verdict| Verdict(*verdict)).collect()
    }
}

fn heard<R>(look: impl FnOnce(&mut Heard) -> R) -> R {
    HEARD.with_borrow_mut(look)
}

fn udp(from: u16, to: u16) -> Vec<u8> {
    Frame::new().ipv4("192.0.2.1", "198.51.100.1").udp(from, to, b"data").padded(60)
}

#[test]
fn each_layer_sees_its_packets() {
    let mut bed = Bed::new();
    let mut arp = vec![0xff; 60];
    arp[12..14].copy_from_slice(&[8, 6]);
    let six = Frame::new().ipv6("2001:db8::1", "2001:db8::2");
    let four = Frame::new().ipv4("192.0.2.1", "198.51.100.1");
    let mut broken = udp(1, 2);
    broken[14 + 10] ^= 0x55; // its checksum
    let frames = [
        arp,
        udp(1, 2),
        six.clone().udp(1, 2, b"x").bytes(),
        six.tcp(3, 4, 100, b"hello").bytes(),
        four.clone().echo_request(1, 1, b"x").bytes(),
        four.clone().udp(7, 8, &[1; 16]).fragment(0, true).bytes(),
        four.tcp(5, 6, 1, b"").bytes(),
        broken,
    ];
    let verdicts = bed.chunk(&frames);
    assert!(verdicts.iter().all(|verdict| verdict.is_next()), "{verdicts:?}");
    // eth: all; ip: all but ARP and the broken one; the fragment is IP alone.
    assert_eq!(heard(|heard| heard.layers), [8, 6, 2, 2, 1]);
    assert_eq!(bed.counters.get(0, Column::Packets as usize), 8);
}

#[test]
fn verdicts_are_those_of_modules() {
    let mut bed = Bed::new();
    let verdicts = bed.chunk(&[udp(1, 9), udp(2, 10), udp(3, 11), udp(4, 12)]);
    let kinds: Vec<VerdictKind> = verdicts.iter().map(|verdict| verdict.kind()).collect();
    assert_eq!(kinds, [VerdictKind::Drop, VerdictKind::Dump, VerdictKind::Host, VerdictKind::Next]);
    assert_eq!(verdicts[0].reason().name(), "unknown", "the engine registers the block");
    assert_eq!(verdicts[0].reason().code(), MODULE_DROP.code());
    for (column, count) in [(Column::Dropped, 1), (Column::Dumped, 1), (Column::ToHost, 1)] {
        assert_eq!(bed.counters.get(1, column as usize), count, "{column:?}");
    }
}

/// The third packet of a flow has later modules ignore it: in this chunk and in later ones, and no other flow.
#[test]
fn an_ignored_flow_is_ignored() {
    for cut in 1..8 {
        let mut bed = Bed::new();
        let frames: Vec<Vec<u8>> = (0..12).map(|i| udp(1 + i % 2, 2)).collect();
        for frames in frames.chunks(cut) {
            bed.chunk(frames);
        }
        let seen = heard(|heard| std::mem::take(&mut heard.second));
        let counts: Vec<u32> = seen.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [1, 1, 2, 2], "chunks of {cut}");
        assert_eq!(bed.counters.get(0, Column::Packets as usize), 12);
        assert_eq!(bed.counters.get(0, Column::Ignored as usize), 2);
    }
}

/// Bytes that a module of streams has dropped do not pass when they are sent again, whatever is sent with them.
#[test]
fn dropped_bytes_stay_dropped() {
    let first = u32::MAX - 5;
    let steps: [(u32, &[u8], bool); 14] = [
        (0, b"aaaa", false),
        (4, b"bbXb", true),
        (4, b"bbXb", true),
        (2, b"aabbXb", true),
        (7, b"bcccc", true),
        (8, b"cccc", false),
        (0, b"aaaa", false),
        (0, b"", false),
        (14, b"ee", false),
        (12, b"dX", true),
        (14, b"ee", true),
        (13, b"X", true),
        (16, b"ff", false),
        (0, b"aaaabbXbcccc", true),
    ];
    let frame = |(at, bytes, _): &(u32, &[u8], bool)| {
        let from = Frame::new().ipv4("192.0.2.1", "198.51.100.1");
        from.tcp(9000, 80, first.wrapping_add(*at), bytes).bytes()
    };
    let frames: Vec<Vec<u8>> = steps.iter().map(frame).collect();
    let expected: Vec<bool> = steps.iter().map(|step| step.2).collect();
    for cut in 1..=frames.len() {
        let mut bed = Bed::new();
        let verdicts = frames.chunks(cut).flat_map(|frames| bed.chunk(frames));
        let dropped: Vec<bool> = verdicts.map(|verdict| !verdict.is_next()).collect();
        assert_eq!(dropped, expected, "chunks of {cut}");
        let count = expected.iter().filter(|drops| **drops).count() as u64;
        assert_eq!(bed.counters.get(1, Column::Dropped as usize), count);
    }
}

proptest! {
    /// Segments of a connection in any order near their own, some twice, in chunks of any size: what `process_stream` hears
    /// is what was sent, in order and once.
    #[test]
    fn streams_are_what_was_sent(
        lens in prop::collection::vec(1usize..40, 1..30),
        swaps in prop::collection::vec((0usize..30, 0usize..6), 0..30),
        twice in prop::collection::vec(0usize..30, 0..4),
        cuts in prop::collection::vec(1usize..9, 1..12),
    ) {
        let mut bed = Bed::new();
        let sent: Vec<u8> = (0..lens.iter().sum::<usize>()).map(|i| (i * 7 + i / 251) as u8).collect();
        let (mut at, mut segments) = (0, Vec::new());
        for len in &lens {
            segments.push((at, &sent[at..at + len]));
            at += len;
        }
        // The first one says where the stream begins.
        for (from, by) in swaps {
            let from = from % segments.len();
            let to = (from + by).min(segments.len() - 1);
            if from > 0 {
                segments.swap(from, to);
            }
        }
        for again in twice {
            let again = again % segments.len();
            segments.push(segments[again]);
        }
        let frame = |(at, bytes): &(usize, &[u8])| {
            Frame::new().ipv4("192.0.2.1", "198.51.100.1").tcp(9000, 80, 77 + *at as u32, bytes).bytes()
        };
        let frames: Vec<Vec<u8>> = segments.iter().map(frame).collect();
        let mut rest = &frames[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            bed.chunk(now);
            rest = later;
        }
        let streams = heard(|heard| std::mem::take(&mut heard.streams));
        prop_assert_eq!(streams.len(), 1);
        let pieces = streams.into_values().next().unwrap_or_default();
        let mut next = 0;
        for (offset, bytes) in &pieces {
            prop_assert_eq!(*offset, next);
            next += bytes.len() as u64;
        }
        prop_assert_eq!(pieces.into_iter().flat_map(|(_, bytes)| bytes).collect::<Vec<u8>>(), sent);
    }
}

proptest! {
    /// A datagram in fragments, in any order and in chunks of any size, between others of its flow: `process_udp` gets each once, and
    /// whole. Fragments go on as they came.
    #[test]
    fn datagrams_in_fragments_are_whole(
        payload in prop::collection::vec(any::<u8>(), 40..200),
        cuts in prop::collection::btree_set(1u16..6, 1..5),
        order in any::<u64>(),
        chunks in 1usize..9,
    ) {
        let four = || Frame::new().ipv4("192.0.2.1", "198.51.100.1");
        let alone = four().udp(7, 8, b"alone").bytes();
        let bytes = four().udp(7, 8, &payload).bytes()[34..].to_vec();
        let begins: Vec<usize> = [0].into_iter().chain(cuts.iter().map(|cut| 8 * usize::from(*cut))).collect();
        let mut fragments: Vec<Vec<u8>> = begins
            .iter()
            .enumerate()
            .map(|(at, begin)| {
                let next = begins.get(at + 1);
                let part = &bytes[*begin..next.copied().unwrap_or(bytes.len())];
                four().identification(9).raw(17, part).fragment((begin / 8) as u16, next.is_some()).bytes()
            })
            .collect();
        let (count, mut seed) = (fragments.len(), order);
        for at in (1..count).rev() {
            seed = chunk::hash::key64(seed, 1);
            fragments.swap(at, seed as usize % (at + 1));
        }
        fragments.insert(0, alone.clone());
        fragments.push(alone);
        let mut bed = Bed::new();
        for frames in fragments.chunks(chunks) {
            let verdicts = bed.chunk(frames);
            prop_assert!(verdicts.iter().all(|verdict| verdict.is_next()));
        }
        let (datagrams, layers) = heard(|heard| (std::mem::take(&mut heard.datagrams), heard.layers));
        let payloads: Vec<&[u8]> = datagrams.iter().map(|own| &own.1[..]).collect();
        prop_assert_eq!(payloads, [&b"alone"[..], &payload, b"alone"]);
        prop_assert!(datagrams.iter().all(|own| own.0 == datagrams[0].0 && own.0 != 0));
        prop_assert_eq!(layers, [count + 2, count + 2, 3, 0, 0]);
    }
}

/// A configuration whose modules are these: `r` in Rust, anything else the text of a source.
fn config_of(modules: &[&str]) -> control::config::Config {
    let folder = testkit::Scratch::new();
    let mut text = "mode = \"wire\"\n[port.a]\n[port.b]\n".to_owned();
    for (number, module) in modules.iter().enumerate() {
        let code = match *module {
            "r" => "kind = \"first\"".to_owned(),
            "plain" => "kind = \"plain\"".to_owned(),
            source => {
                folder.write(&format!("own{number}.k"), source);
                format!("source = \"own{number}.k\"")
            }
        };
        text += &format!("[[module]]\nname = \"own{number}\"\n{code}\n");
    }
    let file = folder.write("c.toml", &text);
    let mut known = crate::known_stages();
    known.modules = [("first", true), ("plain", false)]
        .map(|(name, uses_flows)| control::config::RustModule { name, uses_flows })
        .to_vec();
    control::config::load(&file, &known).expect("a configuration").0
}

const PASS: &str = "MODULE_IP(packet) { return PASS; }";

/// Modules in any order: a Rust module that waits for a device begins a stage.
#[test]
fn modules_of_any_order_are_stages() {
    for (modules, expected) in [
        (&["r", "r", PASS, PASS][..], "flow modules firewall wire"),
        (&[PASS, "r"], "flow modules modules.2 firewall wire"),
        (&["r", PASS, "r", "r", PASS, "r"], "flow modules modules.2 modules.3 firewall wire"),
    ] {
        let config = config_of(modules);
        assert_eq!(config.pipeline.stages.join(" "), expected, "{modules:?}");
        let kinds = config.pipeline.kinds.iter().filter(|kind| *kind == "modules").count();
        assert_eq!(kinds, control::config::module_groups(&config.modules).len());
        assert_eq!(config.stage_lines[0].len(), config.pipeline.stages.len());
    }
}

/// Modules that keep nothing of flows bring no flow table.
#[test]
fn modules_without_flows_bring_no_flow_table() {
    let has_flow = |modules: &[&str]| config_of(modules).pipeline.has("flow");
    let eth = "MODULE_ETH(packet) { return packet->len > 9u ? PASS : DROP; }";
    let udp = "MODULE_UDP(packet) { return table_add(packet, 3u, 1u) > 9u ? DROP : PASS; }";
    assert!(!has_flow(&[PASS, eth, udp, "plain"]));
    for source in [
        "STATE { uint n; };\nMODULE_IP(packet) { FLOW(packet)->n += 1u; return PASS; }",
        "MODULE_STREAM(packet, piece) { return PASS; }",
        "MODULE_UDP(packet) { return IGNORE; }",
        "MODULE_UDP(packet) { return packet->is_reply ? PASS : DROP; }",
        "MODULE_IP(packet) { return packet->has_flow ? PASS : DROP; }",
        "r",
    ] {
        assert!(has_flow(&[PASS, source]), "{source}");
    }
}
