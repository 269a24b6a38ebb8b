//! Which kernels there are.

use chunk::{Columns, Declaration};

use crate::columns::{
    BridgeColumns, Classify4Columns, Classify12Columns, Classify32Columns, ExactColumns,
    FilterColumns, HashColumns, HeaderColumns, LpmColumns, NameColumns, NameLookupColumns,
    PayloadColumns, RewriteColumns, RouteColumns, ScheduleColumns,
};

/// A file of kernels.
#[derive(Clone, Copy, Debug)]
pub struct KernelFile {
    /// Its name without the ending.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
    /// Texts that it needs before it, in order.
    pub headers: &'static [&'static str],
    /// Its kernels, in order.
    pub kernels: &'static [KernelInfo],
    /// A declaration of columns that suits it, for self-tests and for compiling it alone.
    pub columns: Declaration,
    /// Rows of columns that a kernel finds from the word of the first one on (`WORD_…`): they must be declared one
    /// after the other.
    pub side_by_side: &'static [&'static [&'static str]],
}

/// A kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelInfo {
    /// Its name.
    pub name: &'static str,
    /// Columns that it reads or writes.
    pub columns: &'static [&'static str],
    /// Work items in a group, as it is meant to be launched.
    pub group_items: u32,
}

/// One launch of a sequence that does something together, such as a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The kernel.
    pub kernel: &'static str,
    /// Groups.
    pub groups: u32,
    /// Work items in each.
    pub items: u32,
    /// The job number that it is given.
    pub job: u32,
}

/// The file of that name.
pub fn file(name: &str) -> Option<&'static KernelFile> {
    ALL.iter().find(|file| file.name == name)
}

/// The kernel of that name, in whatever file.
pub fn info(kernel: &str) -> Option<&'static KernelInfo> {
    ALL.iter().flat_map(|file| file.kernels).find(|info| info.name == kernel)
}

const LPM: &str = include_str!("c/lpm.h");
const TRIES: &str = include_str!("c/tries.h");
const HASH: &str = include_str!("c/hash.h");
const NAMES: &str = include_str!("c/names.h");
const DECODE: &str = include_str!("c/decode.h");
const CUCKOO: &str = include_str!("c/cuckoo.h");
const SCAN: &str = include_str!("c/scan.h");
const SORT: &str = include_str!("c/sort.h");
const CLASSIFY: &[&str] =
    &[HASH, include_str!("c/classify.h"), LINEAR, include_str!("c/tuple.h"), REDUCTION, CUTS];
const LINEAR: &str = include_str!("c/linear.h");
const REDUCTION: &str = include_str!("c/reduction.h");
const CUTS: &str = include_str!("c/cuts.h");

const fn kernel(
    name: &'static str,
    columns: &'static [&'static str],
    group_items: u32,
) -> KernelInfo {
    KernelInfo { name, columns, group_items }
}

/// Every file of kernels.
pub const ALL: &[KernelFile] = &[
    KernelFile {
        name: "empty",
        columns: &[],
        side_by_side: &[],
        text: include_str!("c/empty.k"),
        headers: &[],
        kernels: &[kernel("empty", &[], 64)],
    },
    KernelFile {
        name: "lpm",
        columns: LpmColumns::COLUMNS,
        side_by_side: &[],
        text: include_str!("c/lpm.k"),
        headers: &[LPM],
        kernels: &[
            kernel("lpm4", &["dst4", "result"], 256),
            kernel("lpm6", &["dst6", "result"], 256),
        ],
    },
    KernelFile {
        name: "tries",
        columns: LpmColumns::COLUMNS,
        side_by_side: &[],
        text: include_str!("c/tries.k"),
        headers: &[LPM, TRIES],
        kernels: &[
            kernel("poptrie", &["dst4", "result"], 256),
            kernel("mtrie6", &["dst6", "result"], 256),
        ],
    },
    KernelFile {
        name: "route",
        columns: RouteColumns::COLUMNS,
        side_by_side: &[],
        text: include_str!("c/route.k"),
        headers: &[LPM, TRIES],
        kernels: &[
            kernel("route", &["verdict", "flags", "flow_hash", "dst4", "dst6", "decision"], 256),
            kernel("rpf", &["verdict", "flags", "interface", "src4", "src6"], 256),
        ],
    },
    KernelFile {
        name: "cuckoo",
        columns: ExactColumns::COLUMNS,
        side_by_side: &[],
        text: include_str!("c/cuckoo.k"),
        headers: &[HASH, CUCKOO],
        kernels: &[
            kernel("exact8", &["key8", "value8"], 256),
            kernel("exact16", &["key16", "value16"], 256),
        ],
    },
    KernelFile {
        name: "bridge",
        columns: BridgeColumns::COLUMNS,
        side_by_side: &[],
        text: include_str!("c/bridge.k"),
        headers: &[HASH, CUCKOO],
        kernels: &[kernel(
            "bridge",
            &["verdict", "flags", "source_key", "destination_key", "source", "destination"],
            256,
        )],
    },
    KernelFile {
        name: "patch",
        columns: &[],
        side_by_side: &[],
        text: include_str!("c/patch.k"),
        headers: &[],
        kernels: &[kernel("patch", &[], 256)],
    },
    KernelFile {
        name: "gather",
        columns: &[],
        side_by_side: &[],
        text: include_str!("c/gather.k"),
        headers: &[],
        kernels: &[kernel("gather", &[], 64)],
    },
    KernelFile {
        name: "decode",
        columns: HeaderColumns::COLUMNS,
        side_by_side: &[],
        text: include_str!("c/decode.k"),
        headers: &[HASH, DECODE],
        kernels: &[kernel("decode", DECODE_COLUMNS, 128)],
    },
    KernelFile {
        name: "rewrite",
        columns: RewriteColumns::COLUMNS,
        side_by_side: &[],
        text: include_str!("c/rewrite.k"),
        headers: &[],
        kernels: &[kernel("rewrite", REWRITE_COLUMNS, 128)],
    },
    KernelFile {
        name: "select",
        columns: ScheduleColumns::COLUMNS,
        side_by_side: &[],
        text: include_str!("c/select.k"),
        headers: &[SCAN],
        kernels: &[
            kernel("select_count", &["verdict", "context"], 256),
            kernel("select_scan", &[], 256),
            kernel("select_write", &["verdict", "context"], 256),
        ],
    },
    KernelFile {
        name: "sort",
        columns: ScheduleColumns::COLUMNS,
        side_by_side: &[],
        text: include_str!("c/sort.k"),
        headers: &[SCAN, SORT],
        kernels: &[
            kernel("sort_keys", &["context", "protocol", "payload_len"], 256),
            kernel("sort_count", &[], 256),
            kernel("sort_scan", &[], 256),
            kernel("sort_scatter", &[], 256),
        ],
    },
    KernelFile {
        name: "order",
        columns: &[],
        text: include_str!("c/order.k"),
        headers: &[SCAN, SORT],
        side_by_side: &[],
        kernels: &[
            kernel("order_count", &[], 256),
            kernel("order_scan", &[], 256),
            kernel("order_scatter", &[], 256),
        ],
    },
    KernelFile {
        name: "areas",
        columns: &[],
        text: include_str!("c/areas.k"),
        headers: &[SCAN],
        side_by_side: &[],
        kernels: &[kernel("clear_area", &[], 256), kernel("output_scan", &[], 256)],
    },
    KernelFile {
        name: "hash",
        columns: HashColumns::COLUMNS,
        side_by_side: &[],
        text: include_str!("c/hash.k"),
        headers: &[HASH],
        kernels: &[
            kernel("hash_flow", &["src", "dst", "ports", "protocol", "flow"], 256),
            kernel(
                "hash_words",
                &["src", "seed", "murmur", "shift", "prime", "fmix32", "fmix64"],
                256,
            ),
            kernel("hash_payload", &["payload_at", "payload_len", "seed", "murmur"], 128),
        ],
    },
    KernelFile {
        name: "names",
        columns: NameColumns::COLUMNS,
        side_by_side: &[],
        text: include_str!("c/names.k"),
        headers: &[HASH, NAMES],
        kernels: &[kernel("names", &["payload_at", "payload_len", "result"], 128)],
    },
    KernelFile {
        name: "classify4",
        columns: Classify4Columns::COLUMNS,
        side_by_side: &[],
        text: include_str!("c/classify4.k"),
        headers: CLASSIFY,
        kernels: &[
            kernel("linear4", &["head0", "found"], 256),
            kernel("tuple2", &["head0", "found"], 256),
            kernel("tuple4", &["head0", "found"], 256),
            kernel("rfc", &["head0", "found"], 256),
            kernel("tic", &["head0", "found"], 256),
            kernel("cuts", &["head0", "found"], 256),
        ],
    },
    KernelFile {
        name: "classify12",
        columns: Classify12Columns::COLUMNS,
        side_by_side: &[&["head0", "head1", "head2"]],
        text: include_str!("c/classify12.k"),
        headers: CLASSIFY,
        kernels: &[
            kernel("linear12", HEAD_12, 256),
            kernel("tuple9", HEAD_12, 256),
            kernel("tuple10", HEAD_12, 256),
        ],
    },
    KernelFile {
        name: "classify32",
        columns: Classify32Columns::COLUMNS,
        side_by_side: &[HEADS_32],
        text: include_str!("c/classify32.k"),
        headers: CLASSIFY,
        kernels: &[
            kernel("linear32", HEAD_32, 256),
            kernel("tuple16", &["head0", "head1", "head2", "head3", "found"], 256),
            kernel("tuple32", HEAD_32, 256),
        ],
    },
    KernelFile {
        name: "filter",
        columns: FilterColumns::COLUMNS,
        side_by_side: &[&["filter_head0", "filter_head1", "filter_head2"]],
        text: include_str!("c/filter.k"),
        headers: CLASSIFY,
        kernels: &[kernel("filter4", FILTER_4, 256), kernel("filter6", FILTER_6, 256)],
    },
    KernelFile {
        name: "name_lookup",
        columns: NameLookupColumns::COLUMNS,
        side_by_side: &[],
        text: include_str!("c/name_lookup.k"),
        headers: &[HASH, NAMES],
        // With fewer items a group NVIDIA's compiler spills registers, to have one more group at a time.
        kernels: &[kernel(
            "name_lookup",
            &["verdict", "payload_at", "payload_len", "name_at", "name_len", "next_hop"],
            256,
        )],
    },
    KernelFile {
        name: "payload",
        columns: PayloadColumns::COLUMNS,
        side_by_side: &[],
        text: include_str!("c/payload.k"),
        headers: &[],
        kernels: &[
            kernel("payload_sum", &["payload_at", "payload_len", "sum"], 128),
            kernel("payload_xor", &["payload_at", "payload_len", "key"], 128),
            kernel("flow_count", &["slot"], 128),
            kernel("payload_blocks", &["payload_at", "payload_len"], 128),
            kernel("payload_count", &["payload_len"], 128),
            kernel("payload_words", &["payload_at", "payload_len"], 128),
            kernel("payload_clear", &["payload_at", "payload_len"], 128),
        ],
    },
];

const HEAD_12: &[&str] = &["head0", "head1", "head2", "found"];

const HEADS_32: &[&str] = &["head0", "head1", "head2", "head3", "head4", "head5", "head6", "head7"];

const HEAD_32: &[&str] =
    &["head0", "head1", "head2", "head3", "head4", "head5", "head6", "head7", "found"];

const FILTER_4: &[&str] = &["verdict", "filter_family", "filter_head0", "filter_rule"];

const FILTER_6: &[&str] =
    &["verdict", "filter_family", "filter_head0", "filter_head1", "filter_head2", "filter_rule"];

const DECODE_COLUMNS: &[&str] = &[
    "payload_at",
    "payload_len",
    "frame_len",
    "src",
    "dst",
    "ip_total_len",
    "l4_word",
    "vlan_tci",
    "flow_hash",
    "ethertype",
    "l3_offset",
    "l4_offset",
    "ip_header_len",
    "fragment_offset",
    "header_flags",
    "kind",
    "protocol",
    "ttl",
    "traffic_class",
    "anomaly",
    "counts",
];

const REWRITE_COLUMNS: &[&str] =
    &["verdict", "payload_at", "payload_len", "frame_len", "flags", "l3", "mtu", "tx_port", "macs"];
