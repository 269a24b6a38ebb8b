//! A switch in a test: tables, and where frames went.

use flowtable::headers::read;
use flowtable::pipeline::{FIRSTS, Lookups};
use flowtable::walk::{Path, Room, flags_of, walk};
use flowtable::{Dropped, Egress, FlowControl, FlowTables, Key, Pipeline, Port, Sent, Settings};
use lookup::versions::Patchable;
use openflow::PortNo;
use openflow::port::PortConfig;

/// Everything that became of a batch.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Out {
    /// Row, frame and where it went, in order.
    pub sent: Vec<(usize, Vec<u8>, Sent)>,
    /// Rows that went nowhere.
    pub dropped: Vec<(usize, Dropped)>,
    /// Rows that are done.
    pub done: usize,
    /// Those that were not rows at all.
    pub direct: usize,
}

impl Egress for Out {
    type Frame = Vec<u8>;

    fn copy(&mut self, frame: &Vec<u8>) -> Option<Vec<u8>> {
        Some(frame.clone())
    }

    fn send(&mut self, row: usize, frame: Vec<u8>, to: &Sent) {
        self.sent.push((row, frame, *to));
    }

    fn done(&mut self, row: usize, _frame: Option<Vec<u8>>, why: Option<Dropped>) {
        self.done += 1;
        self.dropped.extend(why.map(|why| (row, why)));
    }

    fn free(&mut self, _frame: Vec<u8>) {}
}

/// A switch with ports 1 to 4.
pub struct World {
    pub control: FlowControl,
    pub tables: FlowTables,
    pub pipeline: Pipeline<Vec<u8>>,
}

impl World {
    pub fn new(settings: Settings, algorithm: &str) -> Self {
        Self::with_flows(settings, algorithm, 1 << 16)
    }

    /// The same with so many flows at most.
    pub fn with_flows(settings: Settings, algorithm: &str, flows_max: usize) -> Self {
        let (mut control, tables) = FlowControl::new(settings, flows_max, algorithm);
        for number in 1..=4 {
            let number = PortNo(number);
            let port = Port { number, config: PortConfig::empty(), live: true };
            control.set_port(number, Some(port));
        }
        control.set_queues((1..=4).map(|port| (PortNo(port), 3)));
        let mut world = Self { control, tables, pipeline: Pipeline::of_worker() };
        world.publish();
        world
    }

    pub fn publish(&mut self) {
        self.control.take_patches().iter().for_each(|patch| self.tables.apply(patch));
    }

    /// The paths of frames that came in by a port, as the walk finds them.
    pub fn paths(&self, frames: &[Vec<u8>], in_port: u32) -> Vec<Path> {
        let (mut keys, mut flags) = (Vec::new(), Vec::new());
        for frame in frames {
            let mut key = Key::default();
            let headers = read(frame, frame.len(), in_port, &mut key);
            keys.push(key);
            flags.push(flags_of(&headers));
        }
        let mut paths = vec![Path::OPEN; frames.len()];
        walk(&self.tables, &mut keys, &mut flags, &mut paths, &mut Room::default());
        paths
    }

    /// Frames by a port at a time, as one batch; with their paths where there is a device.
    pub fn send(&mut self, frames: &[Vec<u8>], in_port: u32, now_ns: u64) -> Out {
        let mut out = Out::default();
        if self.control.settings().device {
            let paths = self.paths(frames, in_port);
            for (row, (frame, path)) in frames.iter().zip(paths).enumerate() {
                self.pipeline.push_known(row, frame.clone(), PortNo(in_port), now_ns, path);
            }
        } else {
            for (row, frame) in frames.iter().enumerate() {
                self.pipeline.push(row, frame.clone(), PortNo(in_port), now_ns);
            }
        }
        self.pipeline.run(&self.tables, &mut out, &mut ());
        assert_eq!(out.done, frames.len());
        out
    }

    /// Frames by a port that are read and looked up before they become rows, and leave at once where their flow does nothing else; in the
    /// order of rows.
    pub fn send_read(&mut self, frames: &[Vec<u8>], in_port: u32, now_ns: u64) -> Out {
        let (mut out, in_port) = (Out::default(), PortNo(in_port));
        for (group, frames) in frames.chunks(FIRSTS).enumerate() {
            for frame in frames {
                self.pipeline.read(frame, frame.len(), in_port);
            }
            self.pipeline.look_up_read(&self.tables);
            for (at, frame) in frames.iter().enumerate() {
                let (row, of_packet) = (group * FIRSTS + at, (in_port, frame.len(), now_ns));
                match self.pipeline.direct(at, &self.tables, of_packet, Some) {
                    Some(port) => {
                        let to = Sent { port, in_port, queue: None, controller: None };
                        out.sent.push((row, frame.clone(), to));
                        out.direct += 1;
                        out.done += 1;
                    }
                    None => self.pipeline.push_read(at, row, frame.clone(), in_port, now_ns),
                }
            }
        }
        self.pipeline.run(&self.tables, &mut out, &mut ());
        assert!(self.pipeline.is_empty());
        out.sent.sort_by_key(|(row, ..)| *row); // stable: frames of a row in their order
        out
    }

    pub fn lookups(&self, table: u8) -> Lookups {
        self.pipeline.lookups()[usize::from(table)]
    }
}
