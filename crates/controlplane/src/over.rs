//! A stage over its own part of the tables, in a pipeline over all of them.
//!
//! An application's stages know the type of their own tables and no other, so they run by themselves in tests and
//! measurements. In the program each is wrapped once.

use std::sync::Arc;

use chunk::{Chunk, ColumnSet, Declaration, Packet, ReasonBlock, Rows};
use device::accelerator::Records;
use engine::{Context, KernelForm, Phases, Shade, Spread, SpreadHash, Stage};

use crate::tables::{PartId, TablePart, Tables};

/// A stage of one application, over the part that is its own.
pub struct OverPart<P: TablePart> {
    stage: Box<dyn Stage<P::Tables>>,
    part: PartId<P>,
}

impl<P: TablePart> OverPart<P> {
    /// Wraps a stage.
    pub fn new(stage: Box<dyn Stage<P::Tables>>, part: PartId<P>) -> Self {
        Self { stage, part }
    }

    /// The same, as a pipeline holds it.
    pub fn boxed(stage: Box<dyn Stage<P::Tables>>, part: PartId<P>) -> Box<dyn Stage<Tables>> {
        Box::new(Self::new(stage, part))
    }
}

impl<P: TablePart> Stage<Tables> for OverPart<P> {
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
        self.stage.reads()
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
        self.stage.contexts()
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

    fn needs_one_worker(&self, tables: &Tables) -> Option<&'static str> {
        self.stage.needs_one_worker(tables.part(self.part))
    }

    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, Tables>) {
        let part = self.part;
        self.stage.pre_shade(chunk, &mut cx.over(|tables| tables.part(part)));
    }

    fn divides(&self) -> bool {
        self.stage.divides()
    }

    fn sees_retired(&self) -> bool {
        self.stage.sees_retired()
    }

    fn retired(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, Tables>) {
        let part = self.part;
        self.stage.retired(chunk, &mut cx.over(|tables| tables.part(part)));
    }

    fn shader(&self) -> Option<Arc<dyn Shade<Tables>>> {
        self.stage.shader().map(|shade| over(shade, self.part))
    }

    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, Tables>) {
        let part = self.part;
        self.stage.post_shade(chunk, &mut cx.over(|tables| tables.part(part)));
    }

    fn tick(&mut self, cx: &mut Context<'_, Tables>) {
        let part = self.part;
        self.stage.tick(&mut cx.over(|tables| tables.part(part)));
    }

    fn next_tick_ns(&self) -> Option<u64> {
        self.stage.next_tick_ns()
    }

    fn next_sweep_ns(&self) -> Option<u64> {
        self.stage.next_sweep_ns()
    }

    fn sweep(&mut self, rows: &mut Rows, cx: &mut Context<'_, Tables>) -> usize {
        let part = self.part;
        self.stage.sweep(rows, &mut cx.over(|tables| tables.part(part)))
    }

    fn held(&self) -> usize {
        self.stage.held()
    }

    fn drain(&mut self, cx: &mut Context<'_, Tables>) {
        let part = self.part;
        self.stage.drain(&mut cx.over(|tables| tables.part(part)));
    }

    fn inherit(&mut self, before: &mut dyn Stage<Tables>) {
        if let Some(before) = before.as_any().and_then(|before| before.downcast_mut::<Self>()) {
            self.stage.inherit(&mut *before.stage);
        }
    }

    fn as_any(&mut self) -> Option<&mut dyn std::any::Any> {
        Some(self)
    }

    fn describe(&self, chunk: &mut Chunk, row: usize, tables: &Tables) -> String {
        self.stage.describe(chunk, row, tables.part(self.part))
    }
}

/// The same of a shade.
struct ShadeOver<P: TablePart> {
    shade: Arc<dyn Shade<P::Tables>>,
    part: PartId<P>,
}

fn over<P: TablePart>(shade: Arc<dyn Shade<P::Tables>>, part: PartId<P>) -> Arc<dyn Shade<Tables>> {
    Arc::new(ShadeOver { shade, part })
}

impl<P: TablePart> Shade<Tables> for ShadeOver<P> {
    fn shade(&self, rows: &mut Rows, tables: &Tables) {
        self.shade.shade(rows, tables.part(self.part));
    }

    fn shade_packets(&self, rows: &mut Rows, packets: &mut [Packet], tables: &Tables) {
        self.shade.shade_packets(rows, packets, tables.part(self.part));
    }

    fn kernels(&self) -> Option<KernelForm> {
        self.shade.kernels()
    }

    fn fits_device(&self, tables: &Tables) -> bool {
        self.shade.fits_device(tables.part(self.part))
    }

    fn state_slots(&self) -> usize {
        self.shade.state_slots()
    }

    fn state(&self, step: usize, bytes: &mut [u8]) {
        self.shade.state(step, bytes);
    }

    fn twin(&self) -> Option<Arc<dyn Shade<Tables>>> {
        self.shade.twin().map(|twin| over(twin, self.part))
    }

    fn set_state(&self, step: usize, bytes: &[u8]) {
        self.shade.set_state(step, bytes);
    }

    fn records(&self, rows: &mut Rows, records: Records<'_>, first: usize) {
        self.shade.records(rows, records, first);
    }

    fn retired(&self, rows: &mut Rows, packets: &mut [Packet]) {
        self.shade.retired(rows, packets);
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use device::tables::Change;
    use lookup::versions::Patchable;

    use super::*;

    #[derive(Clone, Debug)]
    struct Word(u32);

    impl Patchable for Word {
        type Patch = u32;

        fn apply(&mut self, patch: &u32) {
            self.0 = *patch;
        }
    }

    struct WordPart;

    impl crate::TablePart for WordPart {
        type Tables = Word;

        const REGIONS: usize = 0;

        fn len_bytes(_: &Word) -> usize {
            4
        }

        fn regions(_: &Word) -> Vec<Cow<'_, [u32]>> {
            Vec::new()
        }

        fn changes(_: &u32, _: &mut dyn FnMut(usize, Change<'_>)) -> bool {
            true
        }
    }

    /// Says what it reads, and names the row that it works on.
    struct Reads;

    impl Stage<Word> for Reads {
        fn name(&self) -> &'static str {
            "reads"
        }

        fn tick(&mut self, cx: &mut Context<'_, Word>) {
            cx.at(cx.tables.0 as usize);
        }

        fn describe(&self, _: &mut Chunk, row: usize, tables: &Word) -> String {
            format!("{row} {}", tables.0)
        }
    }

    #[test]
    fn a_stage_reads_its_own_part_and_names_its_row() {
        let mut tables = Tables::default();
        let [one, two] = [7, 9].map(|word| tables.add::<WordPart>(Word(word)));
        let mut stages = [one, two].map(|part| OverPart::boxed(Box::new(Reads), part));
        let (_, depot) = chunk::Region::new(64, chunk::HugePages::Off).unwrap();
        let mut pool = chunk::Pool::new(depot, 4);
        let (mut dropped, mut released) = (Vec::new(), Vec::new());
        for (stage, expected) in stages.iter_mut().zip([7, 9]) {
            let mut cx = Context::detached(&mut pool, &tables, 0, &mut dropped, &mut released);
            stage.tick(&mut cx);
            assert_eq!(cx.row_at_work(), Some(expected), "a panic there names this row");
        }
    }
}
