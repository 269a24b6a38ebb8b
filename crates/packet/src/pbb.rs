//! Provider backbone bridging (IEEE 802.1ah): an Ethernet frame in another one.
//!
//! ```text
//! │ backbone destination, source │ 88a8, B-TAG (may be absent) │ 88e7 │ I-TAG, 4 bytes │ customer frame │
//! I-TAG: │ priority, 3 bits │ DEI, 1 │ UCA, 1 │ reserved, 3 │ service identifier (I-SID), 24 │
//! ```

/// Bytes of an I-TAG behind its EtherType.
pub const I_TAG_LEN: usize = 4;

/// The I-TAG at the start of `bytes`, in host order; `None` below 4 bytes.
pub fn i_tag(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// The service identifier of an I-TAG, 24 bits.
pub const fn service_id(i_tag: u32) -> u32 {
    i_tag & 0xff_ffff
}
