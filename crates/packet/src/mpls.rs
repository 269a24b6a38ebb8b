//! MPLS label stack entries (RFC 3032 §2.1): four bytes each, the outermost first.
//!
//! ```text
//! │ label, 20 bits │ traffic class, 3 │ bottom of stack, 1 │ TTL, 8 │
//! ```

/// Bytes of an entry.
pub const ENTRY_LEN: usize = 4;

/// Entries that are followed in one packet.
pub const MAX_ENTRIES: usize = 16;

/// One entry, in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LabelStackEntry(pub u32);

impl LabelStackEntry {
    /// An entry of label (20 bits), traffic class (3 bits), whether it is the last one, and TTL.
    pub const fn new(label: u32, traffic_class: u8, bottom: bool, ttl: u8) -> Self {
        let class = (traffic_class as u32 & 7) << 9;
        Self((label & 0xf_ffff) << 12 | class | (bottom as u32) << 8 | ttl as u32)
    }

    /// The entry at the start of `bytes`; `None` below 4 bytes.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().map(|bytes| Self(u32::from_be_bytes(*bytes)))
    }

    /// Label, 20 bits.
    pub const fn label(self) -> u32 {
        self.0 >> 12
    }

    /// Traffic class, 3 bits (RFC 5462).
    pub const fn traffic_class(self) -> u8 {
        (self.0 >> 9) as u8 & 7
    }

    /// The last entry of the stack.
    pub const fn is_bottom(self) -> bool {
        self.0 & 0x100 != 0
    }

    /// Time to live.
    pub const fn ttl(self) -> u8 {
        self.0 as u8
    }
}

/// Where the packet behind a label stack starts, in bytes from the start of `stack`; `None` if no entry at hand is the last one.
pub fn stack_len(stack: &[u8]) -> Option<usize> {
    let (entries, _) = stack.as_chunks::<ENTRY_LEN>();
    let entries = &entries[..entries.len().min(MAX_ENTRIES)];
    let last = entries.iter().position(|entry| entry[2] & 1 != 0)?;
    Some((last + 1) * ENTRY_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_were_set() {
        let entry = LabelStackEntry::new(0xabcde, 5, true, 64);
        assert_eq!(entry.0, 0xabcd_eb40);
        assert_eq!((entry.label(), entry.traffic_class()), (0xabcde, 5));
        assert!(entry.is_bottom() && entry.ttl() == 64);
        assert_eq!(LabelStackEntry::read(&entry.0.to_be_bytes()), Some(entry));
        assert_eq!(LabelStackEntry::read(&[0; 3]), None);
        assert_eq!(stack_len(&[0, 0, 0, 1, 0, 0, 1, 1, 0x45]), Some(8));
        assert_eq!(stack_len(&[0; 8]), None);
        assert_eq!(stack_len(&[0; 4 * (MAX_ENTRIES + 1)]), None);
    }
}
