//! What the indexes of control say, against a walk over all flows and groups.

use flowtable::key::Words;
use flowtable::{FlowControl, Settings};
use openflow::flow::ANY_GROUP;
use openflow::group::{ALL_GROUPS, ALL_METERS, MeterFlags, TableCommand};
use openflow::{
    Action, ErrorCode, Field, FlowCommand, FlowFlags, FlowMod, GroupMod, Instruction, MeterMod,
    Version,
};

use crate::generate;
use crate::random::{Random, seeds};

/// Whether a flow of the same table and priority takes some packet that the request takes.
fn overlaps(control: &FlowControl, request: &FlowMod) -> bool {
    let words = Words::of(&request.matches);
    let mut same = control
        .flows()
        .filter(|flow| flow.table == request.table && flow.priority == request.priority);
    same.any(|flow| flow.words.overlaps(&words))
}

fn groups_of(actions: &[Action]) -> impl Iterator<Item = u32> + '_ {
    actions.iter().filter_map(|action| match action {
        Action::Group(group) => Some(*group),
        _ => None,
    })
}

/// Statistics count what refers to groups and meters; nothing refers to what is gone.
fn check_references(control: &FlowControl, seed: u64) {
    let of_flow = |flow: &flowtable::Flow, group: u32| {
        let actions: Vec<_> = flow.steps.apply.iter().chain(&flow.steps.write).cloned().collect();
        groups_of(&actions).any(|own| own == group)
    };
    let descs = control.group_descs();
    for stats in control.group_stats(ALL_GROUPS, 1) {
        let flows = control.flows().filter(|flow| of_flow(flow, stats.group)).count();
        let leads = |own: &&openflow::group::GroupDesc| {
            own.buckets.iter().any(|b| groups_of(&b.actions).any(|group| group == stats.group))
        };
        let groups = descs.iter().filter(leads).count();
        assert_eq!(stats.references as usize, flows + groups, "seed {seed}: group {}", stats.group);
    }
    for stats in control.meter_stats(ALL_METERS, 1) {
        let flows = control.flows().filter(|flow| flow.steps.meter == Some(stats.meter)).count();
        assert_eq!(stats.flows as usize, flows, "seed {seed}: meter {}", stats.meter);
    }
    let is_there = |group: u32| control.group(group).is_some();
    for group in 0..8 {
        assert!(
            is_there(group) || !control.flows().any(|flow| of_flow(flow, group)),
            "seed {seed}"
        );
    }
    for own in &descs {
        let mut next = own.buckets.iter().flat_map(|bucket| groups_of(&bucket.actions));
        assert!(next.all(is_there), "seed {seed}: {own:?}");
        let mut watched = own.buckets.iter().map(|bucket| bucket.watch_group);
        assert!(watched.all(|group| group == ANY_GROUP || is_there(group)), "seed {seed}: {own:?}");
    }
}

/// One request; an overlap is refused if, and only if, a walk finds it.
fn change(random: &mut Random, control: &mut FlowControl, seed: u64) -> Result<(), ErrorCode> {
    match random.below(12) {
        0 => {
            let number = random.below(6) as u32;
            let mut group = generate::group(random, number);
            group.command =
                random.of(&[TableCommand::Add, TableCommand::Modify, TableCommand::Delete]);
            if random.one_in(3) {
                group.buckets.iter_mut().for_each(|own| own.watch_group = random.below(6) as u32);
            }
            control.group_mod(&group, 1)
        }
        1 => {
            let command = random.of(&[TableCommand::Add, TableCommand::Delete]);
            let (flags, meter) = (MeterFlags::PKTPS, 1 + random.below(3) as u32);
            control.meter_mod(&MeterMod { command, flags, meter, bands: Vec::new() }, 1)
        }
        _ => {
            let mut flow = generate::flow_mod(random, 6);
            flow.priority = random.of(&[1, 2]);
            flow.table = random.below(2) as u8;
            if random.one_in(2) {
                flow.matches = generate::matches(random);
                flow.instructions.clear();
            }
            if random.one_in(4) && flow.instructions.is_empty() {
                flow.instructions = vec![Instruction::Meter(1 + random.below(3) as u32)];
            }
            if flow.command == FlowCommand::Delete && !random.one_in(4) {
                flow.command = FlowCommand::DeleteStrict;
            }
            let checks = flow.command == FlowCommand::Add && random.one_in(2);
            flow.flags = if checks { FlowFlags::CHECK_OVERLAP } else { FlowFlags::empty() };
            let wanted = overlaps(control, &flow);
            let done = control.flow_mod(&flow, Version::V13, 1);
            if checks && matches!(done, Ok(()) | Err(ErrorCode::FlowModOverlap)) {
                assert_eq!(done.is_err(), wanted, "seed {seed}: {flow:?}");
            }
            done
        }
    }
}

#[test]
fn indexes_and_walks_agree() {
    let mut overlaps = 0;
    for seed in seeds() {
        let mut random = Random(seed);
        let (mut control, _) = FlowControl::new(Settings::of_13(3), 1 << 16, "linear");
        for _ in 0..300 {
            if random.one_in(8) {
                // What is refused in the middle is undone, in the indexes, too.
                let _ = control.all_or_nothing(|control| {
                    (0..5).try_for_each(|_| change(&mut random, control, seed))
                });
            } else {
                let done = change(&mut random, &mut control, seed);
                overlaps += usize::from(done == Err(ErrorCode::FlowModOverlap));
            }
            if random.one_in(10) {
                check_references(&control, seed);
            }
        }
    }
    assert!(overlaps > 500, "{overlaps} overlaps");
}

/// Checks of overlaps, and groups that lead to one another, among so many that walks would take minutes.
#[test]
fn many_flows_and_groups_are_changed_quickly() {
    let (mut control, _) = FlowControl::new(Settings::of_13(1), 1 << 20, "linear");
    let mut flow = FlowMod::new(FlowCommand::Add);
    flow.flags = FlowFlags::CHECK_OVERLAP;
    for group in 0..20_000 {
        let buckets = Vec::new();
        let kind = openflow::GroupType::All;
        let request = GroupMod { command: TableCommand::Add, kind, group, buckets };
        control.group_mod(&request, 1).unwrap();
    }
    for n in 0..40_000_u32 {
        flow.matches.set(Field::EthSrc, n.into(), Field::EthSrc.full());
        flow.instructions = vec![Instruction::ApplyActions(vec![Action::Group(n / 2)])];
        control.flow_mod(&flow, Version::V13, 1).unwrap();
    }
    // Wider than all of them, some that meet none.
    for n in 0..20_000_u32 {
        let value = u128::from(n + 2500) << 4;
        flow.matches.set(Field::EthSrc, value, Field::EthSrc.full() << 4);
        assert_eq!(control.flow_mod(&flow, Version::V13, 1), Ok(()), "{n}");
        flow.matches.set(Field::EthSrc, u128::from(n % 2500) << 4, Field::EthSrc.full() << 4);
        let done = control.flow_mod(&flow, Version::V13, 1);
        assert_eq!(done, Err(ErrorCode::FlowModOverlap), "{n}");
    }
    for group in 0..20_000 {
        let (kind, buckets) = (openflow::GroupType::All, Vec::new());
        let request = GroupMod { command: TableCommand::Delete, kind, group, buckets };
        control.group_mod(&request, 1).unwrap();
    }
    // Those with the wide matches lead to the last group as well.
    assert_eq!(control.len(), 0);
}
