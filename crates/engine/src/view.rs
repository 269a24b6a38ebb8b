//! What others may see of a running engine.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use chunk::{DropReason, Reason};
use device::accelerator::Traffic;

use crate::balance::DeviceCost;
use crate::counters::WorkerCounters;
use crate::hooks::Hooks;
use crate::master::MasterLink;
use crate::merge::Merging;
use crate::segment::Segment;
use crate::stage::Versions;

/// What others may see of a running engine; it outlives it.
pub struct EngineView {
    /// Names of the stages, in order; those of several pipelines one behind the other ([`EngineView::pipeline_of`]).
    pub stages: Vec<&'static str>,
    /// How they are cut into segments.
    pub segments: Vec<Segment>,
    /// The pipelines.
    pub pipelines: Vec<PipelineView>,
    /// By worker.
    pub workers: Vec<Arc<WorkerCounters>>,
    /// Where captures and traces are started.
    pub hooks: Arc<Hooks>,
    /// The core of each worker.
    pub cpus: Vec<Option<usize>>,
    pub(crate) base: Mutex<Vec<u64>>,
    pub(crate) merging: Option<Arc<Merging>>,
    pub(crate) masters: Vec<Box<dyn Fn() -> MasterView + Send + Sync>>,
}

/// A pipeline of a running engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineView {
    /// Its name.
    pub name: String,
    /// The numbers of its stages in [`EngineView::stages`].
    pub stages: Range<usize>,
}

/// What the master and its device did, read at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MasterView {
    /// Its device's number in [`EngineSpec::devices`](crate::EngineSpec::devices): those that did not come up have no master.
    pub number: usize,
    /// The device's name.
    pub device: String,
    /// Jobs launched.
    pub jobs: u64,
    /// Packets in them.
    pub packets: u64,
    /// Jobs done again on the CPU.
    pub failed: u64,
    /// Jobs in flight now.
    pub in_flight: u64,
    /// Most jobs in flight at a time.
    pub in_flight_max: u64,
    /// Whether the device is used no more.
    pub is_lost: bool,
    /// Nanoseconds a row between the ends of jobs; 0 before the first.
    pub row_ns: f64,
    /// How long a chunk is away, nanoseconds; 0 before the first.
    pub away_ns: u64,
    /// What travelled.
    pub traffic: Traffic,
}

/// Sums over all workers, of one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTotals {
    /// Chunks seen.
    pub calls: u64,
    /// Packets that came in with the verdict next.
    pub packets: u64,
    /// Nanoseconds spent.
    pub busy_ns: u64,
}

impl EngineView {
    /// Packets dropped for `reason` since the last [`EngineView::clear`].
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.workers.iter().map(|w| w.drops(reason)).sum::<u64>() - self.drop_base(reason)
    }

    /// The drop reasons that have counters, in order of code: those that were registered when the engine started.
    pub fn reasons(&self) -> &[&'static Reason] {
        self.workers.first().map_or(&[], |worker| worker.reasons())
    }

    /// Packets that stages made and that went their way.
    pub fn emitted(&self) -> u64 {
        self.workers.iter().map(|w| w.emitted.get()).sum::<u64>()
            + self.merging.as_ref().map_or(0, |merging| merging.admitted())
    }

    /// What stage `i` did since the last [`EngineView::clear`].
    pub fn stage(&self, i: usize) -> StageTotals {
        let sum = |f: fn(&crate::counters::StageCounters) -> u64| {
            self.workers.iter().map(|w| f(&w.stages[i])).sum::<u64>()
        };
        StageTotals {
            calls: sum(|s| s.calls.get()) - self.base(3 * i),
            packets: sum(|s| s.packets.get()) - self.base(3 * i + 1),
            busy_ns: sum(|s| s.busy_ns.get()) - self.base(3 * i + 2),
        }
    }

    /// The pipeline of stage `i`; `None` if there is no such stage.
    pub fn pipeline_of(&self, i: usize) -> Option<&PipelineView> {
        self.pipelines.iter().find(|pipeline| pipeline.stages.contains(&i))
    }

    /// What each master did.
    pub fn masters(&self) -> Vec<MasterView> {
        self.masters.iter().map(|view| view()).collect()
    }

    /// What the first master did; `None` without one.
    pub fn master(&self) -> Option<MasterView> {
        self.masters.first().map(|view| view())
    }

    /// Counts from zero from now on, as seen here. Counters have one writer, so what they showed is
    /// kept and taken off.
    pub fn clear(&self) {
        let mut base = self.base.lock().unwrap_or_else(PoisonError::into_inner);
        base.clear();
        let stages: Vec<u64> = {
            let sum = |i: usize, f: fn(&crate::counters::StageCounters) -> u64| {
                self.workers.iter().map(|w| f(&w.stages[i])).sum::<u64>()
            };
            (0..self.stages.len())
                .flat_map(|i| {
                    [
                        sum(i, |s| s.calls.get()),
                        sum(i, |s| s.packets.get()),
                        sum(i, |s| s.busy_ns.get()),
                    ]
                })
                .collect()
        };
        base.extend(stages);
        base.extend(
            self.reasons()
                .iter()
                .map(|r| self.workers.iter().map(|w| w.drops(r.code())).sum::<u64>()),
        );
    }

    /// Takes over what an engine before counted, as far as both have the same workers and stages, and its captures.
    pub(crate) fn go_on_from(&self, before: &EngineView) {
        let named = |view: &EngineView, i: usize| {
            view.pipeline_of(i).map(|own| (own.name.clone(), view.stages[i]))
        };
        let old: Vec<_> = (0..before.stages.len()).map(|i| named(before, i)).collect();
        let new: Vec<_> = (0..self.stages.len()).map(|i| named(self, i)).collect();
        let same = |of: &Option<_>, all: &[Option<_>]| all.iter().position(|own| own == of);
        let from: Vec<Option<usize>> = new.iter().map(|of| same(of, &old)).collect();
        for (own, before) in self.workers.iter().zip(&before.workers) {
            own.go_on_from(before, &from);
        }
        let kept = before.base.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.is_empty() {
            let at = |i: usize| kept.get(i).copied().unwrap_or(0);
            let of_stage = |from: &Option<usize>| {
                from.map_or([0; 3], |i| [at(3 * i), at(3 * i + 1), at(3 * i + 2)])
            };
            let known = before.reasons();
            let of_reason = |reason: &&'static Reason| {
                let place = known.iter().position(|own| own.code() == reason.code());
                place.map_or(0, |place| at(3 * before.stages.len() + place))
            };
            let base = from.iter().flat_map(of_stage).chain(self.reasons().iter().map(of_reason));
            *self.base.lock().unwrap_or_else(PoisonError::into_inner) = base.collect();
        }
        self.hooks.renumber(|i| same(&old[i], &new));
    }

    fn drop_base(&self, reason: DropReason) -> u64 {
        match self.reasons().binary_search_by_key(&reason, |known| known.code()) {
            Ok(i) => self.base(self.stages.len() * 3 + i),
            Err(_) => 0,
        }
    }

    fn base(&self, i: usize) -> u64 {
        self.base.lock().unwrap_or_else(PoisonError::into_inner).get(i).copied().unwrap_or(0)
    }
}

impl MasterView {
    pub(crate) fn of<V: Versions>(number: usize, device: &str, link: &MasterLink<V>) -> Self {
        let counters = &link.counters;
        Self {
            number,
            device: device.to_owned(),
            jobs: counters.jobs.load(Ordering::Relaxed),
            packets: counters.packets.load(Ordering::Relaxed),
            failed: counters.failed.load(Ordering::Relaxed),
            in_flight: counters.in_flight.load(Ordering::Relaxed),
            in_flight_max: counters.in_flight_max.load(Ordering::Relaxed),
            is_lost: link.is_lost.load(Ordering::Relaxed),
            row_ns: link.cost.iter().find_map(DeviceCost::row_ns).unwrap_or(0.0),
            away_ns: link
                .cost
                .iter()
                .filter_map(DeviceCost::away)
                .max()
                .map_or(0, |away| away.as_nanos() as u64),
            traffic: *counters.traffic.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}
