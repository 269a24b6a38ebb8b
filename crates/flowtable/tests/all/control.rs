//! What controllers change: errors, strict and loose, cookies, time-outs, bundles, groups, meters.

use flowtable::{Port, Settings};
use openflow::flow::{ALL_TABLES, ANY_GROUP, FlowCommand, FlowFilter, FlowMod, RemovedReason};
use openflow::group::{
    Band, BandKind, Bucket, GroupMod, GroupType, MeterFlags, MeterMod, TableCommand,
};
use openflow::port::PortConfig;
use openflow::{Action, ErrorCode, Field, FlowFlags, Instruction, Match, PortNo, Version};

use crate::world::World;

const SECOND: u64 = 1_000_000_000;

fn add(matches: Match, priority: u16, actions: Vec<Action>) -> FlowMod {
    let mut own = FlowMod::new(FlowCommand::Add);
    (own.matches, own.priority) = (matches, priority);
    own.instructions = vec![Instruction::ApplyActions(actions)];
    own
}

fn out(port: u32) -> Vec<Action> {
    vec![Action::output(PortNo(port))]
}

fn ipv4() -> Match {
    Match::new().with(Field::EthType, 0x0800u128)
}

fn world() -> World {
    World::new(Settings::of_13(4), "auto")
}

fn apply(world: &mut World, request: &FlowMod) -> Result<(), ErrorCode> {
    world.control.flow_mod(request, Version::V13, SECOND)
}

/// The least of a frame: addresses, EtherType of an experiment, 46 bytes.
fn frame() -> Vec<u8> {
    let mut frame = vec![2; 60];
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

#[test]
fn requests_that_cannot_be_have_their_error() {
    let tcp = ipv4().with(Field::IpProto, 6u128);
    let mut in_table_9 = add(Match::new(), 1, out(1));
    in_table_9.table = 9;
    let mut back = add(Match::new(), 1, out(1));
    back.table = 2;
    back.instructions.push(Instruction::GotoTable(2));
    let mut twice = add(Match::new(), 1, out(1));
    twice.instructions.push(Instruction::ApplyActions(out(2)));
    let mut metered = add(Match::new(), 1, out(1));
    metered.instructions.push(Instruction::Meter(7));
    let mut foreign = add(Match::new(), 1, out(1));
    foreign.instructions = vec![Instruction::Experimenter { id: 77, data: Vec::new() }];
    let set = |field, value| vec![Action::SetField(field, value)];
    let cases = [
        (foreign, ErrorCode::BadInstructionExperimenter),
        (in_table_9, ErrorCode::FlowModTableId),
        (back, ErrorCode::BadInstructionTableId),
        (twice, ErrorCode::BadInstructionDup),
        (metered, ErrorCode::MeterModUnknownMeter),
        (add(Match::new().with(Field::TcpSrc, 80u128), 1, out(1)), ErrorCode::BadMatchPrereq),
        (add(ipv4().with(Field::TcpSrc, 80u128), 1, out(1)), ErrorCode::BadMatchPrereq),
        (add(ipv4().with(Field::Ipv6Src, 1u128), 1, out(1)), ErrorCode::BadMatchPrereq),
        (add(ipv4().with_masked(Field::IpProto, 6, 0xf), 1, out(1)), ErrorCode::BadMatchMask),
        (add(Match::new(), 1, set(Field::Ipv4Src, 1)), ErrorCode::BadActionMatchInconsistent),
        (add(tcp.clone(), 1, set(Field::UdpSrc, 1)), ErrorCode::BadActionMatchInconsistent),
        (add(tcp, 1, set(Field::TcpSrc, 1 << 16)), ErrorCode::BadActionSetArgument),
        (add(Match::new(), 1, set(Field::InPort, 1)), ErrorCode::BadActionSetType),
        (add(Match::new(), 1, vec![Action::PushVlan(0x0800)]), ErrorCode::BadActionArgument),
        (add(Match::new(), 1, vec![Action::PushMpls(0x8100)]), ErrorCode::BadActionArgument),
        (add(Match::new(), 1, vec![Action::output(PortNo::ANY)]), ErrorCode::BadActionOutPort),
        (add(Match::new(), 1, vec![Action::output(PortNo::TABLE)]), ErrorCode::BadActionOutPort),
        (add(Match::new(), 1, vec![Action::Group(1)]), ErrorCode::BadActionOutGroup),
        (add(Match::new(), 1, vec![Action::SetQueue(4)]), ErrorCode::BadActionQueue),
        (
            add(Match::new(), 1, vec![Action::Enqueue { port: PortNo(1), queue: 4 }]),
            ErrorCode::BadActionQueue,
        ),
        (
            add(Match::new(), 1, vec![Action::Enqueue { port: PortNo(9), queue: 3 }]),
            ErrorCode::BadActionQueue,
        ),
    ];
    let mut world = world();
    for (request, error) in cases {
        assert_eq!(apply(&mut world, &request), Err(error), "{request:?}");
    }
    assert!(world.control.is_empty());
    // Actions change what a packet is.
    let pushed = vec![
        Action::PushMpls(0x8847),
        Action::SetField(Field::MplsLabel, 7),
        Action::PopMpls(0x0800),
        Action::SetField(Field::Ipv4Src, 1),
    ];
    apply(&mut world, &add(Match::new(), 1, pushed)).unwrap();
}

/// A datagram of DNS in VLAN 7, with the addresses that a flow may set.
fn tagged_datagram() -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x81, 0, 0, 7, 8, 0]);
    frame.extend([0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = packet::checksum::internet_checksum(&frame[18..]);
    frame[28..30].copy_from_slice(&sum.to_be_bytes());
    frame.extend([4, 0, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4]);
    frame
}

#[test]
fn a_second_tag_of_a_flow_hides_nothing_from_it_and_later_tables() {
    let udp = || ipv4().with(Field::IpProto, 17u128);
    let second = Action::PushVlan(0x88a8);
    let changes = || vec![Action::DecNwTtl, Action::SetField(Field::UdpSrc, 7)];
    let is_right = |frame: &[u8]| {
        assert_eq!(frame[12..22], [0x88, 0xa8, 0, 7, 0x81, 0, 0, 7, 8, 0]);
        assert_eq!((frame[30], &frame[42..46]), (63, &[0, 7, 0, 53][..]));
        assert_eq!(packet::checksum::internet_checksum(&frame[22..42]), 0);
    };

    // In one list, and seen by a later table; the second pop shows what it has shown before.
    let mut world = world();
    let mut first = add(udp(), 1, [vec![second.clone()], changes()].concat());
    first.instructions.push(Instruction::GotoTable(1));
    apply(&mut world, &first).unwrap();
    let mut behind = add(udp().with(Field::UdpSrc, 7u128), 1, out(2));
    behind.table = 1;
    apply(&mut world, &behind).unwrap();
    world.publish();
    let sent = world.send(&[tagged_datagram()], 1, SECOND).sent;
    is_right(&sent[0].1);

    // In the action set tags come first, so all else is behind them.
    let mut set = add(udp(), 1, Vec::new());
    let all = [out(2), changes(), vec![second.clone()]].concat();
    set.instructions = vec![Instruction::WriteActions(all)];
    apply(&mut world, &set).unwrap();
    world.publish();
    let sent = world.send(&[tagged_datagram()], 1, SECOND).sent;
    is_right(&sent[0].1);

    let pops = vec![second.clone(), second, Action::PopVlan, Action::PopVlan];
    let list = [pops, changes(), vec![Action::PopVlan, Action::SetField(Field::UdpDst, 9)], out(2)];
    apply(&mut world, &add(udp(), 1, list.concat())).unwrap();
    world.publish();
    let sent = world.send(&[tagged_datagram()], 1, SECOND).sent;
    let frame = &sent[0].1;
    assert_eq!((&frame[12..14], frame[22], &frame[34..38]), (&[8, 0][..], 63, &[0, 7, 0, 9][..]));
}

#[test]
fn a_trace_sends_where_packets_go() {
    let mut world = world();
    let port = |number: u32, config| Port { number: PortNo(number), config, live: true };
    world.control.set_port(PortNo(3), Some(port(3, PortConfig::NO_FLOOD)));
    world.control.set_port(PortNo(4), Some(port(4, PortConfig::PORT_DOWN)));
    let flood = vec![Action::output(PortNo::FLOOD), Action::output(PortNo(77))];
    apply(&mut world, &add(Match::new(), 1, flood)).unwrap();
    let traced =
        |world: &World, packet: &Match, ttl| flowtable::trace::trace(&world.control, packet, ttl);
    let lines = traced(&world, &Match::new().with(Field::InPort, 1u128), None);
    assert_eq!(lines.last().unwrap(), "sent to: 2", "{lines:?}");
    let said = lines.join("\n");
    assert!(said.contains("port 4 is configured not to forward"), "{said}");
    assert!(said.contains("there is no port 77"), "{said}");
    world.publish();
    let sent = world.send(&[frame()], 1, SECOND).sent;
    assert_eq!(sent.len(), 1);

    // A tag that covers another one, and is popped again.
    let mut first = add(Match::new(), 1, vec![Action::PushVlan(0x88a8), Action::PopVlan]);
    first.instructions.push(Instruction::GotoTable(1));
    apply(&mut world, &first).unwrap();
    let tagged = Match::new().with(Field::VlanVid, 0x1007u128);
    let mut second = add(tagged.clone(), 1, out(2));
    second.table = 1;
    apply(&mut world, &second).unwrap();
    let lines = traced(&world, &tagged.with(Field::InPort, 1u128), None);
    assert_eq!(lines.last().unwrap(), "sent to: 2", "{lines:?}");
}

/// Of a group that sends a packet by one of its buckets, a trace says by which it may go.
#[test]
fn a_trace_names_the_buckets_that_a_packet_may_take() {
    for (kind, expected) in
        [(GroupType::All, "sent to: 2, 3"), (GroupType::Select, "sent to: one of 2, 3")]
    {
        let mut world = world();
        let mut own = group(9, vec![out(2), out(3)]);
        own.kind = kind;
        if kind == GroupType::Select {
            own.buckets.iter_mut().for_each(|bucket| bucket.weight = 1);
        }
        world.control.group_mod(&own, SECOND).unwrap();
        apply(&mut world, &add(ipv4(), 1, vec![Action::Group(9)])).unwrap();
        let packet = ipv4().with(Field::InPort, 1u128);
        let lines = flowtable::trace::trace(&world.control, &packet, None);
        assert_eq!(lines.last().unwrap(), expected, "{lines:?}");
    }
}

/// A trace takes the bucket of a fast failover group that packets take, and follows all buckets of large groups.
#[test]
fn a_trace_takes_the_first_live_bucket() {
    let mut world = world();
    let mut own = group(9, vec![out(2), out(3)]);
    own.kind = GroupType::FastFailover;
    (own.buckets[0].watch_port, own.buckets[1].watch_port) = (PortNo(2), PortNo(3));
    world.control.group_mod(&own, SECOND).unwrap();
    apply(&mut world, &add(ipv4(), 1, vec![Action::Group(9)])).unwrap();
    let packet = ipv4().with(Field::InPort, 1u128);
    let last = |world: &World| {
        let lines = flowtable::trace::trace(&world.control, &packet, None);
        (lines.last().unwrap().clone(), lines.join("\n"))
    };
    let (sent, said) = last(&world);
    assert_eq!(sent, "sent to: 2", "{said}");
    let port = |number, live| Port { number: PortNo(number), config: PortConfig::empty(), live };
    world.control.set_port(PortNo(2), Some(port(2, false)));
    let (sent, said) = last(&world);
    assert_eq!(sent, "sent to: 3", "{said}");
    world.control.set_port(PortNo(3), Some(port(3, false)));
    let (sent, said) = last(&world);
    assert!(sent == "sent to: nowhere" && said.contains("no bucket is live"), "{said}");

    let mut many = group(9, vec![out(3); 40].into_iter().chain([out(2)]).collect());
    (many.command, many.kind) = (TableCommand::Modify, GroupType::All);
    world.control.set_port(PortNo(2), Some(port(2, true)));
    world.control.group_mod(&many, SECOND).unwrap();
    assert_eq!(last(&world).0, "sent to: 2");
    many.buckets.clear();
    world.control.group_mod(&many, SECOND).unwrap();
    let (sent, said) = last(&world);
    assert!(sent == "sent to: nowhere" && said.contains("there is no bucket: dropped"), "{said}");
}

/// A dump of a table that there is not is refused.
#[test]
fn tables_that_are_dumped_are_there() {
    let world = world();
    let of = |table| FlowFilter { table, ..FlowFilter::all() };
    let dump = |table| world.control.flow_stats(&of(table), Version::V13, SECOND).map(|_| ());
    assert_eq!(dump(ALL_TABLES), Ok(()));
    assert_eq!(dump(0), Ok(()));
    assert_eq!(dump(77), Err(ErrorCode::BadRequestTableId));
    let sum = world.control.aggregate(&of(77), Version::V13);
    assert_eq!(sum.map(|_| ()), Err(ErrorCode::BadRequestTableId));
}

/// TTLs are those of IP or of a label, ports those of a protocol: the match or an action before says which.
#[test]
fn actions_need_what_they_change() {
    let mut world = world();
    let wrong = Err(ErrorCode::BadActionMatchInconsistent);
    let arp = Match::new().with(Field::EthType, 0x0806u128);
    for (matches, actions, expected) in [
        (arp.clone(), vec![Action::DecNwTtl], wrong),
        (Match::new(), vec![Action::SetNwTtl(9)], wrong),
        (ipv4(), vec![Action::DecMplsTtl], wrong),
        (ipv4(), vec![Action::DecNwTtl, Action::PushMpls(0x8847), Action::SetMplsTtl(9)], Ok(())),
        (arp, vec![Action::PushMpls(0x8847), Action::DecNwTtl], wrong),
        (Match::new(), vec![Action::PopPbb, Action::DecNwTtl], Ok(())),
        (Match::new(), vec![Action::PopPbb, Action::PushMpls(0x8847), Action::DecNwTtl], wrong),
        (ipv4(), vec![Action::SetTpDst(4)], wrong),
        (
            ipv4().with(Field::IpProto, 17u128),
            vec![Action::SetTpDst(4), Action::SetTpSrc(5)],
            Ok(()),
        ),
    ] {
        assert_eq!(apply(&mut world, &add(matches, 1, actions.clone())), expected, "{actions:?}");
    }
    // What one list leaves, the next one finds.
    let mut flow = add(Match::new(), 1, vec![Action::PopPbb]);
    flow.instructions.push(Instruction::WriteActions(vec![Action::DecNwTtl]));
    assert_eq!(apply(&mut world, &flow), Ok(()));
}

/// What extensions and emergencies there are not is refused with its own error, and changes nothing.
#[test]
fn what_is_not_there_is_named() {
    let mut world = world();
    for (id, expected) in [
        (0x2320, ErrorCode::BadActionExperimenterType),
        (0x4f4e_4600, ErrorCode::BadActionExperimenterType),
        (77, ErrorCode::BadActionExperimenter),
    ] {
        let actions = vec![Action::Experimenter { id, data: vec![0; 8] }];
        assert_eq!(apply(&mut world, &add(ipv4(), 1, actions.clone())), Err(expected));
        let mut flow = add(ipv4(), 1, Vec::new());
        flow.instructions = vec![Instruction::WriteActions(actions)];
        assert_eq!(apply(&mut world, &flow), Err(expected));
    }
    let plain = add(ipv4(), 1, vec![Action::output(PortNo(2))]);
    world.control.flow_mod(&plain, Version::V10, SECOND).unwrap();
    for (command, timeout, expected) in [
        (FlowCommand::Add, 0, ErrorCode::FlowModTableFull),
        (FlowCommand::Add, 5, ErrorCode::FlowModEmergTimeout),
        (FlowCommand::Modify, 0, ErrorCode::FlowModTableFull),
        (FlowCommand::Delete, 0, ErrorCode::FlowModTableFull),
    ] {
        let flags = FlowFlags::EMERG;
        let request = FlowMod { command, idle_timeout: timeout, flags, ..plain.clone() };
        assert_eq!(world.control.flow_mod(&request, Version::V10, SECOND), Err(expected));
    }
    assert_eq!(world.control.len(), 1);
}

/// A VLAN that is set says that there is one (OpenFlow 1.3.5 table 13), and fields are listed behind what they need.
#[test]
fn what_is_listed_can_be_read_by_others() {
    let mut world = world();
    let tagged = Match::new().with(Field::VlanVid, 0x1007u128);
    let set = |vid: u128| add(tagged.clone(), 1, vec![Action::SetField(Field::VlanVid, vid)]);
    assert_eq!(apply(&mut world, &set(5)), Err(ErrorCode::BadActionSetArgument));
    apply(&mut world, &set(0x1005)).unwrap();
    let odd = Match::new()
        .with(Field::TcpDst, 80u128)
        .with(Field::IpProto, 6u128)
        .with(Field::EthType, 0x0800u128);
    apply(&mut world, &add(odd, 2, out(2))).unwrap();
    let flow = world.control.flows().find(|flow| flow.priority == 2).unwrap();
    let order: Vec<Field> = flow.matches.fields().iter().map(|own| own.field).collect();
    assert_eq!(order, [Field::EthType, Field::IpProto, Field::TcpDst]);
}

/// The TTL is followed where it is given, through labels too; where it ends, the controller gets the packet, as in the pipeline.
#[test]
fn a_trace_follows_the_ttl() {
    let mut world = world();
    let pushed = [
        Action::DecNwTtl,
        Action::PushMpls(0x8847),
        Action::DecMplsTtl,
        Action::CopyTtlIn,
        Action::PopMpls(0x0800),
        Action::DecNwTtl,
    ];
    let first = add(ipv4(), 1, [&pushed[..], &out(2)].concat());
    apply(&mut world, &first).unwrap();
    let packet = ipv4().with(Field::InPort, 1u128);
    let last = |ttl| {
        let lines = flowtable::trace::trace(&world.control, &packet, ttl);
        (lines.last().unwrap().clone(), lines.join("\n"))
    };
    let (sent, said) = last(Some(64));
    assert_eq!(sent, "sent to: 2", "{said}");
    for line in ["dec_ttl (TTL 63)", "dec_mpls_ttl (TTL 62)", "dec_ttl (TTL 61)"] {
        assert!(said.contains(line), "{line} in {said}");
    }
    for ttl in 0..=3 {
        let (sent, said) = last(Some(ttl));
        assert_eq!(sent, "sent to: CONTROLLER", "{said}");
        assert!(said.contains("the TTL ends"), "{said}");
    }
    assert_eq!(last(Some(4)).0, "sent to: 2");
    let (sent, said) = last(None);
    assert!(sent == "sent to: 2" && !said.contains("TTL "), "{said}");

    // The pipeline says the same.
    world.publish();
    for ttl in [1, 3, 4, 64] {
        let mut frame = tagged_datagram();
        frame[26] = ttl; // the checksum is not looked at
        let sent = world.send(&[frame], 1, SECOND).sent;
        assert_eq!(sent.iter().any(|sent| sent.2.port == PortNo(2)), ttl >= 4, "{ttl}");
    }
}

#[test]
fn full_tables_and_overlaps_are_refused() {
    let (mut control, _) = flowtable::FlowControl::new(Settings::of_13(1), 2, "auto");
    for (priority, wanted) in [(1, Ok(())), (2, Ok(())), (3, Err(ErrorCode::FlowModTableFull))] {
        let request = add(Match::new(), priority, out(1));
        assert_eq!(control.flow_mod(&request, Version::V13, 0), wanted);
    }
    control.flow_mod(&add(Match::new(), 2, out(2)), Version::V13, 0).unwrap();
    let mut world = world();
    apply(&mut world, &add(ipv4(), 7, out(1))).unwrap();
    let mut request = add(Match::new().with(Field::InPort, 1u128), 7, out(1));
    request.flags = FlowFlags::CHECK_OVERLAP;
    assert_eq!(apply(&mut world, &request), Err(ErrorCode::FlowModOverlap));
    request.priority = 8;
    apply(&mut world, &request).unwrap();
    request.matches = Match::new().with(Field::EthType, 0x0806u128);
    request.priority = 7;
    apply(&mut world, &request).unwrap();
}

#[test]
fn strict_is_one_flow_and_loose_all_within() {
    let mut world = world();
    let source = |mask| ipv4().with_masked(Field::Ipv4Src, 0x0a00_0000, mask);
    for (mask, port) in [(0xff00_0000u128, 1), (0xffff_0000, 2), (0xffff_ff00, 3)] {
        let mut request = add(source(mask), 5, out(port));
        request.cookie = u64::from(port);
        apply(&mut world, &request).unwrap();
    }
    let count = |world: &World, matches: Match| {
        let filter = FlowFilter { matches, ..FlowFilter::all() };
        world.control.aggregate(&filter, Version::V13).unwrap().flows
    };
    assert_eq!(count(&world, source(0xffff_0000)), 2);
    assert_eq!(count(&world, Match::new()), 3);
    let mut strict = FlowMod::new(FlowCommand::DeleteStrict);
    (strict.matches, strict.priority) = (source(0xffff_0000), 4);
    apply(&mut world, &strict).unwrap();
    assert_eq!(count(&world, Match::new()), 3, "another priority");
    strict.priority = 5;
    strict.out_port = PortNo(3);
    apply(&mut world, &strict).unwrap();
    assert_eq!(count(&world, Match::new()), 3, "sends to another port");
    strict.out_port = PortNo(2);
    apply(&mut world, &strict).unwrap();
    assert_eq!(count(&world, Match::new()), 2);
    let mut loose = FlowMod::new(FlowCommand::Delete);
    (loose.cookie, loose.cookie_mask, loose.table) = (3, 3, 0xff);
    apply(&mut world, &loose).unwrap();
    assert_eq!(count(&world, Match::new()), 1, "the cookie");
    let mut modify = add(ipv4(), 0, out(4));
    modify.command = FlowCommand::Modify;
    apply(&mut world, &modify).unwrap();
    let stats = world.control.flow_stats(&FlowFilter::all(), Version::V13, SECOND).unwrap();
    assert_eq!(stats[0].instructions, modify.instructions);
    assert_eq!((stats[0].priority, stats[0].cookie), (5, 1));
}

/// Requests of 1.0 with Nicira's extension: no table is table 0 or all, a modify gives cookies and adds a flow unless it names some.
#[test]
fn requests_of_10_name_tables_and_cookies() {
    let mut world = world();
    let mut apply = |request: &FlowMod| {
        world.control.flow_mod(request, Version::V10, SECOND).unwrap();
        let all = world.control.flow_stats(&FlowFilter::all(), Version::V10, SECOND).unwrap();
        let mut all: Vec<_> = all.iter().map(|flow| (flow.table, flow.cookie)).collect();
        all.sort_unstable();
        all
    };
    let of = |command, table, cookie| {
        let mut own = add(ipv4(), 5, out(1));
        (own.command, own.table, own.cookie) = (command, table, cookie);
        own
    };
    assert_eq!(apply(&of(FlowCommand::Add, 0xff, 1)), [(0, 1)]);
    assert_eq!(apply(&of(FlowCommand::Add, 2, 0x12)), [(0, 1), (2, 0x12)]);
    let modify = |cookie_mask, new_cookie| {
        let own = of(FlowCommand::Modify, 0xff, 2);
        FlowMod { cookie_mask, new_cookie, ..own }
    };
    assert_eq!(apply(&modify(0xf, Some(0x22))), [(0, 1), (2, 0x22)]);
    assert_eq!(apply(&modify(0xff, Some(9))), [(0, 1), (2, 0x22)], "none has it, none is added");
    assert_eq!(apply(&modify(0, None)), [(0, 1), (2, 0x22)], "they keep theirs");
    assert_eq!(apply(&modify(0, Some(7))), [(0, 7), (2, 7)]);
    let mut other = modify(0, Some(8));
    other.matches = Match::new().with(Field::EthType, 0x0806u128);
    assert_eq!(apply(&other), [(0, 7), (0, 8), (2, 7)]);
    let delete = FlowMod { cookie_mask: 0xf, ..of(FlowCommand::DeleteStrict, 0xff, 7) };
    assert_eq!(apply(&delete), [(0, 8)]);
}

#[test]
fn flows_count_and_a_flow_that_is_added_again_keeps_its_counters() {
    let mut world = world();
    let mut request = add(Match::new(), 5, out(2));
    apply(&mut world, &request).unwrap();
    world.publish();
    let sent = world.send(&[frame(), frame()], 1, 2 * SECOND).sent;
    assert_eq!(sent.iter().map(|(.., to)| to.port).collect::<Vec<_>>(), [PortNo(2); 2]);
    let counted = |world: &World| {
        let all = world.control.aggregate(&FlowFilter::all(), Version::V13).unwrap();
        (all.packets, all.bytes)
    };
    assert_eq!(counted(&world), (2, 120));
    request.instructions = vec![Instruction::ApplyActions(out(3))];
    apply(&mut world, &request).unwrap();
    world.publish();
    assert_eq!(world.send(&[frame()], 1, 2 * SECOND).sent[0].2.port, PortNo(3));
    assert_eq!(counted(&world), (3, 180));
    request.flags = FlowFlags::RESET_COUNTS;
    apply(&mut world, &request).unwrap();
    assert_eq!(counted(&world), (0, 0));
}

#[test]
fn flows_leave_when_their_time_is_over() {
    let mut world = world();
    let mut idle = add(Match::new(), 5, out(2));
    (idle.idle_timeout, idle.flags) = (10, FlowFlags::SEND_FLOW_REM);
    let mut hard = add(ipv4(), 5, out(2));
    (hard.hard_timeout, hard.flags) = (15, FlowFlags::SEND_FLOW_REM);
    apply(&mut world, &idle).unwrap();
    apply(&mut world, &hard).unwrap();
    world.publish();
    assert_eq!(world.control.next_deadline(), Some(11 * SECOND));
    world.send(&[frame()], 1, 5 * SECOND);
    assert_eq!(world.control.expire(14 * SECOND), 0, "a packet came at 5 s");
    assert_eq!(world.control.expire(15 * SECOND), 1);
    assert_eq!(world.control.expire(16 * SECOND), 1);
    let removed = world.control.take_removed();
    let reasons: Vec<_> = removed.iter().map(|own| own.reason).collect();
    assert_eq!(reasons, [RemovedReason::IdleTimeout, RemovedReason::HardTimeout]);
    assert_eq!((removed[0].packets, removed[0].duration.as_secs()), (1, 14));
    world.publish();
    assert!(world.send(&[frame()], 1, 17 * SECOND).sent.is_empty());
}

#[test]
fn what_belongs_together_is_carried_out_as_a_whole() {
    let mut world = world();
    apply(&mut world, &add(ipv4(), 5, out(1))).unwrap();
    let result = world.control.all_or_nothing(|control| {
        control.group_mod(&group(1, vec![out(2)]), SECOND)?;
        control.flow_mod(&add(Match::new(), 9, vec![Action::Group(1)]), Version::V13, SECOND)?;
        let mut delete = FlowMod::new(FlowCommand::Delete);
        delete.table = 0xff;
        control.flow_mod(&delete, Version::V13, SECOND)?;
        control.flow_mod(&add(Match::new(), 9, vec![Action::Group(2)]), Version::V13, SECOND)
    });
    assert_eq!(result, Err(ErrorCode::BadActionOutGroup));
    assert_eq!((world.control.len(), world.control.group_descs().len()), (1, 0));
    world.publish();
    let stats = world.control.flow_stats(&FlowFilter::all(), Version::V13, SECOND).unwrap();
    assert_eq!(stats[0].matches, ipv4());
    assert!(world.send(&[frame()], 3, SECOND).sent.is_empty());
}

fn bucket(actions: Vec<Action>) -> Bucket {
    Bucket { weight: 0, watch_port: PortNo::ANY, watch_group: ANY_GROUP, actions }
}

fn group(number: u32, buckets: Vec<Vec<Action>>) -> GroupMod {
    let buckets = buckets.into_iter().map(bucket).collect();
    GroupMod { command: TableCommand::Add, kind: GroupType::All, group: number, buckets }
}

#[test]
fn loops_of_groups_are_refused_and_groups_leave_with_their_flows() {
    let mut world = world();
    let control = &mut world.control;
    control.group_mod(&group(1, vec![out(2)]), SECOND).unwrap();
    control.group_mod(&group(2, vec![vec![Action::Group(1)], out(3)]), SECOND).unwrap();
    let mut back = group(1, vec![vec![Action::Group(2)]]);
    assert_eq!(control.group_mod(&back, SECOND), Err(ErrorCode::GroupModExists));
    back.command = TableCommand::Modify;
    assert_eq!(control.group_mod(&back, SECOND), Err(ErrorCode::GroupModLoop));
    let itself = group(3, vec![vec![Action::Group(3)]]);
    assert_eq!(control.group_mod(&itself, SECOND), Err(ErrorCode::GroupModLoop));
    let unknown = group(3, vec![vec![Action::Group(8)]]);
    assert_eq!(control.group_mod(&unknown, SECOND), Err(ErrorCode::GroupModUnknown));
    // As long as chains may be, and one more.
    let mut last = 2;
    let refused = (10..30).find_map(|number| {
        let result = control.group_mod(&group(number, vec![vec![Action::Group(last)]]), SECOND);
        last = number;
        result.err()
    });
    assert_eq!(refused, Some(ErrorCode::GroupModChaining));
    let request = add(Match::new(), 5, vec![Action::Group(2)]);
    apply(&mut world, &request).unwrap();
    world.publish();
    let ports: Vec<_> =
        world.send(&[frame()], 1, SECOND).sent.iter().map(|own| own.2.port).collect();
    assert_eq!(ports, [PortNo(2), PortNo(3)]);
    let stats = world.control.group_stats(1, SECOND);
    assert_eq!((stats[0].packets, stats[0].bytes, stats[0].references), (1, 60, 1));
    let mut delete = group(1, vec![]);
    delete.command = TableCommand::Delete;
    world.control.group_mod(&delete, SECOND).unwrap();
    assert_eq!((world.control.len(), world.control.group_descs().len()), (0, 0));
}

/// Groups multiply: there is a bound.
#[test]
fn copies_have_a_bound() {
    let mut world = world();
    let mut last = out(2);
    for number in 1..=7 {
        world.control.group_mod(&group(number, vec![last; 16]), SECOND).unwrap();
        last = vec![Action::Group(number)];
    }
    apply(&mut world, &add(Match::new(), 5, last)).unwrap();
    world.publish();
    let sent = world.send(&[frame()], 1, SECOND).sent.len();
    assert!((900..=1100).contains(&sent), "{sent}");
}

#[test]
fn fast_failover_follows_the_ports() {
    let mut world = world();
    let mut request = group(1, vec![out(2), out(3)]);
    request.kind = GroupType::FastFailover;
    for (bucket, port) in request.buckets.iter_mut().zip([2, 3]) {
        bucket.watch_port = PortNo(port);
    }
    world.control.group_mod(&request, SECOND).unwrap();
    apply(&mut world, &add(Match::new(), 5, vec![Action::Group(1)])).unwrap();
    let port = |world: &mut World, number, live| {
        let number = PortNo(number);
        let port = Port { number, config: PortConfig::empty(), live };
        world.control.set_port(number, Some(port));
        world.publish();
        world.send(&[frame()], 1, SECOND).sent.first().map(|own| own.2.port)
    };
    assert_eq!(port(&mut world, 2, true), Some(PortNo(2)));
    assert_eq!(port(&mut world, 2, false), Some(PortNo(3)));
    assert_eq!(port(&mut world, 3, false), None);
    assert_eq!(port(&mut world, 2, true), Some(PortNo(2)));
}

/// Of a bucket that watches nothing, nobody knows whether it is live.
#[test]
fn a_bucket_of_fast_failover_watches_something() {
    let mut world = world();
    let mut request = group(1, vec![out(2), out(3)]);
    request.kind = GroupType::FastFailover;
    request.buckets[0].watch_port = PortNo(2);
    assert_eq!(world.control.group_mod(&request, SECOND), Err(ErrorCode::GroupModBadWatch));
    assert_eq!(world.control.group_descs().len(), 0);
    request.buckets[1].watch_port = PortNo::LOCAL;
    world.control.group_mod(&request, SECOND).unwrap();
}

/// Groups that watch groups: looking for a live one has a bound.
#[test]
fn looking_for_a_live_bucket_has_a_bound() {
    let mut world = world();
    for kind in [GroupType::FastFailover, GroupType::Select] {
        for number in 1..=8 {
            let mut request = group(number, vec![out(2); 256]);
            request.kind = kind;
            for bucket in &mut request.buckets {
                bucket.weight = u16::from(kind == GroupType::Select);
                match number {
                    1 => bucket.watch_port = PortNo(77),
                    _ => bucket.watch_group = number - 1,
                }
            }
            world.control.group_mod(&request, SECOND).unwrap();
        }
        apply(&mut world, &add(Match::new(), 5, vec![Action::Group(8)])).unwrap();
        world.publish();
        let out = world.send(&[frame()], 1, SECOND);
        assert_eq!((out.sent.len(), out.dropped.len()), (0, 1));
        let mut all = group(openflow::group::ALL_GROUPS, vec![]);
        all.command = TableCommand::Delete;
        world.control.group_mod(&all, SECOND).unwrap();
    }
}

#[test]
fn meters_are_checked_and_leave_with_their_flows() {
    let mut world = world();
    let band = |rate| Band { kind: BandKind::Drop, rate, burst: 0 };
    let request = |command, meter, rate| MeterMod {
        command,
        flags: MeterFlags::PKTPS,
        meter,
        bands: vec![band(rate)],
    };
    let control = &mut world.control;
    let add_it = TableCommand::Add;
    assert_eq!(control.meter_mod(&request(add_it, 0, 5), 0), Err(ErrorCode::MeterModInvalid));
    assert_eq!(control.meter_mod(&request(add_it, 1, 0), 0), Err(ErrorCode::MeterModRate));
    control.meter_mod(&request(add_it, 1, 10), 0).unwrap();
    assert_eq!(control.meter_mod(&request(add_it, 1, 10), 0), Err(ErrorCode::MeterModExists));
    let mut flow = add(Match::new(), 5, out(2));
    flow.instructions.insert(0, Instruction::Meter(1));
    apply(&mut world, &flow).unwrap();
    world.publish();
    let out = world.send(&vec![frame(); 5], 1, SECOND);
    assert_eq!((out.sent.len(), out.dropped.len()), (1, 4));
    let stats = world.control.meter_stats(1, SECOND);
    assert_eq!((stats[0].packets, stats[0].bands[0].packets, stats[0].flows), (5, 4, 1));
    world.control.meter_mod(&request(TableCommand::Delete, 1, 1), 0).unwrap();
    assert!(world.control.is_empty());
}

#[test]
fn a_packet_out_acts_and_may_go_through_the_tables() {
    let mut world = world();
    apply(&mut world, &add(Match::new().with(Field::InPort, 4u128), 5, out(2))).unwrap();
    world.publish();
    let mut sent = |actions: &[Action], in_port| {
        let mut out = crate::world::Out::default();
        let World { tables, pipeline, .. } = &mut world;
        pipeline.act(tables, actions, (frame(), in_port, SECOND), &mut out);
        out.sent.iter().map(|own| own.2.port.0).collect::<Vec<_>>()
    };
    assert_eq!(sent(&out(3), PortNo::CONTROLLER), [3]);
    assert_eq!(sent(&[Action::output(PortNo::FLOOD)], PortNo::CONTROLLER), [1, 2, 3, 4]);
    let table = Action::output(PortNo::TABLE);
    assert_eq!(sent(std::slice::from_ref(&table), PortNo(4)), [2]);
    assert_eq!(sent(&[out(1), vec![table.clone()], out(3)].concat(), PortNo(4)), [1, 3, 2]);
    assert!(sent(&[table], PortNo::CONTROLLER).is_empty());
}

#[test]
fn packets_of_controllers_alone_go_to_the_tables() {
    let mut world = world();
    let to_table = out(PortNo::TABLE.0);
    assert_eq!(world.control.check_packet_out(&to_table), Ok(()));
    let wrong = out(PortNo::ANY.0);
    assert_eq!(world.control.check_packet_out(&wrong), Err(ErrorCode::BadActionOutPort));
    let flow = add(Match::new(), 1, to_table.clone());
    assert_eq!(apply(&mut world, &flow), Err(ErrorCode::BadActionOutPort));
    assert!(world.control.group_mod(&group(1, vec![to_table]), SECOND).is_err());
}

#[test]
fn ports_that_there_are_not_are_refused() {
    let mut world = world();
    let local = add(Match::new(), 1, out(PortNo::LOCAL.0));
    assert_eq!(apply(&mut world, &local), Err(ErrorCode::BadActionOutPort));
    let sent = world.control.check_packet_out(&out(PortNo::LOCAL.0));
    assert_eq!(sent, Err(ErrorCode::BadActionOutPort));
    let port = Port { number: PortNo::LOCAL, config: PortConfig::empty(), live: true };
    world.control.set_port(PortNo::LOCAL, Some(port));
    assert_eq!(apply(&mut world, &local), Ok(()));
    assert_eq!(apply(&mut world, &add(Match::new(), 1, out(PortNo::NORMAL.0))), Ok(()));
}

#[test]
fn the_flows_that_a_change_is_about_are_counted() {
    let mut world = world();
    for priority in [1, 2] {
        apply(&mut world, &add(ipv4(), priority, out(2))).unwrap();
    }
    let count = |command, matches, priority| {
        let request = FlowMod { command, ..add(matches, priority, out(3)) };
        world.control.matching(&request, Version::V13)
    };
    assert_eq!(count(FlowCommand::Modify, ipv4(), 0), Ok(2));
    assert_eq!(count(FlowCommand::ModifyStrict, ipv4(), 2), Ok(1));
    assert_eq!(count(FlowCommand::ModifyStrict, ipv4(), 3), Ok(0));
    assert_eq!(count(FlowCommand::Delete, Match::new(), 0), Ok(2));
    assert_eq!(count(FlowCommand::Modify, Match::new().with(Field::EthType, 0x0806u128), 0), Ok(0));
}
