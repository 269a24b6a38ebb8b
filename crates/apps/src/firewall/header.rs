//! What rules see of a packet, as columns.
//!
//! The first stage that decodes a packet fills these columns from its one decode: `decode` of a router, `bridge_in` of
//! a switch, or the firewall itself where no such stage comes before it. Every later firewall reads them, also behind
//! one that marked the packet: no rule asks for what a mark changes.
//!
//! | packet | is seen as |
//! | --- | --- |
//! | not IP: ARP, LLDP, PPPoE, MPLS, … | nothing: it passes |
//! | IP whose headers are broken, three VLAN tags | malformed: it is dropped |
//! | whole, or a first fragment | with ports, TCP flags, or ICMP type and code |
//! | a later fragment | without these: rules that ask for them do not match |
//! | a TCP, UDP, SCTP, DCCP, UDP-Lite or ICMP header that is not all there | too short: it is dropped |
//! | a TCP fragment at offset 8 | too short: it could write over the flags (RFC 1858 §4, RFC 3128) |
//!
//! IPv6 extension headers are walked over; ESP has no ports that anybody can see.

use chunk::DropReason;
use classify::filter::{self, Tail, WORDS_V4, WORDS_V6, shape};
use packet::{Anomaly, Decoded, IpProtocol, Kind};

use super::kernels::{MALFORMED, SHORT};
use super::reasons;

chunk::columns! {
    /// What rules see of a packet. A stage that fills these columns writes `filter_family` for every row.
    pub struct HeaderColumns / HeaderView {
        /// 4 or 6; 0 where no rules are asked; [`SHORT`] or [`MALFORMED`] where the firewall drops the packet.
        pub filter_family: u8,
        /// Words 0 to 3 of the header, lowest first: all of IPv4 ([`filter::schema_v4`]).
        pub filter_head0: [u64; 2],
        /// Words 4 to 7 of a header of IPv6 ([`filter::schema_v6`]).
        pub filter_head1: [u64; 2],
        /// Words 8 and 9 of it; and, of both families, the application of the flow where a firewall comes behind a stage that
        /// knows it.
        pub filter_head2: [u64; 2],
        /// Where the IP header starts, bytes from the frame's start. Written where the family is 4 or 6.
        pub filter_l3: u8,
        /// Of records, where stages of the pipeline share them.
        pub record: [u64; 8],
        /// Likewise.
        pub record_is_known: u8,
    }
}

/// What of a packet rules can match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// Nothing; the packet passes.
    Nothing,
    /// Nothing, for it is too short; the packet ends here.
    Short,
    /// Nothing, for it is malformed; the packet ends here.
    Malformed,
    /// A header of [`filter::schema_v4`].
    V4([u32; WORDS_V4]),
    /// A header of [`filter::schema_v6`].
    V6([u32; WORDS_V6]),
}

impl Header {
    /// What rules see of `frame`, which came in by `interface` and was decoded to `d`.
    #[inline]
    pub fn of(frame: &[u8], d: &Decoded, interface: u16) -> Self {
        if !d.is_ip() {
            return match d.anomaly {
                Anomaly::TooManyVlanTags => Header::Malformed,
                _ => Header::Nothing,
            };
        }
        // What is wrong with addresses alone (DHCP's among them) is for others to judge.
        let is_judged = matches!(
            d.anomaly,
            Anomaly::None | Anomaly::MartianSource | Anomaly::MartianDestination
        );
        if !is_judged {
            return Header::Malformed;
        }
        let Some(tail) = tail(d, frame, interface) else { return Header::Short };
        Self::with(d, tail)
    }

    #[inline]
    fn with(d: &Decoded, tail: Tail) -> Self {
        match d.kind {
            Kind::Ipv4 => Header::V4(filter::header_v4(d.src_v4(), d.dst_v4(), tail)),
            _ => Header::V6(filter::header_v6(d.src, d.dst, tail)),
        }
    }

    /// Why the firewall drops the packet unseen.
    pub const fn dropped(self) -> Option<DropReason> {
        match self {
            Header::Short => Some(reasons::FIREWALL_SHORT),
            Header::Malformed => Some(reasons::FIREWALL_MALFORMED),
            Header::Nothing | Header::V4(_) | Header::V6(_) => None,
        }
    }
}

/// What rules see of a datagram that came in fragments, of each of them: all but addresses, interface and state. They see that
/// it is a fragment, too.
///
/// ```text
///  bits   63 … 56      55 … 32                            31 … 0
///         family     protocol, flags, shape              ports, or type and code
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole {
    /// 4 or 6; [`SHORT`] or [`MALFORMED`] where the firewall drops it.
    pub family: u8,
    /// A word of the header: both ports.
    pub ports: u32,
    /// The last word, without what it has of interface and state.
    pub what: u32,
}

/// The bits of a header's last word that are of the packet itself: protocol, flags, shape.
const WHAT: u32 = !(filter::state_bits(filter::STATE_MAX) | filter::INTERFACE_MAX as u32);

impl Whole {
    /// Of a datagram, decoded.
    pub fn of(frame: &[u8], d: &Decoded) -> Self {
        let (family, ports, what) = match Header::of(frame, d, 0) {
            Header::V4([.., ports, what]) => (4, ports, what),
            Header::V6([.., ports, what]) => (6, ports, what),
            Header::Short => (SHORT, 0, 0),
            Header::Nothing | Header::Malformed => (MALFORMED, 0, 0),
        };
        let is_fragment = Tail { shape: shape::FRAGMENT, ..Tail::default() };
        let [.., bit] = filter::header_v4(0, 0, is_fragment);
        Self { family, ports, what: what | bit }
    }

    /// As it is in a column; never 0.
    pub const fn bits(self) -> u64 {
        (self.family as u64) << 56 | (self.what as u64 >> 8) << 32 | self.ports as u64
    }

    const fn of_bits(bits: u64) -> Self {
        let what = (bits >> 32) as u32 & 0xff_ffff;
        Self { family: (bits >> 56) as u8, ports: bits as u32, what: what << 8 }
    }
}

/// The header columns over some rows, for the stage that fills them.
#[derive(Debug)]
pub struct Headers<'a> {
    /// The column `filter_family`, and so on.
    pub family: &'a mut [u8],
    /// Words 0 to 3.
    pub head0: &'a mut [[u64; 2]],
    /// Words 4 to 7.
    pub head1: &'a mut [[u64; 2]],
    /// Words 8 and 9, and the application.
    pub head2: &'a mut [[u64; 2]],
    /// Where the IP header starts.
    pub l3: &'a mut [u8],
}

impl<'a> From<HeaderView<'a>> for Headers<'a> {
    fn from(view: HeaderView<'a>) -> Self {
        let HeaderView {
            filter_family, filter_head0, filter_head1, filter_head2, filter_l3, ..
        } = view;
        Self {
            family: filter_family,
            head0: filter_head0,
            head1: filter_head1,
            head2: filter_head2,
            l3: filter_l3,
        }
    }
}

impl Headers<'_> {
    /// Says of every row that no rule is asked; stages write the others then.
    pub fn begin(&mut self) {
        self.family.fill(0);
    }

    /// Adds the states of packets in their flows, by row: what the stage before this one found of them.
    pub fn put_states(&mut self, states: &[u8]) {
        for (row, state) in states.iter().enumerate() {
            let bits = u64::from(filter::state_bits(*state)) << 32;
            let word = match self.family[row] {
                4 => &mut self.head0[row][1],
                6 => &mut self.head2[row][0],
                _ => continue,
            };
            *word = *word & !STATE_BITS | bits;
        }
    }

    /// Adds the applications of flows, by row: what the stage before this one found.
    pub fn put_applications(&mut self, applications: &[u32]) {
        for (head, application) in self.head2.iter_mut().zip(applications) {
            head[1] = (*application).into();
        }
    }

    /// Writes what rules see of `frame`, the packet of a row, which came in by `interface` and was decoded to `d`.
    #[inline]
    pub fn put(&mut self, row: usize, frame: &[u8], d: &Decoded, interface: u16) {
        self.family[row] = match Header::of(frame, d, interface) {
            Header::Nothing => 0,
            Header::Short => {
                // What it is with its datagram may be known (`put_whole`).
                let tail = Tail { proto: d.protocol.0, interface, ..Tail::default() };
                self.put_words(row, Header::with(d, tail));
                SHORT
            }
            Header::Malformed => MALFORMED,
            header => self.put_words(row, header),
        };
        self.l3[row] = d.l3_offset as u8;
    }

    /// The words of a header; its family.
    #[inline]
    fn put_words(&mut self, row: usize, header: Header) -> u8 {
        match header {
            Header::V4(words) => {
                self.head0[row] = column(words);
                4
            }
            Header::V6([a, b, c, d, e, f, g, h, ports, what]) => {
                self.head0[row] = column([a, b, c, d]);
                self.head1[row] = column([e, f, g, h]);
                self.head2[row] = column([ports, what, 0, 0]);
                6
            }
            Header::Nothing | Header::Short | Header::Malformed => 0,
        }
    }

    /// Gives fragments, by row, what rules may ask of the datagrams that they belong to; 0: the row is no such fragment.
    pub fn put_wholes(&mut self, wholes: &[u64]) {
        for (row, whole) in wholes.iter().enumerate().filter(|(_, whole)| **whole != 0) {
            let Whole { family, ports, what } = Whole::of_bits(*whole);
            // Whether a fragment may be of such a datagram does not matter: the datagram is inspected.
            if !matches!(self.family[row], 4 | 6 | SHORT) {
                continue;
            }
            self.family[row] = family;
            let tail = |old: u64| {
                let old = (old >> 32) as u32 & !WHAT;
                u64::from(old | what & WHAT) << 32 | u64::from(ports)
            };
            match family {
                4 => self.head0[row][1] = tail(self.head0[row][1]),
                6 => self.head2[row][0] = tail(self.head2[row][0]),
                _ => {}
            }
        }
    }
}

/// The bits of the state in the half of a column that has the last word of a header, above.
const STATE_BITS: u64 = (filter::state_bits(filter::STATE_MAX) as u64) << 32;

/// Words of a header as they are in a column.
#[inline]
const fn column(words: [u32; 4]) -> [u64; 2] {
    let [a, b, c, d] = words;
    [(b as u64) << 32 | a as u64, (d as u64) << 32 | c as u64]
}

/// The words of a column.
#[inline]
pub(super) const fn words(column: [u64; 2]) -> [u32; 4] {
    let [low, high] = column;
    [low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32]
}

/// Everything but the addresses; `None` for what is too short.
#[inline]
fn tail(d: &Decoded, frame: &[u8], interface: u16) -> Option<Tail> {
    let proto = d.protocol;
    let of = |condition: bool, bit: u8| if condition { bit } else { 0 };
    let fragment = of(d.has(Decoded::FRAGMENT), shape::FRAGMENT);
    let plain = Tail { proto: proto.0, shape: fragment, interface, ..Tail::default() };
    if d.fragment_offset != 0 {
        return (proto != IpProtocol::TCP || d.fragment_offset > 8).then_some(plain);
    }
    let l4 = usize::from(d.l4_offset);
    let needed = needed(d.kind, proto);
    if needed > 0 && (d.has(Decoded::L4_TRUNCATED) || frame.len() < l4 + needed) {
        return None;
    }
    if let Some((sport, dport)) = d.ports() {
        let flags = if proto == IpProtocol::TCP { frame.get(l4 + 13).copied()? } else { 0 };
        return Some(Tail { sport, dport, flags, shape: fragment | shape::PORTS, ..plain });
    }
    Some(match d.icmp_type_code() {
        Some((kind, code)) => {
            Tail { sport: kind.into(), dport: code.into(), shape: fragment | shape::ICMP, ..plain }
        }
        None => plain,
    })
}

/// Bytes of the upper layer that rules may ask for.
#[inline]
fn needed(kind: Kind, protocol: IpProtocol) -> usize {
    match (kind, protocol) {
        (_, IpProtocol::TCP) => 14,
        (_, IpProtocol::UDP | IpProtocol::SCTP | IpProtocol::DCCP | IpProtocol::UDP_LITE) => 4,
        (Kind::Ipv4, IpProtocol::ICMP) | (Kind::Ipv6, IpProtocol::ICMPV6) => 4,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A UDP datagram to port 53 by IPv4 or IPv6, or a fragment of it.
    fn frame(is_v6: bool, fragment: Option<(u16, bool)>, upper: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        let (offset, more) = fragment.unwrap_or_default();
        if is_v6 {
            let own = if fragment.is_some() { 8 } else { 0 };
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, own + upper.len() as u8]);
            frame.extend([if own > 0 { 44 } else { 17 }, 64]);
            frame.extend([[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]; 2].concat());
            if fragment.is_some() {
                frame.extend([17, 0]);
                frame.extend((offset | u16::from(more)).to_be_bytes());
                frame.extend([0, 0, 0, 7]);
            }
        } else {
            let [a, b] = (offset / 8 + (u16::from(more) << 13)).to_be_bytes();
            let len = 20 + upper.len() as u8;
            let mut ip = [0x45, 0, 0, len, 0, 7, a, b, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
            let sum = packet::checksum::internet_checksum(&ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend([8, 0]);
            frame.extend(ip);
        }
        frame.extend_from_slice(upper);
        frame
    }

    /// Columns of a frame in a row, by interface 3 and in state 2, with what its datagram is.
    fn columns(frame: &[u8], whole: u64) -> (u8, [[u64; 2]; 3]) {
        let (mut family, mut l3) = ([9], [0]);
        let (mut head0, mut head1, mut head2) = ([[0; 2]], [[0; 2]], [[0; 2]]);
        let mut headers = Headers {
            family: &mut family,
            head0: &mut head0,
            head1: &mut head1,
            head2: &mut head2,
            l3: &mut l3,
        };
        headers.put(0, frame, &packet::decode(frame, frame.len()), 3);
        headers.put_wholes(&[whole]);
        headers.put_states(&[2]);
        (family[0], [head0[0], head1[0], head2[0]])
    }

    /// Rules see any fragment of a datagram as its first one, which has ports.
    #[test]
    fn fragments_of_a_known_datagram_are_seen_as_it() {
        let upper = [&[0x10, 0, 0, 53, 0, 24, 0, 0][..], &[7; 16]].concat();
        for is_v6 in [false, true] {
            let whole = frame(is_v6, None, &upper);
            let bits = Whole::of(&whole, &packet::decode(&whole, whole.len())).bits();
            assert_ne!(bits, 0);
            let first = frame(is_v6, Some((0, true)), &upper[..8]);
            let expected = columns(&first, 0);
            let tiny = columns(&frame(is_v6, Some((8, true)), &upper[8..16]), 0);
            assert_ne!(tiny.1, expected.1, "without its datagram a later one has no ports");
            for piece in [
                first,
                frame(is_v6, Some((8, true)), &upper[8..16]),
                frame(is_v6, Some((16, false)), &upper[16..]),
            ] {
                assert_eq!(columns(&piece, bits), expected, "{is_v6}");
            }
        }
    }

    /// A datagram whose header is not all there is dropped, whatever its fragments look like.
    #[test]
    fn fragments_of_a_short_datagram_are_short() {
        let whole = frame(false, None, &[1; 3]);
        let bits = Whole::of(&whole, &packet::decode(&whole, whole.len())).bits();
        assert_eq!(columns(&frame(false, Some((8, false)), &[7; 3]), bits).0, SHORT);
    }
}
