//! Packets as their senders sent them: `rewrite` sends ICMP errors about those.

use chunk::Packet;
use nat::rewrite::{set_ends, set_segment};
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
        let mut translator = lock(&self.0);
        let Some(sent) = translator.restore(&tuple) else { return false };
        if sent.family == tuple.family {
            let number = ip.get(l4 + 4..).and_then(|tcp| tcp.first_chunk::<4>());
            if let Some(number) = number.filter(|_| translator.may_be_control(&tuple)) {
                let number = u32::from_be_bytes(*number);
                set_segment(ip, l4, translator.restore_number(&tuple, number), None);
            }
            set_ends(ip, l4, &sent);
            return true;
        }
        drop(translator);
        // As much of the packet as there is; its length is that of the whole.
        let d = packet::decode(packet.data(), usize::MAX);
        turn(packet, &d, &sent, 0, false).is_some()
    }
}
