//! The stage against a plain reference: one packet after the other, every rule in order. Step by step, in each place in
//! which it may be; see `on_device` for the kernels, and `pipelines` for the stages around it.

mod established;
mod on_device;
mod pipelines;

use std::sync::Arc;

use apps::firewall::kernels::{FilterColumns, NOT_JUDGED};
use apps::firewall::reasons;
use apps::firewall::{
    Action, Ending, Firewall, FirewallOptions, FirewallPatch, FirewallTables, Header,
    HeaderColumns, Headers, Hits, Instance, Record,
};
use apps::router::RouterColumns;
use chunk::{
    Arena, Chunk, Columns, DropReason, HugePages, Layout, Packet, Pool, Region, Verdict,
    VerdictKind,
};
use classify::filter::{schema_v4, schema_v6};
use classify::linear::LinearBuilder;
use classify::tuple::TupleBuilder;
use classify::{Classifier, Condition, RuleRef, RuleSet, Schema};
use engine::{Context, Stage};
use lookup::versions::Patchable;
use proptest::prelude::*;

/// Tables of which the firewall is a part, as the program has them.
struct Tables(FirewallTables);

impl AsRef<FirewallTables> for Tables {
    fn as_ref(&self) -> &FirewallTables {
        &self.0
    }
}

/// A rule of one family.
#[derive(Debug, Clone)]
struct Own {
    is_v4: bool,
    words: Box<[u32]>,
    action: Action,
}

fn record(action: Action) -> Option<Record> {
    Some(Record { name: "rule".into(), action })
}

/// Rules get the ids 1, 2, … in order.
fn build<C: Classifier + 'static>(
    schema: Arc<Schema>,
    rules: &[Own],
    is_v4: bool,
) -> Box<dyn Classifier> {
    let mut set = RuleSet::new(schema);
    for (at, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.is_v4 == is_v4) {
        let (priority, id) = (at as u32, at as u32 + 1);
        set.push(RuleRef { words: &rule.words, priority, id }).unwrap();
    }
    Box::new(C::build(&set).unwrap())
}

fn tables<C: Classifier + 'static>(
    rules: &[Own],
    default: Action,
    hits: &Arc<Hits>,
) -> FirewallTables {
    tables_of(&both::<C>(rules), rules, default, hits)
}

/// The rules of IPv4, and those of IPv6.
fn both<C: Classifier + 'static>(rules: &[Own]) -> [Box<dyn Classifier>; 2] {
    [build::<C>(schema_v4(), rules, true), build::<C>(schema_v6(), rules, false)]
}

/// A copy of the images of these builders, which takes their patches. It cannot take those of another build of the
/// same rules: the hash of each build has its own secret seed.
fn tables_of(
    [v4, v6]: &[Box<dyn Classifier>; 2],
    rules: &[Own],
    default: Action,
    hits: &Arc<Hits>,
) -> FirewallTables {
    let records = std::iter::once(record(default));
    let records = records.chain(rules.iter().map(|rule| record(rule.action))).collect();
    let options = FirewallOptions { icmp_rate: 1_000_000, icmp_burst: 1_000_000 };
    let both = (v4.tables().unwrap(), v6.tables().unwrap());
    FirewallTables::new(both, records, options, hits.clone())
}

/// What the reference says of one packet: the id of its rule, or the reason for which it is never judged.
fn reference(packet: &Packet, interface: u16, rules: &[Own]) -> Option<Result<u32, DropReason>> {
    let (v4, v6) = (schema_v4(), schema_v6());
    let d = packet::decode(packet.data(), packet.frame_len());
    let found = |is_v4: bool, schema: &Schema, header: &[u32]| {
        let mut all = rules.iter().zip(1..).filter(|(rule, _)| rule.is_v4 == is_v4);
        let found = all.find(|(rule, _)| schema.matches(&rule.words, header));
        Some(Ok(found.map_or(0, |(_, id)| id)))
    };
    match Header::of(packet.data(), &d, interface) {
        Header::Nothing => None,
        Header::Short => Some(Err(reasons::FIREWALL_SHORT)),
        Header::Malformed => Some(Err(reasons::FIREWALL_MALFORMED)),
        Header::V4(header) => found(true, &v4, &header),
        Header::V6(header) => found(false, &v6, &header),
    }
}

const ROWS: usize = chunk::CHUNK_PACKETS_MAX;

/// An empty chunk.
fn chunk_of(layout: Layout) -> Chunk {
    Chunk::new(Arena::new(layout).reserve(ROWS).unwrap(), 0)
}

/// Verdicts behind the shade and behind the stage, what was emitted, and the packets after the stage.
struct Ran {
    shaded: Vec<Verdict>,
    verdicts: Vec<Verdict>,
    emitted: Vec<(u16, Verdict, Vec<u8>)>,
    frames: Vec<Vec<u8>>,
}

/// What is around the stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nothing before it: it decodes itself.
    Alone,
    /// A stage that fills the header columns.
    Behind,
    /// The same, and a `rewrite` behind it.
    Router,
}

/// The stage in a place; with a column of its own, or with the one that all firewalls share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Form {
    place: Place,
    is_named: bool,
}

impl Form {
    fn stage(self) -> Firewall {
        let stage = match self.is_named {
            true => Firewall::of(Instance::of_pipeline(&["one", "other"])[1]),
            false => Firewall::new(),
        };
        match self.place {
            Place::Alone => stage.decoding(),
            Place::Behind => stage,
            Place::Router => stage.in_router(),
        }
    }

    const ALL: [Form; 6] = [
        Form { place: Place::Alone, is_named: false },
        Form { place: Place::Behind, is_named: false },
        Form { place: Place::Router, is_named: false },
        Form { place: Place::Alone, is_named: true },
        Form { place: Place::Behind, is_named: true },
        Form { place: Place::Router, is_named: true },
    ];
}

/// What a stage before it does: fills the columns of the packets that are on their way.
fn fill(chunk: &mut Chunk) {
    let Chunk { packets, rows, .. } = chunk;
    let mut headers = Headers::from(HeaderColumns::view(rows));
    headers.begin();
    for (row, packet) in packets.iter().enumerate() {
        let d = packet::decode(packet.data(), packet.frame_len());
        headers.put(row, packet.data(), &d, packet.port);
    }
}

/// Runs the first two steps over columns in which anything may be.
fn first_steps(
    form: Form,
    stage: &mut Firewall,
    chunk: &mut Chunk,
    cx: &mut Context<'_, Tables>,
    tables: &Tables,
) {
    if form.place != Place::Alone {
        fill(chunk);
    }
    Stage::<Tables>::pre_shade(stage, chunk, cx);
    Stage::<Tables>::shader(stage).expect("a shade").shade(&mut chunk.rows, tables);
}

fn randomise(chunk: &mut Chunk) {
    let mut seed = 5_u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed
    };
    HeaderColumns::randomise(&mut chunk.rows, &mut next);
}

/// Runs a stage over frames that four ports received in turn.
fn run(form: Form, frames: &[Vec<u8>], tables: &FirewallTables) -> Ran {
    let stage = &mut form.stage();
    let (_, depot) = Region::new(4096, HugePages::Off).unwrap();
    let mut pool = Pool::new(depot, 64);
    let columns = Stage::<Tables>::columns(stage);
    let mut chunk = chunk_of(Layout::join(columns, ROWS).unwrap());
    for (at, frame) in frames.iter().enumerate() {
        let mut packet = Packet::copy_from(&mut pool, frame).unwrap();
        packet.port = (at % 4) as u16;
        packet.time_ns = 1000 + at as u64;
        chunk.packets.push(packet);
    }
    chunk.rows.set_len(frames.len());
    randomise(&mut chunk);
    chunk.rows.verdicts().fill(Verdict::NEXT.0);
    if form.place == Place::Router {
        let view = RouterColumns::view(&mut chunk.rows);
        for (at, packet) in chunk.packets.iter().enumerate() {
            let d = packet::decode(packet.data(), packet.frame_len());
            view.flags[at] = match d.kind {
                packet::Kind::Ipv4 => 1,
                packet::Kind::Ipv6 => 2,
                _ => 4,
            };
        }
    }
    let (mut dropped, mut released) = (Vec::new(), Vec::new());
    let all = Tables(tables.clone());
    let mut cx = Context::detached(&mut pool, &all, 7_000, &mut dropped, &mut released);
    first_steps(form, stage, &mut chunk, &mut cx, &all);
    // What the shade says is all that later stages of its segment see of it.
    let shaded = chunk.rows.verdicts().iter().map(|verdict| Verdict(*verdict)).collect();
    Stage::<Tables>::post_shade(stage, &mut chunk, &mut cx);
    let verdicts = chunk.rows.verdicts().iter().map(|verdict| Verdict(*verdict)).collect();
    let emitted = chunk.emitted.drain(..);
    let emitted: Vec<_> = emitted.map(|e| (e.cause, e.verdict, e.packet.data().to_vec())).collect();
    let frames = chunk.packets.iter().map(|packet| packet.data().to_vec()).collect();
    Ran { shaded, verdicts, emitted, frames }
}

fn expected(action: Action) -> Verdict {
    match action.ending {
        Ending::Accept => Verdict::NEXT,
        Ending::Drop => Verdict::drop(reasons::FIREWALL_DROP),
        Ending::Send(port) => Verdict::forward(port),
        Ending::Dump => Verdict::DUMP,
        // A router's is answered by `rewrite`.
        Ending::Reject => Verdict::drop(reasons::FIREWALL_REJECT),
    }
}

fn action() -> impl Strategy<Value = Action> {
    let ending = prop_oneof![
        3 => Just(Ending::Accept),
        3 => Just(Ending::Drop),
        1 => Just(Ending::Reject),
        1 => (0u16..4).prop_map(Ending::Send),
        1 => Just(Ending::Dump),
    ];
    let mirror = prop::option::weighted(0.2, 0u16..4);
    let dscp = prop::option::weighted(0.2, 0u8..64);
    (ending, mirror, dscp).prop_map(|(ending, mirror, dscp)| Action {
        ending,
        mirror,
        dscp,
        contexts: 0,
    })
}

fn rule() -> impl Strategy<Value = Own> {
    let len = prop::sample::select(vec![0u8, 0, 8, 24, 30, 32]);
    let ports = prop_oneof![
        Just((0u16, u16::MAX)),
        (0u16..12).prop_map(|port| (port, port)),
        (0u16..6, 6u16..12)
    ];
    let proto = prop::option::of(prop::sample::select(vec![1u8, 6, 17, 58]));
    let shape = prop::sample::select(vec![(0u8, 0u8), (0, 0), (1, 1), (4, 4), (0, 4), (2, 2)]);
    let rest =
        (proto, shape, prop::option::weighted(0.2, 0u16..4), prop::option::weighted(0.2, 0u8..3));
    ((any::<bool>(), len.clone(), len, 0u8..4, 0u8..4), (ports.clone(), ports), rest, action())
        .prop_map(
            |(
                (is_v4, src_len, dst_len, src, dst),
                (sport, dport),
                (proto, shape, interface, flags),
                action,
            )| {
                let address =
                    |last: u8| if is_v4 { 0x0a00_0000 } else { 0xfd << 120 } | u128::from(last);
                let scale = |len: u8| if is_v4 { len } else { 96 + len };
                let schema = if is_v4 { schema_v4() } else { schema_v6() };
                let mask = |value: u128, mask: u128| Condition::Mask { value: value & mask, mask };
                let words = schema.conditions(&[
                    Condition::Prefix {
                        value: address(src),
                        len: if src_len == 0 { 0 } else { scale(src_len) },
                    },
                    Condition::Prefix {
                        value: address(dst),
                        len: if dst_len == 0 { 0 } else { scale(dst_len) },
                    },
                    Condition::Range { low: sport.0.into(), high: sport.1.into() },
                    Condition::Range { low: dport.0.into(), high: dport.1.into() },
                    proto.map_or(mask(0, 0), |proto| mask(proto.into(), 0xff)),
                    flags.map_or(mask(0, 0), |flags| mask(flags.into(), 2)),
                    mask(shape.0.into(), shape.1.into()),
                    mask(0, 0), // no flows are tracked here
                    interface.map_or(mask(0, 0), |number| mask(number.into(), 0x3ff)),
                ]);
                Own { is_v4, words: words.unwrap(), action }
            },
        )
}

/// Frames of few addresses and ports, some of them fragments or broken.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let parts = (any::<bool>(), 0u8..4, 0u8..4, 0u16..12, 0u16..12, 0u8..6, any::<u8>());
    (
        parts,
        prop::option::weighted(0.1, (14usize..60, any::<u8>())),
        prop::option::weighted(0.05, 0usize..60),
    )
        .prop_map(|((is_v4, src, dst, sport, dport, kind, flags), poke, cut)| {
            let mut frame = plain(is_v4, [src, dst], [sport, dport], kind, flags);
            if let Some((at, value)) = poke
                && at < frame.len()
            {
                frame[at] = value;
            }
            frame.truncate(cut.map_or(frame.len(), |cut| frame.len().saturating_sub(cut)));
            frame
        })
}

fn plain(
    is_v4: bool,
    [src, dst]: [u8; 2],
    [sport, dport]: [u16; 2],
    kind: u8,
    flags: u8,
) -> Vec<u8> {
    let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let mut out = Vec::new();
    let v6 = |last: u8| {
        let mut address = [0; 16];
        (address[0], address[15]) = (0xfd, last);
        address
    };
    let ip = if is_v4 {
        builder.ipv4([10, 0, 0, src], [10, 0, 0, dst], 9)
    } else {
        builder.ipv6(v6(src), v6(dst), 9)
    };
    match kind {
        0 => {
            let mut arp = vec![0; 60];
            arp[..14].copy_from_slice(&[255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 8, 6]);
            arp[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
            return arp;
        }
        1 if is_v4 => ip.icmpv4_echo_request(sport, dport).write(&mut out, &[7; 20]),
        1 => ip.icmpv6_echo_request(sport, dport).write(&mut out, &[7; 20]),
        2 | 3 => ip.udp(sport, dport).write(&mut out, &[7; 20]),
        _ => {
            let mut tcp = etherparse::TcpHeader::new(sport, dport, 9, 500);
            (tcp.syn, tcp.ack, tcp.rst) = (flags & 1 != 0, flags & 2 != 0, flags & 28 == 4);
            ip.tcp_header(tcp).write(&mut out, &[7; 20])
        }
    }
    .unwrap();
    if kind == 3 && is_v4 {
        // A later fragment, whose first bytes look like ports.
        out[20..22].copy_from_slice(&(u16::from(flags) & 7).to_be_bytes());
        packet::ipv4::fill_checksum(&mut out[14..]);
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_stage_does_what_its_reference_does(
        rules in prop::collection::vec(rule(), 0..24),
        frames in prop::collection::vec(frame(), 1..200),
        default in action(),
        is_linear: bool,
        form in prop::sample::select(Form::ALL.to_vec()),
    ) {
        let place = form.place;
        let hits = Arc::new(Hits::new(1));
        let tables = match is_linear {
            true => tables::<LinearBuilder>(&rules, default, &hits),
            false => tables::<TupleBuilder>(&rules, default, &hits),
        };
        let ran = run(form, &frames, &tables);
        let mut counted = vec![(0, 0, 0); rules.len() + 1];
        let mut emitted = ran.emitted.iter();
        let (_, depot) = Region::new(64, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot, 8);
        for (row, frame) in frames.iter().enumerate() {
            let mut packet = Packet::copy_from(&mut pool, frame).unwrap();
            packet.port = (row % 4) as u16;
            let judged = reference(&packet, packet.port, &rules);
            packet.free(&mut pool);
            let Some(judged) = judged else {
                prop_assert_eq!(ran.verdicts[row], Verdict::NEXT);
                prop_assert_eq!(&ran.frames[row], frame);
                continue;
            };
            let id = match judged {
                Err(reason) => {
                    prop_assert_eq!(ran.verdicts[row], Verdict::drop(reason));
                    continue;
                }
                Ok(id) => id,
            };
            let action = if id == 0 { default } else { rules[id as usize - 1].action };
            prop_assert_eq!(ran.verdicts[row], expected(action), "rule {}", id);
            prop_assert_eq!(ran.shaded[row], action.verdict(), "rule {}", id);
            let (packets, bytes, _) = counted[id as usize];
            // Live, a chunk's packets came at one time.
            counted[id as usize] = (packets + 1, bytes + frame.len() as u64, 7_000);
            if let Some(port) = action.mirror {
                let (cause, verdict, copy) = emitted.next().unwrap();
                prop_assert_eq!((*cause as usize, *verdict), (row, Verdict::forward(port)));
                prop_assert_eq!(copy, frame, "as it came");
            }
            let d = packet::decode(&ran.frames[row], ran.frames[row].len());
            match action.dscp {
                Some(dscp) => prop_assert_eq!(d.dscp(), dscp),
                None => prop_assert_eq!(&ran.frames[row], frame),
            }
            let before = packet::decode(frame, frame.len());
            prop_assert_eq!(d.anomaly, before.anomaly);
            // Answers of a switch follow; what is in them, the oracle judges.
            while let Some((cause, verdict, answer)) = emitted.as_slice().first()
                && usize::from(*cause) == row
                && action.ending == Ending::Reject
            {
                prop_assert!(place != Place::Router && verdict.kind() == VerdictKind::Forward);
                prop_assert_eq!(verdict.port(), (row % 4) as u16);
                prop_assert_eq!((&answer[..6], &answer[6..12]), (&frame[6..12], &frame[..6]));
                prop_assert_eq!(
                    packet::decode(answer, answer.len()).anomaly,
                    packet::Anomaly::None
                );
                emitted.next();
            }
        }
        prop_assert!(emitted.next().is_none());
        for (id, (packets, bytes, last_ns)) in counted.into_iter().enumerate() {
            let hit = hits.get(id as u32);
            prop_assert_eq!((hit.packets, hit.bytes, hit.last_ns), (packets, bytes, last_ns));
        }
    }

    /// Rules that come and go by patches give what a set built anew gives.
    #[test]
    fn patches_lead_where_a_new_set_is(
        first in prop::collection::vec(rule(), 0..12),
        second in prop::collection::vec(rule(), 0..12),
        frames in prop::collection::vec(frame(), 1..64),
    ) {
        follow(&first, &second, &frames);
    }
}

/// Goes from one set of rules to another by patches. Judges frames with the result and with a set built anew, and
/// compares. Returns the entries of the largest class on the way.
fn follow(first: &[Own], second: &[Own], frames: &[Vec<u8>]) -> usize {
    let hits = Arc::new(Hits::new(1));
    let accept = Action::of(Ending::Accept);
    let mut both = both::<TupleBuilder>(first);
    let mut live = tables_of(&both, first, accept, &hits);
    let mut class_max = 0;
    // Rule by rule the second set takes the places of the first.
    for at in 0..first.len().max(second.len()) {
        let (id, mut patches) = (at as u32 + 1, [Vec::new(), Vec::new()]);
        for (rules, patches) in both.iter_mut().zip(&mut patches) {
            rules.remove(id, patches);
        }
        if let Some(rule) = second.get(at) {
            let own = RuleRef { words: &rule.words, priority: at as u32, id };
            let side = usize::from(!rule.is_v4);
            both[side].insert(own, &mut patches[side]).unwrap();
        }
        let [v4, v6] = patches;
        live.apply(&FirewallPatch::V4(v4));
        live.apply(&FirewallPatch::V6(v6));
        let record = second.get(at).and_then(|rule| record(rule.action));
        live.apply(&FirewallPatch::Record(id, record));
        class_max = both.iter().map(|rules| rules.stats().class_max).fold(class_max, usize::max);
    }
    let (v4, v6) = live.rules().unwrap();
    for (rules, tables) in both.iter().zip([v4, v6]) {
        assert!(rules.blob().words() == tables.blob().words(), "patches make the builder's image");
    }
    let fresh = tables::<LinearBuilder>(second, accept, &hits);
    for form in Form::ALL {
        let one = run(form, frames, &live);
        let other = run(form, frames, &fresh);
        assert_eq!(one.verdicts, other.verdicts, "{form:?}");
        assert_eq!(one.frames, other.frames, "{form:?}");
    }
    class_max
}

/// Two rules of ranges share a class of six entries. That is more than are compared one by one, so the lookup needs
/// the hash of the build that wrote the slots.
#[test]
fn patches_fill_a_class_that_is_hashed() {
    let rules = [([0, 9], [3, 10], None), ([1, 9], [1, 8], Some(1))];
    let rules = rules.map(|(sport, dport, dscp): ([u16; 2], [u16; 2], _)| {
        let ports = |[low, high]: [u16; 2]| Condition::Range { low: low.into(), high: high.into() };
        let any = Condition::Mask { value: 0, mask: 0 };
        let conditions = [
            Condition::Prefix { value: 0x0a00_0000, len: 24 },
            Condition::Prefix { value: 0x0a00_0000, len: 8 },
            ports(sport),
            ports(dport),
            any,
            any,
            Condition::Mask { value: 0, mask: 4 },
            any,
            any,
        ];
        let words = schema_v4().conditions(&conditions).unwrap();
        Own { is_v4: true, words, action: Action { dscp, ..Action::of(Ending::Accept) } }
    });
    let frames = [plain(true, [0, 0], [8, 1], 2, 0)];
    // Entries of a pair of source ports and one destination port: 8-9 with 3 and 10; 2-3 and 8-9 with 1 and 8.
    assert_eq!(follow(&[], &rules, &frames), 6);
    follow(&rules[1..], &rules, &frames);
}

#[test]
fn without_rules_nothing_is_looked_at() {
    let frames: Vec<_> =
        (0..3).map(|kind| plain(true, [1, 2], [3, 4], kind, 0)[..20].to_vec()).collect();
    for form in Form::ALL {
        let ran = run(form, &frames, &FirewallTables::default());
        assert!(ran.shaded.iter().chain(&ran.verdicts).all(|verdict| verdict.is_next()));
    }
}

#[test]
fn no_memory_is_taken_for_a_packet() {
    let hits = Arc::new(Hits::new(1));
    let action = Action { dscp: Some(46), ..Action::of(Ending::Accept) };
    let tables = tables::<TupleBuilder>(&[], action, &hits);
    for form in Form::ALL {
        let before = hits.get(0).packets;
        let (_, depot) = Region::new(1024, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot, 64);
        let mut stage = form.stage();
        let columns = Stage::<Tables>::columns(&stage);
        let mut chunk = chunk_of(Layout::join(columns, ROWS).unwrap());
        for at in 0..ROWS {
            let frame = plain(at % 2 == 0, [1, 2], [3, 4], 2, 0);
            chunk.packets.push(Packet::copy_from(&mut pool, &frame).unwrap());
        }
        let all = Tables(tables.clone());
        let (mut dropped, mut released) = (Vec::new(), Vec::new());
        chunk.rows.set_len(chunk.packets.len());
        chunk.rows.verdicts().fill(Verdict::NEXT.0);
        let mut cx = Context::detached(&mut pool, &all, 1, &mut dropped, &mut released);
        let info = allocation_counter::measure(|| {
            first_steps(form, &mut stage, &mut chunk, &mut cx, &all);
            Stage::<Tables>::post_shade(&mut stage, &mut chunk, &mut cx);
        });
        assert_eq!(info.count_total, 0, "{form:?}");
        assert_eq!(hits.get(0).packets - before, ROWS as u64);
        chunk.packets.drain(..).for_each(|packet| packet.free(&mut pool));
    }
}

/// Rows that are settled before the shade, by a stage of the same segment, are passed over and have no rule.
#[test]
fn settled_rows_are_passed_over() {
    let hits = Arc::new(Hits::new(1));
    let tables = Tables(tables::<LinearBuilder>(&[], Action::of(Ending::Drop), &hits));
    for form in Form::ALL {
        let (_, depot) = Region::new(64, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot, 8);
        let mut stage = form.stage();
        let columns = Stage::<Tables>::columns(&stage);
        let mut chunk = chunk_of(Layout::join(columns, ROWS).unwrap());
        for kind in [2, 2, 0, 2] {
            let frame = plain(true, [1, 2], [3, 4], kind, 0);
            chunk.packets.push(Packet::copy_from(&mut pool, &frame).unwrap());
        }
        chunk.rows.set_len(4);
        randomise(&mut chunk);
        chunk.rows.verdicts().fill(Verdict::NEXT.0);
        let (mut dropped, mut released) = (Vec::new(), Vec::new());
        let mut cx = Context::detached(&mut pool, &tables, 1, &mut dropped, &mut released);
        fill(&mut chunk);
        let before = hits.get(0).packets;
        chunk.rows.verdicts()[1] = Verdict::forward(3).0;
        Stage::<Tables>::shader(&stage).expect("a shade").shade(&mut chunk.rows, &tables);
        let (next, drop) = (Verdict::NEXT.0, Verdict::drop(reasons::FIREWALL_DROP).0);
        assert_eq!(chunk.rows.verdicts(), [drop, Verdict::forward(3).0, next, drop]);
        let rule = FilterColumns::FILTER_RULE.place_in(chunk.rows.layout().columns()).unwrap();
        let rules = chunk.rows.column_bytes(rule).chunks_exact(4);
        let rules: Vec<_> =
            rules.map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
        assert_eq!(rules, [0, NOT_JUDGED, NOT_JUDGED, 0]);
        // A later stage drops what this one would have counted, and it is counted all the same.
        chunk.rows.verdicts()[3] = Verdict::drop(chunk::reasons::UNKNOWN).0;
        Stage::<Tables>::post_shade(&mut stage, &mut chunk, &mut cx);
        assert_eq!(hits.get(0).packets - before, 2);
        assert_eq!(chunk.rows.verdicts()[1], Verdict::forward(3).0);
        chunk.packets.drain(..).for_each(|packet| packet.free(&mut pool));
    }
}
