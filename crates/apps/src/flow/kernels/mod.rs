//! The kernels of flow tracking: `flow_headers` and `flow_segments`, whose CPU form is in [`decode`](super::decode),
//! `flow_search`, whose CPU form is in [`search`](super::search), those of the order of segments, whose CPU form is in
//! [`reassembly`](super::reassembly), and those of the connection table, whose CPU form is in [`connections`](super::connections).

mod known;
mod known_connections;
mod known_order;

use chunk::Columns;
use kernels::files::headers;
use kernels::{KernelFile, KernelInfo};

use packet::decode::Kind;

use super::connections::{
    ConnectionColumns, IDLE_S, MARK_ENDED, MARK_RESET, NO_NUMBER, OVER_S, STEP_CELLS, SWEPT, WAYS,
};
use super::decode::{HeadColumns, head, segment};
use super::reassembly::{BEGINS_RUN, ITEMS, NO_ROW, PROBES, ReassemblyColumns};
use super::search::{HEAD_WORDS, SearchColumns};
use crate::router::kernels::DECODE_HEADER;

/// All of them.
pub const FILES: &[&KernelFile] = &[&FLOW, &FLOW_SEARCH, &REASSEMBLY, &CONNECTIONS];

/// Headers and TCP segments, for the stage `flow`.
pub const FLOW: KernelFile = KernelFile {
    name: "flow",
    columns: HeadColumns::COLUMNS,
    text: include_str!("flow.k"),
    headers: &[headers::HASH, DECODE_HEADER],
    kernels: &[
        KernelInfo::new(
            "flow_headers",
            &[
                "verdict",
                "flow_at",
                "flow_len",
                "flow_head",
                "flow_src",
                "flow_dst",
                "flow_header0",
                "flow_header1",
            ],
            128,
        ),
        KernelInfo::new(
            "flow_segments",
            &[
                "verdict",
                "flow_at",
                "flow_len",
                "flow_head",
                "flow_src",
                "flow_dst",
                "flow_header0",
                "flow_header1",
                "flow_segment",
            ],
            128,
        ),
    ],
    constants: &[
        ("HEAD_BYTES", head::BYTES),
        ("HEAD_IGNORES_CHECKSUMS", head::IGNORES_CHECKSUMS),
        ("SEGMENT_NONE", segment::NONE as u32),
        ("SEGMENT_RIGHT", segment::RIGHT as u32),
        ("SEGMENT_MALFORMED", segment::MALFORMED as u32),
        ("SEGMENT_CHECKSUM", segment::CHECKSUM as u32),
    ],
    known: known::flows,
    ..KernelFile::NONE
};

/// The search for literals, behind [`FLOW`].
pub const FLOW_SEARCH: KernelFile = KernelFile {
    name: "flow_search",
    columns: SearchColumns::COLUMNS,
    text: include_str!("search.k"),
    headers: &[headers::WALK, headers::LITERALS],
    kernels: &[KernelInfo::new(
        "flow_search",
        &["verdict", "flow_at", "flow_len", "flow_header1", "flow_segment", "flow_clean"],
        128,
    )],
    constants: &[
        ("MATCH_WORDS_MAX", kernels::files::MATCH_WORDS_MAX),
        ("SEARCH_HEAD_WORDS", HEAD_WORDS as u32),
        ("SEARCH_IPV4", Kind::Ipv4 as u32),
        ("SEARCH_IPV6", Kind::Ipv6 as u32),
        ("SEARCH_RIGHT", segment::RIGHT as u32),
    ],
    known: known::searches,
    ..KernelFile::NONE
};

/// The order of segments, behind [`FLOW`], with [`ORDER`](kernels::files::ORDER).
pub const REASSEMBLY: KernelFile = KernelFile {
    name: "reassembly",
    columns: ReassemblyColumns::COLUMNS,
    text: include_str!("reassembly.k"),
    headers: &[headers::HASH, headers::SCAN, headers::SORT],
    kernels: &[
        KernelInfo::new("reassembly_begin", &["flow_src", "flow_dst", "flow_header0"], ITEMS),
        KernelInfo::new("reassembly_flows", DIRECTIONS, ITEMS),
        KernelInfo::new("reassembly_groups", GROUPS, ITEMS),
        KernelInfo::new("reassembly_sequences", SEQUENCES, ITEMS),
        KernelInfo::new("reassembly_follow", FOLLOW, ITEMS),
        KernelInfo::new("reassembly_keys", &["flow_segment", "flow_group", "flow_next"], ITEMS),
        KernelInfo::new("reassembly_firsts", &["flow_group"], ITEMS),
        KernelInfo::new("reassembly_places", PLACES, ITEMS),
    ],
    constants: &[
        ("SEGMENT_RIGHT", segment::RIGHT as u32),
        ("NO_ROW", NO_ROW),
        ("BEGINS_RUN", BEGINS_RUN),
        ("PROBES", PROBES),
    ],
    known: known::reassemblies,
    ..KernelFile::NONE
};

/// The connection table, behind [`REASSEMBLY`].
pub const CONNECTIONS: KernelFile = KernelFile {
    name: "connections",
    columns: ConnectionColumns::COLUMNS,
    text: include_str!("connections.k"),
    headers: &[headers::HASH],
    kernels: &[
        KernelInfo::new(
            "connections_insert",
            &[
                "flow_head",
                "flow_src",
                "flow_dst",
                "flow_header0",
                "flow_segment",
                "flow_group",
                "shard",
                "flow_time",
            ],
            ITEMS,
        ),
        KernelInfo::new(
            "connections_number",
            &["flow_segment", "flow_group", "shard", "flow_time", "flow_number"],
            ITEMS,
        ),
    ],
    constants: &[
        ("SEGMENT_RIGHT", segment::RIGHT as u32),
        ("NO_ROW", NO_ROW),
        ("NO_NUMBER", NO_NUMBER),
        ("HEAD_SWEEPS", head::SWEEPS),
        ("WAYS", WAYS as u32),
        ("STEP_CELLS", STEP_CELLS as u32),
        ("SWEPT", SWEPT as u32),
        ("IDLE_S", IDLE_S),
        ("OVER_S", OVER_S),
        ("MARK_ENDED", MARK_ENDED),
        ("MARK_RESET", MARK_RESET),
    ],
    known: known_connections::connections,
    ..KernelFile::NONE
};

const DIRECTIONS: &[&str] = &["flow_src", "flow_dst", "flow_header0", "flow_segment"];

const GROUPS: &[&str] = &["flow_src", "flow_dst", "flow_header0", "flow_segment", "flow_group"];

const SEQUENCES: &[&str] = &["flow_header0", "flow_header1", "flow_segment", "flow_group"];

const FOLLOW: &[&str] =
    &["flow_header0", "flow_header1", "flow_segment", "flow_group", "flow_next"];

const PLACES: &[&str] =
    &["flow_header0", "flow_header1", "flow_segment", "flow_group", "flow_place"];
