//! What conditions on a packet compare: read from it once.

use std::net::IpAddr;

use packet::tcp::TcpView;
use packet::{Decoded, IpProtocol, Kind};
use signatures::{BitsMode, Compare, Condition, Fragbits, IpOption, Number, TcpFlags};

use crate::Packet;

/// Of TCP.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tcp {
    pub(crate) sequence: u32,
    pub(crate) acknowledgment: u32,
    /// FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) mss: Option<u16>,
}

/// The header of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) decoded: Decoded,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) ports: (u16, u16),
    pub(crate) protocol: u8,
    pub(crate) tcp: Option<Tcp>,
    /// Bytes of payload.
    pub(crate) payload: usize,
    icmp: Option<(u8, u8)>,
    /// Identifier and sequence number of an ICMP message.
    icmp_echo: Option<(u16, u16)>,
    /// Identification, fragment bits (more 1, do not 2, reserved 4) of IPv4.
    ipv4: Option<(u16, u8)>,
    /// Bit by type of IPv4 option.
    options: u32,
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The upper layer of a packet, without padding of the link.
pub(crate) fn upper<'a>(packet: &Packet<'a>) -> &'a [u8] {
    let d = packet.decoded;
    let end = d.l3_end().min(packet.frame.len());
    packet.frame.get(usize::from(d.l4_offset)..end).unwrap_or_default()
}

/// What rules call the payload: what is behind the header of TCP, UDP, ICMP or SCTP.
pub(crate) fn payload<'a>(packet: &Packet<'a>) -> &'a [u8] {
    let d = packet.decoded;
    if d.fragment_offset > 0 {
        return &[];
    }
    let upper = upper(packet);
    let at = match d.protocol {
        IpProtocol::TCP => match TcpView::new_checked(upper) {
            Some(view) => return view.payload(),
            None => return &[],
        },
        IpProtocol::UDP => {
            // What is behind its length is no part of it (but a length of 0 says nothing).
            let len = word(upper, 4).map_or(0, usize::from);
            let len = if len < 8 { upper.len() } else { len.min(upper.len()) };
            return upper.get(8..len).unwrap_or_default();
        }
        IpProtocol::ICMP | IpProtocol::ICMPV6 => 8,
        IpProtocol(132) => 12,
        _ => return &[],
    };
    upper.get(at..).unwrap_or_default()
}

/// The maximum segment size among TCP options.
fn mss(mut options: &[u8]) -> Option<u16> {
    while let [kind, rest @ ..] = options {
        match (kind, rest) {
            (0, _) => return None,
            (1, _) => options = rest,
            (2, [4, high, low, ..]) => return Some(u16::from_be_bytes([*high, *low])),
            (_, [len, ..]) => options = options.get(usize::from(*len).max(2)..)?,
            _ => return None,
        }
    }
    None
}

/// The types of IPv4 options, as bits.
fn option_bits(mut options: &[u8]) -> u32 {
    let mut bits = 0;
    while let [kind, rest @ ..] = options {
        bits |= option_bit(*kind);
        match (kind, rest) {
            (0, _) => break,
            (1, _) => options = rest,
            (_, [len, ..]) => options = options.get(usize::from(*len).max(2)..).unwrap_or_default(),
            _ => break,
        }
    }
    bits
}

/// Record route 7, LSRR 131, SSRR 137, end 0, nothing 1, timestamp 68, security 130, extended 133, stream 136.
fn option_bit(kind: u8) -> u32 {
    let known = [7, 131, 137, 0, 1, 68, 130, 133, 136];
    1 << known.iter().position(|own| *own == kind).unwrap_or(31)
}

impl Header {
    /// None of a packet that is not IP.
    pub(crate) fn new(packet: &Packet<'_>) -> Option<Self> {
        let d = packet.decoded;
        let (source, destination) = (d.src_ip()?, d.dst_ip()?);
        let upper = upper(packet);
        let view = match d.protocol {
            IpProtocol::TCP if d.fragment_offset == 0 => TcpView::new_checked(upper),
            _ => None,
        };
        let tcp = view.map(|view| Tcp {
            sequence: view.sequence(),
            acknowledgment: view.acknowledgment(),
            flags: view.flags() as u8,
            window: view.window(),
            mss: mss(view.options_bytes()),
        });
        let ip = packet.frame.get(usize::from(d.l3_offset)..).unwrap_or_default();
        let ipv4 = (d.kind == Kind::Ipv4).then(|| (word(ip, 4), ip.get(6)));
        let ipv4 = match ipv4 {
            Some((Some(id), Some(flags))) => {
                // On the wire: reserved, do not, more.
                Some((id, flags >> 5))
            }
            _ => None,
        };
        let options = match d.kind {
            Kind::Ipv4 => ip.get(20..usize::from(d.ip_header_len)).unwrap_or_default(),
            _ => &[],
        };
        let icmp = d.icmp_type_code();
        let has_echo = match (d.kind, icmp) {
            (Kind::Ipv4, Some((kind, _))) => matches!(kind, 0 | 8 | 13..=18),
            (_, Some((kind, _))) => matches!(kind, 128 | 129),
            _ => false,
        };
        let icmp_echo = has_echo.then(|| Some((word(upper, 4)?, word(upper, 6)?))).flatten();
        Some(Self {
            decoded: *d,
            source,
            destination,
            ports: d.ports().unwrap_or((0, 0)),
            protocol: d.protocol.0,
            tcp,
            payload: payload(packet).len(),
            icmp,
            icmp_echo,
            ipv4,
            options: option_bits(options),
        })
    }

    /// That of a fragment, whatever is in its payload.
    pub(crate) fn of_fragment(packet: &Packet<'_>) -> Option<Self> {
        let (ports, tcp, payload, icmp, icmp_echo) = ((0, 0), None, 0, None, None);
        Some(Self { ports, tcp, payload, icmp, icmp_echo, ..Self::new(packet)? })
    }

    /// Whether a condition on the packet alone holds; none of other conditions.
    pub(crate) fn holds(&self, condition: &Condition) -> Option<bool> {
        let d = &self.decoded;
        let tcp = |test: &dyn Fn(&Tcp) -> bool| self.tcp.as_ref().is_some_and(test);
        let is = |number: &Number, value: u32| (number.number == value) != number.negated;
        let icmp = |test: &dyn Fn((u8, u8)) -> bool| self.icmp.is_some_and(test);
        let echo = |test: &dyn Fn((u16, u16)) -> bool| self.icmp_echo.is_some_and(test);
        Some(match condition {
            // As in Suricata, `!9` is of packets that have a payload.
            Condition::Dsize(Compare::NotEqual(_)) if self.payload == 0 => false,
            Condition::Dsize(size) => size.holds(self.payload as u64),
            Condition::Flags(flags) => tcp(&|tcp| flags_hold(flags, tcp.flags)),
            Condition::Seq(number) => tcp(&|tcp| tcp.sequence == *number),
            Condition::Ack(number) => tcp(&|tcp| tcp.acknowledgment == *number),
            Condition::Window(number) => tcp(&|tcp| is(number, u32::from(tcp.window))),
            Condition::Mss(size) => {
                tcp(&|tcp| tcp.mss.is_some_and(|mss| size.holds(u64::from(mss))))
            }
            Condition::Ttl(ttl) => ttl.holds(u64::from(d.ttl)),
            Condition::Id(id) => self.ipv4.is_some_and(|(own, _)| own == *id),
            Condition::Fragbits(bits) => self.ipv4.is_some_and(|(_, own)| fragbits_hold(bits, own)),
            // IPv6 packets have one only in an extension header.
            Condition::FragOffset(_) if d.kind == Kind::Ipv6 && !d.has(Decoded::FRAGMENT) => false,
            Condition::FragOffset(offset) => offset.holds(u64::from(d.fragment_offset / 8)),
            Condition::Ipopts(option) => self.has_option(*option),
            Condition::Itype(kind) => icmp(&|(own, _)| kind.holds(u64::from(own))),
            Condition::Icode(code) => icmp(&|(_, own)| code.holds(u64::from(own))),
            Condition::IcmpId(id) => echo(&|(own, _)| own == *id),
            Condition::IcmpSeq(seq) => echo(&|(_, own)| own == *seq),
            Condition::IpProto(protocol) => protocol.holds(u64::from(self.protocol)),
            Condition::SameIp => self.source == self.destination,
            Condition::Tos(tos) => is(tos, u32::from(d.traffic_class)),
            _ => return None,
        })
    }

    fn has_option(&self, option: IpOption) -> bool {
        let kind = match option {
            IpOption::Rr => 7,
            IpOption::Lsrr | IpOption::Lsrre => 131,
            IpOption::Ssrr => 137,
            IpOption::Eol => 0,
            IpOption::Nop => 1,
            IpOption::Ts => 68,
            IpOption::Sec => 130,
            IpOption::Esec => 133,
            IpOption::Satid => 136,
            IpOption::Any => return self.options != 0,
        };
        self.options & option_bit(kind) != 0
    }
}

fn bits_hold(mode: BitsMode, bits: u8, own: u8) -> bool {
    match mode {
        BitsMode::Exactly => own == bits,
        BitsMode::AtLeast => own & bits == bits,
        BitsMode::Any => own & bits != 0,
        BitsMode::NotAll if bits == 0 => own != 0,
        BitsMode::NotAll => own & bits != bits,
    }
}

pub(crate) fn flags_hold(flags: &TcpFlags, own: u8) -> bool {
    bits_hold(flags.mode, flags.bits, own & !flags.ignored)
}

/// As in Suricata, `+` asks for one more bit than those that it has; behind them it does not, as in Snort.
fn fragbits_hold(flags: &Fragbits, own: u8) -> bool {
    let with_more = flags.mode == BitsMode::AtLeast && !flags.sign_behind;
    let has_more = !with_more || own & !flags.bits != 0;
    has_more && bits_hold(flags.mode, flags.bits, own)
}
