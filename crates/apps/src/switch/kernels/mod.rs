//! The switch's kernel: `bridge`, whose CPU form is in the [stage](super::forward) of that name. It gets the first region of
//! the switch's part of the tables as its job argument.

mod known;

use chunk::Columns;
use kernels::files::headers;
use kernels::{KernelFile, KernelInfo};

use super::columns;

/// All of them.
pub const FILES: &[&KernelFile] = &[&BRIDGE];

/// The switch's stage `bridge`.
pub const BRIDGE: KernelFile = KernelFile {
    name: "bridge",
    columns: BridgeColumns::COLUMNS,
    text: include_str!("bridge.k"),
    headers: &[headers::HASH, headers::CUCKOO],
    kernels: &[KernelInfo::new(
        "bridge",
        &["verdict", "flags", "source_key", "destination_key", "source", "destination"],
        256,
    )],
    constants: &[("REGION_STATIONS", STATIONS as u32), ("BRIDGE_GROUP", flags::GROUP as u32)],
    known: known::bridges,
    ..KernelFile::NONE
};

/// The region of the stations in the switch's part: the blob of `lookup::cuckoo`.
pub const STATIONS: usize = 0;

/// Bits of the column `flags` that the kernel looks at.
pub mod flags {
    /// The destination is a group.
    pub const GROUP: u16 = super::columns::flags::GROUP;
}

chunk::columns! {
    /// Columns of `bridge`.
    pub struct BridgeColumns / BridgeView {
        /// Bits of [`flags`].
        pub flags: u16,
        /// VLAN and source address.
        pub source_key: u64,
        /// VLAN and destination address.
        pub destination_key: u64,
        /// What the station table says of the source; all ones for a miss.
        pub source: u64,
        /// The same of the destination.
        pub destination: u64,
    }
}
