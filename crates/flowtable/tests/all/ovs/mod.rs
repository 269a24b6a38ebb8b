//! Flows and packets into Open vSwitch's userspace datapath as well: the same frames leave by the same ports, byte by byte.
//!
//! What the two switches do in different ways on purpose is left out, each with its reason: of random flows in [`is_common`], of
//! Ryu's cases in [`OTHER`] and [`LACKS`]. A flow that Open vSwitch refuses is taken away here, too. Flows that overlap with one priority are
//! refused, because either may win. No packet misses a table: Open vSwitch then carries
//! out what the action set has, and by the specification the packet is dropped (1.3, section 5.4).

mod switch;

use openflow::group::{
    ALL_GROUPS, ALL_METERS, GroupMod, GroupType, MeterFlags, MeterMod, TableCommand,
};
use openflow::message::Body;
use openflow::{Action, ErrorCode, Field, FlowCommand, FlowFlags, FlowMod, Instruction};
use openflow::{PortNo, Version};
use serde_json::Value;

use self::switch::marker;
pub use self::switch::{Failure, Frames, Ovs};
use crate::generate;
use crate::random::Random;
use crate::ryu;
use crate::world::World;
use flowtable::Settings;

/// Rounds, and what there is in each.
const ROUNDS: u64 = 16;
const FLOWS: usize = 40;
const FRAMES: usize = 60;

/// No flows, groups and meters but the one of the marker.
pub fn clear(ovs: &mut Ovs, version: Version) -> Result<(), Failure> {
    let mut flows = FlowMod::new(FlowCommand::Delete);
    if version == Version::V13 {
        flows.table = openflow::flow::ALL_TABLES;
    }
    ovs.request(Body::FlowMod(flows))?;
    if version == Version::V13 {
        let groups = GroupMod {
            command: TableCommand::Delete,
            kind: GroupType::All,
            group: ALL_GROUPS,
            buckets: Vec::new(),
        };
        ovs.request(Body::GroupMod(groups))?;
        let meters = MeterMod {
            command: TableCommand::Delete,
            flags: MeterFlags::empty(),
            meter: ALL_METERS,
            bands: Vec::new(),
        };
        ovs.request(Body::MeterMod(meters))?;
    }
    ovs.request(marker())
}

/// Whether both switches do the same with a flow.
fn is_common(flow: &FlowMod) -> bool {
    let fields = flow.matches.fields();
    // Open vSwitch has no physical ports, no PBB and no field of extension headers.
    let other = [Field::InPhyPort, Field::PbbIsid, Field::Ipv6Exthdr];
    let has_other = fields.iter().any(|own| other.contains(&own.field));
    let is_pbb = flow.matches.exact(Field::EthType) == Some(0x88e7);
    // A mask of the VLAN without the bit that says whether there is one is not matched as it is there.
    let vlan = flow.matches.get(Field::VlanVid);
    let odd_vlan = vlan.is_some_and(|own| !own.is_exact() && own.mask & 0x1000 == 0);
    // A second tag is of VLAN 0 there, and of that of the first by the specification.
    let pushes = |actions: &[Action]| {
        actions.iter().filter(|own| matches!(own, Action::PushVlan(_))).count()
    };
    let tags_once = flow.instructions.iter().all(|own| match own {
        Instruction::ApplyActions(actions) => {
            let is_bare = flow.matches.exact(Field::VlanVid) == Some(0);
            pushes(actions) <= usize::from(is_bare)
        }
        Instruction::WriteActions(actions) => pushes(actions) == 0,
        _ => true,
    });
    let mut actions = flow.instructions.iter().flat_map(|own| match own {
        Instruction::ApplyActions(actions) | Instruction::WriteActions(actions) => &actions[..],
        _ => &[],
    });
    // The label and class of a new MPLS entry are those of IP there, and zero by the specification. What decrements a TTL of MPLS
    // that is not there drops the packet there, and here does nothing.
    let is_mpls = matches!(flow.matches.exact(Field::EthType), Some(0x8847 | 0x8848));
    let has_other_action = actions.any(|own| match own {
        Action::PushMpls(_) => true,
        // Stations are learned behind the tables.
        Action::Output { port, .. } => matches!(*port, PortNo::NORMAL | PortNo::LOCAL),
        Action::DecMplsTtl => !is_mpls,
        Action::SetField(field, _) => other.contains(field),
        _ => false,
    });
    tags_once && !(has_other || is_pbb || odd_vlan || has_other_action)
}

/// What leaves by each port.
pub fn pass(world: &mut World, frames: &[Vec<u8>]) -> Frames {
    let mut out = Frames::default();
    // Rows leave the tables one by one, in no order.
    let mut sent = world.send_read(frames, 1, 1).sent;
    sent.sort_by_key(|(row, ..)| *row);
    for (_, frame, to) in sent {
        assert_ne!(to.port, PortNo::NORMAL);
        if let 1..=4 = to.port.0 {
            out[to.port.0 as usize - 1].push(frame);
        }
    }
    out
}

/// What the rounds counted.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    flows: usize,
    /// Of the flows, by Open vSwitch.
    refused: usize,
    /// Frames sent by Open vSwitch.
    sent: usize,
    /// Frames that it handles in another way on purpose.
    otherwise: usize,
}

/// Flows of one round, into both.
fn random_flows(
    random: &mut Random,
    world: &mut World,
    ovs: &mut Ovs,
    counts: &mut Counts,
) -> Result<(), Failure> {
    let groups = random.below(4) as u32;
    for number in 0..groups {
        // Which bucket of several takes a packet is up to the switch.
        let mut group = generate::group(random, number);
        group.buckets.truncate(if group.kind == GroupType::Select { 1 } else { 4 });
        for bucket in &mut group.buckets {
            let mut flow = FlowMod::new(FlowCommand::Add);
            bucket.actions.retain(|action| {
                flow.instructions = vec![Instruction::ApplyActions(vec![action.clone()])];
                is_common(&flow)
            });
        }
        // Setting a field that not every packet has is refused there.
        let has_vlan = |action: &Action| matches!(action, Action::SetField(Field::VlanVid, _));
        group.buckets.iter_mut().for_each(|own| own.actions.retain(|action| !has_vlan(action)));
        if world.control.group_mod(&group, 1).is_ok() {
            ovs.request(Body::GroupMod(group))?;
        }
    }
    while world.control.len() < FLOWS {
        let mut flow = generate::flow_mod(random, groups);
        if world.control.len() < 3 {
            // What no other flow takes goes on, and out.
            flow = FlowMod::new(FlowCommand::Add);
            (flow.table, flow.priority) = (world.control.len() as u8, 0);
            let port = PortNo(2 + u32::from(flow.table));
            flow.instructions = vec![Instruction::ApplyActions(vec![Action::output(port)])];
            if flow.table < 2 {
                flow.instructions.push(Instruction::GotoTable(flow.table + 1));
            }
        }
        (flow.command, flow.flags) = (FlowCommand::Add, FlowFlags::CHECK_OVERLAP);
        if !is_common(&flow) || world.control.flow_mod(&flow, Version::V13, 1).is_err() {
            continue;
        }
        flow.flags = FlowFlags::empty();
        counts.flows += 1;
        match ovs.request(Body::FlowMod(flow.clone())) {
            Err(Failure::Refused(_)) => {
                counts.refused += 1;
                flow.command = FlowCommand::DeleteStrict;
                flow.instructions.clear();
                world.control.flow_mod(&flow, Version::V13, 1).unwrap();
            }
            other => other?,
        }
    }
    Ok(())
}

/// Flows and frames by one seed through both.
fn round(seed: u64, ovs: &mut Ovs) -> Result<Counts, Failure> {
    let (mut counts, mut random) = (Counts::default(), Random(seed));
    let mut world = World::new(Settings::of_13(3), "auto");
    clear(ovs, Version::V13)?;
    random_flows(&mut random, &mut world, ovs, &mut counts)?;
    world.publish();
    let mut frames = Vec::new();
    while frames.len() < FRAMES {
        let mut frame = generate::frame(&mut random, false);
        if frame[12..14] == [0x88, 0xe7] || frame.get(16..18) == Some(&[0x88, 0xe7]) {
            continue;
        }
        frame.resize(frame.len().max(60), 0);
        frames.push(frame);
    }
    for frame in &frames {
        let frames = std::slice::from_ref(frame);
        let (ours, theirs) = (pass(&mut world, frames), ovs.pass(frames)?);
        counts.sent += theirs.iter().map(Vec::len).sum::<usize>();
        if ours == theirs {
            continue;
        }
        let trace = ovs.trace(frame)?;
        if is_otherwise(&trace) {
            counts.otherwise += 1;
            continue;
        }
        let taken = taken(&world, frame);
        panic!(
            "seed {seed}:\n in   {frame:02x?}\n ours {ours:02x?}\n ovs  {theirs:02x?}\n{trace}\n{taken}"
        );
    }
    Ok(counts)
}

/// Does something with a switch; once more with another one if its process ends meanwhile.
pub fn with_switch<T>(
    ovs: &mut Ovs,
    version: Version,
    mut work: impl FnMut(&mut Ovs) -> Result<T, Failure>,
) -> T {
    for _ in 0..3 {
        match work(ovs) {
            Ok(result) => return result,
            Err(Failure::Refused(code)) => panic!("refused by Open vSwitch: {code:?}"),
            Err(Failure::Ended) => {
                println!("Open vSwitch has ended and is started again: {}", ovs.end());
                *ovs = Ovs::start(version).unwrap();
            }
        }
    }
    panic!("Open vSwitch ends each time");
}

#[test]
fn open_vswitch_sends_the_same_frames() {
    let Some(mut ovs) = Ovs::start(Version::V13) else { return };
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let fresh = time.as_nanos() as u64;
    let mut sum = Counts::default();
    let fresh = (0..ROUNDS / 2).map(|n| fresh.wrapping_add(n << 32));
    for seed in (0..ROUNDS / 2).chain(fresh) {
        let counts = with_switch(&mut ovs, Version::V13, |ovs| round(seed, ovs));
        sum.flows += counts.flows;
        sum.refused += counts.refused;
        sum.sent += counts.sent;
        sum.otherwise += counts.otherwise;
    }
    println!("{sum:?}");
    assert!(sum.sent > 100 && sum.otherwise * 100 < sum.sent, "{sum:?}");
}

/// Whether Open vSwitch, by its trace of a frame, did what is done in another way here on purpose.
fn is_otherwise(trace: &str) -> bool {
    // A TTL that cannot be decremented: it still carries out the action set. Here the packet is dropped, as
    // one that is not valid.
    let has_no_ttl = trace.contains("decrement TTL exception");
    // A message of neighbour discovery with the same option twice: it reads no fields from it, but sets them.
    let has_no_fields = trace.contains("nd_target=::,") && trace.contains("set(nd(");
    has_no_ttl || has_no_fields
}

/// The flows that take a frame, as text.
fn taken(world: &World, frame: &[u8]) -> String {
    let flows = world.control.flows().cloned().collect();
    let groups = (0..8).filter_map(|number| world.control.group(number).cloned());
    let groups = groups.map(|group| (group.number, group)).collect();
    let ports = (1..=4).map(PortNo).collect();
    let switch = flowtable::reference::Switch { flows, groups, ports };
    let (_, taken) = switch.process(world.control.settings(), frame, PortNo(1));
    let flow = |id: &u32| switch.flows.iter().find(|flow| flow.id == *id);
    let text = |id| {
        flow(id).map(|flow| format!("{} {:?} {:?}", flow.table, flow.matches, flow.instructions))
    };
    taken.iter().filter_map(text).collect::<Vec<_>>().join("\n")
}

#[test]
fn ryu_cases_in_open_vswitch_of_1_3() {
    ryu_cases("of13", Version::V13, (520, 183));
}

#[test]
fn ryu_cases_in_open_vswitch_of_1_0() {
    ryu_cases("of10", Version::V10, (105, 36));
}

/// Ryu's cases in which Open vSwitch does another thing on purpose, and which.
const OTHER: &[(&str, usize, &str)] = &[
    (
        "of13/action/19_PUSH_MPLS.json",
        1,
        "a new entry on IPv6 has label 2 (explicit null), by the specification 0",
    ),
    (
        "of13/action/19_PUSH_MPLS.json",
        2,
        "a new entry on what has no TTL has TTL 64, by the specification 0",
    ),
];

/// Requests that Open vSwitch refuses have one of these: it knows no PBB, copies no TTL, sets none of three fields, does not match
/// extension headers, and its meters do not remark. 1.0 cannot express the cases of IPv6, which its own switches refuse.
const LACKS: &[&str] = &[
    "OFPActionPushPbb",
    "OFPActionPopPbb",
    "pbb_isid",
    "OFPActionCopyTtl",
    r#""OFPActionSetField":{"field":{"OXMTlv":{"field":"eth_type""#,
    r#""OFPActionSetField":{"field":{"OXMTlv":{"field":"ip_proto""#,
    r#""OFPActionSetField":{"field":{"OXMTlv":{"field":"mpls_bos""#,
    "ipv6_exthdr",
    "OFPMeterBandDscpRemark",
];

/// Ryu's cases but those of rates, into both switches; how many are the same, and how many Open vSwitch refuses.
fn ryu_cases(folder: &str, version: Version, counts: (usize, usize)) {
    let Some(cases) = ryu::cases(folder) else { return };
    let Some(mut ovs) = Ovs::start(version) else { return };
    let (mut same, mut refused, mut differ) = (0, 0, Vec::new());
    for ((name, number), case) in cases {
        match with_switch(&mut ovs, version, |ovs| case_of(ovs, &case, version)) {
            Outcome::Same => same += 1,
            Outcome::NoPackets => {}
            Outcome::Refused(request, error) => {
                let lacks = LACKS.iter().any(|part| request.contains(part));
                assert!(lacks || version == Version::V10, "{name} {number}: {error} for {request}");
                refused += 1;
            }
            Outcome::Differs(why) => differ.push((name, number, why)),
        }
    }
    println!(
        "{folder}: {same} the same, {refused} refused by Open vSwitch, {} differ",
        differ.len()
    );
    for (name, number, why) in &differ {
        println!("{name} {number}: {why}");
    }
    let known = OTHER.iter().filter(|(file, ..)| file.starts_with(folder));
    let known: Vec<_> = known.map(|(file, number, _)| (*file, *number)).collect();
    let differ: Vec<_> = differ.iter().map(|(file, number, _)| (file.as_str(), *number)).collect();
    assert_eq!(differ, known);
    assert_eq!((same, refused), counts);
}

/// What became of one of Ryu's cases.
enum Outcome {
    Same,
    /// It is about rates alone.
    NoPackets,
    /// A request, by Open vSwitch.
    Refused(String, ErrorCode),
    Differs(String),
}

fn case_of(ovs: &mut Ovs, case: &Value, version: Version) -> Result<Outcome, Failure> {
    let mut world = World::new(ryu::settings(version), "auto");
    clear(ovs, version)?;
    for request in case["prerequisite"].as_array().unwrap() {
        let body = ryu::body(request, version);
        if let Err(why) = ryu::apply(&mut world, &body, version) {
            return Ok(Outcome::Differs(format!("{request}: {why}")));
        }
        match ovs.request(body) {
            Err(Failure::Refused(code)) => return Ok(Outcome::Refused(request.to_string(), code)),
            other => other?,
        }
    }
    world.publish();
    let mut outcome = Outcome::NoPackets;
    for test in case["tests"].as_array().unwrap() {
        // Rates depend on time.
        if test["ingress"].is_object() {
            continue;
        }
        outcome = Outcome::Same;
        let mut frame = match ryu::frame(&test["ingress"]) {
            Ok(frame) => frame,
            Err(why) => return Ok(Outcome::Differs(why)),
        };
        frame.resize(frame.len().max(60), 0);
        let frames = [frame];
        let ours = pass(&mut world, &frames);
        let theirs = ovs.pass(&frames)?;
        if ours != theirs {
            let trace = ovs.trace(&frames[0])?;
            return Ok(Outcome::Differs(format!(
                "\n ours {ours:02x?}\n ovs  {theirs:02x?}\n{trace}"
            )));
        }
    }
    Ok(outcome)
}
