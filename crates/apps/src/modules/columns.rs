//! Columns of the stage `modules`: what its kernels need of a packet, and what they say of it.

use chunk::{ColumnId, ColumnSet};

chunk::columns! {
    /// Columns of modules in the kernel dialect.
    pub struct ModuleColumns / ModuleView {
        /// Byte offset of the frame in the payload of a job.
        pub module_at: u32,
        /// Its length in bytes.
        pub module_len: u32,
        /// What is known of the packet before it is decoded, which the device does: `STREAM`, `REPLY`, `MOVED`,
        /// `FORGIVEN` and `JOINED` of [`layers`].
        pub module_layers: u32,
        /// The number of the port, and how many bytes of the frame are in its first cell (16 bits each).
        pub module_info: u32,
        /// When it came, nanoseconds since 1970; only if a module looks at the time.
        pub module_time: u64,
        /// Which modules see the packet, a bit each.
        pub module_sees: u32,
        /// The place of its flow; `u32::MAX` for none.
        pub module_slot: u32,
        /// How many flows had this place, this one included.
        pub module_generation: u32,
        /// Where in the frame new bytes of the stream are, and how many: 16 bits each. For packets without a list.
        pub module_piece: u32,
        /// Their place in the stream.
        pub module_offset: u64,
        /// How many pieces of the stream the list has that is attached to the packet ([`pieces`](super::pieces)).
        pub module_pieces: u32,
        /// The bytes of its TCP segment, as [`Bytes`](super::held::Bytes); not for kernels.
        pub module_segment: u64,
        /// Those among them and among bytes that waited which are new to the stream; not for kernels.
        pub module_fresh: u64,
        /// The first module that decided about some of its bytes before, from 1, and its verdict; not for kernels.
        pub module_held: u32,
        /// The same.
        pub module_held_verdict: u32,
        /// The number of its flow, for stages behind a device; 0 for none.
        pub module_flow: u64,
        /// Modules of earlier stages that have it ignored by later ones, a bit each.
        pub module_over: u32,
        /// Which modules have processed it, a bit each.
        pub module_seen: u32,
        /// Which of them tried to write outside of the packet, or into a full hash table.
        pub module_error: u32,
        /// The module that decided about it, from 1; 0 for none. [`BY_STREAM`] is set if its function of streams did.
        pub module_by: u32,
        /// Which modules had it ignored by later ones, a bit each.
        pub module_ignored: u32,
        /// The record of its flow behind all modules.
        pub module_record0: [u64; 2],
        /// The same.
        pub module_record1: [u64; 2],
        /// The same.
        pub module_record2: [u64; 2],
        /// The same.
        pub module_record3: [u64; 2],
    }
}

/// Words of a flow's record, for all modules together.
pub const RECORD_WORDS: usize = 16;

/// Set in `module_by`: bytes of a stream were decided about.
pub const BY_STREAM: u32 = 256;

/// Bits of `module_layers`, and of what the device decodes.
pub mod layers {
    /// A frame.
    pub const ETH: u32 = 1;
    /// An IP packet whose header is right.
    pub const IP: u32 = 2;
    /// UDP with ports, no fragment.
    pub const UDP: u32 = 4;
    /// TCP with ports, no fragment.
    pub const TCP: u32 = 8;
    /// It brings bytes of a stream.
    pub const STREAM: u32 = 16;
    /// IPv6.
    pub const IPV6: u32 = 32;
    /// From the end that answers.
    pub const REPLY: u32 = 64;
    /// A module has moved the frame's start or end: pieces are no more where they were in it.
    pub const MOVED: u32 = 128;
    /// Its port ignores wrong checksums.
    pub const FORGIVEN: u32 = 256;
    /// What is attached to it is the UDP datagram that it completes (`pieces::attach_joined`), not pieces of a stream.
    pub const JOINED: u32 = 512;
}

/// What kernels read; the time only where a module looks at it.
pub fn reads(uses_time: bool) -> ColumnSet {
    let time = ColumnSet::of(&[ModuleColumns::MODULE_TIME]);
    let always = ColumnSet::of(&[
        ColumnId::CONTEXT,
        ModuleColumns::MODULE_LAYERS,
        ModuleColumns::MODULE_INFO,
        ModuleColumns::MODULE_SEES,
        ModuleColumns::MODULE_SLOT,
        ModuleColumns::MODULE_GENERATION,
        ModuleColumns::MODULE_PIECE,
        ModuleColumns::MODULE_OFFSET,
        ModuleColumns::MODULE_PIECES,
    ]);
    if uses_time { always.union(&time) } else { always }
}

/// What they write; records only where a module keeps state.
pub fn writes(has_state: bool) -> ColumnSet {
    let results = ColumnSet::of(&[
        ColumnId::CONTEXT,
        ModuleColumns::MODULE_SEEN,
        ModuleColumns::MODULE_ERROR,
        ModuleColumns::MODULE_BY,
        ModuleColumns::MODULE_IGNORED,
    ]);
    let records = ColumnSet::of(&[
        ModuleColumns::MODULE_RECORD0,
        ModuleColumns::MODULE_RECORD1,
        ModuleColumns::MODULE_RECORD2,
        ModuleColumns::MODULE_RECORD3,
    ]);
    if has_state { results.union(&records) } else { results }
}
