//! The forwarder's kernel: `name_lookup`, whose CPU form is in the stage of that name. It gets the first region of the
//! forwarder's part of the tables as its job argument.

mod known;

use chunk::Columns;
use kernels::files::headers;
use kernels::{KernelFile, KernelInfo};

/// All of them.
pub const FILES: &[&KernelFile] = &[&NAME_LOOKUP];

/// The named-data forwarder's stage `name_lookup`.
pub const NAME_LOOKUP: KernelFile = KernelFile {
    name: "name_lookup",
    columns: NameLookupColumns::COLUMNS,
    text: include_str!("name_lookup.k"),
    headers: &[headers::HASH, headers::NAMES],
    // With fewer items a group NVIDIA's compiler spills registers, to have one more group at a time.
    kernels: &[KernelInfo::new(
        "name_lookup",
        &["verdict", "payload_at", "payload_len", "name_at", "name_len", "next_hop"],
        256,
    )],
    constants: &[("REGION_NAMES", NAMES as u32)],
    known: known::name_lookups,
    ..KernelFile::NONE
};

/// The region of the prefixes in the forwarder's part: the blob of `lookup::names`.
pub const NAMES: usize = 0;

chunk::columns! {
    /// Columns of `name_lookup`.
    pub struct NameLookupColumns / NameLookupView {
        /// Where the frame starts in the payload, bytes.
        pub payload_at: u32,
        /// Bytes of it.
        pub payload_len: u32,
        /// Where the name's components begin, bytes from the frame's start.
        pub name_at: u16,
        /// Bytes of them; 0: nothing is looked up.
        pub name_len: u16,
        /// Next hop, 0 for no route.
        pub next_hop: u32,
    }
}
