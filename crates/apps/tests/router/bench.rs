//! A bench to put the stages on: frames in, frames and fates out, every cell accounted for.

use std::sync::Arc;

use apps::router::{DEFAULT_STAGES, PipelineOptions, RouterColumns, pipeline};
use chunk::{
    Arena, Chunk, Columns, Depot, DropReason, HugePages, Layout, Packet, Pool, Region, Rows,
    Verdict, VerdictKind,
};
use engine::{Context, MARK_CHECKSUMS_IGNORED, MARK_FROM_HOST, Stage};
use lookup::fib::Fib;

/// Cells of the bench: a chunk of jumbo frames and all that is made of it.
const CELLS: u32 = 32_768;

thread_local! {
    /// A region is never unmapped, so each test's thread keeps one.
    static DEPOT: Arc<Depot> = Region::new(CELLS, HugePages::Off).expect("memory").1;
}

/// A frame to put in.
#[derive(Debug, Clone)]
pub struct Input {
    pub port: u16,
    pub frame: Vec<u8>,
    pub from_host: bool,
    pub ignores_checksums: bool,
}

impl Input {
    pub fn new(port: u16, frame: Vec<u8>) -> Self {
        Self { port, frame, from_host: false, ignores_checksums: false }
    }
}

/// What came of one packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub verdict: Verdict,
    /// Its bytes, if it was not taken.
    pub frame: Vec<u8>,
    /// Port and bytes of what was made because of it.
    pub emitted: Vec<(u16, Vec<u8>)>,
}

impl Seen {
    pub fn drop_reason(&self) -> Option<DropReason> {
        (self.verdict.kind() == VerdictKind::Drop).then(|| self.verdict.reason())
    }

    pub fn forwarded_to(&self) -> Option<u16> {
        (self.verdict.kind() == VerdictKind::Forward).then(|| self.verdict.port())
    }
}

/// Stages of one worker with all that is around them.
pub struct Bench {
    pub pool: Pool,
    pub stages: Vec<Box<dyn Stage<Fib>>>,
    rows: Option<Rows>,
    pub version: u64,
    pub now_ns: u64,
    /// Packets that stages ended apart from a chunk.
    pub dropped: Vec<(Vec<u8>, DropReason)>,
    /// Packets that stages let go apart from a chunk.
    pub released: Vec<(Vec<u8>, Verdict)>,
}

pub fn bytes_of(packet: &Packet) -> Vec<u8> {
    packet.segments().collect::<Vec<_>>().concat()
}

impl Bench {
    pub fn new(options: &PipelineOptions) -> Self {
        let pool = Pool::new(DEPOT.with(Arc::clone), 64);
        let arena = Arena::new(Layout::new(RouterColumns::COLUMNS, chunk::CHUNK_PACKETS_MAX));
        Self {
            pool,
            stages: pipeline(DEFAULT_STAGES, options).expect("the default stages"),
            rows: arena.reserve(chunk::CHUNK_PACKETS_MAX),
            version: 0,
            now_ns: 1_700_000_000_000_000_000,
            dropped: Vec::new(),
            released: Vec::new(),
        }
    }

    /// Carries one chunk through, and gives all its cells back.
    pub fn run(&mut self, fib: &Fib, inputs: &[Input]) -> Vec<Seen> {
        let mut chunk = Chunk::new(self.rows.take().expect("one chunk at a time"), 0);
        chunk.time_ns = self.now_ns;
        for input in inputs {
            let mut packet = Packet::copy_from(&mut self.pool, &input.frame).expect("cells");
            packet.port = input.port;
            packet.mark = if input.from_host { MARK_FROM_HOST } else { 0 };
            if input.ignores_checksums {
                packet.mark |= MARK_CHECKSUMS_IGNORED;
            }
            chunk.packets.push(packet);
        }
        chunk.rows.set_len(inputs.len());
        // What an earlier chunk left in the columns must not matter.
        let mut noise = 0x9e37_79b9_7f4a_7c15u64;
        RouterColumns::randomise(&mut chunk.rows, &mut || {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            noise
        });
        chunk.rows.verdicts().fill(Verdict::NEXT.0);
        self.carry(fib, &mut chunk);
        let mut seen: Vec<Seen> = Vec::new();
        for (row, packet) in chunk.packets.drain(..).enumerate() {
            let verdict = Verdict(chunk.rows.verdicts()[row]);
            assert_eq!(packet.is_empty(), verdict == Verdict::TAKEN, "{verdict}");
            seen.push(Seen { verdict, frame: bytes_of(&packet), emitted: Vec::new() });
            packet.free(&mut self.pool);
        }
        let mut cause = 0;
        for emitted in chunk.emitted.drain(..) {
            assert!(emitted.cause >= cause, "emitted packets stand in order of their causes");
            cause = emitted.cause;
            assert_eq!(emitted.verdict.kind(), VerdictKind::Forward);
            let made = (emitted.verdict.port(), bytes_of(&emitted.packet));
            seen[usize::from(cause)].emitted.push(made);
            emitted.packet.free(&mut self.pool);
        }
        self.rows = Some(chunk.rows);
        seen
    }

    pub fn carry(&mut self, fib: &Fib, chunk: &mut Chunk) {
        for i in 0..self.stages.len() {
            self.with_stage(i, fib, |stage, cx| stage.pre_shade(chunk, cx));
            if let Some(shader) = self.stages[i].shader() {
                shader.shade(&mut chunk.rows, fib);
            }
            self.with_stage(i, fib, |stage, cx| stage.post_shade(chunk, cx));
            for row in 0..chunk.len() {
                let _ = self.stages[i].describe(chunk, row, fib); // must not fail on anything
            }
        }
    }

    pub fn tick(&mut self, fib: &Fib) {
        for i in 0..self.stages.len() {
            self.with_stage(i, fib, |stage, cx| stage.tick(cx));
        }
    }

    fn with_stage(
        &mut self,
        i: usize,
        fib: &Fib,
        step: impl FnOnce(&mut dyn Stage<Fib>, &mut Context<'_, Fib>),
    ) {
        let (mut dropped, mut released) = (Vec::new(), Vec::new());
        let mut cx =
            Context::detached(&mut self.pool, fib, self.now_ns, &mut dropped, &mut released);
        cx.version = self.version;
        step(&mut *self.stages[i], &mut cx);
        for (packet, reason) in dropped {
            self.dropped.push((bytes_of(&packet), reason));
            packet.free(&mut self.pool);
        }
        for (packet, verdict) in released {
            self.released.push((bytes_of(&packet), verdict));
            packet.free(&mut self.pool);
        }
    }

    pub fn held(&self) -> usize {
        self.stages.iter().map(|stage| stage.held()).sum()
    }

    /// Ends the bench: no packet is held and no cell is missing.
    pub fn finish(self) {
        assert_eq!(self.held(), 0, "packets are held");
        let depot = self.pool.depot().clone();
        drop(self.pool);
        assert_eq!(depot.available(), CELLS as usize, "cells are missing");
    }
}
