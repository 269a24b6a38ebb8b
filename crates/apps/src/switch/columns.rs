//! The switch's columns.

use chunk::Verdict;

chunk::columns! {
    /// Columns of the switch. `bridge_in` writes the first four, `bridge` the last two.
    pub struct SwitchColumns / SwitchView {
        /// [`flags`]: what the destination is, and whether there is a tag.
        pub flags: u16,
        /// Priority and drop eligibility of the frame, and its VLAN, as in a tag.
        pub tci: u16,
        /// VLAN and source, as [`lookup::bridge::station_key`].
        pub source_key: u64,
        /// VLAN and destination.
        pub destination_key: u64,
        /// [`lookup::bridge::Station`] of the source.
        pub source: u64,
        /// The same of the destination; none for a group.
        pub destination: u64,
    }
}

chunk::columns! {
    /// What `bridge_in` writes where a later stage reads [headers](crate::firewall::HeaderColumns).
    pub(super) struct BridgeInColumns / BridgeInView {
        pub flags: u16,
        pub tci: u16,
        pub source_key: u64,
        pub destination_key: u64,
        pub filter_family: u8,
        pub filter_head0: [u64; 2],
        pub filter_head1: [u64; 2],
        pub filter_head2: [u64; 2],
        pub filter_l3: u8,
        pub record: [u64; 8],
        pub record_is_known: u8,
    }
}

/// Bits of the column `flags`.
pub(super) mod flags {
    /// The destination is a group, the broadcast address among them.
    pub(in super::super) const GROUP: u16 = 1 << 0;
    /// The destination is the broadcast address.
    pub(in super::super) const BROADCAST: u16 = 1 << 1;
    /// The frame has a tag.
    pub(in super::super) const TAGGED: u16 = 1 << 2;
}

/// The VLAN of a `tci`.
#[inline(always)]
pub(super) const fn vlan(tci: u16) -> u16 {
    tci & 0xfff
}

/// Whether a row is still on its way.
#[inline(always)]
pub(super) const fn is_live(verdict: u32) -> bool {
    Verdict(verdict).is_next()
}
