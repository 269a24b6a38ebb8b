//! What a packet travels in.
//!
//! A received frame lies in a [`Cell`] (or a chain of them), described by a [`Packet`]. The packets
//! of one burst form a [`Chunk`]; beside them lie *columns*, one value a packet ([`columns!`]), in a
//! range of rows ([`Rows`]) of an [`Arena`] that a device can take as it is. A stage answers with a
//! [`Verdict`] for each packet; every drop has a counted [`DropReason`].
//!
//! ```text
//!   Region ──cells──▶ Pool ──▶ Packet ┐
//!                                     ├─ Chunk ─▶ stages ─▶ verdicts ─▶ transmit, host, drop
//!   Arena ──rows────────────▶ Rows ───┘
//! ```
//!
//! Threads: a cell, a packet, a chunk and a range of rows have one owner at a time and may be
//! handed from thread to thread. A [`Pool`] is one thread's; pools share a depot behind a lock that
//! is taken once in some hundred packets.
//!
//! Everything here is allocated once and recycled.

mod arena;
mod attached;
mod cell;
mod columns;
mod frame;
pub mod hash;
mod pages;
pub mod reasons;
mod verdict;

pub use arena::{Arena, JobHeader, Layout, LayoutError, Rows};
pub use attached::Attached;
pub use cell::{CELL_BYTES, Cell, Depot, HEADROOM_BYTES, HugePages, Pool, Region};
#[doc(hidden)]
pub use columns::__paste;
pub use columns::{
    ColumnDesc, ColumnId, ColumnSet, Columns, Declaration, Element, dialect, dialect_of,
};
pub use frame::{
    CELL_FRAME_BYTES, FRAME_BYTES_MAX, FRAME_CELLS_MAX, Offload, PORT_NONE, Packet, Segments,
};
pub use pages::prefer_huge_pages;
pub use reasons::{DropReason, Reason, ReasonBlock, ReasonClash};
pub use verdict::{Verdict, VerdictKind};

/// The most packets in a chunk, after PacketShader §5.3 a few hundred: large enough to amortise what
/// is done once a chunk, small enough to stay in the first-level caches with its columns.
pub const CHUNK_PACKETS_MAX: usize = 256;

/// A packet made by a stage: an ICMP error, a fragment, a copy to flood or mirror.
#[derive(Debug)]
pub struct Emitted {
    /// Row of the packet that caused it; it retires right after that one.
    pub cause: u16,
    /// What becomes of it; [`Verdict::again`] lets it enter the pipeline, [`VerdictKind::Next`] is not allowed here.
    pub verdict: Verdict,
    /// The packet, from the worker's own pool.
    pub packet: Packet,
}

/// The packets of one burst, in order of arrival, with their columns.
#[derive(Debug)]
pub struct Chunk {
    /// At most [`CHUNK_PACKETS_MAX`]; row `i` of the columns belongs to packet `i`.
    pub packets: Vec<Packet>,
    /// The columns' rows.
    pub rows: Rows,
    /// Packets that stages made in `post_shade`.
    pub emitted: Vec<Emitted>,
    /// Bytes that stages attached to packets, for kernels and later stages.
    pub attached: Attached,
    /// Time of the burst in nanoseconds since 1970: the clock's when live, the capture's offline.
    pub time_ns: u64,
    /// Number of the chunk at its worker, counted from 0 at receive; chunks retire in this order.
    pub seq: u64,
    /// The worker that received it and retires it.
    pub worker: u16,
}

impl Chunk {
    /// An empty chunk over `rows`, with room for [`CHUNK_PACKETS_MAX`] packets.
    pub fn new(rows: Rows, worker: u16) -> Self {
        Self {
            packets: Vec::with_capacity(CHUNK_PACKETS_MAX),
            rows,
            emitted: Vec::with_capacity(CHUNK_PACKETS_MAX),
            attached: Attached::default(),
            time_ns: 0,
            seq: 0,
            worker,
        }
    }

    /// Number of packets.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether the chunk holds no packet.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Takes packet `row` out, leaving an empty one behind. The caller sets the row's verdict to
    /// [`Verdict::TAKEN`].
    pub fn take(&mut self, row: usize) -> Packet {
        std::mem::replace(&mut self.packets[row], Packet::empty())
    }

    /// Adds a packet that retires right after packet `cause`.
    pub fn emit(&mut self, cause: usize, verdict: Verdict, packet: Packet) {
        debug_assert!(verdict.kind() != VerdictKind::Next);
        self.emitted.push(Emitted { cause: cause as u16, verdict, packet });
    }
}
