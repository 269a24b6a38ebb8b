//! ICMP errors with extensions (RFC 4884): what follows the quoted packet, such as labels of MPLS (RFC 4950) or interfaces (RFC 5837).
//!
//! ```text
//!  │ type code checksum │ … length … │ quoted packet, padded, as long as `length` says │ extensions │
//! ```
//!
//! ICMP counts `length` in words of 4 bytes (byte 5), ICMPv6 in words of 8 (byte 4). A translator changes it with the quoted
//! packet, and copies extensions as they are (RFC 7915 §4.2 and §5.2).

/// Shortest quoted packet before extensions, bytes, by padding (RFC 4884 §4).
const QUOTED_MIN: usize = 128;

/// Bytes of the header of extensions (RFC 4884 §7).
const HEADER_LEN: usize = 4;

/// Bytes that `length` counts by.
const fn unit(family: u8) -> usize {
    if family == 4 { 4 } else { 8 }
}

/// Whether errors of a type say how long the quoted packet is.
const fn has_length(family: u8, kind: u8) -> bool {
    match family {
        4 => matches!(kind, 3 | 11 | 12),
        _ => matches!(kind, 1 | 3),
    }
}

/// What an error has behind its 8 bytes of header.
pub(super) struct Extended<'a> {
    /// The quoted packet, perhaps with padding.
    pub(super) quoted: &'a [u8],
    /// Extensions, or nothing.
    pub(super) extensions: &'a [u8],
}

impl<'a> Extended<'a> {
    /// Of an error of `family`. All is the quoted packet if `length` is none that an error with extensions has: 0, less than 128
    /// bytes, or more than there is.
    pub(super) fn of(family: u8, icmp: &'a [u8]) -> Option<Extended<'a>> {
        let (header, rest) = icmp.split_first_chunk::<8>()?;
        let words = if family == 4 { header[5] } else { header[4] };
        let len = usize::from(words) * unit(family);
        let is_extended = has_length(family, header[0]) && len >= QUOTED_MIN;
        let (quoted, extensions) =
            rest.split_at_checked(len).filter(|_| is_extended).unwrap_or((rest, &[]));
        Some(Extended { quoted, extensions })
    }

    /// Room for it in an error of `family` of the type `kind`, in `all` bytes behind the header. Extensions that the type does not have
    /// are left out, and those that do not fit behind 128 bytes of the packet.
    pub(super) fn room(&self, family: u8, kind: u8, all: usize) -> Room<'a> {
        let len = self.extensions.len();
        let is_there = len >= HEADER_LEN && has_length(family, kind) && len + QUOTED_MIN <= all;
        if !is_there {
            return Room { quoted_max: all, extensions: &[], unit: unit(family), family };
        }
        let unit = unit(family);
        let quoted_max = ((all - len) / unit * unit).min(usize::from(u8::MAX) * unit);
        Room { quoted_max, extensions: self.extensions, unit, family }
    }
}

/// Where the parts of an error go.
pub(super) struct Room<'a> {
    /// Most bytes of the quoted packet.
    pub(super) quoted_max: usize,
    pub(super) extensions: &'a [u8],
    unit: usize,
    family: u8,
}

impl Room<'_> {
    /// Bytes that a quoted packet of `len` bytes takes, with padding.
    pub(super) fn padded(&self, len: usize) -> usize {
        match self.extensions {
            [] => len,
            _ => len.next_multiple_of(self.unit).max(QUOTED_MIN),
        }
    }

    /// The 4 bytes behind the checksum, with the length of the quoted packet.
    pub(super) fn parameter(&self, parameter: u32, padded: usize) -> u32 {
        let words = (padded / self.unit) as u32;
        match (self.extensions, self.family) {
            ([], _) => parameter,
            (_, 4) => parameter & 0xff00_ffff | words << 16,
            _ => parameter & 0x00ff_ffff | words << 24,
        }
    }
}
