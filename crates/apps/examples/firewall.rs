//! What the firewall's stage costs a packet, beside the classification alone.
//!
//! `cargo run --release -p apps --example firewall -- RULES [linear|tuple|bloom]`: a ClassBench file; packets are drawn
//! from its rules as `gen trace` does, in chunks of 256, on one core.

use std::sync::Arc;
use std::time::Instant;

use apps::firewall::{Action, Ending, Firewall, FirewallOptions, FirewallTables, Hits, Record};
use chunk::{Arena, CHUNK_PACKETS_MAX, Chunk, HugePages, Layout, Packet, Pool, Region};
use classify::filter::{Tail, header_v4, schema_v4, schema_v6, shape};
use classify::generate::trace::{Copies, Options, Point, trace};
use classify::{Classify, Condition, Match, RuleRef, RuleSet};
use engine::{Context, Stage};
use packet::IpProtocol;
use packet::ipv4::Ipv4Header;

struct Tables(FirewallTables);

impl AsRef<FirewallTables> for Tables {
    fn as_ref(&self) -> &FirewallTables {
        &self.0
    }
}

/// Chunks of packets that are gone through in turn.
const CHUNKS: usize = 64;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("a rule file");
    let name = arguments.next().unwrap_or_else(|| "tuple".to_owned());
    let file = classify::classbench::read_rules(path.as_ref()).expect("rules");
    let set = filter_set(&file.set);
    let algorithm = classify::algorithms::find(&name).expect("a structure");
    let v4 = (algorithm.build)(&set).expect("a structure of these rules").tables().expect("memory");
    let none = (algorithm.build)(&RuleSet::new(schema_v6())).expect("a structure of no rules");
    let action = Action::of(Ending::Accept);
    let record = || Some(Record { name: "r".into(), action });
    let hits = Arc::new(Hits::new(1));
    (0..=set.len() as u32).for_each(|id| hits.make(id));
    let records = (0..=set.len()).map(|_| record()).collect();
    let options = FirewallOptions { icmp_rate: 0, icmp_burst: 1 };
    let both = (v4.clone(), none.tables().expect("memory"));
    let tables = Tables(FirewallTables::new(both, records, options, hits));

    let headers = CHUNKS * CHUNK_PACKETS_MAX;
    let (copies, point) = (Copies::Uniform, Point::Corner);
    let options = Options { headers, copies, point, first: None, seed: 1 };
    let headers = trace(&file.set, &options).headers;
    let (_, depot) =
        Region::new(2 * (CHUNKS * CHUNK_PACKETS_MAX) as u32, HugePages::Advise).expect("memory");
    let mut pool = Pool::new(depot, CHUNK_PACKETS_MAX);
    let mut stage = Firewall::new().decoding();
    let columns = Stage::<Tables>::columns(&stage);
    let layout = Layout::join(columns, CHUNKS * CHUNK_PACKETS_MAX).expect("columns");
    let arena = Arena::new(layout);
    let (mut chunks, mut keys) = (Vec::new(), Vec::new());
    for headers in headers.chunks(4 * CHUNK_PACKETS_MAX) {
        let rows = arena.reserve(CHUNK_PACKETS_MAX).expect("rows");
        let mut chunk = Chunk::new(rows, 0);
        for header in headers.chunks_exact(4) {
            chunk.packets.push(Packet::copy_from(&mut pool, &frame(header)).expect("a cell"));
            keys.extend(key(header));
        }
        chunk.rows.set_len(chunk.packets.len());
        chunks.push(chunk);
    }
    let packets = chunks.iter().map(Chunk::len).sum::<usize>();
    let (mut dropped, mut released) = (Vec::new(), Vec::new());
    let whole = best_ns(packets, || {
        for chunk in &mut chunks {
            let mut cx = Context::detached(&mut pool, &tables, 1, &mut dropped, &mut released);
            Stage::<Tables>::pre_shade(&mut stage, chunk, &mut cx);
            Stage::<Tables>::shader(&stage).expect("a shade").shade(&mut chunk.rows, &tables);
            Stage::<Tables>::post_shade(&mut stage, chunk, &mut cx);
        }
    });
    let mut found = [Match::NONE; CHUNK_PACKETS_MAX];
    let alone = best_ns(packets, || {
        for keys in keys.chunks(4 * CHUNK_PACKETS_MAX) {
            v4.classify(keys, &mut found[..keys.len() / 4]);
        }
    });
    println!(
        "{} rules, {name}: stage {whole:.1} ns a packet, of it {alone:.1} ns to classify",
        set.len()
    );
}

/// The shortest of some rounds, nanoseconds a packet.
fn best_ns(packets: usize, mut round: impl FnMut()) -> f64 {
    let rounds = (0..30).map(|_| {
        let begin = Instant::now();
        round();
        begin.elapsed().as_nanos() as f64 / packets as f64
    });
    rounds.fold(f64::INFINITY, f64::min)
}

/// The rules over the headers of a filter. Ids begin at 1.
fn filter_set(plain: &RuleSet) -> RuleSet {
    let mut set = RuleSet::new(schema_v4());
    let all = Condition::Range { low: 0, high: 0xffff };
    for (rule, id) in plain.iter().zip(1..) {
        let of = |field| plain.schema().condition(rule.words, field);
        let asks = [of(2), of(3)].into_iter().any(|ports| ports != all);
        let ports = if asks { shape::PORTS } else { 0 }.into();
        let mask = |value, mask| Condition::Mask { value, mask };
        let (any, shape) = (mask(0, 0), mask(ports, ports));
        let conditions = [of(0), of(1), of(2), of(3), of(4), any, shape, any, any];
        let words = set.schema().conditions(&conditions).expect("conditions");
        set.push(RuleRef { words: &words, priority: id, id }).expect("a rule");
    }
    set
}

fn is_tcp_or_udp(proto: u8) -> bool {
    matches!(proto, 6 | 17)
}

fn key(header: &[u32]) -> [u32; 4] {
    let proto = (header[3] >> 24) as u8;
    let ports = if is_tcp_or_udp(proto) { header[2] } else { 0 };
    let (sport, dport) = ((ports >> 16) as u16, ports as u16);
    let shape = if is_tcp_or_udp(proto) { shape::PORTS } else { 0 };
    header_v4(header[0], header[1], Tail { sport, dport, proto, shape, ..Tail::default() })
}

fn frame(header: &[u32]) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    frame[34..38].copy_from_slice(&header[2].to_be_bytes());
    let protocol = IpProtocol((header[3] >> 24) as u8);
    let ip = Ipv4Header::new(header[0].into(), header[1].into(), protocol);
    ip.emit(26, &mut frame[14..]).expect("room");
    frame
}
