//! What follows from the stages of all workers: pipelines, segments, places, and who shares what.

use std::ops::Range;
use std::sync::Arc;

use chunk::Layout;
use device::accelerator::{SegmentProgram, State};

use crate::engine::{DeviceKind, DeviceSpec, EngineError, EngineSpec, PipelineSpec, WorkerSpec};
use crate::in_flight::Shaders;
use crate::segment::{Segment, segment_program, segments, states};
use crate::stage::{Stage, Versions};
use crate::view::PipelineView;
use crate::worker::{Entry, OwnPipeline, segment_shaders};

/// A pipeline of some workers.
pub(crate) struct Pipeline {
    name: String,
    /// As in [`PipelineSpec::places`].
    mapped: Vec<(String, String)>,
    stages: Range<usize>,
    segments: Range<usize>,
    places: Arc<[(&'static str, u16)]>,
}

impl Pipeline {
    pub(crate) fn view(&self) -> PipelineView {
        PipelineView { name: self.name.clone(), stages: self.stages.clone() }
    }
}

/// What follows from the stages alone.
pub(crate) struct Plan {
    pub(crate) stages: Vec<&'static str>,
    pub(crate) segments: Arc<[Segment]>,
    /// By segment: what a real device runs.
    pub(crate) programs: Vec<Option<SegmentProgram>>,
    /// By segment: what its shades keep.
    pub(crate) states: Vec<Vec<State>>,
    pub(crate) pipelines: Vec<Pipeline>,
    /// By worker: the numbers of its pipelines.
    of_worker: Vec<Vec<usize>>,
}

impl Plan {
    /// The workers that have a pipeline, in ascending order.
    fn peers(&self, number: usize) -> Arc<[usize]> {
        let all = self.of_worker.iter().enumerate();
        all.filter(|(_, own)| own.contains(&number)).map(|(peer, _)| peer).collect()
    }

    /// The workers that have all pipelines of worker `i`, in ascending order.
    pub(crate) fn heirs(&self, i: usize) -> Arc<[usize]> {
        let all = self.of_worker.iter().enumerate();
        let has_all = |own: &[usize]| self.of_worker[i].iter().all(|number| own.contains(number));
        all.filter(|(_, own)| has_all(own)).map(|(heir, _)| heir).collect()
    }

    /// The pipelines of worker `i`, in its order.
    pub(crate) fn of_one(&self, i: usize) -> Vec<OwnPipeline> {
        let own = |&number: &usize| {
            let Pipeline { stages, segments, places, .. } = &self.pipelines[number];
            OwnPipeline {
                number: number as u16,
                stages: stages.clone(),
                segments: segments.clone(),
                places: places.clone(),
                peers: self.peers(number),
            }
        };
        self.of_worker[i].iter().map(own).collect()
    }

    /// Gives receive queues the numbers of their pipelines among those of the engine: they may get another owner.
    pub(crate) fn number_queues<V: Versions>(
        &self,
        spec: &mut EngineSpec<V>,
    ) -> Result<(), EngineError> {
        for (i, (worker, own)) in spec.workers.iter_mut().zip(&self.of_worker).enumerate() {
            let number = |wanted: usize| {
                own.get(wanted).copied().ok_or_else(|| {
                    let has = own.len();
                    let message = format!(
                        "worker {i}: a receive queue leads to pipeline {wanted}, but there are {has}"
                    );
                    EngineError::Spec(message)
                })
            };
            for slot in &mut worker.rx {
                slot.entry = match &slot.entry {
                    Entry::Pipeline(wanted) => Entry::Pipeline(number(*wanted)?),
                    Entry::ByPort(by_port) => {
                        // Ports beyond the list enter the first one.
                        let wanted = by_port.iter().copied().chain([0]);
                        Entry::ByPort(wanted.map(number).collect::<Result<_, _>>()?)
                    }
                };
            }
        }
        Ok(())
    }

    pub(crate) fn of<V: Versions>(
        spec: &EngineSpec<V>,
        layout: &Layout,
    ) -> Result<Self, EngineError> {
        let mut plan = Self {
            stages: Vec::new(),
            segments: Arc::from([]),
            programs: Vec::new(),
            states: Vec::new(),
            pipelines: Vec::new(),
            of_worker: Vec::new(),
        };
        let mut all: Vec<Segment> = Vec::new();
        for (i, worker) in spec.workers.iter().enumerate() {
            if worker.pipelines.is_empty() {
                return Err(EngineError::Spec(format!("worker {i} has no pipeline")));
            }
            let mut own = Vec::new();
            for pipeline in &worker.pipelines {
                let number = plan.add(spec, layout, pipeline, &own, &mut all)?;
                own.push(number);
            }
            plan.of_worker.push(own);
        }
        plan.segments = all.into();
        Ok(plan)
    }

    /// By worker and segment: the shaders of the worker's stages, as they are now.
    pub(crate) fn shaders<V: Versions>(
        &self,
        workers: &[WorkerSpec<V>],
    ) -> Vec<Vec<Shaders<V::Tables>>> {
        let of_worker = |(i, worker): (usize, &WorkerSpec<V>)| {
            let stages = worker.pipelines.iter().flat_map(|pipeline| &pipeline.stages);
            let stages = stages.map(|stage| &**stage);
            segment_shaders(&stages.collect::<Vec<_>>(), &self.of_one(i), &self.segments)
        };
        workers.iter().enumerate().map(of_worker).collect()
    }

    /// The number of a pipeline of a worker whose earlier ones are `own`: that of one like it at a worker before, or of
    /// a new one.
    fn add<V: Versions>(
        &mut self,
        spec: &EngineSpec<V>,
        layout: &Layout,
        pipeline: &PipelineSpec<V::Tables>,
        own: &[usize],
        all: &mut Vec<Segment>,
    ) -> Result<usize, EngineError> {
        let is_real = |d: &DeviceSpec<V::Tables>| matches!(d.kind, DeviceKind::Driver { .. });
        let PipelineSpec { name, stages, places: mapped } = pipeline;
        if stages.is_empty() {
            return Err(EngineError::Spec(format!("pipeline `{name}` has no stage")));
        }
        let wanted: Vec<_> = stages.iter().map(|stage| stage.name()).collect();
        let is_like = |(number, known): (usize, &Pipeline)| {
            known.name == *name
                && known.mapped == *mapped
                && self.stages[known.stages.clone()] == wanted
                && !own.contains(&number)
        };
        let known = self.pipelines.iter().enumerate().position(is_like);
        let (cut, targets) = cut(stages, &wanted, mapped)?;
        let program = |segment: Segment| {
            let is_wanted = spec.devices.iter().any(is_real);
            let shards = spec.workers.len();
            let program = || segment_program(stages, segment, layout.columns(), shards);
            is_wanted.then(program)
        };
        if let Some(known) = known {
            // All its workers share one program on a device.
            let Pipeline { stages, segments: there, .. } = &self.pipelines[known];
            let (base, there) = (stages.start, there.clone());
            let is_same = |(segment, number): (&Segment, usize)| {
                let known: &Segment = &all[number];
                let made = program(*segment).flatten().filter(|_| known.on_device);
                segment.end == known.end - base && made == self.programs[number]
            };
            if cut.len() != there.len() || !cut.iter().zip(there).all(is_same) {
                return Err(EngineError::Spec(format!(
                    "worker {} has stages of the same names as a worker before it, with other kernels: {}",
                    self.of_worker.len(),
                    wanted.join(", ")
                )));
            }
            return Ok(known);
        }
        if !spec.devices.is_empty() {
            has_twins(stages)?;
        }
        let (base, first) = (self.stages.len(), all.len());
        for mut segment in cut {
            let program = program(segment);
            segment.on_device &= program.as_ref().is_none_or(Option::is_some);
            self.states.push(states(stages, segment));
            self.programs.push(program.flatten().filter(|_| segment.on_device));
            segment.first += base;
            segment.end += base;
            all.push(segment);
        }
        let segments = first..all.len();
        let at = |(place, stage): (&'static str, usize)| {
            let segment = segments.clone().find(|&s| all[s].first == base + stage)?;
            Some((place, segment as u16))
        };
        let places = targets.into_iter().filter_map(at).collect();
        self.pipelines.push(Pipeline {
            name: name.clone(),
            mapped: mapped.clone(),
            stages: base..base + wanted.len(),
            segments,
            places,
        });
        self.stages.extend(wanted);
        Ok(self.pipelines.len() - 1)
    }
}

/// Each shade with state has a twin, so that segments are the same on every device.
fn has_twins<T>(stages: &[Box<dyn Stage<T>>]) -> Result<(), EngineError> {
    for stage in stages {
        let Some(shade) = stage.shader() else { continue };
        if crate::stage::has_state(&*shade) && shade.twin().is_none() {
            let name = stage.name();
            let message =
                format!("stage `{name}` keeps state on devices, but its shade has no twin");
            return Err(EngineError::Spec(message));
        }
    }
    Ok(())
}

/// Cuts a pipeline into segments, so that one begins at each stage that packets are sent to; and the stage of each place.
/// `mapped`: places and their stages, where the stage has another name.
#[expect(clippy::type_complexity, reason = "segments, and places with the numbers of their stages")]
fn cut<T>(
    stages: &[Box<dyn Stage<T>>],
    names: &[&'static str],
    mapped: &[(String, String)],
) -> Result<(Vec<Segment>, Vec<(&'static str, usize)>), EngineError> {
    let mut starts = vec![0];
    let mut places: Vec<(&'static str, usize)> = Vec::new();
    for stage in stages {
        for place in stage.sends_to().iter().copied() {
            let of_place = mapped.iter().find(|(known, _)| known == place);
            let target = of_place.map_or(place, |(_, target)| target);
            let mut found = (0..names.len()).filter(|at| names[*at] == target);
            let why = match (found.next(), found.next()) {
                (Some(at), None) => {
                    starts.push(at);
                    places.push((place, at));
                    continue;
                }
                (None, _) => "which the pipeline lacks",
                (Some(_), Some(_)) => "of which the pipeline has several",
            };
            let by = if place == target { String::new() } else { format!(" (place `{place}`)") };
            let stage = stage.name();
            let message = format!("stage `{stage}` sends packets to stage `{target}`{by}, {why}");
            return Err(EngineError::Spec(message));
        }
    }
    let known = |place: &String| places.iter().any(|(known, _)| known == place);
    if let Some((place, _)) = mapped.iter().find(|(place, _)| !known(place)) {
        let message = format!("no stage sends packets to place `{place}`");
        return Err(EngineError::Spec(message));
    }
    places.sort_unstable();
    places.dedup();
    starts.sort_unstable();
    starts.dedup();
    let ends = starts[1..].iter().copied().chain([stages.len()]);
    let parts = starts.iter().copied().zip(ends);
    let segments = parts.flat_map(|(start, end)| {
        let shifted = move |s: Segment| Segment { first: s.first + start, end: s.end + start, ..s };
        segments(&stages[start..end]).into_iter().map(shifted)
    });
    Ok((segments.collect(), places))
}
