//! What the policies say of packets that came in, and of what was inside (RFC 4301 §5.2).

use chunk::{DropReason, Packet, Verdict};
use ipsec::{Action, Room, Tuple, View, inbound};
use lookup::fib::Fib;
use packet::{Decoded, IpProtocol};

use super::super::reasons;
use super::EspIn;
use crate::received;

/// A row whose packet the policies are asked about.
pub(super) struct Asked {
    row: u16,
    /// A message of a key agreement for the router.
    is_ike: bool,
}

/// Lookups of a turn.
pub(super) struct Questions {
    pub(super) asked: Vec<Asked>,
    /// Their headers, in the same order.
    pub(super) room: Room,
}

impl Questions {
    /// Asks about a packet in the next lookup.
    #[inline]
    pub(super) fn put(&mut self, row: usize, d: &Decoded, fib: &Fib) {
        if let Some(tuple) = Tuple::of(d) {
            let is_ike = is_ike(d) && is_own(fib, d);
            self.asked.push(Asked { row: row as u16, is_ike });
            self.room.put(&tuple);
        }
    }
}

impl EspIn {
    /// What becomes of a packet that is no ESP, or of one that was opened.
    pub(super) fn judge(
        &self,
        view: &View,
        row: usize,
        (packet, d): (&Packet, &Decoded),
        fib: &Fib,
    ) -> Option<DropReason> {
        let tuple = Tuple::of(d)?;
        let reqid = self.reqids[row];
        if self.if_ids[row] != 0 {
            let enters = |tuple: &Tuple| view.enters(self.if_ids[row], reqid, tuple);
            let fits = enters(&tuple)
                || Tuple::answering(packet.data(), d).is_some_and(|answer| enters(&answer));
            return (!fits).then_some(reasons::ESP_POLICY);
        }
        let found = view.incoming.find(&tuple);
        if reqid == 0 && matches!(found, None | Some(Action::Bypass)) {
            self.counters.passed.add(1);
        }
        let judged = self.judged(found.as_ref(), row, is_ike(d) && is_own(fib, d));
        judged.filter(|_| !self.is_by_answer(view, row, (packet, d)))
    }

    /// Whether a packet is an ICMP error that came by the association of packets in answer to the one that it is about, which is
    /// where the other end has put it, if no policy is for the error itself (RFC 4301 §6.2).
    #[cold]
    fn is_by_answer(&self, view: &View, row: usize, (packet, d): (&Packet, &Decoded)) -> bool {
        let reqid = self.reqids[row];
        let answer = Tuple::answering(packet.data(), d).filter(|_| reqid != 0);
        let found = answer.and_then(|answer| view.incoming.find(&answer));
        matches!(found, Some(Action::Protect(own)) if own.reqid == reqid)
    }

    /// The same by what the policies say.
    fn judged(&self, found: Option<&Action>, row: usize, is_ike: bool) -> Option<DropReason> {
        let reqid = self.reqids[row];
        if reqid != 0 {
            let fits = matches!(found, Some(Action::Protect(own)) if own.reqid == reqid);
            return (!fits).then_some(reasons::ESP_POLICY);
        }
        match found {
            None | Some(Action::Bypass) => None,
            // Key agreement cannot be protected by what it agrees on.
            Some(_) if is_ike => None,
            Some(Action::Discard) => Some(reasons::POLICY_DISCARD),
            Some(Action::Protect(_)) => Some(reasons::POLICY_UNPROTECTED),
        }
    }

    /// Asks the policies about the packets of a turn, in one lookup.
    pub(super) fn ask(&mut self, view: &View, verdicts: &mut [u32], packets: &[Packet]) {
        view.incoming.find_in(&mut self.questions.room);
        let mut passed = 0;
        for (at, Asked { row, is_ike }) in self.questions.asked.iter().enumerate() {
            let found = view.incoming.answer(self.questions.room.number(at));
            let row = usize::from(*row);
            let is_plain = self.reqids[row] == 0 && matches!(found, None | Some(Action::Bypass));
            passed += u64::from(is_plain);
            if let Some(reason) = self.judged(found, row, *is_ike) {
                let packet = &packets[row];
                if self.is_by_answer(view, row, (packet, &received::decode(packet))) {
                    continue;
                }
                verdicts[row] = Verdict::drop(reason).0;
            }
        }
        if passed > 0 {
            self.counters.passed.add(passed);
        }
        self.questions.asked.clear();
        self.questions.room.clear();
    }
}

/// Whether a packet is of a key agreement: UDP 500 or 4500 (RFC 7296 §2).
fn is_ike(d: &Decoded) -> bool {
    d.protocol == IpProtocol::UDP && matches!(d.ports(), Some((_, 500 | inbound::UDP_PORT)))
}

/// The same of a packet that Linux sends: a peer behind address translation has another port.
pub(in super::super) fn is_own_ike(d: &Decoded) -> bool {
    let is_answer = matches!(d.ports(), Some((500 | inbound::UDP_PORT, _)));
    is_ike(d) || d.protocol == IpProtocol::UDP && is_answer
}

/// Whether a fragment may be of an ESP packet: UDP only from a peer.
pub(super) fn may_be_esp(view: &View, d: &Decoded) -> bool {
    let family = if d.kind == packet::Kind::Ipv4 { 4 } else { 6 };
    let is_peer = || d.protocol == IpProtocol::UDP && view.has_peer(family, d.src, d.dst);
    d.protocol == IpProtocol::ESP || is_peer()
}

/// Whether a packet is for an address of the router.
pub(in super::super) fn is_own(fib: &Fib, d: &Decoded) -> bool {
    let own = fib.own_addresses();
    match d.kind {
        packet::Kind::Ipv4 => own.has4(d.dst_v4()),
        _ => own.has6(d.dst),
    }
}
