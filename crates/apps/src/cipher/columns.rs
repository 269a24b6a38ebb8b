//! Columns of the encryption stage: where the payload of a packet is, and what became of it.

use chunk::{ColumnId, ColumnSet};

chunk::columns! {
    /// Columns of the stage. Those of several such stages are the same: each fills them for itself.
    pub struct CipherColumns / CipherView {
        /// Where the frame starts in the payload of a job, bytes.
        pub cipher_frame_at: u32,
        /// Bytes of it.
        pub cipher_frame_len: u32,
        /// Where the payload begins, in bytes from the start of the frame; 0: the packet passes as it is.
        pub cipher_at: u16,
        /// Where the header of TCP or UDP begins.
        pub cipher_l4: u16,
        /// Where the IP header begins.
        pub cipher_l3: u8,
        /// Number of the protocol.
        pub cipher_protocol: u8,
        /// Bytes of the payload as it came.
        pub cipher_len: u32,
        /// Bytes of the payload as it leaves.
        pub cipher_done: u32,
        /// One's complement sums of the payload: as it came, and above 16 bits as it leaves.
        pub cipher_sums: u32,
    }
}

/// What the shade reads.
pub const READS: &[ColumnId] = &[
    CipherColumns::CIPHER_AT,
    CipherColumns::CIPHER_L4,
    CipherColumns::CIPHER_L3,
    CipherColumns::CIPHER_PROTOCOL,
    CipherColumns::CIPHER_LEN,
];

/// What it writes.
pub const WRITES: &[ColumnId] = &[CipherColumns::CIPHER_DONE, CipherColumns::CIPHER_SUMS];

/// All of them.
pub fn all() -> ColumnSet {
    ColumnSet::of(READS).union(&ColumnSet::of(WRITES))
}
