//! GASPP §7.2, Figure 10: packet scheduling, by the kernels of `sort` (GASPP §5.3).
//!
//! Items of a device that run together wait for the one with most to do, and for each branch that one of them takes.
//! With scheduling they are packets of one protocol, module and length, nearly; the time of the sort counts. The gain is
//! the time in order of arrival over the time of sort and modules together. PoCL runs a group's items one after the
//! other, so that there is nothing to gain there: what it shows is the price of the sort.

use std::time::Instant;

use chunk::{Arena, Columns, Layout};
use device::Backend;
use device::driver::{Arguments, Driver, Kernel, Memory, Program, Queue, Shape};
use kernels::plan::SortPlan;
use kernels::{Launch, files};

use crate::on_device::{PATIENCE, finish, open, program_of, text};
use crate::tables::Random;
use crate::{Args, Report, Row};

/// Packets of a batch of Figure 10(a); Figure 10(b) has one of [`BATCH`].
pub(super) const BATCHES: [usize; 5] = [512, 2048, 8192, 16_384, 32_768];
pub(super) const BATCH: usize = 16_384;

/// Modules of Figure 10(b).
const MODULES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const MODULES_MAX: usize = 64;

/// Items of a group.
const GROUP_ITEMS: u32 = 256;

chunk::columns! {
    /// What the sort and the modules read.
    struct ModuleColumns / ModuleView {
        /// Byte offset of the frame in the payload.
        pub payload_at: u32,
        /// Its length in bytes.
        pub payload_len: u32,
        /// Upper protocol.
        pub protocol: u8,
        /// What was computed.
        pub sum: u32,
    }
}

/// What a module does with a packet, as the applications of the paper do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Looks at some bytes of the headers (FW).
    Headers,
    /// Looks at each byte once (NIDS).
    Bytes,
    /// Computes much with each byte (AES).
    Rounds,
}

const WORKS: [(Work, &str); 3] =
    [(Work::Headers, "headers"), (Work::Bytes, "bytes"), (Work::Rounds, "rounds")];

/// Bytes of the headers, and rounds for each byte.
const HEADER_BYTES: usize = 40;
const ROUNDS: u32 = 10;

impl Work {
    /// What the kernels compute.
    fn of(self, frame: &[u8], module: u32) -> u32 {
        let frame = match self {
            Work::Headers => &frame[..frame.len().min(HEADER_BYTES)],
            _ => frame,
        };
        frame.iter().fold(0, |sum: u32, byte| {
            let mut sum = (sum ^ u32::from(*byte)).wrapping_mul(factor(module));
            if self == Work::Rounds {
                for round in 0..ROUNDS {
                    sum = (sum.rotate_left(7) ^ round).wrapping_mul(0x9e37_79b1);
                }
            }
            sum
        })
    }
}

/// What makes a module another one.
fn factor(module: u32) -> u32 {
    0x0100_0193 + 2 * module
}

/// The program: kernels for each work, by rows and by the list of the sort, and those of many modules.
pub(crate) fn program() -> Program {
    let mut source = String::new();
    for (work, name) in WORKS {
        let body = match work {
            Work::Rounds => format!(
                "sum = (sum ^ bytes[i]) * {:#x}u;
                 for (uint round = 0u; round < {ROUNDS}u; round++)
                     sum = (((sum << 7) | (sum >> 25)) ^ round) * 0x9e3779b1u;",
                factor(0)
            ),
            _ => format!("sum = (sum ^ bytes[i]) * {:#x}u;", factor(0)),
        };
        let end = match work {
            Work::Headers => format!("len < {HEADER_BYTES}u ? len : {HEADER_BYTES}u"),
            _ => "len".to_owned(),
        };
        source += &format!(
            "FN uint work_{name}(GLOBAL const uchar *bytes, uint len)
             {{
                 uint sum = 0u;
                 const uint end = {end};
                 for (uint i = 0u; i < end; i++) {{
                     {body}
                 }}
                 return sum;
             }}\n"
        );
        source += &kernels_of(name, &format!("work_{name}(bytes, len)"));
    }
    // Each module is code of its own, as modules of users are.
    let mut cases = String::new();
    for module in 0..MODULES_MAX as u32 {
        let factor = factor(module);
        source += &format!(
            "FN uint module_{module}(GLOBAL const uchar *bytes, uint len)
             {{
                 uint sum = 0u;
                 for (uint i = 0u; i < len; i++)
                     sum = (sum ^ bytes[i]) * {factor:#x}u;
                 return sum;
             }}\n"
        );
        cases += &format!("case {module}u: return module_{module}(bytes, len);\n");
    }
    source += &format!(
        "FN uint any_module(uint module, GLOBAL const uchar *bytes, uint len)
         {{
             switch (module) {{
             {cases}
             default: return 0u;
             }}
         }}\n"
    );
    source += &kernels_of("modules", "any_module(COL_CONTEXT(arena)[row], bytes, len)");
    program_of("modules", &[&files::SORT], ModuleColumns::COLUMNS, &source)
}

/// Kernels that compute `call` for each row, as rows are and in the order of the list in `state`.
fn kernels_of(name: &str, call: &str) -> String {
    let kernel = |how: &str, row: &str| {
        format!(
            "KERNEL({name}_{how})
             {{
                 if (GLOBAL_ID < job_rows(arena)) {{
                     const uint row = {row};
                     GLOBAL const uchar *bytes = payload + COL_PAYLOAD_AT(arena)[row];
                     const uint len = COL_PAYLOAD_LEN(arena)[row];
                     COL_SUM(arena)[row] = {call};
                 }}
             }}\n"
        )
    };
    kernel("in_order", "GLOBAL_ID") + &kernel("by_list", "((GLOBAL const uint *)state)[GLOBAL_ID]")
}

/// Packets in the memory of a device.
struct Batch {
    layout: Layout,
    arena: Memory,
    payload: Memory,
    state: Memory,
    plan: SortPlan,
    frames: Vec<Vec<u8>>,
    modules: Vec<u32>,
}

impl Batch {
    /// So many packets of random lengths and modules.
    fn new(
        driver: &mut dyn Driver,
        queue: Queue,
        packets: usize,
        modules: usize,
    ) -> Result<Self, String> {
        let mut random = Random(3 + packets as u64);
        let layout = Layout::new(ModuleColumns::COLUMNS, packets);
        let arena = Arena::new(layout.clone());
        let mut rows = arena.reserve(packets).ok_or("an arena is in use")?;
        let (mut payload, mut frames, mut of) = (Vec::new(), Vec::new(), Vec::new());
        let view = ModuleColumns::view(&mut rows);
        for row in 0..packets {
            let len = length(&mut random);
            let module = random.below(modules) as u32;
            (view.payload_at[row], view.payload_len[row]) = (payload.len() as u32, len as u32);
            view.protocol[row] = if random.below(4) == 0 { 17 } else { 6 };
            view.context[row] = module;
            let frame: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            payload.extend_from_slice(&frame);
            payload.resize(payload.len().next_multiple_of(16), 0);
            frames.push(frame);
            of.push(module);
        }
        let bits = modules.next_power_of_two().ilog2();
        let plan = SortPlan::new(packets, bits, GROUP_ITEMS);
        let memory = [layout.bytes(), payload.len(), plan.state_bytes];
        let [arena, bytes, state] = memory.map(|bytes| driver.allocate(bytes).map_err(text));
        let (arena, bytes, state) = (arena?, bytes?, state?);
        let mut header = vec![0; layout.header_bytes()];
        layout.write_header(0, packets as u32, 1, &mut header);
        let mut parts = vec![(&header[..], 0)];
        for column in 0..layout.columns().len() {
            parts.push((rows.column_bytes(column), layout.offset(column)));
        }
        device::upload_all(driver, queue, arena, &parts, PATIENCE).map_err(text)?;
        device::upload_all(driver, queue, bytes, &[(&payload, 0)], PATIENCE).map_err(text)?;
        Ok(Self { layout, arena, payload: bytes, state, plan, frames, modules: of })
    }

    fn free(self, driver: &mut dyn Driver) {
        for memory in [self.arena, self.payload, self.state] {
            driver.free(memory);
        }
    }

    /// Seconds in order of arrival, of the sort, and in its order.
    fn round(
        &self,
        device: &mut Opened,
        work: &str,
        wanted: impl Fn(&[u8], u32) -> u32,
    ) -> Result<[f64; 3], String> {
        let shape = Shape::of_rows(self.frames.len(), GROUP_ITEMS);
        let sort: Vec<(&str, Shape, u32)> = self
            .plan
            .launches
            .iter()
            .map(|Launch { kernel, groups, items, job }| {
                (*kernel, Shape { groups: *groups, items: *items }, *job)
            })
            .collect();
        let (in_order, by_list) = (format!("{work}_in_order"), format!("{work}_by_list"));
        let first = device.run(self, &[(&in_order, shape, 0)])?;
        device.check(self, &wanted)?;
        let sort = device.run(self, &sort)?;
        let second = device.run(self, &[(&by_list, shape, 0)])?;
        device.check(self, &wanted)?;
        Ok([first, sort, second])
    }
}

/// Half of the packets small, a third full, as on real links.
fn length(random: &mut Random) -> usize {
    match random.below(6) {
        0..3 => 26 + random.below(40),
        3 => 66 + random.below(1000),
        _ => 1400 + random.below(60),
    }
}

/// A device with the program built.
struct Opened {
    driver: Box<dyn Driver>,
    queue: Queue,
    names: Vec<String>,
    kernels: Vec<Kernel>,
}

impl Opened {
    fn new(backend: Backend) -> Result<Self, String> {
        let mut driver = open(backend)?;
        let plan = SortPlan::new(1, 8, GROUP_ITEMS);
        let mut names: Vec<String> =
            plan.launches.iter().map(|launch| launch.kernel.to_owned()).collect();
        for name in WORKS.map(|(_, name)| name).into_iter().chain(["modules"]) {
            names.extend([format!("{name}_in_order"), format!("{name}_by_list")]);
        }
        names.sort_unstable();
        names.dedup();
        let kernels = {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            driver.build(&program(), &names).map_err(text)?
        };
        let queue = driver.queue().map_err(text)?;
        Ok(Self { driver, queue, names, kernels })
    }

    /// Launches one after the other; seconds until the last one has ended.
    fn run(&mut self, batch: &Batch, launches: &[(&str, Shape, u32)]) -> Result<f64, String> {
        let begin = Instant::now();
        for (name, shape, job) in launches {
            let at = self.names.iter().position(|known| known == name);
            let kernel = self.kernels[at.ok_or_else(|| format!("no kernel {name}"))?];
            let Batch { arena, payload, state, .. } = *batch;
            let arguments = Arguments { arena, payload, tables: arena, state, job: *job };
            self.driver.launch(self.queue, kernel, *shape, &arguments).map_err(text)?;
        }
        finish(&mut *self.driver, self.queue)?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Compares what was computed with the CPU's.
    fn check(&mut self, batch: &Batch, wanted: impl Fn(&[u8], u32) -> u32) -> Result<(), String> {
        let mut sums = vec![0; 4 * batch.frames.len()];
        let place = batch.layout.offset(batch.layout.column(ModuleColumns::SUM));
        device::download_all(
            &mut *self.driver,
            self.queue,
            batch.arena,
            place,
            &mut sums,
            PATIENCE,
        )
        .map_err(text)?;
        let got = sums.chunks_exact(4).map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
        let expected = batch.frames.iter().zip(&batch.modules);
        match got.eq(expected.map(|(frame, module)| wanted(frame, *module))) {
            true => Ok(()),
            false => Err("the device computes something else than the CPU".into()),
        }
    }
}

/// Gains of a case, by round; the sort's share of the time.
#[derive(Default)]
struct Gains {
    gains: Vec<f64>,
    sort: Vec<f64>,
}

impl Gains {
    fn add(&mut self, [in_order, sort, by_list]: [f64; 3]) {
        self.gains.push(in_order / (sort + by_list));
        self.sort.push(100.0 * sort / (sort + by_list));
    }

    fn row(self, name: String, panel: &str, line: &str, at: usize, over: &str) -> Row {
        let note = format!("the sort takes {:.0} %", crate::report::median(&self.sort));
        Row::new(name, "ratio", self.gains).note(note).curve(panel, line, Some(at)).over(over)
    }
}

/// GASPP, Figure 10(a).
pub(super) fn by_batch(args: &Args, backend: Backend, batches: &[usize]) -> Result<Report, String> {
    let mut device = Opened::new(backend)?;
    let data = format!(
        "GASPP, Figure 10(a): packets of one module, protocols and lengths at random; {}",
        device.driver.info().name
    );
    let mut report = Report::new("paper", data);
    for packets in batches.iter().copied() {
        let batch = Batch::new(&mut *device.driver, device.queue, packets, 1)?;
        let mut gains = [const { Gains { gains: Vec::new(), sort: Vec::new() } }; WORKS.len()];
        // The first round warms up.
        for round in 0..=args.rounds.max(1) {
            for ((work, name), gains) in WORKS.into_iter().zip(&mut gains) {
                let times = batch.round(&mut device, name, |frame, _| work.of(frame, 0))?;
                if round > 0 {
                    gains.add(times);
                }
            }
        }
        for ((_, name), gains) in WORKS.into_iter().zip(gains) {
            let row = gains.row(
                format!("{name}, {packets} packets"),
                "gain by scheduling",
                name,
                packets,
                "packets of a batch",
            );
            report.rows.push(row);
        }
        batch.free(&mut *device.driver);
    }
    Ok(report)
}

/// GASPP, Figure 10(b).
pub(super) fn by_modules(args: &Args, backend: Backend, packets: usize) -> Result<Report, String> {
    let mut device = Opened::new(backend)?;
    let data = format!(
        "GASPP, Figure 10(b): {packets} packets, each of one of several modules; {}",
        device.driver.info().name
    );
    let mut report = Report::new("paper", data);
    for modules in MODULES {
        let batch = Batch::new(&mut *device.driver, device.queue, packets, modules)?;
        let mut gains = Gains::default();
        for round in 0..=args.rounds.max(1) {
            let wanted = |frame: &[u8], module| Work::Bytes.of(frame, module);
            let times = batch.round(&mut device, "modules", wanted)?;
            if round > 0 {
                gains.add(times);
            }
        }
        report.rows.push(gains.row(
            format!("{modules} modules"),
            "gain by scheduling",
            "modules that look at each byte",
            modules,
            "modules",
        ));
        batch.free(&mut *device.driver);
    }
    Ok(report)
}
