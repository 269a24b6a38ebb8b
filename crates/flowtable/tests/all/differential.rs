//! Random flows and packets through the tables and through the reference: the same frames by the same ports, and the same flows.

use flowtable::Settings;
use openflow::{ErrorCode, PortNo, Version};

use crate::compare::compare;
use crate::generate;
use crate::random::{Random, seeds};
use crate::world::World;

const ALGORITHMS: [&str; 5] = ["auto", "linear", "tuple", "bloom", "cuts"];

/// What a random request may be refused for.
fn is_expected(error: ErrorCode) -> bool {
    matches!(
        error,
        ErrorCode::FlowModOverlap
            | ErrorCode::BadActionMatchInconsistent
            | ErrorCode::BadActionOutGroup
            | ErrorCode::BadActionSetArgument
            | ErrorCode::BadMatchValue
    )
}

#[test]
fn tables_and_reference_agree() {
    for seed in seeds() {
        let mut random = Random(seed);
        let settings = Settings::of_13(3);
        let mut world = World::new(settings, random.of(&ALGORITHMS));
        let groups = random.below(5) as u32;
        for number in 0..groups {
            let group = generate::group(&mut random, number);
            if let Err(error) = world.control.group_mod(&group, 1) {
                assert_eq!(error, ErrorCode::GroupModUnknown, "seed {seed}: {group:?}");
            }
        }
        for _ in 0..3 {
            for _ in 0..random.of(&[3, 30, 150]) {
                let request = generate::flow_mod(&mut random, groups);
                if let Err(error) = world.control.flow_mod(&request, Version::V13, 1) {
                    assert!(is_expected(error), "seed {seed}: {error} for {request:?}");
                }
                if random.one_in(20) {
                    world.publish();
                }
            }
            world.publish();
            let frames: Vec<_> = (0..60).map(|_| generate::frame(&mut random, false)).collect();
            compare(&mut world, &frames, PortNo(random.of(&[1, 2])), seed, true);
            // Of packets that are cut, of fragments and of noise at least the flows are the same, as far as nothing changes them.
            let mut plain = World::new(settings, "auto");
            for flow in world.control.flows().filter(|flow| flow.table == 0) {
                let mut request = openflow::FlowMod::new(openflow::FlowCommand::Add);
                request.matches = flow.matches.clone();
                request.priority = flow.priority;
                plain.control.flow_mod(&request, Version::V13, 1).unwrap();
            }
            plain.publish();
            let frames: Vec<_> = (0..60).map(|_| generate::frame(&mut random, true)).collect();
            compare(&mut plain, &frames, PortNo(1), seed, false);
            // Actions take them as they are.
            let noise =
                (0..20).map(|_| (0..random.below(80)).map(|_| random.next() as u8).collect());
            let frames: Vec<Vec<u8>> =
                frames.into_iter().chain(noise.collect::<Vec<_>>()).collect();
            world.send(&frames, 1, 1);
        }
    }
}

/// In 1.0 exact flows win, and packets that no flow takes go to the controller.
#[test]
fn exact_flows_win_in_1_0() {
    let mut exact = 0;
    for seed in seeds() {
        let mut random = Random(seed);
        let mut world = World::new(Settings::of_10(128), random.of(&ALGORITHMS));
        for _ in 0..200 {
            let mut request = generate::flow_mod(&mut random, 0);
            request.table = 0;
            request
                .instructions
                .retain(|own| matches!(own, openflow::Instruction::ApplyActions(_)));
            if random.one_in(2) {
                // All that a packet of the generator says.
                let frame = generate::frame(&mut random, false);
                let fields = flowtable::reference::fields(&frame, PortNo(1));
                request.matches = openflow::Match::new();
                for (field, value) in
                    fields.into_iter().filter(|(field, _)| generate::is_of_exact(*field))
                {
                    request.matches.set(field, value, field.full());
                }
            }
            match world.control.flow_mod(&request, Version::V10, 1) {
                Ok(()) | Err(ErrorCode::FlowModOverlap) => {}
                Err(error) => panic!("seed {seed}: {error} for {request:?}"),
            }
        }
        world.publish();
        exact += world.control.tables().iter().map(|table| table.exact).sum::<usize>();
        let frames: Vec<_> = (0..200).map(|_| generate::frame(&mut random, false)).collect();
        compare(&mut world, &frames, PortNo(1), seed, true);
    }
    assert!(exact > 500, "{exact} exact flows");
}
