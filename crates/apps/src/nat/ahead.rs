//! Over captures: an answer finds the session that a packet before it began.
//!
//! Live, an answer comes after its question has left, and the session is there. In a capture both may be in one chunk, and
//! a session begins when its packet has passed the route. So a packet that may be of a session which an earlier packet of
//! the burst begins is the first of a new burst, and a burst waits until those before it have begun their sessions. The
//! result is that of a program that takes one packet after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chunk::Packet;
use controlplane::Ahead;
use nat::Rules;
use nat::rules::Owner;
use nat::tuple::{Tuple, is_error};
use packet::Decoded;

/// Bursts that stages have seen and not finished.
pub(super) type Open = Arc<AtomicU64>;

/// How often a burst asks for its turn at most: a chunk whose stage panicked is never finished.
const ASKS_MAX: u32 = 1 << 22;

/// What of a burst is known.
#[derive(Default)]
pub(super) struct Burst {
    /// Source and destination of its packets.
    seen: Vec<[[u64; 2]; 2]>,
    open: Open,
    asks: u32,
}

impl Burst {
    /// Where stages say how many bursts are open.
    pub(super) fn open(&self) -> Open {
        self.open.clone()
    }

    /// Whether a packet must begin a burst, or wait for its turn.
    pub(super) fn look(&mut self, packet: &Packet, is_first: bool, rules: &Rules) -> Ahead {
        if is_first {
            self.seen.clear();
            self.asks += 1;
            if self.open.load(Ordering::Acquire) > 0 && self.asks < ASKS_MAX {
                return Ahead { begins: true, changed: false };
            }
            self.open.store(0, Ordering::Release);
            self.asks = 0;
        }
        let d = crate::received::decode(packet);
        if !d.is_ip() {
            return Ahead::default();
        }
        let l4 = packet.data().get(usize::from(d.l4_offset)..).unwrap_or_default();
        let turns_back = |[src, dst]: &[[u64; 2]; 2]| *src == d.dst || *dst == d.src;
        let is_owned = |tuple: &Tuple| {
            let owner = rules.owner(tuple.protocol, tuple.dst.0[1] as u32, tuple.dst.1);
            tuple.family == 4 && owner != Owner::Nobody
        };
        let same_end = |[_, dst]: &[[u64; 2]; 2]| *dst == d.dst;
        let is_answer = self.seen.iter().any(turns_back)
            || Tuple::of(&d, l4).as_ref().is_some_and(is_owned) && self.seen.iter().any(same_end)
            || l4.first().is_some_and(|kind| is_error(d.protocol.0, *kind))
            || d.has(Decoded::FRAGMENT);
        if is_answer && !is_first {
            return Ahead { begins: true, changed: false };
        }
        self.seen.push([d.src, d.dst]);
        Ahead::default()
    }
}
