//! The firewall's kernels: `filter4` and `filter6`, whose CPU form is the stage's [shade](super::search). They get
//! the regions of their firewall's rules and actions as their job argument: [`job`].

mod known;

use chunk::Columns;
use kernels::files::headers;
use kernels::{KernelFile, KernelInfo};

use super::reasons;

/// All of them.
pub const FILES: &[&KernelFile] = &[&FILTER];

/// The firewall's stage.
pub const FILTER: KernelFile = KernelFile {
    name: "filter",
    columns: FilterColumns::COLUMNS,
    side_by_side: &[&["filter_head0", "filter_head1", "filter_head2"]],
    text: include_str!("filter.k"),
    headers: headers::CLASSIFY,
    kernels: &[
        KernelInfo::new("filter4", FILTER_4, 256),
        KernelInfo::new("filter6", FILTER_6, 256),
    ],
    constants: &[
        ("FILTER_UNKNOWN", UNKNOWN),
        ("FILTER_NOT_JUDGED", NOT_JUDGED),
        ("FILTER_ACTION", ACTION),
        ("FILTER_SHORT", SHORT as u32),
        ("FILTER_MALFORMED", MALFORMED as u32),
    ],
    reasons: &[reasons::BLOCK],
    known: known::filters,
};

/// The region of the rules of IPv4 in the firewall's part: an image of the crate `classify`.
pub const RULES4: usize = 0;
/// The same of IPv6.
pub const RULES6: usize = 1;
/// The region of the actions: one word a rule by its id, the default's first, its verdict and [`ACTION`]; 0 for a rule
/// that has none of its own. Without a word there is no firewall.
pub const ACTIONS: usize = 2;
/// How many regions there are.
pub const REGIONS: usize = 3;

/// In `filter_rule`: no rule judged the row.
pub const NOT_JUDGED: u32 = u32::MAX;
/// In `filter_rule`: the rules are in a structure that has no kernel. Such rules are not sent to a device; if they come
/// there all the same, their packets are dropped.
pub const UNKNOWN: u32 = u32::MAX - 1;
/// In `filter_family`: IPv4 or IPv6 that is too short for what rules may ask.
pub const SHORT: u8 = 1;
/// In `filter_family`: a malformed packet.
pub const MALFORMED: u8 = 2;
/// In a word of [`ACTIONS`]: the rule has an action of its own. The other bits are its verdict.
pub const ACTION: u32 = 1 << 31;

/// The argument `job` of `filter4` and `filter6`: the numbers of the regions that they read.
pub const fn job(rules: usize, actions: usize) -> u32 {
    rules as u32 | (actions as u32) << 8
}

chunk::columns! {
    /// Columns of `filter4` and `filter6`, which the firewall's stage adds to those of its pipeline.
    pub struct FilterColumns / FilterView {
        /// Of the header: 4, 6, or 0 where no rules are asked; [`SHORT`] and
        /// [`MALFORMED`] where the packet is dropped unseen.
        pub filter_family: u8,
        /// Words 0 to 3 of the header, lowest first: all of IPv4.
        pub filter_head0: [u64; 2],
        /// Words 4 to 7 of a header of IPv6.
        pub filter_head1: [u64; 2],
        /// Words 8 and 9 of it, and zero.
        pub filter_head2: [u64; 2],
        /// Id of the best rule, 0 for the default; [`NOT_JUDGED`] for a row that no
        /// rule judged. Written for every row.
        pub filter_rule: u32,
    }
}

const FILTER_4: &[&str] = &["verdict", "filter_family", "filter_head0", "filter_rule"];

const FILTER_6: &[&str] =
    &["verdict", "filter_family", "filter_head0", "filter_head1", "filter_head2", "filter_rule"];
