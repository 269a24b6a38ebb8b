//! Flows of many masks, searched by what `auto` chooses: as they come in pieces, leave, and look at further words.

use flowtable::{Key, Settings};
use openflow::{Action, Field, FlowCommand, FlowMod, Instruction, PortNo, Version};

use crate::random::{Random, seeds};
use crate::world::World;

fn prefix(random: &mut Random, least: usize) -> u32 {
    let len = (least + random.below(33 - least)) as u32;
    !(u32::MAX.checked_shr(len).unwrap_or(0))
}

fn flow(random: &mut Random, has_more: bool) -> FlowMod {
    let mut flow = FlowMod::new(FlowCommand::Add);
    flow.priority = 1 + random.below(600) as u16;
    flow.matches.set(Field::EthType, 0x0800, 0xffff);
    // What nearly all ask for alike is not what every one asks for.
    match random.below(300) {
        0 => {
            flow.matches = openflow::Match::new();
            return to_port(flow);
        }
        1 => {
            flow.matches.set(Field::EthType, 0x86dd, 0xffff);
            return to_port(flow);
        }
        2 => flow.matches.set(Field::VlanVid, 0x1007, 0x1fff),
        _ => {}
    }
    for (field, least) in [(Field::Ipv4Src, 5), (Field::Ipv4Dst, 1)] {
        let mask = prefix(random, least);
        // Of few values, so that flows overlap.
        let value =
            random.of(&[0x0a00_0000, 0x0a80_0000, 0xc0a8_0000]) | random.next() as u32 >> 12;
        flow.matches.set(field, (value & mask).into(), mask.into());
    }
    if has_more && random.one_in(3) {
        flow.matches.set(Field::IpProto, 6, 0xff);
        flow.matches.set(Field::TcpDst, random.below(4) as u128, 0xffff);
    }
    to_port(flow)
}

fn to_port(mut flow: FlowMod) -> FlowMod {
    flow.instructions = vec![Instruction::ApplyActions(vec![Action::output(PortNo(1))])];
    flow
}

/// The flow that takes a key, by a walk over all.
fn reference(world: &World, key: &Key) -> Option<u32> {
    let takes = |flow: &&std::sync::Arc<flowtable::Flow>| {
        let words = &flow.words;
        (0..key.0.len()).all(|at| key.0[at] & words.mask.0[at] == words.value.0[at])
    };
    let all = world.control.flows().filter(takes);
    all.min_by_key(|flow| (u16::MAX - flow.priority, flow.id)).map(|flow| flow.id)
}

fn check(world: &World, random: &mut Random, seed: u64) {
    let flows: Vec<_> = world.control.flows().cloned().collect();
    let key = |_| {
        let mut key = Key(std::array::from_fn(|_| random.next() as u32));
        if let Some(flow) = (!flows.is_empty()).then(|| &flows[random.below(flows.len())]) {
            for at in 0..key.0.len() {
                let mask = flow.words.mask.0[at];
                key.0[at] = key.0[at] & !mask | flow.words.value.0[at];
            }
        }
        key
    };
    let keys: Vec<Key> = (0..100).map(key).collect();
    let mut found = vec![None; keys.len()];
    world.tables.look_up(0, |at| &keys[at], &mut Vec::new(), &mut found);
    for (key, found) in keys.iter().zip(found) {
        assert_eq!(found, reference(world, key), "seed {seed}: {:?}", world.control.tables());
    }
}

#[test]
fn flows_of_many_masks_are_found() {
    let mut structures = std::collections::BTreeMap::new();
    for seed in seeds().step_by(8) {
        let mut random = Random(seed);
        let settings = Settings { device: random.one_in(4), ..Settings::of_13(1) };
        let mut world = World::new(settings, "auto");
        for step in 0..6 {
            let count = random.of(&[1, 20, 200, 500]);
            for _ in 0..count {
                let request = flow(&mut random, step > 2);
                world.control.flow_mod(&request, Version::V13, 1).unwrap();
            }
            if random.one_in(2) {
                world.publish();
            }
            let there: Vec<_> = world.control.flows().cloned().collect();
            for own in there.iter().filter(|_| random.one_in(5)) {
                let mut request = FlowMod::new(FlowCommand::DeleteStrict);
                (request.matches, request.priority) = (own.matches.clone(), own.priority);
                world.control.flow_mod(&request, Version::V13, 1).unwrap();
            }
            if random.one_in(3) {
                // One for all packets, behind all others.
                let mut miss = FlowMod::new(FlowCommand::Add);
                miss.priority = 0;
                world.control.flow_mod(&miss, Version::V13, 1).unwrap();
            }
            world.publish();
            check(&world, &mut random, seed);
        }
        for table in world.control.tables() {
            *structures.entry(table.structure).or_insert(0) += 1;
        }
    }
    assert!(structures.contains_key("cuts"), "{structures:?}");
}
