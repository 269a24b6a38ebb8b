//! Packets as their senders sent them: `rewrite` sends ICMP errors about those.

use chunk::Packet;
use nat::rewrite::set_ends;
use nat::tuple::Tuple;

use super::family::turn;
use super::{Shared, lock};
use crate::router::Origin;

/// By the sessions of a worker.
pub(super) struct Restored(pub(super) Shared);

impl std::fmt::Debug for Restored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Restored")
    }
}

impl Origin for Restored {
    fn restore(&self, packet: &mut Packet, l3: usize) -> bool {
        let ip = packet.data_mut().get_mut(l3..).unwrap_or_default();
        let Some((tuple, l4)) = Tuple::quoted(ip) else { return false };
        let Some(sent) = lock(&self.0).restore(&tuple) else { return false };
        if sent.family == tuple.family {
            set_ends(ip, l4, &sent);
            return true;
        }
        // As much of the packet as there is; its length is that of the whole.
        let d = packet::decode(packet.data(), usize::MAX);
        turn(packet, &d, &sent, 0, false).is_some()
    }
}
