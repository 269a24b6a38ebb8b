//! Small stages: each packet by itself, over columns, with settings and counters.
//!
//! A [`RowStage`] says what it is and what it does to one packet. From that come the engine's [`Stage`], with its shade and
//! kernel ([`ByRow`]), the application around it ([`Descriptor::of`]), its part of the control plane, the table of `ctl show`
//! and the metrics of its counters. A stage with tables, state or requests of its own implements [`Stage`] and
//! [`ControlPart`] instead.

use std::marker::PhantomData;
use std::sync::Arc;

use chunk::{Chunk, ColumnId, ColumnSet, Columns, Declaration, Packet, ReasonBlock, Rows, Verdict};
use control::api::table::thousands;
use control::api::{HotRow, HotTable};
use control::config::section::{Reload, SectionValue};
use control::config::{Application, Settings, StageKind};
use control::metrics::Metrics;
use engine::{Context, Counter, KernelForm, Phases, Shade, Stage, Step};
use kernels::KernelFile;
use serde_json::{Map, Value};

use crate::application::{
    Call, ControlPart, Descriptor, Environment, Refusal, Rows as Table, Setup, WorkerSetup,
};
use crate::request::TableKind;
use crate::tables::Tables;

/// The columns of a stage, one slice each.
pub type View<'a, S> = <<S as RowStage>::Columns as Columns>::View<'a>;

/// A stage that looks at one packet at a time. `Default`: the state of one worker at the start.
pub trait RowStage: Default + Send + 'static {
    /// The keys of `[stage.NAME]`, each `rebuild` or `restart`.
    type Settings: SectionValue + Clone + Default + Send + 'static;
    /// Its own columns, and those of other stages that it looks at.
    type Columns: Columns;
    /// The name of its kind, as in `[pipeline.NAME] stages`.
    const KIND: &'static str;
    /// One sentence: what it is for.
    const ABOUT: &'static str;
    /// See [`StageKind::needs`].
    const NEEDS: &'static [&'static str] = &["ip"];
    /// Columns that its shade reads, and others that its `pre_shade` fills for its `post_shade`.
    const READS: &'static [ColumnId] = &[];
    /// Columns that its shade writes; none of those that it reads.
    const WRITES: &'static [ColumnId] = &[];
    /// Its steps beside the shade. One that has only a `pre_shade` shares a segment with the stages after it.
    const PHASES: Phases = Phases::BOTH;
    /// Whether its `post_shade` changes packets.
    const CHANGES_PACKETS: bool = true;
    /// Whether it takes frames that their sender left to a network card ([`Stage::takes_offloads`]).
    const TAKES_OFFLOADS: bool = false;
    /// The block of its drop reasons.
    const REASONS: &'static [&'static ReasonBlock] = &[];
    /// The file whose kernels do what the shade does, in their order; `None`: a CPU alone does it.
    const KERNEL: Option<&'static KernelFile> = None;
    /// What it counts.
    const COUNTERS: CounterTable = CounterTable::NONE;

    /// The settings as the number that shade and kernel get.
    fn job(_settings: &Self::Settings) -> u32 {
        0
    }

    /// See [`Stage::needs_one_worker`].
    fn needs_one_worker(_settings: &Self::Settings) -> Option<&'static str> {
        None
    }

    /// Fills columns of row `at.row` from the packet, or settles it by its verdict. Called if it is not settled yet.
    fn pre_shade(&mut self, _at: At<'_, Self::Settings>, _columns: &mut View<'_, Self>) {}

    /// Fills columns of row `row` from others of the same row and from the number of the settings, and from nothing else, as
    /// the kernel does. Called if the packet is not settled yet; it may be called again with the same columns. A stage
    /// without [`RowStage::WRITES`] has no shade.
    fn shade(_job: u32, _row: usize, _columns: &mut View<'_, Self>) {}

    /// Changes the packet of row `at.row`, or settles it by its verdict. Called if it is not settled yet.
    fn post_shade(&mut self, _at: At<'_, Self::Settings>, _columns: &mut View<'_, Self>) {}
}

/// A packet, and what a [`RowStage`] may use for it.
pub struct At<'a, S> {
    /// Its row.
    pub row: usize,
    /// The packet.
    pub packet: &'a mut Packet,
    /// When it was received, nanoseconds since 1970.
    pub arrival_ns: u64,
    /// The settings of the stage, and the number that was made of them.
    pub settings: &'a S,
    /// See [`RowStage::job`].
    pub job: u32,
    /// The bits of the contexts that the settings name ([`control::config::kinds::contexts`]), in their order, for
    /// `columns.context[row] |= bit`.
    pub contexts: &'a [u32],
    /// The counters of this worker.
    pub counters: &'a Counters,
}

/// Counters of a stage as a table: `ctl show` adds up those of all workers, and each column is a family of metrics.
#[derive(Debug, Clone, Copy)]
pub struct CounterTable {
    /// Its name, in `ctl show NAME` and in `shadeline_NAME_COLUMN_total`.
    pub name: &'static str,
    /// One line: what its rows are.
    pub about: &'static str,
    /// What the rows are by, as a title and as a label of metrics; and the value of each.
    pub rows: (&'static str, &'static [&'static str]),
    /// What is counted: a name, and a sentence.
    pub columns: &'static [(&'static str, &'static str)],
}

impl CounterTable {
    /// Nothing is counted.
    pub const NONE: Self = Self { name: "", about: "", rows: ("", &[]), columns: &[] };
}

/// The counters of one worker, row after row; that worker alone adds to them.
#[derive(Debug)]
pub struct Counters {
    columns: usize,
    values: Box<[Counter]>,
}

impl Counters {
    /// All zero.
    pub fn new(table: &CounterTable) -> Self {
        let columns = table.columns.len();
        let values = (0..table.rows.1.len() * columns).map(|_| Counter::default()).collect();
        Self { columns, values }
    }

    /// One more in a column of a row.
    ///
    /// # Panics
    /// There is no such row or column.
    #[inline]
    pub fn count(&self, row: usize, column: usize) {
        assert!(column < self.columns, "column {column} of {}", self.columns);
        self.values[row * self.columns + column].add(1);
    }

    /// What was counted.
    ///
    /// # Panics
    /// There is no such row or column.
    pub fn get(&self, row: usize, column: usize) -> u64 {
        assert!(column < self.columns, "column {column} of {}", self.columns);
        self.values[row * self.columns + column].get()
    }
}

/// A [`RowStage`] as a stage of the engine, for one worker.
pub struct ByRow<S: RowStage> {
    name: &'static str,
    settings: S::Settings,
    shade: Arc<RowShade<S>>,
    counters: Arc<Counters>,
    contexts: Vec<u32>,
    own: S,
    /// Rows of the chunk at hand that are not settled.
    open: Vec<usize>,
}

impl<S: RowStage> ByRow<S> {
    /// A stage of this name.
    pub fn new(name: &'static str, settings: S::Settings, counters: Arc<Counters>) -> Self {
        let shade = Arc::new(RowShade { job: S::job(&settings), own: PhantomData });
        let open = Vec::with_capacity(chunk::CHUNK_PACKETS_MAX);
        Self { name, settings, shade, counters, contexts: Vec::new(), own: S::default(), open }
    }

    /// The same with the bits of the contexts that its settings name.
    pub fn with_contexts(self, bit: impl Fn(&str) -> u32) -> Self {
        let mut values = Vec::new();
        self.settings.settings("", &mut values);
        let names = values.iter().flat_map(|value| &value.contexts);
        Self { contexts: names.map(|name| bit(name)).collect(), ..self }
    }

    fn each<T>(
        &mut self,
        chunk: &mut Chunk,
        cx: &mut Context<'_, T>,
        step: impl Fn(&mut S, At<'_, S::Settings>, &mut View<'_, S>),
    ) {
        self.open.clear();
        let verdicts = chunk.rows.verdicts().iter().enumerate().take(chunk.packets.len());
        let open = verdicts.filter(|(_, verdict)| Verdict(**verdict).is_next());
        self.open.extend(open.map(|(row, _)| row));
        let mut columns = S::Columns::view(&mut chunk.rows);
        for &row in &self.open {
            cx.at(row);
            let packet = &mut chunk.packets[row];
            let at = At {
                row,
                arrival_ns: cx.arrival_ns(packet),
                packet,
                settings: &self.settings,
                job: self.shade.job,
                contexts: &self.contexts,
                counters: &self.counters,
            };
            step(&mut self.own, at, &mut columns);
        }
    }
}

impl<S: RowStage, T: Sync + 'static> Stage<T> for ByRow<S> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn columns(&self) -> &'static [Declaration] {
        Declared::<S>::COLUMNS
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        S::REASONS
    }

    fn reads(&self) -> ColumnSet {
        ColumnSet::of(S::READS)
    }

    fn writes(&self) -> ColumnSet {
        ColumnSet::of(S::WRITES)
    }

    fn sets_context(&self) -> Phases {
        if self.contexts.is_empty() { Phases::NONE } else { S::PHASES }
    }

    fn phases(&self) -> Phases {
        S::PHASES
    }

    fn changes_packets(&self) -> bool {
        S::CHANGES_PACKETS && S::PHASES.post_shade
    }

    fn reads_packets(&self) -> bool {
        S::PHASES.pre_shade
    }

    fn takes_offloads(&self) -> bool {
        S::TAKES_OFFLOADS
    }

    fn keeps(&self) -> ColumnSet {
        ColumnSet::of(S::READS).union(&ColumnSet::of(S::WRITES))
    }

    fn needs_one_worker(&self, _: &T) -> Option<&'static str> {
        S::needs_one_worker(&self.settings)
    }

    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, T>) {
        self.each(chunk, cx, S::pre_shade);
    }

    fn shader(&self) -> Option<Arc<dyn Shade<T>>> {
        (!S::WRITES.is_empty()).then(|| self.shade.clone() as _)
    }

    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, T>) {
        self.each(chunk, cx, S::post_shade);
    }

    /// The struct goes on, whatever the settings are now.
    fn inherit(&mut self, before: &mut dyn Stage<T>) {
        if let Some(before) = before.as_any().and_then(|before| before.downcast_mut::<Self>()) {
            std::mem::swap(&mut self.own, &mut before.own);
        }
    }

    fn as_any(&mut self) -> Option<&mut dyn std::any::Any> {
        Some(self)
    }
}

struct RowShade<S> {
    job: u32,
    own: PhantomData<fn() -> S>,
}

impl<S: RowStage, T> Shade<T> for RowShade<S> {
    fn shade(&self, rows: &mut Rows, _: &T) {
        for first in (0..rows.len()).step_by(64) {
            let verdicts = rows.verdicts().iter().skip(first).take(64).enumerate();
            let open = verdicts.filter(|(_, verdict)| Verdict(**verdict).is_next());
            let mut open = open.fold(0u64, |bits, (at, _)| bits | 1 << at);
            let mut columns = S::Columns::view(rows);
            while open != 0 {
                S::shade(self.job, first + open.trailing_zeros() as usize, &mut columns);
                open &= open - 1;
            }
        }
    }

    fn kernels(&self) -> Option<KernelForm> {
        let step = |kernel: &kernels::KernelInfo| {
            Step::rows(kernel.name, kernel.group_items).with_job(self.job).into()
        };
        let steps = S::KERNEL?.kernels.iter().map(step).collect();
        Some(KernelForm { files: Declared::<S>::KERNELS, steps, ..KernelForm::default() })
    }
}

/// What the declarations of a stage are made of: constants, so that they live as long as the program.
struct Declared<S>(PhantomData<S>);

impl<S: RowStage> Declared<S> {
    const APPLICATION: &'static Application =
        &Application { name: S::KIND, title: S::KIND, ..Application::NONE };
    const KINDS: &'static [StageKind] = &[StageKind {
        about: S::ABOUT,
        needs: S::NEEDS,
        settings: Settings::of::<S::Settings>(),
        ..StageKind::new(S::KIND, Self::APPLICATION)
    }];
    const COLUMNS: &'static [Declaration] = &[S::Columns::COLUMNS];
    const KERNELS: &'static [&'static KernelFile] = match S::KERNEL {
        Some(file) => &[file],
        None => &[],
    };
    const TABLE: TableKind = TableKind::new(S::COUNTERS.name, S::COUNTERS.about);
    const TABLES: &'static [TableKind] = match S::COUNTERS.columns {
        [] => &[],
        _ => &[Self::TABLE],
    };
}

impl Descriptor {
    /// An application that is one small stage.
    pub const fn of<S: RowStage>() -> Self {
        Self {
            application: Declared::<S>::APPLICATION,
            stages: Declared::<S>::KINDS,
            kernels: Declared::<S>::KERNELS,
            reasons: S::REASONS,
            tables: Declared::<S>::TABLES,
            start: start::<S>,
            ..Self::NONE
        }
    }
}

/// The part of all stages of one name: it makes them and adds their counters up.
struct RowPart<S> {
    name: String,
    workers: Vec<Arc<Counters>>,
    /// What they had counted when the counters were cleared, row after row.
    cleared: Vec<u64>,
    own: PhantomData<fn() -> S>,
}

fn start<S: RowStage>(setup: &Setup<'_>, _: &mut Tables) -> Result<Box<dyn ControlPart>, String> {
    let name = setup.name.to_owned();
    // A stage is made with its settings.
    let keys = S::Settings::default();
    if let Some(key) = keys.keys().iter().find(|key| key.reload == Reload::Live) {
        return Err(format!(
            "`{}` of `{}` must be a `rebuild` or `restart` key",
            key.name,
            S::KIND
        ));
    }
    let cleared = vec![0; S::COUNTERS.rows.1.len() * S::COUNTERS.columns.len()];
    Ok(Box::new(RowPart::<S> { name, workers: Vec::new(), cleared, own: PhantomData }))
}

impl<S: RowStage> RowPart<S> {
    fn total(&self, row: usize, column: usize) -> u64 {
        self.workers.iter().map(|own| own.get(row, column)).sum()
    }

    fn value(&self, row: usize, column: usize) -> u64 {
        self.total(row, column) - self.cleared[row * S::COUNTERS.columns.len() + column]
    }

    fn rows(&self, as_text: bool) -> Table {
        let CounterTable { name, rows: (by, rows), columns, .. } = S::COUNTERS;
        let numbers = columns.iter().map(|(column, _)| format!(">{column}"));
        let titles = ["stage".to_owned(), by.to_owned()].into_iter().chain(numbers);
        let mut table = Table::with_columns(name, as_text, titles.collect());
        for (at, row) in rows.iter().enumerate() {
            let values: Vec<u64> = (0..columns.len()).map(|own| self.value(at, own)).collect();
            let texts = [self.name.clone(), (*row).to_owned()];
            let mut fields: Map<String, Value> = [("stage", &texts[0]), (by, &texts[1])]
                .map(|(k, v)| (k.into(), (**v).into()))
                .into_iter()
                .collect();
            fields.extend(
                columns.iter().zip(&values).map(|((k, _), v)| ((*k).to_owned(), (*v).into())),
            );
            let cells = texts.into_iter().chain(values.into_iter().map(thousands)).collect();
            table.push_cells(cells, Value::Object(fields));
        }
        table
    }
}

impl<S: RowStage> ControlPart for RowPart<S> {
    fn stage(&mut self, kind: &str, worker: &WorkerSetup<'_>) -> Option<Box<dyn Stage<Tables>>> {
        (kind == S::KIND).then(|| {
            // An instance that follows another one counts on.
            while self.workers.len() <= worker.worker {
                self.workers.push(Arc::new(Counters::new(&S::COUNTERS)));
            }
            let counters = self.workers[worker.worker].clone();
            let made = ByRow::<S>::new(worker.name(), worker.settings(), counters);
            Box::new(made.with_contexts(|name| worker.context(name))) as _
        })
    }

    fn table(&self, call: Call<'_>, _: &Environment<'_>) -> Result<Table, Refusal> {
        Ok(self.rows(call.as_text))
    }

    /// A column `packets` says how hot a row is.
    fn hottest(&self, most: usize) -> Vec<HotTable> {
        let CounterTable { name, rows: (_, rows), columns, .. } = S::COUNTERS;
        let column = |wanted| columns.iter().position(|(title, _)| *title == wanted);
        let Some(packets) = column("packets") else { return Vec::new() };
        let bytes = column("bytes");
        let row = |at: usize| HotRow {
            name: rows[at].to_owned(),
            text: String::new(),
            packets: self.value(at, packets),
            bytes: bytes.map_or(0, |bytes| self.value(at, bytes)),
        };
        let all = (0..rows.len()).map(|at| (self.value(at, packets), at));
        vec![HotTable::of(format!("{name} of {}", self.name), most, all, row)]
    }

    fn metrics(&self, out: &mut Metrics) {
        let CounterTable { name, rows: (by, rows), columns, .. } = S::COUNTERS;
        for (column, (of, about)) in columns.iter().enumerate() {
            let name = format!("{name}_{of}_total");
            let mut family = out.counter(&name, about);
            for (at, row) in rows.iter().enumerate() {
                family.sample(&[("stage", &self.name), (by, row)], self.value(at, column));
            }
        }
    }

    fn clear(&mut self) {
        let columns = S::COUNTERS.columns.len();
        for at in 0..self.cleared.len() {
            self.cleared[at] = self.total(at / columns, at % columns);
        }
    }
}

#[cfg(test)]
mod tests {
    use chunk::{Arena, HugePages, Layout, Packet, Pool, Region};
    use control::api::Response;

    use super::*;

    chunk::columns! {
        /// Columns of the stage.
        pub struct OddColumns / OddView {
            /// The packet's first byte.
            pub first: u8,
            /// Whether that is odd.
            pub is_odd: u8,
        }
    }

    control::section! {
        /// Settings of the stage.
        pub struct OddSettings("stage.NAME") {
            /// Contexts of packets that begin with an odd byte.
            rebuild context_of_odd: Vec<String> = Vec::new(), control::config::kinds::contexts();
        }
    }

    #[derive(Default)]
    struct Odd;

    impl RowStage for Odd {
        type Settings = OddSettings;
        type Columns = OddColumns;
        const KIND: &'static str = "odd";
        const ABOUT: &'static str = "Counts odd packets.";
        const READS: &'static [ColumnId] = &[OddColumns::FIRST];
        const WRITES: &'static [ColumnId] = &[OddColumns::IS_ODD];
        const COUNTERS: CounterTable = CounterTable {
            name: "odd",
            about: "Packets by their first byte",
            rows: ("byte", &["even", "odd"]),
            columns: &[("packets", "Packets."), ("drops", "Dropped packets.")],
        };

        fn pre_shade(&mut self, at: At<'_, OddSettings>, columns: &mut OddView<'_>) {
            columns.first[at.row] = at.packet.data()[0];
        }

        fn shade(_: u32, row: usize, columns: &mut OddView<'_>) {
            columns.is_odd[row] = columns.first[row] & 1;
        }

        fn post_shade(&mut self, at: At<'_, OddSettings>, columns: &mut OddView<'_>) {
            let is_odd = columns.is_odd[at.row];
            at.counters.count(is_odd.into(), 0);
            if is_odd == 1 {
                columns.context[at.row] |= at.contexts[0];
            }
        }
    }

    /// 200 packets with the bytes 0, 1, 2 …, of which every fifth is settled.
    fn chunk(pool: &mut Pool) -> Chunk {
        let arena = Arena::new(Layout::new(OddColumns::COLUMNS, 256));
        let mut chunk = Chunk::new(arena.reserve(256).expect("room"), 0);
        for at in 0..200u8 {
            let packet = Packet::copy_from(pool, &[at; 60]).expect("a cell");
            chunk.packets.push(packet);
        }
        chunk.rows.set_len(200);
        let view = OddColumns::view(&mut chunk.rows);
        view.verdict.fill(Verdict::NEXT.0);
        view.context.fill(1);
        view.is_odd.fill(9);
        view.verdict.iter_mut().step_by(5).for_each(|verdict| *verdict = Verdict::TAKEN.0);
        chunk
    }

    fn part() -> RowPart<Odd> {
        RowPart {
            name: "edge".to_owned(),
            workers: Vec::new(),
            cleared: vec![0; 4],
            own: PhantomData,
        }
    }

    #[test]
    fn it_sees_open_rows_and_counts() {
        let mut pool = Pool::new(Region::new(512, HugePages::Off).expect("memory").1, 256);
        let mut chunk = chunk(&mut pool);
        let mut part = part();
        part.workers =
            vec![Arc::new(Counters::new(&Odd::COUNTERS)), Arc::new(Counters::new(&Odd::COUNTERS))];
        let settings = OddSettings { context_of_odd: vec!["web".to_owned()] };
        let stage = ByRow::<Odd>::new("edge", settings, part.workers[1].clone());
        let mut stage = stage.with_contexts(|name| if name == "web" { 0b100 } else { 0 });
        let (mut dropped, mut released) = (Vec::new(), Vec::new());
        let mut cx = Context::detached(&mut pool, &(), 0, &mut dropped, &mut released);
        stage.pre_shade(&mut chunk, &mut cx);
        Stage::<()>::shader(&stage).expect("a shade").shade(&mut chunk.rows, &());
        stage.post_shade(&mut chunk, &mut cx);
        let view = OddColumns::view(&mut chunk.rows);
        for row in 0..200 {
            let expected = match row % 5 {
                0 => (9, 1),
                _ if row % 2 == 1 => (1, 0b101),
                _ => (0, 1),
            };
            assert_eq!((view.is_odd[row], view.context[row]), expected, "row {row}");
        }
        part.workers[0].count(1, 1);
        let text = part.rows(true).responses(10);
        let [Response::Table { columns, rows, .. }] = &text[..] else { panic!("{text:?}") };
        assert_eq!(columns, &["stage", "byte", ">packets", ">drops"]);
        assert_eq!(rows, &[["edge", "even", "80", "0"], ["edge", "odd", "80", "1"]]);
        let values = part.rows(false).responses(10);
        let [Response::Rows { table, rows }] = &values[..] else { panic!("{values:?}") };
        assert_eq!(table, "odd");
        let odd = serde_json::json!({ "stage": "edge", "byte": "odd", "packets": 80, "drops": 1 });
        assert_eq!(rows[1], odd);
        let hot = part.hottest(1);
        let row = |name: &str| HotRow { name: name.into(), packets: 80, ..HotRow::default() };
        assert_eq!((&*hot[0].title, hot[0].total), ("odd of edge", 2));
        assert_eq!(hot[0].rows, [row("even")]);
        let mut metrics = Metrics::default();
        part.metrics(&mut metrics);
        let metrics = metrics.text();
        assert!(
            metrics.contains("shadeline_odd_packets_total{stage=\"edge\",byte=\"odd\"} 80"),
            "{metrics}"
        );
        part.clear();
        assert_eq!((part.value(1, 0), part.value(1, 1)), (0, 0));
        part.workers[0].count(1, 1);
        assert_eq!(part.value(1, 1), 1);
    }

    #[test]
    fn its_descriptor_declares_it() {
        let own = Descriptor::of::<Odd>();
        assert_eq!(
            (own.application.name, own.stages[0].name, own.tables[0].name),
            ("odd", "odd", "odd")
        );
        assert_eq!((own.stages[0].needs, own.kernels.len()), (&["ip"][..], 0));
        assert!(own.stages[0].settings.is_some());
    }
}
