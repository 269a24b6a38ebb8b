//! Packets that are looked up before they become rows: the same becomes of them, and the same is counted.

use flowtable::Settings;
use flowtable::pipeline::Lookups;
use openflow::port::PortConfig;
use openflow::{ErrorCode, PortNo, Version};

use crate::generate;
use crate::random::{Random, seeds};
use crate::world::World;

/// Packets and bytes of each flow by its number, and lookups by table.
type Counted = (Vec<(u32, (u64, u64))>, Vec<Lookups>);

fn counted(world: &World) -> Counted {
    let flows = world.tables.flows().map(|flow| (flow.id, flow.counters.get()));
    (flows.collect(), world.pipeline.lookups().to_vec())
}

/// What came between two moments.
fn between(before: &Counted, after: &Counted) -> Counted {
    let flows = before.0.iter().zip(&after.0);
    let flows = flows.map(|((id, a), (_, b))| (*id, (b.0 - a.0, b.1 - a.1)));
    let lookups = before.1.iter().zip(&after.1).map(|(a, b)| Lookups {
        looked_up: b.looked_up - a.looked_up,
        matched: b.matched - a.matched,
    });
    (flows.collect(), lookups.collect())
}

#[test]
fn nothing_depends_on_rows() {
    let (mut direct, mut all) = (0, 0);
    for seed in seeds() {
        let mut random = Random(seed);
        let settings = random.of(&[Settings::of_13(3), Settings::of_10(128)]);
        let search = random.of(&["auto", "linear", "tuple", "bloom", "cuts"]);
        let mut world = World::new(settings, search);
        let groups = if settings.exact_wins { 0 } else { random.below(4) as u32 };
        for number in 0..groups {
            let group = generate::group(&mut random, number);
            if let Err(error) = world.control.group_mod(&group, 1) {
                assert_eq!(error, ErrorCode::GroupModUnknown, "seed {seed}: {group:?}");
            }
        }
        for _ in 0..3 {
            for _ in 0..random.of(&[3, 30, 150]) {
                let mut request = generate::flow_mod(&mut random, groups);
                if random.one_in(2) {
                    let port = PortNo(1 + random.below(5) as u32);
                    request.instructions =
                        vec![openflow::Instruction::ApplyActions(vec![openflow::Action::output(
                            port,
                        )])];
                }
                world.control.flow_mod(&request, Version::V13, 1).ok();
            }
            // A port that does not send.
            let number = PortNo(1 + random.below(4) as u32);
            let config = random.of(&[
                PortConfig::empty(),
                PortConfig::NO_FWD,
                PortConfig::PORT_DOWN,
                PortConfig::NO_FLOOD,
            ]);
            let live = !random.one_in(5);
            world.control.set_port(number, Some(flowtable::Port { number, config, live }));
            world.publish();
            let mut frames: Vec<_> =
                (0..120).map(|_| generate::frame(&mut random, false)).collect();
            frames.extend((0..60).map(|_| generate::frame(&mut random, true)));
            let in_port = random.of(&[1, 2]);
            let before = counted(&world);
            let mut rows = world.send(&frames, in_port, 1);
            let behind = counted(&world);
            let read = world.send_read(&frames, in_port, 1);
            let last = counted(&world);
            assert_eq!(between(&before, &behind), between(&behind, &last), "seed {seed}");
            (direct, all) = (direct + read.direct, all + frames.len());
            rows.direct = read.direct;
            rows.sent.sort_by_key(|(row, ..)| *row);
            assert_eq!(read, rows, "seed {seed}");
        }
    }
    assert!(direct > 1_000 && direct < all - 1_000, "{direct} of {all}");
}
