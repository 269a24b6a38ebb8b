//! Encryption of ESP as a step of its own, with a form for devices (PacketShader §6.2.4): where `[ipsec] device` asks for it.
//!
//! ```text
//!              pre_shade, in order                    shade                       post_shade, in order
//!  esp_out     policy, room, headers, number, vector  encrypts, makes the value   checksum of UDP over IPv6
//!  esp_in      association, whole number, window      compares, decrypts          window again, what is inside, `decode` again
//!                                       │              ▲
//!                                       └─ columns ────┘ packets, and keys by association: a part of the tables
//! ```
//!
//! The shade is a function of the packet's bytes, the columns and the keys of the chunk's version. If a job fails it is done again on
//! the worker, from the same bytes with the same number: a number stays that of one packet.
//!
//! - [`keys`] are the keys of associations as a part of the tables, in records that a device reads.
//! - [`shade`] is the step over a chunk; [`kernels`] the same on a device.
//!
//! # Deliberately absent
//! - ChaCha20-Poly1305 and HMAC with SHA-384 and SHA-512 on a device; frames of several cells, datagrams that came in fragments,
//!   ESP within ESP, associations beyond [`keys::PLACES_MAX`], and those that the version of a chunk does not have yet. The
//!   worker seals and opens them in the steps on both sides.

pub mod kernels;
pub mod keys;
pub mod shade;

use chunk::{ColumnId, ColumnSet};

chunk::columns! {
    /// Columns between the steps of a stage. Those of `esp_in` and `esp_out` are the same: each fills them for itself.
    pub struct EspColumns / EspColumnsView {
        /// Where the frame starts in the payload of a job, bytes.
        pub esp_frame_at: u32,
        /// Bytes of it.
        pub esp_frame_len: u32,
        /// The place of the association among the keys, from 1; 0: the packet passes as it is.
        pub esp_key: u32,
        /// Where the SPI is, in bytes from the start of the frame.
        pub esp_at: u16,
        /// Where the IP header in front is, likewise.
        pub esp_l3: u16,
        /// Bytes from the SPI to the end of the check value.
        pub esp_len: u32,
        /// The upper half of the sequence number.
        pub esp_high: u32,
        /// 1: the packet is sealed, or is genuine and open.
        pub esp_done: u32,
    }
}

/// What the shade reads.
pub const READS: &[ColumnId] = &[
    EspColumns::ESP_KEY,
    EspColumns::ESP_AT,
    EspColumns::ESP_L3,
    EspColumns::ESP_LEN,
    EspColumns::ESP_HIGH,
];

/// What it writes.
pub const WRITES: &[ColumnId] = &[EspColumns::ESP_DONE];

/// All of them.
pub fn all() -> ColumnSet {
    ColumnSet::of(READS).union(&ColumnSet::of(WRITES))
}
