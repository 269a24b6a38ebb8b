//! A firewall behind the connection tracker: packets of established flows, by the number of rules, with and without rules that
//! are kept; and new flows, which divide chunks.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use apps::firewall::{
    Action, Ending, Firewall, FirewallOptions, FirewallTables, HeaderColumns, Headers, Hits, Record,
};
use apps::flow::{Flow, FlowColumns, follow::Followers};
use chunk::{
    Arena, CHUNK_PACKETS_MAX, Chunk, Columns, HugePages, Layout, Packet, Pool, Region, Verdict,
};
use classify::filter::{schema_v4, schema_v6};
use classify::tuple::TupleBuilder;
use classify::{Classifier, Condition, RuleRef, RuleSet};
use engine::{Context, Stage};
use lookup::versions::versions;
use packet::tcp::flags::{ACK, SYN};
use stream::Tracker;
use stream::tracker::Options;

use super::frames::{Ends, Segment, Small, ends, write};
use crate::forms::{ratio, thread_seconds};
use crate::forward::{self, Pass};
use crate::report::median;
use crate::tables::Random;
use crate::{Args, Report, Row};

/// Rules of the sets.
const RULES: [u32; 3] = [0, 100, 10_000];

/// Flows whose packets come in turn, at random.
const FLOWS: usize = 4096;

/// Chunks of a pass.
const CHUNKS: usize = 64;

/// Distinct new flows: more than the table holds, so that they are new again in the next pass.
const NEW: usize = 1 << 16;

type BoxedStage = Box<dyn Stage<FirewallTables>>;

/// Rules for what goes from some networks to others, half of them with a port: 32 combinations of lengths. What they do not
/// name is accepted.
fn tables(count: u32, hits: &Arc<Hits>) -> Result<FirewallTables, String> {
    let (v4, v6) = (schema_v4(), schema_v6());
    let mut random = Random(9);
    let mut set = RuleSet::new(v4.clone());
    let any = Condition::Mask { value: 0, mask: 0 };
    for id in 1..=count {
        let prefix = |address: u32, len: u8| Condition::Prefix { value: address.into(), len };
        let src = 0x0a00_0000 | (random.next() as u32 & 0xff_ffff);
        let dst = 0x1000_0000 | (random.next() as u32 & 0xfff_ffff);
        let port = u128::from(random.next() as u16);
        let whole = Condition::Range { low: 0, high: 0xffff };
        let conditions = [
            prefix(src, [16, 20, 24, 32][random.below(4)]),
            prefix(dst, [0, 8, 16, 24][random.below(4)]),
            whole,
            [whole, Condition::Range { low: port, high: port }][random.below(2)],
            Condition::Mask { value: 6, mask: 0xff },
            any,
            any,
            any,
            any,
        ];
        let words = v4.conditions(&conditions).map_err(|error| error.to_string())?;
        let rule = RuleRef { words: &words, priority: id, id };
        set.push(rule).map_err(|error| error.to_string())?;
    }
    let built = |set: &RuleSet| -> Result<_, String> {
        let builder = TupleBuilder::build(set).map_err(|error| error.to_string())?;
        builder.tables().map_err(|error| error.to_string())
    };
    let both = (built(&set)?, built(&RuleSet::new(v6))?);
    let record = |ending| Some(Record { name: "rule".into(), action: Action::of(ending) });
    let mut records = vec![record(Ending::Accept)];
    records.extend((0..count).map(|id| record([Ending::Drop, Ending::Accept][id as usize & 1])));
    (0..=count).for_each(|id| hits.make(id));
    Ok(FirewallTables::new(both, records, FirewallOptions::default(), hits.clone()))
}

/// A firewall, and chunks of packets of established flows behind the stages before it.
struct Established {
    stage: Firewall,
    tables: FirewallTables,
    hits: Arc<Hits>,
    chunks: Vec<Chunk>,
    pool: Pool,
    rates: Vec<f64>,
}

impl Established {
    fn new(rules: u32, keeps: bool, frames: &Small) -> Result<Self, String> {
        let hits = Arc::new(Hits::new(1));
        let tables = tables(rules, &hits)?;
        let stage = Firewall::new().behind_flow();
        let stage = if keeps { stage } else { stage.without_flow_cache() };
        let cells = (CHUNKS * CHUNK_PACKETS_MAX + 64) as u32;
        let (_, depot) = Region::new(cells, HugePages::Off).map_err(|e| e.to_string())?;
        let mut pool = Pool::new(depot, 64);
        let columns = Stage::<FirewallTables>::columns(&stage);
        let mut random = Random(5);
        let mut chunks = Vec::new();
        for _ in 0..CHUNKS {
            let layout = Layout::join(columns, CHUNK_PACKETS_MAX).map_err(|e| e.to_string())?;
            let rows = Arena::new(layout).reserve(CHUNK_PACKETS_MAX).ok_or("no rows")?;
            let mut chunk = Chunk::new(rows, 0);
            let mut picked = Vec::new();
            for _ in 0..CHUNK_PACKETS_MAX {
                let at = random.below(frames.len());
                let packet = Packet::copy_from(&mut pool, frames.get(at)).ok_or("no cells")?;
                chunk.packets.push(packet);
                picked.push(at);
            }
            chunk.rows.set_len(CHUNK_PACKETS_MAX);
            chunk.rows.verdicts().fill(Verdict::NEXT.0);
            let flow = FlowColumns::view(&mut chunk.rows);
            for (row, at) in picked.iter().enumerate() {
                flow.flow_slot[row] = (at / 2) as u32;
                flow.flow_state[row] = 0b110 | (*at as u8 & 1) << 3;
            }
            let Chunk { packets, rows, .. } = &mut chunk;
            let mut headers = Headers::from(HeaderColumns::view(rows));
            headers.begin();
            for (row, packet) in packets.iter().enumerate() {
                let d = packet::decode(packet.data(), packet.frame_len());
                headers.put(row, packet.data(), &d, packet.port);
            }
            chunks.push(chunk);
        }
        Ok(Self { stage, tables, hits, chunks, pool, rates: Vec::new() })
    }

    /// All steps of the stage over all chunks.
    fn round(&mut self) {
        let shade = Stage::<FirewallTables>::shader(&self.stage);
        let mut settled = (Vec::new(), Vec::new());
        let begin = thread_seconds();
        for chunk in &mut self.chunks {
            chunk.rows.verdicts().fill(Verdict::NEXT.0);
            let (dropped, released) = (&mut settled.0, &mut settled.1);
            let mut cx = Context::detached(&mut self.pool, &self.tables, 7, dropped, released);
            Stage::<FirewallTables>::pre_shade(&mut self.stage, chunk, &mut cx);
            if let Some(shade) = &shade {
                shade.shade(&mut chunk.rows, &self.tables);
            }
            Stage::<FirewallTables>::post_shade(&mut self.stage, chunk, &mut cx);
        }
        let packets = (self.chunks.len() * CHUNK_PACKETS_MAX) as f64;
        self.rates.push(packets / (thread_seconds() - begin) / 1e6);
    }

    /// Verdicts of the last pass, and hits of all.
    fn answers(&mut self, rules: u32) -> (Vec<u32>, Vec<u64>) {
        let verdicts =
            self.chunks.iter_mut().flat_map(|chunk| chunk.rows.verdicts().to_vec()).collect();
        (verdicts, (0..=rules).map(|id| self.hits.get(id).packets).collect())
    }
}

/// Packets of flows that live.
fn established(args: &Args, report: &mut Report) -> Result<(), String> {
    let mut frames = Small::new(2 * FLOWS);
    for at in 0..frames.len() {
        let segment = Segment { from: at % 2, flags: ACK, sequence: 1, acknowledgment: 1, len: 6 };
        write(frames.get_mut(at), &ends(at / 2), &segment);
    }
    for rules in RULES {
        let mut cases =
            [true, false].into_iter().map(|keeps| Established::new(rules, keeps, &frames));
        let (mut with, mut without) = match (cases.next(), cases.next()) {
            (Some(with), Some(without)) => (with?, without?),
            _ => return Err("two cases".into()),
        };
        for _ in 0..=args.rounds {
            with.round();
            without.round();
        }
        if with.answers(rules) != without.answers(rules) {
            report.wrong.push(format!("{rules} rules: other verdicts or hits with kept rules"));
        }
        // The first round fills caches.
        let [with, without] = [with, without].map(|own| own.rates[1..].to_vec());
        let name = |what: &str| format!("firewall, {rules} rules, established flows, {what}");
        let share = ratio(name("kept against looked up"), &with, &without);
        report.rows.push(Row::new(name("each packet looked up"), "Mpps", without));
        report.rows.push(Row::new(name("rules kept"), "Mpps", with));
        report.rows.push(share);
    }
    Ok(())
}

/// A tracker and the firewall behind it, with chunks of packets of established flows; both of them need the headers.
struct Chain {
    flow: Flow,
    firewall: Firewall,
    /// One chunk, as a worker has few of them: its columns stay in the cache.
    chunk: Chunk,
    packets: Vec<Vec<Packet>>,
    pool: Pool,
    times: Vec<f64>,
}

impl Chain {
    fn new(shares: bool, frames: &Small) -> Result<Self, String> {
        let options =
            Options { flows: 2 * FLOWS, half_open: 2 * FLOWS, seed: 3, ..Options::default() };
        let tracker =
            Tracker::new(options, Followers::new(Vec::new())).map_err(|e| e.to_string())?;
        let flow = Flow::new(Arc::new(Mutex::new(tracker)), Arc::default()).sharing(shares);
        let firewall = Firewall::new().decoding().behind_flow().sharing(shares);
        let columns =
            [Stage::<FirewallTables>::columns(&flow), Stage::<FirewallTables>::columns(&firewall)];
        let (mut random, mut lists) = (Random(5), Vec::new());
        let cells = (CHUNKS * CHUNK_PACKETS_MAX + 64) as u32;
        let (_, depot) = Region::new(cells, HugePages::Off).map_err(|e| e.to_string())?;
        let mut pool = Pool::new(depot, 64);
        let layout = Layout::join(&columns.concat(), CHUNK_PACKETS_MAX);
        let layout = layout.map_err(|e| e.to_string())?;
        let rows = Arena::new(layout).reserve(CHUNK_PACKETS_MAX).ok_or("no rows")?;
        let mut chunk = Chunk::new(rows, 0);
        chunk.rows.set_len(CHUNK_PACKETS_MAX);
        for _ in 0..CHUNKS {
            let mut packets = Vec::new();
            for _ in 0..CHUNK_PACKETS_MAX {
                let frame = frames.get(random.below(frames.len()));
                packets.push(Packet::copy_from(&mut pool, frame).ok_or("no cells")?);
            }
            lists.push(packets);
        }
        Ok(Self { flow, firewall, chunk, packets: lists, pool, times: Vec::new() })
    }

    /// What both do before the search for rules; the place of each packet's flow, added up.
    fn round(&mut self, tables: &FirewallTables) -> u64 {
        let (mut dropped, mut released, mut sum) = (Vec::new(), Vec::new(), 0);
        let begin = thread_seconds();
        let chunk = &mut self.chunk;
        for packets in &mut self.packets {
            std::mem::swap(&mut chunk.packets, packets);
            let view = HeaderColumns::view(&mut chunk.rows);
            view.verdict.fill(Verdict::NEXT.0);
            view.record_is_known.fill(0);
            let mut cx = Context::detached(&mut self.pool, tables, 7, &mut dropped, &mut released);
            Stage::<FirewallTables>::pre_shade(&mut self.flow, chunk, &mut cx);
            Stage::<FirewallTables>::pre_shade(&mut self.firewall, chunk, &mut cx);
            let words = HeaderColumns::view(&mut chunk.rows).filter_head0.iter();
            sum = words.fold(sum, |sum: u64, [a, b]| sum.wrapping_add(a ^ b));
            std::mem::swap(&mut chunk.packets, packets);
        }
        let packets = (self.packets.len() * CHUNK_PACKETS_MAX) as f64;
        self.times.push((thread_seconds() - begin) * 1e9 / packets);
        sum
    }
}

/// A tracker and a firewall which both decode, and which share one decode.
fn headers(args: &Args, report: &mut Report) -> Result<(), String> {
    let mut frames = Small::new(2 * FLOWS);
    for at in 0..frames.len() {
        let segment = Segment { from: at % 2, flags: ACK, sequence: 1, acknowledgment: 1, len: 6 };
        write(frames.get_mut(at), &ends(at / 2), &segment);
    }
    let tables = tables(0, &Arc::new(Hits::new(1)))?;
    let (mut each, mut one) = (Chain::new(false, &frames)?, Chain::new(true, &frames)?);
    for _ in 0..=args.rounds {
        if each.round(&tables) != one.round(&tables) {
            report.wrong.push("headers of a firewall behind a tracker differ".into());
        }
    }
    // The first round fills tables and caches.
    let [each, one] = [each, one].map(|own| own.times[1..].to_vec());
    let name = |what: &str| format!("firewall behind a tracker, before the rules, {what}");
    let saved = each.iter().zip(&one).map(|(each, one)| each - one).collect();
    report.rows.push(Row::new(name("each decodes"), "ns/packet", each));
    report.rows.push(Row::new(name("one decode"), "ns/packet", one));
    report.rows.push(Row::new(name("one decode saves"), "ns/packet", saved));
    Ok(())
}

/// New flows of a run.
#[derive(Clone, Copy)]
struct Fresh {
    /// Packets of each flow in a row.
    copies: usize,
    /// Whether all are between two hosts.
    of_two_hosts: bool,
}

/// New flows a second by a worker: `stages` behind each other.
fn new_flows(with_firewall: bool, fresh: Fresh, window: Duration) -> Result<f64, String> {
    let Fresh { copies, of_two_hosts } = fresh;
    let mut frames = Small::new(1);
    let mut all = Vec::with_capacity(NEW * copies);
    for number in 0..NEW {
        let segment = Segment { from: 0, flags: SYN, sequence: 9, acknowledgment: 0, len: 0 };
        let of_flow = ends(if of_two_hosts { 0 } else { number });
        let Ends([(client, _), (server, port)]) = of_flow;
        let between = Ends([(client, number as u16), (server, port)]);
        write(frames.get_mut(0), if of_two_hosts { &between } else { &of_flow }, &segment);
        (0..copies).for_each(|_| all.push(frames.get(0).to_vec()));
    }
    let options = Options { flows: NEW / 4, half_open: NEW / 8, seed: 3, ..Options::default() };
    let tracker = Tracker::new(options, Followers::new(Vec::new())).map_err(|e| e.to_string())?;
    let tracker = Arc::new(Mutex::new(tracker));
    let flow = Flow::new(tracker.clone(), Arc::default()).confirming(with_firewall);
    let mut stages: Vec<BoxedStage> = vec![Box::new(flow)];
    if with_firewall {
        stages.push(Box::new(Firewall::new().decoding().behind_flow()));
    }
    stages.push(Box::new(Pass));
    let (_writer, reader) = versions(tables(100, &Arc::new(Hits::new(1)))?);
    let engine = forward::start(&all, stages, &reader, forward::depot()?, None)?;
    let began = || {
        let tracker = tracker.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        tracker.counts().flows
    };
    std::thread::sleep(window / 4);
    let (before, begin) = (began(), Instant::now());
    std::thread::sleep(window);
    let rate = (began() - before) as f64 / begin.elapsed().as_secs_f64() / 1e6;
    engine.stop(Duration::from_secs(1))?;
    Ok(rate)
}

/// Both parts.
pub(super) fn run(args: &Args, window: Duration, report: &mut Report) -> Result<(), String> {
    headers(args, report)?;
    established(args, report)?;
    for (copies, of_two_hosts, what) in [
        (1, false, "one packet each"),
        (2, false, "two packets in a row"),
        (2, true, "two packets in a row, all between two hosts"),
    ] {
        let fresh = Fresh { copies, of_two_hosts };
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            without.push(new_flows(false, fresh, window)?);
            with.push(new_flows(true, fresh, window)?);
        }
        if median(&with) <= 0.0 || median(&without) <= 0.0 {
            report.wrong.push(format!("new flows, {what}: none began"));
        }
        let name = |who: &str| format!("new flows, {what}, {who}");
        let share = ratio(name("for a firewall against tracked"), &with, &without);
        report.rows.push(Row::new(name("tracked"), "M/s", without));
        report.rows.push(Row::new(
            name("tracked for a firewall, which divides chunks"),
            "M/s",
            with,
        ));
        report.rows.push(share);
    }
    Ok(())
}
