//! The stage `dscp_limit`: packets of trusted DSCP classes pass as they are; others are remarked, and limited to a rate.

use std::sync::Arc;

use chunk::{Chunk, ColumnSet, Columns, Declaration, ReasonBlock, Rows, Verdict};
use control::api::table::{Row, thousands};
use control::config::{Application, Settings, StageKind, kinds, kinds::Kind};
use control::metrics::Metrics;
use controlplane::{
    ControlPart, Descriptor, Environment, Refusal, Rows as Table, Setup, TableKind, Tables,
    WorkerSetup,
};
use engine::{Context, Counter, KernelForm, Shade, Stage, Step};
use kernels::{KernelFile, KernelInfo, known::Known};

control::section! {
    /// Limits and remarks DSCP classes (RFC 2474).
    pub struct Limit("stage.NAME") {
        /// Classes (the upper three bits of the DSCP) whose packets pass as they are.
        restart trust: Vec<u8> = vec![0], kinds::list(kinds::integer(0..=7), "an array such as [0, 5]");
        /// DSCP of all others.
        restart remark: u8 = 0, kinds::integer(0..=63);
        /// Packets of all others that each worker lets pass in a second. 0: no limit.
        restart rate: u32 = 0, kinds::integer(0..=1_000_000_000).unit("packets/s");
    }
}

chunk::drop_reasons! {
    /// What the stage drops for.
    pub const BLOCK: 200, "own_stage";
    DSCP_LIMITED = 0, "dscp_limited", "more packets of classes that are not trusted than the limit allows",
        "Raise `rate` of the stage, or trust the class.";
}

chunk::columns! {
    /// Columns of the stage; `l3` is that of `decode`.
    pub struct DscpColumns / DscpView {
        pub l3: u8,
        /// The packet's DSCP; 64 for what is not IP.
        pub dscp: u8,
        /// What becomes of it.
        pub dscp_new: u8,
    }
}

pub static APPLICATION: Application = Application { name: "dscp", title: "a DSCP limit", ..Application::NONE };
pub static DESCRIPTOR: Descriptor = Descriptor {
    application: &APPLICATION,
    stages: &[StageKind {
        about: "Remarks packets of DSCP classes that are not trusted, and limits their rate.",
        needs: &["ip"],
        settings: Settings::of::<Limit>(),
        ..StageKind::new("dscp_limit", &APPLICATION)
    }],
    kernels: &[&FILE],
    tables: &[TableKind { name: "dscp", about: "Packets by DSCP class" }],
    absent: "no pipeline has the stage `dscp_limit`",
    start,
    ..Descriptor::NONE
};

/// The kernel, with its known answer: two classes, one of them trusted.
pub const FILE: KernelFile = KernelFile {
    name: "dscp",
    text: include_str!("dscp.k"),
    kernels: &[KernelInfo::new("dscp_limit", &["verdict", "dscp", "dscp_new"], 256)],
    columns: DscpColumns::COLUMNS,
    known: |_| {
        let mut before = kernels::job::JobBytes::new(DscpColumns::COLUMNS, 3);
        for (row, dscp) in [10u8, 46, 64].into_iter().enumerate() {
            before.put(DscpColumns::VERDICT, row, Verdict::NEXT.0);
            before.put(DscpColumns::DSCP, row, dscp);
        }
        let mut after = before.clone();
        for (row, dscp) in [10u8, 3, 64].into_iter().enumerate() {
            after.put(DscpColumns::DSCP_NEW, row, dscp);
        }
        let mut known = Known::new("dscp_limit", &[&FILE], &["dscp_limit"], DscpColumns::COLUMNS);
        known.launches[0].job = 0b10 | 3 << 8;
        vec![known.job(&before, &after)]
    },
    ..KernelFile::NONE
};

/// A class of the table `dscp`: packets that came, and of these, those remarked and those dropped.
#[derive(Default)]
pub struct Counts([[Counter; 3]; 8]);

#[derive(serde::Serialize)]
struct ClassRow {
    stage: String,
    class: usize,
    packets: u64,
    remarked: u64,
    dropped: u64,
}

impl Row for ClassRow {
    const COLUMNS: &'static [&'static str] = &["stage", ">class", ">packets", ">remarked", ">dropped"];
    fn cells(&self) -> Vec<String> {
        let counts = [self.packets, self.remarked, self.dropped].map(thousands);
        [vec![self.stage.clone(), self.class.to_string()], counts.into()].concat()
    }
}

/// The stage of one worker.
pub struct DscpLimit {
    name: &'static str,
    shade: Arc<Remark>,
    rate: u32,
    /// The second at hand, and packets that were let pass in it.
    window: (u64, u32),
    counts: Arc<Counts>,
}

/// A bit for each trusted class, and the new DSCP from bit 8 on.
struct Remark(u32);

impl DscpLimit {
    pub fn new(name: &'static str, limit: &Limit, counts: Arc<Counts>) -> Self {
        let trusted: u32 = limit.trust.iter().map(|class| 1 << class).sum();
        let shade = Arc::new(Remark(trusted | u32::from(limit.remark) << 8));
        Self { name, shade, rate: limit.rate, window: (0, 0), counts }
    }
}

impl<T: Sync + 'static> Stage<T> for DscpLimit {
    fn name(&self) -> &'static str {
        self.name
    }
    fn columns(&self) -> &'static [Declaration] {
        &[DscpColumns::COLUMNS]
    }
    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        &[BLOCK]
    }
    fn reads(&self) -> ColumnSet {
        ColumnSet::of(&[DscpColumns::DSCP])
    }
    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[DscpColumns::DSCP_NEW])
    }
    fn needs_one_worker(&self, _: &T) -> Option<&'static str> {
        (self.rate > 0).then_some("its limit counts all packets")
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, T>) {
        let view = DscpColumns::view(&mut chunk.rows);
        for (row, packet) in chunk.packets.iter().enumerate() {
            let header = packet.data().get(usize::from(view.l3[row])..).unwrap_or_default();
            view.dscp[row] = packet::dscp(header).unwrap_or(64);
        }
    }
    fn shader(&self) -> Option<Arc<dyn Shade<T>>> {
        Some(self.shade.clone())
    }
    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, T>) {
        let view = DscpColumns::view(&mut chunk.rows);
        for (row, packet) in chunk.packets.iter_mut().enumerate() {
            let (old, new) = (view.dscp[row], view.dscp_new[row]);
            if !Verdict(view.verdict[row]).is_next() || old > 63 {
                continue;
            }
            let [packets, remarked, dropped] = &self.counts.0[usize::from(old >> 3)];
            packets.add(1);
            if self.shade.0 >> (old >> 3) & 1 == 1 {
                continue;
            }
            let second = cx.arrival_ns(packet) / 1_000_000_000;
            self.window = if self.window.0 == second { self.window } else { (second, 0) };
            self.window.1 += 1;
            if self.rate > 0 && self.window.1 > self.rate {
                view.verdict[row] = Verdict::drop(DSCP_LIMITED).0;
                dropped.add(1);
            } else if old != new {
                packet::set_dscp(&mut packet.data_mut()[usize::from(view.l3[row])..], new);
                remarked.add(1);
            }
        }
    }
}

impl<T> Shade<T> for Remark {
    fn shade(&self, rows: &mut Rows, _: &T) {
        let view = DscpColumns::view(rows);
        for (row, &dscp) in view.dscp.iter().enumerate() {
            if Verdict(view.verdict[row]).is_next() {
                let is_trusted = dscp > 63 || self.0 >> (dscp >> 3) & 1 == 1;
                view.dscp_new[row] = if is_trusted { dscp } else { (self.0 >> 8) as u8 };
            }
        }
    }
    fn kernels(&self) -> Option<KernelForm> {
        let steps = vec![Step::rows("dscp_limit", 256).with_job(self.0).into()];
        Some(KernelForm { files: &[&FILE], steps, ..KernelForm::default() })
    }
}

/// Its part of the control plane.
struct Control {
    name: String,
    workers: Vec<Arc<Counts>>,
}

fn start(setup: &Setup<'_>, _: &mut Tables) -> Result<Box<dyn ControlPart>, String> {
    Ok(Box::new(Control { name: setup.name.to_owned(), workers: Vec::new() }))
}

impl Control {
    fn rows(&self) -> impl Iterator<Item = ClassRow> {
        (0..8).map(|class| {
            let sum = |i: usize| self.workers.iter().map(|own| own.0[class][i].get()).sum();
            let stage = self.name.clone();
            ClassRow { stage, class, packets: sum(0), remarked: sum(1), dropped: sum(2) }
        })
    }
}

impl ControlPart for Control {
    fn stage(&mut self, _: &str, setup: &WorkerSetup<'_>) -> Option<Box<dyn Stage<Tables>>> {
        self.workers.resize_with(self.workers.len().max(setup.worker + 1), Arc::default);
        let counts = self.workers[setup.worker].clone();
        Some(Box::new(DscpLimit::new(setup.name(), &setup.settings(), counts)))
    }
    fn table(&self, _: &str, as_text: bool, _: &Environment<'_>) -> Result<Table, Refusal> {
        Ok(Table::of("dscp", as_text, self.rows()))
    }
    fn metrics(&self, out: &mut Metrics) {
        type Family = (&'static str, &'static str, fn(&ClassRow) -> u64);
        let families: [Family; 3] = [
            ("dscp_packets_total", "Packets by DSCP class.", |row| row.packets),
            ("dscp_remarked_packets_total", "Packets with a new DSCP.", |row| row.remarked),
            ("dscp_dropped_packets_total", "Packets over the limit.", |row| row.dropped),
        ];
        for (name, help, value) in families {
            let mut family = out.counter(name, help);
            for row in self.rows() {
                let class = row.class.to_string();
                family.sample(&[("stage", &row.stage), ("class", &class)], value(&row));
            }
        }
    }
}
