//! Path MTUs, by ICMP errors about what was sealed (RFC 4301 §8.2).
//!
//! `esp_in` marks errors that may be about ESP packets. What policies, firewall or reverse-path check drop is not here any more, or
//! settled: so they decide whose errors are believed (RFC 4301 §6.1.1). An error goes on as any packet: Linux or a host may have sent
//! what it is about.

use chunk::{Packet, Verdict, VerdictKind};
use ipsec::path::{self, Learned};
use ipsec::{Parameters, View};
use lookup::fib::Fib;

use super::super::MARK_TOO_BIG;
use super::super::incoming::is_own;
use super::EspOut;
use crate::received;

impl EspOut {
    /// Lowers the path MTU of the association that sent what an error is about, if the error is plausible.
    #[cold]
    pub(super) fn learn(
        &self,
        view: &View,
        (verdict, packet): (Verdict, &mut Packet),
        (fib, now_ns): (&Fib, u64),
    ) {
        packet.mark &= !MARK_TOO_BIG;
        if verdict.kind() == VerdictKind::Drop {
            return;
        }
        let d = received::decode(packet);
        let Some(error) = path::too_big(packet.data(), &d) else { return };
        let learned = match view.sender(error.family, error.destination, error.spi) {
            Some(own) if d.dst == error.source => Some((own, error.learn(own, now_ns))),
            // One for somebody else may be right.
            None if !is_own(fib, &d) => return,
            _ => None,
        };
        match learned {
            Some((own, Learned::Lowered(mtu))) => {
                self.counters.path_mtu.add(1);
                let Parameters { spi, destination, .. } = *own.parameters();
                self.reader.tell_path(spi, destination, mtu);
            }
            Some((_, Learned::Known)) => self.counters.path_mtu.add(1),
            Some((_, Learned::Refused)) | None => self.counters.path_mtu_ignored.add(1),
        }
    }
}
