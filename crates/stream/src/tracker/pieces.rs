//! Which flow a later fragment belongs to, without putting the datagram together.
//!
//! A firewall passes fragments on one by one. The first fragment of a datagram has the ports and is a packet of its flow; the
//! others have what it was found to be. One that comes before the first fragment is of no flow: its sender sends in order,
//! and who does not wants to be let through unseen.
//!
//! ```text
//!  (addresses, identification, protocol) ─hash─▶ slot of the array: flow, state, when     the newest takes the place
//! ```

use super::PacketState;
use crate::defrag::{self, DatagramKey};
use crate::table::Handle;

/// Datagrams that are remembered at most.
const PIECES: usize = 1 << 12;

/// What the first fragment of a datagram was found to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) key: DatagramKey,
    pub(super) time_ns: u64,
    pub(super) flow: Handle,
    /// Number of the flow: another one may begin in its place.
    pub(super) id: u64,
    pub(super) state: PacketState,
    pub(super) is_reply: bool,
}

/// The datagrams of one worker.
pub(super) struct Pieces {
    places: Box<[Option<Piece>]>,
    seed: u64,
    /// For how long, in nanoseconds, by family: as long as a receiver waits for fragments.
    timeouts_ns: [u64; 2],
}

impl Pieces {
    /// Memory is taken when the first fragment comes; `seed` as that of a table.
    pub(super) fn new(seed: u64, config: &defrag::Config) -> Self {
        let timeouts_ns = [config.timeout_v4_ns, config.timeout_v6_ns];
        Self { places: Box::default(), seed, timeouts_ns }
    }

    fn place(&self, key: &DatagramKey) -> usize {
        let family = u64::from(key.protocol) << 8 | u64::from(key.family);
        let words = [u64::from(key.identification) << 32 | u64::from(key.scope), family];
        let mut hash = self.seed;
        for pair in [key.src, key.dst, words] {
            hash = chunk::hash::key128([pair[0] ^ hash, pair[1]], self.seed);
        }
        hash as usize % PIECES
    }

    /// Remembers a datagram.
    pub(super) fn put(&mut self, piece: Piece) {
        if self.places.is_empty() {
            self.places = vec![None; PIECES].into();
        }
        let place = self.place(&piece.key);
        self.places[place] = Some(piece);
    }

    /// The datagram of a later fragment.
    pub(super) fn get(&self, key: &DatagramKey, time_ns: u64) -> Option<Piece> {
        let piece = (*self.places.get(self.place(key))?)?;
        let timeout_ns = self.timeouts_ns[usize::from(key.family == 6)];
        let is_late = time_ns.saturating_sub(piece.time_ns) > timeout_ns;
        (piece.key == *key && !is_late).then_some(piece)
    }
}
