//! A flow, a group and a port as packets see them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use openflow::flow::FlowStats;
use openflow::group::{Bucket, GroupType};
use openflow::port::PortConfig;
use openflow::{Action, FlowFlags, Instruction, Match, PortNo};

use crate::key::Words;
use crate::walk::Effect;

/// Who counts: a worker, or anybody.
///
/// Not `Copy`: of two threads with one number counts would be lost.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Counting(u32);

impl Counting {
    /// Anybody: counts where several may.
    pub(crate) const ANYBODY: Self = Self(0);

    /// A worker.
    pub(crate) fn worker() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let next =
            NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |own| own.checked_add(1));
        next.map_or(Self::ANYBODY, Self)
    }
}

/// Counters that workers add to and control reads.
///
/// The first worker that counts owns them: what it adds nobody else writes, so it needs no locked instructions, which cost more
/// than a lookup. What others add has places of its own.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub struct Counters {
    /// The owner's packets and bytes.
    own: [AtomicU64; 2],
    /// Time of the last packet, nanoseconds since 1970; 0: none yet.
    pub used_ns: AtomicU64,
    /// 0: nobody yet.
    owner: AtomicU32,
    /// Packets and bytes of all others.
    others: [AtomicU64; 2],
}

impl Counters {
    /// One more packet. Of two workers that count at the same time, either may have the last word on the time.
    #[inline(always)]
    pub(crate) fn add(&self, who: &Counting, len: usize, now_ns: u64) {
        let owner = self.owner.load(Ordering::Relaxed);
        let is_own = if owner == 0 { self.claim(who) } else { owner == who.0 };
        if is_own {
            let add = |own: &AtomicU64, n: u64| {
                own.store(own.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
            };
            add(&self.own[0], 1);
            add(&self.own[1], len as u64);
        } else {
            self.others[0].fetch_add(1, Ordering::Relaxed);
            self.others[1].fetch_add(len as u64, Ordering::Relaxed);
        }
        // Not `fetch_max`: a locked instruction for each packet.
        if self.used_ns.load(Ordering::Relaxed) < now_ns {
            self.used_ns.store(now_ns, Ordering::Relaxed);
        }
    }

    #[cold]
    fn claim(&self, who: &Counting) -> bool {
        let relaxed = Ordering::Relaxed;
        *who != Counting::ANYBODY && self.owner.compare_exchange(0, who.0, relaxed, relaxed).is_ok()
    }

    /// Packets and bytes.
    pub fn get(&self) -> (u64, u64) {
        let sum = |at: usize| {
            let [own, others] =
                [&self.own[at], &self.others[at]].map(|n| n.load(Ordering::Relaxed));
            own.wrapping_add(others)
        };
        (sum(0), sum(1))
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
    /// The number of the change that added it, or the flow in whose place it came.
    pub added: u64,
    /// The number of its last change.
    pub changed: u64,
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

impl Port {
    /// Whether packets leave by it.
    pub(crate) fn sends(&self) -> bool {
        let (down, no_forward) = (PortConfig::PORT_DOWN, PortConfig::NO_FWD);
        self.live && !self.config.contains(down) && !self.config.contains(no_forward)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_and_anybody_count_together() {
        let counters = Counters::default();
        std::thread::scope(|scope| {
            for workers in 0..4 {
                let counters = &counters;
                scope.spawn(move || {
                    let who = if workers == 0 { Counting::ANYBODY } else { Counting::worker() };
                    for now_ns in 1..=10_000 {
                        counters.add(&who, 60, now_ns);
                    }
                });
            }
        });
        assert_eq!(counters.get(), (40_000, 40_000 * 60));
        assert_eq!(counters.used_ns.load(Ordering::Relaxed), 10_000);
    }

    #[test]
    fn the_first_worker_owns() {
        let (counters, first, second) =
            (Counters::default(), Counting::worker(), Counting::worker());
        assert_ne!(first, second);
        counters.add(&Counting::ANYBODY, 100, 3);
        counters.add(&first, 10, 2);
        counters.add(&second, 1, 1);
        let parts = [&counters.own[1], &counters.others[1]].map(|n| n.load(Ordering::Relaxed));
        assert_eq!(parts, [10, 101]);
        assert_eq!((counters.get(), counters.used_ns.load(Ordering::Relaxed)), ((3, 111), 3));
    }
}
