//! Contexts: stages that see some rows only (GASPP §3.1).
//!
//! A row's column `context` is a set of 32 contexts, one a bit, and empty at the start of each chunk. Any stage may add
//! contexts to rows. [`InContext`] lets another stage see the rows that have one of some contexts:
//!
//! ```text
//!  verdict of a row      before     while the stage works     behind it
//!  next, in context      next       next                      what the stage made of it
//!  next, in no context   next       HIDDEN                    next
//!  settled               settled    settled                   settled
//! ```
//!
//! Stages pass over rows that are settled, and so over hidden ones, in each of their steps, on the CPU and on a device.
//! There a launch before the stage's kernels hides the rows, and one behind them shows them again, unless the next stage
//! has the same contexts (`segment.rs`).
//!
//! All pre-shades of a segment run before its first shade, and all shades before its first post-shade. A segment ends
//! where a stage would see contexts too early or too late by that ([`fit`]), so that each stage sees those that the
//! stages before it have set, and no others.

use std::sync::Arc;

use chunk::{
    Chunk, ColumnId, ColumnSet, Declaration, Packet, ReasonBlock, Rows, Verdict, VerdictKind,
};
use device::accelerator::Records;

use crate::segment::KernelForm;
use crate::stage::{Context, Phases, Shade, Spread, Stage};
use crate::worker::SpreadHash;

/// The verdict of a row that the stage at work does not see. Its kind says that it is settled.
pub(crate) const HIDDEN: Verdict = Verdict((VerdictKind::Taken as u32) << 24 | 1);

/// A stage that sees only the rows that have one of some contexts. It may add contexts to them. The stage in it is not an
/// `InContext` itself.
///
/// The columns that it writes keep what they had in rows that it does not see. Where a stage behind it reads them there,
/// they must be among [`Stage::zeroed`].
pub struct InContext<T> {
    stage: Box<dyn Stage<T>>,
    contexts: u32,
}

impl<T> InContext<T> {
    /// `stage`, which sees rows with at least one of `contexts`, a bit each; 0: all rows.
    pub fn new(stage: Box<dyn Stage<T>>, contexts: u32) -> Self {
        Self { stage, contexts }
    }
}

fn hide(rows: &mut Rows, contexts: u32) {
    if contexts == 0 {
        return;
    }
    let (verdict, context) = rows.common();
    for (verdict, context) in verdict.iter_mut().zip(context) {
        if Verdict(*verdict).is_next() && *context & contexts == 0 {
            *verdict = HIDDEN.0;
        }
    }
}

fn show(rows: &mut Rows, contexts: u32) {
    if contexts == 0 {
        return;
    }
    for verdict in rows.verdicts() {
        if *verdict == HIDDEN.0 {
            *verdict = Verdict::NEXT.0;
        }
    }
}

/// Rows that are on their way and that a stage with these contexts sees.
pub(crate) fn count(rows: &mut Rows, contexts: u32) -> usize {
    if contexts == 0 {
        return rows.verdicts().iter().filter(|&&verdict| Verdict(verdict).is_next()).count();
    }
    let (verdict, context) = rows.common();
    let is_seen = |(verdict, context): &(&mut u32, &mut u32)| {
        Verdict(**verdict).is_next() && **context & contexts != 0
    };
    verdict.iter_mut().zip(context).filter(is_seen).count()
}

/// Whether the shade of a stage sets contexts.
pub(crate) fn sets_in_shade<T>(stage: &dyn Stage<T>) -> bool {
    stage.writes().contains(ColumnId::CONTEXT.desc())
}

/// The steps in which a stage looks at contexts: pre-shade, shade, and what comes behind all shades of its segment.
fn looks<T>(stage: &dyn Stage<T>) -> [bool; 3] {
    let form = stage.shader().map(|shade| shade.kernels());
    if stage.contexts() == 0 {
        let reads = stage.reads().contains(ColumnId::CONTEXT.desc());
        return [false, reads && form.is_some(), false];
    }
    // What comes back from a device is looked at behind all kernels.
    let comes_back = |form: &KernelForm| form.state.is_some() || form.output.is_some();
    let is_late = form.as_ref().and_then(Option::as_ref).is_some_and(comes_back);
    let Phases { pre_shade, post_shade } = stage.phases();
    [pre_shade, form.is_some(), post_shade || is_late]
}

/// Whether two stages of a pipeline, `first` before `second`, may be in one segment: neither sees contexts before they
/// are set, or those that are set behind it.
pub(crate) fn fit<T>(first: &dyn Stage<T>, second: &dyn Stage<T>) -> bool {
    let [pre, shade, _] = looks(second);
    let is_early = sets_in_shade(first) && pre || first.sets_context().post_shade && (pre || shade);
    let [_, shade, post] = looks(first);
    let is_late =
        second.sets_context().pre_shade && (shade || post) || sets_in_shade(second) && post;
    !is_early && !is_late
}

impl<T: 'static> Stage<T> for InContext<T> {
    fn name(&self) -> &'static str {
        self.stage.name()
    }
    fn sends_to(&self) -> &'static [&'static str] {
        self.stage.sends_to()
    }
    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        self.stage.drop_reasons()
    }
    fn columns(&self) -> &'static [Declaration] {
        self.stage.columns()
    }
    fn zeroed(&self) -> ColumnSet {
        self.stage.zeroed()
    }
    fn reads(&self) -> ColumnSet {
        let own =
            if self.contexts == 0 { ColumnSet::EMPTY } else { ColumnSet::of(&[ColumnId::CONTEXT]) };
        self.stage.reads().union(&own)
    }
    fn writes(&self) -> ColumnSet {
        self.stage.writes()
    }
    fn changes_packets(&self) -> bool {
        self.stage.changes_packets()
    }

    fn takes_offloads(&self) -> bool {
        self.stage.takes_offloads()
    }
    fn reads_packets(&self) -> bool {
        self.stage.reads_packets()
    }
    fn keeps(&self) -> ColumnSet {
        self.stage.keeps()
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
    fn contexts(&self) -> u32 {
        self.contexts
    }
    fn sets_context(&self) -> Phases {
        self.stage.sets_context()
    }
    fn spread(&self) -> Spread {
        self.stage.spread()
    }
    fn spread_hash(&self) -> Option<SpreadHash> {
        self.stage.spread_hash()
    }
    fn needs_one_worker(&self, tables: &T) -> Option<&'static str> {
        self.stage.needs_one_worker(tables)
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, T>) {
        hide(&mut chunk.rows, self.contexts);
        self.stage.pre_shade(chunk, cx);
        show(&mut chunk.rows, self.contexts);
    }
    fn divides(&self) -> bool {
        self.stage.divides()
    }

    fn sees_retired(&self) -> bool {
        self.stage.sees_retired()
    }

    fn retired(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, T>) {
        self.stage.retired(chunk, cx);
    }

    fn shader(&self) -> Option<Arc<dyn Shade<T>>> {
        let shade = self.stage.shader()?;
        Some(Arc::new(ShadeInContext { shade, contexts: self.contexts }))
    }
    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, T>) {
        hide(&mut chunk.rows, self.contexts);
        self.stage.post_shade(chunk, cx);
        show(&mut chunk.rows, self.contexts);
    }
    fn tick(&mut self, cx: &mut Context<'_, T>) {
        self.stage.tick(cx);
    }
    fn next_tick_ns(&self) -> Option<u64> {
        self.stage.next_tick_ns()
    }
    fn next_sweep_ns(&self) -> Option<u64> {
        self.stage.next_sweep_ns()
    }
    fn sweep(&mut self, rows: &mut Rows, cx: &mut Context<'_, T>) -> usize {
        self.stage.sweep(rows, cx)
    }
    fn held(&self) -> usize {
        self.stage.held()
    }
    fn drain(&mut self, cx: &mut Context<'_, T>) {
        self.stage.drain(cx);
    }
    fn inherit(&mut self, before: &mut dyn Stage<T>) {
        self.stage.inherit(before);
    }
    /// That of the stage in it: contexts hold nothing.
    fn as_any(&mut self) -> Option<&mut dyn std::any::Any> {
        self.stage.as_any()
    }
    fn describe(&self, chunk: &mut Chunk, row: usize, tables: &T) -> String {
        hide(&mut chunk.rows, self.contexts);
        let text = match chunk.rows.verdicts().get(row) {
            Some(verdict) if *verdict == HIDDEN.0 => "not in its contexts".into(),
            _ => self.stage.describe(chunk, row, tables),
        };
        show(&mut chunk.rows, self.contexts);
        text
    }
}

/// The shade of an [`InContext`].
struct ShadeInContext<T> {
    shade: Arc<dyn Shade<T>>,
    contexts: u32,
}

impl<T: 'static> Shade<T> for ShadeInContext<T> {
    fn shade(&self, rows: &mut Rows, tables: &T) {
        hide(rows, self.contexts);
        self.shade.shade(rows, tables);
        show(rows, self.contexts);
    }
    fn shade_packets(&self, rows: &mut Rows, packets: &mut [Packet], tables: &T) {
        hide(rows, self.contexts);
        self.shade.shade_packets(rows, packets, tables);
        show(rows, self.contexts);
    }
    fn kernels(&self) -> Option<KernelForm> {
        let form = self.shade.kernels()?;
        Some(KernelForm { contexts: self.contexts, ..form })
    }
    fn needs_device(&self) -> bool {
        self.shade.needs_device()
    }
    fn explained(&self, log: &str) -> String {
        self.shade.explained(log)
    }
    fn without_device(&self) -> Vec<String> {
        self.shade.without_device()
    }
    fn fits_device(&self, tables: &T) -> bool {
        self.shade.fits_device(tables)
    }
    fn state_slots(&self) -> usize {
        self.shade.state_slots()
    }
    fn state(&self, step: usize, bytes: &mut [u8]) {
        self.shade.state(step, bytes);
    }
    fn twin(&self) -> Option<Arc<dyn Shade<T>>> {
        let shade = self.shade.twin()?;
        Some(Arc::new(Self { shade, contexts: self.contexts }))
    }
    fn set_state(&self, step: usize, bytes: &[u8]) {
        self.shade.set_state(step, bytes);
    }
    fn records(&self, rows: &mut Rows, records: Records<'_>, first: usize) {
        hide(rows, self.contexts);
        self.shade.records(rows, records, first);
        show(rows, self.contexts);
    }
    fn retired(&self, rows: &mut Rows, packets: &mut [Packet]) {
        hide(rows, self.contexts);
        self.shade.retired(rows, packets);
        show(rows, self.contexts);
    }
}
