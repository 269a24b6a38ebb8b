//! The files of kernels of this crate.

use chunk::Columns;

use crate::columns::{
    BridgeColumns, Classify4Columns, Classify12Columns, Classify32Columns, ExactColumns,
    FilterColumns, HashColumns, HeaderColumns, LpmColumns, NameColumns, NameLookupColumns,
    PayloadColumns, RewriteColumns, RouteColumns, ScheduleColumns,
};
use crate::known;
use crate::registry::{KernelFile, KernelInfo};

/// Functions that files of kernels share, as texts of their own: see [`KernelFile::headers`].
pub mod headers {
    /// Longest-prefix match in DIR-24-8 and by binary search on lengths.
    pub const LPM: &str = include_str!("c/lpm.h");
    /// Longest-prefix match in the tries.
    pub const TRIES: &str = include_str!("c/tries.h");
    /// Hashes.
    pub const HASH: &str = include_str!("c/hash.h");
    /// Longest-prefix match of names; behind [`HASH`].
    pub const NAMES: &str = include_str!("c/names.h");
    /// Headers of packets; behind [`HASH`].
    pub const DECODE: &str = include_str!("c/decode.h");
    /// Exact match; behind [`HASH`].
    pub const CUCKOO: &str = include_str!("c/cuckoo.h");
    /// Prefix sums over a group.
    pub const SCAN: &str = include_str!("c/scan.h");
    /// A stable sort; behind [`SCAN`].
    pub const SORT: &str = include_str!("c/sort.h");
    /// All searches through rules.
    pub const CLASSIFY: &[&str] = &[
        HASH,
        include_str!("c/classify.h"),
        include_str!("c/linear.h"),
        include_str!("c/tuple.h"),
        include_str!("c/reduction.h"),
        include_str!("c/cuts.h"),
    ];
}

/// All of them.
pub const ALL: &[&KernelFile] = &[
    &EMPTY,
    &LPM,
    &TRIES,
    &ROUTE,
    &CUCKOO,
    &BRIDGE,
    &PATCH,
    &GATHER,
    &DECODE,
    &REWRITE,
    &SELECT,
    &SORT,
    &ORDER,
    &AREAS,
    &HASH,
    &NAMES,
    &CLASSIFY4,
    &CLASSIFY12,
    &CLASSIFY32,
    &FILTER,
    &NAME_LOOKUP,
    &PAYLOAD,
];

const fn kernel(
    name: &'static str,
    columns: &'static [&'static str],
    group_items: u32,
) -> KernelInfo {
    KernelInfo { name, columns, group_items }
}

/// A kernel that does nothing.
pub const EMPTY: KernelFile = KernelFile {
    name: "empty",
    text: include_str!("c/empty.k"),
    kernels: &[kernel("empty", &[], 64)],
    known: known::empty,
    ..KernelFile::NONE
};

/// Longest-prefix match in DIR-24-8 and by binary search on lengths.
pub const LPM: KernelFile = KernelFile {
    name: "lpm",
    columns: LpmColumns::COLUMNS,
    text: include_str!("c/lpm.k"),
    headers: &[headers::LPM],
    kernels: &[kernel("lpm4", &["dst4", "result"], 256), kernel("lpm6", &["dst6", "result"], 256)],
    known: known::tables::lpm,
    ..KernelFile::NONE
};

/// Longest-prefix match in the tries.
pub const TRIES: KernelFile = KernelFile {
    name: "tries",
    columns: LpmColumns::COLUMNS,
    text: include_str!("c/tries.k"),
    headers: &[headers::LPM, headers::TRIES],
    kernels: &[
        kernel("poptrie", &["dst4", "result"], 256),
        kernel("mtrie6", &["dst6", "result"], 256),
    ],
    known: known::tries::all,
    ..KernelFile::NONE
};

/// The router's stages `rpf` and `route`.
pub const ROUTE: KernelFile = KernelFile {
    name: "route",
    columns: RouteColumns::COLUMNS,
    text: include_str!("c/route.k"),
    headers: &[headers::LPM, headers::TRIES],
    kernels: &[
        kernel("route", &["verdict", "flags", "flow_hash", "dst4", "dst6", "decision"], 256),
        kernel("rpf", &["verdict", "flags", "interface", "src4", "src6"], 256),
    ],
    known: known::tables::routes,
    ..KernelFile::NONE
};

/// Exact match.
pub const CUCKOO: KernelFile = KernelFile {
    name: "cuckoo",
    columns: ExactColumns::COLUMNS,
    text: include_str!("c/cuckoo.k"),
    headers: &[headers::HASH, headers::CUCKOO],
    kernels: &[
        kernel("exact8", &["key8", "value8"], 256),
        kernel("exact16", &["key16", "value16"], 256),
    ],
    known: known::exact::cuckoo,
    ..KernelFile::NONE
};

/// The switch's stage `bridge`.
pub const BRIDGE: KernelFile = KernelFile {
    name: "bridge",
    columns: BridgeColumns::COLUMNS,
    text: include_str!("c/bridge.k"),
    headers: &[headers::HASH, headers::CUCKOO],
    kernels: &[kernel(
        "bridge",
        &["verdict", "flags", "source_key", "destination_key", "source", "destination"],
        256,
    )],
    known: known::exact::bridges,
    ..KernelFile::NONE
};

/// Changes of an image.
pub const PATCH: KernelFile = KernelFile {
    name: "patch",
    text: include_str!("c/patch.k"),
    kernels: &[kernel("patch", &[], 256)],
    known: known::tables::patches,
    ..KernelFile::NONE
};

/// Frames from the cells to one memory.
pub const GATHER: KernelFile = KernelFile {
    name: "gather",
    text: include_str!("c/gather.k"),
    kernels: &[kernel("gather", &[], 64)],
    known: known::packets::gathers,
    ..KernelFile::NONE
};

/// Headers into columns.
pub const DECODE: KernelFile = KernelFile {
    name: "decode",
    columns: HeaderColumns::COLUMNS,
    text: include_str!("c/decode.k"),
    headers: &[headers::HASH, headers::DECODE],
    kernels: &[kernel("decode", DECODE_COLUMNS, 128)],
    known: known::packets::decodes,
    ..KernelFile::NONE
};

/// Plain packets, forwarded in place.
pub const REWRITE: KernelFile = KernelFile {
    name: "rewrite",
    columns: RewriteColumns::COLUMNS,
    text: include_str!("c/rewrite.k"),
    kernels: &[kernel("rewrite", REWRITE_COLUMNS, 128)],
    known: known::packets::rewrites,
    ..KernelFile::NONE
};

/// Rows of one context: [`SelectPlan`](crate::plan::SelectPlan).
pub const SELECT: KernelFile = KernelFile {
    name: "select",
    columns: ScheduleColumns::COLUMNS,
    text: include_str!("c/select.k"),
    headers: &[headers::SCAN],
    kernels: &[
        kernel("select_count", &["verdict", "context"], 256),
        kernel("select_scan", &[], 256),
        kernel("select_write", &["verdict", "context"], 256),
    ],
    known: known::schedule::selects,
    ..KernelFile::NONE
};

/// Rows by protocol, context and length: [`SortPlan`](crate::plan::SortPlan).
pub const SORT: KernelFile = KernelFile {
    name: "sort",
    columns: ScheduleColumns::COLUMNS,
    text: include_str!("c/sort.k"),
    headers: &[headers::SCAN, headers::SORT],
    kernels: &[
        kernel("sort_keys", &["context", "protocol", "payload_len"], 256),
        kernel("sort_count", &[], 256),
        kernel("sort_scan", &[], 256),
        kernel("sort_scatter", &[], 256),
    ],
    known: known::schedule::sorts,
    ..KernelFile::NONE
};

/// Rows by columns: [`OrderPlan`](crate::plan::OrderPlan).
pub const ORDER: KernelFile = KernelFile {
    name: "order",
    text: include_str!("c/order.k"),
    headers: &[headers::SCAN, headers::SORT],
    kernels: &[
        kernel("order_count", &[], 256),
        kernel("order_scan", &[], 256),
        kernel("order_scatter", &[], 256),
    ],
    known: known::schedule::orders,
    ..KernelFile::NONE
};

/// Areas of zeros, and where records start.
pub const AREAS: KernelFile = KernelFile {
    name: "areas",
    text: include_str!("c/areas.k"),
    headers: &[headers::SCAN],
    kernels: &[kernel("clear_area", &[], 256), kernel("output_scan", &[], 256)],
    known: known::schedule::all_areas,
    ..KernelFile::NONE
};

/// The hashes of [`hash`](crate::hash).
pub const HASH: KernelFile = KernelFile {
    name: "hash",
    columns: HashColumns::COLUMNS,
    text: include_str!("c/hash.k"),
    headers: &[headers::HASH],
    kernels: &[
        kernel("hash_flow", &["src", "dst", "ports", "protocol", "flow"], 256),
        kernel("hash_words", &["src", "seed", "murmur", "shift", "prime", "fmix32", "fmix64"], 256),
        kernel("hash_payload", &["payload_at", "payload_len", "seed", "murmur"], 128),
    ],
    known: known::schedule::hashes,
    ..KernelFile::NONE
};

/// Longest-prefix match of names.
pub const NAMES: KernelFile = KernelFile {
    name: "names",
    columns: NameColumns::COLUMNS,
    text: include_str!("c/names.k"),
    headers: &[headers::HASH, headers::NAMES],
    kernels: &[kernel("names", &["payload_at", "payload_len", "result"], 128)],
    known: known::names::all_names,
    ..KernelFile::NONE
};

/// Classification of headers of up to 4 words.
pub const CLASSIFY4: KernelFile = KernelFile {
    name: "classify4",
    columns: Classify4Columns::COLUMNS,
    text: include_str!("c/classify4.k"),
    headers: headers::CLASSIFY,
    kernels: &[
        kernel("linear4", &["head0", "found"], 256),
        kernel("tuple2", &["head0", "found"], 256),
        kernel("tuple4", &["head0", "found"], 256),
        kernel("rfc", &["head0", "found"], 256),
        kernel("tic", &["head0", "found"], 256),
        kernel("cuts", &["head0", "found"], 256),
    ],
    known: known::classify::of_4_words,
    ..KernelFile::NONE
};

/// Classification of headers of up to 12 words.
pub const CLASSIFY12: KernelFile = KernelFile {
    name: "classify12",
    columns: Classify12Columns::COLUMNS,
    side_by_side: &[&["head0", "head1", "head2"]],
    text: include_str!("c/classify12.k"),
    headers: headers::CLASSIFY,
    kernels: &[
        kernel("linear12", HEAD_12, 256),
        kernel("tuple9", HEAD_12, 256),
        kernel("tuple10", HEAD_12, 256),
    ],
    known: known::classify::of_12_words,
    ..KernelFile::NONE
};

/// Classification of headers of up to 32 words.
pub const CLASSIFY32: KernelFile = KernelFile {
    name: "classify32",
    columns: Classify32Columns::COLUMNS,
    side_by_side: &[HEADS_32],
    text: include_str!("c/classify32.k"),
    headers: headers::CLASSIFY,
    kernels: &[
        kernel("linear32", HEAD_32, 256),
        kernel("tuple16", &["head0", "head1", "head2", "head3", "found"], 256),
        kernel("tuple32", HEAD_32, 256),
    ],
    known: known::classify::of_32_words,
    ..KernelFile::NONE
};

/// The firewall's stage.
pub const FILTER: KernelFile = KernelFile {
    name: "filter",
    columns: FilterColumns::COLUMNS,
    side_by_side: &[&["filter_head0", "filter_head1", "filter_head2"]],
    text: include_str!("c/filter.k"),
    headers: headers::CLASSIFY,
    kernels: &[kernel("filter4", FILTER_4, 256), kernel("filter6", FILTER_6, 256)],
    known: known::filter::all,
    ..KernelFile::NONE
};

/// The named-data forwarder's stage `name_lookup`.
pub const NAME_LOOKUP: KernelFile = KernelFile {
    name: "name_lookup",
    columns: NameLookupColumns::COLUMNS,
    text: include_str!("c/name_lookup.k"),
    headers: &[headers::HASH, headers::NAMES],
    // With fewer items a group NVIDIA's compiler spills registers, to have one more group at a time.
    kernels: &[kernel(
        "name_lookup",
        &["verdict", "payload_at", "payload_len", "name_at", "name_len", "next_hop"],
        256,
    )],
    known: known::names::name_lookups,
    ..KernelFile::NONE
};

/// Uses of payload and state, for self-tests and measurements.
pub const PAYLOAD: KernelFile = KernelFile {
    name: "payload",
    columns: PayloadColumns::COLUMNS,
    text: include_str!("c/payload.k"),
    kernels: &[
        kernel("payload_sum", &["payload_at", "payload_len", "sum"], 128),
        kernel("payload_xor", &["payload_at", "payload_len", "key"], 128),
        kernel("flow_count", &["slot"], 128),
        kernel("payload_blocks", &["payload_at", "payload_len"], 128),
        kernel("payload_count", &["payload_len"], 128),
        kernel("payload_words", &["payload_at", "payload_len"], 128),
        kernel("payload_clear", &["payload_at", "payload_len"], 128),
    ],
    known: known::packets::payloads,
    ..KernelFile::NONE
};

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
