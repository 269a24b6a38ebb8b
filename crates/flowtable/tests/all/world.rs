//! A switch in a test: tables, and where frames went.

use flowtable::pipeline::Lookups;
use flowtable::{Dropped, Egress, FlowControl, FlowTables, Pipeline, Port, Sent, Settings};
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
        let mut world = Self { control, tables, pipeline: Pipeline::new() };
        world.publish();
        world
    }

    pub fn publish(&mut self) {
        self.control.take_patches().iter().for_each(|patch| self.tables.apply(patch));
    }

    /// Frames by a port at a time, as one batch.
    pub fn send(&mut self, frames: &[Vec<u8>], in_port: u32, now_ns: u64) -> Out {
        let mut out = Out::default();
        for (row, frame) in frames.iter().enumerate() {
            self.pipeline.push(row, frame.clone(), PortNo(in_port), now_ns);
        }
        self.pipeline.run(&self.tables, &mut out, &mut ());
        assert_eq!(out.done, frames.len());
        out
    }

    pub fn lookups(&self, table: u8) -> Lookups {
        self.pipeline.lookups()[usize::from(table)]
    }
}
