//! A flow, a group and a port as packets see them.

use std::sync::atomic::{AtomicU64, Ordering};

use openflow::flow::FlowStats;
use openflow::group::{Bucket, GroupType};
use openflow::port::PortConfig;
use openflow::{Action, FlowFlags, Instruction, Match, PortNo};

use crate::key::Words;
use crate::walk::Effect;

/// Counters that workers add to and control reads.
#[derive(Debug, Default)]
pub struct Counters {
    /// Packets.
    pub packets: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Time of the last packet, nanoseconds since 1970; 0: none yet.
    pub used_ns: AtomicU64,
}

impl Counters {
    /// One more packet. Of two workers that count at the same time, either may have the last word on the time.
    #[inline]
    pub fn add(&self, len: usize, now_ns: u64) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(len as u64, Ordering::Relaxed);
        // Not `fetch_max`: a third locked instruction for each packet.
        if self.used_ns.load(Ordering::Relaxed) < now_ns {
            self.used_ns.store(now_ns, Ordering::Relaxed);
        }
    }

    /// Packets and bytes.
    pub fn get(&self) -> (u64, u64) {
        (self.packets.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// A flow of a table. Only its counters change.
#[derive(Debug)]
pub struct Flow {
    /// Its number among all flows of the switch.
    pub id: u32,
    /// Its table.
    pub table: u8,
    /// Its priority.
    pub priority: u16,
    /// Which packets, as it was given.
    pub matches: Match,
    /// The same, as words.
    pub words: Words,
    /// What happens to them, as it was given.
    pub instructions: Vec<Instruction>,
    /// Instructions in the order in which they are carried out.
    pub steps: Steps,
    /// The controller's name for it.
    pub cookie: u64,
    /// Seconds without a packet until it leaves; 0: never.
    pub idle_timeout: u16,
    /// Seconds until it leaves; 0: never.
    pub hard_timeout: u16,
    /// Its flags.
    pub flags: FlowFlags,
    /// When it was added, nanoseconds since 1970.
    pub created_ns: u64,
    /// Its counters; a flow that takes its place has the same ones.
    pub counters: std::sync::Arc<Counters>,
}

impl Flow {
    /// Its statistics; for how long it has been there is for the caller to say.
    pub fn stats(&self) -> FlowStats {
        let (packets, bytes) = self.counters.get();
        FlowStats {
            table: self.table,
            duration: std::time::Duration::ZERO,
            priority: self.priority,
            idle_timeout: self.idle_timeout,
            hard_timeout: self.hard_timeout,
            flags: self.flags,
            cookie: self.cookie,
            packets,
            bytes,
            matches: self.matches.clone(),
            instructions: self.instructions.clone(),
        }
    }
}

/// Instructions in the order in which they are carried out (OpenFlow 1.3.5 §5.9).
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Steps {
    /// Through this meter.
    pub meter: Option<u32>,
    /// Carried out at once.
    pub apply: Vec<Action>,
    /// The action set is emptied.
    pub clear: bool,
    /// Added to the action set.
    pub write: Vec<Action>,
    /// Value and mask of the metadata.
    pub metadata: Option<(u64, u64)>,
    /// The next table.
    pub goto: Option<u8>,
    /// What that sees of `apply`.
    pub effect: Effect,
}

impl Steps {
    /// The steps of instructions; each kind comes once ([`crate::control`] has checked that).
    pub fn of(instructions: &[Instruction]) -> Self {
        let mut steps = Self::default();
        for instruction in instructions {
            match instruction {
                Instruction::Meter(meter) => steps.meter = Some(*meter),
                Instruction::ApplyActions(actions) => steps.apply.clone_from(actions),
                Instruction::ClearActions => steps.clear = true,
                Instruction::WriteActions(actions) => steps.write.clone_from(actions),
                Instruction::WriteMetadata { value, mask } => {
                    steps.metadata = Some((*value, *mask))
                }
                Instruction::GotoTable(table) => steps.goto = Some(*table),
                Instruction::Experimenter { .. } => {}
            }
        }
        steps.effect = Effect::of(&steps);
        steps
    }
}

/// A group.
#[derive(Debug)]
pub struct Group {
    /// Its number.
    pub number: u32,
    /// Which buckets a packet goes through.
    pub kind: GroupType,
    /// Its buckets, as they were given.
    pub buckets: Vec<Bucket>,
    /// The actions of each bucket in the order of an action set.
    pub ordered: Vec<Vec<Action>>,
    /// When it was made, nanoseconds since 1970.
    pub created_ns: u64,
    /// Its counters.
    pub counters: Counters,
    /// Those of each bucket.
    pub bucket_counters: Vec<Counters>,
}

/// A port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// Its number.
    pub number: PortNo,
    /// What was set on it.
    pub config: PortConfig,
    /// It carries packets now.
    pub live: bool,
}
