//! Packets through the tables and through the reference: the same flows take them, and the same frames leave.

use flowtable::reference::Switch;
use flowtable::{Flow, Key, Observer};
use openflow::PortNo;

use crate::world::{Out, World};

/// The flows that took each packet.
#[derive(Default)]
struct Taken(Vec<(usize, u32)>);

impl Observer for Taken {
    fn looked_up(&mut self, row: usize, _table: u8, _key: &Key, flow: Option<&Flow>) {
        self.0.extend(flow.map(|flow| (row, flow.id)));
    }
}

/// Frames by a port into both. Unless `is_whole`, what leaves is not looked at: of frames that are cut the reference knows the flows
/// alone.
pub fn compare(world: &mut World, frames: &[Vec<u8>], in_port: PortNo, seed: u64, is_whole: bool) {
    let flows: Vec<_> = world.control.flows().cloned().collect();
    let groups = (0..8).filter_map(|number| world.control.group(number).cloned());
    let groups = groups.map(|group| (group.number, group)).collect();
    let ports = (1..=4).map(PortNo).collect();
    let switch = Switch { flows, groups, ports };
    let (mut out, mut taken) = (Out::default(), Taken::default());
    for (row, frame) in frames.iter().enumerate() {
        world.pipeline.push(row, frame.clone(), in_port, 1);
    }
    world.pipeline.run(&world.tables, &mut out, &mut taken);
    if is_whole {
        // Nobody looks on: flows that only send take a shorter way.
        let mut alone = Out::default();
        for (row, frame) in frames.iter().enumerate() {
            world.pipeline.push(row, frame.clone(), in_port, 1);
        }
        world.pipeline.run(&world.tables, &mut alone, &mut ());
        assert_eq!(alone, out, "seed {seed}");
        // Nor are all of them rows.
        let mut read = world.send_read(frames, in_port.0, 1);
        read.direct = 0;
        alone.sent.sort_by_key(|(row, ..)| *row);
        assert_eq!(read, alone, "seed {seed}");
    }
    for (row, frame) in frames.iter().enumerate() {
        let (wanted, flows) = switch.process(world.control.settings(), frame, in_port);
        let own = taken.0.iter().filter(|(own, _)| *own == row).map(|(_, flow)| *flow);
        let own: Vec<u32> = own.collect();
        assert_eq!(own, flows, "seed {seed}, row {row}, frame {frame:02x?}");
        if is_whole {
            let sent = out.sent.iter().filter(|(own, ..)| *own == row);
            let sent: Vec<_> = sent.map(|(_, frame, to)| (to.port, frame.clone())).collect();
            assert_eq!(sent, wanted, "seed {seed}, row {row}, frame {frame:02x?}");
        }
    }
}
