//! A set of flows in the place of another one: the same flows as if they had been added to empty tables, and those that were
//! there before as they were.

use std::collections::HashMap;
use std::sync::Arc;

use flowtable::{Flow, Settings};
use openflow::{Action, ErrorCode, FlowCommand, FlowFlags, FlowMod, Instruction, PortNo, Version};

use crate::compare::compare;
use crate::generate;
use crate::random::{Random, seeds};
use crate::world::World;

/// Some flows that a switch takes.
fn flows(random: &mut Random, from: &[FlowMod]) -> Vec<FlowMod> {
    let mut all = Vec::new();
    let mut world = World::new(Settings::of_13(4), "linear");
    for _ in 0..random.below(40) {
        let mut flow = match from.is_empty() || random.one_in(2) {
            true => generate::flow_mod(random, 0),
            false => random.of(from),
        };
        flow.command = FlowCommand::Add;
        flow.flags = FlowFlags(flow.flags.0 & !FlowFlags::CHECK_OVERLAP.0);
        if random.one_in(4) {
            flow.cookie = random.next();
        }
        if random.one_in(4) {
            flow.instructions = vec![Instruction::ApplyActions(vec![Action::output(PortNo(2))])];
        }
        if world.control.flow_mod(&flow, Version::V13, 1).is_ok() {
            all.push(flow);
        }
    }
    all
}

fn state(world: &World) -> HashMap<(u8, u16, String), Arc<Flow>> {
    let key = |flow: &Flow| (flow.table, flow.priority, format!("{:?}", flow.words));
    world.control.flows().map(|flow| (key(flow), flow.clone())).collect()
}

fn is_same(one: &Flow, other: &Flow) -> bool {
    let of = |flow: &Flow| {
        (flow.cookie, flow.idle_timeout, flow.hard_timeout, flow.flags, flow.instructions.clone())
    };
    of(one) == of(other)
}

#[test]
fn a_replaced_set_is_the_set() {
    for seed in seeds() {
        let mut random = Random(seed);
        let first = flows(&mut random, &[]);
        let second = flows(&mut random, &first);
        let mut world = World::new(Settings::of_13(4), "linear");
        let mut fresh = World::new(Settings::of_13(4), "linear");
        for flow in &first {
            world.control.flow_mod(flow, Version::V13, 1).unwrap();
        }
        world.publish();
        for flow in &second {
            fresh.control.flow_mod(flow, Version::V13, 2).unwrap();
        }
        fresh.publish();
        let before = state(&world);
        let done = world.control.replace(&second, Version::V13, 2).unwrap();
        world.publish();
        let (after, wanted) = (state(&world), state(&fresh));
        assert_eq!(after.len(), wanted.len(), "seed {seed}");
        let mut kept = 0;
        for (key, flow) in &after {
            assert!(is_same(flow, &wanted[key]), "seed {seed}: {flow:?}");
            let old = before.get(key);
            if let Some(old) = old.filter(|old| is_same(old, flow)) {
                // Not touched: its age and its counters go on.
                assert!(Arc::ptr_eq(old, flow), "seed {seed}: {flow:?}");
                kept += 1;
            } else {
                assert_eq!(flow.created_ns, 2, "seed {seed}");
            }
        }
        assert_eq!(done.kept, kept, "seed {seed}");
        assert_eq!(done.gone.len(), before.len() - kept, "seed {seed}");
        assert_eq!(done.new.len(), after.len() - kept, "seed {seed}");
        let again = world.control.differences(&second, Version::V13).unwrap();
        assert!(again.new.is_empty() && again.gone.is_empty(), "seed {seed}: {again:?}");
        // And packets see it.
        let frames: Vec<_> = (0..32).map(|_| generate::frame(&mut random, false)).collect();
        let port = PortNo(1 + random.below(4) as u32);
        compare(&mut world, &frames, port, seed, true);
    }
}

#[test]
fn a_refused_set_changes_nothing() {
    let mut world = World::new(Settings::of_13(4), "linear");
    let one =
        FlowMod { cookie: 1, flags: FlowFlags::SEND_FLOW_REM, ..FlowMod::new(FlowCommand::Add) };
    world.control.flow_mod(&one, Version::V13, 1).unwrap();
    let before = state(&world);
    let good = FlowMod { priority: 7, ..FlowMod::new(FlowCommand::Add) };
    let no_group = vec![Instruction::ApplyActions(vec![Action::Group(9)])];
    let bad = FlowMod { instructions: no_group, priority: 8, ..FlowMod::new(FlowCommand::Add) };
    let result = world.control.all_or_nothing(|control| {
        control.replace(&[good.clone(), bad.clone()], Version::V13, 2).map(|_| ())
    });
    let wrong = result.unwrap_err();
    assert_eq!((wrong.index, wrong.code), (1, ErrorCode::BadActionOutGroup));
    let after = state(&world);
    assert_eq!(after.len(), 1);
    assert!(after.iter().all(|(key, flow)| Arc::ptr_eq(flow, &before[key])));
    assert!(world.control.take_removed().is_empty());
    // A full switch takes as many others.
    let last = FlowMod { priority: 1 << 13, ..good.clone() };
    let done = world.control.replace(&[good.clone(), last, good], Version::V13, 3).unwrap();
    assert_eq!((done.kept, done.new.len(), done.gone.len()), (0, 2, 1));
    assert_eq!(world.control.take_removed().len(), 1);
}

#[test]
fn a_full_switch_takes_another_set() {
    let (mut control, _) = flowtable::FlowControl::new(Settings::of_13(1), 10, "linear");
    let set = |first: u16| -> Vec<FlowMod> {
        let flow = |n| FlowMod { priority: first + n, ..FlowMod::new(FlowCommand::Add) };
        (0..10).map(flow).collect()
    };
    control.replace(&set(0), Version::V13, 1).unwrap();
    let done = control.replace(&set(5), Version::V13, 2).unwrap();
    assert_eq!((done.kept, done.new.len(), control.len()), (5, 5, 10));
}
