//! Device sources in one C dialect, and the layout of their arguments.
//!
//! A kernel is written once, as a thin wrapper that picks a row, over a core that works on one item.
//! [`source`] joins the dialect header, the constants that host and device share, the accessors of the
//! columns (from the one declaration) and the files that are wanted into a text that is CUDA C++ for
//! NVRTC and OpenCL C 1.2 alike:
//!
//! ```text
//!   dialect.h │ constants │ COL_… of Spec::columns │ lpm.h, hash.h, scan.h │ route.k, decode.k, …
//!        └── one text ──▶ NVRTC ▶ PTX, cubin      └── the same text ──▶ OpenCL
//! ```
//!
//! Every kernel takes the same five arguments: arena (a job: header, columns and areas, [`job`]), payload (the
//! packets' bytes), tables (one table image, [`image`]), state (state or scratch) and a job number.
//!
//! Threads: plain data, any thread.
#![forbid(unsafe_code)]

pub mod classifiers;
mod columns;
mod constants;
pub mod files;
pub mod image;
pub mod job;
pub mod known;
pub mod plan;
pub mod reasons;
mod registry;
mod source;

pub use chunk::hash;
pub use columns::{
    BridgeColumns, BridgeView, Classify4Columns, Classify4View, Classify12Columns, Classify12View,
    Classify32Columns, Classify32View, ExactColumns, ExactView, FilterColumns, FilterView,
    HashColumns, HashView, HeaderColumns, HeaderView, LpmColumns, LpmView, NameColumns,
    NameLookupColumns, NameLookupView, NameView, PayloadColumns, PayloadView, RewriteColumns,
    RewriteView, RouteColumns, RouteView, ScheduleColumns, ScheduleView,
};
pub use registry::{KernelFile, KernelInfo, Launch, problems};
pub use source::{Spec, source};

/// Bits of the router's column `flags` that kernels look at. The router asserts that they are its own.
pub mod flags {
    /// IPv4, to be routed.
    pub const IPV4: u16 = 1 << 0;
    /// IPv6, to be routed.
    pub const IPV6: u16 = 1 << 1;
    /// An address is link-local.
    pub const LINK_LOCAL: u16 = 1 << 3;
}

/// Bits of the switch's column `flags` that kernels look at. The switch asserts that they are its own.
pub mod bridge {
    /// The destination is a group.
    pub const GROUP: u16 = 1 << 0;
}

/// Values of the columns of the firewall's stage.
pub mod filter {
    use chunk::{DropReason, Verdict};

    /// In `filter_rule`: no rule judged the row.
    pub const NOT_JUDGED: u32 = u32::MAX;
    /// In `filter_rule`: the rules stand in a structure that has no kernel. Such rules are not sent to a device; if they
    /// come there all the same, their packets are dropped.
    pub const UNKNOWN: u32 = u32::MAX - 1;
    /// In `filter_family`: IPv4 or IPv6 that is too short for what rules may ask.
    pub const SHORT: u8 = 1;
    /// In `filter_family`: a malformed packet.
    pub const MALFORMED: u8 = 2;
    /// In a word of [`ACTIONS`](crate::image::firewall::ACTIONS): the rule has an action of its own. The other bits are
    /// its verdict.
    pub const ACTION: u32 = 1 << 31;
    /// What becomes of a packet that is too short. The firewall asserts that it is its own.
    pub const DROP_SHORT: Verdict = Verdict::drop(DropReason::from_code(0x0502));
    /// What becomes of a malformed packet. The firewall asserts that it is its own.
    pub const DROP_MALFORMED: Verdict = Verdict::drop(DropReason::from_code(0x0503));

    /// The argument `job` of `filter4` and `filter6`: the numbers of the regions that they read.
    pub const fn job(rules: usize, actions: usize) -> u32 {
        rules as u32 | (actions as u32) << 8
    }
}

/// Values of the router's column `decision`: a kind in the top four bits, an adjacency (kind 0) or an
/// interface below. The router asserts that they are its own.
pub mod decision {
    /// Adjacencies that the column can name.
    pub const ADJACENCIES_MAX: u32 = 1 << 28;
    /// To the destination itself, on the link of an interface.
    pub const CONNECTED: u32 = 1 << 28;
    /// To an address of an interface.
    pub const LOCAL: u32 = 2 << 28;
    /// To the directed broadcast of an interface.
    pub const BROADCAST: u32 = 3 << 28;
    /// No route covers the destination.
    pub const NO_ROUTE: u32 = 4 << 28;
    /// The route says unreachable.
    pub const UNREACHABLE: u32 = 5 << 28;
}
