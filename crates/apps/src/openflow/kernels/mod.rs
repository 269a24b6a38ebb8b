//! The kernel of an OpenFlow switch: `flow_tables`, whose CPU form is [`flowtable::walk`].

mod known;

use chunk::Columns;
use flowtable::device::{self, region};
use flowtable::key::WORDS;
use flowtable::walk::{self, flags, op};
use kernels::files::headers;
use kernels::{KernelFile, KernelInfo};

use super::columns::KeyColumns;

/// All of them.
pub const FILES: &[&KernelFile] = &[&FLOWS];

/// The tables of a switch. Its job argument is the first region of the switch's part of the tables.
pub const FLOWS: KernelFile = KernelFile {
    name: "flows",
    columns: KeyColumns::COLUMNS,
    text: include_str!("flows.k"),
    headers: headers::CLASSIFY,
    kernels: &[KernelInfo::new(
        "flow_tables",
        &[
            "verdict",
            "openflow_key0",
            "openflow_key1",
            "openflow_key2",
            "openflow_key3",
            "openflow_key4",
            "openflow_key5",
            "openflow_key6",
            "openflow_path0",
            "openflow_path1",
        ],
        128,
    )],
    constants: &[
        ("FLOWS_KEY_WORDS", WORDS as u32),
        ("FLOWS_STEPS", walk::STEPS as u32),
        ("FLOWS_MISS", walk::MISS),
        ("FLOWS_OPEN", walk::OPEN),
        ("FLOWS_OPS_MAX", walk::OPS_MAX as u32),
        ("FLOWS_PUSH", op::PUSH),
        ("FLOWS_POP", op::POP),
        ("FLOWS_WANTED", flags::WANTED),
        ("FLOWS_LINK", flags::LINK),
        ("FLOWS_TAGGED", flags::TAGGED),
        ("FLOWS_DIRECTORY", region::DIRECTORY as u32),
        ("FLOWS_FLOWS", region::FLOWS as u32),
        ("FLOWS_EXACT", region::EXACT as u32),
        ("FLOWS_CLASSES", region::CLASSES as u32),
        ("FLOWS_TABLES_MAX", device::TABLES_MAX as u32),
        ("FLOWS_MAGIC", device::MAGIC),
        ("FLOWS_PARAMETERS", device::PARAMETERS as u32),
        ("FLOWS_HASHED", device::HASHED as u32),
        ("FLOWS_ENTRIES", device::ENTRIES as u32),
        ("FLOWS_ENTRY", device::ENTRY as u32),
        ("FLOWS_ENTRY_WORDS", device::ENTRY_WORDS as u32),
        ("FLOWS_RECORD", device::RECORD as u32),
        ("FLOWS_RECORD_KEY", device::RECORD_KEY as u32),
        ("FLOWS_RECORD_OPS", device::RECORD_OPS as u32),
        ("FLOWS_IS_THERE", device::IS_THERE),
        ("FLOWS_IS_OPEN", device::IS_OPEN),
        ("FLOWS_NO_TABLE", device::NO_TABLE),
        ("FLOWS_GONE", device::GONE),
    ],
    known: known::flows,
    ..KernelFile::NONE
};
