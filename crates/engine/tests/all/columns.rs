//! A pipeline of many small stages with declarations of their own: more columns than any one declaration has, some of
//! them and the context clear at the start of each chunk, and the same whichever side shades and whatever fails.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chunk::{
    Chunk, ColumnDesc, ColumnId, ColumnSet, Declaration, HugePages, Region, Rows, Verdict,
};
use device::accelerator::Options;
use device::driver::Api;
use device::faulty::{Faults, Faulty};
use device::tables::NoTables;
use device::{Backend, Cost, FaultPlan};
use engine::{
    Context, DeviceKind, DeviceSpec, Engine, EngineError, EngineSpec, KernelForm, MasterView,
    Phases, Policy, QueueCounters, RxSlot, Shade, Stage, Step, TxSlot, Versions, WorkerSpec,
};
use io::memory::{Collect, Frames, Script};

/// Columns of a link beside the sums that it takes from the link before and gives to the one behind. Nobody fills the
/// last one: it starts as zero.
const OWN: usize = 10;

/// Rows whose packets the first link drops: no shade may look at them.
fn is_dropped(id: u32) -> bool {
    id.is_multiple_of(7)
}

/// What a link's own column holds.
fn own(id: u32, link: usize, column: usize) -> u32 {
    if column + 1 == OWN {
        return 0;
    }
    id.rotate_left((3 * link + column) as u32 % 32).wrapping_add(column as u32)
}

/// What the last link gives for a packet, and its context.
fn expected(id: u32, links: usize) -> (u32, u32) {
    (0..links).fold((id, 0), |(sum, context), link| {
        let after = (0..OWN).fold(sum.wrapping_mul(31), |after, column| {
            after.wrapping_add(own(id, link, column).wrapping_mul(column as u32 + 1))
        });
        (after, context_after(context, after))
    })
}

fn context_after(context: u32, sum: u32) -> u32 {
    context.wrapping_mul(3).wrapping_add(sum)
}

/// One stage of the chain: `sum(n + 1) = 31 sum(n) + Σ (i + 1) own(i)`; the context takes part.
#[derive(Clone, Copy)]
struct Link {
    name: &'static str,
    number: usize,
    /// `verdict`, `context`, the sum before, the sum after, its own.
    columns: &'static [Declaration],
    ends_segment: bool,
}

impl Link {
    fn new(number: usize, ends_segment: bool) -> Self {
        let desc = |name: String| ColumnDesc { name: name.leak(), width: 4, dialect: "uint" };
        let names = ["verdict".into(), "context".into(), format!("sum{number}")].into_iter();
        let names = names.chain([format!("sum{}", number + 1)]);
        let names = names.chain((0..OWN).map(|column| format!("link{number}_{column}")));
        let columns: Declaration = Vec::leak(names.map(desc).collect());
        let name = format!("link{number}").leak();
        Self { name, number, columns: Vec::leak(vec![columns]), ends_segment }
    }

    fn own_columns(&self) -> impl Iterator<Item = ColumnId> {
        let columns = self.columns[0];
        (4..4 + OWN).map(|place| ColumnId::of(columns, place))
    }

    fn sum(&self, place: usize) -> ColumnId {
        ColumnId::of(self.columns[0], 2 + place)
    }

    /// Its columns in order of their declaration.
    fn view<'a>(&self, rows: &'a mut Rows) -> Vec<&'a mut [u32]> {
        let mut split = rows.split(self.columns[0]);
        self.columns[0].iter().map(|_| split.column::<u32>()).collect()
    }
}

impl Stage<()> for Link {
    fn name(&self) -> &'static str {
        self.name
    }
    fn columns(&self) -> &'static [Declaration] {
        self.columns
    }
    fn zeroed(&self) -> ColumnSet {
        ColumnSet::of(&self.own_columns().skip(OWN - 1).collect::<Vec<_>>())
    }
    fn reads(&self) -> ColumnSet {
        let columns: Vec<_> = self.own_columns().chain([self.sum(0), ColumnId::CONTEXT]).collect();
        ColumnSet::of(&columns)
    }
    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[self.sum(1), ColumnId::CONTEXT])
    }
    fn ends_segment(&self) -> bool {
        self.ends_segment
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, ()>) {
        let mut view = self.view(&mut chunk.rows);
        for (row, packet) in chunk.packets.iter().enumerate() {
            let id = id_of(packet.data());
            if self.number == 0 {
                view[2][row] = id;
                if is_dropped(id) {
                    view[0][row] = Verdict::drop(teststages::reasons::TEST).0;
                }
            }
            for column in 0..OWN - 1 {
                view[4 + column][row] = own(id, self.number, column);
            }
        }
    }
    fn shader(&self) -> Option<Arc<dyn Shade<()>>> {
        Some(Arc::new(*self))
    }
}

impl Shade<()> for Link {
    fn shade(&self, rows: &mut Rows, (): &()) {
        let mut view = self.view(rows);
        for row in 0..view[0].len() {
            if !Verdict(view[0][row]).is_next() {
                continue;
            }
            let after = (0..OWN).fold(view[2][row].wrapping_mul(31), |after, column| {
                after.wrapping_add(view[4 + column][row].wrapping_mul(column as u32 + 1))
            });
            view[3][row] = after;
            view[1][row] = context_after(view[1][row], after);
        }
    }
    fn kernels(&self) -> Option<KernelForm> {
        let n = self.number;
        let sum: String = (0..OWN)
            .map(|column| format!("after += COL_LINK{n}_{column}(arena)[row] * {}u;\n", column + 1))
            .collect();
        let text = format!(
            "
            KERNEL(link{n})
            {{
                const uint row = JOB_FIRST(arena) + GLOBAL_ID;
                if (GLOBAL_ID < job_rows(arena) && IS_NEXT(COL_VERDICT(arena)[row])) {{
                    uint after = COL_SUM{n}(arena)[row] * 31u;
                    {sum}
                    COL_SUM{}(arena)[row] = after;
                    COL_CONTEXT(arena)[row] = COL_CONTEXT(arena)[row] * 3u + after;
                }}
            }}",
            n + 1
        );
        let steps = vec![Step::rows(self.name, 64).into()];
        Some(KernelForm { text: text.into(), steps, ..KernelForm::default() })
    }
}

/// Sends a packet with what the last link found, and leaves other values behind where a chunk starts with zeros.
struct Deliver {
    links: Vec<Link>,
    /// Those of all links.
    columns: &'static [Declaration],
}

impl Deliver {
    fn new(links: Vec<Link>) -> Self {
        let columns: Vec<_> = links.iter().flat_map(|link| link.columns.iter().copied()).collect();
        Self { links, columns: Vec::leak(columns) }
    }
}

impl Stage<()> for Deliver {
    fn name(&self) -> &'static str {
        "deliver"
    }
    fn columns(&self) -> &'static [Declaration] {
        self.columns
    }
    fn sets_context(&self) -> Phases {
        Phases::POST
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, ()>) {
        let mut last = self.links.last().unwrap().view(&mut chunk.rows);
        for (row, packet) in chunk.packets.iter_mut().enumerate() {
            if Verdict(last[0][row]).is_next() {
                packet.data_mut()[4..8].copy_from_slice(&last[3][row].to_le_bytes());
                packet.data_mut()[8..12].copy_from_slice(&last[1][row].to_le_bytes());
                last[0][row] = Verdict::forward(0).0;
            }
        }
        for link in &self.links {
            let mut view = link.view(&mut chunk.rows);
            view[1].fill(0xdead_beef);
            view[3 + OWN].fill(0xbeef_dead);
        }
    }
}

fn id_of(frame: &[u8]) -> u32 {
    frame.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

#[derive(Clone)]
struct One;
struct Unit(());
impl Deref for Unit {
    type Target = ();
    fn deref(&self) -> &() {
        &self.0
    }
}
impl Versions for One {
    type Tables = ();
    type Pin = Unit;
    fn pin(&mut self) -> Unit {
        Unit(())
    }
    fn number(_: &Unit) -> u64 {
        0
    }
}

/// So many links, cut into segments behind some of them.
fn pipeline(links: usize, cut_behind: &[usize]) -> Vec<Box<dyn Stage<()>>> {
    let links: Vec<_> =
        (0..links).map(|number| Link::new(number, cut_behind.contains(&number))).collect();
    let boxed = links.iter().map(|link| Box::new(*link) as Box<dyn Stage<()>>);
    boxed.chain([Box::new(Deliver::new(links.clone())) as Box<_>]).collect()
}

fn start(
    stages: Vec<Box<dyn Stage<()>>>,
    ids: &[u32],
    device: Option<DeviceSpec<()>>,
    errors: Arc<AtomicU64>,
) -> (Result<Engine<One>, EngineError>, Frames) {
    let (_, depot) = Region::new(20_000, HugePages::Off).unwrap();
    let (out, counters) = (Collect::new(), || Arc::new(QueueCounters::default()));
    let frames: Vec<_> = ids.iter().map(|id| [&id.to_le_bytes()[..], &[0; 60]].concat()).collect();
    let sent = out.frames();
    let worker = WorkerSpec {
        rx: vec![RxSlot {
            entry: engine::Entry::default(),
            port: 0,
            mark: 0,
            queue: Box::new(Script::untimed(frames)),
            spread: None,
            counters: counters(),
        }],
        tx: vec![TxSlot::Own(Box::new(out), counters())],
        ..WorkerSpec::new(One, stages)
    };
    let spec = EngineSpec {
        chunk_packets: 64,
        devices: device.into_iter().collect(),
        until_finished: true,
        lossless: true,
        on_error: Arc::new(|port, error| panic!("port {port}: {error}")),
        on_device_error: Arc::new(move |_, _| _ = errors.fetch_add(1, Ordering::Relaxed)),
        ..EngineSpec::new(vec![worker], depot)
    };
    (Engine::start(spec), sent)
}

/// Runs packets through so many links, compares with what must come out, and returns what the master did and how many
/// errors the device had.
fn run(
    links: usize,
    cut_behind: &[usize],
    device: Option<DeviceSpec<()>>,
) -> (Option<MasterView>, u64) {
    let ids: Vec<u32> = (0..4000u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
    let errors = Arc::new(AtomicU64::new(0));
    let stages = pipeline(links, cut_behind);
    let (engine, frames) = start(stages, &ids, device, errors.clone());
    let engine = engine.unwrap();
    let view = engine.view().clone();
    engine.join().unwrap();
    let frames = frames.lock().unwrap();
    let sent: Vec<_> = frames
        .iter()
        .map(|(_, frame)| {
            let word = |at: usize| u32::from_le_bytes(frame[at..at + 4].try_into().unwrap());
            (word(0), (word(4), word(8)))
        })
        .collect();
    let through = ids.into_iter().filter(|id| !is_dropped(*id));
    let wanted: Vec<_> = through.map(|id| (id, expected(id, links))).collect();
    assert_eq!(sent.len(), wanted.len());
    if let Some(place) = sent.iter().zip(&wanted).position(|(sent, wanted)| sent != wanted) {
        panic!("packet {place}: {:x?} instead of {:x?}", sent[place], wanted[place]);
    }
    (view.master(), errors.load(Ordering::Relaxed))
}

#[test]
fn hundreds_of_columns_on_the_cpu() {
    for (links, columns) in [(9, 2 + 10 + 90), (26, 2 + 27 + 260)] {
        let stages = pipeline(links, &[]);
        let layout = engine::layout(stages.iter().map(|stage| &**stage), 64).unwrap();
        assert_eq!(layout.columns().len(), columns);
        run(links, &[], None);
        run(links, &[3, 7], None);
    }
}

/// Some jobs fail before they are shaded, some after: context and verdict are put back before they are done again.
#[test]
fn a_simulated_device_that_fails() {
    let cost = Cost { launch: Duration::from_micros(20), row: Duration::ZERO };
    for (links, cut_behind) in [(9, &[][..]), (9, &[4]), (26, &[0, 20])] {
        let faults = FaultPlan {
            failing: (1..400).step_by(5).collect::<BTreeSet<_>>(),
            failing_copy: (0..400).step_by(3).collect::<BTreeSet<_>>(),
            ..FaultPlan::default()
        };
        let kind = DeviceKind::Simulated { cost, faults };
        let spec = DeviceSpec { kind, slots: 4, rows: 512, policy: Policy::Device };
        let (master, errors) = run(links, cut_behind, Some(spec));
        assert!(master.unwrap().failed > 0 && errors > 0);
    }
}

fn kernels_on_a_device(links: usize, cut_behind: &[usize], faults: Faults) -> (MasterView, u64) {
    let named = testkit::named_backend().map(|name| name.parse::<Backend>().expect("a backend"));
    let (api, number) = named.and_then(Backend::device).unwrap_or((Api::OpenCl, 0));
    let driver = device::probe::open(api, number).expect("a device for tests");
    let driver = Box::new(Faulty::new(driver, faults));
    let options = Options { patience: Duration::from_secs(60), ..Options::default() };
    let kind = DeviceKind::Driver { driver, tables: Box::new(NoTables), options };
    let spec = DeviceSpec { kind, slots: 4, rows: 512, policy: Policy::Device };
    let (master, errors) = run(links, cut_behind, Some(spec));
    (master.expect("the device came up"), errors)
}

#[test]
fn hundreds_of_columns_on_a_device() {
    if !testkit::require_opencl() {
        return;
    }
    for (links, cut_behind) in [(9, &[][..]), (26, &[12])] {
        let (master, errors) = kernels_on_a_device(links, cut_behind, Faults::default());
        assert!(master.packets > 0 && errors == 0, "{master:?}");
    }
}

#[test]
fn a_device_that_fails_at_a_launch_or_a_copy() {
    if !testkit::require_opencl() {
        return;
    }
    // Setting up launches each kernel once.
    let faults = [
        Faults { launch: Some(9 + 30), ..Faults::default() },
        Faults { download: Some(3), ..Faults::default() },
        Faults { lost: Some(2), after_launches: 10, ..Faults::default() },
    ];
    for faults in faults {
        let (master, errors) = kernels_on_a_device(9, &[], faults);
        assert!(master.failed > 0 && errors > 0, "{master:?}");
    }
}

/// Two stages that mean different things by one name.
#[test]
fn an_engine_does_not_start_with_columns_that_clash() {
    chunk::columns! { struct Wide / WideView { pub sum0: u64, } }
    struct Clashing;
    impl Stage<()> for Clashing {
        fn name(&self) -> &'static str {
            "clashing"
        }
        fn columns(&self) -> &'static [Declaration] {
            &[<Wide as chunk::Columns>::COLUMNS]
        }
    }
    let mut stages = pipeline(2, &[]);
    stages.push(Box::new(Clashing));
    let (engine, _) = start(stages, &[], None, Arc::default());
    assert_eq!(
        engine.err().unwrap().to_string(),
        "stages `link0` and `clashing`: column `sum0` is declared as uint (4 bytes) and as ulong (8 bytes)"
    );
}
