//! Path MTU of associations that send (RFC 4301 §8.2): what ICMP errors say about their ESP packets.
//!
//! ```text
//!  ICMP error ─▶ too_big ─▶ View::sender ─▶ TooBig::learn ─▶ PathMtu ─▶ the packets behind it
//! ```
//!
//! Anybody can send such an error. One is believed only if its checksum is right, it quotes a packet that an association sent a short
//! while ago (SPI, ends, ports, sequence number), and that packet is longer than the MTU that the error names. The MTU is bounded below,
//! and forgotten after ten minutes, so that a longer one is found again.
//!
//! Threads: any; the value is one atomic word.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use packet::checksum::{finish, partial_sum, pseudo_header};
use packet::ipv4::Ipv4View;
use packet::ipv6::Ipv6View;
use packet::{Decoded, IpProtocol, Kind};

use crate::association::Association;
use crate::outbound::UDP_LEN;
use crate::{Words, words};

/// How long a path MTU is used, milliseconds (RFC 1191 §6.3, RFC 8201 §4).
pub const AGE_MS: u64 = 600_000;
/// The smallest path MTU over IPv4, bytes: hosts need not take longer datagrams (RFC 1122 §3.3.3), and a smaller one serves an attacker.
pub const MTU_MIN_V4: u16 = 576;
/// The same over IPv6 (RFC 8200 §5).
pub const MTU_MIN_V6: u16 = 1280;
/// How many numbers ago a quoted packet may have been sent: those of a second, at a million packets.
pub const NUMBERS_BACK: u64 = 1 << 20;

/// MTUs of common links, for routers that do not name theirs (RFC 1191 §7.1).
const PLATEAUS: [u16; 10] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68];

/// An ICMP error that says that an ESP packet was too long for a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooBig {
    /// 4 or 6.
    pub family: u8,
    /// Source of the quoted packet, to which the error is sent.
    pub source: Words,
    /// Its destination.
    pub destination: Words,
    /// In UDP: its ports.
    pub ports: Option<(u16, u16)>,
    /// Its security parameters index.
    pub spi: u32,
    /// The lower half of its sequence number.
    pub number: u32,
    /// Its length in bytes.
    pub len: u32,
    /// The MTU of the link that the error names, in bytes; 0: none.
    pub mtu: u32,
}

/// What became of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learned {
    /// The path MTU is lower than before: this many bytes.
    Lowered(u16),
    /// It was known.
    Known,
    /// The error is not plausible.
    Refused,
}

/// Whether [`too_big`] may find something, by the record of a packet alone.
#[inline]
pub fn is_too_big(d: &Decoded) -> bool {
    match d.protocol {
        IpProtocol::ICMP => d.kind == Kind::Ipv4 && d.icmp_type_code() == Some((3, 4)),
        IpProtocol::ICMPV6 => d.icmp_type_code() == Some((2, 0)),
        _ => false,
    }
}

/// What an ICMP error says of an ESP packet. `None`: it is about another packet, it does not quote the sequence number, or its checksum
/// is wrong. `frame` has the packet, whose record is `d`.
pub fn too_big(frame: &[u8], d: &Decoded) -> Option<TooBig> {
    if !is_too_big(d) {
        return None;
    }
    let message = frame.get(usize::from(d.l4_offset)..d.l3_end())?;
    let (head, quoted) = message.split_first_chunk::<8>()?;
    let word = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    let (family, pseudo, mtu) = match d.kind {
        Kind::Ipv4 => (4, 0, word & 0xffff),
        _ => {
            let len = u32::try_from(message.len()).ok()?;
            (6, pseudo_header(d.src, d.dst, IpProtocol::ICMPV6, len), word)
        }
    };
    let (source, destination, len, protocol, payload) = match family {
        4 => {
            let view = Ipv4View::new_quoted(quoted)?;
            let [src, dst] = [view.src(), view.dst()].map(|own| words(own.into()).1);
            let payload = (view.fragment_offset() == 0).then(|| view.payload())?;
            (src, dst, view.total_len().into(), view.protocol(), payload)
        }
        _ => {
            let view = Ipv6View::new_quoted(quoted)?;
            let [src, dst] = [view.src(), view.dst()].map(|own| words(own.into()).1);
            let (protocol, payload) = view.upper_layer()?;
            (src, dst, u32::from(view.payload_len()) + 40, protocol, payload)
        }
    };
    let (ports, esp) = match protocol {
        IpProtocol::ESP => (None, payload),
        IpProtocol::UDP => {
            let (udp, esp) = payload.split_first_chunk::<UDP_LEN>()?;
            let port = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
            (Some((port(0), port(2))), esp)
        }
        _ => return None,
    };
    let [a, b, c, e, f, g, h, i] = *esp.first_chunk::<8>()?;
    let spi = u32::from_be_bytes([a, b, c, e]);
    let number = u32::from_be_bytes([f, g, h, i]);
    // A message of IKE has zeros where ESP in UDP has its index.
    let is_whole = spi != 0 && finish(pseudo + partial_sum(message)) == 0;
    is_whole.then_some(TooBig { family, source, destination, ports, spi, number, len, mtu })
}

impl TooBig {
    /// Lowers the path MTU of the association that sent the quoted packet, if it did and the error is plausible.
    pub fn learn(&self, own: &Association, now_ns: u64) -> Learned {
        match self.plausible(own) {
            Some(mtu) => own.path().learn(mtu, now_ns),
            None => Learned::Refused,
        }
    }

    /// The MTU that it gives the path of an association.
    fn plausible(&self, own: &Association) -> Option<u16> {
        let parameters = own.parameters();
        let (peer, port) = own.peer();
        let ports = parameters.udp.zip(port).map(|(udp, port)| (udp.source, port));
        let is_own = (self.family, self.source) == (own.family(), own.ends().0)
            && words(peer).1 == self.destination
            && parameters.spi == self.spi
            && ports == self.ports;
        if !is_own || !has_sent(parameters.first_number, own.number(), self.number) {
            return None;
        }
        let named = match (self.family, self.mtu) {
            (4, 0) => PLATEAUS.into_iter().map(u32::from).find(|own| *own < self.len)?,
            (_, mtu) => mtu,
        };
        // Nothing is shorter than what every link of IPv6 takes (RFC 8201 §4).
        if named >= self.len || self.family == 6 && named < MTU_MIN_V6.into() {
            return None;
        }
        u16::try_from(named).ok().map(|own| own.max(MTU_MIN_V4))
    }
}

/// Whether a packet with this lower half of a number was sent lately: `first` is the first number that was, `next` the next one.
fn has_sent(first: u64, next: u64, low: u32) -> bool {
    let Some(last) = next.checked_sub(1) else { return false };
    let back = u64::from((last as u32).wrapping_sub(low)); // the distance, in the lower halves
    back < NUMBERS_BACK && last.checked_sub(back).is_some_and(|own| own >= first.max(1))
}

/// The path MTU of an association: in the lowest 16 bits, and above when it was learned, in milliseconds since 1970; 0: none.
#[derive(Debug, Default)]
pub(crate) struct PathMtu(AtomicU64);

impl PathMtu {
    /// MTU and time in one word.
    #[inline]
    pub(crate) fn word(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Puts a word that is known of the same path.
    pub(crate) fn set(&self, word: u64) {
        self.0.store(word, Relaxed);
    }

    /// What it is at this time; a packet from before it was learned has none.
    #[inline]
    pub(crate) fn at(&self, now_ns: u64) -> Option<u16> {
        match self.word() {
            0 => None,
            word => at(word, now_ns),
        }
    }

    /// The same; an MTU that is too old at this time is forgotten.
    #[inline]
    pub(crate) fn aged(&self, now_ns: u64) -> Option<u16> {
        let word = self.word();
        let mtu = at(word, now_ns);
        if mtu.is_none() && is_old(word, now_ns) {
            // If another one was learned meanwhile, that stays.
            let _ = self.0.compare_exchange(word, 0, Relaxed, Relaxed);
        }
        mtu
    }

    fn learn(&self, mtu: u16, now_ns: u64) -> Learned {
        let now_ms = now_ns / 1_000_000;
        let mut learned = Learned::Known;
        let _ = self.0.fetch_update(Relaxed, Relaxed, |word| {
            let known = at(word, now_ns).unwrap_or(u16::MAX);
            learned = if mtu < known { Learned::Lowered(mtu) } else { Learned::Known };
            // A longer one is none of this path: its age does not change (RFC 1191 §6.3).
            (mtu <= known).then_some(now_ms << 16 | u64::from(mtu))
        });
        learned
    }
}

/// The MTU of a word at this time.
pub(crate) fn at(word: u64, now_ns: u64) -> Option<u16> {
    let age_ms = (now_ns / 1_000_000).checked_sub(word >> 16)?;
    (word != 0 && age_ms < AGE_MS).then_some(word as u16)
}

/// Whether the MTU of a word is used no longer. One that was learned after this time is not old.
fn is_old(word: u64, now_ns: u64) -> bool {
    word != 0 && (now_ns / 1_000_000).checked_sub(word >> 16).is_some_and(|age| age >= AGE_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_path_mtu_falls_and_ages() {
        let own = PathMtu::default();
        assert_eq!(own.at(SECOND), None);
        assert_eq!(own.learn(1400, 10 * SECOND), Learned::Lowered(1400));
        assert_eq!(
            [9, 10, 609, 610].map(|at| own.at(at * SECOND)),
            [None, Some(1400), Some(1400), None]
        );
        assert_eq!(own.learn(1450, 300 * SECOND), Learned::Known);
        assert_eq!(own.at(610 * SECOND), None, "a longer one keeps none young");
        assert_eq!(own.learn(1400, 300 * SECOND), Learned::Known);
        assert_eq!(own.at(899 * SECOND), Some(1400), "the same does");
        assert_eq!(own.learn(1300, 400 * SECOND), Learned::Lowered(1300));
        assert_eq!(own.at(400 * SECOND), Some(1300));
        assert_eq!(own.learn(1450, 2000 * SECOND), Learned::Lowered(1450), "it was forgotten");
        let other = PathMtu::default();
        other.set(own.word());
        assert_eq!(other.at(2000 * SECOND), Some(1450));
        // Packets before it was learned and while it is used forget nothing.
        assert_eq!(
            [1999, 2000, 2599].map(|at| own.aged(at * SECOND)),
            [None, Some(1450), Some(1450)]
        );
        assert_eq!(own.word(), other.word());
        assert_eq!((own.aged(2600 * SECOND), own.word()), (None, 0), "it costs nothing then");
        assert_eq!(
            (own.aged(2600 * SECOND), own.learn(1450, 2600 * SECOND)),
            (None, Learned::Lowered(1450))
        );
    }

    #[test]
    fn numbers_were_sent_lately() {
        assert!(!has_sent(1, 1, 0) && !has_sent(1, 1, 1), "nothing was sent");
        assert!(has_sent(1, 2, 1) && !has_sent(1, 2, 2) && !has_sent(1, 2, 0));
        assert!(has_sent(100, 200, 100) && !has_sent(100, 200, 99));
        let next = 5_u64 << 32;
        assert!(has_sent(1, next, u32::MAX) && !has_sent(1, next, 0));
        assert!(has_sent(1, next + 1, 0) && has_sent(1, next + 1, u32::MAX), "over the carry");
        let back = NUMBERS_BACK as u32;
        assert!(has_sent(1, next, u32::MAX - back + 1) && !has_sent(1, next, u32::MAX - back));
        assert!(!has_sent(0, 0, 0) && !has_sent(0, 1, 0));
    }
}
