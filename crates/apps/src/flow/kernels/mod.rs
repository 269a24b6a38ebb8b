//! The kernels of flow tracking: `flow_headers` and `flow_segments`, whose CPU form is in [`decode`](super::decode).

mod known;

use chunk::Columns;
use kernels::files::headers;
use kernels::{KernelFile, KernelInfo};

use super::decode::{HeadColumns, head, segment};
use crate::router::kernels::DECODE_HEADER;

/// All of them.
pub const FILES: &[&KernelFile] = &[&FLOW];

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
