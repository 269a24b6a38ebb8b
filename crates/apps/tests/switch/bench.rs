//! A bench to put the stages on: frames in, frames and fates out, every cell accounted for.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use apps::switch::{SwitchColumns, SwitchCounters, SwitchPipeline, Waiting, pipeline};
use chunk::{
    Arena, Chunk, Columns, Depot, DropReason, HugePages, Layout, Packet, Pool, Region, Rows,
    Verdict, VerdictKind,
};
use engine::{Context, Stage};
use lookup::bridge::{
    BridgePort, MacLimits, MacTable, StationEvent, SwitchPatch, SwitchTables, VlanSet,
};
use lookup::versions::Patchable;

const CELLS: u32 = 8192;

thread_local! {
    /// A region is never unmapped, so each test's thread keeps one.
    static DEPOT: Arc<Depot> = Region::new(CELLS, HugePages::Off).expect("memory").1;
}

/// What came of one frame: ports and bytes in order of the ports, or the reason.
pub type Sent = Result<Vec<(u16, Vec<u8>)>, DropReason>;

/// A switch of one worker, with the control side beside it.
pub struct Bench {
    pub pool: Pool,
    stages: Vec<Box<dyn Stage<SwitchTables>>>,
    rows: Option<Rows>,
    pub tables: SwitchTables,
    pub macs: MacTable,
    events: Receiver<StationEvent>,
    waiting: Arc<Waiting>,
    pub counters: Arc<SwitchCounters>,
    pub now_ns: u64,
}

pub fn bytes_of(packet: &Packet) -> Vec<u8> {
    packet.segments().collect::<Vec<_>>().concat()
}

impl Bench {
    pub fn new(ports: Vec<Option<BridgePort>>, limits: MacLimits, channel: usize) -> Self {
        let (mut macs, blob, seen) = MacTable::new(limits).expect("memory");
        for (number, port) in (0..).zip(&ports) {
            macs.set_port_limit(number, port.as_ref().and_then(|port| port.stations));
        }
        let (sender, events) = sync_channel(channel);
        let options = SwitchPipeline { events: Some(sender), ..SwitchPipeline::default() };
        let arena = Arena::new(Layout::new(SwitchColumns::COLUMNS, chunk::CHUNK_PACKETS_MAX));
        Self {
            pool: Pool::new(DEPOT.with(Arc::clone), 64),
            stages: pipeline(&options),
            rows: arena.reserve(chunk::CHUNK_PACKETS_MAX),
            tables: SwitchTables::new(blob, seen, ports),
            macs,
            events,
            waiting: options.waiting,
            counters: options.counters,
            now_ns: 1_700_000_000_000_000_000,
        }
    }

    pub fn now_s(&self) -> u32 {
        (self.now_ns / 1_000_000_000) as u32
    }

    /// What control does now and then: learns, and publishes.
    pub fn control(&mut self) -> usize {
        let now_s = self.now_s();
        let events = self.take_events();
        for event in &events {
            self.macs.learn(event.vlan, event.mac, event.port, now_s);
        }
        self.publish();
        events.len()
    }

    /// What control would learn from.
    pub fn take_events(&mut self) -> Vec<StationEvent> {
        let events: Vec<StationEvent> = self.events.try_iter().collect();
        events.iter().for_each(|event| self.waiting.end(event.port));
        events
    }

    pub fn publish(&mut self) {
        for patch in self.macs.take_patches(10_000) {
            self.tables.apply(&patch);
        }
    }

    pub fn set_port(&mut self, port: u16, record: Option<BridgePort>) {
        self.macs.set_port_limit(port, record.as_ref().and_then(|record| record.stations));
        self.tables.apply(&SwitchPatch::Port(port, record));
        self.publish();
    }

    /// Carries one chunk through, and gives all its cells back.
    pub fn run(&mut self, inputs: &[(u16, Vec<u8>)]) -> Vec<Sent> {
        let mut chunk = Chunk::new(self.rows.take().expect("one chunk at a time"), 0);
        chunk.time_ns = self.now_ns;
        for (port, frame) in inputs {
            let mut packet = Packet::copy_from(&mut self.pool, frame).expect("cells");
            packet.port = *port;
            chunk.packets.push(packet);
        }
        chunk.rows.set_len(inputs.len());
        // What an earlier chunk left in the columns must not matter.
        let mut noise = 0x9e37_79b9_7f4a_7c15u64;
        SwitchColumns::randomise(&mut chunk.rows, &mut || {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            noise
        });
        chunk.rows.verdicts().fill(Verdict::NEXT.0);
        for stage in &mut self.stages {
            let (mut dropped, mut released) = (Vec::new(), Vec::new());
            let (pool, tables) = (&mut self.pool, &self.tables);
            let mut cx = Context::detached(pool, tables, self.now_ns, &mut dropped, &mut released);
            stage.pre_shade(&mut chunk, &mut cx);
            if let Some(shader) = stage.shader() {
                shader.shade(&mut chunk.rows, tables);
            }
            stage.post_shade(&mut chunk, &mut cx);
            assert!(dropped.is_empty() && released.is_empty());
            for row in 0..chunk.len() {
                let _ = stage.describe(&mut chunk, row, tables); // must not fail on anything
            }
        }
        let mut seen: Vec<Sent> = Vec::new();
        let mut emitted = chunk.emitted.drain(..).peekable();
        for (row, packet) in chunk.packets.drain(..).enumerate() {
            let verdict = Verdict(chunk.rows.verdicts()[row]);
            let mut copies = Vec::new();
            while let Some(copy) = emitted.next_if(|e| usize::from(e.cause) == row) {
                assert_eq!(copy.verdict.kind(), VerdictKind::Forward);
                copies.push((copy.verdict.port(), bytes_of(&copy.packet)));
                copy.packet.free(&mut self.pool);
            }
            seen.push(match verdict.kind() {
                VerdictKind::Drop => {
                    assert!(copies.is_empty(), "a dropped frame leaves no copies");
                    Err(verdict.reason())
                }
                VerdictKind::Forward => {
                    copies.push((verdict.port(), bytes_of(&packet)));
                    Ok(copies)
                }
                kind => panic!("no such end: {kind:?}"),
            });
            packet.free(&mut self.pool);
        }
        assert!(emitted.next().is_none(), "emitted packets stand in order of their causes");
        drop(emitted);
        self.rows = Some(chunk.rows);
        seen
    }

    /// One frame by itself.
    pub fn one(&mut self, port: u16, frame: &[u8]) -> Sent {
        self.run(&[(port, frame.to_vec())]).remove(0)
    }

    /// Ends the bench: no cell is missing.
    pub fn finish(self) {
        let depot = self.pool.depot().clone();
        drop(self.pool);
        assert_eq!(depot.available(), CELLS as usize, "cells are missing");
    }
}

/// A station's address.
pub fn mac(number: u64) -> [u8; 6] {
    let [_, _, _, a, b, c, d, e] = number.to_be_bytes();
    [2, a, b, c, d, e]
}

/// A frame of 60 bytes, or 64 with a tag.
pub fn frame(dst: [u8; 6], src: [u8; 6], tag: Option<u16>) -> Vec<u8> {
    let mut bytes = [dst, src].concat();
    if let Some(tci) = tag {
        bytes.extend([0x81, 0x00]);
        bytes.extend(tci.to_be_bytes());
    }
    bytes.extend([0x08, 0x00]);
    bytes.extend(0..46);
    bytes
}

pub fn vlans(vlans: &[u16]) -> VlanSet {
    vlans.iter().copied().collect()
}
