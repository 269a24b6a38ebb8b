//! Reasons for which a frame is dropped by decoding, and addresses that no packet may have.

use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// The first thing found wrong with a frame: one drop reason each.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Default,
    TryFromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
)]
#[repr(u8)]
pub enum Anomaly {
    /// Nothing is wrong.
    #[default]
    None,
    /// The frame ends before the header does, or before the length that the header states.
    Truncated,
    /// The frame ends inside a VLAN tag.
    VlanTruncated,
    /// More than two VLAN tags.
    TooManyVlanTags,
    /// Neither IP nor ARP.
    NonIp,
    /// Not Ethernet and IPv4 addresses, or lengths that do not fit them (RFC 826).
    BadArp,
    /// The version nibble is not the one the EtherType promises.
    BadVersion,
    /// IHL below 5.
    BadHeaderLength,
    /// Total length below the header's length.
    BadTotalLength,
    /// The header checksum is wrong.
    BadChecksum,
    /// A source that no packet on a wire may have (RFC 1812 §5.3.7, RFC 4291 §2.5.3, §2.7).
    MartianSource,
    /// A destination that no packet on a wire may have.
    MartianDestination,
    /// A fragment that carries nothing.
    ZeroLengthFragment,
    /// Offset and length of a fragment exceed 65,535 bytes ("ping of death").
    OverlongFragment,
    /// An extension header runs over the end of the packet.
    BadExtensionHeader,
    /// An extension header more often than it may occur, or hop-by-hop options not first.
    ExtensionHeaderLoop,
    /// More than [`MAX_EXTENSION_HEADERS`](crate::decode::MAX_EXTENSION_HEADERS), or a chain longer than the bytes at hand.
    TooManyExtensionHeaders,
}

impl Anomaly {
    /// All of them, in the order of their numbers.
    pub const ALL: [Anomaly; 17] = [
        Anomaly::None,
        Anomaly::Truncated,
        Anomaly::VlanTruncated,
        Anomaly::TooManyVlanTags,
        Anomaly::NonIp,
        Anomaly::BadArp,
        Anomaly::BadVersion,
        Anomaly::BadHeaderLength,
        Anomaly::BadTotalLength,
        Anomaly::BadChecksum,
        Anomaly::MartianSource,
        Anomaly::MartianDestination,
        Anomaly::ZeroLengthFragment,
        Anomaly::OverlongFragment,
        Anomaly::BadExtensionHeader,
        Anomaly::ExtensionHeaderLoop,
        Anomaly::TooManyExtensionHeaders,
    ];

    /// Nothing is wrong with the lengths, so that the upper layer has been looked at as well: a
    /// capture of dropped packets can be filtered by port.
    pub const fn leaves_lengths_right(self) -> bool {
        matches!(
            self,
            Anomaly::None
                | Anomaly::BadChecksum
                | Anomaly::MartianSource
                | Anomaly::MartianDestination
        )
    }

    /// Name for counters and captures, in snake case.
    pub const fn name(self) -> &'static str {
        match self {
            Anomaly::None => "none",
            Anomaly::Truncated => "truncated",
            Anomaly::VlanTruncated => "vlan_truncated",
            Anomaly::TooManyVlanTags => "too_many_vlan_tags",
            Anomaly::NonIp => "non_ip",
            Anomaly::BadArp => "bad_arp",
            Anomaly::BadVersion => "bad_version",
            Anomaly::BadHeaderLength => "bad_header_length",
            Anomaly::BadTotalLength => "bad_total_length",
            Anomaly::BadChecksum => "bad_checksum",
            Anomaly::MartianSource => "martian_source",
            Anomaly::MartianDestination => "martian_destination",
            Anomaly::ZeroLengthFragment => "zero_length_fragment",
            Anomaly::OverlongFragment => "overlong_fragment",
            Anomaly::BadExtensionHeader => "bad_extension_header",
            Anomaly::ExtensionHeaderLoop => "extension_header_loop",
            Anomaly::TooManyExtensionHeaders => "too_many_extension_headers",
        }
    }
}

/// RFC 1812 §5.3.7: 0/8, 127/8, 224/4, 240/4. 0.0.0.0 is let through where the destination is a
/// group or 255.255.255.255, as in DHCP and IGMP: such a packet is never forwarded.
pub const fn is_martian_source_v4(src: u32, dst: u32) -> bool {
    let top = src >> 24;
    if src == 0 {
        return !(dst >> 28 == 0xe || dst == u32::MAX);
    }
    top == 0 || top == 127 || top >= 224
}

/// RFC 1812 §5.3.7: 0/8, 127/8, and 240/4 but for 255.255.255.255.
pub const fn is_martian_destination_v4(dst: u32) -> bool {
    let top = dst >> 24;
    top == 0 || top == 127 || (top >= 240 && dst != u32::MAX)
}

/// `[high, low]`: multicast, loopback; unspecified unless the destination is multicast, as in
/// duplicate address detection (RFC 4291 §2.5.2, §2.5.3, §2.7).
pub const fn is_martian_source_v6(src: [u64; 2], dst: [u64; 2]) -> bool {
    let unspecified = src[0] == 0 && src[1] == 0;
    src[0] >> 56 == 0xff || (src[0] == 0 && src[1] == 1) || (unspecified && dst[0] >> 56 != 0xff)
}

/// `[high, low]`: unspecified, loopback, and multicast of scope 0 or 1, which never leaves a node
/// (RFC 4291 §2.7).
pub const fn is_martian_destination_v6(dst: [u64; 2]) -> bool {
    let scope = (dst[0] >> 48) & 0xf;
    (dst[0] == 0 && dst[1] <= 1) || (dst[0] >> 56 == 0xff && scope <= 1)
}
