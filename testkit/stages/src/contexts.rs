//! Stages that set contexts, and whose steps show whether they all saw the same packets.

use std::sync::Arc;

use chunk::{Chunk, ColumnId, ColumnSet, Columns, Declaration, Rows, Verdict};
use engine::{Context, KernelForm, Parameter, Phases, Shade, Stage, Step};

use crate::parts::{At, flow_of, next_rows};
use crate::{TestColumns, fill_flows};

/// Adds to each packet's contexts one that follows from its flow, in one of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The step: `Pre`, `Shade` or `Post`.
    pub at: At,
    /// By how many bits the flow is shifted.
    pub shift: u32,
}

impl Key {
    /// How many contexts there are.
    pub const CONTEXTS: u32 = 4;

    /// The context of a flow, a bit.
    pub fn of(self, flow: u8) -> u32 {
        1 << ((u32::from(flow) >> self.shift) % Key::CONTEXTS)
    }

    fn set(self, chunk: &mut Chunk) {
        for row in next_rows(chunk) {
            let context = self.of(flow_of(&chunk.packets[row]));
            TestColumns::view(&mut chunk.rows).context[row] |= context;
        }
    }
}

impl Stage<u64> for Key {
    fn name(&self) -> &'static str {
        match self.at {
            At::Pre => "key_early",
            At::Shade => "key",
            _ => "key_late",
        }
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn reads(&self) -> ColumnSet {
        ColumnSet::of(if self.at == At::Shade { &[TestColumns::SLOT] } else { &[] })
    }
    fn writes(&self) -> ColumnSet {
        ColumnSet::of(if self.at == At::Shade { &[ColumnId::CONTEXT] } else { &[] })
    }
    fn phases(&self) -> Phases {
        if self.at == At::Post { Phases::POST } else { Phases::PRE }
    }
    fn sets_context(&self) -> Phases {
        if self.at == At::Shade { Phases::NONE } else { self.phases() }
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        match self.at {
            At::Shade => fill_flows(chunk),
            _ => self.set(chunk),
        }
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        (self.at == At::Shade).then(|| Arc::new(*self) as _)
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        self.set(chunk);
    }
}

impl Shade<u64> for Key {
    fn shade(&self, rows: &mut Rows, _: &u64) {
        let view = TestColumns::view(rows);
        for ((verdict, slot), context) in view.verdict.iter().zip(view.slot).zip(view.context) {
            if Verdict(*verdict).is_next() {
                *context |= self.of(*slot as u8);
            }
        }
    }
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            text: "
                KERNEL(test_key)
                {
                    const uint row = JOB_FIRST(arena) + GLOBAL_ID;
                    if (GLOBAL_ID < job_rows(arena) && IS_NEXT(COL_VERDICT(arena)[row]))
                        COL_CONTEXT(arena)[row] |= 1u << ((COL_SLOT(arena)[row] & 255u) >> SHIFT) % CONTEXTS;
                }"
            .into(),
            parameters: vec![
                ("SHIFT".into(), Parameter::U32(self.shift)),
                ("CONTEXTS".into(), Parameter::U32(Key::CONTEXTS)),
            ],
            steps: vec![Step::rows("test_key", 64).into()],
            ..KernelForm::default()
        })
    }
}

/// Writes a column in each of its three steps, each time from what it wrote before, and adds a context as [`Key`] does in
/// one of them. Where it had not seen a packet in an earlier step, another number comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// Its name.
    pub name: &'static str,
    /// Which of two.
    pub is_second: bool,
    /// Where it sets contexts, and which.
    pub key: Key,
}

impl Steps {
    /// What it makes of a flow in its three steps.
    pub fn of(flow: u8) -> [u32; 3] {
        let begun = u32::from(flow) + 1;
        [begun, 3 * begun, 3 * begun + 7]
    }

    fn columns(self) -> [ColumnId; 3] {
        match self.is_second {
            false => [TestColumns::BEGUN, TestColumns::SHADED, TestColumns::ENDED],
            true => [TestColumns::ALSO_BEGUN, TestColumns::ALSO_SHADED, TestColumns::ALSO_ENDED],
        }
    }

    fn view(self, rows: &mut Rows) -> [&mut [u32]; 3] {
        let view = TestColumns::view(rows);
        match self.is_second {
            false => [view.begun, view.shaded, view.ended],
            true => [view.also_begun, view.also_shaded, view.also_ended],
        }
    }
}

impl Stage<u64> for Steps {
    fn name(&self) -> &'static str {
        self.name
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn zeroed(&self) -> ColumnSet {
        ColumnSet::of(&Steps::columns(*self))
    }
    fn reads(&self) -> ColumnSet {
        let [begun, ..] = Steps::columns(*self);
        ColumnSet::of(&[begun, TestColumns::SLOT])
    }
    fn writes(&self) -> ColumnSet {
        let [_, shaded, _] = Steps::columns(*self);
        let sets = if self.key.at == At::Shade { &[ColumnId::CONTEXT][..] } else { &[] };
        ColumnSet::of(&[shaded]).union(&ColumnSet::of(sets))
    }
    fn sets_context(&self) -> Phases {
        Phases { pre_shade: self.key.at == At::Pre, post_shade: self.key.at == At::Post }
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        fill_flows(chunk);
        for row in next_rows(chunk) {
            let [begun, ..] = Steps::of(flow_of(&chunk.packets[row]));
            self.view(&mut chunk.rows)[0][row] = begun;
        }
        if self.key.at == At::Pre {
            self.key.set(chunk);
        }
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(*self))
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        for row in next_rows(chunk) {
            let [_, shaded, ended] = self.view(&mut chunk.rows);
            ended[row] = shaded[row] + 7;
        }
        if self.key.at == At::Post {
            self.key.set(chunk);
        }
    }
}

impl Shade<u64> for Steps {
    fn shade(&self, rows: &mut Rows, tables: &u64) {
        let verdicts = rows.verdicts().to_vec();
        let [begun, shaded, _] = self.view(rows);
        for ((verdict, begun), shaded) in verdicts.iter().zip(begun).zip(shaded) {
            if Verdict(*verdict).is_next() {
                *shaded = 3 * *begun;
            }
        }
        if self.key.at == At::Shade {
            self.key.shade(rows, tables);
        }
    }
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            text: "
                KERNEL(test_steps)
                {
                    const uint row = JOB_FIRST(arena) + GLOBAL_ID;
                    if (GLOBAL_ID < job_rows(arena) && IS_NEXT(COL_VERDICT(arena)[row])) {
                        GLOBAL const uint *begun = SECOND != 0u ? COL_ALSO_BEGUN(arena) : COL_BEGUN(arena);
                        GLOBAL uint *shaded = SECOND != 0u ? COL_ALSO_SHADED(arena) : COL_SHADED(arena);
                        shaded[row] = 3u * begun[row];
                        if (SETS != 0u)
                            COL_CONTEXT(arena)[row] |= 1u << ((COL_SLOT(arena)[row] & 255u) >> SHIFT) % CONTEXTS;
                    }
                }"
            .into(),
            parameters: vec![
                ("SECOND".into(), Parameter::U32(self.is_second.into())),
                ("SETS".into(), Parameter::U32((self.key.at == At::Shade).into())),
                ("SHIFT".into(), Parameter::U32(self.key.shift)),
                ("CONTEXTS".into(), Parameter::U32(Key::CONTEXTS)),
            ],
            steps: vec![Step::rows("test_steps", 64).into()],
            ..KernelForm::default()
        })
    }
}

/// Adds what both [`Steps`] made to bytes 6 and 7, where there are so many.
pub struct Show;

impl Show {
    /// Adds what the two made, in three steps each.
    pub fn add(bytes: &mut [u8], made: [[u32; 3]; 2]) {
        if let Some(capacity) = bytes.get_mut(6..8) {
            for (capacity, [begun, shaded, ended]) in capacity.iter_mut().zip(made) {
                let sum = begun.wrapping_add(shaded << 1).wrapping_add(ended << 2);
                *capacity = capacity.wrapping_add(sum as u8);
            }
        }
    }
}

impl Stage<u64> for Show {
    fn name(&self) -> &'static str {
        "show"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn zeroed(&self) -> ColumnSet {
        ColumnSet::of(&[
            TestColumns::BEGUN,
            TestColumns::SHADED,
            TestColumns::ENDED,
            TestColumns::ALSO_BEGUN,
            TestColumns::ALSO_SHADED,
            TestColumns::ALSO_ENDED,
        ])
    }
    fn phases(&self) -> Phases {
        Phases::POST
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        for row in next_rows(chunk) {
            let v = TestColumns::view(&mut chunk.rows);
            let first = [v.begun[row], v.shaded[row], v.ended[row]];
            let second = [v.also_begun[row], v.also_shaded[row], v.also_ended[row]];
            Show::add(chunk.packets[row].data_mut(), [first, second]);
        }
    }
}
