//! The shades of all workers, and state as the simulated device has it.
//!
//! That device shades by twins: each has a state of its own, filled from the host's copy when a shard moves there and when
//! it grows, as device memory is. So the host's copy changes there as with any other device: by what comes back in
//! columns.

use std::sync::{Arc, Mutex, PoisonError};

use device::accelerator::State;

use crate::in_flight::Shaders;
use crate::stage::Shade;

/// The shades of all workers.
pub(crate) struct Crew<T> {
    /// By worker and segment: a stage with state has a shard for each worker.
    shaders: Vec<Vec<Shaders<T>>>,
    /// By segment: the states that its shades keep.
    states: Vec<Vec<State>>,
    /// By segment: whether a shade changes packets.
    changes_packets: Vec<bool>,
    /// By worker and segment; none before the shard has moved to the device.
    twins: Vec<Mutex<Option<Twin<T>>>>,
}

struct Twin<T> {
    shaders: Shaders<T>,
    /// By state: steps that it was given.
    steps: Vec<usize>,
}

impl<T> Crew<T> {
    pub(crate) fn new(shaders: Vec<Vec<Shaders<T>>>, states: Vec<Vec<State>>) -> Self {
        let twins = shaders.iter().flatten().map(|_| Mutex::new(None)).collect();
        let changes = |shade: &Arc<dyn Shade<T>>| {
            shade.kernels().and_then(|form| form.payload).is_some_and(|payload| payload.writes)
        };
        let in_segment = |segment: usize| {
            let mut all = shaders.iter().flat_map(|worker| worker[segment].iter());
            all.any(|(_, shade)| changes(shade))
        };
        let changes_packets = (0..states.len()).map(in_segment).collect();
        Self { shaders, states, changes_packets, twins }
    }

    /// Whether the shades of a segment change packets.
    pub(crate) fn changes_packets(&self, segment: usize) -> bool {
        self.changes_packets[segment]
    }

    /// The shades of a segment at a worker.
    pub(crate) fn shaders(&self, worker: usize, segment: usize) -> &Shaders<T> {
        &self.shaders[worker][segment]
    }

    /// How many slots a shard has of a state.
    pub(crate) fn slots(&self, worker: usize, segment: usize, state: usize) -> usize {
        let shade = self.states[segment][state].shade;
        self.shaders(worker, segment)[shade].1.state_slots()
    }

    /// The place in the segment of the stage that keeps a state.
    pub(crate) fn place(&self, worker: usize, segment: usize, state: usize) -> usize {
        self.shaders(worker, segment)[self.states[segment][state].shade].0
    }

    /// Writes a step of that state, as the host has it.
    pub(crate) fn state(
        &self,
        (worker, segment, state): (usize, usize, usize),
        step: usize,
        bytes: &mut [u8],
    ) {
        let shade = self.states[segment][state].shade;
        self.shaders(worker, segment)[shade].1.state(step, bytes);
    }

    /// The twins of a segment's shades at a worker, with all state that there is; anew for a shard that `has_moved`.
    /// `None` before it has.
    pub(crate) fn twins(
        &self,
        worker: usize,
        segment: usize,
        has_moved: bool,
    ) -> Option<Shaders<T>> {
        let own = self.shaders(worker, segment);
        let states = &self.states[segment];
        let place = worker * self.states.len() + segment;
        let mut kept = self.twins[place].lock().unwrap_or_else(PoisonError::into_inner);
        if has_moved {
            let twin = |(i, shade): &(usize, Arc<_>)| (*i, crate::stage::twin_of(shade));
            let shaders = own.iter().map(twin).collect();
            *kept = Some(Twin { shaders, steps: vec![0; states.len()] });
        }
        let twin = kept.as_mut()?;
        for (number, State { form, shade }) in states.iter().enumerate() {
            let steps = form.steps(own[*shade].1.state_slots());
            for step in twin.steps[number]..steps {
                let mut bytes = vec![0; form.step_bytes()];
                own[*shade].1.state(step, &mut bytes);
                twin.shaders[*shade].1.set_state(step, &bytes);
            }
            twin.steps[number] = twin.steps[number].max(steps);
        }
        Some(twin.shaders.clone())
    }
}
