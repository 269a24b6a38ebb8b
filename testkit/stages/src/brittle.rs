//! [`Brittle`]: a stage whose shade panics now and then, on whatever thread and for whatever call that is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chunk::{Chunk, ColumnSet, Declaration, Packet, ReasonBlock, Rows};
use engine::{Context, KernelForm, Phases, Records, Shade, Spread, Stage};

/// A call of a shade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `shade_packets`, at a worker or on the simulated device.
    Shade,
    /// The same of a twin, on the simulated device.
    TwinShade,
    /// `twin`, on the simulated device.
    Twin,
    /// `set_state`, on the simulated device.
    SetState,
    /// `state`, at a master or on the simulated device.
    State,
    /// `state_slots`, at the same.
    Slots,
    /// `records`, at a worker.
    Records,
    /// `retired`, at a worker.
    Retired,
}

/// Which calls panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaks {
    /// The call.
    pub call: Call,
    /// After the stage's own work instead of before it.
    pub is_late: bool,
    /// Each call whose number is a multiple of this, which is not 0.
    pub every: u64,
    /// So often and no more.
    pub times: u64,
}

/// How many calls there were, and how many more of them panic.
struct Plan {
    breaks: Breaks,
    calls: AtomicU64,
    left: AtomicU64,
}

/// The engine looks for twins when it starts, on the caller's thread.
const CALLS_AT_START: u64 = 1;

impl Plan {
    fn around<R>(&self, call: Call, work: impl FnOnce() -> R) -> R {
        let Breaks { is_late, every, .. } = self.breaks;
        let strikes = call == self.breaks.call && {
            let number = 1 + self.calls.fetch_add(1, Ordering::Relaxed);
            let one_less = |left: u64| left.checked_sub(1);
            (call != Call::Twin || number > CALLS_AT_START)
                && number.is_multiple_of(every)
                && self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
        };
        assert!(!strikes || is_late, "{call:?}, as planned");
        let result = work();
        assert!(!strikes, "{call:?}, late, as planned");
        result
    }
}

/// Another stage, whose shade panics.
pub struct Brittle {
    stage: Box<dyn Stage<u64>>,
    plan: Arc<Plan>,
}

impl Brittle {
    /// `stage`, whose shade panics as `breaks` says.
    pub fn new(stage: Box<dyn Stage<u64>>, breaks: Breaks) -> Self {
        let (calls, left) = (AtomicU64::new(0), AtomicU64::new(breaks.times));
        Self { stage, plan: Arc::new(Plan { breaks, calls, left }) }
    }
}

impl Stage<u64> for Brittle {
    fn name(&self) -> &'static str {
        self.stage.name()
    }
    fn columns(&self) -> &'static [Declaration] {
        self.stage.columns()
    }
    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        self.stage.drop_reasons()
    }
    fn reads(&self) -> ColumnSet {
        self.stage.reads()
    }
    fn writes(&self) -> ColumnSet {
        self.stage.writes()
    }
    fn zeroed(&self) -> ColumnSet {
        self.stage.zeroed()
    }
    fn sets_context(&self) -> Phases {
        self.stage.sets_context()
    }
    fn begins_segment(&self) -> bool {
        self.stage.begins_segment()
    }

    fn ends_segment(&self) -> bool {
        self.stage.ends_segment()
    }
    fn phases(&self) -> Phases {
        self.stage.phases()
    }
    fn spread(&self) -> Spread {
        self.stage.spread()
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, u64>) {
        self.stage.pre_shade(chunk, cx);
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        let (shade, plan) = (self.stage.shader()?, self.plan.clone());
        Some(Arc::new(BrittleShade { shade, plan, is_twin: false }))
    }
    fn next_sweep_ns(&self) -> Option<u64> {
        self.stage.next_sweep_ns()
    }
    fn sweep(&mut self, rows: &mut Rows, cx: &mut Context<'_, u64>) -> usize {
        self.stage.sweep(rows, cx)
    }
    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, u64>) {
        self.stage.post_shade(chunk, cx);
    }
}

struct BrittleShade {
    shade: Arc<dyn Shade<u64>>,
    plan: Arc<Plan>,
    is_twin: bool,
}

impl Shade<u64> for BrittleShade {
    fn shade(&self, rows: &mut Rows, tables: &u64) {
        self.shade_packets(rows, &mut [], tables);
    }
    fn shade_packets(&self, rows: &mut Rows, packets: &mut [Packet], tables: &u64) {
        let call = if self.is_twin { Call::TwinShade } else { Call::Shade };
        self.plan.around(call, || self.shade.shade_packets(rows, packets, tables));
    }
    fn kernels(&self) -> Option<KernelForm> {
        self.shade.kernels()
    }
    fn state_slots(&self) -> usize {
        self.plan.around(Call::Slots, || self.shade.state_slots())
    }
    fn state(&self, step: usize, bytes: &mut [u8]) {
        self.plan.around(Call::State, || self.shade.state(step, bytes));
    }
    fn twin(&self) -> Option<Arc<dyn Shade<u64>>> {
        let shade = self.plan.around(Call::Twin, || self.shade.twin())?;
        Some(Arc::new(BrittleShade { shade, plan: self.plan.clone(), is_twin: true }))
    }
    fn set_state(&self, step: usize, bytes: &[u8]) {
        self.plan.around(Call::SetState, || self.shade.set_state(step, bytes));
    }
    fn records(&self, rows: &mut Rows, records: Records<'_>, first: usize) {
        self.plan.around(Call::Records, || self.shade.records(rows, records, first));
    }
    fn retired(&self, rows: &mut Rows, packets: &mut [Packet]) {
        self.plan.around(Call::Retired, || self.shade.retired(rows, packets));
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::Count;

    #[test]
    fn calls_panic_as_often_as_planned() {
        for is_late in [false, true] {
            let breaks = Breaks { call: Call::Slots, is_late, every: 3, times: 2 };
            let shade = Brittle::new(Box::new(Count::new()), breaks).shader().unwrap();
            let struck: Vec<usize> = (1..20)
                .filter(|_| catch_unwind(AssertUnwindSafe(|| shade.state_slots())).is_err())
                .collect();
            assert_eq!(struck, [3, 6]);
        }
    }
}
