//! Packets of established flows are not looked up again: the same results as where each is.

use std::sync::Arc;

use apps::firewall::kernels::{FilterColumns, UNKNOWN};
use apps::firewall::{Action, Ending, Firewall, FirewallPatch, FirewallTables, Hits};
use apps::flow::FlowColumns;
use apps::router::RouterColumns;
use chunk::{Chunk, Columns, Depot, HugePages, Layout, Packet, Pool, Region, Verdict};
use classify::RuleRef;
use classify::tuple::TupleBuilder;
use engine::{Context, Stage};
use lookup::versions::Patchable;
use proptest::collection::vec;
use proptest::prelude::*;

use super::{Form, Own, Place, ROWS, Tables, both, chunk_of, fill, frame, record, rule, tables_of};

/// A packet: which frame, the place of its flow, and what the stage `flow` says of it.
type Row = (usize, u32, u8);

/// A stage with all that is around it.
struct One {
    form: Form,
    stage: Firewall,
    tables: FirewallTables,
    hits: Arc<Hits>,
    pool: Pool,
}

/// What became of a chunk.
type Became = (Vec<u32>, Vec<u32>, Vec<(u16, Verdict, Vec<u8>)>, Vec<Vec<u8>>);

impl One {
    fn new(
        form: Form,
        is_cached: bool,
        tables: FirewallTables,
        hits: Arc<Hits>,
        depot: &Arc<Depot>,
    ) -> Self {
        let stage = form.stage().behind_flow();
        let stage = if is_cached { stage } else { stage.without_flow_cache() };
        Self { form, stage, tables, hits, pool: Pool::new(depot.clone(), 64) }
    }

    /// A chunk behind the first step, and the tables that it keeps.
    fn begin(&mut self, frames: &[Vec<u8>], rows: &[Row]) -> (Chunk, Tables) {
        let columns = Stage::<Tables>::columns(&self.stage);
        let mut chunk = chunk_of(Layout::join(columns, ROWS).unwrap());
        for (at, (number, ..)) in rows.iter().enumerate() {
            let mut packet =
                Packet::copy_from(&mut self.pool, &frames[number % frames.len()]).unwrap();
            // A flow comes by one port, mostly.
            packet.port = (number % 3) as u16 + u16::from(at % 16 == 0);
            chunk.packets.push(packet);
        }
        chunk.rows.set_len(rows.len());
        chunk.rows.verdicts().fill(Verdict::NEXT.0);
        let flow = FlowColumns::view(&mut chunk.rows);
        for (at, (_, slot, state)) in rows.iter().enumerate() {
            (flow.flow_slot[at], flow.flow_state[at], flow.context[at]) = (*slot, *state, 0);
        }
        if self.form.place == Place::Router {
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
        if self.form.place != Place::Alone {
            fill(&mut chunk);
        }
        let tables = Tables(self.tables.clone());
        let (mut dropped, mut released) = (Vec::new(), Vec::new());
        let mut cx = Context::detached(&mut self.pool, &tables, 7_000, &mut dropped, &mut released);
        Stage::<Tables>::pre_shade(&mut self.stage, &mut chunk, &mut cx);
        (chunk, tables)
    }

    /// The other steps. Some rows are settled before the shade, as by another firewall of the segment.
    fn finish(&mut self, (mut chunk, tables): (Chunk, Tables), settled: usize) -> Became {
        for (row, verdict) in chunk.rows.verdicts().iter_mut().enumerate() {
            if settled > 0 && row % 7 == settled {
                *verdict = Verdict::forward(2).0;
            }
        }
        Stage::<Tables>::shader(&self.stage).expect("a shade").shade(&mut chunk.rows, &tables);
        // The column of one of several is its own, by its name.
        let rules = match self.form.is_named {
            true => Vec::new(),
            false => FilterColumns::view(&mut chunk.rows).filter_rule.to_vec(),
        };
        let (mut dropped, mut released) = (Vec::new(), Vec::new());
        let mut cx = Context::detached(&mut self.pool, &tables, 7_000, &mut dropped, &mut released);
        Stage::<Tables>::post_shade(&mut self.stage, &mut chunk, &mut cx);
        let view = FlowColumns::view(&mut chunk.rows);
        let mut words = view.verdict.to_vec();
        words.extend_from_slice(view.context);
        let emitted = chunk.emitted.drain(..).map(|own| {
            let bytes = own.packet.data().to_vec();
            (own.cause, own.verdict, bytes, own.packet)
        });
        let emitted: Vec<_> = emitted.collect();
        let mut copies = Vec::new();
        for (cause, verdict, bytes, packet) in emitted {
            copies.push((cause, verdict, bytes));
            packet.free(&mut self.pool);
        }
        let frames = chunk.packets.iter().map(|packet| packet.data().to_vec()).collect();
        for packet in chunk.packets.drain(..) {
            packet.free(&mut self.pool);
        }
        (rules, words, copies, frames)
    }
}

/// What happens between two chunks.
#[derive(Debug, Clone)]
enum Change {
    None,
    /// A rule goes, and perhaps another one comes in its place.
    Rule(usize, Option<Own>),
    /// A rule gets another action.
    Action(usize, Action),
    /// All tables are built anew.
    Reload(Vec<Own>),
}

fn change() -> impl Strategy<Value = Change> {
    let endings = prop::sample::select(vec![Ending::Accept, Ending::Drop, Ending::Send(1)]);
    let action =
        (endings, prop::option::of(0_u8..64), any::<bool>()).prop_map(|(ending, dscp, is_in)| {
            Action { dscp, contexts: u32::from(is_in) << 3, ..Action::of(ending) }
        });
    prop_oneof![
        4 => Just(Change::None),
        2 => (0_usize..24, prop::option::weighted(0.8, rule())).prop_map(|(at, own)| Change::Rule(at, own)),
        1 => (0_usize..24, action).prop_map(|(at, action)| Change::Action(at, action)),
        1 => vec(rule(), 20..24).prop_map(Change::Reload),
    ]
}

/// States as the stage has them: established ones of both directions most of all.
fn row() -> impl Strategy<Value = Row> {
    let state = prop::sample::select(vec![0b110, 0b110, 0b1110, 0b100, 0b111, 0b001, 0]);
    let slot = prop_oneof![9 => 0_u32..6, 1 => Just(u32::MAX)];
    (0_usize..12, slot, state)
}

fn check(
    form: Form,
    rules: &[Own],
    frames: &[Vec<u8>],
    rounds: &[(Vec<Row>, Change, bool, usize)],
) -> u64 {
    let mut structures = both::<TupleBuilder>(rules);
    let (_, depot) = Region::new(4096, HugePages::Off).unwrap();
    let default = Action::of(Ending::Accept);
    let mut stages: Vec<One> = [true, false]
        .into_iter()
        .map(|is_cached| {
            let hits = Arc::new(Hits::new(1));
            One::new(form, is_cached, tables_of(&structures, rules, default, &hits), hits, &depot)
        })
        .collect();
    let mut known = 0;
    let mut late: Option<Vec<(Chunk, Tables)>> = None;
    for (rows, change, is_late, settled) in rounds {
        let mut patches = Vec::new();
        match change {
            Change::None => {}
            Change::Rule(at, own) => {
                let (id, mut lists) = (*at as u32 + 1, [Vec::new(), Vec::new()]);
                for (rules, list) in structures.iter_mut().zip(&mut lists) {
                    rules.remove(id, list);
                }
                if let Some(own) = own {
                    let side = usize::from(!own.is_v4);
                    let rule = RuleRef { words: &own.words, priority: *at as u32, id };
                    structures[side].insert(rule, &mut lists[side]).unwrap();
                }
                let [v4, v6] = lists;
                let own = own.as_ref().and_then(|own| record(own.action));
                patches.extend([FirewallPatch::V4(v4), FirewallPatch::V6(v6)]);
                patches.push(FirewallPatch::Record(id, own));
            }
            Change::Reload(rules) => {
                structures = both::<TupleBuilder>(rules);
                for one in &mut stages {
                    one.tables = tables_of(&structures, rules, default, &one.hits);
                }
            }
            Change::Action(at, action) => {
                patches.push(FirewallPatch::Record(*at as u32 + 1, record(*action)));
            }
        }
        for one in &mut stages {
            patches.iter().for_each(|patch| one.tables.apply(patch));
        }
        let mut chunks: Vec<_> = stages.iter_mut().map(|one| one.begin(frames, rows)).collect();
        if !form.is_named {
            let marks = FilterColumns::view(&mut chunks[0].0.rows);
            known += marks.filter_rule.iter().filter(|rule| **rule < UNKNOWN).count() as u64;
        }
        // Another chunk of an older version may be under way meanwhile.
        let due = if *is_late && late.is_none() {
            late = Some(chunks);
            None
        } else {
            Some(chunks)
        };
        for chunks in [due, if *is_late { None } else { late.take() }].into_iter().flatten() {
            let became: Vec<_> =
                stages.iter_mut().zip(chunks).map(|(one, own)| one.finish(own, *settled)).collect();
            assert_eq!(became[0], became[1], "{form:?}");
        }
    }
    if let Some(chunks) = late {
        let became: Vec<_> =
            stages.iter_mut().zip(chunks).map(|(one, own)| one.finish(own, 0)).collect();
        assert_eq!(became[0], became[1]);
    }
    for id in 0..32 {
        assert_eq!(stages[0].hits.get(id), stages[1].hits.get(id), "rule {id}");
    }
    known
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(192) })]

    /// Whatever changes, whichever places flows have, whoever has settled rows, and whatever is under way.
    #[test]
    fn results_are_those_of_lookups(
        rules in vec(rule(), 20..24),
        frames in vec(frame(), 12),
        rounds in vec((vec(row(), 1..40), change(), prop::bool::weighted(0.3), 0_usize..3), 1..16),
        form in prop::sample::select(Form::ALL.to_vec()),
    ) {
        check(form, &rules, &frames, &rounds);
    }
}

/// The second packet of a flow is not looked up, and after a change of a rule it is once more.
#[test]
fn a_change_of_rules_is_seen_at_once() {
    let runner = &mut proptest::test_runner::TestRunner::deterministic();
    use proptest::strategy::ValueTree;
    let rules: Vec<Own> = (0..20).map(|_| rule().new_tree(runner).unwrap().current()).collect();
    let frames =
        vec![super::plain(true, [1, 2], [3, 4], 4, 2), super::plain(false, [1, 2], [3, 4], 2, 0)];
    let rows: Vec<Row> = vec![(0, 7, 0b110), (1, 8, 0b1110)];
    let form = Form { place: Place::Behind, is_named: false };
    let round = |change| (rows.clone(), change, false, 0);
    let all = [Change::None, Change::None, Change::Rule(3, None), Change::None].map(round);
    assert_eq!(check(form, &rules, &frames, &all), 4, "the second and the fourth time");
    let all = [Change::None, Change::Reload(rules.clone()), Change::None].map(round);
    assert_eq!(check(form, &rules, &frames, &all), 2, "the third time");
    // Few rules are looked up each time.
    assert_eq!(check(form, &rules[..5], &frames, &[Change::None, Change::None].map(round)), 0);
}
