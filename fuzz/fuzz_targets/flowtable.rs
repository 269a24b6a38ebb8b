//! Changes of a switch and packets: flows, groups and meters as controllers change them, bundles, time-outs. What packets become is
//! what the reference says; a bundle that is refused has changed nothing.
//!
//! The first byte chooses a mode, the next one how tables are searched; then each byte is a step, and what follows chooses what it is
//! about. With the lowest bit of the mode set a step may also be a message of the wire (length in two bytes): the reference does not
//! know all that messages can say, so packets are only sent then.
#![no_main]

use std::sync::Arc;

use flowtable::{FlowControl, Settings};
use libfuzzer_sys::fuzz_target;
use openflow::group::{ALL_GROUPS, ALL_METERS, Band, BandKind, MeterFlags, TableCommand};
use openflow::{Body, ErrorCode, FlowCommand, Instruction, MeterMod, PortNo, Version, decode};

#[path = "../../crates/flowtable/tests/all/compare.rs"]
mod compare;
#[path = "../../crates/flowtable/tests/all/generate.rs"]
mod generate;
#[path = "../../crates/flowtable/tests/all/world.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod world;

/// Choices by the bytes of the input; zero behind its end.
mod random {
    pub struct Random<'a>(pub &'a [u8]);

    impl Random<'_> {
        pub fn byte(&mut self) -> u8 {
            let Some((first, rest)) = self.0.split_first() else { return 0 };
            self.0 = rest;
            *first
        }

        pub fn next(&mut self) -> u64 {
            (0..8).fold(0, |value, _| value << 8 | u64::from(self.byte()))
        }

        pub fn below(&mut self, bound: usize) -> usize {
            let value = if bound > 256 { self.next() as usize } else { self.byte().into() };
            value % bound
        }

        pub fn one_in(&mut self, n: usize) -> bool {
            self.below(n) == 0
        }

        pub fn of<T: Clone>(&mut self, all: &[T]) -> T {
            all[self.below(all.len())].clone()
        }
    }
}

use compare::compare;
use random::Random;
use world::World;

const STEPS: usize = 300;
const FLOWS: usize = 40;
const GROUPS: u32 = 5;
const METERS: u32 = 3;

/// A request of a controller.
fn change(
    random: &mut Random<'_>,
    control: &mut FlowControl,
    now_ns: u64,
) -> Result<(), ErrorCode> {
    match random.below(8) {
        0 => {
            let number = random.below(GROUPS as usize) as u32;
            let mut group = generate::group(random, number);
            group.command =
                random.of(&[TableCommand::Add, TableCommand::Modify, TableCommand::Delete]);
            if group.command == TableCommand::Delete && random.one_in(4) {
                group.group = ALL_GROUPS;
            }
            control.group_mod(&group, now_ns)
        }
        1 => {
            let flags = [MeterFlags::PKTPS, MeterFlags::KBPS | MeterFlags::BURST];
            let kinds = [BandKind::Drop, BandKind::DscpRemark { prec_level: 1 }];
            // None is ever exceeded: the reference measures nothing.
            let band = |random: &mut Random<'_>| Band {
                kind: random.of(&kinds),
                rate: u32::MAX,
                burst: u32::MAX,
            };
            let request = MeterMod {
                command: random.of(&[
                    TableCommand::Add,
                    TableCommand::Modify,
                    TableCommand::Delete,
                ]),
                flags: random.of(&flags),
                meter: random.of(&[1, 2, METERS, ALL_METERS]),
                bands: (0..random.below(3)).map(|_| band(random)).collect(),
            };
            control.meter_mod(&request, now_ns)
        }
        _ => {
            let mut flow = generate::flow_mod(random, GROUPS);
            let is_delete = matches!(flow.command, FlowCommand::Delete | FlowCommand::DeleteStrict);
            if random.one_in(4) {
                flow.idle_timeout = random.of(&[0, 1, 5]);
                flow.hard_timeout = random.of(&[0, 2, 60]);
            }
            if random.one_in(6) && !is_delete {
                let meter = Instruction::Meter(1 + random.below(METERS as usize) as u32);
                flow.instructions.insert(0, meter);
            }
            if random.one_in(4) {
                flow.cookie_mask = random.of(&[1, u64::MAX]);
            }
            if is_delete && random.one_in(3) {
                flow.out_port = random.of(&[PortNo(1), PortNo(2), PortNo::CONTROLLER]);
            }
            if is_delete && random.one_in(3) {
                flow.out_group = random.below(GROUPS as usize) as u32;
            }
            control.flow_mod(&flow, Version::V13, now_ns)
        }
    }
}

/// Everything that control has: which flows and groups, not only their contents.
fn state(control: &FlowControl) -> (Vec<usize>, String) {
    let flows = control.flows().map(|flow| Arc::as_ptr(flow).addr()).collect();
    let groups = control.group_descs();
    (flows, format!("{} {groups:?} {:?}", control.len(), control.meter_configs(ALL_METERS)))
}

/// One message of the wire.
fn message(random: &mut Random<'_>, control: &mut FlowControl, now_ns: u64) {
    let len = (usize::from(random.byte()) << 8 | usize::from(random.byte())).min(random.0.len());
    let (bytes, rest) = random.0.split_at(len);
    random.0 = rest;
    let Ok(message) = decode(bytes) else { return };
    let Some(version) = Version::from_wire(message.version) else { return };
    let _ = match message.body {
        Body::FlowMod(flow) => control.flow_mod(&flow, version, now_ns),
        Body::GroupMod(group) => control.group_mod(&group, now_ns),
        Body::MeterMod(meter) => control.meter_mod(&meter, now_ns),
        Body::PacketOut(packet) => control.check_packet_out(&packet.actions),
        _ => return,
    };
}

fuzz_target!(|bytes: &[u8]| {
    let mut random = Random(bytes);
    let takes_messages = random.byte() & 1 != 0;
    let algorithm = random.of(&["linear", "tuple", "bloom"]);
    let mut world = World::with_flows(Settings::of_13(3), algorithm, FLOWS);
    let mut now_ns = 1_000_000_000;
    for _ in 0..STEPS {
        if random.0.is_empty() {
            break;
        }
        match random.byte() {
            255 if takes_messages => message(&mut random, &mut world.control, now_ns),
            200.. => {
                world.publish();
                let count = 1 + random.below(4);
                let frames: Vec<_> =
                    (0..count).map(|_| generate::frame(&mut random, takes_messages)).collect();
                let port = random.of(&[1, 2]);
                if takes_messages {
                    world.send(&frames, port, now_ns);
                } else {
                    compare(&mut world, &frames, PortNo(port), 0, true);
                }
            }
            190.. => {
                now_ns += random.of(&[1, 1_000_000_000, 10_000_000_000]);
                world.control.expire(now_ns);
                let due = world.control.next_deadline();
                assert!(due.is_none_or(|due| due > now_ns), "{due:?} at {now_ns}");
            }
            160.. => {
                let before = state(&world.control);
                let count = 1 + random.below(6);
                let done = world.control.all_or_nothing(|control| {
                    (0..count).try_for_each(|_| change(&mut random, control, now_ns))
                });
                if done.is_err() {
                    assert_eq!(state(&world.control), before, "{done:?}");
                }
            }
            _ => {
                let before = state(&world.control);
                if let Err(error) = change(&mut random, &mut world.control, now_ns) {
                    assert_eq!(state(&world.control), before, "{error}");
                }
            }
        }
        assert!(world.control.len() <= FLOWS);
        world.control.take_removed();
    }
});
