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

/// Packets of bursts that stages have seen and not finished. A stage between may divide a chunk, so chunks are not counted.
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
    /// Where stages say how many packets are on their way.
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
            if tuple.family == 6 {
                return rules.nat64(tuple).is_some_and(|(_, dst)| rules.may_hairpin64(tuple, dst));
            }
            rules.owner(tuple.protocol, tuple.dst.0[1] as u32, tuple.dst.1) != Owner::Nobody
        };
        // An earlier packet may have got the outside end that this one is for: from another remote end, by hairpin, or from
        // IPv6, whose addresses are not those of the answer.
        let is_answer = self.seen.iter().any(turns_back)
            || !self.seen.is_empty() && Tuple::of(&d, l4).as_ref().is_some_and(is_owned)
            || l4.first().is_some_and(|kind| is_error(d.protocol.0, *kind))
            || d.has(Decoded::FRAGMENT);
        if is_answer && !is_first {
            return Ahead { begins: true, changed: false };
        }
        self.seen.push([d.src, d.dst]);
        Ahead::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nat::rules::{Action, Own, Prefix, Rule};

    const POOL: u32 = u32::from_be_bytes([203, 0, 113, 64]);
    const INSIDE: u32 = u32::from_be_bytes([10, 0, 0, 1]);
    const REMOTE: u32 = u32::from_be_bytes([198, 51, 100, 9]);

    fn rule(number: u16, action: Action) -> Rule {
        let ports = 1024..=u16::MAX;
        Rule { number, outside: Vec::new(), sources: Vec::new(), protocol: None, ports, action }
    }

    /// A packet of UDP without data from port 5000 to port 53, or back.
    fn v4(src: u32, dst: u32, is_back: bool) -> Vec<u8> {
        let mut frame = vec![0; 14 + 28];
        (frame[12], frame[14], frame[17], frame[22], frame[23]) = (8, 0x45, 28, 64, 17);
        frame[26..30].copy_from_slice(&src.to_be_bytes());
        frame[30..34].copy_from_slice(&dst.to_be_bytes());
        frame[34..42].copy_from_slice(&udp(is_back));
        let sum = packet::checksum::internet_checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    fn v6(src: [u64; 2], dst: [u64; 2]) -> Vec<u8> {
        let mut frame = vec![0; 14 + 48];
        (frame[12], frame[13], frame[14]) = (0x86, 0xdd, 0x60);
        (frame[19], frame[20], frame[21]) = (8, 17, 64);
        for (place, word) in frame[22..54].chunks_exact_mut(8).zip([src[0], src[1], dst[0], dst[1]])
        {
            place.copy_from_slice(&word.to_be_bytes());
        }
        frame[54..62].copy_from_slice(&udp(false));
        frame
    }

    fn udp(is_back: bool) -> [u8; 8] {
        let [a, b] = if is_back { [53, 5000] } else { [5000, 53u16] }.map(u16::to_be_bytes);
        [a[0], a[1], b[0], b[1], 0, 8, 0, 0]
    }

    /// Whether the second of two packets begins a burst.
    fn begins(first: &[u8], second: &[u8]) -> bool {
        let prefix = Prefix { family: 6, address: [0x0064_ff9b_0000_0000, 0], len: 96 };
        let all = vec![
            rule(0, Action::Source(vec![POOL])),
            rule(1, Action::Nat64 { prefix, to: vec![POOL] }),
        ];
        let rules = Rules::new(all, 1, Arc::new(Own::new(2)));
        let (_, depot) = chunk::Region::new(64, chunk::HugePages::Off).unwrap();
        let mut pool = chunk::Pool::new(depot, 8);
        let [first, second] = [first, second].map(|own| Packet::copy_from(&mut pool, own).unwrap());
        let mut burst = Burst::default();
        assert!(!burst.look(&first, true, &rules).begins);
        let begins = burst.look(&second, false, &rules).begins;
        [first, second].into_iter().for_each(|own| own.free(&mut pool));
        begins
    }

    #[test]
    fn what_may_depend_on_an_earlier_packet_begins_a_burst() {
        let other = REMOTE + 1;
        let opener = v4(INSIDE, REMOTE, false);
        assert!(begins(&opener, &v4(REMOTE, POOL, true)), "its answer");
        assert!(
            begins(&opener, &v4(other, POOL, true)),
            "another remote end at the same outside end"
        );
        assert!(begins(&v4(INSIDE, POOL, false), &v4(INSIDE + 1, POOL, true)), "hairpin");
        assert!(begins(&v4(REMOTE, INSIDE, false), &v4(INSIDE, REMOTE, true)), "back");
        assert!(!begins(&opener, &v4(INSIDE, other, false)), "another session");
        assert!(!begins(&opener, &opener), "the same session");
        let opener = v6([0x2001_0db8_0000_0000, 7], [0x0064_ff9b_0000_0000, REMOTE.into()]);
        assert!(begins(&opener, &v4(REMOTE, POOL, true)), "an answer in the other family");
        assert!(!begins(&opener, &opener), "the same session");
        let hairpin = v6([0x2001_0db8_0000_0000, 8], [0x0064_ff9b_0000_0000, POOL.into()]);
        assert!(begins(&opener, &hairpin), "hairpin of IPv6 hosts");
    }
}
