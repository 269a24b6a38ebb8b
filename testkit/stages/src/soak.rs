//! Random pipelines of test stages over random workers, queues and devices with faults, moves of shards, changing
//! tables and panics, each run compared with a model of one packet after the other.
//!
//! ```text
//!  seed ─▶ Scenario ─┬─▶ engine ─▶ what became of each packet, what was counted ─┐
//!                    └─▶ model  ─▶ what must become of it, what must be counted ─┴─▶ the same
//! ```
//!
//! A packet's number is its time stamp, which no stage changes. Each number that was received must come out once, where
//! the model says and with its bytes, or be dropped for want of room, or by a panic, where the scenario has those. A
//! flow's packets that go straight through keep their order. Behind a merger everything comes out in the order and with
//! the counts of one worker.
//!
//! * `scenario`: the random run.
//! * `model`: a packet's walk through the stages.
//! * `compare`: one beside the other.

mod compare;
mod model;
mod scenario;

use crate::harness::Run;

pub use scenario::Scenario;

/// Sums over scenarios.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Scenarios run.
    pub scenarios: u64,
    /// Engines of them that had a merger.
    pub in_order: u64,
    /// Packets received.
    pub packets: u64,
    /// Packets that stages made.
    pub emitted: u64,
    /// Packets that entered a pipeline again or were handed over.
    pub again: u64,
    /// Jobs of devices.
    pub jobs: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Devices that were given up.
    pub lost_devices: u64,
    /// Moves of shards.
    pub moves: u64,
    /// Panics of stages.
    pub panics: u64,
    /// Workers that gave their stages up.
    pub gave_up: u64,
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Totals { scenarios, in_order, packets, emitted, again, jobs, failed, .. } = self;
        let Totals { lost_devices, moves, panics, gave_up, .. } = self;
        write!(
            f,
            "{scenarios} scenarios, {in_order} engines in order, {packets} packets, {emitted} made, {again} again, "
        )?;
        write!(
            f,
            "{jobs} jobs, {failed} of them failed, {lost_devices} devices lost, {moves} moves of shards, "
        )?;
        write!(f, "{panics} panics, {gave_up} workers gave up")
    }
}

impl Totals {
    fn add(&mut self, run: &Run) {
        self.packets += run.received;
        self.emitted += run.view.emitted();
        self.again += run.sum(|worker| worker.again.get());
        self.moves += run.sum(|worker| worker.shard_moves.get());
        self.panics += run.panics.len() as u64;
        self.gave_up += run.sum(|worker| worker.gave_up.get());
        for master in run.view.masters() {
            self.jobs += master.jobs;
            self.failed += master.failed;
            self.lost_devices += u64::from(master.is_lost);
        }
    }
}

/// Runs scenarios from `seed` on, each with the next number, until `goes_on` says no.
///
/// # Errors
/// What differs from the model, with the scenario; everything that ends it early.
pub fn soak(
    seed: u64,
    with_driver: bool,
    mut goes_on: impl FnMut(&Totals) -> bool,
) -> Result<Totals, String> {
    let mut totals = Totals::default();
    while goes_on(&totals) {
        let seed = seed.wrapping_add(totals.scenarios);
        totals.scenarios += 1;
        let scenario = Scenario::new(seed, with_driver);
        let result =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scenario.run(&mut totals)));
        let result = result.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            Err(text.unwrap_or_else(|| "it panicked".into()))
        });
        result.map_err(|error| {
            format!("{error}\n{scenario}again: cargo xtask soak --seed {seed} --count 1")
        })?;
    }
    Ok(totals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Random;

    #[test]
    fn random_scenarios_agree_with_the_model() {
        let seed = Random::from_time().word();
        eprintln!("seed {seed}");
        let count = std::env::var("SOAK_SCENARIOS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
        let with_driver = testkit::require_opencl();
        let ended = soak(seed, with_driver, |totals| totals.scenarios < count);
        ended.unwrap_or_else(|error| panic!("{error}"));
    }
}
