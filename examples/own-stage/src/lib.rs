//! The stage `dscp_limit`: packets of trusted DSCP classes pass as they are; others are remarked, and limited to a rate.

pub mod first_line;
pub mod signed;

use chunk::{ColumnId, Columns, ReasonBlock, Verdict};
use control::config::kinds::{self, Kind};
use controlplane::{At, CounterTable, Descriptor, RowStage};
use kernels::{KernelFile, KernelInfo, known::Known};

/// What `main` adds to the shipped applications.
pub static DESCRIPTOR: Descriptor = Descriptor::of::<DscpLimit>();

control::section! {
    /// Limits and remarks DSCP classes (RFC 2474).
    pub struct Limit("stage.NAME") {
        /// Classes (the upper three bits of the DSCP) whose packets pass as they are.
        rebuild trust: Vec<u8> = vec![0], kinds::list(kinds::integer(0..=7), "an array such as [0, 5]");
        /// DSCP of all others.
        rebuild remark: u8 = 0, kinds::integer(0..=63);
        /// Packets of all others that each worker lets pass in a second. 0: no limit.
        rebuild rate: u32 = 0, kinds::integer(0..=1_000_000_000).unit("packets/s");
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

/// The kernel, with its known answer: class 1 is trusted, others become 3.
pub const KERNEL: KernelFile = KernelFile {
    known: |_| {
        let (dscp, dscp_new) = (DscpColumns::DSCP, DscpColumns::DSCP_NEW);
        vec![Known::rows(&KERNEL, 3 << 16 | 0x102, &[(dscp, &[10, 46, 64])], &[(dscp_new, &[10, 3, 64])])]
    },
    ..KernelFile::new("dscp_limit", include_str!("dscp.k"), INFO, DscpColumns::COLUMNS)
};
const INFO: &[KernelInfo] = &[KernelInfo::new("dscp_limit", &["verdict", "dscp", "dscp_new"], 256)];

/// The stage of one worker: a second, and the packets of other classes that came in it.
#[derive(Default)]
pub struct DscpLimit(u64, u32);

impl RowStage for DscpLimit {
    type Settings = Limit;
    type Columns = DscpColumns;
    const KIND: &str = "dscp_limit";
    const ABOUT: &str = "Remarks packets of DSCP classes that are not trusted, and limits their rate.";
    const READS: &[ColumnId] = &[DscpColumns::DSCP];
    const WRITES: &[ColumnId] = &[DscpColumns::DSCP_NEW];
    const REASONS: &[&ReasonBlock] = &[BLOCK];
    const KERNEL: Option<&KernelFile> = Some(&KERNEL);
    const COUNTERS: CounterTable = CounterTable {
        name: "dscp",
        about: "Packets by DSCP class",
        rows: ("class", &["0", "1", "2", "3", "4", "5", "6", "7", "none"]),
        columns: &[
            ("packets", "Packets by DSCP class."),
            ("remarked", "Packets with a new DSCP."),
            ("dropped", "Packets over the limit."),
        ],
    };

    /// A bit for each trusted class, one for what is not IP, and the new DSCP from bit 16 on.
    fn job(limit: &Limit) -> u32 {
        let trusted = limit.trust.iter().fold(0, |all, class| all | 1 << class);
        trusted | 1 << 8 | u32::from(limit.remark) << 16
    }

    fn needs_one_worker(limit: &Limit) -> Option<&'static str> {
        (limit.rate > 0).then_some("its limit counts all packets")
    }

    fn pre_shade(&mut self, at: At<'_, Limit>, columns: &mut DscpView<'_>) {
        let header = at.packet.data().get(usize::from(columns.l3[at.row])..).unwrap_or_default();
        columns.dscp[at.row] = packet::dscp(header).unwrap_or(64);
    }

    fn shade(job: u32, row: usize, columns: &mut DscpView<'_>) {
        let dscp = columns.dscp[row];
        let is_trusted = job >> (dscp >> 3) & 1 == 1;
        columns.dscp_new[row] = if is_trusted { dscp } else { (job >> 16) as u8 };
    }

    fn post_shade(&mut self, at: At<'_, Limit>, columns: &mut DscpView<'_>) {
        let (old, new) = (columns.dscp[at.row], columns.dscp_new[at.row]);
        let class = usize::from(old >> 3);
        at.counters.count(class, 0);
        if at.job >> class & 1 == 1 {
            return;
        }
        let second = at.arrival_ns / 1_000_000_000;
        *self = Self(second, if self.0 == second { self.1 + 1 } else { 1 });
        if at.settings.rate > 0 && self.1 > at.settings.rate {
            columns.verdict[at.row] = Verdict::drop(DSCP_LIMITED).0;
            at.counters.count(class, 2);
        } else if old != new {
            packet::set_dscp(&mut at.packet.data_mut()[usize::from(columns.l3[at.row])..], new);
            at.counters.count(class, 1);
        }
    }
}
